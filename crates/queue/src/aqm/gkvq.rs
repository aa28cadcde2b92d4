//! GKVQ, the Gibbens-Kelly virtual queue: marks packets that do not fit into a virtual queue.
//!
//! Gibbens & Kelly 1999, as described by Kunniyur & Srikant 2001. A virtual queue of `B` bytes is served at `theta C`,
//! a little less than the link's capacity `C`. On every arrival of `b` bytes, `t - s` after the last one:
//! `VQ = max(VQ - theta C (t - s), 0)`; if `VQ + b` exceeds `B` the packet is marked, otherwise `VQ += b`. A marked
//! packet is not added. It is AVQ without adaptation, and equivalent to a token bucket.
//!
//! *Departures:* `C` is the link's present capacity, so the virtual queue follows a fading link. Gibbens & Kelly mark
//! every packet from an overflow until the virtual queue is empty; here only packets that overflow are marked.
//!
//! *In a satellite gateway:* it watches only arrivals, so it can stand ahead of the PEP without knowledge of the queue
//! behind it. If marks drop, the accepted load exceeds `theta C` for no longer than `B` lasts: the transmit queue stays
//! short, and `1 - theta` of the link stays idle at any demand; on the 2007 gateway it reaches 19.2 of 20 Mbit/s, with
//! a mean queue of 18 packets. It has neither an average nor a probability: a burst that fills the virtual queue loses
//! its whole tail, so several senders back off at once. AVQRED spreads its marks.

use std::any::Any;

use bentpipe_units::Instant;

use crate::descriptor::{Algorithm, Placement};
use crate::fluid::{Arrivals, BoundedVirtualQueue, FluidConfig, FluidModel, Inputs};
use crate::{Aqm, Context, Packet, Param, Range, Tune, Unit, Values, Verdict};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "gkvq",
    title: "Gibbens-Kelly virtual queue",
    source: "Gibbens & Kelly 1999",
    params: PARAMS,
    presets: &[],
    placement: Placement::Anywhere,
    build: |values| Ok(Box::new(Gkvq::new(values))),
    fluid: Some(|values, given| Ok(Box::new(GkvqFluid::new(values, given)))),
};

const PARAMS: &[Param] = &[
    Param::number("theta", Unit::One, 0.98, Range::above(0.0, 1.0))
        .doc("Share of the link's capacity that serves the virtual queue")
        .symbol("θ")
        .origin("AVQ's default target utilization, for comparison")
        .tune(Tune::Linear(0.8, 1.0)),
    Param::from_link("buffer", Unit::Bytes, Range::above(0.0, 1e12), super::avq::default_buffer)
        .default_doc("50 ms of the link's capacity, at least two packets")
        .doc("Size of the virtual queue")
        .symbol("B")
        .origin("AVQ's default buffer; [B07] Table 3.1 has 123 750 bytes at 20 Mbit/s")
        .tune(Tune::Around(0.2, 5.0)),
];

/// GKVQ's state.
#[derive(Debug)]
pub struct Gkvq {
    theta: f64,
    buffer: f64,
    /// VQ [bytes].
    vq: f64,
    /// s: time of the last arrival.
    last: Instant,
}

impl Gkvq {
    fn new(v: &Values) -> Self {
        Self { theta: v.number("theta"), buffer: v.number("buffer"), vq: 0.0, last: Instant::ZERO }
    }
}

impl Aqm for Gkvq {
    fn arrive(&mut self, pkt: &Packet, cx: &mut Context<'_>) -> Verdict {
        let since = (cx.now - self.last).as_secs_f64();
        self.last = cx.now;
        self.vq = (self.vq - self.theta * cx.queue.capacity.bytes_per_sec() * since).max(0.0);
        let b = f64::from(pkt.len);
        if self.vq + b > self.buffer {
            return Verdict::Mark;
        }
        self.vq += b;
        Verdict::Pass
    }

    fn resume(&mut self, previous: &mut dyn Any) -> bool {
        let Some(was) = previous.downcast_mut::<Self>() else { return false };
        self.vq = was.vq;
        self.last = was.last;
        true
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("VQ", self.vq);
    }
}

/// GKVQ as a fluid: unmarked packets fill the virtual queue, which is served at `theta C`:
/// `dv/dt = (1 - p) λ - theta C` within 0 and `B`, and `p = 0` while `v < B`, else the excess over the service,
/// `1 - theta C / λ`. Derived here.
struct GkvqFluid {
    theta: f64,
    buffer: BoundedVirtualQueue,
    /// Mean length [bytes].
    packet: f64,
}

impl GkvqFluid {
    fn new(v: &Values, given: &FluidConfig) -> Self {
        let buffer = BoundedVirtualQueue(v.number("buffer") / given.packet);
        Self { theta: v.number("theta"), buffer, packet: given.packet }
    }
}

impl FluidModel for GkvqFluid {
    fn mark(&self, x: &[f64], arrivals: &Arrivals) -> f64 {
        self.buffer.mark(x[0], arrivals.load, self.theta * arrivals.capacity)
    }

    fn derivatives(&self, x: &[f64], p: f64, inputs: &Inputs, dx: &mut [f64]) {
        dx[0] = self.buffer.change(x[0], p, self.theta * inputs.capacity, inputs);
    }

    fn probe(&self, x: &[f64], out: &mut dyn FnMut(&'static str, f64)) {
        out("VQ", self.packet * x[0]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::steps::{INPUTS, Steps, derivatives, fluid, fluid_probes};
    use super::*;
    use crate::Value;
    use crate::fluid::FluidVariant;

    fn gkvq(theta: f64, buffer: f64) -> Steps {
        Steps::new(&ALGORITHM, &[("theta", theta), ("buffer", buffer)].map(|(n, x)| (n, Value::Number(x))))
    }

    /// Worked out by hand: 8 Mbit/s are one byte per microsecond, so theta = 1/2 serves half a byte; the buffer has
    /// 2500 bytes.
    #[test]
    fn arrivals_follow_the_definition() {
        let mut gkvq = gkvq(0.5, 2500.0);
        for (us, vq, verdict) in [
            (0, 1000.0, Verdict::Pass),
            (200, 1900.0, Verdict::Pass),
            // 1900 - 100 + 1000 exceeds 2500: marked and not added.
            (400, 1800.0, Verdict::Mark),
            // 1800 - 300 + 1000 is 2500: it fits.
            (1000, 2500.0, Verdict::Pass),
            (1200, 2400.0, Verdict::Mark),
            (9000, 1000.0, Verdict::Pass),
        ] {
            assert_eq!((gkvq.arrive(us, 1000), gkvq.probe("VQ")), (verdict, vq), "at {us} us");
        }
    }

    /// A token bucket accepts at most its depth plus its rate times the time: with a load of twice the capacity for 1
    /// s, theta C 1 s + B = 800 kB + 10 kB, and at most one packet less.
    #[test]
    fn accepted_load_is_that_of_a_token_bucket() {
        let mut gkvq = gkvq(0.8, 10_000.0);
        let passed = (0..2000).filter(|i| gkvq.arrive(i * 500, 1000) == Verdict::Pass).count();
        assert!((809..=810).contains(&passed), "{passed}");
    }

    /// theta = 1/2 of 1000 packets/s serves a virtual queue of at most 10 packets. While it is full, half of the load of 1000
    /// packets/s is in excess; 0.8 of the load exceeds the service by 300 packets/s.
    #[test]
    fn fluid_marks_the_excess_of_a_full_virtual_queue() {
        let given = [("theta", 0.5), ("buffer", 10_000.0)].map(|(n, x)| (n, Value::Number(x)));
        let gkvq = fluid(&ALGORITHM, &given, FluidVariant::Actual);
        assert_eq!([5.0, 9.6, 10.0].map(|v| gkvq.mark(&[v], &INPUTS.arrivals())), [0.0, 0.5, 0.5]);
        assert_eq!(derivatives(&*gkvq, [5.0], 0.2, &INPUTS), [300.0]);
        assert_eq!(derivatives(&*gkvq, [10.0], 0.2, &INPUTS), [0.0]);
        assert_eq!(fluid_probes(&*gkvq, &[5.0]), [("VQ", 5000.0)]);
    }
}
