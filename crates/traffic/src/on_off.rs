//! Packets at a constant rate while a source is on, none while it is off.
//!
//! The source has a clock that runs only while it is on, and by that clock packets are as far apart as ever. So its mean
//! rate is the rate while it is on times the share of time that it is on, however short it is on at a time.

use bentpipe_scenario::Distribution;
use bentpipe_units::{Duration, Rate, Rng};

use crate::{Step, length};

/// How far apart packets are.
#[derive(Clone, Copy, Debug)]
pub enum Spacing {
    /// As long as a packet takes at this rate.
    Rate(Rate),
    /// Always as long.
    Time(Duration),
}

/// A source that is on and off.
#[derive(Clone, Debug)]
pub struct OnOff {
    spacing: Spacing,
    packet: Distribution<u64>,
    on: Distribution<Duration>,
    off: Distribution<Duration>,
    is_on: bool,
    /// How long it stays as it is.
    left: Duration,
    /// When the next packet is due, by the clock that runs while it is on.
    due: Duration,
}

impl OnOff {
    /// A source that is on with the probability that it is on at any time, for a whole time.
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

    /// The next packet, or the end of the time that it is on or off.
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
