//! CAKE, common applications kept enhanced: fair queueing in which flows hardly ever share a queue, with a COBALT each.
//!
//! Høiland-Jørgensen, Täht & Morton 2018, *Piece of CAKE*; the documentation of Linux's sch_cake. Its core is that of
//! `fq_codel`, with three changes:
//!
//! - The hash is *set-associative*: the `flows` queues form sets of `ways`. A flow looks in its set for the queue with
//!   its own tag; else for an unused one, from its hash's own position on; and only if all are in use it shares the
//!   queue at that position. With 100 flows and 1024 queues plain hashing puts about five flows into a queue in use,
//!   this one practically none. - Each queue has a COBALT, CoDel and BLUE combined. `target` is a twentieth of `rtt`,
//!   and at least the time of one and a half packets of `mtu`; a delay of at most four of them is always acceptable,
//!   and a queue's last packet is never dropped. BLUE's probability grows by `increment`, at most once per target, when
//!   the queue drops packets for want of room, and falls by `decrement` when it is empty: it controls unresponsive
//!   flows.
//! - `quantum` is derived from the link's capacity, between 300 and 1514 bytes, so that on a slow link fewer flows
//!   count as sparse.
//!
//! If there is no room, the queue with the most bytes loses packets from its head, one by one.
//!
//! *Departures:* only CAKE's queueing is implemented. Not included: its shaper (the gateway's regulator or the link
//! limits the rate, so also `overhead` compensation and `ingress` mode), DiffServ priority tins, the ACK filter, GSO
//! splitting, and host isolation (`triple-isolate`): a packet here has a flow, not the hosts at its ends. The gateway
//! defines a flow (`flow_key`), so a queue can be a user's. Further: an empty queue passes through the old ones before
//! it may be new again, as in RFC 8290; Linux removes it at once. In Linux BLUE falls, and a queue's tag expires, while
//! other packets are sent; here both depend on time, in the same steps of a target. The last packet of a queue gets no
//! signal at all; Linux would still set its ECN field. A flow whose set is full takes over the tag of the queue that it
//! shares, as in Linux: the former owner may get another queue, and its packets there overtake those left behind. After
//! 64 dropped packets one is sent. The buffer size is that of the surrounding queue, not four `rtt` of the link.
//!
//! *In a satellite gateway:* as for `fq_codel`: at the transmit queue it drops acknowledged packets, which is accepted
//! with a warning; it belongs where connections are not split (`pep.split = []`), or at the queue of a link. Set `rtt`
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

const PARAMS: &[Param] = &[
    Param::number(
        "rtt",
        Unit::Seconds,
        0.1,
        Range::above(0.0, 1e3),
        "Round trip of the connections: CoDel's interval, and twenty times its target",
    )
    .origin("tc-cake(8): internet, 100 ms")
    .tune(Tune::Log(0.02, 2.0)),
    FLOWS.origin("sch_cake: 1024 in each tin"),
    Param::number("ways", Unit::Count, 8.0, Range::between(1.0, 64.0), "Queues per set; 1: a plain hash")
        .origin("sch_cake: 8"),
    Param::from_link(
        "quantum",
        Unit::Bytes,
        |link| (link.capacity.bytes_per_sec() / 4096.0).clamp(300.0, 1514.0),
        "bytes that the link sends in 1/4096 s, between 300 and 1514 B",
        Range::between(1.0, 65_535.0),
        "Bytes that a queue may send per turn",
    )
    .origin("sch_cake: the rate shifted by 12 bits")
    .tune(Tune::Around(0.25, 4.0)),
    Param::number(
        "mtu",
        Unit::Bytes,
        1514.0,
        Range::between(0.0, 65_535.0),
        "Longest packet: the target is at least the time of one and a half",
    )
    .origin("sch_cake: Ethernet's"),
    Param::number(
        "increment",
        Unit::One,
        1.0 / 256.0,
        Range::between(0.0, 1.0),
        "BLUE's step up when the queue drops packets for want of room",
    )
    .symbol("p_inc")
    .origin("sch_cake: 1/256")
    .tune(Tune::Log(1e-4, 0.1)),
    Param::number(
        "decrement",
        Unit::One,
        1.0 / 4096.0,
        Range::above(0.0, 1.0),
        "BLUE's step down when the queue is empty",
    )
    .symbol("p_dec")
    .origin("sch_cake: 1/4096")
    .tune(Tune::Log(1e-5, 0.01)),
];

/// CAKE's state.
#[derive(Debug)]
pub struct Cake {
    rtt: Duration,
    mtu: u64,
    ways: u32,
    /// Capacity for which [`Cake::set`] was computed.
    capacity: Option<Rate>,
    set: Settings,
    buckets: Buckets,
    /// By queue.
    cobalts: IdVec<BucketId, Cobalt>,
    /// Owner of each queue.
    tags: IdVec<BucketId, Option<FlowId>>,
    salt: Option<u64>,
    collisions: u64,
    /// BLUE's probability in the queue that was served last.
    p: f64,
}

impl Cake {
    fn new(v: &Values) -> Result<Self, ParamError> {
        let (flows, ways) = (v.number("flows") as u32, v.number("ways") as u32);
        if !flows.is_multiple_of(ways) {
            let problem = format!("found {flows}, but it must be a multiple of ways, which is {ways}");
            return Err(ParamError { name: "flows", problem });
        }
        let (increment, decrement) = (v.number("increment"), v.number("decrement"));
        let none = Duration::ZERO;
        Ok(Self {
            rtt: Duration::from_secs_f64(v.number("rtt")),
            mtu: v.number("mtu") as u64,
            ways,
            capacity: None,
            set: Settings { target: none, interval: none, four_packets: none, increment, decrement },
            buckets: Buckets::new(flows, v.number("quantum") as u32),
            cobalts: repeat_n(Cobalt::REST, flows as usize).collect(),
            tags: repeat_n(None, flows as usize).collect(),
            salt: None,
            collisions: 0,
            p: 0.0,
        })
    }

    /// Computes target and interval for a link of that capacity.
    fn set_capacity(&mut self, capacity: Rate) {
        if self.capacity == Some(capacity) {
            return;
        }
        self.capacity = Some(capacity);
        let packet = capacity.time_to_send(self.mtu);
        let wanted = self.rtt.part(20).max(Duration::from_nanos(1));
        self.set.target = wanted.max(packet.times(3).part(2));
        self.set.interval = (self.rtt + self.set.target.saturating_sub(wanted)).max(self.set.target.times(2));
        self.set.four_packets = packet.times(4);
    }

    /// Returns the queue of a flow.
    fn classify(&mut self, flow: FlowId, salt: u64, now: Instant) -> BucketId {
        let direct = self.buckets.of(flow, salt);
        if self.tags[direct] == Some(flow) {
            return direct;
        }
        let index = direct.index();
        let first = index - index % self.ways;
        let own = (first..first + self.ways).map(BucketId::new).find(|&way| self.tags[way] == Some(flow));
        let mut ways = (index..first + self.ways).chain(first..index).map(BucketId::new);
        let found = own.or_else(|| ways.find(|&way| self.is_free(way, now)));
        let way = found.unwrap_or_else(|| {
            self.collisions += 1;
            direct
        });
        self.tags[way] = Some(flow);
        way
    }

    /// Returns true if a queue is unused.
    fn is_free(&mut self, bucket: BucketId, now: Instant) -> bool {
        self.buckets.list(bucket).is_none() && self.cobalts[bucket].rest(now, &self.set)
    }
}

impl Scheduler for Cake {
    fn push(&mut self, pkt: Packet, cx: &mut Context<'_>, out: &mut dyn SchedulerHost) {
        self.set_capacity(cx.queue.capacity);
        let salt = *self.salt.get_or_insert_with(|| cx.rng.bits());
        let bucket = self.classify(pkt.flow, salt, cx.now);
        if self.buckets.list(bucket).is_none() {
            self.cobalts[bucket].rest(cx.now, &self.set);
        }
        self.buckets.push(bucket, pkt);
        make_room(cx, &pkt, out, || {
            let fattest = self.buckets.fattest()?;
            let victim = self.buckets.take(fattest)?;
            self.cobalts[fattest].full(cx.now, &self.set);
            Some(victim)
        });
    }

    fn pop(&mut self, cx: &mut Context<'_>, out: &mut dyn SchedulerHost) -> Option<Packet> {
        self.set_capacity(cx.queue.capacity);
        let mut dropped = 0;
        loop {
            let bucket = self.buckets.turn()?;
            let cobalt = &mut self.cobalts[bucket];
            let Some(pkt) = self.buckets.take(bucket) else {
                cobalt.empty(cx.now, &self.set);
                self.buckets.on_empty(bucket);
                continue;
            };
            let signal = cobalt.leaves(cx.now - pkt.arrival, cx.now, &self.set, || cx.rng.uniform());
            self.p = cobalt.p();
            let exempt = self.buckets.packets(bucket) == 0 || dropped == MAX_DROPS_PER_DEQUEUE;
            let next = match signal {
                Signal::Mark if !exempt => out.mark(pkt).inspect(|_| cobalt.marked(cx.now)),
                Signal::Drop if !exempt => {
                    out.dropped(pkt, DropReason::Aqm);
                    None
                }
                _ => Some(pkt),
            };
            if let Some(pkt) = next {
                self.buckets.charge(bucket, pkt.len);
                return Some(pkt);
            }
            dropped += 1;
        }
    }

    fn peek(&self) -> Option<&Packet> {
        self.buckets.peek()
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("new_flows", f64::from(self.buckets.len(List::New)));
        out("old_flows", f64::from(self.buckets.len(List::Old)));
        out("p", self.p);
        out("collisions", self.collisions as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::super::steps::Steps;
    use super::*;
    use crate::Marking;

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

    /// A queue belongs to a flow while it holds packets, and for an interval after its last one; then another flow of
    /// the set may have it. With one set of two queues: flows 1 and 2 have one each, 3 must share. Both are served at
    /// 0, found empty, and in use for the interval of 100 ms from then on.
    #[test]
    fn queue_is_released_after_an_interval() {
        let mut steps = bench(&[("flows", 2.0), ("ways", 2.0)], 100, 1);
        steps.push(0, 1, 1, 100);
        steps.push(0, 2, 2, 100);
        assert_eq!(steps.probe("collisions"), 0.0);
        while steps.pop(0).is_some() {}
        steps.push(99_999, 3, 3, 100);
        assert_eq!(steps.probe("collisions"), 1.0);
        while steps.pop(99_999).is_some() {}
        // Flow 3 has used one of them at 99.999 ms; the other is free from 100 ms on.
        steps.push(100_000, 4, 4, 100);
        assert_eq!(steps.probe("collisions"), 1.0);
        steps.push(100_000, 5, 5, 100);
        assert_eq!(steps.probe("collisions"), 2.0);
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
            let found = (cake.set.target, cake.set.interval, cake.set.four_packets);
            assert_eq!(
                found,
                (Duration::from_micros(target), Duration::from_micros(interval), Duration::from_micros(four))
            );
        }
    }

    /// A flood at three times the link's rate that ignores all signals, with room for 100 packets, beside a flow of 100
    /// bytes every 10 ms: the light flow loses nothing and waits for one packet; the flood loses two thirds, first for
    /// want of room, then increasingly by BLUE, whose p rises by 1/256 every 5 ms while there is no room.
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

    #[test]
    fn flows_must_be_a_multiple_of_ways() {
        let link = crate::Link { capacity: Rate::from_bps(8_000_000), mean_packet: 1000.0 };
        let given = |name: &str| (name == "flows").then_some(crate::Value::Number(1001.0));
        let error = Cake::new(&Values::resolve(PARAMS, &link, &given).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "flows: found 1001, but it must be a multiple of ways, which is 8");
    }
}
