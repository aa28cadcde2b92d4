//! Yellow: a probability moved by the load, measured against a capacity that follows the queue.
//!
//! Long, Zhao, Guan & Yang 2005; [B07] 2.2.3. The load `z = offered / c'` is measured over `freeze_time`, against a
//! virtual capacity `c' = f(q) c` of the link's `c`. `f` is a hyperbola on either side of `q_ref`, where it is
//! `gamma`:
//!
//!     f(q) = gamma beta q_ref / ((beta - 1) q + q_ref)                  0 <= q <= q_ref
//!     f(q) = max(ODLF, gamma alpha q_ref / ((alpha - 1) q + q_ref))     q > q_ref
//!
//! so an empty queue asks for `gamma beta c`, and a long one leaves part of the link to its own draining, all but
//! `ODLF`. Then `z >= 1 + delta`: `p += d z`; `z < 1`: `p -= d / z`, and `p = 0` where nothing was offered. Each
//! arrival at the mark point is marked with probability `p`.
//!
//! *Departures:* with `accepted`, packets that are discarded at the mark point are no load. Where marks drop nothing
//! both ways are one; where they drop, the offered load would have to stay near `c` *including* what is dropped, and
//! the link would stay idle by that share. The hyperbolas are ERICA+'s queue control function (Vandalore, Jain, Goyal
//! & Fahmy), and the values of `alpha`, `beta` and `ODLF` (there `a`, `b` and `QDLF`) are taken from there, for
//! Yellow's own are not to be had.
//!
//! *In a satellite gateway:* it needs arrivals, and the length of the queue behind the PEP once in a `freeze_time`.
//! It reacts to load before a queue has formed, but its steps hardly depend on how far off the load is, so the queue
//! swings: on the 2007 gateway 18.9 of 20 Mbit/s are used, with a queue of 73 packets on average and of 250 one time
//! in twenty. VRC, which measures the same two things and corrects in proportion, does better there. After a pause
//! without any arrival `p` begins at 0 again.

use bentpipe_units::{Duration, Instant};

use crate::descriptor::{Algorithm, Placement};
use crate::fluid::{Arrivals, FluidModel, Inputs};
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
    Param::from_link(
        "q_ref",
        Unit::Packets,
        |link| link.packets_in(0.033),
        "33 ms of the link's capacity, at least one packet",
        Range::above(0.0, 1e9),
        "Queue length that is aimed at",
    )
    .origin("the delay that PI and RED aim at by default")
    .tune(Tune::Around(0.1, 4.0)),
    Param::number(
        "gamma",
        Unit::One,
        0.98,
        Range::above(0.0, 1.0),
        "Share of the link's capacity that is to be used while the queue is as it should",
    )
    .symbol("γ")
    .origin("AVQ's default utilization")
    .tune(Tune::Linear(0.9, 1.0)),
    Param::number(
        "alpha",
        Unit::One,
        1.15,
        Range::between(1.0, 1000.0),
        "How fast the virtual capacity falls while the queue is too long",
    )
    .symbol("α")
    .origin("ERICA+'s a")
    .tune(Tune::Linear(1.0, 2.0)),
    Param::number(
        "beta",
        Unit::One,
        1.05,
        Range::between(1.0, 1000.0),
        "How far above the share that is to be used the virtual capacity lies while the queue is empty",
    )
    .symbol("β")
    .origin("ERICA+'s b")
    .tune(Tune::Linear(1.0, 1.5)),
    Param::number(
        "odlf",
        Unit::One,
        0.5,
        Range::above(0.0, 1.0),
        "Least share of the capacity that a long queue leaves to arrivals",
    )
    .symbol("ODLF")
    .origin("ERICA+'s QDLF")
    .tune(Tune::Linear(0.2, 0.9)),
    Param::number(
        "delta",
        Unit::One,
        0.0,
        Range::between(0.0, 10.0),
        "How far above 1 the load may be before the probability grows",
    )
    .symbol("δ")
    .origin("found by search on the 2007 gateway")
    .tune(Tune::Linear(0.0, 0.2)),
    Param::number("d", Unit::One, 0.002, Range::above(0.0, 1.0), "Step of the probability at a load of 1")
        .symbol("Δ")
        .origin("found by search on the 2007 gateway")
        .tune(Tune::Log(0.0001, 0.05)),
    Param::from_link(
        "freeze_time",
        Unit::Seconds,
        |link| (20.0 / link.packets_in(1.0)).max(0.05),
        "50 ms, or the time of 20 packets where that is longer",
        Range::between(0.000_001, 60.0),
        "Time over which the load is measured",
    )
    .origin("found by search on the 2007 gateway")
    .tune(Tune::Around(0.2, 5.0)),
    Param::flag(
        "accepted",
        true,
        "Whether the load is what is accepted, or all that arrives; the same where marks drop nothing",
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

    /// What the load `z` adds to the probability; a load of nothing minus infinity: to 0.
    fn step(&self, z: f64) -> f64 {
        if z >= 1.0 + self.delta {
            self.d * z
        } else if z < 1.0 {
            -self.d / z
        } else {
            0.0
        }
    }

    /// The share of the capacity that a queue of `q` packets leaves to arrivals.
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

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("p", self.p);
        out("z", self.z);
    }
}

/// Yellow as a fluid: with the load `z = λ / (f(q) C)`, where `λ` is what is accepted or all that arrives, there is a step in
/// every `freeze_time`: `dp/dt = d z / freeze_time` where `z >= 1 + delta`, `-d / (z freeze_time)` where `z < 1`. Derived here. Not
/// in the law are the age of the load, up to `freeze_time`, and its scatter: near 1 the algorithm steps up and down by turns.
struct YellowFluid {
    rule: Yellow,
}

impl FluidModel for YellowFluid {
    fn states(&self) -> usize {
        1
    }

    fn mark(&self, x: &[f64], _arrivals: &Arrivals) -> f64 {
        x[0].clamp(0.0, 1.0)
    }

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
    use super::super::steps::Steps;
    use super::*;
    use crate::Value;

    fn numbers<const N: usize>(given: [(&'static str, f64); N]) -> Vec<(&'static str, Value)> {
        given.map(|(name, x)| (name, Value::Number(x))).to_vec()
    }

    /// Worked out by hand for q_ref = 10, gamma = 0.9, alpha = 1.5, beta = 1.25, ODLF = 0.5: 0.9 at q_ref from either
    /// side; empty, 0.9 * 1.25; at 5, 11.25 / 11.25; at 20, 13.5 / 20; and at 40, 13.5 / 30 is less than ODLF.
    #[test]
    fn the_queue_control_function() {
        let mut given =
            numbers([("q_ref", 10.0), ("gamma", 0.9), ("alpha", 1.5), ("beta", 1.25), ("odlf", 0.5)]);
        given.push(("accepted", Value::Flag(false)));
        let mut yellow = Steps::new(&ALGORITHM, &given);
        for (q, f) in [(0, 1.125), (5, 1.0), (10, 0.9), (20, 0.675), (40, 0.5), (100_000, 0.5)] {
            yellow.state.packets = q;
            // 50 ms at a byte a microsecond: 50 000 bytes.
            for i in 0..50 {
                yellow.arrive(i, 1000);
            }
            yellow.wake();
            assert!((yellow.probe("z") - 1.0 / f).abs() < 1e-12, "at q {q}: {}", yellow.probe("z"));
        }
    }

    /// Worked out by hand with f = 1 (alpha = beta = gamma = 1), so 10 000 bytes in 10 ms are a load of 1; d = 1/16,
    /// delta = 1/4. Loads, and p after them.
    #[test]
    fn steps_of_the_printed_listing() {
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
            // - 1 / (16 0.1) is more than there is.
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

    /// At p = 1 all arrivals are marked. Where that is a load, it stays one; where only what is accepted is, it is
    /// none.
    #[test]
    fn discarded_packets_are_no_load_where_told() {
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
}
