//! Yellow: adapts the marking probability to the load, measured against a capacity that follows the queue.
//!
//! Long, Zhao, Guan & Yang 2005; [B07] 2.2.3. The load `z = offered / c'` is measured over `freeze_time`, against a
//! virtual capacity `c' = f(q) c` of the link's `c`. `f` is a hyperbola on either side of `q_ref`, where it is `gamma`:
//!
//! ```text
//! f(q) = gamma beta q_ref / ((beta - 1) q + q_ref)                  0 <= q <= q_ref
//! f(q) = max(ODLF, gamma alpha q_ref / ((alpha - 1) q + q_ref))     q > q_ref
//! ```
//!
//! so an empty queue admits a load of `gamma beta c`, and a long one reserves part of the link for its own draining, at
//! most `1 - ODLF`. Then `z >= 1 + delta`: `p += d z`; `z < 1`: `p -= d / z`, and `p = 0` without any load. Each
//! arrival at the mark point is marked with probability `p`.
//!
//! *Departures:* with `accepted`, packets dropped at the mark point do not count as load. If marks drop nothing this
//! makes no difference; if they drop, the offered load *including* dropped packets would settle near `c`, and the link
//! would stay idle by that share. The hyperbolas are the queue control function of ERICA+ (Vandalore, Jain, Goyal &
//! Fahmy), and the values of `alpha`, `beta` and `ODLF` (there `a`, `b` and `QDLF`) are taken from there, because
//! Yellow's own values are not available.
//!
//! *In a satellite gateway:* it needs the arrivals, and the length of the queue behind the PEP once per `freeze_time`.
//! It reacts to the load before a queue has formed, but its steps hardly depend on the distance from the target, so the
//! queue oscillates: on the 2007 gateway it reaches 18.9 of 20 Mbit/s, with a mean queue of 73 packets and a 95th
//! percentile of 250. VRC, which measures the same two quantities and corrects in proportion, performs better there.
//! After a pause without arrivals `p` restarts at 0.

use std::any::Any;

use bentpipe_units::{Duration, Instant};

use super::pi::Q_REF;
use crate::descriptor::{Algorithm, Placement};
use crate::fluid::{FluidModel, Inputs};
use crate::{Aqm, Context, Packet, Param, Range, Tune, Unit, Values, Verdict};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "yellow",
    title: "Yellow",
    source: "Long, Zhao, Guan & Yang 2005; [B07] 2.2.3",
    params: PARAMS,
    presets: &[],
    placement: Placement::Anywhere,
    build: |values| Ok(Box::new(Yellow::new(values))),
    fluid: Some(|values, _| Ok(Box::new(YellowFluid { rule: Yellow::new(values) }))),
};

const PARAMS: &[Param] = &[
    Param { range: Range::above(0.0, 1e9), ..Q_REF },
    Param::number("gamma", Unit::One, 0.98, Range::above(0.0, 1.0))
        .doc("Target utilization of the link at the target queue length")
        .symbol("γ")
        .origin("AVQ's default utilization")
        .tune(Tune::Linear(0.9, 1.0)),
    Param::number("alpha", Unit::One, 1.15, Range::between(1.0, 1000.0))
        .doc("Steepness with which the virtual capacity falls above the target length")
        .symbol("α")
        .origin("ERICA+'s a")
        .tune(Tune::Linear(1.0, 2.0)),
    Param::number("beta", Unit::One, 1.05, Range::between(1.0, 1000.0))
        .doc("Ratio of the virtual capacity of an empty queue to that at the target length")
        .symbol("β")
        .origin("ERICA+'s b")
        .tune(Tune::Linear(1.0, 1.5)),
    Param::number("odlf", Unit::One, 0.5, Range::above(0.0, 1.0))
        .doc("Minimum virtual capacity, as a share of the capacity")
        .symbol("ODLF")
        .origin("ERICA+'s QDLF")
        .tune(Tune::Linear(0.2, 0.9)),
    Param::number("delta", Unit::One, 0.0, Range::between(0.0, 10.0))
        .doc("Excess of the load over 1 up to which the probability does not grow")
        .symbol("δ")
        .origin("found by search on the 2007 gateway")
        .tune(Tune::Linear(0.0, 0.2)),
    Param::number("d", Unit::One, 0.002, Range::above(0.0, 1.0))
        .doc("Step of the probability at a load of 1")
        .symbol("Δ")
        .origin("found by search on the 2007 gateway")
        .tune(Tune::Log(0.0001, 0.05)),
    Param::from_link("freeze_time", Unit::Seconds, Range::between(0.000_001, 60.0), |link| {
        (20.0 / link.packets_in(1.0)).max(0.05)
    })
    .default_doc("50 ms, or the time of 20 packets if that is longer")
    .doc("Time over which the load is measured")
    .origin("found by search on the 2007 gateway")
    .tune(Tune::Around(0.2, 5.0)),
    Param::flag(
        "accepted",
        true,
        "Take the accepted packets as the load instead of all arrivals; no difference unless marks drop",
    )
    .origin("found by search on the 2007 gateway")
    .tune(Tune::Each),
];

/// Yellow's state.
#[derive(Debug)]
pub struct Yellow {
    q_ref: f64,
    gamma: f64,
    alpha: f64,
    beta: f64,
    odlf: f64,
    delta: f64,
    d: f64,
    every: Duration,
    accepted: bool,
    /// Bytes offered since the last update.
    offered: u64,
    z: f64,
    p: f64,
    next: Instant,
}

impl Yellow {
    fn new(v: &Values) -> Self {
        let every = Duration::from_secs_f64(v.number("freeze_time"));
        Self {
            q_ref: v.number("q_ref"),
            gamma: v.number("gamma"),
            alpha: v.number("alpha"),
            beta: v.number("beta"),
            odlf: v.number("odlf"),
            delta: v.number("delta"),
            d: v.number("d"),
            every,
            accepted: v.flag("accepted"),
            offered: 0,
            z: 0.0,
            p: 0.0,
            next: Instant::ZERO + every,
        }
    }

    /// Change of the probability at load `z`; minus infinity without any load, which sets it to 0.
    fn step(&self, z: f64) -> f64 {
        if z >= 1.0 + self.delta {
            self.d * z
        } else if z < 1.0 {
            -self.d / z
        } else {
            0.0
        }
    }

    /// Share of the capacity that a queue of `q` packets leaves to arrivals.
    fn f(&self, q: f64) -> f64 {
        if q > self.q_ref {
            self.odlf.max(self.gamma * self.alpha * self.q_ref / ((self.alpha - 1.0) * q + self.q_ref))
        } else {
            self.gamma * self.beta * self.q_ref / ((self.beta - 1.0) * q + self.q_ref)
        }
    }
}

impl Aqm for Yellow {
    fn arrive(&mut self, pkt: &Packet, cx: &mut Context<'_>) -> Verdict {
        if !self.accepted {
            self.offered += u64::from(pkt.len);
        }
        if cx.rng.uniform() < self.p { Verdict::Mark } else { Verdict::Pass }
    }

    fn admit(&mut self, pkt: &Packet, _cx: &mut Context<'_>) {
        if self.accepted {
            self.offered += u64::from(pkt.len);
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        Some(self.next)
    }

    fn wake(&mut self, cx: &mut Context<'_>) {
        let served = self.f(f64::from(cx.queue.packets))
            * cx.queue.capacity.bytes_per_sec().max(1.0)
            * self.every.as_secs_f64();
        self.z = self.offered as f64 / served;
        self.p = (self.p + self.step(self.z)).clamp(0.0, 1.0);
        self.offered = 0;
        self.next += self.every;
    }

    fn resume(&mut self, previous: &mut dyn Any) -> bool {
        let Some(was) = previous.downcast_mut::<Self>() else { return false };
        self.offered = was.offered;
        self.z = was.z;
        self.p = was.p;
        self.next = was.next;
        true
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("p", self.p);
        out("z", self.z);
    }
}

/// Yellow as a fluid: with the load `z = λ / (f(q) C)`, where `λ` is the accepted or the offered load, there is a step
/// per `freeze_time`: `dp/dt = d z / freeze_time` for `z >= 1 + delta`, `-d / (z freeze_time)` for `z < 1`. Derived
/// here. Not modelled: the age of the load, up to `freeze_time`, and its scatter; near 1 the algorithm steps up and
/// down alternately.
struct YellowFluid {
    rule: Yellow,
}

impl FluidModel for YellowFluid {
    fn derivatives(&self, x: &[f64], _p: f64, inputs: &Inputs, dx: &mut [f64]) {
        let load = if self.rule.accepted { inputs.accepted } else { inputs.load };
        let z = load / (self.rule.f(inputs.q) * inputs.capacity.max(f64::MIN_POSITIVE));
        dx[0] = inputs.within(x[0], self.rule.step(z) / self.rule.every.as_secs_f64(), 0.0, 1.0);
    }

    fn probe(&self, x: &[f64], out: &mut dyn FnMut(&'static str, f64)) {
        out("p", x[0]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::steps::{INPUTS, Steps, derivatives, fluid, fluid_probes};
    use super::*;
    use crate::Value;
    use crate::fluid::FluidVariant;

    fn numbers<const N: usize>(given: [(&'static str, f64); N]) -> Vec<(&'static str, Value)> {
        given.map(|(name, x)| (name, Value::Number(x))).to_vec()
    }

    /// Worked out by hand for q_ref = 10, gamma = 0.9, alpha = 1.5, beta = 1.25, ODLF = 0.5: 0.9 at q_ref from either
    /// side; empty, 0.9 * 1.25; at 5, 11.25 / 11.25; at 20, 13.5 / 20; and at 40, 13.5 / 30 is less than ODLF.
    #[test]
    fn queue_control_function_matches_hand_computed_values() {
        let mut given =
            numbers([("q_ref", 10.0), ("gamma", 0.9), ("alpha", 1.5), ("beta", 1.25), ("odlf", 0.5)]);
        given.push(("accepted", Value::Flag(false)));
        let mut yellow = Steps::new(&ALGORITHM, &given);
        for (q, f) in [(0, 1.125), (5, 1.0), (10, 0.9), (20, 0.675), (40, 0.5), (100_000, 0.5)] {
            yellow.state.packets = q;
            // 50 ms at one byte per microsecond: 50,000 bytes.
            for i in 0..50 {
                yellow.arrive(i, 1000);
            }
            yellow.wake();
            assert!((yellow.probe("z") - 1.0 / f).abs() < 1e-12, "at q {q}: {}", yellow.probe("z"));
        }
    }

    /// Worked out by hand with f = 1 (alpha = beta = gamma = 1), so 10,000 bytes in 10 ms are a load of 1; d = 1/16,
    /// delta = 1/4. Columns: load in tenths, p after it.
    #[test]
    fn updates_follow_the_printed_listing() {
        let given = [("gamma", 1.0), ("alpha", 1.0), ("beta", 1.0), ("delta", 0.25), ("d", 0.0625)];
        let mut given = numbers(given);
        given.extend([("freeze_time", Value::Number(0.01)), ("accepted", Value::Flag(false))]);
        let mut yellow = Steps::new(&ALGORITHM, &given);
        for (tenths, p) in [
            // Between 1 and 1 + delta nothing changes.
            (12, 0.0),
            // + 2 / 16.
            (20, 0.125),
            (10, 0.125),
            // - 1 / (16 0.8).
            (8, 0.046_875),
            // + 4 / 16.
            (40, 0.296_875),
            // - 1 / (16 0.5).
            (5, 0.171_875),
            // - 1 / (16 0.1) would make it negative.
            (1, 0.0),
            (20, 0.125),
            (0, 0.0),
        ] {
            for _ in 0..tenths {
                yellow.arrive(1, 1000);
            }
            yellow.wake();
            assert!((yellow.probe("p") - p).abs() < 1e-12, "after {tenths}: {}", yellow.probe("p"));
        }
    }

    /// At p = 1 all arrivals are marked. They count as offered load, but not as accepted load.
    #[test]
    fn accepted_excludes_dropped_packets_from_the_load() {
        for (accepted, z) in [(false, 2.0), (true, 0.0)] {
            let mut given = numbers([("gamma", 1.0), ("beta", 1.0), ("d", 1.0), ("freeze_time", 0.01)]);
            given.push(("accepted", Value::Flag(accepted)));
            let mut yellow = Steps::new(&ALGORITHM, &given);
            for _ in 0..2 {
                for _ in 0..20 {
                    yellow.arrive(1, 1000);
                }
                yellow.wake();
            }
            assert_eq!(yellow.probe("z"), z, "accepted {accepted}");
        }
    }

    /// A step per 0.1 s: d z from a load of 1.25 on and -d / z below 1, with d = 1/16. At 20 packets f = 0.675, so
    /// 1012.5 of 1000 packets/s are a load of 1.5. The offered load counts, or the accepted.
    #[test]
    fn fluid_takes_the_steps_as_a_rate() {
        let given = numbers([("q_ref", 10.0), ("gamma", 0.9), ("alpha", 1.5), ("beta", 1.25), ("odlf", 0.5)]);
        let steps = numbers([("delta", 0.25), ("d", 0.0625), ("freeze_time", 0.1)]);
        for accepted in [true, false] {
            let given = [&given[..], &steps[..], &[("accepted", Value::Flag(accepted))]].concat();
            let yellow = fluid(&ALGORITHM, &given, FluidVariant::Printed);
            for (load, p, expected) in [
                (1012.5, 0.5, 0.0625 * 1.5 / 0.1),
                (843.75, 0.5, 0.0625 * 1.25 / 0.1),
                (843.0, 0.5, 0.0),
                (675.0, 0.5, 0.0),
                (337.5, 0.5, -0.0625 / 0.5 / 0.1),
                (1012.5, 1.0, 0.0),
                (337.5, 0.0, 0.0),
            ] {
                let other = 5000.0;
                let (load, accepted) = if accepted { (other, load) } else { (load, other) };
                let [dp] = derivatives(&*yellow, [p], p, &Inputs { q: 20.0, load, accepted, ..INPUTS });
                assert!((dp - expected).abs() < 1e-9, "{dp} at {load}, {accepted}");
            }
            assert_eq!(fluid_probes(&*yellow, &[0.5]), [("p", 0.5)]);
        }
    }

    /// The queue control function of an empty queue would be 0 / 0.
    #[test]
    fn target_of_zero_is_refused() {
        let link = crate::Link { capacity: bentpipe_units::Rate::from_bps(8_000_000), mean_packet: 1000.0 };
        let given = |name: &str| (name == "q_ref").then_some(Value::Number(0.0));
        let error = Values::resolve(PARAMS, &link, &given).unwrap_err();
        assert_eq!(error.name, "q_ref");
    }
}
