//! Adaptive video in whole runs, compared with times worked by hand.

use crate::common::results;
use bentpipe_scenario::Scenario;
use bentpipe_sim::{Playback, Results, Rung, Viewing};
use bentpipe_units::{Duration, Instant};

/// A wire of 8 Mbit/s, on which a byte takes 1 µs, and 50 ms in each direction. The sender's window holds a whole segment.
fn run_with(run: &str, wire: &str, traffic: &str, seed: u64, overrides: &[&str]) -> Results {
    let text = format!(
        r#"
title = "Viewers"
[run]
{run}
subject = "wire"
[host.server]
[host.viewer]
count = 2
[router.hub]
[link.wire]
between = ["server", "hub"]
rate = "8 Mbps"
delay = "50 ms"
queue = {{ limit = "10000 packets", aqm = {{ algorithm = "droptail" }} }}
{wire}
[link.access]
between = ["hub", "viewer"]
[transport.tcp]
mss = "1000 B"
header = "40 B"
initial_window = 1000
receive_window = "4 MB"
[traffic.video]
kind = "dash"
from = "server"
to = "viewer"
transport = "tcp"
{traffic}
"#
    );
    let overrides: Vec<_> = overrides.iter().map(|&o| o.to_owned()).collect();
    results(&Scenario::parse(&text, "test.toml", &overrides).unwrap_or_else(|e| panic!("{e}")), seed)
}

fn run(run: &str, wire: &str, traffic: &str) -> Results {
    run_with(run, wire, traffic, 1, &[])
}

fn viewings(r: &Results) -> Vec<&Viewing> {
    r.flows.iter().map(|flow| r.viewing(flow).unwrap()).collect()
}

fn at(us: u64) -> Instant {
    Instant::ZERO + Duration::from_micros(us)
}

/// The SYN arrives at 50.04 ms, the SYN ACK at 100.08 ms, the request of 340 bytes at 150.42 ms, and the last of 50 segments of
/// 1040 bytes at 252.42 ms.
#[test]
fn playback_begins_with_the_first_segment() {
    let r = run("duration = \"10 s\"", "", "ladder = [\"400 kbps\"]\nsegment = \"1 s\"");
    let viewing = viewings(&r)[0];
    assert_eq!(viewing.startup_delay(), Some(Duration::from_micros(252_420)));
    assert_eq!((viewing.stalls(), viewing.stalled_time(), viewing.switches()), (0, Duration::ZERO, 0));
    assert_eq!(viewing.played_time(), Duration::from_micros(9_747_580));
    assert_eq!(viewing.bitrate(), 400e3);
    assert_eq!(viewing.periods().len(), 2);
}

/// Each further segment takes 152.34 ms: the request 50.34 ms, the data 102 ms.
#[test]
fn playback_begins_with_as_much_media_as_the_scenario_says() {
    let traffic = "ladder = [\"400 kbps\"]\nsegment = \"1 s\"\nstartup = \"2500 ms\"";
    let r = run("duration = \"10 s\"", "", traffic);
    let expected = 252_420 + 2 * 152_340;
    assert_eq!(viewings(&r)[0].startup_delay(), Some(Duration::from_micros(expected)));
}

/// A segment of 4 s at 1 Mbit/s has 500 packets, 520 ms: playback begins at 720.42 ms. Requests follow at 4 s intervals, from
/// 4.72042 s on, when the level is 8 s. That of 32.72042 s waits for the end of the outage; its segment arrives 50.34 ms + 570 ms
/// later. The ten segments before it last until 40.72042 s.
#[test]
fn an_outage_stalls_playback_from_the_empty_buffer_to_the_next_segment() {
    let outage =
        "handover = { interval = \"1000 s\", offset = \"30 s\", outage = \"20 s\", during = \"hold\" }";
    let r = run("duration = \"80 s\"", outage, "ladder = [\"1 Mbps\"]\nbuffer = \"12 s\"");
    let viewing = viewings(&r)[0];
    assert_eq!(viewing.startup_delay(), Some(Duration::from_micros(720_420)));
    assert_eq!(viewing.stalls(), 1);
    let stall = viewing.periods().iter().find(|period| period.playback == Playback::Stalled).unwrap();
    assert_eq!((stall.from, stall.until), (at(40_720_420), at(50_620_340)));
    assert_eq!(viewing.stalled_time(), Duration::from_micros(9_899_920));
    assert_eq!(viewing.played_time(), Duration::from_micros(80_000_000 - 720_420 - 9_899_920));
}

/// As above; the measurement begins in the stall.
#[test]
fn a_stall_during_the_warm_up_counts_from_the_measurement() {
    let outage =
        "handover = { interval = \"1000 s\", offset = \"30 s\", outage = \"20 s\", during = \"hold\" }";
    let r = run("warmup = \"45 s\"\nduration = \"35 s\"", outage, "ladder = [\"1 Mbps\"]\nbuffer = \"12 s\"");
    let viewing = viewings(&r)[0];
    assert_eq!(viewing.startup_delay(), None, "the viewing began in the warm-up");
    assert_eq!((viewing.stalls(), viewing.stalled_time()), (1, Duration::from_micros(5_620_340)));
    assert_eq!(viewing.played_time(), Duration::from_micros(29_379_660));
}

/// The wire carries 7.69 Mbit/s of payload.
#[test]
fn steady_rung_is_the_highest_of_a_ladder_that_the_link_carries() {
    let r =
        run("warmup = \"120 s\"\nduration = \"120 s\"", "", "ladder = [\"1 Mbps\", \"3 Mbps\", \"6 Mbps\"]");
    let viewing = viewings(&r)[0];
    let [period] = viewing.periods() else { panic!("{:?}", viewing.periods()) };
    assert_eq!(period.playback, Playback::Playing(Rung(2)));
    assert_eq!((period.from, period.until), (r.begin, r.end));
}

/// Below a rung the buffer falls until BBA-0 chooses the lower one, and rises until it chooses the higher. Without waiting, 4 s of
/// media take 4 s: the request and the first byte 100 ms, the rest at the wire's payload rate.
#[test]
fn mean_bitrate_between_two_rungs_is_the_throughput() {
    let r = run(
        "warmup = \"100 s\"\nduration = \"1000 s\"",
        "",
        "ladder = [\"2 Mbps\", \"5 Mbps\", \"10 Mbps\"]",
    );
    let viewing = viewings(&r)[0];
    let expected = 8e6 * 1000.0 / 1040.0 * 3.9 / 4.0;
    let ratio = viewing.bitrate() / expected;
    assert!((0.97..1.01).contains(&ratio), "{ratio}");
    assert_eq!(viewing.stalls(), 0);
    assert!(viewing.switches() > 10, "{}", viewing.switches());
}

#[test]
fn a_viewer_leaves_and_begins_another_viewing() {
    let traffic = "watch = \"10 s\"\nthink_time = \"5 s\"";
    let r = run("duration = \"40 s\"", "", traffic);
    let rows: Vec<_> = r.flows.iter().map(|f| (f.session, f.opened, f.closed)).collect();
    let s = |s: u64| at(1_000_000 * s);
    assert_eq!(rows, [(0, s(0), Some(s(10))), (0, s(15), Some(s(25))), (0, s(30), Some(s(40)))]);
    assert!(r.flows.iter().all(|flow| flow.left && !flow.completed && !flow.finite));
    for viewing in viewings(&r) {
        let total = viewing.periods().iter().fold(Duration::ZERO, |sum, period| sum + period.duration());
        assert_eq!(total, Duration::from_secs(10));
        assert!(viewing.startup_delay().is_some());
    }
}

#[test]
fn viewers_are_absent_as_the_scenario_says() {
    let r = run("duration = \"30 s\"", "", "flows = 2\naway = [[\"10 s\", \"20 s\"]]");
    let rows: Vec<_> = r.flows.iter().map(|f| (f.session, f.opened, f.closed)).collect();
    let s = |s: u64| at(1_000_000 * s);
    assert_eq!(rows, [(0, s(0), Some(s(10))), (1, s(0), Some(s(10))), (0, s(20), None), (1, s(20), None)]);
}

/// A connection that repeats a segment only once gives up during the outage; the player connects again.
#[test]
fn a_failed_connection_ends_a_viewing_and_the_next_begins() {
    let outage =
        "handover = { interval = \"1000 s\", offset = \"10 s\", outage = \"20 s\", during = \"lose\" }";
    let r = run_with("duration = \"60 s\"", outage, "ladder = [\"7 Mbps\"]", 1, &["transport.tcp.retries=1"]);
    let [first, second] = r.flows[..] else { panic!("{:?}", r.flows) };
    assert!(first.closed.is_some() && !first.left && !first.completed);
    assert_eq!((second.session, Some(second.opened)), (first.session, first.closed));
    let viewings = viewings(&r);
    assert_eq!(viewings[0].periods().last().map(|period| period.until), first.closed);
    assert!(viewings[1].startup_delay() > Some(Duration::from_secs(10)), "the outage is part of it");
    assert!(viewings[1].played_time() > Duration::from_secs(20));
}

#[test]
fn first_transmissions_of_segments_are_the_units_of_the_class() {
    let r = run("duration = \"60 s\"", "loss = 0.01", "ladder = [\"400 kbps\"]\nsegment = \"1 s\"");
    let (flow, class) = (&r.flows[0], &r.classes[0]);
    assert!(flow.drops > 0);
    assert_eq!((class.name.as_str(), class.lost), ("video", 0));
    assert_eq!(class.received, flow.delivered / 1000);
    assert_eq!(u64::from(flow.received_units), class.received);
}

#[test]
fn the_same_seed_gives_the_same_viewings() {
    let traffic = "flows = 20\nstart = { uniform = [\"0 s\", \"5 s\"] }\nwatch = { exponential = \"30 s\" }\n\
                   think_time = { exponential = \"2 s\" }\n\
                   size_variation = { normal = { mean = \"100 %\", std = \"25 %\" } }";
    let digest = |seed| {
        let r = run_with("duration = \"100 s\"", "", traffic, seed, &[]);
        format!("{:?} {:?}", r.flows, viewings(&r))
    };
    assert_eq!(digest(1), digest(1));
    assert_ne!(digest(1), digest(2));
}

/// Sizes of segments have their own stream: with another controller, viewers come and go at the same times.
#[test]
fn viewers_come_and_go_whatever_the_controller_does() {
    let traffic = "flows = 5\nwatch = { exponential = \"20 s\" }\nthink_time = { exponential = \"2 s\" }\n\
                   size_variation = { uniform = [\"50 %\", \"150 %\"] }\ncontroller = ";
    let times = |controller: &str| {
        let r = run("duration = \"200 s\"", "", &format!("{traffic}\"{controller}\""));
        let bytes: u64 = r.flows.iter().map(|flow| flow.delivered).sum();
        (r.flows.iter().map(|f| (f.session, f.opened, f.closed)).collect::<Vec<_>>(), bytes)
    };
    let (bba, rate) = (times("bba"), times("rate"));
    assert_eq!(bba.0, rate.0);
    assert_ne!(bba.1, rate.1);
}
