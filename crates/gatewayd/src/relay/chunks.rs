//! Chunks: how relayed bytes are cut for the transmit queue, and how many may be in flight.

use std::collections::VecDeque;

use bentpipe_spacelink::{PeerId, StreamKey};
use bentpipe_units::Instant;

use super::outbound::Outbound;

/// A chunk that the transmit queue dropped.
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    /// Time of the next attempt.
    pub at: Instant,
    /// Its stream.
    pub key: StreamKey,
    /// Its payload [bytes].
    pub bytes: u64,
}

/// The send window of the spacelink to a peer, counted in chunks that are queued or under way.
#[derive(Clone, Debug, Default)]
struct SendWindow {
    in_flight: u64,
    /// Streams that wait for the window.
    waiting: Vec<StreamKey>,
}

/// The send windows of all peers.
pub struct Chunks {
    /// Payload of a full chunk [bytes].
    pub payload: u64,
    /// Header of a chunk [bytes].
    pub header: u64,
    /// Maximum number of bytes in flight to a peer.
    pub window: u64,
    /// Maximum number of bytes in flight of one stream.
    pub stream_window: u64,
    /// By [`PeerId`].
    windows: Vec<SendWindow>,
    /// Streams that wait for the window of their peer.
    waiting: usize,
    /// Dropped chunks, by the time of the next attempt.
    retries: VecDeque<Retry>,
}

/// Reason for a connection to send no chunk now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// It has none, or its stream's window is full.
    Stream,
    /// The window of all streams is full.
    Window,
}

impl Chunks {
    /// Chunks of `payload` and `header` bytes, within the two windows [bytes].
    pub fn new(payload: u64, header: u64, window: u64, stream_window: u64) -> Self {
        Self {
            payload,
            header,
            window,
            stream_window,
            windows: Vec::new(),
            waiting: 0,
            retries: VecDeque::new(),
        }
    }

    fn window_mut(&mut self, peer: PeerId) -> &mut SendWindow {
        if self.windows.len() <= peer.index() {
            self.windows.resize_with(peer.index() + 1, SendWindow::default);
        }
        &mut self.windows[peer.index()]
    }

    /// Payload of the next chunk of a connection to a peer [bytes].
    pub fn next(&self, out: &Outbound, peer: PeerId) -> Result<u64, Blocked> {
        match out.next_chunk(self.payload) {
            Some(bytes) if out.in_flight() + bytes > self.stream_window => Err(Blocked::Stream),
            Some(bytes) if !self.has_room(peer, bytes) => Err(Blocked::Window),
            Some(bytes) => Ok(bytes),
            None => Err(Blocked::Stream),
        }
    }

    /// True if a connection has a chunk that its stream's window holds back.
    #[must_use]
    pub fn is_stream_limited(&self, out: &Outbound) -> bool {
        out.next_chunk(self.payload).is_some_and(|bytes| out.in_flight() + bytes > self.stream_window)
    }

    /// True if the window of all streams to a peer has room for `bytes` more.
    #[must_use]
    pub fn has_room(&self, peer: PeerId, bytes: u64) -> bool {
        self.windows.get(peer.index()).map_or(0, |window| window.in_flight) + bytes <= self.window
    }

    /// Counts a chunk as in flight.
    pub fn add(&mut self, peer: PeerId, bytes: u64) {
        self.window_mut(peer).in_flight += bytes;
    }

    /// Counts bytes as not in flight any more.
    pub fn remove(&mut self, peer: PeerId, bytes: u64) {
        let window = self.window_mut(peer);
        window.in_flight = window.in_flight.saturating_sub(bytes);
    }

    /// Has a stream wait for the window of all streams to its peer.
    pub fn wait(&mut self, key: StreamKey) {
        self.window_mut(key.peer()).waiting.push(key);
        self.waiting += 1;
    }

    /// True if streams wait for the window of their peer.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// Number of streams that wait for the window of a peer.
    #[must_use]
    pub fn waiting(&self, peer: PeerId) -> usize {
        self.windows.get(peer.index()).map_or(0, |window| window.waiting.len())
    }

    /// Takes the stream to a peer that began to wait last.
    pub fn pop_waiting(&mut self, peer: PeerId) -> Option<StreamKey> {
        let key = self.window_mut(peer).waiting.pop()?;
        self.waiting -= 1;
        Some(key)
    }

    /// Has a dropped chunk sent again at its time, after those that are due no later.
    pub fn retry(&mut self, retry: Retry) {
        // Round trips to the peers differ.
        let place = self.retries.partition_point(|other| other.at <= retry.at);
        self.retries.insert(place, retry);
    }

    /// Time of the first retry.
    #[must_use]
    pub fn next_retry(&self) -> Option<Instant> {
        self.retries.front().map(|retry| retry.at)
    }

    /// Takes the first retry if it is due.
    pub fn pop_retry(&mut self, now: Instant) -> Option<Retry> {
        let due = self.next_retry().is_some_and(|at| at <= now);
        due.then(|| self.retries.pop_front()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_units::Duration;

    use super::*;

    /// The chunk for the near peer is dropped later and is due earlier. Chunks that are due at the same time keep their order.
    #[test]
    fn the_retry_that_is_due_first_comes_first() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let mut chunks = Chunks::new(1000, 50, 10_000, 10_000);
        for (peer, ms, bytes) in [(0, 600, 1), (1, 30, 2), (0, 600, 3), (2, 300, 4)] {
            chunks.retry(Retry { at: at(ms), key: StreamKey::new(PeerId(peer), 0, 1), bytes });
        }
        assert_eq!((chunks.next_retry(), chunks.pop_retry(at(29)).is_none()), (Some(at(30)), true));
        let found: Vec<_> =
            std::iter::from_fn(|| chunks.pop_retry(at(600)).map(|retry| retry.bytes)).collect();
        assert_eq!(found, [2, 4, 1, 3]);
    }
}
