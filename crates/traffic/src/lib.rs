//! Traffic generators: when applications send packets and of which length, independent of transport and engine.
//!
//! A [`Generator`] is asked for one step after the other: the time since the last one, and the length of its packet;
//! time and randomness come from the caller. Every step is a bounded amount of work: during a silence, a step has no
//! packet. [`dash`] and [`voice`] are applications at the receiver: a video player, and a listener's jitter buffer.

pub mod dash;
mod mmpp;
mod on_off;
mod presence;
mod replay;
mod steady;
mod video;
pub mod voice;

use bentpipe_scenario::{Distribution, Pattern};
use bentpipe_units::{Duration, Rng};

pub use mmpp::stationary;
pub use presence::Presence;

/// Connections of a browser to one server over HTTP/1.1.
pub const BROWSER_CONNECTIONS: u32 = 6;

/// Messages of a server in a TLS handshake, certificates included [bytes]: with them a probe of responsiveness is near the
/// 5000 bytes that draft-ietf-ippm-responsiveness estimates.
pub const TLS_FLIGHT: u64 = 4000;

/// Maximum length of a packet [bytes].
pub const MAX_PACKET: u64 = 65_535;

/// A step of a generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Time since the last step; for the first, since the start.
    pub gap: Duration,
    /// Length of the packet sent at this time, as a datagram on the wire; 0 without a packet [bytes].
    pub len: u32,
}

impl Step {
    /// A step without a packet.
    const fn silent(gap: Duration) -> Self {
        Self { gap, len: 0 }
    }
}

/// Generator of the packets of a flow.
#[derive(Clone, Debug)]
pub enum Generator {
    /// Constant rate, or exponential times between packets.
    Steady(steady::Steady),
    /// Constant rate with pauses.
    OnOff(on_off::OnOff),
    /// Rate of the state of a Markov chain.
    Mmpp(mmpp::Mmpp),
    /// Video frames.
    Video(video::Video),
    /// Packets of a capture.
    Replay(replay::Replay),
}

impl Generator {
    /// A flow of this pattern, at its start.
    #[must_use]
    pub fn new(pattern: &Pattern, rng: &mut Rng) -> Self {
        use on_off::{OnOff, Spacing};
        match pattern {
            Pattern::Cbr { rate, packet } => Self::Steady(steady::Steady::constant(*rate, packet)),
            Pattern::Poisson { rate, packet } => Self::Steady(steady::Steady::poisson(*rate, packet)),
            Pattern::OnOff { rate, packet, on, off } => {
                Self::OnOff(OnOff::new(Spacing::Rate(*rate), packet, on, off, rng))
            }
            Pattern::Voip { packet, interval, talk, silence, .. } => Self::OnOff(OnOff::new(
                Spacing::Time(*interval),
                &Distribution::Fixed(*packet),
                talk,
                silence,
                rng,
            )),
            Pattern::Mmpp { states, transitions, packet } => {
                Self::Mmpp(mmpp::Mmpp::new(states, transitions, packet, rng))
            }
            Pattern::Video { frames, interval, packet, spread, random_start } => {
                Self::Video(video::Video::new(frames, *interval, *packet, *spread, *random_start, rng))
            }
            Pattern::Replay { capture } => Self::Replay(replay::Replay::new(capture)),
        }
    }

    /// Returns the next step; `None` if nothing will be sent any more.
    #[inline]
    pub fn next(&mut self, rng: &mut Rng) -> Option<Step> {
        match self {
            Self::Steady(source) => Some(source.next(rng)),
            Self::OnOff(source) => Some(source.next(rng)),
            Self::Mmpp(source) => Some(source.next(rng)),
            Self::Video(source) => Some(source.next(rng)),
            Self::Replay(source) => source.next(),
        }
    }
}

/// Draws the length of a packet and limits it to the possible lengths [bytes].
fn length(distribution: &Distribution<u64>, rng: &mut Rng) -> u32 {
    distribution.draw(rng).clamp(1, MAX_PACKET) as u32
}
