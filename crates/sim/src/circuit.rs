//! Circuits: connections from end to end, in as many TCP legs as the gateways on the way make of them.
//!
//! A circuit's legs follow the data, from the sending host to the receiving one. Each leg has two connections,
//! `up` nearer the sender and `down` nearer the receiver; where a gateway splits, a stream of its spacelink joins
//! the `down` of one leg to the `up` of the next.

use bentpipe_link::DelayLine;
use bentpipe_queue::{FlowEvent, Packet};
use bentpipe_transport::{pep_link, tcp};
use bentpipe_units::Instant;

use crate::agenda::{Event, MAX_INDEX};
use crate::network::{Body, Hop, Path};
use crate::traffic::{Carrier, Kind};
use crate::transit::Transit;
use crate::world::{NONE, Relay, World};

/// Ends of connections at a time: as many as fit in the memory of most machines (some 3 GB), where transfers begin faster
/// than they can end.
const MOST_ENDS: usize = 1 << 22;

/// Whose link of a group a path takes.
#[derive(Clone, Copy, Debug)]
pub enum Member {
    One,
    From,
    To,
}

/// One step of a path, before it is known which hosts it joins.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Link {
        /// The first of the group's links; each takes two places, forward and reverse.
        base: u32,
        member: Member,
        reverse: bool,
        /// Which of the circuit's own delay lines it uses, if any.
        own_line: Option<u32>,
    },
    Gateway {
        station: u32,
        splits: bool,
    },
}

/// One leg of a plan: the steps with the data, and against it.
#[derive(Clone, Debug, Default)]
pub struct LegPlan {
    pub down: Vec<Step>,
    pub up: Vec<Step>,
}

/// A delay that is drawn for each connection.
#[derive(Clone, Copy, Debug)]
pub struct OwnDelay {
    pub base: u32,
    pub forward: bool,
    pub shared: bool,
}

/// How the circuits of some traffic are laid out.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub legs: Vec<LegPlan>,
    /// The stations where one leg ends, at the gateway, and the next begins, at the terminal.
    pub joints: Vec<u32>,
    /// Each takes two lines of the circuit's own: with the data, and against it.
    pub own_delays: Vec<OwnDelay>,
}

/// One end of a TCP leg.
pub struct Conn {
    pub tcp: tcp::Connection,
    pub config: u32,
    pub circuit: u32,
    /// The other end.
    pub peer: u32,
    /// Its way there.
    pub path: Path,
    pub role: Role,
    /// When the agenda next calls for its timer, and for its pacing.
    timer_at: Instant,
    pace_at: Instant,
    /// The congestion window of the peer when the latest segment from it left [bytes].
    pub peer_window: u32,
    /// Bytes acknowledged by the peer that the spacelink has been told of.
    consumed: u64,
    /// Whether it opened its leg itself.
    pub active: bool,
    /// Whether the other side of the relay, or the application, has been told that it is established.
    pub greeted: bool,
    /// … and that the peer sends no more.
    ended: bool,
    /// Its place among the traced connections, if it is one.
    pub trace: u32,
}

/// Whom a connection serves.
#[derive(Clone, Copy, Debug)]
pub enum Role {
    Sender,
    Receiver,
    Relay { station: u32, stream: u32, far: bool },
}

/// How far a circuit has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not in use.
    Free,
    /// Its data are on their way.
    Live,
    /// Its work is done, or failed; its connections are taking leave.
    Closing,
}

/// A connection from end to end.
pub struct Circuit {
    pub traffic: u32,
    /// Its row among the recorder's flows.
    pub flow: u32,
    /// The hosts that send and receive its data, each among those of its group.
    pub hosts: (u32, u32),
    /// Packets that belong to it and are still somewhere.
    pub flights: u32,
    pub conns: std::ops::Range<u32>,
    /// The sending end of its association, where SCTP carries it; the receiving one follows.
    pub association: Option<u32>,
    /// Its medium, where RTP carries it.
    pub medium: Option<u32>,
    pub relays: Vec<(u32, u32)>,
    /// With and against the data, for each leg.
    pub paths: Vec<(Path, Path)>,
    own_lines: Vec<(u32, u32)>,
    /// The session or source that it works for.
    pub owner: u32,
    pub phase: Phase,
    failed: bool,
    /// Objects that are still to come, the current one among them.
    pub objects: u32,
    /// Size of the current object [bytes].
    pub size: u64,
    /// Bytes of it that have come.
    pub got: u64,
    /// Bytes of requests that the server has heard, and how many requests it has answered.
    pub heard: u64,
    pub answered: u64,
}

impl World {
    // ----- opening and closing -------------------------------------------------------------------------------

    /// A circuit between two hosts, ready to be opened from either end.
    pub fn open_circuit(&mut self, traffic: u32, from: u32, to: u32, owner: u32) -> u32 {
        let index = match self.traffic[traffic as usize].pool.pop() {
            Some(circuit) => circuit,
            None => self.lay_out(traffic),
        };
        self.circuits[index as usize].owner = owner;
        self.aim(index, from, to);
        let t = &self.traffic[traffic as usize];
        let (finite, user) = match t.kind {
            Kind::Pages { .. } => (true, t.to.first + to),
            Kind::Files { .. } => (true, t.to.first + to),
            Kind::Bulk { bytes, .. } => (bytes.is_some(), t.to.first + to),
            Kind::Packets { .. } => (false, t.to.first + to),
        };
        let number = match t.kind {
            Kind::Pages { .. } => self.sessions[owner as usize].number,
            _ => self.sources[owner as usize].number,
        };
        let flow = self.recorder.open_flow(self.now, traffic, number, finite);
        let c = &mut self.circuits[index as usize];
        *c = Circuit {
            traffic,
            flow,
            hosts: (from, to),
            flights: 0,
            owner,
            phase: Phase::Live,
            failed: false,
            objects: 1,
            size: 0,
            got: 0,
            heard: 0,
            answered: 0,
            conns: c.conns.clone(),
            association: c.association,
            medium: c.medium,
            relays: std::mem::take(&mut c.relays),
            paths: std::mem::take(&mut c.paths),
            own_lines: std::mem::take(&mut c.own_lines),
        };
        if let Some(medium) = self.circuits[index as usize].medium {
            self.prepare_medium(medium);
        }
        let conns = self.circuits[index as usize].conns.clone();
        let association = self.circuits[index as usize].association;
        let has_windows = !conns.is_empty() || association.is_some();
        let traced = has_windows && self.tracer.wants(flow, traffic, number);
        if let Some(first) = association {
            let trace = if traced { self.tracer.begin(flow, 0) } else { NONE };
            self.prepare_association(first, trace);
        }
        for (place, conn) in (0..).zip(conns) {
            let conn = &mut self.conns[conn as usize];
            // Data comes from the first of a leg's two connections.
            let sends = traced && place % 2 == 0;
            conn.trace = if sends { self.tracer.begin(flow, place / 2) } else { NONE };
            conn.tcp = tcp::Connection::listen(&self.configs[conn.config as usize]);
            (conn.timer_at, conn.pace_at) = (Instant::FAR_FUTURE, Instant::FAR_FUTURE);
            (conn.peer_window, conn.consumed) = (0, 0);
            (conn.active, conn.greeted, conn.ended) = (false, false, false);
        }
        for i in 0..self.circuits[index as usize].relays.len() {
            let (station, stream) = self.circuits[index as usize].relays[i];
            let s = &mut self.stations[station as usize];
            s.transits[stream as usize].clear();
            let near = s.relays[stream as usize].near;
            let segment = self.configs[self.conns[near as usize].config as usize].mss;
            s.buffers.open(stream, user, u64::from(segment));
            self.offer_window(station, stream);
        }
        self.announce(index, FlowEvent::Opened);
        index
    }

    /// Makes room for a circuit of this traffic: connections, streams, hops and delay lines.
    fn lay_out(&mut self, traffic: u32) -> u32 {
        let t = &self.traffic[traffic as usize];
        let (config, sender_config) = match t.kind {
            Kind::Pages { config, server_config, .. } => (config, server_config),
            Kind::Files { config, sender_config, .. } | Kind::Bulk { config, sender_config, .. } => {
                (config, sender_config)
            }
            Kind::Packets { config, .. } => (config.unwrap_or(0), config.unwrap_or(0)),
        };
        let carrier = t.carrier;
        let connected = carrier.is_none() && !matches!(t.kind, Kind::Packets { config: None, .. });
        let plan = t.plan.clone();
        let circuit = self.circuits.len() as u32;

        let mut own_lines = Vec::new();
        for _ in &plan.own_delays {
            let first = self.lines.len() as u32;
            self.lines.extend([DelayLine::default(), DelayLine::default()]);
            own_lines.push((first, first + 1));
        }
        let mut room = |steps: &[Step]| {
            let start = self.hops.len() as u32;
            self.hops.extend(steps.iter().map(|_| Hop::Gateway { station: 0, splits: false }));
            Path { start, end: self.hops.len() as u32 }
        };
        let paths: Vec<_> = plan.legs.iter().map(|leg| (room(&leg.down), room(&leg.up))).collect();

        let (mut association, mut medium) = (None, None);
        match (carrier, paths.first()) {
            (Some(Carrier::Sctp { config }), Some(&(down, up))) => {
                association = Some(self.lay_out_association(circuit, config, down, up));
            }
            (Some(Carrier::Rtp { config, nominal }), _) => {
                medium = Some(self.lay_out_medium(circuit, config, nominal));
            }
            _ => {}
        }
        let first = self.conns.len() as u32;
        let mut relays = Vec::new();
        if connected {
            for (leg, &(down, up)) in paths.iter().enumerate() {
                let here = first + 2 * leg as u32;
                for (index, peer, path) in [(here, here + 1, down), (here + 1, here, up)] {
                    let config = if index == first { sender_config } else { config };
                    let role = if index == first { Role::Sender } else { Role::Receiver };
                    self.conns.push(Conn::new(&self.configs, config, circuit, peer, path, role));
                }
            }
            for (i, &station) in plan.joints.iter().enumerate() {
                let (near, far) = (first + 2 * i as u32 + 1, first + 2 * i as u32 + 2);
                self.stations[station as usize].transits.push(Transit::default());
                let relays_there = &mut self.stations[station as usize].relays;
                let stream = relays_there.len() as u32;
                relays_there.push(Relay { circuit, near, far, held: 0, near_live: false, far_live: false });
                for (conn, far) in [(near, false), (far, true)] {
                    self.conns[conn as usize].role = Role::Relay { station, stream, far };
                }
                relays.push((station, stream));
            }
        }
        let ends = self.conns.len().max(self.associations.len()).max(2 * self.media.len());
        let streams = plan.joints.iter().map(|&s| self.stations[s as usize].relays.len()).max();
        if ends > MOST_ENDS
            || self.lines.len() > MAX_INDEX as usize
            || streams > Some(pep_link::MAX_STREAMS as usize)
        {
            self.fault = Some(format!("more than {circuit} connections at a time are too many"));
        }
        self.circuits.push(Circuit {
            traffic,
            flow: 0,
            hosts: (0, 0),
            flights: 0,
            conns: first..self.conns.len() as u32,
            association,
            medium,
            relays,
            paths,
            own_lines,
            owner: 0,
            phase: Phase::Free,
            failed: false,
            objects: 0,
            size: 0,
            got: 0,
            heard: 0,
            answered: 0,
        });
        circuit
    }

    /// Points a circuit's paths at two hosts, and draws its own delays.
    fn aim(&mut self, circuit: u32, from: u32, to: u32) {
        let c = &self.circuits[circuit as usize];
        let traffic = c.traffic as usize;
        let plan = &self.traffic[traffic].plan;
        for (leg, &(down, up)) in plan.legs.iter().zip(&c.paths) {
            for (steps, path) in [(&leg.down, down), (&leg.up, up)] {
                for (hop, step) in self.hops[path.start as usize..path.end as usize].iter_mut().zip(steps) {
                    *hop = match *step {
                        Step::Gateway { station, splits } => Hop::Gateway { station, splits },
                        Step::Link { base, member, reverse, own_line } => {
                            let member = match member {
                                Member::One => 0,
                                Member::From => from,
                                Member::To => to,
                            };
                            let link = base + 2 * member + u32::from(reverse);
                            let line = match own_line {
                                None => self.links[link as usize].line,
                                Some(own) if own % 2 == 0 => c.own_lines[own as usize / 2].0,
                                Some(own) => c.own_lines[own as usize / 2].1,
                            };
                            Hop::Link { link, line }
                        }
                    };
                }
            }
        }
        for (own, &(with, against)) in plan.own_delays.iter().zip(&c.own_lines) {
            // The delay is the connection's own, so it comes from the session's stream: the same whatever the queue.
            let rng = match self.traffic[traffic].kind {
                Kind::Pages { .. } => &mut self.sessions[c.owner as usize].rng,
                _ => &mut self.sources[c.owner as usize].rng,
            };
            let (first, second) = (own.base + u32::from(!own.forward), own.base + u32::from(own.forward));
            let there = self.links[first as usize].engine.delay_distribution().draw(rng);
            let back = if own.shared {
                there
            } else {
                self.links[second as usize].engine.delay_distribution().draw(rng)
            };
            self.lines[with as usize].delay = there;
            self.lines[against as usize].delay = back;
        }
    }

    /// The host that sends a circuit's data opens it.
    pub fn open_from_sender(&mut self, circuit: u32) {
        let c = &self.circuits[circuit as usize];
        match c.association {
            Some(first) => self.associate(first),
            None => self.connect(c.conns.start),
        }
    }

    /// A connection opens its leg.
    pub fn connect(&mut self, conn: u32) {
        let c = &mut self.conns[conn as usize];
        c.tcp = tcp::Connection::connect(&self.configs[c.config as usize], self.now);
        c.active = true;
        if let Role::Relay { station, stream, far: false } = c.role {
            self.offer_window(station, stream);
        }
        self.pump(conn);
    }

    /// Gives up a circuit: its connections are reset, and its page counts as failed.
    pub fn fail(&mut self, circuit: u32) {
        let c = &mut self.circuits[circuit as usize];
        if std::mem::replace(&mut c.failed, true) {
            return;
        }
        let (flow, owner, traffic) = (c.flow, c.owner, c.traffic);
        let was_live = c.phase == Phase::Live;
        let relays = c.relays.clone();
        c.phase = Phase::Closing;
        if was_live {
            self.recorder.close_flow(self.now, flow, false);
        }
        for conn in self.circuits[circuit as usize].conns.clone() {
            if !self.conns[conn as usize].tcp.is_closed() {
                self.conns[conn as usize].tcp.abort();
                self.transmit(conn);
            }
        }
        if let Some(first) = self.circuits[circuit as usize].association {
            self.abort_association(first);
        }
        for (station, stream) in relays {
            // Nobody waits for these bytes any more, but others may for the room.
            let held = self.stations[station as usize].relays[stream as usize].held;
            self.release(station, stream, held);
            let relay = self.stations[station as usize].relays[stream as usize];
            for (live, far) in [(relay.near_live, false), (relay.far_live, true)] {
                if live {
                    self.space_end(station, far).reset(stream);
                    self.pump_space(station, far);
                }
            }
        }
        match self.traffic[traffic as usize].kind {
            Kind::Pages { .. } if was_live => self.page_part_done(owner),
            Kind::Bulk { .. } | Kind::Packets { .. } => self.part_from_circuit(owner, circuit),
            _ => {}
        }
    }

    /// Gives a circuit back once nothing of it is left anywhere.
    #[inline]
    pub fn settle(&mut self, circuit: u32) {
        let c = &self.circuits[circuit as usize];
        if c.flights == 0 && c.phase == Phase::Closing {
            self.settle_closing(circuit);
        }
    }

    /// The same for one that is closing and has no packets under way.
    #[inline(never)]
    fn settle_closing(&mut self, circuit: u32) {
        let c = &self.circuits[circuit as usize];
        let conns_done = c.conns.clone().all(|conn| {
            let tcp = &self.conns[conn as usize].tcp;
            tcp.is_closed() || tcp.in_time_wait()
        });
        let streams_done = c.relays.iter().all(|&(station, stream)| {
            let relay = &self.stations[station as usize].relays[stream as usize];
            !relay.near_live && !relay.far_live
        });
        let association_done = c.association.is_none_or(|first| self.is_association_over(first));
        if !conns_done || !streams_done || !association_done {
            return;
        }
        self.announce(circuit, FlowEvent::Closed);
        self.circuits[circuit as usize].phase = Phase::Free;
        for i in 0..self.circuits[circuit as usize].relays.len() {
            let (station, stream) = self.circuits[circuit as usize].relays[i];
            let held = self.stations[station as usize].relays[stream as usize].held;
            self.release(station, stream, held);
            self.stations[station as usize].buffers.close(stream, 0);
        }
        let traffic = self.circuits[circuit as usize].traffic;
        self.traffic[traffic as usize].pool.push(circuit);
    }

    // ----- connections ---------------------------------------------------------------------------------------

    pub fn conn_timer(&mut self, conn: u32) {
        let c = &mut self.conns[conn as usize];
        if c.timer_at != self.now {
            return;
        }
        c.timer_at = Instant::FAR_FUTURE;
        if c.tcp.poll_timeout().is_some_and(|at| at <= self.now) {
            c.tcp.handle_timeout(&self.configs[c.config as usize], self.now);
            self.pump(conn);
        } else {
            self.arm(conn);
        }
    }

    pub fn conn_pace(&mut self, conn: u32) {
        let c = &mut self.conns[conn as usize];
        if c.pace_at == self.now {
            c.pace_at = Instant::FAR_FUTURE;
            self.send(conn);
        }
    }

    /// Lets a connection's owner act on what it has heard, then sends what there is to send.
    pub fn pump(&mut self, conn: u32) {
        let c = &self.conns[conn as usize];
        let circuit = c.circuit;
        if c.tcp.failed() {
            self.fail(circuit);
        } else {
            match c.role {
                Role::Sender => self.serve_sender(conn),
                Role::Receiver => self.serve_receiver(conn),
                Role::Relay { station, stream, far } => self.serve_relay(conn, station, stream, far),
            }
        }
        self.transmit(conn);
        self.settle(circuit);
    }

    /// Sends what there is to send, at once or when the host gets to it.
    #[inline]
    pub fn transmit(&mut self, conn: u32) {
        if self.overheads.is_empty() || !self.takes_time(conn) {
            self.send(conn);
        }
    }

    /// Whether a connection's host takes a time before it sends, after which it does.
    #[inline(never)]
    fn takes_time(&mut self, conn: u32) -> bool {
        let c = &mut self.conns[conn as usize];
        let overhead = self.overheads[c.config as usize];
        if overhead.is_zero() || !matches!(c.role, Role::Sender) || !c.tcp.is_established() {
            return false;
        }
        if c.pace_at == Instant::FAR_FUTURE {
            c.pace_at = self.now + overhead.scaled(self.host_rng.uniform());
            self.agenda.at(c.pace_at, Event::Pace(conn));
        }
        self.arm(conn);
        true
    }

    fn send(&mut self, conn: u32) {
        loop {
            let c = &mut self.conns[conn as usize];
            let config = &self.configs[c.config as usize];
            let Some(segment) = c.tcp.poll_transmit(config, self.now) else { break };
            let (len, to, circuit, path) = (config.wire_len(&segment), c.peer, c.circuit, c.path);
            let flight = self.launch(Body::Tcp { to, segment }, circuit, len, path);
            self.forward(flight);
        }
        self.arm(conn);
        if self.conns[conn as usize].trace != NONE {
            self.trace(conn);
        }
    }

    /// Puts a connection's timers on the agenda. A timer that moves later is looked at again when it would have
    /// gone off.
    fn arm(&mut self, conn: u32) {
        let c = &mut self.conns[conn as usize];
        if let Some(at) = c.tcp.poll_timeout()
            && at < c.timer_at
        {
            c.timer_at = at;
            self.agenda.at(at, Event::Timer(conn));
        }
        if let Some(at) = c.tcp.paced_until()
            && at < c.pace_at
        {
            c.pace_at = at;
            self.agenda.at(at, Event::Pace(conn));
        }
    }

    /// One side of a split: passes on between the connection and the spacelink.
    fn serve_relay(&mut self, conn: u32, station: u32, stream: u32, far: bool) {
        let c = &mut self.conns[conn as usize];
        let circuit = c.circuit;
        let mut touched = false;
        if !c.greeted && c.tcp.is_established() {
            c.greeted = true;
            if !c.active {
                let s = &mut self.stations[station as usize];
                let relay = &mut s.relays[stream as usize];
                *(if far { &mut relay.far_live } else { &mut relay.near_live }) = true;
                (if far { &mut s.far } else { &mut s.near }).open(stream);
                touched = true;
            }
        }
        let bytes = c.tcp.readable();
        let fin = c.tcp.peer_closed() && !c.ended;
        c.ended |= fin;
        if bytes > 0 || fin {
            c.tcp.read(bytes);
            if far {
                let end = self.space_end(station, true);
                end.write(stream, bytes);
                if fin {
                    end.finish(stream);
                }
                touched = true;
            } else {
                let s = &mut self.stations[station as usize];
                s.buffers.take(stream, bytes);
                s.relays[stream as usize].held += bytes;
                if self.is_tight(station, stream) {
                    // The others' room has shrunk too. What they have been offered already is not taken back.
                    self.offer_windows(station, stream);
                } else {
                    self.offer_window(station, stream);
                }
                let len = u32::try_from(bytes).unwrap_or(u32::MAX);
                let handle = self.launch(Body::Chunk { stream, bytes, fin }, circuit, len, Path::default());
                let arrival = self.stations[station as usize].transits[stream as usize].came();
                let pkt = Packet { arrival, ..self.packet(handle) };
                self.stations[station as usize].gateway.process(pkt, self.now);
                self.arm_gateway(station);
            }
        }
        let c = &mut self.conns[conn as usize];
        let taken = c.tcp.acked() - c.consumed;
        if taken > 0 {
            c.consumed += taken;
            self.space_end(station, far).consume(stream, taken);
            touched = true;
        }
        if touched {
            self.pump_space(station, far);
        }
    }
}

impl Conn {
    fn new(configs: &[tcp::Config], config: u32, circuit: u32, peer: u32, path: Path, role: Role) -> Self {
        Self {
            tcp: tcp::Connection::listen(&configs[config as usize]),
            config,
            circuit,
            peer,
            path,
            role,
            timer_at: Instant::FAR_FUTURE,
            pace_at: Instant::FAR_FUTURE,
            peer_window: 0,
            consumed: 0,
            active: false,
            greeted: false,
            ended: false,
            trace: NONE,
        }
    }

    /// A segment has come.
    #[inline]
    pub fn hear(&mut self, configs: &[tcp::Config], now: Instant, segment: &tcp::Segment) {
        self.peer_window = segment.cwnd;
        self.tcp.on_segment(&configs[self.config as usize], now, segment);
    }
}
