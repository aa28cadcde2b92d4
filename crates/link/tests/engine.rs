//! One direction of a link, compared with hand-computed times: 8 Mbit/s send a byte per microsecond.

use bentpipe_link::{
    Capacity, Impairments, LinkEngine, LossCause, Names, Progress, Release, Sender, Sent, Service,
};
use bentpipe_queue::aqm::droptail::DropTail;
use bentpipe_queue::{
    Aqm, Context, DropHandler, DropReason, FlowEvent, FlowId, Limit, Marking, Packet, Verdict, registry,
};
use bentpipe_scenario::{
    Access, AqmSpec, Capacity as Varying, Carrier, Delay, Demand, Direction, Distribution, Drawn, Fade,
    Handover, HostIndex, Loss, LossAt, LossModel, LossOf, Modcod, ModcodTable, Modulation, Per, QueueSpec,
    SchedulerSpec, Steps, Trace,
};
use bentpipe_units::{Duration, Instant, Rate, Rng};

fn at(us: u64) -> Instant {
    Instant::ZERO + Duration::from_micros(us)
}

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

fn mbps(rate: u64) -> Rate {
    Rate::from_bps(rate * 1_000_000)
}

fn names() -> Names {
    Names::new("sky", None, true)
}

/// A direction with a constant rate and no delay, loss or queue.
fn plain(rate: Option<Rate>) -> Direction {
    let jitter = Distribution::Fixed(Duration::ZERO);
    Direction {
        rate,
        capacity: None,
        demand: None,
        access: None,
        delay: Delay { fixed: Duration::ZERO, jitter, per: Per::Packet { ordered: true } },
        loss: Loss::independent(0.0),
        queue: None,
    }
}

/// A queue of `packets`, first in, first out, with drop tail.
fn queue(packets: u32) -> QueueSpec {
    let values = |params| {
        let link = bentpipe_queue::Link { capacity: mbps(8), mean_packet: 1000.0 };
        bentpipe_queue::Values::resolve(params, &link, &|_| None).unwrap()
    };
    let (algorithm, fifo) = (registry::aqm("droptail").unwrap(), registry::scheduler("fifo").unwrap());
    QueueSpec {
        scheduler: SchedulerSpec { discipline: fifo, values: values(fifo.params) },
        limit: Limit { packets, bytes: u64::MAX },
        marking: Marking::Drop,
        aqm: AqmSpec {
            algorithm,
            values: values(algorithm.params),
            threshold: None,
            label: String::new(),
            changed: Vec::new(),
            outside: Vec::new(),
        },
        mean_packet: 1000.0,
    }
}

fn engine(direction: &Direction) -> LinkEngine {
    with(direction, None, None)
}

fn with(direction: &Direction, handover: Option<Handover>, impairments: Option<Impairments>) -> LinkEngine {
    LinkEngine::new(direction, handover, &names(), 1, impairments, |_| Ok(Box::new(DropTail))).unwrap()
}

/// Numbers of dropped packets.
#[derive(Default)]
struct Dropped(Vec<u32>);

impl DropHandler for Dropped {
    fn dropped(&mut self, pkt: Packet, _reason: DropReason) {
        self.0.push(pkt.handle);
    }
}

fn packet(len: u32, handle: u32) -> Packet {
    Packet::new(len, FlowId(0), handle)
}

/// Offers a packet and enqueues it; returns true if the sender is free.
fn put(link: &mut LinkEngine, len: u32, handle: u32, now: Instant) -> bool {
    let mut pkt = packet(len, handle);
    assert!(link.offer(&mut pkt, now, &mut Dropped::default()));
    link.enqueue(pkt, now, &mut Dropped::default())
}

/// Serves the link; returns the packet's number, true if it has just left the queue, the time of the next call, and its progress.
fn serve(link: &mut LinkEngine, now: Instant) -> Option<(u32, bool, Instant, Progress)> {
    match link.serve(now, &mut Dropped::default(), |_| None) {
        Service::Idle => None,
        Service::Blocked(until) => panic!("blocked until {until:?}"),
        Service::Sending { pkt, dequeued, next, progress } => Some((pkt.handle, dequeued, next, progress)),
    }
}

/// Time until which the link is blocked.
fn blocked(link: &mut LinkEngine, now: Instant) -> Option<Instant> {
    match link.serve(now, &mut Dropped::default(), |_| None) {
        Service::Blocked(until) => Some(until),
        _ => None,
    }
}

#[test]
fn streams_of_a_direction_are_named_by_link_member_and_direction() {
    let both = |names: Names| [names.link, names.direction];
    assert_eq!(both(Names::new("sky", None, true)), ["sky", "sky"]);
    assert_eq!(both(Names::new("sky", Some(3), false)), ["sky.3", "sky.3 reverse"]);
}

#[test]
fn packets_without_a_queue_are_sent_one_after_the_other() {
    let mut link = engine(&plain(Some(mbps(8))));
    assert_eq!(link.transmit(1000, at(0)), at(1000));
    assert_eq!(link.transmit(1000, at(500)), at(2000));
    assert_eq!((link.backlog(at(500)), link.backlog(at(3000))), (us(1500), Duration::ZERO));
    // The link has been idle since 2 ms.
    assert_eq!(link.transmit(500, at(5000)), at(5500));
    // From the next packet on the rate is twice as high, also for a packet of the same length.
    assert!(link.set_rate(mbps(16)));
    assert_eq!(link.transmit(500, at(6000)), at(6250));
    assert_eq!((link.rate(), link.queued(), link.queue().is_none()), (Some(mbps(16)), 0, true));
    assert!(!link.set_rate(Rate::from_bps(0)) && !link.set_aqm(Box::new(DropTail), at(6000)));
    assert!(!link.enqueue(packet(1000, 0), at(6000), &mut Dropped::default()));
    assert!(serve(&mut link, at(6000)).is_none());
    assert_eq!((link.next_wake(), link.wake(at(6000)), link.first_update()), (None, false, None));
}

#[test]
fn a_link_without_a_rate_sends_in_no_time() {
    let mut link = engine(&plain(None));
    assert_eq!((link.transmit(1000, at(3)), link.rate()), (at(3), None));
    assert!(!link.set_rate(mbps(8)));
    let direction = Direction { queue: Some(queue(10)), ..plain(None) };
    assert_eq!(engine(&direction).rate(), None);
    assert_eq!(with(&direction, Some(handover(false)), None).rate(), None);
}

/// A carrier of 1 Mbaud.
fn carrier(modulation: Modulation) -> Direction {
    let carrier = Carrier { symbol_rate: 1_000_000, modcods: ModcodTable::DvbS2, modulation };
    Direction { capacity: Some(Varying::Carrier(carrier)), ..plain(None) }
}

/// A ModCod of DVB-S2: QPSK 1/4 has 0.490243 bit/symbol, 16APSK 3/4 2.966728.
fn modcod(name: &str) -> &'static Modcod {
    ModcodTable::DvbS2.find(name).unwrap()
}

#[test]
fn the_rate_of_a_carrier_follows_from_its_modcod() {
    let mut link = engine(&carrier(Modulation::Fixed(modcod("16APSK 3/4"))));
    assert_eq!((link.rate(), link.first_update()), (Some(Rate::from_bps(2_966_728)), None));
    assert!(!link.set_rate(mbps(4)) && !link.is_steady() && !link.is_transparent());
    // Equal amounts of data for both take 1/0.490243 and 1/2.966728 of the time.
    let modcods = vec![modcod("QPSK 1/4"), modcod("16APSK 3/4")];
    let shared = engine(&carrier(Modulation::Hosts { group: HostIndex(0), modcods }));
    assert_eq!(shared.rate(), Some(Rate::from_bps(841_440)));
    // Demand assignment does not change the rate.
    let demand = Demand { frame: us(1000), round_trip: us(5000), free: mbps(1) };
    assert_eq!(engine(&Direction { demand: Some(demand), ..plain(Some(mbps(8))) }).rate(), Some(mbps(8)));
}

/// 1000 bytes take 16.318438 ms at 490.243 kbit/s and 2.696574 ms at 2.966728 Mbit/s.
#[test]
fn hosts_use_the_modcods_in_turn() {
    let modcods = vec![modcod("16APSK 3/4"), modcod("QPSK 1/4")];
    let mut sender = sender(&carrier(Modulation::Hosts { group: HostIndex(0), modcods })).unwrap();
    let (fast, slow) = (Duration::from_nanos(2_696_574), Duration::from_nanos(16_318_438));
    // A packet of no host has the lowest rate.
    for (host, time) in
        [(Some(0), fast), (Some(1), slow), (Some(2), fast), (Some(5), slow), (Some(6), fast), (None, slow)]
    {
        let sent = Sent::Whole { at: at(7) + time, delay: Duration::ZERO, lost: false };
        assert_eq!((sender.ready(at(7), 1000), sender.send(1000, host, at(7))), (at(7), sent), "{host:?}");
    }
}

/// Packets of 1000 and 500 bytes. The sender is busy from the first packet until it finds the queue empty.
#[test]
fn a_queue_is_served_at_the_rate_of_the_link() {
    let mut link = engine(&Direction { queue: Some(queue(10)), ..plain(Some(mbps(8))) });
    assert!(put(&mut link, 1000, 0, at(0)));
    assert_eq!(serve(&mut link, at(0)), Some((0, true, at(1000), Progress::Sent(at(1000)))));
    assert!(!put(&mut link, 500, 1, at(10)));
    assert!(!put(&mut link, 500, 2, at(20)));
    assert_eq!((link.queued(), link.backlog(at(20))), (2, us(1000)));
    assert_eq!(serve(&mut link, at(1000)), Some((1, true, at(1500), Progress::Sent(at(1500)))));
    assert!(link.set_rate(mbps(4)));
    assert_eq!(link.backlog(at(1400)), us(1000));
    assert_eq!(serve(&mut link, at(1500)), Some((2, true, at(2500), Progress::Sent(at(2500)))));
    assert_eq!(serve(&mut link, at(2500)), None);
    assert!(put(&mut link, 500, 3, at(3000)));
}

/// Holds packet 1 back once, drops packet 2, and packet 3 once a flow has been announced.
#[derive(Default)]
struct Scripted {
    arrived: u32,
    flows: u32,
    wake: Option<Instant>,
}

impl Aqm for Scripted {
    fn arrive(&mut self, pkt: &Packet, _cx: &mut Context<'_>) -> Verdict {
        self.arrived += 1;
        match pkt.handle {
            1 if self.arrived == 1 => Verdict::Hold(us(10)),
            2 => Verdict::Mark,
            3 if self.flows == 1 => Verdict::Mark,
            _ => Verdict::Pass,
        }
    }

    fn flow(&mut self, _flow: FlowId, _event: FlowEvent, _cx: &mut Context<'_>) {
        self.flows += 1;
    }

    fn wake_at(&self) -> Option<Instant> {
        self.wake
    }

    fn wake(&mut self, _cx: &mut Context<'_>) {
        self.wake = None;
    }
}

#[test]
fn packets_that_the_aqm_holds_back_are_released_when_due() {
    let mut link = engine(&Direction { queue: Some(queue(10)), ..plain(Some(mbps(8))) });
    assert!(link.set_aqm(Box::new(Scripted { wake: Some(at(5)), ..Scripted::default() }), at(0)));
    let mut out = Dropped::default();
    assert!(!link.offer(&mut packet(1000, 1), at(0), &mut out) && out.0.is_empty());
    assert_eq!(link.queued(), 1);
    assert!(!link.offer(&mut packet(1000, 2), at(0), &mut out));
    assert_eq!(out.0, [2]);
    // The host schedules each wake-up once.
    assert_eq!((link.next_wake(), link.next_wake()), (Some(at(5)), None));
    assert!(!link.wake(at(4)) && link.wake(at(5)) && !link.wake(at(5)));
    assert!(matches!(link.release(at(4), &mut out), Release::Done));
    assert!(matches!(link.release(at(5), &mut out), Release::None));
    assert!(matches!(link.release(at(5), &mut out), Release::Done));
    assert_eq!(link.next_wake(), Some(at(10)));
    assert!(link.wake(at(10)));
    assert!(matches!(link.release(at(10), &mut out), Release::Packet(Packet { handle: 1, .. })));
    assert_eq!(link.queued(), 0);
    assert!(link.offer(&mut packet(1000, 3), at(20), &mut out));
    link.announce(FlowId(0), FlowEvent::Opened, at(30));
    assert!(!link.offer(&mut packet(1000, 3), at(30), &mut out));
}

#[test]
fn an_aqm_that_cannot_be_built_is_an_error_with_the_name_of_the_link() {
    let direction = Direction { queue: Some(queue(10)), ..plain(Some(mbps(8))) };
    let made = LinkEngine::new(&direction, None, &names(), 1, None, |_| Err("k is missing".to_owned()));
    assert_eq!(made.err().as_deref(), Some("sky: k is missing"));
}

/// The second packet with payload is lost. Packets without payload pass, and are not counted.
#[test]
fn loss_of_data_counts_packets_with_payload_only() {
    for (place, before) in [(LossAt::BeforeQueue, true), (LossAt::AfterQueue, false)] {
        let loss = Loss { model: LossModel::Nth(vec![2]), of: LossOf::Data, at: place };
        let mut link = engine(&Direction { loss, ..plain(Some(mbps(8))) });
        let lost: Vec<_> = [true, false, true, true]
            .iter()
            .map(|payload| {
                let early = link.loses_on_arrival(1000, || *payload, at(0));
                (early, !early && link.apply_channel(1000, *payload, at(0)) == Err(LossCause::Loss))
            })
            .collect();
        let third = (before, !before);
        assert_eq!(lost, [(false, false), (false, false), third, (false, false)], "{place:?}");
        assert!(link.has_channel() && link.may_lose() && !link.is_regular() && !link.is_transparent());
    }
}

#[test]
fn loss_of_all_packets_counts_those_without_payload() {
    let loss = Loss { model: LossModel::Nth(vec![1]), of: LossOf::All, at: LossAt::AfterQueue };
    let mut link = engine(&Direction { loss, ..plain(Some(mbps(8))) });
    assert_eq!(link.apply_channel(40, false, at(7)), Err(LossCause::Loss));
    assert_eq!(link.apply_channel(40, false, at(8)), Ok(at(8)));
    assert!(!link.loses_on_arrival(40, || false, at(9)));
}

fn impaired(loss: f64, reorder: f64, duplicate: f64) -> LinkEngine {
    let outages = vec![(at(100), at(200)), (at(500), at(600))];
    let impairments = Impairments { outages, loss, reorder: (reorder, us(5)), duplicate };
    with(&plain(Some(mbps(8))), None, Some(impairments))
}

#[test]
fn packets_sent_in_an_outage_are_lost() {
    let mut link = impaired(0.0, 0.0, 0.0);
    let lost = [99, 100, 199, 200, 550].map(|us| link.apply_channel(1000, true, at(us)));
    let outage = Err(LossCause::Outage);
    assert_eq!(lost, [Ok(at(99)), outage, outage, Ok(at(200)), outage]);
    assert_eq!((link.held_back(), link.duplicates()), (None, false));
}

/// Impairments draw from their own stream, in the order of the calls, and draw nothing for a probability of zero.
#[test]
fn impairments_have_their_probabilities() {
    let drawn = |n: usize| -> Vec<bool> {
        let mut rng = Rng::stream(1, "sky", 0, "extra");
        (0..n).map(|_| rng.uniform() < 0.3).collect()
    };
    let mut link = impaired(0.3, 0.0, 0.0);
    let lost = |link: &mut LinkEngine| link.apply_channel(1000, true, at(0)) == Err(LossCause::Impairment);
    let found: Vec<_> = (0..50).map(|_| (lost(&mut link), link.held_back(), link.duplicates()).0).collect();
    assert_eq!(found, drawn(50));
    let mut link = impaired(0.0, 0.3, 0.0);
    let found: Vec<_> = (0..50).map(|_| (lost(&mut link), link.held_back(), link.duplicates()).1).collect();
    assert_eq!(found, drawn(50).iter().map(|held| held.then_some(us(5))).collect::<Vec<_>>());
    let mut link = impaired(0.0, 0.0, 0.3);
    let found: Vec<_> = (0..50).map(|_| (lost(&mut link), link.held_back(), link.duplicates()).2).collect();
    assert_eq!(found, drawn(50));
    let mut none = engine(&plain(Some(mbps(8))));
    assert_eq!((none.held_back(), none.duplicates(), none.has_channel()), (None, false, false));
}

fn handover(loses: bool) -> Handover {
    Handover { interval: us(1000), offset: us(1000), delay: (us(30), us(30)), outage: us(100), loses }
}

/// Handovers at 1 and 2 ms with an outage of 0.1 ms; satellites add 30 µs.
#[test]
fn a_handover_loses_packets_or_lets_them_wait() {
    let direction = Direction { queue: Some(queue(10)), ..plain(Some(mbps(8))) };
    let mut link = with(&direction, Some(handover(true)), None);
    let lost = Err(LossCause::Handover);
    let sent = [0, 999, 1000, 1099, 1100].map(|us| link.apply_channel(1000, true, at(us)));
    assert_eq!(sent, [Ok(at(30)), Ok(at(1029)), lost, lost, Ok(at(1130))]);
    put(&mut link, 1000, 0, at(1050));
    assert_eq!(serve(&mut link, at(1050)), Some((0, true, at(2050), Progress::Sent(at(2050)))));
    assert!(!link.is_regular());

    let mut link = with(&direction, Some(handover(false)), None);
    assert_eq!(link.apply_channel(1000, true, at(1000)), Ok(at(1030)));
    assert!(put(&mut link, 1000, 0, at(1050)));
    assert_eq!(blocked(&mut link, at(1050)), Some(at(1100)));
    assert!(!put(&mut link, 1000, 1, at(1060)), "the sender waits");
    assert_eq!(serve(&mut link, at(1100)), Some((0, true, at(2100), Progress::Sent(at(2100)))));
    assert!(!link.set_rate(mbps(4)), "the rate is the sender's");
    let without_outage = Handover { outage: Duration::ZERO, ..handover(false) };
    assert!(with(&direction, Some(without_outage), None).set_rate(mbps(4)));
}

#[test]
fn a_constant_delay_can_be_changed_and_a_drawn_one_cannot() {
    let delay = |jitter, per| Delay { fixed: us(20), jitter, per };
    let ordered = Per::Packet { ordered: true };
    let mut link = engine(&Direction { delay: delay(Distribution::Fixed(us(5)), ordered), ..plain(None) });
    assert_eq!((link.delay(|| us(1)), link.fixed_delay()), ((us(25), true), Some(us(25))));
    assert!(link.set_delay(us(40)) && link.keeps_order() && !link.has_own_delays());
    assert_eq!(link.delay(|| us(1)), (us(40), true));
    assert_eq!(link.delay_distribution().fixed(), Some(us(40)));
    assert!(link.is_regular() && !link.is_steady() && !link.is_transparent());

    let drawn =
        |per| engine(&Direction { delay: delay(Distribution::Uniform(us(0), us(10)), per), ..plain(None) });
    for is_ordered in [true, false] {
        let mut link = drawn(Per::Packet { ordered: is_ordered });
        let mut rng = Rng::stream(1, "sky", 0, "delay");
        for _ in 0..20 {
            let expected = us(20) + Distribution::Uniform(us(0), us(10)).draw(&mut rng);
            assert_eq!(link.delay(|| us(1)), (expected, is_ordered));
        }
        assert!(!link.set_delay(us(40)) && link.keeps_order() == is_ordered && !link.has_own_delays());
        assert!(link.fixed_delay().is_none() && !link.is_regular());
        assert_eq!(link.delay_distribution().longest(), us(30));
    }
    let mut link = drawn(Per::Connection);
    assert_eq!((link.delay(|| us(1)), link.keeps_order()), ((us(1), true), true));
    assert!(link.has_own_delays() && !link.is_regular() && !link.is_transparent());
}

#[test]
fn only_a_link_without_any_effect_is_transparent() {
    let transparent = |direction: Direction| engine(&direction).is_transparent();
    assert!(transparent(plain(None)));
    assert!(!transparent(plain(Some(mbps(8)))));
    assert!(!transparent(Direction { queue: Some(queue(10)), ..plain(None) }));
    assert!(!transparent(Direction { loss: Loss::independent(0.1), ..plain(None) }));
    let own = Delay { per: Per::Connection, ..plain(None).delay };
    assert!(!transparent(Direction { delay: own, ..plain(None) }));
    assert!(engine(&plain(Some(mbps(8)))).is_steady() && !engine(&plain(Some(mbps(8)))).may_lose());
}

/// A link adds nothing to the one before it if it has no queue, loss or drawn delay, and is at least as fast.
#[test]
fn a_faster_link_without_a_queue_passes_packets_on() {
    let passes =
        |direction: Direction, before: Option<Rate>| engine(&direction).passes_on(&engine(&plain(before)));
    assert!(passes(plain(None), None) && passes(plain(None), Some(mbps(8))));
    assert!(passes(plain(Some(mbps(8))), Some(mbps(8))) && passes(plain(Some(mbps(9))), Some(mbps(8))));
    assert!(!passes(plain(Some(mbps(7))), Some(mbps(8))) && !passes(plain(Some(mbps(7))), None));
    assert!(!passes(Direction { queue: Some(queue(10)), ..plain(None) }, None));
    assert!(!passes(Direction { loss: Loss::independent(0.1), ..plain(None) }, None));
    let drawn = |per| Delay { jitter: Distribution::Uniform(us(0), us(10)), per, ..plain(None).delay };
    assert!(!passes(Direction { delay: drawn(Per::Packet { ordered: true }), ..plain(None) }, None));
    assert!(passes(Direction { delay: drawn(Per::Connection), ..plain(None) }, None));
}

/// 8 Mbit/s for 2 ms, then nothing for 1 ms, then 4 Mbit/s.
fn stepped() -> Direction {
    let steps = vec![(us(0), mbps(8)), (us(2000), mbps(0)), (us(3000), mbps(4))];
    Direction { capacity: Some(Varying::Steps(Steps { steps, repeat: None })), ..plain(None) }
}

#[test]
fn changes_of_the_capacity_are_announced_to_the_queue() {
    let mut link = engine(&stepped());
    assert_eq!(link.first_update(), Some(at(0)));
    assert_eq!(link.update_capacity(at(0)), Some((mbps(8), Some(at(2000)))));
    assert_eq!(link.rate(), Some(mbps(8)));
    put(&mut link, 1500, 0, at(500));
    put(&mut link, 1000, 1, at(500));
    assert_eq!(serve(&mut link, at(500)), Some((0, true, at(2000), Progress::Sent(at(2000)))));
    // During the outage the rate is the last one before it.
    assert_eq!(link.update_capacity(at(2000)), Some((mbps(0), Some(at(3000)))));
    assert_eq!((link.rate(), link.backlog(at(2000))), (Some(mbps(8)), us(1000)));
    assert_eq!(serve(&mut link, at(2000)), Some((1, true, at(5000), Progress::Sent(at(5000)))));
    assert_eq!(link.update_capacity(at(3000)), Some((mbps(4), None)));
    assert_eq!(link.rate(), Some(mbps(4)));
    assert!(!link.is_regular() && !link.may_lose());
    assert_eq!(engine(&plain(Some(mbps(8)))).update_capacity(at(0)), None);
}

fn sender(direction: &Direction) -> Option<Sender> {
    Sender::new(direction, None, 1, &names())
}

#[test]
fn only_capacities_that_change_with_time_can_be_read_ahead() {
    let (low, high) = (mbps(2), mbps(4));
    let drawn = Varying::Drawn(Drawn { uniform: (low, high), every: us(1000) });
    let digest = bentpipe_scenario::Digest::of(b"test");
    let trace = Varying::Trace(Trace { times: [250, 500, 500, 1000].into(), digest });
    let reads = |capacity| {
        let sender = sender(&Direction { capacity: Some(capacity), ..plain(None) }).unwrap();
        sender.variable_capacity().unwrap()
    };
    let mut drawn = reads(drawn);
    let (rate, next) = drawn.update(at(0));
    assert!((low..=high).contains(&rate) && next == Some(at(1000)) && drawn.first_update() == at(0));
    // Four opportunities of 1500 bytes: 48 000 bits in the first second.
    let mut trace = reads(trace);
    let second = Instant::ZERO + Duration::from_secs(1);
    assert_eq!(trace.first_update(), second);
    let next = second + Duration::from_secs(1);
    assert_eq!(trace.update(second), (Rate::from_bps(48_000), Some(next)));
    // Without rain 14 dB less a margin of 1, for 32APSK 3/4 (12.73 dB, 3.703295 bit/symbol).
    let fade = Fade {
        clear_sky: 14.0,
        median: 1.0,
        sigma: 1.0,
        correlation_time: us(100_000),
        rain: 0.0,
        margin: 1.0,
        step: us(1000),
        region: None,
    };
    let mut dry = sender(&carrier(Modulation::Fade(fade))).unwrap().variable_capacity().unwrap();
    assert_eq!(dry.first_update(), at(0));
    assert_eq!(dry.update(at(5000)), (Rate::from_bps(3_703_295), Some(at(6000))));
    let mut constant = Capacity::Rate(Some(mbps(8)));
    assert_eq!(constant.update(at(0)), (Rate::default(), None));
    let dama = Demand { frame: us(1000), round_trip: us(5000), free: mbps(0) };
    let dama = Direction { demand: Some(dama), ..plain(Some(mbps(8))) };
    assert!(sender(&dama).unwrap().variable_capacity().is_none());
    assert!(sender(&plain(Some(mbps(8)))).is_none());
}

/// Opportunities at 5, 10 and 20 ms, then at 25, 30 and 40. Those at 5 and 10 ms pass unused. The packet of 25 ms finds an idle
/// link and misses the opportunity of that time.
#[test]
fn unused_opportunities_of_a_trace_are_lost() {
    let digest = bentpipe_scenario::Digest::of(b"test");
    let trace = Varying::Trace(Trace { times: [5, 10, 20].into(), digest });
    let mut link = engine(&Direction { capacity: Some(trace), ..plain(None) });
    assert!(put(&mut link, 1500, 0, at(12_000)));
    assert_eq!(blocked(&mut link, at(12_000)), Some(at(20_000)));
    assert_eq!(serve(&mut link, at(20_000)), Some((0, true, at(20_000), Progress::Sent(at(20_000)))));
    assert_eq!(serve(&mut link, at(20_000)), None);
    assert!(put(&mut link, 1500, 1, at(25_000)));
    assert_eq!(blocked(&mut link, at(25_000)), Some(at(30_000)));
}

/// Frames of 1 ms hold 1000 bytes. A packet of 1500 bytes, requested at 0, is granted the frames at 5 and 6 ms.
#[test]
fn a_packet_that_does_not_fit_a_frame_is_sent_in_parts() {
    let demand = Demand { frame: us(1000), round_trip: us(5000), free: mbps(0) };
    let mut link = engine(&Direction { demand: Some(demand), ..plain(Some(mbps(8))) });
    assert!(put(&mut link, 1500, 0, at(0)));
    for ms in 0..5 {
        assert_eq!(blocked(&mut link, at(1000 * ms)), Some(at(1000 * (ms + 1))));
    }
    assert_eq!(serve(&mut link, at(5000)), Some((0, true, at(6000), Progress::Partial)));
    assert_eq!((link.queued(), link.queue().unwrap().state().packets), (1, 0));
    assert_eq!(serve(&mut link, at(6000)), Some((0, false, at(6500), Progress::Sent(at(6500)))));
    assert_eq!((link.queued(), serve(&mut link, at(6500))), (0, None));
    assert!(put(&mut link, 1500, 1, at(7000)));
}

/// Frames of 1 ms hold 1000 bytes, and requests reach a hundred frames ahead: before its first part is sent at 5 ms, only 104 000
/// bytes of the packet have been requested. The rest is requested while parts are sent, so that no frame is left unused.
#[test]
fn the_rest_of_a_packet_in_transmission_is_requested_too() {
    let demand = Demand { frame: us(1000), round_trip: us(5000), free: mbps(0) };
    let mut link = engine(&Direction { demand: Some(demand), ..plain(Some(mbps(8))) });
    put(&mut link, 150_000, 0, at(0));
    for ms in 0..5 {
        assert_eq!(blocked(&mut link, at(1000 * ms)), Some(at(1000 * (ms + 1))));
    }
    for ms in 5..154 {
        let sent = serve(&mut link, at(1000 * ms));
        assert_eq!(sent, Some((0, ms == 5, at(1000 * (ms + 1)), Progress::Partial)), "{ms} ms");
    }
    assert_eq!(serve(&mut link, at(154_000)), Some((0, false, at(155_000), Progress::Sent(at(155_000)))));
}

/// Every try fails: after two of 1.1 ms the packet is given up, and the link is free.
#[test]
fn a_link_layer_gives_a_packet_up_after_its_last_try() {
    let access = Access {
        overhead: (us(100), us(100)),
        header: 0,
        frame_loss: 1.0,
        tries: 2,
        try_delay: us(50),
        frame: Duration::ZERO,
    };
    let mut link = engine(&Direction { access: Some(access), ..plain(Some(mbps(8))) });
    put(&mut link, 1000, 0, at(0));
    assert_eq!(serve(&mut link, at(0)), Some((0, true, at(2200), Progress::Lost)));
    assert!(link.may_lose() && !link.has_channel() && !link.is_regular());
    // A frame of 3 ms delays the packet, but not the link.
    let access = Access { frame_loss: 0.0, frame: us(3000), ..access };
    let mut link = engine(&Direction { access: Some(access), ..plain(Some(mbps(8))) });
    put(&mut link, 1000, 0, at(0));
    assert_eq!(serve(&mut link, at(0)), Some((0, true, at(1100), Progress::Sent(at(3000)))));
}
