//! Packet sources.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::dscp::Dscp;
use super::forms::Distribution;
use super::profile::Profile;
use super::quantity::{
    AnyRate, PacketSize, PacketSizeKind, Period, PeriodKind, Rate, SizeKind, Span, Time, TimeKind, Whole,
};
use super::traffic::{Common, Source, no_time};
use super::{MOST, SECOND};
use crate::model::{Application, Codec};

/// Defines the kinds of packet sources: common keys plus those of the kind.
macro_rules! sources {
    ($($(#[$doc:meta])* $name:ident { $($own:tt)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            /// Senders: a group of hosts.
            pub from: String,
            /// Receivers: a group of hosts.
            pub to: String,
            /// Transport: RTP, or TCP, SCTP or QUIC with one connection per flow, which carries the packets' payload. Default: each
            /// packet is a UDP datagram.
            pub transport: Option<String>,
            /// Number of flows.
            #[serde(default = "Whole::<1, MOST>::just::<1>")]
            pub flows: Whole<1, MOST>,
            $($own)*
            /// Start time, since the beginning of the run: a time or a distribution.
            #[serde(default = "no_time")]
            pub start: Distribution<TimeKind>,
            /// Periods of absence: pairs of departure and return, since the beginning of the run. A flow restarts at its
            /// return.
            #[serde(default)]
            pub away: Vec<[Time; 2]>,
            /// Codepoint (DSCP) of the packets in both directions. Default: "CS0".
            #[serde(skip_serializing_if = "Option::is_none")]
            pub dscp: Option<Dscp>,
            /// Application whose users judge the packets: results give the share that is lost, or later than the `deadline`.
            /// Default: unknown, judged by loss alone.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub application: Option<Application>,
            /// One-way delay above which a packet is of no use to the application. Default: 200 ms for `game`, 10 s for `iot`.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub deadline: Option<Span>,
            /// Load over a day: the share of the flows that are present, with times of day, linear between them. Default: constant.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub profile: Option<Profile>,
            /// Class of traffic, for which results are given. Default: the name of the traffic.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub class: Option<String>,
        }

        impl Source for $name {
            fn common(&self) -> Common<'_> {
                let Self { from, to, transport, dscp, profile, class, .. } = self;
                let (transport, class) = (transport.as_deref(), class.as_deref());
                Common { from, to, transport, dscp: *dscp, profile: profile.as_ref(), class }
            }

            fn packets(&self) -> Option<Packets<'_>> {
                let Self { flows, start, away, application, deadline, .. } = self;
                Some(Packets { flows: flows.0, start, away, application: *application, deadline: *deadline })
            }
        }
    )*};
}

/// Keys that all packet sources have in common.
pub struct Packets<'a> {
    pub flows: u32,
    pub start: &'a Distribution<TimeKind>,
    pub away: &'a [[Time; 2]],
    pub application: Option<Application>,
    pub deadline: Option<Span>,
}

sources! {
    /// Constant bit rate. Flow i connects host i of both groups, modulo the sizes of the groups.
    Cbr {
        /// Rate of a flow, on the wire.
        pub rate: Rate,
        /// Packet length, as a datagram on the wire: a size or a distribution.
        pub packet: Distribution<PacketSizeKind>,
    }

    /// Exponential interarrival times. Flow i connects host i of both groups, modulo the sizes of the groups.
    Poisson {
        /// Mean rate of a flow, on the wire.
        pub rate: Rate,
        /// Packet length, as a datagram on the wire: a size or a distribution.
        pub packet: Distribution<PacketSizeKind>,
    }

    /// Alternation between a constant bit rate and silence. Flow i connects host i of both groups, modulo the sizes of
    /// the groups.
    OnOff {
        /// Rate of a flow in the on state, on the wire.
        pub rate: Rate,
        /// Packet length, as a datagram on the wire: a size or a distribution.
        pub packet: Distribution<PacketSizeKind>,
        /// Duration of the on state: a time or a distribution.
        pub on: Distribution<PeriodKind>,
        /// Duration of the off state: a time or a distribution.
        pub off: Distribution<TimeKind>,
    }

    /// Markov-modulated Poisson process, independent for each flow. Flow i connects host i of both groups, modulo the
    /// sizes of the groups.
    Mmpp {
        /// States of the chain.
        pub states: Vec<State>,
        /// Relative transition probabilities: a row per state with an entry per state; the diagonal is zero. Default:
        /// all other states are equally likely.
        pub transitions: Option<Vec<Vec<f64>>>,
        /// Packet length, as a datagram on the wire: a size or a distribution.
        pub packet: Distribution<PacketSizeKind>,
    }

    /// Video: frames at regular times, each split into packets. Flow i connects host i of both groups, modulo the sizes
    /// of the groups.
    Video {
        /// File of frame sizes, as in the public library of Arizona State University: one size per line, or index,
        /// type, time and size and possibly more. `#` starts a comment.
        pub trace: Option<String>,
        /// Random frame sizes, in place of a file.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub gop: Option<Gop>,
        /// Frames per second. Default: from the times in the file, or 25 with `gop`.
        pub fps: Option<f64>,
        /// Maximum packet length, as a datagram on the wire.
        #[serde(default = "PacketSize::just::<1500>")]
        pub packet: PacketSize,
        /// Transmission of the packets of a frame.
        #[serde(default)]
        pub send: Sending,
        /// True if each flow starts at a random frame, false if at the first.
        #[serde(default = "yes")]
        pub random_start: bool,
    }

    /// Voice of one speaker in a conversation: packets at regular times during talk spurts, with 40 bytes of headers
    /// (IPv4, UDP, RTP). Flow i connects host i of both groups, modulo the sizes of the groups.
    Voip {
        /// Codec.
        #[serde(default)]
        pub codec: Codec,
        /// Voice per packet: a multiple of 10 ms, at most 200 ms (RFC 3551, 4.2).
        #[serde(default = "Span::just::<{ SECOND / 50 }>")]
        pub interval: Span,
        /// Duration of a talk spurt. Default: exponential with the mean of ITU-T P.59, 1.004 s.
        #[serde(default = "talk")]
        pub talk: Distribution<PeriodKind>,
        /// Duration of a silence. Default: exponential with the mean of ITU-T P.59, 1.587 s.
        #[serde(default = "silence")]
        pub silence: Distribution<TimeKind>,
        /// Delay that the receiver's jitter buffer adds to that of a call's first packet; later packets are lost to the
        /// listener. Default: the delay follows that of the packets (Ramjee et al. 1994, algorithm 1).
        #[serde(skip_serializing_if = "Option::is_none")]
        pub jitter_buffer: Option<Time>,
    }

    /// Replay of a packet capture with its interarrival times and lengths. Flow i connects host i of both groups,
    /// modulo the sizes of the groups; each replays the capture once.
    Replay {
        /// Packet capture, a pcap or pcapng file. All of its packets are used, with their lengths on the wire.
        pub capture: String,
    }
}

/// A state of an MMPP.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Mean rate of a flow, on the wire; may be zero.
    pub rate: AnyRate,
    /// Mean sojourn time, exponential.
    pub sojourn: Period,
}

/// A group of pictures: its frame types, and their sizes or mean rate.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gop {
    /// Frame types, from an I frame to the last frame before the next.
    #[serde(default = "pattern")]
    pub pattern: String,
    /// Mean rate of the frames, without headers. Sizes of I, P and B frames are then in the proportion 160 : 60 : 30,
    /// the initial values of Test Model 5 of MPEG-2 (X of 160, 60 and 42, with K of 1 and 1.4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// With `rate`: shape of the Erlang distribution of the sizes of a type. Default: all frames of a type have the
    /// same size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<Whole<1, 1000>>,
    /// Size of an I frame, in place of `rate`: a size or a distribution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub i: Option<Distribution<SizeKind>>,
    /// Size of a P frame: a size or a distribution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p: Option<Distribution<SizeKind>>,
    /// Size of a B frame: a size or a distribution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub b: Option<Distribution<SizeKind>>,
}

/// Transmission of the packets of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Sending {
    /// In one burst.
    #[default]
    Burst,
    /// Spread evenly over the frame interval.
    Spread,
}

fn yes() -> bool {
    true
}

fn talk() -> Distribution<PeriodKind> {
    Distribution::exponential(Period::of(1_004_000_000))
}

fn silence() -> Distribution<TimeKind> {
    Distribution::exponential(Time::of(1_587_000_000))
}

fn pattern() -> String {
    "IBBPBBPBBPBB".to_owned()
}
