//! Marks that cut the window advertised by a gateway ([B07] 2.3 and chapter 6), and the flow keys of a gateway.

use std::collections::BTreeMap;

use crate::common::{mean, results, shipped};
use bentpipe_scenario::Scenario;
use bentpipe_sim::{Packet, Progress, Results, Watch, run_watched};
use bentpipe_units::{Duration, Instant};

/// The gateway of 2007 with all its sessions, which start within 40 s before measuring.
fn chapter_6(setting: &str, duration: &str) -> Scenario {
    let duration = format!("run.duration={duration}");
    let ramp = "traffic.web.ramp={ sessions = 400, over = '40 s' }";
    let s = shipped("byun2007-gateway", &[ramp, "run.warmup=60 s", &duration]);
    s.with_setting(setting).unwrap_or_else(|e| panic!("{e}"))
}

/// Marks drop no packet, and the arrival rate falls with the depth of the cuts. FC 4 and FC 5 have nearly the same rate, as
/// in [B07] Table 6.2 (15.4 and 15.2 Mbit/s; 14.80 and 14.82), so their order is not checked.
#[test]
fn deeper_window_cuts_reduce_the_load_without_drops() {
    for base in ["RED", "AVQRED"] {
        let loads = (1..=5).map(|number| {
            let r = results(&chapter_6(&format!("{base} FC {number}"), "120 s"), 1);
            let s = &r.summary;
            assert_eq!((s.aqm_drops, s.overflow_drops, r.drops.time.len()), (0, 0, 0), "{base} {number}");
            assert!(s.marked_packets > 0, "{base} {number}");
            mean(&r, "arrival_rate") / 1e6
        });
        let loads: Vec<f64> = loads.collect();
        assert!(loads[..4].windows(2).all(|pair| pair[0] > pair[1] + 0.5), "{base}: {loads:?}");
        assert!(loads[4] < loads[2] - 0.5, "{base}: {loads:?}");
        // If the same marks are drops, the load exceeds the capacity.
        let dropping = results(&chapter_6(if base == "RED" { "RED 4" } else { base }, "120 s"), 1);
        assert!(mean(&dropping, "arrival_rate") / 1e6 > 20.0 && dropping.summary.aqm_drops > 0);
        assert!(loads[0] < 20.1, "{base}: {loads:?}");
    }
}

/// Observed state of a gateway's window.
struct Window {
    /// Time since which it is closed.
    closed: Option<Instant>,
    edge: u64,
}

/// On the link to the servers, windows close and open again, no right edge moves back (RFC 9293 section 3.8.6), and a window
/// opens by at least a segment (3.8.6.2.2). The satellite acknowledges the PEP's data within its round trip of 0.85 s plus
/// its queueing delay, so no window stays closed for long, even with a loss of 1 % on the ground. If a window update is
/// lost, a probe discovers the open window (3.8.6.1): after 1 s, 2 s or 4 s.
#[test]
fn closed_windows_open_again() {
    for (loss, longest) in [("0", 3), ("0.01", 8)] {
        let overrides =
            ["run.duration=30 s", &format!("link.ingress.loss={loss}"), "traffic.web.sessions=100"];
        let rate = "gateway.regulator.rate=5 Mbps";
        let scenario = shipped("byun2007-gateway", &[&overrides[..], &["run.warmup=60 s", rate]].concat());
        let scenario = scenario.with_setting("RED FC 4").unwrap();
        let watch = Watch { links: vec!["ingress".to_owned()], ..Watch::default() };
        let mut windows: BTreeMap<u32, Window> = BTreeMap::new();
        let (mut closed, mut opened) = (0, 0);
        let r = run_watched(&scenario, 1, &Progress::default(), &watch, &mut |observation| {
            let Packet::Tcp { ends, segment, .. } = &observation.packet else { return };
            // Packets of the gateway in the receiver's name, as they arrive at the servers.
            if ends.with_data || observation.interface != 1 {
                return;
            }
            let edge = segment.ack + u64::from(segment.window);
            let w = windows.entry(ends.flow).or_insert(Window { closed: None, edge });
            assert!(edge >= w.edge, "a right edge moved back");
            // If acknowledgements are lost, an earlier one may have moved it.
            if edge > w.edge && segment.ack > 0 && loss == "0" {
                assert!(segment.window >= 1360, "opened by {} to {}", edge - w.edge, segment.window);
            }
            if segment.window == 0 && w.closed.is_none() {
                w.closed = Some(observation.time);
                closed += 1;
            } else if segment.window > 0
                && let Some(since) = w.closed.take()
            {
                opened += 1;
                let time = observation.time - since;
                assert!(
                    time < Duration::from_secs(longest),
                    "the window of flow {} was closed for {time}",
                    ends.flow
                );
            }
            w.edge = edge;
        })
        .unwrap_or_else(|e| panic!("{e}"));
        let standing = windows
            .values()
            .filter_map(|w| w.closed)
            .filter(|since| r.end - *since > Duration::from_secs(longest));
        assert_eq!(standing.count(), 0, "windows that stay closed");
        assert!(closed > 100 && opened > closed / 2, "{closed} {opened}");
        let series = |name: &str| &r.series.iter().find(|s| s.name == name).unwrap().values;
        assert!(series("windows_closed").iter().all(|n| (0.0..=100.0).contains(n)));
        assert!(series("window_limit").iter().all(|limit| (1360.0..=625_000.0).contains(limit)));
    }
}

/// Ten connections to the five hosts of one group, and one to another, share 4 Mbit/s.
fn flows_by(key: &str) -> Results {
    let text = format!(
        r#"
title = "Who shares a satellite"
[run]
warmup = "20 s"
duration = "60 s"
[host]
server = {{}}
heavy = {{ count = 5 }}
light = {{}}
[link.ingress]
between = ["server", "gateway"]
rate = "100 Mbps"
delay = "10 ms"
[gateway]
flow_key = "{key}"
regulator = {{ rate = "4 Mbps" }}
pep = {{ buffer_per = "connection" }}
transmit_queue = {{ scheduler = "drr" }}
spacelink = {{ window = "40 MB" }}
[link.satellite]
between = ["gateway", "terminal"]
delay = "250 ms"
[link.many]
between = ["terminal", "heavy"]
[link.one]
between = ["terminal", "light"]
[traffic]
many = {{ kind = "bulk", from = "server", to = "heavy", flows = 10 }}
one = {{ kind = "bulk", from = "server", to = "light" }}
"#
    );
    results(&Scenario::parse(&text, "test.toml", &[]).unwrap_or_else(|e| panic!("{e}")), 1)
}

/// Deficit round robin gives each flow the same share: keyed by connection an eleventh for the single connection, by user a
/// sixth, since the other ten go to five hosts, and by group of hosts a half. In results a flow is always a connection.
#[test]
fn more_connections_gain_nothing_with_flows_keyed_by_user() {
    for (key, share) in [("connection", 1.0 / 11.0), ("user", 1.0 / 6.0), ("prefix", 1.0 / 2.0)] {
        let r = flows_by(key);
        assert_eq!(r.flows.len(), 11);
        let sum =
            |traffic: u32| r.flows.iter().filter(|f| f.traffic == traffic).map(|f| f.measured).sum::<u64>();
        let got = sum(1) as f64 / (sum(0) + sum(1)) as f64;
        assert!((got - share).abs() < 0.02 * share, "{key}: {got}, not {share}");
    }
}

/// Unsplit voice has no window to cut, so only its marks are drops. They are recorded for the connection under every flow key
/// of the gateway.
#[test]
fn marks_drop_packets_of_unsplit_flows() {
    let voice = "traffic={ web = { kind = 'pages', from = 'server', to = 'client', sessions = 40, object_size = '40 KB' }, \
                 voice = { kind = 'cbr', from = 'server', to = 'client', flows = 10, rate = '64 kbps', packet = '200 B' } }";
    let scenario = shipped(
        "small-gateway",
        &[voice, "gateway.marking=window", "gateway.flow_key=user", "gateway.regulator.rate=1 Mbps"],
    );
    let r = results(&scenario, 1);
    assert!(r.summary.aqm_drops > 100, "{}", r.summary.aqm_drops);
    assert!(r.summary.marked_packets > r.summary.aqm_drops);
    let whose = |flow: &u32| r.traffic[r.flows[*flow as usize].traffic as usize].as_str();
    assert!(r.drops.flow.iter().all(|flow| whose(flow) == "voice"));
    let counted: u64 = r.flows.iter().map(|f| u64::from(f.drops)).sum();
    assert_eq!(counted, r.drops.flow.len() as u64);
}
