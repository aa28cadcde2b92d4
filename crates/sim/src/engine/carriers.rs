//! Carriers: turns and superframes, and the queues that they serve.

use bentpipe_gateway::{Report, Turn};
use bentpipe_queue::Packet;
use bentpipe_units::{Alarm, Rate};

use super::Engine;
use crate::clock::Event;
use crate::gateways::GatewayNode;
use crate::ids::{CarrierId, GatewayId, Id, PacketId, ReturnCarrierId, TerminalId};
use crate::network::{Body, Hop, Network};

impl Engine {
    /// Schedules what a gateway needs next: its wake-up, and a turn of its carrier.
    #[inline]
    pub(super) fn arm_gateway(&mut self, id: GatewayId) {
        let Self { gateways, carriers, clock, .. } = self;
        let node = &mut gateways[id];
        node.arm(id, clock);
        if let Some((carrier, leaf)) = node.carrier
            && !node.is_offered
            && node.gateway.is_backlogged()
        {
            node.is_offered = true;
            carriers[carrier].carrier.offer(leaf, clock.now());
            carriers[carrier].arm(carrier, clock);
        }
    }

    /// A carrier sends the packets of one turn.
    pub(super) fn carrier_turn(&mut self, id: CarrierId) {
        let now = self.clock.now();
        if !self.carriers[id].wake.end(now) {
            return;
        }
        self.carriers[id].carrier.wake(now);
        while let Turn::Leaf(leaf) = self.carriers[id].carrier.turn(now) {
            let Some(gateway) = self.carriers[id].gateway(leaf) else { break };
            match self.gateways[gateway].gateway.release(now) {
                Some(pkt) => {
                    let rate = self.carriers[id].follows_links.then(|| self.downlink_rate(&pkt)).flatten();
                    let time = self.carriers[id].carrier.sent(leaf, pkt.len, rate, now);
                    self.record.recorder.occupied(gateway, time);
                    if let Some(terminal) = self.terminal_of(gateway, &pkt) {
                        self.record.recorder.sent_to(now, terminal, pkt.len, now - pkt.arrival, time);
                    }
                }
                None => {
                    self.carriers[id].carrier.emptied(leaf, now);
                    self.gateways[gateway].is_offered = false;
                }
            }
            self.drain_gateway(gateway);
            self.arm_gateway(gateway);
        }
        self.carriers[id].arm(id, &mut self.clock);
    }

    // ----- return carriers -----------------------------------------------------------------------------------

    /// A superframe begins: terminals request capacity, and get their slots.
    pub(super) fn begin_superframe(&mut self, id: ReturnCarrierId) {
        let Self { gateways, return_carriers, network, clock, .. } = self;
        let (now, node) = (clock.now(), &mut return_carriers[id]);
        let reports = node.queues.iter().map(|queues| {
            let queues = &mut gateways[queues];
            // Time that a terminal has not used is lost.
            (queues.slot_time, queues.slot_at) = (queues.slot_time.min(0), Alarm::default());
            if !queues.gateway.is_backlogged() {
                // The measurement of the service rate pauses.
                queues.gateway.release(now);
            }
            let state = queues.gateway.transmit_queue().state();
            let (backlog, arrived) = (state.bytes, state.sent_bytes + state.bytes);
            let rate = if queues.gateway.is_down() { Rate::default() } else { slot_rate(queues, network) };
            Report { backlog, arrived, rate }
        });
        for slot in node.carrier.begin(reports) {
            let queues = node.queues.at(slot.terminal as u32);
            gateways[queues].slot_time += i64::try_from(slot.length.as_nanos()).unwrap_or(i64::MAX);
            let begin = now + slot.offset;
            if gateways[queues].slot_at.set(begin) {
                clock.at(begin, Event::Slot(queues));
            }
        }
        clock.at(now + node.carrier.superframe(), Event::Superframe(id));
    }

    /// A terminal sends its next packet in its slot, if it has any.
    pub(super) fn send_in_slot(&mut self, id: GatewayId) {
        let now = self.clock.now();
        if !self.gateways[id].slot_at.end(now) || self.gateways[id].slot_time <= 0 {
            return;
        }
        let Some(pkt) = self.gateways[id].gateway.release(now) else {
            self.drain_gateway(id);
            return;
        };
        let rate = slot_rate(&self.gateways[id], &self.network);
        let time = rate.time_to_send(u64::from(pkt.len));
        self.record.recorder.occupied(id, time);
        if let Some(terminal) = self.gateways[id].terminal {
            self.record.recorder.occupied_by(terminal, time);
        }
        let node = &mut self.gateways[id];
        node.slot_time = node.slot_time.saturating_sub_unsigned(time.as_nanos());
        if node.slot_time > 0 && node.slot_at.set(now + time) {
            self.clock.at(now + time, Event::Slot(id));
        }
        self.drain_gateway(id);
        self.arm_gateway(id);
    }

    /// Present rate of the satellite link that a packet takes next; `None` if it has none.
    fn downlink_rate(&self, pkt: &Packet) -> Option<Rate> {
        match self.network.next_hop(Id::new(pkt.handle)) {
            Some(Hop::Link { link, .. }) => self.network.links[link].engine.rate(),
            _ => None,
        }
    }

    /// The terminal that a packet goes to from a gateway.
    fn terminal_of(&self, gateway: GatewayId, pkt: &Packet) -> Option<TerminalId> {
        if let Some(terminal) = self.gateways[gateway].serves {
            return Some(terminal);
        }
        let packet = &self.network.packets[PacketId::new(pkt.handle)];
        match packet.body {
            Body::PepData { terminal, .. } | Body::PepAck { terminal, .. } => {
                Some(self.terminals[terminal].number)
            }
            _ => {
                let slot = &self.endpoints.slots[packet.slot?];
                let pass =
                    self.apps.traffic[slot.traffic].layout.pass(self.gateways[gateway].number, false)?;
                Some(pass.terminal.terminal(slot.hosts.0, slot.hosts.1))
            }
        }
    }
}

/// Present rate at which a terminal sends in its slots.
fn slot_rate(queues: &GatewayNode, network: &Network) -> Rate {
    queues.follows.and_then(|link| network.links[link].engine.rate()).unwrap_or(queues.rate)
}
