//! Linearization around the operating point, with the loop opened at the marks.
//!
//! With the deviation `x` of the variables from the operating point and `u` of the share of marks,
//!
//! ```text
//! dx/dt = Σ A_k x(t-τ_k) + Σ B_k u(t-τ_k),   y = C x
//! ```
//!
//! where `τ_0` = 0, the others are the delays of the equations, and `y` is the share that the AQM would mark. The matrices are
//! central differences of the code that is integrated. Delays that depend on the queue are constant: at the operating point,
//! their variation is a second-order effect.
//!
//! Variables that marks do not affect, or that do not affect marks, are removed.

use bentpipe_queue::fluid::Arrivals;

use super::complex::{Complex, Elementary as _, ONE, ZERO, solve};
use super::rest::AtRest;
use crate::fluid::{AQM, Fluid, LAGS, QUEUE, SENDERS, VARIABLES};
use crate::solve::Delayed;

/// Maximum number of variables of a loop.
pub(crate) const MOST: usize = VARIABLES;
/// Number of times: now, and each delay ago.
pub(crate) const TIMES: usize = LAGS + 1;

/// An opened loop: linear delay equations from the share of marks that the senders see to the share that the AQM marks.
/// Variables are scaled to the same order of magnitude.
#[derive(Clone, Debug)]
pub(crate) struct Linear {
    /// Number of variables.
    pub n: usize,
    /// `τ_k` [s].
    pub delays: [f64; TIMES],
    /// `A_k`, row by row [1/s].
    pub a: [Vec<f64>; TIMES],
    /// `B_k`.
    pub b: [Vec<f64>; TIMES],
    /// `C`.
    pub c: Vec<f64>,
}

impl Linear {
    /// Linearizes around `rest`.
    pub fn of(rest: &AtRest) -> Self {
        let fluid = Fluid::new(&rest.system);
        let all: Vec<usize> = [SENDERS, QUEUE].into_iter().chain(AQM..AQM + rest.states).collect();
        let size = |i: usize| if i == QUEUE { rest.y[i].abs().max(1.0) } else { rest.y[i].abs().max(1e-3) };
        let lags = fluid.lags(0.0, &rest.y);
        let n = all.len();
        let mut a: [Vec<f64>; TIMES] = std::array::from_fn(|_| vec![0.0; n * n]);
        let mut b: [Vec<f64>; TIMES] = std::array::from_fn(|_| vec![0.0; n]);
        for k in 0..TIMES {
            let column = |variable: usize| -> Vec<f64> {
                let step =
                    STEP * if variable == rest.cut() { rest.point.p.max(1e-9) } else { size(variable) };
                let at = |by: f64| {
                    let mut times: [[f64; VARIABLES]; TIMES] = [rest.y; TIMES];
                    times[k][variable] += by;
                    fluid.derive(0.0, &times[0], &std::array::from_fn(|lag| times[lag + 1]))
                };
                let (above, below) = (at(step), at(-step));
                all.iter().map(|&i| (above[i] - below[i]) / (2.0 * step * size(i))).collect()
            };
            for (j, &variable) in all.iter().enumerate() {
                for (i, slope) in column(variable).into_iter().enumerate() {
                    a[k][i * n + j] = slope * size(variable);
                }
            }
            b[k] = column(rest.cut());
        }
        let load = fluid.rates(0.0, &rest.y).load;
        let arrivals = Arrivals { q: 0.0, load, capacity: rest.system.capacity.at(0.0) };
        let mark = |variable: usize, by: f64| {
            let mut y = rest.y;
            y[variable] += by;
            let arrivals = Arrivals { q: y[QUEUE].max(0.0), ..arrivals };
            rest.aqm.mark(&y[AQM..AQM + rest.states], &arrivals)
        };
        let c = all.iter().map(|&i| {
            let step = STEP * size(i);
            (mark(i, step) - mark(i, -step)) / (2.0 * STEP)
        });
        let c = c.collect();
        Self { n, delays: std::array::from_fn(|k| if k == 0 { 0.0 } else { lags[k - 1] }), a, b, c }
            .loop_only()
    }

    /// Removes variables that marks do not affect or that do not affect marks.
    fn loop_only(self) -> Self {
        let n = self.n;
        let linked = |i: usize, j: usize| self.a.iter().any(|a| a[i * n + j].abs() > NOTHING);
        let spread = |mut reached: Vec<bool>, back: bool| {
            for _ in 0..n {
                for i in 0..n {
                    for j in 0..n {
                        let (from, to) = if back { (i, j) } else { (j, i) };
                        reached[to] |= reached[from] && linked(i, j);
                    }
                }
            }
            reached
        };
        let marked = spread((0..n).map(|i| self.b.iter().any(|b| b[i].abs() > NOTHING)).collect(), false);
        let marking = spread(self.c.iter().map(|c| c.abs() > NOTHING).collect(), true);
        let kept: Vec<usize> = (0..n).filter(|&i| marked[i] && marking[i]).collect();
        Self {
            n: kept.len(),
            delays: self.delays,
            a: self.a.map(|a| {
                kept.iter().flat_map(|i| kept.iter().map(|j| a[i * n + j]).collect::<Vec<_>>()).collect()
            }),
            b: self.b.map(|b| kept.iter().map(|&i| b[i]).collect()),
            c: kept.iter().map(|&i| self.c[i]).collect(),
        }
    }

    /// Returns true if the `k`-th delay is part of the loop and not zero.
    pub fn delayed(&self, k: usize) -> bool {
        self.delays[k] > 0.0 && self.passes(k)
    }

    /// Returns true if the `k`-th delay is part of the loop.
    pub fn passes(&self, k: usize) -> bool {
        self.a[k].iter().chain(&self.b[k]).any(|x| x.abs() > NOTHING)
    }

    /// Returns the matrices of the closed loop: `M_k = A_k + B_k C`, row by row.
    pub fn closed(&self) -> [Vec<f64>; TIMES] {
        let n = self.n;
        std::array::from_fn(|k| {
            (0..n * n).map(|at| self.a[k][at] + self.b[k][at / n] * self.c[at % n]).collect()
        })
    }

    /// Returns `e^{-s τ_k}` for each delay.
    fn turns(&self, s: Complex) -> [Complex; TIMES] {
        std::array::from_fn(
            |k| if self.delays[k] == 0.0 { ONE } else { s.scale(-self.delays[k]).exponential() },
        )
    }

    /// Returns `s I - Σ M_k e^{-s τ_k}` for the matrices `of`.
    fn at(&self, of: &[Vec<f64>; TIMES], s: Complex, turns: &[Complex; TIMES]) -> [Complex; MOST * MOST] {
        let n = self.n;
        let mut matrix = [ZERO; MOST * MOST];
        for (at, cell) in matrix.iter_mut().take(n * n).enumerate() {
            *cell = if at / n == at % n { s } else { ZERO };
            for (m, turn) in of.iter().zip(turns) {
                *cell -= turn.scale(m[at]);
            }
        }
        matrix
    }

    /// Returns the transfer function `L(s) = -C (s I - Σ A_k e^{-s τ_k})⁻¹ Σ B_k e^{-s τ_k}`, for negative feedback.
    pub fn transfer(&self, s: Complex) -> Complex {
        let turns = self.turns(s);
        let mut matrix = self.at(&self.a, s, &turns);
        let mut x = [ZERO; MOST];
        for (b, turn) in self.b.iter().zip(&turns) {
            for (x, b) in x.iter_mut().zip(b) {
                *x += turn.scale(*b);
            }
        }
        solve(&mut matrix, self.n, &mut x);
        -x.iter().zip(&self.c).fold(ZERO, |sum, (x, c)| sum + x.scale(*c))
    }

    /// Returns the characteristic function `det(s I - Σ M_k e^{-s τ_k})` of the closed loop.
    pub fn characteristic(&self, closed: &[Vec<f64>; TIMES], s: Complex) -> Complex {
        let mut matrix = self.at(closed, s, &self.turns(s));
        solve(&mut matrix, self.n, &mut [ZERO; MOST])
    }

    /// Returns an upper bound for the absolute value of roots in the right half-plane: the maximum row sum over all
    /// matrices [1/s].
    pub fn bound(&self, closed: &[Vec<f64>; TIMES]) -> f64 {
        let row = |i: usize, of: &[Vec<f64>; TIMES]| -> f64 {
            of.iter().flat_map(|m| m[i * self.n..(i + 1) * self.n].iter()).map(|x| x.abs()).sum()
        };
        (0..self.n).map(|i| row(i, closed).max(row(i, &self.a))).fold(0.0, f64::max)
    }

    /// Returns the longest delay in the loop [s].
    pub fn longest(&self) -> f64 {
        (1..TIMES).filter(|k| self.delayed(*k)).map(|k| self.delays[k]).fold(0.0, f64::max)
    }
}

/// Relative step of the central differences.
const STEP: f64 = 1e-5;
/// Slopes below this are rounding errors, in scaled units [1/s].
const NOTHING: f64 = 1e-7;
