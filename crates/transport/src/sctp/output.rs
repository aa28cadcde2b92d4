//! Packets to send and timers: RFC 9260 sections 6.1, 6.3, 6.9 and 6.10.

use bentpipe_units::Instant;

use super::association::{Association, Chunk, ChunkState, State};
use super::packet::{SACK_HEADER, size};
use super::{Config, Control, Data, Packet};

impl Association {
    /// Returns the next packet to send at `now`. Call it until it returns `None`.
    pub fn poll_transmit(&mut self, cfg: &Config, now: Instant) -> Option<Packet> {
        let packet = self.poll(cfg, now)?;
        self.stats.packets_sent += 1;
        Some(packet)
    }

    fn poll(&mut self, cfg: &Config, now: Instant) -> Option<Packet> {
        match std::mem::take(&mut self.control_due) {
            Control::None => {}
            control => return Some(self.send_control(cfg, now, control)),
        }
        if matches!(self.state, State::Established | State::ShutdownPending | State::ShutdownReceived) {
            if let Some(packet) = self.poll_data(cfg, now) {
                return Some(packet);
            }
            // Section 9.2: everything is sent and acknowledged.
            let done = self.chunks.is_empty() && self.queue.is_empty();
            if done && self.state == State::ShutdownPending {
                self.state = State::ShutdownSent;
                let control = Control::Shutdown { cum_tsn_ack: self.rx.cum_tsn_ack };
                return Some(self.send_control(cfg, now, control));
            }
            if done && self.state == State::ShutdownReceived {
                self.state = State::ShutdownAckSent;
                return Some(self.send_control(cfg, now, Control::ShutdownAck));
            }
        }
        let open = matches!(self.state, State::Established | State::ShutdownPending);
        if self.rx.sack_now || (open && self.rx.update_due(cfg)) {
            let mut packet = Packet::default();
            packet.sack = Some(self.rx.sack(cfg));
            return Some(packet);
        }
        None
    }

    /// Sends a control chunk and sets the timer that waits for its answer.
    fn send_control(&mut self, cfg: &Config, now: Instant, control: Control) -> Packet {
        let mut packet = Packet::control(control);
        match control {
            Control::Init { .. } | Control::CookieEcho { .. } => {
                // Section 5.1 (A), (C): T1-init, T1-cookie. C1: the setup measures an RTT too.
                if self.errors == 0 {
                    self.rto.on_sent(now, 0);
                } else {
                    self.rto.on_resent(0);
                }
                self.timer_at = Some(now + self.rto.interval());
            }
            // Section 9.2: T2-shutdown.
            Control::Shutdown { .. } | Control::ShutdownAck => {
                self.timer_at = Some(now + self.rto.interval());
                if self.rx.unacknowledged() {
                    packet.sack = Some(self.rx.sack_beside(cfg, 8));
                }
            }
            _ => {}
        }
        packet
    }

    /// The next packet with DATA.
    fn poll_data(&mut self, cfg: &Config, now: Instant) -> Option<Packet> {
        // Section 7.2.3: one packet in flight after a timeout.
        if self.one_packet_in_flight && self.flight > 0 {
            return None;
        }
        let fast = std::mem::take(&mut self.fast_due);
        if self.lost > 0 {
            // Section 6.1 (C): retransmissions go first, as far as cwnd allows; section 7.2.4 (3): the first packet of
            // a fast retransmit regardless of cwnd.
            return (fast || self.flight < self.cwnd).then(|| self.resend(cfg, now));
        }
        // (D): Max.Burst.
        if self.queue.is_empty() || self.burst == 0 {
            return None;
        }
        if self.chunks.is_empty() {
            self.reduce_after_idle(cfg, now);
        }
        // (B): not with cwnd or more outstanding; one packet may exceed it.
        if self.flight >= self.cwnd {
            return None;
        }
        let mut packet = Packet::default();
        let mut left = cfg.pmdcs() as u32;
        while let Some(chunk) = self.next_fragment(cfg, packet.data().is_empty(), packet.has_space(), left) {
            left -= size(chunk.len);
            packet.push(chunk);
        }
        if packet.data().is_empty() {
            return None;
        }
        self.burst -= 1;
        self.rto.on_sent(now, packet.data()[0].tsn);
        self.bundle_sack(cfg, &mut packet, left);
        self.on_data_sent(now, false);
        Some(packet)
    }

    /// Takes the next fragment from the queue, if it fits into `left` bytes and into the peer's window.
    fn next_fragment(&mut self, cfg: &Config, first: bool, has_space: bool, left: u32) -> Option<Data> {
        let messages = self.queue.front_mut()?;
        // Section 6.9: a message longer than a packet is sent in fragments that fill one; the last fragment and whole
        // messages may be bundled (section 6.10).
        let rest = messages.len - self.offset;
        let len = rest.min(cfg.max_fragment()) as u16;
        if !has_space || size(len) > left {
            return None;
        }
        if self.rwnd < u64::from(len) {
            // (A): not beyond the peer's window. Regardless of it, one chunk may be in flight if all others are
            // acknowledged: it probes a closed window. The first probe is sent at once; T3-rtx then doubles the
            // interval.
            if !(first && self.chunks.is_empty()) {
                return None;
            }
            self.probing = true;
        } else {
            self.probing = false;
        }
        let begin = self.offset == 0;
        let end = u32::from(len) == rest;
        self.offset += u32::from(len);
        if end {
            self.offset = 0;
            messages.count -= 1;
            if messages.count == 0 {
                self.queue.pop_front();
            }
        }
        let tsn = self.next_tsn();
        let chunk =
            Chunk { len, begin, end, state: ChunkState::Outstanding, misses: 0, fast_retransmitted: false };
        self.flight += chunk.size();
        self.flight_data += u64::from(len);
        // Section 6.2.1 (B).
        self.rwnd = self.rwnd.saturating_sub(len.into());
        self.chunks.push_back(chunk);
        Some(Data { tsn, len, begin, end })
    }

    /// Resends the earliest marked chunks, as many as fit into a packet.
    fn resend(&mut self, cfg: &Config, now: Instant) -> Packet {
        let mut packet = Packet::default();
        packet.retransmission = true;
        let mut left = cfg.pmdcs() as u32;
        let mut tsn = self.lost_from.max(self.first);
        let mut restart = false;
        while self.lost > 0 && packet.has_space() {
            let index = (tsn - self.first) as usize;
            let Some(chunk) = self.chunks.get_mut(index) else { break };
            if chunk.state == ChunkState::Lost {
                if size(chunk.len) > left {
                    break;
                }
                left -= size(chunk.len);
                chunk.state = ChunkState::Outstanding;
                chunk.misses = 0;
                // Section 7.2.4 (4): the first outstanding chunk is fast retransmitted, so T3-rtx is restarted.
                restart |= index == 0 && chunk.fast_retransmitted;
                packet.push(Data { tsn, len: chunk.len, begin: chunk.begin, end: chunk.end });
                self.flight += chunk.size();
                self.flight_data += u64::from(chunk.len);
                self.rwnd = self.rwnd.saturating_sub(chunk.len.into());
                self.lost -= 1;
                self.stats.retransmissions += 1;
                self.rto.on_resent(tsn);
            }
            tsn += 1;
        }
        self.lost_from = tsn;
        self.bundle_sack(cfg, &mut packet, left);
        self.on_data_sent(now, restart);
        packet
    }

    /// Section 6.1: bundles a SACK for unacknowledged DATA if the packet has room.
    fn bundle_sack(&mut self, cfg: &Config, packet: &mut Packet, left: u32) {
        // Not with gaps, whose report may be as long as a packet; they are SACKed at once anyway.
        if self.rx.unacknowledged() && !self.rx.has_gaps() && left >= SACK_HEADER {
            let mut sack = self.rx.sack(cfg);
            sack.duplicates = sack.duplicates.min(((left - SACK_HEADER) / 4) as u16);
            packet.sack = Some(sack);
        }
    }

    /// Records that DATA is sent: section 6.3.2, R1.
    fn on_data_sent(&mut self, now: Instant, restart: bool) {
        self.answered = false;
        self.data_sent_at = now;
        if restart || self.timer_at.is_none() {
            self.timer_at = Some(now + self.rto.interval());
        }
    }

    /// Section 7.2.1: for each RTO without DATA, cwnd <- max(cwnd / 2, 4 PMDCS), after ssthresh <- cwnd.
    fn reduce_after_idle(&mut self, cfg: &Config, now: Instant) {
        let floor = 4 * cfg.pmdcs();
        let mut idle = now - self.data_sent_at;
        if idle >= self.rto.interval() && self.cwnd > floor {
            self.ssthresh = Some(self.cwnd);
            while idle >= self.rto.interval() && self.cwnd > floor {
                self.cwnd = (self.cwnd / 2).max(floor);
                idle = idle.saturating_sub(self.rto.interval());
            }
        }
    }

    /// Handles the timers that have expired at `now`; early calls have no effect.
    pub fn handle_timeout(&mut self, cfg: &Config, now: Instant) {
        if self.rx.sack_at.is_some_and(|at| now >= at) {
            // Section 6.2: SACK.Delay has passed.
            self.rx.sack_at = None;
            self.rx.sack_now = true;
        }
        if self.timer_at.is_none_or(|at| now < at) {
            return;
        }
        self.burst = cfg.max_burst;
        self.timer_at = None;
        self.stats.timeouts += 1;
        // Section 6.1 (A): an answered window probe does not count against the peer.
        if !(self.probing && self.answered) {
            self.errors += 1;
        }
        let setup = matches!(self.state, State::CookieWait | State::CookieEchoed);
        // Sections 4 (2), (3) and 8.1: too many consecutive timeouts, so the association fails.
        if self.errors > if setup { cfg.max_init_retransmits } else { cfg.association_max_retrans } {
            return self.fail();
        }
        self.rto.back_off(cfg);
        match self.state {
            State::Closed => {}
            State::CookieWait => self.control_due = Control::Init { a_rwnd: cfg.a_rwnd },
            State::CookieEchoed => self.control_due = Control::CookieEcho { cookie: self.cookie },
            State::ShutdownSent => self.control_due = Control::Shutdown { cum_tsn_ack: self.rx.cum_tsn_ack },
            State::ShutdownAckSent => self.control_due = Control::ShutdownAck,
            State::Established | State::ShutdownPending | State::ShutdownReceived => self.on_t3(cfg),
        }
    }

    /// Section 6.3.3: handles the expiry of T3-rtx.
    fn on_t3(&mut self, cfg: &Config) {
        // E1, with section 7.2.3.
        self.reduce(cfg);
        self.cwnd = cfg.pmdcs();
        self.one_packet_in_flight = true;
        self.recovery = None;
        self.fast_due = false;
        // E3, and the note after it: all outstanding chunks are marked; the earliest are resent at once, because
        // nothing is in flight any more.
        for chunk in self.chunks.iter_mut().filter(|chunk| chunk.state == ChunkState::Outstanding) {
            chunk.state = ChunkState::Lost;
            self.lost += 1;
            // Section 6.2.1 (C).
            self.rwnd += u64::from(chunk.len);
        }
        for chunk in &mut self.chunks {
            chunk.misses = 0;
            chunk.fast_retransmitted = false;
        }
        (self.flight, self.flight_data) = (0, 0);
        self.lost_from = self.first;
    }
}
