//! ARED, adaptive RED: adapts `max_p` so that the average stays between the thresholds.
//!
//! Feng, Kandlur, Saha & Shin 1999; Floyd, Gummadi & Shenker 2001; Byun & Baras. Average and marking decision are
//! RED's; `variant` selects the rule for `max_p`:
//!
//! - `feng`: divides it by 3 when the average falls below `min_th`, and doubles it when the average rises to `max_th`:
//!   once per crossing.
//! - `floyd`: acts every `interval`, with a target band from `min_th + 0.4 (max_th - min_th)` to
//!   `min_th + 0.6 (max_th - min_th)`: above it, `max_p += min(0.01, max_p / 4)`; below it, `max_p *= 0.9`; always
//!   within 0.01 and 0.5. With `hysteresis = n` (Byun & Baras) it decreases only after the average was below the band
//!   in `n` consecutive intervals.
//!
//! The default weight is that of Floyd et al., section 4: `w_q = 1 - exp(-1 / C)`, where `C` is the number of packets
//! that the link sends per second, so that the time constant of the average is 1 s on every link.
//!
//! *Departures:* while the link is idle no packet updates the average, so `floyd` decays it before each step; otherwise
//! an idle hour would count as an hour above the target. Feng et al. act whenever an arrival finds the average across a
//! threshold; here `max_p` is in addition kept between 0.0001 and 1. `hysteresis` applies to `floyd` only, because
//! `feng` has no intervals.
//!
//! *In a satellite gateway:* use it as RED, ahead of the PEP and watching the transmit queue, if `max_p` is not to be
//! chosen by hand, and with a greater `w_q`. The default time constant of 1 s covers many of the round trips between a
//! PEP and its senders (40 to 80 ms on the 2007 gateway); the load rises and falls faster than the average, so the
//! queue oscillates with a period of 1.6 s, and the link is idle while the average falls. On that gateway the defaults
//! reach 12.1 of 20 Mbit/s, with a mean queue of 58 packets and a standard deviation of 90 (`feng`: 11.2 Mbit/s, 54 and
//! 93); with `w_q = 0.1` they reach 20.0 Mbit/s, 91 and 23 (`feng`: 19.8, 83 and 37). The cause is the average, not the
//! rule: `max_p` stays between 0.12 and 0.24, and RED with that `w_q` and a fixed `max_p` of 0.5 reaches 9.3 Mbit/s.
//! Neither a longer `interval` (5 s) nor a PEP without delay helps: 12.3 and 12.8 Mbit/s.

use std::any::Any;

use bentpipe_units::{Duration, Instant};

use super::average::{self, Average, Follow};
use super::uniform_dropper::{self, UniformDropper};
use crate::descriptor::{Algorithm, Placement};
use crate::fluid::{Arrivals, FluidConfig, FluidModel, Inputs, Ramp};
use crate::{Aqm, Context, Link, Packet, Param, ParamError, Range, Tune, Unit, Values, Verdict};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "ared",
    title: "Adaptive random early detection",
    source: "Feng et al. 1999; Floyd et al. 2001; Byun & Baras",
    params: PARAMS,
    presets: &[],
    placement: Placement::Anywhere,
    build: |values| Ok(Box::new(Ared::new(values)?)),
    fluid: Some(|values, given| Ok(Box::new(AredFluid::new(values, given)?))),
};

/// Floyd et al. 2001, section 4: a time constant of 1 s.
fn w_q(link: &Link) -> f64 {
    -libm::expm1(-1.0 / link.packets_in(1.0))
}

const PARAMS: &[Param] = &[
    Param::name("variant", &["feng", "floyd"], "floyd", "Rule that adapts `max_p`")
        .origin("Floyd et al. 2001")
        .tune(Tune::Each),
    uniform_dropper::MIN_TH,
    uniform_dropper::MAX_TH,
    Param::from_link("w_q", Unit::One, Range::above(0.0, 1.0), w_q)
        .default_doc("1 - exp(-1 / packets that the link sends in a second)")
        .doc("Weight of the newest sample in the average")
        .origin("Floyd et al. 2001, section 4")
        .tune(Tune::Log(0.0001, 0.2)),
    Param::number("max_p", Unit::One, 0.1, Range::between(0.0001, 1.0))
        .doc("Initial marking probability at `max_th`")
        .origin("ns-2.35")
        .tune(Tune::Log(0.01, 0.5)),
    Param::flag("gentle", true, "Ramp from `max_p` to 1 between `max_th` and twice it")
        .origin("Floyd et al. 2001, section 3")
        .tune(Tune::Each),
    Param::number("interval", Unit::Seconds, 0.5, Range::between(0.001, 3600.0))
        .doc("`floyd`: time between two updates of `max_p`")
        .origin("Floyd et al. 2001, section 3")
        .tune(Tune::Log(0.05, 10.0)),
    Param::number("hysteresis", Unit::Count, 1.0, Range::between(1.0, 10_000.0))
        .doc("`floyd`: consecutive intervals with the average below the target before `max_p` decreases")
        .symbol("n")
        .origin("Floyd et al. 2001: no hysteresis"),
    average::MEAN_PACKET,
];

/// Lower bound of `max_p` in `floyd` (Floyd et al. 2001, section 3).
const LEAST_P: f64 = 0.01;
/// Upper bound of `max_p` in `floyd` (Floyd et al. 2001, section 3).
const GREATEST_P: f64 = 0.5;

/// Position of the average at the last arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Zone {
    Below,
    Between,
    Above,
}

/// ARED's state.
#[derive(Debug)]
pub struct Ared {
    average: Average,
    dropper: UniformDropper,
    rule: Rule,
}

#[derive(Debug)]
enum Rule {
    Feng(Zone),
    Floyd {
        every: Duration,
        next: Instant,
        hysteresis: u32,
        /// Consecutive intervals in which the average was below the target band.
        below: u32,
    },
}

impl Ared {
    /// # Errors
    /// Unless `min_th < max_th`, and if `feng` is combined with a hysteresis.
    pub fn new(v: &Values) -> Result<Self, ParamError> {
        v.in_order("min_th", "max_th")?;
        let hysteresis = v.number("hysteresis");
        let rule = if v.name("variant") == "floyd" {
            let every = Duration::from_secs_f64(v.number("interval"));
            Rule::Floyd { every, next: Instant::ZERO + every, hysteresis: hysteresis as u32, below: 0 }
        } else if hysteresis == 1.0 {
            Rule::Feng(Zone::Below)
        } else {
            let problem = format!("found {hysteresis}; allowed: 1 with variant = \"feng\"");
            return Err(ParamError { name: "hysteresis", problem });
        };
        let dropper = UniformDropper::new(v.number("min_th"), v.number("max_th"), v.number("max_p"));
        let dropper = UniformDropper { gentle: v.flag("gentle"), ..dropper };
        Ok(Self { average: Average::new(v, false), dropper, rule })
    }
}

impl Aqm for Ared {
    fn arrive(&mut self, _pkt: &Packet, cx: &mut Context<'_>) -> Verdict {
        let avg = self.average.sample(cx);
        let l = &mut self.dropper;
        if let Rule::Feng(zone) = &mut self.rule {
            let now = match avg {
                _ if avg < l.min_th => Zone::Below,
                _ if avg < l.max_th => Zone::Between,
                _ => Zone::Above,
            };
            match now {
                Zone::Below if *zone != now => l.max_p = (l.max_p / 3.0).max(0.0001),
                Zone::Above if *zone != now => l.max_p = (l.max_p * 2.0).min(1.0),
                _ => {}
            }
            *zone = now;
        }
        if l.draw(avg, 1.0, cx.rng) { Verdict::Mark } else { Verdict::Pass }
    }

    fn wake_at(&self) -> Option<Instant> {
        match self.rule {
            Rule::Feng(_) => None,
            Rule::Floyd { next, .. } => Some(next),
        }
    }

    fn wake(&mut self, cx: &mut Context<'_>) {
        let Rule::Floyd { every, next, hysteresis, below } = &mut self.rule else { return };
        *next = cx.now + *every;
        self.average.decay(cx);
        let (avg, l) = (self.average.avg, &mut self.dropper);
        let span = l.max_th - l.min_th;
        *below = if avg < l.min_th + 0.4 * span { below.saturating_add(1) } else { 0 };
        if avg > l.min_th + 0.6 * span {
            l.max_p = (l.max_p + (l.max_p / 4.0).min(0.01)).min(GREATEST_P);
        } else if *below >= *hysteresis {
            l.max_p = (l.max_p * 0.9).max(LEAST_P);
        }
    }

    fn resume(&mut self, previous: &mut dyn Any) -> bool {
        let Some(was) = previous.downcast_mut::<Self>() else { return false };
        self.average.resume(&was.average);
        self.dropper.resume(&was.dropper);
        self.dropper.max_p = was.dropper.max_p;
        self.rule.resume(&was.rule);
        true
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("avg", self.average.avg);
        out("max_p", self.dropper.max_p);
        out("p", self.dropper.probability());
    }
}

impl Rule {
    /// Continues where another rule of the same variant is.
    fn resume(&mut self, was: &Self) {
        match (self, was) {
            (Self::Feng(zone), Self::Feng(before)) => *zone = *before,
            (Self::Floyd { next, below, .. }, Self::Floyd { next: due, below: count, .. }) => {
                (*next, *below) = (*due, *count);
            }
            _ => {}
        }
    }
}

/// `floyd` as a fluid: RED's average and marking function; while the average is above the band `max_p` grows by
/// `min(0.01, max_p / 4)` per `interval`, while it is below by `ln(0.9) / interval`. The hysteresis is not modelled,
/// and `feng`, which acts on crossings, has no fluid model.
struct AredFluid {
    average: Follow,
    max_p: f64,
    interval: f64,
    ramp: Ramp,
    share: fn(f64) -> f64,
}

impl AredFluid {
    fn new(v: &Values, given: &FluidConfig) -> Result<Self, ParamError> {
        v.in_order("min_th", "max_th")?;
        if v.name("variant") != "floyd" {
            let problem = format!("found {}; allowed in a fluid model: floyd", v.name("variant"));
            return Err(ParamError { name: "variant", problem });
        }
        let ramp = Ramp { min_th: v.number("min_th"), max_th: v.number("max_th"), gentle: v.flag("gentle") };
        Ok(Self {
            average: Follow::new(v, given),
            max_p: v.number("max_p").clamp(LEAST_P, GREATEST_P),
            interval: v.number("interval"),
            ramp,
            share: uniform_dropper::share_of(given.variant, false),
        })
    }
}

impl FluidModel for AredFluid {
    fn states(&self) -> usize {
        2
    }

    fn start(&self, x: &mut [f64]) {
        x[1] = self.max_p;
    }

    fn mark(&self, x: &[f64], _arrivals: &Arrivals) -> f64 {
        (self.share)(self.ramp.at(x[0], x[1]))
    }

    fn derivatives(&self, x: &[f64], _p: f64, inputs: &Inputs, dx: &mut [f64]) {
        let (avg, max_p) = (x[0], x[1]);
        dx[0] = self.average.change(avg, inputs);
        let span = self.ramp.max_th - self.ramp.min_th;
        let per_look = if avg > self.ramp.min_th + 0.6 * span {
            (max_p / 4.0).min(0.01)
        } else if avg < self.ramp.min_th + 0.4 * span {
            max_p * libm::log(0.9)
        } else {
            0.0
        };
        dx[1] = inputs.within(max_p, per_look / self.interval, LEAST_P, GREATEST_P);
    }

    fn probe(&self, x: &[f64], out: &mut dyn FnMut(&'static str, f64)) {
        out("avg", x[0]);
        out("max_p", x[1]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::steps::{INPUTS, Steps, derivatives, fluid, fluid_probes, start};
    use super::*;
    use crate::Value;
    use crate::fluid::FluidVariant;

    /// Thresholds 100 and 200, so the band is 140 to 160; the average equals the queue length (`w_q` is 1).
    fn ared(variant: &'static str, given: &[(&'static str, f64)]) -> Steps {
        let fixed = [("min_th", 100.0), ("max_th", 200.0), ("w_q", 1.0)];
        let mut values: Vec<_> =
            fixed.iter().chain(given).map(|(name, x)| (*name, Value::Number(*x))).collect();
        values.push(("variant", Value::Name(variant)));
        let mut ared = Steps::new(&ALGORITHM, &values);
        ared.state.idle_since = None;
        ared
    }

    fn at(steps: &mut Steps, q: u32) {
        steps.state.packets = q;
        steps.arrive(1, 1000);
    }

    /// From 0.1: above the band it grows by min(0.01, max_p/4), inside it stays, below it is multiplied by 0.9.
    #[test]
    fn floyd_moves_max_p_towards_the_target() {
        let mut ared = ared("floyd", &[]);
        for (n, (q, max_p)) in [(180, 0.11), (161, 0.12), (160, 0.12), (140, 0.12), (139, 0.108), (0, 0.0972)]
            .into_iter()
            .enumerate()
        {
            at(&mut ared, q);
            assert_eq!(ared.wake(), 500_000 * (n as u64 + 1));
            assert!((ared.probe("max_p") - max_p).abs() < 1e-12, "{} at q {q}", ared.probe("max_p"));
        }
    }

    /// 0.02 grows by a quarter, not by 0.01; bounds are 0.01 and 0.5.
    #[test]
    fn floyd_keeps_max_p_within_bounds() {
        let mut small = ared("floyd", &[("max_p", 0.02)]);
        at(&mut small, 180);
        small.wake();
        assert!((small.probe("max_p") - 0.025).abs() < 1e-12);
        for _ in 0..100 {
            small.wake();
        }
        assert_eq!(small.probe("max_p"), 0.5);
        at(&mut small, 120);
        for _ in 0..100 {
            small.wake();
        }
        assert_eq!(small.probe("max_p"), 0.01);
    }

    /// With a hysteresis of 3 the third consecutive interval below the band decreases `max_p`, and each one after it;
    /// an interval inside the band restarts the count.
    #[test]
    fn hysteresis_delays_the_decrease() {
        let mut ared = ared("floyd", &[("hysteresis", 3.0)]);
        let looks = [120, 120, 150, 120, 120, 120, 120, 150, 120];
        let decreases = looks.map(|q| {
            at(&mut ared, q);
            let before = ared.probe("max_p");
            ared.wake();
            ared.probe("max_p") < before
        });
        assert_eq!(decreases, [false, false, false, false, false, true, true, false, false]);
    }

    /// With `w_q` = 1 a millisecond without packets empties the average: it is below the band, not above.
    #[test]
    fn idle_time_decays_the_average_before_a_step() {
        let mut ared = ared("floyd", &[]);
        at(&mut ared, 180);
        (ared.state.packets, ared.state.idle_since) = (0, Some(Instant::from_nanos(400_000_000)));
        ared.wake();
        assert_eq!((ared.probe("avg"), ared.probe("max_p")), (0.0, 0.1 * 0.9));
    }

    /// From 0.3: doubled when the average rises to `max_th`, divided by 3 when it falls below `min_th`, once per
    /// crossing; at most 1.
    #[test]
    fn feng_acts_once_per_crossing() {
        let mut ared = ared("feng", &[("max_p", 0.3)]);
        for (q, max_p) in [
            (50, 0.3),
            (150, 0.3),
            (200, 0.6),
            (300, 0.6),
            (199, 0.6),
            (250, 1.0),
            (99, 1.0 / 3.0),
            (30, 1.0 / 3.0),
            (100, 1.0 / 3.0),
            (99, 1.0 / 9.0),
        ] {
            at(&mut ared, q);
            assert!((ared.probe("max_p") - max_p).abs() < 1e-12, "{} at q {q}", ared.probe("max_p"));
        }
        // Division by 3 stops at 0.0001.
        for q in [100, 99].repeat(8) {
            at(&mut ared, q);
        }
        assert_eq!(ared.probe("max_p"), 0.0001);
    }

    /// Half way between `max_th` and twice `max_th`, `p_b` is half way between `max_p` = 0.1 and 1; without `gentle` it
    /// is 1.
    #[test]
    fn gentle_is_the_default() {
        let mut gentle = ared("floyd", &[]);
        at(&mut gentle, 300);
        assert!((gentle.probe("p") - 0.55).abs() < 1e-12, "{}", gentle.probe("p"));
        let given =
            [("min_th", 100.0), ("max_th", 200.0), ("w_q", 1.0)].map(|(name, x)| (name, Value::Number(x)));
        let mut hard = Steps::new(&ALGORITHM, &[&given[..], &[("gentle", Value::Flag(false))]].concat());
        hard.state.idle_since = None;
        at(&mut hard, 300);
        assert_eq!(hard.probe("p"), 1.0);
    }

    /// At 250 `max_p` has been doubled to 0.6. Its successor, still above, does not double it again.
    #[test]
    fn feng_continues_in_the_zone_of_its_predecessor() {
        let mut ared = ared("feng", &[("max_p", 0.3)]);
        at(&mut ared, 250);
        let given =
            [("min_th", 100.0), ("max_th", 200.0), ("w_q", 1.0)].map(|(name, x)| (name, Value::Number(x)));
        let feng = [("variant", Value::Name("feng"))];
        assert!(ared.replace(Steps::build(&ALGORITHM, &[&given[..], &feng].concat())));
        at(&mut ared, 250);
        assert_eq!(ared.probe("max_p"), 0.6);
    }

    /// Two looks per second, thresholds 100 and 200: below 140 `max_p` = 0.2 changes by 2 · 0.2 · ln 0.9 per second, above
    /// 160 by 2 · 0.01, and 0.02 by 2 · 0.02 / 4; at both bounds and between them it stays, as does 0.5. Half way up the ramp the
    /// probability is `max_p` / 2. The average of a queue of 150 does not change at 150.
    #[test]
    fn fluid_moves_max_p_outside_the_band() {
        let given =
            [("min_th", 100.0), ("max_th", 200.0), ("max_p", 0.7)].map(|(name, x)| (name, Value::Number(x)));
        let given = [&given[..], &[("variant", Value::Name("floyd"))]].concat();
        let fluid = fluid(&ALGORITHM, &given, FluidVariant::Printed);
        assert_eq!(start::<2>(&*fluid), [0.0, 0.5]);
        let decrease = -2.0 * 0.2 * 0.105_360_515_657_826;
        for (avg, max_p, change) in [
            (139.0, 0.2, decrease),
            (140.0, 0.2, 0.0),
            (160.0, 0.2, 0.0),
            (161.0, 0.2, 0.02),
            (161.0, 0.02, 0.01),
            (161.0, 0.5, 0.0),
            (139.0, 0.01, 0.0),
        ] {
            let dx = derivatives(&*fluid, [avg, max_p], 0.0, &INPUTS);
            assert!((dx[1] - change).abs() < 1e-12, "{} at {avg} and {max_p}", dx[1]);
        }
        assert_eq!(derivatives(&*fluid, [150.0, 0.2], 0.0, &Inputs { q: 150.0, ..INPUTS })[0], 0.0);
        let share = fluid.mark(&[150.0, 0.2], &Arrivals { q: 150.0, load: 1000.0, capacity: 1000.0 });
        assert!((share - 0.1).abs() < 1e-12, "{share}");
        assert_eq!(fluid_probes(&*fluid, &[150.0, 0.2]), [("avg", 150.0), ("max_p", 0.2)]);
    }

    #[test]
    fn feng_with_hysteresis_is_refused() {
        let link = Link { capacity: bentpipe_units::Rate::from_bps(8_000_000), mean_packet: 1000.0 };
        let given = |name: &str| match name {
            "variant" => Some(Value::Name("feng")),
            "hysteresis" => Some(Value::Number(2.0)),
            _ => None,
        };
        let error = Ared::new(&Values::resolve(PARAMS, &link, &given).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "hysteresis: found 2; allowed: 1 with variant = \"feng\"");
    }

    /// 1000 packets per second: 1 - exp(-1/1000) = 0.000 999 500 166 6; after 1000 samples of an empty queue the
    /// average has fallen to 1/e.
    #[test]
    fn default_weight_has_a_time_constant_of_one_second() {
        let link = Link { capacity: bentpipe_units::Rate::from_bps(8_000_000), mean_packet: 1000.0 };
        assert!((w_q(&link) - 0.000_999_500_166_6).abs() < 1e-13);
        assert!((libm::pow(1.0 - w_q(&link), 1000.0) - libm::exp(-1.0)).abs() < 1e-12);
    }
}
