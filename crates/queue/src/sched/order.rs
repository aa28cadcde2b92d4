//! Items in the order of their keys, for schedulers that serve one end and drop from the other.
//!
//! A list of chunks of at most 64 items, each with the keys between two bounds. Only the two chunks at the ends are
//! sorted, since only their items are looked for; in another one an item takes the next place, whatever its key. So
//! insertion costs a binary search among the bounds, and the first item is removed without a search. Sorting a chunk that
//! has become an end, and dividing a full one, cost little for each of its items. A heap touches several cache lines per
//! level instead.

use std::cmp::{Ordering, Reverse};

use bentpipe_units::Rng;

/// Items in a full chunk.
const LENGTH: usize = 64;

/// Rank of an item, and its number among all items, by which items of equal rank are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    pub rank: u64,
    pub number: u64,
}

impl Key {
    /// Both as one number: a comparison without a branch.
    fn whole(self) -> u128 {
        u128::from(self.rank) << 64 | u128::from(self.number)
    }
}

impl Ord for Key {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.whole().cmp(&other.whole())
    }
}

impl PartialOrd for Key {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Items by their keys, all of them different.
#[derive(Debug)]
pub struct Order<I> {
    /// Those with the greatest keys come first.
    chunks: Vec<Chunk>,
    /// Room for `LENGTH` entries of each chunk, in use or freed. An end has the greatest key first.
    entries: Vec<(Key, I)>,
    /// First entries of freed chunks.
    free: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Chunk {
    /// Lower bound of the keys, above all keys of the next chunk. Of no meaning in the last one.
    least: Key,
    /// First entry.
    start: usize,
    /// Entries in use.
    len: usize,
}

impl<I> Default for Order<I> {
    fn default() -> Self {
        Self { chunks: Vec::new(), entries: Vec::new(), free: Vec::new() }
    }
}

impl<I: Copy> Order<I> {
    /// Returns the least key and its item.
    #[inline]
    pub fn first(&self) -> Option<&(Key, I)> {
        let chunk = self.chunks.last()?;
        Some(&self.entries[chunk.start + chunk.len - 1])
    }

    /// Removes and returns the least key and its item.
    #[inline]
    pub fn pop_first(&mut self) -> Option<(Key, I)> {
        let at = self.chunks.len().checked_sub(1)?;
        let chunk = &mut self.chunks[at];
        chunk.len -= 1;
        let (place, is_empty) = (chunk.start + chunk.len, chunk.len == 0);
        if is_empty {
            self.release(at);
        }
        Some(self.entries[place])
    }

    /// Removes and returns the greatest key and its item.
    pub fn pop_last(&mut self) -> Option<(Key, I)> {
        self.remove(self.chunks.first()?.start)
    }

    /// Returns all items with their keys, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &(Key, I)> {
        self.chunks.iter().flat_map(|chunk| &self.entries[chunk.start..][..chunk.len])
    }

    /// Returns an entry drawn uniformly and its place, which holds until the next change. Places are drawn until one is in
    /// use, which takes 64 draws on average if each chunk has but one item.
    pub fn sample(&self, rng: &mut Rng) -> Option<(usize, &(Key, I))> {
        if self.chunks.is_empty() {
            return None;
        }
        loop {
            let drawn = rng.below((LENGTH * self.chunks.len()) as u64) as usize;
            let (chunk, place) = (self.chunks[drawn / LENGTH], drawn % LENGTH);
            if place < chunk.len {
                return Some((chunk.start + place, &self.entries[chunk.start + place]));
            }
        }
    }

    /// Returns the key at a place, in use or freed.
    pub fn key(&self, place: usize) -> Option<Key> {
        self.entries.get(place).map(|entry| entry.0)
    }

    /// Inserts an item with a key that no other has.
    #[inline]
    pub fn insert(&mut self, key: Key, item: I) {
        if self.chunks.is_empty() {
            let start = self.room((key, item));
            self.chunks.push(Chunk { least: key, start, len: 0 });
        }
        let mut at = self.chunk_of(key);
        if self.chunks[at].len == LENGTH {
            self.divide(at, (key, item));
            at += usize::from(key < self.chunks[at].least);
        }
        let is_end = self.is_end(at);
        let Chunk { start, len, .. } = self.chunks[at];
        let entries = &mut self.entries[start..=start + len];
        let place = if is_end { entries[..len].partition_point(|entry| entry.0 > key) } else { len };
        entries.copy_within(place..len, place + 1);
        entries[place] = (key, item);
        self.chunks[at].len += 1;
    }

    /// Removes and returns the item at a place; `None` without an item.
    pub fn remove(&mut self, place: usize) -> Option<(Key, I)> {
        let removed = *self.entries.get(place)?;
        if self.chunks.is_empty() {
            return None;
        }
        let at = self.chunk_of(removed.0);
        let is_end = self.is_end(at);
        let Chunk { start, len, .. } = self.chunks[at];
        if !(start..start + len).contains(&place) {
            return None;
        }
        if is_end {
            self.entries.copy_within(place + 1..start + len, place);
        } else {
            self.entries[place] = self.entries[start + len - 1];
        }
        self.chunks[at].len -= 1;
        if len == 1 {
            self.release(at);
        }
        Some(removed)
    }

    /// Returns the chunk that has a key, or would have it.
    #[inline]
    fn chunk_of(&self, key: Key) -> usize {
        self.chunks[..self.chunks.len() - 1].partition_point(|chunk| chunk.least > key)
    }

    fn is_end(&self, at: usize) -> bool {
        at == 0 || at + 1 == self.chunks.len()
    }

    /// Removes an empty chunk.
    fn release(&mut self, at: usize) {
        self.free.push(self.chunks.remove(at).start);
        // The one that has become an end.
        if let Some(last) = self.chunks.len().checked_sub(1)
            && (at == 0 || at > last)
        {
            let Chunk { start, len, .. } = self.chunks[at.min(last)];
            self.entries[start..start + len].sort_unstable_by_key(|entry| Reverse(entry.0));
        }
    }

    /// Moves the greater half of a full chunk into a new one ahead of it.
    fn divide(&mut self, at: usize, any: (Key, I)) {
        const HALF: usize = LENGTH / 2;
        let (is_end, start) = (self.is_end(at), self.chunks[at].start);
        let to = self.room(any);
        let entries = &mut self.entries[start..start + LENGTH];
        if !is_end {
            entries.select_nth_unstable_by_key(HALF - 1, |entry| Reverse(entry.0));
        }
        let least = entries[HALF - 1].0;
        self.entries.copy_within(start..start + HALF, to);
        self.entries.copy_within(start + HALF..start + LENGTH, start);
        self.chunks[at].len = HALF;
        self.chunks.insert(at, Chunk { least, start: to, len: HALF });
    }

    /// Returns the start of free room for a chunk; `any` entry fills it.
    fn room(&mut self, any: (Key, I)) -> usize {
        self.free.pop().unwrap_or_else(|| {
            let start = self.entries.len();
            self.entries.resize(start + LENGTH, any);
            start
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn whole((key, item): (Key, u64)) -> ((u64, u64), u64) {
        ((key.rank, key.number), item)
    }

    /// The same operations on an ordered map: items arrive, leave at both ends and elsewhere. Keys rise, fall, or are
    /// drawn, so that chunks are divided at both ends and between; the number of items rises to thousands and falls to
    /// none, several times.
    #[test]
    fn both_ends_match_an_ordered_map() {
        for (seed, ranks) in [(1, 3), (2, 50), (3, 100_000), (4, 1 << 60)] {
            let mut rng = Rng::stream(seed, "order", 0, "test");
            let (mut order, mut map) = (Order::default(), BTreeMap::new());
            for number in 0..60_000_u64 {
                let grows = number / 6_000 % 2 == 0;
                if rng.below(10) < if grows { 9 } else { 1 } {
                    let rank = match seed {
                        3 => number,
                        4 => ranks - number,
                        _ => rng.below(ranks),
                    };
                    order.insert(Key { rank, number }, number);
                    map.insert((rank, number), number);
                } else if rng.below(2) == 0 {
                    assert_eq!(order.pop_first().map(whole), map.pop_first());
                } else if rng.below(2) == 0 {
                    assert_eq!(order.pop_last().map(whole), map.pop_last());
                } else if let Some((place, &shown)) = order.sample(&mut rng) {
                    assert_eq!(order.key(place), Some(shown.0));
                    let removed = order.remove(place).map(whole);
                    assert_eq!(removed, Some(whole(shown)));
                    assert_eq!(removed, map.remove_entry(&removed.unwrap().0));
                }
                assert_eq!(
                    order.first().copied().map(whole),
                    map.first_key_value().map(|(&key, &item)| (key, item))
                );
            }
            let mut all: Vec<_> = order.iter().copied().map(whole).collect();
            all.sort_unstable();
            assert_eq!(all, map.into_iter().collect::<Vec<_>>());
        }
    }

    /// Items 0 to 99 take two chunks or more, and each is drawn about as often: 1,000 of 100,000 times, with a standard
    /// deviation of 31.5 for a binomial count.
    #[test]
    fn every_item_is_drawn_as_often() {
        let mut order = Order::default();
        for number in 0..100 {
            order.insert(Key { rank: number % 7, number }, number as usize);
        }
        let mut rng = Rng::stream(5, "order", 0, "test");
        let mut drawn = [0_u32; 100];
        (0..100_000).for_each(|_| drawn[order.sample(&mut rng).unwrap().1.1] += 1);
        assert!(drawn.iter().all(|&count| (850..1150).contains(&count)), "{drawn:?}");
    }

    /// Freed room is used again: a hundred fills and drains of 1,000 items need no more entries than three.
    #[test]
    fn room_of_chunks_is_used_again() {
        let mut order = Order::default();
        let mut held = Vec::new();
        for round in 0..100_u64 {
            for number in 0..1000 {
                order.insert(Key { rank: number * 7919 % 1000, number: 1000 * round + number }, number);
            }
            for expected in 0..1000 {
                assert_eq!(order.pop_first().map(|(key, _)| key.rank), Some(expected));
            }
            held.push(order.entries.len());
        }
        assert_eq!(held[99], held[2]);
        assert!(order.first().is_none());
    }
}
