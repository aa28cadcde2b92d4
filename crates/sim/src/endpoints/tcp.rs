//! The ends of TCP connections.

use bentpipe_transport::tcp;
use bentpipe_units::{Alarm, Duration, Instant, Rng};

use crate::clock::{Clock, Event};
use crate::ids::{ConnId, IdVec, PacketId, SlotId, StreamId, TcpConfigId, TerminalId, TraceId};
use crate::memory::grow;
use crate::network::{Body, PacketInFlight, Path};
use crate::side::Side;

/// One end of a TCP leg.
// Aligned to cache lines, so that it takes seven.
#[repr(align(64))]
pub struct Conn {
    pub tcp: tcp::Connection,
    pub config: TcpConfigId,
    pub slot: SlotId,
    /// The other end of the leg.
    pub peer: ConnId,
    /// The path there.
    pub path: Path,
    pub role: Role,
    /// Its timer and its pacing, as scheduled.
    timer: Alarm,
    pacing: Alarm,
    /// Congestion window of the peer when the latest segment from it left [bytes].
    pub peer_window: u32,
    /// ECN-capable codepoint of the peer's packets, as last seen.
    pub peer_ecn: tcp::Ecn,
    /// Bytes acknowledged by the peer that the PEP link has been told of.
    consumed: u64,
    /// An acknowledgement for it that waits in queues with an ACK filter; never set if it is split there.
    pub waiting_ack: Option<PacketId>,
    /// True if it opened the leg.
    pub is_active: bool,
    /// True once the application, or the other side of the split, knows that it is established.
    pub is_greeted: bool,
    /// True once the other side of the split knows that the peer sends no more.
    end_passed_on: bool,
    pub trace: Option<TraceId>,
}

/// User of a connection.
#[derive(Clone, Copy, Debug)]
pub enum Role {
    /// The host that sends the data.
    Sender,
    /// The host that receives the data.
    Receiver,
    /// One side of a split flow.
    Split { terminal: TerminalId, stream: StreamId, side: Side },
}

/// Bytes received on one side of a split flow.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    pub bytes: u64,
    /// True if the peer sends no more, for the first time.
    pub fin: bool,
}

/// All ends of TCP connections.
#[derive(Default)]
pub struct TcpEnds {
    conns: IdVec<ConnId, Conn>,
    configs: IdVec<TcpConfigId, tcp::Config>,
    /// Longest time that a host takes before it sends, by configuration; empty if none takes any.
    overheads: IdVec<TcpConfigId, Duration>,
    rng: Option<Rng>,
}

impl TcpEnds {
    /// Ends with these configurations and host overheads; `rng` draws the overheads.
    pub fn new(hosts: Vec<(tcp::Config, Duration)>, rng: Rng) -> Self {
        let has_overheads = hosts.iter().any(|(_, overhead)| !overhead.is_zero());
        let overheads = hosts.iter().filter(|_| has_overheads).map(|(_, overhead)| *overhead).collect();
        let configs = hosts.into_iter().map(|(config, _)| config).collect();
        Self { conns: IdVec::default(), configs, overheads, rng: Some(rng) }
    }

    /// Adds an end.
    pub fn add(&mut self, config: TcpConfigId, slot: SlotId, peer: ConnId, path: Path, role: Role) -> ConnId {
        self.conns.make_room(grow);
        self.conns.push(Conn {
            tcp: tcp::Connection::listen(&self.configs[config]),
            config,
            slot,
            peer,
            path,
            role,
            timer: Alarm::default(),
            pacing: Alarm::default(),
            peer_window: 0,
            peer_ecn: tcp::Ecn::NotEct,
            consumed: 0,
            waiting_ack: None,
            is_active: false,
            is_greeted: false,
            end_passed_on: false,
            trace: None,
        })
    }

    pub fn next_id(&self) -> ConnId {
        self.conns.next_id()
    }

    pub fn len(&self) -> usize {
        self.conns.len()
    }

    pub fn get(&self, id: ConnId) -> Option<&Conn> {
        self.conns.get(id)
    }

    /// Configuration of a connection.
    pub fn config(&self, id: ConnId) -> &tcp::Config {
        &self.configs[self.conns[id].config]
    }

    /// Listens for another flow.
    pub fn listen(&mut self, id: ConnId, trace: Option<TraceId>) {
        let c = &mut self.conns[id];
        c.tcp = tcp::Connection::listen(&self.configs[c.config]);
        c.trace = trace;
        (c.timer, c.pacing) = (Alarm::default(), Alarm::default());
        (c.peer_window, c.peer_ecn, c.consumed) = (0, tcp::Ecn::NotEct, 0);
        (c.is_active, c.is_greeted, c.end_passed_on) = (false, false, false);
        c.waiting_ack = None;
    }

    /// Opens a leg.
    pub fn connect(&mut self, id: ConnId, now: Instant) {
        let c = &mut self.conns[id];
        c.tcp = tcp::Connection::connect(&self.configs[c.config], now);
        c.is_active = true;
    }

    /// Handles a segment.
    #[inline]
    pub fn receive(&mut self, id: ConnId, segment: &tcp::Segment, now: Instant) {
        let c = &mut self.conns[id];
        c.peer_window = segment.cwnd;
        if let tcp::Ecn::Ect0 | tcp::Ecn::Ect1 = segment.ecn {
            c.peer_ecn = segment.ecn;
        }
        c.tcp.on_segment(&self.configs[c.config], now, segment);
    }

    /// Gives the next segment to send.
    #[inline(always)]
    pub fn poll_transmit(&mut self, id: ConnId, now: Instant) -> Option<PacketInFlight> {
        let c = &mut self.conns[id];
        let config = &self.configs[c.config];
        // By reference, so that it is copied once.
        let segment = &c.tcp.poll_transmit(config, now);
        let segment = segment.as_ref()?;
        let body = Body::Tcp { to: c.peer, segment: *segment };
        Some(PacketInFlight::new(body, c.slot, config.wire_len(segment), c.path))
    }

    /// Delays the sending of a host that takes time before it sends; true if it does.
    #[inline]
    pub fn defer(&mut self, id: ConnId, clock: &mut Clock) -> bool {
        !self.overheads.is_empty() && self.defer_by_overhead(id, clock)
    }

    #[inline(never)]
    fn defer_by_overhead(&mut self, id: ConnId, clock: &mut Clock) -> bool {
        let c = &mut self.conns[id];
        let overhead = self.overheads[c.config];
        let Some(rng) = self.rng.as_mut().filter(|_| !overhead.is_zero()) else { return false };
        if !matches!(c.role, Role::Sender) || !c.tcp.is_established() {
            return false;
        }
        if !c.pacing.is_set() {
            let at = clock.now() + overhead.scaled(rng.uniform());
            c.pacing.set(at);
            clock.at(at, Event::ConnPace(id));
        }
        self.arm(id, clock);
        true
    }

    /// Schedules a connection's timers. A timer that moves later stays scheduled, and is checked when it goes off.
    #[inline]
    pub fn arm(&mut self, id: ConnId, clock: &mut Clock) {
        let c = &mut self.conns[id];
        if let Some(at) = c.tcp.poll_timeout()
            && c.timer.set(at)
        {
            clock.at(at, Event::ConnTimer(id));
        }
        if let Some(at) = c.tcp.paced_until()
            && c.pacing.set(at)
        {
            clock.at(at, Event::ConnPace(id));
        }
    }

    /// Handles a scheduled timer; true if it has gone off.
    pub fn on_timer(&mut self, id: ConnId, clock: &mut Clock) -> bool {
        let (c, now) = (&mut self.conns[id], clock.now());
        if !c.timer.end(now) {
            return false;
        }
        let is_due = c.tcp.poll_timeout().is_some_and(|at| at <= now);
        if is_due {
            c.tcp.handle_timeout(&self.configs[c.config], now);
        } else {
            self.arm(id, clock);
        }
        is_due
    }

    /// Handles scheduled pacing; true if the connection may send.
    pub fn on_pace(&mut self, id: ConnId, now: Instant) -> bool {
        self.conns[id].pacing.end(now)
    }

    /// Resets a connection; false if it was closed already.
    pub fn abort(&mut self, id: ConnId) -> bool {
        let tcp = &mut self.conns[id].tcp;
        let is_open = !tcp.is_closed();
        if is_open {
            tcp.abort();
        }
        is_open
    }

    /// True if a connection is over, apart from waiting for late segments.
    pub fn is_over(&self, id: ConnId) -> bool {
        let tcp = &self.conns[id].tcp;
        tcp.is_closed() || tcp.in_time_wait()
    }
}

impl Conn {
    /// Tells the other side of a split that the connection is established. Returns true the first time, if the peer opened
    /// the connection.
    #[inline]
    pub fn greet_split(&mut self) -> bool {
        let is_new = !self.is_greeted && self.tcp.is_established();
        self.is_greeted |= is_new;
        is_new && !self.is_active
    }

    /// Reads what one side of a split received, but no more than `most` bytes; `None` if nothing.
    #[inline]
    pub fn read_split(&mut self, most: u64) -> Option<Received> {
        let readable = self.tcp.readable();
        let bytes = readable.min(most);
        let fin = bytes == readable && self.tcp.peer_closed() && !self.end_passed_on;
        self.end_passed_on |= fin;
        if bytes == 0 && !fin {
            return None;
        }
        self.tcp.read(bytes);
        Some(Received { bytes, fin })
    }

    /// Bytes that the peer has newly acknowledged.
    #[inline]
    pub fn newly_acked(&mut self) -> u64 {
        let acked = self.tcp.acked() - self.consumed;
        self.consumed += acked;
        acked
    }
}

impl std::ops::Index<ConnId> for TcpEnds {
    type Output = Conn;
    #[inline(always)]
    fn index(&self, id: ConnId) -> &Conn {
        &self.conns[id]
    }
}

impl std::ops::IndexMut<ConnId> for TcpEnds {
    #[inline(always)]
    fn index_mut(&mut self, id: ConnId) -> &mut Conn {
        &mut self.conns[id]
    }
}
