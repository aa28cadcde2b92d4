//! A queue: a scheduler with its counters and the AQM that watches it.

mod passage;
mod successor;

use std::any::Any;
use std::ops::AddAssign;

use bentpipe_units::{Instant, Rate};

use crate::{Aqm, DropHandler, FlowEvent, FlowId, Limit, Marking, Packet, QueueState, Scheduler};
pub use passage::{Parts, Passage};
use successor::Successor;

/// Packets since the start of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, std::default::Default)]
pub struct Counters {
    /// Packets offered at the mark point.
    pub offered: u64,
    /// Bytes offered at the mark point.
    pub offered_bytes: u64,
    /// Packets accepted at the mark point.
    pub admitted: u64,
    /// Bytes accepted at the mark point.
    pub admitted_bytes: u64,
    /// Packets with which the AQM signalled congestion, at the mark point or in the queue.
    pub marked: u64,
    /// Those of them that were in the queue.
    pub marked_in_queue: u64,
    /// Packets dropped by a signal at the mark point.
    pub dropped_on_arrival: u64,
    /// Packets that entered the queue.
    pub enqueued: u64,
    /// Packets dropped because the queue was full.
    pub overflowed: u64,
    /// Packets dropped by a signal in the queue.
    pub dropped_in_queue: u64,
    /// Packets sent over the link.
    pub sent: u64,
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.offered += other.offered;
        self.offered_bytes += other.offered_bytes;
        self.admitted += other.admitted;
        self.admitted_bytes += other.admitted_bytes;
        self.marked += other.marked;
        self.marked_in_queue += other.marked_in_queue;
        self.dropped_on_arrival += other.dropped_on_arrival;
        self.enqueued += other.enqueued;
        self.overflowed += other.overflowed;
        self.dropped_in_queue += other.dropped_in_queue;
        self.sent += other.sent;
    }
}

impl Counters {
    /// Counts a packet that is marked, or dropped by a signal, in the queue.
    fn mark_in_queue(&mut self) {
        self.marked += 1;
        self.marked_in_queue += 1;
    }
}

/// A scheduler with its counters and the AQM that watches it.
///
/// A packet is offered at the mark point ([`Queue::offer`]), enters the queue then or later ([`Queue::enqueue`]), and
/// leaves over the link ([`Queue::dequeue`]).
pub struct Queue {
    aqm: Box<dyn Aqm>,
    parts: Parts,
}

/// Configuration of a queue.
pub struct QueueConfig {
    /// Action taken for a mark.
    pub marking: Marking,
    /// Limits of the queue.
    pub limit: Limit,
    /// Capacity of the link that drains it.
    pub capacity: Rate,
    /// Seed of the run.
    pub seed: u64,
    /// Name, unique in the run; the random streams depend on it.
    pub name: String,
}

impl Queue {
    /// Creates an empty queue.
    #[must_use]
    pub fn new(scheduler: Box<dyn Scheduler>, aqm: Box<dyn Aqm>, setup: &QueueConfig) -> Self {
        Self { aqm, parts: Parts::new(scheduler, setup) }
    }

    /// Offers a packet to the AQM at the mark point, and sets its ECN field or its mark if the verdict says so. Returns
    /// true if the packet is accepted. A dropped packet goes to `out`; [`Queue::wake`] returns a packet that is held
    /// back.
    #[inline]
    pub fn offer(&mut self, pkt: &mut Packet, now: Instant, out: &mut dyn DropHandler) -> bool {
        let counters = &mut self.parts.counters;
        pkt.number = counters.offered;
        counters.offered += 1;
        counters.offered_bytes += u64::from(pkt.len);
        self.aqm.decide(&mut self.parts, pkt, now, out)
    }

    /// Adds a packet to the queue. Packets dropped because the queue was full go to `out`.
    #[inline]
    pub fn enqueue(&mut self, mut pkt: Packet, now: Instant, out: &mut dyn DropHandler) {
        pkt.arrival = now;
        self.aqm.enqueue(&mut self.parts, &pkt, now, out);
    }

    /// Removes and returns the packet that goes to the link next; `None` only if none waits. Packets dropped at the
    /// head of the queue go to `out`; after [`MAX_DROPS_PER_DEQUEUE`](crate::MAX_DROPS_PER_DEQUEUE) drops by the AQM the
    /// next packet leaves without a signal.
    #[inline]
    pub fn dequeue(&mut self, now: Instant, out: &mut dyn DropHandler) -> Option<Packet> {
        self.aqm.dequeue(&mut self.parts, now, out)
    }

    /// Returns the packet that would leave next.
    #[must_use]
    #[inline]
    pub fn peek(&self) -> Option<&Packet> {
        self.parts.store.scheduler().peek()
    }

    /// Returns the packet that leaves behind this number of others, if the scheduler knows that, as a hint.
    #[must_use]
    #[inline]
    pub fn upcoming(&self, place: usize) -> Option<&Packet> {
        self.parts.store.scheduler().upcoming(place)
    }

    /// Returns the time of the next [`Queue::wake`].
    #[must_use]
    #[inline]
    pub fn wake_at(&self) -> Option<Instant> {
        self.aqm.next_wake(&self.parts)
    }

    /// Acts at the time that [`Queue::wake_at`] returned. Returns a packet that was held back at the mark point and is
    /// now accepted, if any; call it again while [`Queue::wake_at`] is not later than `now`.
    pub fn wake(&mut self, now: Instant, out: &mut dyn DropHandler) -> Option<Packet> {
        let Self { aqm, parts } = self;
        if aqm.wake_at().is_some_and(|at| at <= now) {
            aqm.wake(&mut parts.context(now));
        }
        parts.wake_scheduler(&mut **aqm, now, out);
        let mut pkt = parts.release(now)?;
        aqm.decide(parts, &mut pkt, now, out).then_some(pkt)
    }

    /// Announces the beginning or end of a flow.
    pub fn flow(&mut self, flow: FlowId, event: FlowEvent, now: Instant) {
        self.aqm.flow(flow, event, &mut self.parts.context(now));
        self.parts.store.scheduler_mut().flow(flow, event);
    }

    /// Returns the state of the queue and its link.
    #[must_use]
    #[inline]
    pub fn state(&self) -> &QueueState {
        &self.parts.state
    }

    /// Changes the capacity of the link.
    pub fn set_capacity(&mut self, capacity: Rate) {
        self.parts.state.capacity = capacity;
    }

    /// Replaces the AQM from `now` on; counters continue.
    ///
    /// The same algorithm under other parameters continues with its state. Another algorithm begins without any, and waiting
    /// packets leave without its verdict.
    pub fn set_aqm(&mut self, mut aqm: Box<dyn Aqm>, now: Instant) {
        let former: &mut dyn Any = &mut *self.aqm;
        if let Some(successor) = former.downcast_mut::<Successor>() {
            successor.replace(aqm, now);
        } else if aqm.resume(former) {
            self.aqm = aqm;
        } else {
            self.aqm = Box::new(Successor::new(aqm, now));
        }
    }

    /// Returns the counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.parts.counters
    }

    /// Reports internal state: owner ("aqm" or "scheduler"), name and value.
    pub fn probe(&self, out: &mut dyn FnMut(&'static str, &'static str, f64)) {
        self.aqm.probe(&mut |name, value| out("aqm", name, value));
        self.parts.store.scheduler().probe(&mut |name, value| out("scheduler", name, value));
    }

    /// Returns the number of waiting packets, integrated over time since the start of the run [packet s].
    #[must_use]
    pub fn packet_seconds(&self, now: Instant) -> f64 {
        let w = &self.parts;
        let open = u128::from(w.state.packets) * u128::from((now - w.area_until).as_nanos());
        (w.area + open) as f64 * 1e-9
    }

    /// Checks that packets are conserved.
    ///
    /// # Errors
    /// The identity that does not hold, with its values.
    pub fn check(&self) -> Result<(), String> {
        let (c, held) = (&self.parts.counters, u64::from(self.parts.state.packets));
        let back = u64::from(self.parts.state.held);
        if c.offered != c.admitted + c.dropped_on_arrival + back {
            return Err(format!(
                "offered {} != admitted {} + dropped on arrival {} + held {back}",
                c.offered, c.admitted, c.dropped_on_arrival
            ));
        }
        if c.enqueued != c.sent + c.overflowed + c.dropped_in_queue + held {
            return Err(format!(
                "enqueued {} != sent {} + overflowed {} + dropped in queue {} + waiting {held}",
                c.enqueued, c.sent, c.overflowed, c.dropped_in_queue
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_units::Duration;

    use super::*;
    use crate::sched::fifo::Fifo;
    use crate::{Context, DropReason, Verdict};

    /// Holds every packet for 0 s.
    struct Holds;

    impl Aqm for Holds {
        fn arrive(&mut self, _pkt: &Packet, _cx: &mut Context<'_>) -> Verdict {
            Verdict::Hold(Duration::ZERO)
        }
    }

    fn setup() -> QueueConfig {
        QueueConfig {
            marking: Marking::Drop,
            limit: Limit::NONE,
            capacity: Rate::from_bps(1_000_000),
            seed: 1,
            name: String::new(),
        }
    }

    struct Nothing;

    impl DropHandler for Nothing {
        fn dropped(&mut self, _pkt: Packet, _reason: DropReason) {}
    }

    #[test]
    fn counters_add_up_by_name() {
        let counters = |times: u64| Counters {
            offered: 3 * times,
            offered_bytes: 4 * times,
            admitted: 5 * times,
            admitted_bytes: 6 * times,
            marked: 7 * times,
            marked_in_queue: 8 * times,
            dropped_on_arrival: 9 * times,
            enqueued: 10 * times,
            overflowed: 11 * times,
            dropped_in_queue: 12 * times,
            sent: 13 * times,
        };
        let mut sum = counters(1);
        sum += counters(1);
        assert_eq!(sum, counters(2));
    }

    /// A packet that is held again and again does not stop the clock.
    #[test]
    fn a_held_packet_is_asked_again_later() {
        let mut queue = Queue::new(Box::<Fifo>::default(), Box::new(Holds), &setup());
        let mut now = Instant::ZERO;
        assert!(!queue.offer(&mut Packet::new(1000, FlowId(1), 0), now, &mut Nothing));
        for _ in 0..3 {
            let due = queue.wake_at();
            assert!(due > Some(now), "{due:?} at {now:?}");
            now = due.unwrap_or(now);
            assert!(queue.wake(now, &mut Nothing).is_none());
            assert_eq!((queue.state().held, queue.check()), (1, Ok(())));
        }
    }

    /// Wants to be woken at 5 ms, and counts wake-ups and flows.
    #[derive(Default)]
    struct Counts {
        woken: u32,
        flows: u32,
    }

    impl Aqm for Counts {
        fn arrive(&mut self, _pkt: &Packet, _cx: &mut Context<'_>) -> Verdict {
            Verdict::Pass
        }

        fn wake_at(&self) -> Option<Instant> {
            Some(Instant::ZERO + Duration::from_millis(5))
        }

        fn wake(&mut self, _cx: &mut Context<'_>) {
            self.woken += 1;
        }

        fn flow(&mut self, _flow: FlowId, _event: FlowEvent, _cx: &mut Context<'_>) {
            self.flows += 1;
        }

        fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
            out("woken", self.woken.into());
            out("flows", self.flows.into());
        }
    }

    #[test]
    fn the_algorithm_is_told_of_flows_and_woken_when_it_wants_to_be() {
        let mut queue = Queue::new(Box::<Fifo>::default(), Box::new(Counts::default()), &setup());
        let ms = |ms| Instant::ZERO + Duration::from_millis(ms);
        assert_eq!(queue.wake_at(), Some(ms(5)));
        for now in [4, 5, 6] {
            assert!(queue.wake(ms(now), &mut Nothing).is_none());
        }
        (0..3).for_each(|flow| queue.flow(FlowId(flow), FlowEvent::Opened, ms(7)));
        let mut found = Vec::new();
        queue.probe(&mut |owner, name, value| found.push((owner, name, value)));
        assert_eq!(found, [("aqm", "woken", 2.0), ("aqm", "flows", 3.0)]);
        queue.set_capacity(Rate::from_bps(2_000_000));
        assert_eq!(queue.state().capacity, Rate::from_bps(2_000_000));
        (0..3).for_each(|handle| queue.enqueue(Packet::new(1000, FlowId(0), handle), ms(8), &mut Nothing));
        let shown = |queue: &Queue, place| queue.upcoming(place).map(|pkt| pkt.handle);
        assert_eq!([0, 2, 3].map(|place| shown(&queue, place)), [Some(0), Some(2), None]);
        assert_eq!(queue.peek().map(|pkt| pkt.handle), Some(0));
        assert_eq!(queue.packet_seconds(ms(10)), 0.006);
    }

    #[test]
    fn a_mark_in_the_queue_is_a_mark() {
        let mut counters = Counters::default();
        (0..3).for_each(|_| counters.mark_in_queue());
        assert_eq!((counters.marked, counters.marked_in_queue), (3, 3));
    }

    #[test]
    fn a_packet_that_vanished_is_found_by_the_check() {
        let queue = |change: fn(&mut Counters)| {
            let mut queue = Queue::new(Box::<Fifo>::default(), Box::new(Counts::default()), &setup());
            let all = [1; 4].map(|_| Packet::new(1000, FlowId(0), 0));
            for mut pkt in all {
                assert!(queue.offer(&mut pkt, Instant::ZERO, &mut Nothing));
                queue.enqueue(pkt, Instant::ZERO, &mut Nothing);
            }
            assert!(queue.dequeue(Instant::ZERO, &mut Nothing).is_some());
            change(&mut queue.parts.counters);
            queue.check()
        };
        assert_eq!(queue(|_| {}), Ok(()));
        assert_eq!(
            queue(|c| c.dropped_on_arrival += 2).unwrap_err(),
            "offered 4 != admitted 4 + dropped on arrival 2 + held 0"
        );
        assert_eq!(
            queue(|c| (c.overflowed, c.dropped_in_queue) = (5, 7)).unwrap_err(),
            "enqueued 4 != sent 1 + overflowed 5 + dropped in queue 7 + waiting 3"
        );
    }
}
