//! Packet numbers received, and the acknowledgement to send.

use bentpipe_units::{Duration, Instant};

use super::{Ack, AckRange, Config, Data};
use crate::ranges::Ranges;

/// Number of ranges remembered to detect duplicates; the oldest are forgotten.
const MAX_RANGES: usize = 256;

/// Record of the packets received in one direction.
///
/// An acknowledgement is sent for every `ack_every` packets, or `ack_delay` after the first unacknowledged one, and at
/// once if the sender can react to it: when `packet_threshold` packets have followed a gap, at which point the sender
/// may declare a loss (the "reordering threshold" of the ACK frequency extension), and when a late packet arrives,
/// before it is declared lost (RFC 9000, 13.2.1). A FIN or reset is not urgent, because its acknowledgement only lets
/// the sender forget the stream.
#[derive(Clone, Debug, Default)]
pub(super) struct ReceivedPackets {
    arrived: Ranges,
    largest: Option<u64>,
    largest_at: Instant,
    waiting: u32,
    ack_at: Option<Instant>,
    ack_now: bool,
    /// Packet numbers at which the first and the last unreported gap must be reported.
    report_at: Option<(u64, u64)>,
    every: u32,
    delay: Duration,
    packet_threshold: u64,
}

impl ReceivedPackets {
    pub(super) fn new(cfg: &Config) -> Self {
        Self {
            every: cfg.ack_every.max(1),
            delay: cfg.ack_delay,
            packet_threshold: u64::from(cfg.packet_threshold.max(1)),
            ..Self::default()
        }
    }

    /// Records a packet. Returns false if its number arrived before.
    pub(super) fn on_data(&mut self, now: Instant, data: &Data) -> bool {
        // `Ranges` is half-open and cannot hold the very last number, which no sender reaches.
        let number = data.number.min(u64::MAX - 1);
        if self.arrived.insert(number, number + 1) == 0 {
            return false;
        }
        // The sender ignores numbers below this; forgetting them keeps the record short.
        self.arrived.remove_below(data.least_unacked.min(number));
        if self.arrived.as_slice().len() > MAX_RANGES {
            self.arrived.remove_first();
        }
        let expected = self.largest.map_or(0, |largest| largest + 1);
        if number >= expected {
            self.largest = Some(number);
            self.largest_at = now;
            if number > expected && number > data.least_unacked {
                // The gap ends just before this packet.
                let report = (number - 1).saturating_add(self.packet_threshold);
                self.report_at = Some((self.report_at.map_or(report, |(first, _)| first), report));
            }
            if let Some((first, last)) = self.report_at.filter(|&(first, _)| number >= first) {
                self.ack_now = true;
                self.report_at = (last > number && last > first).then_some((last, last));
            }
        } else if number >= data.least_unacked {
            self.ack_now = true;
        }
        self.waiting += 1;
        if self.waiting >= self.every {
            self.ack_now = true;
        } else {
            self.ack_later(now);
        }
        true
    }

    /// Schedules an acknowledgement within the maximum delay.
    pub(super) fn ack_later(&mut self, now: Instant) {
        self.ack_at = self.ack_at.or(Some(now + self.delay));
    }

    /// Schedules an acknowledgement at the next opportunity.
    pub(super) fn ack_at_once(&mut self) {
        self.ack_now = true;
    }

    /// Due time of the delayed acknowledgement; `None` without one.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.ack_at.filter(|_| !self.ack_now)
    }

    /// Returns the acknowledgement that is due, if any.
    pub(super) fn take_ack(&mut self, now: Instant) -> Option<Ack> {
        if !self.ack_now && self.ack_at.is_none_or(|at| at > now) {
            return None;
        }
        self.ack_now = false;
        self.ack_at = None;
        self.waiting = 0;
        let mut ack = Ack::new(now - self.largest_at);
        for &(start, end) in self.arrived.as_slice().iter().rev() {
            if !ack.push_range(AckRange { first: start, last: end - 1 }) {
                break;
            }
        }
        Some(ack)
    }
}
