//! Priority queues of 128-bit numbers.

/// A four-ary heap, half as deep as a binary one.
///
/// The four children of a node share a cache line, and missing children compare greater than any entry, so that the
/// smallest is found without a branch. Place p is place p mod 4 of line p / 4; the root has place 3, alone in line 0, and
/// the children of place p are line p - 2.
pub struct Heap {
    lines: Vec<Siblings>,
    /// Place of the next entry.
    end: usize,
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Siblings([u128; CHILDREN]);

const CHILDREN: usize = 4;
const ROOT: usize = 3;
/// Greater than any entry: stands for an entry that is missing.
pub const MISSING: u128 = u128::MAX;

impl Default for Heap {
    fn default() -> Self {
        Self { lines: vec![Siblings([MISSING; CHILDREN])], end: ROOT }
    }
}

impl Heap {
    /// Number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.end - ROOT
    }

    /// The smallest entry; [`MISSING`] without one.
    #[inline]
    pub fn first(&self) -> u128 {
        self.lines[0].0[ROOT]
    }

    /// Adds an entry.
    #[inline(never)]
    pub fn push(&mut self, entry: u128) {
        let mut place = self.end;
        self.end += 1;
        if place.is_multiple_of(CHILDREN) {
            self.lines.push(Siblings([MISSING; CHILDREN]));
        }
        while place > ROOT {
            let parent = place / CHILDREN + 2;
            let above = *self.place(parent);
            if above <= entry {
                break;
            }
            *self.place(place) = above;
            place = parent;
        }
        *self.place(place) = entry;
    }

    /// Removes and returns the smallest entry; [`MISSING`] without one.
    #[inline]
    pub fn pop(&mut self) -> u128 {
        let first = self.first();
        if first != MISSING {
            self.end -= 1;
            let last = std::mem::replace(self.place(self.end), MISSING);
            if self.end > ROOT {
                if self.end.is_multiple_of(CHILDREN) {
                    self.lines.pop();
                }
                self.sink(last);
            }
        }
        first
    }

    /// Replaces the root.
    fn sink(&mut self, entry: u128) {
        let lines = &mut self.lines[..];
        let (mut line, mut which) = (0, ROOT);
        let mut below = 1;
        while let Some(Siblings(siblings)) = lines.get(below) {
            let [a, b, c, d] = siblings;
            let (left, right) = (usize::from(b < a), 2 + usize::from(d < c));
            let child = if siblings[right] < siblings[left] { right } else { left };
            let least = siblings[child];
            if entry <= least {
                break;
            }
            lines[line].0[which] = least;
            (line, which) = (below, child);
            below = CHILDREN * line + which - 2;
        }
        lines[line].0[which] = entry;
    }

    #[inline]
    fn place(&mut self, place: usize) -> &mut u128 {
        &mut self.lines[place / CHILDREN].0[place % CHILDREN]
    }
}

/// A priority queue that mostly holds few entries.
///
/// The smallest entries are a sorted list in a ring, which an entry enters from either end; the others wait in a heap.
pub struct Front {
    /// The smallest entries, at places from `begin` to before `end`, which wrap, modulo the number of places.
    sorted: [u128; PLACES],
    begin: u32,
    end: u32,
    /// Entries that are greater than all sorted ones; only while some are sorted.
    rest: Heap,
    /// The smallest of them.
    rest_first: u128,
}

/// Places of the sorted list: a power of two, so that a mask replaces the check of an index.
const PLACES: usize = 64;
const HALF: u32 = PLACES as u32 / 2;

impl Default for Front {
    fn default() -> Self {
        Self { sorted: [MISSING; PLACES], begin: 0, end: 0, rest: Heap::default(), rest_first: MISSING }
    }
}

impl Front {
    /// True without entries.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.begin == self.end
    }

    /// The smallest entry, of which there is one.
    #[inline(always)]
    pub fn first(&self) -> u128 {
        *self.at(self.begin)
    }

    #[inline(always)]
    fn at(&self, place: u32) -> &u128 {
        &self.sorted[place as usize % PLACES]
    }

    #[inline(always)]
    fn at_mut(&mut self, place: u32) -> &mut u128 {
        &mut self.sorted[place as usize % PLACES]
    }

    /// Adds an entry that is probably greater than most, or smaller than all.
    #[inline]
    pub fn push_late(&mut self, entry: u128) {
        if !self.makes_room(entry) {
            return self.push_to_rest(entry);
        }
        if entry < self.first() {
            self.begin = self.begin.wrapping_sub(1);
            *self.at_mut(self.begin) = entry;
            return;
        }
        let mut place = self.end;
        self.end = self.end.wrapping_add(1);
        while place != self.begin {
            let before = place.wrapping_sub(1);
            let other = *self.at(before);
            if other < entry {
                break;
            }
            *self.at_mut(place) = other;
            place = before;
        }
        *self.at_mut(place) = entry;
    }

    /// Adds an entry that is probably smaller than most.
    #[inline]
    pub fn push_early(&mut self, entry: u128) {
        if !self.makes_room(entry) {
            return self.push_to_rest(entry);
        }
        self.begin = self.begin.wrapping_sub(1);
        let mut place = self.begin;
        loop {
            let behind = place.wrapping_add(1);
            let other = *self.at(behind);
            if behind == self.end || other > entry {
                break;
            }
            *self.at_mut(place) = other;
            place = behind;
        }
        *self.at_mut(place) = entry;
    }

    /// Makes room for an entry in the sorted list, unless it belongs to the others.
    #[inline(always)]
    fn makes_room(&mut self, entry: u128) -> bool {
        if self.end.wrapping_sub(self.begin) == PLACES as u32 {
            self.move_to_rest();
        }
        entry < self.rest_first
    }

    /// Removes the smallest entry, of which there is one.
    #[inline(always)]
    pub fn pop(&mut self) {
        self.begin = self.begin.wrapping_add(1);
        if self.is_empty() && self.rest_first != MISSING {
            self.take_from_rest();
        }
    }

    #[cold]
    fn push_to_rest(&mut self, entry: u128) {
        self.rest.push(entry);
        self.rest_first = self.rest.first();
    }

    /// Moves the greater half of the sorted entries to the heap.
    #[cold]
    fn move_to_rest(&mut self) {
        for _ in 0..HALF {
            self.end = self.end.wrapping_sub(1);
            self.rest.push(*self.at(self.end));
        }
        self.rest_first = self.rest.first();
    }

    /// Fills the sorted entries, once all are taken, with the smallest of the heap.
    #[cold]
    fn take_from_rest(&mut self) {
        let count = self.rest.len().min(PLACES / 2);
        (self.begin, self.end) = (0, count as u32);
        self.sorted[..count].fill_with(|| self.rest.pop());
        self.rest_first = self.rest.first();
    }
}
