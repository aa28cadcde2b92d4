//! Gateways.

use std::borrow::Cow;
use std::fmt;

use bentpipe_gateway::{GatewayQueue, Sharing};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{F64Deserializer, I64Deserializer, MapAccessDeserializer, StrDeserializer};
use serde::de::{Deserializer, Error, IntoDeserializer as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::aqm::{Aqm, Marking, Scheduler};
use super::link::{Limit, fifo};
use super::quantity::{HeaderSize, PacketSize, RATE, Rate, Size, Span, Time, Whole};
use crate::model::{FlowKey, Protocol};

/// One gateway (a table) or several (an array of tables).
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Gateways(pub Vec<Gateway>);

impl<'de> Deserialize<'de> for Gateways {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Vec<Gateway>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table, or an array of tables ([[gateway]]) with a name each")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                Ok(vec![Gateway::deserialize(MapAccessDeserializer::new(map))?])
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut gateways = Vec::new();
                while let Some(gateway) = items.next_element()? {
                    gateways.push(gateway);
                }
                Ok(gateways)
            }
        }
        from.deserialize_any(Reader).map(Self)
    }
}

impl JsonSchema for Gateways {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Gateways".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<Gateway>();
        json_schema!({ "anyOf": [one, { "type": "array", "items": one }] })
    }
}

/// A satellite gateway, with the terminal at the far end of its satellite.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gateway {
    /// Its name as a node; its links lead to the internet, but for the satellite.
    #[serde(default = "gateway")]
    pub name: String,
    /// The name of the node at the far end of the satellite; its links lead to the users, but for the satellite.
    #[serde(default = "terminal")]
    pub terminal: String,
    /// What watches one of its queues. Absent: nothing, so that a full queue drops the packet that arrives.
    #[serde(default)]
    pub aqm: Aqm,
    /// Whose queue the AQM watches.
    #[serde(default = "transmit")]
    pub watch: QueueName,
    /// Where the AQM's verdict is applied.
    #[serde(default = "receive")]
    pub mark: QueueName,
    /// What a mark does. Absent: what belongs to the AQM's preset, else "drop".
    #[serde(default)]
    pub marking: Marking,
    /// What a flow is for algorithms that keep flows apart; results have connections in any case.
    #[serde(default)]
    pub flow_key: FlowKey,
    /// The queue ahead of the PEP.
    #[serde(default)]
    pub receive_queue: ReceiveQueue,
    /// The performance enhancing proxy.
    #[serde(default)]
    pub pep: Pep,
    /// The queue behind the PEP.
    #[serde(default)]
    pub transmit_queue: TransmitQueue,
    /// What limits the rate into the satellite.
    pub regulator: Regulator,
    /// The transport between gateway and terminal.
    #[serde(default)]
    pub spacelink: Spacelink,
}

/// A place in a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "GatewayQueue")]
pub enum QueueName {
    /// The queue ahead of the PEP.
    Receive,
    /// The queue behind the PEP.
    Transmit,
}

impl From<QueueName> for GatewayQueue {
    fn from(name: QueueName) -> Self {
        match name {
            QueueName::Receive => Self::Receive,
            QueueName::Transmit => Self::Transmit,
        }
    }
}

/// The queue ahead of the PEP.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceiveQueue {
    /// What it holds. Absent: any number.
    pub limit: Option<Limit>,
    /// How fast it is worked off. Absent: at once.
    pub rate: Option<Rate>,
}

/// The performance enhancing proxy.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Pep {
    /// The protocols whose connections it splits.
    pub split: Vec<Protocol>,
    /// From the receive queue to the transmit queue.
    pub delay: Time,
    /// What it buffers for each user or connection.
    pub buffer: Size,
    /// Whose the buffer is.
    pub buffer_per: BufferPer,
}

impl Default for Pep {
    fn default() -> Self {
        Self {
            split: vec![Protocol::Tcp],
            delay: Time::of(0),
            buffer: Size::of(625_000),
            buffer_per: BufferPer::User,
        }
    }
}

/// Whose a PEP buffer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BufferPer {
    /// A user's: all of the connections of one receiving host share it.
    User,
    /// A connection's own.
    Connection,
}

impl From<BufferPer> for Sharing {
    fn from(per: BufferPer) -> Self {
        match per {
            BufferPer::User => Self::PerUser,
            BufferPer::Connection => Self::PerConnection,
        }
    }
}

/// The queue behind the PEP.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TransmitQueue {
    /// Which packet goes next.
    pub scheduler: Scheduler,
    /// What it holds. Absent: any number.
    pub limit: Option<Limit>,
}

impl Default for TransmitQueue {
    fn default() -> Self {
        Self { scheduler: fifo(), limit: None }
    }
}

/// What limits the rate into the satellite.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Regulator {
    /// The rate, on the wire; "link": the satellite's, and its capacity where that changes.
    pub rate: RateOrLink,
    /// How often packets are let go, each time as many as the rate allows. Absent: each packet in its time.
    pub tick: Option<Span>,
}

/// A rate, or that of the satellite.
#[derive(Clone, Copy, Debug)]
pub enum RateOrLink {
    /// As the satellite's.
    Link,
    /// A rate.
    Rate(Rate),
}

impl<'de> Deserialize<'de> for RateOrLink {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = RateOrLink;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&RATE.allowed())
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<RateOrLink, E> {
                if text == "link" {
                    return Ok(RateOrLink::Link);
                }
                let from: StrDeserializer<'_, E> = text.into_deserializer();
                Rate::deserialize(from).map(RateOrLink::Rate)
            }

            fn visit_i64<E: Error>(self, x: i64) -> Result<RateOrLink, E> {
                let from: I64Deserializer<E> = x.into_deserializer();
                Rate::deserialize(from).map(RateOrLink::Rate)
            }

            fn visit_f64<E: Error>(self, x: f64) -> Result<RateOrLink, E> {
                let from: F64Deserializer<E> = x.into_deserializer();
                Rate::deserialize(from).map(RateOrLink::Rate)
            }
        }
        from.deserialize_any(Reader)
    }
}

impl Serialize for RateOrLink {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Link => to.serialize_str("link"),
            Self::Rate(rate) => rate.serialize(to),
        }
    }
}

impl JsonSchema for RateOrLink {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "RateOrLink".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [Rate::text_schema(), { "const": "link" }], "examples": [RATE.example] })
    }
}

/// The transport between gateway and terminal.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Spacelink {
    /// Length of a full packet on the wire, headers included.
    pub packet: PacketSize,
    /// Length of its headers.
    pub header: HeaderSize,
    /// Bytes in flight, over all streams.
    pub window: Size,
    /// Bytes in flight of one stream.
    pub stream_window: Size,
    /// Packets for which one acknowledgement is sent.
    pub ack_every: Whole<1, 1_000_000>,
    /// How long an acknowledgement may wait.
    pub ack_delay: Time,
}

impl Default for Spacelink {
    fn default() -> Self {
        Self {
            packet: PacketSize::of(1491),
            header: HeaderSize::of(31),
            window: Size::of(4_000_000),
            stream_window: Size::of(1_000_000),
            ack_every: Whole(32),
            ack_delay: Time::of(50_000_000),
        }
    }
}

fn gateway() -> String {
    "gateway".to_owned()
}

fn terminal() -> String {
    "terminal".to_owned()
}

fn transmit() -> QueueName {
    QueueName::Transmit
}

fn receive() -> QueueName {
    QueueName::Receive
}
