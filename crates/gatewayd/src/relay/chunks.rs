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
    /// Streams that wait for the window, the longest waiting first. One that has ended stays until its turn.
    waiting: VecDeque<StreamKey>,
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

    /// Payload of the next chunk of a connection [bytes]; `None` if it has none, or its stream's window is full.
    fn next(&self, out: &Outbound) -> Option<u64> {
        out.next_chunk(self.payload).filter(|bytes| out.in_flight() + bytes <= self.stream_window)
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

    /// Moves the next chunk of the stream of [`Self::next_waiting`] to the transmit queue, and counts it as in flight. A stream
    /// with further chunks waits for its next turn. Returns the payload [bytes].
    pub fn take(&mut self, key: StreamKey, out: &mut Outbound) -> Option<u64> {
        out.waiting_for_window = false;
        let bytes = self.next(out)?;
        out.queue(bytes);
        self.window_mut(key.peer()).in_flight += bytes;
        self.wait(key, out);
        Some(bytes)
    }

    /// Counts bytes as not in flight any more.
    pub fn remove(&mut self, peer: PeerId, bytes: u64) {
        let window = self.window_mut(peer);
        window.in_flight = window.in_flight.saturating_sub(bytes);
    }

    /// Has a stream that has a chunk wait for the window of its peer, behind those that wait already.
    pub fn wait(&mut self, key: StreamKey, out: &mut Outbound) {
        if self.next(out).is_some() && !std::mem::replace(&mut out.waiting_for_window, true) {
            self.window_mut(key.peer()).waiting.push_back(key);
            self.waiting += 1;
        }
    }

    /// Takes the stream that has waited longest, if the window of the peer has room for a full chunk.
    pub fn next_waiting(&mut self, peer: PeerId) -> Option<StreamKey> {
        if !self.has_room(peer, self.payload) {
            return None;
        }
        let key = self.window_mut(peer).waiting.pop_front()?;
        self.waiting -= 1;
        Some(key)
    }

    /// Removes streams that have ended from the head of the list of a peer; `is_open` is true for others.
    pub fn forget_ended(&mut self, peer: PeerId, is_open: impl Fn(StreamKey) -> bool) {
        while self.window_mut(peer).waiting.front().is_some_and(|key| !is_open(*key)) {
            self.window_mut(peer).waiting.pop_front();
            self.waiting -= 1;
        }
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
    use std::collections::BTreeMap;

    use bentpipe_units::Duration;

    use super::*;

    /// Streams of peer 0 with much to send and a window of 28 chunks. The link delivers them in order.
    struct Streams {
        chunks: Chunks,
        out: BTreeMap<StreamKey, Outbound>,
        link: VecDeque<StreamKey>,
    }

    impl Streams {
        fn new(streams: u32, stream_window: u64) -> Self {
            let ready = |slot| {
                let mut out = Outbound::default();
                out.ring.put(&vec![7; 1_000_000]);
                out.took(1_000_000);
                out.processed(1_000_000);
                (StreamKey::new(PeerId(0), slot, 1), out)
            };
            let chunks = Chunks::new(1000, 50, 28_500, stream_window);
            Self { chunks, out: (0..streams).map(ready).collect(), link: VecDeque::new() }
        }

        fn enqueue(&mut self, key: StreamKey) {
            if let Some(out) = self.out.get_mut(&key) {
                self.chunks.wait(key, out);
            }
            while let Some(key) = self.chunks.next_waiting(PeerId(0)) {
                let chunk = self.out.get_mut(&key).and_then(|out| self.chunks.take(key, out));
                self.link.extend(chunk.map(|_| key));
            }
        }

        /// Delivers the next chunk. Returns its stream.
        fn deliver(&mut self) -> StreamKey {
            let key = self.link.pop_front().expect("a chunk on the link");
            let out = self.out.get_mut(&key).expect("its stream");
            out.pay(1000);
            out.wrote(1000);
            let bytes = out.delivered(1000);
            self.chunks.remove(PeerId(0), bytes);
            self.enqueue(key);
            key
        }

        fn keys(&self) -> Vec<StreamKey> {
            self.out.keys().copied().collect()
        }
    }

    /// Seven streams, of which three fill the window at first.
    #[test]
    fn streams_that_wait_for_the_window_share_it_equally() {
        let mut streams = Streams::new(7, 10_000);
        let keys = streams.keys();
        keys.iter().for_each(|key| streams.enqueue(*key));
        let mut delivered = BTreeMap::new();
        for _ in 0..700 {
            *delivered.entry(streams.deliver()).or_insert(0) += 1;
            // More data arrive.
            keys.iter().for_each(|key| streams.enqueue(*key));
            let waiting = streams.chunks.waiting(PeerId(0));
            assert!(waiting <= 7, "{waiting} of 7 streams wait");
            assert!(streams.link.len() == 28, "{} chunks in flight", streams.link.len());
        }
        assert!(keys.iter().all(|key| (90..=110).contains(&delivered[key])), "{delivered:?}");
    }

    /// A stream alone is limited by its window and waits for no other.
    #[test]
    fn a_stream_whose_window_is_full_does_not_wait_for_that_of_its_peer() {
        let mut streams = Streams::new(1, 10_000);
        let key = streams.keys()[0];
        streams.enqueue(key);
        assert_eq!((streams.link.len(), streams.chunks.waiting(PeerId(0))), (10, 0));
        assert!(streams.chunks.is_stream_limited(&streams.out[&key]) && !streams.chunks.is_waiting());
        streams.deliver();
        assert_eq!(streams.link.len(), 10);
    }

    /// The first stream fills the window, the second ends while it waits.
    #[test]
    fn the_room_of_a_stream_that_ends_goes_to_those_that_wait() {
        let mut streams = Streams::new(3, 28_500);
        let keys = streams.keys();
        keys.iter().for_each(|key| streams.enqueue(*key));
        assert_eq!((streams.link.len(), streams.chunks.waiting(PeerId(0))), (28, 2));
        for key in &keys[..2] {
            let out = streams.out.remove(key).expect("a stream");
            streams.chunks.remove(PeerId(0), out.in_flight());
        }
        streams.link.clear();
        streams.enqueue(keys[0]);
        assert_eq!(streams.link, [keys[2]; 28]);
        assert!(!streams.chunks.is_waiting());
    }

    /// The window is full, and the peer is lost: its streams end one by one.
    #[test]
    fn no_stream_of_a_lost_peer_waits() {
        let mut streams = Streams::new(5, 28_500);
        let keys = streams.keys();
        keys.iter().for_each(|key| streams.enqueue(*key));
        assert_eq!(streams.chunks.waiting(PeerId(0)), 4);
        for (ended, waiting) in [(2, 4), (1, 2), (0, 2), (4, 2), (3, 0)] {
            streams.out.remove(&keys[ended]);
            streams.chunks.forget_ended(PeerId(0), |key| streams.out.contains_key(&key));
            assert_eq!(streams.chunks.waiting(PeerId(0)), waiting, "stream {ended} has ended");
        }
        assert!(!streams.chunks.is_waiting());
    }

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
