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
//! the mean would hide. Bytes per flow are what 100,000 flows hold more than one, with as many packets waiting.

#![allow(clippy::print_stdout)]
#![allow(unsafe_code, reason = "an allocator that counts is one")]

#[path = "packets/load.rs"]
mod load;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering};

use cpu_time::ThreadTime;

use load::Load;

/// The system's allocator with a count of the bytes held.
struct Counting;

static HELD: AtomicI64 = AtomicI64::new(0);

// SAFETY: every call is forwarded unchanged to the system's allocator; the counter does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size().cast_signed() as i64, Ordering::Relaxed);
        // SAFETY: as the caller warrants.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size().cast_signed() as i64, Ordering::Relaxed);
        // SAFETY: as the caller warrants.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Packets per measurement; a power of two.
const PACKETS: usize = 1 << 18;
/// Measurements, of which the fastest counts.
const RUNS: usize = 5;
/// Packets that are timed singly, and the number of repetitions.
const SINGLE: (usize, usize) = (50_000, 4);
const MANY: u32 = 100_000;

/// Target times [ns]: number of flows, and packets waiting (0: half way between the thresholds).
const LIMITS: &[(&[&str], usize, f64)] = &[
    (&["red", "avq", "avqred", "pi", "codel"], 0, 30.0),
    (&["sred", "pfavqred", "vqred", "fred", "drr", "fq_codel"], 2, 120.0),
    (&["swf", "ssf"], 3, 400.0),
];

/// CPU time per packet [ns].
fn cost(load: &mut Load) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..RUNS {
        let started = ThreadTime::now();
        load.run(PACKETS);
        best = best.min(started.elapsed().as_secs_f64() * 1e9 / PACKETS as f64);
    }
    best
}

/// Time of each single packet [ns].
#[allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn single(mut load: Load) -> Vec<u64> {
    (0..SINGLE.0)
        .map(|_| {
            let started = std::time::Instant::now();
            load.step();
            load.wake();
            started.elapsed().as_nanos() as u64
        })
        .collect()
}

fn main() {
    let only: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let standing = load::standing();
    println!("CPU time of a packet, enqueue and dequeue together [ns]; {standing} packets wait, or 100 000");
    println!("(*: shorter queue, because in this one most packets would be dropped; !: in any)");
    println!(
        "{:10} {:>8} {:>12} {:>14} {:>16} {:>18} {:>10}  to reach",
        "", "1 flow", "1000 flows", "100 000 flows", "100 000 waiting", "longest single", "B per flow"
    );
    for (name, make) in load::all() {
        if !only.is_empty() && !only.iter().any(|part| name == part) {
            continue;
        }
        let load = |flows, standing| Load::passing(&*make, flows, standing, PACKETS);
        let measured =
            [(1, standing), (1000, standing), (MANY, standing), (MANY, MANY)].map(|(flows, standing)| {
                let mut load = load(flows, standing);
                let note = match load.passed() {
                    ..0.75 => "!",
                    _ if load.standing() < standing => "*",
                    _ => "",
                };
                (cost(&mut load), note)
            });
        let cost = measured.map(|(cost, _)| cost);
        let shown = measured.map(|(cost, note)| format!("{cost:.1}{note}"));
        let mut least = vec![u64::MAX; SINGLE.0];
        for _ in 0..SINGLE.1 {
            for (least, time) in least.iter_mut().zip(single(load(MANY, MANY))) {
                *least = time.min(*least);
            }
        }
        let longest = least.iter().max().copied().unwrap_or(0);
        let held = [1, MANY].map(|flows| {
            let before = HELD.load(Ordering::Relaxed);
            let load = load(flows, standing);
            let held = HELD.load(Ordering::Relaxed) - before;
            drop(load);
            held
        });
        let per_flow = (held[1] - held[0]).max(0) as f64 / f64::from(MANY);
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
            "{name:10} {:>8} {:>12} {:>14} {:>16} {longest:>18} {per_flow:>10.1}  {verdict}",
            shown[0], shown[1], shown[2], shown[3]
        );
    }
}
