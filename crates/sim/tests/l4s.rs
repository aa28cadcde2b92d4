//! Scalable beside classic congestion control, behind a coupled dual queue (RFC 9332).

use crate::common::{mean, results};
use bentpipe_scenario::Scenario;
use bentpipe_sim::Results;

/// `n` Prague flows and as many CUBIC flows from a server to a client over a network.
fn flows(n: u32, network: &str) -> Scenario {
    let text = format!(
        r#"
title = "Prague beside CUBIC"
{network}
[host.client]
count = 1
[host.server]
count = 1
[transport.prague]
algorithm = "prague"
ecn = "accurate"
mss = "1400 B"
receive_window = "16 MB"
sack = true
[transport.cubic]
algorithm = "cubic"
ecn = true
mss = "1400 B"
receive_window = "16 MB"
sack = true
[traffic.prague]
kind = "bulk"
from = "server"
to = "client"
transport = "prague"
flows = {n}
[traffic.cubic]
kind = "bulk"
from = "server"
to = "client"
transport = "cubic"
flows = {n}
"#
    );
    Scenario::parse(&text, "l4s.toml", &[]).unwrap_or_else(|e| panic!("{e}"))
}

/// The flows over one link of 40 Mbit/s with ECN marks.
fn beside(n: u32, rtt_ms: u32, queue: &str) -> Scenario {
    let network = format!(
        r#"
[run]
warmup = "30 s"
duration = "120 s"
subject = "wire"
[link.wire]
between = ["server", "client"]
rate = "40 Mbps"
delay = "{delay} ms"
queue = {{ limit = "1000 packets", marking = "ecn", {queue} }}
"#,
        delay = rtt_ms / 2,
    );
    flows(n, &network)
}

/// Goodput of Prague's flows over that of CUBIC's.
fn ratio(r: &Results) -> f64 {
    let rate = |name: &str| -> f64 {
        let traffic = r.traffic.iter().position(|t| t == name).unwrap() as u32;
        r.flows.iter().filter(|flow| flow.traffic == traffic).map(|flow| flow.measured as f64).sum()
    };
    rate("prague") / rate("cubic")
}

/// RFC 9332, section 2.1 and appendix C: at a base probability p' Prague's window is 2 / (k p') packets (DCTCP with random
/// marks), CUBIC's in its Reno-friendly region 1.68 / p' (1.68 / sqrt(p) with p = p'^2). For k = 2 they differ by a factor
/// of 1.68, and over such a short path CUBIC's packets wait for another 15 ms, which lowers its rate accordingly. Both
/// formulas ignore the ramp, bursts and Prague's slower growth over short round trips, so the rates are equal within a
/// factor of two; the RFC calls them "roughly" equal. In a single queue that marks both alike, Prague takes most of the link.
#[test]
fn prague_and_cubic_share_a_link_behind_a_coupled_dual_queue() {
    for (n, rtt) in [(1, 10), (1, 20), (5, 20), (1, 40)] {
        for queue in
            ["scheduler = \"dualpi2\"", "scheduler = { algorithm = \"dualpi2\", scheduler = \"ts_fifo\" }"]
        {
            let r = results(&beside(n, rtt, queue), 1);
            let (ratio, used) = (ratio(&r), mean(&r, "throughput") / 40e6);
            assert!((0.5..2.0).contains(&ratio), "{n} flows each over {rtt} ms, {queue}: {ratio}");
            assert!(used > 0.95, "{n} flows each over {rtt} ms, {queue}: {used} of the link");
        }
    }
    let alone = ratio(&results(&beside(1, 20, "aqm = { algorithm = \"pie\" }"), 1));
    assert!(alone > 4.0, "in one queue: {alone}");
}

/// The flows over a gateway that splits them and a satellite link of 40 Mbit/s; the server is `rtt_ms` away, the satellite
/// 500 ms.
fn split(n: u32, rtt_ms: u32, gateway: &str) -> Scenario {
    let network = format!(
        r#"
[run]
warmup = "30 s"
duration = "120 s"
[link.ingress]
between = ["server", "gateway"]
rate = "1 Gbps"
delay = "{delay} ms"
[link.satellite]
between = ["gateway", "terminal"]
rate = "40 Mbps"
delay = "250 ms"
[link.lan]
between = ["terminal", "client"]
rate = "1 Gbps"
delay = "1 ms"
[gateway]
terminal = "terminal"
regulator.rate = "40 Mbps"
transmit_queue.limit = "1000 packets"
pep.buffer = "3 MB"
{gateway}
"#,
        delay = rtt_ms / 2,
    );
    flows(n, &network)
}

/// Marks at the transmit queue reach split senders. Their control loops end at the gateway, ahead of the queue, so that both
/// kinds have the terrestrial round trip alone: by the formulas above Prague gets 1 / 1.68 = 0.6 of CUBIC's rate, within a
/// factor of two. Nothing is dropped. (The PEP's buffer is a bandwidth-delay product, because marks do not call back what
/// it has accepted.)
#[test]
fn marks_behind_the_pep_are_echoed_to_split_senders() {
    let dual = "transmit_queue.scheduler = \"dualpi2\"\nmarking = \"ecn\"";
    for (n, rtt) in [(1, 20), (2, 20), (5, 20), (5, 40)] {
        let r = results(&split(n, rtt, dual), 1);
        let (ratio, used) = (ratio(&r), mean(&r, "throughput") / 40e6);
        assert!((0.3..1.2).contains(&ratio), "{n} flows each over {rtt} ms: {ratio}");
        assert!(used > 0.8, "{n} flows each over {rtt} ms: {used} of the link");
        assert!(r.summary.marked_packets > 1000 && r.summary.drops_elsewhere == 0, "{:?}", r.summary);
    }
    let dropping = results(&split(1, 20, "transmit_queue.scheduler = \"dualpi2\""), 1);
    assert!(dropping.summary.drops_elsewhere > 1000, "{:?}", dropping.summary);
}
