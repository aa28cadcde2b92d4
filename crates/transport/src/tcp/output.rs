//! Segments to send and timers: RFC 9293 section 3.8.6, RFC 5681 section 4.1, RFC 6298 (5).

use bentpipe_units::{Duration, Instant};

use super::accurate::EcnMode;
use super::ack::DUP_ACKS;
use super::congestion::{Burst, Recovery};
use super::connection::{Connection, Phase, Reset, State, Timer};
use super::{Algorithm, Config, Ecn, Flags, Sack, Segment, Timestamps};

impl Connection {
    /// Returns the next segment to send at `now`. Call it until it returns `None`.
    #[inline]
    pub fn poll_transmit(&mut self, cfg: &Config, now: Instant) -> Option<Segment> {
        if self.state.is_synchronized() {
            let data = self.poll_data(cfg, now);
            if data.is_some() {
                self.drained = false;
                return data;
            }
            if cfg.algorithm == Algorithm::CubicLinux {
                self.end_burst(cfg);
            }
            let ack = self.poll_ack(cfg, now);
            self.drained = !self.rx.may_update_window();
            return ack;
        }
        self.drained = false;
        self.poll_unsynchronized(cfg, now)
    }

    fn poll_unsynchronized(&mut self, cfg: &Config, now: Instant) -> Option<Segment> {
        match self.state {
            State::SynSent | State::SynReceived if self.syn_due => Some(self.send_syn(cfg, now)),
            State::SynReceived if self.rx.ack_now => self.poll_ack(cfg, now),
            State::Closed => self.reset.take().map(|reset| match reset {
                // RFC 9293 section 3.10.5.
                Reset::Abort => self.segment(now, self.max, 0, Flags::RST, 0),
                Reset::Reply => self.segment(now, self.wl1, 0, Flags::RST, 0),
                Reset::ReplyAck => {
                    Segment { ack: self.wl1, ..self.segment(now, 0, 0, Flags::RST | Flags::ACK, 0) }
                }
            }),
            _ => None,
        }
    }

    /// The ACK without data to send, if one is due.
    #[inline]
    fn poll_ack(&mut self, cfg: &Config, now: Instant) -> Option<Segment> {
        let update = !self.rx.ack_now && self.rx.update_due(cfg);
        if !self.rx.ack_now && !update {
            return None;
        }
        let window = self.rx.on_ack_sent(cfg, update);
        // SND.MAX, not SND.NXT: after going back, the latter lies before what the peer expects.
        let flags = self.ack_flags(true);
        Some(self.segment(now, self.max, 0, flags, window))
    }

    /// The next segment with data or a FIN.
    #[inline]
    fn poll_data(&mut self, cfg: &Config, now: Instant) -> Option<Segment> {
        self.paced = false;
        if self.loss_probe_due {
            return self.poll_loss_probe(cfg, now);
        }
        if self.resend_due {
            let by_time = self.rack().is_some();
            let (seq, len) = match self.phase {
                _ if by_time => self.next_rack_segment(cfg)?,
                Phase::SackRecovery if cfg.recovers_as_sack1() => self.next_sack1_segment(cfg)?,
                Phase::SackRecovery => self.next_recovery_segment(cfg)?,
                Phase::RtoResend => self.next_rto_segment(cfg)?,
                _ => (self.una, cfg.smss().min(self.max.min(self.written) - self.una)),
            };
            if self.hold_back(now) {
                return None;
            }
            let segment = self.send_data(cfg, now, seq, len);
            match self.phase {
                _ if by_time => {}
                Phase::SackRecovery if cfg.recovers_as_sack1() => self.on_sent_as_sack1(segment.end()),
                Phase::SackRecovery => self.on_sent_in_recovery(seq, segment.end()),
                Phase::RtoResend => self.end_rto_resend(),
                _ => self.resend_due = false,
            }
            return Some(segment);
        }
        if self.phase == Phase::FastRecovery
            && cfg.ns2_recovery
            && self.burst >= 2
            && self.algorithm.recovery() == Recovery::FullAck
        {
            return None;
        }
        if self.nxt == self.stream_end() {
            if self.delivery.is_some() {
                self.on_app_limited(cfg);
            }
            return None;
        }
        let flight = self.flight();
        let idle = (flight == 0).then(|| self.end_idle(cfg, now));
        let unsent = self.written.saturating_sub(self.nxt);
        // RFC 9293 section 3.8.6: if the window seems to have shrunk, because of a late older segment or a misbehaving
        // peer, new data waits, but data already sent into it is resent.
        let edge = if self.nxt < self.max { self.edge.max(self.max) } else { self.edge };
        let room = edge.saturating_sub(self.nxt);
        // A FIN alone takes one position.
        let wanted = unsent.min(cfg.smss()).max(1);
        if unsent > 0 && flight + wanted > self.allowance(cfg) {
            self.cwnd_limited = flight + wanted > self.window.cwnd;
            return None;
        }
        let mut len = unsent.min(cfg.smss());
        if room < wanted {
            // RFC 9293 section 3.8.6.2.1: new data of less than a full segment, unless no more is buffered, is sent only
            // if it is at least half of the largest window seen, or when the timer overrides.
            len = room;
            let avoid_silly_window = self.nxt == self.max && room < u64::from(self.largest_window / 2);
            if room == 0 || (avoid_silly_window && !self.probe_due) {
                return self.poll_probe(cfg, now, flight);
            }
        }
        if self.hold_back(now) {
            return None;
        }
        if let Some(idle) = idle {
            self.algorithm.on_transmit_start(idle, now);
        }
        self.burst = self.burst.saturating_add(1);
        Some(self.send_data(cfg, now, self.nxt, len))
    }

    /// Maximum amount of outstanding data [bytes].
    #[inline]
    fn allowance(&self, cfg: &Config) -> u64 {
        let cwnd = self.window.cwnd.min(cfg.max_window.max(cfg.smss()));
        if self.phase == Phase::Open
            && cfg.limited_transmit
            && let Some(board) = &self.sack
            && board.rack.is_some()
        {
            // SACKed data has left the network, and nothing is lost.
            return cwnd.saturating_add(board.sacked_bytes);
        }
        if self.duplicate_acks > 0 && cfg.limited_transmit && self.transmits_on_duplicates(cfg) {
            // RFC 3042 section 2: each of the first two duplicate ACKs releases new data, up to cwnd + 2 SMSS
            // outstanding.
            let more = match &self.sack {
                None => u64::from(self.duplicate_acks.min(2)) * cfg.smss(),
                Some(_) if cfg.recovers_as_sack1() => u64::from(self.duplicate_acks.min(2)) * cfg.smss(),
                // RFC 6675 section 5 (3): Pipe counts, and nothing is lost yet.
                Some(board) => board.sacked_bytes,
            };
            return cwnd.saturating_add(more).min(cfg.max_window.max(cfg.smss()));
        }
        if self.phase != Phase::FastRecovery {
            return cwnd;
        }
        let inflated = cwnd.saturating_add(self.duplicates(cfg));
        if cfg.ns2_recovery { inflated.min(cfg.max_window.max(cfg.smss())) } else { inflated }
    }

    /// True if limited transmit applies: for new data, or as in ns-2 for retransmissions too.
    #[inline]
    fn transmits_on_duplicates(&self, cfg: &Config) -> bool {
        match self.phase {
            Phase::Open if self.nxt == self.max => true,
            Phase::Open | Phase::RtoNs2 => cfg.ns2_recovery && self.duplicate_acks < DUP_ACKS,
            _ => false,
        }
    }

    /// The window probe to send while the peer's window blocks the data, if one is due.
    fn poll_probe(&mut self, cfg: &Config, now: Instant, flight: u64) -> Option<Segment> {
        self.cwnd_limited = false;
        // The ACK of outstanding data will update the window.
        if flight > 0 {
            return None;
        }
        if self.timer != Timer::Persist {
            // RFC 9293 section 3.8.6.1: the first probe is sent once the window has been closed for one RTO.
            self.set_timer(Timer::Persist, now + self.rto.persist_interval(cfg, self.probes));
        }
        if !self.probe_due {
            return None;
        }
        self.probe_due = false;
        self.probe_outstanding = true;
        self.retransmissions = self.retransmissions.saturating_add(u32::from(self.probes > 1));
        // One byte, or the FIN, beyond the window. RFC 3168 section 6.1.6: not ECN-capable.
        let unsent = u32::from(self.nxt < self.written);
        if unsent == 0 {
            self.on_fin_sent();
        }
        let window = self.rx.on_ack_sent(cfg, false);
        let flags = self.ack_flags(false).with(Flags::FIN, unsent == 0);
        let mut probe = self.segment(now, self.nxt, unsent, flags, window);
        probe.retransmission = self.probes > 1;
        Some(probe)
    }

    /// Returns true if pacing does not allow data yet.
    #[inline]
    pub(super) fn hold_back(&mut self, now: Instant) -> bool {
        self.paced = now < self.pace_at;
        self.paced
    }

    /// Sets the earliest departure of the next segment after one with `len` bytes of payload, `wire` with headers.
    #[cold]
    fn set_pace(&mut self, cfg: &Config, now: Instant, len: u64, wire: u32) {
        // The cap counts bytes on the wire; the algorithm's rate counts delivered payload.
        let cap = cfg.pacing.map_or(Duration::ZERO, |rate| rate.time_to_send(u64::from(wire)));
        let srtt = self.rto.srtt();
        let own = match (self.algorithm.pacing_rate(&self.window, srtt), srtt) {
            (Some(rate), _) => rate.time_to_send(len),
            // Linux does not pace the first ten segments; here, the initial window.
            (None, Some(srtt)) if cfg.pace_window && self.max > cfg.iw() => {
                // Linux `tcp_update_pacing_rate()`: factor 2 up to half of ssthresh, so that the window can double.
                let cwnd = self.window.cwnd.max(self.flight()) as f64;
                let gain = if self.window.may_double() { 2.0 } else { 1.2 };
                srtt.scaled(len as f64 / (gain * cwnd))
            }
            _ => Duration::ZERO,
        };
        self.pace_at = self.pace_at.max(now) + cap.max(own);
    }

    /// RFC 5681 section 4.1: after more than one RTO without sending, the window is reduced to the restart window. Returns the time
    /// without sending.
    #[inline]
    fn end_idle(&mut self, cfg: &Config, now: Instant) -> Duration {
        let (idle, rto) = (now - self.data_sent_at, self.rto.interval());
        if cfg.slow_start_restart && !cfg.algorithm.sets_cwnd() && self.una == self.max && idle > rto {
            self.algorithm.restart(&mut self.window, idle, rto, cfg);
            // Once for this idle time, also if the peer's window holds the data back.
            self.data_sent_at = now;
        }
        idle
    }

    /// Reports what has left since the last call, or waits.
    #[cold]
    fn end_burst(&mut self, cfg: &Config) {
        let burst = Burst {
            una: self.una,
            nxt: self.max,
            in_flight: self.in_flight(cfg),
            has_more: self.nxt < self.written,
        };
        self.algorithm.on_burst(&self.window, &burst, cfg.smss());
    }

    /// Sends `len` bytes from `seq` on, and the FIN if it is next.
    #[inline]
    pub(super) fn send_data(&mut self, cfg: &Config, now: Instant, seq: u64, len: u64) -> Segment {
        let data_end = seq + len;
        let fin = self.closing && data_end == self.written && (data_end < self.edge || data_end < self.max);
        let end = data_end + u64::from(fin);
        let is_retransmission = seq < self.max;
        let mut flags = self.ack_flags(false).with(Flags::FIN, fin);
        if is_retransmission {
            self.retransmissions = self.retransmissions.saturating_add(1);
            if !cfg.ns2_recovery {
                self.rto.on_resent();
            }
        } else {
            self.rto.on_sent(now, end);
        }
        if self.cwr_due && len > 0 && (!is_retransmission || cfg.ns2_recovery) {
            // RFC 3168 section 6.1.2: CWR is set on the first new data after the reduction.
            flags |= Flags::CWR;
            self.cwr_due = false;
        }
        if fin {
            self.on_fin_sent();
        }
        if self.delivery.is_some() {
            self.on_data_sent(cfg, now, seq, end);
        }
        self.nxt = self.nxt.max(end);
        self.max = self.max.max(end);
        self.probe_due = false;
        self.probe_outstanding = false;
        if matches!(self.timer, Timer::Off | Timer::Persist) {
            // RFC 6298 (5.1): data is sent, so the timer is started if it is not running.
            self.set_timer(Timer::Retransmission, now + self.rto.interval());
        }
        self.cwnd_limited = self.flight() + cfg.smss() > self.window.cwnd;
        self.data_sent_at = now;
        if self.sack.is_some() {
            self.on_segment_sent(now, seq, end, is_retransmission);
        }
        let window = self.rx.on_ack_sent(cfg, false);
        let mut segment = self.segment(now, seq, len as u32, flags, window);
        if cfg.paces() {
            self.set_pace(cfg, now, len, cfg.wire_len(&segment));
        }
        segment.retransmission = is_retransmission;
        // RFC 3168 section 6.1.5: retransmissions are not ECN-capable.
        if self.ecn != EcnMode::Off && (!is_retransmission || cfg.ns2_recovery) && len > 0 {
            // RFC 9331 section 4.1: ECT(1) is for senders that reduce their window in proportion.
            let early = self.ecn == EcnMode::Accurate && cfg.algorithm.is_l4s();
            segment.ecn = if early { Ecn::Ect1 } else { Ecn::Ect0 };
        }
        segment
    }

    /// Updates the state when our FIN is sent, possibly again.
    fn on_fin_sent(&mut self) {
        self.state = match self.state {
            State::Established => State::FinWait1,
            State::CloseWait => State::LastAck,
            other => other,
        };
    }

    /// Sends the SYN, or the SYN-ACK once the peer's SYN has arrived.
    fn send_syn(&mut self, cfg: &Config, now: Instant) -> Segment {
        self.syn_due = false;
        let is_retransmission = self.max > 0;
        if is_retransmission {
            // Also if a SYN crossed the peer's and is resent with an ACK: the peer's ACK does not say which of the two
            // it answers.
            self.rto.on_resent();
            self.retransmissions = self.retransmissions.saturating_add(u32::from(self.syn_retransmitted));
        } else {
            self.rto.on_sent(now, 1);
        }
        self.nxt = 1;
        self.max = 1;
        self.set_timer(Timer::Retransmission, now + self.rto.interval());
        let window = self.rx.first_window(cfg);
        let answer = self.state == State::SynReceived;
        let flags = self.syn_flags(cfg, answer);
        let mut segment = self.segment(now, 0, 0, flags, window);
        segment.retransmission = is_retransmission && self.syn_retransmitted;
        // RFC 2018 section 2: offered in a SYN, and in a SYN-ACK if the peer offered it.
        if if answer { self.sack.is_some() } else { cfg.sack } {
            segment.sack = Sack::PERMITTED;
        }
        // RFC 7323 sections 2.2, 3.2: as above.
        if !answer || self.window_scaling {
            segment.sack = segment.sack.with_scale(cfg.shift());
        }
        if !answer && cfg.timestamps {
            segment.timestamps = Timestamps::new(now, 0);
        }
        segment
    }

    /// Flags of every segment after the peer's SYN. `pure`: an ACK without data.
    #[inline]
    fn ack_flags(&mut self, pure: bool) -> Flags {
        if self.ecn == EcnMode::Accurate {
            return self.ace_flags(pure);
        }
        Flags::ACK.with(Flags::ECE, self.rx.echo)
    }

    #[inline]
    fn segment(&mut self, now: Instant, seq: u64, len: u32, flags: Flags, window: u32) -> Segment {
        let sack = match &mut self.sack {
            Some(board) if !self.rx.ahead.is_empty() || board.dsack.is_some() => {
                board.sack_blocks(self.rx.next, &self.rx.ahead, self.rx.newest, self.rx.fin_at)
            }
            _ => Sack::NONE,
        };
        // RFC 7323 section 3.2: in every segment except a RST.
        let timestamps = if self.timestamps && !flags.has(Flags::RST) {
            Timestamps::new(now, self.ts_recent)
        } else {
            Timestamps::NONE
        };
        Segment {
            seq,
            ack: self.rx.next,
            len,
            window,
            cwnd: self.window.cwnd.min(u64::from(u32::MAX)) as u32,
            sack,
            timestamps,
            flags,
            retransmission: false,
            ecn: Ecn::NotEct,
        }
    }

    /// Handles the timers that have expired at `now`; early calls have no effect.
    pub fn handle_timeout(&mut self, cfg: &Config, now: Instant) {
        if self.rx.ack_at.is_some_and(|at| now >= at) {
            // RFC 9293 section 3.8.6.3: the maximum delay of the ACK has passed.
            self.rx.ack_at = None;
            self.rx.ack_now = true;
        }
        if self.timer_at.is_none_or(|at| now < at) {
            return;
        }
        match self.timer {
            Timer::Off => {}
            Timer::Retransmission if self.state.is_synchronized() => self.on_rto(cfg, now),
            Timer::Retransmission => self.on_syn_timeout(cfg, now),
            Timer::Persist => self.on_persist(cfg, now),
            Timer::Reordering => self.on_reordering_timer(cfg, now),
            Timer::Probe => self.on_probe_timer(now),
        }
    }

    fn on_syn_timeout(&mut self, cfg: &Config, now: Instant) {
        if u32::from(self.unanswered) >= cfg.syn_retries {
            return self.fail();
        }
        self.unanswered = self.unanswered.saturating_add(1);
        self.timeouts = self.timeouts.saturating_add(1);
        self.syn_retransmitted = true;
        self.syn_due = true;
        self.rto.back_off(cfg);
        self.set_timer(Timer::Retransmission, now + self.rto.interval());
    }

    fn on_rto(&mut self, cfg: &Config, now: Instant) {
        if cfg.ns2_recovery && self.window.cwnd < cfg.smss() {
            self.window.cwnd = cfg.smss();
            if self.una == self.max {
                return self.on_waited_as_ns2();
            }
        }
        // RFC 9293 section 3.8.3: R2 retransmissions, so the connection fails.
        if u32::from(self.unanswered) >= cfg.retries {
            return self.fail();
        }
        // RFC 5681 section 3.1: ssthresh by eq. (4), but unchanged if the timer already resent the same segment. ns-2
        // reduces it again.
        let reduces = if cfg.ns2_recovery { !self.latest.is_mark() } else { self.unanswered == 0 };
        if reduces {
            self.save_before_rto(cfg, now);
            // Linux `tcp_enter_loss()` keeps the ssthresh of a recovery that is in progress.
            if cfg.algorithm != Algorithm::CubicLinux || self.phase != Phase::SackRecovery {
                let flight = self.flight();
                self.reduce(cfg, now, flight);
            }
            if cfg.half_of_cwnd {
                // 4.3BSD and ns-2 keep ssthresh in whole segments.
                let whole_segments = self.window.reduced() / cfg.smss() * cfg.smss();
                self.window.set_ssthresh(whole_segments.max(2 * cfg.smss()));
            }
            self.algorithm.on_timeout(self.max, now);
        }
        if cfg.ns2_recovery {
            self.duplicate_acks = 0;
            self.latest = self.latest.on_timeout();
            self.cwr_due = self.ecn == EcnMode::Classic;
            self.rto.on_resent();
        }
        self.unanswered = self.unanswered.saturating_add(1);
        self.timeouts = self.timeouts.saturating_add(1);
        // RFC 5681 section 3.1: the loss window is one segment.
        self.window.cwnd = cfg.smss();
        // RFC 6582 section 3.2 step 4: after a timeout `recover` is the highest position sent, and fast recovery ends.
        self.recover = self.max;
        self.reduced = self.max;
        // RFC 6298 (5.4)-(5.6): resend the earliest segment, back off, start the timer.
        self.loss_probe_due = false;
        if let Some(board) = &mut self.sack
            && board.on_rto(now, self.una)
        {
            // RFC 8985 section 6.3: lost segments are resent.
            self.phase = Phase::RtoResend;
            self.resend_due = true;
            if matches!(cfg.algorithm, Algorithm::CubicLinux | Algorithm::Bbr3) {
                // `tcp_enter_loss()`, and OnEnterRTO() of draft-ietf-ccwg-bbr-06: a segment more than what is still in flight.
                self.window.cwnd += self.in_network();
            }
            if cfg.algorithm.sets_cwnd() {
                self.report_losses(cfg, now);
            }
        } else if cfg.go_back_n {
            self.resend_due = self.sack.is_some() && !cfg.recovers_as_sack1();
            self.phase = match self.resend_due {
                true => Phase::RtoResend,
                false if cfg.ns2_recovery => Phase::RtoNs2,
                false => Phase::Open,
            };
            self.nxt = self.una;
        } else {
            self.phase = Phase::RtoPerAck;
            self.resend_due = true;
        }
        self.rto.back_off(cfg);
        self.set_timer(Timer::Retransmission, now + self.rto.interval());
    }

    fn on_persist(&mut self, cfg: &Config, now: Instant) {
        if u32::from(self.unanswered) >= cfg.retries {
            return self.fail();
        }
        self.unanswered = self.unanswered.saturating_add(1);
        self.probe_due = true;
        // RFC 9293 section 3.8.6.1: the interval between probes grows exponentially.
        self.probes = self.probes.saturating_add(1);
        self.set_timer(Timer::Persist, now + self.rto.persist_interval(cfg, self.probes));
    }
}
