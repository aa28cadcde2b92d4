//! The spacelink: one QUIC connection between the two ends of the gateway. It has a stream for each split TCP connection
//! and datagrams for IP packets that are not split.
//!
//! It has no socket and no clock. The host passes in UDP datagrams ([`Spacelink::receive`]) and the time, sends what
//! [`Spacelink::transmit`] returns, calls [`Spacelink::on_timer`] at [`Spacelink::timer`], and after each of these handles
//! the events of [`Spacelink::poll`]:
//!
//! ```text
//!  socket ─▶ receive ─┐            ┌─▶ poll ─▶ Event::{Up, Opened, Readable, Acknowledged, …}
//!  timer ──▶ on_timer ┼─ Spacelink ┤
//!  write, finish, … ──┘            └─▶ transmit ─▶ socket
//! ```
//!
//! - The *listening* end is the gateway, the *connecting* end the terminal, which reconnects whenever the connection is lost.
//!   There is one connection at a time: a new one from the same peer replaces the old. When a connection ends, each of its
//!   streams gets [`Event::Lost`] before [`Event::Down`], and their keys become invalid.
//! - Both ends authenticate with a key whose certificate the other end has ([`keys`]).
//! - Rate: congestion control never slows down for losses (`controller`), since the gateway's regulator decides how much is
//!   written. [`Spacelink::charge`] tells it which bytes the link carries beyond those. A shaper at the link's rate spreads
//!   retransmissions after an outage (`shaper`).
//! - Credits: a QUIC acknowledgement says that the peer's *process* has a packet. A sender's buffer is freed only when the
//!   peer's *client* has taken the bytes: [`Spacelink::delivered`] there becomes [`Event::Acknowledged`] here. Credits are
//!   totals, sent in datagrams, so a lost credit delays nothing: the next one includes it. The last is repeated on a stream.

mod controller;
mod end;
pub mod frames;
mod hub;
mod inbox;
pub mod keys;
mod rate_estimator;
mod reassembly;
mod shaper;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bentpipe_units::Rate;
use bytes::{Bytes, BytesMut};
use quinn_proto::{
    AckFrequencyConfig, ClientConfig, Connection, ConnectionError, ConnectionEvent, ConnectionHandle,
    DatagramEvent, Dir, EcnCodepoint, Endpoint, EndpointConfig, FrameStats, HashedConnectionIdGenerator,
    IdleTimeout, Incoming, ServerConfig, StreamEvent, StreamId, TransportConfig, VarInt, WriteError,
};
use slab::Slab;

use controller::{Ledger, Uncontrolled};
use frames::{Control, Credit, Datagram, FRAGMENT_HEADER, HELLO, MAX_FRAGMENTS};
use inbox::Inbox;
use reassembly::Reassembly;
use shaper::Shaper;

pub use end::Spacelink;
pub use frames::Open;
pub use hub::Hub;
pub use keys::{Certificate, Identity, KeyError, keygen};
pub use rate_estimator::{LinkObservation, RateBounds, RateEstimator};

/// Share of a round trip after which a credit is sent: a buffer's rate is its size over the round trip, less 3 %.
const CREDITS_PER_ROUND_TRIP: u32 = 32;
/// Shortest interval between credits: each takes some 70 bytes of the return link.
const CREDIT_INTERVAL: Duration = Duration::from_millis(5);
/// Time after which a credit is repeated on the control stream if no other followed it.
const REPEAT: Duration = Duration::from_millis(500);
/// Unauthenticated connections from which on a new peer must prove its address (QUIC Retry).
const HALF_OPEN_RETRY: usize = 2;
/// Maximum number of unauthenticated connections of the peer's host, and of all others.
const HALF_OPEN_MOST: usize = 8;
/// Delay before a reconnect: the first and the longest.
const RECONNECT: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(2)];
/// Delay of an answer beyond the usual that means an outage.
const SILENCE: Duration = Duration::from_millis(300);
/// Pings of a new connection, from a round trip after the handshake on. quinn-proto 0.11 stops its ACK timer when it sends
/// the handshake's acknowledgements, restarts it only after others, and adds acknowledgements to a packet no sooner: an end
/// without data would leave 31 packets unacknowledged and seem silent.
const FIRST_PINGS: u32 = 3;
/// Streams that a peer may open before it is authenticated.
const STREAMS_UNAUTHENTICATED: u32 = 16;
/// Streams that one of many peers may open at first; QUIC keeps some 40 bytes for each, used or not. So many may be opened within
/// a round trip. A hash table with 512 entries holds seven eighths of that.
const FIRST_STREAMS: u32 = 448;
/// Time for a handshake beyond three round trips: packets are lost, and a gateway whose terminals all come back at once needs
/// its time. An attempt that is given up too early only makes another.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum number of resets kept of streams that have not arrived yet.
const MOST_EARLY_RESETS: usize = 1024;
/// Maximum number of bytes that wait for the peer to read its control stream: 100,000 resets.
const MOST_CONTROL: usize = 1 << 20;
/// Least size of datagrams that a peer must accept [bytes]: packets of 1200 bytes, the least of QUIC, have room for 1162.
const LEAST_DATAGRAM: usize = 1000;
/// Maximum number of replies to unknown peers that wait to be sent.
const RESPONSES: usize = 16;
/// Close code of an end that stops.
const STOPPED: u32 = 0;
/// Close code of a connection that a new one replaces.
const REPLACED: u32 = 1;
/// Close code for a peer that violates the protocol.
const MALFORMED: u32 = 2;
/// Reset code of streams.
const RESET: VarInt = VarInt::from_u32(0);

/// Setup of an end. Times and sizes have the defaults of [`Setup::new`].
pub struct Setup {
    /// This end's key and certificate.
    pub identity: Identity,
    /// The certificate of the only accepted peer. A [`Hub`] is told its peers one by one instead.
    pub peer: Option<Certificate>,
    /// Largest UDP payload, the same at both ends [bytes, 1200 to 65527]: 1472 if the link carries IPv4 packets of 1500.
    pub mtu: u16,
    /// Rate of the link towards the peer, IP headers included; `None` disables shaping.
    pub rate: Option<Rate>,
    /// Expected round trip. It sizes windows and the first time-outs, until a round trip is measured.
    pub round_trip: Duration,
    /// Bytes of one stream that the peer may send ahead of the reader.
    pub stream_window: u64,
    /// Bytes of all streams that the peer may send ahead of the readers, and that are held until it acknowledges: the most
    /// memory of an end in each direction.
    pub window: u64,
    /// Maximum number of streams at a time.
    pub streams: u32,
    /// Time without any packet from the peer after which the connection is given up. Longer than any outage to be survived.
    pub idle: Duration,
    /// Time without traffic after which a keep-alive is sent.
    pub keep_alive: Duration,
    /// Interval of pings while an answer is overdue.
    pub ping_interval: Duration,
    /// Packets that one acknowledgement covers. A credit is sent after as many packets' worth of bytes.
    pub ack_every: u32,
    /// Longest delay of an acknowledgement. Credits are not delayed longer.
    pub ack_delay: Duration,
    /// Seed of QUIC's random numbers, for repeatable tests; `None` for the system's randomness.
    pub seed: Option<[u8; 32]>,
}

impl Setup {
    /// The setup for a link of `rate` towards the peer. The windows suit `rate` or 200 Mbit/s from the peer, whichever is more;
    /// [`Self::receives`] sets them for another rate.
    #[must_use]
    pub fn new(
        identity: Identity,
        peer: impl Into<Option<Certificate>>,
        rate: Option<Rate>,
        round_trip: Duration,
    ) -> Self {
        let least = Rate::from_bps(200_000_000);
        Self {
            identity,
            peer: peer.into(),
            mtu: 1472,
            rate,
            round_trip,
            stream_window: 0,
            window: 0,
            streams: 20_000,
            idle: Duration::from_secs(180),
            keep_alive: Duration::from_secs(5),
            ping_interval: Duration::from_millis(100),
            ack_every: 32,
            ack_delay: Duration::from_millis(50),
            seed: None,
        }
        .receives(rate.map_or(Rate::from_bps(1_000_000_000), |rate| rate.max(least)))
    }

    /// Windows for `rate` from the peer: four round trips per stream (at least 1 MB), four times that in all (at least 64 MB).
    /// No stream then waits for its window, even if a packet is lost three times.
    #[must_use]
    pub fn receives(self, rate: Rate) -> Self {
        let trips = u128::from(rate.as_bps() / 8) * 4 * self.round_trip.as_nanos() / 1_000_000_000;
        let trips = trips.clamp(1 << 20, 1 << 30) as u64;
        Self { stream_window: trips, window: (4 * trips).max(64 << 20), ..self }
    }

    fn only_peer(&self) -> Result<&Certificate, KeyError> {
        self.peer.as_ref().ok_or_else(KeyError::no_peer)
    }

    fn parameters(&self) -> Parameters {
        Parameters {
            mtu: self.mtu.clamp(1200, 65_527),
            round_trip: self.round_trip,
            stream_window: self.stream_window,
            window: self.window,
            streams: self.streams,
            idle: self.idle,
            keep_alive: self.keep_alive,
            ping_interval: self.ping_interval.max(Duration::from_millis(10)),
            ack_every: self.ack_every.max(1),
            ack_delay: self.ack_delay,
        }
    }
}

/// The quantities of a [`Setup`].
#[derive(Clone, Copy)]
struct Parameters {
    mtu: u16,
    round_trip: Duration,
    stream_window: u64,
    window: u64,
    streams: u32,
    idle: Duration,
    keep_alive: Duration,
    ping_interval: Duration,
    ack_every: u32,
    ack_delay: Duration,
}

impl Parameters {
    /// Maximum number of bytes of a stream in one UDP datagram.
    fn max_chunk(&self) -> usize {
        usize::from(self.mtu) - (1 + 8 + 4 + 16) - (1 + 8 + 8 + 8)
    }

    /// QUIC's configuration of a connection with this ledger.
    fn transport(&self, ledger: &Arc<Ledger>) -> TransportConfig {
        let bounded = |value: u64| VarInt::from_u64(value).unwrap_or(VarInt::MAX);
        let mut acks = AckFrequencyConfig::default();
        // A gap needs no immediate acknowledgement: the next one reports it.
        acks.ack_eliciting_threshold(VarInt::from_u32(self.ack_every.saturating_sub(1)))
            .max_ack_delay(Some(self.ack_delay.max(Duration::from_millis(1))))
            .reordering_threshold(VarInt::from_u32(0));
        let mut config = TransportConfig::default();
        config
            .congestion_controller_factory(Arc::new(Uncontrolled(ledger.clone())))
            .max_concurrent_bidi_streams(VarInt::from_u32(STREAMS_UNAUTHENTICATED.min(self.streams)))
            .max_concurrent_uni_streams(VarInt::from_u32(1))
            .max_idle_timeout(IdleTimeout::try_from(self.idle).ok())
            .keep_alive_interval(Some(self.keep_alive))
            .stream_receive_window(bounded(self.stream_window))
            .receive_window(bounded(self.window))
            .send_window(self.window)
            .send_fairness(false)
            .initial_rtt(self.round_trip.max(Duration::from_millis(10)))
            // Equal, so that quinn does not take a burst of losses for a smaller path MTU.
            .initial_mtu(self.mtu)
            .min_mtu(self.mtu)
            .mtu_discovery_config(None)
            .ack_frequency_config(Some(acks))
            .allow_spin(false)
            .datagram_receive_buffer_size(Some(1 << 22))
            .datagram_send_buffer_size(1 << 20);
        config
    }
}

/// Number of a peer, from 0 on; that of a removed peer is used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

impl PeerId {
    /// Index for the host's own arrays.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// An open stream. A later stream in the same slot has another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKey {
    peer: PeerId,
    slot: u32,
    serial: u32,
}

impl StreamKey {
    /// The key of the stream in a peer's slot; `serial` tells it from earlier and later ones there.
    #[must_use]
    pub fn new(peer: PeerId, slot: u32, serial: u32) -> Self {
        Self { peer, slot, serial }
    }

    /// Its peer; 0 at an end with one peer.
    #[must_use]
    pub fn peer(self) -> PeerId {
        self.peer
    }

    /// Index among the peer's streams, less than [`Setup::streams`]; reused after the stream is gone.
    #[must_use]
    pub fn slot(self) -> usize {
        self.slot as usize
    }
}

/// Reason for a connection to end or not to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// One of the ends stopped.
    Closed,
    /// The peer made a new connection.
    Replaced,
    /// The peer does not know the connection: it was restarted.
    Restarted,
    /// The peer's host reports that nobody listens (ICMP), and the peer does not answer.
    Gone,
    /// No packet from the peer for too long.
    Silent,
    /// Authentication failed; TLS's message.
    Refused(String),
    /// Another failure; QUIC's message.
    Failed(String),
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed => f.write_str("closed"),
            Self::Replaced => f.write_str("replaced by a new connection of the peer"),
            Self::Restarted => f.write_str("the peer was restarted"),
            Self::Gone => f.write_str("the peer does not listen"),
            Self::Silent => f.write_str("no packet from the peer"),
            Self::Refused(what) => write!(f, "refused: {what}"),
            Self::Failed(what) => write!(f, "failed: {what}"),
        }
    }
}

/// An event that the host handles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer is connected and authenticated.
    Up,
    /// The peer is not connected any more. All its streams got [`Event::Lost`] before.
    Down(Reason),
    /// A connection attempt of this end or of another host failed.
    Failed(Reason),
    /// The peer opened a stream.
    Opened {
        /// The stream.
        stream: StreamKey,
        /// The connection that it carries.
        header: Open,
    },
    /// Data can be read: call [`Spacelink::read`] until it fills less than the buffer.
    Readable(StreamKey),
    /// A stream that did not take all data takes more.
    Writable(StreamKey),
    /// The peer has finished the stream and all of it was read (half-close).
    Finished(StreamKey),
    /// The peer has reset the stream. The key is invalid.
    Reset(StreamKey),
    /// The connection to the peer is gone and the stream with it. The key is invalid.
    Lost(StreamKey),
    /// The peer has delivered more of the bytes written here.
    Acknowledged {
        /// The stream.
        stream: StreamKey,
        /// Their number [bytes].
        bytes: u64,
    },
    /// Both ends finished the stream and everything was delivered. The key is invalid.
    Closed(StreamKey),
    /// An IP packet from the peer.
    Datagram(Vec<u8>),
    /// The peer has no room for further connections (true), or room again (false).
    Full(bool),
}

impl Event {
    /// The stream of the event, if it has one.
    #[must_use]
    pub fn stream(&self) -> Option<StreamKey> {
        match *self {
            Self::Opened { stream, .. }
            | Self::Readable(stream)
            | Self::Writable(stream)
            | Self::Finished(stream)
            | Self::Reset(stream)
            | Self::Lost(stream)
            | Self::Closed(stream)
            | Self::Acknowledged { stream, .. } => Some(stream),
            Self::Up | Self::Down(_) | Self::Failed(_) | Self::Datagram(_) | Self::Full(_) => None,
        }
    }
}

/// Reason for an IP packet not to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSent {
    /// There is no connection.
    Down,
    /// An answer of the peer is overdue: an outage.
    Silent,
    /// The packet is empty or longer than an IP packet can be.
    Length,
}

/// A UDP datagram to send, or several of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Destination.
    pub to: SocketAddr,
    /// Source address, for a socket with several.
    pub from: Option<IpAddr>,
    /// Length of every datagram but the last, which may be shorter [bytes]; `None` for a single datagram.
    pub segment: Option<usize>,
    /// The two ECN bits.
    pub ecn: u8,
}

impl Transmit {
    fn of(transmit: &quinn_proto::Transmit, segment: Option<usize>) -> Self {
        Self {
            to: transmit.destination,
            from: transmit.src_ip,
            segment,
            ecn: transmit.ecn.map_or(0, |ecn| ecn as u8),
        }
    }
}

/// Counters of an end since it was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// True while the peer is connected.
    pub up: bool,
    /// True while an answer is overdue: an outage of the link.
    pub silent: bool,
    /// Smoothed round trip; zero while down.
    pub round_trip: Duration,
    /// Connections made.
    pub connections: u64,
    /// UDP datagrams sent.
    pub sent_datagrams: u64,
    /// Bytes sent, UDP and IP headers included.
    pub sent_bytes: u64,
    /// UDP datagrams received, including those of other hosts.
    pub received_datagrams: u64,
    /// Bytes received, UDP and IP headers included.
    pub received_bytes: u64,
    /// QUIC packets sent.
    pub sent_packets: u64,
    /// QUIC packets declared lost.
    pub lost_packets: u64,
    /// Their UDP payload [bytes].
    pub lost_bytes: u64,
    /// UDP payload of packets that the peer acknowledged [bytes].
    pub acknowledged_bytes: u64,
    /// Bytes of these packets, UDP and IP headers included.
    pub delivered_bytes: u64,
    /// ECN marks reported by the peer.
    pub marks: u64,
    /// Open streams.
    pub streams: u64,
    /// Streams opened, by either end.
    pub opened: u64,
    /// Streams refused because there were too many.
    pub refused_streams: u64,
    /// Bytes written to streams.
    pub written_bytes: u64,
    /// Bytes read from streams.
    pub read_bytes: u64,
    /// IP packets sent as datagrams.
    pub sent_ip: u64,
    /// IP packets received as datagrams.
    pub received_ip: u64,
    /// IP packets that were cut into fragments.
    pub fragmented_ip: u64,
    /// IP packets given up because a fragment is missing.
    pub unassembled_ip: u64,
    /// IP packets not sent because of an outage.
    pub silenced_ip: u64,
    /// Malformed frames and datagrams from the peer.
    pub malformed: u64,
}

impl Stats {
    /// The sum of two ends' counters.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        Self {
            up: self.up || other.up,
            silent: self.silent || other.silent,
            round_trip: self.round_trip.max(other.round_trip),
            connections: self.connections + other.connections,
            sent_datagrams: self.sent_datagrams + other.sent_datagrams,
            sent_bytes: self.sent_bytes + other.sent_bytes,
            received_datagrams: self.received_datagrams + other.received_datagrams,
            received_bytes: self.received_bytes + other.received_bytes,
            sent_packets: self.sent_packets + other.sent_packets,
            lost_packets: self.lost_packets + other.lost_packets,
            lost_bytes: self.lost_bytes + other.lost_bytes,
            acknowledged_bytes: self.acknowledged_bytes + other.acknowledged_bytes,
            delivered_bytes: self.delivered_bytes + other.delivered_bytes,
            marks: self.marks + other.marks,
            streams: self.streams + other.streams,
            opened: self.opened + other.opened,
            refused_streams: self.refused_streams + other.refused_streams,
            written_bytes: self.written_bytes + other.written_bytes,
            read_bytes: self.read_bytes + other.read_bytes,
            sent_ip: self.sent_ip + other.sent_ip,
            received_ip: self.received_ip + other.received_ip,
            fragmented_ip: self.fragmented_ip + other.fragmented_ip,
            unassembled_ip: self.unassembled_ip + other.unassembled_ip,
            silenced_ip: self.silenced_ip + other.silenced_ip,
            malformed: self.malformed + other.malformed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counters that are all different, `times` as high.
    fn stats(times: u64) -> Stats {
        Stats {
            up: true,
            silent: false,
            round_trip: Duration::from_millis(600),
            connections: 3 * times,
            sent_datagrams: 4 * times,
            sent_bytes: 5 * times,
            received_datagrams: 6 * times,
            received_bytes: 7 * times,
            sent_packets: 8 * times,
            lost_packets: 9 * times,
            lost_bytes: 10 * times,
            acknowledged_bytes: 11 * times,
            delivered_bytes: 24 * times,
            marks: 12 * times,
            streams: 13 * times,
            opened: 14 * times,
            refused_streams: 15 * times,
            written_bytes: 16 * times,
            read_bytes: 17 * times,
            sent_ip: 18 * times,
            received_ip: 19 * times,
            fragmented_ip: 20 * times,
            unassembled_ip: 21 * times,
            silenced_ip: 22 * times,
            malformed: 23 * times,
        }
    }

    /// Four round trips of each rate, by hand: 200 Mbit/s are 25 MB/s, so 60 MB in 2.4 s.
    #[test]
    fn windows_hold_four_round_trips() {
        const MIB: u64 = 1_048_576;
        let setup = |rate, ms| {
            let identity = Identity::generate("window").unwrap();
            let setup =
                Setup::new(identity, None, None, Duration::from_millis(ms)).receives(Rate::from_bps(rate));
            (setup.stream_window, setup.window)
        };
        assert_eq!(setup(200_000_000, 600), (60_000_000, 240_000_000));
        assert_eq!(setup(20_000_000, 600), (6_000_000, 64 * MIB));
        assert_eq!(setup(1_000_000, 10), (MIB, 64 * MIB));
        assert_eq!(setup(100_000_000_000, 600), (1024 * MIB, 4096 * MIB));
    }

    /// RFC 9000, sections 17.3.1 and 19.8: a short header of a byte, a connection ID of 8, a packet number of at most 4 and a tag of
    /// 16 are 29 bytes; a STREAM frame has a byte of type and three integers of at most 8, 25 bytes.
    #[test]
    fn a_chunk_leaves_room_for_the_longest_headers() {
        let setup = Setup::new(Identity::generate("chunk").unwrap(), None, None, Duration::ZERO);
        assert_eq!(setup.parameters().max_chunk(), 1472 - 29 - 25);
    }

    #[test]
    fn counters_of_two_ends_add_up() {
        let slower = Stats { up: false, silent: true, round_trip: Duration::from_millis(700), ..stats(1) };
        let both = Stats { silent: true, round_trip: Duration::from_millis(700), ..stats(2) };
        assert_eq!(stats(1).with(&slower), both);
        assert_eq!(slower.with(&stats(1)), both);
        assert_eq!(stats(1).with(&stats(1)), stats(2));
        assert_eq!(stats(1).with(&Stats::default()), stats(1));
    }
}
