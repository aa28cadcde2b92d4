//! Event sequences of a gateway, compared with hand-computed ones: 20 Mbit/s and ticks of 5 ms release 12 500 bytes per tick.

use bentpipe_gateway::{Drain, Event, Gateway, GatewayQueue, Processor, Regulator, Setup};
use bentpipe_queue::{
    Aqm, Context, DropReason, FlowId, Limit, Link, Marking, Packet, Queue, QueueConfig, Value, Values,
    Verdict, aqm::droptail::DropTail, aqm::redfc, sched::fifo::Fifo,
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
    assert_eq!(gateway.arrived_bytes(), 4000);
}
