//! The servers: send requested objects and the packets of the scenario's sources, and record what clients send.
//!
//! The server responds to an upload once it is complete or the client closes its half of the connection. A client that
//! closes its half during a download still receives the rest.

mod quic;

use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};

use bentpipe_scenario::{TrafficKind, Transport};
use bentpipe_units::{Instant, Rate};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, setsockopt, socket, sockopt,
};
use serde_json::json;

use crate::datagrams;
use crate::endpoint::{self, Connection, Endpoint, Event, TURN, UNSENT, write_line};
use crate::flows::{End, Flow};
use crate::plan::{By, Plan, PlanError, Side, Workload, WorkloadId};
use crate::quic::{Ends, transport};
use crate::reactor::{Interest, Source};
use crate::sys;
use crate::table::Token;
use crate::users::{Task, UserId, Users};
use crate::{content, http};

/// Maximum length of pipelined requests that wait for the end of a response [bytes].
const MAX_PIPELINED: usize = 64 * http::MAX_HEADER;
/// Maximum number of connections accepted before others get their turn.
const BATCH: usize = 256;

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Waiting for a request.
    Waiting,
    /// Sending this much more [bytes]; `None`: endless.
    Sending(Option<u64>),
    /// Sending the packets of a source as they become due.
    Packets,
    /// Receiving this much more [bytes]; `None`: until the client closes its half.
    Receiving(Option<u64>),
    /// Done; the client is to close the connection.
    Done,
}

struct Conn {
    stream: TcpStream,
    workload: WorkloadId,
    stage: Stage,
    /// Position in the object [bytes].
    at: u64,
    blocks: content::BlockWriter,
    /// Header to be sent.
    output: Vec<u8>,
    /// True if no request follows the current one.
    is_last: bool,
    /// Received part of the next request.
    header: Vec<u8>,
    /// Payload of packets that are due and not written yet [bytes].
    backlog: u64,
    /// The source whose packets the connection carries.
    user: Option<UserId>,
    /// Upload in progress, and its blocks.
    flow: Option<Flow>,
    uploaded: content::BlockReader,
    /// True once the client has closed its half.
    is_half_closed: bool,
    interest: Interest,
}

impl Connection for Conn {
    fn user(&self) -> Option<UserId> {
        self.user
    }
}

/// Failure of a connection, or of the run.
enum Failure {
    Connection,
    Record(io::Error),
}

impl From<io::Error> for Failure {
    fn from(_: io::Error) -> Self {
        Self::Connection
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    accepted: u64,
    sent: u64,
    received: u64,
    max_open: usize,
}

struct Servers<'a> {
    endpoint: Endpoint<'a, Conn>,
    /// Connections over QUIC.
    quic: Ends<quic::Streams>,
    listeners: Vec<(TcpListener, WorkloadId)>,
    buffer: Vec<u8>,
    totals: Totals,
}

/// Runs the servers until asked to stop. Writes a summary to `out`, in a line of JSON.
///
/// # Errors
/// If a socket cannot be opened, or a file cannot be written.
pub fn run(plan: &Plan, out: &mut dyn Write) -> Result<(), Box<dyn std::error::Error>> {
    let is_packets = |w: &Workload| matches!(plan.traffic(w).kind, TrafficKind::Packets(_));
    let users = Users::new(plan, |w| is_packets(w) && !w.upload && w.by == By::Serve);
    let records = plan.out.as_ref().filter(|_| plan.workloads.iter().any(|workload| workload.upload));
    let records = records.map(|path| path.with_extension("serve.jsonl"));
    let endpoint = Endpoint::new(plan, Side::Servers, users, records.as_deref())?;
    let listeners = open_listeners(plan)?;
    for (index, (listener, _)) in (0..).zip(&listeners) {
        endpoint.reactor.add(listener, Source::Listener(index), Interest::READ)?;
    }
    let mut quic = Ends::new(plan, Side::Servers)?;
    let sockets = quic::listen(plan, &mut quic, &endpoint.reactor)?;
    endpoint.report_ready(out, "listeners", listeners.len() + sockets)?;
    let (buffer, totals) = (vec![0; TURN], Totals::default());
    let mut servers = Servers { endpoint, quic, listeners, buffer, totals };
    let mut active = Vec::new();
    loop {
        match servers.endpoint.next(servers.quic.due())? {
            Event::Task(task) => servers.on_task(task)?,
            Event::Connection(token) => servers.on_connection(token)?,
            Event::Listener(index) => servers.accept(index)?,
            Event::Quic(socket) => {
                servers.quic.receive(socket, servers.endpoint.now, &mut active);
                servers.on_quic(&mut active);
            }
            Event::Wake => {
                servers.quic.advance(servers.endpoint.now, &mut active);
                servers.on_quic(&mut active);
            }
            Event::End => break,
        }
    }
    let Servers { endpoint, quic, totals, .. } = &mut servers;
    let open = endpoint.connections.len();
    for flow in endpoint.connections.drain().filter_map(|conn| conn.flow) {
        endpoint.flows.close(&flow, End::Open, endpoint.now)?;
    }
    let mut summary = endpoint.finish()?;
    summary["connections"] = json!({ "accepted": totals.accepted, "most": totals.max_open, "open": open });
    summary["quic"] = quic.summary();
    summary["bytes"] = json!({ "sent": totals.sent, "received": totals.received });
    Ok(write_line(out, &json!({ "summary": summary }))?)
}

/// Opens a listening socket for each workload over connections.
fn open_listeners(plan: &Plan) -> Result<Vec<(TcpListener, WorkloadId)>, Box<dyn std::error::Error>> {
    let mut listeners = Vec::new();
    for (id, workload) in plan.workloads() {
        let is_tcp = !datagrams::is_datagrams(plan, workload) && transport(plan, workload).is_none();
        if workload.by != By::Serve || !is_tcp {
            continue;
        }
        let listener = open_listener(workload, plan.traffic(workload).dscp).map_err(|e| match e.kind() {
            ErrorKind::NotFound => {
                let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
                let name = &plan.traffic(workload).name;
                let found = workload.congestion.as_deref().unwrap_or_default();
                let known = known.unwrap_or_default().trim().replace(' ', ", ");
                PlanError(format!("traffic.{name}.congestion: found \"{found}\"; allowed: {known}")).into()
            }
            _ => Box::<dyn std::error::Error>::from(format!("port {}: {e}", workload.port)),
        })?;
        listeners.push((listener, id));
    }
    Ok(listeners)
}

fn open_listener(workload: &Workload, dscp: u8) -> io::Result<TcpListener> {
    let (family, any): (_, IpAddr) = if workload.ipv6 {
        (AddressFamily::Inet6, Ipv6Addr::UNSPECIFIED.into())
    } else {
        (AddressFamily::Inet, Ipv4Addr::UNSPECIFIED.into())
    };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket: OwnedFd = socket(family, SockType::Stream, flags, None)?;
    setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    if workload.ipv6 {
        setsockopt(&socket, sockopt::Ipv6V6Only, &true)?;
    }
    if let Some(congestion) = &workload.congestion {
        setsockopt(&socket, sockopt::TcpCongestion, &OsString::from(congestion))?;
    }
    sys::set_dscp(&socket, workload.ipv6, dscp)?;
    bind(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(any, workload.port)))?;
    listen(&socket, Backlog::MAXALLOWABLE)?;
    Ok(socket.into())
}

/// Rate limit of a connection without headers, as the kernel's pacing counts.
fn pacing_rate(plan: &Plan, workload: &Workload) -> Option<Rate> {
    let (cap, transport) = match &plan.traffic(workload).kind {
        TrafficKind::Pages(t) => (t.rate_cap?, t.transport),
        TrafficKind::Files(t) => (t.rate_cap?, t.transport),
        TrafficKind::Bulk(t) => (t.rate_cap?, t.transport),
        TrafficKind::Packets(_) | TrafficKind::Dash(_) => return None,
    };
    let share = match &plan.scenario.transports[transport] {
        Transport::Tcp(tcp) => tcp.mss as f64 / tcp.full_segment() as f64,
        _ => 1.0,
    };
    Some(Rate::from_bps((cap.as_bps() as f64 * share) as u64))
}

/// End of an upload whose client closed the connection early. A client leaves an endless upload, one with a lifetime or whose
/// source has absences, and all of them at the end of the load.
fn ended_early<'a>(
    plan: &Plan,
    workload: WorkloadId,
    flow: &Flow,
    now: Instant,
    problem: &'a str,
) -> End<'a> {
    let leaves = match &plan.traffic(plan.workload(workload)).kind {
        TrafficKind::Bulk(bulk) => bulk.lifetime.is_some() || !bulk.away.is_empty(),
        _ => false,
    };
    match flow.finite && !leaves {
        _ if now >= plan.until => End::Open,
        true => End::Failed(problem),
        false => End::Left,
    }
}

impl Servers<'_> {
    fn on_task(&mut self, task: Task) -> io::Result<()> {
        let ep = &mut self.endpoint;
        match task {
            Task::Open(open) => ep.senders.restart(open.user),
            Task::Packet { user, len } if ep.senders.has(user) => ep.senders.send(user, len),
            Task::Packet { user, len } => {
                if let Some(token) = ep.connections.of_user(user)
                    && let Some(conn) = ep.connections.get(token)
                {
                    conn.backlog += u64::from(len).saturating_sub(bentpipe_scenario::DATAGRAM_HEADER).max(1);
                    self.on_connection(token)?;
                }
            }
            // The client closes the connection.
            Task::Leave(_) | Task::Segment { .. } => {}
        }
        Ok(())
    }

    fn on_connection(&mut self, token: Token) -> io::Result<()> {
        match self.advance(token) {
            Ok(()) => return Ok(()),
            Err(Failure::Record(e)) => return Err(e),
            Err(Failure::Connection) => {}
        }
        let ep = &mut self.endpoint;
        if let Some(conn) = ep.connections.get(token)
            && let Some(flow) = conn.flow.take()
        {
            let end = ended_early(ep.plan, conn.workload, &flow, ep.now, "reset by the client");
            ep.flows.close(&flow, end, ep.now)?;
        }
        ep.connections.remove(token);
        Ok(())
    }

    /// Accepts waiting connections.
    fn accept(&mut self, index: u32) -> io::Result<()> {
        let ep = &mut self.endpoint;
        let Some((listener, workload)) = self.listeners.get(index as usize) else { return Ok(()) };
        for _ in 0..BATCH {
            // No connection waits, it was aborted, or descriptors ran out: in each case, try again later.
            let Ok((stream, _)) = listener.accept() else { return Ok(()) };
            stream.set_nonblocking(true)?;
            let _ = stream.set_nodelay(true);
            let _ = sys::limit_unsent(&stream, UNSENT);
            if let Some(rate) = pacing_rate(ep.plan, ep.plan.workload(*workload)) {
                sys::pace(&stream, rate)?;
            }
            ep.connections.insert(|token| {
                ep.reactor.add(&stream, Source::Connection(token), Interest::READ)?;
                Ok(Conn {
                    stream,
                    workload: *workload,
                    stage: Stage::Waiting,
                    at: 0,
                    blocks: content::BlockWriter::default(),
                    output: Vec::new(),
                    is_last: false,
                    header: Vec::new(),
                    backlog: 0,
                    user: None,
                    flow: None,
                    uploaded: content::BlockReader::default(),
                    is_half_closed: false,
                    interest: Interest::READ,
                })
            })?;
            self.totals.accepted += 1;
            self.totals.max_open = self.totals.max_open.max(ep.connections.len());
        }
        Ok(())
    }

    fn advance(&mut self, token: Token) -> Result<(), Failure> {
        self.read(token)?;
        self.write(token)?;
        let ep = &mut self.endpoint;
        let Some(conn) = ep.connections.get(token) else { return Ok(()) };
        let sends = match conn.stage {
            Stage::Sending(_) => true,
            Stage::Packets => conn.backlog > 0,
            _ => false,
        };
        let interest = Interest { read: !conn.is_half_closed, write: !conn.output.is_empty() || sends };
        if interest != conn.interest {
            conn.interest = interest;
            ep.reactor.change(&conn.stream, Source::Connection(token), interest)?;
        }
        Ok(())
    }

    fn read(&mut self, token: Token) -> Result<(), Failure> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let done = self.read_into(token, &mut buffer);
        self.buffer = buffer;
        done
    }

    fn read_into(&mut self, token: Token, buffer: &mut [u8]) -> Result<(), Failure> {
        let conn = self.endpoint.connections.get(token).filter(|conn| !conn.is_half_closed);
        let Some(conn) = conn else { return Ok(()) };
        match endpoint::read(&mut conn.stream, buffer)? {
            None => Ok(()),
            Some(0) => self.end_of_stream(token),
            Some(len) => {
                self.totals.received += len as u64;
                self.receive(token, &buffer[..len])
            }
        }
    }

    fn receive(&mut self, token: Token, mut bytes: &[u8]) -> Result<(), Failure> {
        while !bytes.is_empty() {
            let ep = &mut self.endpoint;
            let Some(conn) = ep.connections.get(token) else { return Ok(()) };
            match conn.stage {
                Stage::Receiving(left) => {
                    let len = left.map_or(bytes.len(), |left| left.min(bytes.len() as u64) as usize);
                    let (own, rest) = bytes.split_at(len);
                    if let Some(flow) = &mut conn.flow {
                        let traffic = ep.plan.traffic(ep.plan.workload(conn.workload));
                        let is_intact = if matches!(traffic.kind, TrafficKind::Packets(_)) {
                            content::is_intact(conn.at, own)
                        } else {
                            let (flows, clock, now) = (&mut ep.flows, ep.clock, ep.now);
                            conn.uploaded.read(conn.at, own, left == Some(len as u64), |sent| {
                                flows.deliver_unit(flow, clock.time(sent).min(now), now);
                            })
                        };
                        flow.intact = Some(flow.intact.unwrap_or(true) && is_intact);
                        ep.flows.deliver(flow, len as u64, ep.now);
                    }
                    conn.at += len as u64;
                    bytes = rest;
                    if let Some(left) = left {
                        conn.stage = Stage::Receiving(Some(left - len as u64));
                        if left == len as u64 {
                            self.upload_done(token, End::Completed)?;
                        }
                    }
                }
                Stage::Waiting => {
                    conn.header.extend_from_slice(bytes);
                    return self.request(token);
                }
                // The next request waits for the end of this response.
                Stage::Sending(_) => {
                    conn.header.extend_from_slice(bytes);
                    let is_too_long = conn.header.len() > MAX_PIPELINED;
                    return if is_too_long { Err(Failure::Connection) } else { Ok(()) };
                }
                Stage::Packets | Stage::Done => return Ok(()),
            }
        }
        Ok(())
    }

    /// Handles the next request, if it is complete.
    fn request(&mut self, token: Token) -> Result<(), Failure> {
        let ep = &mut self.endpoint;
        let Some(conn) = ep.connections.get(token) else { return Ok(()) };
        let Some(header) = http::parse(&conn.header).map_err(|_| Failure::Connection)? else { return Ok(()) };
        let rest = conn.header.split_off(header.size);
        conn.header.clear();
        (conn.at, conn.is_last) = (0, header.close);
        let [method, path, _] = &header.first;
        let number = path.rsplit('/').next().and_then(|number| number.parse().ok()).unwrap_or(0);
        let traffic = ep.plan.traffic(ep.plan.workload(conn.workload));
        match method.as_str() {
            "POST" => {
                let opened = header.opened.map_or(ep.now, |at| ep.clock.time(at).min(ep.now));
                let mut flow = ep.flows.open(traffic, number, header.length.is_some(), opened);
                flow.connected = Some(ep.now);
                flow.ends = conn.stream.peer_addr().ok().zip(conn.stream.local_addr().ok());
                conn.uploaded = content::BlockReader::default();
                conn.flow = Some(flow);
                conn.stage = Stage::Receiving(header.length);
                self.receive(token, &rest)
            }
            "GET" => {
                conn.output = http::response(header.range, conn.is_last);
                conn.header = rest;
                conn.stage = Stage::Sending(header.range);
                if matches!(traffic.kind, TrafficKind::Packets(_))
                    && let Some(user) = ep.users.find(conn.workload, number)
                {
                    conn.user = Some(user);
                    conn.stage = Stage::Packets;
                    ep.connections.assign(user, token);
                }
                Ok(())
            }
            _ => Err(Failure::Connection),
        }
    }

    /// Records an upload and responds to it.
    fn upload_done(&mut self, token: Token, end: End<'_>) -> Result<(), Failure> {
        let ep = &mut self.endpoint;
        let Some(conn) = ep.connections.get(token) else { return Ok(()) };
        conn.output = http::response(Some(0), true);
        conn.is_last = true;
        conn.stage = Stage::Sending(Some(0));
        if let Some(flow) = conn.flow.take() {
            ep.flows.close(&flow, end, ep.now).map_err(Failure::Record)?;
        }
        Ok(())
    }

    /// Handles the end of the client's half of the connection.
    fn end_of_stream(&mut self, token: Token) -> Result<(), Failure> {
        let connections = &mut self.endpoint.connections;
        let Some(conn) = connections.get(token) else { return Ok(()) };
        conn.is_half_closed = true;
        match conn.stage {
            Stage::Waiting | Stage::Done | Stage::Packets => {
                connections.remove(token);
                Ok(())
            }
            Stage::Receiving(_) => {
                let plan = self.endpoint.plan;
                let end = conn.flow.as_ref().map_or(End::Left, |flow| {
                    ended_early(plan, conn.workload, flow, self.endpoint.now, "cut short by the client")
                });
                self.upload_done(token, end)
            }
            Stage::Sending(_) => {
                conn.is_last = true;
                Ok(())
            }
        }
    }

    fn write(&mut self, token: Token) -> Result<(), Failure> {
        // Pipelined requests get their responses one after the other.
        loop {
            let connections = &mut self.endpoint.connections;
            let Some(conn) = connections.get(token) else { return Ok(()) };
            let mut sent = 0;
            let is_complete = conn.write(&mut sent, self.endpoint.clock.monotonic(self.endpoint.now));
            self.totals.sent += sent;
            if !is_complete? {
                return Ok(());
            }
            if conn.is_last {
                let _ = conn.stream.shutdown(Shutdown::Write);
                conn.stage = Stage::Done;
                if conn.is_half_closed {
                    connections.remove(token);
                } else {
                    connections.close_later(token, self.endpoint.now);
                }
                return Ok(());
            }
            conn.stage = Stage::Waiting;
            if conn.header.is_empty() {
                return Ok(());
            }
            self.request(token)?;
        }
    }
}

impl Conn {
    /// Writes as much as the turn and the stream allow, and adds it to `sent` [bytes]. `now` is CLOCK_MONOTONIC [ns]. Returns true
    /// if a response is complete.
    fn write(&mut self, sent: &mut u64, now: u64) -> io::Result<bool> {
        let before = self.output.len();
        let flushed = endpoint::flush(&mut self.stream, &mut self.output);
        *sent += (before - self.output.len()) as u64;
        flushed?;
        let limit = match self.stage {
            Stage::Sending(left) => left.unwrap_or(u64::MAX),
            Stage::Packets => self.backlog,
            _ => return Ok(false),
        };
        if !self.output.is_empty() {
            return Ok(false);
        }
        let before = self.at;
        let limit = limit.min(TURN as u64);
        let written = match self.stage {
            Stage::Packets => content::send(&mut self.stream, &mut self.at, limit),
            _ => self.blocks.send(&mut self.stream, &mut self.at, limit, now),
        };
        let len = self.at - before;
        *sent += len;
        match &mut self.stage {
            Stage::Sending(Some(left)) => *left -= len,
            Stage::Packets => self.backlog -= len,
            _ => {}
        }
        written?;
        Ok(self.stage == Stage::Sending(Some(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flows::Flows;

    /// Uploads of 1 MB: those of a bulk source end as the scenario schedules if it has a lifetime or absences.
    #[test]
    fn an_upload_that_its_source_leaves_has_not_failed() {
        for (more, left) in
            [("", false), ("lifetime = \"2 s\"\n", true), ("away = [[\"2 s\", \"3 s\"]]\n", true)]
        {
            let text = format!(
                "title = \"t\"\n[run]\nduration = \"60 s\"\n[host.a]\n[host.b]\n[link.l]\nbetween = [\"a\", \"b\"]\n\
                 rate = \"1 Mbps\"\nqueue = {{ aqm = {{ algorithm = \"red\" }} }}\n\
                 [traffic.up]\nkind = \"bulk\"\nbytes = \"1 MB\"\nfrom = \"a\"\nto = \"b\"\n{more}"
            );
            let side = |side: &str, address: &str| json!({ "side": side, "addresses": [address] });
            let plan = json!({
                "scenario": { "file": "t.toml", "text": text },
                "hosts": { "a": side("clients", "10.3.0.1"), "b": side("servers", "10.1.0.1") },
                "traffic": { "up": {} },
            });
            let plan = Plan::parse(&plan.to_string(), "plan").unwrap();
            let (id, workload) = plan.workloads().next().unwrap();
            let mut flows = Flows::new(None, plan.measured()).unwrap();
            let flow = flows.open(plan.traffic(workload), 0, true, Instant::ZERO);
            let end = |now| ended_early(&plan, id, &flow, now, "reset");
            assert_eq!(end(Instant::ZERO), if left { End::Left } else { End::Failed("reset") }, "{more}");
            assert_eq!(end(plan.until), End::Open);
        }
    }
}
