//! The clock of the machine is set while both ends run.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::sys::signal::Signal;
use nix::time::ClockId;
use serde_json::Value;

use crate::ends::{End, SERVER, World, bytes, wait_until};

const ANSWER: usize = 300_000;
const DAY: i64 = 86_400;
const METRICS: &str = "[metrics]\nlisten = \"127.0.0.1:9180\"\ninterval = \"100 ms\"\nkeep = \"5 s\"\n";

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

/// Body of an end's answer to a request.
fn get(world: &World, end: usize, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\n\r\n");
    let text = world.ends[end].run(move || {
        let mut stream = TcpStream::connect("127.0.0.1:9180").expect("a listener");
        stream.write_all(request.as_bytes()).expect("a request sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).map(|_| text).expect("text")
    });
    text.split_once("\r\n\r\n").expect("a head").1.to_owned()
}

/// Difference of an end's last sample from this process's clock [s]; `None` without a sample.
fn offset(world: &World, end: usize) -> Option<i64> {
    let state: Value = serde_json::from_str(&get(world, end, "/state.json")).expect("JSON");
    let sample = state["samples"].as_array()?.last()?[0].as_f64()?;
    let now = ClockId::CLOCK_REALTIME.now().expect("a clock");
    Some((sample / 1e3) as i64 - now.tv_sec())
}

/// Connections of the spacelink so far.
fn connected(world: &World, end: usize) -> String {
    let text = get(world, end, "/metrics");
    let line = text.lines().find(|line| line.starts_with("bentpipe_spacelink_connections_total"));
    line.unwrap_or_else(|| panic!("{text}")).to_owned()
}

fn answer(mut stream: TcpStream) {
    let mut asked = [0];
    while let Ok(1) = stream.read(&mut asked) {
        if stream.write_all(&bytes(u64::from(asked[0]), ANSWER)).is_err() {
            break;
        }
    }
}

fn ask(stream: &mut TcpStream, which: u8) {
    let mut found = vec![0; ANSWER];
    stream.write_all(&[which]).expect("a request sent");
    stream.read_exact(&mut found).expect("an answer");
    assert_eq!(found, bytes(which.into(), ANSWER));
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
    let start = |world: &mut World, place: usize| {
        let config = world.folder.join(["gateway.toml", "terminal.toml"][place]);
        let record = config.with_extension("jsonl");
        let old = if place == 0 { &mut world.gateway } else { &mut world.terminal };
        assert!(old.kill(Signal::SIGTERM));
        let new = End::start_with(&world.ends[place], &config, record, environment.clone());
        new.wait_for("up");
        *(if place == 0 { &mut world.gateway } else { &mut world.terminal }) = new;
    };
    start(&mut world, 0);
    start(&mut world, 1);

    let (stop, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let today = ClockId::CLOCK_REALTIME.now().expect("a clock").tv_sec();
    let busy = {
        let (stop, answers) = (Arc::clone(&stop), Arc::clone(&answers));
        let address = format!("{}:80", SERVER[0]);
        world.clients.spawn(move || {
            let mut stream = TcpStream::connect(address).expect("a connection");
            stream.set_read_timeout(Some(crate::ends::LONG)).expect("a time-out");
            while !stop.load(Ordering::Relaxed) {
                ask(&mut stream, answers.fetch_add(1, Ordering::Relaxed) as u8);
            }
        })
    };
    let mut idle = world.call(SERVER[1], 80, |mut stream| {
        ask(&mut stream, 1);
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
        let seen = answers.load(Ordering::Relaxed);
        wait_until("answers come", || answers.load(Ordering::Relaxed) > seen + 3);
        idle = world.clients.run(move || {
            ask(&mut idle, 2);
            idle
        });
        assert_eq!([connected(&world, 0), connected(&world, 1)], before, "the spacelink was connected again");
    }
    stop.store(true, Ordering::Relaxed);
    busy.join().expect("every answer came");
    drop(idle);
    start(&mut world, 1);
    world.call(SERVER[0], 80, |mut stream| ask(&mut stream, 3));
}
