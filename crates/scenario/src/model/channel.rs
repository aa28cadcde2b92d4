//! Channel impairments of a link: loss, variable capacity, link layers, handover.

use std::sync::Arc;

use bentpipe_units::{Duration, Rate};
use schemars::JsonSchema;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use super::digest::Digest;
use super::indexes::HostIndex;
use super::modcod::{Modcod, ModcodTable};

/// Packet loss of a channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Loss {
    /// Loss model.
    pub model: LossModel,
    /// Packets that the model applies to; others pass and are not counted.
    pub of: LossOf,
    /// Position of the loss.
    pub at: LossAt,
}

/// A loss model.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LossModel {
    /// Independent losses with this probability.
    Probability(f64),
    /// Loss of the packets with these numbers, counted from 1, ascending.
    Nth(Vec<u32>),
    /// Gilbert-Elliott channel.
    GilbertElliott(GilbertElliott),
    /// Loss of packets with a bit error; bit errors are independent with this probability.
    BitErrorRate(f64),
}

/// A channel with two states, each with its loss probability (Gilbert 1960, Elliott 1963).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GilbertElliott {
    /// State transitions.
    pub clock: Clock,
    /// Loss probability in the good state.
    pub loss_good: f64,
    /// Loss probability in the bad state.
    pub loss_bad: f64,
}

/// State transitions of a Gilbert-Elliott channel.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// Transitions at each packet.
    Packet {
        /// Probability of a transition from good to bad.
        p: f64,
        /// Probability of a transition from bad to good.
        r: f64,
    },
    /// Transitions in continuous time, with exponential sojourn times.
    Time {
        /// Mean sojourn time in the good state.
        good: Duration,
        /// Mean sojourn time in the bad state.
        bad: Duration,
    },
}

/// Packets that a loss model applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LossOf {
    /// All packets.
    All,
    /// Packets with payload, retransmissions included: no acknowledgements and no handshakes.
    Data,
}

/// Position of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LossAt {
    /// Ahead of the queue, so that a lost packet occupies neither buffer nor link.
    BeforeQueue,
    /// On the link, after transmission.
    AfterQueue,
}

impl Loss {
    /// Returns independent losses of all packets on the link.
    #[must_use]
    pub const fn independent(probability: f64) -> Self {
        Self { model: LossModel::Probability(probability), of: LossOf::All, at: LossAt::AfterQueue }
    }

    /// Returns true if no packet is ever lost.
    #[must_use]
    pub fn is_none(&self) -> bool {
        match &self.model {
            LossModel::Probability(p) => *p == 0.0,
            LossModel::Nth(numbers) => numbers.is_empty(),
            LossModel::GilbertElliott(channel) => channel.loss_good == 0.0 && channel.loss_bad == 0.0,
            LossModel::BitErrorRate(rate) => *rate == 0.0,
        }
    }
}

impl Serialize for Loss {
    /// Serializes default losses as their probability; all lossless channels alike.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.is_none() {
            return 0.0f64.serialize(to);
        }
        if let (LossModel::Probability(p), LossOf::All, LossAt::AfterQueue) = (&self.model, self.of, self.at)
        {
            return p.serialize(to);
        }
        let mut map = to.serialize_map(Some(3))?;
        map.serialize_entry("law", &self.model)?;
        map.serialize_entry("of", &self.of)?;
        map.serialize_entry("at", &self.at)?;
        map.end()
    }
}

/// A capacity that varies over time or between packets.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Capacity {
    /// Measured transmission opportunities.
    Trace(Trace),
    /// Rates that change at given times.
    Steps(Steps),
    /// Random rates.
    Drawn(Drawn),
    /// A satellite carrier, whose modulation and coding determine the rate.
    Carrier(Carrier),
}

impl Capacity {
    /// Returns the mean over time, or over hosts that send equal amounts of data.
    #[must_use]
    pub fn mean(&self) -> Rate {
        match self {
            Self::Trace(trace) => trace.mean(),
            Self::Steps(steps) => steps.mean(),
            Self::Drawn(drawn) => drawn.mean(),
            Self::Carrier(carrier) => carrier.mean(),
        }
    }

    /// Returns true if the rate changes over time. It does not on a carrier whose ModCods are fixed.
    #[must_use]
    pub fn varies(&self) -> bool {
        !matches!(
            self,
            Self::Carrier(Carrier { modulation: Modulation::Fixed(_) | Modulation::Hosts { .. }, .. })
        )
    }

    /// Returns the highest rate: of a trace over a second, of a carrier with hosts of different ModCods that of the most
    /// efficient one.
    #[must_use]
    pub fn highest(&self) -> Rate {
        match self {
            Self::Trace(trace) => trace.highest(),
            Self::Steps(steps) => steps.steps.iter().map(|step| step.1).max().unwrap_or_default(),
            Self::Drawn(drawn) => drawn.uniform.1,
            Self::Carrier(carrier) => match &carrier.modulation {
                Modulation::Hosts { modcods, .. } => {
                    modcods.iter().map(|m| carrier.rate(m)).max().unwrap_or_default()
                }
                Modulation::Fixed(_) | Modulation::Fade(_) => carrier.mean(),
            },
        }
    }
}

/// Measured transmission opportunities.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trace {
    /// Times of the opportunities, non-decreasing [ms from the start]. The trace repeats after the last, which is above 0.
    #[serde(skip)]
    pub times: Arc<[u32]>,
    /// Identity of the file.
    pub digest: Digest,
}

impl Trace {
    /// Bytes that one opportunity can carry [bytes].
    pub const OPPORTUNITY: u32 = 1500;

    /// Returns the mean capacity.
    #[must_use]
    pub fn mean(&self) -> Rate {
        let period = self.times.last().map_or(1, |ms| u64::from(*ms).max(1));
        let bits = self.times.len() as u64 * u64::from(Self::OPPORTUNITY) * 8;
        Rate::from_bps((bits * 1000 / period).max(1))
    }

    /// Returns the highest capacity over a second of the trace, at least the mean.
    #[must_use]
    pub fn highest(&self) -> Rate {
        let (mut first, mut most) = (0, 0);
        for (last, ms) in self.times.iter().enumerate() {
            while ms - self.times[first] >= 1000 {
                first += 1;
            }
            most = most.max(last + 1 - first);
        }
        let period = self.times.last().copied().unwrap_or_default();
        let rate = Rate::from_bps(most as u64 * u64::from(Self::OPPORTUNITY) * 8);
        if period < 1000 { self.mean() } else { rate.max(self.mean()) }
    }
}

/// Rates that change at given times.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Steps {
    /// Start time and rate of each step, ascending from time zero; packets wait while the rate is zero.
    pub steps: Vec<(Duration, Rate)>,
    /// Period after which the steps repeat, longer than the last start time; `None` if the last rate stays.
    pub repeat: Option<Duration>,
}

impl Steps {
    /// Returns the mean over one period; without repetition, the maximum.
    #[must_use]
    pub fn mean(&self) -> Rate {
        let Some(repeat) = self.repeat else {
            return self.steps.iter().map(|step| step.1).max().unwrap_or_default();
        };
        let ends = self.steps.iter().skip(1).map(|step| step.0).chain([repeat]);
        let bits: f64 = self
            .steps
            .iter()
            .zip(ends)
            .map(|((from, rate), to)| rate.as_bps() as f64 * to.saturating_sub(*from).as_secs_f64())
            .sum();
        Rate::from_bps(((bits / repeat.as_secs_f64()) as u64).max(1))
    }
}

/// Independent random rates, redrawn periodically.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Drawn {
    /// Bounds of the uniform distribution.
    pub uniform: (Rate, Rate),
    /// Time between two draws.
    pub every: Duration,
}

impl Drawn {
    /// Returns the mean over time.
    #[must_use]
    pub const fn mean(&self) -> Rate {
        Rate::from_bps(self.uniform.0.as_bps().midpoint(self.uniform.1.as_bps()))
    }
}

/// A satellite carrier.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Carrier {
    /// Symbol rate [1/s].
    pub symbol_rate: u64,
    /// ModCods that it can select.
    #[serde(skip_serializing_if = "ModcodTable::is_dvb_s2")]
    pub modcods: ModcodTable,
    /// Modulation and coding.
    pub modulation: Modulation,
}

impl Carrier {
    /// Returns the mean rate over hosts that send equal amounts of data; of an adaptive carrier, the rate without rain.
    #[must_use]
    pub fn mean(&self) -> Rate {
        match &self.modulation {
            Modulation::Fixed(modcod) => self.rate(modcod),
            Modulation::Hosts { modcods, .. } => {
                let symbols_per_bit: f64 = modcods.iter().map(|m| 1.0 / m.efficiency).sum();
                Rate::from_bps(
                    (self.symbol_rate as f64 * modcods.len() as f64 / symbols_per_bit).round() as u64
                )
            }
            Modulation::Fade(fade) => {
                let modcod = self.modcods.best(fade.clear_sky - fade.margin);
                modcod.map_or(Rate::from_bps(1), |m| self.rate(m))
            }
        }
    }

    /// Returns the rate with a given modulation and coding.
    #[must_use]
    pub fn rate(&self, modcod: &Modcod) -> Rate {
        Rate::from_bps((self.symbol_rate as f64 * modcod.efficiency).round() as u64)
    }
}

/// Selection of a carrier's modulation and coding.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Modulation {
    /// Constant.
    Fixed(#[serde(serialize_with = "name")] &'static Modcod),
    /// Per host.
    Hosts {
        /// Group of hosts.
        group: HostIndex,
        /// ModCods; host i uses number i modulo their count.
        #[serde(serialize_with = "names")]
        modcods: Vec<&'static Modcod>,
    },
    /// Adaptive (ACM), following rain fade.
    Fade(Fade),
}

/// Rain fade of an adaptive carrier.
///
/// ITU-R P.1853, Annex 1: the logarithm of the attenuation is a Gaussian first-order Markov process (Maseng & Bakken
/// 1981); an offset is subtracted from the attenuation, which is at least zero.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fade {
    /// Es/N0 without rain [dB].
    pub clear_sky: f64,
    /// Median of the attenuation before the offset: exp(m) [dB].
    pub median: f64,
    /// Standard deviation of the attenuation's logarithm.
    pub sigma: f64,
    /// Time after which the autocorrelation has fallen to 1/e: 1/beta.
    pub correlation_time: Duration,
    /// Probability of rain, which determines the offset.
    pub rain: f64,
    /// Link margin [dB].
    pub margin: f64,
    /// Time between two selections of the modulation.
    pub step: Duration,
    /// Weather that the link shares; `None` if each direction has independent rain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<Region>,
}

/// Weather that links share.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Region {
    /// Name.
    pub name: String,
    /// Correlation between the Gaussian processes of two links with this value.
    pub correlation: f64,
}

/// Demand assignment: capacity that a terminal requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Demand {
    /// Frame duration; requests and grants are for whole frames.
    pub frame: Duration,
    /// Time from a request to the first frame that it can be granted in.
    pub round_trip: Duration,
    /// Capacity assigned without a request (CRA); zero for none.
    pub free: Rate,
}

/// A link layer with contention, framing and retransmission.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Access {
    /// Overhead per transmission attempt, which occupies the link: bounds of a uniform distribution.
    pub overhead: (Duration, Duration),
    /// Header per packet [bytes].
    pub header: u64,
    /// Probability that an attempt fails.
    pub frame_loss: f64,
    /// Maximum number of attempts.
    pub tries: u32,
    /// Time from a failed attempt to the next, during which other packets are sent.
    pub try_delay: Duration,
    /// Frame duration: packets arrive at multiples of it; zero for arrival after transmission.
    pub frame: Duration,
}

/// Periodic handover between satellites.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Handover {
    /// Time between two handovers.
    pub interval: Duration,
    /// Time of the first handover.
    pub offset: Duration,
    /// Additional delay of a satellite, the same in both directions: bounds of a uniform distribution.
    pub delay: (Duration, Duration),
    /// Outage after a handover.
    pub outage: Duration,
    /// True if packets sent during an outage are lost, false if they wait.
    pub loses: bool,
}

fn name<S: Serializer>(modcod: &&'static Modcod, to: S) -> Result<S::Ok, S::Error> {
    modcod.name.serialize(to)
}

fn names<S: Serializer>(modcods: &[&'static Modcod], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(modcods.iter().map(|m| m.name))
}
