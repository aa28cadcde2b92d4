//! Random events on two connections, and those that the fuzzer found to reach new code.

#[path = "../../../../fuzz/src/segments.rs"]
mod fuzzed;
#[path = "../../../../fuzz/src/seeds.rs"]
mod seeds;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_to_segments_every_byte_arrives(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert_eq!(fuzzed::run(&bytes), Ok(()));
    }

    /// As above, without forged segments, so that each connection has to end well.
    #[test]
    fn segments_in_any_order_are_put_in_order(
        head in any::<[u8; 6]>(),
        events in prop::collection::vec((0u8..30, any::<u8>()), 0..300),
    ) {
        let events = events.into_iter().flat_map(|(what, amount)| [what, amount.min(254)]);
        let bytes: Vec<u8> = head.into_iter().chain(events).collect();
        prop_assert_eq!(fuzzed::run(&bytes), Ok(()));
    }
}

#[test]
fn inputs_that_the_fuzzer_found_pass() {
    seeds::replay("tcp", fuzzed::run);
}
