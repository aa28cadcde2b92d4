//! A wheel of time slots.

use super::agenda::time_of;

/// Entries of the slots that follow the current one, in no order within a slot.
///
/// Slot n holds the entries from n to n + 1 times the slots' width, and has place n mod the number of slots.
pub struct Wheel {
    /// First node of each slot's list.
    heads: Vec<u32>,
    /// One bit for each slot that has entries.
    occupied: Vec<u64>,
    nodes: Vec<Node>,
    /// First unused node.
    free: u32,
    /// Number of entries.
    len: usize,
    /// Logarithm of the slots' width [ns] to base 2.
    width: u32,
    /// The current slot.
    now: u64,
}

struct Node {
    entry: u128,
    next: u32,
}

/// End of a list of nodes.
const END: u32 = u32::MAX;
const WORD: usize = u64::BITS as usize;

impl Wheel {
    /// An empty wheel of `slots` slots, a power of two and at least 64, of 2^`width` ns; the current slot has `time` [ns].
    pub fn new(slots: usize, width: u32, time: u64) -> Self {
        Self {
            heads: vec![END; slots],
            occupied: vec![0; slots / WORD],
            nodes: Vec::new(),
            free: END,
            len: 0,
            width,
            now: time >> width,
        }
    }

    /// Number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.heads.len()
    }

    /// Logarithm of the slots' width [ns] to base 2.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Number of the current slot.
    #[inline]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Number of the slot of an entry.
    #[inline(always)]
    pub fn slot_of(&self, entry: u128) -> u64 {
        time_of(entry) >> self.width
    }

    /// Slots from the current one to that of an entry; `None` if the entry belongs to the current slot or an earlier one.
    #[inline(always)]
    pub fn distance(&self, entry: u128) -> Option<u64> {
        self.slot_of(entry).checked_sub(self.now).filter(|slots| *slots > 0)
    }

    /// Adds an entry of a later slot, less than one turn of the wheel away.
    #[inline(always)]
    pub fn push(&mut self, entry: u128) {
        let place = self.slot_of(entry) as usize & (self.heads.len() - 1);
        if self.free == END {
            self.grow();
        }
        let id = self.free;
        let node = &mut self.nodes[id as usize];
        self.free = node.next;
        *node = Node { entry, next: std::mem::replace(&mut self.heads[place], id) };
        self.occupied[place / WORD] |= 1 << (place % WORD);
        self.len += 1;
    }

    /// Adds unused nodes.
    #[cold]
    fn grow(&mut self) {
        let first = self.nodes.len();
        let last = (2 * first).max(WORD);
        self.nodes.extend((first + 1..=last).map(|next| Node { entry: 0, next: next as u32 }));
        self.nodes[last - 1].next = END;
        self.free = first as u32;
    }

    /// The first slot after the current one that has entries; `None` without entries.
    #[inline]
    pub fn next_slot(&self) -> Option<u64> {
        if self.len == 0 {
            return None;
        }
        let mask = self.heads.len() - 1;
        let first = (self.now as usize + 1) & mask;
        let mut word = first / WORD;
        let mut bits = self.occupied[word] & (u64::MAX << (first % WORD));
        while bits == 0 {
            word = (word + 1) & (self.occupied.len() - 1);
            bits = self.occupied[word];
        }
        let place = WORD * word + bits.trailing_zeros() as usize;
        Some(self.now + 1 + (place.wrapping_sub(first) & mask) as u64)
    }

    /// Makes a later slot the current one and yields its entries; slots between the two have none.
    #[inline]
    pub fn advance(&mut self, slot: u64, mut each: impl FnMut(u128)) {
        self.now = slot;
        let place = slot as usize & (self.heads.len() - 1);
        let mut id = std::mem::replace(&mut self.heads[place], END);
        self.occupied[place / WORD] &= !(1 << (place % WORD));
        while let Some(node) = self.nodes.get_mut(id as usize) {
            each(node.entry);
            self.len -= 1;
            let next = std::mem::replace(&mut node.next, self.free);
            self.free = std::mem::replace(&mut id, next);
        }
    }
}
