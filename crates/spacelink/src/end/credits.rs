//! Credits and the control stream: see the spacelink's page.

use super::*;

impl Spacelink {
    /// Tells the far end that `bytes` more of what was read have been delivered.
    pub fn delivered(&mut self, key: StreamKey, bytes: u64) {
        let Some((_, slot)) = self.find(key) else { return };
        let stream = &mut self.streams[slot];
        stream.delivered = (stream.delivered + bytes).min(stream.received);
        self.credit_bytes += bytes;
        self.list(key);
    }

    /// A credit has to be told.
    pub(super) fn list(&mut self, key: StreamKey) {
        let stream = &mut self.streams[key.slot()];
        if stream.listed[0] || stream.settled == stream.delivered {
            return;
        }
        stream.listed[0] = true;
        self.credits.push(key);
        let at = self.now + self.credit_delay();
        self.credit_at.get_or_insert(at);
    }

    /// How long a credit may wait.
    fn credit_delay(&self) -> Duration {
        let trip = self.active().map_or(self.round_trip, |at| self.links[at].conn.rtt());
        (trip / CREDIT_PART).max(CREDIT_LEAST).min(self.ack_delay)
    }

    /// Tells the peer that this end takes no further connections, or again some. It forgets when the connection to it goes.
    pub fn tell_full(&mut self, full: bool) {
        let Some(at) = self.active() else { return };
        Control::Full(full).encode(&mut self.links[at].buffers[0]);
        self.write_control(at);
    }

    /// The peer says something on the control stream.
    fn told(&mut self, at: usize, frame: Control) {
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

    /// The far end has delivered.
    pub(super) fn credited(&mut self, credit: Credit) {
        let id = VarInt::from_u64(credit.stream).map(StreamId::from);
        let Some(&slot) = id.ok().and_then(|id| self.slots.get(&id)) else { return };
        let key = self.key(slot);
        let stream = &mut self.streams[slot];
        if credit.delivered > stream.written {
            self.stats.malformed += 1;
            return;
        }
        if credit.delivered > stream.acknowledged {
            let bytes = credit.delivered - std::mem::replace(&mut stream.acknowledged, credit.delivered);
            self.events.push_back(Event::Acknowledged { stream: key, bytes });
            self.finish_off(slot);
        }
    }

    /// Tells the far end what was delivered.
    pub(super) fn tell_credits(&mut self, now: Instant) {
        (self.credit_bytes, self.credit_at) = (0, None);
        let listed = std::mem::take(&mut self.credits);
        let Some(at) = self.active() else { return };
        let limit = self.links[at].conn.datagrams().max_size();
        let mut credits = Vec::with_capacity(listed.len());
        for key in listed {
            let Some((_, slot)) = self.find(key) else { continue };
            let stream = &mut self.streams[slot];
            stream.listed[0] = false;
            stream.credited = stream.delivered;
            stream.credited_at = now;
            let credit = Credit { stream: stream.id.into(), delivered: stream.delivered };
            // The last credit of all is told for certain, and at once.
            if limit.is_none() || stream.ended && stream.delivered == stream.received {
                stream.settled = stream.delivered;
                Control::Credit(credit).encode(&mut self.links[at].buffers[0]);
                self.finish_off(slot);
                continue;
            }
            credits.push(credit);
            if !std::mem::replace(&mut stream.listed[1], true) {
                self.tail.push(key);
                self.settle_at.get_or_insert(now + SETTLE);
            }
        }
        while !credits.is_empty() {
            let bytes = frames::credits_datagram(&mut credits, limit.unwrap_or(0).max(64));
            let _ = self.links[at].conn.datagrams().send(bytes.into(), true);
        }
        self.write_control(at);
    }

    /// Repeats on the control stream the credits that no other followed.
    pub(super) fn settle(&mut self, now: Instant) {
        self.settle_at = None;
        let Some(at) = self.active() else { return };
        let mut tail = std::mem::take(&mut self.tail);
        tail.retain(|&key| {
            let Some((_, slot)) = self.find(key) else { return false };
            let stream = &mut self.streams[slot];
            let wait = stream.listed[0] || stream.credited_at + SETTLE > now;
            if !wait {
                stream.listed[1] = false;
                if stream.settled != stream.credited {
                    stream.settled = stream.credited;
                    let credit = Credit { stream: stream.id.into(), delivered: stream.credited };
                    Control::Credit(credit).encode(&mut self.links[at].buffers[0]);
                    self.finish_off(slot);
                }
            }
            wait
        });
        self.tail = tail;
        if !self.tail.is_empty() {
            self.settle_at = Some(now + SETTLE);
        }
        self.write_control(at);
    }

    /// Writes what waits for the control stream.
    pub(super) fn write_control(&mut self, at: usize) {
        let link = &mut self.links[at];
        let Some(id) = link.control[0] else { return };
        while !link.buffers[0].is_empty() {
            match link.conn.send_stream(id).write(&link.buffers[0]) {
                Ok(written @ 1..) => drop(link.buffers[0].drain(..written)),
                _ => break,
            }
        }
    }

    /// Reads the peer's control stream.
    pub(super) fn read_control(&mut self, now: Instant, at: usize) {
        let Some(id) = self.links[at].control[1] else { return };
        let mut bytes = [0; 2048];
        loop {
            let (read, end) = take(&mut self.links[at].conn, id, &mut bytes);
            if !matches!(end, End::Open) {
                self.malformed(now, at);
                return;
            }
            if read == 0 {
                return;
            }
            let mut buffer = std::mem::take(&mut self.links[at].buffers[1]);
            buffer.extend_from_slice(&bytes[..read]);
            let mut done = 0;
            if !self.links[at].greeted {
                if !buffer.starts_with(&HELLO) {
                    if !HELLO.starts_with(&buffer) {
                        self.malformed(now, at);
                        return;
                    }
                    self.links[at].buffers[1] = buffer;
                    continue;
                }
                done = HELLO.len();
                self.greeted(now, at);
            }
            loop {
                match Control::parse(&buffer[done..]) {
                    Ok(Some((frame, length))) => {
                        done += length;
                        if self.current == Some(self.links[at].handle) {
                            self.told(at, frame);
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
            self.links[at].buffers[1] = buffer;
        }
    }
}

/// Reads in order from a QUIC stream.
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
