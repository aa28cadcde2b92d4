//! Cost of a decision of the scheduler tree: `cargo bench -p bentpipe-queue --bench tree`.
//!
//! Nanoseconds of CPU time for [`ShareTree::next`] and [`ShareTree::charge`] of a packet of 1500 bytes, all leaves
//! backlogged, and the ratio to one leaf at the same depth. Half of the leaves have a committed rate, together half of the
//! carrier; "peak" also limits each leaf to twice its share. The fastest of several runs counts.
//!
//! With the arguments FAN DEPTH PACKETS it only serves that many packets, for tools that count instructions or cache misses.

#![allow(clippy::print_stdout)]

use bentpipe_queue::tree::{Next, Share, ShareTree};
use bentpipe_units::{Instant, Rate};
use cpu_time::ThreadTime;

const CARRIER: u64 = 1_000_000_000;
const LEN: u32 = 1500;
/// Packets per measurement.
const PACKETS: u32 = 1 << 18;
/// Measurements, of which the fastest counts.
const RUNS: usize = 7;

/// A tree with `fan` children of each node at each of `depth` levels.
fn tree(fan: u64, depth: u32, peak: bool) -> ShareTree {
    let mut tree = ShareTree::new();
    let leaves = fan.pow(depth);
    let mut level = vec![tree.root()];
    for below in (0..depth).rev() {
        let mut next = Vec::new();
        for parent in level {
            for i in 0..fan {
                let mut share = Share { burst: 6000, weight: 1 + (i % 4) as u32, ..Share::default() };
                if below == 0 {
                    let cir = if i % 2 == 0 { CARRIER / leaves } else { 0 };
                    share.cir = Rate::from_bps(cir / if leaves == 1 { 2 } else { 1 });
                    share.pir = peak.then(|| Rate::from_bps(2 * CARRIER / leaves));
                }
                next.push(tree.add(parent, share));
            }
        }
        level = next;
    }
    level.iter().for_each(|&leaf| tree.activate(leaf, Instant::ZERO));
    tree
}

/// Serves a tree for the time of `packets` packets. Returns how many were sent.
fn serve(tree: &mut ShareTree, packets: u32, now: &mut Instant) -> u32 {
    let transmission = Rate::from_bps(CARRIER).time_to_send(u64::from(LEN));
    let mut sent = 0;
    for _ in 0..packets {
        if let Next::Leaf(leaf) = tree.next(*now) {
            tree.charge(leaf, LEN, u64::from(LEN), *now);
            sent += 1;
        }
        *now += transmission;
    }
    sent
}

/// CPU time per packet [ns].
fn cost(fan: u64, depth: u32, peak: bool) -> f64 {
    let (mut tree, mut now) = (tree(fan, depth, peak), Instant::ZERO);
    let mut best = f64::INFINITY;
    for _ in 0..=RUNS {
        let started = ThreadTime::now();
        let sent = serve(&mut tree, PACKETS, &mut now);
        best = best.min(started.elapsed().as_secs_f64() * 1e9 / f64::from(sent));
    }
    best
}

fn main() {
    let given: Vec<u32> = std::env::args().filter_map(|arg| arg.parse().ok()).collect();
    if let &[fan, depth, packets] = given.as_slice() {
        let mut now = Instant::ZERO;
        println!("{}", serve(&mut tree(fan.into(), depth, false), packets, &mut now));
        return;
    }
    println!("CPU time of a decision and its charge [ns], and the ratio to one leaf");
    println!("{:8} {:>5} {:>8} {:>14} {:>7}", "leaves", "depth", "one leaf", "10 000 leaves", "ratio");
    for (fan, depth, peak) in [
        (10_000, 1, false),
        (100, 2, false),
        (10, 4, false),
        (10_000, 1, true),
        (100, 2, true),
        (10, 4, true),
    ] {
        let (one, many) = (cost(1, depth, peak), cost(fan, depth, peak));
        let name = if peak { "peak" } else { "" };
        println!("{name:8} {depth:>5} {one:>8.1} {many:>14.1} {:>7.2}", many / one);
    }
}
