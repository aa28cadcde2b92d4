//! The spacelink: one QUIC connection between the two ends, a stream for each TCP connection that is split, and datagrams
//! for IP packets that are not.
//!
//! No socket and no clock inside. The host gives it UDP datagrams ([`Spacelink::receive`]) and the time, sends what
//! [`Spacelink::transmit`] gives, calls [`Spacelink::on_timer`] when [`Spacelink::timer`] says so, and after each of these
//! takes what came of it from [`Spacelink::poll`]:
//!
//! ```text
//!  socket ─▶ receive ─┐            ┌─▶ poll ─▶ Event::{Up, Opened, Readable, Acknowledged, …}
//!  timer ──▶ on_timer ┼─ Spacelink ┤
//!  write, finish, … ──┘            └─▶ transmit ─▶ socket
//! ```
//!
//! - The *listening* end is the gateway, the *connecting* end the terminal, which comes again by itself whenever the
//!   connection is lost. There is one connection at a time: a new one from the same peer replaces the old. When one goes,
//!   its streams are told as [`Event::Lost`] before [`Event::Down`], and their keys mean nothing any more.
//! - Both ends prove who they are with a key whose certificate the other has ([`keys`]).
//! - Rate: nothing in here slows down for what is lost (`controller`); the regulator says how much is written, and
//!   [`Spacelink::charge`] what else goes over the link and has to be subtracted there. A shaper at the link's rate spreads
//!   what goes again after an outage (`shaper`).
//! - Credits: a QUIC acknowledgement says that the far *process* has a packet. What frees a sender's buffer is that the far
//!   *client* took the bytes: [`Spacelink::delivered`] there becomes [`Event::Acknowledged`] here. Credits are totals and go
//!   in datagrams, so that one that is lost holds up nothing, since the next one says more; the last is repeated on a
//!   stream.

mod controller;
mod end;
pub mod frames;
mod inbox;
pub mod keys;
mod reassembly;
mod shaper;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bentpipe_units::Rate;
use bytes::{Bytes, BytesMut};
use quinn_proto::{
    AckFrequencyConfig, ClientConfig, Connection, ConnectionError, ConnectionHandle, DatagramEvent, Dir,
    EcnCodepoint, Endpoint, EndpointConfig, FrameStats, HashedConnectionIdGenerator, IdleTimeout, Incoming,
    ServerConfig, StreamEvent, StreamId, TransportConfig, VarInt, WriteError,
};
use slab::Slab;

use controller::{Ledger, Trusting};
use frames::{Control, Credit, Datagram, FRAGMENT_HEADER, HELLO, MAX_FRAGMENTS};
use inbox::Inbox;
use reassembly::Reassembly;
use shaper::Shaper;

pub use end::Spacelink;
pub use frames::Open;
pub use keys::{Certificate, Identity, KeyError, keygen};

/// A credit goes after this part of a round trip, so that a buffer's rate is its size over the round trip, less 3 % …
const CREDIT_PART: u32 = 32;
/// … but not sooner, for each takes some 70 bytes of the way back.
const CREDIT_LEAST: Duration = Duration::from_millis(5);
/// A credit that no other followed is repeated on the control stream after so long.
const SETTLE: Duration = Duration::from_millis(500);
/// Connections of which not both ends are known yet, from which on a stranger has to prove its address, …
const HALF_OPEN_RETRY: usize = 2;
/// … and from which on nobody gets in.
const HALF_OPEN_MOST: usize = 8;
/// How long the connecting end waits before it comes again: at first, and at most.
const AGAIN: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(2)];
/// An answer that is overdue for so long, and by as much as is usual, means an outage.
const SILENCE: Duration = Duration::from_millis(300);
/// How often an end that is greeted says something by itself, from a round trip later on. For quinn-proto 0.11 stops its timer for
/// acknowledgements when it sends those of the handshake, starts it again only after others, and adds these to a packet no
/// sooner: an end with nothing to say would let 31 packets wait, and seem silent.
const HAILS: u32 = 3;
/// Streams that a peer may open before its key is proved.
const STREAMS_UNPROVED: u32 = 16;
/// Streams that the peer reset before they came, and that are kept in mind.
const MOST_UNBORN: usize = 1024;
/// Answers to strangers that wait for being sent.
const RESPONSES: usize = 16;
/// Code with which a connection is closed by one who stops.
const STOPPED: u32 = 0;
/// Code with which a connection is closed when another replaces it.
const REPLACED: u32 = 1;
/// Code with which a connection is closed whose peer says what is none of ours.
const MALFORMED: u32 = 2;
/// Code of a stream's reset.
const RESET: VarInt = VarInt::from_u32(0);

/// How an end is built. Times and sizes have the defaults of [`Setup::new`].
pub struct Setup {
    /// This end's key and certificate.
    pub identity: Identity,
    /// The certificate of the one peer that is let in.
    pub peer: Certificate,
    /// Largest UDP payload, the same at both ends [bytes, 1200 to 65527]: 1472 where the link carries IPv4 packets of 1500.
    pub mtu: u16,
    /// Rate of the link towards the peer, IP headers included, or none for no shaping.
    pub rate: Option<Rate>,
    /// Round trip that is expected. It sizes windows and the first time-outs; what is measured later counts from then on.
    pub round_trip: Duration,
    /// How much the peer may send on one stream beyond what was read here [bytes].
    pub stream_window: u64,
    /// The same over all streams, and how much is held for the peer until it acknowledges [bytes]: the most memory an end uses
    /// for each direction.
    pub window: u64,
    /// Most streams at a time.
    pub streams: u32,
    /// After so long without a sign of life the connection is given up. Longer than any outage that is to be sat out.
    pub idle: Duration,
    /// After so long without traffic a sign of life is asked for.
    pub keep_alive: Duration,
    /// How often an answer is asked for again while none comes.
    pub ask_again: Duration,
    /// Packets for which one acknowledgement is asked for, and bytes of as many for which a credit goes.
    pub ack_every: u32,
    /// How long an acknowledgement may wait; credits wait no longer.
    pub ack_delay: Duration,
    /// Seed of QUIC's own random choices, for tests that are to be repeated; none for the system's randomness.
    pub seed: Option<[u8; 32]>,
}

impl Setup {
    /// The setup for a link of `rate` towards the peer and `round_trip`, with windows for 200 Mbit/s from the peer or for `rate`,
    /// whichever is more: [`Self::receives`] sets those for another rate.
    #[must_use]
    pub fn new(identity: Identity, peer: Certificate, rate: Option<Rate>, round_trip: Duration) -> Self {
        let least = Rate::from_bps(200_000_000);
        Self {
            identity,
            peer,
            mtu: 1472,
            rate,
            round_trip,
            stream_window: 0,
            window: 0,
            streams: 20_000,
            idle: Duration::from_secs(180),
            keep_alive: Duration::from_secs(5),
            ask_again: Duration::from_millis(100),
            ack_every: 32,
            ack_delay: Duration::from_millis(50),
            seed: None,
        }
        .receives(rate.map_or(Rate::from_bps(1_000_000_000), |rate| rate.max(least)))
    }

    /// Windows for `rate` from the peer: four round trips for a stream, but at least 1 MB, and four times that for all, but at
    /// least 64 MB. No stream waits for the window then, not even while a packet is lost three times.
    #[must_use]
    pub fn receives(self, rate: Rate) -> Self {
        let trips = u128::from(rate.as_bps() / 8) * 4 * self.round_trip.as_nanos() / 1_000_000_000;
        let trips = trips.clamp(1 << 20, 1 << 30) as u64;
        Self { stream_window: trips, window: (4 * trips).max(64 << 20), ..self }
    }

    fn transport(&self, ledger: &Arc<Ledger>) -> TransportConfig {
        let bounded = |value: u64| VarInt::from_u64(value).unwrap_or(VarInt::MAX);
        let mut acks = AckFrequencyConfig::default();
        // A gap is no reason for another, for it is told by the next.
        acks.ack_eliciting_threshold(VarInt::from_u32(self.ack_every.saturating_sub(1)))
            .max_ack_delay(Some(self.ack_delay.max(Duration::from_millis(1))))
            .reordering_threshold(VarInt::from_u32(0));
        let mut config = TransportConfig::default();
        config
            .congestion_controller_factory(Arc::new(Trusting(ledger.clone())))
            .max_concurrent_bidi_streams(VarInt::from_u32(STREAMS_UNPROVED.min(self.streams)))
            .max_concurrent_uni_streams(VarInt::from_u32(1))
            .max_idle_timeout(IdleTimeout::try_from(self.idle).ok())
            .keep_alive_interval(Some(self.keep_alive))
            .stream_receive_window(bounded(self.stream_window))
            .receive_window(bounded(self.window))
            .send_window(self.window)
            .send_fairness(false)
            .initial_rtt(self.round_trip.max(Duration::from_millis(10)))
            // Both the same: a loss of several packets in a row is no sign of a smaller path here.
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

/// A stream, for as long as it is open: a later stream in its slot has another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKey {
    slot: u32,
    serial: u32,
}

impl StreamKey {
    /// Index for the host's own arrays, less than [`Setup::streams`]; used again when the stream is gone.
    #[must_use]
    pub fn slot(self) -> usize {
        self.slot as usize
    }
}

/// Why a connection ended or was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// One of the ends stopped on purpose.
    Closed,
    /// The peer made a new connection.
    Replaced,
    /// The peer has forgotten the connection: it was started anew.
    Restarted,
    /// The peer does not listen any more, says its host, and it does not answer.
    Gone,
    /// No sign of life for too long.
    Silent,
    /// Somebody did not prove to be the peer; what TLS says about it.
    Refused(String),
    /// Something else, in words.
    Failed(String),
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed => f.write_str("closed"),
            Self::Replaced => f.write_str("replaced by a new connection of the peer"),
            Self::Restarted => f.write_str("the peer was restarted"),
            Self::Gone => f.write_str("the peer does not listen any more"),
            Self::Silent => f.write_str("no sign of life from the peer"),
            Self::Refused(what) => write!(f, "refused: {what}"),
            Self::Failed(what) => write!(f, "failed: {what}"),
        }
    }
}

/// What the host has to act on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer is there, and has proved it.
    Up,
    /// It is not any more. All its streams were told as lost.
    Down(Reason),
    /// A connection was tried, by this end or by somebody else, and was not made.
    Failed(Reason),
    /// The peer opened a stream.
    Opened {
        /// The stream.
        stream: StreamKey,
        /// Whose connection it carries.
        header: Open,
    },
    /// There is something to read: [`Spacelink::read`] until it gives less than there is room for.
    Readable(StreamKey),
    /// A stream on which less was written than given takes more.
    Writable(StreamKey),
    /// The peer has written all, and all of it was read: half-close.
    Finished(StreamKey),
    /// The peer has reset the stream. The key is void.
    Reset(StreamKey),
    /// The connection to the peer is gone, and the stream with it. The key is void.
    Lost(StreamKey),
    /// The far end delivered so many more bytes of what was written here.
    Acknowledged {
        /// The stream.
        stream: StreamKey,
        /// How many more [bytes].
        bytes: u64,
    },
    /// Both ends finished, and all was delivered on both sides. The key is void.
    Closed(StreamKey),
    /// An IP packet.
    Datagram(Vec<u8>),
    /// The peer takes no further connections, or again some.
    Full(bool),
}

impl Event {
    /// The stream that it is about, if it is about one.
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

/// Why an IP packet was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSent {
    /// There is no connection.
    Down,
    /// Nothing has come from the peer for longer than a round trip: an outage.
    Silent,
    /// Nothing, or longer than an IP packet can be.
    Length,
}

/// A UDP datagram to be sent, or several of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub to: SocketAddr,
    /// The address to send it from, where the socket has several.
    pub from: Option<IpAddr>,
    /// Length of each datagram but the last, which may be shorter; none where there is one [bytes].
    pub segment: Option<usize>,
    /// The two bits of ECN.
    pub ecn: u8,
}

/// What an end has counted since it was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Whether the peer is there.
    pub up: bool,
    /// Whether an answer is overdue: an outage of the link.
    pub silent: bool,
    /// Round trip, smoothed; zero while down.
    pub round_trip: Duration,
    /// Connections that came up.
    pub connections: u64,
    /// UDP datagrams sent.
    pub sent_datagrams: u64,
    /// Bytes sent, UDP and IP headers included.
    pub sent_bytes: u64,
    /// UDP datagrams received, strangers' included.
    pub received_datagrams: u64,
    /// Bytes received, UDP and IP headers included.
    pub received_bytes: u64,
    /// QUIC packets sent.
    pub sent_packets: u64,
    /// QUIC packets found lost.
    pub lost_packets: u64,
    /// Their UDP payload [bytes].
    pub lost_bytes: u64,
    /// UDP payload of packets that the peer acknowledged [bytes].
    pub acknowledged_bytes: u64,
    /// How often the peer told of ECN marks.
    pub marks: u64,
    /// Streams open now.
    pub streams: u64,
    /// Streams opened, by either end.
    pub opened: u64,
    /// Streams refused for there were too many.
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
    /// IP packets given up for a fragment that did not come.
    pub unassembled_ip: u64,
    /// IP packets not sent for an outage.
    pub silenced_ip: u64,
    /// Frames and datagrams from the peer that were none of ours.
    pub malformed: u64,
}
