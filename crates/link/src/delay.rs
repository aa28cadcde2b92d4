//! Propagation delay, and the packets that it holds.

use std::collections::VecDeque;

use bentpipe_scenario::{Delay, Per};
use bentpipe_units::{Duration, Instant, Rng};

/// Delay of the packets of one direction of a link.
#[derive(Clone, Debug)]
pub enum DelayModel {
    /// The same for every packet.
    Fixed(Duration),
    /// Drawn for each packet.
    Drawn {
        /// True if no packet overtakes another.
        ordered: bool,
    },
    /// Drawn for each connection; the host keeps it.
    PerConnection,
}

/// Delay model of one direction, with its random stream.
#[derive(Clone, Debug)]
pub(crate) struct Propagation {
    pub model: DelayModel,
    pub distribution: Delay,
    rng: Rng,
}

impl Propagation {
    pub(crate) fn new(delay: &Delay, seed: u64, name: &str) -> Self {
        let model = match (delay.per, delay.fixed()) {
            (Per::Connection, _) => DelayModel::PerConnection,
            (Per::Packet { ordered: true }, Some(delay)) => DelayModel::Fixed(delay),
            (Per::Packet { ordered }, _) => DelayModel::Drawn { ordered },
        };
        Self { model, distribution: delay.clone(), rng: Rng::stream(seed, name, 0, "delay") }
    }

    #[inline(never)]
    pub(crate) fn draw(&mut self) -> Duration {
        self.distribution.draw(&mut self.rng)
    }
}

/// Packets that arrive in the order in which they were sent; only the first needs an event.
#[derive(Clone, Debug)]
pub struct DelayLine<P> {
    packets: VecDeque<(Instant, P)>,
    last_arrival: Instant,
    /// Delay of the connection that owns the line, where each connection has its own.
    pub delay: Duration,
}

impl<P> Default for DelayLine<P> {
    fn default() -> Self {
        Self { packets: VecDeque::new(), last_arrival: Instant::ZERO, delay: Duration::ZERO }
    }
}

impl<P> DelayLine<P> {
    /// Adds a packet that arrives at `arrival`, or with the last packet if that is later. Returns the time for which the
    /// host schedules the line if it held no packet.
    #[inline]
    pub fn push(&mut self, arrival: Instant, packet: P) -> Option<Instant> {
        let arrival = arrival.max(self.last_arrival);
        self.last_arrival = arrival;
        self.packets.push_back((arrival, packet));
        (self.packets.len() == 1).then_some(arrival)
    }

    /// Removes the packet that arrives now; then the host schedules the line for the [next
    /// arrival](Self::next_arrival).
    #[inline]
    pub fn pop(&mut self) -> Option<P> {
        self.packets.pop_front().map(|(_, packet)| packet)
    }

    /// Arrival time of the first packet.
    #[inline]
    #[must_use]
    pub fn next_arrival(&self) -> Option<Instant> {
        self.packets.front().map(|&(arrival, _)| arrival)
    }

    /// The packet with this number of others before it.
    #[inline]
    #[must_use]
    pub fn get(&self, place: usize) -> Option<&P> {
        self.packets.get(place).map(|(_, packet)| packet)
    }

    /// The packets, each after its time of arrival.
    pub fn iter(&self) -> impl Iterator<Item = &(Instant, P)> {
        self.packets.iter()
    }

    /// Arrival time of the last packet added.
    #[must_use]
    pub fn last_arrival(&self) -> Instant {
        self.last_arrival
    }

    /// Lets no packet added later arrive before `arrival`.
    pub fn keep_behind(&mut self, arrival: Instant) {
        self.last_arrival = self.last_arrival.max(arrival);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_line_keeps_order_and_schedules_only_its_head() {
        let at = Instant::from_nanos;
        let mut line = DelayLine::default();
        assert_eq!(line.push(at(10), 'a'), Some(at(10)));
        assert_eq!(line.push(at(5), 'b'), None);
        assert_eq!(line.last_arrival(), at(10));
        assert_eq!((line.pop(), line.next_arrival()), (Some('a'), Some(at(10))));
        assert_eq!((line.pop(), line.next_arrival()), (Some('b'), None));
        assert_eq!(line.pop(), None);
    }

    /// A packet is sent at 5 and due at 30, but the last one before the line was taken over arrives at 40.
    #[test]
    fn packets_do_not_arrive_before_the_time_they_are_kept_behind() {
        let at = Instant::from_nanos;
        let mut line = DelayLine::default();
        line.keep_behind(at(40));
        assert_eq!(line.push(at(30), 'a'), Some(at(40)));
        // An earlier limit changes nothing.
        line.keep_behind(at(10));
        assert_eq!(line.push(at(50), 'b'), None);
        assert_eq!(line.iter().collect::<Vec<_>>(), [&(at(40), 'a'), &(at(50), 'b')]);
        assert_eq!([line.get(0), line.get(1), line.get(2)], [Some(&'a'), Some(&'b'), None]);
    }
}
