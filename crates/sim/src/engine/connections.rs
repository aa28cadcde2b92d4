//! Transports: from what an end received to what it sends.

use bentpipe_units::Instant;

use super::Engine;
use crate::endpoints::tcp::Role;
use crate::endpoints::{Phase, quic, sctp};
use crate::ids::{ConnId, QuicEndId, RtpId, SctpEndId};
use crate::network::{Body, PacketInFlight};

impl Engine {
    // ----- TCP -----------------------------------------------------------------------------------------------

    /// A connection opens its leg.
    pub(super) fn connect(&mut self, conn: ConnId) {
        self.endpoints.tcp.connect(conn, self.clock.now());
        if let Role::Split { terminal, stream, side } = self.endpoints.tcp[conn].role
            && !side.is_far()
        {
            self.offer_window(terminal, stream);
        }
        self.pump(conn);
    }

    /// Lets the user of a connection act on what it received, then sends.
    pub(super) fn pump(&mut self, conn: ConnId) {
        let c = &mut self.endpoints.tcp[conn];
        let id = c.slot;
        if c.tcp.failed() {
            self.fail(id);
        } else {
            let slot = &mut self.endpoints.slots[id];
            match c.role {
                Role::Sender => self.apps.serve_sender(c, slot, self.clock.now()),
                Role::Receiver => {
                    self.apps.serve_receiver(c, id, slot, &mut self.record.recorder, &mut self.clock);
                }
                Role::Split { terminal, stream, side } => self.serve_split(conn, terminal, stream, side),
            }
        }
        self.transmit(conn);
        self.free_if_idle(id);
    }

    /// Sends what a connection has to send, at once or after its host's overhead.
    #[inline]
    pub(super) fn transmit(&mut self, conn: ConnId) {
        if !self.endpoints.tcp.defer(conn, &mut self.clock) {
            self.send(conn);
        }
    }

    pub(super) fn send(&mut self, conn: ConnId) {
        if self.endpoints.tcp[conn].trace.is_some() {
            return self.send_traced(conn);
        }
        while let Some(packet) = self.endpoints.tcp.poll_transmit(conn, self.clock.now()) {
            self.count_units(conn, &packet);
            self.send_packet(packet);
            if self.endpoints.tcp[conn].tcp.is_drained() {
                break;
            }
        }
        self.endpoints.tcp.arm(conn, &mut self.clock);
    }

    /// [`Engine::send`] for a connection that is traced or logged.
    #[cold]
    #[inline(never)]
    fn send_traced(&mut self, conn: ConnId) {
        loop {
            let probe = self.endpoints.tcp[conn].tcp.due_probe();
            let Some(packet) = self.endpoints.tcp.poll_transmit(conn, self.clock.now()) else { break };
            self.log_sent(conn, &packet, probe);
            self.count_units(conn, &packet);
            self.send_packet(packet);
            if self.endpoints.tcp[conn].tcp.is_drained() {
                break;
            }
        }
        self.endpoints.tcp.arm(conn, &mut self.clock);
        let c = &self.endpoints.tcp[conn];
        if let Some(trace) = c.trace {
            self.record.tracer.note(self.clock.now(), trace, c.tcp.stats().into());
            self.log_state(conn);
        }
    }

    /// Counts a segment of a transfer as a unit when the host that sends the data sends it for the first time.
    #[inline]
    fn count_units(&mut self, conn: ConnId, packet: &PacketInFlight) {
        if let Body::Tcp { segment, .. } = &packet.body
            && segment.len > 0
            && let Role::Sender = self.endpoints.tcp[conn].role
        {
            // The first byte of the stream follows the SYN.
            let end = segment.seq.saturating_sub(1) + u64::from(segment.len);
            self.endpoints.slots[self.endpoints.tcp[conn].slot].units.send_to(end, self.clock.now());
        }
    }

    // ----- SCTP ----------------------------------------------------------------------------------------------

    /// Lets the user of an SCTP end act on what it received, then sends.
    pub(super) fn pump_sctp(&mut self, id: SctpEndId) {
        let (end, config) = self.endpoints.sctp.with_config(id);
        let slot_id = end.slot;
        let slot = &mut self.endpoints.slots[slot_id];
        if end.sctp.failed() {
            self.fail(slot_id);
        } else if end.is_sender {
            self.apps.serve_sctp_sender(end, config, slot);
        } else {
            self.apps.serve_sctp_receiver(end, slot, &mut self.record.recorder, self.clock.now());
        }
        self.transmit_sctp(id);
        self.free_if_idle(slot_id);
    }

    /// Sends what an SCTP end has to send.
    pub(super) fn transmit_sctp(&mut self, id: SctpEndId) {
        while let Some((packet, len)) = self.endpoints.sctp.poll_transmit(id, self.clock.now()) {
            let stream_sent = self.endpoints.sctp.stream_sent(id, &packet);
            let end = &self.endpoints.sctp[id];
            if let Some(position) = stream_sent {
                self.endpoints.slots[end.slot].units.send_to(position, self.clock.now());
            }
            let has_data = !packet.data().is_empty();
            let body =
                Body::Sctp { to: end.peer, packet: self.network.packets.sctp.insert(packet), has_data };
            self.send_packet(PacketInFlight::new(body, end.slot, len, end.path));
        }
        let end = &self.endpoints.sctp[id];
        if let Some(trace) = end.trace {
            self.record.tracer.note(self.clock.now(), trace, end.sctp.stats().into());
        }
        self.endpoints.sctp.arm(id, &mut self.clock);
    }

    /// Resets both ends of an association.
    pub(super) fn abort_sctp(&mut self, sender: SctpEndId) {
        for end in sctp::both(sender) {
            if self.endpoints.sctp.abort(end) {
                self.transmit_sctp(end);
            }
        }
    }

    // ----- QUIC ----------------------------------------------------------------------------------------------

    /// One end opens a connection.
    pub(super) fn connect_quic(&mut self, id: QuicEndId) {
        self.endpoints.quic.connect(id, self.clock.now());
        self.pump_quic(id);
    }

    /// Lets the user of a QUIC end act on what it received, then sends.
    pub(super) fn pump_quic(&mut self, id: QuicEndId) {
        let end = &mut self.endpoints.quic[id];
        let slot_id = end.slot;
        let slot = &mut self.endpoints.slots[slot_id];
        if end.failed() {
            self.fail(slot_id);
        } else if end.is_sender {
            for due in end.send_early() {
                self.record.recorder.lost_unit(slot.flow, due);
            }
            self.apps.serve_sender(end, slot, self.clock.now());
        } else {
            for (due, bytes) in end.take_datagrams() {
                self.record.recorder.delivered(slot.flow, bytes);
                self.record.recorder.received_units(slot.flow, std::iter::once(due), self.clock.now());
            }
            self.apps.serve_receiver(end, slot_id, slot, &mut self.record.recorder, &mut self.clock);
        }
        self.transmit_quic(id);
        self.free_if_idle(slot_id);
    }

    /// Sends what a QUIC end has to send.
    pub(super) fn transmit_quic(&mut self, id: QuicEndId) {
        while let Some(sent) = self.endpoints.quic.poll_transmit(id, self.clock.now()) {
            let end = &self.endpoints.quic[id];
            if end.is_sender
                && let Some(position) = sent.position
            {
                self.endpoints.slots[end.slot].units.send_to(position, self.clock.now());
            }
            let datagram = self.network.packets.datagrams.insert(sent.payload);
            let (has_data, is_repeated) = (sent.has_data, sent.is_repeated);
            let (to, ecn, address) = (end.peer, sent.ecn, sent.address);
            let body = Body::Quic { to, datagram, ecn, has_data, is_repeated, address };
            self.send_packet(PacketInFlight::new(body, end.slot, sent.len, end.path));
        }
        let end = &self.endpoints.quic[id];
        if let Some(trace) = end.trace {
            self.record.tracer.note(self.clock.now(), trace, end.stats().into());
            self.log_quic(id);
        }
        self.endpoints.quic.arm(id, &mut self.clock);
    }

    /// Gives up both ends of a connection.
    pub(super) fn abort_quic(&mut self, sender: QuicEndId) {
        for end in quic::both(sender) {
            if self.endpoints.quic.abort(end, self.clock.now()) {
                self.transmit_quic(end);
            }
        }
    }

    // ----- RTP -----------------------------------------------------------------------------------------------

    /// An RTP packet or a report arrives.
    pub(super) fn deliver_rtp(&mut self, packet: &PacketInFlight) {
        let Some(session) = packet.slot.and_then(|slot| self.endpoints.slots[slot].rtp) else { return };
        let received = self.endpoints.rtp.receive(session, &packet.body, packet.len, &mut self.clock);
        if let Some(payload) = received {
            self.record.recorder.delivered(self.flow_of(packet), payload);
        }
    }

    pub(super) fn send_sender_report(&mut self, session: RtpId) {
        let now = self.clock.now();
        if self.endpoints.rtp.begin_sender_report(session, now) && self.is_live(session) {
            let report = self.endpoints.rtp.sender_report(session, now);
            self.send_report(session, report);
        }
    }

    pub(super) fn send_receiver_report(&mut self, session: RtpId) {
        let now: Instant = self.clock.now();
        if self.endpoints.rtp.begin_receiver_report(session, now) && self.is_live(session) {
            let report = self.endpoints.rtp.receiver_report(session, now);
            self.send_report(session, report);
        }
    }

    fn send_report(&mut self, session: RtpId, report: Option<PacketInFlight>) {
        if let Some(report) = report {
            self.send_packet(report);
        }
        self.endpoints.rtp.arm(session, &mut self.clock);
    }

    /// True while the source of an RTP session is present; then reports are sent.
    fn is_live(&self, session: RtpId) -> bool {
        self.endpoints.slots[self.endpoints.rtp.slot(session)].phase == Phase::Live
    }
}
