//! Retransmission timeout: RFC 6298, with timestamps by RFC 7323 section 4; or as in Linux, or as in 4.4BSD.

use bentpipe_units::{Duration, Instant};

use super::{Config, Estimator, Timestamps};
use crate::rtt::{MIN_TIMER, SmoothedRtt, weighted};

/// State of Linux `tcp_rtt_estimator()` besides SRTT and RTTVAR. It includes the factor K: all are four times the
/// deviation.
#[derive(Clone, Debug)]
struct Linux {
    /// `mdev`: mean deviation.
    mdev: Duration,
    /// `mdev_max`: largest `mdev` of this round, at least `min_rto`.
    mdev_max: Duration,
    /// `rtt_seq`: an ACK above it ends the round.
    rtt_seq: u64,
}

/// RTT estimator and retransmission timeout.
#[derive(Clone, Debug, Default)]
pub(super) struct Rto {
    smoothed: SmoothedRtt,
    /// Latest measurement; zero before the first.
    latest: Duration,
    linux: Option<Box<Linux>>,
    /// RTO without backoff.
    rto: Duration,
    /// Transmission time of the segment being timed.
    timed_at: Instant,
    /// ACK number that completes the measurement; zero if none is in progress.
    timed_end: u64,
    /// RTO with backoff.
    interval: Duration,
}

impl Rto {
    pub(super) fn new(cfg: &Config) -> Self {
        // RFC 6298 (2.1): the initial RTO applies until an RTT has been measured.
        let rto = bounded(cfg.initial_rto, Duration::ZERO, cfg.max_rto);
        Self {
            linux: (cfg.estimator == Estimator::Linux)
                .then(|| Box::new(Linux { mdev: Duration::ZERO, mdev_max: Duration::ZERO, rtt_seq: 0 })),
            rto,
            interval: rto,
            ..Self::default()
        }
    }

    /// Takes note of a new segment that ends before `end`.
    #[inline]
    pub(super) fn on_sent(&mut self, now: Instant, end: u64) {
        // RFC 6298 (3): one measurement per RTT is enough; only one is in progress at a time.
        if self.timed_end == 0 {
            self.timed_end = end;
            self.timed_at = now;
        }
    }

    /// Takes note of a retransmission.
    #[inline]
    pub(super) fn on_resent(&mut self) {
        // RFC 6298 (3), Karn's algorithm: no sample from retransmitted segments. The ACK of the timed segment may have
        // waited for the retransmission, so any retransmission cancels the measurement.
        self.timed_end = 0;
    }

    /// Processes an ACK of everything before `ack`. Returns true if it completed a measurement.
    #[inline]
    pub(super) fn on_ack(&mut self, cfg: &Config, now: Instant, ack: u64) -> bool {
        if self.timed_end == 0 || ack < self.timed_end {
            return false;
        }
        self.timed_end = 0;
        let mut r = now - self.timed_at;
        if cfg.estimator == Estimator::Bsd {
            // Number of clock ticks in between.
            let tick = cfg.clock_granularity.as_nanos().max(1);
            r = Duration::from_nanos((now.as_nanos() / tick - self.timed_at.as_nanos() / tick) * tick);
        }
        // One measurement at a time, so each ends a round.
        self.measured(cfg, r, 1, (ack, 0));
        true
    }

    /// Processes an ACK of everything below `ack` that echoes the timestamp `echo` while `una..max` was outstanding.
    /// Returns true if it gives a measurement.
    #[inline]
    pub(super) fn on_echo(
        &mut self,
        cfg: &Config,
        now: Instant,
        echo: u32,
        ack: u64,
        (una, max): (u64, u64),
    ) -> bool {
        // Modulo 2^32, as the clock wraps. An echo more than half of that back is not one of ours.
        let micros = Timestamps::new(now, 0).value.wrapping_sub(echo);
        if echo == 0 || micros > u32::MAX / 2 {
            return false;
        }
        // RFC 7323 section 4.2 and appendix G: with a sample for every second segment, the gains are divided by the
        // number of samples per window; otherwise the history would shrink to a fraction of an RTT.
        let expected = (max - una).div_ceil(2 * cfg.smss()).max(1);
        self.measured(cfg, Duration::from_micros(u64::from(micros)), expected, (ack, max));
        true
    }

    /// Processes a measurement `r`, one of `expected` per window; everything below `una` is acknowledged and everything
    /// below `max` was sent.
    fn measured(&mut self, cfg: &Config, r: Duration, expected: u64, (una, max): (u64, u64)) {
        let g = cfg.clock_granularity;
        let r = match g.as_nanos() {
            0 => r,
            tick => Duration::from_nanos(
                (r.as_nanos().saturating_add(tick / 2) / tick).max(1).saturating_mul(tick),
            ),
        };
        let r = if r.is_zero() { Duration::from_nanos(1) } else { r };
        self.latest = r;
        if cfg.estimator == Estimator::Bsd {
            self.measure_in_ticks(r, g.max(Duration::from_nanos(1)));
            self.rto = bounded(self.rto, cfg.min_rto, cfg.max_rto);
            self.interval = self.rto;
            return;
        }
        if let Some(linux) = &mut self.linux {
            let first = self.smoothed.srtt.is_zero();
            linux.on_deviation(cfg, &mut self.smoothed.rttvar, self.smoothed.srtt, r);
            if first || una > linux.rtt_seq {
                linux.on_round(cfg, &mut self.smoothed.rttvar, max);
            }
            self.smoothed.srtt = if first { r } else { weighted(self.smoothed.srtt, r, 8) };
            // `__tcp_set_rto()`, without a lower bound.
            self.rto = bounded(self.smoothed.srtt + self.smoothed.rttvar, Duration::ZERO, cfg.max_rto);
            self.interval = self.rto;
            return;
        }
        if self.smoothed.srtt.is_zero() {
            self.smoothed = SmoothedRtt::first(r);
        } else {
            self.smoothed.update(r, 8 * expected, 4 * expected);
        }
        // RFC 6298 (2.2), (2.3): RTO <- SRTT + max(G, K RTTVAR), K = 4.
        self.rto =
            bounded(self.smoothed.srtt + self.smoothed.rttvar.times(4).max(g), cfg.min_rto, cfg.max_rto);
        // RFC 6298 (5.7), note: a measurement may reset the RTO after backoff.
        self.interval = self.rto;
    }

    /// Processes a measurement `r` with integer arithmetic in ticks, as BSD does: SRTT in eighths of a tick, RTTVAR in
    /// quarters.
    fn measure_in_ticks(&mut self, r: Duration, tick: Duration) {
        let scaled = |time: Duration, by: u64| {
            let (time, tick) = (u128::from(time.as_nanos()) * u128::from(by), u128::from(tick.as_nanos()));
            ((time + tick / 2) / tick) as i64
        };
        let (rtt, mut srtt, mut rttvar) =
            (scaled(r, 1), scaled(self.smoothed.srtt, 8), scaled(self.smoothed.rttvar, 4));
        if srtt == 0 {
            (srtt, rttvar) = (8 * rtt, 2 * rtt);
        } else {
            let delta = rtt - srtt / 8;
            srtt = (srtt + delta).max(1);
            rttvar = (rttvar + delta.abs() - rttvar / 4).max(1);
        }
        self.smoothed.srtt = tick.times(srtt as u64).part(8);
        self.smoothed.rttvar = tick.times(rttvar as u64).part(4);
        self.rto = tick.times((rttvar + srtt / 8) as u64);
    }

    /// Interval of the retransmission timer: RTO, doubled for each timeout since the last measurement.
    #[inline]
    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    /// Interval before the next window probe: RTO doubled `times` times, up to the maximum.
    pub(super) fn persist_interval(&self, cfg: &Config, times: u8) -> Duration {
        bounded(self.interval.times(1 << times.min(62)), Duration::ZERO, cfg.max_rto)
    }

    /// Doubles the interval after a timeout.
    pub(super) fn back_off(&mut self, cfg: &Config) {
        // RFC 6298 (5.5): RTO <- 2 RTO, up to the maximum of (2.5).
        self.interval = bounded(self.interval.times(2), Duration::ZERO, cfg.max_rto);
        if cfg.ns2_recovery && self.interval > self.rto.times(8) {
            // ns-2 forgets SRTT after four timeouts in a row.
            self.smoothed.srtt = Duration::ZERO;
        }
    }

    /// Factor of the backoff: a power of two, or less at the maximum RTO.
    pub(super) fn backoff(&self) -> u64 {
        self.interval.as_nanos() / self.rto.as_nanos().max(1)
    }

    /// Backs off by `factor` although a measurement has ended the backoff.
    pub(super) fn restore_backoff(&mut self, cfg: &Config, factor: u64) {
        self.interval = bounded(self.rto.times(factor), Duration::ZERO, cfg.max_rto);
    }

    /// Ends the backoff: data that was never resent was acknowledged.
    #[inline]
    pub(super) fn clear_backoff(&mut self) {
        self.interval = self.rto;
    }

    /// Ends the handshake. `lost`: the SYN had to be resent.
    pub(super) fn on_established(&mut self, cfg: &Config, lost: bool) {
        if lost {
            // RFC 6298 (5.7): the timer expired while waiting for the ACK of a SYN, so an RTO below 3 s is set to 3 s
            // when data transmission starts.
            self.rto = self.rto.max(bounded(Duration::from_secs(3), cfg.min_rto, cfg.max_rto));
        }
        self.interval = self.rto;
    }

    /// Adapts the RTO after a spurious timeout: the RTT is longer than the estimate `before` it. RFC 4015 section 3.2,
    /// steps 0 and 8.
    pub(super) fn on_spurious(&mut self, cfg: &Config, before: &Self) {
        self.smoothed.srtt = (before.smoothed.srtt + cfg.clock_granularity.times(2)).max(self.latest);
        self.smoothed.rttvar = before.smoothed.rttvar.max(self.latest.part(2));
        let rto = self.smoothed.srtt + self.smoothed.rttvar.times(4).max(cfg.clock_granularity);
        self.rto = bounded(rto, cfg.min_rto, cfg.max_rto);
        self.interval = self.rto;
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

impl Linux {
    /// Processes a measurement `r`, with smoothed RTT `srtt`; zero before the first.
    fn on_deviation(&mut self, cfg: &Config, rttvar: &mut Duration, srtt: Duration, r: Duration) {
        if srtt.is_zero() {
            // The RTO is then three RTTs.
            self.mdev = r.times(2);
            self.mdev_max = self.mdev.max(cfg.min_rto);
            *rttvar = self.mdev_max;
            return;
        }
        let deviation = r.saturating_sub(srtt) + srtt.saturating_sub(r);
        let quarter = self.mdev.part(4);
        // A decreasing RTT counts with one eighth only.
        let gain = if r < srtt && deviation > quarter {
            quarter + deviation.saturating_sub(quarter).part(8)
        } else {
            deviation
        };
        self.mdev = self.mdev.saturating_sub(quarter) + gain;
        self.mdev_max = self.mdev_max.max(self.mdev);
        *rttvar = (*rttvar).max(self.mdev_max);
    }

    /// Ends a round: RTTVAR decreases towards the largest deviation of the round.
    fn on_round(&mut self, cfg: &Config, rttvar: &mut Duration, max: u64) {
        *rttvar = rttvar.saturating_sub(rttvar.saturating_sub(self.mdev_max).part(4));
        self.rtt_seq = max;
        self.mdev_max = cfg.min_rto;
    }
}

/// RFC 6298 (2.4), (2.5): limits the RTO to `min..=max`.
fn bounded(rto: Duration, min: Duration, max: Duration) -> Duration {
    rto.max(min).min(max).max(MIN_TIMER)
}
