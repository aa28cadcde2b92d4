//! Event sequences of a gateway, compared with hand-computed ones: 20 Mbit/s and ticks of 5 ms release 12 500 bytes per tick.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bentpipe_gateway::{
    Drain, Event, Gateway, GatewayQueue, Meter, Processor, Regulator, Setup, Snapshot, Summary,
};
use bentpipe_queue::{
    Aqm, Context, DropHandler, DropReason, FlowEvent, FlowId, Limit, Link, Marking, Packet, Queue,
    QueueConfig, Value, Values, Verdict, aqm::droptail::DropTail, aqm::redfc, sched::fifo::Fifo,
};
use bentpipe_units::{Duration, Instant, Rate};

/// Marks packets if the watched queue is not empty.
struct MarkIfBusy;

impl Aqm for MarkIfBusy {
    fn arrive(&mut self, _pkt: &Packet, cx: &mut Context<'_>) -> Verdict {
        if cx.queue.packets > 0 { Verdict::Mark } else { Verdict::Pass }
    }
}

fn queue(aqm: Box<dyn Aqm>, packets: u32) -> Queue {
    let setup = QueueConfig {
        marking: Marking::Drop,
        limit: Limit { packets, bytes: u64::MAX },
        capacity: Rate::from_bps(20_000_000),
        seed: 1,
        name: "test".to_owned(),
    };
    Queue::new(Box::<Fifo>::default(), aqm, &setup)
}

fn gateway(watch: GatewayQueue, mark: GatewayQueue, receive_rate: Option<Rate>) -> Gateway {
    let aqm =
        |queue| -> Box<dyn Aqm> { if watch == queue { Box::new(MarkIfBusy) } else { Box::new(DropTail) } };
    Gateway::new(Setup {
        receive: queue(aqm(GatewayQueue::Receive), 2),
        receive_rate,
        transmit: queue(aqm(GatewayQueue::Transmit), 1000),
        watch,
        mark,
        processing: Processor::constant(Duration::from_millis(12)),
        drain: Drain::Regulator(Regulator::new(Rate::from_bps(20_000_000), Duration::from_millis(5))),
    })
}

fn at(us: u64) -> Instant {
    Instant::ZERO + Duration::from_micros(us)
}

fn packet(handle: u32) -> Packet {
    Packet::new(1000, FlowId(0), handle)
}

/// Runs a host that forwards every packet. Returns the events until `end`: time, kind, packet.
fn drive(gateway: &mut Gateway, end: Instant) -> Vec<(u64, &'static str, u32)> {
    let mut log = Vec::new();
    let mut note = |gateway: &mut Gateway, now: Instant| {
        while let Some(event) = gateway.poll() {
            let (what, pkt) = match event {
                Event::Received(pkt) => {
                    gateway.process(pkt, now);
                    ("received", pkt)
                }
                Event::Processed(pkt) => {
                    gateway.transmit(pkt, now);
                    ("processed", pkt)
                }
                Event::Sent(pkt) => ("sent", pkt),
                Event::Dropped(pkt, DropReason::Aqm, _) => ("marked", pkt),
                Event::Dropped(pkt, DropReason::Overflow, _) => ("overflowed", pkt),
            };
            log.push((now.as_nanos() / 1000, what, pkt.handle));
        }
    };
    note(gateway, Instant::ZERO);
    while let Some(now) = gateway.wake_at().filter(|now| *now <= end) {
        gateway.wake(now);
        note(gateway, now);
    }
    log
}

/// 12 ms of processing end between two ticks, so the packet is delivered at 15 ms and sent with that tick.
#[test]
fn processed_packets_are_sent_with_the_same_tick() {
    let mut gateway = gateway(GatewayQueue::Transmit, GatewayQueue::Receive, None);
    gateway.arrive(packet(7), at(0));
    let log = drive(&mut gateway, at(100_000));
    assert_eq!(log, [(0, "received", 7), (15_000, "processed", 7), (15_000, "sent", 7)]);
    assert_eq!((gateway.in_work(), gateway.transmit_queue().state().packets), (0, 0));
    assert_eq!(gateway.arrived_bytes(), 1000);
    assert!(gateway.regulator().is_some());
}

/// Fifteen packets of 1000 bytes: twelve are sent with one tick, three wait for the next.
#[test]
fn a_tick_sends_no_more_than_its_credit() {
    let mut gateway = gateway(GatewayQueue::Transmit, GatewayQueue::Receive, None);
    for handle in 0..15 {
        gateway.process(packet(handle), at(0));
    }
    let log = drive(&mut gateway, at(100_000));
    let sent = |us| log.iter().filter(|(t, what, _)| (*t, *what) == (us, "sent")).count();
    assert_eq!([sent(15_000), sent(20_000), sent(25_000)], [12, 3, 0]);
}

/// The AQM decides in front of the PEP, by the backlog behind it.
#[test]
fn aqm_of_the_transmit_queue_marks_at_the_receive_queue() {
    let mut gateway = gateway(GatewayQueue::Transmit, GatewayQueue::Receive, None);
    gateway.transmit(packet(1), at(0));
    gateway.arrive(packet(2), at(0));
    let log = drive(&mut gateway, at(1));
    assert_eq!(log[..1], [(0, "marked", 2)]);
    assert_eq!(gateway.transmit_queue().counters().dropped_on_arrival, 1);
}

/// At 8 Mbit/s a packet takes a millisecond: one is served, two wait, the fourth overflows.
#[test]
fn a_receive_queue_with_a_rate_is_served_one_by_one() {
    let rate = Some(Rate::from_bps(8_000_000));
    let mut gateway = gateway(GatewayQueue::Transmit, GatewayQueue::Receive, rate);
    for handle in 0..4 {
        gateway.arrive(packet(handle), at(0));
    }
    let log = drive(&mut gateway, at(3000));
    assert_eq!(
        log,
        [(0, "overflowed", 3), (1000, "received", 0), (2000, "received", 1), (3000, "received", 2)]
    );
}

/// An AQM that watches the receive queue decides by the backlog there: the third packet finds the second waiting.
#[test]
fn aqm_of_the_receive_queue_marks_by_its_backlog() {
    let rate = Some(Rate::from_bps(8_000_000));
    let mut gateway = gateway(GatewayQueue::Receive, GatewayQueue::Receive, rate);
    for handle in 0..3 {
        gateway.arrive(packet(handle), at(0));
    }
    assert_eq!(drive(&mut gateway, at(1)), [(0, "marked", 2)]);
    assert_eq!(gateway.watched_queue().counters().offered, 3);
}

/// REDFC watches the transmit queue and holds packets for 10 ms in front of the PEP. 40 packets wait there; the ticks
/// from 0 ms on send 12, 13 (with the remaining credit), 12 and 3. So packet 100, which arrives at 1 ms, is held until
/// 11 ms, finds three packets then, and is held until 21 ms. The link has been idle since 20 ms: the packet continues,
/// has passed the PEP at 33 ms, and is sent with the tick after that. Packet 101 arrives half a millisecond before that
/// and overtakes it.
#[test]
fn a_packet_held_before_the_pep_is_sent_later() {
    let link = Link { capacity: Rate::from_bps(20_000_000), mean_packet: 1000.0 };
    let given = |name: &str| match name {
        "min_th" => Some(Value::Number(1.0)),
        "max_th" => Some(Value::Number(2.0)),
        "w_q" => Some(Value::Number(1.0)),
        "hold" => Some(Value::Number(0.01)),
        _ => None,
    };
    let algorithm = redfc::ALGORITHM;
    let values = Values::resolve(algorithm.params, &link, &given).unwrap();
    let mut gateway = Gateway::new(Setup {
        receive: queue(Box::new(DropTail), 1000),
        receive_rate: None,
        transmit: queue((algorithm.build)(&values).unwrap(), 1000),
        watch: GatewayQueue::Transmit,
        mark: GatewayQueue::Receive,
        processing: Processor::constant(Duration::from_millis(12)),
        drain: Drain::Regulator(Regulator::new(Rate::from_bps(20_000_000), Duration::from_millis(5))),
    });
    for handle in 0..40 {
        gateway.transmit(packet(handle), at(0));
    }
    drive(&mut gateway, at(1000));
    gateway.arrive(packet(100), at(1000));
    assert_eq!((gateway.transmit_queue().state().held, gateway.poll()), (1, None));
    let mut log = drive(&mut gateway, at(20_500));
    gateway.arrive(packet(101), at(20_500));
    let received = Packet { number: 1, arrival: at(20_500), ..packet(101) };
    assert_eq!(gateway.poll(), Some(Event::Received(received)));
    gateway.process(packet(101), at(20_500));
    log.extend(drive(&mut gateway, at(100_000)));
    log.retain(|(_, _, handle)| *handle >= 100);
    assert_eq!(
        log,
        [
            (21_000, "received", 100),
            (35_000, "processed", 101),
            (35_000, "processed", 100),
            (35_000, "sent", 101),
            (35_000, "sent", 100)
        ]
    );
    assert_eq!(gateway.transmit_queue().state().held, 0);
    gateway.transmit_queue().check().unwrap();
}

/// Admitted packets pass although the AQM would mark them, wait for service at the receive queue, and count as arrived.
#[test]
fn admitted_packets_bypass_the_aqm() {
    let mut gateway = gateway(GatewayQueue::Transmit, GatewayQueue::Receive, Some(Rate::from_bps(8_000_000)));
    assert!(gateway.marks_before_pep());
    // During the outage two packets wait in the transmit queue.
    gateway.set_rate(Rate::from_bps(0), at(0));
    for handle in 0..2 {
        gateway.transmit(packet(handle), at(0));
    }
    for handle in 2..4 {
        gateway.arrive(packet(handle), at(0));
        gateway.admit(packet(handle + 10), at(0));
    }
    let log: Vec<_> = drive(&mut gateway, at(4000));
    assert_eq!(log, [(0, "marked", 2), (0, "marked", 3), (1000, "received", 12), (2000, "received", 13)]);
    assert_eq!((gateway.arrived_packets(), gateway.arrived_bytes()), (4, 4000));
}

/// Holds each packet back for 1 ms, then marks it. Counts the flows that are announced.
struct HoldThenMark {
    asked: u32,
    flows: Arc<AtomicU32>,
}

impl Aqm for HoldThenMark {
    fn arrive(&mut self, _pkt: &Packet, _cx: &mut Context<'_>) -> Verdict {
        self.asked += 1;
        if self.asked == 1 { Verdict::Hold(Duration::from_millis(1)) } else { Verdict::Mark }
    }

    fn flow(&mut self, _flow: FlowId, _event: FlowEvent, _cx: &mut Context<'_>) {
        self.flows.fetch_add(1, Ordering::Relaxed);
    }
}

/// The AQM of the transmit queue drops at the receive queue, also a packet that it has held back.
#[test]
fn a_packet_held_back_and_then_marked_is_dropped_at_the_mark_point() {
    let mut gateway = gateway(GatewayQueue::Transmit, GatewayQueue::Receive, None);
    gateway.set_aqm(Box::new(HoldThenMark { asked: 0, flows: Arc::default() }), at(0));
    gateway.arrive(packet(1), at(0));
    assert_eq!((gateway.wake_at(), gateway.is_working()), (Some(at(1000)), true));
    gateway.wake(at(1000));
    assert!(!gateway.is_working());
    let Some(Event::Dropped(pkt, reason, queue)) = gateway.poll() else { panic!("not dropped") };
    assert_eq!((pkt.handle, reason, queue), (1, DropReason::Aqm, GatewayQueue::Receive));
}

#[test]
fn flows_are_announced_to_the_aqms_of_both_queues() {
    for watch in [GatewayQueue::Receive, GatewayQueue::Transmit] {
        let flows = Arc::<AtomicU32>::default();
        let mut gateway = gateway(watch, watch, None);
        gateway.set_aqm(Box::new(HoldThenMark { asked: 0, flows: flows.clone() }), at(0));
        gateway.flow(FlowId(1), FlowEvent::Opened, at(0));
        assert_eq!(flows.load(Ordering::Relaxed), 1, "{watch:?}");
        assert!(!gateway.marks_before_pep());
    }
}

/// During an outage nothing is sent, and the queue keeps its capacity; at 8 Mbit/s a tick releases 5000 bytes.
#[test]
fn an_outage_stops_the_regulator_until_the_link_has_a_rate_again() {
    let mut gateway = gateway(GatewayQueue::Transmit, GatewayQueue::Receive, None);
    gateway.set_rate(Rate::from_bps(0), at(0));
    for handle in 0..6 {
        gateway.transmit(packet(handle), at(0));
    }
    assert_eq!((gateway.is_down(), gateway.is_backlogged(), gateway.wake_at()), (true, false, None));
    assert_eq!(gateway.transmit_queue().state().capacity, Rate::from_bps(20_000_000));
    gateway.set_rate(Rate::from_bps(8_000_000), at(1000));
    assert_eq!((gateway.is_down(), gateway.is_backlogged()), (false, true));
    assert_eq!(gateway.transmit_queue().state().capacity, Rate::from_bps(8_000_000));
    let log = drive(&mut gateway, at(100_000));
    let times: Vec<_> = log.iter().map(|(us, _, _)| *us).collect();
    assert_eq!(times, [5000, 5000, 5000, 5000, 5000, 10_000]);
    assert!(!gateway.is_backlogged());
}

/// The regulator sends at its ticks only, although the receive queue wakes the gateway in between.
#[test]
fn packets_wait_for_the_tick_while_the_receive_queue_is_served() {
    let rate = Some(Rate::from_bps(8_000_000));
    let mut gateway = gateway(GatewayQueue::Transmit, GatewayQueue::Receive, rate);
    gateway.admit(packet(1), at(100));
    gateway.transmit(packet(2), at(100));
    assert_eq!(gateway.in_work(), 1);
    gateway.process(packet(3), at(100));
    assert_eq!(gateway.in_work(), 2);
    gateway.wake(at(1100));
    assert!(matches!(gateway.poll(), Some(Event::Received(Packet { handle: 1, .. }))));
    assert_eq!((gateway.poll(), gateway.in_work(), gateway.is_working()), (None, 1, true));
    assert_eq!(drive(&mut gateway, at(5000)), [(5000, "sent", 2)]);
    assert_eq!(drive(&mut gateway, at(15_000)).len(), 2, "processed and sent");
    assert!(!gateway.is_working());
}

/// The tick at 0 sends all. The burst takes up to the tick at 5 ms, from which on the link is idle.
#[test]
fn the_link_is_idle_from_the_tick_that_finds_an_empty_queue() {
    let mut gateway = gateway(GatewayQueue::Transmit, GatewayQueue::Receive, None);
    gateway.transmit(packet(1), at(0));
    assert_eq!(drive(&mut gateway, at(4999)), [(0, "sent", 1)]);
    assert_eq!((gateway.wake_at(), gateway.transmit_queue().state().idle_since), (Some(at(5000)), None));
    gateway.wake(at(5000));
    assert_eq!((gateway.wake_at(), gateway.transmit_queue().state().idle_since), (None, Some(at(5000))));
}

/// 2500 bytes sent beside the transmit queue leave 10 000 of a tick's 12 500.
#[test]
fn charged_bytes_reduce_what_the_next_tick_releases() {
    let mut gateway = gateway(GatewayQueue::Transmit, GatewayQueue::Receive, None);
    gateway.charge(2500, at(1));
    assert_eq!(gateway.debt(at(1)), 2500);
    for handle in 0..12 {
        gateway.transmit(packet(handle), at(1));
    }
    let log = drive(&mut gateway, at(5000));
    assert_eq!(log.len(), 10, "{log:?}");
}

/// Ten minutes of acknowledgements, 60 bytes every 10 ms, are 3.6 MB; the idle link carries them in time.
#[test]
fn bytes_charged_while_the_queue_is_empty_do_not_delay_later_packets() {
    let mut gateway = gateway(GatewayQueue::Transmit, GatewayQueue::Receive, None);
    let mut ms = 0;
    while ms < 600_000 {
        gateway.charge(60, at(1000 * ms + 1));
        ms += 10;
    }
    assert!(gateway.debt(at(1000 * ms)) <= 60, "{}", gateway.debt(at(1000 * ms)));
    gateway.transmit(packet(1), at(1000 * ms + 1));
    assert_eq!(drive(&mut gateway, at(1000 * ms + 100_000)), [(1000 * ms + 5000, "sent", 1)]);
}

/// In an outage of a minute all that the link would have carried is charged. It is paid for by the end.
#[test]
fn packets_are_sent_right_after_an_outage_in_which_none_waited() {
    let mut gateway = gateway(GatewayQueue::Transmit, GatewayQueue::Receive, None);
    for ms in 1..=60_000 {
        gateway.charge(2500, at(1000 * ms));
    }
    gateway.transmit(packet(1), at(60_000_001));
    assert_eq!(drive(&mut gateway, at(61_000_000)), [(60_005_000, "sent", 1)]);
}

/// A gateway whose transmit queue a carrier drains, at a peak rate of 20 Mbit/s.
fn gateway_behind_a_carrier() -> Gateway {
    Gateway::new(Setup {
        receive: queue(Box::new(DropTail), 1000),
        receive_rate: None,
        transmit: queue(Box::new(DropTail), 1000),
        watch: GatewayQueue::Transmit,
        mark: GatewayQueue::Transmit,
        processing: Processor::constant(Duration::ZERO),
        drain: Drain::Carrier { peak: Rate::from_bps(20_000_000), tick: Duration::ZERO },
    })
}

/// Capacity of the transmit queue [bit/s].
fn capacity(gateway: &Gateway) -> u64 {
    gateway.transmit_queue().state().capacity.as_bps()
}

/// Behind a carrier the gateway sends when the carrier asks it. Its queue's capacity is the measured rate: 1000 bytes every
/// millisecond, 8 Mbit/s, which counts for a quarter beside the peak rate of 20 Mbit/s.
#[test]
fn a_carrier_takes_packets_from_the_transmit_queue() {
    let mut gateway = gateway_behind_a_carrier();
    assert!(gateway.regulator().is_none());
    for handle in 0..102 {
        gateway.transmit(packet(handle), at(0));
    }
    assert_eq!((gateway.wake_at(), gateway.is_backlogged(), gateway.debt(at(0))), (None, true, 0));
    for ms in 0..100 {
        assert_eq!(gateway.release(at(1000 * ms)).map(|pkt| pkt.handle), Some(ms as u32));
    }
    assert_eq!(capacity(&gateway), 20_000_000);
    assert_eq!(drive(&mut gateway, at(0)).len(), 100);
    // 101 packets have begun in 100 ms.
    assert!(gateway.release(at(100_000)).is_some());
    assert_eq!(capacity(&gateway), (3 * 20_000_000 + 8_080_000) / 4);
    gateway.set_rate(Rate::from_bps(0), at(100_000));
    assert_eq!((gateway.release(at(101_000)), gateway.is_backlogged()), (None, false));
    gateway.set_rate(Rate::from_bps(8_000_000), at(102_000));
    assert_eq!(capacity(&gateway), 17_020_000, "the rate of the carrier is not that of the queue");
    gateway.set_peak(Rate::from_bps(6_000_000));
    assert_eq!(capacity(&gateway), 6_000_000);
    let taken = gateway.take(at(103_000)).map(|pkt| pkt.handle);
    assert_eq!((taken, gateway.take(at(103_000)), gateway.release(at(103_000))), (Some(101), None, None));
}

/// 1000 bytes every millisecond are 8 Mbit/s, before and after an outage of 900 ms. The carrier finds the queue down 1 ms after the
/// outage has begun.
#[test]
fn an_outage_does_not_count_in_the_measured_rate_of_a_carrier() {
    let mut gateway = gateway_behind_a_carrier();
    for handle in 0..100 {
        gateway.transmit(packet(handle), at(0));
    }
    for ms in 0..50 {
        assert!(gateway.release(at(1000 * ms)).is_some());
    }
    gateway.set_rate(Rate::from_bps(0), at(50_000));
    assert!(gateway.release(at(51_000)).is_none());
    gateway.set_rate(Rate::from_bps(20_000_000), at(950_000));
    assert!(gateway.release(at(950_000)).is_some());
    // 51 packets in 50 ms, a quarter of the rate beside the peak.
    assert_eq!(capacity(&gateway), (3 * 20_000_000 + 8_160_000) / 4);
}

/// With a regulator the peak rate of a carrier does not matter.
#[test]
fn a_peak_rate_needs_a_carrier() {
    let mut gateway = gateway(GatewayQueue::Transmit, GatewayQueue::Receive, None);
    gateway.set_peak(Rate::from_bps(6_000_000));
    assert_eq!(gateway.transmit_queue().state().capacity, Rate::from_bps(20_000_000));
}

/// Marks packet 1 at the mark point, and packet 2 when it leaves the queue.
struct MarkOneAndTwo;

impl Aqm for MarkOneAndTwo {
    fn arrive(&mut self, pkt: &Packet, _cx: &mut Context<'_>) -> Verdict {
        if pkt.handle == 1 { Verdict::Mark } else { Verdict::Pass }
    }

    fn depart(&mut self, pkt: &Packet, _cx: &mut Context<'_>) -> Verdict {
        if pkt.handle == 2 { Verdict::Mark } else { Verdict::Pass }
    }
}

/// Summary of what a gateway does with packets 0 to 5, which arrive at once. The receive queue holds two beside the one in
/// service and serves one in a millisecond; the transmit queue holds one. The AQM watches the receive queue.
fn summary(mark: GatewayQueue) -> Summary {
    let mut gateway = Gateway::new(Setup {
        receive: queue(Box::new(MarkOneAndTwo), 2),
        receive_rate: Some(Rate::from_bps(8_000_000)),
        transmit: queue(Box::new(DropTail), 1),
        watch: GatewayQueue::Receive,
        mark,
        processing: Processor::constant(Duration::ZERO),
        drain: Drain::Regulator(Regulator::new(Rate::from_bps(20_000_000), Duration::from_millis(5))),
    });
    let mut meter = Meter::new(at(0), true);
    meter.begin(Snapshot::of_gateway(&gateway, at(0)), at(0));
    for handle in 0..6 {
        gateway.arrive(packet(handle), at(0));
    }
    drive(&mut gateway, at(10_000));
    let end = Snapshot::of_gateway(&gateway, at(10_000));
    assert_eq!(meter.sample(end, at(10_000)).arrived, 4.8e6, "6000 bytes in 10 ms");
    meter.summary(&end, at(10_000)).unwrap()
}

/// Packet 0 is served, 1 is marked, 2 and 3 wait, 4 and 5 overflow. After 0 the AQM drops 2 in the queue. At 5 ms the PEP delivers 0 and
/// 3; the transmit queue has room for 0 only.
#[test]
fn drops_of_an_aqm_at_the_receive_queue_are_counted_there() {
    let found = summary(GatewayQueue::Receive);
    assert_eq!((found.offered_packets, found.offered_bytes), (6, 6000));
    assert_eq!((found.marked_packets, found.marked_in_queue, found.left_queue), (2, 1, 3));
    assert_eq!((found.aqm_drops, found.overflow_drops, found.drops_elsewhere), (2, 2, 1));
    assert_eq!((found.receive.arrived, found.receive.dropped), (6, 4));
    assert_eq!((found.transmit.arrived, found.transmit.dropped), (2, 1));
    assert_eq!((found.sent_packets, found.sent_bytes), (1, 1000));
}

/// Packet 0 is served, 1 and 2 wait, 3, 4 and 5 overflow; 2 is dropped in the queue. At 5 ms the AQM lets 0 enter the transmit queue
/// and marks 1.
#[test]
fn drops_at_the_other_queue_are_counted_apart_from_those_at_the_mark_point() {
    let found = summary(GatewayQueue::Transmit);
    assert_eq!((found.offered_packets, found.offered_bytes), (2, 2000));
    assert_eq!((found.marked_packets, found.marked_in_queue), (2, 1));
    assert_eq!((found.aqm_drops, found.overflow_drops, found.drops_elsewhere), (1, 0, 4));
    assert_eq!((found.receive.arrived, found.receive.dropped), (6, 4));
    assert_eq!((found.transmit.arrived, found.transmit.dropped), (2, 1));
    assert_eq!((found.sent_packets, found.sent_bytes), (1, 1000));
}

/// Of five packets 1 is marked, 0 and 2 wait for a millisecond, 3 and 4 overflow; then 0 is sent, and 2 dropped at the head.
#[test]
fn counters_of_a_queue_without_a_gateway_are_those_of_a_transmit_queue() {
    let mut queue = queue(Box::new(MarkOneAndTwo), 2);
    let mut out = Vec::new();
    let mut meter = Meter::new(at(0), true);
    meter.begin(Snapshot::of_queue(&queue, at(0)), at(0));
    for handle in 0..5 {
        let mut pkt = packet(handle);
        if queue.offer(&mut pkt, at(0), &mut Collect(&mut out)) {
            queue.enqueue(pkt, at(0), &mut Collect(&mut out));
        }
    }
    assert!(queue.dequeue(at(1000), &mut Collect(&mut out)).is_some());
    assert!(queue.dequeue(at(1000), &mut Collect(&mut out)).is_none());
    assert_eq!(out, [1, 3, 4, 2]);
    let found = meter.summary(&Snapshot::of_queue(&queue, at(1000)), at(1000)).unwrap();
    assert_eq!((found.aqm_drops, found.overflow_drops, found.drops_elsewhere), (2, 2, 0));
    assert_eq!((found.receive.arrived, found.receive.dropped), (0, 0));
    assert_eq!((found.transmit.arrived, found.transmit.dropped), (5, 4));
    assert_eq!((found.sent_packets, found.sent_bytes, found.left_queue), (1, 1000, 2));
    assert!((found.queue_time_average - 2.0).abs() < 1e-9);
}

/// Numbers of dropped packets.
struct Collect<'a>(&'a mut Vec<u32>);

impl DropHandler for Collect<'_> {
    fn dropped(&mut self, pkt: Packet, _reason: DropReason) {
        self.0.push(pkt.handle);
    }
}
