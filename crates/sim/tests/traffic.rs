//! Kinds of traffic in whole runs: arrivals, presence of flows, and their records.

use std::sync::{Arc, Mutex, PoisonError};

use crate::common::results;
use bentpipe_queue::{Aqm, Context, FlowEvent, FlowId, Packet, Verdict};
use bentpipe_scenario::Scenario;
use bentpipe_sim::{Progress, Results, Sinks, Watch, run_with};
use bentpipe_units::{Duration, Instant};

/// A run of some traffic over a wire of 10 Mbit/s and 10 ms.
fn run(duration: &str, traffic: &str) -> Results {
    run_over("queue = {}", duration, traffic)
}

fn run_over(wire: &str, duration: &str, traffic: &str) -> Results {
    results(&scenario(wire, duration, traffic), 1)
}

fn scenario(wire: &str, duration: &str, traffic: &str) -> Scenario {
    let text = format!(
        r#"
title = "Traffic"
[run]
duration = "{duration}"
sample_interval = "1 s"
subject = "wire"
[host.server]
count = 3
[host.client]
count = 2
[router.near]
[router.far]
[link.in]
between = ["server", "near"]
[link.wire]
between = ["near", "far"]
rate = "10 Mbps"
delay = "10 ms"
{wire}
[link.out]
between = ["far", "client"]
[traffic.t]
from = "server"
to = "client"
{traffic}
"#
    );
    Scenario::parse(&text, "test.toml", &[]).unwrap_or_else(|e| panic!("{e}"))
}

fn at(seconds: f64) -> Instant {
    Instant::ZERO + Duration::from_secs_f64(seconds)
}

/// Throughput of the wire in each second [bit/s].
fn wire(r: &Results) -> &[f64] {
    &r.series.iter().find(|s| s.name == "throughput").unwrap().values
}

/// JM section IV: a transfer every 2 s on average, half of 10 KB and half of 100 KB. In 4000 s there are 2000 ± 45 of each
/// of two sources, and equally many of both sizes.
#[test]
fn file_transfers_form_a_poisson_process() {
    let r = run(
        "4000 s",
        r#"
kind = "files"
sources = 2
interval = { exponential = "2 s" }
size = { choice = ["10 KB", "100 KB"] }
"#,
    );
    let count = r.flows.len() as f64;
    assert!((count - 4000.0).abs() < 4.0 * 4000f64.sqrt(), "{count}");
    assert!(r.flows.iter().all(|f| f.finite));
    let done: Vec<_> = r.flows.iter().filter(|f| f.completed).collect();
    assert!(r.flows.len() - done.len() <= 2, "all transfers but the latest complete");
    assert!(done.iter().all(|f| f.delivered == 10_000 || f.delivered == 100_000));
    let small = done.iter().filter(|f| f.delivered == 10_000).count() as f64;
    assert!((small / count - 0.5).abs() < 4.0 * 0.5 / count.sqrt(), "{small} of {count}");
    // Ten segments at once: after the handshake 10 KB take one round trip of 20 ms.
    let least = done.iter().map(|f| f.completion_time()).fold(f64::MAX, f64::min);
    assert!((0.030..0.045).contains(&least), "{least}");
    for source in 0..2 {
        let begins: Vec<_> = r.flows.iter().filter(|f| f.session == source).map(|f| f.opened).collect();
        let gaps: Vec<_> = begins.windows(2).map(|w| (w[1] - w[0]).as_secs_f64()).collect();
        let n = gaps.len() as f64;
        let mean = gaps.iter().sum::<f64>() / n;
        let std = (gaps.iter().map(|g| (g - mean) * (g - mean)).sum::<f64>() / n).sqrt();
        // The standard deviation of an exponential distribution equals its mean.
        assert!((mean - 2.0).abs() < 4.0 * 2.0 / n.sqrt(), "{mean}");
        assert!((std - 2.0).abs() < 4.0 * 2.0 * (2.0 / n).sqrt(), "{std}");
    }
}

/// R11 section 7.5: absent from 125 s to 175 s. Each kind of traffic has two records, sends nothing during the absence, and
/// the same rate before and after.
#[test]
fn flows_leave_and_return() {
    for traffic in [
        "kind = \"bulk\"\n",
        "kind = \"cbr\"\nrate = \"1 Mbps\"\npacket = \"1000 B\"\n",
        "kind = \"cbr\"\ntransport = \"default\"\nrate = \"1 Mbps\"\npacket = \"1000 B\"\n",
        "kind = \"poisson\"\nrate = \"2 Mbps\"\npacket = { exponential = \"500 B\" }\n",
    ] {
        let away = format!("{traffic}flows = 2\naway = [[\"125 s\", \"175 s\"]]");
        let r = run_over("queue = { limit = \"50 packets\" }", "200 s", &away);
        let rows: Vec<_> = r.flows.iter().map(|f| (f.session, f.opened, f.closed)).collect();
        let (left, back) = (at(125.0), at(175.0));
        let expected = [
            (0, Instant::ZERO, Some(left)),
            (1, Instant::ZERO, Some(left)),
            (0, back, None),
            (1, back, None),
        ];
        assert_eq!(rows, expected, "{traffic}");
        let left: Vec<_> = r.flows.iter().map(|f| (f.left, f.completed)).collect();
        assert_eq!(left, [(true, false), (true, false), (false, false), (false, false)], "{traffic}");
        let wire = wire(&r);
        // The first second of the absence has packets in flight, the last one the packet sent at 175 s.
        assert!(wire[127..174].iter().all(|x| *x == 0.0), "{traffic}: {:?}", &wire[120..180]);
        assert!(wire[90..120].iter().chain(&wire[180..]).all(|x| *x > 1e6), "{traffic}");
        let rate = |f: &bentpipe_sim::Flow| f.goodput(r.begin, r.end);
        assert!((rate(&r.flows[0]) / rate(&r.flows[2]) - 1.0).abs() < 0.15, "{traffic}");
    }
}

/// Three transfers in steps of two, each replaced every 3 s from its start; the third is due at 5 s. A completed transfer
/// waits for its successor, an absent one skips the successors due during its absence.
#[test]
fn connections_are_replaced_at_the_end_of_their_lifetime() {
    let bulk = "kind = \"bulk\"\nflows = 3\nlifetime = \"3 s\"\n\
                ramp = { sessions = 2, over = \"1 s\", pause = \"4 s\" }\n";
    let rows = |keys: &str| -> Vec<_> {
        let r = run("10 s", &format!("{bulk}{keys}"));
        r.flows.iter().map(|f| (f.session, f.opened, f.closed, f.left, f.completed)).collect()
    };
    let row = |session, opened, closed: Option<f64>| {
        let left = closed.is_some();
        (session, at(opened), closed.map(at), left, false)
    };
    let endless = [
        row(0, 0.0, Some(3.0)),
        row(1, 0.5, Some(3.5)),
        row(0, 3.0, Some(6.0)),
        row(1, 3.5, Some(6.5)),
        row(2, 5.0, Some(8.0)),
        row(0, 6.0, Some(9.0)),
        row(1, 6.5, Some(9.5)),
        row(2, 8.0, None),
        row(0, 9.0, None),
        row(1, 9.5, None),
    ];
    assert_eq!(rows(""), endless);
    let away = rows("away = [[\"4 s\", \"7 s\"]]");
    // Transfers that return at the same time do so in any order.
    let mut opened: Vec<_> = away.iter().map(|(session, opened, ..)| (*opened, *session)).collect();
    opened.sort();
    assert_eq!(
        opened,
        [
            (0, 0.0),
            (1, 0.5),
            (0, 3.0),
            (1, 3.5),
            (0, 7.0),
            (1, 7.0),
            (2, 7.0),
            (0, 10.0),
            (1, 10.0),
            (2, 10.0)
        ]
        .map(|(session, s)| (at(s), session))
    );
    let done = rows("bytes = \"10 KB\"");
    assert_eq!(done.iter().map(|r| (r.0, r.1)).collect::<Vec<_>>(), endless.map(|r| (r.0, r.1)));
    assert!(done[..8].iter().all(|(_, opened, closed, left, completed)| {
        *completed && !left && closed.is_some_and(|closed| closed < *opened + Duration::from_secs(1))
    }));
}

/// 10 Mbit/s carry 1.25 MB in a second, so pages of 10 MB are given up after 3 s and opened again after a think time of 1 s,
/// on each of the connections that load a page; pages of 100 KB are complete by then.
#[test]
fn pages_are_given_up_after_the_patience() {
    let rows = |keys: &str| -> Vec<_> {
        let pages = "kind = \"pages\"\nsessions = 1\nthink_time = \"1 s\"\npatience = \"3 s\"\n";
        let r = run("10 s", &format!("{pages}{keys}"));
        r.flows.iter().map(|f| (f.opened, f.closed, f.completed)).collect()
    };
    let row = |opened, closed: Option<f64>| (at(opened), closed.map(at), false);
    let given_up = [row(0.0, Some(3.0)), row(4.0, Some(7.0)), row(8.0, None)];
    assert_eq!(rows("object_size = \"10 MB\""), given_up);
    let two = rows("object_size = \"10 MB\"\nobjects_per_page = 2\nconnection_per = \"object\"");
    assert_eq!(two, given_up.map(|row| [row, row]).concat());
    let complete = rows("object_size = \"100 KB\"");
    let (last, before) = complete.split_last().expect("a page");
    assert!(before.len() >= 6 && before.iter().all(|(_, _, completed)| *completed), "{complete:?}");
    assert!(last.0 > at(7.0));
}

/// Lets all packets pass, and notes the beginning and end of flows.
struct Announcements(Arc<Mutex<Vec<(FlowId, FlowEvent)>>>);

impl Aqm for Announcements {
    fn arrive(&mut self, _pkt: &Packet, _cx: &mut Context<'_>) -> Verdict {
        Verdict::Pass
    }

    fn flow(&mut self, flow: FlowId, event: FlowEvent, _cx: &mut Context<'_>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((flow, event));
    }
}

/// The link loses all SYNs. Pages begin every 3 s: after a patience of 2 s and a think time of 1 s.
#[test]
fn queues_see_the_end_of_a_page_that_is_given_up_during_the_handshake() {
    let pages =
        "kind = \"pages\"\nsessions = 1\nobject_size = \"1 KB\"\nthink_time = \"1 s\"\npatience = \"2 s\"\n";
    let scenario = scenario("queue = {}\nreverse = { loss = 0.999999 }", "10 s", pages);
    let announced = Arc::new(Mutex::new(Vec::new()));
    let mut make: &mut dyn FnMut() -> Box<dyn Aqm> = &mut || Box::new(Announcements(announced.clone()));
    let sinks = Sinks { observe: &mut |_| {}, log: &mut |_| {} };
    run_with(&scenario, 1, &Progress::default(), &Watch::default(), sinks, Some(&mut make))
        .unwrap_or_else(|e| panic!("{e}"));
    let (opened, closed) = (FlowEvent::Opened, FlowEvent::Closed);
    let expected = (0..3).flat_map(|flow| [(FlowId(flow), opened), (FlowId(flow), closed)]);
    let expected: Vec<_> = expected.chain([(FlowId(3), opened)]).collect();
    assert_eq!(*announced.lock().unwrap_or_else(PoisonError::into_inner), expected);
}

/// Exponential lifetimes of 2 s, 5 % in a tenth of a second: of 100 transfers in 100 s, 5000 are replaced, with a standard error
/// of 71. Each replaces its predecessor at once, so there are always 100, and the replacements and their times do not
/// depend on the queue.
#[test]
fn lifetimes_do_not_depend_on_the_queue() {
    let bulk = "kind = \"bulk\"\nflows = 100\nlifetime = { exponential = \"2 s\" }\n";
    for (protocol, carrier) in
        [("tcp", ""), ("sctp", "transport = \"s\"\n[transport.s]\nprotocol = \"sctp\"\n")]
    {
        let lives = |aqm: &str| -> Vec<_> {
            let queue = format!("queue = {{ limit = \"50 packets\", aqm.algorithm = \"{aqm}\" }}");
            let r = run_over(&queue, "100 s", &format!("{bulk}{carrier}"));
            r.flows.iter().map(|f| (f.session, f.opened)).collect()
        };
        let tail = lives("droptail");
        assert!(tail.len().abs_diff(5100) < 355, "{protocol}: {}", tail.len());
        assert_eq!(lives("red"), tail, "{protocol}");
    }
}

/// Two sources with three transfers each, a second apart: then they start no more, whatever the time left.
#[test]
fn a_source_ends_after_its_number_of_transfers() {
    let files = "kind = \"files\"\nsources = 2\ninterval = \"1 s\"\nsize = \"1 KB\"\n";
    let opened = |more: &str| {
        run("10 s", &format!("{files}{more}")).flows.iter().map(|f| f.opened).collect::<Vec<_>>()
    };
    assert_eq!(opened("transfers = 3\n"), [1.0, 1.0, 2.0, 2.0, 3.0, 3.0].map(at));
    assert_eq!(opened("transfers = 1\nstart = \"4 s\"\n"), [5.0, 5.0].map(at));
    assert_eq!(opened("").len(), 20);
}

/// A source absent at its start begins at the end of its absence. Sources of files and pages start no transfer while absent.
#[test]
fn absent_users_begin_nothing() {
    let away = "away = [[\"0 s\", \"10 s\"], [\"20 s\", \"30 s\"]]\n";
    let cbr = "kind = \"cbr\"\nrate = \"1 Mbps\"\npacket = \"1000 B\"\nstart = \"5 s\"\n";
    let opened: Vec<_> = run("40 s", &format!("{cbr}{away}")).flows.iter().map(|f| f.opened).collect();
    assert_eq!(opened, [at(10.0), at(30.0)]);
    for traffic in [
        "kind = \"files\"\ninterval = { exponential = \"100 ms\" }\nsize = \"1 KB\"\n",
        "kind = \"pages\"\nsessions = 3\nobject_size = \"1 KB\"\nthink_time = { exponential = \"100 ms\" }\n",
    ] {
        let r = run("40 s", &format!("{traffic}{away}"));
        let count =
            |from, until| r.flows.iter().filter(|f| (at(from)..at(until)).contains(&f.opened)).count();
        assert_eq!((count(0.0, 10.0), count(20.0, 30.0)), (0, 0), "{traffic}");
        assert!(count(10.0, 20.0) > 60 && count(30.0, 40.0) > 60, "{traffic}");
    }
}

/// Datagrams of 1000 bytes at 1 Mbit/s have the same payload over TCP, which replaces their 28 bytes of headers.
#[test]
fn packets_can_be_written_into_a_connection() {
    let cbr = "kind = \"cbr\"\nrate = \"1 Mbps\"\npacket = \"1000 B\"\n";
    let datagrams = run("100 s", cbr);
    let tcp = run("100 s", &format!("{cbr}transport = \"default\""));
    // A packet every 8 ms: 12501, of which those of the last 10 ms are in flight.
    let expected = 12_499 * 972;
    assert_eq!(datagrams.flows[0].delivered, expected);
    assert!(
        (i64::try_from(tcp.flows[0].delivered).unwrap() - i64::try_from(expected).unwrap()).abs() <= 2 * 972
    );
    let lossy = run_over("loss = 0.01\nqueue = {}", "100 s", &format!("{cbr}transport = \"default\""));
    assert!(lossy.flows[0].delivered as f64 > 0.99 * expected as f64, "losses are retransmitted");
}

/// 25 frames of 4000 bytes per second, each in packets of 1472, 1472 and 1056 bytes.
#[test]
fn video_and_voice_arrive_at_their_rates() {
    let folder = std::env::temp_dir().join(format!("bentpipe-sim-traffic-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("film.dat");
    std::fs::write(&path, "4000\n4000\n").unwrap();
    let video = format!("kind = \"video\"\nfps = 25\ntrace = \"{}\"\n", path.display());
    let r = run("100 s", &video);
    std::fs::remove_dir_all(&folder).unwrap();
    // The frame of 100 s is still in flight.
    assert_eq!(r.flows[0].delivered, 2500 * 4000);
    let gop = "kind = \"video\"\ngop = { rate = \"800 kbps\", shape = 4 }\nsend = \"spread\"\nflows = 4\n";
    let r = run("400 s", gop);
    let mean = r.flows.iter().map(|f| f.goodput(r.begin, r.end)).sum::<f64>() / 4.0;
    assert!((mean / 800e3 - 1.0).abs() < 0.02, "{mean}");
    let voice = "kind = \"voip\"\ncodec = \"g729\"\nflows = 50\nstart = { uniform = [\"0 s\", \"1 s\"] }\n";
    let r = run("400 s", voice);
    // 32 bytes with RTP's header 50 times per second, during 1.004 s of 2.591 s: 4960 bit/s with a standard error of 45.
    let mean = r.flows.iter().map(|f| f.goodput(r.begin, r.end)).sum::<f64>() / 50.0;
    assert!((mean - 12_800.0 * 1.004 / 2.591).abs() < 180.0, "{mean}");
}

/// Packets of a capture; all are lost on the wire, so the record of drops has their times and lengths.
#[test]
fn a_replay_sends_each_packet_at_its_time() {
    let words = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    let mut bytes = words(&[0xa1b2_3c4d, 0x0004_0002, 0, 0, 65_535, 1]);
    let packets = [(1000, 5, 1514), (1000, 250_000_005, 60), (1003, 5, 60), (1003, 999_999_999, 777)];
    for (seconds, nanoseconds, len) in packets {
        bytes.extend(words(&[seconds, nanoseconds, 0, len]));
    }
    let path = std::env::temp_dir().join(format!("bentpipe-replay-{}.pcap", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    let traffic = format!("kind = \"replay\"\nstart = \"2 s\"\ncapture = \"{}\"\n", path.display());
    let r = run_over("loss = { nth = [1, 2, 3, 4] }\nqueue = {}", "10 s", &traffic);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(r.drops.bytes, [1514, 60, 60, 777]);
    assert_eq!(r.drops.time, [2.0, 2.25, 5.0, 5.999_999_994]);
}

/// A day of 40 s: a share of 0 at 0 s and of 1 at 20 s. Transfers start every 50 ms at the peak; in a window of 10 s between shares
/// of a and b, 200 (a + b) / 2 of them on average. The number is within four standard deviations.
#[test]
fn file_transfers_follow_the_profile_of_a_day() {
    let r = run(
        "400 s",
        "kind = \"files\"\ninterval = { exponential = \"50 ms\" }\nsize = \"1 KB\"\n\
         profile = { points = [[\"0 h\", 0], [\"12 h\", 1]], day = \"40 s\" }",
    );
    for window in 0..40u32 {
        let starts = r.flows.iter().filter(|flow| {
            let opened = flow.opened.since(Instant::ZERO).as_secs_f64();
            (f64::from(window) * 10.0..f64::from(window + 1) * 10.0).contains(&opened)
        });
        let (count, expected) = (starts.count() as f64, [50.0, 150.0, 150.0, 50.0][window as usize % 4]);
        assert!((count - expected).abs() < 4.0 * expected.sqrt(), "window {window}: {count} of {expected}");
    }
}

/// A day of 40 s that begins at noon, at the peak of ten flows of 100 kbit/s: the rate falls by 50 kbit/s per second, to zero at
/// 20 s, and rises again.
#[test]
fn flows_come_and_go_by_the_profile_of_a_day() {
    let r = run(
        "60 s",
        "kind = \"cbr\"\nflows = 10\nrate = \"100 kbps\"\npacket = \"125 B\"\n\
         profile = { points = [[\"0 h\", 0], [\"12 h\", 1]], day = \"40 s\", start = \"12 h\" }",
    );
    for (second, rate) in wire(&r).iter().enumerate() {
        let share = ((second as f64 + 0.5).rem_euclid(40.0) - 20.0).abs() / 20.0;
        assert!((rate - 1e6 * share).abs() <= 51_000.0, "{second} s: {rate} of {}", 1e6 * share);
    }
}
