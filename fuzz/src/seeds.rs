//! The committed inputs of a target, which together reach what the fuzzer has reached.

use std::fs;
use std::path::Path;

/// Runs each of the inputs in `fuzz/seeds/NAME`.
///
/// # Panics
/// At the first problem, and without inputs.
pub fn replay<T>(name: &str, run: impl Fn(&[u8]) -> Result<T, String>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(name);
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("a folder of inputs") {
        let path = entry.expect("an input").path();
        if let Err(problem) = run(&fs::read(&path).expect("an input")) {
            panic!("{}: {problem}", path.display());
        }
        count += 1;
    }
    assert!(count > 0, "no inputs");
}
