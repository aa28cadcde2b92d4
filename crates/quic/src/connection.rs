//! One end of a connection.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bentpipe_transport::tcp::{Ecn, SavedPath};
use bentpipe_units::{Duration, Instant, Rate, Rng};
use bytes::{Bytes, BytesMut};
use quinn_proto::{
    ClientConfig, ConnectionError, ConnectionHandle, ConnectionId, ConnectionIdGenerator, DatagramEvent, Dir,
    EcnCodepoint, Endpoint, EndpointConfig, Event, StreamEvent, VarInt, crypto,
};

use crate::config::{Fill, Host, Resumption, Token, std_duration};
use crate::control::Shared;
use crate::frames::{Ack, Frame, frames};
use crate::log::{Counts, Facts, Log, Note, State};
use crate::null_crypto::{HandshakeFacts, NullKey};
use crate::priority::Priority;
use crate::scone::Scone;
use crate::stream::Stream;
use crate::tap::Tapped;

/// Address of the server. The host knows where its packets go; quinn only compares addresses.
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), 443);

/// Addresses of a client, by their number: the first, and those of its migrations (RFC 2544 reserves 198.18.0.0/15).
const FIRST_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const LATER_ADDRESSES: u32 = u32::from_be_bytes([198, 18, 0, 0]);
const LATER_COUNT: u32 = 1 << 17;

/// The client's address with a number.
fn client_address(number: u32) -> SocketAddr {
    let ip = if number == 0 {
        FIRST_ADDRESS
    } else {
        Ipv4Addr::from(LATER_ADDRESSES + (number - 1) % LATER_COUNT)
    };
    SocketAddr::new(IpAddr::V4(ip), 49_152)
}

/// Number of a client's address.
fn address_number(address: SocketAddr) -> u32 {
    match address.ip() {
        IpAddr::V4(ip) => (u32::from(ip) + 1).saturating_sub(LATER_ADDRESSES),
        IpAddr::V6(_) => 0,
    }
}

/// Length of connection ids [bytes].
pub const CID: usize = 8;

/// Length of the label of an unreliable datagram [bytes].
const LABEL: usize = 8;

/// Payload that is written at a time.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// Application error code of a connection that is given up; 0 ends one in order.
const GIVEN_UP: VarInt = VarInt::from_u32(1);

/// Labels of the unreliable datagrams that a UDP payload carries (RFC 9221).
pub fn labels(payload: &[u8]) -> impl Iterator<Item = u64> {
    frames(payload).filter_map(|frame| frame.label())
}

/// Destination connection id of the first packet of a client with this seed.
#[must_use]
pub fn original_destination(seed: u64) -> [u8; CID] {
    seed.rotate_left(32).to_be_bytes()
}

/// A UDP datagram to send.
#[derive(Clone, Debug)]
pub struct Datagram {
    /// Payload.
    pub payload: Vec<u8>,
    /// Code point of its IP header.
    pub ecn: Ecn,
    /// True if it carries data: of streams, or unreliable.
    pub has_data: bool,
    /// True if all of its data was sent before; false if the packet cannot be read.
    pub is_repeated: bool,
    /// Bytes of streams that it carries and that were not sent before; 0 if the packet cannot be read.
    pub fresh: u64,
    /// Number of the client's address that it comes from or goes to: the migrations before it.
    pub address: u32,
}

/// Bytes that have arrived on a stream, each once, in any order.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// The stream.
    pub stream: usize,
    /// Position of the first byte in the stream.
    pub at: u64,
    /// Content.
    pub bytes: Bytes,
}

/// Limit of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The application: all that it has written was sent, or its rate is capped.
    Sender,
    /// Flow control of the peer (RFC 9000, section 4).
    ReceiveWindow,
    /// The congestion window, or pacing by it.
    CongestionWindow,
}

/// State of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Congestion window [bytes].
    pub cwnd: u64,
    /// Slow start threshold, if there is one [bytes].
    pub ssthresh: Option<u64>,
    /// Bytes of packets sent, and neither acknowledged nor lost.
    pub in_flight: u64,
    /// Latest RTT sample.
    pub rtt: Option<Duration>,
    /// Smoothed RTT.
    pub srtt: Option<Duration>,
    /// Probe timeout, without backoff and the peer's max_ack_delay (RFC 9002, section 6.2.1), which only an end with a log
    /// knows; else zero.
    pub rto: Duration,
    /// Packets declared lost, whose data was sent again.
    pub retransmissions: u64,
    /// Expiries of the probe timeout (RFC 9002, section 6.2), which only an end with a log counts.
    pub timeouts: u64,
    /// Migrations of the client, as far as this end knows (RFC 9000, section 9).
    pub migrations: u32,
}

/// One end of a connection: a client from [`Self::connect`], or a server from [`Self::listen`].
///
/// The client opens streams, numbered from 0 in their order; both ends write to them. When all streams are complete in both
/// directions, the client closes the connection.
pub struct Connection {
    endpoint: Endpoint,
    quic: Option<(ConnectionHandle, quinn_proto::Connection)>,
    epoch: std::time::Instant,
    is_client: bool,
    /// Sends ECT(1) in place of ECT(0), which is all that quinn knows.
    is_l4s: bool,
    has_ecn: bool,
    rate_cap: Option<Rate>,
    shared: Arc<Shared>,
    token: Arc<Token>,
    /// A client that does not close the connection when all streams are complete.
    keeps_open: bool,
    /// Migrations of the client, as far as this end knows.
    migrations: u32,
    streams: Vec<Stream>,
    is_established: bool,
    failure: Option<ConnectionError>,
    /// Content of streams, and what has arrived of it.
    fill: Option<Fill>,
    chunks: Vec<Chunk>,
    /// Null crypto lets one read what packets carry; and the algorithm needs the number of marks.
    is_readable: bool,
    counts_marks: bool,
    /// An end with a pacing rate sends nothing before this.
    paced_until: Instant,
    is_held: bool,
    /// Unreliable datagrams that have arrived: label and length [bytes].
    arrived: Vec<(u64, u64)>,
    /// A response of the endpoint that belongs to no connection.
    response: Option<Vec<u8>>,
    initial_rtt: Duration,
    log: Option<Box<Log>>,
    /// Number of the client's address: the present one at the client, at the server the latest that it has heard from.
    address: u32,
    /// Throughput advice, if this end takes it.
    scone: Option<Box<Scone>>,
}

/// Connection ids in order.
struct Cids(u64);

impl ConnectionIdGenerator for Cids {
    fn generate_cid(&mut self) -> ConnectionId {
        self.0 = self.0.wrapping_add(1);
        ConnectionId::new(&self.0.to_be_bytes())
    }

    fn cid_len(&self) -> usize {
        CID
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}

impl Connection {
    /// An end that waits for a client; `seed` seeds its connection ids and quinn's random numbers, and it resumes a `saved`
    /// path (RFC 9959).
    #[must_use]
    pub fn listen(host: &Host, seed: u64, saved: Option<SavedPath>) -> Self {
        Self::new(host, seed, false, saved)
    }

    /// A client that opens a connection, as [`Self::listen`]; to a server that it knows it sends 0-RTT packets.
    ///
    /// # Panics
    /// Never: quinn refuses only addresses and versions that cannot occur here.
    #[must_use]
    pub fn connect(
        host: &Host,
        now: Instant,
        seed: u64,
        saved: Option<SavedPath>,
        resumption: Option<&Resumption>,
    ) -> Self {
        let mut this = Self::new(host, seed, true, saved);
        this.token = Token::new(resumption);
        let crypto = host.client_crypto(resumption);
        let crypto: Arc<dyn crypto::ClientConfig> = if host.needs_tap() {
            Arc::new(Tapped { inner: crypto, shared: this.shared.clone() })
        } else {
            crypto
        };
        let mut config = ClientConfig::new(crypto);
        let cid = ConnectionId::new(&original_destination(seed));
        config
            .transport_config(Arc::new(host.transport(&this.shared, saved)))
            .token_store(this.token.clone())
            .initial_dst_cid_provider(Arc::new(move || cid));
        let now = this.std(now);
        this.quic = this.endpoint.connect(now, config, SERVER, "server").ok();
        assert!(this.quic.is_some(), "the address is valid");
        this
    }

    fn new(host: &Host, seed: u64, is_client: bool, saved: Option<SavedPath>) -> Self {
        let mut rng = Rng::stream(seed, "quic", u64::from(is_client), "endpoint");
        let mut words = [0u8; 32];
        words.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&rng.bits().to_le_bytes()));
        let first_cid = rng.bits();
        let mut config = EndpointConfig::new(Arc::new(NullKey));
        config.rng_seed(Some(words)).cid_generator(move || Box::new(Cids(first_cid))).grease_quic_bit(false);
        let shared = Arc::new(Shared::default());
        let server = (!is_client).then(|| {
            let crypto: Arc<dyn crypto::ServerConfig> = if host.needs_tap() {
                Arc::new(Tapped { inner: host.server.clone(), shared: shared.clone() })
            } else {
                host.server.clone()
            };
            let mut server = host.server_config(crypto);
            server.transport_config(Arc::new(host.transport(&shared, saved)));
            Arc::new(server)
        });
        let algorithm = host.config.algorithm;
        Self {
            endpoint: Endpoint::new(Arc::new(config), server, false, None),
            quic: None,
            epoch: host.epoch,
            is_client,
            is_l4s: algorithm.is_l4s(),
            has_ecn: host.config.ecn,
            rate_cap: host.config.rate_cap,
            shared,
            token: Arc::default(),
            keeps_open: false,
            migrations: 0,
            streams: Vec::new(),
            is_established: false,
            failure: None,
            fill: host.fill,
            chunks: Vec::new(),
            is_readable: host.is_readable,
            counts_marks: host.is_readable && algorithm.is_proportional(),
            paced_until: Instant::ZERO,
            is_held: false,
            arrived: Vec::new(),
            response: None,
            initial_rtt: host.config.initial_rtt,
            log: None,
            address: 0,
            scone: (host.config.scone && host.is_readable).then(|| Box::new(Scone::new(is_client))),
        }
    }

    /// Logs the datagrams and the loss recovery of this end, which has sent nothing yet; its packets must be readable.
    pub fn start_log(&mut self) {
        debug_assert!(self.is_readable);
        self.log = Some(Box::new(Log::new(self.is_client, self.initial_rtt)));
    }

    /// Takes what the log has noted, with the times.
    pub fn take_notes(&mut self) -> Option<std::vec::Drain<'_, (Instant, Note)>> {
        self.log.as_mut().map(|log| log.take_notes())
    }

    /// Notes the state of this end in its log.
    pub fn log_state(&mut self, now: Instant) {
        let pacing = self.pacing_rate();
        if let (Some(log), Some((_, quic))) = (&mut self.log, &self.quic) {
            let controller = quic.congestion_state().metrics();
            let (cwnd, ssthresh) = (controller.congestion_window, controller.ssthresh);
            log.note_state(now, State { recovery: log.metrics(), cwnd, ssthresh, pacing });
        }
    }

    fn facts(&self) -> Facts {
        let quic = self.quic.as_ref().map(|(_, quic)| quic);
        Facts {
            is_handshaking: quic.is_none_or(|quic| quic.is_handshaking()),
            is_closed: quic.is_some_and(|quic| quic.is_closed()),
            was_closed: false,
        }
    }

    /// Frames that quinn has processed, and the congestion window.
    fn before_log(&self) -> (Counts, u64) {
        let Some((_, quic)) = &self.quic else { return (Counts::default(), 0) };
        (processed(quic), quic.congestion_state().window())
    }

    /// Compares the log with quinn after a step from a congestion window of `before`.
    fn check_log(&mut self, now: Instant, before: u64) {
        let (Some(log), Some((_, quic))) = (&mut self.log, &self.quic) else { return };
        if quic.congestion_state().window() < before {
            log.begin_recovery(now);
        }
        let path = quic.stats().path;
        debug_assert_eq!(log.lost(), (path.lost_packets, path.lost_bytes), "at {now:?}");
        debug_assert_eq!(std_duration(log.srtt()), quic.rtt(), "at {now:?}");
        self.log_state(now);
    }

    fn std(&self, at: Instant) -> std::time::Instant {
        self.epoch + std_duration(at - Instant::ZERO)
    }

    // ----- packets -------------------------------------------------------------------------------------------

    /// Handles a datagram on the path of the latest.
    pub fn receive(&mut self, now: Instant, ecn: Ecn, payload: Vec<u8>) {
        self.receive_from(now, ecn, payload, self.address);
    }

    /// Handles a datagram from or to the client's `address`, by its number. A datagram to an address that the client has left must
    /// not reach it.
    pub fn receive_from(&mut self, now: Instant, ecn: Ecn, mut payload: Vec<u8>, address: u32) {
        if self.counts_marks {
            for frame in frames(&payload) {
                if let Frame::Ack(Ack { ecn: Some([.., marks]), .. }) = frame {
                    self.shared.marks.fetch_max(marks, Relaxed);
                }
            }
        }
        let logged = self.log.is_some().then(|| (payload.clone(), self.before_log(), self.facts().is_closed));
        let signal = self.scone.as_mut().and_then(|scone| scone.receive(&mut payload));
        let advised = signal.map(|signal| (signal, self.before_log().0));
        let (at, remote) = (self.std(now), if self.is_client { SERVER } else { client_address(address) });
        let path_before = self.remote();
        let codepoint = match ecn {
            Ecn::NotEct => None,
            Ecn::Ect0 | Ecn::Ect1 => Some(EcnCodepoint::Ect0),
            Ecn::Ce => Some(EcnCodepoint::Ce),
        };
        let mut buf = Vec::new();
        let payload = BytesMut::from(Bytes::from(payload));
        match self.endpoint.handle(at, remote, None, codepoint, payload, &mut buf) {
            Some(DatagramEvent::ConnectionEvent(_, event)) => {
                if let Some((_, quic)) = &mut self.quic {
                    quic.handle_event(event);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                if self.quic.is_some() {
                    self.endpoint.ignore(incoming);
                } else {
                    self.quic = self.endpoint.accept(incoming, at, &mut buf, None).ok();
                }
            }
            Some(DatagramEvent::Response(_)) => self.response = Some(buf),
            None => {}
        }
        self.handle_events();
        let has_migrated = path_before.is_some() && self.remote() != path_before;
        if let (Some((signal, before)), Some(scone)) = (advised, &mut self.scone) {
            // Advice counts only if the packet behind it does (section 5.3): then its frames were processed.
            let after = self.quic.as_ref().map_or(before, |(_, quic)| processed(quic));
            if after != before {
                scone.record(now, signal);
            }
        }
        if let Some((payload, (before, window), was_closed)) = logged {
            let (after, facts) = (self.before_log().0, Facts { was_closed, ..self.facts() });
            let processed = std::array::from_fn(|place| after[place] - before[place]);
            if let Some(log) = &mut self.log {
                log.on_received(now, &payload, ecn, processed, facts);
                if has_migrated {
                    log.on_peer_migrated(now, payload.len() as u64, facts);
                }
            }
            // The initial window of another path is no reduction of this one's.
            self.check_log(now, if has_migrated { 0 } else { window });
        }
        if has_migrated {
            self.address = address;
            self.migrations += 1;
            self.begin_path(now);
            self.shared.in_flight.store(0, Relaxed);
        }
    }

    /// Address of the peer, as quinn knows it.
    fn remote(&self) -> Option<SocketAddr> {
        self.quic.as_ref().map(|(_, quic)| quic.remote_address())
    }

    /// Forgets what is known of the path before.
    fn begin_path(&mut self, now: Instant) {
        self.shared.forget_path();
        self.paced_until = self.paced_until.min(now);
    }

    // ----- migration -----------------------------------------------------------------------------------------

    /// Moves a client to another address (RFC 9000, section 9.2): it takes the next of the server's connection ids (section
    /// 9.5), begins with the initial window and no RTT (section 9.4), and sends a packet from there, whose address the
    /// server validates (section 9.3).
    ///
    /// Returns false if that is not possible: at a server, before the handshake is confirmed (section 9), or after the end of
    /// the connection.
    pub fn migrate(&mut self, now: Instant) -> bool {
        let at = self.std(now);
        let Some((_, quic)) = self.quic.as_mut().filter(|_| self.is_client) else { return false };
        if quic.is_closed() || quic.stats().frame_rx.handshake_done == 0 {
            return false;
        }
        quic.local_address_changed();
        quic.path_changed(at);
        self.handle_events();
        self.address += 1;
        self.migrations += 1;
        self.begin_path(now);
        if let Some(log) = &mut self.log {
            log.on_migrated();
        }
        true
    }

    /// True for a datagram to an address that this client has left.
    #[must_use]
    pub fn has_left(&self, address: u32) -> bool {
        self.is_client && address != self.address
    }

    /// Gives the next datagram to send. A client whose streams are all complete closes the connection.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Datagram> {
        if self.is_client
            && !self.keeps_open
            && !self.streams.is_empty()
            && self.streams.iter().all(Stream::is_over)
        {
            self.close(now, VarInt::from_u32(0));
        }
        if let Some(payload) = self.response.take() {
            let facts = self.facts();
            if let Some(log) = &mut self.log {
                log.on_sent(now, &payload, Ecn::NotEct, facts, true);
            }
            return Some(Datagram {
                payload,
                ecn: Ecn::NotEct,
                has_data: false,
                is_repeated: false,
                fresh: 0,
                address: self.address,
            });
        }
        self.is_held = now < self.paced_until;
        if self.is_held {
            return None;
        }
        let at = self.std(now);
        let (_, quic) = self.quic.as_mut()?;
        let mut payload = Vec::new();
        let data_frames = |quic: &quinn_proto::Connection| {
            let frames = quic.stats().frame_tx;
            frames.stream + frames.datagram
        };
        let before = if self.is_readable { 0 } else { data_frames(quic) };
        let sent = quic.poll_transmit(at, 1, &mut payload);
        let Some(sent) = sent else {
            self.pass_endpoint_events();
            return None;
        };
        // A server asks the address before for an answer (RFC 9000, section 9.3.3), besides all else.
        let is_on_path = self.is_client || sent.destination == quic.remote_address();
        let address = if is_on_path { self.address } else { address_number(sent.destination) };
        let (mut has_data, mut has_datagram, mut fresh) = (false, false, 0);
        if !self.is_readable {
            has_data = data_frames(quic) > before;
        }
        for frame in self.is_readable.then(|| frames(&payload)).into_iter().flatten() {
            match frame {
                Frame::Stream { id, offset, len, .. } => {
                    has_data = true;
                    if let Some(stream) = self.streams.iter_mut().find(|stream| u64::from(stream.id) == id) {
                        fresh += stream.send(offset, len);
                    }
                }
                Frame::Datagram(_) => (has_data, has_datagram) = (true, true),
                _ => {}
            }
        }
        let is_repeated = self.is_readable && has_data && !has_datagram && fresh == 0;
        if has_data && let Some(rate) = self.pacing_rate() {
            self.paced_until = now.max(self.paced_until) + rate.time_to_send(payload.len() as u64);
        }
        let ecn = match sent.ecn {
            Some(EcnCodepoint::Ect0) if self.has_ecn && self.is_l4s => Ecn::Ect1,
            Some(EcnCodepoint::Ect0) if self.has_ecn => Ecn::Ect0,
            _ => Ecn::NotEct,
        };
        if let Some(scone) = &mut self.scone {
            scone.send(now, &mut payload, has_data);
        }
        if self.log.is_some() {
            let facts = self.facts();
            if let Some(log) = &mut self.log {
                log.on_sent(now, &payload, ecn, facts, is_on_path);
            }
        }
        Some(Datagram { payload, ecn, has_data, is_repeated, fresh, address })
    }

    fn pacing_rate(&self) -> Option<Rate> {
        let (_, quic) = self.quic.as_ref()?;
        let pacing = quic.congestion_state().metrics().pacing_rate.map(Rate::from_bps);
        pacing.into_iter().chain(self.rate_cap).min()
    }

    /// Time at which [`Self::handle_timeout`] is due.
    pub fn poll_timeout(&mut self) -> Option<Instant> {
        let epoch = self.epoch;
        let timer = self.quic.as_mut().and_then(|(_, quic)| quic.poll_timeout()).map(|at| {
            Instant::ZERO + Duration::from_nanos(at.saturating_duration_since(epoch).as_nanos() as u64)
        });
        let held = self.is_held.then_some(self.paced_until);
        timer.into_iter().chain(held).min()
    }

    /// Handles a timeout.
    pub fn handle_timeout(&mut self, now: Instant) {
        let at = self.std(now);
        let logged = self.log.is_some().then(|| (self.facts().is_closed, self.before_log().1));
        let path_before = self.remote();
        if let Some((_, quic)) = &mut self.quic {
            quic.handle_timeout(at);
        }
        self.handle_events();
        if let Some(remote) = self.remote().filter(|remote| Some(*remote) != path_before) {
            // The client did not answer from its new address (RFC 9000, section 9.3.2).
            self.address = address_number(remote);
            if let Some(log) = &mut self.log {
                log.on_returned();
            }
        }
        if let Some((was_closed, window)) = logged {
            let facts = self.facts();
            if let Some(log) = &mut self.log {
                log.on_timeout(now, facts.is_closed && !was_closed, facts);
            }
            self.check_log(now, window);
        }
    }

    // ----- events --------------------------------------------------------------------------------------------

    fn pass_endpoint_events(&mut self) {
        let Some((handle, quic)) = &mut self.quic else { return };
        while let Some(event) = quic.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                quic.handle_event(event);
            }
        }
    }

    fn handle_events(&mut self) {
        self.pass_endpoint_events();
        while let Some((_, quic)) = &mut self.quic
            && let Some(event) = quic.poll()
        {
            let kept = self.fill.map(|_| &mut self.chunks);
            match event {
                Event::Connected => {
                    self.is_established = true;
                    if let Some(scone) = &mut self.scone {
                        let facts = quic.crypto_session().handshake_data();
                        let facts = facts.and_then(|facts| facts.downcast::<HandshakeFacts>().ok());
                        scone.peer_supports = facts.is_some_and(|facts| facts.peer_has_scone);
                    }
                }
                Event::ConnectionLost { reason } => {
                    self.failure = Some(reason).filter(|why| !is_in_order(why))
                }
                Event::Stream(StreamEvent::Opened { dir: Dir::Bi }) => {
                    let mut kept = kept;
                    while let Some(id) = quic.streams().accept(Dir::Bi) {
                        self.streams.push(Stream::new(id));
                        read(quic, &mut self.streams, id, kept.as_deref_mut());
                    }
                }
                Event::Stream(StreamEvent::Readable { id }) => read(quic, &mut self.streams, id, kept),
                Event::Stream(StreamEvent::Writable { id }) => {
                    if let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == id) {
                        write(quic, stream, self.fill);
                    }
                }
                Event::DatagramReceived => {
                    while let Some(data) = quic.datagrams().recv() {
                        let label = data.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
                        self.arrived.push((label, data.len() as u64));
                    }
                }
                Event::Stream(StreamEvent::Finished { id }) => {
                    if let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == id) {
                        stream.is_acked = true;
                    }
                }
                _ => {}
            }
        }
    }

    fn close(&mut self, now: Instant, code: VarInt) {
        let at = self.std(now);
        if let Some((_, quic)) = &mut self.quic
            && !quic.is_closed()
        {
            quic.close(at, code, Bytes::new());
        }
    }

    // ----- streams -------------------------------------------------------------------------------------------

    /// Opens a stream; `None` while the peer allows no more, or the handshake is not complete.
    pub fn open(&mut self) -> Option<usize> {
        let (_, quic) = self.quic.as_mut()?;
        let id = quic.streams().open(Dir::Bi)?;
        self.streams.push(Stream::new(id));
        Some(self.streams.len() - 1)
    }

    /// Streams that either end has opened.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Writes `bytes` to a stream.
    pub fn write(&mut self, stream: usize, bytes: u64) {
        if let (Some((_, quic)), Some(stream)) = (&mut self.quic, self.streams.get_mut(stream)) {
            stream.backlog += bytes;
            write(quic, stream, self.fill);
        }
    }

    /// Writes these bytes to a stream on which [`Self::write`] has written none.
    pub fn write_bytes(&mut self, stream: usize, bytes: &[u8]) {
        if let (Some((_, quic)), Some(stream)) = (&mut self.quic, self.streams.get_mut(stream)) {
            stream.pending = [&stream.pending, bytes].concat().into();
            write(quic, stream, self.fill);
        }
    }

    /// Takes what has arrived since the last call, if the host has [content](Host::with_content).
    pub fn take_chunks(&mut self) -> Vec<Chunk> {
        std::mem::take(&mut self.chunks)
    }

    /// Sets the priority of what is written to a stream from now on (RFC 9218). Streams without one are served in turn, after
    /// all with one but those of urgency 7 that are incremental, which share with them.
    pub fn prioritize(&mut self, stream: usize, priority: Priority) {
        if let (Some((_, quic)), Some(stream)) = (&mut self.quic, self.streams.get(stream)) {
            // It fails only if the stream is over.
            let _ = quic.send_stream(stream.id).set_priority(priority.rank(stream.id));
        }
    }

    /// Ends a stream in this direction after what has been written.
    pub fn finish(&mut self, stream: usize) {
        if let (Some((_, quic)), Some(stream)) = (&mut self.quic, self.streams.get_mut(stream)) {
            stream.is_closing = true;
            write(quic, stream, self.fill);
        }
    }

    /// Bytes of a stream that have arrived in order and were not read.
    #[must_use]
    pub fn readable(&self, stream: usize) -> u64 {
        self.streams.get(stream).map_or(0, Stream::readable)
    }

    /// Reads bytes of a stream, at most as many as are [readable](Self::readable).
    pub fn read(&mut self, stream: usize, bytes: u64) {
        if let Some(stream) = self.streams.get_mut(stream) {
            stream.read += bytes.min(stream.readable());
        }
    }

    /// True if the peer has ended a stream and all of it has arrived.
    #[must_use]
    pub fn peer_finished(&self, stream: usize) -> bool {
        self.streams.get(stream).is_some_and(|stream| stream.has_ended)
    }

    /// Keeps the connection open when all streams are complete, or lets its client close it then.
    pub fn keep_open(&mut self, keeps_open: bool) {
        self.keeps_open = keeps_open;
    }

    // ----- datagrams -----------------------------------------------------------------------------------------

    /// Sends an unreliable datagram of `bytes`, at least 8, with a label (RFC 9221). Returns false if it does not fit into a
    /// packet or the buffer, or if the handshake is not complete.
    pub fn send_datagram(&mut self, bytes: usize, label: u64) -> bool {
        let Some((_, quic)) = &mut self.quic else { return false };
        let mut data = vec![0; bytes.max(LABEL)];
        data[..LABEL].copy_from_slice(&label.to_be_bytes());
        quic.datagrams().send(data.into(), false).is_ok()
    }

    /// Takes the unreliable datagrams that have arrived: label and length [bytes].
    pub fn take_datagrams(&mut self) -> std::vec::Drain<'_, (u64, u64)> {
        self.arrived.drain(..)
    }

    // ----- state ---------------------------------------------------------------------------------------------

    /// True if it opened the connection.
    #[must_use]
    pub fn is_client(&self) -> bool {
        self.is_client
    }

    /// True once the handshake is complete; at a client that resumes from the beginning, since it sends 0-RTT packets.
    #[must_use]
    pub fn is_established(&self) -> bool {
        self.is_established || self.is_client && self.quic.as_ref().is_some_and(|(_, quic)| quic.has_0rtt())
    }

    /// Knowledge that a client needs to resume, once it has a token from the server.
    #[must_use]
    pub fn resumption(&self) -> Option<Resumption> {
        let (_, quic) = self.quic.as_ref().filter(|_| self.is_client && self.is_established)?;
        let params = quic.crypto_session().transport_parameters().ok().flatten()?;
        Some(Resumption { params, token: Some(self.token.get()?) })
    }

    /// True if it ended in any way but in order.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Reason of a failure.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.failure.as_ref().map(ToString::to_string)
    }

    /// True if it has ended, apart from answers to late packets, or never began.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.quic.as_ref().is_none_or(|(_, quic)| quic.is_closed())
    }

    /// True once late packets of the peer need no answer either, so that nothing is lost with this end.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.quic.as_ref().is_none_or(|(_, quic)| quic.is_drained())
    }

    /// Gives the connection up; false if it was over.
    pub fn abort(&mut self, now: Instant) -> bool {
        let is_open = !self.is_over();
        self.close(now, GIVEN_UP);
        is_open
    }

    /// Parameters of the path to be saved for a later connection; `None` if there is nothing to save.
    #[must_use]
    pub fn observed(&self) -> Option<SavedPath> {
        self.shared.observed()
    }

    /// True if a resumed path met congestion: its parameters are to be forgotten (RFC 9959, section 3.5).
    #[must_use]
    pub fn has_retreated(&self) -> bool {
        self.shared.has_retreated.load(Relaxed)
    }

    /// Rate that the network advises this end's peer not to exceed (draft-ietf-scone-protocol-07), if any.
    #[must_use]
    pub fn advice(&self, now: Instant) -> Option<Rate> {
        self.scone.as_ref().and_then(|scone| scone.advice(now))
    }

    /// Limit of this end as a sender of streams; `None` before the handshake is complete. Packets must be readable.
    #[must_use]
    pub fn limit(&self) -> Option<Limit> {
        if !self.is_established() {
            return None;
        }
        let is_capped = self.rate_cap.is_some() && self.pacing_rate() == self.rate_cap;
        // quinn takes no more than the peer's flow control allows.
        Some(if !is_capped && self.streams.iter().any(Stream::has_unsent) {
            Limit::CongestionWindow
        } else if !is_capped && self.streams.iter().any(Stream::has_backlog) {
            Limit::ReceiveWindow
        } else {
            Limit::Sender
        })
    }

    /// State of this end as a sender.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let Some((_, quic)) = &self.quic else { return Stats::default() };
        let metrics = quic.congestion_state().metrics();
        let (rtt, srtt) = self.shared.round_trip();
        Stats {
            cwnd: metrics.congestion_window,
            ssthresh: metrics.ssthresh,
            in_flight: self.shared.in_flight.load(Relaxed),
            rtt,
            srtt,
            rto: self.log.as_ref().map_or(Duration::ZERO, |log| log.probe_timeout()),
            retransmissions: quic.stats().path.lost_packets,
            timeouts: self.log.as_ref().map_or(0, |log| log.timeouts()),
            migrations: self.migrations,
        }
    }
}

/// True for the end of a connection that both sides wanted.
fn is_in_order(reason: &ConnectionError) -> bool {
    match reason {
        ConnectionError::ApplicationClosed(close) => close.error_code != GIVEN_UP,
        ConnectionError::LocallyClosed => true,
        _ => false,
    }
}

/// Frames that quinn has processed.
fn processed(quic: &quinn_proto::Connection) -> Counts {
    let f = quic.stats().frame_rx;
    let others = f.ack_frequency
        + f.connection_close
        + f.data_blocked
        + f.datagram
        + u64::from(f.handshake_done)
        + f.immediate_ack
        + f.max_data
        + f.max_stream_data
        + f.max_streams_bidi
        + f.max_streams_uni
        + f.new_connection_id
        + f.new_token
        + f.path_challenge
        + f.path_response
        + f.reset_stream
        + f.retire_connection_id
        + f.stream_data_blocked
        + f.streams_blocked_bidi
        + f.streams_blocked_uni
        + f.stop_sending;
    [f.acks, f.crypto, f.ping, f.stream, others]
}

/// Takes what has arrived on a stream, and its content into `kept`.
fn read(
    quic: &mut quinn_proto::Connection,
    streams: &mut [Stream],
    id: quinn_proto::StreamId,
    mut kept: Option<&mut Vec<Chunk>>,
) {
    let Some(at) = streams.iter().position(|stream| stream.id == id) else { return };
    let stream = &mut streams[at];
    let mut receive = quic.recv_stream(id);
    let Ok(mut chunks) = receive.read(false) else { return };
    loop {
        match chunks.next(usize::MAX) {
            Ok(Some(chunk)) => {
                stream.receive(chunk.offset, chunk.bytes.len() as u64);
                if let Some(kept) = &mut kept {
                    kept.push(Chunk { stream: at, at: chunk.offset, bytes: chunk.bytes });
                }
            }
            Ok(None) => {
                stream.has_ended = true;
                break;
            }
            Err(_) => break,
        }
    }
    // Flow control is extended with the next packet in any case.
    let _ = chunks.finalize();
}

/// Gives quinn what it takes of a stream's backlog.
fn write(quic: &mut quinn_proto::Connection, stream: &mut Stream, fill: Option<Fill>) {
    let mut send = quic.send_stream(stream.id);
    loop {
        if stream.pending.is_empty() {
            let len = stream.backlog.min(ZEROS.len() as u64) as usize;
            if len == 0 {
                break;
            }
            stream.pending = match fill {
                None => Bytes::from_static(&ZEROS[..len]),
                Some(fill) => {
                    let mut content = vec![0; len];
                    fill(stream.filled, &mut content);
                    content.into()
                }
            };
            stream.filled += len as u64;
            stream.backlog -= len as u64;
        }
        // Blocked; or stopped, and then nothing of it is wanted any more.
        if send.write_chunks(std::slice::from_mut(&mut stream.pending)).is_err() {
            return;
        }
    }
    if stream.is_closing && !std::mem::replace(&mut stream.is_finished, true) {
        // It fails only if the peer has stopped the stream.
        let _ = send.finish();
    }
}
