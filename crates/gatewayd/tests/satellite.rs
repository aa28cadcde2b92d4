//! Both ends of the gateway over a satellite's round trip: its effect on the servers' rates.
#![allow(clippy::print_stdout, reason = "measurements are shown, and so is why a test cannot run")]

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::ends::satellite::now;
use crate::ends::watch::{IN_TIME, Watch};
use crate::ends::{LONG, METRICS, SERVER, World};
use nix::sys::socket::{setsockopt, sockopt};

/// One-way delay.
const DELAY: Duration = Duration::from_millis(300);
/// Payload of a segment [bytes].
const SEGMENT: f64 = 1448.0;

/// A value of the gateway's metrics.
fn metric(world: &World, name: &'static str) -> f64 {
    let text = world.ends[0].get("/metrics");
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(name));
    let value = line.and_then(|line| line.split_whitespace().nth(1)).and_then(|value| value.parse().ok());
    value.unwrap_or_else(|| panic!("{name} is not in {text}"))
}

/// Bytes received by a client, with times.
#[derive(Clone, Default)]
struct Download {
    come: Arc<Mutex<Vec<(Instant, u64)>>>,
    stop: Arc<AtomicBool>,
}

impl Download {
    /// Starts a server on port 80 that sends without limit, and a client that reads.
    fn start(world: &World) -> Self {
        let at: SocketAddr = format!("{}:80", SERVER[0]).parse().expect("an address");
        let (started, listening) = channel();
        world.servers.spawn(move || {
            let listener = TcpListener::bind(at).expect("a listener");
            // BBR, if it is the default, would discover a larger window only slowly.
            setsockopt(&listener, sockopt::TcpCongestion, &"reno".into())
                .expect("Reno, present in every kernel");
            started.send(()).expect("a receiver");
            let (mut stream, _) = listener.accept().expect("a connection");
            let data = vec![5; 1 << 16];
            while stream.write_all(&data).is_ok() {}
        });
        listening.recv().expect("a listener");
        let download = Self::default();
        let ours = download.clone();
        world.clients.spawn(move || {
            let mut stream = TcpStream::connect_timeout(&at, LONG).expect("a connection");
            stream.set_read_timeout(Some(Duration::from_millis(100))).expect("a time-out");
            let (mut buffer, mut total) = (vec![0; 1 << 16], 0);
            while !ours.stop.load(Ordering::Relaxed) {
                if let Ok(count) = stream.read(&mut buffer) {
                    total += count as u64;
                    ours.come.lock().expect("no panic").push((now(), total));
                    if count == 0 {
                        return;
                    }
                }
            }
        });
        download
    }

    /// Arrival time of the first byte.
    fn first(&self) -> Instant {
        for _ in 0..2000 {
            if let Some((at, _)) = self.come.lock().expect("no panic").first() {
                return *at;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("nothing comes");
    }

    /// Arrival time of the first byte at or after `at`, and of the byte that is `bytes` later.
    fn passing(&self, at: Instant, bytes: u64) -> Option<(Instant, Instant)> {
        let come = self.come.lock().expect("no panic");
        let first = come.partition_point(|(when, _)| *when < at);
        let before = first.checked_sub(1).map_or(0, |last| come[last].1);
        let last = come.iter().skip(first).find(|(_, total)| *total > before + bytes)?;
        Some((come[first].0, last.0))
    }

    /// Rate over twice the window's bytes from `at` on [bytes/s], mean round trip meanwhile [s], and true if the satellite
    /// kept time.
    ///
    /// Under a cut window the data arrives in bursts, a window per round trip: two windows take two round trips, wherever the
    /// measurement begins.
    fn rate(&self, world: &World, at: Instant, window: f64) -> (f64, f64, bool) {
        let satellite = world.satellite.as_ref().expect("a satellite");
        thread::sleep(at.saturating_duration_since(now()));
        for way in satellite {
            way.held();
        }
        let (first, last) = loop {
            thread::sleep(Duration::from_millis(20));
            if let Some(both) = self.passing(at, 2 * window as u64) {
                break both;
            }
            assert!(at.elapsed() < LONG, "no more bytes arrive");
        };
        let held = [0, 1].map(|way| satellite[way].held());
        let in_time = held.iter().all(|held| held.most < DELAY + IN_TIME);
        // Processing at the ends takes negligible time.
        (2.0 * window / (last - first).as_secs_f64(), held[0].mean + held[1].mean, in_time)
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Bytes in the gateway's socket that the PEP has not read.
fn unread(world: &World) -> u64 {
    world.ends[0].run(|| {
        let table = fs::read_to_string("/proc/thread-self/net/tcp").expect("the connections");
        let server = format!("{:08X}:0050", u32::from_ne_bytes([10, 1, 0, 1]));
        let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let row = rows.into_iter().find(|row| row[2] == server).expect("the connection to the server");
        let held = row[4].split_once(':').and_then(|(_, held)| u64::from_str_radix(held, 16).ok());
        held.expect("a number")
    })
}

/// An AQM that marks packets beyond a rate.
fn aqm(rate: &str, buffer: &str) -> String {
    format!(
        "aqm = {{ algorithm = \"avq\", adapt = false, capacity = \"{rate}\", gamma = 1, buffer = \"{buffer}\" }}\n"
    )
}

/// Window marking from server to client: marks cut the buffer's limit W, which then grows again. 0.9 s after each change the
/// rate is W / RTT within 10 %. `None` if the machine did not keep time.
fn follow() -> Option<()> {
    let (quiet, busy) = (aqm("20 Mbps", "1 MB"), aqm("1.2 Mbps", "50 KB"));
    let gateway = format!(
        "{quiet}marking = {{ method = \"window\", decr = 0.95, incr = 0.5, freeze = \"6 s\" }}\n\
         pep = {{ buffer = \"200 KB\", buffer_per = \"connection\" }}\n{METRICS}"
    );
    let Some(world) = World::over("window", "20 Mbps", &gateway, Some(DELAY)) else { return Some(()) };
    let limit = || metric(&world, "bentpipe_pep_buffer_limit_bytes");
    let download = Download::start(&world);
    let watch = Watch::start(&world);
    let check = |what: &str, from: Instant| {
        let window = limit();
        let (rate, trip, in_time) = download.rate(&world, from + Duration::from_millis(900), window);
        if limit() != window {
            // Too late: the limit has grown again.
            return None;
        }
        let in_time = watch.longest() < IN_TIME && in_time;
        let off = rate / (window / trip) - 1.0;
        println!(
            "{what}: W {window:.0} B, RTT {:.1} ms, {rate:.0} B/s, {:+.1} % of W/RTT",
            trip * 1e3,
            1e2 * off
        );
        assert!(off.abs() < 0.1 || !in_time, "{what}: {rate} B/s, expected {}", window / trip);
        (off.abs() < 0.1).then_some(())
    };

    let first = download.first();
    // The first round trip: the server has sent everything offered, and nothing was delivered. Bytes acknowledged and not
    // read would be offered a second time and stay in the kernel.
    let held = unread(&world);
    println!("{held} bytes unread");
    assert!(held < 2 * SEGMENT as u64, "{held} bytes beyond the window");
    let seen = world.servers.command("ss -tinH sport = :80");
    println!("{seen}");
    let scale = seen.split_once("wscale:").and_then(|(_, rest)| rest.split(',').next()?.parse::<u32>().ok());
    // The receive buffer is set before connecting, so that window units are a few bytes.
    assert!(scale.is_some_and(|scale| scale <= 3), "window scale {scale:?}");
    check("from the beginning", first)?;

    let before = limit();
    world.reload("gateway", |text| text.replace(&quiet, &busy));
    while limit() > 0.6 * before {
        assert!(first.elapsed() < LONG, "no packet is marked");
    }
    world.reload("gateway", |text| text.replace(&busy, &quiet));
    let changed = |than: &dyn Fn(f64) -> bool| {
        let (mut window, mut at) = (limit(), now());
        while now() < at + Duration::from_millis(250) || !than(window) {
            let is = limit();
            if is != window {
                (window, at) = (is, now());
            }
            assert!(first.elapsed() < LONG, "the window stays as it is, {window} bytes");
        }
        (window, at)
    };
    let (cut, at) = changed(&|_| true);
    // The next packet from the server shows it one delay later at the client.
    check("cut by marks", at + DELAY)?;
    let (_, at) = changed(&|window| window > 1.2 * cut);
    check("grown again", at + DELAY)?;
    Some(())
}

#[test]
fn the_rate_follows_a_window_cut_by_marks() {
    // On a busy machine a held packet may distort the round trip.
    assert!((0..5).any(|_| follow().is_some()), "no eight seconds in which this machine keeps time");
}
