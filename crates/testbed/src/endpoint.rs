//! State and events that `load` and `serve` share. Each runs in one thread.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;

use bentpipe_gatewayd::sys::raise_descriptors;
use bentpipe_units::{Duration, Instant};
use serde_json::{Value, json};

use crate::datagrams::{DatagramReceivers, DatagramSenders};
use crate::flows::Flows;
use crate::plan::{Plan, Side};
use crate::reactor::{Interest, Reactor, Source};
use crate::sys::{self, Clock};
use crate::table::{Table, Token};
use crate::users::{Task, UserId, Users};

/// Maximum number of bytes that a connection sends or receives before others get their turn.
pub const TURN: usize = 256 << 10;
/// Maximum unsent data in the socket buffer of a connection [bytes]. What waits there counts in the delay of a block.
pub const UNSENT: u32 = 4 << 10;
/// Time after which a finished connection is closed if the peer has not closed it.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection that can belong to a user.
pub trait Connection {
    /// The user whose traffic the connection carries; `None` if the server does not need to know.
    fn user(&self) -> Option<UserId>;
}

/// Open connections of an endpoint.
pub struct Connections<C> {
    table: Table<C>,
    /// Latest connection of each user.
    of_user: Vec<Option<Token>>,
    /// Finished connections with the times at which they are closed.
    closing: BinaryHeap<Reverse<(Instant, Token)>>,
}

impl<C: Connection> Connections<C> {
    /// Inserts the connection that `open` returns for its token.
    ///
    /// # Errors
    /// The error of `open`.
    pub fn insert(&mut self, open: impl FnOnce(Token) -> io::Result<C>) -> io::Result<Token> {
        let token = self.table.insert(open)?;
        if let Some(user) = self.table.get(token).and_then(|connection| connection.user()) {
            self.assign(user, token);
        }
        Ok(token)
    }

    /// The connection with this token, if it is still open.
    pub fn get(&mut self, token: Token) -> Option<&mut C> {
        self.table.get(token)
    }

    /// Makes a connection the latest of a user.
    pub fn assign(&mut self, user: UserId, token: Token) {
        self.of_user[user.index()] = Some(token);
    }

    /// The latest connection of a user, if it is still open.
    #[must_use]
    pub fn of_user(&self, user: UserId) -> Option<Token> {
        self.of_user[user.index()]
    }

    /// Closes a connection.
    pub fn remove(&mut self, token: Token) {
        if let Some(user) = self.table.remove(token).and_then(|connection| connection.user()) {
            self.of_user[user.index()].take_if(|own| *own == token);
        }
    }

    /// Leaves a finished connection to the peer to close, and closes it after `CLOSE_TIMEOUT`.
    pub fn close_later(&mut self, token: Token, now: Instant) {
        self.closing.push(Reverse((now + CLOSE_TIMEOUT, token)));
    }

    fn due(&self) -> Option<Instant> {
        self.closing.peek().map(|Reverse((at, _))| *at)
    }

    fn close_due(&mut self, now: Instant) {
        while let Some(&Reverse((at, token))) = self.closing.peek()
            && at <= now
        {
            self.closing.pop();
            self.remove(token);
        }
    }

    /// All connections.
    pub fn iter(&self) -> impl Iterator<Item = &C> {
        self.table.iter()
    }

    /// Number of connections.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// True without connections.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Removes all connections.
    pub fn drain(&mut self) -> impl Iterator<Item = C> {
        self.table.drain()
    }
}

/// State that `load` and `serve` share.
pub struct Endpoint<'a, C> {
    /// The plan.
    pub plan: &'a Plan,
    /// Time of the scenario.
    pub clock: Clock,
    /// The sockets to wait for.
    pub reactor: Reactor,
    /// Users of this side.
    pub users: Users,
    /// Flow records.
    pub flows: Flows,
    /// Outgoing datagrams.
    pub senders: DatagramSenders,
    receivers: DatagramReceivers,
    /// Open connections.
    pub connections: Connections<C>,
    /// Time of the current event.
    pub now: Instant,
    /// Largest delay of a scheduled action.
    pub late: Duration,
    /// End of the run; `None`: only on request.
    end: Option<Instant>,
    tasks: VecDeque<Task>,
    ready: VecDeque<Source>,
    /// True if sockets have been asked since the last [`Event::Wake`].
    has_polled: bool,
    open_files: u64,
    cpu_before: f64,
}

impl<'a, C: Connection> Endpoint<'a, C> {
    /// Enters the side's namespace and opens its datagram sockets and the file for its flow records.
    ///
    /// # Errors
    /// If the namespace cannot be entered, a socket cannot be opened or the file cannot be written.
    pub fn new(
        plan: &'a Plan,
        side: Side,
        users: Users,
        records: Option<&Path>,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let netns = match side {
            Side::Servers => &plan.netns.servers,
            Side::Clients => &plan.netns.clients,
        };
        if let Some(path) = netns {
            sys::enter(path).map_err(|e| format!("namespace {}: {e}", path.display()))?;
        }
        let open_files = raise_descriptors();
        let origin = plan.origin.unwrap_or_else(sys::monotonic);
        let senders = DatagramSenders::new(plan, &users)?;
        let receivers = DatagramReceivers::new(plan, side, origin)?;
        let reactor = Reactor::new()?;
        for (index, socket) in (0..).zip(receivers.sockets()) {
            reactor.add(socket, Source::Datagrams(index), Interest::READ)?;
        }
        let flows = Flows::new(records, plan.measured())
            .map_err(|e| format!("out: {}: {e}", records.unwrap_or("".as_ref()).display()))?;
        let of_user = vec![None; users.len()];
        Ok(Self {
            plan,
            clock: Clock::new(origin),
            reactor,
            users,
            flows,
            senders,
            receivers,
            connections: Connections { table: Table::default(), of_user, closing: BinaryHeap::new() },
            now: Instant::ZERO,
            late: Duration::ZERO,
            end: (side == Side::Clients).then_some(plan.until),
            tasks: VecDeque::new(),
            ready: VecDeque::new(),
            has_polled: false,
            open_files,
            cpu_before: sys::cpu_time(),
        })
    }

    /// Reports that the endpoint is ready, in a line of JSON with one more field.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn report_ready(&self, out: &mut dyn Write, key: &str, value: usize) -> io::Result<()> {
        write_line(out, &json!({ "ready": true, key: value, "open_files": self.open_files }))
    }

    /// Returns `now`, or the end of the run if that is earlier.
    fn until_end(&self, now: Instant) -> Instant {
        self.end.map_or(now, |end| now.min(end))
    }

    /// Waits for the next event; for [`Event::Wake`] at `wake` at the latest.
    ///
    /// # Errors
    /// If waiting fails, or flow records cannot be written.
    pub fn next(&mut self, wake: Option<Instant>) -> io::Result<Event> {
        loop {
            if let Some(task) = self.tasks.pop_front() {
                return Ok(Event::Task(task));
            }
            match self.ready.pop_front() {
                Some(Source::Connection(token)) => return Ok(Event::Connection(token)),
                Some(Source::Listener(index)) => return Ok(Event::Listener(index)),
                Some(Source::Quic(index)) => return Ok(Event::Quic(index)),
                Some(Source::Datagrams(index)) => {
                    self.receivers.receive(index, &mut self.flows, self.now)?;
                    continue;
                }
                None => {}
            }
            self.now = self.until_end(self.clock.now());
            if self.end == Some(self.now) {
                return Ok(Event::End);
            }
            // Sockets get their turn before each, so that frequent timers do not starve them.
            if wake.is_some_and(|at| at <= self.now) && std::mem::take(&mut self.has_polled) {
                return Ok(Event::Wake);
            }
            let next = [self.end, wake, self.due()].into_iter().flatten().min();
            let is_running = self.reactor.wait(next.map(|at| self.clock.until(at)), &mut self.ready)?;
            self.has_polled = true;
            self.now = self.until_end(self.clock.now());
            if !is_running {
                return Ok(Event::End);
            }
            if let Some(due) = self.due().filter(|due| *due <= self.now) {
                self.late = self.late.max(self.now - due);
            }
            // What is due at the end is not begun any more.
            if !self.clock.is_early() && self.end != Some(self.now) {
                self.users.advance(self.now, &mut self.tasks);
            }
            self.connections.close_due(self.now);
        }
    }

    fn due(&self) -> Option<Instant> {
        self.users.due().into_iter().chain(self.connections.due()).min()
    }

    /// Closes the datagram flows and returns the summary of the run.
    ///
    /// # Errors
    /// If flow records cannot be written.
    pub fn finish(&mut self) -> io::Result<Value> {
        self.receivers.finish(&mut self.flows, self.now)?;
        let mut summary = self.flows.finish()?;
        summary["seconds"] = self.now.as_secs_f64().into();
        summary["late_s"] = self.late.as_secs_f64().into();
        summary["cpu_s"] = (sys::cpu_time() - self.cpu_before).into();
        summary["datagrams"] = json!({ "sent": self.senders.sent, "refused": self.senders.refused });
        Ok(summary)
    }
}

/// Event for `load` or `serve`. Datagrams are handled by the endpoint.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A user acts.
    Task(Task),
    /// A connection is ready.
    Connection(Token),
    /// The listening socket with this index is ready.
    Listener(u32),
    /// The socket of QUIC connections with this index is ready.
    Quic(u32),
    /// The time passed to [`Endpoint::next`] has come.
    Wake,
    /// The plan's end has come, or a stop was requested.
    End,
}

/// Reads once from a non-blocking stream; `None` without data, 0 at the end of the stream.
///
/// # Errors
/// Those of the stream.
pub fn read(stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    match stream.read(buffer) {
        Ok(len) => Ok(Some(len)),
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Writes as much of `output` as a non-blocking stream takes, and removes it.
///
/// # Errors
/// Those of the stream.
pub fn flush(stream: &mut TcpStream, output: &mut Vec<u8>) -> io::Result<()> {
    while !output.is_empty() {
        match stream.write(output) {
            Ok(len) => drop(output.drain(..len)),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => break,
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Writes a line of JSON.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_line(out: &mut dyn Write, line: &Value) -> io::Result<()> {
    writeln!(out, "{line}")?;
    out.flush()
}
