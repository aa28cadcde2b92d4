//! Sequence numbers, sender reports, RTT and rate.

use bentpipe_units::{Duration, Instant, Rate};

use super::nada::Reference;
use super::packet::{ntp, ticks};
use super::{Adaptation, Config, Packet, ReceiverReport, SenderReport};

/// Sender of a medium.
#[derive(Clone, Debug, Default)]
pub struct Sender {
    seq: u16,
    packets: u32,
    octets: u32,
    report_at: Instant,
    /// Rate that the source produces by itself, and the rate allowed now.
    nominal: Rate,
    rate: Rate,
    /// Smoothed loss fraction.
    loss: f64,
    rtt: Option<Duration>,
    nada: Reference,
}

impl Sender {
    /// A source with rate `nominal`, which, within the limits of the configuration, is also the rate before the first
    /// report; with NADA that is its minimum. `seq` is the first sequence number.
    #[must_use]
    pub fn new(cfg: &Config, now: Instant, nominal: Rate, seq: u16) -> Self {
        let rate = match cfg.nada {
            Some(nada) => nada.min_rate.min(nada.max_rate.unwrap_or(nominal)),
            None => cfg.adaptation.map_or(nominal, |a| bounded(&a, nominal, nominal.as_bps())),
        };
        Self { seq, report_at: now + cfg.interval(), nominal, rate, ..Self::default() }
    }

    /// Sends a packet with `len` bytes of the medium sampled at `sampled`.
    pub fn send(&mut self, cfg: &Config, sampled: Instant, len: u32) -> Packet {
        let packet = Packet { seq: self.seq, timestamp: ticks(cfg, sampled) };
        self.seq = self.seq.wrapping_add(1);
        self.packets = self.packets.wrapping_add(1);
        self.octets = self.octets.wrapping_add(len);
        packet
    }

    /// Processes a receiver report.
    pub fn on_report(&mut self, cfg: &Config, now: Instant, report: &ReceiverReport) {
        let Some(block) = &report.block else { return };
        if block.lsr != 0 {
            // Section 6.4.1: A - LSR - DLSR.
            let units = ntp(now).wrapping_sub(block.lsr).wrapping_sub(block.dlsr);
            // A clock with steps of 2^-16 s may seem to run backwards by one step.
            let units = if units > u32::MAX / 2 { 0 } else { units };
            self.rtt = Some(Duration::from_nanos((u64::from(units) * 1_000_000_000) >> 16));
        }
        if let (Some(nada), Some(feedback)) = (&cfg.nada, &report.nada) {
            let (rtt, max) = (self.rtt.unwrap_or_default(), nada.max_rate.unwrap_or(self.nominal));
            self.rate = self.nada.update(nada, now, rtt, feedback, self.rate, max);
        }
        let Some(a) = &cfg.adaptation else { return };
        self.loss = (1.0 - a.smoothing) * self.loss + a.smoothing * (f64::from(block.fraction_lost) / 256.0);
        if self.loss >= a.congested {
            self.rate = bounded(a, self.nominal, (self.rate.as_bps() as f64 * a.decrease) as u64);
        } else if self.loss <= a.unloaded {
            self.rate = bounded(a, self.nominal, self.rate.as_bps().saturating_add(a.increase.as_bps()));
        }
    }

    /// Time of the next call of [`poll_report`](Self::poll_report).
    #[must_use]
    pub fn next_report(&self) -> Instant {
        self.report_at
    }

    /// Returns the report that is due at `now`, if any.
    pub fn poll_report(&mut self, cfg: &Config, now: Instant) -> Option<SenderReport> {
        if now < self.report_at {
            return None;
        }
        self.report_at = now + cfg.interval();
        Some(SenderReport { ntp: ntp(now), packets: self.packets, octets: self.octets })
    }

    /// Rate allowed to the source.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Allowed rate as a fraction of the nominal rate.
    #[must_use]
    pub fn rate_ratio(&self) -> f64 {
        self.rate.as_bps() as f64 / self.nominal.as_bps().max(1) as f64
    }

    /// Smoothed loss fraction.
    #[must_use]
    pub fn loss(&self) -> f64 {
        self.loss
    }

    /// RTT by the last report that allowed a measurement; `None` before it.
    #[must_use]
    pub fn rtt(&self) -> Option<Duration> {
        self.rtt
    }
}

/// Limits a rate; the maximum takes precedence.
fn bounded(a: &Adaptation, nominal: Rate, bps: u64) -> Rate {
    let max = a.max_rate.unwrap_or(nominal).as_bps();
    Rate::from_bps(bps.max(a.min_rate.as_bps()).min(max).max(1))
}
