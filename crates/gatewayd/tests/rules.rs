//! Installation and removal of rules and routes, in network namespaces.
#![allow(clippy::print_stdout, reason = "a test that cannot run says so")]

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::common::{Namespace, retry};
use bentpipe_gatewayd::intercept::nfqueue::{Lost, Queue, Settings, Verdict};
use bentpipe_gatewayd::intercept::offload::{self, Feature};
use bentpipe_gatewayd::intercept::rules::{Rules, Setup, Side, remove};
use bentpipe_packet::flag;
use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, connect, listen, setsockopt, socket,
    sockopt,
};

/// A folder, removed with its contents.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("bentpipe-rules-{}-{number}", std::process::id())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Everything that rules may change.
fn everything(namespace: &Namespace, device: &str) -> Vec<String> {
    let mut all = Vec::new();
    for command in ["iptables-nft-save", "ip6tables-nft-save"] {
        for table in ["raw", "mangle", "filter", "nat"] {
            let saved = namespace.command(&format!("{command} -t {table}"));
            // Built-in chains appear when a table is first listed; counters and times are no rules.
            all.extend(
                saved
                    .lines()
                    .filter(|line| line.starts_with("-A") || line.contains("bentpipe"))
                    .map(str::to_owned),
            );
        }
    }
    for family in ["-4", "-6"] {
        all.push(namespace.ip(&format!("{family} rule show")));
        // IPv6 routes of the kernel appear asynchronously and in any order.
        let routes = namespace.ip(&format!("{family} route show table all"));
        let own = |line: &&str| !["fe80:", "multicast", "anycast"].iter().any(|word| line.contains(word));
        let mut routes: Vec<&str> = routes.lines().filter(own).collect();
        routes.sort_unstable();
        all.push(routes.join("\n"));
    }
    for path in [
        "ipv4/ip_forward",
        "ipv6/conf/all/forwarding",
        "ipv4/tcp_ecn",
        &format!("ipv4/conf/{device}/rp_filter"),
    ] {
        all.push(format!("{path} {}", namespace.setting(&format!("net/{path}"))));
    }
    let device = device.to_owned();
    all.push(format!(
        "gro {:?}",
        namespace.run(move || offload::get(&device, Feature::Gro).expect("a device"))
    ));
    all
}

/// A transparent socket.
fn transparent(family: AddressFamily) -> OwnedFd {
    let fd = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).expect("a socket");
    setsockopt(&fd, sockopt::ReuseAddr, &true).expect("an option");
    // Also for IPv6: the kernel has one bit for both.
    setsockopt(&fd, sockopt::IpTransparent, &true).expect("CAP_NET_ADMIN");
    fd
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn listener(namespace: &Namespace, at: &str, any: bool) -> TcpListener {
    let at: SocketAddr = at.parse().expect("an address");
    namespace.run(move || {
        if !any {
            return crate::common::bound(|| TcpListener::bind(at));
        }
        let fd = transparent(family(at.ip()));
        bind(fd.as_raw_fd(), &SockaddrStorage::from(at)).expect("an address");
        listen(&fd, Backlog::new(64).expect("a number")).expect("to listen");
        fd.into()
    })
}

fn connection(namespace: &Namespace, to: &str) -> TcpStream {
    let to: SocketAddr = to.parse().expect("an address");
    namespace.run(move || {
        let stream = TcpStream::connect_timeout(&to, Duration::from_secs(30))
            .unwrap_or_else(|error| panic!("{to}: {error}"));
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a limit");
        stream
    })
}

/// The connection that a listener receives within half a minute.
fn accepted(listener: &TcpListener) -> Option<TcpStream> {
    if !crate::common::ready(listener, PollFlags::POLLIN, 30_000) {
        return None;
    }
    let stream = listener.accept().expect("a connection").0;
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a limit");
    Some(stream)
}

/// Exchanges a word in each direction.
fn talk(a: &mut TcpStream, b: &mut TcpStream) {
    for word in [b"one".as_slice(), b"three"] {
        a.write_all(word).expect("to send");
        b.write_all(word).expect("to send");
        for end in [&mut *a, &mut *b] {
            let mut heard = vec![0; word.len()];
            end.read_exact(&mut heard).expect("to receive");
            assert_eq!(heard, word);
        }
    }
}

/// Clients `c`, a terminal `t` (`to-c`, `to-s`), servers `s`.
fn users() -> Option<(Namespace, Namespace, Namespace)> {
    let (c, t, s) = (Namespace::new()?, Namespace::new()?, Namespace::new()?);
    c.join("to-t", &t, "to-c", 1);
    t.join("to-s", &s, "to-t", 2);
    for (namespace, v4, v6) in [(&c, "10.1.0.2", "fd01::2"), (&s, "10.2.0.1", "fd02::1")] {
        namespace.ip(&format!("route add default via {v4}"));
        namespace.ip(&format!("-6 route add default via {v6}"));
    }
    // As set by distributions.
    t.sysctl("net/ipv4/conf/all/rp_filter", "1");
    Some((c, t, s))
}

fn terminal(folder: &Folder) -> Setup {
    Setup {
        name: "t".to_owned(),
        folder: folder.0.clone(),
        interface: "to-c".to_owned(),
        side: Side::Users { port: 5000, queue: Some(0) },
        clients: ["10.1.0.0/24", "fd01::/64"].iter().map(|text| text.parse().expect("a prefix")).collect(),
        tunnel: None,
        terminals: false,
        ecn: true,
        offload: true,
        table: 6270,
    }
}

#[test]
fn connections_end_at_the_terminal_or_bypass_it() {
    let Some((c, t, s)) = users() else { return };
    let folder = Folder::new();
    // Plain forwarding at first.
    t.sysctl("net/ipv4/ip_forward", "1");
    t.sysctl("net/ipv6/conf/all/forwarding", "1");
    for (at, own, listens, from) in [
        ("10.2.0.2:80", "10.1.0.2:8080", "127.0.0.1:5000", "10.1.0.1"),
        ("[fd02::2]:80", "[fd01::2]:8080", "[::1]:5000", "fd01::1"),
    ] {
        let server = listener(&s, at, false);
        let mut old = connection(&c, at);
        let mut old_end = accepted(&server).expect("plain forwarding");
        talk(&mut old, &mut old_end);

        let setup = terminal(&folder);
        let mut rules = t.run(move || Rules::install(setup).expect("rules"));
        let pep = listener(&t, listens, true);
        let mut split = connection(&c, at);
        let mut split_end = accepted(&pep).expect("TPROXY");
        assert!(accepted_now(&server).is_none());
        assert_eq!(split_end.local_addr().expect("an address"), at.parse().expect("an address"));
        assert_eq!(split_end.peer_addr().expect("an address").ip().to_string(), from);
        talk(&mut split, &mut split_end);
        // Earlier connections bypass the listener.
        talk(&mut old, &mut old_end);
        // The terminal itself is reachable.
        let itself = listener(&t, own, false);
        let mut to_itself = connection(&c, own);
        talk(&mut to_itself, &mut accepted(&itself).expect("a connection to the terminal"));

        let switch = |mut rules: Rules, on| {
            t.run(move || {
                rules.bypass(on).expect("a command");
                while !rules.settle().expect("a successful command") {
                    std::thread::sleep(Duration::from_millis(1));
                }
                assert_eq!(rules.bypassing(), on);
                rules
            })
        };
        rules = switch(rules, true);
        let mut by = connection(&c, at);
        let mut by_end = accepted(&server).expect("an unsplit connection");
        rules = switch(rules, false);
        talk(&mut by, &mut by_end);
        talk(&mut split, &mut split_end);
        let mut again = connection(&c, at);
        talk(&mut again, &mut accepted(&pep).expect("TPROXY again"));

        // The daemon disappears, and its rules are removed.
        drop((rules, pep));
        let setup = terminal(&folder);
        t.run(move || remove(&setup).expect("to remove rules"));
        let mut free = connection(&c, at);
        talk(&mut free, &mut accepted(&server).expect("plain forwarding again"));
        talk(&mut by, &mut by_end);
    }
}

fn accepted_now(listener: &TcpListener) -> Option<TcpStream> {
    listener.set_nonblocking(true).expect("an option");
    let found = listener.accept().ok().map(|(stream, _)| stream);
    listener.set_nonblocking(false).expect("an option");
    found
}

#[test]
fn removal_restores_everything() {
    let Some((_c, t, s)) = users() else { return };
    let folder = Folder::new();
    // Rules of others in the same places.
    t.command("iptables-nft -t raw -A PREROUTING -p udp -m comment --comment other -j ACCEPT");
    t.command("iptables-nft -t mangle -N other");
    t.command("iptables-nft -t mangle -A PREROUTING -p tcp -j other");
    t.command("ip6tables-nft -t mangle -A FORWARD -p tcp -j ACCEPT");
    t.ip("rule add priority 6271 fwmark 7 lookup 6270");
    t.ip("rule add priority 7000 fwmark 9 lookup 7000 protocol 98");
    t.ip("route add 10.77.0.0/16 dev to-s table 6270");
    t.run(|| offload::set("to-c", Feature::Gro, true).expect("an offload"));
    let before = everything(&t, "to-c");
    let gateway = |folder: &Folder| Setup {
        name: "g".to_owned(),
        side: Side::Internet { queue: 0, windows: Some(1) },
        tunnel: Some("to-s".to_owned()),
        table: 6280,
        ..terminal(folder)
    };

    // An orderly removal, one after a kill, and both twice.
    let setup = terminal(&folder);
    t.run(move || {
        let rules = Rules::install(setup.clone()).expect("rules");
        rules.remove().expect("to remove rules");
        drop(Rules::install(setup.clone()).expect("rules"));
        drop(Rules::install(setup).expect("rules, once more"));
    });
    let during = everything(&t, "to-c");
    assert_ne!(during, before);
    let jumps = |list: &[String]| list.iter().filter(|line| line.contains("-j bentpipe-t-in")).count();
    assert_eq!(jumps(&during), 2);
    for line in &before {
        // Routes and routing rules are one text per IP version.
        assert!(
            line.contains('\n') || line.contains("gro") || line.starts_with("ipv") || during.contains(line),
            "{line}"
        );
    }
    assert_eq!(t.setting("net/ipv4/ip_forward"), "1");
    assert_eq!(t.setting("net/ipv4/conf/to-c/rp_filter"), "2");

    // Two gateways: after the first leaves, shared settings stay until the second leaves too.
    let (first, second) = (terminal(&folder), gateway(&folder));
    t.run(move || {
        drop(Rules::install(second).expect("rules of a second one"));
        remove(&first).expect("to remove the first");
    });
    assert_eq!(t.setting("net/ipv4/ip_forward"), "1");
    let second = gateway(&folder);
    t.run(move || remove(&second).expect("to remove the second"));
    assert_eq!(everything(&t, "to-c"), before);
    assert!(!folder.0.exists(), "the last one takes the folder away");

    // Settings changed by others since are left alone.
    let setup = terminal(&folder);
    t.run(move || drop(Rules::install(setup).expect("rules")));
    t.sysctl("net/ipv4/tcp_ecn", "0");
    let setup = terminal(&folder);
    t.run(move || {
        remove(&setup).expect("to remove rules");
        remove(&setup).expect("to remove nothing");
    });
    assert_eq!(t.setting("net/ipv4/tcp_ecn"), "0");
    t.sysctl("net/ipv4/tcp_ecn", "2");
    assert_eq!(everything(&t, "to-c"), before);

    // Recorded settings belong to one namespace and touch no other.
    let (setup, other) = (terminal(&folder), terminal(&folder));
    t.run(move || drop(Rules::install(setup).expect("rules")));
    s.sysctl("net/ipv4/ip_forward", "1");
    let written = std::fs::read(folder.0.join("t.json")).expect("old values");
    s.run(move || remove(&other).expect("to remove nothing"));
    assert_eq!(s.setting("net/ipv4/ip_forward"), "1");
    std::fs::create_dir_all(&folder.0).expect("the folder");
    std::fs::write(folder.0.join("t.json"), written).expect("old values");
    let setup = terminal(&folder);
    t.run(move || remove(&setup).expect("to remove rules"));
    assert_eq!(everything(&t, "to-c"), before);

    // Other tables than those of the killed process.
    let (old, new) = (terminal(&folder), Setup { table: 6290, ..terminal(&folder) });
    t.run(move || {
        drop(Rules::install(old).expect("rules"));
        Rules::install(new).expect("rules in other tables").remove().expect("to remove rules");
    });
    assert_eq!(everything(&t, "to-c"), before);

    // A failed installation leaves nothing.
    let setup = Setup { tunnel: Some("nowhere".to_owned()), ..terminal(&folder) };
    let error = t.run(move || Rules::install(setup).expect_err("there is no such device").to_string());
    assert!(error.contains("nowhere"), "{error}");
    assert_eq!(everything(&t, "to-c"), before);
}

/// VLAN devices have such names. IPv4, which the users do not have here, is left alone.
#[test]
fn device_names_may_contain_a_point() {
    let Some((a, b)) = Namespace::new().zip(Namespace::new()) else { return };
    a.join("to-b.7", &b, "to-a", 1);
    a.sysctl("net/ipv4/conf/all/rp_filter", "1");
    let folder = Folder::new();
    for (clients, filter, forward) in [("10.1.0.0/24", "2", "1"), ("fd01::/64", "0", "0")] {
        let interface = "to-b.7".to_owned();
        let setup =
            Setup { interface, clients: vec![clients.parse().expect("a prefix")], ..terminal(&folder) };
        let before = everything(&a, "to-b.7");
        let rules = a.run(move || Rules::install(setup).expect("rules"));
        assert_eq!(a.setting("net/ipv4/conf/to-b.7/rp_filter"), filter);
        assert_eq!(a.setting("net/ipv4/ip_forward"), forward);
        a.run(move || rules.remove().expect("to remove rules"));
        assert_eq!(everything(&a, "to-b.7"), before);
    }
}

#[test]
fn values_for_scripts_are_checked() {
    let folder = Folder::new();
    for (setup, expected) in [
        (Setup { name: "a b".to_owned(), ..terminal(&folder) }, "name \"a b\""),
        (Setup { name: String::new(), ..terminal(&folder) }, "name \"\""),
        (Setup { interface: "e0\nCOMMIT".to_owned(), ..terminal(&folder) }, "interface \"e0\\nCOMMIT\""),
        (Setup { interface: "-j".to_owned(), ..terminal(&folder) }, "interface \"-j\""),
        (Setup { tunnel: Some("sixteen-letters-".to_owned()), ..terminal(&folder) }, "interface \"sixteen"),
        (Setup { table: 254, ..terminal(&folder) }, "routing table 254"),
        (Setup { clients: Vec::new(), ..terminal(&folder) }, "clients"),
    ] {
        let error = Rules::install(setup).expect_err("an invalid setup").to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

/// Servers `s`, a gateway `g` (`to-s`, and `bp0` with an MTU of 1300 towards users), users `u` (10.3.0.9, fd33::9).
fn internet() -> Option<(Namespace, Namespace, Namespace)> {
    let (s, g, u) = (Namespace::new()?, Namespace::new()?, Namespace::new()?);
    s.join("to-g", &g, "to-s", 1);
    g.join("bp0", &u, "bp1", 4);
    for (namespace, device) in [(&g, "bp0"), (&u, "bp1")] {
        namespace.ip(&format!("link set {device} mtu 1300"));
    }
    u.ip("addr add 10.3.0.9/32 dev bp1");
    u.ip("addr add fd33::9/128 dev bp1 nodad");
    for (namespace, v4, v6) in [(&s, "10.1.0.2", "fd01::2"), (&u, "10.4.0.1", "fd04::1")] {
        namespace.ip(&format!("route add default via {v4}"));
        namespace.ip(&format!("-6 route add default via {v6}"));
    }
    Some((s, g, u))
}

fn gateway(folder: &Folder) -> Setup {
    Setup {
        name: "g".to_owned(),
        folder: folder.0.clone(),
        interface: "to-s".to_owned(),
        side: Side::Internet { queue: 0, windows: Some(1) },
        clients: ["10.3.0.0/16", "fd33::/64"].iter().map(|text| text.parse().expect("a prefix")).collect(),
        tunnel: Some("bp0".to_owned()),
        terminals: false,
        ecn: true,
        offload: true,
        table: 6270,
    }
}

/// Packets seen by a queue.
#[derive(Debug, Default)]
struct Seen {
    packets: usize,
    /// Length of the longest [bytes].
    longest: usize,
    /// MSS of every SYN.
    syns: Vec<Option<u16>>,
    marked: usize,
}

/// Decides about a queue's packets until told to stop; marks every tenth markable packet with payload.
fn judge(namespace: &Namespace, number: u16, stop: &Arc<AtomicBool>) -> std::thread::JoinHandle<Seen> {
    let (opened, open) = mpsc::channel();
    let stop = Arc::clone(stop);
    let thread = namespace.spawn(move || {
        let mut queue = crate::common::bound(|| Queue::open(number, &Settings::default()));
        opened.send(()).expect("a receiver");
        let mut seen = Seen::default();
        loop {
            if !crate::common::ready(&queue, PollFlags::POLLIN, 20) && stop.load(Ordering::Relaxed) {
                assert_eq!((queue.lost().expect("counters"), queue.refused()), (Lost::default(), 0));
                return seen;
            }
            queue
                .receive(&mut |_, packet| {
                    seen.packets += 1;
                    seen.longest = seen.longest.max(packet.len());
                    let Some(tcp) = bentpipe_packet::parse(packet).and_then(|info| info.tcp) else {
                        return Verdict::Accept;
                    };
                    if tcp.flags & flag::SYN != 0 {
                        seen.syns.push(tcp.mss);
                    }
                    if tcp.payload > 0 && seen.packets.is_multiple_of(10) && bentpipe_packet::set_ce(packet) {
                        seen.marked += 1;
                        return Verdict::Changed;
                    }
                    Verdict::Accept
                })
                .expect("packets");
            queue.flush().expect("verdicts");
        }
    });
    open.recv().expect("a queue");
    thread
}

/// Acknowledged segments with a congestion mark, and retransmitted segments.
fn marks_and_retransmissions(stream: &TcpStream) -> (u32, u32) {
    let mut info = [0u8; 256];
    let mut length = info.len() as libc::socklen_t;
    #[expect(unsafe_code, reason = "the libc crate's tcp_info ends before the field")]
    // SAFETY: the kernel writes at most `length` bytes.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    assert_eq!(result, 0);
    let at = |at: usize| u32::from_ne_bytes(info[at..at + 4].try_into().expect("four bytes"));
    // tcpi_delivered_ce and tcpi_total_retrans of linux/tcp.h.
    assert!(length >= 200);
    (at(196), at(100))
}

#[test]
fn servers_see_clients_and_packets_are_queued() {
    let Some((s, g, u)) = internet() else { return };
    let folder = Folder::new();
    let setup = gateway(&folder);
    let before = everything(&g, "to-s");
    let rules = g.run(move || Rules::install(setup).expect("rules"));
    // ECN is negotiated by its own request.
    for (at, client, user) in [
        ("10.1.0.1:80", "10.3.0.7:40007", "10.3.0.9:80"),
        ("[fd01::1]:80", "[fd33::7]:40007", "[fd33::9]:80"),
    ] {
        let server = listener(&s, at, false);
        // Without a listener on the queue, then with one, in both directions.
        for judged in [false, true] {
            let stop = Arc::new(AtomicBool::new(false));
            let judging = judged.then(|| [judge(&g, 0, &stop), judge(&g, 1, &stop)]);
            let (to, from): (SocketAddr, SocketAddr) =
                (at.parse().expect("an address"), client.parse().expect("an address"));
            let mut split: TcpStream = g.run(move || {
                let fd = transparent(family(to.ip()));
                bind(fd.as_raw_fd(), &SockaddrStorage::from(from)).expect("a client's address");
                connect(fd.as_raw_fd(), &SockaddrStorage::from(to)).expect("a connection");
                fd.into()
            });
            split.set_read_timeout(Some(Duration::from_secs(30))).expect("a limit");
            let mut split_end = accepted(&server).expect("the gateway's connection");
            assert_eq!(split_end.peer_addr().expect("an address"), from);
            talk(&mut split, &mut split_end);
            // A megabyte, with marks.
            let sending = std::thread::spawn(move || {
                split_end.write_all(&vec![7; 1 << 20]).expect("to send");
                split_end.shutdown(std::net::Shutdown::Write).expect("to end");
                let _ = retry(|| split_end.read(&mut [0]));
                marks_and_retransmissions(&split_end)
            });
            let mut all = Vec::new();
            split.read_to_end(&mut all).expect("to receive");
            assert_eq!((all.len(), all.iter().all(|byte| *byte == 7)), (1 << 20, true));
            // Reset, so that the address is free at once.
            setsockopt(&split, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 0 })
                .expect("an option");
            drop(split);
            let (marks, again) = sending.join().expect("no panic");
            // A segment broken by marking would never arrive; a busy machine retransmits a few.
            assert!(again < 100, "{again} of about 750 segments were retransmitted");

            // An ICMP error about the gateway's SYN reaches its socket, not the user with that address.
            let refuse = format!(
                "INPUT -p tcp --dport 81 -j REJECT --reject-with {}",
                if to.is_ipv4() { "icmp-port-unreachable" } else { "icmp6-port-unreachable" }
            );
            let command = if to.is_ipv4() { "iptables-nft" } else { "ip6tables-nft" };
            s.command(&format!("{command} -A {refuse}"));
            let refused = g.run(move || {
                let fd = transparent(family(to.ip()));
                bind(fd.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(from.ip(), 0)))
                    .expect("a client's address");
                let stream = TcpStream::from(fd);
                stream.set_nonblocking(true).expect("an option");
                let begun = connect(stream.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(to.ip(), 81)));
                assert_eq!(begun, Err(Errno::EINPROGRESS));
                assert!(crate::common::ready(&stream, PollFlags::POLLOUT, 30_000), "no answer");
                stream.take_error().expect("an answer").and_then(|error| error.raw_os_error())
            });
            assert_eq!(refused, Some(libc::ECONNREFUSED));
            s.command(&format!("{command} -D {refuse}"));

            // Other packets go on to the users, with a suitable MSS.
            let users = listener(&u, user, false);
            let rule = "PREROUTING -p tcp --syn -j NFQUEUE --queue-num 5 --queue-bypass";
            u.command(&format!("{command} -t raw -A {rule}"));
            let arrived = Arc::new(AtomicBool::new(false));
            let watch = judge(&u, 5, &arrived);
            let mut through = connection(&s, user);
            let mut through_end = accepted(&users).expect("an unsplit connection");
            talk(&mut through, &mut through_end);
            arrived.store(true, Ordering::Relaxed);
            let mss = 1300 - if to.is_ipv4() { 40 } else { 60 };
            // One, or more if a busy machine retransmits.
            let syns = watch.join().expect("no panic").syns;
            assert!(!syns.is_empty() && syns.iter().all(|seen| *seen == Some(mss)), "{syns:?}");
            u.command(&format!("{command} -t raw -D {rule}"));

            // A datagram in three fragments.
            let user: SocketAddr = user.parse().expect("an address");
            let end = u.run(move || crate::common::bound(|| UdpSocket::bind(user)));
            end.set_read_timeout(Some(Duration::from_millis(200))).expect("a limit");
            let come = (0..20).find_map(|_| {
                s.run(move || {
                    let socket = UdpSocket::bind(if user.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })
                        .expect("a socket");
                    // An IPv6 sender first has to learn the path MTU.
                    let _ = socket.send_to(&[3; 4000], user);
                });
                retry(|| end.recv(&mut [0; 5000])).ok()
            });
            assert_eq!(come, Some(4000));

            stop.store(true, Ordering::Relaxed);
            if let Some([inward, outward]) = judging {
                let (inward, outward) = (inward.join().expect("no panic"), outward.join().expect("no panic"));
                assert!(inward.packets > (1 << 20) / 1448, "{inward:?}");
                // The kernel has reassembled the fragments for TPROXY and the socket match.
                assert_eq!(inward.longest, if to.is_ipv4() { 4028 } else { 4048 });
                // The kernel echoes a mark until the sender has reacted (RFC 3168), and counts the bytes acknowledged meanwhile.
                assert!(inward.marked > 10 && marks >= inward.marked as u32, "{marks} of {inward:?}");
                // The server's SYN-ACK and the unsplit connection's SYN; outward only the gateway's own SYNs, one of them refused.
                assert!(inward.syns.len() >= 2 && outward.syns.len() >= 2, "{inward:?} {outward:?}");
                let own = if to.is_ipv4() { 1460 } else { 1440 };
                assert!(outward.syns.iter().all(|mss| *mss == Some(own)), "{outward:?}");
                assert!(outward.packets > 10);
            } else {
                assert_eq!(marks, 0);
            }
        }
    }
    g.run(move || rules.remove().expect("to remove rules"));
    assert_eq!(everything(&g, "to-s"), before);
}
