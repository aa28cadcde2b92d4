//! Traffic.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::ser::Error as _;
use serde::{Deserialize, Serialize, Serializer};

use super::MOST;
use super::forms::{Distribution, tagged};
use super::packets::{Cbr, Common, Mmpp, OnOff, Poisson, Replay, Source as _, Video, Voip};
use super::quantity::{Rate, Size, SizeKind, SpanKind, Time, TimeKind, Whole};
use crate::model::ConnectionPer;

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

/// Sessions, or transfers, that start in steps.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ramp {
    /// So many more start …
    pub sessions: Whole<1, MOST>,
    /// … spread evenly over this time, …
    pub over: Time,
    /// … and none for this time after.
    #[serde(default = "super::link::zero")]
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
