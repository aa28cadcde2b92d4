//! Congestion control compared with theory.

use crate::common::{mean, results};
use bentpipe_scenario::Scenario;
use bentpipe_sim::Results;

/// Bulk transfers over one link; `transport` has the TCP's keys, and overrides change the rest.
fn bulk(transport: &str, overrides: &[&str]) -> Scenario {
    let text = format!(
        r#"
title = "Bulk transfers over one link"
[run]
warmup = "40 s"
duration = "120 s"
subject = "wire"
[host.client]
count = 1
[host.server]
count = 1
[link.wire]
between = ["server", "client"]
rate = "20 Mbps"
delay = "300 ms"
queue = {{ limit = "1500 KB", aqm = {{ algorithm = "droptail" }} }}
[transport.tcp]
mss = "1000 B"
receive_window = "16 MB"
go_back_n = true
{transport}
[traffic.bulk]
kind = "bulk"
from = "server"
to = "client"
transport = "tcp"
flows = 1
"#
    );
    let overrides: Vec<_> = overrides.iter().map(|&o| o.to_owned()).collect();
    Scenario::parse(&text, "test.toml", &overrides).unwrap_or_else(|e| panic!("{e}"))
}

/// Goodput of all flows [bit/s].
fn goodput(r: &Results) -> f64 {
    r.flows.iter().map(|flow| flow.goodput(r.begin, r.end)).sum()
}

/// The bandwidth-delay product of 600 ms and 20 Mbit/s is 1.5 MB, and the queue holds as much. CUBIC's window is never
/// below 0.7 of the sum, so the link is busy after slow start. BBR fills the link except while it probes the round trip:
/// every 10 s it sends nearly nothing for two round trips, 1.2 s of 11.2 s; the link then forwards queued packets.
#[test]
fn cubic_and_bbr_fill_a_path_of_600_ms() {
    for (algorithm, least) in [("cubic", 0.99), ("bbr", 0.9)] {
        let r = results(&bulk(&format!("algorithm = \"{algorithm}\"\nsack = true"), &[]), 1);
        let used = mean(&r, "throughput") / 20e6;
        assert!(used >= least, "{algorithm}: {used} of the link");
    }
}

/// BBR version 3 paces at 99 % of its estimate, leaves room after each probe, and every 5 s has half a bandwidth-delay product
/// in flight for 200 ms and a round trip, until a drained pipe is full again: less than a round trip and a half of half of
/// the rate, 8 % of it.
#[test]
fn bbr3_fills_a_path_of_600_ms() {
    let r = results(&bulk("algorithm = \"bbr3\"\nsack = true\nrack = true", &[]), 1);
    let used = mean(&r, "throughput") / 20e6;
    assert!((0.88..0.99).contains(&used), "{used} of the link");
}

/// LossThresh of draft-ietf-ccwg-bbr, section 2.8: BBR version 3 carries on at a random loss of 1 %, and reduces its bounds
/// with each probe at 5 %. NewReno gets at most 1.31 8000 / 0.6 / sqrt(p) bit/s by the formula of Ott et al. (1996).
#[test]
fn bbr3_tolerates_one_percent_of_loss_and_yields_to_five() {
    let lossy = |algorithm: &str, loss: &str| {
        let transport = format!("algorithm = \"{algorithm}\"\nsack = true\nrack = true");
        let loss = format!("link.wire.loss={loss}");
        (1..=2).map(|seed| goodput(&results(&bulk(&transport, &[&loss]), seed)) / 2e6).sum::<f64>()
    };
    let (bbr3, newreno) = (lossy("bbr3", "0.01"), lossy("newreno", "0.01"));
    assert!(bbr3 > 14.0, "{bbr3} Mbit/s");
    assert!(newreno < 0.25, "{newreno} Mbit/s");
    let yielding = lossy("bbr3", "0.05");
    assert!(yielding < 0.05 * bbr3, "{yielding} Mbit/s");
}

/// A queue of six bandwidth-delay products of 1.5 MB. SEARCH finds the link busy for four to five round trips, when the window
/// is five to six of them; then the window falls to one. Plain slow start overflows the queue at seven, and loses about as
/// much as it sends in a round trip of the full queue before it learns of it.
#[test]
fn search_ends_slow_start_without_the_losses_of_an_overflow() {
    let start = |keys: &str| {
        let overrides = [
            r#"link.wire.queue={ limit = "9 MB", aqm = { algorithm = "droptail" } }"#,
            "run.warmup=\"0 s\"",
            "run.duration=\"40 s\"",
        ];
        let r = results(
            &bulk(&format!("algorithm = \"newreno\"\nsack = true\nrack = true\n{keys}"), &overrides),
            1,
        );
        (r.flows[0].drops, goodput(&r) / 20e6)
    };
    let (plain, search) = (start(""), start("search = true"));
    assert!(plain.0 > 1000, "{plain:?}");
    assert_eq!(search.0, 0, "{search:?}");
    // Twelve round trips of slow start and of draining cost less than a quarter of 40 s.
    assert!(search.1 > 0.75, "{search:?}");
}

/// One packet in a hundred is lost, which BBR does not treat as congestion; NewReno gets 8000 sqrt(1.5 / 0.01) / 0.6 =
/// 0.16 Mbit/s by the formula of Mathis et al. (1997).
#[test]
fn bbr_fills_a_lossy_path() {
    let lossy = |algorithm: &str| {
        let transport = format!("algorithm = \"{algorithm}\"\nsack = true");
        goodput(&results(&bulk(&transport, &["link.wire.loss=0.01"]), 1)) / 1e6
    };
    let (bbr, newreno) = (lossy("bbr"), lossy("newreno"));
    assert!(bbr > 15.0, "{bbr} Mbit/s");
    assert!((0.1..0.2).contains(&newreno), "{newreno} Mbit/s");
}

/// A queue that marks packets that arrive behind K = 40 others. Alizadeh et al., "Data center TCP (DCTCP)", SIGCOMM 2010,
/// section 3.3, for N flows in step, with 100 Mbit/s of packets of 1040 bytes and 10 ms C RTT = 120 packets: W* = (C RTT +
/// K) / N, the queue is at most K + N (9) and its amplitude is A = N / 2 sqrt(2 W*) (8), so its mean is K + N - A / 2:
/// 36.5, 35.7 and 35.1 packets for 1, 2 and 4 flows. The formula has synchronized windows; a queue of packets differs from
/// it by less than three packets. NewReno halves its windows and leaves the link idle.
#[test]
fn dctcp_keeps_its_queue_near_the_marking_threshold() {
    let step = |flows: u32, transport: &str| {
        let queue = r#"link.wire.queue={ limit = "1500 KB", marking = "ecn", aqm = { algorithm = "red", min_th = 40,
                       max_th = 40.5, w_q = 1, max_p = 1 } }"#;
        let flows = format!("traffic.bulk.flows={flows}");
        let overrides = [
            "link.wire.rate=100 Mbps",
            "link.wire.delay=5 ms",
            queue,
            &flows,
            "run.warmup=5 s",
            "run.duration=10 s",
        ];
        let r = results(&bulk(transport, &overrides), 1);
        let packets = |seconds: f64| seconds * 100e6 / (8.0 * 1040.0);
        let delay = r.summary.queue_delay;
        (packets(delay[0]), packets(delay[4]), mean(&r, "throughput") / 100e6)
    };
    let (k, path) = (40.0, 100e6 * 0.01 / (8.0 * 1040.0));
    for flows in [1, 2, 4] {
        let n = f64::from(flows);
        let expected = k + n - n / 4.0 * (2.0 * (path + k) / n).sqrt();
        for algorithm in ["dctcp", "prague"] {
            let (average, longest, used) =
                step(flows, &format!("algorithm = \"{algorithm}\"\necn = \"accurate\""));
            assert!((average - expected).abs() < 3.0, "{algorithm} {n}: {average}, not {expected}");
            // One more packet is being sent.
            assert!((k..=k + n + 2.0).contains(&longest), "{algorithm} {n}: {longest}");
            assert!(used > 0.999, "{algorithm} {n}: {used}");
        }
    }
    let (average, _, used) = step(2, "ecn = true");
    assert!(average < 20.0 && used < 0.97, "{average} {used}");
}

/// The mean over eight seeds, and the half-width of its 95 % confidence interval (Student's t, 7 degrees of freedom).
fn interval(scenario: &Scenario) -> (f64, f64) {
    let rates: Vec<f64> = (1..=8).map(|seed| goodput(&results(scenario, seed))).collect();
    let mean = rates.iter().sum::<f64>() / 8.0;
    let variance = rates.iter().map(|rate| (rate - mean) * (rate - mean)).sum::<f64>() / 7.0;
    (mean, 2.365 * (variance / 8.0).sqrt())
}

/// One flow over 1 Gbit/s that loses a share `p` of the data, over a round trip of `rtt` [s].
fn lossy(transport: &str, p: f64, rtt: f64) -> Scenario {
    let overrides = [
        format!("link.wire.loss={p}"),
        format!("link.wire.delay={} ms", rtt * 500.0),
        "link.wire.rate=1 Gbps".to_owned(),
        "link.wire.reverse={ rate = \"1 Gbps\", loss = 0 }".to_owned(),
        "run.duration=600 s".to_owned(),
    ];
    bulk(transport, &overrides.each_ref().map(String::as_str))
}

/// Mathis et al., "The macroscopic behavior of the TCP congestion avoidance algorithm", CCR 27(3), 1997: MSS / RTT sqrt(3 /
/// 2) / sqrt(p) for evenly spaced losses. For independent losses and large windows the constant is 1.3094 instead of
/// 1.2247 (Ott, Kemperman and Mathis, "The stationary behavior of ideal TCP congestion avoidance", 1996). The measured
/// value lies between the two, within the interval of eight seeds.
#[test]
fn newreno_throughput_follows_the_square_root_formula() {
    for (p, rtt) in [(0.0005, 0.05), (0.002, 0.05), (0.002, 0.2), (0.002, 0.6)] {
        let (mean, half) = interval(&lossy("sack = true", p, rtt));
        let unit = 8000.0 / rtt / f64::sqrt(p);
        let (least, most) = ((mean - half) / unit, (mean + half) / unit);
        assert!(half < 0.06 * mean, "p {p}, {rtt} s: {mean} +- {half} bit/s");
        assert!(most >= 1.2247 && least <= 1.3094, "p {p}, {rtt} s: the constant is {least} to {most}");
    }
}

/// Padhye et al., "Modeling TCP throughput", SIGCOMM 1998, eq. (30), for Reno with an ACK of each packet (b = 1) and a
/// first timeout of T0 = 1 s. The formula ignores the time of recovery and assumes correlated losses within a round, so
/// a difference of a tenth is allowed; at these p the square-root formula is wrong by a quarter and more.
#[test]
fn reno_throughput_follows_the_formula_of_padhye() {
    for (p, rtt) in [(0.008, 0.05), (0.03, 0.1), (0.06, 0.1)] {
        let (mean, half) = interval(&lossy("algorithm = \"reno\"", p, rtt));
        let root = |x: f64| x.sqrt();
        let timeouts = (3.0 * root(3.0 * p / 8.0)).min(1.0) * p * (1.0 + 32.0 * p * p);
        let law = 8000.0 / (rtt * root(2.0 * p / 3.0) + timeouts);
        assert!((mean - law).abs() < 0.1 * law + half, "p {p}, {rtt} s: {mean} +- {half}, not {law} bit/s");
        assert!(mean + half < 0.8 * 8000.0 / rtt * root(1.5 / p), "p {p}, {rtt} s: {mean} +- {half} bit/s");
    }
}

/// With a queue of 100 ms and a path of 600 ms, CUBIC's window after a reduction to 0.7 is below the path's
/// bandwidth-delay product for some time, which follows from RFC 9438: the window grows by eq. (1) to one packet more
/// than path and queue hold. Every other time W_max is 0.85 of that (fast convergence, section 4.7), since the window did
/// not exceed W_max.
#[test]
fn cubic_leaves_a_short_queue_idle_as_its_window_curve_predicts() {
    let packet = 1040.0 * 8.0;
    let (path, queue) = (20e6 * 0.6 / packet, 20e6 * 0.1 / packet);
    let full = path + queue;
    let (mut used, mut time) = (0.0, 0.0);
    for w_max in [full, 0.85 * full] {
        let k = f64::cbrt((w_max - 0.7 * full) / 0.4);
        let mut t = 0.0f64;
        loop {
            let x = t - k;
            let window = 0.4 * x * x * x + w_max;
            if window > full + 1.0 {
                break;
            }
            used += (window / path).min(1.0) * 0.001;
            t += 0.001;
        }
        time += t;
    }
    let expected = used / time;
    let r = results(&bulk("algorithm = \"cubic\"\nsack = true", &["link.wire.queue.limit=250 KB"]), 1);
    let measured = mean(&r, "throughput") / 20e6;
    assert!((0.97..0.98).contains(&expected), "{expected}");
    assert!((measured - expected).abs() < 0.01, "{measured}, not {expected}");
}

/// RFC 6817, section 2.5: alone on a path of 50 ms, LEDBAT fills the link and keeps the queue at its target of 100 ms, where
/// NewReno fills the queue of 600 ms.
#[test]
fn ledbat_keeps_the_queue_at_its_target() {
    let delay = |algorithm: &str| {
        let transport = format!("algorithm = \"{algorithm}\"\nsack = true");
        let r = results(&bulk(&transport, &["link.wire.delay=25 ms"]), 1);
        (mean(&r, "queue_delay"), mean(&r, "throughput") / 20e6)
    };
    let (ledbat, newreno) = (delay("ledbat"), delay("newreno"));
    assert!((0.09..0.11).contains(&ledbat.0) && ledbat.1 > 0.99, "{ledbat:?}");
    assert!(newreno.0 > 0.3, "{newreno:?}");
}

/// Caini and Firrincieli 2004: Hybla over a long path is as fast as NewReno over a path of 25 ms, whose rate follows from
/// the square-root formula, unless the link limits it. Without SACK it is slower, since its large steps lose many packets
/// of a window, and NewReno's recovery takes a round trip for each.
#[test]
fn hybla_is_as_fast_as_a_path_of_25_ms() {
    let rate = |transport: &str, p: f64| {
        let loss = format!("link.wire.loss={p}");
        let path = ["link.wire.delay=280 ms", "link.wire.queue.limit=700 KB", &loss];
        goodput(&results(&bulk(transport, &path), 1)) / 1e6
    };
    let law = |p: f64, rtt: f64| 0.008 / rtt * (1.5 / p).sqrt();
    let sack = "algorithm = \"hybla\"\nsack = true";
    // The formula gives 12.4 Mbit/s on a link of 20 Mbit/s; and 39 Mbit/s, which the link limits to 19 Mbit/s.
    let (some, few) = (rate(sack, 0.001), rate(sack, 0.0001));
    assert!((0.8..1.1).contains(&(some / law(0.001, 0.025))), "{some} Mbit/s");
    assert!(few > 0.85 * 19.2, "{few} Mbit/s");
    let newreno = rate("sack = true", 0.0001);
    // The formula gives NewReno 1.7 Mbit/s.
    assert!(newreno < 2.0, "{newreno} Mbit/s");
    let without = rate("algorithm = \"hybla\"", 0.001);
    assert!(without < 0.7 * some, "{without} Mbit/s");
}
