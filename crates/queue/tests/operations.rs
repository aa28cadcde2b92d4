//! Random sequences of operations on random algorithms and parameters: a short run of `make fuzz`.

#[path = "../../../fuzz/src/operations.rs"]
mod fuzzed;
#[path = "../../../fuzz/src/seeds.rs"]
mod seeds;

use bentpipe_queue::registry::{AQMS, SCHEDULERS};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_operations_break_an_algorithm(bytes in prop::collection::vec(any::<u8>(), 0..800)) {
        if let Err(problem) = fuzzed::run(&bytes) {
            prop_assert!(false, "{problem}");
        }
    }
}

/// Every AQM on the first scheduler and every scheduler with the first AQM, whatever their number.
#[test]
fn every_algorithm_is_covered() {
    let pairs =
        (0..AQMS.len()).map(|aqm| (aqm, 0)).chain((0..SCHEDULERS.len()).map(|scheduler| (0, scheduler)));
    for (aqm, scheduler) in pairs {
        for seed in 0..8u32 {
            let mut state = seed;
            let noise = (0..1500).map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            });
            let bytes: Vec<u8> = [aqm as u8, scheduler as u8].into_iter().chain(noise).collect();
            fuzzed::run(&bytes).unwrap();
        }
    }
}

#[test]
fn inputs_that_the_fuzzer_found_pass() {
    seeds::replay("operations", fuzzed::run);
}
