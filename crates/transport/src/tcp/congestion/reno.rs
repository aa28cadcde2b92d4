//! Slow start and congestion avoidance of RFC 5681.
//!
//! - slow start, `cwnd < ssthresh`: `cwnd += min(N, SMSS)` for an ACK of `N` new bytes, eq. (2);
//! - congestion avoidance: `cwnd += SMSS * SMSS / cwnd` for each ACK of new data, eq. (3);
//! - loss: `ssthresh = max(FlightSize / 2, 2 SMSS)`, eq. (4).
//!
//! With appropriate byte counting, RFC 3465, an ACK counts for up to two segments in slow start, and for the bytes it
//! covers in congestion avoidance.
//!
//! Departures: the remainder of the division in eq. (3) is carried to the next ACK. Rounding to whole bytes alone would
//! slow the growth of windows of hundreds of segments by up to half.

use bentpipe_units::Instant;

use super::{Acked, Control, Window};

/// State of Reno and NewReno, which differ only in recovery.
#[derive(Clone, Debug, Default)]
pub(in crate::tcp) struct Reno {
    /// Remainder of eq. (3) [bytes^2]: the part of a byte by which cwnd is too small, times cwnd.
    pub(super) remainder: u64,
}

impl Control for Reno {
    #[inline]
    fn on_ack(&mut self, window: &mut Window, ack: &Acked, smss: u64, _now: Instant) {
        if window.is_in_slow_start() {
            // RFC 5681 eq. (2).
            window.cwnd = window.cwnd.saturating_add(ack.slow_start);
        } else {
            // RFC 5681 eq. (3).
            let grown = self.remainder.saturating_add(smss.saturating_mul(ack.avoidance));
            let cwnd = window.cwnd.max(1);
            window.cwnd = cwnd.saturating_add(grown / cwnd);
            self.remainder = grown % cwnd;
        }
    }

    fn on_congestion(&mut self, window: &mut Window, flight: u64, smss: u64, _now: Instant) {
        // RFC 5681 eq. (4).
        window.set_ssthresh((flight / 2).max(2 * smss));
        self.remainder = 0;
    }
}
