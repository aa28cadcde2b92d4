//! A gateway with several terminals in network namespaces: servers ═ gateway ─ terminals ═ clients of each.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::satellite::now;
use super::{BIN, End, LONG, METRICS, SERVER, serve};
use crate::common::Namespace;
use crate::prometheus::{Parsed, parse};

/// A terminal with its users.
pub struct Terminal {
    /// Its host, and that of its users.
    pub host: Namespace,
    pub clients: Namespace,
    /// The client's addresses.
    pub addresses: [String; 2],
    pub end: End,
}

/// Servers ═ gateway ─ terminals ═ clients of each.
pub struct Beam {
    pub servers: Namespace,
    pub host: Namespace,
    pub gateway: End,
    pub terminals: Vec<Terminal>,
    pub folder: PathBuf,
}

/// Numbers of the first networks between gateway and terminal, and between terminal and clients.
const SATELLITE: u8 = 20;
const USERS: u8 = 64;
/// Prefixes of all users: 10.64.0.0/24 to 10.71.0.0/24, fd64::/64 to fd71::/64.
const ALL_USERS: &str = r#"["10.64.0.0/13", "fd64::/14", "fd68::/13", "fd70::/15"]"#;
/// The metrics of a daemon on `host`.
pub fn metrics(host: &Namespace) -> Parsed {
    parse(&host.get("/metrics"))
}

impl Beam {
    /// Terminals t0, t1, …, at most eight, with clients 10.64.0.2, 10.65.0.2, …; `more` adds to the gateway's `[terminals]`, and
    /// `plans` to the file of each terminal. `None` if this process may not create namespaces.
    pub fn new(name: &str, rate: &str, more: &str, plans: &[&str]) -> Option<Self> {
        let folder = std::env::temp_dir().join(format!("bentpipe-beam-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("terminals")).expect("a folder");
        let keygen = |folder: &str, name: &str, at: &PathBuf| {
            let made =
                Command::new(BIN).arg("keygen").arg(at.join(folder)).arg(name).stdout(Stdio::null()).status();
            assert!(made.expect("keygen").success());
        };
        keygen("keys", "gateway", &folder);
        let (servers, host) = (Namespace::new()?, Namespace::new()?);
        servers.join("out", &host, "in0", 1);
        servers.ip("route add default via 10.1.0.2");
        servers.ip("-6 route add default via fd01::2");
        host.sysctl("net/ipv4/ip_forward", "1");
        host.sysctl("net/ipv6/conf/all/forwarding", "1");
        let mut hosts = Vec::new();
        for (n, plan) in (0..).zip(plans) {
            let (satellite, users) = (SATELLITE + n, USERS + n);
            let (terminal, clients) = (Namespace::new()?, Namespace::new()?);
            host.join(&format!("sat{n}"), &terminal, "sat", satellite);
            terminal.join("tc0", &clients, "in0", users);
            clients.ip(&format!("route add default via 10.{users}.0.1"));
            clients.ip(&format!("-6 route add default via fd{users}::1"));
            host.ip(&format!("route add 10.{users}.0.0/24 via 10.{satellite}.0.2"));
            host.ip(&format!("-6 route add fd{users}::/64 via fd{satellite}::2"));
            terminal.ip(&format!("route add 10.1.0.0/24 via 10.{satellite}.0.1"));
            terminal.ip(&format!("-6 route add fd01::/64 via fd{satellite}::1"));
            terminal.sysctl("net/ipv4/ip_forward", "1");
            terminal.sysctl("net/ipv6/conf/all/forwarding", "1");
            let keys = format!("keys{n}");
            keygen(&keys, "terminal", &folder);
            fs::copy(folder.join("keys/gateway.crt"), folder.join(&keys).join("gateway.crt"))
                .expect("a copy");
            fs::copy(folder.join(&keys).join("terminal.crt"), folder.join(format!("terminals/t{n}.crt")))
                .expect("a copy");
            let text = format!(
                "certificate = \"t{n}.crt\"\nclients = [\"10.{users}.0.0/24\", \"fd{users}::/64\"]\n{plan}\n"
            );
            fs::write(folder.join(format!("terminals/t{n}.toml")), text).expect("a file");
            let text = format!(
                "role = \"terminal\"\n[gateway]\nregulator = {{ rate = \"{rate}\" }}\n[satellite]\nkeys = \"{keys}\"\n\
                 round_trip = \"20 ms\"\nrate = \"100 Mbps\"\nlocal = \"10.{satellite}.0.2:4400\"\n\
                 peer = \"10.{satellite}.0.1:4400\"\n[users]\ndevice = \"tc0\"\n\
                 clients = [\"10.{users}.0.0/24\", \"fd{users}::/64\"]\n[record]\nfile = \"t{n}.jsonl\"\n{METRICS}"
            );
            fs::write(folder.join(format!("t{n}.toml")), text).expect("a file");
            hosts.push((terminal, clients, [format!("10.{users}.0.2"), format!("fd{users}::2")]));
        }
        let text = format!(
            "role = \"gateway\"\n[gateway]\nregulator = {{ rate = \"{rate}\" }}\n[terminals]\nfolder = \"terminals\"\n{more}\n\
             [satellite]\nkeys = \"keys\"\nround_trip = \"20 ms\"\nlocal = \"0.0.0.0:4400\"\n[internet]\ndevice = \"in0\"\n\
             clients = {ALL_USERS}\n[record]\nfile = \"gateway.jsonl\"\n{METRICS}"
        );
        fs::write(folder.join("gateway.toml"), text).expect("a file");
        let start = |namespace: &Namespace, name: &str| {
            let record = folder.join(format!("{name}.jsonl"));
            End::start(namespace, &folder.join(format!("{name}.toml")), record)
        };
        let gateway = start(&host, "gateway");
        let terminals: Vec<_> = (0..)
            .zip(hosts)
            .map(|(n, (host, clients, addresses))| {
                let end = start(&host, &format!("t{n}"));
                Terminal { host, clients, addresses, end }
            })
            .collect();
        for terminal in &terminals {
            terminal.end.wait_for("up");
        }
        let beam = Self { servers, host, gateway, terminals, folder };
        for _ in &beam.terminals {
            beam.gateway.wait_for("up");
        }
        Some(beam)
    }

    /// The rows of `bentpipe-gateway status --json`.
    pub fn status(&self) -> Vec<Value> {
        let config = self.folder.join("gateway.toml");
        let output = self.host.run(move || {
            let mut command = Command::new(BIN);
            command.arg("status").arg(config).arg("--json").output().expect("the program")
        });
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let read: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        read["terminals"].as_array().expect("rows").clone()
    }

    /// Opens a connection from the client of terminal `n`, and runs something there.
    pub fn call<T: Send + 'static>(
        &self,
        n: usize,
        (server, port): (&str, u16),
        what: impl FnOnce(TcpStream) -> T + Send + 'static,
    ) -> thread::JoinHandle<T> {
        let address = SocketAddr::new(server.parse().expect("an address"), port);
        self.terminals[n].clients.spawn(move || {
            let stream = TcpStream::connect_timeout(&address, LONG).expect("a connection");
            stream.set_read_timeout(Some(LONG)).expect("a time-out");
            what(stream)
        })
    }
}

impl Drop for Beam {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Bytes that clients have received.
#[derive(Clone)]
pub struct Downloads {
    received: Arc<Vec<AtomicU64>>,
    /// Connections that were reset, by terminal.
    reset: Arc<Vec<AtomicU64>>,
}

impl Downloads {
    /// Counts for the clients of this many terminals.
    pub fn new(terminals: usize) -> Self {
        let zeros = || Arc::new((0..terminals).map(|_| AtomicU64::new(0)).collect());
        Self { received: zeros(), reset: zeros() }
    }

    /// Has the client of terminal `n` download without end, over several connections. Each byte is checked.
    pub fn start(&self, beam: &Beam, n: usize, connections: usize) {
        for _ in 0..connections {
            let ours = self.clone();
            drop(beam.call(n, (SERVER[0], 80), move |mut stream| {
                let (expected, mut buffer) = (endless(), vec![0; BLOCK]);
                let mut at = 0;
                // Until the connection is reset, at the latest with the daemons.
                while let Ok(count @ 1..) = stream.read(&mut buffer[..BLOCK - at]) {
                    if buffer[..count] != expected[at..at + count] {
                        break;
                    }
                    at = (at + count) % BLOCK;
                    ours.received[n].fetch_add(count as u64, Ordering::Relaxed);
                }
                ours.reset[n].fetch_add(1, Ordering::Relaxed);
            }));
        }
    }

    /// Bytes that the client of each terminal has received.
    pub fn bytes(&self) -> Vec<u64> {
        self.received.iter().map(|bytes| bytes.load(Ordering::Relaxed)).collect()
    }

    /// Connections of each terminal that have ended, or brought wrong bytes.
    pub fn ended(&self) -> Vec<u64> {
        self.reset.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// Waits until the client of terminal `n` has received `bytes` more. Returns what all received meanwhile.
    pub fn wait(&self, n: usize, bytes: u64) -> Vec<u64> {
        let (before, begin) = (self.bytes(), now());
        while self.bytes()[n] < before[n] + bytes {
            assert!(begin.elapsed() < LONG, "terminal {n} receives no more bytes");
            thread::sleep(Duration::from_millis(5));
        }
        self.bytes().iter().zip(&before).map(|(after, before)| after - before).collect()
    }
}

/// Length of the bytes that [`serve_endless`] repeats.
const BLOCK: usize = 1 << 16;

fn endless() -> Vec<u8> {
    super::bytes(5, BLOCK)
}

/// Serves data without end on port 80.
pub fn serve_endless(beam: &Beam) {
    serve(&beam.servers, 80, |mut stream| {
        let data = endless();
        while stream.write_all(&data).is_ok() {}
    });
}
