//! Looking on at a run: packets as they pass a link, and what a flow's sender knows. It changes nothing of the run.

use bentpipe_scenario::{Scenario, TrafficKind, Transport};
use bentpipe_transport::{pep_link, sctp, tcp};
use bentpipe_units::{Duration, Instant, Rate};

use crate::circuit::{Member, Step};
use crate::network::{Body, Hop};
use crate::world::World;

/// What to look at.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// Links whose packets are seen, by name. Where a link stands for one per host, the name means all of them, and
    /// the name with `.0`, `.1`, … one of them.
    pub links: Vec<String>,
    /// Flows whose senders are traced.
    pub flows: Vec<Selector>,
}

// ----- flows -----------------------------------------------------------------------------------------------------

/// Which flows are traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// The flow of that number.
    Flow(u32),
    /// All flows of one session or source of some traffic.
    Traffic {
        /// Index of the traffic in the scenario.
        traffic: u32,
        /// Number of the session or source.
        number: u32,
    },
}

impl Selector {
    /// Reads `flow:17` or `traffic:NAME:3`.
    ///
    /// # Errors
    /// Says what was found and what is allowed.
    pub fn parse(text: &str, scenario: &Scenario) -> Result<Self, String> {
        const FORMS: &str =
            "flow:17 (the number of a flow) or traffic:NAME:3 (a traffic and its session's number)";
        let number = |digits: &str| {
            let number = digits.parse().ok().filter(|_| digits.bytes().all(|c| c.is_ascii_digit()));
            number
                .ok_or_else(|| format!("trace {text}: found \"{digits}\"; allowed: a number, as in {FORMS}"))
        };
        if let Some(digits) = text.strip_prefix("flow:") {
            return number(digits).map(Self::Flow);
        }
        let Some((name, digits)) = text.strip_prefix("traffic:").and_then(|rest| rest.rsplit_once(':'))
        else {
            return Err(format!("trace {text}: found \"{text}\"; allowed: {FORMS}"));
        };
        let Some(traffic) = scenario.traffic.iter().position(|t| t.name == name) else {
            let names: Vec<_> = scenario.traffic.iter().map(|t| t.name.as_str()).collect();
            return Err(format!("trace {text}: found traffic \"{name}\"; allowed: {}", names.join(", ")));
        };
        let rtp = |transport: usize| matches!(scenario.transports[transport], Transport::Rtp(_));
        if matches!(&scenario.traffic[traffic].kind, TrafficKind::Packets(p) if p.transport.is_none_or(rtp)) {
            return Err(format!("trace {text}: traffic {name} has no congestion window"));
        }
        Ok(Self::Traffic { traffic: traffic as u32, number: number(digits)? })
    }
}

/// What a traced sender knew from some time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRow {
    /// Since when.
    pub time: Instant,
    /// Whose.
    pub flow: u32,
    /// Which of the TCP connections (or the association) that carry the flow's data one after the other: 0 is the sending host's, 1 that
    /// behind the first PEP.
    pub leg: u32,
    /// What it knew.
    pub state: TraceState,
}

/// What a sender knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceState {
    /// Congestion window [bytes].
    pub cwnd: u64,
    /// Slow start threshold [bytes]; `u64::MAX` is none.
    pub ssthresh: u64,
    /// Bytes thought to be under way: sent, and neither acknowledged nor SACKed nor lost.
    pub in_flight: u64,
    /// The latest measured round trip.
    pub rtt: Option<Duration>,
    /// Smoothed round trip.
    pub srtt: Option<Duration>,
    /// Retransmission timeout, as backed off.
    pub rto: Duration,
    /// Segments sent again so far.
    pub retransmissions: u64,
    /// Timeouts so far.
    pub timeouts: u64,
}

/// At most one row is kept for each such interval: the state after its last change [ns].
const TRACE_INTERVAL: u64 = 1_000_000;

/// Traces flows.
#[derive(Default)]
pub struct Tracer {
    selectors: Vec<Selector>,
    /// Whether each of them met a flow that can be traced.
    met: Vec<bool>,
    cursors: Vec<Cursor>,
    pub rows: Vec<TraceRow>,
}

/// Where a traced connection stands.
struct Cursor {
    flow: u32,
    leg: u32,
    last: Option<usize>,
}

impl Tracer {
    pub fn new(selectors: &[Selector]) -> Self {
        Self { selectors: selectors.to_vec(), met: vec![false; selectors.len()], ..Self::default() }
    }

    /// Whether a flow that opens is to be traced.
    pub fn wants(&mut self, flow: u32, of_traffic: u32, of_number: u32) -> bool {
        let mut wanted = false;
        for (selector, met) in self.selectors.iter().zip(&mut self.met) {
            let hit = match *selector {
                Selector::Flow(number) => number == flow,
                Selector::Traffic { traffic, number } => traffic == of_traffic && number == of_number,
            };
            *met |= hit;
            wanted |= hit;
        }
        wanted
    }

    /// Begins to trace a connection.
    pub fn begin(&mut self, flow: u32, leg: u32) -> u32 {
        self.cursors.push(Cursor { flow, leg, last: None });
        (self.cursors.len() - 1) as u32
    }

    fn note(&mut self, now: Instant, cursor: u32, state: TraceState) {
        let cursor = &mut self.cursors[cursor as usize];
        if let Some(row) = cursor.last.and_then(|last| self.rows.get_mut(last)) {
            if row.state == state {
                return;
            }
            if row.time.as_nanos() / TRACE_INTERVAL == now.as_nanos() / TRACE_INTERVAL {
                (row.time, row.state) = (now, state);
                return;
            }
        }
        cursor.last = Some(self.rows.len());
        self.rows.push(TraceRow { time: now, flow: cursor.flow, leg: cursor.leg, state });
    }
}

// ----- links -----------------------------------------------------------------------------------------------------

/// One direction of a watched link, seen from the link's first node: what that node sends, or what arrives there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Index of the link among [`Watch::links`].
    pub watched: usize,
    /// The direction's name, as in the table of drops.
    pub name: String,
    /// The node that sends.
    pub from: String,
    /// The node that it sends to.
    pub to: String,
    /// Whether packets are seen when the first node sends them, or when they arrive there.
    pub outbound: bool,
    /// How fast it sends.
    pub rate: Option<Rate>,
    /// Index of the direction among the world's links.
    link: u32,
}

/// The interfaces that links of these names have.
///
/// # Errors
/// Names a link that there is not, or that is named twice, and says which there are.
pub fn interfaces(scenario: &Scenario, names: &[String]) -> Result<Vec<Interface>, String> {
    let mut found: Vec<Interface> = Vec::new();
    for (watched, name) in names.iter().enumerate() {
        let before = found.len();
        let mut first = 0;
        for link in &scenario.links {
            let members = members(scenario, link);
            for member in 0..members {
                let one = if members == 1 { link.name.clone() } else { format!("{}.{member}", link.name) };
                let index = first + 2 * member;
                if *name != link.name && *name != one {
                    continue;
                }
                if found.iter().any(|other| other.link == index) {
                    return Err(format!("link {name}: is named twice"));
                }
                let node = |node: &String| {
                    let group = scenario.hosts.iter().any(|host| host.name == *node && host.count > 1);
                    if group && members > 1 { format!("{node}.{member}") } else { node.clone() }
                };
                let (a, b) = (node(&link.between.0), node(&link.between.1));
                found.push(Interface {
                    watched,
                    name: one.clone(),
                    from: a.clone(),
                    to: b.clone(),
                    outbound: true,
                    rate: link.forward.mean_rate(),
                    link: index,
                });
                found.push(Interface {
                    watched,
                    name: format!("{one} reverse"),
                    from: b,
                    to: a,
                    outbound: false,
                    rate: link.reverse.mean_rate(),
                    link: index + 1,
                });
            }
            first += 2 * members;
        }
        if found.len() == before {
            let names: Vec<_> = scenario.links.iter().map(|link| link.name.as_str()).collect();
            return Err(format!("there is no link \"{name}\"; there are {}", names.join(", ")));
        }
    }
    Ok(found)
}

/// How many links a scenario's link stands for.
pub fn members(scenario: &Scenario, link: &bentpipe_scenario::Link) -> u32 {
    let count = |end: &String| scenario.hosts.iter().find(|host| host.name == *end).map(|host| host.count);
    count(&link.between.0).into_iter().chain(count(&link.between.1)).max().unwrap_or(1)
}

/// A packet that passed a watched link.
#[derive(Clone, Debug)]
pub struct Observation {
    /// When.
    pub time: Instant,
    /// Where (an index of [`interfaces`]).
    pub interface: u32,
    /// Length on the wire, as simulated [bytes].
    pub len: u32,
    /// Whether the link is going to lose it.
    pub lost: bool,
    /// What it is.
    pub packet: Packet,
}

/// What was seen.
#[derive(Clone, Debug)]
pub enum Packet {
    /// A TCP segment.
    Tcp {
        /// Whose.
        ends: Ends,
        /// The segment, congestion marks included.
        segment: tcp::Segment,
        /// The maximum segment size that its sender announces [bytes].
        mss: u32,
        /// The largest window that its sender may announce [bytes].
        receive_window: u32,
        /// The scale of its windows; none: they are whatever 32 bits hold.
        window_scale: Option<u8>,
    },
    /// An SCTP packet.
    Sctp {
        /// Whose.
        ends: Ends,
        /// The packet.
        packet: Box<sctp::Packet>,
    },
    /// A datagram.
    Datagram {
        /// Whose.
        ends: Ends,
    },
    /// Data between a gateway and its terminal.
    PepData {
        /// Number of the gateway.
        gateway: u32,
        /// Whether it goes to the terminal.
        to_terminal: bool,
        /// The packet.
        data: pep_link::Data,
    },
    /// An acknowledgement between a gateway and its terminal.
    PepAck {
        /// Number of the gateway.
        gateway: u32,
        /// Whether it goes to the terminal.
        to_terminal: bool,
        /// The acknowledgement.
        ack: Box<pep_link::Ack>,
    },
}

/// Between whom a packet of a flow travels. A PEP on the way is transparent: it speaks for the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The flow.
    pub flow: u32,
    /// Its traffic (an index of [`crate::Results::traffic`]).
    pub traffic: u32,
    /// Which of the flow's TCP connections, in the direction of the data.
    pub leg: u32,
    /// The host that sends the flow's data, among all hosts of the scenario.
    pub sender: u32,
    /// The host that the data is for.
    pub receiver: u32,
    /// Whether the packet goes the way of the data, or comes back.
    pub with_data: bool,
    /// Whether the data's sender opened the connection.
    pub sender_opened: bool,
}

impl World {
    /// Watches what is to be watched, from the beginning of the run.
    ///
    /// # Errors
    /// Names a link that there is not, or that no packet ever passes.
    pub fn watch(&mut self, scenario: &Scenario, watch: &Watch) -> Result<(), String> {
        self.tracer = Tracer::new(&watch.flows);
        for (number, interface) in interfaces(scenario, &watch.links)?.iter().enumerate() {
            if interface.outbound && !self.is_used(interface.link) && !self.is_used(interface.link + 1) {
                return Err(format!(
                    "link {}: no packet is ever on it: either no traffic takes it, or it has no rate, delay, loss or \
                     queue, and is passed as if it were not there",
                    interface.name
                ));
            }
            let link = &mut self.links[interface.link as usize];
            if interface.outbound {
                (link.seen_leaving, link.is_eventful) = (number as u32, true);
            } else {
                link.seen_arriving = number as u32;
            }
        }
        Ok(())
    }

    /// Whether any path goes over a link.
    fn is_used(&self, index: u32) -> bool {
        let paths = self.stations.iter().flat_map(|s| [s.forward, s.reverse]);
        let hops = paths.flat_map(|path| &self.hops[path.start as usize..path.end as usize]);
        let steps = self.traffic.iter().flat_map(|t| {
            let legs = t.plan.legs.iter().flat_map(|leg| leg.down.iter().chain(&leg.up));
            legs.map(|step| (*step, t.from.count, t.to.count))
        });
        hops.into_iter().any(|hop| matches!(*hop, Hop::Link { link, .. } if link == index))
            || steps.into_iter().any(|(step, from, to)| match step {
                Step::Link { base, member, reverse, .. } => {
                    let members = match member {
                        Member::One => 1,
                        Member::From => from,
                        Member::To => to,
                    };
                    (0..members).any(|member| base + 2 * member + u32::from(reverse) == index)
                }
                Step::Gateway { .. } => false,
            })
    }

    /// Which selected flow the run did not have, in words.
    ///
    /// # Errors
    /// Where there is one.
    pub fn check_traced(&self) -> Result<(), String> {
        let missed = self.tracer.selectors.iter().zip(&self.tracer.met).find(|(_, met)| !**met);
        let flows = self.recorder.flows.len();
        match missed {
            None => Ok(()),
            Some((&Selector::Flow(number), _)) => Err(match self.recorder.flows.get(number as usize) {
                Some(flow) => {
                    let traffic = &self.traffic[flow.traffic as usize].name;
                    format!("trace flow:{number}: that flow, of traffic {traffic}, has no congestion window")
                }
                None if flows == 0 => format!("trace flow:{number}: the run had no flow"),
                None => {
                    format!("trace flow:{number}: the run had {flows} flows, numbered 0 to {}", flows - 1)
                }
            }),
            Some((&Selector::Traffic { traffic, number }, _)) => {
                let name = &self.traffic[traffic as usize].name;
                let mut of_traffic: Vec<_> =
                    self.recorder.flows.iter().filter(|f| f.traffic == traffic).collect();
                of_traffic.sort_by_key(|flow| flow.session);
                of_traffic.dedup_by_key(|flow| flow.session);
                let began = of_traffic.len();
                Err(format!(
                    "trace traffic:{name}:{number}: {began} sessions of traffic {name} began, but not that one"
                ))
            }
        }
    }

    /// A traced connection may have changed.
    #[cold]
    #[inline(never)]
    pub fn trace(&mut self, conn: u32) {
        let c = &self.conns[conn as usize];
        let stats = c.tcp.stats();
        let state = TraceState {
            cwnd: stats.cwnd,
            ssthresh: stats.ssthresh,
            in_flight: stats.in_flight,
            rtt: stats.rtt,
            srtt: stats.srtt,
            rto: stats.rto,
            retransmissions: stats.retransmissions,
            timeouts: stats.timeouts,
        };
        self.tracer.note(self.now, c.trace, state);
    }

    /// A traced association may have changed.
    pub fn trace_association(&mut self, index: u32) {
        let end = &self.associations[index as usize];
        let stats = end.sctp.stats();
        let state = TraceState {
            cwnd: stats.cwnd,
            ssthresh: stats.ssthresh,
            in_flight: stats.in_flight,
            rtt: stats.rtt,
            srtt: stats.srtt,
            rto: stats.rto,
            retransmissions: stats.retransmissions,
            timeouts: stats.timeouts,
        };
        self.tracer.note(self.now, end.trace, state);
    }

    /// A packet passes a watched link.
    #[cold]
    #[inline(never)]
    pub fn observe(&mut self, interface: u32, index: u32, lost: bool) {
        let flight = self.flights.get(index);
        let packet = match flight.body {
            Body::Tcp { to, segment } => {
                let conn = &self.conns[to as usize];
                let circuit = &self.circuits[flight.circuit as usize];
                let place = to - circuit.conns.start;
                // Of a leg's two connections, the first is nearer the data's sender.
                let ends = self.ends(flight.circuit, place / 2, place % 2 == 1);
                let config = &self.configs[self.conns[conn.peer as usize].config as usize];
                Packet::Tcp {
                    ends,
                    segment,
                    mss: config.mss,
                    receive_window: config.receive_window,
                    window_scale: config.window_scale.map(|shift| shift.min(14)),
                }
            }
            Body::Datagram | Body::Rtp { .. } | Body::SenderReport { .. } => {
                Packet::Datagram { ends: self.ends(flight.circuit, 0, true) }
            }
            Body::ReceiverReport { .. } => Packet::Datagram { ends: self.ends(flight.circuit, 0, false) },
            Body::Sctp { to, packet, .. } => {
                let with_data = Some(to) != self.circuits[flight.circuit as usize].association;
                let ends = Ends { sender_opened: true, ..self.ends(flight.circuit, 0, with_data) };
                Packet::Sctp { ends, packet: Box::new(self.sctp_packets.get(packet).clone()) }
            }
            Body::Space { station, to_far, data } => {
                Packet::PepData { gateway: station, to_terminal: to_far, data }
            }
            Body::SpaceAck { station, to_far, ack } => {
                Packet::PepAck { gateway: station, to_terminal: to_far, ack: Box::new(*self.acks.get(ack)) }
            }
            Body::Chunk { .. } => return,
        };
        self.observations.push(Observation { time: self.now, interface, len: flight.len, lost, packet });
    }

    fn ends(&self, circuit: u32, leg: u32, with_data: bool) -> Ends {
        let c = &self.circuits[circuit as usize];
        let t = &self.traffic[c.traffic as usize];
        Ends {
            flow: c.flow,
            traffic: c.traffic,
            leg,
            sender: t.from.first + c.hosts.0,
            receiver: t.to.first + c.hosts.1,
            with_data,
            sender_opened: self.conns.get(c.conns.start as usize).is_some_and(|conn| conn.active),
        }
    }
}
