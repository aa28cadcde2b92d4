//! The scheduler tree against a fluid reference, and against its bounds, on random trees.

use std::collections::VecDeque;

use bentpipe_queue::tree::{CATCH_UP, Next, NodeId, Share, ShareTree};
use bentpipe_units::{Duration, Id, Instant, Rate, Rng};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// Longest packet [bytes].
const LONGEST: u32 = 1500;
const MBPS: f64 = 1e6;

#[derive(Clone, Debug)]
struct Node {
    parent: Option<usize>,
    share: Share,
    children: Vec<usize>,
}

/// Traffic of a leaf.
#[derive(Clone, Debug)]
enum Feed {
    Nothing,
    /// Always has packets.
    Greedy,
    /// Packets at no more than `rate` [bit/s]: arrival and length of those that wait, and time of the next arrival [ns].
    Paced {
        rate: f64,
        waiting: VecDeque<(u64, u32)>,
        next: u64,
    },
}

/// A carrier with a tree, and the token bucket of every node, kept apart from the tree's.
struct Carrier {
    nodes: Vec<Node>,
    ids: Vec<NodeId>,
    tree: ShareTree,
    feeds: Vec<Feed>,
    /// [bit/s].
    rate: f64,
    now: u64,
    rng: Rng,
    /// Bytes and packets.
    sent: Vec<u64>,
    packets: Vec<u64>,
    buckets: Vec<(f64, u64)>,
    /// Longest delay of paced packets, arrival to end of transmission [s].
    delays: Vec<f64>,
}

fn share(cir: f64, pir: Option<f64>, weight: u32) -> Share {
    let rate = |mbps: f64| Rate::from_bps((mbps * MBPS) as u64);
    Share { cir: rate(cir), pir: pir.map(rate), weight, burst: 6000 }
}

fn bps(rate: Rate) -> f64 {
    rate.as_bps() as f64
}

impl Carrier {
    /// The first node is the root.
    fn new(nodes: Vec<Node>, rate: f64, seed: u64) -> Self {
        let mut tree = ShareTree::new();
        let mut ids = vec![tree.root()];
        for node in &nodes[1..] {
            ids.push(tree.add(ids[node.parent.unwrap()], node.share));
        }
        let count = nodes.len();
        Self {
            nodes,
            ids,
            tree,
            feeds: vec![Feed::Nothing; count],
            rate: rate * MBPS,
            now: 0,
            rng: Rng::stream(seed, "tree", 0, "test"),
            sent: vec![0; count],
            packets: vec![0; count],
            buckets: vec![(0.0, 0); count],
            delays: vec![0.0; count],
        }
    }

    fn at(&self) -> Instant {
        Instant::ZERO + Duration::from_nanos(self.now)
    }

    fn leaves(&self) -> Vec<usize> {
        (1..self.nodes.len()).filter(|&i| self.nodes[i].children.is_empty()).collect()
    }

    fn feed(&mut self, leaf: usize, feed: Feed) {
        match feed {
            Feed::Greedy => self.tree.activate(self.ids[leaf], self.at()),
            _ => self.tree.deactivate(self.ids[leaf], self.at()),
        }
        self.feeds[leaf] = feed;
    }

    fn is_active(&self, i: usize) -> bool {
        match &self.nodes[i].children[..] {
            [] => !matches!(self.feeds[i], Feed::Nothing),
            children => children.iter().any(|&child| self.is_active(child)),
        }
    }

    fn path(&self, leaf: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(leaf), |&i| self.nodes[i].parent).filter(|&i| i > 0)
    }

    /// Bytes above its peak rate that a node has sent by now.
    fn level(&self, i: usize) -> f64 {
        let (level, at) = self.buckets[i];
        let pir = self.nodes[i].share.pir.map_or(f64::INFINITY, bps);
        if at == self.now { level } else { (level - pir * (self.now - at) as f64 / 8e9).max(0.0) }
    }

    /// Lets packets arrive until `until`.
    fn arrive(&mut self, until: u64) {
        loop {
            let next = |feed: &Feed| if let Feed::Paced { next, .. } = feed { *next } else { u64::MAX };
            let Some((i, at)) = self.feeds.iter().map(next).enumerate().min_by_key(|&(_, at)| at) else {
                return;
            };
            if at > until {
                return;
            }
            let len = 64 + self.rng.below(u64::from(LONGEST) - 63) as u32;
            let pause = if self.rng.below(4) == 0 { self.rng.exponential(0.02) } else { 0.0 };
            if let Feed::Paced { rate, waiting, next } = &mut self.feeds[i] {
                *next += (f64::from(len) * 8e9 / *rate + pause * 1e9).ceil() as u64;
                waiting.push_back((at, len));
            }
            self.tree.activate(self.ids[i], Instant::ZERO + Duration::from_nanos(at));
        }
    }

    /// Sends a packet, or waits until one may be sent. Checks peak rates and work conservation.
    fn step(&mut self, end: u64) {
        self.arrive(self.now);
        match self.tree.next(self.at()) {
            Next::Leaf(id) => {
                let leaf = self.ids.iter().position(|&other| other == id).unwrap();
                let (arrived, len) = match &mut self.feeds[leaf] {
                    Feed::Greedy => (self.now, 64 + self.rng.below(u64::from(LONGEST) - 63) as u32),
                    Feed::Paced { waiting, .. } => waiting.pop_front().expect("an active leaf has packets"),
                    Feed::Nothing => panic!("a leaf without packets is chosen"),
                };
                self.tree.charge(id, len, len.into(), self.at());
                for i in self.path(leaf).collect::<Vec<_>>() {
                    let level = self.level(i);
                    let burst = self.nodes[i].share.burst as f64;
                    assert!(level <= burst + 1.0, "node {i} sends at {level} of {burst} bytes");
                    self.buckets[i] = (level + f64::from(len), self.now);
                    self.sent[i] += u64::from(len);
                    self.packets[i] += 1;
                }
                self.sent[0] += u64::from(len);
                let begin = self.now;
                self.now += (f64::from(len) * 8e9 / self.rate).ceil() as u64;
                self.delays[leaf] = self.delays[leaf].max((self.now - arrived) as f64 / 1e9);
                if let Feed::Paced { waiting, .. } = &self.feeds[leaf]
                    && waiting.is_empty()
                {
                    self.tree.deactivate(id, Instant::ZERO + Duration::from_nanos(begin));
                }
                self.arrive(self.now);
            }
            Next::Wait(until) => {
                for leaf in self.leaves() {
                    let has_packets = match &self.feeds[leaf] {
                        Feed::Nothing => false,
                        Feed::Greedy => true,
                        Feed::Paced { waiting, .. } => !waiting.is_empty(),
                    };
                    let is_full = self.path(leaf).any(|i| {
                        let Share { pir, burst, .. } = self.nodes[i].share;
                        // The tree rounds the time of each packet up to a nanosecond.
                        let rounding = 1.0 + self.packets[i] as f64 * pir.map_or(0.0, bps) / 8e9;
                        self.level(i) > burst as f64 - rounding
                    });
                    assert!(!has_packets || is_full, "leaf {leaf} waits below its peak rates");
                }
                assert!(until > self.at(), "a wait takes time");
                self.idle(until.as_nanos().min(end));
            }
            Next::Idle => self.idle(end),
        }
    }

    fn idle(&mut self, until: u64) {
        let arrival = |feed: &Feed| if let Feed::Paced { next, .. } = feed { *next } else { u64::MAX };
        let first = self.feeds.iter().map(arrival).min().unwrap_or(u64::MAX);
        self.now = until.min(first).max(self.now + 1);
    }

    /// Runs for `seconds`.
    fn run(&mut self, seconds: f64) {
        let end = self.now + (seconds * 1e9) as u64;
        while self.now < end {
            self.step(end);
        }
    }

    // ----- the fluid reference -------------------------------------------------------------------------------

    /// Guarantee of a node: its own, or its active children's [bit/s].
    fn guarantee(&self, i: usize) -> f64 {
        if !self.is_active(i) {
            return 0.0;
        }
        let Share { cir, pir, .. } = self.nodes[i].share;
        let below: f64 = self.nodes[i].children.iter().map(|&child| self.guarantee(child)).sum();
        bps(cir).max(below).min(pir.map_or(f64::INFINITY, bps))
    }

    /// Maximum that a node can send [bit/s].
    fn demand(&self, i: usize) -> f64 {
        let below = match &self.nodes[i].children[..] {
            _ if !self.is_active(i) => 0.0,
            [] => f64::INFINITY,
            children => children.iter().map(|&child| self.demand(child)).sum(),
        };
        below.min(self.nodes[i].share.pir.map_or(f64::INFINITY, bps))
    }

    /// Rate of every node below `i`, which has `rate`: guarantees first, then by weight up to the demand.
    fn fluid(&self, i: usize, rate: f64, rates: &mut Vec<f64>) {
        rates[i] = rate;
        let children = &self.nodes[i].children;
        let demands: Vec<f64> = children.iter().map(|&child| self.demand(child)).collect();
        let guarantees: Vec<f64> = children.iter().map(|&child| self.guarantee(child)).collect();
        let caps: Vec<f64> = guarantees.iter().zip(&demands).map(|(g, d)| g.min(*d)).collect();
        let first = fill(rate, &guarantees, &caps);
        let left = rate - first.iter().sum::<f64>();
        let weights: Vec<f64> = children.iter().map(|&child| self.nodes[child].share.weight.into()).collect();
        let caps: Vec<f64> = demands.iter().zip(&first).map(|(d, f)| d - f).collect();
        let second = fill(left, &weights, &caps);
        for (k, &child) in children.iter().enumerate() {
            self.fluid(child, first[k] + second[k], rates);
        }
    }

    fn reference(&self) -> Vec<f64> {
        let mut rates = vec![0.0; self.nodes.len()];
        self.fluid(0, self.rate.min(self.demand(0)), &mut rates);
        rates
    }

    /// Sum of what the children of a node are guaranteed [bit/s].
    fn promised(&self, i: usize) -> f64 {
        self.nodes[i].children.iter().map(|&child| self.guarantee(child)).sum()
    }

    /// True if a node cannot keep all guarantees below it.
    fn is_overloaded(&self) -> bool {
        let reference = self.reference();
        (0..self.nodes.len()).any(|i| self.promised(i) > reference[i] * 1.000_001)
    }

    /// Delay bound of a leaf from the head of `tree.rs` [s].
    fn bound(&self, leaf: usize) -> f64 {
        let longest = f64::from(LONGEST) * 8.0;
        let level = |i: usize| {
            let own = if i == leaf { 1.0 } else { 2.0 } * longest / self.guarantee(i);
            own + self.nodes[i].share.pir.map_or(0.0, |pir| longest / bps(pir))
        };
        self.path(leaf).map(level).sum::<f64>() + 2.0 * longest / self.rate
    }
}

/// Divides `rate` in proportion to `weights`, none above its cap: water-filling.
fn fill(rate: f64, weights: &[f64], caps: &[f64]) -> Vec<f64> {
    let mut given = vec![0.0; weights.len()];
    let mut open: Vec<usize> = (0..weights.len()).filter(|&i| weights[i] > 0.0 && caps[i] > 0.0).collect();
    let mut left = rate;
    loop {
        let sum: f64 = open.iter().map(|&i| weights[i]).sum();
        let (full, rest): (Vec<usize>, Vec<usize>) =
            open.iter().partition(|&&i| caps[i] <= left.max(0.0) * weights[i] / sum);
        if full.is_empty() {
            rest.iter().for_each(|&i| given[i] = left.max(0.0) * weights[i] / sum);
            return given;
        }
        for i in full {
            given[i] = caps[i];
            left -= caps[i];
        }
        open = rest;
    }
}

/// A random tree of at most three levels below the root. `load` is about the sum of the committed rates over the carrier's
/// 20 Mbit/s.
fn random_tree(rng: &mut Rng, load: f64) -> Vec<Node> {
    let root = Node { parent: None, share: Share::default(), children: Vec::new() };
    let mut nodes = vec![root];
    let mut level = vec![0];
    for depth in 0..3 {
        for parent in std::mem::take(&mut level) {
            if depth > 0 && rng.below(3) == 0 {
                continue;
            }
            for _ in 0..=rng.below(4) {
                let id = nodes.len();
                let cir = if rng.below(2) == 0 { 0.0 } else { 0.2 + rng.uniform() * 2.0 };
                let pir = (rng.below(3) == 0).then(|| cir + 0.5 + rng.uniform() * 4.0);
                let share = share(cir, pir, 1 + rng.below(8) as u32);
                nodes.push(Node { parent: Some(parent), share, children: Vec::new() });
                nodes[parent].children.push(id);
                level.push(id);
            }
        }
    }
    // Committed rates in proportion to the load.
    let mut probe = Carrier::new(nodes.clone(), 20.0, 1);
    probe.leaves().into_iter().for_each(|leaf| probe.feed(leaf, Feed::Greedy));
    let sum: f64 = nodes[0].children.iter().map(|&child| probe.guarantee(child)).sum();
    let factor = if sum > 0.0 { load * 20.0 * MBPS / sum } else { 1.0 };
    let scaled = |rate: Rate| Rate::from_bps((bps(rate) * factor) as u64);
    for node in &mut nodes {
        let share = &mut node.share;
        (share.cir, share.pir) = (scaled(share.cir), share.pir.map(scaled));
    }
    nodes
}

/// A root with these nodes below it: parent and share.
fn tree_of(below: &[(usize, Share)]) -> Vec<Node> {
    let mut nodes = vec![Node { parent: None, share: Share::default(), children: Vec::new() }];
    for &(parent, share) in below {
        let id = nodes.len();
        nodes.push(Node { parent: Some(parent), share, children: Vec::new() });
        nodes[parent].children.push(id);
    }
    nodes
}

/// Runs for `seconds` and compares the bytes of every node with the fluid's: within 1 %, and `packets` of the longest.
fn compare(carrier: &mut Carrier, seconds: f64, packets: f64) -> Result<(), TestCaseError> {
    let before = carrier.sent.clone();
    let begin = carrier.now;
    carrier.run(seconds);
    let passed = (carrier.now - begin) as f64 / 1e9;
    let reference = carrier.reference();
    for i in 0..carrier.nodes.len() {
        let found = (carrier.sent[i] - before[i]) as f64;
        let expected = reference[i] * passed / 8.0;
        let margin = expected * 0.01 + packets * f64::from(LONGEST);
        prop_assert!((found - expected).abs() <= margin, "node {i}: {found} bytes, fluid {expected}");
    }
    Ok(())
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config(150))]

    /// 10 s at 20 Mbit/s are about 32,000 packets; the bucket of a peak rate allows four more.
    #[test]
    fn random_trees_share_as_the_fluid_does_before_and_after_leaves_change(seed in any::<u64>(), load in 0.1..1.6) {
        let mut rng = Rng::stream(seed, "tree", 0, "shape");
        let mut carrier = Carrier::new(random_tree(&mut rng, load), 20.0, seed);
        for _ in 0..2 {
            // An idle moment, or it would catch up now.
            if carrier.is_overloaded() {
                carrier.leaves().into_iter().for_each(|leaf| carrier.feed(leaf, Feed::Nothing));
                carrier.run(0.01);
            }
            for leaf in carrier.leaves() {
                let feed = if rng.below(4) == 0 { Feed::Nothing } else { Feed::Greedy };
                carrier.feed(leaf, feed);
            }
            compare(&mut carrier, 10.0, 12.0)?;
        }
    }

    /// All leaves are greedy. At any time each node has sent its guarantee but for the bound, and one packet whose time is
    /// not over.
    #[test]
    fn every_node_has_its_committed_rate_at_all_times(seed in any::<u64>(), load in 0.3..0.99) {
        let mut rng = Rng::stream(seed, "tree", 0, "shape");
        let mut carrier = Carrier::new(random_tree(&mut rng, load), 20.0, seed);
        carrier.leaves().into_iter().for_each(|leaf| carrier.feed(leaf, Feed::Greedy));
        let is_kept = |i: usize| {
            let fits = |i: usize| carrier.promised(i) <= carrier.guarantee(i) * 1.000_001;
            carrier.demand(i) > carrier.guarantee(i) * 1.01 && carrier.path(i).all(|above| above == i || fits(above))
        };
        let kept: Vec<(usize, f64, f64)> = (1..carrier.nodes.len())
            .filter(|&i| carrier.guarantee(i) > 0.0 && is_kept(i))
            .map(|i| (i, carrier.guarantee(i), carrier.bound(i)))
            .collect();
        for _ in 0..2000 {
            carrier.run(0.001);
            for &(i, guarantee, bound) in &kept {
                let owed = guarantee * (carrier.now as f64 / 1e9 - bound) / 8.0 - f64::from(LONGEST);
                let sent = carrier.sent[i] as f64;
                prop_assert!(sent >= owed, "node {i}: {sent} bytes of {owed} at {} ns", carrier.now);
            }
        }
    }

    /// Siblings are greedy, paced or come and go; every paced leaf keeps its bound.
    #[test]
    fn a_leaf_below_its_committed_rate_keeps_its_delay_bound(seed in any::<u64>(), load in 0.3..0.99) {
        let mut rng = Rng::stream(seed, "tree", 0, "shape");
        let mut carrier = Carrier::new(random_tree(&mut rng, load), 20.0, seed);
        for leaf in carrier.leaves() {
            let rate = carrier.nodes[leaf].share.cir.as_bps() as f64;
            let feed = if rate > 0.0 && rng.below(2) == 0 {
                Feed::Paced { rate, waiting: VecDeque::new(), next: rng.below(10_000_000) }
            } else {
                Feed::Greedy
            };
            carrier.feed(leaf, feed);
        }
        let greedy: Vec<usize> =
            carrier.leaves().into_iter().filter(|&i| matches!(carrier.feeds[i], Feed::Greedy)).collect();
        let bounds: Vec<(usize, f64)> = carrier
            .leaves()
            .into_iter()
            .filter(|&i| matches!(carrier.feeds[i], Feed::Paced { .. }))
            .filter(|&i| carrier.path(i).all(|i| carrier.promised(i) <= carrier.guarantee(i) * 1.000_001))
            .map(|leaf| (leaf, carrier.bound(leaf)))
            .collect();
        for _ in 0..100 {
            carrier.run(0.03);
            for &leaf in &greedy {
                match rng.below(6) {
                    0 => carrier.feed(leaf, Feed::Nothing),
                    1..=3 => carrier.feed(leaf, Feed::Greedy),
                    _ => {}
                }
            }
        }
        for (leaf, bound) in bounds {
            let found = carrier.delays[leaf];
            prop_assert!(found <= bound, "leaf {leaf}: {found} s, bound {bound} s");
        }
    }
}

/// 5 Mbit/s beside 999 leaves of 10 kbit/s each that all become eligible together: in order of eligible times the packet
/// would wait for one of each, 600 ms.
#[test]
fn many_slow_leaves_do_not_delay_a_fast_one() {
    let mut below = vec![(0, share(5.0, None, 1))];
    below.extend([(0, share(0.01, None, 1)); 999]);
    let mut carrier = Carrier::new(tree_of(&below), 20.0, 1);
    (2..=1000).for_each(|leaf| carrier.feed(leaf, Feed::Greedy));
    carrier.feed(1, Feed::Paced { rate: 5.0 * MBPS, waiting: VecDeque::new(), next: 1_300_000 });
    let bound = carrier.bound(1);
    assert!((bound - (0.0024 + 0.0012)).abs() < 1e-9);
    carrier.run(5.0);
    assert!(carrier.delays[1] <= bound, "{} s", carrier.delays[1]);
}

/// The second plan's leaf of 5 Mbit/s comes after 100 s in which the plan had no guarantee: it gets its rate, and the
/// first plan keeps its own, from the first packets on.
#[test]
fn a_plan_does_not_catch_up_on_a_guarantee_that_it_did_not_have() {
    let below = [
        (0, share(10.0, None, 1)),
        (0, share(0.0, None, 1)),
        (1, share(0.0, None, 1)),
        (2, share(0.0, None, 1)),
        (2, share(5.0, None, 1)),
    ];
    let mut carrier = Carrier::new(tree_of(&below), 20.0, 1);
    [3, 4].iter().for_each(|&leaf| carrier.feed(leaf, Feed::Greedy));
    carrier.run(100.0);
    carrier.feed(5, Feed::Greedy);
    compare(&mut carrier, 0.5, 3.0).unwrap();
}

/// The plan is paced at 10 kbit/s when its second leaf, of 5 Mbit/s, comes: 1500 bytes at the former rate would be 1.2 s.
#[test]
fn a_leaf_is_not_delayed_by_the_former_guarantee_of_its_plan() {
    let below = [
        (0, share(0.0, None, 1)),
        (0, share(10.0, None, 1000)),
        (1, share(0.01, None, 1)),
        (1, share(5.0, None, 1)),
    ];
    let mut carrier = Carrier::new(tree_of(&below), 20.0, 1);
    [2, 3].iter().for_each(|&leaf| carrier.feed(leaf, Feed::Greedy));
    carrier.run(1.0);
    let next = carrier.now + 1_000_000;
    carrier.feed(4, Feed::Paced { rate: 5.0 * MBPS, waiting: VecDeque::new(), next });
    let bound = carrier.bound(4);
    carrier.run(5.0);
    assert!(carrier.delays[4] <= bound, "{} s, bound {bound} s", carrier.delays[4]);
}

/// The carrier fades to 6 of 12 Mbit/s committed: shares in proportion, 2 : 1. When it recovers, what is caught up is at
/// most [`CATCH_UP`] of the committed rates and a packet.
#[test]
fn committed_rates_shrink_in_a_fade_and_catch_up_is_limited() {
    let below = [(0, share(8.0, None, 1)), (0, share(4.0, None, 1)), (0, share(0.0, None, 100))];
    let mut carrier = Carrier::new(tree_of(&below), 20.0, 1);
    (1..=3).for_each(|leaf| carrier.feed(leaf, Feed::Greedy));
    carrier.run(5.0);
    carrier.rate = 6.0 * MBPS;
    compare(&mut carrier, 20.0, 4.0).unwrap();
    carrier.rate = 20.0 * MBPS;
    let caught_up = CATCH_UP.as_nanos() as f64 / 1e9 * 12.0 * MBPS / 8.0 / f64::from(LONGEST);
    let before = carrier.sent[3];
    let expected = carrier.reference()[3] * 2.0 / 8.0;
    carrier.run(2.0);
    let missed = (expected - (carrier.sent[3] - before) as f64) / f64::from(LONGEST);
    assert!((0.0..=caught_up + 4.0).contains(&missed), "{missed} packets missed, {caught_up} allowed");
    compare(&mut carrier, 5.0, 4.0).unwrap();
}

/// A peak rate of 1 kbit/s is used up for 12 s when it is raised to 10 Mbit/s.
#[test]
fn a_raised_peak_rate_holds_at_once() {
    let mut tree = ShareTree::new();
    let slow = Share { pir: Some(Rate::from_bps(1000)), ..Share::default() };
    let leaf = tree.add(tree.root(), slow);
    let now = Instant::ZERO;
    tree.activate(leaf, now);
    assert_eq!(tree.next(now), Next::Leaf(leaf));
    tree.charge(leaf, 1500, 1500, now);
    assert_eq!(tree.next(now), Next::Wait(now + Duration::from_secs(12)));
    tree.set(leaf, Share { pir: Some(Rate::from_bps(10_000_000)), ..slow }, now);
    assert_eq!(tree.next(now), Next::Wait(now + Duration::from_micros(1200)));
    tree.set(leaf, Share::default(), now);
    assert_eq!(tree.next(now), Next::Leaf(leaf));
}

#[test]
fn a_leaf_that_empties_at_its_peak_rate_leaves_the_tree_idle() {
    let mut tree = ShareTree::new();
    let leaf = tree.add(tree.root(), share(0.0, Some(1.0), 1));
    let now = Instant::ZERO;
    tree.activate(leaf, now);
    for _ in 0..5 {
        assert_eq!(tree.next(now), Next::Leaf(leaf));
        tree.charge(leaf, 1500, 1500, now);
    }
    assert_eq!(tree.next(now), Next::Wait(now + Duration::from_millis(12)));
    tree.deactivate(leaf, now);
    assert!(tree.is_idle());
    assert_eq!(tree.next(now), Next::Idle);
}

/// A million costs of 2^36 are 2^72 in units of a start tag, beyond 64 bits.
#[test]
fn start_tags_do_not_overflow() {
    let mut tree = ShareTree::new();
    let leaves = [1, 3].map(|weight| tree.add(tree.root(), share(0.0, None, weight)));
    let now = Instant::ZERO;
    leaves.iter().for_each(|&leaf| tree.activate(leaf, now));
    let mut sent = [0u32; 2];
    for _ in 0..1_000_000 {
        let Next::Leaf(leaf) = tree.next(now) else { panic!("both have packets") };
        sent[usize::from(leaf == leaves[1])] += 1;
        tree.charge(leaf, 1500, 1 << 36, now);
    }
    assert!(sent[0].abs_diff(250_000) <= 1, "{sent:?}");
}

/// 10 x 10 x 10 x 10 leaves, of which half come and go at random. Every leaf that stays is served, and no other that has no
/// packets. The least share of a leaf is (1 / 37)^4 if all others around it had four times its weight; weights are random.
#[test]
fn ten_thousand_leaves_are_all_served() {
    let mut rng = Rng::stream(1, "tree", 0, "test");
    let mut tree = ShareTree::new();
    let mut level = vec![tree.root()];
    for depth in 0..4 {
        let mut next = Vec::new();
        for parent in level {
            for _ in 0..10 {
                let cir = if depth == 3 && rng.below(2) == 0 { 0.01 } else { 0.0 };
                next.push(tree.add(parent, share(cir, None, 1 + rng.below(4) as u32)));
            }
        }
        level = next;
    }
    let mut now = Instant::ZERO;
    // The first half stays, the others come and go.
    let (stay, change) = level.split_at(5000);
    stay.iter().for_each(|&leaf| tree.activate(leaf, now));
    let first = stay[0].index() as usize;
    let mut sent = vec![0u32; level.len()];
    let mut busy = vec![false; change.len()];
    for _ in 0..1_000_000 {
        let i = rng.below(change.len() as u64) as usize;
        busy[i] = !busy[i];
        if busy[i] {
            tree.activate(change[i], now)
        } else {
            tree.deactivate(change[i], now)
        }
        let Next::Leaf(leaf) = tree.next(now) else { panic!("half of the leaves have packets") };
        let i = leaf.index() as usize - first;
        assert!(i < 5000 || busy[i - 5000], "a leaf without packets is chosen");
        sent[i] += 1;
        tree.charge(leaf, 1500, 1500, now);
        now += Rate::from_bps(100_000_000).time_to_send(1500);
    }
    assert!(sent[..5000].iter().all(|&packets| packets > 0), "a leaf with packets is never served");
    assert_eq!(sent.iter().sum::<u32>(), 1_000_000);
}

/// A packet of 1500 bytes uses a guarantee of 4 Mbit/s for 3 ms, also if it is taken away and given back meanwhile: after a packet
/// by weight the other leaf is next.
#[test]
fn a_guarantee_that_comes_back_counts_what_was_sent_under_it() {
    let (mut tree, now) = (ShareTree::new(), Instant::ZERO);
    let [one, other] = [4.0, 0.0].map(|cir| tree.add(tree.root(), share(cir, None, 1)));
    tree.activate(one, now);
    tree.activate(other, now);
    for _ in 0..2 {
        assert_eq!(tree.next(now), Next::Leaf(one));
        tree.charge(one, 1500, 1500, now);
    }
    tree.set(one, share(0.0, None, 1), now);
    tree.set(one, share(4.0, None, 1), now);
    assert_eq!(tree.next(now), Next::Leaf(other));
}
