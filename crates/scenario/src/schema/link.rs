//! Links.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::aqm::{Aqm, Scheduler};
use super::channel::{Access, Capacity, Demand, Handover, Loss};
use super::forms::{Distribution, Either, Normal, OneOf, Share};
use super::quantity::{Packets, PacketsKind, Rate, Size, SizeKind, Time, TimeKind};

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

/// What a mark does in front of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Marking")]
pub enum MarkingName {
    /// The packet is discarded.
    Drop,
    /// The packet's ECN field says so; one whose transport would not understand is discarded.
    Ecn,
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

pub fn zero() -> Time {
    Time::of(0)
}

fn no_delay() -> Delay {
    Either::Plain(zero())
}

fn no_loss() -> Loss {
    Either::Plain(Share(0.0))
}

pub fn fifo() -> Scheduler {
    Scheduler::named("fifo")
}

fn drop() -> MarkingName {
    MarkingName::Drop
}
