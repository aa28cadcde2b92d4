//! A gateway with several terminals, in network namespaces: real TCP and UDP to the users of each.
#![allow(clippy::print_stdout, reason = "a test that cannot run says so")]

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::common::Namespace;
use crate::ends::satellite::now;
use crate::ends::{BIN, End, LONG, SERVER, bytes, read_all, serve, wait_until};

/// A terminal with its users.
struct Terminal {
    /// Its host, and that of its users.
    host: Namespace,
    clients: Namespace,
    /// The client's addresses.
    addresses: [String; 2],
    end: End,
}

/// Servers ═ gateway ─ terminals ═ clients of each.
struct Beam {
    servers: Namespace,
    host: Namespace,
    gateway: End,
    terminals: Vec<Terminal>,
    folder: PathBuf,
}

/// Numbers of the networks between gateway and terminal, and between terminal and clients.
const SATELLITE: u8 = 2;
const USERS: u8 = 6;

impl Beam {
    /// Terminals t0, t1, …, at most four, with clients 10.6.0.2, 10.7.0.2, …; `more` adds to the gateway's `[terminals]`, and
    /// `plans` to the file of each terminal. `None` if this process may not create namespaces.
    fn new(name: &str, rate: &str, more: &str, plans: &[&str]) -> Option<Self> {
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
            clients.ip(&format!("-6 route add default via fd0{users}::1"));
            host.ip(&format!("route add 10.{users}.0.0/24 via 10.{satellite}.0.2"));
            host.ip(&format!("-6 route add fd0{users}::/64 via fd0{satellite}::2"));
            terminal.ip(&format!("route add 10.1.0.0/24 via 10.{satellite}.0.1"));
            terminal.ip(&format!("-6 route add fd01::/64 via fd0{satellite}::1"));
            terminal.sysctl("net/ipv4/ip_forward", "1");
            terminal.sysctl("net/ipv6/conf/all/forwarding", "1");
            let keys = format!("keys{n}");
            keygen(&keys, "terminal", &folder);
            fs::copy(folder.join("keys/gateway.crt"), folder.join(&keys).join("gateway.crt"))
                .expect("a copy");
            fs::copy(folder.join(&keys).join("terminal.crt"), folder.join(format!("terminals/t{n}.crt")))
                .expect("a copy");
            let text = format!(
                "certificate = \"t{n}.crt\"\nclients = [\"10.{users}.0.0/24\", \"fd0{users}::/64\"]\n{plan}\n"
            );
            fs::write(folder.join(format!("terminals/t{n}.toml")), text).expect("a file");
            let text = format!(
                "role = \"terminal\"\n[gateway]\nregulator = {{ rate = \"{rate}\" }}\n[satellite]\nkeys = \"{keys}\"\n\
                 round_trip = \"20 ms\"\nrate = \"100 Mbps\"\nlocal = \"10.{satellite}.0.2:4400\"\n\
                 peer = \"10.{satellite}.0.1:4400\"\n[users]\ndevice = \"tc0\"\n\
                 clients = [\"10.{users}.0.0/24\", \"fd0{users}::/64\"]\n[record]\nfile = \"t{n}.jsonl\"\n"
            );
            fs::write(folder.join(format!("t{n}.toml")), text).expect("a file");
            hosts.push((terminal, clients, [format!("10.{users}.0.2"), format!("fd0{users}::2")]));
        }
        let text = format!(
            "role = \"gateway\"\n[gateway]\nregulator = {{ rate = \"{rate}\" }}\n[terminals]\nfolder = \"terminals\"\n{more}\n\
             [satellite]\nkeys = \"keys\"\nround_trip = \"20 ms\"\nlocal = \"0.0.0.0:4400\"\n[internet]\ndevice = \"in0\"\n\
             clients = [\"10.6.0.0/15\", \"10.8.0.0/15\", \"fd06::/15\", \"fd08::/15\"]\n[metrics]\nlisten = \"127.0.0.1:9180\"\ninterval = \"100 ms\"\nkeep = \"5 s\"\n"
        );
        // Only one queue can be recorded.
        let record = if more.contains("queues_per") { "" } else { "[record]\nfile = \"gateway.jsonl\"\n" };
        let text = text + record;
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
    fn status(&self) -> Vec<Value> {
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
    fn call<T: Send + 'static>(
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

const SENT: usize = 1_000_000;

/// Sends what the client sends back, after the client's address.
fn echo(mut stream: TcpStream) {
    let peer = stream.peer_addr().expect("a peer").ip().to_string();
    let mut other = stream.try_clone().expect("a copy");
    let back = thread::spawn(move || {
        other.write_all(format!("{peer}\n").as_bytes()).expect("a write");
        other.write_all(&bytes(2, SENT)).expect("a write");
        other.shutdown(Shutdown::Write).expect("a shutdown");
    });
    assert!(read_all(&mut stream) == bytes(1, SENT), "bytes to the server");
    back.join().expect("a sender");
}

/// TCP in both directions and UDP, over IPv4 and IPv6, from the users of three terminals at once: servers see each user's own
/// address, and bytes are unchanged.
#[test]
fn each_terminal_carries_the_traffic_of_its_own_users() {
    let Some(mut beam) = Beam::new("traffic", "100 Mbps", "", &["", "", ""]) else { return };
    let before = beam.gateway.descriptors();
    serve(&beam.servers, 80, echo);
    for version in [0, 1] {
        let calls: Vec<_> = (0..beam.terminals.len())
            .map(|n| {
                beam.call(n, (SERVER[version], 80), |mut stream| {
                    let mut other = stream.try_clone().expect("a copy");
                    let forth = thread::spawn(move || {
                        other.write_all(&bytes(1, SENT)).expect("a write");
                        other.shutdown(Shutdown::Write).expect("a shutdown");
                    });
                    let all = read_all(&mut stream);
                    forth.join().expect("a sender");
                    all
                })
            })
            .collect();
        for (call, terminal) in calls.into_iter().zip(&beam.terminals) {
            let all = call.join().expect("no panic");
            let (address, rest) = all.split_at(all.iter().position(|byte| *byte == b'\n').expect("a line"));
            assert_eq!(String::from_utf8_lossy(address), terminal.addresses[version]);
            assert!(rest[1..] == bytes(2, SENT), "bytes to the client");
        }
        let server = SocketAddr::new(SERVER[version].parse().expect("an address"), 9000);
        let (started, listening) = channel();
        beam.servers.spawn(move || {
            let socket = UdpSocket::bind(server).expect("a socket");
            started.send(()).expect("a receiver");
            let mut buffer = [0; 2000];
            while let Ok((count, from)) = socket.recv_from(&mut buffer) {
                let answer = format!("{} {}", from.ip(), String::from_utf8_lossy(&buffer[..count]));
                socket.send_to(answer.as_bytes(), from).expect("a datagram");
            }
        });
        listening.recv().expect("a socket");
        for terminal in &beam.terminals {
            let own = SocketAddr::new(terminal.addresses[version].parse().expect("an address"), 7000);
            let answer = terminal.clients.run(move || {
                let socket = UdpSocket::bind(own).expect("a socket");
                socket.set_read_timeout(Some(LONG)).expect("a time-out");
                socket.send_to(b"hello", server).expect("a datagram");
                let mut buffer = [0; 2000];
                let count = socket.recv(&mut buffer).expect("an answer");
                String::from_utf8_lossy(&buffer[..count]).into_owned()
            });
            assert_eq!(answer, format!("{} hello", own.ip()));
        }
    }
    // Both sides first have to learn that all was delivered.
    wait_until("all connections are closed", || beam.gateway.descriptors() == before);
    let last = beam.gateway.finish();
    let of = |key: &str| last["counters"][key].as_u64();
    assert_eq!((of("opened"), of("reset"), of("downs")), (Some(6), Some(0), Some(0)), "{last}");
    for terminal in &mut beam.terminals {
        let last = terminal.end.finish();
        assert_eq!(last["counters"]["opened"].as_u64(), Some(2), "{last}");
    }
    assert_eq!(beam.host.command("iptables-nft -t raw -S").matches("bentpipe").count(), 0, "rules are left");
}

/// kill -9 of a terminal in the middle of transfers to the users of three: its connections are reset, and those of the
/// others complete with every byte. A new process takes its place.
#[test]
fn a_killed_terminal_takes_only_its_own_connections() {
    let Some(mut beam) = Beam::new("killed", "20 Mbps", "", &["", "", ""]) else { return };
    const LENGTH: usize = 4_000_000;
    serve(&beam.servers, 80, |mut stream| {
        let _ = stream.write_all(&bytes(3, LENGTH));
    });
    let (begun, begin) = channel();
    let calls: Vec<_> = (0..3)
        .map(|n| {
            let begun = begun.clone();
            beam.call(n, (SERVER[0], 80), move |mut stream| {
                let mut all = vec![0; 10_000];
                stream.read_exact(&mut all).expect("the first bytes");
                begun.send(()).expect("a receiver");
                let end = stream.read_to_end(&mut all);
                (all, end.is_ok())
            })
        })
        .collect();
    for _ in 0..3 {
        begin.recv().expect("a transfer that has begun");
    }
    beam.terminals[1].end.kill(Signal::SIGKILL);
    beam.gateway.wait_for("\"terminal\":\"t1\"");
    for (n, call) in calls.into_iter().enumerate() {
        let (all, completed) = call.join().expect("no panic");
        if n == 1 {
            assert!(!completed, "the killed terminal's client got {} bytes and no reset", all.len());
        } else {
            assert!(completed && all == bytes(3, LENGTH), "terminal {n}: {} bytes", all.len());
        }
    }
    let path = beam.folder.join("t1.toml");
    beam.terminals[1].end = End::start(&beam.terminals[1].host, &path, beam.folder.join("t1.jsonl"));
    beam.terminals[1].end.wait_for("up");
    let all = beam.call(1, (SERVER[0], 80), |mut stream| read_all(&mut stream)).join().expect("no panic");
    assert!(all == bytes(3, LENGTH));
    let last = beam.gateway.finish();
    assert_eq!(last["counters"]["downs"].as_u64(), Some(1), "{last}");
}

/// Bytes that clients have received.
#[derive(Clone, Default)]
struct Downloads(Arc<[AtomicU64; 3]>);

impl Downloads {
    /// Has the client of terminal `n` download without end, over several connections.
    fn start(&self, beam: &Beam, n: usize, connections: usize) {
        for _ in 0..connections {
            let ours = self.clone();
            drop(beam.call(n, (SERVER[0], 80), move |mut stream| {
                let mut buffer = vec![0; 1 << 16];
                // Until the connection is reset, at the latest with the daemons.
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    ours.0[n].fetch_add(count as u64, Ordering::Relaxed);
                }
            }));
        }
    }

    fn bytes(&self) -> [u64; 3] {
        [0, 1, 2].map(|n| self.0[n].load(Ordering::Relaxed))
    }

    /// Waits until the client of terminal `n` has received `bytes` more. Returns what all received meanwhile.
    fn wait(&self, n: usize, bytes: u64) -> [u64; 3] {
        let (before, begin) = (self.bytes(), now());
        while self.bytes()[n] < before[n] + bytes {
            assert!(begin.elapsed() < LONG, "terminal {n} receives no more bytes");
            thread::sleep(Duration::from_millis(5));
        }
        let after = self.bytes();
        [0, 1, 2].map(|n| after[n] - before[n])
    }
}

/// Serves data without end on port 80.
fn serve_endless(beam: &Beam) {
    serve(&beam.servers, 80, |mut stream| {
        let data = vec![5; 1 << 16];
        while stream.write_all(&data).is_ok() {}
    });
}

/// The carrier has 20 Mbit/s. Terminal 0 has weight 1 and sixteen connections, terminal 1 weight 3 and one connection,
/// terminal 2 a peak rate of 2 Mbit/s: however many connections one opens, the others keep their shares. A reload swaps the
/// weights, and removes terminal 2, while connections of the others stay open.
#[test]
fn plans_share_the_carrier_whatever_load_a_terminal_has() {
    const PEAK: f64 = 2e6 / 8.0;
    let plans = "queues_per = \"terminal\"\n[plan.low]\nweight = 1\n[plan.high]\nweight = 3\n[plan.capped]\npir = \"2 Mbps\"\n";
    let files = ["plan = \"low\"", "plan = \"high\"", "plan = \"capped\""];
    let Some(beam) = Beam::new("plans", "20 Mbps", plans, &files) else { return };
    serve_endless(&beam);
    let begin = now();
    let downloads = Downloads::default();
    for (n, connections) in [(0, 16), (1, 1), (2, 4)] {
        downloads.start(&beam, n, connections);
    }
    // Until slow start is over everywhere.
    downloads.wait(1, 2_000_000);
    let [low, high, _] = downloads.wait(1, 5_000_000);
    let ratio = high as f64 / low as f64;
    println!("weights 3 to 1: bytes {ratio:.3} to 1");
    assert!((2.5..3.5).contains(&ratio), "weights 3 to 1 share as {ratio} to 1");
    // A busy machine only makes this less.
    let (bytes, time) = (downloads.bytes()[2] as f64, begin.elapsed().as_secs_f64());
    println!("peak rate 2 Mbit/s: {:.3} Mbit/s", bytes * 8e-6 / time);
    assert!(bytes <= PEAK * time + 15_000.0 + 1500.0, "{bytes} bytes in {time} s exceed the peak rate");
    assert!(bytes > 0.0);

    let rows = beam.status();
    let row = |name: &str| rows.iter().find(|row| row["terminal"] == name).expect("a row");
    for (name, connections) in [("t0", 16), ("t1", 1), ("t2", 4)] {
        assert_eq!(
            (row(name)["state"].as_str(), row(name)["connections"].as_u64()),
            (Some("up"), Some(connections))
        );
    }

    let path = beam.folder.join("gateway.toml");
    let text = fs::read_to_string(&path).expect("the configuration");
    let text = text.replace("weight = 1", "weight = 9").replace("weight = 3", "weight = 3 # low now");
    fs::write(&path, text).expect("a file");
    fs::remove_file(beam.folder.join("terminals/t2.toml")).expect("its file");
    beam.gateway.signal(Signal::SIGHUP);
    beam.gateway.wait_for("\"terminal\":\"t2\"");
    downloads.wait(0, 1_000_000);
    let [low, high, capped] = downloads.wait(0, 5_000_000);
    let ratio = low as f64 / high as f64;
    println!("weights 9 to 3: bytes {ratio:.3} to 1");
    assert!((2.5..3.5).contains(&ratio), "weights 9 to 3 share as {ratio} to 1");
    assert_eq!(capped, 0, "a removed terminal received bytes");
    let names: Vec<_> = beam.status().iter().map(|row| row["terminal"].to_string()).collect();
    assert_eq!(names, ["\"t0\"", "\"t1\""]);
}

/// A terminal that is added by a reload carries traffic, and transfers of others that are under way lose nothing.
#[test]
fn a_reload_under_load_adds_a_terminal_and_loses_nothing() {
    const LENGTH: usize = 6_000_000;
    let queues = "queues_per = \"terminal\"\n";
    let Some(mut beam) = Beam::new("reload", "20 Mbps", queues, &["", ""]) else { return };
    serve(&beam.servers, 80, |mut stream| {
        let _ = stream.write_all(&bytes(4, LENGTH));
    });
    let file = beam.folder.join("terminals/t1.toml");
    let text = fs::read_to_string(&file).expect("its file");
    fs::remove_file(&file).expect("its file");
    beam.gateway.signal(Signal::SIGHUP);
    beam.gateway.wait_for("\"terminal\":\"t1\"");
    let (begun, begin) = channel();
    let call = beam.call(0, (SERVER[0], 80), move |mut stream| {
        let mut all = vec![0; 10_000];
        stream.read_exact(&mut all).expect("the first bytes");
        begun.send(()).expect("a receiver");
        stream.read_to_end(&mut all).expect("all of it");
        all
    });
    begin.recv().expect("a transfer that has begun");
    fs::write(&file, text).expect("its file");
    beam.gateway.signal(Signal::SIGHUP);
    beam.gateway.wait_for("\"terminal\":\"t1\"");
    beam.terminals[1].end.wait_for("\"up\"");
    let other = beam.call(1, (SERVER[0], 80), |mut stream| read_all(&mut stream));
    assert!(call.join().expect("no panic") == bytes(4, LENGTH), "the transfer under way");
    assert!(
        other.join().expect("no panic") == bytes(4, LENGTH),
        "the transfer of the terminal that was added"
    );
    // An invalid file changes nothing.
    fs::write(&file, "certificate = 1\n").expect("its file");
    beam.gateway.signal(Signal::SIGHUP);
    let all = beam.call(1, (SERVER[0], 80), |mut stream| read_all(&mut stream)).join().expect("no panic");
    assert!(all == bytes(4, LENGTH), "after a reload that was refused");
    assert_eq!(beam.status().len(), 2);
    beam.terminals[0].end.kill(Signal::SIGTERM);
}
