//! AAQM, adaptive AQM: adapts the marking probability to the ratio of arrivals to departures.
//!
//! Rahmani, Åhlund & Kanter 2011, section 4. Arriving packets, `a`, and departing packets, `d`, are counted over an
//! interval `T`; at its end `rho = a / d`. `rho > u_high`: `p += p1`; `rho < u_low`: `p -= p2`; then both counts
//! restart at 0. Each arrival at the mark point is marked with probability `p`.
//!
//! *Departures:* packets that could have departed while the link was idle count as departed: `d` grows by the idle time
//! in mean packets. While the link is busy this is the printed ratio; without it a light load, whose packets all
//! depart, has a ratio near 1 like an overload, and is marked whenever two packets more arrive than depart in an
//! interval. So `rho` is the link's load, and both bounds lie below 1. `a` counts the packets that are accepted at the
//! mark point: otherwise packets dropped there would raise `p` further. If nothing departed although the link was never
//! idle, any arrival is an overload, and no arrival means `rho = 0`.
//!
//! *In a satellite gateway:* it reads only a load, not a queue length; the load varies from one interval to the next,
//! and the steps do not depend on its distance from the bounds. So `p` wanders around the required value: on the 2007
//! gateway the defaults reach 17.0 of 20 Mbit/s with a mean queue of 22 packets, where VRC reaches 19.8. Keep `p1` and
//! `p2` equal: with `p2` larger by half, the queue of that gateway fills until the PEP's buffers stop it. `u_high` has
//! to be below 1, otherwise a standing queue causes no marks. A rain fade is noticed at once, because departures fall.

use std::any::Any;

use bentpipe_units::{Duration, Instant};

use crate::descriptor::{Algorithm, Placement};
use crate::fluid::{FluidModel, Inputs};
use crate::{Aqm, Context, Packet, Param, ParamError, Range, Tune, Unit, Values, Verdict};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "aaqm",
    title: "Adaptive AQM by arrivals and departures",
    source: "Rahmani, Åhlund & Kanter 2011, section 4",
    params: PARAMS,
    presets: &[],
    placement: Placement::Anywhere,
    build: |values| Ok(Box::new(Aaqm::new(values)?)),
    fluid: Some(|values, _| {
        Ok(Box::new(AaqmFluid { rule: Aaqm::new(values)?, interval: values.number("interval") }))
    }),
};

const PARAMS: &[Param] = &[
    Param::from_link("interval", Unit::Seconds, Range::between(0.000_001, 60.0), |link| {
        (20.0 / link.packets_in(1.0)).max(0.02)
    })
    .default_doc("20 ms, or the time of 20 packets if that is longer")
    .doc("Time over which packets are counted")
    .symbol("T")
    .origin("found by search on the 2007 gateway, within Rahmani et al.'s 10 to 90 ms")
    .tune(Tune::Around(0.5, 4.5)),
    Param::number("u_low", Unit::One, 0.98, Range::between(0.0, 1000.0))
        .doc("Ratio of arrivals to departures below which `p` falls")
        .origin("found by search on the 2007 gateway")
        .tune(Tune::Linear(0.8, 1.0)),
    Param::number("u_high", Unit::One, 0.98, Range::above(0.0, 1000.0))
        .doc("Ratio of arrivals to departures above which `p` grows")
        .origin("found by search on the 2007 gateway")
        .tune(Tune::Linear(0.9, 1.1)),
    Param::number("p1", Unit::One, 0.001, Range::above(0.0, 1.0))
        .doc("Step by which `p` grows")
        .origin("found by search on the 2007 gateway")
        .tune(Tune::Log(0.0001, 0.1)),
    Param::number("p2", Unit::One, 0.001, Range::above(0.0, 1.0))
        .doc("Step by which `p` falls")
        .origin("found by search on the 2007 gateway")
        .tune(Tune::Log(0.0001, 0.1)),
    Param::from_link("mean_packet", Unit::Bytes, Range::above(0.0, 65535.0), |link| link.mean_packet)
        .default_doc("the link's mean packet")
        .doc("Mean length of a packet, to count idle time in packets")
        .origin("the link"),
];

/// AAQM's state.
#[derive(Debug, Default)]
pub struct Aaqm {
    every: Duration,
    u_low: f64,
    u_high: f64,
    p1: f64,
    p2: f64,
    mean_packet: f64,
    /// a: packets that arrived since the last update.
    arrived: u64,
    /// d: packets that departed since the last update.
    departed: u64,
    /// Idle time of the link since the last update.
    idle: Duration,
    /// Time up to which the idle time is counted.
    idle_until: Instant,
    rho: f64,
    p: f64,
    next: Instant,
}

impl Aaqm {
    /// # Errors
    /// If `u_low` exceeds `u_high`.
    pub fn new(v: &Values) -> Result<Self, ParamError> {
        let (u_low, u_high) = (v.number("u_low"), v.number("u_high"));
        if u_low > u_high {
            let problem = format!("found {u_low}, but it must not exceed u_high, which is {u_high}");
            return Err(ParamError { name: "u_low", problem });
        }
        let every = Duration::from_secs_f64(v.number("interval"));
        Ok(Self {
            every,
            u_low,
            u_high,
            p1: v.number("p1"),
            p2: v.number("p2"),
            mean_packet: v.number("mean_packet"),
            next: Instant::ZERO + every,
            ..Self::default()
        })
    }

    /// Adds the idle time of the link up to now.
    fn add_idle_time(&mut self, cx: &Context<'_>) {
        if let Some(since) = cx.queue.idle_since {
            self.idle += cx.now.since(since.max(self.idle_until));
            self.idle_until = cx.now;
        }
    }
}

impl Aqm for Aaqm {
    fn arrive(&mut self, _pkt: &Packet, cx: &mut Context<'_>) -> Verdict {
        if cx.rng.uniform() < self.p { Verdict::Mark } else { Verdict::Pass }
    }

    fn admit(&mut self, _pkt: &Packet, _cx: &mut Context<'_>) {
        self.arrived += 1;
    }

    fn enqueued(&mut self, _pkt: &Packet, cx: &mut Context<'_>) {
        self.add_idle_time(cx);
    }

    fn depart(&mut self, _pkt: &Packet, _cx: &mut Context<'_>) -> Verdict {
        self.departed += 1;
        Verdict::Pass
    }

    fn wake_at(&self) -> Option<Instant> {
        Some(self.next)
    }

    fn wake(&mut self, cx: &mut Context<'_>) {
        self.add_idle_time(cx);
        let possible = self.idle.as_secs_f64() * cx.queue.capacity.bytes_per_sec() / self.mean_packet;
        let departed = self.departed as f64 + possible;
        self.rho = match self.arrived {
            0 => 0.0,
            // No departure: an overload with a finite ratio.
            a => a as f64 / departed.max(1e-3),
        };
        if self.rho > self.u_high {
            self.p = (self.p + self.p1).min(1.0);
        } else if self.rho < self.u_low {
            self.p = (self.p - self.p2).max(0.0);
        }
        (self.arrived, self.departed, self.idle) = (0, 0, Duration::ZERO);
        self.next += self.every;
    }

    fn resume(&mut self, previous: &mut dyn Any) -> bool {
        let Some(was) = previous.downcast_mut::<Self>() else { return false };
        self.arrived = was.arrived;
        self.departed = was.departed;
        self.idle = was.idle;
        self.idle_until = was.idle_until;
        self.rho = was.rho;
        self.p = was.p;
        self.next = was.next;
        true
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("p", self.p);
        out("rho", self.rho);
    }
}

/// AAQM as a fluid: actual and possible departures together are the capacity `μ`, so `rho` is the accepted load over
/// `μ`, and there is a step per interval: `dp/dt = p1 / T` for `rho > u_high`, `-p2 / T` for `rho < u_low`. Derived
/// here. The scatter of packet counts is not modelled: near a bound the algorithm steps up and down alternately, or
/// beyond it if the other bound is far, and the fluid stays on it.
struct AaqmFluid {
    rule: Aaqm,
    interval: f64,
}

impl FluidModel for AaqmFluid {
    fn derivatives(&self, x: &[f64], _p: f64, inputs: &Inputs, dx: &mut [f64]) {
        let step = if inputs.accepted > self.rule.u_high * inputs.capacity {
            self.rule.p1
        } else if inputs.accepted < self.rule.u_low * inputs.capacity {
            -self.rule.p2
        } else {
            0.0
        };
        dx[0] = inputs.within(x[0], step / self.interval, 0.0, 1.0);
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

    fn aaqm() -> Steps {
        let given = [("interval", 0.01), ("u_low", 0.75), ("u_high", 1.0), ("p1", 0.25), ("p2", 0.125)];
        Steps::new(&ALGORITHM, &given.map(|(name, x)| (name, Value::Number(x))))
    }

    /// Worked out by hand on a link that is always busy, with u_low = 3/4, u_high = 1, p1 = 1/4, p2 = 1/8. Columns:
    /// arrivals and departures in an interval, ratio and p after it.
    #[test]
    fn intervals_follow_the_listing() {
        let mut aaqm = aaqm();
        aaqm.state.idle_since = None;
        for (a, d, rho, p) in [
            (12, 10, 1.2, 0.25),
            // Between the bounds.
            (10, 10, 1.0, 0.25),
            (6, 8, 0.75, 0.25),
            (5, 10, 0.5, 0.125),
            // An arrival without departures: an overload.
            (1, 0, 1000.0, 0.375),
            // Neither: no load.
            (0, 0, 0.0, 0.25),
            (0, 3, 0.0, 0.125),
            (0, 3, 0.0, 0.0),
            (0, 3, 0.0, 0.0),
        ] {
            let mut accepted = 0;
            while accepted < a {
                accepted += u32::from(aaqm.arrive(1, 1000) == Verdict::Pass);
            }
            for _ in 0..d {
                aaqm.depart(2, 1, 1000);
            }
            aaqm.wake();
            assert!((aaqm.probe("rho") - rho).abs() < 1e-12, "{a} / {d} is {}", aaqm.probe("rho"));
            assert_eq!(aaqm.probe("p"), p, "after {a} / {d}");
        }
    }

    /// One byte per microsecond: a link that is idle from 4 ms to the end of the interval at 10 ms could have sent 6
    /// packets of 1000 bytes. In the next interval it is idle up to 13 ms, when a packet arrives, and from 18 ms on:
    /// 3 + 2 packets.
    #[test]
    fn idle_time_counts_as_departures() {
        let mut aaqm = aaqm();
        let since = |ms| Some(Instant::ZERO + Duration::from_millis(ms));
        let fill = |aaqm: &mut Steps, a: u32| {
            for us in 0..a {
                aaqm.arrive(u64::from(us), 1000);
                aaqm.depart(u64::from(us), 0, 1000);
            }
        };
        aaqm.state.idle_since = None;
        fill(&mut aaqm, 4);
        aaqm.state.idle_since = since(4);
        aaqm.wake();
        assert!((aaqm.probe("rho") - 0.4).abs() < 1e-12);
        aaqm.enqueue(13_000, 1000);
        aaqm.state.idle_since = None;
        fill(&mut aaqm, 5);
        aaqm.state.idle_since = since(18);
        aaqm.wake();
        assert!((aaqm.probe("rho") - 0.5).abs() < 1e-12);
    }

    /// One overload: p = p1 = 1/4, which marks a quarter of 10,000 arrivals, within five standard errors of 43.
    #[test]
    fn marks_with_its_probability() {
        let mut aaqm = aaqm();
        aaqm.state.idle_since = None;
        aaqm.arrive(1, 1000);
        aaqm.wake();
        let marks = (0..10_000).filter(|us| aaqm.arrive(10_001 + us, 1000) == Verdict::Mark).count();
        assert!((2283..=2717).contains(&marks), "{marks}");
    }

    /// Per interval of 10 ms p rises by 1/4 above 0.9 of C = 1000 packets/s, and falls by 1/8 below 0.75.
    #[test]
    fn fluid_takes_the_steps_as_a_rate() {
        let given = [("interval", 0.01), ("u_low", 0.75), ("u_high", 0.9), ("p1", 0.25), ("p2", 0.125)];
        let aaqm = fluid(&ALGORITHM, &given.map(|(name, x)| (name, Value::Number(x))), FluidVariant::Printed);
        for (accepted, p, expected) in [
            (901.0, 0.5, 25.0),
            (900.0, 0.5, 0.0),
            (750.0, 0.5, 0.0),
            (749.0, 0.5, -12.5),
            (901.0, 1.0, 0.0),
            (749.0, 0.0, 0.0),
        ] {
            assert_eq!(
                derivatives(&*aaqm, [p], p, &Inputs { accepted, ..INPUTS }),
                [expected],
                "at {accepted}"
            );
        }
        assert_eq!(fluid_probes(&*aaqm, &[0.5]), [("p", 0.5)]);
    }
}
