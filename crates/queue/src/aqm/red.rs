//! RED, random early detection: marks at random by the average queue length, before the queue is full.
//!
//! Floyd & Jacobson 1993; [B07] 2.2.1. On every arrival at the mark point, with `q` packets in the watched queue:
//!
//! ```text
//! link busy:                           avg = avg + w_q (q - avg)
//! link idle, could have sent m:        avg = avg (1 - w_q)^m
//! ```
//!
//! Below `min_th` nothing is marked, from `max_th` on everything. Between them
//!
//! ```text
//! p_b = max_p (avg - min_th) / (max_th - min_th)
//! p_a = p_b / (1 - count p_b)
//! ```
//!
//! and a packet is marked with probability `p_a`, where `count` is the number of packets since the last mark: so marks
//! are spread evenly instead of in clusters.
//!
//! *Departures:* the average is updated by arrivals at the mark point, not at the watched queue: otherwise a gateway
//! whose marks stop all arrivals would never notice that its queue has drained. Four options: `gentle` raises the
//! probability from `max_p` to 1 between `max_th` and `2 max_th` (Floyd 2000) instead of the step to 1; `wait` spreads
//! marks further, as ns-2 does; `ns2` selects ns-2's other rules: `m` is a whole number plus one, because the arrival
//! at an idle link is a sample of an empty queue, and no packet is marked that finds at most one packet waiting;
//! `bytes` is byte mode (Floyd & Jacobson 1993, section V), in which `p_b` is scaled by the packet's length over the
//! mean length. [B07] Table 3.2 does not give the RED parameters of the settings RED FC 1 to 5: they are those of RED
//! 4, as for the SRED settings of Table 3.1.
//!
//! *In a satellite gateway:* it watches the transmit queue, behind the PEP, and marks at the receive queue, ahead of
//! the PEP, where the sender retransmits a dropped segment. An accepted packet reaches the watched queue only after the
//! PEP, so the average lags by that time in addition to its own time constant of `1 / w_q` packets: the longer the PEP
//! holds packets, the more the queue oscillates, and the link may idle in between. `avqred` avoids that delay. The
//! thresholds are in packets: after a change of the link's rate, or in a rain fade, they correspond to another delay.

use std::any::Any;

use super::average::{self, Average, Follow};
use super::uniform_dropper::{self, UniformDropper};
use crate::descriptor::{Algorithm, Placement, Preset};
use crate::fluid::{Arrivals, Equilibrium, FluidConfig, FluidModel, Inputs, Ramp, Service};
use crate::marking;
use crate::{Aqm, Context, Packet, Param, ParamError, Tune, Value, Values, Verdict};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "red",
    title: "Random early detection",
    source: "Floyd & Jacobson 1993; [B07] 2.2.1",
    params: PARAMS,
    presets: PRESETS,
    placement: Placement::Anywhere,
    build: |values| Ok(Box::new(Red::new(values)?)),
    fluid: Some(|values, given| Ok(Box::new(RedFluid::new(values, given)?))),
};

const PARAMS: &[Param] = &[
    uniform_dropper::MIN_TH,
    uniform_dropper::MAX_TH,
    average::W_Q,
    average::MAX_P,
    Param::flag("gentle", false, "Ramp from `max_p` to 1 between `max_th` and twice it")
        .origin("Floyd & Jacobson 1993 have a step to 1")
        .tune(Tune::Each),
    Param::flag("wait", false, "Never mark the first `1 / p_b` packets after a mark, as ns-2 does by default")
        .origin("Floyd & Jacobson 1993 may mark them"),
    Param::flag(
        "ns2",
        false,
        "Follow ns-2: an arrival after an idle time is a sample too, and one that finds at most one packet waiting is never \
         marked",
    )
    .origin("Floyd & Jacobson 1993 do neither"),
    Param::flag("bytes", false, "Mark in proportion to a packet's length")
        .origin("[B07] counts packets")
        .tune(Tune::Each),
    average::MEAN_PACKET,
];

const PRESETS: &[Preset] = &[
    preset("RED 1", &[MIN_TH, MAX_TH, w_q(0.02), max_p(0.5)]),
    preset("RED 2", &[MIN_TH, MAX_TH, w_q(0.05), max_p(0.7)]),
    preset("RED 3", &[MIN_TH, MAX_TH, w_q(0.10), max_p(0.5)]),
    preset("RED 4", RED_4),
    marking::flow_control("RED FC 1", RED_4, 0),
    marking::flow_control("RED FC 2", RED_4, 1),
    marking::flow_control("RED FC 3", RED_4, 2),
    marking::flow_control("RED FC 4", RED_4, 3),
    marking::flow_control("RED FC 5", RED_4, 4),
];

const RED_4: &[(&str, Value)] = &[MIN_TH, MAX_TH, w_q(0.10), max_p(0.7)];

const fn preset(name: &'static str, values: &'static [(&'static str, Value)]) -> Preset {
    Preset { name, source: "[B07] Table 3.1", values, marking: None }
}

const MIN_TH: (&str, Value) = ("min_th", Value::Number(60.0));
const MAX_TH: (&str, Value) = ("max_th", Value::Number(120.0));

const fn w_q(x: f64) -> (&'static str, Value) {
    ("w_q", Value::Number(x))
}

const fn max_p(x: f64) -> (&'static str, Value) {
    ("max_p", Value::Number(x))
}

/// RED's state.
#[derive(Debug)]
pub struct Red {
    bytes: bool,
    mean_packet: f64,
    average: Average,
    dropper: UniformDropper,
}

impl Red {
    /// # Errors
    /// Unless `min_th < max_th`.
    pub fn new(v: &Values) -> Result<Self, ParamError> {
        v.in_order("min_th", "max_th")?;
        Ok(Self {
            bytes: v.flag("bytes"),
            mean_packet: v.number("mean_packet"),
            average: Average::new(v, v.flag("ns2")),
            dropper: UniformDropper {
                gentle: v.flag("gentle"),
                wait: v.flag("wait"),
                ..UniformDropper::new(v.number("min_th"), v.number("max_th"), v.number("max_p"))
            },
        })
    }
}

impl Aqm for Red {
    // Part of the queue's decision, without a call, which is faster.
    #[inline(always)]
    fn arrive(&mut self, pkt: &Packet, cx: &mut Context<'_>) -> Verdict {
        let avg = self.average.sample(cx);
        if self.average.ns2() && cx.queue.packets <= 1 {
            self.dropper.reset();
            return Verdict::Pass;
        }
        let share = if self.bytes { f64::from(pkt.len) / self.mean_packet } else { 1.0 };
        if self.dropper.draw(avg, share, cx.rng) { Verdict::Mark } else { Verdict::Pass }
    }

    fn resume(&mut self, previous: &mut dyn Any) -> bool {
        let Some(was) = previous.downcast_mut::<Self>() else { return false };
        self.average.resume(&was.average);
        self.dropper.resume(&was.dropper);
        true
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("avg", self.average.avg);
        out("p", self.dropper.probability());
    }
}

/// RED as a fluid [B07 4.4]: each arrival moves the average by the share `w_q` towards the queue, so within the time
/// `δ` between two arrivals `avg - q` shrinks by the factor `1 - w_q`: `d avg / dt = ln(1 - w_q) / δ (avg - q)`. The
/// printed variant marks `p_b`; the actual share, with marks spread evenly or with `wait`, is [`uniform_dropper::share`].
/// `ns2` and the packet lengths of byte mode are not modelled.
struct RedFluid {
    average: Follow,
    max_p: f64,
    ramp: Ramp,
    share: fn(f64) -> f64,
}

impl RedFluid {
    fn new(v: &Values, given: &FluidConfig) -> Result<Self, ParamError> {
        v.in_order("min_th", "max_th")?;
        let ramp = Ramp { min_th: v.number("min_th"), max_th: v.number("max_th"), gentle: v.flag("gentle") };
        let share = uniform_dropper::share_of(given.variant, v.flag("wait"));
        Ok(Self { average: Follow::new(v, given), max_p: v.number("max_p"), ramp, share })
    }
}

impl FluidModel for RedFluid {
    fn mark(&self, x: &[f64], _arrivals: &Arrivals) -> f64 {
        (self.share)(self.ramp.at(x[0], self.max_p))
    }

    fn derivatives(&self, x: &[f64], _p: f64, inputs: &Inputs, dx: &mut [f64]) {
        dx[0] = self.average.change(x[0], inputs);
    }

    /// The average equals the queue, up to the level where all packets are marked.
    fn equilibrium(
        &self,
        share: f64,
        _capacity: f64,
        _service: Service,
        x: &mut [f64],
    ) -> Option<Equilibrium> {
        x[0] = share * self.ramp.end();
        Some(Equilibrium::Queue(x[0]))
    }

    fn probe(&self, x: &[f64], out: &mut dyn FnMut(&'static str, f64)) {
        out("avg", x[0]);
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_units::Instant;

    use super::super::steps::{INPUTS, Steps, derivatives, fluid, fluid_probes};
    use super::*;
    use crate::fluid::FluidVariant;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    /// Worked out by hand with w_q = 1/2, thresholds 2 and 6, max_p = 1. `avg` halves its distance to q at each
    /// arrival: 0 -> 2 -> 4 -> 6. At 2, p_b = 0; at 4, p_b = 1/2 and count 1 (the packet at 2 had count 0), so p_a =
    /// 1/2 / (1 - 1/2) = 1; at 6 the threshold marks.
    #[test]
    fn steps_of_the_printed_listing() {
        let given = [("min_th", 2.0), ("max_th", 6.0), ("w_q", 0.5), ("max_p", 1.0)];
        let mut red = Steps::new(&ALGORITHM, &given.map(|(name, x)| (name, Value::Number(x))));
        red.state.idle_since = None;
        for (q, avg, p, verdict) in [
            (0, 0.0, 0.0, Verdict::Pass),
            (4, 2.0, 0.0, Verdict::Pass),
            (6, 4.0, 1.0, Verdict::Mark),
            (8, 6.0, 1.0, Verdict::Mark),
            (0, 3.0, 1.0 / 3.0, Verdict::Pass),
        ] {
            red.state.packets = q;
            let got = red.arrive(1, 1000);
            assert!(close(red.probe("avg"), avg), "avg {} at q {q}", red.probe("avg"));
            assert!(close(red.probe("p"), p), "p {} at q {q}", red.probe("p"));
            if p == 0.0 || p == 1.0 {
                assert_eq!(got, verdict, "at q {q}");
            }
        }
    }

    /// With `ns2` a packet that finds at most one waiting passes, however high the average, and the count restarts.
    #[test]
    fn ns2_passes_packets_at_a_short_queue() {
        let given =
            [("min_th", 2.0), ("max_th", 6.0), ("w_q", 0.5)].map(|(name, x)| (name, Value::Number(x)));
        for (spare, verdict) in [(false, Verdict::Mark), (true, Verdict::Pass)] {
            let mut red = Steps::new(&ALGORITHM, &[&given[..], &[("ns2", Value::Flag(spare))]].concat());
            red.state.idle_since = None;
            red.state.packets = 32;
            assert_eq!(red.arrive(1, 1000), Verdict::Mark, "avg is 16");
            red.state.packets = 1;
            assert_eq!(red.arrive(2, 1000), verdict, "avg is 8.5");
            red.state.packets = 4;
            assert_eq!(red.arrive(3, 1000), Verdict::Mark, "avg is 6.25");
            red.state.packets = 2;
            red.arrive(4, 1000);
            assert!(red.probe("p") > 0.0, "avg is 4.125, and two packets are no short queue");
        }
        // avg = 4, count 0; then passed at 2.5; then at 3.75 count 0 again: p_a = p_b = 1/2 1.75/4.
        let mut red = Steps::new(&ALGORITHM, &[&given[..], &[("ns2", Value::Flag(true))]].concat());
        red.state.idle_since = None;
        for (q, p) in [(8, 0.25), (1, 0.0), (5, 0.218_75)] {
            red.state.packets = q;
            red.arrive(1, 1000);
            assert!(close(red.probe("p"), p), "p {} at q {q}", red.probe("p"));
        }
    }

    /// An idle link could have sent one 1000-byte packet per millisecond: after 3 ms avg is 8 (1/2)^3 = 1, and an
    /// arrival 1 ms later, still idle, halves it once more.
    #[test]
    fn idle_time_decays_the_average() {
        let given = [("min_th", 100.0), ("max_th", 200.0), ("w_q", 0.5)];
        let mut red = Steps::new(&ALGORITHM, &given.map(|(name, x)| (name, Value::Number(x))));
        red.state.idle_since = None;
        red.state.packets = 16;
        red.arrive(1000, 1000);
        assert!(close(red.probe("avg"), 8.0));
        red.state.packets = 0;
        red.state.idle_since = Some(Instant::from_nanos(2_000_000));
        red.arrive(5000, 1000);
        assert!(close(red.probe("avg"), 1.0));
        red.arrive(6000, 1000);
        assert!(close(red.probe("avg"), 0.5));
    }

    /// As above with ns-2's rules: 3.5 ms are 3 packets, and the arrival itself is a sample: 16 (1/2)^4 = 1.
    #[test]
    fn ns2_counts_idle_time_in_whole_packets_plus_one() {
        let given =
            [("min_th", 100.0), ("max_th", 200.0), ("w_q", 0.5)].map(|(name, x)| (name, Value::Number(x)));
        let mut red = Steps::new(&ALGORITHM, &[&given[..], &[("ns2", Value::Flag(true))]].concat());
        red.state.idle_since = None;
        red.state.packets = 32;
        red.arrive(1000, 1000);
        assert!(close(red.probe("avg"), 16.0));
        red.state.packets = 0;
        red.state.idle_since = Some(Instant::from_nanos(2_000_000));
        red.arrive(5500, 1000);
        assert!(close(red.probe("avg"), 1.0));
    }

    /// 300 arrivals at a queue that is not served, with thresholds 70 and 150.
    #[test]
    fn marks_increase_with_the_parameters() {
        let marks = |given: &[(&str, Value)]| {
            let mut given: Vec<_> = given.to_vec();
            for default in [("min_th", 70.0), ("max_th", 150.0), ("max_p", 0.02)] {
                if given.iter().all(|(name, _)| *name != default.0) {
                    given.push((default.0, Value::Number(default.1)));
                }
            }
            let mut red = Steps::new(&ALGORITHM, &given);
            red.state.idle_since = None;
            (0..300)
                .filter(|&q| {
                    red.state.packets = q;
                    red.arrive(u64::from(q), 1000) == Verdict::Mark
                })
                .count()
        };
        let w = |x| ("w_q", Value::Number(x));
        let gentle = ("gentle", Value::Flag(true));
        assert_eq!(marks(&[w(0.002), gentle]), 0);
        let some = marks(&[w(0.02), gentle]);
        assert!(some > 0);
        assert!(marks(&[w(0.02), gentle, ("max_th", Value::Number(100.0))]) > some);
        assert!(marks(&[w(0.02), gentle, ("max_p", Value::Number(0.2))]) > some);
        assert!(marks(&[w(0.02)]) > some);
    }

    /// Thresholds 2 and 6, avg = q = 4, max_p = 1/2: p_b = 1/4 for a mean packet of 1000 bytes, and in proportion for
    /// others. An empty queue in between resets the count, so that p_a = p_b.
    #[test]
    fn byte_mode_marks_in_proportion_to_length() {
        let given =
            [("min_th", 2.0), ("max_th", 6.0), ("w_q", 1.0)].map(|(name, x)| (name, Value::Number(x)));
        let mut red = Steps::new(&ALGORITHM, &[&given[..], &[("bytes", Value::Flag(true))]].concat());
        red.state.idle_since = None;
        for (len, p) in [(1000, 0.25), (500, 0.125), (0, 0.0), (40, 0.01), (4000, 1.0), (65_535, 1.0)] {
            red.state.packets = 0;
            red.arrive(1, 1000);
            red.state.packets = 4;
            red.arrive(1, len);
            assert!(close(red.probe("p"), p), "p {} for {len} bytes", red.probe("p"));
        }
    }

    /// As above, p_b = 1/4: four packets (count 0 to 3) are skipped, then p_a = 1/4 / (2 - 1).
    #[test]
    fn wait_skips_the_first_packets() {
        let given =
            [("min_th", 2.0), ("max_th", 6.0), ("w_q", 1.0)].map(|(name, x)| (name, Value::Number(x)));
        let mut red = Steps::new(&ALGORITHM, &[&given[..], &[("wait", Value::Flag(true))]].concat());
        (red.state.idle_since, red.state.packets) = (None, 4);
        for p in [0.0, 0.0, 0.0, 0.0, 0.25] {
            red.arrive(1, 1000);
            assert!(close(red.probe("p"), p), "{} is not {p}", red.probe("p"));
        }
    }

    /// The printed share of marks is `p_b`: 1/4 at an average of 4 between thresholds of 2 and 6 with `max_p` = 1/2, and half
    /// way along the curve the queue has 3 packets, with `gentle` 6.
    #[test]
    fn fluid_marks_by_the_average_which_equals_the_queue_in_equilibrium() {
        for (gentle, high, queue) in [(false, 1.0, 3.0), (true, 0.75, 6.0)] {
            let given = [("min_th", 2.0), ("max_th", 6.0), ("w_q", 0.5), ("max_p", 0.5)];
            let given = given.map(|(name, x)| (name, Value::Number(x)));
            let given = [&given[..], &[("gentle", Value::Flag(gentle))]].concat();
            let red = fluid(&ALGORITHM, &given, FluidVariant::Printed);
            assert_eq!([1.9, 4.0, 9.0].map(|avg| red.mark(&[avg], &INPUTS.arrivals())), [0.0, 0.25, high]);
            let mut x = [0.0];
            let found = red.equilibrium(0.5, 1000.0, Service::Full, &mut x);
            assert_eq!((found, x), (Some(Equilibrium::Queue(queue)), [queue]));
            assert_eq!(fluid_probes(&*red, &[4.0]), [("avg", 4.0)]);
            let [change] = derivatives(&*red, [4.0], 0.25, &Inputs { q: 10.0, ..INPUTS });
            assert!((change - std::f64::consts::LN_2 * 6000.0).abs() < 1e-9, "{change}");
        }
    }
}
