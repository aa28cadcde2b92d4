//! Congestion window validation as in Linux 6: `tcp_cwnd_validate()` of `net/ipv4/tcp_output.c` and `tcp_is_cwnd_limited()` of
//! `include/net/tcp.h`.
//!
//! A window that was the limit counts as such for a window of data, also while its last segments leave with room to spare, and slow
//! start continues up to twice what was outstanding. An unused window is not reduced: every ACK restarts the clock of
//! `tcp_cwnd_application_limited()`, and after an idle time long enough for it `tcp_cwnd_restart()` comes first.
//!
//! Departure: segments are counted by bytes, so that several short ones count as one.

use super::{Burst, Window};

/// Use that a connection makes of its window.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage {
    /// `is_cwnd_limited`; `None` before the first burst.
    is_limit: Option<bool>,
    /// `max_packets_out`: most that was outstanding, if the window was not the limit [bytes].
    outstanding: u64,
    /// `cwnd_usage_seq`: the two above hold until this position is acknowledged.
    until: u64,
    /// SND.NXT of the last burst.
    nxt: u64,
}

impl Usage {
    /// `tcp_is_cwnd_limited()`: true if an ACK may let the window grow. `is_limit` if bursts are not reported.
    pub(super) fn may_grow(&self, window: &Window, is_limit: bool) -> bool {
        self.is_limit.unwrap_or(is_limit) || window.is_in_slow_start() && window.cwnd < 2 * self.outstanding
    }

    /// `tcp_cwnd_validate()`, at the end of `tcp_write_xmit()`.
    pub(super) fn on_burst(&mut self, window: &Window, burst: &Burst, smss: u64) {
        let is_limit = burst.in_flight + smss > window.cwnd;
        if burst.nxt <= self.nxt && !(is_limit && burst.has_more) {
            return;
        }
        self.nxt = self.nxt.max(burst.nxt);
        let outstanding = (burst.nxt - burst.una).next_multiple_of(smss);
        let was_limit = self.is_limit == Some(true);
        if burst.una >= self.until || is_limit || !was_limit && outstanding > self.outstanding {
            (self.is_limit, self.outstanding, self.until) = (Some(is_limit), outstanding, burst.nxt);
        }
    }
}
