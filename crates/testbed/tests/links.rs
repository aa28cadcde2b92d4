//! Links in virtual time, compared with values worked out by hand.

use crate::common::{TRAFFIC, scenario};
use bentpipe_testbed::links::{CAUSES, Carried, Counts, Links, Passed};
use bentpipe_testbed::plan::Plan;
use bentpipe_units::{Duration, Instant};
use serde_json::json;

/// A plan with one segment over these links, for a scenario with a server and a number of clients.
fn plan(links: &str, clients: u32, names: serde_json::Value) -> Plan {
    let text =
        scenario(links, TRAFFIC).replace("[host.client]", &format!("[host.client]\ncount = {clients}"));
    let addresses: Vec<_> =
        (1..=clients).map(|i| vec![format!("10.3.0.{i}"), format!("fd03::{i}")]).collect();
    let plan = json!({
        "scenario": { "file": "test.toml", "text": text },
        "seed": 3,
        "hosts": {
            "server": { "side": "servers", "addresses": ["10.1.0.1"] },
            "client": { "side": "clients", "addresses": addresses },
        },
        "segments": [{ "a": { "device": "x0" }, "b": { "device": "x1" }, "links": names }],
    });
    Plan::parse(&plan.to_string(), "plan").unwrap()
}

fn at(us: u64) -> Instant {
    Instant::ZERO + Duration::from_micros(us)
}

/// A UDP packet of `len` bytes between the server and a client, with a number in its payload.
fn udp(client: u8, port: u16, len: usize, number: u32, back: bool) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    let (server, client) = ([10, 1, 0, 1], [10, 3, 0, client]);
    let (src, dst) = if back { (client, server) } else { (server, client) };
    packet.extend(src);
    packet.extend(dst);
    let (from, to) = if back { (port, 5000) } else { (5000, port) };
    packet.extend(u16::to_be_bytes(from));
    packet.extend(u16::to_be_bytes(to));
    packet.resize(28, 0);
    packet.extend(number.to_be_bytes());
    packet.resize(len, 0);
    packet
}

fn number(packet: &[u8]) -> u32 {
    u32::from_be_bytes(packet[28..32].try_into().unwrap())
}

/// Sends packets at their times [µs] to the second end; returns numbers and times of all arrivals [ns].
fn play(links: &mut Links, packets: impl IntoIterator<Item = (u64, Vec<u8>)>) -> Vec<(u32, u64)> {
    let mut out = Vec::new();
    for (time, packet) in packets {
        links.advance(at(time), &mut out);
        links.arrive(0, 1, packet, at(time), &mut out);
    }
    while let Some(due) = links.due().filter(|due| *due < at(3_600_000_000)) {
        links.advance(due, &mut out);
    }
    out.iter().map(|Passed { packet, due, .. }| (number(packet), due.as_nanos())).collect()
}

fn counts(links: &Links, name: &str, forward: bool) -> Counts {
    *links.counts().find(|row| row.0 == name && row.1 == forward).unwrap().2
}

fn dropped(links: &Links, name: &str, cause: &str) -> u64 {
    let index = CAUSES.iter().position(|(_, known)| *known == cause).unwrap();
    counts(links, name, true).dropped[index]
}

const SATELLITE: &str = r#"
[link.satellite]
between = ["server", "client"]
"#;

/// Of five packets at once, the queue holds two behind the one being sent, and the second one sent is lost. The link back
/// cannot lose packets and does not count.
#[test]
fn carried_packets_leave_out_queue_drops_and_links_without_loss() {
    let links = format!(
        "{SATELLITE}rate = \"8 Mbps\"\nqueue = {{ aqm = {{ algorithm = \"droptail\" }}, limit = \"2 packets\" }}\n\
         loss = {{ nth = [2] }}\nreverse = {{ rate = \"8 Mbps\", loss = 0.0 }}"
    );
    let mut links = Links::new(&plan(&links, 1, json!(["satellite"]))).unwrap();
    play(&mut links, (0..5).map(|i| (100, udp(1, 7, 1000, i, false))));
    let mut out = Vec::new();
    links.arrive(0, 0, udp(1, 7, 1000, 9, true), Instant::ZERO + Duration::from_secs(1), &mut out);
    assert_eq!(dropped(&links, "satellite", "overflow"), 2);
    let begin = links.carried();
    assert_eq!(begin, Carried { packets: 3, losses: 1, given_up: 0 });
    links.arrive(0, 1, udp(1, 7, 1000, 9, false), Instant::ZERO + Duration::from_secs(2), &mut out);
    assert_eq!(links.carried().since(begin), Carried { packets: 1, losses: 0, given_up: 0 });
}

/// 1000 bytes take 1 ms at 8 Mbit/s, then 300 ms; of three sent at once, one leaves per millisecond. The reverse direction
/// has another rate.
#[test]
fn delay_is_waiting_plus_sending_plus_propagation() {
    let links =
        format!("{SATELLITE}rate = \"8 Mbps\"\ndelay = \"300 ms\"\nreverse = {{ rate = \"4 Mbps\" }}");
    let mut links = Links::new(&plan(&links, 1, json!(["satellite"]))).unwrap();
    let packets = (0..3).map(|i| (100, udp(1, 7, 1000, i, false)));
    let ms = 1_000_000;
    let expected = [(0, 301 * ms), (1, 302 * ms), (2, 303 * ms)].map(|(i, ns)| (i, ns + 100_000));
    assert_eq!(play(&mut links, packets), expected);
    let mut out = Vec::new();
    let begin = Instant::ZERO + Duration::from_secs(1);
    links.arrive(0, 0, udp(1, 7, 1000, 9, true), begin, &mut out);
    links.advance(begin + Duration::from_millis(302), &mut out);
    assert_eq!((out[0].due - begin, out[0].end), (Duration::from_millis(302), 0));
    assert!(links.is_empty());
    let forward = counts(&links, "satellite", true);
    assert_eq!((forward.packets, forward.arrived, forward.bytes), (3, 3, 3000));
    assert!((forward.delay_mean() - 0.302).abs() < 1e-12);
}

/// Packets pass the links in order, in the other direction in reverse order; `against` turns a link around.
#[test]
fn links_are_passed_in_order_and_back_in_reverse() {
    let links = r#"
[link.one]
between = ["server", "middle"]
delay = "10 ms"
reverse = { delay = "20 ms" }
[link.two]
between = ["client", "middle"]
delay = "100 ms"
reverse = { delay = "200 ms" }
"#;
    let plan = plan(links, 1, json!(["one", { "link": "two", "against": true }]));
    let mut links = Links::new(&plan).unwrap();
    assert_eq!(play(&mut links, [(0, udp(1, 7, 100, 5, false))]), [(5, 210_000_000)]);
    let mut out = Vec::new();
    links.arrive(0, 0, udp(1, 7, 100, 6, true), at(1_000_000), &mut out);
    links.advance(at(1_100_000), &mut out);
    assert!(out.is_empty());
    links.advance(at(1_120_000), &mut out);
    assert_eq!(out[0].due, at(1_120_000));
}

/// `advance` called late: packets have passed both links at their scheduled times.
#[test]
fn lateness_does_not_add_up_over_links() {
    let links = r#"
[link.one]
between = ["server", "middle"]
rate = "8 Mbps"
delay = "10 ms"
[link.two]
between = ["middle", "client"]
rate = "8 Mbps"
delay = "10 ms"
"#;
    let mut links = Links::new(&plan(links, 1, json!(["one", "two"]))).unwrap();
    let mut out = Vec::new();
    for i in 0..5 {
        links.arrive(0, 1, udp(1, 7, 1000, i, false), at(0), &mut out);
    }
    links.advance(at(500_000), &mut out);
    let due: Vec<_> = out.iter().map(|passed| passed.due).collect();
    assert_eq!(due, (0..5).map(|i| at(22_000 + 1000 * i)).collect::<Vec<_>>());
    // They queue at the first link, up to 4 ms, and not at the second.
    let means = ["one", "two"].map(|name| counts(&links, name, true).delay_mean());
    assert!((means[0] - 0.013).abs() < 1e-12 && (means[1] - 0.011).abs() < 1e-12, "{means:?}");
}

/// A queue of two packets: of five sent at once one is being sent, two wait, and two are dropped.
#[test]
fn packets_that_find_the_queue_full_are_dropped() {
    let links = format!(
        "{SATELLITE}rate = \"8 Mbps\"\n[link.satellite.queue]\nscheduler = \"fifo\"\nlimit = \"2 packets\""
    );
    let mut links = Links::new(&plan(&links, 1, json!(["satellite"]))).unwrap();
    let arrived = play(&mut links, (0..5).map(|i| (0, udp(1, 7, 1000, i, false))));
    assert_eq!(arrived, [(0, 1_000_000), (1, 2_000_000), (2, 3_000_000)]);
    assert_eq!(dropped(&links, "satellite", "overflow"), 2);
    assert!(links.is_empty());
}

/// Of 20 000 packets the scenario loses 1 %, and the plan 2 % of the others; five standard errors are 70 and 98.
#[test]
fn losses_of_scenario_and_plan_have_their_probabilities() {
    let links = format!("{SATELLITE}delay = \"1 us\"\nloss = 0.01");
    let plan = plan(&links, 1, json!([{ "link": "satellite", "loss": 0.02 }]));
    let mut links = Links::new(&plan).unwrap();
    let arrived = play(&mut links, (0..20_000).map(|i| (100 * u64::from(i), udp(1, 7, 100, i, false))));
    let lost = (dropped(&links, "satellite", "loss"), dropped(&links, "satellite", "extra_loss"));
    assert!(lost.0.abs_diff(200) < 70 && lost.1.abs_diff(396) < 98, "{lost:?}");
    assert_eq!(arrived.len() as u64, 20_000 - lost.0 - lost.1);
}

/// The second packet is lost: before the queue it takes no sending time, after the queue 1 ms.
#[test]
fn a_packet_lost_after_the_queue_takes_sending_time() {
    for (place, last) in [("before_queue", 2_000_000), ("after_queue", 3_000_000)] {
        let links = format!("{SATELLITE}rate = \"8 Mbps\"\nloss = {{ nth = [2], at = \"{place}\" }}");
        let mut links = Links::new(&plan(&links, 1, json!(["satellite"]))).unwrap();
        let arrived = play(&mut links, (0..3).map(|i| (0, udp(1, 7, 1000, i, false))));
        assert_eq!(arrived, [(0, 1_000_000), (2, last)]);
        assert_eq!(dropped(&links, "satellite", "loss"), 1);
    }
}

/// Loss of data only: acknowledgements do not count.
#[test]
fn loss_of_data_skips_acknowledgements() {
    let links = format!("{SATELLITE}delay = \"1 us\"\nloss = {{ nth = [2], of = \"data\" }}");
    let mut links = Links::new(&plan(&links, 1, json!(["satellite"]))).unwrap();
    let packets = [40, 100, 40, 100, 100].map(|len| {
        let mut packet = udp(1, 7, len, 0, false);
        // TCP with a header of 20 bytes.
        (packet[9], packet[32]) = (6, 0x50);
        packet[3] = len as u8;
        (0, packet)
    });
    let lengths = |links: &mut Links, packets: Vec<(u64, Vec<u8>)>| {
        let mut out = Vec::new();
        packets.into_iter().for_each(|(_, packet)| links.arrive(0, 1, packet, at(0), &mut out));
        links.advance(at(1), &mut out);
        out.iter().map(|passed| passed.packet.len()).collect::<Vec<_>>()
    };
    assert_eq!(lengths(&mut links, packets.to_vec()), [40, 100, 40, 100]);
}

/// Each connection has one delay between 20 and 40 ms for all packets in both directions. The mean of 400 has a standard
/// error of 20 / sqrt(12 x 400) = 0.29 ms; the bound is five standard errors.
#[test]
fn a_connection_has_one_delay_for_both_directions() {
    let links = format!("{SATELLITE}delay = {{ uniform = [\"20 ms\", \"40 ms\"], per = \"connection\" }}");
    let mut links = Links::new(&plan(&links, 1, json!(["satellite"]))).unwrap();
    let mut sum = 0.0;
    for port in 0..400u16 {
        let begin = Instant::ZERO + Duration::from_secs(u64::from(port) + 1);
        let mut out = Vec::new();
        for i in 0..3 {
            links.arrive(0, 1, udp(1, port, 1000, i, false), begin, &mut out);
            links.arrive(0, 0, udp(1, port, 1000, i, true), begin, &mut out);
        }
        links.advance(begin + Duration::from_millis(40), &mut out);
        let delays: Vec<_> = out.iter().map(|passed| passed.due - begin).collect();
        assert_eq!(delays.len(), 6);
        assert!(delays.iter().all(|delay| *delay == delays[0]), "{delays:?}");
        assert!((0.020..=0.040).contains(&delays[0].as_secs_f64()));
        sum += delays[0].as_secs_f64() * 1e3;
    }
    assert!((sum / 400.0 - 30.0).abs() < 1.45, "{}", sum / 400.0);
}

/// If the reverse direction has its own delay, a connection has two independent delays.
#[test]
fn a_connection_has_two_delays_if_the_directions_differ() {
    let delay = "delay = { uniform = [\"20 ms\", \"40 ms\"], per = \"connection\" }";
    let links = format!("{SATELLITE}{delay}\nreverse = {{ {delay} }}");
    let mut links = Links::new(&plan(&links, 1, json!(["satellite"]))).unwrap();
    let mut out = Vec::new();
    for end in [0, 1] {
        links.arrive(0, end, udp(1, 7, 1000, 0, end == 0), at(0), &mut out);
    }
    links.advance(at(40_000), &mut out);
    assert_eq!(out.len(), 2);
    assert_ne!(out[0].due, out[1].due);
}

/// Delays vary by 100 ms, packets are 1 ms apart: without ordering, many overtake.
#[test]
fn packets_overtake_only_on_unordered_links() {
    let arrivals = |ordered: bool| {
        let delay = format!("delay = {{ uniform = [\"300 ms\", \"400 ms\"], ordered = {ordered} }}");
        let mut links = Links::new(&plan(&format!("{SATELLITE}{delay}"), 1, json!(["satellite"]))).unwrap();
        play(&mut links, (0..1000).map(|i| (1000 * u64::from(i), udp(1, 7, 100, i, false))))
    };
    let (there, free) = (arrivals(true), arrivals(false));
    assert!(there.iter().map(|(i, _)| *i).eq(0..1000));
    assert!(free.windows(2).filter(|pair| pair[1].0 < pair[0].0).count() > 300);
    for (i, ns) in free {
        let delay = ns as f64 * 1e-6 - f64::from(i);
        assert!((300.0..400.0).contains(&delay), "{delay}");
    }
}

/// Packets sent from 2 to 5 s are lost in both directions; those sent before still arrive.
#[test]
fn packets_sent_during_an_outage_are_lost() {
    let links = format!("{SATELLITE}delay = \"300 ms\"");
    let plan = plan(&links, 1, json!([{ "link": "satellite", "outage": [[2.0, 5.0]] }]));
    let mut links = Links::new(&plan).unwrap();
    let arrived = play(&mut links, (0..60).map(|i| (100_000 * u64::from(i), udp(1, 7, 100, i, false))));
    let numbers: Vec<_> = arrived.iter().map(|(i, _)| *i).collect();
    assert_eq!(numbers, (0..20).chain(50..60).collect::<Vec<_>>());
    assert_eq!(dropped(&links, "satellite", "outage"), 30);
    let mut links = Links::new(&plan).unwrap();
    let mut out = Vec::new();
    links.arrive(0, 0, udp(1, 7, 100, 1, true), at(4_999_999), &mut out);
    links.advance(at(10_000_000), &mut out);
    assert!(out.is_empty());
    // Time zero of the outage is that of the scenario: before, nothing is lost.
    let mut links = Links::before_zero(&plan).unwrap();
    assert_eq!(
        play(&mut links, (0..60).map(|i| (100_000 * u64::from(i), udp(1, 7, 100, i, false)))).len(),
        60
    );
}

/// A tenth of 10 000 packets arrives twice, and a tenth is delayed by 50 ms more; 150 are five standard errors. Packets are
/// 10 ms apart, so each delayed packet is overtaken by up to five.
#[test]
fn duplicates_and_reordered_packets_have_their_probabilities() {
    let links = format!("{SATELLITE}delay = \"300 ms\"");
    let extras = json!({
        "link": "satellite", "duplicate": 0.1, "reorder": { "probability": 0.1, "by_s": 0.05 },
    });
    let mut links = Links::new(&plan(&links, 1, json!([extras]))).unwrap();
    let arrived = play(&mut links, (0..10_000).map(|i| (10_000 * u64::from(i), udp(1, 7, 100, i, false))));
    let counts = counts(&links, "satellite", true);
    assert!(counts.duplicated.abs_diff(1000) < 150 && counts.reordered.abs_diff(1000) < 150, "{counts:?}");
    assert_eq!(arrived.len() as u64, 10_000 + counts.duplicated);
    let mut times = vec![Vec::new(); 10_000];
    arrived.iter().for_each(|(i, ns)| times[*i as usize].push(*ns));
    assert!(times.iter().all(|times| !times.is_empty() && times.iter().all(|t| *t == times[0])));
    let late = (0..).zip(&times).filter(|(i, t)| t[0] != 10_000_000 * i + 300_000_000).count() as u64;
    assert_eq!(late, counts.reordered);
    assert!(links.is_empty());
}

/// Three clients at 8 Mbit/s each: one packet of 1000 bytes to each takes 1 ms, a second to the same client 2 ms.
#[test]
fn each_host_of_a_group_has_a_separate_link() {
    let links = "[link.access]\nbetween = [\"server\", \"client\"]\nrate = \"8 Mbps\"";
    let mut links = Links::new(&plan(links, 3, json!(["access"]))).unwrap();
    let packets = [(1, 0), (2, 1), (3, 2), (2, 3)].map(|(client, i)| (0, udp(client, 7, 1000, i, false)));
    let ms = 1_000_000;
    assert_eq!(play(&mut links, packets), [(0, ms), (1, ms), (2, ms), (3, 2 * ms)]);
    assert_eq!(counts(&links, "access", true).arrived, 4);
}

/// The satellite links of two terminals at 8 Mbit/s each, which `link` describes by the terminal's number.
fn terminals(link: impl Fn(u32) -> serde_json::Value) -> Links {
    let text = "title = \"t\"\n[run]\nduration = \"1 s\"\n[host.server]\n[host.user]\ncount = 2\n[terminal.home]\ncount = 2\n\
                [link.a]\nbetween = [\"server\", \"gateway\"]\n\
                [link.homes]\nbetween = [\"gateway\", \"home\"]\nrate = \"8 Mbps\"\n\
                [link.access]\nbetween = [\"home\", \"user\"]\n\
                [gateway]\nterminals = [\"home\"]\naqm = { algorithm = \"red\" }\nregulator = { rate = \"8 Mbps\" }\n\
                [traffic.x]\nkind = \"bulk\"\nfrom = \"server\"\nto = \"user\"\n";
    let segment = |terminal: u32| {
        json!({ "a": { "device": format!("a{terminal}") }, "b": { "device": format!("b{terminal}") },
                "links": [link(terminal)] })
    };
    let plan =
        json!({ "scenario": { "file": "t.toml", "text": text }, "segments": [segment(0), segment(1)] });
    Links::new(&Plan::parse(&plan.to_string(), "plan").unwrap()).unwrap()
}

/// Two terminals at 8 Mbit/s each: two packets of 1000 bytes to one take 2 ms, and do not delay the one to the other. The
/// statistics are those of both links.
#[test]
fn each_terminal_of_a_group_has_a_separate_satellite_link() {
    let mut links = terminals(|terminal| json!({ "link": "homes", "terminal": terminal }));
    let mut out = Vec::new();
    for (terminal, i) in [(0, 0), (0, 1), (1, 2)] {
        links.arrive(terminal, 1, udp(1, 7, 1000, i, false), at(0), &mut out);
    }
    links.advance(at(5000), &mut out);
    let mut arrivals: Vec<_> =
        out.iter().map(|it| (number(&it.packet), it.segment, it.due.as_nanos() / 1_000_000)).collect();
    arrivals.sort_unstable();
    assert_eq!(arrivals, [(0, 0, 1), (1, 0, 2), (2, 1, 1)]);
    assert_eq!(links.counts().count(), 2);
    assert_eq!(counts(&links, "homes", true).arrived, 3);
}

/// The statistics of a group count as those of links that lose packets if one of them does, whichever it is.
#[test]
fn a_group_of_links_of_which_one_loses_packets_counts_as_lossy() {
    for lossy in [0, 1] {
        let mut links = terminals(|terminal| {
            let loss = if terminal == lossy { 0.1 } else { 0.0 };
            json!({ "link": "homes", "terminal": terminal, "loss": loss })
        });
        let mut out = Vec::new();
        (0..2).for_each(|terminal| links.arrive(terminal, 1, udp(1, 7, 1000, 0, false), at(0), &mut out));
        links.advance(at(5000), &mut out);
        assert_eq!(links.carried().packets, 2, "{lossy}");
    }
}

/// Capacity in steps: 8 Mbit/s, 0 from 10 to 20 ms, then 4 Mbit/s. Ten packets of 1 ms leave before the gap; the others take
/// 2 ms each.
#[test]
fn the_capacity_changes_as_the_scenario_schedules() {
    let steps = r#"capacity = { steps = [["0 s", "8 Mbps"], ["10 ms", "0 bps"], ["20 ms", "4 Mbps"]] }"#;
    let mut links = Links::new(&plan(&format!("{SATELLITE}{steps}"), 1, json!(["satellite"]))).unwrap();
    let arrived = play(&mut links, (0..12).map(|i| (0, udp(1, 7, 1000, i, false))));
    let ms: Vec<_> = arrived.iter().map(|(_, ns)| ns / 1_000_000).collect();
    assert_eq!(ms, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 22, 24]);
}

/// A handover every 15 s with an outage of 1 s, during which packets are lost.
#[test]
fn packets_sent_during_a_handover_are_lost() {
    let handover =
        "delay = \"1 us\"\nhandover = { interval = \"15 s\", outage = \"1 s\", during = \"lose\" }";
    let mut links = Links::new(&plan(&format!("{SATELLITE}{handover}"), 1, json!(["satellite"]))).unwrap();
    let arrived = play(&mut links, (0..400).map(|i| (100_000 * u64::from(i), udp(1, 7, 100, i, false))));
    assert_eq!(dropped(&links, "satellite", "handover"), 20);
    assert!(arrived.iter().all(|(i, _)| !(150..160).contains(i) && !(300..310).contains(i)));
}

/// CoDel with ECN marks ECN-capable packets and drops none.
#[test]
fn an_aqm_on_a_link_marks_ecn_capable_packets() {
    let queue = "rate = \"1 Mbps\"\n[link.satellite.queue]\nlimit = \"1000 packets\"\nmarking = \"ecn\"\n\
                 aqm = { algorithm = \"codel\" }";
    let mut links = Links::new(&plan(&format!("{SATELLITE}{queue}"), 1, json!(["satellite"]))).unwrap();
    let mut out = Vec::new();
    for i in 0..500 {
        let mut packet = udp(1, 7, 1000, i, false);
        packet[1] = 2;
        links.arrive(0, 1, packet, at(0), &mut out);
    }
    links.advance(at(10_000_000), &mut out);
    let marked = out.iter().filter(|passed| passed.packet[1] & 3 == 3).count() as u64;
    assert_eq!(out.len(), 500);
    assert!(marked > 5, "{marked}");
    assert_eq!(counts(&links, "satellite", true).marked, marked);
}

/// Link-local multicast, such as a router solicitation, does not pass the link.
#[test]
fn link_local_multicast_is_not_forwarded() {
    let mut links =
        Links::new(&plan(&format!("{SATELLITE}rate = \"8 Mbps\""), 1, json!(["satellite"]))).unwrap();
    let mut solicitation = vec![0x60, 0, 0, 0, 0, 8, 58, 255];
    solicitation.extend("fe80::1".parse::<std::net::Ipv6Addr>().unwrap().octets());
    solicitation.extend("ff02::2".parse::<std::net::Ipv6Addr>().unwrap().octets());
    solicitation.extend([133, 0, 0, 0, 0, 0, 0, 0]);
    let mut out = Vec::new();
    links.arrive(0, 1, solicitation, at(0), &mut out);
    assert!(links.is_empty() && out.is_empty());
    assert_eq!(counts(&links, "satellite", true).packets, 0);
}
