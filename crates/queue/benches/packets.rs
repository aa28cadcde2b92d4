//! Cost of each algorithm of the registry: `cargo bench -p bentpipe-queue`, or `make bench`; names after `--` select
//! some.
//!
//! Nanoseconds of CPU time per packet that is offered, enqueued and dequeued ([`Queue::offer`], [`Queue::enqueue`],
//! [`Queue::dequeue`]): AQMs on a fifo, schedulers with droptail. The queue is half way between RED's default
//! thresholds and packets are marked (ECN) instead of dropped, so each passes through the whole algorithm. If less than
//! three quarters of the packets get through even so, the queue is reduced to a quarter, repeatedly (a star): drops are
//! cheap and would pass for speed. Packets arrive as fast as they leave, each of a random flow; flow numbers are spread
//! over all of `u32`. The last two columns have 100,000 packets waiting, and the longest time of a single one of these
//! packets with everything it caused: each is processed several times, in equal runs, and its shortest time counts,
//! because other load on the machine only lengthens it. This shows work in bursts, such as a scan over all flows, which
//! the mean would hide.

#![allow(clippy::print_stdout)]

use bentpipe_queue::registry::{AQMS, SCHEDULERS};
use bentpipe_queue::{
    Aqm, DropHandler, DropReason, Ecn, FlowEvent, FlowId, Limit, Link, Marking, Packet, Queue, QueueConfig,
    Scheduler, Tcp, Values,
};
use bentpipe_units::{Duration, Instant, Rate, Rng};
use cpu_time::ThreadTime;

const CAPACITY: Rate = Rate::from_bps(1_000_000_000);
const LEN: u32 = 1400;
/// Packets per measurement.
const PACKETS: usize = 1 << 18;
/// Measurements, of which the fastest counts.
const RUNS: usize = 5;
/// Packets that are timed singly, and the number of repetitions.
const SINGLE: (usize, usize) = (50_000, 4);
const MANY: u32 = 100_000;
/// Factor by which the shortest queue is shorter.
const SHORTEST: u32 = 1024;

/// Target times [ns]: number of flows, and packets waiting (0: half way between the thresholds).
const LIMITS: &[(&[&str], usize, f64)] = &[
    (&["red", "avq", "avqred", "pi", "codel"], 0, 30.0),
    (&["sred", "pfavqred", "vqred", "fred", "drr", "fq_codel"], 2, 120.0),
    (&["swf", "ssf"], 3, 400.0),
];

struct Ignore;

impl DropHandler for Ignore {
    fn dropped(&mut self, pkt: Packet, _: DropReason) {
        std::hint::black_box(pkt);
    }
}

struct Load {
    /// Flow of each packet.
    flows: Vec<u32>,
    queue: Queue,
    now: Instant,
    between: Duration,
    standing: u32,
    next: usize,
    /// True if the algorithm had a wake time when last asked.
    wakes: bool,
    /// Share of the packets that got through in the steady state.
    passed: f64,
}

impl Load {
    fn new(scheduler: Box<dyn Scheduler>, aqm: Box<dyn Aqm>, flows: u32, standing: u32) -> Self {
        let setup = QueueConfig {
            marking: Marking::Ecn,
            limit: Limit { packets: standing + 1000, bytes: u64::MAX },
            capacity: CAPACITY,
            seed: 1,
            name: "bench".to_owned(),
        };
        let mut queue = Queue::new(scheduler, aqm, &setup);
        // An odd factor makes a permutation of the numbers below 2^32.
        let id = |flow: u32| flow.wrapping_mul(2_654_435_761);
        for flow in 0..flows {
            queue.flow(FlowId(id(flow)), FlowEvent::Opened, Instant::ZERO);
        }
        let mut rng = Rng::stream(1, "bench", 0, "traffic");
        let flows = (0..PACKETS).map(|_| id(rng.below(u64::from(flows)) as u32)).collect();
        let between = CAPACITY.time_to_send(u64::from(LEN));
        let mut load =
            Self { flows, queue, now: Instant::ZERO, between, standing, next: 0, wakes: false, passed: 0.0 };
        // Twice the link's rate until the queue has its length, and on until every flow has sent.
        while load.queue.state().packets < standing && load.next < 4 * PACKETS {
            load.offer();
            if load.next.is_multiple_of(2) {
                load.now += load.between;
                load.queue.dequeue(load.now, &mut Ignore);
            }
            load.wake();
        }
        load.run(PACKETS);
        let before = load.queue.counters().sent;
        load.run(PACKETS);
        load.passed = (load.queue.counters().sent - before) as f64 / PACKETS as f64;
        load
    }

    fn offer(&mut self) {
        let handle = self.next as u32;
        self.next += 1;
        let tcp = Tcp { window: LEN * (2 + handle % 512), seq: handle.wrapping_mul(LEN), syn: false };
        let flow = self.flows[handle as usize % PACKETS];
        let mut pkt = Packet { ecn: Ecn::Ect, tcp: Some(tcp), ..Packet::new(LEN, FlowId(flow), handle) };
        if self.queue.offer(&mut pkt, self.now, &mut Ignore) {
            self.queue.enqueue(pkt, self.now, &mut Ignore);
        }
    }

    #[inline]
    fn step(&mut self) {
        self.now += self.between;
        self.offer();
        if self.queue.state().packets > self.standing {
            std::hint::black_box(self.queue.dequeue(self.now, &mut Ignore));
        }
    }

    fn run(&mut self, packets: usize) {
        for _ in 0..packets {
            self.step();
            // Like a host, reads the wake time: at each packet for algorithms with wake times, otherwise rarely.
            if self.wakes || self.next.is_multiple_of(64) {
                self.wake();
            }
        }
    }

    fn wake(&mut self) {
        self.wakes = self.queue.wake_at().is_some();
        while self.queue.wake_at().is_some_and(|at| at <= self.now) {
            if let Some(pkt) = self.queue.wake(self.now, &mut Ignore) {
                self.queue.enqueue(pkt, self.now, &mut Ignore);
            }
        }
    }

    /// CPU time per packet [ns].
    fn cost(&mut self) -> f64 {
        let mut best = f64::INFINITY;
        for _ in 0..RUNS {
            let started = ThreadTime::now();
            self.run(PACKETS);
            best = best.min(started.elapsed().as_secs_f64() * 1e9 / PACKETS as f64);
        }
        best
    }

    /// Time of each single packet [ns].
    #[allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    fn single(&mut self) -> Vec<u64> {
        (0..SINGLE.0)
            .map(|_| {
                let started = std::time::Instant::now();
                self.step();
                self.wake();
                started.elapsed().as_nanos() as u64
            })
            .collect()
    }
}

/// Name and constructor: scheduler and AQM.
type Made = (&'static str, Box<dyn Fn() -> (Box<dyn Scheduler>, Box<dyn Aqm>)>);

fn all() -> Vec<Made> {
    fn scheduler(name: &str) -> Box<dyn Scheduler> {
        let found = SCHEDULERS.iter().find(|s| s.name == name).expect("a scheduler of that name");
        let values = Values::resolve(found.params, &link(), &|_| None).expect("allowed defaults");
        (found.build)(&values).expect("consistent defaults")
    }
    fn aqm(name: &str) -> Box<dyn Aqm> {
        let found = AQMS.iter().find(|a| a.name == name).expect("an AQM of that name");
        let values = Values::resolve(found.params, &link(), &|_| None).expect("allowed defaults");
        (found.build)(&values).expect("consistent defaults")
    }
    let mut all: Vec<Made> = Vec::new();
    for a in AQMS {
        all.push((a.name, Box::new(|| (scheduler("fifo"), aqm(a.name)))));
    }
    for s in SCHEDULERS {
        all.push((s.name, Box::new(|| (scheduler(s.name), aqm("droptail")))));
    }
    all
}

fn link() -> Link {
    Link { capacity: CAPACITY, mean_packet: f64::from(LEN) }
}

fn main() {
    let only: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let standing = (1.5 * link().packets_in(0.033)) as u32;
    println!("CPU time of a packet, enqueue and dequeue together [ns]; {standing} packets wait, or 100 000");
    println!("(*: shorter queue, because in this one most packets would be dropped; !: in any)");
    println!(
        "{:10} {:>8} {:>12} {:>14} {:>16} {:>18}  to reach",
        "", "1 flow", "1000 flows", "100 000 flows", "100 000 waiting", "longest single"
    );
    for (name, make) in all() {
        if !only.is_empty() && !only.iter().any(|part| name == part) {
            continue;
        }
        let load = |flows, standing: u32| {
            let mut part = 1;
            loop {
                let (scheduler, aqm) = make();
                let load = Load::new(scheduler, aqm, flows, standing / part);
                if load.passed >= 0.75 || part >= SHORTEST {
                    return load;
                }
                part *= 4;
            }
        };
        let measured =
            [(1, standing), (1000, standing), (MANY, standing), (MANY, MANY)].map(|(flows, standing)| {
                let mut load = load(flows, standing);
                let note = match load.passed {
                    ..0.75 => "!",
                    _ if load.standing < standing => "*",
                    _ => "",
                };
                (load.cost(), note)
            });
        let cost = measured.map(|(cost, _)| cost);
        let shown = measured.map(|(cost, note)| format!("{cost:.1}{note}"));
        let mut least = vec![u64::MAX; SINGLE.0];
        for _ in 0..SINGLE.1 {
            for (least, time) in least.iter_mut().zip(load(MANY, MANY).single()) {
                *least = time.min(*least);
            }
        }
        let longest = least.iter().max().copied().unwrap_or(0);
        let limit = LIMITS.iter().find(|(names, ..)| names.contains(&name));
        let verdict = limit.map_or(String::new(), |&(_, column, most)| {
            // For algorithms without per-flow state the greatest of the first three columns counts.
            let found =
                if column == 0 { cost[..3].iter().copied().fold(0.0, f64::max) } else { cost[column] };
            let word = if found <= most { "reached" } else { "missed" };
            format!(
                "{most:.0} at {}: {word}",
                ["any number of flows", "", "100 000 flows", "100 000 waiting"][column]
            )
        });
        println!(
            "{name:10} {:>8} {:>12} {:>14} {:>16} {longest:>18}  {verdict}",
            shown[0], shown[1], shown[2], shown[3]
        );
    }
}
