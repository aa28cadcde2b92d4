//! Carriers that the transmit queues of a gateway share.

use bentpipe_gateway::{Carrier, DemandCarrier};
use bentpipe_queue::tree::{NodeId, Share};
use bentpipe_units::{Alarm, Duration, Rate};

use crate::clock::{Clock, Event};
use crate::ids::{CarrierId, GatewayId, Id, IdRange};

/// A return carrier, and the queues at its terminals.
pub struct ReturnCarrierNode {
    pub carrier: DemandCarrier,
    pub queues: IdRange<GatewayId>,
}

/// A carrier, and the queues behind the leaves of its tree.
pub struct CarrierNode {
    pub carrier: Carrier,
    /// The queues behind each leaf; leaf numbers begin at 1.
    leaves: Vec<GatewayId>,
    /// True if packets to a terminal are sent at the present rate of its link.
    pub follows_links: bool,
    /// Time for which it is scheduled.
    pub wake: Alarm,
}

impl CarrierNode {
    pub fn new(rate: Rate, tick: Duration, follows_links: bool) -> Self {
        let carrier = Carrier::new(rate, tick);
        Self { carrier, leaves: Vec::new(), follows_links, wake: Alarm::default() }
    }

    /// Adds the queues of a gateway.
    pub fn add(&mut self, gateway: GatewayId, share: Share) -> NodeId {
        let leaf = self.carrier.add(share);
        debug_assert_eq!(leaf.index() as usize, self.leaves.len() + 1, "leaves are numbered from 1");
        self.leaves.push(gateway);
        leaf
    }

    /// The queues behind a leaf.
    pub fn gateway(&self, leaf: NodeId) -> GatewayId {
        self.leaves[leaf.index() as usize - 1]
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
