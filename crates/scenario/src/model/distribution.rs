//! Probability distributions of times and sizes.

use std::sync::Arc;

use bentpipe_units::{Duration, Rng};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::digest::Digest;

/// A probability distribution.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Distribution<T> {
    /// Constant.
    Fixed(T),
    /// Uniform from the first to the second value.
    #[serde(serialize_with = "low_high")]
    Uniform(T, T),
    /// Exponential with this mean.
    Exponential(T),
    /// Normal, redrawn while negative. The truncation moves the mean above `mean` unless that is many `std` above zero.
    Normal {
        /// Mean before truncation.
        mean: T,
        /// Standard deviation before truncation.
        std: T,
    },
    /// Erlang: sum of `shape` exponentials, with variance `mean`² / `shape`.
    Erlang {
        /// Number of exponentials.
        shape: u32,
        /// Mean of the sum.
        mean: T,
    },
    /// Pareto: the probability to exceed x falls as x to the power of -`shape`. The variance is infinite for shapes up to 2.
    Pareto {
        /// Exponent, above 1.
        shape: f64,
        /// Mean.
        mean: T,
    },
    /// Mixture: each component with its probability.
    Choice(Arc<[(f64, Distribution<T>)]>),
    /// Empirical: the numbers of a file, equally likely.
    Trace(Samples<T>),
}

/// Numbers of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Samples<T> {
    /// Numbers in the order of the file; at least one.
    #[serde(skip)]
    pub values: Arc<[T]>,
    /// Identity of the file.
    pub digest: Digest,
}

fn low_high<T: Serialize, S: Serializer>(low: &T, high: &T, to: S) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(Some(2))?;
    map.serialize_entry("low", low)?;
    map.serialize_entry("high", high)?;
    map.end()
}

/// A quantity that can be distributed.
trait Number: Copy {
    /// Returns the quantity nearest to `x`, which is not negative.
    fn of(x: f64) -> Self;
    /// Returns the quantity as a number.
    fn number(self) -> f64;
    /// Draws uniformly between two bounds.
    fn uniform(low: Self, high: Self, rng: &mut Rng) -> Self;
}

impl Number for Duration {
    fn of(x: f64) -> Self {
        Self::from_secs_f64(x)
    }

    fn number(self) -> f64 {
        self.as_secs_f64()
    }

    fn uniform(low: Self, high: Self, rng: &mut Rng) -> Self {
        Self::from_secs_f64(rng.uniform_in(low.as_secs_f64(), high.as_secs_f64()))
    }
}

/// A size of at least 1 [bytes].
impl Number for u64 {
    fn of(x: f64) -> Self {
        (x.round() as Self).max(1)
    }

    fn number(self) -> f64 {
        self as f64
    }

    fn uniform(low: Self, high: Self, rng: &mut Rng) -> Self {
        low.saturating_add(rng.below(high.saturating_sub(low).saturating_add(1)))
    }
}

fn draw<T: Number>(distribution: &Distribution<T>, rng: &mut Rng) -> T {
    match distribution {
        Distribution::Fixed(x) => *x,
        Distribution::Uniform(low, high) => T::uniform(*low, *high, rng),
        Distribution::Exponential(mean) => T::of(rng.exponential(mean.number())),
        Distribution::Normal { mean, std } => loop {
            // The mean is not negative, so at least every second draw is accepted.
            let x = mean.number() + std.number() * rng.normal();
            if x >= 0.0 {
                return T::of(x);
            }
        },
        Distribution::Erlang { shape, mean } => {
            let part = mean.number() / f64::from(*shape);
            T::of((0..*shape).map(|_| rng.exponential(part)).sum())
        }
        Distribution::Pareto { shape, mean } => {
            let minimum = mean.number() * (shape - 1.0) / shape;
            T::of(minimum * libm::pow(1.0 - rng.uniform(), -1.0 / shape))
        }
        Distribution::Choice(components) => {
            let mut position = rng.uniform();
            for (probability, component) in components.iter() {
                if position < *probability {
                    return draw(component, rng);
                }
                position -= probability;
            }
            // Rounding: the probabilities sum to slightly less than 1.
            components.last().map_or(T::of(0.0), |(_, component)| draw(component, rng))
        }
        Distribution::Trace(samples) => {
            let index = rng.below(samples.values.len() as u64) as usize;
            samples.values.get(index).copied().unwrap_or(T::of(0.0))
        }
    }
}

fn mean<T: Number>(distribution: &Distribution<T>) -> f64 {
    match distribution {
        Distribution::Fixed(x) | Distribution::Exponential(x) => x.number(),
        Distribution::Uniform(low, high) => (low.number() + high.number()) / 2.0,
        Distribution::Erlang { mean, .. } | Distribution::Pareto { mean, .. } => mean.number(),
        Distribution::Normal { mean, std } => {
            let (mean, std) = (mean.number(), std.number());
            if std == 0.0 {
                return mean;
            }
            // Truncated at zero: mean + std φ(a) / Φ(a), where a = mean / std.
            let a = mean / std;
            let density = libm::exp(-a * a / 2.0) / std::f64::consts::TAU.sqrt();
            let kept = libm::erfc(-a * std::f64::consts::FRAC_1_SQRT_2) / 2.0;
            mean + std * density / kept
        }
        Distribution::Choice(components) => {
            components.iter().map(|(probability, component)| probability * self::mean(component)).sum()
        }
        Distribution::Trace(samples) => {
            samples.values.iter().map(|x| x.number()).sum::<f64>() / samples.values.len() as f64
        }
    }
}

impl Distribution<Duration> {
    /// Draws a time. A constant consumes no random numbers.
    #[must_use]
    pub fn draw(&self, rng: &mut Rng) -> Duration {
        draw(self, rng)
    }

    /// Returns the mean.
    #[must_use]
    pub fn mean(&self) -> Duration {
        Duration::from_secs_f64(mean(self))
    }
}

impl Distribution<u64> {
    /// Draws a size of at least 1 [bytes]. A constant consumes no random numbers.
    #[must_use]
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        draw(self, rng)
    }

    /// Returns the mean if larger values count as `most` [bytes]: of distributions with a tail, others rarely reach it.
    #[must_use]
    pub fn mean_up_to(&self, most: f64) -> f64 {
        match self {
            Self::Exponential(mean) => {
                let mean = *mean as f64;
                mean * (1.0 - libm::exp(-most / mean))
            }
            Self::Pareto { shape, mean } => {
                let mean = *mean as f64;
                let minimum = mean * (shape - 1.0) / shape;
                if minimum >= most {
                    return most;
                }
                mean - minimum * libm::pow(minimum / most, shape - 1.0) / (shape - 1.0)
            }
            Self::Choice(components) => components
                .iter()
                .map(|(probability, component)| probability * component.mean_up_to(most))
                .sum(),
            other => other.mean(),
        }
    }

    /// Returns the mean before rounding to whole bytes and to the minimum of 1 [bytes].
    #[must_use]
    pub fn mean(&self) -> f64 {
        mean(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u32 = 100_000;

    /// Mean and variance of many draws.
    fn moments(draw: impl Fn(&mut Rng) -> f64) -> (f64, f64) {
        let mut rng = Rng::stream(3, "distribution", 0, "test");
        let draws: Vec<f64> = (0..DRAWS).map(|_| draw(&mut rng)).collect();
        let mean = draws.iter().sum::<f64>() / f64::from(DRAWS);
        (mean, draws.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / f64::from(DRAWS))
    }

    fn mean(draw: impl Fn(&mut Rng) -> f64) -> f64 {
        moments(draw).0
    }

    /// Standard errors: 0.27, 0.0018 and 0.0063; the bounds are five standard errors.
    #[test]
    fn sample_means_match() {
        let objects = Distribution::Uniform(250, 550);
        assert!((mean(|rng| objects.draw(rng) as f64) - objects.mean()).abs() < 1.4);
        let delay = Distribution::Uniform(Duration::from_secs(3), Duration::from_secs(5));
        assert!((mean(|rng| delay.draw(rng).as_secs_f64()) - delay.mean().as_secs_f64()).abs() < 0.009);
        let think = Distribution::Exponential(Duration::from_secs(2));
        assert!((mean(|rng| think.draw(rng).as_secs_f64()) - think.mean().as_secs_f64()).abs() < 0.032);
    }

    /// A normal distribution of 1000 ± 100 is hardly truncated: mean 1000, variance 10⁴ (standard errors 0.32 and 45). Four
    /// exponentials of 250: mean 1000, variance 1000² / 4 (standard errors 1.6 and 2100, for the kurtosis is 4.5).
    #[test]
    fn normal_and_erlang_moments_match() {
        let normal = Distribution::Normal { mean: 1000u64, std: 100 };
        let (mean, variance) = moments(|rng| normal.draw(rng) as f64);
        assert!((mean - 1000.0).abs() < 1.6 && (variance - 1e4).abs() < 225.0, "{mean} {variance}");
        let erlang = Distribution::Erlang { shape: 4, mean: 1000u64 };
        let (mean, variance) = moments(|rng| erlang.draw(rng) as f64);
        assert!((mean - 1000.0).abs() < 8.0 && (variance - 250_000.0).abs() < 10_000.0, "{mean} {variance}");
    }

    /// Half a normal distribution, whose mean is √(2/π) standard deviations; its standard error is 0.0019 s.
    #[test]
    fn normal_draws_are_not_negative() {
        let distribution = Distribution::Normal { mean: Duration::ZERO, std: Duration::from_secs(1) };
        let found = mean(|rng| distribution.draw(rng).as_secs_f64());
        let half = (2.0 / std::f64::consts::PI).sqrt();
        assert!((distribution.mean().as_secs_f64() - half).abs() < 1e-8);
        assert!((found - half).abs() < 0.01, "{found}");
    }

    /// With shape 3 and mean 3 nothing is below 2, and an eighth is above 4 (standard error 0.001); the variance is 3,
    /// so that the standard error of the mean is 0.0055.
    #[test]
    fn pareto_minimum_mean_and_tail_match() {
        let distribution = Distribution::Pareto { shape: 3.0, mean: Duration::from_secs(3) };
        assert!((mean(|rng| distribution.draw(rng).as_secs_f64()) - 3.0).abs() < 0.028);
        let above = |x: f64| mean(|rng| f64::from(distribution.draw(rng).as_secs_f64() > x));
        assert_eq!(above(1.999_999), 1.0);
        assert!((above(4.0) - 0.125).abs() < 0.005);
    }

    /// One file in four has 100 KB, the others 10 KB: standard error 0.12 KB.
    #[test]
    fn mixture_components_are_drawn_with_their_probabilities() {
        let distribution = Distribution::Choice(Arc::new([
            (0.75, Distribution::Fixed(10u64)),
            (0.25, Distribution::Exponential(100)),
        ]));
        assert_eq!(distribution.mean(), 32.5);
        // Variance 0.75 x 10² + 0.25 x 2 x 100² - 32.5² = 4019: standard error 0.2.
        let found = mean(|rng| distribution.draw(rng) as f64);
        assert!((found - 32.5).abs() < 1.0, "{found}");
    }

    #[test]
    fn empirical_draws_come_from_the_samples() {
        let samples = Samples { values: Arc::new([1, 5, 9]), digest: Digest::of(b"1 5 9") };
        let distribution = Distribution::Trace(samples);
        let mut seen = [0; 10];
        let mut rng = Rng::stream(3, "distribution", 3, "test");
        for _ in 0..3000 {
            seen[distribution.draw(&mut rng) as usize] += 1;
        }
        assert_eq!(seen.iter().sum::<i32>(), seen[1] + seen[5] + seen[9]);
        assert!(seen[1] > 850 && seen[5] > 850 && seen[9] > 850, "{seen:?}");
        assert_eq!(distribution.mean(), 5.0);
    }

    #[test]
    fn uniform_sizes_cover_their_bounds() {
        let mut rng = Rng::stream(3, "distribution", 1, "test");
        let distribution = Distribution::Uniform(1u64, 3);
        let mut seen = [0; 5];
        for _ in 0..1000 {
            seen[distribution.draw(&mut rng) as usize] += 1;
        }
        assert_eq!((seen[0], seen[4]), (0, 0));
        assert!(seen[1] > 250 && seen[2] > 250 && seen[3] > 250);
    }

    #[test]
    fn extreme_distributions_do_not_overflow() {
        let mut rng = Rng::stream(3, "distribution", 2, "test");
        assert!(Distribution::Uniform(0u64, u64::MAX).draw(&mut rng) < u64::MAX);
        assert!(Distribution::Exponential(u64::MAX).draw(&mut rng) > 0);
        assert!(Distribution::Pareto { shape: 1.001, mean: u64::MAX }.draw(&mut rng) > 0);
        let long = Distribution::Normal { mean: Duration::ZERO, std: Duration::MAX };
        assert!(long.draw(&mut rng) > Duration::ZERO);
    }
}
