//! Comparison with queue disciplines of Linux: `linux/table.sh` compiles the kernel's source for user space and made the table,
//! with the arrivals of [`Arrivals`].

use bentpipe_queue::{Limit, Value};

use crate::link::{Arrivals, Bench, room};

const TABLE: &str = include_str!("linux/qdiscs.csv");

/// A row of the table.
struct Row {
    case: &'static str,
    seed: u64,
    flows: u64,
    sent: usize,
    dropped: usize,
    /// Mean of the packets sent [ns].
    delay: f64,
    /// FNV-1a of the events.
    digest: u64,
}

fn rows(case: &str) -> impl Iterator<Item = Row> {
    TABLE.lines().filter(move |line| line.split(',').next() == Some(case)).map(|line| {
        let [case, seed, flows, sent, dropped, delay, digest] =
            line.split(',').collect::<Vec<_>>().try_into().unwrap();
        let count = |text: &str| text.parse::<usize>().unwrap();
        Row {
            case,
            seed: count(seed) as u64,
            flows: count(flows) as u64,
            sent: count(sent),
            dropped: count(dropped),
            delay: delay.parse().unwrap(),
            digest: u64::from_str_radix(digest, 16).unwrap(),
        }
    })
}

/// The digest that `linux/qdiscs.c` computes.
fn digest(bench: &Bench) -> u64 {
    let bytes = bench.events.iter().flat_map(|(fate, at, packet)| {
        std::iter::once(*fate as u8).chain(at.to_le_bytes()).chain(packet.to_le_bytes())
    });
    bytes
        .fold(0xcbf2_9ce4_8422_2325, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Every packet of each run of `case` is sent, marked or dropped when Linux does so.
fn same(case: &str, name: &str, given: &[(&str, Value)], scale: u64, limit: Limit, ecn: bool) {
    let mut runs = 0;
    for row in rows(case) {
        let mut bench = Bench::new(name, given, limit, ecn, row.seed);
        bench.run(Arrivals::new(row.seed, scale, row.flows).take(20_000));
        let dropped = bench.drops().count();
        let found = (bench.events.len() - dropped, dropped, digest(&bench));
        assert_eq!(
            found,
            (row.sent, row.dropped, row.digest),
            "{}, seed {}, {} flows",
            row.case,
            row.seed,
            row.flows
        );
        runs += 1;
    }
    assert!(runs >= 2, "{case}");
}

/// Returns drops and mean delay over the runs of `case`, of 60,000 packets each, relative to those of Linux.
fn compare(case: &str, name: &str, given: &[(&str, Value)], scale: u64, limit: Limit) -> [f64; 2] {
    let (mut drops, mut delays, mut runs) = ([0, 0], [0.0, 0.0], 0);
    for row in rows(case) {
        let mut bench = Bench::new(name, given, limit, false, row.seed);
        bench.run(Arrivals::new(row.seed, scale, row.flows).take(60_000));
        for (sum, found) in drops.iter_mut().zip([bench.drops().count(), row.dropped]) {
            *sum += found;
        }
        for (sum, found) in delays.iter_mut().zip([bench.mean_delay(), row.delay]) {
            *sum += found;
        }
        runs += 1;
    }
    assert!(runs >= 4, "{case}");
    [drops[0] as f64 / drops[1] as f64, delays[0] / delays[1]]
}

fn assert_near([drops, delays]: [f64; 2], [drop_error, delay_error]: [f64; 2]) {
    assert!((drops - 1.0).abs() < drop_error && (delays - 1.0).abs() < delay_error, "{drops}, {delays}");
}

/// So many queues that no two flows share one.
const FLOWS: (&str, Value) = ("flows", Value::Number(65_536.0));

#[test]
fn drr_sends_each_packet_when_linux_does() {
    same("drr", "drr", &[("quantum", Value::Number(1514.0))], 1000, room(1_000_000), false);
}

/// Without CoDel, and with the rule of RFC 8290, section 4.2, for empty new queues, which Linux has only while there are old ones.
#[test]
fn fq_codel_sends_and_drops_each_packet_when_linux_does() {
    let given = [("target", Value::Number(500.0)), ("interval", Value::Number(1000.0)), FLOWS];
    same("fq_codel_overflow", "fq_codel", &given, 1300, room(50), false);
}

/// With exact roots and quotients in Linux.
#[test]
fn cake_sends_marks_and_drops_each_packet_when_linux_does() {
    let none = ("increment", Value::Number(0.0));
    let tins = ("diffserv", Value::Name("diffserv4"));
    let bytes = |bytes| Limit { packets: u32::MAX, bytes };
    same("cake", "cake", &[FLOWS], 1000, bytes(100_000_000), false);
    same("cake_ecn", "cake", &[FLOWS], 1000, bytes(100_000_000), true);
    same("cake_users", "cake_users", &[FLOWS], 1000, bytes(100_000_000), false);
    same("cake_diffserv4", "cake", &[FLOWS, tins], 1000, bytes(100_000_000), false);
    same("cake_overflow", "cake", &[FLOWS, none], 1000, bytes(60_000), false);
}

/// Linux computes a root by one step of Newton's method at each signal; in `cake` from the sixteenth on.
#[test]
fn approximate_roots_of_linux_change_drops_by_less_than_three_percent() {
    assert_near(compare("codel", "codel", &[], 1000, room(100_000)), [0.01, 0.01]);
    assert_near(compare("fq_codel", "fq_codel", &[FLOWS], 1000, room(100_000)), [0.03, 0.03]);
    assert_near(compare("cake_rounded", "cake", &[FLOWS], 1000, room(1_000_000)), [0.01, 0.01]);
}

/// PIE as in Linux, without a burst allowance.
const PIE: [(&str, Value); 3] = [
    ("decay", Value::Name("empty")),
    ("mean_packet", Value::Number(1514.0)),
    ("max_burst", Value::Number(0.0)),
];

/// Marks are random. The delays stay below 250 ms, above which Linux takes another step.
#[test]
fn pie_drops_as_many_packets_as_on_linux() {
    assert_near(compare("pie", "pie", &PIE, 650, room(1000)), [0.03, 0.03]);
}

/// Without Linux's step above 250 ms, and with its probability bounded by 1.
#[test]
fn fq_pie_drops_as_many_packets_as_on_linux() {
    let given: Vec<_> = PIE.into_iter().chain([FLOWS]).collect();
    assert_near(compare("fq_pie", "fq_pie", &given, 650, room(10_000)), [0.03, 0.03]);
}
