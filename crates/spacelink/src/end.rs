//! One end of the spacelink, described on the crate's page.

mod credits;
mod packets;
mod peer;
mod streams;

use super::*;

/// Length of the IP and UDP headers towards `to` [bytes].
fn header(to: SocketAddr) -> u64 {
    if to.ip().to_canonical().is_ipv4() { 28 } else { 48 }
}

/// Number of ack-eliciting frames sent.
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

/// A QUIC connection: in use, being made, or closed.
struct Link {
    handle: ConnectionHandle,
    conn: Connection,
    /// True if the other end is at the peer's known address.
    known: bool,
    /// True once the peer's greeting arrived, which shows that it accepted this end.
    greeted: bool,
    over: bool,
    /// Deadline for the greeting.
    greeting_deadline: Instant,
    /// This end's control stream, and the peer's.
    control_out: Option<StreamId>,
    control_in: Option<StreamId>,
    /// Bytes to write to this end's control stream.
    control_pending: Vec<u8>,
    /// Incomplete frame read from the peer's control stream.
    control_input: Vec<u8>,
    /// Time of the next check for overdue answers.
    check_at: Instant,
    /// Bytes that the peer had acknowledged when a check last found progress, and ack-eliciting frames sent by then.
    answered: u64,
    asked: u64,
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
    sent: bool,
    written: u64,
    /// Bytes that the peer delivered.
    acknowledged: u64,
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
        /// The peer's host, if it is known: strangers cannot occupy its places.
        peer: Option<IpAddr>,
    },
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

/// One end of the spacelink.
pub struct Spacelink {
    endpoint: Endpoint,
    side: Side,
    links: Vec<Link>,
    current: Option<ConnectionHandle>,
    most_streams: u32,
    mtu: u16,
    round_trip: Duration,
    ping_interval: Duration,
    ack_every: u32,
    ack_delay: Duration,
    /// Bytes in inboxes behind a gap, and the window that limits them.
    scattered: u64,
    window: u64,
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
    ledger: Arc<Ledger>,
    /// Totals; QUIC's own counters are those of closed connections.
    stats: Stats,
    now: Instant,
}

impl Spacelink {
    /// Creates the listening end. Half-open connections of other hosts do not keep `peer` out, the peer's host.
    ///
    /// # Errors
    /// If key and certificate do not match.
    pub fn listen(setup: &Setup, peer: Option<IpAddr>, now: Instant) -> Result<Self, KeyError> {
        Self::new(setup, Side::Listening { peer: peer.map(|host| host.to_canonical()) }, now)
    }

    /// Creates the connecting end, which begins to connect to `peer` at once.
    ///
    /// # Errors
    /// If key and certificate do not match.
    pub fn connect(setup: &Setup, peer: SocketAddr, now: Instant) -> Result<Self, KeyError> {
        let config = Box::new(ClientConfig::new(Arc::new(keys::client(&setup.identity, &setup.peer)?)));
        Self::new(setup, Side::Connecting { config, peer, again: Some(now), wait: RECONNECT[0] }, now)
    }

    fn new(setup: &Setup, mut side: Side, now: Instant) -> Result<Self, KeyError> {
        let ledger = Arc::new(Ledger::default());
        let transport = Arc::new(setup.transport(&ledger));
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
        let server = match &mut side {
            Side::Connecting { config, .. } => {
                config.transport_config(transport);
                None
            }
            _ => {
                let mut server =
                    ServerConfig::with_crypto(Arc::new(keys::server(&setup.identity, &setup.peer)?));
                server.transport_config(transport).max_incoming(HALF_OPEN_MOST);
                Some(Arc::new(server))
            }
        };
        let mut this = Self {
            endpoint: Endpoint::new(Arc::new(config), server, false, None),
            side,
            links: Vec::new(),
            current: None,
            most_streams: setup.streams,
            mtu: setup.mtu.clamp(1200, 65_527),
            round_trip: setup.round_trip,
            ping_interval: setup.ping_interval.max(Duration::from_millis(10)),
            ack_every: setup.ack_every.max(1),
            ack_delay: setup.ack_delay,
            scattered: 0,
            window: setup.window,
            streams: Slab::new(),
            slots: BTreeMap::new(),
            serial: 0,
            taken: 0,
            early_resets: Vec::new(),
            events: VecDeque::new(),
            responses: VecDeque::new(),
            shaper: Shaper::new(setup.rate),
            held: false,
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
            ledger,
            stats: Stats::default(),
            now,
        };
        this.on_timer(now);
        Ok(this)
    }

    /// True while the peer is connected.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.current.is_some()
    }

    /// True while an answer is overdue: an outage of the link.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.active().is_some_and(|at| self.links[at].silent)
    }

    /// The peer's address while it is connected.
    #[must_use]
    pub fn peer(&self) -> Option<SocketAddr> {
        self.active().map(|at| self.links[at].conn.remote_address())
    }

    /// Sets the rate of the link towards the peer; `None` disables shaping.
    pub fn set_rate(&mut self, rate: Option<Rate>) {
        self.shaper.set_rate(rate);
    }

    /// Closes the connection for good. [`Spacelink::transmit`] then returns the message to the peer.
    pub fn close(&mut self, now: Instant) {
        self.now = now;
        self.side = Side::Stopped;
        for link in &mut self.links {
            link.conn.close(now, VarInt::from_u32(STOPPED), Bytes::new());
            link.over = true;
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
        match self.endpoint.handle(now, from, to, ecn, BytesMut::from(datagram), &mut answer) {
            None => {}
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(link) = self.links.iter_mut().find(|link| link.handle == handle) {
                    link.conn.handle_event(event);
                }
            }
            Some(DatagramEvent::Response(transmit)) => self.respond(&transmit, answer),
            Some(DatagramEvent::NewConnection(incoming)) => self.incoming(now, incoming, answer),
        }
        self.handle_quic_events(now);
        if let Some(at) = self.active().filter(|&at| self.links[at].silent) {
            self.check_answers(now, at);
        }
    }

    /// Handles an ICMP error: nobody listens at a port of `host`. It can be forged, so the peer is pinged, and given up only
    /// when its answer is overdue as well.
    pub fn unreachable(&mut self, now: Instant, host: IpAddr) {
        self.now = now;
        let Some(at) = self.active() else { return };
        let link = &mut self.links[at];
        if link.conn.remote_address().ip().to_canonical() == host.to_canonical() {
            link.unreachable = Some(now);
            link.conn.ping();
        }
    }

    /// Queues a reply to another host, unless there are too many.
    fn respond(&mut self, transmit: &quinn_proto::Transmit, mut bytes: Vec<u8>) {
        if self.responses.len() < RESPONSES {
            bytes.truncate(transmit.size);
            let to = Transmit {
                to: transmit.destination,
                from: transmit.src_ip,
                segment: None,
                ecn: transmit.ecn.map_or(0, |ecn| ecn as u8),
            };
            self.responses.push_back((to, bytes));
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
        let longest = u64::from(self.mtu) + 48;
        let most = self.shaper.allowed(now, longest, most.max(1));
        self.held = most == 0;
        if self.held {
            return None;
        }
        for at in 0..self.links.len() {
            let Some(sent) = self.links[at].conn.poll_transmit(now, most, out) else { continue };
            let transmit = Transmit {
                to: sent.destination,
                from: sent.src_ip,
                segment: sent.segment_size,
                ecn: sent.ecn.map_or(0, |ecn| ecn as u8),
            };
            self.count(now, &transmit, sent.size);
            return Some(transmit);
        }
        // Nothing waits, so no lost bytes do.
        self.lost_seen = self.ledger.lost();
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

    /// Bytes declared lost since the last call.
    fn lost_since(&mut self) -> u64 {
        let lost = self.ledger.lost();
        lost - std::mem::replace(&mut self.lost_seen, lost)
    }

    /// Returns the bytes to charge to the regulator, which released `counted` bytes since the last call: those that the link
    /// carries beyond them (headers, acknowledgements, retransmissions sent or to come).
    ///
    /// Call it whenever something was sent or received, also with nothing counted: lost bytes are charged as soon as they are
    /// known, so that the regulator waits during the retransmission and not after it. Counted bytes that were not sent reduce
    /// later charges, so that over time exactly the bytes on the wire count.
    ///
    /// During an outage everything that the link would have carried is charged: the regulator releases nothing, and data waits
    /// in the transmit queue, where it is visible.
    pub fn charge(&mut self, counted: u64) -> u64 {
        self.owed += self.lost_since();
        self.charged += counted;
        let beyond = (self.stats.sent_bytes + self.owed).saturating_sub(self.charged);
        self.charged += beyond;
        let since = std::mem::replace(&mut self.charged_at, self.now);
        let idle =
            if self.is_silent() { self.shaper.carries(self.now.saturating_duration_since(since)) } else { 0 };
        beyond + idle
    }

    /// Time at which to call [`Self::on_timer`] and then [`Self::transmit`], if nothing else happens before.
    #[must_use]
    pub fn timer(&mut self) -> Option<Instant> {
        let mut at = None;
        let mut earlier = |other: Option<Instant>| at = [at, other].into_iter().flatten().min();
        for link in &mut self.links {
            earlier(link.conn.poll_timeout());
            if !link.over {
                earlier(Some(if link.greeted { link.check_at } else { link.greeting_deadline }));
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
        for at in 0..self.links.len() {
            if self.links[at].conn.poll_timeout().is_some_and(|due| due <= now) {
                self.links[at].conn.handle_timeout(now);
            }
            if self.links[at].over {
                continue;
            }
            if !self.links[at].greeted && self.links[at].greeting_deadline <= now {
                self.give_up(now, at, STOPPED, Reason::Silent);
            } else if self.links[at].greeted && self.links[at].check_at <= now {
                self.check_answers(now, at);
            }
        }
        if let Side::Connecting { config, peer, again, .. } = &mut self.side
            && again.is_some_and(|again| again <= now)
        {
            *again = None;
            match self.endpoint.connect(now, config.as_ref().clone(), *peer, "spacelink") {
                Ok((handle, conn)) => self.add(now, handle, conn, true),
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
        if self.credit_bytes >= u64::from(self.ack_every) * u64::from(self.mtu) {
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
            stats.round_trip = self.links[at].conn.rtt();
            stats.silent = self.links[at].silent;
        }
        for link in &self.links {
            let quic = link.conn.stats().path;
            stats.sent_packets += quic.sent_packets;
            stats.lost_packets += quic.lost_packets;
        }
        stats.lost_bytes = self.ledger.lost();
        stats.acknowledged_bytes = self.ledger.acked();
        stats.marks = self.ledger.marks();
        stats.streams = self.streams.len() as u64;
        stats.unassembled_ip = self.reassembly.given_up();
        stats
    }

    fn active(&self) -> Option<usize> {
        let current = self.current?;
        self.links.iter().position(|link| link.handle == current)
    }
}
