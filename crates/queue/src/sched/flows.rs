//! Per-flow packet queues, for schedulers that separate flows.
//!
//! The packets of all flows are in one arena, in doubly linked lists, so that storing a packet allocates nothing once
//! the arena has grown. A packet keeps its position there, its *node*, until it leaves. A flow has a slot while it has
//! packets.

use bentpipe_units::Rng;

use crate::{FlowId, FlowTable, Packet};

/// No node, no slot.
pub const NONE: u32 = u32::MAX;

/// Queues of packets, one per flow with packets.
#[derive(Debug, Default)]
pub struct Flows {
    nodes: Vec<Node>,
    free_nodes: Vec<u32>,
    /// Nodes in use, in no order, to draw one at random.
    used: Vec<u32>,
    slots: Vec<Slot>,
    free_slots: Vec<u32>,
    by_flow: FlowTable<u32>,
}

#[derive(Debug)]
struct Node {
    pkt: Packet,
    before: u32,
    after: u32,
    slot: u32,
    /// Position among the nodes in use.
    place: u32,
}

#[derive(Debug)]
struct Slot {
    flow: FlowId,
    head: u32,
    tail: u32,
    bytes: u64,
}

impl Flows {
    /// Appends a packet to its flow's queue. Returns its node and its flow's slot.
    pub fn push(&mut self, pkt: Packet) -> (u32, u32) {
        let fresh = self.free_slots.last().copied().unwrap_or(self.slots.len() as u32);
        let slot = *self.by_flow.get_or_insert_with(pkt.flow, || fresh);
        if slot == fresh {
            self.open(pkt.flow);
        }
        let before = self.slots[slot as usize].tail;
        let place = self.used.len() as u32;
        let node = self.store(Node { pkt, before, after: NONE, slot, place });
        self.used.push(node);
        match before {
            NONE => self.slots[slot as usize].head = node,
            before => self.nodes[before as usize].after = node,
        }
        let s = &mut self.slots[slot as usize];
        s.tail = node;
        s.bytes += u64::from(pkt.len);
        (node, slot)
    }

    /// Removes a packet. The slot is freed with its last packet.
    pub fn remove(&mut self, node: u32) -> Option<Packet> {
        let slot = self.slot_of(node)?;
        let &Node { pkt, before, after, place, .. } = &self.nodes[node as usize];
        let s = &mut self.slots[slot as usize];
        s.bytes -= u64::from(pkt.len);
        match before {
            NONE => s.head = after,
            before => self.nodes[before as usize].after = after,
        }
        match after {
            NONE => s.tail = before,
            after => self.nodes[after as usize].before = before,
        }
        if s.head == NONE {
            self.by_flow.remove(s.flow);
            self.free_slots.push(slot);
        }
        self.used.swap_remove(place as usize);
        if let Some(&moved) = self.used.get(place as usize) {
            self.nodes[moved as usize].place = place;
        }
        self.free_nodes.push(node);
        Some(pkt)
    }

    /// Returns the slot of the packet at a node; `None` without a packet.
    pub fn slot_of(&self, node: u32) -> Option<u32> {
        let n = self.nodes.get(node as usize)?;
        (self.used.get(n.place as usize) == Some(&node)).then_some(n.slot)
    }

    /// Returns the packet at a node.
    #[inline]
    pub fn packet(&self, node: u32) -> Option<&Packet> {
        self.nodes.get(node as usize).map(|node| &node.pkt)
    }

    /// Returns the node of a slot's oldest packet.
    #[inline]
    pub fn head(&self, slot: u32) -> u32 {
        self.slots.get(slot as usize).map_or(NONE, |slot| slot.head)
    }

    /// Returns the node of a slot's newest packet.
    #[inline]
    pub fn tail(&self, slot: u32) -> u32 {
        self.slots.get(slot as usize).map_or(NONE, |slot| slot.tail)
    }

    /// Returns the length of a slot's packets [bytes].
    #[inline]
    pub fn bytes(&self, slot: u32) -> u64 {
        self.slots.get(slot as usize).map_or(0, |slot| slot.bytes)
    }

    /// Returns the node of a packet drawn uniformly from all.
    pub fn sample(&self, rng: &mut Rng) -> Option<u32> {
        let any = (!self.used.is_empty()).then(|| rng.below(self.used.len() as u64) as usize)?;
        self.used.get(any).copied()
    }

    /// Assigns the next slot to a flow.
    fn open(&mut self, flow: FlowId) {
        let fresh = Slot { flow, head: NONE, tail: NONE, bytes: 0 };
        match self.free_slots.pop() {
            Some(slot) => self.slots[slot as usize] = fresh,
            None => self.slots.push(fresh),
        }
    }

    fn store(&mut self, node: Node) -> u32 {
        match self.free_nodes.pop() {
            Some(free) => {
                self.nodes[free as usize] = node;
                free
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        }
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
        let mut map: BTreeMap<u32, VecDeque<u32>> = BTreeMap::new();
        for handle in 0..100_000 {
            if rng.below(100) < if handle / 1000 % 2 == 0 { 70 } else { 30 } {
                let flow = u32::MAX - rng.below(50) as u32;
                let (node, slot) = flows.push(Packet::new(100 + handle % 7, flow, handle));
                map.entry(flow).or_default().push_back(handle);
                assert_eq!((flows.tail(slot), flows.slot_of(node)), (node, Some(slot)));
            } else if let Some(any) = flows.sample(&mut rng) {
                let slot = flows.slot_of(any).unwrap();
                let flow = flows.packet(any).unwrap().flow;
                let queue = map.get_mut(&flow).unwrap();
                let (node, expected) = match rng.below(3) {
                    0 => (flows.head(slot), queue.pop_front()),
                    1 => (flows.tail(slot), queue.pop_back()),
                    _ => {
                        let handle = flows.packet(any).unwrap().handle;
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
        assert!(flows.slot_of(u32::MAX).is_none() && flows.head(u32::MAX) == NONE);
    }

    /// Of three packets, two of one flow, each is drawn a third of the time: 30,000 draws, standard deviation 82.
    #[test]
    fn packets_are_drawn_uniformly() {
        let mut rng = Rng::stream(1, "flows", 0, "draws");
        let mut flows = Flows::default();
        for handle in 0..4 {
            flows.push(Packet::new(100, handle / 2, handle));
        }
        let first = flows.head(*flows.by_flow.get(0).unwrap());
        flows.remove(first);
        let mut drawn = [0; 4];
        for _ in 0..30_000 {
            drawn[flows.packet(flows.sample(&mut rng).unwrap()).unwrap().handle as usize] += 1;
        }
        assert_eq!(drawn[0], 0);
        assert!(drawn[1..].iter().all(|&times: &i32| (times - 10_000).abs() < 400), "{drawn:?}");
    }
}
