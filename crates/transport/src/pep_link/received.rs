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
            if let Some((_, last)) = self.report_at.filter(|&(first, _)| number >= first) {
                self.ack_now = true;
                self.report_at = (last > number).then_some((last, last));
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

#[cfg(test)]
mod tests {
    use super::super::MAX_ACK_RANGES;
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// Acknowledgements for every `ack_every` packets or after 50 ms, reports of gaps after three further packets.
    fn received(ack_every: u32) -> ReceivedPackets {
        ReceivedPackets::new(&Config { ack_every, ..Config::default() })
    }

    fn data(number: u64, least_unacked: u64) -> Data {
        let (offset, stream, generation, len) = (0, 0, 1, 100);
        let (open, fin, reset, retransmission) = (false, false, false, false);
        Data { number, least_unacked, offset, stream, generation, len, open, fin, reset, retransmission }
    }

    /// Ranges of the acknowledgement that is due, if any.
    fn ranges(received: &mut ReceivedPackets, now: Instant) -> Option<Vec<(u64, u64)>> {
        let ack = received.take_ack(now)?;
        Some(ack.ranges().iter().map(|range| (range.first, range.last)).collect())
    }

    #[test]
    fn every_third_packet_or_a_delay_after_the_first_causes_an_acknowledgement() {
        let mut received = received(3);
        assert_eq!(received.poll_timeout(), None);
        assert!(received.on_data(at(0), &data(0, 0)));
        assert!(received.on_data(at(10), &data(1, 0)));
        assert_eq!(received.poll_timeout(), Some(at(50)));
        assert!(!received.on_data(at(12), &data(1, 0)), "a duplicate does not count");
        assert!(received.take_ack(at(49)).is_none());
        assert!(received.on_data(at(20), &data(2, 0)));
        assert_eq!(received.poll_timeout(), None, "due at once");
        assert_eq!(received.take_ack(at(25)).map(|ack| ack.delay), Some(Duration::from_millis(5)));
        assert!(received.take_ack(at(200)).is_none());

        received.on_data(at(300), &data(3, 0));
        received.on_data(at(310), &data(4, 0));
        assert_eq!(received.poll_timeout(), Some(at(350)));
        assert_eq!(received.take_ack(at(350)).map(|ack| ack.delay), Some(Duration::from_millis(40)));
    }

    /// Packets that cause an acknowledgement at once, with a threshold of three: gap 1 is reported with packet 4, gap 3 with
    /// packet 6. If packet 5 ends gap 3 as well, packet 5 reports the first gap, and packet 7 the last. Gaps below the
    /// sender's least unacknowledged number are not reported, as far as they are known.
    #[test]
    fn gaps_are_reported_with_the_third_packet_after_them() {
        for (numbers, least_unacked, reports) in [
            (vec![0, 2, 3, 4, 5], 0, vec![4]),
            (vec![0, 2, 4, 5, 6, 7], 0, vec![4, 6]),
            (vec![0, 2, 5, 6, 7, 8, 9], 0, vec![5, 7]),
            (vec![0, 1, 2, 3, 4, 5], 0, vec![]),
            (vec![1, 2, 3, 4], 0, vec![3]),
            (vec![0, 5, 6, 7, 8], 4, vec![7]),
            (vec![0, 5, 6, 7, 8], 5, vec![]),
            // Late packets.
            (vec![0, 2, 1], 1, vec![1]),
            (vec![0, 3, 2], 2, vec![2]),
            (vec![0, 4, 2], 3, vec![]),
        ] {
            let mut received = received(32);
            let mut reported = Vec::new();
            for &number in &numbers {
                received.on_data(at(0), &data(number, least_unacked));
                if received.take_ack(at(0)).is_some() {
                    reported.push(number);
                }
            }
            assert_eq!(reported, reports, "{numbers:?}, {least_unacked}");
        }
    }

    #[test]
    fn ranges_below_the_least_unacknowledged_number_are_forgotten() {
        let mut received = received(1);
        for number in [0, 1, 4, 5] {
            received.on_data(at(0), &data(number, 0));
        }
        assert_eq!(ranges(&mut received, at(0)), Some(vec![(4, 5), (0, 1)]));
        received.on_data(at(0), &data(8, 2));
        assert_eq!(ranges(&mut received, at(0)), Some(vec![(8, 8), (4, 5)]));
        // A range that reaches above it stays whole, and so does the packet itself.
        received.on_data(at(0), &data(9, 5));
        assert_eq!(ranges(&mut received, at(0)), Some(vec![(8, 9), (4, 5)]));
        received.on_data(at(0), &data(11, 50));
        assert_eq!(ranges(&mut received, at(0)), Some(vec![(11, 11)]));
    }

    #[test]
    fn only_the_oldest_range_beyond_the_maximum_is_forgotten() {
        let mut received = received(1);
        for number in 0..MAX_RANGES as u64 {
            received.on_data(at(0), &data(2 * number, 0));
        }
        assert!(!received.on_data(at(0), &data(0, 0)));
        let last = 2 * MAX_RANGES as u64;
        assert!(received.on_data(at(0), &data(last, 0)));
        assert!(!received.on_data(at(0), &data(2, 0)));
        assert_eq!(ranges(&mut received, at(0)).map(|ranges| ranges.len()), Some(MAX_ACK_RANGES));
        assert!(received.on_data(at(0), &data(0, 0)));
    }

    #[test]
    fn the_largest_number_is_a_packet_like_others() {
        let mut received = received(1);
        assert!(received.on_data(at(0), &data(u64::MAX, 0)));
        assert!(!received.on_data(at(0), &data(u64::MAX, u64::MAX)));
    }
}
