//! Two ends on a simulated network: packets wait in a list for their arrival time, and the clock jumps from event to event.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use bentpipe_spacelink::{Certificate, Event, Identity, Open, Setup, Spacelink, StreamKey};
use bentpipe_units::{Rate, Rng};

/// The listening end.
pub const GATEWAY: usize = 0;
/// The connecting end.
pub const TERMINAL: usize = 1;
/// The terminal's address.
const TERMINAL_HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

/// One direction of the satellite link.
pub struct Direction {
    /// `None` for unlimited.
    pub rate: Option<Rate>,
    pub delay: Duration,
    /// Longest wait in front of the link.
    pub buffer: Duration,
    /// Probabilities that a packet is lost, is duplicated, or is delayed by up to 20 ms.
    pub lose: f64,
    pub double: f64,
    pub late: f64,
    /// True to mark all packets (ECN).
    pub mark: bool,
    /// Begin and end of an outage.
    pub outage: Option<(Duration, Duration)>,
    pub lost: u64,
    /// Packets dropped because the buffer was full.
    pub overflows: u64,
    pub carried: u64,
    free_at: Instant,
}

/// Host of an end: it reads everything and records events.
pub struct Host {
    pub link: Spacelink,
    pub address: SocketAddr,
    pub events: VecDeque<(Duration, Event)>,
    /// Open streams, and bytes read from each.
    pub streams: BTreeMap<StreamKey, Stream>,
    /// Bytes read in all, and bytes acknowledged by the peer.
    pub read: u64,
    pub acknowledged: u64,
    /// True to read and deliver automatically.
    pub reads: bool,
    /// Bytes read in each tenth of a second.
    pub tenths: Vec<u64>,
    pub up: bool,
}

#[derive(Default)]
pub struct Stream {
    pub header: Option<Open>,
    pub read: u64,
    pub finished: bool,
    pub written: u64,
    pub acknowledged: u64,
}

/// Byte `at` of every stream.
pub fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Bytes of a stream from `from` on.
pub fn bytes(from: u64, length: usize) -> Vec<u8> {
    (from..).take(length).map(byte).collect()
}

pub struct Net {
    pub start: Instant,
    pub now: Instant,
    pub hosts: [Host; 2],
    /// From the gateway, and from the terminal.
    pub directions: [Direction; 2],
    /// Datagrams sent to other hosts.
    pub to_others: Vec<(SocketAddr, Vec<u8>)>,
    air: BTreeMap<(Instant, u64), (usize, u8, Vec<u8>)>,
    number: u64,
    rng: Rng,
}

/// Setups of both ends, with new keys, for a link of `rate` and `round_trip`.
pub fn setups(rate: Option<Rate>, round_trip: Duration) -> [Setup; 2] {
    let [gateway, terminal] = ["gateway", "terminal"].map(|name| Identity::generate(name).unwrap());
    let [g, t] = [gateway.certificate(), terminal.certificate()];
    let setup = |identity: Identity, peer: Certificate, seed: u8| Setup {
        seed: Some([seed; 32]),
        ..Setup::new(identity, peer, rate, round_trip)
    };
    [setup(gateway, t, 1), setup(terminal, g, 2)]
}

pub fn open() -> Open {
    Open { client: "10.3.0.1:40000".parse().unwrap(), server: "10.1.0.1:80".parse().unwrap() }
}

impl Host {
    fn new(link: Spacelink, address: &str) -> Self {
        Self {
            link,
            address: address.parse().unwrap(),
            events: VecDeque::new(),
            streams: BTreeMap::new(),
            read: 0,
            acknowledged: 0,
            reads: true,
            tenths: Vec::new(),
            up: false,
        }
    }

    /// Handles the link's events.
    fn work(&mut self, now: Duration) {
        while let Some(event) = self.link.poll() {
            match &event {
                Event::Up => self.up = true,
                Event::Down(_) => {
                    self.up = false;
                    assert!(self.streams.is_empty(), "all streams end before the link");
                }
                Event::Opened { stream, header } => {
                    let new = Stream { header: Some(*header), ..Stream::default() };
                    assert!(self.streams.insert(*stream, new).is_none());
                }
                Event::Readable(stream) if self.reads => self.read(now, *stream),
                Event::Finished(stream) => self.streams.get_mut(stream).unwrap().finished = true,
                Event::Reset(stream) | Event::Lost(stream) | Event::Closed(stream) => {
                    self.streams.remove(stream).unwrap();
                }
                Event::Acknowledged { stream, bytes } => {
                    let of = self.streams.get_mut(stream).unwrap();
                    of.acknowledged += bytes;
                    assert!(*bytes > 0 && of.acknowledged <= of.written);
                    self.acknowledged += bytes;
                }
                _ => {}
            }
            let quiet = matches!(event, Event::Readable(_) | Event::Acknowledged { .. });
            if !quiet {
                self.events.push_back((now, event));
            }
        }
    }

    /// Reads from a stream, compares with what was written, and reports delivery.
    pub fn read(&mut self, now: Duration, key: StreamKey) {
        let mut buffer = [0; 65536];
        loop {
            let read = self.link.read(key, &mut buffer);
            if read == 0 {
                return;
            }
            let Some(stream) = self.streams.get_mut(&key) else { return };
            for (at, &got) in (stream.read..).zip(&buffer[..read]) {
                assert_eq!(got, byte(at), "byte {at} of a stream");
            }
            stream.read += read as u64;
            self.read += read as u64;
            let tenth = (now.as_millis() / 100) as usize;
            if self.tenths.len() <= tenth {
                self.tenths.resize(tenth + 1, 0);
            }
            self.tenths[tenth] += read as u64;
            self.link.delivered(key, read as u64);
        }
    }

    pub fn open(&mut self) -> Option<StreamKey> {
        let key = self.link.open(&open())?;
        self.streams.insert(key, Stream::default());
        Some(key)
    }

    /// Writes the next `length` bytes of the stream. Returns how many were taken.
    pub fn write(&mut self, key: StreamKey, length: usize) -> usize {
        let Some(stream) = self.streams.get_mut(&key) else { return 0 };
        let written = self.link.write(key, &bytes(stream.written, length));
        stream.written += written as u64;
        written
    }

    /// Mean goodput between two tenths of a second [bit/s].
    pub fn goodput(&self, from: usize, to: usize) -> f64 {
        let read: u64 = self.tenths.iter().skip(from).take(to - from).sum();
        read as f64 * 80.0 / (to - from) as f64
    }

    pub fn saw(&self, wanted: impl Fn(&Event) -> bool) -> Option<Duration> {
        self.events.iter().find(|(_, event)| wanted(event)).map(|(at, _)| *at)
    }
}

impl Net {
    /// Both ends, 300 ms apart.
    pub fn new(setups: &[Setup; 2], seed: u64) -> Self {
        #[expect(clippy::disallowed_methods, reason = "an origin for the test's times")]
        let start = Instant::now();
        let listening = Spacelink::listen(&setups[GATEWAY], Some(TERMINAL_HOST), start).unwrap();
        let gateway = Host::new(listening, "192.0.2.1:4433");
        let link = Spacelink::connect(&setups[TERMINAL], gateway.address, start).unwrap();
        let terminal = Host::new(link, &format!("{TERMINAL_HOST}:50000"));
        let way = || Direction {
            rate: None,
            delay: Duration::from_millis(300),
            buffer: Duration::from_millis(100),
            lose: 0.0,
            double: 0.0,
            late: 0.0,
            mark: false,
            outage: None,
            lost: 0,
            overflows: 0,
            carried: 0,
            free_at: start,
        };
        Self {
            start,
            now: start,
            hosts: [gateway, terminal],
            directions: [way(), way()],
            to_others: Vec::new(),
            air: BTreeMap::new(),
            number: 0,
            rng: Rng::stream(seed, "net", 0, "fate"),
        }
    }

    /// Restarts an end: it keeps only its keys.
    pub fn restart(&mut self, end: usize, setups: &[Setup; 2]) {
        let link = if end == GATEWAY {
            Spacelink::listen(&setups[GATEWAY], Some(TERMINAL_HOST), self.now)
        } else {
            Spacelink::connect(&setups[TERMINAL], self.hosts[GATEWAY].address, self.now)
        };
        self.hosts[end] = Host::new(link.unwrap(), &self.hosts[end].address.to_string());
    }

    /// A random number below `n`.
    pub fn random(&mut self, n: usize) -> usize {
        self.rng.below(n as u64) as usize
    }

    /// A datagram in flight to `end`.
    pub fn in_transit(&mut self, end: usize) -> Option<Vec<u8>> {
        let all: Vec<_> = self.air.values().filter(|(to, _, _)| *to == end).collect();
        (!all.is_empty()).then(|| all[self.rng.below(all.len() as u64) as usize].2.clone())
    }

    pub fn time(&self) -> Duration {
        self.now - self.start
    }

    /// Sends everything that the ends have to send.
    pub fn flush(&mut self) {
        let mut out = Vec::new();
        for end in [GATEWAY, TERMINAL] {
            while let Some(transmit) = self.hosts[end].link.transmit(self.now, 10, &mut out) {
                let segment = transmit.segment.unwrap_or(out.len());
                assert!(out.len() <= 10 * segment);
                if transmit.to == self.hosts[1 - end].address {
                    for datagram in out.chunks(segment) {
                        self.carry(end, transmit.ecn, datagram);
                    }
                } else {
                    self.to_others.push((transmit.to, out.clone()));
                }
            }
        }
    }

    /// Sends a datagram from `end`.
    pub fn carry(&mut self, end: usize, ecn: u8, datagram: &[u8]) {
        let time = self.time();
        let way = &mut self.directions[end];
        if way.free_at.saturating_duration_since(self.now) > way.buffer {
            way.overflows += 1;
            return;
        }
        let bytes = datagram.len() as u64 + 28;
        if let Some(rate) = way.rate {
            let takes = Duration::from_nanos(rate.time_to_send(bytes).as_nanos());
            way.free_at = way.free_at.max(self.now) + takes;
        } else {
            way.free_at = self.now;
        }
        let out = way.outage.is_some_and(|(from, to)| (from..to).contains(&time));
        if out || self.rng.uniform() < way.lose {
            way.lost += 1;
            return;
        }
        way.carried += bytes;
        // ECT(0) or ECT(1) becomes CE (RFC 3168, section 5).
        let ecn = if way.mark && ecn != 0 { 3 } else { ecn };
        let copies = if self.rng.uniform() < way.double { 2 } else { 1 };
        for _ in 0..copies {
            let mut arrives = way.free_at + way.delay;
            if self.rng.uniform() < way.late {
                arrives += Duration::from_secs_f64(0.02 * self.rng.uniform());
            }
            self.number += 1;
            self.air.insert((arrives, self.number), (1 - end, ecn, datagram.to_vec()));
        }
    }

    /// Advances to the next event, at most to `until`. Returns true if there was one.
    pub fn step(&mut self, until: Duration) -> bool {
        for host in &mut self.hosts {
            host.work(self.now - self.start);
        }
        self.flush();
        let mut next = self.air.keys().next().map(|&(at, _)| at);
        for host in &mut self.hosts {
            next = [next, host.link.timer()].into_iter().flatten().min();
        }
        let until = self.start + until;
        let Some(next) = next.filter(|&at| at < until) else {
            self.now = until.max(self.now);
            return false;
        };
        self.now = next.max(self.now);
        while let Some(entry) = self.air.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let (to, ecn, datagram) = entry.remove();
            let from = self.hosts[1 - to].address;
            self.hosts[to].link.receive(self.now, from, None, ecn, &datagram);
        }
        for host in &mut self.hosts {
            if host.link.timer().is_some_and(|at| at <= self.now) {
                host.link.on_timer(self.now);
            }
            host.work(self.now - self.start);
        }
        self.flush();
        true
    }

    /// Advances to `until`.
    pub fn run(&mut self, until: Duration) {
        while self.step(until) {}
    }

    /// Advances until both ends are up.
    pub fn connect(&mut self) {
        while !(self.hosts[0].up && self.hosts[1].up) {
            assert!(self.step(Duration::from_secs(60)), "no connection");
        }
    }
}

/// A sender like the regulator: chunk by chunk, at `rate` less the other bytes on the link.
pub struct Source {
    pub end: usize,
    pub stream: StreamKey,
    pub rate: Rate,
    pub chunk: usize,
    pub left: u64,
    /// Bytes that a chunk counts as, headers included.
    pub counts: u64,
    pub next: Duration,
}

impl Source {
    /// Sends chunks until `until`.
    pub fn run(&mut self, net: &mut Net, until: Duration) {
        while net.time() < until {
            self.owe(net, 0);
            if self.next <= net.time() && self.left > 0 {
                let chunk = self.chunk.min(self.left as usize);
                let taken = net.hosts[self.end].write(self.stream, chunk);
                self.left -= taken as u64;
                if taken > 0 && self.left == 0 {
                    net.hosts[self.end].link.finish(self.stream);
                }
                if taken > 0 {
                    self.owe(net, taken as u64 + self.counts);
                    continue;
                }
                // The window is full.
                self.next = net.time() + Duration::from_millis(1);
            }
            let stop = if self.left > 0 { self.next.min(until) } else { until };
            net.step(stop);
        }
    }

    /// Waits for `counts` released bytes, and for the bytes that the link carried beyond them.
    fn owe(&mut self, net: &mut Net, counts: u64) {
        net.flush();
        let bytes = counts + net.hosts[self.end].link.charge(counts);
        if bytes > 0 {
            self.next =
                self.next.max(net.time()) + Duration::from_nanos(self.rate.time_to_send(bytes).as_nanos());
        }
    }
}
