//! Hosts that change their address: their connections over QUIC migrate, those over TCP fail.

use super::Engine;
use crate::clock::Event;
use crate::endpoints::{Phase, quic};
use crate::ids::{Id, MovingId, SlotId};

impl Engine {
    /// The hosts of a group change their addresses.
    pub(super) fn change_addresses(&mut self, group: MovingId) {
        let moving = self.apps.moving[group];
        self.clock.at(self.clock.now() + moving.interval, Event::NewAddress(group));
        self.endpoints.quic.forget_paths(|host| moving.hosts.has(host));
        for id in (0..self.endpoints.slots.len() as u32).map(SlotId::new) {
            let slot = &self.endpoints.slots[id];
            let t = &self.apps.traffic[slot.traffic];
            let hosts = [t.from.first + slot.hosts.0, t.to.first + slot.hosts.1];
            if slot.phase != Phase::Free && hosts.into_iter().any(|host| moving.hosts.has(host)) {
                self.change_address(id);
            }
        }
    }

    /// A host of a flow has another address. Datagrams, SCTP and RTP are not bound to one here.
    fn change_address(&mut self, id: SlotId) {
        let slot = &self.endpoints.slots[id];
        if let Some(sender) = slot.quic {
            let client = quic::both(sender).into_iter().find(|end| self.endpoints.quic[*end].is_client());
            let Some(client) = client.filter(|_| !self.endpoints.quic.is_over(sender)) else { return };
            if self.endpoints.quic.migrate(client, self.clock.now()) {
                // Queues know packets with another address as another flow.
                let alias = self.record.recorder.add_alias(self.endpoints.slots[id].flow);
                self.endpoints.slots[id].aliases.push(alias);
                self.transmit_quic(client);
            } else {
                // A client must not migrate before the handshake is confirmed (RFC 9000, section 9).
                self.fail(id);
            }
        } else if !slot.conns.is_empty() {
            self.fail(id);
        }
        self.free_if_idle(id);
    }
}
