//! CoDel, controlled delay: keeps the standing delay, as opposed to that of bursts, near a target.
//!
//! RFC 8289 (Nichols, Jacobson, McGregor & Iyengar 2018); Nichols & Jacobson 2012. A departing packet shows its sojourn
//! time. In a queue that absorbs bursts some packet has a sojourn time below `target` every so often; in a standing
//! queue none has. If all packets that left during `interval` had a sojourn time of at least `target` and more than an
//! `mtu` behind them, CoDel enters its dropping state and signals with the current packet; while the delay stays above
//! `target` it signals again, at intervals that shrink as TCP's throughput falls with the square root of the loss:
//!
//! ```text
//! count += 1,   drop_next += interval / sqrt(count)
//! ```
//!
//! The first packet with a shorter sojourn time, or with no more than an `mtu` behind it, ends the state. If it is
//! entered again within 16 intervals, `count` resumes from the value that was needed last time, `count - lastcount`,
//! else from 1.
//!
//! *Departures:* the host asks packet by packet, so the loop inside the RFC's `deque` becomes one decision per
//! departing packet: after a drop the host asks about the next packet at the same time, and the next drop is scheduled
//! then, if that packet is still late, as in the RFC. A signal that is a mark instead of a drop is treated alike: the
//! next one is scheduled when the following packet leaves. After a long standstill of the link many drops are due at
//! once; after 64 of them one packet is sent, and the rest follow at the next departure.
//!
//! *In a satellite gateway:* CoDel signals with packets that leave the queue whose delay it measures, so it has to mark
//! at the watched queue: at the receive queue it keeps that queue short, and does not see the transmit queue, where a
//! gateway's packets wait; at the transmit queue it drops behind the PEP segments that have been acknowledged, which
//! must be retransmitted over the satellite. Such a scenario is accepted with a warning. With `marking = "ecn"` it marks them, and the gateway
//! echoes the marks to the senders. Without a PEP none of this
//! applies; then `interval` has to be of the order of the longest round trip, at least 600 ms over a geostationary
//! satellite, because with the default of 100 ms CoDel signals again long before a sender can have slowed down, and
//! `target` 5 to 10 % of it (RFC 8289, sections 4.2 and 4.3).

use std::any::Any;

use bentpipe_units::{Duration, Instant};

use crate::descriptor::{Algorithm, Placement};
use crate::{Aqm, Context, Packet, Param, ParamError, Range, Tune, Unit, Values, Verdict};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "codel",
    title: "Controlled delay",
    source: "RFC 8289",
    params: PARAMS,
    presets: &[],
    placement: Placement::WatchedQueue,
    build: |values| Ok(Box::new(Codel::new(values)?)),
    fluid: None,
};

const PARAMS: &[Param] = &[TARGET, INTERVAL, MTU];

/// Acceptable standing delay.
pub const TARGET: Param = Param::number("target", Unit::Seconds, 0.005, Range::above(0.0, 1e3))
    .doc("Acceptable standing queueing delay")
    .symbol("TARGET")
    .origin("RFC 8289 section 4.3")
    .tune(Tune::Log(0.001, 0.1));

/// Time in which an acceptable delay must be seen once.
pub const INTERVAL: Param = Param::number("interval", Unit::Seconds, 0.1, Range::above(0.0, 1e3))
    .doc("Time for which the delay may stay above the target: the longest usual round trip")
    .symbol("INTERVAL")
    .origin("RFC 8289 section 4.2")
    .tune(Tune::Log(0.02, 2.0));

/// Backlog that is never signalled for.
pub const MTU: Param =
    Param::from_link("mtu", Unit::Bytes, Range::between(0.0, 65_535.0), |link| link.mean_packet.max(1500.0))
        .default_doc("1500 B, or the link's mean packet if that is longer")
        .doc("Backlog that is never signalled for, because it keeps the link busy")
        .symbol("maxpacket_")
        .origin("RFC 8289 section 5.3: the interface's MTU");

/// Parameters of CoDel.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    target: Duration,
    interval: Duration,
    mtu: u64,
}

impl Settings {
    /// Reads [`TARGET`], [`INTERVAL`] and [`MTU`].
    #[must_use]
    pub fn new(v: &Values) -> Self {
        Self {
            target: Duration::from_secs_f64(v.number("target")),
            interval: Duration::from_secs_f64(v.number("interval")),
            mtu: v.number("mtu") as u64,
        }
    }
}

/// State of one queue's CoDel, independent of any queue, with the RFC's names.
#[derive(Clone, Copy, Debug)]
pub struct Control {
    first_above_time: Option<Instant>,
    drop_next: Instant,
    count: u32,
    lastcount: u32,
    dropping: bool,
    /// True if the last packet was signalled with at `drop_next`, which has to be advanced.
    due: bool,
}

impl Control {
    /// Initial state.
    pub const REST: Self = Self {
        first_above_time: None,
        drop_next: Instant::ZERO,
        count: 0,
        lastcount: 0,
        dropping: false,
        due: false,
    };

    /// RFC 8289, section 5.5: decides about a departing packet with sojourn time `waited` and `behind` bytes behind it.
    /// Returns true if it is to signal congestion.
    #[inline]
    pub fn leaves(&mut self, waited: Duration, behind: u64, now: Instant, set: &Settings) -> bool {
        let ok_to_drop = self.ok_to_drop(waited, behind, now, set);
        if self.dropping {
            if !ok_to_drop {
                (self.dropping, self.due) = (false, false);
                return false;
            }
            if std::mem::take(&mut self.due) {
                // The packet behind the last one is late too: schedule the next signal.
                self.drop_next = self.control_law(self.drop_next, set);
            }
            if now < self.drop_next {
                return false;
            }
            self.count = self.count.saturating_add(1);
            self.due = true;
            return true;
        }
        if ok_to_drop {
            self.dropping = true;
            // Resume near the rate that controlled the queue last time, if that was recently.
            let delta = self.count - self.lastcount;
            let lately = now - self.drop_next < set.interval.times(16);
            self.count = if delta > 1 && lately { delta } else { 1 };
            self.drop_next = self.control_law(now, set);
            self.lastcount = self.count;
        }
        ok_to_drop
    }

    /// RFC 8289, section 5.6: returns true if the delay has been at or above the target for an interval.
    #[inline]
    fn ok_to_drop(&mut self, waited: Duration, behind: u64, now: Instant, set: &Settings) -> bool {
        if waited < set.target || behind <= set.mtu {
            self.first_above_time = None;
            return false;
        }
        match self.first_above_time {
            None => {
                self.first_above_time = Some(now + set.interval);
                false
            }
            Some(time) => now >= time,
        }
    }

    /// RFC 8289, section 5.6: `t + interval / sqrt(count)`.
    fn control_law(&self, t: Instant, set: &Settings) -> Instant {
        t + set.interval.scaled(1.0 / f64::from(self.count).sqrt())
    }

    /// RFC 8289, section 5.6: the queue is empty, so its delay is below the target.
    pub fn empty(&mut self) {
        (self.first_above_time, self.dropping, self.due) = (None, false, false);
    }

    /// Returns the signals since the dropping state began, and true while it lasts.
    #[must_use]
    pub fn count(&self) -> (u32, bool) {
        (self.count, self.dropping)
    }
}

/// CoDel on the watched queue.
#[derive(Debug)]
pub struct Codel {
    set: Settings,
    control: Control,
}

impl Codel {
    /// # Errors
    /// None beyond the ranges of single parameters.
    pub fn new(v: &Values) -> Result<Self, ParamError> {
        Ok(Self { set: Settings::new(v), control: Control::REST })
    }
}

impl Aqm for Codel {
    #[inline]
    fn arrive(&mut self, _pkt: &Packet, _cx: &mut Context<'_>) -> Verdict {
        Verdict::Pass
    }

    #[inline]
    fn depart(&mut self, pkt: &Packet, cx: &mut Context<'_>) -> Verdict {
        let signal = self.control.leaves(cx.now - pkt.arrival, cx.queue.bytes, cx.now, &self.set);
        if signal { Verdict::Mark } else { Verdict::Pass }
    }

    fn resume(&mut self, previous: &mut dyn Any) -> bool {
        let Some(was) = previous.downcast_mut::<Self>() else { return false };
        self.control = was.control;
        true
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        let (count, dropping) = self.control.count();
        out("count", f64::from(count));
        out("dropping", f64::from(u8::from(dropping)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::steps::Steps;
    use super::*;
    use crate::Value;

    fn codel(bytes: u64) -> Steps {
        let mut codel = Steps::new(&ALGORITHM, &[]);
        codel.state.bytes = bytes;
        codel
    }

    /// Returns the times of signals [us], for packets with a sojourn time of 10 ms that leave every 10 us from `start`
    /// to `end`.
    fn late(codel: &mut Steps, start: u64, end: u64) -> Vec<u64> {
        (start..end).step_by(10).filter(|&us| codel.depart(us, us - 10_000, 1000) == Verdict::Mark).collect()
    }

    /// Rounds due times up to departures every 10 us.
    fn next_packets<const N: usize>(us: [u64; N]) -> [u64; N] {
        us.map(|us| us.div_ceil(10) * 10)
    }

    /// The control law with an interval of 100 ms. The delay is above the target from 20 ms on; the first packet 100 ms
    /// later is dropped (120), and the times to the next are 100, 100/sqrt(2) = 70.711, 100/sqrt(3) = 57.735, 50,
    /// 100/sqrt(5) = 44.721, 100/sqrt(6) = 40.825, 100/sqrt(7) = 37.796 ms: due at 220, 290.711, 348.446, 398.446,
    /// 443.167, 483.992 and 521.788.
    #[test]
    fn drops_follow_the_control_law() {
        let mut codel = codel(100_000);
        let drops = late(&mut codel, 20_000, 530_000);
        let due = [120_000, 220_000, 290_711, 348_446, 398_446, 443_167, 483_992, 521_788];
        assert_eq!(drops, next_packets(due));
        assert_eq!(codel.probe("count"), 8.0);
    }

    /// The RFC's loop: a packet leaves at 120 ms (dropped, count 1, next at 220) and the next ones at 320: after 220
    /// (dropped, count 2), after 220 + 70.711 = 290.711 (dropped, count 3), but before 290.711 + 57.735 = 348.446.
    #[test]
    fn several_drops_may_be_due_at_once() {
        let mut codel = codel(100_000);
        assert_eq!(late(&mut codel, 20_000, 120_010), [120_000]);
        let leave = [320_000, 320_000, 320_000, 348_440, 348_450].map(|us| codel.depart(us, 0, 1000));
        use Verdict::{Mark, Pass};
        assert_eq!(leave, [Mark, Mark, Pass, Pass, Mark]);
    }

    /// Re-entry. As above the drops at 120, 220, 290.711 and 348.446 make count 4, and the next would be due at
    /// 398.446; a packet with 1 ms at 360 ends the state. From 400 the delay is above the target again, so at 500 the
    /// state is entered with count = 4 - 1 = 3, the next drops are due 57.735 and then 50 ms later, and count is 5. A
    /// packet with 1 ms at 610 ends it; lastcount is 3, so from 700 on (entered at 800) count = 5 - 3 = 2, next after
    /// 70.711 ms.
    #[test]
    fn dropping_state_resumes_its_count() {
        let mut codel = codel(100_000);
        late(&mut codel, 20_000, 360_000);
        assert_eq!(codel.probe("count"), 4.0);
        assert_eq!(codel.depart(360_000, 359_000, 1000), Verdict::Pass);
        assert_eq!(codel.probe("dropping"), 0.0);
        assert_eq!(late(&mut codel, 400_000, 610_000), next_packets([500_000, 557_735, 607_735]));
        assert_eq!(codel.probe("count"), 5.0);
        assert_eq!(codel.depart(610_000, 609_000, 1000), Verdict::Pass);
        assert_eq!(late(&mut codel, 700_000, 880_000), next_packets([800_000, 870_711]));
    }

    /// Re-entry resumes within 16 intervals of `drop_next`, here 398.446 ms: entered at 1998.44 ms count is 3, at
    /// 1998.45 it is 1. It resumes only if count had grown by more than 1: after drops at 120 and 220 only, it is 1.
    #[test]
    fn dropping_state_entered_much_later_starts_at_one() {
        for (drops_until, enter, count) in
            [(360_000, 1_998_440, 3.0), (360_000, 1_998_450, 1.0), (230_000, 500_000, 1.0)]
        {
            let mut codel = codel(100_000);
            late(&mut codel, 20_000, drops_until);
            codel.depart(drops_until, drops_until - 1000, 1000);
            assert_eq!(late(&mut codel, enter - 100_000, enter + 10), [enter]);
            assert_eq!(codel.probe("count"), count, "entered at {enter}");
        }
    }

    /// The packet behind a dropped one has a short delay: the state ends, and the next drop was not scheduled. Dropped
    /// at 120, 220 and 290.720 (count 3, due since 290.711); the packet behind leaves at the same time after 1 ms. So
    /// `drop_next` is still 290.711, and 16 intervals later is 1890.711: at 1890.71 count resumes from 3 - 1 = 2, at
    /// 1890.72 from 1.
    #[test]
    fn next_drop_is_scheduled_by_the_packet_behind() {
        for (enter, count) in [(1_890_710, 2.0), (1_890_720, 1.0)] {
            let mut codel = codel(100_000);
            assert_eq!(late(&mut codel, 20_000, 290_730).len(), 3);
            assert_eq!(codel.depart(290_720, 289_720, 1000), Verdict::Pass);
            assert_eq!(codel.probe("dropping"), 0.0);
            late(&mut codel, enter - 100_000, enter + 10);
            assert_eq!(codel.probe("count"), count, "entered at {enter}");
        }
    }

    /// `bytes() <= maxpacket_` with the link's default of 1500: the bytes behind the packet count, not the packet
    /// itself.
    #[test]
    fn backlog_of_one_mtu_is_never_dropped() {
        assert!(late(&mut codel(1500), 20_000, 2_000_000).is_empty());
        assert_eq!(late(&mut codel(1501), 20_000, 120_010), [120_000]);
        let mut tight = Steps::new(&ALGORITHM, &[("mtu", Value::Number(999.0))]);
        tight.state.bytes = 1000;
        assert_eq!(late(&mut tight, 20_000, 120_010), [120_000]);
    }

    /// `sojourn_time < TARGET`: the target itself counts as above. One packet below restarts the interval: below at
    /// 110, above from 110.01 on, dropped at 210.01.
    #[test]
    fn one_short_delay_restarts_the_interval() {
        let mut codel = codel(100_000);
        assert!(late(&mut codel, 20_000, 110_000).is_empty());
        assert_eq!(codel.depart(110_000, 105_001, 1000), Verdict::Pass);
        assert_eq!(late(&mut codel, 110_010, 210_020), [210_010]);
        let at_target = |us: u64| codel.depart(us, us - 5000, 1000);
        assert_eq!([300_000, 310_010].map(at_target), [Verdict::Pass, Verdict::Mark]);
    }

    fn settings() -> Settings {
        Settings::new(&Steps::values(&ALGORITHM, &[]))
    }

    /// True if a packet that leaves at `ms`, after a sojourn time of 10 ms, is dropped or marked.
    fn signals(control: &mut Control, ms: u64) -> bool {
        let now = Instant::ZERO + Duration::from_millis(ms);
        control.leaves(Duration::from_millis(10), 100_000, now, &settings())
    }

    /// An empty queue has no delay: the interval begins anew, the dropping state ends, and so does the schedule of the next
    /// drop. Without it the first packet would be dropped at 120 ms; of the second state, which begins at 620 ms, the next
    /// drop is due at 720 ms.
    #[test]
    fn empty_queue_ends_the_dropping_state() {
        let mut control = Control::REST;
        let mut at = |ms: u64, empties: bool| {
            let signal = signals(&mut control, ms);
            if empties {
                control.empty();
            }
            (signal, control.count().1)
        };
        assert_eq!(at(20, true), (false, false));
        assert_eq!(at(120, false), (false, false));
        assert_eq!([at(220, false), at(320, true)], [(true, true), (true, false)]);
        assert_eq!([at(520, false), at(619, false)], [(false, false); 2]);
        assert_eq!(
            [at(620, false), at(719, false), at(720, false)],
            [(true, true), (false, true), (true, true)]
        );
    }

    /// Section 5.5: `now - drop_next_ < 16 * INTERVAL`, here 1600 ms, and `delta > 1`.
    #[test]
    fn count_resumes_within_16_intervals_of_the_next_drop() {
        let time = |ms| Instant::ZERO + Duration::from_millis(ms);
        for (lastcount, ms, count) in [(1, 1899, 4), (1, 1900, 1), (3, 1899, 2), (4, 1899, 1), (5, 1899, 1)] {
            let before = Control { count: 5, lastcount, drop_next: time(300), ..Control::REST };
            let mut control = Control { first_above_time: Some(time(400)), ..before };
            assert!(signals(&mut control, ms));
            assert_eq!(control.count(), (count, true), "{lastcount} at {ms} ms");
        }
    }

    /// The RFC's listing (section 5) with its loop and a queue, for comparison.
    #[derive(Default)]
    struct Listing {
        queue: std::collections::VecDeque<(u64, u64, u32)>,
        bytes: u64,
        first_above_time: u64,
        drop_next: u64,
        count: u32,
        lastcount: u32,
        dropping: bool,
        dropped: Vec<u32>,
    }

    impl Listing {
        const TARGET: u64 = 5_000_000;
        const INTERVAL: u64 = 100_000_000;

        fn dodequeue(&mut self, now: u64) -> (Option<(u64, u64, u32)>, bool) {
            let Some(pkt) = self.queue.pop_front() else {
                self.first_above_time = 0;
                return (None, false);
            };
            self.bytes -= pkt.1;
            let mut ok_to_drop = false;
            if now - pkt.0 < Self::TARGET || self.bytes <= 1500 {
                self.first_above_time = 0;
            } else if self.first_above_time == 0 {
                self.first_above_time = now + Self::INTERVAL;
            } else if now >= self.first_above_time {
                ok_to_drop = true;
            }
            (Some(pkt), ok_to_drop)
        }

        fn control_law(&self, t: u64) -> u64 {
            let interval = Duration::from_nanos(Self::INTERVAL);
            t + interval.scaled(1.0 / f64::from(self.count).sqrt()).as_nanos()
        }

        fn deque(&mut self, now: u64) -> Option<u32> {
            let (mut pkt, mut ok_to_drop) = self.dodequeue(now);
            if self.dropping {
                if !ok_to_drop {
                    self.dropping = false;
                }
                while now >= self.drop_next && self.dropping {
                    self.dropped.extend(pkt.map(|pkt| pkt.2));
                    self.count += 1;
                    (pkt, ok_to_drop) = self.dodequeue(now);
                    if ok_to_drop {
                        self.drop_next = self.control_law(self.drop_next);
                    } else {
                        self.dropping = false;
                    }
                }
            } else if ok_to_drop {
                self.dropped.extend(pkt.map(|pkt| pkt.2));
                (pkt, _) = self.dodequeue(now);
                self.dropping = true;
                let delta = self.count - self.lastcount;
                self.count = 1;
                if delta > 1 && now as i64 - (self.drop_next as i64) < 16 * Self::INTERVAL as i64 {
                    self.count = delta;
                }
                self.drop_next = self.control_law(now);
                self.lastcount = self.count;
            }
            pkt.map(|pkt| pkt.2)
        }
    }

    #[derive(Default)]
    struct Lost(Vec<u32>);

    impl crate::DropHandler for Lost {
        fn dropped(&mut self, pkt: Packet, _: crate::DropReason) {
            self.0.push(pkt.handle);
        }
    }

    /// Ten minutes of bursts and pauses on a link of 8 Mbit/s, with a load between 0 and 3: one decision per departing
    /// packet drops the same packets as the RFC's loop.
    #[test]
    fn drops_match_the_rfcs_listing() {
        use crate::{FlowId, Limit, Link, Marking, Queue, QueueConfig};
        use bentpipe_units::{Rate, Rng};
        let capacity = Rate::from_bps(8_000_000);
        let link = Link { capacity, mean_packet: 1000.0 };
        let codel = (ALGORITHM.build)(&Values::resolve(PARAMS, &link, &|_| None).unwrap()).unwrap();
        let fifo = Box::<crate::sched::fifo::Fifo>::default();
        let setup = QueueConfig {
            marking: Marking::Drop,
            limit: Limit::NONE,
            capacity,
            seed: 1,
            name: "rfc".to_owned(),
        };
        let (mut queue, mut lost) = (Queue::new(fifo, codel, &setup), Lost::default());
        let mut listing = Listing::default();
        let mut rng = Rng::stream(5, "rfc", 0, "test");
        let (mut arrival, mut free, mut load, mut handle) = (0u64, 0u64, 1.0, 0);
        while arrival < 600_000_000_000 {
            if rng.uniform() < 0.001 {
                load = rng.uniform_in(0.05, 3.0);
            }
            // The longer the backlog the lighter the load, as with senders that react to the signals.
            let gap = rng.exponential(1e6 / load) * (1.0 + listing.bytes as f64 / 50_000.0);
            arrival += gap as u64;
            while free <= arrival {
                let sent = queue.dequeue(Instant::from_nanos(free), &mut lost).map(|pkt| pkt.handle);
                assert_eq!(sent, listing.deque(free), "at {free} ns");
                free = if sent.is_some() { free + 1_000_000 } else { arrival + 1 };
            }
            let now = Instant::from_nanos(arrival);
            let mut pkt = Packet::new(1000, FlowId(0), handle);
            if queue.offer(&mut pkt, now, &mut lost) {
                queue.enqueue(pkt, now, &mut lost);
            }
            listing.queue.push_back((arrival, 1000, handle));
            listing.bytes += 1000;
            handle += 1;
        }
        assert_eq!(lost.0, listing.dropped);
        assert!(lost.0.len() > 100 && lost.0.len() < handle as usize / 10, "{} of {handle}", lost.0.len());
    }
}
