//! The retransmission timeout, RFC 9260 section 6.3.1.

use bentpipe_units::{Duration, Instant};

use super::Config;
use crate::rtt::{MIN_TIMER, SmoothedRtt};

/// Estimator of the round trip and what follows from it.
#[derive(Clone, Debug)]
pub(super) struct Rto {
    smoothed: SmoothedRtt,
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
        let interval = cfg.rto_initial.min(cfg.rto_max).max(MIN_TIMER);
        Self { smoothed: SmoothedRtt::default(), latest: Duration::ZERO, interval, timed: None }
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
        if self.smoothed.srtt.is_zero() {
            // C2.
            self.smoothed = SmoothedRtt::first(r);
        } else {
            // C3.
            self.smoothed.update(r, cfg.rto_alpha.max(1).into(), cfg.rto_beta.max(1).into());
        }
        // G1: a deviation of zero is one of the clock.
        if self.smoothed.rttvar.is_zero() {
            self.smoothed.rttvar = cfg.clock_granularity;
        }
        // C2, C3: RTO <- SRTT + 4 RTTVAR; C6, C7: its bounds. It collapses again after doubling (section 6.3.3).
        let rto = self.smoothed.srtt + self.smoothed.rttvar.times(4);
        self.interval = rto.max(cfg.rto_min).min(cfg.rto_max).max(MIN_TIMER);
    }

    /// E2: RTO <- 2 RTO, no more than RTO.Max.
    pub(super) fn back_off(&mut self, cfg: &Config) {
        self.interval = self.interval.times(2).min(cfg.rto_max).max(MIN_TIMER);
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
        (!self.smoothed.srtt.is_zero()).then_some(self.smoothed.srtt)
    }
}
