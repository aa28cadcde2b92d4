//! LQD, longest queue drop: first in, first out, but a full buffer drops the newest packet of the flow that holds most
//! of it.
//!
//! Suter, Lakshman, Stiliadis & Choudhury 1999, "Buffer management schemes for supporting TCP in gigabit routers with
//! per-flow queueing". If there is no room for a packet, the flow with the most bytes, including the arriving packet,
//! loses packets from its tail until there is. So a flow within its share of the buffer loses nothing, whatever the
//! others do, and the arriving packet is dropped only if its flow is the longest.
//!
//! *Departures:* the paper combines this buffer policy with fair queueing; here packets leave in the order of arrival,
//! to show the effect of the policy alone. With deficit round robin it is `drr`, which makes room in the same way.
//! Lengths are in bytes; among flows of equal length any may be chosen.
//!
//! *In a satellite gateway:* use it at a buffer that overflows, to keep one flow from filling it. It signals no
//! congestion and keeps no queue short: long transfers still fill the buffer and delay everyone. At the transmit queue
//! it drops packets that the PEP has already accepted, which are then retransmitted over the satellite; there the
//! buffer should not overflow at all.

use bentpipe_units::{Id as _, Rng};

use super::flows::{Flows, NodeId, SlotId, make_room};
use super::longest::Longest;
use crate::descriptor::SchedulerAlgorithm;
use crate::{Context, Packet, QueueSlot, Scheduler, SchedulerHost};

/// The registry's entry.
pub const ALGORITHM: SchedulerAlgorithm = SchedulerAlgorithm {
    name: "lqd",
    title: "Longest queue drop",
    source: "Suter et al. 1999",
    params: &[],
    signals: false,
    build: |_| Ok(Box::new(Lqd::default())),
};

/// LQD's state.
#[derive(Debug, Default)]
pub struct Lqd {
    flows: Flows,
    longest: Longest,
    /// By node of `flows`: the packets before and after it in the order of arrival.
    order: Vec<(Option<NodeId>, Option<NodeId>)>,
    oldest: Option<NodeId>,
    newest: Option<NodeId>,
}

impl Lqd {
    /// Appends a packet to the order.
    fn append(&mut self, node: NodeId) {
        let index = node.index() as usize;
        if self.order.len() <= index {
            self.order.resize(index + 1, (None, None));
        }
        self.order[index] = (self.newest, None);
        match self.newest {
            None => self.oldest = Some(node),
            Some(newest) => self.order[newest.index() as usize].1 = Some(node),
        }
        self.newest = Some(node);
    }

    /// Removes a packet.
    fn take(&mut self, node: NodeId) -> Option<Packet> {
        let pkt = self.flows.remove(node)?;
        self.longest.lower(&self.flows, rank);
        let (before, after) = self.order[node.index() as usize];
        match before {
            None => self.oldest = after,
            Some(before) => self.order[before.index() as usize].1 = after,
        }
        match after {
            None => self.newest = before,
            Some(after) => self.order[after.index() as usize].0 = before,
        }
        Some(pkt)
    }
}

/// Of several longest flows, the one with the highest slot loses a packet.
fn rank(slot: SlotId) -> u64 {
    u64::from(u32::MAX - slot.index())
}

impl Scheduler for Lqd {
    fn push(&mut self, pkt: &Packet, cx: &mut Context<'_>, out: &mut dyn SchedulerHost) {
        let (node, slot) = self.flows.push(pkt);
        self.append(node);
        self.longest.grew(slot, &self.flows, rank(slot));
        make_room(cx, pkt, out, || {
            let slot = self.longest.find(&self.flows, rank)?;
            self.take(self.flows.tail(slot)?)
        });
    }

    fn pop(&mut self, _cx: &mut Context<'_>, _out: &mut dyn SchedulerHost) -> Option<Packet> {
        self.take(self.oldest?)
    }

    fn peek(&self) -> Option<&Packet> {
        self.oldest.map(|node| self.flows.packet(node))
    }

    fn sample(&self, rng: &mut Rng) -> Option<(QueueSlot, &Packet)> {
        self.flows.sample(rng).map(|(node, pkt)| (node.into(), pkt))
    }

    fn remove(&mut self, slot: QueueSlot) -> Option<Packet> {
        self.take(slot.into())
    }
}

#[cfg(test)]
mod tests {
    use super::super::bare::BareScheduler;
    use super::*;
    use crate::FlowId;

    /// Room for five packets. Flow 1 brings three and flow 2 two; then flow 3 one: flow 1 is longest and loses its
    /// newest, 3. Flow 2 brings another, 7: with three it is longest, so 7 is dropped. The rest leaves in the order of
    /// arrival.
    #[test]
    fn longest_flow_loses_its_newest_packet() {
        let mut steps = BareScheduler::new(&ALGORITHM, &[], 5);
        for (handle, flow) in [(1, 1), (4, 2), (2, 1), (3, 1), (5, 2)] {
            assert_eq!(steps.push(Packet::new(1000, FlowId(flow), handle)), []);
        }
        assert_eq!(steps.push(Packet::new(1000, FlowId(3), 6)), [3]);
        assert_eq!(steps.push(Packet::new(1000, FlowId(2), 7)), [7]);
        assert_eq!(steps.rest(), [1, 4, 2, 5, 6]);
    }

    /// Bytes count, not packets: flow 1 holds 1500 B in one packet, flow 2 1200 B in three, and flow 3 brings 100 B.
    #[test]
    fn flow_lengths_are_in_bytes() {
        let mut steps = BareScheduler::new(&ALGORITHM, &[], 4);
        for (handle, flow, len) in [(1, 1, 1500), (2, 2, 400), (3, 2, 400), (4, 2, 400)] {
            assert_eq!(steps.push(Packet::new(len, FlowId(flow), handle)), []);
        }
        assert_eq!(steps.push(Packet::new(100, FlowId(3), 5)), [1]);
        assert_eq!(steps.rest(), [2, 3, 4, 5]);
    }

    /// Any packet can be removed; the order of the others is unchanged.
    #[test]
    fn packets_can_be_removed_out_of_order() {
        let mut steps = BareScheduler::new(&ALGORITHM, &[], 10);
        for handle in 1..=6 {
            steps.push(Packet::new(1000, FlowId(handle % 2), handle));
        }
        let gone = [steps.remove(), steps.remove(), steps.remove()].map(Option::unwrap);
        let left: Vec<_> = (1..=6).filter(|handle| !gone.contains(handle)).collect();
        assert_eq!(left.len(), 3, "{gone:?}");
        assert_eq!(steps.rest(), left);
        assert_eq!(steps.remove(), None);
    }
}
