//! Any bytes as events on two TCP connections: segments arrive in any order, late, twice or not at all, marked, or forged.
//!
//! The first bytes select the configuration of both ends. Each further pair of bytes is an event: what happens, and an amount.
//! Nothing panics; what an end receives was sent. If no segment was forged, the rest is delivered in order at the end, and
//! every byte arrives.

use bentpipe_transport::tcp::{Algorithm, Config, Connection, Ecn, Flags, Sack, Segment, Timestamps};
use bentpipe_units::{Duration, Instant};

/// Most segments in flight in one direction; further ones are lost.
const MOST: usize = 64;
/// Most bytes that an end writes.
const MOST_WRITTEN: u64 = 20_000;
/// Rounds in which everything has to arrive at the end.
const ROUNDS: usize = 4000;

struct Ends {
    cfg: Config,
    ends: [Connection; 2],
    /// Segments on the way from each end.
    flights: [Vec<Segment>; 2],
    written: [u64; 2],
    now: Instant,
}

fn must(holds: bool, problem: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(problem.to_owned()) }
}

/// Lets the events happen; returns the first problem found.
pub fn run(bytes: &[u8]) -> Result<(), String> {
    let Some((head, events)) = bytes.split_first_chunk() else { return Ok(()) };
    let cfg = config(head);
    let ends = [Connection::connect(&cfg, Instant::ZERO), Connection::listen(&cfg)];
    let mut both = Ends { cfg, ends, flights: [Vec::new(), Vec::new()], written: [0; 2], now: Instant::ZERO };
    both.turn()?;
    let (mut is_forged, mut is_aborted) = (false, false);
    for pair in events.chunks_exact(2).take(500) {
        let (what, from, amount) = (pair[0] >> 1, usize::from(pair[0] & 1), pair[1]);
        match what % 16 {
            0..6 => both.deliver(from, amount, true),
            6 => both.deliver(from, amount, false),
            7 => drop(both.take(from, amount)),
            8 => both.mark(from, amount),
            9 => both.now += Duration::from_millis(u64::from(amount)),
            10 => both.now += Duration::from_millis(u64::from(amount) * u64::from(amount)),
            11 | 12 => both.write(from, u64::from(amount) * 20),
            13 => both.ends[from].read(u64::from(amount) * 10),
            14 if amount < 8 => both.ends[from].close(),
            14 if amount == 255 => {
                is_aborted = true;
                both.ends[from].abort();
            }
            15 => {
                is_forged = true;
                both.forge(from, amount);
            }
            _ => both.ends[from].limit_receive_buffer(u32::from(amount) * 50),
        }
        both.turn()?;
    }
    if is_forged || is_aborted { Ok(()) } else { both.finish() }
}

/// A configuration in which connections do not give up.
fn config(head: &[u8; 6]) -> Config {
    let [algorithm, first, second, window, mss, times] = *head;
    let is = |byte: u8, bit: u32| byte >> bit & 1 == 1;
    let mss = 100 + 10 * u32::from(mss);
    let receive_window = mss * (1 + u32::from(window));
    Config {
        algorithm: Algorithm::ALL[usize::from(algorithm) % Algorithm::ALL.len()],
        mss,
        receive_window,
        initial_window: 1 + u32::from(window % 10),
        min_rto: Duration::from_millis(1 + 10 * u64::from(times & 15)),
        max_rto: Duration::from_secs(5),
        delayed_ack: is(times, 4).then(|| Duration::from_millis(40)),
        window_scale: is(times, 5).then_some(times >> 6),
        limited_transmit: is(first, 0),
        impatient: is(first, 1),
        go_back_n: is(first, 2),
        slow_start_restart: is(first, 3),
        ecn: is(first, 4),
        sack: is(first, 5),
        prr: is(first, 6),
        abc: is(first, 7),
        timestamps: is(second, 0),
        rack: is(second, 1),
        eifel: is(second, 2),
        hystart: is(second, 3),
        pace_window: is(second, 4),
        accurate_ecn: is(second, 5),
        syn_retries: 1000,
        retries: 1000,
        ..Config::default()
    }
}

impl Ends {
    fn take(&mut self, from: usize, place: u8) -> Option<Segment> {
        let flight = &mut self.flights[from];
        (!flight.is_empty()).then(|| flight.remove(usize::from(place) % flight.len()))
    }

    /// One of the segments on the way arrives, and may stay on the way.
    fn deliver(&mut self, from: usize, place: u8, is_last: bool) {
        if let Some(segment) = self.take(from, place) {
            self.ends[1 - from].on_segment(&self.cfg, self.now, &segment);
            if !is_last {
                self.flights[from].push(segment);
            }
        }
    }

    fn mark(&mut self, from: usize, place: u8) {
        let count = self.flights[from].len();
        if let Some(segment) = self.flights[from].get_mut(usize::from(place) % count.max(1))
            && segment.ecn != Ecn::NotEct
        {
            segment.ecn = Ecn::Ce;
        }
    }

    fn write(&mut self, at: usize, bytes: u64) {
        let bytes = bytes.min(MOST_WRITTEN - self.written[at]);
        let before = self.ends[at].acked() + self.ends[at].send_queue();
        self.ends[at].write(bytes);
        // Nothing is written after a close.
        self.written[at] += self.ends[at].acked() + self.ends[at].send_queue() - before;
    }

    /// A segment near the state of the end that it reaches.
    fn forge(&mut self, to: usize, byte: u8) {
        let (end, other) = (&self.ends[to], &self.ends[1 - to]);
        let far = u64::from(byte >> 4) * 100;
        let ack = 1 + end.acked() + far * u64::from(byte & 1);
        let near = ack + far;
        let flags = [Flags::ACK, Flags::SYN, Flags::RST, Flags::FIN | Flags::ACK, Flags::SYN | Flags::ACK];
        let segment = Segment {
            seq: end.received() + far * u64::from(byte >> 1 & 1),
            ack,
            len: u32::from(byte >> 2 & 1) * 90,
            window: 5000 * u32::from(byte >> 3 & 1),
            cwnd: 0,
            sack: Sack::new(ack, &[(near, near + 90), (near + 200, near + 300)]),
            timestamps: Timestamps::new(self.now, byte.into()),
            flags: flags[usize::from(byte) % flags.len()],
            retransmission: false,
            ecn: if other.is_established() { Ecn::Ce } else { Ecn::NotEct },
        };
        self.ends[to].on_segment(&self.cfg, self.now, &segment);
    }

    /// Timers expire, and both ends send.
    fn turn(&mut self) -> Result<(), String> {
        for (end, flight) in self.ends.iter_mut().zip(&mut self.flights) {
            if end.poll_timeout().is_some_and(|at| at <= self.now) {
                end.handle_timeout(&self.cfg, self.now);
                must(end.poll_timeout().is_none_or(|at| at > self.now), "a timer expires again at once")?;
            }
            let mut count = 0;
            while let Some(segment) = end.poll_transmit(&self.cfg, self.now) {
                must(segment.len <= self.cfg.mss, "a segment is longer than the MSS")?;
                count += 1;
                must(count < 10_000, "an end sends without end")?;
                if flight.len() < MOST {
                    flight.push(segment);
                }
            }
            must(end.readable() <= end.received(), "more is readable than was received")?;
            must(end.stats().cwnd >= u64::from(self.cfg.mss), "the window is below one segment")?;
        }
        Ok(())
    }

    /// Both ends close, and everything on the way arrives in order.
    fn finish(&mut self) -> Result<(), String> {
        for at in 0..2 {
            self.ends[at].limit_receive_buffer(u32::MAX);
            self.ends[at].close();
        }
        for _ in 0..ROUNDS {
            self.turn()?;
            for from in 0..2 {
                for segment in std::mem::take(&mut self.flights[from]) {
                    self.ends[1 - from].on_segment(&self.cfg, self.now, &segment);
                }
                let readable = self.ends[1 - from].readable();
                self.ends[1 - from].read(readable);
            }
            self.turn()?;
            if self.ends.iter().all(|end| end.is_closed() || end.in_time_wait()) {
                break;
            }
            let timers = self.ends.iter().flat_map(|end| [end.poll_timeout(), end.paced_until()]);
            let is_quiet = self.flights.iter().all(Vec::is_empty);
            if is_quiet && let Some(next) = timers.flatten().min() {
                self.now = self.now.max(next);
            }
            self.now += Duration::from_millis(1);
        }
        for at in 0..2 {
            let received = self.ends[1 - at].received();
            must(
                received == self.written[at] && self.ends[at].acked() == self.written[at],
                &format!("{} bytes were written, {received} received", self.written[at]),
            )?;
        }
        Ok(())
    }
}
