//! Satellites that are changed for others at regular times.

use bentpipe_scenario as scenario;
use bentpipe_units::{Duration, Instant, Rng};

/// The satellite that serves, one after the other.
#[derive(Clone, Debug)]
pub struct Satellite {
    handover: scenario::Handover,
    /// Random numbers of the k-th satellite hang on these two, so that both ways meet the same.
    seed: u64,
    name: String,
    /// The satellite that serves, and when it goes.
    number: Option<u64>,
    until: Instant,
    delay: Duration,
}

impl Satellite {
    /// The satellites of the link `name`.
    #[must_use]
    pub fn new(handover: scenario::Handover, seed: u64, name: &str) -> Self {
        Self {
            handover,
            seed,
            name: name.to_owned(),
            number: None,
            until: Instant::ZERO,
            delay: Duration::ZERO,
        }
    }

    /// What the satellite that serves at `now` adds to the delay.
    pub fn delay(&mut self, now: Instant) -> Duration {
        if now >= self.until || self.number.is_none() {
            let number = self.number_at(now);
            self.number = Some(number);
            self.until = self.change(number);
            let (low, high) = self.handover.delay;
            let mut rng = Rng::stream(self.seed, &self.name, number, "satellite");
            self.delay = if low == high {
                low
            } else {
                Duration::from_secs_f64(rng.uniform_in(low.as_secs_f64(), high.as_secs_f64()))
            };
        }
        self.delay
    }

    /// When the outage is over that `now` falls into; none where it falls into none.
    #[must_use]
    pub fn outage(&self, now: Instant) -> Option<Instant> {
        let number = self.number_at(now);
        let began = self.change(number.checked_sub(1)?);
        let end = began + self.handover.outage;
        (now < end).then_some(end)
    }

    /// Whether there is a time without any satellite.
    #[must_use]
    pub const fn has_outages(&self) -> bool {
        !self.handover.outage.is_zero()
    }

    /// Whether what is sent in an outage is lost; else it waits.
    #[must_use]
    pub const fn loses(&self) -> bool {
        self.handover.loses
    }

    /// How many changes there have been up to `now`.
    fn number_at(&self, now: Instant) -> u64 {
        let first = Instant::ZERO + self.handover.offset;
        if now < first { 0 } else { 1 + (now - first).as_nanos() / self.handover.interval.as_nanos().max(1) }
    }

    /// When the satellite of that number goes.
    fn change(&self, number: u64) -> Instant {
        Instant::ZERO + self.handover.offset + self.handover.interval.times(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn satellites_change_at_their_times_and_leave_a_gap() {
        let handover = scenario::Handover {
            interval: Duration::from_secs(15),
            offset: Duration::from_secs(12),
            delay: (Duration::from_millis(10), Duration::from_millis(20)),
            outage: Duration::from_millis(200),
            loses: false,
        };
        let at = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
        let mut there = Satellite::new(handover, 7, "sky");
        let mut back = Satellite::new(handover, 7, "sky");
        let delays: Vec<_> =
            [0, 11_999, 12_000, 26_999, 27_000, 100_000].map(|ms| there.delay(at(ms))).into();
        assert!(delays[0] == delays[1] && delays[1] != delays[2]);
        assert!(delays[2] == delays[3] && delays[3] != delays[4]);
        assert!(delays.iter().all(|d| (handover.delay.0..handover.delay.1).contains(d)));
        // The other way meets the same satellites, whenever it is used.
        assert_eq!([26_999, 100_000].map(|ms| back.delay(at(ms))), [delays[3], delays[5]]);

        assert_eq!(there.outage(at(11_999)), None);
        assert_eq!(there.outage(at(12_000)), Some(at(12_200)));
        assert_eq!(there.outage(at(12_199)), Some(at(12_200)));
        assert_eq!(there.outage(at(12_200)), None);
        assert_eq!(there.outage(at(27_100)), Some(at(27_200)));
        // Before the first change there is no gap.
        assert_eq!(there.outage(at(0)), None);
    }
}
