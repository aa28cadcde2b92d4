//! Comparison with closed forms, between the methods, and with the integrated equations.

use std::f64::consts::PI;

use bentpipe_scenario::{Equations, Feedback};
use bentpipe_units::Rng;

use super::complex::{Complex, Elementary as _, ONE, complex};
use super::linear::{Linear, TIMES};
use super::rest::AtRest;
use super::{Change, Stability, at_points, nyquist, roots};
use crate::fluid::{Fluid, SENDERS};
use crate::fourier::Series;
use crate::solve::integrate;
use crate::system::System;
use crate::system::tests::{aqm, plain};

/// Hollot, Misra, Towsley & Gong (INFOCOM 2001 and 2002): 60 connections, 3750 packets/s, a round trip of 0.246 s.
const N: f64 = 60.0;
const C: f64 = 3750.0;
const R: f64 = 0.246;

/// Their RED: slope 1.86e-4, averaging pole 0.005/s. The share that balances is 2 / W², with W = R C / N.
fn hollot_red() -> System {
    let p = 2.0 * (N / (R * C)) * (N / (R * C));
    let queue = 150.0 + p / 1.86e-4;
    let given = [
        ("min_th", 150.0),
        ("max_th", 150.0 + 0.1 / 1.86e-4),
        ("max_p", 0.1),
        ("w_q", -libm::expm1(-0.005 / C)),
    ];
    plain(Equations::EndToEnd, aqm("red", C, &given), N, R - queue / C, C)
}

/// Their PI: a = 1.822e-5, b = 1.816e-5 at 160 looks a second, 200 packets.
fn hollot_pi() -> System {
    let given = [("a", 1.822e-5), ("b", 1.816e-5), ("w", 160.0), ("q_ref", 200.0)];
    plain(Equations::EndToEnd, aqm("pi", C, &given), N, R - 200.0 / C, C)
}

/// From p to q, all terms of their linearization kept: `δW' = -N/(R²C) (δW + δW(t-R)) - 1/(R²C) (δq - δq(t-R)) -
/// RC²/(2N²) δp(t-R)`, `δq' = N/R δW - δq/R`.
fn plant(s: Complex) -> Complex {
    let turn = s.scale(-R).exponential();
    let senders = s + (ONE + turn).scale(N / (R * R * C));
    let round_trips = (ONE - turn).scale(N / (R * R * R * C));
    turn.scale(C * C / (2.0 * N)) / ((s + complex(1.0 / R, 0.0)) * senders + round_trips)
}

/// Simplified: `(C²/2N) e^{-sR} / ((s + 2N/(R²C)) (s + 1/R))`.
fn simple_plant(s: Complex) -> Complex {
    let poles = (s + complex(2.0 * N / (R * R * C), 0.0)) * (s + complex(1.0 / R, 0.0));
    s.scale(-R).exponential().scale(C * C / (2.0 * N)) / poles
}

fn red_controller(s: Complex) -> Complex {
    complex(1.86e-4 * 0.005, 0.0) / (s + complex(0.005, 0.0))
}

fn pi_controller(s: Complex) -> Complex {
    complex(160.0 * (1.822e-5 - 1.816e-5), 0.0) / s + complex(1.816e-5, 0.0)
}

type Transfer = fn(Complex) -> Complex;

/// The loop matches the paper's full linearization, and at low frequencies its simplified one.
#[test]
fn transfer_functions_match_hollot_et_al() {
    for (system, controller) in
        [(hollot_red as fn() -> System, red_controller as Transfer), (hollot_pi, pi_controller)]
    {
        let rest = AtRest::of(system()).unwrap();
        assert!((rest.point.round_trip - R).abs() < 1e-9, "{}", rest.point.round_trip);
        assert!((rest.point.window - R * C / N).abs() < 1e-6, "{}", rest.point.window);
        let found = Linear::of(&rest);
        for w in [0.001, 0.01, 0.05, 0.2, 0.53, 1.0, 3.0, 10.0, 40.0] {
            let s = complex(0.0, w);
            let (got, exact) = (found.transfer(s), plant(s) * controller(s));
            assert!((got - exact).abs() < 1e-5 * exact.abs(), "{got:?} is not {exact:?} at {w}");
            let simple = simple_plant(s) * controller(s);
            assert!(w > 0.1 || (got - simple).abs() < 0.02 * exact.abs(), "{got:?}, {simple:?} at {w}");
        }
    }
}

/// Printed: RED's gain is one at 0.05 rad/s; PI's at 0.53 rad/s. Phase margins from the simple loop by hand: RED's 180 -
/// atan(0.0503/0.005) - atan(0.0503/0.529) - atan(0.0503/4.065) - 0.0503 0.246 rad = 88.8°; PI's 75°.
#[test]
fn margins_match_hollot_et_al() {
    let red = Stability::of(hollot_red()).unwrap();
    assert!(red.stable() && !red.pep_in_loop);
    assert!((red.crossover.unwrap() - 0.05).abs() < 0.001, "{red:?}");
    let by_hand = |w: f64, lags: [f64; 3]| {
        180.0
            - lags.map(|pole| (libm::atan(w / pole)).to_degrees()).iter().sum::<f64>()
            - (w * R).to_degrees()
    };
    let w = red.crossover.unwrap();
    assert!((red.phase_margin.unwrap() - by_hand(w, [0.005, 0.5288, 4.065])).abs() < 0.5, "{red:?}");
    let pi = Stability::of(hollot_pi()).unwrap();
    assert!((pi.crossover.unwrap() - 0.53).abs() < 0.03, "{pi:?}");
    let w = pi.crossover.unwrap();
    let by_hand = by_hand(w, [1e-12, 0.5288, 4.065]) + libm::atan(w / 0.5286).to_degrees();
    assert!(
        (by_hand - 75.0).abs() < 1.0 && (pi.phase_margin.unwrap() - by_hand).abs() < 5.0,
        "{pi:?} {by_hand}"
    );
    assert!(pi.stable() && (pi.point.queue - 200.0).abs() < 1e-9);
    // A loop is stable up to where its margins end: a delay margin is a phase margin at the crossover.
    let delay = pi.phase_margin.unwrap().to_radians() / pi.crossover.unwrap();
    assert!((pi.delay_margin.unwrap() - delay).abs() < 1e-9);
}

/// A random system, except for the loop gain.
struct Draw {
    algorithm: &'static str,
    equations: Equations,
    feedback: Feedback,
    drops: bool,
    connections: f64,
    capacity: f64,
    /// Round-trip time at the operating point [s].
    round_trip: f64,
    pep_delay: f64,
    /// Queue at the operating point [packets].
    queue: f64,
    /// RED's weight.
    w_q: f64,
    /// PI's zero [1/s].
    zero: f64,
}

impl Draw {
    fn of(rng: &mut Rng) -> Self {
        let log = |rng: &mut Rng, low: f64, high: f64| low * libm::pow(high / low, rng.uniform());
        let (equations, feedback) = [
            (Equations::EndToEnd, Feedback::None),
            (Equations::Gateway, Feedback::None),
            (Equations::Gateway, Feedback::RoundTrip),
        ][rng.below(3) as usize];
        let (capacity, round_trip) = (log(rng, 300.0, 5000.0).round(), log(rng, 0.03, 0.4));
        Self {
            algorithm: ["red", "pi", "avqred"][rng.below(3) as usize],
            equations,
            feedback,
            drops: rng.below(2) == 1,
            // Windows of 2 to 30 segments.
            connections: capacity * round_trip / log(rng, 2.0, 30.0),
            capacity,
            round_trip,
            pep_delay: if equations == Equations::EndToEnd { 0.0 } else { rng.uniform_in(0.001, 0.06) },
            queue: rng.uniform_in(0.2, 0.6) * capacity * round_trip + 1.0,
            w_q: log(rng, 1e-4, 1e-1),
            zero: log(rng, 0.2, 5.0),
        }
    }

    /// With the fluid model at the same operating point whatever its `gain`: the slope of RED's and AVQRED's marking function
    /// [1/packet], or the rate at which PI's p grows for each packet too many [1/s]. None: the function would begin below
    /// zero, or not reach the point.
    fn system(&self, gain: f64) -> Option<System> {
        let mut p = 0.1;
        for pass in 0..2 {
            let below = p / gain;
            let (algorithm, given) = if pass == 0 {
                ("pi", vec![("a", 1e-3), ("b", 5e-4), ("w", 100.0), ("q_ref", self.queue)])
            } else {
                match self.algorithm {
                    "pi" => {
                        let b = gain / self.zero;
                        if b + gain / 100.0 > 1.0 {
                            return None;
                        }
                        let given =
                            vec![("a", b + gain / 100.0), ("b", b), ("w", 100.0), ("q_ref", self.queue)];
                        ("pi", given)
                    }
                    _ if below > self.queue => return None,
                    "red" => {
                        let (min_th, max_p) = (self.queue - below, 0.5 * (1.0 + p));
                        let end = min_th + max_p / gain;
                        let given =
                            vec![("min_th", min_th), ("max_th", end), ("max_p", max_p), ("w_q", self.w_q)];
                        ("red", given)
                    }
                    _ => {
                        let min_th = self.queue - below;
                        ("avqred", vec![("min_th", min_th), ("max_th", min_th + 1.0 / gain)])
                    }
                }
            };
            let empty = match self.equations {
                Equations::EndToEnd => self.round_trip - self.queue / self.capacity,
                _ => self.round_trip,
            };
            let model = aqm(algorithm, self.capacity, &given);
            let mut system = plain(self.equations, model, self.connections, empty, self.capacity);
            system.feedback = self.feedback;
            system.drops = self.drops;
            system.pep_delay = Series::constant(self.pep_delay);
            if pass == 1 {
                return Some(system);
            }
            p = AtRest::of(system).ok()?.point.p;
        }
        None
    }

    /// Critical gain; `None` if every gain is stable.
    fn border(&self) -> Option<f64> {
        let first = if self.algorithm == "pi" { 1e-3 } else { 1e-2 };
        let margin = |gain: f64| Stability::of(self.system(gain)?).ok()?.gain_margin;
        // Refined from just inside: an unstable loop's margin is that of its worst crossing.
        let inside = 0.97 * first * margin(first)?;
        Some(inside * margin(inside)?)
    }
}

/// `count` random systems with gains of `factors` times the critical gain.
fn random(seed: u64, count: usize, factors: &[f64]) -> Vec<(Draw, f64)> {
    let mut rng = Rng::stream(seed, "model", 0, "stability");
    let mut found = Vec::new();
    while found.len() < count {
        let draw = Draw::of(&mut rng);
        let factor = factors[found.len() % factors.len()];
        let Some(gain) = draw.border().map(|border| border * factor) else { continue };
        if draw.system(gain).is_some() {
            found.push((draw, gain));
        }
    }
    found
}

/// Nyquist's count equals the number of unstable collocation roots, from deep inside the margin to far outside; more than 1 %
/// from the limit, the margins have the right sign.
#[test]
fn nyquist_count_matches_the_roots() {
    let (mut most, mut stable) = (0, 0);
    for (draw, gain) in random(1, 42, &[0.05, 0.5, 0.97, 1.03, 2.0, 8.0, 40.0]) {
        let system = draw.system(gain).unwrap();
        let found = Stability::of(draw.system(gain).unwrap()).unwrap();
        let rest = AtRest::of(system).unwrap();
        let loop_ = Linear::of(&rest);
        let closed = loop_.closed();
        assert_eq!(nyquist::margins(&loop_, &closed).unstable, found.unstable_roots);
        let tiny = 1e-6 * loop_.bound(&closed);
        let right = roots::roots(&loop_, &closed, 24).iter().filter(|root| root.re > tiny).count();
        let what =
            format!("{} {:?} {:?} gain {gain}: {found:?}", draw.algorithm, draw.equations, draw.feedback);
        assert_eq!(found.unstable_roots, right, "{what}");
        assert_eq!(found.growth.unwrap() < 0.0, found.stable(), "{what}");
        assert_eq!(found.phase_margin.unwrap_or(1.0) > 0.0, found.stable(), "{what}");
        assert_eq!(found.gain_margin.unwrap_or(2.0) > 1.0, found.stable(), "{what}");
        most = most.max(right);
        stable += usize::from(found.stable());
    }
    assert!(most >= 4 && (10..32).contains(&stable), "{most} {stable}");
}

/// `x'(t) = 3 x(t) - 2 x(t - 1)` has `D(s) = s - 3 + 2 e^{-s}`: `D(0) = -1`, and the phase turns past -π at once, since
/// `D'(0) = -1`. On the imaginary axis `|s - 3| > 2`, so that by Rouché's theorem the right half-plane has one root, as `s - 3` has.
#[test]
fn nyquist_counts_one_root_if_the_curve_starts_below_the_negative_axis() {
    let times = |of: [f64; 2]| std::array::from_fn(|k| vec![of.get(k).copied().unwrap_or(0.0)]);
    let mut delays = [0.0; TIMES];
    delays[1] = 1.0;
    let system = Linear { n: 1, delays, a: times([3.0, 0.0]), b: times([0.0, -2.0]), c: vec![1.0] };
    assert_eq!(nyquist::margins(&system, &system.closed()).unstable, 1);
}

/// A small disturbance of the integrated equations decays 15 % inside the margin and grows 15 % outside, at the rate of the
/// rightmost root.
#[test]
fn integrated_disturbances_follow_the_rightmost_root() {
    let mut swinging = 0;
    for (draw, gain) in random(2, 24, &[0.85, 1.15]) {
        let mut system = draw.system(gain).unwrap();
        let found = Stability::of(draw.system(gain).unwrap()).unwrap();
        // The dominant mode may not oscillate and may hardly be excited by this disturbance.
        let period = found.period.unwrap_or_else(|| 2.0 * PI / found.crossover.unwrap());
        let growth = found.growth.unwrap();
        let lag = if draw.pep_delay > 0.0 { draw.pep_delay } else { draw.round_trip };
        let per_period = (period / (0.1 * lag).min(0.01 * period)).ceil();
        system.step = period / per_period;
        let rest = AtRest::of(draw.system(gain).unwrap()).unwrap();
        let mut start = rest.y;
        start[rest.cut()] = 0.0;
        let still = start[SENDERS];
        // Small enough to stay far from rounding errors and bounds.
        start[SENDERS] *= 1.0 + if found.stable() { 1e-5 } else { 1e-8 };
        let (wait, span) = (20.0, 5.0);
        let mut swings = [0.0f64; 2];
        let steps = ((wait + span + 1.0) * per_period) as usize;
        integrate(&Fluid::new(&system), start, (system.step, steps), 10.0, 1, |t, y| {
            for (swing, from) in swings.iter_mut().zip([wait, wait + span]) {
                if t > from * period && t <= (from + 1.0) * period {
                    *swing = swing.max((y[SENDERS] / still - 1.0).abs());
                }
            }
            Ok(())
        })
        .unwrap();
        let measured = libm::log(swings[1] / swings[0]) / (span * period);
        let what =
            format!("{} {:?} {:?}: {measured} {found:?}", draw.algorithm, draw.equations, draw.feedback);
        assert_eq!(measured < 0.0, found.stable(), "{what}");
        if found.period.is_some() {
            assert!((measured - growth).abs() < 0.05 * growth.abs() + 1e-3 / period, "{what}");
            swinging += 1;
        }
    }
    assert!(swinging >= 18, "{swinging}");
}

/// 400 connections, 1797 packets/s, RED from 60 to 180 packets; drops, and a round trip of 60 ms.
fn gateway(algorithm: &str, given: &[(&str, f64)], pep_delay: f64) -> System {
    let mut system = plain(Equations::Gateway, aqm(algorithm, 1797.0, given), 400.0, 0.06, 1797.0);
    system.drops = true;
    system.pep_delay = Series::constant(pep_delay);
    system
}

const RED: [(&str, f64); 4] = [("min_th", 20.0), ("max_th", 2000.0), ("max_p", 1.0), ("w_q", 0.02)];

/// AVQRED watches arrivals. By hand, with `p` dropped, slope k, `a = p λ / m` and `b = m / R² + λ² / 2m`: `λ' = -a λ - b
/// p`, `v' = (1 - p) λ - λ_0 p`, so `L = k (λ_0 + (1 - p) b / (s + a)) / s`, whatever the PEP's delay, and stable.
#[test]
fn avqred_loop_is_independent_of_the_pep_delay() {
    let given = [("min_th", 40.0), ("max_th", 80.0)];
    let mut first = None;
    for delay in [0.0, 0.012, 0.06, 1.0] {
        let rest = AtRest::of(gateway("avqred", &given, delay)).unwrap();
        let (p, offered) = (rest.point.p, rest.point.offered);
        let (a, b) = (p * offered / 400.0, 400.0 / 0.0036 + offered * offered / 800.0);
        assert!((offered * (1.0 - p) - 1797.0).abs() < 1e-6);
        let found = Linear::of(&rest);
        for w in [0.1, 1.0, 10.0, 100.0] {
            let s = complex(0.0, w);
            let senders = complex((1.0 - p) * b, 0.0) / (s + complex(a, 0.0)) + complex(offered, 0.0);
            let by_hand = senders / s.scale(40.0);
            assert!((found.transfer(s) - by_hand).abs() < 1e-6 * by_hand.abs(), "at {w}, delay {delay}");
        }
        let found = Stability::of(gateway("avqred", &given, delay)).unwrap();
        assert!(found.stable() && !found.pep_in_loop && found.gain_margin.is_none(), "{found:?}");
        // The real queue is as long as the virtual one.
        assert!((found.point.queue - 40.0 - 40.0 * found.point.p).abs() < 1e-6);
        assert_eq!(*first.get_or_insert(found), found);
    }
}

/// With a backlog term of time T and the PEP's delay D, `v' = (1 - p) λ - λ_0 p + (q - q_0) / T` and `q' = (1 - p) λ(t -
/// D) - λ_0 p`, so AVQRED's `L` by hand is multiplied by `1 + exp(-s D) / (s T)`, and the queue rests at its target.
#[test]
fn backlog_term_adds_an_integral_after_the_pep_delay() {
    let (target, drain_time) = (0.02, 0.5);
    let given = [("min_th", 40.0), ("max_th", 80.0), ("target", target), ("drain_time", drain_time)];
    for delay in [0.0, 0.012, 0.06] {
        let rest = AtRest::of(gateway("avqred_backlog", &given, delay)).unwrap();
        assert!((rest.point.queue - target * 1797.0).abs() < 1e-3, "{:?}", rest.point);
        let (p, offered) = (rest.point.p, rest.point.offered);
        let (a, b) = (p * offered / 400.0, 400.0 / 0.0036 + offered * offered / 800.0);
        let found = Linear::of(&rest);
        for w in [0.1, 1.0, 10.0, 100.0] {
            let s = complex(0.0, w);
            let senders = complex((1.0 - p) * b, 0.0) / (s + complex(a, 0.0)) + complex(offered, 0.0);
            let late = complex(libm::cos(w * delay), -libm::sin(w * delay));
            let by_hand = senders / s.scale(40.0) * (complex(1.0, 0.0) + late / s.scale(drain_time));
            assert!((found.transfer(s) - by_hand).abs() < 1e-6 * by_hand.abs(), "at {w}, delay {delay}");
        }
        assert!(Stability::of(gateway("avqred_backlog", &given, delay)).unwrap().pep_in_loop);
    }
}

/// With RED, the PEP's delay is part of the loop: the delay margin is its maximum increase.
#[test]
fn red_delay_margin_limits_the_pep_delay() {
    let found = Stability::of(gateway("red", &RED, 0.001)).unwrap();
    assert!(found.stable() && found.pep_in_loop, "{found:?}");
    assert!(Stability::of(gateway("red", &RED, 0.0)).unwrap().pep_in_loop);
    let margin = found.delay_margin.unwrap();
    for (share, stable) in [(0.99, true), (1.01, false)] {
        let moved = Stability::of(gateway("red", &RED, 0.001 + share * margin)).unwrap();
        assert_eq!(moved.stable(), stable, "{moved:?}");
        assert!((moved.delay_margin.unwrap() - (1.0 - share) * margin).abs() < 1e-6 * margin, "{moved:?}");
    }
}

/// A missing operating point gives one message with the values.
#[test]
fn systems_without_operating_point_are_rejected() {
    let refused = |system: System, words: [&str; 3]| {
        let text = Stability::of(system).unwrap_err().to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        assert!(!text.contains("NaN") && text.contains("allowed"), "{text}");
    };
    // Balanced at p with (1 - p) (m/R) sqrt(2 (1 - p) / p) = C: 0.705, above 0.1 and below 1.
    let small = [("min_th", 60.0), ("max_th", 120.0), ("max_p", 0.1), ("w_q", 0.02)];
    refused(
        gateway("red", &small, 0.01),
        ["a share of 0.7052", "from 0.100000 to 1.000000", "120.0000 packets"],
    );
    refused(gateway("avq", &[], 0.01), ["switches", "red, pi", "avqred"]);
    refused(gateway("droptail", &[], 0.01), ["marks nothing", "red, pi", "avqred"]);
    let mut few = hollot_red();
    few.window = 1.0;
    refused(few, ["60 connections", "unmarked", "3750.0000"]);
    let mut many = hollot_red();
    many.connections = 1e5;
    refused(many, ["100000 connections", "all marked", "3750.0000"]);
    let mut short = hollot_red();
    short.limit = 100.0;
    refused(short, ["queue.limit", "found 100.0000", "195."]);
    let fast = [("min_capacity", 8.0 * 2e6), ("max_capacity", 8.0 * 2e6)];
    refused(gateway("avqred", &fast, 0.01), ["1.1130 times", "virtual capacity", "grows"]);
}

/// Points are independent: the number of threads does not matter, and invalid points have their own errors.
#[test]
fn threads_do_not_change_results() {
    let points: Vec<Change> = (0..120)
        .map(|i| Change {
            connections: Some(300.0 + f64::from(i % 20) * 10.0),
            round_trip: Some(0.04 + f64::from(i / 20) * 2e-3),
            pep_delay: Some(0.012),
        })
        .chain([Change { pep_delay: Some(-1.0), ..Change::default() }])
        .collect();
    let system = || Ok(gateway("red", &RED, 0.0));
    let alone = at_points(&system, &points[..60], 1);
    let together = at_points(&system, &points, 2);
    assert_eq!(together[..60], alone[..]);
    assert!(together[..120].iter().all(Result::is_ok));
    assert_eq!(together[120].as_ref().unwrap_err().to_string(), "pep_delay: found -1; allowed: from 0 s");
}
