//! Packet sources: times and lengths of an application's packets, whatever the transport.

use std::sync::Arc;

use bentpipe_units::{Duration, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::digest::Digest;
use super::distribution::Distribution;
use super::indexes::TransportIndex;

/// Flows of a packet source.
#[derive(Clone, Debug, Serialize)]
pub struct Packets {
    /// Transport; `None` for datagrams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<TransportIndex>,
    /// Number of flows.
    pub flows: u32,
    /// Packet pattern of a flow.
    #[serde(flatten)]
    pub pattern: Arc<Pattern>,
    /// Start time, since the beginning of the run.
    pub start: Distribution<Duration>,
    /// Periods of absence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub away: Vec<Absence>,
}

/// A period during which traffic is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Absence {
    /// Departure, since the beginning of the run.
    pub from: Duration,
    /// Return, since the beginning of the run.
    pub until: Duration,
}

/// Packet pattern of a source. Lengths are those of datagrams on the wire, headers included [bytes].
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Pattern {
    /// Constant bit rate.
    Cbr {
        /// Rate.
        rate: Rate,
        /// Packet length.
        #[serde(serialize_with = "length")]
        packet: Distribution<u64>,
    },
    /// Exponential interarrival times.
    Poisson {
        /// Mean rate.
        rate: Rate,
        /// Packet length.
        #[serde(serialize_with = "length")]
        packet: Distribution<u64>,
    },
    /// Alternation between a constant bit rate and silence.
    OnOff {
        /// Rate in the on state.
        rate: Rate,
        /// Packet length.
        #[serde(serialize_with = "length")]
        packet: Distribution<u64>,
        /// Duration of the on state.
        on: Distribution<Duration>,
        /// Duration of the off state.
        off: Distribution<Duration>,
    },
    /// Markov-modulated Poisson process.
    Mmpp {
        /// States; at least two.
        states: Vec<State>,
        /// Transition probabilities, one row per state.
        transitions: Vec<Vec<f64>>,
        /// Packet length.
        #[serde(serialize_with = "length")]
        packet: Distribution<u64>,
    },
    /// Video frames at regular times, each split into packets.
    Video {
        /// Frames.
        frames: Frames,
        /// Time between two frames.
        interval: Duration,
        /// Maximum packet length [bytes].
        packet: u64,
        /// True if the packets of a frame are spread over the frame interval.
        spread: bool,
        /// True if each flow starts at a random frame.
        random_start: bool,
    },
    /// Voice: packets at regular times during talk spurts.
    Voip {
        /// Packet length [bytes].
        packet: u64,
        /// Time between two packets.
        interval: Duration,
        /// Duration of a talk spurt.
        talk: Distribution<Duration>,
        /// Duration of a silence.
        silence: Distribution<Duration>,
        /// Codec.
        #[serde(skip)]
        codec: Codec,
        /// Delay that the jitter buffer adds to that of a call's first packet; `None` if it adapts.
        #[serde(skip_serializing_if = "Option::is_none")]
        jitter_buffer: Option<Duration>,
    },
    /// Replay of a packet capture, once.
    Replay {
        /// Capture.
        capture: Capture,
    },
}

/// A codec.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Codec {
    /// ITU-T G.711: 64 kbit/s.
    #[default]
    G711,
    /// ITU-T G.729: 8 kbit/s.
    G729,
}

impl Codec {
    /// Returns the value of the key `codec` in a scenario file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::G711 => "g711",
            Self::G729 => "g729",
        }
    }

    /// Returns the look-ahead of the encoder: voice after a packet's that it needs (ITU-T G.729, section 2.3).
    #[must_use]
    pub fn look_ahead(self) -> Duration {
        match self {
            Self::G711 => Duration::ZERO,
            Self::G729 => Duration::from_millis(5),
        }
    }
}

/// IPv4 and UDP headers of a datagram (RFC 791, RFC 768) [bytes].
pub const DATAGRAM_HEADER: u64 = 28;

impl Pattern {
    /// Returns the value of the key `kind` in a scenario file.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Cbr { .. } => "cbr",
            Self::Poisson { .. } => "poisson",
            Self::OnOff { .. } => "on_off",
            Self::Mmpp { .. } => "mmpp",
            Self::Video { .. } => "video",
            Self::Voip { .. } => "voip",
            Self::Replay { .. } => "replay",
        }
    }

    /// Returns the mean rate on the wire while the source is active: of MMPP the rate of the fastest state; of video and
    /// voice the rate of the frames.
    #[must_use]
    pub fn nominal_rate(&self) -> Rate {
        let over = |bytes: f64, time: Duration| 8.0 * bytes / time.as_secs_f64().max(1e-9);
        let bps = match self {
            Self::Cbr { rate, .. } | Self::Poisson { rate, .. } | Self::OnOff { rate, .. } => return *rate,
            Self::Mmpp { states, .. } => {
                return states.iter().map(|state| state.rate).max().unwrap_or_default();
            }
            Self::Video { frames: Frames::Trace(movie), interval, .. } => {
                let sum: f64 = movie.sizes.iter().map(|&size| f64::from(size)).sum();
                over(sum / movie.sizes.len().max(1) as f64, *interval)
            }
            Self::Video { frames: Frames::Gop(gop), interval, .. } => {
                let sizes = gop.pattern.chars().map(|kind| match kind {
                    'I' => gop.i.mean(),
                    'P' => gop.p.mean(),
                    _ => gop.b.mean(),
                });
                over(sizes.sum::<f64>() / gop.pattern.len().max(1) as f64, *interval)
            }
            Self::Voip { packet, interval, .. } => over(*packet as f64, *interval),
            Self::Replay { capture } => {
                let sum: f64 = capture.packets.iter().map(|&(_, len)| f64::from(len)).sum();
                over(sum, capture.packets.last().map_or(Duration::ZERO, |last| last.0))
            }
        };
        Rate::from_bps((bps as u64).max(1))
    }

    /// Returns the length of the longest packet; of lengths without bound, the mean [bytes].
    #[must_use]
    pub fn longest_packet(&self) -> f64 {
        match self {
            Self::Cbr { packet, .. }
            | Self::Poisson { packet, .. }
            | Self::OnOff { packet, .. }
            | Self::Mmpp { packet, .. } => packet.largest(),
            Self::Replay { capture } => {
                f64::from(capture.packets.iter().map(|&(_, len)| len).max().unwrap_or_default())
            }
            Self::Video { .. } | Self::Voip { .. } => self.typical_packet(),
        }
    }

    /// Returns the mean packet length; of video, the maximum [bytes].
    #[must_use]
    pub fn typical_packet(&self) -> f64 {
        match self {
            Self::Cbr { packet, .. }
            | Self::Poisson { packet, .. }
            | Self::OnOff { packet, .. }
            | Self::Mmpp { packet, .. } => packet.mean(),
            Self::Video { packet, .. } | Self::Voip { packet, .. } => *packet as f64,
            Self::Replay { capture } => {
                let sum: f64 = capture.packets.iter().map(|&(_, len)| f64::from(len)).sum();
                sum / capture.packets.len() as f64
            }
        }
    }
}

impl Distribution<u64> {
    /// Returns the largest value; of a distribution without bound, the mean.
    fn largest(&self) -> f64 {
        match self {
            Self::Uniform(_, high) => *high as f64,
            Self::Choice(choices) => choices.iter().map(|(_, choice)| choice.largest()).fold(0.0, f64::max),
            Self::Trace(samples) => samples.values.iter().copied().max().unwrap_or_default() as f64,
            other => other.mean(),
        }
    }
}

/// Serializes a constant packet length as a number.
fn length<S: Serializer>(packet: &Distribution<u64>, to: S) -> Result<S::Ok, S::Error> {
    match packet {
        Distribution::Fixed(bytes) => bytes.serialize(to),
        packet => packet.serialize(to),
    }
}

/// A state of an MMPP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct State {
    /// Mean rate.
    pub rate: Rate,
    /// Mean sojourn time, exponential.
    pub sojourn: Duration,
}

/// Source of video frames.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Frames {
    /// Frame sizes of a file, repeated from the start.
    Trace(Movie),
    /// Random frame sizes by position in a group of pictures.
    Gop(Gop),
}

/// Frame sizes of a file.
#[derive(Clone, Debug, Serialize)]
pub struct Movie {
    /// Frame sizes; at least one is positive [bytes].
    #[serde(skip)]
    pub sizes: Arc<[u32]>,
    /// Identity of the file.
    pub digest: Digest,
}

/// A group of pictures.
#[derive(Clone, Debug, Serialize)]
pub struct Gop {
    /// Sequence of frame types: I, P and B.
    pub pattern: String,
    /// Size of an I frame [bytes].
    pub i: Distribution<u64>,
    /// Size of a P frame [bytes].
    pub p: Distribution<u64>,
    /// Size of a B frame [bytes].
    pub b: Distribution<u64>,
}

/// Packets of a capture.
#[derive(Clone, Debug, Serialize)]
pub struct Capture {
    /// Time since the first packet, and length [bytes], in order of time.
    #[serde(skip)]
    pub packets: Arc<[(Duration, u32)]>,
    /// Identity of the file.
    pub digest: Digest,
}
