//! Cost of the spacelink: `cargo bench -p bentpipe-spacelink`, or `make bench`.
//!
//! Both ends run in one thread, connected by a list of datagrams: with encryption, packets and credits, without the kernel.
//! The fastest of several runs counts, since other load on the machine only slows a run down.

#![allow(clippy::print_stdout)]

use std::time::{Duration, Instant};

use bentpipe_spacelink::{Event, Identity, Open, Setup, Spacelink, StreamKey};
use cpu_time::ThreadTime;

/// Bytes to transfer.
const BYTES: u64 = 200_000_000;
const CHUNK: usize = 1360;
const RUNS: u32 = 3;

struct Case {
    name: &'static str,
    streams: usize,
    /// Chunks written before anything is sent, and datagrams sent at once.
    chunks: usize,
    segments: usize,
    /// One of `lose` datagrams is lost; 0 for no losses.
    lose: u64,
}

const CASES: &[Case] = &[
    Case { name: "chunk by chunk", streams: 1, chunks: 1, segments: 1, lose: 0 },
    Case { name: "chunk by chunk, 100 streams", streams: 100, chunks: 1, segments: 1, lose: 0 },
    Case { name: "10 at once", streams: 1, chunks: 10, segments: 10, lose: 0 },
    Case { name: "10 at once, 100 streams", streams: 100, chunks: 10, segments: 10, lose: 0 },
    Case { name: "10 at once, one of 100 lost", streams: 1, chunks: 10, segments: 10, lose: 100 },
];

/// Cost of a run.
struct Cost {
    sender: Duration,
    receiver: Duration,
    /// Bytes on the wire in each direction, IP and UDP headers included.
    wire: [u64; 2],
}

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

/// Transfers [`BYTES`] from the listening end to the connecting one.
fn run(case: &Case) -> Cost {
    let [g, t] = ["gateway", "terminal"].map(|name| Identity::generate(name).expect("random bytes"));
    let (of_g, of_t) = (g.certificate(), t.certificate());
    #[expect(clippy::disallowed_methods, reason = "an origin for times that are then counted on")]
    let mut now = Instant::now();
    let setup = |identity, peer| Setup::new(identity, peer, None, Duration::from_millis(100));
    let addresses = ["192.0.2.1:4433", "192.0.2.2:4433"].map(|a| a.parse().expect("an address"));
    let mut ends = [
        Spacelink::listen(&setup(g, of_t), None, now).expect("matching keys"),
        Spacelink::connect(&setup(t, of_g), addresses[0], now).expect("matching keys"),
    ];
    let header = Open { client: addresses[1], server: addresses[0] };
    let data = vec![0x5a; CHUNK * case.chunks];
    let mut air: [Vec<(usize, Vec<u8>)>; 2] = [Vec::new(), Vec::new()];
    let mut pool: Vec<Vec<u8>> = Vec::new();
    let mut streams: Vec<StreamKey> = Vec::new();
    let mut opened = 0;
    let mut buffer = vec![0; 65_536];
    let (mut written, mut read, mut turn, mut sent) = (0u64, 0u64, 0usize, 0u64);
    let mut cost = Cost { sender: Duration::ZERO, receiver: Duration::ZERO, wire: [0; 2] };
    let mut before = [0; 2];
    while read < BYTES {
        // The time of 11 µs per chunk at a gigabit per second.
        now += Duration::from_micros(11) * case.chunks as u32;
        for at in [0, 1] {
            let started = ThreadTime::now();
            for (segment, datagrams) in air[at].drain(..) {
                for datagram in datagrams.chunks(segment) {
                    sent += 1;
                    if case.lose == 0 || sent % case.lose != 0 {
                        ends[at].receive(now, addresses[1 - at], None, 0, datagram);
                    }
                }
                pool.push(datagrams);
            }
            if ends[at].timer().is_some_and(|due| due <= now) {
                ends[at].on_timer(now);
            }
            while let Some(event) = ends[at].poll() {
                match event {
                    Event::Opened { stream, .. } => streams.push(stream),
                    Event::Readable(stream) => {
                        while let got @ 1.. = ends[at].read(stream, &mut buffer) {
                            read += if at == 1 { got as u64 } else { 0 };
                            ends[at].delivered(stream, got as u64);
                        }
                    }
                    Event::Down(reason) | Event::Failed(reason) => panic!("{reason}"),
                    _ => {}
                }
            }
            if at == 1 && ends[1].is_up() && opened < case.streams {
                let stream = ends[1].open(&header).expect("a free stream");
                ends[1].write(stream, b"x");
                opened += 1;
            }
            if at == 0 && streams.len() == case.streams && written < BYTES {
                for chunk in data.chunks(CHUNK) {
                    written += ends[0].write(streams[turn % case.streams], chunk) as u64;
                    turn += 1;
                }
            }
            loop {
                let mut out = pool.pop().unwrap_or_default();
                let Some(transmit) = ends[at].transmit(now, case.segments, &mut out) else { break };
                air[1 - at].push((transmit.segment.unwrap_or(out.len()), out));
            }
            if streams.len() == case.streams {
                *[&mut cost.sender, &mut cost.receiver][at] += started.elapsed();
            } else {
                before = [0, 1].map(|at| ends[at].stats().sent_bytes);
            }
        }
    }
    cost.wire = [0, 1].map(|at| ends[at].stats().sent_bytes - before[at]);
    cost
}
