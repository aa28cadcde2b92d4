//! Stability margins and number of unstable roots, from the transfer function along the imaginary axis.
//!
//! The closed loop's characteristic function `D(s)` has no poles. Along a line just right of the imaginary axis, from the real
//! axis upward, its phase increases by `n π/2` with `n` variables if all roots are left of the line; each root to the right
//! reduces it by π (argument principle; Stépán, Retarded Dynamical Systems, 1989). The distance of the line excludes a root at
//! zero, of a sum that the equations conserve, and is too small to miss any but extremely slow growth.

use std::f64::consts::{FRAC_PI_2, PI, TAU};

use super::complex::{Complex, Elementary as _, complex};
use super::linear::{Linear, TIMES};

/// Distance of the line from the imaginary axis, relative to the bound on all roots.
const ASIDE: f64 = 1e-7;
/// First and last frequency of the grid, relative to the bound.
const FIRST: f64 = 1e-9;
const LAST: f64 = 10.0;
/// Points per octave.
const DENSE: f64 = 3.0;
/// Maximum phase of a delay, and of the curve, between two points [rad].
const TURN: f64 = 0.5;
/// Maximum number of bisections of an interval in which the phase changes fast.
const HALVINGS: u32 = 30;

/// Stability margins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Margins {
    /// Number of roots of the closed loop in the right half-plane.
    pub unstable: usize,
    /// Gain margin (factor).
    pub gain: Option<f64>,
    /// Phase margin [rad].
    pub phase: Option<f64>,
    /// Delay margin [s].
    pub delay: Option<f64>,
    /// Crossover frequency [rad/s].
    pub crossover: Option<f64>,
}

/// Walks from `low` to `high` [rad/s] in steps over which neither the delays nor the phase of `of` change by more than
/// [`TURN`]. Calls `see` with frequency, value and unwrapped phase.
fn walk(
    (low, high): (f64, f64),
    longest: f64,
    of: &impl Fn(f64) -> Complex,
    mut see: impl FnMut(f64, Complex, f64),
) {
    let mut here = (low, of(low));
    let mut angle = here.1.angle();
    see(low, here.1, angle);
    let factor = libm::exp2(1.0 / DENSE);
    while here.0 < high {
        let mut next = (here.0 * factor).min(high);
        if longest > 0.0 {
            next = next.min(here.0 + TURN / longest);
        }
        for halving in 0..=HALVINGS {
            let there = of(next);
            let turn = (there / here.1).angle();
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

/// Returns the number of unstable roots and the margins.
pub(crate) fn margins(system: &Linear, closed: &[Vec<f64>; TIMES]) -> Margins {
    if system.n == 0 {
        return Margins { unstable: 0, gain: None, phase: None, delay: None, crossover: None };
    }
    let (bound, longest) = (system.bound(closed), system.longest());
    let range = (FIRST * bound, LAST * bound);
    // Above the bound, delays no longer matter.
    let aside = |w: f64| system.characteristic(closed, complex(ASIDE * bound, w));
    let (start, mut offset, mut turned) = (aside(0.0), None, 0.0);
    walk(range, longest, &aside, |_, value, angle| {
        // The first phase may be near -π where that of the real axis is π: their difference is the small one.
        turned = angle + *offset.get_or_insert((value / start).angle() - angle);
    });
    let unstable = ((system.n as f64 * FRAC_PI_2 - turned) / PI).round().max(0.0) as usize;

    let curve = |w: f64| system.transfer(complex(0.0, w));
    let mut found = Margins { unstable, gain: None, phase: None, delay: None, crossover: None };
    let stable = unstable == 0;
    let mut before: Option<(f64, Complex, f64)> = None;
    let mut whole = 0.0;
    walk(range, longest, &curve, |w, value, angle| {
        let Some((w0, value0, angle0)) = before else {
            // A curve that starts above the negative real axis has a phase below -π.
            whole = if angle > FRAC_PI_2 + 0.1 { -TAU } else { 0.0 };
            before = Some((w, value, angle));
            return;
        };
        if (value0.abs() > 1.0) != (value.abs() > 1.0) {
            let at = between(w0, w, |w| (curve(w).abs() > 1.0) == (value0.abs() > 1.0));
            let there = curve(at);
            let angle = angle0 + whole + (there / value0).angle();
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
            // A stable loop reaches the limit with more gain, an unstable one with less.
            if (gain > 1.0) == stable {
                found.gain = Some(found.gain.map_or(gain, |least| least.min(gain)));
            }
        }
        before = Some((w, value, angle));
    });
    found
}

/// Bisects: returns where `so` changes from true to false between `low` and `high`.
fn between(mut low: f64, mut high: f64, so: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..50 {
        let middle = 0.5 * (low + high);
        if so(middle) { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}
