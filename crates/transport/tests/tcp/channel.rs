//! Two connections over a channel that loses, reorders and duplicates, on a virtual clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use bentpipe_transport::tcp::{Config, Connection, Ecn, Flags, Segment};
use bentpipe_units::{Duration, Instant, Rng};

/// What a channel does to segments.
#[derive(Clone, Debug)]
pub struct Channel {
    /// Probability of a loss, each way.
    pub loss: f64,
    /// Probability that a segment arrives twice.
    pub duplication: f64,
    /// Probability of a mark on a segment that may be marked.
    pub marking: f64,
    /// Propagation each way.
    pub delay: Duration,
    /// Further delay, uniform from zero on, so that segments overtake each other.
    pub jitter: Duration,
}

/// What one end's application does.
#[derive(Clone, Debug)]
pub struct Application {
    /// Bytes to write in all, and at a time.
    pub bytes: u64,
    pub chunk: u64,
    /// Reads at most so much at a time, each so often.
    pub read: u64,
    pub read_every: Duration,
}

/// An end, and what was seen of it.
pub struct End {
    pub connection: Connection,
    cfg: Config,
    application: Application,
    written: u64,
    pub read: u64,
    next_read: Instant,
    /// The right edge it advertised last and the furthest that reached it.
    advertised: u64,
    granted: u64,
    pub timer_calls: u64,
    pub sent: u64,
}

/// How it ended.
pub struct Outcome {
    pub ends: [End; 2],
    pub took: Duration,
}

/// Lets both ends transfer what they have to, and close. Panics where an invariant does not hold, or at
/// `limit`.
pub fn transfer(
    cfgs: [&Config; 2],
    apps: [Application; 2],
    channel: &Channel,
    seed: u64,
    limit: Duration,
) -> Outcome {
    let mut rng = Rng::stream(seed, "test", 0, "channel");
    let start = Instant::ZERO;
    let mut wire: BinaryHeap<Reverse<(Instant, u64, usize)>> = BinaryHeap::new();
    let mut segments: Vec<Segment> = Vec::new();
    let [first, second] = apps;
    let end = |connection, cfg: &Config, application: Application| End {
        connection,
        cfg: cfg.clone(),
        next_read: start + application.read_every,
        application,
        written: 0,
        read: 0,
        advertised: 0,
        granted: 0,
        timer_calls: 0,
        sent: 0,
    };
    let mut ends = [
        end(Connection::connect(cfgs[0], start), cfgs[0], first),
        end(Connection::listen(cfgs[1]), cfgs[1], second),
    ];
    let mut now = start;
    loop {
        for (i, end) in ends.iter_mut().enumerate() {
            end.run(now);
            while let Some(segment) = end.connection.poll_transmit(&end.cfg, now) {
                end.check_sent(&segment);
                let copies = if rng.uniform() < channel.loss {
                    0
                } else if rng.uniform() < channel.duplication {
                    2
                } else {
                    1
                };
                for _ in 0..copies {
                    let mut arrives = segment;
                    if segment.ecn != Ecn::NotEct && rng.uniform() < channel.marking {
                        arrives.ecn = Ecn::Ce;
                    }
                    let at = now + channel.delay + channel.jitter.scaled(rng.uniform());
                    wire.push(Reverse((at, segments.len() as u64, 1 - i)));
                    segments.push(arrives);
                }
            }
            end.check();
        }
        if ends.iter().all(|end| end.connection.is_closed() || end.connection.in_time_wait()) {
            break;
        }
        assert!(ends.iter().all(|end| !end.connection.failed()), "a connection failed at {now:?}");
        let next = [wire.peek().map(|Reverse((at, ..))| *at), ends.iter().filter_map(End::wakes).min()];
        now = next.into_iter().flatten().min().expect("something is yet to happen").max(now);
        assert!(now - start <= limit, "not done by {now:?}");
        // One at a time, so that each is answered before the next.
        if wire.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            let Some(Reverse((_, id, to))) = wire.pop() else { break };
            let end = &mut ends[to];
            let segment = segments[id as usize];
            end.granted = end.granted.max(segment.ack + u64::from(segment.window));
            if segment.flags.has(Flags::SYN) {
                end.granted = end.granted.max(1 + u64::from(segment.window));
            }
            end.connection.on_segment(&end.cfg, now, &segment);
            end.check();
        }
    }
    for end in &mut ends {
        end.read += end.connection.readable();
    }
    Outcome { ends, took: now - start }
}

impl End {
    fn wakes(&self) -> Option<Instant> {
        let read = (self.connection.readable() > 0).then_some(self.next_read);
        [self.connection.poll_timeout(), self.connection.paced_until(), read].into_iter().flatten().min()
    }

    /// Timers and the application.
    fn run(&mut self, now: Instant) {
        if self.connection.poll_timeout().is_some_and(|at| at <= now) {
            self.connection.handle_timeout(&self.cfg, now);
            self.timer_calls += 1;
            let again = self.connection.poll_timeout();
            assert!(again.is_none_or(|at| at > now), "the timer is due again at {again:?}, it is {now:?}");
        }
        if self.connection.send_queue() < self.application.chunk && self.written < self.application.bytes {
            let chunk = self.application.chunk.min(self.application.bytes - self.written);
            self.connection.write(chunk);
            self.written += chunk;
        }
        if self.written == self.application.bytes {
            self.connection.close();
        }
        if now >= self.next_read {
            let n = self.connection.readable().min(self.application.read);
            self.connection.read(n);
            self.read += n;
            self.next_read = now + self.application.read_every;
        }
    }

    fn check_sent(&mut self, segment: &Segment) {
        self.sent += 1;
        let probe = 1;
        assert!(segment.end() <= self.granted + probe, "{segment:?} beyond the window, {}", self.granted);
        assert!(segment.len <= self.cfg.mss);
        if !segment.flags.has(Flags::RST | Flags::SYN) {
            let edge = segment.ack + u64::from(segment.window);
            // RFC 7323 section 2.4: but by less than a unit.
            let unit = 1 << self.cfg.window_scale.unwrap_or(0);
            assert!(edge + unit > self.advertised, "{segment:?} takes the edge {} back", self.advertised);
            self.advertised = self.advertised.max(edge);
        }
    }

    fn check(&self) {
        let stats = self.connection.stats();
        assert!(stats.cwnd >= u64::from(self.cfg.mss));
        assert!(self.connection.readable() + self.read == self.connection.received());
        assert!(self.connection.readable() <= u64::from(self.cfg.receive_window));
        assert!(self.connection.acked() + self.connection.send_queue() == self.written);
        // RFC 6675 counts twice what is sent again without being lost.
        assert!(stats.in_flight <= 2 * (self.written + 2));
    }
}
