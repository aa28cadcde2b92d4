//! Cost of many idle terminals behind one hub: `cargo bench -p bentpipe-spacelink --bench hub -- 1000`.
//!
//! The hub and all terminals run in one process and on a virtual clock, 300 ms apart, without the kernel. Memory is that of
//! both ends of each connection, so it is an upper bound for the hub; CPU time is that of the hub's calls alone.

#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bentpipe_spacelink::{Event, Hub, Identity, Setup, Spacelink};
use cpu_time::ThreadTime;

const DELAY: Duration = Duration::from_millis(300);
const GATEWAY: &str = "192.0.2.1:4400";
/// Maximum number of streams of a terminal, for which QUIC reserves memory: `terminals.connections` of the live gateway.
const STREAMS: u32 = 1000;
/// Idle time that is measured.
const IDLE: Duration = Duration::from_secs(10);

/// Resident memory [bytes].
fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

struct Beam {
    now: Instant,
    hub: Hub,
    up: usize,
    terminals: Vec<(SocketAddr, Spacelink)>,
    by_address: BTreeMap<SocketAddr, usize>,
    /// Datagrams by their time of arrival: to the hub, or to a terminal.
    air: BTreeMap<(Instant, u64), (bool, usize, Vec<u8>)>,
    number: u64,
    /// CPU time of the hub.
    cpu: Duration,
}

impl Beam {
    /// Does something with the hub and counts its CPU time.
    fn hub<T>(&mut self, act: impl FnOnce(&mut Hub) -> T) -> T {
        let begin = ThreadTime::now();
        let result = act(&mut self.hub);
        self.cpu += begin.elapsed();
        result
    }

    fn carry(&mut self, to_hub: bool, terminal: usize, datagram: &[u8]) {
        self.number += 1;
        self.air.insert((self.now + DELAY, self.number), (to_hub, terminal, datagram.to_vec()));
    }

    /// Handles the events of the hub, and sends.
    fn flush_hub(&mut self) {
        while let Some((_, event)) = self.hub(Hub::poll) {
            self.up += usize::from(event == Event::Up);
        }
        let (now, mut out) = (self.now, Vec::new());
        while let Some(sent) = self.hub(|hub| hub.transmit(now, 1, &mut out)) {
            if let Some(&terminal) = self.by_address.get(&sent.to) {
                self.carry(false, terminal, &out);
            }
        }
    }

    fn flush_terminal(&mut self, number: usize) {
        let (now, mut out) = (self.now, Vec::new());
        while self.terminals[number].1.poll().is_some() {}
        while self.terminals[number].1.transmit(now, 1, &mut out).is_some() {
            self.carry(true, number, &out);
        }
    }

    /// Advances by `time`, a millisecond at a time, as a loop that merges what is due.
    fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.now += Duration::from_millis(1);
            let now = self.now;
            while let Some(entry) = self.air.first_entry().filter(|entry| entry.key().0 <= now) {
                let (to_hub, terminal, datagram) = entry.remove();
                if to_hub {
                    let from = self.terminals[terminal].0;
                    self.hub(|hub| hub.receive(now, from, None, 0, &datagram));
                } else {
                    let from = GATEWAY.parse().expect("an address");
                    self.terminals[terminal].1.receive(now, from, None, 0, &datagram);
                    self.flush_terminal(terminal);
                }
            }
            self.hub(|hub| {
                if hub.timer().is_some_and(|at| at <= now) {
                    hub.on_timer(now);
                }
            });
            self.flush_hub();
            for number in 0..self.terminals.len() {
                if self.terminals[number].1.timer().is_some_and(|at| at <= now) {
                    self.terminals[number].1.on_timer(now);
                    self.flush_terminal(number);
                }
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "an origin for the virtual clock")]
fn main() {
    let count = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(1000);
    let now = Instant::now();
    let identity = Identity::generate("gateway").expect("a key");
    let certificate = identity.certificate();
    let setup = Setup { streams: STREAMS, ..Setup::new(identity, None, None, 2 * DELAY) };
    let hub = Hub::listen(&setup, now).expect("a hub");
    let mut beam = Beam {
        now,
        hub,
        up: 0,
        terminals: Vec::new(),
        by_address: BTreeMap::new(),
        air: BTreeMap::new(),
        number: 0,
        cpu: Duration::ZERO,
    };
    let before = memory();
    for number in 0..count {
        let identity = Identity::generate("terminal").expect("a key");
        beam.hub.add(&identity.certificate());
        let setup = Setup { streams: STREAMS, ..Setup::new(identity, certificate.clone(), None, 2 * DELAY) };
        let link = Spacelink::connect(&setup, GATEWAY.parse().expect("an address"), now).expect("a terminal");
        let address = SocketAddr::from(([10, 2, (number >> 8) as u8, number as u8], 4400));
        beam.by_address.insert(address, number);
        beam.terminals.push((address, link));
        beam.flush_terminal(number);
    }
    let mut joined = Duration::ZERO;
    while beam.up < count && joined < Duration::from_secs(300) {
        beam.run(Duration::from_millis(100));
        joined += Duration::from_millis(100);
    }
    println!("{} of {count} terminals joined in {:.1} s of virtual time", beam.up, joined.as_secs_f64());
    println!(
        "CPU time of the hub for a join: {:.0} us",
        beam.cpu.as_secs_f64() * 1e6 / beam.up.max(1) as f64
    );
    // Until the first pings are over.
    beam.run(Duration::from_secs(10));
    beam.cpu = Duration::ZERO;
    beam.run(IDLE);
    let share = beam.cpu.as_secs_f64() / IDLE.as_secs_f64();
    println!("CPU time of the hub while all are idle: {:.2} % of a core", 100.0 * share);
    let each = memory().saturating_sub(before) / count.max(1) as u64;
    println!("memory for an idle terminal, both ends: {:.0} KB", each as f64 / 1e3);
}
