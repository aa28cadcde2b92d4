//! No algorithm of the registry allocates per packet: once its tables have grown to the traffic's needs, none grows
//! further, even as flows begin and end. Memory per flow is as documented.

#![allow(unsafe_code, reason = "an allocator that counts is one")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use bentpipe_queue::descriptor::{Algorithm, SchedulerAlgorithm};
use bentpipe_queue::registry::{AQMS, SCHEDULERS};
use bentpipe_queue::tree::{Next, Share, ShareTree};
use bentpipe_queue::{
    Context, DropHandler, DropReason, Ecn, FlowEvent, FlowId, Limit, Link, Marking, Packet, Queue,
    QueueConfig, QueueState, Tcp, Values,
};
use bentpipe_units::{Duration, Instant, Rate, Rng};

/// The system's allocator with counts of allocations and of bytes held, per thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static HELD: Cell<i64> = const { Cell::new(0) };
}

fn hold(bytes: usize, sign: i64) {
    HELD.with(|held| held.set(held.get() + sign * bytes.cast_signed() as i64));
}

// SAFETY: every call is forwarded unchanged to the system's allocator; the counters do not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        hold(layout.size(), 1);
        // SAFETY: as the caller warrants.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        hold(layout.size(), -1);
        // SAFETY: as the caller warrants.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        hold(layout.size(), -1);
        hold(size, 1);
        // SAFETY: as the caller warrants.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CAPACITY: Rate = Rate::from_bps(20_000_000);
const PACKETS: u32 = 100_000;
/// Flows at a time.
const FLOWS: u32 = 1000;

struct Ignore;

impl DropHandler for Ignore {
    fn dropped(&mut self, _: Packet, _: DropReason) {}
}

struct Traffic {
    queue: Queue,
    rng: Rng,
    now: Instant,
    link_free: Instant,
    sent: u32,
}

impl Traffic {
    fn new(algorithm: &Algorithm, discipline: &SchedulerAlgorithm, marking: Marking) -> Self {
        let link = Link { capacity: CAPACITY, mean_packet: 1400.0 };
        let aqm = (algorithm.build)(&Values::resolve(algorithm.params, &link, &|_| None).unwrap()).unwrap();
        let scheduler =
            (discipline.build)(&Values::resolve(discipline.params, &link, &|_| None).unwrap()).unwrap();
        let setup = QueueConfig {
            marking,
            limit: Limit { packets: 400, bytes: u64::MAX },
            capacity: CAPACITY,
            seed: 1,
            name: "allocations".to_owned(),
        };
        let queue = Queue::new(scheduler, aqm, &setup);
        let mut traffic = Self {
            queue,
            rng: Rng::stream(1, "allocations", 0, "test"),
            now: Instant::ZERO,
            link_free: Instant::ZERO,
            sent: 0,
        };
        for flow in 0..FLOWS {
            traffic.queue.flow(FlowId(id(flow)), FlowEvent::Opened, Instant::ZERO);
        }
        traffic
    }

    /// Packets at `load` times the link's capacity; after every 50th a flow closes and another opens.
    fn run(&mut self, packets: u32, load: f64) {
        let transmission = CAPACITY.time_to_send(1400);
        for _ in 0..packets {
            self.now += transmission.scaled(self.rng.exponential(1.0 / load));
            while self.link_free <= self.now {
                match self.queue.dequeue(self.link_free, &mut Ignore) {
                    Some(_) => self.link_free += transmission,
                    None => self.link_free = self.now + Duration::from_nanos(1),
                }
            }
            while self.queue.wake_at().is_some_and(|at| at <= self.now) {
                if let Some(pkt) = self.queue.wake(self.now, &mut Ignore) {
                    self.queue.enqueue(pkt, self.now, &mut Ignore);
                }
            }
            let oldest = self.sent / 50;
            if self.sent.is_multiple_of(50) {
                self.queue.flow(FlowId(id(oldest)), FlowEvent::Closed, self.now);
                self.queue.flow(FlowId(id(oldest + FLOWS)), FlowEvent::Opened, self.now);
            }
            let flow = oldest + 1 + self.rng.below(u64::from(FLOWS)) as u32;
            let window = 1400 * (2 + self.rng.below(500) as u32);
            let tcp = Some(Tcp { window, seq: self.sent.wrapping_mul(1400), syn: self.rng.below(100) == 0 });
            let mut pkt =
                Packet { ecn: Ecn::Ect, tcp, split: true, ..Packet::new(1400, FlowId(id(flow)), self.sent) };
            if self.queue.offer(&mut pkt, self.now, &mut Ignore) {
                self.queue.enqueue(pkt, self.now, &mut Ignore);
            }
            self.sent += 1;
        }
    }
}

/// Flow numbers all over `u32`.
fn id(flow: u32) -> u32 {
    flow.wrapping_mul(2_654_435_761)
}

/// Allocations for 100,000 packets after 200,000 others, some of them in an overload that fills every table.
fn allocations(algorithm: &Algorithm, discipline: &SchedulerAlgorithm, marking: Marking) -> u64 {
    let mut traffic = Traffic::new(algorithm, discipline, marking);
    traffic.run(PACKETS / 2, 20.0);
    traffic.run(PACKETS / 2, 1.2);
    traffic.run(PACKETS, 1.5);
    let before = ALLOCATIONS.get();
    traffic.run(PACKETS, 1.2);
    ALLOCATIONS.get() - before
}

#[test]
fn packets_allocate_nothing() {
    assert!(
        Vec::<u8>::with_capacity(1).capacity() > 0 && ALLOCATIONS.get() > 0,
        "the allocator does not count"
    );
    let (fifo, droptail) = (&SCHEDULERS[0], &AQMS[0]);
    assert_eq!((fifo.name, droptail.name), ("fifo", "droptail"));
    let mut found = Vec::new();
    for marking in [Marking::Drop, Marking::Ecn] {
        let pairs = AQMS
            .iter()
            .map(|aqm| (aqm, fifo))
            .chain(SCHEDULERS.iter().map(|scheduler| (droptail, scheduler)));
        for (aqm, scheduler) in pairs {
            let count = allocations(aqm, scheduler, marking);
            if count > 0 {
                found.push(format!("{} on {}, {marking:?}: {count}", aqm.name, scheduler.name));
            }
        }
    }
    assert!(found.is_empty(), "allocations for {PACKETS} packets: {found:#?}");
}

/// Heap bytes of an AQM that knows `flows` open flows.
fn held(name: &str, flows: u32) -> i64 {
    let algorithm = AQMS.iter().find(|aqm| aqm.name == name).unwrap();
    let link = Link { capacity: CAPACITY, mean_packet: 1400.0 };
    let values = Values::resolve(algorithm.params, &link, &|_| None).unwrap();
    let limit = Limit { packets: 400, bytes: u64::MAX };
    let queue = QueueState {
        packets: 0,
        bytes: 0,
        held: 0,
        limit,
        capacity: CAPACITY,
        sent_bytes: 0,
        idle_since: Some(Instant::ZERO),
    };
    let mut rng = Rng::stream(1, "memory", 0, "test");
    let before = HELD.get();
    let mut aqm = (algorithm.build)(&values).unwrap();
    for flow in 0..flows {
        let mut cx = Context::new(Instant::ZERO, &queue, &mut rng);
        aqm.flow(FlowId(id(flow)), FlowEvent::Opened, &mut cx);
        aqm.arrive(&Packet::new(1400, FlowId(id(flow)), flow), &mut cx);
    }
    let held = HELD.get() - before;
    drop(aqm);
    held
}

/// By hand: at most half of the table is used, so the 500 pages and 3 UDP flows of [B07] 5.3 need 1024 entries of 32
/// bytes instead of 16, 65 bytes per flow; 512 flows are the most for that table.
#[test]
fn pfavqred_needs_32_kib_for_the_503_flows_of_the_dissertation() {
    let empty = held("pfavqred", 0);
    assert!(empty > 0);
    for (flows, entries) in [(8, 16), (503, 1024), (512, 1024), (513, 2048)] {
        assert_eq!(held("pfavqred", flows) - empty, 32 * (entries - 16), "{flows} flows");
    }
    assert_eq!(held("avqred", 503), held("avqred", 0));
}

/// 10,000 leaves below 100 plans, with committed and peak rates, that come and go: none of it allocates once all exist.
/// Memory per leaf is as in docs/scheduler-tree.md.
#[test]
fn a_tree_of_shares_allocates_nothing_per_packet() {
    let rate = |bps| Rate::from_bps(bps);
    let share = Share { cir: rate(1000), pir: Some(rate(40_000)), weight: 1, burst: 3000 };
    let before = HELD.get();
    let mut tree = ShareTree::new();
    let mut leaves = Vec::with_capacity(10_000);
    for _ in 0..100 {
        let plan = tree.add(tree.root(), Share::default());
        leaves.extend((0..100).map(|_| tree.add(plan, share)));
    }
    let held = (HELD.get() - before) / 10_000 - size_of_val(&leaves[0]) as i64;
    assert!((300..=400).contains(&held), "{held} bytes per leaf");
    let mut rng = Rng::stream(1, "tree", 0, "test");
    let (mut now, mut waits) = (Instant::ZERO, 0);
    let before = ALLOCATIONS.get();
    for _ in 0..PACKETS {
        let leaf = leaves[rng.below(10_000) as usize];
        if rng.below(3) == 0 {
            tree.deactivate(leaf, now)
        } else {
            tree.activate(leaf, now)
        }
        match tree.next(now) {
            Next::Leaf(leaf) => tree.charge(leaf, 1500, 1500, now),
            Next::Wait(_) | Next::Idle => waits += 1,
        }
        now += CAPACITY.time_to_send(1500);
    }
    assert_eq!(ALLOCATIONS.get(), before);
    assert!(waits < PACKETS / 2, "{waits} packets fewer");
}
