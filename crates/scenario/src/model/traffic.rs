//! Traffic. Packet sources are in [`packets`](super::packets).

use bentpipe_units::{Duration, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::dash::Dash;
use super::distribution::Distribution;
use super::indexes::{HostIndex, LinkIndex, TransportIndex};
use super::measures::MEASURES;
use super::packets::{Absence, Packets};

/// Traffic between two groups of hosts. Flow i goes from host `i mod count(from)` to host `i mod count(to)`.
#[derive(Clone, Debug, Serialize)]
pub struct Traffic {
    /// Name.
    pub name: String,
    /// Group of hosts that sends the data.
    pub from: HostIndex,
    /// Group of hosts that receives the data.
    pub to: HostIndex,
    /// Route of the data; acknowledgements take it in reverse.
    pub route: Vec<Hop>,
    /// Routes after the handovers of a terminal on the way to other gateways, in order of time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes_after: Vec<Vec<Hop>>,
    /// Kind of traffic.
    pub kind: TrafficKind,
    /// Class of traffic; `None` if it is named after the traffic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Codepoint (DSCP) of its packets, in both directions.
    #[serde(skip_serializing_if = "is_default_codepoint")]
    pub dscp: u8,
    /// Application of its packets, and the one-way delay above which one is of no use to it.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "deadline")]
    pub application: Option<(Application, Duration)>,
    /// Load over a day; `None` if it is constant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
}

/// Load over a day: the share of the users who are present, or of the peak rate of arrivals. It is linear between points, from the
/// last to the first of the next day too, and repeats.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Profile {
    /// Duration of a day.
    pub day: Duration,
    /// Times since the beginning of the run, ascending and less than a day, and the shares there, from 0 to 1.
    pub points: Vec<(Duration, f64)>,
}

/// Application of a packet source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Application {
    /// A networked game.
    Game,
    /// Devices of the internet of things.
    Iot,
}

impl Application {
    /// Returns the name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Game => "game",
            Self::Iot => "iot",
        }
    }

    /// Returns the one-way delay above which a packet is of no use: the default limit of bad delays.
    #[must_use]
    pub fn deadline(self) -> Duration {
        let measure = format!("{}.delay", self.name());
        let limit = MEASURES.iter().find(|m| m.name == measure).map_or(f64::INFINITY, |m| m.bad);
        Duration::from_secs_f64(1e-3 * limit)
    }
}

fn deadline<S: serde::Serializer>(
    application: &Option<(Application, Duration)>,
    to: S,
) -> Result<S::Ok, S::Error> {
    application.map(|(application, deadline)| (application, deadline.as_nanos())).serialize(to)
}

fn is_default_codepoint(dscp: &u8) -> bool {
    *dscp == 0
}

impl Traffic {
    /// Returns the class of traffic, for which results are given.
    #[must_use]
    pub fn class(&self) -> &str {
        self.class.as_deref().unwrap_or(&self.name)
    }

    /// Returns the kind by which its users judge it: the application of its packets, rendered pages if objects that block
    /// rendering are told apart, or else the kind of traffic.
    #[must_use]
    pub fn service(&self) -> &'static str {
        match (&self.kind, self.application) {
            (_, Some((application, _))) => application.name(),
            (TrafficKind::Pages(Pages { rendering: Some(_), .. }), None) => "rendered pages",
            (kind, None) => kind.name(),
        }
    }
}

/// A hop of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Hop {
    /// Link.
    pub link: LinkIndex,
    /// True if the hop leads from the link's first node to its second.
    pub forward: bool,
}

/// Kinds of traffic.
#[derive(Clone, Debug)]
pub enum TrafficKind {
    /// Web pages.
    Pages(Pages),
    /// Transfers with random start times.
    Files(Files),
    /// Long-lived transfers.
    Bulk(Bulk),
    /// Adaptive video.
    Dash(Box<Dash>),
    /// Packet sources.
    Packets(Packets),
}

impl TrafficKind {
    /// Returns the value of the key `kind` in a scenario file.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pages(Pages { http: Some(Http::Probe), .. }) => "probe",
            Self::Pages(_) => "pages",
            Self::Files(_) => "files",
            Self::Bulk(_) => "bulk",
            Self::Dash(_) => "dash",
            Self::Packets(t) => t.pattern.name(),
        }
    }

    /// Returns the transport; `None` for datagrams.
    #[must_use]
    pub fn transport(&self) -> Option<TransportIndex> {
        match self {
            Self::Pages(t) => Some(t.transport),
            Self::Files(t) => Some(t.transport),
            Self::Bulk(t) => Some(t.transport),
            Self::Dash(t) => Some(t.transport),
            Self::Packets(t) => t.transport,
        }
    }
}

impl Serialize for TrafficKind {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let name = self.name();
        match self {
            Self::Pages(t) => to.serialize_newtype_variant("TrafficKind", 0, name, t),
            Self::Files(t) => to.serialize_newtype_variant("TrafficKind", 1, name, t),
            Self::Bulk(t) => to.serialize_newtype_variant("TrafficKind", 2, name, t),
            Self::Packets(t) => to.serialize_newtype_variant("TrafficKind", 3, name, t),
            Self::Dash(t) => to.serialize_newtype_variant("TrafficKind", 4, name, t),
        }
    }
}

/// Objects that a browser needs before it can render a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Rendering {
    /// Objects after the first that block rendering.
    pub blocking: u32,
    /// True if servers follow the priorities of a browser (RFC 9218); else they send all objects at once.
    pub priorities: bool,
}

/// Web traffic: clients (the hosts of `to`) fetch pages from servers (the hosts of `from`). Each session alternates between
/// one page and a think time.
#[derive(Clone, Debug, Serialize)]
pub struct Pages {
    /// TCP .
    pub transport: TransportIndex,
    /// Number of sessions.
    pub sessions: u32,
    /// Size of an object [bytes].
    pub object_size: Distribution<u64>,
    /// Number of objects per page.
    pub objects_per_page: u32,
    /// Use of connections.
    pub connection_per: ConnectionPer,
    /// Loading as a browser does, in place of `connection_per`; `None` if that holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<Http>,
    /// Time for which an idle connection stays open for the next page; `None` if it is closed behind its page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_alive: Option<Duration>,
    /// Think time between two pages of a session.
    pub think_time: Distribution<Duration>,
    /// Time after which a session gives up a page that is not complete; `None` if it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience: Option<Duration>,
    /// Objects that a browser needs first; `None` if they are not told apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rendering: Option<Rendering>,
    /// Size of a request [bytes].
    pub request_size: u64,
    /// Rate limit of a connection, enforced by the server's pacing; `None` without a limit.
    pub rate_cap: Option<Rate>,
    /// Ramp of session starts; `None` if all start at once.
    pub ramp: Option<Ramp>,
    /// Periods without new pages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub away: Vec<Absence>,
}

/// Use of connections by web pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionPer {
    /// One connection per page, its objects in sequence.
    Page,
    /// One connection per object, those of a page in parallel.
    Object,
}

/// Loading of a page by a browser: its first object, then all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Http {
    /// HTTP/1.1: up to six connections, one request at a time on each.
    #[serde(rename = "1.1")]
    One,
    /// HTTP/2: all requests on one connection.
    #[serde(rename = "2")]
    Two,
    /// HTTP/3: all requests on one QUIC connection, each object on a separate stream.
    #[serde(rename = "3")]
    Three,
    /// A probe of responsiveness: the messages of a TLS handshake, then an object of 1 byte, on one connection.
    #[serde(rename = "probe", skip_deserializing)]
    #[schemars(skip)]
    Probe,
}

/// Staggered starts of sessions or transfers.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Ramp {
    /// Number of starts per step.
    pub sessions: u32,
    /// Duration of a step, over which its starts are spread evenly.
    pub over: Duration,
    /// Pause after a step.
    pub pause: Duration,
}

/// Long-lived transfers.
#[derive(Clone, Debug, Serialize)]
pub struct Bulk {
    /// TCP, SCTP or QUIC.
    pub transport: TransportIndex,
    /// Number of transfers.
    pub flows: u32,
    /// Start time, since the beginning of the run.
    pub start: Distribution<Duration>,
    /// Ramp of transfer starts, to which `start` is added; `None` if all start at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ramp: Option<Ramp>,
    /// Lifetime of a connection, which a new one replaces; `None` if it lasts to the end of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<Distribution<Duration>>,
    /// Size of a transfer [bytes]; `None` if unlimited.
    pub bytes: Option<u64>,
    /// Rate limit of a connection, enforced by the sender's pacing; `None` without a limit.
    pub rate_cap: Option<Rate>,
    /// Periods of absence: transfers are aborted at the start and restarted at the end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub away: Vec<Absence>,
}

/// Transfers with random start times, one connection each. Source i belongs to host i of `to`; its transfers come from hosts
/// i, i + 1 and so on of `from`, modulo the sizes of the groups.
#[derive(Clone, Debug, Serialize)]
pub struct Files {
    /// TCP, SCTP or QUIC.
    pub transport: TransportIndex,
    /// Number of sources.
    pub sources: u32,
    /// Time between the starts of two transfers of a source.
    pub interval: Distribution<Duration>,
    /// Number of transfers of a source; `None` without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfers: Option<u32>,
    /// Size of a file [bytes].
    pub size: Distribution<u64>,
    /// Rate limit of a connection, enforced by the sender's pacing; `None` without a limit.
    pub rate_cap: Option<Rate>,
    /// Start time of a source, since the beginning of the run.
    pub start: Distribution<Duration>,
    /// Periods without new transfers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub away: Vec<Absence>,
}
