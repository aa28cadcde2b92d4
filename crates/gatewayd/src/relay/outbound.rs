//! One direction of a connection on its way to the far end: bytes from a socket, and how far they have come.
//!
//! ```text
//! socket ─▶ working ─▶ ready ─▶ queued ─▶ paid ─▶ the stream ─▶ delivered at the far end
//!           the PEP    │        transmit   └ let go by the regulator, but the stream takes no more yet
//!           works on   │        queue
//!           them       └ lost ◀─┘ discarded there: sent again after a round trip
//! ```
//!
//! The bytes are in one ring until the stream takes them; the packets of the PEP and of the transmit queue stand for so many
//! of them, and it does not matter which.

use crate::relay::ring::Ring;

/// Bytes from a socket to a stream.
#[derive(Debug, Default)]
pub struct Outbound {
    /// All but those that the stream has taken.
    pub ring: Ring,
    working: u64,
    ready: u64,
    queued: u64,
    lost: u64,
    paid: u64,
    /// Given to the stream so far, and delivered of these.
    sent: u64,
    delivered: u64,
    /// The socket's other side has said that there will be no more.
    pub ended: bool,
    /// The stream has been told.
    pub finished: bool,
}

impl Outbound {
    /// Nothing yet; `ring` is empty.
    #[must_use]
    pub fn new(ring: Ring) -> Self {
        Self { ring, ..Self::default() }
    }

    /// `bytes` were read into the ring, and are being worked on.
    pub fn took(&mut self, bytes: u64) {
        self.working += bytes;
    }

    /// The PEP has finished with so many.
    pub fn processed(&mut self, bytes: u64) {
        let bytes = bytes.min(self.working);
        self.working -= bytes;
        self.ready += bytes;
    }

    /// How long the next chunk for the transmit queue is, of which a full one has `most` bytes. A smaller one has to wait
    /// while another is in the queue, for more may come by then.
    #[must_use]
    pub fn next_chunk(&self, most: u64) -> Option<u64> {
        match self.ready {
            0 => None,
            ready if ready >= most => Some(most),
            ready => (self.queued == 0).then_some(ready),
        }
    }

    /// A chunk of so many enters the transmit queue.
    pub fn queue(&mut self, bytes: u64) {
        self.ready -= bytes;
        self.queued += bytes;
    }

    /// … is discarded there.
    pub fn lose(&mut self, bytes: u64) {
        let bytes = bytes.min(self.queued);
        self.queued -= bytes;
        self.lost += bytes;
    }

    /// … and is to be sent again.
    pub fn recover(&mut self, bytes: u64) {
        let bytes = bytes.min(self.lost);
        self.lost -= bytes;
        self.ready += bytes;
    }

    /// … leaves it for the satellite.
    pub fn pay(&mut self, bytes: u64) {
        let bytes = bytes.min(self.queued);
        self.queued -= bytes;
        self.paid += bytes;
    }

    /// What the stream may be given, in two parts.
    #[must_use]
    pub fn payable(&self) -> (&[u8], &[u8]) {
        self.ring.front(usize::try_from(self.paid).unwrap_or(usize::MAX))
    }

    /// The stream took so many of these.
    pub fn wrote(&mut self, bytes: u64) {
        let bytes = bytes.min(self.paid);
        self.ring.consume(usize::try_from(bytes).unwrap_or(usize::MAX));
        self.paid -= bytes;
        self.sent += bytes;
    }

    /// The far end has delivered so many.
    pub fn delivered(&mut self, bytes: u64) -> u64 {
        let bytes = bytes.min(self.sent - self.delivered);
        self.delivered += bytes;
        bytes
    }

    /// Bytes in the PEP's buffer: read, and not delivered.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.ring.len() as u64 + self.sent - self.delivered
    }

    /// Bytes that the stream has taken, and the far end has not delivered.
    #[must_use]
    pub fn under_way(&self) -> u64 {
        self.sent - self.delivered
    }

    /// Bytes that are on their way over the satellite, or in line for it.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.queued + self.paid + self.sent - self.delivered
    }

    /// Bytes read so far.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.sent + self.ring.len() as u64
    }

    /// Bytes before those that the next chunk stands for.
    #[must_use]
    pub fn place(&self) -> u64 {
        self.sent + self.paid + self.queued
    }

    /// Whether the stream can be told that there will be no more: the FIN follows the last byte.
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

    /// Full chunks go at once, a partial one when none of the connection's own is in line any more.
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

    /// Nothing is said to be over before the last byte has gone.
    #[test]
    fn the_end_follows_the_last_byte() {
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

    /// Whatever happens in whatever order, each byte is in one place.
    #[test]
    fn bytes_are_always_in_one_place() {
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
