//! PI, proportional integral controller: keeps the queue at a reference length, by its distance from it and its growth.
//!
//! Hollot, Misra, Towsley & Gong 2001. At times `1 / w` apart, with `q` packets in the watched queue and `q_old` at the
//! previous time:
//!
//! ```text
//! p = p + a (q - q_ref) - b (q_old - q_ref), within 0 and 1
//! ```
//!
//! Each arrival at the mark point is marked with probability `p`. `a` and `b` are almost equal, so `p` changes mostly
//! with the growth of the queue, and is constant only at a length of `q_ref`.
//!
//! *Departures:* none. `a` and `b` depend on the link, the round trip and the number of flows: the defaults are the
//! paper's, designed for 15 Mbit/s with packets of 500 bytes, 60 flows and a round trip of 240 ms.
//!
//! *In a satellite gateway:* it watches the transmit queue and can mark ahead of the PEP, as RED does, and keeps a
//! queue length that depends on the load under RED. It is slow: with the defaults the probability takes seconds to
//! minutes to follow a change of load, which suits many long connections, but not a gateway with intermittent traffic
//! or a fading link. A mark takes effect after the time from the receive queue to the transmit queue plus a terrestrial
//! round trip: if the PEP holds packets for long, tune `a` and `b` for that time.

use std::any::Any;

use bentpipe_units::{Duration, Instant};

use crate::descriptor::{Algorithm, Placement};
use crate::fluid::{Equilibrium, FluidModel, Inputs, Service};
use crate::{Aqm, Context, Packet, Param, Range, Tune, Unit, Values, Verdict};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "pi",
    title: "Proportional integral controller",
    source: "Hollot et al. 2001",
    params: PARAMS,
    presets: &[],
    placement: Placement::Anywhere,
    build: |values| Ok(Box::new(Pi::new(values))),
    fluid: Some(|values, _| Ok(Box::new(PiFluid { rule: Pi::new(values), w: values.number("w") }))),
};

/// Target queue length of controllers.
pub(super) const Q_REF: Param =
    Param::from_link("q_ref", Unit::Packets, Range::between(0.0, 1e9), |link| link.packets_in(0.033))
        .default_doc("33 ms of the link's capacity, at least one packet")
        .doc("Target queue length")
        .origin("RED's lower threshold, for the same target delay")
        .tune(Tune::Around(0.1, 4.0));

const PARAMS: &[Param] = &[
    Q_REF,
    Param::number("a", Unit::One, 1.822e-5, Range::above(0.0, 1.0))
        .doc("Weight of the queue's distance from `q_ref`")
        .origin("Hollot et al. 2001, for 15 Mbit/s, 60 flows and a round trip of 240 ms")
        .tune(Tune::Log(1e-6, 1e-2)),
    Param::number("b", Unit::One, 1.816e-5, Range::between(0.0, 1.0))
        .doc("Weight of that distance at the previous update")
        .origin("Hollot et al. 2001, for 15 Mbit/s, 60 flows and a round trip of 240 ms")
        .tune(Tune::Log(1e-6, 1e-2)),
    Param::number("w", Unit::One, 170.0, Range::above(0.0, 1e6))
        .doc("Updates of the probability per second")
        .origin("ns-2's default with these weights")
        .tune(Tune::Log(10.0, 1000.0)),
];

/// PI's state.
#[derive(Debug)]
pub struct Pi {
    q_ref: f64,
    a: f64,
    b: f64,
    every: Duration,
    p: f64,
    q_old: f64,
    next: Instant,
}

impl Pi {
    fn new(v: &Values) -> Self {
        let every = Duration::from_secs_f64(1.0 / v.number("w")).max(Duration::from_nanos(1));
        Self {
            q_ref: v.number("q_ref"),
            a: v.number("a"),
            b: v.number("b"),
            every,
            p: 0.0,
            q_old: 0.0,
            next: Instant::ZERO + every,
        }
    }
}

impl Aqm for Pi {
    fn arrive(&mut self, _pkt: &Packet, cx: &mut Context<'_>) -> Verdict {
        if cx.rng.uniform() < self.p { Verdict::Mark } else { Verdict::Pass }
    }

    fn wake_at(&self) -> Option<Instant> {
        Some(self.next)
    }

    fn wake(&mut self, cx: &mut Context<'_>) {
        let q = f64::from(cx.queue.packets);
        let change = self.a * (q - self.q_ref) - self.b * (self.q_old - self.q_ref);
        self.p = (self.p + change).clamp(0.0, 1.0);
        self.q_old = q;
        self.next += self.every;
    }

    fn resume(&mut self, previous: &mut dyn Any) -> bool {
        let Some(was) = previous.downcast_mut::<Self>() else { return false };
        self.p = was.p;
        self.q_old = was.q_old;
        self.next = was.next;
        true
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("p", self.p);
    }
}

/// PI as a fluid: with `q_old = q - dq / (w dt)`, an update changes `p` by `(a - b) (q - q_ref) + b (q - q_old)`, and
/// there are `w` updates per second: `dp/dt = w (a - b) (q - q_ref) + b dq/dt`.
struct PiFluid {
    rule: Pi,
    w: f64,
}

impl FluidModel for PiFluid {
    fn derivatives(&self, x: &[f64], _p: f64, inputs: &Inputs, dx: &mut [f64]) {
        let Pi { q_ref, a, b, .. } = self.rule;
        let change = self.w * (a - b) * (inputs.q - q_ref) + b * inputs.dq;
        dx[0] = inputs.within(x[0], change, 0.0, 1.0);
    }

    /// Any p is an equilibrium once the queue has its reference length.
    fn equilibrium(
        &self,
        share: f64,
        _capacity: f64,
        _service: Service,
        x: &mut [f64],
    ) -> Option<Equilibrium> {
        x[0] = share;
        Some(Equilibrium::Queue(self.rule.q_ref))
    }

    fn probe(&self, x: &[f64], out: &mut dyn FnMut(&'static str, f64)) {
        out("p", x[0].clamp(0.0, 1.0));
    }
}

#[cfg(test)]
mod tests {
    use super::super::steps::{INPUTS, Steps, derivatives, fluid, fluid_probes};
    use super::*;
    use crate::Value;
    use crate::fluid::FluidVariant;

    /// Worked out by hand with a = 0.01, b = 0.005, q_ref = 10: p grows by 0.01 (q - 10) - 0.005 (q_old - 10), with
    /// q_old = 0 at first.
    #[test]
    fn updates_follow_the_equation() {
        let given = [("q_ref", 10.0), ("a", 0.01), ("b", 0.005), ("w", 100.0)];
        let mut pi = Steps::new(&ALGORITHM, &given.map(|(name, x)| (name, Value::Number(x))));
        for (i, (q, p)) in
            [(20, 0.15), (20, 0.2), (10, 0.15), (0, 0.05), (0, 0.0), (200, 1.0)].into_iter().enumerate()
        {
            pi.state.packets = q;
            assert_eq!(pi.wake(), 10_000 * (i as u64 + 1));
            assert!((pi.probe("p") - p).abs() < 1e-12, "{} is not {p} at q {q}", pi.probe("p"));
        }
        assert_eq!(pi.arrive(60_001, 1000), Verdict::Mark);
    }

    /// A tenth of 10,000 arrivals at p = 0.1, within five standard errors of 30.
    #[test]
    fn marks_with_its_probability() {
        let given = [("q_ref", 0.0), ("a", 0.01), ("b", 0.0), ("w", 100.0)];
        let mut pi = Steps::new(&ALGORITHM, &given.map(|(name, x)| (name, Value::Number(x))));
        pi.state.packets = 10;
        pi.wake();
        let marks = (0..10_000).filter(|us| pi.arrive(10_001 + us, 1000) == Verdict::Mark).count();
        assert!((850..=1150).contains(&marks), "{marks}");
    }

    /// With `w` = 100, a = 0.01, b = 0.005 and q_ref = 10: dp/dt = w (a - b) (q - q_ref) + b dq/dt = 100 0.005 4 + 0.005 8
    /// at 14 packets that grow by 8 packets/s; and p stays between 0 and 1. In equilibrium the queue has 10 packets at any p.
    #[test]
    fn fluid_follows_the_equation() {
        let given = [("q_ref", 10.0), ("a", 0.01), ("b", 0.005), ("w", 100.0)];
        let pi = fluid(&ALGORITHM, &given.map(|(name, x)| (name, Value::Number(x))), FluidVariant::Actual);
        for (p, q, dq, change) in
            [(0.5, 14.0, 8.0, 2.04), (0.5, 6.0, 8.0, -1.96), (1.0, 14.0, 8.0, 0.0), (0.0, 6.0, 8.0, 0.0)]
        {
            let [found] = derivatives(&*pi, [p], p, &Inputs { q, dq, ..INPUTS });
            assert!((found - change).abs() < 1e-9, "{found}, not {change}, at p {p} and q {q}");
        }
        let mut x = [0.0];
        assert_eq!(pi.equilibrium(0.3, 1000.0, Service::Full, &mut x), Some(Equilibrium::Queue(10.0)));
        assert_eq!(x, [0.3]);
        assert_eq!(fluid_probes(&*pi, &[0.3]), [("p", 0.3)]);
    }
}
