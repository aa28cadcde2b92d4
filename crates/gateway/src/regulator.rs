//! Rate regulator behind the transmit queue: a token bucket.

use bentpipe_units::{Duration, Instant, Rate};

/// Credit for one byte [bit/s ns]; in this unit no rate and no tick causes a rounding error.
const BYTE: i64 = 8_000_000_000;

/// Rate of a link that has none: what it could send is not known.
pub const UNLIMITED: Rate = Rate::from_bps(100_000_000_000);

/// Releases packets at a rate: at regular ticks, a burst of the credit of each tick, or one by one.
///
/// Each tick pays for charged bytes, whether or not packets wait; only the credit that it then has left releases packets. Credit
/// that an empty queue does not use is lost.
#[derive(Debug)]
pub struct Regulator {
    rate: Rate,
    /// Zero: packets are released one by one.
    tick: Duration,
    /// Credit left at this tick [bit/s ns]. Negative while charged bytes are unpaid, or if an AQM dropped the packet that was
    /// checked and a longer one was sent instead: the next tick pays for it.
    credit: i64,
    /// Number of the last tick that has paid; `None` unless charged bytes are unpaid.
    paid: Option<u64>,
    /// Last tick; `None` before the first.
    last: Option<Instant>,
    /// True if the last tick sent a packet, which keeps the link busy until the next tick.
    sent: bool,
    /// One by one: when the transmission of the last packet ends.
    free_at: Instant,
    wake_at: Option<Instant>,
    /// Time of the last change of the rate, and the integral of the rate until then [bits].
    changed: (Instant, f64),
}

impl Regulator {
    /// A regulator with rate `rate`, at every multiple of `tick`, or packet by packet if that is zero.
    #[must_use]
    pub fn new(rate: Rate, tick: Duration) -> Self {
        Self {
            rate,
            tick,
            credit: 0,
            paid: None,
            last: None,
            sent: false,
            free_at: Instant::ZERO,
            wake_at: None,
            changed: (Instant::ZERO, 0.0),
        }
    }

    /// Integral of the rate over time until `now` [bits]; of [`UNLIMITED`] rates infinite or NaN.
    #[must_use]
    pub fn capacity_until(&self, now: Instant) -> f64 {
        let (changed, bits) = self.changed;
        let rate = if self.rate == UNLIMITED { f64::INFINITY } else { self.rate.as_bps() as f64 };
        bits + rate * (now - changed).as_secs_f64()
    }

    /// Sets the rate from `now` on. At rate zero nothing is released until the next call.
    pub fn set_rate(&mut self, rate: Rate, now: Instant) {
        self.pay(now);
        self.changed = (now, self.capacity_until(now));
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
            self.pay(now);
            self.credit = self.credit.saturating_add_unsigned(self.earned(1));
            self.paid = self.paid.filter(|_| self.credit < 0).map(|_| self.number(now));
            self.last = Some(now);
            self.sent = false;
        }
    }

    /// Credit of a number of ticks.
    fn earned(&self, ticks: u64) -> u64 {
        self.rate.as_bps().saturating_mul(self.tick.as_nanos()).saturating_mul(ticks)
    }

    /// Number of the last tick at or before `now`.
    fn number(&self, now: Instant) -> u64 {
        now.as_nanos() / self.tick.as_nanos()
    }

    /// Number of the last tick before `now`.
    fn number_before(&self, now: Instant) -> u64 {
        now.as_nanos().saturating_sub(1) / self.tick.as_nanos()
    }

    /// Credit at `now`, before a tick at that time. Ticks that were skipped because no packet waited have paid for charged bytes.
    fn credit_at(&self, now: Instant) -> i64 {
        match self.paid {
            Some(paid) => {
                let skipped = self.number_before(now).saturating_sub(paid);
                self.credit.saturating_add_unsigned(self.earned(skipped)).min(0)
            }
            None => self.credit,
        }
    }

    /// Lets the ticks before `now` that were skipped pay for charged bytes.
    fn pay(&mut self, now: Instant) {
        if let Some(paid) = self.paid {
            self.credit = self.credit_at(now);
            self.paid = Some(self.number_before(now).max(paid));
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
            self.pay(now);
            self.credit = self.credit.saturating_sub_unsigned(bytes.saturating_mul(BYTE.unsigned_abs()));
            if self.credit < 0 && self.paid.is_none() {
                let last = self.last.map_or(0, |last| self.number(last));
                self.paid = Some(self.number_before(now).max(last));
            }
        }
    }

    /// Bytes released or charged for which the rate has not compensated by `now` [bytes].
    #[must_use]
    pub fn debt(&self, now: Instant) -> u64 {
        if self.tick.is_zero() {
            let time = if self.free_at > now { self.free_at - now } else { Duration::ZERO };
            (time.as_secs_f64() * self.rate.bytes_per_sec()).round() as u64
        } else {
            self.credit_at(now).min(0).unsigned_abs() / BYTE.unsigned_abs()
        }
    }

    /// Drops unused credit: no packet waits any more.
    pub fn clear_credit(&mut self) {
        self.credit = self.credit.min(0);
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_units::Rng;

    use super::*;

    const MBPS: u64 = 1_000_000;

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(us)
    }

    /// 8 Mbit/s for 1 s, nothing for 2 s, then 4 Mbit/s for 2 s.
    #[test]
    fn the_capacity_is_the_integral_of_the_rate() {
        let rate = |mbps: u64| Rate::from_bps(mbps * MBPS);
        let mut regulator = Regulator::new(rate(8), Duration::ZERO);
        regulator.set_rate(rate(0), at(1_000_000));
        regulator.set_rate(rate(4), at(3_000_000));
        assert_eq!(regulator.capacity_until(at(5_000_000)), 16e6);
        regulator.set_rate(UNLIMITED, at(5_000_000));
        assert!(!regulator.capacity_until(at(6_000_000)).is_finite());
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
        regulator.set_rate(Rate::from_bps(0), at(8));
        assert_eq!(regulator.wake_at(), None);
        regulator.request(at(8));
        assert_eq!((regulator.wake_at(), regulator.allows(1, at(8))), (None, false));
        regulator.set_rate(Rate::from_bps(10 * MBPS), at(9));
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

    /// A regulator of 20 Mbit/s that earns 12 500 bytes every 5 ms.
    fn ticking() -> Regulator {
        Regulator::new(Rate::from_bps(20 * MBPS), Duration::from_millis(5))
    }

    /// Ticks at 5, 10 and 15 ms would have paid for 37 500 bytes.
    #[test]
    fn ticks_without_packets_pay_for_charged_bytes() {
        let mut regulator = ticking();
        regulator.charge(37_500, at(1));
        let debts = [1, 5_001, 14_999, 15_001, 600_000_000].map(|us| regulator.debt(at(us)));
        assert_eq!(debts, [37_500, 25_000, 12_500, 0, 0]);
        regulator.tick(at(20_000));
        assert!(regulator.allows(12_500, at(20_000)) && !regulator.allows(12_501, at(20_000)));
    }

    #[test]
    fn ticks_before_a_charge_do_not_pay_for_it() {
        let mut regulator = ticking();
        regulator.tick(at(0));
        regulator.clear_credit();
        regulator.charge(12_500, at(1));
        regulator.charge(25_000, at(99_999));
        let mut allowed = Vec::new();
        for us in [100_000, 105_000, 110_000] {
            regulator.tick(at(us));
            allowed.push((
                regulator.allows(1, at(us)),
                regulator.allows(12_500, at(us)),
                regulator.debt(at(us)),
            ));
        }
        assert_eq!(allowed, [(false, false, 12_500), (false, false, 0), (true, true, 0)]);
    }

    /// Of 50 000 bytes the tick at 5 ms pays for 12 500 at 20 Mbit/s, that at 10 ms for 6250 at 10 Mbit/s, and those of the outage
    /// for none.
    #[test]
    fn skipped_ticks_pay_at_the_rate_of_their_time() {
        let mut regulator = ticking();
        regulator.charge(50_000, at(1));
        regulator.set_rate(Rate::from_bps(10 * MBPS), at(6_000));
        assert_eq!([6_000, 11_000].map(|us| regulator.debt(at(us))), [37_500, 31_250]);
        regulator.set_rate(Rate::from_bps(0), at(11_000));
        assert_eq!(regulator.debt(at(60_000_000)), 31_250);
        regulator.set_rate(Rate::from_bps(20 * MBPS), at(60_001_000));
        assert_eq!([60_002_000, 60_006_000].map(|us| regulator.debt(at(us))), [31_250, 18_750]);
    }

    /// Charges fall on ticks, between them, or are many ticks apart; packets of 1000 bytes wait from time to time.
    #[test]
    fn skipped_ticks_pay_as_much_as_ticks_that_find_no_packet() {
        let (mut skipping, mut reference) = (ticking(), ticking());
        let mut rng = Rng::stream(1, "regulator", 0, "test");
        let (mut waiting, mut sent, mut charged) = (0, 0, 0);
        for ms in (0..200_000).step_by(5) {
            let tick = at(1000 * ms);
            // What is charged at the time of a tick is charged before it.
            for us in [rng.below(5000), 5000] {
                if rng.below(20) == 0 {
                    let bytes = rng.below(60_000);
                    let now = at(1000 * ms + us);
                    skipping.charge(bytes, now);
                    reference.charge(bytes, now);
                    charged += bytes;
                }
            }
            let next = at(1000 * (ms + 5));
            if rng.below(20) == 0 {
                waiting += rng.below(100);
            }
            reference.tick(next);
            if waiting > 0 {
                skipping.tick(next);
            }
            while waiting > 0 && reference.allows(1000, next) {
                assert!(skipping.allows(1000, next), "{tick:?}");
                skipping.spend(1000, next);
                reference.spend(1000, next);
                waiting -= 1;
                sent += 1;
            }
            if waiting > 0 {
                assert!(!skipping.allows(1000, next), "{tick:?}");
            } else {
                skipping.clear_credit();
                reference.clear_credit();
            }
            let later = at(1000 * (ms + 5) + 1);
            assert_eq!(skipping.debt(later), reference.debt(later));
        }
        assert!(sent > 10_000 && charged > 10_000_000, "{sent} {charged}");
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
