//! Characteristic roots of linear equations with delays, by collocation.
//!
//! What the equations remember, a function on the longest delay, is held at Chebyshev points. Its derivative there is that
//! of the polynomial through them, and at the end, where time goes on, what the equations say: a matrix whose eigenvalues of
//! least size are characteristic roots to many digits (Breda, Maset & Vermiglio, SIAM J. Sci. Comput. 27, 2005). Newton's
//! method on the characteristic function itself takes the rest of the error off.

use super::complex::{Complex, complex};
use super::linear::{Linear, TIMES};

/// Degree of the polynomials.
pub(crate) const DEGREE: usize = 16;

/// The rightmost root of the loop `system` closed to `closed`, in the upper half of the plane [1/s]; none where there is no
/// loop. A root at zero, for a sum that the equations conserve, is left out.
pub(crate) fn rightmost(system: &Linear, closed: &[Vec<f64>; TIMES]) -> Option<Complex> {
    let zero = 1e-6 * system.bound(closed);
    let mut roots: Vec<Complex> = roots(system, closed, DEGREE)
        .into_iter()
        .filter(|root| root.abs() > zero && root.im >= -zero)
        .map(|root| complex(root.re, root.im.max(0.0)))
        .collect();
    roots.sort_by(|a, b| b.re.total_cmp(&a.re));
    // Newton's method may change which one is rightmost by a little.
    roots
        .iter()
        .take(3)
        .map(|root| polished(system, closed, *root))
        .filter(|root| root.abs() > zero)
        .max_by(|a, b| a.re.total_cmp(&b.re))
}

/// All eigenvalues of the collocation with polynomials of `degree` [1/s].
pub(crate) fn roots(system: &Linear, closed: &[Vec<f64>; TIMES], degree: usize) -> Vec<Complex> {
    let (n, longest) = (system.n, system.longest());
    if n == 0 {
        return Vec::new();
    }
    // In units of half the longest delay, so that time is from -2 to 0; without delays, of a second.
    let (degree, unit) = if longest > 0.0 { (degree, 0.5 * longest) } else { (0, 1.0) };
    let size = n * (degree + 1);
    let mut matrix = vec![Complex::ZERO; size * size];
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
                    let cell = &mut matrix[i * size + node * n + j];
                    cell.re += unit * value * of[i * n + j];
                }
            }
        }
    }
    for row in 1..=degree {
        let mut diagonal = 0.0;
        let mut set = |node: usize, slope: f64| {
            for i in 0..n {
                matrix[(row * n + i) * size + node * n + i].re = slope;
            }
        };
        for node in (0..=degree).filter(|&node| node != row) {
            let slope = weight(node) / weight(row) / (nodes[row] - nodes[node]);
            set(node, slope);
            diagonal -= slope;
        }
        set(row, diagonal);
    }
    let mut found = eigenvalues(matrix, size);
    for root in &mut found {
        *root = root.scale(1.0 / unit);
    }
    found
}

/// What the polynomials that are one at a node and zero at the others are at `x` (the barycentric formula).
fn through(nodes: &[f64], weight: &impl Fn(usize) -> f64, x: f64) -> Vec<f64> {
    if let Some(at) = nodes.iter().position(|node| (node - x).abs() < 1e-14) {
        return (0..nodes.len()).map(|i| f64::from(i == at)).collect();
    }
    let terms: Vec<f64> = nodes.iter().enumerate().map(|(i, node)| weight(i) / (x - node)).collect();
    let sum: f64 = terms.iter().sum();
    terms.into_iter().map(|term| term / sum).collect()
}

/// Newton's method on the characteristic function from `start`; `start` itself where that leads nowhere near.
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
        if slope == Complex::ZERO {
            break;
        }
        let step = value / slope;
        s = s - step;
        if step.abs() < 1e-12 * s.abs() {
            break;
        }
    }
    let near = (s - start).abs() < 0.1 * start.abs();
    if near && s.re.is_finite() && s.im.is_finite() { complex(s.re, s.im.abs()) } else { start }
}

/// The eigenvalues of a matrix of `n` rows: brought to Hessenberg form by elimination, then by QR steps with Wilkinson's
/// shift and Givens rotations (Golub & Van Loan, Matrix Computations, chapter 7).
pub(crate) fn eigenvalues(mut matrix: Vec<Complex>, n: usize) -> Vec<Complex> {
    hessenberg(&mut matrix, n);
    let mut found = Vec::with_capacity(n);
    let mut end = n;
    let mut steps = 0;
    while end > 0 {
        // The lowest entry below the diagonal that is as good as zero splits the rest off.
        let at = |i: usize, j: usize, of: &[Complex]| of[i * n + j];
        let mut first = end - 1;
        while first > 0 {
            let beside = at(first, first, &matrix).abs() + at(first - 1, first - 1, &matrix).abs();
            if at(first, first - 1, &matrix).abs() <= f64::EPSILON * beside {
                break;
            }
            first -= 1;
        }
        if first == end - 1 {
            found.push(at(first, first, &matrix));
            end -= 1;
            steps = 0;
            continue;
        }
        steps += 1;
        if steps > 200 {
            // Never seen; what is left of the diagonal is close.
            found.extend((0..end).map(|i| matrix[i * n + i]));
            break;
        }
        let (a, b) = (at(end - 2, end - 2, &matrix), at(end - 2, end - 1, &matrix));
        let (c, d) = (at(end - 1, end - 2, &matrix), at(end - 1, end - 1, &matrix));
        let half = (a - d).scale(0.5);
        let root = (half * half + b * c).sqrt();
        let mean = (a + d).scale(0.5);
        let (one, other) = (mean + root, mean - root);
        let mut shift = if (one - d).abs() < (other - d).abs() { one } else { other };
        if steps % 20 == 0 {
            // A shift out of line, where the steps go round in circles.
            shift = shift + complex(c.abs(), 0.0);
        }
        qr_step(&mut matrix, n, first, end, shift);
    }
    found
}

/// Brings `matrix` to Hessenberg form by elimination with pivoting.
fn hessenberg(matrix: &mut [Complex], n: usize) {
    for column in 0..n.saturating_sub(2) {
        let mut pivot = column + 1;
        for row in column + 2..n {
            if matrix[row * n + column].abs() > matrix[pivot * n + column].abs() {
                pivot = row;
            }
        }
        let head = matrix[pivot * n + column];
        if head == Complex::ZERO {
            continue;
        }
        if pivot != column + 1 {
            for i in 0..n {
                matrix.swap(pivot * n + i, (column + 1) * n + i);
            }
            for i in 0..n {
                matrix.swap(i * n + pivot, i * n + column + 1);
            }
        }
        for row in column + 2..n {
            let factor = matrix[row * n + column] / head;
            if factor == Complex::ZERO {
                continue;
            }
            for i in column..n {
                let other = matrix[(column + 1) * n + i];
                matrix[row * n + i] = matrix[row * n + i] - factor * other;
            }
            for i in 0..n {
                let other = matrix[i * n + row];
                matrix[i * n + column + 1] = matrix[i * n + column + 1] + factor * other;
            }
        }
    }
}

/// A QR step with `shift` on the rows and columns from `first` to before `end`.
fn qr_step(matrix: &mut [Complex], n: usize, first: usize, end: usize, shift: Complex) {
    for i in first..end {
        matrix[i * n + i] = matrix[i * n + i] - shift;
    }
    let mut rotations = Vec::with_capacity(end - first);
    for i in first..end - 1 {
        let (a, b) = (matrix[i * n + i], matrix[(i + 1) * n + i]);
        let size = libm::hypot(a.abs(), b.abs());
        let (c, s) = if size == 0.0 {
            (Complex::ONE, Complex::ZERO)
        } else {
            (a.scale(1.0 / size), b.scale(1.0 / size))
        };
        for j in i..end {
            let (x, y) = (matrix[i * n + j], matrix[(i + 1) * n + j]);
            matrix[i * n + j] = c.conj() * x + s.conj() * y;
            matrix[(i + 1) * n + j] = c * y - s * x;
        }
        rotations.push((c, s));
    }
    for (i, (c, s)) in (first..).zip(rotations) {
        for j in first..(i + 2).min(end) {
            let (x, y) = (matrix[j * n + i], matrix[j * n + i + 1]);
            matrix[j * n + i] = x * c + y * s;
            matrix[j * n + i + 1] = y * c.conj() - x * s.conj();
        }
    }
    for i in first..end {
        matrix[i * n + i] = matrix[i * n + i] + shift;
    }
}
