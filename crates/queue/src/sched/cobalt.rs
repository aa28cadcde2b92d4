//! COBALT: CoDel and BLUE combined, the Aqm of each of CAKE's queues.
//!
//! After the description in Høiland-Jørgensen, Täht & Morton 2018 and the documentation of Linux's sch_cake. The CoDel
//! part has one rule for the first signal and for the following ones: `drop_next` is `interval / sqrt(count)` ahead,
//! and `count` decreases by one for each `drop_next` that passes without a late packet, instead of being reset. The
//! BLUE part drops with a probability that grows when the queue drops packets for want of room, and falls when it is
//! empty; it does not affect flows that react to signals.

use bentpipe_units::{Duration, Instant};

/// Parameters of all of CAKE's queues.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Acceptable delay.
    pub target: Duration,
    /// Time for which it may be exceeded.
    pub interval: Duration,
    /// Transmission time of four packets of full length, a delay that is acceptable as well.
    pub four_packets: Duration,
    /// BLUE's step up.
    pub increment: f64,
    /// BLUE's step down.
    pub decrement: f64,
}

/// Decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// No signal.
    Pass,
    /// Signal congestion (CoDel).
    Mark,
    /// Drop the packet, whether its transport supports ECN or not (BLUE).
    Drop,
}

/// State of one queue's COBALT.
#[derive(Clone, Copy, Debug)]
pub struct Cobalt {
    count: u32,
    dropping: bool,
    /// Time of the next signal; with `count` 0, time until which the queue is in use.
    drop_next: Instant,
    p: f64,
    blue_timer: Instant,
}

impl Cobalt {
    /// Initial state.
    pub const REST: Self =
        Self { count: 0, dropping: false, drop_next: Instant::ZERO, p: 0.0, blue_timer: Instant::ZERO };

    /// Decides about a departing packet with sojourn time `waited`; `uniform` draws from [0,1).
    #[inline]
    pub fn leaves(
        &mut self,
        waited: Duration,
        now: Instant,
        set: &Settings,
        uniform: impl FnOnce() -> f64,
    ) -> Signal {
        let late = waited > set.target && waited > set.four_packets;
        let due = self.count > 0 && now >= self.drop_next;
        let is_unused = self.count == 0 && now > self.drop_next;
        if late {
            if !self.dropping {
                self.drop_next = self.control_law(now, set);
            }
            self.count = self.count.max(1);
        }
        self.dropping = late;
        let mut signal = Signal::Pass;
        if due && late {
            signal = Signal::Mark;
            self.count = self.count.saturating_add(1);
            self.drop_next = self.control_law(self.drop_next, set);
        } else if due {
            self.recede(now, set);
        }
        if self.p > 0.0 && uniform() < self.p {
            signal = Signal::Drop;
        }
        if self.count == 0 {
            self.drop_next = now + set.interval;
        } else if is_unused && signal == Signal::Pass {
            self.drop_next = now;
        }
        signal
    }

    /// Notes that the signal was a mark, so that no other is due at once.
    pub fn marked(&mut self, now: Instant) {
        self.drop_next = self.drop_next.max(now);
    }

    /// Notes a packet dropped for want of room.
    pub fn full(&mut self, now: Instant, set: &Settings) {
        if now - self.blue_timer > set.target {
            self.p = (self.p + set.increment).min(1.0);
            self.blue_timer = now;
        }
        self.dropping = true;
        self.drop_next = now;
        self.count = self.count.max(1);
    }

    /// Notes that the queue was empty at its turn.
    pub fn empty(&mut self, now: Instant, set: &Settings) {
        if self.p > 0.0 && now - self.blue_timer > set.target {
            self.p = (self.p - set.decrement).max(0.0);
            self.blue_timer = now;
        }
        self.dropping = false;
        if self.count > 0 && now >= self.drop_next {
            self.count -= 1;
            self.drop_next = self.control_law(self.drop_next, set);
        }
    }

    /// Returns true in the initial state, so that another flow may use the queue.
    pub fn is_at_rest(&self, now: Instant) -> bool {
        self.p == 0.0 && self.count == 0 && now >= self.drop_next
    }

    /// Returns BLUE's probability.
    #[must_use]
    pub fn p(&self) -> f64 {
        self.p
    }

    /// Reduces `count` by one for each time that `drop_next` has passed, to 0 at most.
    fn recede(&mut self, now: Instant, set: &Settings) {
        while self.count > 0 && now >= self.drop_next {
            self.count -= 1;
            self.drop_next = self.control_law(self.drop_next, set);
        }
    }

    /// `t + interval / sqrt(count)`, and `t + interval` for a count of 0.
    fn control_law(&self, t: Instant, set: &Settings) -> Instant {
        t + set.interval.scaled(1.0 / f64::from(self.count.max(1)).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SET: Settings = Settings {
        target: Duration::from_millis(5),
        interval: Duration::from_millis(100),
        four_packets: Duration::from_millis(4),
        increment: 1.0 / 256.0,
        decrement: 1.0 / 4096.0,
    };

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(us)
    }

    /// A packet with sojourn time `waited` [us] leaves at `us`; BLUE's draw is the least possible.
    fn leave(cobalt: &mut Cobalt, us: u64, waited: u64) -> Signal {
        cobalt.leaves(Duration::from_micros(waited), at(us), &SET, || 0.0)
    }

    /// Times of signals [us], with packets of 10 ms that leave every 10 us.
    fn late(cobalt: &mut Cobalt, start: u64, end: u64) -> Vec<u64> {
        (start..end).step_by(10).filter(|&us| leave(cobalt, us, 10_000) != Signal::Pass).collect()
    }

    /// By hand: a packet with a short delay at 1 ms: count 0, so `drop_next` is 101. Late from 20 ms on: count 1, the
    /// first signal is due 100 ms later, at 120, then count is 2 and the next is due 100/sqrt(2) = 70.711 ms later, at
    /// 190.711, then 57.735 and 50 ms later, at 248.446 and 298.446: CoDel's series without its first step of a whole
    /// interval.
    #[test]
    fn signals_follow_the_control_law() {
        let mut cobalt = Cobalt::REST;
        assert_eq!(leave(&mut cobalt, 1000, 0), Signal::Pass);
        let due = [120_000u64, 190_711, 248_446, 298_446].map(|us| us.div_ceil(10) * 10);
        assert_eq!(late(&mut cobalt, 20_000, 300_000), due);
        assert_eq!(cobalt.count, 5);
        // Next due at 298.446 + 100/sqrt(5) = 343.167. With short delays from 300 on, count falls at each time that
        // passes: 4 at 343.167, 3 at 393.167 (50 later), 2 at 450.902, 1 at 521.613, 0 at 621.613; at 400 ms it is 3.
        assert_eq!(leave(&mut cobalt, 400_000, 0), Signal::Pass);
        assert_eq!(cobalt.count, 3);
        // Late again at 410: due after 100/sqrt(3) = 57.735.
        assert_eq!(late(&mut cobalt, 410_000, 470_000), [467_740]);
    }

    /// The same in an empty queue, seen at these times: its count falls by one at each, once its next signal is due; the time of
    /// use ends 100 ms after the last one was, at 721.613.
    #[test]
    fn empty_queue_returns_to_the_initial_state() {
        let mut cobalt = Cobalt::REST;
        leave(&mut cobalt, 1000, 0);
        late(&mut cobalt, 20_000, 300_000);
        for (us, count) in [
            (300_000, 5),
            (343_160, 5),
            (343_170, 4),
            (450_910, 3),
            (450_910, 2),
            (450_910, 2),
            (521_620, 1),
            (621_620, 0),
        ] {
            cobalt.empty(at(us), &SET);
            assert_eq!((cobalt.count, cobalt.is_at_rest(at(us))), (count, false), "at {us}");
        }
        assert!(!cobalt.is_at_rest(at(721_600)) && cobalt.is_at_rest(at(721_620)));
        assert!(!Cobalt { p: 0.1, ..Cobalt::REST }.is_at_rest(at(0)));
    }

    /// A late packet of an unused queue: its time of use ended before, so that the next signal is due at once; if it ends just
    /// then, after an interval. Nor is a signal due at once if BLUE drops the packet.
    #[test]
    fn late_packet_of_an_unused_queue_makes_a_signal_due() {
        let mut cobalt = Cobalt::REST;
        assert_eq!(leave(&mut cobalt, 1000, 10_000), Signal::Pass);
        assert_eq!((cobalt.count, cobalt.drop_next), (1, at(1000)));
        assert_eq!(leave(&mut cobalt, 1000, 10_000), Signal::Mark);
        let mut cobalt = Cobalt { drop_next: at(1000), ..Cobalt::REST };
        assert_eq!(leave(&mut cobalt, 1000, 10_000), Signal::Pass);
        assert_eq!((cobalt.count, cobalt.drop_next), (1, at(101_000)));
        let mut cobalt = Cobalt { p: 1.0, ..Cobalt::REST };
        assert_eq!(leave(&mut cobalt, 1000, 10_000), Signal::Drop);
        assert_eq!(cobalt.drop_next, at(101_000));
    }

    /// A delay below the target, or of at most four packets, is acceptable.
    #[test]
    fn short_delays_are_acceptable() {
        let slow = Settings { four_packets: Duration::from_millis(20), ..SET };
        let mut cobalt = Cobalt::REST;
        for us in (0..1_000_000).step_by(1000) {
            assert_eq!(leave(&mut cobalt, us, 5000), Signal::Pass);
        }
        let mut cobalt = Cobalt::REST;
        for us in (0..1_000_000).step_by(1000) {
            assert_eq!(cobalt.leaves(Duration::from_millis(20), at(us), &slow, || 0.0), Signal::Pass);
        }
    }

    /// BLUE: losses at 10, 12 and 16 ms: the second is within a target (5 ms) of the first step, so p = 2/256. It drops
    /// if the draw is below that. Empty at 18 (within a target of 16): no step; at 22: down by 1/4096 to 31/4096; and by as
    /// much each time that it is found empty more than a target later, to 0 at the end.
    #[test]
    fn blue_steps_at_most_once_per_target() {
        let mut cobalt = Cobalt::REST;
        for (us, p) in [(10_000, 1.0 / 256.0), (12_000, 1.0 / 256.0), (16_000, 2.0 / 256.0)] {
            cobalt.full(at(us), &SET);
            assert_eq!(cobalt.p(), p, "at {us}");
        }
        let draw = |mut cobalt: Cobalt, u: f64| cobalt.leaves(Duration::ZERO, at(16_500), &SET, || u);
        assert_eq!(draw(cobalt, 0.0078), Signal::Drop);
        assert_eq!(draw(cobalt, 0.0079), Signal::Pass);
        cobalt.empty(at(18_000), &SET);
        assert_eq!(cobalt.p(), 2.0 / 256.0);
        cobalt.empty(at(22_000), &SET);
        assert_eq!(cobalt.p(), 31.0 / 4096.0);
        for step in 1..=31 {
            cobalt.empty(at(22_000 + step * 5001), &SET);
            assert_eq!(cobalt.p(), (31 - step) as f64 / 4096.0);
        }
    }

    /// Exactly a target after a step there is no other; p = 2/256 is no draw below 2/256; and without BLUE nothing is drawn, and no time
    /// counts as that of a step: at 12 ms, in a queue that was empty then, the first loss makes one.
    #[test]
    fn blue_steps_only_after_more_than_a_target() {
        let mut cobalt = Cobalt::REST;
        for (us, p) in [(10_000, 1.0 / 256.0), (15_000, 1.0 / 256.0), (15_001, 2.0 / 256.0)] {
            cobalt.full(at(us), &SET);
            assert_eq!(cobalt.p(), p, "at {us}");
        }
        assert_eq!({ cobalt }.leaves(Duration::ZERO, at(15_001), &SET, || 2.0 / 256.0), Signal::Pass);
        cobalt.empty(at(20_001), &SET);
        assert_eq!(cobalt.p(), 2.0 / 256.0);
        let mut cobalt = Cobalt::REST;
        let signal = cobalt.leaves(Duration::ZERO, at(9000), &SET, || panic!("p is 0"));
        assert_eq!(signal, Signal::Pass);
        cobalt.empty(at(12_000), &SET);
        cobalt.full(at(12_000), &SET);
        assert_eq!(cobalt.p(), 1.0 / 256.0);
    }

    /// Three signals, the next due at 100 ms: found empty there, one less, and the next is due 100/sqrt(2) ms later. Without
    /// signals nothing changes.
    #[test]
    fn empty_queue_has_one_signal_less_once_the_next_is_due() {
        let mut cobalt = Cobalt { count: 3, drop_next: at(100_000), ..Cobalt::REST };
        cobalt.empty(at(99_999), &SET);
        assert_eq!((cobalt.count, cobalt.drop_next), (3, at(100_000)));
        cobalt.empty(at(100_000), &SET);
        assert_eq!((cobalt.count, cobalt.drop_next.as_nanos() / 1000), (2, 170_710));
        let mut unused = Cobalt::REST;
        unused.empty(at(10), &SET);
        assert_eq!((unused.count, unused.drop_next), (0, Instant::ZERO));
    }

    /// A drop for want of room makes a signal due at once. After a signal that was a mark no other follows at the same
    /// time, after one that was a drop it may: late at 400 ms with count 4 and due since 100, the packets at 400 are
    /// all signalled with while `drop_next` has passed: 100 + 100/sqrt(5) + 100/sqrt(6) + … reaches 400 with the ninth.
    #[test]
    fn drops_catch_up_and_marks_do_not() {
        let mut cobalt = Cobalt::REST;
        cobalt.full(at(1000), &SET);
        assert_eq!(leave(&mut cobalt, 1000, 10_000), Signal::Mark);
        let behind = Cobalt { count: 4, dropping: true, drop_next: at(100_000), ..Cobalt::REST };
        let mut lost = behind;
        let signals = (0..20).take_while(|_| leave(&mut lost, 400_000, 10_000) == Signal::Mark).count();
        let (mut due, mut expected) = (100.0, 0);
        while due <= 400.0 {
            expected += 1;
            due += 100.0 / f64::from(4 + expected).sqrt();
        }
        assert_eq!((signals, expected), (9, 9));
        let mut marked = behind;
        assert_eq!(leave(&mut marked, 400_000, 10_000), Signal::Mark);
        marked.marked(at(400_000));
        assert_eq!(marked.drop_next, at(400_000));
    }
}
