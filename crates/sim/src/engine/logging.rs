//! Logs of connections: the events of their ends, as they happen.

use bentpipe_transport::tcp::Probe;

use super::Engine;
use crate::endpoints::quic;
use crate::ids::{ConnId, Id, PacketId, QuicEndId, SlotId, TraceId};
use crate::network::{Body, PacketInFlight};
use crate::record::log::{LogEntry, LoggedEnd, LoggedTransport};

impl Engine {
    /// A logged end of TCP: its trace, once its log has begun.
    fn logged(&mut self, conn: ConnId) -> Option<TraceId> {
        let c = &self.endpoints.tcp[conn];
        let trace = c.trace.filter(|trace| self.record.tracer.is_logged(*trace))?;
        if self.record.tracer.begins(trace) {
            let c = &self.endpoints.tcp[conn];
            let place = conn.index() - self.endpoints.slots[c.slot].conns.start.index();
            let end = LoggedEnd {
                // The first end of each leg is nearer the data's sender.
                ends: self.ends(c.slot, place / 2, place.is_multiple_of(2)),
                legs: self.endpoints.slots[c.slot].conns.len / 2,
                is_client: c.is_active,
                transport: LoggedTransport::Tcp(self.endpoints.tcp.config(conn).clone()),
            };
            self.record.tracer.log(self.clock.now(), trace, LogEntry::Begin(Box::new(end)));
        }
        Some(trace)
    }

    /// Logs a segment that a connection sends.
    pub(super) fn log_sent(&mut self, conn: ConnId, packet: &PacketInFlight, probe: Option<Probe>) {
        let Body::Tcp { segment, .. } = packet.body else { return };
        if let Some(trace) = self.logged(conn) {
            let stats = Box::new(self.endpoints.tcp[conn].tcp.stats());
            let entry = LogEntry::SegmentSent { segment, len: packet.len, probe, stats };
            self.record.tracer.log(self.clock.now(), trace, entry);
        }
    }

    /// Logs a segment that a connection has received.
    #[cold]
    #[inline(never)]
    pub(super) fn log_received(&mut self, packet: PacketId, conn: ConnId) {
        let PacketInFlight { body: Body::Tcp { segment, .. }, len, .. } = self.network.packets[packet] else {
            return;
        };
        if let Some(trace) = self.logged(conn) {
            self.record.tracer.log(self.clock.now(), trace, LogEntry::SegmentReceived { segment, len });
            self.log_state(conn);
        }
    }

    /// Logs the state of a connection.
    pub(super) fn log_state(&mut self, conn: ConnId) {
        let tcp = &self.endpoints.tcp[conn].tcp;
        let entry = LogEntry::TcpState {
            stats: tcp.stats(),
            phase: tcp.congestion_phase(),
            is_over: tcp.is_closed() || tcp.in_time_wait(),
            failed: tcp.failed(),
        };
        let trace = self.endpoints.tcp[conn].trace.filter(|trace| self.record.tracer.has_begun(*trace));
        if let Some(trace) = trace {
            self.record.tracer.log(self.clock.now(), trace, entry);
        }
    }

    /// Logs what an end of QUIC has noted.
    pub(super) fn log_quic(&mut self, id: QuicEndId) {
        let now = self.clock.now();
        let Some(trace) = self.endpoints.quic[id].trace else { return };
        if !self.record.tracer.is_logged(trace) {
            // Only the counters of its log are wanted.
            drop(self.endpoints.quic[id].take_notes(now));
            return;
        }
        let end = &self.endpoints.quic[id];
        if self.record.tracer.begins(trace) {
            let sender = if end.is_sender { end } else { &self.endpoints.quic[end.peer] };
            let ends = self.ends(end.slot, 0, end.is_sender);
            let sender_opened = sender.is_client();
            let end = LoggedEnd {
                ends: crate::record::observe::Ends { sender_opened, ..ends },
                legs: 1,
                is_client: end.is_client(),
                transport: LoggedTransport::Quic {
                    original_destination: end.original_destination(),
                    config: self.endpoints.quic.config(id).clone(),
                },
            };
            self.record.tracer.log(self.clock.now(), trace, LogEntry::Begin(Box::new(end)));
        }
        for (time, note) in self.endpoints.quic[id].take_notes(now).into_iter().flatten() {
            self.record.tracer.log(time, trace, LogEntry::Quic(note));
        }
    }

    /// Ends the logs of a flow that is over.
    pub(super) fn end_logs(&mut self, id: SlotId) {
        let slot = &self.endpoints.slots[id];
        let tcp = slot.conns.iter().filter_map(|conn| self.endpoints.tcp[conn].trace);
        let quic = slot.quic.into_iter().flat_map(quic::both);
        let quic = quic.filter_map(|end| self.endpoints.quic[end].trace);
        for trace in tcp.chain(quic) {
            if self.record.tracer.has_begun(trace) {
                self.record.tracer.log(self.clock.now(), trace, LogEntry::End);
            }
        }
    }
}
