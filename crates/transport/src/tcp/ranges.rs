//! Parts of the stream: what arrived ahead at the receiver, what was acknowledged ahead at the sender.

/// The most intervals kept. More are forgotten, as a receiver may discard what is out of order (RFC 9293
/// section 3.8.6) and a sender may send again what arrived, so work and memory are bounded whatever comes.
const MOST: usize = 4096;

/// Half-open intervals: ascending, apart from each other. Their memory is kept for the next ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[(u64, u64)] {
        &self.0
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds an interval; how much of it is new.
    pub(super) fn insert(&mut self, mut start: u64, mut end: u64) -> u64 {
        // The common cases, an interval that continues the last one or lies behind it, need no search.
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
        } else if self.0.len() < MOST {
            self.0.insert(first, (start, end));
        } else {
            return 0;
        }
        length - known
    }

    /// Takes off what reaches down to `position`; where it leads to.
    pub(super) fn take_from(&mut self, mut position: u64) -> u64 {
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

    /// Forgets all below `position`; how much that was.
    pub(super) fn forget_below(&mut self, position: u64) -> u64 {
        let gone = self.0.partition_point(|range| range.1 <= position);
        let mut forgotten = self.0.drain(..gone).map(|(start, end)| end - start).sum();
        if let Some(first) = self.0.first_mut().filter(|first| first.0 < position) {
            forgotten += position - first.0;
            first.0 = position;
        }
        forgotten
    }

    /// The interval that `position` lies in.
    pub(super) fn containing(&self, position: u64) -> Option<(u64, u64)> {
        let at = self.0.partition_point(|range| range.1 <= position);
        self.0.get(at).copied().filter(|range| range.0 <= position)
    }

    /// How much of `from..to` is covered.
    pub(super) fn covered(&self, from: u64, to: u64) -> u64 {
        let first = self.0.partition_point(|range| range.1 <= from);
        let within = self.0[first..].iter().take_while(|range| range.0 < to);
        within.map(|&(start, end)| end.min(to) - start.max(from)).sum()
    }

    /// The first part of `from..to` that is not covered; empty, at `to`, where all is.
    pub(super) fn gap(&self, from: u64, to: u64) -> (u64, u64) {
        let mut at = self.0.partition_point(|range| range.1 <= from);
        let mut start = from;
        if let Some(range) = self.0.get(at).filter(|range| range.0 <= start) {
            start = range.1;
            at += 1;
        }
        let start = start.min(to);
        (start, self.0.get(at).map_or(to, |range| range.0.min(to)))
    }

    /// The last part of `from..to` that is not covered, where any is.
    pub(super) fn last_gap(&self, from: u64, mut to: u64) -> Option<(u64, u64)> {
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
    fn agrees_with_a_bit_per_position() {
        let mut rng = bentpipe_units::Rng::stream(7, "ranges", 0, "test");
        for _ in 0..500 {
            let (mut ranges, mut bits) = (Ranges::new(), [false; 64]);
            let mut floor = 0;
            for _ in 0..20 {
                let start = floor + rng.below(60 - floor);
                let end = (start + 1 + rng.below(9)).min(64);
                let (from, to) = (start as usize, end as usize);
                let fresh = (from..to).filter(|&n| !bits[n]).count() as u64;
                bits[from..to].fill(true);
                assert_eq!(ranges.insert(start, end), fresh);
                if rng.below(8) == 0 {
                    floor += rng.below(4).min(50 - floor.min(50));
                    let below = bits[..floor as usize].iter().filter(|&&bit| bit).count() as u64;
                    bits[..floor as usize].fill(false);
                    assert_eq!(ranges.forget_below(floor), below);
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
}
