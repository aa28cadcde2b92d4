//! Retransmission timeout, RFC 9260 section 6.3.1.

use bentpipe_units::{Duration, Instant};

use super::Config;
use crate::rtt::{MIN_TIMER, SmoothedRtt};

/// RTT estimator and retransmission timeout.
#[derive(Clone, Debug, Default)]
pub(super) struct Rto {
    smoothed: SmoothedRtt,
    /// Latest measurement; zero before the first.
    latest: Duration,
    /// RTO, including backoff.
    interval: Duration,
    /// TSN being timed, zero for the setup, and its transmission time.
    timed: Option<(u64, Instant)>,
}

impl Rto {
    pub(super) fn new(cfg: &Config) -> Self {
        // C1: RTO.Initial applies until an RTT has been measured.
        let interval = cfg.rto_initial.min(cfg.rto_max).max(MIN_TIMER);
        Self { smoothed: SmoothedRtt::default(), latest: Duration::ZERO, interval, timed: None }
    }

    /// Takes note of a new TSN. C4: one measurement per RTT.
    #[inline]
    pub(super) fn on_sent(&mut self, now: Instant, tsn: u64) {
        if self.timed.is_none() {
            self.timed = Some((tsn, now));
        }
    }

    /// Takes note of a retransmitted TSN. C5, Karn's rule: retransmissions give no measurement.
    #[inline]
    pub(super) fn on_resent(&mut self, tsn: u64) {
        if self.timed.is_some_and(|(timed, _)| timed == tsn) {
            self.timed = None;
        }
    }

    /// Takes note of an acknowledged TSN.
    #[inline]
    pub(super) fn on_acked(&mut self, cfg: &Config, now: Instant, tsn: u64) {
        if let Some((timed, at)) = self.timed
            && timed == tsn
        {
            self.timed = None;
            self.measured(cfg, now - at);
        }
    }

    /// Processes a measurement `r`.
    fn measured(&mut self, cfg: &Config, r: Duration) {
        let r = r.max(Duration::from_nanos(1));
        self.latest = r;
        if self.smoothed.srtt.is_zero() {
            // C2.
            self.smoothed = SmoothedRtt::first(r);
        } else {
            // C3.
            self.smoothed.update(r, cfg.rto_alpha.max(1).into(), cfg.rto_beta.max(1).into());
        }
        // G1: an RTTVAR of zero becomes the clock granularity.
        if self.smoothed.rttvar.is_zero() {
            self.smoothed.rttvar = cfg.clock_granularity;
        }
        // C2, C3: RTO <- SRTT + 4 RTTVAR; C6, C7: its limits. A measurement ends the backoff (section 6.3.3).
        let rto = self.smoothed.srtt + self.smoothed.rttvar.times(4);
        self.interval = rto.max(cfg.rto_min).min(cfg.rto_max).max(MIN_TIMER);
    }

    /// E2: RTO <- 2 RTO, at most RTO.Max.
    pub(super) fn back_off(&mut self, cfg: &Config) {
        self.interval = self.interval.times(2).min(cfg.rto_max).max(MIN_TIMER);
    }

    #[inline]
    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    /// Latest RTT measured; `None` before the first.
    pub(super) fn latest(&self) -> Option<Duration> {
        (!self.latest.is_zero()).then_some(self.latest)
    }

    /// SRTT; `None` before the first measurement.
    pub(super) fn srtt(&self) -> Option<Duration> {
        (!self.smoothed.srtt.is_zero()).then_some(self.smoothed.srtt)
    }
}
