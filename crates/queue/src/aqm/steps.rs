//! For tests: takes an algorithm through a table of steps.

use bentpipe_units::{Duration, Instant, Rate, Rng};

use crate::descriptor::Algorithm;
use crate::fluid::{FluidConfig, FluidModel, FluidVariant, Inputs, Service};
use crate::{Aqm, Context, FlowEvent, FlowId, Limit, Link, Packet, QueueState, Value, Values, Verdict};

pub(super) struct Steps {
    aqm: Box<dyn Aqm>,
    rng: Rng,
    pub state: QueueState,
    /// Flow of the packets.
    pub flow: u32,
}

impl Steps {
    /// The algorithm with these parameters on a link of 8 Mbit/s: one byte per microsecond.
    pub fn new(algorithm: &Algorithm, given: &[(&str, Value)]) -> Self {
        Self::of(Self::build(algorithm, given))
    }

    /// Builds the algorithm for that link.
    pub fn build(algorithm: &Algorithm, given: &[(&str, Value)]) -> Box<dyn Aqm> {
        (algorithm.build)(&Self::values(algorithm, given)).unwrap()
    }

    /// Returns the parameters for that link.
    pub fn values(algorithm: &Algorithm, given: &[(&str, Value)]) -> Values {
        let link = Link { capacity: Rate::from_bps(8_000_000), mean_packet: 1000.0 };
        let value = |name: &str| given.iter().find(|(n, _)| *n == name).map(|(_, value)| *value);
        Values::resolve(algorithm.params, &link, &value).unwrap()
    }

    /// An existing AQM on that link.
    pub fn of(aqm: Box<dyn Aqm>) -> Self {
        let capacity = Rate::from_bps(8_000_000);
        let limit = Limit { packets: 1000, bytes: u64::MAX };
        let idle_since = Some(Instant::ZERO);
        let state = QueueState { packets: 0, bytes: 0, held: 0, limit, capacity, sent_bytes: 0, idle_since };
        Self { aqm, rng: Rng::stream(1, "steps", 0, "test"), state, flow: 0 }
    }

    /// A packet of `len` bytes arrives at `us` microseconds; it is admitted if it passes.
    pub fn arrive(&mut self, us: u64, len: u32) -> Verdict {
        self.arrive_of(us, len, self.flow)
    }

    /// Like [`Self::arrive`], of a given flow.
    pub fn arrive_of(&mut self, us: u64, len: u32, flow: u32) -> Verdict {
        let verdict = self.decide(us, len, flow);
        if verdict == Verdict::Pass {
            let (pkt, mut cx) = self.at(us, us, len);
            cx.0.admit(&Packet { flow: FlowId(flow), ..pkt }, &mut cx.1);
        }
        verdict
    }

    /// A packet arrives and is dropped even if it passes.
    pub fn decide(&mut self, us: u64, len: u32, flow: u32) -> Verdict {
        let (pkt, mut cx) = self.at(us, us, len);
        cx.0.arrive(&Packet { flow: FlowId(flow), ..pkt }, &mut cx.1)
    }

    /// A packet enters the queue.
    pub fn enqueue(&mut self, us: u64, len: u32) {
        let (pkt, mut cx) = self.at(us, us, len);
        cx.0.enqueued(&pkt, &mut cx.1);
    }

    /// A flow begins or ends.
    pub fn flow(&mut self, us: u64, flow: u32, event: FlowEvent) {
        let (_, mut cx) = self.at(us, us, 0);
        cx.0.flow(FlowId(flow), event, &mut cx.1);
    }

    /// A packet that arrived at `since` leaves at `us` microseconds.
    pub fn depart(&mut self, us: u64, since: u64, len: u32) -> Verdict {
        let (pkt, mut cx) = self.at(us, since, len);
        cx.0.depart(&pkt, &mut cx.1)
    }

    /// A packet of `len` bytes is dropped because the queue was full, at `us` microseconds.
    pub fn overflow(&mut self, us: u64, len: u32) {
        let (pkt, mut cx) = self.at(us, us, len);
        cx.0.overflowed(&pkt, &mut cx.1);
    }

    /// Replaces the AQM by one that takes over its state; returns false if that is another algorithm.
    pub fn replace(&mut self, mut aqm: Box<dyn Aqm>) -> bool {
        let resumed = aqm.resume(&mut *self.aqm);
        self.aqm = aqm;
        resumed
    }

    /// Wakes the AQM at its wake time and returns that time [us].
    pub fn wake(&mut self) -> u64 {
        let now = self.aqm.wake_at().unwrap();
        self.aqm.wake(&mut Context::new(now, &self.state, &mut self.rng));
        (now - Instant::ZERO).as_nanos() / 1000
    }

    fn at(&mut self, us: u64, since: u64, len: u32) -> (Packet, (&mut dyn Aqm, Context<'_>)) {
        let time = |us| Instant::ZERO + Duration::from_micros(us);
        let pkt = Packet { arrival: time(since), ..Packet::new(len, FlowId(self.flow), 0) };
        let cx = Context::new(time(us), &self.state, &mut self.rng);
        (pkt, (self.aqm.as_mut(), cx))
    }

    /// Returns an internal value.
    pub fn probe(&self, name: &str) -> f64 {
        let mut found = f64::NAN;
        self.aqm.probe(&mut |probe, value| {
            if probe == name {
                found = value;
            }
        });
        found
    }
}

/// Builds the fluid model of the algorithm with these parameters on that link, with packets of 1000 bytes.
pub(super) fn fluid(
    algorithm: &Algorithm,
    given: &[(&str, Value)],
    variant: FluidVariant,
) -> Box<dyn FluidModel> {
    let values = Steps::values(algorithm, given);
    let make = algorithm.fluid.unwrap();
    make(&values, &FluidConfig { packet: 1000.0, limit: 1000.0, variant }).unwrap()
}

/// A link of 1000 packets/s that is offered as much, with an empty queue.
pub(super) const INPUTS: Inputs = Inputs {
    q: 0.0,
    dq: 0.0,
    offered: 1000.0,
    load: 1000.0,
    accepted: 1000.0,
    capacity: 1000.0,
    output: 1000.0,
    service: Service::Full,
    unit: 1.0,
    resolution: 1e-6,
};

/// Returns the derivatives of the state variables `x`.
pub(super) fn derivatives<const N: usize>(
    fluid: &dyn FluidModel,
    x: [f64; N],
    p: f64,
    inputs: &Inputs,
) -> [f64; N] {
    assert_eq!(fluid.states(), N);
    let mut dx = [f64::NAN; N];
    fluid.derivatives(&x, p, inputs, &mut dx);
    dx
}

/// Returns the initial values of the state variables.
pub(super) fn start<const N: usize>(fluid: &dyn FluidModel) -> [f64; N] {
    let mut x = [0.0; N];
    fluid.start(&mut x);
    x
}

/// Returns the probes of a fluid model.
pub(super) fn fluid_probes(fluid: &dyn FluidModel, x: &[f64]) -> Vec<(&'static str, f64)> {
    let mut found = Vec::new();
    fluid.probe(x, &mut |name, value| found.push((name, value)));
    found
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::registry::AQMS;

    /// Four flows, two of them announced, offer one and a half times the link's rate to a queue. Returns the verdicts.
    fn drive(steps: &mut Steps, waiting: &mut VecDeque<(u64, u32)>, from: u64, to: u64) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for us in (1000 * from..1000 * to).step_by(500) {
            while steps.aqm.wake_at().is_some_and(|at| at <= Instant::ZERO + Duration::from_micros(us)) {
                steps.wake();
            }
            let show = |steps: &mut Steps, waiting: &VecDeque<_>| {
                steps.state.packets = waiting.len() as u32;
                steps.state.bytes = 1000 * u64::from(steps.state.packets);
                steps.state.idle_since = None;
            };
            // Two of three times 500 us a packet arrives, one of two times one leaves.
            if us % 1500 != 0 {
                steps.flow = (us / 500 % 4) as u32;
                let verdict = steps.arrive(us, 1000);
                verdicts.push(verdict);
                if verdict == Verdict::Pass {
                    waiting.push_back((us, steps.flow));
                    show(steps, waiting);
                    steps.enqueue(us, 1000);
                }
            }
            if us % 1000 == 0
                && let Some((since, flow)) = waiting.pop_front()
            {
                show(steps, waiting);
                steps.flow = flow;
                verdicts.push(steps.depart(us, since, 1000));
                steps.state.sent_bytes += 1000;
            }
        }
        verdicts
    }

    fn probes(aqm: &dyn Aqm) -> Vec<(&'static str, f64)> {
        let mut found = Vec::new();
        aqm.probe(&mut |name, value| found.push((name, value)));
        found
    }

    /// An AQM that takes over from one of the same algorithm shows its state and decides as it would have; one that
    /// takes over from another algorithm is as new.
    #[test]
    fn state_passes_to_the_same_algorithm_only() {
        for algorithm in AQMS {
            let name = algorithm.name;
            let [(mut kept, mut waiting), (mut replaced, mut same)] = [(); 2].map(|()| {
                let (mut steps, mut waiting) = (Steps::new(algorithm, &[]), VecDeque::new());
                steps.flow(0, 0, FlowEvent::Opened);
                steps.flow(0, 1, FlowEvent::Opened);
                drive(&mut steps, &mut waiting, 0, 1000);
                (steps, waiting)
            });
            let fresh = || Steps::build(algorithm, &[]);
            let (new, state) = (probes(&*fresh()), probes(&*kept.aqm));
            assert!(name == "droptail" || new != state, "{name}: {state:?}");
            assert!(replaced.replace(fresh()), "{name}");
            assert_eq!(probes(&*replaced.aqm), state, "{name}");
            let verdicts = drive(&mut kept, &mut waiting, 1000, 2000);
            assert_eq!(drive(&mut replaced, &mut same, 1000, 2000), verdicts, "{name}");
            assert_eq!(probes(&*replaced.aqm), probes(&*kept.aqm), "{name}");

            let other = AQMS.iter().find(|other| other.name != name).unwrap();
            let mut other = Steps::new(other, &[]);
            assert!(!other.replace(fresh()), "{name}");
            assert_eq!(probes(&*other.aqm), new, "{name}");
        }
    }
}
