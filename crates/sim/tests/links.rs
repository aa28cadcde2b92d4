//! Links, compared with values computed by hand.

use crate::common::{mean, results, shipped};
use bentpipe_scenario::Scenario;
use bentpipe_sim::{LOSS, RETRANSMISSION_LIMIT, Results};

/// Two hosts on a wire of 1 Mbit/s and 50 ms; `keys` and traffic are those of a test.
fn wire(link: &str, traffic: &str) -> Results {
    seeded(link, traffic, 1)
}

fn seeded(link: &str, traffic: &str, seed: u64) -> Results {
    let text = format!(
        "title = \"A wire\"\n\
         run = {{ duration = \"10 s\", subject = \"wire\" }}\n\
         host = {{ a = {{}}, b = {{}} }}\n\
         transport.plain = {{ mss = \"1000 B\" }}\n\
         [link.wire]\n\
         between = [\"a\", \"b\"]\n\
         {link}\n\
         [traffic.t]\n\
         from = \"a\"\n\
         to = \"b\"\n\
         {traffic}\n"
    );
    results(&Scenario::parse(&text, "wire.toml", &[]).unwrap_or_else(|e| panic!("{e}")), seed)
}

const WIRE: &str = "rate = \"1 Mbps\"\ndelay = \"50 ms\"\nqueue = { limit = \"1000 packets\" }\n";
/// A thousand datagrams of 1000 bytes, the n-th at n x 10 ms.
const CBR: &str = "kind = \"cbr\"\nflows = 1\nrate = \"800 kbps\"\npacket = \"1000 B\"\nstart = \"10 ms\"\n";
const BULK: &str =
    "kind = \"bulk\"\nflows = 1\ntransport = \"plain\"\nbytes = \"100 KB\"\nstart = \"10 ms\"\n";

/// Packets lost by the wire: arrival time in units of 10 ms, and length.
fn lost(r: &Results) -> Vec<(u32, u32)> {
    let drops = r.drops.time.iter().zip(&r.drops.bytes).zip(&r.drops.reason);
    drops
        .filter(|(_, reason)| **reason == LOSS)
        .map(|((t, bytes), _)| ((t * 100.0).round() as u32, *bytes))
        .collect()
}

#[test]
fn packets_with_given_numbers_are_lost() {
    for at in ["before_queue", "after_queue"] {
        let r = wire(&format!("{WIRE}loss = {{ nth = [1, 5, 17], at = \"{at}\" }}"), CBR);
        assert_eq!(lost(&r), [(1, 1000), (5, 1000), (17, 1000)], "{at}");
        let queued = if at == "before_queue" { 997 } else { 1000 };
        assert_eq!(r.summary.offered_packets, queued, "{at}");
    }
}

/// Only packets with payload are lost, not SYNs and ACKs. A full segment has 1040 bytes with headers.
#[test]
fn loss_of_data_skips_packets_without_payload() {
    let there = wire(&format!("{WIRE}loss = {{ nth = [1, 2, 60], of = \"data\" }}"), BULK);
    assert_eq!(lost(&there).iter().map(|l| l.1).collect::<Vec<_>>(), [1040; 3]);
    assert!(there.flows[0].completed);
    let back = wire(&format!("{WIRE}reverse.loss = {{ probability = 0.9, of = \"data\" }}"), BULK);
    assert_eq!(lost(&back), []);
    let all = wire(&format!("{WIRE}loss = {{ nth = [1] }}"), BULK);
    assert_eq!(
        lost(&all),
        [(1, 40), (106, 40)],
        "the SYN, and the answer to the next, a second and 50 ms later"
    );
}

/// All ten segments of the first window are lost. RFC 5681 section 3.1: after the timeout slow start resends them in groups of
/// 1 + 2 + 4 + 3. The SYN leaves at 10 ms and the SYN-ACK arrives at 410.64: RTO = 401 + 4 x 200.5 = 1203 ms in whole
/// milliseconds, so the timer expires at 1613.64. A segment takes 8.32 ms and is acknowledged 408.64 ms after its start:
/// the second segment leaves at 2022.28, the fourth at 2430.92, the eighth at 2839.56. The tenth is the third of that
/// group and arrives 3 x 8.32 + 200 ms later, at 3064.52 ms.
#[test]
fn a_lost_window_is_resent_in_slow_start() {
    let ten = BULK.replace("100 KB", "10 KB");
    let far = WIRE.replace("50 ms", "200 ms");
    let r = wire(&format!("{far}loss = {{ nth = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], of = \"data\" }}"), &ten);
    assert_eq!(r.flows[0].closed.map(|at| at.as_nanos()), Some(3_064_520_000));
}

/// 1600 kbit/s of 1000-byte datagrams for a link of 1 Mbit/s; half of them are lost ahead of the queue, so the others fit.
#[test]
fn packets_lost_before_the_queue_take_no_room_in_it() {
    let heavy = CBR.replace("800 kbps", "1600 kbps");
    let queue = WIRE.replace("1000 packets", "50 packets");
    let early = wire(&format!("{queue}loss = {{ probability = 0.5, at = \"before_queue\" }}"), &heavy);
    // The standard error of 2000 draws is 22 packets; the bound is five standard errors.
    assert!(early.summary.offered_packets.abs_diff(1000) < 112, "{}", early.summary.offered_packets);
    assert_eq!(early.summary.overflow_drops, 0);
    let late = wire(&format!("{queue}loss = 0.5"), &heavy);
    assert!(late.summary.overflow_drops > 600, "{}", late.summary.overflow_drops);
    assert!(late.summary.offered_packets == 1999);
}

/// 4 Mbit/s of 1000-byte datagrams, more than the capacity of the links below.
const FLOOD: &str = "kind = \"cbr\"\nflows = 1\nrate = \"4 Mbps\"\npacket = \"1000 B\"\nstart = \"10 ms\"\n";
const QUEUE: &str = "delay = \"50 ms\"\nqueue = { limit = \"10 packets\" }\n";

/// From 10 ms on: 1.99 s at 1 Mbit/s, 3 s at 3, 1 s at 0 and 4 s at 2: 18.99 Mbit, or 2 373 750 bytes. The last packet is
/// counted when it leaves the queue, and the queue of ten is never empty.
#[test]
fn the_bytes_sent_are_the_integral_of_the_steps() {
    let steps = "capacity.steps = [[\"0 s\", \"1 Mbps\"], [\"2 s\", \"3 Mbps\"], [\"5 s\", \"0 bps\"], [\"6 s\", \"2 Mbps\"]]\n";
    let r = wire(&format!("{QUEUE}{steps}"), FLOOD);
    let sent = r.summary.sent_bytes;
    assert!((2_373_750..=2_374_750).contains(&sent), "{sent}");
    let lost = r.summary.overflow_drops;
    assert_eq!(r.summary.offered_packets, lost + r.summary.sent_packets + 10);
}

/// 799 datagrams of 1000 bytes leave within 10 s, none in the outage. The link could send 2 + 9 + 0 + 8 = 19 Mbit.
#[test]
fn the_used_share_is_of_what_the_link_could_send_in_the_measurement() {
    let steps = "capacity.steps = [[\"0 s\", \"1 Mbps\"], [\"2 s\", \"3 Mbps\"], [\"5 s\", \"0 bps\"], [\"6 s\", \"2 Mbps\"]]\n";
    let queue = "delay = \"50 ms\"\nqueue = { limit = \"1000 packets\" }\n";
    let r = wire(&format!("{queue}{steps}"), CBR);
    assert!((r.summary.used_share - 8.0 / 19.0).abs() < 0.001, "{}", r.summary.used_share);
    assert!(wire(WIRE, CBR).summary.used_share.is_nan(), "of a constant rate the throughput says it");
}

/// Samples every second: the series is what the link offers, nothing in an outage, and its mean over 10 s is that of the steps.
#[test]
fn the_series_of_the_capacity_is_zero_in_an_outage() {
    let steps = "capacity.steps = [[\"0 s\", \"1 Mbps\"], [\"2.5 s\", \"0 bps\"], [\"5.5 s\", \"2 Mbps\"]]\n";
    let r = wire(&format!("{QUEUE}{steps}"), FLOOD);
    let capacity = &r.series.iter().find(|series| series.name == "capacity").unwrap().values;
    let at = |second: usize| capacity[second * capacity.len() / 10 + capacity.len() / 20];
    assert_eq!([at(0), at(1), at(3), at(4), at(6), at(9)], [1e6, 1e6, 0.0, 0.0, 2e6, 2e6]);
}

/// A rate drawn every 10 ms between 0.5 and 1.5 Mbit/s: a thousand draws in 10 s send 10 Mbit with a standard error of
/// sqrt(1000) x 10 ms x 1 Mbit/s / sqrt(12) = 91.3 kbit, less the 10 ms before the first packet; the bound is five
/// standard errors. The queue is never empty, so the bytes sent depend only on the rates: they are equal within a packet
/// for all AQMs, and differ for other seeds.
#[test]
fn a_drawn_capacity_does_not_depend_on_the_queue() {
    let drawn = "capacity = { uniform = [\"500 kbps\", \"1500 kbps\"], every = \"10 ms\" }\n";
    let sent = |aqm: &str, seed| {
        let queue =
            format!("delay = \"50 ms\"\nqueue = {{ limit = \"100 packets\", aqm.algorithm = \"{aqm}\" }}\n");
        seeded(&format!("{queue}{drawn}"), FLOOD, seed).summary.sent_bytes
    };
    let tail = sent("droptail", 1);
    assert!(tail.abs_diff(1_248_750) < 57_000, "{tail}");
    for aqm in ["codel", "pi"] {
        assert!(sent(aqm, 1).abs_diff(tail) <= 1000, "{aqm}: {} {tail}", sent(aqm, 1));
    }
    assert!((2..=4).any(|seed| sent("droptail", seed).abs_diff(tail) > 1000));
    let fixed = "capacity = { uniform = [\"1 Mbps\", \"1 Mbps\"], every = \"10 ms\" }\n";
    let r = wire(&format!("{QUEUE}{fixed}"), FLOOD);
    assert!(r.summary.sent_bytes.abs_diff(1_248_750) <= 1000, "{}", r.summary.sent_bytes);
}

/// Opportunities at 20, 40 and twice at 100 ms, repeated. Packets of 1000 bytes arrive every 2 ms, so one always waits:
/// each round of four opportunities sends 6000 bytes, six packets; 10 s have a hundred rounds.
#[test]
fn a_backlogged_link_uses_every_opportunity_of_its_trace() {
    let folder = std::env::temp_dir().join(format!("bentpipe-links-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("short.down");
    std::fs::write(&path, "20\n40\n100\n100\n").unwrap();
    let r = wire(&format!("{QUEUE}capacity.trace = {path:?}\n"), FLOOD);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(r.summary.sent_packets, 600);
    assert!((r.summary.used_share - 1.0).abs() < 1e-9, "{}", r.summary.used_share);
}

/// A handover at 5 s with an outage of 500 ms. If packets wait, the packet of 5 s waits longest. If they are lost, those
/// whose last bit is sent between 5.0 and 5.5 s are lost: the 500th (8 ms after 5 s) to the 549th, and the last one, during
/// the handover at 10 s.
#[test]
fn packets_wait_or_are_lost_during_a_handover() {
    let handover = |during: &str| {
        let keys =
            format!("handover = {{ interval = \"5 s\", outage = \"500 ms\", during = \"{during}\" }}\n");
        wire(&format!("{WIRE}{keys}"), CBR)
    };
    let held = handover("hold");
    assert!(lost(&held).is_empty());
    // The resolution of the delay histogram is a thousandth.
    assert!((held.summary.queue_delay[4] - 0.5).abs() < 0.000_5, "{:?}", held.summary.queue_delay);
    let gone = handover("lose");
    assert_eq!(
        lost(&gone).iter().map(|l| l.0).collect::<Vec<_>>(),
        (500..550).chain([1000]).collect::<Vec<_>>()
    );
    assert_eq!(gone.summary.queue_delay[4], 0.0);
}

/// A satellite that adds 100 ms: the n-th datagram, sent at n x 10 ms + 8 ms, arrives 150 ms later, so 984 arrive in
/// 10 s, with 972 bytes of payload each.
#[test]
fn the_delay_of_the_satellite_is_added() {
    let r =
        wire(&format!("{WIRE}handover = {{ interval = \"3 s\", delay = [\"100 ms\", \"100 ms\"] }}\n"), CBR);
    assert_eq!(r.flows[0].delivered, 984 * 972);
}

/// One datagram at 20 ms. With frames of 50 ms, capacity is requested at 50 ms and granted after the round trip of 100 ms
/// for the frame at 150 ms: the datagram leaves the queue after 130 ms, is sent in 8 ms and arrives at 208 ms.
#[test]
fn on_demand_the_first_packet_waits_for_request_round_trip_and_grant() {
    let traffic = CBR.replace("10 ms", "20 ms").replace("800 kbps", "1 kbps");
    let run = |duration: &str| {
        let link = "rate = \"1 Mbps\"\ndelay = \"50 ms\"\nqueue = {}\ndemand = { frame = \"50 ms\" }\n";
        let text = format!(
            "title = \"On demand\"\nrun = {{ duration = \"{duration}\", subject = \"wire\", sample_interval = \"1 ms\" }}\n\
             host = {{ a = {{}}, b = {{}} }}\n[link.wire]\nbetween = [\"a\", \"b\"]\n{link}\
             [traffic.t]\nfrom = \"a\"\nto = \"b\"\n{traffic}"
        );
        results(&Scenario::parse(&text, "demand.toml", &[]).unwrap_or_else(|e| panic!("{e}")), 1)
    };
    assert!((run("300 ms").summary.queue_delay[4] - 0.130).abs() < 0.000_13);
    assert_eq!(run("207 ms").flows[0].delivered, 0);
    assert_eq!(run("208 ms").flows[0].delivered, 972);
}

/// 802.11g, 1000-byte packets: 98 to 233 µs and 1036 bytes at 54 Mbit/s (153.5 µs) are 319 µs per try on average. A tenth
/// of the tries fail, so a packet takes 1.1111 tries; after seven tries a ten-millionth is lost.
#[test]
fn wifi_throughput_is_the_rate_less_overheads_and_retries() {
    let flood = FLOOD.replace("4 Mbps", "100 Mbps");
    let r = wire("access = \"wifi\"\ndelay = \"1 ms\"\nqueue = { limit = \"100 packets\" }\n", &flood);
    let expected = 9.99 / (319e-6 * (1.0 + 0.1 + 0.01 + 0.001 + 0.0001));
    let sent = r.summary.sent_packets as f64;
    assert!((sent / expected - 1.0).abs() < 0.005, "{sent} {expected}");
    assert!(lost(&r).is_empty());
    // With two tries a hundredth is lost: 284 of about 25 000 packets (1.1 tries each), plus or minus 5 x 17.
    let two = wire(
        "access = { kind = \"wifi\", tries = 2 }\ndelay = \"1 ms\"\nqueue = { limit = \"100 packets\" }\n",
        &flood,
    );
    let share = two.carried.link_given_up as f64 / two.carried.link_packets as f64;
    assert!((share - 0.01).abs() < 0.003, "{share}");
    let given_up = two.drops.reason.iter().filter(|&&reason| reason == RETRANSMISSION_LIMIT).count();
    assert_eq!((given_up as u64, two.carried.link_losses), (two.carried.link_given_up, 0));
}

/// A carrier of 1 Mbaud for two hosts, with 0.490243 and 2.966728 bit/symbol: a packet of 1000 bytes takes 16.318 and
/// 2.6966 ms, and together they use all the time.
#[test]
fn each_host_of_a_carrier_has_its_own_modulation() {
    let text = "title = \"Two terminals\"\nrun = { duration = \"10 s\", subject = \"carrier\" }\n\
        host = { hub = {}, client = { count = 2 } }\nrouter.beam = {}\n\
        [link.carrier]\nbetween = [\"hub\", \"beam\"]\nqueue = { limit = \"10 packets\" }\n\
        capacity = { symbol_rate = \"1 Mbaud\", modcod = [\"QPSK 1/4\", \"16APSK 3/4\"], of = \"client\" }\n\
        [link.last]\nbetween = [\"beam\", \"client\"]\n\
        [traffic.t]\nkind = \"cbr\"\nfrom = \"hub\"\nto = \"client\"\nflows = 2\nrate = \"2 Mbps\"\n\
        packet = \"1000 B\"\nstart = \"10 ms\"\n";
    let r = results(&Scenario::parse(text, "carrier.toml", &[]).unwrap_or_else(|e| panic!("{e}")), 1);
    // The order of arrival decides which packet is accepted, so the shares differ.
    let [slow, fast] = [0, 1].map(|i| r.flows[i].delivered as f64 / 972.0);
    let took = slow * 0.016_318 + fast * 0.002_696_6;
    assert!((took - 9.99).abs() < 0.03, "{slow} {fast} {took}");
    assert!(slow > 1.0 && fast > 1.0, "{slow} {fast}");
}

/// A regulator that follows the capacity: 1 Mbit/s for 5 s, then half of it. Packets wait in the gateway's queue, not in front
/// of the satellite.
#[test]
fn a_regulator_follows_the_capacity_of_its_satellite() {
    let text = "title = \"Rain\"\nrun = { warmup = \"1 s\", duration = \"10 s\", sample_interval = \"1 s\" }\n\
        host = { server = {}, client = {} }\n\
        [link.ingress]\nbetween = [\"server\", \"gateway\"]\n\
        [gateway]\naqm = { algorithm = \"droptail\" }\nregulator = { rate = \"link\" }\n\
        transmit_queue.limit = \"100 packets\"\n\
        [link.satellite]\nbetween = [\"gateway\", \"terminal\"]\ndelay = \"250 ms\"\n\
        capacity.steps = [[\"0 s\", \"1 Mbps\"], [\"6 s\", \"500 kbps\"]]\n\
        [link.access]\nbetween = [\"terminal\", \"client\"]\n\
        [traffic.voice]\nkind = \"cbr\"\nfrom = \"server\"\nto = \"client\"\nflows = 1\nrate = \"4 Mbps\"\n\
        packet = \"1000 B\"\nstart = \"0 s\"\n";
    let r = results(&Scenario::parse(text, "rain.toml", &[]).unwrap_or_else(|e| panic!("{e}")), 1);
    let series =
        |name: &str| &r.series.iter().find(|s| s.name == name).unwrap_or_else(|| panic!("{name}")).values;
    for (i, out) in series("throughput").iter().enumerate() {
        let expected = if i < 5 { 1e6 } else { 5e5 };
        assert!((out - expected).abs() <= 16_000.0, "{i}: {out}");
    }
    // 5 s at 1 Mbit/s and 5 s at 500 kbit/s are 7.5 Mbit, all used; less than three packets are the regulator's.
    assert!((r.summary.used_share - 1.0).abs() < 24e3 / 7.5e6, "{}", r.summary.used_share);
    assert!(series("satellite.transmit_queue").iter().all(|n| *n <= 2.0));
    assert!(series("transmit_queue").iter().all(|n| *n >= 95.0));
}

#[test]
fn mean_delay_is_that_of_the_distribution() {
    let mean = |delay: &str| {
        // A window of one segment: each takes a round trip of twice the delay plus the time to send 1040 and 40 bytes.
        let link = format!("rate = \"1 Gbps\"\nqueue = {{}}\n{delay}");
        let text = format!(
            "title = \"Delays\"\nrun = {{ duration = \"400 s\", subject = \"wire\" }}\nhost = {{ a = {{}}, b = {{}} }}\n\
             transport.plain = {{ mss = \"1000 B\", receive_window = \"1000 B\" }}\n\
             [link.wire]\nbetween = [\"a\", \"b\"]\n{link}\n\
             [traffic.t]\nkind = \"bulk\"\nfrom = \"a\"\nto = \"b\"\nflows = 1\ntransport = \"plain\"\nstart = \"0 s\"\n"
        );
        let r = results(&Scenario::parse(&text, "delays.toml", &[]).unwrap_or_else(|e| panic!("{e}")), 1);
        (r.end - r.begin).as_secs_f64() / (r.flows[0].delivered as f64 / 1000.0) / 2.0
    };
    // About 2000 round trips with two draws each. Standard errors: 0.16 ms for a normal distribution of 10 ms, 0.32 ms
    // for an exponential one of 20 ms; the bounds are five standard errors.
    let normal = mean("delay = { normal = { mean = \"100 ms\", std = \"10 ms\" } }");
    assert!((normal - 0.100).abs() < 0.000_8, "{normal}");
    let jitter = mean("delay = { fixed = \"80 ms\", jitter = { exponential = \"20 ms\" }, ordered = false }");
    assert!((jitter - 0.100).abs() < 0.001_6, "{jitter}");
}

/// Under rain fade the throughput stays below the 6.6 Mbit/s of clear sky (12 dB: 16APSK 5/6), and packets wait in the
/// gateway, as the regulator follows the capacity.
#[test]
fn the_gateway_keeps_its_queue_under_rain_fade() {
    let r = results(&shipped("rain-fade", &["run.duration=60 s"]), 1);
    let series =
        |name: &str| &r.series.iter().find(|s| s.name == name).unwrap_or_else(|| panic!("{name}")).values;
    let out = series("throughput");
    assert!(out.iter().all(|rate| *rate <= 6.7e6 * 1.1), "{out:?}");
    let mean = out.iter().sum::<f64>() / out.len() as f64;
    assert!(mean > 0.5e6, "{mean}");
    let ahead = series("satellite.transmit_queue");
    let behind = series("transmit_queue");
    assert!(ahead.iter().sum::<f64>() < 0.2 * behind.iter().sum::<f64>());
}

/// A regulator falls with its link from 8 to 4 Mbit/s before the measurement. Thresholds are 33 and 66 ms of 8 Mbit/s, 22 and 44
/// packets. A virtual queue that is served at 8 Mbit/s stays short, so only the limit of 200 packets holds, as in DropTail.
#[test]
fn virtual_queue_with_default_capacity_follows_a_falling_link() {
    let step = "link.satellite.capacity={ steps = [['0 s', '8 Mbps'], ['50 s', '4 Mbps']] }";
    let queue = |aqm: &str| {
        let aqm = format!("gateway.aqm={{ {aqm} }}");
        let overrides = ["run.warmup=60 s", "run.duration=120 s", step, &aqm];
        mean(&results(&shipped("rain-fade", &overrides), 1), "transmit_queue")
    };
    let droptail = queue("algorithm = 'droptail'");
    for (name, options, fixed) in [
        ("avqred", "", ", min_capacity = '8 Mbps', max_capacity = '8 Mbps'"),
        ("avq", ", gamma = 1.0, adapt = false", ", capacity = '8 Mbps'"),
    ] {
        let follows = queue(&format!("algorithm = '{name}'{options}"));
        let fixed = queue(&format!("algorithm = '{name}'{options}{fixed}"));
        assert!(follows < 44.0, "{name}: {follows} packets");
        assert!((fixed / droptail - 1.0).abs() < 0.1, "{name}: {fixed} packets, DropTail {droptail}");
    }
}

/// Each of four hosts has its own link to the server, whichever end is named first: 1 Mbit/s of datagrams to each fill all four.
#[test]
fn each_host_of_a_group_has_its_own_link_to_a_single_host() {
    for between in ["[\"server\", \"client\"]", "[\"client\", \"server\"]"] {
        for (from, to) in [("server", "client"), ("client", "server")] {
            let text = format!(
                "title = \"Links\"\n\
                 run = {{ duration = \"10 s\" }}\n\
                 host = {{ server = {{}}, client = {{ count = 4 }} }}\n\
                 [link.own]\n\
                 between = {between}\n\
                 rate = \"1.1 Mbps\"\n\
                 queue.limit = \"10 packets\"\n\
                 [traffic.t]\n\
                 kind = \"cbr\"\n\
                 rate = \"1 Mbps\"\n\
                 packet = \"1000 B\"\n\
                 flows = 4\n\
                 from = \"{from}\"\n\
                 to = \"{to}\"\n"
            );
            let r = results(&Scenario::parse(&text, "links.toml", &[]).unwrap_or_else(|e| panic!("{e}")), 1);
            for flow in &r.flows {
                let goodput = flow.measured as f64 * 8.0 / 10.0;
                assert!((goodput / 1e6 / 0.972 - 1.0).abs() < 0.01, "{from} to {to}, {between}: {goodput}");
            }
        }
    }
}
