//! Streams and unreliable datagrams.

use bytes::Bytes;
use quinn_proto::Dir;

use super::{Chunk, Connection};
use crate::config::Fill;
use crate::priority::Priority;
use crate::stream::Stream;

/// Length of the label of an unreliable datagram [bytes].
const LABEL: usize = 8;

/// Payload that is written at a time.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

impl Connection {
    /// Opens a stream; `None` while the peer allows no more, or the handshake is not complete.
    pub fn open(&mut self) -> Option<usize> {
        let (_, quic) = self.quic.as_mut()?;
        let id = quic.streams().open(Dir::Bi)?;
        self.streams.push(Stream::new(id));
        Some(self.streams.len() - 1)
    }

    /// Streams that either end has opened.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Writes `bytes` to a stream.
    pub fn write(&mut self, stream: usize, bytes: u64) {
        if let (Some((_, quic)), Some(stream)) = (&mut self.quic, self.streams.get_mut(stream)) {
            stream.backlog += bytes;
            write(quic, stream, self.fill);
        }
    }

    /// Writes these bytes to a stream on which [`Self::write`] has written none.
    pub fn write_bytes(&mut self, stream: usize, bytes: &[u8]) {
        if let (Some((_, quic)), Some(stream)) = (&mut self.quic, self.streams.get_mut(stream)) {
            stream.pending = [&stream.pending, bytes].concat().into();
            write(quic, stream, self.fill);
        }
    }

    /// Takes what has arrived since the last call, if the host has [content](Host::with_content).
    pub fn take_chunks(&mut self) -> Vec<Chunk> {
        std::mem::take(&mut self.chunks)
    }

    /// Sets the priority of what is written to a stream from now on (RFC 9218). Streams without one are served in turn, after
    /// all with one but those of urgency 7 that are incremental, which share with them.
    pub fn prioritize(&mut self, stream: usize, priority: Priority) {
        if let (Some((_, quic)), Some(stream)) = (&mut self.quic, self.streams.get(stream)) {
            // It fails only if the stream is over.
            let _ = quic.send_stream(stream.id).set_priority(priority.rank(stream.id));
        }
    }

    /// Ends a stream in this direction after what has been written.
    pub fn finish(&mut self, stream: usize) {
        if let (Some((_, quic)), Some(stream)) = (&mut self.quic, self.streams.get_mut(stream)) {
            stream.is_closing = true;
            write(quic, stream, self.fill);
        }
    }

    /// Bytes of a stream that have arrived in order and were not read.
    #[must_use]
    pub fn readable(&self, stream: usize) -> u64 {
        self.streams.get(stream).map_or(0, Stream::readable)
    }

    /// Reads bytes of a stream, at most as many as are [readable](Self::readable).
    pub fn read(&mut self, stream: usize, bytes: u64) {
        if let Some(stream) = self.streams.get_mut(stream) {
            stream.read += bytes.min(stream.readable());
        }
    }

    /// True if the peer has ended a stream and all of it has arrived.
    #[must_use]
    pub fn peer_finished(&self, stream: usize) -> bool {
        self.streams.get(stream).is_some_and(|stream| stream.has_ended)
    }

    /// Keeps the connection open when all streams are complete, or lets its client close it then.
    pub fn keep_open(&mut self, keeps_open: bool) {
        self.keeps_open = keeps_open;
    }

    // ----- datagrams -----------------------------------------------------------------------------------------

    /// Sends an unreliable datagram of `bytes`, at least 8, with a label (RFC 9221). Returns false if it does not fit into a
    /// packet or the buffer, or if the handshake is not complete.
    pub fn send_datagram(&mut self, bytes: usize, label: u64) -> bool {
        let Some((_, quic)) = &mut self.quic else { return false };
        let mut data = vec![0; bytes.max(LABEL)];
        data[..LABEL].copy_from_slice(&label.to_be_bytes());
        quic.datagrams().send(data.into(), false).is_ok()
    }

    /// Takes the unreliable datagrams that have arrived: label and length [bytes].
    pub fn take_datagrams(&mut self) -> std::vec::Drain<'_, (u64, u64)> {
        self.arrived.drain(..)
    }
}

/// Takes what has arrived on a stream, and its content into `kept`.
pub(super) fn read(
    quic: &mut quinn_proto::Connection,
    streams: &mut [Stream],
    id: quinn_proto::StreamId,
    mut kept: Option<&mut Vec<Chunk>>,
) {
    let Some(at) = streams.iter().position(|stream| stream.id == id) else { return };
    let stream = &mut streams[at];
    let mut receive = quic.recv_stream(id);
    let Ok(mut chunks) = receive.read(false) else { return };
    loop {
        match chunks.next(usize::MAX) {
            Ok(Some(chunk)) => {
                stream.receive(chunk.offset, chunk.bytes.len() as u64);
                if let Some(kept) = &mut kept {
                    kept.push(Chunk { stream: at, at: chunk.offset, bytes: chunk.bytes });
                }
            }
            Ok(None) => {
                stream.has_ended = true;
                break;
            }
            Err(_) => break,
        }
    }
    // Flow control is extended with the next packet in any case.
    let _ = chunks.finalize();
}

/// Gives quinn what it takes of a stream's backlog.
pub(super) fn write(quic: &mut quinn_proto::Connection, stream: &mut Stream, fill: Option<Fill>) {
    let mut send = quic.send_stream(stream.id);
    loop {
        if stream.pending.is_empty() {
            let len = stream.backlog.min(ZEROS.len() as u64) as usize;
            if len == 0 {
                break;
            }
            stream.pending = match fill {
                None => Bytes::from_static(&ZEROS[..len]),
                Some(fill) => {
                    let mut content = vec![0; len];
                    fill(stream.filled, &mut content);
                    content.into()
                }
            };
            stream.filled += len as u64;
            stream.backlog -= len as u64;
        }
        // Blocked; or stopped, and then nothing of it is wanted any more.
        if send.write_chunks(std::slice::from_mut(&mut stream.pending)).is_err() {
            return;
        }
    }
    if stream.is_closing && !std::mem::replace(&mut stream.is_finished, true) {
        // It fails only if the peer has stopped the stream.
        let _ = send.finish();
    }
}
