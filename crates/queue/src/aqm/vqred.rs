//! VQ-RED, per-flow virtual queue RED: a virtual queue per flow, and marks for flows that exceed their fair share.
//!
//! [B07] 2.2.7. Every `period`, over all bytes that arrived: `rate = 0.1 rate + 0.9 (bytes / period / active flows)`.
//! Each flow has a virtual queue `v`, which is served at that rate. On every arrival of `b` bytes, `t - s` after the
//! flow's last one: `v > max_th`: drop; between the thresholds mark with probability
//! `(v - min_th) / (max_th - min_th)`; unless dropped, `v += b`; then `v = max(v - rate (t - s), 0)`. A flow without
//! packets for `inactivity` is removed.
//!
//! *Departures:* the thresholds are times in which the virtual queue would be served, `v / rate`: the same number of
//! packets is a burst for one of 400 flows and little for one of 4. With `rate = "link"`, the default, the active flows
//! share the link's capacity. With `rate = "arrived"` they share the arrival rate, as printed, but at least the
//! capacity; with `rate = "printed"` the arrival rate alone. As printed, every flow is served at the mean rate of all flows: on a lightly loaded link its virtual queue
//! wanders over any threshold in time, and if all flows send at twice their share none is marked, and the queue behind
//! grows until something else stops it. The number of active flows is exact to a sixth of `inactivity`.
//!
//! *In a satellite gateway:* it watches only arrivals, so it can stand ahead of the PEP. A flow's virtual queue is the
//! queue that it would have on a separate link, so a heavy flow is marked before it harms light ones, which is
//! impossible with a common queue. The queue behind is not watched; its length is the sum of the flows' allowances: the
//! thresholds have to be small compared with the duration of a flow, and large compared with its round trip. With a
//! long `inactivity` the shares of finished flows stay idle; with a short one flows that wait for a timeout are not
//! counted, and the others together get more than the capacity. The defaults reach 17.7 of 20 Mbit/s on the 2007
//! gateway with a mean queue of 23 packets, and drop a quarter more than AVQRED; with `inactivity = "1 s"` or
//! `rate = "arrived"` the queue fills until the PEP's buffers stop it. PFAVQRED leaves less of the link idle, and drops
//! more.

use std::any::Any;

use bentpipe_units::{Duration, Instant};

use super::active::{Active, Step};
use crate::FlowTable;
use crate::descriptor::{Algorithm, Placement};
use crate::{Aqm, Context, FlowId, Packet, Param, ParamError, Range, Tune, Unit, Values, Verdict};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "vqred",
    title: "Virtual queue RED per flow",
    source: "[B07] 2.2.7",
    params: PARAMS,
    presets: &[],
    placement: Placement::Anywhere,
    build: |values| Ok(Box::new(VqRed::new(values)?)),
    fluid: None,
};

const PARAMS: &[Param] = &[
    Param::number("min_th", Unit::Seconds, 1.0, Range::between(0.0, 1e6))
        .doc("Length of a flow's virtual queue below which its packets are not marked")
        .origin("found by search on the 2007 gateway and a dumbbell with a round trip of 560 ms")
        .tune(Tune::Log(0.05, 5.0)),
    Param::number("max_th", Unit::Seconds, 10.0, Range::above(0.0, 1e6))
        .doc("Length of a flow's virtual queue above which its packets are dropped")
        .origin("found by search on the 2007 gateway and a dumbbell with a round trip of 560 ms")
        .tune(Tune::Log(0.5, 50.0)),
    Param::name(
        "rate",
        &["link", "arrived", "printed"],
        "link",
        "Rate that active flows share evenly: the link's capacity, the arrival rate but at least that, or the arrival rate alone, as printed",
    )
    .origin("the 2007 gateway, whose queue grows without limit under the printed rule")
    .tune(Tune::Each),
    Param::number("period", Unit::Seconds, 0.1, Range::between(0.000_001, 60.0))
        .doc("Time over which arrivals are measured; no effect with `rate = \"link\"`")
        .origin("chosen above terrestrial round trips")
        .tune(Tune::Log(0.01, 1.0)),
    Param::number("inactivity", Unit::Seconds, 3.0, Range::between(0.001, 1e6))
        .doc("Time without packets after which a flow is removed")
        .origin("found by search on the 2007 gateway")
        .tune(Tune::Log(0.1, 10.0)),
];

/// VQ-RED's state.
#[derive(Debug)]
pub struct VqRed {
    /// [s]
    min_th: f64,
    /// [s]
    max_th: f64,
    service: Service,
    period: Duration,
    flows: FlowTable<Flow>,
    active: Active,
    /// Bytes that arrived since the last update.
    arrived: u64,
    /// Measured service rate of each virtual queue [bytes/s].
    rate: f64,
    /// Virtual queue that the last packet found [s].
    met: f64,
    p: f64,
    next: Instant,
}

/// Rate that active flows share.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Service {
    /// The link's capacity.
    Link,
    /// The rate of the arrivals, but at least the link's capacity.
    ArrivedOrLink,
    /// The rate of the arrivals.
    Arrived,
}

/// Packed, because a table of a hundred thousand exceeds the caches.
#[derive(Clone, Copy, Debug)]
#[repr(Rust, packed(4))]
struct Flow {
    /// v [bytes]; below 0 until it is known whether the last packet is accepted.
    v: f64,
    /// s: time of the last arrival.
    last: Instant,
    /// Step of the last arrival.
    active_step: Step,
}

const _: () = assert!(size_of::<Option<(FlowId, Flow)>>() == 24);

impl VqRed {
    /// # Errors
    /// Unless `min_th < max_th`.
    pub fn new(v: &Values) -> Result<Self, ParamError> {
        v.in_order("min_th", "max_th")?;
        let period = Duration::from_secs_f64(v.number("period"));
        Ok(Self {
            min_th: v.number("min_th"),
            max_th: v.number("max_th"),
            service: match v.name("rate") {
                "arrived" => Service::ArrivedOrLink,
                "printed" => Service::Arrived,
                _ => Service::Link,
            },
            period,
            flows: FlowTable::default(),
            active: Active::new(Duration::from_secs_f64(v.number("inactivity")), 6),
            arrived: 0,
            rate: 0.0,
            met: 0.0,
            p: 0.0,
            next: Instant::ZERO + period,
        })
    }
}

impl Aqm for VqRed {
    fn arrive(&mut self, pkt: &Packet, cx: &mut Context<'_>) -> Verdict {
        self.arrived += u64::from(pkt.len);
        let active_step = self.active.at(cx.now);
        let active = &mut self.active;
        // Two slots per packet: the whole table is visited within as many packets as it has flows, or a few times that.
        self.flows.sweep(2, |_, flow| active.counts(flow.active_step));
        let mut fresh = false;
        let flow = self.flows.get_or_insert_with(pkt.flow, || {
            fresh = true;
            Flow { v: 0.0, last: cx.now, active_step }
        });
        if fresh {
            active.note(None);
        } else {
            if !active.counts(flow.active_step) {
                (flow.v, flow.last) = (0.0, cx.now);
            }
            active.note(Some(flow.active_step));
            flow.active_step = active_step;
        }
        let share = cx.queue.capacity.bytes_per_sec() / f64::from(active.active());
        let rate = match self.service {
            Service::Link => share,
            Service::ArrivedOrLink => self.rate.max(share),
            // Nothing is measured yet in the first period.
            Service::Arrived => {
                if self.rate > 0.0 {
                    self.rate
                } else {
                    share
                }
            }
        };
        let v = flow.v.max(0.0);
        // `admit` adds the packet if it is accepted; this service then covers it.
        flow.v = v - rate * (cx.now - flow.last).as_secs_f64();
        flow.last = cx.now;
        // A link without capacity never serves anything.
        let time = v / rate.max(f64::MIN_POSITIVE);
        self.met = time.min(1e9);
        self.p = ((time - self.min_th) / (self.max_th - self.min_th)).clamp(0.0, 1.0);
        if time > self.max_th {
            Verdict::Drop
        } else if time > self.min_th && cx.rng.uniform() < self.p {
            Verdict::Mark
        } else {
            Verdict::Pass
        }
    }

    fn admit(&mut self, pkt: &Packet, _cx: &mut Context<'_>) {
        if let Some(flow) = self.flows.get_mut(pkt.flow) {
            flow.v = (flow.v + f64::from(pkt.len)).max(0.0);
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        (self.service != Service::Link).then_some(self.next)
    }

    fn wake(&mut self, cx: &mut Context<'_>) {
        self.active.at(cx.now);
        let flows = f64::from(self.active.active().max(1));
        self.rate = 0.1 * self.rate + 0.9 * (self.arrived as f64 / self.period.as_secs_f64() / flows);
        self.arrived = 0;
        self.next += self.period;
    }

    fn resume(&mut self, previous: &mut dyn Any) -> bool {
        let Some(was) = previous.downcast_mut::<Self>() else { return false };
        self.arrived = was.arrived;
        self.rate = was.rate;
        self.met = was.met;
        self.p = was.p;
        self.next = was.next;
        if self.active.has_steps_of(&was.active) {
            std::mem::swap(&mut self.flows, &mut was.flows);
            std::mem::swap(&mut self.active, &mut was.active);
        }
        true
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("p", self.p);
        out("v", self.met);
        out("rate", 8.0 * self.rate);
        out("active", f64::from(self.active.active()));
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_units::Rng;

    use super::super::steps::Steps;
    use super::*;
    use crate::Value;

    fn vqred(rate: &'static str, given: &[(&'static str, f64)]) -> Steps {
        let mut values: Vec<_> = given.iter().map(|(name, x)| (*name, Value::Number(*x))).collect();
        values.push(("rate", Value::Name(rate)));
        Steps::new(&ALGORITHM, &values)
    }

    /// Worked out by hand: the active flows share one byte per microsecond, packets have 1000 bytes, the thresholds are
    /// 4 and 9 ms. Columns: time [us], flow, duration of the `v` that the packet finds [ms], and `p`.
    #[test]
    fn arrivals_follow_the_printed_listing() {
        let mut vqred = vqred("link", &[("min_th", 0.004), ("max_th", 0.009)]);
        for (us, flow, ms, p) in [
            (0, 1, 0.0, 0.0),
            // Two flows: half a byte per microsecond each.
            (0, 2, 0.0, 0.0),
            // The packet finds 1000 bytes, 2 ms; with it 2000, of which 400 us serve 200.
            (400, 1, 2.0, 0.0),
            // 1800 bytes.
            (400, 1, 3.6, 0.0),
            // Three flows now, a third of a byte per microsecond each.
            (600, 3, 0.0, 0.0),
            // The packet finds the queue before it is served, however long it has waited: 1000 bytes.
            (600, 2, 3.0, 0.0),
            // 1000 + 1000 - 600 / 3 = 1800.
            (600, 2, 5.4, 0.28),
            // 2800, 8.4 ms: just below the upper threshold.
            (700, 1, 8.4, 0.88),
        ] {
            vqred.arrive_of(us, 1000, flow);
            let (v, got) = (1e3 * vqred.probe("v"), vqred.probe("p"));
            assert!(
                (v - ms).abs() < 1e-9 && (got - p).abs() < 1e-9,
                "flow {flow} at {us} us: {v} ms, p {got}"
            );
        }
    }

    /// Above `max_th` a packet is dropped, whatever the marking method, and is not added; the queue is served
    /// meanwhile.
    #[test]
    fn packets_above_the_upper_threshold_are_dropped() {
        let mut vqred = vqred("link", &[("min_th", 0.0039), ("max_th", 0.004)]);
        let verdicts: Vec<_> = (0..6).map(|_| vqred.arrive(10, 1001)).collect();
        assert_eq!(verdicts[..4], [Verdict::Pass; 4]);
        assert_eq!(verdicts[4..], [Verdict::Drop; 2]);
        assert!((vqred.probe("v") - 0.004_004).abs() < 1e-12);
        // The decision precedes the service: one more drop, then 5000 us have emptied the queue.
        assert_eq!([vqred.arrive(5010, 1001), vqred.arrive(5010, 1001)], [Verdict::Drop, Verdict::Pass]);
        assert_eq!(vqred.probe("v"), 0.0);
    }

    /// In 100 ms 400 kB arrive from two flows, four times the link's capacity: 0.9 of 4e6 / 2 bytes/s = 14.4 Mbit/s.
    /// Then nothing: a tenth of it.
    #[test]
    fn arrival_rate_is_measured() {
        let mut vqred = vqred("arrived", &[("period", 0.1)]);
        for i in 0..400 {
            vqred.arrive_of(i * 250, 1000, (i % 2) as u32);
        }
        assert_eq!(vqred.wake(), 100_000);
        assert!((vqred.probe("rate") - 14.4e6).abs() < 1e-3);
        assert_eq!(vqred.wake(), 200_000);
        assert!((vqred.probe("rate") - 1.44e6).abs() < 1e-3);
    }

    /// Ten flows with random arrivals at 0.3 of the capacity. Served at the arrival rate alone, a virtual queue would
    /// wander; no packet is marked in 100 s, because it is served at a tenth of the link at least.
    #[test]
    fn light_load_is_never_marked() {
        let mut vqred = vqred("arrived", &[("min_th", 0.3), ("max_th", 1.0), ("period", 0.1)]);
        let mut rng = Rng::stream(1, "light", 0, "test");
        let (mut us, mut next) = (0, 100_000);
        while us < 100_000_000 {
            us += rng.exponential(3333.0) as u64;
            while next <= us {
                next = vqred.wake() + 100_000;
            }
            assert_eq!(vqred.arrive_of(us, 1000, rng.below(10) as u32), Verdict::Pass, "at {us} us");
        }
        assert!((vqred.probe("rate") / 8.0 - 30_000.0).abs() < 20_000.0, "{}", vqred.probe("rate"));
    }

    /// Two flows at 100 and 50 kbit/s on a link of 8 Mbit/s ([B07] 2.2.7 has 1 Mbit/s). Served at their mean of
    /// 75 kbit/s, the virtual queue of the faster grows by 25 kbit/s until it is marked; that of the slower stays empty.
    /// Served at a share of the link, neither grows.
    #[test]
    fn as_printed_the_faster_of_two_flows_is_marked_on_an_idle_link() {
        for (rate, marked) in [("printed", true), ("arrived", false), ("link", false)] {
            let mut vqred = vqred(rate, &[("min_th", 1.0), ("max_th", 2.0), ("period", 0.5)]);
            let (mut marks, mut next) = ([0, 0], 500_000);
            for us in (0..60_000_000).step_by(80_000) {
                while next <= us {
                    if rate != "link" {
                        vqred.wake();
                    }
                    next += 500_000;
                }
                marks[0] += u32::from(vqred.arrive_of(us, 1000, 0) != Verdict::Pass);
                marks[1] += u32::from(vqred.arrive_of(us, 500, 1) != Verdict::Pass);
            }
            assert_eq!((marks[0] > 0, marks[1]), (marked, 0), "{rate}: {marks:?}");
        }
    }

    /// A flow that returns after its inactivity has an empty virtual queue, and is not counted in between.
    #[test]
    fn inactive_flows_are_removed() {
        let mut vqred = vqred("link", &[("inactivity", 0.6)]);
        for _ in 0..5 {
            vqred.arrive_of(0, 1000, 7);
        }
        vqred.arrive_of(500_000, 1000, 8);
        assert_eq!(vqred.probe("active"), 2.0);
        vqred.arrive_of(710_000, 1000, 8);
        assert_eq!(vqred.probe("active"), 1.0);
        vqred.arrive_of(710_000, 1000, 7);
        assert_eq!((vqred.probe("active"), vqred.probe("v")), (2.0, 0.0));
    }

    /// A flow at three times its share is marked until its accepted rate is near that share, of which it may be a fifth
    /// of a second ahead; nine flows below their share are never marked.
    #[test]
    fn only_the_heavy_flow_is_marked() {
        let mut vqred = vqred("link", &[("min_th", 0.05), ("max_th", 0.2)]);
        let (mut light, mut heavy) = (0, 0);
        // The share of each of ten flows is 100,000 bytes/s. Nine send a packet every 11.7 ms, one every 3.3 ms.
        for us in (0..10_000_000).step_by(100) {
            if us % 1300 == 0 {
                light += u32::from(vqred.arrive_of(us, 1000, (us / 1300 % 9) as u32) != Verdict::Pass);
            }
            if us % 3300 == 0 {
                heavy += u32::from(vqred.arrive_of(us, 1000, 99) == Verdict::Pass);
            }
        }
        assert_eq!(light, 0);
        assert!((1000..=1020).contains(&heavy), "{heavy} packets of 1000 bytes in 10 s at 100 kB/s");
    }

    /// A virtual queue of exactly `max_th`, 4000 bytes at one byte per microsecond, always marks; a drop takes more.
    #[test]
    fn packets_at_the_upper_threshold_are_marked() {
        let mut vqred = vqred("link", &[("min_th", 0.0039), ("max_th", 0.004)]);
        for verdict in [Verdict::Pass, Verdict::Pass, Verdict::Pass, Verdict::Pass, Verdict::Mark] {
            assert_eq!(vqred.arrive(10, 1000), verdict);
        }
        assert_eq!((vqred.probe("v"), vqred.probe("p")), (0.004, 1.0));
    }

    /// Half way between the thresholds, 5000 bytes of 4000 to 6000, half of 10,000 packets are marked, within five
    /// standard errors of 50; none is added.
    #[test]
    fn marks_with_its_probability() {
        let mut vqred = vqred("link", &[("min_th", 0.004), ("max_th", 0.006)]);
        for _ in 0..5 {
            vqred.arrive(10, 1000);
        }
        let marks = (0..10_000).filter(|_| vqred.decide(10, 1000, 0) == Verdict::Mark).count();
        assert!((4750..=5250).contains(&marks), "{marks}");
    }
}
