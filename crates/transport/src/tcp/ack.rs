//! What an ACK changes: loss detection and recovery, RFC 5681, RFC 6582 and RFC 3042.

use bentpipe_units::{Duration, Instant};

use super::accurate::EcnMode;
use super::congestion::{Acked, Recovery};
use super::connection::{Connection, Phase, State, Timer};
use super::{Config, Flags, Segment};

/// Duplicate ACKs that tell of a loss, RFC 5681 section 3.2.
pub(super) const DUP_ACKS: u32 = 3;

impl Connection {
    /// Takes in the ACK and the window of a segment. Whether the rest of it counts.
    #[inline]
    pub(super) fn on_ack(&mut self, cfg: &Config, now: Instant, seg: &Segment) -> bool {
        if seg.ack > self.max + u64::from(self.probe_outstanding) {
            // RFC 9293 section 3.10.7.4: it acknowledges something not yet sent, so it is answered and
            // dropped.
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
            // Not by reference, so that hosts can keep a segment in registers.
            self.on_ack_with_sack(cfg, now, seg.ack, seg.sack, seg.timestamps.echo, marked);
        } else if seg.ack > self.una {
            self.on_new_ack(cfg, now, seg.ack, seg.timestamps.echo, marked);
        } else if seg.ack == self.una
            // RFC 5681 section 2: an ACK is a duplicate where (a) data is outstanding, (b) it carries none
            // itself, (c) nor SYN or FIN, (d) it repeats the greatest ACK received, and (e) the window is the
            // same.
            && self.max > self.una
            && seg.len == 0
            && !seg.flags.has(Flags::SYN | Flags::FIN)
            && seg.ack + u64::from(seg.window) == self.edge
        {
            self.on_duplicate_ack(cfg, now);
        }
        if self.delivery.is_some() {
            self.end_sample(cfg, now, cwnd);
        }
        // RFC 9293 section 3.10.7.4: the window is taken from the newest segment only. SND.WL2 is not kept,
        // for the ACK that gave it never lies beyond SND.UNA.
        if seg.ack >= self.una && self.wl1 <= seg.seq {
            self.edge = seg.ack + u64::from(seg.window);
            self.largest_window = self.largest_window.max(seg.window);
            self.wl1 = seg.seq;
        }
        if self.timer == Timer::Persist {
            // RFC 9293 section 3.8.6.1: as long as probes are acknowledged the connection stays, however
            // long.
            self.unanswered = 0;
            if self.edge > self.max {
                // There is room, or sending silly segments is avoided anew: output will say which.
                self.stop_timer();
                self.probe_due = false;
            }
        }
        true
    }

    #[inline]
    pub(super) fn on_new_ack(&mut self, cfg: &Config, now: Instant, ack: u64, echo: u32, marked: bool) {
        let acked = ack - self.una;
        let measured = self.measure_rtt(cfg, now, ack, echo);
        self.una = ack;
        // Behind a probe's byte, or past what was to be sent again.
        self.nxt = self.nxt.max(ack);
        self.max = self.max.max(ack);
        self.probes = 0;
        self.unanswered = 0;
        self.duplicate_acks = 0;
        if let Some(rtt) = self.rto.latest().filter(|_| measured) {
            self.algorithm.on_round_trip(&mut self.window, rtt, self.una, self.max, cfg.smss(), now);
        }
        if !measured && ack > self.recover {
            self.rto.clear_backoff();
        }
        let mut restart = true;
        match self.phase {
            Phase::Open => self.grow_window(cfg, now, acked, marked),
            Phase::FastRecovery => restart = self.on_ack_in_fast_recovery(cfg, ack, acked),
            Phase::SackRecovery => self.on_ack_in_sack_recovery(cfg, ack),
            Phase::RtoNs2 => {
                self.window.cwnd = cfg.smss();
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
        } else if restart {
            // RFC 6298 (5.3): an ACK of new data restarts the timer.
            self.set_timer(Timer::Retransmission, now + self.rto.interval());
        }
        if self.closing && ack > self.written {
            self.on_fin_acked();
        }
    }

    /// An ACK of new data, up to `ack`, with a timestamp's `echo`. Whether it measures a round trip.
    #[inline]
    pub(super) fn measure_rtt(&mut self, cfg: &Config, now: Instant, ack: u64, echo: u32) -> bool {
        let measured = if self.timestamps {
            // RFC 7323 section 4.1: every ACK that moves SND.UNA does.
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

    /// An ACK of new data in fast recovery, RFC 6582 section 3.2 step 3. Whether it restarts the timer.
    fn on_ack_in_fast_recovery(&mut self, cfg: &Config, ack: u64, acked: u64) -> bool {
        if ack >= self.recover || self.algorithm.recovery() == Recovery::NewAck {
            // Full acknowledgement: cwnd to ssthresh, the second of the two choices, and out of fast
            // recovery. RFC 5681 section 3.2 step 6: so does any ACK of new data, where there are no partial
            // ones. What is still missing then waits for the timer, for RFC 6582's bar against a second fast
            // retransmit in a window is kept for Reno too (ns-2's `bugFix_`).
            self.window.cwnd = self.window.ssthresh.max(cfg.smss());
            self.phase = Phase::Open;
            return true;
        }
        // Partial acknowledgement: the first unacknowledged segment goes again; cwnd is deflated by what was
        // acknowledged, less one segment where it was that much.
        self.resend_due = true;
        let back = if acked >= cfg.smss() { cfg.smss() } else { 0 };
        self.window.cwnd = (self.window.cwnd.saturating_sub(acked) + back).max(cfg.smss());
        // The timer is restarted for the first partial ACK; RFC 6582 section 4, whether also for the others.
        let first = !self.partial_seen;
        self.partial_seen = true;
        first || !cfg.impatient
    }

    /// The window grows for `acked` bytes.
    #[inline]
    fn grow_window(&mut self, cfg: &Config, now: Instant, acked: u64, marked: bool) {
        // RFC 3168 section 6.1.2: not for an ACK that echoes a mark. RFC 7661 section 4: nor where the window
        // was not used, for then the ACK says nothing about a larger one.
        let (acked, avoidance) = if marked {
            let unmarked = self.unmarked_bytes(cfg, acked);
            (unmarked, unmarked.min(cfg.smss()))
        } else {
            (acked, cfg.smss())
        };
        if self.cwnd_limited && acked > 0 {
            let smss = cfg.smss();
            let rtt = self.rto.srtt().unwrap_or(Duration::ZERO);
            let mut ack = Acked { bytes: acked, slow_start: acked.min(smss), avoidance, rtt };
            if cfg.abc {
                // RFC 3465 section 2.3: L = 2, but 1 in the slow start after a timeout, until all is
                // acknowledged that was sent before.
                let most = if self.una > self.recover { 2 * smss } else { smss };
                (ack.slow_start, ack.avoidance) = (acked.min(most), acked);
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
            self.window.cwnd = self.window.cwnd.saturating_add(cfg.smss());
            self.duplicate_acks = self.duplicate_acks.saturating_add(1);
            return;
        }
        self.duplicate_acks = self.duplicate_acks.saturating_add(1);
        if self.phase == Phase::RtoNs2 && self.duplicate_acks > DUP_ACKS {
            self.window.cwnd = self.window.cwnd.saturating_add(cfg.smss());
            return;
        }
        // RFC 6582 section 3.2 step 2: duplicates of an ACK that does not cover more than `recover` tell of
        // segments sent twice, not of a loss.
        if self.duplicate_acks != DUP_ACKS || self.una <= self.recover {
            return;
        }
        self.on_loss(cfg, now);
        // RFC 5681 section 3.2 step 3: inflated by the segments known to have left the network.
        self.window.cwnd = self.window.ssthresh.saturating_add(u64::from(DUP_ACKS) * cfg.smss());
        self.phase = Phase::FastRecovery;
        self.partial_seen = false;
    }

    /// Duplicate ACKs told of a loss: ssthresh is reduced, and the first segment is to be sent again.
    pub(super) fn on_loss(&mut self, cfg: &Config, now: Instant) {
        // RFC 5681 section 3.2 step 2: what limited transmit let out does not count as outstanding. By time, that may be
        // more than two segments.
        let beyond = self.flight().saturating_sub(self.window.cwnd.min(cfg.max_window)).div_ceil(cfg.smss());
        let most = if self.rack().is_some() { u64::MAX } else { 2 };
        let flight = self.flight().saturating_sub(beyond.min(most) * cfg.smss());
        // RFC 3168 section 6.1.2: one reduction for a window of data, be it for marks or for losses.
        if self.una >= self.reduced {
            self.reduce(cfg, now, flight);
        }
        self.recover = self.max;
        self.reduced = self.max;
        self.resend_due = true;
        self.fast_retransmits = self.fast_retransmits.saturating_add(1);
        // RFC 6298 (5) leaves the timer running here. It is restarted, which is later than the RFC asks for
        // and no less safe: the segment sent again is given a whole RTO to be acknowledged.
        self.set_timer(Timer::Retransmission, now + self.rto.interval());
    }

    /// An ACK with an echo of a mark. Whether the window must not grow for it.
    pub(super) fn on_ece(&mut self, cfg: &Config, now: Instant, ack: u64) -> bool {
        // RFC 3168 section 6.1.2: once for a window of data.
        if ack > self.reduced && ack >= self.una && self.phase == Phase::Open {
            let flight = self.flight();
            self.reduce(cfg, now, flight);
            self.window.cwnd = self.window.ssthresh.min(self.window.cwnd).max(cfg.smss());
            self.reduced = self.max;
        }
        true
    }

    /// ssthresh, for a loss or a mark.
    pub(super) fn reduce(&mut self, cfg: &Config, now: Instant, flight: u64) {
        let flight = if cfg.half_of_cwnd {
            let window =
                if self.phase == Phase::FastRecovery { self.window.ssthresh } else { self.window.cwnd };
            window.min(cfg.max_window)
        } else {
            flight
        };
        self.algorithm.on_congestion(&mut self.window, flight, cfg.smss(), now);
        if let Some(hystart) = self.delivery.as_mut().and_then(|delivery| delivery.hystart.as_mut()) {
            hystart.stop();
        }
        // RFC 3168 section 6.1.2: the peer is told, whatever the reason. RFC 9768 section 3.1.5: but not here.
        self.cwr_due = self.ecn == EcnMode::Classic;
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
