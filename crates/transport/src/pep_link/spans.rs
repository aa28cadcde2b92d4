//! A set of numbers kept as spans, for packet numbers that arrived and for stream bytes that arrived out of order.

use std::collections::VecDeque;

/// Disjoint half-open spans in ascending order, never touching.
#[derive(Clone, Debug, Default)]
pub(super) struct Spans(VecDeque<(u64, u64)>);

impl Spans {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn first(&self) -> Option<(u64, u64)> {
        self.0.front().copied()
    }

    pub(super) fn pop_first(&mut self) -> Option<(u64, u64)> {
        self.0.pop_front()
    }

    /// The spans, highest first.
    pub(super) fn descending(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().rev().copied()
    }

    /// Adds `start..end` and tells how many of its numbers were not there before.
    pub(super) fn insert(&mut self, start: u64, end: u64) -> u64 {
        if start >= end {
            return 0;
        }
        // Nearly every insertion continues the highest span, so that one is looked at before any search.
        match self.0.back_mut() {
            Some(last) if last.1 == start => {
                last.1 = end;
                return end - start;
            }
            Some(last) if last.1 > start => {}
            _ => {
                self.0.push_back((start, end));
                return end - start;
            }
        }
        let from = self.0.partition_point(|span| span.1 < start);
        let mut upto = from;
        let (mut low, mut high, mut known) = (start, end, 0);
        while let Some(&(s, e)) = self.0.get(upto).filter(|span| span.0 <= end) {
            known += e.min(end).saturating_sub(s.max(start));
            low = low.min(s);
            high = high.max(e);
            upto += 1;
        }
        if let Some(place) = self.0.get_mut(from).filter(|_| upto > from) {
            *place = (low, high);
            if upto > from + 1 {
                self.0.drain(from + 1..upto);
            }
        } else {
            self.0.insert(from, (low, high));
        }
        (end - start) - known
    }

    /// Drops every span that lies wholly below `floor`.
    pub(super) fn forget_below(&mut self, floor: u64) {
        while self.0.front().is_some_and(|span| span.1 <= floor) {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_join_when_the_hole_is_filled() {
        let mut set = Spans::default();
        assert_eq!(set.insert(0, 3), 3);
        assert_eq!(set.insert(5, 8), 3);
        assert_eq!(set.insert(10, 11), 1);
        assert_eq!(set.insert(3, 5), 2);
        assert_eq!(set.descending().collect::<Vec<_>>(), [(10, 11), (0, 8)]);
        assert_eq!(set.insert(2, 12), 3);
        assert_eq!(set.descending().collect::<Vec<_>>(), [(0, 12)]);
        assert_eq!(set.insert(4, 4), 0);
    }

    #[test]
    fn a_span_below_all_others_goes_first() {
        let mut set = Spans::default();
        assert_eq!(set.insert(10, 12), 2);
        assert_eq!(set.insert(4, 6), 2);
        assert_eq!(set.insert(5, 11), 4);
        assert_eq!(set.first(), Some((4, 12)));
        set.forget_below(11);
        assert_eq!(set.len(), 1);
        set.forget_below(12);
        assert!(set.is_empty());
    }

    #[test]
    fn agrees_with_a_bit_per_number() {
        let mut rng = bentpipe_units::Rng::stream(7, "spans", 0, "test");
        for _ in 0..200 {
            let (mut set, mut bits) = (Spans::default(), [false; 64]);
            for _ in 0..20 {
                let start = rng.below(64);
                let end = (start + rng.below(9)).min(64);
                let fresh = (start..end).filter(|&n| !bits[n as usize]).count() as u64;
                bits[start as usize..end as usize].fill(true);
                assert_eq!(set.insert(start, end), fresh);
                let held: Vec<_> = set.descending().collect();
                assert!(held.windows(2).all(|pair| pair[1].1 < pair[0].0), "{held:?}");
                let total: u64 = held.iter().map(|span| span.1 - span.0).sum();
                assert_eq!(total, bits.iter().filter(|&&bit| bit).count() as u64);
            }
        }
    }
}
