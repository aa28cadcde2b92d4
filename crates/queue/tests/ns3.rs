//! Comparison with queue discs of ns-3: `ns3/queue_discs.cc` made the table, with the arrivals of [`Arrivals`].

use bentpipe_queue::registry::{aqm, scheduler};
use bentpipe_queue::{
    DropHandler, DropReason, FlowId, Limit, Link, Marking, Packet, Queue, QueueConfig, Value, Values,
};
use bentpipe_units::{Instant, Rate};

const TABLE: &str = include_str!("ns3/queue_discs.csv");
const LENGTHS: [u32; 8] = [64, 200, 576, 1000, 1000, 1500, 1500, 1500];
const LOADS: [u64; 5] = [450, 630, 990, 1350, 1980];

/// Packets that arrive in phases of different load, given in thousandths of the link's capacity.
struct Arrivals {
    state: u64,
    scale: u64,
    flows: u64,
    load: u64,
    left: u64,
    time: u64,
}

impl Arrivals {
    fn new(seed: u64, scale: u64, flows: u64) -> Self {
        Self { state: seed, scale, flows, load: 0, left: 0, time: 0 }
    }

    fn draw(&mut self, bound: u64) -> u64 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % bound
    }
}

impl Iterator for Arrivals {
    /// Time [ns], flow and length.
    type Item = (u64, FlowId, u32);

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            self.load = LOADS[self.draw(5) as usize] * self.scale / 1000;
            self.left = 100 + self.draw(900);
        }
        self.left -= 1;
        self.time += self.draw(2 * 917_500_000 / self.load) / 1000 * 1000;
        let flow = if self.draw(10) < 7 { self.draw(self.flows) } else { 0 };
        Some((self.time, FlowId(flow as u32), LENGTHS[self.draw(8) as usize]))
    }
}

#[derive(Default)]
struct Dropped(Vec<u32>);

impl DropHandler for Dropped {
    fn dropped(&mut self, pkt: Packet, _: DropReason) {
        self.0.push(pkt.handle);
    }
}

/// A queue on a link of 8 Mbit/s.
struct Bench {
    queue: Queue,
    dropped: Dropped,
    /// Packets sent (true) and dropped, with the time [ns].
    events: Vec<(bool, u64, u32)>,
    /// Sum over the packets sent [ns].
    delays: u64,
}

impl Bench {
    /// `name` is an AQM, which stands in front of a FIFO queue, or a scheduler.
    fn new(name: &str, given: &[(&str, Value)], packets: u32, seed: u64) -> Self {
        let capacity = Rate::from_bps(8_000_000);
        let link = Link { capacity, mean_packet: 1000.0 };
        let value = |name: &str| given.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        let (fifo, droptail) = (scheduler("fifo").unwrap(), aqm("droptail").unwrap());
        let (scheduler, aqm) = match aqm(name) {
            Some(aqm) => (fifo, aqm),
            None => (scheduler(name).unwrap(), droptail),
        };
        let scheduler =
            (scheduler.build)(&Values::resolve(scheduler.params, &link, &value).unwrap()).unwrap();
        let aqm = (aqm.build)(&Values::resolve(aqm.params, &link, &value).unwrap()).unwrap();
        let limit = Limit { packets, bytes: u64::MAX };
        let setup = QueueConfig { marking: Marking::Drop, limit, capacity, seed, name: name.to_owned() };
        Self {
            queue: Queue::new(scheduler, aqm, &setup),
            dropped: Dropped::default(),
            events: Vec::new(),
            delays: 0,
        }
    }

    fn run(&mut self, arrivals: impl IntoIterator<Item = (u64, FlowId, u32)>) {
        let mut free = None;
        for (handle, (time, flow, len)) in (0..).zip(arrivals) {
            while let Some(at) = free.filter(|at| *at <= time) {
                free = self.serve(at);
            }
            self.wake(time);
            let (mut pkt, now) = (Packet::new(len, flow, handle), Instant::from_nanos(time));
            if self.queue.offer(&mut pkt, now, &mut self.dropped) {
                self.queue.enqueue(pkt, now, &mut self.dropped);
            }
            self.note_drops(time);
            if free.is_none() {
                free = self.serve(time);
            }
        }
        while let Some(at) = free {
            free = self.serve(at);
        }
    }

    /// Sends a packet; returns the time at which the link is free again [ns].
    fn serve(&mut self, at: u64) -> Option<u64> {
        self.wake(at);
        let pkt = self.queue.dequeue(Instant::from_nanos(at), &mut self.dropped);
        self.note_drops(at);
        let pkt = pkt?;
        self.events.push((true, at, pkt.handle));
        self.delays += (Instant::from_nanos(at) - pkt.arrival).as_nanos();
        Some(at + u64::from(pkt.len) * 1000)
    }

    /// Wakes the queue for every update until `at`.
    fn wake(&mut self, at: u64) {
        while let Some(due) = self.queue.wake_at().filter(|due| *due <= Instant::from_nanos(at)) {
            assert!(self.queue.wake(due, &mut self.dropped).is_none());
        }
    }

    fn note_drops(&mut self, at: u64) {
        self.events.extend(self.dropped.0.drain(..).map(|handle| (false, at, handle)));
    }

    /// Times of the drops [ns].
    fn drops(&self) -> impl Iterator<Item = u64> {
        self.events.iter().filter(|(sent, ..)| !sent).map(|(_, at, _)| *at)
    }
}

/// The rows of a case and seed: kind, time and packet.
fn rows(case: &str, seed: u64) -> impl Iterator<Item = (&'static str, u64, u32)> {
    let start = format!("{case},{seed},");
    TABLE.lines().filter_map(move |line| {
        let mut cells = line.strip_prefix(&start)?.split(',');
        let mut cell = || cells.next().unwrap();
        Some((cell(), cell().parse().unwrap(), cell().parse().unwrap()))
    })
}

/// Three flows with room for 50 packets and without CoDel, whose law ns-3 rounds.
#[test]
fn fq_codel_sends_and_drops_the_packets_of_ns3() {
    let given = [("target", 500.0), ("interval", 1000.0), ("quantum", 1514.0)];
    let mut bench = Bench::new("fq_codel", &given.map(|(key, x)| (key, Value::Number(x))), 50, 1);
    bench.run(Arrivals::new(1, 1300, 3).take(700));
    let theirs: Vec<_> = rows("fq_codel", 1).map(|(kind, at, packet)| (kind == "sent", at, packet)).collect();
    assert!(theirs.len() == 700 && theirs.iter().filter(|(sent, ..)| !sent).count() > 100);
    assert_eq!(bench.events, theirs);
}

/// One flow in CAKE. ns-3 rounds the roots of COBALT's law, so that a drop may come a packet, 1.5 ms, earlier or later.
#[test]
fn cakes_cobalt_drops_when_that_of_ns3_does() {
    for seed in 1..=3 {
        let mut bench = Bench::new("cake", &[], 100_000, 1);
        bench.run(Arrivals::new(seed, 1000, 1).take(5000));
        let theirs: Vec<_> = rows("cobalt", seed).map(|(_, at, _)| at).collect();
        assert!(theirs.len() == 9 && bench.drops().count() > 9);
        for (ours, theirs) in bench.drops().zip(theirs) {
            assert!(ours.abs_diff(theirs) <= 1_500_000, "seed {seed}: {ours} ns, {theirs} ns");
        }
    }
}

/// Marks are random: over eight runs drops and delays agree to 2 and 3 %. ns-3 decays the probability in empty queues only.
#[test]
fn pie_drops_as_many_packets_as_on_ns3() {
    let compare = |decay: &'static str| {
        let (mut drops, mut delays) = (0.0, 0.0);
        for seed in 1..=8 {
            let given = [("max_burst", Value::Number(0.0)), ("decay", Value::Name(decay))];
            let mut bench = Bench::new("pie", &given, 1000, seed);
            bench.run(Arrivals::new(seed, 1000, 8).take(60_000));
            let (dropped, sent) = (bench.drops().count() as f64, bench.events.len() as f64);
            let (_, theirs, delay) = rows("pie", seed).next().unwrap();
            drops += dropped / theirs as f64 / 8.0;
            delays += bench.delays as f64 / (sent - dropped) / f64::from(delay) / 8.0;
        }
        [drops, delays]
    };
    let [drops, delays] = compare("empty");
    assert!((drops - 1.0).abs() < 0.02 && (delays - 1.0).abs() < 0.03, "{drops}, {delays}");
    let [drops, delays] = compare("low");
    assert!(drops < 0.98 && delays > 1.05, "{drops}, {delays}");
}
