//! Transports other than TCP.

use crate::common::{mean, results};
use bentpipe_scenario::Scenario;
use bentpipe_sim::{Progress, Watch, run_watched};

fn scenario(text: &str) -> Scenario {
    Scenario::parse(text, "test.toml", &[]).unwrap_or_else(|e| panic!("{e}"))
}

/// Two hosts on a link of 1 Mbit/s and 50 ms.
const WIRE: &str = r#"
title = "A transfer"
[run]
duration = "10 s"
[host.a]
[host.b]
[link.wire]
between = ["a", "b"]
rate = "1 Mbps"
delay = "50 ms"
queue = { limit = "1000 packets" }
"#;

/// Pairs of hosts on a link of 10 Mbit/s with a round trip of 40 ms, and a queue of 40 ms.
const DUMBBELL: &str = r#"
title = "A dumbbell"
[run]
warmup = "20 s"
duration = "200 s"
[host.a]
count = 2
[host.b]
count = 2
[router.left]
[router.right]
[link.in]
between = ["a", "left"]
rate = "100 Mbps"
delay = { uniform = ["0 ms", "1 ms"] }
[link.middle]
between = ["left", "right"]
rate = "10 Mbps"
delay = "20 ms"
queue = { limit = "34 packets" }
[link.out]
between = ["right", "b"]
rate = "100 Mbps"
[transport.sctp]
protocol = "sctp"
"#;

/// The INIT leaves at 0 (52 bytes, 0.416 ms) and arrives at 50.416 ms, the INIT ACK (156 bytes) at 101.664, the COOKIE ECHO
/// (136 bytes) at 152.752 and the COOKIE ACK (36 bytes) at 203.04. The window, 4404 bytes, allows three DATA chunks of 1468
/// bytes, 12 ms each. The first arrives at 265.04 and is acknowledged at once (48 bytes): the SACK arrives at 315.424 and
/// allows the last two. They take 24 ms to send and arrive 50 ms later, at 389.424 ms.
#[test]
fn an_sctp_transfer_takes_the_time_of_its_slow_start_rounds() {
    let traffic = "[transport.s]\nprotocol = \"sctp\"\n[traffic.t]\nkind = \"bulk\"\nfrom = \"a\"\nto = \"b\"\n\
                   transport = \"s\"\nbytes = \"7260 B\"\n";
    let r = results(&scenario(&format!("{WIRE}{traffic}")), 1);
    let flow = r.flows[0];
    assert!(flow.completed);
    assert_eq!(flow.delivered, 7260);
    assert!((flow.completion_time() - 0.389_424).abs() < 1e-9, "{}", flow.completion_time());
}

fn bulk(name: &str, transport: &str, flows: u32) -> String {
    format!(
        "[traffic.{name}]\nkind = \"bulk\"\nfrom = \"a\"\nto = \"b\"\ntransport = \"{transport}\"\nflows = {flows}\n\
         start = {{ uniform = [\"0 s\", \"2 s\"] }}\n"
    )
}

/// 1452 bytes of 1500 are data.
#[test]
fn sctp_fills_a_link() {
    let r = results(&scenario(&format!("{DUMBBELL}{}", bulk("one", "sctp", 1))), 1);
    let share = mean(&r, "throughput") / 10e6;
    assert!(share > 0.95, "{share}");
    let goodput = r.flows[0].goodput(r.begin, r.end) / 10e6;
    assert!((goodput / (share * 1452.0 / 1500.0) - 1.0).abs() < 0.01, "{goodput} of {share}");
}

/// Goodputs of the two flows, averaged over five seeds.
fn pair(traffic: &str) -> [f64; 2] {
    let scenario = scenario(&format!("{DUMBBELL}{traffic}"));
    let mut sums = [0.0; 2];
    for seed in 1..=5 {
        let r = results(&scenario, seed);
        assert_eq!(r.flows.len(), 2);
        for flow in &r.flows {
            sums[usize::from(flow.traffic > 0 || flow.session > 0)] += flow.goodput(r.begin, r.end) / 5.0;
        }
    }
    sums
}

#[test]
fn two_associations_share_fairly() {
    let [one, other] = pair(&bulk("both", "sctp", 2));
    let ratio = one / other;
    assert!((0.8..1.25).contains(&ratio), "{one} and {other} bit/s");
    assert!(one + other > 0.95 * 10e6 * 1452.0 / 1500.0, "{one} and {other} bit/s");
}

#[test]
fn sctp_and_newreno_share_within_a_factor_of_two() {
    let traffic = format!(
        "[transport.tcp]\ndelayed_ack = \"200 ms\"\nsack = true\n{}{}",
        bulk("tcp", "tcp", 1),
        bulk("sctp", "sctp", 1)
    );
    let [tcp, sctp] = pair(&traffic);
    assert!((0.5..2.0).contains(&(sctp / tcp)), "TCP {tcp}, SCTP {sctp} bit/s");
}

/// A gateway that splits TCP forwards SCTP: the PEP link stays unused, and the regulator's rate is filled.
#[test]
fn sctp_passes_a_gateway_unsplit() {
    let text = format!(
        "{}{}",
        r#"
title = "Past a PEP"
[run]
warmup = "30 s"
duration = "120 s"
[host.a]
[host.b]
[link.ingress]
between = ["a", "gateway"]
rate = "10 Mbps"
delay = "20 ms"
[gateway]
aqm = { algorithm = "droptail" }
regulator = { rate = "1 Mbps" }
receive_queue = { limit = "100 packets" }
transmit_queue = { limit = "50 packets" }
[link.satellite]
between = ["gateway", "terminal"]
delay = "250 ms"
[link.access]
between = ["terminal", "b"]
[transport.sctp]
protocol = "sctp"
"#,
        bulk("one", "sctp", 1)
    );
    let r = results(&scenario(&text), 1);
    assert_eq!(r.pep_link.sent, 0);
    let goodput = r.flows[0].goodput(r.begin, r.end);
    assert!((0.9..=1.0).contains(&(goodput / (1e6 * 1452.0 / 1500.0))), "{goodput}");
}

/// Over SCTP each file has its own association, and each packet is a message.
#[test]
fn sctp_carries_files_and_packets() {
    let transport = "[transport.s]\nprotocol = \"sctp\"\n";
    let files = "[traffic.files]\nkind = \"files\"\nfrom = \"a\"\nto = \"b\"\ntransport = \"s\"\ninterval = \"500 ms\"\n\
                 size = \"7260 B\"\n";
    let r = results(&scenario(&format!("{WIRE}{transport}{files}")), 1);
    // 19 transfers start at 0.5, 1.0 … 9.5 s and complete before the next; the one at 10 s does not complete.
    let done = r.flows.iter().filter(|f| f.completed).count();
    assert_eq!(done, 19);
    assert!(r.flows.iter().filter(|f| f.completed).all(|f| (f.completion_time() - 0.389_424).abs() < 1e-9));
    let cbr = "[traffic.cbr]\nkind = \"cbr\"\nfrom = \"a\"\nto = \"b\"\ntransport = \"s\"\nrate = \"100 kbps\"\n\
               packet = \"1028 B\"\n";
    let r = results(&scenario(&format!("{WIRE}{transport}{cbr}")), 1);
    let packets = (10.0 * 100_000.0 / 8.0 / 1028.0f64).ceil() as u64;
    let found = r.flows[0].delivered / 1000;
    assert_eq!(r.flows[0].delivered % 1000, 0);
    assert!((packets - 2..=packets).contains(&found), "{found} of {packets}");
}

/// Packets of about 20 bytes, of which 28 would be headers, at 50 a second.
#[test]
fn drawn_packets_shorter_than_their_headers_carry_a_byte() {
    for protocol in ["tcp", "sctp", "quic"] {
        let traffic = format!(
            "[transport.t]\nprotocol = \"{protocol}\"\n[traffic.t]\nkind = \"cbr\"\nfrom = \"a\"\nto = \"b\"\n\
             transport = \"t\"\nrate = \"8 kbps\"\npacket = {{ normal = {{ mean = \"20 B\", std = \"1 B\" }} }}\n"
        );
        let r = results(&scenario(&(WIRE.to_owned() + &traffic)), 1);
        let flow = &r.flows[0];
        assert!((470..=500).contains(&flow.received_units), "{protocol}: {}", flow.received_units);
        assert!((470..=500).contains(&flow.delivered), "{protocol}: {}", flow.delivered);
    }
}

/// A source at twice the capacity of the link. Without adaptation it loses half. With adaptation each report slows it down by
/// an eighth until the loss is small, and its rate stays near the capacity: with a smoothed loss below 4 % it is not below
/// the capacity, and a step of increase is 50 kbit/s of 1 Mbit/s.
#[test]
fn an_rtp_source_adapts_to_the_link() {
    let text = |adapt: bool| {
        format!(
            "{}[transport.r]\nprotocol = \"rtp\"\nadapt = {adapt}\n[traffic.m]\nkind = \"cbr\"\nfrom = \"a\"\nto = \"b\"\n\
             transport = \"r\"\nrate = \"2 Mbps\"\npacket = \"1000 B\"\n",
            WIRE.replace("1000 packets", "10 packets")
                .replace("duration = \"10 s\"", "warmup = \"20 s\"\nduration = \"90 s\"")
        )
    };
    let share = |adapt| {
        let r = results(&scenario(&text(adapt)), 1);
        let lost = r.summary.overflow_drops as f64 / r.summary.offered_packets as f64;
        let goodput = r.flows[0].goodput(r.begin, r.end);
        (lost, goodput / (1e6 * 960.0 / 1000.0))
    };
    let (lost, _) = share(false);
    assert!((lost - 0.5).abs() < 0.01, "{lost}");
    let (lost, goodput) = share(true);
    assert!(lost < 0.06, "{lost}");
    assert!((0.85..=1.0).contains(&goodput), "{goodput}");
}

/// The first packet arrives at 8 + 50 ms, and then a report of 88 bytes leaves every 900 ms and arrives 0.704 + 50 ms
/// later. The sender's reports, 84 bytes, leave every 900 ms from the start.
#[test]
fn reports_are_sent_every_900_ms() {
    let text = format!(
        "{WIRE}[transport.r]\nprotocol = \"rtp\"\n[traffic.m]\nkind = \"cbr\"\nfrom = \"a\"\nto = \"b\"\ntransport = \"r\"\n\
         rate = \"500 kbps\"\npacket = \"1000 B\"\n"
    );
    let watch = Watch { links: vec!["wire".to_owned()], ..Watch::default() };
    let mut seen = Vec::new();
    run_watched(&scenario(&text), 1, &Progress::default(), &watch, &mut |s| seen.push(s.clone())).unwrap();
    let times = |interface, len| {
        let reports = seen.iter().filter(|s| s.interface == interface && s.len == len);
        reports.map(|s| s.time.as_nanos()).collect::<Vec<u64>>()
    };
    let receiver: Vec<u64> = (1..=10).map(|i| 108_704_000 + i * 900_000_000).collect();
    assert_eq!(times(1, 88), receiver[..times(1, 88).len()]);
    assert_eq!(times(1, 88).len(), 10);
    let sender = times(0, 84);
    assert_eq!(sender.len(), 11);
    // Each may wait 8 ms for a packet that is being sent.
    assert!(
        (1..).zip(&sender).all(|(i, at)| (0..=8_000_000).contains(&(at - i * 900_000_000))),
        "{sender:?}"
    );
}
