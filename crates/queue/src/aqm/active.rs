//! How many flows have been heard of within some time: exact to a step of a few that it is cut into, and at a cost
//! that does not depend on how many there are.
//!
//! Each flow is counted in the step of its last packet, and with the steps the
//! counts grow old together.

use std::num::NonZeroU32;

use bentpipe_units::{Duration, Instant};

/// A power of two, above any count of steps: a step's place is found by its last bits, also where the numbers wrap.
const PLACES: usize = 8;

/// A number of a step, doubled and one more, so that it is never 0 and an entry that may be absent needs no more room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step(NonZeroU32);

impl Step {
    const FIRST: Self = Self(NonZeroU32::MIN);

    /// Steps since then.
    #[inline]
    pub fn since(self, earlier: Self) -> u32 {
        self.0.get().wrapping_sub(earlier.0.get()) >> 1
    }

    /// The step's place among `of`, a power of two.
    #[inline]
    pub fn place(self, of: usize) -> usize {
        (self.0.get() >> 1) as usize & (of - 1)
    }

    #[inline]
    fn plus(self, steps: u32) -> Self {
        Self(NonZeroU32::MIN | self.0.get().wrapping_add(steps << 1))
    }
}

/// Flows by the step in which they were last heard of.
#[derive(Debug)]
pub(super) struct Active {
    every: Duration,
    /// Steps that make up the time.
    steps: u32,
    /// The step that it is.
    step: Step,
    /// When the next one begins.
    ends: Instant,
    /// Flows heard of in this step and in each of the `steps` before, by their places.
    counts: [u32; PLACES],
    /// Their sum.
    active: u32,
}

impl Active {
    /// Flows count until nothing has been heard of them for `silence`, which has at most six steps, or up to a step
    /// longer.
    pub fn new(silence: Duration, steps: u32) -> Self {
        let every = silence.part(u64::from(steps)).max(Duration::from_nanos(1));
        let (step, ends) = (Step::FIRST, Instant::ZERO + every);
        Self { every, steps, step, ends, counts: [0; PLACES], active: 0 }
    }

    /// The step that it is at `now`; counts that are too old are forgotten.
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

    /// The share of the step that is over at `now`, a time within it.
    #[inline]
    pub fn elapsed(&self, now: Instant) -> f64 {
        1.0 - (self.ends - now).as_nanos() as f64 / self.every.as_nanos() as f64
    }

    /// Whether a flow last heard of in that step counts.
    #[inline]
    pub fn counts(&self, heard: Step) -> bool {
        self.step.since(heard) <= self.steps
    }

    /// Something is heard of a flow, in this step, after a time `before`, or for the first time.
    #[inline]
    pub fn hear(&mut self, before: Option<Step>) {
        if before == Some(self.step) {
            return;
        }
        if let Some(before) = before {
            self.forget(before);
        }
        self.counts[self.step.place(PLACES)] += 1;
        self.active += 1;
    }

    /// A flow last heard of in that step counts no longer.
    #[inline]
    pub fn forget(&mut self, heard: Step) {
        let count = &mut self.counts[heard.place(PLACES)];
        // A number that comes again, after two thousand million steps without a packet, is none of this step's.
        if self.step.since(heard) <= self.steps && *count > 0 {
            *count -= 1;
            self.active -= 1;
        }
    }

    /// How many flows count.
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

    /// Against a list of all flows: no flow is missing that was heard of within the time, and none counts whose last
    /// packet is older than that and a sixth. Pauses of up to three times the time occur.
    #[test]
    fn it_counts_as_a_list_of_all_flows_would() {
        let mut active = Active::new(Duration::from_millis(600), 6);
        let mut rng = Rng::stream(1, "active", 0, "test");
        let (mut heard, mut now) = (BTreeMap::new(), Instant::ZERO);
        for _ in 0..20_000 {
            let most = if rng.below(500) == 0 { 1800 } else { 5 };
            now += Duration::from_millis(rng.below(most));
            let some = rng.below(300) + 1;
            let flow = rng.below(some);
            let step = active.at(now);
            active.hear(heard.insert(flow, (step, now)).map(|(step, _)| step));
            if rng.below(10) == 0
                && let Some((step, _)) = heard.remove(&flow)
            {
                active.forget(step);
            }
            let within = |ms| {
                let old = Duration::from_millis(ms);
                heard.values().filter(|(_, last)| now - *last < old).count() as u32
            };
            let range = within(600)..=within(700);
            assert!(range.contains(&active.active()), "{} is not in {range:?} at {now:?}", active.active());
            let counted = heard.values().filter(|(step, _)| active.counts(*step)).count();
            assert_eq!(counted as u32, active.active());
        }
    }
}
