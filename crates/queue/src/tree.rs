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
//!    that is more, at most its peak rate. A packet of `b` bytes served under the guarantee moves the child's eligible time
//!    by `b / G`. Of the children whose eligible time has come, the one with the earliest deadline is served, `L / G` after
//!    the eligible time with `L` the longest packet (virtual clock: Zhang 1990; eligible time and deadline: Stoica, Zhang
//!    & Ng 1997, section IV). The clock that eligible times are compared with stops at most [`CATCH_UP`] ahead of the first
//!    deadline: if the carrier is too slow for all guarantees, each child gets the same part of its rate, and when the
//!    carrier recovers no child catches up for longer than that.
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
//! *Delay.* If the committed rates fit the carrier of rate `C`, a packet that finds its leaf empty and comes no faster than
//! the leaf's `G` has been sent after `L / G` of the leaf, `2 L / G` of each node between leaf and root, and `2 L / C`;
//! where a node has a peak rate, `L / PIR` more. This holds if all but the leaf's own `L / G` is below [`CATCH_UP`].
//!
//! *Work.* Each operation takes logarithmic time in the number of children, times the depth; a decision also moves the
//! children whose eligible time has come, once for each packet that they sent. Packets allocate nothing.
//!
//! *Departures.* The length of a packet is known after it is chosen, so deadlines take the longest sent so far. Eligible times
//! belong to each inner node and not to leaves alone as in HFSC: committed rates of inner nodes then hold whatever the leaves
//! ask for, at the price of `2 L / G` for each level.

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
const TAG: u128 = 1 << 16;

/// Start tags of a node's children are reduced beyond this one.
const LAST_TAG: u64 = 1 << 62;

/// Branches of a heap: the keys of one step are in one or two cache lines.
const BRANCHES: usize = 4;

/// Longest packet until a longer one is sent [bytes].
const LONGEST: u32 = 1500;

/// Share of a node in its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Committed rate; zero for none.
    pub cir: Rate,
    /// Peak rate, not zero; `None` for none.
    pub pir: Option<Rate>,
    /// Weight in what the committed rates leave, at least 1.
    pub weight: u32,
    /// Bytes that may exceed the peak rate at once [bytes]. Below the bytes of two packets and of the host's tick, a node that
    /// competes with others does not reach its peak rate.
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
    /// All leaves with packets are at a peak rate, at least until then.
    Wait(Instant),
    /// No leaf has packets.
    Idle,
}

/// Place of a node that is in no heap.
const OUTSIDE: u32 = u32::MAX;

/// The heaps of an inner node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// Children with a guarantee whose eligible time has not come.
    Eligible = 0,
    /// Children with a guarantee whose eligible time has come.
    Deadline = 1,
    /// All children.
    Start = 2,
}

#[derive(Clone, Debug)]
struct Node {
    parent: Option<NodeId>,
    share: Share,
    children: u32,
    /// Children with packets below them, at a peak rate or not.
    active_children: u32,
    /// Children with packets below them that are not at a peak rate.
    heaps: [Vec<(u64, NodeId)>; 3],
    /// Its places in the heaps of its parent.
    places: [u32; 3],
    /// True if the leaf's queue has packets.
    is_backlogged: bool,
    /// True if there are packets in its queue or below it.
    is_active: bool,
    /// True if it is in its parent's choice.
    is_ready: bool,
    /// True if the last choice was by its guarantee.
    by_guarantee: bool,
    /// Guaranteed rate [bit/s], and what of it the parent counts.
    guarantee: u64,
    counted: u64,
    /// Sum of what its children count [bit/s].
    sum: u64,
    /// Eligible time and deadline in the parent's clock [ns], and the rate that its distance from the clock refers to [bit/s].
    eligible: u64,
    deadline: u64,
    paced: u64,
    /// Start tag, and the greatest start tag served among its children.
    start: u64,
    served: u64,
    /// Clock of its children's eligible times [ns], and the time at which it was last set [ns].
    clock: u64,
    clock_at: u64,
    /// Time up to which the peak rate is used [ns]; the time at which it is in the choice again, if it is not.
    peak: u64,
    blocked_until: Option<u64>,
}

impl Node {
    fn new(parent: Option<NodeId>, share: Share) -> Self {
        Self {
            parent,
            share,
            children: 0,
            active_children: 0,
            heaps: [const { Vec::new() }; 3],
            places: [OUTSIDE; 3],
            is_backlogged: false,
            is_active: false,
            is_ready: false,
            by_guarantee: false,
            guarantee: 0,
            counted: 0,
            sum: 0,
            eligible: 0,
            deadline: 0,
            paced: 0,
            start: 0,
            served: 0,
            clock: 0,
            clock_at: 0,
            peak: 0,
            blocked_until: None,
        }
    }

    /// The guaranteed rate, from its own and its children's.
    fn guaranteed(&self) -> u64 {
        let rate = self.share.cir.as_bps().max(self.sum);
        self.share.pir.map_or(rate, |pir| rate.min(pir.as_bps()))
    }

    /// Lets the distance of the eligible time from the clock be the same bytes at the present guarantee.
    fn pace(&mut self, clock: u64) {
        let scaled = |distance: u64| {
            let distance = u128::from(distance) * u128::from(self.paced) / u128::from(self.guarantee);
            u64::try_from(distance).unwrap_or(u64::MAX)
        };
        self.eligible = if self.eligible > clock {
            clock.saturating_add(scaled(self.eligible - clock))
        } else {
            clock.saturating_sub(scaled(clock - self.eligible).min(CATCH_UP.as_nanos()))
        };
        self.paced = self.guarantee;
    }

    /// Takes `bytes` from the bucket of the peak rate. Returns true if it is empty.
    fn spend(&mut self, bytes: u32, pir: Rate, now: u64) -> bool {
        self.peak = self.peak.max(now).saturating_add(pir.time_to_send(u64::from(bytes)).as_nanos());
        self.block(pir, now)
    }

    /// Sets the time at which the bucket of the peak rate allows another packet. Returns true if that is later than `now`.
    fn block(&mut self, pir: Rate, now: u64) -> bool {
        let until = self.peak.saturating_sub(pir.time_to_send(self.share.burst).as_nanos());
        self.blocked_until = (until > now).then_some(until);
        until > now
    }

    fn key(&self, by: By) -> u64 {
        match by {
            By::Eligible => self.eligible,
            By::Deadline => self.deadline,
            By::Start => self.start,
        }
    }
}

/// Time that `bytes` take at `rate`, rounded down [ns].
fn time(bytes: u32, rate: u64) -> u64 {
    let ns = u128::from(bytes) * 8_000_000_000 / u128::from(rate.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// A tree of shares in a carrier.
#[derive(Clone, Debug)]
pub struct ShareTree {
    nodes: IdVec<NodeId, Node>,
    free: Vec<NodeId>,
    /// Nodes at their peak rate, by the time at which they are in the choice again [ns].
    blocked: BinaryHeap<Reverse<(u64, u32)>>,
    /// Longest packet [bytes].
    longest: u32,
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
        Self { nodes, free: Vec::new(), blocked: BinaryHeap::new(), longest: LONGEST }
    }

    /// The root: the carrier. Its share is not used.
    #[must_use]
    pub fn root(&self) -> NodeId {
        NodeId::new(0)
    }

    /// Adds a node. The parent is the root, an inner node, or a leaf whose queue is empty, which becomes an inner node.
    pub fn add(&mut self, parent: NodeId, share: Share) -> NodeId {
        debug_assert!(!self.nodes[parent].is_backlogged, "a leaf with packets becomes an inner node");
        let above = &mut self.nodes[parent];
        above.children += 1;
        for heap in &mut above.heaps {
            heap.reserve(above.children as usize - heap.len());
        }
        let mut node = Node::new(Some(parent), share);
        node.guarantee = node.guaranteed();
        let id = match self.free.pop() {
            Some(id) => {
                self.nodes[id] = node;
                id
            }
            None => self.nodes.push(node),
        };
        self.blocked.reserve((2 * self.nodes.len()).saturating_sub(self.blocked.len()));
        id
    }

    /// Changes the share of a node from now on. What it has used of its former rates counts in bytes.
    pub fn set(&mut self, id: NodeId, share: Share, now: Instant) {
        let node = &mut self.nodes[id];
        let former = std::mem::replace(&mut node.share, share).pir.map_or(0, Rate::as_bps);
        let used = u128::from(node.peak.saturating_sub(now.as_nanos())) * u128::from(former);
        let was_blocked = node.blocked_until.take();
        node.peak = 0;
        if let Some(pir) = share.pir {
            let used = u64::try_from(used / u128::from(pir.as_bps().max(1))).unwrap_or(u64::MAX);
            node.peak = now.as_nanos().saturating_add(used);
            if node.block(pir, now.as_nanos()) && node.blocked_until != was_blocked {
                self.push_blocked(id);
            }
        }
        self.update(id, now);
    }

    /// Removes a leaf, packets or not; its id may be given to the next node that is added.
    pub fn remove(&mut self, id: NodeId, now: Instant) {
        debug_assert!(self.nodes[id].children == 0, "an inner node is removed");
        self.deactivate(id, now);
        let Some(parent) = self.nodes[id].parent.take() else { return };
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
        if !self.nodes[id].is_active {
            return Next::Idle;
        }
        if !self.nodes[id].is_ready {
            return self.blocked.peek().map_or(Next::Idle, |Reverse((at, _))| {
                Next::Wait(Instant::ZERO + Duration::from_nanos(*at))
            });
        }
        while self.nodes[id].children > 0 {
            let clock = self.advance(id, now);
            while let Some((eligible, child)) = self.first(id, By::Eligible)
                && eligible <= clock
            {
                self.take(id, By::Eligible, child);
                self.insert_guaranteed(id, child);
            }
            let due = self.first(id, By::Deadline);
            let Some((_, child)) = due.or(self.first(id, By::Start)) else { return Next::Idle };
            self.nodes[child].by_guarantee = due.is_some();
            id = child;
        }
        Next::Leaf(id)
    }

    /// Charges a packet that the leaf of the last [`ShareTree::next`] sent: `bytes` to the rates, `cost` to the weights.
    pub fn charge(&mut self, leaf: NodeId, bytes: u32, cost: u64, now: Instant) {
        self.longest = self.longest.max(bytes);
        let mut id = leaf;
        while let Some(parent) = self.nodes[id].parent {
            let node = &mut self.nodes[id];
            if node.by_guarantee && node.guarantee > 0 {
                node.eligible = node.eligible.saturating_add(time(bytes, node.guarantee));
                if self.take_guaranteed(parent, id) {
                    self.insert_guaranteed(parent, id);
                }
            } else {
                let start = node.start;
                let weight = u128::from(node.share.weight.max(1));
                let tag = (u128::from(cost) * TAG / weight).clamp(1, LAST_TAG.into());
                node.start = start + tag as u64;
                let last = node.start;
                self.sift(parent, By::Start, id);
                let served = &mut self.nodes[parent].served;
                *served = start.max(*served);
                if last > LAST_TAG {
                    self.reduce_tags(parent);
                }
            }
            let node = &mut self.nodes[id];
            if let Some(pir) = node.share.pir
                && node.spend(bytes, pir, now.as_nanos())
            {
                self.push_blocked(id);
            }
            id = parent;
        }
        // Only after all nodes are charged, since a node that leaves the choice changes those above.
        let mut id = leaf;
        while let Some(parent) = self.nodes[id].parent {
            if self.nodes[id].blocked_until.is_some() {
                self.update(id, now);
            }
            id = parent;
        }
    }

    /// True if no leaf has packets.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        !self.nodes[self.root()].is_active
    }

    // ----- choice --------------------------------------------------------------------------------------------

    /// Notes the time at which a node is in the choice again.
    fn push_blocked(&mut self, id: NodeId) {
        if self.blocked.len() >= 2 * self.nodes.len() {
            let nodes = &self.nodes;
            self.blocked.retain(|Reverse((at, index))| nodes[NodeId::new(*index)].blocked_until == Some(*at));
        }
        if let Some(until) = self.nodes[id].blocked_until {
            self.blocked.push(Reverse((until, id.index())));
        }
    }

    /// Lets nodes back whose peak rate allows another packet.
    fn unblock(&mut self, now: Instant) {
        while let Some(&Reverse((at, index))) = self.blocked.peek() {
            let id = NodeId::new(index);
            let is_current = self.nodes[id].blocked_until == Some(at);
            if is_current && at > now.as_nanos() {
                return;
            }
            self.blocked.pop();
            if is_current {
                self.nodes[id].blocked_until = None;
                self.update(id, now);
            }
        }
    }

    /// Advances the clock of a node's children.
    fn advance(&mut self, id: NodeId, now: Instant) -> u64 {
        let first = |by| self.first(id, by).map(|(at, _)| at);
        let most = match (first(By::Eligible), first(By::Deadline)) {
            (Some(a), Some(b)) => a.min(b),
            (one, other) => one.or(other).unwrap_or(u64::MAX),
        };
        let node = &mut self.nodes[id];
        let passed = now.as_nanos().saturating_sub(std::mem::replace(&mut node.clock_at, now.as_nanos()));
        let most = most.saturating_add(CATCH_UP.as_nanos()).max(node.clock);
        node.clock = node.clock.saturating_add(passed).min(most);
        node.clock
    }

    /// Puts a node into its parent's choice or takes it out, and does what follows from it further up.
    fn update(&mut self, mut id: NodeId, now: Instant) {
        loop {
            let node = &mut self.nodes[id];
            let (is_active, is_served) = match node.children {
                0 => (node.is_backlogged, node.is_backlogged),
                _ => (node.active_children > 0, !node.heaps[By::Start as usize].is_empty()),
            };
            let is_ready = is_served && node.blocked_until.is_none();
            let was_active = std::mem::replace(&mut node.is_active, is_active);
            let was_ready = std::mem::replace(&mut node.is_ready, is_ready);
            node.guarantee = node.guaranteed();
            let counted = if is_active { node.guarantee } else { 0 };
            let before = std::mem::replace(&mut node.counted, counted);
            let Some(parent) = node.parent else { return };
            if (is_active, is_ready, counted) == (was_active, was_ready, before) {
                return;
            }
            let clock = self.advance(parent, now);
            if counted != before || is_ready != was_ready {
                let was_guaranteed = self.take_guaranteed(parent, id);
                let first_deadline = self.first(parent, By::Deadline).map(|(at, _)| at);
                let node = &mut self.nodes[id];
                if counted > 0 && node.paced != counted {
                    node.pace(clock);
                }
                if is_ready && counted > 0 {
                    if !was_guaranteed {
                        // In an overload, beside its siblings and not behind them.
                        let join = first_deadline.unwrap_or(clock).min(clock);
                        node.eligible = node.eligible.max(join);
                    }
                    self.insert_guaranteed(parent, id);
                }
            }
            if is_ready && !was_ready {
                let served = self.nodes[parent].served;
                let node = &mut self.nodes[id];
                node.start = node.start.max(served);
                self.insert(parent, By::Start, id);
            } else if was_ready && !is_ready {
                self.take(parent, By::Start, id);
            }
            let above = &mut self.nodes[parent];
            above.active_children = above.active_children + u32::from(is_active) - u32::from(was_active);
            above.sum = above.sum - before + counted;
            id = parent;
        }
    }

    // ----- heaps ---------------------------------------------------------------------------------------------

    /// The least key and its child.
    fn first(&self, parent: NodeId, by: By) -> Option<(u64, NodeId)> {
        self.nodes[parent].heaps[by as usize].first().copied()
    }

    /// Reduces the start tags of all children by the greatest one served.
    fn reduce_tags(&mut self, parent: NodeId) {
        let served = std::mem::take(&mut self.nodes[parent].served);
        for node in self.nodes.iter_mut().filter(|node| node.parent == Some(parent)) {
            node.start = node.start.saturating_sub(served);
        }
        for (start, _) in &mut self.nodes[parent].heaps[By::Start as usize] {
            *start = start.saturating_sub(served);
        }
    }

    /// Puts a child with a guarantee into the heap in which its eligible time belongs.
    fn insert_guaranteed(&mut self, parent: NodeId, id: NodeId) {
        let (longest, clock) = (self.longest, self.nodes[parent].clock);
        let node = &mut self.nodes[id];
        node.deadline = node.eligible.saturating_add(time(longest, node.guarantee));
        let by = if node.eligible <= clock { By::Deadline } else { By::Eligible };
        self.insert(parent, by, id);
    }

    /// Takes a child from the heaps of those with a guarantee. Returns true if it was in one.
    fn take_guaranteed(&mut self, parent: NodeId, id: NodeId) -> bool {
        let by = match self.nodes[id].places {
            [OUTSIDE, OUTSIDE, _] => return false,
            [OUTSIDE, ..] => By::Deadline,
            _ => By::Eligible,
        };
        self.take(parent, by, id);
        true
    }

    fn insert(&mut self, parent: NodeId, by: By, id: NodeId) {
        let key = self.nodes[id].key(by);
        let heap = &mut self.nodes[parent].heaps[by as usize];
        heap.push((key, id));
        let place = heap.len() - 1;
        self.sift_from(parent, by, place);
    }

    fn take(&mut self, parent: NodeId, by: By, id: NodeId) {
        let place = std::mem::replace(&mut self.nodes[id].places[by as usize], OUTSIDE) as usize;
        let heap = &mut self.nodes[parent].heaps[by as usize];
        heap.swap_remove(place);
        if place < heap.len() {
            self.sift_from(parent, by, place);
        }
    }

    /// Restores the order of a heap after the key of one child has changed.
    fn sift(&mut self, parent: NodeId, by: By, id: NodeId) {
        let node = &self.nodes[id];
        let (place, key) = (node.places[by as usize], node.key(by));
        if place != OUTSIDE {
            self.nodes[parent].heaps[by as usize][place as usize].0 = key;
            self.sift_from(parent, by, place as usize);
        }
    }

    /// Moves the entry at a place up or down to where it belongs. Entries with equal keys are in order of their ids.
    fn sift_from(&mut self, parent: NodeId, by: By, mut place: usize) {
        let mut heap = std::mem::take(&mut self.nodes[parent].heaps[by as usize]);
        let own = heap[place];
        while place > 0 && own < heap[(place - 1) / BRANCHES] {
            let above = (place - 1) / BRANCHES;
            heap[place] = heap[above];
            self.nodes[heap[place].1].places[by as usize] = place as u32;
            place = above;
        }
        loop {
            let first = BRANCHES * place + 1;
            let Some(below) = (first..heap.len().min(first + BRANCHES)).min_by_key(|&below| heap[below])
            else {
                break;
            };
            if own <= heap[below] {
                break;
            }
            heap[place] = heap[below];
            self.nodes[heap[place].1].places[by as usize] = place as u32;
            place = below;
        }
        heap[place] = own;
        self.nodes[own.1].places[by as usize] = place as u32;
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
