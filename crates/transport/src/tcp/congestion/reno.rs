//! Slow start and congestion avoidance of RFC 5681.
//!
//! - slow start, `cwnd < ssthresh`: `cwnd += min(N, SMSS)` for an ACK of `N` new bytes, eq. (2);
//! - congestion avoidance: `cwnd += SMSS * SMSS / cwnd` for each ACK of new data, eq. (3);
//! - loss: `ssthresh = max(FlightSize / 2, 2 SMSS)`, eq. (4).
//!
//! Departures: the remainder of the division in eq. (3) is carried to the next ACK, for whole bytes alone
//! would slow the growth of windows of hundreds of segments by up to half.

use bentpipe_units::{Duration, Instant};

use super::{Control, Window};

/// State of Reno, and of NewReno, which differ in recovery alone.
#[derive(Clone, Debug, Default)]
pub(in crate::tcp) struct Reno {
    /// What eq. (3) left over [bytes^2].
    remainder: u64,
}

impl Control for Reno {
    #[inline]
    fn on_ack(&mut self, window: &mut Window, acked: u64, smss: u64, _rtt: Duration, _now: Instant) {
        if window.cwnd < window.ssthresh {
            // RFC 5681 eq. (2).
            window.cwnd = window.cwnd.saturating_add(acked.min(smss));
        } else {
            // RFC 5681 eq. (3).
            let grown = self.remainder.saturating_add(smss * smss);
            let cwnd = window.cwnd.max(1);
            window.cwnd = cwnd.saturating_add(grown / cwnd);
            self.remainder = grown % cwnd;
        }
    }

    fn on_congestion(&mut self, window: &mut Window, flight: u64, smss: u64, _now: Instant) {
        // RFC 5681 eq. (4).
        window.ssthresh = (flight / 2).max(2 * smss);
        self.remainder = 0;
    }
}
