//! A gateway's end of the spacelinks to many terminals: one endpoint, and a [`Spacelink`] for each peer.
//!
//! A connection belongs to nobody until TLS has proved the certificate of its other end; then the peer with that certificate
//! takes it over. So a peer may come from any address, and from another one after a while. Each peer has its own streams,
//! windows, credits and counters: what happens to one does not touch the others.
//!
//! Work is proportional to the peers that have some: a peer is polled, asked for datagrams and asked for its timer only after
//! something happened to it.

use std::collections::BTreeSet;

use super::end::{PeerConnection, SharedEndpoint};
use super::*;

/// Connections of one host that are not authenticated, and of all hosts.
const LOBBY_PER_HOST: usize = HALF_OPEN_MOST;
const LOBBY: usize = 512;

/// A peer, and what is to be done for it.
struct Member {
    link: Spacelink,
    /// Time for which it is listed in [`Hub::due`].
    due: Option<Instant>,
    /// True while it is listed to be polled, to send, and to have its timer read.
    to_poll: bool,
    to_send: bool,
    to_time: bool,
    to_charge: bool,
}

/// Owner of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Nobody,
    /// The visitor with this number.
    Lobby(usize),
    Peer(PeerId),
}

/// A connection in the lobby, and what is to be done for it.
struct Visitor {
    connection: PeerConnection,
    /// Time for which it is listed in [`Lobby::due`].
    due: Option<Instant>,
    to_send: bool,
}

/// Connections that are not authenticated yet, or were refused.
struct Lobby {
    config: ServerConfig,
    trusted: keys::Trusted,
    visitors: Slab<Visitor>,
    due: BTreeSet<(Instant, usize)>,
    to_send: VecDeque<usize>,
    responses: VecDeque<(Transmit, Vec<u8>)>,
    /// Reasons of failed attempts, to be reported.
    failed: VecDeque<Reason>,
}

/// One end of the spacelinks to any number of peers.
pub struct Hub {
    endpoint: SharedEndpoint,
    setup: Parameters,
    rate: Option<Rate>,
    /// `None` if the only peer handles its connections itself.
    lobby: Option<Lobby>,
    members: Slab<Member>,
    /// By connection handle.
    owners: Vec<Owner>,
    to_poll: VecDeque<PeerId>,
    to_send: VecDeque<PeerId>,
    to_time: Vec<PeerId>,
    to_charge: Vec<PeerId>,
    due: BTreeSet<(Instant, PeerId)>,
    /// Counters of datagrams that belong to no peer, and of removed peers.
    others: Stats,
    now: Instant,
}

impl Hub {
    /// The hub of one peer, whose end is `link`.
    #[must_use]
    pub fn of(link: Spacelink) -> Self {
        let (endpoint, setup, now) = (link.endpoint.clone(), link.setup, link.now);
        let mut hub = Self::new(endpoint, setup, None, None, now);
        let peer = hub.insert(link);
        debug_assert_eq!(peer, PeerId(0), "the first peer");
        hub
    }

    /// Creates the listening end of the peers that [`Hub::add`] names.
    ///
    /// # Errors
    /// If key and certificate do not match.
    pub fn listen(setup: &Setup, now: Instant) -> Result<Self, KeyError> {
        let trusted = keys::Trusted::default();
        let mut config = ServerConfig::with_crypto(Arc::new(keys::server(&setup.identity, trusted.clone())?));
        config.max_incoming(LOBBY);
        let endpoint = SharedEndpoint::new(setup, Some(&config));
        let lobby = Lobby {
            config,
            trusted,
            visitors: Slab::new(),
            due: BTreeSet::new(),
            to_send: VecDeque::new(),
            responses: VecDeque::new(),
            failed: VecDeque::new(),
        };
        Ok(Self::new(endpoint, setup.parameters(), setup.rate, Some(lobby), now))
    }

    fn new(
        endpoint: SharedEndpoint,
        setup: Parameters,
        rate: Option<Rate>,
        lobby: Option<Lobby>,
        now: Instant,
    ) -> Self {
        Self {
            endpoint,
            setup,
            rate,
            lobby,
            members: Slab::new(),
            owners: Vec::new(),
            to_poll: VecDeque::new(),
            to_send: VecDeque::new(),
            to_time: Vec::new(),
            to_charge: Vec::new(),
            due: BTreeSet::new(),
            others: Stats::default(),
            now,
        }
    }

    // ----- peers ----------------------------------------------------------------------------------------------

    /// Accepts the peer with this certificate from now on.
    pub fn add(&mut self, certificate: &Certificate) -> PeerId {
        let number = PeerId(self.members.vacant_key() as u32);
        let link = Spacelink::member(self.setup, self.endpoint.clone(), number, self.rate, self.now);
        if let Some(lobby) = &self.lobby {
            lobby.trusted.insert(certificate, number);
        }
        self.insert(link)
    }

    fn insert(&mut self, link: Spacelink) -> PeerId {
        let member =
            Member { link, due: None, to_poll: false, to_send: false, to_time: false, to_charge: false };
        let peer = PeerId(self.members.insert(member) as u32);
        self.touch(peer);
        peer
    }

    /// Removes a peer: its connection is closed, and its streams are lost. Returns the events that it still has.
    pub fn remove(&mut self, peer: PeerId, now: Instant) -> Vec<Event> {
        if !self.members.contains(peer.index()) {
            return Vec::new();
        }
        if let Some(lobby) = &mut self.lobby {
            lobby.trusted.remove(peer);
        }
        let Member { mut link, due, .. } = self.members.remove(peer.index());
        if let Some(due) = due {
            self.due.remove(&(due, peer));
        }
        self.to_poll.retain(|other| *other != peer);
        self.to_send.retain(|other| *other != peer);
        self.to_time.retain(|other| *other != peer);
        self.to_charge.retain(|other| *other != peer);
        link.close(now);
        let events = std::iter::from_fn(|| link.poll()).collect();
        self.others = self.others.with(&link.stats());
        // The closed connections say goodbye from the lobby.
        if self.lobby.is_some() {
            for connection in link.take_connections() {
                self.receive_visitor(connection, now);
            }
        }
        events
    }

    /// Takes the certificate that an unknown host showed in the first attempt not taken yet; the host need not have its key.
    /// At most 64 are kept.
    pub fn take_refused(&mut self) -> Option<Certificate> {
        self.lobby.as_ref()?.trusted.take_refused()
    }

    /// All peers.
    pub fn peers(&self) -> impl Iterator<Item = PeerId> {
        self.members.iter().map(|(number, _)| PeerId(number as u32))
    }

    /// The end towards a peer.
    #[must_use]
    pub fn link(&self, peer: PeerId) -> Option<&Spacelink> {
        self.members.get(peer.index()).map(|member| &member.link)
    }

    /// The end towards a peer, to use it.
    pub fn link_mut(&mut self, peer: PeerId) -> Option<&mut Spacelink> {
        self.touch(peer);
        self.members.get_mut(peer.index()).map(|member| &mut member.link)
    }

    /// Opens a stream to a peer, as [`Spacelink::open`].
    pub fn open(&mut self, peer: PeerId, header: &Open) -> Option<StreamKey> {
        self.link_mut(peer)?.open(header)
    }

    /// Writes to a stream, as [`Spacelink::write`].
    pub fn write(&mut self, key: StreamKey, data: &[u8]) -> usize {
        self.link_mut(key.peer()).map_or(0, |link| link.write(key, data))
    }

    /// Finishes a stream, as [`Spacelink::finish`].
    pub fn finish(&mut self, key: StreamKey) {
        if let Some(link) = self.link_mut(key.peer()) {
            link.finish(key);
        }
    }

    /// Resets a stream, as [`Spacelink::reset`].
    pub fn reset(&mut self, key: StreamKey) {
        if let Some(link) = self.link_mut(key.peer()) {
            link.reset(key);
        }
    }

    /// Reads from a stream, as [`Spacelink::read`].
    pub fn read(&mut self, key: StreamKey, out: &mut [u8]) -> usize {
        self.link_mut(key.peer()).map_or(0, |link| link.read(key, out))
    }

    /// Announces delivered bytes, as [`Spacelink::delivered`].
    pub fn delivered(&mut self, key: StreamKey, bytes: u64) {
        if let Some(link) = self.link_mut(key.peer()) {
            link.delivered(key, bytes);
        }
    }

    /// Sends an IP packet to a peer, as [`Spacelink::datagram`].
    ///
    /// # Errors
    /// If it cannot be sent now, or at all.
    pub fn datagram(&mut self, peer: PeerId, packet: &[u8]) -> Result<(), NotSent> {
        self.link_mut(peer).ok_or(NotSent::Down)?.datagram(packet)
    }

    /// Length on the wire of an IP packet to a peer, as [`Spacelink::wire_len`].
    #[must_use]
    pub fn wire_len(&mut self, peer: PeerId, len: u32) -> u32 {
        self.members.get_mut(peer.index()).map_or(len, |member| member.link.wire_len(len))
    }

    /// Sets the rate of the link towards every peer, as [`Spacelink::set_rate`].
    pub fn set_rate(&mut self, rate: Option<Rate>) {
        self.rate = rate;
        let peers: Vec<_> = self.peers().collect();
        for peer in peers {
            if let Some(link) = self.link_mut(peer) {
                link.set_rate(rate);
            }
        }
    }

    /// Calls [`Spacelink::charge`] for every peer to which something may have been sent since the last call, with the bytes
    /// that `counted` returns for it, and then `charge` with its end and the bytes to charge to the regulator.
    pub fn charge(
        &mut self,
        mut counted: impl FnMut(PeerId) -> u64,
        mut charge: impl FnMut(PeerId, &Spacelink, u64),
    ) {
        if self.lobby.is_none() && self.to_charge.is_empty() {
            // In an outage time counts as well.
            self.to_charge.push(PeerId(0));
        }
        while let Some(peer) = self.to_charge.pop() {
            if let Some(member) = self.members.get_mut(peer.index()) {
                member.to_charge = false;
                let beyond = member.link.charge(counted(peer));
                charge(peer, &member.link, beyond);
            }
        }
    }

    /// True while a peer is connected.
    #[must_use]
    pub fn is_peer_up(&self, peer: PeerId) -> bool {
        self.link(peer).is_some_and(Spacelink::is_up)
    }

    /// True while an answer of a peer is overdue: an outage of the link.
    #[must_use]
    pub fn is_silent(&self, peer: PeerId) -> bool {
        self.link(peer).is_some_and(Spacelink::is_silent)
    }

    /// Lists a peer for all that follows from a change.
    fn touch(&mut self, peer: PeerId) {
        let Some(member) = self.members.get_mut(peer.index()) else { return };
        if !std::mem::replace(&mut member.to_poll, true) {
            self.to_poll.push_back(peer);
        }
        if !std::mem::replace(&mut member.to_send, true) {
            self.to_send.push_back(peer);
        }
        if !std::mem::replace(&mut member.to_time, true) {
            self.to_time.push(peer);
        }
        if !std::mem::replace(&mut member.to_charge, true) {
            self.to_charge.push(peer);
        }
    }

    // ----- datagrams ------------------------------------------------------------------------------------------

    /// Handles a UDP datagram, as [`Spacelink::receive`].
    pub fn receive(&mut self, now: Instant, from: SocketAddr, to: Option<IpAddr>, ecn: u8, datagram: &[u8]) {
        self.now = now;
        if self.lobby.is_none() {
            if let Some(link) = self.link_mut(PeerId(0)) {
                link.receive(now, from, to, ecn, datagram);
            }
            return;
        }
        let bytes = datagram.len() as u64 + end::header(from);
        let mut answer = Vec::new();
        let ecn = EcnCodepoint::from_bits(ecn);
        let event = self.endpoint.get().handle(now, from, to, ecn, BytesMut::from(datagram), &mut answer);
        match event {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => match self.owner(handle) {
                Owner::Peer(peer) => {
                    if let Some(link) = self.link_mut(peer) {
                        link.receive_own(now, handle, event, bytes);
                    }
                    return;
                }
                Owner::Lobby(number) => {
                    if let Some(visitor) =
                        self.lobby.as_mut().and_then(|lobby| lobby.visitors.get_mut(number))
                    {
                        visitor.connection.conn.handle_event(event);
                    }
                    self.run_visitor(number, now);
                }
                Owner::Nobody => {}
            },
            Some(DatagramEvent::Response(transmit)) => self.respond(&transmit, answer),
            Some(DatagramEvent::NewConnection(incoming)) => self.incoming(now, incoming, answer),
            None => {}
        }
        self.others.received_datagrams += 1;
        self.others.received_bytes += bytes;
    }

    /// Handles an ICMP error, as [`Spacelink::unreachable`].
    pub fn unreachable(&mut self, now: Instant, host: IpAddr) {
        let of_host = |link: &Spacelink| {
            link.peer().is_some_and(|address| address.ip().to_canonical() == host.to_canonical())
        };
        let peers: Vec<_> = self.peers().filter(|peer| self.link(*peer).is_some_and(of_host)).collect();
        for peer in peers {
            if let Some(link) = self.link_mut(peer) {
                link.unreachable(now, host);
            }
        }
    }

    /// The next UDP datagrams to send, as [`Spacelink::transmit`].
    pub fn transmit(&mut self, now: Instant, most: usize, out: &mut Vec<u8>) -> Option<Transmit> {
        self.now = now;
        if let Some(sent) = self.lobby_transmit(now, most, out) {
            self.others.sent_datagrams += 1;
            self.others.sent_bytes += out.len() as u64 + end::header(sent.to);
            return Some(sent);
        }
        while let Some(&peer) = self.to_send.front() {
            if let Some(member) = self.members.get_mut(peer.index()) {
                if let Some(transmit) = member.link.transmit(now, most, out) {
                    return Some(transmit);
                }
                member.to_send = false;
            }
            self.to_send.pop_front();
        }
        None
    }

    fn lobby_transmit(&mut self, now: Instant, most: usize, out: &mut Vec<u8>) -> Option<Transmit> {
        let lobby = self.lobby.as_mut()?;
        out.clear();
        if let Some((transmit, bytes)) = lobby.responses.pop_front() {
            out.extend_from_slice(&bytes);
            return Some(transmit);
        }
        while let Some(&number) = lobby.to_send.front() {
            if let Some(visitor) = lobby.visitors.get_mut(number) {
                if let Some(sent) = visitor.connection.conn.poll_transmit(now, most.max(1), out) {
                    return Some(Transmit::of(&sent, sent.segment_size));
                }
                visitor.to_send = false;
                lobby.list_timer(number);
            }
            lobby.to_send.pop_front();
        }
        None
    }

    // ----- time and events ------------------------------------------------------------------------------------

    /// Time at which to call [`Self::on_timer`], if nothing else happens before.
    #[must_use]
    pub fn timer(&mut self) -> Option<Instant> {
        while let Some(peer) = self.to_time.pop() {
            let Some(member) = self.members.get_mut(peer.index()) else { continue };
            member.to_time = false;
            let due = member.link.timer();
            if due != member.due {
                if let Some(old) = std::mem::replace(&mut member.due, due) {
                    self.due.remove(&(old, peer));
                }
                self.due.extend(due.map(|at| (at, peer)));
            }
        }
        let first = self.due.first().map(|(at, _)| *at);
        let lobby = self.lobby.as_ref().and_then(|lobby| lobby.due.first()).map(|(at, _)| *at);
        first.into_iter().chain(lobby).min()
    }

    /// Runs the timers that are due.
    pub fn on_timer(&mut self, now: Instant) {
        self.now = now;
        while let Some(&(due, peer)) = self.due.first().filter(|(due, _)| *due <= now) {
            self.due.remove(&(due, peer));
            if let Some(member) = self.members.get_mut(peer.index()) {
                member.due = None;
                member.link.on_timer(now);
            }
            self.touch(peer);
        }
        while let Some(lobby) = &mut self.lobby
            && let Some(&(due, number)) = lobby.due.first().filter(|(due, _)| *due <= now)
        {
            lobby.due.remove(&(due, number));
            if let Some(visitor) = lobby.visitors.get_mut(number) {
                visitor.due = None;
            }
            self.run_visitor(number, now);
        }
    }

    /// The next event, with its peer; `None` in its place for a failed attempt of an unknown host.
    pub fn poll(&mut self) -> Option<(Option<PeerId>, Event)> {
        if let Some(reason) = self.lobby.as_mut().and_then(|lobby| lobby.failed.pop_front()) {
            return Some((None, Event::Failed(reason)));
        }
        while let Some(&peer) = self.to_poll.front() {
            if let Some(member) = self.members.get_mut(peer.index()) {
                if let Some(event) = member.link.poll() {
                    return Some((Some(peer), event));
                }
                member.to_poll = false;
            }
            self.to_poll.pop_front();
        }
        None
    }

    /// The counters of all peers together. [`Stats::up`] and [`Stats::silent`] are true if they are for one of them, and
    /// [`Stats::round_trip`] is the longest.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.members.iter().fold(self.others, |sum, (_, member)| sum.with(&member.link.stats()))
    }

    /// True if a peer is connected.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.members.iter().any(|(_, member)| member.link.is_up())
    }

    /// Maximum number of bytes of a stream in one UDP datagram, as [`Spacelink::max_chunk`].
    #[must_use]
    pub fn max_chunk(&self) -> usize {
        self.setup.max_chunk()
    }

    /// Closes all connections for good.
    pub fn close(&mut self, now: Instant) {
        let peers: Vec<_> = self.peers().collect();
        for peer in peers {
            if let Some(link) = self.link_mut(peer) {
                link.close(now);
            }
        }
        if let Some(lobby) = &mut self.lobby {
            for (number, visitor) in &mut lobby.visitors {
                visitor.connection.conn.close(now, VarInt::from_u32(STOPPED), Bytes::new());
                if !std::mem::replace(&mut visitor.to_send, true) {
                    lobby.to_send.push_back(number);
                }
            }
        }
    }

    // ----- the lobby ------------------------------------------------------------------------------------------

    fn owner(&self, handle: ConnectionHandle) -> Owner {
        self.owners.get(handle.0).copied().unwrap_or(Owner::Nobody)
    }

    fn respond(&mut self, transmit: &quinn_proto::Transmit, mut bytes: Vec<u8>) {
        if let Some(lobby) = self.lobby.as_mut().filter(|lobby| lobby.responses.len() < LOBBY) {
            bytes.truncate(transmit.size);
            lobby.responses.push_back((Transmit::of(transmit, None), bytes));
        }
    }

    /// Handles a connection attempt. From the second of one host on, and when the lobby is half full, the host must prove its
    /// address (QUIC Retry).
    fn incoming(&mut self, now: Instant, incoming: Incoming, mut answer: Vec<u8>) {
        answer.clear();
        let Some(lobby) = &mut self.lobby else { return self.endpoint.get().ignore(incoming) };
        let host = incoming.remote_address().ip();
        let is_of_host =
            |(_, visitor): &(usize, &Visitor)| visitor.connection.conn.remote_address().ip() == host;
        let of_host = lobby.visitors.iter().filter(is_of_host).count();
        if of_host >= LOBBY_PER_HOST || lobby.visitors.len() >= LOBBY {
            return self.endpoint.get().ignore(incoming);
        }
        if (of_host >= HALF_OPEN_RETRY || lobby.visitors.len() >= LOBBY / 2) && incoming.may_retry() {
            let retry = self.endpoint.get().retry(incoming, &mut answer);
            if let Ok(transmit) = retry {
                self.respond(&transmit, answer);
            }
            return;
        }
        let (ledger, mut config) = (Arc::<Ledger>::default(), lobby.config.clone());
        config.transport_config(Arc::new(self.setup.transport(&ledger)));
        let accepted = self.endpoint.get().accept(incoming, now, &mut answer, Some(Arc::new(config)));
        match accepted {
            Ok((handle, conn)) => {
                let connection = PeerConnection::new((handle, conn, ledger), false, &self.setup, now);
                self.receive_visitor(connection, now);
            }
            Err(error) => {
                if let Some(transmit) = error.response {
                    self.respond(&transmit, answer);
                }
            }
        }
    }

    /// Takes a connection into the lobby.
    fn receive_visitor(&mut self, connection: PeerConnection, now: Instant) {
        let Some(lobby) = &mut self.lobby else { return };
        let handle = connection.handle.0;
        let number = lobby.visitors.insert(Visitor { connection, due: None, to_send: false });
        if self.owners.len() <= handle {
            self.owners.resize(handle + 1, Owner::Nobody);
        }
        self.owners[handle] = Owner::Lobby(number);
        self.run_visitor(number, now);
    }

    /// Runs a connection that belongs to nobody, and hands it over if its peer is known by now.
    fn run_visitor(&mut self, number: usize, now: Instant) {
        let Some(lobby) = &mut self.lobby else { return };
        while let Some(visitor) = lobby.visitors.get_mut(number) {
            match visitor.connection.run_unknown(now, &self.endpoint) {
                Unknown::Waits => return lobby.list(number),
                Unknown::Failed(reason) => lobby.failed.push_back(reason),
                Unknown::Drained => {
                    self.owners[visitor.connection.handle.0] = Owner::Nobody;
                    lobby.remove(number);
                }
                Unknown::Connected => match keys::peer_of(&visitor.connection.conn, &lobby.trusted) {
                    Some(peer) => {
                        let Some(connection) = lobby.remove(number) else { return };
                        self.owners[connection.handle.0] = Owner::Peer(peer);
                        if let Some(end) = self.link_mut(peer) {
                            end.adopt(now, connection);
                        }
                        return;
                    }
                    // Removed during the handshake.
                    None => visitor.connection.refuse(now),
                },
            }
        }
    }
}

impl Lobby {
    /// Lists a connection to send, and to be run at its next timer.
    fn list(&mut self, number: usize) {
        if let Some(visitor) = self.visitors.get_mut(number)
            && !std::mem::replace(&mut visitor.to_send, true)
        {
            self.to_send.push_back(number);
        }
        self.list_timer(number);
    }

    fn list_timer(&mut self, number: usize) {
        let Some(Visitor { connection, due, .. }) = self.visitors.get_mut(number) else { return };
        let greeting = (!connection.is_over()).then_some(connection.greeting_deadline);
        let next = [connection.conn.poll_timeout(), greeting].into_iter().flatten().min();
        if next != *due {
            if let Some(old) = std::mem::replace(due, next) {
                self.due.remove(&(old, number));
            }
            self.due.extend(next.map(|at| (at, number)));
        }
    }

    fn remove(&mut self, number: usize) -> Option<PeerConnection> {
        let Visitor { connection, due, .. } = self.visitors.try_remove(number)?;
        if let Some(due) = due {
            self.due.remove(&(due, number));
        }
        Some(connection)
    }
}

/// State of a connection that belongs to nobody.
pub(super) enum Unknown {
    /// It waits for the other end.
    Waits,
    /// It has just failed, and will be drained.
    Failed(Reason),
    /// It is gone.
    Drained,
    /// The other end has proved its certificate.
    Connected,
}
