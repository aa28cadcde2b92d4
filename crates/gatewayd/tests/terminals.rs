//! A gateway with several terminals, in network namespaces: real TCP and UDP to the users of each.
#![allow(clippy::print_stdout, reason = "a test that cannot run says so")]

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::ends::beam::{Beam, Downloads, serve_endless};
use crate::ends::satellite::now;
use crate::ends::{End, SERVER, bytes, note_figure, read_all, serve, wait_until};

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
                socket.set_read_timeout(Some(Duration::from_secs(1))).expect("a time-out");
                let mut buffer = [0; 2000];
                // A daemon that had no processor for a while drops datagrams, as in an outage.
                let count = (0..60).find_map(|_| {
                    socket.send_to(b"hello", server).expect("a datagram");
                    socket.recv(&mut buffer).ok()
                });
                String::from_utf8_lossy(&buffer[..count.expect("an answer")]).into_owned()
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

/// The carrier has 20 Mbit/s. Terminal 0 has weight 1 and sixteen connections, terminal 1 weight 3 and one connection,
/// terminal 2 a peak rate of 2 Mbit/s: however many connections one opens, the others keep their shares. A reload swaps the
/// weights, and removes terminal 2, while connections of the others stay open.
#[test]
fn plans_share_the_carrier_whatever_load_a_terminal_has() {
    const PEAK: f64 = 2e6 / 8.0;
    let plans = "queues_per = \"terminal\"\n[plan.low]\nweight = 1\n[plan.high]\nweight = 3\n[plan.capped]\npir = \"2 Mbps\"\n";
    let files = ["plan = \"low\"", "plan = \"high\"", "plan = \"capped\""];
    let Some(mut beam) = Beam::new("plans", "20 Mbps", plans, &files) else { return };
    serve_endless(&beam);
    let begin = now();
    let downloads = Downloads::new(3);
    for (n, connections) in [(0, 16), (1, 1), (2, 4)] {
        downloads.start(&beam, n, connections);
    }
    // Until slow start is over everywhere.
    downloads.wait(1, 2_000_000);
    let [low, high, _] = downloads.wait(1, 5_000_000)[..] else { panic!("three terminals") };
    let ratio = high as f64 / low as f64;
    note_figure("weights", ratio);
    assert!((2.5..3.5).contains(&ratio), "weights 3 to 1 share as {ratio} to 1");
    // A busy machine only makes this less.
    let (bytes, time) = (downloads.bytes()[2] as f64, begin.elapsed().as_secs_f64());
    note_figure("peak", bytes * 8e-6 / time);
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
    let [low, high, capped] = downloads.wait(0, 5_000_000)[..] else { panic!("three terminals") };
    let ratio = low as f64 / high as f64;
    note_figure("weights_after_reload", ratio);
    assert!((2.5..3.5).contains(&ratio), "weights 9 to 3 share as {ratio} to 1");
    assert_eq!(capped, 0, "a removed terminal received bytes");
    let names: Vec<_> = beam.status().iter().map(|row| row["terminal"].to_string()).collect();
    assert_eq!(names, ["\"t0\"", "\"t1\""]);
    // The record has the removed terminal too, and all of them make up the totals.
    let last = beam.gateway.finish();
    let rows = last["terminals"].as_array().expect("rows");
    let mut names: Vec<_> = rows.iter().filter_map(|row| row["terminal"].as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["t0", "t1", "t2"]);
    for key in ["sent_packets", "sent_bytes"] {
        let sum: u64 = rows.iter().filter_map(|row| row[key].as_u64()).sum();
        assert_eq!(Some(sum), last["summary"][key].as_u64(), "{key}");
    }
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
