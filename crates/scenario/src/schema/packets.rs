//! Sources of packets as a file gives them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::MOST;
use super::forms::Distribution;
use super::quantity::{
    AnyRate, PacketSize, PacketSizeKind, Rate, SizeKind, Span, SpanKind, Time, TimeKind, Whole,
};
use super::traffic::{no_time, one_flow};

/// Kinds of packet sources: what all of them have, and what is their own.
macro_rules! sources {
    ($($(#[$doc:meta])* $name:ident { $($own:tt)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            /// Where the data comes from: a group of hosts.
            pub from: String,
            /// Where it goes: a group of hosts.
            pub to: String,
            /// What carries the packets: an RTP, or the TCP or SCTP whose connection takes what they carry, one a flow.
            /// Absent: each packet is a datagram.
            pub transport: Option<String>,
            /// How many flows.
            #[serde(default = "one_flow")]
            pub flows: Whole<1, MOST>,
            $($own)*
            /// When each starts, from the beginning of the run: a time, or a distribution.
            #[serde(default = "no_time")]
            pub start: Distribution<TimeKind>,
            /// When they leave and when they come back, as often as they do, from the beginning of the run. A flow that
            /// comes back begins anew.
            #[serde(default)]
            pub away: Vec<[Time; 2]>,
        }

        impl Source for $name {
            fn common(&self) -> Common<'_> {
                let Self { from, to, transport, flows, start, away, .. } = self;
                Common { from, to, transport: transport.as_deref(), flows: flows.0, start, away }
            }
        }
    )*};
}

/// What all sources of packets have.
pub struct Common<'a> {
    pub from: &'a str,
    pub to: &'a str,
    pub transport: Option<&'a str>,
    pub flows: u32,
    pub start: &'a Distribution<TimeKind>,
    pub away: &'a [[Time; 2]],
}

/// A kind of packet source.
pub trait Source {
    fn common(&self) -> Common<'_>;
}

sources! {
    /// Packets at a constant rate. Flow i goes from host i to host i, counted round and round.
    Cbr {
        /// Rate of one flow, on the wire.
        pub rate: Rate,
        /// Length of a packet, as a datagram on the wire: a size, or a distribution.
        pub packet: Distribution<PacketSizeKind>,
    }

    /// Packets with exponential times between them. Flow i goes from host i to host i, counted round and round.
    Poisson {
        /// Mean rate of one flow, on the wire.
        pub rate: Rate,
        /// Length of a packet, as a datagram on the wire: a size, or a distribution.
        pub packet: Distribution<PacketSizeKind>,
    }

    /// Packets at a constant rate while a flow is on, none while it is off. Flow i goes from host i to host i, counted
    /// round and round.
    OnOff {
        /// Rate of one flow while it is on, on the wire.
        pub rate: Rate,
        /// Length of a packet, as a datagram on the wire: a size, or a distribution.
        pub packet: Distribution<PacketSizeKind>,
        /// How long a flow is on: a time, or a distribution.
        pub on: Distribution<SpanKind>,
        /// How long it is off: a time, or a distribution.
        pub off: Distribution<TimeKind>,
    }

    /// Packets with exponential times between them, at the rate of the state that a Markov chain is in. Flow i goes from
    /// host i to host i, counted round and round; each has a chain of its own.
    Mmpp {
        /// The states of the chain.
        pub states: Vec<State>,
        /// How likely each state follows, in relation to the others: a row for each state, with a number for each; none
        /// follows itself. Absent: each other one is as likely.
        pub transitions: Option<Vec<Vec<f64>>>,
        /// Length of a packet, as a datagram on the wire: a size, or a distribution.
        pub packet: Distribution<PacketSizeKind>,
    }

    /// Video: frames at regular times, each in as many packets as it needs. Flow i goes from host i to host i, counted
    /// round and round.
    Video {
        /// A file with the frames' sizes, as in the public library of Arizona State University: one size in each line, or
        /// index, type, time and size and perhaps more. `#` begins a comment.
        pub trace: Option<String>,
        /// Frames that are drawn, in place of a file.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub gop: Option<Gop>,
        /// Frames per second. Absent: as the times in the file say, or 25 with `gop`.
        pub fps: Option<f64>,
        /// The longest packet, as a datagram on the wire.
        #[serde(default = "ethernet")]
        pub packet: PacketSize,
        /// How the packets of a frame follow each other.
        #[serde(default = "burst")]
        pub send: Sending,
        /// Whether each flow begins at a frame of its own, drawn, or at the first.
        #[serde(default = "yes")]
        pub random_start: bool,
    }

    /// A voice in a conversation: packets at regular times while it talks, with 40 bytes of headers (IPv4, UDP, RTP).
    /// Flow i goes from host i to host i, counted round and round.
    Voip {
        /// How the voice is coded.
        #[serde(default = "g711")]
        pub codec: Codec,
        /// How much of it a packet carries: a multiple of 10 ms, at most 200 ms (RFC 3551, 4.2).
        #[serde(default = "voice_interval")]
        pub interval: Span,
        /// How long it talks. Absent: exponential with the mean of ITU-T P.59, 1.004 s.
        #[serde(default = "talk")]
        pub talk: Distribution<SpanKind>,
        /// How long it is silent. Absent: exponential with the mean of ITU-T P.59, 1.587 s.
        #[serde(default = "silence")]
        pub silence: Distribution<TimeKind>,
    }

    /// The packets of a capture: each as long after the first, and as long, as it was. Flow i goes from host i to host i,
    /// counted round and round; each sends all of it once.
    Replay {
        /// The capture, a pcap or pcapng file. All of its packets are taken, with their lengths on the wire.
        pub capture: String,
    }
}

/// A state of a Markov chain.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Mean rate of one flow in it, on the wire; zero perhaps.
    pub rate: AnyRate,
    /// How long it lasts in the mean; exponential.
    pub sojourn: Span,
}

/// A group of pictures: its frames' types, and their sizes, or the rate that they make.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gop {
    /// The types of its frames, from an I frame to the last before the next.
    #[serde(default = "pattern")]
    pub pattern: String,
    /// Mean rate of the frames, without headers. Frames of types I, P and B then are in the proportion 160 : 60 : 30, which
    /// is how Test Model 5 of MPEG-2 begins (X of 160, 60 and 42, with K of 1 and 1.4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// With `rate`: sizes of a type have an Erlang distribution of this shape. Absent: all of a type are alike.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<Whole<1, 1000>>,
    /// Size of an I frame, in place of `rate`: a size, or a distribution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub i: Option<Distribution<SizeKind>>,
    /// Size of a P frame: a size, or a distribution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p: Option<Distribution<SizeKind>>,
    /// Size of a B frame: a size, or a distribution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub b: Option<Distribution<SizeKind>>,
}

/// How the packets of a frame follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Sending {
    /// All at once.
    Burst,
    /// Evenly over the time to the next frame.
    Spread,
}

/// A codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Codec {
    /// ITU-T G.711: 64 kbit/s.
    G711,
    /// ITU-T G.729: 8 kbit/s.
    G729,
}

fn ethernet() -> PacketSize {
    PacketSize::of(1500)
}

fn burst() -> Sending {
    Sending::Burst
}

fn yes() -> bool {
    true
}

fn g711() -> Codec {
    Codec::G711
}

fn voice_interval() -> Span {
    Span::of(20_000_000)
}

fn talk() -> Distribution<SpanKind> {
    Distribution::exponential(Span::of(1_004_000_000))
}

fn silence() -> Distribution<TimeKind> {
    Distribution::exponential(Time::of(1_587_000_000))
}

fn pattern() -> String {
    "IBBPBBPBBPBB".to_owned()
}
