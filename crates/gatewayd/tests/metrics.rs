//! `/metrics` is in Prometheus' text format 0.0.4, parsed here strictly by its definition
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>), and follows the naming conventions.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration as Wait;

use crate::prometheus::{Buckets, Labels, Parsed, about, parse, shared, snapshot};
use bentpipe_gatewayd::observe::http::serve;
use bentpipe_gatewayd::observe::metrics::Histogram;
use bentpipe_gatewayd::observe::state::{COLUMNS, Shared};
use bentpipe_gatewayd::sys::cpu_time;
use bentpipe_units::Duration;
use nix::sys::resource::{Resource, getrlimit};

/// Naming conventions: <https://prometheus.io/docs/practices/naming/>.
fn check_names(parsed: &Parsed) {
    for (name, kind) in &parsed.types {
        assert!(name.starts_with("bentpipe_") || name.starts_with("process_"), "{name}");
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
        for unit in ["_ms", "_milliseconds", "_bits", "_kb", "_percent", "_bps", "_ns", "_minutes"] {
            assert!(!name.contains(unit), "{name}: not a base unit");
        }
    }
    for (name, labels, value) in &parsed.samples {
        if parsed.types.get(name).is_some_and(|kind| kind == "counter") {
            assert!(*value >= 0.0, "{name} {labels:?} {value}");
        }
    }
}

fn check_histograms(parsed: &Parsed) {
    for name in parsed.types.iter().filter(|(_, kind)| *kind == "histogram").map(|(name, _)| name) {
        let mut series: BTreeMap<Labels, Buckets> = BTreeMap::new();
        for (_, labels, value) in parsed.samples.iter().filter(|s| s.0 == format!("{name}_bucket")) {
            let (le, others): (Vec<_>, Vec<_>) = labels.iter().cloned().partition(|(key, _)| key == "le");
            let bound = if le[0].1 == "+Inf" { f64::INFINITY } else { le[0].1.parse().expect("a number") };
            series.entry(others).or_default().push((bound, *value));
        }
        assert!(!series.is_empty());
        for (labels, buckets) in series {
            assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{buckets:?}");
            let labels: Vec<_> = labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            let last = buckets.last().copied().unwrap_or_default();
            assert_eq!(last, (f64::INFINITY, parsed.value(&format!("{name}_count"), &labels)));
            assert!(parsed.value(&format!("{name}_sum"), &labels) >= 0.0);
        }
    }
}

#[test]
fn metrics_are_in_prometheus_text_format() {
    let text = shared().prometheus().expect("a snapshot");
    let parsed = parse(&text);
    check_names(&parsed);
    check_histograms(&parsed);
    assert_eq!(
        parsed.value("bentpipe_queue_dropped_packets_total", &[("queue", "receive"), ("reason", "aqm")]),
        500.0
    );
    assert_eq!(parsed.value("bentpipe_capacity_bytes_per_second", &[]), 2_500_000.0);
    assert!((parsed.value("bentpipe_utilization_ratio", &[]) - 0.8).abs() < 1e-9);
    assert_eq!(parsed.value("bentpipe_bottleneck", &[("limit", "server")]), 1.0);
    assert_eq!(parsed.value("bentpipe_bottleneck_seconds_total", &[("limit", "server")]), 5.0);
    let le = |bound| [("queue", "transmit"), ("le", bound)];
    assert_eq!(parsed.value("bentpipe_queue_delay_seconds_bucket", &le("0.001")), 10.0);
    assert_eq!(parsed.value("bentpipe_queue_delay_seconds_bucket", &le("0.002")), 15.0);
    assert_eq!(parsed.value("bentpipe_queue_delay_seconds_bucket", &le("5")), 20.0);
    assert_eq!(parsed.value("bentpipe_queue_delay_seconds_bucket", &le("+Inf")), 25.0);
    assert!(
        (parsed.value("bentpipe_queue_delay_seconds_sum", &[("queue", "transmit")]) - 35.165).abs() < 1e-9
    );
    let info: Vec<_> = parsed.samples.iter().filter(|s| s.0 == "bentpipe_build_info").collect();
    assert_eq!(info[0].1[2], ("aqm".to_owned(), about().aqm));
    assert!(parsed.value("process_resident_memory_bytes", &[]) > 1e6);
    assert!(parsed.value("process_open_fds", &[]) >= 3.0);
    let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    assert_eq!(parsed.value("process_max_fds", &[]), soft as f64);
}

/// User and system time, as in getrusage(2); other tests of this process run meanwhile.
#[test]
fn cpu_time_includes_the_system() {
    while cpu_time().1 < 0.1 {
        assert!(std::fs::read("/proc/self/status").is_ok());
    }
    let sum = |(user, system): (f64, f64)| user + system;
    let before = sum(cpu_time());
    let cpu = parse(&shared().prometheus().expect("a snapshot")).value("process_cpu_seconds_total", &[]);
    // To one tick of each.
    assert!((before - 0.02..=sum(cpu_time()) + 0.02).contains(&cpu), "{cpu} after {before}");
}

/// A parser that accepts everything would prove nothing.
#[test]
fn the_parser_refuses_invalid_metrics() {
    let good = "# HELP a_total X.\n# TYPE a_total counter\na_total{b=\"c\"} 1\n";
    assert_eq!(parse(good).samples.len(), 1);
    for (from, to) in [
        ("a_total{", "b_total{"),
        ("\"} 1\n", "\"} 1"),
        ("\"} 1", "\"}  1"),
        ("\"} 1", "\"} one"),
        ("\"c\"", "\"\\c\""),
        ("\"c\"", "c"),
        ("{b=", "{1="),
        ("TYPE a_total counter", "TYPE a_total count"),
        ("# TYPE a_total counter\n", ""),
        ("} 1\n", "} 1\na_total{b=\"c\"} 2\n"),
    ] {
        assert!(good.contains(from));
        let bad = good.replace(from, to);
        assert!(std::panic::catch_unwind(|| parse(&bad)).is_err(), "{bad}");
    }
}

#[test]
fn samples_are_rates_of_their_interval() {
    let json = |since| -> serde_json::Value { serde_json::from_str(&shared().json(since)).expect("JSON") };
    let state = json(0);
    let rows = state["samples"].as_array().expect("rows");
    assert_eq!(rows.len(), 3, "three are kept");
    let value = |name: &str| {
        let i = COLUMNS.iter().position(|c| *c == name).expect(name);
        rows[2][i].as_f64().unwrap_or(f64::NAN)
    };
    for (name, expected) in [
        ("time_ms", 105_000.0),
        ("utilization", 0.8),
        ("sent_bps", 16e6),
        ("queue_packets", 0.5),
        ("aqm_drops_per_s", 100.0),
        ("marks_per_s", 30.0),
        ("nfqueue_lost_per_s", 10.0),
        ("tcp_split_sent_bps", 12e6),
        ("udp_sent_bps", 4e6),
        ("tcp_split_received_bps", 0.0),
        ("delay_mean_s", 1.4066),
        ("rtt_s", 0.612),
        ("loss_ratio", 0.02),
        ("up", 1.0),
    ] {
        assert!((value(name) - expected).abs() < 1e-9, "{name} {} {expected}", value(name));
    }
    assert_eq!(state["bottlenecks"][value("bottleneck") as usize], "server");
    assert_eq!(json(104_000)["samples"].as_array().map(Vec::len), Some(1));
    assert_eq!(json(105_000)["samples"].as_array().map(Vec::len), Some(0));
    // The last sample is of second 5; it is stale once three more are missing.
    let health = |ms| shared().health(ms).map_err(|error| error.clone());
    assert!(health(8000).is_ok());
    assert_eq!(health(8001), Err("no sample for 3 s".to_owned()));
}

/// The clock is set back by a minute, and later ahead by an hour.
#[test]
fn samples_continue_when_the_clock_is_set() {
    let shared = shared();
    let times = |since: u64| -> Vec<f64> {
        let state: serde_json::Value = serde_json::from_str(&shared.json(since)).expect("JSON");
        let rows = state["samples"].as_array().expect("rows");
        rows.iter().map(|row| row[0].as_f64().expect("a time")).collect()
    };
    assert_eq!(times(104_000), [105_000.0]);
    shared.publish(snapshot(6), 46_000, 6000);
    assert_eq!(times(105_000), [46_000.0]);
    assert!(times(46_000).is_empty());
    shared.publish(snapshot(7), 3_647_000, 7000);
    assert_eq!(times(46_000), [3_647_000.0]);
    assert_eq!(times(0), [105_000.0, 46_000.0, 3_647_000.0]);
    assert!(shared.health(10_000).is_ok() && shared.health(10_001).is_err());
}

/// Worked out by hand: of 4 delays 2 are up to 1 ms, one up to 2 ms and one up to 50 ms. The median is the end of the first
/// bucket, the 3/4 quantile that of the second, and the 7/8 quantile halfway from 20 to 50 ms.
#[test]
fn quantiles_interpolate_within_buckets() {
    let mut h = Histogram::default();
    [0, 1, 2, 30].iter().for_each(|ms| h.observe(Duration::from_millis(*ms)));
    for (q, s) in [(0.5, 0.001), (0.75, 0.002), (0.875, 0.035)] {
        assert!((h.quantile_s(q).unwrap_or_default() - s).abs() < 1e-12, "{q}");
    }
    assert_eq!(Histogram::default().quantile_s(0.5), None);
}

fn ask(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("a listener");
    stream.set_read_timeout(Some(Wait::from_secs(10))).expect("a time-out");
    stream.write_all(request).expect("a request sent");
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    text
}

#[test]
fn the_server_responds_and_limits_clients() {
    let shared = Shared::new(about(), Duration::from_secs(1), Duration::from_secs(3));
    let address = serve("127.0.0.1:0".parse().expect("an address"), shared.clone()).expect("a listener");
    let get = |path: &str| ask(address, format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
    assert!(get("/metrics").starts_with("HTTP/1.1 503 "));
    assert!(get("/healthz").starts_with("HTTP/1.1 503 "));
    (0..2).for_each(|second| shared.publish(snapshot(second), 1000 * (100 + second), 1000 * second));
    let metrics = get("/metrics");
    let (head, body) = metrics.split_once("\r\n\r\n").expect("a head");
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n")
    );
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
    assert!(!parse(body).samples.is_empty());
    assert!(get("/healthz").ends_with(" s\n"), "the snapshot is as old as 1970");
    assert!(get("/state.json?x=1&since=7").contains("\"samples\":[["));
    assert!(get("/").contains("<!doctype html>") || get("/").contains("<!DOCTYPE html>"));
    assert!(get("/none").starts_with("HTTP/1.1 404 "));
    let head = ask(address, b"HEAD /metrics HTTP/1.0\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"));
    assert!(ask(address, b"POST / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    for bad in [&b"GET /\r\n\r\n"[..], b"\xff\xfe / HTTP/1.1\r\n\r\n", b"GET / HTTP/2\r\n\r\n", b"\r\n\r\n"] {
        assert!(ask(address, bad).starts_with("HTTP/1.1 400 "));
    }
    assert!(ask(address, &[b'a'; 8000]).starts_with("HTTP/1.1 431 "));
    // A client that sends too much gets a response, not a reset.
    let mut stream = TcpStream::connect(address).expect("a listener");
    stream.write_all(&[b'a'; 8000]).expect("a request sent");
    std::thread::sleep(Wait::from_millis(50));
    stream.write_all(&[b'a'; 100_000]).expect("it still reads");
    stream.shutdown(std::net::Shutdown::Write).expect("it is open");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer to its end");
    assert!(text.starts_with("HTTP/1.1 431 "), "{text}");
    // Forty silent clients time out one after the other and do not block others for longer.
    let silent: Vec<_> = (0..40).map(|_| TcpStream::connect(address).expect("a listener")).collect();
    assert!(get("/healthz").starts_with("HTTP/1.1 503 "));
    drop(silent);
    assert!(get("/healthz").starts_with("HTTP/1.1 503 "));
}

/// 1000 bytes in a second are 8 kbit/s; 5 of 100 packets are lost.
#[test]
fn each_terminal_has_its_metrics_and_rates() {
    let shared = shared();
    let metrics = parse(&shared.prometheus().expect("a snapshot"));
    for (name, t0, t1) in [
        ("bentpipe_terminal_up", 1.0, 1.0),
        ("bentpipe_terminal_sent_bytes_total", 5000.0, 5000.0),
        ("bentpipe_terminal_lost_packets_total", 25.0, 0.0),
        ("bentpipe_terminal_connections", 0.0, 7.0),
        ("bentpipe_terminal_queue_bytes", 4500.0, 0.0),
    ] {
        assert_eq!(metrics.value(name, &[("terminal", "t0")]), t0, "{name}");
        assert_eq!(metrics.value(name, &[("terminal", "t1")]), t1, "{name}");
    }
    let info = metrics.value("bentpipe_terminal_info", &[("terminal", "t1"), ("plan", "office")]);
    let by_limit = |limit| metrics.value("bentpipe_terminals_by_bottleneck", &[("limit", limit)]);
    assert_eq!((info, by_limit("nothing"), by_limit("regulator")), (1.0, 2.0, 0.0));
    // 300 ms to the terminal and 60 ms at the ends, without loss: tests/voice.csv.
    let mos = |terminal| metrics.value("bentpipe_terminal_voice_mos", &[("terminal", terminal)]);
    assert!((mos("t1") - 3.404523074).abs() < 1e-6 && mos("t0") < mos("t1"));
    let json: serde_json::Value = serde_json::from_str(&shared.peers()).expect("JSON");
    let first = &json["terminals"][0];
    assert_eq!((&first["terminal"], &first["state"]), (&"t0".into(), &"up".into()));
    assert_eq!((first["sent_bps"].as_f64(), first["loss_ratio"].as_f64()), (Some(8000.0), Some(0.05)));

    // The series of a removed terminal end.
    let mut next = snapshot(6);
    next.peers.remove(0);
    shared.publish(next, 106_000, 6000);
    let metrics = parse(&shared.prometheus().expect("a snapshot"));
    assert!(metrics.samples.iter().all(|(_, labels, _)| labels.iter().all(|(_, value)| value != "t0")));
    assert_eq!(metrics.value("bentpipe_terminal_connections", &[("terminal", "t1")]), 7.0);
}
