//! NADA (RFC 8698) compared with its equilibrium.

use bentpipe_scenario::Scenario;
use bentpipe_sim::Results;

use crate::common::{mean, results};

/// Media of at most 1.5 Mbit/s over one link.
fn media(overrides: &[&str]) -> Results {
    let text = r#"
title = "Media over one link"
[run]
warmup = "60 s"
duration = "60 s"
subject = "wire"
[host.client]
count = 4
[host.server]
count = 4
[router.west]
[router.east]
[link.left]
between = ["server", "west"]
[link.wire]
between = ["west", "east"]
rate = "1 Mbps"
delay = "50 ms"
queue = { limit = "300 ms" }
[link.right]
between = ["east", "client"]
[transport.media]
protocol = "rtp"
controller = "nada"
min_rate = "150 kbps"
[traffic.one]
kind = "cbr"
from = "server"
to = "client"
transport = "media"
flows = 1
rate = "1500 kbps"
packet = "1000 B"
"#;
    let overrides: Vec<_> = overrides.iter().map(|&o| o.to_owned()).collect();
    results(&Scenario::parse(text, "test.toml", &overrides).unwrap_or_else(|e| panic!("{e}")), 1)
}

/// Section 4.3: the rate stays where the queueing delay is PRIO XREF RMAX / r_ref = 10 ms 1.5 / 1.
#[test]
fn one_flow_fills_the_link_with_the_queueing_delay_of_the_equilibrium() {
    for (rate, expected) in [("1 Mbps", 0.015), ("600 kbps", 0.025)] {
        let r = media(&[&format!("link.wire.rate={rate}")]);
        let capacity = if rate == "1 Mbps" { 1e6 } else { 0.6e6 };
        let (used, delay) = (mean(&r, "throughput") / capacity, mean(&r, "queue_delay"));
        assert!(used > 0.97, "{rate}: {used} of the link");
        // Packets of 1000 bytes take 8 or 13 ms, which the least of 15 delays mostly leaves out.
        assert!((delay - expected).abs() < 0.008, "{rate}: {delay} s, not {expected}");
    }
}

/// A path wider than the media: nothing limits but RMAX.
#[test]
fn wide_path_lets_the_media_have_its_greatest_rate() {
    let r = media(&["link.wire.rate=4 Mbps"]);
    assert!((mean(&r, "throughput") / 1.5e6 - 1.0).abs() < 0.01, "{}", mean(&r, "throughput"));
}

/// In equilibrium all flows see the same delay, so that their rates are equal.
#[test]
fn flows_share_a_link_equally() {
    let r = media(&["traffic.one.flows=3", "link.wire.rate=2400 kbps"]);
    let rates: Vec<f64> = r.flows.iter().map(|flow| flow.goodput(r.begin, r.end) / 1e6).collect();
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    assert!(rates.len() == 3 && (0.72..0.82).contains(&mean), "{rates:?}");
    assert!(rates.iter().all(|rate| (rate / mean - 1.0).abs() < 0.1), "{rates:?}");
}

/// RFC 8867, section 5.6 has a TCP flow of endless length: it must not starve the media, which has at least RMIN.
#[test]
fn losses_of_a_full_queue_do_not_starve_the_media() {
    let r = media(&["link.wire.rate=2 Mbps", "link.wire.loss=0.01"]);
    // A loss of 1 % adds 10 ms: x = 10 ms, the reference at RMAX.
    assert!(mean(&r, "throughput") > 1.2e6, "{}", mean(&r, "throughput"));
}
