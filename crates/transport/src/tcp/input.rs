//! Arriving segments, in the order of RFC 9293 section 3.10.7.

use bentpipe_units::Instant;

use super::accurate::EcnMode;
use super::connection::{Connection, Reset, State};
use super::scoreboard::Scoreboard;
use super::{Config, Ecn, Flags, Segment};

impl Connection {
    /// Processes an arriving segment.
    ///
    /// No segment, whatever it contains, can do worse than reset the connection.
    #[inline]
    pub fn on_segment(&mut self, cfg: &Config, now: Instant, seg: &Segment) {
        match self.state {
            State::Closed => self.on_segment_closed(seg),
            State::Listen => self.on_segment_listening(cfg, seg),
            State::SynSent => self.on_segment_syn_sent(cfg, now, seg),
            _ => self.on_segment_synchronized(cfg, now, seg),
        }
    }

    /// RFC 9293 section 3.10.7.1: a segment for a closed connection is answered with a reset.
    fn on_segment_closed(&mut self, seg: &Segment) {
        if seg.flags.has(Flags::RST) || self.reset == Some(Reset::Abort) {
            return;
        }
        let (reset, position) =
            if seg.flags.has(Flags::ACK) { (Reset::Reply, seg.ack) } else { (Reset::ReplyAck, seg.end()) };
        (self.reset, self.wl1) = (Some(reset), position);
    }

    /// RFC 9293 section 3.10.7.2.
    fn on_segment_listening(&mut self, cfg: &Config, seg: &Segment) {
        if !seg.flags.has(Flags::SYN) || seg.flags.has(Flags::RST | Flags::ACK) {
            return;
        }
        self.on_syn(cfg, seg);
        self.state = State::SynReceived;
        self.syn_due = true;
    }

    /// RFC 9293 section 3.10.7.3.
    fn on_segment_syn_sent(&mut self, cfg: &Config, now: Instant, seg: &Segment) {
        let acknowledged = seg.flags.has(Flags::ACK);
        // RFC 9293 section 3.10.7.3: an ACK of anything but the SYN does not belong to this connection.
        if acknowledged && !self.acknowledges_syn(seg) {
            return;
        }
        if seg.flags.has(Flags::RST) {
            if acknowledged {
                self.fail();
            }
            return;
        }
        if !seg.flags.has(Flags::SYN) {
            return;
        }
        self.on_syn(cfg, seg);
        if acknowledged {
            self.rx.ack_now = true;
            self.establish(cfg, now, seg);
        } else {
            // RFC 9293 section 3.5, figure 7: simultaneous open.
            self.state = State::SynReceived;
            self.syn_due = true;
        }
    }

    /// True if the segment acknowledges our SYN, which was sent.
    fn acknowledges_syn(&self, seg: &Segment) -> bool {
        seg.ack == 1 && self.max == 1
    }

    /// Processes the peer's SYN, in an active or passive open.
    fn on_syn(&mut self, cfg: &Config, seg: &Segment) {
        self.rx.synchronize();
        self.largest_window = seg.window;
        // RFC 2018 section 2: SACK-permitted in both SYNs.
        let lists_lost = cfg.algorithm.sets_cwnd();
        self.sack =
            (cfg.sack && seg.sack.is_permitted()).then(|| Box::new(Scoreboard::new(cfg.rack, lists_lost)));
        // RFC 7323 section 2.2: window scale in both SYNs. Segments carry windows after scaling, so the peer's shift is
        // not needed.
        self.window_scaling = cfg.window_scale.is_some() && seg.sack.scale().is_some();
        if self.window_scaling {
            self.rx.set_scale(cfg);
        }
        // RFC 7323 section 3.2: timestamps in both SYNs.
        self.timestamps = cfg.timestamps && seg.timestamps.is_some();
        self.ts_recent = seg.timestamps.value;
        self.negotiate_ecn(cfg, seg);
    }

    /// Completes the handshake: the peer acknowledged the SYN.
    fn establish(&mut self, cfg: &Config, now: Instant, seg: &Segment) {
        self.measure_rtt(cfg, now, 1, seg.timestamps.echo);
        self.una = 1;
        self.unanswered = 0;
        self.stop_timer();
        self.state = State::Established;
        self.syn_due = false;
        self.rto.on_established(cfg, self.syn_retransmitted);
        if self.syn_retransmitted {
            // RFC 5681 section 3.1: if the SYN or the SYN-ACK was lost, the initial window is one segment.
            self.window.cwnd = cfg.smss();
        }
        self.wl1 = seg.seq;
        self.edge = seg.ack + u64::from(seg.window);
        self.largest_window = self.largest_window.max(seg.window);
        self.data_sent_at = now;
    }

    /// RFC 9293 section 3.10.7.4.
    #[inline]
    fn on_segment_synchronized(&mut self, cfg: &Config, now: Instant, seg: &Segment) {
        if seg.flags.has(Flags::RST | Flags::SYN) && self.on_rst_or_syn(seg) {
            return;
        }
        // RFC 9293 section 3.10.7.4, first step: a sequence number beyond the window is answered with an ACK and
        // dropped. An ACK without data at its right edge is valid, because a peer that has used up the window stands
        // there. A segment before the window is a duplicate; it is answered below, but its ACK may be new.
        if seg.seq > self.rx.edge {
            self.rx.ack_now = true;
            return;
        }
        if !seg.flags.has(Flags::ACK) {
            return;
        }
        if self.timestamps && !self.on_timestamps(seg) {
            return;
        }
        if self.state == State::SynReceived {
            if !self.acknowledges_syn(seg) {
                return;
            }
            self.establish(cfg, now, seg);
            self.on_handshake_ack(seg);
        }
        if !self.on_ack(cfg, now, seg) {
            return;
        }
        let fin = seg.flags.has(Flags::FIN);
        if seg.len > 0 || fin {
            if self.ecn == EcnMode::Accurate {
                self.count_mark(seg.ecn);
            } else if self.ecn == EcnMode::Classic {
                // RFC 3168 section 6.1.3: a mark is echoed until the sender signals that it reduced its window.
                if seg.flags.has(Flags::CWR) {
                    self.rx.echo = false;
                }
                if seg.ecn == Ecn::Ce {
                    self.rx.echo = true;
                }
            }
            if cfg.rack
                && let Some(board) = &mut self.sack
                && let Some(duplicate) = self.rx.duplicate_part(seg.seq, seg.len)
            {
                board.dsack = Some(duplicate);
            }
            if self.rx.on_data(cfg, now, seg.seq, seg.len, fin) {
                self.on_fin();
            }
        }
    }

    /// Processes the timestamps of a segment, if negotiated. Returns false if it has none.
    #[inline]
    fn on_timestamps(&mut self, seg: &Segment) -> bool {
        // RFC 7323 section 3.2: a segment without timestamps is dropped.
        if !seg.timestamps.is_some() {
            return false;
        }
        // RFC 7323 section 4.3 (2): the timestamp to echo is that of the segment the last ACK asked for, or of an
        // earlier one, so that delayed ACKs and gaps count towards the RTT.
        let newer = seg.timestamps.value.wrapping_sub(self.ts_recent) <= u32::MAX / 2;
        if newer && seg.seq <= self.rx.last_ack_sent() {
            self.ts_recent = seg.timestamps.value;
        }
        true
    }

    /// Processes an unexpected RST or SYN, RFC 5961. Returns true if the segment needs no further processing.
    fn on_rst_or_syn(&mut self, seg: &Segment) -> bool {
        if seg.flags.has(Flags::RST) {
            // RFC 1337: a reset does not end TIME-WAIT.
            if self.state != State::TimeWait {
                if seg.seq == self.rx.next {
                    // RFC 5961 section 3.2: exactly the next position expected, so the reset is genuine.
                    self.fail();
                } else if seg.seq > self.rx.next && seg.seq <= self.rx.edge {
                    // RFC 5961 section 3.2: elsewhere in the window, so a challenge ACK.
                    self.rx.ack_now = true;
                }
            }
            return true;
        }
        if self.state == State::SynReceived {
            // A repeated SYN: the peer has not received ours, which the timer resends. In a simultaneous open it is the
            // peer's SYN-ACK (RFC 9293 section 3.5, figure 7), whose ACK counts.
            return !seg.flags.has(Flags::ACK);
        }
        // RFC 5961 section 4.2: a challenge ACK, which also answers a duplicate SYN-ACK.
        self.rx.ack_now = true;
        true
    }

    /// Processes the peer's FIN once it is next in order.
    fn on_fin(&mut self) {
        self.state = match self.state {
            State::Established => State::CloseWait,
            // If our FIN was acknowledged, the state is FIN-WAIT-2 by now.
            State::FinWait1 => State::Closing,
            State::FinWait2 => State::TimeWait,
            other => other,
        };
        if self.state == State::TimeWait {
            self.stop_timer();
        }
    }
}
