//! Throughput advice (SCONE) of a gateway to viewers over QUIC.

use crate::common::results;
use bentpipe_scenario::Scenario;
use bentpipe_sim::{Results, Simulation};
use bentpipe_units::{Duration, Instant};

/// Users behind a gateway of 8 Mbit/s.
fn run(gateway: &str, transport: &str, traffic: &str) -> Results {
    results(&scenario(gateway, transport, traffic, &[]), 1)
}

fn scenario(gateway: &str, transport: &str, traffic: &str, overrides: &[&str]) -> Scenario {
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
    let overrides: Vec<_> = overrides.iter().map(|&o| o.to_owned()).collect();
    Scenario::parse(&text, "test.toml", &overrides).unwrap_or_else(|e| panic!("{e}"))
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

/// Of 3.5 Mbit/s the signal says 3.16 Mbit/s, which a rate of 3 Mbit/s fits, and of 8 Mbit/s more than the highest of 4.2 Mbit/s.
/// The change is at 30 s; the lower advice applies for another 67 s.
#[test]
fn advice_follows_a_link_whose_rate_changes_during_the_run() {
    let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
    let of = |rate: &str| {
        let rate = format!("link.satellite.rate={rate}");
        let overrides = ["gateway.regulator.rate=link", "run.duration=150 s", rate.as_str()];
        scenario("throughput_advice = \"share\"", "scone = true", &viewers(1), &overrides)
    };
    let mut simulation = Simulation::new(&of("3.5 Mbps"), 1, None).unwrap_or_else(|e| panic!("{e}"));
    // Goodput of the video in the last third of the run so far [bit/s].
    let rate = |simulation: &mut Simulation, seconds| {
        simulation.advance(at(seconds)).unwrap_or_else(|e| panic!("{e}"));
        let goodput = simulation.goodput().next().unwrap_or_else(|| panic!("no class"));
        let last = &goodput[goodput.len() * 2 / 3..];
        last.iter().sum::<f64>() / last.len() as f64
    };
    let before = rate(&mut simulation, 30);
    simulation.change(&of("8 Mbps")).unwrap_or_else(|e| panic!("{e}"));
    let after = rate(&mut simulation, 150);
    assert!((2.8e6..3.3e6).contains(&before), "{before} bit/s");
    assert!((4.0e6..4.5e6).contains(&after), "{after} bit/s");
}
