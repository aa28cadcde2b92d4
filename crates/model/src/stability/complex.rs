//! Complex arithmetic with elementary functions that are the same on every machine, and a linear solver.
//!
//! The arithmetic is `num-complex`. Its own `exp`, `norm` and `arg` use the platform's libm as soon as any crate of the build
//! enables `std`, so [`Elementary`] replaces them.

/// A complex number.
pub type Complex = nalgebra::Complex<f64>;

/// Zero.
pub const ZERO: Complex = complex(0.0, 0.0);
/// One.
pub const ONE: Complex = complex(1.0, 0.0);

/// Returns `re + j im`.
pub const fn complex(re: f64, im: f64) -> Complex {
    Complex { re, im }
}

/// Elementary functions from the crate `libm`.
pub trait Elementary {
    /// Returns the absolute value.
    fn abs(self) -> f64;
    /// Returns the angle, above -π and up to π [rad].
    fn angle(self) -> f64;
    /// Returns the exponential.
    fn exponential(self) -> Self;
}

impl Elementary for Complex {
    fn abs(self) -> f64 {
        libm::hypot(self.re, self.im)
    }

    fn angle(self) -> f64 {
        libm::atan2(self.im, self.re)
    }

    fn exponential(self) -> Self {
        let (sin, cos) = libm::sincos(self.im);
        let size = libm::exp(self.re);
        complex(size * cos, size * sin)
    }
}

/// Solves `matrix x = right` with `n` rows in place by Gaussian elimination with partial pivoting: `right` becomes `x`.
/// Returns the determinant; if it is zero, `x` is undefined.
pub fn solve(matrix: &mut [Complex], n: usize, right: &mut [Complex]) -> Complex {
    let mut determinant = ONE;
    for column in 0..n {
        let size = |row: usize, of: &[Complex]| of[row * n + column].abs();
        let mut pivot = column;
        for row in column + 1..n {
            if size(row, matrix) > size(pivot, matrix) {
                pivot = row;
            }
        }
        if pivot != column {
            for i in 0..n {
                matrix.swap(pivot * n + i, column * n + i);
            }
            right.swap(pivot, column);
            determinant = -determinant;
        }
        let head = matrix[column * n + column];
        determinant *= head;
        if head == ZERO {
            return ZERO;
        }
        for row in column + 1..n {
            let factor = matrix[row * n + column] / head;
            if factor != ZERO {
                for i in column..n {
                    let above = matrix[column * n + i];
                    matrix[row * n + i] -= factor * above;
                }
                right[row] -= factor * right[column];
            }
        }
    }
    for row in (0..n).rev() {
        let mut rest = right[row];
        for i in row + 1..n {
            rest -= matrix[row * n + i] * right[i];
        }
        right[row] = rest / matrix[row * n + row];
    }
    determinant
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elementary_functions_match_closed_forms() {
        let close = |a: Complex, b: Complex| (a - b).abs() < 1e-15;
        assert!(close(complex(0.0, std::f64::consts::PI).exponential(), complex(-1.0, 0.0)));
        assert_eq!(complex(3.0, -4.0).abs(), 5.0);
        assert_eq!(complex(-1.0, 0.0).angle(), std::f64::consts::PI);
    }

    /// `[[0, 2], [j, 1]] x = (2, 3)`: x = (-2j, 1), and the determinant is -2j.
    #[test]
    fn a_system_of_two_is_solved() {
        let mut matrix = [ZERO, complex(2.0, 0.0), complex(0.0, 1.0), ONE];
        let mut x = [complex(2.0, 0.0), complex(3.0, 0.0)];
        assert_eq!(solve(&mut matrix, 2, &mut x), complex(0.0, -2.0));
        assert_eq!(x, [complex(0.0, -2.0), ONE]);
    }
}
