//! Fourier series.

use std::f64::consts::TAU;

use bentpipe_scenario::Fourier;

/// A Fourier series with its period: `mean + Σ cos_k cos(2πkt/P) + sin_k sin(2πkt/P)`.
#[derive(Clone, Debug)]
pub struct Series {
    period: f64,
    of: Fourier,
}

impl Series {
    /// Returns a series with a period [s].
    #[must_use]
    pub const fn new(of: Fourier, period: f64) -> Self {
        Self { period, of }
    }

    /// Returns a constant.
    #[must_use]
    pub const fn constant(value: f64) -> Self {
        Self { period: 1.0, of: Fourier::constant(value) }
    }

    /// Returns the mean.
    #[must_use]
    pub const fn mean(&self) -> f64 {
        self.of.mean
    }

    /// Returns the value at `t` [s] and the derivative [1/s].
    #[must_use]
    pub fn at(&self, t: f64) -> (f64, f64) {
        let (mut value, mut slope) = (self.of.mean, 0.0);
        if self.of.cos.is_empty() {
            return (value, slope);
        }
        let base = TAU / self.period;
        // Reduced to the first period, where angles are exact.
        let (s, c) = libm::sincos(base * (t - self.period * (t / self.period).floor()));
        // The k-th angle by rotation of the previous one, with an error of about k roundings.
        let (mut sin, mut cos) = (0.0, 1.0);
        for (k, (a, b)) in self.of.cos.iter().zip(&self.of.sin).enumerate() {
            (sin, cos) = (sin * c + cos * s, cos * c - sin * s);
            value += a * cos + b * sin;
            slope += base * (k + 1) as f64 * (b * cos - a * sin);
        }
        (value, slope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2 + 3 cos(πt) - sin(2πt) with period 2: at 0 the value is 5 with slope -2π, at 1/2 it is 2 with slope -3π + 2π,
    /// and 100 periods later the same.
    #[test]
    fn fourier_series_and_slope_match() {
        let pi = std::f64::consts::PI;
        let series = Series::new(Fourier { mean: 2.0, cos: vec![3.0, 0.0], sin: vec![0.0, -1.0] }, 2.0);
        for (t, value, slope) in [(0.0, 5.0, -2.0 * pi), (0.5, 2.0, -pi), (200.5, 2.0, -pi), (-1.5, 2.0, -pi)]
        {
            let found = series.at(t);
            assert!((found.0 - value).abs() < 1e-12 && (found.1 - slope).abs() < 1e-11, "{found:?} at {t}");
        }
    }
}
