//! What a scenario file may say. Its JSON Schema and the messages about wrong keys and values follow from these
//! structs, and so does the list of keys in effect.

mod aqm;
mod channel;
mod forms;
mod gateway;
mod models;
pub mod packets;
mod traffic;
mod transport;

pub use aqm::{Aqm, Marking, Scalar, Scheduler};
pub use channel::{
    Access, AccessName, AccessTable, Capacity, Demand, DuringName, Fade, GilbertElliott, Handover, Loss,
    LossAtName, LossOfName,
};
pub use forms::{Distribution, Either, LAWS, Named, Normal, OneOf, Share};
pub use gateway::{
    BufferPer, FlowKey, Gateway, Gateways, MarkingName, Pep, PlaceName, ProtocolName, RateOrLink, Spacelink,
};
pub use models::{Equations, Feedback, Laws, ModelKind, Models};
pub use traffic::{Congestion, ConnectionPer, Ecn, Ramp, RtoName, Tcp, Traffic, Window};
pub use transport::{Rtp, Sctp, Transport};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::{Packets, PacketsKind, Rate, Size, SizeKind, Span, Time, TimeKind, Whole};

/// The most hosts, sessions or flows of one group.
pub const MOST: u32 = 1_000_000;

/// A scenario: what is simulated, modelled or run.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Bentpipe scenario")]
pub struct File {
    /// What it is, in a line.
    pub title: String,
    /// What it shows, in full.
    pub description: Option<String>,
    /// Where it comes from.
    pub source: Option<String>,
    /// How long to run, and how to measure.
    pub run: Run,
    /// Groups of hosts, by name.
    #[serde(default)]
    pub host: Named<Host>,
    /// Routers, by name.
    #[serde(default)]
    pub router: Named<Router>,
    /// Links, by name.
    #[serde(default)]
    pub link: Named<Link>,
    /// The gateway, or several, each with its own name.
    #[serde(default)]
    pub gateway: Gateways,
    /// Transports, by name. Traffic that needs one and names none has the TCP called "default".
    #[serde(default)]
    pub transport: Named<Transport>,
    /// Traffic, by name.
    #[serde(default)]
    pub traffic: Named<Traffic>,
    /// Settings of this scenario, by name: an AQM each, beside the presets that every scenario knows.
    #[serde(default)]
    #[schemars(schema_with = "crate::schema::settings")]
    pub setting: Named<Aqm>,
    /// How the models see the scenario.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Models>,
    /// Printed values to compare with.
    #[serde(default)]
    pub printed: Vec<Printed>,
}

/// How long to run, and how to measure.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Simulated time before anything is measured.
    #[serde(default = "zero")]
    pub warmup: Time,
    /// Simulated time that is measured, after the warm-up.
    pub duration: Span,
    /// Time between two samples of a time series.
    #[serde(default = "sample_interval")]
    pub sample_interval: Span,
    /// Seed of the random numbers; the i-th run after the first has this seed and i.
    #[serde(default = "one")]
    pub seed: u64,
    /// Number of runs.
    #[serde(default = "once")]
    pub runs: Whole<1, 10_000>,
    /// The settings that a comparison takes where none are named.
    #[serde(default)]
    pub settings: Vec<String>,
    /// The gateway or link whose queue the settings apply to and the metrics describe. Absent: the only gateway,
    /// else the only link that has a queue with an AQM, else the only link that has a queue.
    pub subject: Option<String>,
}

/// A group of hosts.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// How many hosts are in it.
    #[serde(default = "single")]
    pub count: Whole<1, MOST>,
}

/// A router: it has no queues of its own, for those are the links'.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Router {}

/// A link, or one for each member where one of its ends is a group of hosts.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// The two nodes that it joins; forward is from the first to the second.
    pub between: [String; 2],
    /// How fast packets are sent. Absent: at once.
    pub rate: Option<Rate>,
    /// A capacity that changes, instead of a rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
    /// Capacity that has to be asked for. Absent: none has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demand: Option<Demand>,
    /// A link layer that contends, schedules and repeats; without a rate, the link has that of its kind. Absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// How long they travel.
    #[serde(default = "no_delay")]
    pub delay: Delay,
    /// A satellite that is changed for another at regular times. Absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handover: Option<Handover>,
    /// What is lost: the probability that a packet is, each on its own, after any queue; or a table that says more.
    #[serde(default = "no_loss")]
    pub loss: Loss,
    /// The queue in front. Absent: first in, first out, without limit.
    pub queue: Option<Queue>,
    /// What is different on the way from the second node to the first. The queue in front is its own.
    #[serde(default)]
    pub reverse: Reverse,
}

/// What is different on a link's way back.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reverse {
    /// How fast packets are sent. Absent: as on the way forward.
    pub rate: Option<Rate>,
    /// A capacity that changes, instead of a rate. Absent: as on the way forward, unless there is a rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
    /// Capacity that has to be asked for. Absent: none has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demand: Option<Demand>,
    /// A link layer that contends, schedules and repeats. Absent: as on the way forward, unless there is a capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// How long they travel. Absent: as on the way forward, and the very same where it is drawn per connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Delay>,
    /// What is lost. Absent: as on the way forward.
    pub loss: Option<Loss>,
    /// The queue in front. Absent: first in, first out, without limit.
    pub queue: Option<Queue>,
}

/// A propagation delay.
pub type Delay = Either<Time, DelayTable>;

/// A random propagation delay: one of `uniform`, `normal`, and `fixed` with `jitter` on top.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Delay")]
pub struct DelayTable {
    /// The shortest and the longest; uniform between them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uniform: Option<[Time; 2]>,
    /// Normal, drawn again where it is below zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub normal: Option<Normal<TimeKind>>,
    /// What is always the same of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fixed: Option<Time>,
    /// What comes on top of `fixed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Distribution<TimeKind>>,
    /// What it is drawn for. Absent: "packet".
    pub per: Option<PerName>,
    /// Whether a packet never overtakes the one before it; only where it is drawn per packet. Absent: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordered: Option<bool>,
}

/// What a delay is drawn for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Per")]
pub enum PerName {
    /// For each packet.
    Packet,
    /// Once for each connection.
    Connection,
}

/// A queue in front of a link.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// Which packet goes next.
    #[serde(default = "fifo")]
    pub scheduler: Scheduler,
    /// What it holds. Absent: any number.
    pub limit: Option<Limit>,
    /// What a mark does.
    #[serde(default = "drop")]
    pub marking: MarkingName,
    /// What watches it. Absent: nothing, so that a full queue drops the packet that arrives.
    #[serde(default)]
    pub aqm: Aqm,
}

/// What a queue holds: packets, bytes, or a table with both.
pub type Limit = Either<OneOf<PacketsKind, SizeKind>, LimitTable>;

/// What a queue holds; both bounds apply.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Limit")]
pub struct LimitTable {
    /// At most so many packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<Packets>,
    /// At most so many bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Size>,
}

/// A printed value to compare with.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Printed {
    /// The setting it was measured with.
    pub setting: String,
    /// The metric.
    pub metric: String,
    /// The value, in `unit`.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// Its standard deviation, in `unit`.
    pub std: Option<f64>,
    /// Where it is printed.
    pub source: String,
    /// Whether inputs of this scenario were chosen by looking at it, so that agreement proves nothing.
    #[serde(default)]
    pub calibrated: bool,
}

fn zero() -> Time {
    Time::of(0)
}

fn no_delay() -> Delay {
    Either::Plain(zero())
}

fn no_loss() -> Loss {
    Either::Plain(Share(0.0))
}

fn sample_interval() -> Span {
    Span::of(100_000_000)
}

fn one() -> u64 {
    1
}

fn once() -> Whole<1, 10_000> {
    Whole(1)
}

fn single() -> Whole<1, MOST> {
    Whole(1)
}

fn fifo() -> Scheduler {
    Scheduler::named("fifo")
}

fn drop() -> MarkingName {
    MarkingName::Drop
}
