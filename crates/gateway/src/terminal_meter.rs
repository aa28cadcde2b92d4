//! Packets of one direction of a terminal: over the measurement, and in each of the intervals into which it is divided.

use bentpipe_units::{Duration, Instant};
use hdrhistogram::Histogram;

/// Maximum and minimum recorded queueing delay [ns], and the digits to which quantiles are exact: a few kB a terminal.
const MAX_DELAY: u64 = 1_000_000_000_000;
const LEAST_DELAY: u64 = 100_000;
const DIGITS: u8 = 2;

/// Maximum number of intervals into which a measurement is divided.
const INTERVALS: u64 = 60;

/// Packets sent over the satellite in one interval.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interval {
    /// Number of packets.
    pub packets: u64,
    /// Length of the packets together [bytes].
    pub bytes: u64,
    /// Their queueing delays together.
    pub delay: Duration,
    /// Time for which they took the carrier.
    pub carrier_time: Duration,
}

impl Interval {
    /// Counts a packet.
    #[inline]
    pub fn add(&mut self, bytes: u32, delay: Duration, carrier_time: Duration) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
        self.delay += delay;
        self.carrier_time += carrier_time;
    }

    /// Mean queueing delay [s]; NaN without packets.
    #[must_use]
    pub fn queue_delay(&self) -> f64 {
        self.delay.as_secs_f64() / self.packets as f64
    }
}

/// Division of the measurement into intervals, 60 of equal length unless it lasts for a few nanoseconds only.
#[derive(Clone, Copy, Debug)]
pub struct Intervals {
    begin: Instant,
    duration: u64,
    length: u64,
    /// Number of the last interval.
    last: usize,
}

impl Intervals {
    /// The division of `duration` from `begin` on.
    #[must_use]
    pub fn new(begin: Instant, duration: Duration) -> Self {
        let duration = duration.as_nanos();
        let length = duration.div_ceil(INTERVALS).max(1);
        Self { begin, duration, length, last: (duration.div_ceil(length) as usize).saturating_sub(1) }
    }

    /// Number of the interval that `at` is in, which is not before the measurement; its end is in the last.
    #[inline]
    #[must_use]
    pub fn at(&self, at: Instant) -> usize {
        (((at - self.begin).as_nanos() / self.length) as usize).min(self.last)
    }

    /// Number of intervals.
    #[must_use]
    pub fn count(&self) -> usize {
        self.last + 1
    }

    /// Start of an interval since that of the measurement, and its length [s]; the last may be shorter.
    #[must_use]
    pub fn span(&self, number: usize) -> (f64, f64) {
        let begin = self.length * number as u64;
        let end = (begin + self.length).min(self.duration);
        (begin as f64 * 1e-9, end.saturating_sub(begin) as f64 * 1e-9)
    }
}

/// Measurement of the packets that leave the transmit queue for a terminal, or at a terminal. The host calls it only during the
/// measurement.
#[derive(Clone, Debug)]
pub struct TerminalMeter {
    /// Packets sent over the satellite.
    pub sent_packets: u64,
    /// Bytes sent over the satellite.
    pub sent_bytes: u64,
    /// Packets dropped by the queues.
    pub dropped_packets: u64,
    /// Packets sent in each of the [`Intervals`]; empty for a measurement without end.
    pub intervals: Vec<Interval>,
    /// Queueing delays in the transmit queue [ns].
    delays: Option<Histogram<u32>>,
}

impl TerminalMeter {
    /// A meter for a measurement that is divided into this many intervals.
    #[must_use]
    pub fn new(intervals: usize) -> Self {
        Self {
            sent_packets: 0,
            sent_bytes: 0,
            dropped_packets: 0,
            intervals: vec![Interval::default(); intervals],
            delays: Histogram::new_with_bounds(LEAST_DELAY, MAX_DELAY, DIGITS).ok(),
        }
    }

    /// Records a packet that leaves the transmit queue after `delay`, in an interval.
    pub fn sent(&mut self, bytes: u32, delay: Duration, interval: usize) {
        self.sent_packets += 1;
        self.sent_bytes += u64::from(bytes);
        if let Some(interval) = self.intervals.get_mut(interval) {
            interval.add(bytes, delay, Duration::ZERO);
        }
        if let Some(delays) = &mut self.delays {
            delays.saturating_record(delay.as_nanos());
        }
    }

    /// Queueing delays in the transmit queue, exact to 1 % or 66 µs, in ascending order, and the packets with each.
    pub fn delays(&self) -> impl Iterator<Item = (Duration, u64)> {
        let values = self.delays.iter().flat_map(|delays| delays.iter_recorded());
        values.map(|value| (Duration::from_nanos(value.value_iterated_to()), value.count_at_value().into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// Six seconds from the first on, in 60 intervals of 100 ms. The end belongs to the last.
    #[test]
    fn a_measurement_has_sixty_intervals() {
        let intervals = Intervals::new(at(1000), Duration::from_secs(6));
        assert_eq!(intervals.count(), 60);
        assert_eq!([1000, 1099, 1100, 6999, 7000].map(|ms| intervals.at(at(ms))), [0, 0, 1, 59, 59]);
        assert_eq!(intervals.span(2), (0.2, 0.1));
    }

    /// Packets of 1000 bytes with delays of 1 to 100 ms, which are exact to 1 % or 66 µs, the unit of the distribution.
    #[test]
    fn packets_are_counted_with_their_delays() {
        let mut meter = TerminalMeter::new(2);
        assert_eq!(meter.delays().count(), 0);
        (1..=100).for_each(|ms| meter.sent(1000, Duration::from_millis(ms), usize::from(ms > 30)));
        assert_eq!((meter.sent_packets, meter.sent_bytes), (100, 100_000));
        let packets: Vec<_> =
            meter.intervals.iter().map(|interval| (interval.packets, interval.bytes)).collect();
        assert_eq!(packets, [(30, 30_000), (70, 70_000)]);
        assert!((meter.intervals[0].queue_delay() - 0.0155).abs() < 1e-12);
        let delays: Vec<_> =
            meter.delays().flat_map(|(delay, packets)| vec![delay; packets as usize]).collect();
        assert_eq!(delays.len(), 100);
        for (found, expected) in delays.into_iter().zip((1..=100).map(f64::from)) {
            let error = (found.as_secs_f64() * 1e3 - expected).abs();
            assert!(error < (0.01 * expected).max(0.066), "{found} {expected}");
        }
    }
}
