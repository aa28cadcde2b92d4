//! Links.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Error, Unexpected, Visitor};
use serde::{Deserialize, Serialize};

use super::aqm::{Aqm, Scheduler};
use super::channel::{Access, Capacity, Demand, Handover, Loss};
use super::forms::{Distribution, Either, Normal, Share};
use super::quantity::{
    Kind, PACKETS, Packets, PacketsKind, Quantity, Rate, SIZE, Size, SizeKind, Span, SpanKind, TIME, Time,
    TimeKind,
};

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
    #[serde(default)]
    pub marking: MarkingName,
    /// AQM. Default: none (tail drop).
    #[serde(default)]
    pub aqm: Aqm,
}

/// Effect of a mark at a link's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Marking")]
pub enum MarkingName {
    /// Drops the packet.
    #[default]
    Drop,
    /// Sets CE in the packet's ECN field; drops a packet whose transport does not support ECN.
    Ecn,
}

/// Capacity of a queue: packets, bytes, a time at the nominal rate of its link, or a table with several.
pub type Limit = Either<Amount, LimitTable>;

/// Packets, bytes, or a time at the nominal rate of the link; the unit tells.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub enum Amount {
    Packets(Packets),
    Bytes(Size),
    Time(Span),
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Amount;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}, {}, or {}", PACKETS.allowed(), SIZE.allowed(), TIME.allowed())
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Amount, E> {
                fn within<K: Kind, E: Error>(text: &str) -> Option<Result<Quantity<K>, E>> {
                    K::DIMENSION.read(text)?;
                    let number = K::DIMENSION.read_within(text, K::MIN, K::MAX);
                    let wrong = |allowed: String| E::invalid_value(Unexpected::Str(text), &allowed.as_str());
                    Some(number.map(Quantity::of).map_err(wrong))
                }
                let packets = || within::<PacketsKind, E>(text).map(|n| n.map(Amount::Packets));
                let bytes = || within::<SizeKind, E>(text).map(|n| n.map(Amount::Bytes));
                let time = || within::<SpanKind, E>(text).map(|n| n.map(Amount::Time));
                let found = packets().or_else(bytes).or_else(time);
                found.unwrap_or_else(|| Err(E::invalid_value(Unexpected::Str(text), &self)))
            }

            fn visit_i64<E: Error>(self, x: i64) -> Result<Amount, E> {
                Err(E::invalid_value(Unexpected::Other(&format!("{x}, without a unit")), &self))
            }

            fn visit_f64<E: Error>(self, x: f64) -> Result<Amount, E> {
                Err(E::invalid_value(Unexpected::Other(&format!("{x}, without a unit")), &self))
            }
        }
        from.deserialize_any(Reader)
    }
}

impl JsonSchema for Amount {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Amount".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let units = [Packets::text_schema(), Size::text_schema(), Span::text_schema()];
        json_schema!({ "anyOf": units })
    }
}

/// Capacity of a queue; all bounds apply.
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
    /// Maximum number of bytes, as the time that the link needs for them at its nominal rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Span>,
}

fn no_delay() -> Delay {
    Either::Plain(Time::of(0))
}

fn no_loss() -> Loss {
    Either::Plain(Share(0.0))
}

pub fn fifo() -> Scheduler {
    Scheduler::named("fifo")
}
