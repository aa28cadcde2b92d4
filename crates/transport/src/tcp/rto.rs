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
            if first {
                // The first round counts this deviation, too.
                linux.rtt_seq = max;
            } else if una > linux.rtt_seq {
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
    /// steps 0 and 8. Linux leaves it to the measurement.
    pub(super) fn on_spurious(&mut self, cfg: &Config, before: &Self) {
        if self.linux.is_some() {
            return;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: f64) -> Duration {
        Duration::from_secs_f64(ms / 1e3)
    }

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// No lower bound of the RTO, segments of 1000 bytes.
    fn config(estimator: Estimator, clock_granularity: Duration) -> Config {
        Config { estimator, clock_granularity, mss: 1000, min_rto: Duration::ZERO, ..Config::default() }
    }

    /// RFC 6298, sections 2.2 and 2.3, with G of 1 ms:
    ///
    /// | R | RTTVAR | SRTT | RTO |
    /// |---|---|---|---|
    /// | 100 | 50 | 100 | 300 |
    /// | 60 | 3/4 · 50 + 40/4 = 47.5 | 7/8 · 100 + 60/8 = 95 | 285 |
    /// | 200 | 3/4 · 47.5 + 105/4 = 61.875 | 7/8 · 95 + 200/8 = 108.125 | 355.625 |
    #[test]
    fn rto_follows_rfc_6298() {
        let cfg = config(Estimator::Rfc6298, Duration::from_millis(1));
        let mut rto = Rto::new(&cfg);
        assert_eq!((rto.interval(), rto.latest(), rto.srtt()), (ms(1000.0), None, None));
        let table = [(0, 100, 100.0, 300.0), (1000, 1060, 95.0, 285.0), (2000, 2200, 108.125, 355.625)];
        for (sent, acked, srtt, interval) in table {
            rto.on_sent(at(sent), 1000);
            assert!(rto.on_ack(&cfg, at(acked), 1000));
            assert_eq!((rto.srtt(), rto.interval()), (Some(ms(srtt)), ms(interval)));
            assert_eq!(rto.latest(), Some(at(acked) - at(sent)));
        }
    }

    #[test]
    fn one_segment_is_timed_at_a_time_and_none_that_was_resent() {
        let cfg = config(Estimator::Rfc6298, Duration::from_millis(1));
        let mut rto = Rto::new(&cfg);
        assert!(!rto.on_ack(&cfg, at(0), 0));
        rto.on_sent(at(0), 1000);
        rto.on_sent(at(50), 2000);
        assert!(!rto.on_ack(&cfg, at(60), 999));
        assert!(rto.on_ack(&cfg, at(100), 1001));
        assert_eq!(rto.latest(), Some(ms(100.0)));
        assert!(!rto.on_ack(&cfg, at(150), 2000), "the second segment was not timed");
        rto.on_sent(at(200), 3000);
        rto.on_resent();
        assert!(!rto.on_ack(&cfg, at(300), 3000));
    }

    /// G of 10 ms: 14.9 ms are one tick, 15 ms two, 1 ms at least one. Without deviation the RTO is SRTT + G.
    #[test]
    fn measurements_are_rounded_to_the_clock() {
        let cfg = config(Estimator::Rfc6298, Duration::from_millis(10));
        let mut rto = Rto::new(&cfg);
        for (r, rounded) in [(14.9, 10.0), (15.0, 20.0), (1.0, 10.0), (0.0, 10.0)] {
            rto.measured(&cfg, ms(r), 1, (0, 0));
            assert_eq!(rto.latest(), Some(ms(rounded)), "{r}");
        }
        let mut rto = Rto::new(&cfg);
        (0..100).for_each(|_| rto.measured(&cfg, ms(100.0), 1, (0, 0)));
        assert_eq!(rto.interval(), ms(110.0));
        // A perfect clock measures a nanosecond at least.
        let cfg = config(Estimator::Rfc6298, Duration::ZERO);
        let mut rto = Rto::new(&cfg);
        rto.measured(&cfg, ms(0.0), 1, (0, 0));
        assert_eq!((rto.latest(), rto.interval()), (Some(Duration::from_nanos(1)), MIN_TIMER));
    }

    /// RFC 7323, appendix G: 7001 bytes in flight are four samples of two segments each, which divide the gains by four:
    /// RTTVAR = 15/16 · 50 + 40/16 = 49.375, SRTT = 31/32 · 100 + 60/32 = 98.75, RTO = 296.25. With a segment in flight,
    /// the gains are those of RFC 6298.
    #[test]
    fn gains_of_echoed_timestamps_are_divided_by_the_samples_per_window() {
        let cfg = config(Estimator::Rfc6298, Duration::ZERO);
        for (max, interval) in [(8001, 296.25), (2000, 285.0), (1000, 285.0)] {
            let mut rto = Rto::new(&cfg);
            assert!(rto.on_echo(&cfg, at(1100), 1_000_000, 1, (1000, max)));
            assert_eq!(rto.interval(), ms(300.0));
            assert!(rto.on_echo(&cfg, at(2060), 2_000_000, 1, (1000, max)));
            assert_eq!(rto.interval(), ms(interval), "{max}");
        }
    }

    /// The clock wraps after 2^32 µs. Echoes from up to half of that back are ours.
    #[test]
    fn echoes_of_timestamps_are_measured_modulo_the_clock() {
        let cfg = config(Estimator::Rfc6298, Duration::ZERO);
        let now = Instant::ZERO + Duration::from_micros((1 << 32) + 50);
        let half = u32::MAX / 2;
        for (echo, found) in [
            (0_u32.wrapping_sub(50), Some(Duration::from_micros(100))),
            (50, Some(Duration::from_nanos(1))),
            (50_u32.wrapping_sub(half), Some(Duration::from_micros(u64::from(half)))),
            (50_u32.wrapping_sub(half + 1), None),
            (51, None),
            (0, None),
        ] {
            let mut rto = Rto::new(&cfg);
            assert_eq!(rto.on_echo(&cfg, now, echo, 1, (0, 1000)), found.is_some(), "{echo}");
            assert_eq!(rto.latest(), found, "{echo}");
        }
    }

    /// Linux `tcp_rtt_estimator()` without a minimum; a round ends with the first sample above `rtt_seq`:
    ///
    /// | R | mdev | RTTVAR | SRTT | RTO |
    /// |---|---|---|---|---|
    /// | 100 | 200 | 200 | 100 | 300 |
    /// | 140 | 200 - 50 + 40 = 190 | 200 | 105 | 305 |
    /// | 65 | 190 - 47.5 + 40 = 182.5 | 200 | 100 | 300 |
    /// | 20, ends the round with the largest mdev of 200 | 182.5 - 45.625 + 45.625 + 34.375/8 = 186.796875 | 200 | 90 | 290 |
    /// | 400 | 186.796875 - 46.699218 + 310 = 450.097657 | the same | 128.75 | 578.847657 |
    /// | 128.75, ends the round | 3/4 · 450.097657 = 337.573243 | 450.097657 | 128.75 | 578.847657 |
    /// | 128.75, ends the round | 3/4 · 337.573243 = 253.179932 | 450.097657 - 196.917725/4 = 400.868226 | 128.75 | 529.618226 |
    #[test]
    fn rto_follows_the_estimator_of_linux() {
        let cfg = config(Estimator::Linux, Duration::ZERO);
        let mut rto = Rto::new(&cfg);
        let table = [
            (100.0, 1, 300.0),
            (140.0, 9, 305.0),
            (65.0, 10, 300.0),
            (20.0, 11, 290.0),
            (400.0, 12, 578.847_657),
            (128.75, 21, 578.847_657),
            (128.75, 31, 529.618_226),
        ];
        for (r, una, interval) in table {
            rto.measured(&cfg, ms(r), 1, (una, una.next_multiple_of(10).max(10)));
            assert_eq!(rto.interval(), ms(interval), "{r}");
        }
    }

    /// The minimum of 200 ms is added to SRTT: 100 + 200, and then SRTT + 200 while deviations are small.
    #[test]
    fn linux_adds_its_minimum_to_the_smoothed_rtt() {
        let cfg = Config { min_rto: ms(200.0), ..config(Estimator::Linux, Duration::ZERO) };
        let mut rto = Rto::new(&cfg);
        for (r, interval) in [(10.0, 210.0), (18.0, 211.0), (11.0, 211.0)] {
            rto.measured(&cfg, ms(r), 1, (1, 0));
            assert_eq!(rto.interval(), ms(interval), "{r}");
        }
    }

    /// TCP/IP Illustrated, volume 2, section 25.10: SRTT in eighths and RTTVAR in quarters of a tick.
    ///
    /// | ticks | SRTT | RTTVAR | RTO |
    /// |---|---|---|---|
    /// | 3 | 24 | 6 | 6 + 3 = 9 |
    /// | 1 | 24 - 2 = 22 | 6 + 2 - 1 = 7 | 7 + 2 = 9 |
    /// | 10 | 22 + 8 = 30 | 7 + 8 - 1 = 14 | 14 + 3 = 17 |
    #[test]
    fn rto_follows_bsd_in_ticks() {
        // Eighths of the second tick are no whole nanoseconds.
        for tick in [Duration::from_millis(500), Duration::from_nanos(10_001)] {
            let cfg = config(Estimator::Bsd, tick);
            let mut rto = Rto::new(&cfg);
            for (ticks, expected) in [(3, 9), (1, 9), (10, 17)] {
                rto.measured(&cfg, tick.times(ticks), 1, (0, 0));
                assert_eq!(rto.interval(), tick.times(expected), "{ticks}");
            }
        }
    }

    /// Ticks end at multiples of 500 ms.
    #[test]
    fn bsd_counts_the_clock_ticks_in_between() {
        for (sent, acked, measured) in [(499, 501, 500), (501, 999, 500), (499, 1001, 1000), (0, 1600, 1500)]
        {
            let cfg = config(Estimator::Bsd, Duration::from_millis(500));
            let mut rto = Rto::new(&cfg);
            rto.on_sent(at(sent), 1);
            assert!(rto.on_ack(&cfg, at(acked), 1));
            assert_eq!(rto.latest(), Some(Duration::from_millis(measured)), "{sent} {acked}");
        }
    }

    /// RFC 6298 (5.5): doubled up to 60 s. A power of two until then.
    #[test]
    fn timeouts_double_the_interval_up_to_the_maximum() {
        let cfg = config(Estimator::Rfc6298, Duration::ZERO);
        let mut rto = Rto::new(&cfg);
        for seconds in [2, 4, 8, 16, 32, 60, 60] {
            rto.back_off(&cfg);
            assert_eq!((rto.interval(), rto.backoff()), (Duration::from_secs(seconds), seconds));
        }
        rto.clear_backoff();
        assert_eq!((rto.interval(), rto.backoff()), (Duration::from_secs(1), 1));
        rto.restore_backoff(&cfg, 4);
        assert_eq!(rto.interval(), Duration::from_secs(4));
        let probes = [0, 1, 3, 4, 255].map(|times| rto.persist_interval(&cfg, times));
        assert_eq!(probes, [4, 8, 32, 60, 60].map(Duration::from_secs));
    }

    #[test]
    fn ns2_forgets_the_smoothed_rtt_after_four_timeouts() {
        for ns2_recovery in [true, false] {
            let cfg = Config { ns2_recovery, ..config(Estimator::Rfc6298, Duration::ZERO) };
            let mut rto = Rto::new(&cfg);
            rto.measured(&cfg, ms(100.0), 1, (0, 0));
            let known = [1, 2, 3, 4].map(|_| {
                rto.back_off(&cfg);
                rto.srtt().is_some()
            });
            assert_eq!(known, [true, true, true, !ns2_recovery]);
        }
    }

    /// RFC 6298 (5.7): 3 s after a lost SYN, within the limits of the configuration.
    #[test]
    fn a_lost_syn_sets_the_rto_to_three_seconds() {
        let cfg = config(Estimator::Rfc6298, Duration::ZERO);
        for (lost, max, seconds) in [(false, 60, 1), (true, 60, 3), (true, 2, 2)] {
            let cfg = Config { max_rto: Duration::from_secs(max), ..cfg.clone() };
            let mut rto = Rto::new(&cfg);
            rto.back_off(&cfg);
            rto.on_established(&cfg, lost);
            assert_eq!(rto.interval(), Duration::from_secs(seconds));
        }
    }

    /// Linux `tcp_try_undo_loss()` changes no estimate: SRTT and RTTVAR are those of the measurement, 300 and 600.
    #[test]
    fn a_spurious_timeout_leaves_the_estimator_of_linux() {
        let cfg = config(Estimator::Linux, Duration::ZERO);
        let mut before = Rto::new(&cfg);
        before.measured(&cfg, ms(100.0), 1, (0, 0));
        let mut rto = Rto::new(&cfg);
        rto.measured(&cfg, ms(300.0), 1, (0, 0));
        rto.on_spurious(&cfg, &before);
        assert_eq!((rto.srtt(), rto.interval()), (Some(ms(300.0)), ms(900.0)));
    }

    /// RFC 4015, section 3.2, with G of 1 ms and 100 and 50 ms before the timeout. A latest RTT of 300 ms: SRTT 300, RTTVAR
    /// 150, RTO 900. One of 80 ms: SRTT 102, RTTVAR 50, RTO 302.
    #[test]
    fn a_spurious_timeout_raises_the_rto_to_the_latest_rtt() {
        let cfg = config(Estimator::Rfc6298, Duration::from_millis(1));
        for (latest, interval) in [(300.0, 900.0), (80.0, 302.0)] {
            let mut before = Rto::new(&cfg);
            before.measured(&cfg, ms(100.0), 1, (0, 0));
            let mut rto = Rto::new(&cfg);
            rto.measured(&cfg, ms(latest), 1, (0, 0));
            rto.on_spurious(&cfg, &before);
            assert_eq!(rto.interval(), ms(interval));
        }
    }
}
