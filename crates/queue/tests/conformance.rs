//! Properties of every algorithm in the registry.
//!
//! Each AQM is tested on a fifo, each scheduler with droptail, and a few AQMs on every scheduler.

use bentpipe_queue::aqm::threshold::Threshold;
use bentpipe_queue::descriptor::{Algorithm, SchedulerAlgorithm};
use bentpipe_queue::registry::{AQMS, SCHEDULERS};
use bentpipe_queue::{
    Aqm, Default, DropHandler, DropReason, Ecn, FlowEvent, FlowId, Limit, Link, MAX_DROPS_PER_DEQUEUE,
    Marking, Packet, Param, Queue, QueueConfig, Tcp, Tune, Unit, Value, Values,
};
use bentpipe_units::{Duration, Instant, Rate, Rng};
use cpu_time::ThreadTime;

const CAPACITY: Rate = Rate::from_bps(20_000_000);

fn link() -> Link {
    Link { capacity: CAPACITY, mean_packet: 1400.0 }
}

/// An AQM and a scheduler, both with their defaults.
#[derive(Clone, Copy)]
struct Pair(&'static Algorithm, &'static SchedulerAlgorithm);

impl Pair {
    fn name(&self) -> String {
        format!("{} on {}", self.0.name, self.1.name)
    }

    fn queue(&self, marking: Marking, packets: u32) -> Queue {
        self.queue_with(marking, packets, |aqm| aqm)
    }

    /// Builds a queue, with a wrapper around its AQM.
    fn queue_with(
        &self,
        marking: Marking,
        packets: u32,
        around: impl FnOnce(Box<dyn Aqm>) -> Box<dyn Aqm>,
    ) -> Queue {
        self.queue_given(marking, packets, &|_| None, around)
    }

    /// Builds a queue whose scheduler has the parameters `given`.
    fn queue_given(
        &self,
        marking: Marking,
        packets: u32,
        given: &dyn Fn(&str) -> Option<Value>,
        around: impl FnOnce(Box<dyn Aqm>) -> Box<dyn Aqm>,
    ) -> Queue {
        let scheduler = (self.1.build)(&Values::resolve(self.1.params, &link(), given).unwrap()).unwrap();
        let aqm =
            around((self.0.build)(&Values::resolve(self.0.params, &link(), &|_| None).unwrap()).unwrap());
        let setup = QueueConfig {
            marking,
            limit: Limit { packets, bytes: u64::MAX },
            capacity: CAPACITY,
            seed: 1,
            name: "conformance".to_owned(),
        };
        Queue::new(scheduler, aqm, &setup)
    }

    /// Returns true if the AQM or the scheduler signals congestion.
    fn signals(&self) -> bool {
        self.0.name != "droptail" || self.1.signals
    }
}

/// Every AQM on a fifo, every scheduler with droptail.
fn plain() -> impl Iterator<Item = Pair> {
    assert_eq!((AQMS[0].name, SCHEDULERS[0].name), ("droptail", "fifo"));
    AQMS.iter().map(|a| Pair(a, &SCHEDULERS[0])).chain(SCHEDULERS[1..].iter().map(|s| Pair(&AQMS[0], s)))
}

/// In addition some AQMs on every scheduler.
fn pairs() -> impl Iterator<Item = Pair> {
    let mixed =
        AQMS.iter().filter(|a| ["red", "codel", "avqred", "choke", "redfc", "fred"].contains(&a.name));
    plain().chain(mixed.flat_map(|a| SCHEDULERS[1..].iter().map(move |s| Pair(a, s))))
}

#[derive(Default)]
struct Lost(Vec<(Packet, DropReason)>);

impl DropHandler for Lost {
    fn dropped(&mut self, pkt: Packet, reason: DropReason) {
        self.0.push((pkt, reason));
    }
}

/// Arrivals at a queue.
#[derive(Clone, Copy)]
struct Traffic {
    start: Instant,
    packets: u32,
    /// Offered load as a share of the link's capacity.
    load: f64,
    flows: u32,
    len: u32,
    /// ECN field and split, by the packet's handle.
    kind: fn(u32) -> (Ecn, bool),
    /// True if flows open and close, and the capacity changes, all the time.
    churn: bool,
}

const TRAFFIC: Traffic = Traffic {
    start: Instant::ZERO,
    packets: 10_000,
    load: 1.2,
    flows: 50,
    len: 1400,
    kind: |_| (Ecn::NotEct, false),
    churn: false,
};

/// Packets sent and dropped.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    sent: Vec<Packet>,
    lost: Vec<(Packet, DropReason)>,
}

/// Wakes of a queue for each packet of a run, on average, at most. Fewer are due, which is asserted; more are due only to a
/// queue whose first packet arrives years after time zero.
const MOST_WAKES: u32 = 500;

impl Traffic {
    /// Offers the packets to a queue.
    fn drive(&self, queue: &mut Queue) -> Outcome {
        let (mut sent, mut lost) = (Vec::new(), Lost::default());
        let (mut wakes, most) = (0, MOST_WAKES * self.packets);
        let mut rng = Rng::stream(9, "traffic", 0, "test");
        let transmission = CAPACITY.time_to_send(u64::from(self.len.max(40)));
        let (mut now, mut link_free) = (self.start, self.start);
        for handle in 0..self.packets {
            now += transmission.scaled(rng.exponential(1.0 / self.load));
            while link_free <= now && link_free < Instant::from_nanos(u64::MAX) {
                match queue.dequeue(link_free, &mut lost) {
                    Some(pkt) => {
                        sent.push(pkt);
                        link_free += transmission;
                    }
                    None => link_free = now + Duration::from_nanos(1),
                }
            }
            while wakes < most && queue.wake_at().is_some_and(|at| at <= now) {
                wakes += 1;
                if let Some(pkt) = queue.wake(now, &mut lost) {
                    queue.enqueue(pkt, now, &mut lost);
                }
            }
            let flow = self.flow(&mut rng);
            if self.churn && handle % 7 == 0 {
                let event = if rng.below(2) == 0 { FlowEvent::Opened } else { FlowEvent::Closed };
                queue.flow(FlowId(self.flow(&mut rng)), event, now);
            }
            if self.churn && handle % 500 == 0 {
                queue.set_capacity(Rate::from_bps(rng.below(40_000_000)));
            }
            let (ecn, split) = (self.kind)(handle);
            let tcp = Tcp {
                window: 1400 * (1 + rng.below(50) as u32),
                seq: rng.bits() as u32,
                syn: handle % 20 == 0,
            };
            let tcp = (handle % 3 > 0).then_some(tcp);
            let mut pkt = Packet { ecn, split, tcp, ..Packet::new(self.len, FlowId(flow), handle) };
            if queue.offer(&mut pkt, now, &mut lost) {
                queue.enqueue(pkt, now, &mut lost);
            }
            queue.probe(&mut |_, name, value| {
                assert!(value.is_finite(), "{name} is {value}");
                assert!(!is_probability(name) || (0.0..=1.0).contains(&value), "{name} is {value}");
            });
            queue.check().unwrap();
        }
        assert!(wakes < most || self.start > Instant::from_nanos(1_000_000_000));
        Outcome { sent, lost: lost.0 }
    }

    /// Flow numbers all over `u32`; the last flow has the greatest.
    fn flow(&self, rng: &mut Rng) -> u32 {
        match rng.below(u64::from(self.flows)) as u32 + 1 {
            last if last == self.flows => u32::MAX,
            flow => flow.wrapping_mul(2_654_435_761),
        }
    }
}

fn is_probability(name: &str) -> bool {
    name == "p" || name.starts_with("p_")
}

/// Checks that each packet is in one place.
fn conserved(name: &str, queue: &Queue, fate: &Outcome, packets: u32) {
    let here = queue.state().packets + queue.state().held;
    assert_eq!(fate.sent.len() + fate.lost.len() + here as usize, packets as usize, "{name}");
    let mut gone: Vec<_> =
        fate.sent.iter().chain(fate.lost.iter().map(|(pkt, _)| pkt)).map(|p| p.handle).collect();
    gone.sort_unstable();
    gone.dedup();
    assert_eq!(gone.len() as u32, packets - here, "{name}: a packet left twice");
}

#[test]
fn packets_are_conserved() {
    for pair in pairs() {
        for churn in [false, true] {
            let mut queue = pair.queue(Marking::Drop, 400);
            let traffic = Traffic { churn, ..TRAFFIC };
            let fate = traffic.drive(&mut queue);
            conserved(&pair.name(), &queue, &fate, traffic.packets);
        }
    }
}

#[test]
fn equal_seeds_give_equal_verdicts() {
    for pair in pairs() {
        let traffic = Traffic { packets: 4_000, load: 1.5, churn: true, ..TRAFFIC };
        let [one, other] = [(); 2].map(|()| traffic.drive(&mut pair.queue(Marking::Drop, 400)));
        assert_eq!(one, other, "{}", pair.name());
    }
}

#[test]
fn light_load_is_not_dropped() {
    for pair in pairs() {
        let traffic = Traffic { packets: 5_000, load: 0.3, flows: 10, ..TRAFFIC };
        let fate = traffic.drive(&mut pair.queue(Marking::Drop, 400));
        assert!(fate.lost.is_empty(), "{} lost {} of 5000", pair.name(), fate.lost.len());
    }
}

/// Under threshold control a light load has no losses either; an overload has no overflow, since the ramp is 1 at a full
/// buffer; and probabilities are between 0 and 1.
#[test]
fn threshold_control_works_with_any_aqm() {
    for pair in AQMS.iter().map(|a| Pair(a, &SCHEDULERS[0])) {
        for load in [0.3, 1.5, 20.0] {
            let mut queue = pair.queue_with(Marking::Drop, 400, |aqm| Box::new(Threshold::new(aqm, 0.5)));
            let traffic = Traffic { packets: 5_000, load, churn: load > 1.0, ..TRAFFIC };
            let fate = traffic.drive(&mut queue);
            let name = format!("{} under threshold control at load {load}", pair.name());
            conserved(&name, &queue, &fate, traffic.packets);
            assert_eq!(fate.lost.is_empty(), load < 1.0, "{name} lost {}", fate.lost.len());
            let overflowed = fate.lost.iter().filter(|(_, reason)| *reason == DropReason::Overflow).count();
            assert_eq!(overflowed, 0, "{name}");
            queue.probe(&mut |_, name, value| assert!(name != "c" || (0.0..=1.0).contains(&value)));
        }
    }
}

/// Each AQM replaces each other one during an overload: packets are conserved, no count falls below zero, and the new AQM
/// then signals about as often as one that was present from the start.
#[test]
fn any_aqm_can_replace_any_other() {
    let fresh =
        |pair: Pair| (pair.0.build)(&Values::resolve(pair.0.params, &link(), &|_| None).unwrap()).unwrap();
    let traffic = Traffic { packets: 3_000, load: 1.5, churn: false, ..TRAFFIC };
    for before in ["droptail", "sfb", "fred", "codel"] {
        let before = Pair(AQMS.iter().find(|a| a.name == before).unwrap(), &SCHEDULERS[0]);
        let others = || plain().filter(|pair| pair.1.name == "fifo" && pair.0.name != before.0.name);
        for after in others() {
            let mut queue = before.queue(Marking::Drop, 400);
            traffic.drive(&mut queue);
            let waiting = queue.state().packets;
            let now = Instant::ZERO + Duration::from_secs(5);
            queue.set_aqm(fresh(after), now);
            // Packets queued before leave without its verdict.
            let mut lost = Lost::default();
            (0..waiting).for_each(|_| assert!(queue.dequeue(now, &mut lost).is_some()));
            assert!(lost.0.is_empty(), "{}", after.name());
            let counters = *queue.counters();
            let traffic = Traffic { start: now, ..traffic };
            traffic.drive(&mut queue);
            let marked = queue.counters().marked - counters.marked;
            let mut alone = after.queue(Marking::Drop, 400);
            traffic.drive(&mut alone);
            let expected = alone.counters().marked;
            let difference = marked.abs_diff(expected);
            let name = after.name();
            assert!(difference <= 20 + expected / 5, "{name} after {}: {marked}, {expected}", before.name());
        }
        // The same with packets that wait, which leave between others.
        for after in others() {
            let mut queue = before.queue(Marking::Drop, 400);
            traffic.drive(&mut queue);
            let start = Instant::ZERO + Duration::from_millis(1_200);
            queue.set_aqm(fresh(after), start);
            Traffic { start, ..traffic }.drive(&mut queue);
        }
    }
}

/// An AQM that is replaced by one with the same parameters, with packets waiting, decides as if nothing had happened.
#[test]
fn aqm_resumes_with_the_state_of_the_same_algorithm() {
    let fresh =
        |pair: Pair| (pair.0.build)(&Values::resolve(pair.0.params, &link(), &|_| None).unwrap()).unwrap();
    let traffic = Traffic { packets: 3_000, load: 1.5, ..TRAFFIC };
    for pair in plain().filter(|pair| pair.1.name == "fifo") {
        let [mut replaced, mut kept] = [(); 2].map(|()| pair.queue(Marking::Drop, 400));
        assert_eq!(traffic.drive(&mut replaced), traffic.drive(&mut kept));
        assert!(replaced.state().packets > 0, "{}", pair.name());
        // At once, before states fade.
        let start = Instant::ZERO + Duration::from_millis(1_200);
        replaced.set_aqm(fresh(pair), start);
        let traffic = Traffic { start, ..traffic };
        assert_eq!(traffic.drive(&mut replaced), traffic.drive(&mut kept), "{}", pair.name());
        let probes = [&replaced, &kept].map(|queue| {
            let mut found = Vec::new();
            queue.probe(&mut |_, name, value| found.push((name, value)));
            found
        });
        assert_eq!(probes[0], probes[1], "{}", pair.name());
    }
}

/// A value of another kind than the parameter's is refused, by name, with what is allowed.
#[test]
fn values_of_the_wrong_kind_are_refused() {
    for algorithm in AQMS {
        for param in algorithm.params {
            for value in [Value::Name("seven"), Value::Flag(true), Value::Number(7.0)] {
                let fits = match value {
                    Value::Name(_) => false,
                    Value::Flag(_) => matches!(param.unit, Unit::Flag),
                    Value::Number(_) => !matches!(param.unit, Unit::Flag | Unit::Name(_)),
                };
                let given = |name: &str| (name == param.name).then_some(value);
                let error = Values::resolve(algorithm.params, &link(), &given).err();
                let named = error.is_some_and(|e| e.name == param.name && e.problem.contains("allowed: "));
                assert!(fits || named, "{}: {} = {value:?}", algorithm.name, param.name);
            }
        }
    }
}

/// FRED lets every flow have one packet waiting, and YELLOW divides by its target length; others allow zero.
#[test]
fn lengths_of_zero_are_refused_where_they_mean_nothing() {
    for (name, param, allowed) in
        [("fred", "min_th", false), ("yellow", "q_ref", false), ("red", "min_th", true)]
    {
        let algorithm = AQMS.iter().find(|algorithm| algorithm.name == name).unwrap();
        let given = |asked: &str| (asked == param).then_some(Value::Number(0.0));
        let resolved = Values::resolve(algorithm.params, &link(), &given);
        assert_eq!(resolved.is_ok(), allowed, "{name}: {param} = 0");
    }
}

/// CAKE without BLUE, which forgets with departures only: `blue_forgets_with_departures_of_other_queues`.
#[test]
fn idle_hour_has_no_effect() {
    let without_blue = |name: &str| (name == "increment").then_some(Value::Number(0.0));
    for pair in pairs() {
        let mut queue = pair.queue_given(Marking::Drop, 400, &without_blue, |aqm| aqm);
        Traffic { packets: 2_000, load: 2.0, flows: 10, ..TRAFFIC }.drive(&mut queue);
        let drained = Instant::ZERO + Duration::from_secs(10);
        while queue.dequeue(drained, &mut Lost::default()).is_some() {}
        // Flows that return after an hour find a current state.
        let start = Instant::ZERO + Duration::from_secs(3610);
        while queue.wake_at().is_some_and(|at| at < start) {
            let at = queue.wake_at().unwrap().max(drained);
            if let Some(pkt) = queue.wake(at, &mut Lost::default()) {
                queue.enqueue(pkt, at, &mut Lost::default());
                queue.dequeue(at, &mut Lost::default());
            }
        }
        let fate = Traffic { start, packets: 2_000, load: 0.3, flows: 10, ..TRAFFIC }.drive(&mut queue);
        assert!(fate.lost.is_empty(), "{} still loses {} of 2000", pair.name(), fate.lost.len());
    }
}

#[test]
fn overload_odd_lengths_and_many_flows_conserve_packets() {
    for (load, flows, len) in
        [(100.0, 1, 1400), (1.5, 1, 1400), (1.5, 100_000, 1400), (1.5, 10, 0), (1.5, 10, 65_535)]
    {
        for pair in plain() {
            let mut queue = pair.queue(Marking::Drop, 400);
            let traffic = Traffic { load, flows, len, ..TRAFFIC };
            let fate = traffic.drive(&mut queue);
            let name = format!("{} at load {load} of {flows} flows with {len} bytes", pair.name());
            conserved(&name, &queue, &fate, traffic.packets);
            assert!(!fate.sent.is_empty(), "{name} sends no packet");
        }
    }
}

#[test]
fn constant_time_and_the_end_of_time_conserve_packets() {
    for start in [0, 7, u64::MAX / 2, u64::MAX - 1_000_000_000, u64::MAX].map(Instant::from_nanos) {
        for pair in plain() {
            let (mut queue, mut lost, mut sent) =
                (pair.queue(Marking::Drop, 400), Lost::default(), Vec::new());
            for handle in 0..3_000 {
                let mut pkt = Packet::new(1400, FlowId(handle % 3), handle);
                if queue.offer(&mut pkt, start, &mut lost) {
                    queue.enqueue(pkt, start, &mut lost);
                }
                if handle % 2 == 0 {
                    sent.extend(queue.dequeue(start, &mut lost));
                }
            }
            conserved(&pair.name(), &queue, &Outcome { sent, lost: lost.0 }, 3_000);
            queue.check().unwrap();

            let mut queue = pair.queue(Marking::Drop, 400);
            let traffic = Traffic { start, packets: 2_000, ..TRAFFIC };
            let fate = traffic.drive(&mut queue);
            conserved(&pair.name(), &queue, &fate, traffic.packets);
        }
    }
}

/// RFC 3168, section 5: a mark on an ECN-capable packet is not a drop; a mark on another packet is a drop.
#[test]
fn ecn_marks_ecn_packets_and_drops_others() {
    for pair in plain() {
        let kind = |handle| ([Ecn::Ect, Ecn::NotEct, Ecn::Ect1][handle as usize % 3], false);
        let mut queue = pair.queue(Marking::Ecn, 400);
        let fate = Traffic { load: 1.1, kind, ..TRAFFIC }.drive(&mut queue);
        let name = pair.name();
        for pkt in &fate.sent {
            let was = kind(pkt.handle).0;
            assert!(
                pkt.ecn == was || pkt.ecn == Ecn::Ce && was != Ecn::NotEct,
                "{name}: {was:?} became {:?}",
                pkt.ecn
            );
            assert!(!pkt.marked, "{name}");
        }
        if pair.signals() {
            assert!(
                fate.sent.iter().any(|pkt| pkt.ecn == Ecn::Ce) || drops_at_once(pair),
                "{name} marks no packet"
            );
            assert!(queue.counters().marked > 0, "{name} sends no signal");
        } else {
            assert_eq!(queue.counters().marked, 0, "{name}");
        }
    }
}

/// [B07] 2.3: a marked packet of a split connection is accepted with its mark; another is dropped.
#[test]
fn window_marks_split_connections_and_drops_others() {
    for pair in plain() {
        let kind = |handle| (Ecn::Ect, handle % 2 == 0);
        let fate = Traffic { load: 1.1, kind, ..TRAFFIC }.drive(&mut pair.queue(Marking::Window, 400));
        let name = pair.name();
        for pkt in &fate.sent {
            assert!(!pkt.marked || pkt.split, "{name}: a packet of a connection that is not split is marked");
            assert_eq!(pkt.ecn, Ecn::Ect, "{name}");
        }
        if pair.signals() {
            assert!(fate.sent.iter().any(|pkt| pkt.marked) || drops_at_once(pair), "{name} marks no packet");
        }
    }
}

/// Algorithms that only drop, whatever the marking method, with the reason.
const DROPS: &[(&str, &str)] = &[
    ("redfc", "holds packets back instead of marking them"),
    ("fq_pie", "drops ECN packets from `mark_ecnth` on"),
];

fn drops_at_once(pair: Pair) -> bool {
    DROPS.iter().any(|(name, _)| *name == pair.0.name || *name == pair.1.name)
}

/// Algorithms that report no probability, with the reason.
const NO_PROBABILITY: &[(&str, &str)] = &[
    ("droptail", "signals nothing"),
    ("codel", "marks by a schedule, not at random"),
    ("avq", "marks overflows of its virtual queue, not at random"),
    ("gkvq", "marks overflows of its virtual queue, not at random"),
    ("fq_codel", "its CoDels mark by a schedule, not at random"),
];

#[test]
fn random_marking_reports_its_probability() {
    let named = plain().map(|pair| {
        let of_scheduler = pair.0.name == "droptail" && pair.1.name != "fifo";
        (if of_scheduler { pair.1.name } else { pair.0.name }, pair)
    });
    let mut problems = Vec::new();
    for (name, pair) in named.filter(|(name, pair)| pair.signals() || *name == "droptail") {
        let mut queue = pair.queue(Marking::Drop, 400);
        Traffic { load: 1.5, packets: 2_000, ..TRAFFIC }.drive(&mut queue);
        let mut shown = false;
        queue.probe(&mut |_, name, _| shown |= is_probability(name));
        let excused = NO_PROBABILITY.iter().any(|(other, _)| *other == name);
        if shown == excused {
            problems.push(match shown {
                true => format!(
                    "{name} shows a probability, but NO_PROBABILITY in this file gives a reason not to"
                ),
                false => {
                    format!("{name}: probe() shows none called p or p_…, and NO_PROBABILITY gives no reason")
                }
            });
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

/// The work per packet does not grow with the number of flows: 1000 times as many flows may cost cache misses, but a visit
/// to each flow or packet would cost 1000 times as much. The benchmark measures single packets.
#[test]
fn cost_per_packet_hardly_grows_with_the_flows() {
    let cost = |pair: Pair, flows: u32| {
        let mut queue = pair.queue(Marking::Ecn, 100_000);
        let mut rng = Rng::stream(3, "cost", 0, "test");
        let mut now = Instant::ZERO;
        let traffic = Traffic { flows, ..TRAFFIC };
        for flow in 0..flows {
            queue.flow(FlowId((flow + 1).wrapping_mul(2_654_435_761)), FlowEvent::Opened, now);
        }
        let mut offer = |packets: u32, drain: bool| {
            for handle in 0..packets {
                now += Duration::from_micros(5);
                let tcp = Some(Tcp {
                    window: 1400 * (1 + rng.below(50) as u32),
                    seq: rng.bits() as u32,
                    syn: false,
                });
                let mut pkt = Packet {
                    ecn: Ecn::Ect,
                    tcp,
                    ..Packet::new(1400, FlowId(traffic.flow(&mut rng)), handle)
                };
                if queue.offer(&mut pkt, now, &mut Lost::default()) {
                    queue.enqueue(pkt, now, &mut Lost::default());
                }
                if drain {
                    queue.dequeue(now, &mut Lost::default());
                }
                if queue.wake_at().is_some_and(|at| at <= now) {
                    queue.wake(now, &mut Lost::default());
                }
            }
        };
        // As many packets wait as there are flows.
        offer(flows, false);
        offer(5_000, true);
        let times = [(); 5].map(|()| {
            let started = ThreadTime::now();
            offer(2_000, true);
            started.elapsed().as_secs_f64()
        });
        times.into_iter().fold(f64::INFINITY, f64::min)
    };
    for pair in plain() {
        let (few, many) = (cost(pair, 100), cost(pair, 100_000));
        assert!(
            many < 50.0 * few,
            "{}: 2000 packets take {few} s with 100 flows, {many} s with 100 000",
            pair.name()
        );
    }
}

/// A link is blocked for 100 s while 20,000 packets wait, long enough for every probability and schedule. Then a call drops
/// at most its maximum for signals (an AQM's times a scheduler's, if both signal) before it returns a packet; it returns
/// `None` only if the queue is empty, because a host does not call again.
#[test]
fn drops_per_dequeue_are_bounded() {
    for pair in pairs() {
        for ecn in [Ecn::NotEct, Ecn::Ect, Ecn::Ect1] {
            let (mut queue, mut lost) = (pair.queue(Marking::Drop, 20_000), Lost::default());
            let most = if pair.1.signals { MAX_DROPS_PER_DEQUEUE } else { 0 };
            let most = (most + 1) * (MAX_DROPS_PER_DEQUEUE + 1) - 1;
            for handle in 0..20_000 {
                let pkt = Packet { ecn, ..Packet::new(1400, FlowId(handle % 5), handle) };
                queue.enqueue(pkt, Instant::ZERO, &mut lost);
            }
            let mut now = Instant::ZERO + Duration::from_secs(100);
            while let Some(at) = queue.wake_at().filter(|at| *at < now) {
                if let Some(pkt) = queue.wake(at, &mut lost) {
                    queue.enqueue(pkt, at, &mut lost);
                }
            }
            loop {
                let waiting = queue.state().packets;
                assert_eq!(queue.peek().is_some(), waiting > 0, "{} shows none of {waiting}", pair.name());
                lost.0.clear();
                let sent = queue.dequeue(now, &mut lost);
                assert!(lost.0.len() as u32 <= most, "{} discards {} at once", pair.name(), lost.0.len());
                if sent.is_none() {
                    assert_eq!(queue.state().packets, 0, "{} gives none", pair.name());
                    break;
                }
                now += Duration::from_micros(560);
            }
        }
    }
}

/// Every parameter of the registry, with its owner's name.
fn params() -> impl Iterator<Item = (&'static str, &'static [Param])> {
    AQMS.iter().map(|a| (a.name, a.params)).chain(SCHEDULERS.iter().map(|s| (s.name, s.params)))
}

#[test]
fn every_parameter_has_a_default_in_its_range_and_a_description() {
    for (owner, params) in params() {
        for link in [(20_000_000, 1400.0), (1000, 65_535.0), (10_000_000_000, 40.0)] {
            let link = Link { capacity: Rate::from_bps(link.0), mean_packet: link.1 };
            let values = Values::resolve(params, &link, &|_| None).unwrap();
            for (param, value) in values.iter() {
                let at = format!("{owner}.{}", param.name);
                assert!(!param.doc.is_empty() && !param.doc.ends_with('.'), "{at}");
                match value {
                    Value::Number(x) => {
                        assert!(param.unit != Unit::Flag && param.range.allows(x), "{at} = {x}")
                    }
                    Value::Flag(_) => assert!(param.unit == Unit::Flag, "{at}"),
                    Value::Name(x) => {
                        assert!(matches!(param.unit, Unit::Name(names) if names.contains(&x)), "{at} = {x}");
                    }
                }
            }
        }
    }
}

/// Parameters without a search range, with the reason.
const NOT_TUNED: &[(&str, &str)] = &[
    ("mean_packet", "the traffic decides"),
    ("mtu", "the link decides"),
    ("capacity", "the link decides"),
    ("max_capacity", "the link decides"),
    ("other", "packets without TCP have no best rank by themselves"),
    ("held_limit", "a bound on memory"),
    ("ns2", "there to compare with ns-2"),
    ("wait", "there to compare with ns-2"),
    ("ared.hysteresis", "trades one delay for another, off by default"),
    ("drop_batch", "a bound on work"),
    ("cake.diffserv", "the traffic's codepoints decide"),
    ("cake.flows", "must be whole sets: few would be a multiple of ways"),
    ("cake.ways", "must divide flows"),
    ("cake_users.diffserv", "the traffic's codepoints decide"),
    ("cake_users.flows", "must be whole sets: few would be a multiple of ways"),
    ("cake_users.ways", "must divide flows"),
    ("ce_threshold", "for transports that want marks at a delay, off by default"),
    ("t_update", "the weights belong to it"),
    ("mark_ecnth", "a safeguard"),
    ("derandomize", "a part of the algorithm, off for comparison"),
    ("cap", "a part of the algorithm, off for comparison"),
    ("decay", "the RFC has both rules"),
    ("accepted", "the meaning of load if marks drop"),
    ("hysteresis", "a separate rule, off by default"),
    ("levels", "a bound on memory"),
    ("flows", "a bound on memory"),
    ("ways", "a bound on memory"),
    ("penalty_rate", "the rate left to unresponsive flows"),
    ("penalty_burst", "the rate left to unresponsive flows"),
    ("warmup", "part of the algorithm's maintenance"),
    ("dualpi2.alpha", "RFC 9332 derives it from the longest round trip"),
    ("dualpi2.beta", "RFC 9332 derives it from the longest round trip"),
    ("dualpi2.k", "RFC 9332 fixes it, so that both kinds of traffic share evenly"),
    ("dualpi2.range", "the ramp of RFC 9332"),
    ("dualpi2.th_len", "a safeguard"),
    ("dualpi2.scheduler", "both serve the classic queue in time"),
    ("dualpi2.tshift", "a part of RFC 9332's scheduler"),
    ("pie.delay", "both ways measure the same"),
    ("pie.dq_threshold", "how the delay is measured"),
];

#[test]
fn every_parameter_has_an_origin_and_a_search_range() {
    let mut problems = Vec::new();
    for (owner, params) in params() {
        for param in params {
            let at = format!("{owner}.{}", param.name);
            if param.origin.is_empty() {
                problems.push(format!("{at}: where does its default come from?"));
            }
            let range = &param.range;
            let inside = |low: f64, high: f64| low < high && range.allows(low) && range.allows(high);
            let fine = match param.tune {
                None => NOT_TUNED.iter().any(|(name, _)| *name == param.name || *name == at),
                Some(Tune::Linear(low, high)) => inside(low, high),
                Some(Tune::Log(low, high)) => low > 0.0 && inside(low, high),
                Some(Tune::Around(low, high)) => {
                    0.0 < low && low < high && low <= 1.0 && high >= 1.0 && {
                        let values =
                            Values::resolve(std::slice::from_ref(param), &link(), &|_| None).unwrap();
                        matches!(param.default, Default::FromLink(..)) && {
                            let default = values.number(param.name);
                            inside(low * default, high * default)
                        }
                    }
                }
                Some(Tune::Each) => matches!(param.unit, Unit::Flag | Unit::Name(_)),
            };
            if !fine && param.tune.is_none() {
                problems.push(format!(
                    "{at}: where to search? If nowhere: NOT_TUNED in this file gives the reason"
                ));
            } else if !fine {
                problems.push(format!("{at}: searched within {:?}, allowed: {range}", param.tune));
            }
            if let (Default::Is(Value::Number(x)), Some(Tune::Linear(low, high) | Tune::Log(low, high))) =
                (param.default, param.tune)
                && !(low..=high).contains(&x)
            {
                problems.push(format!("{at}: its default {x} is not where it is searched, {low} to {high}"));
            }
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn every_preset_can_be_built() {
    for algorithm in AQMS {
        for preset in algorithm.presets {
            for (name, _) in preset.values {
                assert!(algorithm.params.iter().any(|p| p.name == *name), "{}: {name}", preset.name);
            }
            let given = |name: &str| preset.values.iter().find(|(n, _)| *n == name).map(|(_, value)| *value);
            let values = Values::resolve(algorithm.params, &link(), &given).unwrap();
            assert!((algorithm.build)(&values).is_ok(), "{}", preset.name);
        }
    }
}

#[test]
fn value_out_of_range_is_refused_with_name_and_allowed_values() {
    for (_, params) in params() {
        for param in params.iter().filter(|p| p.unit != Unit::Flag) {
            let least = param.range.min - param.range.min.abs().max(1.0);
            for bad in [f64::NAN, param.range.max + param.range.max.abs().max(1.0), least] {
                let given = |name: &str| (name == param.name).then_some(Value::Number(bad));
                let error = Values::resolve(params, &link(), &given).unwrap_err();
                assert_eq!(error.name, param.name);
                assert!(error.problem.contains("allowed: "), "{error}");
            }
        }
    }
}
