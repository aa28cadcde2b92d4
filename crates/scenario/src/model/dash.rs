//! Adaptive video.

use std::sync::Arc;

use bentpipe_units::{Duration, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::distribution::Distribution;
use super::indexes::TransportIndex;
use super::packets::Absence;
use super::traffic::Ramp;

/// Adaptive video: viewers (the hosts of `to`) fetch segments from servers (the hosts of `from`), over one connection per
/// viewing.
#[derive(Clone, Debug, Serialize)]
pub struct Dash {
    /// Transport: TCP or QUIC.
    pub transport: TransportIndex,
    /// Number of viewers.
    pub flows: u32,
    /// Rates of the encodings, in ascending order; at least one.
    pub ladder: Arc<[Rate]>,
    /// Duration of a segment.
    pub segment: Duration,
    /// Maximum of media in the buffer; at least two segments.
    pub buffer: Duration,
    /// Media in the buffer with which playback begins; at most the whole segments that fit into the buffer.
    pub startup: Duration,
    /// Media in the buffer with which playback continues after a stall; at most the whole segments that fit into the buffer.
    pub rebuffer: Duration,
    /// Choice of the next segment's rate.
    pub controller: Controller,
    /// Size of a segment relative to its rate times its duration [1e-6]; `None` if the bit rate is constant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_variation: Option<Distribution<u64>>,
    /// Size of a request [bytes].
    pub request_size: u64,
    /// Duration of a viewing; `None` if it lasts to the end of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watch: Option<Distribution<Duration>>,
    /// Time between two viewings of a viewer.
    pub think_time: Distribution<Duration>,
    /// Start time of a viewer, since the beginning of the run.
    pub start: Distribution<Duration>,
    /// Ramp of viewers' starts, to which `start` is added; `None` if all start at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ramp: Option<Ramp>,
    /// Periods of absence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub away: Vec<Absence>,
}

/// Choice of the next segment's rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Controller {
    /// By the buffer's level: BBA-0 (Huang, Johari, McKeown, Trunnell & Watson, SIGCOMM 2014, section 4, algorithm 1).
    #[default]
    Bba,
    /// By the buffer's level: BOLA-BASIC (Spiteri, Urgaonkar & Sitaraman, INFOCOM 2016).
    Bola,
    /// By the throughput of the last segments: the highest rate of at most 85 % of the harmonic mean of the last 20 (Jiang,
    /// Sekar & Zhang: FESTIVE, CoNEXT 2012).
    Rate,
}
