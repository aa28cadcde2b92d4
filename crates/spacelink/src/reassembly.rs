//! Reassembly of IP packets that were sent in several datagrams.

use std::time::{Duration, Instant};

use super::frames::MAX_FRAGMENTS;

/// Maximum number of incomplete packets at a time.
const MOST: usize = 64;
/// Maximum number of bytes of incomplete packets.
const MOST_BYTES: usize = 1 << 20;
/// Time after which an incomplete packet is given up.
const PATIENCE: Duration = Duration::from_secs(2);

/// An incomplete packet.
struct Partial {
    packet: u16,
    count: u8,
    /// Bit set of the fragments received.
    have: u64,
    pieces: Vec<Vec<u8>>,
    bytes: usize,
    since: Instant,
}

/// Incomplete packets, the oldest first.
#[derive(Default)]
pub struct Reassembly {
    partials: Vec<Partial>,
    bytes: usize,
    given_up: u64,
}

impl Reassembly {
    /// Adds a fragment. Returns the packet if this completes it. `index` is less than `count`, and `count` at most
    /// [`MAX_FRAGMENTS`].
    pub fn fragment(
        &mut self,
        now: Instant,
        packet: u16,
        index: u8,
        count: u8,
        data: &[u8],
    ) -> Option<Vec<u8>> {
        debug_assert!(index < count && usize::from(count) <= MAX_FRAGMENTS);
        self.expire(now);
        let known = self.partials.iter().position(|p| p.packet == packet);
        if let Some(at) = known
            && self.partials[at].count != count
        {
            // Packet numbers wrap at 2^16: this is another packet.
            self.give_up(at);
        }
        let at = match self.partials.iter().position(|p| p.packet == packet) {
            Some(at) => at,
            None => {
                if self.partials.len() == MOST {
                    self.give_up(0);
                }
                let pieces = vec![Vec::new(); usize::from(count)];
                self.partials.push(Partial { packet, count, have: 0, pieces, bytes: 0, since: now });
                self.partials.len() - 1
            }
        };
        let partial = &mut self.partials[at];
        if partial.have & 1 << index != 0 {
            return None;
        }
        partial.have |= 1 << index;
        partial.bytes += data.len();
        partial.pieces[usize::from(index)] = data.to_vec();
        self.bytes += data.len();
        if partial.have.count_ones() == u32::from(count) {
            let partial = self.partials.remove(at);
            self.bytes -= partial.bytes;
            return Some(partial.pieces.concat()).filter(|packet| packet.len() <= usize::from(u16::MAX));
        }
        while self.bytes > MOST_BYTES {
            self.give_up(0);
        }
        None
    }

    /// Gives up packets that are incomplete for too long.
    pub fn expire(&mut self, now: Instant) {
        while self.partials.first().is_some_and(|p| now.saturating_duration_since(p.since) >= PATIENCE) {
            self.give_up(0);
        }
    }

    /// Time of the next [`Self::expire`].
    pub fn timer(&self) -> Option<Instant> {
        self.partials.first().map(|p| p.since + PATIENCE)
    }

    /// Number of packets given up.
    pub fn given_up(&self) -> u64 {
        self.given_up
    }

    fn give_up(&mut self, at: usize) {
        self.bytes -= self.partials.remove(at).bytes;
        self.given_up += 1;
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "an origin for the test's times")]
mod tests {
    use super::*;

    #[test]
    fn fragments_in_any_order_make_the_packet_once() {
        let now = Instant::now();
        let mut reassembly = Reassembly::default();
        assert_eq!(reassembly.fragment(now, 7, 2, 3, b"c"), None);
        assert_eq!(reassembly.fragment(now, 7, 0, 3, b"aa"), None);
        assert_eq!(reassembly.fragment(now, 7, 0, 3, b"aa"), None);
        assert_eq!(reassembly.fragment(now, 8, 0, 2, b"x"), None);
        assert_eq!(reassembly.fragment(now, 7, 1, 3, b"bbb").as_deref(), Some(&b"aabbbc"[..]));
        assert_eq!(reassembly.fragment(now, 7, 1, 3, b"bbb"), None);
        assert_eq!(reassembly.fragment(now, 8, 1, 2, b"y").as_deref(), Some(&b"xy"[..]));
        assert_eq!(reassembly.bytes, 3);
    }

    #[test]
    fn incomplete_packets_expire() {
        let now = Instant::now();
        let mut reassembly = Reassembly::default();
        reassembly.fragment(now, 1, 0, 2, b"a");
        let due = reassembly.timer().unwrap();
        assert_eq!(due, now + PATIENCE);
        reassembly.expire(due);
        assert_eq!((reassembly.given_up(), reassembly.bytes, reassembly.timer()), (1, 0, None));
        // Its number is free for another packet.
        assert_eq!(reassembly.fragment(due, 1, 1, 2, b"b"), None);
    }

    #[test]
    fn memory_is_bounded() {
        let now = Instant::now();
        let mut reassembly = Reassembly::default();
        for packet in 0..10_000 {
            reassembly.fragment(now, packet, 0, 64, &[0; 1400]);
            assert!(reassembly.bytes <= MOST_BYTES && reassembly.partials.len() <= MOST);
        }
        for index in 0..63 {
            reassembly.fragment(now, 10_001, index, 64, &[0; 60_000]);
            assert!(reassembly.bytes <= MOST_BYTES);
        }
        // A megabyte is held to the last byte.
        let mut reassembly = Reassembly::default();
        for index in 0..16 {
            reassembly.fragment(now, 1, index, 64, &[0; 65_536]);
        }
        assert_eq!((reassembly.bytes, reassembly.given_up()), (1_048_576, 0));
        reassembly.fragment(now, 2, 0, 2, &[0]);
        assert_eq!((reassembly.bytes, reassembly.given_up()), (1, 1));
    }

    /// Packet numbers wrap: a fragment of a packet that has another number of fragments belongs to another packet.
    #[test]
    fn a_reused_packet_number_begins_a_new_packet() {
        let now = Instant::now();
        let mut reassembly = Reassembly::default();
        reassembly.fragment(now, 5, 0, 2, b"w");
        for _ in 0..2 {
            // Duplicates count once.
            reassembly.fragment(now, 7, 0, 4, b"aa");
            reassembly.fragment(now, 7, 3, 4, b"d");
        }
        assert_eq!((reassembly.bytes, reassembly.given_up()), (4, 0));
        assert_eq!(reassembly.fragment(now, 7, 1, 2, b"z"), None);
        assert_eq!((reassembly.bytes, reassembly.given_up()), (2, 1));
        assert_eq!(reassembly.fragment(now, 7, 0, 2, b"y").as_deref(), Some(&b"yz"[..]));
        assert_eq!(reassembly.fragment(now, 5, 1, 2, b"x").as_deref(), Some(&b"wx"[..]));
        assert_eq!(reassembly.bytes, 0);
    }
}
