//! Adaptive video.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::dscp::Dscp;
use super::forms::Distribution;
use super::profile::Profile;
use super::quantity::{PercentageKind, Period, Rate, Size, Span, SpanKind, Time, TimeKind, Whole};
use super::traffic::{Ramp, default_transport, no_time};
use super::{MOST, SECOND};
use crate::model::Controller;

/// Adaptive video over HTTP (ISO/IEC 23009-1, DASH): viewers fetch segment after segment from servers, each at a rate of the
/// ladder that a controller chooses, over one connection per viewing. Viewer i belongs to client i and server i, modulo
/// the sizes of the groups.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Dash {
    /// Servers, which send the data: a group of hosts.
    pub from: String,
    /// Viewers: a group of hosts.
    pub to: String,
    /// Name of a transport: TCP, or QUIC.
    #[serde(default = "default_transport")]
    pub transport: String,
    /// Number of viewers.
    #[serde(default = "Whole::<1, MOST>::just::<1>")]
    pub flows: Whole<1, MOST>,
    /// Rates of the encodings, in ascending order. Default: the H.264 variants that Apple recommends (HLS Authoring
    /// Specification for Apple Devices, video average bit rates).
    #[serde(default = "ladder")]
    pub ladder: Vec<Rate>,
    /// Duration of a segment.
    #[serde(default = "Period::just::<{ 4 * SECOND }>")]
    pub segment: Period,
    /// Maximum of media in the buffer: the client waits until there is room for a whole segment. At least two segments.
    #[serde(default = "Span::just::<{ 30 * SECOND }>")]
    pub buffer: Span,
    /// Media in the buffer with which playback begins. Default: one segment.
    pub startup: Option<Span>,
    /// Media in the buffer with which playback continues after a stall. Default: `startup`.
    pub rebuffer: Option<Span>,
    /// Choice of the next segment's rate.
    #[serde(default)]
    pub controller: Controller,
    /// Size of a segment relative to its rate times its duration: a percentage or a distribution. Default: constant bit
    /// rate.
    pub size_variation: Option<Distribution<PercentageKind>>,
    /// Size of a request.
    #[serde(default = "Size::just::<300>")]
    pub request_size: Size,
    /// Duration of a viewing, from its request to the viewer's leaving: a time or a distribution. Default: to the end of the
    /// run.
    pub watch: Option<Distribution<SpanKind>>,
    /// Time between two viewings of a viewer: a time or a distribution.
    #[serde(default = "no_time")]
    pub think_time: Distribution<TimeKind>,
    /// Start time of a viewer, since the beginning of the run: a time or a distribution.
    #[serde(default = "no_time")]
    pub start: Distribution<TimeKind>,
    /// Ramp of viewers' starts, to which `start` is added. Default: all start at once.
    pub ramp: Option<Ramp>,
    /// Periods of absence: pairs of departure and return, since the beginning of the run. Viewers leave at the departure, and
    /// begin another viewing at the return.
    #[serde(default)]
    pub away: Vec<[Time; 2]>,
    /// Codepoint (DSCP) of the packets in both directions. Default: "CS0".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dscp: Option<Dscp>,
    /// Load over a day: the share of the viewers who are present, with times of day, linear between them. Default: constant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// Class of traffic, for which results are given. Default: the name of the traffic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
}

fn ladder() -> Vec<Rate> {
    [145, 365, 730, 1100, 2000, 3000, 4500, 6000, 7800].map(|kbps| Rate::of(1000 * kbps)).to_vec()
}
