//! A rate with steps at given times.

use bentpipe_scenario as scenario;
use bentpipe_units::{Duration, Instant, Rate};

/// A rate with steps at given times.
#[derive(Clone, Debug)]
pub struct Steps {
    steps: Vec<(Duration, Rate)>,
    repeat: Option<Duration>,
    /// The current step, and the time at which its round began.
    index: usize,
    began: Instant,
}

impl Steps {
    /// Steps as `steps` describes, from the beginning of the run.
    #[must_use]
    pub fn new(steps: &scenario::Steps) -> Self {
        Self { steps: steps.steps.clone(), repeat: steps.repeat, index: 0, began: Instant::ZERO }
    }

    /// The rate at `now`, and the time until which it holds; `None`: for ever.
    pub fn at(&mut self, now: Instant) -> (Rate, Option<Instant>) {
        if let Some(repeat) = self.repeat
            && now >= self.began + repeat
        {
            let rounds = (now - self.began).as_nanos() / repeat.as_nanos().max(1);
            self.began += repeat.times(rounds);
            self.index = 0;
        }
        while let Some(&(from, _)) = self.steps.get(self.index + 1)
            && self.began + from <= now
        {
            self.index += 1;
        }
        let rate = self.steps.get(self.index).map(|step| step.1).unwrap_or_default();
        let next = self.steps.get(self.index + 1).map(|step| step.0).or(self.repeat);
        (rate, next.map(|next| self.began + next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_follow_each_other_and_repeat() {
        let s = Duration::from_secs;
        let rate = Rate::from_bps;
        let steps = vec![(s(0), rate(20)), (s(60), rate(12)), (s(90), rate(0))];
        let mut again = Steps::new(&scenario::Steps { steps: steps.clone(), repeat: Some(s(100)) });
        let at = |t: u64| Instant::ZERO + s(t);
        assert_eq!(again.at(at(0)), (rate(20), Some(at(60))));
        assert_eq!(again.at(at(59)), (rate(20), Some(at(60))));
        assert_eq!(again.at(at(60)), (rate(12), Some(at(90))));
        assert_eq!(again.at(at(95)), (rate(0), Some(at(100))));
        assert_eq!(again.at(at(100)), (rate(20), Some(at(160))));
        assert_eq!(again.at(at(1_065)), (rate(12), Some(at(1_090))));
        let mut once = Steps::new(&scenario::Steps { steps, repeat: None });
        assert_eq!(once.at(at(1_000)), (rate(0), None));
    }
}
