//! Handovers of terminals from one gateway to another.
//!
//! A group of terminals at the new gateway stands for the terminals there. At the handover every flow gets the paths by the new
//! gateway, and so does each PEP link with its streams and the PEP's buffers: the gateways exchange their state in no time.
//! Packets that wait at the old gateway, or arrive there later, are forwarded to the queues of the new one, but for those of
//! connections that break. What is on a satellite link at the time arrives as sent.

use bentpipe_queue::FlowEvent;
use bentpipe_units::Instant;

use super::Engine;
use crate::apps::Kind;
use crate::endpoints::{Owner, Phase};
use crate::ids::{GatewayId, HandoverId, Id, IdRange, PacketId, SlotId, StreamId, TerminalId, TrafficId};
use crate::network::{Body, Hop};
use crate::record::LOSS;

/// A handover of a group of terminals to another gateway.
#[derive(Clone)]
pub struct Handover {
    pub at: Instant,
    /// False if it breaks connections.
    pub survives: bool,
    /// Traffic over the terminals.
    pub traffic: Vec<TrafficId>,
    /// The queues that the terminals had, at the gateway and, if there are any, at the terminals.
    pub queues: Vec<IdRange<GatewayId>>,
    /// The terminals, by their numbers in results, before and after.
    pub from: IdRange<TerminalId>,
    pub to: IdRange<TerminalId>,
    /// The PEP links of their uploads after it, if there are any.
    pub to_uploads: Option<IdRange<TerminalId>>,
}

impl Engine {
    /// Terminals move to another gateway.
    pub(super) fn hand_over(&mut self, id: HandoverId) {
        let handover = self.handovers[id].clone();
        let slots: Vec<SlotId> = (0..self.endpoints.slots.len() as u32)
            .map(SlotId::new)
            .filter(|id| {
                let slot = &self.endpoints.slots[*id];
                slot.phase != Phase::Free && handover.traffic.contains(&slot.traffic)
            })
            .collect();
        for &slot in &slots {
            self.announce(slot, FlowEvent::Closed);
        }
        self.move_pep_links(&handover);
        for &traffic in &handover.traffic {
            self.change_layout(traffic, handover.survives);
        }
        for &slot in &slots {
            self.reroute(slot);
            self.announce(slot, FlowEvent::Opened);
        }
        for queues in handover.queues.iter().flat_map(|queues| queues.iter()) {
            self.gateways[queues].forwards = true;
            self.forward_waiting(queues, handover.survives);
        }
        for &slot in &slots {
            let slot_of = &self.endpoints.slots[slot];
            if matches!(slot_of.phase, Phase::Live | Phase::Idle) {
                let (flow, is_broken) = (slot_of.flow, !handover.survives && slot_of.has_handshake());
                let layout = &self.apps.traffic[slot_of.traffic].layout;
                self.record.recorder.hand_over(flow, layout.terminals(slot_of.hosts), is_broken);
            }
            if !handover.survives {
                self.break_flow(slot);
            }
        }
    }

    /// The PEP links of the terminals lead by the new gateway.
    fn move_pep_links(&mut self, handover: &Handover) {
        for id in self.terminals.ids() {
            let node = &self.terminals[id];
            let Some(member) = node.number.index().checked_sub(handover.from.start.index()) else { continue };
            if member >= handover.from.len {
                continue;
            }
            let to = match handover.to_uploads {
                Some(uploads) if node.is_return => uploads.at(member),
                _ => handover.to.at(member),
            };
            let new = &self.terminals[to];
            let (paths, gateway, far_gateway, number) = (new.paths, new.gateway, new.far_gateway, new.number);
            let node = &mut self.terminals[id];
            (node.paths, node.gateway, node.far_gateway, node.number) = (paths, gateway, far_gateway, number);
            node.committed = None;
        }
        for to in handover.to.iter() {
            let node = &mut self.terminals[to];
            node.committed = node.committed_later.take();
        }
    }

    /// Lays out the next flows of a traffic entry by the new gateway. If connections survive, so does the spacelink: it carries them.
    fn change_layout(&mut self, id: TrafficId, survives: bool) {
        let t = &mut self.apps.traffic[id];
        let Some(mut next) = t.layouts_after.pop_front() else { return };
        if survives {
            next.joints = std::mem::take(&mut t.layout.joints);
        }
        // Packets are still on their way by the former gateways.
        next.passes.append(&mut t.layout.passes);
        t.layout = next;
        t.free_slots.clear();
    }

    /// A flow loses its connections, if it has any; its source opens others.
    fn break_flow(&mut self, id: SlotId) {
        let slot = &mut self.endpoints.slots[id];
        slot.is_retired = true;
        let (was_live, owner, traffic) = (slot.phase == Phase::Live, slot.owner, slot.traffic);
        if !slot.has_handshake() || !(was_live || slot.phase == Phase::Idle) {
            return;
        }
        self.fail(id);
        self.free_if_idle(id);
        if let (Owner::Source(source), Kind::Bulk { .. } | Kind::Packets { .. }) =
            (owner, &self.apps.traffic[traffic].kind)
            && was_live
        {
            self.apps.reconnect(source, &mut self.clock);
        }
    }

    // ----- forwarding ----------------------------------------------------------------------------------------

    /// Forwards the packets that wait in a transmit queue to the new gateway; those of connections that break are lost.
    fn forward_waiting(&mut self, id: GatewayId, survives: bool) {
        while let Some(pkt) = self.gateways[id].gateway.take(self.clock.now()) {
            let packet = PacketId::new(pkt.handle);
            self.left_transmit_queue(id, packet);
            let slot = self.network.packets[packet].slot;
            let is_broken = !survives && slot.is_some_and(|slot| self.endpoints.slots[slot].has_handshake());
            match self.network.next_hop(packet) {
                Some(Hop::Link { link, .. }) if is_broken => {
                    if let Body::PepData { terminal, to, data } = &mut self.network.packets[packet].body {
                        self.terminals[*terminal].ends[to.peer()].assign_number(self.clock.now(), data);
                    }
                    self.lose(packet, link, LOSS);
                }
                _ => self.hand_on(packet),
            }
        }
        self.drain_gateway(id);
        self.arm_gateway(id);
    }

    /// Passes a packet behind the PEP of the old gateway to the transmit queue of the new one.
    pub(super) fn hand_on(&mut self, id: PacketId) {
        let packet = &self.network.packets[id];
        match packet.body {
            Body::PepData { terminal, to, data } => {
                let node = &self.terminals[terminal];
                let queues = node.streams[StreamId::new(data.stream)].queues[to.peer()];
                self.network.packets[id].path = node.paths[to.peer()];
                self.queue_pep(queues, (terminal, to.peer()), id);
                self.serve_entered(queues);
            }
            Body::PepAck { terminal, to, .. } => {
                let node = &self.terminals[terminal];
                let queues = node.queues(to.peer());
                self.network.packets[id].path = node.paths[to.peer()];
                self.queue_pep(queues, (terminal, to.peer()), id);
                self.serve_entered(queues);
            }
            Body::Chunk { .. } => {}
            body => {
                let paths = packet.slot.map(|slot| self.endpoints.slots[slot].paths[0]).unwrap_or_default();
                let path = match body {
                    Body::Tcp { to, .. } => self.endpoints.tcp[self.endpoints.tcp[to].peer].path,
                    Body::Sctp { to, .. } => self.endpoints.sctp[self.endpoints.sctp[to].peer].path,
                    Body::Quic { to, .. } => self.endpoints.quic[self.endpoints.quic[to].peer].path,
                    Body::ReceiverReport { .. } => paths.1,
                    _ => paths.0,
                };
                let Some((gateway, rest)) = self.network.paths.behind_gateway(path) else {
                    return self.forward(id);
                };
                self.network.packets[id].path = rest;
                let pkt = self.describe_at(gateway, id);
                self.gateways[gateway].gateway.transmit(pkt, self.clock.now());
                self.serve_entered(Some(gateway));
            }
        }
    }
}
