//! What a scenario means once every default is filled in and every name is looked up.
//!
//! Everything here has been checked: rates are above zero, names exist, routes are connected. Names are
//! indexes into the scenario's own lists. The structs serialize to what determines a run's result, and nothing
//! else, so that equal text means equal results (see [`Scenario::canonical_json`]).
//!
//! [`Scenario::canonical_json`]: crate::Scenario::canonical_json

use bentpipe_queue::aqm::threshold::{Threshold, Thresholds};
use bentpipe_queue::descriptor::{Algorithm, SchedulerAlgorithm};
use bentpipe_queue::{Aqm, Limit, Marking, ParamError, Values};
use bentpipe_units::{Duration, Rate, Rng};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::canonical::{
    TimeLaw, algorithm, is_nothing, is_off, limit, marking, ns, ns_of, thresholds, values,
};
use crate::canonical::{bps, bps_of};
use crate::channel::{Access, Capacity, Demand, Handover, Loss};
use crate::distribution::Distribution;
pub use crate::file::{Congestion, Ecn};
pub use crate::gateway::{
    FlowKey, Gateway, MarkingSpec, Pep, Protocol, ReceiveQueue, Regulator, Spacelink, TransmitQueue,
};
pub use crate::traffic::{Bulk, ConnectionPer, Files, Hop, Pages, Ramp, Traffic, TrafficKind};
use crate::tree::Node;

/// How long to run, how often to look and with which random numbers.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Simulated time before anything is measured.
    #[serde(serialize_with = "ns")]
    pub warmup: Duration,
    /// Simulated time that is measured, after the warm-up.
    #[serde(serialize_with = "ns")]
    pub duration: Duration,
    /// Time between two samples of a time series.
    #[serde(serialize_with = "ns")]
    pub sample_interval: Duration,
    /// The first run's seed; the i-th run after it has `seed + i`.
    pub seed: u64,
    /// Number of runs.
    #[serde(skip)]
    pub runs: u32,
    /// The settings that a comparison takes where none are named.
    #[serde(skip)]
    pub settings: Vec<String>,
}

/// A group of hosts.
#[derive(Clone, Debug, Serialize)]
pub struct Host {
    /// The group's name.
    pub name: String,
    /// How many hosts are in it.
    pub count: u32,
}

/// A link, or one link for each member where one of its ends is a group of hosts.
#[derive(Clone, Debug, Serialize)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// The nodes that it joins.
    pub between: (String, String),
    /// From the first node to the second.
    pub forward: Direction,
    /// From the second node to the first.
    pub reverse: Direction,
    /// Whether the delay drawn for a connection on the way forward is also its delay on the way back. Only
    /// where the delay is drawn per connection and `reverse` gives none of its own.
    pub shared_delay: bool,
    /// A satellite that is changed for another at regular times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handover: Option<Handover>,
}

/// One direction of a link.
#[derive(Clone, Debug, Serialize)]
pub struct Direction {
    /// How fast packets are sent; none: at once.
    #[serde(serialize_with = "bps_of")]
    pub rate: Option<Rate>,
    /// A capacity that changes, instead of a rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
    /// Capacity that has to be asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demand: Option<Demand>,
    /// A link layer that contends, schedules and repeats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// How long they travel.
    pub delay: Delay,
    /// What is lost.
    pub loss: Loss,
    /// The queue in front; none: first in, first out, without limit.
    pub queue: Option<QueueSpec>,
}

impl Direction {
    /// How fast packets are sent on average: the rate, or what the capacity comes to.
    #[must_use]
    pub fn mean_rate(&self) -> Option<Rate> {
        self.capacity.as_ref().map(Capacity::mean).or(self.rate)
    }
}

/// A propagation delay.
#[derive(Clone, Debug)]
pub struct Delay {
    /// What is always the same of it.
    pub fixed: Duration,
    /// What comes on top.
    pub jitter: Distribution<Duration>,
    /// What it is drawn for.
    pub per: Per,
}

impl Delay {
    /// The delay itself, where it is always the same.
    #[must_use]
    pub fn fixed(&self) -> Option<Duration> {
        match self.jitter {
            Distribution::Fixed(jitter) => Some(self.fixed + jitter),
            Distribution::Uniform(low, high) if low == high => Some(self.fixed + low),
            _ => None,
        }
    }

    /// One draw. A fixed delay takes nothing from the stream.
    #[must_use]
    pub fn draw(&self, rng: &mut Rng) -> Duration {
        self.fixed().unwrap_or_else(|| self.fixed + self.jitter.draw(rng))
    }

    /// As long as it is, or mostly: up to four standard deviations or means above where there is no bound.
    #[must_use]
    pub fn longest(&self) -> Duration {
        self.fixed
            + match self.jitter {
                Distribution::Fixed(x) | Distribution::Uniform(_, x) => x,
                Distribution::Normal { mean, std } => mean + std.times(4),
                _ => self.jitter.mean().times(4),
            }
    }

    /// Whether it is no delay at all.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.fixed().is_some_and(Duration::is_zero)
    }
}

impl Serialize for Delay {
    /// By its bounds, where it is fixed or uniform.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(3))?;
        match self.jitter {
            Distribution::Fixed(x) => {
                map.serialize_entry("low", &(self.fixed + x).as_nanos())?;
                map.serialize_entry("high", &(self.fixed + x).as_nanos())?;
            }
            Distribution::Uniform(low, high) => {
                map.serialize_entry("low", &(self.fixed + low).as_nanos())?;
                map.serialize_entry("high", &(self.fixed + high).as_nanos())?;
            }
            _ => {
                map.serialize_entry("fixed", &self.fixed.as_nanos())?;
                map.serialize_entry("jitter", &TimeLaw(&self.jitter))?;
            }
        }
        map.serialize_entry("per", &self.per)?;
        map.end()
    }
}

/// What a delay is drawn for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    /// For each packet; `ordered`: none overtakes the one before it.
    Packet {
        /// Whether packets keep their order.
        ordered: bool,
    },
    /// Once for each connection, whose packets keep their order.
    Connection,
}

/// A queue in front of a link.
#[derive(Clone, Debug, Serialize)]
pub struct QueueSpec {
    /// Which packet goes next.
    pub scheduler: SchedulerSpec,
    /// What it holds.
    #[serde(serialize_with = "limit")]
    pub limit: Limit,
    /// What a mark does.
    #[serde(serialize_with = "marking")]
    pub marking: Marking,
    /// What watches it.
    pub aqm: AqmSpec,
    /// Mean length of a packet that the AQM's defaults were worked out with [bytes].
    #[serde(skip)]
    pub mean_packet: f64,
}

/// A scheduler with all of its parameters.
#[derive(Clone, Debug)]
pub struct SchedulerSpec {
    /// The scheduler.
    pub discipline: &'static SchedulerAlgorithm,
    /// Its parameters, defaults filled in. [`SchedulerAlgorithm::build`] has accepted them.
    pub values: Values,
}

/// An AQM with all of its parameters.
#[derive(Clone, Debug, Serialize)]
pub struct AqmSpec {
    /// The algorithm.
    #[serde(serialize_with = "algorithm")]
    pub algorithm: &'static Algorithm,
    /// Its parameters, defaults filled in. [`Algorithm::build`] has accepted them.
    #[serde(serialize_with = "values")]
    pub values: Values,
    /// Under threshold control: the share of the buffer at which that begins.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "thresholds")]
    pub threshold: Option<Thresholds>,
    /// What to call it in results: the name of the setting or of the preset, else the algorithm's.
    #[serde(skip)]
    pub label: String,
    /// The parameters that the scenario or the command line gives beside the preset.
    #[serde(skip)]
    pub changed: Vec<String>,
    /// What identifies one that is made outside and stands in place of this one, as keys and values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outside: Vec<(String, String)>,
}

impl AqmSpec {
    /// Whether it leaves all to the queue's limit.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.algorithm.name == crate::resolve::aqm::NONE && self.outside.is_empty()
    }

    /// Makes one.
    ///
    /// # Errors
    /// Where two values do not go together, which [`Algorithm::build`] has ruled out.
    pub fn build(&self) -> Result<Box<dyn Aqm>, ParamError> {
        (self.algorithm.build)(&self.values).map(|aqm| self.controlled(aqm))
    }

    /// Puts an algorithm under threshold control where that is asked for.
    #[must_use]
    pub fn controlled(&self, aqm: Box<dyn Aqm>) -> Box<dyn Aqm> {
        match &self.threshold {
            Some(th) => Box::new(Threshold::new(aqm, th.clone())),
            None => aqm,
        }
    }
}

/// A transport of one protocol.
#[derive(Clone, Debug)]
pub enum Transport {
    /// TCP.
    Tcp(Box<Tcp>),
    /// SCTP.
    Sctp(Box<Sctp>),
    /// RTP over UDP.
    Rtp(Box<Rtp>),
}

impl Transport {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Tcp(t) => &t.name,
            Self::Sctp(t) => &t.name,
            Self::Rtp(t) => &t.name,
        }
    }

    /// The TCP, where it is one.
    #[must_use]
    pub fn tcp(&self) -> Option<&Tcp> {
        match self {
            Self::Tcp(t) => Some(t),
            _ => None,
        }
    }

    /// Its protocol, as a file names it.
    #[must_use]
    pub fn protocol(&self) -> &'static str {
        match self {
            Self::Tcp(_) => "tcp",
            Self::Sctp(_) => "sctp",
            Self::Rtp(_) => "rtp",
        }
    }

    /// Length of a full packet on the wire [bytes]; none where its source says how long packets are.
    #[must_use]
    pub fn full_packet(&self) -> Option<u64> {
        match self {
            Self::Tcp(t) => Some(t.full_segment()),
            Self::Sctp(t) => Some(t.pmtu),
            Self::Rtp(_) => None,
        }
    }
}

impl Serialize for Transport {
    /// TCP without the name of its protocol.
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Named<'a, T> {
            protocol: &'static str,
            #[serde(flatten)]
            of: &'a T,
        }
        match self {
            Self::Tcp(t) => t.serialize(to),
            Self::Sctp(t) => Named { protocol: "sctp", of: t.as_ref() }.serialize(to),
            Self::Rtp(t) => Named { protocol: "rtp", of: t.as_ref() }.serialize(to),
        }
    }
}

/// SCTP over one path, RFC 9260.
#[derive(Clone, Debug, Serialize)]
pub struct Sctp {
    /// Its name.
    pub name: String,
    /// The longest packet, with its IP header [bytes].
    pub pmtu: u64,
    /// The IP header [bytes].
    pub ip_header: u64,
    /// The messages that data is written in [bytes].
    pub message: u64,
    /// Length of the state cookie [bytes].
    pub cookie: u64,
    /// What a receiver offers [bytes].
    pub a_rwnd: u64,
    /// Initial slow start threshold [bytes]; none: no bound.
    pub initial_ssthresh: Option<u64>,
    /// The most that the window grows by for an acknowledgement in slow start [full DATA chunks].
    pub slow_start_limit: u32,
    /// Granularity of the clock that times round trips.
    #[serde(serialize_with = "ns")]
    pub clock_granularity: Duration,
    /// Packets for which one acknowledgement is sent.
    pub sack_every: u32,
    /// SACK.Delay.
    #[serde(serialize_with = "ns")]
    pub sack_delay: Duration,
    /// RTO.Initial.
    #[serde(serialize_with = "ns")]
    pub rto_initial: Duration,
    /// RTO.Min.
    #[serde(serialize_with = "ns")]
    pub rto_min: Duration,
    /// RTO.Max.
    #[serde(serialize_with = "ns")]
    pub rto_max: Duration,
    /// Max.Burst [packets].
    pub max_burst: u32,
    /// Valid.Cookie.Life.
    #[serde(serialize_with = "ns")]
    pub valid_cookie_life: Duration,
    /// Association.Max.Retrans.
    pub association_max_retrans: u32,
    /// Max.Init.Retransmits.
    pub max_init_retransmits: u32,
}

/// RTP over UDP with RTCP, RFC 3550, whose source follows the loss that is reported.
#[derive(Clone, Debug, Serialize)]
pub struct Rtp {
    /// Its name.
    pub name: String,
    /// IP and UDP headers of a report [bytes].
    pub udp_header: u64,
    /// Ticks of the media clock in a second.
    pub clock_rate: u32,
    /// Time between two reports of one end.
    #[serde(serialize_with = "ns")]
    pub rtcp_interval: Duration,
    /// Whether the source follows the loss.
    pub adapt: bool,
    /// Weight of a report in the smoothed loss.
    pub smoothing: f64,
    /// Smoothed loss up to which the rate grows.
    pub unloaded: f64,
    /// Smoothed loss from which on the rate shrinks.
    pub congested: f64,
    /// Factor by which it does.
    pub decrease: f64,
    /// Summand by which it grows.
    #[serde(serialize_with = "bps")]
    pub increase: Rate,
    /// Lower bound of the rate.
    #[serde(serialize_with = "bps")]
    pub min_rate: Rate,
    /// Upper bound of the rate; none: what the source sends by itself.
    #[serde(serialize_with = "bps_of")]
    pub max_rate: Option<Rate>,
}

/// A TCP.
#[derive(Clone, Debug, Serialize)]
pub struct Tcp {
    /// Its name.
    pub name: String,
    /// Congestion control.
    pub algorithm: Congestion,
    /// Payload of a full segment [bytes].
    pub mss: u64,
    /// Headers of a segment, all layers that count on the wire [bytes].
    pub header: u64,
    /// Whether options count on the wire as well.
    #[serde(skip_serializing_if = "is_off")]
    pub option_bytes: bool,
    /// Initial window [segments].
    pub initial_window: u32,
    /// What a receiver offers [bytes].
    pub receive_window: u64,
    /// What a receiver offers at first, if that grows [bytes].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_receive_window: Option<u64>,
    /// Cap on a sender's window [bytes].
    pub max_window: Option<u64>,
    /// Initial slow start threshold [bytes]; none: no bound.
    pub initial_ssthresh: Option<u64>,
    /// Retransmission timeout before the first measurement.
    #[serde(serialize_with = "ns")]
    pub initial_rto: Duration,
    /// Shortest retransmission timeout.
    #[serde(serialize_with = "ns")]
    pub min_rto: Duration,
    /// How the timeout follows from round trips.
    #[serde(skip_serializing_if = "Rto::is_the_rfcs")]
    pub rto: Rto,
    /// Longest retransmission timeout.
    #[serde(serialize_with = "ns")]
    pub max_rto: Duration,
    /// Granularity of the clock that times round trips.
    #[serde(serialize_with = "ns")]
    pub clock_granularity: Duration,
    /// Limited transmit.
    pub limited_transmit: bool,
    /// Selective acknowledgements, and recovery by them.
    pub sack: bool,
    /// Whether such a recovery approaches its window in proportion.
    pub prr: bool,
    /// Whether the window grows by the bytes acknowledged.
    pub abc: bool,
    /// How long an acknowledgement may wait for a second segment; none: each is acknowledged at once.
    #[serde(serialize_with = "ns_of")]
    pub delayed_ack: Option<Duration>,
    /// Whether only the first partial acknowledgement restarts the retransmission timer.
    pub impatient: bool,
    /// Whether congestion leaves a share of the congestion window, not of what is outstanding.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub half_of_cwnd: bool,
    /// Whether to recover as ns-2 does.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ns2_recovery: bool,
    /// Whether a timeout resends everything from the first unacknowledged segment on.
    pub go_back_n: bool,
    /// Whether an idle connection starts again from the initial window.
    pub slow_start_restart: bool,
    /// Whether slow start ends where the round trip grows.
    #[serde(skip_serializing_if = "is_off")]
    pub hystart: bool,
    /// Whether a window is spread over its round trip.
    #[serde(skip_serializing_if = "is_off")]
    pub pacing: bool,
    /// How it hears of congestion marks.
    pub ecn: Ecn,
    /// Whether losses are found by time.
    #[serde(skip_serializing_if = "is_off")]
    pub rack: bool,
    /// Whether a timeout is undone that was none.
    #[serde(skip_serializing_if = "is_off")]
    pub eifel: bool,
    /// Whether it offers and accepts timestamps.
    #[serde(skip_serializing_if = "is_off")]
    pub timestamps: bool,
    /// The shift of the window scale option; none: windows as long as they need to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_scale: Option<u8>,
    /// A host takes up to this long before it sends what it may.
    #[serde(serialize_with = "ns", skip_serializing_if = "is_nothing")]
    pub overhead: Duration,
    /// How often an unanswered SYN is sent again.
    pub syn_retries: u32,
    /// How often an unacknowledged segment is sent again before the connection is given up.
    pub retries: u32,
}

/// How the retransmission timeout follows from round trips.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rto {
    /// RFC 6298.
    Rfc6298,
    /// As in Linux.
    Linux,
    /// As in 4.4BSD and ns-2, in whole ticks of the clock.
    Bsd,
}

impl Rto {
    fn is_the_rfcs(&self) -> bool {
        *self == Self::Rfc6298
    }
}

impl Tcp {
    /// Length of a full segment on the wire [bytes].
    #[must_use]
    pub fn full_segment(&self) -> u64 {
        let timestamps = if self.option_bytes && self.timestamps { 12 } else { 0 };
        self.mss + self.header + timestamps
    }
}

/// Whose queue the settings apply to and the metrics describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// A gateway (an index).
    Gateway(usize),
    /// The queue on a link's way forward (an index).
    Link(usize),
}

/// A setting that the scenario itself names.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// What it stands for at the subject.
    pub aqm: AqmSpec,
    /// The scheduler that goes with it, where it says one; else the scenario's.
    pub scheduler: Option<&'static str>,
    /// Its table, which takes the place of the subject's AQM.
    pub(crate) node: Node,
}

/// A printed value to compare with.
#[derive(Clone, Debug)]
pub struct Printed {
    /// The setting it was measured with.
    pub setting: String,
    /// The metric.
    pub metric: String,
    /// The value [`unit`](Self::unit).
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// Its standard deviation, where printed [`unit`](Self::unit).
    pub std: Option<f64>,
    /// Where it is printed.
    pub source: String,
    /// Whether the scenario's inputs were chosen by looking at it, so that agreement proves nothing.
    pub calibrated: bool,
}
