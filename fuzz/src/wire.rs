//! libFuzzer target: packets and messages from outside, as the live gateway parses them.

#![no_main]

#[path = "inputs.rs"] // so that its own module is found beside it, as in the tests
mod inputs;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(problem) = inputs::run(bytes) {
        panic!("{problem}");
    }
});
