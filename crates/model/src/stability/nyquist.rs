//! Margins of a loop from its transfer function along the imaginary axis, and the count of its unstable roots.
//!
//! The closed loop's characteristic function `D(s)` has no poles. Along a line just right of the imaginary axis, from the
//! real axis to far above, its angle would turn by `n π/2` with `n` variables, were all roots left of the line; each root
//! right of it takes π off (the argument principle; Stépán, Retarded Dynamical Systems, 1989). The line is so little right
//! of the axis that only what takes millions of the loop's own times to grow is missed; so that a root at zero, a sum that
//! the equations conserve, does not count.

use std::f64::consts::{FRAC_PI_2, PI, TAU};

use super::complex::{Complex, complex};
use super::linear::{Linear, TIMES};

/// How far the line is right of the imaginary axis, as a share of the bound on all roots.
const ASIDE: f64 = 1e-7;
/// The grid begins at this share of the bound, and ends at so many times the bound.
const FIRST: f64 = 1e-9;
const LAST: f64 = 10.0;
/// Points in each doubling of frequency …
const DENSE: f64 = 3.0;
/// … and the most that a delay may turn, and an angle, from one to the next [rad].
const TURN: f64 = 0.5;
/// How often an interval is halved at most where angles turn fast.
const HALVINGS: u32 = 30;

/// What the curve says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Margins {
    /// Roots of the closed loop right of the imaginary axis.
    pub unstable: usize,
    /// By which factor the loop's gain may grow, or has to where below one.
    pub gain: Option<f64>,
    /// [rad]
    pub phase: Option<f64>,
    /// [s]
    pub delay: Option<f64>,
    /// Where the gain is one [rad/s].
    pub crossover: Option<f64>,
}

/// Walks from `low` to `high` [rad/s] so that neither the delays nor the angle of `of` turn by more than [`TURN`] from one
/// point to the next, and shows each to `see`: frequency, value, and angle, unwound from `of(low)` on.
fn walk(
    (low, high): (f64, f64),
    longest: f64,
    of: &impl Fn(f64) -> Complex,
    mut see: impl FnMut(f64, Complex, f64),
) {
    let mut here = (low, of(low));
    let mut angle = here.1.arg();
    see(low, here.1, angle);
    let factor = libm::exp2(1.0 / DENSE);
    while here.0 < high {
        let mut next = (here.0 * factor).min(high);
        if longest > 0.0 {
            next = next.min(here.0 + TURN / longest);
        }
        for halving in 0..=HALVINGS {
            let there = of(next);
            let turn = (there / here.1).arg();
            if turn.abs() <= TURN || halving == HALVINGS {
                here = (next, there);
                angle += turn;
                see(next, there, angle);
                break;
            }
            next = 0.5 * (here.0 + next);
        }
    }
}

/// The count of unstable roots, and the margins.
pub(crate) fn margins(system: &Linear, closed: &[Vec<f64>; TIMES]) -> Margins {
    if system.n == 0 {
        return Margins { unstable: 0, gain: None, phase: None, delay: None, crossover: None };
    }
    let (bound, longest) = (system.bound(closed), system.longest());
    let range = (FIRST * bound, LAST * bound);
    // Above the bound nothing turns fast any more, whatever the delays.
    let mut last = 0.0;
    let aside = |w: f64| system.characteristic(closed, complex(ASIDE * bound, w));
    let start = system.characteristic(closed, complex(ASIDE * bound, 0.0)).arg();
    walk(range, longest, &aside, |_, _, angle| last = angle);
    let turned = last - start;
    let unstable = ((system.n as f64 * FRAC_PI_2 - turned) / PI).round().max(0.0) as usize;

    let curve = |w: f64| system.transfer(complex(0.0, w));
    let mut found = Margins { unstable, gain: None, phase: None, delay: None, crossover: None };
    let stable = unstable == 0;
    let mut before: Option<(f64, Complex, f64)> = None;
    let mut whole = 0.0;
    walk(range, longest, &curve, |w, value, angle| {
        let Some((w0, value0, angle0)) = before else {
            // A curve that comes from above the negative real axis has turned by more than half a turn already.
            whole = if angle > FRAC_PI_2 + 0.1 { -TAU } else { 0.0 };
            before = Some((w, value, angle));
            return;
        };
        if (value0.abs() > 1.0) != (value.abs() > 1.0) {
            let at = between(w0, w, |w| (curve(w).abs() > 1.0) == (value0.abs() > 1.0));
            let there = curve(at);
            let angle = angle0 + whole + (there / value0).arg();
            let margin = PI + angle;
            if found.phase.is_none_or(|least| margin < least) {
                (found.phase, found.crossover) = (Some(margin), Some(at));
                if !stable {
                    found.delay = Some(margin.min(0.0) / at);
                }
            }
            if stable {
                let delay = (margin - TAU * (margin / TAU).floor()) / at;
                found.delay = Some(found.delay.map_or(delay, |least| least.min(delay)));
            }
        }
        let turns = |angle: f64| ((angle + whole + PI) / TAU).floor();
        if turns(angle0) != turns(angle) {
            let upper = value0.im > 0.0;
            let at = between(w0, w, |w| (curve(w).im > 0.0) == upper);
            let gain = 1.0 / curve(at).abs();
            // What brings a stable loop to its border is more gain, and an unstable one less.
            if (gain > 1.0) == stable {
                found.gain = Some(found.gain.map_or(gain, |least| least.min(gain)));
            }
        }
        before = Some((w, value, angle));
    });
    found
}

/// Where between `low` and `high` what is so at `low` stops being so.
fn between(mut low: f64, mut high: f64, so: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..50 {
        let middle = 0.5 * (low + high);
        if so(middle) { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}
