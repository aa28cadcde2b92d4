//! Bytes of one stream at one end.

use std::collections::VecDeque;

use bytes::Bytes;

/// One bidirectional stream at one end.
#[derive(Clone, Debug)]
pub struct Stream {
    pub id: quinn_proto::StreamId,
    /// Bytes written by the application beyond those of `pending`.
    pub backlog: u64,
    /// Bytes that quinn takes next, and the position of those after them.
    pub pending: Bytes,
    pub filled: u64,
    /// The application writes no more; quinn knows.
    pub is_closing: bool,
    pub is_finished: bool,
    /// End of what has been sent.
    sent: u64,
    /// The peer has acknowledged all.
    pub is_acked: bool,
    /// Ranges received beyond the first gap, in ascending order.
    ahead: VecDeque<(u64, u64)>,
    /// Bytes received in order, and as many of them as the application has read.
    received: u64,
    pub read: u64,
    /// Everything has arrived.
    pub has_ended: bool,
}

impl Stream {
    pub fn new(id: quinn_proto::StreamId) -> Self {
        Self {
            id,
            backlog: 0,
            pending: Bytes::new(),
            filled: 0,
            is_closing: false,
            is_finished: false,
            sent: 0,
            is_acked: false,
            ahead: VecDeque::new(),
            received: 0,
            read: 0,
            has_ended: false,
        }
    }

    /// Takes note of bytes that are sent; returns how many of them were not sent before.
    pub fn send(&mut self, offset: u64, len: u64) -> u64 {
        let before = self.sent;
        self.sent = before.max(offset + len);
        self.sent - before
    }

    /// True if quinn has bytes that were not sent.
    pub fn has_unsent(&self) -> bool {
        self.filled - self.pending.len() as u64 > self.sent
    }

    /// True if quinn does not take all that was written.
    pub fn has_backlog(&self) -> bool {
        self.backlog > 0 || !self.pending.is_empty()
    }

    /// Bytes in order that the application has not read.
    pub fn readable(&self) -> u64 {
        self.received - self.read
    }

    /// Takes received bytes, which quinn gives once each, in any order.
    pub fn receive(&mut self, start: u64, len: u64) {
        let end = start + len;
        if start > self.received {
            let at = self.ahead.partition_point(|range| range.1 <= start);
            match (at.checked_sub(1).map(|before| self.ahead[before]), self.ahead.get(at).copied()) {
                (Some((first, last)), Some((_, after))) if last == start && self.ahead[at].0 == end => {
                    self.ahead[at - 1] = (first, after);
                    self.ahead.remove(at);
                }
                (Some((first, last)), _) if last == start => self.ahead[at - 1] = (first, end),
                (_, Some((next, after))) if next == end => self.ahead[at] = (start, after),
                _ => self.ahead.insert(at, (start, end)),
            }
            return;
        }
        self.received = self.received.max(end);
        while let Some((_, end)) = self.ahead.front().copied().filter(|range| range.0 <= self.received) {
            self.received = self.received.max(end);
            self.ahead.pop_front();
        }
    }

    /// True if both directions are complete.
    pub fn is_over(&self) -> bool {
        self.is_acked && self.has_ended && self.readable() == 0
    }
}

#[cfg(test)]
mod tests {
    use quinn_proto::{Dir, Side, StreamId};

    use super::*;

    #[test]
    fn bytes_become_readable_in_order() {
        let mut stream = Stream::new(StreamId::new(Side::Client, Dir::Bi, 0));
        for (start, len, readable) in
            [(10, 5, 0), (20, 5, 0), (15, 5, 0), (30, 5, 0), (0, 5, 5), (5, 5, 25), (25, 5, 35)]
        {
            stream.receive(start, len);
            assert_eq!(stream.readable(), readable, "after {start}");
        }
        assert!(stream.ahead.is_empty());
    }
}
