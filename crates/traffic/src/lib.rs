//! What applications send when, whatever carries it: generators of packets, without an engine.
//!
//! A [`Generator`] is asked for one step after the other. Each says how long after the one before it comes, and how long
//! its packet is; time and randomness are the caller's. Every step is a bounded amount of work: where nothing is sent
//! for a while, a step without a packet says so.

mod mmpp;
mod on_off;
mod replay;
mod steady;
mod video;

use bentpipe_scenario::{Distribution, Pattern};
use bentpipe_units::{Duration, Rng};

pub use mmpp::stationary;

/// The longest packet [bytes].
pub const LONGEST: u64 = 65_535;

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// How long after the last step; after the start, for the first.
    pub gap: Duration,
    /// Length of the packet that is sent then, as a datagram on the wire; 0: none is [bytes].
    pub len: u32,
}

impl Step {
    /// A step without a packet.
    const fn silent(gap: Duration) -> Self {
        Self { gap, len: 0 }
    }
}

/// Sends the packets of one flow.
#[derive(Clone, Debug)]
pub enum Generator {
    /// At a constant rate, or with exponential times between them.
    Steady(steady::Steady),
    /// At a constant rate, with pauses.
    OnOff(on_off::OnOff),
    /// At the rate of a Markov chain's state.
    Mmpp(mmpp::Mmpp),
    /// In frames.
    Video(video::Video),
    /// As they were captured.
    Replay(replay::Replay),
}

impl Generator {
    /// A flow of that pattern, at its start.
    #[must_use]
    pub fn new(pattern: &Pattern, rng: &mut Rng) -> Self {
        use on_off::{OnOff, Spacing};
        match pattern {
            Pattern::Cbr { rate, packet } => Self::Steady(steady::Steady::constant(*rate, packet)),
            Pattern::Poisson { rate, packet } => Self::Steady(steady::Steady::poisson(*rate, packet)),
            Pattern::OnOff { rate, packet, on, off } => {
                Self::OnOff(OnOff::new(Spacing::Rate(*rate), packet, on, off, rng))
            }
            Pattern::Voip { packet, interval, talk, silence } => Self::OnOff(OnOff::new(
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

    /// The next step; none where nothing is ever sent again.
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

/// A packet's length, drawn and cut to what a packet can be [bytes].
fn length(law: &Distribution<u64>, rng: &mut Rng) -> u32 {
    law.draw(rng).clamp(1, LONGEST) as u32
}
