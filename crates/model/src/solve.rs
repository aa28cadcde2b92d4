//! Delay differential equations, solved by the classical fourth-order Runge-Kutta method with a fixed step.
//!
//! The history is interpolated by cubic Hermite polynomials from values and derivatives at the steps, whose error has the order of
//! the method (Bellen & Zennaro: Numerical Methods for Delay Differential Equations, 2003, chapter 6). Steps are equidistant, so
//! finding a past value takes constant time. A delay shorter than a step counts as a step.

use crate::Error;

/// Delay differential equations of `N` variables with `L` delays.
pub trait Delayed<const N: usize, const L: usize> {
    /// Returns the delays at `t` [s] with the variables `y` [s].
    fn lags(&self, t: f64, y: &[f64; N]) -> [f64; L];

    /// Returns the derivatives at `t` [1/s], with `y` now and `past` at each delay before.
    fn derive(&self, t: f64, y: &[f64; N], past: &[[f64; N]; L]) -> [f64; N];

    /// Restores the bounds of the variables after a step.
    fn confine(&self, _y: &mut [f64; N]) {}
}

/// History: values and derivatives at the last steps.
struct Past<const N: usize> {
    ring: Vec<([f64; N], [f64; N])>,
    /// Number of the last step.
    last: usize,
    step: f64,
    start: [f64; N],
}

impl<const N: usize> Past<N> {
    /// Returns the variables at `t`, at most the time of the last step; before the start, the initial values.
    fn at(&self, t: f64) -> Option<[f64; N]> {
        let place = t / self.step;
        if place <= 0.0 || self.last == 0 {
            return Some(self.start);
        }
        let left = (place.floor() as usize).min(self.last.saturating_sub(1));
        if self.last - left >= self.ring.len() {
            return None;
        }
        let (y0, d0) = &self.ring[left % self.ring.len()];
        let (y1, d1) = &self.ring[(left + 1) % self.ring.len()];
        let s = place - left as f64;
        let (s2, s3) = (s * s, s * s * s);
        let (h00, h10) = (2.0 * s3 - 3.0 * s2 + 1.0, (s3 - 2.0 * s2 + s) * self.step);
        let (h01, h11) = (3.0 * s2 - 2.0 * s3, (s3 - s2) * self.step);
        Some(std::array::from_fn(|i| h00 * y0[i] + h10 * d0[i] + h01 * y1[i] + h11 * d1[i]))
    }
}

/// Solves `system` from `start` at time 0, in `steps` steps of `step` [s], and shows `see` the time and the variables at
/// each `every`-th step, the first one `every` steps after the start. Before time 0 all was as at the start.
///
/// # Errors
/// Where a delay is longer than `history` [s], where a variable leaves the finite numbers, and those of `see`.
pub fn integrate<const N: usize, const L: usize, S: Delayed<N, L>>(
    system: &S,
    start: [f64; N],
    (step, steps): (f64, usize),
    history: f64,
    every: usize,
    mut see: impl FnMut(f64, &[f64; N]) -> Result<(), Error>,
) -> Result<(), Error> {
    let kept = (history / step).ceil() as usize + 3;
    let mut past = Past { ring: vec![([0.0; N], [0.0; N]); kept], last: 0, step, start };
    let look = |past: &Past<N>, t: f64, y: &[f64; N]| -> Result<[[f64; N]; L], Error> {
        let mut found = [[0.0; N]; L];
        for (found, lag) in found.iter_mut().zip(system.lags(t, y)) {
            // NaN is rejected as too long.
            let before = if lag <= history { past.at(t - lag.max(step)) } else { None };
            *found = before.ok_or(Error::Delay { lag, at: t, history })?;
        }
        Ok(found)
    };
    let along =
        |y: &[f64; N], d: &[f64; N], by: f64| -> [f64; N] { std::array::from_fn(|i| y[i] + by * d[i]) };
    let mut y = start;
    let mut k1 = system.derive(0.0, &y, &look(&past, 0.0, &y)?);
    past.ring[0] = (y, k1);
    for n in 0..steps {
        let t = n as f64 * step;
        let (middle, end) = (t + 0.5 * step, (n + 1) as f64 * step);
        let y2 = along(&y, &k1, 0.5 * step);
        let k2 = system.derive(middle, &y2, &look(&past, middle, &y2)?);
        let y3 = along(&y, &k2, 0.5 * step);
        let k3 = system.derive(middle, &y3, &look(&past, middle, &y3)?);
        let y4 = along(&y, &k3, step);
        let k4 = system.derive(end, &y4, &look(&past, end, &y4)?);
        for i in 0..N {
            y[i] += step / 6.0 * (k1[i] + 2.0 * (k2[i] + k3[i]) + k4[i]);
        }
        system.confine(&mut y);
        if let Some(variable) = y.iter().position(|x| !x.is_finite()) {
            return Err(Error::Diverges { variable, at: end, step });
        }
        // The derivative at the end of the step uses values at least one step old.
        k1 = system.derive(end, &y, &look(&past, end, &y)?);
        past.last = n + 1;
        let place = past.last % kept;
        past.ring[place] = (y, k1);
        if past.last % every == 0 {
            see(end, &y)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `y' = -a y(t - d)` from 1.
    struct Linear {
        a: f64,
        d: f64,
    }

    impl Delayed<1, 1> for Linear {
        fn lags(&self, _t: f64, _y: &[f64; 1]) -> [f64; 1] {
            [self.d]
        }

        fn derive(&self, _t: f64, _y: &[f64; 1], past: &[[f64; 1]; 1]) -> [f64; 1] {
            [-self.a * past[0][0]]
        }
    }

    /// Method of steps: `y(t) = Σ (-a)^k (t - (k - 1) d)^k / k!` over k from 0 to 1 + floor(t / d).
    fn by_steps(a: f64, d: f64, t: f64) -> f64 {
        let mut sum = 1.0;
        for k in 1..=(t / d).floor() as u32 + 1 {
            let x = t - f64::from(k - 1) * d;
            sum += (1..=k).fold(1.0, |term, i| -term * a * x / f64::from(i));
        }
        sum
    }

    fn solved(system: &Linear, step: f64, end: f64) -> f64 {
        let (steps, mut last) = ((end / step).round() as usize, f64::NAN);
        integrate(system, [1.0], (step, steps), 2.0, steps, |_, y| {
            last = y[0];
            Ok(())
        })
        .unwrap();
        last
    }

    /// Error below 1e-6 over ten delays; halving the step divides it by at least sixteen, down to rounding errors.
    #[test]
    fn linear_delay_equation_converges() {
        let system = Linear { a: 1.0, d: 1.0 };
        let exact = by_steps(1.0, 1.0, 10.0);
        let error = |step| (solved(&system, step, 10.0) - exact).abs();
        assert!(error(0.01) < 1e-8, "{:e}", error(0.01));
        assert!(error(0.05) < 1.2 * error(0.1) / 16.0, "{:e} {:e}", error(0.05), error(0.1));
        // The delay is not a multiple of the step.
        let odd = Linear { a: 1.3, d: 0.777 };
        assert!((solved(&odd, 0.01, 7.0) - by_steps(1.3, 0.777, 7.0)).abs() < 1e-6);
    }

    /// For a d > π / 2 the solution oscillates and grows (Hayes 1950); at π / 2 it is a cosine.
    #[test]
    fn stability_limit_of_the_linear_equation_matches() {
        let pi = std::f64::consts::PI;
        let swing = |a: f64| {
            let (mut early, mut late) = (0.0f64, 0.0f64);
            integrate(&Linear { a, d: 1.0 }, [1.0], (0.01, 8000), 2.0, 1, |t, y| {
                let seen = if t < 20.0 { &mut early } else { &mut late };
                if !(20.0..60.0).contains(&t) {
                    *seen = seen.max(y[0].abs());
                }
                Ok(())
            })
            .unwrap();
            late / early
        };
        assert!(swing(0.99 * pi / 2.0) < 0.9);
        assert!(swing(1.01 * pi / 2.0) > 1.2);
    }

    #[test]
    fn delays_longer_than_the_history_are_rejected() {
        let wrong = integrate(&Linear { a: 1.0, d: 3.0 }, [1.0], (0.1, 10), 2.0, 1, |_, _| Ok(()));
        assert!(matches!(wrong, Err(Error::Delay { lag: 3.0, history: 2.0, .. })), "{wrong:?}");
        let nan = integrate(&Linear { a: 1.0, d: f64::NAN }, [1.0], (0.1, 10), 2.0, 1, |_, _| Ok(()));
        assert!(matches!(nan, Err(Error::Delay { .. })), "{nan:?}");
    }

    #[test]
    fn diverging_solutions_are_rejected() {
        let wrong = integrate(&Linear { a: -1e300, d: 0.1 }, [1.0], (0.1, 100), 2.0, 1, |_, _| Ok(()));
        assert!(matches!(wrong, Err(Error::Diverges { variable: 0, .. })), "{wrong:?}");
    }
}
