//! CUBIC, RFC 9438: the window is a cubic function of the time since the last reduction.
//!
//! With windows in segments, `C` = 0.4 and `beta` = 0.7:
//! - slow start as in RFC 5681;
//! - `W_cubic(t) = C (t - K)^3 + W_max`, eq. (1), where `K = cbrt((W_max - cwnd_epoch) / C)`, eq. (2);
//! - `cwnd += (target - cwnd) / cwnd` for each ACK, where `target` is `W_cubic(t + RTT)` limited to between `cwnd` and
//!   1.5 `cwnd`, section 4.2;
//! - at least Reno's window: `W_est += alpha segments_acked / cwnd`, eq. (4), section 4.3;
//! - loss: `ssthresh = max(beta FlightSize, 2)`, section 4.6, and `W_max` is reduced below `cwnd` if the window did not
//!   reach the previous one: fast convergence, section 4.7.
//!
//! Departures: an idle time between ACKs counts as one RTT at most, because the window is not used during it (section
//! 5.8 leaves its detection open). With byte counting, also over QUIC, the window grows for each segment acknowledged instead
//! of each ACK: with few ACKs it would lag the curve. No HyStart++.

use bentpipe_units::Instant;

use super::{Acked, Control, Window};

const C: f64 = 0.4;
const BETA: f64 = 0.7;
/// alpha_cubic of section 4.3: as fast as Reno on average in spite of `BETA`.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// State of CUBIC; windows in segments.
#[derive(Clone, Debug)]
pub(in crate::tcp) struct Cubic {
    w_max: f64,
    /// K [s].
    k: f64,
    w_est: f64,
    cwnd_prior: f64,
    /// Fraction of a byte of cwnd carried to the next ACK [bytes].
    fraction: f64,
    /// Start of this stage of congestion avoidance; `None` before its first ACK.
    epoch: Option<Instant>,
    /// Time of the last ACK.
    last: Instant,
    /// The next stage follows slow start.
    slow: bool,
}

impl Default for Cubic {
    fn default() -> Self {
        Self {
            w_max: 0.0,
            k: 0.0,
            w_est: 0.0,
            cwnd_prior: 0.0,
            fraction: 0.0,
            epoch: None,
            last: Instant::ZERO,
            slow: true,
        }
    }
}

impl Cubic {
    /// Begins a stage; returns its start.
    fn begin(&mut self, cwnd: f64, now: Instant) -> Instant {
        self.last = now;
        self.w_est = cwnd;
        if self.slow || self.w_max <= cwnd {
            // RFC 9438 section 4.8: in the first stage after a timeout K = 0 and W_max is the window at its start;
            // section 4.10: also if slow start ended without a loss.
            self.k = 0.0;
            self.w_max = cwnd;
        } else {
            // RFC 9438 eq. (2).
            self.k = libm::cbrt((self.w_max - cwnd) / C);
        }
        self.slow = false;
        now
    }

    /// RFC 9438 eq. (1).
    fn w_cubic(&self, t: f64) -> f64 {
        let x = t - self.k;
        C * x * x * x + self.w_max
    }
}

impl Control for Cubic {
    fn on_ack(&mut self, window: &mut Window, ack: &Acked, smss: u64, now: Instant) {
        if window.is_in_slow_start() {
            // RFC 5681 eq. (2).
            window.cwnd = window.cwnd.saturating_add(ack.slow_start);
            self.slow = true;
            self.epoch = None;
            self.fraction = 0.0;
            return;
        }
        let segment = smss as f64;
        let cwnd = (window.cwnd as f64 + self.fraction) / segment;
        let mut epoch = self.epoch.unwrap_or_else(|| self.begin(cwnd, now));
        epoch += (now - self.last).saturating_sub(ack.rtt);
        self.epoch = Some(epoch);
        self.last = now;
        let t = (now - epoch).as_secs_f64();
        // RFC 9438 section 4.3, eq. (4): alpha is 1 once W_est has reached the window before the reduction.
        let alpha = if self.w_est < self.cwnd_prior { ALPHA } else { 1.0 };
        self.w_est += alpha * (ack.bytes as f64 / segment) / cwnd;
        let grown = if self.w_cubic(t) < self.w_est {
            // RFC 9438 section 4.3: the Reno-friendly region.
            self.w_est
        } else {
            // RFC 9438 sections 4.4, 4.5: the concave and convex regions.
            let target = self.w_cubic(t + ack.rtt.as_secs_f64()).clamp(cwnd, 1.5 * cwnd);
            cwnd + (target - cwnd) * (ack.avoidance as f64 / segment).min(cwnd) / cwnd
        };
        let bytes = grown.max(cwnd) * segment;
        window.cwnd = (bytes as u64).max(window.cwnd);
        self.fraction = (bytes - window.cwnd as f64).max(0.0);
    }

    fn on_congestion(&mut self, window: &mut Window, flight: u64, smss: u64, _now: Instant) {
        let cwnd = window.cwnd as f64 / smss as f64;
        // RFC 9438 section 4.7, fast convergence: a window that did not reach the last W_max releases bandwidth to
        // other flows.
        self.w_max = if cwnd < self.w_max { cwnd * (1.0 + BETA) / 2.0 } else { cwnd };
        self.cwnd_prior = cwnd;
        // RFC 9438 section 4.6.
        window.set_ssthresh(((flight as f64 * BETA) as u64).max(2 * smss));
        self.slow = false;
        self.epoch = None;
        self.fraction = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_units::Duration;

    use super::*;

    /// ACKs of one segment each, a window of them per RTT of `rtt` ms, for `ms` from `now` on.
    fn run(cubic: &mut Cubic, window: &mut Window, now: &mut Instant, rtt: u64, ms: u64) {
        let end = *now + Duration::from_millis(ms);
        while *now < end {
            let measured = Duration::from_millis(rtt);
            cubic.on_ack(window, &Acked::segment(measured), 1000, *now);
            *now += Duration::from_nanos(rtt * 1_000_000_000 / window.cwnd);
        }
    }

    fn reduced(cubic: &mut Cubic, cwnd: u64) -> Window {
        let mut window = Window::new(cwnd, None);
        cubic.on_congestion(&mut window, cwnd, 1000, Instant::ZERO);
        window.cwnd = window.reduced();
        window
    }

    /// From 1000 segments: ssthresh 700, K = cbrt(300 / 0.4) = 9.086 s. At K the window is W_max again, at 2 K it is
    /// W_max + 300. It never exceeds the curve one RTT ahead.
    #[test]
    fn window_follows_the_cubic_curve() {
        let mut cubic = Cubic::default();
        let mut window = reduced(&mut cubic, 1_000_000);
        assert_eq!(window.ssthresh(), Some(700_000));
        let mut now = Instant::ZERO;
        for (ms, low, high) in
            [(4543, 955_000, 963_500), (4543, 999_000, 1_000_100), (9086, 1_290_000, 1_311_000)]
        {
            run(&mut cubic, &mut window, &mut now, 100, ms);
            assert!((low..=high).contains(&window.cwnd), "{} at {now:?}", window.cwnd);
        }
    }

    /// With an RTT of 10 ms and 20 segments Reno is faster: alpha segments per RTT up to W_max.
    #[test]
    fn window_is_at_least_that_of_reno() {
        let mut cubic = Cubic::default();
        let mut window = reduced(&mut cubic, 20_000);
        run(&mut cubic, &mut window, &mut Instant::ZERO.clone(), 10, 100);
        let expected = 14_000.0 + 10.0 * ALPHA * 1000.0;
        assert!((window.cwnd as f64 - expected).abs() < 300.0, "{} is not {expected}", window.cwnd);
    }

    /// RFC 9438 section 4.7: only a window below the last W_max is reduced further, by (1 + 0.7) / 2.
    #[test]
    fn fast_convergence_lowers_w_max() {
        let mut cubic = Cubic::default();
        for (cwnd, w_max) in [(100_000, 100.0), (80_000, 80.0 * 0.85), (90_000, 90.0), (90_000, 90.0)] {
            reduced(&mut cubic, cwnd);
            assert_eq!(cubic.w_max, w_max);
        }
    }

    /// RFC 9438 section 4.8: in the stage after a timeout K is 0 and W_max the window at its start, here ssthresh = 700
    /// segments. 5 s later W_cubic = 700 + 0.4 * 5^3 = 750, and one RTT ahead 700 + 0.4 * 5.5^3 = 766.6; with the former W_max
    /// of 1000 it would be 1000 - 0.4 * 4.086^3 = 973.
    #[test]
    fn the_curve_after_a_timeout_starts_at_the_present_window() {
        let mut cubic = Cubic::default();
        let mut window = reduced(&mut cubic, 1_000_000);
        window.cwnd = 1000;
        let mut now = Instant::ZERO;
        while window.is_in_slow_start() {
            run(&mut cubic, &mut window, &mut now, 500, 1);
        }
        assert_eq!(window.cwnd, 700_000);
        run(&mut cubic, &mut window, &mut now, 500, 5000);
        assert!((745_000..766_000).contains(&window.cwnd), "{}", window.cwnd);
    }

    /// RFC 9438 section 4.6: at least two segments are left of two, 0.7 of which is less. Section 4.3: alpha is 1 once W_est
    /// is the window before the reduction, as it is at once here, so an ACK of two segments adds 1 * 2 / 2.
    #[test]
    fn a_window_of_two_segments_grows_like_renos() {
        let mut cubic = Cubic::default();
        let mut window = reduced(&mut cubic, 2000);
        assert_eq!(window.cwnd, 2000);
        let ack = Acked {
            bytes: 2000,
            slow_start: 1000,
            avoidance: 1000,
            ..Acked::segment(Duration::from_millis(100))
        };
        cubic.on_ack(&mut window, &ack, 1000, Instant::ZERO);
        assert_eq!(window.cwnd, 3000);
    }

    /// RFC 9438 section 4.3: the Reno-friendly region is where W_cubic(t) is less than W_est. One segment acknowledged at a
    /// window of 8 takes W_est from 8 to 8.125; at t = K = 1 s W_cubic is W_max. If that is 8.125 as well, the curve one RTT
    /// later counts, 8.125 + 0.4 * 0.5^3 = 8.175: the window grows by 0.175 / 8 = 0.0219.
    #[test]
    fn the_reno_window_counts_only_above_the_curve() {
        for (w_max, cwnd) in [(8.0, 8125), (8.125, 8021)] {
            let now = Instant::ZERO + Duration::from_secs(1);
            let epoch = Some(Instant::ZERO);
            let mut cubic = Cubic { w_max, k: 1.0, w_est: 8.0, epoch, last: now, ..Cubic::default() };
            let mut window = Window::new(8000, Some(8000));
            let ack = Acked::segment(Duration::from_millis(500));
            cubic.on_ack(&mut window, &ack, 1000, now);
            assert_eq!(window.cwnd, cwnd);
        }
    }

    /// The curve one RTT ahead is 0.4 * 1^3 = 0.4 segments above the window of 8. An ACK that counts for one segment adds 0.4 / 8,
    /// one for four segments four times as much, and one for more segments than the window has no more than the distance.
    #[test]
    fn an_ack_of_several_segments_counts_for_each_with_byte_counting() {
        for (avoidance, cwnd) in [(1000, 8050), (4000, 8200), (9000, 8400)] {
            let now = Instant::ZERO + Duration::from_secs(1);
            let epoch = Some(Instant::ZERO);
            let mut cubic = Cubic { w_max: 8.0, k: 1.0, epoch, last: now, ..Cubic::default() };
            let mut window = Window::new(8000, Some(8000));
            let ack =
                Acked { bytes: avoidance, slow_start: 0, avoidance, flight: 0, rtt: Duration::from_secs(1) };
            cubic.on_ack(&mut window, &ack, 1000, now);
            assert_eq!(window.cwnd, cwnd);
        }
    }

    #[test]
    fn idle_time_is_not_counted() {
        let mut cubic = Cubic::default();
        let mut window = reduced(&mut cubic, 1_000_000);
        let mut now = Instant::ZERO;
        run(&mut cubic, &mut window, &mut now, 100, 1000);
        let before = window.cwnd;
        now += Duration::from_secs(100);
        run(&mut cubic, &mut window, &mut now, 100, 100);
        assert!(window.cwnd - before < 30_000, "{before} to {}", window.cwnd);
    }
}
