//! Packets at a constant rate while a source is on, none while it is off.
//!
//! The source has a clock that runs only while it is on, and by that clock packets are equally spaced. So its mean rate
//! is the rate while on times the share of time that it is on, even if the on times are shorter than the spacing.

use bentpipe_scenario::Distribution;
use bentpipe_units::{Duration, Rate, Rng};

use crate::{Step, length};

/// Spacing of packets.
#[derive(Clone, Copy, Debug)]
pub enum Spacing {
    /// Transmission time of a packet at this rate.
    Rate(Rate),
    /// Constant time.
    Time(Duration),
}

/// A source that alternates between on and off.
#[derive(Clone, Debug)]
pub struct OnOff {
    spacing: Spacing,
    packet: Distribution<u64>,
    on: Distribution<Duration>,
    off: Distribution<Duration>,
    is_on: bool,
    /// Time left in this state.
    left: Duration,
    /// Time to the next packet by the clock that runs while the source is on.
    due: Duration,
}

impl OnOff {
    /// A source that is on with its stationary probability, at the start of a complete on or off time.
    #[must_use]
    pub fn new(
        spacing: Spacing,
        packet: &Distribution<u64>,
        on: &Distribution<Duration>,
        off: &Distribution<Duration>,
        rng: &mut Rng,
    ) -> Self {
        let (mean_on, mean_off) = (on.mean().as_secs_f64(), off.mean().as_secs_f64());
        let is_on = rng.uniform() * (mean_on + mean_off) < mean_on;
        let left = if is_on { on.draw(rng) } else { off.draw(rng) };
        let (packet, on, off) = (packet.clone(), on.clone(), off.clone());
        Self { spacing, packet, on, off, is_on, left, due: Duration::ZERO }
    }

    /// Returns the next packet or the end of the on or off time.
    #[inline]
    pub fn next(&mut self, rng: &mut Rng) -> Step {
        if self.is_on && self.due <= self.left {
            let (gap, len) = (self.due, length(&self.packet, rng));
            self.left = self.left.saturating_sub(gap);
            self.due = match self.spacing {
                Spacing::Rate(rate) => rate.time_to_send(u64::from(len)),
                Spacing::Time(time) => time,
            };
            return Step { gap, len };
        }
        let gap = self.left;
        if self.is_on {
            self.due = self.due.saturating_sub(gap);
        }
        self.is_on = !self.is_on;
        self.left = if self.is_on { self.on.draw(rng) } else { self.off.draw(rng) };
        Step::silent(gap)
    }
}
