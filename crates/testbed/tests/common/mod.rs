//! Network namespaces for tests. Each belongs to a thread and ends with it.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};

type Work = Box<dyn FnOnce() + Send>;

/// A network namespace.
pub struct Namespace {
    work: Sender<Work>,
    /// Path of the namespace file.
    pub path: PathBuf,
}

impl Namespace {
    /// A new namespace with loopback up; `None` without the permission to create one.
    pub fn new() -> Option<Self> {
        let (work, todo): (Sender<Work>, Receiver<Work>) = channel();
        let (sender, path) = channel();
        thread::spawn(move || {
            let made = unshare(CloneFlags::CLONE_NEWNET).is_ok();
            let tid = nix::unistd::gettid();
            let path = PathBuf::from(format!("/proc/{}/task/{tid}/ns/net", std::process::id()));
            sender.send(made.then_some(path)).unwrap();
            while let Ok(work) = todo.recv() {
                work();
            }
        });
        let space = Self { work, path: path.recv().unwrap()? };
        space.ip("link set lo up");
        Some(space)
    }

    /// Runs `work` in the namespace and waits for its result.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        self.spawn(work).recv_timeout(Duration::from_secs(280)).unwrap()
    }

    /// Queues `work` in the namespace.
    pub fn spawn<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
        let (sender, done) = channel();
        self.work.send(Box::new(move || drop(sender.send(work())))).unwrap();
        done
    }

    /// Runs ip(8) in the namespace.
    pub fn ip(&self, arguments: &str) {
        let words: Vec<_> = arguments.split(' ').map(str::to_owned).collect();
        let out = self.run(move || Command::new("ip").args(words).output().unwrap());
        assert!(out.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&out.stderr));
    }

    /// True if the namespace has this device.
    pub fn has(&self, device: &str) -> bool {
        let device = device.to_owned();
        self.run(move || {
            Command::new("ip").args(["link", "show", &device]).output().unwrap().status.success()
        })
    }
}

/// Lets one test run at a time, since they run in real time.
static TURN: Mutex<()> = Mutex::new(());

/// Two namespaces, and the right to run.
pub struct Two {
    spaces: [Namespace; 2],
    _turn: MutexGuard<'static, ()>,
}

impl std::ops::Deref for Two {
    type Target = [Namespace; 2];
    fn deref(&self) -> &[Namespace; 2] {
        &self.spaces
    }
}

/// Two namespaces; `None`, with a message, without the permission to create them.
pub fn two() -> Option<Two> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let spaces = Namespace::new().zip(Namespace::new()).map(|(a, b)| [a, b]);
    if spaces.is_none() || !PathBuf::from("/dev/net/tun").exists() {
        eprintln!("skipped: needs root and /dev/net/tun");
        return None;
    }
    spaces.map(|spaces| Two { spaces, _turn: turn })
}

/// A running `bentpipe-testbed`.
pub struct Testbed {
    pub child: Child,
    pub input: Option<ChildStdin>,
    lines: Receiver<Value>,
}

impl Testbed {
    /// Starts a command with a plan and waits until it is ready.
    pub fn start(command: &str, plan: &Value) -> Self {
        let path =
            std::env::temp_dir().join(format!("bentpipe-testbed-{}-{:p}.json", std::process::id(), plan));
        std::fs::write(&path, plan.to_string()).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_bentpipe-testbed"))
            .arg(command)
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = child.stdout.take().unwrap();
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let _ = sender.send(serde_json::from_str(&line).unwrap());
            }
        });
        let testbed = Self { input: child.stdin.take(), child, lines };
        let ready = testbed.line();
        std::fs::remove_file(path).unwrap();
        assert_eq!(ready["ready"], json!(true));
        testbed
    }

    /// The next line of output.
    pub fn line(&self) -> Value {
        self.lines.recv_timeout(Duration::from_secs(280)).unwrap()
    }

    /// Closes the input, waits for the end and returns the last line of output.
    pub fn end(mut self) -> Value {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
        self.lines.iter().last().unwrap()
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A scenario with these links between a server and a client.
pub fn scenario(links: &str, traffic: &str) -> String {
    format!(
        r#"
title = "test"
[run]
duration = "60 s"
subject = "spare"
[host.server]
[host.client]
[router.middle]
[router.aside]
[link.spare]
between = ["aside", "middle"]
rate = "1 Mbps"
queue = {{ aqm = {{ algorithm = "red" }} }}
{links}
{traffic}
"#
    )
}

pub const TRAFFIC: &str = "[traffic.bulk]\nkind = \"bulk\"\nfrom = \"server\"\nto = \"client\"\n";

/// A plan with the link "satellite" between the two namespaces.
pub fn plan([a, b]: &[Namespace; 2], link: &str, extras: Value) -> Value {
    let text = scenario(&format!("[link.satellite]\nbetween = [\"server\", \"client\"]\n{link}"), TRAFFIC);
    let mut entry = json!({ "link": "satellite" });
    for (key, value) in extras.as_object().unwrap() {
        entry[key] = value.clone();
    }
    json!({
        "scenario": { "file": "test.toml", "text": text },
        "netns": { "servers": a.path, "clients": b.path },
        "hosts": {
            "server": { "side": "servers", "addresses": [["10.1.0.1", "fd01::1"]] },
            "client": { "side": "clients", "addresses": [["10.3.0.1", "fd03::1"]] },
        },
        "segments": [{
            "a": { "netns": a.path, "device": "sat0" },
            "b": { "netns": b.path, "device": "sat1" },
            "links": [entry],
        }],
    })
}

/// Adds addresses and routes: 10.1.0.1 and fd01::1 in the first namespace, 10.3.0.1 and fd03::1 in the second.
pub fn address([a, b]: &[Namespace; 2]) {
    for (space, device, own, other) in [(a, "sat0", 1, 3), (b, "sat1", 3, 1)] {
        space.ip(&format!("addr add 10.{own}.0.1/32 dev {device}"));
        space.ip(&format!("route add 10.{other}.0.0/16 dev {device}"));
        space.ip(&format!("addr add fd0{own}::1/128 dev {device} nodad"));
        space.ip(&format!("route add fd0{other}::/64 dev {device}"));
    }
}

/// CLOCK_MONOTONIC [ns].
pub fn now() -> u64 {
    bentpipe_testbed::sys::monotonic()
}

/// Repeats a system call that a signal interrupts: a call with a time-out ends when a stopped process continues.
pub fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Writes a line and flushes it.
pub fn say(out: &mut impl Write, line: &str) {
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}
