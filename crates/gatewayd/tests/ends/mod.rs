//! Both ends of the gateway between servers and clients in network namespaces, with a plain link or a satellite between
//! them.
#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::print_stdout, reason = "figures are shown")]

pub mod beam;
pub mod satellite;
pub mod watch;

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use bentpipe_units::Rng;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::common::Namespace;

use satellite::Satellite;

pub const BIN: &str = env!("CARGO_BIN_EXE_bentpipe-gateway");
/// Addresses of the server and the client.
pub const SERVER: [&str; 2] = ["10.1.0.1", "fd01::1"];
pub const CLIENT: [&str; 2] = ["10.3.0.2", "fd03::2"];
/// Part of a configuration: `Namespace::get` finds the metrics.
pub const METRICS: &str = "[metrics]\nlisten = \"127.0.0.1:9180\"\ninterval = \"100 ms\"\nkeep = \"5 s\"\n";
/// Time-out that is never reached.
pub const LONG: Duration = Duration::from_secs(300);

/// Polls until a condition holds.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..30_000 {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("not after five minutes: {what}");
}

/// Adds a figure to the file that BENTPIPE_FIGURES names, for the documentation.
pub fn note_figure(name: &str, value: f64) {
    println!("{name}: {value:.4}");
    let Ok(path) = std::env::var("BENTPIPE_FIGURES") else { return };
    let mut file = fs::File::options().append(true).create(true).open(path).expect("the file of figures");
    let line = serde_json::json!({ name: value });
    writeln!(file, "{line}").expect("a line");
}

/// Serves a port of both server addresses: calls `serve` for each connection.
pub fn serve(servers: &Namespace, port: u16, serve: fn(TcpStream)) {
    for address in SERVER {
        let address = SocketAddr::new(address.parse().expect("an address"), port);
        let (started, listening) = channel();
        servers.spawn(move || {
            let listener = TcpListener::bind(address).expect("a listener");
            started.send(()).expect("a receiver");
            for stream in listener.incoming().map_while(Result::ok) {
                stream.set_read_timeout(Some(LONG)).expect("a time-out");
                thread::spawn(move || serve(stream));
            }
        });
        listening.recv().expect("a listener");
    }
}

/// A running daemon and its output.
pub struct End {
    pub child: Child,
    lines: Receiver<String>,
    record: PathBuf,
}

impl End {
    pub fn start(namespace: &Namespace, config: &Path, record: PathBuf) -> Self {
        Self::start_with(namespace, config, record, Vec::new())
    }

    /// Starts it with more environment variables.
    pub fn start_with(
        namespace: &Namespace,
        config: &Path,
        record: PathBuf,
        environment: Vec<(&'static str, PathBuf)>,
    ) -> Self {
        let config = config.to_owned();
        let mut child = namespace.run(move || {
            let mut command = Command::new(BIN);
            command.arg("run").arg(config).stdin(Stdio::null()).stdout(Stdio::piped()).envs(environment);
            command.spawn().expect("the daemon")
        });
        let (sender, received) = channel();
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        thread::spawn(move || {
            lines.map_while(Result::ok).try_for_each(|line| sender.send(line).map_err(drop))
        });
        Self { child, lines: received, record }
    }

    /// Waits for a line that contains `word`.
    pub fn wait_for(&self, word: &str) {
        loop {
            match self.lines.recv_timeout(LONG) {
                Ok(line) if line.contains(word) => return,
                Ok(_) => {}
                Err(e @ (RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected)) => {
                    panic!("no line contains {word}: {e}")
                }
            }
        }
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).expect("a running process");
    }

    pub fn kill(&mut self, signal: Signal) -> bool {
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), signal);
        self.child.wait().is_ok_and(|status| status.success())
    }

    /// Number of its open descriptors.
    pub fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("its descriptors").count()
    }

    /// Memory in use [bytes].
    pub fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("its state");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("its memory");
        line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).expect("a number") * 1024
    }

    /// Stops it. Returns the last line of its record.
    pub fn finish(&mut self) -> Value {
        assert!(self.kill(Signal::SIGTERM), "it did not exit with success");
        let record = fs::read_to_string(&self.record).expect("its record");
        serde_json::from_str(record.lines().last().expect("a line")).expect("JSON")
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Servers ═ gateway ─ terminal ═ clients, with both daemons.
pub struct World {
    pub servers: Namespace,
    pub clients: Namespace,
    pub ends: [Namespace; 2],
    pub gateway: End,
    pub terminal: End,
    /// The return and the forward direction, if they have a delay.
    pub satellite: Option<[Satellite; 2]>,
    pub folder: PathBuf,
}

impl World {
    /// A world with `rate` towards the clients and another rate back; `gateway` adds to `[gateway]`. With the rate "link" it is
    /// the one sent to `modem`, at first 100 Mbit/s. `None` if this process may not create namespaces.
    pub fn new(name: &str, rate: &str, gateway: &str) -> Option<Self> {
        Self::over(name, rate, gateway, None)
    }

    /// A world with a satellite of this delay in each direction.
    pub fn over(name: &str, rate: &str, gateway: &str, delay: Option<Duration>) -> Option<Self> {
        Self::over_rate(name, rate, gateway, delay, None)
    }

    /// A world with a satellite of this delay in each direction, whose forward direction has a rate [bit/s].
    pub fn over_rate(
        name: &str,
        rate: &str,
        gateway: &str,
        delay: Option<Duration>,
        forward: Option<f64>,
    ) -> Option<Self> {
        let [servers, one, other, clients] =
            [Namespace::new()?, Namespace::new()?, Namespace::new()?, Namespace::new()?];
        servers.join("out", &one, "in0", 1);
        one.join("sat", &other, "sat", 2);
        other.join("tc0", &clients, "in0", 3);
        for (namespace, via, via6) in [(&servers, "10.1.0.2", "fd01::2"), (&clients, "10.3.0.1", "fd03::1")] {
            namespace.ip(&format!("route add default via {via}"));
            namespace.ip(&format!("-6 route add default via {via6}"));
        }
        // The path past the daemons.
        one.ip("route add 10.3.0.0/24 via 10.2.0.2");
        one.ip("-6 route add fd03::/64 via fd02::2");
        other.ip("route add 10.1.0.0/24 via 10.2.0.1");
        other.ip("-6 route add fd01::/64 via fd02::1");
        for namespace in [&one, &other] {
            namespace.sysctl("net/ipv4/ip_forward", "1");
            namespace.sysctl("net/ipv6/conf/all/forwarding", "1");
        }
        let satellite = delay.map(|delay| {
            [(&one, None), (&other, forward)].map(|(end, rate)| Satellite::with_rate(end, "sat", delay, rate))
        });
        let folder = std::env::temp_dir().join(format!("bentpipe-relay-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        let made = Command::new(BIN).arg("keygen").arg(folder.join("keys")).stdout(Stdio::null()).status();
        assert!(made.expect("keygen").success());
        let both = format!(
            "[gateway]\nregulator = {{ rate = \"{rate}\" }}\n{gateway}\n[satellite]\nkeys = \"keys\"\nround_trip = \"{} ms\"\n\
             rate = \"100 Mbps\"\n",
            delay.map_or(20, |delay| 2 * delay.as_millis())
        );
        let prefixes = "clients = [\"10.3.0.0/24\", \"fd03::/64\"]\n";
        let told = rate == "link" && !gateway.contains("estimate");
        let modem = if told { "modem = \"modem\"\n" } else { "" };
        let text = format!(
            "role = \"gateway\"\n{both}{modem}local = \"10.2.0.1:4400\"\npeer = \"10.2.0.2:4400\"\n[internet]\ndevice = \"in0\"\n\
             {prefixes}[record]\nfile = \"gateway.jsonl\"\n"
        );
        fs::write(folder.join("gateway.toml"), text).expect("a file");
        let text = format!(
            "role = \"terminal\"\n{both}local = \"10.2.0.2:4400\"\npeer = \"10.2.0.1:4400\"\n[users]\ndevice = \"tc0\"\n\
             {prefixes}[record]\nfile = \"terminal.jsonl\"\n"
        );
        fs::write(folder.join("terminal.toml"), text).expect("a file");
        let start = |namespace, name: &str| {
            let record = folder.join(format!("{name}.jsonl"));
            End::start(namespace, &folder.join(format!("{name}.toml")), record)
        };
        let (gateway, terminal) = (start(&one, "gateway"), start(&other, "terminal"));
        for end in [&gateway, &terminal] {
            end.wait_for("up");
        }
        Some(Self { servers, clients, ends: [one, other], gateway, terminal, satellite, folder })
    }

    /// The gateway (0) or the terminal (1), as in `ends`.
    pub fn end(&mut self, place: usize) -> &mut End {
        if place == 0 { &mut self.gateway } else { &mut self.terminal }
    }

    /// Starts an end again after it has ended, with more environment variables.
    pub fn restart(&mut self, place: usize, environment: Vec<(&'static str, PathBuf)>) {
        let config = self.folder.join(["gateway.toml", "terminal.toml"][place]);
        let record = config.with_extension("jsonl");
        let started = End::start_with(&self.ends[place], &config, record, environment);
        started.wait_for("up");
        *self.end(place) = started;
    }

    /// Starts a terminal again after it has ended.
    pub fn restart_terminal(&mut self) {
        self.restart(1, Vec::new());
    }

    /// Changes the configuration of an end and reloads it.
    pub fn reload(&self, role: &str, change: impl FnOnce(String) -> String) {
        let path = self.folder.join(format!("{role}.toml"));
        let text = fs::read_to_string(&path).expect("its configuration");
        fs::write(&path, change(text)).expect("a file");
        let end = if role == "gateway" { &self.gateway } else { &self.terminal };
        kill(Pid::from_raw(end.child.id().cast_signed()), Signal::SIGHUP).expect("a running process");
    }

    /// Serves a port: calls `serve` for each connection.
    pub fn serve(&self, port: u16, serve: fn(TcpStream)) {
        self::serve(&self.servers, port, serve);
    }

    /// Opens a connection and runs something at the client's end.
    pub fn call<T: Send + 'static>(
        &self,
        server: &str,
        port: u16,
        what: impl FnOnce(TcpStream) -> T + Send + 'static,
    ) -> T {
        let address = SocketAddr::new(server.parse().expect("an address"), port);
        self.clients.run(move || {
            let stream = TcpStream::connect_timeout(&address, LONG).expect("a connection");
            stream.set_read_timeout(Some(LONG)).expect("a time-out");
            what(stream)
        })
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Length of [`answer`]'s answers [bytes].
const ANSWER: usize = 300_000;

/// Serves a connection: sends an answer for each byte.
pub fn answer(mut stream: TcpStream) {
    let mut asked = [0];
    while let Ok(1) = stream.read(&mut asked) {
        if stream.write_all(&bytes(u64::from(asked[0]), ANSWER)).is_err() {
            break;
        }
    }
}

/// Asks [`answer`] for an answer.
///
/// # Panics
/// If it has other bytes.
pub fn ask(stream: &mut TcpStream, which: u8) -> io::Result<()> {
    let mut found = vec![0; ANSWER];
    stream.write_all(&[which])?;
    stream.read_exact(&mut found)?;
    assert!(found == bytes(which.into(), ANSWER), "an answer has other bytes");
    Ok(())
}

/// Reproducible bytes without repetition.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::stream(seed, "bytes", 0, "test");
    (0..len.div_ceil(8)).flat_map(|_| rng.below(u64::MAX).to_le_bytes()).take(len).collect()
}

pub fn read_all(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).expect("all of it");
    all
}
