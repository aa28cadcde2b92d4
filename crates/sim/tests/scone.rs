//! Throughput advice (SCONE) of a gateway to viewers over QUIC.

use crate::common::results;
use bentpipe_scenario::Scenario;
use bentpipe_sim::Results;

/// Users behind a gateway of 8 Mbit/s.
fn run(gateway: &str, transport: &str, traffic: &str) -> Results {
    let text = format!(
        r#"
title = "Advice"
[run]
duration = "60 s"
[host.server]
[host.user]
count = 4
[link.ingress]
between = ["server", "gateway"]
rate = "100 Mbps"
delay = "5 ms"
[gateway]
regulator = {{ rate = "8 Mbps" }}
transmit_queue = {{ limit = "1000 packets" }}
{gateway}
[link.satellite]
between = ["gateway", "terminal"]
delay = "20 ms"
[link.access]
between = ["terminal", "user"]
rate = "100 Mbps"
[transport.quic]
protocol = "quic"
max_udp_payload = "1350 B"
{transport}
{traffic}
"#
    );
    results(&Scenario::parse(&text, "test.toml", &[]).unwrap_or_else(|e| panic!("{e}")), 1)
}

/// Viewers with segments of 2 s and a buffer of 8 s.
fn viewers(flows: u32) -> String {
    format!(
        r#"
[traffic.video]
kind = "dash"
from = "server"
to = "user"
transport = "quic"
flows = {flows}
ladder = ["300 kbps", "1 Mbps", "3 Mbps", "4.2 Mbps"]
segment = "2 s"
buffer = "8 s"
controller = "bola"
"#
    )
}

/// Highest rate that each viewer saw [kbit/s].
fn highest(r: &Results) -> Vec<u64> {
    let viewings = r.flows.iter().filter_map(|flow| r.viewing(flow));
    let rates =
        viewings.map(|viewing| viewing.periods().iter().filter_map(|period| viewing.rate(period)).max());
    rates.map(|rate| rate.map_or(0, |rate| rate.as_bps() / 1000)).collect()
}

/// Of 2.95 Mbit/s the signal says 2.818 Mbit/s, 10^(29/20) times 100 kbit/s.
#[test]
fn a_viewer_stays_within_the_gateways_advice() {
    let rate = |gateway: &str, transport: &str| highest(&run(gateway, transport, &viewers(1)));
    assert_eq!(rate("throughput_advice = \"2.95 Mbps\"", "scone = true"), [1000]);
    assert_eq!(rate("throughput_advice = \"3.2 Mbps\"", "scone = true"), [3000]);
    assert_eq!(rate("", "scone = true"), [4200]);
    assert_eq!(rate("throughput_advice = \"2.95 Mbps\"", ""), [4200], "senders without scone");
}

/// Of 8 Mbit/s one viewer may have all and each of two 4 Mbit/s, of which the signal says 3.981 Mbit/s.
#[test]
fn users_who_are_active_are_advised_an_equal_share() {
    let rates = |flows| highest(&run("throughput_advice = \"share\"", "scone = true", &viewers(flows)));
    assert_eq!(rates(1), [4200]);
    assert_eq!(rates(2), [3000, 3000]);
}

/// A download to the second user ignores its 4 Mbit/s and takes what the viewer leaves.
#[test]
fn a_download_ignores_the_advice() {
    let download = "[traffic.bulk]\nkind = \"bulk\"\nfrom = \"server\"\nto = \"user\"\ntransport = \"quic\"\nflows = 2\n";
    let r = run("throughput_advice = \"share\"", "scone = true", &format!("{}{download}", viewers(1)));
    assert!(highest(&r)[0] <= 3000);
    let most = r.flows.iter().map(|flow| flow.goodput(r.begin, r.end)).fold(0.0, f64::max);
    assert!(most > 4e6, "{most} bit/s");
}

/// Advice that nobody reads leaves all packets as they are.
#[test]
fn advice_without_scone_packets_changes_nothing() {
    let found = |gateway: &str| {
        let r = run(gateway, "", &viewers(2));
        let series: Vec<_> =
            r.series.iter().map(|series| (series.name.clone(), series.values.clone())).collect();
        format!("{series:?}")
    };
    assert_eq!(found("throughput_advice = \"share\""), found(""));
}
