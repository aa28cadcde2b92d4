//! CAKE, common applications kept enhanced: fair queueing in which flows hardly ever share a queue, with a COBALT each.
//!
//! Høiland-Jørgensen, Täht & Morton 2018, *Piece of CAKE*; the documentation of Linux's sch_cake. Its core is that of
//! `fq_codel`, with three changes:
//!
//! - The hash is *set-associative*: the `flows` queues form sets of `ways`. A flow looks in its set for the queue with
//!   its own tag; else for an unused one, from its hash's own position on; and only if all are in use it shares the
//!   queue at that position. With 100 flows and 1024 queues plain hashing puts about five flows into a queue in use,
//!   this one practically none.
//! - Each queue has a COBALT, CoDel and BLUE combined. `target` is a twentieth of `rtt`, and at least the time of one and
//!   a half packets of `mtu`; a delay of at most four of them is always acceptable, and a queue's last packet is never
//!   dropped. BLUE's probability grows by `increment`, at most once per target, when the queue drops packets because the
//!   buffer is full, and falls by `decrement` when it is found empty: it controls unresponsive flows. A queue found
//!   empty leaves the lists of waiting queues. Each departure looks at one such queue, until its COBALT is in its initial
//!   state; a packet that arrives earlier makes it a new queue again. So BLUE forgets only while packets leave.
//! - `quantum` is derived from the link's capacity, between 300 and 1514 bytes, so that on a slow link fewer flows
//!   count as sparse.
//!
//! With `diffserv = "diffserv4"` there are four *tins*, each with all of the above, and the codepoint (DSCP) of a packet
//! selects its tin. Tins are served by DRR, as in a sch_cake without a shaper: a tin is served until its deficit is below
//! zero, and gets its quantum when it is passed over. Target and interval of a tin follow its share of the capacity.
//!
//! | tin | codepoints | quantum | share for the target |
//! |---|---|---|---|
//! | best effort | all others | 1024 B | 1 |
//! | background | LE, CS1 | 64 B | 1/16 |
//! | streaming media | CS2, AF2x, TOS4, CS3, AF3x, AF4x | 512 B | 1/2 |
//! | latency sensitive | CS4, CS5, VA, EF, CS6, CS7 | 256 B | 1/4 |
//!
//! So a tin that needs less than its part of the quanta waits for one or two packets of each other tin, and what a tin
//! does not use goes to the others: of backlogged tins, latency sensitive traffic gets 14 %, however much claims it.
//!
//! If there is no room, the queue with the most bytes of all tins loses packets from its head, one by one.
//!
//! *Departures:* only CAKE's queueing is implemented. Not included: its shaper (the gateway's regulator or the link
//! limits the rate, so also `overhead` compensation and `ingress` mode), the ACK filter and GSO splitting. Another
//! scheduler, `cake_users`, has host isolation. Its queueing differs from Linux's in four things, without which packets leave at the same times (docs/truth.md): roots
//! of the control law are exact, Linux's approximate from the sixteenth signal on; the longest queue loses packets, whereas Linux's heap goes wrong at times; the first signal of a queue that was never
//! used comes after an interval, in Linux at once; after 64 dropped packets one is sent. A flow whose set is full takes over
//! the tag of the queue that it shares, as in Linux: the former owner may get another queue, and its packets there overtake
//! those left behind. All tins have one `quantum`, and by default there is one tin; sch_cake has three. The buffer size is
//! that of the surrounding queue, not four `rtt` of the link.
//!
//! *In a satellite gateway:* as for `fq_codel`: at the transmit queue it drops acknowledged packets, which is accepted
//! with a warning, unless they are marked (`marking = "ecn"`); it belongs where connections are not split (`pep.split = []`), or at the queue of a link. Set `rtt`
//! to the round trip of the connections (600 ms with a geostationary satellite): target and interval are derived from
//! it. Its strength, many flows without collisions, suits a gateway with hundreds of users; a sender that ignores all
//! signals, datagrams above all, is limited by BLUE and by the queue's limit.

use std::iter::repeat_n;

use bentpipe_units::{Duration, Id as _, IdVec, Instant, Rate};

use super::buckets::{BucketId, Buckets, FLOWS, List};
use super::cobalt::{Cobalt, Settings, Signal};
use super::flows::make_room;
use crate::descriptor::SchedulerAlgorithm;
use crate::{
    Context, DropReason, FlowId, MAX_DROPS_PER_DEQUEUE, Packet, Param, ParamError, Range, Scheduler,
    SchedulerHost, Tune, Unit, Values,
};

/// The registry's entry.
pub const ALGORITHM: SchedulerAlgorithm = SchedulerAlgorithm {
    name: "cake",
    title: "Common applications kept enhanced",
    source: "Høiland-Jørgensen, Täht & Morton 2018",
    params: PARAMS,
    signals: true,
    build: |values| Ok(Box::new(Cake::new(values)?)),
};

pub(super) const PARAMS: &[Param] = &[
    Param::name(
        "diffserv",
        &["besteffort", "diffserv4"],
        "besteffort",
        "Tins: one for all packets, or four by codepoint",
    )
    .origin("tc-cake(8), where diffserv3 is the default"),
    Param::number("rtt", Unit::Seconds, 0.1, Range::above(0.0, 1e3))
        .doc("Round trip of the connections: CoDel's interval, and twenty times its target")
        .origin("tc-cake(8): internet, 100 ms")
        .tune(Tune::Log(0.02, 2.0)),
    FLOWS.origin("sch_cake: 1024 in each tin"),
    Param::number("ways", Unit::Count, 8.0, Range::between(1.0, 64.0))
        .doc("Queues per set; 1: a plain hash")
        .origin("sch_cake: 8"),
    Param::from_link("quantum", Unit::Bytes, Range::between(1.0, 65_535.0), |link| {
        (link.capacity.bytes_per_sec() / 4096.0).clamp(300.0, 1514.0)
    })
    .default_doc("bytes that the link sends in 1/4096 s, between 300 and 1514 B")
    .doc("Bytes that a queue may send per turn")
    .origin("sch_cake: the rate shifted by 12 bits")
    .tune(Tune::Around(0.25, 4.0)),
    Param::number("mtu", Unit::Bytes, 1514.0, Range::between(0.0, 65_535.0))
        .doc("Longest packet: the target is at least the time of one and a half")
        .origin("sch_cake: Ethernet's"),
    Param::number("increment", Unit::One, 1.0 / 256.0, Range::between(0.0, 1.0))
        .doc("BLUE's step up when the queue drops packets because the buffer is full")
        .symbol("p_inc")
        .origin("sch_cake: 1/256")
        .tune(Tune::Log(1e-4, 0.1)),
    Param::number("decrement", Unit::One, 1.0 / 4096.0, Range::above(0.0, 1.0))
        .doc("BLUE's step down when the queue is empty")
        .symbol("p_dec")
        .origin("sch_cake: 1/4096")
        .tune(Tune::Log(1e-5, 0.01)),
];

/// Quantum of each tin of `diffserv4` [bytes], and the exponent of its share of the capacity: sch_cake,
/// `cake_config_diffserv4`.
const DIFFSERV4: [(i64, u32); 4] = [(1024, 0), (64, 4), (512, 1), (256, 2)];

/// Tin of `diffserv4` for a codepoint.
fn diffserv4(dscp: u8) -> usize {
    match dscp {
        // LE, CS1.
        1 | 8 => 1,
        // TOS4, CS2, AF2x, CS3, AF3x, AF4x.
        4 | 16 | 18 | 20 | 22 | 24 | 26 | 28 | 30 | 34 | 36 | 38 => 2,
        // CS4, CS5, VA, EF, CS6, CS7.
        32 | 40 | 44 | 46 | 48 | 56 => 3,
        _ => 0,
    }
}

/// CAKE's state.
#[derive(Debug, Default)]
pub struct Cake {
    rtt: Duration,
    mtu: u64,
    /// Capacity for which the tins' settings were computed.
    capacity: Option<Rate>,
    tins: Vec<Tin>,
    /// Tin whose turn it is.
    current: usize,
    salt: Option<u64>,
    /// BLUE's probability in the queue that was served last.
    p: f64,
}

/// Queues for a part of the traffic.
#[derive(Debug)]
struct Tin {
    ways: u32,
    /// Exponent of the share of the capacity for which the target is computed.
    shift: u32,
    set: Settings,
    buckets: Buckets,
    /// By queue.
    cobalts: IdVec<BucketId, Cobalt>,
    /// Owner of each queue.
    tags: IdVec<BucketId, Option<FlowId>>,
    collisions: u64,
    /// Packets waiting.
    packets: u32,
    /// Bytes that it may send when it is passed over.
    quantum: i64,
    deficit: i64,
}

impl Cake {
    pub(super) fn new(v: &Values) -> Result<Self, ParamError> {
        let (flows, ways) = (v.number("flows") as u32, v.number("ways") as u32);
        if !flows.is_multiple_of(ways) {
            let problem = format!("found {flows}, but it must be a multiple of ways, which is {ways}");
            return Err(ParamError { name: "flows", problem });
        }
        let (increment, decrement) = (v.number("increment"), v.number("decrement"));
        let none = Duration::ZERO;
        let tins = if v.name("diffserv") == "diffserv4" { &DIFFSERV4[..] } else { &DIFFSERV4[..1] };
        let tin = |&(quantum, shift): &(i64, u32)| Tin {
            ways,
            shift,
            set: Settings { target: none, interval: none, four_packets: none, increment, decrement },
            buckets: Buckets::new(flows, v.number("quantum") as u32),
            cobalts: repeat_n(Cobalt::REST, flows as usize).collect(),
            tags: repeat_n(None, flows as usize).collect(),
            collisions: 0,
            packets: 0,
            quantum,
            deficit: 0,
        };
        Ok(Self {
            rtt: Duration::from_secs_f64(v.number("rtt")),
            mtu: v.number("mtu") as u64,
            tins: tins.iter().map(tin).collect(),
            ..Self::default()
        })
    }

    /// Gives users equal turns instead of flows.
    pub(super) fn fair_between_users(mut self) -> Self {
        for tin in &mut self.tins {
            tin.buckets.be_fair_between_users();
        }
        self
    }

    /// Computes target and interval for a link of that capacity.
    fn set_capacity(&mut self, capacity: Rate) {
        if self.capacity == Some(capacity) {
            return;
        }
        self.capacity = Some(capacity);
        let wanted = self.rtt.part(20).max(Duration::from_nanos(1));
        for tin in &mut self.tins {
            let packet = Rate::from_bps(capacity.as_bps() >> tin.shift).time_to_send(self.mtu);
            let set = &mut tin.set;
            set.target = wanted.max(packet.times(3).part(2));
            set.interval = (self.rtt + set.target.saturating_sub(wanted)).max(set.target.times(2));
            set.four_packets = packet.times(4);
        }
    }

    /// Returns the tin of a packet.
    #[inline]
    fn tin_of(&self, pkt: &Packet) -> usize {
        if self.tins.len() == 1 { 0 } else { diffserv4(pkt.dscp) }
    }

    /// Gives the tins that are passed over their quanta, up to the next `active` one with a deficit of at least zero, and
    /// returns it; `None` if none is active. `gives` gets a tin and its new deficit.
    #[inline]
    fn next_tin(&self, active: impl Fn(&Tin) -> bool, mut gives: impl FnMut(usize, i64)) -> Option<usize> {
        if self.tins.len() == 1 {
            return Some(0);
        }
        if !self.tins.iter().any(&active) {
            return None;
        }
        let mut deficits = [0; DIFFSERV4.len()];
        for (deficit, tin) in deficits.iter_mut().zip(&self.tins) {
            *deficit = tin.deficit;
        }
        let mut at = self.current;
        while deficits[at] < 0 || !active(&self.tins[at]) {
            if deficits[at] <= 0 {
                deficits[at] += self.tins[at].quantum;
                gives(at, deficits[at]);
            }
            at = (at + 1) % self.tins.len();
        }
        Some(at)
    }

    /// Removes the oldest packet of the queue with the most bytes.
    fn drop_from_fattest(&mut self, now: Instant) -> Option<Packet> {
        let fattest = |tin: &Tin| tin.buckets.fattest().map(|bucket| (tin.buckets.bytes(bucket), bucket));
        let all =
            self.tins.iter_mut().filter_map(|tin| fattest(tin).map(|(bytes, bucket)| (bytes, bucket, tin)));
        // The first of equals.
        let (_, bucket, tin) = all.reduce(|most, next| if next.0 > most.0 { next } else { most })?;
        let victim = tin.buckets.take(bucket)?;
        tin.packets -= 1;
        tin.cobalts[bucket].full(now, &tin.set);
        Some(victim)
    }
}

impl Tin {
    /// Returns true if queues wait for a turn, which may be empty.
    fn has_queues(&self) -> bool {
        self.buckets.len(List::New) + self.buckets.len(List::Old) > 0
    }

    /// Returns the queue of a flow.
    fn classify(&mut self, flow: FlowId, salt: u64) -> BucketId {
        let direct = self.buckets.of(flow, salt);
        if self.tags[direct] == Some(flow) {
            return direct;
        }
        let index = direct.index();
        let first = index - index % self.ways;
        let own = (first..first + self.ways).map(BucketId::new).find(|&way| self.tags[way] == Some(flow));
        let mut ways = (index..first + self.ways).chain(first..index).map(BucketId::new);
        let found = own.or_else(|| ways.find(|&way| self.buckets.list(way).is_none()));
        let way = found.unwrap_or_else(|| {
            self.collisions += 1;
            direct
        });
        self.tags[way] = Some(flow);
        way
    }

    /// Moves an empty queue out of the lists of those that wait for a turn.
    fn on_empty(&mut self, bucket: BucketId, now: Instant) {
        self.cobalts[bucket].empty(now, &self.set);
        let list = (!self.cobalts[bucket].is_at_rest(now)).then_some(List::Decaying);
        self.buckets.move_to(bucket, list);
    }
}

impl Scheduler for Cake {
    fn push(&mut self, pkt: &Packet, cx: &mut Context<'_>, out: &mut dyn SchedulerHost) {
        self.set_capacity(cx.queue.capacity);
        let salt = *self.salt.get_or_insert_with(|| cx.rng.bits());
        let at = self.tin_of(pkt);
        let tin = &mut self.tins[at];
        let bucket = tin.classify(pkt.flow, salt);
        tin.buckets.push(bucket, pkt);
        tin.packets += 1;
        make_room(cx, pkt, out, || self.drop_from_fattest(cx.now));
    }

    fn pop(&mut self, cx: &mut Context<'_>, out: &mut dyn SchedulerHost) -> Option<Packet> {
        self.set_capacity(cx.queue.capacity);
        let (mut decays, mut dropped) = (true, 0);
        while self.tins.iter().any(|tin| tin.packets > 0) {
            let mut deficits = [None; DIFFSERV4.len()];
            self.current = self.next_tin(Tin::has_queues, |at, deficit| deficits[at] = Some(deficit))?;
            for (tin, deficit) in self.tins.iter_mut().zip(deficits) {
                tin.deficit = deficit.unwrap_or(tin.deficit);
            }
            let tin = &mut self.tins[self.current];
            // One per departure.
            if std::mem::take(&mut decays)
                && let Some(bucket) = tin.buckets.first(List::Decaying)
            {
                tin.on_empty(bucket, cx.now);
                continue;
            }
            let bucket = tin.buckets.turn()?;
            let Some(pkt) = tin.buckets.take(bucket) else {
                tin.on_empty(bucket, cx.now);
                continue;
            };
            let cobalt = &mut tin.cobalts[bucket];
            tin.packets -= 1;
            let signal = cobalt.leaves(cx.now - pkt.arrival, cx.now, &tin.set, || cx.rng.uniform());
            self.p = cobalt.p();
            let exempt = tin.buckets.packets(bucket) == 0 || dropped == MAX_DROPS_PER_DEQUEUE;
            let next = match signal {
                Signal::Mark if !exempt || out.can_mark(&pkt) => {
                    out.mark(pkt).inspect(|_| cobalt.marked(cx.now))
                }
                Signal::Drop if !exempt => {
                    out.dropped(pkt, DropReason::Aqm);
                    None
                }
                _ => Some(pkt),
            };
            if let Some(pkt) = next {
                tin.buckets.charge(bucket, pkt.len);
                tin.deficit -= i64::from(pkt.len);
                return Some(pkt);
            }
            dropped += 1;
        }
        None
    }

    fn peek(&self) -> Option<&Packet> {
        self.tins[self.next_tin(|tin| tin.packets > 0, |_, _| {})?].buckets.peek()
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        let flows = |list| self.tins.iter().map(|tin| f64::from(tin.buckets.len(list))).sum();
        out("new_flows", flows(List::New));
        out("old_flows", flows(List::Old));
        out("p", self.p);
        out("collisions", self.tins.iter().map(|tin| tin.collisions).sum::<u64>() as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::super::steps::Steps;
    use super::*;
    use crate::aqm::droptail::DropTail;
    use crate::{Limit, Marking, Queue, QueueConfig};

    fn bench(given: &[(&str, f64)], packets: u32, seed: u64) -> Steps {
        Steps::new(&ALGORITHM, given, packets, Marking::Drop, seed)
    }

    /// Number of flows that had to share when each of `flows` has brought a packet, over many hashes: mean and standard
    /// error.
    fn collisions(flows: u32, ways: f64) -> (f64, f64) {
        const HASHES: u64 = 400;
        let counts: Vec<f64> = (0..HASHES)
            .map(|seed| {
                let mut steps = bench(&[("ways", ways)], 10_000, seed);
                (0..flows).for_each(|flow| steps.push(0, flow, flow, 100));
                steps.probe("collisions")
            })
            .collect();
        let n = HASHES as f64;
        let mean = counts.iter().sum::<f64>() / n;
        let variance = counts.iter().map(|c| (c - mean) * (c - mean)).sum::<f64>() / (n - 1.0);
        (mean, (variance / n).sqrt())
    }

    /// In theory: `flows` flows are hashed to 1024/w sets, and a set that X of them hit turns X - w away if X > w; so
    /// 1024/w times E[max(X - w, 0)] with X binomial.
    fn expected(flows: u32, ways: u32) -> f64 {
        let sets = f64::from(1024 / ways);
        let (mut chance, mut mean) = (libm::pow(1.0 - 1.0 / sets, f64::from(flows)), 0.0);
        for x in 1..=flows {
            chance *= f64::from(flows - x + 1) / f64::from(x) / (sets - 1.0);
            mean += chance * f64::from(x.saturating_sub(ways));
        }
        sets * mean
    }

    /// 100 flows: a plain hash makes 1024 (1 - 1/1024)^100 - 924 = 4.68 of them share, one of eight ways a few in a
    /// million. 600 flows: 158.2 and 3.0. Counted over 400 hashes, within four standard errors.
    #[test]
    fn ways_make_collisions_rare() {
        let closed = 1024.0 * libm::pow(1.0 - 1.0 / 1024.0, 100.0) - 924.0;
        assert!((expected(100, 1) - closed).abs() < 1e-9 && (closed - 4.68).abs() < 0.01, "{closed}");
        assert!(expected(100, 8) < 1e-4);
        assert_eq!(collisions(100, 8.0).0, 0.0);
        for (flows, ways) in [(100, 1u32), (600, 1), (600, 8)] {
            let (mean, error) = collisions(flows, f64::from(ways));
            let theory = expected(flows, ways);
            assert!(
                (mean - theory).abs() < 4.0 * error,
                "{flows} flows: {mean} +- {error}, in theory {theory}"
            );
            assert!(error < 0.1 * theory);
        }
    }

    /// A queue belongs to a flow while it holds packets, and for an interval after its last one, until a departure finds it at
    /// rest; then another flow of the set may have it. With one set of two queues: flows 1 and 2 have one each and send at
    /// 0, flow 3 must share at 50 ms. When it sends again, the queue that it does not use is free or not, and flow 4 gets it
    /// or must share.
    #[test]
    fn queue_is_released_after_an_interval() {
        for (us, collisions) in [(99_999, 2.0), (100_000, 1.0)] {
            let mut steps = bench(&[("flows", 2.0), ("ways", 2.0)], 100, 1);
            for (us, flow) in [(0, 1), (0, 2), (50_000, 3), (us, 3)] {
                steps.push(us, flow, flow, 100);
                assert_eq!(steps.take(us), [Some(flow), None]);
            }
            steps.push(us, 4, 4, 100);
            assert_eq!(steps.probe("collisions"), collisions, "at {us}");
        }
    }

    /// One set of two queues, three flows that send alternately: a flow that finds the set full takes over the tag of the
    /// queue that it shares, and the next packets of the former owner may then be in the other queue, ahead of those
    /// left behind: flows are reordered, as in Linux. With a plain hash, or a queue per flow, they never are.
    #[test]
    fn full_set_reorders_flows() {
        let reordered = |flows: f64, ways: f64| {
            (0..40u64).any(|seed| {
                let mut steps = bench(&[("flows", flows), ("ways", ways)], 1000, seed);
                let (mut rng, mut last) = (bentpipe_units::Rng::stream(seed, "cake", 0, "turns"), [0; 3]);
                (1..=60u32).for_each(|handle| steps.push(0, handle, rng.below(3) as u32, 1000));
                std::iter::from_fn(|| steps.pop(0)).any(|pkt| {
                    let before = std::mem::replace(&mut last[pkt.flow.0 as usize], pkt.handle);
                    before > pkt.handle
                })
            })
        };
        assert!(reordered(2.0, 2.0));
        assert!(!reordered(2.0, 1.0) && !reordered(4.0, 4.0));
    }

    /// By hand, at 8 Mbit/s with the default quantum: 1,000,000 / 4096 = 244, so 300 bytes; packets of 250. Flow 1
    /// sends 0 (50 left) and 1 (-200) and is old with 100; flow 2, new like it, sends 10 and 11 and is old with 100;
    /// flow 1 sends 2 (-150). Flow 3 is new and goes first: 20 (50), 21 (-200); it moves behind the others with 100.
    /// Flow 1 is passed over, to behind flow 3 with 150; flow 2 has 100 and sends 12 (-150). Then flow 3 sends 22 and
    /// flow 1 sends 3.
    #[test]
    fn sparse_flows_go_first() {
        let mut steps = bench(&[], 100, 1);
        for (handle, flow) in [(0, 1), (1, 1), (2, 1), (3, 1), (10, 2), (11, 2), (12, 2)] {
            steps.push(0, handle, flow, 250);
        }
        assert_eq!(steps.take(0), [0, 1, 10, 11, 2].map(Some));
        (20..23).for_each(|handle| steps.push(0, handle, 3, 250));
        assert_eq!(steps.take(0), [Some(20), Some(21), Some(12), Some(22), Some(3), None]);
    }

    /// rtt 100 ms. At 8 Mbit/s a packet of 1514 takes 1.514 ms: target 5, interval 100. At 1 Mbit/s it takes 12.112 ms:
    /// the target is one and a half of these, 18.168, and the interval 100 + 18.168 - 5 = 113.168; at 80 kbit/s it
    /// takes 151.4: target 227.1, interval twice that, 454.2 (more than 322.1).
    #[test]
    fn target_and_interval_follow_the_link() {
        let link = crate::Link { capacity: Rate::from_bps(8_000_000), mean_packet: 1000.0 };
        let mut cake = Cake::new(&Values::resolve(PARAMS, &link, &|_| None).unwrap()).unwrap();
        for (bps, target, interval, four) in [
            (8_000_000, 5000, 100_000, 6056),
            (1_000_000, 18_168, 113_168, 48_448),
            (80_000, 227_100, 454_200, 605_600),
        ] {
            cake.set_capacity(Rate::from_bps(bps));
            let set = &cake.tins[0].set;
            let found = (set.target, set.interval, set.four_packets);
            assert_eq!(
                found,
                (Duration::from_micros(target), Duration::from_micros(interval), Duration::from_micros(four))
            );
        }
    }

    /// By hand for 8 Mbit/s and tins of `diffserv4`: at 1/16 of it a packet of 1514 takes 24.224 ms, at a half 3.028, at a quarter
    /// 6.056; the target is one and a half of these, at least 5 ms.
    #[test]
    fn targets_of_tins_follow_their_shares_of_the_link() {
        let link = crate::Link { capacity: Rate::from_bps(8_000_000), mean_packet: 1000.0 };
        let given = |name: &str| (name == "diffserv").then_some(crate::Value::Name("diffserv4"));
        let mut cake = Cake::new(&Values::resolve(PARAMS, &link, &given).unwrap()).unwrap();
        cake.set_capacity(link.capacity);
        let targets: Vec<_> = cake.tins.iter().map(|tin| tin.set.target).collect();
        assert_eq!(targets, [5000, 36_336, 5000, 9084].map(Duration::from_micros));
    }

    /// A 4096th of a second: 5,000,000 B/s / 4096 = 1220.7 B at 40 Mbit/s, 244.1 at 8 and 3051.8 at 100. BLUE's steps are 1/256 and
    /// 1/4096.
    #[test]
    fn default_quantum_follows_the_link_within_bounds() {
        for (mbps, quantum) in [(8, 300.0), (40, 5e6 / 4096.0), (100, 1514.0)] {
            let link = crate::Link { capacity: Rate::from_bps(mbps * 1_000_000), mean_packet: 1000.0 };
            let values = Values::resolve(PARAMS, &link, &|_| None).unwrap();
            assert_eq!(values.number("quantum"), quantum, "{mbps} Mbit/s");
            assert_eq!(
                ["increment", "decrement"].map(|step| values.number(step)),
                [0.003_906_25, 0.000_244_140_625]
            );
        }
    }

    /// A flood at three times the link's rate that ignores all signals, with room for 100 packets, beside a flow of 100
    /// bytes every 10 ms: the light flow loses nothing and waits for one packet; the flood loses two thirds, first because
    /// the buffer is full, then increasingly by BLUE, whose p rises by 1/256 every 5 ms while there is no room.
    #[test]
    fn flood_is_limited_and_others_are_not() {
        let mut steps = bench(&[], 100, 1);
        let end = 2_000_000;
        let mut arrivals: Vec<_> = (0..6000).map(|i| (u64::from(i) * 1000 / 3, i, 1, 1000)).collect();
        arrivals.extend((0..200).map(|i| (u64::from(i) * 10_000 + 1, 10_000 + i, 2, 100)));
        arrivals.sort_unstable();
        let sent = steps.run(&arrivals, end);
        let waits: Vec<_> = sent
            .iter()
            .filter(|(_, pkt)| pkt.flow == FlowId(2))
            .map(|(us, pkt)| us - pkt.arrival.as_nanos() / 1000)
            .collect();
        assert_eq!(waits.len(), 200);
        assert!(waits.iter().all(|&us| us <= 1000), "{waits:?}");
        assert!(steps.lost.iter().all(|&(handle, _)| handle < 6000));
        let blue = |range: std::ops::Range<u32>| {
            steps.lost.iter().filter(|(h, why)| range.contains(h) && *why == DropReason::Aqm).count()
        };
        assert!(
            blue(4500..6000) > 2 * blue(0..1500) && blue(0..1500) > 0,
            "{} {}",
            blue(0..1500),
            blue(4500..6000)
        );
        // 2 s without room would be 400 steps; BLUE alone controls the flood once p is 2/3, after 171.
        assert!((0.3..0.75).contains(&steps.probe("p")), "{}", steps.probe("p"));
    }

    /// A queue's last packet is sent however late it is; with one behind it, it gets a signal. Of two that leave at 50
    /// ms the second is late and due, but last; at 150 ms one more is, or two, of which the first is not last.
    #[test]
    fn last_packet_is_not_dropped() {
        for (count, lost) in [(1u32, 0), (2, 1)] {
            let mut steps = bench(&[], 100, 1);
            for (us, handles) in [(0, 0..2), (100_000, 10..10 + count)] {
                handles.for_each(|handle| steps.push(us, handle, 1, 1000));
                steps.pop(us + 50_000);
                while steps.pop(us + 50_000).is_some() {}
            }
            assert_eq!(steps.lost.len(), lost, "{:?}", steps.lost);
        }
    }

    /// After a drop because the buffer is full BLUE's p is 1 here, so that every packet gets its signal: after 64 drops one is sent, and so
    /// is the last one.
    #[test]
    fn blue_spares_a_packet_after_64_drops_and_the_last_one() {
        let mut steps = bench(&[("increment", 1.0)], 100, 1);
        (0..=100).for_each(|handle| steps.push(10_000, handle, 1, 1000));
        assert_eq!((steps.probe("p"), &steps.lost[..]), (0.0, &[(0, DropReason::Overflow)][..]));
        assert_eq!(steps.take(10_000), [Some(65), Some(100), None]);
        assert_eq!(steps.probe("p"), 1.0);
        assert!(steps.lost[1..].iter().all(|(_, why)| *why == DropReason::Aqm));
        assert_eq!(steps.lost.len(), 99);
    }

    /// A drop because the buffer is full makes BLUE's p 1, and an hour later it still is. Then each departure of flow 2, more than
    /// a target after the one before, finds flow 1's queue empty and takes a quarter off.
    #[test]
    fn blue_forgets_with_departures_of_other_queues() {
        let hour = 3_600_000_000;
        for (departures, p) in [(0, 1.0), (1, 0.75), (3, 0.25), (4, 0.0), (5, 0.0)] {
            let mut steps = bench(&[("increment", 1.0), ("decrement", 0.25)], 2, 1);
            (0..3).for_each(|handle| steps.push(10_000, handle, 1, 100));
            while steps.pop(10_000).is_some() {}
            for turn in 0..departures {
                let us = hour + u64::from(turn) * 10_000;
                steps.push(us, 10 + turn, 2, 100);
                assert_eq!(steps.take(us), [Some(10 + turn), None]);
            }
            steps.push(hour + 60_000, 20, 1, 100);
            assert!(steps.pop(hour + 60_000).is_some());
            assert_eq!(steps.probe("p"), p, "after {departures} departures");
        }
    }

    /// The table `diffserv4` of net/sched/sch_cake.c in Linux, by codepoint.
    #[test]
    fn tins_are_those_of_the_kernel() {
        let kernel = [
            [0, 1, 0, 0, 2, 0, 0, 0],
            [1, 0, 0, 0, 0, 0, 0, 0],
            [2, 0, 2, 0, 2, 0, 2, 0],
            [2, 0, 2, 0, 2, 0, 2, 0],
            [3, 0, 2, 0, 2, 0, 2, 0],
            [3, 0, 0, 0, 3, 0, 3, 0],
            [3, 0, 0, 0, 0, 0, 0, 0],
            [3, 0, 0, 0, 0, 0, 0, 0],
        ];
        for (dscp, tin) in kernel.concat().into_iter().enumerate() {
            assert_eq!(diffserv4(dscp as u8), tin, "DSCP {dscp}");
        }
    }

    fn tins(packets: u32) -> Queue {
        let link = crate::Link { capacity: Rate::from_bps(8_000_000), mean_packet: 1000.0 };
        let given = |name: &str| (name == "diffserv").then_some(crate::Value::Name("diffserv4"));
        let cake = Cake::new(&Values::resolve(PARAMS, &link, &given).unwrap()).unwrap();
        let limit = Limit { packets, bytes: u64::MAX };
        let (marking, seed, name) = (Marking::Drop, 1, String::new());
        let setup = QueueConfig { marking, limit, capacity: link.capacity, seed, name };
        Queue::new(Box::new(cake), Box::new(DropTail), &setup)
    }

    fn add(queue: &mut Queue, dscp: u8, handle: u32, lost: &mut Vec<(u32, DropReason)>) {
        add_long(queue, dscp, handle, 1000, lost);
    }

    fn add_long(queue: &mut Queue, dscp: u8, handle: u32, len: u32, lost: &mut Vec<(u32, DropReason)>) {
        let pkt = Packet { dscp, ..Packet::new(len, FlowId(u32::from(dscp)), handle) };
        queue.enqueue(pkt, Instant::ZERO, lost);
    }

    /// By hand, deficits of best effort and latency: 0 is sent (-1000, 0); best effort is passed over (24), and latency's turn
    /// comes with 0: 100 (24, -1000). Latency is passed over (-744) and 1 sent (-976); passed over twice (48, -488), 2 (-952);
    /// (72, -232), 3 (-928); (96, 24), 4 (-904); then latency has 24: 101. The rest is best effort, with a turn of the empty tin
    /// in between, which `peek` passes over, too.
    #[test]
    fn a_tin_is_served_until_its_deficit_is_below_zero() {
        let (mut queue, mut lost) = (tins(100), Vec::new());
        (0..12).for_each(|handle| add(&mut queue, 0, handle, &mut lost));
        (100..102).for_each(|handle| add(&mut queue, 46, handle, &mut lost));
        for handle in [0, 100, 1, 2, 3, 4, 101, 5, 6, 7, 8, 9, 10, 11] {
            assert_eq!(queue.peek().map(|pkt| pkt.handle), Some(handle));
            assert_eq!(queue.dequeue(Instant::ZERO, &mut lost).map(|pkt| pkt.handle), Some(handle));
        }
        assert_eq!(queue.peek(), None);
    }

    #[test]
    fn of_tins_with_equally_long_queues_the_first_loses() {
        for dscps in [[0, 46], [46, 0]] {
            let (mut queue, mut lost) = (tins(7), Vec::new());
            for dscp in dscps {
                (0..4).for_each(|handle| add(&mut queue, dscp, handle + u32::from(dscp), &mut lost));
            }
            assert_eq!(lost, [(0, DropReason::Overflow)]);
        }
    }

    /// The only packet of the tin for latency, whose turn it is, is dropped: the next one is of best effort.
    #[test]
    fn a_tin_that_lost_all_its_packets_has_no_turn() {
        let (mut queue, mut lost) = (tins(3), Vec::new());
        (0..3).for_each(|handle| add(&mut queue, 0, handle, &mut lost));
        assert_eq!(queue.dequeue(Instant::ZERO, &mut lost).map(|pkt| pkt.handle), Some(0));
        add_long(&mut queue, 46, 100, 5000, &mut lost);
        assert_eq!(queue.peek().map(|pkt| pkt.handle), Some(100));
        add(&mut queue, 0, 3, &mut lost);
        assert_eq!(lost, [(100, DropReason::Overflow)]);
        assert_eq!(queue.peek().map(|pkt| pkt.handle), Some(1));
        assert_eq!(queue.dequeue(Instant::ZERO, &mut lost).map(|pkt| pkt.handle), Some(1));
    }

    /// Backlogged tins share the link as their quanta, 1024 : 64 : 512 : 256 of 1856: of 1856 packets, as many each. A tin alone
    /// gets all of it. The packet that `peek` shows is the one that leaves.
    #[test]
    fn backlogged_tins_share_the_link_by_their_quanta() {
        for (dscps, shares) in [
            (&[0, 8, 26, 46][..], &[1024.0, 64.0, 512.0, 256.0][..]),
            (&[0, 46], &[1856.0 * 0.8, 1856.0 * 0.2]),
            (&[8], &[1856.0]),
        ] {
            let (mut queue, mut lost) = (tins(100_000), Vec::new());
            for handle in 0..3000 {
                dscps.iter().for_each(|&dscp| add(&mut queue, dscp, handle, &mut lost));
            }
            let mut sent = [0.0; 64];
            for _ in 0..1856 {
                let shown = queue.peek().map(|pkt| (pkt.dscp, pkt.handle));
                let pkt = queue.dequeue(Instant::ZERO, &mut lost).unwrap();
                assert_eq!(shown, Some((pkt.dscp, pkt.handle)));
                sent[usize::from(pkt.dscp)] += 1.0;
            }
            for (dscp, share) in dscps.iter().zip(shares) {
                // Each tin is at most a packet and a quantum off, seen from its own and from another's turn.
                let found: f64 = sent[usize::from(*dscp)];
                assert!((found - share).abs() <= 4.0, "DSCP {dscp}: {found} of {share}");
            }
        }
    }

    /// A call in the tin for latency beside a backlog of best effort: each of its packets is among the next three.
    #[test]
    fn sparse_tin_waits_for_a_packet_of_each_other_tin() {
        let (mut queue, mut lost) = (tins(100_000), Vec::new());
        (0..500).for_each(|handle| add(&mut queue, 0, handle, &mut lost));
        for turn in 0..50 {
            (0..7).for_each(|_| assert!(queue.dequeue(Instant::ZERO, &mut lost).is_some()));
            add(&mut queue, 46, 1000 + turn, &mut lost);
            let next = [(); 3].map(|()| queue.dequeue(Instant::ZERO, &mut lost).map(|pkt| pkt.handle));
            assert!(next.contains(&Some(1000 + turn)), "{turn}: {next:?}");
        }
    }

    /// Of two queues the one with more bytes loses, in whichever tin it is.
    #[test]
    fn longest_queue_of_all_tins_loses_packets() {
        for (longer, shorter) in [(0, 46), (46, 0)] {
            let (mut queue, mut lost) = (tins(10), Vec::new());
            (0..4).for_each(|handle| add(&mut queue, shorter, 100 + handle, &mut lost));
            (0..8).for_each(|handle| add(&mut queue, longer, handle, &mut lost));
            assert_eq!(lost, [(0, DropReason::Overflow), (1, DropReason::Overflow)]);
        }
    }

    #[test]
    fn flows_must_be_a_multiple_of_ways() {
        let link = crate::Link { capacity: Rate::from_bps(8_000_000), mean_packet: 1000.0 };
        let given = |name: &str| (name == "flows").then_some(crate::Value::Number(1001.0));
        let error = Cake::new(&Values::resolve(PARAMS, &link, &given).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "flows: found 1001, but it must be a multiple of ways, which is 8");
    }
}
