//! Every kind of mistake gives one message: file, line and column, key, value found, permitted values, and the nearest name.
//! Tests compare whole messages.

use bentpipe_scenario::Scenario;

/// A small scenario, which the cases below modify.
const GATEWAY: &str = r#"title = "A test"

[run]
duration = "60 s"

[host.server]
count = 5

[host.client]
count = 10

[link.ingress]
between = ["server", "gateway"]
rate = "10 Mbps"
delay = "20 ms"

[gateway]
aqm = { algorithm = "red" }
regulator = { rate = "1 Mbps" }

[link.satellite]
between = ["gateway", "terminal"]
delay = "250 ms"

[link.access]
between = ["terminal", "client"]

[traffic.web]
kind = "pages"
from = "server"
to = "client"
sessions = 20
object_size = "50 KB"
"#;

/// Message for `GATEWAY` with one passage replaced.
fn changed(from: &str, to: &str) -> String {
    assert!(GATEWAY.contains(from), "the scenario has no {from:?}");
    message(&GATEWAY.replacen(from, to, 1), &[])
}

/// Message for `GATEWAY` with one override.
fn set(change: &str) -> String {
    message(GATEWAY, &[change.to_owned()])
}

fn message(text: &str, overrides: &[String]) -> String {
    match Scenario::parse(text, "my.toml", overrides) {
        Ok(_) => "no mistake".to_owned(),
        Err(e) => e.to_string(),
    }
}

/// Asserts messages: passage, replacement, message.
fn check(cases: &[(&str, &str, &str)]) {
    for (from, to, expected) in cases {
        assert_eq!(changed(from, to), with_lists(expected), "{from:?} changed to {to:?}");
    }
}

#[test]
fn base_scenarios_are_valid() {
    assert_eq!(message(GATEWAY, &[]), "no mistake");
}

#[test]
fn unknown_keys_are_reported() {
    check(&[
        (
            "delay = \"20 ms\"",
            "dealy = \"20 ms\"",
            "my.toml:15:1: link.ingress.dealy: no such key; did you mean \"delay\"? allowed: between, rate, capacity, \
             demand, access, delay, handover, loss, queue, reverse",
        ),
        (
            "[gateway]",
            "[gatway]",
            "my.toml:17:2: gatway: no such key; did you mean \"gateway\"? allowed: title, description, source, run, \
             host, router, link, carrier, terminal, plan, pool, gateway, transport, traffic, setting, thresholds, model, printed",
        ),
        (
            "sessions = 20",
            "sessions = 20\nflows = 3",
            "my.toml:33:1: traffic.web.flows: no such key; allowed: from, to, transport, sessions, object_size, \
             objects_per_page, connection_per, http, keep_alive, render_blocking, priorities, think_time, patience, request_size, rate_cap, ramp, away, dscp, profile, class",
        ),
        (
            "delay = \"20 ms\"",
            "delay = { exponential = \"1 s\" }",
            "my.toml:15:11: link.ingress.delay.exponential: no such key; allowed: uniform, normal, fixed, \
             jitter, per, ordered",
        ),
        ("count = 5", "count = 5\ncount = 6", "my.toml:8:1: not TOML: duplicate key \"count\""),
    ]);
}

#[test]
fn wrong_limits_of_quality_are_reported() {
    check(&[
        (
            "[traffic.web]",
            "[thresholds]\n\"voice.moss\" = { good = 4 }\n[traffic.web]",
            "my.toml:29:1: thresholds.\"voice.moss\": found \"voice.moss\"; did you mean \"voice.mos\"? allowed: \
             voice.r, voice.mos, voice.delay, voice.loss, page.ttfb, page.load, video.mos, video.startup, \
             video.stalls, game.delay, game.loss, iot.delay, iot.loss, download.time, download.plan, responsiveness",
        ),
        (
            "[traffic.web]",
            "[thresholds]\nvoice.mos = { good = 4 }\n[traffic.web]",
            "my.toml:29:7: thresholds.voice.mos: found without quotes; allowed: \"voice.mos\", because the name has a dot",
        ),
        (
            "[traffic.web]",
            "[thresholds]\n\"page.load\" = { good = 5 }\n[traffic.web]",
            "my.toml:29:24: thresholds.\"page.load\".good: found good = 5 and bad = 4; allowed: a good of at most bad, \
             because lower values are better",
        ),
        (
            "[traffic.web]",
            "[thresholds]\n\"voice.mos\" = { bad = 4.1 }\n[traffic.web]",
            "my.toml:29:23: thresholds.\"voice.mos\".bad: found good = 4.03 and bad = 4.1; allowed: a good of at least \
             bad, because higher values are better",
        ),
        (
            "[traffic.web]",
            "[thresholds]\n\"voice.mos\" = { fair = 3.6 }\n[traffic.web]",
            "my.toml:29:17: thresholds.\"voice.mos\".fair: no such key; allowed: good, bad",
        ),
        (
            "[traffic.web]",
            "[thresholds]\n\"voice.mos\" = { good = 9 }\n[traffic.web]",
            "my.toml:29:24: thresholds.\"voice.mos\".good: found 9; allowed: 1 to 4.5",
        ),
        (
            "[traffic.web]",
            "[thresholds]\n\"page.load\" = { bad = -1 }\n[traffic.web]",
            "my.toml:29:23: thresholds.\"page.load\".bad: found -1; allowed: at least 0",
        ),
        (
            "[traffic.web]",
            "[thresholds]\n\"voice.mos\" = { bad = nan }\n[traffic.web]",
            "my.toml:29:23: thresholds.\"voice.mos\".bad: found NaN; allowed: a number",
        ),
    ]);
}

#[test]
fn wrong_codepoints_are_reported() {
    for (dscp, found) in [("64", "64"), ("-1", "-1"), ("'EFF'", "\"EFF\"")] {
        let message = changed("sessions = 20", &format!("sessions = 20\ndscp = {dscp}"));
        let expected = format!(
            "my.toml:33:8: traffic.web.dscp: found {found}; allowed: a whole number from 0 to 63, or one of CS0, LE, CS1, "
        );
        assert!(message.starts_with(&expected), "{message}");
    }
}

#[test]
fn lifetimes_that_only_open_connections_are_refused() {
    let bulk = |lifetime: &str| {
        let pages =
            "kind = \"pages\"\nfrom = \"server\"\nto = \"client\"\nsessions = 20\nobject_size = \"50 KB\"";
        changed(pages, &format!("kind = 'bulk'\nfrom = 'server'\nto = 'client'\nlifetime = {lifetime}"))
    };
    for lifetime in ["'1 ms'", "{ exponential = '1 ms' }", "{ uniform = ['1 us', '2 ms'] }"] {
        assert_eq!(bulk(lifetime), "no mistake", "{lifetime}");
    }
    for (lifetime, column) in [("'999 us'", 12), ("{ exponential = '999 us' }", 1)] {
        let expected = format!(
            "my.toml:32:{column}: traffic.web.lifetime: found a mean of 999 us; allowed: at least 1 ms"
        );
        assert_eq!(bulk(lifetime), expected, "{lifetime}");
    }
}

#[test]
fn wrong_profiles_of_a_day_are_reported() {
    let profile = |text: &str| changed("sessions = 20", &format!("sessions = 20\nprofile = {text}"));
    for (text, expected) in [
        (
            "[]",
            ": found no share above 0; allowed: times and shares, such as [[\"6 h\", 0.2], [\"20 h\", 1.0]]",
        ),
        ("[['6 h', 0.2], ['5 h', 1]]", "[2][1]: found \"18000 s\" after \"21600 s\"; allowed: rising times"),
        ("[['6 h', 2]]", "[1][2]: found 2; allowed: a share of the peak, from 0 to 1"),
        ("[['24 h', 1]]", "[1][1]: found \"86400 s\"; allowed: a time of day below \"24 h\""),
        (
            "{ points = [['6 h', 1]], start = '24 h' }",
            ".start: found \"86400 s\"; allowed: a time of day below \"24 h\"",
        ),
        (
            "{ points = [['6 h', 1], ['7 h', 0]], day = '1 ns' }",
            ".day: found \"1 ns\"; allowed: a longer day, in which the points are a nanosecond apart",
        ),
        ("{ shape = 'residential' }", ".shape: no such key; allowed: points, day, start"),
        (
            "'residential'",
            ": found \"residential\"; allowed: pairs of time and share such as [[\"6 h\", 0.2], [\"20 h\", 1.0]], or a \
             table with points",
        ),
    ] {
        let found = profile(text);
        assert!(found.ends_with(&format!("traffic.web.profile{expected}")), "{text}: {found}");
    }
}

#[test]
fn wrong_queue_limits_are_reported() {
    check(&[
        (
            "rate = \"1 Mbps\" }",
            "rate = \"1 Mbps\" }\ntransmit_queue.limit = \"200 mss\"",
            "my.toml:20:24: gateway.transmit_queue.limit: found \"200 mss\"; allowed: a number of packets such as \
             \"100 packets\" (packets), a size such as \"1400 B\" (B, KB, MB, GB, KiB, MiB, GiB), or a time such as \
             \"300 ms\" (ns, us, ms, s, min, h)",
        ),
        (
            "rate = \"1 Mbps\" }",
            "rate = \"1 Mbps\" }\nreceive_queue.limit = \"200 ms\"",
            "my.toml:20:23: gateway.receive_queue.limit: found \"200 ms\"; allowed: packets or bytes, because the queue \
             has no rate at which a time could be converted",
        ),
    ]);
}

#[test]
fn missing_keys_are_reported() {
    check(&[
        ("title = \"A test\"", "", "my.toml:1:1: title: missing; required: Title, one line"),
        (
            "duration = \"60 s\"",
            "",
            "my.toml:3:2: run.duration: missing; required: Measured simulated time, after the warm-up, such \
             as \"300 ms\"",
        ),
        (
            "rate = \"1 Mbps\"",
            "",
            "my.toml:19:1: gateway.regulator.rate: missing; required: Rate of the regulator, on the wire; \"link\" to follow the satellite link's rate or capacity, such as \"20 Mbps\"",
        ),
        ("sessions = 20", "", "my.toml:28:10: traffic.web.sessions: missing; required: Number of sessions"),
        (
            "kind = \"pages\"",
            "",
            "my.toml:28:10: traffic.web.kind: missing; allowed: pages, files, bulk, dash, probe, cbr, poisson, on_off, mmpp, video, voip, replay",
        ),
        (
            "between = [\"server\", \"gateway\"]",
            "",
            "my.toml:12:7: link.ingress.between: missing; required: Nodes at the two ends; the forward direction leads from the first to the second",
        ),
    ]);
    assert_eq!(
        message("title = \"x\"\nrun.duration = \"1 s\"\n", &[]),
        "my.toml:1:1: traffic: missing; required: at least one traffic entry, such as [traffic.web]"
    );
}

#[test]
fn wrong_units_are_reported() {
    const RATES: &str = "allowed: a rate such as \"20 Mbps\" (bps, kbps, Mbps, Gbps)";
    for (found, shown) in [
        ("\"1 Mbs\"", "\"1 Mbs\""),
        ("20", "20, without a unit"),
        ("20.5", "20.5, without a unit"),
        ("nan", "NaN, without a unit"),
        ("\"nan Mbps\"", "\"nan Mbps\""),
        ("\"20 ms\"", "\"20 ms\""),
        ("true", "true"),
        ("[]", "an array"),
        ("{}", "a table"),
        ("2026-01-01", "2026-01-01"),
    ] {
        let expected = format!("my.toml:19:22: gateway.regulator.rate: found {shown}; {RATES}");
        let expected = if found == "{}" { expected.replace(":22:", ":15:") } else { expected };
        assert_eq!(changed("\"1 Mbps\"", found), expected);
    }
    check(&[
        (
            "delay = \"20 ms\"",
            "delay = 20",
            "my.toml:15:9: link.ingress.delay: found 20, without a unit; allowed: a time such as \"300 ms\" (ns, us, \
             ms, s, min, h)",
        ),
        (
            "[gateway]",
            "[gateway]\ntransmit_queue.limit = 5",
            "my.toml:18:24: gateway.transmit_queue.limit: found 5, without a unit; allowed: a number of packets such \
             as \"100 packets\" (packets), a size such as \"1400 B\" (B, KB, MB, GB, KiB, MiB, GiB), or a time such as \
             \"300 ms\" (ns, us, ms, s, min, h)",
        ),
    ]);
}

#[test]
fn wrong_types_are_reported() {
    check(&[
        ("title = \"A test\"", "title = 3", "my.toml:1:9: title: found 3; allowed: a text in quotes"),
        (
            "count = 5",
            "count = \"5\"",
            "my.toml:7:9: host.server.count: found \"5\"; allowed: a whole number, at least 1 and at most 1000000",
        ),
        (
            "count = 5",
            "count = 99999999999999999999",
            "my.toml:7:9: host.server.count: found 99999999999999999999; allowed: a whole number, at least 1 and at \
             most 1000000",
        ),
        (
            "[\"server\", \"gateway\"]",
            "[\"server\"]",
            "my.toml:13:11: link.ingress.between: found an array of 1; allowed: an array of 2",
        ),
        (
            "{ algorithm = \"red\" }",
            "\"red\"",
            "my.toml:18:7: gateway.aqm: found \"red\"; allowed: a table such as { algorithm = \"red\" } or { preset = \"RED 4\" }",
        ),
        (
            "[traffic.web]",
            "[transport.default]\necn = 1\n[traffic.web]",
            "my.toml:29:7: transport.default.ecn: found 1; allowed: true, false, \"classic\" or \"accurate\"",
        ),
        (
            "[traffic.web]",
            "[transport.default]\necn = \"exact\"\n[traffic.web]",
            "my.toml:29:7: transport.default.ecn: found \"exact\"; allowed: true, false, \"classic\" or \"accurate\"",
        ),
        ("[run]\nduration = \"60 s\"", "[[run]]", "my.toml:3:1: run: found an array; allowed: a table"),
    ]);
}

#[test]
fn values_out_of_range_are_reported() {
    const RATE: &str = "allowed: a rate above 0 and at most 1000000 Gbps, such as \"20 Mbps\"";
    const SPAN: &str = "allowed: a time above 0 and at most 1000000000 s, such as \"300 ms\"";
    for found in ["\"0 Mbps\"", "\"-5 Mbps\"", "\"0.1 bps\"", "\"10000000 Gbps\""] {
        assert_eq!(
            changed("\"1 Mbps\"", found),
            format!("my.toml:19:22: gateway.regulator.rate: found {found}; {RATE}")
        );
    }
    assert_eq!(
        changed("duration = \"60 s\"", "duration = \"0 s\""),
        format!("my.toml:4:12: run.duration: found \"0 s\"; {SPAN}")
    );
    assert_eq!(
        changed("[run]", "[run]\nsample_interval = \"0 s\""),
        format!("my.toml:4:19: run.sample_interval: found \"0 s\"; {SPAN}")
    );
    for found in ["0 ms", "1 ns", "999 ns"] {
        assert_eq!(
            changed("{ rate = \"1 Mbps\" }", &format!("{{ rate = \"1 Mbps\", tick = \"{found}\" }}")),
            format!(
                "my.toml:19:39: gateway.regulator.tick: found \"{found}\"; allowed: a time of at least 1 us and at most \
                 1000000000 s"
            )
        );
    }
    assert_eq!(changed("{ rate = \"1 Mbps\" }", "{ rate = \"1 Mbps\", tick = \"1 us\" }"), "no mistake");
    check(&[
        (
            "count = 5",
            "count = 0",
            "my.toml:7:9: host.server.count: found 0; allowed: a whole number, at least 1 and at most 1000000",
        ),
        (
            "sessions = 20",
            "sessions = 1000001",
            "my.toml:32:12: traffic.web.sessions: found 1000001; allowed: a whole number, at least 1 and at most \
             1000000",
        ),
        (
            "\"20 ms\"",
            "\"2000000000 s\"",
            "my.toml:15:9: link.ingress.delay: found \"2000000000 s\"; allowed: a time of at least 0 s and at most \
             1000000000 s",
        ),
        (
            "delay = \"20 ms\"",
            "loss = 1",
            "my.toml:15:8: link.ingress.loss: found 1; allowed: a number, at least 0 and below 1",
        ),
        (
            "delay = \"20 ms\"",
            "loss = nan",
            "my.toml:15:8: link.ingress.loss: found NaN; allowed: a number, at least 0 and below 1",
        ),
        (
            "delay = \"20 ms\"",
            "loss = { nth = [5, 17, 17] }",
            "my.toml:15:24: link.ingress.loss.nth[3]: found 17 after 17; allowed: rising numbers",
        ),
        (
            "delay = \"20 ms\"",
            "loss = { nth = [0] }",
            "my.toml:15:17: link.ingress.loss.nth[1]: found 0; allowed: a whole number, at least 1 and at most \
             4294967295",
        ),
        (
            "delay = \"20 ms\"",
            "loss = { nth = [1], probability = 0.1 }",
            "my.toml:15:1: link.ingress.loss: found probability, nth; allowed: one of probability, nth, gilbert_elliott, \
             bit_error_rate",
        ),
        (
            "delay = \"20 ms\"",
            "loss = { of = \"data\" }",
            "my.toml:15:1: link.ingress.loss: found none; allowed: one of probability, nth, gilbert_elliott, bit_error_rate",
        ),
        (
            "delay = \"20 ms\"",
            "loss = { nth = [1], of = \"acks\" }",
            "my.toml:15:26: link.ingress.loss.of: found \"acks\"; allowed: all, data",
        ),
        (
            "[run]",
            "[run]\nsample_interval = \"1 ns\"",
            "my.toml:3:2: run: found 60000000000 samples: duration \"60 s\", sample_interval \"1 ns\"; allowed: at most \
             10000000; shorten the one or lengthen the other",
        ),
        (
            "[run]",
            "[run]\nseed = -1",
            "my.toml:4:8: run.seed: found -1; allowed: a whole number, not negative",
        ),
        (
            "\"50 KB\"",
            "{ uniform = [\"2 KB\", \"1 KB\"] }",
            "my.toml:33:27: traffic.web.object_size.uniform: found [\"2 KB\", \"1 KB\"]; allowed: the lower bound first",
        ),
        (
            "\"50 KB\"",
            "{ uniform = [\"1 KB\", \"2 KB\"], exponential = \"1 KB\" }",
            "my.toml:33:1: traffic.web.object_size: found uniform and exponential; allowed: one of uniform, \
             exponential, normal, erlang, pareto, choice, trace",
        ),
        (
            "[traffic.web]",
            "[transport.default]\nalgorithm = \"dctcp\"\necn = true\n[traffic.web]",
            "my.toml:30:7: transport.default.ecn: found \"classic\"; allowed: \"accurate\" if algorithm = \"dctcp\"",
        ),
        (
            "[traffic.web]",
            "[transport.default]\nalgorithm = \"bbr\"\nhystart = true\n[traffic.web]",
            "my.toml:30:11: transport.default.hystart: found true; allowed: false if algorithm = \"bbr\", which does not use the slow start of RFC 5681",
        ),
        (
            "[traffic.web]",
            "[transport.default]\nmin_rto = \"2 min\"\n[traffic.web]",
            "my.toml:29:11: transport.default.min_rto: found \"120 s\"; allowed: at most max_rto (\"60 s\")",
        ),
        (
            "[traffic.web]",
            "[transport.default]\nmss = \"65500 B\"\n[traffic.web]",
            "my.toml:29:7: transport.default.mss: found \"65500 B\"; allowed: together with the header (\"40 B\"), at \
             most 65535 B",
        ),
        (
            "[traffic.web]",
            "[transport.default]\nmss = \"65480 B\"\noption_bytes = true\n[traffic.web]",
            "my.toml:29:7: transport.default.mss: found \"65480 B\"; allowed: together with the header (\"40 B\") and \
             40 B of options, at most 65535 B",
        ),
        (
            "[traffic.web]",
            "[transport.default]\nreceive_window = \"8 kB\"\nwindow_scale = 13\n[traffic.web]",
            "my.toml:29:18: transport.default.receive_window: found \"8 KB\"; allowed: at least 2^window_scale B \
             (8192 B)",
        ),
        (
            "[traffic.web]",
            "[transport.default]\nrack = true\n[traffic.web]",
            "my.toml:29:8: transport.default.rack: found true; allowed: true only with sack",
        ),
        (
            "[traffic.web]",
            "[transport.default]\nsack = true\nrack = true\neifel = true\n[traffic.web]",
            "my.toml:31:9: transport.default.eifel: found true; allowed: true only with rack and timestamps",
        ),
        (
            "[traffic.web]",
            "[transport.default]\nwindow_scale = 15\n[traffic.web]",
            "my.toml:29:16: transport.default.window_scale: found 15; allowed: a whole number, at least 0 and at most 14",
        ),
        (
            "[gateway]",
            "[gateway]\nspacelink.header = \"1491 B\"",
            "my.toml:18:20: gateway.spacelink.header: found \"1491 B\"; allowed: less than the packet (\"1491 B\")",
        ),
    ]);
}

#[test]
fn mistakes_in_algorithms_are_reported() {
    let aqm = "algorithm = \"red\"";
    check(&[
        (
            aqm,
            "algorithm = \"rde\"",
            "my.toml:18:21: gateway.aqm.algorithm: found \"rde\"; did you mean \"red\"? allowed: AQMS",
        ),
        (
            aqm,
            "preset = \"RED 44\"",
            "my.toml:18:18: gateway.aqm.preset: found \"RED 44\"; did you mean \"RED 4\"? allowed: PRESETS",
        ),
        (
            aqm,
            "algorithm = \"RED 4\"",
            "my.toml:18:21: gateway.aqm.algorithm: found \"RED 4\"; that is a preset: preset = \"RED 4\"",
        ),
        (
            aqm,
            "preset = \"red\"",
            "my.toml:18:18: gateway.aqm.preset: found \"red\"; that is an algorithm: algorithm = \"red\"",
        ),
        (
            aqm,
            "algorithm = \"red\", preset = \"RED 4\"",
            "my.toml:18:21: gateway.aqm.algorithm: found \"red\"; allowed: either algorithm or preset, but the preset \"RED 4\" is given too",
        ),
        (
            aqm,
            "w_q = 0.5",
            "my.toml:18:1: gateway.aqm.algorithm: missing; required: algorithm or preset; allowed: AQMS",
        ),
        (
            aqm,
            "algorithm = \"codel\", gentle = true",
            "my.toml:18:30: gateway.aqm.gentle: no parameter of codel, but of red, ared; allowed: target, \
             interval, mtu, mean_packet, threshold",
        ),
        (
            aqm,
            "algorithm = \"red\", wq = 0.1",
            "my.toml:18:28: gateway.aqm.wq: no such parameter of red; did you mean \"w_q\"? allowed: min_th, max_th, \
             w_q, max_p, gentle, wait, ns2, bytes, mean_packet, threshold",
        ),
        (
            aqm,
            "algorithm = \"red\", w_q = 2",
            "my.toml:18:34: gateway.aqm.w_q: found 2; allowed: a number, above 0 and at most 1",
        ),
        (
            aqm,
            "algorithm = \"red\", w_q = nan",
            "my.toml:18:34: gateway.aqm.w_q: found NaN; allowed: a number, above 0 and at most 1",
        ),
        (
            aqm,
            "algorithm = \"red\", min_th = -3",
            "my.toml:18:37: gateway.aqm.min_th: found -3; allowed: a number of packets, at least 0 packets and at \
             most 1000000000 packets",
        ),
        (
            aqm,
            "algorithm = \"red\", threshold = 0.2",
            "my.toml:18:40: gateway.aqm.threshold: found 0.2; allowed: a number, at least 0.25 and at most 0.95",
        ),
        (
            aqm,
            "algorithm = \"red\", threshold = true",
            "my.toml:18:40: gateway.aqm.threshold: found true; allowed: a number, at least 0.25 and at most 0.95",
        ),
        (
            aqm,
            "algorithm = \"red\", threshold = 0.5",
            "my.toml:18:40: gateway.aqm.threshold: found 0.5, a share of the watched queue's limit; allowed: only if that queue has a limit",
        ),
        (
            aqm,
            "algorithm = \"red\", threshold = []",
            "my.toml:18:40: gateway.aqm.threshold: found an empty array; allowed: times and shares, such as \
             [[\"0 s\", 0.95]]",
        ),
        (
            aqm,
            "algorithm = \"red\", threshold = [[\"1 s\", 0.5]]",
            "my.toml:18:42: gateway.aqm.threshold[1][1]: found \"1 s\"; allowed: \"0 s\" for the first",
        ),
        (
            aqm,
            "algorithm = \"red\", threshold = [[\"0 s\", 0.5], [\"2 s\", 1.5]]",
            "my.toml:18:63: gateway.aqm.threshold[2][2]: found 1.5; allowed: a number, at least 0.25 and at most 0.95",
        ),
        (
            aqm,
            "algorithm = \"red\", threshold = [[\"0 s\", 0.5], [\"0 s\", 0.9]]",
            "my.toml:18:56: gateway.aqm.threshold[2][1]: found \"0 s\" after \"0 s\"; allowed: rising times",
        ),
        (
            aqm,
            "algorithm = \"red\", min_th = [[\"0 s\", 5]]",
            "my.toml:18:37: gateway.aqm.min_th: found an array; allowed: a number of packets such as \"100 packets\" \
             (packets)",
        ),
        (
            aqm,
            "algorithm = \"red\", gentle = 1",
            "my.toml:18:37: gateway.aqm.gentle: found 1; allowed: true or false",
        ),
        (
            aqm,
            "algorithm = \"red\", mean_packet = 1000",
            "my.toml:18:42: gateway.aqm.mean_packet: found 1000, without a unit; allowed: a size such as \"1400 B\" \
             (B, KB, MB, GB, KiB, MiB, GiB)",
        ),
        (
            aqm,
            "algorithm = \"red\", min_th = 9, max_th = 8",
            "my.toml:18:37: gateway.aqm.min_th: found 9, but it must be below max_th, which is 8",
        ),
        (
            aqm,
            "algorithm = \"red\", min_th = 8, max_th = 8",
            "my.toml:18:37: gateway.aqm.min_th: found 8, but it must be below max_th, which is 8",
        ),
        (
            "[gateway]",
            "[gateway]\ntransmit_queue = { scheduler = \"fiffo\" }",
            "my.toml:18:32: gateway.transmit_queue.scheduler: found \"fiffo\"; did you mean \"fifo\"? allowed: \
             SCHEDULERS",
        ),
        (
            "[gateway]",
            "[gateway]\ntransmit_queue = { scheduler = { algorithm = \"drr\", quanta = 1 } }",
            "my.toml:18:53: gateway.transmit_queue.scheduler.quanta: no such parameter of drr; did you mean \"quantum\"? \
             allowed: quantum, head_drop",
        ),
        (
            "[gateway]",
            "[gateway]\ntransmit_queue = { scheduler = { algorithm = \"fifo\", quantum = \"9 B\" } }",
            "my.toml:18:54: gateway.transmit_queue.scheduler.quantum: fifo has no parameters",
        ),
        (
            "[gateway]",
            "[gateway]\ntransmit_queue = { scheduler = { algorithm = \"drr\", quantum = \"0 B\" } }",
            "my.toml:18:63: gateway.transmit_queue.scheduler.quantum: found \"0 B\"; allowed: a size, at least 1 B and at \
             most 65535 B",
        ),
        (
            "[gateway]",
            "[gateway]\ntransmit_queue = { scheduler = { quantum = \"9 B\" } }",
            "my.toml:18:20: gateway.transmit_queue.scheduler.algorithm: missing; allowed: SCHEDULERS",
        ),
        (
            "[gateway]",
            "[transport.x]\npreset = \"ns3\"\n[gateway]",
            "my.toml:18:10: transport.x.preset: found \"ns3\"; did you mean \"ns2\"? allowed: reno-2003, byun2007, ns2, \
             linux",
        ),
    ]);
}

/// Message with the registry's names inserted.
fn with_lists(expected: &str) -> String {
    use bentpipe_queue::registry::{AQMS, SCHEDULERS};
    let join = |names: Vec<&str>| names.join(", ");
    let presets = AQMS.iter().flat_map(|a| a.presets).map(|p| p.name);
    expected
        .replace("AQMS", &join(AQMS.iter().map(|a| a.name).collect()))
        .replace("SCHEDULERS", &join(SCHEDULERS.iter().map(|s| s.name).collect()))
        .replace("PRESETS", &join(presets.collect()))
}

#[test]
fn unknown_kinds_and_names_are_reported() {
    check(&[
        (
            "kind = \"pages\"",
            "kind = \"page\"",
            "my.toml:29:8: traffic.web.kind: found \"page\"; did you mean \"pages\"? allowed: pages, files, bulk, dash, probe, cbr, poisson, on_off, mmpp, video, voip, replay",
        ),
        (
            "kind = \"pages\"",
            "kind = 4",
            "my.toml:29:8: traffic.web.kind: found 4; allowed: pages, files, bulk, dash, probe, cbr, poisson, on_off, mmpp, video, voip, replay",
        ),
        (
            "[gateway]",
            "[gateway]\nmark = \"transmitt\"",
            "my.toml:18:8: gateway.mark: found \"transmitt\"; did you mean \"transmit\"? allowed: receive, transmit",
        ),
        (
            "from = \"server\"",
            "from = \"servers\"",
            "my.toml:30:8: traffic.web.from: found \"servers\"; did you mean \"server\"? allowed: server, client",
        ),
        (
            "to = \"client\"",
            "to = \"terminal\"",
            "my.toml:31:6: traffic.web.to: found \"terminal\"; allowed: server, client",
        ),
        (
            "sessions = 20",
            "sessions = 20\ntransport = \"fast\"",
            "my.toml:33:13: traffic.web.transport: found \"fast\"; allowed: default, reno-2003, byun2007, ns2, \
             linux",
        ),
        (
            "[\"server\", \"gateway\"]",
            "[\"server\", \"gatway\"]",
            "my.toml:13:22: link.ingress.between[2]: found \"gatway\"; did you mean \"gateway\"? allowed: server, \
             client, gateway, terminal",
        ),
        (
            "[run]",
            "[run]\nsubject = \"gatway\"",
            "my.toml:4:11: run.subject: found \"gatway\"; did you mean \"gateway\"? allowed: gateway",
        ),
        (
            "[run]",
            "[run]\nsubject = \"ingress\"",
            "my.toml:4:11: run.subject: found \"ingress\"; allowed: a link with a queue on its way forward",
        ),
        (
            "[gateway]",
            "[router.client]\n[gateway]",
            "my.toml:17:9: router.client: found \"client\"; allowed: a unique name; a group of hosts already has this one",
        ),
        (
            "[gateway]",
            "[gateway]\nname = \"x\"\nterminal = \"x\"",
            "my.toml:19:1: gateway.terminal: found \"x\"; allowed: a unique name; a gateway already has this one",
        ),
        (
            "[host.client]",
            "[host.\"\"]\n[host.client]",
            "my.toml:9:7: host.\"\": found the name \"\"; allowed: 1 to 64 characters, none of them control \
             characters",
        ),
    ]);
}

#[test]
fn mistakes_in_placement_are_reported() {
    check(&[
        (
            "algorithm = \"red\"",
            "algorithm = \"codel\"",
            "my.toml:18:21: gateway.aqm.algorithm: found \"codel\" with watch = \"transmit\" and mark = \"receive\"; \
             allowed: the same value for both, because this AQM acts on packets in the queue that it watches",
        ),
        (
            "[gateway]",
            "[gateway]\nwatch = \"receive\"\nmark = \"transmit\"",
            "my.toml:19:8: gateway.mark: found \"transmit\"; allowed: \"receive\" if watch = \"receive\", because a packet that enters the transmit queue has already left the receive queue",
        ),
        (
            "delay = \"250 ms\"",
            "rate = \"1 Mbps\"\nqueue = {}",
            "my.toml:24:1: link.satellite.queue: a queue in front of the satellite link; allowed: none, because the transmit queue of gateway \"gateway\" is in front of it",
        ),
        (
            "between = [\"terminal\", \"client\"]",
            "between = [\"terminal\", \"client\"]\nqueue = {}",
            "my.toml:25:7: link.access.rate: missing; a queue needs a service rate, such as \"20 Mbps\", or a capacity",
        ),
    ]);
    check(&[
        (
            "[gateway]",
            "[gateway]\nmarking = \"windwo\"",
            "my.toml:18:11: gateway.marking: found \"windwo\"; did you mean \"window\"? allowed: drop, ecn, window",
        ),
        (
            "[gateway]",
            "[gateway]\nmarking = { decr = 0.9 }",
            "my.toml:18:1: gateway.marking.method: missing; allowed: drop, ecn, window",
        ),
        (
            "[gateway]",
            "[gateway]\nmarking = { method = 5 }",
            "my.toml:18:22: gateway.marking.method: found 5; allowed: drop, ecn, window",
        ),
        (
            "[gateway]",
            "[gateway]\nmarking = 5",
            "my.toml:18:11: gateway.marking: found 5; allowed: a name such as \"drop\", or a table such as { method = \
             \"window\", decr = 0.97 }",
        ),
        (
            "[gateway]",
            "[gateway]\nmarking = { method = \"window\", decr = 1.5 }",
            "my.toml:18:39: gateway.marking.decr: found 1.5; allowed: a number, above 0 and at most 1",
        ),
        (
            "[gateway]",
            "[gateway]\nmarking = { method = \"window\", freeze = 0.2 }",
            "my.toml:18:41: gateway.marking.freeze: found 0.2, without a unit; allowed: a time such as \"300 ms\" (ns, \
             us, ms, s, min, h)",
        ),
        (
            "[gateway]",
            "[gateway]\nmarking = { method = \"window\", dcr = 0.9 }",
            "my.toml:18:32: gateway.marking.dcr: no such parameter of window; did you mean \"decr\"? allowed: decr, \
             incr, freeze",
        ),
        (
            "[gateway]",
            "[gateway]\nmarking = { method = \"drop\", decr = 0.9 }",
            "my.toml:18:30: gateway.marking.decr: drop has no parameters",
        ),
        (
            "[gateway]",
            "[gateway]\nmarking = \"window\"\nmark = \"transmit\"",
            "my.toml:18:11: gateway.marking: found \"window\"; allowed: \"drop\" or \"ecn\" if mark = \"transmit\", because a packet behind the PEP does not identify the window to cut",
        ),
        (
            "[gateway]",
            "[gateway]\npep.split = false",
            "my.toml:18:13: gateway.pep.split: found false; allowed: an array: [\"tcp\"], or [] to split no connections",
        ),
        (
            "[gateway]",
            "[gateway]\nmarking = \"window\"\npep.split = []",
            "my.toml:18:11: gateway.marking: found \"window\"; allowed: \"drop\" or \"ecn\" if pep.split is empty, because the gateway then advertises no window",
        ),
        (
            "[gateway]",
            "[gateway]\npep.delay = \"12 ms\"\npep.delay_std = \"121 ms\"",
            "my.toml:19:17: gateway.pep.delay_std: found \"121 ms\"; allowed: up to \"120 ms\", 10 times gateway.pep.delay",
        ),
        (
            "[gateway]",
            "[gateway]\npep.delay_std = \"1 ms\"",
            "my.toml:18:17: gateway.pep.delay_std: found \"1 ms\"; allowed: up to \"0 s\", 10 times gateway.pep.delay",
        ),
        (
            "[gateway]",
            "[gateway]\npep.delay = \"12 ms\"\npep.delay_correlation = \"1 s\"",
            "my.toml:19:5: gateway.pep.delay_correlation: allowed: only if delay_std is above 0 s, because a constant processing time has none",
        ),
        (
            "[gateway]",
            "[gateway]\npep.rate = \"0 Mbps\"",
            "my.toml:18:12: gateway.pep.rate: found \"0 Mbps\"; allowed: a rate above 0 and at most 1000000 Gbps, such as \"20 Mbps\"",
        ),
        (
            "aqm = { algorithm = \"red\" }",
            "aqm = { algorithm = \"codel\" }\nmarking = \"window\"\nmark = \"transmit\"",
            "my.toml:19:11: gateway.marking: found \"window\"; allowed: \"drop\" or \"ecn\" if mark = \"transmit\", because a packet behind the PEP does not identify the window to cut",
        ),
        (
            "aqm = { algorithm = \"red\" }",
            "aqm = { preset = \"RED FC 1\" }\nmarking = \"drop\"",
            "my.toml:19:11: gateway.marking: found \"drop\"; allowed: \"window\" with the preset \"RED FC 1\"",
        ),
        (
            "aqm = { algorithm = \"red\" }",
            "aqm = { preset = \"RED FC 1\" }\nmark = \"transmit\"",
            "my.toml:18:18: gateway.aqm.preset: found \"RED FC 1\"; allowed: \"drop\" or \"ecn\" if mark = \"transmit\", because a packet behind the PEP does not identify the window to cut",
        ),
        (
            "[gateway]",
            "[gateway]\nflow_key = \"host\"",
            "my.toml:18:12: gateway.flow_key: found \"host\"; allowed: connection, user, prefix",
        ),
        (
            "rate = \"10 Mbps\"",
            "rate = \"10 Mbps\"\nqueue.marking = \"window\"",
            "my.toml:15:17: link.ingress.queue.marking: found \"window\"; allowed: drop, ecn",
        ),
        (
            "rate = \"10 Mbps\"",
            "rate = \"10 Mbps\"\nqueue.aqm.preset = \"AVQRED FC 2\"",
            "my.toml:15:20: link.ingress.queue.aqm.preset: found \"AVQRED FC 2\"; allowed: at a gateway, because its marks cut advertised windows (marking = \"window\") and no connection ends at a link's queue",
        ),
    ]);
    for scheduler in bentpipe_queue::registry::SCHEDULERS.iter().filter(|s| s.signals) {
        let to = format!("[gateway]\nmarking = \"window\"\ntransmit_queue.scheduler = {:?}", scheduler.name);
        let expected = format!(
            "my.toml:19:28: gateway.transmit_queue.scheduler: found \"{}\"; allowed if marking = \"window\" and pep.split is not empty: a scheduler that signals nothing, because a packet behind the PEP does not identify the window to cut",
            scheduler.name
        );
        assert_eq!(changed("[gateway]", &to), expected);
    }
    // Without split connections, marks behind the PEP reach the senders.
    let unsplit = "[gateway]\nmarking = \"ecn\"\nmark = \"transmit\"\npep.split = []";
    assert_eq!(changed("[gateway]", unsplit), "no mistake");
    assert_eq!(
        changed("aqm = { algorithm = \"red\" }", "aqm.algorithm = \"codel\"\nmark = \"transmit\""),
        "no mistake"
    );
}

#[test]
fn impossible_topologies_are_reported() {
    check(&[
        (
            "[\"server\", \"gateway\"]",
            "[\"server\", \"client\"]",
            "my.toml:13:11: link.ingress.between: found two groups of several hosts; allowed: a group at one end only",
        ),
        (
            "[\"server\", \"gateway\"]",
            "[\"gateway\", \"gateway\"]",
            "my.toml:13:11: link.ingress.between: found \"gateway\" twice; allowed: two nodes",
        ),
        (
            "[\"terminal\", \"client\"]",
            "[\"terminal\", \"server\"]",
            "my.toml:31:6: traffic.web.to: found \"client\"; allowed: hosts that \"server\" can reach over links",
        ),
        (
            "to = \"client\"",
            "to = \"client\"\nkeep_alive = \"1 s\"",
            "my.toml:32:14: traffic.web.keep_alive: found \"1 s\"; allowed: only with http = \"2\" or \"3\"",
        ),
        (
            "to = \"client\"",
            "to = \"client\"\nrender_blocking = 0",
            "my.toml:32:19: traffic.web.render_blocking: found 0; allowed: only with http = \"3\"",
        ),
        (
            "to = \"client\"",
            "to = \"client\"\npriorities = true",
            "my.toml:32:14: traffic.web.priorities: found true; allowed: only with render_blocking, the number of objects \
             that come first",
        ),
        (
            "to = \"client\"",
            "to = \"server\"",
            "my.toml:31:6: traffic.web.to: found \"server\"; allowed: a group of hosts other than from",
        ),
        (
            "[\"terminal\", \"client\"]",
            "[\"gateway\", \"client\"]",
            "my.toml:30:8: traffic.web.from: found \"server\", whose data would pass gateway \"gateway\" without its satellite link; \
             allowed: hosts whose data takes the satellite link",
        ),
        (
            "[\"gateway\", \"terminal\"]",
            "[\"gateway\", \"client\"]",
            "my.toml:17:2: gateway.terminal: found 0 links between \"gateway\" and \"terminal\"; allowed: one, the \
             satellite",
        ),
        (
            "[link.access]",
            "[link.second]\nbetween = [\"terminal\", \"gateway\"]\n[link.access]",
            "my.toml:17:2: gateway.terminal: found 2 links between \"gateway\" and \"terminal\"; allowed: one, the \
             satellite",
        ),
    ]);
}

#[test]
fn mistakes_in_uploads_are_reported() {
    let upload = |from: &str, to: &str| {
        let text =
            GATEWAY.replace("from = \"server\"\nto = \"client\"", "from = \"client\"\nto = \"server\"");
        assert!(text.contains(from), "the scenario has no {from:?}");
        message(&text.replacen(from, to, 1), &[])
    };
    let satellite = "delay = \"250 ms\"";
    let with = |reverse: &str| upload(satellite, &format!("{satellite}\nreverse = {{ {reverse} }}"));
    assert_eq!(
        upload("", ""),
        "my.toml:21:7: link.satellite.reverse.rate: missing; required: the rate of the return link, such as \"3 Mbps\", \
         which the queues at the terminals follow, or gateway.return.regulator.rate"
    );
    assert_eq!(with("rate = \"1 Mbps\""), "no mistake");
    assert_eq!(upload("[gateway]", "[gateway]\nreturn.regulator.rate = \"1 Mbps\""), "no mistake");
    assert_eq!(
        with("rate = \"1 Mbps\", queue = { limit = \"50 packets\" }"),
        "my.toml:24:30: link.satellite.reverse.queue: found a queue in front of the return link; allowed: none, because the \
         terminal's transmit queue, gateway.return.transmit_queue, is in front of it"
    );
    assert_eq!(
        with("rate = \"1 Mbps\", demand = { }"),
        "my.toml:24:30: link.satellite.reverse.demand: found demand assignment on a return link that carries uploads; \
         allowed: a rate, because grants for the terminal's queues are not supported"
    );
    // Downloads alone leave the return link as it is, unless the file gives the terminals queues.
    let queue = "delay = \"250 ms\"\nreverse = { rate = \"1 Mbps\", queue = { limit = \"50 packets\" } }";
    assert_eq!(changed(satellite, queue), "no mistake");
    assert_eq!(
        message(&GATEWAY.replace(satellite, queue), &["gateway.return.aqm.algorithm=red".to_owned()]),
        "my.toml:24:30: link.satellite.reverse.queue: found a queue in front of the return link; allowed: none, because the \
         terminal's transmit queue, gateway.return.transmit_queue, is in front of it"
    );
    let problem = upload("[gateway]", "[gateway]\nreturn.spacelink = {}");
    assert!(
        problem
            .starts_with("my.toml:18:8: gateway.return.spacelink: no such key; allowed: aqm, watch, mark, "),
        "{problem}"
    );
    assert_eq!(
        upload(
            "[gateway]",
            "[gateway]\nreturn = { watch = \"receive\", mark = \"transmit\", regulator.rate = \"1 Mbps\" }"
        ),
        "my.toml:18:38: gateway.return.mark: found \"transmit\"; allowed: \"receive\" if watch = \"receive\", because a packet \
         that enters the transmit queue has already left the receive queue"
    );
    // Shares of a return carrier.
    let shares = |carrier: &str, up: &str| {
        let text = GATEWAY
            .replace("[gateway]", &format!("[terminal.home]\nplan = \"p\"\n[plan.p.up]\n{up}\n[gateway]\nterminals = [\"home\"]\n{carrier}"))
            .replace("\"terminal\"", "\"home\"")
            .replace(satellite, "delay = \"250 ms\"\nreverse = { rate = \"1 Mbps\" }");
        message(&text, &[])
    };
    assert_eq!(
        shares("return.carrier = {}", "cra = \"10 kbps\"\ncir = \"1 Mbps\"\nweight = 3"),
        "no mistake"
    );
    assert_eq!(
        shares("", "weight = 3"),
        "my.toml:19:9: plan.p.up: allowed: only with [gateway.return.carrier], because terminals with separate return links do \
         not share them"
    );
    assert_eq!(
        shares("return.carrier = {}", "cra = \"10 kbps\"\npir = \"8 kbps\""),
        "my.toml:21:7: plan.p.up.pir: found \"8 kbps\"; allowed: at least cra (\"10 kbps\")"
    );
    assert_eq!(
        shares("return = { carrier = {}, regulator = { rate = \"link\", tick = \"5 ms\" } }", "weight = 3"),
        "my.toml:23:55: gateway.return.regulator.tick: found a tick; allowed: none with a carrier, whose superframes release \
         packets"
    );
    assert_eq!(
        shares("return.carrier.request = \"cra\"", "weight = 3"),
        "my.toml:23:26: gateway.return.carrier.request: found \"cra\"; allowed: rbdc, vbdc"
    );
    // From a user of one terminal to a user of another.
    let terminals = GATEWAY
        .replace("[gateway]", "[terminal.near]\n[terminal.far]\n[host.peer]\n[gateway]\nterminals = [\"near\", \"far\"]")
        .replace("[\"gateway\", \"terminal\"]", "[\"gateway\", \"near\"]\nreverse = { rate = \"1 Mbps\" }")
        .replace("[link.access]", "[link.other]\nbetween = [\"gateway\", \"far\"]\nrate = \"1 Mbps\"\n[link.peer]\nbetween = [\"far\", \"peer\"]\n[link.access]")
        .replace("[\"terminal\", \"client\"]", "[\"near\", \"client\"]")
        .replace("from = \"server\"", "from = \"peer\"");
    assert_eq!(message(&terminals, &["gateway.pep.split=[]".to_owned()]), "no mistake");
    let problem = message(&terminals, &[]);
    assert!(
        problem.ends_with(
            "traffic.web.from: found \"peer\", whose connections go from one terminal to another through gateway \
             \"gateway\", which splits them; allowed: with pep.split = [] at the gateway, or over another transport, because \
             a connection is not split twice"
        ),
        "{problem}"
    );
}

#[test]
fn mistakes_in_links_are_reported() {
    const ROUTER: &str = "[gateway]\n";
    let with = |link: &str| changed("[gateway]", &format!("[router.r]\n{link}\n[gateway]"));
    assert!(GATEWAY.contains(ROUTER));
    for (name, by) in [
        ("access.3", "link \"access\""),
        ("access.3 reverse", "link \"access\""),
        ("satellite reverse", "link \"satellite\""),
        ("gateway", "gateway \"gateway\""),
        ("gateway transmit", "gateway \"gateway\""),
    ] {
        let key = if name.contains(['.', ' ']) { format!("{name:?}") } else { name.to_owned() };
        assert_eq!(
            with(&format!("[link.{key}]\nbetween = [\"r\", \"gateway\"]")),
            format!(
                "my.toml:18:7: link.{key}: found {name:?}; allowed: a unique name; in results {by} has the same name"
            )
        );
    }
    for name in ["access.10", "access.03", "satellite.0", "ingress.5 reverse", "access reverse"] {
        assert_eq!(with(&format!("[link.{name:?}]\nbetween = [\"r\", \"gateway\"]")), "no mistake", "{name}");
    }
    check(&[
        ("[link.access]", "[link.ingress]", "my.toml:25:7: not TOML: duplicate key \"ingress\""),
        (
            "[\"terminal\", \"client\"]",
            "[\"terminal\", \"relay\"]\n[host.relay]\n[link.last]\nbetween = [\"relay\", \"client\"]",
            "my.toml:34:6: traffic.web.to: found \"client\"; allowed: hosts that \"server\" can reach over links",
        ),
    ]);
}

/// Message for the ingress link with its rate replaced by `keys`.
fn ingress(keys: &str) -> String {
    changed("rate = \"10 Mbps\"", keys)
}

#[test]
fn mistakes_in_channels_are_reported() {
    for (keys, expected) in [
        (
            "loss = { gilbert_elliott = { p = 0.1, good = \"1 s\" } }",
            "14:10: link.ingress.loss.gilbert_elliott: found p, good; allowed: one of p and r, good and bad",
        ),
        (
            "loss = { gilbert_elliott = { p = 0, r = 0 } }",
            "14:41: link.ingress.loss.gilbert_elliott.r: found 0 for both p and r; allowed: at least one above 0",
        ),
        (
            "loss = { gilbert_elliott = { p = 0.1, r = 1.5 } }",
            "14:43: link.ingress.loss.gilbert_elliott.r: found 1.5; allowed: a number from 0 to 1",
        ),
        (
            "loss.bit_error_rate = 1",
            "14:23: link.ingress.loss.bit_error_rate: found 1; allowed: a number, at least 0 and below 1",
        ),
        (
            "rate = \"10 Mbps\"\ncapacity.steps = [[\"0 s\", \"1 Mbps\"]]",
            "14:1: link.ingress.rate: allowed: only without capacity, which determines the transmission rate",
        ),
        (
            "capacity = {}",
            "14:1: link.ingress.capacity: found none; allowed: one of trace, steps, uniform, symbol_rate, carrier",
        ),
        (
            "capacity = { uniform = [\"16 Mbps\", \"20 Mbps\"], steps = [[\"0 s\", \"1 Mbps\"]], every = \"1 s\" }",
            "14:1: link.ingress.capacity: found steps, uniform; allowed: one of trace, steps, uniform, symbol_rate, carrier",
        ),
        (
            "capacity = { uniform = [\"16 Mbps\", \"20 Mbps\"] }",
            "14:1: link.ingress.capacity.every: missing; uniform needs the time between two draws, such as \"1 s\"",
        ),
        (
            "capacity = { uniform = [\"20 Mbps\", \"16 Mbps\"], every = \"1 s\" }",
            "14:24: link.ingress.capacity.uniform: found [\"20 Mbps\", \"16 Mbps\"]; allowed: the lower bound first",
        ),
        (
            "capacity = { uniform = [\"0 bps\", \"16 Mbps\"], every = \"1 s\" }",
            "14:25: link.ingress.capacity.uniform[1]: found \"0 bps\"; allowed: a rate above 0 and at most 1000000 Gbps, such \
             as \"20 Mbps\"",
        ),
        (
            "capacity = { uniform = [\"1 Mbps\", \"16 Mbps\"], every = \"0 s\" }",
            "14:55: link.ingress.capacity.every: found \"0 s\"; allowed: a time of at least 1 us and at most 1000000000 s",
        ),
        (
            "capacity = { steps = [[\"0 s\", \"1 Mbps\"]], every = \"1 s\" }",
            "14:43: link.ingress.capacity.every: allowed: only together with uniform",
        ),
        (
            "capacity.steps = []",
            "14:18: link.ingress.capacity.steps: found an empty array; allowed: times and rates, such as [[\"0 s\", \
             \"20 Mbps\"]]",
        ),
        (
            "capacity.steps = [[\"1 s\", \"1 Mbps\"]]",
            "14:20: link.ingress.capacity.steps[1][1]: found \"1 s\"; allowed: \"0 s\" for the first",
        ),
        (
            "capacity.steps = [[\"0 s\", \"1 Mbps\"], [\"5 s\", \"2 Mbps\"], [\"5 s\", \"3 Mbps\"]]",
            "14:58: link.ingress.capacity.steps[3][1]: found \"5 s\" after \"5 s\"; allowed: rising times, at least \
             1 us apart",
        ),
        (
            "capacity.steps = [[\"0 s\", \"1 Mbps\"], [\"999 ns\", \"2 Mbps\"]]",
            "14:39: link.ingress.capacity.steps[2][1]: found \"999 ns\" after \"0 s\"; allowed: rising times, at least \
             1 us apart",
        ),
        (
            "capacity = { steps = [[\"0 s\", \"1 Mbps\"], [\"5 s\", \"2 Mbps\"]], repeat = \"5 s\" }",
            "14:71: link.ingress.capacity.repeat: found \"5 s\"; allowed: at least 1 us later than the last step \
             (\"5 s\")",
        ),
        (
            "capacity.steps = [[\"0 s\", \"1 Mbps\"], [\"5 s\", \"0 bps\"]]",
            "14:18: link.ingress.capacity.steps: found \"0 bps\" for ever; allowed: a last rate above 0",
        ),
        (
            "capacity = { steps = [[\"0 s\", \"1 Mbps\"]], fade = { clear_sky = 10, median = 1, sigma = 1 } }",
            "14:43: link.ingress.capacity.fade: allowed: only together with symbol_rate or carrier",
        ),
        (
            "capacity = { symbol_rate = \"20 Mbaud\" }",
            "14:1: link.ingress.capacity: found none; allowed: one of modcod, fade",
        ),
        (
            "capacity = { symbol_rate = \"20 Mbps\", modcod = [\"QPSK 1/2\"] }",
            "14:28: link.ingress.capacity.symbol_rate: found \"20 Mbps\"; allowed: a symbol rate such as \"20 Mbaud\" \
             (baud, kbaud, Mbaud, Gbaud)",
        ),
        (
            "capacity = { symbol_rate = \"20 Mbaud\", modcod = [\"QPSK 1/2\", \"8PSK 3/4\"] }",
            "14:49: link.ingress.capacity.modcod: found an array of 2; allowed: one, or of = the group it is for",
        ),
        (
            "capacity = { symbol_rate = \"20 Mbaud\", modcod = [\"QPSK 1/2\"], of = \"clients\" }",
            "14:68: link.ingress.capacity.of: found \"clients\"; did you mean \"client\"? allowed: server, client",
        ),
        (
            "capacity = { symbol_rate = \"20 Mbaud\", fade = { clear_sky = 50, median = 1, sigma = 1 } }",
            "14:61: link.ingress.capacity.fade.clear_sky: found 50; allowed: a number, at least -10 and at most 40",
        ),
        (
            "capacity = { symbol_rate = \"20 Mbaud\", fade = { clear_sky = 10, median = 0, sigma = 1 } }",
            "14:74: link.ingress.capacity.fade.median: found 0; allowed: a number, above 0 and at most 100",
        ),
        (
            "capacity = { symbol_rate = \"20 Mbaud\", fade = { clear_sky = -2, median = 1, sigma = 1 } }",
            "14:61: link.ingress.capacity.fade.clear_sky: found -2, with a margin of 1; allowed: a value at which the most robust modulation works without rain (at least -2.35 plus the margin)",
        ),
        (
            "capacity = { symbol_rate = \"20 Mbaud\", fade = { clear_sky = 10, median = 1, sigma = 1, region = \"north\" } }",
            "14:40: link.ingress.capacity.fade.correlation: missing; region needs the correlation between its links, such as 0.5",
        ),
        (
            "capacity = { symbol_rate = \"20 Mbaud\", fade = { clear_sky = 10, median = 1, sigma = 1, correlation = 0.5 } }",
            "14:88: link.ingress.capacity.fade.correlation: allowed: only with region, which names the links that share the weather",
        ),
        (
            "capacity = { symbol_rate = \"20 Mbaud\", fade = { clear_sky = 10, median = 1, sigma = 1, region = \"north\", correlation = 0.5 } }\n\
             reverse.capacity = { symbol_rate = \"2 Mbaud\", fade = { clear_sky = 10, median = 1, sigma = 1, region = \"north\", correlation = 0.5, step = \"2 s\" } }",
            "15:139: link.ingress.reverse.capacity.fade.step: found \"2 s\", and \"1 s\" in link.ingress.capacity.fade; allowed: one value for all links of the region \"north\", which share its weather",
        ),
        (
            "demand = {}",
            "12:7: link.ingress.rate: missing; demand needs a transmission rate, such as \"20 Mbps\"",
        ),
        (
            "access = \"wifi\"\ndemand = {}",
            "15:1: link.ingress.demand: allowed: only without access, which models its own medium access",
        ),
        (
            "access = \"wife\"",
            "14:10: link.ingress.access: found \"wife\"; did you mean \"wifi\"? allowed: wifi, wimax, umts",
        ),
        (
            "access = { kind = \"umts\", tries = 0 }",
            "14:35: link.ingress.access.tries: found 0; allowed: a whole number, at least 1 and at most 100",
        ),
        (
            "access = { kind = \"wifi\", overhead = [\"2 ms\", \"1 ms\"] }",
            "14:38: link.ingress.access.overhead: found [\"2 ms\", \"1 ms\"]; allowed: the lower bound first",
        ),
        (
            "reverse.access = { tries = 2 }",
            "14:9: link.ingress.reverse.access.kind: missing; allowed: wifi, wimax, umts",
        ),
        (
            "handover = { interval = \"1 s\", outage = \"1 s\" }",
            "14:41: link.ingress.handover.outage: found \"1 s\"; allowed: shorter than the interval (\"1 s\")",
        ),
        (
            "handover = { interval = \"1 s\", offset = \"2 s\" }",
            "14:41: link.ingress.handover.offset: found \"2 s\"; allowed: at most the interval (\"1 s\")",
        ),
        (
            "handover = { delay = [\"40 ms\", \"20 ms\"] }",
            "14:22: link.ingress.handover.delay: found [\"40 ms\", \"20 ms\"]; allowed: the lower bound first",
        ),
    ] {
        assert_eq!(ingress(keys), format!("my.toml:{expected}"), "{keys}");
    }
    check(&[
        (
            "delay = \"20 ms\"",
            "delay = { uniform = [\"1 s\", \"2 s\"], normal = { mean = \"1 s\", std = \"1 s\" } }",
            "my.toml:15:1: link.ingress.delay: found uniform, normal; allowed: one of uniform, normal, fixed with \
             jitter",
        ),
        (
            "delay = \"20 ms\"",
            "delay = { fixed = \"20 ms\" }",
            "my.toml:15:1: link.ingress.delay: found fixed; allowed: one of uniform, normal, fixed with jitter",
        ),
        (
            "rate = \"1 Mbps\"",
            "rate = \"link\"",
            "my.toml:19:22: gateway.regulator.rate: found \"link\"; allowed: a rate such as \"20 Mbps\", because the satellite link has none",
        ),
        (
            "[gateway]",
            "[gateway]\nthroughput_advice = \"99 kbps\"",
            "my.toml:18:21: gateway.throughput_advice: found \"99 kbps\"; allowed: at least \"100 kbps\", the lowest rate that can be \
             advised",
        ),
        (
            "[gateway]",
            "[gateway]\nthroughput_advice = \"plan\"",
            "my.toml:18:21: gateway.throughput_advice: found \"plan\"; allowed: a rate, or \"share\"; plans need queues_per = \
             \"terminal\"",
        ),
    ]);
}

#[test]
fn periods_below_a_microsecond_are_refused() {
    let period = "a time of at least 1 us and at most 1000000000 s";
    for (keys, key) in [
        ("capacity = { uniform = [\"1 Mbps\", \"2 Mbps\"], every = \"PERIOD\" }", "capacity.every"),
        ("capacity = { steps = [[\"0 s\", \"1 Mbps\"]], repeat = \"PERIOD\" }", "capacity.repeat"),
        (
            "capacity = { symbol_rate = \"5 Mbaud\", fade = { clear_sky = 12, median = 1.5, sigma = 1.1, step = \
             \"PERIOD\" } }",
            "capacity.fade.step",
        ),
        ("rate = \"100 Gbps\"\ndemand = { frame = \"PERIOD\" }", "demand.frame"),
        ("handover = { interval = \"PERIOD\" }", "handover.interval"),
    ] {
        let found = ingress(&keys.replace("PERIOD", "1 ns"));
        assert!(
            found.ends_with(&format!("link.ingress.{key}: found \"1 ns\"; allowed: {period}")),
            "{found}"
        );
        assert_eq!(ingress(&keys.replace("PERIOD", "1 us")), "no mistake", "{keys}");
    }
    let changes = |interval: &str| {
        changed("[host.client]", &format!("[host.client]\naddress_changes = {{ interval = \"{interval}\" }}"))
    };
    assert_eq!(
        changes("1 ns"),
        format!("my.toml:10:32: host.client.address_changes.interval: found \"1 ns\"; allowed: {period}")
    );
    assert_eq!(changes("1 us"), "no mistake");
}

#[test]
fn modcods_of_a_group_without_traffic_over_the_link_are_refused() {
    let of = |group: &str| {
        ingress(&format!(
            "capacity = {{ symbol_rate = \"5 Mbaud\", modcod = [\"QPSK 1/2\", \"8PSK 3/4\"], of = \"{group}\" }}\n\
             [host.other]\n[link.other]\nbetween = [\"other\", \"gateway\"]\n[link.ingress.reverse]"
        ))
    };
    for group in ["client", "server"] {
        assert_eq!(of(group), "no mistake");
    }
    assert_eq!(
        of("other"),
        "my.toml:14:79: link.ingress.capacity.of: found \"other\"; allowed: a group of hosts that traffic over link \
         \"ingress\" goes to or comes from"
    );
}

#[test]
fn frames_shorter_than_a_byte_are_refused() {
    let frame = |frame: &str| ingress(&format!("rate = \"1 Mbps\"\ndemand = {{ frame = \"{frame}\" }}"));
    assert_eq!(
        frame("7 us"),
        "my.toml:15:20: link.ingress.demand.frame: found \"7 us\"; allowed: at least \"8 us\", the time to send a byte at \
         \"1 Mbps\""
    );
    assert_eq!(frame("8 us"), "no mistake");
}

#[test]
fn missing_and_ambiguous_subjects_are_reported() {
    let dumbbell = |queues: [&str; 2]| {
        format!(
            "title = \"Two queues\"\nrun.duration = \"1 s\"\nhost.a = {{}}\nhost.b = {{}}\nrouter.r = {{}}\n\
             link.first = {{ between = [\"a\", \"r\"], rate = \"1 Mbps\"{} }}\n\
             link.second = {{ between = [\"r\", \"b\"], rate = \"1 Mbps\"{} }}\n\
             traffic.t = {{ kind = \"bulk\", from = \"a\", to = \"b\" }}\n",
            queues[0], queues[1]
        )
    };
    let (none, plain, aqm) = ("", ", queue = {}", ", queue = { aqm = { algorithm = \"red\" } }");
    for queues in [[plain, none], [none, plain], [plain, aqm], [aqm, plain], [aqm, none]] {
        assert_eq!(message(&dumbbell(queues), &[]), "no mistake", "{queues:?}");
    }
    assert_eq!(
        message(&dumbbell([none, none]), &[]),
        "my.toml:2:1: run.subject: missing, and the scenario has no gateway and no link with a queue"
    );
    for queues in [[aqm, aqm], [plain, plain]] {
        assert_eq!(
            message(&dumbbell(queues), &[]),
            "my.toml:2:1: run.subject: missing; required: the queue that metrics describe: first, second"
        );
    }
}

#[test]
fn mistakes_in_settings_are_reported() {
    check(&[
        (
            "[run]",
            "[run]\nsettings = [\"red\", \"avqq\"]",
            "my.toml:4:20: run.settings[2]: found \"avqq\"; did you mean \"AVQ\"? allowed: PRESETS, AQMS, SCHEDULERS",
        ),
        (
            "[run]",
            "[setting.Own]\nalgorithm = \"red\"\nmin_th = 9\nmax_th = 8\n[run]",
            "my.toml:5:10: setting.Own.min_th: found 9, but it must be below max_th, which is 8",
        ),
        (
            "[run]",
            "[setting.Own]\ntarget = \"5 ms\"\n[run]",
            "my.toml:3:10: setting.Own.algorithm: missing; required: algorithm or preset; allowed: AQMS",
        ),
        (
            "[run]",
            "[setting.Own]\nalgorithm = \"red\"\nscheduler = \"dr\"\n[run]",
            "my.toml:5:13: setting.Own.scheduler: found \"dr\"; did you mean \"drr\"? allowed: SCHEDULERS",
        ),
        (
            "[run]",
            "[setting.Own]\nscheduler = \"red\"\n[run]",
            "my.toml:4:13: setting.Own.scheduler: found \"red\"; that is an AQM: algorithm = \"red\", in a setting or in \
             the table aqm",
        ),
        (
            "[run]",
            "[setting.Own]\nscheduler = { algorithm = \"drr\" }\n[run]",
            "my.toml:4:1: setting.Own.scheduler: found a table; allowed: a number, a name or a value with its unit in \
             quotes, or true or false",
        ),
        (
            "[run]",
            "[setting.all]\nalgorithm = \"red\"\n[run]",
            "my.toml:3:10: setting.all: found as a setting's name; allowed: another name, because \"all\" means every algorithm",
        ),
        (
            "{ algorithm = \"red\" }",
            "{ algorithm = \"fq_codel\" }",
            "my.toml:18:21: gateway.aqm.algorithm: found \"fq_codel\"; that is a scheduler: scheduler = \"fq_codel\", at a \
             gateway in transmit_queue",
        ),
        (
            "{ algorithm = \"red\" }",
            "{ algorithm = \"window\" }",
            "my.toml:18:21: gateway.aqm.algorithm: found \"window\"; that is a marking method: marking = \"window\"",
        ),
    ]);
    let scenario = Scenario::parse(GATEWAY, "my.toml", &[]).expect("a valid scenario");
    let asked = |name: &str| scenario.with_setting(name).expect_err("wrong").to_string();
    assert_eq!(
        asked("RED 44"),
        with_lists(
            "setting \"RED 44\": no setting of that name; did you mean \"RED 4\"? allowed: PRESETS, AQMS, SCHEDULERS"
        )
    );
    let plain = GATEWAY.replace("rate = \"10 Mbps\"", "rate = \"10 Mbps\"\nqueue = {}");
    let plain = plain.replace("[run]", "[run]\nsubject = \"ingress\"");
    assert_eq!(
        Scenario::parse(&plain, "my.toml", &[])
            .expect("a valid scenario")
            .with_setting("RED FC 3")
            .expect_err("wrong")
            .to_string(),
        "setting \"RED FC 3\": link.ingress.queue.aqm.preset: found \"RED FC 3\"; allowed: at a gateway, because its marks cut advertised windows (marking = \"window\") and no connection ends at a link's queue"
    );
    let behind =
        Scenario::parse(&GATEWAY.replace("[gateway]", "[gateway]\nmark = \"transmit\""), "my.toml", &[]);
    assert_eq!(
        behind.expect("a valid scenario").with_setting("RED FC 3").expect_err("wrong").to_string(),
        "setting \"RED FC 3\": gateway.marking: found \"window\"; allowed: \"drop\" or \"ecn\" if mark = \"transmit\", because a packet behind the PEP does not identify the window to cut"
    );
    assert_eq!(
        scenario.with_settings(&["red", "RED 4", "red"]).expect_err("wrong").to_string(),
        "setting \"red\": found \"red\" twice; allowed: each setting once"
    );
}

/// Transfers over links without rate and delay would never end; packets at given times are sent.
#[test]
fn transfers_that_take_no_time_are_refused() {
    let with = |kind: &str, link: &str| {
        let link = format!(
            "[host.near]\n[link.direct]\nbetween = [\"server\", \"near\"]\n{link}\n[traffic.x]\n{kind}\nfrom = \"server\"\n\
             to = \"near\"\n[traffic.web]"
        );
        changed("[traffic.web]", &link)
    };
    let bulk = "kind = \"bulk\"";
    assert_eq!(
        with(bulk, ""),
        "my.toml:35:6: traffic.x.to: found \"near\", which data reach in no time, as their acknowledgements reach \"server\"; allowed: \
         hosts behind a link with a rate or a delay, because a connection would send without end at one time"
    );
    for link in ["rate = \"1 Gbps\"", "delay = \"1 ns\"", "reverse.delay = \"1 ns\"", "access = \"wifi\""] {
        assert_eq!(with(bulk, link), "no mistake", "{link}");
    }
    assert_eq!(with("kind = \"cbr\"\nrate = \"1 Mbps\"\npacket = \"1 KB\"", ""), "no mistake");
}

/// A run would have used 4294967295 B in place of a larger buffer.
#[test]
fn receive_buffers_of_more_than_32_bits_are_refused() {
    for (key, value, found) in [
        ("receive_window", "4294967296 B", "4294967296 B"),
        ("receive_window", "4000000 segments", "4000000 segments"),
        ("initial_receive_window", "8 GB", "8 GB"),
        ("protocol = \"sctp\"\na_rwnd", "1 GB", ""),
        ("protocol = \"sctp\"\na_rwnd", "5 GB", "5 GB"),
        ("receive_window", "4294967295 B", ""),
        ("max_window", "8 GB", ""),
    ] {
        let message = changed("[traffic.web]", &format!("[transport.x]\n{key} = \"{value}\"\n[traffic.web]"));
        let expected = format!("found \"{found}\"; allowed: at most 4294967295 B");
        assert!(
            message.ends_with(if found.is_empty() { "no mistake" } else { &expected }),
            "{key}: {message}"
        );
    }
}

#[test]
fn mistakes_in_overrides_are_reported() {
    for (change, expected) in [
        (
            "gateway.aqm.max_p=2",
            "--set gateway.aqm.max_p=2: gateway.aqm.max_p: found 2; allowed: a number, above 0 and at most 1",
        ),
        (
            "gateway.regulator.rate=20 Mbs",
            "--set gateway.regulator.rate=20 Mbs: gateway.regulator.rate: found \"20 Mbs\"; allowed: a rate such as \
             \"20 Mbps\" (bps, kbps, Mbps, Gbps)",
        ),
        (
            "gateway.aqm.wq=1",
            "--set gateway.aqm.wq=1: gateway.aqm.wq: no such parameter of red; did you mean \"w_q\"? allowed: min_th, \
             max_th, w_q, max_p, gentle, wait, ns2, bytes, mean_packet, threshold",
        ),
        (
            "link.ingres.rate=1 Mbps",
            "--set link.ingres.rate=1 Mbps: link.ingres: no link of that name; did you mean \"ingress\"? allowed: \
             ingress, satellite, access",
        ),
        (
            "transport.defalt.sack=true",
            "--set transport.defalt.sack=true: transport.defalt: no transport of that name; did you mean \"default\"? \
             allowed: default, reno-2003, byun2007, ns2, linux",
        ),
        ("transport.default.sack=true", "no mistake"),
        ("transport.linux.sack=true", "no mistake"),
        (
            "run.sed=3",
            "--set run.sed=3: run.sed: no such key; did you mean \"seed\"? allowed: warmup, duration, \
             sample_interval, seed, runs, settings, subject",
        ),
        (
            "gateway.regulator",
            "--set gateway.regulator: no \"=\"; allowed: a key and a value, such as gateway.regulator.rate=\"10 Mbps\"",
        ),
        (
            "host.server.count=5.0",
            "--set host.server.count=5.0: host.server.count: found 5.0; allowed: a whole number, at least 1 and at \
             most 1000000",
        ),
        ("run.seed=2.0", "--set run.seed=2.0: run.seed: found 2.0; allowed: a whole number, not negative"),
        (
            "[a]=3",
            "--set [a]=3: found the key \"[a]\"; allowed: a dotted key, such as gateway.regulator.rate",
        ),
        ("#a=3", "--set #a=3: found the key \"#a\"; allowed: a dotted key, such as gateway.regulator.rate"),
        ("=3", "--set =3: found the key \"\"; allowed: a dotted key, such as gateway.regulator.rate"),
        (
            "a b=3",
            "--set a b=3: found the key \"a b\"; allowed: a dotted key, such as gateway.regulator.rate",
        ),
        ("run.settings.x=3", "--set run.settings.x=3: run.settings: found a table; allowed: an array"),
        (
            "host.server.count=1\n2",
            "--set host.server.count=1 2: host.server.count: found \"1\\n2\"; allowed: a whole number, at least 1 \
             and at most 1000000",
        ),
    ] {
        assert_eq!(set(change), expected, "{change}");
    }
    // A transport that traffic names by another override.
    let named = ["transport.own.sack=true", "traffic.web.transport=own"].map(str::to_owned);
    assert_eq!(message(GATEWAY, &named), "no mistake");
    let several = GATEWAY.replace("[gateway]", "[[gateway]]\nname = \"gateway\"");
    assert_eq!(
        message(&several, &["gateway.aqm.max_p=0.5".to_owned()]),
        "--set gateway.aqm.max_p=0.5: gateway.aqm: no gateway of that name; allowed: gateway"
    );
    assert_eq!(
        message(&several, &["gateway.gateway.aqm.max_p=5".to_owned()]),
        "--set gateway.gateway.aqm.max_p=5: gateway.gateway.aqm.max_p: found 5; allowed: a number, above 0 and at \
         most 1"
    );
}

#[test]
fn overrides_unused_by_every_setting_are_reported() {
    let unused = "gateway.aqm.b_ref=9".to_owned();
    let expected = "--set gateway.aqm.b_ref=9: gateway.aqm.b_ref: no parameter of red, but of rem; \
                    allowed: min_th, max_th, w_q, max_p, gentle, wait, ns2, bytes, mean_packet, threshold";
    let scenario = Scenario::parse(GATEWAY, "my.toml", &[unused]).expect("an override for some settings");
    assert_eq!(scenario.all_used().expect_err("unused").to_string(), expected);
    let error = scenario.with_settings(&["red", "AVQ"]).expect_err("none of them has it");
    assert_eq!(error.to_string(), expected);

    // A scheduler's parameter applies to settings with that scheduler; the others keep theirs, by default fifo.
    let quantum = "gateway.transmit_queue.scheduler.quantum=3000 B".to_owned();
    let scenario = Scenario::parse(GATEWAY, "my.toml", &[quantum]).expect("an override for some settings");
    assert_eq!(
        scenario.all_used().expect_err("unused").to_string(),
        "--set gateway.transmit_queue.scheduler.quantum=3000 B: gateway.transmit_queue.scheduler.quantum: fifo has no \
         parameters"
    );
    let both = scenario.with_settings(&["drr", "red"]).expect("a parameter of drr");
    let values = &both[0].gateways[0].transmit_queue.scheduler.values;
    assert_eq!(values.number("quantum"), 3000.0);
}

#[test]
fn syntax_errors_are_located() {
    check(&[
        ("[run]", "[run", "my.toml:3:5: not TOML: unclosed table, expected `]`"),
        ("count = 5", "count == 5", "my.toml:7:8: not TOML: extra `=`, expected nothing"),
    ]);
    let deep = format!("{}x = 1", "a.".repeat(100_000));
    assert_eq!(message(&deep, &[]), "my.toml: not TOML: recursion limit");
    assert_eq!(message("", &[]), "my.toml: the file is empty; allowed: a scenario, in TOML");
    assert_eq!(message("\n \t\n", &[]), "my.toml: the file is empty; allowed: a scenario, in TOML");
}

#[test]
fn unreadable_files_are_reported() {
    let folder = std::env::temp_dir().join(format!("bentpipe-scenario-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the test");
    let load = |name: &str, bytes: Option<&[u8]>| {
        let path = folder.join(name);
        if let Some(bytes) = bytes {
            std::fs::write(&path, bytes).expect("a file for the test");
        }
        let error = Scenario::load(&path, &[]).expect_err("no scenario").to_string();
        error.replace(&format!("{}/", folder.display()), "")
    };
    let messages = [
        load("none.toml", None),
        load("empty.toml", Some(b"")),
        load("latin1.toml", Some(b"title = \"a\"\n# caf\xe9\n")),
        load("binary.toml", Some(b"\x7fELF\x02\x01\x01\x00\x00")),
        load("huge.toml", Some(&vec![b'#'; (4 << 20) + 1])),
        load("", None),
    ];
    std::fs::remove_dir_all(&folder).expect("the test's own folder");
    assert_eq!(
        messages[..5],
        [
            "none.toml: cannot be read: No such file or directory (os error 2)",
            "empty.toml: the file is empty; allowed: a scenario, in TOML",
            "latin1.toml:2:6: found the byte 0xe9; allowed: a scenario in TOML, in UTF-8",
            "binary.toml:1:10: not TOML: key with no value, expected `=`",
            "huge.toml: more than 4 MiB; allowed: a scenario file, in TOML",
        ]
    );
    assert!(messages[5].ends_with("found a folder; allowed: a scenario file, in TOML"), "{}", messages[5]);
}

#[test]
fn mistakes_in_distributions_are_reported() {
    let at = "my.toml:33:1: traffic.web.object_size";
    for (distribution, expected) in [
        ("{}", format!("{at}: found none; allowed: one of uniform, exponential, normal, erlang, pareto, choice, trace")),
        (
            "{ pareto = { shape = 1, mean = \"1 KB\" } }",
            "my.toml:33:36: traffic.web.object_size.pareto.shape: found 1; allowed: a number above 1, so that the mean is finite"
                .to_owned(),
        ),
        (
            "{ erlang = { shape = 0, mean = \"1 KB\" } }",
            "my.toml:33:36: traffic.web.object_size.erlang.shape: found 0; allowed: a whole number, at least 1 and at \
             most 1000"
                .to_owned(),
        ),
        (
            "{ choice = [] }",
            "my.toml:33:26: traffic.web.object_size.choice: found an empty array; allowed: one value at least".to_owned(),
        ),
        (
            "{ choice = [\"1 KB\", \"2 KB\"], weights = [1] }",
            "my.toml:33:54: traffic.web.object_size.weights: found an array of 1; allowed: an array of 2, one for each choice".to_owned(),
        ),
        (
            "{ choice = [\"1 KB\", \"2 KB\"], weights = [1, -1] }",
            "my.toml:33:58: traffic.web.object_size.weights[2]: found -1; allowed: a number, not negative".to_owned(),
        ),
        (
            "{ choice = [\"1 KB\", { choice = [\"1 B\"] }] }",
            "my.toml:33:35: traffic.web.object_size.choice[2]: found a choice within a choice; allowed: one choice with all entries"
                .to_owned(),
        ),
        (
            "{ exponential = \"1 KB\", weights = [1] }",
            "my.toml:33:39: traffic.web.object_size.weights: allowed: only together with choice".to_owned(),
        ),
        (
            "{ trace = \"none.dat\" }",
            "my.toml:33:25: traffic.web.object_size.trace: none.dat cannot be read: No such file or directory (os error \
             2); allowed: a text with one number in each line"
                .to_owned(),
        ),
    ] {
        assert_eq!(changed("\"50 KB\"", distribution), expected, "{distribution}");
    }
}

#[test]
fn transports_accept_only_keys_and_traffic_of_their_protocol() {
    let x = |keys: &str| changed("[traffic.web]", &format!("[transport.x]\n{keys}\n[traffic.web]"));
    assert_eq!(x("protocol = \"sctp\""), "no mistake");
    assert_eq!(x("protocol = \"rtp\""), "no mistake");
    assert_eq!(
        x("protocol = \"sctq\""),
        "my.toml:29:12: transport.x.protocol: found \"sctq\"; did you mean \"sctp\"? allowed: tcp, sctp, rtp, quic"
    );
    assert_eq!(
        x("protocol = 5"),
        "my.toml:29:12: transport.x.protocol: found 5; allowed: tcp, sctp, rtp, quic"
    );
    assert_eq!(
        x("protocol = \"sctp\"\nmss = \"1000 B\""),
        "my.toml:30:1: transport.x.mss: no such key; allowed: pmtu, ip_header, message, cookie, a_rwnd, initial_ssthresh, \
         slow_start_limit, clock_granularity, sack_every, sack_delay, rto_initial, rto_min, rto_max, max_burst, \
         valid_cookie_life, association_max_retrans, max_init_retransmits"
    );
    assert_eq!(
        x("protocol = \"rtp\"\nsack = true"),
        "my.toml:30:1: transport.x.sack: no such key; allowed: udp_header, clock_rate, rtcp_interval, adapt, controller, priority, smoothing, \
         unloaded, congested, decrease, increase, min_rate, max_rate"
    );
    assert_eq!(
        x("protocol = \"sctp\"\npmtu = \"51 B\""),
        "my.toml:30:8: transport.x.pmtu: found \"51 B\"; allowed: at least 52 B: ip_header, 32 B of headers and data"
    );
    assert_eq!(
        x("protocol = \"sctp\"\npmtu = \"150 B\""),
        "my.toml:28:12: transport.x.cookie: found \"100 B\"; allowed: at most 92 B, so that an INIT ACK fits into pmtu \
         (\"150 B\")"
    );
    assert_eq!(
        x("protocol = \"sctp\"\na_rwnd = \"1499 B\""),
        "my.toml:30:10: transport.x.a_rwnd: found \"1499 B\"; allowed: at least 1500 B"
    );
    assert_eq!(
        x("protocol = \"sctp\"\nrto_min = \"2 min\""),
        "my.toml:30:11: transport.x.rto_min: found \"120 s\"; allowed: at most rto_max (\"60 s\")"
    );
    assert_eq!(
        x("protocol = \"rtp\"\ncontroller = \"nada\"\ndecrease = 0.5"),
        "my.toml:31:12: transport.x.decrease: found 0.5; allowed: only with controller = \"loss\""
    );
    assert_eq!(
        x("protocol = \"rtp\"\ncontroller = \"nada\"\nincrease = \"1 Mbps\""),
        "my.toml:31:12: transport.x.increase: found \"1 Mbps\"; allowed: only with controller = \"loss\""
    );
    assert_eq!(
        x("protocol = \"rtp\"\npriority = 5"),
        "my.toml:30:12: transport.x.priority: found 5; allowed: only with controller = \"nada\""
    );
    assert_eq!(
        x("protocol = \"rtp\"\nunloaded = 0.1"),
        "my.toml:30:12: transport.x.unloaded: found 0.1; allowed: at most congested (0.04)"
    );
    assert_eq!(
        x("protocol = \"rtp\"\nmax_rate = \"10 kbps\""),
        "my.toml:28:12: transport.x.min_rate: found \"50 kbps\"; allowed: at most max_rate (\"10 kbps\")"
    );
    let carried = |protocol: &str, traffic: &str| {
        let transport = format!("[transport.x]\nprotocol = \"{protocol}\"\n[traffic.t]\ntransport = \"x\"");
        let (head, _) = GATEWAY.split_once("[traffic.web]").expect("traffic");
        message(&format!("{head}{transport}\nfrom = \"server\"\nto = \"client\"\n{traffic}\n"), &[])
    };
    let found = |protocol: &str, allowed: &str| {
        format!(
            "my.toml:31:13: traffic.t.transport: found \"x\", whose protocol is {protocol}; allowed: a transport whose \
             protocol is {allowed}"
        )
    };
    let pages = "kind = \"pages\"\nsessions = 1\nobject_size = \"1 KB\"";
    assert_eq!(carried("tcp", pages), "no mistake");
    assert_eq!(carried("sctp", pages), found("sctp", "tcp or quic"));
    assert_eq!(carried("sctp", "kind = \"bulk\""), "no mistake");
    assert_eq!(carried("rtp", "kind = \"bulk\""), found("rtp", "tcp or sctp or quic"));
    let cbr = "kind = \"cbr\"\nrate = \"1 Mbps\"\npacket = \"1 KB\"";
    assert_eq!(carried("rtp", cbr), "no mistake");
    let ends = "from = \"server\"\nto = \"client\"";
    assert_eq!(
        carried("rtp", &format!("{cbr}\n[traffic.u]\n{cbr}\n{ends}\ntransport = \"udp\"")),
        "my.toml:43:13: traffic.u.transport: found \"udp\"; allowed: x, default, reno-2003, byun2007, ns2, linux; default: UDP datagrams"
    );
    assert_eq!(
        carried("sctp", "kind = \"bulk\"\nrate_cap = \"1 Mbps\""),
        "my.toml:35:12: traffic.t.rate_cap: found \"1 Mbps\"; allowed: only with a transport whose protocol is tcp or quic"
    );
}

#[test]
fn mistakes_of_quic_give_messages() {
    let x = |keys: &str| {
        changed("[traffic.web]", &format!("[transport.x]\nprotocol = \"quic\"\n{keys}\n[traffic.web]"))
    };
    for right in ["", "algorithm = \"prague\"\necn = true", "hystart = true\nmax_udp_payload = \"1350 B\""] {
        assert_eq!(x(right), "no mistake");
    }
    for (keys, problem) in [
        (
            "max_udp_payload = \"1199 B\"",
            ":19: transport.x.max_udp_payload: found \"1199 B\"; allowed: 1200 to 65000 B",
        ),
        (
            "scone = true\nmax_udp_payload = \"1214 B\"",
            ":19: transport.x.max_udp_payload: found \"1214 B\"; allowed: at least 1215 B with scone, whose packets take 15 B",
        ),
        (
            "max_udp_payload = \"65000 B\"\nudp_header = \"536 B\"",
            ":19: transport.x.max_udp_payload: found \"65 KB\"; allowed: together with udp_header (\"536 B\"), at most 65535 B",
        ),
        ("tls_flight = \"99 B\"", ":14: transport.x.tls_flight: found \"99 B\"; allowed: at least 100 B"),
        (
            "tls_flight = \"16777217 B\"",
            ":14: transport.x.tls_flight: found \"16777217 B\"; allowed: at most 16 MB",
        ),
        ("max_data = \"1 KB\"", ":12: transport.x.max_data: found \"1 KB\"; allowed: at least 4096 B"),
        (
            "algorithm = \"dctcp\"",
            ":12: transport.x.ecn: found false; allowed: true if algorithm = \"dctcp\"",
        ),
        (
            "hystart = true\nsearch = true",
            ":10: transport.x.search: found true; allowed: false with hystart = true, which ends slow start too",
        ),
        (
            "search = true\nalgorithm = \"bbr3\"",
            ":10: transport.x.search: found true; allowed: false if algorithm = \"bbr3\", which does not use the slow start of \
             RFC 5681",
        ),
        (
            "hystart = true\nalgorithm = \"bbr\"",
            ":11: transport.x.hystart: found true; allowed: false if algorithm = \"bbr\", which does not use the slow start of \
             RFC 5681",
        ),
    ] {
        let found = x(keys);
        assert!(found.starts_with("my.toml:") && found.ends_with(problem), "{found}");
    }
    let page = |protocol: &str, http: &str| {
        let transport = format!(
            "[transport.x]\nprotocol = \"{protocol}\"\n[traffic.web]\ntransport = \"x\"\nhttp = \"{http}\""
        );
        changed("[traffic.web]", &transport)
    };
    for (protocol, http, problem) in [
        ("quic", "3", "no mistake"),
        ("tcp", "2", "no mistake"),
        (
            "quic",
            "2",
            "traffic.web.http: found \"2\" over quic; allowed: 3, or a transport whose protocol is tcp",
        ),
        (
            "tcp",
            "3",
            "traffic.web.http: found \"3\" over tcp; allowed: 1.1 or 2, or a transport whose protocol is quic",
        ),
    ] {
        assert!(page(protocol, http).ends_with(problem), "{}", page(protocol, http));
    }
}

#[test]
fn mistakes_of_rendering_give_messages() {
    let page = |keys: &str| {
        let transport = format!(
            "[transport.x]\nprotocol = \"quic\"\n[traffic.web]\ntransport = \"x\"\nhttp = \"3\"\nobjects_per_page = 5\n{keys}"
        );
        changed("[traffic.web]", &transport)
    };
    assert_eq!(page("render_blocking = 4\npriorities = true"), "no mistake");
    assert_eq!(
        page("render_blocking = 5"),
        "my.toml:34:19: traffic.web.render_blocking: found 5; allowed: less than objects_per_page, which is 5"
    );
}

#[test]
fn a_quic_server_with_changing_addresses_gives_a_message() {
    let moving = |groups: &[&str], traffic: &str| {
        let mut text = GATEWAY
            .replace("[traffic.web]", "[transport.x]\nprotocol = \"quic\"\n[traffic.web]\ntransport = \"x\"");
        for group in groups {
            let head = format!("[host.{group}]\n");
            text = text.replace(&head, &format!("{head}address_changes = {{ interval = \"15 s\" }}\n"));
        }
        message(&(text + traffic), &[])
    };
    let load =
        "[traffic.load]\nkind = \"bulk\"\nfrom = \"server\"\nto = \"client\"\ntransport = \"x\"\nflows = 1\n";
    let allowed = "which has address_changes; allowed: hosts without, because a QUIC server cannot migrate (RFC 9000, section 9)";
    assert_eq!(moving(&["client"], load), "no mistake");
    assert_eq!(
        moving(&["server"], ""),
        format!("my.toml:34:8: traffic.web.from: found \"server\", {allowed}")
    );
    let text = GATEWAY
        .replace("[host.server]", "[host.server]\naddress_changes = {}")
        .replace("[host.client]", "[host.client]\naddress_changes = {}")
        .replace("[traffic.web]", "[transport.x]\nprotocol = \"quic\"\n[traffic.web]");
    let found = message(&(text + load), &[]);
    assert!(found.ends_with(&format!("traffic.load.to: found \"client\", {allowed}")), "{found}");
}

#[test]
fn packets_longer_than_quic_datagrams_are_refused() {
    let call = |keys: &str, packet: &str| {
        let transport = format!(
            "[transport.x]\nprotocol = \"quic\"\ndatagrams = true\n{keys}\n[traffic.c]\nkind = \"cbr\"\nfrom = \"server\"\n\
             to = \"client\"\ntransport = \"x\"\nrate = \"1 Mbps\"\npacket = {packet}\n[traffic.web]"
        );
        changed("[traffic.web]", &transport)
    };
    let fixed = |bytes: u64| format!("\"{bytes} B\"");
    // A SCONE packet takes 15 B of a datagram.
    for (keys, most) in [
        ("", 1190),
        ("max_udp_payload = \"1300 B\"", 1290),
        ("max_udp_payload = \"1300 B\"\nscone = true", 1275),
    ] {
        assert_eq!(call(keys, &fixed(most)), "no mistake", "{keys}");
        let longer = most + 1;
        let problem = format!(
            "traffic.c.transport: found \"x\", whose datagrams hold packets of up to {most} B, for packets of {longer} B; \
             allowed: shorter packets, or a larger max_udp_payload"
        );
        for packet in [
            fixed(longer),
            format!("{{ uniform = [\"100 B\", \"{longer} B\"] }}"),
            format!("{{ choice = [\"100 B\", {{ uniform = [\"50 B\", \"{longer} B\"] }}] }}"),
        ] {
            let found = call(keys, &packet);
            assert!(found.ends_with(&problem), "{packet}: {found}");
        }
    }
}

/// The run's work is bounded only if events that repeat all the time are a microsecond apart.
#[test]
fn intervals_below_a_microsecond_are_refused() {
    let of = |keys: &str| {
        let text = GATEWAY.split_once("kind = \"pages\"").expect("traffic").0;
        message(&format!("{text}from = \"server\"\nto = \"client\"\n{keys}\n"), &[])
    };
    for (key, keys) in [
        ("interval", "kind = \"files\"\nsize = \"1 KB\"\ninterval = \"TIME\""),
        ("interval.exponential", "kind = \"files\"\nsize = \"1 KB\"\ninterval = { exponential = \"TIME\" }"),
        ("segment", "kind = \"dash\"\nsegment = \"TIME\""),
        ("on", "kind = \"on_off\"\nrate = \"1 Mbps\"\npacket = \"1 KB\"\non = \"TIME\"\noff = \"0 s\""),
        ("talk", "kind = \"voip\"\ntalk = \"TIME\"\nsilence = \"0 s\""),
        (
            "states[2].sojourn",
            "kind = \"mmpp\"\npacket = \"1 KB\"\nstates = [{ rate = \"1 Mbps\", sojourn = \"1 s\" }, \
             { rate = \"0 bps\", sojourn = \"TIME\" }]",
        ),
    ] {
        assert_eq!(of(&keys.replace("TIME", "1 us")), "no mistake", "{keys}");
        let problem = of(&keys.replace("TIME", "999 ns"));
        let expected = format!("traffic.web.{key}: found \"999 ns\"; allowed: ");
        assert!(problem.contains(&expected) && problem.contains("1 us"), "{problem}");
    }
}

/// TOML has integers of 64 bits with sign, so the upper half of the seeds cannot be in a file.
#[test]
fn a_seed_beyond_the_integers_of_toml_names_the_highest() {
    assert_eq!(set("run.seed=9223372036854775807"), "no mistake");
    for (seed, allowed) in [
        ("9223372036854775808", "a whole number, at most 9223372036854775807"),
        ("-1", "a whole number, not negative"),
        ("2026-01-01", "a whole number, not negative"),
    ] {
        let expected = format!("--set run.seed={seed}: run.seed: found {seed}; allowed: {allowed}");
        assert_eq!(set(&format!("run.seed={seed}")), expected);
    }
}

#[test]
fn numbers_in_place_of_names_of_digits_ask_for_quotes() {
    for number in ["1.1", "2"] {
        let expected = format!(
            "--set traffic.web.http={number}: traffic.web.http: found {number}; allowed: \"1.1\", \"2\", \"3\", with the \
             quotes"
        );
        assert_eq!(set(&format!("traffic.web.http={number}")), expected);
    }
    assert_eq!(set("traffic.web.http=\"2\""), "no mistake");
}

#[test]
fn pages_of_several_objects_over_quic_need_http_3_or_a_connection_per_object() {
    let page = |keys: &str| {
        let transport =
            format!("[transport.x]\nprotocol = \"quic\"\n[traffic.web]\ntransport = \"x\"\n{keys}");
        changed("[traffic.web]", &transport)
    };
    let problem = "traffic.web.http: missing; allowed with objects_per_page = 3 over quic: http = \"3\", or connection_per = \
                   \"object\"";
    for keys in ["objects_per_page = 3", "objects_per_page = 3\nconnection_per = \"page\""] {
        assert!(page(keys).ends_with(problem), "{}", page(keys));
    }
    for keys in [
        "objects_per_page = 1",
        "objects_per_page = 3\nhttp = \"3\"",
        "objects_per_page = 3\nconnection_per = \"object\"",
    ] {
        assert_eq!(page(keys), "no mistake", "{keys}");
    }
}

#[test]
fn adaptive_video_mistakes_give_messages() {
    let (head, _) = GATEWAY.split_once("[traffic.web]").expect("traffic");
    let video = |keys: &str| {
        let text =
            format!("{head}[traffic.tv]\nkind = \"dash\"\nfrom = \"server\"\nto = \"client\"\n{keys}\n");
        message(&text, &[])
    };
    assert_eq!(video(""), "no mistake");
    assert_eq!(video("segment = \"15 s\""), "no mistake");
    for (keys, expected) in [
        ("ladder = []", "32:10: traffic.tv.ladder: found 0; allowed: at least 1 rate and at most 64"),
        (
            "ladder = [\"1 Mbps\", \"2 Mbps\", \"2 Mbps\"]",
            "32:31: traffic.tv.ladder[3]: found \"2 Mbps\" after \"2 Mbps\"; allowed: rates in ascending order",
        ),
        (
            "segment = \"16 s\"",
            "28:10: traffic.tv.buffer: found \"30 s\"; allowed: at least two segments, \"32 s\"",
        ),
        (
            "startup = \"29 s\"",
            "32:11: traffic.tv.startup: found \"29 s\"; allowed: at most the whole segments that fit into the buffer, \
             \"28 s\"",
        ),
        (
            "buffer = \"8 s\"\nrebuffer = \"9 s\"",
            "33:12: traffic.tv.rebuffer: found \"9 s\"; allowed: at most the whole segments that fit into the buffer, \
             \"8 s\"",
        ),
        (
            "controller = \"bbb\"",
            "32:14: traffic.tv.controller: found \"bbb\"; did you mean \"bba\"? allowed: bba, bola, rate",
        ),
        (
            "size_variation = 1",
            "32:18: traffic.tv.size_variation: found 1, without a unit; allowed: a percentage such as \"100 %\" (%)",
        ),
    ] {
        assert_eq!(video(keys), format!("my.toml:{expected}"), "{keys}");
    }
}

/// A gateway with two groups of terminals, with a change.
fn beam(from: &str, to: &str) -> String {
    const BEAM: &str = r#"title = "Beam"
[run]
duration = "1 s"
[host.server]
[host.user]
count = 4
[terminal.home]
count = 2
plan = "basic"
[terminal.ship]
[plan.basic.down]
cir = "1 Mbps"
pir = "2 Mbps"
[gateway]
terminals = ["home", "ship"]
queues_per = "terminal"
regulator = { rate = "10 Mbps" }
[link.ingress]
between = ["server", "gateway"]
[link.homes]
between = ["gateway", "home"]
[link.ships]
between = ["gateway", "ship"]
[link.access]
between = ["home", "user"]
[traffic.web]
kind = "bulk"
from = "server"
to = "user"
flows = 1
"#;
    assert!(BEAM.contains(from), "{from}");
    match Scenario::parse(&BEAM.replacen(from, to, 1), "my.toml", &[]) {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn mistakes_in_terminals_and_plans_are_explained() {
    assert_eq!(beam("Beam", "Beam"), "");
    assert_eq!(beam("[gateway]", "[gateway]\nthroughput_advice = \"plan\""), "");
    for (from, to, expected) in [
        (
            "[\"home\", \"ship\"]",
            "[\"home\", \"shop\"]",
            "my.toml:15:22: gateway.terminals[2]: found \"shop\"; did you mean \"ship\"? allowed: home, ship",
        ),
        (
            "terminals = [\"home\", \"ship\"]",
            "terminals = [\"home\", \"ship\"]\nterminal = \"one\"",
            "my.toml:16:12: gateway.terminal: found \"one\" beside terminals; allowed: one of the two",
        ),
        (
            "terminals = [\"home\", \"ship\"]",
            "terminals = [\"home\"]",
            "my.toml:10:11: terminal.ship: no gateway has it; allowed: terminals that a gateway names in terminals",
        ),
        (
            "plan = \"basic\"",
            "plan = \"basik\"",
            "my.toml:9:8: terminal.home.plan: found \"basik\"; did you mean \"basic\"? allowed: basic",
        ),
        (
            "cir = \"1 Mbps\"",
            "cir = \"3 Mbps\"",
            "my.toml:13:7: plan.basic.down.pir: found \"2 Mbps\"; allowed: at least cir (\"3 Mbps\")",
        ),
        (
            "queues_per = \"terminal\"",
            "queues_per = \"terminal\"\nthroughput_advice = \"share\"",
            "my.toml:17:21: gateway.throughput_advice: found \"share\"; allowed: a rate, or \"plan\", because each terminal has its own \
             queues",
        ),
        (
            "queues_per = \"terminal\"",
            "",
            "my.toml:9:8: terminal.home.plan: found \"basic\"; allowed: only at a gateway with queues_per = \"terminal\" \
             or \"subscriber\", because terminals that share a queue share the carrier as its packets come",
        ),
        (
            "count = 4",
            "count = 3",
            "my.toml:25:11: link.access.between: found 3 hosts at the other end of the links of 2 terminals; allowed: their \
             gateway, or hosts whose number is a multiple of 2",
        ),
        (
            "[\"gateway\", \"ship\"]",
            "[\"server\", \"ship\"]",
            "my.toml:15:22: gateway.terminals[2]: found 0 links between \"gateway\" and \"ship\"; allowed: one, the satellite",
        ),
    ] {
        assert_eq!(beam(from, to), expected);
    }
}
