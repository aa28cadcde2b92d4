//! Capacity from a trace of delivery opportunities, as in mahimahi's `link_queue`.
//!
//! Each opportunity sends up to 1500 bytes at one instant. A packet that does not fit is sent in part, and the rest goes
//! first at the next opportunity. What is left of an opportunity when the queue is empty is lost, and a packet that arrives
//! at the time of an opportunity has missed it. The trace repeats from the time of its last opportunity.

use std::sync::Arc;

use bentpipe_scenario as scenario;
use bentpipe_units::{Duration, Instant};

const OPPORTUNITY: u32 = scenario::Trace::OPPORTUNITY;

/// Opportunities to send, repeated.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Times of the opportunities [ms], ascending.
    times: Arc<[u32]>,
    /// The next opportunity, and the time at which its round began.
    index: usize,
    began: Instant,
    /// Rest of the current opportunity [bytes], and its time.
    left: u32,
    taken: Instant,
    /// True if the queue was empty.
    idle: bool,
}

impl Trace {
    /// Opportunities of `trace`, from the beginning of the run.
    #[must_use]
    pub fn new(trace: &scenario::Trace) -> Self {
        Self { times: trace.times.clone(), idle: true, ..Self::default() }
    }

    /// Time of the next opportunity.
    fn next(&self) -> Instant {
        let ms = self.times.get(self.index).copied().unwrap_or(0);
        self.began + Duration::from_millis(u64::from(ms))
    }

    fn pass(&mut self) {
        self.index += 1;
        if self.index >= self.times.len() {
            self.index = 0;
            let period = self.times.last().copied().unwrap_or(0).max(1);
            self.began += Duration::from_millis(u64::from(period));
        }
    }

    /// Skips unused opportunities: those before `now`, and with `and_now` those at `now`.
    fn skip(&mut self, now: Instant, and_now: bool) {
        let period = Duration::from_millis(u64::from(self.times.last().copied().unwrap_or(0).max(1)));
        // Whole rounds in one step.
        if now > self.began + period {
            // At least one, and so past the next opportunity.
            let rounds = (now - self.began).as_nanos().saturating_sub(1) / period.as_nanos();
            self.index = 0;
            self.began += period.times(rounds);
        }
        while self.next() < now || (and_now && self.next() == now) {
            self.pass();
        }
    }

    /// Time at which the next packet may be sent.
    pub fn ready(&mut self, now: Instant) -> Instant {
        if self.left > 0 && self.taken == now && !self.idle {
            return now;
        }
        self.left = 0;
        let was_idle = std::mem::take(&mut self.idle);
        self.skip(now, was_idle);
        self.next()
    }

    /// Sends a packet of `len` bytes from `now` on; returns the time at which it has been sent.
    pub fn send(&mut self, len: u32, now: Instant) -> Instant {
        let mut to_go = len;
        if self.taken != now {
            self.left = 0;
        }
        let mut at = now;
        loop {
            let part = to_go.min(self.left);
            self.left -= part;
            to_go -= part;
            if to_go == 0 {
                return at;
            }
            at = self.next().max(now);
            self.pass();
            (self.left, self.taken) = (OPPORTUNITY, at);
        }
    }

    /// The queue is empty.
    pub fn on_idle(&mut self) {
        self.idle = true;
        self.left = 0;
    }

    /// Bytes that could be sent since the last call; only for a copy that sends nothing.
    pub fn passed(&mut self, now: Instant) -> u64 {
        let mut bytes = 0;
        while self.next() <= now {
            self.pass();
            bytes += u64::from(OPPORTUNITY);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(times: &[u32]) -> Trace {
        let digest = bentpipe_scenario::Digest::of(b"test");
        Trace::new(&scenario::Trace { times: times.into(), digest })
    }

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// Derived from mahimahi's link_queue.cc for the trace 5, 10, 10, 20 [ms]:
    ///
    /// | packet | arrives at | bytes | sent at | reason |
    /// |---|---|---|---|---|
    /// | a | 0 | 1500 | 5 | a whole opportunity |
    /// | b | 5 | 1000 | 10 | that at 5 is over |
    /// | c | 6 | 1000 | 10 | 500 in the first at 10, 500 in the second |
    /// | d | 7 | 1000 | 10 | the second's other 1000 |
    /// | e | 10 | 500 | 20 | both at 10 are over |
    /// | f | 21 | 2000 | 30 | 1500 at 25 (20 + 5), 500 in the first at 30 |
    /// | g | 22 | 500 | 30 | what f leaves of it |
    #[test]
    fn packets_are_sent_at_the_times_of_mahimahi() {
        let mut t = trace(&[5, 10, 10, 20]);
        let mut free = at(0);
        let mut gone = Vec::new();
        for (comes, bytes) in [(0, 1500), (5, 1000), (6, 1000), (7, 1000), (10, 500), (21, 2000), (22, 500)] {
            if at(comes) >= free {
                // The queue was empty after the last packet.
                t.on_idle();
            }
            let now = t.ready(at(comes).max(free));
            free = t.send(bytes, now);
            gone.push(free);
        }
        assert_eq!(gone, [at(5), at(10), at(10), at(10), at(20), at(30), at(30)]);
    }

    /// A packet every 100 ms uses one opportunity of ten, 10 ms after it arrives, in each of three rounds.
    #[test]
    fn unused_opportunities_are_lost() {
        let times: Vec<u32> = (1..=100).map(|i| 10 * i).collect();
        let mut t = trace(&times);
        for n in 0..30 {
            t.on_idle();
            let now = t.ready(at(100 * n));
            assert_eq!(now, at(100 * n + 10));
            assert_eq!(t.send(1500, now), now);
        }
        // Whole rounds are skipped.
        t.on_idle();
        assert_eq!(t.ready(at(1_000_005)), at(1_000_010));
    }

    /// A trace that begins at 0 has an opportunity at the beginning of every round.
    #[test]
    fn the_trace_repeats_from_its_last_opportunity() {
        let mut t = trace(&[0, 50]);
        let mut now = at(0);
        let sent: Vec<_> = (0..5)
            .map(|_| {
                now = t.ready(now);
                now = t.send(1500, now);
                now
            })
            .collect();
        // The packet arrives at 0 and misses that one. 50 is the last of the first round and the first of the second.
        assert_eq!(sent, [at(50), at(50), at(100), at(100), at(150)]);
        assert_eq!(trace(&[0, 50]).passed(at(100)), 5 * 1500);
    }

    #[test]
    fn a_used_up_opportunity_sends_nothing_more() {
        let mut t = trace(&[5, 10, 20]);
        assert_eq!(t.ready(at(0)), at(5));
        assert_eq!(t.send(1500, at(5)), at(5));
        assert_eq!(t.ready(at(5)), at(10));
    }

    /// Two opportunities at 50 ms, the end of the round, send one packet each.
    #[test]
    fn opportunities_at_the_end_of_a_round_are_used_once() {
        let mut t = trace(&[50, 50]);
        let mut now = at(0);
        let sent = [(); 5].map(|()| {
            now = t.ready(now);
            now = t.send(1500, now);
            now
        });
        assert_eq!(sent, [50, 50, 100, 100, 150].map(at));
    }
}
