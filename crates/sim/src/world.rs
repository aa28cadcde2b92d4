//! Everything there is in a run, and what moves it.

use bentpipe_gateway::{Event as GatewayEvent, Gateway, PepBuffers};
use bentpipe_link::{DelayLine, Progress, Release, Service};
use bentpipe_queue::{FlowTable, Packet};
use bentpipe_scenario::FlowKey;
use bentpipe_transport::{pep_link, rtp, sctp, tcp};
use bentpipe_units::{Duration, Instant, Rng};

use crate::agenda::{Agenda, Event, MAX_INDEX};
use crate::association::Association;
use crate::circuit::{Circuit, Conn, Role};
use crate::media::Medium;
use crate::network::{Body, Discarded, Flight, Hop, Link, Path, Slab};
use crate::recorder::Recorder;
use crate::traffic::{Session, Source, Traffic};
use crate::transit::Transit;
use crate::watch::{Observation, Tracer};

/// Packets at a time: half of what the agenda can tell apart, for it is not looked at after every event.
const MOST_FLIGHTS: usize = MAX_INDEX as usize / 2;

/// No circuit: the packet belongs to all of a station's streams.
pub const NONE: u32 = u32::MAX;

/// A gateway with its far end: the PEP's buffers and the spacelink between the two.
pub struct Station {
    pub gateway: Gateway,
    pub buffers: PepBuffers,
    /// What a flow is for its queues.
    pub flow_key: FlowKey,
    /// How many circuits of each such flow are open that have been announced.
    pub open: FlowTable<u32>,
    pub near: pep_link::Endpoint,
    pub far: pep_link::Endpoint,
    pub config: pep_link::Config,
    /// From the gateway to the terminal, and back.
    pub forward: Path,
    pub reverse: Path,
    pub relays: Vec<Relay>,
    /// How long the PEP has had each relay's bytes.
    pub transits: Vec<Transit>,
    /// When the agenda next calls: the gateway, the near end, the far end.
    pub gateway_at: Instant,
    pub space_at: [Instant; 2],
    /// The link whose capacity the regulator follows, if it does.
    pub follows: Option<u32>,
    /// Whether the gateway's events are being worked off further up the stack.
    pub draining: bool,
}

/// One split connection's stream: where the PEP joins two TCP connections over the satellite.
#[derive(Clone, Copy, Debug)]
pub struct Relay {
    pub circuit: u32,
    /// The connection at the gateway, and the one at the terminal.
    pub near: u32,
    pub far: u32,
    /// Bytes that the PEP holds for it.
    pub held: u64,
    /// Whether the ends know the stream.
    pub near_live: bool,
    pub far_live: bool,
}

/// A run in progress.
pub struct World {
    pub now: Instant,
    pub agenda: Agenda,
    pub flights: Slab<Flight>,
    /// When each of them left its end, by its place.
    pub born: Vec<Instant>,
    pub acks: Slab<pep_link::Ack>,
    pub hops: Vec<Hop>,
    pub links: Vec<Link>,
    pub lines: Vec<DelayLine<u32>>,
    pub stations: Vec<Station>,
    pub conns: Vec<Conn>,
    pub configs: Vec<tcp::Config>,
    pub associations: Vec<Association>,
    pub sctp_configs: Vec<sctp::Config>,
    pub sctp_packets: Slab<sctp::Packet>,
    pub media: Vec<Medium>,
    pub rtp_configs: Vec<rtp::Config>,
    /// How long hosts take, at most, before they send what they may: by configuration, or none where none takes any.
    pub overheads: Vec<Duration>,
    pub host_rng: Rng,
    pub circuits: Vec<Circuit>,
    pub traffic: Vec<Traffic>,
    pub sessions: Vec<Session>,
    pub sources: Vec<Source>,
    pub recorder: Recorder,
    pub discarded: Discarded,
    pub tracer: Tracer,
    /// What was seen on watched links and has not been handed on.
    pub observations: Vec<Observation>,
    /// Why the run cannot go on, once it has grown beyond what can be simulated.
    pub fault: Option<String>,
}

impl World {
    /// Does what is on the agenda up to and including `end`.
    pub fn run_until(&mut self, end: Instant, mut proceed: impl FnMut(&mut Self) -> bool) -> bool {
        let mut countdown = 0u32;
        while let Some((time, event)) = self.agenda.next(end) {
            self.now = time;
            self.dispatch(event);
            countdown = countdown.wrapping_sub(1) & 0xfff;
            if countdown == 0 {
                if self.flights.len() > MOST_FLIGHTS {
                    self.fault = Some(format!("{} packets at a time are too many", self.flights.len()));
                }
                if self.fault.is_some() || !proceed(self) {
                    return false;
                }
            }
        }
        self.now = end;
        true
    }

    #[inline]
    fn dispatch(&mut self, event: Event) {
        match event {
            Event::Line(line) => self.line_head(line),
            Event::Flight(flight) => self.arrive(flight),
            Event::Port(link) => self.serve_link(link),
            Event::PortWake(link) => self.wake_link(link),
            Event::Timer(conn) => self.conn_timer(conn),
            Event::Pace(conn) => self.conn_pace(conn),
            Event::Gateway(station) => self.wake_gateway(station),
            Event::Space(end) => self.space_timer(end / 2, end % 2 == 1),
            Event::Session(session) => self.open_page(session),
            Event::Source(source) => self.source_due(source),
            Event::Association(end) => self.association_timer(end),
            Event::Report(end) => self.report_due(end / 2, end % 2 == 1),
            Event::Sample => self.sample(),
            Event::Capacity(link) => self.update_capacity(link),
        }
    }

    // ----- packets on their way ------------------------------------------------------------------------------

    /// Sends a packet off along a path.
    #[inline]
    pub fn launch(&mut self, body: Body, circuit: u32, len: u32, path: Path) -> u32 {
        if circuit != NONE {
            self.circuits[circuit as usize].flights += 1;
        }
        let index = self.flights.insert(Flight { body, circuit, len, hop: path.start, end: path.end });
        match self.born.get_mut(index as usize) {
            Some(born) => *born = self.now,
            None => self.born.push(self.now),
        }
        index
    }

    /// Takes a packet off its way for good.
    #[inline]
    pub fn land(&mut self, flight: u32) -> Flight {
        let landed = self.flights.remove(flight);
        if landed.circuit != NONE {
            self.circuits[landed.circuit as usize].flights -= 1;
        }
        landed
    }

    fn line_head(&mut self, line: u32) {
        let Some((flight, next)) = self.lines[line as usize].pop() else { return };
        if let Some(at) = next {
            self.agenda.at(at, Event::Line(line));
        }
        self.arrive(flight);
    }

    /// A packet has come over its link.
    fn arrive(&mut self, index: u32) {
        let flight = self.flights.get_mut(index);
        let hop = self.hops[flight.hop as usize];
        flight.hop += 1;
        if let Hop::Link { link, .. } = hop {
            let link = &mut self.links[link as usize];
            link.counters.arrived += 1;
            if link.seen_arriving != NONE {
                let interface = link.seen_arriving;
                self.observe(interface, index, false);
            }
        }
        self.forward(index);
    }

    /// A packet goes on from where it is.
    #[inline]
    pub fn forward(&mut self, index: u32) {
        let flight = *self.flights.get(index);
        if flight.hop == flight.end {
            return self.deliver(index);
        }
        match self.hops[flight.hop as usize] {
            Hop::Link { link, line } => self.enter_link(index, flight.len, link, line),
            Hop::Gateway { station, .. } => {
                let pkt = self.packet_at(station, index);
                self.stations[station as usize].gateway.arrive(pkt, self.now);
                self.drain_gateway(station);
            }
        }
    }

    fn enter_link(&mut self, index: u32, len: u32, link: u32, line: u32) {
        let l = &mut self.links[link as usize];
        if l.engine.loses_on_arrival(len, || self.flights.get(index).body.has_payload(), self.now) {
            return self.lose(index, len, link);
        }
        if l.engine.queue().is_none() {
            let sent = l.engine.transmit(len, self.now);
            return self.propagate(index, len, link, line, sent);
        }
        let mut pkt = self.packet(index);
        if self.links[link as usize].engine.offer(&mut pkt, self.now, &mut self.discarded) {
            self.enqueue(pkt, link);
        }
        self.drop_at_link(link);
        self.arm_link(link);
    }

    /// An admitted packet enters a link's queue.
    fn enqueue(&mut self, pkt: Packet, link: u32) {
        self.note_mark(pkt);
        if self.links[link as usize].engine.enqueue(pkt, self.now, &mut self.discarded) {
            self.serve_link(link);
        }
    }

    /// A link is free: sends the next packet.
    fn serve_link(&mut self, link: u32) {
        let l = &mut self.links[link as usize];
        let (flights, circuits, traffic) = (&self.flights, &self.circuits, &self.traffic);
        let hosts = l.hosts;
        let terminal = |pkt: &Packet| host_of(flights.get(pkt.handle).circuit, hosts, circuits, traffic);
        match l.engine.serve(self.now, &mut self.discarded, terminal) {
            Service::Idle => {}
            Service::Blocked(until) => return self.agenda.at(until, Event::Port(link)),
            Service::Sending { pkt, dequeued, next, progress } => {
                if dequeued {
                    self.recorder.left_link(link, self.now - pkt.arrival);
                }
                self.agenda.at(next, Event::Port(link));
                self.note_mark(pkt);
                match progress {
                    Progress::Partial => {}
                    Progress::Sent(sent) => {
                        let hop = self.flights.get(pkt.handle).hop;
                        if let Hop::Link { line, .. } = self.hops[hop as usize] {
                            self.propagate(pkt.handle, pkt.len, link, line, sent);
                        }
                    }
                    Progress::Lost => self.lost_at_sender(pkt, link),
                }
            }
        }
        self.drop_at_link(link);
    }

    /// A link layer has given up a packet.
    #[inline(never)]
    fn lost_at_sender(&mut self, pkt: Packet, link: u32) {
        let l = &mut self.links[link as usize];
        l.counters.sent += 1;
        l.counters.sent_bytes += u64::from(pkt.len);
        l.counters.lost += 1;
        if l.seen_leaving != NONE {
            let interface = l.seen_leaving;
            self.observe(interface, pkt.handle, true);
        }
        self.lose(pkt.handle, pkt.len, link);
    }

    fn wake_link(&mut self, link: u32) {
        if !self.links[link as usize].engine.wake(self.now) {
            return;
        }
        loop {
            match self.links[link as usize].engine.release(self.now, &mut self.discarded) {
                Release::Done => break,
                Release::None => {}
                Release::Packet(pkt) => self.enqueue(pkt, link),
            }
            self.drop_at_link(link);
        }
        self.arm_link(link);
    }

    /// Schedules a link's queue.
    pub fn arm_link(&mut self, link: u32) {
        if let Some(at) = self.links[link as usize].engine.next_wake() {
            self.agenda.at(at, Event::PortWake(link));
        }
    }

    /// A link has another capacity: a gateway in front follows it.
    fn update_capacity(&mut self, link: u32) {
        let Some((rate, next)) = self.links[link as usize].engine.update_capacity(self.now) else { return };
        if let Some(next) = next {
            self.agenda.at(next, Event::Capacity(link));
        }
        for station in 0..self.stations.len() as u32 {
            let s = &mut self.stations[station as usize];
            if s.follows == Some(link) {
                s.gateway.set_rate(rate, self.now);
                self.arm_gateway(station);
            }
        }
    }

    /// Drops the packets that a link's queue discarded.
    #[inline]
    fn drop_at_link(&mut self, link: u32) {
        if !self.discarded.0.is_empty() {
            self.drop_discarded(link);
        }
    }

    #[inline(never)]
    fn drop_discarded(&mut self, link: u32) {
        let mut discarded = std::mem::take(&mut self.discarded.0);
        for (pkt, reason) in discarded.drain(..) {
            self.recorder.dropped_at_link(self.now, link, &pkt, reason);
            self.drop(pkt.handle);
        }
        // Nothing is discarded meanwhile; the room is kept.
        self.discarded.0 = discarded;
    }

    /// A packet has been discarded.
    fn drop(&mut self, index: u32) {
        let flight = self.land(index);
        match flight.body {
            Body::SpaceAck { ack, .. } => std::mem::drop(self.acks.remove(ack)),
            Body::Sctp { packet, .. } => std::mem::drop(self.sctp_packets.take(packet)),
            _ => {}
        }
        if flight.circuit != NONE {
            let circuit = &self.circuits[flight.circuit as usize];
            self.recorder.count_drop(circuit.flow);
            self.settle(flight.circuit);
        }
    }

    /// A packet travels over a link that it has been sent on up to `sent`.
    #[inline(always)]
    pub fn propagate(&mut self, index: u32, len: u32, link: u32, line: u32, mut sent: Instant) {
        let mut l = &mut self.links[link as usize];
        l.counters.sent += 1;
        l.counters.sent_bytes += u64::from(len);
        if l.is_eventful {
            match self.apply_channel(index, len, link, sent) {
                Some(late) => sent = late,
                None => return,
            }
            l = &mut self.links[link as usize];
        }
        let (delay, ordered) = l.engine.delay(|| self.lines[line as usize].delay);
        if !ordered {
            return self.agenda.at(sent + delay, Event::Flight(index));
        }
        if let Some(at) = self.lines[line as usize].push(sent + delay, index) {
            self.agenda.at(at, Event::Line(line));
        }
    }

    /// What befalls a packet on a link where something may: when it would have been sent if the satellite were as near as
    /// ever; none where it is lost.
    #[inline(never)]
    fn apply_channel(&mut self, index: u32, len: u32, link: u32, sent: Instant) -> Option<Instant> {
        let l = &mut self.links[link as usize];
        let has_payload = self.flights.get(index).body.has_payload();
        let fate = l.engine.apply_channel(len, has_payload, sent).ok();
        if l.seen_leaving != NONE {
            let interface = l.seen_leaving;
            self.observe(interface, index, fate.is_none());
        }
        if fate.is_none() {
            self.links[link as usize].counters.lost += 1;
            self.lose(index, len, link);
        }
        fate
    }

    /// A link loses a packet.
    pub fn lose(&mut self, index: u32, len: u32, link: u32) {
        let flow = self.flow_of(index);
        self.recorder.lost(self.now, link, flow, len);
        self.drop(index);
    }

    /// A packet has come to the end of its path.
    fn deliver(&mut self, index: u32) {
        let flight = self.flights.get(index);
        if let &Body::Tcp { to, ref segment } = &flight.body {
            // Most are segments, which are read where they stand.
            let (circuit, has_data) = (flight.circuit, segment.len > 0);
            self.conns[to as usize].hear(&self.configs, self.now, segment);
            if has_data {
                self.time_segment(circuit, to, index);
            }
            self.land(index);
            return self.pump(to);
        }
        let flight = self.land(index);
        match flight.body {
            Body::Space { station, to_far, data } => {
                let now = self.now;
                self.space_end(station, to_far).on_data(now, &data);
                self.pump_space(station, to_far);
                self.settle(flight.circuit);
            }
            Body::SpaceAck { station, to_far, ack } => {
                let (now, ack) = (self.now, self.acks.remove(ack));
                self.space_end(station, to_far).on_ack(now, &ack);
                self.pump_space(station, to_far);
            }
            Body::Sctp { to, packet, data } => {
                // What the receiving end sends are acknowledgements.
                if data {
                    self.time_packet(flight.circuit, index);
                }
                self.deliver_sctp(to, packet);
            }
            body @ (Body::Rtp { .. } | Body::SenderReport { .. } | Body::ReceiverReport { .. }) => {
                if body.has_payload() {
                    self.time_packet(flight.circuit, index);
                }
                self.deliver_media(flight.circuit, &body, flight.len);
            }
            Body::Datagram => {
                self.time_packet(flight.circuit, index);
                let payload = u64::from(flight.len.saturating_sub(DATAGRAM_HEADER));
                self.recorder.delivered(self.circuits[flight.circuit as usize].flow, payload);
                self.settle(flight.circuit);
            }
            Body::Tcp { .. } | Body::Chunk { .. } => {}
        }
    }

    /// A packet of a circuit's data, which has been given up its place, came from end to end.
    #[inline]
    fn time_packet(&mut self, circuit: u32, index: u32) {
        let flow = self.circuits[circuit as usize].flow;
        self.recorder.came(flow, self.now - self.born[index as usize]);
    }

    /// A segment with payload came to the connection `to`: counts if it is data, not a request, and if nothing on the way
    /// split its circuit.
    #[inline]
    fn time_segment(&mut self, circuit: u32, to: u32, index: u32) {
        let c = &self.circuits[circuit as usize];
        if c.relays.is_empty() && to != c.conns.start {
            self.recorder.came(c.flow, self.now - self.born[index as usize]);
        }
    }

    pub fn flow_of(&self, index: u32) -> u32 {
        match self.flights.get(index).circuit {
            NONE => NONE,
            circuit => self.circuits[circuit as usize].flow,
        }
    }

    // ----- stations ------------------------------------------------------------------------------------------

    fn wake_gateway(&mut self, station: u32) {
        let s = &mut self.stations[station as usize];
        if s.gateway_at != self.now {
            return;
        }
        s.gateway_at = Instant::FAR_FUTURE;
        loop {
            self.stations[station as usize].gateway.wake(self.now);
            self.drain_gateway(station);
            if self.stations[station as usize].gateway.wake_at().is_none_or(|at| at > self.now) {
                break;
            }
        }
        self.arm_gateway(station);
    }

    /// Puts the gateway's next wish on the agenda.
    pub fn arm_gateway(&mut self, station: u32) {
        let s = &mut self.stations[station as usize];
        if let Some(at) = s.gateway.wake_at()
            && at < s.gateway_at
        {
            s.gateway_at = at;
            self.agenda.at(at, Event::Gateway(station));
        }
    }

    /// Acts on what the gateway did.
    fn drain_gateway(&mut self, station: u32) {
        if std::mem::replace(&mut self.stations[station as usize].draining, true) {
            return;
        }
        while let Some(event) = self.stations[station as usize].gateway.poll() {
            match event {
                GatewayEvent::Received(pkt) => self.received(station, pkt),
                GatewayEvent::Processed(pkt) => self.processed(station, pkt),
                GatewayEvent::Sent(pkt) => {
                    self.recorder.left_gateway(station, self.now - pkt.arrival);
                    self.number(station, pkt.handle);
                    self.note_mark(pkt);
                    self.forward(pkt.handle);
                }
                GatewayEvent::Dropped(pkt, reason, place) => {
                    let pkt = Packet { flow: self.flow_of(pkt.handle), ..pkt };
                    let gateway = &self.stations[station as usize].gateway;
                    self.recorder.dropped_at_gateway(self.now, station, gateway, &pkt, reason, place);
                    self.number(station, pkt.handle);
                    self.drop(pkt.handle);
                }
            }
        }
        self.stations[station as usize].draining = false;
    }

    /// A packet has left the transmit queue, one way or the other: if it is the spacelink's, it has its number now.
    fn number(&mut self, station: u32, index: u32) {
        if let Body::Space { station: its, to_far: true, data } = &mut self.flights.get_mut(index).body
            && *its == station
        {
            self.stations[station as usize].near.assign_number(self.now, data);
            self.arm_space(station, false);
        }
    }

    /// A packet has passed the receive queue: a split connection's ends here, any other goes through.
    fn received(&mut self, station: u32, pkt: Packet) {
        self.note_mark(pkt);
        let flight = self.flights.get_mut(pkt.handle);
        let hop = self.hops[flight.hop as usize];
        flight.hop += 1;
        if let Hop::Gateway { splits: true, .. } = hop {
            if self.stations[station as usize].buffers.has_control() {
                self.heed(station, pkt);
            }
            return self.take_segment(station, pkt);
        }
        self.stations[station as usize].gateway.process(pkt, self.now);
        self.arm_gateway(station);
    }

    /// A packet of a split connection ends here.
    fn take_segment(&mut self, station: u32, pkt: Packet) {
        let &Body::Tcp { to, ref segment } = &self.flights.get(pkt.handle).body else {
            return self.deliver(pkt.handle);
        };
        let conn = &mut self.conns[to as usize];
        let Role::Relay { stream, far: false, .. } = conn.role else { return self.deliver(pkt.handle) };
        let before = conn.tcp.received();
        conn.hear(&self.configs, self.now, segment);
        if segment.len > 0 {
            // The first byte of the stream comes after the SYN.
            let start = segment.seq.saturating_sub(1);
            let (bytes, in_order) = ((start, start + u64::from(segment.len)), (before, conn.tcp.received()));
            let transit = &mut self.stations[station as usize].transits[stream as usize];
            transit.segment(bytes, pkt.arrival, in_order);
        }
        self.land(pkt.handle);
        self.pump(to);
    }

    /// A packet of a split connection has come, marked or not: its server may send less, or more again.
    #[inline(never)]
    fn heed(&mut self, station: u32, pkt: Packet) {
        let Body::Tcp { to, .. } = self.flights.get(pkt.handle).body else { return };
        let Role::Relay { stream, .. } = self.conns[to as usize].role else { return };
        if self.stations[station as usize].buffers.on_packet(stream, pkt.marked, self.now) {
            self.offer_window(station, stream);
        }
    }

    /// The PEP has finished with a chunk of a stream, or with a packet that it does not split.
    fn processed(&mut self, station: u32, pkt: Packet) {
        let s = &mut self.stations[station as usize];
        if let Body::Chunk { stream, bytes, fin } = self.flights.get(pkt.handle).body {
            s.near.write(stream, bytes);
            s.transits[stream as usize].write(bytes, pkt.arrival);
            if fin {
                s.near.finish(stream);
            }
            let circuit = self.land(pkt.handle).circuit;
            self.pump_space(station, false);
            self.settle(circuit);
        } else {
            self.recorder.passed_gateway(station, self.now - pkt.arrival);
            s.gateway.transmit(pkt, self.now);
            self.arm_gateway(station);
        }
    }

    #[inline]
    pub fn space_end(&mut self, station: u32, far: bool) -> &mut pep_link::Endpoint {
        let s = &mut self.stations[station as usize];
        if far { &mut s.far } else { &mut s.near }
    }

    fn space_timer(&mut self, station: u32, far: bool) {
        let s = &mut self.stations[station as usize];
        if s.space_at[usize::from(far)] != self.now {
            return;
        }
        s.space_at[usize::from(far)] = Instant::FAR_FUTURE;
        let now = self.now;
        let end = self.space_end(station, far);
        if end.poll_timeout().is_some_and(|at| at <= now) {
            end.handle_timeout(now);
        }
        self.pump_space(station, far);
    }

    /// Sends what one end of the spacelink has to send, and acts on what it has heard.
    pub fn pump_space(&mut self, station: u32, far: bool) {
        let now = self.now;
        let path = {
            let s = &self.stations[station as usize];
            if far { s.reverse } else { s.forward }
        };
        let to_far = !far;
        while let Some(ack) = self.space_end(station, far).poll_ack(now) {
            let len = ack.wire_len(&self.stations[station as usize].config);
            let body = Body::SpaceAck { station, to_far, ack: self.acks.insert(ack) };
            self.send_space(station, far, body, NONE, len, path);
        }
        loop {
            let end = self.space_end(station, far);
            let Some(data) = (if far { end.poll_data(now) } else { end.poll_unnumbered(now) }) else { break };
            let s = &mut self.stations[station as usize];
            if !far
                && data.len > 0
                && !data.retransmission
                && let Some(came) =
                    s.transits[data.stream as usize].send(data.offset + u64::from(data.len), data.len)
            {
                self.recorder.passed_gateway(station, now - came);
            }
            let (len, circuit) = (data.wire_len(&s.config), s.relays[data.stream as usize].circuit);
            self.send_space(station, far, Body::Space { station, to_far, data }, circuit, len, path);
        }
        if !far {
            self.drain_gateway(station);
            self.arm_gateway(station);
        }
        while let Some(event) = self.space_end(station, far).poll_event() {
            self.space_event(station, far, event);
        }
        self.arm_space(station, far);
    }

    /// Puts the timer of one end of the spacelink on the agenda.
    fn arm_space(&mut self, station: u32, far: bool) {
        let side = usize::from(far);
        let s = &mut self.stations[station as usize];
        let end = if far { &s.far } else { &s.near };
        if let Some(at) = end.poll_timeout()
            && at < s.space_at[side]
        {
            s.space_at[side] = at;
            self.agenda.at(at, Event::Space(2 * station + u32::from(far)));
        }
    }

    /// Sends a packet of the spacelink: from the gateway by way of its transmit queue.
    fn send_space(&mut self, station: u32, far: bool, body: Body, circuit: u32, len: u32, path: Path) {
        let index = self.launch(body, circuit, len, path);
        if far {
            self.forward(index);
        } else {
            let pkt = self.packet_at(station, index);
            self.stations[station as usize].gateway.transmit(pkt, self.now);
        }
    }

    fn space_event(&mut self, station: u32, far: bool, event: pep_link::Event) {
        use pep_link::Event::{Acked, Closed, Finished, Opened, Readable, Reset};
        let (Opened { stream }
        | Readable { stream, .. }
        | Acked { stream, .. }
        | Finished { stream }
        | Reset { stream }
        | Closed { stream }) = event;
        let relay = &mut self.stations[station as usize].relays[stream as usize];
        let circuit = relay.circuit;
        let conn = if far { relay.far } else { relay.near };
        let live = if far { &mut relay.far_live } else { &mut relay.near_live };
        match event {
            Opened { .. } => {
                *live = true;
                self.connect(conn);
            }
            Readable { bytes, .. } => {
                self.conns[conn as usize].tcp.write(bytes);
                self.pump(conn);
            }
            Acked { bytes, .. } if !far => self.release(station, stream, bytes),
            Acked { .. } => {}
            Finished { .. } => {
                self.conns[conn as usize].tcp.close();
                self.pump(conn);
            }
            Reset { .. } => {
                self.conns[conn as usize].tcp.abort();
                self.pump(conn);
            }
            Closed { .. } => {
                *live = false;
                self.settle(circuit);
            }
        }
    }

    /// Bytes have reached the far end, so their room in the PEP's buffer is free again.
    pub fn release(&mut self, station: u32, stream: u32, bytes: u64) {
        let was_tight = self.is_tight(station, stream);
        let s = &mut self.stations[station as usize];
        let relay = &mut s.relays[stream as usize];
        // A connection that was given up has let go of everything.
        let bytes = bytes.min(relay.held);
        relay.held -= bytes;
        s.buffers.release(stream, bytes);
        if was_tight {
            self.offer_windows(station, stream);
        }
    }

    /// Tells all connections that share a stream's buffer how much their servers may send.
    pub fn offer_windows(&mut self, station: u32, stream: u32) {
        for sharer in self.stations[station as usize].buffers.sharers(stream).to_vec() {
            self.offer_window(station, sharer);
            let near = self.stations[station as usize].relays[sharer as usize].near;
            self.transmit(near);
        }
    }

    /// Whether a stream's buffer has less room than its connection's largest window.
    pub fn is_tight(&self, station: u32, stream: u32) -> bool {
        let s = &self.stations[station as usize];
        let conn = &self.conns[s.relays[stream as usize].near as usize];
        s.buffers.room(stream) < u64::from(self.configs[conn.config as usize].receive_window)
    }

    /// Tells a connection at the gateway how much its server may send.
    pub fn offer_window(&mut self, station: u32, stream: u32) {
        let s = &self.stations[station as usize];
        let (room, conn) = (s.buffers.room(stream), s.relays[stream as usize].near);
        self.conns[conn as usize].tcp.limit_receive_buffer(u32::try_from(room).unwrap_or(u32::MAX));
    }

    // ----- the end -------------------------------------------------------------------------------------------

    fn sample(&mut self) {
        let next = self.recorder.sample(self.now, &self.links, &self.stations);
        if let Some(at) = next {
            self.agenda.at(at, Event::Sample);
        }
    }

    /// Checks that nothing appeared from nowhere or vanished.
    ///
    /// # Errors
    /// Names the identity that does not hold, with its figures.
    pub fn check(&self) -> Result<(), String> {
        let mut held = 0u64;
        for l in &self.links {
            let c = l.counters;
            let on_way = c.sent - c.lost - c.arrived;
            held += on_way + l.engine.queued();
            if let Some(queue) = l.engine.queue() {
                queue.check().map_err(|e| format!("{}: {e}", l.name))?;
            }
        }
        for station in &self.stations {
            let g = &station.gateway;
            for queue in [g.receive_queue(), g.transmit_queue()] {
                queue.check().map_err(|e| format!("gateway: {e}"))?;
                held += u64::from(queue.state().packets) + u64::from(queue.state().held);
            }
            held += g.in_work() as u64;
            let owned: u64 = station.relays.iter().map(|r| r.held).sum();
            if owned != station.buffers.occupied() {
                let occupied = station.buffers.occupied();
                return Err(format!("PEP buffers hold {occupied} bytes, their connections {owned}"));
            }
        }
        if held != self.flights.len() as u64 {
            return Err(format!("{} packets are under way, but {held} can be found", self.flights.len()));
        }
        if self.agenda.is_exhausted() {
            return Err("more events than the agenda can keep in order".to_owned());
        }
        self.recorder.check()
    }
}

/// The host of a group that a packet goes to or comes from, counted within the group.
fn host_of(
    circuit: u32,
    (first, count): (u32, u32),
    circuits: &[Circuit],
    traffic: &[Traffic],
) -> Option<u32> {
    if count == 0 || circuit == NONE {
        return None;
    }
    let c = &circuits[circuit as usize];
    let t = &traffic[c.traffic as usize];
    [t.to.first + c.hosts.1, t.from.first + c.hosts.0]
        .into_iter()
        .filter_map(|host| host.checked_sub(first))
        .find(|host| *host < count)
}

/// IPv4 and UDP headers of a datagram [bytes] (RFC 791, RFC 768).
pub const DATAGRAM_HEADER: u32 = 28;
