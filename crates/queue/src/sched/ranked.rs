//! Packets ordered by rank, the common part of `swf` and `ssf`.
//!
//! The least rank leaves first, and if there is no room the greatest is dropped, including the arriving packet; of
//! equal ranks the earliest arrival leaves first and the latest is dropped. Either each packet has its own rank, or all
//! packets of a flow have the rank of its latest and leave in the order of arrival. Packets are in one order with two
//! ends; flows, whose numbers differ between the ends, in two heaps.

use std::cmp::Reverse;

use bentpipe_units::{Id as _, Rng, Slab};

use super::flows::{Flows, NodeId, SlotId, make_room};
use super::heap::Heap;
use super::median::Median;
use super::order::{Key, Order};
use crate::{Context, Packet, Param, QueueSlot, Range, SchedulerHost, Tune, Unit, Values};

/// The parameter `order` of both.
pub const ORDER: Param = Param::name(
    "order",
    &["packet", "flow"],
    "packet",
    "Rank each packet by itself, or all packets of a flow by its latest, in order of arrival",
)
.origin("the paper's")
.tune(Tune::Each);

/// The parameter `other` of both.
pub const OTHER: Param = Param::number("other", Unit::Bytes, 0.0, Range::between(0.0, 1e15))
    .doc("Rank of a packet without TCP; 0: the median rank of the waiting TCP packets")
    .origin("a choice: neither ahead of most packets nor behind them");

/// Packets ordered by rank.
#[derive(Debug)]
pub struct Ranked {
    waiting: Waiting,
    /// Packets so far.
    arrivals: u64,
    /// Median rank of the TCP packets.
    median: MedianState,
}

#[derive(Debug)]
enum Waiting {
    Packets(Packets),
    Flows(RankedFlows),
}

/// Packets with a rank each.
#[derive(Debug, Default)]
struct Packets {
    order: Order<(Packet, NodeId)>,
    /// Ids of the packets, for the median.
    ids: Slab<NodeId, ()>,
}

/// Packets of flows that have a rank each. A flow's number is that of its oldest packet for service, and of its newest for drops.
#[derive(Debug, Default)]
struct RankedFlows {
    packets: Flows,
    /// By node: number in the order of arrival.
    numbers: Vec<u64>,
    first: Heap<SlotId, Reverse<Key>>,
    last: Heap<SlotId, Key>,
}

/// A packet that was drawn, for a [`QueueSlot`].
struct Drawn {
    place: u32,
    /// The last bits of its number, which another packet that has got the place does not share.
    number: u32,
}

impl From<Drawn> for QueueSlot {
    fn from(drawn: Drawn) -> Self {
        Self(u64::from(drawn.place) << 32 | u64::from(drawn.number))
    }
}

impl From<QueueSlot> for Drawn {
    fn from(slot: QueueSlot) -> Self {
        Self { place: (slot.0 >> 32) as u32, number: slot.0 as u32 }
    }
}

/// A packet that has left.
struct Removed {
    pkt: Packet,
    node: NodeId,
    /// Its rank, or its flow's.
    rank: u64,
}

/// Median of the ranks, computed from the first time that it is needed.
#[derive(Debug)]
enum MedianState {
    /// Not needed: packets without TCP have a given rank.
    Given,
    /// Only TCP packets with individual ranks so far; the last to leave had this rank.
    Deferred(u64),
    /// By node of the packets.
    Known(Median<NodeId>),
}

impl Ranked {
    /// An empty queue with the parameters [`ORDER`] and [`OTHER`].
    pub fn new(values: &Values) -> Self {
        let by_flow = values.name("order") == "flow";
        Self {
            waiting: if by_flow {
                Waiting::Flows(RankedFlows::default())
            } else {
                Waiting::Packets(Packets::default())
            },
            arrivals: 0,
            median: match (values.number("other") < 1.0, by_flow) {
                (false, _) => MedianState::Given,
                (true, false) => MedianState::Deferred(0),
                (true, true) => MedianState::Known(Median::default()),
            },
        }
    }

    /// Returns the median rank of the TCP packets; `None` if packets without TCP have a given rank. The first call
    /// sorts the waiting packets, which spares pure TCP queues the cost.
    pub fn median(&mut self) -> Option<u64> {
        if let (MedianState::Deferred(last), Waiting::Packets(packets)) = (&self.median, &self.waiting) {
            let mut median = Median::after(*last);
            for &(key, (_, node)) in packets.order.iter() {
                median.add(node, key.rank);
            }
            self.median = MedianState::Known(median);
        }
        match &self.median {
            MedianState::Known(median) => Some(median.get()),
            _ => None,
        }
    }

    /// Adds a packet of this rank, and drops packets for which there is no room.
    pub fn push(&mut self, pkt: &Packet, rank: u64, cx: &mut Context<'_>, out: &mut dyn SchedulerHost) {
        debug_assert!(
            pkt.tcp.is_some() || !matches!(self.median, MedianState::Deferred(_)),
            "a packet without TCP arrived before the median was computed"
        );
        let key = Key { rank, number: self.arrivals };
        self.arrivals += 1;
        let node = match &mut self.waiting {
            Waiting::Packets(packets) => packets.push(pkt, key),
            Waiting::Flows(flows) => flows.push(pkt, key),
        };
        if pkt.tcp.is_some()
            && let MedianState::Known(median) = &mut self.median
        {
            median.add(node, rank);
        }
        make_room(cx, pkt, out, || {
            let removed = match &mut self.waiting {
                Waiting::Packets(packets) => packets.pop_last(),
                Waiting::Flows(flows) => flows.pop_last(),
            };
            Some(self.left(removed?))
        });
    }

    /// Removes the packet that leaves next.
    pub fn pop(&mut self) -> Option<Packet> {
        let removed = match &mut self.waiting {
            Waiting::Packets(packets) => packets.pop_first(),
            Waiting::Flows(flows) => flows.pop_first(),
        };
        Some(self.left(removed?))
    }

    /// Returns the packet that leaves next.
    pub fn peek(&self) -> Option<&Packet> {
        match &self.waiting {
            Waiting::Packets(packets) => packets.order.first().map(|(_, (pkt, _))| pkt),
            Waiting::Flows(flows) => Some(flows.packets.packet(flows.next()?)),
        }
    }

    /// Returns a packet drawn uniformly.
    pub fn sample(&self, rng: &mut Rng) -> Option<(QueueSlot, &Packet)> {
        match &self.waiting {
            Waiting::Packets(packets) => packets.sample(rng),
            Waiting::Flows(flows) => flows.packets.sample(rng).map(|(node, pkt)| (node.into(), pkt)),
        }
    }

    /// Removes the packet that [`Ranked::sample`] has just returned.
    pub fn remove(&mut self, slot: QueueSlot) -> Option<Packet> {
        let removed = match &mut self.waiting {
            Waiting::Packets(packets) => packets.remove(slot.into()),
            Waiting::Flows(flows) => flows.remove(slot.into()),
        };
        Some(self.left(removed?))
    }

    /// Takes note of a packet that has left.
    #[inline]
    fn left(&mut self, removed: Removed) -> Packet {
        let Removed { pkt, node, rank } = removed;
        match &mut self.median {
            MedianState::Known(median) if pkt.tcp.is_some() => median.remove(node),
            MedianState::Deferred(last) => *last = rank,
            _ => {}
        }
        pkt
    }
}

impl Packets {
    fn push(&mut self, pkt: &Packet, key: Key) -> NodeId {
        let node = self.ids.insert(());
        self.order.insert(key, (*pkt, node));
        node
    }

    fn pop_first(&mut self) -> Option<Removed> {
        self.order.pop_first().map(|entry| self.free(entry))
    }

    fn pop_last(&mut self) -> Option<Removed> {
        self.order.pop_last().map(|entry| self.free(entry))
    }

    fn sample(&self, rng: &mut Rng) -> Option<(QueueSlot, &Packet)> {
        let (place, (key, (pkt, _))) = self.order.sample(rng)?;
        Some((Drawn { place: place as u32, number: key.number as u32 }.into(), pkt))
    }

    fn remove(&mut self, drawn: Drawn) -> Option<Removed> {
        let place = drawn.place as usize;
        let is_there = self.order.key(place)?.number as u32 == drawn.number;
        is_there.then(|| self.order.remove(place)).flatten().map(|entry| self.free(entry))
    }

    /// Frees the id of a removed packet.
    #[inline]
    fn free(&mut self, (key, (pkt, node)): (Key, (Packet, NodeId))) -> Removed {
        self.ids.remove(node);
        Removed { pkt, node, rank: key.rank }
    }
}

impl RankedFlows {
    fn push(&mut self, pkt: &Packet, key: Key) -> NodeId {
        let (node, slot) = self.packets.push(pkt);
        let index = node.index() as usize;
        if self.numbers.len() <= index {
            self.numbers.resize(index + 1, 0);
        }
        self.numbers[index] = key.number;
        self.rank(slot, key.rank);
        node
    }

    fn next(&self) -> Option<NodeId> {
        self.packets.head(self.first.first()?.1)
    }

    fn pop_first(&mut self) -> Option<Removed> {
        self.remove(self.next()?)
    }

    fn pop_last(&mut self) -> Option<Removed> {
        self.remove(self.packets.tail(self.last.first()?.1)?)
    }

    fn remove(&mut self, node: NodeId) -> Option<Removed> {
        let slot = self.packets.slot_of(node)?;
        let pkt = self.packets.remove(node)?;
        let rank = self.last.key(slot)?.rank;
        self.rank(slot, rank);
        Some(Removed { pkt, node, rank })
    }

    /// Ranks a flow by its oldest packet at one end and by its newest at the other, or removes it without packets.
    fn rank(&mut self, slot: SlotId, rank: u64) {
        if let (Some(oldest), Some(newest)) = (self.packets.head(slot), self.packets.tail(slot)) {
            let key = |node: NodeId| Key { rank, number: self.numbers[node.index() as usize] };
            self.first.set(slot, Reverse(key(oldest)));
            self.last.set(slot, key(newest));
        } else {
            self.first.remove(slot);
            self.last.remove(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_units::{Instant, Rate};

    use super::*;
    use crate::{DropReason, FlowId, Limit, Link, QueueState, Tcp, Value};

    /// Waiting packets, in no order: rank, number, handle, flow, and true for TCP.
    #[derive(Default)]
    struct Naive {
        waiting: Vec<(u64, u64, u32, u32, bool)>,
        by_flow: bool,
        arrivals: u64,
    }

    impl Naive {
        fn push(&mut self, handle: u32, flow: u32, rank: u64, tcp: bool) {
            if self.by_flow {
                self.waiting.iter_mut().filter(|other| other.3 == flow).for_each(|other| other.0 = rank);
            }
            self.waiting.push((rank, self.arrivals, handle, flow, tcp));
            self.arrivals += 1;
        }

        fn remove(&mut self, handle: Option<u32>) -> Option<u32> {
            let at = self.waiting.iter().position(|waiting| Some(waiting.2) == handle)?;
            Some(self.waiting.remove(at).2)
        }

        /// A packet of a flow that is ranked as a whole leaves in its order, and is dropped as the newest of its flow:
        /// as their ranks are equal, this is again the order of rank and number.
        fn first(&self) -> Option<u32> {
            self.waiting.iter().min().map(|waiting| waiting.2)
        }

        fn last(&self) -> Option<u32> {
            self.waiting.iter().max().map(|waiting| waiting.2)
        }
    }

    #[derive(Default)]
    struct Lost(Vec<Packet>);

    impl SchedulerHost for Lost {
        fn dropped(&mut self, pkt: Packet, _: DropReason) {
            self.0.push(pkt);
        }

        fn mark(&mut self, pkt: Packet) -> Option<Packet> {
            Some(pkt)
        }
    }

    /// Compared with a list that is searched: packets arrive, some without room, leave, and are removed. Ranks are few,
    /// so that many are equal; flows begin and end.
    #[test]
    fn order_matches_a_list_that_is_searched() {
        for (order, seed) in [("packet", 1), ("packet", 2), ("flow", 3), ("flow", 4)] {
            let link = Link { capacity: Rate::from_bps(1_000_000), mean_packet: 1000.0 };
            let given = |name: &str| (name == "order").then_some(Value::Name(order));
            const PARAMS: &[Param] = &[ORDER, OTHER];
            let mut ranked = Ranked::new(&Values::resolve(PARAMS, &link, &given).unwrap());
            let mut naive = Naive { by_flow: order == "flow", ..Naive::default() };
            let mut rng = Rng::stream(seed, "ranked", 0, "test");
            let mut own = Rng::stream(seed, "ranked", 0, "sample");
            for handle in 0..20_000_u32 {
                let (packets, limit) = (naive.waiting.len() as u32, Limit { packets: 40, bytes: u64::MAX });
                let bytes = u64::from(packets) * 1000;
                let state = QueueState { packets, bytes, limit, ..QueueState::empty(link.capacity) };
                match rng.below(20) {
                    0..12 => {
                        let (flow, rank) = (rng.below(10) as u32 + handle / 1000, rng.below(15));
                        let tcp = (handle <= 10_001 || rng.below(3) > 0).then_some(Tcp {
                            window: 0,
                            seq: 0,
                            syn: false,
                        });
                        let pkt = Packet { tcp, ..Packet::new(1000, FlowId(flow), handle) };
                        let (mut lost, mut cx) =
                            (Lost::default(), Context::new(Instant::ZERO, &state, &mut own));
                        ranked.push(&pkt, rank, &mut cx, &mut lost);
                        naive.push(handle, flow, rank, tcp.is_some());
                        let expected = (packets == 40).then(|| naive.last()).flatten();
                        assert_eq!(lost.0.first().map(|pkt| pkt.handle), naive.remove(expected));
                    }
                    12..19 => {
                        let expected = naive.first();
                        assert_eq!(ranked.peek().map(|pkt| pkt.handle), expected);
                        assert_eq!(ranked.pop().map(|pkt| pkt.handle), naive.remove(expected));
                    }
                    _ => {
                        let shown = ranked.sample(&mut own).map(|(slot, pkt)| (slot, pkt.handle));
                        assert_eq!(shown.is_none(), naive.waiting.is_empty());
                        let Some((slot, handle)) = shown else { continue };
                        assert_eq!(ranked.remove(slot).map(|pkt| pkt.handle), naive.remove(Some(handle)));
                    }
                }
                // The median is not used in the first half; then it is found among the waiting packets.
                if order == "packet" && handle > 10_000 {
                    // If flows are ranked, a packet's rank has changed since its arrival and differs from the list's.
                    let mut ranks: Vec<_> = naive.waiting.iter().filter(|w| w.4).map(|w| w.0).collect();
                    ranks.sort_unstable();
                    let middle = ranks.get(ranks.len().saturating_sub(1) / 2).copied();
                    assert_eq!(middle.unwrap_or(ranked.median().unwrap()), ranked.median().unwrap());
                }
            }
        }
    }
}
