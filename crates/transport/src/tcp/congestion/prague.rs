//! Prague (draft-briscoe-iccrg-prague-congestion-control-04): DCTCP made fit for the Internet, for L4S (RFC 9331).
//!
//! - `alpha` as DCTCP's, from the first mark on, once in `max(RTT, RTT_virt)`, where `RTT_virt` = 25 ms;
//! - marks: `cwnd = cwnd (1 - alpha / 2)`, no more often, either;
//! - growth: `min(RTT / RTT_virt, 1)^2 SMSS^2 / cwnd` for each ACK, so that below 25 ms rates do not hang on the round
//!   trip; slow start as RFC 5681; both for what arrived without a mark;
//! - loss: half, as Reno (RFC 9331 section 4.3, item 2);
//! - pacing at `cwnd / SRTT`, twice that in slow start up to half of ssthresh.
//!
//! Independence of the round trip begins 500 of them after slow start, so that short transfers are not slowed. Data is
//! sent with ECT(1).
//!
//! Departures: windows below two segments, and finding out that a queue marks as RFC 3168 has it, are left out. A peer
//! without accurate feedback gets ECT(0) and Reno's responses.

use bentpipe_units::{Duration, Instant, Rate};

use super::dctcp::MarkFraction;
use super::{Acked, Control, Window};

const RTT_VIRT: Duration = Duration::from_millis(25);
/// Round trips after slow start before independence of them.
const TRANSITION: u32 = 500;

/// State of Prague.
#[derive(Clone, Debug, Default)]
pub(in crate::tcp) struct Prague {
    mark_fraction: MarkFraction,
    /// A mark was seen, so alpha means something.
    marked: bool,
    /// Round trips since slow start.
    rounds: u32,
    /// Marks on what was sent before this were responded to, last at that time.
    reduced: u64,
    reduced_at: Instant,
    /// What whole bytes of cwnd leave out [bytes].
    fraction: f64,
}

impl Prague {
    fn is_independent(&self) -> bool {
        self.rounds >= TRANSITION
    }

    /// The least time between two updates or reductions.
    fn period(&self) -> Duration {
        if self.is_independent() { RTT_VIRT } else { Duration::ZERO }
    }
}

impl Control for Prague {
    fn on_ack(&mut self, window: &mut Window, ack: &Acked, smss: u64, _now: Instant) {
        if window.cwnd < window.ssthresh {
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
        window.ssthresh = (flight / 2).max(2 * smss);
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
            window.ssthresh = window.cwnd;
        }
    }

    fn pacing_rate(&self, window: &Window, srtt: Option<Duration>) -> Option<Rate> {
        let gain = if window.cwnd < window.ssthresh / 2 { 2.0 } else { 1.0 };
        let rate = |srtt: Duration| (gain * window.cwnd as f64 * 8.0 / srtt.as_secs_f64()) as u64;
        srtt.map(|srtt| Rate::from_bps(rate(srtt).max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 500 round trips of 5 ms without slow start: growth is a 25th of Reno's, a segment in 25 windows.
    #[test]
    fn a_short_round_trip_grows_as_one_of_25_ms_in_the_end() {
        let mut prague = Prague::default();
        let mut window = Window { cwnd: 100_000, ssthresh: 100_000 };
        let ack = Acked { bytes: 1000, slow_start: 1000, avoidance: 1000, rtt: Duration::from_millis(5) };
        prague.on_ack(&mut window, &ack, 1000, Instant::ZERO);
        assert_eq!(window.cwnd, 100_010);
        prague.rounds = TRANSITION;
        window.cwnd = 100_000;
        for _ in 0..100 {
            prague.on_ack(&mut window, &ack, 1000, Instant::ZERO);
        }
        // 100 times 0.4 bytes, a little less as the window grows.
        assert_eq!(window.cwnd, 100_039);
        // Of 50 ms it is Reno's.
        let long = Acked { rtt: Duration::from_millis(50), ..ack };
        prague.on_ack(&mut window, &long, 1000, Instant::ZERO);
        assert_eq!(window.cwnd, 100_049);
    }

    /// The first mark finds alpha at 1, however long nothing was marked; then it follows the share of marks.
    #[test]
    fn alpha_begins_with_the_first_mark() {
        let mut prague = Prague::default();
        for i in 1..100u64 {
            prague.on_ecn_feedback(1000, 0, i * 1000, i * 1000, Instant::ZERO);
        }
        assert_eq!(prague.mark_fraction.alpha, 1.0);
        prague.on_ecn_feedback(1000, 1000, 100_000, 100_000, Instant::ZERO);
        prague.on_ecn_feedback(1000, 0, 101_000, 101_000, Instant::ZERO);
        assert_eq!(prague.mark_fraction.alpha, 15.0 / 16.0);
    }

    /// Once independent, no more often than in 25 ms.
    #[test]
    fn reductions_are_25_ms_apart() {
        let mut prague = Prague { rounds: TRANSITION, ..Prague::default() };
        prague.mark_fraction.alpha = 0.5;
        let mut window = Window { cwnd: 64_000, ssthresh: 64_000 };
        let mut mark = |ms: u64, una: u64| {
            prague.on_mark(&mut window, una, una, 1000, Instant::ZERO + Duration::from_millis(ms));
            window.cwnd
        };
        assert_eq!(mark(100, 1000), 48_000);
        assert_eq!(mark(124, 2000), 48_000);
        assert_eq!(mark(125, 3000), 36_000);
    }
}
