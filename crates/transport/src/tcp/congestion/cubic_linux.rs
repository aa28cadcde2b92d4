//! CUBIC with HyStart as in `net/ipv4/tcp_cubic.c` of Linux 6: between Ha, Rhee and Xu 2008 and RFC 9438.
//!
//! Windows are whole segments. Differences from RFC 9438:
//! - `ssthresh = max(floor(717/1024 cwnd), 2)`, of `cwnd` and not of FlightSize; section 4.6 allows either;
//! - `cwnd` grows by one segment per `cnt` acknowledged: `cwnd / (target - cwnd)`, or `100 cwnd` if `target` does not
//!   exceed `cwnd`; at least 2, and at most 20 before the first loss;
//! - `target` is the curve one minimum RTT ahead, not one smoothed RTT;
//! - the Reno window grows by one segment per `15/8 cwnd`, whatever it was before (alpha does not become 1);
//! - `cnt` is updated when the window has changed, or after 1/32 s;
//! - with byte counting an ACK counts for all that it delivers, in slow start too, where RFC 3465 allows two segments;
//! - an idle time halves the window for each RTO, down to the initial window, and leaves `ssthresh` at 3/4 of it or more
//!   (`tcp_cwnd_restart()`, RFC 2861), where RFC 5681 leaves the initial window;
//! - a timeout clears `W_max`, keeps the ssthresh of a recovery in progress, and leaves a window of a segment more than what is
//!   still in flight (`tcp_enter_loss()`);
//! - RTT samples of the first second of a stage are ignored;
//! - the time from a transmission to the next with nothing in flight is not counted (`CA_EVENT_TX_START`);
//! - the window is validated as in `validation_linux`.
//!
//! Departure: times are not rounded to jiffies.

use bentpipe_units::{Duration, Instant};

use super::hystart_linux::HyStart;
use super::validation_linux::Usage;
use super::{Acked, Burst, Config, Control, Window};

/// `beta`, in units of 1/1024.
const BETA: u64 = 717;
/// C: `bic_scale` times 10, in units of 1/1024.
const C: f64 = 410.0 / 1024.0;
/// `beta_scale`, in eighths: 8 (1024 + beta) / 3 / (1024 - beta).
const RENO: u64 = 15;
/// `cubictcp_acked()`: time from the start of a stage during which RTT samples are ignored.
const IGNORED: Duration = Duration::from_secs(1);

/// State of Linux's CUBIC; windows in segments.
#[derive(Clone, Debug)]
pub(in crate::tcp) struct CubicLinux {
    hystart: HyStart,
    /// `last_max_cwnd`; zero before the first loss.
    w_max: u64,
    /// `bic_origin_point`.
    origin: u64,
    /// `bic_K` [s].
    k: f64,
    /// `epoch_start`; `None` before the first ACK of a stage.
    epoch: Option<Instant>,
    /// `cnt`.
    count: u64,
    /// `tcp_cwnd`: Reno window.
    reno: u64,
    /// `ack_cnt`: acknowledged since `reno` last grew [bytes].
    reno_acked: u64,
    /// `snd_cwnd_cnt`: acknowledged since the window last grew [bytes].
    acked: u64,
    /// `last_cwnd` and `last_time`: state at the last update of `cnt`.
    last_cwnd: u64,
    last_at: Instant,
    usage: Usage,
}

impl Default for CubicLinux {
    fn default() -> Self {
        Self {
            hystart: HyStart::default(),
            w_max: 0,
            origin: 0,
            k: 0.0,
            epoch: None,
            count: 0,
            reno: 0,
            reno_acked: 0,
            acked: 0,
            last_cwnd: 0,
            last_at: Instant::ZERO,
            usage: Usage::default(),
        }
    }
}

impl CubicLinux {
    /// `bictcp_update()`, for `acked` bytes.
    fn update(&mut self, cwnd: u64, acked: u64, smss: u64, now: Instant) {
        self.reno_acked += acked;
        if self.last_cwnd == cwnd && now - self.last_at <= Duration::from_nanos(1_000_000_000 / 32) {
            return;
        }
        self.last_cwnd = cwnd;
        self.last_at = now;
        let epoch = *self.epoch.get_or_insert_with(|| {
            self.reno_acked = acked;
            self.reno = cwnd;
            self.k = libm::cbrt(self.w_max.saturating_sub(cwnd) as f64 / C);
            self.origin = self.w_max.max(cwnd);
            now
        });
        let x = (now - epoch + self.hystart.min_rtt()).as_secs_f64() - self.k;
        let target = self.origin.saturating_add_signed((C * x * x * x) as i64);
        self.count = if target > cwnd { cwnd / (target - cwnd) } else { 100 * cwnd };
        if self.w_max == 0 {
            self.count = self.count.min(20);
        }
        let step = (cwnd * RENO / 8).max(1) * smss;
        // Once more than `step` is acknowledged.
        let steps = self.reno_acked.saturating_sub(1) / step;
        self.reno_acked -= steps * step;
        self.reno += steps;
        if self.reno > cwnd {
            self.count = self.count.min(cwnd / (self.reno - cwnd));
        }
        self.count = self.count.max(2);
    }
}

impl Control for CubicLinux {
    fn may_grow(&self, window: &Window, is_limit: bool) -> bool {
        self.usage.may_grow(window, is_limit)
    }

    fn on_ack(&mut self, window: &mut Window, ack: &Acked, smss: u64, now: Instant) {
        let mut acked = ack.avoidance;
        if window.is_in_slow_start() {
            // `tcp_slow_start()`: up to ssthresh; the rest counts for congestion avoidance.
            let grown = window.ssthresh().unwrap_or(u64::MAX).min(window.cwnd + ack.slow_start);
            acked = acked.min(ack.slow_start).saturating_sub(grown - window.cwnd);
            window.cwnd = grown;
            if acked == 0 {
                return;
            }
        }
        self.update(window.cwnd / smss, acked, smss, now);
        // `tcp_cong_avoid_ai()`: credit collected for a larger step counts for one segment only.
        let step = self.count * smss;
        if self.acked >= step {
            self.acked = 0;
            window.cwnd += smss;
        }
        self.acked += acked;
        window.cwnd += self.acked / step * smss;
        self.acked %= step;
    }

    fn on_congestion(&mut self, window: &mut Window, _flight: u64, smss: u64, _now: Instant) {
        let cwnd = window.cwnd / smss;
        self.w_max = if cwnd < self.w_max { cwnd * (1024 + BETA) / 2048 } else { cwnd };
        window.set_ssthresh((cwnd * BETA / 1024).max(2) * smss);
        self.epoch = None;
        self.acked = 0;
    }

    fn restart(&mut self, window: &mut Window, idle: Duration, rto: Duration, cfg: &Config) {
        let (smss, least) = (cfg.smss(), cfg.iw().min(window.cwnd));
        let cwnd = window.cwnd / smss;
        if let Some(ssthresh) = window.ssthresh() {
            // `tcp_current_ssthresh()`.
            window.set_ssthresh(ssthresh.max((cwnd / 2 + cwnd / 4) * smss));
        }
        let mut left = idle.saturating_sub(rto);
        while !left.is_zero() && window.cwnd > least {
            window.cwnd = window.cwnd / smss / 2 * smss;
            left = left.saturating_sub(rto);
        }
        window.cwnd = window.cwnd.max(least);
    }

    fn on_transmit_start(&mut self, idle: Duration, now: Instant) {
        if let Some(epoch) = &mut self.epoch {
            *epoch = now.min(*epoch + idle);
        }
    }

    fn on_burst(&mut self, window: &Window, burst: &Burst, smss: u64) {
        self.usage.on_burst(window, burst, smss);
    }

    fn on_timeout(&mut self, nxt: u64, now: Instant) {
        *self = Self { usage: std::mem::take(&mut self.usage), ..Self::default() };
        self.hystart.on_timeout(nxt, now);
    }

    fn on_round_trip(
        &mut self,
        window: &mut Window,
        rtt: Duration,
        una: u64,
        nxt: u64,
        smss: u64,
        now: Instant,
    ) {
        if self.epoch.is_none_or(|epoch| now - epoch >= IGNORED) {
            self.hystart.on_ack(window, rtt, una, nxt, smss, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ACKs of one segment each, a window of them per RTT of `rtt` ms, for `ms` from `now` on.
    fn run(cubic: &mut CubicLinux, window: &mut Window, now: &mut Instant, rtt: u64, ms: u64) {
        let end = *now + Duration::from_millis(ms);
        while *now < end {
            let measured = Duration::from_millis(rtt);
            cubic.on_ack(window, &Acked::segment(measured), 1000, *now);
            *now += Duration::from_nanos(rtt * 1_000_000_000 / window.cwnd);
        }
    }

    fn reduced(cubic: &mut CubicLinux, segments: u64) -> Window {
        let mut window = Window::new(segments * 1000, None);
        cubic.on_congestion(&mut window, 0, 1000, Instant::ZERO);
        window.cwnd = window.reduced();
        window
    }

    /// Measures an RTT [ms].
    fn measure(cubic: &mut CubicLinux, window: &mut Window, rtt: u64, now: Instant) {
        cubic.on_round_trip(window, Duration::from_millis(rtt), 1, 1, 1000, now);
    }

    /// 717/1024 of 12 is 8.4, of 100 it is 70.02, of 2 it is 1.4.
    #[test]
    fn ssthresh_is_in_whole_segments() {
        for (before, after) in [(12, 8), (100, 70), (2, 2)] {
            assert_eq!(reduced(&mut CubicLinux::default(), before).ssthresh(), Some(after * 1000));
        }
    }

    /// From 1000 segments to 700: K = cbrt(300 x 1024 / 410) = 9.082 s. The window is W_max at K, and W_max + 300 at 2
    /// K, less about one RTT by which a segment for each `cwnd / (target - cwnd)` lags the curve.
    #[test]
    fn window_follows_the_cubic_curve() {
        let mut cubic = CubicLinux::default();
        let mut window = reduced(&mut cubic, 1000);
        measure(&mut cubic, &mut window, 100, Instant::ZERO);
        let mut now = Instant::ZERO;
        for (low, high) in [(998_000, 1_001_000), (1_285_000, 1_311_000)] {
            run(&mut cubic, &mut window, &mut now, 100, 9082);
            assert!((low..=high).contains(&window.cwnd), "{} at {now:?}", window.cwnd);
        }
    }

    /// From 1000 segments to 700, K = 9.0827 s. At an RTT of 0.1 s the curve is at 1000 - 410/1024 x 8.9827^3 = 709.8, in
    /// whole segments 710: one segment for each 700 / (710 - 700) acknowledged.
    #[test]
    fn the_window_grows_by_a_segment_per_cwnd_over_the_distance_to_the_curve() {
        let mut cubic = CubicLinux::default();
        let mut window = reduced(&mut cubic, 1000);
        measure(&mut cubic, &mut window, 100, Instant::ZERO);
        let ack = Acked::segment(Duration::from_millis(100));
        for (acks, segments) in [(69, 700), (1, 701)] {
            for _ in 0..acks {
                cubic.on_ack(&mut window, &ack, 1000, Instant::ZERO);
            }
            assert_eq!(window.cwnd, segments * 1000);
        }
    }

    /// `bictcp_update()`: the curve is that of one minimum RTT later, here of 100 ms, however long the smoothed RTT is, so `cnt`
    /// is 70 as above. `cubictcp_acked()` ignores the samples of the first second of a stage.
    #[test]
    fn the_curve_is_a_minimum_rtt_ahead() {
        let mut cubic = CubicLinux::default();
        let mut window = reduced(&mut cubic, 1000);
        measure(&mut cubic, &mut window, 100, Instant::ZERO);
        let ack = Acked::segment(Duration::from_secs(1));
        cubic.on_ack(&mut window, &ack, 1000, Instant::ZERO);
        assert_eq!(cubic.count, 70);
        for (ms, min_rtt) in [(999, 100), (1000, 40)] {
            measure(&mut cubic, &mut window, 40, Instant::ZERO + Duration::from_millis(ms));
            assert_eq!(cubic.hystart.min_rtt(), Duration::from_millis(min_rtt), "at {ms} ms");
        }
    }

    /// `tcp_cwnd_restart()`, with an RTO of 1 s and an initial window of ten segments: half of the window for each whole RTO less
    /// one that the sender was idle for longer than. ssthresh is 3/4 of 90 segments, 45 and 22, if it was less.
    #[test]
    fn an_idle_time_halves_the_window_for_each_rto() {
        for (ms, segments) in [(1001, 45), (2000, 45), (2001, 22), (3001, 11), (4001, 10), (999_000, 10)] {
            for (before, after) in [(None, None), (Some(40), Some(67)), (Some(80), Some(80))] {
                let mut window = Window::new(90_000, before.map(|segments: u64| segments * 1000));
                let cfg = Config { mss: 1000, ..Config::default() };
                let (idle, rto) = (Duration::from_millis(ms), Duration::from_secs(1));
                CubicLinux::default().restart(&mut window, idle, rto, &cfg);
                let ssthresh = after.map(|segments: u64| segments * 1000);
                assert_eq!((window.cwnd, window.ssthresh()), (segments * 1000, ssthresh), "{ms} ms");
            }
        }
        // A window below the initial one stays.
        let mut window = Window::new(4000, None);
        let cfg = Config { mss: 1000, ..Config::default() };
        CubicLinux::default().restart(&mut window, Duration::MAX, Duration::from_secs(1), &cfg);
        assert_eq!(window.cwnd, 4000);
    }

    /// RTT 40 ms, ACKs 2 ms apart: HyStart ends slow start after more than 20.5 ms, with the twelfth ACK.
    #[test]
    fn an_ack_train_ends_slow_start() {
        let mut cubic = CubicLinux::default();
        let mut window = Window::new(16_000, None);
        for i in 0..12 {
            assert!(window.is_in_slow_start() && window.ssthresh().is_none(), "{i} ACKs");
            let now = Instant::ZERO + Duration::from_millis(100 + 2 * i);
            cubic.on_round_trip(&mut window, Duration::from_millis(40), 1001 + i * 1000, 30_001, 1000, now);
        }
        assert_eq!(window.ssthresh(), Some(16_000));
    }

    /// Before the first loss: one segment per 20 acknowledged, although the curve is still flat.
    #[test]
    fn window_grows_by_a_twentieth_before_the_first_loss() {
        let mut cubic = CubicLinux::default();
        let mut window = Window::new(100_000, Some(100_000));
        let ack = Acked::segment(Duration::from_millis(100));
        for _ in 0..100 {
            cubic.on_ack(&mut window, &ack, 1000, Instant::ZERO);
        }
        assert_eq!(window.cwnd, 105_000);
    }

    /// 14 segments (of 20) and an RTT of 10 ms: Reno's window grows by one for 26 acknowledged, then 28, 30, 31 and 33,
    /// so by five within 148.
    #[test]
    fn window_is_at_least_its_reno_window() {
        let mut cubic = CubicLinux::default();
        let mut window = reduced(&mut cubic, 20);
        measure(&mut cubic, &mut window, 10, Instant::ZERO);
        assert_eq!(window.cwnd, 14_000);
        let ack = Acked::segment(Duration::from_millis(10));
        let mut now = Instant::ZERO;
        for _ in 0..160 {
            cubic.on_ack(&mut window, &ack, 1000, now);
            now += Duration::from_micros(600);
        }
        assert!((18_000..=19_000).contains(&window.cwnd), "{}", window.cwnd);
    }

    /// `bictcp_update()` returns at once if the window is the same and no more than 1/32 s = 31.25 ms have passed. As above,
    /// `cnt` is 70; 132 ms ahead of 0 s the curve is at 1000 - 410/1024 x 8.9507^3 = 712.9, in whole segments 713, so `cnt` is
    /// 700 / 13.
    #[test]
    fn cnt_is_updated_after_a_32nd_of_a_second() {
        let mut cubic = CubicLinux::default();
        let mut window = reduced(&mut cubic, 1000);
        measure(&mut cubic, &mut window, 100, Instant::ZERO);
        let ack = Acked::segment(Duration::from_millis(100));
        for (ms, count) in [(0, 70), (31, 70), (32, 53)] {
            cubic.on_ack(&mut window, &ack, 1000, Instant::ZERO + Duration::from_millis(ms));
            assert_eq!(cubic.count, count, "at {ms} ms");
        }
    }

    /// `bictcp_update()`: `while (ack_cnt > delta) ack_cnt -= delta, tcp_cwnd++`. For 8 segments `delta` is 15 segments. `cnt` is
    /// then 20 at most before the first loss, `cwnd / (tcp_cwnd - cwnd)` and 2 at least.
    #[test]
    fn the_reno_window_grows_by_a_segment_per_15_8_of_the_window() {
        let mut cubic = CubicLinux::default();
        for (i, (acked, reno, left, count)) in [
            (1000, 8, 1000, 20),
            (14_000, 8, 15_000, 20),
            (1, 9, 1, 8),
            (15_000, 10, 1, 4),
            (30_000, 12, 1, 2),
            (29_999, 13, 15_000, 2),
        ]
        .into_iter()
        .enumerate()
        {
            cubic.update(8, acked, 1000, Instant::ZERO + Duration::from_millis(40 * i as u64));
            assert_eq!((cubic.reno, cubic.reno_acked, cubic.count), (reno, left, count), "update {i}");
        }
    }

    /// `tcp_cong_avoid_ai()`, with `cnt` = 20 as before the first loss: 50 segments collected for a larger `cnt` add one
    /// segment and are used up. 45 more, with the one that this ACK left, add two; six are left.
    #[test]
    fn credit_for_a_larger_cnt_adds_one_segment() {
        let mut cubic = CubicLinux { acked: 50_000, ..CubicLinux::default() };
        let mut window = Window::new(100_000, Some(100_000));
        for (avoidance, cwnd, left) in [(1000, 101_000, 1000), (45_000, 103_000, 6000)] {
            let rtt = Duration::from_millis(100);
            let ack = Acked { bytes: avoidance, slow_start: 1000, avoidance, ..Acked::segment(rtt) };
            cubic.on_ack(&mut window, &ack, 1000, Instant::ZERO);
            assert_eq!((window.cwnd, cubic.acked), (cwnd, left));
        }
    }

    /// `CA_EVENT_TX_START`: of 100 s between two ACKs the 99.9 s do not count after which the next segment leaves. 1 s after the start
    /// the curve grows by 3 x 410/1024 x 8.08^2 = 78 segments per second, so by 16 in two RTTs.
    #[test]
    fn idle_time_is_not_counted() {
        let mut cubic = CubicLinux::default();
        let mut window = reduced(&mut cubic, 1000);
        measure(&mut cubic, &mut window, 100, Instant::ZERO);
        let mut now = Instant::ZERO;
        run(&mut cubic, &mut window, &mut now, 100, 1000);
        let before = window.cwnd;
        now += Duration::from_millis(99_900);
        cubic.on_transmit_start(Duration::from_millis(99_900), now);
        now += Duration::from_millis(100);
        run(&mut cubic, &mut window, &mut now, 100, 100);
        assert!((1000..=17_000).contains(&(window.cwnd - before)), "{before} to {}", window.cwnd);
    }

    /// 80 after 100 releases bandwidth: W_max = floor(80 x 1741 / 2048) = 68. A window that equals W_max does not. A timeout
    /// clears it.
    #[test]
    fn fast_convergence_lowers_w_max_and_a_timeout_clears_it() {
        let mut cubic = CubicLinux::default();
        for (cwnd, w_max) in [(100, 100), (80, 68), (68, 68)] {
            reduced(&mut cubic, cwnd);
            assert_eq!(cubic.w_max, w_max);
        }
        cubic.on_timeout(1, Instant::ZERO);
        assert_eq!(cubic.w_max, 0);
    }

    /// Slow start ends at ssthresh; the rest of the ACK counts for congestion avoidance.
    #[test]
    fn slow_start_ends_at_ssthresh() {
        let mut cubic = CubicLinux::default();
        let mut window = Window::new(9000, Some(10_000));
        let ack = Acked {
            bytes: 2000,
            slow_start: 2000,
            avoidance: 2000,
            ..Acked::segment(Duration::from_millis(100))
        };
        cubic.on_ack(&mut window, &ack, 1000, Instant::ZERO);
        assert_eq!((window.cwnd, cubic.acked), (10_000, 1000));
    }
}
