//! Capacity of the watched queue's link over time.

use bentpipe_scenario::{Capacity as LinkCapacity, Carrier, Direction, Modulation, Run};
use bentpipe_units::{Duration, Rate, Rng};

use crate::error::{Error, wrong};

/// Capacity of the watched queue's link [packets/s].
#[derive(Clone, Debug, PartialEq)]
pub enum Capacity {
    /// Constant.
    Fixed(f64),
    /// Start times [s] and rates; repeated if there is a period.
    Steps(Vec<(f64, f64)>, Option<f64>),
    /// Rates of equal duration [s]; the last one stays.
    Drawn(Vec<f64>, f64),
}

impl Capacity {
    /// Returns a constant capacity of `rate` for packets of the mean length `packet` [bytes].
    pub(crate) fn fixed(rate: Rate, packet: f64) -> Self {
        Self::Fixed(packets_per_second(rate, packet))
    }

    /// Returns the capacity of one direction of the link named `link` for packets of the mean length `packet` [bytes];
    /// a random one over the length of `run`, seeded by `seed`.
    pub(crate) fn of(
        direction: &Direction,
        link: &str,
        packet: f64,
        (run, seed): (&Run, u64),
    ) -> Result<Self, Error> {
        match (&direction.capacity, direction.rate) {
            (None, Some(rate)) => Ok(Self::fixed(rate, packet)),
            (Some(LinkCapacity::Carrier(carrier @ Carrier { modulation: Modulation::Fixed(_), .. })), _) => {
                Ok(Self::fixed(carrier.mean(), packet))
            }
            (Some(LinkCapacity::Steps(steps)), _) => {
                let at =
                    |(time, rate): &(Duration, Rate)| (time.as_secs_f64(), packets_per_second(*rate, packet));
                Ok(Self::Steps(steps.steps.iter().map(at).collect(), steps.repeat.map(|r| r.as_secs_f64())))
            }
            (Some(LinkCapacity::Drawn(drawn)), _) => {
                let every = drawn.every.as_secs_f64();
                let count =
                    ((run.warmup.as_secs_f64() + run.duration.as_secs_f64()) / every).ceil() as usize + 1;
                let mut rng = Rng::stream(seed, "model", 0, "capacity");
                let (low, high) = (
                    packets_per_second(drawn.uniform.0, packet),
                    packets_per_second(drawn.uniform.1, packet),
                );
                Ok(Self::Drawn((0..count).map(|_| rng.uniform_in(low, high)).collect(), every))
            }
            (Some(_), _) => wrong(format!(
                "link.{link}.capacity: found a kind that the fluid model does not follow; allowed: a rate, steps, one \
                 that is drawn anew, or a carrier with a fixed ModCod"
            )),
            (None, None) => wrong(format!(
                "link.{link}.rate: found none; allowed in a fluid model: a rate, for the queue to form behind"
            )),
        }
    }

    /// Returns the capacity at `t` [s].
    #[must_use]
    pub fn at(&self, t: f64) -> f64 {
        match self {
            Self::Fixed(rate) => *rate,
            Self::Steps(steps, period) => {
                let after = steps.partition_point(|step| step.0 <= within(t, *period));
                steps[after.saturating_sub(1)].1
            }
            Self::Drawn(rates, every) => rates[((t / every) as usize).min(rates.len() - 1)],
        }
    }

    /// Returns the capacity at `t` [s]; during an outage, the last one above zero, or the first one if there was none before.
    #[must_use]
    pub fn last_above_zero(&self, t: f64) -> f64 {
        let Self::Steps(steps, period) = self else { return self.at(t) };
        let after = steps.partition_point(|step| step.0 <= within(t, *period));
        let positive = |step: &&(f64, f64)| step.1 > 0.0;
        let before = steps[..after].iter().rev().find(positive);
        let earlier = || steps.iter().rev().find(positive).filter(|_| period.is_some_and(|p| t >= p));
        before.or_else(earlier).or_else(|| steps.iter().find(positive)).map_or(0.0, |step| step.1)
    }

    /// Returns the start of the first outage up to `end` [s].
    pub(crate) fn outage(&self, end: f64) -> Option<f64> {
        let Self::Steps(steps, _) = self else { return None };
        steps.iter().find(|step| step.1 == 0.0 && step.0 <= end).map(|step| step.0)
    }

    /// Returns the mean over the period; without a period over all steps, where the last lasts as long as the others on
    /// average.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let (steps, period) = match self {
            Self::Fixed(rate) => return *rate,
            Self::Drawn(rates, _) => return rates.iter().sum::<f64>() / rates.len() as f64,
            Self::Steps(steps, period) => (steps, period),
        };
        let (Some(first), Some(last)) = (steps.first(), steps.last()) else { return f64::NAN };
        if steps.len() == 1 {
            return last.1;
        }
        let end = period.unwrap_or(last.0 + (last.0 - first.0) / (steps.len() - 1) as f64);
        let times = steps.iter().skip(1).map(|step| step.0).chain([end]);
        let sum: f64 = steps.iter().zip(times).map(|((from, rate), to)| rate * (to - from)).sum();
        sum / (end - first.0)
    }
}

/// Returns the time since the start of the current period [s].
fn within(t: f64, period: Option<f64>) -> f64 {
    period.map_or(t, |p| t - p * (t / p).floor())
}

fn packets_per_second(rate: Rate, packet: f64) -> f64 {
    rate.as_bps() as f64 / (8.0 * packet)
}
