//! Random quantities.

use bentpipe_units::{Duration, Rng};

/// How a quantity is distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law<T> {
    /// Always the same.
    Fixed(T),
    /// Uniform from the first to the second.
    Uniform(T, T),
    /// Exponential with this mean.
    Exponential(T),
}

impl Law<Duration> {
    /// One draw. A fixed time takes nothing from the stream.
    #[must_use]
    pub fn draw(&self, rng: &mut Rng) -> Duration {
        match *self {
            Self::Fixed(x) => x,
            Self::Uniform(low, high) => {
                Duration::from_secs_f64(rng.uniform_in(low.as_secs_f64(), high.as_secs_f64()))
            }
            Self::Exponential(mean) => Duration::from_secs_f64(rng.exponential(mean.as_secs_f64())),
        }
    }

    /// The mean.
    #[must_use]
    pub fn mean(&self) -> Duration {
        match *self {
            Self::Fixed(x) | Self::Exponential(x) => x,
            Self::Uniform(low, high) => (low + high).part(2),
        }
    }
}

impl Law<u64> {
    /// One draw, at least 1 [bytes]. A fixed size takes nothing from the stream.
    #[must_use]
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        match *self {
            Self::Fixed(x) => x,
            Self::Uniform(low, high) => {
                low.saturating_add(rng.below(high.saturating_sub(low).saturating_add(1)))
            }
            Self::Exponential(mean) => (rng.exponential(mean as f64).round() as u64).max(1),
        }
    }

    /// The mean [bytes].
    #[must_use]
    pub fn mean(&self) -> f64 {
        match *self {
            Self::Fixed(x) | Self::Exponential(x) => x as f64,
            Self::Uniform(low, high) => (low as f64 + high as f64) / 2.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(draw: impl Fn(&mut Rng) -> f64) -> f64 {
        let mut rng = Rng::stream(3, "law", 0, "test");
        (0..100_000).map(|_| draw(&mut rng)).sum::<f64>() / 1e5
    }

    /// Standard errors: 0.27, 0.0018 and 0.0063; the bounds are five of each.
    #[test]
    fn draws_have_their_means() {
        let objects = Law::Uniform(250, 550);
        assert!((mean(|rng| objects.draw(rng) as f64) - objects.mean()).abs() < 1.4);
        let delay = Law::Uniform(Duration::from_secs(3), Duration::from_secs(5));
        assert!((mean(|rng| delay.draw(rng).as_secs_f64()) - delay.mean().as_secs_f64()).abs() < 0.009);
        let think = Law::Exponential(Duration::from_secs(2));
        assert!((mean(|rng| think.draw(rng).as_secs_f64()) - think.mean().as_secs_f64()).abs() < 0.032);
    }

    #[test]
    fn sizes_stay_within_their_bounds_and_reach_them() {
        let mut rng = Rng::stream(3, "law", 1, "test");
        let law = Law::Uniform(1u64, 3);
        let mut seen = [0; 5];
        for _ in 0..1000 {
            seen[law.draw(&mut rng) as usize] += 1;
        }
        assert_eq!((seen[0], seen[4]), (0, 0));
        assert!(seen[1] > 250 && seen[2] > 250 && seen[3] > 250);
    }

    #[test]
    fn the_widest_law_does_not_overflow() {
        let mut rng = Rng::stream(3, "law", 2, "test");
        assert!(Law::Uniform(0u64, u64::MAX).draw(&mut rng) < u64::MAX);
        assert!(Law::Exponential(u64::MAX).draw(&mut rng) > 0);
    }
}
