//! Fetching into the processor's cache what the next packets need, where the state of all flows is larger than it.
//!
//! One address leads to the next: a packet has a path, a path has hops, a hop names a link, and a link knows its last packet. So
//! the place of a packet on its line is fetched first, then the packet, when others are still ahead of it, and each later step
//! follows one address more.

use super::Engine;
use crate::ids::{Id, LineId, LinkDirectionId, PacketId, SharedLineId};
use crate::memory::prefetch;
use crate::network::{Body, Hop};

/// Places on a delay line, from the one whose packet arrives next, at which the steps look: last, …, first.
const ARRIVALS: [usize; 6] = [2, 4, 6, 8, 10, 20];

/// Places in a queue, from the packet that leaves next, at which the steps look: last, …, first.
const DEPARTURES: [usize; 5] = [1, 3, 5, 7, 14];

impl Engine {
    /// Fetches what the next packets of a delay line need when they arrive.
    #[inline(never)]
    pub(super) fn fetch_from_line(&self, line: LineId) {
        self.fetch_arrivals(|place| self.network.lines[line].get(place));
    }

    /// Fetches what the next packets of a shared line need when they arrive.
    #[inline(never)]
    pub(super) fn fetch_from_shared_line(&self, line: SharedLineId) {
        self.fetch_arrivals(|place| self.network.shared_lines[line].get(place));
    }

    #[inline(always)]
    fn fetch_arrivals<'a>(&self, at: impl Fn(usize) -> Option<&'a PacketId>) {
        let [departure, state, end, hop, packet, place] = ARRIVALS.map(at);
        if let Some(place) = place {
            prefetch(place);
        }
        if let Some(&packet) = packet {
            self.network.packets.prefetch(packet);
        }
        if let Some(&packet) = hop {
            self.network.fetch_second_hop(packet);
        }
        if let Some(&packet) = end {
            self.fetch_end(packet);
        }
        if let Some(&packet) = state {
            self.fetch_state(packet);
        }
        if let Some(&packet) = departure {
            self.fetch_departure(packet);
        }
    }

    /// Fetches the next link of a packet, or its connection.
    fn fetch_end(&self, id: PacketId) {
        let packet = &self.network.packets[id];
        match (self.network.paths.hop(packet.path, 1), &packet.body) {
            (Some(Hop::Link { link, .. }), _) => prefetch(&self.network.links[link]),
            (None, Body::Tcp { to, .. }) => {
                prefetch(&self.endpoints.tcp[*to]);
                if let Some(slot) = packet.slot {
                    prefetch(&self.endpoints.slots[slot]);
                }
            }
            _ => {}
        }
    }

    /// Fetches what is used there: the flow at a queue, or the next link; what is recorded of the flow, and the hop of the
    /// connection's answer.
    fn fetch_state(&self, id: PacketId) {
        let packet = &self.network.packets[id];
        match (self.network.paths.hop(packet.path, 1), &packet.body) {
            (Some(Hop::Link { link, .. }), _) => {
                if self.network.links[link].engine.queue().is_none() {
                    self.network.fetch_link_behind(id, link, 2);
                } else if let Some(slot) = packet.slot {
                    prefetch(&self.endpoints.slots[slot]);
                }
            }
            (None, Body::Tcp { to, .. }) => {
                self.network.paths.prefetch(self.endpoints.tcp[*to].path, 0);
                if let Some(slot) = packet.slot.map(|slot| &self.endpoints.slots[slot]) {
                    self.record.recorder.prefetch(slot.flow);
                    slot.units.prefetch();
                }
            }
            _ => {}
        }
    }

    /// Fetches what the packet needs to go on: the packets around it on their links, or the link of the connection's answer.
    fn fetch_departure(&self, id: PacketId) {
        let packet = &self.network.packets[id];
        if let Some(next) = packet.next_on_link() {
            self.network.packets.prefetch(next);
        }
        match (self.network.paths.hop(packet.path, 1), &packet.body) {
            (Some(Hop::Link { link, .. }), _) if self.network.links[link].engine.queue().is_none() => {
                self.network.fetch_last(id, link, 2);
            }
            (None, Body::Tcp { to, .. }) => {
                if let Some(Hop::Link { link, .. }) = self.network.paths.first(self.endpoints.tcp[*to].path) {
                    prefetch(&self.network.links[link]);
                }
            }
            _ => {}
        }
    }

    /// Fetches what the next packets of a link's queue need when they leave.
    #[inline(never)]
    pub(super) fn fetch_departures(&self, link: LinkDirectionId) {
        let Some(queue) = self.network.links[link].engine.queue() else { return };
        let [last, next_link, hop, packet, place] = DEPARTURES.map(|place| queue.upcoming(place));
        if let Some(place) = place {
            prefetch(place);
        }
        let [last, next_link, hop, packet] =
            [last, next_link, hop, packet].map(|place| place.map(|pkt| PacketId::new(pkt.handle)));
        if let Some(packet) = packet {
            self.network.packets.prefetch(packet);
        }
        if let Some(packet) = hop {
            self.network.fetch_second_hop(packet);
        }
        if let Some(packet) = next_link {
            self.network.fetch_link_behind(packet, link, 1);
        }
        if let Some(packet) = last {
            self.network.fetch_last(packet, link, 1);
        }
    }
}
