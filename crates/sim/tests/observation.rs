//! Observation of runs: observed packets, links and senders; results are the same as without.

use crate::common::{results, shipped};
use bentpipe_scenario::Scenario;
use bentpipe_sim::{
    Error, Observation, Packet, Progress, Results, Selector, Watch, check_watch, interfaces, run_watched,
};
use bentpipe_transport::tcp::Flags;
use bentpipe_units::Duration;

fn watched(
    scenario: &Scenario,
    links: &[&str],
    flows: &[&str],
) -> Result<(Results, Vec<Observation>), Error> {
    let watch = Watch {
        links: links.iter().map(|&name| name.to_owned()).collect(),
        flows: flows.iter().map(|text| Selector::parse("trace", text, scenario).unwrap()).collect(),
        logs: None,
    };
    let mut seen = Vec::new();
    let results = run_watched(scenario, 1, &Progress::default(), &watch, &mut |observation| {
        seen.push(observation.clone())
    })?;
    Ok((results, seen))
}

fn short() -> Scenario {
    shipped("small-gateway", &["run.duration=20 s"])
}

#[test]
fn observation_does_not_change_the_results() {
    let scenario = short();
    let plain = results(&scenario, 1);
    let (seen, observations) =
        watched(&scenario, &["satellite", "ingress", "access"], &["flow:0", "traffic:web:3"]).unwrap();
    assert_eq!(seen.events, plain.events);
    assert_eq!(format!("{:?}", seen.series), format!("{:?}", plain.series));
    assert_eq!(format!("{:?}", seen.drops), format!("{:?}", plain.drops));
    assert_eq!(format!("{:?}", seen.flows), format!("{:?}", plain.flows));
    assert!(plain.trace.is_empty() && !seen.trace.is_empty());
    assert!(observations.is_sorted_by_key(|observation| observation.time));
    // All packets sent over the satellite while measuring, as counted by the gateway.
    let left = observations.iter().filter(|s| s.interface == 0 && s.time > seen.begin).count() as u64;
    assert!(left.abs_diff(seen.summary.sent_packets) <= 1, "{left} {}", seen.summary.sent_packets);
}

/// All packets of an access link of the dumbbell come from the link between the routers, so they have no event between the
/// two. Where they are observed there, they have one, which changes nothing; and its time is that of their arrival: after a
/// transmission of 1040 bytes at 20 Mbit/s and 250 ms, or 3.2 µs and 15 ms before an acknowledgement of 40 bytes arrives.
#[test]
fn observation_between_two_links_does_not_change_the_results() {
    let scenario = shipped("red-dumbbell", &["run.warmup=2 s", "run.duration=10 s"]);
    let plain = results(&scenario, 1);
    let (seen, observations) = watched(&scenario, &["left", "bottleneck", "right"], &[]).unwrap();
    assert!(seen.events > plain.events);
    assert_eq!(format!("{:?}", seen.series), format!("{:?}", plain.series));
    assert_eq!(format!("{:?}", seen.drops), format!("{:?}", plain.drops));
    assert_eq!(format!("{:?}", seen.flows), format!("{:?}", plain.flows));
    assert!(observations.is_sorted_by_key(|observation| observation.time));

    let names = ["left", "bottleneck", "right"].map(str::to_owned);
    let interfaces = interfaces(&scenario, &names).unwrap();
    let times = |watched: usize, outbound: bool, len: u32| {
        let wanted = |seen: &&Observation| {
            let interface = &interfaces[seen.interface as usize];
            (interface.watched, interface.outbound, seen.len) == (watched, outbound, len)
        };
        observations.iter().filter(wanted).map(|seen| seen.time.as_nanos()).collect::<Vec<_>>()
    };
    let follow = |before: Vec<u64>, after: Vec<u64>, nanos: u64| {
        assert!(after.len() > 5_000 && before.len() >= after.len());
        assert!(before.iter().zip(&after).all(|(before, after)| before + nanos == *after));
    };
    follow(times(1, true, 1040), times(2, true, 1040), 250_416_000);
    follow(times(1, false, 40), times(0, false, 40), 15_003_200);
}

/// A link of 1 Mbit/s and 50 ms; a client asks for 6000 bytes, as in `closed_forms.rs`.
const FETCH: &str = r#"
title = "One page"
[run]
duration = "10 s"
subject = "wire"
[host.client]
count = 1
[host.server]
count = 1
[link.wire]
between = ["server", "client"]
rate = "1 Mbps"
delay = "50 ms"
queue = { limit = "1000 packets", aqm = { algorithm = "droptail" } }
[link.idle]
between = ["server", "client"]
rate = "1 Mbps"
delay = "60 ms"
[transport.plain]
mss = "1000 B"
initial_window = 3
clock_granularity = "0 s"
[traffic.web]
kind = "pages"
from = "server"
to = "client"
transport = "plain"
sessions = 1
object_size = "6000 B"
request_size = "300 B"
think_time = "100 s"
"#;

fn fetch() -> Scenario {
    Scenario::parse(FETCH, "test.toml", &[]).unwrap_or_else(|e| panic!("{e}"))
}

/// At the server: the client's SYN arrives after 0.32 + 50 ms, and the SYN-ACK leaves at once. The request, 340 bytes,
/// completes the handshake after another 50.32 + 52.72 ms; then three segments of 8.32 ms each are sent. The first ACK
/// arrives 8.32 + 50 + 50.32 ms after the start of the first segment, at 262.00 ms, and allows two more.
#[test]
fn packets_are_observed_at_the_first_node_of_a_link() {
    let (_, seen) = watched(&fetch(), &["wire"], &[]).unwrap();
    let row = |s: &Observation| {
        let Packet::Tcp { ends, segment, .. } = &s.packet else { panic!("not TCP") };
        assert_eq!((ends.flow, ends.leg, ends.sender_opened), (0, 0, false));
        assert_eq!(ends.with_data, s.interface == 0);
        (s.interface, s.time.as_nanos() / 10_000, segment.flags.has(Flags::SYN), segment.len, s.len)
    };
    let first: Vec<_> = seen.iter().take(8).map(row).collect();
    let by_hand = [
        (1, 5_032, true, 0, 40),
        (0, 5_032, true, 0, 40),
        (1, 15_336, false, 300, 340),
        (0, 15_336, false, 1000, 1040),
        (0, 16_168, false, 1000, 1040),
        (0, 17_000, false, 1000, 1040),
        (1, 26_200, false, 0, 40),
        (0, 26_200, false, 1000, 1040),
    ];
    assert_eq!(first, by_hand);
}

/// The SYN-ACK leaves at 50.32 ms and its ACK arrives, with the request, at 153.36: a round trip of 103.04 ms, so the RTO
/// is 3 x 103.04 ms, raised to the minimum of 1 s. The first segment's round trip is 8.32 + 50 + 0.32 + 50 = 108.64 ms.
#[test]
fn a_trace_has_the_state_of_the_sender() {
    let (r, _) = watched(&fetch(), &[], &["flow:0"]).unwrap();
    let at = |ms: u64| r.trace.iter().rfind(|row| row.time.as_nanos() <= ms * 1_000_000).unwrap();
    let micros = Duration::from_micros;
    assert!(r.trace.iter().all(|row| (row.flow, row.leg) == (0, 0)));
    let begun = at(155).state;
    assert_eq!((begun.cwnd, begun.ssthresh, begun.in_flight), (3000, None, 3000));
    assert_eq!((begun.rtt, begun.srtt), (Some(micros(103_040)), Some(micros(103_040))));
    assert_eq!(begun.rto, micros(1_000_000));
    // In slow start the ACK of a segment adds one segment to the window and takes one from flight: two are sent.
    let later = at(263).state;
    assert_eq!((later.cwnd, later.in_flight, later.rtt), (4000, 4000, Some(micros(108_640))));
    // 7/8 of 103.04 and 1/8 of 108.64.
    assert_eq!(later.srtt, Some(micros(103_740)));
    assert_eq!((later.retransmissions, later.timeouts), (0, 0));
    // Rows of a connection have different milliseconds, and each differs from the one before.
    for pair in r.trace.windows(2) {
        assert!(pair[0].time.as_nanos() / 1_000_000 < pair[1].time.as_nanos() / 1_000_000);
        assert_ne!(pair[0].state, pair[1].state);
    }
}

/// One packet in a million arrives. Without an RTT sample the probe timeout is 333 + 4 * 166.5 ms (RFC 9002, sections 6.2.1 and 6.2.2), and it
/// doubles each time; after 30 s the connection is given up.
#[test]
fn probe_timeouts_of_quic_are_counted_in_its_trace() {
    let text = "title = \"t\"\nrun = { duration = \"25 s\", sample_interval = \"1 s\", subject = \"l\" }\n\
                host = { a = {}, b = {} }\n\
                [link.l]\nbetween = [\"a\", \"b\"]\nrate = \"10 Mbps\"\ndelay = \"50 ms\"\nloss = 0.999999\nqueue = {}\n\
                [transport.q]\nprotocol = \"quic\"\n\
                [traffic.t]\nkind = \"bulk\"\nfrom = \"a\"\nto = \"b\"\ntransport = \"q\"\n";
    let scenario = Scenario::parse(text, "t.toml", &[]).unwrap();
    let (r, _) = watched(&scenario, &[], &["traffic:t:0"]).unwrap();
    let begin = r.trace[0].time;
    let first = |count| r.trace.iter().find(|row| row.state.timeouts == count).unwrap().time - begin;
    let times = [1, 2, 3, 4].map(first);
    assert_eq!(times, [999, 2997, 6993, 14_985].map(Duration::from_millis));
    assert!(r.trace.iter().all(|row| row.state.timeouts <= 4));
}

/// INIT and INIT-ACK give the first round-trip sample; the initial window is
/// min(4 PMTU, max(2 PMTU, 4404)) bytes (RFC 9260, section 7.2.1).
#[test]
fn an_association_is_traced_too() {
    let text = "title = \"t\"\nrun = { duration = \"5 s\", sample_interval = \"1 s\", subject = \"l\" }\n\
                host = { a = {}, b = {} }\n\
                [link.l]\nbetween = [\"a\", \"b\"]\nrate = \"10 Mbps\"\ndelay = \"50 ms\"\nqueue = {}\n\
                [transport.s]\nprotocol = \"sctp\"\n\
                [traffic.t]\nkind = \"bulk\"\nfrom = \"a\"\nto = \"b\"\ntransport = \"s\"\n";
    let scenario = Scenario::parse(text, "t.toml", &[]).unwrap();
    let (r, _) = watched(&scenario, &[], &["traffic:t:0"]).unwrap();
    let begun = r.trace.iter().find(|row| row.state.rtt.is_some()).unwrap().state;
    let rtt = begun.rtt.unwrap().as_secs_f64();
    assert!((0.1..0.101).contains(&rtt), "{rtt}");
    assert!((4380..=4500).contains(&begun.cwnd), "{}", begun.cwnd);
    assert!(r.trace.windows(2).all(|pair| pair[0].state != pair[1].state));
    assert!(r.trace.iter().any(|row| row.state.cwnd > 100_000));
}

/// A split flow has two senders of data.
#[test]
fn both_senders_of_a_split_flow_are_traced() {
    let (r, _) = watched(&short(), &[], &["traffic:web:3"]).unwrap();
    let flow = r.trace[0].flow;
    let legs = |leg| r.trace.iter().filter(|row| row.flow == flow && row.leg == leg).count();
    assert!(legs(0) > 0 && legs(1) > 0 && legs(2) == 0);
    assert!(r.trace.iter().all(|row| r.flows[row.flow as usize].session == 3));
}

#[test]
fn unknown_links_and_flows_are_refused() {
    let scenario = short();
    let unseen = |links: &[&str], flows: &[&str]| match watched(&scenario, links, flows) {
        Err(Error::NotFound(why)) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(unseen(&["sky"], &[]), "there is no link \"sky\"; there are ingress, satellite, access");
    assert_eq!(unseen(&["ingress", "ingress.2"], &[]), "link ingress.2: is named twice");
    let why = unseen(&[], &["flow:100000"]);
    assert!(why.starts_with("trace flow:100000: the run had ") && why.contains("numbered 0 to "), "{why}");
    let why = unseen(&[], &["traffic:web:40"]);
    assert_eq!(why, "trace traffic:web:40: 40 sessions of traffic web began, but not that one");

    let idle = Watch { links: vec!["idle".to_owned()], ..Watch::default() };
    let why = check_watch(&fetch(), &idle).unwrap_err().to_string();
    assert!(why.starts_with("link idle: no packet is ever on it"), "{why}");

    for (text, wrong) in [
        ("17", "found \"17\""),
        ("flow:", "found \"\""),
        ("flow:-1", "found \"-1\""),
        ("flow:+1", "found \"+1\""),
        ("flow:99999999999", "found \"99999999999\""),
        ("traffic:bulk:1", "found traffic \"bulk\"; allowed: web"),
        ("traffic:web", "found \"traffic:web\""),
    ] {
        let why = Selector::parse("trace", text, &scenario).unwrap_err();
        assert!(why.contains(&format!("trace {text}: ")) && why.contains(wrong), "{why}");
    }
    let voice = shipped("unsplit-udp", &["run.duration=5 s", "run.warmup=1 s"]);
    let name = &voice.traffic.iter().find(|t| t.name != "web").unwrap().name;
    let why = Selector::parse("trace", &format!("traffic:{name}:0"), &voice).unwrap_err();
    assert!(why.ends_with(&format!("traffic {name} has no congestion window")), "{why}");
}

#[test]
fn a_link_of_a_group_has_interfaces_for_each_member() {
    let names = |links: &[&str]| {
        let links: Vec<_> = links.iter().map(|&name| name.to_owned()).collect();
        let found = interfaces(&short(), &links).unwrap();
        found.iter().map(|i| format!("{} {} {} {}", i.watched, i.name, i.from, i.to)).collect::<Vec<_>>()
    };
    assert_eq!(names(&["ingress"]).len(), 10);
    assert_eq!(
        names(&["satellite", "ingress.4"]),
        [
            "0 satellite gateway terminal",
            "0 satellite reverse terminal gateway",
            "1 ingress.4 server.4 gateway",
            "1 ingress.4 reverse gateway server.4"
        ]
    );
}
