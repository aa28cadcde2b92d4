//! RED's weighted average of a queue's length, and the parameters that come with it.
//!
//! Floyd & Jacobson 1993, section IV: each arrival at a queue that holds packets or whose link is busy moves the average
//! towards the queue's length, `avg += w_q (q - avg)`; one at an idle link lets it decay as if `m` packets had found the
//! queue empty, `avg *= (1 - w_q)^m`, with `m` the number that the link could have sent in the idle time.

use bentpipe_units::Instant;

use crate::fluid::{FluidConfig, FluidForm, Inputs};
use crate::{Context, Param, Range, Tune, Unit, Values};

/// The weight of a sample, by default that of RED 1.
pub(super) const W_Q: Param = Param::number(
    "w_q",
    Unit::One,
    0.02,
    Range::above(0.0, 1.0),
    "Weight of the newest sample in the average",
)
.origin("RED 1, [B07] Table 3.1")
.tune(Tune::Log(0.0002, 0.2));

/// The probability at the upper threshold, by default that of RED 1.
pub(super) const MAX_P: Param =
    Param::number("max_p", Unit::One, 0.5, Range::above(0.0, 1.0), "Marking probability at `max_th`")
        .origin("RED 1, [B07] Table 3.1")
        .tune(Tune::Log(0.01, 1.0));

/// The length of a packet that the idle time is counted in.
pub(super) const MEAN_PACKET: Param = Param::from_link(
    "mean_packet",
    Unit::Bytes,
    |link| link.mean_packet,
    "the link's mean packet",
    Range::above(0.0, 65535.0),
    "Mean length of a packet, for the decay of the average while the link is idle",
)
.origin("the longest packet of the traffic");

/// A weighted average of a queue's length.
#[derive(Debug)]
pub(super) struct Average {
    w_q: f64,
    mean_packet: f64,
    /// Count idle time in whole packets and one more, for the arrival is a sample of an empty queue (ns-2).
    ns2: bool,
    /// The average [packets].
    pub avg: f64,
    /// Up to when an idle link has been taken into account.
    decayed: Instant,
}

impl Average {
    /// Of an empty queue; `ns2` as that program counts.
    pub fn new(v: &Values, ns2: bool) -> Self {
        let (w_q, mean_packet) = (v.number("w_q"), v.number("mean_packet"));
        Self { w_q, mean_packet, ns2, avg: 0.0, decayed: Instant::ZERO }
    }

    /// Whether it counts as ns-2 does.
    pub fn ns2(&self) -> bool {
        self.ns2
    }

    /// A sample of the watched queue. Gives the average.
    #[inline]
    pub fn sample(&mut self, cx: &Context<'_>) -> f64 {
        if cx.queue.idle_since.is_none() {
            self.avg += self.w_q * (f64::from(cx.queue.packets) - self.avg);
        } else {
            self.decay(cx);
        }
        self.avg
    }

    /// Takes the time into account for which the link has been idle, if it is.
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

/// The average of a fluid queue: see RED's law.
pub(super) struct Follow {
    w_q: f64,
    form: FluidForm,
}

impl Follow {
    pub fn new(v: &Values, given: &FluidConfig) -> Self {
        Self { w_q: v.number("w_q"), form: given.form }
    }

    /// How fast the average `avg` changes [packets/s]. A weight of 1 makes it the queue itself, as closely as the grain of
    /// time allows.
    ///
    /// Each packet that finds the link busy is a sample, and an idle link lets the average decay as if as many packets as it
    /// could send had found the queue empty. In the papers' models the time between samples is that between arrivals, here
    /// never longer than between packets on the link.
    pub fn change(&self, avg: f64, inputs: &Inputs) -> f64 {
        let samples = match self.form {
            FluidForm::Printed => inputs.offered.max(inputs.capacity),
            FluidForm::Actual => inputs.offered + inputs.idle() * (inputs.capacity - inputs.offered),
        };
        let rate = (-libm::log1p(-self.w_q) * samples).min(1.0 / inputs.grain);
        rate * (inputs.q - avg)
    }
}
