//! A queue: a scheduler with its counters and the Aqm that watches it.

mod successor;

use std::any::Any;
use std::ops::AddAssign;

use std::collections::VecDeque;

use bentpipe_units::{Duration, Instant, Rate, Rng};

use crate::{
    Aqm, Context, DropHandler, DropReason, Ecn, FlowEvent, FlowId, Limit, MAX_DROPS_PER_DEQUEUE, Marking,
    Packet, QueueSlot, QueueState, Scheduler, SchedulerHost, Verdict,
};
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
    /// Packets with which the Aqm signalled congestion, at the mark point or in the queue.
    pub marked: u64,
    /// Those of them that were in the queue.
    pub marked_in_queue: u64,
    /// Packets dropped by a signal at the mark point.
    pub dropped_on_arrival: u64,
    /// Packets that entered the queue.
    pub enqueued: u64,
    /// Packets dropped for want of room.
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

/// A scheduler with its counters and the Aqm that watches it.
///
/// A packet is offered at the mark point ([`Queue::offer`]), enters the queue then or later ([`Queue::enqueue`]), and
/// leaves over the link ([`Queue::dequeue`]).
pub struct Queue {
    scheduler: Box<dyn Scheduler>,
    watched: Watched,
    /// Packets held back at the mark point, by due time.
    held: VecDeque<(Instant, Packet)>,
    scheduler_rng: Rng,
    /// Packets that the scheduler dropped in the current call.
    lost: Vec<(Packet, DropReason)>,
}

/// All parts of a queue but the scheduler, which sees the state while it reports drops.
struct Watched {
    aqm: Box<dyn Aqm>,
    rng: Rng,
    marking: Marking,
    state: QueueState,
    counters: Counters,
    area: u128,
    area_until: Instant,
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
            scheduler,
            held: VecDeque::new(),
            scheduler_rng: Rng::stream(setup.seed, &setup.name, 0, "scheduler"),
            lost: Vec::new(),
            watched: Watched {
                aqm,
                rng: Rng::stream(setup.seed, &setup.name, 0, "aqm"),
                marking: setup.marking,
                state,
                counters: Counters::default(),
                area: 0,
                area_until: Instant::ZERO,
            },
        }
    }

    /// Offers a packet to the Aqm at the mark point, and sets its ECN field or its mark if the verdict says so. Returns
    /// true if the packet is accepted. A dropped packet goes to `out`; [`Queue::wake`] returns a packet that is held
    /// back.
    #[inline]
    pub fn offer(&mut self, pkt: &mut Packet, now: Instant, out: &mut dyn DropHandler) -> bool {
        let w = &mut self.watched;
        pkt.number = w.counters.offered;
        w.counters.offered += 1;
        w.counters.offered_bytes += u64::from(pkt.len);
        self.decide(pkt, now, out)
    }

    /// Asks the Aqm about a packet, perhaps again. Returns true if the packet is accepted.
    #[inline]
    fn decide(&mut self, pkt: &mut Packet, now: Instant, out: &mut dyn DropHandler) -> bool {
        let w = &mut self.watched;
        let mut cx = Context::new(now, &w.state, &mut w.rng).among(self.scheduler.as_ref());
        let verdict = w.aqm.arrive(pkt, &mut cx);
        match verdict {
            Verdict::Hold(time) => {
                // A time of 0 would ask the Aqm again at once, forever.
                self.hold(*pkt, now + time.max(Duration::from_nanos(1)));
                return false;
            }
            Verdict::DropBoth(slot) => self.drop_waiting(slot, now, out),
            _ => {}
        }
        let w = &mut self.watched;
        if !w.apply(verdict, pkt) {
            w.counters.dropped_on_arrival += 1;
            out.dropped(*pkt, DropReason::Aqm);
            return false;
        }
        w.counters.admitted += 1;
        w.counters.admitted_bytes += u64::from(pkt.len);
        w.aqm.admit(pkt, &mut Context::new(now, &w.state, &mut w.rng));
        true
    }

    /// Holds a packet back until it is due.
    #[cold]
    fn hold(&mut self, pkt: Packet, due: Instant) {
        let behind = self.held.iter().rposition(|(other, _)| *other <= due).map_or(0, |i| i + 1);
        self.held.insert(behind, (due, pkt));
        self.watched.state.held += 1;
    }

    /// Drops a waiting packet by a signal.
    #[cold]
    fn drop_waiting(&mut self, slot: QueueSlot, now: Instant, out: &mut dyn DropHandler) {
        if let Some(other) = self.scheduler.remove(slot) {
            self.watched.counters.mark_in_queue();
            self.watched.account_drop(&other, now);
            out.dropped(other, DropReason::Aqm);
        }
    }

    /// Adds a packet to the queue. Packets dropped for want of room go to `out`.
    #[inline]
    pub fn enqueue(&mut self, mut pkt: Packet, now: Instant, out: &mut dyn DropHandler) {
        pkt.arrival = now;
        let w = &mut self.watched;
        w.counters.enqueued += 1;
        w.aqm.enqueued(&pkt, &mut Context::new(now, &w.state, &mut w.rng));
        let (len, idle_since) = (pkt.len, w.state.idle_since);
        // Dropped packets are subtracted after the scheduler is done: it and the Aqm see the queue as the packet found
        // it.
        let mut log = SchedulerLog { marking: w.marking, counters: &mut w.counters, lost: &mut self.lost };
        self.scheduler.push(&pkt, &mut Context::new(now, &w.state, &mut self.scheduler_rng), &mut log);
        w.grow(len, now);
        if !self.lost.is_empty() {
            self.lose(now, out);
            if self.watched.state.packets == 0 {
                // The packet itself was dropped, so a link that was idle still is.
                self.watched.state.idle_since = idle_since;
            }
        }
    }

    /// Removes and returns the packet that goes to the link next; `None` only if none waits. Packets dropped at the
    /// head of the queue go to `out`; after [`MAX_DROPS_PER_DEQUEUE`] drops by the Aqm the next packet leaves without a
    /// signal.
    #[inline]
    pub fn dequeue(&mut self, now: Instant, out: &mut dyn DropHandler) -> Option<Packet> {
        let mut dropped = 0;
        loop {
            let w = &mut self.watched;
            let mut log =
                SchedulerLog { marking: w.marking, counters: &mut w.counters, lost: &mut self.lost };
            // Changed in place and returned as it is, so that the packet is not copied.
            let mut next =
                self.scheduler.pop(&mut Context::new(now, &w.state, &mut self.scheduler_rng), &mut log);
            if !self.lost.is_empty() {
                self.lose(now, out);
            }
            let w = &mut self.watched;
            let Some(pkt) = &mut next else {
                w.state.idle_since.get_or_insert(now);
                return next;
            };
            w.shrink(pkt, now);
            let mut cx = Context::new(now, &w.state, &mut w.rng);
            let verdict = w.aqm.depart(pkt, &mut cx);
            if dropped == MAX_DROPS_PER_DEQUEUE || w.apply_in_queue(verdict, pkt) {
                w.counters.sent += 1;
                w.state.sent_bytes += u64::from(pkt.len);
                return next;
            }
            w.counters.dropped_in_queue += 1;
            dropped += 1;
            out.dropped(*pkt, DropReason::Aqm);
        }
    }

    /// Accounts for the packets that the scheduler dropped.
    #[inline(never)]
    fn lose(&mut self, now: Instant, out: &mut dyn DropHandler) {
        let w = &mut self.watched;
        for (pkt, reason) in self.lost.drain(..) {
            if reason == DropReason::Overflow {
                w.shrink(&pkt, now);
                w.counters.overflowed += 1;
                w.aqm.overflowed(&pkt, &mut Context::new(now, &w.state, &mut w.rng));
            } else {
                w.account_drop(&pkt, now);
            }
            out.dropped(pkt, reason);
        }
    }

    /// Returns the packet that would leave next.
    #[must_use]
    #[inline]
    pub fn peek(&self) -> Option<&Packet> {
        self.scheduler.peek()
    }

    /// Returns the packet that leaves behind this number of others, if the scheduler knows that, as a hint.
    #[must_use]
    #[inline]
    pub fn upcoming(&self, place: usize) -> Option<&Packet> {
        self.scheduler.upcoming(place)
    }

    /// Returns the time of the next [`Queue::wake`].
    #[must_use]
    #[inline]
    pub fn wake_at(&self) -> Option<Instant> {
        let earlier = |a: Option<Instant>, b: Option<Instant>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let next = earlier(self.watched.aqm.wake_at(), self.scheduler.wake_at());
        if self.held.is_empty() { next } else { earlier(next, self.held.front().map(|(due, _)| *due)) }
    }

    /// Acts at the time that [`Queue::wake_at`] returned. Returns a packet that was held back at the mark point and is
    /// now accepted, if any; call it again while [`Queue::wake_at`] is not later than `now`.
    pub fn wake(&mut self, now: Instant, out: &mut dyn DropHandler) -> Option<Packet> {
        let w = &mut self.watched;
        if w.aqm.wake_at().is_some_and(|at| at <= now) {
            w.aqm.wake(&mut Context::new(now, &w.state, &mut w.rng));
        }
        if self.scheduler.wake_at().is_some_and(|at| at <= now) {
            let mut log =
                SchedulerLog { marking: w.marking, counters: &mut w.counters, lost: &mut self.lost };
            self.scheduler.wake(&mut Context::new(now, &w.state, &mut self.scheduler_rng), &mut log);
            self.lose(now, out);
        }
        let due = self.held.front().is_some_and(|(due, _)| *due <= now);
        let (_, mut pkt) = if due { self.held.pop_front()? } else { return None };
        self.watched.state.held -= 1;
        self.decide(&mut pkt, now, out).then_some(pkt)
    }

    /// Announces the beginning or end of a flow.
    pub fn flow(&mut self, flow: FlowId, event: FlowEvent, now: Instant) {
        let w = &mut self.watched;
        w.aqm.flow(flow, event, &mut Context::new(now, &w.state, &mut w.rng));
        self.scheduler.flow(flow, event);
    }

    /// Returns the state of the queue and its link.
    #[must_use]
    #[inline]
    pub fn state(&self) -> &QueueState {
        &self.watched.state
    }

    /// Changes the capacity of the link.
    pub fn set_capacity(&mut self, capacity: Rate) {
        self.watched.state.capacity = capacity;
    }

    /// Replaces the Aqm from `now` on; counters continue.
    ///
    /// The same algorithm under other parameters continues with its state. Another algorithm begins without any, and waiting
    /// packets leave without its verdict.
    pub fn set_aqm(&mut self, mut aqm: Box<dyn Aqm>, now: Instant) {
        let former: &mut dyn Any = &mut *self.watched.aqm;
        if let Some(successor) = former.downcast_mut::<Successor>() {
            successor.replace(aqm, now);
        } else if aqm.resume(former) {
            self.watched.aqm = aqm;
        } else {
            self.watched.aqm = Box::new(Successor::new(aqm, now));
        }
    }

    /// Returns the counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.watched.counters
    }

    /// Reports internal state: owner ("aqm" or "scheduler"), name and value.
    pub fn probe(&self, out: &mut dyn FnMut(&'static str, &'static str, f64)) {
        self.watched.aqm.probe(&mut |name, value| out("aqm", name, value));
        self.scheduler.probe(&mut |name, value| out("scheduler", name, value));
    }

    /// Returns the number of waiting packets, integrated over time since the start of the run [packet s].
    #[must_use]
    pub fn packet_seconds(&self, now: Instant) -> f64 {
        let w = &self.watched;
        let open = u128::from(w.state.packets) * u128::from((now - w.area_until).as_nanos());
        (w.area + open) as f64 * 1e-9
    }

    /// Checks that packets are conserved.
    ///
    /// # Errors
    /// The identity that does not hold, with its values.
    pub fn check(&self) -> Result<(), String> {
        let (c, held) = (&self.watched.counters, u64::from(self.watched.state.packets));
        let back = u64::from(self.watched.state.held);
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

impl Watched {
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

    fn integrate(&mut self, now: Instant) {
        self.area += u128::from(self.state.packets) * u128::from((now - self.area_until).as_nanos());
        self.area_until = now;
    }
}

/// Signals congestion with a packet. Returns true if the packet is accepted.
#[inline]
fn signal(marking: Marking, pkt: &mut Packet) -> bool {
    match marking {
        Marking::Ecn if pkt.ecn != Ecn::NotEct => pkt.ecn = Ecn::Ce,
        Marking::Window if pkt.split => pkt.marked = true,
        _ => return false,
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::fifo::Fifo;

    /// Holds every packet for 0 s.
    struct Holds;

    impl Aqm for Holds {
        fn arrive(&mut self, _pkt: &Packet, _cx: &mut Context<'_>) -> Verdict {
            Verdict::Hold(Duration::ZERO)
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
        let setup = QueueConfig {
            marking: Marking::Drop,
            limit: Limit::NONE,
            capacity: Rate::from_bps(1_000_000),
            seed: 1,
            name: String::new(),
        };
        let mut queue = Queue::new(Box::<Fifo>::default(), Box::new(Holds), &setup);
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
}
