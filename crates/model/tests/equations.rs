//! Solutions of the equations, compared with closed forms.

use bentpipe_model::{System, Table, run};
use bentpipe_scenario::{Equations, Scenario};

/// 400 connections with 60 ms to the PEP and back; 20 Mbit/s and packets of 1391 bytes behind it, 1400 bytes ahead of it.
const GATEWAY: &str = r#"
title = "t"
[run]
warmup = "60 s"
duration = "60 s"
[host.server]
count = 10
[host.client]
count = 10
[link.ingress]
between = ["server", "gateway"]
delay = "30 ms"
[gateway]
aqm = { preset = "AVQRED" }
regulator = { rate = "20 Mbps", tick = "5 ms" }
pep = { delay = "12 ms" }
spacelink = { packet = "1391 B" }
[link.satellite]
between = ["gateway", "terminal"]
delay = "250 ms"
[link.access]
between = ["terminal", "client"]
[transport.t]
preset = "byun2007"
[traffic.web]
kind = "pages"
from = "server"
to = "client"
transport = "t"
sessions = 400
object_size = "50 KB"
"#;

/// Ten connections through one queue with a round trip of 100 ms; marks are not drops.
const LINK: &str = r#"
title = "t"
[run]
warmup = "100 s"
duration = "60 s"
[host.s]
count = 10
[host.d]
count = 10
[router.r1]
[router.r2]
[link.left]
between = ["s", "r1"]
[link.bottleneck]
between = ["r1", "r2"]
rate = "10 Mbps"
delay = "50 ms"
[link.bottleneck.queue]
limit = "1000 packets"
marking = "ecn"
aqm = { algorithm = "red", min_th = 10, max_th = 910, max_p = 0.05, w_q = 0.002 }
[link.right]
between = ["r2", "d"]
[transport.t]
preset = "ns2"
receive_window = "10000 segments"
max_window = "10000 segments"
initial_ssthresh = "10000 segments"
ecn = true
[traffic.bulk]
kind = "bulk"
from = "s"
to = "d"
transport = "t"
flows = 10
"#;

fn scenario(text: &str, changes: &[&str]) -> Scenario {
    let changes: Vec<String> = changes.iter().map(|c| (*c).to_owned()).collect();
    Scenario::parse(text, "t.toml", &changes).unwrap()
}

fn solved(text: &str, changes: &[&str]) -> Table {
    run(&scenario(text, changes), 1).unwrap()
}

fn mean(table: &Table, column: &str) -> f64 {
    let values = table.column(column).unwrap();
    values.iter().sum::<f64>() / values.len() as f64
}

fn close(found: f64, expected: f64, share: f64) {
    assert!((found - expected).abs() <= share * expected.abs(), "{found}, not {expected}");
}

/// The x between `low` and `high` where `f`, which falls, is zero.
fn root(mut low: f64, mut high: f64, f: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if f(middle) > 0.0 { low = middle } else { high = middle }
    }
    low
}

/// AVQRED in equilibrium: the accepted rate is the service rate of the virtual queue, 20 Mbit/s of 1400-byte segments, so
/// λ (1 - p) = 2.5e6 / 1400; the senders' increase equals their decrease, (1 - p) m / R² = p λ² / (2 m). These determine p,
/// and v = 60 + 60 p.
#[test]
fn avqred_equilibrium_matches_closed_form() {
    let (m, r, accepted) = (400.0, 0.06, 2.5e6 / 1400.0);
    let balance = |p: f64| {
        let load = accepted / (1.0 - p);
        (1.0 - p) * m / (r * r) - p * load * load / (2.0 * m)
    };
    let p = root(0.01, 0.99, balance);
    let table = solved(GATEWAY, &[]);
    close(mean(&table, "mark_probability"), p, 1e-6);
    close(mean(&table, "aqm.VQ"), 60.0 + 60.0 * p, 1e-6);
    close(mean(&table, "offered_load"), 8.0 * 1400.0 * accepted / (1.0 - p), 1e-6);
    // Each accepted segment is one packet on the link, nine bytes shorter.
    close(mean(&table, "throughput"), 20e6 * 1391.0 / 1400.0, 1e-6);
    assert!(mean(&table, "transmit_queue") < 1e-6);
    close(mean(&table, "aqm.v_cap"), 20e6, 1e-12);
}

/// In a run that starts empty, offered minus marked packets equal sent plus queued ones. RED oscillates here, and the PEP
/// holds the packets accepted in the last 14.5 ms.
#[test]
fn packets_are_conserved() {
    let table = solved(GATEWAY, &["run.warmup=0 s", "gateway.aqm.preset=RED 4", "gateway.aqm.gentle=true"]);
    let sum = |name: &str| table.column(name).unwrap().iter().sum::<f64>() * 0.1;
    let marked: f64 = {
        let pairs =
            table.column("offered_load").unwrap().iter().zip(table.column("mark_probability").unwrap());
        pairs.map(|(load, p)| if p.is_nan() { 0.0 } else { load * p }).sum::<f64>() * 0.1
    };
    let accepted = (sum("offered_load") - marked) / (8.0 * 1400.0);
    let sent = sum("throughput") / (8.0 * 1391.0);
    let waiting = table.column("transmit_queue").unwrap().last().unwrap();
    let held = accepted - sent - waiting;
    let last = table.column("offered_load").unwrap().last().unwrap() / (8.0 * 1400.0);
    assert!(held > 0.0 && held < 3.0 * 0.0145 * last, "{held} of {accepted} packets in a PEP of 14.5 ms");
}

/// In equilibrium, N windows W fill the link, N W / R(q) = C with R(q) = R + q / C, and W² p = 2 (Misra, Gong & Towsley 2000); RED's
/// average is the queue.
#[test]
fn end_to_end_equilibrium_is_the_square_root_law() {
    let (n, c, r) = (10.0, 10e6 / (8.0 * 1040.0), 0.1);
    let table = solved(LINK, &["model.laws=printed"]);
    let q = mean(&table, "transmit_queue");
    let p = mean(&table, "mark_probability");
    let spread = table.column("transmit_queue").unwrap().iter().map(|x| (x - q).abs()).fold(0.0, f64::max);
    assert!(spread < 1e-3 * q, "no equilibrium: {spread} around {q}");
    let w = (r + q / c) * c / n;
    close(w * w * p, 2.0, 1e-3);
    close(p, 0.05 * (q - 10.0) / 900.0, 1e-3);
    close(mean(&table, "throughput"), 10e6, 1e-6);
    close(mean(&table, "queue_delay"), q / c, 1e-9);
}

/// Rate of a connection by Padhye's formula [packets/s], with timers of 1, 2, 4 ... times `t0`, at most `longest`.
fn padhye(p: f64, r: f64, t0: f64, longest: f64) -> f64 {
    let q = (3.0 * (3.0 * p / 8.0).sqrt()).min(1.0);
    let timer = |k: i32| (t0 * libm::pow(2.0, k.into())).min(longest);
    let timers = (0..6).map(|k| libm::pow(p, k.into()) * timer(k)).sum::<f64>()
        + libm::pow(p, 6.0) * timer(6) / (1.0 - p);
    (1.0 + q * p / (1.0 - p)) / (r * (2.0 * p / 3.0).sqrt() + p * q * timers)
}

/// The accepted rate is the service rate of AVQRED's virtual queue, 20 Mbit/s of 1400-byte segments, and 400 connections send at
/// Padhye's rate with timers of 1 to 60 s: 14 % marks in place of the 71 % without timeouts.
#[test]
fn padhye_equilibrium_behind_a_pep_is_his_rate() {
    let accepted = 2.5e6 / 1400.0;
    let p = root(0.01, 0.99, |p| 400.0 * padhye(p, 0.06, 1.0, 60.0) * (1.0 - p) - accepted);
    let table = solved(GATEWAY, &["model.equations=padhye", "model.feedback=none", "run.warmup=200 s"]);
    close(mean(&table, "mark_probability"), p, 1e-4);
    close(mean(&table, "offered_load"), 8.0 * 1400.0 * accepted / (1.0 - p), 1e-4);
    assert!(mean(&table, "transmit_queue") < 1e-6);
}

/// Without a PEP the round trip includes the queue: 50 connections at Padhye's rate fill 10 Mbit/s at R(q) = 0.1 s + q / C, and RED drops
/// p = 0.5 (q - 10) / 900.
#[test]
fn padhye_equilibrium_on_a_link_is_his_rate() {
    let (n, c) = (50.0, 10e6 / (8.0 * 1040.0));
    let changes = [
        "model.equations=padhye",
        "model.laws=printed",
        "link.bottleneck.queue.marking=drop",
        "link.bottleneck.queue.aqm.max_p=0.5",
        "transport.t.ecn=false",
        "transport.t.min_rto=1 s",
        "traffic.bulk.flows=50",
    ];
    let drops = |q: f64| 0.5 * (q - 10.0) / 900.0;
    let excess = |q: f64| {
        let r = 0.1 + q / c;
        n * padhye(drops(q), r, f64::max(1.0, 2.0 * r), 60.0) * (1.0 - drops(q)) - c
    };
    let q = root(10.5, 900.0, excess);
    let table = solved(LINK, &changes);
    close(mean(&table, "transmit_queue"), q, 1e-3);
    close(mean(&table, "loss_rate"), drops(q), 1e-3);
    close(mean(&table, "throughput"), 10e6, 1e-6);
}

/// A receive window of four segments limits ten connections to 40 segments per round trip, although the AQM allows more.
#[test]
fn receive_window_limits_the_senders() {
    let table = solved(LINK, &["transport.t.receive_window=4 segments"]);
    close(mean(&table, "offered_load"), 8.0 * 1040.0 * 40.0 / 0.1, 1e-3);
    assert_eq!(mean(&table, "mark_probability"), 0.0);
}

/// A full queue of 50 packets without an AQM never exceeds its limit, and losses keep the senders at the link's rate.
#[test]
fn full_queue_drops_the_excess() {
    let table = solved(
        LINK,
        &["link.bottleneck.queue.aqm.algorithm=droptail", "link.bottleneck.queue.limit=50 packets"],
    );
    let most = table.column("transmit_queue").unwrap().iter().fold(0.0, |a, b| f64::max(a, *b));
    assert!((49.0..=50.0).contains(&most), "{most}");
    assert!(mean(&table, "throughput") > 0.8 * 10e6 && mean(&table, "throughput") < 10e6 * (1.0 + 1e-9));
}

/// The single queue in equilibrium is an M/M/1 queue with ρ / (1 - ρ) packets at its utilization ρ; AVQRED's virtual queue is
/// an M/D/1 queue with ρ + ρ² / (2 (1 - ρ)) packets (Pollaczek and Khinchine).
#[test]
fn single_queue_lengths_match_queueing_theory() {
    let table = solved(
        LINK,
        &[
            "model.equations=single_queue",
            "link.bottleneck.queue.aqm.algorithm=avqred",
            "link.bottleneck.queue.aqm.min_th=10",
            "link.bottleneck.queue.aqm.max_th=20",
            "link.bottleneck.queue.marking=drop",
        ],
    );
    let rho = mean(&table, "throughput") / 10e6;
    close(mean(&table, "transmit_queue"), rho / (1.0 - rho), 1e-6);
    close(mean(&table, "aqm.VQ"), rho + rho * rho / (2.0 * (1.0 - rho)), 1e-6);
    assert!(rho > 0.9 && rho < 1.0, "{rho}");
}

/// Four sessions start in 5 s, followed by a pause of 5 s, repeatedly: after 22 s eight have started and a third four are
/// starting.
#[test]
fn connections_follow_their_ramp() {
    let pages = GATEWAY.replace(
        "sessions = 400",
        "sessions = 400\nramp = { sessions = 4, over = \"5 s\", pause = \"5 s\" }",
    );
    let changes = [
        "model.equations=single_queue",
        "gateway.pep.split=[]",
        "gateway.aqm.preset=AVQRED",
        "run.warmup=0 s",
    ];
    let early = run(&scenario(&pages, &changes), 1).unwrap();
    let load = early.column("offered_load").unwrap();
    // Without marks each connection begins with its initial window and adds a segment per round trip.
    assert!(load[0] > 0.0 && load[49] > 10.0 * load[0]);
    let system = System::of(&scenario(&pages, &changes), 1).unwrap();
    assert_eq!(system.connections, 400.0);
}

/// Only AVQ's published fluid model contains the papers' unit of time.
#[test]
fn time_unit_affects_only_printed_avq() {
    let of = |aqm: &str, unit: &str| {
        let table =
            solved(GATEWAY, &[&format!("gateway.aqm.preset={aqm}"), &format!("model.time_unit={unit}")]);
        (table.column("transmit_queue").unwrap().to_vec(), table.column("aqm.VQ").map(<[f64]>::to_vec))
    };
    for aqm in ["RED 4", "AVQRED"] {
        assert_eq!(of(aqm, "100 ms"), of(aqm, "1 s"), "{aqm}");
    }
    assert_ne!(of("AVQ", "100 ms"), of("AVQ", "1 s"));
}

/// The PEP's delay only delays an unwatched queue: the virtual queue ahead of it is bit-identical.
#[test]
fn avqred_virtual_queue_is_independent_of_the_pep_delay() {
    let of = |delay: &str| {
        let table = solved(GATEWAY, &[&format!("gateway.pep.delay={delay}"), "run.warmup=0 s"]);
        table.column("aqm.VQ").unwrap().to_vec()
    };
    assert_eq!(of("0 ms"), of("60 ms"));
}

/// Datagrams of 2 Mbit/s leave 8 of 10 Mbit/s to the connections.
#[test]
fn datagrams_keep_their_rate() {
    let more = format!(
        "{LINK}\n[traffic.voice]\nkind = \"cbr\"\nfrom = \"s\"\nto = \"d\"\nflows = 10\nrate = \"200 kbps\"\npacket = \"1040 B\"\n"
    );
    let system = System::of(&scenario(&more, &[]), 1).unwrap();
    close(system.background, 2e6 / 8.0, 1e-12);
    let table = solved(&more, &[]);
    close(mean(&table, "throughput"), 10e6, 1e-6);
}

/// Ten connections that their windows of four segments limit, and 2 Mbit/s of datagrams of any length: the offered load is the
/// sum of both rates. Behind a gateway the datagrams are `spacelink.datagram_header` longer, and one packet each.
#[test]
fn datagrams_count_by_their_bytes() {
    let cbr = |from: &str, to: &str, packet: u32| {
        format!(
            "\n[traffic.voice]\nkind = \"cbr\"\nfrom = \"{from}\"\nto = \"{to}\"\nrate = \"2 Mbps\"\npacket = \"{packet} B\"\n"
        )
    };
    for packet in [100, 500, 1500] {
        let text = format!("{LINK}{}", cbr("s", "d", packet));
        let table = solved(&text, &["transport.t.receive_window=4 segments"]);
        close(mean(&table, "offered_load"), 8.0 * 1040.0 * 40.0 / 0.1 + 2e6, 1e-3);
        // Windows of one segment of 1400 B every 60 ms, in two packets of 711 B each on the link.
        let text = format!("{GATEWAY}{}", cbr("server", "client", packet));
        let changes = [
            "model.equations=padhye",
            "gateway.aqm={ algorithm = \"droptail\" }",
            "gateway.spacelink.packet=711 B",
            "gateway.spacelink.datagram_header=20 B",
            "transport.t.receive_window=1 segments",
            "traffic.web.sessions=30",
        ];
        let table = solved(&text, &changes);
        let datagrams = 2e6 * (1.0 + 20.0 / f64::from(packet));
        close(mean(&table, "offered_load"), 8.0 * 1400.0 * 30.0 / 0.06 + datagrams, 1e-6);
        close(mean(&table, "throughput"), 8.0 * 1422.0 * 30.0 / 0.06 + datagrams, 1e-6);
    }
}

/// Thirty uploads do not pass the queue of the link's forward direction: ten connections remain, and uploads alone are refused.
#[test]
fn uploads_are_not_senders_of_a_link() {
    let uploads = |from: &str, to: &str| format!("from = \"{from}\"\nto = \"{to}\"\ntransport = \"t\"\n");
    let both = format!("{LINK}\n[traffic.up]\nkind = \"bulk\"\n{}flows = 30\n", uploads("d", "s"));
    assert_eq!(System::of(&scenario(&both, &[]), 1).unwrap().connections, 10.0);
    let only = LINK.replace(&uploads("s", "d"), &uploads("d", "s"));
    assert!(refused(&only, &[]).starts_with("traffic: found no long-lived TCP through the subject's queue"));
}

/// Without a PEP a gateway sends the senders' segments of 1400 B, longer by `datagram_header`, whatever `spacelink.packet` is.
#[test]
fn unsplit_gateway_sends_whole_segments() {
    let of = |changes: &[&str]| {
        let changes = [&["gateway.pep.split=[]", "model.equations=single_queue"], changes].concat();
        System::of(&scenario(GATEWAY, &changes), 1).unwrap()
    };
    for (changes, length) in [(&[][..], 1400.0), (&["gateway.spacelink.datagram_header=20 B"], 1420.0)] {
        let system = of(changes);
        let lengths = (system.segment, system.packet, system.packets_per_segment);
        assert_eq!(lengths, (length, length, 1.0), "{changes:?}");
        close(system.capacity.at(0.0), 20e6 / (8.0 * length), 1e-12);
    }
    let split = System::of(&scenario(GATEWAY, &[]), 1).unwrap();
    assert_eq!((split.segment, split.packet, split.packets_per_segment), (1400.0, 1391.0, 1.0));
}

/// Without split connections the queue is on the senders' path: 30 + 250 ms each way, and 12 ms of processing and half a tick of
/// 5 ms in the gateway. Equations of split connections are refused.
#[test]
fn unsplit_gateway_is_on_the_senders_path() {
    let unsplit = "gateway.pep.split=[]";
    let system = System::of(&scenario(GATEWAY, &[unsplit]), 1).unwrap();
    assert_eq!(system.equations, Equations::EndToEnd);
    close(system.round_trip, 0.5745, 1e-12);
    for equations in ["padhye", "single_queue"] {
        let changes = [unsplit, &format!("model.equations={equations}")];
        close(System::of(&scenario(GATEWAY, &changes), 1).unwrap().round_trip, 0.5745, 1e-12);
    }
    for equations in ["gateway", "timeouts", "new_connections"] {
        assert_eq!(
            refused(GATEWAY, &[unsplit, &format!("model.equations={equations}")]),
            format!(
                "model.equations: found {equations}, but the gateway's PEP splits no connections; allowed: \
                 single_queue, end_to_end, padhye, or pep.split = [\"tcp\"]"
            )
        );
    }
}

/// Behind a PEP the queue grows in an outage of a second; its delay is that at the rate before.
#[test]
fn queue_delay_stays_finite_in_an_outage() {
    let changes = [
        "gateway.regulator.rate=link",
        "link.satellite.capacity={ steps = [[\"0 s\", \"20 Mbps\"], [\"2 s\", \"0 bps\"], [\"3 s\", \"10 Mbps\"]] }",
        "gateway.aqm={ algorithm = \"droptail\" }",
        "run.warmup=0 s",
        "run.duration=4 s",
    ];
    let table = solved(GATEWAY, &changes);
    let (queue, delay) = (table.column("transmit_queue").unwrap(), table.column("queue_delay").unwrap());
    for (at, rate) in [(15, 20e6), (25, 20e6), (35, 10e6)] {
        assert!(queue[at] > 0.0, "{at}");
        close(delay[at], 8.0 * 1391.0 * queue[at] / rate, 1e-9);
    }
    assert!(delay.iter().all(|delay| delay.is_finite()), "{delay:?}");
}

/// On the senders' path, a rate of 0 bps in the run is refused; without the queue in the round trip, or later, it is not.
#[test]
fn outages_on_the_senders_path_are_refused() {
    let outage = LINK.replace(
        "rate = \"10 Mbps\"",
        "capacity = { steps = [[\"0 s\", \"10 Mbps\"], [\"2 s\", \"0 bps\"], [\"3 s\", \"10 Mbps\"]] }",
    );
    assert_eq!(
        refused(&outage, &[]),
        "link.bottleneck.capacity: found a rate of 0 bps at 2 s, which makes the round trip of the equations end_to_end \
         infinite; allowed: rates above 0 bps, or bentpipe compare, which simulates outages"
    );
    let short = ["run.warmup=1 s", "run.duration=900 ms"];
    assert_eq!(refused(&outage, &short), "no mistake");
    assert_eq!(refused(&outage, &["model.equations=single_queue"]), "no mistake");
}

/// A carrier with a fixed ModCod has the constant rate of its symbols; one with a ModCod per host is refused.
#[test]
fn carrier_with_a_fixed_modcod_has_a_constant_rate() {
    let of = |capacity: &str| LINK.replace("rate = \"10 Mbps\"", capacity);
    let carrier = of("capacity = { symbol_rate = \"5 Mbaud\", modcod = [\"8PSK 3/4\"] }");
    assert_eq!(solved(&carrier, &[]), solved(&of("rate = \"11140620 bps\""), &[]));
    let hosts =
        of("capacity = { symbol_rate = \"5 Mbaud\", modcod = [\"QPSK 1/2\", \"8PSK 3/4\"], of = \"d\" }");
    assert_eq!(
        refused(&hosts, &[]),
        "link.bottleneck.capacity: found a kind that the fluid model does not follow; allowed: a rate, steps, one that is \
         drawn anew, or a carrier with a fixed ModCod"
    );
}

fn refused(text: &str, changes: &[&str]) -> String {
    run(&scenario(text, changes), 1).err().map_or_else(|| "no mistake".to_owned(), |e| e.to_string())
}

/// Without marks, each of 400 connections sends its window of 11 segments every 60 ms under both sets of equations.
#[test]
fn windows_are_full_without_marks() {
    let table = solved(GATEWAY, &["model.equations=timeouts", "gateway.aqm={ algorithm = \"droptail\" }"]);
    close(mean(&table, "offered_load"), 8.0 * 1400.0 * 400.0 * 11.0 / 0.06, 1e-9);
}

/// Half the step changes the mean queue by less than 1 %, or by less than a thousandth of a packet. If AVQ's virtual queue is
/// in equilibrium at its threshold, a drift is slow.
#[test]
fn halving_the_step_keeps_the_mean_queue() {
    for (equations, warmup, duration) in [("gateway", 60, 120), ("timeouts", 10, 20), ("padhye", 10, 20)] {
        for preset in ["RED 4", "AVQ", "AVQRED"] {
            let queue = |step: &str| {
                let changes = [
                    format!("model.equations={equations}"),
                    format!("gateway.aqm.preset={preset}"),
                    format!("model.step={step}"),
                    format!("run.warmup={warmup} s"),
                    format!("run.duration={duration} s"),
                ];
                mean(&solved(GATEWAY, &changes.each_ref().map(String::as_str)), "transmit_queue")
            };
            let (whole, half) = (queue("1 ms"), queue("0.5 ms"));
            assert!((half - whole).abs() < (0.01 * whole).max(1e-3), "{equations}, {preset}: {whole} {half}");
        }
    }
}

/// Uncovered scenarios give one message: key, value found, permitted values.
#[test]
fn uncovered_scenarios_give_messages() {
    let cases: &[(&str, &[&str], &str)] = &[
        (
            GATEWAY,
            &["model.equations=end_to_end"],
            "model.equations: found end_to_end, but the gateway's PEP splits the \
         connections; allowed: gateway, timeouts, padhye, new_connections, or pep.split = []",
        ),
        (
            LINK,
            &["model.equations=gateway"],
            "model.equations: found gateway, but the subject is a link; allowed: \
         single_queue, end_to_end, padhye",
        ),
        (
            GATEWAY,
            &["gateway.marking=window", "gateway.pep.buffer_per=connection"],
            "model.series: found none with the share of new connections, which the \
         equations new_connections are driven by; allowed: a file of `bentpipe model capture`",
        ),
        (
            GATEWAY,
            &["gateway.pep.delay=20 s"],
            "model.history: the delay at 0 s is 20.0025 s, found a history of 10 s; \
         allowed: at least the longest delay",
        ),
        (
            GATEWAY,
            &["model.step=0.7 ms"],
            "model.step: found 0.0007 s; allowed: a part of run.sample_interval",
        ),
        (
            GATEWAY,
            &["model.equations=timeouts", "transport.t.sack=true"],
            "transport.t: found sack = true; allowed with the equations timeouts: newreno with sack = false and \
         go_back_n = true",
        ),
        (
            GATEWAY,
            &["model.equations=timeouts", "transport.t.receive_window=136 KB"],
            "transport.receive_window: found 100 segments in the mean; allowed with the equations timeouts: from 2 to 64",
        ),
        (
            GATEWAY,
            &["model.equations=timeouts", "gateway.marking=window", "gateway.pep.buffer_per=connection"],
            "marking: found marks that do not drop; allowed with the equations timeouts: \"drop\"",
        ),
        (
            LINK,
            &["model.equations=padhye"],
            "marking: found marks that do not drop; allowed with the equations padhye: \"drop\"",
        ),
        (
            LINK,
            &["model.equations=padhye", "model.feedback=none", "link.bottleneck.queue.marking=drop"],
            "model.feedback: found none, but the round trip is part of the equations padhye without a PEP; allowed: \
             round_trip",
        ),
        (
            GATEWAY,
            &["model.step=10 ms"],
            "model.step: found 0.01 s; allowed: at most 0.006 s, a tenth of the senders' round trip",
        ),
        (
            LINK,
            &["link.bottleneck.delay=280 ms", "model.step=100 ms"],
            "model.step: found 0.1 s; allowed: at most 0.056 s, a tenth of the senders' round trip",
        ),
        (
            LINK,
            &["link.bottleneck.delay=0 ms"],
            "link: found no delay on the way of the senders; allowed in a fluid \
         model: a round trip above 0 s",
        ),
        (
            LINK,
            &["link.bottleneck.loss=0.05"],
            "link.bottleneck.loss: found losses on the path of TCP senders; allowed in a fluid model: none, except behind \
             a PEP",
        ),
        (
            GATEWAY,
            &["link.ingress.loss=0.05"],
            "link.ingress.loss: found losses on the path of TCP senders; allowed in a fluid model: none, except behind a \
             PEP",
        ),
        (
            GATEWAY,
            &[
                "gateway.pep.split=[]",
                "link.access.between=[\"client\", \"terminal\"]",
                "link.access.reverse.loss=0.05",
            ],
            "link.access.reverse.loss: found losses on the path of TCP senders; allowed in a fluid model: none, except \
             behind a PEP",
        ),
        (
            LINK,
            &["link.bottleneck.access=wifi"],
            "link.bottleneck.access: found a link layer behind the subject's queue; allowed in a fluid model: none",
        ),
        (
            LINK,
            &["link.bottleneck.demand={ frame = \"5 ms\", round_trip = \"500 ms\" }"],
            "link.bottleneck.demand: found demand assignment behind the subject's queue; allowed in a fluid model: none",
        ),
        (
            GATEWAY,
            &["link.satellite.handover={ interval = \"15 s\", delay = [\"0 ms\", \"15 ms\"] }"],
            "link.satellite.handover: found handovers between satellites behind the subject's queue; allowed in a fluid \
             model: none",
        ),
    ];
    for (text, changes, message) in cases {
        assert_eq!(&refused(text, changes), message, "{changes:?}");
    }
}

/// The method `ecn` drops the packets of transports without ECN, and datagrams: 2 of 10 Mbit/s, of which the share p is lost.
#[test]
fn ecn_marks_drop_what_has_no_ecn() {
    let without = solved(LINK, &["transport.t.ecn=false"]);
    assert_eq!(without, solved(LINK, &["transport.t.ecn=false", "link.bottleneck.queue.marking=drop"]));
    let p = mean(&without, "mark_probability");
    assert!(p > 0.0);
    close(mean(&without, "loss_rate"), p, 1e-6);
    assert_eq!(mean(&solved(LINK, &[]), "loss_rate"), 0.0);
    let more = format!(
        "{LINK}\n[traffic.voice]\nkind = \"cbr\"\nfrom = \"s\"\nto = \"d\"\nrate = \"2 Mbps\"\npacket = \"1040 B\"\n"
    );
    let table = solved(&more, &[]);
    let (p, offered) = (mean(&table, "mark_probability"), mean(&table, "offered_load"));
    assert!(p > 0.0);
    close(mean(&table, "loss_rate"), p * 2e6 / offered, 1e-3);
    close(mean(&table, "throughput"), offered - p * 2e6, 1e-6);
    let mixed = format!(
        "{LINK}\n[transport.plain]\npreset = \"ns2\"\n[traffic.more]\nkind = \"bulk\"\nfrom = \"s\"\nto = \"d\"\ntransport = \
         \"plain\"\nflows = 10\n"
    );
    assert_eq!(
        refused(&mixed, &[]),
        "transport.plain.ecn: found none beside other transports with ECN; allowed in a fluid model with marking = \"ecn\": \
         ECN in all of them, or in none"
    );
}

/// In the equations all traffic is always there and sends what the link takes: 10 Mbit/s of ten connections, 0.5 Mbit/s of which are
/// datagrams.
#[test]
fn traffic_that_ends_is_away_or_slow_is_refused() {
    let voice = "\n[traffic.voice]\nkind = \"cbr\"\nfrom = \"s\"\nto = \"d\"\nrate = \"500 kbps\"\npacket = \"200 B\"\n";
    let text = format!("{LINK}{voice}");
    let short = ["run.warmup=0 s", "run.duration=1 s"];
    for (change, message) in [
        (
            "traffic.bulk.bytes=1 MB",
            "traffic.bulk.bytes: found transfers of 1000000 B; allowed in a fluid model: transfers without an end",
        ),
        (
            "traffic.bulk.away=[[\"10 s\", \"20 s\"]]",
            "traffic.bulk.away: found periods of absence; allowed in a fluid model: traffic that is always present",
        ),
        (
            "traffic.voice.away=[[\"10 s\", \"20 s\"]]",
            "traffic.voice.away: found periods of absence; allowed in a fluid model: traffic that is always present",
        ),
        (
            "traffic.bulk.rate_cap=949 kbps",
            "traffic.bulk.rate_cap: found 949000 bps; allowed in a fluid model: at least an equal share of the link, \
             950000 bps",
        ),
        ("traffic.bulk.rate_cap=950 kbps", "no mistake"),
    ] {
        assert_eq!(refused(&text, &[&short[..], &[change]].concat()), message, "{change}");
    }
    let pages = "traffic.web.away=[[\"10 s\", \"20 s\"]]";
    assert!(refused(GATEWAY, &[pages]).starts_with("traffic.web.away: found periods of absence"));
}

/// The spacelink repeats what the satellite link loses, and lost acknowledgements cost TCP little.
#[test]
fn losses_behind_a_pep_and_of_acknowledgements_are_accepted() {
    let short = |loss: &'static str| ["run.warmup=0 s", "run.duration=1 s", loss];
    assert_eq!(refused(GATEWAY, &short("link.satellite.loss=0.05")), "no mistake");
    assert_eq!(refused(GATEWAY, &short("link.ingress.reverse.loss=0.05")), "no mistake");
    assert_eq!(refused(LINK, &short("link.bottleneck.reverse.loss=0.05")), "no mistake");
}

/// Traffic and algorithms without a fluid model.
#[test]
fn algorithms_without_fluid_model_give_messages() {
    let message = refused(LINK, &["link.bottleneck.queue.aqm.algorithm=codel"]);
    assert!(
        message.starts_with("aqm.algorithm: found codel; allowed in a fluid model: droptail, red, "),
        "{message}"
    );
    let files = LINK
        .replace("kind = \"bulk\"", "kind = \"files\"")
        .replace("flows = 10", "sources = 10\ninterval = \"1 s\"\nsize = \"50 KB\"");
    let message = refused(&files, &[]);
    assert!(message.starts_with("traffic.bulk: found short transfers"), "{message}");
    let message = refused(&LINK.replace("kind = \"bulk\"", "kind = \"dash\""), &[]);
    assert!(
        message.starts_with("traffic.bulk: found adaptive video; allowed in a fluid model: "),
        "{message}"
    );
    let message = refused(
        LINK,
        &["link.bottleneck.queue.scheduler=fq_codel", "link.bottleneck.queue.aqm.algorithm=droptail"],
    );
    assert!(
        message.starts_with("queue.scheduler: found fq_codel, which signals congestion itself"),
        "{message}"
    );
}
