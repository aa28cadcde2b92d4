//! Traffic: what the hosts at both ends of a circuit do.

use bentpipe_scenario::{ConnectionPer, Law, Ramp};
use bentpipe_units::{Duration, Rate, Rng};

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
        object_size: Law<u64>,
        objects_per_page: u32,
        connection_per: ConnectionPer,
        think_time: Law<Duration>,
        request_size: u64,
        ramp: Option<Ramp>,
        sessions: u32,
    },
    Bulk {
        config: u32,
        sender_config: u32,
        bytes: Option<u64>,
        start: Law<Duration>,
        flows: u32,
    },
    Cbr {
        rate: Rate,
        packet: u32,
        start: Law<Duration>,
        flows: u32,
    },
}

impl Traffic {
    pub fn new(name: String, plan: Plan, from: Group, to: Group, kind: Kind) -> Self {
        Self { name, plan, from, to, kind, pool: Vec::new() }
    }
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

/// A long-lived transfer, or a flow of datagrams.
pub struct Source {
    pub traffic: u32,
    pub number: u32,
    pub circuit: Option<u32>,
    pub rng: Rng,
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
        if let Kind::Pages { think_time, .. } = &self.traffic[s.traffic as usize].kind {
            let think = think_time.draw(&mut s.rng);
            self.agenda.at(self.now + think, Event::Session(session));
        }
    }

    /// A source opens its flow, or sends its next datagram.
    pub fn source_due(&mut self, source: u32) {
        let s = &self.sources[source as usize];
        let (traffic, number) = (s.traffic, s.number);
        let t = &self.traffic[traffic as usize];
        let (from, to) = (number % t.from.count, number % t.to.count);
        let circuit = match s.circuit {
            Some(circuit) => circuit,
            None => {
                let circuit = self.open_circuit(traffic, from, to, source);
                self.sources[source as usize].circuit = Some(circuit);
                circuit
            }
        };
        match self.traffic[traffic as usize].kind {
            Kind::Cbr { rate, packet, .. } => {
                let path = self.circuits[circuit as usize].paths[0].0;
                let flight = self.launch(Body::Datagram, circuit, packet, path);
                self.forward(flight);
                self.agenda.at(self.now + rate.time_to_send(u64::from(packet)), Event::Source(source));
            }
            _ => self.connect(self.circuits[circuit as usize].conns.start),
        }
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
            Kind::Cbr { .. } => {}
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
                    self.recorder.close_flow(self.now, circuit.flow, true);
                }
            }
            Kind::Cbr { .. } => {}
        }
        let c = &mut self.conns[conn as usize];
        if c.tcp.peer_closed() {
            c.tcp.close();
        }
    }
}
