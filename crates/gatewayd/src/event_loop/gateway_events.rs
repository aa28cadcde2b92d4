//! Events of the gateway: packets that leave its queues.

use std::net::SocketAddr;

use bentpipe_gateway::{Event, GatewayQueue};
use bentpipe_queue::{DropReason, Packet};
use bentpipe_spacelink::PeerId;

use super::Daemon;
use super::gateway_host::{Item, ItemId};
use crate::intercept::interceptor::Held;
use crate::intercept::nfqueue::PacketId;
use crate::observe::record::Drop;

/// Wake-ups of the gateway between two flushes of the spacelink.
const WAKES_PER_FLUSH: usize = 256;

impl Daemon {
    /// Lets the gateway do everything that is due, each thing at its time.
    pub(super) fn run_gateway(&mut self) {
        let mut wakes = 0;
        while self.host.wake_if_due(self.now) {
            self.handle_gateway_events();
            wakes += 1;
            if wakes % WAKES_PER_FLUSH == 0 {
                self.flush_spacelink();
            }
        }
        if wakes % WAKES_PER_FLUSH != 0 {
            self.flush_spacelink();
        }
    }

    fn handle_gateway_events(&mut self) {
        while let Some(event) = self.host.poll() {
            self.handle_gateway_event(event);
        }
    }

    pub(super) fn handle_gateway_event(&mut self, event: Event) {
        match event {
            Event::Received(pkt) => self.release_held(pkt),
            Event::Processed(pkt) => self.on_processed(pkt),
            Event::Sent(pkt) => self.on_sent(pkt),
            Event::Dropped(pkt, reason, place) => {
                if let Some(id) = self.on_dropped(pkt, reason, place) {
                    self.interceptor.decide(id, Held::Drop);
                }
            }
        }
    }

    /// The PEP has processed bytes or a packet: they go on to the transmit queue.
    fn on_processed(&mut self, pkt: Packet) {
        let id = ItemId::of(&pkt);
        match self.host.item(id) {
            Some(&Item::Read { key, bytes }) => {
                self.host.take(id);
                self.on_bytes_processed(key, bytes, pkt.arrival);
            }
            Some(&Item::Datagram { peer, .. }) => {
                self.observer.transit(self.host.at - pkt.arrival);
                if self.host.with(peer, |gateway, at| gateway.transmit(pkt, at)).is_none() {
                    self.host.take(id);
                    self.observer.counters.tunnel_drops += 1;
                }
            }
            _ => {}
        }
    }

    /// The regulator has released a packet.
    fn on_sent(&mut self, pkt: Packet) {
        let (at, delay) = (self.host.at, self.host.at - pkt.arrival);
        match self.host.take(ItemId::of(&pkt)) {
            Some(Item::Chunk { key, bytes }) => {
                self.observer.packet_sent(key.peer(), pkt.len, delay, at);
                self.terminals.count_released(key.peer(), pkt.len);
                self.send_chunk(key, bytes);
            }
            Some(Item::Datagram { peer, bytes }) => {
                self.observer.packet_sent(peer, pkt.len, delay, at);
                self.terminals.count_released(peer, pkt.len);
                self.send_datagram(peer, pkt, bytes);
            }
            _ => {}
        }
    }

    /// A queue has dropped a packet. Returns the number of a packet that netfilter holds.
    pub(super) fn on_dropped(
        &mut self,
        pkt: Packet,
        reason: DropReason,
        place: GatewayQueue,
    ) -> Option<PacketId> {
        let id = ItemId::of(&pkt);
        let (ends, peer) = (self.ends(id), self.peer(id));
        let at_mark_point = self.host.mark_point() == Some(place);
        let drop = Drop { pkt: &pkt, reason, place, at_mark_point, ends, peer };
        self.observer.packet_dropped(&drop, self.host.at);
        match self.host.take(ItemId::of(&pkt))? {
            Item::Intercepted { id, bytes, .. } => {
                self.observer.counters.dropped += 1;
                self.host.recycle(bytes);
                return Some(id);
            }
            Item::Chunk { key, bytes } => self.on_chunk_dropped(key, bytes),
            Item::Datagram { bytes, .. } => self.host.recycle(bytes),
            Item::Read { .. } => {}
        }
        None
    }

    /// The peer that a packet goes to.
    fn peer(&self, id: ItemId) -> Option<PeerId> {
        match self.host.item(id)? {
            Item::Intercepted { ends, .. } => self.terminals.of_client(ends.0.ip()),
            Item::Read { key, .. } | Item::Chunk { key, .. } => Some(key.peer()),
            Item::Datagram { peer, .. } => Some(*peer),
        }
    }

    /// Client and server of a packet.
    fn ends(&self, id: ItemId) -> Option<(SocketAddr, SocketAddr)> {
        match self.host.item(id)? {
            Item::Intercepted { ends, .. } => Some(*ends),
            Item::Read { key, .. } | Item::Chunk { key, .. } => {
                self.relays.by_key(*key).map(|relay| (relay.client, relay.server))
            }
            Item::Datagram { bytes, .. } => self.datagram_ends(bytes),
        }
    }
}
