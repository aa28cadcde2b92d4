//! Running median of a changing set of numbers.
//!
//! Two heaps: the lower half with its greatest number first, and the upper half with its least first; the lower half
//! has as many numbers or one more. Insertion and removal cost one step per level of the heaps.

use std::cmp::Reverse;

use bentpipe_units::Id;

use super::heap::Heap;

/// Numbers by the caller's ids.
#[derive(Clone, Debug)]
pub struct Median<I> {
    low: Heap<I, u64>,
    high: Heap<I, Reverse<u64>>,
    /// Median when the set was last not empty.
    last: u64,
}

impl<I> Default for Median<I> {
    fn default() -> Self {
        Self { low: Heap::default(), high: Heap::default(), last: 0 }
    }
}

impl<I: Id + PartialEq> Median<I> {
    /// An empty set whose last median was `last`.
    pub fn after(last: u64) -> Self {
        Self { last, ..Self::default() }
    }

    /// Returns the median, the lower of two in the middle; the last one if the set is empty.
    pub fn get(&self) -> u64 {
        self.low.first().map_or(self.last, |(middle, _)| middle)
    }

    /// Adds a number under an unused id.
    pub fn add(&mut self, id: I, number: u64) {
        // Between the halves it may go to either: the lower half more often needs one.
        if self.high.first().is_none_or(|(Reverse(least), _)| number <= least) {
            self.low.set(id, number);
        } else {
            self.high.set(id, Reverse(number));
        }
        self.balance();
    }

    /// Removes the number under an id, if any.
    pub fn remove(&mut self, id: I) {
        self.last = self.get();
        self.low.remove(id);
        self.high.remove(id);
        self.balance();
    }

    fn balance(&mut self) {
        if self.low.len() > self.high.len() + 1
            && let Some((greatest, id)) = self.low.first()
        {
            self.low.remove(id);
            self.high.set(id, Reverse(greatest));
        }
        if self.low.len() < self.high.len()
            && let Some((Reverse(least), id)) = self.high.first()
        {
            self.high.remove(id);
            self.low.set(id, least);
        }
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_units::{Rng, id_types};

    use super::*;

    id_types! { Number }

    /// Compared with a sorted list.
    #[test]
    fn median_matches_a_sorted_list() {
        let mut rng = Rng::stream(1, "median", 0, "test");
        let (mut median, mut list, mut last) = (Median::default(), Vec::new(), 0);
        for step in 0..50_000_u32 {
            let id = Number::new(rng.below(200) as u32);
            match list.iter().position(|&(_, other)| other == id) {
                Some(at) => {
                    list.remove(at);
                    median.remove(id);
                }
                // Few different numbers, so that many are equal, around a moving level.
                None if rng.below(3) > 0 || step / 5000 % 2 == 0 => {
                    let number = u64::from(step / 1000) + rng.below(30);
                    list.push((number, id));
                    median.add(id, number);
                }
                None => median.remove(id),
            }
            list.sort_unstable();
            last = list.get(list.len().saturating_sub(1) / 2).map_or(last, |&(number, _)| number);
            assert_eq!(median.get(), last, "step {step}");
        }
    }
}
