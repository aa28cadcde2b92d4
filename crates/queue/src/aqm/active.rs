//! Number of active flows: those with a packet within some time. The time is divided into a few steps; the count is
//! exact to one step, and its cost does not depend on the number of flows.
//!
//! Each flow is counted in the step of its last packet, and the counts age with the steps.

use std::num::NonZeroU32;

use bentpipe_units::{Duration, Instant};

/// A power of two above the number of steps: the last bits of a step's number give its index, even when numbers wrap.
const PLACES: usize = 8;

/// Number of a step, doubled plus one, so that it is never 0 and an `Option` of it needs no more memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step(NonZeroU32);

impl Step {
    const FIRST: Self = Self(NonZeroU32::MIN);

    /// Returns the number of steps since `earlier`.
    #[inline]
    pub fn since(self, earlier: Self) -> u32 {
        self.0.get().wrapping_sub(earlier.0.get()) >> 1
    }

    /// Returns the step's index among `of`, a power of two.
    #[inline]
    pub fn place(self, of: usize) -> usize {
        (self.0.get() >> 1) as usize & (of - 1)
    }

    #[inline]
    fn plus(self, steps: u32) -> Self {
        Self(NonZeroU32::MIN | self.0.get().wrapping_add(steps << 1))
    }
}

/// Flows by the step of their last packet.
#[derive(Debug)]
pub(super) struct Active {
    every: Duration,
    /// Number of steps in the time.
    steps: u32,
    /// Current step.
    step: Step,
    /// End of the current step.
    ends: Instant,
    /// Number of flows of the current step and of each of the `steps` before, by index.
    counts: [u32; PLACES],
    /// Sum of the counts.
    active: u32,
}

impl Active {
    /// Counts flows for `silence` after their last packet, or up to one step longer. `steps` is at most six.
    pub fn new(silence: Duration, steps: u32) -> Self {
        let every = silence.part(u64::from(steps)).max(Duration::from_nanos(1));
        let (step, ends) = (Step::FIRST, Instant::ZERO + every);
        Self { every, steps, step, ends, counts: [0; PLACES], active: 0 }
    }

    /// Returns true if the steps of another count are as long and as many.
    pub fn has_steps_of(&self, other: &Self) -> bool {
        (self.every, self.steps) == (other.every, other.steps)
    }

    /// Advances to `now`, drops counts that are too old, and returns the current step.
    #[inline]
    pub fn at(&mut self, now: Instant) -> Step {
        if now >= self.ends {
            self.advance(now);
        }
        self.step
    }

    #[cold]
    fn advance(&mut self, now: Instant) {
        let steps = (now - self.ends).as_nanos() / self.every.as_nanos() + 1;
        for i in 1..=steps.min(PLACES as u64) {
            let too_old = self.step.plus((i as u32).wrapping_sub(self.steps + 1));
            let count = &mut self.counts[too_old.place(PLACES)];
            self.active -= *count;
            *count = 0;
        }
        self.step = self.step.plus(steps as u32);
        self.ends += self.every.times(steps);
    }

    /// Returns the share of the current step that is over at `now`.
    #[inline]
    pub fn elapsed(&self, now: Instant) -> f64 {
        1.0 - (self.ends - now).as_nanos() as f64 / self.every.as_nanos() as f64
    }

    /// Returns true if a flow with its last packet in that step is active.
    #[inline]
    pub fn counts(&self, last: Step) -> bool {
        self.step.since(last) <= self.steps
    }

    /// Notes a packet of a flow in the current step; `before` is the step of its last packet.
    #[inline]
    pub fn note(&mut self, before: Option<Step>) {
        if before == Some(self.step) {
            return;
        }
        if let Some(before) = before {
            self.forget(before);
        }
        self.counts[self.step.place(PLACES)] += 1;
        self.active += 1;
    }

    /// Removes a flow with its last packet in that step.
    #[inline]
    pub fn forget(&mut self, last: Step) {
        let count = &mut self.counts[last.place(PLACES)];
        // A step's number that recurs after 2^31 steps without a packet is not counted.
        if self.step.since(last) <= self.steps && *count > 0 {
            *count -= 1;
            self.active -= 1;
        }
    }

    /// Returns the number of active flows.
    #[inline]
    pub fn active(&self) -> u32 {
        self.active
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bentpipe_units::Rng;

    use super::*;

    /// Compared with a list of all flows: every flow with a packet within the time is counted, and none whose last
    /// packet is older than the time and a sixth of it. Pauses last up to three times the time.
    #[test]
    fn count_matches_a_list_of_all_flows() {
        let mut active = Active::new(Duration::from_millis(600), 6);
        let mut rng = Rng::stream(1, "active", 0, "test");
        let (mut last, mut now) = (BTreeMap::new(), Instant::ZERO);
        for _ in 0..20_000 {
            let most = if rng.below(500) == 0 { 1800 } else { 5 };
            now += Duration::from_millis(rng.below(most));
            let some = rng.below(300) + 1;
            let flow = rng.below(some);
            let step = active.at(now);
            active.note(last.insert(flow, (step, now)).map(|(step, _)| step));
            if rng.below(10) == 0
                && let Some((step, _)) = last.remove(&flow)
            {
                active.forget(step);
            }
            let within = |ms| {
                let old = Duration::from_millis(ms);
                last.values().filter(|(_, last)| now - *last < old).count() as u32
            };
            let range = within(600)..=within(700);
            assert!(range.contains(&active.active()), "{} is not in {range:?} at {now:?}", active.active());
            let counted = last.values().filter(|(step, _)| active.counts(*step)).count();
            assert_eq!(counted as u32, active.active());
        }
    }

    #[test]
    fn a_flow_that_is_not_counted_is_forgotten_without_effect() {
        let mut active = Active::new(Duration::from_millis(600), 6);
        let step = active.at(Instant::ZERO);
        active.forget(step);
        assert_eq!(active.active(), 0);
        active.note(None);
        active.forget(step);
        active.forget(step);
        assert_eq!(active.active(), 0);
    }
}
