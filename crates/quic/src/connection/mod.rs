//! One end of a connection.

mod addresses;
mod logging;
mod migration;
mod packets;
mod streams;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bentpipe_transport::tcp::{Ecn, SavedPath};
use bentpipe_units::{Duration, Instant, Rate, Rng};
use bytes::Bytes;
use quinn_proto::{
    ClientConfig, ConnectionError, ConnectionHandle, ConnectionId, ConnectionIdGenerator, Endpoint,
    EndpointConfig, VarInt, crypto,
};

use self::addresses::SERVER;
use crate::config::{Fill, Host, Resumption, Token, std_duration};
use crate::control::Shared;
use crate::frames::frames;
use crate::log::Log;
use crate::null_crypto::NullKey;
use crate::scone::Scone;
use crate::stream::Stream;
use crate::tap::Tapped;

/// Length of connection ids [bytes].
pub const CID: usize = 8;

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
    /// Number of the client's address: the current one at the client, at the server the latest that it has heard from.
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

    fn std(&self, at: Instant) -> std::time::Instant {
        self.epoch + std_duration(at - Instant::ZERO)
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
        // A cap above the rate that the windows allow holds nothing back.
        let is_capped = self.is_held && self.rate_cap.is_some() && self.pacing_rate() == self.rate_cap;
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
