//! Bytes of relayed connections on their way to the peer: from the PEP through the transmit queue into streams.

use std::time::Duration as StdDuration;

use bentpipe_queue::{Packet, Tcp};
use bentpipe_spacelink::{PeerId, StreamKey};
use bentpipe_units::{Duration, Instant};

use super::Daemon;
use super::gateway_host::Item;
use crate::relay::RelayId;
use crate::relay::chunks::Retry;

/// Shortest delay before a dropped chunk is sent again.
const LEAST_RETRY: Duration = Duration::from_millis(1);

impl Daemon {
    /// The PEP has processed bytes that arrived at `arrival`.
    pub(super) fn on_bytes_processed(&mut self, key: StreamKey, bytes: u64, arrival: Instant) {
        if let Some(relay) = self.relays.by_key_mut(key) {
            relay.out.processed(bytes);
            relay.arrival = arrival;
            self.enqueue_chunks(key);
        }
    }

    /// Moves as many chunks of a connection to the transmit queue as the windows allow. Connections that wait for the window take
    /// turns.
    fn enqueue_chunks(&mut self, key: StreamKey) {
        if let Some(relay) = self.relays.by_key_mut(key) {
            self.chunks.wait(key, &mut relay.out);
        }
        self.serve_window(key.peer());
    }

    /// Moves chunks of waiting connections to the transmit queue while the window of their peer has room.
    pub(super) fn serve_window(&mut self, peer: PeerId) {
        while let Some(key) = self.chunks.next_waiting(peer) {
            self.enqueue_chunk(key);
        }
    }

    /// Moves the next chunk of a connection to the transmit queue.
    fn enqueue_chunk(&mut self, key: StreamKey) {
        let Some(relay) = self.relays.by_key_mut(key) else { return };
        let offset = relay.out.place();
        let Some(bytes) = self.chunks.take(key, &mut relay.out) else { return };
        let tcp = Tcp { window: relay.sender_in_flight, seq: offset as u32, syn: offset == 0 };
        self.observer.transit(self.host.at - relay.arrival);
        let flow = self.flows.tcp_flow(relay.client, relay.server);
        let item = self.host.insert(Item::Chunk { key, bytes });
        let len = u32::try_from(bytes + self.chunks.header).unwrap_or(u32::MAX);
        let user = self.flows.user(relay.client);
        let pkt = Packet { user, dscp: relay.dscp, tcp: Some(tcp), ..Packet::new(len, flow, item.handle()) };
        self.host.with(key.peer(), |gateway, at| gateway.transmit(pkt, at));
    }

    /// Writes a chunk that the regulator released to its stream.
    pub(super) fn send_chunk(&mut self, key: StreamKey, bytes: u64) {
        if let Some(relay) = self.relays.by_key_mut(key) {
            relay.out.pay(bytes);
            relay.write_released(&mut self.spacelink.hub);
            self.enqueue_chunks(key);
        }
    }

    /// The transmit queue has dropped a chunk: it is sent again a round trip later, like a packet lost on the link.
    pub(super) fn on_chunk_dropped(&mut self, key: StreamKey, bytes: u64) {
        self.observer.counters.lost_chunks += 1;
        let Some(relay) = self.relays.by_key_mut(key) else { return };
        relay.out.lose(bytes);
        self.chunks.remove(key.peer(), bytes);
        let round_trip =
            self.spacelink.hub.link(key.peer()).map_or(StdDuration::ZERO, |link| link.stats().round_trip);
        let wait = Duration::from_nanos(u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX));
        self.chunks.retry(Retry { at: self.now + wait.max(LEAST_RETRY), key, bytes });
    }

    /// Sends dropped chunks again whose time has come.
    pub(super) fn retry_chunks(&mut self) {
        while let Some(Retry { key, bytes, .. }) = self.chunks.pop_retry(self.now) {
            if let Some(relay) = self.relays.by_key_mut(key) {
                relay.out.recover(bytes);
                self.enqueue_chunks(key);
            }
        }
    }

    /// The peer has delivered bytes, so there is room for others.
    pub(super) fn on_delivered(&mut self, key: StreamKey, bytes: u64) {
        let Some(id) = self.relays.id(key) else { return };
        let Some(relay) = self.relays.get_mut(id) else { return };
        relay.answered = true;
        let bytes = relay.out.delivered(bytes);
        relay.touch(self.now);
        self.observer.delivered(bytes);
        self.terminals.count_delivered(key.peer(), bytes);
        self.chunks.remove(key.peer(), bytes);
        self.memory.release(id, bytes);
        self.enqueue_chunks(key);
        let Some(pool) = self.relays.by_key(key).map(|relay| relay.pool) else { return };
        self.memory.wake_below_guarantee(id, &mut self.relays);
        self.memory.wake_memory_waiters(&mut self.relays);
        self.memory.wake_buffer_waiters(pool, &mut self.relays);
        if self.memory.buffers().has_control() {
            self.offer_windows(id);
        }
    }

    /// Offers larger windows to the servers whose connections share a buffer with this one.
    fn offer_windows(&mut self, id: RelayId) {
        for at in 0..self.memory.buffers().sharers(id.0).len() {
            if let Some(&other) = self.memory.buffers().sharers(id.0).get(at) {
                self.offer_window(RelayId(other));
            }
        }
    }
}
