//! AVQ, the adaptive virtual queue: marks packets that would overflow a queue served more slowly than the link.
//!
//! Kunniyur & Srikant 2001; [B07] 2.2.6. A virtual queue of `buffer` bytes is served at the virtual capacity `C'`. On
//! every arrival of `b` bytes at time `t`, with the last one at `s`:
//!
//! ```text
//! VQ = max(VQ - C' (t - s), 0)
//! VQ + b > B:  mark;  else VQ = VQ + b
//! C' = max(min(C' + alpha gamma C (t - s), C) - alpha b, 0)
//! ```
//!
//! The virtual queue only counts bytes. `C'` falls with the arrivals and rises with `gamma C`, so the load settles at
//! the utilization `gamma`.
//!
//! *Departures:* two options. With `accepted`, a dropped packet does not reduce `C'`: then a link whose marks are drops
//! is used to the share `gamma` as well; otherwise its utilization is lower by the share that is dropped. With
//! `adapt = false` the virtual capacity stays at `gamma C`, as in [B07]'s emulation; adaptation leaves a fifth of that
//! link idle.
//!
//! *In a satellite gateway:* it watches only arrivals, so it can mark ahead of the PEP without knowledge of the
//! transmit queue. But it does not control that queue either: what the PEP has buffered is not in the virtual queue. By
//! default `C` follows the link's present rate, also while that fades. It marks in runs, because all packets are marked
//! while the virtual buffer is full, and long runs hit one connection several times. With drops as marks, `adapt` and
//! overload, much of the link stays idle; set `accepted = true` or `adapt = false`.

use std::any::Any;

use bentpipe_units::Instant;

use crate::descriptor::{Algorithm, Placement, Preset};
use crate::fluid::{Arrivals, BoundedVirtualQueue, FluidConfig, FluidModel, FluidVariant, Inputs};
use crate::{
    Aqm, Context, FollowedRate, Link, Packet, Param, ParamError, Range, Tune, Unit, Value, Values, Verdict,
};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "avq",
    title: "Adaptive virtual queue",
    source: "Kunniyur & Srikant 2001; [B07] 2.2.6",
    params: PARAMS,
    presets: PRESETS,
    placement: Placement::Anywhere,
    build: |values| Ok(Box::new(Avq::new(values)?)),
    fluid: Some(fluid),
};

const PARAMS: &[Param] = &[
    Param::number("gamma", Unit::One, 0.98, Range::above(0.0, 1.0)).doc("Target utilization of the link")
    .symbol("γ")
    .origin("Kunniyur & Srikant 2001, their simulations")
    .tune(Tune::Linear(0.8, 1.0)),
    Param::number("alpha", Unit::One, 0.15, Range::above(0.0, 1.0)).doc("Rate at which the virtual capacity follows the load")
    .symbol("α")
    .origin("Kunniyur & Srikant 2001, their simulations")
    .tune(Tune::Log(0.01, 1.0)),
    Param::flag("adapt", true, "Let the virtual capacity follow the load")
        .origin("Kunniyur & Srikant 2001; the preset of [B07] has it off")
        .tune(Tune::Each),
    Param::flag(
        "accepted",
        false,
        "Take the accepted packets as the load, as ns-2 does, instead of all arrivals; no difference unless marks drop",
    )
    .origin("Kunniyur & Srikant 2001")
    .tune(Tune::Each),
    Param::from_link("buffer", Unit::Bytes, Range::above(0.0, 1e12), default_buffer).default_doc("50 ms of the link's capacity, at least two packets").doc("Size of the virtual queue")
    .symbol("B")
    .origin("[B07] Table 3.1: 123 750 bytes at 20 Mbit/s")
    .tune(Tune::Around(0.1, 10.0)),
    Param::from_link("capacity", Unit::BitsPerSecond, Range::above(0.0, 1e15), |link| 8.0 * link.capacity.bytes_per_sec()).default_doc("the link's capacity").doc("Capacity of which the virtual capacity is a share")
    .symbol("C")
    .origin("the link")
    .following_capacity(),
];

const PRESETS: &[Preset] = &[Preset {
    name: "AVQ",
    source: "[B07] Table 3.1",
    values: &[
        ("gamma", Value::Number(1.0)),
        ("adapt", Value::Flag(false)),
        ("buffer", Value::Number(123_750.0)),
        ("capacity", Value::Number(20e6)),
    ],
    marking: None,
}];

/// 50 ms of the link's capacity, at least two packets [bytes].
pub(super) fn default_buffer(link: &Link) -> f64 {
    (0.05 * link.capacity.bytes_per_sec()).max(2.0 * link.mean_packet)
}

/// AVQ's state.
#[derive(Debug)]
pub struct Avq {
    gamma: f64,
    alpha: f64,
    adapt: bool,
    accepted: bool,
    buffer: f64,
    capacity: FollowedRate,
    /// C [bytes/s].
    c: f64,
    /// C' [bytes/s].
    virtual_capacity: f64,
    /// VQ [bytes].
    vq: f64,
    /// s: time of the last arrival.
    last: Instant,
}

impl Avq {
    /// # Errors
    /// None beyond the ranges of single parameters.
    pub fn new(v: &Values) -> Result<Self, ParamError> {
        let capacity = v.capacity("capacity");
        let gamma = v.number("gamma");
        Ok(Self {
            gamma,
            alpha: v.number("alpha"),
            adapt: v.flag("adapt"),
            accepted: v.flag("accepted"),
            buffer: v.number("buffer"),
            capacity,
            c: capacity.initial,
            virtual_capacity: gamma * capacity.initial,
            vq: 0.0,
            last: Instant::ZERO,
        })
    }
}

impl Avq {
    /// Adopts a capacity of `c` bytes/s.
    #[inline]
    fn follow(&mut self, c: f64) {
        if c != self.c {
            self.c = c;
            self.virtual_capacity = if self.adapt { self.virtual_capacity.min(c) } else { self.gamma * c };
        }
    }

    /// Reduces the virtual capacity for `b` bytes of load.
    fn load(&mut self, b: f64) {
        self.virtual_capacity = (self.virtual_capacity - self.alpha * b).max(0.0);
    }
}

impl Aqm for Avq {
    fn arrive(&mut self, pkt: &Packet, cx: &mut Context<'_>) -> Verdict {
        let since = (cx.now - self.last).as_secs_f64();
        let b = f64::from(pkt.len);
        self.last = cx.now;
        self.vq = (self.vq - self.virtual_capacity * since).max(0.0);
        self.follow(self.capacity.at(cx.queue.capacity));
        let verdict = if self.vq + b > self.buffer {
            Verdict::Mark
        } else {
            self.vq += b;
            Verdict::Pass
        };
        if self.adapt {
            let grown = self.virtual_capacity + self.alpha * self.gamma * self.c * since;
            self.virtual_capacity = grown.min(self.c);
            if !self.accepted {
                self.load(b);
            }
        }
        verdict
    }

    fn admit(&mut self, pkt: &Packet, _cx: &mut Context<'_>) {
        if self.adapt && self.accepted {
            self.load(f64::from(pkt.len));
        }
    }

    fn resume(&mut self, previous: &mut dyn Any) -> bool {
        let Some(was) = previous.downcast_mut::<Self>() else { return false };
        self.c = was.c;
        self.vq = was.vq;
        self.last = was.last;
        self.virtual_capacity = if self.adapt { was.virtual_capacity } else { self.gamma * was.c };
        true
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("VQ", self.vq);
        out("virtual_capacity", 8.0 * self.virtual_capacity);
    }
}

/// AVQ as a fluid: unmarked packets fill the virtual queue, which is served at `C'`; once it is full the excess is
/// marked: `dv/dt = (1 - p) λ - C'` within 0 and `B`; `p = 0` while `v < B`, else `1 - C' / λ`. With `adapt`,
/// `dC'/dt = alpha (gamma C - λ)` within 0 and `C`, as the algorithm has it per packet; with `accepted` the load is the
/// accepted load.
struct AvqFluid {
    buffer: BoundedVirtualQueue,
    service: Service,
}

impl FluidModel for AvqFluid {
    fn states(&self) -> usize {
        2
    }

    fn start(&self, x: &mut [f64]) {
        x[1] = self.service.start();
    }

    fn mark(&self, x: &[f64], arrivals: &Arrivals) -> f64 {
        self.buffer.mark(x[0], arrivals.load, x[1])
    }

    fn derivatives(&self, x: &[f64], p: f64, inputs: &Inputs, dx: &mut [f64]) {
        dx[0] = self.buffer.change(x[0], p, x[1], inputs);
        dx[1] = self.service.change(x[1], inputs);
    }

    fn probe(&self, x: &[f64], out: &mut dyn FnMut(&'static str, f64)) {
        self.service.probe(x[0], x[1], out);
    }
}

/// AVQ as a fluid, as printed [B07 4.4]: `dp/dt = -p` while `v < (max_th - min_th) / 2`, else `1 - p`, per unit of time
/// of that model (100 ms); `dv/dt` as for AVQRED, served at `C'`.
///
/// AVQ has no thresholds; those that match its buffer are RED's of the same chapter, 60 and 120 packets, whose middle
/// is the buffer `B`, 90 packets. So `(max_th - min_th) / 2` is `B / 3`, a third of the level at which the algorithm
/// marks; `(max_th + min_th) / 2` would be `B`, and may have been meant.
///
/// While `v` stays at that threshold, the printed step has no classical solution: `p` slides between its two equations,
/// and the real queue depends on the step of the integration. So the step is replaced by a ramp one packet wide, half
/// to either side, which a count of whole packets does not distinguish.
struct AvqPrinted {
    /// [packets]
    threshold: f64,
    service: Service,
}

impl FluidModel for AvqPrinted {
    fn states(&self) -> usize {
        3
    }

    fn start(&self, x: &mut [f64]) {
        x[2] = self.service.start();
    }

    fn mark(&self, x: &[f64], _arrivals: &Arrivals) -> f64 {
        x[1].clamp(0.0, 1.0)
    }

    fn derivatives(&self, x: &[f64], _p: f64, inputs: &Inputs, dx: &mut [f64]) {
        let (v, p, c) = (x[0], x[1], x[2]);
        dx[0] = inputs.virtual_queue(v, inputs.accepted, c);
        let above = (v - self.threshold + 0.5).clamp(0.0, 1.0);
        dx[1] = (above - p) / inputs.unit;
        dx[2] = self.service.change(c, inputs);
    }

    fn probe(&self, x: &[f64], out: &mut dyn FnMut(&'static str, f64)) {
        self.service.probe(x[0], x[2], out);
    }
}

/// Service of the virtual queue of a fluid.
struct Service {
    gamma: f64,
    alpha: f64,
    adapt: bool,
    accepted: bool,
    /// C [packets/s]
    capacity: f64,
    /// Mean length [bytes].
    packet: f64,
}

impl Service {
    fn new(v: &Values, packet: f64) -> Self {
        Self {
            gamma: v.number("gamma"),
            alpha: v.number("alpha"),
            adapt: v.flag("adapt"),
            accepted: v.flag("accepted"),
            capacity: v.number("capacity") / (8.0 * packet),
            packet,
        }
    }

    fn start(&self) -> f64 {
        self.gamma * self.capacity
    }

    fn change(&self, c: f64, inputs: &Inputs) -> f64 {
        if !self.adapt {
            return 0.0;
        }
        let load = if self.accepted { inputs.accepted } else { inputs.load };
        inputs.within(c, self.alpha * (self.gamma * self.capacity - load), 0.0, self.capacity)
    }

    fn probe(&self, v: f64, c: f64, out: &mut dyn FnMut(&'static str, f64)) {
        out("VQ", self.packet * v);
        out("virtual_capacity", 8.0 * self.packet * c);
    }
}

fn fluid(v: &Values, given: &FluidConfig) -> Result<Box<dyn FluidModel>, ParamError> {
    let (buffer, service) = (v.number("buffer") / given.packet, Service::new(v, given.packet));
    Ok(match given.variant {
        FluidVariant::Printed => Box::new(AvqPrinted { threshold: buffer / 3.0, service }),
        FluidVariant::Actual => Box::new(AvqFluid { buffer: BoundedVirtualQueue(buffer), service }),
    })
}

#[cfg(test)]
mod tests {
    use bentpipe_units::Rate;

    use super::super::steps::{INPUTS, Steps, derivatives, fluid_probes, start};
    use super::*;

    /// Worked out by hand: 8 Mbit/s are one byte per microsecond, the buffer has 2500 bytes, and C' stays at C.
    #[test]
    fn arrivals_with_a_fixed_virtual_capacity() {
        let given =
            [("gamma", Value::Number(1.0)), ("adapt", Value::Flag(false)), ("buffer", Value::Number(2500.0))];
        let mut avq = Steps::new(&ALGORITHM, &given);
        for (us, vq, verdict) in [
            (0, 1000.0, Verdict::Pass),
            (100, 1900.0, Verdict::Pass),
            // 1900 - 100 + 1000 exceeds 2500: marked and not added.
            (200, 1800.0, Verdict::Mark),
            (500, 2500.0, Verdict::Pass),
            (600, 2400.0, Verdict::Mark),
            (9000, 1000.0, Verdict::Pass),
        ] {
            assert_eq!((avq.arrive(us, 1000), avq.probe("VQ")), (verdict, vq), "at {us} us");
        }
    }

    /// As below, with a virtual queue of 1500 bytes: of two packets at 1000 us the second is marked, and does not
    /// reduce C' with `accepted`.
    #[test]
    fn accepted_excludes_dropped_packets_from_the_load() {
        for (accepted, capacity) in [(false, 499_850.0), (true, 499_950.0)] {
            let given = [("gamma", 0.5), ("alpha", 0.1), ("buffer", 1500.0)]
                .map(|(name, x)| (name, Value::Number(x)));
            let mut avq =
                Steps::new(&ALGORITHM, &[&given[..], &[("accepted", Value::Flag(accepted))]].concat());
            assert_eq!([avq.arrive(1000, 1000), avq.arrive(1000, 1000)], [Verdict::Pass, Verdict::Mark]);
            assert!((avq.probe("virtual_capacity") / 8.0 - capacity).abs() < 1e-6);
        }
    }

    /// The link falls from 8 to 2 Mbit/s.
    #[test]
    fn default_capacity_follows_the_link_and_a_set_one_stays() {
        let fixed = ("capacity", Value::Number(8e6));
        for (adapt, given, expected) in
            [(false, None, 2e6), (false, Some(fixed), 8e6), (true, None, 2e6), (true, Some(fixed), 8e6)]
        {
            let given: Vec<_> = [("adapt", Value::Flag(adapt)), ("gamma", Value::Number(1.0))]
                .into_iter()
                .chain([("alpha", Value::Number(1e-9))])
                .chain(given)
                .collect();
            let mut avq = Steps::new(&ALGORITHM, &given);
            avq.state.capacity = bentpipe_units::Rate::from_bps(2_000_000);
            avq.arrive(1000, 1000);
            assert!((avq.probe("virtual_capacity") - expected).abs() < 1.0, "{given:?}");
        }
    }

    /// With gamma = 1/2 and alpha = 1/10, C' starts at half a byte per microsecond. In bytes and seconds: C = 1e6, C' =
    /// 5e5. After 1000 us: C' = min(5e5 + 0.1 0.5 1e6 0.001, 1e6) - 0.1 1000 = 5e5 + 50 - 100.
    #[test]
    fn virtual_capacity_falls_with_arrivals_and_rises_with_time() {
        let given = [("gamma", 0.5), ("alpha", 0.1)].map(|(name, x)| (name, Value::Number(x)));
        let mut avq = Steps::new(&ALGORITHM, &given);
        avq.arrive(1000, 1000);
        assert!((avq.probe("virtual_capacity") / 8.0 - 499_950.0).abs() < 1e-6);
        // A second without arrivals: + 0.1 0.5 1e6 1 = 5e4, then - 100.
        avq.arrive(1_001_000, 1000);
        assert!((avq.probe("virtual_capacity") / 8.0 - 549_850.0).abs() < 1e-6);
    }

    /// With alpha = 1 and gamma = 1/2, C' never exceeds C = 1e6, however long the pause: 1e6 - 1000. And 2000 packets
    /// of 1000 bytes at a time reduce it to 0, from where it rises by 0.5 1e6 0.004, less the packet: 1000.
    #[test]
    fn virtual_capacity_stays_between_zero_and_the_links() {
        let given = [("gamma", 0.5), ("alpha", 1.0)].map(|(name, x)| (name, Value::Number(x)));
        let mut avq = Steps::new(&ALGORITHM, &given);
        avq.arrive(100_000_000, 1000);
        assert!((avq.probe("virtual_capacity") / 8.0 - 999_000.0).abs() < 1e-6);
        for _ in 0..2000 {
            avq.arrive(100_000_000, 1000);
        }
        assert_eq!(avq.probe("virtual_capacity"), 0.0);
        avq.arrive(100_004_000, 1000);
        assert!((avq.probe("virtual_capacity") / 8.0 - 1000.0).abs() < 1e-6);
    }

    /// A virtual capacity of half of 1,000,000 bytes/s loses 0.1 of the 1000 bytes that arrive. A successor with another
    /// `gamma` continues with it if it adapts; without adaptation it is 0.8 of the capacity again.
    #[test]
    fn virtual_capacity_passes_to_a_successor_that_adapts() {
        let given = |adapt, gamma| {
            [("adapt", Value::Flag(adapt)), ("gamma", Value::Number(gamma)), ("alpha", Value::Number(0.1))]
        };
        for (adapt, before, after) in [(true, 499_900.0, 499_900.0), (false, 500_000.0, 800_000.0)] {
            let mut avq = Steps::new(&ALGORITHM, &given(adapt, 0.5));
            avq.arrive(0, 1000);
            assert!((avq.probe("virtual_capacity") / 8.0 - before).abs() < 1e-6, "adapt {adapt}");
            assert!(avq.replace(Steps::build(&ALGORITHM, &given(adapt, 0.8))));
            assert!((avq.probe("virtual_capacity") / 8.0 - after).abs() < 1e-6, "adapt {adapt}");
        }
    }

    fn model(variant: FluidVariant, adapt: bool, accepted: bool) -> Box<dyn FluidModel> {
        let given = [
            ("gamma", Value::Number(0.5)),
            ("alpha", Value::Number(0.1)),
            ("buffer", Value::Number(10_000.0)),
            ("adapt", Value::Flag(adapt)),
            ("accepted", Value::Flag(accepted)),
        ];
        super::super::steps::fluid(&ALGORITHM, &given, variant)
    }

    /// A virtual queue of at most 10 packets, served at first at `gamma` C = 500 packets/s. At C' = 600, 0.8 of 1000
    /// packets/s exceed the service by 200, and C' changes by `alpha (gamma C - λ)`: 0.1 (500 - 1000) for all arrivals, 0.1
    /// (500 - 800) for the accepted ones.
    #[test]
    fn fluid_follows_the_equations() {
        for (adapt, accepted, change) in
            [(true, false, -50.0), (true, true, -30.0), (false, false, 0.0), (false, true, 0.0)]
        {
            let avq = model(FluidVariant::Actual, adapt, accepted);
            assert_eq!(start(&*avq), [0.0, 500.0]);
            let inputs = Inputs { accepted: 800.0, ..INPUTS };
            let [dv, dc] = derivatives(&*avq, [5.0, 600.0], 0.2, &inputs);
            assert_eq!(dv, 200.0);
            assert!((dc - change).abs() < 1e-9, "adapt {adapt}, accepted {accepted}: {dc}");
        }
        let avq = model(FluidVariant::Actual, true, false);
        let marks = [5.0, 9.6, 10.0].map(|v| avq.mark(&[v, 250.0], &INPUTS.arrivals()));
        assert_eq!(marks, [0.0, 0.75, 0.75]);
        // C' stays between 0 and C.
        assert_eq!(derivatives(&*avq, [0.0, 1000.0], 0.0, &Inputs { load: 0.0, ..INPUTS }), [0.0, 0.0]);
        assert_eq!(derivatives(&*avq, [10.0, 0.0], 1.0, &INPUTS), [0.0, 0.0]);
        assert_eq!(fluid_probes(&*avq, &[5.0, 600.0]), [("VQ", 5000.0), ("virtual_capacity", 4.8e6)]);
    }

    /// [B07] 4.4: with a third of 9 packets as the threshold, `dp/dt = -p` below it and `1 - p` above it, per unit of 100 ms.
    /// In its middle the ramp of one packet is at 1/2.
    #[test]
    fn printed_fluid_follows_the_equations() {
        let given = [("gamma", 0.5), ("alpha", 0.1), ("buffer", 9000.0)];
        let given = given.map(|(name, x)| (name, Value::Number(x)));
        let avq = super::super::steps::fluid(&ALGORITHM, &given, FluidVariant::Printed);
        assert_eq!(start(&*avq), [0.0, 0.0, 500.0]);
        let inputs = Inputs { accepted: 800.0, unit: 0.1, ..INPUTS };
        for (v, change) in [(1.0, -2.0), (2.5, -2.0), (3.0, 3.0), (3.25, 5.5), (3.5, 8.0), (9.0, 8.0)] {
            let [dv, dp, dc] = derivatives(&*avq, [v, 0.2, 600.0], 0.2, &inputs);
            assert_eq!(dv, 200.0);
            assert!((dp - change).abs() < 1e-9, "{dp}, not {change}, at {v}");
            assert!((dc + 50.0).abs() < 1e-9, "{dc}");
        }
        assert_eq!([-0.1, 0.2, 1.1].map(|p| avq.mark(&[5.0, p, 600.0], &INPUTS.arrivals())), [0.0, 0.2, 1.0]);
        assert_eq!(fluid_probes(&*avq, &[5.0, 0.2, 600.0]), [("VQ", 5000.0), ("virtual_capacity", 4.8e6)]);
    }

    /// 50 ms of 1,000,000 bytes/s are 50,000 bytes; of 10,000 bytes/s they would be 500, less than two packets.
    #[test]
    fn default_buffer_is_50_ms_and_at_least_two_packets() {
        for (bps, buffer) in [(8_000_000, 50_000.0), (80_000, 2000.0)] {
            let link = Link { capacity: Rate::from_bps(bps), mean_packet: 1000.0 };
            let values = Values::resolve(PARAMS, &link, &|_| None).unwrap();
            assert!((values.number("buffer") - buffer).abs() < 1e-9, "{}", values.number("buffer"));
            assert_eq!(values.number("capacity"), bps as f64);
        }
    }
}
