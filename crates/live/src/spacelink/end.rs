//! One end of the spacelink: see the module's page.

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
    /// When a look last found that something had come, how many datagrams had by then, and how much had been asked.
    heard: Instant,
    heard_datagrams: u64,
    asked: u64,
    /// Whether an answer is overdue.
    silent: bool,
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
    /// Bytes that wait in streams' inboxes for others before them, and the window they were bounded by.
    scattered: u64,
    window: u64,
    streams: Slab<Stream>,
    slots: BTreeMap<StreamId, usize>,
    serial: u32,
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
            scattered: 0,
            window: setup.window,
            streams: Slab::new(),
            slots: BTreeMap::new(),
            serial: 0,
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

    // Streams

    /// Most bytes of a stream that go into one UDP datagram, whatever QUIC's numbers have grown to: flags, connection,
    /// packet number and tag; frame type, stream, offset and length.
    #[must_use]
    pub fn max_chunk(&self) -> usize {
        usize::from(self.mtu) - (1 + 8 + 4 + 16) - (1 + 8 + 8 + 8)
    }

    /// Opens a stream for a connection; none while the peer is not there or there are too many.
    pub fn open(&mut self, header: &Open) -> Option<StreamKey> {
        let at = self.active()?;
        if self.streams.len() >= self.most_streams as usize {
            self.stats.refused_streams += 1;
            return None;
        }
        let Some(id) = self.links[at].conn.streams().open(Dir::Bi) else {
            self.stats.refused_streams += 1;
            return None;
        };
        let mut bytes = Vec::with_capacity(frames::MAX_OPEN);
        header.encode(&mut bytes);
        // A new stream's window is far larger; one that the connection's window leaves no room for would be useless.
        if self.links[at].conn.send_stream(id).write(&bytes) != Ok(bytes.len()) {
            self.abandon(at, id);
            self.stats.refused_streams += 1;
            return None;
        }
        Some(self.insert(id, None))
    }

    /// Writes what QUIC takes of `data` and gives how much that was: less than given where the peer has not read enough yet,
    /// or holds no more; [`Event::Writable`] says when to go on.
    pub fn write(&mut self, key: StreamKey, data: &[u8]) -> usize {
        let Some((at, slot)) = self.find(key) else { return 0 };
        let id = self.streams[slot].id;
        let mut written = 0;
        while written < data.len() {
            match self.links[at].conn.send_stream(id).write(&data[written..]) {
                Ok(0) => break,
                Ok(more) => written += more,
                Err(WriteError::Stopped(_)) => {
                    self.gone(slot);
                    break;
                }
                Err(_) => break,
            }
        }
        if let Some(stream) = self.streams.get_mut(slot) {
            stream.written += written as u64;
        }
        self.stats.written_bytes += written as u64;
        written
    }

    /// Says that nothing more will be written: half-close.
    pub fn finish(&mut self, key: StreamKey) {
        if let Some((at, slot)) = self.find(key) {
            // Fails where it was finished before, or where the peer's reset is on its way to the host.
            let _ = self.links[at].conn.send_stream(self.streams[slot].id).finish();
        }
    }

    /// Ends the stream in both directions; what was not delivered is lost. The key is void.
    pub fn reset(&mut self, key: StreamKey) {
        if let Some((at, slot)) = self.find(key) {
            let id = self.streams[slot].id;
            self.abandon(at, id);
            self.remove(slot);
        }
    }

    /// Reads into `out` and gives how much: less than there is room for where no more has come. Then, or later,
    /// [`Event::Readable`], [`Event::Finished`] or [`Event::Reset`] says how it goes on.
    pub fn read(&mut self, key: StreamKey, out: &mut [u8]) -> usize {
        let Some((at, slot)) = self.find(key) else { return 0 };
        if self.streams[slot].ended || self.streams[slot].header.is_some() {
            return 0;
        }
        let mut read = 0;
        while read < out.len() {
            let more = self.streams[slot].inbox.read(&mut out[read..]);
            read += more;
            if more == 0 && (!self.collect(at, slot) || self.streams[slot].inbox.is_empty()) {
                break;
            }
        }
        self.stats.read_bytes += read as u64;
        let Some(stream) = self.streams.get_mut(slot).filter(|stream| stream.serial == key.serial) else {
            return read;
        };
        stream.told = false;
        stream.received += read as u64;
        if stream.complete && stream.inbox.is_empty() {
            stream.ended = true;
            self.events.push_back(Event::Finished(key));
            self.list(key);
            self.finish_off(slot);
        }
        read
    }

    /// Takes from QUIC what came of a stream, where all of before was read: else QUIC keeps it, and the peer has to wait.
    /// False where the stream is gone.
    fn collect(&mut self, at: usize, slot: usize) -> bool {
        let stream = &mut self.streams[slot];
        if stream.complete || !stream.inbox.is_empty() {
            return true;
        }
        let before = stream.inbox.scattered();
        let mut of = self.links[at].conn.recv_stream(stream.id);
        let Ok(mut chunks) = of.read(false) else {
            self.gone(slot);
            return false;
        };
        let reset = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => stream.inbox.insert(chunk.offset, chunk.bytes),
                Ok(None) => {
                    stream.complete = true;
                    break false;
                }
                Err(quinn_proto::ReadError::Blocked) => break false,
                Err(quinn_proto::ReadError::Reset(_)) => break true,
            }
        };
        let _ = chunks.finalize();
        self.scattered = self.scattered + stream.inbox.scattered() - before;
        if reset || self.scattered > 2 * self.window {
            // A peer that never sends what is missing.
            self.gone(slot);
            return false;
        }
        true
    }

    /// Tells the far end that `bytes` more of what was read have been delivered.
    pub fn delivered(&mut self, key: StreamKey, bytes: u64) {
        let Some((_, slot)) = self.find(key) else { return };
        let stream = &mut self.streams[slot];
        stream.delivered = (stream.delivered + bytes).min(stream.received);
        self.credit_bytes += bytes;
        self.list(key);
    }

    /// A credit has to be told.
    fn list(&mut self, key: StreamKey) {
        let stream = &mut self.streams[key.slot()];
        if stream.listed[0] || stream.settled == stream.delivered {
            return;
        }
        stream.listed[0] = true;
        self.credits.push(key);
        self.credit_at.get_or_insert(self.now + CREDIT_DELAY);
    }

    // IP packets

    /// Longest IP packet that goes as one datagram; longer ones are cut [bytes]. None while the peer is not there.
    #[must_use]
    pub fn max_datagram(&mut self) -> Option<usize> {
        let at = self.active()?;
        self.links[at].conn.datagrams().max_size().map(|size| size - 1)
    }

    /// Sends an IP packet, in fragments where it is longer than [`Self::max_datagram`]. What is lost stays lost.
    ///
    /// # Errors
    /// If it cannot be sent now, or at all.
    pub fn datagram(&mut self, packet: &[u8]) -> Result<(), NotSent> {
        let at = self.active().ok_or(NotSent::Down)?;
        if packet.is_empty() || packet.len() > usize::from(u16::MAX) {
            return Err(NotSent::Length);
        }
        // In an outage it would be lost anyway, and only kept in mind.
        if self.links[at].silent {
            self.stats.silenced_ip += 1;
            return Err(NotSent::Silent);
        }
        let mut datagrams = self.links[at].conn.datagrams();
        let most = datagrams.max_size().ok_or(NotSent::Down)?;
        self.stats.sent_ip += 1;
        if packet.len() < most {
            let _ = datagrams.send(frames::packet_datagram(packet).into(), true);
            return Ok(());
        }
        let pieces = packet.len().div_ceil(most - FRAGMENT_HEADER);
        if pieces > MAX_FRAGMENTS {
            return Err(NotSent::Length);
        }
        // All of about one length: the shaper spreads them better.
        let each = packet.len().div_ceil(pieces);
        for (index, data) in packet.chunks(each).enumerate() {
            let piece = frames::fragment_datagram(self.packet, index as u8, pieces as u8, data);
            let _ = datagrams.send(piece.into(), true);
        }
        self.packet = self.packet.wrapping_add(1);
        self.stats.fragmented_ip += 1;
        Ok(())
    }

    // Time and packets

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

    /// Somebody wants to connect.
    fn incoming(&mut self, now: Instant, incoming: Incoming, mut answer: Vec<u8>) {
        answer.clear();
        let half_open = self.links.iter().filter(|link| !link.greeted && !link.over).count();
        if half_open >= HALF_OPEN_MOST
            || self.links.len() >= 4 * HALF_OPEN_MOST
            || !matches!(self.side, Side::Listening)
        {
            self.endpoint.ignore(incoming);
        } else if half_open >= HALF_OPEN_RETRY && incoming.may_retry() {
            if let Ok(transmit) = self.endpoint.retry(incoming, &mut answer) {
                self.respond(&transmit, answer);
            }
        } else {
            match self.endpoint.accept(incoming, now, &mut answer, None) {
                Ok((handle, conn)) => self.add(now, handle, conn),
                Err(error) => {
                    if let Some(transmit) = error.response {
                        self.respond(&transmit, answer);
                    }
                }
            }
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

    fn add(&mut self, now: Instant, handle: ConnectionHandle, conn: Connection) {
        self.links.push(Link {
            handle,
            conn,
            greeted: false,
            over: false,
            until: now + 3 * self.round_trip + Duration::from_secs(2),
            control: [None, None],
            buffers: [Vec::new(), Vec::new()],
            look: now,
            heard: now,
            heard_datagrams: 0,
            asked: 0,
            silent: false,
        });
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
        let silent = self.active().is_some_and(|at| self.links[at].silent);
        let idle = if silent { self.shaper.carries(self.now.saturating_duration_since(since)) } else { 0 };
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
        if self.credit_bytes >= CREDIT_PACKETS * u64::from(self.mtu) {
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

    // Inside

    fn active(&self) -> Option<usize> {
        let current = self.current?;
        self.links.iter().position(|link| link.handle == current)
    }

    fn find(&self, key: StreamKey) -> Option<(usize, usize)> {
        let stream = self.streams.get(key.slot())?;
        (stream.serial == key.serial).then_some(())?;
        Some((self.active()?, key.slot()))
    }

    fn key(&self, slot: usize) -> StreamKey {
        StreamKey { slot: slot as u32, serial: self.streams[slot].serial }
    }

    fn insert(&mut self, id: StreamId, header: Option<Vec<u8>>) -> StreamKey {
        self.serial = self.serial.wrapping_add(1);
        let slot = self.streams.insert(Stream {
            serial: self.serial,
            id,
            header,
            told: false,
            inbox: Inbox::default(),
            complete: false,
            ended: false,
            sent: false,
            written: 0,
            acknowledged: 0,
            received: 0,
            delivered: 0,
            credited: 0,
            settled: 0,
            credited_at: self.now,
            listed: [false; 2],
        });
        self.slots.insert(id, slot);
        self.stats.opened += 1;
        self.key(slot)
    }

    fn remove(&mut self, slot: usize) {
        let stream = self.streams.remove(slot);
        self.scattered -= stream.inbox.scattered();
        self.slots.remove(&stream.id);
    }

    /// Resets both directions of a QUIC stream, as far as they are still open.
    fn abandon(&mut self, at: usize, id: StreamId) {
        let conn = &mut self.links[at].conn;
        let _ = conn.send_stream(id).reset(RESET);
        let _ = conn.recv_stream(id).stop(RESET);
    }

    /// The peer has reset a stream.
    fn gone(&mut self, slot: usize) {
        let key = self.key(slot);
        if let Some(at) = self.active() {
            self.abandon(at, self.streams[slot].id);
        }
        if self.streams[slot].header.is_none() {
            self.events.push_back(Event::Reset(key));
        }
        self.remove(slot);
    }

    /// Forgets a stream with which all is done.
    fn finish_off(&mut self, slot: usize) {
        let stream = &self.streams[slot];
        let all = stream.acknowledged == stream.written && stream.settled == stream.received;
        if stream.ended && stream.sent && all {
            self.events.push_back(Event::Closed(self.key(slot)));
            self.remove(slot);
        }
    }

    /// The connection in use is gone.
    fn down(&mut self, reason: Reason) {
        for (slot, stream) in &self.streams {
            if stream.header.is_none() {
                self.events.push_back(Event::Reset(StreamKey { slot: slot as u32, serial: stream.serial }));
            }
        }
        self.streams.clear();
        self.scattered = 0;
        self.slots.clear();
        self.credits.clear();
        self.tail.clear();
        (self.credit_bytes, self.credit_at, self.settle_at) = (0, None, None);
        self.events.push_back(Event::Down(reason));
    }

    /// A connection is over that was in use or was to be.
    fn ended(&mut self, now: Instant, at: usize, reason: Reason) {
        if std::mem::replace(&mut self.links[at].over, true) {
            return;
        }
        if self.current == Some(self.links[at].handle) {
            self.current = None;
            self.down(reason);
        } else {
            self.events.push_back(Event::Failed(reason));
        }
        self.come_again(now);
    }

    fn give_up(&mut self, now: Instant, at: usize, code: u32, reason: Reason) {
        self.links[at].conn.close(now, VarInt::from_u32(code), Bytes::new());
        self.ended(now, at, reason);
    }

    fn come_again(&mut self, now: Instant) {
        if let Side::Connecting { again, wait, .. } = &mut self.side {
            *again = Some(now + *wait);
            *wait = (2 * *wait).min(AGAIN[1]);
        }
    }

    /// Takes from QUIC what happened.
    fn pump(&mut self, now: Instant) {
        let mut at = 0;
        while at < self.links.len() {
            loop {
                let mut quiet = true;
                let link = &mut self.links[at];
                while let Some(event) = link.conn.poll_endpoint_events() {
                    quiet = false;
                    if let Some(event) = self.endpoint.handle_event(link.handle, event) {
                        link.conn.handle_event(event);
                    }
                }
                while let Some(event) = self.links[at].conn.poll() {
                    quiet = false;
                    self.on_event(now, at, event);
                }
                if quiet {
                    break;
                }
            }
            if self.links[at].conn.is_drained() {
                // Not said before where it was closed from here.
                self.ended(now, at, Reason::Closed);
                let gone = self.links.remove(at).conn.stats().path;
                self.stats.sent_packets += gone.sent_packets;
                self.stats.lost_packets += gone.lost_packets;
            } else {
                at += 1;
            }
        }
    }

    fn on_event(&mut self, now: Instant, at: usize, event: quinn_proto::Event) {
        use quinn_proto::Event as Quic;
        match event {
            Quic::HandshakeDataReady | Quic::DatagramsUnblocked => {}
            Quic::Connected => {
                let link = &mut self.links[at];
                link.control[0] = link.conn.streams().open(Dir::Uni);
                link.buffers[0].extend_from_slice(&HELLO);
                self.write_control(at);
            }
            Quic::ConnectionLost { reason } => self.ended(now, at, why(reason)),
            Quic::DatagramReceived => self.take_datagrams(now, at),
            Quic::Stream(StreamEvent::Opened { dir: Dir::Uni }) => {
                while let Some(id) = self.links[at].conn.streams().accept(Dir::Uni) {
                    if self.links[at].control[1].replace(id).is_some() {
                        self.malformed(now, at);
                        return;
                    }
                }
                self.read_control(now, at);
            }
            Quic::Stream(StreamEvent::Opened { dir: Dir::Bi }) => self.accept(at),
            Quic::Stream(StreamEvent::Readable { id }) if self.links[at].control[1] == Some(id) => {
                self.read_control(now, at);
            }
            Quic::Stream(StreamEvent::Readable { id }) => {
                if let Some(slot) = self.slot_of(at, id) {
                    self.readable(at, slot);
                }
            }
            Quic::Stream(StreamEvent::Writable { id }) if self.links[at].control[0] == Some(id) => {
                self.write_control(at)
            }
            Quic::Stream(StreamEvent::Writable { id }) => {
                if let Some(slot) = self.slot_of(at, id) {
                    self.events.push_back(Event::Writable(self.key(slot)));
                }
            }
            Quic::Stream(StreamEvent::Finished { id }) => {
                if let Some(slot) = self.slot_of(at, id) {
                    self.streams[slot].sent = true;
                    self.finish_off(slot);
                }
            }
            Quic::Stream(StreamEvent::Stopped { id, .. }) => {
                if let Some(slot) = self.slot_of(at, id) {
                    self.gone(slot);
                }
            }
            Quic::Stream(StreamEvent::Available { .. }) => {}
        }
    }

    /// The slot of a QUIC stream of the connection in use.
    fn slot_of(&self, at: usize, id: StreamId) -> Option<usize> {
        (self.current == Some(self.links[at].handle)).then_some(())?;
        self.slots.get(&id).copied()
    }

    /// The peer has greeted: this connection is the one in use from now on.
    fn greeted(&mut self, now: Instant, at: usize) {
        if let Some(old) = self.active() {
            let link = &mut self.links[old];
            link.conn.close(now, VarInt::from_u32(REPLACED), Bytes::new());
            link.over = true;
            self.down(Reason::Replaced);
        }
        if let Side::Connecting { wait, .. } = &mut self.side {
            *wait = AGAIN[0];
        }
        let link = &mut self.links[at];
        link.greeted = true;
        (link.look, link.heard) = (now + self.ask_again, now);
        link.conn.set_max_concurrent_streams(Dir::Bi, VarInt::from_u32(self.most_streams));
        self.current = Some(link.handle);
        self.stats.connections += 1;
        self.events.push_back(Event::Up);
        self.accept(at);
        self.take_datagrams(now, at);
    }

    /// Takes the streams that the peer opened.
    fn accept(&mut self, at: usize) {
        if self.current != Some(self.links[at].handle) {
            return;
        }
        while let Some(id) = self.links[at].conn.streams().accept(Dir::Bi) {
            if self.streams.len() >= self.most_streams as usize {
                self.abandon(at, id);
                self.stats.refused_streams += 1;
                continue;
            }
            let key = self.insert(id, Some(Vec::with_capacity(frames::MAX_OPEN)));
            self.readable(at, key.slot());
        }
    }

    /// Something came on a stream.
    fn readable(&mut self, at: usize, slot: usize) {
        let key = self.key(slot);
        if let Ok(Some(_)) = self.links[at].conn.recv_stream(self.streams[slot].id).received_reset() {
            self.gone(slot);
            return;
        }
        if !self.collect(at, slot) {
            return;
        }
        let stream = &mut self.streams[slot];
        if let Some(header) = &mut stream.header {
            let mut bytes = [0; frames::MAX_OPEN];
            loop {
                let missing = match header.first().map(|&first| Open::length(first)) {
                    None => 1,
                    Some(Ok(length)) => length - header.len(),
                    Some(Err(_)) => {
                        self.stats.malformed += 1;
                        self.gone(slot);
                        return;
                    }
                };
                if missing == 0 {
                    break;
                }
                let read = stream.inbox.read(&mut bytes[..missing]);
                header.extend_from_slice(&bytes[..read]);
                if read == 0 {
                    if stream.complete {
                        self.stats.malformed += 1;
                        self.gone(slot);
                    }
                    return;
                }
            }
            let Ok(Some((open, _))) = Open::parse(header) else { return };
            stream.header = None;
            self.events.push_back(Event::Opened { stream: key, header: open });
        }
        if stream.inbox.is_empty() && !stream.complete {
            return;
        }
        if !std::mem::replace(&mut stream.told, true) {
            self.events.push_back(Event::Readable(key));
        }
    }

    /// Takes IP packets and credits that came as datagrams.
    fn take_datagrams(&mut self, now: Instant, at: usize) {
        if self.current != Some(self.links[at].handle) {
            return;
        }
        while let Some(bytes) = self.links[at].conn.datagrams().recv() {
            match Datagram::parse(&bytes) {
                Ok(Datagram::Packet(packet)) => self.deliver(packet.to_vec()),
                Ok(Datagram::Fragment { packet, index, count, data }) => {
                    if let Some(packet) = self.reassembly.fragment(now, packet, index, count, data) {
                        self.deliver(packet);
                    }
                }
                Ok(Datagram::Credits(credits)) => credits.for_each(|credit| self.credited(credit)),
                Err(_) => self.stats.malformed += 1,
            }
        }
    }

    fn deliver(&mut self, packet: Vec<u8>) {
        self.stats.received_ip += 1;
        self.events.push_back(Event::Datagram(packet));
    }

    /// The far end has delivered.
    fn credited(&mut self, credit: Credit) {
        let id = VarInt::from_u64(credit.stream).map(StreamId::from);
        let Some(&slot) = id.ok().and_then(|id| self.slots.get(&id)) else { return };
        let key = self.key(slot);
        let stream = &mut self.streams[slot];
        if credit.delivered > stream.written {
            self.stats.malformed += 1;
            return;
        }
        if credit.delivered > stream.acknowledged {
            let bytes = credit.delivered - std::mem::replace(&mut stream.acknowledged, credit.delivered);
            self.events.push_back(Event::Acknowledged { stream: key, bytes });
            self.finish_off(slot);
        }
    }

    /// Tells the far end what was delivered.
    fn tell_credits(&mut self, now: Instant) {
        (self.credit_bytes, self.credit_at) = (0, None);
        let listed = std::mem::take(&mut self.credits);
        let Some(at) = self.active() else { return };
        let limit = self.links[at].conn.datagrams().max_size();
        let mut credits = Vec::with_capacity(listed.len());
        for key in listed {
            let Some((_, slot)) = self.find(key) else { continue };
            let stream = &mut self.streams[slot];
            stream.listed[0] = false;
            stream.credited = stream.delivered;
            stream.credited_at = now;
            let credit = Credit { stream: stream.id.into(), delivered: stream.delivered };
            // The last credit of all is told for certain, and at once.
            if limit.is_none() || stream.ended && stream.delivered == stream.received {
                stream.settled = stream.delivered;
                credit.encode(&mut self.links[at].buffers[0]);
                self.finish_off(slot);
                continue;
            }
            credits.push(credit);
            if !std::mem::replace(&mut stream.listed[1], true) {
                self.tail.push(key);
                self.settle_at.get_or_insert(now + SETTLE);
            }
        }
        while !credits.is_empty() {
            let bytes = frames::credits_datagram(&mut credits, limit.unwrap_or(0).max(64));
            let _ = self.links[at].conn.datagrams().send(bytes.into(), true);
        }
        self.write_control(at);
    }

    /// Repeats on the control stream the credits that no other followed.
    fn settle(&mut self, now: Instant) {
        self.settle_at = None;
        let Some(at) = self.active() else { return };
        let mut tail = std::mem::take(&mut self.tail);
        tail.retain(|&key| {
            let Some((_, slot)) = self.find(key) else { return false };
            let stream = &mut self.streams[slot];
            let wait = stream.listed[0] || stream.credited_at + SETTLE > now;
            if !wait {
                stream.listed[1] = false;
                if stream.settled != stream.credited {
                    stream.settled = stream.credited;
                    let credit = Credit { stream: stream.id.into(), delivered: stream.credited };
                    credit.encode(&mut self.links[at].buffers[0]);
                    self.finish_off(slot);
                }
            }
            wait
        });
        self.tail = tail;
        if !self.tail.is_empty() {
            self.settle_at = Some(now + SETTLE);
        }
        self.write_control(at);
    }

    /// Writes what waits for the control stream.
    fn write_control(&mut self, at: usize) {
        let link = &mut self.links[at];
        let Some(id) = link.control[0] else { return };
        while !link.buffers[0].is_empty() {
            match link.conn.send_stream(id).write(&link.buffers[0]) {
                Ok(written @ 1..) => drop(link.buffers[0].drain(..written)),
                _ => break,
            }
        }
    }

    /// Reads the peer's control stream.
    fn read_control(&mut self, now: Instant, at: usize) {
        let Some(id) = self.links[at].control[1] else { return };
        let mut bytes = [0; 2048];
        loop {
            let (read, end) = take(&mut self.links[at].conn, id, &mut bytes);
            if !matches!(end, End::Open) {
                self.malformed(now, at);
                return;
            }
            if read == 0 {
                return;
            }
            let mut buffer = std::mem::take(&mut self.links[at].buffers[1]);
            buffer.extend_from_slice(&bytes[..read]);
            let mut done = 0;
            if !self.links[at].greeted {
                if !buffer.starts_with(&HELLO) {
                    if !HELLO.starts_with(&buffer) {
                        self.malformed(now, at);
                        return;
                    }
                    self.links[at].buffers[1] = buffer;
                    continue;
                }
                done = HELLO.len();
                self.greeted(now, at);
            }
            loop {
                match Credit::parse(&buffer[done..]) {
                    Ok(Some((credit, length))) => {
                        done += length;
                        if self.current == Some(self.links[at].handle) {
                            self.credited(credit);
                        }
                    }
                    Ok(None) => break,
                    Err(_) => {
                        self.malformed(now, at);
                        return;
                    }
                }
            }
            buffer.drain(..done);
            self.links[at].buffers[1] = buffer;
        }
    }

    fn malformed(&mut self, now: Instant, at: usize) {
        self.stats.malformed += 1;
        self.give_up(now, at, MALFORMED, Reason::Failed("the peer speaks another protocol".to_owned()));
    }

    /// Looks whether the peer owes an answer, and asks again if it does: quinn waits twice as long each time, and after an
    /// outage would find out late that it is over.
    fn look(&mut self, now: Instant, at: usize) {
        let patience = self.patience(at);
        let link = &mut self.links[at];
        link.look = now + self.ask_again;
        let quic = link.conn.stats();
        let asked = asks(&quic.frame_tx);
        if quic.udp_rx.datagrams != link.heard_datagrams {
            (link.heard, link.heard_datagrams, link.asked) = (now, quic.udp_rx.datagrams, asked);
            link.silent = false;
        } else if asked != link.asked {
            let silence = now.saturating_duration_since(link.heard);
            link.silent = silence >= patience + SILENCE;
            if silence >= patience {
                link.conn.ping();
            }
        }
    }

    /// How long an answer may take.
    fn patience(&self, at: usize) -> Duration {
        self.links[at].conn.rtt() * 5 / 4 + 2 * CREDIT_DELAY
    }
}

/// Reads in order from a QUIC stream.
fn take(conn: &mut Connection, id: StreamId, out: &mut [u8]) -> (usize, End) {
    let mut stream = conn.recv_stream(id);
    let Ok(mut chunks) = stream.read(true) else { return (0, End::Gone) };
    let mut read = 0;
    let end = loop {
        if read == out.len() {
            break End::Open;
        }
        match chunks.next(out.len() - read) {
            Ok(Some(chunk)) => {
                out[read..read + chunk.bytes.len()].copy_from_slice(&chunk.bytes);
                read += chunk.bytes.len();
            }
            Ok(None) => break End::Finished,
            Err(quinn_proto::ReadError::Blocked) => break End::Open,
            Err(quinn_proto::ReadError::Reset(_)) => break End::Gone,
        }
    };
    let _ = chunks.finalize();
    (read, end)
}

/// Why QUIC says a connection is lost.
fn why(error: ConnectionError) -> Reason {
    // TLS alerts are the codes 0x100 to 0x1ff (RFC 9001, 4.8).
    let or_refused = |code: quinn_proto::TransportErrorCode, what: String| match u64::from(code) {
        0x100..0x200 => Reason::Refused(what),
        _ => Reason::Failed(what),
    };
    match error {
        ConnectionError::TransportError(error) => or_refused(error.code, error.to_string()),
        ConnectionError::ConnectionClosed(close) => or_refused(close.error_code, close.to_string()),
        ConnectionError::ApplicationClosed(close) if close.error_code == VarInt::from_u32(STOPPED) => {
            Reason::Closed
        }
        ConnectionError::ApplicationClosed(close) if close.error_code == VarInt::from_u32(REPLACED) => {
            Reason::Replaced
        }
        ConnectionError::Reset => Reason::Restarted,
        ConnectionError::TimedOut => Reason::Silent,
        ConnectionError::LocallyClosed => Reason::Closed,
        other => Reason::Failed(other.to_string()),
    }
}
