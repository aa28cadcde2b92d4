//! Privileges are dropped for good by the calling thread, also for programs that it starts.

use std::process::Command;
use std::thread;

use bentpipe_gatewayd::sys::privileges::{held, reduce};

const NET_ADMIN_AND_RAW: u64 = 1 << 12 | 1 << 13;

/// Capability sets of a child process, by their names in proc(5).
fn child() -> Vec<(String, u64)> {
    let output = Command::new("cat").arg("/proc/self/status").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter_map(|line| line.split_once(":\t"));
    let sets = lines.filter(|(name, _)| name.starts_with("Cap") || *name == "NoNewPrivs");
    sets.map(|(name, value)| (name.to_owned(), u64::from_str_radix(value, 16).unwrap())).collect()
}

/// Capabilities are per thread; a separate thread leaves those of other tests alone.
#[test]
fn all_but_two_capabilities_are_dropped() {
    let before = held().unwrap();
    let (after, again, child) = thread::spawn(|| {
        let after = reduce().unwrap();
        (after, reduce().unwrap(), child())
    })
    .join()
    .unwrap();
    assert_eq!(after.permitted, before.permitted & NET_ADMIN_AND_RAW);
    assert_eq!(after.effective, after.permitted);
    assert_eq!(again, after);
    for (name, set) in child {
        match name.as_str() {
            "NoNewPrivs" => assert_eq!(set, 1),
            // Reduced only with CAP_SETPCAP.
            "CapBnd" if before.effective >> 8 & 1 == 0 => {}
            _ => assert_eq!(set & !NET_ADMIN_AND_RAW, 0, "{name} {set:x}"),
        }
    }
    assert_eq!(held().unwrap(), before, "another thread's");
}
