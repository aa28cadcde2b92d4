//! The bottleneck of flows, on scenarios built to have one, which more of the named resource relieves and more of another
//! does not.

use crate::common::results;
use bentpipe_scenario::Scenario;
use bentpipe_sim::{Class, Results};

/// A download of 60 s through a gateway with a PEP: 40 ms, 250 ms and 2 ms one way.
const SPLIT: &str = r#"
title = "Behind a PEP"
[run]
warmup = "20 s"
duration = "40 s"
[host.server]
[host.client]
[transport.default]
receive_window = "8 MB"
[link.ingress]
between = ["server", "gateway"]
rate = "1 Gbps"
delay = "40 ms"
[gateway]
aqm = { algorithm = "droptail" }
regulator = { rate = "20 Mbps" }
transmit_queue.limit = "10000 packets"
pep = { buffer = "8 MB", buffer_per = "connection" }
spacelink = { window = "8 MB", stream_window = "8 MB" }
[link.satellite]
between = ["gateway", "terminal"]
delay = "250 ms"
reverse = { rate = "10 Mbps" }
[link.access]
between = ["terminal", "client"]
rate = "100 Mbps"
delay = "2 ms"
[traffic.download]
kind = "bulk"
from = "server"
to = "client"
"#;

/// A download over one link with a queue: 50 ms one way.
const PLAIN: &str = r#"
title = "Without a PEP"
[run]
warmup = "20 s"
duration = "40 s"
subject = "wire"
[host.server]
[host.client]
[transport.default]
receive_window = "8 MB"
[link.wire]
between = ["server", "access_point"]
delay = "50 ms"
rate = "10 Mbps"
queue = { limit = "100 packets", aqm = { algorithm = "droptail" } }
[router.access_point]
[link.last]
between = ["access_point", "client"]
[traffic.download]
kind = "bulk"
from = "server"
to = "client"
"#;

fn run(text: &str, overrides: &[&str]) -> Results {
    let overrides: Vec<_> = overrides.iter().map(|text| (*text).to_owned()).collect();
    results(&Scenario::parse(text, "test.toml", &overrides).unwrap_or_else(|e| panic!("{e}")), 1)
}

fn counter(class: &Class, name: &str) -> f64 {
    class.counters().into_iter().find(|(counter, _)| *counter == name).map_or(0.0, |(_, value)| value)
}

/// Share of the samples of the flows in which a resource limits them.
fn share(r: &Results, name: &str) -> f64 {
    counter(&r.classes[0], &format!("limited_by_{name}")) / counter(&r.classes[0], "limited_samples")
}

/// Payload of all flows [Mbit/s].
fn goodput(r: &Results) -> f64 {
    r.flows.iter().map(|flow| flow.measured).sum::<u64>() as f64 * 8e-6 / (r.end - r.begin).as_secs_f64()
}

/// `limit` makes the resource scarce, `more` doubles it, `other` doubles another.
fn check(text: &str, name: &str, limit: &[&str], more: &[&str], other: &[&str]) {
    let with = |changes: &[&str]| run(text, &[limit, changes].concat());
    let (r, relieved, elsewhere) = (with(&[]), with(more), with(other));
    let (found, more, other) = (goodput(&r), goodput(&relieved), goodput(&elsewhere));
    let limits = r.classes[0].counters().into_iter().filter(|(name, _)| name.starts_with("limited"));
    assert!(share(&r, name) > 0.9, "{name}: {:?}", limits.collect::<Vec<_>>());
    assert!(more > 1.5 * found, "{name}: {found} Mbit/s, with more of it {more}");
    assert!((other / found - 1.0).abs() < 0.1, "{name}: {found} Mbit/s, with more of another {other}");
}

#[test]
fn a_full_carrier_limits() {
    check(SPLIT, "carrier", &[], &["gateway.regulator.rate=40 Mbps"], &["gateway.pep.buffer=16 MB"]);
    check(PLAIN, "carrier", &[], &["link.wire.rate=20 Mbps"], &["transport.default.receive_window=16 MB"]);
}

/// 200 KB in a round trip of 0.504 s are 3.2 Mbit/s.
#[test]
fn a_small_pep_buffer_limits() {
    let small = ["gateway.pep.buffer=200 KB"];
    check(SPLIT, "pep_buffer", &small, &["gateway.pep.buffer=400 KB"], &["gateway.regulator.rate=40 Mbps"]);
}

/// 200 KB of the PEP's buffer wait for a satellite round trip of 0.5 s, and, if their room is the server's window, for one of
/// 80 ms to the server before: less than 2.76 Mbit/s, as room of less than a segment is not told. A receive buffer ahead of it
/// keeps it full, 3.2 Mbit/s; the PEP still limits.
#[test]
fn a_receive_buffer_ahead_of_the_pep_keeps_its_buffer_full() {
    let small = ["gateway.pep.buffer=200 KB", "gateway.spacelink.ack_every=1"];
    let with = |more: &[&str]| run(SPLIT, &[&small, more].concat());
    let (without, full) = (with(&[]), with(&["gateway.pep.receive_buffer=200 KB"]));
    let full_goodput = goodput(&full);
    let most = 1.6 / 0.58;
    assert!((0.94 * most..most).contains(&goodput(&without)), "{}", goodput(&without));
    assert!((full_goodput / (1.6 / 0.501) - 1.0).abs() < 0.01, "{full_goodput}");
    assert!(share(&full, "pep_buffer") > 0.9);
    // With window marking servers see the room in the PEP's buffer in any case.
    let marking = ["gateway.marking=window", "gateway.aqm={ algorithm = \"red\" }"];
    let [seen, unseen] = [true, false].map(|with_buffer| {
        let more = ["gateway.pep.receive_buffer=200 KB"];
        goodput(&with(&[&marking[..], if with_buffer { &more } else { &[] }].concat()))
    });
    assert_eq!(seen, unseen);
}

#[test]
fn a_small_spacelink_window_limits() {
    let small = ["gateway.spacelink.stream_window=200 KB"];
    let more = ["gateway.spacelink.stream_window=400 KB"];
    check(SPLIT, "spacelink_window", &small, &more, &["gateway.regulator.rate=40 Mbps"]);
    let small = ["gateway.spacelink.window=200 KB", "gateway.spacelink.stream_window=200 KB"];
    let more = ["gateway.spacelink.window=400 KB", "gateway.spacelink.stream_window=400 KB"];
    check(SPLIT, "spacelink_window", &small, &more, &["gateway.regulator.rate=40 Mbps"]);
}

/// 64 KB in a round trip of 0.1 s are 5.1 Mbit/s.
#[test]
fn a_small_receive_window_limits() {
    let small = ["transport.default.receive_window=64 KB", "link.wire.rate=50 Mbps"];
    check(
        PLAIN,
        "receive_window",
        &small,
        &["transport.default.receive_window=128 KB"],
        &["link.wire.rate=100 Mbps"],
    );
}

#[test]
fn a_slow_access_link_limits() {
    let slow = ["link.access.rate=4 Mbps"];
    check(SPLIT, "link.access", &slow, &["link.access.rate=8 Mbps"], &["gateway.regulator.rate=40 Mbps"]);
}

/// The AQM ahead of the PEP keeps the queue short and the carrier busy: the carrier limits without a queue.
#[test]
fn an_aqm_without_a_queue_limits_for_the_carrier() {
    let avqred = ["gateway.aqm.algorithm=avqred", "traffic.download.flows=8"];
    let r = run(SPLIT, &avqred);
    assert!(share(&r, "carrier") > 0.8, "{:?}", r.classes[0].counters());
}

/// At 1 % loss TCP in a round trip of 0.1 s gets about 1460 B / 0.1 s x 1.2 / 0.1 = 1.4 Mbit/s (Mathis et al. 1997).
#[test]
fn losses_limit_on_a_link_that_is_not_full() {
    let losses = ["link.wire.rate=100 Mbps", "link.wire.loss=0.01"];
    check(PLAIN, "loss", &losses, &["link.wire.loss=0.002"], &["link.wire.rate=200 Mbps"]);
}

/// The same download over QUIC, which no gateway splits.
fn over_quic(text: &str) -> String {
    text.replace(
        "[traffic.download]\n",
        "[transport.quic]\nprotocol = \"quic\"\n[traffic.download]\ntransport = \"quic\"\n",
    )
}

/// As for TCP: a full link; flow control of 64 KB in a round trip of 0.1 s, 5.1 Mbit/s; losses.
#[test]
fn quic_is_limited_by_the_carrier_by_flow_control_or_by_losses() {
    let plain = over_quic(PLAIN);
    check(&plain, "carrier", &[], &["link.wire.rate=20 Mbps"], &["transport.quic.max_data=32 MB"]);
    let small = ["transport.quic.max_data=64 KB", "link.wire.rate=50 Mbps"];
    let more = ["transport.quic.max_data=128 KB"];
    check(&plain, "receive_window", &small, &more, &["link.wire.rate=100 Mbps"]);
    let losses = ["link.wire.rate=100 Mbps", "link.wire.loss=0.01"];
    check(&plain, "loss", &losses, &["link.wire.loss=0.002"], &["link.wire.rate=200 Mbps"]);
}

/// Viewers of 1 Mbit/s at most, on a carrier of 20.
#[test]
fn a_sender_without_data_limits_itself() {
    let video = SPLIT.replace("kind = \"bulk\"", "kind = \"dash\"\nladder = [\"500 kbps\", \"1 Mbps\"]\n");
    for text in [video.clone(), over_quic(&video)] {
        let r = run(&text, &[]);
        assert!(share(&r, "sender") > 0.8, "{:?}", r.classes[0].counters());
    }
}

/// A rate that the application keeps to is the application's limit.
#[test]
fn a_capped_rate_of_quic_is_the_senders() {
    let capped = over_quic(PLAIN).replace("kind = \"bulk\"", "kind = \"bulk\"\nrate_cap = \"2 Mbps\"");
    let r = run(&capped, &[]);
    assert!(share(&r, "sender") > 0.8, "{:?}", r.classes[0].counters());
}

/// Files of 14 KB need a handshake of one round trip, and begin with ten segments: hardly anything but the path's delay.
#[test]
fn short_transfers_are_limited_by_their_start() {
    let files = PLAIN.replace(
        "kind = \"bulk\"",
        "kind = \"files\"\nsize = \"60 KB\"\ninterval = { exponential = \"1 s\" }\n",
    );
    let r = run(&files, &["link.wire.rate=100 Mbps"]);
    assert!(share(&r, "start_up") > 0.5, "{:?}", r.classes[0].counters());
    assert!(share(&r, "carrier") < 0.1, "{:?}", r.classes[0].counters());
}

/// Two downloads without end and one transfer of 100 kbit/s, over one satellite link with a queue per flow: the downloads
/// fill the carrier, while the transfer never gets less than it sends.
const GREEDY_AND_SPARSE: &str = r#"
[traffic.greedy]
kind = "bulk"
from = "server"
to = "client"
flows = 2
[traffic.sparse]
kind = "cbr"
from = "server"
to = "client"
transport = "default"
rate = "100 kbps"
packet = "500 B"
"#;

/// Share of the samples of a class in which the carrier limits.
fn carrier_share(r: &Results, class: &str) -> f64 {
    let class = r.classes.iter().find(|found| found.name == class).unwrap();
    counter(class, "limited_by_carrier") / counter(class, "limited_samples")
}

#[test]
fn a_scheduler_that_favours_a_sparse_flow_relieves_it_of_the_carrier() {
    for (text, scheduler) in
        [(SPLIT, "gateway.transmit_queue.scheduler"), (PLAIN, "link.wire.queue.scheduler")]
    {
        let base = text.split("[traffic.download]").next().unwrap();
        let text = format!("{base}{GREEDY_AND_SPARSE}");
        for (name, limits_sparse) in [("fifo", true), ("drr", false)] {
            let r = run(&text, &[&format!("{scheduler}={name}")]);
            let (greedy, sparse) = (carrier_share(&r, "greedy"), carrier_share(&r, "sparse"));
            assert!(greedy > 0.9, "{scheduler} {name}: greedy {greedy}");
            let is_as_expected = if limits_sparse { sparse > 0.5 } else { sparse < 0.05 };
            assert!(is_as_expected, "{scheduler} {name}: sparse {sparse}");
        }
    }
}

/// Eight equal downloads with a queue per flow: each gets its share of a full carrier, which limits all.
#[test]
fn flows_with_equal_shares_of_a_full_carrier_are_limited_by_it() {
    let r = run(SPLIT, &["gateway.transmit_queue.scheduler=drr", "traffic.download.flows=8"]);
    assert!(share(&r, "carrier") > 0.9, "{:?}", r.classes[0].counters());
}
