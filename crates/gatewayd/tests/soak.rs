//! An hour of short connections through both ends.
#![allow(clippy::print_stdout, reason = "measurements are shown")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::ends::satellite::now;
use crate::ends::{LONG, SERVER, World, bytes, serve};

/// Connections in the time, which is an hour unless `SOAK_MINUTES` says otherwise.
const CONNECTIONS: u64 = 1_000_000;
const CLIENTS: u64 = 16;
/// Ports of the server, so that ports of closed connections need not be used again soon.
const PORTS: u16 = 8;
const ANSWER: usize = 2000;
const METRICS: &str = "[metrics]\nlisten = \"127.0.0.1:9180\"\ninterval = \"1 s\"\nkeep = \"60 s\"\n";

/// State of an end.
#[derive(Debug)]
struct Sample {
    memory: u64,
    descriptors: usize,
    series: usize,
}

fn sample(world: &World, place: usize) -> Sample {
    let body = world.ends[place].get("/metrics");
    let series = body.lines().filter(|line| !line.starts_with('#')).count();
    let end = if place == 0 { &world.gateway } else { &world.terminal };
    Sample { memory: end.memory(), descriptors: end.descriptors(), series }
}

/// Answers a byte, until the client closes.
fn answer(mut stream: TcpStream) {
    let mut asked = [0];
    while let Ok(1) = stream.read(&mut asked) {
        if stream.write_all(&bytes(1, ANSWER)).is_err() {
            break;
        }
    }
}

/// A million connections in an hour, each with a short answer. Memory, descriptors and series of both ends in the last quarter
/// are those of the second.
#[test]
#[ignore = "takes an hour: make soak-live"]
fn a_million_connections_leave_memory_descriptors_and_series_as_they_were() {
    let minutes = std::env::var("SOAK_MINUTES").map_or(60, |text| text.parse().expect("minutes"));
    let Some(mut world) = World::new("soak", "100 Mbps", METRICS) else { return };
    for port in 0..PORTS {
        serve(&world.servers, 80 + port, answer);
    }
    let (done, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let begin = now();
    let pace = Duration::from_secs(60 * minutes) / u32::try_from(CONNECTIONS / CLIENTS).expect("fewer");
    let clients: Vec<_> = (0..CLIENTS)
        .map(|n| {
            let (done, stop) = (Arc::clone(&done), Arc::clone(&stop));
            world.clients.spawn(move || {
                let mut found = [0; ANSWER];
                let mut next = now();
                for count in 0.. {
                    next += pace;
                    thread::sleep(next.saturating_duration_since(now()));
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let port = 80 + u16::try_from((n + count) % u64::from(PORTS)).expect("a port");
                    let server = SERVER[usize::from(count % 2 == 0)];
                    let address = SocketAddr::new(server.parse().expect("an address"), port);
                    let mut stream = TcpStream::connect_timeout(&address, LONG).expect("a connection");
                    stream.set_read_timeout(Some(LONG)).expect("a time-out");
                    stream.write_all(b"?").and_then(|()| stream.read_exact(&mut found)).expect("an answer");
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    println!("minute connections | gateway: memory [kB], descriptors, series | terminal");
    let mut samples: [Vec<Sample>; 2] = [Vec::new(), Vec::new()];
    for minute in 1..=minutes {
        thread::sleep((begin + Duration::from_secs(60 * minute)).saturating_duration_since(now()));
        let [one, other] = [0, 1].map(|place| sample(&world, place));
        let shown = |s: &Sample| format!("{:6} {:4} {:4}", s.memory / 1000, s.descriptors, s.series);
        println!("{minute:3} {:8} | {} | {}", done.load(Ordering::Relaxed), shown(&one), shown(&other));
        samples[0].push(one);
        samples[1].push(other);
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().expect("every connection has its answer");
    }
    let count = done.load(Ordering::Relaxed);
    assert!(count >= CONNECTIONS * 9 / 10, "{count} connections");
    for of in &samples {
        let quarter = of.len() / 4;
        let most = |part: &[Sample], of: fn(&Sample) -> u64| part.iter().map(of).max().expect("a sample");
        let (before, last) = (&of[quarter..2 * quarter], &of[of.len() - quarter..]);
        assert!(most(last, |s| s.memory) <= most(before, |s| s.memory) + (1 << 20), "memory grows: {of:?}");
        assert!(
            most(last, |s| s.descriptors as u64) <= most(before, |s| s.descriptors as u64) + 64,
            "{of:?}"
        );
        assert_eq!(most(last, |s| s.series as u64), most(before, |s| s.series as u64), "series");
    }
    let counted = world.gateway.finish();
    assert_eq!(counted["counters"]["opened"].as_u64(), Some(count), "{counted}");
}
