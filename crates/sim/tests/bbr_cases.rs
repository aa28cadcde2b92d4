//! Test cases of draft-ietf-ccwg-bbr-06, section 10, that are about a path, over TCP and QUIC. Those about the state of a sender
//! are beside the algorithm.

use crate::common::{mean, results};
use bentpipe_scenario::Scenario;
use bentpipe_sim::Results;

const RATE: &str = "link.path.rate=\"10 Mbps\"";

/// One transfer with BBR version 3 on a path of 40 ms, over TCP and over QUIC; the first key is that of its capacity.
fn both(overrides: &[&str]) -> [Results; 2] {
    let text = r#"
title = "A path with BBR"
[run]
warmup = "10 s"
duration = "30 s"
[host.a]
count = 1
[host.b]
count = 1
[link.path]
between = ["a", "b"]
delay = "20 ms"
queue = { limit = "100 KB" }
[transport.tcp]
algorithm = "bbr3"
sack = true
rack = true
receive_window = "16 MB"
[transport.quic]
protocol = "quic"
algorithm = "bbr3"
[traffic.bulk]
kind = "bulk"
from = "a"
to = "b"
transport = "tcp"
flows = 1
"#;
    ["tcp", "quic"].map(|transport| {
        let mut keys: Vec<_> = overrides.iter().map(|&key| key.to_owned()).collect();
        keys.push(format!("traffic.bulk.transport=\"{transport}\""));
        results(&Scenario::parse(text, "test.toml", &keys).unwrap_or_else(|e| panic!("{e}")), 1)
    })
}

fn throughput(r: &Results) -> f64 {
    mean(r, "throughput") / 1e6
}

/// Packets lost for each one that arrived.
fn lost(r: &Results) -> f64 {
    f64::from(r.flows[0].drops) / f64::from(r.flows[0].received_packets)
}

/// Cases 10.1 and 10.12: the rate is known within 2 % after Startup. Of it, 1 % is the margin of the pacing rate, and ProbeRTT
/// halves the data in flight for 240 ms of 5 s.
#[test]
fn startup_finds_the_bandwidth() {
    for r in both(&[RATE, "run.warmup=\"2 s\""]) {
        assert!((0.94..=1.0).contains(&(throughput(&r) / 10.0)), "{}", throughput(&r));
    }
}

/// Cases 10.12 and 10.13: a link that sends for half of each 40 ms delivers in bursts, and ACKs come in bursts too. The window
/// has room for them: `extra_acked`.
#[test]
fn a_link_that_delivers_in_bursts_is_filled() {
    let bursts =
        r#"link.path.capacity={ steps = [["0 s", "20 Mbps"], ["20 ms", "0 bps"]], repeat = "40 ms" }"#;
    for warmup in ["run.warmup=\"3 s\"", "run.warmup=\"10 s\""] {
        for r in both(&[bursts, warmup]) {
            assert!(throughput(&r) > 9.0, "{}", throughput(&r));
        }
    }
}

/// Case 10.14: a bandwidth-delay product of 160 bytes. The window of four packets keeps the link busy, and the queue short.
#[test]
fn a_path_shorter_than_a_packet_is_filled_with_four() {
    for r in both(&["link.path.rate=\"64 kbps\"", "run.duration=\"200 s\"", "run.warmup=\"40 s\""]) {
        assert!(throughput(&r) > 0.95 * 0.064, "{}", throughput(&r));
        assert!(r.flows[0].drops == 0, "{}", r.flows[0].drops);
    }
}

/// Case 10.15: the rate is ten times as high after 20 s. A probe begins within 3 s, and raises the rate by a quarter each round
/// trip: ten times in eleven.
#[test]
fn a_bandwidth_ten_times_as_high_is_found() {
    let up = r#"link.path.capacity={ steps = [["0 s", "10 Mbps"], ["20 s", "100 Mbps"]] }"#;
    for r in
        both(&[up, "link.path.queue={ limit = \"1 MB\" }", "run.warmup=\"25 s\"", "run.duration=\"35 s\""])
    {
        assert!(throughput(&r) > 90.0, "{}", throughput(&r));
    }
}

/// Case 10.16: the rate is a tenth after 20 s. Losses reduce the short-term bound, and the maximum is forgotten after two
/// cycles of at most 3 s and a few round trips.
#[test]
fn a_bandwidth_a_tenth_as_high_is_taken_over() {
    let down = r#"link.path.capacity={ steps = [["0 s", "100 Mbps"], ["20 s", "10 Mbps"]] }"#;
    for r in
        both(&[down, "link.path.queue={ limit = \"1 MB\" }", "run.warmup=\"32 s\"", "run.duration=\"52 s\""])
    {
        assert!(throughput(&r) > 9.0, "{}", throughput(&r));
        // Unchanged, the sender would lose 90 Mbit/s for 32 s: more than it delivers.
        assert!(lost(&r) < 0.03, "{}", lost(&r));
    }
}

/// Case 10.17: little more than a burst is let through, as by a policer without a queue. The sender settles at a rate below the
/// limit with losses of less than LossThresh.
#[test]
fn a_policer_is_obeyed() {
    for r in both(&[RATE, "link.path.queue={ limit = \"9 KB\" }", "run.duration=\"60 s\""]) {
        assert!(lost(&r) < 0.02, "{}", lost(&r));
        assert!(throughput(&r) > 6.0, "{}", throughput(&r));
    }
}
