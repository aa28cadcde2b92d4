//! Rate regulator behind the transmit queue: a token bucket.

use bentpipe_units::{Duration, Instant, Rate};

/// Credit for one byte [bit/s ns]; in this unit no rate and no tick causes a rounding error.
const BYTE: i64 = 8_000_000_000;

/// Releases packets at a rate: at regular ticks, a burst of the credit of each tick, or one by one.
///
/// Credit that an empty queue does not use is lost.
#[derive(Debug)]
pub struct Regulator {
    rate: Rate,
    /// Zero: packets are released one by one.
    tick: Duration,
    /// Credit left at this tick [bit/s ns]. Negative if an AQM dropped the packet that was checked and a longer one was
    /// sent instead: the next tick pays for it.
    credit: i64,
    /// Last tick; `None` before the first.
    last: Option<Instant>,
    /// True if the last tick sent a packet, which keeps the link busy until the next tick.
    sent: bool,
    /// One by one: when the transmission of the last packet ends.
    free_at: Instant,
    wake_at: Option<Instant>,
}

impl Regulator {
    /// A regulator with rate `rate`, at every multiple of `tick`, or packet by packet if that is zero.
    #[must_use]
    pub fn new(rate: Rate, tick: Duration) -> Self {
        Self { rate, tick, credit: 0, last: None, sent: false, free_at: Instant::ZERO, wake_at: None }
    }

    /// Sets the rate. At rate zero nothing is released until the next call.
    pub fn set_rate(&mut self, rate: Rate) {
        self.rate = rate;
        if rate.as_bps() == 0 {
            self.wake_at = None;
        }
    }

    /// Time between two ticks; zero if packets are released one by one.
    #[must_use]
    pub fn time_between_ticks(&self) -> Duration {
        self.tick
    }

    /// First tick at or after `now`.
    #[must_use]
    pub fn next_tick(&self, now: Instant) -> Instant {
        now.round_up_to(self.tick)
    }

    /// Time of the next call of [`Self::tick`]; `None` if no packet waits.
    #[must_use]
    pub fn wake_at(&self) -> Option<Instant> {
        self.wake_at
    }

    /// Requests a tick for a waiting packet.
    pub fn request(&mut self, now: Instant) {
        if self.wake_at.is_some() || self.rate.as_bps() == 0 {
            return;
        }
        self.wake_at = Some(if self.tick.is_zero() {
            self.free_at.max(now)
        } else {
            match self.last {
                // This instant's tick is over.
                Some(last) if last >= now => last + self.tick,
                _ => self.next_tick(now),
            }
        });
    }

    /// Starts a tick and adds its credit.
    pub fn tick(&mut self, now: Instant) {
        self.wake_at = None;
        if !self.tick.is_zero() {
            let earned = self.rate.as_bps().saturating_mul(self.tick.as_nanos());
            self.credit = self.credit.saturating_add_unsigned(earned);
            self.last = Some(now);
            self.sent = false;
        }
    }

    /// True while the last packet, or the burst of the last tick, is being sent; a burst takes up to a tick.
    #[must_use]
    pub fn is_busy(&self, now: Instant) -> bool {
        self.free_at > now || self.sent
    }

    /// True if a packet of `len` bytes may be sent now.
    #[must_use]
    pub fn allows(&self, len: u32, now: Instant) -> bool {
        if self.rate.as_bps() == 0 {
            return false;
        }
        if self.tick.is_zero() { self.free_at <= now } else { i64::from(len) * BYTE <= self.credit }
    }

    /// Records that a packet of `len` bytes is sent.
    pub fn spend(&mut self, len: u32, now: Instant) {
        if self.tick.is_zero() {
            self.free_at = now + self.rate.time_to_send(u64::from(len));
        } else {
            self.credit -= i64::from(len) * BYTE;
            self.sent = true;
        }
    }

    /// Charges `bytes` sent without permission: the next packets wait until they are paid for.
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

    /// Bytes released or charged for which the rate has not compensated by `now` [bytes].
    #[must_use]
    pub fn debt(&self, now: Instant) -> u64 {
        if self.tick.is_zero() {
            let time = if self.free_at > now { self.free_at - now } else { Duration::ZERO };
            (time.as_secs_f64() * self.rate.bytes_per_sec()).round() as u64
        } else {
            self.credit.min(0).unsigned_abs() / BYTE.unsigned_abs()
        }
    }

    /// Drops unused credit: no packet waits any more.
    pub fn clear_credit(&mut self) {
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

    /// 20 Mbit/s in 5 ms are 12 500 bytes: eight packets of 1391 bytes (11 128); the remaining 1372 and the next tick's
    /// 12 500 allow nine more (12 519), then 1353 remain.
    #[test]
    fn a_tick_releases_its_credit() {
        let mut regulator = Regulator::new(Rate::from_bps(20 * MBPS), Duration::from_millis(5));
        let mut burst = |now| {
            regulator.request(now);
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

    /// 1500 bytes take 600 us at 20 Mbit/s. A burst is taken to last until the next tick.
    #[test]
    fn a_regulator_is_busy_while_it_sends() {
        let rate = Rate::from_bps(20 * MBPS);
        let mut one_by_one = Regulator::new(rate, Duration::ZERO);
        assert_eq!(one_by_one.time_between_ticks(), Duration::ZERO);
        assert!(!one_by_one.is_busy(at(100)));
        one_by_one.spend(1500, at(100));
        let busy = [at(100), at(699), at(700), at(701)].map(|now| one_by_one.is_busy(now));
        assert_eq!(busy, [true, true, false, false]);

        let tick = Duration::from_millis(5);
        let mut ticking = Regulator::new(rate, tick);
        assert_eq!(ticking.time_between_ticks(), tick);
        ticking.tick(at(5_000));
        assert!(!ticking.is_busy(at(5_000)));
        ticking.spend(1500, at(5_000));
        assert!(ticking.is_busy(at(9_999)));
        ticking.tick(at(10_000));
        assert!(!ticking.is_busy(at(10_000)));
    }

    #[test]
    fn an_empty_queue_loses_its_credit() {
        let mut regulator = Regulator::new(Rate::from_bps(20 * MBPS), Duration::from_millis(5));
        regulator.request(at(0));
        regulator.tick(at(0));
        regulator.clear_credit();
        regulator.request(at(12_000));
        assert_eq!(regulator.wake_at(), Some(at(15_000)));
        regulator.tick(at(15_000));
        assert!(regulator.allows(12_500, at(15_000)) && !regulator.allows(12_501, at(15_000)));
    }

    #[test]
    fn rate_zero_releases_nothing_until_a_new_rate() {
        let mut regulator = Regulator::new(Rate::from_bps(20 * MBPS), Duration::ZERO);
        regulator.request(at(7));
        regulator.set_rate(Rate::from_bps(0));
        assert_eq!(regulator.wake_at(), None);
        regulator.request(at(8));
        assert_eq!((regulator.wake_at(), regulator.allows(1, at(8))), (None, false));
        regulator.set_rate(Rate::from_bps(10 * MBPS));
        regulator.request(at(9));
        assert_eq!(regulator.wake_at(), Some(at(9)));
        // 1250 bytes take 1 ms at 10 Mbit/s.
        regulator.tick(at(9));
        regulator.spend(1250, at(9));
        regulator.request(at(9));
        assert_eq!(regulator.wake_at(), Some(at(1009)));
    }

    /// 2500 charged bytes take 1 ms at 20 Mbit/s: a packet due at 7 µs is sent at 1007. With ticks of 5 ms they leave
    /// 10 000 of the next tick's 12 500.
    #[test]
    fn charged_bytes_delay_the_next_packets() {
        let mut regulator = Regulator::new(Rate::from_bps(20 * MBPS), Duration::ZERO);
        regulator.request(at(7));
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
        regulator.clear_credit();
        regulator.request(at(1));
        regulator.tick(at(5_000));
        assert!(regulator.allows(10_000, at(5_000)) && !regulator.allows(10_001, at(5_000)));
    }

    /// 1250 bytes take 0.5 ms at 20 Mbit/s.
    #[test]
    fn without_ticks_packets_are_released_one_by_one() {
        let mut regulator = Regulator::new(Rate::from_bps(20 * MBPS), Duration::ZERO);
        regulator.request(at(7));
        assert_eq!(regulator.wake_at(), Some(at(7)));
        regulator.tick(at(7));
        assert!(regulator.allows(1250, at(7)));
        regulator.spend(1250, at(7));
        assert!(!regulator.allows(1, at(506)));
        regulator.request(at(100));
        assert_eq!(regulator.wake_at(), Some(at(507)));
        assert!(regulator.allows(1250, at(507)));
    }
}
