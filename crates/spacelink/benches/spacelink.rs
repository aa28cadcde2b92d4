//! Cost of the spacelink: `cargo bench -p bentpipe-spacelink`, or `make bench`.
//!
//! Both ends run in one thread, connected by a list of datagrams: with encryption, packets and credits, without the kernel.
//! The fastest of several runs counts, since other load on the machine only slows a run down.

#![allow(clippy::print_stdout)]

#[path = "spacelink/transfer.rs"]
mod transfer;

use std::time::Duration;

use transfer::{CASES, CHUNK, Case, Cost, Transfer};

/// Bytes to transfer.
const BYTES: u64 = 200_000_000;
const RUNS: u32 = 3;

fn main() {
    let only: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    println!("Goodput per CPU second [Mbit/s], and bytes on the wire for a chunk of {CHUNK}");
    println!("{:30} {:>8} {:>8} {:>8} {:>10} {:>8}", "", "sender", "receiver", "both", "there", "back");
    for case in CASES {
        if !only.is_empty() && !only.iter().any(|part| case.name.contains(part.as_str())) {
            continue;
        }
        let runs: Vec<Cost> = (0..RUNS).map(|_| run(case)).collect();
        let best = runs.iter().min_by_key(|cost| cost.sender + cost.receiver).expect("a run");
        let mbps = |time: Duration| BYTES as f64 * 8e-6 / time.as_secs_f64();
        let chunks = BYTES as f64 / CHUNK as f64;
        println!(
            "{:30} {:>8.0} {:>8.0} {:>8.0} {:>10.1} {:>8.1}",
            case.name,
            mbps(best.sender),
            mbps(best.receiver),
            mbps(best.sender + best.receiver),
            best.wire[0] as f64 / chunks,
            best.wire[1] as f64 / chunks,
        );
    }
}

/// Transfers [`BYTES`].
fn run(case: &Case) -> Cost {
    let mut transfer = Transfer::new(case, BYTES);
    while transfer.read() < BYTES {
        transfer.round();
    }
    transfer.cost()
}
