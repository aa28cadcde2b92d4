//! Delay lines that links share.

use std::collections::VecDeque;

use bentpipe_units::Instant;

use crate::clock::EventNumber;
use crate::ids::PacketId;

/// Packets on all links of a group, in the order in which they arrive.
///
/// The links deliver in order and delay all packets alike, so that a packet arrives after nearly all that were sent before
/// it. One event for the first packet replaces one for each link, and the packets that arrive next are known.
#[derive(Default)]
pub struct SharedLine(VecDeque<(Instant, PacketId)>);

impl SharedLine {
    /// Adds a packet that arrives at `arrival`, behind those of the same time. Returns true if it is the first, so that its
    /// arrival has to be scheduled.
    #[inline]
    pub fn add(&mut self, arrival: Instant, packet: PacketId) -> bool {
        match self.0.back() {
            Some((last, _)) if *last > arrival => self.overtake(arrival, packet),
            last => {
                let is_first = last.is_none();
                self.0.push_back((arrival, packet));
                is_first
            }
        }
    }

    /// [`SharedLine::add`] for a packet that arrives before the last.
    #[inline(never)]
    fn overtake(&mut self, arrival: Instant, packet: PacketId) -> bool {
        // It overtakes few of many, so that the search begins at the end, with steps that double.
        let is_overtaken = |place: usize| self.0[place].0 > arrival;
        let (len, mut reach) = (self.0.len(), 1);
        while reach < len && is_overtaken(len - reach) {
            reach *= 2;
        }
        let (mut place, mut overtaken) = (len.saturating_sub(reach), len - 1);
        while place < overtaken {
            let middle = place.midpoint(overtaken);
            if is_overtaken(middle) { overtaken = middle } else { place = middle + 1 }
        }
        self.0.insert(place, (arrival, packet));
        place == 0
    }

    /// Removes the first packet.
    #[inline]
    pub fn pop(&mut self) -> Option<PacketId> {
        self.0.pop_front().map(|(_, packet)| packet)
    }

    /// The first packet and its arrival. Of packets that arrive at the same time the one with the lowest number is first.
    #[inline]
    pub fn first(&mut self, number_of: impl Fn(PacketId) -> EventNumber) -> Option<(Instant, PacketId)> {
        let &(arrival, _) = self.0.front()?;
        if self.0.get(1).is_some_and(|(second, _)| *second == arrival) {
            self.sort_head(arrival, number_of);
        }
        self.0.front().copied()
    }

    /// Puts the packet with the lowest number of those that arrive at `arrival` at the head.
    #[inline(never)]
    fn sort_head(&mut self, arrival: Instant, number_of: impl Fn(PacketId) -> EventNumber) {
        let tied = self.0.iter().take_while(|(other, _)| *other == arrival);
        let lowest = (0..).zip(tied).min_by_key(|(_, (_, packet))| number_of(*packet));
        if let Some(first) = lowest.map(|(place, _)| place).and_then(|place| self.0.remove(place)) {
            self.0.push_front(first);
        }
    }

    /// The packet with this number of others before it.
    #[inline]
    pub fn get(&self, place: usize) -> Option<&PacketId> {
        self.0.get(place).map(|(_, packet)| packet)
    }

    /// The packets, each after its time of arrival.
    pub fn iter(&self) -> impl Iterator<Item = (Instant, PacketId)> {
        self.0.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_units::Rng;

    use super::*;
    use crate::clock::Clock;
    use crate::ids::Id;

    fn order(line: &mut SharedLine, number_of: impl Fn(PacketId) -> EventNumber) -> Vec<u32> {
        std::iter::from_fn(|| {
            line.first(&number_of);
            line.pop().map(Id::index)
        })
        .collect()
    }

    #[test]
    fn packets_are_sorted_by_arrival() {
        let mut line = SharedLine::default();
        let added = [(10, 0), (30, 1), (20, 2), (20, 3), (9, 4), (10, 5)]
            .map(|(arrival, id)| line.add(Instant::from_nanos(arrival), PacketId::new(id)));
        assert_eq!(added, [true, false, false, false, true, false]);
        assert_eq!(order(&mut line, |_| EventNumber::UNKNOWN), [4, 0, 5, 2, 3, 1]);
    }

    /// Compared with a list that is sorted by time, packets of the same time in the order in which they were added.
    #[test]
    fn packets_that_overtake_few_or_many_are_sorted() {
        let mut rng = Rng::stream(1, "shared line", 0, "test");
        for reach in [1, 10, 1000, 100_000] {
            let mut line = SharedLine::default();
            let mut expected: Vec<(u64, u32)> =
                (0..2000).map(|id| (u64::from(id) * 10 + rng.below(reach), id)).collect();
            for &(arrival, id) in &expected {
                line.add(Instant::from_nanos(arrival), PacketId::new(id));
            }
            expected.sort();
            let found = line.iter().map(|(arrival, packet)| (arrival, packet.index()));
            assert!(
                found.eq(expected.iter().map(|&(arrival, id)| (Instant::from_nanos(arrival), id))),
                "{reach}"
            );
        }
    }

    #[test]
    fn packets_of_the_same_time_arrive_by_number() {
        let (mut line, mut clock) = (SharedLine::default(), Clock::default());
        let mut numbers = [(); 4].map(|()| clock.reserve());
        numbers.swap(1, 3);
        for (arrival, id) in [(1, 0), (5, 1), (5, 2), (5, 3)] {
            line.add(Instant::from_nanos(arrival), PacketId::new(id));
        }
        assert_eq!(order(&mut line, |packet| numbers[packet.index() as usize]), [0, 3, 2, 1]);
    }
}
