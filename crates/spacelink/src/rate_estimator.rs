//! An estimate of a link's rate for a regulator that nobody tells the rate, from what the link delivers and how long that takes.
//!
//! As cake-autorate (Larsson et al., an OpenWrt script) does with pings, and TCP Vegas (Brakmo and Peterson 1995, section 5.1)
//! with its own data: a round trip that stays above the shortest means that a queue stands in the modem. While it stands, the link
//! delivers exactly its rate.
//!
//! After each interval, which is a round trip and at least [`INTERVAL`]:
//!
//! 1. The standing delay is the shortest round trip of the interval less the shortest of the last [`BASE_INTERVALS`].
//! 2. If it is above the tolerated one, the rate becomes nine tenths of what was delivered, or of the rate if that is less, and
//!    the next interval only waits for the effect.
//! 3. Otherwise, if the regulator was busy and the link delivered nine tenths of the rate, the rate grows by a tenth.
//! 4. Otherwise nothing is learned: a link without load may be faster than it shows.

use std::collections::VecDeque;

use bentpipe_units::{Duration, Instant, Rate};

/// Shortest interval.
pub const INTERVAL: Duration = Duration::from_millis(200);
/// Intervals over which the shortest round trip counts as that without a queue.
pub const BASE_INTERVALS: usize = 100;

/// RateBounds of an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateBounds {
    /// Minimum rate.
    pub least: Rate,
    /// Maximum rate, with which it begins.
    pub most: Rate,
    /// Standing delay that is tolerated: more than the jitter of the link.
    pub delay: Duration,
}

/// State of the link as the sender knows it at one time.
#[derive(Clone, Copy, Debug)]
pub struct LinkObservation {
    /// Bytes that the other end has acknowledged so far, with the headers that the rate includes.
    pub delivered: u64,
    /// Present round trip; zero if unknown.
    pub round_trip: Duration,
    /// True if packets wait for the regulator.
    pub is_busy: bool,
}

/// Estimate of a link's rate.
#[derive(Debug)]
pub struct RateEstimator {
    bounds: RateBounds,
    rate: Rate,
    /// Start of the interval, its length, and bytes delivered by its start; `None` before the first observation.
    begin: Option<(Instant, Duration, u64)>,
    /// Shortest round trip of the interval.
    shortest: Duration,
    /// True if each observation of the interval was busy.
    busy: bool,
    /// True if the interval shows the effect of a reduction.
    waits: bool,
    /// Shortest round trips of the last intervals, the latest last.
    round_trips: VecDeque<Duration>,
}

impl RateEstimator {
    /// An estimate that begins with the greatest rate.
    #[must_use]
    pub fn new(bounds: RateBounds) -> Self {
        Self {
            bounds,
            rate: bounds.most,
            begin: None,
            shortest: Duration::MAX,
            busy: true,
            waits: false,
            round_trips: VecDeque::with_capacity(BASE_INTERVALS),
        }
    }

    /// Sets the greatest rate, with which the estimate begins again.
    pub fn set_most(&mut self, most: Rate) {
        (self.bounds.most, self.rate) = (most, most);
        // The interval belongs to the former rate.
        (self.begin, self.waits) = (None, false);
    }

    /// The estimate.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Round trip without a queue; `None` if unknown.
    #[must_use]
    pub fn base(&self) -> Option<Duration> {
        self.round_trips.iter().min().copied()
    }

    /// Takes an observation, several times in an interval. Returns the estimate if it changes.
    pub fn observe(&mut self, seen: LinkObservation, now: Instant) -> Option<Rate> {
        if seen.round_trip.is_zero() {
            // The link is down: the interval says nothing.
            self.begin = None;
            return None;
        }
        let Some((begin, length, delivered)) = self.begin else {
            self.start(seen, now);
            return None;
        };
        self.shortest = self.shortest.min(seen.round_trip);
        self.busy &= seen.is_busy;
        let time = now.since(begin);
        if time < length {
            return None;
        }
        let found = seen.delivered.saturating_sub(delivered) as f64 * 8.0 / time.as_secs_f64();
        let (shortest, busy) = (self.shortest, self.busy);
        if self.round_trips.len() == BASE_INTERVALS {
            self.round_trips.pop_front();
        }
        self.round_trips.push_back(shortest);
        self.start(seen, now);
        let waits = std::mem::take(&mut self.waits);
        let standing = shortest.saturating_sub(self.base().unwrap_or(shortest));
        let rate = self.rate.as_bps() as f64;
        let next = match standing > self.bounds.delay {
            _ if waits => rate,
            true => {
                self.waits = true;
                0.9 * rate.min(found)
            }
            false if busy && found >= 0.9 * rate => 1.1 * rate,
            false => rate,
        };
        let RateBounds { least, most, .. } = self.bounds;
        let next = (next as u64).clamp(least.min(most).as_bps(), most.as_bps());
        let changed = next != self.rate.as_bps();
        self.rate = Rate::from_bps(next);
        changed.then_some(self.rate)
    }

    /// Begins an interval.
    fn start(&mut self, seen: LinkObservation, now: Instant) {
        // As known now: a round trip that grows must not put off the end.
        let length = self.base().unwrap_or(seen.round_trip).max(INTERVAL);
        self.begin = Some((now, length, seen.delivered));
        (self.shortest, self.busy) = (Duration::MAX, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: RateBounds = RateBounds {
        least: Rate::from_bps(1_000_000),
        most: Rate::from_bps(20_000_000),
        delay: Duration::from_millis(50),
    };

    /// One interval of 500 ms each: bytes delivered in it, round trip [ms], busy or not; and the estimate after it [kbit/s]. By hand:
    /// 625,000 bytes in 500 ms are 10 Mbit/s.
    const STEPS: [(u64, u64, bool, u64); 13] = [
        // The modem carries the greatest rate: 1,250,000 bytes in 500 ms. It cannot grow.
        (1_250_000, 500, true, 20_000),
        // It slows down to 10 Mbit/s, and a queue builds up: 100 ms stand at the end.
        (625_000, 600, true, 9_000),
        // The queue drains: an interval of waiting.
        (625_000, 560, true, 9_000),
        // Not enough: 9 * 0.9.
        (562_500, 555, true, 8_100),
        (506_250, 510, true, 8_100),
        // The queue is gone, the regulator is busy, and the link delivers: 8.1 * 1.1 = 8.91, * 1.1 = 9.801. A delay of exactly the
        // tolerated one is tolerated.
        (506_250, 500, true, 8_910),
        (531_562, 550, true, 9_801),
        // Nothing to send, or little, or all that was waiting: nothing is learned.
        (0, 500, false, 9_801),
        (612_562, 500, false, 9_801),
        (100_000, 500, true, 9_801),
        // The least rate is a bound.
        (10_000, 900, true, 1_000),
        (62_500, 500, true, 1_000),
        (62_500, 500, true, 1_100),
    ];

    #[test]
    fn the_estimate_follows_deliveries_while_a_queue_stands() {
        let mut estimator = RateEstimator::new(BOUNDS);
        let (mut now, mut delivered) = (Instant::ZERO, 0);
        let seen = |delivered, ms, is_busy| LinkObservation {
            delivered,
            round_trip: Duration::from_millis(ms),
            is_busy,
        };
        estimator.observe(seen(0, 500, true), now);
        for (step, (bytes, ms, busy, expected)) in STEPS.into_iter().enumerate() {
            // A first observation with the greatest delay; the last of the interval counts, as it is the shortest.
            estimator.observe(seen(delivered, 1000, busy), now + Duration::from_millis(100));
            now += Duration::from_millis(500);
            delivered += bytes;
            let before = estimator.rate();
            let changed = estimator.observe(seen(delivered, ms, busy), now);
            assert_eq!(estimator.rate().as_bps() / 1000, expected, "step {step}");
            assert_eq!(changed.is_some(), estimator.rate() != before, "step {step}");
        }
        assert_eq!(estimator.base(), Some(Duration::from_millis(500)));
    }

    /// The regulator has had the new rate since: 1,250,000 bytes in 500 ms are 20 Mbit/s, of the rate before. A greatest rate below the
    /// least is both.
    #[test]
    fn a_new_greatest_rate_applies_at_once_and_bounds_the_estimate() {
        let mut estimator = RateEstimator::new(BOUNDS);
        let (mut now, mut delivered) = (Instant::ZERO, 0);
        let mut observe = |estimator: &mut RateEstimator, bytes| {
            now += Duration::from_millis(500);
            delivered += bytes;
            let round_trip = Duration::from_millis(500);
            estimator.observe(LinkObservation { delivered, round_trip, is_busy: true }, now)
        };
        observe(&mut estimator, 0);
        for (most, bytes) in [(10_000_000, 625_000), (500_000, 31_250), (20_000_000, 1_250_000)] {
            estimator.set_most(Rate::from_bps(most));
            for bytes in [1_250_000, bytes, bytes, bytes] {
                assert_eq!(observe(&mut estimator, bytes), None, "{most}");
                assert_eq!(estimator.rate(), Rate::from_bps(most));
            }
        }
    }

    /// After an outage the interval begins anew: bytes and time of the outage do not count.
    #[test]
    fn an_outage_is_not_measured() {
        let mut estimator = RateEstimator::new(BOUNDS);
        let at = Instant::from_nanos;
        let seen = |delivered, ms| LinkObservation {
            delivered,
            round_trip: Duration::from_millis(ms),
            is_busy: true,
        };
        estimator.observe(seen(0, 500), at(0));
        assert_eq!(estimator.observe(seen(0, 0), at(400_000_000)), None);
        assert_eq!(estimator.observe(seen(0, 900), at(9_000_000_000)), None);
        assert_eq!(estimator.observe(seen(2_250_000, 900), at(9_900_000_000)), None);
        assert_eq!(estimator.rate(), BOUNDS.most);
    }
}
