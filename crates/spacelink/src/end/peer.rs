//! The peer: connecting, losing it, detecting outages, and QUIC's events.

use super::*;

impl Spacelink {
    /// Handles a connection attempt.
    pub(super) fn incoming(&mut self, now: Instant, incoming: Incoming, mut answer: Vec<u8>) {
        answer.clear();
        let Side::Listening { config, peer } = &self.side else {
            return self.endpoint.get().ignore(incoming);
        };
        // Separate places for the peer's host and for all others. A forged address gets at most `HALF_OPEN_RETRY` of them.
        let known = *peer == Some(incoming.remote_address().ip().to_canonical());
        let same = || self.connections.iter().filter(|connection| connection.known == known);
        let half_open = same().filter(|connection| !connection.greeted && !connection.over).count();
        if half_open >= HALF_OPEN_MOST || same().count() >= 4 * HALF_OPEN_MOST {
            self.endpoint.get().ignore(incoming);
        } else if half_open >= HALF_OPEN_RETRY && incoming.may_retry() {
            let retry = self.endpoint.get().retry(incoming, &mut answer);
            if let Ok(transmit) = retry {
                self.respond(&transmit, answer);
            }
        } else {
            let (ledger, mut config) = (Arc::<Ledger>::default(), config.clone());
            config.transport_config(Arc::new(self.setup.transport(&ledger)));
            let accepted = self.endpoint.get().accept(incoming, now, &mut answer, Some(Arc::new(config)));
            match accepted {
                Ok((handle, conn)) => {
                    self.connections.push(PeerConnection::new(
                        (handle, conn, ledger),
                        known,
                        &self.setup,
                        now,
                    ));
                }
                Err(error) => {
                    if let Some(transmit) = error.response {
                        self.respond(&transmit, answer);
                    }
                }
            }
        }
    }

    /// The peer has sent its greeting: this connection is in use from now on.
    pub(super) fn greeted(&mut self, now: Instant, at: usize) {
        if let Some(old) = self.active() {
            let connection = &mut self.connections[old];
            connection.conn.close(now, VarInt::from_u32(REPLACED), Bytes::new());
            connection.over = true;
            self.down(Reason::Replaced);
        }
        if let Side::Connecting { wait, .. } = &mut self.side {
            *wait = RECONNECT[0];
        }
        let connection = &mut self.connections[at];
        connection.greeted = true;
        connection.check_at = now + self.setup.ping_interval;
        connection.ping_at = now + connection.conn.rtt() + self.setup.ack_delay;
        // This end enforces the limit. QUIC's is higher: it announces closed streams with a delay of an eighth of the limit,
        // and forgets a stream a round trip after this end.
        let most = self.setup.streams.saturating_mul(2);
        self.allowed_streams = if matches!(self.side, Side::Member) { most.min(FIRST_STREAMS) } else { most };
        connection.conn.set_max_concurrent_streams(Dir::Bi, VarInt::from_u32(self.allowed_streams));
        self.current = Some(connection.handle);
        self.stats.connections += 1;
        self.events.push_back(Event::Up);
        self.accept(at);
        self.take_datagrams(now, at);
    }

    /// The connection in use is lost.
    pub(super) fn down(&mut self, reason: Reason) {
        for (slot, stream) in &self.streams {
            if stream.header.is_none() {
                self.events.push_back(Event::Lost(StreamKey::new(self.number, slot as u32, stream.serial)));
            }
        }
        self.streams.clear();
        (self.scattered, self.taken) = (0, 0);
        self.early_resets.clear();
        self.slots.clear();
        self.credits.clear();
        self.to_repeat.clear();
        (self.credit_bytes, self.credit_at, self.repeat_at) = (0, None, None);
        self.events.push_back(Event::Down(reason));
    }

    /// A connection has ended, whether it was in use or not.
    pub(super) fn ended(&mut self, now: Instant, at: usize, reason: Reason) {
        if std::mem::replace(&mut self.connections[at].over, true) {
            return;
        }
        if self.current == Some(self.connections[at].handle) {
            self.current = None;
            self.down(reason);
        } else {
            self.events.push_back(Event::Failed(reason));
        }
        self.schedule_reconnect(now);
    }

    pub(super) fn give_up(&mut self, now: Instant, at: usize, code: u32, reason: Reason) {
        self.connections[at].conn.close(now, VarInt::from_u32(code), Bytes::new());
        self.ended(now, at, reason);
    }

    pub(super) fn schedule_reconnect(&mut self, now: Instant) {
        if let Side::Connecting { again, wait, .. } = &mut self.side {
            *again = Some(now + *wait);
            *wait = (2 * *wait).min(RECONNECT[1]);
        }
    }

    pub(super) fn malformed(&mut self, now: Instant, at: usize) {
        self.stats.malformed += 1;
        self.give_up(now, at, MALFORMED, Reason::Failed("the peer speaks another protocol".to_owned()));
    }

    /// Checks whether an answer is overdue, and pings the peer if so. Packets from the peer alone are no answer: the link
    /// towards it may be down. quinn doubles its probe interval each time and would notice the end of an outage late.
    pub(super) fn check_answers(&mut self, now: Instant, at: usize) {
        let patience = self.patience(at);
        let connection = &mut self.connections[at];
        connection.check_at = now + self.setup.ping_interval;
        if connection.pings > 0 && connection.ping_at <= now {
            connection.pings -= 1;
            connection.conn.ping();
        }
        let eliciting = ack_eliciting(&connection.conn.stats().frame_tx);
        let acked = connection.ledger.acked();
        if acked != connection.acked_at_progress {
            (connection.acked_at_progress, connection.eliciting_at_progress) = (acked, eliciting);
            (connection.unanswered_since, connection.silent) = (None, false);
        } else if eliciting != connection.eliciting_at_progress {
            // Silence begins with the unanswered packet: nobody had to answer before.
            let silence = now.saturating_duration_since(*connection.unanswered_since.get_or_insert(now));
            connection.silent = silence >= patience + SILENCE;
            if silence >= patience {
                connection.conn.ping();
            }
            if connection.silent && connection.unreachable >= connection.unanswered_since {
                self.give_up(now, at, STOPPED, Reason::Gone);
            }
        }
    }

    /// Longest usual delay of an answer.
    pub(super) fn patience(&self, at: usize) -> Duration {
        self.connections[at].conn.rtt() * 5 / 4 + 2 * self.setup.ack_delay
    }

    /// Handles QUIC's events.
    pub(super) fn handle_quic_events(&mut self, now: Instant) {
        let mut at = 0;
        while at < self.connections.len() {
            loop {
                let mut quiet = true;
                let connection = &mut self.connections[at];
                while let Some(event) = connection.conn.poll_endpoint_events() {
                    quiet = false;
                    if let Some(event) = self.endpoint.get().handle_event(connection.handle, event) {
                        connection.conn.handle_event(event);
                    }
                }
                while let Some(event) = self.connections[at].conn.poll() {
                    quiet = false;
                    self.on_event(now, at, event);
                }
                if quiet {
                    break;
                }
            }
            let connection = &self.connections[at];
            if connection.control_pending.len() > MOST_CONTROL && !connection.over {
                self.malformed(now, at);
            }
            if self.connections[at].conn.is_drained() {
                // Without effect if the end is known already.
                self.ended(now, at, Reason::Closed);
                let connection = self.connections.remove(at);
                let gone = connection.conn.stats().path;
                self.closed.acked += connection.ledger.acked();
                self.closed.delivered += connection.delivered();
                self.closed.lost += connection.ledger.lost();
                self.closed.marks += connection.ledger.marks();
                self.stats.sent_packets += gone.sent_packets;
                self.stats.lost_packets += gone.lost_packets;
            } else {
                at += 1;
            }
        }
    }

    pub(super) fn on_event(&mut self, now: Instant, at: usize, event: quinn_proto::Event) {
        use quinn_proto::Event as Quic;
        if self.connections[at].over {
            return;
        }
        match event {
            Quic::HandshakeDataReady | Quic::DatagramsUnblocked => {}
            Quic::Connected => {
                let connection = &mut self.connections[at];
                if connection.conn.datagrams().max_size() < Some(LEAST_DATAGRAM) {
                    self.malformed(now, at);
                    return;
                }
                connection.control_out = connection.conn.streams().open(Dir::Uni);
                connection.control_pending.extend_from_slice(&HELLO);
                self.write_control(at);
            }
            Quic::ConnectionLost { reason } => self.ended(now, at, reason_of(reason)),
            Quic::DatagramReceived => self.take_datagrams(now, at),
            Quic::Stream(StreamEvent::Opened { dir: Dir::Uni }) => {
                while let Some(id) = self.connections[at].conn.streams().accept(Dir::Uni) {
                    if self.connections[at].control_in.replace(id).is_some() {
                        self.malformed(now, at);
                        return;
                    }
                }
                self.read_control(now, at);
            }
            Quic::Stream(StreamEvent::Opened { dir: Dir::Bi }) => self.accept(at),
            Quic::Stream(StreamEvent::Readable { id }) if self.connections[at].control_in == Some(id) => {
                self.read_control(now, at);
            }
            Quic::Stream(StreamEvent::Readable { id }) => {
                if let Some(slot) = self.slot_of(at, id) {
                    self.readable(at, slot);
                }
            }
            Quic::Stream(StreamEvent::Writable { id }) if self.connections[at].control_out == Some(id) => {
                self.write_control(at)
            }
            Quic::Stream(StreamEvent::Writable { id }) => {
                if let Some(slot) = self.slot_of(at, id) {
                    self.events.push_back(Event::Writable(self.key(slot)));
                }
            }
            Quic::Stream(StreamEvent::Finished { id }) => {
                if let Some(slot) = self.slot_of(at, id) {
                    self.streams[slot].all_acked = true;
                    self.remove_if_done(slot);
                }
            }
            Quic::Stream(StreamEvent::Stopped { id, .. }) => {
                if let Some(slot) = self.slot_of(at, id) {
                    self.on_reset(slot);
                }
            }
            Quic::Stream(StreamEvent::Available { .. }) => {}
        }
    }

    /// Slot of a QUIC stream of the connection in use.
    pub(super) fn slot_of(&self, at: usize, id: StreamId) -> Option<usize> {
        (self.current == Some(self.connections[at].handle)).then_some(())?;
        self.slots.get(&id).copied()
    }
}

/// Reason of a lost connection.
pub(super) fn reason_of(error: ConnectionError) -> Reason {
    // TLS alerts have the codes 0x100 to 0x1ff (RFC 9001, section 4.8).
    let or_refused = |code: quinn_proto::TransportErrorCode, what: String| match u64::from(code) {
        0x100..0x200 => Reason::Refused(what),
        _ => Reason::Failed(what),
    };
    match error {
        ConnectionError::TransportError(error) => or_refused(error.code, error.to_string()),
        ConnectionError::ConnectionClosed(close) => or_refused(close.error_code, close.to_string()),
        ConnectionError::ApplicationClosed(close) if close.error_code == VarInt::from_u32(STOPPED) => {
            Reason::Closed
        }
        ConnectionError::ApplicationClosed(close) if close.error_code == VarInt::from_u32(REPLACED) => {
            Reason::Replaced
        }
        ConnectionError::Reset => Reason::Restarted,
        ConnectionError::TimedOut => Reason::Silent,
        ConnectionError::LocallyClosed => Reason::Closed,
        other => Reason::Failed(other.to_string()),
    }
}
