//! Congestion control against what theory says of it.

mod common;

use bentpipe_scenario::Scenario;
use bentpipe_sim::Results;
use common::{mean, results};

/// Bulk transfers over one link: `transport`'s lines are the TCP's, and overrides change the rest.
fn bulk(transport: &str, overrides: &[&str]) -> Scenario {
    let text = format!(
        r#"
title = "Bulk transfers over one link"
[run]
warmup = "40 s"
duration = "120 s"
subject = "wire"
[host.client]
count = 1
[host.server]
count = 1
[link.wire]
between = ["server", "client"]
rate = "20 Mbps"
delay = "300 ms"
queue = {{ limit = "1500 KB", aqm = {{ algorithm = "droptail" }} }}
[transport.tcp]
mss = "1000 B"
receive_window = "16 MB"
go_back_n = true
{transport}
[traffic.bulk]
kind = "bulk"
from = "server"
to = "client"
transport = "tcp"
flows = 1
"#
    );
    let overrides: Vec<_> = overrides.iter().map(|&o| o.to_owned()).collect();
    Scenario::parse(&text, "test.toml", &overrides).unwrap_or_else(|e| panic!("{e}"))
}

/// What all flows delivered while it was measured [bit/s].
fn goodput(r: &Results) -> f64 {
    r.flows.iter().map(|flow| flow.goodput(r.begin, r.end)).sum()
}

/// A path of 600 ms holds 1.5 MB at 20 Mbit/s, and the queue as much again: CUBIC's window is never below 0.7 of what
/// both hold, so the link is never idle once slow start is over. BBR fills it but for its probes of the round trip: every
/// 10 s it sends nothing while what is under way arrives, and next to nothing for a round trip after, 1.2 s of 11.2 s.
/// What the link forwards meanwhile is what waits.
#[test]
fn cubic_and_bbr_fill_a_path_of_600_ms() {
    for (algorithm, least) in [("cubic", 0.99), ("bbr", 0.9)] {
        let r = results(&bulk(&format!("algorithm = \"{algorithm}\"\nsack = true"), &[]), 1);
        let used = mean(&r, "utilization_out") / 20e6;
        assert!(used >= least, "{algorithm}: {used} of the link");
    }
}

/// One packet in a hundred is lost. BBR does not take that for congestion; for NewReno the law of Mathis et al. (1997)
/// leaves 8000 sqrt(1.5 / 0.01) / 0.6 = 0.16 Mbit/s.
#[test]
fn bbr_fills_a_path_that_loses() {
    let lossy = |algorithm: &str| {
        let transport = format!("algorithm = \"{algorithm}\"\nsack = true");
        goodput(&results(&bulk(&transport, &["link.wire.loss=0.01"]), 1)) / 1e6
    };
    let (bbr, newreno) = (lossy("bbr"), lossy("newreno"));
    assert!(bbr > 15.0, "{bbr} Mbit/s");
    assert!((0.1..0.2).contains(&newreno), "{newreno} Mbit/s");
}

/// A queue that marks whatever finds K = 40 packets before it. Alizadeh et al., "Data center TCP (DCTCP)", SIGCOMM 2010,
/// section 3.3, for N flows in step, with 100 Mbit/s of packets of 1040 bytes and 10 ms C RTT = 120 packets: W* = (C RTT +
/// K) / N, the queue is K + N at most (9) and goes down by A = N / 2 sqrt(2 W*) from there (8), so on the average it is
/// K + N - A / 2 long: 36.5, 35.7 and 35.1 packets for 1, 2 and 4 flows. The law has whole windows, all at one moment; a
/// queue of packets is off by some of them, but not by three. NewReno halves its windows and leaves the link idle.
#[test]
fn dctcp_keeps_a_queue_near_the_step_that_marks() {
    let step = |flows: u32, transport: &str| {
        let queue = r#"link.wire.queue={ limit = "1500 KB", marking = "ecn", aqm = { algorithm = "red", min_th = 40,
                       max_th = 40.5, w_q = 1, max_p = 1 } }"#;
        let flows = format!("traffic.bulk.flows={flows}");
        let overrides = [
            "link.wire.rate=100 Mbps",
            "link.wire.delay=5 ms",
            queue,
            &flows,
            "run.warmup=5 s",
            "run.duration=10 s",
        ];
        let r = results(&bulk(transport, &overrides), 1);
        let packets = |seconds: f64| seconds * 100e6 / (8.0 * 1040.0);
        let delay = r.summary.queue_delay;
        (packets(delay[0]), packets(delay[4]), mean(&r, "utilization_out") / 100e6)
    };
    let (k, path) = (40.0, 100e6 * 0.01 / (8.0 * 1040.0));
    for flows in [1, 2, 4] {
        let n = f64::from(flows);
        let expected = k + n - n / 4.0 * (2.0 * (path + k) / n).sqrt();
        for algorithm in ["dctcp", "prague"] {
            let (average, longest, used) =
                step(flows, &format!("algorithm = \"{algorithm}\"\necn = \"accurate\""));
            assert!((average - expected).abs() < 3.0, "{algorithm} {n}: {average}, not {expected}");
            // The packet being sent is one more.
            assert!((k..=k + n + 2.0).contains(&longest), "{algorithm} {n}: {longest}");
            assert!(used > 0.999, "{algorithm} {n}: {used}");
        }
    }
    let (average, _, used) = step(2, "ecn = true");
    assert!(average < 20.0 && used < 0.97, "{average} {used}");
}
