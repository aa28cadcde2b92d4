//! Traffic from one terminal to another over a gateway on board.

use bentpipe_scenario::Scenario;
use bentpipe_sim::Results;

use crate::common;

/// A satellite that switches packets between two terminals of a company's head office and two of its branches; the links up
/// carry 10 Mbit/s each, the carrier down 8. Hosts of the head office send to the branches.
fn mesh(traffic: &str, extra: &[&str]) -> Results {
    let text = format!(
        r#"
        title = "A mesh"
        [run]
        warmup = "10 s"
        duration = "20 s"
        [host.hq]
        count = 2
        [host.branch]
        count = 2
        [terminal.big]
        count = 2
        [terminal.small]
        count = 2
        [gateway]
        name = "satellite"
        terminals = ["big", "small"]
        queues_per = "terminal"
        mark = "transmit"
        pep = {{ split = [] }}
        regulator = {{ rate = "8 Mbps" }}
        [gateway.return]
        regulator = {{ rate = "link" }}
        [link.big]
        between = ["satellite", "big"]
        delay = "125 ms"
        reverse = {{ rate = "10 Mbps" }}
        [link.small]
        between = ["satellite", "small"]
        delay = "125 ms"
        reverse = {{ rate = "10 Mbps" }}
        [link.offices]
        between = ["big", "hq"]
        [link.branches]
        between = ["small", "branch"]
        [traffic.mesh]
        {traffic}
        from = "hq"
        to = "branch"
        flows = 2
        "#
    );
    let overrides: Vec<_> = extra.iter().map(|&o| o.to_owned()).collect();
    let scenario = Scenario::parse(&text, "mesh.toml", &overrides).unwrap_or_else(|e| panic!("{e}"));
    common::results(&scenario, 1)
}

const DATAGRAMS: &str = "kind = \"cbr\"\nrate = \"3 Mbps\"\npacket = \"1500 B\"";

/// Each packet takes 1.2 ms up and 125 ms of each link. The carrier releases one of the two flows' packets, sent at the same
/// times, at once, and the other 1.5 ms later. Both terminals of a packet know it: one has sent it, the other received it.
#[test]
fn packets_cross_from_terminal_to_terminal() {
    let results = mesh(DATAGRAMS, &[]);
    let delays: Vec<_> = results.flows.iter().map(|flow| 1e3 * flow.delay()).collect();
    for (found, expected) in delays.iter().zip([251.2, 252.7]) {
        assert!((found - expected).abs() < 0.01, "{delays:?}");
    }
    for flow in &results.flows {
        assert!((flow.measured as f64 * 8e-6 / 20.0 - 3.0 * 1472.0 / 1500.0).abs() < 0.01);
    }
    let of = |name: &str| results.terminals.iter().find(|t| t.name == name).unwrap();
    for number in 0..2 {
        let (big, small) = (of(&format!("big.{number}")), of(&format!("small.{number}")));
        let back = big.back.as_ref().unwrap();
        assert!(back.sent_bytes.abs_diff(small.sent_bytes) <= 3000 && small.sent_bytes > 7_000_000);
        assert_eq!((big.sent_bytes, small.back.as_ref().unwrap().sent_bytes), (0, 0));
        assert_eq!(small.delivered_bytes, back.delivered_bytes);
    }
}

/// The carrier down drops what is beyond 8 Mbit/s, and shares it equally between the branches' terminals.
#[test]
fn the_carrier_down_is_the_bottleneck_of_a_mesh() {
    let results = mesh(&DATAGRAMS.replace("3 Mbps", "6 Mbps"), &[]);
    for flow in &results.flows {
        let found = flow.measured as f64 * 8e-6 / 20.0;
        assert!((found / (4.0 * 1472.0 / 1500.0) - 1.0).abs() < 0.005, "{found}");
    }
}

/// TCP from end to end over a carrier of 3 Mbit/s, whose queues are long enough for whole windows, so that nothing is lost: its
/// acknowledgements pass the branches' queues, and the carrier to the head office. Of 40 + 1460 bytes, 1460 are data;
/// acknowledgements of 40 bytes to the head office take the same carrier, one for two segments: 1460 / 1520.
#[test]
fn connections_cross_from_terminal_to_terminal() {
    let results = mesh(
        "kind = \"bulk\"",
        &["gateway.transmit_queue.limit=3000 packets", "gateway.regulator.rate=3 Mbps"],
    );
    let sum: f64 = results.flows.iter().map(|flow| flow.measured as f64 * 8e-6 / 20.0).sum();
    assert!((sum / (3.0 * 1460.0 / 1520.0) - 1.0).abs() < 0.02, "{sum}");
    let acks = |name: &str| results.terminals.iter().find(|t| t.name == name).unwrap().sent_bytes;
    assert!(acks("big.0") > 0 && acks("big.0") * 20 < acks("small.0"));
}

/// Settings apply to the queues at the terminals, and metrics describe them.
#[test]
fn the_queues_at_the_terminals_can_be_the_subject() {
    let text = std::fs::read_to_string("../../scenarios/small-gateway.toml");
    let overrides = [
        "run.subject=gateway return",
        "run.warmup=5 s",
        "run.duration=10 s",
        "gateway.return.transmit_queue.limit=50 packets",
        "link.satellite.reverse.rate=200 kbps",
        "traffic.web.from=client",
        "traffic.web.to=server",
    ];
    let overrides: Vec<_> = overrides.iter().map(|&o| o.to_owned()).collect();
    let scenario =
        Scenario::parse(&text.unwrap(), "small.toml", &overrides).unwrap_or_else(|e| panic!("{e}"));
    let throughput = |setting: &str| {
        let scenario = scenario.with_setting(setting).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(scenario.subject_gateway().unwrap().name, "gateway return");
        let results = common::results(&scenario, 1);
        let delay = common::mean(&results, "queue_delay");
        (common::mean(&results, "throughput"), delay)
    };
    let ((full, long), (_, short)) = (throughput("droptail"), throughput("codel"));
    assert!((full / 200e3 - 1.0).abs() < 0.02, "{full}");
    assert!(short < 0.5 * long, "{short} {long}");
}
