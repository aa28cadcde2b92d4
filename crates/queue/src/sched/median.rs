//! The median of numbers that come and go.
//!
//! Two heaps: the lesser half, its greatest first, and the greater half, its least first; the lesser half has as many
//! or one more. Adding and taking out cost a step a level of the heaps.

use std::cmp::Reverse;

use super::heap::Heap;

/// Numbers by small indexes, the caller's.
#[derive(Clone, Debug, Default)]
pub struct Median {
    low: Heap<u64>,
    high: Heap<Reverse<u64>>,
    /// What it was when there were numbers last.
    last: u64,
}

impl Median {
    /// Of no numbers, the last of which was `last`.
    pub fn after(last: u64) -> Self {
        Self { last, ..Self::default() }
    }

    /// The median, the lesser of two in the middle; where there is no number, what it was when there were any.
    pub fn get(&self) -> u64 {
        self.low.first().map_or(self.last, |(middle, _)| middle)
    }

    /// Adds a number under an index that has none.
    pub fn add(&mut self, index: u32, number: u64) {
        // Between the halves it may go to either: to the lesser, for it needs it more often.
        if self.high.first().is_none_or(|(Reverse(least), _)| number <= least) {
            self.low.set(index, number);
        } else {
            self.high.set(index, Reverse(number));
        }
        self.balance();
    }

    /// Takes the number out that is under an index, if there is one.
    pub fn remove(&mut self, index: u32) {
        self.last = self.get();
        self.low.remove(index);
        self.high.remove(index);
        self.balance();
    }

    fn balance(&mut self) {
        if self.low.len() > self.high.len() + 1
            && let Some((greatest, index)) = self.low.first()
        {
            self.low.remove(index);
            self.high.set(index, Reverse(greatest));
        }
        if self.low.len() < self.high.len()
            && let Some((Reverse(least), index)) = self.high.first()
        {
            self.high.remove(index);
            self.low.set(index, least);
        }
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_units::Rng;

    use super::*;

    /// Beside a sorted list.
    #[test]
    fn it_is_the_middle_of_a_sorted_list() {
        let mut rng = Rng::stream(1, "median", 0, "test");
        let (mut median, mut list, mut last) = (Median::default(), Vec::new(), 0);
        for step in 0..50_000_u32 {
            let index = rng.below(200) as u32;
            match list.iter().position(|&(_, other)| other == index) {
                Some(at) => {
                    list.remove(at);
                    median.remove(index);
                }
                // Few numbers, so that many are equal, around a level that moves.
                None if rng.below(3) > 0 || step / 5000 % 2 == 0 => {
                    let number = u64::from(step / 1000) + rng.below(30);
                    list.push((number, index));
                    median.add(index, number);
                }
                None => median.remove(index),
            }
            list.sort_unstable();
            last = list.get(list.len().saturating_sub(1) / 2).map_or(last, |&(number, _)| number);
            assert_eq!(median.get(), last, "step {step}");
        }
    }
}
