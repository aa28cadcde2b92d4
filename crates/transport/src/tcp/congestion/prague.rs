//! Prague (draft-briscoe-iccrg-prague-congestion-control-04): DCTCP for the Internet and L4S (RFC 9331).
//!
//! - `alpha` as in DCTCP, from the first mark on, once per `max(RTT, RTT_virt)`, where `RTT_virt` = 25 ms;
//! - marks: `cwnd = cwnd (1 - alpha / 2)`, at most once per `max(RTT, RTT_virt)`;
//! - growth: `min(RTT / RTT_virt, 1)^2 SMSS^2 / cwnd` for each ACK, so that flows with RTTs below 25 ms get equal
//!   rates; slow start as in RFC 5681; both for unmarked bytes only;
//! - loss: half, as Reno (RFC 9331 section 4.3, item 2);
//! - pacing at `cwnd / SRTT`, twice that in slow start up to half of ssthresh.
//!
//! RTT independence starts 500 RTTs after slow start, so that short transfers are not slowed. Data is sent with ECT(1).
//!
//! Departures: no windows below two segments and no detection of RFC 3168 queues. A peer without accurate feedback gets
//! ECT(0) and Reno's responses.

use bentpipe_units::{Duration, Instant, Rate};

use super::dctcp::MarkFraction;
use super::{Acked, Control, Window};

const RTT_VIRT: Duration = Duration::from_millis(25);
/// RTTs after slow start before RTT independence.
const TRANSITION: u32 = 500;

/// State of Prague.
#[derive(Clone, Debug, Default)]
pub(in crate::tcp) struct Prague {
    mark_fraction: MarkFraction,
    /// A mark has been seen, so alpha is valid.
    marked: bool,
    /// RTTs since slow start.
    rounds: u32,
    /// Position and time of the last response to marks: marks on data sent before need no further response.
    reduced: u64,
    reduced_at: Instant,
    /// Fraction of a byte of cwnd carried to the next ACK [bytes].
    fraction: f64,
}

impl Prague {
    fn is_independent(&self) -> bool {
        self.rounds >= TRANSITION
    }

    /// Minimum time between two updates or reductions.
    fn period(&self) -> Duration {
        if self.is_independent() { RTT_VIRT } else { Duration::ZERO }
    }
}

impl Control for Prague {
    fn on_ack(&mut self, window: &mut Window, ack: &Acked, smss: u64, _now: Instant) {
        if window.is_in_slow_start() {
            // RFC 5681 eq. (2).
            window.cwnd = window.cwnd.saturating_add(ack.slow_start);
            self.rounds = 0;
            return;
        }
        let ratio = ack.rtt.as_secs_f64() / RTT_VIRT.as_secs_f64();
        let scale = if self.is_independent() { (ratio * ratio).min(1.0) } else { 1.0 };
        let grown = window.cwnd as f64
            + self.fraction
            + scale * smss as f64 * ack.avoidance as f64 / window.cwnd.max(1) as f64;
        window.cwnd = (grown as u64).max(window.cwnd);
        self.fraction = (grown - window.cwnd as f64).max(0.0);
    }

    fn on_congestion(&mut self, window: &mut Window, flight: u64, smss: u64, _now: Instant) {
        // RFC 5681 eq. (4).
        window.set_ssthresh((flight / 2).max(2 * smss));
        self.fraction = 0.0;
    }

    fn on_ecn_feedback(&mut self, acked: u64, marked: u64, una: u64, nxt: u64, now: Instant) {
        if marked > 0 && !self.marked {
            self.marked = true;
            self.mark_fraction = MarkFraction::default();
        }
        let period = self.period();
        let alpha = self.mark_fraction.alpha;
        if self.mark_fraction.update(acked, marked, una, nxt, now, period) {
            self.rounds = self.rounds.saturating_add(1);
            if !self.marked {
                self.mark_fraction.alpha = alpha;
            }
        }
    }

    fn on_mark(&mut self, window: &mut Window, una: u64, max: u64, smss: u64, now: Instant) {
        if una > self.reduced && now >= self.reduced_at + self.period() {
            self.reduced = max;
            self.reduced_at = now;
            window.cwnd = self.mark_fraction.reduced(window.cwnd, smss).min(window.cwnd);
            window.set_ssthresh(window.cwnd);
        }
    }

    fn pacing_rate(&self, window: &Window, srtt: Option<Duration>) -> Option<Rate> {
        let gain = if window.may_double() { 2.0 } else { 1.0 };
        let rate = |srtt: Duration| (gain * window.cwnd as f64 * 8.0 / srtt.as_secs_f64()) as u64;
        srtt.map(|srtt| Rate::from_bps(rate(srtt).max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 500 RTTs of 5 ms after slow start: growth is 1/25 of Reno's, one segment in 25 windows.
    #[test]
    fn short_rtts_grow_like_25_ms_after_500_rounds() {
        let mut prague = Prague::default();
        let mut window = Window::new(100_000, Some(100_000));
        let ack = Acked::segment(Duration::from_millis(5));
        prague.on_ack(&mut window, &ack, 1000, Instant::ZERO);
        assert_eq!(window.cwnd, 100_010);
        prague.rounds = TRANSITION;
        window.cwnd = 100_000;
        for _ in 0..100 {
            prague.on_ack(&mut window, &ack, 1000, Instant::ZERO);
        }
        // 100 times 0.4 bytes, slightly less as the window grows.
        assert_eq!(window.cwnd, 100_039);
        // With 50 ms it equals Reno's.
        let long = Acked { rtt: Duration::from_millis(50), ..ack };
        prague.on_ack(&mut window, &long, 1000, Instant::ZERO);
        assert_eq!(window.cwnd, 100_049);
    }

    /// The first mark finds alpha at 1, however long nothing was marked; then alpha follows the fraction of marks.
    #[test]
    fn alpha_is_one_at_the_first_mark() {
        let mut prague = Prague::default();
        for i in 1..100u64 {
            prague.on_ecn_feedback(1000, 0, i * 1000, i * 1000, Instant::ZERO);
        }
        assert_eq!(prague.mark_fraction.alpha, 1.0);
        prague.on_ecn_feedback(1000, 1000, 100_000, 100_000, Instant::ZERO);
        prague.on_ecn_feedback(1000, 0, 101_000, 101_000, Instant::ZERO);
        assert_eq!(prague.mark_fraction.alpha, 15.0 / 16.0);
    }

    /// With RTT independence, once per 25 ms: alpha falls to 15/16 without a mark.
    #[test]
    fn updates_of_alpha_are_at_least_25_ms_apart() {
        let mut prague = Prague { rounds: TRANSITION, marked: true, ..Prague::default() };
        for (ms, alpha) in [(100, 15.0 / 16.0), (124, 15.0 / 16.0), (125, 225.0 / 256.0)] {
            prague.on_ecn_feedback(1000, 0, ms * 1000, ms * 1000, Instant::ZERO + Duration::from_millis(ms));
            assert_eq!(prague.mark_fraction.alpha, alpha, "{ms} ms");
        }
    }

    /// RFC 9331 section 4.3 (2): as Reno, half of what is in flight, and no less than two segments.
    #[test]
    fn a_loss_halves_the_window() {
        for (flight, ssthresh) in [(64_000, 32_000), (3000, 2000)] {
            let (mut prague, mut window) = (Prague::default(), Window::new(64_000, None));
            prague.on_congestion(&mut window, flight, 1000, Instant::ZERO);
            assert_eq!(window.ssthresh(), Some(ssthresh));
        }
    }

    /// With RTT independence, at most once per 25 ms.
    #[test]
    fn reductions_are_at_least_25_ms_apart() {
        let mut prague = Prague { rounds: TRANSITION, ..Prague::default() };
        prague.mark_fraction.alpha = 0.5;
        let mut window = Window::new(64_000, Some(64_000));
        let mut mark = |ms: u64, una: u64| {
            prague.on_mark(&mut window, una, una, 1000, Instant::ZERO + Duration::from_millis(ms));
            window.cwnd
        };
        assert_eq!(mark(100, 1000), 48_000);
        assert_eq!(mark(124, 2000), 48_000);
        assert_eq!(mark(125, 3000), 36_000);
        assert_eq!(mark(200, 3000), 36_000, "data sent before the reduction");
    }
}
