//! Netfilter queues in network namespaces.
#![allow(clippy::print_stdout, reason = "measurements are shown, and so is why a test cannot run")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::common::retry;
use bentpipe_gatewayd::intercept::nfqueue::{Lost, PacketId, Queue, Settings, Verdict};
use nix::poll::PollFlags;
use nix::sys::socket::{setsockopt, sockopt};

const A: [&str; 2] = ["10.1.0.1", "[fd01::1]"];
const B: [&str; 2] = ["10.1.0.2", "[fd01::2]"];

/// Sends packets that match `what` to a queue.
fn tap(namespace: &crate::common::Namespace, number: u16, what: &str) {
    for command in ["iptables-nft", "ip6tables-nft"] {
        namespace.command(&format!(
            "{command} -t raw -A PREROUTING {what} -j NFQUEUE --queue-num {number} --queue-bypass"
        ));
    }
}

/// Waits until a descriptor is readable; false after the time-out.
fn readable(what: &impl AsFd, milliseconds: u16) -> bool {
    crate::common::ready(what, PollFlags::POLLIN, milliseconds)
}

/// Decides about packets until told to stop, and for 20 ms after the last.
fn judge(
    queue: &mut Queue,
    stop: &AtomicBool,
    each: &mut dyn FnMut(PacketId, &mut [u8]) -> Verdict,
) -> usize {
    let mut packets = 0;
    loop {
        if readable(queue, 20) {
            packets += queue.receive(each).expect("packets");
            queue.flush().expect("verdicts");
        } else if stop.load(Ordering::Relaxed) {
            return packets;
        }
    }
}

/// Sends numbered datagrams from `a` to port 9 of `b`, all ECT(0).
fn numbered(a: &crate::common::Namespace, to: &str, count: u32, length: usize) {
    let to: SocketAddr = format!("{to}:9").parse().expect("an address");
    a.run(move || {
        let socket = UdpSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }).expect("a socket");
        if to.is_ipv4() {
            setsockopt(&socket, sockopt::Ipv4Tos, &2).expect("ECT(0)");
        } else {
            setsockopt(&socket, sockopt::Ipv6TClass, &2).expect("ECT(0)");
        }
        let mut payload = vec![0; length.max(4)];
        for number in 0..count {
            payload[..4].copy_from_slice(&number.to_be_bytes());
            socket.send_to(&payload, to).expect("to send");
        }
    });
}

/// Numbers and ECN bits of the datagrams that a socket receives: `count`, or more if there are more.
fn come(socket: &UdpSocket, count: usize) -> Vec<(u32, u8)> {
    use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg};
    let mut list = Vec::new();
    while readable(socket, if list.len() < count { 20_000 } else { 50 }) {
        let mut payload = [0; 2048];
        let mut control = nix::cmsg_space!([u8; 64]);
        let mut places = [std::io::IoSliceMut::new(&mut payload)];
        let message = recvmsg::<SockaddrStorage>(
            socket.as_raw_fd(),
            &mut places,
            Some(&mut control),
            MsgFlags::empty(),
        )
        .expect("a datagram");
        let ecn = message
            .cmsgs()
            .expect("control data")
            .find_map(|control| match control {
                ControlMessageOwned::Ipv4Tos(tos) => Some(tos & 3),
                ControlMessageOwned::Ipv6TClass(class) => Some(class as u8 & 3),
                _ => None,
            })
            .expect("the type of service");
        list.push((u32::from_be_bytes(payload[..4].try_into().expect("four bytes")), ecn));
    }
    list
}

fn receiver(b: &crate::common::Namespace, at: &str) -> UdpSocket {
    let at: SocketAddr = format!("{at}:9").parse().expect("an address");
    b.run(move || {
        let socket = crate::common::bound(|| UdpSocket::bind(at));
        setsockopt(&socket, sockopt::RcvBuf, &(8 << 20)).expect("as large a buffer as is allowed");
        if at.is_ipv4() {
            setsockopt(&socket, sockopt::IpRecvTos, &true).expect("ECN reported");
        } else {
            setsockopt(&socket, sockopt::Ipv6RecvTClass, &true).expect("ECN reported");
        }
        socket
    })
}

#[test]
fn verdicts_apply_to_each_packet_in_order() {
    let Some((a, b)) = crate::common::pair() else { return };
    tap(&b, 0, "-p udp");
    for (at, from) in B.iter().zip(A) {
        let socket = receiver(&b, at);
        let stop = Arc::new(AtomicBool::new(false));
        let (opened, open) = std::sync::mpsc::channel();
        let stopped = Arc::clone(&stop);
        let seen = Arc::new(AtomicU32::new(0));
        let seeing = Arc::clone(&seen);
        let judging = b.spawn(move || {
            let mut queue = crate::common::bound(|| Queue::open(0, &Settings::default()));
            opened.send(()).expect("a receiver");
            let mut later = None;
            let judged = judge(&mut queue, &stopped, &mut |id, packet| {
                seeing.fetch_add(1, Ordering::Relaxed);
                let info = bentpipe_packet::parse(packet).expect("an IP packet");
                assert_eq!(
                    (info.protocol, info.dst.port(), info.len as usize),
                    (bentpipe_packet::UDP, 9, packet.len())
                );
                let number =
                    u32::from_be_bytes(packet[packet.len() - 100..][..4].try_into().expect("four bytes"));
                match number % 5 {
                    0 => Verdict::Drop,
                    1 => {
                        assert!(bentpipe_packet::set_ce(packet));
                        Verdict::Changed
                    }
                    // The last of those waits.
                    2 if number == 297 => {
                        later = Some((id, packet.to_vec()));
                        Verdict::Later
                    }
                    _ => Verdict::Accept,
                }
            });
            assert_eq!(queue.waiting(), 1);
            let (id, mut packet) = later.expect("the packet that waits");
            assert!(bentpipe_packet::set_ce(&mut packet));
            queue.accept_changed(id, &packet);
            queue.flush().expect("a verdict");
            (judged, queue.waiting(), queue.refused(), queue.lost().expect("counters"))
        });
        open.recv().expect("a queue");
        numbered(&a, at, 300, 100);
        for _ in 0..2000 {
            if seen.load(Ordering::Relaxed) == 300 {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(judging.join().expect("no panic"), (300, 0, 0, Lost::default()), "from {from}");
        let mut expected: Vec<(u32, u8)> = (0..300)
            .filter(|number| number % 5 != 0 && *number != 297)
            .map(|number| (number, if number % 5 == 1 { 3 } else { 2 }))
            .collect();
        expected.push((297, 3));
        assert_eq!(come(&socket, expected.len()), expected, "from {from}");
    }
}

#[test]
fn packets_pass_without_a_listener() {
    let Some((a, b)) = crate::common::pair() else { return };
    tap(&b, 7, "-p udp");
    for at in B {
        let socket = receiver(&b, at);
        numbered(&a, at, 10, 100);
        assert_eq!(come(&socket, 10).len(), 10, "before there is a queue");
        // A truncated packet cannot be changed.
        let part = Settings { copy: 64, ..Settings::default() };
        let mut queue = b.run(move || crate::common::bound(|| Queue::open(7, &part)));
        let second = b.run(|| Queue::open(7, &Settings::default()).expect_err("the number is taken"));
        assert_eq!(second.to_string(), "NFQUEUE 7: bound by another process, or CAP_NET_ADMIN is missing");
        numbered(&a, at, 10, 100);
        assert_eq!(come(&socket, 0).len(), 0, "held by the queue");
        let mut shown = 0;
        while shown < 10 {
            assert!(readable(&queue, 20_000));
            let mut judge = |_, packet: &mut [u8]| {
                shown += 1;
                assert!(packet.len() == 64 && bentpipe_packet::set_ce(packet));
                if shown <= 3 { Verdict::Changed } else { Verdict::Later }
            };
            queue.receive(&mut judge).expect("packets");
        }
        queue.flush().expect("verdicts");
        assert_eq!(come(&socket, 3), [(0, 2), (1, 2), (2, 2)], "as they were");
        assert_eq!((queue.waiting(), queue.refused()), (7, 0));
        // Waiting packets are accepted when the queue is closed.
        drop(queue);
        b.run(|| crate::common::released(7));
        numbered(&a, at, 10, 100);
        assert_eq!(come(&socket, 17).len(), 17, "after it is gone");
    }
}

#[test]
fn lost_packets_are_counted() {
    let Some((a, b)) = crate::common::pair() else { return };
    tap(&b, 0, "-p udp");
    let small = Settings { buffer: 50_000, ..Settings::default() };
    for (settings, what) in [
        (Settings { limit: 100, ..Settings::default() }, "limit"),
        (small, "buffer"),
        (Settings { fail_open: true, ..small }, "open"),
    ] {
        let socket = receiver(&b, B[0]);
        let mut queue = b.run(move || crate::common::bound(|| Queue::open(0, &settings)));
        numbered(&a, B[0], 500, 1000);
        let mut judged = Vec::new();
        while queue
            .receive(&mut |id, _| {
                judged.push(id);
                Verdict::Accept
            })
            .expect("packets")
            > 0
        {}
        queue.flush().expect("verdicts");
        // One more packet, whose id shows how many were skipped.
        numbered(&a, B[0], 1, 1000);
        assert!(readable(&queue, 20_000));
        assert_eq!(queue.receive(&mut |_, _| Verdict::Accept).expect("a packet"), 1);
        queue.flush().expect("a verdict");
        let lost = queue.lost().expect("counters");
        let judged = judged.len() as u64;
        assert!((1..500).contains(&judged), "{what}: {judged} judged");
        let expected = match what {
            "limit" => Lost { queue: 500 - judged, ..Lost::default() },
            "buffer" => Lost { user: 500 - judged, ..Lost::default() },
            _ => Lost { passed: 500 - judged, ..Lost::default() },
        };
        assert_eq!(lost, expected, "{what}");
        let passed = (501 - lost.queue - lost.user) as usize;
        assert_eq!(come(&socket, passed).len(), passed, "{what}");
        if what == "limit" {
            assert_eq!(judged, 100);
        }
    }
}

/// A pattern of bytes.
fn pattern(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Sends `bytes` over TCP from `a` to `b`, after preparing both sockets. Returns what the sender reports once all have
/// arrived.
fn transfer<T: Send + 'static>(
    a: &crate::common::Namespace,
    b: &crate::common::Namespace,
    at: &str,
    bytes: u64,
    asked: impl FnOnce(&TcpStream) -> T + Send + 'static,
) -> T {
    let at: SocketAddr = format!("{at}:80").parse().expect("an address");
    let listener = b.run(move || crate::common::bound(|| TcpListener::bind(at)));
    let receiving = b.spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut buffer = vec![0; 1 << 16];
        let mut come = 0;
        while let Ok(count @ 1..) = retry(|| stream.read(&mut buffer)) {
            for (place, byte) in buffer[..count].iter().enumerate() {
                assert_eq!(*byte, pattern(come + place as u64), "byte {}", come + place as u64);
            }
            come += count as u64;
        }
        come
    });
    let sending = a.spawn(move || {
        let mut stream = TcpStream::connect_timeout(&at, Duration::from_secs(30)).expect("a connection");
        stream.set_write_timeout(Some(Duration::from_secs(30))).expect("a limit");
        let data: Vec<u8> = (0..bytes).map(pattern).collect();
        stream.write_all(&data).expect("to send");
        stream.shutdown(std::net::Shutdown::Write).expect("to end");
        let _ = retry(|| stream.read(&mut [0]));
        asked(&stream)
    });
    assert_eq!(receiving.join().expect("no panic"), bytes);
    sending.join().expect("no panic")
}

#[test]
fn packets_are_segments_with_complete_checksums() {
    let Some((a, b)) = crate::common::pair() else { return };
    // Offloads are on: the sender's TCP passes up to 64 kB to its interface, with an incomplete checksum.
    tap(&b, 0, "-p tcp");
    for command in ["iptables-nft", "ip6tables-nft"] {
        a.command(&format!(
            "{command} -t mangle -A POSTROUTING -p tcp -j NFQUEUE --queue-num 1 --queue-bypass"
        ));
    }
    for at in B {
        let stop = Arc::new(AtomicBool::new(false));
        let mut judging = Vec::new();
        let (opened, open) = std::sync::mpsc::channel();
        for (namespace, number) in [(&b, 0), (&a, 1)] {
            let (stopped, opened) = (Arc::clone(&stop), opened.clone());
            judging.push(namespace.spawn(move || {
                let mut queue = crate::common::bound(|| Queue::open(number, &Settings::default()));
                opened.send(()).expect("a receiver");
                let (mut longest, mut changed) = (0, 0);
                let packets = judge(&mut queue, &stopped, &mut |_, packet| {
                    let info = bentpipe_packet::parse(packet).expect("an IP packet");
                    assert_eq!(info.len as usize, packet.len());
                    longest = longest.max(packet.len());
                    let (ip, pseudo) = if info.version == 4 { (20, 12..20) } else { (40, 8..40) };
                    let length = ((packet.len() - ip) as u16).to_be_bytes();
                    let sum = bentpipe_packet::build::checksum(&[
                        &packet[pseudo],
                        &[0, bentpipe_packet::TCP],
                        &length,
                        &packet[ip..],
                    ]);
                    assert_eq!(sum, 0, "a whole checksum, queue {number}");
                    let tcp = info.tcp.expect("a TCP header");
                    changed += 1;
                    assert!(bentpipe_packet::set_window(packet, tcp.window - 1));
                    Verdict::Changed
                });
                (packets, longest, changed, queue.refused(), queue.lost().expect("counters"))
            }));
        }
        drop(opened);
        open.recv().and_then(|()| open.recv()).expect("both queues");
        transfer(&a, &b, at, 3_000_000, |_| ());
        stop.store(true, Ordering::Relaxed);
        for judging in judging {
            let (packets, longest, changed, refused, lost) = judging.join().expect("no panic");
            assert_eq!(longest, 1500);
            assert!(packets > 3_000_000 / 1448, "{packets}");
            assert_eq!((changed, refused, lost), (packets, 0, Lost::default()));
        }
    }
}

/// CPU time of the calling thread.
fn worked() -> Duration {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a clock");
    Duration::new(time.tv_sec() as u64, time.tv_nsec() as u32)
}

#[test]
fn a_queue_keeps_up_with_tcp() {
    let Some((a, b)) = crate::common::pair() else { return };
    tap(&b, 0, "-p tcp");
    let stop = Arc::new(AtomicBool::new(false));
    let (opened, open) = std::sync::mpsc::channel();
    let stopped = Arc::clone(&stop);
    let judging = b.spawn(move || {
        let mut queue = crate::common::bound(|| Queue::open(0, &Settings::default()));
        opened.send(()).expect("a receiver");
        // First unchanged, then with every packet changed.
        let mut changing = false;
        let mut costs = Vec::new();
        for _ in 0..2 {
            let (mut packets, before) = (0, worked());
            while packets < 20_000 && !stopped.load(Ordering::Relaxed) {
                if readable(&queue, 20) {
                    packets += queue
                        .receive(&mut |_, packet| {
                            let info = bentpipe_packet::parse(packet).expect("an IP packet");
                            match (changing, info.tcp) {
                                (true, Some(tcp)) if bentpipe_packet::set_window(packet, tcp.window) => {
                                    Verdict::Changed
                                }
                                _ => Verdict::Accept,
                            }
                        })
                        .expect("packets");
                    queue.flush().expect("verdicts");
                }
            }
            costs.push(((worked() - before) / packets.max(1) as u32, packets));
            changing = true;
        }
        judge(&mut queue, &stopped, &mut |_, _| Verdict::Accept);
        (costs, queue.lost().expect("counters"))
    });
    open.recv().expect("a queue");
    transfer(&a, &b, B[0], 80_000_000, |_| ());
    stop.store(true, Ordering::Relaxed);
    let (costs, lost) = judging.join().expect("no panic");
    for ((cost, packets), what) in costs.into_iter().zip(["passed", "changed"]) {
        println!("{packets} packets {what}: {cost:?} of this thread's processor time each");
        assert!(packets >= 20_000, "{what}");
    }
    assert_eq!(lost, Lost::default());
}
