//! Statistics and receiver reports: RFC 3550 section 6.4, appendices A.1, A.3 and A.8.

use bentpipe_units::Instant;

use super::nada::Observer;
use super::packet::{ntp, ticks};
use super::{Config, Packet, ReceiverReport, ReportBlock, SenderReport};

/// A.1: a sequence number less than this ahead, or this much behind, is not a restart.
const MAX_DROPOUT: u16 = 3000;
pub(super) const MAX_MISORDER: u16 = 100;

/// Receiver of a medium.
#[derive(Clone, Debug, Default)]
pub struct Receiver {
    /// A.1: highest sequence number, cycles times 2^16, first sequence number, and the number expected after an
    /// implausible one.
    max_seq: u16,
    cycles: u32,
    base_seq: u32,
    bad_seq: Option<u16>,
    started: bool,
    received: u64,
    /// A.3: values at the last report block.
    expected_prior: u64,
    received_prior: u64,
    /// A.8: relative transit time of the last packet, and the jitter times 16.
    transit: u32,
    jitter: u32,
    /// Timestamp and arrival time of the last sender report.
    lsr: u32,
    lsr_at: Instant,
    report_at: Option<Instant>,
    /// Observations for NADA.
    observer: Option<Box<Observer>>,
}

impl Receiver {
    /// Processes a packet of `len` bytes, headers included. The first one starts the reports.
    pub fn on_packet(&mut self, cfg: &Config, now: Instant, packet: &Packet, len: u32) {
        if !self.update_seq(packet.seq) {
            return;
        }
        self.report_at.get_or_insert(now + cfg.interval());
        // A.8, in integers: J += |D| - (J + 8) / 16, where J is 16 times the jitter.
        let transit = ticks(cfg, now).wrapping_sub(packet.timestamp);
        if self.received > 1 {
            let d = (transit.wrapping_sub(self.transit) as i32).unsigned_abs();
            self.jitter = self.jitter.saturating_add(d).saturating_sub((self.jitter.saturating_add(8)) >> 4);
        }
        self.transit = transit;
        if cfg.nada.is_some() {
            let observer = self.observer.get_or_insert_with(|| Box::new(Observer::new(packet.seq, now)));
            let delay = f64::from(transit.cast_signed()) / f64::from(cfg.clock_rate.max(1));
            observer.on_packet(now, packet.seq, len, delay);
        }
    }

    /// A.1, for a source without probation. Returns true if the packet is valid.
    fn update_seq(&mut self, seq: u16) -> bool {
        if !self.started {
            self.started = true;
            self.restart(seq);
        }
        let delta = seq.wrapping_sub(self.max_seq);
        if delta < MAX_DROPOUT {
            if seq < self.max_seq {
                // The sequence number wrapped: another cycle.
                self.cycles = self.cycles.wrapping_add(1 << 16);
            }
            self.max_seq = seq;
        } else if delta <= u16::MAX - MAX_MISORDER + 1 {
            // A large jump: after two consecutive packets, the source has restarted.
            if self.bad_seq != Some(seq) {
                self.bad_seq = Some(seq.wrapping_add(1));
                return false;
            }
            self.restart(seq);
        }
        // Otherwise it is a duplicate or late.
        self.received += 1;
        true
    }

    fn restart(&mut self, seq: u16) {
        (self.base_seq, self.max_seq, self.bad_seq) = (seq.into(), seq, None);
        (self.cycles, self.received) = (0, 0);
        (self.expected_prior, self.received_prior) = (0, 0);
    }

    /// Processes a sender report.
    pub fn on_report(&mut self, now: Instant, report: &SenderReport) {
        (self.lsr, self.lsr_at) = (report.ntp, now);
    }

    /// Time of the next call of [`poll_report`](Self::poll_report); `None` before the first packet.
    #[must_use]
    pub fn next_report(&self) -> Option<Instant> {
        self.report_at
    }

    /// Returns the report that is due at `now`, if any.
    pub fn poll_report(&mut self, cfg: &Config, now: Instant) -> Option<ReceiverReport> {
        self.report_at.filter(|at| *at <= now)?;
        self.report_at = Some(now + cfg.interval());
        // Section 6.4: a block if packets have arrived since the last report.
        let block = (self.received != self.received_prior).then(|| self.block(now));
        let nada = self.observer.as_mut().and_then(|observer| observer.feedback(now));
        Some(ReceiverReport { block, nada })
    }

    fn block(&mut self, now: Instant) -> ReportBlock {
        // A.3.
        let highest = self.cycles.wrapping_add(self.max_seq.into());
        let expected = u64::from(highest.wrapping_sub(self.base_seq)) + 1;
        let lost = (expected as i64 - self.received as i64).clamp(-0x80_0000, 0x7f_ffff) as i32;
        let expected_interval = expected.saturating_sub(self.expected_prior);
        let received_interval = self.received - self.received_prior;
        let lost_interval = expected_interval.saturating_sub(received_interval);
        (self.expected_prior, self.received_prior) = (expected, self.received);
        let fraction = (lost_interval << 8).checked_div(expected_interval).unwrap_or(0);
        let dlsr = if self.lsr == 0 { 0 } else { ntp(now).wrapping_sub(ntp(self.lsr_at)) };
        ReportBlock {
            fraction_lost: u8::try_from(fraction).unwrap_or(u8::MAX),
            cumulative_lost: lost,
            highest_seq: highest,
            jitter: self.jitter >> 4,
            lsr: self.lsr,
            dlsr,
        }
    }

    /// Valid packets received.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received
    }
}
