//! Random texts as scenarios: a short run of `make fuzz FUZZ=scenario`.

#[path = "../../../fuzz/src/texts.rs"]
mod fuzzed;
#[path = "../../../fuzz/src/seeds.rs"]
mod seeds;

use bentpipe_scenario::Scenario;
use fuzzed::Fate;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const SHORT: &str = "run.warmup=0 s\nrun.duration=2 s\nrun.sample_interval=10 ms\n";

/// Values of all kinds, some of them extreme.
const VALUES: [&str; 26] = [
    "0",
    "1",
    "-1",
    "3",
    "1000",
    "1e300",
    "nan",
    "true",
    "none",
    "''",
    "[]",
    "{}",
    "0 s",
    "1 ns",
    "1 s",
    "20 ms",
    "1 B",
    "1500 B",
    "1 MB",
    "4 packets",
    "1 bps",
    "5 Mbps",
    "{ uniform = ['1 ms', '2 ms'] }",
    "red",
    "drr",
    "ecn",
];

/// Keys in force in the bases, by base.
fn keys() -> Vec<(u8, String)> {
    let effective = |(base, text): (usize, &&str)| {
        let scenario = Scenario::parse(text, "base.toml", &[]).unwrap_or_else(|e| panic!("{e}"));
        scenario.effective().iter().map(|row| (base as u8, row.key.clone())).collect::<Vec<_>>()
    };
    fuzzed::BASES.iter().enumerate().flat_map(effective).collect()
}

fn overridden(base: u8, lines: &str) -> Vec<u8> {
    [&[1, base], SHORT.as_bytes(), lines.as_bytes()].concat()
}

#[test]
fn bases_begin_to_run() {
    for base in 0..fuzzed::BASES.len() as u8 {
        assert_eq!(fuzzed::run(&overridden(base, "")), Ok(Fate::Begun), "base {base}");
    }
}

#[test]
fn every_key_takes_or_refuses_every_kind_of_value() {
    let mut fates = Vec::new();
    for (base, key) in keys() {
        for value in VALUES {
            let outcome = fuzzed::run(&overridden(base, &format!("{key}={value}")));
            fates.push(outcome.unwrap_or_else(|e| panic!("{key}={value}: {e}")));
        }
    }
    let [refused, begun] =
        [Fate::Refused, Fate::Begun].map(|fate| fates.iter().filter(|f| **f == fate).count());
    assert!(refused > 1000 && begun > 500, "{refused} refused, {begun} begun of {}", fates.len());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn texts_with_changed_bytes_are_read_or_refused(
        base in 0..fuzzed::BASES.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        whole in any::<bool>(),
    ) {
        let mut bytes = fuzzed::BASES[base].as_bytes().to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if !whole {
            bytes.truncate(cut.index(bytes.len()));
        }
        let outcome = fuzzed::run(&[&[0], bytes.as_slice()].concat());
        prop_assert!(outcome.is_ok(), "{outcome:?}");
    }

    #[test]
    fn any_bytes_as_a_named_file_are_read_or_refused(reader in 0u8..4, bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let outcome = fuzzed::run(&[&[2, reader], bytes.as_slice()].concat());
        prop_assert!(outcome.is_ok(), "{outcome:?}");
    }
}

#[test]
fn inputs_that_the_fuzzer_found_pass() {
    seeds::replay("scenario", fuzzed::run);
}
