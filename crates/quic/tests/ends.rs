//! Two ends with content on their streams, over a network that loses, delays and repeats datagrams, on a virtual clock.

use std::cell::RefCell;
use std::collections::BTreeMap;

use bentpipe_quic::frames::packets;
use bentpipe_quic::{Config, Connection, Datagram, Host};
use bentpipe_units::{Duration, Instant, Rng};

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
                self.ends[to].receive(self.now, datagram.ecn, datagram.payload);
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

    /// Bytes of a stream that have arrived, all from its begin on.
    fn len(&self, at: usize, stream: usize) -> usize {
        let Some(seen) = self.0.get(&(at, stream)) else { return 0 };
        assert!(!seen.contains(&false), "a gap is left");
        seen.len()
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
