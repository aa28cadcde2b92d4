//! Histograms of delays, as Prometheus counts them.

use bentpipe_units::Duration;

/// Upper bounds of the buckets [ns]: 1, 2 and 5 times a power of ten.
pub const BOUNDS: [u64; 12] = [
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
];

/// Numbers of delays by bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Delays up to each of [`BOUNDS`] and above the bound before; last, those above all bounds.
    pub counts: [u64; BOUNDS.len() + 1],
    /// Sum of all delays [ns].
    pub sum_ns: u64,
}

impl Histogram {
    /// Counts a delay.
    pub fn observe(&mut self, delay: Duration) {
        let ns = delay.as_nanos();
        let bucket = BOUNDS.partition_point(|bound| *bound < ns);
        self.counts[bucket] += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
    }

    /// Number of delays.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The delays counted since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut counts = self.counts;
        for (new, old) in counts.iter_mut().zip(before.counts) {
            *new = new.saturating_sub(old);
        }
        Self { counts, sum_ns: self.sum_ns.saturating_sub(before.sum_ns) }
    }

    /// Mean [s]; `None` without delays.
    #[must_use]
    pub fn mean_s(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.sum_ns as f64 / self.count() as f64 * 1e-9)
    }

    /// Quantile [s], with delays spread evenly over their bucket as in Prometheus' `histogram_quantile`; `None` without delays.
    #[must_use]
    pub fn quantile_s(&self, q: f64) -> Option<f64> {
        let wanted = q * self.count() as f64;
        let mut below = 0.0;
        if self.count() == 0 {
            return None;
        }
        for (i, bound) in BOUNDS.iter().enumerate() {
            let inside = self.counts[i] as f64;
            if inside > 0.0 && below + inside >= wanted {
                let low = if i == 0 { 0 } else { BOUNDS[i - 1] } as f64;
                return Some((low + (*bound as f64 - low) * ((wanted - below) / inside).max(0.0)) * 1e-9);
            }
            below += inside;
        }
        BOUNDS.last().map(|bound| *bound as f64 * 1e-9)
    }
}
