//! QUIC under simulated time.

use crate::common::{mean, results};
use bentpipe_scenario::Scenario;
use bentpipe_sim::{Packet, Progress, Results, Watch, run_watched};

fn scenario(text: &str) -> Scenario {
    Scenario::parse(text, "test.toml", &[]).unwrap_or_else(|e| panic!("{e}"))
}

/// Two pairs of hosts on a link of 10 Mbit/s with a round trip of 40 ms, and a queue of 40 ms.
fn dumbbell(queue: &str, traffic: &str) -> Scenario {
    scenario(&dumbbell_text(queue, traffic))
}

fn dumbbell_text(queue: &str, traffic: &str) -> String {
    format!(
        r#"
title = "A dumbbell"
[run]
warmup = "20 s"
duration = "120 s"
[host.a]
count = 2
[host.b]
count = 2
[router.left]
[router.right]
[link.in]
between = ["a", "left"]
rate = "100 Mbps"
delay = {{ uniform = ["0 ms", "1 ms"] }}
[link.middle]
between = ["left", "right"]
rate = "10 Mbps"
delay = "20 ms"
{queue}
[link.out]
between = ["right", "b"]
rate = "100 Mbps"
[transport.tcp]
sack = true
abc = true
mss = "1160 B"
header = "68 B"
[transport.quic]
protocol = "quic"
[transport.marked]
protocol = "quic"
ecn = true
{traffic}"#
    )
}

const TAIL_DROP: &str = r#"queue = { limit = "50000 B" }"#;

fn bulk(name: &str, transport: &str, flows: u32) -> String {
    format!(
        "[traffic.{name}]\nkind = \"bulk\"\nfrom = \"a\"\nto = \"b\"\ntransport = \"{transport}\"\nflows = {flows}\n\
         start = {{ uniform = [\"0 s\", \"2 s\"] }}\n"
    )
}

fn goodputs(r: &Results) -> Vec<f64> {
    r.flows.iter().map(|flow| flow.goodput(r.begin, r.end)).collect()
}

/// Of 1228 bytes at most 1168 are data: 28 bytes of IP and UDP, 16 of the tag, 10 of the short header with a packet number of
/// one byte, and 6 of the STREAM frame with an offset of four (RFC 9000, sections 17.3.1 and 19.8).
#[test]
fn a_connection_fills_a_link() {
    let r = results(&dumbbell(TAIL_DROP, &bulk("one", "quic", 1)), 1);
    assert!(mean(&r, "throughput") > 9.3e6, "{}", mean(&r, "throughput"));
    let share = goodputs(&r)[0] / mean(&r, "throughput");
    assert!((0.93..=1168.0 / 1228.0).contains(&share), "{share}");
}

/// Bulk over QUIC, page loads and files: the same seed gives the same flows, and another seed others.
#[test]
fn same_seed_gives_the_same_flows() {
    let traffic = bulk("bulk", "quic", 1)
        + "[traffic.web]\nkind = \"pages\"\nfrom = \"a\"\nto = \"b\"\ntransport = \"quic\"\nsessions = 3\nhttp = \"3\"\n\
           objects_per_page = 12\nobject_size = { exponential = \"20 kB\" }\nthink_time = \"1 s\"\n";
    let flows = |seed| {
        let r = results(&dumbbell(TAIL_DROP, &traffic), seed);
        r.flows.iter().map(|flow| (flow.opened, flow.delivered, flow.drops)).collect::<Vec<_>>()
    };
    let first = flows(1);
    assert!(first.len() > 50, "{}", first.len());
    assert_eq!(first, flows(1));
    assert_ne!(first, flows(2));
}

/// One transfer over a path without loss, with the same controller, packets of the same size and loss detection by time: 40
/// ms, and 600 ms with a queue of 600 ms, where NewReno's window takes minutes from one loss to the next.
#[test]
fn quic_carries_as_much_as_tcp_with_the_same_control() {
    let long = TAIL_DROP.replace("50000 B", "750 KB");
    let all = ["newreno", "cubic", "bbr", "bbr3"];
    for (delay, queue, algorithms) in [("20 ms", TAIL_DROP, &all[..]), ("300 ms", &long, &all[1..])] {
        for algorithm in algorithms {
            let carried = |transport: &str| {
                let text = dumbbell_text(queue, &bulk("one", transport, 1));
                let keys = [
                    format!("transport.{transport}.algorithm=\"{algorithm}\""),
                    format!("link.middle.delay=\"{delay}\""),
                    "transport.tcp.rack=true".to_owned(),
                    "run.warmup=\"60 s\"".to_owned(),
                    "run.duration=\"160 s\"".to_owned(),
                ];
                mean(&results(&Scenario::parse(&text, "test.toml", &keys).unwrap(), 1), "throughput")
            };
            let ratio = carried("quic") / carried("tcp");
            assert!((ratio - 1.0).abs() < 0.03, "{algorithm}, {delay}: {ratio}");
        }
    }
}

/// SEARCH on 600 ms, with a queue of six bandwidth-delay products: no losses over TCP or QUIC, and as much is carried.
#[test]
fn search_ends_slow_start_alike_over_quic_and_tcp() {
    let queue = TAIL_DROP.replace("50000 B", "4500 KB");
    let carried = |transport: &str| {
        let text = dumbbell_text(&queue, &bulk("one", transport, 1));
        let keys = [
            format!("transport.{transport}.algorithm=\"newreno\""),
            format!("transport.{transport}.search=true"),
            "transport.tcp.rack=true".to_owned(),
            "transport.tcp.receive_window=\"16 MB\"".to_owned(),
            "link.middle.delay=\"300 ms\"".to_owned(),
            "run.warmup=\"0 s\"".to_owned(),
            "run.duration=\"40 s\"".to_owned(),
        ];
        let r = results(&Scenario::parse(&text, "test.toml", &keys).unwrap(), 1);
        assert_eq!(r.flows[0].drops, 0, "{transport}");
        mean(&r, "throughput")
    };
    let ratio = carried("quic") / carried("tcp");
    assert!((ratio - 1.0).abs() < 0.03, "{ratio}");
}

/// With the same controller, packets of the same size and a queue that drops at the tail.
#[test]
fn quic_and_tcp_share_within_a_factor_of_two() {
    let traffic = bulk("tcp", "tcp", 2) + &bulk("quic", "quic", 2);
    let mut sums = [0.0; 2];
    for seed in 1..=4 {
        let r = results(&dumbbell(TAIL_DROP, &traffic), seed);
        for flow in &r.flows {
            sums[flow.traffic as usize] += flow.goodput(r.begin, r.end);
        }
    }
    let ratio = sums[1] / sums[0];
    assert!((0.5..2.0).contains(&ratio), "{ratio}");
}

#[test]
fn marks_take_the_place_of_drops() {
    let queue = "queue = { limit = \"400 packets\", marking = \"ecn\", aqm = { algorithm = \"pie\" } }";
    let r = results(&dumbbell(queue, &bulk("two", "marked", 2)), 1);
    assert!(r.summary.marked_packets > 100, "{}", r.summary.marked_packets);
    assert_eq!(r.flows.iter().map(|flow| flow.drops).sum::<u32>(), 0);
    assert!(mean(&r, "throughput") > 9e6);
    // Without ECN the same queue drops.
    let r = results(&dumbbell(queue, &bulk("two", "quic", 2)), 1);
    assert!(r.flows.iter().map(|flow| flow.drops).sum::<u32>() > 100);
}

/// A PEP splits TCP only: beside it QUIC passes unsplit, and both fill the link.
#[test]
fn quic_passes_a_gateway_that_splits_tcp() {
    let text = |traffic: String| {
        scenario(&format!(
            r#"
title = "Past a PEP"
[run]
warmup = "30 s"
duration = "120 s"
[host.a]
count = 2
[host.b]
count = 2
[link.ingress]
between = ["a", "gateway"]
rate = "100 Mbps"
delay = "20 ms"
[gateway]
aqm = {{ algorithm = "droptail" }}
regulator = {{ rate = "5 Mbps" }}
receive_queue = {{ limit = "1000 packets" }}
transmit_queue = {{ limit = "300 packets" }}
[link.satellite]
between = ["gateway", "terminal"]
delay = "250 ms"
[link.access]
between = ["terminal", "b"]
[transport.quic]
protocol = "quic"
algorithm = "cubic"
[transport.tcp]
algorithm = "cubic"
{traffic}"#
        ))
    };
    let alone = results(&text(bulk("quic", "quic", 1)), 1);
    assert_eq!(alone.pep_link.sent, 0);
    assert!(goodputs(&alone)[0] > 0.85 * 5e6, "{}", goodputs(&alone)[0]);
    let both = results(&text(bulk("quic", "quic", 1) + &bulk("tcp", "tcp", 1)), 1);
    assert!(both.pep_link.sent > 1000);
    assert!(goodputs(&both).iter().sum::<f64>() > 0.85 * 5e6, "{:?}", goodputs(&both));
}

/// A server sends at most three times what it has received before the client's address is validated (RFC 9000, section 8.1):
/// a flight of 4000 bytes takes a round trip more than one of 3000.
#[test]
fn a_long_certificate_costs_a_round_trip() {
    for (flight, time) in [(3000, 0.2), (4000, 0.3)] {
        let text =
            page("quic", 3).replace("[traffic.web]", &format!("tls_flight = \"{flight} B\"\n[traffic.web]"));
        let r = results(&scenario(&text), 1);
        assert!((r.flows[0].completion_time() - time).abs() < 1e-5, "{}", r.flows[0].completion_time());
    }
}

/// One host that loads pages of one object from another.
fn page(protocol: &str, http: u32) -> String {
    format!(
        "title = \"A page\"\n[run]\nduration = \"10 s\"\n[host.a]\n[host.b]\n[link.wire]\nbetween = [\"a\", \"b\"]\n\
         delay = \"50 ms\"\nrate = \"100 Gbps\"\nqueue = {{ limit = \"100 packets\" }}\n[transport.t]\n\
         protocol = \"{protocol}\"\n[traffic.web]\nkind = \"pages\"\nfrom = \"a\"\nto = \"b\"\ntransport = \"t\"\n\
         sessions = 1\nhttp = \"{http}\"\nobject_size = \"1000 B\"\nthink_time = \"1 s\"\n"
    )
}

/// One object of 1000 bytes over a link of 50 ms that takes 100 ns for a packet: the handshake takes a round trip, the object another (RFC 9001,
/// section 4.1.1). With HTTP/2 over TCP without TLS it takes as long.
#[test]
fn a_page_of_one_object_takes_two_round_trips() {
    for (protocol, http) in [("quic", 3), ("tcp", 2)] {
        let r = results(&scenario(&page(protocol, http)), 1);
        let times: Vec<_> = r.flows.iter().filter(|f| f.completed).map(|f| f.completion_time()).collect();
        assert!(times.len() >= 8, "{times:?}");
        assert!(times.iter().all(|time| (time - 0.2).abs() < 1e-5), "{protocol}: {times:?}");
    }
}

/// Times of the only class's pages [s]: to render, and to the last byte, both at the median.
fn page_times(r: &Results) -> (f64, f64) {
    let counters = r.classes[0].counters();
    let of =
        |name: &str| counters.iter().find(|(known, _)| known == name).map_or(f64::NAN, |(_, value)| *value);
    (of("render_time_p50"), of("page_time_p50"))
}

/// Behind the document, four objects of 100 kB share 10 Mbit/s, two of which block rendering. Served in turn (no priorities), all of
/// them end with the page. With priorities (RFC 9218, section 10) the other two, 200 kB in packets of 1228 bytes with 1168 of
/// data, follow behind: for 200,000 / 1168 x 1228 x 8 bits / 10 Mbit/s = 168 ms.
#[test]
fn priorities_complete_what_blocks_rendering_before_the_rest_is_sent() {
    let text = page("quic", 3)
        .replace("100 Gbps", "10 Mbps")
        .replace("100 packets", "1000 packets")
        .replace("protocol = \"quic\"", "protocol = \"quic\"\ninitial_window = 1000")
        .replace("\"1000 B\"", "\"100 KB\"\nobjects_per_page = 5\nrequest_size = \"100 B\"");
    let plain = results(&scenario(&text), 1);
    let in_turn = results(&scenario(&format!("{text}render_blocking = 2\n")), 1);
    let by_priority = results(&scenario(&format!("{text}render_blocking = 2\npriorities = true\n")), 1);
    let times = |r: &Results| r.flows.iter().map(|f| f.completion_time()).collect::<Vec<_>>();
    assert!(page_times(&plain).0.is_nan());
    assert_eq!(times(&plain), times(&in_turn), "telling objects apart changes nothing");
    let (rendered, loaded) = page_times(&in_turn);
    assert!((0.0..0.01).contains(&(loaded - rendered)), "{rendered} {loaded}");
    let (rendered, loaded) = page_times(&by_priority);
    assert!((loaded - rendered - 0.168).abs() < 0.005, "{rendered} {loaded}");
    assert!((loaded / page_times(&in_turn).1 - 1.0).abs() < 0.01, "the page takes as long");
}

/// Also a page on a kept connection has its own objects: the first renders within its own time.
#[test]
fn kept_connections_time_each_page_by_its_own_objects() {
    let text = page("quic", 3)
        + "keep_alive = \"1 min\"\nobjects_per_page = 3\nrender_blocking = 1\npriorities = true\n";
    let r = results(&scenario(&text), 1);
    // Document and other objects take a round trip of 100 ms each, the first page one more for the handshake.
    let (rendered, loaded) = page_times(&r);
    assert!((rendered - 0.2).abs() < 1e-3 && (loaded - 0.2).abs() < 1e-3, "{rendered} {loaded}");
    assert_eq!(r.flows.len(), 1);
}

/// Three objects take three round trips of 100 ms. The next page would come after the end of the run, or after 5 s.
#[test]
fn connections_close_when_keep_alive_ends() {
    for (protocol, http) in [("quic", 3), ("tcp", 2)] {
        for (think_time, flows) in [("15 s", 1), ("5 s", 2)] {
            let text = page(protocol, http)
                .replace("think_time = \"1 s\"", &format!("think_time = \"{think_time}\""))
                + "keep_alive = \"500 ms\"\nobjects_per_page = 3\n";
            let r = results(&scenario(&text), 1);
            let times: Vec<_> = r.flows.iter().map(|flow| flow.completion_time()).collect();
            assert_eq!(times.len(), flows);
            assert!(times.iter().all(|time| (time - 0.3).abs() < 1e-3), "{protocol}: {times:?}");
        }
    }
}

/// An HTTP/3 page completes with all its objects, more of them than streams may be open at a time.
#[test]
fn a_page_of_two_thousand_objects_completes() {
    let traffic = "[traffic.web]\nkind = \"pages\"\nfrom = \"a\"\nto = \"b\"\ntransport = \"quic\"\nsessions = 1\n\
                   http = \"3\"\nobjects_per_page = 2000\nobject_size = \"1000 B\"\nthink_time = \"100 s\"\n";
    let r = results(&dumbbell(TAIL_DROP, traffic), 1);
    assert!(r.flows[0].completed);
    assert_eq!(r.flows[0].delivered, 2_000_000);
}

/// Viewers, packets and files over QUIC receive their data.
#[test]
fn every_kind_of_traffic_is_delivered() {
    let hosts = "from = \"a\"\nto = \"b\"\ntransport = \"quic\"\n";
    let traffic = format!(
        "[traffic.files]\nkind = \"files\"\n{hosts}interval = \"500 ms\"\nsize = \"50 kB\"\n\
         [traffic.cbr]\nkind = \"cbr\"\n{hosts}rate = \"400 kbps\"\npacket = \"1028 B\"\n\
         [traffic.video]\nkind = \"dash\"\n{hosts}"
    );
    let r = results(&dumbbell(TAIL_DROP, &traffic), 1);
    let of = |traffic: u32| r.flows.iter().filter(move |flow| flow.traffic == traffic);
    assert!(of(0).filter(|flow| flow.completed && flow.delivered == 50_000).count() > 230);
    let packets = of(1).map(|flow| flow.delivered).sum::<u64>() as f64 / 1000.0;
    assert!((packets / (140.0 * 400_000.0 / 8.0 / 1028.0) - 1.0).abs() < 0.01, "{packets} packets");
    assert!(of(2).map(|flow| flow.delivered).sum::<u64>() > 10_000_000);
}

/// A rate cap holds for the UDP payload.
#[test]
fn a_rate_cap_is_kept() {
    let traffic = bulk("one", "quic", 1) + "rate_cap = \"2 Mbps\"\n";
    let r = results(&dumbbell(TAIL_DROP, &traffic), 1);
    let rate = mean(&r, "throughput") / (2e6 * 1228.0 / 1200.0);
    assert!((0.99..=1.01).contains(&rate), "{rate}");
}

/// A queue into which no first packet fits: the client gives up after the idle timeout.
#[test]
fn a_connection_without_answer_fails_after_the_idle_timeout() {
    let traffic =
        "[traffic.one]\nkind = \"bulk\"\nfrom = \"a\"\nto = \"b\"\ntransport = \"quic\"\nbytes = \"1 MB\"\n";
    let r = results(&dumbbell("queue = { limit = \"1000 B\" }", traffic), 1);
    let flow = r.flows[0];
    assert!(!flow.completed && flow.delivered == 0);
    let time = (flow.closed.expect("given up") - flow.opened).as_secs_f64();
    assert!((30.0..31.0).contains(&time), "{time} s");
}

/// Watched packets have QUIC's bytes: a first one with a long header and 1200 bytes (RFC 9000, section 14.1).
#[test]
fn watched_packets_have_the_bytes_of_quic() {
    let watch = Watch { links: vec!["middle".to_owned()], ..Watch::default() };
    let mut seen = Vec::new();
    let scenario = dumbbell(
        TAIL_DROP,
        "[traffic.one]\nkind = \"bulk\"\nfrom = \"a\"\nto = \"b\"\ntransport = \"quic\"\n\
                                        bytes = \"100 kB\"\n",
    );
    run_watched(&scenario, 1, &Progress::default(), &watch, &mut |s| seen.push(s.clone())).unwrap();
    let payloads: Vec<_> = seen
        .iter()
        .map(|s| match &s.packet {
            Packet::Quic { payload, .. } => (payload, s.len),
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(payloads.len() > 100);
    assert!(payloads.iter().all(|(payload, len)| payload.len() as u32 + 28 == *len));
    let (first, _) = payloads[0];
    assert_eq!((first[0] & 0xf0, &first[1..5], first.len()), (0xc0, &[0, 0, 0, 1][..], 1200));
}

/// Careful Resume (RFC 9959): one user loads pages of 1 MB over 560 ms and 20 Mbit/s. The first page starts slowly; the later
/// ones begin with half of the window that it had, and with a lifetime below the think time all start slowly.
#[test]
fn later_connections_resume_the_path() {
    let times = |keys: &str| {
        let text = page("quic", 3)
            .replace("[traffic.web]", &format!("{keys}\n[traffic.web]"))
            .replace("delay = \"50 ms\"\nrate = \"100 Gbps\"", "delay = \"280 ms\"\nrate = \"20 Mbps\"")
            .replace("100 packets", "1000 packets")
            .replace("duration = \"10 s\"", "duration = \"60 s\"")
            .replace("object_size = \"1000 B\"", "object_size = \"1 MB\"");
        let r = results(&scenario(&text), 1);
        r.flows.iter().filter(|flow| flow.completed).map(|flow| flow.completion_time()).collect::<Vec<_>>()
    };
    let never = times("");
    let resumed = times("careful_resume = \"30 s\"");
    assert!((never[0] - resumed[0]).abs() < 0.01, "{never:?} {resumed:?}");
    // Seven round trips of slow start, and two fewer from half of the window.
    assert!(never.iter().all(|time| (time - never[0]).abs() < 0.1), "{never:?}");
    assert!(resumed[1..].iter().all(|time| never[0] - time > 0.9 * 0.56), "{resumed:?} {never:?}");
    assert_eq!(times("careful_resume = \"500 ms\""), never);
}

/// A client that knows the server sends its request with the first packet, one round trip earlier; so it does after a short
/// think time, and not after one that is longer than tickets are kept.
#[test]
fn later_connections_save_the_round_trip_of_the_handshake() {
    let times = |keys: &str| {
        let text = page("quic", 3)
            .replace("[traffic.web]", &format!("{keys}\n[traffic.web]"))
            .replace("delay = \"50 ms\"\nrate = \"100 Gbps\"", "delay = \"280 ms\"\nrate = \"20 Mbps\"");
        let r = results(&scenario(&text), 1);
        r.flows.iter().filter(|flow| flow.completed).map(|flow| flow.completion_time()).collect::<Vec<_>>()
    };
    let never = times("");
    let resumed = times("zero_rtt = \"1 h\"");
    assert!(never.len() > 2 && (never[0] - resumed[0]).abs() < 0.001, "{never:?} {resumed:?}");
    assert!(resumed[1..].iter().all(|time| (never[0] - time - 0.56).abs() < 0.01), "{resumed:?} {never:?}");
    assert!(times("zero_rtt = \"100 ms\"").iter().all(|time| (never[0] - time).abs() < 0.01));
}

/// A source over a link that loses one packet in twenty: in datagrams as many are lost as over UDP; on a stream all arrive, later.
#[test]
fn datagrams_are_lost_as_over_udp() {
    let source = |transport: &str| {
        format!(
            "loss = 0.05\n[transport.frames]\nprotocol = \"quic\"\ndatagrams = true\n[traffic.m]\nkind = \"cbr\"\nfrom = \"a\"\n\
             to = \"b\"\nrate = \"400 kbps\"\npacket = \"1000 B\"\n{transport}"
        )
    };
    let run = |transport: &str| {
        let text = source(transport);
        let (link, traffic) = text.split_once('\n').unwrap();
        results(&dumbbell(&format!("{TAIL_DROP}\n{link}"), traffic), 1)
    };
    let lost = |r: &Results| {
        let flow = r.flows[0];
        let sent = 120.0 * 400_000.0 / 8.0 / 1000.0;
        let units = f64::from(flow.lost_units + flow.received_units);
        assert!((units - sent).abs() < 15.0, "{units} of {sent} units");
        f64::from(flow.lost_units) / units
    };
    for transport in ["", "transport = \"frames\"\n"] {
        let share = lost(&run(transport));
        assert!((0.04..0.06).contains(&share), "{transport}: {share}");
    }
    assert_eq!(lost(&run("transport = \"quic\"\n")), 0.0);
}

/// One packet in a hundred is lost at random, on a path of 10 Mbit/s and 300 ms. BBR, version 1, does not reduce its rate by losses:
/// what it delivers is 99 % of the rate, less its probes for the round trip, 0.5 s in 10 s.
#[test]
fn random_losses_leave_bbr_its_rate() {
    for transport in ["tcp", "quic"] {
        let text = format!(
            r#"
title = "A path with losses"
[run]
warmup = "10 s"
duration = "40 s"
[host.a]
[host.b]
[link.path]
between = ["a", "b"]
rate = "10 Mbps"
delay = "150 ms"
loss = 0.01
queue = {{ limit = "400 KB" }}
[transport.tcp]
algorithm = "bbr"
sack = true
rack = true
receive_window = "16 MB"
[transport.quic]
protocol = "quic"
algorithm = "bbr"
[traffic.bulk]
kind = "bulk"
from = "a"
to = "b"
transport = "{transport}"
"#
        );
        let throughput = mean(&results(&scenario(&text), 1), "throughput") / 1e6;
        assert!(throughput > 9.0, "{transport}: {throughput} Mbit/s");
    }
}
