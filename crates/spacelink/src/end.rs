//! One end of the spacelink, described on the crate's page.

mod credits;
mod packets;
mod peer;
mod streams;
#[cfg(test)]
mod tests;

use super::hub::Unknown;
use super::*;

/// Length of the IP and UDP headers towards `to` [bytes].
pub(super) fn header(to: SocketAddr) -> u64 {
    if to.ip().to_canonical().is_ipv4() { 28 } else { 48 }
}

/// Number of ack-eliciting frames sent, of the kinds that a connection in use sends.
fn ack_eliciting(sent: &FrameStats) -> u64 {
    sent.stream
        + sent.datagram
        + sent.ping
        + sent.immediate_ack
        + sent.crypto
        + sent.max_data
        + sent.max_stream_data
        + sent.max_streams_bidi
        + sent.reset_stream
        + sent.stop_sending
        + sent.new_connection_id
        + sent.ack_frequency
}

/// QUIC's endpoint, which all peers of a [`Hub`] share.
#[derive(Clone)]
pub(super) struct SharedEndpoint(Arc<Mutex<Endpoint>>);

impl SharedEndpoint {
    /// An endpoint with the key of `setup`; `server` if it accepts connections.
    pub(super) fn new(setup: &Setup, server: Option<&ServerConfig>) -> Self {
        // Derived from the key, so that a restarted end recognizes connections of its predecessor and resets them.
        let reset = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, setup.identity.secret("reset").as_ref());
        let ids = setup.identity.secret("connections");
        let ids = u64::from_be_bytes(*ids.as_ref().first_chunk().unwrap_or(&[0; 8]));
        let mut config = EndpointConfig::new(Arc::new(reset));
        config
            .cid_generator(move || Box::new(HashedConnectionIdGenerator::from_key(ids)))
            .rng_seed(setup.seed);
        // Fails only outside QUIC's own bounds; the default then stays.
        let _ = config.max_udp_payload_size(setup.mtu.max(1472));
        let server = server.map(|server| Arc::new(server.clone()));
        Self(Arc::new(Mutex::new(Endpoint::new(Arc::new(config), server, false, None))))
    }

    pub(super) fn get(&self) -> MutexGuard<'_, Endpoint> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A QUIC connection: in use, being made, or closed.
pub(super) struct PeerConnection {
    pub(super) handle: ConnectionHandle,
    pub(super) conn: Connection,
    /// Its counters.
    ledger: Arc<Ledger>,
    /// True if the other end is at the peer's known address.
    pub(super) known: bool,
    /// True once the peer's greeting arrived, which shows that it accepted this end.
    greeted: bool,
    over: bool,
    /// Deadline for the greeting.
    pub(super) greeting_deadline: Instant,
    /// This end's control stream, and the peer's.
    control_out: Option<StreamId>,
    control_in: Option<StreamId>,
    /// Bytes to write to this end's control stream.
    control_pending: Vec<u8>,
    /// Incomplete frame read from the peer's control stream.
    control_input: Vec<u8>,
    /// Time of the next check for overdue answers.
    check_at: Instant,
    /// Bytes that the peer had acknowledged when a check last found progress.
    acked_at_progress: u64,
    /// Ack-eliciting frames sent by then.
    eliciting_at_progress: u64,
    /// Time of the first check that found more of them sent since; `None` if none were.
    unanswered_since: Option<Instant>,
    /// True while an answer is overdue.
    silent: bool,
    /// Time of the last ICMP error that says nobody listens at the peer's port.
    unreachable: Option<Instant>,
    /// Time of a new connection's next ping, and number of those to come.
    ping_at: Instant,
    pings: u32,
}

impl PeerConnection {
    /// A connection that is being made, whose counters are in `ledger`.
    pub(super) fn new(
        (handle, conn, ledger): (ConnectionHandle, Connection, Arc<Ledger>),
        known: bool,
        setup: &Parameters,
        now: Instant,
    ) -> Self {
        Self {
            handle,
            conn,
            ledger,
            known,
            greeted: false,
            over: false,
            greeting_deadline: now + 3 * setup.round_trip + PATIENCE,
            control_out: None,
            control_in: None,
            control_pending: Vec::new(),
            control_input: Vec::new(),
            check_at: now,
            acked_at_progress: 0,
            eliciting_at_progress: 0,
            unanswered_since: None,
            silent: false,
            unreachable: None,
            ping_at: now,
            pings: FIRST_PINGS,
        }
    }

    /// Bytes of acknowledged packets, IP and UDP headers included.
    fn delivered(&self) -> u64 {
        self.ledger.acked() + self.ledger.acked_packets() * header(self.conn.remote_address())
    }

    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Runs a connection of an unknown peer.
    pub(super) fn run_unknown(&mut self, now: Instant, endpoint: &SharedEndpoint) -> Unknown {
        if self.conn.poll_timeout().is_some_and(|due| due <= now) {
            self.conn.handle_timeout(now);
        }
        if !self.over && self.greeting_deadline <= now {
            self.refuse(now);
            return Unknown::Failed(Reason::Silent);
        }
        while let Some(event) = self.conn.poll_endpoint_events() {
            let answer = endpoint.get().handle_event(self.handle, event);
            if let Some(event) = answer {
                self.conn.handle_event(event);
            }
        }
        while let Some(event) = self.conn.poll() {
            match event {
                quinn_proto::Event::Connected if !self.over => return Unknown::Connected,
                quinn_proto::Event::ConnectionLost { reason } if !std::mem::replace(&mut self.over, true) => {
                    return Unknown::Failed(peer::reason_of(reason));
                }
                _ => {}
            }
        }
        if self.conn.is_drained() { Unknown::Drained } else { Unknown::Waits }
    }

    /// Closes a connection of an unknown peer.
    pub(super) fn refuse(&mut self, now: Instant) {
        self.over = true;
        self.conn.close(now, VarInt::from_u32(STOPPED), Bytes::new());
    }
}

/// An open stream.
struct Stream {
    serial: u32,
    id: StreamId,
    /// Received part of the header of a stream that the peer opened; `None` once complete.
    header: Option<Vec<u8>>,
    /// True if the host was told that it can read and has not read since.
    readable_reported: bool,
    /// Received data that was not read.
    inbox: Inbox,
    /// True once everything has arrived (`complete`), and once all of it was read (`ended`).
    complete: bool,
    ended: bool,
    /// True once everything written was sent and acknowledged.
    all_acked: bool,
    written: u64,
    /// Bytes that the peer says to have delivered.
    delivered_by_peer: u64,
    received: u64,
    /// Received bytes that were delivered here, announced by a credit, and announced on the control stream.
    delivered: u64,
    credited: u64,
    confirmed: u64,
    credited_at: Instant,
    /// True while in the list of credits to send.
    to_send: bool,
    /// True while in the list of credits to repeat.
    to_repeat: bool,
}

enum Side {
    Listening {
        config: ServerConfig,
        /// The peer's host, if it is known: strangers cannot occupy its places.
        peer: Option<IpAddr>,
    },
    /// The peer's connections come from a [`Hub`].
    Member,
    Connecting {
        config: Box<ClientConfig>,
        peer: SocketAddr,
        /// Time of the next attempt, and delay before the one after it.
        again: Option<Instant>,
        wait: Duration,
    },
    Stopped,
}

/// State of a stream after reading.
enum End {
    Open,
    Finished,
    Gone,
}

/// Counters of the connections that are no more.
#[derive(Clone, Copy, Default)]
struct Closed {
    acked: u64,
    delivered: u64,
    lost: u64,
    marks: u64,
}

/// One end of the spacelink.
pub struct Spacelink {
    pub(super) endpoint: SharedEndpoint,
    pub(super) setup: Parameters,
    /// Number of the peer.
    number: PeerId,
    side: Side,
    connections: Vec<PeerConnection>,
    current: Option<ConnectionHandle>,
    /// Bytes in inboxes behind a gap.
    scattered: u64,
    streams: Slab<Stream>,
    slots: BTreeMap<StreamId, usize>,
    serial: u32,
    /// Number of streams accepted from the peer, and those that it reset before they arrived.
    taken: u64,
    early_resets: Vec<StreamId>,
    events: VecDeque<Event>,
    responses: VecDeque<(Transmit, Vec<u8>)>,
    shaper: Shaper,
    /// True while the shaper holds packets back.
    held: bool,
    /// Streams that QUIC allows the peer to have open.
    allowed_streams: u32,
    /// Lost bytes not retransmitted yet, as far as known, and lost bytes counted so far.
    owed: u64,
    lost_seen: u64,
    /// Bytes that [`Spacelink::charge`] has accounted for, and the time of the last call.
    charged: u64,
    charged_at: Instant,
    /// Streams with a credit to send, for how many bytes, and when; streams whose credit is to be repeated, and when.
    credits: Vec<StreamKey>,
    credit_bytes: u64,
    credit_at: Option<Instant>,
    to_repeat: Vec<StreamKey>,
    repeat_at: Option<Instant>,
    reassembly: Reassembly,
    packet: u16,
    closed: Closed,
    /// Totals; QUIC's own counters are those of closed connections.
    stats: Stats,
    pub(super) now: Instant,
}

impl Spacelink {
    /// Creates the listening end. Half-open connections of other hosts do not keep `peer` out, the peer's host.
    ///
    /// # Errors
    /// If key and certificate do not match.
    pub fn listen(setup: &Setup, peer: Option<IpAddr>, now: Instant) -> Result<Self, KeyError> {
        let config = keys::server(&setup.identity, keys::Trusted::only(setup.only_peer()?))?;
        let config = ServerConfig::with_crypto(Arc::new(config));
        let endpoint = SharedEndpoint::new(setup, Some(&config));
        let side = Side::Listening { config, peer: peer.map(|host| host.to_canonical()) };
        Ok(Self::new(setup.parameters(), endpoint, PeerId(0), side, setup.rate, now))
    }

    /// Creates the connecting end, which begins to connect to `peer` at once.
    ///
    /// # Errors
    /// If key and certificate do not match.
    pub fn connect(setup: &Setup, peer: SocketAddr, now: Instant) -> Result<Self, KeyError> {
        let config = keys::client(&setup.identity, setup.only_peer()?)?;
        let config = Box::new(ClientConfig::new(Arc::new(config)));
        let side = Side::Connecting { config, peer, again: Some(now), wait: RECONNECT[0] };
        let endpoint = SharedEndpoint::new(setup, None);
        Ok(Self::new(setup.parameters(), endpoint, PeerId(0), side, setup.rate, now))
    }

    /// The end towards peer `number` of a [`Hub`].
    pub(super) fn member(
        setup: Parameters,
        endpoint: SharedEndpoint,
        number: PeerId,
        rate: Option<Rate>,
        now: Instant,
    ) -> Self {
        Self::new(setup, endpoint, number, Side::Member, rate, now)
    }

    fn new(
        setup: Parameters,
        endpoint: SharedEndpoint,
        number: PeerId,
        side: Side,
        rate: Option<Rate>,
        now: Instant,
    ) -> Self {
        let mut this = Self {
            endpoint,
            setup,
            number,
            side,
            connections: Vec::new(),
            current: None,
            scattered: 0,
            streams: Slab::new(),
            slots: BTreeMap::new(),
            serial: 0,
            taken: 0,
            early_resets: Vec::new(),
            events: VecDeque::new(),
            responses: VecDeque::new(),
            shaper: Shaper::new(rate),
            held: false,
            allowed_streams: 0,
            owed: 0,
            lost_seen: 0,
            charged: 0,
            charged_at: now,
            credits: Vec::new(),
            credit_bytes: 0,
            credit_at: None,
            to_repeat: Vec::new(),
            repeat_at: None,
            reassembly: Reassembly::default(),
            packet: 0,
            closed: Closed::default(),
            stats: Stats::default(),
            now,
        };
        this.on_timer(now);
        this
    }

    /// True while the peer is connected.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.current.is_some()
    }

    /// True while an answer is overdue: an outage of the link.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.active().is_some_and(|at| self.connections[at].silent)
    }

    /// Number of open streams.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// The peer's address while it is connected.
    #[must_use]
    pub fn peer(&self) -> Option<SocketAddr> {
        self.active().map(|at| self.connections[at].conn.remote_address())
    }

    /// Sets the rate of the link towards the peer; `None` disables shaping.
    pub fn set_rate(&mut self, rate: Option<Rate>) {
        self.shaper.set_rate(rate);
    }

    /// Closes the connection for good. [`Spacelink::transmit`] then returns the message to the peer.
    pub fn close(&mut self, now: Instant) {
        self.now = now;
        self.side = Side::Stopped;
        for connection in &mut self.connections {
            connection.conn.close(now, VarInt::from_u32(STOPPED), Bytes::new());
            connection.over = true;
        }
        if self.current.take().is_some() {
            self.down(Reason::Closed);
        }
    }

    /// Handles a UDP datagram from `from`, to the address `to` if it is known, with the two bits of `ecn`. Datagrams that are
    /// not the peer's are dropped.
    pub fn receive(&mut self, now: Instant, from: SocketAddr, to: Option<IpAddr>, ecn: u8, datagram: &[u8]) {
        self.now = now;
        self.stats.received_datagrams += 1;
        self.stats.received_bytes += datagram.len() as u64 + header(from);
        let mut answer = Vec::new();
        let ecn = EcnCodepoint::from_bits(ecn);
        let event = self.endpoint.get().handle(now, from, to, ecn, BytesMut::from(datagram), &mut answer);
        match event {
            None => {}
            Some(DatagramEvent::ConnectionEvent(handle, event)) => self.pass(handle, event),
            Some(DatagramEvent::Response(transmit)) => self.respond(&transmit, answer),
            Some(DatagramEvent::NewConnection(incoming)) => self.incoming(now, incoming, answer),
        }
        self.after_receiving(now);
    }

    /// Handles a datagram of `bytes`, IP and UDP headers included, that belongs to one of this peer's connections.
    pub(super) fn receive_own(
        &mut self,
        now: Instant,
        handle: ConnectionHandle,
        event: ConnectionEvent,
        bytes: u64,
    ) {
        self.now = now;
        self.stats.received_datagrams += 1;
        self.stats.received_bytes += bytes;
        self.pass(handle, event);
        self.after_receiving(now);
    }

    /// Takes over a connection on which the peer has proved its certificate.
    pub(super) fn adopt(&mut self, now: Instant, connection: PeerConnection) {
        self.now = now;
        self.connections.push(connection);
        self.on_event(now, self.connections.len() - 1, quinn_proto::Event::Connected);
        self.handle_quic_events(now);
    }

    /// Gives up all connections, for others to end them.
    pub(super) fn take_connections(&mut self) -> Vec<PeerConnection> {
        std::mem::take(&mut self.connections)
    }

    fn pass(&mut self, handle: ConnectionHandle, event: ConnectionEvent) {
        if let Some(connection) = self.connections.iter_mut().find(|connection| connection.handle == handle) {
            connection.conn.handle_event(event);
        }
    }

    fn after_receiving(&mut self, now: Instant) {
        self.handle_quic_events(now);
        if let Some(at) = self.active().filter(|&at| self.connections[at].silent) {
            self.check_answers(now, at);
        }
    }

    /// Handles an ICMP error: nobody listens at a port of `host`. It can be forged, so the peer is pinged, and given up only
    /// when its answer is overdue as well.
    pub fn unreachable(&mut self, now: Instant, host: IpAddr) {
        self.now = now;
        let Some(at) = self.active() else { return };
        let connection = &mut self.connections[at];
        if connection.conn.remote_address().ip().to_canonical() == host.to_canonical() {
            connection.unreachable = Some(now);
            connection.conn.ping();
        }
    }

    /// Queues a reply to another host, unless there are too many.
    fn respond(&mut self, transmit: &quinn_proto::Transmit, mut bytes: Vec<u8>) {
        if self.responses.len() < RESPONSES {
            bytes.truncate(transmit.size);
            self.responses.push_back((Transmit::of(transmit, None), bytes));
        }
    }

    /// Writes the next UDP datagrams to send into `out`: up to `most` of equal length if the system can segment them. Call it
    /// after everything else, until it returns `None`.
    pub fn transmit(&mut self, now: Instant, most: usize, out: &mut Vec<u8>) -> Option<Transmit> {
        self.now = now;
        out.clear();
        if let Some((transmit, bytes)) = self.responses.pop_front() {
            out.extend_from_slice(&bytes);
            self.count(now, &transmit, out.len());
            return Some(transmit);
        }
        let longest = u64::from(self.setup.mtu) + 48;
        let most = self.shaper.allowed(now, longest, most.max(1));
        self.held = most == 0;
        if self.held {
            return None;
        }
        for at in 0..self.connections.len() {
            let Some(sent) = self.connections[at].conn.poll_transmit(now, most, out) else { continue };
            let transmit = Transmit::of(&sent, sent.segment_size);
            self.count(now, &transmit, sent.size);
            return Some(transmit);
        }
        // Nothing waits, so no lost bytes do.
        self.lost_seen = self.lost();
        self.owed = 0;
        None
    }

    /// Counts bytes that are sent.
    fn count(&mut self, now: Instant, transmit: &Transmit, size: usize) {
        let datagrams = transmit.segment.map_or(1, |segment| size.div_ceil(segment.max(1))) as u64;
        let bytes = size as u64 + datagrams * header(transmit.to);
        self.stats.sent_datagrams += datagrams;
        self.stats.sent_bytes += bytes;
        self.shaper.sent(now, bytes);
        self.owed = (self.owed + self.lost_since()).saturating_sub(bytes);
    }

    /// Bytes declared lost on all connections.
    fn lost(&self) -> u64 {
        self.closed.lost + self.connections.iter().map(|connection| connection.ledger.lost()).sum::<u64>()
    }

    /// Bytes declared lost since the last call.
    fn lost_since(&mut self) -> u64 {
        let lost = self.lost();
        lost - std::mem::replace(&mut self.lost_seen, lost)
    }

    /// Returns the bytes to charge to the regulator, which released `counted` bytes since the last call: those that the link
    /// carries beyond them (headers, acknowledgements, retransmissions sent or to come).
    ///
    /// Call it whenever something was sent or received, also with nothing counted: lost bytes are charged as soon as they are
    /// known, so that the regulator waits during the retransmission and not after it. Counted bytes that were not sent reduce
    /// later charges, so that over time exactly the bytes on the wire count.
    ///
    /// During an outage everything that the link would have carried is charged, except behind a hub, whose other terminals use
    /// the carrier: the regulator releases nothing, and data waits in the transmit queue, where it is visible.
    pub fn charge(&mut self, counted: u64) -> u64 {
        self.owed += self.lost_since();
        self.charged += counted;
        let beyond = (self.stats.sent_bytes + self.owed).saturating_sub(self.charged);
        self.charged += beyond;
        let since = std::mem::replace(&mut self.charged_at, self.now);
        let is_out = self.is_silent() && !matches!(self.side, Side::Member);
        let unused = if is_out { self.shaper.carries(self.now.saturating_duration_since(since)) } else { 0 };
        beyond + unused
    }

    /// Time at which to call [`Self::on_timer`] and then [`Self::transmit`], if nothing else happens before.
    #[must_use]
    pub fn timer(&mut self) -> Option<Instant> {
        let mut at = None;
        let mut earlier = |other: Option<Instant>| at = [at, other].into_iter().flatten().min();
        for connection in &mut self.connections {
            earlier(connection.conn.poll_timeout());
            if !connection.over {
                earlier(Some(if connection.greeted {
                    connection.check_at
                } else {
                    connection.greeting_deadline
                }));
            }
        }
        if let Side::Connecting { again, .. } = self.side {
            earlier(again);
        }
        if self.held {
            earlier(self.shaper.ready_at());
        }
        earlier(self.credit_at);
        earlier(self.repeat_at);
        earlier(self.reassembly.timer());
        at
    }

    /// Runs the timers that are due.
    pub fn on_timer(&mut self, now: Instant) {
        self.now = now;
        for at in 0..self.connections.len() {
            if self.connections[at].conn.poll_timeout().is_some_and(|due| due <= now) {
                self.connections[at].conn.handle_timeout(now);
            }
            if self.connections[at].over {
                continue;
            }
            if !self.connections[at].greeted && self.connections[at].greeting_deadline <= now {
                self.give_up(now, at, STOPPED, Reason::Silent);
            } else if self.connections[at].greeted && self.connections[at].check_at <= now {
                self.check_answers(now, at);
            }
        }
        if let Side::Connecting { config, peer, again, .. } = &mut self.side
            && again.is_some_and(|again| again <= now)
        {
            *again = None;
            let (ledger, mut config) = (Arc::<Ledger>::default(), config.as_ref().clone());
            config.transport_config(Arc::new(self.setup.transport(&ledger)));
            let made = self.endpoint.get().connect(now, config, *peer, "spacelink");
            match made {
                Ok((handle, conn)) => {
                    self.connections.push(PeerConnection::new(
                        (handle, conn, ledger),
                        true,
                        &self.setup,
                        now,
                    ));
                }
                Err(error) => {
                    self.events.push_back(Event::Failed(Reason::Failed(error.to_string())));
                    self.schedule_reconnect(now);
                }
            }
        }
        if self.credit_at.is_some_and(|due| due <= now) {
            self.send_credits(now);
        }
        if self.repeat_at.is_some_and(|due| due <= now) {
            self.repeat_credits(now);
        }
        self.reassembly.expire(now);
        self.handle_quic_events(now);
    }

    /// The next event.
    pub fn poll(&mut self) -> Option<Event> {
        if self.credit_bytes >= u64::from(self.setup.ack_every) * u64::from(self.setup.mtu) {
            self.send_credits(self.now);
        }
        if self.events.is_empty() {
            self.handle_quic_events(self.now);
        }
        self.events.pop_front()
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = self.stats;
        stats.up = self.current.is_some();
        if let Some(at) = self.active() {
            stats.round_trip = self.connections[at].conn.rtt();
            stats.silent = self.connections[at].silent;
        }
        for connection in &self.connections {
            let quic = connection.conn.stats().path;
            stats.sent_packets += quic.sent_packets;
            stats.lost_packets += quic.lost_packets;
        }
        let Closed { acked, delivered, marks, .. } = self.closed;
        let sum = |of: fn(&Ledger) -> u64| {
            self.connections.iter().map(|connection| of(&connection.ledger)).sum::<u64>()
        };
        stats.lost_bytes = self.lost();
        stats.acknowledged_bytes = acked + sum(Ledger::acked);
        stats.delivered_bytes =
            delivered + self.connections.iter().map(PeerConnection::delivered).sum::<u64>();
        stats.marks = marks + sum(Ledger::marks);
        stats.streams = self.streams.len() as u64;
        stats.unassembled_ip = self.reassembly.given_up();
        stats
    }

    fn active(&self) -> Option<usize> {
        let current = self.current?;
        self.connections.iter().position(|connection| connection.handle == current)
    }
}
