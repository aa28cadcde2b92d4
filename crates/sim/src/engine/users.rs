//! Applications: pages, transfers, viewings and packets, from their events to the flows that carry them.

use bentpipe_scenario::DATAGRAM_HEADER;
use bentpipe_units::Instant;

use super::Engine;
use crate::apps::Due;
use crate::apps::Transport;
use crate::clock::Event;
use crate::endpoints::{ByteStream, FlowSlot, Owner, Phase, quic};
use crate::ids::{Id, SessionId, SlotId, SourceId};
use crate::network::{Body, PacketInFlight};

impl Engine {
    /// A session opens its next page, or more connections for the current one.
    pub(super) fn open_page(&mut self, session: SessionId) {
        let Some(page) = self.apps.next_page(session, self.clock.now()) else { return };
        let gives_up_at = self.apps.gives_up_at(session, self.clock.now());
        self.clock.at_any(gives_up_at, Event::SessionTimeout(session));
        let slots = &self.endpoints.slots;
        if let Some(id) = self.apps.take_kept(session, |slot| slots[slot].hosts == page.hosts) {
            return self.continue_with_page(id, page.objects);
        }
        for _ in 0..page.connections {
            let id = self.open_flow(page.traffic, page.hosts, Owner::Session(session));
            let slot = &mut self.endpoints.slots[id];
            slot.transfer.objects = page.objects;
            self.apps.draw_object(slot, true);
            if let Some(sender) = slot.quic {
                self.endpoints.quic.keep_open(sender, self.apps.keeps_alive(page.traffic));
            }
            self.connect_from_receiver(id);
        }
    }

    /// The time of a session's page may be over, or that of a connection that it has kept.
    pub(super) fn session_timeout(&mut self, session: SessionId) {
        self.give_up_page(session);
        for (id, since) in self.apps.take_expired(session, self.clock.now()) {
            self.end_kept(id, since);
        }
    }

    /// Aborts the connections of a session's page if it is not complete in time.
    fn give_up_page(&mut self, session: SessionId) {
        if !self.apps.give_up_page(session, self.clock.now()) {
            return;
        }
        let is_its = |slot: &FlowSlot| slot.owner == Owner::Session(session) && slot.phase == Phase::Live;
        let slots = (0..self.endpoints.slots.len() as u32).map(SlotId::new);
        let page: Vec<SlotId> = slots.filter(|id| is_its(&self.endpoints.slots[*id])).collect();
        for id in page {
            self.fail(id);
            self.free_if_idle(id);
        }
    }

    /// Loads a page on a connection that its session has kept.
    fn continue_with_page(&mut self, id: SlotId, objects: Option<u32>) {
        let slot = &mut self.endpoints.slots[id];
        slot.continue_with_page();
        slot.transfer.objects = objects;
        self.apps.draw_object(slot, true);
        if let Some(sender) = slot.quic {
            self.endpoints.quic.begin_page(sender);
            let [_, client] = quic::both(sender);
            self.pump_quic(client);
        } else if let Some(client) = slot.conns.last() {
            self.endpoints.tcp[client].is_greeted = false;
            self.pump(client);
        }
    }

    /// Closes a connection that its session has kept for long enough since the last byte of a page.
    fn end_kept(&mut self, id: SlotId, since: Instant) {
        let slot = &mut self.endpoints.slots[id];
        slot.phase = Phase::Closing;
        self.record.recorder.close_flow(since, slot.flow, true);
        if let Some(sender) = slot.quic {
            self.endpoints.quic.keep_open(sender, false);
            let [_, client] = quic::both(sender);
            self.transmit_quic(client);
        } else if let Some(client) = slot.conns.last() {
            self.endpoints.tcp[client].tcp.close();
            self.transmit(client);
        }
        self.free_if_idle(id);
    }

    /// The event of a source: it arrives, acts, or leaves.
    pub(super) fn source_due(&mut self, source: SourceId) {
        match self.apps.due(source, self.clock.now()) {
            Due::Nothing => {}
            Due::Leave => self.leave(source),
            Due::Transfer => self.begin_transfer(source),
            Due::OpenBulk => {
                let slot = self.arrive_at(source);
                self.connect_from_sender(slot);
            }
            Due::OpenPackets => {
                let slot = self.arrive_at(source);
                let traffic = self.endpoints.slots[slot].traffic;
                if matches!(
                    self.apps.traffic[traffic].transport,
                    Transport::Tcp { .. } | Transport::Sctp { .. } | Transport::Quic { .. }
                ) {
                    self.connect_from_sender(slot);
                }
                self.draw_packet(source);
                if self.apps.is_packet_due(source, self.clock.now()) {
                    self.send_due_packet(source, slot);
                } else {
                    self.apps.schedule_packet(source, &mut self.clock);
                }
            }
            Due::Packet(slot) => self.send_due_packet(source, slot),
            Due::BeginViewing => self.begin_viewing(source),
            Due::RequestSegment(slot) => self.request_segment(source, slot),
        }
    }

    /// A source arrives, and opens its flow.
    fn arrive_at(&mut self, source: SourceId) -> SlotId {
        let (traffic, hosts) = self.apps.arrive(source, &mut self.clock);
        let slot = self.open_flow(traffic, hosts, Owner::Source(source));
        self.apps.sources[source].slot = Some(slot);
        slot
    }

    /// A source leaves, and gives up its flow.
    pub(super) fn leave(&mut self, source: SourceId) {
        let Some(id) = self.apps.leave(source, &mut self.clock) else { return };
        let slot = &mut self.endpoints.slots[id];
        slot.phase = Phase::Closing;
        self.record.recorder.leave_flow(self.clock.now(), slot.flow);
        self.fail(id);
        self.free_if_idle(id);
    }

    /// A source begins a transfer, and schedules the next.
    fn begin_transfer(&mut self, source: SourceId) {
        let Some((traffic, hosts, size)) = self.apps.next_transfer(source) else { return };
        let slot = self.open_flow(traffic, hosts, Owner::Source(source));
        self.endpoints.slots[slot].transfer.size = size;
        self.connect_from_sender(slot);
        self.apps.schedule_transfer(source, self.clock.now(), &mut self.clock);
    }

    /// A viewer begins a viewing: its player connects.
    fn begin_viewing(&mut self, source: SourceId) {
        let slot = self.arrive_at(source);
        self.apps.begin_viewing(source, self.clock.now());
        self.connect_from_receiver(slot);
    }

    /// The player of a viewing requests the next segment.
    fn request_segment(&mut self, source: SourceId, id: SlotId) {
        let slot = &mut self.endpoints.slots[id];
        if let Some(sender) = slot.quic {
            let [_, player] = quic::both(sender);
            let end = &mut self.endpoints.quic[player];
            self.apps.request_segment(source, end, &mut slot.transfer, self.clock.now());
            self.transmit_quic(player);
        } else if let Some(player) = slot.conns.last() {
            let c = &mut self.endpoints.tcp[player];
            self.apps.request_segment(source, c, &mut slot.transfer, self.clock.now());
            self.transmit(player);
        }
    }

    /// Ends the viewings that are in progress at the end of the run.
    pub fn end_viewings(&mut self, end: Instant) {
        for source in self.apps.sources.ids() {
            if let Some(slot) = self.apps.sources[source].slot {
                let flow = self.endpoints.slots[slot].flow;
                self.apps.end_viewing(source, flow, end, &mut self.record.recorder);
            }
        }
    }

    fn draw_packet(&mut self, source: SourceId) {
        let session = self.apps.sources[source].slot.and_then(|slot| self.endpoints.slots[slot].rtp);
        let rate_share = session.map(|session| self.endpoints.rtp.rate_share(session));
        self.apps.draw_packet(source, rate_share, self.clock.now());
    }

    /// Sends the packet that is due, and schedules the next.
    fn send_due_packet(&mut self, source: SourceId, slot: SlotId) {
        let (len, nominal_gap) = (self.apps.sources[source].len, self.apps.sources[source].nominal_gap);
        if len > 0 {
            self.record.recorder.sent_unit(self.endpoints.slots[slot].flow, nominal_gap, self.clock.now());
            self.send_payload(slot, len);
        }
        self.draw_packet(source);
        self.apps.schedule_packet(source, &mut self.clock);
    }

    /// Sends a packet of `len` bytes: as a datagram, or its payload, a byte at least, over the flow's transport.
    fn send_payload(&mut self, id: SlotId, len: u32) {
        let now = self.clock.now();
        let slot = &mut self.endpoints.slots[id];
        let payload = u64::from(len).saturating_sub(DATAGRAM_HEADER).max(1);
        let is_unreliable =
            matches!(self.apps.traffic[slot.traffic].transport, Transport::Quic { datagrams: true, .. });
        if slot.has_handshake() && !is_unreliable {
            slot.units.send(payload, now);
        }
        if let Some(session) = slot.rtp {
            let packet = self.endpoints.rtp.send(session, len, self.clock.now());
            self.send_packet(packet);
        } else if let Some(sender) = slot.sctp {
            self.endpoints.sctp.send_message(sender, payload as u32);
            self.transmit_sctp(sender);
        } else if let Some(sender) = slot.quic {
            let end = &mut self.endpoints.quic[sender];
            if !is_unreliable {
                end.write(payload);
            } else if !end.send_datagram(payload, now) {
                self.record.recorder.lost_unit(slot.flow, now);
            }
            self.transmit_quic(sender);
        } else if slot.conns.is_empty() {
            let packet = PacketInFlight::new(Body::Datagram, id, len, slot.paths[0].0);
            self.send_packet(packet);
        } else {
            let conn = slot.conns.start;
            self.endpoints.tcp[conn].tcp.write(payload);
            self.transmit(conn);
        }
    }
}
