//! Configuration of a host's QUIC.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use bentpipe_transport::tcp::{Algorithm, Controller, SavedPath};
use bentpipe_units::{Duration, Rate};
use bytes::Bytes;
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{
    IdleTimeout, ServerConfig, TimeSource, TokenLog, TokenReuseError, TokenStore, TransportConfig, VarInt,
    crypto,
};

use crate::control::{Control, Shared};
use crate::null_crypto::{NullCrypto, NullKey};
use crate::scone;

/// Configuration of a host's QUIC. The defaults are those of RFC 9000 and RFC 9002.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Congestion control.
    pub algorithm: Algorithm,
    /// Seed of its random numbers.
    pub seed: u64,
    /// Longest UDP payload [bytes]; at least 1200 (RFC 9000, section 14).
    pub max_udp_payload: u16,
    /// IP and UDP headers of a packet [bytes].
    pub udp_header: u32,
    /// Initial window [packets] (RFC 9002, section 7.2).
    pub initial_window: u32,
    /// RTT before the first sample (RFC 9002, section 6.2.2).
    pub initial_rtt: Duration,
    /// HyStart++ (RFC 9406), for algorithms with the slow start of RFC 5681.
    pub hystart: bool,
    /// SEARCH (draft-chung-ccwg-search-09), for the same algorithms.
    pub search: bool,
    /// Data that a peer may send on a connection before it is read, and on one stream (RFC 9000, section 4) [bytes].
    pub max_data: u64,
    /// As `max_data`, for each stream [bytes].
    pub max_stream_data: u64,
    /// Time without a packet after which a connection is given up (RFC 9000, section 10.1).
    pub max_idle_timeout: Option<Duration>,
    /// True if packets are sent with ECT(0), or ECT(1) for an algorithm that is L4S (RFC 9000, section 13.4).
    pub ecn: bool,
    /// Rate that the sender does not exceed.
    pub rate_cap: Option<Rate>,
    /// True if servers send tickets and address tokens with which clients resume: their next connections begin with 0-RTT
    /// packets (RFC 9001, section 4.6; RFC 9000, section 8.1.3).
    pub zero_rtt: bool,
    /// Length of the server's handshake messages after the ServerHello [bytes], most of it certificates.
    pub tls_flight: u32,
    /// True if the host takes throughput advice and lets it be given (draft-ietf-scone-protocol-07), with null crypto only. The longest
    /// UDP payload is then at least 1200 bytes and a [SCONE packet](crate::scone::LEN).
    pub scone: bool,
    /// True if servers let clients migrate (RFC 9000, section 9); else a transport parameter forbids it.
    pub migration: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            algorithm: Algorithm::NewReno,
            seed: 0,
            max_udp_payload: 1200,
            udp_header: 28,
            initial_window: 10,
            initial_rtt: Duration::from_millis(333),
            hystart: false,
            search: false,
            max_data: 1 << 24,
            max_stream_data: 1 << 24,
            max_idle_timeout: Some(Duration::from_secs(30)),
            ecn: false,
            rate_cap: None,
            zero_rtt: false,
            tls_flight: 3000,
            scone: false,
            migration: false,
        }
    }
}

/// A configuration with its cryptography and the time that quinn counts from; shared by the connections of a host.
#[derive(Clone)]
pub struct Host {
    pub(crate) config: Config,
    pub(crate) client: Arc<dyn crypto::ClientConfig>,
    pub(crate) server: Arc<dyn crypto::ServerConfig>,
    pub(crate) epoch: std::time::Instant,
    /// True if packets can be read, as with null crypto.
    pub(crate) is_readable: bool,
    /// Content of streams by its position; `None`: zeros, and received bytes are only counted.
    pub(crate) fill: Option<Fill>,
}

/// Fills a buffer with the content of a stream from a position on.
pub type Fill = fn(u64, &mut [u8]);

impl Host {
    /// A host with null crypto.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let crypto = Arc::new(null_crypto(&config, None));
        Self { is_readable: true, ..Self::with_crypto(config, crypto.clone(), crypto) }
    }

    /// A host with other cryptography, for its clients and its servers. Nothing is known of what its packets carry.
    #[must_use]
    // quinn's times are opaque: any will do as the start of the run, and only differences are used.
    #[expect(clippy::disallowed_methods)]
    pub fn with_crypto(
        config: Config,
        client: Arc<dyn crypto::ClientConfig>,
        server: Arc<dyn crypto::ServerConfig>,
    ) -> Self {
        Self { config, client, server, epoch: std::time::Instant::now(), is_readable: false, fill: None }
    }

    /// The host with content on its streams, for real networks: [`Connection::write`] sends what `fill` gives, and
    /// [`Connection::take_chunks`] hands out what has arrived.
    ///
    /// [`Connection::write`]: crate::Connection::write
    /// [`Connection::take_chunks`]: crate::Connection::take_chunks
    #[must_use]
    pub fn with_content(mut self, fill: Fill) -> Self {
        self.fill = Some(fill);
        self
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// True if the number of marks has to be read from decrypted packets.
    pub(crate) fn needs_tap(&self) -> bool {
        !self.is_readable && self.config.algorithm.is_proportional()
    }

    /// Cryptography of a client that may resume. TLS keeps its tickets itself.
    pub(crate) fn client_crypto(&self, resumption: Option<&Resumption>) -> Arc<dyn crypto::ClientConfig> {
        match resumption {
            Some(resumption) if self.is_readable => {
                Arc::new(null_crypto(&self.config, Some(resumption.params)))
            }
            _ => self.client.clone(),
        }
    }

    /// Configuration of a server.
    pub(crate) fn server_config(&self, crypto: Arc<dyn crypto::ServerConfig>) -> ServerConfig {
        let mut server = ServerConfig::new(crypto, Arc::new(NullKey));
        server.migration(self.config.migration).time_source(Arc::new(Timeless));
        let tokens = u32::from(self.config.zero_rtt);
        server.validation_token.sent(tokens).log(Arc::new(Timeless));
        server
    }

    /// Configuration of a connection, which may resume a path.
    pub(crate) fn transport(&self, shared: &Arc<Shared>, saved: Option<SavedPath>) -> TransportConfig {
        let config = &self.config;
        let varint = |value| VarInt::from_u64(value).unwrap_or(VarInt::MAX);
        let mut transport = TransportConfig::default();
        let room = if config.scone { scone::LEN as u16 } else { 0 };
        let mtu = config.max_udp_payload - room;
        let packet = u32::from(mtu);
        let controller = Controller::new(config.algorithm, packet, config.initial_window, config.hystart)
            .with_seed(config.seed)
            .with_search(config.search);
        let idle = config.max_idle_timeout.map(std_duration).and_then(|t| IdleTimeout::try_from(t).ok());
        // BBR paces by the rates that it measures.
        let has_rate_cap = config.rate_cap.is_some() && !config.algorithm.sets_cwnd();
        let control = Control::new(controller, saved, self.epoch, shared.clone()).with_rate_cap(has_rate_cap);
        transport
            .congestion_controller_factory(Arc::new(control))
            .initial_mtu(mtu)
            .min_mtu(mtu)
            .mtu_discovery_config(None)
            .initial_rtt(std_duration(config.initial_rtt))
            .receive_window(varint(config.max_data))
            .stream_receive_window(varint(config.max_stream_data))
            .send_window(config.max_data)
            .max_concurrent_bidi_streams(varint(MAX_STREAMS))
            .max_idle_timeout(idle)
            .enable_segmentation_offload(false)
            .allow_spin(false);
        transport
    }
}

fn null_crypto(config: &Config, remembered: Option<TransportParameters>) -> NullCrypto {
    NullCrypto {
        flight: config.tls_flight as usize,
        sends_tickets: config.zero_rtt,
        remembered,
        scone: config.scone,
    }
}

/// A server that a client has been connected to.
#[derive(Clone, Debug)]
pub struct Resumption {
    pub(crate) params: TransportParameters,
    /// Token that validates the client's address.
    pub(crate) token: Option<Bytes>,
}

/// The token of a client's next connection.
#[derive(Debug, Default)]
pub(crate) struct Token(Mutex<Option<Bytes>>);

impl Token {
    pub(crate) fn new(resumption: Option<&Resumption>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(resumption.and_then(|resumption| resumption.token.clone()))))
    }

    pub(crate) fn get(&self) -> Option<Bytes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl TokenStore for Token {
    fn insert(&self, _server_name: &str, token: Bytes) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(token);
    }

    fn take(&self, _server_name: &str) -> Option<Bytes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A server whose tokens are always valid: clients forget them in time.
struct Timeless;

impl TimeSource for Timeless {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }
}

impl TokenLog for Timeless {
    fn check_and_insert(
        &self,
        _nonce: u128,
        _issued: SystemTime,
        _lifetime: std::time::Duration,
    ) -> Result<(), TokenReuseError> {
        Ok(())
    }
}

/// Streams that a peer may have open at a time: as many as web servers offer, and more than a page has objects.
const MAX_STREAMS: u64 = 1000;

/// A duration as the standard library has it.
pub(crate) fn std_duration(duration: Duration) -> std::time::Duration {
    std::time::Duration::from_nanos(duration.as_nanos())
}
