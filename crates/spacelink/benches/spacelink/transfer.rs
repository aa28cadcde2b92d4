//! The transfer of a benchmark: both ends of a spacelink in one thread.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bentpipe_spacelink::{Event, Identity, Open, Setup, Spacelink, StreamKey};
use cpu_time::ThreadTime;

/// Bytes of a chunk.
pub const CHUNK: usize = 1360;

/// Traffic pattern of a transfer.
pub struct Case {
    /// Short description.
    pub name: &'static str,
    /// Streams that take turns.
    pub streams: usize,
    /// Chunks written before anything is sent.
    pub chunks: usize,
    /// Datagrams sent at once.
    pub segments: usize,
    /// One of `lose` datagrams is lost; 0 for no losses.
    pub lose: u64,
}

/// The cases.
pub const CASES: &[Case] = &[
    Case { name: "chunk by chunk", streams: 1, chunks: 1, segments: 1, lose: 0 },
    Case { name: "chunk by chunk, 100 streams", streams: 100, chunks: 1, segments: 1, lose: 0 },
    Case { name: "10 at once", streams: 1, chunks: 10, segments: 10, lose: 0 },
    Case { name: "10 at once, 100 streams", streams: 100, chunks: 10, segments: 10, lose: 0 },
    Case { name: "10 at once, one of 100 lost", streams: 1, chunks: 10, segments: 10, lose: 100 },
];

/// Cost of a run.
#[derive(Clone, Default)]
pub struct Cost {
    /// CPU time of the sender.
    pub sender: Duration,
    /// CPU time of the receiver.
    pub receiver: Duration,
    /// Bytes on the wire in each direction, IP and UDP headers included.
    pub wire: [u64; 2],
}

/// A transfer of `bytes` bytes from the listening end to the connecting one.
pub struct Transfer<'a> {
    case: &'a Case,
    bytes: u64,
    now: Instant,
    ends: [Spacelink; 2],
    addresses: [SocketAddr; 2],
    data: Vec<u8>,
    /// Datagrams on their way to each end, with the size of a segment.
    air: [Vec<(usize, Vec<u8>)>; 2],
    pool: Vec<Vec<u8>>,
    streams: Vec<StreamKey>,
    opened: usize,
    buffer: Vec<u8>,
    written: u64,
    read: u64,
    /// Chunks written.
    turn: usize,
    /// Datagrams sent.
    sent: u64,
    cost: Cost,
    /// Bytes on the wire before all streams were open.
    before: [u64; 2],
}

impl<'a> Transfer<'a> {
    /// Two ends that are not yet connected.
    pub fn new(case: &'a Case, bytes: u64) -> Self {
        let [g, t] = ["gateway", "terminal"].map(|name| Identity::generate(name).expect("random bytes"));
        let (of_g, of_t) = (g.certificate(), t.certificate());
        #[expect(clippy::disallowed_methods, reason = "an origin for times that are then counted on")]
        let now = Instant::now();
        let setup = |identity, peer| Setup::new(identity, peer, None, Duration::from_millis(100));
        let addresses = ["192.0.2.1:4433", "192.0.2.2:4433"].map(|a| a.parse().expect("an address"));
        let ends = [
            Spacelink::listen(&setup(g, of_t), None, now).expect("matching keys"),
            Spacelink::connect(&setup(t, of_g), addresses[0], now).expect("matching keys"),
        ];
        Self {
            case,
            bytes,
            now,
            ends,
            addresses,
            data: vec![0x5a; CHUNK * case.chunks],
            air: [Vec::new(), Vec::new()],
            pool: Vec::new(),
            streams: Vec::new(),
            opened: 0,
            buffer: vec![0; 65_536],
            written: 0,
            read: 0,
            turn: 0,
            sent: 0,
            cost: Cost::default(),
            before: [0; 2],
        }
    }

    /// Writes `case.chunks` chunks, and lets each end receive and send once.
    pub fn round(&mut self) {
        // The time of 11 µs per chunk at a gigabit per second.
        self.now += Duration::from_micros(11) * self.case.chunks as u32;
        for at in [0, 1] {
            let started = ThreadTime::now();
            self.receive(at);
            self.write(at);
            loop {
                let mut out = self.pool.pop().unwrap_or_default();
                let Some(transmit) = self.ends[at].transmit(self.now, self.case.segments, &mut out) else {
                    break;
                };
                self.air[1 - at].push((transmit.segment.unwrap_or(out.len()), out));
            }
            if self.is_open() {
                *[&mut self.cost.sender, &mut self.cost.receiver][at] += started.elapsed();
            } else {
                self.before = [0, 1].map(|at| self.ends[at].stats().sent_bytes);
            }
        }
    }

    /// True once all streams are open.
    pub fn is_open(&self) -> bool {
        self.streams.len() == self.case.streams
    }

    /// Bytes that the receiver has read.
    pub fn read(&self) -> u64 {
        self.read
    }

    /// Cost since all streams are open.
    pub fn cost(&self) -> Cost {
        let wire = [0, 1].map(|at| self.ends[at].stats().sent_bytes - self.before[at]);
        Cost { wire, ..self.cost.clone() }
    }

    fn receive(&mut self, at: usize) {
        for (segment, datagrams) in self.air[at].drain(..) {
            for datagram in datagrams.chunks(segment) {
                self.sent += 1;
                if self.case.lose == 0 || !self.sent.is_multiple_of(self.case.lose) {
                    self.ends[at].receive(self.now, self.addresses[1 - at], None, 0, datagram);
                }
            }
            self.pool.push(datagrams);
        }
        if self.ends[at].timer().is_some_and(|due| due <= self.now) {
            self.ends[at].on_timer(self.now);
        }
        while let Some(event) = self.ends[at].poll() {
            match event {
                Event::Opened { stream, .. } => self.streams.push(stream),
                Event::Readable(stream) => {
                    while let got @ 1.. = self.ends[at].read(stream, &mut self.buffer) {
                        self.read += if at == 1 { got as u64 } else { 0 };
                        self.ends[at].delivered(stream, got as u64);
                    }
                }
                Event::Down(reason) | Event::Failed(reason) => panic!("{reason}"),
                _ => {}
            }
        }
    }

    fn write(&mut self, at: usize) {
        if at == 1 && self.ends[1].is_up() && self.opened < self.case.streams {
            let header = Open { client: self.addresses[1], server: self.addresses[0] };
            let stream = self.ends[1].open(&header).expect("a free stream");
            self.ends[1].write(stream, b"x");
            self.opened += 1;
        }
        if at == 0 && self.is_open() && self.written < self.bytes {
            for chunk in self.data.chunks(CHUNK) {
                let stream = self.streams[self.turn % self.case.streams];
                self.written += self.ends[0].write(stream, chunk) as u64;
                self.turn += 1;
            }
        }
    }
}
