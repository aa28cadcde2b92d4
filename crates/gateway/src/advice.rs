//! Throughput advice: the rate that a gateway advises a subscriber's senders not to exceed (draft-ietf-scone-protocol-07).

use bentpipe_queue::{FlowId, FlowTable};
use bentpipe_units::{Duration, Instant, Rate};

/// Time without a packet after which a subscriber is idle: the monitoring period (section 5.2).
const IDLE: Duration = Duration::from_secs(67);

/// The rate that is advised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// This one, to every subscriber.
    Rate(Rate),
    /// An equal share of the capacity for every subscriber who is not idle.
    Share,
}

/// Gives advice to subscribers.
#[derive(Debug)]
pub struct Advisor {
    advice: Advice,
    capacity: Rate,
    /// Subscribers and the time of the last packet to each; idle ones are removed soon.
    seen: FlowTable<Instant>,
}

impl Advisor {
    /// An advisor of a gateway with this capacity.
    #[must_use]
    pub fn new(advice: Advice, capacity: Rate) -> Self {
        Self { advice, capacity, seen: FlowTable::default() }
    }

    /// The capacity changes.
    pub fn set_capacity(&mut self, capacity: Rate) {
        self.capacity = capacity;
    }

    /// A packet to a subscriber arrives.
    pub fn observe(&mut self, subscriber: FlowId, now: Instant) {
        if self.advice == Advice::Share {
            *self.seen.get_or_insert_with(subscriber, || now) = now;
            self.seen.sweep(2, |_, last| now.since(*last) < IDLE);
        }
    }

    /// Returns the rate that is advised now.
    #[must_use]
    pub fn rate(&self) -> Rate {
        match self.advice {
            Advice::Rate(rate) => rate,
            Advice::Share => Rate::from_bps(self.capacity.as_bps() / self.seen.len().max(1) as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 20 Mbit/s among four subscribers are 5 Mbit/s, among three of them 6.667 Mbit/s. An idle one is forgotten within the 16
    /// packets that sweep a table of 32 slots.
    #[test]
    fn capacity_is_shared_by_subscribers_who_are_not_idle() {
        let at = |s| Instant::ZERO + Duration::from_secs(s);
        let mut advisor = Advisor::new(Advice::Share, Rate::from_bps(20_000_000));
        assert_eq!(advisor.rate().as_bps(), 20_000_000);
        (1..=4).for_each(|user| advisor.observe(FlowId(user), at(0)));
        (0..16).for_each(|_| advisor.observe(FlowId(1), at(66)));
        assert_eq!(advisor.rate().as_bps(), 5_000_000);
        (2..=3).for_each(|user| advisor.observe(FlowId(user), at(66)));
        (0..16).for_each(|_| advisor.observe(FlowId(1), at(67)));
        assert_eq!(advisor.rate().as_bps(), 6_666_666);
        advisor.set_capacity(Rate::from_bps(3_000_000));
        assert_eq!(advisor.rate().as_bps(), 1_000_000);
    }

    #[test]
    fn a_fixed_rate_does_not_depend_on_the_load() {
        let mut advisor = Advisor::new(Advice::Rate(Rate::from_bps(2_000_000)), Rate::from_bps(20_000_000));
        (1..=4).for_each(|user| advisor.observe(FlowId(user), Instant::ZERO));
        assert_eq!(advisor.rate().as_bps(), 2_000_000);
    }
}
