//! Handovers between satellites at regular times.

use bentpipe_scenario as scenario;
use bentpipe_units::{Duration, Instant, Rng};

/// The serving satellite.
#[derive(Clone, Debug)]
pub struct Satellite {
    handover: scenario::Handover,
    /// The random stream of the k-th satellite derives from these, so that both directions use the same satellite.
    seed: u64,
    name: String,
    /// Number of the serving satellite, and the time of the next handover.
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

    /// Delay that the serving satellite adds at `now`.
    pub fn delay(&mut self, now: Instant) -> Duration {
        if now >= self.until || self.number.is_none() {
            let number = self.number_at(now);
            self.number = Some(number);
            self.until = self.end_of(number);
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

    /// End of the outage at `now`; `None` outside outages.
    #[must_use]
    pub fn outage(&self, now: Instant) -> Option<Instant> {
        let number = self.number_at(now);
        let began = self.end_of(number.checked_sub(1)?);
        let end = began + self.handover.outage;
        (now < end).then_some(end)
    }

    /// True if each handover has an outage.
    #[must_use]
    pub const fn has_outages(&self) -> bool {
        !self.handover.outage.is_zero()
    }

    /// True if packets sent in an outage are lost, false if they wait.
    #[must_use]
    pub const fn loses(&self) -> bool {
        self.handover.loses
    }

    /// Number of handovers up to `now`.
    fn number_at(&self, now: Instant) -> u64 {
        let first = Instant::ZERO + self.handover.offset;
        if now < first { 0 } else { 1 + (now - first).as_nanos() / self.handover.interval.as_nanos().max(1) }
    }

    /// Time of the handover from satellite `number`.
    fn end_of(&self, number: u64) -> Instant {
        Instant::ZERO + self.handover.offset + self.handover.interval.times(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handovers_change_the_delay_and_have_an_outage() {
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
        // The other direction has the same satellites.
        assert_eq!([26_999, 100_000].map(|ms| back.delay(at(ms))), [delays[3], delays[5]]);

        assert_eq!(there.outage(at(11_999)), None);
        assert_eq!(there.outage(at(12_000)), Some(at(12_200)));
        assert_eq!(there.outage(at(12_199)), Some(at(12_200)));
        assert_eq!(there.outage(at(12_200)), None);
        assert_eq!(there.outage(at(27_100)), Some(at(27_200)));
        // No outage before the first handover.
        assert_eq!(there.outage(at(0)), None);
    }
}
