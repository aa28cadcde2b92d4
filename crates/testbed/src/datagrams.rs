//! Datagrams of the scenario's packet flows, sent and received over UDP sockets.
//!
//! A datagram begins with its send time (CLOCK_MONOTONIC [ns], 8 bytes), its sequence number (4 bytes) and the generation of
//! its source, the number of times the source has started (4 bytes). A datagram too short for this header is counted
//! without delay. The client's port identifies the flow.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use bentpipe_scenario::{HostIndex, Traffic, TrafficKind};
use bentpipe_units::Instant;

use crate::flows::{End, Flow, Flows};
use crate::plan::{Plan, PlanError, Side, Workload};
use crate::sys;
use crate::users::{self, UserId, Users};

/// Client port of the first flow.
const FIRST_PORT: u32 = 20_000;
/// Maximum number of datagrams received from a socket before others get their turn.
const BATCH: usize = 256;
/// Receive buffer of a socket [bytes].
const RECEIVE_BUFFER: usize = 4 << 20;
/// Longest UDP payload over IPv4 [bytes].
const MAX_PAYLOAD: usize = 65_507;

/// True if a workload consists of datagrams.
#[must_use]
pub fn is_datagrams(plan: &Plan, workload: &Workload) -> bool {
    matches!(&plan.traffic(workload).kind, TrafficKind::Packets(packets) if packets.transport.is_none())
}

/// First client port of each workload.
fn first_ports(plan: &Plan) -> Result<Vec<u32>, PlanError> {
    let mut next = FIRST_PORT;
    let mut first = Vec::new();
    for workload in &plan.workloads {
        first.push(next);
        next += if is_datagrams(plan, workload) { users::count(&plan.traffic(workload).kind) } else { 0 };
        if next > 1 << 16 {
            let name = &plan.traffic(workload).name;
            let ports = (1 << 16) - FIRST_PORT;
            return Err(PlanError(format!(
                "traffic.{name}: found more datagram flows than ports; allowed: {ports} in total"
            )));
        }
    }
    Ok(first)
}

/// Addresses and ports of a flow: sender and receiver.
fn ends(plan: &Plan, workload: &Workload, number: u32, first_port: u32) -> Option<(SocketAddr, SocketAddr)> {
    let traffic = plan.traffic(workload);
    let count = |group: HostIndex| plan.scenario.hosts[group].count;
    let from = plan.address(traffic.from, number % count(traffic.from), workload.ipv6)?;
    let to = plan.address(traffic.to, number % count(traffic.to), workload.ipv6)?;
    let (client, server) = ((first_port + number) as u16, workload.port);
    let (from_port, to_port) = if workload.upload { (client, server) } else { (server, client) };
    Some((SocketAddr::new(from, from_port), SocketAddr::new(to, to_port)))
}

/// Sockets, one per local address.
#[derive(Default)]
struct Sockets {
    addresses: Vec<SocketAddr>,
    sockets: Vec<UdpSocket>,
}

impl Sockets {
    /// Index of the socket bound to an address; binds one if necessary.
    fn bind(&mut self, address: SocketAddr) -> io::Result<usize> {
        if let Some(index) = self.addresses.iter().position(|other| *other == address) {
            return Ok(index);
        }
        let socket = UdpSocket::bind(address)
            .map_err(|e| io::Error::new(e.kind(), format!("datagram socket {address}: {e}")))?;
        socket.set_nonblocking(true)?;
        // Exceeds net.core.rmem_max; without CAP_NET_ADMIN the default size stays.
        let _ =
            nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::RcvBufForce, &RECEIVE_BUFFER);
        self.addresses.push(address);
        self.sockets.push(socket);
        Ok(self.sockets.len() - 1)
    }
}

/// Outgoing flow of a user.
struct Outgoing {
    socket: usize,
    to: SocketAddr,
    next_number: u32,
    generation: u32,
}

/// Sends the datagrams of a side's users.
pub struct DatagramSenders {
    sockets: Sockets,
    /// Flow of each user; `None` for users that do not send datagrams.
    flows: Vec<Option<Outgoing>>,
    packet: Vec<u8>,
    /// Datagrams that the system accepted.
    pub sent: u64,
    /// Datagrams that the system rejected.
    pub refused: u64,
}

impl DatagramSenders {
    /// Opens sockets for the users that send datagrams.
    ///
    /// # Errors
    /// If an address is not local, or flows outnumber ports.
    pub fn new(plan: &Plan, users: &Users) -> Result<Self, Box<dyn std::error::Error>> {
        let first_ports = first_ports(plan)?;
        let mut sockets = Sockets::default();
        let mut flows = Vec::new();
        for user in users.ids() {
            let (id, number) = users.workload(user);
            let workload = plan.workload(id);
            let ends = is_datagrams(plan, workload)
                .then(|| ends(plan, workload, number, first_ports[id.index()]))
                .flatten();
            let flow = |(from, to)| {
                let socket = sockets.bind(from)?;
                sys::set_dscp(&sockets.sockets[socket], workload.ipv6, plan.traffic(workload).dscp)?;
                Ok::<_, io::Error>(Outgoing { socket, to, next_number: 0, generation: 0 })
            };
            flows.push(ends.map(flow).transpose()?);
        }
        Ok(Self { sockets, flows, packet: Vec::new(), sent: 0, refused: 0 })
    }

    /// True if a user sends datagrams.
    #[must_use]
    pub fn has(&self, user: UserId) -> bool {
        self.flows.get(user.index()).is_some_and(Option::is_some)
    }

    /// Starts the next generation of a user's flow.
    pub fn restart(&mut self, user: UserId) {
        if let Some(Some(flow)) = self.flows.get_mut(user.index()) {
            flow.next_number = 0;
            flow.generation += 1;
        }
    }

    /// Sends a user's next datagram, of `len` bytes with IP and UDP headers.
    pub fn send(&mut self, user: UserId, len: u32) {
        let Some(Some(flow)) = self.flows.get_mut(user.index()) else { return };
        let headers = if flow.to.is_ipv6() { 48 } else { 28 };
        self.packet.clear();
        self.packet.extend(sys::monotonic().to_be_bytes());
        self.packet.extend(flow.next_number.to_be_bytes());
        self.packet.extend(flow.generation.to_be_bytes());
        self.packet.resize((len as usize).saturating_sub(headers).min(MAX_PAYLOAD), 0);
        flow.next_number += 1;
        match self.sockets.sockets[flow.socket].send_to(&self.packet, flow.to) {
            Ok(_) => self.sent += 1,
            Err(_) => self.refused += 1,
        }
    }
}

/// Header of a datagram.
struct Header {
    /// CLOCK_MONOTONIC [ns].
    sent: u64,
    number: u32,
    generation: u32,
}

impl Header {
    fn parse(packet: &[u8]) -> Option<Self> {
        let (sent, rest) = packet.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (generation, _) = rest.split_first_chunk()?;
        Some(Self {
            sent: u64::from_be_bytes(*sent),
            number: u32::from_be_bytes(*number),
            generation: u32::from_be_bytes(*generation),
        })
    }
}

/// Incoming flow.
struct Incoming {
    traffic: Arc<Traffic>,
    number: u32,
    /// Current generation of the source, and its flow; `None` before the first datagram.
    current: Option<(u32, Flow)>,
}

/// Receives the datagrams of a side.
pub struct DatagramReceivers {
    sockets: Sockets,
    /// Flows by client port, from [`FIRST_PORT`] on.
    flows: Vec<Option<Incoming>>,
    buffer: Vec<u8>,
    side: Side,
    /// CLOCK_MONOTONIC at time zero [ns].
    origin: u64,
}

impl DatagramReceivers {
    /// Opens sockets for the datagrams to one side.
    ///
    /// # Errors
    /// If an address is not local, or flows outnumber ports.
    pub fn new(plan: &Plan, side: Side, origin: u64) -> Result<Self, Box<dyn std::error::Error>> {
        let first_ports = first_ports(plan)?;
        let (sockets, flows, buffer) = (Sockets::default(), Vec::new(), vec![0; 1 << 16]);
        let mut receivers = Self { sockets, flows, buffer, side, origin };
        for (workload, first_port) in plan.workloads.iter().zip(first_ports) {
            if !is_datagrams(plan, workload) || workload.upload != (side == Side::Servers) {
                continue;
            }
            let traffic = Arc::new(plan.traffic(workload).clone());
            for number in 0..users::count(&traffic.kind) {
                let Some((_, to)) = ends(plan, workload, number, first_port) else { continue };
                receivers.sockets.bind(to)?;
                let slot = (first_port + number - FIRST_PORT) as usize;
                receivers.flows.resize_with(receivers.flows.len().max(slot + 1), || None);
                receivers.flows[slot] =
                    Some(Incoming { traffic: Arc::clone(&traffic), number, current: None });
            }
        }
        Ok(receivers)
    }

    /// All sockets.
    #[must_use]
    pub fn sockets(&self) -> &[UdpSocket] {
        &self.sockets.sockets
    }

    /// Receives from the socket with this index.
    ///
    /// # Errors
    /// If flow records cannot be written.
    pub fn receive(&mut self, socket: u32, flows: &mut Flows, now: Instant) -> io::Result<()> {
        let socket = socket as usize;
        let Some(own) = self.sockets.addresses.get(socket).copied() else { return Ok(()) };
        for _ in 0..BATCH {
            let Ok((len, from)) = self.sockets.sockets[socket].recv_from(&mut self.buffer) else { break };
            let (client, server) = if self.side == Side::Clients { (own, from) } else { (from, own) };
            let slot = u32::from(client.port()).checked_sub(FIRST_PORT).map(|slot| slot as usize);
            let Some(Some(incoming)) = slot.and_then(|slot| self.flows.get_mut(slot)) else { continue };
            let header = Header::parse(&self.buffer[..len]);
            if let Some(header) = &header
                && let Some((_, flow)) =
                    incoming.current.take_if(|(generation, _)| *generation < header.generation)
            {
                flows.close(&flow, End::Left, now)?;
            }
            let current = incoming.current.as_ref().map_or(0, |(generation, _)| *generation);
            let sent = header
                .as_ref()
                .map_or(now, |header| Instant::from_nanos(header.sent.saturating_sub(self.origin)).min(now));
            let of_header = header.as_ref().map_or(current, |header| header.generation);
            let (generation, flow) = incoming.current.get_or_insert_with(|| {
                (of_header, flows.open(&incoming.traffic, incoming.number, false, sent))
            });
            // A late datagram of an earlier generation.
            if *generation != of_header {
                continue;
            }
            flow.ends = Some((client, server));
            let Some(header) = header else {
                flows.deliver(flow, len as u64, now);
                continue;
            };
            flows.deliver_datagram(flow, len as u64, header.number.into(), sent, now);
        }
        Ok(())
    }

    /// Closes the flows that are still open at the end of the run.
    ///
    /// # Errors
    /// If flow records cannot be written.
    pub fn finish(&mut self, flows: &mut Flows, now: Instant) -> io::Result<()> {
        for (_, flow) in self.flows.iter_mut().flatten().filter_map(|incoming| incoming.current.take()) {
            flows.close(&flow, End::Open, now)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The servers' port is the client port of the second flow: both flows to it are counted, as their own.
    #[test]
    fn datagrams_to_a_port_among_those_of_clients_are_counted() {
        let text = "title = \"t\"\n[run]\nduration = \"60 s\"\n[host.server]\n[host.client]\n\
                    [link.l]\nbetween = [\"server\", \"client\"]\nqueue = { aqm = { algorithm = \"red\" } }\nrate = \"1 Mbps\"\n\
                    [traffic.up]\nkind = \"cbr\"\nrate = \"8 kbps\"\npacket = \"100 B\"\nflows = 2\n\
                    from = \"client\"\nto = \"server\"\n";
        let side = |side: &str, address: &str| serde_json::json!({ "side": side, "addresses": [address] });
        let plan = serde_json::json!({
            "scenario": { "file": "t.toml", "text": text },
            "hosts": { "server": side("servers", "127.0.0.1"), "client": side("clients", "127.0.0.2") },
            "traffic": { "up": { "port": FIRST_PORT + 1 } },
        });
        let plan = Plan::parse(&plan.to_string(), "plan").unwrap();
        let mut receivers = DatagramReceivers::new(&plan, Side::Servers, 0).unwrap();
        let mut flows = Flows::new(None, plan.measured()).unwrap();
        for port in [FIRST_PORT, FIRST_PORT + 1] {
            let client = UdpSocket::bind(("127.0.0.2", port as u16)).unwrap();
            client.send_to(&[0; 72], ("127.0.0.1", FIRST_PORT as u16 + 1)).unwrap();
        }
        // Loopback delivers before sendto(2) returns.
        receivers.receive(0, &mut flows, Instant::ZERO).unwrap();
        receivers.finish(&mut flows, Instant::ZERO).unwrap();
        assert_eq!((flows.totals().opened, flows.totals().delivered), (2, 144));
    }
}
