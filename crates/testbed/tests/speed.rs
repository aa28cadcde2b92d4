//! CPU time and lateness of the emulator: `cargo test --release -p bentpipe-testbed --test namespaces -- speed --ignored --nocapture`.

use std::net::UdpSocket;
use std::time::Duration;

use crate::common::{Namespace, Testbed, now, retry, scenario, two};
use serde_json::json;

/// 20 000 packets/s of 1400 bytes (224 Mbit/s) for five seconds through three segments of 30, 300 and 2 ms.
#[test]
#[ignore = "a measurement, which needs an idle machine"]
fn three_segments_carry_twenty_thousand_packets_per_second() {
    const RATE: u64 = 20_000;
    const SECONDS: u64 = 5;
    let Some(spaces) = two() else { return };
    let (Some(c), Some(d)) = (Namespace::new(), Namespace::new()) else { return };
    let chain = [&spaces[0], &spaces[1], &c, &d];
    let links = r#"
[router.gateway]
[router.terminal]
[link.one]
between = ["server", "gateway"]
rate = "1 Gbps"
delay = { uniform = ["20 ms", "40 ms"], per = "connection" }
[link.satellite]
between = ["gateway", "terminal"]
rate = "250 Mbps"
delay = "300 ms"
queue = { scheduler = "fifo", limit = "2000 packets" }
[link.three]
between = ["terminal", "client"]
rate = "1 Gbps"
delay = "2 ms"
"#;
    let names = ["one", "satellite", "three"];
    let segments: Vec<_> = (0..3)
        .map(|i| {
            json!({
                "a": { "netns": chain[i].path, "device": format!("a{i}") },
                "b": { "netns": chain[i + 1].path, "device": format!("b{i}") },
                "links": [names[i]],
            })
        })
        .collect();
    let plan = json!({
        "scenario": { "file": "test.toml", "text": scenario(links, crate::common::TRAFFIC) },
        "segments": segments,
    });
    let testbed = Testbed::start("emulate", &plan);
    for space in &chain[1..3] {
        space.run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap());
    }
    for i in 0..3 {
        chain[i].ip(&format!("addr add 10.9.{i}.1 peer 10.9.{i}.2 dev a{i}"));
        chain[i + 1].ip(&format!("addr add 10.9.{i}.2 peer 10.9.{i}.1 dev b{i}"));
        chain[i].ip(&format!("route add 10.9.9.0/24 dev a{i}"));
    }
    d.ip("addr add 10.9.9.9 dev lo");
    let receiver = d.run(|| {
        let socket = UdpSocket::bind("10.9.9.9:7000").unwrap();
        nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::RcvBufForce, &(64 << 20)).unwrap();
        socket
    });
    receiver.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let sent = chain[0].spawn(move || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let begin = now();
        for i in 0..RATE * SECONDS {
            // Bursts of 20 packets, one per millisecond.
            while i % 20 == 0 && now() < begin + i * 1_000_000_000 / RATE {
                std::thread::sleep(Duration::from_micros(100));
            }
            let _ = socket.send_to(&[0; 1372], "10.9.9.9:7000");
        }
    });
    let mut received = 0;
    while retry(|| receiver.recv(&mut [0; 2000])).is_ok() {
        received += 1;
    }
    sent.recv_timeout(Duration::from_secs(10)).unwrap();
    let statistics = testbed.end()["statistics"].clone();
    let cpu = statistics["cpu_s"].as_f64().unwrap();
    let packets = statistics["late"]["packets"].as_f64().unwrap();
    eprintln!(
        "{received} of {} packets received; {:.2} of a core; {:.2} µs per packet and segment; late: {}",
        RATE * SECONDS,
        cpu / SECONDS as f64,
        cpu * 1e6 / packets,
        statistics["late"]
    );
    eprintln!("realtime: {}; {}", statistics["realtime"], statistics["segments"]);
    assert_eq!(received, RATE * SECONDS);
    assert!(cpu / (SECONDS as f64) < 0.5);
}
