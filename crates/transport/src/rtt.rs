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
