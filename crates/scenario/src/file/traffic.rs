//! Transports and traffic as a file gives them.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Error, Unexpected, Visitor};
use serde::ser::Error as _;
use serde::{Deserialize, Serialize, Serializer};

use super::packets::{Cbr, Common, Mmpp, OnOff, Poisson, Replay, Source as _, Video, Voip};
use super::{Distribution, MOST, OneOf};
use crate::quantity::{
    HeaderSize, PacketSize, Rate, SegmentsKind, Size, SizeKind, Span, SpanKind, Time, TimeKind, Whole,
};

/// A window: bytes, or full segments.
pub type Window = OneOf<SizeKind, SegmentsKind>;

/// TCP (RFC 9293). The defaults are the RFCs'.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tcp {
    /// A transport that is known by name, for the keys that are not given. Absent: the RFCs'.
    #[schemars(schema_with = "crate::schema::transport_preset")]
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
    pub rto: RtoName,
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

/// How the retransmission timeout follows from round trips.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "Rto")]
pub enum RtoName {
    /// RFC 6298.
    Rfc6298,
    /// As in Linux: min_rto bounds what is added to the smoothed round trip, and the largest deviation of a round counts.
    Linux,
    /// As in 4.4BSD and ns-2: in whole ticks of clock_granularity, which leave the deviation no less than three quarters of
    /// one.
    Bsd,
}

/// A congestion control algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Congestion {
    /// RFC 5681: any acknowledgement of new data ends fast recovery.
    Reno,
    /// RFC 6582: fast recovery goes on through partial acknowledgements.
    NewReno,
    /// RFC 9438.
    Cubic,
    /// CUBIC and HyStart as Linux has them.
    #[serde(rename = "cubic-linux")]
    CubicLinux,
    /// Caini and Firrincieli 2004: over a long round trip the window grows as over one of 25 ms.
    Hybla,
    /// BBR, version 1 (draft-cardwell-iccrg-bbr-congestion-control-00): the window follows a model of the path.
    Bbr,
    /// RFC 8257: the window shrinks in proportion to how many packets were marked.
    Dctcp,
    /// draft-briscoe-iccrg-prague-congestion-control: DCTCP for the Internet, paced, with packets that may be marked early
    /// (RFC 9331).
    Prague,
}

impl Congestion {
    /// All there are.
    pub const ALL: &'static [Self] = &[
        Self::Reno,
        Self::NewReno,
        Self::Cubic,
        Self::CubicLinux,
        Self::Hybla,
        Self::Bbr,
        Self::Dctcp,
        Self::Prague,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::NewReno => "newreno",
            Self::Cubic => "cubic",
            Self::CubicLinux => "cubic-linux",
            Self::Hybla => "hybla",
            Self::Bbr => "bbr",
            Self::Dctcp => "dctcp",
            Self::Prague => "prague",
        }
    }
}

/// How a transport hears of congestion marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// It does not understand them.
    Off,
    /// RFC 3168.
    Classic,
    /// RFC 9768.
    Accurate,
}

impl Serialize for Ecn {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Off => false.serialize(to),
            Self::Classic => true.serialize(to),
            Self::Accurate => "accurate".serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Ecn {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Ecn;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false, \"classic\" or \"accurate\"")
            }

            fn visit_bool<E: Error>(self, on: bool) -> Result<Ecn, E> {
                Ok(if on { Ecn::Classic } else { Ecn::Off })
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Ecn, E> {
                match name {
                    "classic" => Ok(Ecn::Classic),
                    "accurate" => Ok(Ecn::Accurate),
                    _ => Err(E::invalid_value(Unexpected::Str(name), &self)),
                }
            }
        }
        from.deserialize_any(Reader)
    }
}

impl JsonSchema for Ecn {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Ecn".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "enum": [false, true, "classic", "accurate"] })
    }
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
            rto: RtoName::Rfc6298,
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

/// Traffic of one kind.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Traffic {
    Pages(Pages),
    Files(Files),
    Bulk(Bulk),
    Cbr(Cbr),
    Poisson(Poisson),
    OnOff(OnOff),
    Mmpp(Mmpp),
    Video(Box<Video>),
    Voip(Voip),
    Replay(Replay),
}

impl Traffic {
    /// What it has in common with other packet sources, where it is one.
    pub fn packets(&self) -> Option<Common<'_>> {
        match self {
            Self::Pages(_) | Self::Files(_) | Self::Bulk(_) => None,
            Self::Cbr(t) => Some(t.common()),
            Self::Poisson(t) => Some(t.common()),
            Self::OnOff(t) => Some(t.common()),
            Self::Mmpp(t) => Some(t.common()),
            Self::Video(t) => Some(t.common()),
            Self::Voip(t) => Some(t.common()),
            Self::Replay(t) => Some(t.common()),
        }
    }

    /// The names of the hosts that data comes from and goes to.
    pub fn ends(&self) -> (&str, &str) {
        match self {
            Self::Pages(t) => (&t.from, &t.to),
            Self::Files(t) => (&t.from, &t.to),
            Self::Bulk(t) => (&t.from, &t.to),
            _ => self.packets().map_or(("", ""), |t| (t.from, t.to)),
        }
    }

    /// The name of its TCP, where it has one.
    pub fn transport(&self) -> Option<&str> {
        match self {
            Self::Pages(t) => Some(&t.transport),
            Self::Files(t) => Some(&t.transport),
            Self::Bulk(t) => Some(&t.transport),
            _ => self.packets().and_then(|t| t.transport),
        }
    }
}

impl Serialize for Traffic {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        use serde_json::to_value;
        let (kind, contents) = match self {
            Self::Pages(t) => ("pages", to_value(t)),
            Self::Files(t) => ("files", to_value(t)),
            Self::Bulk(t) => ("bulk", to_value(t)),
            Self::Cbr(t) => ("cbr", to_value(t)),
            Self::Poisson(t) => ("poisson", to_value(t)),
            Self::OnOff(t) => ("on_off", to_value(t)),
            Self::Mmpp(t) => ("mmpp", to_value(t)),
            Self::Video(t) => ("video", to_value(t)),
            Self::Voip(t) => ("voip", to_value(t)),
            Self::Replay(t) => ("replay", to_value(t)),
        };
        let mut table = serde_json::Map::from_iter([("kind".to_owned(), kind.into())]);
        if let serde_json::Value::Object(contents) = contents.map_err(S::Error::custom)? {
            table.extend(contents);
        }
        table.serialize(to)
    }
}

impl JsonSchema for Traffic {
    fn schema_name() -> Cow<'static, str> {
        "Traffic".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let kinds = [
            ("pages", Pages::json_schema(generator)),
            ("files", Files::json_schema(generator)),
            ("bulk", Bulk::json_schema(generator)),
            ("cbr", Cbr::json_schema(generator)),
            ("poisson", Poisson::json_schema(generator)),
            ("on_off", OnOff::json_schema(generator)),
            ("mmpp", Mmpp::json_schema(generator)),
            ("video", Video::json_schema(generator)),
            ("voip", Voip::json_schema(generator)),
            ("replay", Replay::json_schema(generator)),
        ];
        let kinds = kinds.map(|(name, schema)| tagged(schema, "kind", name, "What kind of traffic it is."));
        json_schema!({ "description": "Traffic of one kind.", "oneOf": kinds })
    }
}

/// The schema of a table that says by `key` which one it is.
pub fn tagged(mut schema: Schema, key: &str, name: &str, description: &str) -> Schema {
    let tag = serde_json::json!({ "const": name, "description": description });
    if let Some(properties) = schema.get_mut("properties").and_then(|p| p.as_object_mut()) {
        properties.insert(key.to_owned(), tag);
    }
    match schema.get_mut("required").and_then(|r| r.as_array_mut()) {
        Some(required) => required.insert(0, key.into()),
        None => {
            schema.insert("required".to_owned(), serde_json::json!([key]));
        }
    }
    schema
}

/// HTTP-like: clients fetch pages from servers, over connections opened for it. Each session is always busy with
/// one page, then thinks, then with the next. Session i belongs to client i and server i, counted round and round.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pages {
    /// The servers, where the data comes from: a group of hosts.
    pub from: String,
    /// The clients: a group of hosts.
    pub to: String,
    /// The TCP.
    #[serde(default = "default_transport")]
    pub transport: String,
    /// How many sessions.
    pub sessions: Whole<1, MOST>,
    /// Length of an object: a size, or a distribution.
    pub object_size: Distribution<SizeKind>,
    /// Objects of a page.
    #[serde(default = "single")]
    pub objects_per_page: Whole<1, 10_000>,
    /// What a connection is opened for.
    #[serde(default = "page")]
    pub connection_per: ConnectionPer,
    /// Time between two pages of a session: a time, or a distribution.
    #[serde(default = "no_time")]
    pub think_time: Distribution<TimeKind>,
    /// Length of a request.
    #[serde(default = "request_size")]
    pub request_size: Size,
    /// Rate of a connection, paced by the server. Absent: no cap.
    pub rate_cap: Option<Rate>,
    /// How the sessions start. Absent: all at once.
    pub ramp: Option<Ramp>,
    /// When no page is opened: from when until when, as often as there is such a time, from the beginning of the run.
    #[serde(default)]
    pub away: Vec<[Time; 2]>,
}

/// What a connection is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionPer {
    /// For a page: its objects follow each other on it.
    Page,
    /// For an object: those of a page are fetched side by side.
    Object,
}

/// Sessions, or transfers, that start in steps.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ramp {
    /// So many more start …
    pub sessions: Whole<1, MOST>,
    /// … spread evenly over this time, …
    pub over: Time,
    /// … and none for this time after.
    #[serde(default = "super::zero")]
    pub pause: Time,
}

/// Long-lived transfers. Flow i goes from host i to host i, counted round and round.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bulk {
    /// Where the data comes from: a group of hosts.
    pub from: String,
    /// Where it goes: a group of hosts.
    pub to: String,
    /// The TCP or SCTP.
    #[serde(default = "default_transport")]
    pub transport: String,
    /// How many transfers.
    #[serde(default = "one_flow")]
    pub flows: Whole<1, MOST>,
    /// When each starts, from the beginning of the run: a time, or a distribution.
    #[serde(default = "no_time")]
    pub start: Distribution<TimeKind>,
    /// How they start in steps, each `start` later than its step has it. Absent: all at once.
    pub ramp: Option<Ramp>,
    /// How long each connection lives: a time, or a distribution. Then it is given up, whether it is done or not, and a new
    /// one takes its place at once. Absent: to the end.
    pub lifetime: Option<Distribution<SpanKind>>,
    /// How much each transfers. Absent: without end.
    pub bytes: Option<Size>,
    /// Rate of a connection, paced by the sender. Absent: no cap.
    pub rate_cap: Option<Rate>,
    /// When they leave and when they come back, as often as they do, from the beginning of the run. A transfer that leaves
    /// is given up; one that comes back begins anew, on a new connection.
    #[serde(default)]
    pub away: Vec<[Time; 2]>,
}

/// Files: transfers that begin at random times, each over a connection of its own. Source i belongs to receiver i; its
/// transfers come from senders i, i + 1 and so on, all counted round and round.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Files {
    /// Where the data comes from: a group of hosts.
    pub from: String,
    /// Where it goes: a group of hosts.
    pub to: String,
    /// The TCP or SCTP.
    #[serde(default = "default_transport")]
    pub transport: String,
    /// How many sources of transfers, each for itself.
    #[serde(default = "one_flow")]
    pub sources: Whole<1, MOST>,
    /// Time between the beginnings of two transfers of a source: a time, or a distribution. Exponential makes them a
    /// Poisson process.
    pub interval: Distribution<SpanKind>,
    /// Length of a file: a size, or a distribution.
    pub size: Distribution<SizeKind>,
    /// Rate of a connection, paced by the sender. Absent: no cap.
    pub rate_cap: Option<Rate>,
    /// When each source starts, from the beginning of the run: a time, or a distribution. The first transfer begins one
    /// interval later.
    #[serde(default = "no_time")]
    pub start: Distribution<TimeKind>,
    /// When no transfer begins: from when until when, as often as there is such a time, from the beginning of the run.
    #[serde(default)]
    pub away: Vec<[Time; 2]>,
}

fn default_transport() -> String {
    "default".to_owned()
}

fn single() -> Whole<1, 10_000> {
    Whole(1)
}

pub fn one_flow() -> Whole<1, MOST> {
    Whole(1)
}

fn page() -> ConnectionPer {
    ConnectionPer::Page
}

pub fn no_time() -> Distribution<TimeKind> {
    Distribution::Plain(Time::of(0))
}

fn request_size() -> Size {
    Size::of(300)
}
