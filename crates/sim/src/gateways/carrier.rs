//! Carriers that the transmit queues of a gateway share.

use bentpipe_gateway::{Carrier, DemandCarrier};
use bentpipe_queue::tree::{NodeId, Share};
use bentpipe_units::{Alarm, Duration, Rate};

use crate::clock::{Clock, Event};
use crate::ids::{CarrierId, GatewayId, IdRange, IdVec};

/// A return carrier, and the queues at its terminals.
pub struct ReturnCarrierNode {
    pub carrier: DemandCarrier,
    pub queues: IdRange<GatewayId>,
}

/// A carrier, and the queues behind the leaves of its tree.
pub struct CarrierNode {
    pub carrier: Carrier,
    /// The queues behind each node; `None` for those that only share among others.
    queues: IdVec<NodeId, Option<GatewayId>>,
    /// True if packets to a terminal are sent at the current rate of its link.
    pub follows_links: bool,
    /// Time for which it is scheduled.
    pub wake: Alarm,
}

impl CarrierNode {
    pub fn new(rate: Rate, tick: Duration, follows_links: bool) -> Self {
        let carrier = Carrier::new(rate, tick);
        let queues = std::iter::once(None).collect();
        Self { carrier, queues, follows_links, wake: Alarm::default() }
    }

    /// Adds a node below another: the queues of a gateway, or one that others share.
    pub fn add(&mut self, parent: NodeId, share: Share, queues: Option<GatewayId>) -> NodeId {
        let node = self.carrier.add_below(parent, share);
        debug_assert_eq!(
            node,
            self.queues.next_id(),
            "nodes are numbered in the order in which they are added"
        );
        self.queues.push(queues);
        node
    }

    /// The queues behind a leaf.
    pub fn gateway(&self, leaf: NodeId) -> Option<GatewayId> {
        self.queues[leaf]
    }

    /// Schedules the next turn.
    pub fn arm(&mut self, id: CarrierId, clock: &mut Clock) {
        if let Some(at) = self.carrier.wake_at()
            && self.wake.set(at)
        {
            clock.at(at, Event::Carrier(id));
        }
    }
}
