//! The retransmission timeout, RFC 9260 section 6.3.1.

use bentpipe_units::{Duration, Instant};

use super::Config;

/// The least interval of a timer, whatever the configuration says: an RTO of nothing would go off for ever.
const FLOOR: Duration = Duration::from_micros(1);

/// Estimator of the round trip and what follows from it.
#[derive(Clone, Debug)]
pub(super) struct Rto {
    /// SRTT; zero before the first measurement.
    srtt: Duration,
    rttvar: Duration,
    /// The latest measurement; zero before the first.
    latest: Duration,
    /// RTO, as backed off.
    interval: Duration,
    /// The TSN being timed and when it left; zero for the set-up.
    timed: Option<(u64, Instant)>,
}

impl Rto {
    pub(super) fn new(cfg: &Config) -> Self {
        // C1: until a round trip has been measured, RTO.Initial.
        let interval = cfg.rto_initial.min(cfg.rto_max).max(FLOOR);
        Self { srtt: Duration::ZERO, rttvar: Duration::ZERO, latest: Duration::ZERO, interval, timed: None }
    }

    /// A TSN leaves for the first time. C4: one measurement per round trip.
    #[inline]
    pub(super) fn on_sent(&mut self, now: Instant, tsn: u64) {
        if self.timed.is_none() {
            self.timed = Some((tsn, now));
        }
    }

    /// A TSN is sent again. C5, Karn's rule: no measurement from what was retransmitted.
    #[inline]
    pub(super) fn on_resent(&mut self, tsn: u64) {
        if self.timed.is_some_and(|(timed, _)| timed == tsn) {
            self.timed = None;
        }
    }

    /// A TSN is acknowledged.
    #[inline]
    pub(super) fn on_acked(&mut self, cfg: &Config, now: Instant, tsn: u64) {
        if let Some((timed, at)) = self.timed
            && timed == tsn
        {
            self.timed = None;
            self.measured(cfg, now - at);
        }
    }

    /// Takes in a round trip of `r`.
    fn measured(&mut self, cfg: &Config, r: Duration) {
        let r = r.max(Duration::from_nanos(1));
        self.latest = r;
        if self.srtt.is_zero() {
            // C2: SRTT <- R, RTTVAR <- R/2.
            self.srtt = r;
            self.rttvar = r.part(2);
        } else {
            // C3: RTTVAR <- (1 - RTO.Beta) RTTVAR + RTO.Beta |SRTT - R'|, then SRTT likewise with RTO.Alpha.
            let deviation = self.srtt.saturating_sub(r) + r.saturating_sub(self.srtt);
            self.rttvar = weighted(self.rttvar, deviation, cfg.rto_beta);
            self.srtt = weighted(self.srtt, r, cfg.rto_alpha);
        }
        // G1: a deviation of zero is one of the clock.
        if self.rttvar.is_zero() {
            self.rttvar = cfg.clock_granularity;
        }
        // C2, C3: RTO <- SRTT + 4 RTTVAR; C6, C7: its bounds. It collapses again after doubling (section 6.3.3).
        let rto = self.srtt + self.rttvar.times(4);
        self.interval = rto.max(cfg.rto_min).min(cfg.rto_max).max(FLOOR);
    }

    /// E2: RTO <- 2 RTO, no more than RTO.Max.
    pub(super) fn back_off(&mut self, cfg: &Config) {
        self.interval = self.interval.times(2).min(cfg.rto_max).max(FLOOR);
    }

    #[inline]
    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    /// The latest round trip measured, if any.
    pub(super) fn latest(&self) -> Option<Duration> {
        (!self.latest.is_zero()).then_some(self.latest)
    }

    /// SRTT, once there was a measurement.
    pub(super) fn srtt(&self) -> Option<Duration> {
        (!self.srtt.is_zero()).then_some(self.srtt)
    }
}

/// `old` moved by one `n`-th of its distance to `sample`, to the nanosecond below.
fn weighted(old: Duration, sample: Duration, n: u32) -> Duration {
    let n = u128::from(n.max(1));
    let sum = u128::from(old.as_nanos()) * (n - 1) + u128::from(sample.as_nanos());
    Duration::from_nanos((sum / n) as u64)
}
