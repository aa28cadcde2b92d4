//! A satellite gateway, once its keys are understood.

use bentpipe_gateway::{Config, FlowControl, GatewayQueue, Sharing};
use bentpipe_queue::descriptor::MarkingMethod;
use bentpipe_queue::{Limit, Marking, ParamError, Values};
use bentpipe_units::{Duration, Rate};
use serde::{Serialize, Serializer};

use crate::canonical::{bps, bps_of, is_off, limit, ns, ns_of};
pub use crate::file::FlowKey;
use crate::model::{AqmSpec, SchedulerSpec};

/// A satellite gateway, with the terminal at the far end of its satellite.
#[derive(Clone, Debug, Serialize)]
pub struct Gateway {
    /// Its name as a node.
    pub name: String,
    /// The terminal's name as a node.
    pub terminal: String,
    /// The satellite: the one link that joins the two (an index).
    pub link: usize,
    /// Whether the satellite's way forward leads from the gateway to the terminal.
    pub link_forward: bool,
    /// What watches one of its queues.
    pub aqm: AqmSpec,
    /// Mean length of a packet that the AQM's defaults were worked out with [bytes].
    #[serde(skip)]
    pub mean_packet: f64,
    /// Whose queue the AQM watches.
    #[serde(serialize_with = "queue_name")]
    pub watch: GatewayQueue,
    /// Where its verdict is applied.
    #[serde(serialize_with = "queue_name")]
    pub mark: GatewayQueue,
    /// What a mark does.
    pub marking: MarkingSpec,
    /// What a flow is for its queues.
    #[serde(skip_serializing_if = "is_connection")]
    pub flow_key: FlowKey,
    /// The queue ahead of the PEP.
    pub receive_queue: ReceiveQueue,
    /// The performance enhancing proxy.
    pub pep: Pep,
    /// The queue behind the PEP.
    pub transmit_queue: TransmitQueue,
    /// What limits the rate into the satellite.
    pub regulator: Regulator,
    /// The transport between gateway and terminal.
    pub spacelink: Spacelink,
}

impl Gateway {
    /// Whether congestion is signalled behind the PEP, with packets whose senders have had their acknowledgements: by an
    /// AQM that marks there, or by the scheduler there.
    #[must_use]
    pub fn signals_behind_pep(&self) -> bool {
        let aqm = self.mark == GatewayQueue::Transmit && !self.aqm.is_none();
        !self.pep.split.is_empty() && (aqm || self.transmit_queue.scheduler.discipline.signals)
    }

    /// Capacity of the link that drains the queue that the AQM watches: the receive queue's where it watches that
    /// and it has a rate, else the regulator's.
    #[must_use]
    pub fn watched_rate(&self) -> Rate {
        watched_rate(self.watch, self.receive_queue.rate, self.regulator.rate)
    }

    /// The configuration of the gateway itself, for whichever host runs it.
    ///
    /// # Errors
    /// A contradiction between two of the scheduler's values; resolving the scenario has excluded it.
    pub fn config(&self) -> Result<Config, ParamError> {
        let scheduler = &self.transmit_queue.scheduler;
        let marking = &self.marking;
        Ok(Config {
            name: self.name.clone(),
            watch: self.watch,
            mark: self.mark,
            marking: marking.method.marking,
            receive_limit: self.receive_queue.limit,
            receive_rate: self.receive_queue.rate,
            scheduler: (scheduler.discipline.build)(&scheduler.values)?,
            transmit_limit: self.transmit_queue.limit,
            rate: self.regulator.rate,
            tick: self.regulator.tick,
            processing: self.pep.delay,
            buffer: self.pep.buffer,
            sharing: self.pep.buffer_per,
            flow_control: (marking.method.marking == Marking::Window).then(|| FlowControl {
                decr: marking.values.number("decr"),
                incr: marking.values.number("incr"),
                freeze: Duration::from_secs_f64(marking.values.number("freeze")),
            }),
        })
    }

    /// What the queue that the AQM watches may hold.
    #[must_use]
    pub fn watched_limit(&self) -> Limit {
        match self.watch {
            GatewayQueue::Receive => self.receive_queue.limit,
            GatewayQueue::Transmit => self.transmit_queue.limit,
        }
    }
}

/// See [`Gateway::watched_rate`].
pub(crate) fn watched_rate(watch: GatewayQueue, receive: Option<Rate>, regulator: Rate) -> Rate {
    match (watch, receive) {
        (GatewayQueue::Receive, Some(rate)) => rate,
        _ => regulator,
    }
}

/// A marking method with all of its parameters.
#[derive(Clone, Debug)]
pub struct MarkingSpec {
    /// The method.
    pub method: &'static MarkingMethod,
    /// Its parameters, defaults filled in.
    pub values: Values,
}

fn queue_name<S: Serializer>(queue: &GatewayQueue, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(match queue {
        GatewayQueue::Receive => "receive",
        GatewayQueue::Transmit => "transmit",
    })
}

fn sharing<S: Serializer>(sharing: &Sharing, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(match sharing {
        Sharing::PerUser => "user",
        Sharing::PerConnection => "connection",
    })
}

fn is_connection(key: &FlowKey) -> bool {
    *key == FlowKey::Connection
}

/// The queue ahead of the PEP.
#[derive(Clone, Debug, Serialize)]
pub struct ReceiveQueue {
    /// What it holds.
    #[serde(serialize_with = "limit")]
    pub limit: Limit,
    /// How fast it is worked off; none: at once.
    #[serde(serialize_with = "bps_of")]
    pub rate: Option<Rate>,
}

/// The performance enhancing proxy.
#[derive(Clone, Debug, Serialize)]
pub struct Pep {
    /// The protocols whose connections it splits.
    pub split: Vec<Protocol>,
    /// From the receive queue to the transmit queue.
    #[serde(serialize_with = "ns")]
    pub delay: Duration,
    /// What it buffers for each user or connection [bytes].
    pub buffer: u64,
    /// Whose the buffer is.
    #[serde(serialize_with = "sharing")]
    pub buffer_per: Sharing,
}

/// A protocol that a PEP can split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// TCP.
    Tcp,
}

/// The queue behind the PEP.
#[derive(Clone, Debug, Serialize)]
pub struct TransmitQueue {
    /// Which packet goes next.
    pub scheduler: SchedulerSpec,
    /// What it holds.
    #[serde(serialize_with = "limit")]
    pub limit: Limit,
}

/// What limits the rate into the satellite.
#[derive(Clone, Debug, Serialize)]
pub struct Regulator {
    /// The rate, on the wire; where it follows the satellite, what that has on average.
    #[serde(serialize_with = "bps")]
    pub rate: Rate,
    /// Whether it follows the satellite's capacity.
    #[serde(skip_serializing_if = "is_off")]
    pub follows_link: bool,
    /// How often packets are let go, each time as many as the rate allows; none: each in its time.
    #[serde(serialize_with = "ns_of")]
    pub tick: Option<Duration>,
}

/// The transport between gateway and terminal.
#[derive(Clone, Debug, Serialize)]
pub struct Spacelink {
    /// Length of a full packet on the wire, headers included [bytes].
    pub packet: u64,
    /// Length of its headers [bytes].
    pub header: u64,
    /// Bytes in flight, over all streams.
    pub window: u64,
    /// Bytes in flight of one stream.
    pub stream_window: u64,
    /// Packets for which one acknowledgement is sent.
    pub ack_every: u32,
    /// How long an acknowledgement may wait.
    #[serde(serialize_with = "ns")]
    pub ack_delay: Duration,
}
