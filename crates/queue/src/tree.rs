//! A tree that shares a carrier among queues by committed rate, weight and peak rate.
//!
//! The nodes of a [`ShareTree`] are carrier, plans, terminals, subscribers, to any depth; behind each leaf the host has a
//! queue of any discipline. The tree decides which leaf sends next, and holds no packets:
//!
//! ```text
//! activate(leaf) when its queue is no longer empty
//! next()         Leaf(leaf): the host sends a packet of it, and tells the length with charge(); or, if the queue gave
//!                none, deactivate(leaf)
//!                Wait(until): every backlogged leaf is at a peak rate
//! ```
//!
//! Each inner node chooses among its children that have something to send:
//!
//! 1. *Committed rate.* A child is guaranteed `G`: its own committed rate (CIR), or the sum of its backlogged children's if
//!    that is more. A packet of `b` bytes served under the guarantee moves the child's eligible time by `b / G`; of the
//!    children whose eligible time has come, the earliest is served (virtual clock, Zhang 1990). The time that it is compared
//!    with stops at most [`CATCH_UP`] ahead of the earliest: if the carrier is too slow for all guarantees, each child gets the
//!    same part of its rate, and when the carrier recovers no child catches up for longer than that.
//! 2. *Weight.* Otherwise the child with the least start tag is served, and the packet's cost divided by the weight is added
//!    to the tag (start-time fair queueing: Goyal, Vin & Cheng 1997, section 2). What is served under a guarantee is not
//!    charged here, so weights share what the committed rates leave.
//!
//! A child at its peak rate (PIR), by a token bucket of `burst` bytes, leaves the choice until its bucket allows another
//! packet; so does a node whose children have all left it.
//!
//! Bytes count against CIR and PIR, costs against weights: where a byte to one terminal takes the carrier longer than a byte
//! to another, the cost is that time, and weights share the carrier's time.
//!
//! A packet under the guarantee of all nodes above it is sent within `L / G` of its eligible time at each of them, and a
//! packet's time for each level; `L` is the longest packet. Every operation is logarithmic in the number of children,
//! times the depth, and allocates nothing once all nodes exist.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use bentpipe_units::{Duration, Id, IdVec, Instant, Rate, optional_id_types};

optional_id_types! {
    /// A node of a tree.
    pub NodeId,
}

/// Longest time for which a child may catch up on its committed rate.
pub const CATCH_UP: Duration = Duration::from_millis(200);

/// Units of a start tag for a cost of 1 at weight 1; a weight divides them.
const TAG: u64 = 1 << 16;

/// Share of a node in its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Committed rate; zero for none.
    pub cir: Rate,
    /// Peak rate; `None` for none.
    pub pir: Option<Rate>,
    /// Weight in what the committed rates leave, at least 1.
    pub weight: u32,
    /// Bytes that may exceed the peak rate at once [bytes].
    pub burst: u64,
}

impl Default for Share {
    /// Weight 1, without committed or peak rate.
    fn default() -> Self {
        Self { cir: Rate::from_bps(0), pir: None, weight: 1, burst: 0 }
    }
}

/// A decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// This leaf sends a packet.
    Leaf(NodeId),
    /// All leaves with packets are at a peak rate until then.
    Wait(Instant),
    /// No leaf has packets.
    Idle,
}

/// The heaps of an inner node: children by eligible time, and by start tag.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Eligible = 0,
    Start = 1,
}

#[derive(Clone, Debug)]
struct Node {
    parent: Option<NodeId>,
    share: Share,
    children: u32,
    /// Backlogged children that are not at their peak rate, as two heaps: those with a guarantee, and all.
    heaps: [Vec<NodeId>; 2],
    /// Its places in the heaps of its parent; `u32::MAX` outside.
    places: [u32; 2],
    /// True if the leaf's queue has packets.
    is_backlogged: bool,
    /// True if it is in its parent's choice.
    is_ready: bool,
    /// Guaranteed rate [bit/s], and what of it the parent counts.
    guarantee: u64,
    counted: u64,
    /// Sum of what its children count [bit/s].
    sum: u64,
    /// Eligible time in the parent's clock [ns], and start tag.
    eligible: u64,
    start: u64,
    /// True if the last choice was by its guarantee.
    by_guarantee: bool,
    /// Clock of its children's eligible times [ns], when it was last set [ns], and start tag last served.
    clock: u64,
    clock_at: u64,
    served: u64,
    /// Time up to which the peak rate is used [ns]; the time at which it is in the choice again, if it is not.
    peak: u64,
    blocked_until: Option<u64>,
}

impl Node {
    fn new(parent: Option<NodeId>, share: Share) -> Self {
        let mut node = Self {
            parent,
            share,
            children: 0,
            heaps: [Vec::new(), Vec::new()],
            places: [u32::MAX; 2],
            is_backlogged: false,
            is_ready: false,
            guarantee: 0,
            counted: 0,
            sum: 0,
            eligible: 0,
            start: 0,
            by_guarantee: false,
            clock: 0,
            clock_at: 0,
            served: 0,
            peak: 0,
            blocked_until: None,
        };
        node.guarantee = node.guaranteed();
        node
    }

    /// The guaranteed rate, from its own and its children's.
    fn guaranteed(&self) -> u64 {
        let rate = self.share.cir.as_bps().max(self.sum);
        self.share.pir.map_or(rate, |pir| rate.min(pir.as_bps()))
    }

    fn key(&self, by: By) -> u64 {
        match by {
            By::Eligible => self.eligible,
            By::Start => self.start,
        }
    }
}

/// Time that `bytes` take at `rate` [ns].
fn time(bytes: u64, rate: u64) -> u64 {
    let ns = u128::from(bytes) * 8_000_000_000 / u128::from(rate.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX / 4)
}

/// A tree of shares in a carrier.
#[derive(Clone, Debug)]
pub struct ShareTree {
    nodes: IdVec<NodeId, Node>,
    free: Vec<NodeId>,
    /// Nodes at their peak rate, by the time at which they are in the choice again [ns].
    blocked: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Default for ShareTree {
    fn default() -> Self {
        Self::new()
    }
}

impl ShareTree {
    /// A tree of a root.
    #[must_use]
    pub fn new() -> Self {
        let mut nodes = IdVec::default();
        nodes.push(Node::new(None, Share::default()));
        Self { nodes, free: Vec::new(), blocked: BinaryHeap::new() }
    }

    /// The root.
    #[must_use]
    pub fn root(&self) -> NodeId {
        NodeId::new(0)
    }

    /// Adds a node. The parent is the root, an inner node, or a leaf whose queue is empty, which becomes an inner node.
    pub fn add(&mut self, parent: NodeId, share: Share) -> NodeId {
        debug_assert!(!self.nodes[parent].is_backlogged, "a leaf with packets becomes an inner node");
        self.nodes[parent].children += 1;
        let node = Node::new(Some(parent), share);
        match self.free.pop() {
            Some(id) => {
                self.nodes[id] = node;
                id
            }
            None => self.nodes.push(node),
        }
    }

    /// Changes the share of a node from now on.
    pub fn set(&mut self, id: NodeId, share: Share, now: Instant) {
        let node = &mut self.nodes[id];
        node.share = share;
        if share.pir.is_none() {
            node.blocked_until = None;
        }
        self.update(id, now);
    }

    /// Removes a leaf, packets or not; its id may be given to the next node that is added.
    pub fn remove(&mut self, id: NodeId, now: Instant) {
        debug_assert!(self.nodes[id].children == 0, "an inner node is removed");
        self.deactivate(id, now);
        let Some(parent) = self.nodes[id].parent else { return };
        self.nodes[id].blocked_until = None;
        self.nodes[parent].children -= 1;
        self.free.push(id);
    }

    /// Reports that a leaf's queue has packets.
    pub fn activate(&mut self, id: NodeId, now: Instant) {
        if !std::mem::replace(&mut self.nodes[id].is_backlogged, true) {
            self.update(id, now);
        }
    }

    /// Reports that a leaf's queue is empty.
    pub fn deactivate(&mut self, id: NodeId, now: Instant) {
        if std::mem::replace(&mut self.nodes[id].is_backlogged, false) {
            self.update(id, now);
        }
    }

    /// Decides which leaf sends next.
    pub fn next(&mut self, now: Instant) -> Next {
        self.unblock(now);
        let mut id = self.root();
        if !self.nodes[id].is_ready {
            return self.blocked.peek().map_or(Next::Idle, |Reverse((at, _))| {
                Next::Wait(Instant::ZERO + Duration::from_nanos(*at))
            });
        }
        while self.nodes[id].children > 0 {
            let clock = self.advance(id, now);
            let [eligible, start] = &self.nodes[id].heaps;
            let due = eligible.first().copied().filter(|&child| self.nodes[child].eligible <= clock);
            let Some(child) = due.or(start.first().copied()) else { return Next::Idle };
            self.nodes[child].by_guarantee = due.is_some();
            id = child;
        }
        Next::Leaf(id)
    }

    /// Charges a packet that the leaf of the last [`ShareTree::next`] sent: `bytes` to the rates, `cost` to the weights.
    pub fn charge(&mut self, leaf: NodeId, bytes: u32, cost: u64, now: Instant) {
        let mut id = leaf;
        while let Some(parent) = self.nodes[id].parent {
            let node = &mut self.nodes[id];
            if node.by_guarantee {
                node.eligible = node.eligible.saturating_add(time(u64::from(bytes), node.guarantee));
                self.sift(parent, By::Eligible, id);
            } else {
                let start = node.start;
                node.start = start
                    .saturating_add((cost.saturating_mul(TAG) / u64::from(node.share.weight.max(1))).max(1));
                self.sift(parent, By::Start, id);
                let served = &mut self.nodes[parent].served;
                *served = start.max(*served);
            }
            if let Some(pir) = self.nodes[id].share.pir {
                let node = &mut self.nodes[id];
                node.peak =
                    node.peak.max(now.as_nanos()).saturating_add(time(u64::from(bytes), pir.as_bps()));
                let until = node.peak.saturating_sub(time(node.share.burst, pir.as_bps()));
                if until > now.as_nanos() {
                    node.blocked_until = Some(until);
                    self.blocked.push(Reverse((until, id.index())));
                    self.update(id, now);
                }
            }
            id = parent;
        }
    }

    /// True if no leaf has packets.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        !self.nodes[self.root()].is_ready && self.blocked.is_empty()
    }

    // ----- choice --------------------------------------------------------------------------------------------

    /// Lets nodes back whose peak rate allows another packet.
    fn unblock(&mut self, now: Instant) {
        while let Some(&Reverse((at, index))) = self.blocked.peek()
            && at <= now.as_nanos()
        {
            self.blocked.pop();
            let id = NodeId::new(index);
            if self.nodes[id].blocked_until == Some(at) {
                self.nodes[id].blocked_until = None;
                self.update(id, now);
            }
        }
    }

    /// Advances the clock of a node's children.
    fn advance(&mut self, id: NodeId, now: Instant) -> u64 {
        let earliest =
            self.nodes[id].heaps[By::Eligible as usize].first().map(|&child| self.nodes[child].eligible);
        let node = &mut self.nodes[id];
        let passed = now.as_nanos() - std::mem::replace(&mut node.clock_at, now.as_nanos());
        let most = earliest.map_or(u64::MAX, |at| at.saturating_add(CATCH_UP.as_nanos()));
        node.clock = node.clock.saturating_add(passed).min(most.max(node.clock));
        node.clock
    }

    /// Puts a node into its parent's choice or takes it out, and does what follows from it further up.
    fn update(&mut self, mut id: NodeId, now: Instant) {
        loop {
            let node = &mut self.nodes[id];
            let has_packets = if node.children == 0 {
                node.is_backlogged
            } else {
                !node.heaps[By::Start as usize].is_empty()
            };
            let is_ready = has_packets && node.blocked_until.is_none();
            let was_ready = std::mem::replace(&mut node.is_ready, is_ready);
            node.guarantee = node.guaranteed();
            let counted = if is_ready { node.guarantee } else { 0 };
            let before = std::mem::replace(&mut node.counted, counted);
            let Some(parent) = node.parent else { return };
            if is_ready && !was_ready {
                let clock = self.advance(parent, now);
                let served = self.nodes[parent].served;
                let node = &mut self.nodes[id];
                node.eligible = node.eligible.max(clock);
                node.start = node.start.max(served);
                self.insert(parent, By::Start, id);
            }
            if was_ready && !is_ready {
                self.take(parent, By::Start, id);
            }
            if counted > 0 && before == 0 {
                self.insert(parent, By::Eligible, id);
            } else if counted == 0 && before > 0 {
                self.take(parent, By::Eligible, id);
            }
            if is_ready == was_ready && counted == before {
                return;
            }
            let sum = &mut self.nodes[parent].sum;
            *sum = *sum - before + counted;
            id = parent;
        }
    }

    // ----- heaps ---------------------------------------------------------------------------------------------

    fn insert(&mut self, parent: NodeId, by: By, id: NodeId) {
        let heap = &mut self.nodes[parent].heaps[by as usize];
        heap.push(id);
        self.nodes[id].places[by as usize] = self.nodes[parent].heaps[by as usize].len() as u32 - 1;
        self.sift(parent, by, id);
    }

    fn take(&mut self, parent: NodeId, by: By, id: NodeId) {
        let place = std::mem::replace(&mut self.nodes[id].places[by as usize], u32::MAX) as usize;
        let heap = &mut self.nodes[parent].heaps[by as usize];
        heap.swap_remove(place);
        if let Some(&moved) = heap.get(place) {
            self.nodes[moved].places[by as usize] = place as u32;
            self.sift(parent, by, moved);
        }
    }

    /// Restores the order of a heap after the key of one child has changed.
    fn sift(&mut self, parent: NodeId, by: By, id: NodeId) {
        let mut place = self.nodes[id].places[by as usize] as usize;
        if place == u32::MAX as usize {
            return;
        }
        let heap = std::mem::take(&mut self.nodes[parent].heaps[by as usize]);
        let mut heap = heap;
        let key = |nodes: &IdVec<NodeId, Node>, id: NodeId| (nodes[id].key(by), id.index());
        let own = key(&self.nodes, id);
        while place > 0 && own < key(&self.nodes, heap[(place - 1) / 2]) {
            let above = (place - 1) / 2;
            heap[place] = heap[above];
            self.nodes[heap[place]].places[by as usize] = place as u32;
            place = above;
        }
        loop {
            let mut below = 2 * place + 1;
            if below >= heap.len() {
                break;
            }
            if below + 1 < heap.len() && key(&self.nodes, heap[below + 1]) < key(&self.nodes, heap[below]) {
                below += 1;
            }
            if own <= key(&self.nodes, heap[below]) {
                break;
            }
            heap[place] = heap[below];
            self.nodes[heap[place]].places[by as usize] = place as u32;
            place = below;
        }
        heap[place] = id;
        self.nodes[id].places[by as usize] = place as u32;
        self.nodes[parent].heaps[by as usize] = heap;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MBPS: u64 = 1_000_000;

    fn share(cir: u64, pir: Option<u64>, weight: u32) -> Share {
        Share {
            cir: Rate::from_bps(cir * MBPS),
            pir: pir.map(|x| Rate::from_bps(x * MBPS)),
            weight,
            burst: 3000,
        }
    }

    /// Sends packets of 1500 bytes for `seconds` over a carrier of `rate` Mbit/s; the leaves in `busy` always have some.
    /// Returns the mean rate of each [Mbit/s].
    fn rates(tree: &mut ShareTree, busy: &[NodeId], rate: u64, seconds: u64) -> Vec<f64> {
        rates_at(tree, busy, rate, seconds, |_| 1)
    }

    /// The same, where a byte to the i-th leaf costs `cost(i)` times as much.
    fn rates_at(
        tree: &mut ShareTree,
        busy: &[NodeId],
        rate: u64,
        seconds: u64,
        cost: impl Fn(usize) -> u64,
    ) -> Vec<f64> {
        let mut sent = vec![0u64; busy.len()];
        let mut now = Instant::ZERO;
        let end = now + Duration::from_secs(seconds);
        busy.iter().for_each(|leaf| tree.activate(*leaf, now));
        while now < end {
            match tree.next(now) {
                Next::Leaf(leaf) => {
                    let i = busy.iter().position(|other| *other == leaf).unwrap();
                    sent[i] += 1500;
                    tree.charge(leaf, 1500, 1500 * cost(i), now);
                    now += Rate::from_bps(rate * MBPS).time_to_send(1500 * cost(i));
                }
                Next::Wait(until) => {
                    assert!(until > now, "a wait takes time");
                    now = until;
                }
                Next::Idle => break,
            }
        }
        sent.iter().map(|bytes| *bytes as f64 * 8e-6 / seconds as f64).collect()
    }

    fn assert_close(found: &[f64], expected: &[f64], tolerance: f64) {
        for (found, expected) in found.iter().zip(expected) {
            assert!((found / expected - 1.0).abs() < tolerance, "{found} {expected}");
        }
    }

    #[test]
    fn weights_share_what_committed_rates_leave() {
        let mut tree = ShareTree::new();
        let root = tree.root();
        let leaves = [share(4, None, 1), share(0, None, 1), share(0, None, 3)].map(|s| tree.add(root, s));
        // 20 - 4 = 16, by 1 : 1 : 3.
        assert_close(&rates(&mut tree, &leaves, 20, 10), &[4.0 + 3.2, 3.2, 9.6], 0.01);
    }

    #[test]
    fn a_node_never_exceeds_its_peak_rate_and_the_others_get_the_rest() {
        let mut tree = ShareTree::new();
        let root = tree.root();
        let leaves = [share(0, Some(2), 1), share(0, None, 1)].map(|s| tree.add(root, s));
        assert_close(&rates(&mut tree, &leaves, 20, 10), &[2.0, 18.0], 0.01);
        let mut tree = ShareTree::new();
        let leaf = tree.add(tree.root(), share(0, Some(2), 1));
        assert_close(&rates(&mut tree, &[leaf], 20, 10), &[2.0], 0.01);
    }

    #[test]
    fn committed_rates_shrink_in_proportion_when_the_carrier_is_too_slow() {
        let mut tree = ShareTree::new();
        let root = tree.root();
        let leaves = [share(8, None, 1), share(4, None, 100), share(0, None, 100)].map(|s| tree.add(root, s));
        let found = rates(&mut tree, &leaves, 6, 20);
        assert_close(&found[..2], &[4.0, 2.0], 0.01);
        assert!(found[2] < 0.05, "{found:?}");
    }

    /// Two plans of weight 1 and 3 with two terminals each; one terminal of the first plan has 3 Mbit/s committed, which its
    /// plan, which has no committed rate, passes up: 3 + (20 - 3) (1/4) and (20 - 3) (3/4); in the first plan 3 + 4.25 / 2 and
    /// 4.25 / 2.
    #[test]
    fn a_committed_rate_holds_through_the_nodes_above() {
        let mut tree = ShareTree::new();
        let root = tree.root();
        let plans = [share(0, None, 1), share(0, None, 3)].map(|s| tree.add(root, s));
        let leaves = [
            tree.add(plans[0], share(3, None, 1)),
            tree.add(plans[0], share(0, None, 1)),
            tree.add(plans[1], share(0, None, 1)),
            tree.add(plans[1], share(0, None, 1)),
        ];
        assert_close(&rates(&mut tree, &leaves, 20, 20), &[5.125, 2.125, 6.375, 6.375], 0.01);
    }

    /// A byte to the second leaf takes the carrier four times as long: each gets half of the time.
    #[test]
    fn weights_share_the_cost() {
        let mut tree = ShareTree::new();
        let root = tree.root();
        let leaves = [share(0, None, 1), share(0, None, 1)].map(|s| tree.add(root, s));
        let found = rates_at(&mut tree, &leaves, 20, 10, |i| if i == 1 { 4 } else { 1 });
        assert_close(&found, &[10.0, 2.5], 0.01);
    }

    #[test]
    fn a_leaf_that_was_idle_gets_no_more_than_its_share() {
        let mut tree = ShareTree::new();
        let root = tree.root();
        let leaves = [share(2, None, 1), share(0, None, 1)].map(|s| tree.add(root, s));
        rates(&mut tree, &leaves[1..], 20, 10);
        let begin = Instant::ZERO + Duration::from_secs(10);
        leaves.iter().for_each(|leaf| tree.activate(*leaf, begin));
        let (mut now, mut sent) = (begin, [0u64; 2]);
        while now < begin + Duration::from_secs(10) {
            let Next::Leaf(leaf) = tree.next(now) else { panic!("both have packets") };
            sent[usize::from(leaf == leaves[1])] += 1500;
            tree.charge(leaf, 1500, 1500, now);
            now += Rate::from_bps(20 * MBPS).time_to_send(1500);
        }
        let found = sent.map(|bytes| bytes as f64 * 0.8e-6);
        assert_close(&found, &[11.0, 9.0], 0.01);
    }

    #[test]
    fn an_empty_tree_is_idle_and_a_removed_leaf_is_never_chosen() {
        let mut tree = ShareTree::new();
        let now = Instant::ZERO;
        assert_eq!(tree.next(now), Next::Idle);
        let leaf = tree.add(tree.root(), Share::default());
        tree.activate(leaf, now);
        assert_eq!(tree.next(now), Next::Leaf(leaf));
        tree.remove(leaf, now);
        assert_eq!(tree.next(now), Next::Idle);
        assert_eq!(tree.add(tree.root(), Share::default()), leaf);
        assert_eq!(tree.next(now), Next::Idle);
    }
}
