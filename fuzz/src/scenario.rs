//! libFuzzer target: scenarios, their overrides, and the files that they name.

#![no_main]

mod texts;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(problem) = texts::run(bytes) {
        panic!("{problem}");
    }
});
