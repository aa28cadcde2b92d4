//! Transfers between two ends over one link, against the kernel of TCP's counterpart, another cryptography and the RFCs.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bentpipe_quic::frames::{Frame, PacketType, packets};
use bentpipe_quic::log::{Logged, LossCause, Note, State};
use bentpipe_quic::{Config, Connection, Host, Resumption, labels};
use bentpipe_transport::tcp::{self, Algorithm, Ecn};
use bentpipe_units::{Duration, Instant, Rate, Rng};
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};

/// Additional delay of packets that are reordered.
const LATE: Duration = Duration::from_millis(20);

/// A link from the server to the client with a queue, and one back without.
#[derive(Clone)]
struct Link {
    rate: Rate,
    /// One way.
    delay: Duration,
    /// Room of the queue [bytes].
    room: u64,
    /// Waiting bytes from which packets are marked in place of dropped.
    mark_above: Option<u64>,
    /// Numbers of the server's packets that are lost.
    lost: Vec<u64>,
    /// Share of packets lost at random, in both directions.
    loss: f64,
    /// Share of packets that take [`LATE`] longer.
    reordering: f64,
    /// Both ends log.
    has_logs: bool,
}

impl Default for Link {
    fn default() -> Self {
        let delay = Duration::from_millis(300);
        Self {
            rate: Rate::from_bps(20_000_000),
            delay,
            room: u64::MAX,
            mark_above: None,
            lost: Vec::new(),
            loss: 0.0,
            reordering: 0.0,
            has_logs: false,
        }
    }
}

/// A packet on its way: to the client or the server, its length, and its code point.
type Packet<T> = (bool, T, u32, Ecn);

/// Packets on their way over a link, by their times.
struct Network<T> {
    link: Link,
    headers: u32,
    in_flight: BTreeMap<(Instant, u64), Packet<T>>,
    queue: VecDeque<(Instant, u32)>,
    free_at: Instant,
    sent: u64,
    /// Time, direction and length of each packet sent.
    log: Vec<(u64, bool, u32)>,
    drops: u64,
    marks: u64,
    rng: Rng,
    /// Payloads that did not arrive.
    dropped: Vec<T>,
    /// Notes of the server and of the client.
    notes: [Vec<(Instant, Note)>; 2],
}

impl<T> Network<T> {
    fn new(link: Link, headers: u32) -> Self {
        Self {
            link,
            headers,
            in_flight: BTreeMap::new(),
            queue: VecDeque::new(),
            free_at: Instant::ZERO,
            sent: 0,
            log: Vec::new(),
            drops: 0,
            marks: 0,
            rng: Rng::stream(1, "network", 0, "loss"),
            dropped: Vec::new(),
            notes: Default::default(),
        }
    }

    fn send(&mut self, now: Instant, (to_client, body, payload, mut ecn): Packet<T>) {
        let len = payload + self.headers;
        self.log.push((now.as_nanos(), to_client, len));
        self.sent += 1;
        let mut at = now;
        if self.link.loss > 0.0 && self.rng.uniform() < self.link.loss {
            self.drops += 1;
            self.dropped.push(body);
            return;
        }
        if self.link.reordering > 0.0 && self.rng.uniform() < self.link.reordering {
            at += LATE;
        }
        if to_client {
            self.queue.retain(|(left, _)| *left > now);
            let waiting: u64 = self.queue.iter().map(|(_, len)| u64::from(*len)).sum();
            if waiting + u64::from(len) > self.link.room || self.link.lost.contains(&self.sent) {
                self.drops += 1;
                self.dropped.push(body);
                return;
            }
            if self.link.mark_above.is_some_and(|above| waiting > above) {
                ecn = Ecn::Ce;
                self.marks += 1;
            }
            self.free_at = now.max(self.free_at) + self.link.rate.time_to_send(len.into());
            self.queue.push_back((self.free_at, len));
            at = at.max(self.free_at);
        }
        self.in_flight.insert((at + self.link.delay, self.sent), (to_client, body, len, ecn));
    }

    fn next(&self) -> Option<Instant> {
        self.in_flight.keys().next().map(|(at, _)| *at)
    }
}

/// Transfers `bytes` from a server that answers a request of 100 bytes; returns the time and the network.
fn transfer(server: &Host, client: &Host, link: Link, bytes: u64) -> (Instant, Network<Vec<u8>>) {
    let (time, network, _) = resume(server, client, link, bytes, None);
    (time, network)
}

/// [`transfer`], by a client that may know the server; returns also what it knows at the end.
fn resume(
    server: &Host,
    client: &Host,
    link: Link,
    bytes: u64,
    resumption: Option<&Resumption>,
) -> (Instant, Network<Vec<u8>>, Option<Resumption>) {
    let mut network = Network::new(link, server.config().udp_header);
    let mut now = Instant::ZERO;
    let client = Connection::connect(client, now, 1, None, resumption);
    let mut ends = [Connection::listen(server, 1, None), client];
    let mut asked = false;
    if network.link.has_logs {
        ends.iter_mut().for_each(Connection::start_log);
    }
    loop {
        for (end, notes) in ends.iter_mut().zip(&mut network.notes) {
            notes.extend(end.take_notes().into_iter().flatten());
        }
        assert!(!ends[0].failed() && !ends[1].failed(), "the connection ended at {now:?}");
        let [server, client] = &mut ends;
        if client.is_established() && !asked {
            asked = true;
            let stream = client.open().unwrap();
            client.write(stream, 100);
            client.finish(stream);
        }
        if server.readable(0) == 100 {
            server.read(0, 100);
            server.write(0, bytes);
            server.finish(0);
        }
        if client.peer_finished(0) {
            assert_eq!(client.readable(0), bytes, "bytes in order");
            // Of a client that has sent only acknowledgements for a long time.
            let stats = client.stats();
            assert!(bytes < 1_000_000 || stats.in_flight < 1200, "{stats:?}");
            let longest = network.link.delay.times(2) + Duration::from_secs(3);
            assert!(stats.rtt.is_none_or(|rtt| rtt < longest), "{stats:?}");
            return (now, network, client.resumption());
        }
        for (to_client, end) in [true, false].into_iter().zip(&mut ends) {
            while let Some(datagram) = end.poll_transmit(now) {
                let len = datagram.payload.len() as u32;
                network.send(now, (to_client, datagram.payload, len, datagram.ecn));
            }
        }
        let timers = ends.iter_mut().filter_map(Connection::poll_timeout);
        now = timers.chain(network.next()).min().expect("something is going on").max(now);
        for end in &mut ends {
            if end.poll_timeout().is_some_and(|at| at <= now) {
                end.handle_timeout(now);
            }
        }
        while let Some(entry) = network.in_flight.first_entry().filter(|entry| entry.key().0 <= now) {
            let (to_client, payload, _, ecn) = entry.remove();
            ends[usize::from(to_client)].receive(now, ecn, payload);
        }
        assert!(now < Instant::ZERO + Duration::from_secs(600), "the transfer takes for ever");
    }
}

fn quic(config: Config, link: Link, bytes: u64) -> (Instant, Network<Vec<u8>>) {
    let host = Host::new(config);
    transfer(&host, &host, link, bytes)
}

/// [`transfer`] over TCP, of segments with the same payload.
fn tcp(cfg: &tcp::Config, link: Link, bytes: u64) -> Instant {
    let mut network = Network::new(link, 0);
    let mut now = Instant::ZERO;
    let mut ends = [tcp::Connection::listen(cfg), tcp::Connection::connect(cfg, now)];
    let (mut asked, mut answered, mut received) = (false, false, 0);
    loop {
        let [server, client] = &mut ends;
        if client.is_established() && !asked {
            asked = true;
            client.write(100);
        }
        if server.readable() == 100 && !answered {
            answered = true;
            server.write(bytes);
        }
        let readable = client.readable();
        client.read(readable);
        received += readable;
        if received == bytes {
            return now;
        }
        for (to_client, end) in [true, false].into_iter().zip(&mut ends) {
            while let Some(segment) = end.poll_transmit(cfg, now) {
                network.send(now, (to_client, segment, cfg.wire_len(&segment), Ecn::NotEct));
            }
        }
        let timers = ends.iter().filter_map(tcp::Connection::poll_timeout);
        now = timers.chain(network.next()).min().expect("something is going on").max(now);
        for end in &mut ends {
            if end.poll_timeout().is_some_and(|at| at <= now) {
                end.handle_timeout(cfg, now);
            }
        }
        while let Some(entry) = network.in_flight.first_entry().filter(|entry| entry.key().0 <= now) {
            let (to_client, segment, _, _) = entry.remove();
            ends[usize::from(to_client)].on_segment(cfg, now, &segment);
        }
        assert!(now < Instant::ZERO + Duration::from_secs(600), "the transfer takes for ever");
    }
}

fn seconds(at: Instant) -> f64 {
    at.as_nanos() as f64 / 1e9
}

#[test]
fn same_seed_gives_the_same_packets() {
    let once = || quic(Config::default(), Link { room: 200_000, ..Link::default() }, 3_000_000).1.log;
    assert_eq!(once(), once());
}

/// Hosts with TLS (rustls), which keep `tickets` for each other.
fn tls(config: &Config, tickets: bool) -> Host {
    let (certificate, key) = certificate();
    // The cipher suite that every implementation has (RFC 8446, section 9.1).
    let cipher_suites = vec![rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256];
    let provider =
        rustls::crypto::CryptoProvider { cipher_suites, ..rustls::crypto::ring::default_provider() };
    let provider = Arc::new(provider);
    let mut server = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    if tickets {
        server.max_early_data_size = u32::MAX;
    } else {
        server.send_tls13_tickets = 0;
    }
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let mut client = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.enable_early_data = tickets;
    Host::with_crypto(
        config.clone(),
        Arc::new(QuicClientConfig::try_from(client).unwrap()),
        Arc::new(QuicServerConfig::try_from(server).unwrap()),
    )
}

/// Length of the server's flight with which null crypto has the packets of `log`, of a transfer of 3000 bytes: the
/// certificate's length is an input, and everything else has to follow.
fn flight(config: &Config, link: &Link, log: &[(u64, bool, u32)]) -> u32 {
    let with_flight = |tls_flight| Config { tls_flight, ..config.clone() };
    let flight = (1500..3500).find(|flight| quic(with_flight(*flight), link.clone(), 3000).1.log == log);
    flight.unwrap_or_else(|| panic!("no length of the certificate gives {log:?}"))
}

/// The handshake and every packet after it have the lengths and times that they have with TLS: also those that an algorithm
/// paces or that depend on the number of marks, although TLS hides what packets carry.
#[test]
fn null_crypto_has_the_packets_of_tls() {
    for (algorithm, ecn) in [(Algorithm::NewReno, false), (Algorithm::Bbr, false), (Algorithm::Prague, true)]
    {
        let delay = Duration::from_millis(if ecn { 10 } else { 300 });
        let link = Link { room: 300_000, delay, mark_above: ecn.then_some(30_000), ..Link::default() };
        let config = Config { tls_flight: 1500, algorithm, ecn, ..Config::default() };
        let tls = tls(&config, false);
        let small = transfer(&tls, &tls, link.clone(), 3000).1.log;
        let tls_flight = flight(&config, &link, &small);
        let (_, encrypted) = transfer(&tls, &tls, link.clone(), 2_000_000);
        let (_, null) = quic(Config { tls_flight, ..config }, link, 2_000_000);
        assert_eq!((null.log.len(), null.marks), (encrypted.log.len(), encrypted.marks), "{algorithm:?}");
        for (null, encrypted) in null.log.iter().zip(&encrypted.log) {
            assert_eq!(null, encrypted, "{algorithm:?}");
        }
        assert_eq!(null.marks > 5, ecn, "{} marks", null.marks);
    }
}

/// A client that knows the server has the packets of TLS as well. It saves a round trip.
#[test]
fn a_known_server_answers_a_round_trip_earlier() {
    let link = Link { room: 300_000, ..Link::default() };
    let config = Config { tls_flight: 1500, zero_rtt: true, ..Config::default() };
    let tls = tls(&config, true);
    let (_, first, known) = resume(&tls, &tls, link.clone(), 3000, None);
    let tls_flight = flight(&config, &link, &first.log);
    let (_, encrypted, _) = resume(&tls, &tls, link.clone(), 3000, known.as_ref());
    let host = Host::new(Config { tls_flight, ..config });
    let (fresh, _, known) = resume(&host, &host, link.clone(), 3000, None);
    let (resumed, null, _) = resume(&host, &host, link.clone(), 3000, known.as_ref());
    assert_eq!(null.log, encrypted.log);
    let saved = (fresh - resumed).as_secs_f64();
    let rtt = 2.0 * link.delay.as_secs_f64();
    assert!((saved / rtt - 1.0).abs() < 0.02, "{saved} s of {rtt} s");
}

fn certificate() -> (rustls::pki_types::CertificateDer<'static>, rustls::pki_types::PrivateKeyDer<'static>) {
    // A signature of Ed25519 has one length, unlike ECDSA's.
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    // With these names it takes more than one packet.
    let names = (0..100).map(|i| format!("name-{i}.example")).chain(["server".to_owned()]);
    let mut params = rcgen::CertificateParams::new(names.collect::<Vec<_>>()).unwrap();
    params.serial_number = Some(rcgen::SerialNumber::from(vec![1; 8]));
    let certificate = params.self_signed(&key).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der());
    (certificate.der().clone(), key.into())
}

/// On a link with room for everything, the same controller takes the same time over TCP with segments of the same payload.
/// QUIC's first data come one round trip after the start, as TCP's.
#[test]
fn clean_link_takes_as_long_as_tcp_with_the_same_control() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
        let link = Link { rate: Rate::from_bps(5_000_000), ..Link::default() };
        let config = Config { algorithm, tls_flight: 1000, ..Config::default() };
        let (time, network) = quic(config, link.clone(), 6_000_000);
        assert_eq!(network.drops, 0);
        let cfg = tcp::Config {
            algorithm,
            mss: 1160,
            header_len: 68,
            abc: true,
            receive_window: 1 << 24,
            ..tcp::Config::default()
        };
        let of_tcp = seconds(tcp(&cfg, link, 6_000_000));
        let ratio = seconds(time) / of_tcp;
        assert!((0.97..=1.03).contains(&ratio), "{algorithm:?}: {} s over QUIC, {of_tcp} s", seconds(time));
    }
}

/// The longest datagram that a packet of 1200 bytes holds: 38 bytes are the packet's and the frame's, at most.
#[test]
fn a_datagram_fills_a_packet() {
    let host = Host::new(Config::default());
    let (mut server, mut client) =
        (Connection::listen(&host, 1, None), Connection::connect(&host, Instant::ZERO, 1, None, None));
    for _ in 0..4 {
        while let Some(sent) = client.poll_transmit(Instant::ZERO) {
            server.receive(Instant::ZERO, sent.ecn, sent.payload);
        }
        while let Some(sent) = server.poll_transmit(Instant::ZERO) {
            client.receive(Instant::ZERO, sent.ecn, sent.payload);
        }
    }
    assert!(client.is_established());
    assert!(client.send_datagram(1162, 7) && !client.send_datagram(1163, 8));
    let sent = client.poll_transmit(Instant::ZERO).unwrap();
    assert!(sent.has_data && sent.payload.len() <= 1200);
    assert_eq!(labels(&sent.payload).collect::<Vec<_>>(), [7]);
    server.receive(Instant::ZERO, sent.ecn, sent.payload);
    assert_eq!(server.take_datagrams().collect::<Vec<_>>(), [(7, 1162)]);
}

#[test]
fn lost_packets_are_repaired() {
    let clean = quic(Config::default(), Link::default(), 2_000_000).0;
    let lost = vec![1, 2, 5, 9, 40, 41, 42, 200, 300, 301, 500];
    let (time, network) = quic(Config::default(), Link { lost, ..Link::default() }, 2_000_000);
    assert!(network.drops > 5 && time > clean);
}

/// The log follows quinn's loss recovery from the packets alone. In debug builds it compares each step with quinn's counters
/// of lost packets and bytes and its smoothed RTT. Here, every packet that it calls lost was dropped, or came before its keys,
/// or was late.
#[test]
fn a_log_names_the_packets_that_were_lost() {
    for (loss, reordering, algorithm) in [
        (0.0, 0.0, Algorithm::NewReno),
        (0.02, 0.0, Algorithm::Cubic),
        (0.02, 0.05, Algorithm::NewReno),
        (0.2, 0.0, Algorithm::NewReno),
        (0.3, 0.1, Algorithm::Bbr),
    ] {
        let delay = Duration::from_millis(40);
        let link = Link { delay, room: 100_000, loss, reordering, ..Link::default() };
        let config = Config { algorithm, ..Config::default() };
        let (plain_time, plain) = quic(config.clone(), link.clone(), 300_000);
        let (time, network) = quic(config, Link { has_logs: true, ..link }, 300_000);
        assert_eq!((time, &network.log), (plain_time, &plain.log), "a log changes nothing");
        let (mut lost, mut spurious) = (0, 0);
        let [server, client] = &network.notes;
        for (notes, peer) in [(server, client), (client, server)] {
            let sent = notes.iter().filter_map(|(_, note)| match note {
                Note::Sent(logged) => Some(logged),
                _ => None,
            });
            let of_packets = |logged: &Logged| -> Vec<_> {
                let kinds = packets(&logged.payload).map(|packet| packet.kind);
                kinds.zip(&logged.numbers).map(|(kind, (number, _))| (format!("{kind:?}"), *number)).collect()
            };
            let (mut arrived, mut without_keys) = (Vec::new(), Vec::new());
            for (at, note) in peer {
                let Note::Received(logged) = note else { continue };
                for (packet, (_, is_read)) in of_packets(logged).into_iter().zip(&logged.numbers) {
                    if *is_read { arrived.push((*at, packet)) } else { without_keys.push(packet) }
                }
            }
            let dropped: Vec<_> = sent
                .filter(|logged| network.dropped.contains(&logged.payload))
                .flat_map(of_packets)
                .chain(without_keys)
                .collect();
            for (time, note) in notes {
                match note {
                    Note::Lost { kind, number, .. } => {
                        lost += 1;
                        let later = Note::SpuriousLoss { kind: *kind, number: *number };
                        let is_spurious = notes.iter().any(|(_, note)| *note == later);
                        let was_dropped = dropped.contains(&(format!("{kind:?}"), *number));
                        spurious += u32::from(is_spurious);
                        let was_late = arrived.iter().any(|(at, packet)| {
                            *packet == (format!("{kind:?}"), *number) && *at + delay + LATE > *time
                        });
                        assert!(was_late || was_dropped, "{kind:?} {number}");
                        assert!(was_late || !is_spurious, "{kind:?} {number}");
                    }
                    Note::IdleTimeout => panic!("no connection is idle"),
                    _ => {}
                }
            }
        }
        assert_eq!(lost > 0, loss > 0.0, "{loss}");
        assert_eq!(spurious > 0, reordering > 0.0, "{spurious} at {reordering}");
    }
}

/// RFC 9002, sections 6.2.1 and 6.2.2: without an RTT sample the probe timeout is 333 ms + 4 * 166.5 ms, from the latest packet
/// that asks for an acknowledgement, and each one in a row doubles it. So they expire 999 ms * (1, 1 + 2, 1 + 2 + 4, ...) after
/// the first packet.
#[test]
fn probe_timeouts_double_until_an_answer_arrives() {
    let host = Host::new(Config::default());
    let mut client = Connection::connect(&host, Instant::ZERO, 1, None, None);
    client.start_log();
    let (mut now, mut expired, mut counts) = (Instant::ZERO, Vec::new(), Vec::new());
    while !client.is_over() {
        while client.poll_transmit(now).is_some() {}
        for (at, note) in client.take_notes().into_iter().flatten() {
            match note {
                Note::ProbeTimeout => expired.push(at.as_nanos() / 1000),
                Note::State(state) => counts.push(state.recovery.pto_count),
                _ => {}
            }
        }
        now = client.poll_timeout().unwrap();
        client.handle_timeout(now);
    }
    assert_eq!(expired, [999_000, 2_997_000, 6_993_000, 14_985_000]);
    assert_eq!(counts.last(), Some(&4));
    assert_eq!(client.stats().timeouts, 4);
    let last = client.take_notes().into_iter().flatten().last().map(|(at, note)| (at.as_nanos(), note));
    assert!(matches!(last, Some((_, Note::State(_)))), "{last:?}");
}

/// RFC 9002, section 6.1: a packet is lost once one sent three packets later is acknowledged, or 9/8 of the larger of smoothed
/// and latest RTT after it was sent if a later one is acknowledged. One packet of the server is lost amid others, and one with a
/// single packet behind it.
#[test]
fn packets_are_lost_by_the_thresholds_of_rfc_9002() {
    let link = Link { has_logs: true, ..Link::default() };
    let (_, clean) = quic(Config::default(), link.clone(), 60_000);
    let sent_by_server: Vec<_> =
        (1..).zip(&clean.log).filter(|(_, (_, to_client, len))| *to_client && *len > 1000).collect();
    let [amid, tail] = [5, sent_by_server.len() - 2].map(|place| sent_by_server[place].0);
    for (lost, expected) in [(vec![amid], LossCause::PacketThreshold), (vec![tail], LossCause::TimeThreshold)]
    {
        let (_, network) = quic(Config::default(), Link { lost, ..link.clone() }, 60_000);
        let [server, _] = &network.notes;
        let mut sent_at = BTreeMap::new();
        let (mut largest, mut before, mut state, mut found) = (0, 0, State::default(), Vec::new());
        for (at, note) in server {
            match note {
                Note::Sent(logged) => {
                    for (packet, (number, _)) in packets(&logged.payload).zip(&logged.numbers) {
                        sent_at.insert((format!("{:?}", packet.kind), *number), *at);
                    }
                }
                Note::Received(logged) => {
                    before = largest;
                    let acks = packets(&logged.payload).filter(|packet| packet.kind == PacketType::OneRtt);
                    for frame in acks.flat_map(|packet| packet.frames()) {
                        if let Frame::Ack(ack) = frame {
                            largest = largest.max(ack.largest);
                        }
                    }
                }
                Note::Lost { kind, number, cause } => {
                    let sent = sent_at[&(format!("{kind:?}"), *number)];
                    found.push((*number, *cause, *at - sent, before, largest, state.recovery));
                }
                Note::State(now) => state = *now,
                _ => {}
            }
        }
        assert_eq!(found.len(), 1, "{found:?}");
        let (number, cause, age, before, largest, recovery) = found[0];
        assert_eq!(cause, expected);
        if cause == LossCause::PacketThreshold {
            assert!(before < number + 3 && largest >= number + 3, "{number}: {before}, {largest}");
        } else {
            assert!(largest > number && largest < number + 3, "{number}: {largest}");
            let rtt = recovery.srtt.max(recovery.rtt).unwrap();
            let late = age.as_secs_f64() / rtt.as_secs_f64();
            assert!((late - 9.0 / 8.0).abs() < 1e-6, "{late} round trips");
        }
    }
}

/// quinn ends a connection when a stream that is read in order has more than 1,024 gaps: CUBIC at 50 Mbit/s over 600 ms, with
/// 100 ms of queue.
#[test]
fn thousands_of_gaps_do_not_end_a_connection() {
    let rate = Rate::from_bps(50_000_000);
    let link = Link { rate, room: 625_000, ..Link::default() };
    let config = Config {
        algorithm: Algorithm::Cubic,
        max_data: 1 << 26,
        max_stream_data: 1 << 26,
        ..Config::default()
    };
    let (_, network) = quic(config, link, 50 << 20);
    assert!(network.drops > 1024, "{} drops", network.drops);
}

/// With marks above 50 kB of queue no packet has to be dropped, and the sender learns of each mark.
#[test]
fn marks_keep_the_queue_short_without_drops() {
    for algorithm in [Algorithm::NewReno, Algorithm::Dctcp, Algorithm::Prague] {
        let delay = Duration::from_millis(10);
        let link = Link { delay, room: 2_000_000, mark_above: Some(50_000), ..Link::default() };
        let (time, network) = quic(Config { algorithm, ecn: true, ..Config::default() }, link, 20_000_000);
        assert!(network.drops == 0 && network.marks > 5, "{algorithm:?}: {} marks", network.marks);
        assert!(seconds(time) < 9.5, "{algorithm:?} took {} s", seconds(time));
    }
}

/// RFC 9002, section 7.8: a rate of 2 Mbit/s over 600 ms leaves all but 150 kB of a window unused, and the window is at
/// most twice that, however much is sent.
#[test]
fn the_window_of_a_sender_with_a_greatest_rate_stays_near_its_use() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
        let config = Config { algorithm, rate_cap: Some(Rate::from_bps(2_000_000)), ..Config::default() };
        let (time, network) = quic(config, Link { has_logs: true, ..Link::default() }, 3_000_000);
        let windows = network.notes[0].iter().filter_map(|(_, note)| match note {
            Note::State(state) => Some(state.cwnd),
            _ => None,
        });
        let largest = windows.max().unwrap();
        assert!((200_000..350_000).contains(&largest), "{algorithm:?}: {largest} bytes");
        // 12.3 s at the rate, after five round trips of handshake and slow start.
        assert!(seconds(time) < 15.5, "{} s", seconds(time));
    }
}

#[test]
fn bbr_leaves_the_queue_of_a_long_link_nearly_empty() {
    let config = Config {
        algorithm: Algorithm::Bbr,
        max_data: 1 << 26,
        max_stream_data: 1 << 26,
        ..Config::default()
    };
    let link = Link { room: 3_000_000, ..Link::default() };
    let (time, network) = quic(config, link, 50 << 20);
    // 21 s at the link's rate.
    assert!(seconds(time) < 30.0, "{} s", seconds(time));
    assert!(network.drops < 2000, "{} drops", network.drops);
}
