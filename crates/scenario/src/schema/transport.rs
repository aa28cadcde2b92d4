//! Transports.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::ser::Error as _;
use serde::{Deserialize, Serialize, Serializer};

use super::forms::{OneOf, Share, tagged};
use super::quantity::{HeaderSize, PacketSize, Rate, SegmentsKind, Size, SizeKind, Span, Time, Whole};
use crate::model::{Congestion, Ecn, Rto};

/// A transport of one protocol; where none is named, of TCP.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    Tcp(Box<Tcp>),
    Sctp(Box<Sctp>),
    Rtp(Box<Rtp>),
}

impl Transport {
    /// The key `protocol`.
    pub fn protocol(&self) -> &'static str {
        match self {
            Self::Tcp(_) => "tcp",
            Self::Sctp(_) => "sctp",
            Self::Rtp(_) => "rtp",
        }
    }
}

impl Default for Transport {
    fn default() -> Self {
        Self::Tcp(Box::default())
    }
}

impl Serialize for Transport {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let contents = match self {
            Self::Tcp(t) => serde_json::to_value(t),
            Self::Sctp(t) => serde_json::to_value(t),
            Self::Rtp(t) => serde_json::to_value(t),
        };
        let mut table = serde_json::Map::from_iter([("protocol".to_owned(), self.protocol().into())]);
        if let serde_json::Value::Object(contents) = contents.map_err(S::Error::custom)? {
            table.extend(contents);
        }
        table.serialize(to)
    }
}

impl JsonSchema for Transport {
    fn schema_name() -> Cow<'static, str> {
        "Transport".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut protocols = [
            ("tcp", Tcp::json_schema(generator)),
            ("sctp", Sctp::json_schema(generator)),
            ("rtp", Rtp::json_schema(generator)),
        ]
        .map(|(name, schema)| tagged(schema, "protocol", name, "Its protocol."));
        // The one that a table without the key is of.
        if let Some(required) = protocols[0].get_mut("required").and_then(|r| r.as_array_mut()) {
            required.retain(|key| key != "protocol");
        }
        json_schema!({ "description": "A transport of one protocol.", "oneOf": protocols })
    }
}

/// A window: bytes, or full segments.
pub type Window = OneOf<SizeKind, SegmentsKind>;

/// TCP (RFC 9293). The defaults are the RFCs'.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tcp {
    /// A transport that is known by name, for the keys that are not given. Absent: the RFCs'.
    #[schemars(schema_with = "crate::schema::presets::transport_preset")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// Congestion control.
    pub algorithm: Congestion,
    /// Payload of a full segment.
    pub mss: PacketSize,
    /// Headers of a segment: all that count on the wire, of whatever length options are.
    pub header: HeaderSize,
    /// Whether options count on the wire as well: timestamps, selective acknowledgements, and those of a SYN.
    pub option_bytes: bool,
    /// Initial window, in segments. Absent: 10, or fewer where segments are long (RFC 6928).
    pub initial_window: Option<Whole<1, 1000>>,
    /// What a receiver offers.
    pub receive_window: Window,
    /// What a receiver offers at first, if that grows: by two segments with each segment that arrives, and each of
    /// these is acknowledged at once (Linux, `tcp_grow_window`). Absent: `receive_window`.
    pub initial_receive_window: Option<Window>,
    /// Cap on a sender's window. Absent: none.
    pub max_window: Option<Window>,
    /// Initial slow start threshold. Absent: none (RFC 5681, 3.1: arbitrarily high).
    pub initial_ssthresh: Option<Window>,
    /// Retransmission timeout before the first measurement (RFC 6298, 2.1).
    pub initial_rto: Span,
    /// Shortest retransmission timeout (RFC 6298, 2.4).
    pub min_rto: Span,
    /// How the timeout follows from round trips.
    pub rto: Rto,
    /// Longest retransmission timeout (RFC 6298, 2.5).
    pub max_rto: Span,
    /// Granularity of the clock that times round trips (RFC 6298, G).
    pub clock_granularity: Time,
    /// Limited transmit (RFC 3042): duplicate acknowledgements let new segments out, two at the most, or with `rack` as many
    /// as arrived.
    pub limited_transmit: bool,
    /// Selective acknowledgements (RFC 2018), and recovery from losses by them (RFC 6675).
    pub sack: bool,
    /// Whether such a recovery approaches its window in proportion (RFC 9937), or halves it at once.
    pub prr: bool,
    /// Whether the window grows by the bytes acknowledged, not by the number of acknowledgements (RFC 3465).
    pub abc: bool,
    /// How long an acknowledgement may wait for a second segment (RFC 5681, 4.2). Absent: each segment is
    /// acknowledged at once.
    pub delayed_ack: Option<Span>,
    /// Whether only the first partial acknowledgement restarts the retransmission timer (RFC 6582, 4).
    pub impatient: bool,
    /// Whether congestion leaves half (or another share) of the congestion window, not of what is outstanding (RFC 5681,
    /// 3.1).
    pub half_of_cwnd: bool,
    /// Whether to recover as ns-2 does: duplicate acknowledgements let more go again of what was sent before a timeout, and in
    /// NewReno's fast recovery an acknowledgement lets two segments go at the most.
    pub ns2_recovery: bool,
    /// Whether a timeout resends everything from the first unacknowledged segment on, in slow start and without what is
    /// selectively acknowledged. If not, one segment for each hole that shows goes again, which takes a round trip each.
    pub go_back_n: bool,
    /// Whether an idle connection starts again from the initial window (RFC 5681, 4.1).
    pub slow_start_restart: bool,
    /// Whether slow start ends where the round trip grows (HyStart++, RFC 9406). For reno, newreno and cubic.
    pub hystart: bool,
    /// Whether a window is spread over its round trip: segments leave at twice cwnd / SRTT in slow start, else at 1.2
    /// times. BBR paces by itself.
    pub pacing: bool,
    /// Whether it understands congestion marks, and how it hears of them: one echo in a round trip (`true` or "classic",
    /// RFC 3168), or a count of them ("accurate", RFC 9768), which dctcp and prague need.
    pub ecn: Ecn,
    /// Loss detection by time, RACK-TLP (RFC 8985), in place of RFC 6675's by number; it needs `sack`. Receivers report
    /// duplicates (RFC 2883), and `go_back_n` has no meaning.
    pub rack: bool,
    /// Whether a timeout is undone that timestamps show to have been none (RFC 3522, RFC 4015); it needs `rack` and
    /// `timestamps`, and does nothing for `bbr`.
    pub eifel: bool,
    /// Timestamps (RFC 7323, 3): a round trip is measured by every acknowledgement of new data, of what was sent
    /// again as well.
    pub timestamps: bool,
    /// The shift of the window scale option (RFC 7323, 2): windows are multiples of 2^n B, at most 65535 of them.
    /// Absent: no such option, and windows as long as they need to be.
    pub window_scale: Option<Whole<0, 14>>,
    /// A host takes up to this long before it sends what it may, each time drawn anew and uniform from nothing up (ns-2's
    /// `overhead_`). It breaks the lockstep in which connections of a simulation would otherwise run.
    pub overhead: Time,
    /// How often an unanswered SYN is sent again.
    pub syn_retries: Whole<0, 1000>,
    /// How often an unacknowledged segment is sent again before the connection is given up.
    pub retries: Whole<1, 1000>,
}

impl Default for Tcp {
    fn default() -> Self {
        Self {
            preset: None,
            algorithm: Congestion::NewReno,
            mss: PacketSize::of(1460),
            header: HeaderSize::of(40),
            option_bytes: false,
            initial_window: None,
            receive_window: OneOf::First(Size::of(4_000_000)),
            initial_receive_window: None,
            max_window: None,
            initial_ssthresh: None,
            initial_rto: Span::of(1_000_000_000),
            min_rto: Span::of(1_000_000_000),
            rto: Rto::Rfc6298,
            max_rto: Span::of(60_000_000_000),
            clock_granularity: Time::of(1_000_000),
            limited_transmit: true,
            sack: false,
            prr: true,
            abc: false,
            delayed_ack: None,
            impatient: true,
            half_of_cwnd: false,
            ns2_recovery: false,
            go_back_n: true,
            slow_start_restart: true,
            hystart: false,
            pacing: false,
            ecn: Ecn::Off,
            rack: false,
            eifel: false,
            timestamps: false,
            window_scale: None,
            overhead: Time::of(0),
            syn_retries: Whole(6),
            retries: Whole(15),
        }
    }
}

/// SCTP (RFC 9260) over one path. The defaults are those of its section 16.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sctp {
    /// The longest packet the path takes, with its IP header.
    pub pmtu: PacketSize,
    /// The IP header of a packet.
    pub ip_header: HeaderSize,
    /// Length of the messages that data is written in. Absent: such that each fills a packet.
    pub message: Option<Size>,
    /// Length of the state cookie that sets an association up.
    pub cookie: HeaderSize,
    /// What a receiver offers.
    pub a_rwnd: Size,
    /// Initial slow start threshold. Absent: none (RFC 9260, 7.2.1: arbitrarily high).
    pub initial_ssthresh: Option<Size>,
    /// The most that the window grows by for an acknowledgement in slow start, in full DATA chunks (RFC 9260, 7.2.1: L).
    pub slow_start_limit: Whole<1, 100>,
    /// Granularity of the clock that times round trips (RFC 9260, 6.3.1: G).
    pub clock_granularity: Time,
    /// Packets for which one acknowledgement is sent (RFC 9260, 6.2).
    pub sack_every: Whole<1, 100>,
    /// How long an acknowledgement may wait (SACK.Delay).
    pub sack_delay: Span,
    /// Retransmission timeout before the first measurement (RTO.Initial).
    pub rto_initial: Span,
    /// Shortest retransmission timeout (RTO.Min).
    pub rto_min: Span,
    /// Longest retransmission timeout (RTO.Max).
    pub rto_max: Span,
    /// The most packets of new data that are sent at a time (Max.Burst).
    pub max_burst: Whole<1, 1_000_000>,
    /// How long a state cookie is good (Valid.Cookie.Life).
    pub valid_cookie_life: Span,
    /// How many timeouts in a row an association outlives (Association.Max.Retrans).
    pub association_max_retrans: Whole<1, 1000>,
    /// How often an unanswered INIT is sent again (Max.Init.Retransmits).
    pub max_init_retransmits: Whole<0, 1000>,
}

impl Default for Sctp {
    fn default() -> Self {
        Self {
            pmtu: PacketSize::of(1500),
            ip_header: HeaderSize::of(20),
            message: None,
            cookie: HeaderSize::of(100),
            a_rwnd: Size::of(4_000_000),
            initial_ssthresh: None,
            slow_start_limit: Whole(1),
            clock_granularity: Time::of(1_000_000),
            sack_every: Whole(2),
            sack_delay: Span::of(200_000_000),
            rto_initial: Span::of(1_000_000_000),
            rto_min: Span::of(1_000_000_000),
            rto_max: Span::of(60_000_000_000),
            max_burst: Whole(4),
            valid_cookie_life: Span::of(60_000_000_000),
            association_max_retrans: Whole(10),
            max_init_retransmits: Whole(8),
        }
    }
}

/// RTP over UDP with RTCP (RFC 3550). Its source is slowed down or sped up by the loss that is reported, as by Busse,
/// Deffner & Schulzrinne (1996): a linear regulator with a dead zone. A source that is to send at half of its rate sends
/// its packets twice as far apart.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rtp {
    /// IP and UDP headers of a report. The length of a source's packets counts all headers.
    pub udp_header: HeaderSize,
    /// Ticks of the media clock in a second (RFC 3551).
    pub clock_rate: Whole<1, 1_000_000>,
    /// Time between two reports of one end.
    pub rtcp_interval: Span,
    /// Whether the source follows the loss.
    pub adapt: bool,
    /// Weight of a report in the smoothed loss.
    pub smoothing: Share,
    /// Smoothed loss up to which the rate grows.
    pub unloaded: Share,
    /// Smoothed loss from which on the rate shrinks.
    pub congested: Share,
    /// Factor by which it does.
    pub decrease: Share,
    /// Summand by which it grows.
    pub increase: Rate,
    /// Lower bound of the rate.
    pub min_rate: Rate,
    /// Upper bound of the rate. Absent: what the source sends by itself.
    pub max_rate: Option<Rate>,
}

impl Default for Rtp {
    fn default() -> Self {
        Self {
            udp_header: HeaderSize::of(28),
            clock_rate: Whole(90_000),
            rtcp_interval: Span::of(900_000_000),
            adapt: true,
            smoothing: Share(0.3),
            unloaded: Share(0.02),
            congested: Share(0.04),
            decrease: Share(0.875),
            increase: Rate::of(50_000),
            min_rate: Rate::of(50_000),
            max_rate: None,
        }
    }
}
