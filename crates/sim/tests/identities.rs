//! Conservation: every run checks at its end that no packet appeared or vanished; these runs are difficult cases.

use std::collections::BTreeSet;

use crate::common::{results, shipped};
use bentpipe_queue::registry::SCHEDULERS;
use bentpipe_scenario::Scenario;

/// Overrides of the small gateway, and true if they may cause retransmissions on the PEP link.
const VARIANTS: &[(&[&str], bool)] = &[
    (&[], false),
    (&["link.satellite.loss=0.05"], true),
    (&["link.ingress.loss=0.05"], false),
    (&["link.access.loss=0.05"], false),
    (&["gateway.pep.buffer=3 KB"], false),
    (&["gateway.pep.buffer=6 KB", "gateway.pep.receive_buffer=9 KB"], false),
    (
        &[
            "gateway.pep.buffer=20 KB",
            "gateway.pep.receive_buffer=128 KB",
            "gateway.pep.split=[\"tcp\"]",
            "link.satellite.loss=0.02",
        ],
        true,
    ),
    (&["gateway.spacelink.datagram_header=60 B", "gateway.pep.split=[]"], false),
    (&["gateway.pep.buffer=3 KB", "gateway.pep.buffer_per=connection", "link.satellite.loss=0.02"], true),
    (&["gateway.spacelink.window=120 KB", "gateway.spacelink.stream_window=120 KB"], false),
    (&["gateway.spacelink.stream_window=4 KB"], false),
    (&["gateway.transmit_queue.limit=10 packets"], true),
    (
        &["gateway.receive_queue={ limit = \"20 packets\", rate = \"5 Mbps\" }", "gateway.watch=receive"],
        false,
    ),
    (&["gateway.transmit_queue.scheduler=drr", "gateway.transmit_queue.limit=30 packets"], true),
    (&["gateway.mark=transmit", "gateway.aqm={ algorithm = \"codel\" }"], true),
    (&["gateway.aqm={ algorithm = \"redfc\" }"], false),
    (&["gateway.marking=window", "gateway.aqm={ algorithm = \"avqred\" }"], false),
    (&["gateway.marking={ method = \"window\", decr = 0.5 }", "link.ingress.loss=0.05"], false),
    (&["gateway.marking=window", "gateway.pep.buffer=3 KB", "link.satellite.loss=0.02"], true),
    (
        &["gateway.flow_key=user", "gateway.transmit_queue={ scheduler = \"drr\", limit = \"30 packets\" }"],
        true,
    ),
    (&["gateway.regulator={ rate = \"4 Mbps\" }"], false),
    (&["gateway.pep.split=[]"], false),
    (&["gateway.pep.delay=0 s", "traffic.web.think_time=0 s"], false),
    (&["traffic.web.objects_per_page=3"], false),
    (&["traffic.web.objects_per_page=3", "traffic.web.connection_per=object"], false),
    (&["traffic.web.rate_cap=100 kbps"], false),
    (&["link.satellite.delay={ uniform = [\"100 ms\", \"300 ms\"], ordered = false }"], true),
    (&["link.ingress.delay={ uniform = [\"10 ms\", \"60 ms\"], ordered = false }"], false),
    (&["link.satellite.loss={ gilbert_elliott = { good = \"5 s\", bad = \"200 ms\" } }"], true),
    (&["link.satellite.loss={ bit_error_rate = 1e-6, at = \"before_queue\" }"], true),
    (&["link.satellite.reverse.rate=2 Mbps", "link.satellite.reverse.demand={ free = \"100 kbps\" }"], true),
    (&["link.satellite.handover={ delay = [\"0 s\", \"50 ms\"], outage = \"200 ms\" }"], true),
    (&["link.satellite.handover={ interval = \"5 s\", outage = \"200 ms\", during = \"lose\" }"], true),
    (
        &[
            "link.satellite.capacity={ steps = [[\"0 s\", \"10 Mbps\"], [\"15 s\", \"0 bps\"], [\"16 s\", \"6 Mbps\"]] }",
            "gateway.regulator.rate=link",
        ],
        true,
    ),
    (
        &[
            "link.satellite.capacity={ symbol_rate = \"5 Mbaud\", fade = { clear_sky = 9, median = 2, sigma = 0.5, \
             correlation_time = \"20 s\" } }",
            "gateway.regulator.rate=link",
        ],
        true,
    ),
    (&["link.access.access=wimax"], true),
    (&["link.access.access={ kind = \"wifi\", frame_loss = 0.3, tries = 3 }"], true),
];

#[test]
fn packets_are_conserved_in_every_variant_of_the_gateway() {
    for (overrides, may_repeat) in VARIANTS {
        let scenario = shipped("small-gateway", overrides);
        for setting in ["red", "avq", "avqred"] {
            let scenario = if overrides.iter().any(|o| o.contains("codel")) {
                scenario.clone()
            } else {
                scenario.with_setting(setting).unwrap()
            };
            let r = results(&scenario, 3);
            let at = format!("{setting} {overrides:?}");
            let completed = r.flows.iter().filter(|f| f.completed).count();
            assert!(completed > 25, "{at}: {completed} completed");
            let failed = r.flows.iter().filter(|f| f.closed.is_some() && !f.completed).count();
            assert_eq!(failed, 0, "{at}");
            assert!(*may_repeat || r.pep_link.retransmitted == 0, "{at}: {:?}", r.pep_link);
            assert!(r.summary.sent_packets > 1000, "{at}: {:?}", r.summary);
        }
    }
}

/// Packets held back, dropped from inside a queue, or marked by threshold control.
#[test]
fn held_and_evicted_packets_are_counted() {
    let receive = "gateway.receive_queue={ limit = \"400 packets\", rate = \"5 Mbps\" }";
    let limit = "gateway.transmit_queue.limit=100 packets";
    for overrides in [
        &["gateway.aqm={ algorithm = \"redfc\", min_th = 5, max_th = 10, held_limit = 20 }"][..],
        &["gateway.aqm={ algorithm = \"choke\", min_th = 5, max_th = 20 }", "gateway.watch=receive", receive],
        &["gateway.aqm={ algorithm = \"choke\", min_th = 5, max_th = 20 }", "gateway.mark=transmit"],
        &["gateway.aqm={ algorithm = \"fred\", min_th = 5, max_th = 20 }"],
        &["gateway.aqm={ algorithm = \"sred\", min_th = 5, max_th = 20 }"],
        &["gateway.aqm={ algorithm = \"ared\", min_th = 5, max_th = 20 }"],
        &["gateway.aqm={ algorithm = \"droptail\", threshold = 0.5 }", limit],
    ] {
        let r = results(&shipped("small-gateway", overrides), 3);
        let completed = r.flows.iter().filter(|f| f.completed).count();
        assert!(completed > 25, "{overrides:?}: {completed} completed");
        assert!(r.summary.aqm_drops > 0, "{overrides:?}: {:?}", r.summary);
    }
}

/// An AQM and a scheduler that both have a state named `p`.
#[test]
fn series_names_are_unique() {
    for scheduler in SCHEDULERS {
        let chosen = format!("gateway.transmit_queue.scheduler={}", scheduler.name);
        let r = results(
            &shipped("small-gateway", &["gateway.aqm.algorithm=pie", &chosen, "run.duration=2 s"]),
            1,
        );
        let names: BTreeSet<_> = r.series.iter().map(|series| &series.name).collect();
        assert_eq!(names.len(), r.series.len(), "{}: {names:?}", scheduler.name);
    }
}

#[test]
fn each_of_a_thousand_links_has_series_but_not_of_more() {
    for (count, expected) in [(1000, 1000), (1001, 0)] {
        let hosts = format!("host.client.count={count}");
        let changes = [&hosts, "link.access.queue={ limit = \"9 packets\" }", "run.duration=1 s"];
        let r = results(&shipped("small-gateway", &changes), 1);
        let of_members = r.series.iter().filter(|series| {
            series.name.starts_with("access.")
                && series.name.ends_with(".throughput")
                && !series.values.is_empty()
        });
        assert_eq!(of_members.count(), expected, "{count} clients");
        let lengths: BTreeSet<_> = r.series.iter().map(|series| series.values.len()).collect();
        assert_eq!(lengths.len(), 1, "one value per sample");
    }
}

#[test]
fn two_gateways_in_a_row_carry_every_byte() {
    let r = results(&shipped("two-gateways", &[]), 1);
    let completed: Vec<_> = r.flows.iter().filter(|f| f.completed).collect();
    assert!(completed.len() > 200, "{}", completed.len());
    assert!(completed.iter().all(|f| (100_000..=300_000).contains(&f.delivered)));
    // Two satellites of at least 250 ms each way; handshake and request cross the last one: a page takes at least two
    // round trips.
    assert!(completed.iter().all(|f| f.completion_time() > 2.0 * 0.5));
    assert_eq!(r.pep_link.retransmitted, 0);
}

/// A lost packet is retransmitted over the satellite only: servers do not notice.
#[test]
fn the_pep_link_retransmits_losses_on_the_satellite() {
    let clean = results(&shipped("small-gateway", &["traffic.web.sessions=3"]), 1);
    let lossy = results(&shipped("small-gateway", &["traffic.web.sessions=3", "link.satellite.loss=0.1"]), 1);
    assert_eq!(clean.pep_link.retransmitted, 0);
    assert!(lossy.pep_link.retransmitted > lossy.pep_link.sent / 20);
    let lost = lossy.drops.reason.iter().filter(|&&reason| reason == 2).count();
    assert!(lost > 50);
    assert!(lossy.flows.iter().filter(|f| f.completed).all(|f| (20_000..=60_000).contains(&f.delivered)));
}

/// A round-robin scheduler changes the order of packets ahead of the satellite; none is considered lost.
#[test]
fn fair_queueing_causes_no_retransmission() {
    let more = ["gateway.transmit_queue.scheduler=drr", "gateway.aqm={ algorithm = \"droptail\" }"];
    let r = results(&shipped("small-gateway", &more), 1);
    assert!(r.pep_link.sent > 1000, "{:?}", r.pep_link);
    assert_eq!(r.pep_link.retransmitted, 0);
}

/// Overflows behind the PEP are counted apart: a packet is dropped at the mark point at most once.
#[test]
fn drops_of_retransmissions_are_counted_elsewhere() {
    let r = results(&shipped("small-gateway", &["gateway.transmit_queue.limit=10 packets"]), 1);
    let s = &r.summary;
    assert!(s.aqm_drops + s.overflow_drops < s.offered_packets, "{s:?}");
    assert!(s.drops_elsewhere > s.offered_packets, "{s:?}");
}

/// Two endless transfers of one user share a buffer of 30 KB. One fails; the other continues with the whole buffer.
#[test]
fn a_failed_connection_frees_its_shared_buffer() {
    let text = r#"
title = "A frail neighbour"
[run]
sample_interval = "1 s"
duration = "300 s"
[host.server]
count = 1
[host.client]
count = 1
[link.ingress]
between = ["server", "gateway"]
rate = "100 Mbps"
delay = "5 ms"
[gateway]
aqm = { algorithm = "droptail" }
regulator = { rate = "4 Mbps", tick = "5 ms" }
pep = { delay = "12 ms", buffer = "30 KB" }
spacelink = { stream_window = "8 KB" }
[link.satellite]
between = ["gateway", "terminal"]
delay = "50 ms"
[link.access]
between = ["terminal", "client"]
rate = "10 Mbps"
delay = "2 ms"
loss = 0.3
[transport.frail]
min_rto = "200 ms"
initial_rto = "200 ms"
retries = 4
[transport.sturdy]
min_rto = "200 ms"
initial_rto = "200 ms"
max_rto = "1 s"
retries = 1000
[traffic.a]
kind = "bulk"
from = "server"
to = "client"
transport = "frail"
flows = 1
[traffic.b]
kind = "bulk"
from = "server"
to = "client"
transport = "sturdy"
flows = 1
start = "2 s"
"#;
    let scenario = Scenario::parse(text, "test.toml", &[]).unwrap_or_else(|e| panic!("{e}"));
    let mut failed = 0;
    for seed in 1..=6 {
        let r = results(&scenario, seed);
        failed += r.flows.iter().filter(|f| f.closed.is_some()).count();
        let out = &r.series.iter().find(|s| s.name == "throughput").unwrap().values;
        let last: f64 = out[200..].iter().sum();
        assert!(last > 0.0, "seed {seed}: the transfer has stopped");
    }
    assert!(failed >= 3, "{failed}");
}

/// Flows leave and return, and packets are written into split connections; the run itself checks conservation.
#[test]
fn packets_are_conserved_with_every_kind_of_traffic() {
    let text = include_str!("../../scenario/tests/all-kinds.toml");
    for overrides in
        [&[][..], &["gateway.pep.split=[]"], &["gateway.pep.buffer=3 KB"], &["link.access.loss=0.05"]]
    {
        let overrides: Vec<_> = overrides.iter().map(|&o| o.to_owned()).collect();
        let scenario = Scenario::parse(text, "all-kinds.toml", &overrides).unwrap_or_else(|e| panic!("{e}"));
        for seed in 1..=3 {
            let r = results(&scenario, seed);
            for (index, name) in r.traffic.iter().enumerate() {
                let flows = || r.flows.iter().filter(|f| f.traffic as usize == index);
                assert!(flows().any(|f| f.measured > 0), "{name} {overrides:?}");
            }
            // Two transfers, present four times each.
            let bulk = r.traffic.iter().position(|name| name == "bulk").unwrap();
            let rows = r.flows.iter().filter(|f| f.traffic as usize == bulk);
            assert_eq!(rows.clone().count(), 8, "{overrides:?}");
            assert_eq!(rows.filter(|f| f.closed.is_none()).count(), 2, "{overrides:?}");
        }
    }
}

/// The generic gateway over a few seconds, with all connections open after half a second; the run itself checks
/// conservation. 200 connections are replaced per second: 2000 in ten, with a standard error of 45. All 4000 are open at
/// the end under every AQM, and the throughput does not exceed the capacity.
#[test]
fn connections_of_the_generic_gateway_are_replaced_at_their_rate() {
    for name in ["byun-generic", "byun-generic-13-25"] {
        let more = [
            "run.warmup=1 s",
            "run.duration=10 s",
            "traffic.connections.ramp={ sessions = 8000, over = '1 s' }",
        ];
        let scenario = shipped(name, &more);
        for setting in &scenario.run.settings {
            let r = results(&scenario.with_setting(setting).unwrap_or_else(|e| panic!("{e}")), 1);
            let begun = r.flows.iter().filter(|f| f.opened > r.begin).count();
            assert!(begun.abs_diff(2000) < 225, "{name}, {setting}: {begun}");
            assert_eq!(r.flows.iter().filter(|f| f.closed.is_none()).count(), 4000, "{name}, {setting}");
            let sent = r.summary.sent_bytes as f64 * 8.0 / 10.0;
            assert!((10e6..25e6).contains(&sent), "{name}, {setting}: {sent}");
        }
    }
}
