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

mod tournament;

use tournament::Tournaments;

optional_id_types! {
    /// A node of a tree.
    pub NodeId,
}

optional_id_types! {
    /// A node with children.
    InnerId,
}

/// Longest time for which a child may catch up on its committed rate.
pub const CATCH_UP: Duration = Duration::from_millis(200);

/// Units of a start tag for a cost of 1 at weight 1; a weight divides them.
const TAG: u64 = 1 << 16;

/// Start tags of a node's children are reduced beyond this one.
const LAST_TAG: u64 = 1 << 62;

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

/// The orders in which an inner node keeps its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// Children with a guarantee whose eligible time has not come.
    Eligible = 0,
    /// Children with a guarantee whose eligible time has come.
    Deadline = 1,
    /// All children.
    Start = 2,
}

/// A node as a child of its parent; two cache lines.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Node {
    parent: Option<NodeId>,
    /// Its slot at its parent.
    slot: u32,
    /// Its state as a parent; `None` for a leaf.
    inner: Option<InnerId>,
    /// True if the leaf's queue has packets.
    is_backlogged: bool,
    /// True if there are packets in its queue or below it.
    is_active: bool,
    /// True if it is in its parent's choice.
    is_ready: bool,
    /// Order by guarantee in which its parent has it; `None` if in none.
    guaranteed_by: Option<By>,
    share: Share,
    /// Guaranteed rate [bit/s], and what of it the parent counts.
    guarantee: u64,
    counted: u64,
    /// Eligible time in the parent's clock [ns], and the rate that its distance from the clock refers to [bit/s].
    eligible: u64,
    paced: u64,
    /// Start tag.
    start: u64,
    /// Time up to which the peak rate is used [ns]; the time at which it is in the choice again, if it is not.
    peak: u64,
    blocked_until: Option<u64>,
}

const _: () = assert!(size_of::<Node>() == 128);

/// A node as a parent.
#[derive(Clone, Debug, Default)]
struct Inner {
    /// Children by [`By`]: eligible times, deadlines, start tags.
    orders: Tournaments<3>,
    /// True if the last choice was by a guarantee.
    by_guarantee: bool,
    /// Children with packets below them, at a peak rate or not.
    active: u32,
    /// Sum of what its children count [bit/s].
    sum: u64,
    /// The greatest start tag served among its children.
    served: u64,
    /// Clock of its children's eligible times [ns], and the time at which it was last set [ns].
    clock: u64,
    clock_at: u64,
    /// The children by slot; a slot without a child is `free`.
    children: Vec<NodeId>,
    free: Vec<u32>,
}

impl Node {
    fn new(parent: Option<NodeId>, share: Share) -> Self {
        Self {
            parent,
            slot: 0,
            inner: None,
            is_backlogged: false,
            is_active: false,
            is_ready: false,
            guaranteed_by: None,
            share,
            guarantee: 0,
            counted: 0,
            eligible: 0,
            paced: 0,
            start: 0,
            peak: 0,
            blocked_until: None,
        }
    }

    /// The guaranteed rate, from its own and the sum of its children's.
    fn guaranteed(&self, sum: u64) -> u64 {
        let rate = self.share.cir.as_bps().max(sum);
        self.share.pir.map_or(rate, |pir| rate.min(pir.as_bps()))
    }

    /// Lets the distance of the eligible time from the clock be the same bytes at the current guarantee.
    fn pace(&mut self, clock: u64) {
        let distance = scaled(self.eligible.abs_diff(clock), self.paced, self.guarantee);
        self.eligible = if self.eligible > clock {
            clock.saturating_add(distance)
        } else {
            clock.saturating_sub(distance.min(CATCH_UP.as_nanos()))
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
}

/// Time that `bytes` take at `rate`, rounded down [ns].
fn time(bytes: u32, rate: u64) -> u64 {
    scaled(bytes.into(), 8_000_000_000, rate)
}

/// `a * b / c`, rounded down; the division of 64 bits where it does.
fn scaled(a: u64, b: u64, c: u64) -> u64 {
    let c = c.max(1);
    match a.checked_mul(b) {
        Some(product) => product / c,
        None => u64::try_from(u128::from(a) * u128::from(b) / u128::from(c)).unwrap_or(u64::MAX),
    }
}

/// A tree of shares in a carrier.
#[derive(Clone, Debug)]
pub struct ShareTree {
    nodes: IdVec<NodeId, Node>,
    inners: IdVec<InnerId, Inner>,
    free: Vec<NodeId>,
    free_inners: Vec<InnerId>,
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
        Self {
            nodes,
            inners: IdVec::default(),
            free: Vec::new(),
            free_inners: Vec::new(),
            blocked: BinaryHeap::new(),
            longest: LONGEST,
        }
    }

    /// The root: the carrier. Its share is not used.
    #[must_use]
    pub fn root(&self) -> NodeId {
        NodeId::new(0)
    }

    /// Adds a node. The parent is the root, an inner node, or a leaf whose queue is empty, which becomes an inner node.
    pub fn add(&mut self, parent: NodeId, share: Share) -> NodeId {
        debug_assert!(!self.nodes[parent].is_backlogged, "a leaf with packets becomes an inner node");
        let mut node = Node::new(Some(parent), share);
        node.guarantee = node.guaranteed(0);
        let id = match self.free.pop() {
            Some(id) => {
                self.nodes[id] = node;
                id
            }
            None => self.nodes.push(node),
        };
        let inner = self.nodes[parent].inner.unwrap_or_else(|| {
            let inner = self.free_inners.pop().unwrap_or_else(|| self.inners.push(Inner::default()));
            *self.nodes[parent].inner.insert(inner)
        });
        let above = &mut self.inners[inner];
        self.nodes[id].slot = match above.free.pop() {
            Some(slot) => {
                above.children[slot as usize] = id;
                slot
            }
            None => {
                above.children.push(id);
                above.orders.resize(above.children.len());
                above.children.len() as u32 - 1
            }
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
        debug_assert!(self.nodes[id].inner.is_none(), "an inner node is removed");
        self.deactivate(id, now);
        let Some(parent) = self.nodes[id].parent.take() else { return };
        self.nodes[id].blocked_until = None;
        self.free.push(id);
        if let Some(inner) = self.nodes[parent].inner {
            let above = &mut self.inners[inner];
            above.free.push(self.nodes[id].slot);
            if above.free.len() == above.children.len() {
                *above = Inner::default();
                self.nodes[parent].inner = None;
                self.free_inners.push(inner);
            }
        }
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
        while let Some(inner) = self.nodes[id].inner {
            let clock = self.inners[inner].advance(now);
            let due = By::Eligible as usize;
            while self.inners[inner].orders.least(due) <= clock {
                let slot = self.inners[inner].orders.first(due);
                let child = self.inners[inner].children[slot];
                self.order_by_guarantee(inner, child);
            }
            let node = &mut self.inners[inner];
            node.by_guarantee = !node.orders.is_empty(By::Deadline as usize);
            let by = if node.by_guarantee { By::Deadline } else { By::Start };
            if node.orders.is_empty(by as usize) {
                return Next::Idle;
            }
            id = node.children[node.orders.first(by as usize)];
        }
        Next::Leaf(id)
    }

    /// Charges a packet that the leaf of the last [`ShareTree::next`] sent: `bytes` to the rates, `cost` to the weights.
    pub fn charge(&mut self, leaf: NodeId, bytes: u32, cost: u64, now: Instant) {
        self.longest = self.longest.max(bytes);
        let mut id = leaf;
        while let Some(parent) = self.nodes[id].parent
            && let Some(inner) = self.nodes[parent].inner
        {
            let node = &mut self.nodes[id];
            if self.inners[inner].by_guarantee && node.guarantee > 0 {
                node.eligible = node.eligible.saturating_add(time(bytes, node.guarantee));
                if node.guaranteed_by.is_some() {
                    self.order_by_guarantee(inner, id);
                }
            } else {
                let start = node.start;
                node.start += scaled(cost, TAG, node.share.weight.into()).clamp(1, LAST_TAG);
                let above = &mut self.inners[inner];
                if node.is_ready {
                    above.orders.set(By::Start as usize, node.slot as usize, node.start);
                }
                above.served = above.served.max(start);
                if node.start > LAST_TAG {
                    self.reduce_tags(parent, inner);
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

    /// Puts a node into its parent's choice or takes it out, and does what follows from it further up.
    fn update(&mut self, mut id: NodeId, now: Instant) {
        loop {
            let node = &mut self.nodes[id];
            let (is_active, is_served, sum) = match node.inner {
                None => (node.is_backlogged, node.is_backlogged, 0),
                Some(inner) => {
                    let inner = &self.inners[inner];
                    (inner.active > 0, !inner.orders.is_empty(By::Start as usize), inner.sum)
                }
            };
            let is_ready = is_served && node.blocked_until.is_none();
            let was_active = std::mem::replace(&mut node.is_active, is_active);
            let was_ready = std::mem::replace(&mut node.is_ready, is_ready);
            node.guarantee = node.guaranteed(sum);
            let counted = if is_active { node.guarantee } else { 0 };
            let before = std::mem::replace(&mut node.counted, counted);
            let Some(parent) = node.parent else { return };
            if (is_active, is_ready, counted) == (was_active, was_ready, before) {
                return;
            }
            let Some(inner) = self.nodes[parent].inner else { return };
            let clock = self.inners[inner].advance(now);
            if counted != before || is_ready != was_ready {
                let was_guaranteed = self.take_guaranteed(inner, id);
                let first_deadline = self.inners[inner].orders.least(By::Deadline as usize);
                let node = &mut self.nodes[id];
                if counted > 0 && node.paced != counted {
                    node.pace(clock);
                }
                if is_ready && counted > 0 {
                    if !was_guaranteed {
                        // In an overload, beside its siblings and not behind them.
                        node.eligible = node.eligible.max(first_deadline.min(clock));
                    }
                    self.order_by_guarantee(inner, id);
                }
            }
            let (node, above) = (&mut self.nodes[id], &mut self.inners[inner]);
            if is_ready && !was_ready {
                node.start = node.start.max(above.served);
                above.orders.set(By::Start as usize, node.slot as usize, node.start);
            } else if was_ready && !is_ready {
                above.orders.clear(By::Start as usize, node.slot as usize);
            }
            above.active = above.active + u32::from(is_active) - u32::from(was_active);
            above.sum = above.sum - before + counted;
            id = parent;
        }
    }

    // ----- orders --------------------------------------------------------------------------------------------

    /// Reduces the start tags of all children by the greatest one served.
    fn reduce_tags(&mut self, parent: NodeId, inner: InnerId) {
        let above = &mut self.inners[inner];
        let served = std::mem::take(&mut above.served);
        for (slot, child) in above.children.iter().enumerate() {
            let node = &mut self.nodes[*child];
            if (node.parent, node.slot as usize) != (Some(parent), slot) {
                continue;
            }
            node.start = node.start.saturating_sub(served);
            if node.is_ready {
                above.orders.set(By::Start as usize, slot, node.start);
            }
        }
    }

    /// Puts a child with a guarantee into the order in which its eligible time belongs.
    fn order_by_guarantee(&mut self, inner: InnerId, id: NodeId) {
        let (node, above) = (&mut self.nodes[id], &mut self.inners[inner]);
        let (by, key) = if node.eligible <= above.clock {
            (By::Deadline, node.eligible.saturating_add(time(self.longest, node.guarantee)))
        } else {
            (By::Eligible, node.eligible)
        };
        if let Some(former) = node.guaranteed_by.replace(by)
            && former != by
        {
            above.orders.clear(former as usize, node.slot as usize);
        }
        above.orders.set(by as usize, node.slot as usize, key);
    }

    /// Takes a child from the orders by guarantee. Returns true if it was in one.
    fn take_guaranteed(&mut self, inner: InnerId, id: NodeId) -> bool {
        let node = &mut self.nodes[id];
        let by = node.guaranteed_by.take();
        if let Some(by) = by {
            self.inners[inner].orders.clear(by as usize, node.slot as usize);
        }
        by.is_some()
    }
}

impl Inner {
    /// Advances the clock of the children's eligible times.
    fn advance(&mut self, now: Instant) -> u64 {
        let first = |by: By| self.orders.least(by as usize);
        let most = first(By::Eligible).min(first(By::Deadline));
        let passed = now.as_nanos().saturating_sub(std::mem::replace(&mut self.clock_at, now.as_nanos()));
        let most = most.saturating_add(CATCH_UP.as_nanos()).max(self.clock);
        self.clock = self.clock.saturating_add(passed).min(most);
        self.clock
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
    fn products_beyond_64_bits_are_divided_exactly() {
        assert_eq!(scaled(7, 10, 4), 17);
        assert_eq!(scaled(1 << 40, 1 << 40, 1 << 20), 1 << 60);
        assert_eq!(scaled(u64::MAX, 3, 6), u64::MAX / 2);
        assert_eq!(scaled(u64::MAX, 3, 1), u64::MAX);
        assert_eq!(scaled(5, 2, 0), 10, "as by 1");
    }

    /// 1000 ns at 2 bit/s are the bits of 500 ns at 4: ahead of the clock, and behind it, where at most 200 ms count.
    #[test]
    fn eligible_time_keeps_its_distance_in_bytes_when_the_guarantee_changes() {
        let clock = 1_000_000_000_000;
        let paced = |eligible: u64, guarantee: u64| {
            let mut node = Node { eligible, paced: 2, guarantee, ..Node::new(None, Share::default()) };
            node.pace(clock);
            assert_eq!(node.paced, guarantee);
            node.eligible
        };
        assert_eq!(paced(clock + 1000, 4), clock + 500);
        assert_eq!(paced(clock - 1000, 4), clock - 500);
        assert_eq!(paced(clock, 4), clock);
        assert_eq!(paced(clock - 1_000_000_000, 1), clock - CATCH_UP.as_nanos());
        assert_eq!(paced(clock + 1_000_000_000, 1), clock + 2_000_000_000);
    }

    /// At 8 Mbit/s a byte takes 1 us. Of a bucket of 1000 bytes 400 are left after 600; 500 more are 100 too many, for 100 us.
    #[test]
    fn bucket_of_the_peak_rate_blocks_until_it_holds_what_was_taken_too_much() {
        let pir = Rate::from_bps(8 * MBPS);
        let mut node = Node::new(None, Share { pir: Some(pir), burst: 1000, ..Share::default() });
        assert!(!node.spend(600, pir, 5_000_000));
        assert_eq!((node.peak, node.blocked_until), (5_600_000, None));
        assert!(node.spend(500, pir, 5_000_000));
        assert_eq!((node.peak, node.blocked_until), (6_100_000, Some(5_100_000)));
        assert!(node.block(pir, 5_099_999));
        assert!(!node.block(pir, 5_100_000));
        assert_eq!(node.blocked_until, None);
        // Full again at 6.1 ms, and no fuller later.
        assert!(!node.spend(1000, pir, 9_000_000));
        assert_eq!(node.peak, 10_000_000);
    }

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(us)
    }

    /// At 8 Mbit/s a byte takes 1 us. 4500 bytes with a burst of 3000 block a leaf until 1.5 ms. At 0.5 ms 4000 of them still
    /// count: at 16 Mbit/s until 2.5 ms, with a burst of 1.5 ms; at 4 Mbit/s until 8.5 ms, with a burst of 6.
    #[test]
    fn a_new_peak_rate_counts_the_bytes_that_were_sent_under_the_former() {
        for (pir, next) in [
            (Some(8), Next::Wait(at(1500))),
            (Some(16), Next::Wait(at(1000))),
            (Some(4), Next::Wait(at(2500))),
            (None, Next::Leaf(NodeId::new(1))),
        ] {
            let mut tree = ShareTree::new();
            let leaf = tree.add(tree.root(), share(0, Some(8), 1));
            assert!(tree.is_idle());
            tree.activate(leaf, at(0));
            assert!(!tree.is_idle());
            assert_eq!(tree.next(at(0)), Next::Leaf(leaf));
            tree.charge(leaf, 4500, 1, at(0));
            assert_eq!(tree.next(at(0)), Next::Wait(at(1500)));
            tree.set(leaf, share(0, pir, 1), at(500));
            assert_eq!(tree.next(at(500)), next, "{pir:?} Mbit/s");
            if let Next::Wait(until) = next {
                assert_eq!(tree.next(until), Next::Leaf(leaf));
            }
        }
    }

    /// Of three nodes at most six times are kept, those included that no longer hold; the same time is kept once.
    #[test]
    fn times_of_blocked_nodes_are_few_however_often_shares_change() {
        let mut tree = ShareTree::new();
        let [leaf, _] = [8, 8].map(|pir| tree.add(tree.root(), share(0, Some(pir), 1)));
        tree.activate(leaf, at(0));
        assert_eq!(tree.next(at(0)), Next::Leaf(leaf));
        tree.charge(leaf, 100_000, 1, at(0));
        tree.set(leaf, share(0, Some(8), 1), at(0));
        assert_eq!(tree.blocked.len(), 1);
        let kept = (0..100).map(|turn| {
            tree.set(leaf, share(0, Some(4 + turn), 1), at(0));
            tree.blocked.len()
        });
        assert_eq!(kept.max(), Some(6));
    }

    /// So that packets allocate nothing.
    #[test]
    fn added_nodes_have_room_to_be_blocked() {
        let mut tree = ShareTree::new();
        for _ in 0..100 {
            tree.add(tree.root(), share(0, None, 1));
            assert!(tree.blocked.capacity() >= 2 * tree.nodes.len());
        }
    }

    #[test]
    fn a_node_without_children_is_a_leaf_again() {
        let mut tree = ShareTree::new();
        let plan = tree.add(tree.root(), share(0, None, 1));
        let [one, other] = [1, 1].map(|weight| tree.add(plan, share(0, None, weight)));
        tree.remove(one, at(0));
        tree.activate(other, at(0));
        assert_eq!(tree.next(at(0)), Next::Leaf(other));
        tree.remove(other, at(0));
        assert!(tree.is_idle());
        tree.activate(plan, at(0));
        assert_eq!(tree.next(at(0)), Next::Leaf(plan));
    }

    /// A packet costs the greatest start tag: without reductions the fourth of a leaf would exceed 64 bits.
    #[test]
    fn start_tags_do_not_overflow() {
        let mut tree = ShareTree::new();
        let leaves = [1, 1].map(|weight| tree.add(tree.root(), share(0, None, weight)));
        leaves.into_iter().for_each(|leaf| tree.activate(leaf, at(0)));
        for turn in 0..100 {
            let leaf = leaves[turn % 2];
            assert_eq!(tree.next(at(0)), Next::Leaf(leaf));
            tree.charge(leaf, 1, LAST_TAG / TAG, at(0));
        }
    }

    /// Chosen under a guarantee that ended before its packet was charged: it counts by weight, and the other leaf is next.
    #[test]
    fn packet_of_a_leaf_that_lost_its_guarantee_counts_by_weight() {
        let mut tree = ShareTree::new();
        let [one, other] = [4, 0].map(|cir| tree.add(tree.root(), share(cir, None, 1)));
        [one, other].into_iter().for_each(|leaf| tree.activate(leaf, at(0)));
        assert_eq!(tree.next(at(0)), Next::Leaf(one));
        tree.set(one, share(0, None, 1), at(0));
        tree.charge(one, 1500, 1500, at(0));
        assert_eq!(tree.next(at(0)), Next::Leaf(other));
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
