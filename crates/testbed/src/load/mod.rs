//! The clients: open the scenario's connections from each host's own address, and record every flow.

mod quic;

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};

use bentpipe_gatewayd::sys::reset_when_closed;
use bentpipe_scenario::TrafficKind;
use bentpipe_units::{Duration, Instant};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket, sockopt,
};
use serde_json::{Value, json};

use crate::datagrams;
use crate::endpoint::{self, Connection, Endpoint, Event, TURN, UNSENT, write_line};
use crate::flows::{End, Flow, ProbeSteps};
use crate::plan::{By, Plan, Side, Workload, WorkloadId};
use crate::quic::Ends;
use crate::reactor::{Interest, Source};
use crate::sys;
use crate::table::Token;
use crate::users::{Open, Task, UserId, Users};
use crate::{content, http};

/// Interval of the progress lines.
const PROGRESS: Duration = Duration::from_secs(1);

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Waiting for the handshake.
    Connecting,
    /// Sending the request, or the header of an upload.
    Requesting,
    /// Sending this much more [bytes]; `None`: endless.
    Sending(Option<u64>),
    /// Waiting for the header of a response.
    Waiting,
    /// Receiving this much more [bytes]; `None`: endless.
    Receiving(Option<u64>),
    /// Waiting until the player's buffer has room for another segment.
    Idle,
    /// Done; the server is to close the connection.
    Done,
}

struct Conn {
    stream: TcpStream,
    user: UserId,
    workload: WorkloadId,
    server: IpAddr,
    flow: Flow,
    stage: Stage,
    /// Objects not complete yet.
    objects: u32,
    /// Size of the current object [bytes]; `None`: endless.
    bytes: Option<u64>,
    /// Sizes of the objects requested after the current one [bytes].
    requested: VecDeque<u64>,
    /// Position in the current object [bytes].
    at: u64,
    blocks: content::BlockReader,
    /// Blocks of an upload.
    uploaded: content::BlockWriter,
    /// Steps of the probe; `None` for other connections.
    probe: Option<ProbeSteps>,
    /// Header to be sent.
    output: Vec<u8>,
    /// Received part of a header.
    header: Vec<u8>,
    interest: Interest,
    /// Payload of packets that are due and not written yet [bytes].
    backlog: u64,
}

impl Connection for Conn {
    fn user(&self) -> Option<UserId> {
        Some(self.user)
    }
}

/// Failure of a connection, or of the run.
enum Failure {
    Connection(io::Error),
    Response(String),
    Record(io::Error),
}

impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Self {
        Self::Connection(e)
    }
}

struct Clients<'a> {
    endpoint: Endpoint<'a, Conn>,
    /// Connections over QUIC, and the latest of each user.
    quic: Ends<quic::App>,
    of_user: Vec<Option<Token>>,
    buffer: Vec<u8>,
}

/// Runs the clients until the plan's end, or until asked to stop. Writes progress and a summary to `out`, in lines of JSON.
///
/// # Errors
/// If a datagram socket cannot be opened, or a file cannot be written.
pub fn run(plan: &Plan, out: &mut dyn Write) -> Result<(), Box<dyn std::error::Error>> {
    let users = Users::new(plan, |workload| workload.upload || !datagrams::is_datagrams(plan, workload));
    let endpoint = Endpoint::new(plan, Side::Clients, users, plan.out.as_deref())?;
    endpoint.report_ready(out, "users", endpoint.users.len())?;
    let (quic, of_user) = (Ends::new(plan, Side::Clients)?, vec![None; endpoint.users.len()]);
    let mut clients = Clients { endpoint, quic, of_user, buffer: vec![0; TURN] };
    let mut next_progress = Instant::ZERO + PROGRESS;
    let mut active = Vec::new();
    loop {
        let wake = clients.quic.due().into_iter().chain([next_progress]).min();
        match clients.endpoint.next(wake)? {
            Event::Task(task) => clients.on_task(task)?,
            Event::Connection(token) => clients.on_connection(token)?,
            Event::Listener(_) => {}
            Event::Quic(socket) => {
                clients.quic.receive(socket, clients.endpoint.now, &mut active);
                clients.on_quic(&mut active)?;
            }
            Event::Wake if clients.endpoint.now < next_progress => {
                clients.quic.advance(clients.endpoint.now, &mut active);
                clients.on_quic(&mut active)?;
            }
            Event::Wake => {
                write_line(out, &clients.progress())?;
                next_progress = clients.endpoint.now + PROGRESS;
            }
            Event::End => break,
        }
    }
    let open: Vec<_> =
        clients.endpoint.connections.drain().filter(|conn| conn.stage != Stage::Done).collect();
    for conn in open {
        clients.record(conn.user, conn.workload, conn.flow, End::Open)?;
    }
    clients.close_quic()?;
    let mut summary = clients.endpoint.finish()?;
    summary["quic"] = clients.quic.summary();
    Ok(write_line(out, &json!({ "summary": summary }))?)
}

impl Clients<'_> {
    fn on_task(&mut self, task: Task) -> io::Result<()> {
        match task {
            Task::Open(open) if self.is_quic(open.user) => return self.open_quic(open),
            Task::Leave(user) if self.is_quic(user) => return self.leave_quic(user),
            Task::Segment { user, at } if self.is_quic(user) => return self.segment_quic(user, at),
            _ => {}
        }
        let ep = &mut self.endpoint;
        match task {
            Task::Open(open) if ep.senders.has(open.user) => ep.senders.restart(open.user),
            Task::Open(open) => self.open(open)?,
            Task::Leave(user) => {
                if let Some(token) = ep.connections.of_user(user)
                    && let Some(conn) = ep.connections.get(token)
                {
                    // Discards the unsent data.
                    reset_when_closed(&conn.stream, true);
                    self.close(token, End::Left)?;
                }
            }
            Task::Segment { user, at } => {
                if let Some(token) = ep.connections.of_user(user)
                    && ep.connections.get(token).is_some_and(|conn| conn.stage == Stage::Idle)
                {
                    self.request_segment(token, at);
                    self.on_connection(token)?;
                }
            }
            Task::Packet { user, len } if ep.senders.has(user) => ep.senders.send(user, len),
            Task::Packet { user, len } => {
                if let Some(token) = ep.connections.of_user(user)
                    && let Some(conn) = ep.connections.get(token)
                {
                    conn.backlog += u64::from(len).saturating_sub(bentpipe_scenario::DATAGRAM_HEADER).max(1);
                    if matches!(conn.stage, Stage::Sending(_)) {
                        self.on_connection(token)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn on_connection(&mut self, token: Token) -> io::Result<()> {
        match self.advance(token) {
            Ok(()) => Ok(()),
            Err(Failure::Record(e)) => Err(e),
            Err(Failure::Connection(e)) => self.fail(token, &describe(&e)),
            Err(Failure::Response(problem)) => self.fail(token, &problem),
        }
    }

    /// A line of progress.
    fn progress(&self) -> Value {
        let ep = &self.endpoint;
        let totals = ep.flows.totals();
        // The totals include connections that are done.
        let active = ep.connections.iter().filter(|conn| conn.stage != Stage::Done);
        let over_quic = self.quic.iter().filter_map(|end| end.app.as_ref());
        let active_quic = over_quic.filter(|viewer| !viewer.is_done).map(|viewer| &viewer.flow);
        let flows = active.map(|conn| &conn.flow).chain(active_quic);
        let (receiving, bytes) = flows.fold((0, totals.delivered), |(receiving, bytes), flow| {
            (receiving + u32::from(flow.delivered > 0), bytes + flow.delivered)
        });
        json!({
            "t": ep.now.as_secs_f64(),
            "open": ep.connections.len() + self.quic.iter().count(),
            "receiving": receiving,
            "opened": totals.opened,
            "completed": totals.completed,
            "failed": totals.failed,
            "bytes": bytes,
        })
    }

    /// Opens a connection.
    fn open(&mut self, open: Open) -> io::Result<()> {
        let ep = &mut self.endpoint;
        let (id, number) = ep.users.workload(open.user);
        let workload = ep.plan.workload(id);
        let traffic = ep.plan.traffic(workload);
        let from = ep.plan.address(traffic.from, open.hosts.0, workload.ipv6);
        let to = ep.plan.address(traffic.to, open.hosts.1, workload.ipv6);
        let (Some(from), Some(to)) = (from, to) else { return Ok(()) };
        let (server, client) = if workload.upload { (to, from) } else { (from, to) };
        let remote = SocketAddr::new(server, workload.port);
        let mut flow = ep.flows.open(traffic, number, open.bytes.is_some(), ep.now);
        if let Some(dash) = ep.users.dash(open.user) {
            ep.flows.open_viewing(&mut flow, dash);
        }
        let congestion = workload.congestion.as_deref().filter(|_| workload.upload);
        let dscp = traffic.dscp;
        let opened = ep.connections.insert(|token| {
            let stream = connect_from(client, remote, congestion, dscp)?;
            if workload.upload {
                let _ = sys::limit_unsent(&stream, UNSENT);
            }
            ep.reactor.add(&stream, Source::Connection(token), Interest::WRITE)?;
            flow.ends = stream.local_addr().ok().map(|local| (local, remote));
            Ok(Conn {
                stream,
                user: open.user,
                workload: id,
                server,
                flow: flow.clone(),
                stage: Stage::Connecting,
                objects: open.objects,
                bytes: open.bytes,
                requested: VecDeque::new(),
                at: 0,
                blocks: content::BlockReader::default(),
                uploaded: content::BlockWriter::default(),
                probe: ep.users.is_probe(open.user).then(|| ProbeSteps::new(ep.now)),
                output: Vec::new(),
                header: Vec::new(),
                interest: Interest::WRITE,
                backlog: 0,
            })
        });
        if let Err(e) = opened {
            self.record(open.user, id, flow, End::Failed(&describe(&e)))?;
            let probe = self.endpoint.users.is_probe(open.user).then(ProbeSteps::default);
            self.connection_done(open.user, true, probe)?;
        }
        Ok(())
    }

    fn fail(&mut self, token: Token, problem: &str) -> io::Result<()> {
        let Some(conn) = self.endpoint.connections.get(token) else { return Ok(()) };
        let (user, is_done, probe) = (conn.user, conn.stage == Stage::Done, conn.probe);
        self.close(token, End::Failed(problem))?;
        if !is_done {
            self.connection_done(user, true, probe)?;
        }
        Ok(())
    }

    /// Reports the end of a connection to its user, and records the page or the probe that it ends.
    fn connection_done(
        &mut self,
        user: UserId,
        has_failed: bool,
        probe: Option<ProbeSteps>,
    ) -> io::Result<()> {
        let ep = &mut self.endpoint;
        let Some(page) = ep.users.done(user, has_failed, ep.now) else { return Ok(()) };
        let (workload, number) = ep.users.workload(user);
        let traffic = ep.plan.traffic(ep.plan.workload(workload));
        match probe {
            Some(steps) => ep.flows.close_probe(&traffic.name, &steps, ep.now),
            None => ep.flows.close_page(&traffic.name, number, &page, ep.now),
        }
    }

    /// Closes a connection and records its flow, unless that is recorded already.
    fn close(&mut self, token: Token, end: End<'_>) -> io::Result<()> {
        let Some(conn) = self.endpoint.connections.get(token) else { return Ok(()) };
        let is_done = conn.stage == Stage::Done;
        let (user, workload, flow) = (conn.user, conn.workload, conn.flow.clone());
        self.endpoint.connections.remove(token);
        if is_done { Ok(()) } else { self.record(user, workload, flow, end) }
    }

    /// Writes a flow's row, with the viewing that it carried. The server writes those of uploads, since it knows how much arrived.
    fn record(&mut self, user: UserId, workload: WorkloadId, mut flow: Flow, end: End<'_>) -> io::Result<()> {
        let ep = &mut self.endpoint;
        ep.users.end_viewing(user, ep.now, |period| ep.flows.view(&mut flow, period));
        if ep.plan.workload(workload).upload && flow.connected.is_some() {
            ep.flows.count(&flow, end);
            return Ok(());
        }
        ep.flows.close(&flow, end, ep.now)
    }

    fn advance(&mut self, token: Token) -> Result<(), Failure> {
        let Some(conn) = self.endpoint.connections.get(token) else { return Ok(()) };
        if conn.stage == Stage::Connecting {
            if let Some(e) = conn.stream.take_error()? {
                return Err(e.into());
            }
            if conn.stream.peer_addr().is_err() {
                return Ok(());
            }
            conn.flow.connected = Some(self.endpoint.now);
            conn.probe.iter_mut().for_each(|probe| probe.end_step(self.endpoint.now));
            let _ = conn.stream.set_nodelay(true);
            let (user, now) = (conn.user, self.endpoint.now);
            if self.endpoint.users.dash(user).is_some() {
                self.request_segment(token, now);
            } else {
                self.request(token);
            }
        }
        self.write(token)?;
        self.read(token)?;
        self.update_interest(token)
    }

    /// Lets the player choose the next segment at `at`, and prepares its request.
    fn request_segment(&mut self, token: Token, at: Instant) {
        let ep = &mut self.endpoint;
        if let Some(conn) = ep.connections.get(token)
            && let Some(bytes) = ep.users.request_segment(conn.user, at)
        {
            conn.bytes = Some(bytes);
            self.request(token);
        }
    }

    /// Prepares the next request of a connection.
    fn request(&mut self, token: Token) {
        let ep = &mut self.endpoint;
        let Some(conn) = ep.connections.get(token) else { return };
        let workload = ep.plan.workload(conn.workload);
        let own_path;
        let path = if workload.by == By::Serve {
            own_path = format!("/{}", ep.users.workload(conn.user).1);
            &own_path
        } else {
            &workload.path
        };
        conn.at = 0;
        conn.output = if workload.upload {
            http::post(conn.server, path, conn.bytes, ep.clock.monotonic(conn.flow.opened))
        } else {
            let size = match &ep.plan.traffic(workload).kind {
                TrafficKind::Pages(pages) => pages.request_size,
                TrafficKind::Dash(dash) => dash.request_size,
                _ => 0,
            };
            let is_last = conn.objects <= 1
                && !ep.users.is_closed_by_client(conn.user)
                && ep.users.dash(conn.user).is_none();
            let mut requests =
                http::get(conn.server, path, conn.bytes, size, is_last && conn.requested.is_empty());
            for (i, bytes) in conn.requested.iter().enumerate() {
                let is_last = is_last && i + 1 == conn.requested.len();
                requests.extend(http::get(conn.server, path, Some(*bytes), size, is_last));
            }
            requests
        };
        // Responses to pipelined requests can arrive before the last request is sent.
        conn.stage = if conn.requested.is_empty() { Stage::Requesting } else { Stage::Waiting };
    }

    fn write(&mut self, token: Token) -> Result<(), Failure> {
        let ep = &mut self.endpoint;
        let Some(conn) = ep.connections.get(token) else { return Ok(()) };
        endpoint::flush(&mut conn.stream, &mut conn.output)?;
        if !conn.output.is_empty() {
            return Ok(());
        }
        let workload = ep.plan.workload(conn.workload);
        if conn.stage == Stage::Requesting {
            conn.stage = if workload.upload { Stage::Sending(conn.bytes) } else { Stage::Waiting };
        }
        let Stage::Sending(left) = conn.stage else { return Ok(()) };
        let limit = if is_packets(ep.plan, workload) { conn.backlog } else { left.unwrap_or(u64::MAX) };
        let before = conn.at;
        let limit = limit.min(TURN as u64);
        if is_packets(ep.plan, workload) {
            content::send(&mut conn.stream, &mut conn.at, limit)?;
        } else {
            let now = ep.clock.monotonic(ep.now);
            conn.uploaded.send(&mut conn.stream, &mut conn.at, limit, now)?;
        }
        let sent = conn.at - before;
        conn.backlog = conn.backlog.saturating_sub(sent);
        conn.stage = match left.map(|left| left - sent) {
            Some(0) => Stage::Waiting,
            left => Stage::Sending(left),
        };
        Ok(())
    }

    fn read(&mut self, token: Token) -> Result<(), Failure> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let done = self.read_into(token, &mut buffer);
        self.buffer = buffer;
        done
    }

    fn read_into(&mut self, token: Token, buffer: &mut [u8]) -> Result<(), Failure> {
        loop {
            let Some(conn) = self.endpoint.connections.get(token) else { return Ok(()) };
            match endpoint::read(&mut conn.stream, buffer)? {
                None => return Ok(()),
                Some(0) => return self.end_of_stream(token),
                Some(len) => {
                    self.receive(token, &buffer[..len])?;
                    if len < buffer.len() {
                        return Ok(());
                    }
                }
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
                    let workload = ep.plan.workload(conn.workload);
                    let is_intact = if workload.by == By::Serve && !is_packets(ep.plan, workload) {
                        let (flow, flows, clock, now) = (&mut conn.flow, &mut ep.flows, ep.clock, ep.now);
                        let is_end = left == Some(len as u64);
                        let probe = &mut conn.probe;
                        conn.blocks.read(conn.at, own, is_end, |sent| {
                            let sent = clock.time(sent).min(now);
                            // Probes are no load: their data are no units of their class.
                            match probe {
                                Some(probe) => probe.answered(sent),
                                None => flows.deliver_unit(flow, sent, now),
                            }
                        })
                    } else {
                        !workload.verify || content::is_intact(conn.at, own)
                    };
                    if workload.verify {
                        conn.flow.intact = Some(conn.flow.intact.unwrap_or(true) && is_intact);
                    }
                    conn.at += len as u64;
                    ep.flows.deliver(&mut conn.flow, len as u64, ep.now);
                    ep.users.deliver(conn.user, ep.now);
                    bytes = rest;
                    if let Some(left) = left {
                        conn.stage = Stage::Receiving(Some(left - len as u64));
                        if left == len as u64 {
                            self.object_done(token)?;
                        }
                    }
                }
                Stage::Done => return Ok(()),
                Stage::Waiting => {
                    let before = conn.header.len();
                    conn.header.extend_from_slice(&bytes[..bytes.len().min(http::MAX_HEADER)]);
                    let header = http::parse(&conn.header).map_err(|e| Failure::Response(e.to_owned()))?;
                    let Some(header) = header else { return Ok(()) };
                    conn.header.clear();
                    bytes = &bytes[header.size - before..];
                    self.response(token, &header)?;
                }
                // The server rejects the upload.
                Stage::Idle | Stage::Connecting | Stage::Requesting | Stage::Sending(_) => {
                    return Err(Failure::Response("response before the end of the request".to_owned()));
                }
            }
        }
        Ok(())
    }

    /// Handles the header of a response.
    fn response(&mut self, token: Token, header: &http::Header) -> Result<(), Failure> {
        let ep = &mut self.endpoint;
        let Some(conn) = ep.connections.get(token) else { return Ok(()) };
        let status = &header.first[1];
        if !status.starts_with('2') {
            return Err(Failure::Response(format!("status {status}")));
        }
        if ep.plan.workload(conn.workload).upload {
            return self.object_done(token);
        }
        if conn.bytes.is_some() && conn.bytes != header.length {
            let found =
                header.length.map_or("endless object".to_owned(), |len| format!("object of {len} bytes"));
            return Err(Failure::Response(found));
        }
        conn.stage = Stage::Receiving(conn.bytes);
        if conn.bytes == Some(0) {
            self.object_done(token)?;
        }
        Ok(())
    }

    /// Requests the next object of a connection, or completes its flow.
    fn object_done(&mut self, token: Token) -> Result<(), Failure> {
        let ep = &mut self.endpoint;
        let Some(conn) = ep.connections.get(token) else { return Ok(()) };
        if let Some(bytes) = conn.requested.pop_front() {
            (conn.at, conn.bytes, conn.stage) = (0, Some(bytes), Stage::Waiting);
            return Ok(());
        }
        if ep.users.dash(conn.user).is_some() {
            let (flow, flows) = (&mut conn.flow, &ep.flows);
            let bytes = conn.bytes.unwrap_or(0);
            let next = ep.users.receive_segment(conn.user, bytes, ep.now, |period| flows.view(flow, period));
            let Some(next) = next else {
                conn.stage = Stage::Idle;
                return Ok(());
            };
            conn.bytes = Some(next);
            self.request(token);
            return self.write(token);
        }
        conn.probe.iter_mut().for_each(|probe| probe.end_step(ep.now));
        conn.objects = conn.objects.saturating_sub(1);
        conn.requested = ep.users.next_objects(conn.user, conn.objects, ep.now);
        if let Some(bytes) = conn.requested.pop_front() {
            conn.bytes = Some(bytes);
            self.request(token);
            return self.write(token);
        }
        conn.stage = Stage::Done;
        let (workload, user, flow, probe) = (conn.workload, conn.user, conn.flow.clone(), conn.probe);
        if ep.users.is_closed_by_client(user) {
            ep.connections.remove(token);
        } else {
            ep.connections.close_later(token, ep.now);
        }
        self.record(user, workload, flow, End::Completed).map_err(Failure::Record)?;
        self.connection_done(user, false, probe).map_err(Failure::Record)
    }

    /// Handles the end of the server's half of the connection.
    fn end_of_stream(&mut self, token: Token) -> Result<(), Failure> {
        let connections = &mut self.endpoint.connections;
        if connections.get(token).is_some_and(|conn| conn.stage == Stage::Done) {
            connections.remove(token);
            return Ok(());
        }
        Err(Failure::Response("closed by the server".to_owned()))
    }

    fn update_interest(&mut self, token: Token) -> Result<(), Failure> {
        let ep = &mut self.endpoint;
        let Some(conn) = ep.connections.get(token) else { return Ok(()) };
        let has_data = !is_packets(ep.plan, ep.plan.workload(conn.workload)) || conn.backlog > 0;
        let sends = matches!(conn.stage, Stage::Sending(_)) && has_data;
        let is_connecting = conn.stage == Stage::Connecting;
        let write = is_connecting || !conn.output.is_empty() || sends;
        let interest = Interest { read: !is_connecting, write };
        if interest != conn.interest {
            conn.interest = interest;
            ep.reactor.change(&conn.stream, Source::Connection(token), interest)?;
        }
        Ok(())
    }
}

fn is_packets(plan: &Plan, workload: &Workload) -> bool {
    matches!(plan.traffic(workload).kind, TrafficKind::Packets(_))
}

/// Starts a connection from a client's address.
fn connect_from(
    client: IpAddr,
    server: SocketAddr,
    congestion: Option<&str>,
    dscp: u8,
) -> io::Result<TcpStream> {
    let family = if server.is_ipv6() { AddressFamily::Inet6 } else { AddressFamily::Inet };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket: OwnedFd = socket(family, SockType::Stream, flags, None)?;
    // The kernel chooses the port in connect(2), so that connections to different servers can share it.
    setsockopt(&socket, sockopt::IpBindAddressNoPort, &true)?;
    if let Some(congestion) = congestion {
        setsockopt(&socket, sockopt::TcpCongestion, &OsString::from(congestion))?;
    }
    sys::set_dscp(&socket, server.is_ipv6(), dscp)?;
    bind(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(client, 0)))?;
    match connect(socket.as_raw_fd(), &SockaddrStorage::from(server)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(socket.into()),
        Err(e) => Err(e.into()),
    }
}

/// Short description of an error, the same for the same cause.
fn describe(e: &io::Error) -> String {
    match e.raw_os_error() {
        Some(code) => Errno::from_raw(code).desc().to_lowercase(),
        None => e.to_string(),
    }
}
