//! Both ends of the gateway between servers and clients, in network namespaces: real TCP and UDP over a plain link.
#![allow(clippy::print_stdout, reason = "measurements are shown, and so is why a test cannot run")]

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use crate::common::retry;
use crate::ends::satellite::now;
use crate::ends::watch::Watch;
use crate::ends::{BIN, CLIENT, LONG, METRICS, SERVER, World, bytes, read_all, wait_until};
use bentpipe_gatewayd::intercept::inject::Injector;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::Pid;
use serde_json::Value;

/// Reads to the end. Returns true if that was a reset.
fn is_reset(mut stream: TcpStream) -> bool {
    let end = stream.read_to_end(&mut Vec::new());
    end.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset)
}

const SENT: usize = 3_000_000;

/// Both directions at once, over IPv4 and IPv6. The server sees the client's own address and port.
#[test]
fn bytes_are_unchanged_and_the_server_sees_the_client() {
    let Some(mut world) = World::new("bytes", "100 Mbps", "") else { return };
    let before = world.gateway.descriptors();
    world.serve(80, |mut stream| {
        let mut other = stream.try_clone().expect("a copy");
        let back = thread::spawn(move || {
            other.write_all(&bytes(2, SENT)).expect("a write");
            let peer = other.peer_addr().expect("a peer").to_string();
            other.write_all(peer.as_bytes()).expect("a write");
            other.shutdown(Shutdown::Write).expect("a shutdown");
        });
        assert!(read_all(&mut stream) == bytes(1, SENT), "bytes to the server");
        back.join().expect("a sender");
    });
    for (server, client) in SERVER.into_iter().zip(CLIENT) {
        let (local, all) = world.call(server, 80, |mut stream| {
            let mut other = stream.try_clone().expect("a copy");
            let forth = thread::spawn(move || {
                other.write_all(&bytes(1, SENT)).expect("a write");
                other.shutdown(Shutdown::Write).expect("a shutdown");
            });
            let all = read_all(&mut stream);
            forth.join().expect("a sender");
            (stream.local_addr().expect("an address"), all)
        });
        assert_eq!(local.ip().to_string(), client);
        assert!(all[..SENT] == bytes(2, SENT), "bytes to the client");
        assert_eq!(String::from_utf8_lossy(&all[SENT..]), local.to_string());
    }
    // Both sides first have to learn that all was delivered.
    wait_until("both connections are closed", || world.gateway.descriptors() == before);
    let last = world.gateway.finish();
    let of = |key: &str| last["counters"][key].as_u64();
    assert_eq!((of("opened"), of("closed"), of("reset")), (Some(2), Some(2), Some(0)), "{last}");
    assert_eq!(last["nfqueue"]["user_dropped"], 0);
    let sent = last["summary"]["sent_bytes"].as_u64().expect("a number");
    assert!(sent > 2 * SENT as u64, "{sent} bytes through the regulator");
}

/// Half-close, resets from either side, and a closed port are carried to the other side.
#[test]
fn half_close_and_resets_are_carried_through() {
    let Some(world) = World::new("ends", "100 Mbps", "") else { return };
    world.serve(80, |mut stream| {
        let asked = read_all(&mut stream);
        thread::sleep(Duration::from_millis(300));
        stream.write_all(&asked).expect("a write");
    });
    let answer = world.call(SERVER[0], 80, |mut stream| {
        stream.write_all(b"the last word").expect("a write");
        stream.shutdown(Shutdown::Write).expect("a shutdown");
        read_all(&mut stream)
    });
    assert_eq!(answer, b"the last word");

    fn reset(stream: TcpStream) {
        let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
        nix::sys::socket::setsockopt(&stream, nix::sys::socket::sockopt::Linger, &linger).expect("an option");
    }
    world.serve(81, |mut stream| {
        stream.read_exact(&mut [0; 5]).expect("a word");
        reset(stream);
    });
    let reset_seen = world.call(SERVER[0], 81, |mut stream| {
        stream.write_all(b"hello").expect("a write");
        is_reset(stream)
    });
    assert!(reset_seen, "the client sees the server's reset");

    // The server records whether it was reset, and tells the next client.
    static SERVER_RESET: std::sync::Mutex<Option<bool>> = std::sync::Mutex::new(None);
    world.serve(82, |mut stream| {
        stream.write_all(b"hello").expect("a write");
        *SERVER_RESET.lock().expect("no panic") = Some(is_reset(stream));
    });
    world.call(SERVER[0], 82, |mut stream| {
        stream.read_exact(&mut [0; 5]).expect("a word");
        reset(stream);
    });
    wait_until("the server sees the end of its connection", || {
        SERVER_RESET.lock().expect("no panic").is_some()
    });
    assert_eq!(*SERVER_RESET.lock().expect("no panic"), Some(true), "the server sees the client's reset");

    // The terminal accepts the connection before it can know.
    let address: SocketAddr = format!("{}:9", SERVER[0]).parse().expect("an address");
    let reset_seen = world.clients.run(move || match TcpStream::connect_timeout(&address, LONG) {
        Ok(stream) => stream.set_read_timeout(Some(LONG)).is_ok() && is_reset(stream),
        Err(e) => e.kind() == std::io::ErrorKind::ConnectionReset,
    });
    assert!(reset_seen, "the connection to a closed port is reset");
}

/// A thousand connections, opened and reset, leave no descriptor or memory behind.
#[test]
fn reset_connections_leave_nothing_behind() {
    const COUNT: usize = 1000;
    let Some(world) = World::new("abandoned", "100 Mbps", "") else { return };
    world.serve(80, |mut stream| drop(stream.read_to_end(&mut Vec::new())));
    let round = || {
        let address: SocketAddr = format!("{}:80", SERVER[0]).parse().expect("an address");
        world.clients.run(move || {
            let streams: Vec<_> = (0..COUNT)
                .map(|_| {
                    let mut stream = TcpStream::connect_timeout(&address, LONG).expect("a connection");
                    stream.write_all(b"hello").expect("a write");
                    stream
                })
                .collect();
            for stream in &streams {
                let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
                nix::sys::socket::setsockopt(stream, nix::sys::socket::sockopt::Linger, &linger)
                    .expect("an option");
            }
        });
        let mut left = [COUNT; 2];
        for _ in 0..2000 {
            left = [world.gateway.descriptors(), world.terminal.descriptors()];
            if left.iter().all(|left| *left < 30) {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        assert!(left.iter().all(|left| *left < 30), "{left:?} descriptors left");
        [world.gateway.memory(), world.terminal.memory()]
    };
    // The most that are open at once differ between rounds, and so does the memory they need, by up to 2 MB on a
    // busy machine. A kilobyte per connection that is not freed adds 10 MB in ten rounds.
    const ROUNDS: usize = 10;
    let first = round();
    let last = (0..ROUNDS).fold(first, |_, _| round());
    for (first, last) in first.into_iter().zip(last) {
        let limit = first + (ROUNDS * COUNT * 1024) as u64;
        assert!(last < limit, "{first} bytes after a round, {last} after {ROUNDS} more");
    }
}

/// Fifty users at once with one half-open connection allowed: the others wait or bypass the PEP, and none is refused.
#[test]
fn excess_handshakes_wait_or_bypass() {
    let Some(mut world) = World::new("fast", "20 Mbps", "[limits]\nhandshakes = 1") else { return };
    world.serve(80, |mut stream| drop(stream.write_all(&bytes(7, 1000))));
    let address: SocketAddr = format!("{}:80", SERVER[0]).parse().expect("an address");
    let got: Vec<_> = world.clients.run(move || {
        let user = move || {
            let mut stream = TcpStream::connect_timeout(&address, LONG).expect("a connection");
            stream.set_read_timeout(Some(LONG)).expect("a time-out");
            read_all(&mut stream)
        };
        let users: Vec<_> = (0..50).map(|_| thread::spawn(user)).collect();
        users.into_iter().map(|user| user.join().expect("served")).collect()
    });
    assert!(got.iter().all(|got| *got == bytes(7, 1000)));
    let counters = &world.gateway.finish()["counters"];
    assert_eq!(counters["refused"], 0);
    assert!(counters["opened"].as_u64().is_some_and(|opened| opened > 1), "{counters}");
}

/// Datagrams at three times the satellite's rate: they arrive at that rate, the AQM drops the rest, and the queue stays
/// within its target.
#[test]
fn datagrams_are_limited_by_the_aqm() {
    const RATE: f64 = 4e6;
    let aqm =
        format!("aqm = {{ algorithm = \"red\" }}\ntransmit_queue = {{ limit = \"400 packets\" }}\n{METRICS}");
    let Some(mut world) = World::new("datagrams", "4 Mbps", &aqm) else { return };
    let watch = Watch::start(&world);
    let mut all_stalled = 0.0;
    for (server, client) in SERVER.into_iter().zip(CLIENT) {
        let server = SocketAddr::new(server.parse().expect("an address"), 7);
        let client = SocketAddr::new(client.parse().expect("an address"), 7007);
        let (ready, bound) = channel();
        let receiver = world.clients.spawn(move || {
            let socket = crate::common::bound(|| UdpSocket::bind(client));
            ready.send(()).expect("a receiver");
            socket.set_read_timeout(Some(Duration::from_millis(1000))).expect("a time-out");
            let (mut got, mut first, mut last, mut buffer) = (0, None, None, [0; 2000]);
            while let Ok(len) = retry(|| socket.recv(&mut buffer)) {
                #[expect(clippy::disallowed_methods, reason = "a test on real links has real times")]
                let now = std::time::Instant::now();
                first.get_or_insert(now);
                last = Some(now);
                got += len + if client.is_ipv4() { 28 } else { 48 };
            }
            let time = first.zip(last).map_or(0.0, |(first, last)| (last - first).as_secs_f64());
            (got as f64 * 8.0, time)
        });
        bound.recv().expect("a bound socket");
        // Time that the sender lost because it waited for a processor [s]; the link may idle for as long.
        let stalled = world.servers.run(move || {
            let socket = crate::common::bound(|| UdpSocket::bind(server));
            // 8000 bytes in 5.333 ms are 12 Mbit/s, for two seconds.
            const BATCH: Duration = Duration::from_micros(5333);
            #[expect(clippy::disallowed_methods, reason = "a test on real links has real times")]
            let begin = std::time::Instant::now();
            let (mut before, mut stalled) = (Duration::ZERO, Duration::ZERO);
            for i in 1..=400 {
                for _ in 0..8 {
                    socket.send_to(&[7; 1000], client).expect("a write");
                }
                // Catches up after a delay.
                thread::sleep((i * BATCH).saturating_sub(begin.elapsed()));
                stalled += (begin.elapsed() - before).saturating_sub(2 * BATCH);
                before = begin.elapsed();
            }
            stalled.as_secs_f64()
        });
        let (bits, time) = receiver.join().expect("no panic");
        let stalled = stalled + watch.stalled().as_secs_f64();
        all_stalled += stalled;
        assert!(bits < RATE * time, "{bits} bits in {time} s");
        assert!(
            bits > 0.85 * RATE * (time - stalled),
            "{bits} bits in {time} s, {stalled} s of them without the sender or a daemon"
        );
    }
    let last = world.gateway.finish();
    let summary = &last["summary"];
    let dropped = summary["aqm_drops"].as_f64().expect("a number");
    let offered = summary["offered_packets"].as_f64().expect("a number");
    assert!(dropped > 0.4 * offered && dropped < 0.8 * offered, "{dropped} of {offered} dropped");
    // A daemon that is late misses what arrives meanwhile.
    let elsewhere = summary["drops_elsewhere"].as_f64().expect("a number");
    assert!(elsewhere <= 1500.0 * all_stalled, "{elsewhere} dropped elsewhere, {all_stalled} s late");
}

/// A killed terminal leaves its rules; the next start, or `cleanup`, removes them. Meanwhile everything bypasses both ends.
/// The gateway notices a restarted terminal and a missing one.
#[test]
fn a_killed_terminal_is_bypassed_until_it_restarts() {
    let Some(mut world) = World::new("killed", "100 Mbps", "") else { return };
    world.serve(80, |mut stream| {
        let asked = read_all(&mut stream);
        let _ = stream.write_all(&asked);
    });
    let echo = |world: &World| {
        world.call(SERVER[0], 80, |mut stream| {
            stream.write_all(b"hello").expect("a write");
            stream.shutdown(Shutdown::Write).expect("a shutdown");
            read_all(&mut stream)
        })
    };
    assert_eq!(echo(&world), b"hello");
    world.terminal.kill(Signal::SIGKILL);
    world.restart_terminal();
    world.gateway.wait_for("down");
    world.gateway.wait_for("up");
    assert_eq!(echo(&world), b"hello");
    // An orderly end removes everything and tells the peer.
    assert!(world.terminal.kill(Signal::SIGTERM));
    world.gateway.wait_for("down");
    assert_eq!(world.ends[1].command("iptables-nft-save").matches("bentpipe").count(), 0);
    assert_eq!(echo(&world), b"hello", "past the daemons");
    world.restart_terminal();
    assert_eq!(echo(&world), b"hello");
    // Killed and not restarted: its host reports by ICMP that nobody listens.
    world.terminal.kill(Signal::SIGKILL);
    let config = world.folder.join("terminal.toml");
    world.ends[1].run(move || {
        assert!(Command::new(BIN).arg("cleanup").arg(config).status().expect("cleanup").success());
    });
    world.gateway.wait_for("does not listen");
    assert_eq!(echo(&world), b"hello", "past the daemons, once more");
    let counted = world.gateway.finish();
    assert_eq!(counted["counters"]["opened"], 3, "all but those that went past: {counted}");
}

/// A host cannot take a transfer for complete because an end was killed: its connection is reset, where an ordinary end would
/// look like the end of the data.
#[test]
fn a_killed_end_resets_its_connections() {
    static SERVER_READ: AtomicU64 = AtomicU64::new(0);
    static SERVER_RESET: std::sync::Mutex<Option<bool>> = std::sync::Mutex::new(None);
    let Some(mut world) = World::new("cut", "100 Mbps", "") else { return };
    world.serve(80, |mut stream| drop(stream.write_all(&bytes(1, 50_000_000))));
    world.serve(81, |mut stream| {
        stream.read_exact(&mut [0; 100_000]).expect("the first bytes");
        SERVER_READ.store(100_000, Ordering::Relaxed);
        *SERVER_RESET.lock().expect("no panic") = Some(is_reset(stream));
    });
    let (begun, has_begun) = channel();
    let download = world.clients.spawn(move || {
        let mut stream = TcpStream::connect((SERVER[0], 80)).expect("a connection");
        stream.set_read_timeout(Some(LONG)).expect("a time-out");
        stream.read_exact(&mut [0; 100_000]).expect("the first bytes");
        begun.send(()).expect("a test");
        is_reset(stream)
    });
    has_begun.recv().expect("a download");
    world.terminal.kill(Signal::SIGKILL);
    assert!(download.join().expect("a client"), "the client of a download");
    world.restart_terminal();
    world.gateway.wait_for("up");
    // The client keeps its connection open until the server has seen the end.
    let upload = world.call(SERVER[0], 81, |mut stream| {
        stream.write_all(&bytes(2, 200_000)).expect("the first bytes");
        stream
    });
    wait_until("the server has the first bytes", || SERVER_READ.load(Ordering::Relaxed) > 0);
    world.gateway.kill(Signal::SIGKILL);
    wait_until("the server sees an end", || SERVER_RESET.lock().expect("no panic").is_some());
    assert_eq!(*SERVER_RESET.lock().expect("no panic"), Some(true), "the server of an upload");
    drop(upload);
}

/// A satellite outage of nine seconds, with an AQM that drops everything while two packets wait, as two do throughout. A
/// download continues as soon as the link is back, and a connection requested before is not reset: its server's answer
/// arrives during the outage and passes.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test on real links has real times")]
fn connections_survive_an_outage() {
    use std::time::Instant;
    let more = "aqm = { algorithm = \"red\", min_th = 1, max_th = 2, w_q = 1.0, max_p = 1.0 }\n[tcp]\nconnect_timeout = \"8 s\"";
    let Some(mut world) = World::new("outage", "2 Mbps", more) else { return };
    // Its terminal sends without limit.
    let path = world.folder.join("terminal.toml");
    let text = fs::read_to_string(&path).expect("its configuration");
    fs::write(&path, text.replace("rate = \"100 Mbps\"\n", "")).expect("a file");
    assert!(world.terminal.kill(Signal::SIGTERM));
    world.gateway.wait_for("down");
    world.restart_terminal();
    world.gateway.wait_for("up");
    world.serve(80, |mut stream| {
        // BBR, if it is the default, would estimate a low rate.
        setsockopt(&stream, sockopt::TcpCongestion, &"reno".into()).expect("Reno, present in every kernel");
        let _ = stream.write_all(&bytes(8, 300_000));
    });
    world.serve(81, |mut stream| drop(stream.write_all(&bytes(9, 1000))));
    // Handshakes are retransmitted after one, three and seven seconds.
    world.servers.command("iptables-nft -A INPUT -p tcp --dport 81 -j DROP");
    let download = |port| {
        world.clients.spawn(move || {
            let mut stream = TcpStream::connect((SERVER[0], port)).expect("a connection");
            stream.set_read_timeout(Some(LONG)).expect("a time-out");
            (read_all(&mut stream), Instant::now())
        })
    };
    let (large, late) = (download(80), download(81));
    thread::sleep(Duration::from_millis(400));
    let satellite = |word| {
        for end in &world.ends {
            end.command(&format!("iptables-nft -t raw {word} PREROUTING -i sat -p udp -j DROP"));
        }
    };
    satellite("-A");
    thread::sleep(Duration::from_millis(1600));
    world.servers.command("iptables-nft -D INPUT -p tcp --dport 81 -j DROP");
    thread::sleep(Duration::from_secs(7));
    satellite("-D");
    let back = Instant::now();
    for (got, seed, len) in [(large, 8, 300_000), (late, 9, 1000)] {
        let (got, end) = got.join().expect("no panic");
        assert_eq!(got.len(), len);
        assert_eq!(got, bytes(seed, len));
        // The transfer takes 1.2 s; a server with a retransmission timeout would back off for as long again.
        let after = end.duration_since(back).as_secs_f64();
        assert!(after < 4.0, "{len} bytes {after} s after the outage");
    }
    let counters = &world.gateway.finish()["counters"];
    // Open connections are reset now.
    assert_eq!(
        (&counters["opened"], &counters["reset"]),
        (&2.into(), &counters["resets"]["stopped"]),
        "{counters}"
    );
    assert!(counters["aqm_bypassed"].as_u64().is_some_and(|packets| packets > 100), "{counters}");
    // The charge during an outage depends on the rate: nothing without a limit.
    let counters = &world.terminal.finish()["counters"];
    assert!(counters["charged_bytes"].as_u64().is_some_and(|charged| charged < 100_000), "{counters}");
}

/// A reload with another algorithm and twice the rate during a download: it continues, and every byte arrives.
#[test]
fn a_reload_keeps_connections() {
    let more = format!("aqm = {{ algorithm = \"red\" }}\n{METRICS}");
    let Some(world) = World::new("reload", "20 Mbps", &more) else { return };
    // The server sends the second half after the client has the first and the gateway has reloaded.
    static RELOADED: AtomicBool = AtomicBool::new(false);
    world.serve(80, |mut stream| {
        let all = bytes(5, 4_000_000);
        let _ = stream.write_all(&all[..2_000_000]);
        wait_until("it is reloaded", || RELOADED.load(Ordering::Relaxed));
        let _ = stream.write_all(&all[2_000_000..]);
    });
    let metrics = || world.ends[0].get("/metrics");
    let got = world.clients.spawn(|| {
        let mut stream = TcpStream::connect((SERVER[0], 80)).expect("a connection");
        stream.set_read_timeout(Some(LONG)).expect("a time-out");
        read_all(&mut stream)
    });
    let open = "bentpipe_connections{state=\"open\"} 1\n";
    wait_until("the connection is open", || metrics().contains(open));
    let path = world.folder.join("gateway.toml");
    let text = fs::read_to_string(&path).expect("its configuration");
    fs::write(&path, text.replace("\"red\"", "\"avq\"").replace("20 Mbps", "40 Mbps")).expect("a file");
    kill(Pid::from_raw(world.gateway.child.id().cast_signed()), Signal::SIGHUP).expect("a running process");
    wait_until("another algorithm, another rate, and the same connection", || {
        let after = metrics();
        ["aqm=\"avq\"", "bentpipe_capacity_bytes_per_second 5000000\n", open]
            .iter()
            .all(|line| after.contains(line))
    });
    RELOADED.store(true, Ordering::Relaxed);
    assert!(got.join().expect("no panic") == bytes(5, 4_000_000));
    let after = metrics();
    assert!(after.contains("bentpipe_connections_total{event=\"reset\"} 0\n"), "{after}");
    assert!(after.contains("bentpipe_algorithm_state{owner=\"aqm\",name=\"virtual_capacity\"}"), "{after}");
}

/// A gateway whose regulator follows the satellite: the modem reports its rate, zero for a while, and a reload sets another.
/// Traffic to clients follows at once, and so does the return direction.
#[test]
fn the_rate_follows_the_modem_and_the_file() {
    let more = METRICS;
    let Some(world) = World::new("modem", "link", more) else { return };
    world.serve(80, |mut stream| while stream.write_all(&[7; 1 << 16]).is_ok() {});
    let (come, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (counter, stopped) = (Arc::clone(&come), Arc::clone(&stop));
    world.clients.spawn(move || {
        let mut stream = TcpStream::connect((SERVER[0], 80)).expect("a connection");
        stream.set_read_timeout(Some(LONG)).expect("a time-out");
        let mut buffer = vec![0; 1 << 16];
        while !stopped.load(Ordering::Relaxed) {
            let read = retry(|| stream.read(&mut buffer)).expect("more bytes");
            counter.fetch_add(read as u64, Ordering::Relaxed);
        }
    });
    // Bits per second, measured a little later: bytes released before have arrived by then.
    let rate = || {
        thread::sleep(Duration::from_millis(300));
        let (start, before) = (now(), come.load(Ordering::Relaxed));
        thread::sleep(Duration::from_millis(1000));
        (come.load(Ordering::Relaxed) - before) as f64 * 8.0 / start.elapsed().as_secs_f64()
    };
    // Of a packet's 1491 bytes 1460 are payload; QUIC takes some more.
    let is_near = |what: &str, bits: f64| {
        // A busy machine shows less in one second and more in the next.
        let follows = (0..6).any(|_| {
            let found = rate();
            println!("{what}: {found:.0} bit/s");
            found > 0.8 * bits && found < bits
        });
        assert!(follows, "{what}: not {bits} bit/s");
    };
    let path = world.folder.join("gateway.toml");
    let set_rate = |rate: &str| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_bentpipe-gateway")).arg("rate").arg(&path).arg(rate).output();
        output.expect("a running process")
    };
    for (text, bits) in [("8 Mbps", 8e6), ("2 Mbps", 2e6)] {
        assert!(set_rate(text).status.success());
        is_near(text, bits);
    }
    assert!(set_rate("0 bps").status.success());
    assert!((0..6).any(|_| rate() < 1.0), "no byte may be sent at rate zero");
    assert!(set_rate("4 Mbps").status.success());
    is_near("4 Mbps again", 4e6);
    // An invalid rate changes nothing, whether the command or the daemon refuses it.
    let refused = set_rate("4 Mbs");
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        stderr.starts_with("bentpipe-gateway: rate: found \"4 Mbs\"; allowed: a rate such as"),
        "{stderr}"
    );
    let stranger = UnixDatagram::unbound().expect("a socket");
    stranger.send_to(b"nonsense", world.folder.join("modem")).expect("a listener");

    // The file's rate applies until the modem reports another.
    world.reload("gateway", |text| text.replace("rate = \"100 Mbps\"", "rate = \"10 Mbps\""));
    is_near("the file", 10e6);
    world.reload("terminal", |text| text.replace("rate = \"100 Mbps\"", "rate = \"1 Mbps\""));
    wait_until("the terminal takes another rate", || {
        metrics(&world, 1).contains("bentpipe_capacity_bytes_per_second 125000\n")
    });
    stop.store(true, Ordering::Relaxed);
}

/// As many connections as allowed are split, and a few accepted before the bypass takes effect. The others bypass the PEP
/// and reach their server. Once some have ended, new ones are split again.
#[test]
fn connections_beyond_the_limit_bypass_the_pep() {
    let Some(mut world) = World::new("limit", "100 Mbps", "[limits]\nconnections = 3") else { return };
    world.serve(80, |mut stream| {
        let mut buffer = [0; 5];
        while stream.read_exact(&mut buffer).is_ok() {
            let _ = stream.write_all(&buffer);
        }
    });
    fn talk(stream: &mut TcpStream) {
        stream.write_all(b"hello").expect("a write");
        let mut got = [0; 5];
        stream.read_exact(&mut got).expect("an answer");
        assert_eq!(&got, b"hello");
    }
    let open = |world: &World| {
        world.call(SERVER[0], 80, |mut stream| {
            talk(&mut stream);
            stream
        })
    };
    let mut streams: Vec<_> = (0..3).map(|_| open(&world)).collect();
    streams.push(open(&world));
    let takes = || world.ends[1].command("iptables-nft-save -t mangle").contains("TPROXY");
    wait_until("the rule for the others stands", || !takes());
    streams.extend((0..3).map(|_| open(&world)));
    // Split and unsplit connections do not interfere.
    streams.iter_mut().for_each(talk);
    drop(streams);
    wait_until("there is room again", takes);
    drop(open(&world));
    let last = world.gateway.finish();
    let opened = last["counters"]["opened"].as_u64().expect("a number");
    assert!((4..=5).contains(&opened), "{last}");
    assert_eq!(last["counters"]["refused"], 0);
    assert!(last["counters"]["tunnel_out"].as_u64().is_some_and(|packets| packets >= 3 * 4), "{last}");
}

/// True if the metrics of an end report a bypass.
fn bypasses(world: &World, end: usize) -> bool {
    metrics(world, end).contains("bentpipe_bypass 1\n")
}

fn metrics(world: &World, end: usize) -> String {
    world.ends[end].get("/metrics")
}

/// A metric of an end.
fn value(world: &World, end: usize, name: &str) -> usize {
    let text = metrics(world, end);
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.and_then(|number| number.parse::<f64>().ok()).unwrap_or_else(|| panic!("no {name}: {text}"))
        as usize
}

/// Bytes that the PEP of an end holds.
fn held(world: &World, end: usize) -> usize {
    value(world, end, "bentpipe_pep_buffered_bytes")
}

/// Time of the terminal's last sample [ms]; `None` before the first.
fn last_sample(world: &World) -> Option<f64> {
    let state: Value = serde_json::from_str(&world.ends[1].get("/state.json")).expect("JSON");
    state["samples"].as_array()?.last()?[0].as_f64()
}

/// Connections split so far, by the terminal's metrics.
fn split(world: &World) -> u64 {
    let text = metrics(world, 1);
    let line =
        text.lines().find_map(|line| line.strip_prefix("bentpipe_connections_total{event=\"accepted\"} "));
    line.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

fn hello(mut stream: TcpStream) {
    let mut buffer = [0; 5];
    while stream.read_exact(&mut buffer).is_ok() {
        let _ = stream.write_all(&buffer);
    }
}

/// Exchanges a word over a new connection. Returns how many connections were split for it.
fn talk(world: &World) -> u64 {
    let before = split(world);
    world.call(SERVER[0], 80, |mut stream| {
        stream.write_all(b"hello").expect("a write");
        let mut got = [0; 5];
        stream.read_exact(&mut got).expect("an answer");
        assert_eq!(&got, b"hello");
    });
    // A sample covers an interval of 100 ms, and one may have been under way.
    wait_until("a sample", || last_sample(world).is_some());
    let earlier = last_sample(world);
    wait_until("a later sample", || last_sample(world) >= earlier.map(|time| time + 200.0));
    split(world) - before
}

/// Users connect to a server that does not answer, more of them than may be half-open: others bypass the PEP and reach
/// their server. After the time-out, connections are split again.
#[test]
fn silent_servers_do_not_block_others() {
    let more = format!("[limits]\nhandshakes = 5\n[tcp]\nconnect_timeout = \"3 s\"\n{METRICS}");
    let Some(world) = World::new("silent", "100 Mbps", &more) else { return };
    world.serve(80, hello);
    world.servers.command("iptables-nft -A INPUT -p tcp --dport 81 -j DROP");
    assert_eq!(talk(&world), 1);
    let silent: SocketAddr = format!("{}:81", SERVER[0]).parse().expect("an address");
    for _ in 0..10 {
        // A split connection is accepted by the terminal. The others give up before new connections are split again.
        world.clients.spawn(move || {
            if let Ok(stream) = TcpStream::connect_timeout(&silent, Duration::from_secs(2)) {
                let _ = stream.set_read_timeout(Some(LONG));
                let _ = retry(|| (&stream).read(&mut [0]));
            }
        });
    }
    wait_until("new connections bypass the PEP", || bypasses(&world, 1));
    assert_eq!(talk(&world), 0);
    wait_until("new connections are split again", || !bypasses(&world, 1));
    assert_eq!(talk(&world), 1);
}

/// A SYN for 10.1.0.1:80 whose handshake is never completed.
fn syn(host: u8, port: u16) -> Vec<u8> {
    let (from, to) = ([10, 3, 0, host], [10, 1, 0, 1]);
    let mut tcp =
        [&port.to_be_bytes()[..], &[0, 80, 1, 2, 3, 4, 0, 0, 0, 0, 5 << 4, 2, 0xfa, 0xf0, 0, 0, 0, 0]]
            .concat();
    let sum = bentpipe_packet::build::checksum(&[&from, &to, &[0, 6, 0, tcp.len() as u8], &tcp]);
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    // The kernel fills in length and checksum of the IP header.
    let ip = [&[0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0][..], &from, &to].concat();
    [ip, tcp].concat()
}

/// Half as many handshakes again as the terminal's socket keeps, none completed: the kernel would answer further ones with
/// SYN cookies, which never complete under TPROXY. They bypass the PEP.
#[test]
fn a_syn_flood_does_not_block_others() {
    let Some(world) = World::new("flood", "100 Mbps", METRICS) else { return };
    world.serve(80, hello);
    let sent = world.clients.run(|| {
        let injector = Injector::open().expect("raw sockets");
        let each = (0..6000u16).filter(|at| {
            if at % 100 == 0 {
                thread::sleep(Duration::from_millis(2));
            }
            injector.send(&syn(10 + (at % 200) as u8, 1000 + at)).is_ok()
        });
        each.count()
    });
    assert!(sent > 5000, "{sent} handshakes begun");
    let waiting = world.ends[1].command("ss -tnH state syn-recv").lines().count();
    println!("{waiting} handshakes wait");
    wait_until("new connections bypass the PEP", || bypasses(&world, 1));
    assert_eq!(talk(&world), 0);
}

/// A client that does not read makes the gateway hold as much as allowed and no more. The gateway tells the terminal, and
/// others bypass both until it has read.
#[test]
fn full_memory_makes_new_connections_bypass() {
    const MEMORY: usize = 300_000;
    let more = format!("pep = {{ buffer = \"4 MB\" }}\n[limits]\nmemory = \"{MEMORY} B\"\n{METRICS}");
    let Some(world) = World::new("memory", "100 Mbps", &more) else { return };
    world.serve(80, hello);
    world.serve(81, |mut stream| drop(stream.write_all(&bytes(3, 16_000_000))));
    assert_eq!(talk(&world), 1);
    let mut early = world.call(SERVER[0], 80, |stream| stream);
    let address: SocketAddr = format!("{}:81", SERVER[0]).parse().expect("an address");
    let stream = world.clients.run(move || TcpStream::connect_timeout(&address, LONG).expect("a connection"));
    wait_until("new connections bypass the PEP", || bypasses(&world, 1) && bypasses(&world, 0));
    assert_eq!(talk(&world), 0);
    let held = held(&world, 0);
    assert!(held > MEMORY / 10 * 9 && held <= MEMORY, "{held} bytes held");
    // A connection split before continues.
    early.write_all(b"hello").expect("a write");
    early.read_exact(&mut [0; 5]).expect("an answer");
    let got = world.clients.run(move || {
        stream.set_read_timeout(Some(LONG)).expect("a time-out");
        read_all(&mut { stream })
    });
    assert!(got == bytes(3, 16_000_000), "{} bytes, or others", got.len());
    wait_until("new connections are split again", || !bypasses(&world, 1) && !bypasses(&world, 0));
    assert_eq!(talk(&world), 1);
}

/// A client that does not read holds the whole window of the spacelink. When it resets its connection, the answer to another client,
/// which has waited for the window, is sent.
#[test]
fn the_window_of_a_reset_connection_is_free_for_others() {
    let more = format!(
        "pep = {{ buffer = \"400 KB\", buffer_per = \"connection\" }}\n\
         spacelink = {{ window = \"200 KB\", stream_window = \"200 KB\" }}\n{METRICS}"
    );
    let Some(world) = World::new("window", "100 Mbps", &more) else { return };
    world.serve(80, hello);
    world.serve(81, |mut stream| drop(stream.write_all(&bytes(3, 32_000_000))));
    let mut other = world.call(SERVER[0], 80, |stream| stream);
    let address: SocketAddr = format!("{}:81", SERVER[0]).parse().expect("an address");
    let idle = world.clients.run(move || TcpStream::connect_timeout(&address, LONG).expect("a connection"));
    let sent = || value(&world, 0, "bentpipe_traffic_bytes_total{class=\"tcp_split\",direction=\"sent\"}");
    wait_until("the window is full", || {
        let before = sent();
        thread::sleep(Duration::from_millis(500));
        before > 0 && sent() == before
    });
    let full = held(&world, 0);
    other.write_all(b"hello").expect("a write");
    wait_until("the answer waits", || held(&world, 0) == full + 5);
    // With unread data it is reset.
    drop(idle);
    other.read_exact(&mut [0; 5]).expect("an answer");
    wait_until("the buffers are empty", || held(&world, 0) == 0);
}

/// An idle connection is reset at both ends, for its client and its server.
#[test]
fn idle_connections_are_reset() {
    let Some(mut world) = World::new("idle", "100 Mbps", "[tcp]\nidle_timeout = \"3 s\"") else { return };
    world.serve(80, |mut stream| {
        // A byte in time keeps it open.
        let mut byte = [0];
        while retry(|| stream.read(&mut byte)).is_ok_and(|got| got == 1) {
            let _ = stream.write_all(&byte);
        }
    });
    world.call(SERVER[0], 80, |mut stream| {
        for _ in 0..10 {
            stream.write_all(b"x").expect("a write");
            stream.read_exact(&mut [0]).expect("an answer");
            thread::sleep(Duration::from_millis(400));
        }
        let ended = retry(|| stream.read(&mut [0]));
        assert!(ended.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset), "it is not reset");
    });
    // One end notices first and tells the other.
    let ends = [world.terminal.finish(), world.gateway.finish()];
    let resets =
        |cause: &str| ends.iter().map(|end| end["counters"]["resets"][cause].as_u64()).sum::<Option<u64>>();
    assert_eq!(ends[0]["counters"]["opened"], 1);
    assert!(resets("idle") >= Some(1), "{ends:?}");
    assert_eq!(resets("idle").zip(resets("peer")).map(|(idle, far)| idle + far), Some(2), "{ends:?}");
}

/// Servers that support ECN get marks. Packets that cannot be marked, such as a SYN or a window probe, are dropped instead
/// (RFC 3168, section 6.1).
#[test]
fn congestion_is_signalled_by_marks() {
    let gateway = "aqm = { algorithm = \"red\" }\nmarking = \"ecn\"";
    let Some(mut world) = World::new("ecn", "8 Mbps", gateway) else { return };
    for namespace in [&world.servers, &world.ends[0]] {
        namespace.sysctl("net/ipv4/tcp_ecn", "1");
    }
    world.serve(80, |mut stream| drop(stream.write_all(&bytes(9, SENT))));
    for server in SERVER {
        let got = world.call(server, 80, |mut stream| read_all(&mut stream));
        assert!(got == bytes(9, SENT), "{} bytes of {SENT}, or others", got.len());
    }
    let last = world.gateway.finish();
    let number = |value: &Value| value.as_u64().expect("a number");
    let (marked, dropped) = (number(&last["counters"]["ce_marked"]), number(&last["summary"]["aqm_drops"]));
    assert!(marked > 20 && dropped < marked / 10, "{last}");
    assert_eq!(number(&last["summary"]["marked_packets"]), marked + dropped, "{last}");
}

const UPLOADED: usize = 1_000_000;

/// Receives everything that a client sends, and answers with its length.
fn sink(mut stream: TcpStream) {
    let length = read_all(&mut stream).len() as u64;
    let _ = stream.write_all(&length.to_be_bytes());
}

/// Connects from the clients and runs something there, while others run.
fn started<T: Send + 'static>(
    world: &World,
    at: (&str, u16),
    what: impl FnOnce(TcpStream) -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    let address = SocketAddr::new(at.0.parse().expect("an address"), at.1);
    world.clients.spawn(move || {
        let stream = TcpStream::connect_timeout(&address, LONG).expect("a connection");
        stream.set_read_timeout(Some(LONG)).expect("a time-out");
        what(stream)
    })
}

/// Four uploads at once, each of which the server confirms. Returns the time that they took [s].
fn uploads(world: &World) -> f64 {
    let begin = now();
    let upload = |mut stream: TcpStream| {
        stream.write_all(&bytes(3, UPLOADED)).expect("a write");
        stream.shutdown(Shutdown::Write).expect("half a close");
        read_all(&mut stream)
    };
    let all: Vec<_> = (0..4).map(|_| started(world, (SERVER[0], 81), upload)).collect();
    for each in all {
        assert_eq!(each.join().expect("no panic"), (UPLOADED as u64).to_be_bytes());
    }
    begin.elapsed().as_secs_f64()
}

/// Uploads through an AQM at the terminal, ahead of its PEP: it drops, nothing is lost, the return link limits them, and a
/// download through the gateway's drop tail queue has no drops.
#[test]
fn uploads_pass_the_aqm_of_the_terminal() {
    const RATE: f64 = 10e6;
    let gateway = format!("return = {{ aqm.algorithm = \"red\", regulator.rate = \"10 Mbps\" }}\n{METRICS}");
    let Some(mut world) = World::new("uploads", "100 Mbps", &gateway) else { return };
    world.serve(81, sink);
    world.serve(80, |mut stream| drop(stream.write_all(&bytes(9, SENT))));
    let download = started(&world, (SERVER[1], 80), |mut stream| read_all(&mut stream));
    let time = uploads(&world);
    let got = download.join().expect("no panic");
    assert!(got == bytes(9, SENT), "{} bytes of {SENT}, or others", got.len());
    assert!(metrics(&world, 1).contains("aqm=\"red\""), "{}", metrics(&world, 1));
    let bits = 4.0 * 8.0 * UPLOADED as f64;
    assert!(time > bits / RATE, "{bits} bits in {time} s");
    let (gateway, terminal) = (world.gateway.finish(), world.terminal.finish());
    let number = |value: &Value| value.as_u64().expect("a number");
    // 4 MB are 2,770 segments. Round trips to the users take next to no time, so RED overshoots.
    let (offered, dropped) =
        (number(&terminal["summary"]["offered_packets"]), number(&terminal["summary"]["aqm_drops"]));
    println!("{time} s, {dropped} of {offered} dropped");
    assert!(offered > 2770 && dropped > 20 && dropped < offered / 2, "{terminal}");
    // The download's segments: neither its acknowledgements nor those of the uploads, one for two segments or more, are offered.
    let downloaded = number(&gateway["summary"]["offered_packets"]);
    assert!(downloaded < SENT as u64 / 1000, "{gateway}");
    assert_eq!(number(&gateway["summary"]["aqm_drops"]), 0, "{gateway}");
}

/// Servers that send nothing: their handshakes, acknowledgements and ends are not offered to the AQM.
#[test]
fn segments_without_data_bypass_the_aqm_of_the_gateway() {
    const COUNT: u64 = 20;
    let Some(mut world) = World::new("nodata", "20 Mbps", "") else { return };
    world.serve(80, |mut stream| drop(stream.read_to_end(&mut Vec::new())));
    for _ in 0..COUNT {
        world.call(SERVER[0], 80, |mut stream| {
            stream.write_all(&bytes(3, 5000)).expect("a write");
            stream.shutdown(Shutdown::Write).expect("half a close");
            assert!(read_all(&mut stream).is_empty());
        });
    }
    let record = world.gateway.finish();
    // SYN-ACK, acknowledgement and FIN at least.
    assert!(
        record["counters"]["intercepted"].as_u64().is_some_and(|packets| packets >= 3 * COUNT),
        "{record}"
    );
    assert_eq!(record["summary"]["offered_packets"], 0, "{record}");
}

/// Acknowledgements of a connection that is not split wait for the return link; a newer one takes the place of an older one.
#[test]
fn acknowledgements_take_the_place_of_older_ones_at_the_terminal() {
    let gateway = "pep.split = []\nreturn = { ack_filter = true, regulator.rate = \"200 kbps\" }";
    let Some(mut world) = World::new("ack-filter", "100 Mbps", gateway) else { return };
    world.serve(80, |mut stream| drop(stream.write_all(&bytes(9, SENT))));
    let got = started(&world, (SERVER[0], 80), |mut stream| read_all(&mut stream)).join().expect("no panic");
    assert!(got == bytes(9, SENT), "{} bytes of {SENT}, or others", got.len());
    let last = world.terminal.finish();
    let number = |key: &str| last["counters"][key].as_u64().expect("a number");
    let (came, filtered) = (number("tunnel_in"), number("filtered_acks"));
    // 200 kbit/s are 250 acknowledgements of 100 B per second, headers of the spacelink included; the download brings more.
    assert!(came > 100 && filtered > came / 4 && filtered < came, "{last}");
}

/// Users that support ECN get marks from the terminal.
#[test]
fn congestion_of_uploads_is_signalled_by_marks() {
    let gateway = "return = { aqm.algorithm = \"red\", marking = \"ecn\", regulator.rate = \"10 Mbps\" }";
    let Some(mut world) = World::new("uploads-ecn", "100 Mbps", gateway) else { return };
    for namespace in [&world.clients, &world.ends[1]] {
        namespace.sysctl("net/ipv4/tcp_ecn", "1");
    }
    world.serve(81, sink);
    uploads(&world);
    let last = world.terminal.finish();
    let number = |value: &Value| value.as_u64().expect("a number");
    let (marked, dropped) = (number(&last["counters"]["ce_marked"]), number(&last["summary"]["aqm_drops"]));
    assert!(marked > 20 && dropped < marked / 10, "{last}");
}

/// A forward link of 8 Mbit/s, which nobody tells the gateway: it begins with 100 Mbit/s, finds a rate near that of the link, and the
/// queue in the link stays short: round trips are far below the second that a queue of 1 MB would take.
#[test]
fn the_estimated_rate_is_that_of_the_link() {
    let more = format!("[satellite.estimate]\nleast = \"1 Mbps\"\n{METRICS}");
    let delay = Some(Duration::from_millis(25));
    let Some(world) = World::over_rate("estimate", "link", &more, delay, Some(8e6)) else { return };
    world.serve(80, |mut stream| while stream.write_all(&[7; 1 << 16]).is_ok() {});
    world.clients.spawn(|| {
        let mut stream = TcpStream::connect((SERVER[0], 80)).expect("a connection");
        let mut buffer = vec![0; 1 << 16];
        while retry(|| stream.read(&mut buffer)).is_ok_and(|read| read > 0) {}
    });
    let seen = || {
        let found = crate::ends::beam::metrics(&world.ends[0]);
        let rate = 8.0 * found.value("bentpipe_capacity_bytes_per_second", &[]);
        (rate, found.value("bentpipe_spacelink_rtt_seconds", &[]))
    };
    wait_until("the rate is that of the link, and its queue short", || {
        let (rate, round_trip) = seen();
        (4e6..10e6).contains(&rate) && round_trip < 0.3
    });
    // It stays there, whatever a busy machine does to single round trips.
    let stays = (0..100).filter(|_| {
        thread::sleep(Duration::from_millis(50));
        (2e6..12e6).contains(&seen().0)
    });
    assert!(stays.count() >= 90, "the estimate does not stay");
}
