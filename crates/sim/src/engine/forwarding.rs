//! Packets from hop to hop, and at the end of their paths.

use bentpipe_link::{Progress, Release, Service};
use bentpipe_queue::Packet;
use bentpipe_quic::scone;
use bentpipe_scenario::DATAGRAM_HEADER;
use bentpipe_units::{Duration, Instant, Rate};

use super::Engine;
use crate::bottleneck::Bottleneck;
use crate::endpoints::Place;
use crate::ids::{ConnId, GatewayId, Id, LineId, LinkDirectionId, PacketId, SlotId};
use crate::network::{Body, Crossing, Entry, Hop, PacketInFlight};
use crate::record::{LOSS, RETRANSMISSION_LIMIT};

impl Engine {
    /// Sends a packet along its path.
    #[inline(always)]
    pub(super) fn send_packet(&mut self, packet: PacketInFlight) {
        let id = self.network.packets.insert(packet, self.clock.now());
        self.forward(id);
    }

    /// A packet arrives at the end of a link.
    pub(super) fn arrive(&mut self, id: PacketId) {
        if let Some(interface) = self.network.leave_link(id) {
            self.observe(interface, id, false);
        }
        self.forward(id);
    }

    /// Moves a packet on from where it is.
    #[inline]
    pub(super) fn forward(&mut self, id: PacketId) {
        match self.network.next_hop(id) {
            None => self.deliver(id),
            Some(Hop::Link { link, line }) => self.enter_link(id, link, line),
            Some(Hop::Gateway { gateway, splits }) => {
                if !splits && self.gateways[gateway].ack_filter && self.filter_ack(id) {
                    return;
                }
                if self.gateways[gateway].advisor.is_some() {
                    self.advise(gateway, id);
                }
                let pkt = self.describe_at(gateway, id);
                self.gateways[gateway].gateway.arrive(pkt, self.clock.now());
                self.drain_gateway(gateway);
                self.arm_gateway(gateway);
            }
            Some(Hop::Resize { bytes }) => {
                self.network.pass_hop(id);
                let packet = &mut self.network.packets[id];
                packet.len = packet.len.saturating_add_signed(bytes);
                self.forward(id);
            }
        }
    }

    /// A gateway writes its advice into a packet that can carry it.
    #[inline(never)]
    fn advise(&mut self, gateway: GatewayId, id: PacketId) {
        let packet = &self.network.packets[id];
        let (Some(slot), Some(advisor)) = (packet.slot, &mut self.gateways[gateway].advisor) else { return };
        advisor.observe(self.endpoints.slots[slot].user, self.clock.now());
        if let Body::Quic { datagram, .. } = packet.body {
            let payload = &mut self.network.packets.datagrams[datagram];
            scone::advise(payload, || scone::signal(advisor.rate()));
        }
    }

    // ----- links ---------------------------------------------------------------------------------------------

    fn enter_link(&mut self, id: PacketId, link: LinkDirectionId, line: LineId) {
        match self.network.enter(id, link, self.clock.now()) {
            Entry::Lost => self.lose(id, link, LOSS),
            Entry::Sent(sent) => self.propagate(id, link, line, sent),
            Entry::Queue => {
                let mut pkt = self.describe(id);
                if self.network.offer(&mut pkt, link, self.clock.now()) {
                    self.enqueue(pkt, link);
                }
                self.drop_discarded(link);
                self.network.arm(link, &mut self.clock);
            }
        }
    }

    fn enqueue(&mut self, pkt: Packet, link: LinkDirectionId) {
        if self.network.enqueue(pkt, link, self.clock.now()) {
            self.serve_link(link);
        }
    }

    /// A link sends its next packet.
    pub(super) fn serve_link(&mut self, link: LinkDirectionId) {
        let (slots, traffic) = (&self.endpoints.slots, &self.apps.traffic);
        let terminal = |slot: SlotId, (first, count): (u32, u32)| {
            let (slot, t) = (&slots[slot], &traffic[slots[slot].traffic]);
            let hosts = [t.to.first + slot.hosts.1, t.from.first + slot.hosts.0];
            hosts.into_iter().filter_map(|host| host.checked_sub(first)).find(|host| *host < count)
        };
        if self.is_large {
            self.fetch_departures(link);
        }
        let service = self.network.serve(link, &mut self.clock, terminal);
        if let Service::Sending { pkt, dequeued, progress, .. } = service {
            if dequeued {
                let repeated = self.network.repeated_bytes(PacketId::new(pkt.handle));
                self.record.recorder.left_link(link, self.clock.now() - pkt.arrival, repeated);
                if self.network.links[link].has_flow_scheduler {
                    self.count_departure(Place::Link(link), &pkt);
                }
            }
            let id = PacketId::new(pkt.handle);
            match progress {
                Progress::Partial => {}
                Progress::Sent(sent) => {
                    if let Some(Hop::Link { line, .. }) = self.network.next_hop(id) {
                        self.propagate(id, link, line, sent);
                    }
                }
                Progress::Lost => self.lose_at_sender(id, link),
            }
        }
        self.drop_discarded(link);
    }

    /// The AQM of a link's queue acts on packets that it holds back.
    pub(super) fn wake_queue(&mut self, link: LinkDirectionId) {
        let now = self.clock.now();
        if !self.network.links[link].engine.wake(now) {
            return;
        }
        loop {
            match self.network.links[link].engine.release(now, &mut self.network.discarded) {
                Release::Done => break,
                Release::None => {}
                Release::Packet(pkt) => self.enqueue(pkt, link),
            }
            self.drop_discarded(link);
        }
        self.network.arm(link, &mut self.clock);
    }

    /// The capacity of a link changes: the queues that follow it set their rate.
    pub(super) fn update_capacity(&mut self, link: LinkDirectionId) {
        if let Some(rate) = self.network.update_capacity(link, &mut self.clock) {
            self.set_rate_of_followers(link, rate);
        }
    }

    /// The queues that follow a link set their rate.
    pub(super) fn set_rate_of_followers(&mut self, link: LinkDirectionId, rate: Rate) {
        for id in self.network.links[link].followers.iter() {
            self.gateways[id].gateway.set_rate(rate, self.clock.now());
            if let Some(advisor) = &mut self.gateways[id].advisor {
                advisor.set_capacity(rate);
            }
            self.arm_gateway(id);
        }
    }

    #[inline(always)]
    fn propagate(&mut self, id: PacketId, link: LinkDirectionId, line: LineId, sent: Instant) {
        match self.network.propagate(id, link, line, sent, &mut self.clock) {
            Crossing::Passed => {}
            Crossing::Observed(interface) => self.observe(interface, id, false),
            Crossing::Lost(interface) => {
                if let Some(interface) = interface {
                    self.observe(interface, id, true);
                }
                self.lose(id, link, LOSS);
            }
        }
    }

    // ----- losses and drops ----------------------------------------------------------------------------------

    /// A link layer gives up a packet.
    #[inline(never)]
    fn lose_at_sender(&mut self, id: PacketId, link: LinkDirectionId) {
        if let Some(interface) = self.network.count_lost_by_sender(link) {
            self.observe(interface, id, true);
        }
        self.lose(id, link, RETRANSMISSION_LIMIT);
    }

    /// A link loses a packet, for one of [`REASONS`](crate::record::REASONS).
    pub(super) fn lose(&mut self, id: PacketId, link: LinkDirectionId, reason: u8) {
        let packet = &self.network.packets[id];
        let (flow, len) = (self.flow_of(packet), packet.len);
        self.note_drop(id, Bottleneck::Loss);
        self.record.recorder.lost(self.clock.now(), link, flow, len, reason);
        self.drop_packet(id);
    }

    /// Drops the packets that a link's queue has discarded.
    #[inline]
    fn drop_discarded(&mut self, link: LinkDirectionId) {
        if !self.network.discarded.is_empty() {
            self.drop_all_discarded(link);
        }
    }

    #[inline(never)]
    fn drop_all_discarded(&mut self, link: LinkDirectionId) {
        let mut discarded = self.network.discarded.take();
        for (pkt, reason) in discarded.drain(..) {
            self.record.recorder.dropped_at_link(self.clock.now(), link, &pkt, reason);
            self.note_drop(Id::new(pkt.handle), self.network.links[link].bottleneck);
            self.drop_packet(Id::new(pkt.handle));
        }
        self.network.discarded.give_back(discarded);
    }

    /// Notes the resource that took a segment of a flow.
    pub(super) fn note_drop(&mut self, id: PacketId, bottleneck: Bottleneck) {
        let packet = &self.network.packets[id];
        let has_data = match &packet.body {
            Body::Tcp { segment, .. } => segment.len > 0,
            Body::Quic { has_data, .. } => *has_data,
            _ => false,
        };
        if let Some(slot) = packet.slot.filter(|_| has_data) {
            self.endpoints.slots[slot].last_drop = Some(bottleneck);
        }
    }

    /// Removes a packet that was lost or dropped.
    pub(super) fn drop_packet(&mut self, id: PacketId) {
        let packet = self.network.packets.discard(id);
        if let Some(slot) = packet.slot {
            let flow = self.endpoints.slots[slot].flow;
            self.record.recorder.count_drop(flow);
            if let Body::Quic { datagram, .. } = packet.body {
                let payload = self.network.packets.datagrams.take(datagram);
                for label in bentpipe_quic::labels(&payload) {
                    self.record.recorder.lost_unit(flow, Instant::ZERO + Duration::from_nanos(label));
                }
            }
            if matches!(packet.body, Body::Datagram | Body::Rtp { .. }) {
                self.record.recorder.lost_unit(flow, self.network.packets.sent_at(id));
            }
            self.free_if_idle(slot);
        }
    }

    // ----- delivery ------------------------------------------------------------------------------------------

    /// A packet arrives at the end of its path.
    pub(super) fn deliver(&mut self, id: PacketId) {
        if let &Body::Tcp { to, ref segment } = &self.network.packets[id].body {
            // Most packets are segments, which are read without copying them.
            let has_data = segment.len > 0;
            self.endpoints.tcp.receive(to, segment, self.clock.now());
            if self.endpoints.tcp[to].trace.is_some() {
                self.log_received(id, to);
            }
            if has_data {
                self.time_segment(id, to);
            }
            self.network.packets.remove(id);
            return self.pump(to);
        }
        if let Body::Quic { to, address, .. } = self.network.packets[id].body
            && self.endpoints.quic[to].has_left(address)
        {
            return self.drop_packet(id);
        }
        let packet = self.network.packets.remove(id);
        match packet.body {
            Body::PepData { terminal, to, data } => {
                self.terminals[terminal].ends[to].on_data(self.clock.now(), &data);
                self.pump_pep(terminal, to);
            }
            Body::PepAck { terminal, to, ack } => {
                let ack = self.network.packets.acks.remove(ack);
                self.terminals[terminal].ends[to].on_ack(self.clock.now(), &ack);
                self.pump_pep(terminal, to);
            }
            Body::Sctp { to, packet: sctp, has_data } => {
                // The receiving end sends only acknowledgements.
                if has_data {
                    self.time_packet(id, &packet);
                }
                let sctp = self.network.packets.sctp.take(sctp);
                self.endpoints.sctp.receive(to, &sctp, self.clock.now());
                self.pump_sctp(to);
            }
            Body::Quic { to, datagram, ecn, has_data, address, .. } => {
                if has_data && !self.endpoints.quic[to].is_sender {
                    self.time_packet(id, &packet);
                }
                let payload = self.network.packets.datagrams.take(datagram);
                self.endpoints.quic.receive(to, ecn, payload, address, self.clock.now());
                self.pump_quic(to);
            }
            Body::Rtp { .. } | Body::SenderReport { .. } | Body::ReceiverReport { .. } => {
                if packet.body.has_payload() {
                    self.time_packet(id, &packet);
                    self.time_datagram(id, &packet);
                }
                self.deliver_rtp(&packet);
            }
            Body::Datagram => {
                self.time_packet(id, &packet);
                self.time_datagram(id, &packet);
                let payload = u64::from(packet.len).saturating_sub(DATAGRAM_HEADER);
                self.record.recorder.delivered(self.flow_of(&packet), payload);
            }
            Body::Tcp { .. } | Body::Chunk { .. } => {}
        }
        if let Some(slot) = packet.slot {
            self.free_if_idle(slot);
        }
    }

    /// Records the delay of a packet with data, which has been removed.
    #[inline]
    fn time_packet(&mut self, id: PacketId, packet: &PacketInFlight) {
        self.record.recorder.received(self.flow_of(packet), self.network.packets.age(id, self.clock.now()));
    }

    /// Records the unit of a datagram, which has been removed.
    #[inline]
    fn time_datagram(&mut self, id: PacketId, packet: &PacketInFlight) {
        let sent_at = self.network.packets.sent_at(id);
        self.record.recorder.received_units(self.flow_of(packet), std::iter::once(sent_at), self.clock.now());
    }

    /// Records the delay of a segment with payload if it is data, not a request, and no gateway splits its flow.
    #[inline]
    fn time_segment(&mut self, id: PacketId, to: ConnId) {
        let slot = &self.endpoints.slots[self.endpoints.tcp[to].slot];
        if slot.streams.is_empty() && to != slot.conns.start {
            self.record.recorder.received(slot.flow, self.network.packets.age(id, self.clock.now()));
        }
    }
}
