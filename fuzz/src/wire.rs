//! libFuzzer looks for packets and messages that the live gateway misreads.

#![no_main]

mod packets;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(problem) = packets::run(bytes) {
        panic!("{problem}");
    }
});
