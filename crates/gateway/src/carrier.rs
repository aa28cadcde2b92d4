//! A carrier that several transmit queues share.

use bentpipe_queue::tree::{Next, NodeId, Share, ShareTree};
use bentpipe_units::{Duration, Id as _, Instant, Rate};

use crate::Regulator;

/// A turn of the carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// This leaf's queue sends a packet: [`Carrier::sent`] or, if it has none, [`Carrier::emptied`].
    Leaf(NodeId),
    /// Nothing more is sent now.
    Over,
}

/// A carrier: one regulator, and a tree that shares it among the transmit queues of several
/// [`Gateway`](crate::Gateway)s that have no regulator.
///
/// Its host calls [`Carrier::offer`] when a queue is no longer empty, and at [`Carrier::wake_at`] begins a turn with
/// [`Carrier::wake`], then takes leaves from [`Carrier::turn`] until the turn is over.
#[derive(Debug)]
pub struct Carrier {
    tree: ShareTree,
    regulator: Regulator,
    /// Rate of the regulator, to which costs refer.
    rate: Rate,
    /// Time at which a queue at its peak rate may send again.
    peak_until: Option<Instant>,
    /// Bytes charged to each leaf that its share has not paid for.
    charged: Vec<u64>,
}

impl Carrier {
    /// A carrier without queues that releases packets as a [`Regulator`] does.
    #[must_use]
    pub fn new(rate: Rate, tick: Duration) -> Self {
        let regulator = Regulator::new(rate, tick);
        Self { tree: ShareTree::new(), regulator, rate, peak_until: None, charged: Vec::new() }
    }

    /// Adds a queue that shares the carrier with the others.
    pub fn add(&mut self, share: Share) -> NodeId {
        self.tree.add(self.tree.root(), share)
    }

    /// The carrier as a node.
    #[must_use]
    pub fn root(&self) -> NodeId {
        self.tree.root()
    }

    /// Adds a queue, or a node for several, that shares what `parent` gets with the others there. A queue that has never had
    /// packets becomes a node.
    pub fn add_below(&mut self, parent: NodeId, share: Share) -> NodeId {
        self.tree.add(parent, share)
    }

    /// Changes the share of a queue from now on.
    pub fn set(&mut self, leaf: NodeId, share: Share, now: Instant) {
        self.tree.set(leaf, share, now);
        self.look_again(now);
    }

    /// Removes a queue; its leaf may be given to the next one that is added.
    pub fn remove(&mut self, leaf: NodeId, now: Instant) {
        self.tree.remove(leaf, now);
        if let Some(charged) = self.charged.get_mut(leaf.index() as usize) {
            *charged = 0;
        }
        self.look_again(now);
    }

    /// Sets the rate; zero stops transmission.
    pub fn set_rate(&mut self, rate: Rate, now: Instant) {
        self.peak_until = None;
        self.regulator.set_rate(rate, now);
        if rate.as_bps() > 0 {
            self.rate = rate;
            self.look_again(now);
        }
    }

    /// Requests a tick if packets wait, after a change.
    fn look_again(&mut self, now: Instant) {
        self.peak_until = None;
        if !self.tree.is_idle() {
            self.regulator.request(now);
        }
    }

    /// Charges `bytes` that were sent to a leaf's terminal without a turn: headers, acknowledgements, retransmissions. The
    /// carrier compensates for them at once, and the leaf's share with its next packets, at most as many bytes as each has.
    pub fn charge(&mut self, leaf: NodeId, bytes: u64, now: Instant) {
        let index = leaf.index() as usize;
        if self.charged.len() <= index {
            self.charged.resize(index + 1, 0);
        }
        self.charged[index] += bytes;
        self.regulator.charge(bytes, now);
    }

    /// Bytes released or charged for which the rate has not compensated by `now` [bytes].
    #[must_use]
    pub fn debt(&self, now: Instant) -> u64 {
        self.regulator.debt(now)
    }

    /// Reports that a queue is not empty.
    pub fn offer(&mut self, leaf: NodeId, now: Instant) {
        self.tree.activate(leaf, now);
        self.peak_until = None;
        self.regulator.request(now);
    }

    /// Time of the next call of [`Carrier::wake`]; `None` while idle.
    #[must_use]
    pub fn wake_at(&self) -> Option<Instant> {
        self.regulator.wake_at().or(self.peak_until)
    }

    /// Begins a turn.
    pub fn wake(&mut self, now: Instant) {
        self.peak_until = None;
        self.regulator.tick(now);
    }

    /// The next queue of this turn.
    pub fn turn(&mut self, now: Instant) -> Turn {
        // A packet is released if the link is free; its length is known only once its queue has given it.
        if !self.regulator.allows(1, now) {
            self.regulator.request(now);
            return Turn::Over;
        }
        match self.tree.next(now) {
            Next::Leaf(leaf) => return Turn::Leaf(leaf),
            Next::Wait(until) => {
                self.peak_until = Some(self.regulator.next_tick(until));
                self.regulator.clear_credit();
            }
            Next::Idle => self.regulator.clear_credit(),
        }
        Turn::Over
    }

    /// Records that the leaf of the last [`Carrier::turn`] sent a packet of `bytes`, to a terminal that its link reaches at
    /// `rate`; `None` if that is the regulator's. Returns the time for which the packet takes the carrier.
    pub fn sent(&mut self, leaf: NodeId, bytes: u32, rate: Option<Rate>, now: Instant) -> Duration {
        let cost = rate.map_or(u64::from(bytes), |rate| {
            let cost = u128::from(bytes) * u128::from(self.rate.as_bps()) / u128::from(rate.as_bps().max(1));
            u64::try_from(cost).unwrap_or(u64::MAX).max(1)
        });
        let extra = self.charged.get_mut(leaf.index() as usize).map_or(0, |charged| {
            let extra = (*charged).min(u64::from(bytes)) as u32;
            *charged -= u64::from(extra);
            extra
        });
        self.tree.charge(leaf, bytes.saturating_add(extra), cost + u64::from(extra), now);
        self.regulator.spend(u32::try_from(cost).unwrap_or(u32::MAX), now);
        self.rate.time_to_send(cost)
    }

    /// Records that the queue of the last [`Carrier::turn`] was empty.
    pub fn emptied(&mut self, leaf: NodeId, now: Instant) {
        self.tree.deactivate(leaf, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: u32 = 1000;

    /// Serves queues that never empty for a second at 8 Mbit/s; each packet to a leaf causes `charged` bytes more. Returns the
    /// packets of each.
    fn serve(carrier: &mut Carrier, leaves: &[(NodeId, u64)]) -> Vec<u64> {
        let mut packets = vec![0; leaves.len()];
        for (leaf, _) in leaves {
            carrier.offer(*leaf, Instant::ZERO);
        }
        while let Some(now) = carrier.wake_at().filter(|at| *at < Instant::ZERO + Duration::from_secs(1)) {
            carrier.wake(now);
            while let Turn::Leaf(leaf) = carrier.turn(now) {
                carrier.sent(leaf, PACKET, None, now);
                let at = leaves.iter().position(|(other, _)| *other == leaf).unwrap();
                packets[at] += 1;
                if leaves[at].1 > 0 {
                    carrier.charge(leaf, leaves[at].1, now);
                }
            }
        }
        packets
    }

    /// A megabyte in a second. A leaf whose packets cost a quarter more gets four fifths of the other's: 1000 kB = 5 (4 k) / 4 +
    /// 5 k with 5 k = 500 packets.
    #[test]
    fn bytes_without_a_turn_count_in_the_share_of_their_leaf() {
        let mut carrier = Carrier::new(Rate::from_bps(8_000_000), Duration::ZERO);
        let [one, other] = [0, 1].map(|_| carrier.add(Share::default()));
        let packets = serve(&mut carrier, &[(one, 250), (other, 0)]);
        assert!(packets[0].abs_diff(400) <= 2 && packets[1].abs_diff(500) <= 2, "{packets:?}");
    }

    #[test]
    fn a_changed_share_a_removed_leaf_and_a_stop_take_effect() {
        let mut carrier = Carrier::new(Rate::from_bps(8_000_000), Duration::ZERO);
        let [one, other] = [0, 1].map(|_| carrier.add(Share::default()));
        carrier.set(other, Share { weight: 4, ..Share::default() }, Instant::ZERO);
        let packets = serve(&mut carrier, &[(one, 0), (other, 0)]);
        assert!(packets[0].abs_diff(200) <= 2 && packets[1].abs_diff(800) <= 2, "{packets:?}");
        let now = Instant::ZERO + Duration::from_secs(1);
        carrier.remove(other, now);
        carrier.wake(now);
        assert_eq!(carrier.turn(now), Turn::Leaf(one));
        carrier.set_rate(Rate::from_bps(0), now);
        assert_eq!(carrier.wake_at(), None);
        carrier.set_rate(Rate::from_bps(8_000_000), now);
        assert!(carrier.wake_at().is_some());
    }

    /// A leaf that was charged 100 kB pays for them with its first hundred packets: of the 900 packets left of a megabyte it sends
    /// 400, the other 500.
    #[test]
    fn a_charge_is_paid_for_once() {
        let mut carrier = Carrier::new(Rate::from_bps(8_000_000), Duration::ZERO);
        let [one, other] = [0, 1].map(|_| carrier.add(Share::default()));
        carrier.charge(one, 100_000, Instant::ZERO);
        assert_eq!(carrier.debt(Instant::ZERO), 100_000);
        let packets = serve(&mut carrier, &[(one, 0), (other, 0)]);
        assert!(packets[0].abs_diff(400) <= 2 && packets[1].abs_diff(500) <= 2, "{packets:?}");
    }

    /// 1000 bytes take 1 ms at 8 Mbit/s, and 2 ms to a terminal that is reached at 4; also after an outage.
    #[test]
    fn a_packet_to_a_slow_terminal_takes_the_carrier_longer() {
        let mut carrier = Carrier::new(Rate::from_bps(8_000_000), Duration::ZERO);
        let leaf = carrier.add(Share::default());
        carrier.set_rate(Rate::from_bps(0), Instant::ZERO);
        for (rate, us) in [(None, 1000), (Some(4), 2000), (Some(8), 1000), (Some(16), 500)] {
            let rate = rate.map(|mbps| Rate::from_bps(mbps * 1_000_000));
            assert_eq!(carrier.sent(leaf, PACKET, rate, Instant::ZERO), Duration::from_micros(us));
        }
    }

    #[test]
    fn a_carrier_whose_queues_are_empty_is_idle() {
        let mut carrier = Carrier::new(Rate::from_bps(8_000_000), Duration::ZERO);
        let leaf = carrier.add(Share::default());
        carrier.offer(leaf, Instant::ZERO);
        carrier.wake(Instant::ZERO);
        assert_eq!(carrier.turn(Instant::ZERO), Turn::Leaf(leaf));
        carrier.emptied(leaf, Instant::ZERO);
        assert_eq!((carrier.turn(Instant::ZERO), carrier.wake_at()), (Turn::Over, None));
    }

    /// The queue waits at its peak rate when the outage begins.
    #[test]
    fn nothing_is_sent_at_rate_zero_and_the_queue_continues_at_the_next_rate() {
        for tick in [Duration::ZERO, Duration::from_millis(5)] {
            let mut carrier = Carrier::new(Rate::from_bps(8_000_000), tick);
            let peak = Share { pir: Some(Rate::from_bps(1_000_000)), ..Share::default() };
            let leaf = carrier.add(peak);
            carrier.offer(leaf, Instant::ZERO);
            let mut now = Instant::ZERO;
            while carrier.peak_until.is_none() {
                carrier.wake(now);
                while carrier.turn(now) == Turn::Leaf(leaf) {
                    carrier.sent(leaf, PACKET, None, now);
                }
                now = carrier.wake_at().unwrap();
            }
            carrier.set_rate(Rate::from_bps(0), now);
            assert_eq!((carrier.wake_at(), carrier.turn(now)), (None, Turn::Over), "{tick:?}");
            let end = (now + Duration::from_secs(10)).round_up_to(tick);
            carrier.set_rate(Rate::from_bps(8_000_000), end);
            assert_eq!(carrier.wake_at(), Some(end), "{tick:?}");
            carrier.wake(end);
            assert_eq!(carrier.turn(end), Turn::Leaf(leaf), "{tick:?}");
        }
    }

    /// The leaf of a removed queue is used again, and starts without its charge.
    #[test]
    fn a_removed_queue_gets_no_turn() {
        let mut carrier = Carrier::new(Rate::from_bps(8_000_000), Duration::from_millis(5));
        let [one, other] = [0, 1].map(|_| carrier.add(Share::default()));
        for leaf in [one, other] {
            carrier.offer(leaf, Instant::ZERO);
        }
        carrier.charge(other, 100_000, Instant::ZERO);
        carrier.remove(other, Instant::ZERO);
        let again = carrier.add(Share::default());
        assert_eq!((again, carrier.charged[again.index() as usize]), (other, 0));
        carrier.set_rate(Rate::from_bps(800_000_000), Instant::ZERO);
        carrier.wake(Instant::ZERO);
        for _ in 0..10 {
            assert_eq!(carrier.turn(Instant::ZERO), Turn::Leaf(one));
            carrier.sent(one, PACKET, None, Instant::ZERO);
        }
    }
}
