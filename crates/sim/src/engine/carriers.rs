//! Carriers: turns, and the queues that they serve.

use bentpipe_gateway::Turn;
use bentpipe_queue::Packet;
use bentpipe_units::Rate;

use super::Engine;
use crate::ids::{CarrierId, GatewayId, Id, PacketId, TerminalId};
use crate::network::{Body, Hop};

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
            let gateway = self.carriers[id].gateway(leaf);
            match self.gateways[gateway].gateway.release(now) {
                Some(pkt) => {
                    let rate = self.carriers[id].follows_links.then(|| self.downlink_rate(&pkt)).flatten();
                    let time = self.carriers[id].carrier.sent(leaf, pkt.len, rate, now);
                    if let Some(terminal) = self.terminal_of(gateway, &pkt) {
                        self.record.recorder.sent_to(terminal, pkt.len, now - pkt.arrival, time);
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

    /// Present rate of the satellite link that a packet takes next; `None` if it has none.
    fn downlink_rate(&self, pkt: &Packet) -> Option<Rate> {
        match self.network.next_hop(Id::new(pkt.handle)) {
            Some(Hop::Link { link, .. }) => self.network.links[link].engine.rate(),
            _ => None,
        }
    }

    /// The terminal that a packet goes to from a gateway.
    fn terminal_of(&self, gateway: GatewayId, pkt: &Packet) -> Option<TerminalId> {
        let packet = &self.network.packets[PacketId::new(pkt.handle)];
        match packet.body {
            Body::PepData { terminal, .. } | Body::PepAck { terminal, .. } => {
                Some(self.terminals[terminal].number)
            }
            _ => {
                let slot = &self.endpoints.slots[packet.slot?];
                let pass = self.apps.traffic[slot.traffic].layout.pass(self.gateways[gateway].number)?;
                Some(pass.terminal.terminal(slot.hosts.0, slot.hosts.1))
            }
        }
    }
}
