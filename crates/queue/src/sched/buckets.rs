//! A fixed number of queues that flows are hashed to, served by DRR++: the common part of fair queueing schedulers with
//! an Aqm per queue (RFC 8290, section 4).
//!
//! The packets of all queues are in one arena, in linked lists, and the queues waiting for a turn are in doubly linked
//! lists through one array, so that nothing is allocated once the arena has grown. The queue with the most bytes is at
//! the root of a tournament tree: an update walks up only while it changes winners.

use bentpipe_units::{Id as _, IdVec, Slab, optional_id_types};

use crate::{FlowId, Packet, Param, Range, Tune, Unit};

/// The parameter `flows` of schedulers with these queues.
pub const FLOWS: Param = Param::number("flows", Unit::Count, 1024.0, Range::between(1.0, 65_536.0))
    .doc("Number of queues that flows are hashed to");

/// The parameter `quantum` of schedulers with these queues.
pub const QUANTUM: Param = Param::number("quantum", Unit::Bytes, 1514.0, Range::between(1.0, 65_535.0))
    .doc("Bytes that a queue may send per turn; at least the longest packet for a constant cost per packet")
    .tune(Tune::Log(300.0, 9000.0));

optional_id_types! {
    /// A queue.
    pub BucketId,
    /// A position in the arena of packets.
    NodeId,
}

/// A list of queues that wait for their turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// Queues that recently became active: served first.
    New,
    /// Queues that have used up a quantum.
    Old,
    /// Empty queues whose Aqm is not in its initial state yet (CAKE).
    Decaying,
}

/// Queues by number, and the lists in which they wait for their turn.
#[derive(Debug)]
pub struct Buckets {
    nodes: Slab<NodeId, Node>,
    buckets: IdVec<BucketId, Bucket>,
    /// By [`List`].
    lists: [ListEnds; 3],
    quantum: i64,
    /// Users whose queues share a turn; `None` if queues have equal turns.
    users: Option<Users>,
    /// Winner of each pairing: an entry's weight is the greater of those at twice its index and one more. The second
    /// half holds the queues' own weights.
    weights: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    pkt: Packet,
    after: Option<NodeId>,
}

#[derive(Clone, Debug)]
struct Bucket {
    head: Option<NodeId>,
    tail: Option<NodeId>,
    packets: u32,
    bytes: u64,
    deficit: i64,
    list: Option<List>,
    before: Option<BucketId>,
    after: Option<BucketId>,
    /// User of the packet with which it joined a list.
    user: FlowId,
    /// Place of the user that it counts for: from its first packet as an old queue on.
    counted: Option<usize>,
}

/// Maximum number of queues of a user by which a quantum is divided, as the cost per packet grows with the number.
const MOST_SHARERS: u32 = 64;
/// Places of users in a set.
const WAYS: usize = 8;

/// Numbers of counted queues by user, in a set-associative table like that of sch_cake: a user whose set is full shares a place.
#[derive(Clone, Debug)]
struct Users {
    places: Vec<(FlowId, u32)>,
}

impl Users {
    fn new(count: usize) -> Self {
        Self { places: vec![(FlowId(0), 0); count.next_multiple_of(WAYS)] }
    }

    /// Returns the place of a user: its own, or else one that it may take.
    fn place(&self, user: FlowId) -> usize {
        let sets = (self.places.len() / WAYS) as u32;
        let first = WAYS * spread(hash(user, 0), sets) as usize;
        let mut ways = first..first + WAYS;
        let own = ways.clone().find(|&at| self.places[at].0 == user && self.places[at].1 > 0);
        own.or_else(|| ways.find(|&at| self.places[at].1 == 0)).unwrap_or(first)
    }

    /// Returns the number of a user's queues that count, from 1 to [`MOST_SHARERS`].
    fn sharers(&self, user: FlowId) -> i64 {
        i64::from(self.places[self.place(user)].1.clamp(1, MOST_SHARERS))
    }

    /// Counts a queue that becomes old; returns its place.
    fn enter(&mut self, user: FlowId) -> usize {
        let at = self.place(user);
        if self.places[at].1 == 0 {
            self.places[at].0 = user;
        }
        self.places[at].1 += 1;
        at
    }
}

#[derive(Clone, Copy, Debug)]
struct ListEnds {
    first: Option<BucketId>,
    last: Option<BucketId>,
    len: u32,
}

impl Buckets {
    /// Creates `count` empty queues, which may send `quantum` bytes per turn each; at least 1 of either.
    #[must_use]
    pub fn new(count: u32, quantum: u32) -> Self {
        let empty = Bucket {
            head: None,
            tail: None,
            packets: 0,
            bytes: 0,
            deficit: 0,
            list: None,
            before: None,
            after: None,
            user: FlowId(0),
            counted: None,
        };
        let count = count.max(1) as usize;
        Self {
            nodes: Slab::default(),
            buckets: std::iter::repeat_n(empty, count).collect(),
            lists: [ListEnds { first: None, last: None, len: 0 }; 3],
            quantum: i64::from(quantum.max(1)),
            users: None,
            weights: vec![0; 2 * count.next_power_of_two()],
        }
    }

    /// Divides the quantum of a queue by the number of its user's old queues with packets, so that users have equal turns.
    pub fn be_fair_between_users(&mut self) {
        self.users = Some(Users::new(self.buckets.len()));
    }

    /// Returns the bytes that a queue may send per turn.
    fn quantum(&self, bucket: BucketId) -> i64 {
        match &self.users {
            None => self.quantum,
            Some(users) => (self.quantum / users.sharers(self.buckets[bucket].user)).max(1),
        }
    }

    /// Returns the number of queues.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.buckets.len() as u32
    }

    /// Returns the queue that a flow is hashed to.
    #[must_use]
    pub fn of(&self, flow: FlowId, salt: u64) -> BucketId {
        BucketId::new(spread(hash(flow, salt), self.count()))
    }

    /// Appends a packet to a queue. A queue that is neither new nor old becomes a new one with a full quantum (RFC 8290,
    /// section 4.1).
    pub fn push(&mut self, bucket: BucketId, pkt: &Packet) {
        let node = self.nodes.insert(Node { pkt: *pkt, after: None });
        let b = &mut self.buckets[bucket];
        match b.tail {
            None => b.head = Some(node),
            Some(tail) => self.nodes[tail].after = Some(node),
        }
        b.tail = Some(node);
        b.packets += 1;
        b.bytes += u64::from(pkt.len);
        match b.list {
            None | Some(List::Decaying) => {
                b.user = pkt.user;
                self.buckets[bucket].deficit = self.quantum(bucket);
                self.move_to(bucket, Some(List::New));
            }
            Some(List::Old) => self.count_for_user(bucket),
            Some(List::New) => {}
        }
        self.update_weight(bucket);
    }

    /// Counts an old queue with packets for its user.
    fn count_for_user(&mut self, bucket: BucketId) {
        let b = &mut self.buckets[bucket];
        if let (Some(users), None) = (&mut self.users, b.counted) {
            b.counted = Some(users.enter(b.user));
        }
    }

    /// Returns the queue whose turn it is, which may be empty (RFC 8290, section 4.2): the first of the new ones, else
    /// of the old ones, with a deficit above zero; each queue passed over gets a quantum and moves to the end of the
    /// old ones. So a queue is passed over once per quantum that it has sent.
    pub fn turn(&mut self) -> Option<BucketId> {
        loop {
            let bucket = self.first(List::New).or_else(|| self.first(List::Old))?;
            if self.buckets[bucket].deficit > 0 {
                return Some(bucket);
            }
            if self.buckets[bucket].packets > 0 {
                self.count_for_user(bucket);
            }
            self.buckets[bucket].deficit += self.quantum(bucket);
            self.move_to(bucket, Some(List::Old));
        }
    }

    /// Removes the oldest packet of a queue; the queue keeps its position.
    pub fn take(&mut self, bucket: BucketId) -> Option<Packet> {
        let b = &mut self.buckets[bucket];
        let Node { pkt, after } = self.nodes.remove(b.head?);
        b.head = after;
        if after.is_none() {
            b.tail = None;
        }
        b.packets -= 1;
        b.bytes -= u64::from(pkt.len);
        self.update_weight(bucket);
        Some(pkt)
    }

    /// Charges a queue for sent bytes.
    pub fn charge(&mut self, bucket: BucketId, len: u32) {
        self.buckets[bucket].deficit -= i64::from(len);
    }

    /// Moves an empty queue whose turn it is (RFC 8290, section 4.2): a new one to the end of the old ones, so that new
    /// queues cannot starve these; an old one out of the lists.
    pub fn on_empty(&mut self, bucket: BucketId) {
        let list = (self.list(bucket) == Some(List::New)).then_some(List::Old);
        self.move_to(bucket, list);
    }

    /// Moves a queue to the end of a list, or out of all lists.
    pub fn move_to(&mut self, bucket: BucketId, list: Option<List>) {
        let Bucket { before, after, list: was, .. } = self.buckets[bucket];
        if let Some(list) = was {
            let list = &mut self.lists[list as usize];
            match before {
                None => list.first = after,
                Some(before) => self.buckets[before].after = after,
            }
            match after {
                None => list.last = before,
                Some(after) => self.buckets[after].before = before,
            }
            list.len -= 1;
        }
        let mut last = None;
        if let Some(list) = list {
            let list = &mut self.lists[list as usize];
            last = list.last;
            match last {
                None => list.first = Some(bucket),
                Some(last) => self.buckets[last].after = Some(bucket),
            }
            list.last = Some(bucket);
            list.len += 1;
        }
        let b = &mut self.buckets[bucket];
        (b.before, b.after, b.list) = (last, None, list);
        if list != Some(List::Old)
            && let Some(at) = b.counted.take()
        {
            self.users.as_mut().expect("a user's place").places[at].1 -= 1;
        }
    }

    /// Returns the list that a queue waits in; `None` if in none.
    #[must_use]
    pub fn list(&self, bucket: BucketId) -> Option<List> {
        self.buckets[bucket].list
    }

    /// Returns the first queue of a list.
    #[must_use]
    pub fn first(&self, list: List) -> Option<BucketId> {
        self.lists[list as usize].first
    }

    /// Returns the number of queues in a list.
    #[must_use]
    pub fn len(&self, list: List) -> u32 {
        self.lists[list as usize].len
    }

    /// Returns the oldest packet of a queue.
    #[must_use]
    pub fn head(&self, bucket: BucketId) -> Option<&Packet> {
        self.buckets[bucket].head.map(|head| &self.nodes[head].pkt)
    }

    /// Returns the bytes of a queue.
    #[must_use]
    pub fn bytes(&self, bucket: BucketId) -> u64 {
        self.buckets[bucket].bytes
    }

    /// Returns the packets of a queue.
    #[must_use]
    pub fn packets(&self, bucket: BucketId) -> u32 {
        self.buckets[bucket].packets
    }

    /// Returns the queue with the most bytes; of equals the one with the lowest number.
    #[must_use]
    pub fn fattest(&self) -> Option<BucketId> {
        let half = self.weights.len() / 2;
        if self.weights[1] == 0 {
            return None;
        }
        let mut at = 1;
        while at < half {
            at = if self.weights[2 * at] == self.weights[at] { 2 * at } else { 2 * at + 1 };
        }
        Some(BucketId::new((at - half) as u32))
    }

    /// Returns the packet that [`Buckets::turn`] leads to, without serving a queue: usually at once; if all queues have
    /// sent more than they may, that of the queue that a quantum per round brings above zero first.
    #[must_use]
    pub fn peek(&self) -> Option<&Packet> {
        let after = |&b: &BucketId| self.buckets[b].after;
        let holds = |&b: &BucketId| self.buckets[b].head.is_some();
        let listed = |list| std::iter::successors(self.first(list), after).filter(holds);
        let deficit = |b| self.buckets[b].deficit;
        if let Some(b) = listed(List::New).find(|&b| deficit(b) > 0) {
            return self.head(b);
        }
        // New queues that are passed over are behind the old ones, with a quantum more.
        let later = listed(List::New).map(|b| (b, deficit(b) + self.quantum(b)));
        let (mut next, mut rounds) = (None, i64::MAX);
        for (b, deficit) in listed(List::Old).map(|b| (b, deficit(b))).chain(later) {
            let lacks = if deficit > 0 { 0 } else { -deficit / self.quantum(b) + 1 };
            if lacks < rounds {
                (next, rounds) = (Some(b), lacks);
            }
            if rounds == 0 {
                break;
            }
        }
        next.and_then(|b| self.head(b))
    }

    /// Updates a queue's bytes in the tournament. A queue with packets, even empty ones, outweighs one without.
    fn update_weight(&mut self, bucket: BucketId) {
        let b = &self.buckets[bucket];
        let weight = b.bytes + u64::from(b.packets > 0);
        let mut at = self.weights.len() / 2 + bucket.index() as usize;
        self.weights[at] = weight;
        while at > 1 {
            at /= 2;
            let winner = self.weights[2 * at].max(self.weights[2 * at + 1]);
            if self.weights[at] == winner {
                break;
            }
            self.weights[at] = winner;
        }
    }
}

/// Hash of a flow, different for each salt: MurmurHash3's finalizer (Appleby), a bijection of which the upper half is
/// used.
#[must_use]
pub fn hash(flow: FlowId, salt: u64) -> u32 {
    let mut x = u64::from(flow.0) ^ salt;
    x = (x ^ x >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x = (x ^ x >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    // The last step changes only the lower half.
    (x >> 32) as u32
}

/// Queue of `count` that a hash selects, uniformly distributed.
#[must_use]
pub fn spread(hash: u32, count: u32) -> u32 {
    ((u64::from(hash) * u64::from(count)) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use bentpipe_units::Rng;

    use super::*;

    /// Serves the queues in the order of [`Buckets::turn`] until they are empty; returns the handles. Each packet must
    /// be the one that `peek` showed.
    fn drain(buckets: &mut Buckets) -> Vec<u32> {
        std::iter::from_fn(|| serve(buckets)).collect()
    }

    fn serve(buckets: &mut Buckets) -> Option<u32> {
        let shown = buckets.peek().map(|pkt| pkt.handle);
        loop {
            let Some(bucket) = buckets.turn() else {
                assert_eq!(shown, None, "peek");
                return None;
            };
            if let Some(pkt) = buckets.take(bucket) {
                buckets.charge(bucket, pkt.len);
                assert_eq!(shown, Some(pkt.handle), "peek");
                return Some(pkt.handle);
            }
            buckets.on_empty(bucket);
        }
    }

    fn push(buckets: &mut Buckets, bucket: u32, handle: u32, len: u32) {
        buckets.push(BucketId::new(bucket), &Packet::new(len, FlowId(bucket), handle));
    }

    /// Of 500 users with an old queue each, in 128 sets of 8 places, few share a place: the number in a set has a Poisson distribution of
    /// mean 3.9, so about one set of fifty has more than 8.
    #[test]
    fn users_share_a_place_only_in_a_full_set() {
        let mut users = Users::new(1024);
        for user in 0..500 {
            users.enter(FlowId(user));
        }
        let shared = (0..500).filter(|&user| users.sharers(FlowId(user)) > 1).count();
        assert!(shared < 50, "{shared}");
    }

    /// Quantum 1000: after two packets of 500, queue 0 has a deficit of 0 and is passed over; queue 1, still new, is next.
    #[test]
    fn queue_that_has_sent_its_quantum_is_passed_over() {
        let mut b = Buckets::new(2, 1000);
        (0..3).for_each(|handle| push(&mut b, 0, handle, 500));
        push(&mut b, 1, 10, 500);
        assert_eq!(drain(&mut b), [0, 1, 10, 2]);
    }

    /// A user with two old queues that have had packets has half a quantum for each, and a whole one once one of them has left
    /// the old ones, or is new again.
    #[test]
    fn quantum_is_divided_by_the_old_queues_of_a_user() {
        for list in [None, Some(List::New), Some(List::Decaying)] {
            let mut b = Buckets::new(4, 1000);
            b.be_fair_between_users();
            let push = |b: &mut Buckets, bucket| {
                let pkt = Packet { user: FlowId(7), ..Packet::new(500, FlowId(bucket), bucket) };
                b.push(BucketId::new(bucket), &pkt);
            };
            for bucket in 0..2 {
                push(&mut b, bucket);
                b.move_to(BucketId::new(bucket), Some(List::Old));
                assert_eq!(b.quantum(BucketId::new(0)), 1000, "one old queue");
                push(&mut b, bucket);
            }
            assert_eq!(b.quantum(BucketId::new(0)), 500);
            b.move_to(BucketId::new(1), list);
            assert_eq!(b.quantum(BucketId::new(0)), 1000);
        }
    }

    /// A queue in debt is passed over. With packets it counts for its user from then on, empty from its next packet on, as in
    /// sch_cake.
    #[test]
    fn queue_counts_for_its_user_once_it_is_old_with_packets() {
        for held in [0, 1] {
            let mut b = Buckets::new(4, 1000);
            b.be_fair_between_users();
            for bucket in 0..2 {
                (0..=held).for_each(|handle| push(&mut b, bucket, handle, 500));
                b.take(BucketId::new(bucket));
                b.charge(BucketId::new(bucket), 1000);
            }
            while b.turn() != Some(BucketId::new(0)) {}
            assert_eq!(b.buckets.iter().filter(|bucket| bucket.counted.is_some()).count(), 2 * held as usize);
            push(&mut b, 0, 10, 500);
            assert!(b.buckets[BucketId::new(0)].counted.is_some());
        }
    }

    /// The 64-bit finalizer of 1 is 0xb456bcfc34c2cb2c, of 2^32 - 1 0xcc71ecda2aa8bcc6; a salt changes bits ahead of it.
    #[test]
    fn hash_is_the_upper_half_of_murmurhash3_s_finalizer() {
        assert_eq!((hash(FlowId(1), 0), hash(FlowId(u32::MAX), 0)), (0xb456_bcfc, 0xcc71_ecda));
        assert_eq!(hash(FlowId(3), 2), 0xb456_bcfc);
    }

    /// Even if its packets are empty; after them there is no fattest queue.
    #[test]
    fn queue_that_alone_has_packets_is_the_fattest() {
        for (count, len) in [(1, 100), (2, 0), (37, 100), (64, 0)] {
            for bucket in 0..count {
                let mut b = Buckets::new(count, 1000);
                push(&mut b, bucket, 0, len);
                assert_eq!(b.fattest(), Some(BucketId::new(bucket)), "of {count}");
                b.take(BucketId::new(bucket));
                assert_eq!(b.fattest(), None, "of {count}");
            }
        }
    }

    /// Both queues have sent more than their quantum of 1000, and `peek`, which `serve` compares, looks ahead. An old one that
    /// lacks 500 has its turn a round later, and a new one that does has got its quantum by then; of two old ones that both need
    /// one quantum the first is next.
    #[test]
    fn peek_looks_ahead_past_queues_in_debt() {
        for (second, sent, next) in [(List::New, [1500, 1500], 1), (List::Old, [1900, 1100], 0)] {
            let mut b = Buckets::new(2, 1000);
            for (bucket, list) in [(0, List::Old), (1, second)] {
                push(&mut b, bucket, bucket, 100);
                b.move_to(BucketId::new(bucket), Some(list));
                b.charge(BucketId::new(bucket), sent[bucket as usize]);
            }
            assert_eq!(serve(&mut b), Some(next));
        }
    }

    /// DRR++ by hand, quantum 1000. Queue 0 holds four packets of 600 (handles 0 to 3), queue 1 two (10, 11). Queue 0
    /// sends 0 (deficit 400) and 1 (-200): it is passed over, to the old ones with 800. Queue 1, still new, sends 10
    /// and 11, and is passed over (800). Now 0 is first of the old: 2 (deficit 200). A packet for queue 2 arrives (20):
    /// new, so it leaves before 3, which queue 0 still has the deficit for. Queue 2 is empty at its next turn and moves
    /// to the end of the old ones, not out: its next packet (21) waits behind 3.
    #[test]
    fn new_queues_go_first_once() {
        let mut b = Buckets::new(4, 1000);
        for handle in 0..4 {
            push(&mut b, 0, handle, 600);
        }
        push(&mut b, 1, 10, 600);
        push(&mut b, 1, 11, 600);
        let first: Vec<_> = (0..5).filter_map(|_| serve(&mut b)).collect();
        assert_eq!(first, [0, 1, 10, 11, 2]);
        push(&mut b, 2, 20, 600);
        assert_eq!(serve(&mut b), Some(20));
        assert_eq!(b.list(BucketId::new(2)), Some(List::New));
        push(&mut b, 0, 4, 600);
        // Queue 2 is checked, found empty and moved to the end.
        assert_eq!(serve(&mut b), Some(3));
        assert_eq!(b.list(BucketId::new(2)), Some(List::Old));
        push(&mut b, 2, 21, 600);
        // Queue 0 is down to -400, gets a quantum and moves behind queue 1, which is found empty and removed, and queue
        // 2.
        assert_eq!(drain(&mut b), [21, 4]);
        assert!([0, 1, 2].iter().all(|&bucket| b.list(BucketId::new(bucket)).is_none()));
        assert_eq!((b.len(List::New), b.len(List::Old)), (0, 0));
    }

    /// A packet of ten quanta is paid for over ten rounds, in which others send as much: queue 0 sends 10,000 bytes
    /// from a deficit of 1000, and needs ten more quanta to be above zero again.
    #[test]
    fn long_packet_is_paid_for_over_rounds() {
        let mut b = Buckets::new(2, 1000);
        push(&mut b, 0, 0, 10_000);
        push(&mut b, 0, 1, 1000);
        for handle in 10..30 {
            push(&mut b, 1, handle, 1000);
        }
        let order = drain(&mut b);
        assert_eq!(order[0], 0);
        // -9000 and ten quanta make 1000; queue 1 sends its first quantum before the first of these.
        assert_eq!(order.iter().position(|&handle| handle == 1), Some(11));
    }

    /// After any operations the tournament returns the queue with the most bytes, the lowest of equals; and packets
    /// leave each queue in the order of arrival, without losses.
    #[test]
    fn fattest_queue_matches_a_search() {
        let mut rng = Rng::stream(3, "buckets", 0, "test");
        let mut b = Buckets::new(37, 1500);
        let mut held: Vec<std::collections::VecDeque<(u32, u32)>> = vec![Default::default(); 37];
        for handle in 0..20_000 {
            let bucket = rng.below(37) as u32;
            if rng.uniform() < 0.5 {
                let len = rng.below(3) as u32 * 700;
                push(&mut b, bucket, handle, len);
                held[bucket as usize].push_back((handle, len));
            } else {
                let taken = b.take(BucketId::new(bucket)).map(|pkt| (pkt.handle, pkt.len));
                assert_eq!(taken, held[bucket as usize].pop_front());
            }
            let weigh = |queue: &std::collections::VecDeque<(u32, u32)>| {
                (!queue.is_empty()).then(|| queue.iter().map(|&(_, len)| u64::from(len)).sum::<u64>())
            };
            let best = held.iter().filter_map(weigh).max();
            let expected = best.and_then(|best| held.iter().position(|queue| weigh(queue) == Some(best)));
            assert_eq!(b.fattest(), expected.map(|bucket| BucketId::new(bucket as u32)));
        }
    }

    /// 100,000 consecutive flows in 1024 queues: chi squared over 1023 degrees of freedom is within four standard
    /// deviations, sqrt(2 * 1023) = 45 each, of its mean of 1023.
    #[test]
    fn flows_are_spread_uniformly() {
        for salt in [0, 1, 0x1234_5678_9abc_def0] {
            let mut counts = [0.0f64; 1024];
            (0..100_000).for_each(|flow| counts[spread(hash(FlowId(flow), salt), 1024) as usize] += 1.0);
            let mean = 100_000.0 / 1024.0;
            let chi2: f64 = counts.iter().map(|n| (n - mean) * (n - mean) / mean).sum();
            assert!((chi2 - 1023.0).abs() < 4.0 * 45.3, "salt {salt}: {chi2}");
        }
    }
}
