//! AVQRED, adaptive virtual queue RED: RED's marking decision on a virtual queue that is served at the measured output
//! rate.
//!
//! [B07] 4.2; [BB]. On every arrival, `delta` after the last measurement, if `delta` exceeds 1 ms:
//!
//! ```text
//! output_rate = bytes sent since then / delta
//! v_cap = clamp(alpha output_rate + (1 - alpha) v_cap, min_capacity, max_capacity)
//! VQ = max(VQ - v_cap delta, 0)
//! ```
//!
//! Then RED's decision on `x = VQ / mean_packet` with `max_p = 1`: no mark below `min_th`, always from `max_th` on, and
//! between them `p_b = (x - min_th) / (max_th - min_th)`, spread evenly by `p_a = p_b / (1 - count p_b)`, where `count`
//! is the number of packets since the last mark. An accepted packet is added to the virtual queue: `VQ = VQ + b`.
//!
//! *Departures:* every accepted packet, marked or not, is added to the virtual queue, at any level; the indentation of
//! the printed listing would add it only below `min_th`, and the transmit queue then grows without bound. Adding every
//! offered packet would halve the throughput. The listing prints `p_a` on the right-hand side of the equation for `p_a`, a
//! misprint for `p_b`.
//!
//! *In a satellite gateway:* AVQRED was designed for it. It marks at the receive queue, ahead of the PEP, where the
//! sender retransmits a dropped segment, and it needs only the number of bytes that the transmit queue has sent, so it
//! works at any distance from that queue; unlike in RED, the delay between the two points causes no oscillation. By
//! default the virtual queue is served at the link's present rate, also while that fades; the thresholds stay packets of
//! the nominal rate. The length of the transmit queue is not watched: a standing queue remains until the load falls
//! below the link's capacity.

use std::any::Any;

use bentpipe_units::{Duration, Instant, Rate};

use super::uniform_dropper::{self, UniformDropper};
use crate::descriptor::{Algorithm, Placement, Preset};
use crate::fluid::{Arrivals, Equilibrium, FluidConfig, FluidModel, Inputs, Ramp, Service};
use crate::marking;
use crate::{
    Aqm, Context, FollowedRate, Link, Packet, Param, ParamError, Range, Tune, Unit, Value, Values, Verdict,
};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "avqred",
    title: "Adaptive virtual queue random early detection",
    source: "[B07] 4.2; Byun & Baras",
    params: PARAMS,
    presets: PRESETS,
    placement: Placement::Anywhere,
    build: |values| Ok(Box::new(AvqRed::new(values)?)),
    fluid: Some(|values, given| Ok(Box::new(AvqRedFluid::new(values, given)?))),
};

/// Minimum interval of a rate measurement.
const MEASURE: Duration = Duration::from_millis(1);

fn capacity(link: &Link) -> f64 {
    8.0 * link.capacity.bytes_per_sec()
}

/// Weight of a measurement.
pub(super) const ALPHA: Param = Param::number("alpha", Unit::One, 0.05, Range::above(0.0, 1.0))
    .doc("Weight of the newest measurement in the virtual capacity")
    .symbol("α")
    .origin("[B07] 4.2")
    .tune(Tune::Log(0.005, 1.0));

/// Minimum virtual capacity, by default the link's.
pub(super) const MIN_CAPACITY: Param =
    Param::from_link("min_capacity", Unit::BitsPerSecond, Range::above(0.0, 1e15), capacity)
        .default_doc("the link's capacity")
        .doc("Minimum virtual capacity")
        .origin("[B07] Table 3.1: the link's")
        .following_capacity()
        .tune(Tune::Around(0.1, 1.0));

/// Maximum virtual capacity, by default the link's.
pub(super) const MAX_CAPACITY: Param =
    Param::from_link("max_capacity", Unit::BitsPerSecond, Range::above(0.0, 1e15), capacity)
        .default_doc("the link's capacity")
        .doc("Maximum virtual capacity")
        .origin("[B07] Table 3.1: the link's")
        .following_capacity();

/// Mean length of a packet.
pub(super) const MEAN_PACKET: Param =
    Param::from_link("mean_packet", Unit::Bytes, Range::above(0.0, 65535.0), |link| link.mean_packet)
        .default_doc("the link's mean packet")
        .doc("Mean length of a packet, to convert the virtual queue's bytes to packets")
        .origin("the link");

const PARAMS: &[Param] =
    &[uniform_dropper::MIN_TH, uniform_dropper::MAX_TH, ALPHA, MIN_CAPACITY, MAX_CAPACITY, MEAN_PACKET];

const PRESETS: &[Preset] = &[
    Preset { name: "AVQRED", source: "[B07] Table 3.1", values: PRINTED, marking: None },
    marking::flow_control("AVQRED FC 1", PRINTED, 0),
    marking::flow_control("AVQRED FC 2", PRINTED, 1),
    marking::flow_control("AVQRED FC 3", PRINTED, 2),
    marking::flow_control("AVQRED FC 4", PRINTED, 3),
    marking::flow_control("AVQRED FC 5", PRINTED, 4),
];

const PRINTED: &[(&str, Value)] = &[
    ("min_th", Value::Number(60.0)),
    ("max_th", Value::Number(120.0)),
    ("min_capacity", Value::Number(20e6)),
    ("max_capacity", Value::Number(20e6)),
];

/// A virtual queue that is served at the measured output rate.
#[derive(Debug)]
pub(super) struct VirtualQueue {
    alpha: f64,
    min_capacity: FollowedRate,
    max_capacity: FollowedRate,
    mean_packet: f64,
    /// Virtual capacity [bytes/s].
    pub v_cap: f64,
    /// Virtual queue [bytes].
    vq: f64,
    /// Time of the last measurement.
    last: Instant,
    /// Bytes sent up to then.
    sent: u64,
}

impl VirtualQueue {
    /// # Errors
    /// Unless `min_capacity <= max_capacity`.
    pub fn new(v: &Values) -> Result<Self, ParamError> {
        let (min, max) = (v.number("min_capacity"), v.number("max_capacity"));
        if min > max {
            let problem = format!("found {min}, but it must not exceed max_capacity, which is {max}");
            return Err(ParamError { name: "min_capacity", problem });
        }
        Ok(Self {
            alpha: v.number("alpha"),
            min_capacity: v.capacity("min_capacity"),
            max_capacity: v.capacity("max_capacity"),
            mean_packet: v.number("mean_packet"),
            v_cap: max / 8.0,
            vq: 0.0,
            last: Instant::ZERO,
            sent: 0,
        })
    }

    /// Returns the bounds of the virtual capacity [bytes/s]. A set bound holds where the link's capacity crosses it.
    #[inline]
    fn bounds(&self, capacity: Rate) -> (f64, f64) {
        let (least, most) = (self.min_capacity.at(capacity), self.max_capacity.at(capacity));
        if self.min_capacity.follows { (least.min(most), most) } else { (least, most.max(least)) }
    }

    /// Measures the output rate and serves the virtual queue at that rate, at most once per millisecond.
    pub fn serve(&mut self, cx: &Context<'_>) {
        self.serve_at(cx, |v_cap| v_cap);
    }

    /// Like [`Self::serve`], at the rate that `rate` makes of the virtual capacity [bytes/s].
    pub fn serve_at(&mut self, cx: &Context<'_>, rate: impl FnOnce(f64) -> f64) {
        let delta = cx.now - self.last;
        if delta <= MEASURE {
            return;
        }
        let delta = delta.as_secs_f64();
        let output_rate = (cx.queue.sent_bytes - self.sent) as f64 / delta;
        let (least, most) = self.bounds(cx.queue.capacity);
        self.v_cap = (self.alpha * output_rate + (1.0 - self.alpha) * self.v_cap).clamp(least, most);
        self.vq = (self.vq - rate(self.v_cap) * delta).max(0.0);
        self.last = cx.now;
        self.sent = cx.queue.sent_bytes;
    }

    /// Continues with the length and the measured capacity of another virtual queue.
    pub fn resume(&mut self, was: &Self) {
        (self.v_cap, self.vq, self.last, self.sent) = (was.v_cap, was.vq, was.last, was.sent);
    }

    /// Adds an accepted packet.
    pub fn add(&mut self, len: u32) {
        self.vq += f64::from(len);
    }

    /// Returns the length in mean packets.
    pub fn packets(&self) -> f64 {
        self.vq / self.mean_packet
    }
}

/// AVQRED's state.
#[derive(Debug)]
pub struct AvqRed {
    queue: VirtualQueue,
    dropper: UniformDropper,
}

impl AvqRed {
    /// # Errors
    /// Unless `min_th < max_th` and `min_capacity <= max_capacity`.
    pub fn new(v: &Values) -> Result<Self, ParamError> {
        v.in_order("min_th", "max_th")?;
        Ok(Self {
            queue: VirtualQueue::new(v)?,
            dropper: UniformDropper::new(v.number("min_th"), v.number("max_th"), 1.0),
        })
    }
}

impl Aqm for AvqRed {
    // Part of the queue's decision, without a call, which is faster.
    #[inline(always)]
    fn arrive(&mut self, _pkt: &Packet, cx: &mut Context<'_>) -> Verdict {
        self.queue.serve(cx);
        if self.dropper.draw(self.queue.packets(), 1.0, cx.rng) { Verdict::Mark } else { Verdict::Pass }
    }

    fn admit(&mut self, pkt: &Packet, _cx: &mut Context<'_>) {
        self.queue.add(pkt.len);
    }

    fn resume(&mut self, previous: &mut dyn Any) -> bool {
        let Some(was) = previous.downcast_mut::<Self>() else { return false };
        self.queue.resume(&was.queue);
        self.dropper.resume(&was.dropper);
        true
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("VQ", self.queue.packets());
        out("v_cap", 8.0 * self.queue.v_cap);
        out("p", self.dropper.probability());
    }
}

/// AVQRED as a fluid [B07 4.4]: `dv/dt = (1 - p) ω λ - τ μ`, v >= 0, and RED's marking function of `v` with
/// `max_p = 1`. The papers' `τ`, the virtual capacity as a share of the link's, is a variable here, because `v_cap`
/// follows the measured rate: `d v_cap / dt = alpha (output - v_cap)` per measurement. A measurement takes place at the
/// first arrival after a millisecond, so there are `1 / (1 ms + 1/λ)` per second. With `min_capacity = max_capacity`,
/// `v_cap` and `τ` are constant. Not modelled: a short measurement has the same weight as a long one, so the rate of
/// light random traffic is overestimated by the factor `(1 + a) e^a E1(a)`, with `a` arrivals per millisecond; 1.12 at
/// 1.5.
pub(super) struct AvqRedFluid {
    pub ramp: Ramp,
    alpha: f64,
    /// [packets/s]
    pub min_capacity: f64,
    /// [packets/s]
    pub max_capacity: f64,
    mean_packet: f64,
    share: fn(f64) -> f64,
}

impl AvqRedFluid {
    pub fn new(v: &Values, given: &FluidConfig) -> Result<Self, ParamError> {
        AvqRed::new(v)?;
        let packets = |name| v.number(name) / (8.0 * v.number("mean_packet"));
        Ok(Self {
            ramp: Ramp { min_th: v.number("min_th"), max_th: v.number("max_th"), gentle: false },
            alpha: v.number("alpha"),
            min_capacity: packets("min_capacity"),
            max_capacity: packets("max_capacity"),
            mean_packet: v.number("mean_packet"),
            share: uniform_dropper::share_of(given.variant, false),
        })
    }

    /// Writes the derivatives while the virtual queue is served at `rate` [packets/s].
    pub fn served_at(&self, rate: f64, x: &[f64], inputs: &Inputs, dx: &mut [f64]) {
        let v_cap = x[1];
        dx[0] = inputs.virtual_queue(x[0], inputs.accepted, rate);
        let measurements = 1.0 / (MEASURE.as_secs_f64() + 1.0 / inputs.offered.max(f64::MIN_POSITIVE));
        let change = -libm::log1p(-self.alpha.min(0.999)) * measurements * (inputs.output - v_cap);
        dx[1] = inputs.within(v_cap, change, self.min_capacity, self.max_capacity);
    }
}

impl FluidModel for AvqRedFluid {
    fn states(&self) -> usize {
        2
    }

    fn start(&self, x: &mut [f64]) {
        x[1] = self.max_capacity;
    }

    fn mark(&self, x: &[f64], _arrivals: &Arrivals) -> f64 {
        (self.share)(self.ramp.at(x[0], 1.0))
    }

    fn derivatives(&self, x: &[f64], _p: f64, inputs: &Inputs, dx: &mut [f64]) {
        self.served_at(x[1], x, inputs, dx);
    }

    /// A busy link sends at its capacity, at which the virtual queue is served. If even a long queue leaves the link
    /// idle at times, the output is below the virtual capacity, which falls to its least value.
    fn equilibrium(&self, share: f64, capacity: f64, service: Service, x: &mut [f64]) -> Option<Equilibrium> {
        let level = share * self.ramp.end();
        let rate = match service {
            Service::Full => capacity.min(self.max_capacity).max(self.min_capacity),
            Service::Mm1 | Service::Md1 => self.min_capacity,
        };
        (x[0], x[1]) = (level, rate);
        Some(Equilibrium::Virtual { level, rate })
    }

    fn probe(&self, x: &[f64], out: &mut dyn FnMut(&'static str, f64)) {
        out("VQ", x[0]);
        out("v_cap", 8.0 * self.mean_packet * x[1]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::steps::Steps;
    use super::*;

    fn numbers<const N: usize>(given: [(&'static str, f64); N]) -> [(&'static str, Value); N] {
        given.map(|(name, x)| (name, Value::Number(x)))
    }

    /// Worked out by hand: the virtual capacity is one byte per microsecond, packets have 1000 bytes, thresholds 2 and
    /// 4.
    #[test]
    fn arrivals_with_a_fixed_virtual_capacity() {
        let mut avqred = Steps::new(&ALGORITHM, &numbers([("min_th", 2.0), ("max_th", 4.0)]));
        for (us, vq, p, verdict) in [
            (2000, 1.0, 0.0, Verdict::Pass),
            // Within 1 ms of the last measurement the virtual queue is not served.
            (2500, 2.0, 0.0, Verdict::Pass),
            // x = 2: p_b = 0, count = 0.
            (3000, 3.0, 0.0, Verdict::Pass),
            // 1500 us serve 1500 bytes: x = 1.5.
            (3500, 2.5, 0.0, Verdict::Pass),
            // x = 2.5: p_b = 1/4, count = 0.
            (3600, f64::NAN, 0.25, Verdict::Pass),
        ] {
            let got = avqred.arrive(us, 1000);
            assert!((avqred.probe("p") - p).abs() < 1e-12, "p at {us} us");
            if vq.is_finite() {
                assert_eq!((got, avqred.probe("VQ")), (verdict, vq), "at {us} us");
            }
        }
    }

    /// From `max_th` on every packet is dropped, and a dropped packet is not added to the virtual queue.
    #[test]
    fn dropped_packet_is_not_added_to_the_virtual_queue() {
        let mut avqred = Steps::new(&ALGORITHM, &numbers([("min_th", 3.5), ("max_th", 4.0)]));
        let verdicts: Vec<_> = (0..6).map(|_| avqred.arrive(10, 1000)).collect();
        assert_eq!(verdicts[..4], [Verdict::Pass; 4]);
        assert_eq!(verdicts[4..], [Verdict::Mark; 2]);
        assert_eq!(avqred.probe("VQ"), 4.0);
    }

    /// The link falls from 1 byte/us to a quarter. By default the virtual queue is served at the current rate; a set bound
    /// stays, and bounds a default.
    #[test]
    fn default_bounds_follow_the_link_and_set_bounds_stay() {
        for (given, v_cap) in [
            (vec![], 2e6),
            (vec![("min_capacity", 8e6), ("max_capacity", 8e6)], 8e6),
            (vec![("min_capacity", 4e6)], 4e6),
            (vec![("max_capacity", 8e6)], 4e6),
        ] {
            let given: Vec<_> = given.into_iter().map(|(name, x)| (name, Value::Number(x))).collect();
            let alpha = [("alpha", Value::Number(1.0))];
            let mut avqred = Steps::new(&ALGORITHM, &[&alpha[..], &given].concat());
            avqred.state.capacity = Rate::from_bps(2_000_000);
            // 1000 bytes in 2 ms: 4 Mbit/s.
            avqred.state.sent_bytes = 1000;
            avqred.arrive(2000, 1000);
            assert_eq!(avqred.probe("v_cap"), v_cap, "{given:?}");
        }
    }

    /// alpha = 1/2 and wide bounds: v_cap starts at the upper one, 8 Mbit/s = 1e6 bytes/s. In 2 ms 1000 bytes were
    /// sent: 5e5 bytes/s, so v_cap = 7.5e5.
    #[test]
    fn virtual_capacity_follows_the_measured_rate() {
        let given = [("alpha", 0.5), ("min_capacity", 8.0), ("max_capacity", 8e6)];
        let mut avqred = Steps::new(&ALGORITHM, &numbers(given));
        avqred.state.sent_bytes = 1000;
        avqred.arrive(2000, 1000);
        assert_eq!(avqred.probe("v_cap"), 6e6);
        // The bound: with nothing sent for long the capacity halves until it reaches its least value.
        for step in 1..40 {
            avqred.arrive(2000 + step * 2000, 1000);
        }
        assert_eq!(avqred.probe("v_cap"), 8.0);
    }

    /// The queue has sent 3000 bytes, and the measured rate and the virtual queue stay when the thresholds change.
    #[test]
    fn other_thresholds_keep_the_virtual_queue_and_the_measured_rate() {
        let build = |min_th: f64| {
            let link = Link { capacity: Rate::from_bps(8_000_000), mean_packet: 1000.0 };
            let given = [("min_th", min_th), ("max_th", 9.0), ("alpha", 0.5), ("min_capacity", 8.0)];
            let value =
                |name: &str| given.iter().find(|(n, _)| *n == name).map(|(_, value)| Value::Number(*value));
            AvqRed::new(&Values::resolve(PARAMS, &link, &value).unwrap()).unwrap()
        };
        let (mut before, mut after) = (build(1.0), build(2.0));
        before.queue.add(5000);
        before.queue.v_cap = 5e5;
        (before.queue.last, before.queue.sent) = (Instant::ZERO + Duration::from_millis(3), 3000);
        let mut rng = bentpipe_units::Rng::stream(1, "avqred", 0, "test");
        before.dropper.draw(2.0, 1.0, &mut rng);
        assert!(after.resume(&mut before));
        let mut found = Vec::new();
        after.probe(&mut |name, value| found.push((name, value)));
        // p_b = (2 - 1) / (9 - 1) for the first packet between the thresholds.
        assert_eq!(found, [("VQ", 5.0), ("v_cap", 4e6), ("p", 0.125)]);
        assert_eq!((after.queue.last, after.queue.sent), (before.queue.last, 3000));
        assert!(!after.resume(&mut 0_u8));
    }

    /// Packets of 1000 bytes, bounds of 250 and 1000 packets/s, alpha = 1/2.
    fn fluid() -> AvqRedFluid {
        let link = Link { capacity: Rate::from_bps(8_000_000), mean_packet: 1000.0 };
        let given =
            [("min_th", 2.0), ("max_th", 4.0), ("alpha", 0.5), ("min_capacity", 2e6), ("max_capacity", 8e6)];
        let value =
            |name: &str| given.iter().find(|(n, _)| *n == name).map(|(_, value)| Value::Number(*value));
        let config =
            FluidConfig { packet: 1000.0, limit: 100.0, variant: crate::fluid::FluidVariant::Printed };
        AvqRedFluid::new(&Values::resolve(PARAMS, &link, &value).unwrap(), &config).unwrap()
    }

    /// v = 3 packets, v_cap = 600 packets/s, 1000 packets/s offered and 900 accepted, an output of 800: dv/dt = 900 - 600. There
    /// are 1 / (1 ms + 1 ms) = 500 measurements in a second, each of which leaves half of the difference of 200: ln 2 · 500 · 200.
    #[test]
    fn fluid_virtual_queue_is_served_at_the_measured_rate() {
        let fluid = fluid();
        let mut start = [0.0; 2];
        fluid.start(&mut start);
        assert_eq!((fluid.states(), start), (2, [0.0, 1000.0]));
        let inputs = Inputs {
            q: 0.0,
            dq: 0.0,
            offered: 1000.0,
            load: 1000.0,
            accepted: 900.0,
            capacity: 1000.0,
            output: 800.0,
            service: Service::Full,
            unit: 1.0,
            resolution: 1e-6,
        };
        let mut dx = [0.0; 2];
        fluid.derivatives(&[3.0, 600.0], 0.1, &inputs, &mut dx);
        assert_eq!(dx[0], 300.0);
        assert!((dx[1] - std::f64::consts::LN_2 * 500.0 * 200.0).abs() < 1e-6, "{}", dx[1]);
        // At its bounds the capacity stays.
        for (v_cap, output) in [(1000.0, 2000.0), (250.0, 0.0)] {
            fluid.derivatives(&[3.0, v_cap], 0.1, &Inputs { output, ..inputs }, &mut dx);
            assert_eq!(dx[1], 0.0, "{v_cap}");
        }
    }

    /// The ramp from 2 to 4 packets, and the state in the units of the probes: 600 packets/s are 4.8 Mbit/s.
    #[test]
    fn fluid_marks_by_the_length_of_the_virtual_queue() {
        let fluid = fluid();
        let arrivals = Arrivals { q: 0.0, load: 1000.0, capacity: 1000.0 };
        let marks = [1.9, 2.5, 4.0].map(|v| fluid.mark(&[v, 600.0], &arrivals));
        assert_eq!(marks, [0.0, 0.25, 1.0]);
        let mut found = Vec::new();
        fluid.probe(&[3.0, 600.0], &mut |name, value| found.push((name, value)));
        assert_eq!(found, [("VQ", 3.0), ("v_cap", 4.8e6)]);
    }

    /// Half way along the curve the virtual queue has two of four packets. A busy link serves it at its capacity within the bounds,
    /// one that is idle at times at the least capacity.
    #[test]
    fn fluid_equilibrium_is_served_at_the_capacity_of_a_busy_link() {
        let fluid = fluid();
        for (capacity, service, rate) in [
            (600.0, Service::Full, 600.0),
            (2000.0, Service::Full, 1000.0),
            (100.0, Service::Full, 250.0),
            (600.0, Service::Mm1, 250.0),
            (600.0, Service::Md1, 250.0),
        ] {
            let mut x = [0.0; 2];
            let found = fluid.equilibrium(0.5, capacity, service, &mut x);
            assert_eq!(found, Some(Equilibrium::Virtual { level: 2.0, rate }));
            assert_eq!(x, [2.0, rate]);
        }
    }
}
