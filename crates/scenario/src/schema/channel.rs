//! Channel impairments of a link.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SECOND;
use super::forms::{Chance, Either, Share};
use super::quantity::{AnyRate, HeaderSize, Period, Rate, Span, SymbolRate, Time, Whole};
use crate::model::{LossAt, LossOf, ModcodTable};

/// Loss of a channel: a probability, or a table with a loss model.
pub type Loss = Either<Share, LossTable>;

/// A loss model: `probability`, `nth`, `gilbert_elliott` or `bit_error_rate`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Loss")]
pub struct LossTable {
    /// Probability of independent packet losses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probability: Option<Share>,
    /// Numbers of the lost packets, ascending; the first packet over the link in this direction is 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nth: Option<Vec<Whole<1, { u32::MAX }>>>,
    /// Gilbert-Elliott channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gilbert_elliott: Option<GilbertElliott>,
    /// Probability of independent bit errors; a packet with a bit error is lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bit_error_rate: Option<Share>,
    /// Packets that the model applies to. Default: "all".
    pub of: Option<LossOf>,
    /// Position of the loss. Default: "after_queue".
    pub at: Option<LossAt>,
}

/// A channel with a good and a bad state (Gilbert 1960, Elliott 1963). Transitions are per packet (`p` and `r`) or in
/// time (`good` and `bad`).
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GilbertElliott {
    /// Probability of a transition from good to bad at each packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p: Option<Chance>,
    /// Probability of a transition from bad to good at each packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r: Option<Chance>,
    /// Mean sojourn time in the good state, exponential.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub good: Option<Span>,
    /// Mean sojourn time in the bad state, exponential.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bad: Option<Span>,
    /// Loss probability in the good state.
    #[serde(default)]
    pub loss_good: Chance,
    /// Loss probability in the bad state. Default: 1.
    #[serde(default = "surely")]
    pub loss_bad: Chance,
}

fn surely() -> Chance {
    Chance(1.0)
}

/// A satellite carrier that links name in `capacity`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Carrier {
    /// Symbol rate.
    pub symbol_rate: SymbolRate,
    /// ModCods that its links can use.
    #[serde(default)]
    pub modcods: ModcodTable,
}

/// A capacity that varies over time or between packets: `trace`, `steps`, `uniform`, `symbol_rate` or `carrier`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Capacity {
    /// File in mahimahi's format: each line is the time [ms] of an opportunity to send 1500 bytes; the trace repeats
    /// after the last.
    pub trace: Option<String>,
    /// Start times and rates, the first from "0 s". Packets wait while the rate is "0 bps".
    pub steps: Option<Vec<(Time, AnyRate)>>,
    /// Period after which the steps repeat. Default: the last rate stays.
    pub repeat: Option<Period>,
    /// Bounds of a uniform distribution from which a rate is drawn periodically.
    pub uniform: Option<[Rate; 2]>,
    /// Time between two draws.
    pub every: Option<Period>,
    /// Symbol rate of a DVB-S2 carrier, whose modulation and coding `modcod` or `fade` determine.
    pub symbol_rate: Option<SymbolRate>,
    /// Carrier that the link uses, in place of `symbol_rate`: the name of a [carrier.NAME] table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carrier: Option<String>,
    /// Modulation and coding, such as "8PSK 3/4": one, or a list that the hosts of the group `of` use in turn.
    pub modcod: Option<Vec<String>>,
    /// Group of hosts that `modcod` applies to: packets to or from its i-th host use the i-th entry.
    pub of: Option<String>,
    /// Rain fade that the carrier adapts to (ACM).
    pub fade: Option<Fade>,
}

/// Rain fade of an adaptive carrier (ITU-R P.1853).
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fade {
    /// Es/N0 without rain [dB], -10 to 40.
    pub clear_sky: f64,
    /// Median of the attenuation during rain, before the offset of P.1853 [dB], above 0 to 100.
    pub median: f64,
    /// Standard deviation of the attenuation's logarithm, above 0 to 5.
    pub sigma: f64,
    /// Time after which the autocorrelation of the attenuation's logarithm has fallen to 1/e. P.1853: 1/beta, "5000 s".
    #[serde(default = "Span::just::<{ 5000 * SECOND }>")]
    pub correlation_time: Span,
    /// Probability of rain. 1: always, without an offset (Maseng & Bakken).
    #[serde(default = "surely")]
    pub rain: Chance,
    /// Link margin for changes and measurement errors [dB], 0 to 20.
    #[serde(default = "margin")]
    pub margin: f64,
    /// Time between two selections of the modulation.
    #[serde(default = "Period::just::<SECOND>")]
    pub step: Period,
    /// Region whose weather the link shares with all links that name it. Both directions of a link then have the same rain.
    /// Default: every direction of every link has independent rain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Correlation between the logarithms of the attenuation, before the offset, of two links in the region with this value;
    /// required with `region`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation: Option<Chance>,
}

fn margin() -> f64 {
    1.0
}

/// Demand assignment: capacity that the sender requests frame by frame; `rate` is its transmission rate within a grant.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Demand {
    /// Frame duration. At the start of a frame the sender requests capacity for its backlog and may use what is
    /// granted.
    #[serde(default = "Period::just::<{ SECOND / 20 }>")]
    pub frame: Period,
    /// Time from a request to the first frame that it can be granted in. Default: the link's round-trip delay.
    pub round_trip: Option<Time>,
    /// Capacity assigned without a request (CRA).
    #[serde(default = "AnyRate::just::<0>")]
    pub free: AnyRate,
}

/// An access link of a known kind, or a table that adapts one.
pub type Access = Either<AccessName, AccessTable>;

/// A link layer with contention, framing and retransmission.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Access")]
pub struct AccessTable {
    /// Kind, from which the other keys take their defaults. Default in `reverse`: the other keys of the forward direction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<AccessName>,
    /// Overhead per transmission attempt, which occupies the link: bounds of a uniform distribution.
    pub overhead: Option<[Time; 2]>,
    /// Header per packet.
    pub header: Option<HeaderSize>,
    /// Probability that an attempt fails.
    pub frame_loss: Option<Share>,
    /// Maximum number of attempts; then the packet is lost.
    pub tries: Option<Whole<1, 100>>,
    /// Time from a failed attempt to the next, during which other packets are sent.
    pub try_delay: Option<Time>,
    /// Frame duration: packets arrive at multiples of it; "0 s" for arrival after transmission.
    pub frame: Option<Time>,
}

/// Kinds of access links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "AccessKind")]
pub enum AccessName {
    /// IEEE 802.11g at 54 Mbit/s.
    Wifi,
    /// IEEE 802.16e, 10 MHz, 16QAM 1/2.
    Wimax,
    /// UMTS, dedicated channel of 384 kbit/s.
    Umts,
}

/// Periodic handover between satellites, as in low Earth orbits.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Handover {
    /// Time between two handovers.
    #[serde(default = "Period::just::<{ 15 * SECOND }>")]
    pub interval: Period,
    /// Time of the first handover. Default: one interval.
    pub offset: Option<Time>,
    /// Additional delay of a satellite, the same in both directions: bounds of a uniform distribution, drawn at each
    /// handover.
    #[serde(default = "no_delay")]
    pub delay: [Time; 2],
    /// Outage after a handover.
    #[serde(default = "Time::just::<0>")]
    pub outage: Time,
    /// Treatment of packets during an outage.
    #[serde(default)]
    pub during: DuringName,
}

fn no_delay() -> [Time; 2] {
    [Time::of(0); 2]
}

/// Treatment of packets during an outage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "During")]
pub enum DuringName {
    /// Packets wait in front of the link.
    #[default]
    Hold,
    /// Packets that are sent are lost.
    Lose,
}

impl AccessTable {
    /// Takes the kind and all keys that are not given from another direction, unless a kind is given.
    pub fn inherit(&mut self, other: &Access) {
        if self.kind.is_some() {
            return;
        }
        let other = match other {
            Either::Plain(name) => Self::of(*name),
            Either::Table(table) => table.clone(),
        };
        *self = Self {
            kind: other.kind,
            overhead: self.overhead.or(other.overhead),
            header: self.header.or(other.header),
            frame_loss: self.frame_loss.or(other.frame_loss),
            tries: self.tries.or(other.tries),
            try_delay: self.try_delay.or(other.try_delay),
            frame: self.frame.or(other.frame),
        };
    }

    /// Returns the defaults of a kind.
    pub const fn of(kind: AccessName) -> Self {
        Self {
            kind: Some(kind),
            overhead: None,
            header: None,
            frame_loss: None,
            tries: None,
            try_delay: None,
            frame: None,
        }
    }
}
