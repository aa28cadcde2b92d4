//! BLUE: one marking probability, moved by overflow and by idleness alone.
//!
//! Feng, Shin, Kandlur & Saha 2002, figure 1. When the queue is longer than `L` packets, or loses one for want of
//! room: `p += d1`; when the link has nothing to send: `p -= d2`; either only where `freeze_time` or more has
//! passed since the last change. Each arrival at the mark point is marked with probability `p`. No average, no queue
//! length in the law: `p` settles where the queue is seldom long and the link seldom idle.
//!
//! *Departures:* the idle link is one event for every `freeze_time` that it stays idle, not one in all: else `p`,
//! once high, would hold for an hour in which nothing is sent. Marks follow at the mark point and lengths are taken
//! at the watched queue, wherever the two stand.
//!
//! *In a satellite gateway:* with the paper's steps it uses 16 of the 2007 gateway's 20 Mbit/s: it falls ten times
//! more slowly than it rises, so the link is idle for long after each queue. With `d2 = d1` it is about 18. `p` needs
//! seconds to follow a load that changes (from 0 to 1/10 at `d1 = 0.0025` in 4 s, back in 40 s), however short the
//! feedback from a mark ahead of the PEP to its senders is. Good where many sessions keep the load steady. Where
//! whole terminals come and go, or the capacity fades, the queue stands at `L` or runs empty for as long. Set
//! `max_th`: a transmit queue with room for everything never overflows, and then nothing but that would
//! raise `p`.

use bentpipe_units::{Duration, Instant};

use crate::descriptor::{Algorithm, Placement};
use crate::fluid::{Arrivals, FluidConfig, FluidModel, Inputs};
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
    Param::number("d1", Unit::One, 0.0025, Range::above(0.0, 1.0), "What a long or full queue adds to `p`")
        .origin("Feng et al. 2002, simulations")
        .tune(Tune::Log(0.0002, 0.02)),
    Param::number("d2", Unit::One, 0.00025, Range::above(0.0, 1.0), "What an idle link takes off `p`")
        .origin("Feng et al. 2002, simulations: a tenth of `d1`")
        .tune(Tune::Log(0.00002, 0.02)),
    Param::number(
        "freeze_time",
        Unit::Seconds,
        0.1,
        Range::between(0.000_001, 60.0),
        "Least time between two changes of `p`",
    )
    .origin("Feng et al. 2002, simulations")
    .tune(Tune::Log(0.01, 0.5)),
    Param::from_link(
        "max_th",
        Unit::Packets,
        |link| link.packets_in(0.066),
        "66 ms of the link's capacity",
        Range::between(0.0, 1e9),
        "Queue length above which the queue counts as full",
    )
    .symbol("L")
    .origin("RED's default upper threshold, so that the two can be compared")
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
    /// From when on the probability may change again.
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

    /// The link has been idle since `since`: a change when that began, or as soon as one was possible, and one after
    /// each `freeze_time` from then on.
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

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("p", self.p);
    }
}

/// BLUE as a fluid: while more than `L` packets wait, or as many as the queue may hold, there is a step of `d1` for every
/// `freeze_time` and the time until the next look, with each arrival and each packet that enters the queue: `dp/dt = d1 /
/// (freeze_time + 1 / 2λ)`; while the link idles for the share `u` of the time, one of `-d2` for every `freeze_time` and the time
/// until it idles next:
///
///     dp/dt = -d2 / (freeze_time + (1 - u) / (u μ))
///
/// Derived here. A link that sends `μ` packets a second and idles for the share `u` of the time is busy for `1 / (u μ)` at a
/// stretch, as in an M/D/1 queue, and a thawed `p` meets it busy in the share `1 - u` of the cases. Both waits are small
/// beside `freeze_time` unless hardly anything arrives or the link hardly idles.
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
            // What is full to the last packet loses what comes.
            full: v.number("max_th").min(given.limit - 1.0),
        }
    }
}

impl FluidModel for BlueFluid {
    fn states(&self) -> usize {
        1
    }

    fn mark(&self, x: &[f64], _arrivals: &Arrivals) -> f64 {
        x[0].clamp(0.0, 1.0)
    }

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
    use super::super::steps::Steps;
    use super::*;
    use crate::Value;

    fn blue() -> Steps {
        let given = [("d1", 0.25), ("d2", 0.0625), ("freeze_time", 0.1), ("max_th", 10.0)];
        Steps::new(&ALGORITHM, &given.map(|(name, x)| (name, Value::Number(x))))
    }

    /// Worked out by hand with d1 = 1/4, d2 = 1/16, 100 ms and L = 10. The queue as each arrival finds it, or since
    /// when the link is idle [ms], and p.
    #[test]
    fn steps_of_the_printed_listing() {
        let mut blue = blue();
        for (ms, queue, p) in [
            // Ten do not exceed L.
            (200, Ok(10), 0.0),
            (200, Ok(11), 0.25),
            // Frozen until 300.
            (299, Ok(50), 0.25),
            (300, Ok(11), 0.5),
            (450, Ok(0), 0.5),
            // The link fell idle at 460, the change before was at 300: a step at 460.
            (470, Err(460), 0.4375),
            // And one at 560, 660 and 760.
            (770, Err(460), 0.25),
            // Nothing was sent in between: no event until 860.
            (859, Err(460), 0.25),
            (860, Err(460), 0.1875),
            // An hour of idleness ends at 0.
            (3_600_000, Err(460), 0.0),
        ] {
            blue.state.packets = queue.unwrap_or(0);
            blue.state.idle_since = queue.err().map(|ms: u64| Instant::ZERO + Duration::from_millis(ms));
            blue.arrive(1000 * ms, 1000);
            assert_eq!(blue.probe("p"), p, "at {ms} ms");
        }
    }

    /// A queue that loses a packet is full, however short it is; two losses at a time are one event.
    #[test]
    fn an_overflow_raises_the_probability() {
        let mut blue = blue();
        blue.state.idle_since = None;
        for (ms, p) in [(1, 0.25), (1, 0.25), (100, 0.25), (101, 0.5)] {
            blue.overflow(1000 * ms, 1000);
            assert_eq!(blue.probe("p"), p, "at {ms} ms");
        }
    }

    /// A queue that grows between two arrivals at the mark point is seen when a packet enters it; and a quarter of 10 000
    /// packets are marked at p = 1/4, within five standard errors of 43.
    #[test]
    fn marks_with_its_probability() {
        let mut blue = blue();
        (blue.state.idle_since, blue.state.packets) = (None, 11);
        blue.enqueue(1, 1000);
        assert_eq!(blue.probe("p"), 0.25);
        let marks = (0..10_000).filter(|us| blue.arrive(*us, 1000) == Verdict::Mark).count();
        assert!((2283..=2717).contains(&marks), "{marks}");
    }
}
