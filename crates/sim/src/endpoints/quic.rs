//! The ends of QUIC connections. No PEP can split one, so it runs from end to end.

use std::collections::BTreeMap;

use bentpipe_quic::log::Note;
use bentpipe_quic::{Config, Connection, Host, Limit, Priority, Resumption, Stats};
use bentpipe_transport::tcp::{Ecn, SavedPath};
use bentpipe_units::{Alarm, Duration, Instant, Rate};

use super::stream::ByteStream;
use crate::clock::{Clock, Event};
use crate::ids::{Id, IdVec, QuicConfigId, QuicEndId, SlotId, TraceId};
use crate::network::Path;

/// One end of a connection.
pub struct QuicEnd {
    /// `None` before its first packet.
    quic: Option<Box<Connection>>,
    config: QuicConfigId,
    pub slot: SlotId,
    /// The other end.
    pub peer: QuicEndId,
    /// The path there.
    pub path: Path,
    /// True if it sends the data.
    pub is_sender: bool,
    /// Its timer, as scheduled.
    timer: Alarm,
    /// Seed of the flow's connection.
    seed: u64,
    /// True once the application knows that it is established.
    is_greeted: bool,
    /// Requests that wait for a stream, and the length of each [bytes].
    waiting: (u64, u64),
    /// Datagrams that wait for the handshake: length [bytes], and when each was due.
    early: Vec<(u64, Instant)>,
    /// Streams whose requests have been answered, and as many as were before the current page.
    answered: usize,
    answered_before: usize,
    /// Streams of the client before the current page.
    requested_before: usize,
    /// True if the connection stays open when all its streams are complete.
    keeps_open: bool,
    /// Bytes of streams sent at least once.
    sent: u64,
    /// The hosts of its flow, sending and receiving; and a path that it resumes, which nobody else may use meanwhile.
    hosts: (u32, u32),
    resumed: Option<(SavedPath, Instant)>,
    pub trace: Option<TraceId>,
}

/// A datagram that an end sends.
pub struct Sent {
    pub payload: Vec<u8>,
    pub ecn: Ecn,
    /// Length on the wire [bytes].
    pub len: u32,
    /// True if it carries data, and if all of it was sent before.
    pub has_data: bool,
    pub is_repeated: bool,
    /// Bytes of streams that the end has sent so far, if it has sent more.
    pub position: Option<u64>,
    /// Number of the client's address that it comes from or goes to.
    pub address: u32,
}

/// All ends of QUIC connections.
#[derive(Default)]
pub struct QuicEnds {
    ends: IdVec<QuicEndId, QuicEnd>,
    pub configs: IdVec<QuicConfigId, Host>,
    pub lifetimes: IdVec<QuicConfigId, Lifetimes>,
    /// Seed of the run.
    pub seed: u64,
    /// Paths that hosts have saved, by the two hosts and the transport, and when they expire.
    saved: BTreeMap<PathKey, (SavedPath, Instant)>,
    /// Servers that clients know, in the same way.
    known: BTreeMap<PathKey, (Resumption, Instant)>,
}

/// Time for which a host keeps what it has learned; `None` if it keeps nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lifetimes {
    /// Paths, of a host that sends data (RFC 9959).
    pub path: Option<Duration>,
    /// Tickets and tokens of servers, of a client.
    pub ticket: Option<Duration>,
}

/// The host that sends, the one that receives, each among all, and the configuration of the one that keeps it.
type PathKey = (u32, u32, u32);

/// Both ends of a connection, by its sending end.
pub fn both(sender: QuicEndId) -> [QuicEndId; 2] {
    [sender, Id::new(sender.index() + 1)]
}

impl QuicEnds {
    /// Adds a connection with the configurations of its two ends; returns its sending end.
    pub fn add(&mut self, slot: SlotId, configs: [QuicConfigId; 2], (down, up): (Path, Path)) -> QuicEndId {
        let [sender, receiver] = both(self.ends.next_id());
        let [of_sender, of_receiver] = configs;
        for (peer, config, path, is_sender) in
            [(receiver, of_sender, down, true), (sender, of_receiver, up, false)]
        {
            self.ends.push(QuicEnd {
                quic: None,
                config,
                slot,
                peer,
                path,
                is_sender,
                timer: Alarm::default(),
                seed: 0,
                is_greeted: false,
                waiting: (0, 0),
                early: Vec::new(),
                answered: 0,
                answered_before: 0,
                requested_before: 0,
                keeps_open: false,
                sent: 0,
                hosts: (0, 0),
                resumed: None,
                trace: None,
            });
        }
        sender
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Makes both ends ready for another flow with its number, between two hosts. `traces` are of the sending and the
    /// receiving end: quinn counts no probe timeouts, so that a traced end has a log too.
    pub fn listen(&mut self, sender: QuicEndId, flow: u32, hosts: (u32, u32), traces: [Option<TraceId>; 2]) {
        let seed = bentpipe_units::mix(self.seed ^ u64::from(flow).rotate_left(32));
        for (id, trace) in both(sender).into_iter().zip(traces) {
            let end = &mut self.ends[id];
            end.trace = trace;
            (end.quic, end.timer, end.seed) = (None, Alarm::default(), seed);
            (end.is_greeted, end.waiting, end.answered, end.sent) = (false, (0, 0), 0, 0);
            (end.answered_before, end.requested_before, end.keeps_open) = (0, 0, false);
            (end.hosts, end.resumed) = (hosts, None);
            end.early.clear();
        }
    }

    /// Keeps a connection open when all its streams are complete, or lets it end then.
    pub fn keep_open(&mut self, sender: QuicEndId, keeps_open: bool) {
        for id in both(sender) {
            let end = &mut self.ends[id];
            end.keeps_open = keeps_open;
            if let Some(quic) = &mut end.quic {
                quic.keep_open(keeps_open);
            }
        }
    }

    /// Makes the ends of a connection ready for another page.
    pub fn begin_page(&mut self, sender: QuicEndId) {
        for id in both(sender) {
            let end = &mut self.ends[id];
            (end.is_greeted, end.answered_before) = (false, end.answered);
            end.requested_before = end.quic.as_ref().map_or(0, |quic| quic.streams());
        }
    }

    /// Forgets a connection that is over. Its sending host saves the path for the next one, if that is worth it (RFC 9959,
    /// section 3.1); else a path that it resumed without congestion stays saved.
    pub fn clear(&mut self, sender: QuicEndId, now: Instant) {
        let end = &mut self.ends[sender];
        if let (Some(quic), Some(lifetime)) = (&end.quic, self.lifetimes[end.config].path) {
            let observed = quic.observed().map(|path| (path, now + lifetime));
            if let Some(saved) = observed.or(end.resumed.filter(|_| !quic.has_retreated())) {
                self.saved.insert(end.key(), saved);
            }
        }
        for id in both(sender) {
            let end = &mut self.ends[id];
            if let (Some(quic), Some(lifetime)) = (&end.quic, self.lifetimes[end.config].ticket)
                && let Some(resumption) = quic.resumption()
            {
                self.known.insert(end.key(), (resumption, now + lifetime));
            }
            end.quic = None;
        }
    }

    /// Takes the path that an end may resume: its own, and no other connection's.
    fn take_saved(&mut self, id: QuicEndId, now: Instant) -> Option<SavedPath> {
        let end = &mut self.ends[id];
        if !end.is_sender || self.lifetimes[end.config].path.is_none() {
            return None;
        }
        let saved = self.saved.remove(&end.key());
        end.resumed = saved.filter(|(_, expires)| now <= *expires);
        end.resumed.map(|(path, _)| path)
    }

    /// Opens a connection from one end.
    pub fn connect(&mut self, id: QuicEndId, now: Instant) {
        let saved = self.take_saved(id, now);
        let end = &mut self.ends[id];
        let known = self.known.get(&end.key()).filter(|(_, expires)| now <= *expires);
        let known = known.map(|(resumption, _)| resumption);
        let mut quic = Connection::connect(&self.configs[end.config], now, end.seed, saved, known);
        if end.trace.is_some() {
            quic.start_log();
        }
        quic.keep_open(end.keeps_open);
        end.quic = Some(Box::new(quic));
    }

    /// An end receives a datagram from or to the client's address with this number.
    pub fn receive(&mut self, to: QuicEndId, ecn: Ecn, payload: Vec<u8>, address: u32, now: Instant) {
        if self.ends[to].quic.is_none() {
            let saved = self.take_saved(to, now);
            let end = &mut self.ends[to];
            let mut quic = Connection::listen(&self.configs[end.config], end.seed, saved);
            if end.trace.is_some() {
                quic.start_log();
            }
            end.quic = Some(Box::new(quic));
        }
        if let Some(quic) = &mut self.ends[to].quic {
            quic.receive_from(now, ecn, payload, address);
        }
    }

    /// Gives the next datagram to send.
    pub fn poll_transmit(&mut self, id: QuicEndId, now: Instant) -> Option<Sent> {
        let end = &mut self.ends[id];
        end.open_waiting();
        let datagram = end.quic.as_mut()?.poll_transmit(now)?;
        end.sent += datagram.fresh;
        Some(Sent {
            ecn: datagram.ecn,
            len: datagram.payload.len() as u32 + self.configs[end.config].config().udp_header,
            has_data: datagram.has_data,
            is_repeated: datagram.is_repeated,
            position: (datagram.fresh > 0).then_some(end.sent),
            address: datagram.address,
            payload: datagram.payload,
        })
    }

    /// Handles a scheduled timer; true if it has gone off.
    pub fn on_timer(&mut self, id: QuicEndId, clock: &mut Clock) -> bool {
        let (end, now) = (&mut self.ends[id], clock.now());
        if !end.timer.end(now) {
            return false;
        }
        let Some(quic) = &mut end.quic else { return false };
        let is_due = quic.poll_timeout().is_some_and(|at| at <= now);
        if is_due {
            quic.handle_timeout(now);
        } else {
            self.arm(id, clock);
        }
        is_due
    }

    /// Schedules an end's timer. A timer that moves later stays scheduled, and is checked when it goes off. A new RTT sample
    /// can move a probe timeout into the past: then it is due now.
    pub fn arm(&mut self, id: QuicEndId, clock: &mut Clock) {
        let end = &mut self.ends[id];
        if let Some(at) = end.quic.as_mut().and_then(|quic| quic.poll_timeout()).map(|at| at.max(clock.now()))
            && end.timer.set(at)
        {
            clock.at(at, Event::QuicTimer(id));
        }
    }

    /// Gives up one end of a connection; false if it was over already.
    pub fn abort(&mut self, id: QuicEndId, now: Instant) -> bool {
        self.ends[id].quic.as_mut().is_some_and(|quic| quic.abort(now))
    }

    /// Moves a client to another address; false if that is not possible.
    pub fn migrate(&mut self, client: QuicEndId, now: Instant) -> bool {
        self.ends[client].quic.as_mut().is_some_and(|quic| quic.migrate(now))
    }

    /// Forgets the saved paths from and to hosts, whose addresses have changed (RFC 9959, section 3.1).
    pub fn forget_paths(&mut self, has: impl Fn(u32) -> bool) {
        self.saved.retain(|(from, to, _), _| !has(*from) && !has(*to));
    }

    /// Configuration of an end.
    pub fn config(&self, id: QuicEndId) -> &Config {
        self.configs[self.ends[id].config].config()
    }

    /// True if both ends are over, or the connection never began.
    pub fn is_over(&self, sender: QuicEndId) -> bool {
        both(sender).into_iter().all(|id| self.ends[id].quic.as_ref().is_none_or(|quic| quic.is_over()))
    }
}

impl QuicEnd {
    fn key(&self) -> PathKey {
        (self.hosts.0, self.hosts.1, self.config.index())
    }

    /// Opens streams for requests that wait, as far as the peer allows.
    fn open_waiting(&mut self) {
        let Some(quic) = &mut self.quic else { return };
        while self.waiting.0 > 0
            && let Some(stream) = quic.open()
        {
            self.waiting.0 -= 1;
            quic.write(stream, self.waiting.1);
            quic.finish(stream);
        }
    }

    /// Sends a packet of a source in an unreliable datagram, labelled with the time at which it was due; before the
    /// handshake it waits. Returns false if it is too long, or too many wait.
    pub fn send_datagram(&mut self, payload: u64, now: Instant) -> bool {
        if !self.is_established() {
            self.early.push((payload, now));
            return true;
        }
        self.quic.as_mut().is_some_and(|quic| quic.send_datagram(payload as usize, now.as_nanos()))
    }

    /// Sends the datagrams that have waited for the handshake; yields the times of those that do not fit.
    pub fn send_early(&mut self) -> Vec<Instant> {
        if self.early.is_empty() || !self.is_established() {
            return Vec::new();
        }
        let early = std::mem::take(&mut self.early);
        early
            .into_iter()
            .filter(|(bytes, due)| !self.send_datagram(*bytes, *due))
            .map(|(_, due)| due)
            .collect()
    }

    /// Takes the datagrams that have arrived: when each was due, and its length [bytes].
    pub fn take_datagrams(&mut self) -> Vec<(Instant, u64)> {
        let time = |label| Instant::ZERO + Duration::from_nanos(label);
        let Some(quic) = &mut self.quic else { return Vec::new() };
        quic.take_datagrams().map(|(label, bytes)| (time(label), bytes)).collect()
    }

    pub fn failed(&self) -> bool {
        self.quic.as_ref().is_some_and(|quic| quic.failed())
    }

    /// True if it is a client that has left its address with this number.
    pub fn has_left(&self, address: u32) -> bool {
        self.quic.as_ref().is_some_and(|quic| quic.has_left(address))
    }

    /// True if it opened the connection.
    pub fn is_client(&self) -> bool {
        self.quic.as_ref().is_some_and(|quic| quic.is_client())
    }

    /// Destination connection id of the client's first packet.
    pub fn original_destination(&self) -> [u8; 8] {
        bentpipe_quic::original_destination(self.seed)
    }

    /// Takes what its log has noted, with the current state.
    pub fn take_notes(&mut self, now: Instant) -> Option<std::vec::Drain<'_, (Instant, Note)>> {
        let quic = self.quic.as_mut()?;
        quic.log_state(now);
        quic.take_notes()
    }

    /// Limit of its sending; `None` before the handshake is complete.
    pub fn limit(&self) -> Option<Limit> {
        self.quic.as_ref()?.limit()
    }

    pub fn stats(&self) -> Stats {
        self.quic.as_ref().map_or_else(Stats::default, |quic| quic.stats())
    }
}

/// The first stream of the connection; objects of HTTP/3 have one each.
impl ByteStream for QuicEnd {
    fn is_established(&self) -> bool {
        self.quic.as_ref().is_some_and(|quic| quic.is_established())
    }

    fn greet(&mut self) -> bool {
        self.is_established() && !std::mem::replace(&mut self.is_greeted, true)
    }

    fn read_all(&mut self) -> u64 {
        let Some(quic) = &mut self.quic else { return 0 };
        let mut bytes = 0;
        for stream in 0..quic.streams() {
            let readable = quic.readable(stream);
            quic.read(stream, readable);
            bytes += readable;
        }
        bytes
    }

    fn write(&mut self, bytes: u64) {
        let Some(quic) = &mut self.quic else { return };
        if quic.streams() > 0 || quic.open().is_some() {
            quic.write(0, bytes);
        }
    }

    fn close(&mut self) {
        if let Some(quic) = &mut self.quic {
            quic.finish(0);
        }
    }

    fn peer_closed(&self) -> bool {
        self.quic.as_ref().is_some_and(|quic| quic.peer_finished(0))
    }

    fn advice(&self, now: Instant) -> Option<Rate> {
        self.quic.as_ref()?.advice(now)
    }

    fn request_objects(&mut self, count: u64, request_size: u64) {
        self.waiting = (self.waiting.0 + count, request_size);
        self.open_waiting();
    }

    fn answer_objects(
        &mut self,
        request_size: u64,
        sizes: &[u64],
        priority: Option<impl Fn(usize) -> Priority>,
    ) {
        let Some(quic) = &mut self.quic else { return };
        // Requests have one length, so that streams complete about in their order; the first that is not lets others wait.
        while self.answered < quic.streams()
            && quic.readable(self.answered) >= request_size
            && let Some(size) = sizes.get(self.answered - self.answered_before)
        {
            quic.read(self.answered, request_size);
            if let Some(priority) = &priority {
                quic.prioritize(self.answered, priority(self.answered - self.answered_before));
            }
            quic.write(self.answered, *size);
            quic.finish(self.answered);
            self.answered += 1;
        }
    }

    fn has_objects(&self, count: usize) -> bool {
        let streams = self.requested_before..self.requested_before + count;
        self.quic.as_ref().is_some_and(|quic| streams.into_iter().all(|stream| quic.peer_finished(stream)))
    }
}

impl std::ops::Index<QuicEndId> for QuicEnds {
    type Output = QuicEnd;
    fn index(&self, id: QuicEndId) -> &QuicEnd {
        &self.ends[id]
    }
}

impl std::ops::IndexMut<QuicEndId> for QuicEnds {
    fn index_mut(&mut self, id: QuicEndId) -> &mut QuicEnd {
        &mut self.ends[id]
    }
}
