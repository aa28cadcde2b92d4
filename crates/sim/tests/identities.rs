//! Every run checks at its end that nothing appeared from nowhere or vanished; these make it hard.

use std::collections::BTreeSet;

use crate::common::{results, shipped};
use bentpipe_queue::registry::SCHEDULERS;
use bentpipe_scenario::Scenario;

/// Overrides that bend the small gateway, and whether anything may be sent again over the satellite.
const BENT: &[(&[&str], bool)] = &[
    (&[], false),
    (&["link.satellite.loss=0.05"], true),
    (&["link.ingress.loss=0.05"], false),
    (&["link.access.loss=0.05"], false),
    (&["gateway.pep.buffer=3 KB"], false),
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
fn nothing_appears_or_vanishes_however_the_gateway_is_bent() {
    for (overrides, may_repeat) in BENT {
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

/// Packets that are held back, taken out of a queue, or marked because a buffer fills up.
#[test]
fn what_is_held_evicted_or_controlled_is_accounted_for() {
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

/// An AQM and a composite that both call something `p` show both.
#[test]
fn every_series_has_a_name_of_its_own() {
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
fn two_gateways_in_a_row_carry_every_byte() {
    let r = results(&shipped("two-gateways", &[]), 1);
    let completed: Vec<_> = r.flows.iter().filter(|f| f.completed).collect();
    assert!(completed.len() > 200, "{}", completed.len());
    assert!(completed.iter().all(|f| (100_000..=300_000).contains(&f.delivered)));
    // Two satellites of at least 250 ms each way, a handshake and a request with its answer on the last leg: no page can be
    // fetched in less than two times the way there and back.
    assert!(completed.iter().all(|f| f.completion_time() > 2.0 * 0.5));
    assert_eq!(r.pep_link.retransmitted, 0);
}

/// A lost packet is sent again over the satellite and nowhere else: the servers never hear of it.
#[test]
fn what_the_satellite_loses_the_spacelink_repeats() {
    let clean = results(&shipped("small-gateway", &["traffic.web.sessions=3"]), 1);
    let lossy = results(&shipped("small-gateway", &["traffic.web.sessions=3", "link.satellite.loss=0.1"]), 1);
    assert_eq!(clean.pep_link.retransmitted, 0);
    assert!(lossy.pep_link.retransmitted > lossy.pep_link.sent / 20);
    let lost = lossy.drops.reason.iter().filter(|&&reason| reason == 2).count();
    assert!(lost > 50);
    assert!(lossy.flows.iter().filter(|f| f.completed).all(|f| (20_000..=60_000).contains(&f.delivered)));
}

/// A scheduler that serves flows in turn changes the order of packets ahead of the satellite; none is taken for lost.
#[test]
fn a_fair_transmit_queue_has_nothing_repeated() {
    let more = ["gateway.transmit_queue.scheduler=drr", "gateway.aqm={ algorithm = \"droptail\" }"];
    let r = results(&shipped("small-gateway", &more), 1);
    assert!(r.pep_link.sent > 1000, "{:?}", r.pep_link);
    assert_eq!(r.pep_link.retransmitted, 0);
}

/// What overflows behind the PEP and is sent again is counted apart: a packet is dropped at the mark point once at most.
#[test]
fn repetitions_do_not_count_as_drops_of_what_was_offered() {
    let r = results(&shipped("small-gateway", &["gateway.transmit_queue.limit=10 packets"]), 1);
    let s = &r.summary;
    assert!(s.aqm_drops + s.overflow_drops < s.offered_packets, "{s:?}");
    assert!(s.drops_elsewhere > s.offered_packets, "{s:?}");
}

/// Two endless transfers of one user share a buffer of 30 KB. One gives up; the other must go on with all of it.
#[test]
fn a_failed_connection_leaves_its_buffer_to_the_others() {
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
        assert!(last > 0.0, "seed {seed}: nothing is sent any more");
    }
    assert!(failed >= 3, "{failed}");
}

/// The run itself checks that every packet and every byte is somewhere; here flows also leave and come back, and packets
/// are written into connections that a gateway splits.
#[test]
fn nothing_appears_or_vanishes_whatever_the_traffic() {
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
            // Two transfers, there four times each.
            let bulk = r.traffic.iter().position(|name| name == "bulk").unwrap();
            let rows = r.flows.iter().filter(|f| f.traffic as usize == bulk);
            assert_eq!(rows.clone().count(), 8, "{overrides:?}");
            assert_eq!(rows.filter(|f| f.closed.is_none()).count(), 2, "{overrides:?}");
        }
    }
}

/// The generic gateway over a few seconds, all of its connections there after half a second: the run itself checks that every
/// packet is somewhere. 200 connections are replaced in each second: 2000 in ten, with a standard error of 45; each of the
/// 4000 is there at the end, whatever the AQM; and what goes is no more than the capacity.
#[test]
fn connections_of_the_generic_gateway_come_and_go() {
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
