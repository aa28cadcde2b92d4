//! A gateway with eight terminals in network namespaces, and terminals without room or without a daemon: what happens to one
//! does not touch the others.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use bentpipe_spacelink::keygen;
use nix::sys::signal::Signal;

use crate::ends::beam::{Beam, Downloads, Terminal, metrics, serve_endless};
use crate::ends::{BIN, End, LONG, SERVER, note_figure, serve, wait_until};
use crate::prometheus::Parsed;

/// Maximum deviation of a terminal from its share of the carrier.
const TOLERANCE: f64 = 0.01;
/// Bytes that one terminal receives in a measurement. What waits in sockets and buffers is a few KB more or less.
const MEASURED: u64 = 2_000_000;

/// Bytes on the wire to each terminal so far.
fn sent(metrics: &Parsed, terminals: usize) -> Vec<f64> {
    (0..terminals)
        .map(|n| metrics.value("bentpipe_terminal_sent_bytes_total", &[("terminal", &format!("t{n}"))]))
        .collect()
}

/// Shares of the carrier and of what clients receive, over the same bytes. Time does not count: on a busy machine all have less
/// of it.
fn shares(beam: &Beam, downloads: &Downloads, witness: usize) -> (Vec<f64>, Vec<f64>) {
    let terminals = beam.terminals.len();
    let before = sent(&metrics(&beam.host), terminals);
    let received = downloads.wait(witness, MEASURED);
    let after = sent(&metrics(&beam.host), terminals);
    let wire: Vec<f64> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
    let share = |all: &[f64]| -> Vec<f64> {
        let sum: f64 = all.iter().sum();
        all.iter().map(|bytes| bytes / sum).collect()
    };
    (share(&wire), share(&received.iter().map(|bytes| *bytes as f64).collect::<Vec<_>>()))
}

/// Checks that each of the shares, on the wire and received, is an equal one. Notes the greatest deviation [%].
fn assert_equal(what: &str, (wire, received): (&[f64], &[f64])) {
    let deviations = |shares: &[f64]| -> Vec<f64> {
        let sum: f64 = shares.iter().sum();
        shares.iter().map(|share| share / sum * shares.len() as f64 - 1.0).collect()
    };
    let all = [deviations(wire), deviations(received)].concat();
    let most = all.iter().fold(0f64, |most, deviation| most.max(deviation.abs()));
    note_figure(what, 100.0 * most);
    assert!(most <= TOLERANCE, "{what}: on the wire and received {all:.4?}");
}

/// Sends UDP to the client of terminal `n` at some 50 Mbit/s until told to stop: on a busy machine less, but more than the
/// carrier has for it.
fn flood(beam: &Beam, n: usize) -> (Arc<AtomicBool>, thread::JoinHandle<()>) {
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, client) = (Arc::clone(&stop), format!("{}:9", beam.terminals[n].addresses[0]));
    let flooding = beam.servers.spawn(move || {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        while !stopped.load(Ordering::Relaxed) {
            for _ in 0..10 {
                // The client's host answers that nobody listens.
                let _ = socket.send_to(&[0; 1200], &client);
            }
            thread::sleep(Duration::from_millis(2));
        }
    });
    (stop, flooding)
}

/// A hundred plans; a reload doubles their weights.
fn plans(weight: u32) -> String {
    let plans = (0..100).map(|n| format!("[plan.p{n}]\nweight = {weight}\npir = \"{} Mbps\"\n", 40 + n));
    format!("queues_per = \"terminal\"\n{}", plans.collect::<String>())
}

/// Adds files of terminals that never connect.
fn add_absent(beam: &Beam, numbers: std::ops::Range<usize>) {
    let folder = beam.folder.join("terminals");
    for n in numbers {
        keygen(&folder, &format!("x{n}"), false).expect("keys");
        let text = format!("certificate = \"x{n}.crt\"\nclients = [\"10.64.1.{n}/32\"]\nplan = \"p{n}\"\n");
        fs::write(folder.join(format!("x{n}.toml")), text).expect("a file");
    }
}

/// Seven terminals download over two connections each; the carrier has 40 Mbit/s. Then an eighth is flooded, a reload changes
/// a hundred plans and adds 92 terminals, and one terminal is killed. Each other terminal always has its equal share of the
/// carrier, its clients receive that share, and every byte of their connections comes.
#[test]
fn eight_terminals_keep_their_shares_in_a_flood_a_reload_and_a_kill() {
    let files: Vec<_> = (0..8).map(|n| format!("plan = \"p{n}\"")).collect();
    let files: Vec<_> = files.iter().map(String::as_str).collect();
    let Some(mut beam) = Beam::new("eight", "40 Mbps", &plans(1), &files) else { return };
    serve_endless(&beam);
    let downloads = Downloads::new(8);
    (0..7).for_each(|n| downloads.start(&beam, n, 2));
    // Until slow start is over everywhere.
    (0..7).for_each(|n| drop(downloads.wait(n, 500_000)));
    let (wire, goodput) = shares(&beam, &downloads, 0);
    assert_equal("share_alone", (&wire[..7], &goodput[..7]));

    let (stop, flooding) = flood(&beam, 7);
    let flooded = |beam: &Beam| {
        metrics(&beam.host).value("bentpipe_terminal_queue_bytes", &[("terminal", "t7")]) > 100_000.0
    };
    wait_until("the flooded terminal's queue is long", || flooded(&beam));
    let (wire, goodput) = shares(&beam, &downloads, 0);
    assert_equal("share_flood", (&wire, &goodput[..7]));

    add_absent(&beam, 8..100);
    let path = beam.folder.join("gateway.toml");
    let text = fs::read_to_string(&path).expect("the configuration");
    fs::write(&path, text.replace(&plans(1), &plans(2))).expect("a file");
    beam.gateway.signal(Signal::SIGHUP);
    wait_until("a hundred terminals", || beam.status().len() == 100);
    let (wire, goodput) = shares(&beam, &downloads, 0);
    assert_equal("share_reload", (&wire, &goodput[..7]));
    assert_eq!(downloads.ended(), [0; 8], "connections ended before the kill");

    beam.terminals[6].end.kill(Signal::SIGKILL);
    beam.gateway.wait_for("\"terminal\":\"t6\"");
    let (wire, goodput) = shares(&beam, &downloads, 0);
    let others = [&wire[..6], &wire[7..]].concat();
    assert_equal("share_kill", (&others, &goodput[..6]));
    assert!(wire[6] <= TOLERANCE, "the killed terminal still takes {} of the carrier", wire[6]);
    wait_until("the killed terminal's connections are reset", || downloads.ended()[6] == 2);
    assert_eq!(downloads.ended(), [0, 0, 0, 0, 0, 0, 2, 0], "connections ended by the kill");

    let last = metrics(&beam.host);
    for n in [0, 1, 2, 3, 4, 5] {
        let lost = last.value("bentpipe_terminal_lost_packets_total", &[("terminal", &format!("t{n}"))]);
        assert_eq!(lost, 0.0, "packets of the spacelink to terminal {n} were lost");
    }
    stop.store(true, Ordering::Relaxed);
    flooding.join().expect("no panic");
}

/// Answers each byte.
fn answer(mut stream: TcpStream) {
    let mut byte = [0];
    while let Ok(1) = stream.read(&mut byte) {
        if stream.write_all(&byte).is_err() {
            return;
        }
    }
}

/// Opens a connection from the client of terminal `n`, which has carried a byte both ways.
fn open(beam: &Beam, n: usize, version: usize) -> TcpStream {
    let opened = beam.call(n, (SERVER[version], 80), |mut stream| {
        ask(&mut stream);
        stream
    });
    opened.join().expect("an answer")
}

fn ask(stream: &mut TcpStream) {
    stream.write_all(b"?").expect("a write");
    stream.read_exact(&mut [0]).expect("an answer");
}

/// Split connections of terminal `n`.
fn connections(beam: &Beam, n: usize) -> u64 {
    let rows = beam.status();
    let row = rows.iter().find(|row| row["terminal"] == format!("t{n}")).expect("a row");
    row["connections"].as_u64().expect("a number")
}

fn is_bypassing(beam: &Beam, n: usize) -> bool {
    metrics(&beam.terminals[n].host).value("bentpipe_bypass", &[]) == 1.0
}

/// With `connections = 20` a terminal has room for 18. Further ones are not split, and work; the other terminal's are split.
/// Once there is room again, new connections are split again.
#[test]
fn connections_above_a_terminals_limit_bypass_the_pep() {
    let Some(beam) = Beam::new("room", "40 Mbps", "connections = 20\n", &["", ""]) else { return };
    serve(&beam.servers, 80, answer);
    // Metrics are those of the last sample, which may be older than the spacelink.
    wait_until("both terminals split", || !is_bypassing(&beam, 0) && !is_bypassing(&beam, 1));
    let mut split: Vec<_> = (0..18).map(|_| open(&beam, 0, 0)).collect();
    wait_until("the terminal bypasses the PEP", || is_bypassing(&beam, 0));
    let mut further: Vec<_> = (0..30).map(|n| open(&beam, 0, n % 2)).collect();
    let others: Vec<_> = (0..5).map(|_| open(&beam, 1, 0)).collect();
    wait_until("the other terminal's connections are counted", || connections(&beam, 1) == 5);
    assert_eq!(connections(&beam, 0), 18, "connections were split above the limit");
    assert!(!is_bypassing(&beam, 1), "the other terminal bypasses the PEP");
    split.truncate(10);
    wait_until("the PEP splits again", || !is_bypassing(&beam, 0));
    split.push(open(&beam, 0, 1));
    wait_until("a further connection is split", || connections(&beam, 0) == 11);
    // Each continues as it began.
    further.iter_mut().chain(&mut split).for_each(ask);
    drop(others);
}

/// One terminal's daemon is killed, and its rules are removed as its unit does. Its users' new connections and datagrams pass
/// both ends, while the other terminal's connections are split; a new daemon splits again. An address behind no terminal is
/// unreachable.
#[test]
fn users_of_a_lost_terminal_are_routed_past_the_gateway() {
    let Some(mut beam) = Beam::new("lost", "40 Mbps", "queues_per = \"terminal\"\n", &["", ""]) else {
        return;
    };
    serve(&beam.servers, 80, answer);
    let mut kept = open(&beam, 0, 0);
    let mut broken = open(&beam, 1, 1);
    beam.terminals[1].end.kill(Signal::SIGKILL);
    let config = beam.folder.join("t1.toml");
    let path = config.clone();
    beam.terminals[1].host.run(move || {
        assert!(Command::new(BIN).arg("cleanup").arg(path).status().expect("the program").success());
    });
    beam.gateway.wait_for("\"terminal\":\"t1\"");
    let end = broken.read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(end, Err(ErrorKind::ConnectionReset));
    let mut past = [0, 1].map(|version| open(&beam, 1, version));
    for version in [0, 1] {
        let terminal = &beam.terminals[1];
        let (server, to) = udp_server(&beam, version);
        let from = SocketAddr::new(terminal.addresses[version].parse().expect("an address"), 7000);
        let client = terminal.clients.run(move || {
            let socket = UdpSocket::bind(from).expect("a socket");
            socket.set_read_timeout(Some(LONG)).expect("a time-out");
            socket.send_to(b"hello", to).expect("a datagram");
            socket
        });
        let mut buffer = [0; 100];
        let (count, source) = server.recv_from(&mut buffer).expect("a datagram");
        assert_eq!((&buffer[..count], source), (&b"hello"[..], from));
        server.send_to(b"welcome", source).expect("a datagram");
        let count = client.recv(&mut buffer).expect("a datagram");
        assert_eq!(&buffer[..count], b"welcome");
    }
    ask(&mut kept);
    let also = open(&beam, 0, 1);
    let is_split = || (connections(&beam, 0), connections(&beam, 1)) == (2, 0);
    wait_until("only the other terminal's connections are split", is_split);

    for address in ["10.66.0.2:9", "[fd66::2]:9"] {
        let address = address.parse().expect("an address");
        let failed =
            beam.servers.run(move || TcpStream::connect_timeout(&address, LONG)).expect_err("nobody");
        let unreachable = [ErrorKind::HostUnreachable, ErrorKind::NetworkUnreachable];
        assert!(unreachable.contains(&failed.kind()), "{address}: {failed}");
    }

    beam.terminals[1].end = End::start(&beam.terminals[1].host, &config, beam.folder.join("t1.jsonl"));
    beam.terminals[1].end.wait_for("up");
    beam.gateway.wait_for("\"terminal\":\"t1\"");
    let again = open(&beam, 1, 0);
    wait_until("a connection is split again", || connections(&beam, 1) == 1);
    // Connections that began past the gateway go on through its tunnel.
    past.iter_mut().for_each(ask);
    drop((kept, also, again));
}

/// A terminal claims the prefixes of its neighbour, and a user there sends from a neighbour's address. The gateway drops and counts
/// these datagrams and refuses the connections; it serves the terminal's own addresses and the neighbour as before.
#[test]
fn packets_from_another_terminals_addresses_are_dropped_and_counted() {
    const FORGED: u64 = 5;
    let Some(mut beam) = Beam::new("foreign", "40 Mbps", "", &["", ""]) else { return };
    serve(&beam.servers, 80, answer);
    let mut neighbours = open(&beam, 1, 0);
    beam.terminals[0].end.kill(Signal::SIGTERM);
    beam.gateway.wait_for("\"terminal\":\"t0\"");
    let config = beam.folder.join("t0.toml");
    let text = fs::read_to_string(&config).expect("the configuration");
    let own = r#"clients = ["10.64.0.0/24", "fd64::/64"]"#;
    assert!(text.contains(own));
    let claimed = r#"clients = ["10.64.0.0/24", "fd64::/64", "10.65.0.0/24", "fd65::/64"]"#;
    fs::write(&config, text.replace(own, claimed)).expect("a file");
    let Terminal { host, clients, .. } = &beam.terminals[0];
    let forged = ["10.65.0.9", "fd65::9"];
    clients.ip(&format!("addr add {}/32 dev in0", forged[0]));
    clients.ip(&format!("-6 addr add {}/128 dev in0 nodad", forged[1]));
    host.ip("route add 10.65.0.0/24 via 10.64.0.2");
    host.ip("-6 route add fd65::/64 via fd64::2");
    for name in ["all", "tc0"] {
        host.sysctl(&format!("net/ipv4/conf/{name}/rp_filter"), "0");
    }
    beam.terminals[0].end = End::start(&beam.terminals[0].host, &config, beam.folder.join("t0.jsonl"));
    beam.terminals[0].end.wait_for("up");
    beam.gateway.wait_for("\"terminal\":\"t0\"");

    let Terminal { clients, addresses, .. } = &beam.terminals[0];
    for version in [0, 1] {
        let (server, to) = udp_server(&beam, version);
        let [forged, own] = [forged[version], &addresses[version]]
            .map(|address| SocketAddr::new(address.parse().expect("an address"), 7000));
        clients.run(move || {
            // Datagrams of one terminal stay in order, so the last one arrives after all others.
            for (from, count) in [(forged, FORGED), (own, 1)] {
                let socket = UdpSocket::bind(from).expect("a socket");
                for _ in 0..count {
                    socket.send_to(b"hello", to).expect("a datagram");
                }
            }
        });
        let (_, source) = server.recv_from(&mut [0; 100]).expect("a datagram");
        assert_eq!(source, own, "a datagram from a neighbour's address passed the gateway");
    }

    let routes = ["route replace default via 10.64.0.1", "-6 route replace default via fd64::1"];
    for (version, route) in routes.iter().enumerate() {
        clients.ip(&format!("{route} src {}", forged[version]));
        let from: IpAddr = forged[version].parse().expect("an address");
        let server = SocketAddr::new(SERVER[version].parse().expect("an address"), 80);
        // The reset arrives while the socket connects, or after that.
        let refused = clients.spawn(move || {
            let connected = TcpStream::connect_timeout(&server, LONG);
            let read = connected.and_then(|mut stream| {
                assert_eq!(stream.local_addr().expect("an address").ip(), from);
                let _ = stream.write_all(b"?");
                stream.read(&mut [0])
            });
            read.map_err(|error| error.kind())
        });
        assert_eq!(refused.join().expect("an end"), Err(ErrorKind::ConnectionReset));
        clients.ip(&format!("{route} src {}", addresses[version]));
    }
    let mut own = [0, 1].map(|version| open(&beam, 0, version));
    own.iter_mut().for_each(ask);
    ask(&mut neighbours);
    let counters = &beam.gateway.finish()["counters"];
    // The terminal's own host sends some more through the tunnel, such as router solicitations from link-local addresses.
    assert!(counters["foreign"].as_u64() >= Some(2 * FORGED), "{counters}");
    assert_eq!(counters["refused"], 2, "{counters}");
}

/// A UDP socket of the server, and its address.
fn udp_server(beam: &Beam, version: usize) -> (UdpSocket, SocketAddr) {
    let address = SocketAddr::new(SERVER[version].parse().expect("an address"), 9000);
    let socket = beam.servers.run(move || UdpSocket::bind(address).expect("a socket"));
    socket.set_read_timeout(Some(LONG)).expect("a time-out");
    (socket, address)
}
