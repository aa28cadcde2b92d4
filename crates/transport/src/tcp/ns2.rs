//! Recovery as in ns-2.35 (`Agent/TCP/Reno`, `Newreno` and `Sack1`), to compare results with those of ns-2. Enabled by
//! [`Config::ns2_recovery`].
//!
//! It departs from the RFCs as follows:
//!
//! - Window: after a loss or a mark, cwnd is exactly half of the former one, and ssthresh is half in whole segments, at least
//!   two. RFC 5681 section 3.2 sets cwnd to ssthresh. A window of less than ssthresh then grows as in slow start.
//! - Marks: a mark may leave less than a segment. Nothing is then sent until the retransmission timer expires, as RFC 3168
//!   section 6.1.2 asks of a sender with a window of one segment; each further mark on such a window doubles the timeout. A
//!   timeout allows a mark to reduce the window again, and a timeout or fast retransmit after a mark does not reduce ssthresh
//!   again. Retransmissions are ECN-capable and may carry CWR, against RFC 3168 sections 6.1.5 and 6.1.2.
//! - Fast recovery: the segments that duplicate ACKs report are counted apart from cwnd, and a partial ACK deflates cwnd
//!   only by what exceeds them. cwnd keeps what is left of it when recovery ends, where RFC 6582 section 3.2 step 3 sets it
//!   to ssthresh, and the ACK that ends recovery increases it.
//! - `Sack1`: every hole below the highest SACKed segment is resent, without IsLost() of RFC 6675 section 4. Pipe counts
//!   segments: three less than sent at the start, one less for each ACK, two for a partial one. New ACKs outside recovery
//!   and timeouts clear the scoreboard, so after a timeout everything is resent.
//! - Timer: a fast retransmit or a timeout cancels the RTT measurement in progress, other retransmissions do not, and only
//!   a measurement or a partial ACK of `Sack1` ends the backoff.
//! - Duplicate ACKs count while nothing is outstanding too, and then release data if cwnd is less than a segment.
//! - The first data segment may be resent by fast retransmit again after a timeout.

use bentpipe_units::Instant;

use super::accurate::EcnMode;
use super::ack::DUP_ACKS;
use super::connection::{Connection, Phase, Timer};
use super::scoreboard::Rule;
use super::{Config, Sack};

/// Latest reduction of the window. `AtOne`: a mark was echoed while the window was at most one segment, and no ACK without an
/// echo has arrived since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum Reduction {
    #[default]
    None,
    /// A loss detected by duplicate ACKs.
    Loss,
    Mark,
    MarkAtOne,
    Timeout,
    TimeoutAtOne,
}

impl Reduction {
    pub(super) fn is_mark(self) -> bool {
        matches!(self, Self::Mark | Self::MarkAtOne)
    }

    fn is_timeout(self) -> bool {
        matches!(self, Self::Timeout | Self::TimeoutAtOne)
    }

    pub(super) fn is_at_one(self) -> bool {
        matches!(self, Self::MarkAtOne | Self::TimeoutAtOne)
    }

    /// The latest reduction after a timeout.
    pub(super) fn on_timeout(self) -> Self {
        if self.is_at_one() { Self::TimeoutAtOne } else { Self::Timeout }
    }

    /// The latest reduction after an ACK without an echo.
    pub(super) fn on_unmarked(self) -> Self {
        match self {
            Self::MarkAtOne => Self::Mark,
            Self::TimeoutAtOne => Self::Timeout,
            other => other,
        }
    }
}

impl Connection {
    /// Window that ns-2 halves after a loss or a mark [bytes], with the remainder of its growth [bytes^2].
    pub(super) fn window_of_ns2(&mut self, cfg: &Config) -> (u64, u64) {
        let window = self.whole_window(cfg);
        let remainder = self.algorithm.remainder().map_or(0, |remainder| *remainder);
        (window, if window == self.window.cwnd { remainder } else { 0 })
    }

    /// Reduces the windows from `window` with its `remainder` after a loss or a mark, once the algorithm has set ssthresh.
    pub(super) fn reduce_as_ns2(&mut self, cfg: &Config, (window, remainder): (u64, u64)) {
        let smss = cfg.smss();
        let mut half = self.window.reduced();
        if let Some(left) = self.algorithm.remainder() {
            half = window / 2;
            // ns-2 counts in fractions of a segment: what the division leaves of a byte grows on.
            *left = (window % 2 * window + remainder).saturating_mul(half) / (2 * window).max(1);
        }
        self.window.cwnd = half;
        self.window.set_ssthresh((half / smss).max(2) * smss);
    }

    /// Reacts to the third duplicate ACK. Returns true if fast recovery begins.
    pub(super) fn on_third_duplicate_as_ns2(&mut self, cfg: &Config, now: Instant) -> bool {
        let window = self.window_of_ns2(cfg);
        if self.una == self.max {
            return false;
        }
        if self.una > self.recover || self.una == 1 {
            self.reduced = 0;
            self.on_loss(cfg, now);
            self.reduce_as_ns2(cfg, window);
            // Three duplicates of a window below two segments are reordered packets.
            self.window.cwnd = self.window.cwnd.max(cfg.smss());
        } else if self.latest.is_mark() {
            // The mark has reduced the window for this loss too.
            let recover = self.recover;
            self.reduced = u64::MAX;
            self.on_loss(cfg, now);
            self.recover = recover;
        } else {
            return false;
        }
        self.latest = Reduction::Loss;
        true
    }

    /// Reacts to a mark that an ACK up to `ack` echoes.
    pub(super) fn on_mark_as_ns2(&mut self, cfg: &Config, now: Instant, ack: u64) {
        if ack <= self.recover && !self.latest.is_timeout() {
            return;
        }
        let smss = cfg.smss();
        let is_at_one = self.window.cwnd <= smss;
        if is_at_one && self.latest.is_at_one() {
            self.rto.back_off(cfg);
        }
        let (window, remainder) = self.window_of_ns2(cfg);
        let inflated = window.saturating_add(self.duplicates(cfg)).min(cfg.max_window.max(smss));
        let flight = self.flight();
        self.algorithm.on_congestion_mark(&self.window);
        self.reduce(cfg, now, flight);
        self.reduce_as_ns2(cfg, (inflated, remainder));
        self.recover = self.max;
        self.reduced = self.max;
        self.latest = if is_at_one { Reduction::MarkAtOne } else { Reduction::Mark };
        if self.window.cwnd < smss && matches!(self.timer, Timer::Off | Timer::Persist) {
            self.set_timer(Timer::Retransmission, now + self.rto.interval());
        }
    }

    /// Handles the timer that let a window of less than a segment wait: it is one segment again, and the timer stops
    /// until that is sent.
    pub(super) fn on_waited_as_ns2(&mut self) {
        self.latest = self.latest.on_timeout();
        self.cwr_due = self.ecn == EcnMode::Classic;
        self.recover = self.max;
        self.reduced = self.max;
        self.rto.on_resent();
        self.stop_timer();
    }

    /// Deflates the window for a partial ACK of `acked` bytes, after `duplicates` duplicate ACKs.
    pub(super) fn deflate_as_ns2(&mut self, cfg: &Config, acked: u64, duplicates: u16) {
        let segments = acked.div_ceil(cfg.smss());
        let duplicates = u64::from(duplicates);
        if duplicates > segments {
            self.duplicate_acks = (duplicates + 1 - segments) as u16;
        } else {
            let excess = (segments - duplicates) * cfg.smss();
            self.window.cwnd = self.window.cwnd.saturating_sub(excess).max(cfg.smss());
            self.duplicate_acks = 1;
        }
    }

    /// Processes an ACK as `Sack1` does.
    pub(super) fn on_ack_as_sack1(
        &mut self,
        cfg: &Config,
        now: Instant,
        ack: u64,
        sack: Sack,
        echo: u32,
        marked: bool,
    ) {
        let was_recovering = self.phase == Phase::SackRecovery;
        let is_new = ack > self.una;
        if is_new {
            self.on_new_ack(cfg, now, ack, echo, marked);
        }
        let (una, max) = (self.una, self.max);
        let Some(board) = &mut self.sack else { return };
        if self.phase == Phase::SackRecovery {
            board.is_held = false;
            board.pipe_segments -= 1 + i64::from(is_new);
            board.update(ack, &sack, una, max);
            return;
        }
        if is_new {
            board.clear();
            if was_recovering {
                self.recover = 0;
            }
            return;
        }
        // After a timeout, duplicate ACKs are ignored until new data is acknowledged.
        if ack < una || una == max || self.phase != Phase::Open || board.update(ack, &sack, una, max) == 0 {
            return;
        }
        self.duplicate_acks = self.duplicate_acks.saturating_add(1);
        if self.duplicate_acks != DUP_ACKS || !self.on_third_duplicate_as_ns2(cfg, now) {
            return;
        }
        self.phase = Phase::SackRecovery;
        let Some(board) = &mut self.sack else { return };
        board.pipe_segments = ((max - una).div_ceil(cfg.smss()) as i64) - i64::from(DUP_ACKS);
        board.high_rxt = una;
        board.first_due = true;
    }

    /// Position and payload length of the next segment in the recovery of `Sack1`.
    #[cold]
    pub(super) fn next_sack1_segment(&mut self, cfg: &Config) -> Option<(u64, u64)> {
        let smss = cfg.smss();
        let limit = self.send_limit(cfg);
        let (una, nxt, end, written) = (self.una, self.nxt, self.stream_end(), self.written);
        let room = (self.window.cwnd / smss) as i64;
        let board = self.sack.as_mut()?;
        let size = |start: u64, end: u64| smss.min(end.min(written).saturating_sub(start));
        let (hole, hole_end) = board.ranges.gap(board.high_rxt.max(una), self.max);
        let (rule, seq, len) = if board.first_due {
            (Rule::First, una, size(una, self.max))
        } else if board.is_held || board.pipe_segments >= room {
            return None;
        } else if board.ranges.as_slice().last().is_some_and(|highest| hole < highest.0) {
            (Rule::Retransmit, hole, size(hole, hole_end))
        } else if nxt < end && nxt + size(nxt, written).max(1) <= limit {
            (Rule::Unsent, nxt, size(nxt, written))
        } else {
            return None;
        };
        board.rule = rule;
        Some((seq, len))
    }

    /// Records that the segment chosen by [`Self::next_sack1_segment`] was sent; it ends at `end`.
    #[cold]
    pub(super) fn on_sent_as_sack1(&mut self, end: u64) {
        let Some(board) = &mut self.sack else { return };
        if board.rule == Rule::First {
            // Nothing else is sent before the next ACK, and Pipe does not count this segment.
            board.first_due = false;
            board.is_held = true;
        } else {
            board.pipe_segments += 1;
        }
        if board.rule != Rule::Unsent {
            board.high_rxt = board.high_rxt.max(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_units::Duration;

    use super::super::congestion::Window;
    use super::*;

    fn connection(cwnd: u64) -> (Config, Connection) {
        let cfg =
            Config { mss: 1000, ns2_recovery: true, half_of_cwnd: true, ecn: true, ..Config::default() };
        let mut c = Connection::connect(&cfg, Instant::ZERO);
        c.window = Window::new(cwnd, Some(20_000));
        c.stop_timer();
        (cfg, c)
    }

    /// Half of 8125 bytes is 4062.5: half a byte of a window of 4062 is a remainder of 2031. A remainder of 4000 before is
    /// 4000 / 8125 of a byte more, of which half is left: 2031 + 4062 * 2000 / 8125, rounded down. ssthresh is in whole
    /// segments, at least two.
    #[test]
    fn what_halving_leaves_of_a_byte_is_kept() {
        for (window, remainder, half, left, ssthresh) in [
            (8125, 0, 4062, 2031, 4000),
            (8125, 4000, 4062, 3030, 4000),
            (8000, 4000, 4000, 1000, 4000),
            (8000, 0, 4000, 0, 4000),
            (3001, 0, 1500, 750, 2000),
        ] {
            let (cfg, mut c) = connection(window);
            c.reduce_as_ns2(&cfg, (window, remainder));
            assert_eq!((c.window.cwnd, c.window.reduced()), (half, ssthresh), "{window} and {remainder}");
            assert_eq!(c.algorithm.remainder().copied(), Some(left), "{window} and {remainder}");
        }
    }

    /// The remainder is that of the congestion window, not of a maximum below it.
    #[test]
    fn a_window_at_its_maximum_has_no_remainder() {
        for (cwnd, expected) in [(4000, (4000, 7)), (6000, (5000, 0))] {
            let (cfg, mut c) = connection(cwnd);
            *c.algorithm.remainder().unwrap() = 7;
            assert_eq!(c.window_of_ns2(&Config { max_window: 5000, ..cfg }), expected);
        }
    }

    #[test]
    fn reductions_are_told_apart() {
        use Reduction::{Loss, Mark, MarkAtOne, None, Timeout, TimeoutAtOne};
        for (latest, told) in [
            (None, (false, false, false)),
            (Loss, (false, false, false)),
            (Mark, (true, false, false)),
            (MarkAtOne, (true, false, true)),
            (Timeout, (false, true, false)),
            (TimeoutAtOne, (false, true, true)),
        ] {
            assert_eq!((latest.is_mark(), latest.is_timeout(), latest.is_at_one()), told, "{latest:?}");
        }
    }

    /// The third duplicate starts a recovery of data beyond the last one, of the first segment, and after a mark; never with
    /// nothing outstanding.
    #[test]
    fn third_duplicate_starts_a_recovery_beyond_the_last_one() {
        for (una, recover, latest, starts) in [
            (5001, 5000, Reduction::Loss, true),
            (5001, 5001, Reduction::Loss, false),
            (5001, 6001, Reduction::Loss, false),
            (5001, 6001, Reduction::MarkAtOne, true),
            (1, 6001, Reduction::Timeout, true),
            (9001, 5000, Reduction::Loss, false),
        ] {
            let (cfg, mut c) = connection(8000);
            (c.una, c.nxt, c.max, c.recover, c.latest) = (una, 9001, 9001, recover, latest);
            assert_eq!(
                c.on_third_duplicate_as_ns2(&cfg, Instant::ZERO),
                starts,
                "{una}, {recover}, {latest:?}"
            );
        }
    }

    /// A window of less than a segment waits for the timer, which a mark starts unless it runs.
    #[test]
    fn a_mark_starts_the_timer_of_a_window_below_one_segment() {
        let (now, later) = (Instant::from_nanos(1000), Instant::from_nanos(5000));
        for (cwnd, running, timer) in
            [(1500, false, true), (1500, true, false), (2000, false, false), (4000, false, false)]
        {
            let (cfg, mut c) = connection(cwnd);
            (c.una, c.nxt, c.max) = (1, 1, 1);
            if running {
                c.set_timer(Timer::Retransmission, later);
            }
            c.on_mark_as_ns2(&cfg, now, 1);
            let expected = if timer { Some(now + c.rto.interval()) } else { running.then_some(later) };
            assert_eq!(c.poll_timeout(), expected, "{cwnd}");
            assert!(c.rto.interval() > Duration::from_nanos(4000));
        }
    }

    /// A partial ACK takes its segments off the duplicates, and off the window as far as it covers more.
    #[test]
    fn partial_ack_deflates_by_what_exceeds_the_duplicates() {
        for (acked, duplicates, cwnd, left) in [
            (2000, 7, 8000, 6),
            (3000, 3, 8000, 1),
            (5000, 3, 6000, 1),
            (1500, 1, 7000, 1),
            (9000, 1, 1000, 1),
        ] {
            let (cfg, mut c) = connection(8000);
            c.deflate_as_ns2(&cfg, acked, duplicates);
            assert_eq!((c.window.cwnd, c.duplicate_acks), (cwnd, left), "{acked} after {duplicates}");
        }
    }
}
