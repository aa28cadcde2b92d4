//! Credits and the control stream, described on the crate's page.

use super::*;

impl Spacelink {
    /// Announces that `bytes` more of what was read were delivered.
    pub fn delivered(&mut self, key: StreamKey, bytes: u64) {
        let Some((_, slot)) = self.find(key) else { return };
        let stream = &mut self.streams[slot];
        stream.delivered = (stream.delivered + bytes).min(stream.received);
        self.credit_bytes += bytes;
        self.list(key);
    }

    /// Lists a stream whose credit has to be sent.
    pub(super) fn list(&mut self, key: StreamKey) {
        let stream = &mut self.streams[key.slot()];
        if stream.to_send || stream.confirmed == stream.delivered {
            return;
        }
        stream.to_send = true;
        self.credits.push(key);
        let at = self.now + self.credit_delay();
        self.credit_at.get_or_insert(at);
    }

    /// Longest delay of a credit.
    fn credit_delay(&self) -> Duration {
        let trip = self.active().map_or(self.setup.round_trip, |at| self.connections[at].conn.rtt());
        (trip / CREDITS_PER_ROUND_TRIP).max(CREDIT_INTERVAL).min(self.setup.ack_delay)
    }

    /// Tells the peer whether this end has room for further connections. The peer forgets it when the connection ends.
    pub fn set_full(&mut self, full: bool) {
        let Some(at) = self.active() else { return };
        Control::Full(full).encode(&mut self.connections[at].control_pending);
        self.write_control(at);
    }

    /// Handles a frame of the peer's control stream.
    fn on_frame(&mut self, at: usize, frame: Control) {
        match frame {
            Control::Credit(credit) => self.credited(credit),
            Control::Full(full) => self.events.push_back(Event::Full(full)),
            Control::Reset(id) => {
                if let Ok(id) = VarInt::from_u64(id) {
                    self.reset_by_peer(at, StreamId::from(id));
                }
            }
        }
    }

    /// Handles a credit of the peer.
    pub(super) fn credited(&mut self, credit: Credit) {
        let id = VarInt::from_u64(credit.stream).map(StreamId::from);
        let Some(&slot) = id.ok().and_then(|id| self.slots.get(&id)) else { return };
        let key = self.key(slot);
        let stream = &mut self.streams[slot];
        if credit.delivered > stream.written {
            self.stats.malformed += 1;
            return;
        }
        if credit.delivered > stream.delivered_by_peer {
            let bytes = credit.delivered - std::mem::replace(&mut stream.delivered_by_peer, credit.delivered);
            self.events.push_back(Event::Acknowledged { stream: key, bytes });
            self.remove_if_done(slot);
        }
    }

    /// Sends credits for what was delivered.
    pub(super) fn send_credits(&mut self, now: Instant) {
        (self.credit_bytes, self.credit_at) = (0, None);
        let listed = std::mem::take(&mut self.credits);
        let Some(at) = self.active() else { return };
        let limit = self.connections[at].conn.datagrams().max_size();
        let mut credits = Vec::with_capacity(listed.len());
        for key in listed {
            let Some((_, slot)) = self.find(key) else { continue };
            let stream = &mut self.streams[slot];
            stream.to_send = false;
            stream.credited = stream.delivered;
            stream.credited_at = now;
            let credit = Credit { stream: stream.id.into(), delivered: stream.delivered };
            // The last credit of a stream goes on the control stream at once.
            if limit.is_none() || stream.ended && stream.delivered == stream.received {
                stream.confirmed = stream.delivered;
                Control::Credit(credit).encode(&mut self.connections[at].control_pending);
                self.remove_if_done(slot);
                continue;
            }
            credits.push(credit);
            if !std::mem::replace(&mut stream.to_repeat, true) {
                self.to_repeat.push(key);
                self.repeat_at.get_or_insert(now + REPEAT);
            }
        }
        while !credits.is_empty() {
            let bytes = frames::credits_datagram(&mut credits, limit.unwrap_or(0).max(64));
            let _ = self.connections[at].conn.datagrams().send(bytes.into(), true);
        }
        self.write_control(at);
    }

    /// Repeats credits on the control stream that no other followed.
    pub(super) fn repeat_credits(&mut self, now: Instant) {
        self.repeat_at = None;
        let Some(at) = self.active() else { return };
        let mut to_repeat = std::mem::take(&mut self.to_repeat);
        to_repeat.retain(|&key| {
            let Some((_, slot)) = self.find(key) else { return false };
            let stream = &mut self.streams[slot];
            let wait = stream.to_send || stream.credited_at + REPEAT > now;
            if !wait {
                stream.to_repeat = false;
                if stream.confirmed != stream.credited {
                    stream.confirmed = stream.credited;
                    let credit = Credit { stream: stream.id.into(), delivered: stream.credited };
                    Control::Credit(credit).encode(&mut self.connections[at].control_pending);
                    self.remove_if_done(slot);
                }
            }
            wait
        });
        self.to_repeat = to_repeat;
        if !self.to_repeat.is_empty() {
            self.repeat_at = Some(now + REPEAT);
        }
        self.write_control(at);
    }

    /// Writes pending bytes to the control stream.
    pub(super) fn write_control(&mut self, at: usize) {
        let connection = &mut self.connections[at];
        let Some(id) = connection.control_out else { return };
        while !connection.control_pending.is_empty() {
            match connection.conn.send_stream(id).write(&connection.control_pending) {
                Ok(written @ 1..) => drop(connection.control_pending.drain(..written)),
                _ => break,
            }
        }
    }

    /// Reads the peer's control stream.
    pub(super) fn read_control(&mut self, now: Instant, at: usize) {
        let Some(id) = self.connections[at].control_in else { return };
        let mut bytes = [0; 2048];
        loop {
            let (read, end) = take(&mut self.connections[at].conn, id, &mut bytes);
            if !matches!(end, End::Open) {
                self.malformed(now, at);
                return;
            }
            if read == 0 {
                return;
            }
            let mut buffer = std::mem::take(&mut self.connections[at].control_input);
            buffer.extend_from_slice(&bytes[..read]);
            let mut done = 0;
            if !self.connections[at].greeted {
                if !buffer.starts_with(&HELLO) {
                    if !HELLO.starts_with(&buffer) {
                        self.malformed(now, at);
                        return;
                    }
                    self.connections[at].control_input = buffer;
                    continue;
                }
                done = HELLO.len();
                self.greeted(now, at);
            }
            loop {
                match Control::parse(&buffer[done..]) {
                    Ok(Some((frame, length))) => {
                        done += length;
                        if self.current == Some(self.connections[at].handle) {
                            self.on_frame(at, frame);
                        }
                    }
                    Ok(None) => break,
                    Err(_) => {
                        self.malformed(now, at);
                        return;
                    }
                }
            }
            buffer.drain(..done);
            self.connections[at].control_input = buffer;
        }
    }
}

/// Reads from a QUIC stream, in order.
pub(super) fn take(conn: &mut Connection, id: StreamId, out: &mut [u8]) -> (usize, End) {
    let mut stream = conn.recv_stream(id);
    let Ok(mut chunks) = stream.read(true) else { return (0, End::Gone) };
    let mut read = 0;
    let end = loop {
        if read == out.len() {
            break End::Open;
        }
        match chunks.next(out.len() - read) {
            Ok(Some(chunk)) => {
                out[read..read + chunk.bytes.len()].copy_from_slice(&chunk.bytes);
                read += chunk.bytes.len();
            }
            Ok(None) => break End::Finished,
            Err(quinn_proto::ReadError::Blocked) => break End::Open,
            Err(quinn_proto::ReadError::Reset(_)) => break End::Gone,
        }
    };
    let _ = chunks.finalize();
    (read, end)
}
