//! Delay lines that links share.

use std::collections::VecDeque;

use bentpipe_units::Instant;

use crate::clock::EventNumber;
use crate::ids::PacketId;

/// A packet that may overtake more than this is set aside and sorted with others: to move this number for each packet costs more.
const MANY_OVERTAKEN: usize = 64;

/// Packets that are set aside until they are sorted.
const BATCH: usize = 1024;

/// A packet that overtakes this number or more is not set aside, so that a sort moves few of the packets that are in order.
const MOST_OVERTAKEN: usize = 4 * BATCH;

/// Packets on all links of a group, in the order in which they arrive.
///
/// The links deliver in order and delay all packets alike, so that a packet arrives after nearly all that were sent before
/// it. One event for the first packet replaces one for each link, and the packets that arrive next are known.
#[derive(Default)]
pub struct SharedLine {
    /// In order of arrival.
    sorted: VecDeque<(Instant, PacketId)>,
    /// Packets set aside, and the earliest arrival of them. They are sorted before that.
    unsorted: Vec<(Instant, PacketId)>,
    unsorted_first: Option<Instant>,
}

impl SharedLine {
    /// Adds a packet that arrives at `arrival`, behind those of the same time. Returns true if it is the first, so that its
    /// arrival has to be scheduled.
    #[inline]
    pub fn add(&mut self, arrival: Instant, packet: PacketId) -> bool {
        match self.sorted.back() {
            Some((last, _)) if *last > arrival || self.unsorted_first.is_some() => {
                self.overtake(arrival, packet)
            }
            last => {
                let is_first = last.is_none();
                self.sorted.push_back((arrival, packet));
                is_first
            }
        }
    }

    /// [`SharedLine::add`] for a packet that arrives before another, or while some are set aside.
    #[inline(never)]
    fn overtake(&mut self, arrival: Instant, packet: PacketId) -> bool {
        if let Some(first) = self.unsorted_first {
            self.unsorted.push((arrival, packet));
            self.unsorted_first = Some(first.min(arrival));
            let is_first = self.sorted.front().is_none_or(|(first, _)| arrival < *first);
            if is_first || self.unsorted.len() == BATCH {
                self.sort();
            }
            return is_first;
        }
        // It overtakes few of many, so that the search begins at the end, with steps that double.
        let is_overtaken = |place: usize| self.sorted[place].0 > arrival;
        let (len, mut reach) = (self.sorted.len(), 1);
        while reach < len && is_overtaken(len - reach) {
            reach *= 2;
        }
        if reach > MANY_OVERTAKEN && len > MOST_OVERTAKEN && !is_overtaken(len - MOST_OVERTAKEN) {
            self.unsorted.push((arrival, packet));
            self.unsorted_first = Some(arrival);
            return false;
        }
        let (mut place, mut overtaken) = (len.saturating_sub(reach), len - 1);
        while place < overtaken {
            let middle = place.midpoint(overtaken);
            if is_overtaken(middle) { overtaken = middle } else { place = middle + 1 }
        }
        self.sorted.insert(place, (arrival, packet));
        place == 0
    }

    /// Sorts the packets set aside among the others.
    #[inline(never)]
    fn sort(&mut self) {
        let Some(first) = self.unsorted_first.take() else { return };
        let place = self.sorted.partition_point(|(arrival, _)| *arrival <= first);
        self.unsorted.splice(..0, self.sorted.drain(place..));
        self.unsorted.sort_by_key(|(arrival, _)| *arrival);
        self.sorted.extend(self.unsorted.drain(..));
    }

    /// Removes the first packet.
    #[inline]
    pub fn pop(&mut self) -> Option<PacketId> {
        self.sorted.pop_front().map(|(_, packet)| packet)
    }

    /// The first packet and its arrival. Of packets that arrive at the same time the one with the lowest number is first.
    #[inline]
    pub fn first(&mut self, number_of: impl Fn(PacketId) -> EventNumber) -> Option<(Instant, PacketId)> {
        if let Some(first) = self.unsorted_first
            && self.sorted.front().is_none_or(|(arrival, _)| *arrival >= first)
        {
            self.sort();
        }
        let &(arrival, _) = self.sorted.front()?;
        if self.sorted.get(1).is_some_and(|(second, _)| *second == arrival) {
            self.sort_head(arrival, number_of);
        }
        self.sorted.front().copied()
    }

    /// Puts the packet with the lowest number of those that arrive at `arrival` at the head.
    #[inline(never)]
    fn sort_head(&mut self, arrival: Instant, number_of: impl Fn(PacketId) -> EventNumber) {
        let tied = self.sorted.iter().take_while(|(other, _)| *other == arrival);
        let lowest = (0..).zip(tied).min_by_key(|(_, (_, packet))| number_of(*packet));
        if let Some(first) = lowest.map(|(place, _)| place).and_then(|place| self.sorted.remove(place)) {
            self.sorted.push_front(first);
        }
    }

    /// The packet with this number of others before it.
    #[inline]
    pub fn get(&self, place: usize) -> Option<&PacketId> {
        self.sorted.get(place).map(|(_, packet)| packet)
    }

    /// The packets, each after its time of arrival; those set aside come last.
    pub fn iter(&self) -> impl Iterator<Item = (Instant, PacketId)> {
        self.sorted.iter().chain(&self.unsorted).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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

    /// Compared with a list that is sorted by time, packets of the same time in the order in which they were added; a third of
    /// them arrive between the others.
    #[test]
    fn packets_that_overtake_few_or_many_are_sorted() {
        let mut rng = Rng::stream(1, "shared line", 0, "test");
        for reach in [1, 10, 1000, 100_000] {
            let mut line = SharedLine::default();
            let mut expected = BTreeSet::new();
            let arrive = |line: &mut SharedLine, expected: &mut BTreeSet<(u64, u32)>| {
                line.first(|_| EventNumber::UNKNOWN);
                let next = expected.pop_first();
                assert_eq!(line.pop().map(Id::index), next.map(|(_, id)| id), "{reach}");
                line.first(|_| EventNumber::UNKNOWN);
                next.is_some()
            };
            for id in 0..20_000 {
                let arrival = u64::from(id) * 10 + 20_000 + rng.below(reach);
                let is_first = expected.first().is_none_or(|&(first, _)| arrival < first);
                expected.insert((arrival, id));
                assert_eq!(line.add(Instant::from_nanos(arrival), PacketId::new(id)), is_first, "{reach}");
                if id % 3 == 0 {
                    arrive(&mut line, &mut expected);
                }
                let waiting = line.iter().map(|(at, packet)| (at.as_nanos(), packet.index()));
                assert!(id % 1999 > 0 || waiting.collect::<BTreeSet<_>>() == expected, "{reach}");
            }
            while arrive(&mut line, &mut expected) {}
        }
    }

    /// A packet each nanosecond, from 10 000 ns on, and two that overtake 100.
    fn with_two_set_aside() -> SharedLine {
        let mut line = SharedLine::default();
        for id in 0..5000 {
            line.add(Instant::from_nanos(10_000 + u64::from(id)), PacketId::new(id));
        }
        let added = [(14_900, 5000), (14_899, 5001)]
            .map(|(arrival, id)| line.add(Instant::from_nanos(arrival), PacketId::new(id)));
        assert_eq!((added, line.unsorted.len()), ([false; 2], 2));
        line
    }

    #[test]
    fn packets_set_aside_arrive_in_order() {
        let expected: Vec<_> = (0..4900).chain([5001, 4900, 5000]).chain(4901..5000).collect();
        let found = order(&mut with_two_set_aside(), |_| EventNumber::UNKNOWN);
        assert!(found == expected, "{:?}", found.iter().zip(&expected).find(|(one, other)| one != other));
    }

    #[test]
    fn while_packets_are_set_aside_one_is_first_only_if_it_arrives_before_all() {
        let mut line = with_two_set_aside();
        let added = [(10_000, 6000), (9_999, 6001)]
            .map(|(arrival, id)| line.add(Instant::from_nanos(arrival), PacketId::new(id)));
        assert_eq!(added, [false, true]);
        assert_eq!(line.pop().map(Id::index), Some(6001));
        assert_eq!(order(&mut line, |_| EventNumber::UNKNOWN)[..3], [0, 6000, 1]);
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
