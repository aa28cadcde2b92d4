//! QUIC between the testbed's hosts: the simulator's stack (`bentpipe_quic`) with TLS, over UDP sockets and in real time.

pub mod request;
pub mod socket;
mod tls;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bentpipe_quic::{Config, Connection, Host};
use bentpipe_scenario::{Quic, TrafficKind, Transport};
use bentpipe_transport::tcp::SavedPath;
use bentpipe_units::{Duration, Instant, Rate, mix};
use serde_json::{Value, json};
use slab::Slab;

use self::socket::Socket;
use crate::content;
use crate::plan::{Plan, Side, Workload, WorkloadId};
use crate::reactor::{Interest, Reactor, Source};
use crate::table::{Table, Token};

/// Maximum number of packets received from a socket before others get their turn.
const BATCH: usize = 64;
/// Longest UDP payload received [bytes].
const LONGEST: usize = 1 << 16;
/// First bit of a packet with a long header, as those that open a connection have (RFC 9000, section 17.2).
const LONG_HEADER: u8 = 0x80;

/// QUIC of a workload; `None` if another transport carries it.
#[must_use]
pub fn transport<'a>(plan: &'a Plan, workload: &Workload) -> Option<&'a Quic> {
    let transport = plan.traffic(workload).kind.transport()?;
    match &plan.scenario.transports[transport] {
        Transport::Quic(quic) => Some(quic),
        _ => None,
    }
}

/// Stack of a host, which does not exceed a rate if it has one.
fn config(q: &Quic, rate_cap: Option<Rate>) -> Config {
    let small = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    Config {
        algorithm: q.algorithm,
        // The times that it is mixed with differ between real connections.
        seed: 0,
        max_udp_payload: u16::try_from(q.max_udp_payload).unwrap_or(u16::MAX),
        udp_header: small(q.udp_header),
        initial_window: q.initial_window,
        initial_rtt: q.initial_rtt,
        hystart: q.hystart,
        search: q.search,
        max_data: q.max_data,
        max_stream_data: q.max_stream_data,
        max_idle_timeout: Some(q.max_idle_timeout),
        ecn: q.ecn,
        rate_cap,
        zero_rtt: false,
        tls_flight: small(q.tls_flight),
        scone: false,
        migration: false,
    }
}

/// The rate that senders of some traffic do not exceed.
fn rate_cap(kind: &TrafficKind) -> Option<Rate> {
    match kind {
        TrafficKind::Pages(t) => t.rate_cap,
        TrafficKind::Files(t) => t.rate_cap,
        TrafficKind::Bulk(t) => t.rate_cap,
        TrafficKind::Packets(_) | TrafficKind::Dash(_) => None,
    }
}

/// Paths that servers have saved, by server, client and workload, and when they expire (RFC 9959).
type Paths = BTreeMap<(SocketAddr, std::net::IpAddr, usize), (SavedPath, Instant)>;

/// A socket, with the connection that it belongs to if that is a client's.
struct Bound {
    socket: Socket,
    local: SocketAddr,
    workload: WorkloadId,
    owner: Option<Token>,
}

/// One end of a connection, with the state of its application.
pub struct End<A> {
    /// The stack.
    pub quic: Connection,
    /// The application.
    pub app: A,
    socket: usize,
    remote: SocketAddr,
    /// Time of its entry in the list of timers that counts.
    timer: Option<Instant>,
    /// Path that it resumes.
    resumed: Option<(SavedPath, Instant)>,
}

/// All connections of one side.
pub struct Ends<A> {
    /// Stack of each workload; `None` for those over another transport.
    hosts: Vec<Option<Host>>,
    /// Lifetime of saved paths of each workload.
    lifetimes: Vec<Option<Duration>>,
    sockets: Slab<Bound>,
    table: Table<End<A>>,
    /// Connections by a server's socket and the client's address.
    by_peer: BTreeMap<(usize, SocketAddr), Token>,
    timers: BinaryHeap<Reverse<(Instant, Token)>>,
    saved: Paths,
    seed: u64,
    buffer: Vec<u8>,
    /// Connections opened, packets sent and received, and packets that the system rejected.
    opened: u64,
    sent: u64,
    received: u64,
    refused: u64,
}

impl<A: Default> Ends<A> {
    /// The side's stacks.
    ///
    /// # Errors
    /// If a certificate cannot be made.
    pub fn new(plan: &Plan, side: Side) -> Result<Self, Box<dyn Error>> {
        let client = Arc::new(tls::client()?);
        let host = |workload| {
            let Some(quic) = transport(plan, workload) else { return Ok(None) };
            let config = config(quic, rate_cap(&plan.traffic(workload).kind));
            let server = Arc::new(tls::server(config.tls_flight as usize)?);
            Ok(Some(Host::with_crypto(config, client.clone(), server).with_content(content::fill)))
        };
        let lifetime = |workload| transport(plan, workload).and_then(|quic| quic.careful_resume);
        Ok(Self {
            hosts: plan.workloads.iter().map(host).collect::<Result<_, Box<dyn Error>>>()?,
            lifetimes: plan.workloads.iter().map(lifetime).collect(),
            sockets: Slab::new(),
            table: Table::default(),
            by_peer: BTreeMap::new(),
            timers: BinaryHeap::new(),
            saved: BTreeMap::new(),
            seed: mix(plan.seed ^ u64::from(side == Side::Clients)),
            buffer: vec![0; LONGEST],
            opened: 0,
            sent: 0,
            received: 0,
            refused: 0,
        })
    }

    /// Opens a socket for the clients of a workload.
    ///
    /// # Errors
    /// If the address is not local or in use.
    pub fn listen(
        &mut self,
        reactor: &Reactor,
        local: SocketAddr,
        workload: WorkloadId,
        dscp: u8,
    ) -> io::Result<()> {
        let socket = Socket::bind(local, dscp)?;
        let entry = self.sockets.vacant_entry();
        reactor.add(&socket, Source::Quic(entry.key() as u32), Interest::READ)?;
        entry.insert(Bound { socket, local, workload, owner: None });
        Ok(())
    }

    /// Opens a connection from an address; returns it and its local address and port.
    ///
    /// # Errors
    /// If the system has no port or descriptor left.
    pub fn connect(
        &mut self,
        reactor: &Reactor,
        (local, remote): (SocketAddr, SocketAddr),
        (workload, dscp): (WorkloadId, u8),
        app: A,
        now: Instant,
    ) -> io::Result<(Token, SocketAddr)> {
        let Some(host) = &self.hosts[workload.index()] else { return Err(io::ErrorKind::Unsupported.into()) };
        let socket = Socket::bind(local, dscp)?;
        let local = socket.local()?;
        let index = self.sockets.vacant_key();
        reactor.add(&socket, Source::Quic(index as u32), Interest::READ)?;
        self.seed = mix(self.seed);
        let quic = Connection::connect(host, now, self.seed, None, None);
        let end = End { quic, app, socket: index, remote, timer: None, resumed: None };
        let token = self.table.insert(|_| Ok::<_, io::Error>(end))?;
        self.opened += 1;
        self.sockets.insert(Bound { socket, local, workload, owner: Some(token) });
        Ok((token, local))
    }

    /// Receives from a socket; appends the connections that have received something to `active`.
    pub fn receive(&mut self, index: u32, now: Instant, active: &mut Vec<Token>) {
        let index = index as usize;
        for _ in 0..BATCH {
            let Some(bound) = self.sockets.get(index) else { return };
            // No packet waits; or an ICMP message tells what QUIC's timers find out.
            let Ok((len, from, ecn)) = bound.socket.receive(&mut self.buffer) else { return };
            self.received += 1;
            let payload = self.buffer[..len].to_vec();
            let known = bound.owner.or_else(|| self.by_peer.get(&(index, from)).copied());
            let is_listening = bound.owner.is_none();
            let opens = is_listening && payload.first().is_some_and(|first| first & LONG_HEADER != 0);
            let token = match known {
                Some(token) => token,
                None if opens => match self.accept(index, from, now) {
                    Some(token) => token,
                    None => continue,
                },
                None => continue,
            };
            if let Some(end) = self.table.get(token) {
                end.quic.receive(now, ecn, payload);
                if active.last() != Some(&token) {
                    active.push(token);
                }
            }
        }
    }

    /// A client has opened a connection.
    fn accept(&mut self, socket: usize, remote: SocketAddr, now: Instant) -> Option<Token> {
        let (local, workload) = (self.sockets[socket].local, self.sockets[socket].workload);
        let host = self.hosts[workload.index()].as_ref()?;
        // One connection at a time resumes a path.
        let saved = self.saved.remove(&(local, remote.ip(), workload.index()));
        let resumed = saved.filter(|(_, expires)| now <= *expires);
        self.seed = mix(self.seed);
        let quic = Connection::listen(host, self.seed, resumed.map(|(path, _)| path));
        let end = End { quic, app: A::default(), socket, remote, timer: None, resumed };
        let token = self.table.insert(|_| Ok::<_, ()>(end)).ok()?;
        self.by_peer.insert((socket, remote), token);
        self.opened += 1;
        Some(token)
    }

    /// The connection with this token, if it is still open.
    pub fn get(&mut self, token: Token) -> Option<&mut End<A>> {
        self.table.get(token)
    }

    /// Workload of a connection's socket.
    #[must_use]
    pub fn workload(&self, end: &End<A>) -> WorkloadId {
        self.sockets[end.socket].workload
    }

    /// Sends what a connection has to send now, and sets its timer. Removes the connection once nothing follows.
    pub fn flush(&mut self, token: Token, now: Instant) {
        let Some(end) = self.table.get(token) else { return };
        let socket = &self.sockets[end.socket].socket;
        while let Some(packet) = end.quic.poll_transmit(now) {
            // A packet that the system rejects is lost.
            match socket.send(&packet.payload, end.remote, packet.ecn) {
                Ok(()) => self.sent += 1,
                Err(_) => self.refused += 1,
            }
        }
        if end.quic.is_drained() {
            return self.remove(token, now);
        }
        let due = end.quic.poll_timeout();
        if let Some(at) = due.filter(|_| due != end.timer) {
            self.timers.push(Reverse((at, token)));
        }
        end.timer = due;
    }

    fn remove(&mut self, token: Token, now: Instant) {
        let Some(end) = self.table.remove(token) else { return };
        let bound = &self.sockets[end.socket];
        if bound.owner.is_some() {
            self.sockets.remove(end.socket);
            return;
        }
        self.by_peer.remove(&(end.socket, end.remote));
        if let Some(lifetime) = self.lifetimes[bound.workload.index()] {
            let observed = end.quic.observed().map(|path| (path, now + lifetime));
            if let Some(path) = observed.or(end.resumed.filter(|_| !end.quic.has_retreated())) {
                self.saved.insert((bound.local, end.remote.ip(), bound.workload.index()), path);
            }
        }
    }

    /// Time of the next timer.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }

    /// Handles the timers that are due; appends their connections to `active`.
    pub fn advance(&mut self, now: Instant, active: &mut Vec<Token>) {
        while let Some(&Reverse((at, token))) = self.timers.peek()
            && at <= now
        {
            self.timers.pop();
            // An entry whose time has changed is obsolete.
            if let Some(end) = self.table.get(token).filter(|end| end.timer == Some(at)) {
                end.timer = None;
                end.quic.handle_timeout(now);
                active.push(token);
            }
        }
    }

    /// Counters of the run.
    #[must_use]
    pub fn summary(&self) -> Value {
        json!({
            "connections": self.opened,
            "sent": self.sent,
            "received": self.received,
            "refused": self.refused,
        })
    }

    /// All connections.
    pub fn iter(&self) -> impl Iterator<Item = &End<A>> {
        self.table.iter()
    }

    /// Removes all connections.
    pub fn drain(&mut self) -> impl Iterator<Item = End<A>> {
        self.table.drain()
    }
}
