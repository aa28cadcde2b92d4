//! The clients: opens the scenario's connections with real sockets, each from its host's own address, and says what
//! became of them. One thread, one loop.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};

use bentpipe_gatewayd::sys::{raise_descriptors, reset_when_closed};
use bentpipe_scenario::TrafficKind;
use bentpipe_units::{Duration, Instant};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket, sockopt,
};
use serde_json::json;

use crate::datagrams::{self, Inlets, Outlets};
use crate::flows::{End, Flow, Flows};
use crate::plan::{By, Load, Plan};
use crate::reactor::{Interest, Reactor};
use crate::sys::{self, Clock};
use crate::table::Table;
use crate::users::{Open, Task, Users};
use crate::{content, http};

/// Read from a connection in one turn at most [bytes].
const TURN: usize = 256 << 10;
/// Written at a time [bytes].
const PIECE: usize = 16 << 10;
/// A connection whose work is done is closed after so long, if the server does not.
const PARTING: Duration = Duration::from_secs(10);
/// Tokens of sockets for datagrams.
const DATAGRAMS: u64 = 1 << 63;
/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(1);

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The handshake is under way.
    Connecting,
    /// Its request, or what it sends, is on the way out.
    Asking,
    /// It sends so much more [bytes]; none: without end.
    Sending(Option<u64>),
    /// It waits for an answer's header.
    Waiting,
    /// So much is to come [bytes]; none: without end.
    Receiving(Option<u64>),
    /// Its work is done; the server is to close it.
    Parting,
}

struct Conn {
    stream: TcpStream,
    user: u32,
    /// The traffic (an index of the plan's).
    load: usize,
    server: IpAddr,
    flow: Flow,
    stage: Stage,
    /// Objects that are still to come, and the size of the one that is due [bytes].
    objects: u32,
    bytes: Option<u64>,
    /// Its place in the object.
    at: u64,
    /// What is to go out before all else.
    out: Vec<u8>,
    /// What has come of a header.
    header: Vec<u8>,
    interest: Interest,
    /// Packets that wait to be written into it [bytes].
    owed: u64,
}

struct Run<'a> {
    plan: &'a Plan,
    reactor: Reactor,
    users: Users,
    flows: Flows,
    outlets: Outlets,
    conns: Table<Conn>,
    /// For each user, the connection that it has open; of those that have one at a time.
    of_user: Vec<Option<u64>>,
    partings: BinaryHeap<Reverse<(Instant, u64)>>,
    buffer: Vec<u8>,
    requests: Vec<(u64, String)>,
}

/// Plays the clients until the plan's end, or until told to stop; lines of JSON about it go to `out`.
///
/// # Errors
/// Where a socket for datagrams cannot be made, or something cannot be written.
pub fn run(plan: &Plan, out: &mut dyn Write) -> Result<(), Box<dyn std::error::Error>> {
    if let Some(path) = &plan.netns.clients {
        sys::enter(path).map_err(|e| format!("namespace {}: {e}", path.display()))?;
    }
    let files = raise_descriptors();
    let origin = plan.origin.unwrap_or_else(sys::monotonic);
    let clock = Clock::new(origin);
    let users = Users::new(plan, |load| load.upload || !datagrams::is_datagrams(plan, load));
    let outlets = Outlets::new(plan, &users)?;
    let mut inlets = Inlets::new(plan, false, origin)?;
    let reactor = Reactor::new()?;
    for (place, socket) in (0..).zip(inlets.sockets()) {
        reactor.add(socket, DATAGRAMS | place, Interest::READ)?;
    }
    let flows = Flows::new(plan.out.as_deref(), plan.measured())
        .map_err(|e| format!("out: {}: {e}", plan.out.as_deref().unwrap_or_else(|| "".as_ref()).display()))?;
    let of_user = vec![None; users.len()];
    let requests = plan.traffic.iter().map(|load| request(plan, load)).collect();
    let mut run = Run {
        plan,
        reactor,
        users,
        flows,
        outlets,
        conns: Table::default(),
        of_user,
        partings: BinaryHeap::new(),
        buffer: vec![0; TURN],
        requests,
    };
    writeln!(out, "{}", json!({ "ready": true, "users": run.users.len(), "open_files": files }))?;
    out.flush()?;
    let cpu = sys::cpu_time();
    let (mut tasks, mut ready) = (Vec::new(), Vec::new());
    let mut told = Instant::ZERO + PROGRESS;
    // How late something was done that had its time, at most.
    let mut late = Duration::ZERO;
    loop {
        let now = clock.now();
        if now >= plan.until {
            break;
        }
        let parting = run.partings.peek().map(|Reverse((at, _))| *at);
        for due in run.users.due().into_iter().chain(parting).filter(|due| *due <= now) {
            late = late.max(now - due);
        }
        if !clock.is_early() {
            run.users.advance(now, &mut tasks);
        }
        for task in tasks.drain(..) {
            run.carry_out(task, now)?;
        }
        run.part(now);
        if now >= told {
            let (opened, completed, failed, done) = run.flows.sums();
            // Those whose work is done are among the sums.
            let under_way = run.conns.iter().filter(|conn| conn.stage != Stage::Parting);
            let (receiving, bytes) = under_way.fold((0, done), |(receiving, bytes), conn| {
                (receiving + u32::from(conn.flow.delivered > 0), bytes + conn.flow.delivered)
            });
            let line = json!({
                "t": now.as_secs_f64(), "open": run.conns.len(), "receiving": receiving, "opened": opened,
                "completed": completed, "failed": failed, "bytes": bytes,
            });
            writeln!(out, "{line}")?;
            out.flush()?;
            told = now + PROGRESS;
        }
        let parting = run.partings.peek().map(|Reverse((at, _))| *at);
        let wait = datagrams::wait(clock, [Some(plan.until), Some(told), run.users.due(), parting]);
        if !run.reactor.wait(wait, &mut ready)? {
            break;
        }
        let now = clock.now();
        for token in ready.drain(..) {
            if token & DATAGRAMS != 0 {
                inlets.take((token & !DATAGRAMS) as usize, &mut run.flows, now)?;
            } else {
                run.turn(token, now)?;
            }
        }
    }
    let now = clock.now().min(plan.until);
    inlets.finish(&mut run.flows, now)?;
    run.finish(now)?;
    let mut summary = run.flows.finish()?;
    summary["seconds"] = now.as_secs_f64().into();
    summary["late_s"] = late.as_secs_f64().into();
    summary["cpu_s"] = (sys::cpu_time() - cpu).into();
    summary["datagrams"] = json!({ "sent": run.outlets.sent, "refused": run.outlets.refused });
    writeln!(out, "{}", json!({ "summary": summary }))?;
    out.flush()?;
    Ok(())
}

/// How long a request is to be, and its path.
fn request(plan: &Plan, load: &Load) -> (u64, String) {
    match &plan.traffic(load).kind {
        TrafficKind::Pages(pages) => (pages.request_size, load.path.clone()),
        _ => (0, load.path.clone()),
    }
}

impl Run<'_> {
    fn carry_out(&mut self, task: Task, now: Instant) -> io::Result<()> {
        match task {
            Task::Open(open) if self.outlets.has(open.user) => self.outlets.begin(open.user),
            Task::Open(open) => self.open(open, now)?,
            Task::Leave { user } => {
                if let Some(token) = self.of_user[user as usize].take()
                    && let Some(conn) = self.conns.get(token)
                {
                    // Whoever leaves does not wait.
                    reset_when_closed(&conn.stream);
                    self.close(token, End::Left, now)?;
                }
            }
            Task::Packet { user, len } if self.outlets.has(user) => self.outlets.send(user, len),
            Task::Packet { user, len } => {
                if let Some(token) = self.of_user[user as usize]
                    && let Some(conn) = self.conns.get(token)
                {
                    conn.owed += u64::from(len).saturating_sub(bentpipe_scenario::DATAGRAM_HEADER);
                    if matches!(conn.stage, Stage::Sending(_)) {
                        self.turn(token, now)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Opens a connection.
    fn open(&mut self, open: Open, now: Instant) -> io::Result<()> {
        let (load, number) = self.users.who(open.user);
        let (traffic, upload, ipv6) = (load.traffic, load.upload, load.ipv6);
        let scenario = self.plan.scenario.traffic.get(traffic);
        let place = self.plan.traffic.iter().position(|load| load.traffic == traffic);
        let (Some(traffic), Some(load)) = (scenario, place) else { return Ok(()) };
        let from = self.plan.address(traffic.from, open.hosts.0, ipv6);
        let to = self.plan.address(traffic.to, open.hosts.1, ipv6);
        let (Some(from), Some(to)) = (from, to) else { return Ok(()) };
        let (server, client) = if upload { (to, from) } else { (from, to) };
        let mut flow = self.flows.open(&traffic.name, number, open.bytes.is_some(), now);
        let port = self.plan.traffic[load].port;
        let congestion = self.plan.traffic[load].congestion.as_deref().filter(|_| upload);
        let made = self.conns.enter(|token| {
            let stream = start(client, SocketAddr::new(server, port), congestion)?;
            self.reactor.add(&stream, token, Interest::WRITE)?;
            flow.ends = stream.local_addr().ok().map(|own| (own, SocketAddr::new(server, port)));
            Ok::<_, io::Error>(Conn {
                stream,
                user: open.user,
                load,
                server,
                flow: flow.clone(),
                stage: Stage::Connecting,
                objects: open.objects,
                bytes: open.bytes,
                at: 0,
                out: Vec::new(),
                header: Vec::new(),
                interest: Interest::WRITE,
                owed: 0,
            })
        });
        match made {
            Ok(token) => self.of_user[open.user as usize] = Some(token),
            Err(e) => {
                self.flows.close(&flow, End::Failed(&why(&e)), now)?;
                self.users.done(open.user, true, now);
            }
        }
        Ok(())
    }

    /// A connection can go on.
    fn turn(&mut self, token: u64, now: Instant) -> io::Result<()> {
        match self.work(token, now) {
            Ok(()) => Ok(()),
            Err(Trouble::Rows(e)) => Err(e),
            Err(Trouble::Connection(e)) => self.fail(token, &why(&e), now),
            Err(Trouble::Answer(what)) => self.fail(token, &what, now),
        }
    }

    fn fail(&mut self, token: u64, what: &str, now: Instant) -> io::Result<()> {
        let Some(conn) = self.conns.get(token) else { return Ok(()) };
        let user = conn.user;
        if conn.stage == Stage::Parting {
            self.forget(token);
            return Ok(());
        }
        self.close(token, End::Failed(what), now)?;
        self.users.done(user, true, now);
        Ok(())
    }

    /// A connection is over: its row is written, and it is closed.
    fn close(&mut self, token: u64, how: End<'_>, now: Instant) -> io::Result<()> {
        let Some(conn) = self.conns.get(token) else { return Ok(()) };
        let (is_told, load, flow) = (conn.stage == Stage::Parting, conn.load, conn.flow.clone());
        self.forget(token);
        if is_told { Ok(()) } else { self.record(load, &flow, how, now) }
    }

    /// Writes a flow's row, unless it is the server who knows what has come.
    fn record(&mut self, load: usize, flow: &Flow, how: End<'_>, now: Instant) -> io::Result<()> {
        let is_theirs = self.plan.traffic[load].upload && flow.connected.is_some();
        if is_theirs {
            self.flows.count(flow, how)
        } else {
            self.flows.close(flow, how, now)?
        };
        Ok(())
    }

    fn forget(&mut self, token: u64) {
        if let Some(conn) = self.conns.remove(token)
            && let Some(of_user) = self.of_user.get_mut(conn.user as usize)
            && *of_user == Some(token)
        {
            *of_user = None;
        }
    }

    /// Closes connections that have been done for long.
    fn part(&mut self, now: Instant) {
        while let Some(&Reverse((at, token))) = self.partings.peek()
            && at <= now
        {
            self.partings.pop();
            self.forget(token);
        }
    }

    fn work(&mut self, token: u64, now: Instant) -> Result<(), Trouble> {
        let Some(conn) = self.conns.get(token) else { return Ok(()) };
        if conn.stage == Stage::Connecting {
            if let Some(e) = conn.stream.take_error()? {
                return Err(e.into());
            }
            if conn.stream.peer_addr().is_err() {
                return Ok(());
            }
            conn.flow.connected = Some(now);
            let _ = conn.stream.set_nodelay(true);
            self.ask(token);
        }
        self.write(token)?;
        self.read(token, now)?;
        self.update_interest(token)?;
        Ok(())
    }

    /// Prepares a connection's next request.
    fn ask(&mut self, token: u64) {
        let Some(conn) = self.conns.get(token) else { return };
        let (load, user) = (conn.load, conn.user);
        let number = self.users.who(user).1;
        let (size, path) = self.requests[load].clone();
        let load = &self.plan.traffic[load];
        let path = if load.by == By::Serve { format!("/{number}") } else { path };
        let Some(conn) = self.conns.get(token) else { return };
        conn.at = 0;
        conn.out = if load.upload {
            http::post(conn.server, &path, conn.bytes)
        } else {
            http::get(conn.server, &path, conn.bytes, size, conn.objects <= 1)
        };
        conn.stage = Stage::Asking;
    }

    fn write(&mut self, token: u64) -> Result<(), Trouble> {
        let mut buffer = [0; PIECE];
        let plan = self.plan;
        let Some(conn) = self.conns.get(token) else { return Ok(()) };
        while !conn.out.is_empty() {
            match conn.stream.write(&conn.out) {
                Ok(len) => drop(conn.out.drain(..len)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e.into()),
            }
        }
        let load = &plan.traffic[conn.load];
        if conn.stage == Stage::Asking {
            conn.stage = if load.upload { Stage::Sending(conn.bytes) } else { Stage::Waiting };
        }
        let Stage::Sending(left) = conn.stage else { return Ok(()) };
        // What its packets carry, or all there is.
        let is_packets = matches!(plan.traffic(load).kind, TrafficKind::Packets(_));
        let mut may = if is_packets { conn.owed } else { left.unwrap_or(u64::MAX) };
        let mut turn = TURN;
        while may > 0 && turn > 0 {
            let part = may.min(turn as u64).min(buffer.len() as u64) as usize;
            content::fill(conn.at, &mut buffer[..part]);
            match conn.stream.write(&buffer[..part]) {
                Ok(len) => {
                    conn.at += len as u64;
                    may -= len as u64;
                    turn -= len;
                    conn.owed = conn.owed.saturating_sub(len as u64);
                    if let Stage::Sending(Some(left)) = &mut conn.stage {
                        *left -= len as u64;
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(e.into()),
            }
        }
        if conn.stage == Stage::Sending(Some(0)) {
            conn.stage = Stage::Waiting;
        }
        Ok(())
    }

    fn read(&mut self, token: u64, now: Instant) -> Result<(), Trouble> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let done = self.read_into(token, &mut buffer, now);
        self.buffer = buffer;
        done
    }

    fn read_into(&mut self, token: u64, buffer: &mut [u8], now: Instant) -> Result<(), Trouble> {
        loop {
            let Some(conn) = self.conns.get(token) else { return Ok(()) };
            let len = match conn.stream.read(buffer) {
                Ok(0) => return self.ended(token),
                Ok(len) => len,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return Err(e.into()),
            };
            self.take(token, &buffer[..len], now)?;
            if len < buffer.len() {
                return Ok(());
            }
        }
    }

    /// Bytes have come.
    fn take(&mut self, token: u64, mut bytes: &[u8], now: Instant) -> Result<(), Trouble> {
        while !bytes.is_empty() {
            let Some(conn) = self.conns.get(token) else { return Ok(()) };
            match conn.stage {
                Stage::Receiving(left) => {
                    let part = left.map_or(bytes.len(), |left| left.min(bytes.len() as u64) as usize);
                    let (own, rest) = bytes.split_at(part);
                    if self.plan.traffic[conn.load].verify {
                        let is_intact = content::is_intact(conn.at, own);
                        conn.flow.intact = Some(conn.flow.intact.unwrap_or(true) && is_intact);
                    }
                    conn.at += part as u64;
                    self.flows.deliver(&mut conn.flow, part as u64, now);
                    bytes = rest;
                    if let Some(left) = left {
                        conn.stage = Stage::Receiving(Some(left - part as u64));
                        if left == part as u64 {
                            self.object_done(token, now)?;
                        }
                    }
                }
                // What comes after all has come is of no account.
                Stage::Parting => return Ok(()),
                Stage::Waiting => {
                    let before = conn.header.len();
                    conn.header.extend_from_slice(&bytes[..bytes.len().min(http::LONGEST)]);
                    let Some(header) = http::read(&conn.header).map_err(|e| Trouble::Answer(e.to_owned()))?
                    else {
                        return Ok(());
                    };
                    conn.header.clear();
                    bytes = &bytes[header.size - before..];
                    self.answered(token, &header, now)?;
                }
                // An answer before the question is over: the server does not want it.
                _ => return Err(Trouble::Answer("an answer before the request".to_owned())),
            }
        }
        Ok(())
    }

    /// The server's header has come.
    fn answered(&mut self, token: u64, header: &http::Header, now: Instant) -> Result<(), Trouble> {
        let Some(load) = self.conns.get(token).map(|conn| conn.load) else { return Ok(()) };
        let status = &header.first[1];
        if !status.starts_with('2') {
            return Err(Trouble::Answer(format!("status {status}")));
        }
        if self.plan.traffic[load].upload {
            return self.object_done(token, now);
        }
        let Some(conn) = self.conns.get(token) else { return Ok(()) };
        if conn.bytes != header.length && conn.bytes.is_some() {
            let found = header.length.map_or("without end".to_owned(), |bytes| format!("of {bytes} bytes"));
            return Err(Trouble::Answer(format!("an object {found}")));
        }
        conn.stage = Stage::Receiving(conn.bytes);
        if conn.bytes == Some(0) {
            self.object_done(token, now)?;
        }
        Ok(())
    }

    /// An object has come in full.
    fn object_done(&mut self, token: u64, now: Instant) -> Result<(), Trouble> {
        let Some(conn) = self.conns.get(token) else { return Ok(()) };
        conn.objects = conn.objects.saturating_sub(1);
        let user = conn.user;
        if conn.objects > 0 {
            let bytes = self.users.next_object(user);
            if let Some(conn) = self.conns.get(token) {
                conn.bytes = bytes;
            }
            self.ask(token);
            return self.write(token);
        }
        let (load, flow) = (conn.load, conn.flow.clone());
        conn.stage = Stage::Parting;
        self.partings.push(Reverse((now + PARTING, token)));
        self.record(load, &flow, End::Completed, now).map_err(Trouble::Rows)?;
        self.users.done(user, false, now);
        Ok(())
    }

    /// The server has closed its half.
    fn ended(&mut self, token: u64) -> Result<(), Trouble> {
        let Some(conn) = self.conns.get(token) else { return Ok(()) };
        if conn.stage == Stage::Parting {
            self.forget(token);
            return Ok(());
        }
        Err(Trouble::Answer("closed by the server".to_owned()))
    }

    fn update_interest(&mut self, token: u64) -> Result<(), Trouble> {
        let plan = self.plan;
        let Some(conn) = self.conns.get(token) else { return Ok(()) };
        let is_packets = matches!(plan.traffic(&plan.traffic[conn.load]).kind, TrafficKind::Packets(_));
        let sends = matches!(conn.stage, Stage::Sending(_)) && (!is_packets || conn.owed > 0);
        let write = conn.stage == Stage::Connecting || !conn.out.is_empty() || sends;
        let interest = Interest { read: conn.stage != Stage::Connecting, write };
        if interest != conn.interest {
            conn.interest = interest;
            self.reactor.change(&conn.stream, token, interest)?;
        }
        Ok(())
    }

    /// All is over: rows of what still goes on.
    fn finish(&mut self, now: Instant) -> io::Result<()> {
        let open: Vec<_> = self.conns.drain().filter(|conn| conn.stage != Stage::Parting).collect();
        for conn in open {
            self.record(conn.load, &conn.flow, End::Open, now)?;
        }
        Ok(())
    }
}

/// Why a connection does not go on.
enum Trouble {
    Connection(io::Error),
    Answer(String),
    Rows(io::Error),
}

impl From<io::Error> for Trouble {
    fn from(e: io::Error) -> Self {
        Self::Connection(e)
    }
}

/// A connection from a client's address that is about to be there.
fn start(client: IpAddr, server: SocketAddr, congestion: Option<&str>) -> io::Result<TcpStream> {
    let family = if server.is_ipv6() { AddressFamily::Inet6 } else { AddressFamily::Inet };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket: OwnedFd = socket(family, SockType::Stream, flags, None)?;
    // Ports are told apart by where they lead, so that there are enough.
    setsockopt(&socket, sockopt::IpBindAddressNoPort, &true)?;
    if let Some(congestion) = congestion {
        setsockopt(&socket, sockopt::TcpCongestion, &OsString::from(congestion))?;
    }
    bind(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(client, 0)))?;
    match connect(socket.as_raw_fd(), &SockaddrStorage::from(server)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(socket.into()),
        Err(e) => Err(e.into()),
    }
}

/// What went wrong, in a few words that are the same each time.
fn why(e: &io::Error) -> String {
    match e.raw_os_error() {
        Some(code) => Errno::from_raw(code).desc().to_lowercase(),
        None => e.to_string(),
    }
}
