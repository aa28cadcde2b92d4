//! Rewriting of windows: step by step, at random, and on a real connection whose rate has to follow.
#![allow(clippy::print_stdout, reason = "measurements are shown, and so is why a test cannot run")]

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bentpipe_gatewayd::intercept::inject::Injector;
use bentpipe_gatewayd::intercept::nfqueue::{Lost, Queue, Settings, Verdict};
use bentpipe_gatewayd::intercept::windows::Windows;
use bentpipe_packet::flag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, connect, setsockopt, socket, sockopt,
};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const CLIENT: &str = "10.3.0.7:40000";
const SERVER: &str = "10.1.0.1:80";

fn client() -> SocketAddr {
    CLIENT.parse().unwrap()
}

fn server() -> SocketAddr {
    SERVER.parse().unwrap()
}

/// A packet without checksums from the client (`out`) or from the server.
fn packet(out: bool, flags: u8, seq: u32, ack: u32, window: u16, options: &[u8]) -> Vec<u8> {
    let (from, to) = ([10, 3, 0, 7, 0x9c, 0x40], [10, 1, 0, 1, 0, 80]);
    let (src, dst) = if out { (from, to) } else { (to, from) };
    let mut bytes = vec![0x45, 0, 0, 40 + options.len() as u8, 0, 0, 0x40, 0, 64, 6, 0, 0];
    bytes.extend([&src[..4], &dst[..4], &src[4..], &dst[4..]].concat());
    bytes.extend([seq.to_be_bytes(), ack.to_be_bytes()].concat());
    bytes.extend([(5 + options.len() as u8 / 4) << 4, flags]);
    bytes.extend(window.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend(options);
    bytes
}

/// MSS 1000, scale 7.
const OPTIONS: [u8; 8] = [2, 4, 3, 232, 1, 3, 3, 7];
const ISN: u32 = 0xffff_ff00;

/// A connection whose client offered `room` in its SYN, and whose server scales or not.
fn opened(room: u64, scales: bool) -> Windows {
    let mut windows = Windows::new();
    let mut syn = packet(true, flag::SYN, 99, 0, 64_240, &OPTIONS);
    assert_eq!(windows.outgoing(&mut syn, &mut |_, _| Some(room)), room < 64_240);
    assert_eq!(window_of(&syn), room.min(64_240) as u16);
    let syn_ack =
        packet(false, flag::SYN | flag::ACK, ISN, 100, 65_535, if scales { &OPTIONS } else { &OPTIONS[..4] });
    windows.incoming(&bentpipe_packet::parse(&syn_ack).unwrap());
    windows
}

fn window_of(packet: &[u8]) -> u16 {
    bentpipe_packet::parse(packet).unwrap().tcp.unwrap().window
}

/// Window of an acknowledgement of `ack` bytes.
fn acknowledge(windows: &mut Windows, ack: u32, kernel: u16, room: u64) -> u16 {
    let mut packet = packet(true, flag::ACK, 100, ISN.wrapping_add(1 + ack), kernel, &[]);
    let before = packet.clone();
    let changed = windows.outgoing(&mut packet, &mut |from, to| {
        assert_eq!((from, to), (client(), server()));
        Some(room)
    });
    assert_eq!(changed, packet != before);
    window_of(&packet)
}

#[test]
fn windows_follow_the_room() {
    let mut windows = opened(10_000, true);
    // Units of 128 bytes. The SYN has offered 10 000 bytes, which is 78.1 units: never less than that.
    assert_eq!(acknowledge(&mut windows, 0, 502, 10_000), 79);
    // 1000 bytes came: from 1000 to the right edge of 79 * 128 = 10 112 is 71.2 units.
    assert_eq!(acknowledge(&mut windows, 1000, 502, 0), 72);
    // The edge is 1000 + 72 * 128 = 10 216. More room moves it, rounded down to a unit.
    assert_eq!(acknowledge(&mut windows, 2000, 502, 10_000), 78);
    // 2000 + 78 * 128 = 11 984.
    assert_eq!(acknowledge(&mut windows, 11_984, 502, 0), 0);
    assert_eq!(acknowledge(&mut windows, 11_984, 502, 127), 0);
    assert_eq!(acknowledge(&mut windows, 11_984, 502, 128), 1);
    // Never more than the kernel's own window.
    assert_eq!(acknowledge(&mut windows, 20_000, 502, 1 << 40), 502);
    assert_eq!(acknowledge(&mut windows, 30_000, 3, 10_000), 3);
    // An offered edge stays: from 30 000 to 20 000 + 502 * 128 = 84 256 is 423.9 units.
    assert_eq!(acknowledge(&mut windows, 30_000, 502, 0), 424);
    // A repeated SYN of the server changes nothing.
    windows
        .incoming(&bentpipe_packet::parse(&packet(false, flag::SYN | flag::ACK, ISN, 100, 1, &[])).unwrap());
    assert_eq!(acknowledge(&mut windows, 40_000, 502, 0), 346);
}

#[test]
fn windows_are_scaled_if_both_syns_have_the_option() {
    let mut windows = opened(10_000, false);
    assert_eq!(acknowledge(&mut windows, 0, 64_240, 9_999), 10_000);
    assert_eq!(acknowledge(&mut windows, 5000, 64_240, 9_999), 9_999);
    // A retransmitted SYN without options fixes the scale anew.
    let mut syn = packet(true, flag::SYN, 99, 0, 64_240, &[]);
    assert!(windows.outgoing(&mut syn, &mut |_, _| Some(500)));
    windows.incoming(
        &bentpipe_packet::parse(&packet(false, flag::SYN | flag::ACK, ISN, 100, 1, &OPTIONS)).unwrap(),
    );
    assert_eq!(acknowledge(&mut windows, 0, 64_240, 700), 700);
}

#[test]
fn unknown_connections_are_not_changed() {
    let mut windows = Windows::new();
    assert_eq!(acknowledge(&mut windows, 0, 502, 128), 502);
    // A connection without room is not relayed.
    let mut syn = packet(true, flag::SYN, 99, 0, 64_240, &OPTIONS);
    assert!(!windows.outgoing(&mut syn, &mut |_, _| None));
    assert!(windows.is_empty());
    // Without the server's SYN the unit is unknown.
    assert!(windows.outgoing(&mut syn, &mut |_, _| Some(1000)));
    assert_eq!(acknowledge(&mut windows, 0, 502, 128), 502);
    assert!(!windows.update(client(), server(), 100_000, &mut Vec::new()));
    // The SYN of another connection, which acknowledges another SYN, does not count.
    let mut answer = packet(false, flag::SYN | flag::ACK, ISN, 101, 65_535, &OPTIONS);
    windows.incoming(&bentpipe_packet::parse(&answer).unwrap());
    assert_eq!(acknowledge(&mut windows, 0, 502, 128), 502);
    answer[28..32].copy_from_slice(&100u32.to_be_bytes());
    windows.incoming(&bentpipe_packet::parse(&answer).unwrap());
    assert_eq!(acknowledge(&mut windows, 0, 502, 128), 8);
    // A packet without ACK has no window, and one that answers a SYN is no connection of this host.
    for flags in [0, flag::SYN | flag::ACK] {
        let mut other = packet(true, flags, 100, ISN, 502, &[]);
        assert!(!windows.outgoing(&mut other, &mut |_, _| Some(0)));
        assert_eq!((window_of(&other), windows.len()), (502, 1));
    }
    assert!(!windows.outgoing(&mut [0x45, 0], &mut |_, _| Some(0)));
}

/// Units of one byte, SYN without MSS: two segments of 536 bytes left are enough, and a segment more is needed.
#[test]
fn updates_are_worth_a_segment() {
    let mut out = Vec::new();
    let mut update = |ack, room| {
        let mut windows = Windows::new();
        let mut syn = packet(true, flag::SYN, 99, 0, 64_240, &[]);
        windows.outgoing(&mut syn, &mut |_, _| Some(10_000));
        windows.incoming(
            &bentpipe_packet::parse(&packet(false, flag::SYN | flag::ACK, ISN, 100, 1, &[])).unwrap(),
        );
        // Its own FIN and retransmissions are counted correctly.
        for (flags, seq) in [(flag::FIN, 150), (0, 100)] {
            let mut own = packet(true, flags | flag::ACK, seq, ISN.wrapping_add(1), 64_240, &[]);
            windows.outgoing(&mut own, &mut |_, _| Some(0));
        }
        assert_eq!(u32::from(acknowledge(&mut windows, ack, 64_240, 0)), 10_000 - ack);
        windows
            .update(client(), server(), room, &mut out)
            .then(|| bentpipe_packet::parse(&out).unwrap().tcp.unwrap())
    };
    assert_eq!(update(10_000 - 1072, 60_000), None);
    assert_eq!(update(10_000 - 1071, 60_000).unwrap().window, 60_000);
    assert_eq!(update(10_000, 535), None);
    let tcp = update(10_000, 536).unwrap();
    assert_eq!((tcp.seq, tcp.window), (151, 536));
}

#[test]
fn closed_connections_are_forgotten() {
    let fin = flag::FIN | flag::ACK;
    // Reset by this host. A reset from the server's side may be forged.
    for (out, left) in [(false, 1), (true, 0)] {
        let mut windows = opened(1000, true);
        let mut reset = packet(out, flag::RST, 100, 0, 0, &[]);
        windows.incoming(&bentpipe_packet::parse(&reset).unwrap());
        windows.outgoing(&mut reset, &mut |_, _| Some(0));
        assert_eq!(windows.len(), left);
    }
    // Ended by the server, before or after the client; the window applies until its FIN is acknowledged.
    for server_first in [true, false] {
        let mut windows = opened(1000, true);
        let theirs = packet(false, fin, ISN.wrapping_add(1001), 100, 9, &[]);
        let mut ours = packet(true, fin, 100, ISN.wrapping_add(1), 502, &[]);
        if server_first {
            windows.incoming(&bentpipe_packet::parse(&theirs).unwrap());
        }
        assert!(windows.outgoing(&mut ours, &mut |_, _| Some(1000)));
        if !server_first {
            windows.incoming(&bentpipe_packet::parse(&theirs).unwrap());
        }
        assert_eq!(acknowledge(&mut windows, 1000, 502, 0), 1);
        assert_eq!(windows.len(), 1);
        acknowledge(&mut windows, 1001, 502, 0);
        assert!(windows.is_empty());
    }
    let mut windows = opened(1000, true);
    windows.forget(client(), server());
    assert!(windows.is_empty());
}

#[test]
fn a_waiting_server_gets_an_update() {
    let mut windows = opened(4096, true);
    let mut out = Vec::new();
    assert_eq!(acknowledge(&mut windows, 0, 502, 4096), 32);
    let mut update = |windows: &mut Windows, room| {
        let sent = windows.update(client(), server(), room, &mut out);
        assert_eq!(sent, !out.is_empty());
        sent.then(|| bentpipe_packet::parse(&out).unwrap().tcp.unwrap())
    };
    // The server has four segments of 1000 left.
    assert_eq!(update(&mut windows, 60_000), None);
    // It has 96 bytes left; the room is a segment less a byte.
    assert_eq!(acknowledge(&mut windows, 4000, 502, 0), 1);
    // The edge is now 4000 + 128.
    assert_eq!(update(&mut windows, 1024 + 127), None);
    let tcp = update(&mut windows, 1024 + 128).unwrap();
    assert_eq!((tcp.seq, tcp.ack, tcp.window), (100, ISN.wrapping_add(4001), 9));
    // One update is enough.
    assert_eq!(update(&mut windows, 1024 + 128), None);
    // On its way out it is not changed, whatever room there is, and not taken for the kernel's, which still allows more.
    assert_eq!(acknowledge(&mut windows, 4000, 9, 0), 9);
    assert_eq!(update(&mut windows, 1 << 30).unwrap().window, 502);
    assert_eq!(acknowledge(&mut windows, 4000, 502, 0), 502);
    // Its window is the last one: from 64 000 to the edge of 4000 + 502 * 128 = 68 256 would be 34 units.
    assert_eq!(acknowledge(&mut windows, 64_000, 3, 0), 3);
    assert_eq!(update(&mut windows, 1 << 30), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    /// Acknowledgements that advance by any number of bytes within the offer, kernels whose right edge never moves back, and
    /// any room.
    #[test]
    fn the_right_edge_never_moves_back_and_follows_the_room(
        scales in any::<bool>(),
        first in 0u64..100_000,
        steps in prop::collection::vec((0u32..20_000, 0u64..200_000, 0u64..200_000, any::<bool>()), 1..60),
    ) {
        let mut windows = opened(first, scales);
        let unit = if scales { 128 } else { 1 };
        let limit = 65_535 * unit;
        let (mut ack, mut right, mut kernel_right) = (0, first.min(64_240), first.min(64_240));
        let mut out = Vec::new();
        for (come, room, kernel, updates) in steps {
            ack += u64::from(come).min(right - ack);
            // The kernel rounds up, so its own edge stays.
            let kernel = kernel.max(kernel_right - ack).div_ceil(unit).min(65_535);
            let window = u64::from(acknowledge(&mut windows, ack as u32, kernel as u16, room)) * unit;
            kernel_right = kernel_right.max(ack + kernel * unit);
            prop_assert!(window <= kernel * unit, "more than the kernel's own");
            let edge = ack + window;
            let wanted = (ack + room.min(kernel * unit)).max(right);
            if kernel_right - ack <= limit {
                prop_assert!(edge >= right, "the edge moved from {right} to {edge}");
                prop_assert!(edge + unit > wanted && edge < wanted + unit, "{edge} for {wanted}, in units of {unit}");
            }
            right = right.max(edge);
            if updates && windows.update(client(), server(), room + 5000, &mut out) {
                let tcp = bentpipe_packet::parse(&out).unwrap().tcp.unwrap();
                let edge = ack + u64::from(tcp.window) * unit;
                prop_assert!(edge >= right + 1000 && edge <= ack + room + 5000 && u64::from(tcp.window) <= kernel);
                right = edge;
            }
        }
    }
}

/// A host that delays packets from the server and rewrites windows.
struct Marked {
    /// Room [bytes].
    room: Arc<AtomicU64>,
    /// True to send window updates.
    updates: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<usize>,
}

#[expect(clippy::disallowed_methods, reason = "real packets wait for real time")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}

/// Delays packets that enter `namespace` in queue 0, and rewrites windows in queue 1.
fn marked(namespace: &crate::common::Namespace, room: u64, delay: Duration) -> Marked {
    for command in ["iptables-nft", "ip6tables-nft"] {
        namespace.command(&format!(
            "{command} -t raw -A PREROUTING -p tcp -j NFQUEUE --queue-num 0 --queue-bypass"
        ));
        namespace.command(&format!(
            "{command} -t mangle -A POSTROUTING -p tcp -j NFQUEUE --queue-num 1 --queue-bypass"
        ));
    }
    let room = Arc::new(AtomicU64::new(room));
    let (updates, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (thread_room, thread_updates, thread_stop) =
        (Arc::clone(&room), Arc::clone(&updates), Arc::clone(&stop));
    let (opened, open) = std::sync::mpsc::channel();
    let thread = namespace.spawn(move || {
        let mut inward = crate::common::bound(|| Queue::open(0, &Settings::default()));
        let mut outward = crate::common::bound(|| Queue::open(1, &Settings::default()));
        let injector = Injector::open().expect("raw sockets");
        opened.send(()).expect("a receiver");
        let mut windows = Windows::new();
        let (mut held, mut pair, mut update, mut sent) = (VecDeque::new(), None, Vec::new(), 0);
        while !thread_stop.load(Ordering::Relaxed) {
            let mut polled = [
                PollFd::new(inward.as_fd(), PollFlags::POLLIN),
                PollFd::new(outward.as_fd(), PollFlags::POLLIN),
            ];
            // Interrupted calls are repeated.
            let _ = poll(&mut polled, PollTimeout::from(1u16));
            let time = now();
            let room = thread_room.load(Ordering::Relaxed);
            inward
                .receive(&mut |id, packet| {
                    let info = bentpipe_packet::parse(packet).expect("a packet");
                    windows.incoming(&info);
                    held.push_back((time + delay, id));
                    Verdict::Later
                })
                .expect("packets");
            outward
                .receive(&mut |_, packet| {
                    let info = bentpipe_packet::parse(packet).expect("a packet");
                    pair = Some((info.src, info.dst));
                    match windows.outgoing(packet, &mut |_, _| Some(room)) {
                        true => Verdict::Changed,
                        false => Verdict::Accept,
                    }
                })
                .expect("packets");
            while let Some(&(due, id)) = held.front()
                && due <= time
            {
                held.pop_front();
                inward.accept(id);
            }
            inward.flush().expect("verdicts");
            outward.flush().expect("verdicts");
            if let Some((client, server)) = pair
                && thread_updates.load(Ordering::Relaxed)
                && windows.update(client, server, room, &mut update)
            {
                injector.send(&update).expect("to send a window update");
                sent += 1;
            }
        }
        assert_eq!(inward.lost().expect("counters"), Lost::default());
        sent
    });
    open.recv().expect("queues");
    Marked { room, updates, stop, thread }
}

/// A connection on which `a` sends without limit to `b`: its sending end, bytes received at `b`, and a switch to stop it.
fn stream(
    a: &crate::common::Namespace,
    b: &crate::common::Namespace,
    at: &str,
) -> (TcpStream, Arc<AtomicU64>, Arc<AtomicBool>) {
    let at: SocketAddr = at.parse().expect("an address");
    let listener = a.run(move || {
        let listener = TcpListener::bind(at).expect("a listener");
        // BBR, if it is the default, would discover a larger window only slowly.
        setsockopt(&listener, sockopt::TcpCongestion, &"reno".into()).expect("Reno, present in every kernel");
        listener
    });
    let (come, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (counter, stopped) = (Arc::clone(&come), Arc::clone(&stop));
    let (sender, receiver) = std::sync::mpsc::channel();
    a.spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        sender.send(stream.try_clone().expect("a copy")).expect("a receiver");
        let data = vec![5; 1 << 16];
        while stream.write_all(&data).is_ok() {}
    });
    b.spawn(move || {
        let family = if at.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let fd = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).expect("a socket");
        // Fixed before connecting, so that the scale suits it: units of a few bytes.
        setsockopt(&fd, sockopt::RcvBuf, &200_000).expect("a buffer");
        connect(fd.as_raw_fd(), &SockaddrStorage::from(at)).expect("a connection");
        let mut stream = TcpStream::from(fd);
        stream.set_read_timeout(Some(Duration::from_millis(100))).expect("a limit");
        let mut buffer = vec![0; 1 << 16];
        while !stopped.load(Ordering::Relaxed) {
            match stream.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => drop(counter.fetch_add(count as u64, Ordering::Relaxed)),
                Err(_) => {}
            }
        }
    });
    (receiver.recv().expect("a connection"), come, stop)
}

/// The sender's smoothed round trip [s] and acknowledged bytes, from its kernel.
fn acknowledged(stream: &TcpStream) -> (f64, u64) {
    let mut info = [0u8; 256];
    let mut length = info.len() as nix::libc::socklen_t;
    #[expect(unsafe_code, reason = "the libc crate's tcp_info ends before the field")]
    // SAFETY: the kernel writes at most `length` bytes.
    let result = unsafe {
        nix::libc::getsockopt(
            stream.as_raw_fd(),
            nix::libc::IPPROTO_TCP,
            nix::libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    // tcpi_rtt [µs] and tcpi_bytes_acked of linux/tcp.h.
    assert!(result == 0 && length >= 128);
    let rtt = u32::from_ne_bytes(info[68..72].try_into().expect("four bytes"));
    (f64::from(rtt) * 1e-6, u64::from_ne_bytes(info[120..128].try_into().expect("eight bytes")))
}

/// Acknowledged bytes per second over `span`, and the mean round trip [s].
fn rate(stream: &TcpStream, span: Duration) -> (f64, f64) {
    let (start, before) = (now(), acknowledged(stream).1);
    let (mut sum, mut count) = (0.0, 0.0);
    while start.elapsed() < span {
        std::thread::sleep(Duration::from_millis(5));
        sum += acknowledged(stream).0;
        count += 1.0;
    }
    ((acknowledged(stream).1 - before) as f64 / start.elapsed().as_secs_f64(), sum / count)
}

const RTT: Duration = Duration::from_millis(100);

#[test]
fn the_rate_follows_the_window() {
    let follow = |at: &str| {
        let Some((a, b)) = crate::common::pair() else { return };
        let marked = marked(&b, 60_000, RTT);
        let (sender, _, stop) = stream(&a, &b, at);
        std::thread::sleep(Duration::from_millis(200));
        // Down and up. Less than a second after each change the rate is within 10 % of the window over the measured round trip.
        let mut before = 60_000;
        for room in [60_000, 20_000, 80_000] {
            let mut seen = Vec::new();
            // Repeated if the machine was busy.
            while seen.len() < 10 && seen.last().is_none_or(|(off, _)| *off > 0.1) {
                marked.room.store(before, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(if seen.is_empty() { 0 } else { 900 }));
                marked.room.store(room, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(900));
                let (rate, rtt) = rate(&sender, Duration::from_millis(500));
                let off = rate / (room as f64 / rtt) - 1.0;
                println!(
                    "{at}: W {room} B, RTT {:.1} ms, {rate:.0} B/s, {:+.1} % of W/RTT",
                    rtt * 1e3,
                    100.0 * off
                );
                assert!(rtt >= RTT.as_secs_f64(), "a round trip of {rtt} s");
                seen.push((off.abs(), rate));
            }
            assert!(
                seen.last().is_some_and(|(off, _)| *off <= 0.1),
                "room {room}, in 100 ms and more: {seen:?}"
            );
            before = room;
        }
        stop.store(true, Ordering::Relaxed);
        marked.stop.store(true, Ordering::Relaxed);
        assert_eq!(marked.thread.join().expect("no panic"), 0);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| follow("10.1.0.1:80"));
        scope.spawn(|| follow("[fd01::1]:80"));
    });
}

#[test]
fn a_stopped_server_resumes_within_a_round_trip() {
    let Some((a, b)) = crate::common::pair() else { return };
    let marked = marked(&b, 60_000, RTT);
    let (_, come, stop) = stream(&a, &b, "10.1.0.1:80");
    let wait_for = |bytes: u64| {
        let before = come.load(Ordering::Relaxed);
        let start = now();
        while come.load(Ordering::Relaxed) < before + bytes {
            assert!(start.elapsed() < Duration::from_secs(30), "{bytes} bytes do not arrive");
            std::thread::sleep(Duration::from_millis(1));
        }
        start.elapsed()
    };
    // Half a second sooner than the server's own probe; repeated if the machine was busy.
    let mut took = Vec::new();
    while took.len() < 10 && took.last().is_none_or(|last| *last >= RTT + Duration::from_millis(100)) {
        wait_for(100_000);
        marked.updates.store(false, Ordering::Relaxed);
        marked.room.store(0, Ordering::Relaxed);
        // Nothing comes in three intervals one after the other.
        let (mut before, mut quiet) = (u64::MAX, 0);
        for _ in 0..100 {
            std::thread::sleep(Duration::from_millis(300));
            let bytes = come.load(Ordering::Relaxed);
            quiet = if bytes == before { quiet + 1 } else { 0 };
            before = bytes;
            if quiet == 3 {
                break;
            }
        }
        assert_eq!(quiet, 3, "no room, and bytes keep coming");
        marked.updates.store(true, Ordering::Relaxed);
        marked.room.store(60_000, Ordering::Relaxed);
        took.push(wait_for(1));
    }
    println!("first bytes after there was room: {took:?}");
    assert!(took.last().is_some_and(|last| *last < RTT + Duration::from_millis(100)), "{took:?}");
    stop.store(true, Ordering::Relaxed);
    marked.stop.store(true, Ordering::Relaxed);
    assert!(marked.thread.join().expect("no panic") >= 1);
}
