//! A heap with update and removal of items, for schedulers that rank packets or flows.
//!
//! Items are the caller's small indexes. Each has a key; the greatest key is first (the least with
//! [`std::cmp::Reverse`]). Each item has four children instead of two, which halves the depth, and four keys are
//! adjacent in memory. Insertion, update and removal cost one step per level.

/// Not in the heap.
const NONE: u32 = u32::MAX;
/// Children per item.
const WIDTH: usize = 4;

/// Items by their keys, the greatest first.
#[derive(Clone, Debug)]
pub struct Heap<K> {
    entries: Vec<(K, u32)>,
    /// Position of each item among the entries.
    places: Vec<u32>,
}

impl<K> Default for Heap<K> {
    fn default() -> Self {
        Self { entries: Vec::new(), places: Vec::new() }
    }
}

impl<K: Copy + Ord> Heap<K> {
    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the greatest key and its item.
    #[inline]
    pub fn first(&self) -> Option<(K, u32)> {
        self.entries.first().copied()
    }

    /// Returns all items with their keys, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (K, u32)> + '_ {
        self.entries.iter().copied()
    }

    /// Returns the key of an item; `None` if it is not in the heap.
    #[inline]
    pub fn key(&self, item: u32) -> Option<K> {
        let place = *self.places.get(item as usize)?;
        self.entries.get(place as usize).map(|&(key, _)| key)
    }

    /// Inserts an item or changes its key.
    #[inline]
    pub fn set(&mut self, item: u32, key: K) {
        if self.places.len() <= item as usize {
            self.places.resize(item as usize + 1, NONE);
        }
        let place = match self.places[item as usize] {
            NONE => {
                self.entries.push((key, item));
                self.entries.len() - 1
            }
            place => place as usize,
        };
        self.settle(place, (key, item));
    }

    /// Removes an item, if present.
    #[inline]
    pub fn remove(&mut self, item: u32) {
        let place = self.places.get(item as usize).map_or(NONE, |&place| place);
        if place == NONE {
            return;
        }
        self.places[item as usize] = NONE;
        if let Some(last) = self.entries.pop()
            && last.1 != item
        {
            self.settle(place as usize, last);
        }
    }

    /// Places an entry, starting at a free position.
    #[inline]
    fn settle(&mut self, mut place: usize, entry: (K, u32)) {
        let started = place;
        while place > 0 {
            let above = (place - 1) / WIDTH;
            if self.entries[above].0 >= entry.0 {
                break;
            }
            self.put(place, self.entries[above]);
            place = above;
        }
        while place >= started {
            let below = WIDTH * place + 1;
            let Some(greatest) = self.greatest(below) else { break };
            if self.entries[greatest].0 <= entry.0 {
                break;
            }
            self.put(place, self.entries[greatest]);
            place = greatest;
        }
        self.put(place, entry);
    }

    /// Returns the child with the greatest key; `first` is the first child.
    #[inline]
    fn greatest(&self, first: usize) -> Option<usize> {
        let end = (first + WIDTH).min(self.entries.len());
        let below = self.entries.get(first..end)?;
        let mut best = 0;
        for (i, entry) in below.iter().enumerate() {
            if entry.0 > below[best].0 {
                best = i;
            }
        }
        (!below.is_empty()).then_some(first + best)
    }

    #[inline]
    fn put(&mut self, place: usize, entry: (K, u32)) {
        self.entries[place] = entry;
        self.places[entry.1 as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bentpipe_units::Rng;

    use super::*;

    /// The heap and an ordered map have the same first item after the same operations; every item has a position.
    #[test]
    fn order_matches_an_ordered_map() {
        let mut rng = Rng::stream(1, "heap", 0, "test");
        let (mut heap, mut map) = (Heap::default(), BTreeMap::new());
        for step in 0..200_000_u64 {
            // Grows to hundreds, shrinks to nothing, and again.
            let grows = step / 2000 % 2 == 0;
            let item = rng.below(600) as u32;
            if rng.below(4) < if grows { 3 } else { 1 } {
                // Few keys, so that many are equal; the item makes them distinct.
                let key = (rng.below(20), item);
                heap.set(item, key);
                map.insert(item, key);
            } else {
                let item = if grows { item } else { heap.first().map_or(item, |(_, first)| first) };
                heap.remove(item);
                map.remove(&item);
            }
            assert_eq!(heap.first(), map.values().max().map(|&key| (key, key.1)));
            assert_eq!(heap.len(), map.len());
            assert_eq!(heap.key(item), map.get(&item).copied());
        }
        assert_eq!(heap.key(u32::MAX), None);
    }
}
