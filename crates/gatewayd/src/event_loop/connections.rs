//! Relayed connections: opening, moving bytes in turn, ending, and the limits.

use std::io;
use std::net::{SocketAddr, TcpStream};

use bentpipe_queue::{FlowEvent, FlowId, Packet};
use bentpipe_spacelink::{Open, PeerId, Spacelink, StreamKey};
use nix::sys::epoll::EpollFlags;

use super::Daemon;
use super::gateway_host::Item;
use super::sources::{Generation, Source};
use crate::observe::cause::Cause;
use crate::observe::log;
use crate::relay::RelayId;
use crate::relay::admission::{Decision, Load};
use crate::relay::connection::{Input, Relay};
use crate::sys;

/// Connections served in one turn.
const MOST_SERVED: usize = 64;
/// Connections accepted in one turn.
const MOST_ACCEPTED: usize = 64;

impl Daemon {
    // ----- opening --------------------------------------------------------------------------------------------

    /// Accepts connections of users.
    pub(super) fn accept(&mut self, listener: u8) {
        for _ in 0..MOST_ACCEPTED {
            let Some(listener) = self.admission.listeners.get(usize::from(listener)) else { return };
            let (socket, client, server) = match sys::accept(listener) {
                Ok(accepted) => accepted,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) if concerns_one_connection(&e) => {
                    self.observer.counters.refused += 1;
                    continue;
                }
                Err(_) => {
                    // Most likely no descriptor is left. New connections bypass the PEP, and those that wait here do so
                    // until the next maintenance, or the loop would be woken for them again and again.
                    self.observer.counters.refused += 1;
                    self.set_bypass(true);
                    self.listen(false);
                    return;
                }
            };
            let stream = self.terminals.of_client(client.ip());
            let stream = stream.and_then(|peer| self.spacelink.hub.open(peer, &Open { client, server }));
            let Some(key) = stream else {
                self.observer.counters.refused += 1;
                self.observer.connection_reset(Cause::Limit, client, server, "no stream");
                sys::abort(socket);
                continue;
            };
            self.open_relay(key, [client, server], client, socket, true);
        }
        self.update_bypass();
    }

    /// Waits for new connections, or stops waiting.
    pub(super) fn listen(&mut self, on: bool) {
        if std::mem::replace(&mut self.admission.listening, on) == on {
            return;
        }
        for (index, listener) in (0..).zip(&self.admission.listeners) {
            let done = if on {
                self.sources.add(listener, Source::Listener(index), EpollFlags::EPOLLIN)
            } else {
                self.sources.remove(listener)
            };
            self.observer.counters.faults += u64::from(done.is_err());
        }
    }

    /// Connects to a server for a stream that the peer opened.
    pub(super) fn connect(&mut self, key: StreamKey, header: Open) {
        let Open { client, server } = header;
        if self.terminals.of_client(client.ip()) != Some(key.peer()) {
            self.observer.counters.refused += 1;
            self.observer.connection_reset(
                Cause::Limit,
                client,
                server,
                "the client is not behind this terminal",
            );
            return self.spacelink.hub.reset(key);
        }
        self.admission.unchecked = true;
        self.check_room(key.peer());
        if self.admission.is_exhausted(self.relays.open()) {
            self.observer.counters.refused += 1;
            self.observer.connection_reset(Cause::Limit, client, server, "limits.connections");
            return self.spacelink.hub.reset(key);
        }
        // The peer has accepted its client already, so the connection waits for those before it.
        if !self.admission.may_connect(self.relays.connecting()) {
            return self.admission.waiting.push_back((key, header));
        }
        match sys::connect_as(client, server, &self.tcp_options) {
            Ok((socket, seen)) => self.open_relay(key, [seen, server], client, socket, false),
            Err(e) => {
                self.observer.counters.unreachable += 1;
                self.observer.connection_reset(Cause::of(&e, false), client, server, &e.to_string());
                self.spacelink.hub.reset(key);
            }
        }
    }

    /// Connects to servers that had to wait until fewer connections are half-open.
    pub(super) fn connect_waiting(&mut self) {
        if std::mem::take(&mut self.admission.unchecked) {
            self.update_bypass();
        }
        while self.admission.may_connect(self.relays.connecting())
            && let Some((key, header)) = self.admission.waiting.pop_front()
        {
            self.connect(key, header);
        }
    }

    /// Relays between a stream and a socket with these `ends`; `origin` is the client's address at its own host.
    fn open_relay(
        &mut self,
        key: StreamKey,
        ends: [SocketAddr; 2],
        origin: SocketAddr,
        socket: TcpStream,
        connected: bool,
    ) {
        let (id, [client, server]) = (self.relays.vacant(), ends);
        let generation = self.relays.next_generation();
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
        if let Err(e) = self.sources.add(&socket, Source::Relay { id, generation }, flags) {
            self.observer.counters.refused += 1;
            self.observer.connection_reset(Cause::Limit, origin, server, e.desc());
            self.spacelink.hub.reset(key);
            return sys::abort(socket);
        }
        // If this end is killed, its host must not take the data so far for everything.
        sys::reset_when_closed(&socket, true);
        let segment = Relay::segment_of(&socket, connected);
        let user = self.relays.enter_user(client.ip());
        let buffer = (self.memory.open(id, user, segment), self.memory.ring());
        let mut relay = Relay::new(key, ends, (socket, connected), buffer, generation, self.now);
        relay.origin = origin;
        if connected {
            // A user's SYN, which came before there was a socket, is not acknowledged here.
            let syn = self.host.senders.unacknowledged(self.flows.connection(client, server));
            relay.first_seq = syn.map(|seq| seq.wrapping_add(1));
        }
        self.relays.insert(Box::new(relay));
        self.observer.counters.opened += 1;
        let flow = self.flows.tcp_flow(client, server);
        self.host.with(key.peer(), |gateway, at| gateway.flow(flow, FlowEvent::Opened, at));
        self.relays.mark_ready(id);
    }

    // ----- bytes, in turn -------------------------------------------------------------------------------------

    /// Notes events of a relay's socket.
    pub(super) fn on_socket(&mut self, id: RelayId, generation: Generation, events: EpollFlags) {
        if self.relays.get(id).is_some_and(|relay| relay.generation == generation) {
            self.relays.update(id, |relay| relay.on_events(events));
        }
    }

    /// Serves connections in the ready list, each a piece.
    pub(super) fn serve_relays(&mut self) {
        for _ in 0..MOST_SERVED.min(self.relays.ready()) {
            let Some(id) = self.relays.next_ready() else { return };
            match self.serve_relay(id) {
                Ok(true) => self.relays.mark_ready(id),
                Ok(false) => {}
                Err(e) => self.fail_with(id, &e),
            }
        }
    }

    /// Moves a piece each way. Returns true if there is more to do at once.
    fn serve_relay(&mut self, id: RelayId) -> io::Result<bool> {
        let Some(relay) = self.relays.get_mut(id) else { return Ok(false) };
        if relay.may_be_connected() {
            if let Some(e) = relay.connect_error()? {
                self.observer.counters.unreachable += 1;
                return Err(e);
            }
            relay.set_connected();
            self.relays.count_connected();
        }
        let Some(relay) = self.relays.get_mut(id).filter(|relay| relay.is_connected()) else {
            return Ok(false);
        };
        let (bytes, inward) = relay.move_inward(&mut self.spacelink.hub, &mut self.scratch, self.now);
        self.observer.counters.written_bytes += bytes;
        let inward = inward?;
        let outward = self.read_relay(id)?;
        Ok(inward || outward)
    }

    /// Reads a piece from a relay's socket for the PEP. Returns true if there is more to read at once.
    fn read_relay(&mut self, id: RelayId) -> io::Result<bool> {
        let Some(relay) = self.relays.get_mut(id).filter(|relay| relay.is_readable()) else {
            return Ok(false);
        };
        let most = match self.memory.readable(id, relay) {
            Ok(most) => most,
            Err(reason) => {
                self.memory.wait(id, relay, reason);
                return Ok(false);
            }
        };
        let read = match relay.read(most, &mut self.scratch, self.now)? {
            Input::Bytes(read) => read,
            Input::Nothing => return Ok(false),
            Input::Again => return Ok(true),
            Input::End => {
                relay.finish_stream(&mut self.spacelink.hub);
                return Ok(false);
            }
        };
        self.observer.counters.read_bytes += read as u64;
        self.memory.take(id, read as u64);
        let key = relay.key;
        if let Some(first) = relay.first_seq {
            let ack = first.wrapping_add(relay.out.read() as u32);
            self.host.senders.acknowledged(self.flows.connection(relay.client, relay.server), ack, self.now);
        }
        let more = relay.is_readable();
        let item = self.host.insert(Item::Read { key: relay.key, bytes: read as u64 });
        let len = u32::try_from(read).unwrap_or(u32::MAX);
        let pkt = Packet { arrival: self.host.at, ..Packet::new(len, FlowId(0), item.handle()) };
        self.host.with(key.peer(), |gateway, at| gateway.process(pkt, at));
        Ok(more)
    }

    // ----- the end --------------------------------------------------------------------------------------------

    fn fail_with(&mut self, id: RelayId, error: &io::Error) {
        let Some(relay) = self.relays.get(id) else { return };
        let cause = Cause::of(error, relay.is_connected());
        self.fail(id, cause, &error.to_string());
    }

    /// Resets a connection at both ends.
    pub(super) fn fail(&mut self, id: RelayId, cause: Cause, why: &str) {
        let Some(key) = self.relays.get(id).map(|relay| relay.key) else { return };
        self.spacelink.hub.reset(key);
        self.abort(id, cause, why);
    }

    /// Resets the connection of a stream that the peer reset, or lost.
    pub(super) fn on_stream_reset(&mut self, key: StreamKey, cause: Cause) {
        if let Some(id) = self.relays.id(key) {
            self.abort(id, cause, "");
        }
        self.admission.forget(key);
    }

    /// Removes the connection of a stream that both ends have closed.
    pub(super) fn on_stream_closed(&mut self, key: StreamKey) {
        if let Some(id) = self.relays.id(key) {
            self.observer.counters.closed += 1;
            if let Some(socket) = self.remove(id) {
                sys::reset_when_closed(&socket, false);
            }
        }
    }

    fn abort(&mut self, id: RelayId, cause: Cause, why: &str) {
        let Some(relay) = self.relays.get(id) else { return };
        self.observer.counters.reset += 1;
        self.observer.connection_reset(cause, relay.origin, relay.server, why);
        self.remove(id);
    }

    /// Removes a connection; its socket is the caller's.
    fn remove(&mut self, id: RelayId) -> Option<TcpStream> {
        let (relay, is_last) = self.relays.remove(id)?;
        let (client, server, pool, peer) = (relay.client, relay.server, relay.pool, relay.key.peer());
        let (socket, out) = relay.into_parts();
        self.chunks.remove(peer, out.in_flight());
        self.memory.close(id, out.held());
        if is_last {
            self.host.senders.forget(self.flows.connection(client, server));
            self.interceptor.windows.forget(client, server);
            let flow = self.flows.tcp_flow(client, server);
            self.host.with(peer, |gateway, at| gateway.flow(flow, FlowEvent::Closed, at));
        }
        self.memory.recycle(out.ring);
        self.memory.wake_memory_waiters(&mut self.relays);
        self.memory.wake_buffer_waiters(pool, &mut self.relays);
        self.chunks.forget_ended(peer, |key| self.relays.id(key).is_some());
        // When the peer is lost, the connections that wait end as well.
        if self.spacelink.hub.is_peer_up(peer) {
            self.serve_window(peer);
        }
        Some(socket)
    }

    /// Resets connections that were idle for too long, and those to servers that do not answer.
    pub(super) fn reset_idle(&mut self) {
        let (idle, connect) = (self.config.tcp.idle_timeout.time(), self.config.tcp.connect_timeout.time());
        for id in self.relays.ids() {
            let Some(relay) = self.relays.get(id) else { continue };
            if relay.unanswered(self.now).is_some_and(|time| time > connect) {
                self.observer.counters.unreachable += 1;
                self.fail(id, Cause::Unanswered, "tcp.connect_timeout");
            } else if relay.idle(self.now) > idle {
                self.fail(id, Cause::Idle, "tcp.idle_timeout");
            }
        }
    }

    /// Resets all connections.
    pub(super) fn reset_all(&mut self) {
        for id in self.relays.ids() {
            self.fail(id, Cause::Stopped, "");
        }
    }

    /// Tells a terminal that it has as many connections as it may have, or room again.
    pub(super) fn check_room(&mut self, peer: PeerId) {
        let Some(most) = self.config.terminals.as_ref().map(|terminals| terminals.connections as usize)
        else {
            return;
        };
        let streams = self.spacelink.hub.link(peer).map_or(0, Spacelink::streams);
        if let Some(full) = self.terminals.count_streams(peer, streams, most)
            && let Some(link) = self.spacelink.hub.link_mut(peer)
        {
            link.set_full(full || self.admission.reported_full());
        }
    }

    // ----- limits ---------------------------------------------------------------------------------------------

    /// Checks the listeners for a SYN flood.
    pub(super) fn check_syn_flood(&mut self) {
        if self.admission.check_syn_flood(self.now) {
            let problem = "a listener's queue of half-open connections overflowed";
            log::warn("syn_flood", &[("problem", problem.into())]);
        }
    }

    /// Bypasses the PEP while the peer is down or a limit is reached at either end.
    pub(super) fn update_bypass(&mut self) {
        let open = self.relays.open();
        let is_far = self.admission.is_far_from_handshakes(open);
        let half_open = if is_far { 0 } else { self.survey().half_open };
        let load = Load { open, half_open, memory: self.memory.buffers().occupied() };
        match self.admission.decide(load, self.steering.up, self.now) {
            None => {}
            Some(Decision::Bypass(on)) => self.set_bypass(on),
            Some(Decision::ReportFull(full)) => self.report_full(full),
        }
    }

    /// Bypasses the PEP for new connections, or ends that. While an earlier change of the rules is under way nothing
    /// happens; the next check tries again.
    fn set_bypass(&mut self, on: bool) {
        if !self.rules_settled() {
            return;
        }
        if let Err(e) = self.steering.bypass(on) {
            self.observer.fault(&format!("rules: {e}"));
        }
    }

    /// Looks at all connections.
    pub(super) fn survey(&self) -> Survey {
        let mut survey = Survey::default();
        self.relays.iter().for_each(|(id, relay)| self.look_at(id, relay, &mut survey));
        survey
    }

    /// Looks at the connections of each peer, by its number. Those without connections may be missing at the end.
    pub(super) fn surveys(&self) -> Vec<Survey> {
        let mut surveys = Vec::new();
        for (id, relay) in self.relays.iter() {
            let index = relay.key.peer().index();
            if surveys.len() <= index {
                surveys.resize(index + 1, Survey::default());
            }
            self.look_at(id, relay, &mut surveys[index]);
        }
        surveys
    }

    fn look_at(&self, id: RelayId, relay: &Relay, survey: &mut Survey) {
        survey.half_open += u64::from(!relay.is_open());
        survey.full_buffers += u64::from(self.memory.buffers().room(id.0) == 0);
        survey.window_limited += u64::from(self.chunks.is_stream_limited(&relay.out));
        survey.in_flight += relay.out.under_way();
        survey.buffered += relay.out.held();
    }
}

/// True for errors of accept(2) that belong to the connection that it would return: those of its network, which Linux passes on, and
/// those of a client that has gone or that a firewall refuses.
fn concerns_one_connection(error: &io::Error) -> bool {
    use nix::libc;
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNABORTED
                | libc::EINTR
                | libc::EPERM
                | libc::EPROTO
                | libc::ENETDOWN
                | libc::ENETUNREACH
                | libc::EHOSTDOWN
                | libc::EHOSTUNREACH
                | libc::ENONET
                | libc::ENOPROTOOPT
                | libc::EOPNOTSUPP
        )
    )
}

/// Result of a look at all connections.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Survey {
    /// Connections that are not open at both ends yet.
    pub half_open: u64,
    /// Connections with a full buffer.
    pub full_buffers: u64,
    /// Connections held back by the window of their stream.
    pub window_limited: u64,
    /// Bytes written to streams and not delivered yet.
    pub in_flight: u64,
    /// Bytes held by the PEP.
    pub buffered: u64,
}

impl Survey {
    /// The sum of two.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            half_open: self.half_open + other.half_open,
            full_buffers: self.full_buffers + other.full_buffers,
            window_limited: self.window_limited + other.window_limited,
            in_flight: self.in_flight + other.in_flight,
            buffered: self.buffered + other.buffered,
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::libc;

    use super::*;

    /// accept(2): errors of the network are to be treated like EAGAIN. Others stay until descriptors or memory are free.
    #[test]
    fn errors_of_one_connection_do_not_stop_the_listener() {
        for (errno, expected) in [
            (libc::EHOSTUNREACH, true),
            (libc::ECONNABORTED, true),
            (libc::EPERM, true),
            (libc::EMFILE, false),
            (libc::ENFILE, false),
            (libc::ENOBUFS, false),
            (libc::ENOMEM, false),
            (libc::EBADF, false),
        ] {
            assert_eq!(concerns_one_connection(&io::Error::from_raw_os_error(errno)), expected, "{errno}");
        }
    }
}
