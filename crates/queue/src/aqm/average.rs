//! RED's weighted average of the queue length, and its parameters.
//!
//! Floyd & Jacobson 1993, section IV: each arrival at a queue that holds packets or whose link is busy updates the
//! average, `avg += w_q (q - avg)`; an arrival at an idle link decays it as if `m` packets had found the queue empty,
//! `avg *= (1 - w_q)^m`, where `m` is the number of packets that the link could have sent in the idle time.

use bentpipe_units::Instant;

use crate::fluid::{FluidConfig, FluidVariant, Inputs};
use crate::{Context, Param, Range, Tune, Unit, Values};

/// Weight of a sample, by default that of RED 1.
pub(super) const W_Q: Param = Param::number("w_q", Unit::One, 0.02, Range::above(0.0, 1.0))
    .doc("Weight of the newest sample in the average")
    .origin("RED 1, [B07] Table 3.1")
    .tune(Tune::Log(0.0002, 0.2));

/// Probability at the upper threshold, by default that of RED 1.
pub(super) const MAX_P: Param = Param::number("max_p", Unit::One, 0.5, Range::above(0.0, 1.0))
    .doc("Marking probability at `max_th`")
    .origin("RED 1, [B07] Table 3.1")
    .tune(Tune::Log(0.01, 1.0));

/// Packet length in which the idle time is counted.
pub(super) const MEAN_PACKET: Param =
    Param::from_link("mean_packet", Unit::Bytes, Range::above(0.0, 65535.0), |link| link.mean_packet)
        .default_doc("the link's mean packet")
        .doc("Mean length of a packet, for the decay of the average while the link is idle")
        .origin("the longest packet of the traffic");

/// A weighted average of a queue's length.
#[derive(Debug)]
pub(super) struct Average {
    w_q: f64,
    mean_packet: f64,
    /// Count idle time in whole packets plus one, as the arrival is a sample of an empty queue (ns-2).
    ns2: bool,
    /// The average [packets].
    pub avg: f64,
    /// Time up to which the idle time has been taken into account.
    decayed: Instant,
}

impl Average {
    /// The average of an empty queue; `ns2` selects ns-2's count of idle time.
    pub fn new(v: &Values, ns2: bool) -> Self {
        let (w_q, mean_packet) = (v.number("w_q"), v.number("mean_packet"));
        Self { w_q, mean_packet, ns2, avg: 0.0, decayed: Instant::ZERO }
    }

    /// Continues with the value of another average.
    pub fn resume(&mut self, was: &Self) {
        (self.avg, self.decayed) = (was.avg, was.decayed);
    }

    /// Returns true if idle time is counted as in ns-2.
    pub fn ns2(&self) -> bool {
        self.ns2
    }

    /// Takes a sample of the watched queue and returns the average.
    #[inline]
    pub fn sample(&mut self, cx: &Context<'_>) -> f64 {
        if cx.queue.idle_since.is_none() {
            self.avg += self.w_q * (f64::from(cx.queue.packets) - self.avg);
        } else {
            self.decay(cx);
        }
        self.avg
    }

    /// Takes the idle time of the link into account.
    #[cold]
    pub fn decay(&mut self, cx: &Context<'_>) {
        if let Some(since) = cx.queue.idle_since {
            let idle = (cx.now - since.max(self.decayed)).as_secs_f64();
            let m = idle * cx.queue.capacity.bytes_per_sec() / self.mean_packet;
            let m = if self.ns2 { m.floor() + 1.0 } else { m };
            self.avg *= libm::pow(1.0 - self.w_q, m);
            self.decayed = cx.now;
        }
    }
}

/// The average of a fluid queue: see RED's fluid model.
pub(super) struct Follow {
    w_q: f64,
    variant: FluidVariant,
}

impl Follow {
    pub fn new(v: &Values, given: &FluidConfig) -> Self {
        Self { w_q: v.number("w_q"), variant: given.variant }
    }

    /// Rate of change of the average `avg` [packets/s]. With a weight of 1 it follows the queue as closely as the resolution
    /// of time allows.
    ///
    /// Each packet that finds the link busy is a sample, and an idle link decays the average as if as many packets as
    /// it could send had found the queue empty. In the papers' models the time between samples is that between
    /// arrivals; here it is at most that between packets on the link.
    pub fn change(&self, avg: f64, inputs: &Inputs) -> f64 {
        let samples = match self.variant {
            FluidVariant::Printed => inputs.offered.max(inputs.capacity),
            FluidVariant::Actual => inputs.offered + inputs.idle() * (inputs.capacity - inputs.offered),
        };
        let rate = (-libm::log1p(-self.w_q) * samples).min(1.0 / inputs.resolution);
        rate * (inputs.q - avg)
    }
}

#[cfg(test)]
mod tests {
    use super::super::red;
    use super::super::steps::{INPUTS, Steps};
    use super::*;
    use crate::Value;

    /// `w_q` = 1/2 halves the distance of 6 packets with each sample. A link of 1000 packets/s that sends 400 is idle for 0.6
    /// of the time; then the samples are 400 arrivals and 0.6 600 packets that it could have sent besides. The printed
    /// model has a sample per packet time at least. With `w_q` = 1 the average reaches the queue in the shortest time, 1 ms.
    #[test]
    fn fluid_average_follows_the_queue_with_each_sample() {
        use FluidVariant::{Actual, Printed};
        let half = std::f64::consts::LN_2;
        for (variant, w_q, offered, output, rate) in [
            (Actual, 0.5, 400.0, 400.0, half * 760.0),
            (Actual, 0.5, 1300.0, 1000.0, half * 1300.0),
            (Printed, 0.5, 400.0, 400.0, half * 1000.0),
            (Printed, 0.5, 1300.0, 1000.0, half * 1300.0),
            (Actual, 1.0, 400.0, 400.0, 1000.0),
        ] {
            let values = Steps::values(&red::ALGORITHM, &[("w_q", Value::Number(w_q))]);
            let average = Follow::new(&values, &FluidConfig { packet: 1000.0, limit: 1000.0, variant });
            let inputs = Inputs { q: 10.0, offered, output, resolution: 1e-3, ..INPUTS };
            let found = average.change(4.0, &inputs);
            assert!((found - 6.0 * rate).abs() < 1e-9, "{variant:?}, {w_q}, {offered}: {found}");
        }
    }
}
