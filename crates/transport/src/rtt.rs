//! The smoothed round-trip time of RFC 6298, which RFC 9260 (SCTP) and RFC 9002 (QUIC) use as well.

use bentpipe_units::Duration;

/// Shortest interval of a timer, whatever the configuration says: a timer of zero would expire forever.
pub(crate) const MIN_TIMER: Duration = Duration::from_micros(1);

/// Smoothed round-trip time and its mean deviation.
#[derive(Clone, Debug, Default)]
pub(crate) struct SmoothedRtt {
    /// SRTT; zero before the first measurement, unless an initial value was set.
    pub(crate) srtt: Duration,
    /// RTTVAR.
    pub(crate) rttvar: Duration,
}

impl SmoothedRtt {
    /// The state after a first measurement of `r`, RFC 6298 (2.2): SRTT <- R, RTTVAR <- R/2.
    pub(crate) fn first(r: Duration) -> Self {
        Self { srtt: r, rttvar: r.part(2) }
    }

    /// A further measurement `r`, RFC 6298 (2.3), with gains 1/`srtt_divisor` and 1/`rttvar_divisor`; the RFC has 8 and 4.
    #[inline]
    pub(crate) fn update(&mut self, r: Duration, srtt_divisor: u64, rttvar_divisor: u64) {
        // RTTVAR <- (1 - beta) RTTVAR + beta |SRTT - R'|, before SRTT <- (1 - alpha) SRTT + alpha R'.
        let deviation = self.srtt.saturating_sub(r) + r.saturating_sub(self.srtt);
        self.rttvar = weighted(self.rttvar, deviation, rttvar_divisor);
        self.srtt = weighted(self.srtt, r, srtt_divisor);
    }
}

/// `old` moved by 1/`n` of its distance to `sample`, rounded down to a nanosecond.
#[inline]
pub(crate) fn weighted(old: Duration, sample: Duration, n: u64) -> Duration {
    let (old, sample) = (old.as_nanos(), sample.as_nanos());
    let sum = old.checked_mul(n - 1).and_then(|rest| rest.checked_add(sample));
    // Wider numbers are slower, and only needed beyond seventy years.
    let wide = || ((u128::from(old) * u128::from(n - 1) + u128::from(sample)) / u128::from(n)) as u64;
    Duration::from_nanos(sum.map_or_else(wide, |sum| sum / n))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6298 (2.2), (2.3), worked out by hand:
    ///
    /// - R = 100 ms: SRTT = 100, RTTVAR = 50;
    /// - R' = 200: RTTVAR = 3/4 x 50 + 1/4 x 100 = 62.5, SRTT = 7/8 x 100 + 1/8 x 200 = 112.5;
    /// - R' = 12.5: RTTVAR = 3/4 x 62.5 + 1/4 x 100 = 71.875, SRTT = 7/8 x 112.5 + 1/8 x 12.5 = 100.
    #[test]
    fn measurements_follow_rfc_6298() {
        let state = |rtt: &SmoothedRtt| (rtt.srtt.as_nanos(), rtt.rttvar.as_nanos());
        let mut rtt = SmoothedRtt::first(Duration::from_millis(100));
        assert_eq!(state(&rtt), (100_000_000, 50_000_000));
        rtt.update(Duration::from_millis(200), 8, 4);
        assert_eq!(state(&rtt), (112_500_000, 62_500_000));
        rtt.update(Duration::from_micros(12_500), 8, 4);
        assert_eq!(state(&rtt), (100_000_000, 71_875_000));
    }

    /// 7/8 of 100 and 1/8 of 204 are 113; 0.875 less is rounded down. The product of 2^62 and 7 and the sum of 2^64 - 1
    /// and 3 exceed 64 bits; the mean of the latter is 2^63 + 1.
    #[test]
    fn means_are_rounded_down_and_exact_beyond_64_bits() {
        let mean = |old: u64, sample: u64, n: u64| {
            weighted(Duration::from_nanos(old), Duration::from_nanos(sample), n).as_nanos()
        };
        assert_eq!((mean(100, 204, 8), mean(100, 203, 8)), (113, 112));
        assert_eq!(mean(1 << 62, (1 << 62) + 8, 8), (1 << 62) + 1);
        assert_eq!(mean(u64::MAX, 3, 2), (1 << 63) + 1);
    }
}
