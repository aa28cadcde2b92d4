//! Packets in a queue for each flow: what the schedulers that part flows have in common.
//!
//! Packets of all flows stand in one arena, linked to doubly linked lists, so that storing one allocates nothing once
//! the arena has grown. A flow has a slot while it has packets.

use std::collections::{BTreeMap, BTreeSet};

use crate::{FlowId, Packet};

/// No packet, no slot.
const NONE: u32 = u32::MAX;

/// Queues of packets, one for each flow that has any.
#[derive(Debug, Default)]
pub struct Flows {
    nodes: Vec<Node>,
    free_nodes: Vec<u32>,
    slots: Vec<Slot>,
    free_slots: Vec<u32>,
    by_flow: BTreeMap<FlowId, u32>,
    /// Slots in use, by the bytes they hold.
    by_bytes: BTreeSet<(u64, u32)>,
}

#[derive(Debug)]
struct Node {
    pkt: Packet,
    before: u32,
    after: u32,
}

#[derive(Debug)]
struct Slot {
    flow: FlowId,
    head: u32,
    tail: u32,
    bytes: u64,
}

impl Flows {
    /// Appends a packet to its flow's queue. Gives the flow's slot, and whether it was empty before.
    pub fn push(&mut self, pkt: Packet) -> (u32, bool) {
        let known = self.by_flow.get(&pkt.flow).copied();
        let slot = known.unwrap_or_else(|| self.open(pkt.flow));
        let tail = self.slots[slot as usize].tail;
        let node = self.store(Node { pkt, before: tail, after: NONE });
        match tail {
            NONE => self.slots[slot as usize].head = node,
            tail => self.nodes[tail as usize].after = node,
        }
        self.slots[slot as usize].tail = node;
        self.weigh(slot, |bytes| bytes + u64::from(pkt.len));
        (slot, known.is_none())
    }

    /// Takes the oldest packet of a slot. The slot is given up with its last packet.
    pub fn pop_head(&mut self, slot: u32) -> Option<Packet> {
        let node = self.slots.get(slot as usize)?.head;
        self.remove(slot, node)
    }

    /// Takes the newest packet of a slot. The slot is given up with its last packet.
    pub fn pop_tail(&mut self, slot: u32) -> Option<Packet> {
        let node = self.slots.get(slot as usize)?.tail;
        self.remove(slot, node)
    }

    /// The oldest packet of a slot.
    pub fn head(&self, slot: u32) -> Option<&Packet> {
        let head = self.slots.get(slot as usize)?.head;
        self.nodes.get(head as usize).map(|node| &node.pkt)
    }

    /// Whether a slot has no packets.
    pub fn is_empty(&self, slot: u32) -> bool {
        self.slots.get(slot as usize).is_none_or(|slot| slot.head == NONE)
    }

    /// The slot with the most bytes.
    pub fn longest(&self) -> Option<u32> {
        self.by_bytes.last().map(|&(_, slot)| slot)
    }

    fn open(&mut self, flow: FlowId) -> u32 {
        let fresh = Slot { flow, head: NONE, tail: NONE, bytes: 0 };
        let slot = match self.free_slots.pop() {
            Some(slot) => {
                self.slots[slot as usize] = fresh;
                slot
            }
            None => {
                self.slots.push(fresh);
                self.slots.len() as u32 - 1
            }
        };
        self.by_flow.insert(flow, slot);
        slot
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

    fn remove(&mut self, slot: u32, node: u32) -> Option<Packet> {
        let &Node { pkt, before, after } = self.nodes.get(node as usize)?;
        let s = &mut self.slots[slot as usize];
        match before {
            NONE => s.head = after,
            before => self.nodes[before as usize].after = after,
        }
        match after {
            NONE => s.tail = before,
            after => self.nodes[after as usize].before = before,
        }
        self.free_nodes.push(node);
        self.weigh(slot, |bytes| bytes - u64::from(pkt.len));
        if self.slots[slot as usize].head == NONE {
            let s = &self.slots[slot as usize];
            self.by_bytes.remove(&(s.bytes, slot));
            self.by_flow.remove(&s.flow);
            self.free_slots.push(slot);
        }
        Some(pkt)
    }

    fn weigh(&mut self, slot: u32, change: impl Fn(u64) -> u64) {
        let bytes = &mut self.slots[slot as usize].bytes;
        self.by_bytes.remove(&(*bytes, slot));
        *bytes = change(*bytes);
        self.by_bytes.insert((*bytes, slot));
    }
}
