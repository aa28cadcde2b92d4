//! Threshold control: keeps any algorithm from signalling before the buffer is filled to a threshold, and adds signals
//! as the buffer fills up.
//!
//! Rahmani, Åhlund & Kanter 2011 [R11] 5.3 and 6.2. Let `L` be the limit of the watched queue, `q` its length and `th`
//! a share of the buffer. A packet at the mark point is marked if the algorithm marks it and `q > th L`, or with
//! probability `c`, which rises from 0 at `th L` to 1 at `L`: `c = (q / L - th) / (1 - th)`.
//!
//! *Departures:* the source does not say how ramp and algorithm are combined; the rule above is our reading. Up to
//! `th L` a packet passes whatever the algorithm's verdict; above it every verdict applies, at the mark point and at
//! the head of the queue, and the ramp marks packets at the mark point that would otherwise pass. The algorithm sees
//! every packet, and takes a suppressed mark for one that was carried out. If packets and bytes are both limited,
//! `q / L` is the greater share. In the last experiment of [R11] `th` has another value while half of the unresponsive
//! flows are away; so it may change at given times, of which the algorithm is not told.

use std::any::Any;

use crate::fluid::{Arrivals, FluidConfig, FluidModel, Inputs};
use crate::{Aqm, Context, FlowEvent, FlowId, Packet, Param, Range, Tune, Unit, Verdict};

use bentpipe_units::{Duration, Instant};

/// The threshold, an optional key of every algorithm's table.
pub const THRESHOLD: Param = Param::number("threshold", Unit::One, 0.0, Range::between(0.25, 0.95))
    .doc(
        "Share of the buffer up to which nothing is marked; above it the probability rises to 1 at the limit",
    )
    .symbol("th")
    .origin("none: by default the algorithm works without threshold control")
    .tune(Tune::Linear(0.25, 0.95));

/// The threshold over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Thresholds(Vec<(Duration, f64)>);

impl Thresholds {
    /// Shares of the buffer, each from its time since the start of the run; times rise, and the first is 0.
    #[must_use]
    pub fn new(steps: Vec<(Duration, f64)>) -> Self {
        Self(steps)
    }

    /// Returns each share with its time.
    #[must_use]
    pub fn steps(&self) -> &[(Duration, f64)] {
        &self.0
    }

    /// Returns the initial share.
    #[must_use]
    pub fn first(&self) -> f64 {
        self.0.first().map_or(1.0, |step| step.1)
    }

    /// Returns the share if it is constant.
    #[must_use]
    pub fn constant(&self) -> Option<f64> {
        (self.0.len() == 1).then(|| self.first())
    }
}

impl From<f64> for Thresholds {
    fn from(th: f64) -> Self {
        Self(vec![(Duration::ZERO, th)])
    }
}

/// An algorithm under threshold control.
pub struct Threshold {
    inner: Box<dyn Aqm>,
    th: f64,
    /// Later values, the next one last.
    later: Vec<(Instant, f64)>,
    c: f64,
}

impl Threshold {
    /// Puts an algorithm under the control of the threshold `th`, a share of the buffer.
    #[must_use]
    pub fn new(inner: Box<dyn Aqm>, th: impl Into<Thresholds>) -> Self {
        let th = th.into();
        let later = th.steps().iter().skip(1).rev().map(|&(from, th)| (Instant::ZERO + from, th)).collect();
        Self { inner, th: th.first(), later, c: 0.0 }
    }

    /// Applies the changes up to `now`.
    #[inline]
    fn follow(&mut self, now: Instant) {
        while let Some(&(from, th)) = self.later.last()
            && from <= now
        {
            self.th = th;
            self.later.pop();
        }
    }
}

impl Aqm for Threshold {
    fn arrive(&mut self, pkt: &Packet, cx: &mut Context<'_>) -> Verdict {
        let verdict = self.inner.arrive(pkt, cx);
        self.follow(cx.now);
        let share = cx.queue.fullness();
        self.c = ((share - self.th) / (1.0 - self.th)).clamp(0.0, 1.0);
        if share <= self.th {
            return Verdict::Pass;
        }
        if verdict == Verdict::Pass && cx.rng.uniform() < self.c { Verdict::Mark } else { verdict }
    }

    fn admit(&mut self, pkt: &Packet, cx: &mut Context<'_>) {
        self.inner.admit(pkt, cx);
    }

    fn enqueued(&mut self, pkt: &Packet, cx: &mut Context<'_>) {
        self.inner.enqueued(pkt, cx);
    }

    fn depart(&mut self, pkt: &Packet, cx: &mut Context<'_>) -> Verdict {
        let verdict = self.inner.depart(pkt, cx);
        self.follow(cx.now);
        if cx.queue.fullness() > self.th { verdict } else { Verdict::Pass }
    }

    fn overflowed(&mut self, pkt: &Packet, cx: &mut Context<'_>) {
        self.inner.overflowed(pkt, cx);
    }

    fn flow(&mut self, flow: FlowId, event: FlowEvent, cx: &mut Context<'_>) {
        self.inner.flow(flow, event, cx);
    }

    fn wake_at(&self) -> Option<Instant> {
        self.inner.wake_at()
    }

    fn wake(&mut self, cx: &mut Context<'_>) {
        self.inner.wake(cx);
    }

    fn resume(&mut self, previous: &mut dyn Any) -> bool {
        previous.downcast_mut::<Self>().is_some_and(|was| self.inner.resume(&mut *was.inner))
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        self.inner.probe(out);
        out("c", self.c);
    }
}

/// The fluid model of an algorithm under threshold control, as [`Threshold`] acts packet by packet: no marks up to
/// `th L`; above it the algorithm's marks, and of the rest the share `c`: `p' = 1 - (1 - p) (1 - c)`. The algorithm's
/// state follows its own `p`, because it does not see the control, and the accepted load, which follows `p'`.
pub struct ThresholdFluid {
    inner: Box<dyn FluidModel>,
    th: f64,
    /// L [packets].
    limit: f64,
}

impl ThresholdFluid {
    /// Puts the fluid model `inner` under the control of the threshold `th`, a share of the buffer.
    #[must_use]
    pub fn new(inner: Box<dyn FluidModel>, th: f64, given: &FluidConfig) -> Self {
        Self { inner, th, limit: given.limit }
    }
}

impl FluidModel for ThresholdFluid {
    fn states(&self) -> usize {
        self.inner.states()
    }

    fn start(&self, x: &mut [f64]) {
        self.inner.start(x);
    }

    fn mark(&self, x: &[f64], arrivals: &Arrivals) -> f64 {
        let share = arrivals.q / self.limit;
        if share <= self.th {
            return 0.0;
        }
        let c = ((share - self.th) / (1.0 - self.th)).min(1.0);
        1.0 - (1.0 - self.inner.mark(x, arrivals)) * (1.0 - c)
    }

    fn derivatives(&self, x: &[f64], _p: f64, inputs: &Inputs, dx: &mut [f64]) {
        self.inner.derivatives(x, self.inner.mark(x, &inputs.arrivals()), inputs, dx);
    }

    fn probe(&self, x: &[f64], out: &mut dyn FnMut(&'static str, f64)) {
        self.inner.probe(x, out);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bentpipe_units::Rng;

    use super::super::steps::{INPUTS, Steps, derivatives, fluid_probes, start};
    use super::*;
    use crate::fluid::FluidVariant;
    use crate::{Limit, QueueSlot};

    /// Returns the same verdict for every packet, at the mark point and at the head of the queue.
    struct Constant(Verdict);

    impl Aqm for Constant {
        fn arrive(&mut self, _pkt: &Packet, _cx: &mut Context<'_>) -> Verdict {
            self.0
        }

        fn depart(&mut self, _pkt: &Packet, _cx: &mut Context<'_>) -> Verdict {
            self.0
        }
    }

    /// Counts what it is told of.
    #[derive(Default)]
    struct Calls(BTreeMap<&'static str, u32>);

    impl Calls {
        fn note(&mut self, call: &'static str) {
            *self.0.entry(call).or_default() += 1;
        }
    }

    impl Aqm for Calls {
        fn arrive(&mut self, _pkt: &Packet, _cx: &mut Context<'_>) -> Verdict {
            Verdict::Pass
        }

        fn admit(&mut self, _pkt: &Packet, _cx: &mut Context<'_>) {
            self.note("admitted");
        }

        fn enqueued(&mut self, _pkt: &Packet, _cx: &mut Context<'_>) {
            self.note("enqueued");
        }

        fn overflowed(&mut self, _pkt: &Packet, _cx: &mut Context<'_>) {
            self.note("overflowed");
        }

        fn flow(&mut self, _flow: FlowId, event: FlowEvent, _cx: &mut Context<'_>) {
            self.note(if event == FlowEvent::Opened { "opened" } else { "closed" });
        }

        fn wake_at(&self) -> Option<Instant> {
            Some(Instant::from_nanos(5000))
        }

        fn wake(&mut self, _cx: &mut Context<'_>) {
            self.note("woken");
        }

        fn resume(&mut self, previous: &mut dyn Any) -> bool {
            previous.downcast_mut::<Self>().map(|was| self.0 = std::mem::take(&mut was.0)).is_some()
        }

        fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
            self.0.iter().for_each(|(call, count)| out(call, (*count).into()));
        }
    }

    #[test]
    fn the_algorithm_is_told_of_packets_flows_and_wake_ups() {
        let mut former = Threshold::new(Box::new(Calls::default()), 0.6);
        let state = Steps::of(Box::new(Constant(Verdict::Pass))).state;
        let (mut rng, pkt) = (Rng::stream(1, "threshold", 0, "test"), Packet::new(1000, FlowId(7), 0));
        let mut cx = Context::new(Instant::ZERO, &state, &mut rng);
        (0..2).for_each(|_| former.flow(FlowId(7), FlowEvent::Opened, &mut cx));
        former.flow(FlowId(7), FlowEvent::Closed, &mut cx);
        (0..3).for_each(|_| former.admit(&pkt, &mut cx));
        (0..4).for_each(|_| former.enqueued(&pkt, &mut cx));
        (0..5).for_each(|_| former.overflowed(&pkt, &mut cx));
        (0..6).for_each(|_| former.wake(&mut cx));
        assert_eq!(former.wake_at(), Some(Instant::from_nanos(5000)));
        // Another threshold for the same algorithm continues with its state; for another algorithm it begins anew.
        let mut later = Threshold::new(Box::new(Calls::default()), 0.7);
        let mut other = Threshold::new(Box::new(Constant(Verdict::Pass)), 0.7);
        assert!(!later.resume(&mut other) && later.resume(&mut former));
        let mut found = Vec::new();
        later.probe(&mut |name, value| found.push((name, value)));
        let expected = [("admitted", 3.0), ("closed", 1.0), ("enqueued", 4.0), ("opened", 2.0)];
        assert_eq!(found[..4], expected);
        assert_eq!(found[4..], [("overflowed", 5.0), ("woken", 6.0), ("c", 0.0)]);
    }

    #[test]
    fn a_threshold_is_constant_without_later_steps() {
        assert_eq!(Thresholds::from(0.6).constant(), Some(0.6));
        let steps = [0, 100].map(|us| (Duration::from_micros(us), 0.5));
        assert_eq!(Thresholds::new(steps.to_vec()).constant(), None);
    }

    /// A buffer of 1000 packets and th = 0.6.
    fn under_control(verdict: Verdict) -> Steps {
        Steps::of(Box::new(Threshold::new(Box::new(Constant(verdict)), 0.6)))
    }

    /// Up to 600 packets all pass; from 601 on the algorithm's verdict applies, and at 1000 c = 1.
    #[test]
    fn no_marks_up_to_the_threshold_and_all_at_the_limit() {
        let hold = Verdict::Hold(Duration::from_millis(1));
        for verdict in [Verdict::Mark, Verdict::Drop, Verdict::DropBoth(QueueSlot(3)), hold] {
            let mut steps = under_control(verdict);
            for (q, expected) in [
                (0, Verdict::Pass),
                (599, Verdict::Pass),
                (600, Verdict::Pass),
                (601, verdict),
                (1000, verdict),
            ] {
                steps.state.packets = q;
                let both = (steps.arrive(1, 1000), steps.depart(1, 1, 1000));
                assert_eq!(both, (expected, expected), "at {q} packets");
            }
        }
        let mut steps = under_control(Verdict::Pass);
        for (q, c, verdict) in
            [(600, 0.0, Verdict::Pass), (1000, 1.0, Verdict::Mark), (1200, 1.0, Verdict::Mark)]
        {
            steps.state.packets = q;
            let got = (steps.arrive(1, 1000), steps.depart(1, 1, 1000));
            assert_eq!(got, (verdict, Verdict::Pass), "the ramp is at the mark point alone; {q} packets");
            assert_eq!(steps.probe("c"), c);
        }
    }

    /// At 700, 800 and 900 packets c = 1/4, 1/2, 3/4; of 10,000 packets these shares are marked, with a standard
    /// deviation of at most 0.005.
    #[test]
    fn ramp_is_linear() {
        let mut steps = under_control(Verdict::Pass);
        for (q, c) in [(700, 0.25), (800, 0.5), (900, 0.75)] {
            steps.state.packets = q;
            let marks = (0..10_000).filter(|us| steps.arrive(*us, 1000) == Verdict::Mark).count();
            assert!((steps.probe("c") - c).abs() < 1e-12);
            assert!((marks as f64 / 1e4 - c).abs() < 0.025, "{marks} marks at {q} packets");
        }
    }

    /// A buffer of 1000 packets with 700 in it: all pass at 0.75 up to 99 us, all are marked at 0.5 from 100 us on, and
    /// all pass again from 200 us on, at the mark point and at the head of the queue.
    #[test]
    fn threshold_changes_at_the_given_times() {
        let us = Duration::from_micros;
        let th = Thresholds::new(vec![(us(0), 0.75), (us(100), 0.5), (us(200), 0.75)]);
        let mut steps = Steps::of(Box::new(Threshold::new(Box::new(Constant(Verdict::Mark)), th)));
        steps.state.packets = 700;
        for (at, expected) in
            [(1, Verdict::Pass), (99, Verdict::Pass), (100, Verdict::Mark), (199, Verdict::Mark)]
        {
            assert_eq!(steps.arrive(at, 1000), expected, "at {at} us");
        }
        assert_eq!(steps.depart(199, 1, 1000), Verdict::Mark);
        assert_eq!(steps.depart(200, 1, 1000), Verdict::Pass);
        assert_eq!(steps.arrive(201, 1000), Verdict::Pass);
    }

    /// Of 1000 packets and 10,000 bytes, 10 packets with 8000 bytes fill 0.8: c = 1/2.
    #[test]
    fn greater_share_of_packets_and_bytes_counts() {
        let mut steps = under_control(Verdict::Pass);
        steps.state.limit = Limit { packets: 1000, bytes: 10_000 };
        (steps.state.packets, steps.state.bytes) = (10, 8000);
        steps.arrive(1, 1000);
        assert!((steps.probe("c") - 0.5).abs() < 1e-12);
    }

    /// Marks a fifth; its first state variable follows p, its second starts at 3.
    struct Fifth;

    impl FluidModel for Fifth {
        fn states(&self) -> usize {
            2
        }

        fn start(&self, x: &mut [f64]) {
            x[1] = 3.0;
        }

        fn mark(&self, _x: &[f64], _arrivals: &Arrivals) -> f64 {
            0.2
        }

        fn derivatives(&self, _x: &[f64], p: f64, _inputs: &Inputs, dx: &mut [f64]) {
            dx.copy_from_slice(&[p, 0.0]);
        }

        fn probe(&self, x: &[f64], out: &mut dyn FnMut(&'static str, f64)) {
            out("state", x[1]);
        }
    }

    /// Half of 100 packets: none marked up to 50; at 75, c = 1/2, half of the rest, 0.6 in all; all from 100 on.
    #[test]
    fn fluid_marks_none_up_to_the_threshold_and_all_at_the_limit() {
        let given = FluidConfig { packet: 1000.0, limit: 100.0, variant: FluidVariant::Printed };
        let fluid = ThresholdFluid::new(Box::new(Fifth), 0.5, &given);
        for (q, p) in [(0.0, 0.0), (50.0, 0.0), (75.0, 0.6), (100.0, 1.0), (150.0, 1.0)] {
            let found = fluid.mark(&[0.0, 3.0], &Arrivals { q, load: 1000.0, capacity: 1000.0 });
            assert!((found - p).abs() < 1e-12, "{found} at {q}");
        }
        assert_eq!(start::<2>(&fluid), [0.0, 3.0]);
        assert_eq!(derivatives(&fluid, [0.0, 3.0], 0.9, &INPUTS), [0.2, 0.0]);
        assert_eq!(fluid_probes(&fluid, &[0.0, 3.0]), [("state", 3.0)]);
    }
}
