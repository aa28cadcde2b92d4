//! Two ends with content on their streams, over a network that loses, delays and repeats datagrams, on a virtual clock.

use std::cell::RefCell;
use std::collections::BTreeMap;

use bentpipe_quic::frames::{Frame, frames, packets};
use bentpipe_quic::{Config, Connection, Datagram, Host, Limit, Stats};
use bentpipe_units::{Duration, Instant, Rate, Rng};

/// Network: the delay of each copy of a datagram that arrives.
type Fate<'a> = dyn FnMut(Instant, bool, &Datagram) -> Vec<Duration> + 'a;

/// A client and a server, and the datagrams between them.
struct Ends<'a> {
    now: Instant,
    /// The client and the server.
    ends: [Connection; 2],
    in_flight: BTreeMap<(Instant, u64), (usize, Datagram)>,
    sent: u64,
    fate: Box<Fate<'a>>,
}

impl<'a> Ends<'a> {
    fn new(host: &Host, seed: u64, fate: impl FnMut(Instant, bool, &Datagram) -> Vec<Duration> + 'a) -> Self {
        let client = Connection::connect(host, Instant::ZERO, seed, None, None);
        let ends = [client, Connection::listen(host, seed, None)];
        Self { now: Instant::ZERO, ends, in_flight: BTreeMap::new(), sent: 0, fate: Box::new(fate) }
    }

    fn transmit(&mut self) {
        for from in 0..2 {
            while let Some(datagram) = self.ends[from].poll_transmit(self.now) {
                for delay in (self.fate)(self.now, from == 1, &datagram) {
                    self.sent += 1;
                    let arrival = (self.now + delay, self.sent);
                    self.in_flight.insert(arrival, (1 - from, datagram.clone()));
                }
            }
        }
    }

    /// Continues to the next arrival or timeout, at most until `end`; false if nothing is left.
    fn step(&mut self, end: Instant) -> bool {
        self.transmit();
        let timeouts = self.ends.iter_mut().filter_map(|end| end.poll_timeout());
        let Some(next) = timeouts.chain(self.in_flight.keys().map(|key| key.0).next()).min() else {
            return false;
        };
        self.now = self.now.max(next.min(end));
        if next > end {
            return false;
        }
        match self.in_flight.first_entry().filter(|entry| entry.key().0 <= self.now) {
            Some(entry) => {
                let (to, datagram) = entry.remove();
                if !self.ends[to].has_left(datagram.address) {
                    self.ends[to].receive_from(self.now, datagram.ecn, datagram.payload, datagram.address);
                }
            }
            None => {
                for end in &mut self.ends {
                    if end.poll_timeout().is_some_and(|at| at <= self.now) {
                        end.handle_timeout(self.now);
                    }
                }
            }
        }
        true
    }
}

/// Content of a stream by position.
fn fill(at: u64, buf: &mut [u8]) {
    for (i, byte) in (at..).zip(buf) {
        *byte = (i ^ i >> 8 ^ i >> 16) as u8;
    }
}

/// Bytes of streams that have arrived, by end and stream.
#[derive(Default)]
struct Arrived(BTreeMap<(usize, usize), Vec<bool>>);

impl Arrived {
    /// Takes what has arrived at an end: each byte for the first time, and as it was sent.
    fn take(&mut self, at: usize, end: &mut Connection) {
        for chunk in end.take_chunks() {
            let seen = self.0.entry((at, chunk.stream)).or_default();
            let (first, last) = (chunk.at as usize, chunk.at as usize + chunk.bytes.len());
            seen.resize(seen.len().max(last), false);
            assert!(!seen[first..last].contains(&true), "bytes arrive twice");
            seen[first..last].fill(true);
            let mut expected = vec![0; chunk.bytes.len()];
            fill(chunk.at, &mut expected);
            assert_eq!(chunk.bytes, expected);
        }
    }

    /// Bytes of a stream that have arrived, all from its start on.
    fn len(&self, at: usize, stream: usize) -> usize {
        let Some(seen) = self.0.get(&(at, stream)) else { return 0 };
        assert!(!seen.contains(&false), "a gap is left");
        seen.len()
    }
}

/// RFC 9002, section 5.3: the first sample is the smoothed RTT, here of a path of 300 ms each way. The
/// initial RTT of 333 ms is only for the probe timeout.
#[test]
fn the_first_smoothed_rtt_is_the_first_sample() {
    let host = Host::new(Config::default());
    let mut net = Ends::new(&host, 1, |_, _, _: &Datagram| vec![Duration::from_millis(300)]);
    for at in [0, 1] {
        while net.ends[at].stats().srtt.is_none() && net.step(Instant::ZERO + Duration::from_secs(5)) {}
        assert_eq!(net.ends[at].stats().srtt, Some(Duration::from_millis(600)));
    }
}

/// RFC 9002, sections 5.3 and 6.2.1: the peer's ack delay counts neither in the smoothed RTT nor in its variation. Packets one by one
/// over a path of 50 ms each way are acknowledged after max_ack_delay, 25 ms: samples of 125 ms, less 25 ms. The first, from the
/// handshake and without delay, gives a variation of 50 ms, of which each further one leaves three quarters: after 40, less
/// than 1 ms / 4, so that the timeout is 100 ms and the granularity of 1 ms. With the delay in the variation it would be 200 ms.
#[test]
fn ack_delay_does_not_lengthen_the_probe_timeout() {
    let host = Host::new(Config::default());
    let mut net = Ends::new(&host, 1, |_, _, _: &Datagram| vec![Duration::from_millis(50)]);
    net.ends[0].start_log();
    let stats = net.ends[0].stats();
    // RFC 9002, section 6.2.2: 333 ms, and 4 times half of it.
    assert_eq!(stats.rto, Duration::from_millis(999));
    while !net.ends[0].is_established() && net.step(Instant::ZERO + Duration::from_secs(1)) {}
    let stream = net.ends[0].open().unwrap();
    for second in 1..=40 {
        net.ends[0].write(stream, 1);
        while net.step(Instant::ZERO + Duration::from_secs(second)) {}
    }
    let stats = net.ends[0].stats();
    assert_eq!(stats.rtt, Some(Duration::from_millis(125)));
    let excess = stats.rto.saturating_sub(Duration::from_millis(101));
    // Ack delays are sent in units of 8 us.
    assert!(stats.rto >= Duration::from_millis(101) && excess < Duration::from_micros(20), "{:?}", stats.rto);
}

/// A receive window of 64 KB in a round trip of 100 ms is 5.2 Mbit/s: a cap of 2 Mbit/s holds the sender back, one of 100 Mbit/s
/// does not. The congestion window is far larger, so that its pacing does not hold the sender back either.
#[test]
fn a_rate_cap_above_the_rate_of_the_window_is_not_the_limit() {
    for (cap, limit) in [(2_000_000, Limit::Sender), (100_000_000, Limit::ReceiveWindow)] {
        let rate_cap = Some(Rate::from_bps(cap));
        let host =
            Host::new(Config { rate_cap, max_data: 65_536, initial_window: 1_000, ..Config::default() });
        let mut net = Ends::new(&host, 1, |_, _, _: &Datagram| vec![Duration::from_millis(50)]);
        while !net.ends[0].is_established() && net.step(Instant::ZERO + Duration::from_secs(1)) {}
        let stream = net.ends[0].open().unwrap();
        net.ends[0].write(stream, 50_000_000);
        let mut found = Vec::new();
        for ms in (5_000..10_000).step_by(7) {
            while net.step(Instant::ZERO + Duration::from_millis(ms)) {
                let readable = net.ends[1].readable(0);
                net.ends[1].read(0, readable);
            }
            found.push(net.ends[0].limit());
        }
        let share = found.iter().filter(|found| **found == Some(limit)).count() as f64 / found.len() as f64;
        assert!(share > 0.9, "{cap}: {share} of {limit:?}");
    }
}

/// One datagram in twelve is lost and one in twelve repeated, in both directions, and each copy takes 20 to 50 ms. Three streams
/// are uploads and downloads at once. Every byte arrives once, and each lost packet with fresh data is found lost.
#[test]
fn every_byte_arrives_over_a_network_that_loses_delays_and_repeats() {
    let sizes: [(u64, u64); 3] = [(1, 300_000), (120_000, 1), (50_000, 50_000)];
    for seed in 1..=12 {
        let mut rng = Rng::stream(seed, "network", 0, "fate");
        // Of the client and of the server.
        let mut lost = [0u64; 2];
        let host = Host::new(Config { seed, ..Config::default() }).with_content(fill);
        let mut net = Ends::new(&host, seed, |_, by_server, datagram: &Datagram| {
            let copies = match rng.below(12) {
                0 => 0,
                1 => 2,
                _ => 1,
            };
            lost[usize::from(by_server)] += u64::from(copies == 0 && datagram.fresh > 0);
            (0..copies).map(|_| Duration::from_micros(20_000 + rng.below(30_000))).collect()
        });
        let mut arrived = Arrived::default();
        let mut answered = 0;
        let end = Instant::ZERO + Duration::from_secs(300);
        while net.step(end) {
            let [client, server] = &mut net.ends;
            while client.is_established()
                && client.streams() < sizes.len()
                && let Some(stream) = client.open()
            {
                client.write(stream, sizes[stream].0);
                client.finish(stream);
            }
            while answered < server.streams() {
                server.write(answered, sizes[answered].1);
                server.finish(answered);
                answered += 1;
            }
            for (at, end) in [client, server].into_iter().enumerate() {
                arrived.take(at, end);
                for stream in 0..end.streams() {
                    let readable = end.readable(stream);
                    end.read(stream, readable);
                }
            }
        }
        for (stream, (up, down)) in sizes.into_iter().enumerate() {
            let found = [arrived.len(1, stream) as u64, arrived.len(0, stream) as u64];
            assert_eq!(found, [up, down], "seed {seed}, stream {stream}");
        }
        let found_lost = [0, 1].map(|at: usize| net.ends[at].stats().retransmissions);
        // The client's last packet, which closes the connection, can be lost: then the server gives up when it is idle.
        assert!(net.ends.iter().all(Connection::is_over) && !net.ends[0].failed(), "seed {seed}");
        drop(net);
        assert!(lost[1] > 10 && lost[0] > 2, "seed {seed}: {lost:?}");
        assert!(lost[0] <= found_lost[0] && lost[1] <= found_lost[1], "{lost:?} of {found_lost:?}");
    }
}

/// RFC 9002, section 7.6: a path of 200 ms, a packet each 50 ms. After many samples the variation is gone, so that the
/// persistent congestion duration is three times 200 ms, the granularity of 1 ms and the peer's delay of 25 ms: 678 ms. Between the
/// first and the last of fourteen lost packets are 650 ms, and the window is halved; of fifteen 700 ms, and it is two packets.
///
/// quinn takes a packet number that it skips (RFC 9000, section 21.4) for a packet that was acknowledged, which ends the period.
#[test]
fn losses_over_more_than_three_probe_timeouts_are_persistent_congestion() {
    let at = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
    let mut persistent = 0;
    for (seed, lost) in (1..=6).flat_map(|seed| [(seed, 14), (seed, 15)]) {
        let host = Host::new(Config::default());
        let outage = 5000..=5000 + 50 * (lost - 1);
        let numbers = RefCell::new(Vec::new());
        let mut net = Ends::new(&host, seed, |now: Instant, by_server, datagram: &Datagram| {
            let ms = (now - Instant::ZERO).as_nanos() / 1_000_000;
            if by_server && outage.contains(&ms) {
                numbers.borrow_mut().extend(packets(&datagram.payload).map(|packet| packet.number));
                return Vec::new();
            }
            vec![Duration::from_millis(100)]
        });
        while net.step(at(999)) {
            let [client, server] = &mut net.ends;
            if client.is_established() && client.streams() == 0 && client.open().is_some() {
                client.write(0, 1);
            }
            assert!(!server.failed());
        }
        let mut windows = Vec::new();
        for ms in (1000..8000).step_by(50) {
            net.now = at(ms);
            net.ends[1].write(0, 100);
            while net.step(at(ms + 49)) {}
            windows.push(net.ends[1].stats().cwnd);
        }
        assert_eq!(windows[..80], [12_000; 80], "before the outage");
        let numbers = numbers.borrow();
        assert_eq!(numbers.len() as u64, lost);
        let is_persistent = lost == 15 && numbers[14] - numbers[0] == 14;
        persistent += u32::from(is_persistent);
        let expected = if is_persistent { 2400 } else { 6000 };
        assert_eq!(windows.iter().min(), Some(&expected), "seed {seed}: {numbers:?}");
    }
    assert!(persistent > 0);
}

/// A download of 8 MB whose client moves to another address at 1 s. Every byte arrives as it was sent. Returns the server's state at
/// the times of `looks` [ms], and at the end.
fn download_with_migration<'a>(
    fate: impl FnMut(Instant, bool, &Datagram) -> Vec<Duration> + 'a,
    looks: &[u64],
) -> Vec<Stats> {
    let host = Host::new(Config { migration: true, ..Config::default() }).with_content(fill);
    let mut net = Ends::new(&host, 1, fate);
    net.ends.iter_mut().for_each(Connection::start_log);
    let (mut arrived, mut seen, mut has_answered) = (Arrived::default(), Vec::new(), false);
    let mut stops: Vec<_> = looks.iter().map(|ms| Instant::ZERO + Duration::from_millis(*ms)).collect();
    let moves = Instant::ZERO + Duration::from_secs(1);
    stops.extend([moves, Instant::ZERO + Duration::from_secs(60)]);
    stops.sort();
    for stop in stops {
        while net.step(stop) {
            let [client, server] = &mut net.ends;
            if client.is_established() && client.streams() == 0 {
                let stream = client.open().unwrap();
                client.write(stream, 1);
                client.finish(stream);
            }
            if server.streams() > 0 && !std::mem::replace(&mut has_answered, true) {
                server.write(0, 8_000_000);
                server.finish(0);
            }
            for (at, end) in [client, server].into_iter().enumerate() {
                arrived.take(at, end);
                let readable = end.readable(0);
                end.read(0, readable);
            }
        }
        if stop == moves {
            assert!(net.ends[0].migrate(moves) && !net.ends[1].migrate(moves), "only clients migrate");
        } else {
            seen.push(net.ends[1].stats());
        }
    }
    assert_eq!([arrived.len(1, 0), arrived.len(0, 0)], [1, 8_000_000]);
    assert!(net.ends.iter().all(|end| !end.failed()));
    seen
}

/// Frames of a datagram for path validation: challenges and responses (RFC 9000, sections 19.17 and 19.18).
fn validation(datagram: &Datagram) -> (usize, usize) {
    let found: Vec<_> = frames(&datagram.payload).collect();
    let count = |is: fn(&Frame<'_>) -> bool| found.iter().filter(|frame| is(frame)).count();
    (
        count(|frame| matches!(frame, Frame::PathChallenge(_))),
        count(|frame| matches!(frame, Frame::PathResponse(_))),
    )
}

/// RFC 9000, section 9, at 1 s and 50 ms each way. The client's packet from its new address has another connection id (9.5) and arrives at
/// 1.05 s. The server begins again with the initial window of 10 packets and without an RTT (9.4), asks both addresses for an
/// answer (9.3.3), and may send no more than three times what it got (8.1), which leaves one packet. The answer, in a packet of 1200 bytes (8.2.2), comes at
/// 1.15 s, and with it the first RTT sample, of 100 ms. From then on acknowledgements count, and the window grows at 1.25 s.
#[test]
fn a_client_that_migrates_is_validated_and_begins_with_the_initial_window() {
    let mut sent = Vec::new();
    let state = download_with_migration(
        |now, by_server, datagram| {
            sent.push((now, by_server, datagram.clone()));
            vec![Duration::from_millis(50)]
        },
        &[999, 1051, 1149, 1151, 1251],
    );
    let ms = |ms| Instant::ZERO + Duration::from_millis(ms);
    assert!(state[0].cwnd > 12_000 && state[0].migrations == 0, "{:?}", state[0]);
    for stats in &state[1..3] {
        assert_eq!((stats.cwnd, stats.rtt, stats.migrations), (12_000, None, 1));
        assert_eq!((stats.in_flight, stats.rto), (1200, Duration::from_millis(999)));
    }
    // RFC 9002, section 5.3: a first sample of 100 ms, and half of it as the variation.
    assert_eq!((state[3].cwnd, state[3].rto), (12_000, Duration::from_millis(300)));
    assert!(state[4].cwnd > 12_000 && state[4].rtt == Some(Duration::from_millis(100)), "{:?}", state[4]);
    assert_eq!(state.last().unwrap().migrations, 1);

    let of = |by_server, address| {
        sent.iter().filter(move |(_, server, datagram)| *server == by_server && datagram.address == address)
    };
    let id = |datagram: &Datagram| datagram.payload[1..9].to_vec();
    let (before, first) = (of(false, 0).next_back().unwrap(), of(false, 1).next().unwrap());
    assert_eq!(first.0, ms(1000));
    assert_ne!(id(&before.2), id(&first.2));
    // To both addresses, in packets of 1200 bytes, and to the new one alone until it has answered.
    let asked: Vec<_> = sent.iter().filter(|(_, _, datagram)| validation(datagram).0 > 0).collect();
    let to: Vec<_> =
        asked.iter().map(|(at, _, datagram)| (*at, datagram.address, datagram.payload.len())).collect();
    assert_eq!(to, [(ms(1050), 0, 1200), (ms(1050), 1, 1200)]);
    let answers: Vec<_> = sent.iter().filter(|(_, _, datagram)| validation(datagram).1 > 0).collect();
    assert_eq!(answers.len(), 1);
    let (at, by_server, answer) = answers[0];
    assert_eq!((*at, *by_server, answer.address, answer.payload.len()), (ms(1100), false, 1, 1200));
    let early = of(true, 1).filter(|(at, ..)| *at < ms(1150)).count();
    assert_eq!(early, 1, "three times the client's first packet leaves one");
    assert!(of(true, 0).all(|(at, ..)| *at <= ms(1050)));
}

/// Nothing from the client's new address but its first packet arrives for 10 s: after three probe timeouts the server goes back to the
/// old one (RFC 9000, section 9.3.2). The client's probes then make it migrate again.
#[test]
fn a_new_address_that_does_not_answer_is_left_until_it_does() {
    let (mut first, mut challenged) = (true, Vec::new());
    let away = Instant::ZERO + Duration::from_secs(11);
    let state = download_with_migration(
        |now, by_server, datagram| {
            if by_server && validation(datagram).0 > 0 {
                challenged.push(datagram.address);
            }
            let passes = datagram.address == 0 || now > away || !by_server && std::mem::take(&mut first);
            passes.then_some(Duration::from_millis(50)).into_iter().collect()
        },
        &[10_999],
    );
    assert_eq!(state[0].migrations, 1);
    assert_eq!(state[1].migrations, 2);
    assert!(challenged.contains(&0) && challenged.ends_with(&[1]), "{challenged:?}");
}

/// RFC 9000, section 9: a client must not migrate before the handshake is confirmed.
#[test]
fn a_client_does_not_migrate_in_the_handshake() {
    let host = Host::new(Config { migration: true, ..Config::default() });
    let mut net = Ends::new(&host, 1, |_, _, _: &Datagram| vec![Duration::from_millis(50)]);
    while net.step(Instant::ZERO + Duration::from_millis(99)) {}
    assert!(!net.ends[0].migrate(net.now));
    // The server confirms it once the client's Finished has arrived, at 150 ms.
    while net.step(Instant::ZERO + Duration::from_millis(201)) {}
    assert!(net.ends[0].migrate(net.now));
}
