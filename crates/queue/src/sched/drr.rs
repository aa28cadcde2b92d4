//! DRR, deficit round robin: a queue per flow, each of which sends the same number of bytes per round.
//!
//! Shreedhar & Varghese 1995. Flows with packets are in a ring. At its turn a flow's deficit counter grows by `quantum`
//! bytes, and the flow sends packets while the counter covers them; the remainder is kept for its next turn, unless it
//! has no more packets. A flow that was empty joins the end of the ring with a counter of 0. A flow whose turn is over
//! goes there when the next packet leaves, behind those that joined during its last transmission. If there is no room,
//! the flow with the most bytes (including the arriving packet) loses packets until there is: buffer stealing, section
//! 3.2 of the paper.
//!
//! *Departures:* none; where the paper leaves open which of several longest flows loses a packet, it is the first of the
//! ring, as in ns-2. `head_drop` drops the oldest packet of that flow instead of the newest, as ns-2 does.
//!
//! *In a satellite gateway:* at the transmit queue it shares the satellite fairly whatever the senders do, without
//! drops while there is room; with a user or a prefix as the flow nobody gains by opening many connections. It orders
//! the packets that the PEP has passed on and slows no sender down: that needs an AQM ahead of the PEP, or a limit so
//! high that the PEP's buffers throttle the senders. When full it drops packets behind the PEP, which the gateway has
//! to retransmit.

use bentpipe_units::{Id as _, Rng};

use super::flows::{Flows, NodeId, SlotId, make_room};
use super::longest::Longest;
use crate::descriptor::SchedulerAlgorithm;
use crate::{Context, Packet, Param, QueueSlot, Range, Scheduler, SchedulerHost, Tune, Unit, Values};

/// The registry's entry.
pub const ALGORITHM: SchedulerAlgorithm = SchedulerAlgorithm {
    name: "drr",
    title: "Deficit round robin",
    source: "Shreedhar & Varghese 1995",
    params: PARAMS,
    signals: false,
    build: |values| Ok(Box::new(Drr::new(values))),
};

const PARAMS: &[Param] = &[
    Param::number("quantum", Unit::Bytes, 1500.0, Range::between(1.0, 65_535.0))
        .doc(
            "Bytes that a flow may send per turn; at least the longest packet for a constant cost per packet",
        )
        .symbol("Quantum")
        .origin("an Ethernet packet: Shreedhar & Varghese 1995 require at least the longest packet")
        .tune(Tune::Log(300.0, 15_000.0)),
    Param::flag("head_drop", false, "Drop the oldest packet of the longest queue, not the newest")
        .origin("Shreedhar & Varghese 1995, section 3.2")
        .tune(Tune::Each),
];

/// DRR's state.
#[derive(Debug, Default)]
pub struct Drr {
    quantum: u64,
    head_drop: bool,
    flows: Flows,
    longest: Longest,
    /// By slot of `flows`.
    turns: Vec<Turn>,
    /// Slot of the flow whose turn it is. Its turn lasts until the next departure, even if its counter is used up.
    current: Option<SlotId>,
    /// Slot of the flow that sends next, and the number of turns that it begins until then.
    next: Option<(SlotId, u64)>,
    /// Rank of the next flow that goes to the end of the ring.
    end: u64,
}

/// A flow's entry in the ring.
#[derive(Clone, Copy, Debug)]
struct Turn {
    before: SlotId,
    after: SlotId,
    deficit: u64,
    /// Rises along the ring, from the current flow on.
    rank: u64,
}

impl Drr {
    fn new(values: &Values) -> Self {
        Self {
            quantum: (values.number("quantum") as u64).max(1),
            head_drop: values.flag("head_drop"),
            ..Self::default()
        }
    }

    /// Adds a flow that was empty to the end of the ring.
    fn join(&mut self, slot: SlotId) {
        let alone = Turn { before: slot, after: slot, deficit: 0, rank: self.end };
        self.end += 1;
        let index = slot.index() as usize;
        if self.turns.len() <= index {
            self.turns.resize(index + 1, alone);
        }
        self.turns[index] = alone;
        match self.current {
            None => self.begin(slot),
            Some(current) => {
                let last = self.turn(current).before;
                *self.turn(slot) = Turn { before: last, after: current, ..alone };
                self.turn(last).after = slot;
                self.turn(current).before = slot;
            }
        }
        self.next = self.find_next();
    }

    fn turn(&mut self, slot: SlotId) -> &mut Turn {
        &mut self.turns[slot.index() as usize]
    }

    /// Removes a flow without packets from the ring; its counter is lost.
    fn leave(&mut self, slot: SlotId) {
        let Turn { before, after, .. } = *self.turn(slot);
        self.turn(before).after = after;
        self.turn(after).before = before;
        if self.current == Some(slot) {
            self.current = None;
            if after != slot {
                self.begin(after);
            }
        }
    }

    /// Begins a flow's turn.
    fn begin(&mut self, slot: SlotId) {
        self.current = Some(slot);
        self.turn(slot).deficit += self.quantum;
    }

    /// Returns the oldest packet of a flow.
    fn head(&self, slot: SlotId) -> Option<&Packet> {
        self.flows.head(slot).map(|node| self.flows.packet(node))
    }

    /// Turns that a flow needs until its counter covers its next packet.
    fn turns_needed(&self, slot: SlotId) -> u64 {
        let len = self.head(slot).map_or(0, |pkt| u64::from(pkt.len));
        match len.saturating_sub(self.turns[slot.index() as usize].deficit) {
            0 => 0,
            // Spares most packets a division.
            lacking if lacking <= self.quantum => 1,
            lacking => lacking.div_ceil(self.quantum),
        }
    }

    /// Finds the flow that sends next, and the number of turns that it begins until then.
    fn find_next(&self) -> Option<(SlotId, u64)> {
        let current = self.current?;
        if self.turns_needed(current) == 0 {
            return Some((current, 0));
        }
        let (mut slot, mut next) = (current, (current, u64::MAX));
        loop {
            slot = self.turns[slot.index() as usize].after;
            let turns = self.turns_needed(slot).max(1);
            if turns < next.1 {
                next = (slot, turns);
            }
            if turns == 1 || slot == current {
                return Some(next);
            }
        }
    }

    /// Gives the turn to the flow that sends next.
    #[inline]
    fn advance(&mut self) {
        if let (Some(current), Some((next, turns))) = (self.current, self.next)
            && turns > 0
        {
            self.begin_turns(current, next, turns);
        }
    }

    /// Begins the turns until the flow `next` can send, in its `turns`-th.
    fn begin_turns(&mut self, current: SlotId, next: SlotId, mut turns: u64) {
        let mut slot = current;
        while slot != next {
            let rank = self.end;
            self.end += 1;
            let turn = self.turn(slot);
            turn.rank = rank;
            slot = turn.after;
        }
        slot = current;
        while turns > 0 {
            slot = self.turn(slot).after;
            self.turn(slot).deficit += turns * self.quantum;
            turns -= u64::from(slot == next);
            if slot == current {
                break;
            }
        }
        self.current = Some(next);
    }

    /// Removes a packet, and its flow from the ring if it was the last.
    fn take(&mut self, node: NodeId) -> Option<Packet> {
        let slot = self.flows.slot_of(node)?;
        let pkt = self.flows.remove(node);
        self.longest.lower(&self.flows, |slot| self.turns[slot.index() as usize].rank);
        if self.flows.head(slot).is_none() {
            self.leave(slot);
        }
        self.next = self.find_next();
        pkt
    }

    /// Removes a packet of the longest queue.
    fn steal(&mut self) -> Option<Packet> {
        let slot = self.longest.find(&self.flows, |slot| self.turns[slot.index() as usize].rank)?;
        self.take(if self.head_drop { self.flows.head(slot) } else { self.flows.tail(slot) }?)
    }
}

impl Scheduler for Drr {
    fn push(&mut self, pkt: &Packet, cx: &mut Context<'_>, out: &mut dyn SchedulerHost) {
        let (node, slot) = self.flows.push(pkt);
        if self.flows.head(slot) == Some(node) {
            self.join(slot);
        }
        let rank = self.turn(slot).rank;
        self.longest.grew(slot, &self.flows, rank);
        make_room(cx, pkt, out, || self.steal());
    }

    fn pop(&mut self, _cx: &mut Context<'_>, _out: &mut dyn SchedulerHost) -> Option<Packet> {
        self.advance();
        let slot = self.current?;
        let node = self.flows.head(slot)?;
        self.turn(slot).deficit -= u64::from(self.flows.packet(node).len);
        self.take(node)
    }

    fn peek(&self) -> Option<&Packet> {
        self.head(self.next?.0)
    }

    fn sample(&self, rng: &mut Rng) -> Option<(QueueSlot, &Packet)> {
        self.flows.sample(rng).map(|(node, pkt)| (node.into(), pkt))
    }

    fn remove(&mut self, slot: QueueSlot) -> Option<Packet> {
        self.take(slot.into())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use bentpipe_units::{Instant, Rate};

    use super::super::steps::Steps;
    use super::*;
    use crate::{DropReason, FlowId, Limit, Marking, QueueState, Value};

    #[derive(Default)]
    struct Lost(Vec<u32>);

    impl SchedulerHost for Lost {
        fn dropped(&mut self, pkt: Packet, _: DropReason) {
            self.0.push(pkt.handle);
        }

        fn mark(&mut self, pkt: Packet) -> Option<Packet> {
            Some(pkt)
        }
    }

    struct Bench {
        drr: Drr,
        state: QueueState,
        lost: Lost,
        rng: Rng,
    }

    impl Bench {
        fn new(quantum: f64, head_drop: bool, bytes: u64) -> Self {
            let link = crate::Link { capacity: Rate::from_bps(1_000_000), mean_packet: 1000.0 };
            let values = Values::resolve(PARAMS, &link, &|name| match name {
                "quantum" => Some(Value::Number(quantum)),
                _ => Some(Value::Flag(head_drop)),
            });
            Self {
                drr: Drr::new(&values.unwrap()),
                state: QueueState {
                    limit: Limit { packets: u32::MAX, bytes },
                    ..QueueState::empty(link.capacity)
                },
                lost: Lost::default(),
                rng: Rng::stream(1, "drr", 0, "test"),
            }
        }

        fn push(&mut self, handle: u32, flow: u32, len: u32) {
            let pkt = Packet::new(len, FlowId(flow), handle);
            let lost = self.lost.0.len();
            let mut cx = Context::new(Instant::ZERO, &self.state, &mut self.rng);
            self.drr.push(&pkt, &mut cx, &mut self.lost);
            // All packets of a test have the same length if any is lost.
            let gone = (self.lost.0.len() - lost) as u32;
            self.state.packets = self.state.packets + 1 - gone;
            self.state.bytes = self.state.bytes + u64::from(len) - u64::from(gone * len);
        }

        fn pop(&mut self) -> Option<u32> {
            let expected = self.drr.peek().map(|pkt| pkt.handle);
            let mut cx = Context::new(Instant::ZERO, &self.state, &mut self.rng);
            let pkt = self.drr.pop(&mut cx, &mut self.lost)?;
            self.state.packets -= 1;
            self.state.bytes -= u64::from(pkt.len);
            assert_eq!(Some(pkt.handle), expected, "peek");
            Some(pkt.handle)
        }
    }

    /// Shreedhar & Varghese 1995, figures 1 and 2: quantum 500; flow 1 holds 20, 750 and 200 bytes, flow 2 500 and 500,
    /// flow 3 200, 600 and 100, flow 4 50, 700 and 180 (each from its head). Flow 1 sends 20 and keeps 480; flow 2
    /// sends 500; flow 3 sends 200 and keeps 300; flow 4 sends 50 and keeps 450. Second round: flow 1 has 980: 750 and
    /// 200; flow 2 500; flow 3 800: 600 and 100; flow 4 950: 700 and 180.
    #[test]
    fn order_matches_the_papers_example() {
        let mut bench = Bench::new(500.0, false, u64::MAX);
        let held = [(1, [20, 750, 200]), (2, [500, 500, 0]), (3, [200, 600, 100]), (4, [50, 700, 180])];
        for i in 0..3 {
            for (flow, lens) in held {
                if lens[i] > 0 {
                    bench.push(lens[i] + flow, flow, lens[i]);
                }
            }
        }
        let order: Vec<_> = std::iter::from_fn(|| bench.pop()).collect();
        assert_eq!(order, [21, 502, 203, 54, 751, 201, 502, 603, 103, 704, 184]);
    }

    /// Quantum 1; behind a packet of one byte, packets of 1000 and 999: the shorter is covered one round earlier.
    #[test]
    fn small_quanta_skip_many_rounds() {
        let mut bench = Bench::new(1.0, false, u64::MAX);
        for (handle, len) in [(0, 1), (1, 1000), (2, 999)] {
            bench.push(handle, handle, len);
        }
        assert_eq!([0; 4].map(|_| bench.pop()), [Some(0), Some(2), Some(1), None]);
    }

    /// A flow of the reference, with its handles and lengths of packets.
    struct Waiting {
        flow: u32,
        credit: u64,
        packets: VecDeque<(u32, u64)>,
    }

    /// The algorithm of the paper's section III, round by round, and buffer stealing by a look at all flows.
    #[derive(Default)]
    struct Rounds {
        /// The flows from the one whose turn it is on.
        ring: VecDeque<Waiting>,
        quantum: u64,
        head_drop: bool,
    }

    impl Rounds {
        fn push(&mut self, flow: u32, handle: u32, len: u64) {
            if let Some(other) = self.ring.iter_mut().find(|other| other.flow == flow) {
                return other.packets.push_back((handle, len));
            }
            let credit = if self.ring.is_empty() { self.quantum } else { 0 };
            self.ring.push_back(Waiting { flow, credit, packets: [(handle, len)].into() });
        }

        fn pop(&mut self) -> Option<u32> {
            self.advance();
            let first = self.ring.front_mut()?;
            let (handle, len) = first.packets.pop_front()?;
            first.credit -= len;
            if first.packets.is_empty() {
                self.ring.pop_front();
                self.begin();
            }
            Some(handle)
        }

        /// Drops a packet of the longest flow, the first of the ring among equals.
        fn steal(&mut self) -> u32 {
            let bytes = |flow: &Waiting| flow.packets.iter().map(|(_, len)| len).sum::<u64>();
            let most = self.ring.iter().map(bytes).max().unwrap();
            let place = self.ring.iter().position(|flow| bytes(flow) == most).unwrap();
            let packets = &mut self.ring[place].packets;
            let (handle, _) = if self.head_drop { packets.pop_front() } else { packets.pop_back() }.unwrap();
            if packets.is_empty() {
                self.ring.remove(place);
                if place == 0 {
                    self.begin();
                }
            }
            handle
        }

        /// Turns to the first flow whose counter covers its packet.
        fn advance(&mut self) {
            while self.ring.front().is_some_and(|first| first.packets[0].1 > first.credit) {
                self.ring.rotate_left(1);
                self.begin();
            }
        }

        fn begin(&mut self) {
            if let Some(first) = self.ring.front_mut() {
                first.credit += self.quantum;
            }
        }
    }

    #[test]
    fn skipped_rounds_change_nothing() {
        for (seed, quantum) in (0..).zip([1, 2, 7, 100, 999, 1500, 5000]) {
            let mut bench = Bench::new(quantum as f64, false, u64::MAX);
            let mut rounds = Rounds { quantum, ..Rounds::default() };
            let mut rng = Rng::stream(seed, "drr", 0, "rounds");
            for handle in 0..2000 {
                let (flow, len) = (rng.below(5) as u32, 1 + rng.below(1500) as u32);
                bench.push(handle, flow, len);
                rounds.push(flow, handle, len.into());
                for _ in 0..rng.below(3) {
                    assert_eq!(bench.pop(), rounds.pop(), "quantum {quantum}");
                }
            }
        }
    }

    /// Room for twelve packets of a few flows, in which queues are often equally long.
    #[test]
    fn the_first_of_the_longest_flows_loses_a_packet() {
        for (seed, head_drop) in (0..20).zip([false, true].into_iter().cycle()) {
            let quantum = if seed % 4 < 2 { 1000 } else { 300 };
            let mut bench = Bench::new(quantum as f64, head_drop, 12_000);
            let mut rounds = Rounds { quantum, head_drop, ..Rounds::default() };
            let mut rng = Rng::stream(seed, "drr", 0, "ties");
            let (mut waiting, mut lost) = (0, Vec::new());
            for handle in 0..2000 {
                let flow = rng.below(5) as u32;
                bench.push(handle, flow, 1000);
                rounds.push(flow, handle, 1000);
                if waiting == 12 {
                    lost.push(rounds.steal());
                } else {
                    waiting += 1;
                }
                if rng.below(10) < 9 {
                    assert_eq!(bench.pop(), rounds.pop(), "seed {seed}, packet {handle}");
                    waiting -= 1;
                }
            }
            assert!(lost.len() > 100, "{}", lost.len());
            assert_eq!(bench.lost.0, lost, "seed {seed}");
        }
    }

    /// Quantum 1000, packets of 1000 bytes. While packet 0 of flow 0 is sent, flow 1 brings one: flow 0 goes to the end of
    /// the ring when its packet has been sent, behind flow 1 (section III, `InsertActiveList` after the loop that sends).
    #[test]
    fn a_flow_that_arrives_during_a_transmission_is_served_before_the_sender() {
        let mut bench = Bench::new(1000.0, false, u64::MAX);
        (0..3).for_each(|handle| bench.push(handle, 0, 1000));
        assert_eq!(bench.pop(), Some(0));
        bench.push(3, 1, 1000);
        bench.push(4, 2, 1000);
        assert_eq!([0; 5].map(|_| bench.pop()), [Some(3), Some(4), Some(1), Some(2), None]);
    }

    /// Room for four packets; flow 1 has three, so it loses one when flow 2 brings its second.
    #[test]
    fn longest_queue_loses_a_packet() {
        for (head_drop, victim, order) in [(false, 3, [1, 4, 2, 5]), (true, 1, [2, 4, 3, 5])] {
            let mut bench = Bench::new(1000.0, head_drop, 4000);
            for (handle, flow) in [(1, 1), (2, 1), (3, 1), (4, 2), (5, 2)] {
                bench.push(handle, flow, 1000);
            }
            assert_eq!(bench.lost.0, [victim]);
            assert_eq!(order.map(Some), [bench.pop(), bench.pop(), bench.pop(), bench.pop()]);
            assert_eq!(bench.pop(), None);
        }
    }

    #[test]
    fn each_packet_beyond_the_limit_costs_one() {
        let mut steps = Steps::new(&ALGORITHM, &[], 4, Marking::Drop, 1);
        (0..6).for_each(|handle| steps.push(0, handle, 1, 1000));
        assert_eq!(steps.lost.len(), 2);
        assert_eq!(steps.take(0), [0, 1, 2, 3].map(Some));
    }

    /// Room for 4000 bytes, of which flow 1 has all: 1500 more cost it two packets of 1000.
    #[test]
    fn as_many_packets_are_dropped_as_the_arrival_needs() {
        let limit = Limit { packets: u32::MAX, bytes: 4000 };
        let mut steps = Steps::limited(&ALGORITHM, &[], limit, Marking::Drop, 1);
        (0..4).for_each(|handle| steps.push(0, handle, 1, 1000));
        steps.push(0, 9, 2, 1500);
        assert_eq!(steps.lost.len(), 2);
        assert_eq!(steps.queue.state().bytes, 3500);
    }

    /// A flow that leaves the ring and returns has no credit from before.
    #[test]
    fn flow_without_packets_loses_its_credit() {
        let mut bench = Bench::new(1500.0, false, u64::MAX);
        bench.push(1, 1, 1000);
        assert_eq!(bench.pop(), Some(1));
        for handle in 2..5 {
            bench.push(handle, 1, 1000);
            bench.push(handle + 10, 2, 1000);
        }
        // 1500 each: one packet, then with 500 left over two, then the last.
        let order: Vec<_> = std::iter::from_fn(|| bench.pop()).collect();
        assert_eq!(order, [2, 12, 3, 4, 13, 14]);
    }

    /// Quantum 1000; flows 0 and 1 have three packets of 1000 B each. Three packets drawn at random are removed; the
    /// rest leave round-robin, and a flow without packets is skipped.
    #[test]
    fn packets_can_be_removed_out_of_order() {
        for seed in 0..20 {
            let mut bench = Bench::new(1000.0, false, u64::MAX);
            bench.rng = Rng::stream(seed, "drr", 0, "evict");
            (0..6).for_each(|handle| bench.push(handle, handle % 2, 1000));
            let mut left = [vec![0, 2, 4], vec![1, 3, 5]];
            for _ in 0..3 {
                let (slot, &shown) = bench.drr.sample(&mut bench.rng).unwrap();
                assert_eq!(bench.drr.remove(slot), Some(shown));
                assert_eq!(bench.drr.remove(slot), None);
                left[shown.flow.0 as usize].retain(|&handle| handle != shown.handle);
                bench.state.packets -= 1;
                bench.state.bytes -= 1000;
            }
            let order: Vec<_> = std::iter::from_fn(|| bench.pop()).collect();
            assert_eq!(order.len(), 3, "seed {seed}");
            for (flow, left) in (0..).zip(left) {
                assert!(
                    order.iter().filter(|&handle| handle % 2 == flow).eq(&left),
                    "seed {seed}: {order:?}"
                );
            }
            // As long as both have packets, they alternate.
            let together = order.iter().map(|handle| handle % 2).collect::<Vec<_>>();
            assert!(
                matches!(together[..], [a, b, _] if a != b || together[2] == a),
                "seed {seed}: {order:?}"
            );
        }
    }
}
