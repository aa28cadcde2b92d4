//! Packets as packets: those that netfilter holds for the AQM, and those that cross the satellite without splitting.

use std::io;
use std::net::SocketAddr;

use bentpipe_gateway::{Event, Gateway, InFlight};
use bentpipe_packet::{Info, TcpInfo, flag};
use bentpipe_queue::{Ecn, FlowId, Packet, Tcp};
use bentpipe_spacelink::PeerId;
use bentpipe_units::Instant;

use super::Daemon;
use super::gateway_host::{Item, ItemId};
use crate::config::Role;
use crate::intercept::interceptor::{Held, Interceptor};
use crate::intercept::nfqueue::{PacketId, Verdict};
use crate::relay::RelayId;

/// Packets read from the TUN device in one turn.
const MOST_PACKETS: usize = 128;
/// Longest IP packet [bytes].
const LONGEST: usize = 65_535;
/// Datagrams that a terminal's transmit queue may hold: half a second's, or this if it is more [bytes].
const LEAST_BACKLOG: u64 = 64 << 10;

impl Daemon {
    // ----- packets that netfilter holds -----------------------------------------------------------------------

    /// Reads packets for clients and offers them to the gateway.
    pub(super) fn receive_intercepted(&mut self) {
        // Taken out for the duration, so that packets can be handled by the rest of the daemon.
        let Some(mut queue) = self.interceptor.packets.take() else { return };
        let read = Interceptor::receive(&mut queue, &mut |id, packet| self.offer_packet(id, packet));
        self.interceptor.packets = Some(queue);
        if let Err(e) = read {
            self.observer.fault(&format!("NFQUEUE: {e}"));
        }
        // At once: senders wait for the packets held here.
        self.flush_verdicts();
    }

    fn offer_packet(&mut self, id: PacketId, packet: &mut [u8]) -> Verdict {
        let Some(info) = bentpipe_packet::parse(packet) else {
            self.observer.counters.unparsed += 1;
            return Verdict::Accept;
        };
        self.observer.counters.intercepted += 1;
        let (client, server) = self.client_and_server(&info);
        let relay = info.tcp.and_then(|_| self.relays.by_ends(client, server));
        // Behind no terminal it is unreachable, and behind one that is lost it passes the gateway and its queues.
        let peer = self.terminals.of_client(client.ip()).filter(|peer| self.is_led(*peer));
        let Some(peer) = peer else { return Verdict::Accept };
        let payload = info.tcp.map_or(0, |tcp| tcp.payload);
        if relay.is_some() && payload == 0 {
            // Handshakes, acknowledgements and ends of split connections are no load of the satellite.
            self.on_sender_segment(&info, (client, server), relay);
            return Verdict::Accept;
        }
        let bypasses = relay.is_some() && self.bypasses_aqm(peer, payload);
        let item = self.host.insert(Item::Intercepted { id, ends: (client, server), bytes: Vec::new() });
        let flow = self.flows.flow(client, server, info.protocol);
        let len = if relay.is_some() { info.len } else { self.datagram_len(peer, info.len) };
        let mut pkt = Packet {
            ecn: info.ecn,
            user: self.flows.user(client),
            dscp: info.dscp,
            split: relay.is_some(),
            ..Packet::new(len, flow, item.handle())
        };
        pkt.tcp = self.on_sender_segment(&info, (client, server), relay);
        if bypasses {
            self.observer.counters.aqm_bypassed += 1;
            self.host.with(peer, |gateway, at| gateway.admit(pkt, at));
        } else {
            self.host.with(peer, |gateway, at| gateway.arrive(pkt, at));
        }
        let mut verdict = None;
        while let Some(event) = self.host.poll() {
            match event {
                Event::Received(own) if ItemId::of(&own) == item => {
                    self.host.take(item);
                    let changed = self.mark(&own, packet);
                    verdict = Some(if changed { Verdict::Changed } else { Verdict::Accept });
                    self.apply_window_mark(&own, client, server);
                }
                Event::Dropped(own, reason, place) if ItemId::of(&own) == item => {
                    self.on_dropped(own, reason, place);
                    verdict = Some(Verdict::Drop);
                }
                other => self.handle_gateway_event(other),
            }
        }
        verdict.unwrap_or_else(|| {
            // It waits. A packet that may have to be marked by then is kept, if all of it is here.
            if pkt.ecn != Ecn::NotEct && info.len as usize == packet.len() {
                let mut copy = self.host.buffer();
                copy.extend_from_slice(packet);
                if let Some(Item::Intercepted { bytes, .. }) = self.host.item_mut(item) {
                    *bytes = copy;
                }
            }
            Verdict::Later
        })
    }

    /// True if packets for users behind a peer go through its queues.
    fn is_led(&self, peer: PeerId) -> bool {
        let lost =
            self.config.terminals.is_some() && self.terminals.get(peer).is_none_or(|terminal| !terminal.up);
        !lost && self.host.gateway(peer).is_some()
    }

    /// Updates what is known of a sender by its segment. Returns what the AQM sees of it.
    fn on_sender_segment(
        &mut self,
        info: &Info,
        (client, server): (SocketAddr, SocketAddr),
        relay: Option<RelayId>,
    ) -> Option<Tcp> {
        self.interceptor.windows.incoming(info);
        let tcp = self.tcp_fields(info, client, server)?;
        if let Some(relay) = relay.and_then(|id| self.relays.get_mut(id)) {
            relay.sender_in_flight = tcp.window;
            relay.dscp = info.dscp;
            if tcp.syn {
                relay.first_seq = Some(tcp.seq.wrapping_add(1));
            }
        }
        Some(tcp)
    }

    /// TCP fields of a packet for queues, with the estimated window of its sender; `None` of other packets.
    fn tcp_fields(&mut self, info: &Info, client: SocketAddr, server: SocketAddr) -> Option<Tcp> {
        let number = self.flows.connection(client, server);
        info.tcp.map(|tcp| tcp_of(&mut self.host.senders, number, &tcp, self.now))
    }

    /// True if data of a split connection bypass the AQM.
    ///
    /// During an outage of the satellite the transmit queue stands still. An AQM to which it is too long would drop every
    /// packet until the end, and a sender that loses all segments for half a minute backs off for as long again. So data pass
    /// while the spacelink's window has room for them: the PEP's buffers then hold senders back without loss.
    fn bypasses_aqm(&self, peer: PeerId, payload: u32) -> bool {
        self.spacelink.hub.is_silent(peer)
            && self.host.gateway(peer).is_some_and(Gateway::marks_before_pep)
            && self.chunks.has_room(peer, u64::from(payload))
    }

    /// A packet leaves the receive queue some time after its arrival.
    pub(super) fn release_held(&mut self, pkt: Packet) {
        let Some(Item::Intercepted { id, ends: (client, server), mut bytes }) =
            self.host.take(ItemId::of(&pkt))
        else {
            return;
        };
        let verdict = if !bytes.is_empty() && self.mark(&pkt, &mut bytes) {
            Held::AcceptChanged(bytes)
        } else {
            self.host.recycle(bytes);
            Held::Accept
        };
        self.observer.packet_received(self.now - pkt.arrival);
        self.interceptor.decide(id, verdict);
        self.apply_window_mark(&pkt, client, server);
    }

    /// Sets CE in a packet that the AQM marked. Returns true if that changed the packet.
    fn mark(&mut self, pkt: &Packet, bytes: &mut [u8]) -> bool {
        let marked = pkt.ecn == Ecn::Ce
            && bentpipe_packet::parse(bytes).is_some_and(|info| info.ecn != Ecn::Ce)
            && bentpipe_packet::set_ce(bytes);
        self.observer.counters.ce_marked += u64::from(marked);
        marked
    }

    /// Tells the kernel all verdicts.
    pub(super) fn flush_verdicts(&mut self) {
        let host = &mut self.host;
        if self.interceptor.flush_verdicts(|bytes| host.recycle(bytes)).is_err() {
            self.observer.counters.faults += 1;
        }
    }

    // ----- windows of servers ---------------------------------------------------------------------------------

    /// Moves the limit of a split connection's buffer by a packet, marked or not, and tells the server.
    fn apply_window_mark(&mut self, pkt: &Packet, client: SocketAddr, server: SocketAddr) {
        if !pkt.split || !self.memory.buffers().has_control() {
            return;
        }
        let Some(id) = self.relays.by_ends(client, server) else { return };
        if self.memory.buffers_mut().on_packet(id.0, pkt.marked, self.host.at) {
            self.offer_window(id);
        }
    }

    /// Sends a server a window update that the kernel would not send.
    pub(super) fn offer_window(&mut self, id: RelayId) {
        let room = self.memory.window(id, &self.relays);
        let Some(relay) = self.relays.get(id) else { return };
        match self.interceptor.send_window_update(relay.client, relay.server, room) {
            None => {}
            Some(sent) => {
                self.observer.counters.window_updates += 1;
                self.observer.counters.faults += u64::from(sent.is_err());
            }
        }
    }

    /// Cuts the windows of acknowledgements on their way to servers.
    pub(super) fn cut_windows(&mut self) {
        let (relays, memory) = (&self.relays, &self.memory);
        let (cut, read, told) = self.interceptor.cut_windows(&mut |client, server| {
            let id = relays.by_ends(client, server)?;
            Some(memory.window(id, relays))
        });
        self.observer.counters.windows_cut += cut;
        self.observer.counters.faults += u64::from(told.is_err());
        if let Err(e) = read {
            self.observer.fault(&format!("NFQUEUE: {e}"));
        }
    }

    // ----- packets that are not split -------------------------------------------------------------------------

    /// Reads packets that were routed into the TUN device.
    pub(super) fn read_tun(&mut self) {
        for _ in 0..MOST_PACKETS {
            let mut bytes = self.host.buffer();
            bytes.resize(LONGEST.min(self.config.satellite.mtu.0 as usize + 64), 0);
            match self.tun.read(&mut bytes) {
                Ok(len) => {
                    bytes.truncate(len);
                    self.observer.counters.tunnel_in += 1;
                    self.process_datagram(bytes);
                }
                Err(e) => {
                    self.host.recycle(bytes);
                    if e.kind() != io::ErrorKind::WouldBlock {
                        self.observer.counters.faults += 1;
                    }
                    return;
                }
            }
        }
    }

    /// Hands a packet from the TUN device to the gateway.
    fn process_datagram(&mut self, bytes: Vec<u8>) {
        let Some((info, peer)) = self.datagram_peer(&bytes) else {
            self.observer.counters.tunnel_drops += 1;
            return self.host.recycle(bytes);
        };
        if self.ack_filter.as_ref().is_some_and(|filter| filter.replaces(&info, &bytes, &mut self.host)) {
            self.observer.counters.filtered_acks += 1;
            return self.host.recycle(bytes);
        }
        let (client, server) = self.client_and_server(&info);
        let flow = self.flows.flow(client, server, info.protocol);
        // First in, first out needs no estimate.
        let has_queues = self.config.queues().is_some();
        let tcp = if has_queues { self.tcp_fields(&info, client, server) } else { None };
        let id = self.host.insert(Item::Datagram { peer, bytes });
        let new = Packet::new(self.datagram_len(peer, info.len), flow, id.handle());
        let user = self.flows.user(client);
        let pkt = Packet { user, ecn: info.ecn, dscp: info.dscp, tcp, arrival: self.host.at, ..new };
        if self.host.with(peer, |gateway, at| gateway.process(pkt, at)).is_none() {
            self.host.take(id);
            self.observer.counters.tunnel_drops += 1;
        } else if let Some(filter) = &mut self.ack_filter {
            filter.queued(&info, id, &self.host);
        }
    }

    /// Headers of a packet from the TUN device, and the peer that it goes to; `None` if it is not IP, or may not be queued.
    fn datagram_peer(&self, bytes: &[u8]) -> Option<(Info, PeerId)> {
        let info = bentpipe_packet::parse(bytes)?;
        let (client, _) = self.client_and_server(&info);
        let peer = self.terminals.of_client(client.ip())?;
        self.may_queue_datagram(peer).then_some((info, peer))
    }

    /// Length of an unsplit packet in the queues: that of its datagram on the spacelink [bytes].
    fn datagram_len(&mut self, peer: PeerId, len: u32) -> u32 {
        match self.config.gateway.spacelink.datagram_header {
            Some(header) => len + header,
            None => self.spacelink.hub.wire_len(peer, len),
        }
    }

    /// True while datagrams to a peer may enter the transmit queue. That of a terminal without `gateway.return` has no limit,
    /// since chunks must not be lost there, so datagrams are limited here.
    fn may_queue_datagram(&self, peer: PeerId) -> bool {
        let Some(backlog) = self.host.gateway(peer).map(|gateway| gateway.transmit_queue().state()) else {
            return false;
        };
        let most = (backlog.capacity.bytes_per_sec() / 2.0).max(LEAST_BACKLOG as f64);
        let is_full = self.config.queues().is_none() && backlog.bytes as f64 > most;
        self.spacelink.hub.is_peer_up(peer) && !is_full
    }

    /// Sends a packet over the satellite.
    pub(super) fn send_datagram(&mut self, peer: PeerId, pkt: Packet, mut bytes: Vec<u8>) {
        self.mark(&pkt, &mut bytes);
        if self.spacelink.hub.datagram(peer, &bytes).is_ok() {
            self.observer.datagram(&bytes, true);
        } else {
            self.observer.counters.tunnel_drops += 1;
        }
        self.host.recycle(bytes);
    }

    /// Writes a packet from a peer to the TUN device. Its sender must be behind that peer.
    pub(super) fn deliver_datagram(&mut self, peer: PeerId, packet: &[u8]) {
        if !self.is_from(peer, packet) {
            self.observer.counters.foreign += 1;
            return;
        }
        self.observer.datagram(packet, false);
        if self.config.queues().is_some()
            && let Some(Info { src, dst, tcp: Some(tcp), .. }) = bentpipe_packet::parse(packet)
            && tcp.flags & flag::ACK != 0
        {
            let (client, server) = match self.config.role {
                Role::Gateway => (src, dst),
                Role::Terminal => (dst, src),
            };
            self.host.senders.acknowledged(self.flows.connection(client, server), tcp.ack, self.now);
        }
        match self.tun.write(packet) {
            Ok(()) => self.observer.counters.tunnel_out += 1,
            Err(_) => self.observer.counters.faults += 1,
        }
    }

    /// True if a packet's client is behind the peer.
    fn is_from(&self, peer: PeerId, packet: &[u8]) -> bool {
        self.config.terminals.is_none()
            || bentpipe_packet::parse(packet)
                .is_some_and(|info| self.terminals.of_client(info.src.ip()) == Some(peer))
    }

    /// Client and server of a packet from the TUN device.
    pub(super) fn datagram_ends(&self, bytes: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
        bentpipe_packet::parse(bytes).map(|info| self.client_and_server(&info))
    }

    fn client_and_server(&self, info: &Info) -> (SocketAddr, SocketAddr) {
        match self.config.role {
            Role::Gateway => (info.dst, info.src),
            Role::Terminal => (info.src, info.dst),
        }
    }
}

/// TCP fields of a segment for queues; its sender's window is estimated by the data in flight.
fn tcp_of(senders: &mut InFlight, connection: FlowId, tcp: &TcpInfo, now: Instant) -> Tcp {
    let syn = tcp.flags & flag::SYN != 0;
    let ends = u32::from(syn) + u32::from(tcp.flags & flag::FIN != 0);
    let window = senders.segment(connection, tcp.seq, tcp.payload + ends, syn, now);
    Tcp { window, seq: tcp.seq, syn }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A SYN and a FIN take a sequence number each. Two segments of 1000 bytes are in flight once the SYN is acknowledged, and the
    /// second again after a copy of it from NFQUEUE has reached the TUN device.
    #[test]
    fn window_of_a_sender_is_its_data_in_flight() {
        let mut senders = InFlight::default();
        let window = |senders: &mut InFlight, seq, payload, flags| {
            let tcp = TcpInfo { seq, ack: 1, window: 0, flags, payload, scale: None, mss: None, sack: false };
            tcp_of(senders, FlowId(7), &tcp, Instant::ZERO).window
        };
        assert_eq!(window(&mut senders, 100, 0, flag::SYN), 1);
        senders.acknowledged(FlowId(7), 101, Instant::ZERO);
        assert_eq!(window(&mut senders, 101, 1000, flag::ACK), 1000);
        assert_eq!(window(&mut senders, 1101, 1000, flag::ACK), 2000);
        assert_eq!(window(&mut senders, 1101, 1000, flag::ACK), 2000);
        assert_eq!(window(&mut senders, 2101, 0, flag::ACK | flag::FIN), 2001);
    }
}
