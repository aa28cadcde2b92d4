//! The servers: send what is asked for, or what the scenario's sources send, and count what clients send. One thread, one
//! loop.
//!
//! An upload is answered when all of it has come, or when the client closes its half, which it may do before it is
//! answered. A client that closes its half of a download gets the rest of it all the same.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};

use bentpipe_gatewayd::sys::raise_descriptors;
use bentpipe_scenario::{TrafficKind, Transport};
use bentpipe_units::{Duration, Instant, Rate};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, setsockopt, socket, sockopt,
};
use serde_json::json;

use crate::datagrams::{self, Inlets, Outlets};
use crate::flows::{End, Flow, Flows};
use crate::plan::{By, Load, Plan, PlanError};
use crate::reactor::{Interest, Reactor};
use crate::sys::{self, Clock};
use crate::table::Table;
use crate::users::{Task, Users};
use crate::{content, http};

/// Sent or received in one turn at most by one connection [bytes].
const TURN: usize = 256 << 10;
/// Written at a time [bytes].
const PIECE: usize = 16 << 10;
/// What a connection holds that the network has not taken yet [bytes].
const UNSENT: u32 = 128 << 10;
/// A client that neither asks nor closes is not waited for longer.
const PARTING: Duration = Duration::from_secs(10);
/// Connections accepted in one turn.
const BATCH: usize = 256;
const LISTENERS: u64 = 1 << 62;
const DATAGRAMS: u64 = 1 << 63;

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It waits for a request.
    Waiting,
    /// It sends so much more [bytes]; none: without end.
    Sending(Option<u64>),
    /// It sends what is written into it as packets are due.
    Packets,
    /// So much is to come [bytes]; none: until the client closes its half.
    Receiving(Option<u64>),
    /// All is done; the client is to close it.
    Parting,
}

struct Conn {
    stream: TcpStream,
    /// The traffic (an index of the plan's).
    load: usize,
    stage: Stage,
    /// Its place in the object.
    at: u64,
    /// What is to go out before all else, and whether nothing comes after it.
    out: Vec<u8>,
    is_last: bool,
    /// What has come of a request.
    header: Vec<u8>,
    /// Packets that wait to be written [bytes].
    owed: u64,
    /// The user whose packets it carries.
    user: Option<u32>,
    /// What comes from a client.
    flow: Option<Flow>,
    /// Whether the client has closed its half.
    is_half: bool,
    interest: Interest,
}

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    accepted: u64,
    sent: u64,
    received: u64,
    most: usize,
}

struct Run<'a> {
    plan: &'a Plan,
    reactor: Reactor,
    users: Users,
    flows: Flows,
    outlets: Outlets,
    listeners: Vec<(TcpListener, usize)>,
    conns: Table<Conn>,
    /// For each user that sends packets over a connection, that connection.
    of_user: Vec<Option<u64>>,
    partings: BinaryHeap<Reverse<(Instant, u64)>>,
    buffer: Vec<u8>,
    totals: Totals,
}

/// Plays the servers until told to stop; lines of JSON about it go to `out`.
///
/// # Errors
/// Where a socket cannot be made, or something cannot be written.
pub fn run(plan: &Plan, out: &mut dyn Write) -> Result<(), Box<dyn std::error::Error>> {
    if let Some(path) = &plan.netns.servers {
        sys::enter(path).map_err(|e| format!("namespace {}: {e}", path.display()))?;
    }
    let files = raise_descriptors();
    let origin = plan.origin.unwrap_or_else(sys::monotonic);
    let clock = Clock::new(origin);
    let is_packets = |load: &Load| matches!(plan.traffic(load).kind, TrafficKind::Packets(_));
    let users = Users::new(plan, |load| is_packets(load) && !load.upload && load.by == By::Serve);
    let outlets = Outlets::new(plan, &users)?;
    let mut inlets = Inlets::new(plan, true, origin)?;
    let reactor = Reactor::new()?;
    for (place, socket) in (0..).zip(inlets.sockets()) {
        reactor.add(socket, DATAGRAMS | place, Interest::READ)?;
    }
    let listeners = listeners(plan)?;
    for (place, (listener, _)) in (0..).zip(&listeners) {
        reactor.add(listener, LISTENERS | place, Interest::READ)?;
    }
    let path = plan.out.as_ref().filter(|_| plan.traffic.iter().any(|load| load.upload));
    let path = path.map(|path| path.with_extension("serve.jsonl"));
    let flows = Flows::new(path.as_deref(), plan.measured())
        .map_err(|e| format!("out: {}: {e}", path.unwrap_or_default().display()))?;
    let of_user = vec![None; users.len()];
    let mut run = Run {
        plan,
        reactor,
        users,
        flows,
        outlets,
        listeners,
        conns: Table::default(),
        of_user,
        partings: BinaryHeap::new(),
        buffer: vec![0; TURN],
        totals: Totals::default(),
    };
    writeln!(out, "{}", json!({ "ready": true, "listeners": run.listeners.len(), "open_files": files }))?;
    out.flush()?;
    let cpu = sys::cpu_time();
    let (mut tasks, mut ready) = (Vec::new(), Vec::new());
    loop {
        let now = clock.now();
        if !clock.is_early() {
            run.users.advance(now, &mut tasks);
        }
        for task in tasks.drain(..) {
            run.carry_out(task, now)?;
        }
        run.part(now);
        let parting = run.partings.peek().map(|Reverse((at, _))| *at);
        let wait = datagrams::wait(clock, [run.users.due(), parting]);
        if !run.reactor.wait(wait, &mut ready)? {
            break;
        }
        let now = clock.now();
        for token in ready.drain(..) {
            if token & DATAGRAMS != 0 {
                inlets.take((token & !DATAGRAMS) as usize, &mut run.flows, now)?;
            } else if token & LISTENERS != 0 {
                run.accept((token & !LISTENERS) as usize)?;
            } else {
                run.turn(token, now)?;
            }
        }
    }
    let now = clock.now();
    inlets.finish(&mut run.flows, now)?;
    let open = run.conns.len();
    for flow in run.conns.drain().filter_map(|conn| conn.flow) {
        run.flows.close(&flow, End::Open, now)?;
    }
    let t = run.totals;
    let mut summary = run.flows.finish()?;
    summary["seconds"] = now.as_secs_f64().into();
    summary["cpu_s"] = (sys::cpu_time() - cpu).into();
    summary["connections"] = json!({ "accepted": t.accepted, "most": t.most, "open": open });
    summary["bytes"] = json!({ "sent": t.sent, "received": t.received });
    summary["datagrams"] = json!({ "sent": run.outlets.sent, "refused": run.outlets.refused });
    writeln!(out, "{}", json!({ "summary": summary }))?;
    out.flush()?;
    Ok(())
}

/// A listening socket for each traffic that is served here over connections.
fn listeners(plan: &Plan) -> Result<Vec<(TcpListener, usize)>, Box<dyn std::error::Error>> {
    let mut listeners = Vec::new();
    for (index, load) in plan.traffic.iter().enumerate() {
        if load.by != By::Serve || datagrams::is_datagrams(plan, load) {
            continue;
        }
        let address = SocketAddr::new(datagrams::any(load.ipv6), load.port);
        let listener = listener(address, load).map_err(|e| match e.kind() {
            ErrorKind::NotFound => {
                let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
                let (name, found) =
                    (&plan.traffic(load).name, load.congestion.as_deref().unwrap_or_default());
                let known = known.unwrap_or_default().trim().replace(' ', ", ");
                PlanError(format!("traffic.{name}.congestion: found \"{found}\"; allowed: {known}")).into()
            }
            _ => Box::<dyn std::error::Error>::from(format!("port {}: {e}", load.port)),
        })?;
        listeners.push((listener, index));
    }
    Ok(listeners)
}

fn listener(address: SocketAddr, load: &Load) -> io::Result<TcpListener> {
    let family = if load.ipv6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket: OwnedFd = socket(family, SockType::Stream, flags, None)?;
    setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    if load.ipv6 {
        setsockopt(&socket, sockopt::Ipv6V6Only, &true)?;
    }
    if let Some(congestion) = &load.congestion {
        setsockopt(&socket, sockopt::TcpCongestion, &OsString::from(congestion))?;
    }
    bind(socket.as_raw_fd(), &SockaddrStorage::from(address))?;
    listen(&socket, Backlog::MAXALLOWABLE)?;
    Ok(socket.into())
}

/// A connection's rate, without headers, for those the kernel does not count.
fn rate_cap(plan: &Plan, load: &Load) -> Option<Rate> {
    let (cap, transport) = match &plan.traffic(load).kind {
        TrafficKind::Pages(t) => (t.rate_cap?, t.transport),
        TrafficKind::Files(t) => (t.rate_cap?, t.transport),
        TrafficKind::Bulk(t) => (t.rate_cap?, t.transport),
        TrafficKind::Packets(_) => return None,
    };
    let share = match &plan.scenario.transports[transport] {
        Transport::Tcp(tcp) => tcp.mss as f64 / tcp.full_segment() as f64,
        _ => 1.0,
    };
    Some(Rate::from_bps((cap.as_bps() as f64 * share) as u64))
}

impl Run<'_> {
    fn carry_out(&mut self, task: Task, now: Instant) -> io::Result<()> {
        match task {
            Task::Open(open) => self.outlets.begin(open.user),
            Task::Packet { user, len } if self.outlets.has(user) => self.outlets.send(user, len),
            Task::Packet { user, len } => {
                if let Some(token) = self.of_user[user as usize]
                    && let Some(conn) = self.conns.get(token)
                {
                    conn.owed += u64::from(len).saturating_sub(bentpipe_scenario::DATAGRAM_HEADER);
                    self.turn(token, now)?;
                }
            }
            // The client closes its connection.
            Task::Leave { .. } => {}
        }
        Ok(())
    }

    fn accept(&mut self, listener: usize) -> io::Result<()> {
        for _ in 0..BATCH {
            let Some((listener, load)) = self.listeners.get(listener) else { return Ok(()) };
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                // None waits; or one is gone again; or there are too many, and it waits.
                Err(_) => return Ok(()),
            };
            let load = *load;
            stream.set_nonblocking(true)?;
            let _ = stream.set_nodelay(true);
            let _ = sys::hold_little_unsent(&stream, UNSENT);
            if let Some(rate) = rate_cap(self.plan, &self.plan.traffic[load]) {
                sys::pace(&stream, rate)?;
            }
            self.conns.enter(|token| {
                self.reactor.add(&stream, token, Interest::READ)?;
                Ok::<_, io::Error>(Conn {
                    stream,
                    load,
                    stage: Stage::Waiting,
                    at: 0,
                    out: Vec::new(),
                    is_last: false,
                    header: Vec::new(),
                    owed: 0,
                    user: None,
                    flow: None,
                    is_half: false,
                    interest: Interest::READ,
                })
            })?;
            self.totals.accepted += 1;
            self.totals.most = self.totals.most.max(self.conns.len());
        }
        Ok(())
    }

    fn turn(&mut self, token: u64, now: Instant) -> io::Result<()> {
        let is_well = self.work(token, now);
        if let Err(Trouble::Rows(e)) = is_well {
            return Err(e);
        }
        let Some(conn) = self.conns.get(token) else { return Ok(()) };
        if is_well.is_err() {
            if let Some(flow) = conn.flow.take() {
                // Those without end are reset when their source leaves.
                let how = if flow.is_finite() { End::Failed("reset by the client") } else { End::Left };
                self.flows.close(&flow, how, now)?;
            }
            self.forget(token);
        }
        Ok(())
    }

    fn forget(&mut self, token: u64) {
        if let Some(Conn { user: Some(user), .. }) = self.conns.remove(token)
            && let Some(of_user) = self.of_user.get_mut(user as usize)
            && *of_user == Some(token)
        {
            *of_user = None;
        }
    }

    fn part(&mut self, now: Instant) {
        while let Some(&Reverse((at, token))) = self.partings.peek()
            && at <= now
        {
            self.partings.pop();
            if self.conns.get(token).is_some_and(|conn| conn.stage == Stage::Parting) {
                self.forget(token);
            }
        }
    }

    fn work(&mut self, token: u64, now: Instant) -> Result<(), Trouble> {
        self.read(token, now)?;
        self.write(token, now)?;
        let Some(conn) = self.conns.get(token) else { return Ok(()) };
        let sends = match conn.stage {
            Stage::Sending(_) => true,
            Stage::Packets => conn.owed > 0,
            _ => false,
        };
        let interest = Interest { read: !conn.is_half, write: !conn.out.is_empty() || sends };
        if interest != conn.interest {
            conn.interest = interest;
            self.reactor.change(&conn.stream, token, interest)?;
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
        let Some(conn) = self.conns.get(token).filter(|conn| !conn.is_half) else { return Ok(()) };
        let len = match conn.stream.read(buffer) {
            Ok(0) => return self.ended(token, now),
            Ok(len) => len,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(()),
            Err(_) => return Err(Trouble::Connection),
        };
        self.totals.received += len as u64;
        self.take(token, &buffer[..len], now)
    }

    /// Bytes have come.
    fn take(&mut self, token: u64, mut bytes: &[u8], now: Instant) -> Result<(), Trouble> {
        while !bytes.is_empty() {
            let Some(conn) = self.conns.get(token) else { return Ok(()) };
            match conn.stage {
                Stage::Receiving(left) => {
                    let part = left.map_or(bytes.len(), |left| left.min(bytes.len() as u64) as usize);
                    let (own, rest) = bytes.split_at(part);
                    if let Some(flow) = &mut conn.flow {
                        let is_intact = content::is_intact(conn.at, own);
                        flow.intact = Some(flow.intact.unwrap_or(true) && is_intact);
                        self.flows.deliver(flow, part as u64, now);
                    }
                    conn.at += part as u64;
                    bytes = rest;
                    if let Some(left) = left {
                        conn.stage = Stage::Receiving(Some(left - part as u64));
                        if left == part as u64 {
                            self.received(token, End::Completed, now)?;
                        }
                    }
                }
                Stage::Waiting => {
                    conn.header.extend_from_slice(bytes);
                    return self.asked(token, now);
                }
                // The next request waits until this one is answered.
                Stage::Sending(_) => {
                    conn.header.extend_from_slice(bytes);
                    return if conn.header.len() > http::LONGEST { Err(Trouble::Connection) } else { Ok(()) };
                }
                Stage::Packets | Stage::Parting => return Ok(()),
            }
        }
        Ok(())
    }

    /// Perhaps a whole request has come.
    fn asked(&mut self, token: u64, now: Instant) -> Result<(), Trouble> {
        let Some(conn) = self.conns.get(token) else { return Ok(()) };
        let Some(header) = http::read(&conn.header).map_err(|_| Trouble::Connection)? else { return Ok(()) };
        let rest = conn.header.split_off(header.size);
        conn.header.clear();
        (conn.at, conn.is_last) = (0, header.close);
        let load = conn.load;
        let [method, path, _] = &header.first;
        let number = path.rsplit('/').next().and_then(|number| number.parse().ok()).unwrap_or(0);
        let traffic = self.plan.traffic(&self.plan.traffic[load]);
        if method == "POST" {
            let mut flow = self.flows.open(&traffic.name, number, header.length.is_some(), now);
            let Some(conn) = self.conns.get(token) else { return Ok(()) };
            flow.connected = Some(now);
            conn.flow = Some(flow);
            conn.stage = Stage::Receiving(header.length);
            return self.take(token, &rest, now);
        }
        if method != "GET" {
            return Err(Trouble::Connection);
        }
        let user = if matches!(traffic.kind, TrafficKind::Packets(_)) {
            self.users.find(self.plan.traffic[load].traffic, number)
        } else {
            None
        };
        let Some(conn) = self.conns.get(token) else { return Ok(()) };
        conn.out = http::answer(header.range, conn.is_last);
        conn.header = rest;
        match user {
            Some(user) => {
                (conn.user, conn.stage) = (Some(user), Stage::Packets);
                self.of_user[user as usize] = Some(token);
            }
            None => conn.stage = Stage::Sending(header.range),
        }
        Ok(())
    }

    /// A client's bytes have come to their end.
    fn received(&mut self, token: u64, how: End<'_>, now: Instant) -> Result<(), Trouble> {
        let Some(conn) = self.conns.get(token) else { return Ok(()) };
        let flow = conn.flow.take();
        conn.out = http::answer(Some(0), true);
        conn.is_last = true;
        conn.stage = Stage::Sending(Some(0));
        if let Some(flow) = flow {
            self.flows.close(&flow, how, now).map_err(Trouble::Rows)?;
        }
        Ok(())
    }

    /// The client has closed its half.
    fn ended(&mut self, token: u64, now: Instant) -> Result<(), Trouble> {
        let Some(conn) = self.conns.get(token) else { return Ok(()) };
        conn.is_half = true;
        match conn.stage {
            Stage::Waiting | Stage::Parting | Stage::Packets => {
                self.forget(token);
                Ok(())
            }
            Stage::Receiving(None) => self.received(token, End::Left, now),
            Stage::Receiving(Some(_)) => self.received(token, End::Failed("cut short by the client"), now),
            // What it has asked for, it gets; nothing else is to come.
            Stage::Sending(_) => {
                conn.is_last = true;
                Ok(())
            }
        }
    }

    fn write(&mut self, token: u64, now: Instant) -> Result<(), Trouble> {
        let mut piece = [0; PIECE];
        // Requests that have come already are answered one after the other.
        loop {
            let Some(conn) = self.conns.get(token) else { return Ok(()) };
            let mut sent = 0;
            let done = conn.write(&mut piece, &mut sent);
            self.totals.sent += sent;
            if !done? {
                return Ok(());
            }
            let Some(conn) = self.conns.get(token) else { return Ok(()) };
            if conn.is_last {
                let _ = conn.stream.shutdown(Shutdown::Write);
                conn.stage = Stage::Parting;
                if conn.is_half {
                    self.forget(token);
                } else {
                    self.partings.push(Reverse((now + PARTING, token)));
                }
                return Ok(());
            }
            conn.stage = Stage::Waiting;
            if conn.header.is_empty() {
                return Ok(());
            }
            self.asked(token, now)?;
        }
    }
}

impl Conn {
    /// Writes what there is to write, within a turn: whether an answer is complete.
    fn write(&mut self, piece: &mut [u8], sent: &mut u64) -> Result<bool, Trouble> {
        while !self.out.is_empty() {
            match self.stream.write(&self.out) {
                Ok(len) => {
                    self.out.drain(..len);
                    *sent += len as u64;
                }
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    return Ok(false);
                }
                Err(_) => return Err(Trouble::Connection),
            }
        }
        let may = match self.stage {
            Stage::Sending(left) => left.unwrap_or(u64::MAX),
            Stage::Packets => self.owed,
            _ => return Ok(false),
        };
        let mut turn = may.min(TURN as u64);
        while turn > 0 {
            let part = turn.min(piece.len() as u64) as usize;
            content::fill(self.at, &mut piece[..part]);
            match self.stream.write(&piece[..part]) {
                Ok(len) => {
                    let len = len as u64;
                    self.at += len;
                    *sent += len;
                    turn -= len;
                    match &mut self.stage {
                        Stage::Sending(Some(left)) => *left -= len,
                        Stage::Packets => self.owed -= len,
                        _ => {}
                    }
                }
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => break,
                Err(_) => return Err(Trouble::Connection),
            }
        }
        Ok(self.stage == Stage::Sending(Some(0)))
    }
}

/// Why a connection does not go on.
enum Trouble {
    Connection,
    Rows(io::Error),
}

impl From<io::Error> for Trouble {
    fn from(_: io::Error) -> Self {
        Self::Connection
    }
}
