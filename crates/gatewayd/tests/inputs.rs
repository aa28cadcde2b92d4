//! Random input for the parsers of packets, netlink messages, spacelink frames and configurations.

#[path = "../../../fuzz/src/inputs.rs"]
mod fuzzed;
#[path = "../../../fuzz/src/seeds.rs"]
mod seeds;

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

    /// Requests made of valid pieces and random bytes.
    #[test]
    fn every_request_gets_a_response(
        pieces in prop::collection::vec(prop::sample::select(&REQUEST[..]), 0..9), end in prop::collection::vec(any::<u8>(), 0..4),
    ) {
        prop_assert_eq!(fuzzed::run(&[&[6], pieces.concat().as_slice(), &end].concat()), Ok(()));
    }

    /// The shipped configurations with a few bytes changed or the end cut off.
    #[test]
    fn changed_configurations_are_read_or_refused(
        base in prop::sample::select(&CONFIGURATIONS[..]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..5),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = base.as_bytes().to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if cut.index(2) == 0 {
            bytes.truncate(cut.index(bytes.len()));
        }
        prop_assert_eq!(fuzzed::run(&[&[5], bytes.as_slice()].concat()), Ok(()));
    }
}

const REQUEST: [&[u8]; 12] = [
    b"GET",
    b"HEAD",
    b" ",
    b"/",
    b"/metrics",
    b"/terminals/",
    b"?since=",
    b"18446744073709551616",
    b" HTTP/1.1",
    b"\r\n",
    b"\xff",
    b"\0",
];

const CONFIGURATIONS: [&str; 2] =
    [include_str!("../../../deploy/gateway.toml"), include_str!("../../../deploy/terminal.toml")];

#[test]
fn inputs_that_the_fuzzer_found_pass() {
    seeds::replay("wire", fuzzed::run);
}
