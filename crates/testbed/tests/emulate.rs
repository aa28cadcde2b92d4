//! The emulator in real time with packets of the kernel, compared with values worked out by hand.

use std::io::Read;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::common::{Namespace, Testbed, address, now, plan, retry, two};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, SockaddrStorage, recvmsg, setsockopt,
    socket, sockopt,
};
use nix::sys::time::{TimeSpec, TimeValLike};
use nix::time::ClockId;
use serde_json::{Value, json};

/// A received packet: number, send and receive time [ns], length [bytes].
type Received = (u32, u64, u64, usize);

/// Sends UDP packets with `len` bytes of payload to the second namespace, one per `gap` µs, and returns those received.
fn flood([a, b]: &[Namespace; 2], to: &'static str, count: u32, len: usize, gap: u64) -> Vec<Received> {
    let from = if to.contains("::") { "[::]:0" } else { "0.0.0.0:0" };
    let receiver = b.run(move || {
        let socket = UdpSocket::bind(to).unwrap();
        setsockopt(&socket, sockopt::RcvBufForce, &(8 << 20)).unwrap();
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true).unwrap();
        socket
    });
    let sent = a.spawn(move || {
        let socket = UdpSocket::bind(from).unwrap();
        let begin = now();
        for i in 0..count {
            while now() < begin + u64::from(i) * gap * 1000 {
                sleep(Duration::from_micros(200));
            }
            let mut packet = vec![0; len];
            packet[..4].copy_from_slice(&i.to_be_bytes());
            packet[4..12].copy_from_slice(&now().to_be_bytes());
            socket.send_to(&packet, to).unwrap();
        }
    });
    receiver.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let (mut received, mut all_sent) = (Vec::new(), false);
    let mut packet = vec![0; 2000];
    loop {
        // Ends one second after the last packet.
        all_sent |= sent.try_recv().is_ok();
        let (len, arrived) = match retry(|| Ok(receive(&receiver, &mut packet)?)) {
            Ok(found) => found,
            Err(_) if all_sent => break,
            Err(_) => continue,
        };
        let number = u32::from_be_bytes(packet[..4].try_into().unwrap());
        let time = u64::from_be_bytes(packet[4..12].try_into().unwrap());
        received.push((number, time, arrived, len));
    }
    received
}

/// Receives a packet: its length and, by the kernel, the time when it arrived [ns]. The test may get a processor later.
fn receive(socket: &UdpSocket, packet: &mut [u8]) -> nix::Result<(usize, u64)> {
    let mut control = nix::cmsg_space!(TimeSpec);
    let mut parts = [std::io::IoSliceMut::new(packet)];
    let message =
        recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::empty())?;
    let stamp = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::ScmTimestampns(stamp) => Some(stamp),
        _ => None,
    });
    // The stamp is of CLOCK_REALTIME.
    let age = ClockId::CLOCK_REALTIME.now()? - stamp.unwrap();
    Ok((message.bytes, now() - age.num_nanoseconds() as u64))
}

/// Quantile of the delays [s].
fn delay(received: &[Received], share: f64) -> f64 {
    let mut delays: Vec<_> = received.iter().map(|(_, sent, got, _)| (got - sent) as f64 * 1e-9).collect();
    delays.sort_by(f64::total_cmp);
    delays[((delays.len() - 1) as f64 * share) as usize]
}

fn forward(statistics: &Value) -> &Value {
    let links = statistics["statistics"]["links"].as_array().unwrap();
    links.iter().find(|link| link["direction"] == "forward").unwrap()
}

/// 300 ms delay and 1 % loss; five standard errors of 2000 packets are 22.
#[test]
fn packets_get_the_delay_and_loss_of_the_link() {
    let Some(spaces) = two() else { return };
    let testbed = Testbed::start("emulate", &plan(&spaces, "delay = \"300 ms\"\nloss = 0.01", json!({})));
    address(&spaces);
    let mut all = 0;
    for to in ["10.3.0.1:7000", "[fd03::1]:7000"] {
        let (mut sent, mut lost, mut medians) = (0, 0, Vec::new());
        // No packet is early. Of up to five floods, one has half its packets on time even on a busy machine.
        while medians.len() < 5 && medians.last().is_none_or(|median| *median >= 0.301) {
            let received = flood(&spaces, to, 2000, 200, 500);
            assert!(delay(&received, 0.0) >= 0.3, "{to}: {}", delay(&received, 0.0));
            medians.push(delay(&received, 0.5));
            (sent, lost) = (sent + 2000, lost + 2000 - received.len());
        }
        assert!(medians.last().is_some_and(|median| *median < 0.301), "{to}: {medians:?}");
        let error = (sent as f64 * 0.01 * 0.99).sqrt();
        assert!((lost as f64 - 0.01 * sent as f64).abs() < 5.0 * error, "{to}: {lost} of {sent}");
        all += sent;
    }
    let statistics = testbed.end();
    let link = forward(&statistics);
    assert_eq!(link["packets"], json!(all));
    let lost = link["dropped"]["loss"].as_u64().unwrap();
    assert_eq!(link["arrived"].as_u64().unwrap() + lost, all as u64);
}

/// Of 2000 packets of 1000 bytes sent at once, one leaves per millisecond at 8 Mbit/s.
#[test]
fn packets_leave_at_the_rate_of_the_link() {
    let Some(spaces) = two() else { return };
    let link = "rate = \"8 Mbps\"\nqueue = { scheduler = \"fifo\", limit = \"3000 packets\" }";
    let testbed = Testbed::start("emulate", &plan(&spaces, link, json!({})));
    address(&spaces);
    let received = flood(&spaces, "10.3.0.1:7000", 2000, 972, 0);
    assert!(received.iter().map(|received| received.0).eq(0..2000));
    // Ignores the first hundred, which arrive while the others are still being sent, and the last hundred. A late emulator
    // forwards the first or the last of them late.
    let late = testbed.end()["statistics"]["late"]["max_s"].as_f64().unwrap();
    let time = (received[1900].2 - received[100].2) as f64 * 1e-9;
    assert!((time - 1.8).abs() < 0.018 + late, "{time} s, {late} s late");
}

/// Of 400 packets sent at once, those that find 100 waiting are dropped; one packet leaves per millisecond.
#[test]
fn packets_beyond_the_buffer_limit_are_dropped() {
    let Some(spaces) = two() else { return };
    let link = "rate = \"8 Mbps\"\nqueue = { scheduler = \"fifo\", limit = \"100 packets\" }";
    let testbed = Testbed::start("emulate", &plan(&spaces, link, json!({})));
    address(&spaces);
    let received = flood(&spaces, "10.3.0.1:7000", 400, 972, 0);
    let statistics = testbed.end();
    let link = forward(&statistics);
    assert_eq!(link["dropped"]["overflow"].as_u64().unwrap() as usize, 400 - received.len());
    assert!(received.iter().take(101).map(|received| received.0).eq(0..101));
    assert!((101..300).contains(&received.len()), "{}", received.len());
    // No packet waits for more than a hundred others.
    assert!(delay(&received, 0.99) < 0.104, "{}", delay(&received, 0.99));
}

/// A ping over the link takes twice the delay, with ICMP and ICMPv6.
#[test]
fn the_round_trip_time_is_twice_the_delay() {
    let Some(spaces) = two() else { return };
    let testbed = Testbed::start("emulate", &plan(&spaces, "delay = \"100 ms\"", json!({})));
    address(&spaces);
    for (family, protocol, to, request, answer) in [
        (AddressFamily::Inet, nix::sys::socket::SockProtocol::Icmp, "10.3.0.1:0", 8u8, 0u8),
        (AddressFamily::Inet6, nix::sys::socket::SockProtocol::IcmpV6, "[fd03::1]:0", 128, 129),
    ] {
        let took = spaces[0].run(move || {
            let socket: UdpSocket =
                socket(family, SockType::Raw, SockFlag::empty(), protocol).unwrap().into();
            socket.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
            let ping = |number: u16| {
                // Echo request with identifier 7. The kernel computes the checksum of ICMPv6.
                let sum = !(u16::from_be_bytes([request, 0]) + 7 + number);
                let mut packet = [request, 0, 0, 0, 0, 7, 0, number as u8];
                packet[2..4].copy_from_slice(&sum.to_be_bytes());
                let begin = now();
                socket.send_to(&packet, to).unwrap();
                let mut back = [0; 100];
                loop {
                    let len = retry(|| socket.recv(&mut back)).unwrap();
                    // A raw IPv4 socket delivers the IP header.
                    let message = if request == 8 { &back[20..len] } else { &back[..len] };
                    if message[0] == answer && message[4..8] == packet[4..8] {
                        return (now() - begin) as f64 * 1e-9;
                    }
                }
            };
            // No reply is early, and one of up to 100 is on time even on a busy machine.
            let mut took = Vec::new();
            while took.len() < 100 && took.last().is_none_or(|last| *last >= 0.205) {
                took.push(ping(took.len() as u16 + 1));
            }
            took
        });
        assert!(
            took.iter().all(|took| *took >= 0.2) && took.last().is_some_and(|last| *last < 0.205),
            "{to}: {took:?}"
        );
    }
    testbed.end();
}

/// The plan reorders and duplicates packets; nothing else changes them.
#[test]
fn packets_are_duplicated_and_reordered_as_planned() {
    let Some(spaces) = two() else { return };
    let extras = json!({ "duplicate": 0.2, "reorder": { "probability": 0.2, "by_s": 0.02 } });
    let testbed = Testbed::start("emulate", &plan(&spaces, "delay = \"50 ms\"", extras));
    address(&spaces);
    let received = flood(&spaces, "10.3.0.1:7000", 500, 100, 2000);
    let statistics = testbed.end();
    let link = forward(&statistics);
    assert_eq!(received.len() as u64, 500 + link["duplicated"].as_u64().unwrap());
    let late = received.windows(2).filter(|pair| pair[1].0 < pair[0].0).count() as u64;
    // Consecutive delayed packets keep their order.
    assert!(late > 20 && late <= link["reordered"].as_u64().unwrap(), "{late}");
}

/// When its parent is killed, the emulator ends and its devices disappear.
#[test]
fn the_emulator_ends_with_its_parent_and_leaves_no_device() {
    let Some(spaces) = two() else { return };
    let path = std::env::temp_dir().join(format!("bentpipe-testbed-orphan-{}.json", std::process::id()));
    std::fs::write(&path, plan(&spaces, "delay = \"50 ms\"", json!({})).to_string()).unwrap();
    // `sleep` holds the other end of the pipe.
    let script = "sleep 600 | \"$0\" emulate \"$1\"";
    let program = env!("CARGO_BIN_EXE_bentpipe-testbed");
    let mut parent = Command::new("sh")
        .args(["-c", script, program])
        .arg(&path)
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    for _ in 0..600 {
        sleep(Duration::from_millis(50));
        if spaces[0].has("sat0") && spaces[1].has("sat1") {
            break;
        }
    }
    assert!(spaces[0].has("sat0") && spaces[1].has("sat1"));
    let sleeper = descendants(parent.id()).into_iter().find(|(_, name)| name == "sleep").unwrap().0;
    let sleeper = nix::unistd::Pid::from_raw(sleeper as i32);
    nix::sys::signal::kill(sleeper, nix::sys::signal::Signal::SIGKILL).unwrap();
    let mut left = true;
    for _ in 0..600 {
        sleep(Duration::from_millis(50));
        left = spaces[0].has("sat0") || spaces[1].has("sat1");
        if !left {
            break;
        }
    }
    assert!(!left);
    let mut message = String::new();
    parent.stdout.take().unwrap().read_to_string(&mut message).unwrap();
    parent.wait().unwrap();
    assert!(message.contains("\"statistics\""), "{message}");
    std::fs::remove_file(path).unwrap();
}

/// A killed emulator leaves no device.
#[test]
fn a_killed_emulator_leaves_no_device() {
    let Some(spaces) = two() else { return };
    let testbed = Testbed::start("emulate", &plan(&spaces, "delay = \"50 ms\"", json!({})));
    assert!(spaces[0].has("sat0"));
    drop(testbed);
    assert!(!spaces[0].has("sat0") && !spaces[1].has("sat1"));
}

/// A message of one line and exit code 2.
#[test]
fn an_invalid_plan_is_reported_in_one_line() {
    let path = std::env::temp_dir().join(format!("bentpipe-testbed-bad-{}.json", std::process::id()));
    let satellite = "[link.satellite]\nbetween = [\"server\", \"client\"]\ndelay = \"1 ms\"";
    let text = crate::common::scenario(satellite, crate::common::TRAFFIC);
    let scenario = json!({ "file": "test.toml", "text": text });
    let end = |device: &str| json!({ "device": device });
    for (plan, expected) in [
        ("{".to_owned(), "EOF while parsing"),
        (json!({ "scenario": scenario, "sed": 1 }).to_string(), "unknown field `sed`"),
        (
            json!({ "scenario": { "file": "x.toml", "text": "title = 3" } }).to_string(),
            "x.toml:1",
        ),
        (
            json!({ "scenario": scenario, "segments": [{ "a": end("x0"), "b": end("x1"), "links": ["spair"] }] })
                .to_string(),
            "segments[0].links[0]: found \"spair\"; allowed: \"spare\", \"satellite\"",
        ),
        (
            json!({ "scenario": scenario, "segments": [{ "a": end("x0"), "b": end("x0"), "links": [] }] }).to_string(),
            "segments[0].b.device: found \"x0\"",
        ),
        (
            json!({ "scenario": scenario, "hosts": { "client": { "side": "clients", "addresses": [] } } }).to_string(),
            "hosts.client.addresses: found 0 hosts; allowed: 1 to 1",
        ),
        (
            json!({ "scenario": scenario, "traffic": { "bulk": {} } }).to_string(),
            "hosts.server: found nothing; allowed: the addresses of both ends of traffic.bulk",
        ),
        (
            json!({ "scenario": scenario, "segments": [{
                "a": end("x0"), "b": end("x1"), "links": [{ "link": "spare", "loss": 1.5 }],
            }] }).to_string(),
            "segments[0].links[0].loss: found 1.5; allowed: a probability, 0 to 1",
        ),
    ] {
        std::fs::write(&path, &plan).unwrap();
        let done = Command::new(env!("CARGO_BIN_EXE_bentpipe-testbed")).arg("check").arg(&path).output().unwrap();
        let message = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(2), "{plan}");
        assert!(message.lines().count() == 1 && message.contains(expected), "{plan}: {message}");
    }
    std::fs::remove_file(path).unwrap();
}

/// Descendants of a process, with their names.
fn descendants(pid: u32) -> Vec<(u32, String)> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let mut all = Vec::new();
    for child in children.split_whitespace().filter_map(|pid| pid.parse().ok()) {
        let name = std::fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
        all.push((child, name.trim().to_owned()));
        all.extend(descendants(child));
    }
    all
}

/// An argument that is not UTF-8 is shown in the message.
#[test]
fn a_path_that_is_not_utf8_is_rejected() {
    let odd = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"/none/\xff.json");
    let program =
        std::process::Command::new(env!("CARGO_BIN_EXE_bentpipe-testbed")).arg("check").arg(odd).output();
    let output = program.unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.starts_with("bentpipe-testbed: /none/\u{fffd}.json: cannot be read: "), "{message}");
}
