//! What a link does to packets, once its keys are understood: the channels of the engines are built from these.

use std::sync::Arc;

use bentpipe_units::{Duration, Rate};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::canonical::{bps, ns, ns_of};
use crate::files::Digest;
use crate::modcod::Modcod;

/// What a channel loses.
#[derive(Clone, Debug, PartialEq)]
pub struct Loss {
    /// By what law.
    pub model: LossModel,
    /// Of which packets; others pass, and are not counted.
    pub of: LossOf,
    /// Where.
    pub at: LossAt,
}

/// By what law packets are lost.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LossModel {
    /// Each on its own, with this probability.
    Probability(f64),
    /// Those with these numbers, counted from 1 and rising.
    Nth(Vec<u32>),
    /// As the channel is good or bad.
    GilbertElliott(GilbertElliott),
    /// Where any bit of the packet is wrong; bits are wrong each on its own, with this probability.
    BitErrorRate(f64),
}

/// A channel of two states, each with its own probability of loss (Gilbert 1960, Elliott 1963).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GilbertElliott {
    /// When the state changes.
    pub clock: Clock,
    /// Probability of loss in the good state.
    pub loss_good: f64,
    /// Probability of loss in the bad state.
    pub loss_bad: f64,
}

/// What the state of a channel changes with.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// With each packet: from good to bad with probability `p`, back with probability `r`.
    Packet {
        /// From good to bad.
        p: f64,
        /// From bad to good.
        r: f64,
    },
    /// With time: stays are exponential with these means.
    Time {
        /// Mean stay in the good state.
        #[serde(serialize_with = "ns")]
        good: Duration,
        /// Mean stay in the bad state.
        #[serde(serialize_with = "ns")]
        bad: Duration,
    },
}

/// Which packets a channel counts and loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LossOf {
    /// All.
    All,
    /// Those with payload.
    Data,
}

/// Where a channel loses packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LossAt {
    /// Before they enter the queue; where there is none, before they are sent.
    BeforeQueue,
    /// On the way, once they have been sent.
    AfterQueue,
}

impl Loss {
    /// Each packet on its own, on the way.
    #[must_use]
    pub const fn independent(probability: f64) -> Self {
        Self { model: LossModel::Probability(probability), of: LossOf::All, at: LossAt::AfterQueue }
    }

    /// Whether nothing is ever lost.
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
    /// A number where that says it all. What never loses a packet is alike, by whatever law and wherever.
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

/// A capacity that changes, or that is not the same for every packet.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Capacity {
    /// Given times at which so many bytes may go.
    Trace(Trace),
    /// Given rates, each from its time on.
    Steps(Steps),
    /// Rates that are drawn.
    Drawn(Drawn),
    /// A carrier whose modulation and coding decide.
    Carrier(Carrier),
}

impl Capacity {
    /// Its mean over time, or over hosts with packets as long and as many as each other's.
    #[must_use]
    pub fn mean(&self) -> Rate {
        match self {
            Self::Trace(trace) => trace.mean(),
            Self::Steps(steps) => steps.mean(),
            Self::Drawn(drawn) => drawn.mean(),
            Self::Carrier(carrier) => carrier.mean(),
        }
    }
}

/// Opportunities to send, as measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trace {
    /// When each is, never falling [ms from the beginning]. The last, above zero, is when they begin again.
    #[serde(skip)]
    pub times: Arc<[u32]>,
    /// What tells the file from every other.
    pub digest: Digest,
}

impl Trace {
    /// What may go at one opportunity [bytes].
    pub const OPPORTUNITY: u32 = 1500;

    /// Mean capacity.
    #[must_use]
    pub fn mean(&self) -> Rate {
        let period = self.times.last().map_or(1, |ms| u64::from(*ms).max(1));
        let bits = self.times.len() as u64 * u64::from(Self::OPPORTUNITY) * 8;
        Rate::from_bps((bits * 1000 / period).max(1))
    }
}

/// Rates, each from its time on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Steps {
    /// Times, rising from zero, and rates; at rate zero packets wait.
    #[serde(serialize_with = "steps")]
    pub steps: Vec<(Duration, Rate)>,
    /// When they begin again; later than the last.
    #[serde(serialize_with = "ns_of")]
    pub repeat: Option<Duration>,
}

impl Steps {
    /// Mean over the time between two repetitions; where there are none, the greatest.
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

/// Rates that are drawn at regular times, each on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Drawn {
    /// The lowest and the highest; each between them is as likely.
    #[serde(serialize_with = "rates")]
    pub uniform: (Rate, Rate),
    /// How long each holds.
    #[serde(serialize_with = "ns")]
    pub every: Duration,
}

impl Drawn {
    /// Mean over time.
    #[must_use]
    pub const fn mean(&self) -> Rate {
        Rate::from_bps(self.uniform.0.as_bps().midpoint(self.uniform.1.as_bps()))
    }
}

/// A carrier whose modulation and coding decide how much a symbol carries.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Carrier {
    /// Symbols per second [1/s].
    pub symbol_rate: u64,
    /// How it is modulated and coded.
    pub modulation: Modulation,
}

impl Carrier {
    /// Its mean rate over hosts with packets as long and as many as each other's; where it adapts, without rain.
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
                let modcod = Modcod::best(fade.clear_sky - fade.margin);
                modcod.map_or(Rate::from_bps(1), |m| self.rate(m))
            }
        }
    }

    /// Its rate with this modulation and coding.
    #[must_use]
    pub fn rate(&self, modcod: &Modcod) -> Rate {
        Rate::from_bps((self.symbol_rate as f64 * modcod.efficiency).round() as u64)
    }
}

/// How a carrier is modulated and coded.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Modulation {
    /// In one way.
    Fixed(#[serde(serialize_with = "name_of")] &'static Modcod),
    /// For each host in its own way.
    Hosts {
        /// Whose hosts (an index of a group).
        group: usize,
        /// Those of host i mod their number.
        #[serde(serialize_with = "names_of")]
        modcods: Vec<&'static Modcod>,
    },
    /// As well as the rain lets it.
    Fade(Fade),
}

/// Rain on the way of a carrier that adapts to it.
///
/// ITU-R P.1853, Annex 1: the logarithm of the attenuation is a Gaussian first-order Markov process (Maseng & Bakken
/// 1981), less an offset, and no less than nothing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fade {
    /// Es/N0 without rain [dB].
    pub clear_sky: f64,
    /// Median of the attenuation before the offset: exp(m) [dB].
    pub median: f64,
    /// Standard deviation of the attenuation's logarithm.
    pub sigma: f64,
    /// After which its correlation has fallen to 1/e: 1/beta.
    #[serde(serialize_with = "ns")]
    pub correlation_time: Duration,
    /// Probability of rain, which the offset follows from.
    pub rain: f64,
    /// What the modulation keeps in hand [dB].
    pub margin: f64,
    /// How often the modulation is chosen.
    #[serde(serialize_with = "ns")]
    pub step: Duration,
}

/// Capacity that a terminal has to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Demand {
    /// Time between two frames; requests and grants are for whole frames.
    #[serde(serialize_with = "ns")]
    pub frame: Duration,
    /// From a request to the first frame that can be granted.
    #[serde(serialize_with = "ns")]
    pub round_trip: Duration,
    /// What it has in each frame without asking; zero: nothing.
    #[serde(serialize_with = "bps")]
    pub free: Rate,
}

/// A link whose link layer contends, schedules and repeats.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Access {
    /// What each try takes beside its bits, during which nothing else is sent: drawn between the two.
    #[serde(serialize_with = "span")]
    pub overhead: (Duration, Duration),
    /// What is sent beside each packet [bytes].
    pub header: u64,
    /// Probability that a try fails.
    pub frame_loss: f64,
    /// How often a packet is tried.
    pub tries: u32,
    /// From a try that failed to the next, while other packets are sent.
    #[serde(serialize_with = "ns")]
    pub try_delay: Duration,
    /// Packets arrive at its multiples; zero: when they have been sent.
    #[serde(serialize_with = "ns")]
    pub frame: Duration,
}

/// A satellite that is changed for another at regular times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Handover {
    /// From one change to the next; the first is at `offset`.
    #[serde(serialize_with = "ns")]
    pub interval: Duration,
    /// When the first change is.
    #[serde(serialize_with = "ns")]
    pub offset: Duration,
    /// What each satellite adds to the delay, both ways: drawn between the two.
    #[serde(serialize_with = "span")]
    pub delay: (Duration, Duration),
    /// How long nothing passes after a change.
    #[serde(serialize_with = "ns")]
    pub outage: Duration,
    /// Whether what is sent meanwhile is lost; else it waits.
    pub loses: bool,
}

fn steps<S: Serializer>(steps: &[(Duration, Rate)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(steps.iter().map(|(at, rate)| (at.as_nanos(), rate.as_bps())))
}

fn rates<S: Serializer>(rates: &(Rate, Rate), to: S) -> Result<S::Ok, S::Error> {
    (rates.0.as_bps(), rates.1.as_bps()).serialize(to)
}

fn span<S: Serializer>(span: &(Duration, Duration), to: S) -> Result<S::Ok, S::Error> {
    (span.0.as_nanos(), span.1.as_nanos()).serialize(to)
}

fn name_of<S: Serializer>(modcod: &&'static Modcod, to: S) -> Result<S::Ok, S::Error> {
    modcod.name.serialize(to)
}

fn names_of<S: Serializer>(modcods: &[&'static Modcod], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(modcods.iter().map(|m| m.name))
}
