//! TCP Hybla (Caini and Firrincieli, "TCP Hybla: a TCP enhancement for heterogeneous networks", Int. J. Satell. Commun.
//! Network. 22, 2004): over a long RTT the window grows like that of a connection with an RTT of `RTT0` = 25 ms.
//!
//! With `rho = max(RTT / RTT0, 1)`, section 3.1:
//! - slow start: `cwnd += (2^rho - 1) SMSS` for each ACK;
//! - congestion avoidance: `cwnd += rho^2 SMSS^2 / cwnd` for each ACK;
//! - loss: as RFC 5681;
//! - the first slow start ends at the capacity of the path estimated from its first ACKs: their rate times the RTT
//!   (section 4; Hoe, "Improving the start-up behavior of a congestion control scheme for TCP", SIGCOMM 1996). Until
//!   then the window grows as in RFC 5681.
//!
//! Departures: RTT is the minimum smoothed RTT so far, as in Linux, so that a queue does not speed up the growth; slow
//! start ends at ssthresh exactly and its `rho` is at most 16, as in Linux, because a single ACK may be worth thousands
//! of segments. The initial window is the configured one, not `rho` times as much; a configured threshold replaces the
//! estimate.
//!
//! Use it with SACK, timestamps and pacing, as the paper does: `rho^2` more segments per RTT overrun a queue by
//! hundreds, and NewReno resends one per RTT.

use bentpipe_units::{Duration, Instant};

use super::{Acked, Control, Window};

const RTT0: Duration = Duration::from_millis(25);

/// State of Hybla.
#[derive(Clone, Debug, Default)]
pub(in crate::tcp) struct Hybla {
    /// Minimum RTT; zero before the first measurement.
    min_rtt: Duration,
    /// Fraction of a byte of cwnd carried to the next ACK [bytes].
    fraction: f64,
    /// Number of ACKs used for the rate estimate, and the time of the last one.
    acks: u32,
    last: Instant,
    /// Largest rate between two of these ACKs [bytes/s].
    rate: f64,
}

/// ACKs needed for the rate estimate: one and the two that follow it.
const PROBES: u32 = 3;

impl Hybla {
    fn rho(&mut self, rtt: Duration) -> f64 {
        if !rtt.is_zero() && (self.min_rtt.is_zero() || rtt < self.min_rtt) {
            self.min_rtt = rtt;
        }
        (self.min_rtt.as_nanos() as f64 / RTT0.as_nanos() as f64).max(1.0)
    }

    /// Sets ssthresh to the estimated capacity of the path. Returns true once enough ACKs of new data have arrived.
    fn estimate(&mut self, window: &mut Window, ack: &Acked, smss: u64, now: Instant) -> bool {
        let elapsed = (now - self.last).as_secs_f64();
        if self.acks > 0 && elapsed > 0.0 {
            self.rate = self.rate.max(ack.bytes as f64 / elapsed);
        }
        self.acks = self.acks.saturating_add(1);
        self.last = now;
        let known = self.acks >= PROBES && self.rate > 0.0;
        if known {
            window.set_ssthresh(((self.rate * self.min_rtt.as_secs_f64()) as u64).max(2 * smss));
        }
        known
    }
}

impl Control for Hybla {
    fn on_ack(&mut self, window: &mut Window, ack: &Acked, smss: u64, now: Instant) {
        let rho = self.rho(ack.rtt);
        if window.ssthresh().is_none() && !self.estimate(window, ack, smss, now) {
            window.cwnd = window.cwnd.saturating_add(ack.slow_start);
            return;
        }
        let cwnd = window.cwnd as f64 + self.fraction;
        let slow = window.is_in_slow_start();
        let grown = if slow {
            // An ACK of less than a segment counts for less, as in RFC 5681 eq. (2).
            let limit = window.ssthresh().map_or(f64::INFINITY, |ssthresh| ssthresh as f64);
            (cwnd + (libm::exp2(rho.min(16.0)) - 1.0) * ack.slow_start as f64).min(limit)
        } else {
            cwnd + rho * rho * smss as f64 * ack.avoidance as f64 / cwnd.max(1.0)
        };
        window.cwnd = (grown as u64).max(window.cwnd);
        self.fraction = if slow { 0.0 } else { (grown - window.cwnd as f64).max(0.0) };
    }

    fn on_congestion(&mut self, window: &mut Window, flight: u64, smss: u64, _now: Instant) {
        // RFC 5681 eq. (4).
        window.set_ssthresh((flight / 2).max(2 * smss));
        self.fraction = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(hybla: &mut Hybla, window: &mut Window, ms: u64) {
        let rtt = Duration::from_millis(ms);
        hybla.on_ack(window, &Acked::segment(rtt), 1000, Instant::ZERO);
    }

    /// rho = 75 / 25 = 3: 2^3 - 1 segments for each ACK, up to ssthresh; then 9 segments per window.
    #[test]
    fn window_grows_by_rho() {
        let mut hybla = Hybla::default();
        let mut window = Window::new(2000, Some(30_000));
        for expected in [9000, 16_000, 23_000, 30_000, 30_300] {
            ack(&mut hybla, &mut window, 75);
            assert_eq!(window.cwnd, expected);
        }
    }

    /// ACKs of one segment each, after 1 ms and 2 ms: one segment per 1 ms times an RTT of 100 ms is 100 segments,
    /// where slow start, which grows by 15 with the third ACK, ends.
    #[test]
    fn the_first_acks_set_ssthresh() {
        let mut hybla = Hybla::default();
        let mut window = Window::new(10_000, None);
        let mut at = |ms: u64, window: &mut Window| {
            let rtt = Duration::from_millis(100);
            let ack = Acked::segment(rtt);
            hybla.on_ack(window, &ack, 1000, Instant::ZERO + Duration::from_millis(ms));
            (window.cwnd, window.ssthresh())
        };
        assert_eq!(at(100, &mut window), (11_000, None));
        assert_eq!(at(101, &mut window), (12_000, None));
        assert_eq!(at(103, &mut window), (27_000, Some(100_000)));
        window.cwnd = 99_000;
        assert_eq!(at(104, &mut window), (100_000, Some(100_000)));
    }

    /// Section 4: the estimate is the largest rate between two ACKs, of 1000 bytes here, times an RTT of 100 ms, once three ACKs
    /// have arrived. The time before the first gives no rate, nor do ACKs that arrive together. Two segments at least.
    #[test]
    fn the_capacity_is_estimated_from_the_time_between_acks() {
        for (times_ms, ssthresh) in [
            (&[1, 3, 5][..], Some(50_000)),
            (&[100, 101, 101], Some(100_000)),
            (&[100, 100, 100], None),
            (&[100, 100, 100, 101], Some(100_000)),
            (&[100, 200, 300], Some(2000)),
        ] {
            let mut hybla = Hybla::default();
            let mut window = Window::new(10_000, None);
            for &ms in times_ms {
                assert_eq!(window.ssthresh(), None, "{times_ms:?}");
                let rtt = Duration::from_millis(100);
                let ack = Acked::segment(rtt);
                hybla.on_ack(&mut window, &ack, 1000, Instant::ZERO + Duration::from_millis(ms));
            }
            assert_eq!(window.ssthresh(), ssthresh, "{times_ms:?}");
        }
    }

    /// Below RTT0 it equals Reno: 9000 + 1e6 / 9000 = 9111.1, + 1e6 / 9111.1 = 9220.9, + 1e6 / 9220.9 = 9329.3, which needs
    /// the fractions of a byte. A loss leaves half of what is in flight, at least two segments.
    #[test]
    fn window_equals_renos_below_rtt0() {
        let (mut hybla, mut window) = (Hybla::default(), Window::new(9000, Some(9000)));
        for expected in [9111, 9220, 9329] {
            ack(&mut hybla, &mut window, 10);
            assert_eq!(window.cwnd, expected);
        }
        let mut hybla = Hybla::default();
        let mut window = Window::new(9000, Some(10_000));
        for expected in [10_000, 10_100] {
            ack(&mut hybla, &mut window, 10);
            assert_eq!(window.cwnd, expected);
        }
        for (flight, ssthresh) in [(10_000, 5000), (3000, 2000)] {
            hybla.on_congestion(&mut window, flight, 1000, Instant::ZERO);
            assert_eq!(window.ssthresh(), Some(ssthresh));
        }
    }

    /// A queue that increases the RTT does not speed up the growth; a shorter path slows it down.
    #[test]
    fn rho_uses_the_minimum_rtt() {
        let mut hybla = Hybla::default();
        let mut window = Window::new(100_000, Some(100_000));
        ack(&mut hybla, &mut window, 50);
        assert_eq!(window.cwnd, 100_040);
        ack(&mut hybla, &mut window, 500);
        assert_eq!(window.cwnd, 100_079); // 4e6 / 100040 = 39.98
        ack(&mut hybla, &mut window, 25);
        assert_eq!(window.cwnd, 100_089); // 100079.98 + 1e6 / 100079.98
    }
}
