//! A set of numbers kept as disjoint ranges: stream positions that arrived out of order or were SACKed, and packet
//! numbers that arrived.

/// Disjoint half-open ranges in ascending order that never touch, at most `MAX` of them. The buffer is kept for reuse.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges<const MAX: usize = { usize::MAX }>(Vec<(u64, u64)>);

impl<const MAX: usize> Ranges<MAX> {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[(u64, u64)] {
        &self.0
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds `start..end` and returns how many of its numbers are new. A range that would be one too many is not added.
    #[inline]
    pub(crate) fn insert(&mut self, mut start: u64, mut end: u64) -> u64 {
        if start >= end {
            return 0;
        }
        // The common cases, extending the last range or appending a new one, need no search.
        let first = match self.0.last_mut() {
            Some(last) if last.1 == start => {
                last.1 = end;
                return end - start;
            }
            Some(last) if last.1 >= start => self.0.partition_point(|range| range.1 < start),
            _ => self.0.len(),
        };
        let (mut after, mut known, length) = (first, 0, end - start);
        let (low, high) = (start, end);
        while let Some(&(from, to)) = self.0.get(after).filter(|range| range.0 <= end) {
            known += to.min(high).saturating_sub(from.max(low));
            start = start.min(from);
            end = end.max(to);
            after += 1;
        }
        if first < after {
            self.0[first] = (start, end);
            self.0.drain(first + 1..after);
        } else if self.0.len() < MAX {
            self.0.insert(first, (start, end));
        } else {
            return 0;
        }
        length - known
    }

    /// Removes the lowest range.
    pub(crate) fn remove_first(&mut self) {
        if !self.0.is_empty() {
            self.0.remove(0);
        }
    }

    /// Removes the ranges that continue `position` without a gap and returns the end of the last one, or `position`.
    pub(crate) fn take_from(&mut self, mut position: u64) -> u64 {
        let mut taken = 0;
        while let Some(&(start, end)) = self.0.get(taken) {
            if start > position {
                break;
            }
            position = position.max(end);
            taken += 1;
        }
        self.0.drain(..taken);
        position
    }

    /// Removes every range that lies entirely below `position` and returns how many numbers that removed.
    #[inline]
    pub(crate) fn remove_below(&mut self, position: u64) -> u64 {
        // Most calls remove nothing.
        if self.0.first().is_none_or(|first| first.1 > position) {
            return 0;
        }
        let count = self.0.partition_point(|range| range.1 <= position);
        self.0.drain(..count).map(|(start, end)| end - start).sum()
    }

    /// Removes every number below `position` and returns how many that were.
    pub(crate) fn trim_below(&mut self, position: u64) -> u64 {
        let mut removed = self.remove_below(position);
        if let Some(first) = self.0.first_mut().filter(|first| first.0 < position) {
            removed += position - first.0;
            first.0 = position;
        }
        removed
    }

    /// The range that contains `position`.
    pub(crate) fn containing(&self, position: u64) -> Option<(u64, u64)> {
        let at = self.0.partition_point(|range| range.1 <= position);
        self.0.get(at).copied().filter(|range| range.0 <= position)
    }

    /// Number of elements of `from..to` in the set.
    pub(crate) fn covered(&self, from: u64, to: u64) -> u64 {
        let first = self.0.partition_point(|range| range.1 <= from);
        let within = self.0[first..].iter().take_while(|range| range.0 < to);
        within.map(|&(start, end)| end.min(to) - start.max(from)).sum()
    }

    /// The first gap in `from..to`; `(to, to)` without a gap.
    pub(crate) fn gap(&self, from: u64, to: u64) -> (u64, u64) {
        let mut at = self.0.partition_point(|range| range.1 <= from);
        let mut start = from;
        if let Some(range) = self.0.get(at).filter(|range| range.0 <= start) {
            start = range.1;
            at += 1;
        }
        let start = start.min(to);
        (start, self.0.get(at).map_or(to, |range| range.0.min(to)))
    }

    /// The last gap in `from..to`, if any.
    pub(crate) fn last_gap(&self, from: u64, mut to: u64) -> Option<(u64, u64)> {
        for &(start, end) in self.0.iter().rev() {
            if end < to {
                return Some((end.max(from), to));
            }
            to = start;
        }
        (from < to).then_some((from, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_agree_with_one_bit_per_number() {
        let mut rng = bentpipe_units::Rng::stream(7, "ranges", 0, "test");
        for _ in 0..500 {
            let (mut ranges, mut bits) = (Ranges::<{ usize::MAX }>::new(), [false; 64]);
            let mut floor = 0;
            for _ in 0..20 {
                let start = floor + rng.below(60 - floor);
                let end = (start + rng.below(10)).min(64);
                let (from, to) = (start as usize, end as usize);
                let new = (from..to).filter(|&n| !bits[n]).count() as u64;
                bits[from..to].fill(true);
                assert_eq!(ranges.insert(start, end), new);
                if rng.below(8) == 0 {
                    floor += rng.below(4).min(50 - floor.min(50));
                    let below = bits[..floor as usize].iter().filter(|&&bit| bit).count() as u64;
                    bits[..floor as usize].fill(false);
                    assert_eq!(ranges.trim_below(floor), below);
                }
                assert!(ranges.as_slice().windows(2).all(|pair| pair[0].1 < pair[1].0), "{ranges:?}");
                let (low, high) = (floor as usize, 64);
                let held = |n: u64| bits[n as usize];
                assert_eq!(ranges.covered(start, 64), (start..64).filter(|&n| held(n)).count() as u64);
                let first = (start..64).find(|&n| !held(n)).unwrap_or(64);
                let upto = (first..64).find(|&n| held(n)).unwrap_or(64);
                assert_eq!(ranges.gap(start, 64), (first, upto));
                let last = (low..high).rev().find(|&n| !bits[n]).map(|n| n as u64);
                assert_eq!(ranges.last_gap(floor, 64).map(|gap| gap.1 - 1), last);
                assert_eq!(ranges.containing(start).is_some(), held(start));
            }
        }
    }

    /// Numbers from 0 to 63, random ranges of them in the set, and a random part `from..to`.
    #[test]
    fn queries_of_a_part_agree_with_one_bit_per_number() {
        let mut rng = bentpipe_units::Rng::stream(8, "ranges", 0, "test");
        for _ in 0..2000 {
            let (mut ranges, mut bits) = (Ranges::<{ usize::MAX }>::new(), [false; 64]);
            for _ in 0..rng.below(8) {
                let start = rng.below(64);
                let end = (start + rng.below(12)).min(64);
                ranges.insert(start, end);
                bits[start as usize..end as usize].fill(true);
            }
            let from = rng.below(65);
            let to = from + rng.below(65 - from);
            let held = |n: &u64| bits[*n as usize];
            let first_missing = (from..64).find(|n| !held(n)).unwrap_or(64);
            assert_eq!(ranges.covered(from, to), (from..to).filter(held).count() as u64);
            let start = first_missing.min(to);
            assert_eq!(ranges.gap(from, to), (start, (start..to).find(held).unwrap_or(to)));
            let begin = (0..from).rev().find(|n| !held(n)).map_or(0, |n| n + 1);
            let around = (first_missing > from).then_some((begin, first_missing));
            assert_eq!(ranges.containing(from), around);

            let mut above = ranges.clone();
            let removed = (0..from).filter(held).count() as u64;
            assert_eq!(above.trim_below(from), removed);
            let last_gap = (from..64).rev().find(|n| !held(n)).map(|last| {
                let start = (from..last).rev().find(held).map_or(from, |n| n + 1);
                (start, last + 1)
            });
            assert_eq!(above.last_gap(from, 64), last_gap);
            // What continues `from` is taken, the rest stays.
            assert_eq!(above.take_from(from), first_missing);
            assert_eq!(above.covered(0, 64), (first_missing..64).filter(held).count() as u64);

            let whole = ranges.as_slice().iter().filter(|range| range.1 <= from);
            assert_eq!(ranges.clone().remove_below(from), whole.map(|range| range.1 - range.0).sum::<u64>());
            let rest = ranges.as_slice().iter().skip(1).copied().collect::<Vec<_>>();
            ranges.remove_first();
            assert_eq!(ranges.as_slice(), rest);
            assert_eq!(ranges.is_empty(), rest.is_empty());
            ranges.clear();
            assert!(ranges.is_empty());
        }
    }

    #[test]
    fn filling_the_gaps_joins_the_ranges() {
        let mut ranges = Ranges::<{ usize::MAX }>::new();
        assert_eq!(ranges.insert(0, 3), 3);
        assert_eq!(ranges.insert(5, 8), 3);
        assert_eq!(ranges.insert(10, 11), 1);
        assert_eq!(ranges.insert(3, 5), 2);
        assert_eq!(ranges.as_slice(), [(0, 8), (10, 11)]);
        assert_eq!(ranges.insert(2, 12), 3);
        assert_eq!(ranges.as_slice(), [(0, 12)]);
        assert_eq!(ranges.insert(4, 4), 0);
    }

    #[test]
    fn remove_below_keeps_a_range_that_reaches_above() {
        let mut ranges = Ranges::<{ usize::MAX }>::new();
        assert_eq!(ranges.insert(10, 12), 2);
        assert_eq!(ranges.insert(4, 6), 2);
        assert_eq!(ranges.insert(5, 11), 4);
        assert_eq!(ranges.remove_below(11), 0);
        assert_eq!(ranges.as_slice(), [(4, 12)]);
        assert_eq!(ranges.remove_below(12), 8);
        assert!(ranges.is_empty());
    }

    #[test]
    fn a_range_beyond_the_limit_is_not_added() {
        let mut ranges = Ranges::<2>::new();
        assert_eq!((ranges.insert(0, 1), ranges.insert(4, 5), ranges.insert(2, 3)), (1, 1, 0));
        assert_eq!(ranges.insert(1, 2), 1);
        assert_eq!(ranges.as_slice(), [(0, 2), (4, 5)]);
    }
}
