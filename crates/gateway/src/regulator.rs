//! The rate regulator behind the transmit queue.

use bentpipe_units::{Duration, Instant, Rate};

/// Credit for one byte [bit/s ns]: counted so, no rate and no tick leaves a rounding error behind.
const BYTE: i64 = 8_000_000_000;

/// Lets packets go at a rate: at regular ticks, each a burst of what a tick earns, or one by one.
///
/// Credit that an empty queue leaves unused is lost.
#[derive(Debug)]
pub struct Regulator {
    rate: Rate,
    /// Zero: packets go one by one.
    tick: Duration,
    /// What may still go at this tick [bit/s ns]. Below zero where an Aqm discarded the packet that was looked at
    /// and a longer one went in its place: the next tick pays for it.
    credit: i64,
    /// The last tick, or none yet.
    last: Option<Instant>,
    /// Whether the last tick sent anything, which keeps the link busy up to the next.
    sent: bool,
    /// One by one: when the packet that went last has been sent.
    free_at: Instant,
    wake_at: Option<Instant>,
}

impl Regulator {
    /// One that lets `rate` go, at every multiple of `tick`, or packet by packet where that is zero.
    #[must_use]
    pub fn new(rate: Rate, tick: Duration) -> Self {
        Self { rate, tick, credit: 0, last: None, sent: false, free_at: Instant::ZERO, wake_at: None }
    }

    /// From now on it lets `rate` go; at rate zero, nothing, until it is told another.
    pub fn set_rate(&mut self, rate: Rate) {
        self.rate = rate;
        if rate.as_bps() == 0 {
            self.wake_at = None;
        }
    }

    /// The first time, from `now` on, at which this regulator looks for work.
    #[must_use]
    pub fn next_look(&self, now: Instant) -> Instant {
        now.round_up_to(self.tick)
    }

    /// When it wants to let packets go.
    #[must_use]
    pub fn wake_at(&self) -> Option<Instant> {
        self.wake_at
    }

    /// A packet waits to go.
    pub fn want(&mut self, now: Instant) {
        if self.wake_at.is_some() || self.rate.as_bps() == 0 {
            return;
        }
        self.wake_at = Some(if self.tick.is_zero() {
            self.free_at.max(now)
        } else {
            match self.last {
                // This instant's tick is over.
                Some(last) if last >= now => last + self.tick,
                _ => self.next_look(now),
            }
        });
    }

    /// The time asked for has come: a tick earns its credit.
    pub fn tick(&mut self, now: Instant) {
        self.wake_at = None;
        if !self.tick.is_zero() {
            let earned = self.rate.as_bps().saturating_mul(self.tick.as_nanos());
            self.credit = self.credit.saturating_add_unsigned(earned);
            self.last = Some(now);
            self.sent = false;
        }
    }

    /// Whether what went last is still being sent: a packet, or a tick's burst, which takes up to a tick.
    #[must_use]
    pub fn is_busy(&self, now: Instant) -> bool {
        self.free_at > now || self.sent
    }

    /// Whether a packet of `len` bytes may go now.
    #[must_use]
    pub fn allows(&self, len: u32, now: Instant) -> bool {
        if self.tick.is_zero() { self.free_at <= now } else { i64::from(len) * BYTE <= self.credit }
    }

    /// A packet of `len` bytes goes.
    pub fn spend(&mut self, len: u32, now: Instant) {
        if self.tick.is_zero() {
            self.free_at = now + self.rate.time_to_send(u64::from(len));
        } else {
            self.credit -= i64::from(len) * BYTE;
            self.sent = true;
        }
    }

    /// `bytes` have gone without asking: what comes next waits until they are paid for.
    pub fn charge(&mut self, bytes: u64, now: Instant) {
        if self.rate.as_bps() == 0 {
            return;
        }
        if self.tick.is_zero() {
            self.free_at = self.free_at.max(now) + self.rate.time_to_send(bytes);
            if let Some(at) = &mut self.wake_at {
                *at = self.free_at.max(*at);
            }
        } else {
            self.credit = self.credit.saturating_sub_unsigned(bytes.saturating_mul(BYTE.unsigned_abs()));
        }
    }

    /// What it has let go, or was charged for, and the rate has not made up for by `now` [bytes].
    #[must_use]
    pub fn debt(&self, now: Instant) -> u64 {
        if self.tick.is_zero() {
            let time = if self.free_at > now { self.free_at - now } else { Duration::ZERO };
            (time.as_secs_f64() * self.rate.bytes_per_sec()).round() as u64
        } else {
            self.credit.min(0).unsigned_abs() / BYTE.unsigned_abs()
        }
    }

    /// Nothing waits any more.
    pub fn rest(&mut self) {
        self.credit = self.credit.min(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MBPS: u64 = 1_000_000;

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(us)
    }

    /// 20 Mbit/s in 5 ms are 12 500 bytes: eight packets of 1391 bytes (11 128), and with what is left (1372)
    /// and the next tick's 12 500 nine more (12 519), then 1353 are left.
    #[test]
    fn a_tick_lets_go_what_it_has_earned() {
        let mut regulator = Regulator::new(Rate::from_bps(20 * MBPS), Duration::from_millis(5));
        let mut burst = |now| {
            regulator.want(now);
            let due = regulator.wake_at().unwrap();
            regulator.tick(due);
            let mut sent = 0;
            while regulator.allows(1391, due) {
                regulator.spend(1391, due);
                sent += 1;
            }
            (due, sent)
        };
        assert_eq!(burst(at(1)), (at(5_000), 8));
        assert_eq!(burst(at(5_000)), (at(10_000), 9));
        assert_eq!(burst(at(10_000)), (at(15_000), 9));
    }

    #[test]
    fn an_empty_queue_loses_its_credit() {
        let mut regulator = Regulator::new(Rate::from_bps(20 * MBPS), Duration::from_millis(5));
        regulator.want(at(0));
        regulator.tick(at(0));
        regulator.rest();
        regulator.want(at(12_000));
        assert_eq!(regulator.wake_at(), Some(at(15_000)));
        regulator.tick(at(15_000));
        assert!(regulator.allows(12_500, at(15_000)) && !regulator.allows(12_501, at(15_000)));
    }

    #[test]
    fn at_rate_zero_it_waits_to_be_told_another() {
        let mut regulator = Regulator::new(Rate::from_bps(20 * MBPS), Duration::ZERO);
        regulator.want(at(7));
        regulator.set_rate(Rate::from_bps(0));
        assert_eq!(regulator.wake_at(), None);
        regulator.want(at(8));
        assert_eq!(regulator.wake_at(), None);
        regulator.set_rate(Rate::from_bps(10 * MBPS));
        regulator.want(at(9));
        assert_eq!(regulator.wake_at(), Some(at(9)));
        // 1250 bytes take 1 ms at 10 Mbit/s.
        regulator.tick(at(9));
        regulator.spend(1250, at(9));
        regulator.want(at(9));
        assert_eq!(regulator.wake_at(), Some(at(1009)));
    }

    /// 2500 bytes that nobody asked for take 1 ms at 20 Mbit/s: a packet that was to go at 7 µs goes at 1007. With ticks of
    /// 5 ms they leave 10 000 of the next tick's 12 500.
    #[test]
    fn what_was_not_asked_for_is_paid_for() {
        let mut regulator = Regulator::new(Rate::from_bps(20 * MBPS), Duration::ZERO);
        regulator.want(at(7));
        regulator.charge(2500, at(7));
        assert_eq!(regulator.wake_at(), Some(at(1007)));
        regulator.tick(at(1007));
        assert!(regulator.allows(1250, at(1007)));
        assert_eq!(
            (regulator.debt(at(7)), regulator.debt(at(507)), regulator.debt(at(2000))),
            (2500, 1250, 0)
        );
        let mut regulator = Regulator::new(Rate::from_bps(20 * MBPS), Duration::from_millis(5));
        regulator.charge(2500, at(1));
        assert_eq!(regulator.debt(at(1)), 2500);
        regulator.rest();
        regulator.want(at(1));
        regulator.tick(at(5_000));
        assert!(regulator.allows(10_000, at(5_000)) && !regulator.allows(10_001, at(5_000)));
    }

    /// 1250 bytes take 0.5 ms at 20 Mbit/s.
    #[test]
    fn without_ticks_packets_go_one_by_one() {
        let mut regulator = Regulator::new(Rate::from_bps(20 * MBPS), Duration::ZERO);
        regulator.want(at(7));
        assert_eq!(regulator.wake_at(), Some(at(7)));
        regulator.tick(at(7));
        assert!(regulator.allows(1250, at(7)));
        regulator.spend(1250, at(7));
        assert!(!regulator.allows(1, at(506)));
        regulator.want(at(100));
        assert_eq!(regulator.wake_at(), Some(at(507)));
        assert!(regulator.allows(1250, at(507)));
    }
}
