//! Several terminals of one gateway.

use bentpipe_scenario::Scenario;
use bentpipe_sim::{Results, Terminal};

use crate::common;

/// A beam of two basic terminals and two better ones, with two users each whom datagrams reach at 10 Mbit/s each.
fn beam(queues_per: &str, links: &str, extra: &[&str]) -> Results {
    let datagrams = ["kind = \"cbr\"", "rate = \"10 Mbps\"", "packet = \"1500 B\""].join("\n");
    beam_of(queues_per, links, &datagrams, extra)
}

/// The same with other traffic.
fn beam_of(queues_per: &str, links: &str, traffic: &str, extra: &[&str]) -> Results {
    // Only terminals with separate queues have plans.
    let plan =
        |name: &str| if queues_per == "terminal" { format!("plan = \"{name}\"") } else { String::new() };
    let (basic, better) = (plan("basic"), plan("better"));
    let text = format!(
        r#"
        title = "A beam"
        [run]
        warmup = "10 s"
        duration = "30 s"
        [host.server]
        [host.home]
        count = 4
        [host.office]
        count = 4
        [terminal.basic]
        count = 2
        {basic}
        [terminal.better]
        count = 2
        {better}
        [plan.basic.down]
        pir = "6 Mbps"
        [plan.better.down]
        cir = "2 Mbps"
        weight = 3
        [gateway]
        terminals = ["basic", "better"]
        queues_per = "{queues_per}"
        transmit_queue = {{ limit = "100 packets" }}
        {links}
        [link.ingress]
        between = ["server", "gateway"]
        delay = "10 ms"
        [link.homes]
        between = ["basic", "home"]
        [link.offices]
        between = ["better", "office"]
        [traffic.homes]
        {traffic}
        from = "server"
        to = "home"
        flows = 4
        [traffic.offices]
        {traffic}
        from = "server"
        to = "office"
        flows = 4
        "#
    );
    let overrides: Vec<_> = extra.iter().map(|&o| o.to_owned()).collect();
    let scenario = Scenario::parse(&text, "beam.toml", &overrides).unwrap_or_else(|e| panic!("{e}"));
    common::results(&scenario, 1)
}

const FIXED: &str = r#"
        regulator = { rate = "20 Mbps" }
        [link.basic]
        between = ["gateway", "basic"]
        delay = "20 ms"
        [link.better]
        between = ["gateway", "better"]
        delay = "20 ms"
"#;

/// Share of a packet that is payload.
const PAYLOAD: f64 = 1472.0 / 1500.0;

/// Goodput of each terminal [Mbit/s]: host i is behind terminal i mod 2.
fn goodput(results: &Results, traffic: u32) -> [f64; 2] {
    let mut bytes = [0; 2];
    for (i, flow) in results.flows.iter().filter(|flow| flow.traffic == traffic).enumerate() {
        bytes[i % 2] += flow.measured;
    }
    bytes.map(|bytes| bytes as f64 * 8e-6 / 30.0)
}

/// 20 - 2 * 2 = 16 by 1 : 1 : 3 : 3 gives 2, 2, 6 + 2 and 6 + 2; 28 of 1500 bytes are headers.
#[test]
fn terminals_get_their_committed_rate_and_share_the_rest_by_weight() {
    let results = beam("terminal", FIXED, &[]);
    for (traffic, expected) in [(0, 2.0), (1, 8.0)] {
        for found in goodput(&results, traffic) {
            let expected = expected * PAYLOAD;
            assert!((found / expected - 1.0).abs() < 0.005, "{found} {expected}");
        }
    }
    // Over weight: 2, 2, 8/3, 8/3; (28/3)^2 / (4 * 200/9) = 0.98.
    let counters = results.counters();
    let fairness =
        counters.iter().find(|(name, _)| name == "terminal_weighted_jain_index").map(|found| found.1);
    assert!(fairness.is_some_and(|fairness| (fairness - 0.98).abs() < 0.001), "{fairness:?}");
}

/// Beside 4 Mbit/s to the offices, each terminal of the homes gets its peak rate.
#[test]
fn a_terminal_alone_gets_its_peak_rate() {
    let results = beam("terminal", FIXED, &["traffic.offices.rate=1 Mbps"]);
    for found in goodput(&results, 0) {
        assert!((found / (6.0 * PAYLOAD) - 1.0).abs() < 0.005, "{found}");
    }
}

/// Terminals that share the queues share the carrier as the packets come, and fill it.
#[test]
fn terminals_that_share_the_queues_fill_the_carrier() {
    let results = beam("carrier", FIXED, &[]);
    let sum: f64 = (0..2).flat_map(|traffic| goodput(&results, traffic)).sum();
    assert!((sum / (20.0 * PAYLOAD) - 1.0).abs() < 0.005, "{sum}");
}

/// Packets sent to the terminals add up to those that the gateway sent, and the carrier was never idle.
#[test]
fn records_of_terminals_add_up() {
    for queues_per in ["terminal", "carrier"] {
        let results = beam(queues_per, FIXED, &[]);
        let names: Vec<_> = results.terminals.iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names, ["basic.0", "basic.1", "better.0", "better.1"]);
        let sum = |of: &dyn Fn(&Terminal) -> u64| results.terminals.iter().map(of).sum::<u64>();
        assert_eq!(sum(&|t| t.sent_packets), results.summary.sent_packets);
        assert_eq!(sum(&|t| t.sent_bytes), results.summary.sent_bytes);
        assert_eq!(sum(&|t| t.dropped_packets), results.summary.transmit.dropped);
        assert_eq!(sum(&|t| t.delivered_bytes), results.flows.iter().map(|flow| flow.measured).sum::<u64>());
        let busy = sum(&|t| t.carrier_time.as_nanos()) as f64 * 1e-9;
        assert!((busy / 30.0 - 1.0).abs() < 1e-3, "{queues_per}: {busy} s of 30 s");
        assert!((results.summary.used_share - busy / 30.0).abs() < 1e-9, "{}", results.summary.used_share);
    }
}

/// Without drops, connections that are split at their terminals keep every transmit queue busy; of 1491 bytes of a packet on
/// the PEP link 1460 are data.
#[test]
fn connections_are_split_at_each_terminal() {
    let results = beam_of(
        "terminal",
        FIXED,
        r#"kind = "bulk""#,
        &["gateway.pep.buffer=4 MB", "gateway.transmit_queue.limit=1 GB"],
    );
    for (traffic, expected) in [(0, 2.0), (1, 8.0)] {
        for found in goodput(&results, traffic) {
            let expected = expected * 1460.0 / 1491.0;
            assert!((found / expected - 1.0).abs() < 0.02, "{found} {expected}");
        }
    }
    assert!(results.pep_link.sent > 40_000, "{:?}", results.pep_link);
}

/// The links of the better terminals need four times as long for a byte: 1/5 of the carrier's time for each basic terminal by
/// weight 1 would be more than its peak rate of 6 Mbit/s, which takes 6/40 of the time. The others share the rest.
#[test]
fn slow_links_take_more_of_the_carrier_s_time() {
    let links = r#"
        regulator = { rate = "link" }
        [link.basic]
        between = ["gateway", "basic"]
        rate = "40 Mbps"
        delay = "20 ms"
        [link.better]
        between = ["gateway", "better"]
        rate = "10 Mbps"
        delay = "20 ms"
    "#;
    let results = beam("terminal", links, &["plan.better.down.weight=1", "plan.better.down.cir=0.001 Mbps"]);
    for found in goodput(&results, 0) {
        assert!((found / (6.0 * PAYLOAD) - 1.0).abs() < 0.005, "{found}");
    }
    for found in goodput(&results, 1) {
        assert!((found / (0.35 * 10.0 * PAYLOAD) - 1.0).abs() < 0.01, "{found}");
    }
}

/// A quarter of the time of 4 Mbaud is as much as 1 Mbaud carries: 2.966728 Mbit/s with 16APSK 3/4, 0.988858 with QPSK 1/2.
#[test]
fn terminals_share_a_carrier_s_time_whatever_their_modcods() {
    let links = r#"
        regulator = { rate = "link" }
        [carrier.forward]
        symbol_rate = "4 Mbaud"
        [link.basic]
        between = ["gateway", "basic"]
        capacity = { carrier = "forward", modcod = ["16APSK 3/4"] }
        delay = "20 ms"
        reverse = { rate = "3 Mbps" }
        [link.better]
        between = ["gateway", "better"]
        capacity = { carrier = "forward", modcod = ["QPSK 1/2"] }
        delay = "20 ms"
        reverse = { rate = "3 Mbps" }
    "#;
    let results = beam("terminal", links, &["plan.better.down.weight=1", "plan.better.down.cir=0.001 Mbps"]);
    for (traffic, expected) in [(0, 2.966_728), (1, 0.988_858)] {
        for found in goodput(&results, traffic) {
            assert!((found / (expected * PAYLOAD) - 1.0).abs() < 0.01, "{found} {expected}");
        }
    }
    let busy: f64 = results.terminals.iter().map(|terminal| terminal.carrier_time.as_secs_f64()).sum();
    assert!((busy / 30.0 - 1.0).abs() < 1e-3, "{busy} s of 30 s");

    // Two terminals of each kind with two users of 120 kbit/s each: 480 kbit/s at either rate of the carrier.
    let datagrams = "kind = \"cbr\"\nrate = \"120 kbps\"\npacket = \"1500 B\"";
    let results = beam_of("terminal", links, datagrams, &[]);
    let expected = 0.48 / (4.0 * 2.966_728) + 0.48 / (4.0 * 0.988_858);
    assert!((results.summary.used_share / expected - 1.0).abs() < 0.01, "{}", results.summary.used_share);
}

/// Two terminals have 2 Mbit/s each committed, on links of 20 Mbit/s: a fifth of the carrier. For 3 of the 30 seconds they have 4 Mbit/s:
/// all of it. In an outage of 6 s they take nothing, whatever the rate was before.
#[test]
fn committed_rates_take_no_time_of_the_carrier_in_an_outage() {
    for before in ["20 Mbps", "1 Mbps"] {
        let links = format!(
            r#"
            regulator = {{ rate = "link" }}
            [link.basic]
            between = ["gateway", "basic"]
            rate = "20 Mbps"
            delay = "20 ms"
            [link.better]
            between = ["gateway", "better"]
            capacity.steps = [["0 s", "20 Mbps"], ["15 s", "4 Mbps"], ["18 s", "{before}"], ["18.001 s", "0 bps"], ["24 s", "20 Mbps"]]
            delay = "20 ms"
            "#
        );
        let results = beam("terminal", &links, &[]);
        let shares = &results.series.iter().find(|series| series.name == "committed_share").unwrap().values;
        let with = |share: f64| shares.iter().filter(|found| (*found - share).abs() < 1e-9).count() as f64;
        let (none, all, count) = (with(0.0), with(1.0), shares.len() as f64);
        assert!(
            (none / count - 0.2).abs() < 0.01 && (all / count - 0.1).abs() < 0.01,
            "{none} {all} {count}"
        );
        assert!(with(0.2) + none + all >= count - 1.0);
    }
}
