//! A sparse flow beside a bulk flow behind fair queues with an AQM each, compared with bounds from theory.

use bentpipe_scenario::Scenario;
use bentpipe_sim::{Packet, Progress, Results, Watch, run_watched};

/// A bulk connection (Reno, 1500 bytes on the wire) and datagrams of 200 bytes every 20 ms from another host, over
/// 10 Mbit/s; the round trip is 42 ms, and a bulk packet takes 1.2 ms.
fn dumbbell(scheduler: &str) -> Scenario {
    let text = format!(
        r#"
title = "A sparse flow beside a bulk one"
[run]
warmup = "10 s"
duration = "60 s"
subject = "bottleneck"
[host.bulk]
[host.sparse]
[host.receiver]
[router.r]
[link.left]
between = ["bulk", "r"]
rate = "100 Mbps"
delay = "1 ms"
[link.other]
between = ["sparse", "r"]
rate = "100 Mbps"
delay = "1 ms"
[link.bottleneck]
between = ["r", "receiver"]
rate = "10 Mbps"
delay = "20 ms"
queue = {{ scheduler = "{scheduler}", limit = "200 packets", aqm = {{ algorithm = "droptail" }} }}
[transport.reno]
algorithm = "reno"
mss = "1460 B"
receive_window = "2000 segments"
[traffic.bulk]
kind = "bulk"
from = "bulk"
to = "receiver"
transport = "reno"
flows = 1
[traffic.sparse]
kind = "cbr"
from = "sparse"
to = "receiver"
flows = 1
rate = "80 kbps"
packet = "200 B"
"#
    );
    Scenario::parse(&text, "test.toml", &[]).unwrap_or_else(|e| panic!("{e}"))
}

/// Results, and the queueing delay of each datagram at the bottleneck [ms].
///
/// The n-th datagram is sent at n x 20 ms and arrives at the queue 16 µs (transmission) and 1 ms later.
fn run(scheduler: &str) -> (Results, Vec<f64>) {
    let watch = Watch { links: vec!["bottleneck".to_owned()], ..Watch::default() };
    let mut left = Vec::new();
    let results = run_watched(&dumbbell(scheduler), 1, &Progress::default(), &watch, &mut |observation| {
        if matches!(observation.packet, Packet::Datagram { .. }) {
            left.push(observation.time.as_secs_f64() * 1e3);
        }
    });
    let waits = left.iter().enumerate().map(|(n, left)| left - (20.0 * n as f64 + 1.016)).collect();
    (results.unwrap_or_else(|e| panic!("{scheduler}: {e}")), waits)
}

/// Without fair queueing the sparse flow waits as long as the bulk flow. Reno fills the 200 packets and halves its window,
/// which varies between 117 and 235 packets (35 are in flight elsewhere), so the queue always has at least 82 packets, or
/// 98 ms.
#[test]
fn a_sparse_flow_waits_behind_bulk_in_a_fifo() {
    let (_, waits) = run("fifo");
    let settled = &waits[500..];
    let least = settled.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(least > 70.0, "{least}");
}

/// With fair queueing no datagram is lost, and none waits for more than two packets, 2.4 ms: the one on the link, and one
/// more if the bulk flow is new as well, because its queue was empty, and came first (its quantum has 14 bytes left for a
/// second packet). The mean is about half a packet's time. The bulk flow has no standing queue: its delay must exceed the
/// target of 5 ms for an interval of 100 ms, and the window is halved a round trip (47 ms) later. Meanwhile the window,
/// which grows by a packet in 42 ms, adds (100 + 47)/42 packets, or 4.2 ms; the packet on the link and a datagram add
/// 1.4 ms. So hardly any packet waits longer than 10.6 ms, and most wait for about the target or less. The utilization
/// exceeds the 75 % of Reno without a queue, whose window varies between half and all of the bandwidth-delay product.
#[test]
fn fair_queues_keep_the_delay_of_sparse_and_bulk_flows_low() {
    for scheduler in ["fq_codel", "cake"] {
        let (results, waits) = run(scheduler);
        assert!(waits.len() >= 3499, "{scheduler}: {} of 3500 datagrams", waits.len());
        let settled = &waits[500..];
        let most = settled.iter().copied().fold(0.0, f64::max);
        let mean = settled.iter().sum::<f64>() / settled.len() as f64;
        assert!(most <= 2.4 + 1e-6, "{scheduler}: {most}");
        assert!((0.1..0.8).contains(&mean), "{scheduler}: {mean}");
        let [_, median, p95, ..] = results.summary.queue_delay;
        assert!(median < 0.0065 && p95 < 0.0106, "{scheduler}: median {median}, 95 % {p95}");
        let share = results.summary.sent_bytes as f64 * 8.0 / 10e6 / 60.0;
        assert!((0.75..1.0).contains(&share), "{scheduler}: {share}");
    }
}

/// Two overloads of 2 Mbit/s each through a gateway of 1 Mbit/s, one with EF. As datagrams and as split TCP they share the
/// transmit queue evenly in one tin, and 1024 to 256, the quanta of the tins, with `diffserv4`.
#[test]
fn codepoints_select_the_tin_of_datagrams_and_of_split_connections() {
    let shares = |diffserv: &str, traffic: &str, limit: &str| {
        let text = format!(
            r#"
title = "Two classes"
run = {{ warmup = "10 s", duration = "60 s" }}
host = {{ server = {{}}, client = {{}} }}
[link.ingress]
between = ["server", "gateway"]
[gateway]
aqm = {{ algorithm = "droptail" }}
regulator = {{ rate = "1 Mbps" }}
transmit_queue = {{ scheduler = {{ algorithm = "cake", diffserv = "{diffserv}", rtt = "1000 s" }}, limit = "{limit}" }}
pep = {{ buffer_per = "connection" }}
[link.satellite]
between = ["gateway", "terminal"]
delay = "50 ms"
[link.access]
between = ["terminal", "client"]
[traffic.best]
from = "server"
to = "client"
{traffic}
[traffic.voice]
dscp = "EF"
from = "server"
to = "client"
{traffic}
"#
        );
        let scenario = Scenario::parse(&text, "test.toml", &[]).unwrap_or_else(|e| panic!("{e}"));
        let r = bentpipe_sim::run(&scenario, 1, &Progress::default()).unwrap_or_else(|e| panic!("{e}"));
        let bytes: Vec<_> = r.flows.iter().map(|flow| flow.delivered as f64).collect();
        assert_eq!(bytes.len(), 2);
        bytes[0] / (bytes[0] + bytes[1])
    };
    let datagrams = "kind = \"cbr\"\nrate = \"2 Mbps\"\npacket = \"1000 B\"";
    // The PEP's buffers limit the queue of split connections, so nothing is dropped behind it.
    for (traffic, limit) in [(datagrams, "100 packets"), ("kind = \"bulk\"", "2 MB")] {
        let (one, four) = (shares("besteffort", traffic, limit), shares("diffserv4", traffic, limit));
        assert!((one - 0.5).abs() < 0.02 && (four - 0.8).abs() < 0.02, "{traffic}: {one} {four}");
    }
}

/// A gateway of 5 Mbit/s, at which one user receives nine flows of 1 Mbit/s and another one of 5 Mbit/s. Flows get half a
/// megabit each, so that the second user gets a tenth; users get half each. At a link without a gateway the same.
#[test]
fn fairness_between_users_does_not_depend_on_their_number_of_flows() {
    let part = |scheduler: &str, with_gateway: bool| {
        let (gateway, link) = if with_gateway {
            let queue = format!("scheduler = \"{scheduler}\", limit = \"100 packets\"");
            (
                format!(
                    "[gateway]\naqm = {{ algorithm = \"droptail\" }}\nregulator = {{ rate = \"5 Mbps\" }}\n\
                     transmit_queue = {{ {queue} }}\n[link.satellite]\nbetween = [\"gateway\", \"terminal\"]\n"
                ),
                "[link.access]\nbetween = [\"terminal\", \"client\"]\n".to_owned(),
            )
        } else {
            let queue = format!("{{ scheduler = \"{scheduler}\", limit = \"100 packets\" }}");
            (
                "[router.gateway]\n[router.terminal]\n".to_owned(),
                format!(
                    "[link.satellite]\nbetween = [\"gateway\", \"terminal\"]\nrate = \"5 Mbps\"\nqueue = {queue}\n\
                     [link.access]\nbetween = [\"terminal\", \"client\"]\n"
                ),
            )
        };
        let text = format!(
            r#"
title = "Two users"
run = {{ warmup = "10 s", duration = "60 s" }}
host = {{ server = {{}}, client = {{ count = 2 }}, first = {{}} }}
[link.ingress]
between = ["server", "gateway"]
{gateway}{link}[link.other]
between = ["terminal", "first"]
[traffic.many]
kind = "cbr"
from = "server"
to = "first"
flows = 9
rate = "1 Mbps"
packet = "1000 B"
[traffic.one]
kind = "cbr"
from = "server"
to = "client"
flows = 1
rate = "5 Mbps"
packet = "1000 B"
"#
        );
        let scenario = Scenario::parse(&text, "test.toml", &[]).unwrap_or_else(|e| panic!("{e}"));
        let r = bentpipe_sim::run(&scenario, 1, &Progress::default()).unwrap_or_else(|e| panic!("{e}"));
        let bytes: Vec<_> = r.flows.iter().map(|flow| flow.delivered as f64).collect();
        assert_eq!(bytes.len(), 10);
        bytes[9] / bytes.iter().sum::<f64>()
    };
    for with_gateway in [true, false] {
        let (flows, users) = (part("cake", with_gateway), part("cake_users", with_gateway));
        assert!((flows - 0.1).abs() < 0.005 && (users - 0.5).abs() < 0.01, "{with_gateway}: {flows} {users}");
    }
}
