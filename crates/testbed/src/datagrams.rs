//! Datagrams of the scenario's flows of packets, and what becomes of them.
//!
//! A datagram begins with the time when it was sent (CLOCK_MONOTONIC [ns], 8 bytes), its number (4) and how often its source
//! has come (4), as far as it is long enough; a shorter one counts, and says nothing. Its flow is told by the client's port.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use bentpipe_scenario::TrafficKind;
use bentpipe_units::{Duration, Instant};

use crate::flows::{End, Flow, Flows};
use crate::plan::{Load, Plan, PlanError};
use crate::sys;
use crate::users::{self, Users};

/// The client's port of the first flow.
const FIRST_PORT: u32 = 20_000;
/// Received in one turn from one socket at most.
const BATCH: usize = 256;
/// What a socket holds that has come [bytes].
const HELD: usize = 4 << 20;
const HEADER: usize = 16;

/// Whether traffic is datagrams.
#[must_use]
pub fn is_datagrams(plan: &Plan, load: &Load) -> bool {
    matches!(&plan.traffic(load).kind, TrafficKind::Packets(packets) if packets.transport.is_none())
}

/// The first client's port of each load of a plan, of those that are datagrams.
fn first_ports(plan: &Plan) -> Result<Vec<u32>, PlanError> {
    let mut next = FIRST_PORT;
    let mut first = Vec::new();
    for load in &plan.traffic {
        first.push(next);
        next += if is_datagrams(plan, load) { users::count(&plan.traffic(load).kind) } else { 0 };
        if next > 1 << 16 {
            let name = &plan.traffic(load).name;
            let room = (1 << 16) - FIRST_PORT;
            return Err(PlanError(format!(
                "traffic.{name}: found more flows of datagrams than ports; allowed: {room}"
            )));
        }
    }
    Ok(first)
}

/// The ends of a flow: the sending host's address and port, and the receiving one's.
fn ends(plan: &Plan, load: &Load, number: u32, first: u32) -> Option<(SocketAddr, SocketAddr)> {
    let traffic = plan.traffic(load);
    let count = |group: usize| plan.scenario.hosts[group].count;
    let from = plan.address(traffic.from, number % count(traffic.from), load.ipv6)?;
    let to = plan.address(traffic.to, number % count(traffic.to), load.ipv6)?;
    let client = (first + number) as u16;
    let (from_port, to_port) = if load.upload { (client, load.port) } else { (load.port, client) };
    Some((SocketAddr::new(from, from_port), SocketAddr::new(to, to_port)))
}

/// Sockets, each for an address of its own.
#[derive(Default)]
struct Sockets {
    addresses: Vec<SocketAddr>,
    sockets: Vec<UdpSocket>,
}

impl Sockets {
    /// The socket bound to an address, made where there is none yet.
    fn at(&mut self, address: SocketAddr) -> io::Result<usize> {
        if let Some(known) = self.addresses.iter().position(|other| *other == address) {
            return Ok(known);
        }
        let socket = UdpSocket::bind(address)
            .map_err(|e| io::Error::new(e.kind(), format!("{address}, for datagrams: {e}")))?;
        socket.set_nonblocking(true)?;
        // More than a host may ask for by itself; without, what it may.
        let _ = nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::RcvBufForce, &HELD);
        self.addresses.push(address);
        self.sockets.push(socket);
        Ok(self.sockets.len() - 1)
    }
}

/// Sends the datagrams of a side's users.
pub struct Outlets {
    sockets: Sockets,
    /// For each user its socket, the receiver, the number of its next datagram, and how often it has come.
    flows: Vec<Option<(usize, SocketAddr, u32, u32)>>,
    packet: Vec<u8>,
    /// Datagrams sent, and refused by the system.
    pub sent: u64,
    /// … and refused by the system.
    pub refused: u64,
}

impl Outlets {
    /// Sockets for those users that send datagrams.
    ///
    /// # Errors
    /// Where a host's address is not there, or there are too many flows.
    pub fn new(plan: &Plan, users: &Users) -> Result<Self, Box<dyn std::error::Error>> {
        let first = first_ports(plan)?;
        let mut sockets = Sockets::default();
        let mut flows = Vec::new();
        for user in 0..users.len() as u32 {
            let (load, number) = users.who(user);
            let place = plan.traffic.iter().position(|other| other.traffic == load.traffic).unwrap_or(0);
            let ends = is_datagrams(plan, load).then(|| ends(plan, load, number, first[place])).flatten();
            let flow = match ends {
                Some((from, to)) => Some((sockets.at(from)?, to, 0, 0)),
                None => None,
            };
            flows.push(flow);
        }
        Ok(Self { sockets, flows, packet: Vec::new(), sent: 0, refused: 0 })
    }

    /// Whether a user sends datagrams.
    #[must_use]
    pub fn has(&self, user: u32) -> bool {
        self.flows.get(user as usize).is_some_and(Option::is_some)
    }

    /// A user begins anew.
    pub fn begin(&mut self, user: u32) {
        if let Some(Some((_, _, number, begun))) = self.flows.get_mut(user as usize) {
            (*number, *begun) = (0, *begun + 1);
        }
    }

    /// Sends a user's next datagram, of so many bytes on the wire.
    pub fn send(&mut self, user: u32, len: u32) {
        let Some(Some((socket, to, number, begun))) = self.flows.get_mut(user as usize) else { return };
        let headers = if to.is_ipv6() { 48 } else { 28 };
        self.packet.clear();
        self.packet.extend(sys::monotonic().to_be_bytes());
        self.packet.extend(number.to_be_bytes());
        self.packet.extend(begun.to_be_bytes());
        self.packet.resize((len as usize).saturating_sub(headers).min(65_507), 0);
        *number += 1;
        match self.sockets.sockets[*socket].send_to(&self.packet, *to) {
            Ok(_) => self.sent += 1,
            Err(_) => self.refused += 1,
        }
    }
}

/// A flow that comes in.
struct Coming {
    traffic: String,
    number: u32,
    /// How often its source had come, and what has come since.
    now: Option<(u32, Flow)>,
}

/// Receives the datagrams for a side.
pub struct Inlets {
    sockets: Sockets,
    /// Flows by the client's port, from [`FIRST_PORT`] on.
    flows: Vec<Option<Coming>>,
    buffer: Vec<u8>,
    /// CLOCK_MONOTONIC at time zero [ns].
    origin: u64,
}

impl Inlets {
    /// Sockets for the traffic that comes to clients, or to servers.
    ///
    /// # Errors
    /// Where a host's address is not there, or there are too many flows.
    pub fn new(plan: &Plan, at_servers: bool, origin: u64) -> Result<Self, Box<dyn std::error::Error>> {
        let first = first_ports(plan)?;
        let mut inlets =
            Self { sockets: Sockets::default(), flows: Vec::new(), buffer: vec![0; 1 << 16], origin };
        for (load, first) in plan.traffic.iter().zip(first) {
            if !is_datagrams(plan, load) || load.upload != at_servers {
                continue;
            }
            let traffic = plan.traffic(load);
            for number in 0..users::count(&traffic.kind) {
                let Some((_, to)) = ends(plan, load, number, first) else { continue };
                inlets.sockets.at(to)?;
                let place = (first + number - FIRST_PORT) as usize;
                inlets.flows.resize_with(inlets.flows.len().max(place + 1), || None);
                inlets.flows[place] = Some(Coming { traffic: traffic.name.clone(), number, now: None });
            }
        }
        Ok(inlets)
    }

    /// The sockets to wait for.
    #[must_use]
    pub fn sockets(&self) -> &[UdpSocket] {
        &self.sockets.sockets
    }

    /// Takes what has come to a socket.
    ///
    /// # Errors
    /// Where rows cannot be written.
    pub fn take(&mut self, socket: usize, flows: &mut Flows, now: Instant) -> io::Result<()> {
        let Some(own) = self.sockets.addresses.get(socket).copied() else { return Ok(()) };
        for _ in 0..BATCH {
            let Ok((len, from)) = self.sockets.sockets[socket].recv_from(&mut self.buffer) else { break };
            // The one of the two whose port is a client's.
            let (client, server) =
                if u32::from(own.port()) >= FIRST_PORT { (own, from) } else { (from, own) };
            let place = u32::from(client.port()).checked_sub(FIRST_PORT).map(|place| place as usize);
            let Some(Some(coming)) = place.and_then(|place| self.flows.get_mut(place)) else { continue };
            let field = |at: usize, len: usize| {
                self.buffer[at..at + len].iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
            };
            let is_told = len >= HEADER;
            let (sent, number, begun) =
                if is_told { (field(0, 8), field(8, 4), field(12, 4) as u32) } else { (0, 0, 0) };
            if coming.now.as_ref().is_some_and(|(known, _)| is_told && *known < begun)
                && let Some((_, flow)) = coming.now.take()
            {
                flows.close(&flow, End::Left, now)?;
            }
            let opened = if is_told { Instant::from_nanos(sent.saturating_sub(self.origin)) } else { now };
            let (known, flow) = coming
                .now
                .get_or_insert_with(|| (begun, flows.open(&coming.traffic, coming.number, false, opened)));
            if *known != begun {
                // A late one of a flow that is over.
                continue;
            }
            flow.ends = Some((client, server));
            let arrived = self.origin.saturating_add(now.as_nanos());
            let delay = if is_told { arrived.saturating_sub(sent) } else { 0 };
            let number = if is_told { number } else { 0 };
            flows.came(flow, len as u64, number, delay, now);
        }
        Ok(())
    }

    /// All is over: rows of what still goes on.
    ///
    /// # Errors
    /// Where rows cannot be written.
    pub fn finish(&mut self, flows: &mut Flows, now: Instant) -> io::Result<()> {
        for (_, flow) in self.flows.iter_mut().flatten().filter_map(|coming| coming.now.take()) {
            flows.close(&flow, End::Open, now)?;
        }
        Ok(())
    }
}

/// How long to wait for the earlier of two times.
#[must_use]
pub fn wait(clock: sys::Clock, times: impl IntoIterator<Item = Option<Instant>>) -> Option<Duration> {
    times.into_iter().flatten().min().map(|at| clock.until(at))
}

/// The family's address that stands for all of a host's.
#[must_use]
pub const fn any(ipv6: bool) -> IpAddr {
    if ipv6 {
        IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED)
    } else {
        IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED)
    }
}
