//! The gateway's process.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, SysconfVar, sysconf};

use crate::common::Namespace;

/// A gateway that runs.
pub struct Daemon<'a> {
    host: &'a Namespace,
    child: Child,
}

/// The first and the last processor that this process may use.
pub fn processors() -> (usize, usize) {
    let allowed = sched_getaffinity(Pid::from_raw(0)).expect("the processors");
    let mut all = (0..CpuSet::count()).filter(|n| allowed.is_set(*n).unwrap_or(false));
    let first = all.next().expect("a processor");
    (first, all.next_back().unwrap_or(first))
}

/// Ticks of /proc's times in a second.
fn ticks_per_second() -> f64 {
    sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100) as f64
}

/// Time in which processors of the machine were busy, interrupts and the kernel's threads included [s].
pub fn machine_cpu() -> f64 {
    let stat = fs::read_to_string("/proc/stat").expect("the machine's state");
    let times = stat.lines().next().and_then(|line| line.strip_prefix("cpu ")).expect("a line");
    let ticks: Vec<f64> = times.split_whitespace().map(|text| text.parse().expect("a number")).collect();
    // User, nice, system, idle, waiting, interrupts, soft interrupts.
    [0, 1, 2, 5, 6].map(|at| ticks[at]).iter().sum::<f64>() / ticks_per_second()
}

/// User and system time of a process [s].
fn cpu_of(process: &str) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("its state");
    let (_, fields) = stat.rsplit_once(')').expect("a name");
    let ticks = |at: usize| fields.split_whitespace().nth(at).and_then(|text| text.parse::<f64>().ok());
    (ticks(11).expect("user time") + ticks(12).expect("system time")) / ticks_per_second()
}

/// CPU time of this process [s].
pub fn own_cpu() -> f64 {
    cpu_of("self")
}

/// Sum of a metric's samples.
pub fn sum(metrics: &str, name: &str) -> f64 {
    let of =
        |line: &str| line.starts_with(name).then(|| line.rsplit_once(' ')?.1.parse::<f64>().ok()).flatten();
    metrics.lines().filter_map(of).sum()
}

impl<'a> Daemon<'a> {
    /// Starts the gateway, its loop on the first processor, and waits until it is ready.
    pub fn start(host: &'a Namespace, config: &Path) -> Self {
        let log = fs::File::create(config.with_extension("log")).expect("a log");
        let config = config.to_owned();
        let mut child = host.run(move || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_bentpipe-gateway"));
            command.arg("run").arg(config).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
            command.spawn().expect("the daemon")
        });
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let ready = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("ready")));
        assert!(ready.is_some(), "the gateway did not start");
        let mut first = CpuSet::new();
        first.set(processors().0).expect("a processor");
        // The process's first thread, which is the loop.
        sched_setaffinity(Pid::from_raw(child.id().cast_signed()), &first).expect("a processor");
        std::thread::spawn(move || lines.for_each(drop));
        Self { host, child }
    }

    /// Resident memory [bytes].
    pub fn memory(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("its state");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
        line.split_whitespace().next().and_then(|kb| kb.parse::<f64>().ok()).expect("a number") * 1024.0
    }

    /// CPU time so far [s].
    pub fn cpu(&self) -> f64 {
        cpu_of(&self.child.id().to_string())
    }

    /// CPU time so far of its thread that sends [s]; zero without one.
    pub fn send_thread_cpu(&self) -> f64 {
        let tasks = format!("{}/task", self.child.id());
        let threads = fs::read_dir(format!("/proc/{tasks}")).expect("its threads").flatten();
        let names = threads.map(|thread| format!("{tasks}/{}", thread.file_name().to_string_lossy()));
        let sends = |thread: &String| {
            fs::read_to_string(format!("/proc/{thread}/comm")).is_ok_and(|name| name.trim() == "send")
        };
        names.filter(sends).map(|thread| cpu_of(&thread)).sum()
    }

    /// The answer to a request.
    pub fn get(&self, path: &str) -> String {
        let path = path.to_owned();
        self.host.run(move || {
            let mut stream = TcpStream::connect("127.0.0.1:9180").expect("a listener");
            stream.write_all(format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes()).expect("a request");
            let mut text = String::new();
            stream.read_to_string(&mut text).expect("an answer");
            text
        })
    }

    /// Reloads the configuration, and waits until that is done and published.
    pub fn reload(&self) {
        let name = "bentpipe_config_last_reload_timestamp_seconds";
        let before = sum(&self.get("/metrics"), name);
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGHUP).expect("a running process");
        while sum(&self.get("/metrics"), name) <= before {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// Stops it.
    pub fn stop(mut self) {
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM);
        let _ = self.child.wait();
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
