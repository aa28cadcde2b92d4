//! Traffic.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::MOST;
use super::dash::Dash;
use super::dscp::Dscp;
use super::forms::{Distribution, tables};
use super::packets::{Cbr, Mmpp, OnOff, Packets, Poisson, Replay, Video, Voip};
use super::profile::Profile;
use super::quantity::{PeriodKind, Rate, Size, SizeKind, Span, SpanKind, Time, TimeKind, Whole};
use crate::model::{ConnectionPer, Http};

tables! {
    /// Traffic of one kind.
    Traffic by "kind" ("Kind of traffic.") {
        "pages": Pages(Pages),
        "files": Files(Files),
        "bulk": Bulk(Bulk),
        "dash": Dash(Box<Dash>),
        "probe": Probe(Probe),
        "cbr": Cbr(Cbr),
        "poisson": Poisson(Poisson),
        "on_off": OnOff(OnOff),
        "mmpp": Mmpp(Mmpp),
        "video": Video(Box<Video>),
        "voip": Voip(Voip),
        "replay": Replay(Replay),
    }
}

impl JsonSchema for Traffic {
    fn schema_name() -> Cow<'static, str> {
        "Traffic".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "description": "Traffic of one kind.", "oneOf": Self::schemas(generator) })
    }
}

/// Keys that all kinds of traffic have in common.
pub struct Common<'a> {
    /// Groups of hosts that send and receive the data.
    pub from: &'a str,
    pub to: &'a str,
    /// `None` for UDP datagrams.
    pub transport: Option<&'a str>,
    pub dscp: Option<Dscp>,
    pub profile: Option<&'a Profile>,
    pub class: Option<&'a str>,
}

/// A kind of traffic.
pub trait Source {
    fn common(&self) -> Common<'_>;

    /// Returns what all packet sources have in common; `None` for other traffic.
    fn packets(&self) -> Option<Packets<'_>> {
        None
    }
}

impl Traffic {
    /// Returns the kind's table.
    pub fn source(&self) -> &dyn Source {
        match self {
            Self::Pages(t) => t,
            Self::Files(t) => t,
            Self::Bulk(t) => t,
            Self::Dash(t) => t.as_ref(),
            Self::Probe(t) => t,
            Self::Cbr(t) => t,
            Self::Poisson(t) => t,
            Self::OnOff(t) => t,
            Self::Mmpp(t) => t,
            Self::Video(t) => t.as_ref(),
            Self::Voip(t) => t,
            Self::Replay(t) => t,
        }
    }
}

macro_rules! over_a_transport {
    ($($table:ident),*) => {$(
        impl Source for $table {
            fn common(&self) -> Common<'_> {
                let Self { from, to, transport, dscp, profile, class, .. } = self;
                let (dscp, profile, class) = (*dscp, profile.as_ref(), class.as_deref());
                Common { from, to, transport: Some(transport), dscp, profile, class }
            }
        }
    )*};
}

over_a_transport!(Pages, Files, Bulk, Dash);

impl Source for Probe {
    fn common(&self) -> Common<'_> {
        let Self { from, to, transport, class, .. } = self;
        let class = class.as_deref();
        Common { from, to, transport: Some(transport), dscp: None, profile: None, class }
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
    /// Name of a transport: TCP, or QUIC.
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
    /// Time for which a session keeps the connection of a page to a server open, for its next page from there. With `http` 2 or
    /// 3. Default: each page opens a connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_alive: Option<Span>,
    /// Objects after the first that block rendering, as style sheets and scripts do: the metric `render_time` is the time until
    /// they are complete. With `http = "3"`; less than `objects_per_page`. Default: not told apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub render_blocking: Option<Whole<0, 9_999>>,
    /// True if servers send the objects by the priorities that browsers request (RFC 9218): the first, then those that block
    /// rendering one after the other, then the rest at once. Needs `render_blocking`.
    #[serde(default)]
    pub priorities: bool,
    /// Think time between two pages of a session: a time or a distribution.
    #[serde(default = "no_time")]
    pub think_time: Distribution<TimeKind>,
    /// Time after which a session gives up a page that is not complete: it aborts the page's connections, and opens its next page
    /// after a think time. Default: it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience: Option<Span>,
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
    /// TCP, SCTP or QUIC.
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
    /// Lifetime of a connection: a time or a distribution, with a mean of at least 1 ms. Then it is aborted, complete or
    /// not, and a new one replaces it. Default: to the end of the run.
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
    /// TCP, SCTP or QUIC.
    #[serde(default = "default_transport")]
    pub transport: String,
    /// Number of independent sources of transfers.
    #[serde(default = "Whole::<1, MOST>::just::<1>")]
    pub sources: Whole<1, MOST>,
    /// Time between the starts of two transfers of a source: a time or a distribution. An exponential distribution
    /// makes them a Poisson process.
    pub interval: Distribution<PeriodKind>,
    /// Number of transfers of a source, which then starts no more. Default: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfers: Option<Whole<1, MOST>>,
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
    /// Name of a TCP transport.
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
