//! A carrier that several transmit queues share.

use bentpipe_queue::tree::{Next, NodeId, Share, ShareTree};
use bentpipe_units::{Duration, Instant, Rate};

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
}

impl Carrier {
    /// A carrier without queues that releases packets as a [`Regulator`] does.
    #[must_use]
    pub fn new(rate: Rate, tick: Duration) -> Self {
        Self { tree: ShareTree::new(), regulator: Regulator::new(rate, tick), rate, peak_until: None }
    }

    /// Adds a queue that shares the carrier with the others.
    pub fn add(&mut self, share: Share) -> NodeId {
        self.tree.add(self.tree.root(), share)
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
        self.tree.charge(leaf, bytes, cost, now);
        self.regulator.spend(u32::try_from(cost).unwrap_or(u32::MAX), now);
        self.rate.time_to_send(cost)
    }

    /// Records that the queue of the last [`Carrier::turn`] was empty.
    pub fn emptied(&mut self, leaf: NodeId, now: Instant) {
        self.tree.deactivate(leaf, now);
    }
}
