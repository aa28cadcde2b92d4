//! Waiting times behind Poisson sources, compared with the formula of Pollaczek and Khinchine: W = λ E[S²] / (2 (1 - λ E[S])).

use crate::common::results;
use bentpipe_scenario::Scenario;

/// Runs per case, and the 99.5 % quantile of Student's t with one degree of freedom less.
const RUNS: u64 = 16;
const QUANTILE: f64 = 2.947;

/// Mean wait of packets with a mean of 1000 bytes at 1 Mbit/s, 8 ms each: mean over the runs, and half-width of its 99 %
/// confidence interval [s].
fn wait(load: f64, packet: &str) -> (f64, f64) {
    let text = format!(
        r#"
title = "M/G/1"
[run]
warmup = "20 s"
duration = "250 s"
sample_interval = "250 s"
[host.sender]
[host.receiver]
[link.wire]
between = ["sender", "receiver"]
rate = "1 Mbps"
queue = {{ }}
[traffic.t]
kind = "poisson"
from = "sender"
to = "receiver"
rate = "{} bps"
packet = {packet}
"#,
        load * 1e6
    );
    let scenario = Scenario::parse(&text, "test.toml", &[]).unwrap_or_else(|e| panic!("{e}"));
    let waits: Vec<f64> = (1..=RUNS).map(|seed| results(&scenario, seed).summary.queue_delay[0]).collect();
    let n = RUNS as f64;
    let mean = waits.iter().sum::<f64>() / n;
    let variance = waits.iter().map(|w| (w - mean) * (w - mean)).sum::<f64>() / (n - 1.0);
    (mean, QUANTILE * (variance / n).sqrt())
}

/// `square` is the mean square of a packet's length [10⁶ bytes²].
fn check(packet: &str, square: f64) {
    for load in [0.3, 0.6, 0.8] {
        let service = 0.008;
        let expected = load / service * square * service * service / (2.0 * (1.0 - load));
        let (found, half) = wait(load, packet);
        assert!(
            (found - expected).abs() < half,
            "{packet} at {load}: {found} ± {half}, in theory {expected}"
        );
        // A wide interval would prove nothing.
        assert!(half < 0.08 * expected, "{packet} at {load}: {found} ± {half}");
    }
}

#[test]
fn exponential_lengths_wait_as_in_m_m_1() {
    check(r#"{ exponential = "1000 B" }"#, 2.0);
}

#[test]
fn fixed_lengths_wait_as_in_m_d_1() {
    check(r#""1000 B""#, 1.0);
}

/// Erlang of shape 4: a quarter of the exponential's variance. Half 100, half 1900 bytes: (0.01 + 3.61) / 2.
#[test]
fn other_lengths_wait_as_in_m_g_1() {
    check(r#"{ erlang = { shape = 4, mean = "1000 B" } }"#, 1.25);
    check(r#"{ choice = ["100 B", "1900 B"] }"#, 1.81);
}
