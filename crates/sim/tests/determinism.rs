//! Reproducibility: the same seed gives the same bytes in every build and on every machine.

use std::fmt::Write as _;

use crate::common::{results, shipped};
use bentpipe_sim::Results;

/// 64-bit FNV-1a.
fn digest(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes
        .into_iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A line for each series, and one for the times of drops. `python/tests/test_determinism.py` compares the Python package's
/// release build with the same file.
fn digests(results: &Results) -> String {
    let mut text = String::new();
    let drops = ("drops.time", &results.drops.time);
    for (name, values) in results.series.iter().map(|s| (s.name.as_str(), &s.values)).chain([drops]) {
        // A missing value counts as one particular NaN.
        let bits = values.iter().map(|x| if x.is_nan() { f64::NAN.to_bits() } else { x.to_bits() });
        writeln!(text, "{name} {:016x}", digest(bits.flat_map(u64::to_le_bytes))).unwrap();
    }
    text
}

/// To record results after an intended change: `BLESS=1 cargo test -p bentpipe-sim --test all determinism`.
#[test]
fn results_equal_the_recorded_digests() {
    let path = "tests/small-gateway.digests";
    let found = digests(&results(&shipped("small-gateway", &[]), 1));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &found).unwrap();
    }
    assert_eq!(found, std::fs::read_to_string(path).unwrap());
}

#[test]
fn the_seed_determines_the_results() {
    for name in ["two-gateways", "unsplit-udp"] {
        let scenario = shipped(name, &["run.duration=20 s"]);
        let first = digests(&results(&scenario, 7));
        assert_eq!(first, digests(&results(&scenario, 7)), "{name}");
        assert_ne!(first, digests(&results(&scenario, 8)), "{name}");
    }
}

/// Page sizes and delays per connection, which are drawn from the same stream, do not depend on the queue's algorithm.
#[test]
fn traffic_does_not_depend_on_the_queue() {
    let short =
        ["run.duration=60 s", "run.warmup=60 s", "traffic.web.ramp.over=1 s", "traffic.web.ramp.pause=1 s"];
    let scenario = shipped("byun2007-gateway", &short);
    let sizes = |setting: &str| {
        let r = results(&scenario.with_setting(setting).unwrap(), 1);
        let mut sizes = vec![Vec::new(); 400];
        for flow in r.flows.iter().filter(|f| f.completed) {
            sizes[flow.session as usize].push(flow.delivered);
        }
        sizes
    };
    let mut pages = 0;
    for (red, avqred) in sizes("RED 4").iter().zip(&sizes("AVQRED")) {
        let both = red.len().min(avqred.len());
        pages += both;
        assert_eq!(red[..both], avqred[..both]);
    }
    assert!(pages > 300, "{pages}");
}
