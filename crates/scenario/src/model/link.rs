//! Links.

use bentpipe_queue::{Limit, Marking};
use bentpipe_units::{Duration, Rate, Rng};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::aqm::{AqmSpec, SchedulerSpec};
use super::canonical::{limit, marking};
use super::channel::{Access, Capacity, Demand, Handover, Loss};
use super::distribution::Distribution;

/// A link, or one link per member if one end is a group of hosts.
#[derive(Clone, Debug, Serialize)]
pub struct Link {
    /// Name.
    pub name: String,
    /// Nodes at its two ends.
    pub between: (String, String),
    /// Direction from the first node to the second.
    pub forward: Direction,
    /// Direction from the second node to the first.
    pub reverse: Direction,
    /// True if the forward delay drawn for a connection is also its reverse delay: the delay is drawn per connection and
    /// the scenario gives none for the reverse direction.
    pub shared_delay: bool,
    /// Periodic handover between satellites.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handover: Option<Handover>,
}

/// One direction of a link.
#[derive(Clone, Debug, Serialize)]
pub struct Direction {
    /// Transmission rate; `None` if transmission takes no time.
    pub rate: Option<Rate>,
    /// Variable capacity, in place of a rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
    /// Demand assignment of the capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demand: Option<Demand>,
    /// Link layer with contention, framing and retransmission.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// Propagation delay.
    pub delay: Delay,
    /// Loss.
    pub loss: Loss,
    /// Queue in front of the link; `None` for an unlimited FIFO queue.
    pub queue: Option<QueueSpec>,
}

impl Direction {
    /// Returns the mean transmission rate: the rate, or the mean of the capacity.
    #[must_use]
    pub fn mean_rate(&self) -> Option<Rate> {
        self.capacity.as_ref().map(Capacity::mean).or(self.rate)
    }

    /// Returns true if the transmission rate changes over time.
    #[must_use]
    pub fn varies(&self) -> bool {
        self.capacity.as_ref().is_some_and(Capacity::varies)
    }

    /// Returns the highest transmission rate: the rate, or the maximum of the capacity.
    #[must_use]
    pub fn highest_rate(&self) -> Option<Rate> {
        self.capacity.as_ref().map(Capacity::highest).or(self.rate)
    }
}

/// A propagation delay.
#[derive(Clone, Debug)]
pub struct Delay {
    /// Constant part.
    pub fixed: Duration,
    /// Random part.
    pub jitter: Distribution<Duration>,
    /// Scope of a draw.
    pub per: Per,
}

impl Delay {
    /// Returns the delay if it is constant.
    #[must_use]
    pub fn fixed(&self) -> Option<Duration> {
        match self.jitter {
            Distribution::Fixed(jitter) => Some(self.fixed + jitter),
            Distribution::Uniform(low, high) if low == high => Some(self.fixed + low),
            _ => None,
        }
    }

    /// Draws a delay. A constant delay consumes no random numbers.
    #[must_use]
    pub fn draw(&self, rng: &mut Rng) -> Duration {
        self.fixed().unwrap_or_else(|| self.fixed + self.jitter.draw(rng))
    }

    /// Returns the longest delay. For unbounded distributions: four standard deviations above the mean (normal), or four
    /// times the mean.
    #[must_use]
    pub fn longest(&self) -> Duration {
        self.fixed
            + match self.jitter {
                Distribution::Fixed(x) | Distribution::Uniform(_, x) => x,
                Distribution::Normal { mean, std } => mean + std.times(4),
                _ => self.jitter.mean().times(4),
            }
    }

    /// Returns true if the delay is always zero.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.fixed().is_some_and(Duration::is_zero)
    }
}

impl Serialize for Delay {
    /// Serializes a constant or uniform delay as its bounds.
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
                map.serialize_entry("jitter", &self.jitter)?;
            }
        }
        map.serialize_entry("per", &self.per)?;
        map.end()
    }
}

/// Scope of a delay draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    /// Once per packet.
    Packet {
        /// True if no packet overtakes an earlier one.
        ordered: bool,
    },
    /// Once per connection, whose packets keep their order.
    Connection,
}

/// A queue in front of a link.
#[derive(Clone, Debug, Serialize)]
pub struct QueueSpec {
    /// Scheduler.
    pub scheduler: SchedulerSpec,
    /// Capacity of the queue.
    #[serde(serialize_with = "limit")]
    pub limit: Limit,
    /// Effect of a mark.
    #[serde(serialize_with = "marking")]
    pub marking: Marking,
    /// AQM.
    pub aqm: AqmSpec,
    /// Mean packet length that the defaults of the AQM are derived from [bytes].
    #[serde(skip)]
    pub mean_packet: f64,
}
