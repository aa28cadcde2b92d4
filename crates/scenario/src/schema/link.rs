//! Links.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::aqm::{Aqm, Scheduler};
use super::channel::{Access, Capacity, Demand, Handover, Loss};
use super::forms::{Distribution, Either, Normal, OneOf, Share};
use super::quantity::{Packets, PacketsKind, Rate, Size, SizeKind, Time, TimeKind};

/// A link, or one per member if one end is a group of hosts.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Nodes at the two ends; the forward direction leads from the first to the second.
    pub between: [String; 2],
    /// Transmission rate. Default: transmission takes no time.
    pub rate: Option<Rate>,
    /// Variable capacity, in place of a rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
    /// Demand assignment of the capacity. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demand: Option<Demand>,
    /// Link layer with contention, framing and retransmission; its kind has a default rate. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// Propagation delay.
    #[serde(default = "no_delay")]
    pub delay: Delay,
    /// Periodic handover between satellites. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handover: Option<Handover>,
    /// Loss: the probability of independent losses behind the queue, or a table with a loss model.
    #[serde(default = "no_loss")]
    pub loss: Loss,
    /// Queue in front of the link. Default: an unlimited FIFO queue.
    pub queue: Option<Queue>,
    /// Differences of the reverse direction, from the second node to the first. The queue is not inherited.
    #[serde(default)]
    pub reverse: Reverse,
}

/// Differences of a link's reverse direction.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reverse {
    /// Transmission rate. Default: that of the forward direction.
    pub rate: Option<Rate>,
    /// Variable capacity, in place of a rate. Default: that of the forward direction unless there is a rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
    /// Demand assignment of the capacity. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demand: Option<Demand>,
    /// Link layer with contention, framing and retransmission. Default: that of the forward direction unless there is a
    /// capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// Propagation delay. Default: that of the forward direction; if it is drawn per connection, the same draw.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Delay>,
    /// Loss. Default: that of the forward direction.
    pub loss: Option<Loss>,
    /// Queue in front of the link. Default: an unlimited FIFO queue.
    pub queue: Option<Queue>,
}

/// A propagation delay.
pub type Delay = Either<Time, DelayTable>;

/// A random propagation delay: `uniform`, `normal`, or `fixed` plus `jitter`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Delay")]
pub struct DelayTable {
    /// Bounds of a uniform distribution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uniform: Option<[Time; 2]>,
    /// Normal distribution, redrawn while negative.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub normal: Option<Normal<TimeKind>>,
    /// Constant part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fixed: Option<Time>,
    /// Random part, added to `fixed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Distribution<TimeKind>>,
    /// Scope of a draw. Default: "packet".
    pub per: Option<PerName>,
    /// True if no packet overtakes an earlier one; only with per = "packet". Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordered: Option<bool>,
}

/// Scope of a delay draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Per")]
pub enum PerName {
    /// Once per packet.
    Packet,
    /// Once per connection.
    Connection,
}

/// A queue in front of a link.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// Scheduler.
    #[serde(default = "fifo")]
    pub scheduler: Scheduler,
    /// Capacity of the queue. Default: unlimited.
    pub limit: Option<Limit>,
    /// Effect of a mark.
    #[serde(default = "drop")]
    pub marking: MarkingName,
    /// AQM. Default: none (tail drop).
    #[serde(default)]
    pub aqm: Aqm,
}

/// Effect of a mark at a link's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Marking")]
pub enum MarkingName {
    /// Drops the packet.
    Drop,
    /// Sets CE in the packet's ECN field; drops a packet whose transport does not support ECN.
    Ecn,
}

/// Capacity of a queue: packets, bytes, or a table with both.
pub type Limit = Either<OneOf<PacketsKind, SizeKind>, LimitTable>;

/// Capacity of a queue; both bounds apply.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Limit")]
pub struct LimitTable {
    /// Maximum number of packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<Packets>,
    /// Maximum number of bytes.
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
