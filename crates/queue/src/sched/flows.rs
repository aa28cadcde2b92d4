//! Per-flow packet queues, for schedulers that separate flows.
//!
//! The packets of all flows are in one arena, in doubly linked lists, so that storing a packet allocates nothing once
//! the arena has grown. A packet keeps its position there, its *node*, until it leaves. A flow has a slot while it has
//! packets.

use bentpipe_units::{Id as _, Rng, Slab, optional_id_types};

use crate::{Context, DropReason, FlowId, FlowTable, Packet, QueueSlot, SchedulerHost};

optional_id_types! {
    /// A packet's position in the arena.
    pub NodeId,
    /// A flow with packets.
    pub SlotId,
}

impl From<NodeId> for QueueSlot {
    fn from(node: NodeId) -> Self {
        Self(node.index().into())
    }
}

impl From<QueueSlot> for NodeId {
    fn from(slot: QueueSlot) -> Self {
        Self::new(slot.0 as u32)
    }
}

/// Drops the packets that `victim` removes until the queue is within its limits, together with `pkt`, which has just
/// arrived.
#[inline]
pub fn make_room(
    cx: &Context<'_>,
    pkt: &Packet,
    out: &mut dyn SchedulerHost,
    mut victim: impl FnMut() -> Option<Packet>,
) {
    let limit = cx.queue.limit;
    let (mut packets, mut bytes) = (cx.queue.packets + 1, cx.queue.bytes + u64::from(pkt.len));
    while packets > limit.packets || bytes > limit.bytes {
        let Some(victim) = victim() else { break };
        packets -= 1;
        bytes -= u64::from(victim.len);
        out.dropped(victim, DropReason::Overflow);
    }
}

/// Queues of packets, one per flow with packets.
#[derive(Debug, Default)]
pub struct Flows {
    nodes: Slab<NodeId, Node>,
    /// Nodes in use, in no order, to draw one at random.
    used: Vec<NodeId>,
    slots: Slab<SlotId, Slot>,
    by_flow: FlowTable<SlotId>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    pkt: Packet,
    before: Option<NodeId>,
    after: Option<NodeId>,
    slot: SlotId,
    /// Position among the nodes in use.
    place: u32,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    flow: FlowId,
    head: Option<NodeId>,
    tail: Option<NodeId>,
    bytes: u64,
}

impl Flows {
    /// Appends a packet to its flow's queue. Returns its node and its flow's slot.
    pub fn push(&mut self, pkt: &Packet) -> (NodeId, SlotId) {
        let slots = &mut self.slots;
        let slot = *self.by_flow.get_or_insert_with(pkt.flow, || {
            slots.insert(Slot { flow: pkt.flow, head: None, tail: None, bytes: 0 })
        });
        let s = &mut slots[slot];
        let (before, place) = (s.tail, self.used.len() as u32);
        let node = self.nodes.insert(Node { pkt: *pkt, before, after: None, slot, place });
        self.used.push(node);
        s.tail = Some(node);
        s.bytes += u64::from(pkt.len);
        match before {
            None => s.head = Some(node),
            Some(before) => self.nodes[before].after = Some(node),
        }
        (node, slot)
    }

    /// Removes a packet. The slot is freed with its last packet.
    pub fn remove(&mut self, node: NodeId) -> Option<Packet> {
        let slot = self.slot_of(node)?;
        let Node { pkt, before, after, place, .. } = self.nodes.remove(node);
        let s = &mut self.slots[slot];
        s.bytes -= u64::from(pkt.len);
        match before {
            None => s.head = after,
            Some(before) => self.nodes[before].after = after,
        }
        match after {
            None => s.tail = before,
            Some(after) => self.nodes[after].before = before,
        }
        if s.head.is_none() {
            self.by_flow.remove(s.flow);
            self.slots.remove(slot);
        }
        self.used.swap_remove(place as usize);
        if let Some(&moved) = self.used.get(place as usize) {
            self.nodes[moved].place = place;
        }
        Some(pkt)
    }

    /// Returns the slot of the packet at a node; `None` without a packet.
    pub fn slot_of(&self, node: NodeId) -> Option<SlotId> {
        let n = self.nodes.get(node)?;
        (self.used.get(n.place as usize) == Some(&node)).then_some(n.slot)
    }

    /// Returns the packet at a node.
    #[inline]
    pub fn packet(&self, node: NodeId) -> &Packet {
        &self.nodes[node].pkt
    }

    /// Returns the node of a slot's oldest packet; `None` for a freed slot.
    #[inline]
    pub fn head(&self, slot: SlotId) -> Option<NodeId> {
        self.slots[slot].head
    }

    /// Returns the node of a slot's newest packet; `None` for a freed slot.
    #[inline]
    pub fn tail(&self, slot: SlotId) -> Option<NodeId> {
        self.slots[slot].tail
    }

    /// Returns the length of a slot's packets [bytes].
    #[inline]
    pub fn bytes(&self, slot: SlotId) -> u64 {
        self.slots[slot].bytes
    }

    /// Returns a packet drawn uniformly from all, and its node.
    pub fn sample(&self, rng: &mut Rng) -> Option<(NodeId, &Packet)> {
        let any = (!self.used.is_empty()).then(|| rng.below(self.used.len() as u64) as usize)?;
        let node = *self.used.get(any)?;
        Some((node, self.packet(node)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, VecDeque};

    use super::*;

    /// Compared with queues in an ordered map: insertion, and removal of the oldest, the newest or any packet.
    #[test]
    fn queues_match_those_of_an_ordered_map() {
        let mut rng = Rng::stream(1, "flows", 0, "test");
        let mut flows = Flows::default();
        let mut map: BTreeMap<FlowId, VecDeque<u32>> = BTreeMap::new();
        for handle in 0..100_000 {
            if rng.below(100) < if handle / 1000 % 2 == 0 { 70 } else { 30 } {
                let flow = FlowId(u32::MAX - rng.below(50) as u32);
                let (node, slot) = flows.push(&Packet::new(100 + handle % 7, flow, handle));
                map.entry(flow).or_default().push_back(handle);
                assert_eq!((flows.tail(slot), flows.slot_of(node)), (Some(node), Some(slot)));
            } else if let Some((any, &Packet { flow, handle, .. })) = flows.sample(&mut rng) {
                let slot = flows.slot_of(any).unwrap();
                let queue = map.get_mut(&flow).unwrap();
                let (node, expected) = match rng.below(3) {
                    0 => (flows.head(slot).unwrap(), queue.pop_front()),
                    1 => (flows.tail(slot).unwrap(), queue.pop_back()),
                    _ => {
                        let at = queue.iter().position(|&other| other == handle).unwrap();
                        (any, queue.remove(at))
                    }
                };
                if queue.is_empty() {
                    map.remove(&flow);
                }
                assert_eq!(flows.remove(node).map(|pkt| pkt.handle), expected);
                assert!(flows.remove(node).is_none(), "a packet is removed once");
            } else {
                assert!(map.is_empty());
            }
            let held: usize = map.values().map(VecDeque::len).sum();
            assert_eq!((flows.used.len(), flows.by_flow.len()), (held, map.len()));
        }
        for (flow, queue) in &map {
            let slot = *flows.by_flow.get(*flow).unwrap();
            assert_eq!(
                flows.bytes(slot),
                queue.iter().map(|handle| u64::from(100 + handle % 7)).sum::<u64>()
            );
        }
        assert!(flows.slot_of(NodeId::new(0x7fff_ffff)).is_none());
    }

    /// Of three packets, two of one flow, each is drawn a third of the time: 30,000 draws, standard deviation 82.
    #[test]
    fn packets_are_drawn_uniformly() {
        let mut rng = Rng::stream(1, "flows", 0, "draws");
        let mut flows = Flows::default();
        for handle in 0..4 {
            flows.push(&Packet::new(100, FlowId(handle / 2), handle));
        }
        let first = flows.head(*flows.by_flow.get(FlowId(0)).unwrap());
        flows.remove(first.unwrap());
        let mut drawn = [0; 4];
        for _ in 0..30_000 {
            drawn[flows.sample(&mut rng).unwrap().1.handle as usize] += 1;
        }
        assert_eq!(drawn[0], 0);
        assert!(drawn[1..].iter().all(|&times: &i32| (times - 10_000).abs() < 400), "{drawn:?}");
    }
}
