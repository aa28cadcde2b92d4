//! Satellite gateways.

use bentpipe_gateway::{Advice, Config, FlowControl, GatewayQueue, PepBuffers, Processing, Sharing};
use bentpipe_queue::{Limit, Marking, ParamError};
use bentpipe_units::{Duration, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::aqm::{AqmSpec, MarkingSpec, SchedulerSpec};
use super::canonical::{is_zero, limit, queue, sharing};
use super::indexes::LinkIndex;
use super::terminal::{Plan, Pool, QueuesPer, ReturnCarrier, TerminalGroup, Terminals};
use super::traffic::Hop;

/// A satellite gateway with its terminals.
#[derive(Clone, Debug, Serialize)]
pub struct Gateway {
    /// Name of the gateway's node.
    pub name: String,
    /// Terminals at the far ends of its satellite links.
    #[serde(flatten)]
    pub terminals: Terminals,
    /// Users of one receive queue, AQM and transmit queue.
    #[serde(skip_serializing_if = "QueuesPer::is_carrier")]
    pub queues_per: QueuesPer,
    /// Pools of its carrier, each behind the one that it is in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<Pool>,
    /// AQM of the watched queue.
    pub aqm: AqmSpec,
    /// Mean packet length that the defaults of the AQM are derived from [bytes].
    #[serde(skip)]
    pub mean_packet: f64,
    /// Queue that the AQM watches.
    #[serde(serialize_with = "queue")]
    pub watch: GatewayQueue,
    /// Queue at whose entry the AQM marks.
    #[serde(serialize_with = "queue")]
    pub mark: GatewayQueue,
    /// Marking method.
    pub marking: MarkingSpec,
    /// Aggregation of packets into flows.
    #[serde(skip_serializing_if = "FlowKey::is_connection")]
    pub flow_key: FlowKey,
    /// Queue ahead of the PEP.
    pub receive_queue: ReceiveQueue,
    /// Performance enhancing proxy.
    pub pep: Pep,
    /// Queue behind the PEP.
    pub transmit_queue: TransmitQueue,
    /// Rate limiter into the satellite link.
    pub regulator: Regulator,
    /// Transport between gateway and terminal.
    pub spacelink: Spacelink,
    /// Rate that it advises senders over QUIC, draft-ietf-scone-protocol-07.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput_advice: Option<ThroughputAdvice>,
    /// True if its transmit queues share a carrier; else each has a regulator.
    #[serde(skip)]
    pub shares_carrier: bool,
    /// True if an acknowledgement takes the place of an older one of its connection that waits.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ack_filter: bool,
    /// The carrier that the terminals of a return direction share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carrier: Option<ReturnCarrier>,
    /// The return direction: queues at each terminal, described like a gateway whose satellite links lead back. `None` if
    /// packets enter the return links directly.
    #[serde(rename = "return", skip_serializing_if = "Option::is_none")]
    pub back: Option<Box<Self>>,
}

impl Gateway {
    /// Returns true if an AQM or the scheduler drops behind the PEP, where senders of split connections already have the
    /// acknowledgement. Marks with ECN are echoed to them.
    #[must_use]
    pub fn signals_behind_pep(&self) -> bool {
        self.acts_behind_pep() && self.marking.method.marking != Marking::Ecn
    }

    /// Returns true if packets are marked behind the PEP, which echoes the marks to senders of split connections.
    #[must_use]
    pub fn marks_behind_pep(&self) -> bool {
        self.acts_behind_pep() && self.marking.method.marking == Marking::Ecn
    }

    fn acts_behind_pep(&self) -> bool {
        let aqm = self.mark == GatewayQueue::Transmit && !self.aqm.is_none();
        !self.pep.split.is_empty() && (aqm || self.transmit_queue.scheduler.discipline.signals)
    }

    /// Returns the satellite link of its first terminals.
    #[must_use]
    pub fn link(&self) -> LinkIndex {
        self.terminals.0.first().map_or(LinkIndex(0), |group| group.link)
    }

    /// Returns true if a link is the satellite link of one of its terminals.
    #[must_use]
    pub fn has_link(&self, link: LinkIndex) -> bool {
        self.terminals.on_link(link).is_some()
    }

    /// Returns true if a route takes one of its satellite links in the direction of its queues.
    #[must_use]
    pub fn serves(&self, route: &[Hop]) -> bool {
        let is_its = |hop: &Hop| {
            self.terminals.on_link(hop.link).is_some_and(|(_, group)| group.link_forward == hop.forward)
        };
        route.iter().any(is_its)
    }

    /// Returns its directions: forward and, if it has queues, return.
    pub fn directions(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.back.as_deref())
    }

    /// Returns the number of receive queues, and of transmit queues.
    #[must_use]
    pub fn queues(&self) -> u32 {
        match self.queues_per {
            QueuesPer::Carrier => 1,
            QueuesPer::Terminal => self.terminals.count(),
            QueuesPer::Subscriber => {
                self.terminals.iter().map(|group| group.count * group.queues_each()).sum()
            }
        }
    }

    /// Returns the rate that can drain a transmit queue: the regulator's, or, if each terminal or subscriber has one, the mean
    /// of their peak rates.
    #[must_use]
    pub fn transmit_rate(&self) -> Rate {
        transmit_rate(self.regulator.rate, self.queues_per, &self.terminals)
    }

    /// Returns the service rate of the watched queue: the receive queue's if it has one, else the transmit queue's.
    #[must_use]
    pub fn watched_rate(&self) -> Rate {
        watched_rate(self.watch, self.receive_queue.rate, self.transmit_rate())
    }

    /// Returns true if the service rate of the watched queue changes over time.
    #[must_use]
    pub fn watched_rate_varies(&self) -> bool {
        watched_rate_varies(self.watch, self.regulator.follows_link, self.queues_per, self.shares_carrier)
    }

    /// Returns the capacity of the watched queue.
    #[must_use]
    pub fn watched_limit(&self) -> Limit {
        match self.watch {
            GatewayQueue::Receive => self.receive_queue.limit,
            GatewayQueue::Transmit => self.transmit_queue.limit,
        }
    }

    /// Returns the configuration from which a host builds the gateway, or its queues for a terminal of this group, or for a
    /// subscriber with this plan behind one.
    ///
    /// # Errors
    /// A contradiction between two values of the scheduler, which resolving the scenario has excluded.
    pub fn config(
        &self,
        group: Option<&TerminalGroup>,
        subscriber: Option<&Plan>,
    ) -> Result<Config, ParamError> {
        let group = group.filter(|_| self.queues() > 1 || self.carrier.is_some());
        let peak = group.map_or(self.regulator.rate, |group| group.peak(self.regulator.rate));
        let peak = subscriber.and_then(|plan| plan.pir).map_or(peak, |pir| pir.min(peak));
        let scheduler = &self.transmit_queue.scheduler;
        Ok(Config {
            name: self.name.clone(),
            watch: self.watch,
            mark: self.mark,
            marking: self.marking.method.marking,
            receive_limit: self.receive_queue.limit,
            receive_rate: self.receive_queue.rate,
            scheduler: (scheduler.discipline.build)(&scheduler.values)?,
            transmit_limit: self.transmit_queue.limit,
            rate: self.regulator.rate,
            peak: self.shares_carrier.then_some(peak),
            tick: self.regulator.tick,
            processing: Processing {
                delay: self.pep.delay,
                std: self.pep.delay_std,
                correlation: self.pep.delay_correlation,
                rate: self.pep.rate,
            },
        })
    }

    /// Returns the advice at its queues, or at those for a terminal of this group.
    #[must_use]
    pub fn advice(&self, group: &TerminalGroup) -> Option<Advice> {
        Some(match self.throughput_advice? {
            ThroughputAdvice::Rate(rate) => Advice::Rate(rate),
            ThroughputAdvice::Share => Advice::Share,
            ThroughputAdvice::Plan => Advice::Rate(group.peak(self.regulator.rate)),
        })
    }

    /// Returns the PEP's buffers for a terminal, empty.
    #[must_use]
    pub fn buffers(&self) -> PepBuffers {
        let (marking, values) = (self.marking.method.marking, &self.marking.values);
        let control = (marking == Marking::Window).then(|| FlowControl {
            decr: values.number("decr"),
            incr: values.number("incr"),
            freeze: Duration::from_secs_f64(values.number("freeze")),
        });
        PepBuffers::new(self.pep.buffer, self.pep.buffer_per).with_control(control)
    }

    /// Returns the size of the receive buffer that servers see in place of the room in the PEP's [bytes].
    #[must_use]
    pub fn receive_buffer(&self) -> Option<u64> {
        self.pep.receive_buffer.filter(|_| self.marking.method.marking != Marking::Window)
    }
}

/// Rate that a gateway advises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ThroughputAdvice {
    /// A constant rate.
    Rate(Rate),
    /// An equal share of the carrier for each user who is active.
    Share,
    /// The highest rate of the terminal's plan.
    Plan,
}

/// See [`Gateway::transmit_rate`].
pub(crate) fn transmit_rate(regulator: Rate, queues_per: QueuesPer, terminals: &Terminals) -> Rate {
    let mut peaks: Vec<(u32, Rate)> = Vec::new();
    for group in terminals.iter() {
        let peak = group.peak(regulator);
        match queues_per {
            QueuesPer::Carrier => return regulator,
            QueuesPer::Subscriber if !group.subscribers.is_empty() => {
                peaks.extend(group.subscribers.iter().map(|hosts| {
                    let own = hosts.plan.and_then(|plan| plan.pir);
                    (group.count * hosts.each, own.map_or(peak, |pir| pir.min(peak)))
                }));
            }
            QueuesPer::Terminal | QueuesPer::Subscriber => peaks.push((group.count, peak)),
        }
    }
    let sum: u128 = peaks.iter().map(|(count, peak)| u128::from(*count) * u128::from(peak.as_bps())).sum();
    let count: u128 = peaks.iter().map(|(count, _)| u128::from(*count)).sum();
    Rate::from_bps(u64::try_from(sum / count.max(1)).unwrap_or(u64::MAX))
}

/// See [`Gateway::watched_rate`].
pub(crate) fn watched_rate(watch: GatewayQueue, receive: Option<Rate>, transmit: Rate) -> Rate {
    match (watch, receive) {
        (GatewayQueue::Receive, Some(rate)) => rate,
        _ => transmit,
    }
}

/// See [`Gateway::watched_rate_varies`].
pub(crate) fn watched_rate_varies(
    watch: GatewayQueue,
    follows_link: bool,
    queues_per: QueuesPer,
    shares_carrier: bool,
) -> bool {
    // Each of several queues on a carrier has what the others leave.
    let shares = shares_carrier && queues_per != QueuesPer::Carrier;
    watch == GatewayQueue::Transmit && (follows_link || shares)
}

/// Aggregation of packets into flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FlowKey {
    /// A flow per connection.
    #[default]
    Connection,
    /// A flow per user: all packets to one receiving host.
    User,
    /// A flow per address prefix: all packets to one group of hosts.
    Prefix,
}

impl FlowKey {
    fn is_connection(&self) -> bool {
        *self == Self::Connection
    }
}

/// Queue ahead of the PEP.
#[derive(Clone, Debug, Serialize)]
pub struct ReceiveQueue {
    /// Capacity of the queue.
    #[serde(serialize_with = "limit")]
    pub limit: Limit,
    /// Service rate; `None` if packets pass at once.
    pub rate: Option<Rate>,
}

/// Performance enhancing proxy.
#[derive(Clone, Debug, Serialize)]
pub struct Pep {
    /// Protocols whose connections the PEP splits.
    pub split: Vec<Protocol>,
    /// Mean processing time between the receive queue and the transmit queue.
    pub delay: Duration,
    /// Standard deviation of the processing time; zero if it is constant.
    #[serde(skip_serializing_if = "is_zero")]
    pub delay_std: Duration,
    /// Time after which the autocorrelation of the processing time has fallen to 1/e; zero if it is constant.
    #[serde(skip_serializing_if = "is_zero")]
    pub delay_correlation: Duration,
    /// Rate at which packets are processed one by one; `None` if all at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Size of a buffer [bytes].
    pub buffer: u64,
    /// Connections that share a buffer.
    #[serde(serialize_with = "sharing")]
    pub buffer_per: Sharing,
    /// Size of the receive buffer of each connection from a server, ahead of the PEP's [bytes].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_buffer: Option<u64>,
}

/// A protocol that a PEP can split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// TCP.
    Tcp,
}

/// Queue behind the PEP.
#[derive(Clone, Debug, Serialize)]
pub struct TransmitQueue {
    /// Scheduler.
    pub scheduler: SchedulerSpec,
    /// Capacity of the queue.
    #[serde(serialize_with = "limit")]
    pub limit: Limit,
}

/// Rate limiter into the satellite link.
#[derive(Clone, Debug, Serialize)]
pub struct Regulator {
    /// Rate on the wire; if it follows the satellite link, that link's mean rate.
    pub rate: Rate,
    /// True if the rate follows the satellite link's capacity.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub follows_link: bool,
    /// Time between two bursts, each of the packets that the rate allows; `None` if packets leave one by one.
    pub tick: Option<Duration>,
}

/// Transport between gateway and terminal.
#[derive(Clone, Debug, Serialize)]
pub struct Spacelink {
    /// Length of a full packet on the wire, headers included [bytes].
    pub packet: u64,
    /// Length of the headers of a packet [bytes].
    pub header: u64,
    /// Length that is added to a packet that is not split [bytes].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datagram_header: Option<u32>,
    /// Window of the connection: bytes in flight over all streams [bytes].
    pub window: u64,
    /// Window of a stream [bytes].
    pub stream_window: u64,
    /// Number of packets per acknowledgement.
    pub ack_every: u32,
    /// Maximum delay of an acknowledgement.
    pub ack_delay: Duration,
    /// True if acknowledgements do not wait in a transmit queue.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ack_priority: bool,
}
