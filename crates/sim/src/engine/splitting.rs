//! Gateways: their queues, and the PEP that splits flows.

use bentpipe_gateway::Event as GatewayEvent;
use bentpipe_queue::{Ecn, Packet};
use bentpipe_transport::pep_link;
use bentpipe_transport::tcp::{Flags, Sack};

use super::Engine;
use super::descriptor::code_point;
use crate::bottleneck::Bottleneck;
use crate::endpoints::Place;
use crate::endpoints::tcp::{Received, Role};
use crate::gateways::SplitStream;
use crate::ids::{ConnId, GatewayId, Id, PacketId, StreamId, TerminalId};
use crate::network::{Body, Hop, PacketInFlight, Path};
use crate::side::Side;

impl Engine {
    // ----- queues --------------------------------------------------------------------------------------------

    pub(super) fn wake_gateway(&mut self, id: GatewayId) {
        let now = self.clock.now();
        if !self.gateways[id].begin_wake(now) {
            return;
        }
        loop {
            self.gateways[id].gateway.wake(now);
            self.drain_gateway(id);
            if self.gateways[id].gateway.wake_at().is_none_or(|at| at > now) {
                break;
            }
        }
        self.arm_gateway(id);
    }

    /// Acts on what a gateway did.
    pub(super) fn drain_gateway(&mut self, id: GatewayId) {
        if std::mem::replace(&mut self.gateways[id].is_draining, true) {
            return;
        }
        while let Some(event) = self.gateways[id].gateway.poll() {
            match event {
                GatewayEvent::Received(pkt) => self.received_at(id, pkt),
                GatewayEvent::Processed(pkt) => self.processed_at(id, pkt),
                GatewayEvent::Sent(pkt) => {
                    let repeated = self.network.repeated_bytes(Id::new(pkt.handle));
                    self.record.recorder.left_gateway(id, self.clock.now() - pkt.arrival, repeated);
                    if let Some(terminal) = self.gateways[id].terminal {
                        let now = self.clock.now();
                        self.record.recorder.sent_by(now, terminal, pkt.len, now - pkt.arrival);
                    }
                    if self.gateways[id].has_flow_scheduler {
                        self.count_departure(Place::Gateway(id), &pkt);
                    }
                    self.left_transmit_queue(id, Id::new(pkt.handle));
                    if pkt.ecn == Ecn::Ce {
                        self.network.write_mark(&pkt);
                        self.echo_mark(id, Id::new(pkt.handle));
                    }
                    self.forward(Id::new(pkt.handle));
                }
                GatewayEvent::Dropped(pkt, reason, place) => {
                    let packet = PacketId::new(pkt.handle);
                    let pkt = Packet { flow: self.flow_of(&self.network.packets[packet]), ..pkt };
                    let gateway = &self.gateways[id].gateway;
                    self.record.recorder.dropped_at_gateway(
                        self.clock.now(),
                        id,
                        gateway,
                        &pkt,
                        reason,
                        place,
                    );
                    self.note_drop(packet, Bottleneck::Carrier);
                    self.left_transmit_queue(id, packet);
                    self.drop_packet(packet);
                }
            }
        }
        self.gateways[id].is_draining = false;
    }

    /// ACK filtering (RFC 3449, section 5.2.1): an acknowledgement without data takes the place of an older one of its
    /// connection that waits. Returns true if it does, and the packet is gone. Acknowledgements with SACK blocks, congestion
    /// marks or other flags that differ, and repeated ones stay: the sender counts them.
    #[inline(never)]
    pub(super) fn filter_ack(&mut self, id: PacketId) -> bool {
        let Body::Tcp { to, segment: new } = self.network.packets[id].body else { return false };
        let is_pure =
            new.len == 0 && new.flags.has(Flags::ACK) && new.end() == new.seq && new.sack == Sack::NONE;
        if !is_pure {
            return false;
        }
        let waiting = self.endpoints.tcp[to].waiting_ack;
        if let Some(waiting) = waiting
            && let Body::Tcp { segment: old, .. } = &mut self.network.packets[waiting].body
        {
            if old.flags != new.flags || old.ack >= new.ack {
                return false;
            }
            *old = new;
            self.network.packets.remove(id);
            self.record.recorder.filtered_ack();
            return true;
        }
        self.endpoints.tcp[to].waiting_ack = Some(id);
        false
    }

    /// A packet has been sent from the transmit queue, or dropped: a packet of the PEP link now gets its number.
    pub(super) fn left_transmit_queue(&mut self, id: GatewayId, packet: PacketId) {
        if self.gateways[id].ack_filter
            && let Body::Tcp { to, .. } = self.network.packets[packet].body
        {
            let waiting = &mut self.endpoints.tcp[to].waiting_ack;
            *waiting = waiting.filter(|waiting| *waiting != packet);
        }
        if let Body::PepData { terminal, to, data } = &mut self.network.packets[packet].body
            && self.terminals[*terminal].streams[StreamId::new(data.stream)].queues[to.peer()] == Some(id)
        {
            let (terminal, side) = (*terminal, to.peer());
            let node = &mut self.terminals[terminal];
            node.ends[side].assign_number(self.clock.now(), data);
            node.arm_end(terminal, side, &mut self.clock);
        }
    }

    /// A marked packet has been sent: the mark of one with a split connection's data is echoed to its sender.
    #[inline(never)]
    fn echo_mark(&mut self, id: GatewayId, packet: PacketId) {
        if let Body::PepData { terminal, to, data } = &self.network.packets[packet].body
            && let stream = &self.terminals[*terminal].streams[StreamId::new(data.stream)]
            && stream.queues[to.peer()] == Some(id)
        {
            let conn = stream.conns[to.peer()];
            self.endpoints.tcp[conn].tcp.echo_mark();
            self.transmit(conn);
        }
    }

    /// A packet has passed the receive queue: a split connection ends here, any other packet goes through.
    fn received_at(&mut self, id: GatewayId, pkt: Packet) {
        self.network.write_mark(&pkt);
        if let Hop::Gateway { splits: true, .. } = self.network.pass_hop(Id::new(pkt.handle)) {
            self.control_window(&pkt);
            return self.end_segment(&pkt);
        }
        self.gateways[id].gateway.process(pkt, self.clock.now());
        self.arm_gateway(id);
    }

    /// The PEP has processed a chunk of a stream, or a packet that it does not split.
    fn processed_at(&mut self, id: GatewayId, pkt: Packet) {
        let packet = PacketId::new(pkt.handle);
        if let Body::Chunk { terminal, stream, bytes, fin } = self.network.packets[packet].body {
            let node = &mut self.terminals[terminal];
            node.ends[Side::Near].write(stream.index(), bytes);
            node.streams[stream].pep_delay.write(bytes, pkt.arrival);
            if fin {
                node.ends[Side::Near].finish(stream.index());
            }
            let slot = self.network.packets.remove(packet).slot;
            self.pump_pep(terminal, Side::Near);
            if let Some(slot) = slot {
                self.free_if_idle(slot);
            }
        } else {
            self.record.recorder.passed_pep(id, self.clock.now() - pkt.arrival);
            if self.gateways[id].forwards {
                return self.hand_on(packet);
            }
            self.gateways[id].gateway.transmit(pkt, self.clock.now());
            self.arm_gateway(id);
        }
    }

    // ----- split connections ---------------------------------------------------------------------------------

    /// A segment of a split connection ends at the PEP.
    fn end_segment(&mut self, pkt: &Packet) {
        let packet = PacketId::new(pkt.handle);
        let &Body::Tcp { to, ref segment } = &self.network.packets[packet].body else {
            return self.deliver(packet);
        };
        let conn = &self.endpoints.tcp[to];
        let Role::Split { terminal, stream, side: Side::Near } = conn.role else {
            return self.deliver(packet);
        };
        let before = conn.tcp.received();
        self.endpoints.tcp.receive(to, segment, self.clock.now());
        if segment.len > 0 {
            // The first byte of the stream follows the SYN.
            let start = segment.seq.saturating_sub(1);
            let in_order = (before, self.endpoints.tcp[to].tcp.received());
            let pep_delay = &mut self.terminals[terminal].streams[stream].pep_delay;
            pep_delay.segment((start, start + u64::from(segment.len)), pkt.arrival, in_order);
        }
        self.network.packets.remove(packet);
        self.pump(to);
    }

    /// A packet of a split connection arrived, marked or not: the limit of its window may change.
    #[inline(never)]
    fn control_window(&mut self, pkt: &Packet) {
        let Body::Tcp { to, .. } = self.network.packets[PacketId::new(pkt.handle)].body else { return };
        let Role::Split { terminal: id, stream, .. } = self.endpoints.tcp[to].role else { return };
        if !self.terminals[id].buffers.on_packet(stream.index(), pkt.marked, self.clock.now()) {
            return;
        }
        if self.terminals[id].buffers.sharers(stream.index()).len() == 1 {
            // Its acknowledgement of this packet tells the window.
            self.offer_window(id, stream);
        } else {
            self.offer_windows(id, stream);
        }
    }

    /// Passes on between one side of a split flow and the PEP link.
    pub(super) fn serve_split(&mut self, conn: ConnId, id: TerminalId, stream: StreamId, side: Side) {
        let c = &mut self.endpoints.tcp[conn];
        let mut has_changed = false;
        if c.greet_split() {
            let node = &mut self.terminals[id];
            node.streams[stream].is_open[side] = true;
            node.ends[side].open(stream.index());
            has_changed = true;
        }
        let most = if side.is_far() { u64::MAX } else { self.terminals[id].most_readable(stream) };
        if let Some(received) = c.read_split(most) {
            if side.is_far() {
                let end = &mut self.terminals[id].ends[Side::Far];
                end.write(stream.index(), received.bytes);
                if received.fin {
                    end.finish(stream.index());
                }
                has_changed = true;
            } else {
                self.process_chunk(conn, id, stream, received);
            }
        }
        let acked = self.endpoints.tcp[conn].newly_acked();
        if acked > 0 {
            self.terminals[id].ends[side].consume(stream.index(), acked);
            has_changed = true;
        }
        if has_changed {
            self.pump_pep(id, side);
        }
    }

    /// The PEP takes received bytes into its buffers, and processes them.
    #[inline]
    fn process_chunk(&mut self, conn: ConnId, id: TerminalId, stream: StreamId, received: Received) {
        let Received { bytes, fin } = received;
        self.terminals[id].hold(stream, bytes);
        if self.terminals[id].receive_buffer.is_some() {
            self.terminals[id].buffers.has_read(stream.index());
        }
        if self.is_tight(id, stream) {
            // The room of connections that share the buffer has shrunk as well. Windows already advertised stay.
            self.offer_windows(id, stream);
        } else {
            self.offer_window(id, stream);
        }
        let (len, slot) = (u32::try_from(bytes).unwrap_or(u32::MAX), self.endpoints.tcp[conn].slot);
        let body = Body::Chunk { terminal: id, stream, bytes, fin };
        let packet = PacketInFlight::new(body, slot, len, Path::default());
        let packet = self.network.packets.insert(packet, self.clock.now());
        let pkt = self.describe(packet);
        let SplitStream { pep_delay, queues, .. } = &self.terminals[id].streams[stream];
        let pkt = Packet { arrival: pep_delay.arrival(), ..pkt };
        let gateway = queues[Side::Near].unwrap_or(self.terminals[id].gateway);
        self.gateways[gateway].gateway.process(pkt, self.clock.now());
        self.arm_gateway(gateway);
    }

    // ----- PEP link ------------------------------------------------------------------------------------------

    /// Sends what one end of the PEP link has to send, and acts on what it has received.
    pub(super) fn pump_pep(&mut self, id: TerminalId, side: Side) {
        let (now, to) = (self.clock.now(), side.peer());
        let path = self.terminals[id].paths[side];
        // The queues that packets entered last.
        let mut entered = self.terminals[id].queues(side);
        while let Some(ack) = self.terminals[id].ends[side].poll_ack(now) {
            let len = ack.wire_len(&self.terminals[id].config);
            let body = Body::PepAck { terminal: id, to, ack: self.network.packets.acks.insert(ack) };
            let queues = entered.filter(|queues| !self.passes_acks(*queues, len));
            self.send_pep(queues, (id, side), PacketInFlight::without_flow(body, len, path));
        }
        loop {
            let node = &mut self.terminals[id];
            let has_queue = node.queues(side).is_some();
            let end = &mut node.ends[side];
            let data = if has_queue { end.poll_unnumbered(now) } else { end.poll_data(now) };
            let Some(data) = data else { break };
            let stream = &mut node.streams[StreamId::new(data.stream)];
            if !side.is_far()
                && data.len > 0
                && !data.retransmission
                && let Some(arrival) = stream.pep_delay.send(data.offset + u64::from(data.len), data.len)
            {
                self.record.recorder.passed_pep(node.gateway, now - arrival);
            }
            let (slot, len, queues) = (stream.slot, data.wire_len(&node.config), stream.queues[side]);
            let body = Body::PepData { terminal: id, to, data };
            if queues != entered {
                self.serve_entered(std::mem::replace(&mut entered, queues));
            }
            self.send_pep(queues, (id, side), PacketInFlight::new(body, slot, len, path));
        }
        self.serve_entered(entered);
        while let Some(event) = self.terminals[id].ends[side].poll_event() {
            self.on_pep_event(id, side, event);
        }
        self.terminals[id].arm_end(id, side, &mut self.clock);
    }

    /// Acts on what queues did with the packets that entered them.
    #[inline]
    pub(super) fn serve_entered(&mut self, queues: Option<GatewayId>) {
        if let Some(gateway) = queues {
            self.drain_gateway(gateway);
            self.arm_gateway(gateway);
        }
    }

    /// True if an acknowledgement of `len` bytes does not wait in a transmit queue, which is charged for it. A terminal without a
    /// regulator has to wait for its slot.
    fn passes_acks(&mut self, queues: GatewayId, len: u32) -> bool {
        let (node, now) = (&mut self.gateways[queues], self.clock.now());
        if !node.has_ack_priority {
            return false;
        }
        match node.carrier {
            Some((carrier, leaf)) => self.carriers[carrier].carrier.charge(leaf, u64::from(len), now),
            None if node.gateway.regulator().is_none() => return false,
            None => node.gateway.charge(u64::from(len), now),
        }
        true
    }

    /// Sends a packet of the PEP link, through the transmit queue on its way if there is one.
    fn send_pep(&mut self, queues: Option<GatewayId>, from: (TerminalId, Side), packet: PacketInFlight) {
        let packet = self.network.packets.insert(packet, self.clock.now());
        self.queue_pep(queues, from, packet);
    }

    /// Passes a packet of the PEP link to the transmit queue on its way if there is one.
    pub(super) fn queue_pep(
        &mut self,
        queues: Option<GatewayId>,
        (id, side): (TerminalId, Side),
        packet: PacketId,
    ) {
        match queues {
            None => self.forward(packet),
            Some(gateway) => {
                let mut pkt = self.describe_at(gateway, packet);
                if let Body::PepData { data, .. } = &self.network.packets[packet].body {
                    // It can be marked if its sender can be told.
                    let conn = self.terminals[id].streams[StreamId::new(data.stream)].conns[side];
                    pkt.ecn = code_point(self.endpoints.tcp[conn].peer_ecn);
                }
                self.gateways[gateway].gateway.transmit(pkt, self.clock.now());
            }
        }
    }

    fn on_pep_event(&mut self, id: TerminalId, side: Side, event: pep_link::Event) {
        use pep_link::Event::{Acked, Closed, Finished, Opened, Readable, Reset};
        let (Opened { stream }
        | Readable { stream, .. }
        | Acked { stream, .. }
        | Finished { stream }
        | Reset { stream }
        | Closed { stream }) = event;
        let stream = StreamId::new(stream);
        let s = &mut self.terminals[id].streams[stream];
        let (slot, conn) = (s.slot, s.conns[side]);
        match event {
            Opened { .. } => {
                s.is_open[side] = true;
                self.connect(conn);
            }
            Readable { bytes, .. } => {
                self.endpoints.tcp[conn].tcp.write(bytes);
                self.pump(conn);
            }
            Acked { bytes, .. } if !side.is_far() => self.release(id, stream, bytes),
            Acked { .. } => {}
            Finished { .. } => {
                self.endpoints.tcp[conn].tcp.close();
                self.pump(conn);
            }
            Reset { .. } => {
                self.endpoints.tcp[conn].tcp.abort();
                self.pump(conn);
            }
            Closed { .. } => {
                s.is_open[side] = false;
                self.free_if_idle(slot);
            }
        }
    }

    /// Resets the ends of a stream that are still open.
    pub(super) fn reset_stream(&mut self, id: TerminalId, stream: StreamId) {
        let is_open = self.terminals[id].streams[stream].is_open;
        for side in Side::BOTH {
            if is_open[side] {
                self.terminals[id].ends[side].reset(stream.index());
                self.pump_pep(id, side);
            }
        }
    }

    // ----- buffers -------------------------------------------------------------------------------------------

    /// Frees room in the PEP's buffers: the bytes have reached the terminal.
    pub(super) fn release(&mut self, id: TerminalId, stream: StreamId, bytes: u64) {
        let was_tight = self.is_tight(id, stream);
        self.terminals[id].release(stream, bytes);
        if self.terminals[id].receive_buffer.is_some() {
            self.read_waiting(id, stream);
        } else if was_tight {
            self.offer_windows(id, stream);
        }
    }

    /// Reads what waits in the receive buffers of the connections that share a buffer, in turn, until there is no room or nothing
    /// waits.
    #[inline(never)]
    fn read_waiting(&mut self, id: TerminalId, stream: StreamId) {
        let mut before = u64::MAX;
        while self.terminals[id].buffers.room(stream.index()) < before {
            before = self.terminals[id].buffers.room(stream.index());
            for sharer in self.terminals[id].buffers.sharers(stream.index()).to_vec() {
                let sharer = StreamId::new(sharer);
                let conn = self.terminals[id].streams[sharer].conns[Side::Near];
                if self.endpoints.tcp[conn].tcp.readable() > 0 && self.terminals[id].most_readable(sharer) > 0
                {
                    self.pump(conn);
                }
            }
        }
    }

    /// True if a stream's buffer limits the window of its near connection.
    fn is_tight(&self, id: TerminalId, stream: StreamId) -> bool {
        let node = &self.terminals[id];
        let conn = node.streams[stream].conns[Side::Near];
        node.is_tight(stream, self.endpoints.tcp.config(conn).receive_window)
    }

    /// Offers the room of a buffer to all connections that share it.
    fn offer_windows(&mut self, id: TerminalId, stream: StreamId) {
        for sharer in self.terminals[id].buffers.sharers(stream.index()).to_vec() {
            let sharer = StreamId::new(sharer);
            self.offer_window(id, sharer);
            self.transmit(self.terminals[id].streams[sharer].conns[Side::Near]);
        }
    }

    /// Offers the room of its buffer to the near connection of a stream, as its receive window.
    pub(super) fn offer_window(&mut self, id: TerminalId, stream: StreamId) {
        let node = &self.terminals[id];
        let conn = node.streams[stream].conns[Side::Near];
        self.endpoints.tcp[conn].tcp.limit_receive_buffer(node.window(stream));
    }
}
