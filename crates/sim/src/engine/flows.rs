//! Flows: opened, announced to queues, failed, and their slots freed.

use bentpipe_queue::{FlowEvent, FlowId};
use bentpipe_scenario::FlowKey;

use super::Engine;
use crate::apps::Kind;
use crate::endpoints::{FlowSlot, Owner, Phase, quic};
use crate::ids::{GatewayId, Id, SlotId, TerminalId, TrafficId};
use crate::network::{Hop, Path};
use crate::side::Side;

impl Engine {
    /// Opens a flow between two hosts, each numbered within its group; then either end may connect.
    pub(super) fn open_flow(&mut self, traffic: TrafficId, hosts: (u32, u32), owner: Owner) -> SlotId {
        let t = &mut self.apps.traffic[traffic];
        let free = t.free_slots.get_mut(t.layout.pool(hosts)).and_then(Vec::pop);
        let (sending_user, receiving_user) = (t.from.first + hosts.0, t.to.first + hosts.1);
        let is_finite = match t.kind {
            Kind::Pages { .. } | Kind::Files { .. } => true,
            Kind::Bulk { bytes, .. } => bytes.is_some(),
            Kind::Dash(_) | Kind::Packets { .. } => false,
        };
        let number = self.apps.number(owner);
        let flow = self.record.recorder.open_flow(self.clock.now(), traffic, number, is_finite);
        let id = free.unwrap_or_else(|| self.lay_out(traffic, owner, flow, hosts));
        self.endpoints.slots[id].owner = owner;
        let layout = &self.apps.traffic[traffic].layout;
        let is_upload = layout.passes.iter().any(|pass| pass.is_upload);
        let user = FlowId(if is_upload { sending_user } else { receiving_user });
        let terminals = layout.terminals(hosts);
        self.record.recorder.behind(flow, terminals);
        self.aim(id, hosts);
        let slot = &mut self.endpoints.slots[id];
        slot.begin(flow, hosts, user);
        if let Some(session) = slot.rtp {
            self.endpoints.rtp.start(session, &mut self.clock);
        }
        let tracer = &mut self.record.tracer;
        let is_traced = slot.has_handshake() && tracer.wants(flow, traffic, number);
        let is_logged = slot.has_handshake() && slot.sctp.is_none() && tracer.logs(flow, traffic, number);
        if let Some(sender) = slot.sctp {
            let trace = tracer.begin(flow, 0, is_traced, false);
            self.endpoints.sctp.listen(sender, trace);
        }
        if let Some(sender) = slot.quic {
            let traces = [is_traced, false].map(|has_rows| tracer.begin(flow, 0, has_rows, is_logged));
            let hosts = (sending_user, receiving_user);
            self.endpoints.quic.listen(sender, flow.0, hosts, traces);
        }
        for (place, conn) in (0..).zip(slot.conns.iter()) {
            // The first end of each leg sends the data.
            let trace = tracer.begin(flow, place / 2, is_traced && place % 2 == 0, is_logged);
            self.endpoints.tcp.listen(conn, trace);
        }
        for i in 0..self.endpoints.slots[id].streams.len() {
            let (terminal, stream) = self.endpoints.slots[id].streams[i];
            let node = &mut self.terminals[terminal];
            let s = &mut node.streams[stream];
            s.pep_delay.clear();
            let mss = self.endpoints.tcp.config(s.conns[Side::Near]).mss;
            let user = if node.is_return { sending_user } else { receiving_user };
            node.buffers.open(stream.index(), user, u64::from(mss));
            self.offer_window(terminal, stream);
        }
        self.announce(id, FlowEvent::Opened);
        id
    }

    /// The host that sends the data opens the connection.
    pub(super) fn connect_from_sender(&mut self, id: SlotId) {
        let slot = &self.endpoints.slots[id];
        if let Some(sender) = slot.quic {
            let [sender, receiver] = quic::both(sender);
            let receiver_opens = self.apps.traffic[slot.traffic].receiver_opens;
            self.connect_quic(if receiver_opens { receiver } else { sender });
        } else if let Some(sender) = slot.sctp {
            self.endpoints.sctp.connect(sender);
            self.pump_sctp(sender);
        } else {
            self.connect(slot.conns.start);
        }
    }

    /// The host that receives the data opens the connection.
    pub(super) fn connect_from_receiver(&mut self, id: SlotId) {
        let slot = &self.endpoints.slots[id];
        if let Some(sender) = slot.quic {
            let [_, receiver] = quic::both(sender);
            self.connect_quic(receiver);
        } else if let Some(user) = slot.conns.last() {
            self.connect(user);
        }
    }

    /// Gives up a flow: resets its connections and streams, and tells its user.
    pub(super) fn fail(&mut self, id: SlotId) {
        let slot = &mut self.endpoints.slots[id];
        if std::mem::replace(&mut slot.has_failed, true) {
            return;
        }
        let (was_live, was_idle) = (slot.phase == Phase::Live, slot.phase == Phase::Idle);
        slot.phase = Phase::Closing;
        let FlowSlot { flow, owner, traffic, conns, sctp, quic, .. } = *slot;
        let streams = slot.streams.clone();
        if was_live {
            self.record.recorder.close_flow(self.clock.now(), flow, false);
            slot.units.take().for_each(|sent_at| self.record.recorder.lost_unit(flow, sent_at));
        }
        for conn in conns.iter() {
            if self.endpoints.tcp.abort(conn) {
                self.transmit(conn);
            }
        }
        if let Some(sender) = sctp {
            self.abort_sctp(sender);
        }
        if let Some(sender) = quic {
            self.abort_quic(sender);
        }
        for (terminal, stream) in streams {
            // The bytes are of no use any more, but their room is.
            let held = self.terminals[terminal].streams[stream].held;
            self.release(terminal, stream, held);
            self.reset_stream(terminal, stream);
        }
        match (&self.apps.traffic[traffic].kind, owner) {
            (Kind::Pages { .. }, Owner::Session(session)) if was_idle => {
                self.record.recorder.close_flow(self.clock.now(), flow, true);
                self.apps.forget(session, id);
            }
            (Kind::Pages { .. }, Owner::Session(session)) if was_live => {
                let Self { apps, record, clock, .. } = self;
                apps.page_connection_done(session, false, &mut record.recorder, clock);
            }
            (Kind::Dash(_), Owner::Source(source)) => {
                self.apps.end_viewing(source, flow, self.clock.now(), &mut self.record.recorder);
                if was_live {
                    self.apps.schedule_viewing(source, &mut self.clock);
                }
            }
            (Kind::Bulk { .. } | Kind::Packets { .. }, Owner::Source(source)) => self.apps.detach(source, id),
            _ => {}
        }
    }

    /// Frees the slot of a closing flow once nothing of the flow is left.
    #[inline]
    pub(super) fn free_if_idle(&mut self, id: SlotId) {
        if self.endpoints.slots[id].phase == Phase::Closing && !self.network.packets.has_any_of(id) {
            self.free_if_closed(id);
        }
    }

    /// [`Engine::free_if_idle`] for a flow without packets in flight.
    #[inline(never)]
    fn free_if_closed(&mut self, id: SlotId) {
        let slot = &self.endpoints.slots[id];
        let are_conns_over = slot.conns.iter().all(|conn| self.endpoints.tcp.is_over(conn));
        let is_stream_open = |&(terminal, stream): &(TerminalId, _)| {
            self.terminals[terminal].streams[stream].is_open.iter().any(|is_open| *is_open)
        };
        if !are_conns_over
            || slot.streams.iter().any(is_stream_open)
            || slot.sctp.is_some_and(|sender| !self.endpoints.sctp.is_over(sender))
            || slot.quic.is_some_and(|sender| !self.endpoints.quic.is_over(sender))
        {
            return;
        }
        self.end_logs(id);
        if let Some(sender) = self.endpoints.slots[id].quic {
            self.endpoints.quic.clear(sender, self.clock.now());
        }
        self.announce(id, FlowEvent::Closed);
        self.endpoints.slots[id].phase = Phase::Free;
        for i in 0..self.endpoints.slots[id].streams.len() {
            let (terminal, stream) = self.endpoints.slots[id].streams[i];
            let held = self.terminals[terminal].streams[stream].held;
            self.release(terminal, stream, held);
            self.terminals[terminal].buffers.close(stream.index(), 0);
        }
        let FlowSlot { traffic, hosts, is_retired, .. } = self.endpoints.slots[id];
        if is_retired {
            return;
        }
        let t = &mut self.apps.traffic[traffic];
        let pool = t.layout.pool(hosts);
        if t.free_slots.len() <= pool {
            t.free_slots.resize(pool + 1, Vec::new());
        }
        t.free_slots[pool].push(id);
    }

    // ----- announcements -------------------------------------------------------------------------------------

    /// Announces the beginning or end of a flow to every queue on its paths, if it can be seen on the way.
    pub(super) fn announce(&mut self, id: SlotId, event: FlowEvent) {
        if !self.endpoints.slots[id].is_announced() {
            return;
        }
        for leg in 0..self.endpoints.slots[id].paths.len() {
            let (down, up) = self.endpoints.slots[id].paths[leg];
            self.announce_along(down, id, event);
            self.announce_along(up, id, event);
        }
        for i in 0..self.endpoints.slots[id].streams.len() {
            let (terminal, stream) = self.endpoints.slots[id].streams[i];
            let (paths, queues) =
                (self.terminals[terminal].paths, self.terminals[terminal].streams[stream].queues[Side::Far]);
            paths.iter().for_each(|path| self.announce_along(*path, id, event));
            if let Some(gateway) = queues {
                self.announce_at(gateway, id, event);
            }
        }
    }

    fn announce_at(&mut self, gateway: GatewayId, id: SlotId, event: FlowEvent) {
        let flow = match self.gateways[gateway].flow_key {
            FlowKey::Connection => self.endpoints.slots[id].flow,
            FlowKey::User | FlowKey::Prefix => self.flow_at(gateway, id),
        };
        if self.gateways[gateway].announce(flow, event, self.clock.now()) {
            self.arm_gateway(gateway);
        }
    }

    fn announce_along(&mut self, path: Path, id: SlotId, event: FlowEvent) {
        let (now, flow) = (self.clock.now(), self.endpoints.slots[id].flow);
        for place in 0..self.network.paths.hops(path).len() {
            match self.network.paths.hops(path)[place] {
                Hop::Link { link, .. } => {
                    self.network.links[link].engine.announce(flow, event, now);
                    self.network.arm(link, &mut self.clock);
                }
                Hop::Gateway { gateway, .. } => self.announce_at(gateway, id, event),
                Hop::Resize { .. } => {}
            }
        }
    }

    /// Number under which a gateway's queues know a flow.
    pub(super) fn flow_at(&self, gateway: GatewayId, id: SlotId) -> FlowId {
        let slot = &self.endpoints.slots[id];
        let node = &self.gateways[gateway];
        if node.flow_key == FlowKey::Connection {
            return slot.flow;
        }
        // The users are the hosts behind the terminals.
        let t = &self.apps.traffic[slot.traffic];
        let is_upload =
            t.layout.pass(node.number, node.terminal.is_some()).is_some_and(|pass| pass.is_upload);
        let (first, host) = if is_upload { (t.from.first, slot.hosts.0) } else { (t.to.first, slot.hosts.1) };
        match node.flow_key {
            FlowKey::Connection => slot.flow,
            FlowKey::User => FlowId(first + host),
            FlowKey::Prefix => FlowId(first),
        }
    }
}
