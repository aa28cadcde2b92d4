//! Streams: operations of the host, and what the peer does.

use super::*;

impl Spacelink {
    /// Maximum number of bytes of a stream in one UDP datagram, however large QUIC's numbers are: without flags, connection ID, packet number
    /// and tag; frame type, stream ID, offset and length.
    #[must_use]
    pub fn max_chunk(&self) -> usize {
        self.setup.max_chunk()
    }

    /// Opens a stream for a connection; `None` while the peer is not connected or if there are too many streams.
    pub fn open(&mut self, header: &Open) -> Option<StreamKey> {
        let at = self.active()?;
        if self.streams.len() >= self.setup.streams as usize {
            self.stats.refused_streams += 1;
            return None;
        }
        let Some(id) = self.connections[at].conn.streams().open(Dir::Bi) else {
            self.stats.refused_streams += 1;
            return None;
        };
        let mut bytes = Vec::with_capacity(frames::MAX_OPEN);
        header.encode(&mut bytes);
        // A new stream's window is far larger. A stream for which the connection's window has no room is useless.
        if self.connections[at].conn.send_stream(id).write(&bytes) != Ok(bytes.len()) {
            self.reset_stream(at, id);
            self.stats.refused_streams += 1;
            return None;
        }
        Some(self.insert(id, None))
    }

    /// Writes `data`. Returns how much QUIC took: less if the peer's window or this end's is full; then [`Event::Writable`] says
    /// when to continue.
    pub fn write(&mut self, key: StreamKey, data: &[u8]) -> usize {
        let Some((at, slot)) = self.find(key) else { return 0 };
        let id = self.streams[slot].id;
        let mut written = 0;
        while written < data.len() {
            match self.connections[at].conn.send_stream(id).write(&data[written..]) {
                Ok(0) => break,
                Ok(more) => written += more,
                Err(WriteError::Stopped(_)) => {
                    self.on_reset(slot);
                    break;
                }
                Err(_) => break,
            }
        }
        if let Some(stream) = self.streams.get_mut(slot) {
            stream.written += written as u64;
        }
        self.stats.written_bytes += written as u64;
        written
    }

    /// Finishes the stream: nothing more will be written (half-close).
    pub fn finish(&mut self, key: StreamKey) {
        if let Some((at, slot)) = self.find(key) {
            // Fails if it is finished already, or if the peer's reset has not reached the host yet.
            let _ = self.connections[at].conn.send_stream(self.streams[slot].id).finish();
        }
    }

    /// Resets the stream in both directions; undelivered data is lost. The key is invalid, and no later event names it.
    pub fn reset(&mut self, key: StreamKey) {
        if let Some((at, slot)) = self.find(key) {
            let id = self.streams[slot].id;
            self.reset_stream(at, id);
            self.remove(slot);
        }
        self.events.retain(|event| event.stream() != Some(key));
    }

    /// Reads into `out`. Returns the number of bytes read: less than `out` holds if no more has arrived. Later
    /// [`Event::Readable`], [`Event::Finished`], [`Event::Reset`] or [`Event::Lost`] follows.
    pub fn read(&mut self, key: StreamKey, out: &mut [u8]) -> usize {
        let Some((at, slot)) = self.find(key) else { return 0 };
        if self.streams[slot].ended || self.streams[slot].header.is_some() {
            return 0;
        }
        let mut read = 0;
        while read < out.len() {
            let more = self.streams[slot].inbox.read(&mut out[read..]);
            read += more;
            if more == 0 && (!self.collect(at, slot) || self.streams[slot].inbox.is_empty()) {
                break;
            }
        }
        self.stats.read_bytes += read as u64;
        let Some(stream) = self.streams.get_mut(slot).filter(|stream| stream.serial == key.serial) else {
            return read;
        };
        stream.readable_reported = false;
        stream.received += read as u64;
        if stream.complete && stream.inbox.is_empty() {
            stream.ended = true;
            self.events.push_back(Event::Finished(key));
            self.list(key);
            self.remove_if_done(slot);
        }
        read
    }

    /// Takes arrived data from QUIC once everything before was read; until then QUIC holds it, and the peer has to wait.
    /// Returns false if the stream is gone.
    pub(super) fn collect(&mut self, at: usize, slot: usize) -> bool {
        let stream = &mut self.streams[slot];
        if stream.complete || !stream.inbox.is_empty() {
            return true;
        }
        let before = stream.inbox.scattered();
        let mut of = self.connections[at].conn.recv_stream(stream.id);
        let Ok(mut chunks) = of.read(false) else {
            self.on_reset(slot);
            return false;
        };
        let reset = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => stream.inbox.insert(chunk.offset, chunk.bytes),
                Ok(None) => {
                    stream.complete = true;
                    break false;
                }
                Err(quinn_proto::ReadError::Blocked) => break false,
                Err(quinn_proto::ReadError::Reset(_)) => break true,
            }
        };
        let _ = chunks.finalize();
        self.scattered = self.scattered + stream.inbox.scattered() - before;
        if reset || self.scattered > 2 * self.setup.window {
            // The peer does not send what is missing.
            self.on_reset(slot);
            return false;
        }
        true
    }

    /// Accepts the streams that the peer opened.
    pub(super) fn accept(&mut self, at: usize) {
        if self.current != Some(self.connections[at].handle) {
            return;
        }
        while let Some(id) = self.connections[at].conn.streams().accept(Dir::Bi) {
            self.taken = id.index() + 1;
            let early_resets = self.early_resets.iter().position(|other| *other == id);
            if let Some(which) = early_resets {
                self.early_resets.swap_remove(which);
                self.reset_stream(at, id);
                continue;
            }
            if self.streams.len() >= self.setup.streams as usize {
                self.reset_stream(at, id);
                self.stats.refused_streams += 1;
                continue;
            }
            let key = self.insert(id, Some(Vec::with_capacity(frames::MAX_OPEN)));
            self.readable(at, key.slot());
        }
        self.allow_streams(at);
    }

    /// Allows the peer twice as many streams once more than half of those allowed are open.
    fn allow_streams(&mut self, at: usize) {
        // No more than half as many are ever open, so that the limit ends there.
        let most = self.setup.streams.saturating_mul(2);
        if 2 * self.streams.len() > self.allowed_streams as usize {
            self.allowed_streams = self.allowed_streams.saturating_mul(2).min(most);
            let allowed = VarInt::from_u32(self.allowed_streams);
            self.connections[at].conn.set_max_concurrent_streams(Dir::Bi, allowed);
        }
    }

    /// Handles arrived data of a stream.
    pub(super) fn readable(&mut self, at: usize, slot: usize) {
        let key = self.key(slot);
        if let Ok(Some(_)) = self.connections[at].conn.recv_stream(self.streams[slot].id).received_reset() {
            self.on_reset(slot);
            return;
        }
        if !self.collect(at, slot) {
            return;
        }
        let stream = &mut self.streams[slot];
        if let Some(header) = &mut stream.header {
            let mut bytes = [0; frames::MAX_OPEN];
            loop {
                let missing = match header.first().map(|&first| Open::length(first)) {
                    None => 1,
                    Some(Ok(length)) => length - header.len(),
                    Some(Err(_)) => {
                        self.stats.malformed += 1;
                        self.on_reset(slot);
                        return;
                    }
                };
                if missing == 0 {
                    break;
                }
                let read = stream.inbox.read(&mut bytes[..missing]);
                header.extend_from_slice(&bytes[..read]);
                if read == 0 {
                    if stream.complete {
                        self.stats.malformed += 1;
                        self.on_reset(slot);
                    }
                    return;
                }
            }
            let Ok(Some((open, _))) = Open::parse(header) else { return };
            stream.header = None;
            self.events.push_back(Event::Opened { stream: key, header: open });
        }
        if stream.inbox.is_empty() && !stream.complete {
            return;
        }
        if !std::mem::replace(&mut stream.readable_reported, true) {
            self.events.push_back(Event::Readable(key));
        }
    }

    pub(super) fn find(&self, key: StreamKey) -> Option<(usize, usize)> {
        let stream = self.streams.get(key.slot())?;
        (stream.serial == key.serial && key.peer == self.number).then_some(())?;
        Some((self.active()?, key.slot()))
    }

    pub(super) fn key(&self, slot: usize) -> StreamKey {
        StreamKey::new(self.number, slot as u32, self.streams[slot].serial)
    }

    pub(super) fn insert(&mut self, id: StreamId, header: Option<Vec<u8>>) -> StreamKey {
        self.serial = self.serial.wrapping_add(1);
        let slot = self.streams.insert(Stream {
            serial: self.serial,
            id,
            header,
            readable_reported: false,
            inbox: Inbox::default(),
            complete: false,
            ended: false,
            all_acked: false,
            written: 0,
            delivered_by_peer: 0,
            received: 0,
            delivered: 0,
            credited: 0,
            confirmed: 0,
            credited_at: self.now,
            to_send: false,
            to_repeat: false,
        });
        self.slots.insert(id, slot);
        self.stats.opened += 1;
        self.key(slot)
    }

    pub(super) fn remove(&mut self, slot: usize) {
        let stream = self.streams.remove(slot);
        self.scattered -= stream.inbox.scattered();
        self.slots.remove(&stream.id);
    }

    /// Resets a QUIC stream in both directions, as far as they are open, and says so on the control stream: for QUIC a stream
    /// is over once all bytes have reached the peer, but not for the process that has to deliver them.
    pub(super) fn reset_stream(&mut self, at: usize, id: StreamId) {
        let connection = &mut self.connections[at];
        let _ = connection.conn.send_stream(id).reset(RESET);
        let _ = connection.conn.recv_stream(id).stop(RESET);
        Control::Reset(id.into()).encode(&mut connection.control_pending);
        self.write_control(at);
    }

    /// The peer has reset a stream, one that is open or one that has not arrived yet.
    pub(super) fn reset_by_peer(&mut self, at: usize, id: StreamId) {
        if let Some(&slot) = self.slots.get(&id) {
            self.on_reset(slot);
        } else if id.dir() == Dir::Bi
            && id.initiator() != self.connections[at].conn.side()
            && id.index() >= self.taken
            && self.early_resets.len() < MOST_EARLY_RESETS
        {
            self.early_resets.push(id);
        }
    }

    /// The peer has reset a stream.
    pub(super) fn on_reset(&mut self, slot: usize) {
        let key = self.key(slot);
        if let Some(at) = self.active() {
            self.reset_stream(at, self.streams[slot].id);
        }
        if self.streams[slot].header.is_none() {
            self.events.push_back(Event::Reset(key));
        }
        self.remove(slot);
    }

    /// Removes a stream that is done.
    pub(super) fn remove_if_done(&mut self, slot: usize) {
        let stream = &self.streams[slot];
        let all = stream.delivered_by_peer == stream.written && stream.confirmed == stream.received;
        if stream.ended && stream.all_acked && all {
            self.events.push_back(Event::Closed(self.key(slot)));
            self.remove(slot);
        }
    }
}
