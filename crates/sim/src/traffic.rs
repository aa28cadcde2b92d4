//! Traffic: what the hosts at both ends of a circuit do.

use std::sync::Arc;

use bentpipe_scenario::{Absence, ConnectionPer, DATAGRAM_HEADER, Distribution, Pattern, Ramp};
use bentpipe_traffic::Generator;
use bentpipe_units::{Duration, Instant, Rate, Rng};

use crate::agenda::Event;
use crate::circuit::{Phase, Plan};
use crate::network::Body;
use crate::world::World;

/// Traffic between two groups of hosts.
pub struct Traffic {
    pub name: String,
    pub plan: Plan,
    pub from: Group,
    pub to: Group,
    pub kind: Kind,
    /// What carries it, where that is neither TCP nor datagrams alone.
    pub carrier: Option<Carrier>,
    /// Circuits that are laid out and not in use.
    pub pool: Vec<u32>,
}

/// A group of hosts.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// Number of the group's first host among all hosts.
    pub first: u32,
    pub count: u32,
}

/// What the traffic's applications do.
pub enum Kind {
    Pages {
        config: u32,
        server_config: u32,
        object_size: Distribution<u64>,
        objects_per_page: u32,
        connection_per: ConnectionPer,
        think_time: Distribution<Duration>,
        request_size: u64,
        ramp: Option<Ramp>,
        sessions: u32,
        away: Vec<Absence>,
    },
    Files {
        config: u32,
        sender_config: u32,
        interval: Distribution<Duration>,
        size: Distribution<u64>,
        start: Distribution<Duration>,
        sources: u32,
        away: Vec<Absence>,
    },
    Bulk {
        config: u32,
        sender_config: u32,
        bytes: Option<u64>,
        start: Distribution<Duration>,
        ramp: Option<Ramp>,
        lifetime: Option<Distribution<Duration>>,
        flows: u32,
        away: Vec<Absence>,
    },
    Packets {
        /// The TCP that carries the packets; none: they are datagrams.
        config: Option<u32>,
        pattern: Arc<Pattern>,
        start: Distribution<Duration>,
        flows: u32,
        away: Vec<Absence>,
    },
}

impl Traffic {
    pub fn new(
        name: String,
        plan: Plan,
        from: Group,
        to: Group,
        kind: Kind,
        carrier: Option<Carrier>,
    ) -> Self {
        Self { name, plan, from, to, kind, carrier, pool: Vec::new() }
    }
}

/// A transport other than TCP, with its configuration.
#[derive(Clone, Copy, Debug)]
pub enum Carrier {
    Sctp {
        config: u32,
    },
    Rtp {
        config: u32,
        /// What a source sends by itself.
        nominal: Rate,
    },
}

/// A user who is always busy with one page, or thinking.
pub struct Session {
    pub traffic: u32,
    /// Its number in its traffic.
    pub number: u32,
    pub pages: u32,
    /// Connections of the page that are not done yet.
    pub pending: u32,
    pub rng: Rng,
}

/// A long-lived transfer, a flow of packets, or what begins transfers.
pub struct Source {
    pub traffic: u32,
    pub number: u32,
    pub rng: Rng,
    /// When it does something next. An event at another time is of no account: the source has left since.
    pub due: Instant,
    /// When it leaves.
    leaves: Instant,
    /// What it sends on, while it is there.
    circuit: Option<u32>,
    /// What it sends, and the length of the packet that is due [bytes].
    generator: Option<Generator>,
    len: u32,
    /// Transfers that it has begun.
    begun: u32,
}

impl Source {
    pub fn new(traffic: u32, number: u32, rng: Rng, due: Instant) -> Self {
        let leaves = Instant::FAR_FUTURE;
        Self { traffic, number, rng, due, leaves, circuit: None, generator: None, len: 0, begun: 0 }
    }
}

/// The time itself, or when who is away then comes back.
pub fn present(away: &[Absence], at: Instant) -> Instant {
    let since = at.since(Instant::ZERO);
    let absence = away.iter().find(|absence| (absence.from..absence.until).contains(&since));
    absence.map_or(at, |absence| Instant::ZERO + absence.until)
}

impl World {
    /// A session opens its next page.
    pub fn open_page(&mut self, session: u32) {
        let (traffic, number, page) = {
            let s = &mut self.sessions[session as usize];
            s.pages += 1;
            (s.traffic, s.number, s.pages - 1)
        };
        let t = &self.traffic[traffic as usize];
        let Kind::Pages { objects_per_page, connection_per, .. } = t.kind else { return };
        let (from, to) = (number.wrapping_add(page) % t.from.count, number % t.to.count);
        let (circuits, objects) = match connection_per {
            ConnectionPer::Page => (1, objects_per_page),
            ConnectionPer::Object => (objects_per_page, 1),
        };
        self.sessions[session as usize].pending = circuits;
        for _ in 0..circuits {
            let circuit = self.open_circuit(traffic, from, to, session);
            self.circuits[circuit as usize].objects = objects;
            self.draw_object(circuit);
            let opener = self.circuits[circuit as usize].conns.end - 1;
            self.connect(opener);
        }
    }

    /// Draws the size of a circuit's next object.
    fn draw_object(&mut self, circuit: u32) {
        let circuit = &mut self.circuits[circuit as usize];
        if let Kind::Pages { object_size, .. } = &self.traffic[circuit.traffic as usize].kind {
            circuit.size = object_size.draw(&mut self.sessions[circuit.owner as usize].rng);
        }
    }

    /// A page's connection has done its work, or failed.
    pub fn page_part_done(&mut self, session: u32) {
        let s = &mut self.sessions[session as usize];
        s.pending -= 1;
        if s.pending > 0 {
            return;
        }
        if let Kind::Pages { think_time, away, .. } = &self.traffic[s.traffic as usize].kind {
            let think = think_time.draw(&mut s.rng);
            self.agenda.at(present(away, self.now + think), Event::Session(session));
        }
    }

    /// A source comes, does what is due, or leaves.
    pub fn source_due(&mut self, source: u32) {
        let s = &mut self.sources[source as usize];
        if self.now == s.leaves {
            return self.leave(source);
        }
        if self.now != s.due {
            return;
        }
        let t = &self.traffic[s.traffic as usize];
        match &t.kind {
            Kind::Pages { .. } => {}
            Kind::Files { .. } => self.begin_transfer(source),
            Kind::Bulk { .. } => {
                s.due = Instant::FAR_FUTURE;
                let circuit = self.arrive_at(source);
                self.open_from_sender(circuit);
            }
            Kind::Packets { pattern, config, .. } => {
                if let Some(circuit) = s.circuit {
                    self.send_packet(source, circuit);
                    return self.next_packet(source);
                }
                s.generator = Some(Generator::new(pattern, &mut s.rng));
                let connected = config.is_some() && !matches!(t.carrier, Some(Carrier::Rtp { .. }));
                let circuit = self.arrive_at(source);
                if connected {
                    self.open_from_sender(circuit);
                }
                self.draw_packet(source);
                if self.sources[source as usize].due == self.now {
                    self.send_packet(source, circuit);
                    return self.next_packet(source);
                }
                self.enter_packet(source);
            }
        }
    }

    /// A source is there: opens its flow, and enters when it leaves again or its connection has lived long enough.
    fn arrive_at(&mut self, source: u32) -> u32 {
        let s = &mut self.sources[source as usize];
        let (traffic, number) = (s.traffic, s.number);
        let t = &self.traffic[traffic as usize];
        if let Kind::Bulk { away, .. } | Kind::Packets { away, .. } = &t.kind {
            let absence =
                away.iter().map(|absence| Instant::ZERO + absence.from).find(|from| *from > self.now);
            let over = match &t.kind {
                Kind::Bulk { lifetime: Some(lifetime), .. } => Some(self.now + lifetime.draw(&mut s.rng)),
                _ => None,
            };
            let next = absence.into_iter().chain(over).min();
            s.leaves = next.unwrap_or(Instant::FAR_FUTURE);
            if let Some(at) = next {
                self.agenda.at(at, Event::Source(source));
            }
        }
        let circuit = self.open_circuit(traffic, number % t.from.count, number % t.to.count, source);
        self.sources[source as usize].circuit = Some(circuit);
        circuit
    }

    /// A source leaves: gives up what it has open, and enters when it comes back, which is at once after a life.
    fn leave(&mut self, source: u32) {
        let s = &mut self.sources[source as usize];
        if let Kind::Bulk { away, .. } | Kind::Packets { away, .. } = &self.traffic[s.traffic as usize].kind {
            s.due = present(away, self.now);
            self.agenda.at(s.due, Event::Source(source));
        }
        s.leaves = Instant::FAR_FUTURE;
        s.generator = None;
        if let Some(circuit) = s.circuit.take() {
            let c = &mut self.circuits[circuit as usize];
            c.phase = Phase::Closing;
            self.recorder.leave_flow(self.now, c.flow);
            self.fail(circuit);
            self.settle(circuit);
        }
    }

    /// What a source has been sending on is done, or failed: it sends no more until it comes back.
    pub fn part_from_circuit(&mut self, source: u32, circuit: u32) {
        let s = &mut self.sources[source as usize];
        if s.circuit == Some(circuit) {
            (s.circuit, s.generator, s.due) = (None, None, Instant::FAR_FUTURE);
        }
    }

    /// Draws a source's next packet, and enters when it is due.
    fn next_packet(&mut self, source: u32) {
        self.draw_packet(source);
        self.enter_packet(source);
    }

    /// Draws a source's next packet; never due where there is none. A medium that is to be slower has its packets further
    /// apart.
    fn draw_packet(&mut self, source: u32) {
        let s = &mut self.sources[source as usize];
        let mut step = s.generator.as_mut().and_then(|generator| generator.next(&mut s.rng));
        if let Some(medium) = s.circuit.and_then(|circuit| self.circuits[circuit as usize].medium)
            && let Some(step) = &mut step
        {
            step.gap = step.gap.scaled(1.0 / self.medium_scale(medium));
        }
        let s = &mut self.sources[source as usize];
        (s.due, s.len) = step.map_or((Instant::FAR_FUTURE, 0), |step| (self.now + step.gap, step.len));
    }

    /// Enters when a source's packet is due.
    fn enter_packet(&mut self, source: u32) {
        let due = self.sources[source as usize].due;
        if due < Instant::FAR_FUTURE {
            self.agenda.at(due, Event::Source(source));
        }
    }

    /// Sends the packet that is due: as a datagram, or what it carries into the connection.
    fn send_packet(&mut self, source: u32, circuit: u32) {
        let len = self.sources[source as usize].len;
        if len == 0 {
            return;
        }
        let c = &self.circuits[circuit as usize];
        if let Some(medium) = c.medium {
            self.send_media(medium, len);
        } else if let Some(first) = c.association {
            self.send_message(first, len.saturating_sub(DATAGRAM_HEADER as u32));
        } else if c.conns.is_empty() {
            let path = c.paths[0].0;
            let flight = self.launch(Body::Datagram, circuit, len, path);
            self.forward(flight);
        } else {
            let conn = c.conns.start;
            self.conns[conn as usize].tcp.write(u64::from(len).saturating_sub(DATAGRAM_HEADER));
            self.transmit(conn);
        }
    }

    /// A source begins a transfer, and enters the next.
    fn begin_transfer(&mut self, source: u32) {
        let s = &mut self.sources[source as usize];
        let traffic = s.traffic;
        let t = &self.traffic[traffic as usize];
        let Kind::Files { size, .. } = &t.kind else { return };
        let size = size.draw(&mut s.rng);
        let (from, to) = (s.number.wrapping_add(s.begun) % t.from.count, s.number % t.to.count);
        s.begun += 1;
        let circuit = self.open_circuit(traffic, from, to, source);
        self.circuits[circuit as usize].size = size;
        self.open_from_sender(circuit);
        self.plan_transfer(source, self.now);
    }

    /// Enters when a source begins its next transfer, after `last`. One that would begin while the source is away does
    /// not, and the time to the next counts from its return.
    pub fn plan_transfer(&mut self, source: u32, last: Instant) {
        let s = &mut self.sources[source as usize];
        let Kind::Files { interval, away, .. } = &self.traffic[s.traffic as usize].kind else { return };
        let mut at = last + interval.draw(&mut s.rng);
        while present(away, at) > at {
            at = present(away, at) + interval.draw(&mut s.rng);
        }
        s.due = at;
        self.agenda.at(at, Event::Source(source));
    }

    /// The host that sends the data: answers requests, or sends of its own accord.
    pub fn serve_sender(&mut self, conn: u32) {
        let c = &mut self.conns[conn as usize];
        let circuit = &mut self.circuits[c.circuit as usize];
        match self.traffic[circuit.traffic as usize].kind {
            Kind::Pages { request_size, .. } => {
                let n = c.tcp.readable();
                c.tcp.read(n);
                circuit.heard += n;
                while circuit.heard >= (circuit.answered + 1) * request_size
                    && circuit.objects > 0
                    && circuit.size > 0
                {
                    circuit.answered += 1;
                    c.tcp.write(circuit.size);
                    if circuit.objects == 1 {
                        c.tcp.close();
                        break;
                    }
                }
                if c.tcp.peer_closed() {
                    c.tcp.close();
                }
            }
            Kind::Bulk { bytes, .. } => {
                if c.tcp.is_established() && !c.greeted {
                    c.greeted = true;
                    c.tcp.write(bytes.unwrap_or(u64::MAX / 8));
                    if bytes.is_some() {
                        c.tcp.close();
                    }
                }
            }
            Kind::Files { .. } => {
                if c.tcp.is_established() && !c.greeted {
                    c.greeted = true;
                    c.tcp.write(circuit.size);
                    c.tcp.close();
                }
            }
            // Its source writes when a packet is due.
            Kind::Packets { .. } => {}
        }
    }

    /// The host that the data is for: asks for it, and counts it.
    pub fn serve_receiver(&mut self, conn: u32) {
        let c = &mut self.conns[conn as usize];
        let index = c.circuit;
        let circuit = &mut self.circuits[index as usize];
        let n = c.tcp.readable();
        c.tcp.read(n);
        circuit.got += n;
        if n > 0 {
            self.recorder.delivered(circuit.flow, n);
        }
        match &self.traffic[circuit.traffic as usize].kind {
            Kind::Pages { request_size, .. } => {
                if c.tcp.is_established() && !c.greeted {
                    c.greeted = true;
                    c.tcp.write(*request_size);
                } else if circuit.phase == Phase::Live && circuit.size > 0 && circuit.got >= circuit.size {
                    circuit.objects -= 1;
                    if circuit.objects > 0 {
                        circuit.got = 0;
                        c.tcp.write(*request_size);
                        self.draw_object(index);
                    } else {
                        circuit.phase = Phase::Closing;
                        let (flow, owner) = (circuit.flow, circuit.owner);
                        self.recorder.close_flow(self.now, flow, true);
                        self.page_part_done(owner);
                    }
                }
            }
            Kind::Bulk { bytes, .. } => {
                if bytes.is_some_and(|bytes| circuit.got >= bytes) && circuit.phase == Phase::Live {
                    circuit.phase = Phase::Closing;
                    let (flow, owner) = (circuit.flow, circuit.owner);
                    self.recorder.close_flow(self.now, flow, true);
                    self.part_from_circuit(owner, index);
                }
            }
            Kind::Files { .. } => {
                if circuit.got >= circuit.size && circuit.phase == Phase::Live {
                    circuit.phase = Phase::Closing;
                    self.recorder.close_flow(self.now, circuit.flow, true);
                }
            }
            Kind::Packets { .. } => {}
        }
        let c = &mut self.conns[conn as usize];
        if c.tcp.peer_closed() {
            c.tcp.close();
        }
    }
}
