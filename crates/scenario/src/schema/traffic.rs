//! Traffic.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::ser::Error as _;
use serde::{Deserialize, Serialize, Serializer};

use super::MOST;
use super::dash::Dash;
use super::dscp::Dscp;
use super::forms::{Distribution, tagged};
use super::packets::{Cbr, Common, Mmpp, OnOff, Poisson, Replay, Source as _, Video, Voip};
use super::profile::Profile;
use super::quantity::{Rate, Size, SizeKind, Span, SpanKind, Time, TimeKind, Whole};
use crate::model::{ConnectionPer, Http};

/// Traffic of one kind.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Traffic {
    Pages(Pages),
    Files(Files),
    Bulk(Bulk),
    Dash(Box<Dash>),
    Probe(Probe),
    Cbr(Cbr),
    Poisson(Poisson),
    OnOff(OnOff),
    Mmpp(Mmpp),
    Video(Box<Video>),
    Voip(Voip),
    Replay(Replay),
}

impl Traffic {
    /// Returns what all packet sources have in common; `None` for other traffic.
    pub fn packets(&self) -> Option<Common<'_>> {
        match self {
            Self::Pages(_) | Self::Files(_) | Self::Bulk(_) | Self::Dash(_) | Self::Probe(_) => None,
            Self::Cbr(t) => Some(t.common()),
            Self::Poisson(t) => Some(t.common()),
            Self::OnOff(t) => Some(t.common()),
            Self::Mmpp(t) => Some(t.common()),
            Self::Video(t) => Some(t.common()),
            Self::Voip(t) => Some(t.common()),
            Self::Replay(t) => Some(t.common()),
        }
    }

    /// Returns the names of the groups of hosts that send and receive the data.
    pub fn ends(&self) -> (&str, &str) {
        match self {
            Self::Pages(t) => (&t.from, &t.to),
            Self::Files(t) => (&t.from, &t.to),
            Self::Bulk(t) => (&t.from, &t.to),
            Self::Dash(t) => (&t.from, &t.to),
            Self::Probe(t) => (&t.from, &t.to),
            _ => self.packets().map_or(("", ""), |t| (t.from, t.to)),
        }
    }

    /// Returns the class of traffic; `None` if it is named after the traffic.
    pub fn class(&self) -> Option<&str> {
        match self {
            Self::Pages(t) => t.class.as_deref(),
            Self::Files(t) => t.class.as_deref(),
            Self::Bulk(t) => t.class.as_deref(),
            Self::Dash(t) => t.class.as_deref(),
            Self::Probe(t) => t.class.as_deref(),
            _ => self.packets().and_then(|t| t.class),
        }
    }

    /// Returns the load over a day.
    pub fn profile(&self) -> Option<&Profile> {
        match self {
            Self::Pages(t) => t.profile.as_ref(),
            Self::Files(t) => t.profile.as_ref(),
            Self::Bulk(t) => t.profile.as_ref(),
            Self::Dash(t) => t.profile.as_ref(),
            Self::Probe(_) => None,
            _ => self.packets().and_then(|t| t.profile),
        }
    }

    /// Returns the codepoint of the packets.
    pub fn dscp(&self) -> Option<Dscp> {
        match self {
            Self::Pages(t) => t.dscp,
            Self::Files(t) => t.dscp,
            Self::Bulk(t) => t.dscp,
            Self::Dash(t) => t.dscp,
            Self::Probe(_) => None,
            _ => self.packets().and_then(|t| t.dscp),
        }
    }

    /// Returns the name of the transport; `None` for datagrams.
    pub fn transport(&self) -> Option<&str> {
        match self {
            Self::Pages(t) => Some(&t.transport),
            Self::Files(t) => Some(&t.transport),
            Self::Bulk(t) => Some(&t.transport),
            Self::Dash(t) => Some(&t.transport),
            Self::Probe(t) => Some(&t.transport),
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
            Self::Dash(t) => ("dash", to_value(t)),
            Self::Probe(t) => ("probe", to_value(t)),
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
            ("dash", Dash::json_schema(generator)),
            ("probe", Probe::json_schema(generator)),
            ("cbr", Cbr::json_schema(generator)),
            ("poisson", Poisson::json_schema(generator)),
            ("on_off", OnOff::json_schema(generator)),
            ("mmpp", Mmpp::json_schema(generator)),
            ("video", Video::json_schema(generator)),
            ("voip", Voip::json_schema(generator)),
            ("replay", Replay::json_schema(generator)),
        ];
        let kinds = kinds.map(|(name, schema)| tagged(schema, "kind", name, "Kind of traffic."));
        json_schema!({ "description": "Traffic of one kind.", "oneOf": kinds })
    }
}

/// Web traffic: clients fetch pages from servers. Each session alternates between one page and a think time. Session i
/// belongs to client i and server i, modulo the sizes of the groups.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pages {
    /// Servers, which send the data: a group of hosts.
    pub from: String,
    /// Clients: a group of hosts.
    pub to: String,
    /// TCP.
    #[serde(default = "default_transport")]
    pub transport: String,
    /// Number of sessions.
    pub sessions: Whole<1, MOST>,
    /// Size of an object: a size or a distribution.
    pub object_size: Distribution<SizeKind>,
    /// Number of objects per page.
    #[serde(default = "Whole::<1, 10_000>::just::<1>")]
    pub objects_per_page: Whole<1, 10_000>,
    /// Use of connections. Default: `page`, unless `http` is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_per: Option<ConnectionPer>,
    /// Loading as a browser does, in place of `connection_per`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<Http>,
    /// Think time between two pages of a session: a time or a distribution.
    #[serde(default = "no_time")]
    pub think_time: Distribution<TimeKind>,
    /// Size of a request.
    #[serde(default = "Size::just::<300>")]
    pub request_size: Size,
    /// Rate limit of a connection, enforced by the server's pacing. Default: no limit.
    pub rate_cap: Option<Rate>,
    /// Ramp of session starts. Default: all start at once.
    pub ramp: Option<Ramp>,
    /// Periods without new pages: pairs of start and end, since the beginning of the run.
    #[serde(default)]
    pub away: Vec<[Time; 2]>,
    /// Codepoint (DSCP) of the packets in both directions. Default: "CS0".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dscp: Option<Dscp>,
    /// Load over a day: the share of the sessions that open pages, with times of day, linear between them. Default: constant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// Class of traffic, for which results are given. Default: the name of the traffic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
}

/// Staggered starts of sessions or transfers.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ramp {
    /// Number of starts per step.
    pub sessions: Whole<1, MOST>,
    /// Duration of a step, over which its starts are spread evenly.
    pub over: Time,
    /// Pause after a step.
    #[serde(default = "Time::just::<0>")]
    pub pause: Time,
}

/// Long-lived transfers. Flow i connects host i of both groups, modulo the sizes of the groups.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bulk {
    /// Senders: a group of hosts.
    pub from: String,
    /// Receivers: a group of hosts.
    pub to: String,
    /// TCP or SCTP.
    #[serde(default = "default_transport")]
    pub transport: String,
    /// Number of transfers.
    #[serde(default = "Whole::<1, MOST>::just::<1>")]
    pub flows: Whole<1, MOST>,
    /// Start time, since the beginning of the run: a time or a distribution.
    #[serde(default = "no_time")]
    pub start: Distribution<TimeKind>,
    /// Ramp of transfer starts, to which `start` is added. Default: all start at once.
    pub ramp: Option<Ramp>,
    /// Lifetime of a connection: a time or a distribution. Then it is aborted, complete or not, and a new one replaces
    /// it. Default: to the end of the run.
    pub lifetime: Option<Distribution<SpanKind>>,
    /// Size of a transfer. Default: unlimited.
    pub bytes: Option<Size>,
    /// Rate limit of a connection, enforced by the sender's pacing. Default: no limit.
    pub rate_cap: Option<Rate>,
    /// Periods of absence: pairs of departure and return, since the beginning of the run. Transfers are aborted at the
    /// departure and restart on a new connection at the return.
    #[serde(default)]
    pub away: Vec<[Time; 2]>,
    /// Codepoint (DSCP) of the packets in both directions. Default: "CS0".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dscp: Option<Dscp>,
    /// Load over a day: the share of the transfers that are present, with times of day, linear between them. Default: constant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// Class of traffic, for which results are given. Default: the name of the traffic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
}

/// File transfers with random start times, one connection each. Source i belongs to receiver i; its transfers come from
/// senders i, i + 1 and so on, modulo the sizes of the groups.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Files {
    /// Senders: a group of hosts.
    pub from: String,
    /// Receivers: a group of hosts.
    pub to: String,
    /// TCP or SCTP.
    #[serde(default = "default_transport")]
    pub transport: String,
    /// Number of independent sources of transfers.
    #[serde(default = "Whole::<1, MOST>::just::<1>")]
    pub sources: Whole<1, MOST>,
    /// Time between the starts of two transfers of a source: a time or a distribution. An exponential distribution
    /// makes them a Poisson process.
    pub interval: Distribution<SpanKind>,
    /// Size of a file: a size or a distribution.
    pub size: Distribution<SizeKind>,
    /// Rate limit of a connection, enforced by the sender's pacing. Default: no limit.
    pub rate_cap: Option<Rate>,
    /// Start time of a source, since the beginning of the run: a time or a distribution. Its first transfer starts one
    /// interval later.
    #[serde(default = "no_time")]
    pub start: Distribution<TimeKind>,
    /// Periods without new transfers: pairs of start and end, since the beginning of the run.
    #[serde(default)]
    pub away: Vec<[Time; 2]>,
    /// Codepoint (DSCP) of the packets in both directions. Default: "CS0".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dscp: Option<Dscp>,
    /// Load over a day: the share of the peak rate at which transfers start, which `interval` gives, with times of day,
    /// linear between them. Default: constant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// Class of traffic, for which results are given. Default: the name of the traffic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
}

/// Probes of responsiveness (draft-ietf-ippm-responsiveness, "foreign probes"): clients open a connection, exchange the
/// messages of a TLS handshake in a round trip, and get an object of 1 byte. The load-generating connections are the
/// `bulk` traffic of the same class.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// Servers: a group of hosts.
    pub from: String,
    /// Clients: a group of hosts.
    pub to: String,
    /// TCP.
    #[serde(default = "default_transport")]
    pub transport: String,
    /// Number of clients that send probes.
    #[serde(default = "Whole::<1, MOST>::just::<1>")]
    pub sessions: Whole<1, MOST>,
    /// Time from the end of a client's probe to its next: a time or a distribution.
    #[serde(default = "probe_interval")]
    pub interval: Distribution<SpanKind>,
    /// Class of traffic, for which results are given. Default: the name of the traffic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
}

fn probe_interval() -> Distribution<SpanKind> {
    Distribution::Plain(Span::of(500_000_000))
}

pub fn default_transport() -> String {
    "default".to_owned()
}

pub fn no_time() -> Distribution<TimeKind> {
    Distribution::Plain(Time::of(0))
}
