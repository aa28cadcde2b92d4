//! Complex numbers, as far as characteristic equations need them.

use std::ops::{Add, Div, Mul, Neg, Sub};

/// `re + j im`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Complex {
    pub re: f64,
    pub im: f64,
}

/// `re + j im`.
pub const fn complex(re: f64, im: f64) -> Complex {
    Complex { re, im }
}

impl Complex {
    pub const ZERO: Self = complex(0.0, 0.0);
    pub const ONE: Self = complex(1.0, 0.0);

    pub fn abs(self) -> f64 {
        libm::hypot(self.re, self.im)
    }

    /// The angle, above -π and up to π.
    pub fn arg(self) -> f64 {
        libm::atan2(self.im, self.re)
    }

    pub const fn conj(self) -> Self {
        complex(self.re, -self.im)
    }

    pub fn exp(self) -> Self {
        let (sin, cos) = libm::sincos(self.im);
        let size = libm::exp(self.re);
        complex(size * cos, size * sin)
    }

    /// The root in the right half of the plane.
    pub fn sqrt(self) -> Self {
        let size = self.abs();
        let im = (0.5 * (size - self.re)).max(0.0).sqrt();
        complex((0.5 * (size + self.re)).max(0.0).sqrt(), if self.im < 0.0 { -im } else { im })
    }

    pub fn scale(self, by: f64) -> Self {
        complex(by * self.re, by * self.im)
    }
}

impl Add for Complex {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        complex(self.re + other.re, self.im + other.im)
    }
}

impl Sub for Complex {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        complex(self.re - other.re, self.im - other.im)
    }
}

impl Neg for Complex {
    type Output = Self;
    fn neg(self) -> Self {
        complex(-self.re, -self.im)
    }
}

impl Mul for Complex {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        complex(self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re)
    }
}

impl Div for Complex {
    type Output = Self;
    /// Smith's method: no overflow where the quotient has none.
    fn div(self, by: Self) -> Self {
        if by.re.abs() >= by.im.abs() {
            let ratio = by.im / by.re;
            let size = by.re + by.im * ratio;
            complex((self.re + self.im * ratio) / size, (self.im - self.re * ratio) / size)
        } else {
            let ratio = by.re / by.im;
            let size = by.re * ratio + by.im;
            complex((self.re * ratio + self.im) / size, (self.im * ratio - self.re) / size)
        }
    }
}

/// Solves `matrix x = right` of `n` rows in place, by Gaussian elimination with partial pivoting: `right` becomes `x`. Gives
/// the determinant; where that is zero, `x` is of no use.
pub fn solve(matrix: &mut [Complex], n: usize, right: &mut [Complex]) -> Complex {
    let mut determinant = Complex::ONE;
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
        determinant = determinant * head;
        if head == Complex::ZERO {
            return Complex::ZERO;
        }
        for row in column + 1..n {
            let factor = matrix[row * n + column] / head;
            if factor != Complex::ZERO {
                for i in column..n {
                    let above = matrix[column * n + i];
                    matrix[row * n + i] = matrix[row * n + i] - factor * above;
                }
                right[row] = right[row] - factor * right[column];
            }
        }
    }
    for row in (0..n).rev() {
        let mut rest = right[row];
        for i in row + 1..n {
            rest = rest - matrix[row * n + i] * right[i];
        }
        right[row] = rest / matrix[row * n + row];
    }
    determinant
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (1 + j)² = 2j, its root is 1 + j again; e^{jπ} = -1; (3 + 4j) / (1 - 2j) = (-5 + 10j) / 5.
    #[test]
    fn arithmetic() {
        let close = |a: Complex, b: Complex| (a - b).abs() < 1e-15;
        assert!(close(complex(1.0, 1.0) * complex(1.0, 1.0), complex(0.0, 2.0)));
        assert!(close(complex(0.0, 2.0).sqrt(), complex(1.0, 1.0)));
        assert!(close(complex(0.0, -2.0).sqrt(), complex(1.0, -1.0)));
        assert!(close(complex(0.0, std::f64::consts::PI).exp(), complex(-1.0, 0.0)));
        assert!(close(complex(3.0, 4.0) / complex(1.0, -2.0), complex(-1.0, 2.0)));
    }

    /// `[[0, 2], [j, 1]] x = (2, 3)`: x = (-2j, 1), and the determinant is -2j.
    #[test]
    fn a_system_of_two() {
        let mut matrix = [Complex::ZERO, complex(2.0, 0.0), complex(0.0, 1.0), Complex::ONE];
        let mut x = [complex(2.0, 0.0), complex(3.0, 0.0)];
        assert_eq!(solve(&mut matrix, 2, &mut x), complex(0.0, -2.0));
        assert_eq!(x, [complex(0.0, -2.0), Complex::ONE]);
    }
}
