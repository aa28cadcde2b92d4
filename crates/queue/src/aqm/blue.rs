//! BLUE: one marking probability, adapted by overflow and idleness only.
//!
//! Feng, Shin, Kandlur & Saha 2002, figure 1. When the queue is longer than `L` packets, or drops one because it is full:
//! `p += d1`; when the link is idle: `p -= d2`; each only if `freeze_time` has passed since the last change. Each
//! arrival at the mark point is marked with probability `p`. Neither an average nor the queue length enters `p`, which
//! settles where the queue is seldom long and the link seldom idle.
//!
//! *Departures:* an idle link counts as one event per `freeze_time`, not as one event in total: otherwise a high `p`
//! would remain after an hour without packets. Marks apply at the mark point and lengths are taken at the watched
//! queue, wherever these are.
//!
//! *In a satellite gateway:* with the paper's steps it reaches 16 of 20 Mbit/s on the 2007 gateway: `p` falls ten times
//! more slowly than it rises, so the link is idle for long after each queue. With `d2 = d1` it reaches about 18. `p`
//! takes seconds to follow a changing load (from 0 to 1/10 at `d1 = 0.0025` in 4 s, back in 40 s), however short the
//! feedback from a mark ahead of the PEP is. Good if many sessions keep the load steady. If whole terminals come and
//! go, or the capacity fades, the queue stays at `L` or is empty for as long. Set `max_th`: a transmit queue without
//! limit never overflows, and then only `max_th` raises `p`.

use std::any::Any;

use bentpipe_units::{Duration, Instant};

use crate::descriptor::{Algorithm, Placement};
use crate::fluid::{FluidConfig, FluidModel, Inputs};
use crate::{Aqm, Context, Packet, Param, Range, Tune, Unit, Values, Verdict};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "blue",
    title: "BLUE",
    source: "Feng, Shin, Kandlur & Saha 2002",
    params: PARAMS,
    presets: &[],
    placement: Placement::Anywhere,
    build: |values| Ok(Box::new(Blue::new(values))),
    fluid: Some(|values, given| Ok(Box::new(BlueFluid::new(values, given)))),
};

const PARAMS: &[Param] = &[
    Param::number("d1", Unit::One, 0.0025, Range::above(0.0, 1.0))
        .doc("Step by which a long or full queue raises `p`")
        .origin("Feng et al. 2002, simulations")
        .tune(Tune::Log(0.0002, 0.02)),
    Param::number("d2", Unit::One, 0.00025, Range::above(0.0, 1.0))
        .doc("Step by which an idle link lowers `p`")
        .origin("Feng et al. 2002, simulations: a tenth of `d1`")
        .tune(Tune::Log(0.00002, 0.02)),
    Param::number("freeze_time", Unit::Seconds, 0.1, Range::between(0.000_001, 60.0))
        .doc("Minimum time between two changes of `p`")
        .origin("Feng et al. 2002, simulations")
        .tune(Tune::Log(0.01, 0.5)),
    Param::from_link("max_th", Unit::Packets, Range::between(0.0, 1e9), |link| link.packets_in(0.066))
        .default_doc("66 ms of the link's capacity")
        .doc("Queue length above which the queue counts as full")
        .symbol("L")
        .origin("RED's default upper threshold, for comparison")
        .tune(Tune::Around(0.2, 4.0)),
];

/// BLUE's state.
#[derive(Debug)]
pub struct Blue {
    d1: f64,
    d2: f64,
    freeze: Duration,
    max_th: f64,
    p: f64,
    /// Time from which on the probability may change again.
    thawed: Instant,
}

impl Blue {
    fn new(v: &Values) -> Self {
        Self {
            d1: v.number("d1"),
            d2: v.number("d2"),
            freeze: Duration::from_secs_f64(v.number("freeze_time")).max(Duration::from_nanos(1)),
            max_th: v.number("max_th"),
            p: 0.0,
            thawed: Instant::ZERO,
        }
    }

    fn full(&mut self, now: Instant) {
        if now >= self.thawed {
            self.p = (self.p + self.d1).min(1.0);
            self.thawed = now + self.freeze;
        }
    }

    /// The link has been idle since `since`: one change at that time, or as soon as one is allowed, and one per
    /// `freeze_time` from then on.
    fn idle(&mut self, since: Instant, now: Instant) {
        let first = since.max(self.thawed);
        if now < first {
            return;
        }
        let more = (now - first).as_nanos() / self.freeze.as_nanos();
        self.p = (self.p - self.d2 * (more + 1) as f64).max(0.0);
        self.thawed = first + self.freeze.times(more + 1);
    }

    fn look(&mut self, cx: &Context<'_>) {
        match cx.queue.idle_since {
            Some(since) => self.idle(since, cx.now),
            None if f64::from(cx.queue.packets) > self.max_th => self.full(cx.now),
            None => {}
        }
    }
}

impl Aqm for Blue {
    fn arrive(&mut self, _pkt: &Packet, cx: &mut Context<'_>) -> Verdict {
        self.look(cx);
        if cx.rng.uniform() < self.p { Verdict::Mark } else { Verdict::Pass }
    }

    fn enqueued(&mut self, _pkt: &Packet, cx: &mut Context<'_>) {
        self.look(cx);
    }

    fn overflowed(&mut self, _pkt: &Packet, cx: &mut Context<'_>) {
        self.full(cx.now);
    }

    fn resume(&mut self, previous: &mut dyn Any) -> bool {
        let Some(was) = previous.downcast_mut::<Self>() else { return false };
        self.p = was.p;
        self.thawed = was.thawed;
        true
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("p", self.p);
    }
}

/// BLUE as a fluid: while more than `L` packets wait, or as many as the queue may hold, there is a step of `d1` per
/// `freeze_time` plus the time until the next check, which each arrival and each packet entering the queue makes:
/// `dp/dt = d1 / (freeze_time + 1 / 2λ)`; while the link is idle for the share `u` of the time, one of `-d2` per
/// `freeze_time` plus the time until it is idle next:
///
/// ```text
/// dp/dt = -d2 / (freeze_time + (1 - u) / (u μ))
/// ```
///
/// Derived here. A link that sends `μ` packets per second and is idle for the share `u` of the time has busy periods of
/// `1 / (u μ)`, as an M/D/1 queue, and `p` becomes free to change within one in the share `1 - u` of the cases. Both
/// delays are small compared with `freeze_time` unless hardly anything arrives or the link is hardly ever idle.
struct BlueFluid {
    d1: f64,
    d2: f64,
    freeze: f64,
    full: f64,
}

impl BlueFluid {
    fn new(v: &Values, given: &FluidConfig) -> Self {
        Self {
            d1: v.number("d1"),
            d2: v.number("d2"),
            freeze: v.number("freeze_time"),
            // A queue that is full to the last packet drops arrivals.
            full: v.number("max_th").min(given.limit - 1.0),
        }
    }
}

impl FluidModel for BlueFluid {
    fn derivatives(&self, x: &[f64], _p: f64, inputs: &Inputs, dx: &mut [f64]) {
        let idle = inputs.idle();
        let up = if inputs.q > self.full && inputs.offered > 0.0 {
            self.d1 / (self.freeze + 0.5 / inputs.offered)
        } else {
            0.0
        };
        let down =
            if idle > 0.0 { self.d2 / (self.freeze + (1.0 - idle) / (idle * inputs.capacity)) } else { 0.0 };
        dx[0] = inputs.within(x[0], up - down, 0.0, 1.0);
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

    fn blue() -> Steps {
        let given = [("d1", 0.25), ("d2", 0.0625), ("freeze_time", 0.1), ("max_th", 10.0)];
        Steps::new(&ALGORITHM, &given.map(|(name, x)| (name, Value::Number(x))))
    }

    /// Worked out by hand with d1 = 1/4, d2 = 1/16, 100 ms and L = 10. Columns: time [ms]; queue found by the arrival,
    /// or time since which the link is idle [ms]; p.
    #[test]
    fn arrivals_follow_the_printed_listing() {
        let mut blue = blue();
        for (ms, queue, p) in [
            // Ten do not exceed L.
            (200, Ok(10), 0.0),
            (200, Ok(11), 0.25),
            // Frozen until 300.
            (299, Ok(50), 0.25),
            (300, Ok(11), 0.5),
            (450, Ok(0), 0.5),
            // The link became idle at 460, the change before was at 300: a step at 460.
            (470, Err(460), 0.4375),
            // Further ones at 560, 660 and 760.
            (770, Err(460), 0.25),
            // Nothing was sent in between: no event until 860.
            (859, Err(460), 0.25),
            (860, Err(460), 0.1875),
            // An idle hour ends at 0.
            (3_600_000, Err(460), 0.0),
        ] {
            blue.state.packets = queue.unwrap_or(0);
            blue.state.idle_since = queue.err().map(|ms: u64| Instant::ZERO + Duration::from_millis(ms));
            blue.arrive(1000 * ms, 1000);
            assert_eq!(blue.probe("p"), p, "at {ms} ms");
        }
    }

    /// A queue that drops a packet is full, however short it is; two drops at a time are one event.
    #[test]
    fn overflow_raises_the_probability() {
        let mut blue = blue();
        blue.state.idle_since = None;
        for (ms, p) in [(1, 0.25), (1, 0.25), (100, 0.25), (101, 0.5)] {
            blue.overflow(1000 * ms, 1000);
            assert_eq!(blue.probe("p"), p, "at {ms} ms");
        }
    }

    /// A queue that grows between two arrivals at the mark point is noticed when a packet enters it; and a quarter of
    /// 10,000 packets are marked at p = 1/4, within five standard errors of 43.
    #[test]
    fn marks_with_its_probability() {
        let mut blue = blue();
        (blue.state.idle_since, blue.state.packets) = (None, 11);
        blue.enqueue(1, 1000);
        assert_eq!(blue.probe("p"), 0.25);
        let marks = (0..10_000).filter(|us| blue.arrive(*us, 1000) == Verdict::Mark).count();
        assert!((2283..=2717).contains(&marks), "{marks}");
    }

    /// A queue above 10 raises p by 1/4 per 0.1 s and the half interval of arrivals, 0.5 ms: 0.25 / 0.1005 per second. A link
    /// that is idle for 0.4 of the time, as 600 of 1000 packets/s leave, has busy periods of 2.5 ms, in which it is for 0.6 of the time:
    /// 0.0625 / 0.1015 per second down. Both at once give the difference. A limit below `max_th` takes its place, less a packet.
    #[test]
    fn fluid_rises_with_a_long_queue_and_falls_with_idle_time() {
        let given =
            [("d1", 0.25), ("d2", 0.0625), ("freeze_time", 0.1)].map(|(name, x)| (name, Value::Number(x)));
        let of = |max_th| {
            let given = [&given[..], &[("max_th", Value::Number(max_th))]].concat();
            fluid(&ALGORITHM, &given, FluidVariant::Printed)
        };
        let (blue, limited) = (of(10.0), of(2000.0));
        let (up, down) = (0.25 / 0.1005, 0.0625 / 0.1015);
        for (blue, q, offered, output, p, expected) in [
            (&blue, 10.0, 1000.0, 1000.0, 0.5, 0.0),
            (&blue, 11.0, 1000.0, 1000.0, 0.5, up),
            (&blue, 11.0, 0.0, 1000.0, 0.5, 0.0),
            (&blue, 0.0, 1000.0, 600.0, 0.5, -down),
            (&blue, 11.0, 1000.0, 600.0, 0.5, up - down),
            (&blue, 11.0, 1000.0, 1000.0, 1.0, 0.0),
            (&blue, 0.0, 1000.0, 600.0, 0.0, 0.0),
            (&limited, 999.0, 1000.0, 1000.0, 0.5, 0.0),
            (&limited, 999.5, 1000.0, 1000.0, 0.5, up),
        ] {
            let [dp] = derivatives(&**blue, [p], p, &Inputs { q, offered, output, ..INPUTS });
            assert!((dp - expected).abs() < 1e-12, "{dp} at {q} packets, {offered} offered, {output} sent");
        }
        assert_eq!(fluid_probes(&*blue, &[0.5]), [("p", 0.5)]);
    }
}
