//! Passage of a packet through a queue: at the mark point, as it enters, and as it leaves.
//!
//! Compiled for each AQM, with the fifo apart from other schedulers: an AQM on a fifo handles a packet without further calls
//! through a table of methods.

use std::any::Any;
use std::collections::VecDeque;

use bentpipe_units::{Duration, Instant, Rng};

use super::{Counters, QueueConfig};
use crate::sched::fifo::Fifo;
use crate::{
    Aqm, Context, DropHandler, DropReason, Ecn, MAX_DROPS_PER_DEQUEUE, Marking, Packet, QueueSlot,
    QueueState, Scheduler, SchedulerHost, Verdict,
};

/// All parts of a queue but the AQM.
pub struct Parts {
    pub(super) store: Store,
    /// Random stream of the AQM.
    rng: Rng,
    marking: Marking,
    pub(super) state: QueueState,
    pub(super) counters: Counters,
    /// Packets waiting, integrated over time up to `area_until` [packet ns].
    pub(super) area: u128,
    pub(super) area_until: Instant,
    /// Packets held back at the mark point, by due time.
    held: VecDeque<(Instant, Packet)>,
    scheduler_rng: Rng,
    /// Packets that the scheduler dropped in the current call.
    lost: Vec<(Packet, DropReason)>,
}

/// The scheduler of a queue.
pub(super) enum Store {
    Fifo(Fifo),
    Other(Box<dyn Scheduler>),
}

impl Store {
    fn new(scheduler: Box<dyn Scheduler>) -> Self {
        let any: &dyn Any = &*scheduler;
        if any.is::<Fifo>() {
            let any: Box<dyn Any> = scheduler;
            Self::Fifo(*any.downcast().unwrap_or_default())
        } else {
            Self::Other(scheduler)
        }
    }

    #[inline]
    pub fn scheduler(&self) -> &dyn Scheduler {
        match self {
            Self::Fifo(fifo) => fifo,
            Self::Other(scheduler) => &**scheduler,
        }
    }

    #[inline]
    pub fn scheduler_mut(&mut self) -> &mut dyn Scheduler {
        match self {
            Self::Fifo(fifo) => fifo,
            Self::Other(scheduler) => &mut **scheduler,
        }
    }
}

/// The passage of a packet through the queue `q` that an AQM watches; every AQM has it.
pub trait Passage {
    /// Asks the AQM about a packet, perhaps again. Returns true if the packet is accepted.
    fn decide(&mut self, q: &mut Parts, pkt: &mut Packet, now: Instant, out: &mut dyn DropHandler) -> bool;
    /// [`Queue::enqueue`](super::Queue::enqueue).
    fn enqueue(&mut self, q: &mut Parts, pkt: &Packet, now: Instant, out: &mut dyn DropHandler);
    /// [`Queue::dequeue`](super::Queue::dequeue).
    fn dequeue(&mut self, q: &mut Parts, now: Instant, out: &mut dyn DropHandler) -> Option<Packet>;
    /// [`Queue::wake_at`](super::Queue::wake_at).
    fn next_wake(&self, q: &Parts) -> Option<Instant>;
}

impl<A: Aqm> Passage for A {
    fn decide(&mut self, q: &mut Parts, pkt: &mut Packet, now: Instant, out: &mut dyn DropHandler) -> bool {
        let mut cx = Context::new(now, &q.state, &mut q.rng).among(q.store.scheduler());
        let verdict = self.arrive(pkt, &mut cx);
        match verdict {
            Verdict::Hold(time) => {
                // A time of 0 would ask the AQM again at once, forever.
                q.hold(pkt, now + time.max(Duration::from_nanos(1)));
                return false;
            }
            Verdict::DropBoth(slot) => q.drop_waiting(slot, now, out),
            _ => {}
        }
        if !q.apply(verdict, pkt) {
            q.counters.dropped_on_arrival += 1;
            out.dropped(*pkt, DropReason::Aqm);
            return false;
        }
        q.counters.admitted += 1;
        q.counters.admitted_bytes += u64::from(pkt.len);
        self.admit(pkt, &mut q.context(now));
        true
    }

    fn enqueue(&mut self, q: &mut Parts, pkt: &Packet, now: Instant, out: &mut dyn DropHandler) {
        q.counters.enqueued += 1;
        self.enqueued(pkt, &mut q.context(now));
        let idle_since = q.state.idle_since;
        // Dropped packets are subtracted after the scheduler is done: it and the AQM see the queue as the packet found
        // it.
        let (store, mut cx, mut log) = q.scheduling(now);
        match store {
            Store::Fifo(fifo) => fifo.push(pkt, &mut cx, &mut log),
            Store::Other(scheduler) => scheduler.push(pkt, &mut cx, &mut log),
        }
        q.grow(pkt.len, now);
        if !q.lost.is_empty() {
            q.lose(self, now, out);
            if q.state.packets == 0 {
                // The packet itself was dropped, so a link that was idle still is.
                q.state.idle_since = idle_since;
            }
        }
    }

    fn dequeue(&mut self, q: &mut Parts, now: Instant, out: &mut dyn DropHandler) -> Option<Packet> {
        let mut dropped = 0;
        loop {
            let (store, mut cx, mut log) = q.scheduling(now);
            // Changed in place and returned as it is, so that the packet is not copied.
            let mut next = match store {
                Store::Fifo(fifo) => fifo.pop(&mut cx, &mut log),
                Store::Other(scheduler) => scheduler.pop(&mut cx, &mut log),
            };
            if !q.lost.is_empty() {
                q.lose(self, now, out);
            }
            let Some(pkt) = &mut next else {
                q.state.idle_since.get_or_insert(now);
                return next;
            };
            q.shrink(pkt, now);
            let verdict = self.depart(pkt, &mut q.context(now));
            if dropped == MAX_DROPS_PER_DEQUEUE || q.apply_in_queue(verdict, pkt) {
                q.counters.sent += 1;
                q.state.sent_bytes += u64::from(pkt.len);
                return next;
            }
            q.counters.dropped_in_queue += 1;
            dropped += 1;
            out.dropped(*pkt, DropReason::Aqm);
        }
    }

    fn next_wake(&self, q: &Parts) -> Option<Instant> {
        let scheduler = match &q.store {
            Store::Fifo(fifo) => fifo.wake_at(),
            Store::Other(scheduler) => scheduler.wake_at(),
        };
        let held = q.held.front().map(|(due, _)| *due);
        [self.wake_at(), scheduler, held].into_iter().flatten().min()
    }
}

impl Parts {
    pub(super) fn new(scheduler: Box<dyn Scheduler>, setup: &QueueConfig) -> Self {
        let state = QueueState {
            packets: 0,
            bytes: 0,
            held: 0,
            limit: setup.limit,
            capacity: setup.capacity,
            sent_bytes: 0,
            idle_since: Some(Instant::ZERO),
        };
        Self {
            store: Store::new(scheduler),
            rng: Rng::stream(setup.seed, &setup.name, 0, "aqm"),
            marking: setup.marking,
            state,
            counters: Counters::default(),
            area: 0,
            area_until: Instant::ZERO,
            held: VecDeque::new(),
            scheduler_rng: Rng::stream(setup.seed, &setup.name, 0, "scheduler"),
            lost: Vec::new(),
        }
    }

    /// The AQM's context, without access to single packets.
    #[inline]
    pub(super) fn context(&mut self, now: Instant) -> Context<'_> {
        Context::new(now, &self.state, &mut self.rng)
    }

    /// The scheduler, and what it may use.
    #[inline]
    fn scheduling(&mut self, now: Instant) -> (&mut Store, Context<'_>, SchedulerLog<'_>) {
        let log = SchedulerLog { marking: self.marking, counters: &mut self.counters, lost: &mut self.lost };
        (&mut self.store, Context::new(now, &self.state, &mut self.scheduler_rng), log)
    }

    /// Lets the scheduler act if its time has come.
    pub(super) fn wake_scheduler(&mut self, aqm: &mut dyn Aqm, now: Instant, out: &mut dyn DropHandler) {
        let (store, mut cx, mut log) = self.scheduling(now);
        let scheduler = store.scheduler_mut();
        if scheduler.wake_at().is_some_and(|at| at <= now) {
            scheduler.wake(&mut cx, &mut log);
            self.lose(aqm, now, out);
        }
    }

    /// Holds a packet back until it is due.
    #[cold]
    fn hold(&mut self, pkt: &Packet, due: Instant) {
        let behind = self.held.iter().rposition(|(other, _)| *other <= due).map_or(0, |i| i + 1);
        self.held.insert(behind, (due, *pkt));
        self.state.held += 1;
    }

    /// Removes the packet that was held back first, if it is due.
    pub(super) fn release(&mut self, now: Instant) -> Option<Packet> {
        self.held.front().filter(|(due, _)| *due <= now)?;
        self.state.held -= 1;
        self.held.pop_front().map(|(_, pkt)| pkt)
    }

    /// Drops a waiting packet by a signal.
    #[cold]
    fn drop_waiting(&mut self, slot: QueueSlot, now: Instant, out: &mut dyn DropHandler) {
        if let Some(other) = self.store.scheduler_mut().remove(slot) {
            self.counters.mark_in_queue();
            self.account_drop(&other, now);
            out.dropped(other, DropReason::Aqm);
        }
    }

    /// Accounts for the packets that the scheduler dropped.
    #[inline(never)]
    fn lose(&mut self, aqm: &mut dyn Aqm, now: Instant, out: &mut dyn DropHandler) {
        let mut lost = std::mem::take(&mut self.lost);
        for (pkt, reason) in lost.drain(..) {
            if reason == DropReason::Overflow {
                self.shrink(&pkt, now);
                self.counters.overflowed += 1;
                aqm.overflowed(&pkt, &mut self.context(now));
            } else {
                self.account_drop(&pkt, now);
            }
            out.dropped(pkt, reason);
        }
        self.lost = lost;
    }

    /// Applies a verdict to a packet. Returns true if the packet is accepted.
    #[inline]
    fn apply(&mut self, verdict: Verdict, pkt: &mut Packet) -> bool {
        if verdict == Verdict::Pass {
            return true;
        }
        self.counters.marked += 1;
        verdict == Verdict::Mark && signal(self.marking, pkt)
    }

    /// Applies a verdict to a packet that leaves. Returns true if the packet is sent.
    #[inline]
    fn apply_in_queue(&mut self, verdict: Verdict, pkt: &mut Packet) -> bool {
        self.counters.marked_in_queue += u64::from(verdict != Verdict::Pass);
        self.apply(verdict, pkt)
    }

    #[inline]
    fn grow(&mut self, len: u32, now: Instant) {
        self.integrate(now);
        self.state.packets += 1;
        self.state.bytes += u64::from(len);
        self.state.idle_since = None;
    }

    #[inline]
    fn shrink(&mut self, pkt: &Packet, now: Instant) {
        self.integrate(now);
        self.state.packets -= 1;
        self.state.bytes -= u64::from(pkt.len);
    }

    /// Accounts for a packet dropped in the queue by a signal.
    fn account_drop(&mut self, pkt: &Packet, now: Instant) {
        self.shrink(pkt, now);
        self.counters.dropped_in_queue += 1;
    }

    #[inline]
    fn integrate(&mut self, now: Instant) {
        self.area += u128::from(self.state.packets) * u128::from((now - self.area_until).as_nanos());
        self.area_until = now;
    }
}

/// Returns true if a mark keeps the packet.
#[inline]
fn can_mark(marking: Marking, pkt: &Packet) -> bool {
    match marking {
        Marking::Ecn => pkt.ecn != Ecn::NotEct,
        Marking::Window => pkt.split,
        Marking::Drop => false,
    }
}

/// Signals congestion with a packet. Returns true if the packet is accepted.
#[inline]
fn signal(marking: Marking, pkt: &mut Packet) -> bool {
    if !can_mark(marking, pkt) {
        return false;
    }
    match marking {
        Marking::Ecn => pkt.ecn = Ecn::Ce,
        _ => pkt.marked = true,
    }
    true
}

/// Records what a scheduler does with its packets.
struct SchedulerLog<'a> {
    marking: Marking,
    counters: &'a mut Counters,
    lost: &'a mut Vec<(Packet, DropReason)>,
}

impl SchedulerHost for SchedulerLog<'_> {
    fn dropped(&mut self, pkt: Packet, reason: DropReason) {
        if self.lost.is_empty() {
            self.lost.reserve(MAX_DROPS_PER_DEQUEUE as usize);
        }
        self.lost.push((pkt, reason));
    }

    fn mark(&mut self, mut pkt: Packet) -> Option<Packet> {
        self.counters.mark_in_queue();
        if signal(self.marking, &mut pkt) {
            return Some(pkt);
        }
        self.dropped(pkt, DropReason::Aqm);
        None
    }

    fn can_mark(&self, pkt: &Packet) -> bool {
        can_mark(self.marking, pkt)
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_units::Rate;

    use super::*;
    use crate::aqm::choke::ALGORITHM;
    use crate::{FlowId, Limit, Link, Queue, Values};

    /// A fifo that the queue does not know as one.
    #[derive(Default)]
    struct Apart(Fifo);

    impl Scheduler for Apart {
        fn push(&mut self, pkt: &Packet, cx: &mut Context<'_>, out: &mut dyn SchedulerHost) {
            self.0.push(pkt, cx, out);
        }

        fn pop(&mut self, cx: &mut Context<'_>, out: &mut dyn SchedulerHost) -> Option<Packet> {
            self.0.pop(cx, out)
        }

        fn peek(&self) -> Option<&Packet> {
            self.0.peek()
        }

        fn sample(&self, rng: &mut Rng) -> Option<(QueueSlot, &Packet)> {
            self.0.sample(rng)
        }

        fn remove(&mut self, slot: QueueSlot) -> Option<Packet> {
            self.0.remove(slot)
        }
    }

    #[derive(Default)]
    struct Dropped(Vec<(u32, DropReason)>);

    impl DropHandler for Dropped {
        fn dropped(&mut self, pkt: Packet, reason: DropReason) {
            self.0.push((pkt.handle, reason));
        }
    }

    /// CHOKe drops arriving and waiting packets, and the limit those that find no room.
    #[test]
    fn a_fifo_behaves_as_any_scheduler_does() {
        let capacity = Rate::from_bps(8_000_000);
        let of = |scheduler: Box<dyn Scheduler>| {
            let link = Link { capacity, mean_packet: 1000.0 };
            let values = Values::resolve(ALGORITHM.params, &link, &|_| None).unwrap();
            let setup = QueueConfig {
                marking: Marking::Drop,
                limit: Limit { packets: 40, bytes: u64::MAX },
                capacity,
                seed: 1,
                name: "queue".to_owned(),
            };
            let mut queue = Queue::new(scheduler, (ALGORITHM.build)(&values).unwrap(), &setup);
            let (mut rng, mut dropped) = (Rng::stream(1, "queue", 0, "test"), Dropped::default());
            let mut sent = Vec::new();
            for handle in 0..20_000 {
                let now = Instant::from_nanos(u64::from(handle) * 500_000);
                let mut pkt = Packet::new(1000, FlowId(rng.below(20) as u32), handle);
                if queue.offer(&mut pkt, now, &mut dropped) {
                    queue.enqueue(pkt, now, &mut dropped);
                }
                if rng.below(100) < 60 {
                    sent.extend(queue.dequeue(now, &mut dropped).map(|pkt| pkt.handle));
                }
                assert_eq!(queue.check(), Ok(()));
            }
            (sent, dropped.0, *queue.counters(), queue.packet_seconds(Instant::from_nanos(10_000_000_000)))
        };
        let (fifo, apart) = (of(Box::<Fifo>::default()), of(Box::<Apart>::default()));
        assert_eq!(fifo, apart);
        let counters = fifo.2;
        assert!(
            counters.overflowed > 0 && counters.dropped_on_arrival > 0 && counters.dropped_in_queue > 0,
            "{counters:?}"
        );
    }

    /// Passes all packets on arrival, and marks those below a number when they leave.
    struct MarksBelow(u32);

    impl Aqm for MarksBelow {
        fn arrive(&mut self, _pkt: &Packet, _cx: &mut Context<'_>) -> Verdict {
            Verdict::Pass
        }

        fn depart(&mut self, pkt: &Packet, _cx: &mut Context<'_>) -> Verdict {
            if pkt.handle < self.0 { Verdict::Mark } else { Verdict::Pass }
        }
    }

    /// A queue of [`MarksBelow`] that drops what is marked.
    fn queue_that_drops_below(number: u32, limit: Limit) -> Queue {
        let setup = QueueConfig {
            marking: Marking::Drop,
            limit,
            capacity: Rate::from_bps(8000),
            seed: 1,
            name: "queue".to_owned(),
        };
        Queue::new(Box::<Fifo>::default(), Box::new(MarksBelow(number)), &setup)
    }

    fn seconds(time: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(time)
    }

    /// Room for two packets and 500 bytes. Packets 0 and 1 enter at 0 and 1 s, and 2 finds no room at 2 s. At 4 s 0 is
    /// dropped by a signal and 1 leaves: 1 + 2 + 2 + 2 = 7 packet seconds. Packet 3 alone is longer than the
    /// room, and 4 passes.
    #[test]
    fn counters_and_the_integral_of_the_queue_are_those_worked_out_by_hand() {
        let mut queue = queue_that_drops_below(1, Limit { packets: 2, bytes: 500 });
        let mut dropped = Dropped::default();
        let mut bring = |queue: &mut Queue, time, len, handle| {
            let mut pkt = Packet::new(len, FlowId(0), handle);
            assert!(queue.offer(&mut pkt, seconds(time), &mut dropped));
            queue.enqueue(pkt, seconds(time), &mut dropped);
        };
        for (time, len) in [(0, 100), (1, 200), (2, 300)] {
            bring(&mut queue, time, len, time as u32);
        }
        assert_eq!(queue.state().idle_since, None);
        assert_eq!(queue.packet_seconds(seconds(2)), 3.0);
        let sent = queue.dequeue(seconds(4), &mut Dropped::default());
        assert_eq!(sent.map(|pkt| (pkt.handle, pkt.arrival)), Some((1, seconds(1))));
        assert!(queue.dequeue(seconds(5), &mut Dropped::default()).is_none());
        bring(&mut queue, 6, 600, 3);
        assert_eq!((queue.state().packets, queue.state().bytes), (0, 0));
        assert_eq!(queue.state().idle_since, Some(seconds(5)), "no packet has come since");
        bring(&mut queue, 7, 50, 4);
        assert!(queue.dequeue(seconds(7), &mut Dropped::default()).is_some());
        assert_eq!(dropped.0, [(2, DropReason::Overflow), (3, DropReason::Overflow)]);
        assert_eq!(queue.state().sent_bytes, 250);
        assert_eq!(queue.packet_seconds(seconds(9)), 7.0);
        let expected = Counters {
            offered: 5,
            offered_bytes: 1250,
            admitted: 5,
            admitted_bytes: 1250,
            marked: 1,
            marked_in_queue: 1,
            dropped_on_arrival: 0,
            enqueued: 5,
            overflowed: 2,
            dropped_in_queue: 1,
            sent: 2,
        };
        assert_eq!(*queue.counters(), expected);
    }

    #[test]
    fn a_packet_leaves_after_as_many_drops_as_one_departure_may_make() {
        let mut queue = queue_that_drops_below(u32::MAX, Limit::NONE);
        let mut dropped = Dropped::default();
        for handle in 0..100 {
            queue.enqueue(Packet::new(1000, FlowId(0), handle), seconds(0), &mut dropped);
        }
        let sent = queue.dequeue(seconds(1), &mut dropped).map(|pkt| pkt.handle);
        assert_eq!((sent, dropped.0.len()), (Some(MAX_DROPS_PER_DEQUEUE), MAX_DROPS_PER_DEQUEUE as usize));
    }
}
