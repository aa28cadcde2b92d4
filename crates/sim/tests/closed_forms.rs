//! Runs compared with values computed by hand or by another simulator.

use crate::common::{mean, results, shipped};
use bentpipe_scenario::{Distribution, Pattern, Scenario, TrafficKind};

fn scenario(text: &str) -> Scenario {
    Scenario::parse(text, "test.toml", &[]).unwrap_or_else(|e| panic!("{e}"))
}

/// Two hosts on a link of 1 Mbit/s and 50 ms: 40 bytes take 0.32 ms, 340 take 2.72 ms, 1040 take 8.32 ms.
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
[transport.plain]
mss = "1000 B"
initial_window = 3
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

/// The client's SYN leaves at 0 and arrives at 50.32 ms; the SYN-ACK arrives at 100.64. The request (340 bytes on the
/// wire) completes the handshake and arrives at 100.64 + 2.72 + 50 = 153.36. Three segments take 24.96 ms to send; the
/// first arrives at 153.36 + 8.32 + 50 = 211.68, and its ACK at 262.00, which allows two more segments. The second ACK,
/// 8.32 ms later, allows the last one. These three leave back to back: the last is sent by 262.00 + 3 x 8.32 = 286.96
/// and arrives at 336.96 ms.
#[test]
fn a_page_takes_the_time_of_its_slow_start_rounds() {
    let r = results(&scenario(FETCH), 1);
    let flow = r.flows[0];
    assert!(flow.completed);
    assert_eq!(flow.delivered, 6000);
    assert!((flow.completion_time() - 0.336_96).abs() < 1e-9, "{}", flow.completion_time());
}

/// The same with 20 bytes of options in both SYNs and 12 bytes in all other packets: 60 bytes take 0.48 ms, 52 take 0.416 ms, 352
/// take 2.816 ms and 1052 take 8.416 ms. So the request arrives at 2 x 50.48 + 52.816 = 153.776, the first ACK at 153.776
/// + 58.416 + 50.416 = 262.608, and the last segment at 262.608 + 3 x 8.416 + 50 = 337.856 ms.
#[test]
fn tcp_options_lengthen_packets_if_they_are_counted() {
    let options = "mss = \"1000 B\"\nsack = true\ntimestamps = true\nwindow_scale = 7\noption_bytes = true";
    let r = results(&scenario(&FETCH.replace("mss = \"1000 B\"", options)), 1);
    let flow = r.flows[0];
    assert_eq!(flow.delivered, 6000);
    assert!((flow.completion_time() - 0.337_856).abs() < 1e-9, "{}", flow.completion_time());
    // Without them a packet has only the header.
    let text = FETCH.replace("mss = \"1000 B\"", &options.replace("option_bytes = true", ""));
    let r = results(&scenario(&text), 1);
    assert!((r.flows[0].completion_time() - 0.336_96).abs() < 1e-9, "{}", r.flows[0].completion_time());
}

/// The page above: of three segments sent at once, the i-th has a delay of 50 + 8.32 i ms; the fourth has 58.32 ms. The fifth
/// is queued behind the fourth, and the sixth, sent on the second ACK, behind the fifth: both have 66.64 ms. Requests and
/// handshakes are not counted.
#[test]
fn packet_delay_is_queueing_plus_propagation() {
    let flow = results(&scenario(FETCH), 1).flows[0];
    assert_eq!(flow.received_packets, 6);
    let mean = (58.32 + 66.64 + 74.96 + 58.32 + 66.64 + 66.64) / 6.0;
    assert!((flow.delay() * 1e3 - mean).abs() < 1e-6, "{} ms", flow.delay() * 1e3);
    // Differences of successive delays: 8.32, 8.32, -16.64, 8.32 and 0.
    assert!((flow.jitter() * 1e3 - 5.0 * 8.32 / 5.0).abs() < 1e-6, "{} ms", flow.jitter() * 1e3);
    // One segment has no difference, no segment has no delay.
    let cut = |duration: &str| results(&scenario(&FETCH.replace("10 s\"", duration)), 1).flows[0];
    let (one, none) = (cut("215 ms\"\nsample_interval = \"5 ms\""), cut("200 ms\""));
    assert!(one.received_packets == 1 && (one.delay() * 1e3 - 58.32).abs() < 1e-6 && one.jitter().is_nan());
    assert!(none.received_packets == 0 && none.delay().is_nan());
}

/// The last of six segments is lost: without a tail loss probe it takes a timeout of 1 s to detect that.
#[test]
fn a_lost_tail_is_recovered_by_timeout_or_probe() {
    let loss = "rate = \"1 Mbps\"\nloss = { nth = [6], of = \"data\" }\nreverse.loss = 0";
    let fetch = |options: &str| {
        let text = FETCH.replace("rate = \"1 Mbps\"", loss).replace("initial_window = 3", options);
        let flow = results(&scenario(&text), 1).flows[0];
        assert!(flow.completed);
        flow.completion_time()
    };
    let (by_count, by_time) = (fetch("sack = true"), fetch("sack = true\nrack = true"));
    assert!(by_count > 1.2 && by_time < 1.0, "{by_count} s, {by_time} s");
}

/// A window of ten segments on a path with a larger bandwidth-delay product: ten segments per round trip, which is twice
/// 100 ms plus the time to send a segment (0.832 ms at 10 Mbit/s) and an ACK (0.032 ms).
#[test]
fn a_window_limited_transfer_sends_one_window_per_rtt() {
    let text = FETCH
        .replace("1 Mbps", "10 Mbps")
        .replace("50 ms", "100 ms")
        .replace(r#"duration = "10 s""#, "warmup = \"5 s\"\nduration = \"20 s\"")
        .replace("initial_window = 3", "receive_window = \"10000 B\"");
    let (head, _) = text.split_once("[traffic.web]").unwrap();
    let bulk = "[traffic.bulk]\nkind = \"bulk\"\nfrom = \"server\"\nto = \"client\"\ntransport = \"plain\"\nflows = 1\n";
    let r = results(&scenario(&format!("{head}{bulk}")), 1);
    let expected = 10.0 * 8000.0 / (0.2 + 0.000_832 + 0.000_032);
    let found = r.flows[0].goodput(r.begin, r.end);
    assert!((found / expected - 1.0).abs() < 0.006, "{found} bit/s, by hand {expected}");
}

/// 800 kbit/s of 1000-byte datagrams over 1 Mbit/s: a packet every 10 ms takes 8 ms to send, so no packet waits, and
/// the utilization is 80 %. At 2 Mbit/s half of the packets are dropped once the queue of 10 is full.
#[test]
fn a_constant_rate_gets_its_rate_or_the_capacity() {
    let (head, _) = FETCH.split_once("[transport.plain]").unwrap();
    let head =
        head.replace("1000 packets", "10 packets").replace("duration =", "warmup = \"1 s\"\nduration =");
    let cbr = |rate: &str| {
        let traffic = "[traffic.cbr]\nkind = \"cbr\"\nfrom = \"server\"\nto = \"client\"\nflows = 1\n";
        results(&scenario(&format!("{head}{traffic}rate = \"{rate}\"\npacket = \"1000 B\"\n")), 1)
    };
    let light = cbr("800 kbps");
    assert_eq!(mean(&light, "throughput"), 800_000.0);
    assert_eq!((light.summary.overflow_drops, light.summary.queue_delay[4]), (0, 0.0));
    let heavy = cbr("2 Mbps");
    assert!((mean(&heavy, "throughput") - 1e6).abs() < 2000.0);
    let share = heavy.summary.overflow_drops as f64 / heavy.summary.offered_packets as f64;
    assert!((share - 0.5).abs() < 0.002, "{share}");
    // Every second packet finds room in the queue, so drops are never consecutive.
    assert_eq!(heavy.drop_runs.len(), 1);
    assert_eq!(heavy.drop_runs[0].0, 1);
    // An accepted packet is the tenth in the queue: its delay is 80 ms less the remaining time of the packet being sent.
    let longest = heavy.summary.queue_delay[4];
    assert!((0.072..=0.0801).contains(&longest), "{longest}");
}

/// A delay per connection is the same for all packets of the connection in both directions: the page takes as long as with a
/// fixed delay between the bounds, no packet is overtaken, and none is retransmitted.
#[test]
fn a_delay_per_connection_holds_for_all_its_packets() {
    let own = FETCH
        .replace(r#"delay = "50 ms""#, r#"delay = { uniform = ["20 ms", "80 ms"], per = "connection" }"#)
        .replace("sessions = 1", "sessions = 20")
        .replace(r#"rate = "1 Mbps""#, r#"rate = "1 Gbps""#);
    let r = results(&scenario(&own), 1);
    // Three and a half round trips, as above: SYN, request, three segments, the other segments.
    let (least, most) = (6.0 * 0.020, 6.0 * 0.080 + 0.001);
    let times: Vec<f64> = r.flows.iter().map(|flow| flow.completion_time()).collect();
    assert_eq!(times.len(), 20);
    assert!(times.iter().all(|time| (least..most).contains(time)), "{times:?}");
    let spread = times.iter().copied().fold(0.0, f64::max) - times.iter().copied().fold(1.0, f64::min);
    assert!(spread > 0.1, "{times:?}");
    // Per page six full segments, the last with the FIN, and a SYN-ACK.
    assert_eq!(r.summary.offered_packets, 20 * (6 + 1 + 1));
}

/// All datagrams pass the gateway unsplit if there is no bottleneck: the goodput of a flow is its rate less the 28 bytes of
/// headers in each packet.
#[test]
fn unsplit_datagrams_pass_the_gateway() {
    let scenario = shipped("unsplit-udp", &["traffic.web.sessions=1"]).with_setting("droptail").unwrap();
    let r = results(&scenario, 1);
    let (index, cbr) = scenario
        .traffic
        .iter()
        .enumerate()
        .find_map(|(i, t)| match &t.kind {
            TrafficKind::Packets(cbr) => Some((i as u32, cbr)),
            _ => None,
        })
        .unwrap();
    let Pattern::Cbr { rate, packet: Distribution::Fixed(packet) } = *cbr.pattern else {
        panic!("a constant rate")
    };
    let expected = rate.as_bps() as f64 * (packet - 28) as f64 / packet as f64;
    let flows: Vec<_> = r.flows.iter().filter(|f| f.traffic == index).collect();
    assert_eq!(flows.len(), cbr.flows as usize);
    for flow in flows {
        let goodput = flow.goodput(r.begin, r.end);
        assert!((goodput / expected - 1.0).abs() < 0.01, "{goodput} of {expected}");
    }
}

/// A satellite without delay and without a link behind it: the regulator still limits the rate to 1 Mbit/s.
#[test]
fn the_regulator_limits_a_path_without_delay() {
    let text = r#"
title = "Four times too much"
[run]
warmup = "1 s"
duration = "10 s"
[host.server]
count = 1
[host.client]
count = 1
[link.ingress]
between = ["server", "gateway"]
rate = "10 Mbps"
delay = "20 ms"
[gateway]
aqm = { algorithm = "red" }
regulator = { rate = "1 Mbps", tick = "5 ms" }
[link.satellite]
between = ["gateway", "terminal"]
[link.access]
between = ["terminal", "client"]
[traffic.voice]
kind = "cbr"
from = "server"
to = "client"
flows = 1
rate = "4 Mbps"
packet = "1000 B"
"#;
    let r = results(&scenario(text), 1);
    let goodput = r.flows[0].goodput(r.begin, r.end);
    assert!((0.9e6..1e6).contains(&goodput), "{goodput}");
    assert!(mean(&r, "throughput") <= 1e6);
    let wire = 1000.0 / 972.0;
    assert!((goodput * wire / mean(&r, "throughput") - 1.0).abs() < 0.01);
}

/// The published result of an independent simulator for 50 NewReno flows over 20 Mbit/s and 60 ms (ns-2.35): the link
/// is full, 59.6 packets wait on average, and 5.54 % of the packets are dropped.
#[test]
fn fifty_flows_fill_a_link_as_in_ns_2() {
    let scenario = shipped(
        "red-dumbbell",
        &["link.left.delay=10 ms", "link.bottleneck.delay=10 ms", "link.right.delay=10 ms"],
    );
    let r = results(&scenario, 1);
    assert!(mean(&r, "throughput") > 0.95 * 20e6);
    let drop_rate = r.summary.aqm_drops as f64 / r.summary.offered_packets as f64;
    assert!((drop_rate / 0.055_360_6 - 1.0).abs() < 0.1, "{drop_rate}");
    let queue = r.summary.queue_time_average;
    assert!((queue / 59.6 - 1.0).abs() < 0.1, "{queue}");
}

/// On a path of 560 ms with one packet in five hundred lost, CUBIC, whose window grows with time, carries more than a
/// window that grows with each RTT; recovery by SACK carries no less than NewReno.
#[test]
fn cubic_and_sack_carry_more_on_a_long_lossy_path() {
    let goodput = |overrides: &[&str]| {
        let more =
            ["traffic.bulk.flows=4", "link.bottleneck.loss=0.002", "run.warmup=20 s", "run.duration=100 s"];
        let r = results(&shipped("red-dumbbell", &[overrides, &more].concat()), 1);
        assert!(r.flows.iter().all(|flow| flow.measured > 0), "{overrides:?}");
        r.flows.iter().map(|flow| flow.goodput(r.begin, r.end)).sum::<f64>()
    };
    let reno = goodput(&["transport.ns2.algorithm=reno"]);
    let newreno = goodput(&["transport.ns2.algorithm=newreno"]);
    let sack = goodput(&["transport.ns2.sack=true"]);
    let cubic = goodput(&["transport.ns2.algorithm=cubic", "transport.ns2.sack=true"]);
    assert!(cubic > 1.3 * newreno, "{newreno} {cubic}");
    assert!(sack > 0.9 * newreno && reno > 0.5 * newreno, "{reno} {newreno} {sack}");
}

/// A gateway without processing delay or ticks; a packet of its spacelink carries a segment of 1000 bytes.
const SPLIT: &str = r#"
title = "A page through a PEP"
[run]
duration = "10 s"
sample_interval = "10 s"
[host.client]
count = 1
[host.server]
count = 1
[link.wire]
between = ["server", "gateway"]
rate = "1 Mbps"
delay = "50 ms"
loss = { nth = [2], of = "data" }
reverse.loss = 0
[gateway]
terminal = "terminal"
regulator = { rate = "100 Mbps" }
pep = { delay = "3 ms" }
spacelink = { packet = "1031 B", header = "31 B" }
[link.satellite]
between = ["gateway", "terminal"]
delay = "250 ms"
[link.access]
between = ["terminal", "client"]
[transport.plain]
mss = "1000 B"
initial_window = 10
[traffic.web]
kind = "pages"
from = "server"
to = "client"
transport = "plain"
sessions = 1
object_size = "6000 B"
think_time = "100 s"
"#;

/// The second of six segments is lost. The first arrives at the gateway at T and is processed for 3 ms. The others arrive
/// 8.32 ms apart, those after the lost one at T + 16.64, 24.96, 33.28 and 41.60. The one at T + 33.28 causes the third
/// duplicate ACK, which takes 50.32 ms to the server; the retransmission takes 58.32 ms and arrives at T + 141.92, when
/// the waiting segments are released. So these five have a transit time of 3 + (0 + 125.28 + 116.96 + 108.64 + 100.32) / 5
/// = 93.24 ms on average, and all six of (3 + 5 x 93.24) / 6 = 78.2 ms.
#[test]
fn bytes_wait_in_the_pep_for_lost_ones_before_them() {
    let r = results(&scenario(SPLIT), 1);
    assert!((mean(&r, "transit_time") - 0.0782).abs() < 1e-9, "{}", mean(&r, "transit_time"));
    let whole = results(&scenario(&SPLIT.replace("nth = [2]", "nth = [100]")), 1);
    assert!((mean(&whole, "transit_time") - 0.003).abs() < 1e-12, "{}", mean(&whole, "transit_time"));
}

/// Unsplit datagrams: one of 200 bytes every 100 ms takes 1.6 + 50 ms to the gateway, is processed for 3 ms, until
/// 54.6 ms, and enters the transmit queue at the tick at 55 ms: a transit time of 3.4 ms.
#[test]
fn unsplit_packets_wait_for_processing_and_the_next_tick() {
    let (head, _) = SPLIT.split_once("[transport.plain]").unwrap();
    let voice = "[traffic.voice]\nkind = \"cbr\"\nfrom = \"server\"\nto = \"client\"\nflows = 1\nrate = \"16 kbps\"\n\
                 packet = \"200 B\"\nstart = \"0 s\"";
    let text = format!("{head}{voice}")
        .replace("nth = [2]", "nth = [1]")
        .replace("rate = \"100 Mbps\"", "rate = \"100 Mbps\", tick = \"5 ms\"");
    let r = results(&scenario(&text), 1);
    assert!((mean(&r, "transit_time") - 0.0034).abs() < 1e-12, "{}", mean(&r, "transit_time"));
}

/// One source of packets of 60 bytes (480 bits) over a link of 1 Mbit/s and 213 ms, so that few events wait at a time. One packet
/// more or less depends on the time of the first.
#[test]
fn a_constant_bit_rate_arrives_until_the_end_of_the_run() {
    let text = FETCH.replace("50 ms", "213 ms").replace("\"10 s\"", "\"100 s\"");
    let (before, _) = text.split_once("[transport.plain]").unwrap();
    for kbps in 40..80 {
        let source = format!(
            "kind = \"cbr\"\nfrom = \"server\"\nto = \"client\"\nrate = \"{kbps} kbps\"\npacket = \"60 B\""
        );
        let r = results(&scenario(&format!("{before}[traffic.fixed]\n{source}\nflows = 1")), 1);
        let expected = 100_000.0 * f64::from(kbps) / 480.0;
        let sent = r.summary.sent_packets as f64;
        assert!((sent - expected).abs() <= 1.0, "{kbps}: {sent}, {expected}");
        assert_eq!(r.series[0].values.len(), 1000, "{kbps}");
    }
}
