//! Gateways.

use std::borrow::Cow;
use std::fmt;

use bentpipe_gateway::{GatewayQueue, Sharing};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{F64Deserializer, I64Deserializer, MapAccessDeserializer, StrDeserializer};
use serde::de::{Deserializer, Error, IntoDeserializer as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::SECOND;
use super::aqm::{Aqm, Marking, Scheduler};
use super::link::{Limit, fifo};
use super::quantity::{HeaderSize, PacketSize, Period, RATE, Rate, Size, Span, Time, Whole};
use crate::model::{FlowKey, Protocol, QueuesPer};

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

/// A satellite gateway with the terminal at the far end of its satellite link.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gateway {
    /// Name of the gateway's node; its links other than the satellite lead to the internet.
    #[serde(default = "gateway")]
    pub name: String,
    /// Name of the node at the far end of the satellite link; its other links lead to the users. Default: "terminal", unless
    /// there are `terminals`.
    pub terminal: Option<String>,
    /// Groups of terminals that share the carrier, in place of `terminal`: names of [terminal.NAME] tables. If the regulator
    /// follows the satellite links, a packet takes the carrier for as long as the link to its terminal needs at the time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub terminals: Vec<String>,
    /// Users of one receive queue, AQM and transmit queue: all terminals of the carrier; the hosts behind a terminal; or
    /// each host has its own. Queues of terminals and hosts share the carrier by pools and plans.
    #[serde(default)]
    pub queues_per: QueuesPer,
    /// AQM of the watched queue. Default: none (tail drop).
    #[serde(default)]
    pub aqm: Aqm,
    /// Queue that the AQM watches.
    #[serde(default = "transmit")]
    pub watch: QueueName,
    /// Queue at whose entry the AQM marks.
    #[serde(default = "receive")]
    pub mark: QueueName,
    /// Marking method. Default: that of the AQM's preset, else "drop".
    #[serde(default)]
    pub marking: Marking,
    /// Aggregation of packets into flows, for algorithms that distinguish flows. Results always list connections.
    #[serde(default)]
    pub flow_key: FlowKey,
    /// Queue ahead of the PEP.
    #[serde(default)]
    pub receive_queue: ReceiveQueue,
    /// Performance enhancing proxy.
    #[serde(default)]
    pub pep: Pep,
    /// Queue behind the PEP.
    #[serde(default)]
    pub transmit_queue: TransmitQueue,
    /// Rate limiter into the satellite link.
    pub regulator: Regulator,
    /// Transport between gateway and terminal.
    #[serde(default)]
    pub spacelink: Spacelink,
    /// Throughput advice for senders over QUIC with `scone` (draft-ietf-scone-protocol-07): a rate, "share" for an equal share of the
    /// carrier for each user who is active, or "plan" for the highest rate of the terminal's plan. Default: no advice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput_advice: Option<ThroughputAdvice>,
    /// Return direction: what the terminals send, uploads as well as acknowledgements, passes these queues at the terminal.
    /// Default: these queues if any traffic is an upload; else packets enter the return link directly.
    #[serde(rename = "return", skip_serializing_if = "Option::is_none")]
    pub back: Option<Return>,
}

/// Queues of each terminal in front of its return link.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Return {
    /// AQM of the watched queue of each terminal. Default: none (tail drop).
    pub aqm: Aqm,
    /// Queue that the AQM watches.
    pub watch: QueueName,
    /// Queue at whose entry the AQM marks.
    pub mark: QueueName,
    /// Marking method. Default: that of the AQM's preset, else "drop".
    pub marking: Marking,
    /// Aggregation of packets into flows, for algorithms that distinguish flows.
    pub flow_key: FlowKey,
    /// Queue ahead of the terminal's PEP.
    pub receive_queue: ReceiveQueue,
    /// The terminal's PEP. Default: as the gateway's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pep: Option<Pep>,
    /// Queue behind the terminal's PEP, in front of the return link.
    pub transmit_queue: TransmitQueue,
    /// ACK filtering (RFC 3449, section 5.2.1): an acknowledgement without data takes the place of an older one of its TCP
    /// connection that waits, unless either has SACK blocks. Those of split connections do not pass these queues.
    pub ack_filter: bool,
    /// Rate limiter into the return link. Default: the rate of the terminal's return link.
    pub regulator: Regulator,
    /// Return carrier that the terminals share by demand assignment. Default: each terminal has a separate return link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carrier: Option<ReturnCarrier>,
}

/// Return carrier that terminals share by demand assignment (DAMA), superframe by superframe.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReturnCarrier {
    /// Length of a superframe. At its beginning each terminal sends a request.
    #[serde(default = "Period::just::<{ SECOND / 20 }>")]
    pub superframe: Period,
    /// Kind of the requests: "rbdc", a rate, or "vbdc", a volume.
    #[serde(default)]
    pub request: RequestName,
    /// Time from a request to the superframe that it is granted in, rounded up to superframes. Default: the round-trip delay of
    /// the longest satellite link.
    pub round_trip: Option<Time>,
}

/// Kind of the requests for a return carrier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "CapacityRequest")]
pub enum RequestName {
    /// A rate (RBDC): that of the arrivals of the last superframe, and the backlog over a round trip.
    #[default]
    Rbdc,
    /// A volume (VBDC): the backlog that was not requested yet.
    Vbdc,
}

impl Default for Return {
    fn default() -> Self {
        Self {
            aqm: Aqm::default(),
            watch: transmit(),
            mark: receive(),
            marking: Marking::default(),
            flow_key: FlowKey::default(),
            receive_queue: ReceiveQueue::default(),
            pep: None,
            transmit_queue: TransmitQueue::default(),
            ack_filter: false,
            regulator: Regulator::default(),
            carrier: None,
        }
    }
}

/// One of a gateway's queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "GatewayQueue")]
pub enum QueueName {
    /// Queue ahead of the PEP.
    Receive,
    /// Queue behind the PEP.
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

/// Queue ahead of the PEP.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceiveQueue {
    /// Capacity of the queue; without `rate` it has no effect, because no packet waits. Default: unlimited.
    pub limit: Option<Limit>,
    /// Service rate. Default: packets pass at once.
    pub rate: Option<Rate>,
}

/// Performance enhancing proxy.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Pep {
    /// Protocols whose connections the PEP splits.
    #[serde(deserialize_with = "protocols")]
    pub split: Vec<Protocol>,
    /// Processing time between the receive queue and the transmit queue; with `delay_std`, its mean.
    pub delay: Time,
    /// Standard deviation of the processing time, which then varies over time: a lognormal process, in which packets keep their
    /// order. At most ten times `delay`. Default: a constant processing time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_std: Option<Time>,
    /// Time after which the autocorrelation of a processing time that varies has fallen to 1/e. Default: 1 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_correlation: Option<Span>,
    /// Rate at which the PEP processes packets one by one, before the processing time: its backlog delays them. Default: all at
    /// once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Size of a buffer, per user or connection.
    pub buffer: Size,
    /// Connections that share a buffer.
    pub buffer_per: BufferPer,
    /// Size of the receive buffer that each connection from a server has ahead of the PEP's, unless marks reduce windows
    /// (`marking = "window"`). Default: none in the simulator, where servers see the room in the PEP's buffer; in the live gateway
    /// `tcp.receive_buffer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_buffer: Option<Size>,
}

/// Reads the protocols to split; the error says how to split none.
fn protocols<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Protocol>, D::Error> {
    struct Reader;
    impl<'de> Visitor<'de> for Reader {
        type Value = Vec<Protocol>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array: [\"tcp\"], or [] to split no connections")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
            let mut protocols = Vec::new();
            while let Some(protocol) = items.next_element()? {
                protocols.push(protocol);
            }
            Ok(protocols)
        }
    }
    from.deserialize_any(Reader)
}

impl Default for Pep {
    fn default() -> Self {
        Self {
            split: vec![Protocol::Tcp],
            delay: Time::of(0),
            delay_std: None,
            delay_correlation: None,
            rate: None,
            buffer: Size::of(625_000),
            buffer_per: BufferPer::User,
            receive_buffer: None,
        }
    }
}

/// Connections that share a PEP buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BufferPer {
    /// A buffer per user: all connections of a receiving host share it.
    User,
    /// A buffer per connection.
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

/// Queue behind the PEP.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TransmitQueue {
    /// Scheduler.
    pub scheduler: Scheduler,
    /// Capacity of the queue. Default: unlimited.
    pub limit: Option<Limit>,
}

impl Default for TransmitQueue {
    fn default() -> Self {
        Self { scheduler: fifo(), limit: None }
    }
}

impl Default for Regulator {
    fn default() -> Self {
        Self { rate: RateOrLink::Link, tick: None }
    }
}

/// Rate limiter into the satellite link.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Regulator {
    /// Rate of the regulator, on the wire; "link" to follow the satellite link's rate or capacity.
    pub rate: RateOrLink,
    /// Time between two bursts, each of the packets that the rate allows. Default: packets leave one by one.
    pub tick: Option<Period>,
}

/// A rate, or that of the satellite link.
#[derive(Clone, Copy, Debug)]
pub enum RateOrLink {
    /// Rate or capacity of the satellite link.
    Link,
    /// A constant rate.
    Rate(Rate),
}

/// Reads a rate, or one of these words.
struct RateOrWord<T: 'static> {
    words: &'static [(&'static str, T)],
    of_rate: fn(Rate) -> T,
}

impl<T: Copy> Visitor<'_> for RateOrWord<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&RATE.allowed())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        if let Some((_, value)) = self.words.iter().find(|(word, _)| *word == text) {
            return Ok(*value);
        }
        let from: StrDeserializer<'_, E> = text.into_deserializer();
        Rate::deserialize(from).map(self.of_rate)
    }

    fn visit_i64<E: Error>(self, x: i64) -> Result<T, E> {
        let from: I64Deserializer<E> = x.into_deserializer();
        Rate::deserialize(from).map(self.of_rate)
    }

    fn visit_f64<E: Error>(self, x: f64) -> Result<T, E> {
        let from: F64Deserializer<E> = x.into_deserializer();
        Rate::deserialize(from).map(self.of_rate)
    }
}

impl<'de> Deserialize<'de> for RateOrLink {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(RateOrWord { words: &[("link", Self::Link)], of_rate: Self::Rate })
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

/// A rate that a gateway advises.
#[derive(Clone, Copy, Debug)]
pub enum ThroughputAdvice {
    /// A constant rate.
    Rate(Rate),
    /// An equal share of the carrier.
    Share,
    /// The highest rate of the terminal's plan.
    Plan,
}

impl<'de> Deserialize<'de> for ThroughputAdvice {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let words = &[("share", Self::Share), ("plan", Self::Plan)];
        from.deserialize_any(RateOrWord { words, of_rate: Self::Rate })
    }
}

impl Serialize for ThroughputAdvice {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Rate(rate) => rate.serialize(to),
            Self::Share => to.serialize_str("share"),
            Self::Plan => to.serialize_str("plan"),
        }
    }
}

impl JsonSchema for ThroughputAdvice {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ThroughputAdvice".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [Rate::text_schema(), { "enum": ["share", "plan"] }], "examples": ["share"] })
    }
}

/// Transport between gateway and terminal.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Spacelink {
    /// Length of a full packet on the wire, headers included.
    pub packet: PacketSize,
    /// Length of the headers of a packet.
    pub header: HeaderSize,
    /// Length that the spacelink adds to a packet that is not split, in the queues and on the satellite link. Default: none in
    /// the simulator; in the live gateway that of its datagrams.
    pub datagram_header: Option<HeaderSize>,
    /// Window of the connection: bytes in flight over all streams. Default: twice the bandwidth-delay product of the
    /// satellite link, at least 4 MB.
    pub window: Option<Size>,
    /// Window of a stream: bytes in flight. Default: the bandwidth-delay product of the satellite link, at least 1 MB.
    pub stream_window: Option<Size>,
    /// Number of packets per acknowledgement.
    pub ack_every: Whole<1, 1_000_000>,
    /// Maximum delay of an acknowledgement.
    pub ack_delay: Time,
    /// True if acknowledgements do not wait in a transmit queue: they are sent at once, and the regulator makes up for their
    /// bytes. Always so in the live gateway.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ack_priority: bool,
}

impl Default for Spacelink {
    fn default() -> Self {
        Self {
            packet: PacketSize::of(1491),
            header: HeaderSize::of(31),
            datagram_header: None,
            window: None,
            stream_window: None,
            ack_every: Whole(32),
            ack_delay: Time::of(50_000_000),
            ack_priority: false,
        }
    }
}

fn gateway() -> String {
    "gateway".to_owned()
}

fn transmit() -> QueueName {
    QueueName::Transmit
}

fn receive() -> QueueName {
    QueueName::Receive
}
