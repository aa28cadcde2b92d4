//! The load of a benchmark: packets pass through one algorithm in its steady state.

use bentpipe_queue::registry::{AQMS, SCHEDULERS};
use bentpipe_queue::{
    Aqm, DropHandler, DropReason, Ecn, FlowEvent, FlowId, Limit, Link, Marking, Packet, Queue, QueueConfig,
    Scheduler, Tcp, Values,
};
use bentpipe_units::{Duration, Instant, Rate, Rng};

const CAPACITY: Rate = Rate::from_bps(1_000_000_000);
const LEN: u32 = 1400;
/// Factor by which the shortest queue is shorter.
const SHORTEST: u32 = 1024;

/// Constructor of scheduler and AQM.
pub type Make = dyn Fn() -> (Box<dyn Scheduler>, Box<dyn Aqm>);

/// Name and constructor of every AQM and scheduler of the registry.
pub fn all() -> Vec<(&'static str, Box<Make>)> {
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
    let mut all: Vec<(_, Box<Make>)> = Vec::new();
    for a in AQMS {
        all.push((a.name, Box::new(|| (scheduler("fifo"), aqm(a.name)))));
    }
    for s in SCHEDULERS {
        all.push((s.name, Box::new(|| (scheduler(s.name), aqm("droptail")))));
    }
    all
}

/// Packets half way between RED's default thresholds.
pub fn standing() -> u32 {
    (1.5 * link().packets_in(0.033)) as u32
}

fn link() -> Link {
    Link { capacity: CAPACITY, mean_packet: f64::from(LEN) }
}
struct Ignore;

impl DropHandler for Ignore {
    fn dropped(&mut self, pkt: Packet, _: DropReason) {
        std::hint::black_box(pkt);
    }
}

/// A queue in its steady state, and the traffic that passes through it.
pub struct Load {
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
    fn new(make: &Make, flows: u32, standing: u32, packets: usize) -> Self {
        let (scheduler, aqm) = make();
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
        let flows = (0..packets).map(|_| id(rng.below(u64::from(flows)) as u32)).collect();
        let between = CAPACITY.time_to_send(u64::from(LEN));
        let mut load =
            Self { flows, queue, now: Instant::ZERO, between, standing, next: 0, wakes: false, passed: 0.0 };
        // Twice the link's rate until the queue has its length, and on until every flow has sent.
        while load.queue.state().packets < standing && load.next < 4 * packets {
            load.offer();
            if load.next.is_multiple_of(2) {
                load.now += load.between;
                load.queue.dequeue(load.now, &mut Ignore);
            }
            load.wake();
        }
        load.run(packets);
        let before = load.queue.counters().sent;
        load.run(packets);
        load.passed = (load.queue.counters().sent - before) as f64 / packets as f64;
        load
    }

    /// A load of `flows` flows with `standing` packets waiting, or fewer if most packets would be dropped. `packets` packets,
    /// a power of two, warm it up.
    pub fn passing(make: &Make, flows: u32, standing: u32, packets: usize) -> Self {
        let mut part = 1;
        loop {
            let load = Self::new(make, flows, standing / part, packets);
            if load.passed >= 0.75 || part >= SHORTEST {
                return load;
            }
            part *= 4;
        }
    }

    /// Number of packets that wait.
    pub fn standing(&self) -> u32 {
        self.standing
    }

    /// Share of the packets that got through in the steady state.
    pub fn passed(&self) -> f64 {
        self.passed
    }

    fn offer(&mut self) {
        let handle = self.next as u32;
        self.next += 1;
        let tcp = Tcp { window: LEN * (2 + handle % 512), seq: handle.wrapping_mul(LEN), syn: false };
        let flow = self.flows[handle as usize & (self.flows.len() - 1)];
        let mut pkt = Packet { ecn: Ecn::Ect, tcp: Some(tcp), ..Packet::new(LEN, FlowId(flow), handle) };
        if self.queue.offer(&mut pkt, self.now, &mut Ignore) {
            self.queue.enqueue(pkt, self.now, &mut Ignore);
        }
    }

    /// Offers, enqueues and dequeues one packet.
    #[inline]
    pub fn step(&mut self) {
        self.now += self.between;
        self.offer();
        if self.queue.state().packets > self.standing {
            std::hint::black_box(self.queue.dequeue(self.now, &mut Ignore));
        }
    }

    /// Processes `packets` packets.
    pub fn run(&mut self, packets: usize) {
        for _ in 0..packets {
            self.step();
            // Like a host, reads the wake time: at each packet for algorithms with wake times, otherwise rarely.
            if self.wakes || self.next.is_multiple_of(64) {
                self.wake();
            }
        }
    }

    /// Wakes the algorithm if its time has come.
    pub fn wake(&mut self) {
        self.wakes = self.queue.wake_at().is_some();
        while self.queue.wake_at().is_some_and(|at| at <= self.now) {
            if let Some(pkt) = self.queue.wake(self.now, &mut Ignore) {
                self.queue.enqueue(pkt, self.now, &mut Ignore);
            }
        }
    }
}
