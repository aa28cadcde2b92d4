//! libFuzzer target: two TCP connections and what may happen to their segments.

#![no_main]

mod segments;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(problem) = segments::run(bytes) {
        panic!("{problem}");
    }
});
