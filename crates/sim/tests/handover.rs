//! Handovers of terminals to other gateways.

use bentpipe_scenario::Scenario;
use bentpipe_sim::{Flow, Results};

use crate::common;

/// A van that moves at 10 s from the gateway west, with 8 Mbit/s and 30 ms to its user, to east, with 4 Mbit/s and 50 ms.
fn moving(connections: &str, traffic: &str, changes: &[(&str, &str)]) -> Results {
    let text = format!(
        r#"
        title = "Handover"
        [run]
        warmup = "1 s"
        duration = "19 s"
        subject = "west"
        [host.server]
        [host.user]
        count = 2
        [terminal.van]
        handover = {{ to = "van east", at = "10 s", connections = "{connections}" }}
        [terminal."van east"]
        [[gateway]]
        name = "west"
        terminals = ["van"]
        regulator = {{ rate = "8 Mbps" }}
        [[gateway]]
        name = "east"
        terminals = ["van east"]
        regulator = {{ rate = "4 Mbps" }}
        [link.to-west]
        between = ["server", "west"]
        delay = "10 ms"
        [link.to-east]
        between = ["server", "east"]
        delay = "10 ms"
        [link.satellite-west]
        between = ["west", "van"]
        delay = "20 ms"
        reverse = {{ rate = "2 Mbps" }}
        [link.satellite-east]
        between = ["east", "van east"]
        delay = "40 ms"
        reverse = {{ rate = "1 Mbps" }}
        [link.lan]
        between = ["van", "user"]
        [link.lan-east]
        between = ["van east", "user"]
        [transport.default]
        receive_window = "2 MB"
        [traffic.data]
        {traffic}
        "#
    );
    let text = changes.iter().fold(text, |text, (old, new)| {
        assert!(text.contains(old), "{old}");
        text.replace(old, new)
    });
    let scenario = Scenario::parse(&text, "handover.toml", &[]).unwrap_or_else(|e| panic!("{e}"));
    common::results(&scenario, 1)
}

fn counter(results: &Results, name: &str) -> f64 {
    results.counters().iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("no {name}")).1
}

fn seconds(at: Option<bentpipe_units::Instant>) -> f64 {
    at.map_or(f64::NAN, bentpipe_units::Instant::as_secs_f64)
}

#[track_caller]
fn assert_near(found: f64, expected: f64, tolerance: f64) {
    assert!((found / expected - 1.0).abs() < tolerance, "found {found}, expected {expected}");
}

#[track_caller]
fn only(results: &Results) -> &Flow {
    assert_eq!(results.flows.len(), 1, "{:?}", results.flows);
    &results.flows[0]
}

const DOWNLOAD: &str = "kind = \"bulk\"\nfrom = \"server\"\nto = \"user\"\nflows = 1\nbytes = \"12 MB\"";

/// Payload rate of a regulator [bytes/s]: packets of the PEP link have 1460 of 1491 bytes of payload.
fn payload(megabits: f64) -> f64 {
    megabits * 1e6 / 8.0 * 1460.0 / 1491.0
}

/// After a handshake of 20 ms the first data reach west at 30 ms: 9.97 s at 8 Mbit/s less headers leave 2.24 MB of 12, for
/// which 4 Mbit/s need 4.57 s, and the last packet 40 ms.
fn completion() -> f64 {
    10.0 + (12e6 - 9.97 * payload(8.0)) / payload(4.0) + 0.04
}

#[test]
fn datagrams_take_the_way_of_the_new_gateway_and_none_is_lost() {
    for connections in ["break", "survive"] {
        let traffic = "kind = \"cbr\"\nfrom = \"server\"\nto = \"user\"\nflows = 1\nrate = \"1 Mbps\"\npacket = \"1000 B\"";
        let results = moving(connections, traffic, &[]);
        let flow = only(&results);
        // A packet every 8 ms; those of the last 50 ms are on their way.
        assert_eq!((flow.lost_units, flow.drops), (0, 0));
        assert!((2368..=2369).contains(&flow.received_units), "{}", flow.received_units);
        // 30 ms for 9 s, 50 ms for 9.95 s.
        assert_near(flow.delay(), (9.0 * 0.03 + 9.95 * 0.05) / 18.95, 0.002);
        assert_eq!(
            [counter(&results, "handover_flows"), counter(&results, "handover_broken_flows")],
            [1.0, 0.0]
        );
    }
}

#[test]
fn a_split_download_that_survives_gets_every_byte_at_the_rates_of_both_gateways() {
    let results = moving("survive", DOWNLOAD, &[]);
    let flow = only(&results);
    assert!(flow.completed);
    assert_eq!(flow.delivered, 12_000_000);
    assert_near(flow.completion_time(), completion(), 0.003);
    assert_eq!([counter(&results, "handover_flows"), counter(&results, "handover_broken_flows")], [1.0, 0.0]);
}

#[test]
fn a_download_that_breaks_is_counted_and_its_source_begins_another() {
    let results = moving("break", DOWNLOAD, &[]);
    let [first, second] = &results.flows[..] else { panic!("{:?}", results.flows) };
    assert_eq!((seconds(first.closed), first.completed, first.left), (10.0, false, false));
    // The first data arrive after 50 ms, those by east 70 ms after the handover.
    assert_near(first.delivered as f64, 9.95 * payload(8.0), 0.003);
    assert_eq!((seconds(Some(second.opened)), second.closed), (10.0, None));
    assert_near(second.delivered as f64, 9.93 * payload(4.0), 0.003);
    assert_eq!([counter(&results, "handover_flows"), counter(&results, "handover_broken_flows")], [0.0, 1.0]);
}

/// Packets that wait behind a link in outage are forwarded to the new gateway.
#[test]
fn a_download_survives_although_the_old_satellite_link_is_down() {
    let outage = [
        ("regulator = { rate = \"8 Mbps\" }", "regulator = { rate = \"link\" }"),
        (
            "reverse = { rate = \"2 Mbps\" }",
            "capacity = { steps = [[\"0 s\", \"8 Mbps\"], [\"9 s\", \"0 bps\"]], repeat = \"100 s\" }",
        ),
    ];
    let results = moving("survive", DOWNLOAD, &outage);
    let flow = only(&results);
    assert!(flow.completed);
    assert_eq!(flow.delivered, 12_000_000);
    // 1 s less at 8 Mbit/s. The data that were sent before the outage, about 50 ms, may be sent again.
    assert_near(flow.completion_time(), completion() + 2.0, 0.02);
    assert_eq!(flow.lost_units, 0);
}

/// QUIC also if its user's address changes at the handover, between others, before queues that know flows.
#[test]
fn connections_from_end_to_end_survive() {
    let moves = "count = 2\naddress_changes = { interval = \"5 s\" }";
    for (transport, hosts, scheduler) in [
        ("tcp", "count = 2", "fifo"),
        ("quic", "count = 2", "fifo"),
        ("sctp", "count = 2", "fifo"),
        ("quic", moves, "drr"),
    ] {
        let protocol = format!("[transport.default]\nprotocol = \"{transport}\"");
        let queue = format!(
            "transmit_queue = {{ limit = \"60 packets\", scheduler = \"{scheduler}\" }}\npep = {{ split = [] }}"
        );
        let changes = [
            ("receive_window = \"2 MB\"", ""),
            ("[transport.default]", protocol.as_str()),
            ("12 MB", "6 MB"),
            ("count = 2", hosts),
            ("8 Mbps\" }", &format!("8 Mbps\" }}\n{queue}")),
            ("4 Mbps\" }", &format!("4 Mbps\" }}\n{queue}")),
        ];
        let results = moving("survive", DOWNLOAD, &changes);
        let flow = only(&results);
        assert!(flow.completed, "{transport}: {flow:?}");
        assert_eq!(flow.delivered, 6_000_000, "{transport}");
    }
}

#[test]
fn uploads_survive_or_break_with_the_queues_at_the_terminal() {
    let upload = "kind = \"bulk\"\nfrom = \"user\"\nto = \"server\"\nflows = 2\nbytes = \"1500 KB\"";
    let results = moving("survive", upload, &[]);
    // 10 s at 2 Mbit/s carry 2.45 MB of 3, and 1 Mbit/s the rest in 4.5 s, 50 ms before they arrive.
    assert_eq!(results.flows.len(), 2);
    for flow in &results.flows {
        assert!(flow.completed && flow.delivered == 1_500_000, "{flow:?}");
    }
    let last = results.flows.iter().map(Flow::completion_time).fold(0.0, f64::max);
    assert_near(last, 10.0 + (3e6 - 10.0 * payload(2.0)) / payload(1.0) + 0.05, 0.01);

    let results = moving("break", upload, &[]);
    assert_eq!(counter(&results, "handover_broken_flows"), 2.0);
    let closed: Vec<_> = results.flows.iter().map(|flow| seconds(flow.closed)).collect();
    assert_eq!(closed[..2], [10.0, 10.0]);
    let second: u64 = results.flows[2..].iter().map(|flow| flow.delivered).sum();
    assert_near(second as f64, 9.95 * payload(1.0), 0.005);
}

/// Two vans with two users each, and queues for each; each gateway's part of a flow counts for its terminal.
#[test]
fn records_of_terminals_add_up_to_those_of_flows() {
    for (connections, queues) in [("survive", "terminal"), ("break", "terminal"), ("survive", "subscriber")] {
        let queues = format!("regulator = {{ rate = \"8 Mbps\" }}\nqueues_per = \"{queues}\"");
        let queues_east = queues.replace('8', "4");
        let changes = [
            ("count = 2", "count = 4"),
            ("[terminal.van]", "[terminal.van]\ncount = 2"),
            ("[terminal.\"van east\"]", "[terminal.\"van east\"]\ncount = 2"),
            ("regulator = { rate = \"8 Mbps\" }", queues.as_str()),
            ("regulator = { rate = \"4 Mbps\" }", queues_east.as_str()),
            ("flows = 1", "flows = 4"),
            ("12 MB", "100 MB"),
        ];
        let results = moving(connections, DOWNLOAD, &changes);
        let names: Vec<_> = results.terminals.iter().map(|terminal| terminal.name.as_str()).collect();
        assert_eq!(names, ["van.0", "van.1", "van east.0", "van east.1"]);
        let delivered: Vec<_> =
            results.terminals.iter().map(|terminal| terminal.delivered_bytes as f64).collect();
        let of_flows: u64 = results.flows.iter().map(|flow| flow.measured).sum();
        assert_eq!(delivered.iter().sum::<f64>(), of_flows as f64);
        for (found, rate) in delivered.iter().zip([4.0, 4.0, 2.0, 2.0]) {
            let time = if rate == 4.0 { 9.0 } else { 9.95 };
            assert_near(*found, time * payload(rate), 0.01);
        }
    }
}

#[test]
fn a_terminal_can_move_on_to_a_third_gateway() {
    let third = r#"
        bytes = "14 MB"
        kind = "bulk"
        from = "server"
        to = "user"
        flows = 1
        [[gateway]]
        name = "north"
        terminals = ["van north"]
        regulator = { rate = "16 Mbps" }
        [terminal."van north"]
        [link.to-north]
        between = ["server", "north"]
        [link.satellite-north]
        between = ["north", "van north"]
        delay = "10 ms"
        [link.lan-north]
        between = ["van north", "user"]
    "#;
    let own = "[terminal.\"van east\"]";
    let next =
        format!("{own}\nhandover = {{ to = \"van north\", at = \"14 s\", connections = \"survive\" }}");
    let results = moving("survive", third, &[(own, &next)]);
    let flow = only(&results);
    assert!(flow.completed && flow.delivered == 14_000_000, "{flow:?}");
    let left = 14e6 - 9.97 * payload(8.0) - 4.0 * payload(4.0);
    assert_near(flow.completion_time(), 14.0 + left / payload(16.0) + 0.01, 0.005);
    assert_eq!(counter(&results, "handover_flows"), 2.0);
}

/// Pages and viewings that are broken fail, and users go on.
#[test]
fn users_of_pages_and_video_continue_after_a_break() {
    let pages = "kind = \"pages\"\nfrom = \"server\"\nto = \"user\"\nsessions = 2\nobjects_per_page = 3\nobject_size = \"200 KB\"\nthink_time = \"10 ms\"";
    let results = moving("break", pages, &[]);
    let broken = results.flows.iter().filter(|flow| seconds(flow.closed) == 10.0 && !flow.completed).count();
    assert_eq!(counter(&results, "handover_broken_flows"), broken as f64);
    assert!((1..=2).contains(&broken), "{broken}");
    let later = results.flows.iter().filter(|flow| flow.completed && seconds(Some(flow.opened)) > 10.0);
    assert!(later.count() > 4);
}
