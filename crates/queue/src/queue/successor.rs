//! An AQM that replaces another while packets wait.

use bentpipe_units::Instant;

use crate::{Aqm, Context, FlowEvent, FlowId, Packet, Verdict};

/// Hides from an AQM the packets that had entered the queue before it took over; they leave without its verdict.
///
/// So each packet that it sees leave it has seen enter, as [`Aqm::enqueued`] promises, and an AQM that counts packets
/// does not count below zero.
pub(crate) struct Successor {
    aqm: Box<dyn Aqm>,
    since: Instant,
}

impl Successor {
    /// Puts `aqm` in the place of another from `since` on.
    pub(crate) fn new(aqm: Box<dyn Aqm>, since: Instant) -> Self {
        Self { aqm, since }
    }

    /// Puts `aqm` in its place, which continues with its state if it can.
    pub(crate) fn replace(&mut self, mut aqm: Box<dyn Aqm>, now: Instant) {
        if !aqm.resume(&mut *self.aqm) {
            self.since = now;
        }
        self.aqm = aqm;
    }

    /// Returns true if the packet entered after the AQM took over. One that enters at that very moment may have been
    /// there before, so it does not count.
    fn is_own(&self, pkt: &Packet) -> bool {
        pkt.arrival > self.since
    }
}

impl Aqm for Successor {
    fn arrive(&mut self, pkt: &Packet, cx: &mut Context<'_>) -> Verdict {
        self.aqm.arrive(pkt, cx)
    }

    fn admit(&mut self, pkt: &Packet, cx: &mut Context<'_>) {
        self.aqm.admit(pkt, cx);
    }

    fn enqueued(&mut self, pkt: &Packet, cx: &mut Context<'_>) {
        if self.is_own(pkt) {
            self.aqm.enqueued(pkt, cx);
        }
    }

    fn depart(&mut self, pkt: &Packet, cx: &mut Context<'_>) -> Verdict {
        if self.is_own(pkt) { self.aqm.depart(pkt, cx) } else { Verdict::Pass }
    }

    fn overflowed(&mut self, pkt: &Packet, cx: &mut Context<'_>) {
        if self.is_own(pkt) {
            self.aqm.overflowed(pkt, cx);
        }
    }

    fn flow(&mut self, flow: FlowId, event: FlowEvent, cx: &mut Context<'_>) {
        self.aqm.flow(flow, event, cx);
    }

    fn wake_at(&self) -> Option<Instant> {
        self.aqm.wake_at()
    }

    fn wake(&mut self, cx: &mut Context<'_>) {
        self.aqm.wake(cx);
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        self.aqm.probe(out);
    }
}

#[cfg(test)]
mod tests {
    use std::any::Any;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};

    use bentpipe_units::{Duration, Rate, Rng};

    use super::*;
    use crate::aqm::droptail::DropTail;
    use crate::sched::fifo::Fifo;
    use crate::{DropHandler, DropReason, Limit, Marking, Queue, QueueConfig, QueueState};

    /// Counts the packets that it sees in the queue, and drops those that leave.
    struct Counts(Arc<AtomicI64>);

    impl Counts {
        fn add(&self, packets: i64) {
            let now = self.0.fetch_add(packets, Ordering::Relaxed) + packets;
            assert!(now >= 0, "more left than came");
        }
    }

    impl Aqm for Counts {
        fn arrive(&mut self, _pkt: &Packet, _cx: &mut Context<'_>) -> Verdict {
            Verdict::Pass
        }

        fn enqueued(&mut self, _pkt: &Packet, _cx: &mut Context<'_>) {
            self.add(1);
        }

        fn depart(&mut self, _pkt: &Packet, _cx: &mut Context<'_>) -> Verdict {
            self.add(-1);
            Verdict::Drop
        }

        fn overflowed(&mut self, _pkt: &Packet, _cx: &mut Context<'_>) {
            self.add(-1);
        }
    }

    #[derive(Default)]
    struct Lost(u32);

    impl DropHandler for Lost {
        fn dropped(&mut self, _pkt: Packet, _reason: DropReason) {
            self.0 += 1;
        }
    }

    /// Three packets enter, then another AQM takes over; one enters at that moment, two later, and one finds the queue
    /// full. Four leave without its verdict, two are dropped by it.
    #[test]
    fn earlier_packets_are_hidden_from_a_new_aqm() {
        let setup = QueueConfig {
            marking: Marking::Drop,
            limit: Limit { packets: 6, ..Limit::NONE },
            capacity: Rate::from_bps(1_000_000),
            seed: 1,
            name: String::new(),
        };
        let mut queue = Queue::new(Box::<Fifo>::default(), Box::new(DropTail), &setup);
        let (counted, mut lost) = (Arc::<AtomicI64>::default(), Lost::default());
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let here = || counted.load(Ordering::Relaxed);
        for (ms, expected) in [(1, 0), (2, 0), (5, 0), (5, 0), (6, 1), (7, 2), (8, 2)] {
            queue.enqueue(Packet::new(1000, FlowId(1), 0), at(ms), &mut lost);
            if ms == 5 && queue.state().packets == 3 {
                queue.set_aqm(Box::new(Counts(counted.clone())), at(5));
            }
            assert_eq!(here(), expected, "{ms}");
        }
        assert_eq!(lost.0, 1);
        (0..4).for_each(|_| assert!(queue.dequeue(at(9), &mut lost).is_some()));
        assert_eq!((lost.0, here()), (1, 2));
        assert!(queue.dequeue(at(9), &mut lost).is_none());
        assert_eq!((lost.0, here(), queue.check()), (3, 0, Ok(())));
    }

    /// Counts admitted packets, flows and wake-ups, and continues with such counts.
    #[derive(Default)]
    struct Told([u32; 3]);

    impl Aqm for Told {
        fn arrive(&mut self, _pkt: &Packet, _cx: &mut Context<'_>) -> Verdict {
            Verdict::Pass
        }

        fn admit(&mut self, _pkt: &Packet, _cx: &mut Context<'_>) {
            self.0[0] += 1;
        }

        fn flow(&mut self, _flow: FlowId, _event: FlowEvent, _cx: &mut Context<'_>) {
            self.0[1] += 1;
        }

        fn wake_at(&self) -> Option<Instant> {
            Some(Instant::from_nanos(7))
        }

        fn wake(&mut self, _cx: &mut Context<'_>) {
            self.0[2] += 1;
        }

        fn resume(&mut self, previous: &mut dyn Any) -> bool {
            previous.downcast_ref::<Self>().map(|was| self.0 = was.0).is_some()
        }

        fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
            self.0
                .iter()
                .zip(["admitted", "flows", "woken"])
                .for_each(|(count, name)| out(name, (*count).into()));
        }
    }

    #[test]
    fn a_new_aqm_is_told_of_arrivals_flows_and_wake_ups() {
        let mut successor = Successor::new(Box::<Told>::default(), Instant::ZERO);
        let state = QueueState::empty(Rate::from_bps(1));
        let mut rng = Rng::stream(1, "successor", 0, "test");
        let mut cx = Context::new(Instant::ZERO, &state, &mut rng);
        successor.admit(&Packet::new(1000, FlowId(1), 0), &mut cx);
        (0..2).for_each(|flow| successor.flow(FlowId(flow), FlowEvent::Opened, &mut cx));
        (0..3).for_each(|_| successor.wake(&mut cx));
        assert_eq!(successor.wake_at(), Some(Instant::from_nanos(7)));
        let mut found = Vec::new();
        successor.probe(&mut |name, value| found.push((name, value)));
        assert_eq!(found, [("admitted", 1.0), ("flows", 2.0), ("woken", 3.0)]);
    }

    /// Packets of the former AQM remain hidden; those that came since are hidden, too, from one that cannot continue.
    #[test]
    fn packets_are_hidden_again_from_an_aqm_that_does_not_continue() {
        let own = |successor: &Successor, ms| {
            let arrival = Instant::ZERO + Duration::from_millis(ms);
            successor.is_own(&Packet { arrival, ..Packet::new(1000, FlowId(1), 0) })
        };
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let mut successor = Successor::new(Box::<Told>::default(), at(5));
        successor.replace(Box::<Told>::default(), at(9));
        assert_eq!([5, 7, 10].map(|ms| own(&successor, ms)), [false, true, true]);
        successor.replace(Box::new(DropTail), at(9));
        assert_eq!([5, 7, 10].map(|ms| own(&successor, ms)), [false, false, true]);
    }
}
