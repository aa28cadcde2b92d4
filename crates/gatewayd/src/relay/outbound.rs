//! One direction of a connection: bytes from a socket on their way to the peer.
//!
//! ```text
//! socket ─▶ working ─▶ ready ─▶ queued ─▶ paid ─▶ stream ─▶ delivered by the peer
//!           in the     │        in the     └ released by the regulator, not taken by the stream yet
//!           PEP        │        transmit queue
//!                      └ lost ◀─┘ dropped there: sent again after a round trip
//! ```
//!
//! One ring holds the bytes until the stream takes them. Packets of the PEP and of the transmit queue stand for numbers of
//! bytes, whichever they are.

use crate::relay::ring::Ring;

/// Bytes from a socket to a stream.
#[derive(Debug, Default)]
pub struct Outbound {
    /// Bytes that the stream has not taken.
    pub ring: Ring,
    working: u64,
    ready: u64,
    queued: u64,
    lost: u64,
    paid: u64,
    /// Bytes given to the stream so far.
    sent: u64,
    delivered: u64,
    /// True while a chunk waits for the window of all streams to the peer.
    pub waiting_for_window: bool,
    /// True once the socket has nothing more to read.
    pub ended: bool,
    /// True once the stream is finished.
    pub finished: bool,
}

impl Outbound {
    /// No bytes yet; `ring` is empty.
    #[must_use]
    pub fn new(ring: Ring) -> Self {
        Self { ring, ..Self::default() }
    }

    /// Bytes were read into the ring and enter the PEP.
    pub fn took(&mut self, bytes: u64) {
        self.working += bytes;
    }

    /// The PEP has processed bytes.
    pub fn processed(&mut self, bytes: u64) {
        let bytes = bytes.min(self.working);
        self.working -= bytes;
        self.ready += bytes;
    }

    /// Length of the next chunk for the transmit queue, at most `most` bytes. A shorter one waits while another is in the
    /// queue, since more bytes may arrive by then.
    #[must_use]
    pub fn next_chunk(&self, most: u64) -> Option<u64> {
        match self.ready {
            0 => None,
            ready if ready >= most => Some(most),
            ready => (self.queued == 0).then_some(ready),
        }
    }

    /// A chunk enters the transmit queue.
    pub fn queue(&mut self, bytes: u64) {
        self.ready -= bytes;
        self.queued += bytes;
    }

    /// The transmit queue drops a chunk.
    pub fn lose(&mut self, bytes: u64) {
        let bytes = bytes.min(self.queued);
        self.queued -= bytes;
        self.lost += bytes;
    }

    /// A dropped chunk may be sent again.
    pub fn recover(&mut self, bytes: u64) {
        let bytes = bytes.min(self.lost);
        self.lost -= bytes;
        self.ready += bytes;
    }

    /// The regulator releases a chunk.
    pub fn pay(&mut self, bytes: u64) {
        let bytes = bytes.min(self.queued);
        self.queued -= bytes;
        self.paid += bytes;
    }

    /// Bytes that the stream may take, in two parts.
    #[must_use]
    pub fn payable(&self) -> (&[u8], &[u8]) {
        self.ring.front(usize::try_from(self.paid).unwrap_or(usize::MAX))
    }

    /// The stream has taken bytes.
    pub fn wrote(&mut self, bytes: u64) {
        let bytes = bytes.min(self.paid);
        self.ring.consume(usize::try_from(bytes).unwrap_or(usize::MAX));
        self.paid -= bytes;
        self.sent += bytes;
    }

    /// The peer has delivered bytes. Returns their number, limited to the bytes in flight.
    pub fn delivered(&mut self, bytes: u64) -> u64 {
        let bytes = bytes.min(self.sent - self.delivered);
        self.delivered += bytes;
        bytes
    }

    /// Bytes in the PEP's buffer: read and not delivered.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.ring.len() as u64 + self.sent - self.delivered
    }

    /// Bytes that the stream has taken and the peer has not delivered.
    #[must_use]
    pub fn under_way(&self) -> u64 {
        self.sent - self.delivered
    }

    /// Bytes in the transmit queue or under way.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.queued + self.paid + self.sent - self.delivered
    }

    /// Bytes read so far.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.sent + self.ring.len() as u64
    }

    /// Offset of the next chunk.
    #[must_use]
    pub fn place(&self) -> u64 {
        self.sent + self.paid + self.queued
    }

    /// True if the stream can be finished: the FIN follows the last byte.
    #[must_use]
    pub fn may_finish(&self) -> bool {
        self.ended && !self.finished && self.ring.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_units::Rng;

    use super::*;

    fn read(out: &mut Outbound, bytes: usize) {
        out.ring.put(&vec![7; bytes]);
        out.took(bytes as u64);
    }

    /// Full chunks go at once, a partial one once no other is in the queue.
    #[test]
    fn a_partial_chunk_waits_for_the_one_before() {
        let mut out = Outbound::default();
        read(&mut out, 2500);
        assert_eq!(out.next_chunk(1000), None);
        out.processed(2500);
        for _ in 0..2 {
            assert_eq!(out.next_chunk(1000), Some(1000));
            out.queue(1000);
        }
        assert_eq!(out.next_chunk(1000), None);
        read(&mut out, 600);
        out.processed(600);
        assert_eq!((out.next_chunk(1000), out.place()), (Some(1000), 2000));
        out.queue(1000);
        for _ in 0..3 {
            assert_eq!(out.next_chunk(1000), None);
            out.pay(1000);
        }
        assert_eq!((out.payable().0.len(), out.next_chunk(1000)), (3000, Some(100)));
    }

    /// The stream is not finished before the last byte.
    #[test]
    fn the_stream_finishes_after_the_last_byte() {
        let mut out = Outbound { ended: true, ..Outbound::default() };
        assert!(out.may_finish());
        read(&mut out, 10);
        out.processed(10);
        out.queue(10);
        out.pay(10);
        assert!(!out.may_finish());
        out.wrote(4);
        assert!(!out.may_finish());
        out.wrote(6);
        assert!(out.may_finish());
        assert_eq!((out.held(), out.in_flight(), out.delivered(99), out.held()), (10, 10, 10, 0));
    }

    /// In any order of operations, each byte is in exactly one state.
    #[test]
    fn each_byte_is_in_one_state() {
        let mut rng = Rng::stream(1, "pep", 0, "test");
        let mut out = Outbound::default();
        let (mut taken, mut delivered) = (0, 0);
        for _ in 0..20_000 {
            let some = rng.below(3000);
            match rng.below(8) {
                0 => {
                    read(&mut out, some as usize);
                    taken += some;
                }
                1 => out.processed(some),
                2 | 3 => {
                    if let Some(chunk) = out.next_chunk(1000) {
                        out.queue(chunk);
                    }
                }
                4 => out.pay(some),
                5 => out.wrote(some),
                6 if some < 300 => out.lose(some),
                6 => out.recover(some),
                _ => delivered += out.delivered(some),
            }
            let parts = out.working + out.ready + out.queued + out.lost + out.paid;
            assert_eq!(parts, out.ring.len() as u64);
            assert_eq!((out.read(), out.held()), (taken, taken - delivered));
        }
        assert!(delivered > 1_000_000, "{delivered}");
    }
}
