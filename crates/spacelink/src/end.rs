//! One end of the spacelink: see the module's page.

mod credits;
mod packets;
mod peer;
mod streams;

use super::*;

/// IP and UDP header towards `to` [bytes].
fn header(to: SocketAddr) -> u64 {
    if to.ip().to_canonical().is_ipv4() { 28 } else { 48 }
}

/// What the peer has been asked that it has to answer: frames that elicit an acknowledgement.
fn asks(sent: &FrameStats) -> u64 {
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

/// A QUIC connection: the one in use, one that is being made, or one that is over.
struct Link {
    handle: ConnectionHandle,
    conn: Connection,
    /// Whether the peer's greeting came: only then it is known to take us for its peer as well.
    greeted: bool,
    over: bool,
    /// When it must have been greeted.
    until: Instant,
    /// Our control stream and the peer's.
    control: [Option<StreamId>; 2],
    /// What waits to be written to ours, and what was read of theirs and is not a whole frame yet.
    buffers: [Vec<u8>; 2],
    /// When to look next whether an answer is overdue.
    look: Instant,
    /// How many bytes the peer had acknowledged when a look last found more of them, and how much had been asked by then.
    answered: u64,
    asked: u64,
    /// When a look first found that more had been asked since.
    since: Option<Instant>,
    /// Whether an answer is overdue.
    silent: bool,
    /// When the network last said that nobody listens at the peer's port.
    unreachable: Option<Instant>,
    /// From when on a new connection is to say something by itself, and how often.
    hail_at: Instant,
    hails: u32,
}

/// A stream that is open.
struct Stream {
    serial: u32,
    id: StreamId,
    /// What came of the header of a stream that the peer opened; none once it is complete.
    header: Option<Vec<u8>>,
    /// Whether the host was told that there is something to read, and has not read since.
    told: bool,
    /// What came and was not read.
    inbox: Inbox,
    /// Whether all has come, and whether all of it was read.
    complete: bool,
    ended: bool,
    /// Whether all of ours was sent and acknowledged.
    sent: bool,
    written: u64,
    /// Of these, how much the far end delivered.
    acknowledged: u64,
    received: u64,
    /// Of these, how much was delivered here, how much the peer was told, and how much for certain.
    delivered: u64,
    credited: u64,
    settled: u64,
    credited_at: Instant,
    /// Whether it is in the lists of credits to tell, and to repeat.
    listed: [bool; 2],
}

enum Side {
    Listening,
    Connecting {
        config: Box<ClientConfig>,
        peer: SocketAddr,
        /// When to come again, and how long to wait the next time.
        again: Option<Instant>,
        wait: Duration,
    },
    Stopped,
}

/// How reading from a stream ended.
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
    ask_again: Duration,
    ack_every: u32,
    ack_delay: Duration,
    /// Bytes that wait in streams' inboxes for others before them, and the window they were bounded by.
    scattered: u64,
    window: u64,
    streams: Slab<Stream>,
    slots: BTreeMap<StreamId, usize>,
    serial: u32,
    /// How many streams of the peer were taken, and those which it reset before.
    taken: u64,
    unborn: Vec<StreamId>,
    events: VecDeque<Event>,
    responses: VecDeque<(Transmit, Vec<u8>)>,
    shaper: Shaper,
    /// Whether the shaper holds packets back.
    held: bool,
    /// Lost bytes that have not gone again, as far as is known, and how many were known to be lost.
    owed: u64,
    lost_seen: u64,
    /// What [`Spacelink::charge`] subtracted so far, and when it last did.
    charged: u64,
    charged_at: Instant,
    /// Streams of which a credit has to be told, for how many bytes, and when; those to be repeated, and when.
    credits: Vec<StreamKey>,
    credit_bytes: u64,
    credit_at: Option<Instant>,
    tail: Vec<StreamKey>,
    settle_at: Option<Instant>,
    reassembly: Reassembly,
    packet: u16,
    ledger: Arc<Ledger>,
    /// Totals, of connections that are gone where QUIC counts them.
    stats: Stats,
    now: Instant,
}

impl Spacelink {
    /// The listening end.
    ///
    /// # Errors
    /// If the key and the certificate do not belong together.
    pub fn listen(setup: &Setup, now: Instant) -> Result<Self, KeyError> {
        Self::new(setup, Side::Listening, now)
    }

    /// The connecting end, which begins to connect to `peer` at once.
    ///
    /// # Errors
    /// If the key and the certificate do not belong together.
    pub fn connect(setup: &Setup, peer: SocketAddr, now: Instant) -> Result<Self, KeyError> {
        let config = Box::new(ClientConfig::new(Arc::new(keys::client(&setup.identity, &setup.peer)?)));
        Self::new(setup, Side::Connecting { config, peer, again: Some(now), wait: AGAIN[0] }, now)
    }

    fn new(setup: &Setup, mut side: Side, now: Instant) -> Result<Self, KeyError> {
        let ledger = Arc::new(Ledger::default());
        let transport = Arc::new(setup.transport(&ledger));
        // From the key, so that an end that was started anew knows what it forgot, and tells the peer so.
        let reset = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, setup.identity.secret("reset").as_ref());
        let ids = setup.identity.secret("connections");
        let ids = u64::from_be_bytes(*ids.as_ref().first_chunk().unwrap_or(&[0; 8]));
        let mut config = EndpointConfig::new(Arc::new(reset));
        config
            .cid_generator(move || Box::new(HashedConnectionIdGenerator::from_key(ids)))
            .rng_seed(setup.seed);
        // Only fails outside of QUIC's own bounds, where its default stands.
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
            ask_again: setup.ask_again.max(Duration::from_millis(10)),
            ack_every: setup.ack_every.max(1),
            ack_delay: setup.ack_delay,
            scattered: 0,
            window: setup.window,
            streams: Slab::new(),
            slots: BTreeMap::new(),
            serial: 0,
            taken: 0,
            unborn: Vec::new(),
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
            tail: Vec::new(),
            settle_at: None,
            reassembly: Reassembly::default(),
            packet: 0,
            ledger,
            stats: Stats::default(),
            now,
        };
        this.on_timer(now);
        Ok(this)
    }

    /// Whether the peer is there.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.current.is_some()
    }

    /// Whether an answer is overdue: an outage of the link.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.active().is_some_and(|at| self.links[at].silent)
    }

    /// The peer's address, while it is there.
    #[must_use]
    pub fn peer(&self) -> Option<SocketAddr> {
        self.active().map(|at| self.links[at].conn.remote_address())
    }

    /// The link towards the peer has this rate from now on, or is not shaped.
    pub fn set_rate(&mut self, rate: Option<Rate>) {
        self.shaper.set_rate(rate);
    }

    /// Ends the connection, and comes not again. What [`Spacelink::transmit`] then gives tells the peer.
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

    /// A UDP datagram came `from` there, to our address `to` where that is known, with the two bits of `ecn`. Anything may
    /// come: what is not the peer's is dropped.
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
        self.pump(now);
        if let Some(at) = self.active().filter(|&at| self.links[at].silent) {
            self.look(now, at);
        }
    }

    /// The network says that nobody listens at a port of `host` that something was sent to (ICMP: port unreachable). Anybody may
    /// say so: the peer is asked, and taken for gone only when its answer is overdue as well.
    pub fn unreachable(&mut self, now: Instant, host: IpAddr) {
        self.now = now;
        let Some(at) = self.active() else { return };
        let link = &mut self.links[at];
        if link.conn.remote_address().ip().to_canonical() == host.to_canonical() {
            link.unreachable = Some(now);
            link.conn.ping();
        }
    }

    /// Keeps an answer to a stranger, if there are not too many.
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

    /// The next UDP datagrams to send, written into `out`: up to `most` of one length at once where the system can segment
    /// them. To be called until it gives none, after anything else was.
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
        // Nothing waits, so nothing that was lost does.
        self.lost_seen = self.ledger.lost();
        self.owed = 0;
        None
    }

    /// So many bytes go to the wire.
    fn count(&mut self, now: Instant, transmit: &Transmit, size: usize) {
        let datagrams = transmit.segment.map_or(1, |segment| size.div_ceil(segment.max(1))) as u64;
        let bytes = size as u64 + datagrams * header(transmit.to);
        self.stats.sent_datagrams += datagrams;
        self.stats.sent_bytes += bytes;
        self.shaper.sent(now, bytes);
        self.owed = (self.owed + self.lost_since()).saturating_sub(bytes);
    }

    /// Bytes that were found lost since this was last asked.
    fn lost_since(&mut self) -> u64 {
        let lost = self.ledger.lost();
        lost - std::mem::replace(&mut self.lost_seen, lost)
    }

    /// Bytes to charge to the regulator, which let go `counted` bytes since the last call: what went over the link beyond
    /// these (headers, acknowledgements, and what was lost and goes again or has yet to).
    ///
    /// To be asked whenever something was sent or received, also with nothing counted: what was lost is charged as soon as it
    /// is known, so that the regulator waits while it goes again, and not after. What was counted and did not go is
    /// subtracted from later charges, so that over time exactly the wire's bytes count.
    ///
    /// In an outage the link carries nothing, and all that it would have carried is charged: the regulator lets nothing go, and
    /// what comes waits in the transmit queue, where it is seen.
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

    /// Whether packets wait for the link's rate. What is charged makes the regulator wait as well; this is for those who look.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held
    }

    /// When [`Self::on_timer`] and then [`Self::transmit`] have to be called, if nothing else happens before.
    #[must_use]
    pub fn timer(&mut self) -> Option<Instant> {
        let mut at = None;
        let mut earlier = |other: Option<Instant>| at = [at, other].into_iter().flatten().min();
        for link in &mut self.links {
            earlier(link.conn.poll_timeout());
            if !link.over {
                earlier(Some(if link.greeted { link.look } else { link.until }));
            }
        }
        if let Side::Connecting { again, .. } = self.side {
            earlier(again);
        }
        if self.held {
            earlier(self.shaper.ready_at());
        }
        earlier(self.credit_at);
        earlier(self.settle_at);
        earlier(self.reassembly.timer());
        at
    }

    /// The time that [`Self::timer`] gave has come, or any other time.
    pub fn on_timer(&mut self, now: Instant) {
        self.now = now;
        for at in 0..self.links.len() {
            if self.links[at].conn.poll_timeout().is_some_and(|due| due <= now) {
                self.links[at].conn.handle_timeout(now);
            }
            if self.links[at].over {
                continue;
            }
            if !self.links[at].greeted && self.links[at].until <= now {
                self.give_up(now, at, STOPPED, Reason::Silent);
            } else if self.links[at].greeted && self.links[at].look <= now {
                self.look(now, at);
            }
        }
        if let Side::Connecting { config, peer, again, .. } = &mut self.side
            && again.is_some_and(|again| again <= now)
        {
            *again = None;
            match self.endpoint.connect(now, config.as_ref().clone(), *peer, "spacelink") {
                Ok((handle, conn)) => self.add(now, handle, conn),
                Err(error) => {
                    self.events.push_back(Event::Failed(Reason::Failed(error.to_string())));
                    self.come_again(now);
                }
            }
        }
        if self.credit_at.is_some_and(|due| due <= now) {
            self.tell_credits(now);
        }
        if self.settle_at.is_some_and(|due| due <= now) {
            self.settle(now);
        }
        self.reassembly.expire(now);
        self.pump(now);
    }

    /// What happened next.
    pub fn poll(&mut self) -> Option<Event> {
        if self.credit_bytes >= u64::from(self.ack_every) * u64::from(self.mtu) {
            self.tell_credits(self.now);
        }
        if self.events.is_empty() {
            self.pump(self.now);
        }
        self.events.pop_front()
    }

    /// What was counted so far.
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
