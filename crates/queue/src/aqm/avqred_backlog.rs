//! AVQRED with a backlog term: a real queue longer than its target slows the service of the virtual queue, so that a
//! standing queue drains.
//!
//! AVQRED ([B07] 4.2) serves its virtual queue at the link's rate. It then accepts what the link carries, however long
//! the real queue is: a queue that a burst has left stays. Here the virtual queue is served at
//!
//! ```text
//! served = max(v_cap - (backlog - target capacity) / drain_time, least_share v_cap)
//! ```
//!
//! where `backlog` is the bytes waiting in the watched queue and `capacity` the current rate of its link. `v_cap`, the
//! virtual queue and the marking decision are [avqred](avqred.md)'s. While the virtual queue is busy, accepted packets
//! arrive at the rate `served`, so the real queue `q` approaches its target exponentially:
//!
//! ```text
//! dq/dt = served - capacity = -(q - target capacity) / drain_time
//! ```
//!
//! With the delay `d` from the mark point to the watched queue this equation has a double root at `drain_time = e d`:
//! from there on the queue does not overshoot, and below `2 d / pi` it oscillates. The senders' round trip adds to `d`.
//! [avqred_backlog](../avqred_backlog.md) has the stable range, measurements and limits.
//!
//! *Departures:* the term is not in the papers. The real queue comes from the same tap as AVQRED's output rate: bytes
//! waiting beside bytes sent.
//!
//! *In a satellite gateway:* it stands ahead of the PEP and watches the transmit queue behind it, as AVQRED does. Bytes
//! in the PEP are not part of `backlog`. The target is a time, so that it follows a link that fades.

use std::any::Any;

use super::avqred::{self, AvqRedFluid, VirtualQueue};
use super::uniform_dropper::{self, UniformDropper};
use crate::descriptor::{Algorithm, Placement};
use crate::fluid::{Arrivals, Equilibrium, FluidConfig, FluidModel, Inputs, Service};
use crate::{Aqm, Context, Packet, Param, ParamError, Range, Tune, Unit, Values, Verdict};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "avqred_backlog",
    title: "AVQRED with a backlog term",
    source: "derived here from [B07] 4.2",
    params: PARAMS,
    presets: &[],
    placement: Placement::Anywhere,
    build: |values| Ok(Box::new(AvqRedBacklog::new(values)?)),
    fluid: Some(|values, given| Ok(Box::new(AvqRedBacklogFluid::new(values, given)?))),
};

const PARAMS: &[Param] = &[
    uniform_dropper::MIN_TH,
    uniform_dropper::MAX_TH,
    avqred::ALPHA,
    avqred::MIN_CAPACITY,
    avqred::MAX_CAPACITY,
    avqred::MEAN_PACKET,
    Param::number("target", Unit::Seconds, 0.0165, Range::between(0.0, 10.0))
        .doc("Backlog that the term aims at, as the time in which the link sends it")
        .origin("half of the lower threshold's 33 ms; best of a grid by Byun & Baras's rank sums")
        .tune(Tune::Log(0.002, 0.1)),
    Param::number("drain_time", Unit::Seconds, 0.5, Range::between(0.001, 1000.0))
        .doc("Time in which a backlog's excess over the target falls to 1/e")
        .origin("best of a grid by Byun & Baras's rank sums, within the fluid model's stable range")
        .tune(Tune::Log(0.2, 5.0)),
    Param::number("least_share", Unit::One, 0.5, Range::between(0.0, 1.0))
        .doc("Minimum service rate of the virtual queue, as a share of the virtual capacity")
        .origin("ERICA+'s QDLF")
        .tune(Tune::Linear(0.2, 0.9)),
];

/// Service of the virtual queue.
#[derive(Clone, Copy, Debug)]
struct Drain {
    target: f64,
    drain_time: f64,
    least_share: f64,
}

impl Drain {
    fn new(v: &Values) -> Self {
        Self {
            target: v.number("target"),
            drain_time: v.number("drain_time"),
            least_share: v.number("least_share"),
        }
    }

    /// Returns the service rate; rates and backlog in one unit, bytes or packets.
    fn rate(self, v_cap: f64, backlog: f64, capacity: f64) -> f64 {
        let excess = backlog - self.target * capacity;
        (v_cap - excess / self.drain_time).max(self.least_share * v_cap)
    }
}

/// State of AVQRED with a backlog term.
#[derive(Debug)]
pub struct AvqRedBacklog {
    queue: VirtualQueue,
    dropper: UniformDropper,
    drain: Drain,
    /// Present service rate of the virtual queue [bytes/s].
    served: f64,
}

impl AvqRedBacklog {
    fn new(v: &Values) -> Result<Self, ParamError> {
        v.in_order("min_th", "max_th")?;
        let queue = VirtualQueue::new(v)?;
        Ok(Self {
            served: queue.v_cap,
            queue,
            dropper: UniformDropper::new(v.number("min_th"), v.number("max_th"), 1.0),
            drain: Drain::new(v),
        })
    }
}

impl Aqm for AvqRedBacklog {
    fn arrive(&mut self, _pkt: &Packet, cx: &mut Context<'_>) -> Verdict {
        let (backlog, capacity) = (cx.queue.bytes as f64, cx.queue.capacity.bytes_per_sec());
        let (drain, served) = (self.drain, &mut self.served);
        self.queue.serve_at(cx, |v_cap| {
            *served = drain.rate(v_cap, backlog, capacity);
            *served
        });
        if self.dropper.draw(self.queue.packets(), 1.0, cx.rng) { Verdict::Mark } else { Verdict::Pass }
    }

    fn admit(&mut self, pkt: &Packet, _cx: &mut Context<'_>) {
        self.queue.add(pkt.len);
    }

    fn resume(&mut self, previous: &mut dyn Any) -> bool {
        let Some(was) = previous.downcast_mut::<Self>() else { return false };
        self.served = was.served;
        self.queue.resume(&was.queue);
        self.dropper.resume(&was.dropper);
        true
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("VQ", self.queue.packets());
        out("v_cap", 8.0 * self.queue.v_cap);
        out("served", 8.0 * self.served);
        out("p", self.dropper.probability());
    }
}

/// AVQRED with a backlog term as a fluid: AVQRED's equations ([avqred](avqred.md)), with the virtual queue served at
/// `max(v_cap - (q - target C) / drain_time, least_share v_cap)`. Unlike AVQRED's, this determines the real queue: in
/// equilibrium a busy link has `q = target C + drain_time (v_cap - C)`.
struct AvqRedBacklogFluid {
    avqred: AvqRedFluid,
    drain: Drain,
}

impl AvqRedBacklogFluid {
    fn new(v: &Values, given: &FluidConfig) -> Result<Self, ParamError> {
        Ok(Self { avqred: AvqRedFluid::new(v, given)?, drain: Drain::new(v) })
    }
}

impl FluidModel for AvqRedBacklogFluid {
    fn states(&self) -> usize {
        self.avqred.states()
    }

    fn start(&self, x: &mut [f64]) {
        self.avqred.start(x);
    }

    fn mark(&self, x: &[f64], arrivals: &Arrivals) -> f64 {
        self.avqred.mark(x, arrivals)
    }

    fn derivatives(&self, x: &[f64], _p: f64, inputs: &Inputs, dx: &mut [f64]) {
        self.avqred.served_at(self.drain.rate(x[1], inputs.q, inputs.capacity), x, inputs, dx);
    }

    /// The real queue at which the virtual queue accepts what the link carries, by bisection: a longer queue is served
    /// faster and accepts less. If even an empty queue accepts less than a busy link carries, the link is idle at times.
    fn equilibrium(&self, share: f64, capacity: f64, service: Service, x: &mut [f64]) -> Option<Equilibrium> {
        let Equilibrium::Virtual { level, .. } = self.avqred.equilibrium(share, capacity, service, x)? else {
            return None;
        };
        let rate = |q: f64| self.drain.rate(x[1], q, capacity);
        let (virtually, least) = if service == Service::Full {
            (1.0, capacity * (1.0 - f64::EPSILON))
        } else {
            (Service::Md1.busy(level), 0.0)
        };
        let accepted = |q: f64| virtually * rate(q);
        if accepted(0.0) < least {
            return Some(Equilibrium::Virtual { level, rate: rate(0.0) });
        }
        let (mut low, mut high) = (0.0, capacity * (self.drain.target + self.drain.drain_time));
        if accepted(high) > capacity * service.busy(high) {
            return Some(Equilibrium::Virtual { level, rate: rate(high) });
        }
        for _ in 0..200 {
            let q = 0.5 * (low + high);
            if accepted(q) > capacity * service.busy(q) { low = q } else { high = q }
        }
        Some(Equilibrium::Queue(high))
    }

    fn probe(&self, x: &[f64], out: &mut dyn FnMut(&'static str, f64)) {
        self.avqred.probe(x, out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::steps::{INPUTS, Steps, derivatives, fluid, fluid_probes, start};
    use super::*;
    use crate::Value;
    use crate::fluid::FluidVariant;
    use bentpipe_units::Rate;

    fn steps(given: &[(&'static str, f64)]) -> Steps {
        let given: Vec<_> = given.iter().map(|(name, x)| (*name, Value::Number(*x))).collect();
        Steps::new(&ALGORITHM, &given)
    }

    /// Worked out by hand at one byte per microsecond: the target of 2 ms is 2000 bytes, and an excess of 1000 bytes
    /// over 10 ms is a tenth of the capacity. Columns: arrival [us], backlog [bytes], served [bytes/s], virtual queue
    /// after the arrival [packets of 1000 bytes].
    #[test]
    fn backlog_changes_the_service_of_the_virtual_queue() {
        let mut aqm = steps(&[("target", 0.002), ("drain_time", 0.01), ("least_share", 0.25)]);
        for (us, backlog, served, vq) in [
            // At the target: 1 byte/us, as AVQRED.
            (2000, 2000, 1e6, 1.0),
            // Not served again within 1 ms.
            (2100, 4000, 1e6, 2.0),
            (2200, 4000, 1e6, 3.0),
            // 2000 bytes above: 0.8 bytes/us for 1500 us serve 1200 bytes.
            (3500, 4000, 8e5, 2.8),
            // Empty: 1.2 bytes/us for 1500 us serve 1800 bytes.
            (5000, 0, 1.2e6, 2.0),
            // 100,000 bytes above would be -9 bytes/us: the least share, 0.25 bytes/us for 2000 us.
            (7000, 102_000, 2.5e5, 2.5),
        ] {
            aqm.state.bytes = backlog;
            aqm.arrive(us, 1000);
            assert!((aqm.probe("served") - 8.0 * served).abs() < 1e-3, "at {us}: {}", aqm.probe("served"));
            assert!((aqm.probe("VQ") - vq).abs() < 1e-9, "at {us}: {}", aqm.probe("VQ"));
        }
    }

    /// The link falls to a quarter: 250,000 bytes/s. The target of 2 ms is 500 bytes then, and a backlog of 1500 bytes
    /// exceeds it by 1000 bytes, a tenth of the nominal capacity over 10 ms.
    #[test]
    fn target_follows_a_link_that_fades() {
        let mut aqm = steps(&[("target", 0.002), ("drain_time", 0.01), ("alpha", 1.0)]);
        aqm.state.capacity = Rate::from_bps(2_000_000);
        aqm.state.sent_bytes = 500;
        aqm.state.bytes = 1500;
        aqm.arrive(2000, 1000);
        assert_eq!((aqm.probe("v_cap"), aqm.probe("served")), (2e6, 1.2e6));
    }

    /// Twice the capacity arrives, and the virtual queue stays at its step of 20 packets, so it accepts what it serves.
    /// By hand the real queue falls from 100 packets as `10 + 90 exp(-t / drain_time)`, with a target of 10 ms: 43.1
    /// packets after 0.5 s, 22.2 after 1 s, 14.5 after 1.5 s. The virtual queue holds whole packets: one more or less.
    #[test]
    fn standing_queue_drains_exponentially() {
        let mut aqm = steps(&[("min_th", 19.999), ("max_th", 20.0), ("target", 0.01)]);
        aqm.state.bytes = 10_000;
        let mut us = 0;
        let mut accepted = |aqm: &mut Steps| {
            us += 500;
            aqm.arrive(us, 1000) == Verdict::Pass
        };
        // The virtual queue reaches the step.
        (0..200).for_each(|_| _ = accepted(&mut aqm));
        let mut q: f64 = 100_000.0;
        for packets in [43.1, 22.2, 14.5] {
            for _ in 0..1000 {
                aqm.state.bytes = q as u64;
                q += if accepted(&mut aqm) { 500.0 } else { -500.0 };
            }
            assert!((q / 1000.0 - packets).abs() < 1.0, "{q} bytes, by hand {packets} packets");
        }
    }

    /// Without a measurement the virtual queue is served at the link's rate. A successor keeps the rate.
    #[test]
    fn service_passes_to_a_successor() {
        let mut aqm = steps(&[("target", 0.002), ("drain_time", 0.01)]);
        assert_eq!(aqm.probe("served"), 8e6);
        aqm.state.bytes = 4000;
        aqm.arrive(2000, 1000);
        assert!((aqm.probe("served") - 6.4e6).abs() < 1e-3);
        assert!(aqm.replace(Steps::build(&ALGORITHM, &[("drain_time", Value::Number(1.0))])));
        assert!((aqm.probe("served") - 6.4e6).abs() < 1e-3 && aqm.probe("VQ") == 1.0);
    }

    /// A model with thresholds of 0.5 and 1.5 packets, a target of 10 ms, 10 packets at 1000 packets/s, a drain time of 0.5
    /// s, and a fixed virtual capacity [packets/s].
    fn model(v_cap: f64) -> Box<dyn FluidModel> {
        let given = [
            ("min_th", 0.5),
            ("max_th", 1.5),
            ("min_capacity", 8000.0 * v_cap),
            ("max_capacity", 8000.0 * v_cap),
            ("target", 0.01),
        ];
        fluid(&ALGORITHM, &given.map(|(name, x)| (name, Value::Number(x))), FluidVariant::Printed)
    }

    /// At 60 packets, 50 above the target, the virtual queue is served at 1000 - 50 / 0.5 = 900 packets/s, so 950 accepted
    /// packets/s add 50. Half way between the thresholds half of the packets are marked.
    #[test]
    fn fluid_follows_the_equations() {
        let aqm = model(1000.0);
        assert_eq!(start(&*aqm), [0.0, 1000.0]);
        let inputs = Inputs { q: 60.0, accepted: 950.0, ..INPUTS };
        assert_eq!(derivatives(&*aqm, [1.0, 1000.0], 0.05, &inputs), [50.0, 0.0]);
        assert_eq!([0.4, 1.0, 1.5].map(|v| aqm.mark(&[v, 1000.0], &INPUTS.arrivals())), [0.0, 0.5, 1.0]);
        assert_eq!(fluid_probes(&*aqm, &[1.0, 600.0]), [("VQ", 1.0), ("v_cap", 4.8e6)]);
    }

    /// Half way along the curve the virtual queue has 0.75 packets. A busy link has `q = target C + drain_time (v_cap - C)`:
    /// 10 packets at v_cap = C, 110 at 1200, 0 at 980, and the longest queue with a share of at least 1/2, 510, at 2000. One
    /// that is idle at times is busy for 1/2 of the time with 0.75 packets (M/D/1, as the virtual queue is) or 1 packet
    /// (M/M/1), and then the virtual service has to be 1000 packets/s: v_cap + (10 - q) / 0.5.
    #[test]
    fn fluid_equilibrium_is_the_queue_at_which_the_virtual_queue_accepts_what_the_link_carries() {
        for (v_cap, service, queue) in [
            (1000.0, Service::Full, 10.0),
            (1200.0, Service::Full, 110.0),
            (980.0, Service::Full, 0.0),
            (2000.0, Service::Full, 510.0),
            (982.0, Service::Mm1, 1.0),
            (981.5, Service::Md1, 0.75),
        ] {
            let mut x = [0.0; 2];
            let found = model(v_cap).equilibrium(0.5, 1000.0, service, &mut x);
            let Some(Equilibrium::Queue(q)) = found else { panic!("{v_cap}, {service:?}: {found:?}") };
            assert!((q - queue).abs() < 1e-6, "{v_cap}, {service:?}: {q} is not {queue}");
        }
    }

    /// With a least share of 0.8 and v_cap = 1250 packets/s the virtual queue accepts what the link carries at any queue from
    /// 10 + 0.5 (1250 - 1000) = 135 packets on: the shortest is the equilibrium.
    #[test]
    fn fluid_equilibrium_is_the_shortest_queue() {
        let given = [("min_capacity", 1e7), ("max_capacity", 1e7), ("target", 0.01), ("least_share", 0.8)];
        let given = given.map(|(name, x)| (name, Value::Number(x)));
        let aqm = fluid(&ALGORITHM, &given, FluidVariant::Printed);
        let found = aqm.equilibrium(0.5, 1000.0, Service::Full, &mut [0.0; 2]);
        assert!(matches!(found, Some(Equilibrium::Queue(q)) if (q - 135.0).abs() < 1e-6), "{found:?}");
    }

    /// Without marks an idle link has no queue.
    #[test]
    fn fluid_equilibrium_of_an_empty_virtual_queue_is_an_empty_queue() {
        let found = model(1000.0).equilibrium(0.0, 1000.0, Service::Mm1, &mut [0.0; 2]);
        assert!(matches!(found, Some(Equilibrium::Queue(q)) if q < 1e-6), "{found:?}");
    }

    /// An empty queue is served at 900 + 10 / 0.5 = 920 packets/s, less than the link carries: it is idle at times. A queue of
    /// 510 packets is served at 2400 - 500 / 0.5 = 1400 packets/s, more than the link carries. A link with 510 packets as in
    /// an M/M/1 queue sends 1000 510/511 = 998.04 packets/s, and the virtual queue accepts half of 2998 - 1000.
    #[test]
    fn fluid_equilibrium_is_virtual_if_no_queue_fits() {
        for (v_cap, service, rate) in
            [(900.0, Service::Full, 920.0), (2400.0, Service::Full, 1400.0), (2998.0, Service::Mm1, 1998.0)]
        {
            let found = model(v_cap).equilibrium(0.5, 1000.0, service, &mut [0.0; 2]);
            assert_eq!(found, Some(Equilibrium::Virtual { level: 0.75, rate }));
        }
    }
}
