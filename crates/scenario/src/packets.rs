//! Sources of packets: what an application sends when, whatever carries it.

use std::sync::Arc;

use bentpipe_units::{Duration, Rate};
use serde::{Serialize, Serializer};

use crate::canonical::{bps, law_of_bytes, law_of_time, length, ns};
use crate::distribution::Distribution;
use crate::files::Digest;

/// Flows of packets.
#[derive(Clone, Debug, Serialize)]
pub struct Packets {
    /// The transport that carries them (an index); none: each is a datagram.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<usize>,
    /// How many flows.
    pub flows: u32,
    /// What each sends when.
    #[serde(flatten, serialize_with = "shared")]
    pub pattern: Arc<Pattern>,
    /// When each starts, from the beginning of the run.
    #[serde(serialize_with = "law_of_time")]
    pub start: Distribution<Duration>,
    /// When all are away.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub away: Vec<Absence>,
}

fn shared<S: Serializer>(pattern: &Arc<Pattern>, to: S) -> Result<S::Ok, S::Error> {
    pattern.as_ref().serialize(to)
}

/// A time during which long-running traffic is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Absence {
    /// When it leaves, from the beginning of the run.
    #[serde(serialize_with = "ns")]
    pub from: Duration,
    /// When it comes back.
    #[serde(serialize_with = "ns")]
    pub until: Duration,
}

/// What a source sends when. Lengths are those of datagrams on the wire, headers included [bytes].
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Pattern {
    /// A packet as soon as the one before it would have been sent at this rate.
    Cbr {
        /// The rate.
        #[serde(serialize_with = "bps")]
        rate: Rate,
        /// Length of a packet.
        #[serde(serialize_with = "length")]
        packet: Distribution<u64>,
    },
    /// Exponential times between packets.
    Poisson {
        /// The mean rate.
        #[serde(serialize_with = "bps")]
        rate: Rate,
        /// Length of a packet.
        #[serde(serialize_with = "length")]
        packet: Distribution<u64>,
    },
    /// A constant rate while it is on, nothing while it is off.
    OnOff {
        /// The rate while it is on.
        #[serde(serialize_with = "bps")]
        rate: Rate,
        /// Length of a packet.
        #[serde(serialize_with = "length")]
        packet: Distribution<u64>,
        /// How long it is on.
        #[serde(serialize_with = "law_of_time")]
        on: Distribution<Duration>,
        /// How long it is off.
        #[serde(serialize_with = "law_of_time")]
        off: Distribution<Duration>,
    },
    /// A Poisson source whose rate is that of the state a Markov chain is in.
    Mmpp {
        /// The states; two at least.
        states: Vec<State>,
        /// The probabilities that a state is followed by each of them, a row for each state.
        transitions: Vec<Vec<f64>>,
        /// Length of a packet.
        #[serde(serialize_with = "length")]
        packet: Distribution<u64>,
    },
    /// Frames at regular times, each in as many packets as it needs.
    Video {
        /// The frames.
        frames: Frames,
        /// Time between two frames.
        #[serde(serialize_with = "ns")]
        interval: Duration,
        /// The longest packet [bytes].
        packet: u64,
        /// Whether a frame's packets are spread over the time to the next frame.
        spread: bool,
        /// Whether each flow begins at a frame of its own.
        random_start: bool,
    },
    /// Packets at regular times while somebody talks.
    Voip {
        /// Length of a packet [bytes].
        packet: u64,
        /// Time between two packets.
        #[serde(serialize_with = "ns")]
        interval: Duration,
        /// How long somebody talks.
        #[serde(serialize_with = "law_of_time")]
        talk: Distribution<Duration>,
        /// How long nobody does.
        #[serde(serialize_with = "law_of_time")]
        silence: Distribution<Duration>,
    },
    /// The packets of a capture, once.
    Replay {
        /// The capture.
        capture: Capture,
    },
}

/// Headers of a datagram: IPv4 and UDP (RFC 791, RFC 768) [bytes].
pub const DATAGRAM_HEADER: u64 = 28;

impl Pattern {
    /// The key `kind` that a file gives it.
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

    /// What it sends while it sends, on the wire: the mean rate, of the fastest state where there are several. A video's
    /// and a voice's is that of their frames.
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
                    'I' | 'i' => gop.i.mean(),
                    'P' | 'p' => gop.p.mean(),
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

    /// The length of a packet, the mean where it differs from packet to packet; of a frame's packets the longest
    /// [bytes].
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

/// A state of a Markov chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct State {
    /// The mean rate in it.
    #[serde(serialize_with = "bps")]
    pub rate: Rate,
    /// How long it lasts in the mean; exponential.
    #[serde(serialize_with = "ns")]
    pub sojourn: Duration,
}

/// Where a video's frames come from.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Frames {
    /// From a file, in its order, again from the beginning at its end.
    Trace(Movie),
    /// Drawn, by the place of a frame in its group of pictures.
    Gop(Gop),
}

/// The frames of a file.
#[derive(Clone, Debug, Serialize)]
pub struct Movie {
    /// Their sizes; one of them at least is above zero [bytes].
    #[serde(skip)]
    pub sizes: Arc<[u32]>,
    /// What tells the file from every other.
    pub digest: Digest,
}

/// A group of pictures.
#[derive(Clone, Debug, Serialize)]
pub struct Gop {
    /// The types of its frames: I, P and B.
    pub pattern: String,
    /// Size of an I frame.
    #[serde(serialize_with = "law_of_bytes")]
    pub i: Distribution<u64>,
    /// Size of a P frame.
    #[serde(serialize_with = "law_of_bytes")]
    pub p: Distribution<u64>,
    /// Size of a B frame.
    #[serde(serialize_with = "law_of_bytes")]
    pub b: Distribution<u64>,
}

/// The packets of a capture.
#[derive(Clone, Debug, Serialize)]
pub struct Capture {
    /// When each comes, from the first, and its length [bytes]; in order of time.
    #[serde(skip)]
    pub packets: Arc<[(Duration, u32)]>,
    /// What tells the file from every other.
    pub digest: Digest,
}
