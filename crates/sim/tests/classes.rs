//! Data units of classes of traffic, compared with values computed by hand.

use crate::common::{mean, results, shipped};
use bentpipe_scenario::Scenario;
use bentpipe_sim::{Class, Results};

fn run(text: &str) -> Results {
    results(&Scenario::parse(text, "test.toml", &[]).unwrap_or_else(|e| panic!("{e}")), 1)
}

fn class<'a>(results: &'a Results, name: &str) -> &'a Class {
    results.classes.iter().find(|class| class.name == name).unwrap()
}

/// A counter of a class in milliseconds.
fn ms(class: &Class, name: &str) -> f64 {
    class.counters().into_iter().find(|(counter, _)| *counter == name).unwrap().1 * 1e3
}

/// Two hosts on a link of 50 ms, and one packet of 972 bytes of payload each 100 ms.
fn packets(transport: &str, link: &str) -> String {
    format!(
        r#"
title = "Packets"
[run]
warmup = "1 s"
duration = "10 s"
subject = "wire"
[host.client]
count = 1
[host.server]
count = 1
[link.wire]
between = ["server", "client"]
delay = "50 ms"
{link}
[transport.tcp]
[transport.sctp]
protocol = "sctp"
[transport.rtp]
protocol = "rtp"
[traffic.telemetry]
kind = "cbr"
from = "server"
to = "client"
{transport}
rate = "80 kbps"
packet = "1000 B"
"#
    )
}

const QUEUE: &str =
    "rate = \"1 Gbps\"\nqueue = { limit = \"1000 packets\", aqm = { algorithm = \"droptail\" } }";

/// By hand: 972 bytes of payload each 100 ms are 77.76 kbit/s, and 1,000 bytes take 8 us and 50 ms. Traffic in the other direction
/// does not pass the subject.
#[test]
fn samples_of_goodput_and_delay_are_of_traffic_through_the_subject() {
    let reverse = r#"
[traffic.reverse]
kind = "cbr"
from = "client"
to = "server"
rate = "800 kbps"
packet = "500 B"
"#;
    let r = run(&(packets("", QUEUE) + reverse));
    assert!((mean(&r, "goodput") - 77_760.0).abs() < 1e-6);
    assert!((mean(&r, "one_way_delay") - 0.050_008).abs() < 1e-9);
    let quiet = run(&packets("start = \"30 s\"", QUEUE));
    let last = |name: &str| *quiet.series.iter().find(|s| s.name == name).unwrap().values.last().unwrap();
    assert!(last("goodput") == 0.0 && last("one_way_delay").is_nan());
}

#[test]
fn one_way_delay_is_the_same_over_every_transport() {
    for transport in ["", "transport = \"tcp\"", "transport = \"sctp\"", "transport = \"rtp\""] {
        let r = run(&packets(transport, QUEUE));
        let telemetry = class(&r, "telemetry");
        assert!((99..=101).contains(&telemetry.received), "{transport}: {}", telemetry.received);
        assert_eq!(telemetry.lost, 0, "{transport}");
        // At 1 Gbit/s a packet of up to 1100 bytes takes less than 10 µs.
        let delay = ms(telemetry, "delay_mean");
        assert!((50.0..50.01).contains(&delay), "{transport}: {delay} ms");
        assert!(ms(telemetry, "jitter") < 1e-3, "{transport}");
    }
}

/// 20 ms to the gateway, 12 ms in the PEP, 250 ms over the satellite, 2 ms to the client.
#[test]
fn delay_behind_a_pep_includes_both_halves_and_the_pep() {
    let split = r#"
title = "Behind a PEP"
[run]
warmup = "5 s"
duration = "20 s"
[host.server]
count = 1
[host.client]
count = 1
[link.ingress]
between = ["server", "gateway"]
delay = "20 ms"
[gateway]
aqm = { algorithm = "droptail" }
regulator = { rate = "1 Gbps" }
pep = { delay = "12 ms" }
[link.satellite]
between = ["gateway", "terminal"]
delay = "250 ms"
[link.access]
between = ["terminal", "client"]
delay = "2 ms"
[traffic.telemetry]
kind = "cbr"
from = "server"
to = "client"
transport = "default"
rate = "8 kbps"
packet = "1000 B"
"#;
    let r = run(split);
    let telemetry = class(&r, "telemetry");
    assert!(telemetry.received >= 19);
    let delay = ms(telemetry, "delay_mean");
    // The regulator takes up to a tick.
    assert!((284.0..284.1).contains(&delay), "{delay} ms");
    assert!(r.flows[0].delay().is_nan(), "no packet crosses from end to end");
}

/// Six segments of 1360 bytes arrive at the gateway together. Behind the PEP each is a packet of 1391 bytes, which takes
/// 11.128 ms at 1 Mbit/s. The idle regulator holds the credit of a tick of 1 ms, and sends at ticks: the i-th packet
/// leaves at the first tick not before 11.128 i - 1 ms, which is 11 i ms. On the way are 20 ms to the gateway, 12 ms in
/// the PEP, 250 ms over the satellite and 2 ms to the client.
#[test]
fn delay_behind_a_pep_includes_the_wait_in_the_transmit_queue() {
    let transfer = r#"
title = "A page behind a PEP"
[run]
warmup = "0 s"
duration = "20 s"
[host.server]
count = 1
[host.client]
count = 1
[link.ingress]
between = ["server", "gateway"]
delay = "20 ms"
[gateway]
aqm = { algorithm = "droptail" }
regulator = { rate = "1 Mbps", tick = "1 ms" }
pep = { delay = "12 ms" }
[link.satellite]
between = ["gateway", "terminal"]
delay = "250 ms"
[link.access]
between = ["terminal", "client"]
delay = "2 ms"
[transport.default]
mss = "1360 B"
initial_window = 10
[traffic.web]
kind = "pages"
from = "server"
to = "client"
sessions = 1
objects_per_page = 1
object_size = "8160 B"
think_time = "100 s"
"#;
    let r = run(transfer);
    let web = class(&r, "web");
    assert_eq!((web.received, web.lost), (6, 0));
    assert!((ms(web, "delay_mean") - (284.0 + 3.5 * 11.0)).abs() < 1e-6, "{} ms", ms(web, "delay_mean"));
    // Quantiles are exact to a thousandth.
    for (name, i) in [("delay_p50", 3.0), ("delay_p99", 6.0)] {
        assert!((ms(web, name) - (284.0 + i * 11.0)).abs() < 0.4, "{name} {} ms", ms(web, name));
    }
}

/// One packet is lost: a datagram for good, a segment until it is retransmitted.
#[test]
fn a_lost_datagram_is_lost_and_a_lost_segment_is_late() {
    let lossy = format!("{QUEUE}\nloss = {{ nth = [31], of = \"data\" }}");
    let r = run(&packets("", &lossy));
    let telemetry = class(&r, "telemetry");
    assert_eq!(telemetry.lost, 1);
    assert_eq!((r.flows[0].lost_units, u64::from(r.flows[0].received_units)), (1, telemetry.received));
    assert!((50.0..50.1).contains(&ms(telemetry, "delay_p99")));

    let r = run(&packets("transport = \"tcp\"", &lossy));
    let telemetry = class(&r, "telemetry");
    assert_eq!(telemetry.lost, 0);
    assert!((50.0..50.1).contains(&ms(telemetry, "delay_p50")));
    // Three duplicate ACKs report it, one for each of the next packets, 100 ms apart.
    let late = ms(telemetry, "delay_p99");
    assert!(late > 250.0, "{late} ms");
}

#[test]
fn traffic_of_one_class_is_counted_together() {
    let text = packets("class = \"business\"", QUEUE);
    let (head, tail) = text.split_once("[traffic.telemetry]").unwrap();
    let other = tail.replace("80 kbps", "160 kbps");
    let r = run(&format!("{head}[traffic.telemetry]{tail}\n[traffic.control]{other}"));
    assert_eq!(r.classes.len(), 1);
    let both = class(&r, "business");
    assert_eq!(both.received, r.flows.iter().map(|flow| u64::from(flow.received_units)).sum::<u64>());
    assert!((297..=303).contains(&both.received), "{}", both.received);
    assert_eq!(r.class_of, [0, 0]);
}

/// Every packet that a queue drops is a unit lost, and none that a PEP's spacelink repeats.
#[test]
fn lost_units_are_the_dropped_datagrams() {
    let r = results(&shipped("unsplit-udp", &["run.warmup=0 s", "run.duration=30 s"]), 1);
    let flows: Vec<_> = r.flows.iter().map(|flow| r.traffic[flow.traffic as usize].as_str()).collect();
    let dropped = |name: &str| {
        r.drops.flow.iter().filter(|&&flow| flow != u32::MAX && flows[flow as usize] == name).count()
    };
    assert!(dropped("voice") > 0 && dropped("web") > 0);
    assert_eq!(class(&r, "voice").lost, dropped("voice") as u64);
    assert_eq!(class(&r, "web").lost, 0);
}

/// The network delays each packet by 100 ms. The jitter buffer adds one interval, 20 ms, and the sender waited for the
/// 20 ms of voice in the packet.
#[test]
fn a_call_is_heard_after_packet_network_and_jitter_buffer() {
    let text = packets("", QUEUE)
        .replace("delay = \"50 ms\"", "delay = \"100 ms\"")
        .replace("kind = \"cbr\"", "kind = \"voip\"")
        .replace("rate = \"80 kbps\"\npacket = \"1000 B\"\n", "");
    let r = run(&text);
    let call = r.call(&r.flows[0]).unwrap();
    assert!(call.played > 50);
    assert_eq!((call.late, call.lost), (0, 0));
    assert!((call.mouth_to_ear_delay() - 0.140).abs() < 1e-5, "{}", call.mouth_to_ear_delay());
    let fixed =
        run(&text.replace("kind = \"voip\"", "kind = \"voip\"\njitter_buffer = \"60 ms\"\ncodec = \"g729\""));
    let call = fixed.call(&fixed.flows[0]).unwrap();
    assert!((call.mouth_to_ear_delay() - 0.185).abs() < 1e-5, "{}", call.mouth_to_ear_delay());
}

/// Eight objects of one segment each, on a path of 50 ms one way. The first object arrives after the handshake and one
/// round trip, at 200 ms. Over HTTP/1.1 its connection requests another one, which arrives at 300 ms, and then the last,
/// which arrives at 400 ms; five more connections take 200 ms each for one object. Over HTTP/2 all others arrive one round
/// trip later.
#[test]
fn page_time_is_that_of_its_last_object() {
    let pages = |loading: &str| {
        let text = packets("", QUEUE)
            .replace("kind = \"cbr\"", &format!("kind = \"pages\"\n{loading}"))
            .replace("telemetry", "web")
            .replace(
                "rate = \"80 kbps\"\npacket = \"1000 B\"\n",
                "sessions = 1\nobjects_per_page = 8\nobject_size = \"1000 B\"\nthink_time = \"1 s\"\n",
            );
        let r = run(&text);
        let web = class(&r, "web");
        let of = |name: &str| web.counters().into_iter().find(|(counter, _)| *counter == name).unwrap().1;
        assert!(of("pages") > 4.0 && of("pages_failed") == 0.0);
        assert!((of("first_byte_p95") - 0.2).abs() < 1e-3, "{}", of("first_byte_p95"));
        (of("page_time_mean"), of("pages"), r.flows.len() as f64)
    };
    let per_page = |(_, pages, flows): (f64, f64, f64)| flows / pages;
    for (loading, expected, connections) in [
        ("", 0.9, 1.0),
        ("connection_per = \"object\"", 0.2, 8.0),
        ("http = \"1.1\"", 0.4, 6.0),
        ("http = \"2\"", 0.3, 1.0),
    ] {
        let found = pages(loading);
        assert!((found.0 - expected).abs() < 1e-3, "{loading}: {} s", found.0);
        // A page that began before the measurement or ends after the run has connections too.
        assert!((per_page(found) - connections).abs() < 0.3 * connections, "{loading}: {}", per_page(found));
    }
}

/// The page of the test above on a connection that is kept: its handshake takes 100 ms once, at the first page. A connection
/// that has been idle for too long is closed, and the next page opens another.
#[test]
fn later_pages_on_a_kept_connection_need_no_handshake() {
    for (http, protocol) in [("2", "tcp"), ("3", "quic")] {
        for (keep_alive, expected, has_one) in [("1 min", 0.2, true), ("900 ms", 0.3, false)] {
            let text = packets("", QUEUE)
                .replace(
                    "kind = \"cbr\"",
                    &format!(
                        "kind = \"pages\"\nhttp = \"{http}\"\nkeep_alive = \"{keep_alive}\"\ntransport = \"t\""
                    ),
                )
                .replace("telemetry", "web")
                .replace("[traffic.web]", &format!("[transport.t]\nprotocol = \"{protocol}\"\n[traffic.web]"))
                .replace(
                    "rate = \"80 kbps\"\npacket = \"1000 B\"\n",
                    "sessions = 1\nobjects_per_page = 8\nobject_size = \"1000 B\"\nthink_time = \"1 s\"\n",
                );
            let r = run(&text);
            let web = class(&r, "web");
            let of = |name: &str| web.counters().into_iter().find(|(counter, _)| *counter == name).unwrap().1;
            assert!(of("pages") > 4.0 && of("pages_failed") == 0.0);
            let (p50, flows) = (of("page_time_p50"), r.flows.len());
            assert!((p50 - expected).abs() < 0.005, "HTTP/{http}, {keep_alive}: {p50} s");
            assert_eq!(flows == 1, has_one, "HTTP/{http}, {keep_alive}: {flows} connections");
        }
    }
}

/// Two hosts on a link of 50 ms: each step of a probe takes a round trip of 100 ms, and the time to send it.
#[test]
fn steps_of_a_probe_take_a_round_trip_each() {
    let text = packets("", QUEUE).replace(
        "kind = \"cbr\"\nfrom = \"server\"\nto = \"client\"\n\nrate = \"80 kbps\"\npacket = \"1000 B\"",
        "kind = \"probe\"\nfrom = \"server\"\nto = \"client\"\ninterval = \"200 ms\"",
    );
    let r = run(&text);
    let probes = class(&r, "telemetry");
    // A probe takes 300 ms, and the next begins 200 ms later.
    let count = ms(probes, "probes") / 1e3;
    assert!((19.0..=21.0).contains(&count), "{count}");
    for step in ["probe_connect", "probe_tls", "probe_http"] {
        assert!((100.0..100.2).contains(&ms(probes, step)), "{step}: {} ms", ms(probes, step));
    }
    assert!((50.0..50.1).contains(&ms(probes, "probe_request")));
    assert_eq!(probes.received, 0, "probes are no data units");
}

/// Sixteen downloads with windows of 64 KB each on 10 Mbit/s: a standing queue of 0.75 s or so without a loss, in which the
/// steps of probes and the data of the downloads wait.
#[test]
fn probes_and_load_wait_in_a_standing_queue() {
    let queue =
        "rate = \"10 Mbps\"\nqueue = { limit = \"2000 packets\", aqm = { algorithm = \"droptail\" } }";
    let text = packets("", queue)
        .replace("[transport.tcp]", "[transport.default]\nreceive_window = \"64 KB\"\n[transport.tcp]")
        .replace("warmup = \"1 s\"\nduration = \"10 s\"", "warmup = \"10 s\"\nduration = \"60 s\"")
        .replace(
            "[traffic.telemetry]\nkind = \"cbr\"\nfrom = \"server\"\nto = \"client\"\n\nrate = \"80 kbps\"\npacket = \"1000 B\"",
            "[traffic.load]\nkind = \"bulk\"\nclass = \"test\"\nfrom = \"server\"\nto = \"client\"\nflows = 16\n\
             [traffic.probe]\nkind = \"probe\"\nclass = \"test\"\nfrom = \"server\"\nto = \"client\"",
        );
    let r = run(&text);
    let test = class(&r, "test");
    let queue = r.summary.queue_delay[0] * 1e3;
    assert!((700.0..800.0).contains(&queue), "{queue} ms");
    assert!((ms(test, "probe_request") - 50.0).abs() < 1.0, "{} ms", ms(test, "probe_request"));
    for (name, path) in
        [("probe_connect", 100.0), ("probe_tls", 100.0), ("probe_http", 100.0), ("load_delay", 50.0)]
    {
        let waited = ms(test, name) - path;
        assert!((waited / queue - 1.0).abs() < 0.05, "{name}: {waited} ms, the queue {queue} ms");
    }
}
