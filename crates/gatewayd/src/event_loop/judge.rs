//! Packets as packets: those that netfilter asks about, and those that are not split.

use std::io;
use std::net::{IpAddr, SocketAddr};

use bentpipe_gateway::{Event as GatewayEvent, GatewayQueue};
use bentpipe_packet::{Info, flag};
use bentpipe_queue::{Ecn, Marking, Packet, Tcp};

use super::relays::Relay;
use super::{Daemon, Item};
use crate::config::Role;
use crate::intercept::nfqueue::Verdict;

/// Batches of packets to judge in one turn.
const MOST_BATCHES: usize = 4;
/// Packets read from the TUN device in one turn.
const MOST_PACKETS: usize = 128;
/// The longest packet [bytes].
const LONGEST: usize = 65_535;

impl Daemon {
    /// Gives the packets that netfilter holds to the gateway.
    pub(super) fn judge(&mut self) {
        let Some(mut queue) = self.queue.take() else { return };
        for _ in 0..MOST_BATCHES {
            match queue.receive(&mut |id, packet| self.judge_packet(id, packet)) {
                Ok(0) => break,
                Ok(_) => {}
                Err(e) => {
                    self.complain(&format!("NFQUEUE: {e}"));
                    break;
                }
            }
        }
        self.queue = Some(queue);
        // At once: senders wait for what is held here.
        self.tell_verdicts();
    }

    fn judge_packet(&mut self, id: u32, packet: &mut [u8]) -> Verdict {
        let Some(info) = bentpipe_packet::parse(packet) else {
            self.counters.unread += 1;
            return Verdict::Accept;
        };
        self.counters.judged += 1;
        let (server, client) = (info.src, info.dst);
        let slot = info.tcp.and_then(|_| self.find_pair(client, server));
        let spared = slot.is_some() && self.spares(info.tcp.map_or(0, |tcp| tcp.payload));
        let handle = self.items.insert(Item::Judged { id, pair: (client, server), bytes: Vec::new() });
        let mut pkt = Packet {
            ecn: info.ecn,
            split: slot.is_some(),
            ..Packet::new(info.len, self.flow(client, server, info.protocol), handle as u32)
        };
        if let Some(tcp) = info.tcp {
            self.windows.incoming(&info);
            let syn = tcp.flags & flag::SYN != 0;
            if let (Some(relay), true) = (slot.and_then(|slot| self.relay_mut(slot)), syn) {
                relay.first = Some(tcp.seq.wrapping_add(1));
            }
            let ends = u32::from(syn) + u32::from(tcp.flags & flag::FIN != 0);
            let number = pair_number(client, server, info.protocol);
            let window = self.flight.segment(number, tcp.seq, tcp.payload + ends, syn, self.now);
            if let Some(slot) = slot
                && let Some(relay) = self.relay_mut(slot)
            {
                relay.window = window;
            }
            pkt.tcp = Some(Tcp { window, seq: tcp.seq, syn });
        }
        if spared {
            self.counters.spared += 1;
            self.gateway.admit(pkt, self.at);
        } else {
            self.gateway.arrive(pkt, self.at);
        }
        let mut verdict = None;
        while let Some(event) = self.gateway.poll() {
            match event {
                GatewayEvent::Received(its) if its.handle as usize == handle => {
                    self.items.remove(handle);
                    let changed = self.mark(&its, packet);
                    verdict = Some(if changed { Verdict::Changed } else { Verdict::Accept });
                    self.heed(&its, client, server);
                }
                GatewayEvent::Dropped(its, ..) if its.handle as usize == handle => {
                    self.act(event);
                    self.verdicts.pop();
                    verdict = Some(Verdict::Drop);
                }
                other => self.act(other),
            }
        }
        verdict.unwrap_or_else(|| {
            // It waits. If it may have to be changed by then, its bytes are needed, and all of them must be there.
            if pkt.ecn != Ecn::NotEct && info.len as usize == packet.len() {
                let mut copy = self.buffer();
                copy.extend_from_slice(packet);
                if let Some(Item::Judged { bytes, .. }) = self.items.get_mut(handle) {
                    *bytes = copy;
                }
            }
            Verdict::Later
        })
    }

    /// Whether the Aqm is not asked about a packet of a split connection. While the satellite is out, the transmit queue stands
    /// still: an Aqm to which it is too long would drop all that comes until the end, and a server whose every segment is
    /// lost for half a minute waits as long again before it sends the next, or gives up a handshake. So handshakes and
    /// acknowledgements pass, and data as far as the spacelink's window has room for it: then the PEP's buffers hold servers
    /// back, and nothing is lost.
    fn spares(&self, payload: u32) -> bool {
        self.space.link.is_silent()
            && self.gateway.judges_ahead()
            && (payload == 0 || self.in_flight + u64::from(payload) <= self.window)
    }

    /// A packet has passed the receive queue, a while after it came.
    pub(super) fn received(&mut self, pkt: Packet) {
        let Some(Item::Judged { id, pair: (client, server), mut bytes }) =
            self.items.try_remove(pkt.handle as usize)
        else {
            return;
        };
        let changed = !bytes.is_empty() && self.mark(&pkt, &mut bytes);
        let bytes = if changed {
            Some(bytes)
        } else {
            self.recycle(bytes);
            None
        };
        self.watch.left(GatewayQueue::Receive, self.now.since(pkt.arrival));
        self.verdicts.push((id, bytes, true));
        self.heed(&pkt, client, server);
    }

    /// Puts a congestion mark into a packet that is to have one; whether that changed it.
    fn mark(&mut self, pkt: &Packet, bytes: &mut [u8]) -> bool {
        let marked = pkt.ecn == Ecn::Ce
            && bentpipe_packet::parse(bytes).is_some_and(|info| info.ecn != Ecn::Ce)
            && bentpipe_packet::set_ce(bytes);
        self.counters.ce_marked += u64::from(marked);
        marked
    }

    /// A packet of a split connection has come, marked or not: its server may send less, or more again.
    fn heed(&mut self, pkt: &Packet, client: SocketAddr, server: SocketAddr) {
        if !pkt.split || !self.buffers.has_control() {
            return;
        }
        let Some(slot) = self.find_pair(client, server) else { return };
        if self.buffers.heed(slot, pkt.marked, self.at) {
            self.offer(slot);
        }
    }

    /// Tells a server that it may send more, where the kernel does not.
    pub(super) fn offer(&mut self, slot: u32) {
        let room = self.offered(slot);
        let Some((client, server)) = self.relay_mut(slot).map(|relay| (relay.client, relay.server)) else {
            return;
        };
        let Some(injector) = &self.injector else { return };
        if self.windows.update(client, server, room, &mut self.scratch_packet) {
            self.counters.window_updates += 1;
            if injector.send(&self.scratch_packet).is_err() {
                self.counters.faults += 1;
            }
        }
    }

    /// What a server may send beyond what it had acknowledged: the room in the buffer, less what is still to be read into it.
    fn offered(&self, slot: u32) -> u64 {
        let relay = self.relays.get(slot as usize).and_then(Option::as_deref);
        let left = relay.map_or(u64::MAX, |relay| self.memory_left(relay));
        self.buffers.room(slot).min(left).saturating_sub(relay.map_or(0, Relay::unread))
    }

    /// Tells netfilter what was decided since.
    pub(super) fn tell_verdicts(&mut self) {
        let Some(queue) = &mut self.queue else { return };
        for (id, bytes, accept) in self.verdicts.drain(..) {
            match (bytes, accept) {
                (Some(bytes), true) => {
                    queue.accept_changed(id, &bytes);
                    self.spare.push(bytes);
                }
                (None, true) => queue.accept(id),
                (_, false) => queue.drop_packet(id),
            }
        }
        if queue.flush().is_err() {
            self.counters.faults += 1;
        }
    }

    /// Cuts the windows of acknowledgements on their way to servers.
    pub(super) fn cut_windows(&mut self) {
        let Some(mut queue) = self.acks.take() else { return };
        for _ in 0..MOST_BATCHES {
            let got = queue.receive(&mut |_, packet| {
                let mut windows = std::mem::take(&mut self.windows);
                let cut = windows.outgoing(packet, &mut |client, server| {
                    let slot = self.find_pair(client, server)?;
                    Some(self.offered(slot))
                });
                self.windows = windows;
                self.counters.windows_cut += u64::from(cut);
                if cut { Verdict::Changed } else { Verdict::Accept }
            });
            match got {
                Ok(0) => break,
                Ok(_) => {}
                Err(e) => {
                    self.complain(&format!("NFQUEUE: {e}"));
                    break;
                }
            }
        }
        if queue.flush().is_err() {
            self.counters.faults += 1;
        }
        self.acks = Some(queue);
    }

    /// Takes in what was routed into the TUN device.
    pub(super) fn read_tun(&mut self) {
        for _ in 0..MOST_PACKETS {
            let mut bytes = self.buffer();
            bytes.resize(LONGEST.min(self.config.satellite.mtu.0 as usize + 64), 0);
            match self.tun.read(&mut bytes) {
                Ok(len) => {
                    bytes.truncate(len);
                    self.counters.tunnel_in += 1;
                    self.carry(bytes);
                }
                Err(e) => {
                    self.recycle(bytes);
                    if e.kind() != io::ErrorKind::WouldBlock {
                        self.counters.faults += 1;
                    }
                    return;
                }
            }
        }
    }

    /// Takes a packet on its way over the satellite.
    fn carry(&mut self, bytes: Vec<u8>) {
        let backlog = self.gateway.transmit_queue().state();
        let most = (backlog.capacity.bytes_per_sec() / 2.0).max(super::LEAST_BACKLOG as f64);
        let Some(info) = bentpipe_packet::parse(&bytes).filter(|_| self.space.link.is_up()) else {
            self.counters.tunnel_drops += 1;
            return self.recycle(bytes);
        };
        // A terminal's transmit queue has no limit, for chunks must not be lost there.
        if self.config.role == Role::Terminal && backlog.bytes as f64 > most {
            self.counters.tunnel_drops += 1;
            return self.recycle(bytes);
        }
        let (client, server) = match self.config.role {
            Role::Gateway => (info.dst, info.src),
            Role::Terminal => (info.src, info.dst),
        };
        let flow = self.flow(client, server, info.protocol);
        let tcp =
            info.tcp.map(|tcp| Tcp { window: tcp.payload, seq: tcp.seq, syn: tcp.flags & flag::SYN != 0 });
        // What the spacelink puts around it counts too.
        let handle = self.items.insert(Item::Datagram(bytes)) as u32;
        let pkt = Packet { ecn: info.ecn, tcp, arrival: self.at, ..Packet::new(info.len, flow, handle) };
        self.gateway.process(pkt, self.at);
    }

    /// A packet that is not split leaves for the satellite.
    pub(super) fn send_datagram(&mut self, pkt: Packet, mut bytes: Vec<u8>) {
        self.mark(&pkt, &mut bytes);
        if self.space.link.datagram(&bytes).is_ok() {
            self.watch.datagram(&bytes, true);
        } else {
            self.counters.tunnel_drops += 1;
        }
        self.recycle(bytes);
    }

    /// A packet has come from the far end: out of the TUN device with it.
    pub(super) fn deliver_datagram(&mut self, packet: &[u8]) {
        self.watch.datagram(packet, false);
        if self.config.role == Role::Gateway
            && let Some(Info { src, dst, protocol, tcp: Some(tcp), .. }) = bentpipe_packet::parse(packet)
            && tcp.flags & flag::ACK != 0
        {
            self.flight.acknowledged(pair_number(src, dst, protocol), tcp.ack, self.now);
        }
        match self.tun.write(packet) {
            Ok(()) => self.counters.tunnel_out += 1,
            Err(_) => self.counters.faults += 1,
        }
    }

    /// The split connection between these two.
    pub(super) fn find_pair(&self, client: SocketAddr, server: SocketAddr) -> Option<u32> {
        let slot = *self.pairs.get(pair_number(client, server, bentpipe_packet::TCP))?;
        let relay = self.relays.get(slot as usize)?.as_ref()?;
        (relay.client == client && relay.server == server).then_some(slot)
    }

    /// Whether marks are put into packets.
    #[must_use]
    pub fn marks_packets(&self) -> bool {
        self.config.gateway.marking.method.marking == Marking::Ecn
    }
}

/// An address as a number.
pub(super) fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// A number for what goes between a client and a server: two pairs have the same one with a chance of 2^-32.
pub(super) fn pair_number(client: SocketAddr, server: SocketAddr, protocol: u8) -> u32 {
    let ends = u128::from(client.port()) << 32 | u128::from(server.port()) << 16 | u128::from(protocol);
    number_of(&[bits(client.ip()), bits(server.ip()), ends])
}

/// Mixes words into a number, with SplitMix64's last step.
pub(super) fn number_of(words: &[u128]) -> u32 {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for half in words.iter().flat_map(|word| [*word as u64, (*word >> 64) as u64]) {
        state = (state ^ half).wrapping_add(0x9e37_79b9_7f4a_7c15);
        state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^= state >> 31;
    }
    (state >> 32) as u32
}
