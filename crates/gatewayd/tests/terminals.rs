//! A gateway with several terminals, in network namespaces: real TCP and UDP to the users of each.
#![allow(clippy::print_stdout, reason = "a test that cannot run says so")]

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::common::Namespace;
use crate::ends::{BIN, End, LONG, SERVER, bytes, read_all};

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
    /// `count` terminals, t0, t1, …, at most four, with clients 10.6.0.2, 10.7.0.2, …; `gateway` adds to the gateway's
    /// `[gateway]`, and `plans` to the file of each terminal. `None` if this process may not create namespaces.
    fn new(name: &str, rate: &str, gateway: &str, plans: &[&str]) -> Option<Self> {
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
            "role = \"gateway\"\n[gateway]\nregulator = {{ rate = \"{rate}\" }}\n{gateway}\n[terminals]\nfolder = \"terminals\"\n\
             [satellite]\nkeys = \"keys\"\nround_trip = \"20 ms\"\nlocal = \"0.0.0.0:4400\"\n[internet]\ndevice = \"in0\"\n\
             clients = [\"10.6.0.0/15\", \"10.8.0.0/15\", \"fd06::/15\", \"fd08::/15\"]\n[record]\nfile = \"gateway.jsonl\"\n"
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

    /// Serves a port: calls `serve` for each connection.
    fn serve(&self, port: u16, serve: fn(TcpStream)) {
        for address in SERVER {
            let address = SocketAddr::new(address.parse().expect("an address"), port);
            let (started, listening) = channel();
            self.servers.spawn(move || {
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
    beam.serve(80, echo);
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
    while beam.gateway.descriptors() != before {
        thread::sleep(Duration::from_millis(10));
    }
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
    beam.serve(80, |mut stream| {
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
