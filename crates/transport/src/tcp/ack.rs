//! ACK processing, fast retransmit and fast recovery: RFC 5681, RFC 6582 and RFC 3042.

use bentpipe_units::{Duration, Instant};

use super::accurate::EcnMode;
use super::congestion::{Acked, Recovery};
use super::connection::{Connection, Phase, State, Timer};
use super::ns2::Reduction;
use super::{Algorithm, Config, Flags, Segment};

/// Duplicate ACKs that indicate a loss, RFC 5681 section 3.2.
pub(super) const DUP_ACKS: u16 = 3;

impl Connection {
    /// Processes the ACK and the window of a segment. Returns false if the rest of the segment must be ignored.
    #[inline]
    pub(super) fn on_ack(&mut self, cfg: &Config, now: Instant, seg: &Segment) -> bool {
        if seg.ack > self.max + u64::from(self.probe_outstanding) {
            // RFC 9293 section 3.10.7.4: an ACK of something not yet sent is answered with an ACK and dropped.
            self.rx.ack_now = true;
            return false;
        }
        let cwnd = self.window.cwnd;
        if self.delivery.is_some() {
            self.begin_sample(cfg, now, seg);
        }
        self.burst = 0;
        let marked = match self.ecn {
            EcnMode::Off => false,
            EcnMode::Classic => seg.flags.has(Flags::ECE) && self.on_ece(cfg, now, seg.ack),
            EcnMode::Accurate => self.on_ace(cfg, now, seg),
        };
        if self.sack.is_some() {
            // By value, so that hosts can keep a segment in registers.
            self.on_ack_with_sack(cfg, now, seg.ack, seg.sack, seg.timestamps.echo, marked);
        } else if seg.ack > self.una {
            self.on_new_ack(cfg, now, seg.ack, seg.timestamps.echo, marked);
        } else if seg.ack == self.una
            // RFC 5681 section 2: an ACK is a duplicate if (a) data is outstanding, (b) it carries no data, (c) no SYN
            // or FIN, (d) it repeats the greatest ACK received, and (e) the window is unchanged. ns-2 ignores (a).
            && (self.max > self.una || cfg.ns2_recovery)
            && seg.len == 0
            && !seg.flags.has(Flags::SYN | Flags::FIN)
            && seg.ack + u64::from(seg.window) == self.edge
        {
            self.on_duplicate_ack(cfg, now);
        }
        if self.delivery.is_some() {
            self.end_sample(cfg, now, cwnd);
        }
        // RFC 9293 section 3.10.7.4: only the newest segment updates the window. SND.WL2 is not kept, because the ACK
        // that gave it never lies beyond SND.UNA.
        if seg.ack >= self.una && self.wl1 <= seg.seq {
            self.edge = seg.ack + u64::from(seg.window);
            self.largest_window = self.largest_window.max(seg.window);
            self.wl1 = seg.seq;
        }
        if self.timer == Timer::Persist {
            // RFC 9293 section 3.8.6.1: the connection stays open as long as probes are acknowledged.
            self.unanswered = 0;
            if self.edge > self.max {
                // The window has opened, or silly window avoidance applies again; output decides.
                self.stop_timer();
                self.probe_due = false;
            }
        }
        true
    }

    #[inline]
    pub(super) fn on_new_ack(&mut self, cfg: &Config, now: Instant, ack: u64, echo: u32, marked: bool) {
        let acked = ack - self.una;
        // Only a marked ACK needs it, and it takes a division.
        let doubled = marked.then(|| self.rto.backoff());
        let measured = self.measure_rtt(cfg, now, ack, echo);
        if cfg.ns2_recovery {
            match doubled {
                None => self.latest = self.latest.on_unmarked(),
                Some(doubled) if measured && self.latest.is_at_one() => {
                    self.rto.restore_backoff(cfg, doubled)
                }
                Some(_) => {}
            }
        }
        self.una = ack;
        // An ACK can lie beyond `nxt` after going back, and beyond `max` after a window probe.
        self.nxt = self.nxt.max(ack);
        self.max = self.max.max(ack);
        self.probes = 0;
        self.unanswered = 0;
        let duplicates = std::mem::take(&mut self.duplicate_acks);
        if let Some(rtt) = self.rto.latest().filter(|_| measured) {
            self.algorithm.on_round_trip(&mut self.window, rtt, self.una, self.max, cfg.smss(), now);
        }
        if !measured && ack > self.recover && !cfg.ns2_recovery {
            self.rto.clear_backoff();
        }
        let mut restart = true;
        match self.phase {
            Phase::Open => self.grow_window(cfg, now, acked, marked),
            Phase::FastRecovery => {
                restart = self.on_ack_in_fast_recovery(cfg, ack, acked, duplicates);
                if cfg.ns2_recovery && self.phase == Phase::Open {
                    self.grow_window(cfg, now, acked, marked);
                }
            }
            Phase::SackRecovery => self.on_ack_in_sack_recovery(cfg, ack),
            Phase::RtoNs2 => {
                self.phase = Phase::Open;
                self.grow_window(cfg, now, acked, marked);
            }
            Phase::RtoPerAck | Phase::RtoResend => {
                self.resend_due = ack < self.recover;
                if !self.resend_due {
                    self.phase = Phase::Open;
                }
                self.grow_window(cfg, now, acked, marked);
            }
        }
        if self.una == self.max {
            // RFC 6298 (5.2): all data is acknowledged, so the timer is turned off.
            self.stop_timer();
            self.resend_due = false;
            if cfg.ns2_recovery && self.window.cwnd < cfg.smss() {
                self.set_timer(Timer::Retransmission, now + self.rto.interval());
            }
        } else if restart {
            // RFC 6298 (5.3): an ACK of new data restarts the timer.
            self.set_timer(Timer::Retransmission, now + self.rto.interval());
        }
        if self.closing && ack > self.written {
            self.on_fin_acked();
        }
    }

    /// Measures the RTT with an ACK of new data up to `ack` that carries the timestamp `echo`. Returns true if it gives
    /// a measurement.
    #[inline]
    pub(super) fn measure_rtt(&mut self, cfg: &Config, now: Instant, ack: u64, echo: u32) -> bool {
        let measured = if self.timestamps {
            // RFC 7323 section 4.1: every ACK that advances SND.UNA does.
            self.rto.on_echo(cfg, now, echo, ack, (self.una, self.max))
        } else {
            self.rto.on_ack(cfg, now, ack)
        };
        let srtt = self.rto.srtt();
        if measured && let Some(rack) = self.rack() {
            rack.on_measured(srtt);
        }
        measured
    }

    /// Processes an ACK of new data in fast recovery, RFC 6582 section 3.2 step 3, after `duplicates` duplicate ACKs.
    /// Returns true if it restarts the timer.
    fn on_ack_in_fast_recovery(&mut self, cfg: &Config, ack: u64, acked: u64, duplicates: u16) -> bool {
        let has_ended = ack >= self.recover || self.algorithm.recovery() == Recovery::NewAck;
        if has_ended || (cfg.ns2_recovery && self.latest != Reduction::Loss) {
            // Full acknowledgement: cwnd is set to ssthresh, the second of the two options, and fast recovery ends. RFC
            // 5681 section 3.2 step 6: so does any ACK of new data if the algorithm does not handle partial ones.
            // Missing data then waits for the timer, because RFC 6582's check against a second fast retransmit per
            // window applies to Reno too (ns-2's `bugFix_`).
            if !cfg.ns2_recovery {
                self.window.cwnd = self.window.reduced().max(cfg.smss());
            }
            self.phase = Phase::Open;
            return true;
        }
        // Partial acknowledgement: the first unacknowledged segment is resent; cwnd is deflated by the amount
        // acknowledged, less one segment if it was at least one.
        self.resend_due = true;
        if cfg.ns2_recovery {
            self.deflate_as_ns2(cfg, acked, duplicates);
        } else {
            let back = if acked >= cfg.smss() { cfg.smss() } else { 0 };
            self.window.cwnd = (self.window.cwnd.saturating_sub(acked) + back).max(cfg.smss());
        }
        // The first partial ACK restarts the timer; RFC 6582 section 4 leaves open whether the others do.
        let first = !self.partial_seen;
        self.partial_seen = true;
        first || !cfg.impatient
    }

    /// Increases the window for `acked` bytes.
    #[inline]
    fn grow_window(&mut self, cfg: &Config, now: Instant, acked: u64, marked: bool) {
        // RFC 3168 section 6.1.2: not for an ACK that echoes a mark. RFC 7661 section 4: nor if the window was not
        // used, because the ACK then says nothing about a larger one.
        let (acked, avoidance) = if marked {
            let unmarked = self.unmarked_bytes(cfg, acked);
            (unmarked, unmarked.min(cfg.smss()))
        } else {
            (acked, cfg.smss())
        };
        let search = self.delivery.as_ref().and_then(|delivery| delivery.search.as_ref());
        let is_held = search.is_some_and(|search| search.holds_window());
        // ns-2 ignores whether the window was used. Above both limits it does not matter.
        let limit = cfg.max_window.min(u64::from(self.largest_window));
        let is_used = self.algorithm.may_grow(&self.window, self.cwnd_limited)
            || (cfg.ns2_recovery && self.window.cwnd < limit);
        if is_used && acked > 0 && !is_held {
            let smss = cfg.smss();
            let rtt = self.rto.srtt().unwrap_or(Duration::ZERO);
            let flight = self.flight() + acked;
            let mut ack = Acked { bytes: acked, slow_start: acked.min(smss), avoidance, flight, rtt };
            if cfg.abc {
                // RFC 3465 section 2.3: L = 2, but 1 in the slow start after a timeout until all data sent before is
                // acknowledged.
                let limit = if self.una > self.recover { 2 * smss } else { smss };
                (ack.slow_start, ack.avoidance) = (acked.min(limit), acked);
                if cfg.algorithm == Algorithm::CubicLinux {
                    // Linux `tcp_cong_avoid()`: all that the ACK delivers, without what SACKs reported before.
                    let delivered = self.sack.as_ref().map_or(acked, |board| board.delivered.min(acked));
                    (ack.slow_start, ack.avoidance) = (delivered, delivered);
                }
            }
            if let Some(hystart) = self.delivery.as_ref().and_then(|delivery| delivery.hystart.as_ref()) {
                ack.slow_start = hystart.growth(acked, smss, cfg.paces()).unwrap_or(ack.slow_start);
            }
            self.algorithm.on_ack(&mut self.window, &ack, smss, now);
        }
    }

    fn on_duplicate_ack(&mut self, cfg: &Config, now: Instant) {
        if self.phase == Phase::FastRecovery {
            // RFC 5681 section 3.2 step 4: another segment has left the network.
            if !cfg.ns2_recovery {
                self.window.cwnd = self.window.cwnd.saturating_add(cfg.smss());
            }
            self.duplicate_acks = self.duplicate_acks.saturating_add(1);
            return;
        }
        self.duplicate_acks = self.duplicate_acks.saturating_add(1);
        // RFC 6582 section 3.2 step 2: duplicates of an ACK that does not cover more than `recover` indicate segments
        // that arrived twice, not a loss.
        if self.duplicate_acks != DUP_ACKS {
            return;
        }
        if cfg.ns2_recovery {
            if !self.on_third_duplicate_as_ns2(cfg, now) {
                return;
            }
        } else if self.una > self.recover {
            self.on_loss(cfg, now);
            // RFC 5681 section 3.2 step 3: inflated by the segments that have left the network.
            self.window.cwnd = self.window.reduced().saturating_add(u64::from(DUP_ACKS) * cfg.smss());
        } else {
            return;
        }
        self.phase = Phase::FastRecovery;
        self.partial_seen = false;
    }

    /// Reacts to a detected loss: reduces ssthresh and schedules the first retransmission.
    pub(super) fn on_loss(&mut self, cfg: &Config, now: Instant) {
        // RFC 5681 section 3.2 step 2: segments sent by limited transmit do not count as outstanding. With RACK they
        // may be more than two.
        let beyond = self.flight().saturating_sub(self.window.cwnd.min(cfg.max_window)).div_ceil(cfg.smss());
        let limit = if self.rack().is_some() { u64::MAX } else { 2 };
        let flight = self.flight().saturating_sub(beyond.min(limit) * cfg.smss());
        // RFC 3168 section 6.1.2: one reduction per window of data, for marks and losses together.
        if self.una >= self.reduced {
            self.reduce(cfg, now, flight);
        }
        self.recover = self.max;
        self.reduced = self.max;
        self.resend_due = true;
        self.fast_retransmits = self.fast_retransmits.saturating_add(1);
        if cfg.ns2_recovery {
            self.rto.on_resent();
        }
        // RFC 6298 (5) leaves the timer running here. Restarting it is later than the RFC asks for and no less safe:
        // the retransmission has a whole RTO to be acknowledged.
        self.set_timer(Timer::Retransmission, now + self.rto.interval());
    }

    /// Processes an ACK with ECN-Echo. Returns true if the window must not increase for it.
    ///
    /// RFC 3168 section 6.1.2 treats a mark as a loss, and RFC 5681 eq. (4) leaves a window of two segments after a loss; so
    /// does RFC 8511 section 3, and Linux. The bound of one segment in RFC 3168 section 6.1.2 is thus not reached, nor its
    /// rule that a sender with a window of one segment waits for the retransmission timer. ns-2 follows that rule.
    pub(super) fn on_ece(&mut self, cfg: &Config, now: Instant, ack: u64) -> bool {
        if cfg.ns2_recovery {
            self.on_mark_as_ns2(cfg, now, ack);
            return true;
        }
        // RFC 3168 section 6.1.2: once per window of data.
        if ack > self.reduced && ack >= self.una && self.phase == Phase::Open {
            self.algorithm.on_congestion_mark(&self.window);
            let flight = self.flight();
            self.reduce(cfg, now, flight);
            self.window.cwnd = self.window.reduced().min(self.window.cwnd).max(cfg.smss());
            self.reduced = self.max;
        }
        true
    }

    /// Reduces ssthresh after a loss or a mark.
    pub(super) fn reduce(&mut self, cfg: &Config, now: Instant, flight: u64) {
        let flight = if cfg.half_of_cwnd { self.whole_window(cfg) } else { flight };
        self.algorithm.on_congestion(&mut self.window, flight, cfg.smss(), now);
        if let Some(hystart) = self.delivery.as_mut().and_then(|delivery| delivery.hystart.as_mut()) {
            hystart.stop();
        }
        if let Some(search) = self.delivery.as_mut().and_then(|delivery| delivery.search.as_mut()) {
            search.stop();
        }
        // RFC 3168 section 6.1.2: the peer is notified, whatever the reason. RFC 9768 section 3.1.5: not with accurate
        // ECN.
        self.cwr_due = self.ecn == EcnMode::Classic;
    }

    /// Congestion window without what duplicate ACKs added to it.
    pub(super) fn whole_window(&self, cfg: &Config) -> u64 {
        let is_inflated = self.phase == Phase::FastRecovery && !cfg.ns2_recovery;
        let window = if is_inflated { self.window.reduced() } else { self.window.cwnd };
        window.min(cfg.max_window)
    }

    fn on_fin_acked(&mut self) {
        match self.state {
            State::FinWait1 => self.state = State::FinWait2,
            State::Closing => self.state = State::TimeWait,
            State::LastAck => self.terminate(),
            _ => {}
        }
    }
}
