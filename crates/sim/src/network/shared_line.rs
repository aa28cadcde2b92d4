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
        let place = self.0.partition_point(|(other, _)| *other <= arrival);
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
    pub fn get(&self, place: usize) -> Option<PacketId> {
        self.0.get(place).map(|(_, packet)| *packet)
    }

    /// The packets, each after its time of arrival.
    pub fn iter(&self) -> impl Iterator<Item = (Instant, PacketId)> {
        self.0.iter().copied()
    }
}

#[cfg(test)]
mod tests {
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
