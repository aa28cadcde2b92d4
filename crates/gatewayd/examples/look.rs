//! Serves the built-in page with made-up figures: ten minutes of a gateway of 20 Mbit/s that is idle, fills up, overflows,
//! loses its spacelink for half a minute and recovers. Every bottleneck occurs.
//!
//! `cargo run -p bentpipe-gatewayd --example look [ADDRESS]` prints its address.

use bentpipe_gatewayd::config::Role;
use bentpipe_gatewayd::observe::bottleneck::Evidence;
use bentpipe_gatewayd::observe::http::serve;
use bentpipe_gatewayd::observe::metrics::{About, NfqueueLost, Snapshot};
use bentpipe_gatewayd::observe::state::Shared;
use bentpipe_gatewayd::sys::clock::monotonic_ms;
use bentpipe_units::{Duration, Instant, Rate, Rng};

const SAMPLES: u64 = 600;

#[expect(clippy::print_stdout, reason = "the caller waits for the address")]
fn main() -> std::io::Result<()> {
    let listen = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9180".to_owned());
    let listen =
        listen.parse().map_err(|_| std::io::Error::other(format!("{listen}: no address with a port")))?;
    let about = About {
        role: Role::Gateway,
        aqm: "AVQRED".to_owned(),
        scheduler: "fifo".to_owned(),
        marking: "drop".to_owned(),
        reloaded: (unix_s(), true),
    };
    let shared = Shared::new(about, Duration::from_secs(1), Duration::from_secs(SAMPLES));
    let mut rng = Rng::stream(1, "look", 0, "look");
    let mut s = Snapshot { capacity: Some(Rate::from_bps(20_000_000)), ..Snapshot::default() };
    s.nfqueue = vec![NfqueueLost { queue: 0, ..NfqueueLost::default() }];
    s.spacelink.up = true;
    let begin = unix_s() - SAMPLES as f64;
    for second in 0..=SAMPLES {
        a_second(&mut s, second, &mut rng);
        shared.publish(s.clone(), ((begin + second as f64) * 1e3) as u64, monotonic_ms());
    }
    println!("http://{}/", serve(listen, shared.clone())?);
    for second in SAMPLES + 1.. {
        std::thread::sleep(std::time::Duration::from_secs(1));
        a_second(&mut s, 180 + second % 120, &mut rng);
        s.now = Instant::ZERO + Duration::from_secs(second);
        shared.publish(s.clone(), (unix_s() * 1e3) as u64, monotonic_ms());
    }
    Ok(())
}

/// Adds the second before `second`.
fn a_second(s: &mut Snapshot, second: u64, rng: &mut Rng) {
    let mut noise = |low, high| rng.uniform_in(low, high);
    // Share of the capacity, packets waiting, AQM drops a second, connections, and the evidence.
    let (share, queue, drops, open, full, in_flight, up) = match second {
        0..60 => (0.0, 0.0, 0.0, 0.0, 0, 0.0, true),
        60..120 => (noise(0.3, 0.6), 0.2, 0.0, noise(60.0, 80.0), 0, 0.0, true),
        120..180 => (noise(0.5, 0.6), 0.3, 0.0, 4.0, 2, 0.1, true),
        180..300 => {
            (noise(0.96, 1.0), noise(60.0, 110.0), noise(8.0, 40.0), noise(380.0, 400.0), 0, 0.2, true)
        }
        300..360 => (1.0, noise(150.0, 240.0), noise(30.0, 90.0), noise(395.0, 400.0), 30, 0.3, true),
        360..390 => (0.0, 240.0, 0.0, 400.0, 200, 0.0, false),
        390..480 => {
            (noise(0.94, 1.0), noise(50.0, 120.0), noise(10.0, 50.0), noise(340.0, 390.0), 0, 0.2, true)
        }
        480..540 => (noise(0.2, 0.3), 0.1, 0.0, 40.0, 5, 0.9, true),
        _ => (noise(0.6, 0.8), 0.5, noise(0.0, 2.0), noise(120.0, 150.0), 0, 0.1, true),
    };
    let bytes = (share * 2_500_000.0) as u64;
    let overflow = if (330..360).contains(&second) { noise(0.0, 20.0) as u64 } else { 0 };
    s.now = Instant::ZERO + Duration::from_secs(second);
    s.transmit.packets = queue as u64;
    s.transmit.bytes = (queue * 1400.0) as u64;
    s.receive.aqm_drops += drops as u64;
    s.transmit.overflow_drops += overflow;
    s.marked += drops as u64 + if second >= 540 { noise(0.0, 5.0) as u64 } else { 0 };
    s.aqm_offered_packets += bytes / 1400;
    s.aqm_offered_bytes += bytes;
    if second == 350 {
        s.nfqueue[0].buffer_full += 12;
    }
    for i in 0..bytes / 140_000 {
        let share = i as f64 / 18.0;
        s.transmit.delay.observe(Duration::from_secs_f64(queue * 1400.0 / 2.5e6 * (0.5 + share)));
    }
    for (traffic, part) in s.traffic.iter_mut().zip([0.83, 0.12, 0.02]) {
        traffic.sent += (bytes as f64 * part) as u64;
        traffic.received += (bytes as f64 * part * 0.04) as u64;
    }
    s.connections.open = open as u64;
    s.connections.half_open = (open * 0.02) as u64;
    s.connections.accepted += (open * 0.1) as u64;
    s.connections.refused += u64::from(open > 100.0 && second.is_multiple_of(7));
    s.connections.reset += u64::from((360..364).contains(&second)) * 40;
    s.connections.bypassing = (340..360).contains(&second);
    s.buffered = (open * 60_000.0) as u64;
    s.spacelink.up = up;
    s.spacelink.round_trip = up.then(|| Duration::from_secs_f64(0.602 + 0.004 * noise(0.0, 1.0)));
    s.spacelink.sent_packets += bytes / 1400;
    s.spacelink.lost_packets += (bytes as f64 / 1400.0 * noise(0.0, 0.002)) as u64;
    s.spacelink.sent_bytes += bytes;
    let e = &mut s.evidence;
    *e = Evidence {
        payload: e.payload + bytes,
        sent: e.sent + bytes,
        packet_seconds: e.packet_seconds + queue,
        window_limited_ns: e.window_limited_ns,
        window_limited_streams: 0,
        up,
        full_buffers: full,
        buffered: s.buffered,
        in_flight: (s.buffered as f64 * in_flight) as u64,
        delivered: e.delivered + bytes,
        round_trip: Duration::from_millis(600),
    };
}

fn unix_s() -> f64 {
    let now = nix::time::ClockId::CLOCK_REALTIME.now();
    now.map_or(0.0, |t| t.tv_sec() as f64 + t.tv_nsec() as f64 * 1e-9)
}
