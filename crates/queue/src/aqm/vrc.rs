//! VRC, virtual rate control: a marking probability in proportion to the excess of the input rate over a virtual
//! target.
//!
//! Lim, Park, Park & Choi 2002; [B07] 2.2.5. Every `T_s`, with the input rate `x` since the previous time, `q` packets
//! in the watched queue and a link of capacity `C`:
//!
//! ```text
//! x_r = C + gamma (q_ref - q)          target rate, which empties or fills the queue
//! dx += beta (x - x_r)                 accumulated excess
//! x_v = x_r - dx                       virtual target rate
//! p   = alpha (x - x_v) / C
//! ```
//!
//! Each arrival at the mark point is marked with probability `p`. The sum `dx` maintains `p` once `x` is on target: a
//! PI controller of the rate, with a target that depends on the queue.
//!
//! *Departures:* rates are shares of `C`, so that `alpha` is dimensionless and independent of the link. `dx` stays
//! between 0 and `C / alpha`, where `dx` alone makes `p` 0 or 1: otherwise an idle hour or an overload would have to be
//! compensated. With `accepted`, the input rate is that of the packets accepted at the mark point; the others do not
//! fill the controlled queue. If marks drop nothing this makes no difference.
//!
//! *In a satellite gateway:* one update per `T_s` and one random number per packet: its cost is negligible. It notices
//! a rising load before the queue does, which suits a mark point ahead of the PEP: on the 2007 gateway it reaches 19.8
//! of 20 Mbit/s with a mean queue of 51 packets for a target of 59. The same defaults keep a dumbbell with a round trip
//! of 560 ms and without a PEP at 19.8 Mbit/s. If the link's capacity changes, `C` follows at once. All flows are
//! treated alike.

use std::any::Any;

use bentpipe_units::{Duration, Instant};

use super::pi::Q_REF;
use crate::descriptor::{Algorithm, Placement};
use crate::fluid::{Arrivals, FluidConfig, FluidModel, Inputs};
use crate::{Aqm, Context, Packet, Param, Range, Tune, Unit, Values, Verdict};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "vrc",
    title: "Virtual rate control",
    source: "Lim, Park, Park & Choi 2002; [B07] 2.2.5",
    params: PARAMS,
    presets: &[],
    placement: Placement::Anywhere,
    build: |values| Ok(Box::new(Vrc::new(values))),
    fluid: Some(|values, given| Ok(Box::new(VrcFluid::new(values, given)))),
};

const PARAMS: &[Param] = &[
    Q_REF,
    Param::number("alpha", Unit::One, 0.3, Range::above(0.0, 1000.0))
        .doc("Probability for an input rate that exceeds the virtual target by the capacity")
        .symbol("α")
        .origin("found by search on the 2007 gateway")
        .tune(Tune::Log(0.01, 2.0)),
    Param::number("beta", Unit::One, 0.03, Range::between(0.0, 1.0))
        .doc("Share of the rate's distance from its target that each update accumulates")
        .symbol("β")
        .origin("found by search on the 2007 gateway")
        .tune(Tune::Log(0.001, 1.0)),
    Param::number("gamma", Unit::One, 2.0, Range::between(0.0, 1e6))
        .doc("Share of the queue's distance from `q_ref` to be corrected per second")
        .symbol("γ")
        .origin("found by search on the 2007 gateway")
        .tune(Tune::Log(0.2, 20.0)),
    Param::from_link("interval", Unit::Seconds, Range::between(0.000_001, 60.0), |link| {
        (20.0 / link.packets_in(1.0)).max(0.02)
    })
    .default_doc("20 ms, or the time of 20 packets if that is longer")
    .doc("Time over which the input rate is measured")
    .symbol("T_s")
    .origin("found by search on the 2007 gateway")
    .tune(Tune::Around(0.2, 5.0)),
    Param::from_link("mean_packet", Unit::Bytes, Range::above(0.0, 65535.0), |link| link.mean_packet)
        .default_doc("the link's mean packet")
        .doc("Mean length of a packet, to convert the queue's packets to bytes")
        .origin("the link"),
    Param::flag(
        "accepted",
        true,
        "Take the accepted packets as the input instead of all arrivals; no difference unless marks drop",
    )
    .origin("found by search on the 2007 gateway")
    .tune(Tune::Each),
];

/// VRC's state. Rates are shares of the capacity.
#[derive(Debug, Default)]
pub struct Vrc {
    q_ref: f64,
    alpha: f64,
    beta: f64,
    gamma: f64,
    every: Duration,
    mean_packet: f64,
    accepted: bool,
    /// Bytes that arrived since the last update.
    arrived: u64,
    dx: f64,
    x: f64,
    p: f64,
    next: Instant,
}

impl Vrc {
    fn new(v: &Values) -> Self {
        let every = Duration::from_secs_f64(v.number("interval"));
        Self {
            q_ref: v.number("q_ref"),
            alpha: v.number("alpha"),
            beta: v.number("beta"),
            gamma: v.number("gamma"),
            every,
            mean_packet: v.number("mean_packet"),
            accepted: v.flag("accepted"),
            next: Instant::ZERO + every,
            ..Self::default()
        }
    }
}

impl Aqm for Vrc {
    fn arrive(&mut self, pkt: &Packet, cx: &mut Context<'_>) -> Verdict {
        if !self.accepted {
            self.arrived += u64::from(pkt.len);
        }
        if cx.rng.uniform() < self.p { Verdict::Mark } else { Verdict::Pass }
    }

    fn admit(&mut self, pkt: &Packet, _cx: &mut Context<'_>) {
        if self.accepted {
            self.arrived += u64::from(pkt.len);
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        Some(self.next)
    }

    fn wake(&mut self, cx: &mut Context<'_>) {
        // A link without capacity counts as one byte per second, so that shares of it are finite.
        let c = cx.queue.capacity.bytes_per_sec().max(1.0);
        self.x = self.arrived as f64 / self.every.as_secs_f64() / c;
        let missing = (self.q_ref - f64::from(cx.queue.packets)) * self.mean_packet / c;
        let x_r = 1.0 + self.gamma * missing;
        self.dx = (self.dx + self.beta * (self.x - x_r)).clamp(0.0, 1.0 / self.alpha);
        let x_v = x_r - self.dx;
        self.p = (self.alpha * (self.x - x_v)).clamp(0.0, 1.0);
        self.arrived = 0;
        self.next += self.every;
    }

    fn resume(&mut self, previous: &mut dyn Any) -> bool {
        let Some(was) = previous.downcast_mut::<Self>() else { return false };
        self.arrived = was.arrived;
        self.dx = was.dx;
        self.x = was.x;
        self.p = was.p;
        self.next = was.next;
        true
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("p", self.p);
        out("x", self.x);
        out("dx", self.dx);
    }
}

/// VRC as a fluid: with rates as shares of `C`, `d(dx)/dt = beta / T_s (x - x_r)` within 0 and `1 / alpha`,
/// `p = alpha (x - x_r + dx)`. The known input rate `x` is a mean over the interval before the last update, on average
/// `T_s` old, so `dx/dt = (rate - x) / T_s`. Derived here. Not modelled: the queue is read only once per `T_s`.
struct VrcFluid {
    rule: Vrc,
    every: f64,
    /// Packets of the link per packet of `mean_packet` bytes.
    packets: f64,
}

impl VrcFluid {
    fn new(v: &Values, given: &FluidConfig) -> Self {
        let packets = v.number("mean_packet") / given.packet;
        Self { rule: Vrc::new(v), every: v.number("interval"), packets }
    }

    /// x_r: target rate.
    fn target(&self, q: f64, capacity: f64) -> f64 {
        1.0 + self.rule.gamma * (self.rule.q_ref - q) * self.packets / capacity.max(f64::MIN_POSITIVE)
    }
}

impl FluidModel for VrcFluid {
    fn states(&self) -> usize {
        2
    }

    fn mark(&self, x: &[f64], arrivals: &Arrivals) -> f64 {
        (self.rule.alpha * (x[0] - self.target(arrivals.q, arrivals.capacity) + x[1])).clamp(0.0, 1.0)
    }

    fn derivatives(&self, x: &[f64], _p: f64, inputs: &Inputs, dx: &mut [f64]) {
        let rate = if self.rule.accepted { inputs.accepted } else { inputs.load };
        dx[0] = (rate / inputs.capacity.max(f64::MIN_POSITIVE) - x[0]) / self.every.max(inputs.resolution);
        let missed = self.rule.beta * (x[0] - self.target(inputs.q, inputs.capacity));
        dx[1] = inputs.within(x[1], missed / self.every, 0.0, 1.0 / self.rule.alpha);
    }

    fn probe(&self, x: &[f64], out: &mut dyn FnMut(&'static str, f64)) {
        out("x", x[0]);
        out("dx", x[1]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::steps::{INPUTS, Steps, derivatives, fluid, fluid_probes};
    use super::*;
    use crate::Value;
    use crate::fluid::FluidVariant;

    fn given(mean_packet: f64, accepted: bool) -> Vec<(&'static str, Value)> {
        let numbers = [("q_ref", 10.0), ("alpha", 0.25), ("beta", 0.5), ("gamma", 50.0), ("interval", 0.01)];
        let numbers = numbers.into_iter().chain([("mean_packet", mean_packet)]);
        let values = numbers.map(|(name, x)| (name, Value::Number(x)));
        values.chain([("accepted", Value::Flag(accepted))]).collect()
    }

    fn vrc(accepted: bool) -> Steps {
        Steps::new(&ALGORITHM, &given(1000.0, accepted))
    }

    /// Worked out by hand, in shares of a capacity of one byte per microsecond: 10 packets of 1000 bytes in 10 ms are x
    /// = 1; a queue 10 packets too short is 10 ms of the link, so with gamma = 50 the target is 1.5. alpha = 1/4, beta
    /// = 1/2.
    #[test]
    fn updates_follow_the_printed_equations() {
        let mut vrc = vrc(false);
        for (arrived, q, dx, p) in [
            // x_r = 1, x = 2: dx = 0.5, x_v = 0.5, p = (2 - 0.5) / 4.
            (20, 10, 0.5, 0.375),
            // On target: dx is unchanged, and p = 0.5 / 4.
            (10, 10, 0.5, 0.125),
            // q = 20: x_r = 0.5, x = 1: dx = 0.75, p = (1 + 0.25) / 4 .
            (10, 20, 0.75, 0.3125),
            // Empty: x_r = 1.5, x = 1: dx = 0.5, x_v = 1, p = 0.
            (10, 0, 0.5, 0.0),
            // No arrivals: dx = 0.5 - 0.75 is limited to 0.
            (0, 0, 0.0, 0.0),
            // x = 10, x_r = 1: dx = 4.5 is limited to 4, and p = (10 + 3) / 4 to 1.
            (100, 10, 4.0, 1.0),
        ] {
            vrc.state.packets = q;
            for _ in 0..arrived {
                vrc.arrive(1, 1000);
            }
            vrc.wake();
            assert!((vrc.probe("dx") - dx).abs() < 1e-12, "dx is {} after {arrived}", vrc.probe("dx"));
            assert!((vrc.probe("p") - p).abs() < 1e-12, "p is {} after {arrived}", vrc.probe("p"));
        }
    }

    /// At p = 1 nothing is accepted, so the accepted input rate is 0.
    #[test]
    fn accepted_excludes_dropped_packets_from_the_input() {
        for (accepted, x) in [(false, 10.0), (true, 0.0)] {
            let mut vrc = vrc(accepted);
            vrc.state.packets = 10;
            for _ in 0..2 {
                for _ in 0..100 {
                    vrc.arrive(1, 1000);
                }
                vrc.wake();
            }
            assert_eq!(vrc.probe("x"), x, "accepted {accepted}");
        }
    }

    /// In shares of C = 1000 packets/s, of packets half as long as the link's: a queue 10 packets too long makes the target
    /// 1 - 50 · 10 · 0.5 / 1000 = 0.75. At x = 1.1 and dx = 0.2, p = 0.25 (1.1 - 0.75 + 0.2). The rate that arrives
    /// is 1.2 and that which is accepted 0.9, and x follows it within 10 ms; dx grows by 0.5 · 0.35 per 10 ms, and stays at its bounds 0 and 4.
    #[test]
    fn fluid_follows_the_equations() {
        for (accepted, dx) in [(true, -20.0), (false, 10.0)] {
            let vrc = fluid(&ALGORITHM, &given(500.0, accepted), FluidVariant::Printed);
            let arrivals = Arrivals { q: 20.0, load: 1200.0, capacity: 1000.0 };
            assert!((vrc.mark(&[1.1, 0.2], &arrivals) - 0.1375).abs() < 1e-12);
            assert_eq!((vrc.mark(&[9.0, 0.2], &arrivals), vrc.mark(&[0.1, 0.2], &arrivals)), (1.0, 0.0));
            let inputs = Inputs { q: 20.0, load: 1200.0, accepted: 900.0, ..INPUTS };
            let found = derivatives(&*vrc, [1.1, 0.2], 0.1, &inputs);
            assert!((found[0] - dx).abs() < 1e-9 && (found[1] - 17.5).abs() < 1e-9, "{found:?}");
            assert_eq!(derivatives(&*vrc, [1.1, 4.0], 0.1, &inputs)[1], 0.0);
            assert_eq!(derivatives(&*vrc, [0.5, 0.0], 0.1, &inputs)[1], 0.0);
            assert_eq!(fluid_probes(&*vrc, &[1.1, 0.2]), [("x", 1.1), ("dx", 0.2)]);
        }
    }
}
