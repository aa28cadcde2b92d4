//! Transports as a file gives them: TCP (`traffic::Tcp`), and those here.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::ser::Error as _;
use serde::{Deserialize, Serialize, Serializer};

use super::Share;
use super::traffic::{Tcp, tagged};
use crate::quantity::{HeaderSize, PacketSize, Rate, Size, Span, Time, Whole};

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
