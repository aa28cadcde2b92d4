//! A strict reader of Prometheus' text format, and a daemon's state that is made up.

#![allow(dead_code, reason = "each test takes of it what it needs")]

use std::collections::{BTreeMap, BTreeSet};

use bentpipe_gatewayd::config::Role;
use bentpipe_gatewayd::observe::bottleneck::Evidence;
use bentpipe_gatewayd::observe::metrics::{About, NfqueueLost, PeerQueue, PeerState, Snapshot, Traffic};
use bentpipe_gatewayd::observe::state::Shared;
use bentpipe_units::{Duration, Instant, Rate};

pub type Labels = Vec<(String, String)>;
/// Upper bounds and counts.
pub type Buckets = Vec<(f64, f64)>;

/// Samples by name and labels, in their order, and the type of each family.
#[derive(Default)]
pub struct Parsed {
    pub types: BTreeMap<String, String>,
    pub samples: Vec<(String, Labels, f64)>,
}

impl Parsed {
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let same = |found: &[(String, String)]| {
            found.len() == labels.len()
                && found.iter().zip(labels).all(|((k, v), (key, value))| k == key && v == value)
        };
        let found: Vec<_> = self.samples.iter().filter(|s| s.0 == name && same(&s.1)).collect();
        assert_eq!(found.len(), 1, "{name} {labels:?}");
        found[0].2
    }
}

fn is_name(text: &str, colon: bool) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_' || (colon && c == ':');
    text.starts_with(first) && text.chars().all(|c| first(c) || c.is_ascii_digit())
}

pub fn parse(text: &str) -> Parsed {
    assert!(text.ends_with('\n'), "the last line must end with a line feed");
    let mut parsed = Parsed::default();
    let mut helped = BTreeSet::new();
    let mut family = String::new();
    let mut closed = BTreeSet::new();
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        if let Some(comment) = line.strip_prefix("# ") {
            let (word, rest) = comment.split_once(' ').expect(line);
            let (name, what) = rest.split_once(' ').expect(line);
            assert!(is_name(name, true), "{line}");
            if family != name {
                assert!(closed.insert(std::mem::replace(&mut family, name.to_owned())), "{line}: again");
                assert!(!closed.contains(name), "{line}: a family must stand together");
            }
            match word {
                "HELP" => {
                    assert!(helped.insert(name.to_owned()), "{line}: a second HELP");
                    assert!(!what.contains('\\') && what.ends_with('.'), "{line}");
                }
                "TYPE" => {
                    assert!(["counter", "gauge", "histogram"].contains(&what), "{line}");
                    assert!(parsed.types.insert(name.to_owned(), what.to_owned()).is_none(), "{line}: again");
                    assert!(
                        parsed.samples.iter().all(|s| !s.0.starts_with(name)),
                        "{line}: after its samples"
                    );
                }
                _ => panic!("{line}: neither HELP nor TYPE"),
            }
            continue;
        }
        let end = line.find(['{', ' ']).expect(line);
        let (name, mut rest) = line.split_at(end);
        assert!(is_name(name, true), "{line}");
        let mut labels = Labels::new();
        if let Some(inside) = rest.strip_prefix('{') {
            rest = inside;
            loop {
                let (key, after) = rest.split_once("=\"").expect(line);
                assert!(is_name(key, false) && labels.iter().all(|(other, _)| other != key), "{line}");
                let mut value = String::new();
                let mut chars = after.char_indices();
                let close = loop {
                    match chars.next().expect(line) {
                        (_, '\\') => match chars.next().expect(line).1 {
                            '\\' => value.push('\\'),
                            '"' => value.push('"'),
                            'n' => value.push('\n'),
                            c => panic!("{line}: \\{c}"),
                        },
                        (i, '"') => break i,
                        (_, c) => value.push(c),
                    }
                };
                labels.push((key.to_owned(), value));
                rest = &after[close + 1..];
                if let Some(after) = rest.strip_prefix(',') {
                    rest = after;
                } else {
                    rest = rest.strip_prefix('}').expect(line);
                    break;
                }
            }
        }
        let number = rest.strip_prefix(' ').expect(line);
        let value: f64 = match number {
            "NaN" => f64::NAN,
            "+Inf" => f64::INFINITY,
            "-Inf" => f64::NEG_INFINITY,
            _ => {
                assert!(number.bytes().all(|b| b.is_ascii_digit() || b"+-.e".contains(&b)), "{line}");
                number.parse().expect(line)
            }
        };
        let kind = parsed.types.get(&family).unwrap_or_else(|| panic!("{line}: before its TYPE"));
        let suffix =
            name.strip_prefix(family.as_str()).unwrap_or_else(|| panic!("{line}: of another family"));
        let suffixes: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        assert!(suffixes.contains(&suffix), "{line}");
        assert!(!parsed.samples.iter().any(|s| s.0 == name && s.1 == labels), "{line}: twice");
        parsed.samples.push((name.to_owned(), labels, value));
    }
    assert_eq!(helped, parsed.types.keys().cloned().collect());
    parsed
}

pub fn about() -> About {
    About {
        role: Role::Gateway,
        aqm: "AVQRED \"quoted\" \\ and\nbroken".to_owned(),
        scheduler: "drr".to_owned(),
        marking: "drop".to_owned(),
        reloaded: (1_700_000_000.5, true),
    }
}

/// The state after `second` seconds: 2 000 000 bytes, 100 packets discarded and 10 lost each.
pub fn snapshot(second: u64) -> Snapshot {
    let mut s = Snapshot {
        now: Instant::ZERO + Duration::from_secs(second),
        capacity: Some(Rate::from_bps(20_000_000)),
        marked: 130 * second,
        nfqueue: vec![NfqueueLost { queue: 0, queue_full: 0, buffer_full: 10 * second }],
        probes: vec![("aqm", "p", f64::NAN), ("scheduler", "backlog", -1.5e-7)],
        buffer_limit: Some(f64::INFINITY),
        ..Snapshot::default()
    };
    let peer = PeerState {
        up: true,
        round_trip: Some(Duration::from_millis(600)),
        sent_bytes: 1000 * second,
        sent_packets: 100 * second,
        ..PeerState::default()
    };
    s.peers = vec![
        PeerState {
            name: "t0".to_owned(),
            lost_packets: 5 * second,
            queue: Some(PeerQueue { packets: 3, bytes: 4500, ..PeerQueue::default() }),
            ..peer.clone()
        },
        PeerState {
            name: "t1".to_owned(),
            connections: 7,
            queue: Some(PeerQueue::default()),
            plan: "office".to_owned(),
            ..peer
        },
    ];
    s.receive.aqm_drops = 100 * second;
    s.traffic[0] = Traffic { sent: 1_500_000 * second, received: 7 };
    s.traffic[1].sent = 500_000 * second;
    s.spacelink.up = true;
    s.spacelink.round_trip = Some(Duration::from_millis(612));
    s.spacelink.sent_packets = 1000 * second;
    s.spacelink.lost_packets = 20 * second;
    s.evidence = Evidence {
        payload: 2_000_000 * second,
        sent: 2_000_000 * second,
        packet_seconds: 0.5 * second as f64,
        up: true,
        ..Evidence::default()
    };
    for ms in [0, 1, 2, 30, 7000] {
        (0..second).for_each(|_| s.transmit.delay.observe(Duration::from_millis(ms)));
    }
    s
}

pub fn shared() -> Shared {
    let shared = Shared::new(about(), Duration::from_secs(1), Duration::from_secs(3));
    (0..6).for_each(|second| shared.publish(snapshot(second), 1000 * (100 + second), 1000 * second));
    shared
}
