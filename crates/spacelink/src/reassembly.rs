//! Puts IP packets together that were longer than a datagram.

use std::time::{Duration, Instant};

use super::frames::MAX_FRAGMENTS;

/// Most packets that are put together at a time.
const MOST: usize = 64;
/// Most bytes that are held for them.
const MOST_BYTES: usize = 1 << 20;
/// After so long without its last fragment a packet is given up.
const PATIENCE: Duration = Duration::from_secs(2);

/// A packet of which some fragments came.
struct Partial {
    packet: u16,
    count: u8,
    /// Which fragments are there, a bit each.
    have: u64,
    pieces: Vec<Vec<u8>>,
    bytes: usize,
    since: Instant,
}

/// Packets that miss fragments, the oldest first.
#[derive(Default)]
pub struct Reassembly {
    partials: Vec<Partial>,
    bytes: usize,
    given_up: u64,
}

impl Reassembly {
    /// A fragment came: the packet, if it was the last that missed. `index` is less than `count`, and that at most
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
            // Numbers begin again after 2^16: this is another packet.
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

    /// Gives up what has waited too long.
    pub fn expire(&mut self, now: Instant) {
        while self.partials.first().is_some_and(|p| now.saturating_duration_since(p.since) >= PATIENCE) {
            self.give_up(0);
        }
    }

    /// When [`Self::expire`] is due.
    pub fn timer(&self) -> Option<Instant> {
        self.partials.first().map(|p| p.since + PATIENCE)
    }

    /// Packets given up so far.
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
    fn what_misses_a_fragment_is_given_up() {
        let now = Instant::now();
        let mut reassembly = Reassembly::default();
        reassembly.fragment(now, 1, 0, 2, b"a");
        let due = reassembly.timer().unwrap();
        assert_eq!(due, now + PATIENCE);
        reassembly.expire(due);
        assert_eq!((reassembly.given_up(), reassembly.bytes, reassembly.timer()), (1, 0, None));
        // Its number is free for another.
        assert_eq!(reassembly.fragment(due, 1, 1, 2, b"b"), None);
    }

    #[test]
    fn memory_is_bounded_whatever_comes() {
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
    }
}
