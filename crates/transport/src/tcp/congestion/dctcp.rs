//! DCTCP, RFC 8257: the window is reduced in proportion to the fraction of marked packets.
//!
//! - growth: as RFC 5681;
//! - once per window: `alpha = (1 - g) alpha + g M`, where `M` is the marked fraction of the acknowledged bytes,
//!   section 3.3 (7), and `g` = 1/16;
//! - marks: `cwnd = cwnd (1 - alpha / 2)`, once per window of data, section 3.3 (9);
//! - loss: as RFC 5681, section 3.5.
//!
//! Departures: marks come from accurate ECN feedback (RFC 9768), not from the receiver's echo of section 3.2; without
//! it, the response is that of RFC 3168.

use bentpipe_units::{Duration, Instant};

use super::reno::Reno;
use super::{Acked, Control, Window};

/// g: weight of the latest window.
const G: f64 = 1.0 / 16.0;

/// DCTCP.Alpha and its counters.
#[derive(Clone, Debug)]
pub(super) struct MarkFraction {
    pub(super) alpha: f64,
    acked: u64,
    marked: u64,
    /// The observation window ends with an ACK above this.
    window_end: u64,
    /// Start of the observation window.
    since: Instant,
}

impl Default for MarkFraction {
    /// RFC 8257 section 3.3: alpha starts at 1, so the first mark halves the window.
    fn default() -> Self {
        Self { alpha: 1.0, acked: 0, marked: 0, window_end: 0, since: Instant::ZERO }
    }
}

impl MarkFraction {
    /// Processes an ACK up to `una` of `acked` bytes, `marked` of them with a mark; a window lasts at least `least`.
    /// Returns true if it ended one.
    pub(super) fn update(
        &mut self,
        acked: u64,
        marked: u64,
        una: u64,
        nxt: u64,
        now: Instant,
        min_period: Duration,
    ) -> bool {
        self.acked += acked;
        self.marked += marked;
        if una <= self.window_end || now < self.since + min_period {
            return false;
        }
        // RFC 8257 section 3.3 (6), (7).
        let m = self.marked.min(self.acked) as f64 / self.acked.max(1) as f64;
        self.alpha = self.alpha * (1.0 - G) + G * m;
        (self.acked, self.marked, self.window_end, self.since) = (0, 0, nxt, now);
        true
    }

    /// Window after a reduction [bytes].
    pub(super) fn reduced(&self, cwnd: u64, smss: u64) -> u64 {
        ((cwnd as f64 * (1.0 - self.alpha / 2.0)) as u64).max(2 * smss)
    }
}

/// State of DCTCP.
#[derive(Clone, Debug, Default)]
pub(in crate::tcp) struct Dctcp {
    reno: Reno,
    mark_fraction: MarkFraction,
    /// Marks on data sent before this position have been responded to.
    reduced: u64,
}

impl Control for Dctcp {
    fn on_ack(&mut self, window: &mut Window, ack: &Acked, smss: u64, now: Instant) {
        self.reno.on_ack(window, ack, smss, now);
    }

    fn on_congestion(&mut self, window: &mut Window, flight: u64, smss: u64, now: Instant) {
        self.reno.on_congestion(window, flight, smss, now);
    }

    fn on_ecn_feedback(&mut self, acked: u64, marked: u64, una: u64, nxt: u64, now: Instant) {
        self.mark_fraction.update(acked, marked, una, nxt, now, Duration::ZERO);
    }

    fn on_mark(&mut self, window: &mut Window, una: u64, max: u64, smss: u64, _now: Instant) {
        if una > self.reduced {
            self.reduced = max;
            window.cwnd = self.mark_fraction.reduced(window.cwnd, smss).min(window.cwnd);
            window.set_ssthresh(window.cwnd);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A window of ten segments, `marked` of them marked; each ACK covers one.
    fn round(dctcp: &mut Dctcp, una: &mut u64, marked: u64) {
        for i in 0..10 {
            *una += 1000;
            let mark = if i < marked { 1000 } else { 0 };
            dctcp.on_ecn_feedback(1000, mark, *una, *una + 10_000, Instant::ZERO);
        }
    }

    /// Worked out by hand, g = 1/16: an observation window takes eleven ACKs, because it ends with the ACK of more than
    /// was sent at its start. Ten unmarked: 15/16; then two of eleven marked.
    #[test]
    fn alpha_follows_the_fraction_of_marks() {
        let mut dctcp = Dctcp::default();
        let mut una = 1;
        // The very first ACK ends the first window.
        dctcp.on_ecn_feedback(1000, 0, 1001, 11_001, Instant::ZERO);
        una += 1000;
        assert_eq!(dctcp.mark_fraction.alpha, 15.0 / 16.0);
        round(&mut dctcp, &mut una, 2);
        assert_eq!(dctcp.mark_fraction.alpha, 15.0 / 16.0);
        round(&mut dctcp, &mut una, 0);
        let expected = 15.0 / 16.0 * 15.0 / 16.0 + 2.0 / 11.0 / 16.0;
        assert!((dctcp.mark_fraction.alpha - expected).abs() < 1e-12, "{}", dctcp.mark_fraction.alpha);
        // Without marks, alpha falls to 15/16 per window.
        for _ in 0..110 {
            round(&mut dctcp, &mut una, 0);
        }
        let ratio = dctcp.mark_fraction.alpha / expected;
        assert!((ratio - libm::pow(15.0 / 16.0, 100.0)).abs() < 1e-6, "{ratio}");
    }

    /// alpha = 1/4: reduced by one eighth, once per window of data; a loss halves.
    #[test]
    fn a_mark_reduces_by_half_of_alpha() {
        let mut dctcp = Dctcp::default();
        dctcp.mark_fraction.alpha = 0.25;
        let mut window = Window::new(80_000, None);
        dctcp.on_mark(&mut window, 1001, 80_001, 1000, Instant::ZERO);
        assert_eq!((window.cwnd, window.ssthresh()), (70_000, Some(70_000)));
        dctcp.on_mark(&mut window, 80_001, 150_001, 1000, Instant::ZERO);
        assert_eq!(window.cwnd, 70_000);
        dctcp.on_mark(&mut window, 80_002, 150_001, 1000, Instant::ZERO);
        assert_eq!(window.cwnd, 61_250);
        dctcp.on_congestion(&mut window, 61_250, 1000, Instant::ZERO);
        assert_eq!(window.ssthresh(), Some(30_625));
        // No less than two segments remain.
        window.cwnd = 2200;
        dctcp.on_mark(&mut window, 150_002, 150_002, 1000, Instant::ZERO);
        assert_eq!(window.cwnd, 2000);
    }
}
