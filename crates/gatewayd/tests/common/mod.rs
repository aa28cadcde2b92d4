//! Network namespaces for tests.
//!
//! They have no names: a namespace exists while a file or a thread holds it, so it disappears with the process.
#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::print_stdout, reason = "a test that cannot run says so")]

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns, unshare};

/// Repeats a system call that a signal interrupts: a call with a time-out ends when a stopped process continues.
pub fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Waits until a descriptor is ready; false after the time-out.
pub fn ready(what: &impl AsFd, how: PollFlags, milliseconds: u16) -> bool {
    loop {
        match poll(&mut [PollFd::new(what.as_fd(), how)], PollTimeout::from(milliseconds)) {
            Err(Errno::EINTR) => {}
            other => return other.expect("to wait") > 0,
        }
    }
}

/// Binds a socket to an address, or to an NFQUEUE's number, that an earlier one had. Another test's child process holds the
/// earlier descriptor until it executes its program.
pub fn bound<T>(bind: impl Fn() -> io::Result<T>) -> T {
    for _ in 0..6000 {
        match bind() {
            Err(error)
                if matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied) =>
            {
                thread::sleep(Duration::from_millis(10));
            }
            other => return other.expect("a socket"),
        }
    }
    panic!("in use for a minute");
}

/// Waits until an NFQUEUE of this thread's namespace has no listener: a descriptor that another test's child process still
/// holds keeps it.
pub fn released(number: u16) {
    for _ in 0..6000 {
        let queues =
            std::fs::read_to_string("/proc/thread-self/net/netfilter/nfnetlink_queue").expect("a list");
        let mut listed = queues.lines().filter_map(|line| line.split_whitespace().next());
        if listed.all(|queue| queue != number.to_string()) {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("NFQUEUE {number} has had a listener for a minute");
}

/// A network namespace.
#[derive(Debug)]
pub struct Namespace(File);

impl Drop for Namespace {
    /// Removes the files that a killed daemon has left.
    fn drop(&mut self) {
        if let Ok(own) = self.0.metadata() {
            let _ = std::fs::remove_dir_all(format!("/run/bentpipe/{}", own.ino()));
        }
    }
}

impl Namespace {
    /// A new namespace; `None` if this process may not create one.
    pub fn new() -> Option<Self> {
        let made = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)
                .map(|()| File::open("/proc/thread-self/ns/net").expect("our own namespace"))
        });
        match made.join().expect("no panic") {
            Ok(file) => {
                let namespace = Self(file);
                namespace.ip("link set lo up");
                // Otherwise each interface takes one to two seconds longer.
                for interfaces in ["all", "default"] {
                    namespace.sysctl(&format!("net/ipv6/conf/{interfaces}/accept_dad"), "0");
                }
                Some(namespace)
            }
            Err(error @ (Errno::EPERM | Errno::EINVAL | Errno::ENOSYS)) => {
                println!("not run: no network namespace can be made ({error}); root may");
                None
            }
            Err(error) => panic!("unshare: {error}"),
        }
    }

    /// Runs something in it, in a separate thread.
    pub fn spawn<T: Send + 'static>(&self, what: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let file = self.0.try_clone().expect("a descriptor");
        thread::spawn(move || {
            setns(file, CloneFlags::CLONE_NEWNET).expect("the namespace");
            what()
        })
    }

    /// Runs something in it and waits for the result.
    pub fn run<T: Send + 'static>(&self, what: impl FnOnce() -> T + Send + 'static) -> T {
        match self.spawn(what).join() {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Runs a command line. Returns its output.
    pub fn command(&self, line: &str) -> String {
        let line = line.to_owned();
        self.run(move || {
            let mut words = line.split_whitespace();
            let output = Command::new(words.next().expect("a command"))
                .args(words)
                .stdin(Stdio::null())
                .output()
                .unwrap_or_else(|error| panic!("{line}: {error}"));
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{line}: {stderr}");
            String::from_utf8_lossy(&output.stdout).into_owned()
        })
    }

    /// Runs `ip`.
    pub fn ip(&self, line: &str) -> String {
        self.command(&format!("ip {line}"))
    }

    /// Body of a daemon's answer to a request: of `/metrics`, for instance.
    pub fn get(&self, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\n\r\n");
        let text = self.run(move || {
            let mut stream = TcpStream::connect("127.0.0.1:9180").expect("a listener");
            stream.write_all(request.as_bytes()).expect("a request sent");
            let mut text = String::new();
            stream.read_to_string(&mut text).map(|_| text).expect("text")
        });
        text.split_once("\r\n\r\n").expect("a head").1.to_owned()
    }

    /// Sets a kernel setting.
    pub fn sysctl(&self, path: &str, value: &str) {
        let (path, value) = (format!("/proc/sys/{path}"), value.to_owned());
        self.run(move || {
            let mut file =
                File::options().write(true).open(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
            file.write_all(value.as_bytes()).unwrap_or_else(|error| panic!("{path}: {error}"));
        });
    }

    /// Value of a kernel setting.
    pub fn setting(&self, path: &str) -> String {
        let path = format!("/proc/sys/{path}");
        self.run(move || std::fs::read_to_string(path).expect("a setting").trim().to_owned())
    }

    /// Connects it to another by a pair of interfaces, with `10.N.0.1` and `fdNN::1` here, `10.N.0.2` and `fdNN::2` there;
    /// N is at most 99.
    pub fn join(&self, name: &str, other: &Self, there: &str, number: u8) {
        let path = format!("/proc/{}/fd/{}", std::process::id(), other.0.as_raw_fd());
        self.ip(&format!("link add {name} type veth peer name {there} netns {path}"));
        for (namespace, name, host) in [(self, name, 1), (other, there, 2)] {
            namespace.ip(&format!("addr add 10.{number}.0.{host}/24 dev {name}"));
            namespace.ip(&format!("addr add fd{number:02}::{host}/64 dev {name} nodad"));
            namespace.ip(&format!("link set {name} up"));
        }
        // The kernel sees the carrier, adds the IPv6 routes and completes duplicate address detection asynchronously.
        for (namespace, name) in [(self, name), (other, there)] {
            let settled = (0..6000).any(|_| {
                let settled = namespace.is_settled(name);
                if !settled {
                    thread::sleep(Duration::from_millis(10));
                }
                settled
            });
            assert!(settled, "{name} has no working IPv6 after a minute");
        }
    }

    /// True once an interface is up and each of its IPv6 addresses, the link-local one among them, is usable and routed.
    fn is_settled(&self, name: &str) -> bool {
        if !self.ip(&format!("-o link show dev {name}")).contains("state UP") {
            return false;
        }
        let shown = self.ip(&format!("-6 -o addr show dev {name}"));
        let addresses: Vec<&str> = shown
            .lines()
            .filter_map(|line| line.split_once(" inet6 ")?.1.split_once('/').map(|(address, _)| address))
            .collect();
        let local = self.ip(&format!("-6 route show table local dev {name}"));
        let routes = self.ip("route show table all");
        !shown.contains("tentative")
            && addresses.iter().any(|address| address.starts_with("fe80:"))
            && addresses.iter().all(|address| local.contains(&format!("local {address} ")))
            && !routes.contains("linkdown")
    }
}

/// Two namespaces, `a` (10.1.0.1, fd01::1, interface `to-b`) and `b` (10.1.0.2, fd01::2, interface `to-a`).
pub fn pair() -> Option<(Namespace, Namespace)> {
    let (a, b) = (Namespace::new()?, Namespace::new()?);
    a.join("to-b", &b, "to-a", 1);
    Some((a, b))
}
