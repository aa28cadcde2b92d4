//! Packets at one rate: constant, or with exponential times between packets.

use bentpipe_scenario::Distribution;
use bentpipe_units::{Duration, Rate, Rng};

use crate::{MAX_PACKET, Step, length};

/// A source without pauses and rate changes.
#[derive(Clone, Debug)]
pub struct Steady {
    packet: Distribution<u64>,
    times: Times,
}

#[derive(Clone, Debug)]
enum Times {
    /// The next packet follows after the transmission time of the last one at this rate; the first is sent at once.
    Constant { rate: Rate, last: Option<u32> },
    /// Mean time to the next packet [s].
    Exponential(f64),
}

/// Mean time between packets for a rate [s].
pub(crate) fn mean_gap(rate: Rate, packet: &Distribution<u64>) -> f64 {
    packet.mean_up_to(MAX_PACKET as f64) / rate.bytes_per_sec()
}

impl Steady {
    /// A source with a constant rate.
    #[must_use]
    pub fn constant(rate: Rate, packet: &Distribution<u64>) -> Self {
        Self { packet: packet.clone(), times: Times::Constant { rate, last: None } }
    }

    /// A Poisson process with this mean rate.
    #[must_use]
    pub fn poisson(rate: Rate, packet: &Distribution<u64>) -> Self {
        Self { packet: packet.clone(), times: Times::Exponential(mean_gap(rate, packet)) }
    }

    /// Returns the next packet.
    #[inline]
    pub fn next(&mut self, rng: &mut Rng) -> Step {
        let gap = match &self.times {
            Times::Constant { rate, last } => {
                last.map_or(Duration::ZERO, |last| rate.time_to_send(u64::from(last)))
            }
            Times::Exponential(mean) => Duration::from_secs_f64(rng.exponential(*mean)),
        };
        let len = length(&self.packet, rng);
        if let Times::Constant { last, .. } = &mut self.times {
            *last = Some(len);
        }
        Step { gap, len }
    }
}
