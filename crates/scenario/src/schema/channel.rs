//! Channel impairments of a link.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::forms::{Chance, Either, Share};
use super::quantity::{AnyRate, HeaderSize, Rate, Span, SymbolRate, Time, Whole};
use crate::model::{LossAt, LossOf};

/// What is lost on the way: a probability, or a table that says more.
pub type Loss = Either<Share, LossTable>;

/// What is lost on the way, by one law: `probability`, `nth`, `gilbert_elliott` or `bit_error_rate`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Loss")]
pub struct LossTable {
    /// Probability that a packet is lost, each on its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probability: Option<Share>,
    /// The numbers of the packets that are lost, rising; the first packet over the link in this direction is 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nth: Option<Vec<Whole<1, { u32::MAX }>>>,
    /// A channel that is good or bad.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gilbert_elliott: Option<GilbertElliott>,
    /// Probability that a bit is wrong, each on its own; a packet with a wrong bit is lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bit_error_rate: Option<Share>,
    /// Which packets are counted and lost. Absent: "all".
    pub of: Option<LossOf>,
    /// Where they are lost. Absent: "after_queue".
    pub at: Option<LossAt>,
}

/// A channel that is good or bad (Gilbert 1960, Elliott 1963). It changes with each packet (`p` and `r`), or with time
/// (`good` and `bad`).
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GilbertElliott {
    /// Probability to go from good to bad, at each packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p: Option<Chance>,
    /// Probability to go from bad to good, at each packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r: Option<Chance>,
    /// Mean time that it is good; exponential.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub good: Option<Span>,
    /// Mean time that it is bad; exponential.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bad: Option<Span>,
    /// Probability that a packet is lost while it is good.
    #[serde(default)]
    pub loss_good: Chance,
    /// Probability that a packet is lost while it is bad. Absent: 1.
    #[serde(default = "surely")]
    pub loss_bad: Chance,
}

fn surely() -> Chance {
    Chance(1.0)
}

/// A capacity that changes, or that is not the same for every packet: `trace`, `steps`, `uniform` or `symbol_rate`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Capacity {
    /// A file in mahimahi's format: each line is a time [ms] at which 1500 bytes may go; at the last, it begins again.
    pub trace: Option<String>,
    /// Rates, each with the time from which it holds; the first from "0 s". At "0 bps" packets wait.
    pub steps: Option<Vec<(Time, AnyRate)>>,
    /// When the steps begin again. Absent: never, the last holds to the end.
    pub repeat: Option<Span>,
    /// The lowest rate and the highest: one between the two, each as likely, is drawn again and again.
    pub uniform: Option<[Rate; 2]>,
    /// How long a rate that was drawn holds.
    pub every: Option<Span>,
    /// Symbols per second of a DVB-S2 carrier, whose modulation and coding `modcod` or `fade` say.
    pub symbol_rate: Option<SymbolRate>,
    /// Modulation and coding, such as "8PSK 3/4": one, or several for the hosts of the group `of` in turn.
    pub modcod: Option<Vec<String>>,
    /// The group of hosts that `modcod` is for: a packet from or to its i-th host is sent as that of the list says.
    pub of: Option<String>,
    /// Rain that the carrier adapts to.
    pub fade: Option<Fade>,
}

/// Rain on the way of a carrier that adapts to it (ITU-R P.1853).
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fade {
    /// Es/N0 without rain [dB], -10 to 40.
    pub clear_sky: f64,
    /// Median of the attenuation while it rains, before the offset that P.1853 takes off [dB], above 0 to 100.
    pub median: f64,
    /// Standard deviation of the logarithm of the attenuation, above 0 to 5.
    pub sigma: f64,
    /// After which the correlation of the attenuation's logarithm has fallen to 1/e. P.1853: 1/beta, "5000 s".
    #[serde(default = "correlation_time")]
    pub correlation_time: Span,
    /// Probability that it rains. 1: always, without an offset (Maseng & Bakken).
    #[serde(default = "surely")]
    pub rain: Chance,
    /// What the modulation keeps in hand against changes and measuring [dB], 0 to 20.
    #[serde(default = "margin")]
    pub margin: f64,
    /// How often the modulation is chosen.
    #[serde(default = "second")]
    pub step: Span,
}

fn correlation_time() -> Span {
    Span::of(5_000_000_000_000)
}

fn margin() -> f64 {
    1.0
}

fn second() -> Span {
    Span::of(1_000_000_000)
}

/// Capacity that the sender of a link has to ask for, frame by frame; `rate` is how fast it sends in its time.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Demand {
    /// Time from one frame to the next. At its beginning the sender asks for what waits, and may send what is granted.
    #[serde(default = "frame")]
    pub frame: Span,
    /// From a request to the first frame that can be granted. Absent: the link's delays, there and back.
    pub round_trip: Option<Time>,
    /// What it may send in each frame without asking.
    #[serde(default = "nothing")]
    pub free: AnyRate,
}

fn frame() -> Span {
    Span::of(50_000_000)
}

fn nothing() -> AnyRate {
    AnyRate::of(0)
}

/// A link of a kind that everyone knows, or a table that says more.
pub type Access = Either<AccessName, AccessTable>;

/// A link whose link layer contends, schedules and repeats.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Access")]
pub struct AccessTable {
    /// Which kind; the other keys say where it differs.
    pub kind: AccessName,
    /// What each try takes beside its bits, during which nothing else is sent: drawn between the two.
    pub overhead: Option<[Time; 2]>,
    /// What is sent beside each packet.
    pub header: Option<HeaderSize>,
    /// Probability that a try fails.
    pub frame_loss: Option<Share>,
    /// How often a packet is tried before it is lost.
    pub tries: Option<Whole<1, 100>>,
    /// From a try that failed to the next, while other packets are sent.
    pub try_delay: Option<Time>,
    /// Packets arrive at multiples of this time; "0 s": when they have been sent.
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
    /// UMTS, a dedicated channel of 384 kbit/s.
    Umts,
}

/// A satellite that is changed for another at regular times, such as in low orbits.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Handover {
    /// From one change to the next.
    #[serde(default = "starlink")]
    pub interval: Span,
    /// When the first change is. Absent: after an interval.
    pub offset: Option<Time>,
    /// What each satellite adds to the delay, the same both ways: drawn between the two at each change.
    #[serde(default = "no_delay")]
    pub delay: [Time; 2],
    /// How long nothing passes after a change.
    #[serde(default = "no_time")]
    pub outage: Time,
    /// What becomes of packets meanwhile.
    #[serde(default = "hold")]
    pub during: DuringName,
}

fn starlink() -> Span {
    Span::of(15_000_000_000)
}

fn no_time() -> Time {
    Time::of(0)
}

fn no_delay() -> [Time; 2] {
    [no_time(), no_time()]
}

fn hold() -> DuringName {
    DuringName::Hold
}

/// What becomes of packets during an outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "During")]
pub enum DuringName {
    /// They wait in front of the link.
    Hold,
    /// What is sent is lost.
    Lose,
}

impl AccessTable {
    /// One of that kind, without a difference.
    pub const fn of(kind: AccessName) -> Self {
        Self {
            kind,
            overhead: None,
            header: None,
            frame_loss: None,
            tries: None,
            try_delay: None,
            frame: None,
        }
    }
}
