//! libFuzzer target: operations on an AQM or scheduler.

#![no_main]

mod operations;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(problem) = operations::run(bytes) {
        panic!("{problem}");
    }
});
