//! Traffic, once its keys are understood. Sources of packets are in [`packets`](crate::packets).

use bentpipe_units::{Duration, Rate};
use serde::Serialize;

use crate::canonical::{bps_of, law_of_bytes, law_of_time, law_of_time_of, ns};
use crate::distribution::Distribution;
use crate::packets::{Absence, Packets};

/// Traffic between two groups of hosts. Flow i goes from host `i mod count(from)` to host `i mod count(to)`.
#[derive(Clone, Debug, Serialize)]
pub struct Traffic {
    /// Its name.
    pub name: String,
    /// Where the data comes from (an index of a group of hosts).
    pub from: usize,
    /// Where it goes (an index of a group of hosts).
    pub to: usize,
    /// The way of the data; what comes back takes it in the other direction.
    pub route: Vec<Hop>,
    /// What kind it is.
    pub kind: TrafficKind,
}

/// One link on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Hop {
    /// The link (an index).
    pub link: usize,
    /// Whether it is taken from its first node to its second.
    pub forward: bool,
}

/// Kinds of traffic.
#[derive(Clone, Debug)]
pub enum TrafficKind {
    /// Clients fetch pages from servers.
    Pages(Pages),
    /// Transfers that begin at random times.
    Files(Files),
    /// Long-lived transfers.
    Bulk(Bulk),
    /// Flows of packets.
    Packets(Packets),
}

impl TrafficKind {
    /// What carries it (an index); none: datagrams.
    #[must_use]
    pub fn transport(&self) -> Option<usize> {
        match self {
            Self::Pages(t) => Some(t.transport),
            Self::Files(t) => Some(t.transport),
            Self::Bulk(t) => Some(t.transport),
            Self::Packets(t) => t.transport,
        }
    }
}

impl Serialize for TrafficKind {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Pages(t) => to.serialize_newtype_variant("TrafficKind", 0, "pages", t),
            Self::Files(t) => to.serialize_newtype_variant("TrafficKind", 1, "files", t),
            Self::Bulk(t) => to.serialize_newtype_variant("TrafficKind", 2, "bulk", t),
            Self::Packets(t) => to.serialize_newtype_variant("TrafficKind", 3, t.pattern.name(), t),
        }
    }
}

/// Clients (the hosts of `to`) fetch pages from servers (the hosts of `from`), over a connection that is opened
/// for it. Each session is always busy with one page, then thinks, then with the next.
#[derive(Clone, Debug, Serialize)]
pub struct Pages {
    /// The TCP (an index).
    pub transport: usize,
    /// How many sessions.
    pub sessions: u32,
    /// Length of an object [bytes].
    #[serde(serialize_with = "law_of_bytes")]
    pub object_size: Distribution<u64>,
    /// Objects of a page.
    pub objects_per_page: u32,
    /// What a connection is opened for.
    pub connection_per: ConnectionPer,
    /// Time between two pages of a session.
    #[serde(serialize_with = "law_of_time")]
    pub think_time: Distribution<Duration>,
    /// Length of a request [bytes].
    pub request_size: u64,
    /// Rate of a connection, paced by the server; none: no cap.
    #[serde(serialize_with = "bps_of")]
    pub rate_cap: Option<Rate>,
    /// How the sessions start; none: all at once.
    pub ramp: Option<Ramp>,
    /// When no page is opened.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub away: Vec<Absence>,
}

/// What a connection is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionPer {
    /// For a page: its objects follow each other on it.
    Page,
    /// For an object: those of a page are fetched side by side.
    Object,
}

/// Sessions, or transfers, that start in steps.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Ramp {
    /// So many more start …
    pub sessions: u32,
    /// … spread evenly over this time, …
    #[serde(serialize_with = "ns")]
    pub over: Duration,
    /// … and none for this time after.
    #[serde(serialize_with = "ns")]
    pub pause: Duration,
}

/// Long-lived transfers.
#[derive(Clone, Debug, Serialize)]
pub struct Bulk {
    /// The TCP or SCTP (an index).
    pub transport: usize,
    /// How many transfers.
    pub flows: u32,
    /// When each starts, from the beginning of the run.
    #[serde(serialize_with = "law_of_time")]
    pub start: Distribution<Duration>,
    /// How they start in steps, each `start` later than its step has it; none: all at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ramp: Option<Ramp>,
    /// How long a connection lives, until a new one takes its place; none: to the end.
    #[serde(serialize_with = "law_of_time_of", skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<Distribution<Duration>>,
    /// How much each transfers [bytes]; none: without end.
    pub bytes: Option<u64>,
    /// Rate of a connection, paced by the sender; none: no cap.
    #[serde(serialize_with = "bps_of")]
    pub rate_cap: Option<Rate>,
    /// When all are away: given up when they leave, begun anew when they come back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub away: Vec<Absence>,
}

/// Transfers that begin at random times, each over a connection of its own. Source i belongs to host i of `to`; its
/// transfers come from hosts i, i + 1 and so on of `from`, all counted round and round.
#[derive(Clone, Debug, Serialize)]
pub struct Files {
    /// The TCP or SCTP (an index).
    pub transport: usize,
    /// How many sources of transfers.
    pub sources: u32,
    /// Time between the beginnings of two transfers of a source.
    #[serde(serialize_with = "law_of_time")]
    pub interval: Distribution<Duration>,
    /// Length of a file [bytes].
    #[serde(serialize_with = "law_of_bytes")]
    pub size: Distribution<u64>,
    /// Rate of a connection, paced by the sender; none: no cap.
    #[serde(serialize_with = "bps_of")]
    pub rate_cap: Option<Rate>,
    /// When each source starts, from the beginning of the run.
    #[serde(serialize_with = "law_of_time")]
    pub start: Distribution<Duration>,
    /// When no transfer begins.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub away: Vec<Absence>,
}
