//! Relayed connections: a socket here, a stream to the far end.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use bentpipe_gateway::Sharing;
use bentpipe_queue::{FlowEvent, Packet, Tcp};
use bentpipe_units::{Duration, Instant};
use nix::sys::epoll::{EpollEvent, EpollFlags};

use super::{Daemon, HANDSHAKE, Item, MOST_SERVED, token};
use crate::config::Role;
use crate::observe::cause::Cause;
use crate::observe::log;
use crate::relay::pep::Outbound;
use crate::relay::ring::Ring;
use crate::sys;
use bentpipe_spacelink::{Open, StreamKey};

/// Bytes moved at once for a connection, before others have their turn.
pub const PIECE: usize = 64 << 10;
/// New connections taken in one turn.
const MOST_ACCEPTED: usize = 64;
/// Connections beyond the limit that are split all the same: those that came before the rule which lets them go by stood.
pub(super) const SPARE: u32 = 256;
/// Rings kept for later connections, and the largest that is [bytes].
const SPARE_RINGS: usize = 256;
const LARGEST_SPARE: usize = 256 << 10;
/// What a connection may hold however much others do, so that none waits for those that stand still [bytes].
const LEAST: u64 = 8 * SEGMENT;
/// Payload of a segment, before the kernel knows better [bytes].
const SEGMENT: u64 = 1400;

/// A connection.
pub struct Relay {
    pub key: StreamKey,
    pub client: SocketAddr,
    pub server: SocketAddr,
    /// The buffer that it uses, by the number of its user or its own.
    pool: u32,
    generation: u32,
    socket: TcpStream,
    /// Whether the socket has come about.
    connected: bool,
    readable: bool,
    writable: bool,
    /// Whether the other side's FIN or an error may be behind what is read.
    hung_up: bool,
    /// Whether it stands in line.
    listed: bool,
    /// Whether it waits for room in its buffer.
    thirsty: bool,
    /// … or until the PEP may hold more in all.
    starved: bool,
    out: Outbound,
    /// When bytes that are ready for the transmit queue came.
    came: Instant,
    /// What was read from the stream, and the socket did not take.
    inward: Ring,
    pub far_readable: bool,
    /// The far end has shown that it is connected, too: by data, or by what it has delivered.
    pub answered: bool,
    /// The far end will send no more, and all of it was read.
    pub far_ended: bool,
    /// The socket was told so.
    shut: bool,
    opened: Instant,
    moved: Instant,
    /// Sequence number of the server's first byte.
    pub first: Option<u32>,
    /// What the server had under way when its last packet came [bytes].
    pub window: u32,
}

/// What shows when all connections are looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Connections not yet open at both ends.
    pub half_open: u64,
    /// … whose buffer is full.
    pub full: u64,
    /// … that have something to send, and the window of their stream is full.
    pub held: u64,
    /// Bytes given to streams, and not delivered yet.
    pub under_way: u64,
}

impl Daemon {
    // ----- opening -------------------------------------------------------------------------------------------

    /// Takes new connections of users.
    pub(super) fn accept(&mut self, listener: usize) {
        for _ in 0..MOST_ACCEPTED {
            let Some(listener) = self.listeners.get(listener) else { return };
            let (socket, client, server) = match sys::accept(listener) {
                Ok(accepted) => accepted,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(_) => {
                    // No descriptors left, most likely: those that come go by, and those that wait do so until the next look,
                    // or the loop would be woken for them again and again.
                    self.counters.refused += 1;
                    self.bypass(true);
                    self.listen(false);
                    return;
                }
            };
            let Some(key) = self.space.link.open(&Open { client, server }) else {
                self.counters.refused += 1;
                self.tell_reset(Cause::Limit, client, server, "no stream");
                sys::abort(socket);
                continue;
            };
            self.enter(key, client, server, socket, true);
        }
        self.mind_limits();
    }

    /// Hears of new connections, or not.
    pub(super) fn listen(&mut self, on: bool) {
        if std::mem::replace(&mut self.listening, on) == on {
            return;
        }
        for (number, listener) in (0..).zip(&self.listeners) {
            let event = EpollEvent::new(EpollFlags::EPOLLIN, token::LISTENER - number);
            let done = if on { self.epoll.add(listener, event) } else { self.epoll.delete(listener) };
            self.counters.faults += u64::from(done.is_err());
        }
    }

    /// The far end asks for a connection to a server.
    pub(super) fn reach(&mut self, key: StreamKey, header: Open) {
        let Open { client, server } = header;
        self.entered = true;
        if self.open >= self.most.saturating_add(SPARE) {
            self.counters.refused += 1;
            self.tell_reset(Cause::Limit, client, server, "limits.connections");
            return self.space.link.reset(key);
        }
        // The far end has taken its user's connection already: it waits for those before it.
        if self.opening >= self.config.limits.handshakes.0 {
            return self.unreached.push_back((key, header));
        }
        match sys::connect_as(client, server, &self.options) {
            Ok(socket) => self.enter(key, client, server, socket, false),
            Err(e) => {
                self.counters.unreachable += 1;
                self.tell_reset(Cause::of(&e, false), client, server, &e.to_string());
                self.space.link.reset(key);
            }
        }
    }

    /// Goes on with connections that had to wait until fewer are half-open.
    pub(super) fn reach_on(&mut self) {
        if std::mem::take(&mut self.entered) {
            self.mind_limits();
        }
        while self.opening < self.config.limits.handshakes.0
            && let Some((key, header)) = self.unreached.pop_front()
        {
            self.reach(key, header);
        }
    }

    fn enter(
        &mut self,
        key: StreamKey,
        client: SocketAddr,
        server: SocketAddr,
        socket: TcpStream,
        connected: bool,
    ) {
        let slot = key.slot();
        self.leave(slot as u32);
        if self.relays.len() <= slot {
            self.relays.resize_with(slot + 1, || None);
        }
        self.generation = self.generation.wrapping_add(1) & 0x7fff_ffff;
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
        let token = u64::from(self.generation) << 32 | slot as u64;
        if let Err(e) = self.epoll.add(&socket, EpollEvent::new(flags, token)) {
            self.counters.refused += 1;
            self.tell_reset(Cause::Limit, client, server, e.desc());
            self.space.link.reset(key);
            return sys::abort(socket);
        }
        let segment = if connected { sys::segment(&socket) } else { SEGMENT };
        let user = self.users.enter(client.ip());
        self.buffers.open(slot as u32, user, segment);
        let pool = match self.config.gateway.pep.buffer_per {
            Sharing::PerUser => user,
            Sharing::PerConnection => slot as u32,
        };
        if self.thirsty.len() <= pool as usize {
            self.thirsty.resize_with(pool as usize + 1, VecDeque::new);
        }
        self.relays[slot] = Some(Box::new(Relay {
            key,
            client,
            server,
            pool,
            generation: self.generation,
            socket,
            connected,
            readable: false,
            writable: connected,
            hung_up: false,
            listed: false,
            thirsty: false,
            starved: false,
            out: Outbound::new(self.rings.pop().unwrap_or_default()),
            came: self.now,
            inward: Ring::default(),
            far_readable: true,
            // A gateway is asked by a terminal that has its connection.
            answered: !connected,
            far_ended: false,
            shut: false,
            opened: self.now,
            moved: self.now,
            first: None,
            window: 0,
        }));
        self.pairs.remove(pair(client, server));
        self.pairs.get_or_insert_with(pair(client, server), || slot as u32);
        self.open += 1;
        self.opening += u32::from(!connected);
        self.counters.opened += 1;
        let flow = self.flow(client, server, bentpipe_packet::TCP);
        self.gateway.flow(flow, FlowEvent::Opened, self.at);
        self.list(slot as u32);
    }

    // ----- in turn -------------------------------------------------------------------------------------------

    /// A socket has news.
    pub(super) fn note(&mut self, token: u64, events: EpollFlags) {
        let slot = token as u32;
        let Some(relay) = self.relay_mut(slot) else { return };
        if u64::from(relay.generation) != token >> 32 {
            return;
        }
        let over = EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP;
        relay.readable |= events.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP | over);
        relay.writable |= events.intersects(EpollFlags::EPOLLOUT | over);
        relay.hung_up |= events.intersects(EpollFlags::EPOLLRDHUP | over);
        self.list(slot);
    }

    /// Does something to the connection of a stream, and puts it in line.
    pub(super) fn with_key(&mut self, key: StreamKey, change: impl FnOnce(&mut Relay)) {
        if self.keyed(key).is_some() {
            self.with_slot(key.slot() as u32, change);
        }
    }

    fn with_slot(&mut self, slot: u32, change: impl FnOnce(&mut Relay)) {
        if let Some(relay) = self.relay_mut(slot) {
            change(relay);
            self.list(slot);
        }
    }

    pub(super) fn relay_mut(&mut self, slot: u32) -> Option<&mut Relay> {
        self.relays.get_mut(slot as usize)?.as_deref_mut()
    }

    fn keyed(&mut self, key: StreamKey) -> Option<&mut Relay> {
        self.relay_mut(key.slot() as u32).filter(|relay| relay.key == key)
    }

    fn list(&mut self, slot: u32) {
        let Some(relay) = self.relays.get_mut(slot as usize).and_then(Option::as_deref_mut) else { return };
        if !std::mem::replace(&mut relay.listed, true) {
            self.ready.push_back(slot);
        }
    }

    /// Serves connections that stand in line, each a piece.
    pub(super) fn serve(&mut self) {
        for _ in 0..MOST_SERVED.min(self.ready.len()) {
            let Some(slot) = self.ready.pop_front() else { return };
            // Taken out meanwhile, so that the rest of the daemon can be used beside it.
            let Some(mut relay) = self.relays.get_mut(slot as usize).and_then(Option::take) else { continue };
            relay.listed = false;
            let served = self.serve_one(slot, &mut relay);
            self.relays[slot as usize] = Some(relay);
            match served {
                Ok(true) => self.list(slot),
                Ok(false) => {}
                Err(e) => self.fail_by(slot, &e),
            }
        }
    }

    /// Moves a piece each way; whether there is more to do at once.
    fn serve_one(&mut self, slot: u32, relay: &mut Relay) -> io::Result<bool> {
        if !relay.connected {
            if !relay.writable {
                return Ok(false);
            }
            if let Some(e) = relay.socket.take_error()? {
                self.counters.unreachable += 1;
                return Err(e);
            }
            relay.connected = true;
            self.opening -= 1;
        }
        let inward = self.move_inward(relay)?;
        let outward = self.move_outward(slot, relay)?;
        Ok(inward || outward)
    }

    /// From the stream to the socket.
    fn move_inward(&mut self, relay: &mut Relay) -> io::Result<bool> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let moved = self.move_inward_by(relay, &mut scratch);
        self.scratch = scratch;
        moved
    }

    fn move_inward_by(&mut self, relay: &mut Relay, scratch: &mut [u8]) -> io::Result<bool> {
        let mut moved = 0;
        while relay.writable && !relay.shut {
            let written = if relay.inward.is_empty() {
                if !relay.far_readable || moved >= PIECE {
                    break;
                }
                let read = self.space.link.read(relay.key, scratch);
                relay.far_readable = read == scratch.len();
                if read == 0 {
                    break;
                }
                let written = write(&mut relay.socket, &scratch[..read])?;
                relay.inward.put(&scratch[written..read]);
                written
            } else {
                match relay.inward.drain(&mut relay.socket) {
                    Ok(written) => written,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => 0,
                    Err(e) => return Err(e),
                }
            };
            if written > 0 {
                moved += written;
                relay.moved = self.now;
                self.counters.written_bytes += written as u64;
                self.space.link.delivered(relay.key, written as u64);
            }
            relay.writable = relay.inward.is_empty();
        }
        if relay.far_ended && relay.inward.is_empty() && !relay.shut && relay.connected {
            relay.shut = true;
            // The other side may have gone altogether, which reading will tell.
            let _ = relay.socket.shutdown(Shutdown::Write);
        }
        Ok(relay.writable && relay.far_readable && !relay.shut)
    }

    /// From the socket to the PEP.
    fn move_outward(&mut self, slot: u32, relay: &mut Relay) -> io::Result<bool> {
        if !relay.readable || relay.out.ended {
            return Ok(false);
        }
        let room = self.buffers.room(slot);
        let left = self.memory_left(relay);
        if room > 0 && left == 0 {
            if !std::mem::replace(&mut relay.starved, true) {
                self.starved.push_back(slot);
            }
            return Ok(false);
        }
        if room == 0 {
            // Whoever releases some of it puts this connection in line, after those that wait already.
            if !std::mem::replace(&mut relay.thirsty, true) {
                self.thirsty[relay.pool as usize].push_back(slot);
            }
            return Ok(false);
        }
        let most = self.share(slot, room.min(left));
        let read = match relay.out.ring.fill(&mut relay.socket, most, &mut self.scratch) {
            Ok(read) => read,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                relay.readable = false;
                return Ok(false);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(true),
            Err(e) => return Err(e),
        };
        relay.moved = self.now;
        if read == 0 {
            relay.out.ended = true;
            relay.readable = false;
            self.finish_stream(relay);
            return Ok(false);
        }
        let bytes = read as u64;
        self.counters.read_bytes += bytes;
        relay.out.took(bytes);
        self.buffers.take(slot, bytes);
        if let Some(first) = relay.first {
            let ack = first.wrapping_add(relay.out.read() as u32);
            self.flight.acknowledged(pair(relay.client, relay.server), ack, self.now);
        }
        let handle = self.items.insert(Item::Read { key: relay.key, bytes }) as u32;
        let len = u32::try_from(read).unwrap_or(u32::MAX);
        let pkt = Packet { arrival: self.at, ..Packet::new(len, 0, handle) };
        self.gateway.process(pkt, self.at);
        // Less than asked for means that there is no more, but perhaps the end.
        relay.readable = read == most || relay.hung_up;
        Ok(relay.readable)
    }

    // ----- towards the far end -------------------------------------------------------------------------------

    /// The PEP has finished with bytes.
    pub(super) fn finish_work(&mut self, key: StreamKey, bytes: u64, came: Instant) {
        if let Some(relay) = self.keyed(key) {
            relay.out.processed(bytes);
            relay.came = came;
            self.line_up(key);
        }
    }

    /// Puts into the transmit queue what may go there.
    fn line_up(&mut self, key: StreamKey) {
        loop {
            let (most, window, stream_window) = (self.chunk, self.window, self.stream_window);
            let in_flight = self.in_flight;
            let Some(relay) = self.keyed(key) else { return };
            let Some(bytes) = relay.out.next_chunk(most) else { return };
            if relay.out.in_flight() + bytes > stream_window {
                return;
            }
            if in_flight + bytes > window {
                self.waiting.push(key);
                return;
            }
            let place = relay.out.place();
            let tcp = Tcp { window: relay.window, seq: place as u32, syn: place == 0 };
            let (client, server, came) = (relay.client, relay.server, relay.came);
            relay.out.queue(bytes);
            self.in_flight += bytes;
            let handle = self.items.insert(Item::Chunk { key, bytes }) as u32;
            let len = u32::try_from(bytes + self.header).unwrap_or(u32::MAX);
            let flow = self.flow(client, server, bentpipe_packet::TCP);
            if let Some(recorder) = &mut self.recorder {
                recorder.passed(self.at - came);
            }
            self.gateway.transmit(Packet { tcp: Some(tcp), ..Packet::new(len, flow, handle) }, self.at);
        }
    }

    /// A chunk leaves the transmit queue for the satellite.
    pub(super) fn let_go(&mut self, key: StreamKey, bytes: u64) {
        if let Some(relay) = self.keyed(key) {
            relay.out.pay(bytes);
            self.write_paid(key);
            self.line_up(key);
        }
    }

    /// Gives the stream what was let go.
    pub(super) fn write_paid(&mut self, key: StreamKey) {
        let Some(mut relay) = self.relays.get_mut(key.slot()).and_then(Option::take) else { return };
        if relay.key == key {
            loop {
                let (first, _) = relay.out.payable();
                if first.is_empty() {
                    break;
                }
                let wanted = first.len();
                let written = self.space.link.write(key, first);
                relay.out.wrote(written as u64);
                if written < wanted {
                    break;
                }
            }
            self.finish_stream(&mut relay);
        }
        self.relays[key.slot()] = Some(relay);
    }

    /// Tells the stream that there will be no more, once the last byte has gone.
    fn finish_stream(&mut self, relay: &mut Relay) {
        if relay.out.may_finish() {
            relay.out.finished = true;
            self.space.link.finish(relay.key);
        }
    }

    /// The transmit queue has discarded a chunk: it is sent again, a round trip later, as what is lost on the way is.
    pub(super) fn lose(&mut self, key: StreamKey, bytes: u64) {
        self.counters.lost_chunks += 1;
        let Some(relay) = self.keyed(key) else { return };
        relay.out.lose(bytes);
        self.in_flight -= bytes;
        let wait = self.space.link.stats().round_trip;
        let wait = Duration::from_nanos(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX));
        self.retries.push_back((self.now + wait.max(Duration::from_millis(1)), key, bytes));
    }

    pub(super) fn retry(&mut self) {
        while let Some(&(at, key, bytes)) = self.retries.front()
            && at <= self.now
        {
            self.retries.pop_front();
            if let Some(relay) = self.keyed(key) {
                relay.out.recover(bytes);
                self.line_up(key);
            }
        }
    }

    /// The far end has delivered bytes: there is room for others.
    pub(super) fn acknowledged(&mut self, key: StreamKey, bytes: u64) {
        let slot = key.slot() as u32;
        let now = self.now;
        let Some(relay) = self.keyed(key) else { return };
        relay.answered = true;
        let bytes = relay.out.delivered(bytes);
        relay.moved = now;
        self.watch.delivered(bytes);
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.buffers.release(slot, bytes);
        self.line_up(key);
        for _ in 0..self.waiting.len() {
            if let Some(key) = self.waiting.pop() {
                self.line_up(key);
            }
        }
        let Some(relay) = self.keyed(key) else { return };
        let pool = relay.pool;
        if relay.starved && relay.out.held() < LEAST {
            self.with_slot(slot, |_| {});
        }
        self.feed();
        self.invite(pool);
        if self.buffers.has_control() {
            self.offer_more(slot);
        }
    }

    /// How much a connection may read at once where there is so much room in its buffer: a piece, but no more than its part
    /// of it where others share it, or two segments.
    fn share(&self, slot: u32, room: u64) -> usize {
        let part = (room / self.buffers.sharers(slot).len().max(1) as u64).max(2 * SEGMENT);
        usize::try_from(part.min(room)).unwrap_or(usize::MAX).min(PIECE)
    }

    /// What the PEP may still hold in all, of which this connection may have something in any case [bytes].
    pub(super) fn memory_left(&self, relay: &Relay) -> u64 {
        self.spare_memory().max(LEAST.saturating_sub(relay.out.held()))
    }

    fn spare_memory(&self) -> u64 {
        self.config.limits.memory.0.saturating_sub(self.buffers.occupied())
    }

    /// The PEP may hold more again: as many of those that wait for that may go on as find a piece, the longest first.
    fn feed(&mut self) {
        let mut left = self.spare_memory();
        while left > 0
            && let Some(slot) = self.starved.pop_front()
        {
            left = left.saturating_sub(PIECE as u64);
            self.with_slot(slot, |relay| relay.starved = false);
        }
    }

    /// There is room in a buffer: as many of those that wait for it may go on as find some, the one that has waited longest
    /// first.
    fn invite(&mut self, pool: u32) {
        let Some(mut thirsty) = self.thirsty.get_mut(pool as usize).map(std::mem::take) else { return };
        let mut room = None;
        while let Some(&slot) = thirsty.front() {
            if self.relay_mut(slot).is_some_and(|relay| relay.thirsty && relay.pool == pool) {
                let left = room.unwrap_or_else(|| self.buffers.room(slot));
                if left == 0 {
                    break;
                }
                room = Some(left - self.share(slot, left) as u64);
                self.with_slot(slot, |relay| relay.thirsty = false);
            }
            thirsty.pop_front();
        }
        self.thirsty[pool as usize] = thirsty;
    }

    /// Servers whose connections share a buffer with this one may send more.
    fn offer_more(&mut self, slot: u32) {
        for at in 0..self.buffers.sharers(slot).len() {
            if let Some(&other) = self.buffers.sharers(slot).get(at) {
                self.offer(other);
            }
        }
    }

    // ----- the end -------------------------------------------------------------------------------------------

    /// The socket has failed.
    fn fail_by(&mut self, slot: u32, error: &io::Error) {
        let Some(relay) = self.relay_mut(slot) else { return };
        let cause = Cause::of(error, relay.connected);
        self.fail(slot, cause, &error.to_string());
    }

    /// A connection cannot go on: the far side is told by a reset.
    fn fail(&mut self, slot: u32, cause: Cause, why: &str) {
        let Some(key) = self.relay_mut(slot).map(|relay| relay.key) else { return };
        self.space.link.reset(key);
        self.abort(slot, cause, why);
    }

    /// The far end has reset the stream, or is gone: so is the connection here.
    pub(super) fn far_reset(&mut self, key: StreamKey, cause: Cause) {
        if self.keyed(key).is_some() {
            self.abort(key.slot() as u32, cause, "");
        }
        self.unreached.retain(|(other, _)| *other != key);
    }

    /// All is said and done.
    pub(super) fn closed(&mut self, key: StreamKey) {
        if self.keyed(key).is_some() {
            self.counters.closed += 1;
            self.leave(key.slot() as u32);
        }
    }

    fn abort(&mut self, slot: u32, cause: Cause, why: &str) {
        let Some(relay) = self.relay_mut(slot) else { return };
        let (client, server) = (relay.client, relay.server);
        self.counters.reset += 1;
        self.tell_reset(cause, client, server, why);
        if let Some(socket) = self.leave(slot) {
            sys::abort(socket);
        }
    }

    /// Counts a connection that is reset, and writes it down.
    fn tell_reset(&mut self, cause: Cause, client: SocketAddr, server: SocketAddr, why: &str) {
        self.counters.resets[cause as usize] += 1;
        let write = if cause.is_usual() { log::debug } else { log::info };
        let fields = [
            ("cause", cause.name().into()),
            ("client", client.to_string().into()),
            ("server", server.to_string().into()),
            ("why", why.into()),
        ];
        write("reset", &fields[..fields.len() - usize::from(why.is_empty())]);
    }

    /// Forgets a connection; its socket is the caller's.
    fn leave(&mut self, slot: u32) -> Option<TcpStream> {
        let relay = *self.relays.get_mut(slot as usize)?.take()?;
        let Relay { mut out, socket, client, server, pool, connected, .. } = relay;
        self.in_flight = self.in_flight.saturating_sub(out.in_flight());
        self.buffers.close(slot, out.held());
        self.users.leave(client.ip());
        self.pairs.remove(pair(client, server));
        self.flight.forget(pair(client, server));
        self.windows.forget(client, server);
        let flow = self.flow(client, server, bentpipe_packet::TCP);
        self.gateway.flow(flow, FlowEvent::Closed, self.at);
        self.open -= 1;
        self.opening -= u32::from(!connected);
        out.ring.clear();
        if self.rings.len() < SPARE_RINGS && out.ring.capacity() <= LARGEST_SPARE {
            self.rings.push(out.ring);
        }
        self.feed();
        self.invite(pool);
        Some(socket)
    }

    /// Gives up connections on which nothing has moved for too long, and servers that do not answer.
    pub(super) fn give_up_idle(&mut self) {
        let (idle, connect) = (self.config.tcp.idle_timeout.time(), self.config.tcp.connect_timeout.time());
        for slot in 0..self.relays.len() as u32 {
            let now = self.now;
            let Some(relay) = self.relay_mut(slot) else { continue };
            let silent = now - relay.moved > idle;
            let unanswered = !relay.connected && now - relay.opened > connect;
            if unanswered {
                self.counters.unreachable += 1;
                self.fail(slot, Cause::Unanswered, "tcp.connect_timeout");
            } else if silent {
                self.fail(slot, Cause::Idle, "tcp.idle_timeout");
            }
        }
    }

    /// Handshakes have found the listeners' queues full. Those that the kernel answers with SYN cookies end nowhere, for TPROXY
    /// takes SYNs alone; so all go by until the queues are empty.
    pub(super) fn mind_flood(&mut self) {
        if self.listeners.is_empty() {
            return;
        }
        let beyond = sys::handshakes_beyond();
        if std::mem::replace(&mut self.beyond, beyond) != beyond {
            if self.flooded <= self.now {
                log::warn(
                    "handshakes",
                    &[("problem", "more begun than the kernel keeps, and not ended".into())],
                );
            }
            self.flooded = self.now + HANDSHAKE;
        }
    }

    /// Lets new connections go by while the far end is not there, or as much is in use as may be at either end, until it is less
    /// again. Which go by is for the terminal to say; a gateway tells it.
    pub(super) fn mind_limits(&mut self) {
        let limits = &self.config.limits;
        let most = u64::from(self.most);
        let (handshakes, memory) = (u64::from(limits.handshakes.0), limits.memory.0);
        // A bound, the half-open ones need not be counted each time.
        let half_open =
            if u64::from(self.open) < handshakes - handshakes / 10 { 0 } else { self.seen().half_open };
        let half_open = half_open + self.unreached.len() as u64;
        // What is delivered makes room at once for what waits, so memory that is used up is seldom seen so.
        let filled = [
            (u64::from(self.open), most),
            (half_open, handshakes),
            (self.buffers.occupied(), memory - memory / 10),
        ];
        let is_full = filled.iter().any(|(is, most)| is >= most);
        let has_room = filled.iter().all(|(is, most)| *is < most - most / 10);
        if self.config.role == Role::Gateway {
            if self.up && (is_full && !self.told_full || has_room && self.told_full) {
                self.told_full = is_full;
                self.space.link.tell_full(is_full);
            }
        } else if self.listeners.is_empty() {
            // Nothing is split.
        } else if !self.up || self.far_full || self.flooded > self.now || is_full {
            self.bypass(true);
        } else if has_room {
            self.bypass(false);
        }
    }

    /// Looks at all connections.
    pub(super) fn seen(&self) -> Seen {
        let mut seen = Seen::default();
        for (slot, relay) in (0..).zip(&self.relays) {
            let Some(relay) = relay else { continue };
            let out = &relay.out;
            seen.half_open += u64::from(!(relay.connected && relay.answered));
            seen.full += u64::from(self.buffers.room(slot) == 0);
            let next = out.next_chunk(self.chunk);
            seen.held += u64::from(next.is_some_and(|bytes| out.in_flight() + bytes > self.stream_window));
            seen.under_way += out.under_way();
        }
        seen
    }

    /// Has new connections go by, or not, where no change of the rules is under way; else the next look will do it.
    pub(super) fn bypass(&mut self, on: bool) {
        if !self.is_settled() {
            return;
        }
        if let Some(Err(e)) = self.rules.as_mut().map(|rules| rules.bypass(on)) {
            self.complain(&format!("rules: {e}"));
        }
    }

    /// Resets all.
    pub(super) fn reset_all(&mut self) {
        for slot in 0..self.relays.len() as u32 {
            self.fail(slot, Cause::Stopped, "");
        }
    }
}

fn pair(client: SocketAddr, server: SocketAddr) -> u32 {
    super::judge::pair_number(client, server, bentpipe_packet::TCP)
}

impl Relay {
    /// Bytes that the kernel has, and that have not been read.
    pub fn unread(&self) -> u64 {
        sys::unread(&self.socket)
    }
}

/// Writes what the socket takes.
fn write(socket: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    match socket.write(bytes) {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(0),
        other => other,
    }
}
