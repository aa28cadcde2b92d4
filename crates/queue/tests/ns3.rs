//! Comparison with queue discs of ns-3: `ns3/queue_discs.cc` made the table, with the arrivals of [`Arrivals`].

use bentpipe_queue::Value;

use crate::link::{Arrivals, Bench, Fate, room};

const TABLE: &str = include_str!("ns3/queue_discs.csv");

/// The rows of a case and seed: kind, time and packet.
fn rows(case: &str, seed: u64) -> impl Iterator<Item = (&'static str, u64, u32)> {
    let start = format!("{case},{seed},");
    TABLE.lines().filter_map(move |line| {
        let mut cells = line.strip_prefix(&start)?.split(',');
        let mut cell = || cells.next().unwrap();
        Some((cell(), cell().parse().unwrap(), cell().parse().unwrap()))
    })
}

/// Three flows with room for 50 packets and without CoDel, whose law ns-3 rounds.
#[test]
fn fq_codel_sends_and_drops_the_packets_of_ns3() {
    let given = [("target", 500.0), ("interval", 1000.0), ("quantum", 1514.0)];
    let mut bench =
        Bench::new("fq_codel", &given.map(|(key, x)| (key, Value::Number(x))), room(50), false, 1);
    bench.run(Arrivals::new(1, 1300, 3).take(700));
    let theirs: Vec<_> = rows("fq_codel", 1)
        .map(|(kind, at, packet)| (if kind == "sent" { Fate::Sent } else { Fate::Dropped }, at, packet))
        .collect();
    assert!(theirs.len() == 700 && theirs.iter().filter(|(fate, ..)| *fate == Fate::Dropped).count() > 100);
    assert_eq!(bench.events, theirs);
}

/// One flow in CAKE. ns-3 rounds the roots of COBALT's law, so that a drop may come a packet, 1.5 ms, earlier or later.
#[test]
fn cakes_cobalt_drops_when_that_of_ns3_does() {
    for seed in 1..=3 {
        let mut bench = Bench::new("cake", &[], room(100_000), false, 1);
        bench.run(Arrivals::new(seed, 1000, 1).take(5000));
        let theirs: Vec<_> = rows("cobalt", seed).map(|(_, at, _)| at).collect();
        assert!(theirs.len() == 9 && bench.drops().count() > 9);
        for (ours, theirs) in bench.drops().zip(theirs) {
            assert!(ours.abs_diff(theirs) <= 1_500_000, "seed {seed}: {ours} ns, {theirs} ns");
        }
    }
}

/// Marks are random: over eight runs drops and delays agree to 2 and 3 %. ns-3 decays the probability in empty queues only.
#[test]
fn pie_drops_as_many_packets_as_on_ns3() {
    let compare = |decay: &'static str| {
        let (mut drops, mut delays) = (0.0, 0.0);
        for seed in 1..=8 {
            let given = [("max_burst", Value::Number(0.0)), ("decay", Value::Name(decay))];
            let mut bench = Bench::new("pie", &given, room(1000), false, seed);
            bench.run(Arrivals::new(seed, 1000, 8).take(60_000));
            let (_, theirs, delay) = rows("pie", seed).next().unwrap();
            drops += bench.drops().count() as f64 / theirs as f64 / 8.0;
            delays += bench.mean_delay() / f64::from(delay) / 8.0;
        }
        [drops, delays]
    };
    let [drops, delays] = compare("empty");
    assert!((drops - 1.0).abs() < 0.02 && (delays - 1.0).abs() < 0.03, "{drops}, {delays}");
    let [drops, delays] = compare("low");
    assert!(drops < 0.98 && delays > 1.05, "{drops}, {delays}");
}
