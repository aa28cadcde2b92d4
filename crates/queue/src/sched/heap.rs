//! A heap with update and removal of items, for schedulers that rank packets or flows.
//!
//! Each item has a key; the greatest key is first (the least with
//! [`std::cmp::Reverse`]). Each item has four children instead of two, which halves the depth, and four keys are
//! adjacent in memory. Insertion, update and removal cost one step per level.

use bentpipe_units::{Id, optional_id_types};

optional_id_types! {
    /// Position among the entries.
    Place,
}

/// Children per item.
const WIDTH: usize = 4;

/// Items by their keys, the greatest first.
#[derive(Clone, Debug)]
pub struct Heap<I, K> {
    entries: Vec<(K, I)>,
    /// Position of each item among the entries; `None` for those not in the heap.
    places: Vec<Option<Place>>,
}

impl<I, K> Default for Heap<I, K> {
    fn default() -> Self {
        Self { entries: Vec::new(), places: Vec::new() }
    }
}

impl<I: Id + PartialEq, K: Copy + Ord> Heap<I, K> {
    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the greatest key and its item.
    #[inline]
    pub fn first(&self) -> Option<(K, I)> {
        self.entries.first().copied()
    }

    /// Returns the key of an item; `None` if it is not in the heap.
    #[inline]
    pub fn key(&self, item: I) -> Option<K> {
        let place = (*self.places.get(item.index() as usize)?)?;
        self.entries.get(place.index() as usize).map(|&(key, _)| key)
    }

    /// Inserts an item or changes its key.
    #[inline]
    pub fn set(&mut self, item: I, key: K) {
        let index = item.index() as usize;
        if self.places.len() <= index {
            self.places.resize(index + 1, None);
        }
        let place = match self.places[index] {
            None => {
                self.entries.push((key, item));
                self.entries.len() - 1
            }
            Some(place) => place.index() as usize,
        };
        self.sift(place, (key, item));
    }

    /// Removes an item, if present.
    #[inline]
    pub fn remove(&mut self, item: I) {
        let Some(place) = self.places.get_mut(item.index() as usize).and_then(Option::take) else { return };
        if let Some(last) = self.entries.pop()
            && last.1 != item
        {
            self.sift(place.index() as usize, last);
        }
    }

    /// Places an entry, starting at a free position.
    #[inline]
    fn sift(&mut self, mut place: usize, entry: (K, I)) {
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
    fn put(&mut self, place: usize, entry: (K, I)) {
        self.entries[place] = entry;
        self.places[entry.1.index() as usize] = Some(Place::new(place as u32));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bentpipe_units::{Rng, id_types};

    use super::*;

    id_types! { Item }

    /// The heap and an ordered map have the same first item after the same operations; every item has a position.
    #[test]
    fn order_matches_an_ordered_map() {
        let mut rng = Rng::stream(1, "heap", 0, "test");
        let (mut heap, mut map) = (Heap::default(), BTreeMap::new());
        for step in 0..200_000_u64 {
            // Grows to hundreds, shrinks to nothing, and again.
            let grows = step / 2000 % 2 == 0;
            let item = Item::new(rng.below(600) as u32);
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
        assert_eq!(heap.key(Item::new(u32::MAX)), None);
    }
}
