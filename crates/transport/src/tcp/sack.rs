//! Loss detection and recovery with SACK: RFC 6675 section 5, RFC 9937.
//!
//! Departure: ACKs that SACK nothing new are not duplicate ACKs in the sense of RFC 6675 section 2 and are not counted,
//! however many arrive.

use bentpipe_units::Instant;

use super::connection::{Connection, Phase};
use super::scoreboard::{DUP_THRESH, Rule};
use super::{Config, Sack};

impl Connection {
    /// Processes an ACK on a connection with SACK.
    pub(super) fn on_ack_with_sack(
        &mut self,
        cfg: &Config,
        now: Instant,
        ack: u64,
        sack: Sack,
        echo: u32,
        marked: bool,
    ) {
        let Some(board) = &mut self.sack else { return };
        if board.rack.is_some() {
            return self.on_ack_with_rack(cfg, now, ack, &sack, echo, marked);
        }
        if cfg.recovers_as_sack1() {
            return self.on_ack_as_sack1(cfg, now, ack, sack, echo, marked);
        }
        let una = self.una.max(ack);
        let acked = una - self.una;
        let before = board.sacked_bytes;
        let max = self.max.max(una);
        let newly_sacked = board.update(ack, &sack, una, max);
        // RFC 9937 section 6.2, DeliveredData: the newly acknowledged data, less the part that was SACKed before.
        let delivered = (acked + board.sacked_bytes).saturating_sub(before);
        board.delivered = delivered;
        let further = board.find_lost(una, cfg.smss());
        if acked > 0 {
            self.on_new_ack(cfg, now, ack, echo, marked);
        }
        let Some(board) = &mut self.sack else { return };
        if self.phase == Phase::SackRecovery {
            // RFC 6675 section 5 (B).
            board.set_pipe(self.una, self.max);
            if cfg.prr && delivered > 0 {
                let (pipe, ssthresh) = (board.pipe, self.window.reduced());
                let safe = acked > 0 && !further;
                let cwnd = board.prr.cwnd(delivered, pipe, ssthresh, cfg.smss(), safe);
                self.window.cwnd = cwnd.max(cfg.smss());
            }
            return;
        }
        if self.phase == Phase::RtoResend {
            return self.end_rto_resend();
        }
        // RFC 6675 section 2: a duplicate ACK SACKs data that no earlier one did.
        if newly_sacked == 0 {
            return;
        }
        self.duplicate_acks = self.duplicate_acks.saturating_add(1);
        // RFC 6675 section 5 (1), (2) and section 5.1: no recovery until all data sent before a timeout is
        // acknowledged.
        let lost = self.duplicate_acks >= DUP_THRESH as u16 || board.lost_below > self.una;
        if !lost || self.una < self.recover {
            return;
        }
        board.begin_recovery(self.una, self.max, delivered);
        board.high_rxt = self.una;
        board.set_pipe(self.una, self.max);
        let pipe = board.pipe;
        // RFC 6675 section 5 (4.1), (4.2).
        self.on_loss(cfg, now);
        self.phase = Phase::SackRecovery;
        self.window.cwnd = self.window.reduced().max(cfg.smss());
        if let Some(board) = self.sack.as_mut().filter(|_| cfg.prr) {
            let cwnd = board.prr.cwnd(delivered, pipe, self.window.reduced(), cfg.smss(), false);
            self.window.cwnd = cwnd.max(cfg.smss());
        }
    }

    /// Processes an ACK of new data in SACK recovery.
    pub(super) fn on_ack_in_sack_recovery(&mut self, cfg: &Config, ack: u64) {
        // RFC 6675 section 5 (A): everything sent before the loss was detected is acknowledged. RFC 9937 section 6.4:
        // cwnd is then ssthresh.
        if ack >= self.recover {
            if !cfg.recovers_as_sack1() {
                self.window.cwnd = self.window.reduced().max(cfg.smss());
            }
            self.phase = Phase::Open;
            self.resend_due = false;
        } else if cfg.recovers_as_sack1() {
            self.rto.clear_backoff();
        }
    }

    /// Position and payload length of the next segment in recovery, RFC 6675 section 5 (4.3) and (C).
    #[cold]
    pub(super) fn next_recovery_segment(&mut self, cfg: &Config) -> Option<(u64, u64)> {
        let smss = cfg.smss();
        let board = self.sack.as_ref()?;
        let (rule, seq, len) = if board.first_due {
            let (seq, end) = board.ranges.gap(self.una, self.max);
            (Rule::First, seq, smss.min(end.min(self.written).saturating_sub(seq)))
        } else {
            if self.window.cwnd.min(cfg.max_window.max(smss)) < board.pipe.saturating_add(smss) {
                return None;
            }
            self.next_segment(cfg)?
        };
        self.sack.as_mut()?.rule = rule;
        Some((seq, len))
    }

    /// Records that the chosen segment `seq..end` was sent.
    #[cold]
    pub(super) fn on_sent_in_recovery(&mut self, seq: u64, end: u64) {
        let Some(board) = &mut self.sack else { return };
        // (C.4) of RFC 6675 section 5, and prr_out of RFC 9937.
        board.pipe += end - seq;
        board.prr.out += end - seq;
        match board.rule {
            Rule::First => {
                // (4.3): it is not rescued at once either.
                board.high_rxt = board.high_rxt.max(end);
                board.rescue_rxt = end;
                board.first_due = false;
            }
            // (C.2).
            Rule::Retransmit => board.high_rxt = board.high_rxt.max(end),
            Rule::Unsent => {}
            // Once per recovery; HighRxt is unchanged.
            Rule::Rescue => board.rescue_rxt = self.recover,
        }
    }

    /// NextSeg() of RFC 6675 section 4.
    fn next_segment(&self, cfg: &Config) -> Option<(Rule, u64, u64)> {
        let smss = cfg.smss();
        let board = self.sack.as_ref()?;
        let size = |start: u64, end: u64| smss.min(end.min(self.written).saturating_sub(start));
        let (start, end) = board.ranges.gap(board.high_rxt.max(self.una), self.max);
        // (1) The first octets not yet resent, if lost.
        if start < board.lost_below {
            return Some((Rule::Retransmit, start, size(start, end)));
        }
        // (2) New data, as far as both windows allow; a FIN alone takes one position.
        let unsent = self.written.saturating_sub(self.max);
        let wanted = unsent.min(smss).max(1);
        if self.max < self.stream_end() && self.max + wanted <= self.send_limit(cfg) {
            return Some((Rule::Unsent, self.max, unsent.min(smss)));
        }
        // (3) As (1), lost or not, if data above it was SACKed.
        if board.ranges.as_slice().last().is_some_and(|highest| start < highest.0) {
            return Some((Rule::Retransmit, start, size(start, end)));
        }
        // (4) The last octets not SACKed.
        let (start, end) = board.ranges.last_gap(self.una, self.max)?;
        if self.una <= board.rescue_rxt {
            return None;
        }
        let start = start.max(end.saturating_sub(smss));
        Some((Rule::Rescue, start, size(start, end)))
    }

    /// Position and payload length of the next segment after a timeout: data sent before it and not SACKed is resent,
    /// RFC 6675 section 5.1.
    #[cold]
    pub(super) fn next_rto_segment(&mut self, cfg: &Config) -> Option<(u64, u64)> {
        let board = self.sack.as_ref()?;
        let (seq, end) = board.ranges.gap(self.nxt, self.max);
        let len = cfg.smss().min(end.min(self.written).saturating_sub(seq));
        let outstanding = seq - self.una - board.ranges.covered(self.una, seq);
        if outstanding > 0 && outstanding + len > self.window.cwnd.min(cfg.max_window.max(cfg.smss())) {
            self.cwnd_limited = outstanding + len > self.window.cwnd;
            return None;
        }
        Some((seq, len))
    }

    /// Ends the retransmissions after a timeout once no gap is left.
    #[cold]
    pub(super) fn end_rto_resend(&mut self) {
        let Some(board) = &self.sack else { return };
        if board.ranges.gap(self.nxt, self.max).0 == self.max {
            self.nxt = self.max;
            self.phase = Phase::Open;
            self.resend_due = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::scoreboard::Scoreboard;
    use super::*;

    /// Eight segments of 1000 bytes before a timeout, the fifth SACKed: the window bounds what was resent and not SACKed, but
    /// one segment is always allowed. The window is used up only if it, and not the configured maximum, forbids the segment.
    #[test]
    fn after_a_timeout_the_window_bounds_what_is_resent() {
        for (nxt, cwnd, max_window, next, limited) in [
            (1, 500, 8000, Some((1, 1000)), false),
            (3001, 4000, 8000, Some((3001, 1000)), false),
            (3001, 3999, 8000, None, true),
            (3001, 4000, 3000, None, false),
            (3001, 9000, 4000, Some((3001, 1000)), false),
            (6001, 6000, 8000, Some((6001, 1000)), false),
            (4001, 5000, 8000, Some((5001, 1000)), false),
        ] {
            let cfg = Config { mss: 1000, sack: true, max_window, ..Config::default() };
            let mut c = Connection::connect(&cfg, Instant::ZERO);
            let mut board = Scoreboard::new(false, false);
            board.ranges.insert(4001, 5001);
            (c.sack, c.window.cwnd) = (Some(Box::new(board)), cwnd);
            (c.una, c.nxt, c.max, c.written) = (1, nxt, 8001, 8001);
            assert_eq!(c.next_rto_segment(&cfg), next, "from {nxt} with {cwnd} of at most {max_window}");
            assert_eq!(c.cwnd_limited, limited, "from {nxt} with {cwnd} of at most {max_window}");
        }
    }
}
