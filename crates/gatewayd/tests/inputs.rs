//! Random input for the parsers of packets, netlink messages and spacelink frames.

#[path = "../../../fuzz/src/inputs.rs"]
mod fuzzed;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

proptest! {
    #![proptest_config(ProptestConfig { cases: 5000, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn parsers_treat_any_bytes_consistently(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert_eq!(fuzzed::run(&bytes), Ok(()));
    }

    /// Spacelink frames: random bytes behind each valid first byte.
    #[test]
    fn parsed_frames_encode_to_the_same_bytes(
        first in prop::sample::select(&[0u8, 1, 2, 0x44, 0x46, 0x64, 0x66][..]), bytes in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        prop_assert_eq!(fuzzed::run(&[&[4, first][..], &bytes].concat()), Ok(()));
    }
}
