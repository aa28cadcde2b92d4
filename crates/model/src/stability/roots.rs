//! Characteristic roots of linear delay equations, by collocation.
//!
//! The history over the longest delay is represented at Chebyshev points. Its derivative there is that of the interpolating
//! polynomial, and at the end point that of the equations. The smallest eigenvalues of the resulting matrix approximate
//! characteristic roots to many digits (Breda, Maset & Vermiglio, SIAM J. Sci. Comput. 27, 2005). Newton's method on the
//! characteristic function refines them.

use nalgebra::{DMatrix, Schur};

use super::complex::{Complex, Elementary as _, ZERO, complex};
use super::linear::{Linear, TIMES};

/// Degree of the polynomials.
pub(crate) const DEGREE: usize = 16;

/// Maximum number of QR iterations per eigenvalue.
const MOST_ITERATIONS: usize = 200;

/// Returns the rightmost root of the closed loop, in the upper half-plane [1/s]; `None` without a loop. A root at zero,
/// of a conserved sum, is excluded.
pub(crate) fn rightmost(system: &Linear, closed: &[Vec<f64>; TIMES]) -> Option<Complex> {
    let zero = 1e-6 * system.bound(closed);
    let mut roots: Vec<Complex> = roots(system, closed, DEGREE)
        .into_iter()
        .filter(|root| root.abs() > zero && root.im >= -zero)
        .map(|root| complex(root.re, root.im.max(0.0)))
        .collect();
    roots.sort_by(|a, b| b.re.total_cmp(&a.re));
    // Refinement can change the order of the rightmost roots.
    roots
        .iter()
        .take(3)
        .map(|root| polished(system, closed, *root))
        .filter(|root| root.abs() > zero)
        .max_by(|a, b| a.re.total_cmp(&b.re))
}

/// Returns all eigenvalues of the collocation with polynomials of `degree` [1/s].
pub(crate) fn roots(system: &Linear, closed: &[Vec<f64>; TIMES], degree: usize) -> Vec<Complex> {
    let (n, longest) = (system.n, system.longest());
    if n == 0 {
        return Vec::new();
    }
    // In units of half the longest delay, so that the history spans -2 to 0; without delays, in seconds.
    let (degree, unit) = if longest > 0.0 { (degree, 0.5 * longest) } else { (0, 1.0) };
    let size = n * (degree + 1);
    let mut matrix = DMatrix::<f64>::zeros(size, size);
    let nodes: Vec<f64> =
        (0..=degree).map(|i| libm::cos(std::f64::consts::PI * i as f64 / degree.max(1) as f64)).collect();
    let weight = |i: usize| {
        let sign = if i.is_multiple_of(2) { 1.0 } else { -1.0 };
        if i == 0 || i == degree { 0.5 * sign } else { sign }
    };
    for (k, of) in closed.iter().enumerate() {
        let back = if k > 0 && system.delayed(k) { system.delays[k] } else { 0.0 };
        let values = through(&nodes, &weight, 1.0 - back / unit);
        for (node, value) in values.iter().enumerate() {
            for i in 0..n {
                for j in 0..n {
                    matrix[(i, node * n + j)] += unit * value * of[i * n + j];
                }
            }
        }
    }
    for row in 1..=degree {
        let mut diagonal = 0.0;
        let mut set = |node: usize, slope: f64| {
            for i in 0..n {
                matrix[(row * n + i, node * n + i)] = slope;
            }
        };
        for node in (0..=degree).filter(|&node| node != row) {
            let slope = weight(node) / weight(row) / (nodes[row] - nodes[node]);
            set(node, slope);
            diagonal -= slope;
        }
        set(row, diagonal);
    }
    // Bounded, because the iteration never ends with NaN; without convergence, no roots are returned.
    let schur = Schur::try_new(matrix, f64::EPSILON, MOST_ITERATIONS * size);
    let eigenvalues = schur.map(|schur| schur.complex_eigenvalues());
    eigenvalues.iter().flat_map(|all| all.iter()).map(|root| root.scale(1.0 / unit)).collect()
}

/// Returns the Lagrange polynomials of the nodes at `x` (barycentric formula).
fn through(nodes: &[f64], weight: &impl Fn(usize) -> f64, x: f64) -> Vec<f64> {
    if let Some(at) = nodes.iter().position(|node| (node - x).abs() < 1e-14) {
        return (0..nodes.len()).map(|i| f64::from(i == at)).collect();
    }
    let terms: Vec<f64> = nodes.iter().enumerate().map(|(i, node)| weight(i) / (x - node)).collect();
    let sum: f64 = terms.iter().sum();
    terms.into_iter().map(|term| term / sum).collect()
}

/// Refines a root by Newton's method; returns `start` if that does not converge near it.
fn polished(system: &Linear, closed: &[Vec<f64>; TIMES], start: Complex) -> Complex {
    let mut s = start;
    for _ in 0..20 {
        let h = 1e-6 * s.abs().max(1e-3);
        let value = system.characteristic(closed, s);
        let (above, below) = (
            system.characteristic(closed, complex(s.re + h, s.im)),
            system.characteristic(closed, complex(s.re - h, s.im)),
        );
        let slope = (above - below).scale(0.5 / h);
        if slope == ZERO {
            break;
        }
        let step = value / slope;
        s -= step;
        if step.abs() < 1e-12 * s.abs() {
            break;
        }
    }
    let near = (s - start).abs() < 0.1 * start.abs();
    if near && s.re.is_finite() && s.im.is_finite() { complex(s.re, s.im.abs()) } else { start }
}
