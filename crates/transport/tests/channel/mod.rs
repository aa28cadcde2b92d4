//! Carries packets between two endpoints over a channel that loses, reorders and duplicates them, on a virtual clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use bentpipe_units::{Duration, Instant, Rng};

/// Impairments of a channel, the same in both directions.
#[derive(Clone, Debug)]
pub struct Channel {
    /// Probability that a packet is lost.
    pub loss: f64,
    /// Probability that a packet arrives twice.
    pub duplication: f64,
    /// Probability that an ECN-capable packet is marked.
    pub marking: f64,
    /// Propagation delay.
    pub delay: Duration,
    /// Maximum additional delay, uniform from zero, so that packets overtake each other.
    pub jitter: Duration,
}

/// Behaviour of the application at one end.
#[derive(Clone, Debug)]
pub struct Application {
    /// Data to write in total, and at a time [bytes].
    pub bytes: u64,
    #[allow(dead_code, reason = "the SCTP application writes all its data at once")]
    pub chunk: u64,
    /// Maximum size of a read [bytes], and the interval between reads.
    pub read: u64,
    pub read_every: Duration,
}

/// Reads of an application.
pub struct Reader {
    most: u64,
    every: Duration,
    next: Instant,
    /// Read so far [bytes].
    pub total: u64,
}

impl Reader {
    pub fn new(application: &Application) -> Self {
        let every = application.read_every;
        Self { most: application.read, every, next: Instant::ZERO + every, total: 0 }
    }

    /// Returns how much of the `readable` bytes the application reads now; `None` before its next read.
    pub fn read(&mut self, now: Instant, readable: u64) -> Option<u64> {
        let n = (now >= self.next).then(|| readable.min(self.most))?;
        self.total += n;
        self.next = now + self.every;
        Some(n)
    }

    /// Returns the time of the next read.
    pub fn next(&self, readable: u64) -> Option<Instant> {
        (readable > 0).then_some(self.next)
    }
}

/// Result of a transfer.
pub struct Outcome<E> {
    pub ends: [E; 2],
    pub took: Duration,
}

/// Panics if a timer that has just expired is due again.
pub fn assert_later(again: Option<Instant>, now: Instant) {
    assert!(again.is_none_or(|at| at > now), "the timer is due again at {again:?}, it is {now:?}");
}

/// An endpoint with its application.
pub trait End {
    type Packet: Clone;

    /// Runs the application and the timers that have expired.
    fn run(&mut self, now: Instant);
    fn poll_transmit(&mut self, now: Instant) -> Option<Self::Packet>;
    fn on_packet(&mut self, now: Instant, packet: &Self::Packet);
    /// Time of the next call of `run`.
    fn next_call(&self) -> Option<Instant>;
    fn is_done(&self) -> bool;
    fn failed(&self) -> bool;
    /// Panics if an invariant is violated.
    fn check(&self);

    fn is_ecn_capable(_packet: &Self::Packet) -> bool {
        false
    }

    fn mark(_packet: &mut Self::Packet) {}
}

/// Runs both ends until they are done and returns the time it took. Panics if an invariant is violated, an end fails or
/// the time exceeds `limit`.
pub fn carry<E: End>(ends: &mut [E; 2], channel: &Channel, seed: u64, limit: Duration) -> Duration {
    let mut rng = Rng::stream(seed, "test", 0, "channel");
    let start = Instant::ZERO;
    let mut wire: BinaryHeap<Reverse<(Instant, u64, usize)>> = BinaryHeap::new();
    let mut packets: Vec<E::Packet> = Vec::new();
    let mut now = start;
    loop {
        for (i, end) in ends.iter_mut().enumerate() {
            end.run(now);
            while let Some(packet) = end.poll_transmit(now) {
                let lost = rng.uniform() < channel.loss;
                let copies = if lost { 0 } else { 1 + u32::from(rng.uniform() < channel.duplication) };
                for _ in 0..copies {
                    let mut arriving = packet.clone();
                    if E::is_ecn_capable(&packet) && rng.uniform() < channel.marking {
                        E::mark(&mut arriving);
                    }
                    let at = now + channel.delay + channel.jitter.scaled(rng.uniform());
                    wire.push(Reverse((at, packets.len() as u64, 1 - i)));
                    packets.push(arriving);
                }
            }
            end.check();
        }
        if ends.iter().all(E::is_done) {
            return now - start;
        }
        assert!(!ends.iter().any(E::failed), "an end failed at {now:?}");
        let next = [wire.peek().map(|Reverse((at, ..))| *at), ends.iter().filter_map(E::next_call).min()];
        now = next.into_iter().flatten().min().expect("a packet or a timer").max(now);
        assert!(now - start <= limit, "not done by {now:?}");
        // One packet at a time, so that each is answered before the next.
        if wire.peek().is_some_and(|Reverse((at, ..))| *at <= now)
            && let Some(Reverse((_, id, to))) = wire.pop()
        {
            ends[to].on_packet(now, &packets[id as usize]);
            ends[to].check();
        }
    }
}
