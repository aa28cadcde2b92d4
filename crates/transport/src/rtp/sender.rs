//! Numbers, sender reports, the round trip and the rate.

use bentpipe_units::{Duration, Instant, Rate};

use super::packet::{ntp, ticks};
use super::{Adaptation, Config, Packet, ReceiverReport, SenderReport};

/// The end that a medium comes from.
#[derive(Clone, Debug)]
pub struct Sender {
    seq: u16,
    packets: u32,
    octets: u32,
    report_at: Instant,
    /// What the source produces by itself, and the rate it is to keep to now.
    nominal: Rate,
    rate: Rate,
    /// Smoothed loss.
    loss: f64,
    rtt: Option<Duration>,
}

impl Sender {
    /// A source that produces `nominal` by itself: its rate before the first report, within its bounds. `seq` is the
    /// number of its first packet.
    #[must_use]
    pub fn new(cfg: &Config, now: Instant, nominal: Rate, seq: u16) -> Self {
        let rate = cfg.adaptation.map_or(nominal, |a| bounded(&a, nominal, nominal.as_bps()));
        Self {
            seq,
            packets: 0,
            octets: 0,
            report_at: now + cfg.interval(),
            nominal,
            rate,
            loss: 0.0,
            rtt: None,
        }
    }

    /// Sends a packet with `len` bytes of a medium sampled at `sampled`.
    pub fn send(&mut self, cfg: &Config, sampled: Instant, len: u32) -> Packet {
        let packet = Packet { seq: self.seq, timestamp: ticks(cfg, sampled) };
        self.seq = self.seq.wrapping_add(1);
        self.packets = self.packets.wrapping_add(1);
        self.octets = self.octets.wrapping_add(len);
        packet
    }

    /// Takes in a receiver report.
    pub fn on_report(&mut self, cfg: &Config, now: Instant, report: &ReceiverReport) {
        let Some(block) = &report.block else { return };
        if block.lsr != 0 {
            // Section 6.4.1: A - LSR - DLSR.
            let units = ntp(now).wrapping_sub(block.lsr).wrapping_sub(block.dlsr);
            // A clock in steps of 2^-16 s may run back by one of them.
            let units = if units > u32::MAX / 2 { 0 } else { units };
            self.rtt = Some(Duration::from_nanos((u64::from(units) * 1_000_000_000) >> 16));
        }
        let Some(a) = &cfg.adaptation else { return };
        self.loss = (1.0 - a.smoothing) * self.loss + a.smoothing * (f64::from(block.fraction_lost) / 256.0);
        if self.loss >= a.congested {
            self.rate = bounded(a, self.nominal, (self.rate.as_bps() as f64 * a.decrease) as u64);
        } else if self.loss <= a.unloaded {
            self.rate = bounded(a, self.nominal, self.rate.as_bps().saturating_add(a.increase.as_bps()));
        }
    }

    /// When to call [`poll_report`](Self::poll_report).
    #[must_use]
    pub fn next_report(&self) -> Instant {
        self.report_at
    }

    /// The report that is due at `now`, where one is.
    pub fn poll_report(&mut self, cfg: &Config, now: Instant) -> Option<SenderReport> {
        if now < self.report_at {
            return None;
        }
        self.report_at = now + cfg.interval();
        Some(SenderReport { ntp: ntp(now), packets: self.packets, octets: self.octets })
    }

    /// The rate that the source is to keep to.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// … as a share of what it produces by itself.
    #[must_use]
    pub fn rate_ratio(&self) -> f64 {
        self.rate.as_bps() as f64 / self.nominal.as_bps().max(1) as f64
    }

    /// Smoothed loss.
    #[must_use]
    pub fn loss(&self) -> f64 {
        self.loss
    }

    /// The round trip by the last report that told of one.
    #[must_use]
    pub fn rtt(&self) -> Option<Duration> {
        self.rtt
    }
}

/// A rate within its bounds; the upper one counts more.
fn bounded(a: &Adaptation, nominal: Rate, bps: u64) -> Rate {
    let most = a.max_rate.unwrap_or(nominal).as_bps();
    Rate::from_bps(bps.max(a.min_rate.as_bps()).min(most).max(1))
}
