//! The clock of the machine is set while both ends run.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::sys::signal::Signal;
use nix::time::ClockId;
use serde_json::Value;

use crate::ends::{LONG, METRICS, SERVER, World, answer, ask, wait_until};

const DAY: i64 = 86_400;

/// Shifts a process's wall clock by the seconds that a file says, as if the machine's was set; other clocks stay. Namespaces
/// share the clock, and libfaketime shifts timers on CLOCK_MONOTONIC, too.
const SHIFT: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *to) {
    int result = syscall(SYS_clock_gettime, id, to);
    if (result == 0 && id == CLOCK_REALTIME) {
        FILE *file = fopen(getenv("CLOCK_SHIFT"), "r");
        long long seconds = 0;
        if (file && fscanf(file, "%lld", &seconds) == 1) to->tv_sec += seconds;
        if (file) fclose(file);
    }
    return result;
}
"#;

/// Environment of a process whose wall clock is shifted by what the file `clock` says.
fn shifted(clock: &Path) -> Vec<(&'static str, PathBuf)> {
    let [source, library] = ["c", "so"].map(|extension| clock.with_extension(extension));
    fs::write(&source, SHIFT).expect("a file");
    // The linker of Rust programs.
    let mut compile = Command::new("cc");
    assert!(
        compile.args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status().expect("cc").success()
    );
    vec![("LD_PRELOAD", library), ("CLOCK_SHIFT", clock.to_owned())]
}

/// Difference of an end's last sample from this process's clock [s]; `None` without a sample.
fn offset(world: &World, end: usize) -> Option<i64> {
    let state: Value = serde_json::from_str(&world.ends[end].get("/state.json")).expect("JSON");
    let sample = state["samples"].as_array()?.last()?[0].as_f64()?;
    let now = ClockId::CLOCK_REALTIME.now().expect("a clock");
    Some((sample / 1e3) as i64 - now.tv_sec())
}

/// Connections of the spacelink so far.
fn connected(world: &World, end: usize) -> String {
    let text = world.ends[end].get("/metrics");
    let line = text.lines().find(|line| line.starts_with("bentpipe_spacelink_connections_total"));
    line.unwrap_or_else(|| panic!("{text}")).to_owned()
}

/// The clock is set a day ahead, two days back, and to 1970, where a machine without a battery begins: transfers go on, idle
/// connections stay, the spacelink is not connected again, and samples have the new time. In 1970, a terminal that starts
/// connects.
#[test]
fn a_clock_that_is_set_neither_ends_nor_delays_connections() {
    let Some(mut world) = World::new("clock", "50 Mbps", METRICS) else { return };
    let clock = world.folder.join("clock");
    let set = |offset: i64| {
        fs::write(clock.with_extension("new"), format!("{offset}\n")).expect("a file");
        fs::rename(clock.with_extension("new"), &clock).expect("a file");
    };
    set(0);
    world.serve(80, answer);
    let environment = shifted(&clock);
    let restart = |world: &mut World, place| {
        assert!(world.end(place).kill(Signal::SIGTERM));
        world.restart(place, environment.clone());
    };
    restart(&mut world, 0);
    restart(&mut world, 1);

    let (stop, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let today = ClockId::CLOCK_REALTIME.now().expect("a clock").tv_sec();
    let busy = {
        let (stop, asked) = (Arc::clone(&stop), Arc::clone(&asked));
        let address = format!("{}:80", SERVER[0]);
        world.clients.spawn(move || {
            let mut stream = TcpStream::connect(address).expect("a connection");
            stream.set_read_timeout(Some(LONG)).expect("a time-out");
            while !stop.load(Ordering::Relaxed) {
                ask(&mut stream, asked.fetch_add(1, Ordering::Relaxed) as u8).expect("an answer");
            }
        })
    };
    let mut idle = world.call(SERVER[1], 80, |mut stream| {
        ask(&mut stream, 1).expect("an answer");
        stream
    });
    let before = [connected(&world, 0), connected(&world, 1)];
    for to in [DAY, -DAY, 1000 - today] {
        set(to);
        for end in 0..2 {
            wait_until("samples have the new time", || {
                offset(&world, end).is_some_and(|by| (by - to).abs() < 600)
            });
        }
        let seen = asked.load(Ordering::Relaxed);
        wait_until("answers come", || asked.load(Ordering::Relaxed) > seen + 3);
        idle = world.clients.run(move || {
            ask(&mut idle, 2).expect("an answer");
            idle
        });
        assert_eq!([connected(&world, 0), connected(&world, 1)], before, "the spacelink was connected again");
    }
    stop.store(true, Ordering::Relaxed);
    busy.join().expect("every answer came");
    drop(idle);
    restart(&mut world, 1);
    world.call(SERVER[0], 80, |mut stream| ask(&mut stream, 3)).expect("an answer");
}
