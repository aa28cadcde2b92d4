//! A rate drawn at regular times.

use bentpipe_scenario as scenario;
use bentpipe_units::{Instant, Rate, Rng};

/// A rate drawn independently at regular times.
#[derive(Clone, Debug)]
pub struct Drawn {
    drawn: scenario::Drawn,
    rate: Rate,
    /// Time of the next draw.
    next: Instant,
    rng: Rng,
}

impl Drawn {
    /// Rates as `drawn` describes, from the beginning of the run; `rng` is used for nothing else.
    #[must_use]
    pub fn new(drawn: scenario::Drawn, rng: Rng) -> Self {
        let mut new = Self { drawn, rate: Rate::default(), next: Instant::ZERO + drawn.every, rng };
        new.draw();
        new
    }

    /// The rate at `now`, and the time until which it holds.
    pub fn at(&mut self, now: Instant) -> (Rate, Option<Instant>) {
        while self.next <= now {
            self.next += self.drawn.every;
            self.draw();
        }
        (self.rate, Some(self.next))
    }

    fn draw(&mut self) {
        let (low, high) = self.drawn.uniform;
        let span = high.as_bps().saturating_sub(low.as_bps());
        self.rate = Rate::from_bps(low.as_bps() + self.rng.below(span + 1));
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_units::Duration;

    use super::*;

    const LOW: u64 = 16_000_000;
    const HIGH: u64 = 20_000_000;

    fn drawn() -> Drawn {
        let uniform = (Rate::from_bps(LOW), Rate::from_bps(HIGH));
        let every = Duration::from_millis(100);
        Drawn::new(scenario::Drawn { uniform, every }, Rng::stream(4, "drawn", 0, "capacity"))
    }

    /// Of 100 000 rates the standard deviation is 4 / sqrt(12) = 1.155 Mbit/s, which makes standard errors of 3.65 kbit/s
    /// for the mean, of 0.0033 Mbit²/s² for the variance (1.333; the fourth moment of a uniform is 1.8 times its square)
    /// and of 0.0032 for the correlation of each with the next; the bounds are five standard errors.
    #[test]
    fn rates_are_uniform_and_independent() {
        let mut drawn = drawn();
        let n = 100_000u64;
        let rates: Vec<f64> = (0..n)
            .map(|i| {
                let (rate, until) = drawn.at(Instant::ZERO + Duration::from_millis(100 * i));
                assert_eq!(until, Some(Instant::ZERO + Duration::from_millis(100 * (i + 1))));
                assert!((LOW..=HIGH).contains(&rate.as_bps()), "{rate}");
                rate.as_bps() as f64 / 1e6
            })
            .collect();
        let mean = rates.iter().sum::<f64>() / n as f64;
        let variance = rates.iter().map(|r| (r - mean) * (r - mean)).sum::<f64>() / n as f64;
        let next: f64 = rates.windows(2).map(|r| (r[0] - mean) * (r[1] - mean)).sum::<f64>() / n as f64;
        assert!((mean - 18.0).abs() < 0.0183, "{mean}");
        assert!((variance - 16.0 / 12.0).abs() < 0.019, "{variance}");
        assert!((next / variance).abs() < 0.016, "{}", next / variance);
    }

    /// The rates do not depend on the times of the calls.
    #[test]
    fn a_rate_holds_until_the_next_draw() {
        let (mut often, mut seldom) = (drawn(), drawn());
        let at = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
        for ms in 0..10_000 {
            let told = often.at(at(ms));
            if ms % 1_270 == 0 {
                assert_eq!(seldom.at(at(ms)), told, "{ms}");
            }
        }
    }

    #[test]
    fn equal_bounds_give_a_constant_rate() {
        let rate = Rate::from_bps(5_000_000);
        let every = Duration::from_secs(1);
        let fixed = scenario::Drawn { uniform: (rate, rate), every };
        let mut drawn = Drawn::new(fixed, Rng::stream(4, "drawn", 0, "capacity"));
        assert!((0..100).all(|s| drawn.at(Instant::ZERO + Duration::from_secs(s)).0 == rate));
    }

    /// Four values are possible; each occurs in a quarter of 4000 draws, with a standard error of sqrt(4000 x 3 / 16) = 27.
    #[test]
    fn both_bounds_are_drawn() {
        let uniform = (Rate::from_bps(16), Rate::from_bps(19));
        let every = Duration::from_secs(1);
        let mut drawn =
            Drawn::new(scenario::Drawn { uniform, every }, Rng::stream(4, "drawn", 1, "capacity"));
        let mut found = [0i32; 4];
        for s in 0..4000 {
            let (rate, _) = drawn.at(Instant::ZERO + Duration::from_secs(s));
            found[rate.as_bps() as usize - 16] += 1;
        }
        assert!(found.iter().all(|n| (n - 1000).abs() < 137), "{found:?}");
    }
}
