//! SFB, stochastic fair BLUE: BLUE in bins that flows are hashed to, so that unresponsive flows are detected and
//! rate-limited without per-flow state.
//!
//! Feng, Kandlur, Saha & Shin 2001. There are `levels` times `bins` bins, and each level has its own hash function from
//! flows to its bins. A bin counts the waiting packets of its flows, and has a probability as BLUE has: an arrival that
//! finds more than `bin_size` packets in one of its bins raises that bin's `p_m` by `d1`, one that finds it empty
//! lowers it by `d2`, each at most once per `freeze_time`. A packet is marked with the least of its bins'
//! probabilities, `p_min`. An unresponsive flow drives all of its bins to 1; another flow that shares some of these has
//! at least one bin below 1, unless all its bins belong to such flows, which is rarer with more levels. Flows at
//! `p_min = 1` together have `penalty_rate`, and the excess is dropped.
//!
//! A flow that shares its bins on all levels with an unresponsive flow should not do so forever: every `rehash` new
//! hash functions are used. They are chosen in advance; during the preceding `warmup`, flows at `p_min = 1` also update
//! the probabilities of the next bins, so that they are not unlimited at first (moving hash functions with double
//! buffering, section 3 of the paper).
//!
//! *Departures:* the paper's figure has one step for both directions and no freeze time; here both are BLUE's. If a bin
//! has been empty for longer than `freeze_time`, each `freeze_time` counts as one step, as an idle link does in BLUE:
//! otherwise a flow that returns after an hour would be marked for its past. In the figure a full bin on any level
//! drops packets; here and in Linux all bins of a packet have to be full, with a separate limit (`bin_limit`, a quarter
//! more than `bin_size`), because a single full bin may be due to another flow. Flows at `p_min = 1` are limited by
//! `penalty_rate` alone. Packets dropped for these two reasons
//! are dropped whatever the marking method. Linux also drops, in spite of ECN, with probability `2 p_min - 1` above
//! `p_min = 1/2`; the paper does not. The text of the paper was not available; its figure is known from its descendants
//! in Linux and elsewhere.
//!
//! *In a satellite gateway:* it marks ahead of the PEP by the number of packets per bin in the transmit queue, provided
//! that both points use the same flow numbers. It is useful if some flows are unresponsive: these get no early
//! acknowledgements, and fill the transmit queue before all others. Behind a PEP the packets of a TCP flow arrive at
//! the rate of its window, so bins fill with the number of their flows rather than with the rate of one; with few flows
//! on the link, or bulk transfers of very unequal round trips, a responsive flow may reach 1.

use std::any::Any;

use bentpipe_units::{Duration, Instant, Rng};

use crate::descriptor::{Algorithm, Placement};
use crate::sched::buckets::{hash, spread};
use crate::{Aqm, Context, FlowId, Packet, Param, Range, Tune, Unit, Values, Verdict};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "sfb",
    title: "Stochastic fair BLUE",
    source: "Feng et al. 2001",
    params: PARAMS,
    presets: &[],
    placement: Placement::Anywhere,
    build: |values| Ok(Box::new(Sfb::new(values))),
    fluid: None,
};

const PARAMS: &[Param] = &[
    Param::number("levels", Unit::Count, 2.0, Range::between(1.0, 8.0))
        .doc("Number of hash functions, each with its bins")
        .symbol("L")
        .origin("Feng et al. 2001")
        .tune(Tune::Linear(1.0, 4.0)),
    Param::number("bins", Unit::Count, 23.0, Range::between(1.0, 65_536.0))
        .doc("Bins per level")
        .symbol("N")
        .origin("Feng et al. 2001")
        .tune(Tune::Log(8.0, 1024.0)),
    Param::from_link("bin_size", Unit::Packets, Range::between(1.0, 1e9), |link| share(link).round())
        .default_doc("1.5/23 of the packets that the link sends in 100 ms, at least two")
        .doc("Packets in a bin above which its probability grows")
        .origin("Feng et al. 2001 (half as much again as a bin's share of the buffer)")
        .tune(Tune::Around(0.25, 4.0)),
    Param::from_link("bin_limit", Unit::Packets, Range::between(1.0, 1e9), |link| {
        (1.25 * share(link)).round()
    })
    .default_doc("a quarter more than the default of `bin_size`")
    .doc("Packets in each of a packet's bins above which it is dropped")
    .symbol("max")
    .origin("Linux sch_sfb (25 to 20)")
    .tune(Tune::Around(0.25, 8.0)),
    Param::number("d1", Unit::One, 0.0025, Range::above(0.0, 1.0))
        .doc("Step by which a bin's probability grows")
        .symbol("δ")
        .origin("Feng et al. 2002 (BLUE)")
        .tune(Tune::Log(0.0005, 0.05)),
    Param::number("d2", Unit::One, 0.000_25, Range::above(0.0, 1.0))
        .doc("Step by which a bin's probability falls")
        .symbol("δ")
        .origin("Feng et al. 2002 (BLUE)")
        .tune(Tune::Log(0.000_05, 0.005)),
    Param::number("freeze_time", Unit::Seconds, 0.01, Range::above(0.0, 1e3))
        .doc("Minimum time between changes of a bin's probability")
        .origin("Feng et al. 2002 (BLUE)")
        .tune(Tune::Log(0.001, 0.2)),
    Param::from_link("penalty_rate", Unit::BitsPerSecond, Range::between(0.0, 1e12), |link| {
        link.capacity.as_bps() as f64 / 200.0
    })
    .default_doc("a two-hundredth of the link's capacity")
    .doc("Rate shared by all flows with probability 1")
    .origin("close to Linux sch_sfb's 10 packets per second on a link of 20 Mbit/s")
    .tune(Tune::Around(0.1, 10.0)),
    Param::from_link("penalty_burst", Unit::Bytes, Range::between(0.0, 1e9), |link| 20.0 * link.mean_packet)
        .default_doc("20 of the link's mean packets")
        .doc("Burst of all flows with probability 1 after a pause")
        .origin("Linux sch_sfb")
        .tune(Tune::Around(0.1, 10.0)),
    Param::number("rehash", Unit::Seconds, 600.0, Range::between(0.0, 1e9))
        .doc("Lifetime of the hash functions; 0: unlimited")
        .origin("Linux sch_sfb")
        .tune(Tune::Log(2.0, 600.0)),
    Param::number("warmup", Unit::Seconds, 60.0, Range::between(0.0, 1e9))
        .doc("Time before a change in which the next bins are updated too")
        .origin("Linux sch_sfb"),
];

/// 1.5/23 of the packets that the link sends in 100 ms, at least two.
fn share(link: &crate::Link) -> f64 {
    (1.5 / 23.0 * link.packets_in(0.1)).max(2.0)
}

/// SFB's state.
#[derive(Debug)]
pub struct Sfb {
    bin_size: u32,
    bin_limit: u32,
    d1: f64,
    d2: f64,
    freeze_time: Duration,
    rehash: Option<Duration>,
    warmup: Duration,
    /// The bins in use and the next ones.
    sets: [Set; 2],
    in_use: usize,
    /// Time when the next bins come into use; `None` before the first packet.
    next: Option<Instant>,
    penalty: Penalty,
}

/// The bins of one choice of hash functions.
#[derive(Debug)]
struct Set {
    /// One per level.
    salts: Vec<u64>,
    /// Time of the choice; packets that arrived before are in other bins.
    since: Option<Instant>,
    /// Level by level.
    bins: Vec<Bin>,
    per_level: u32,
    /// Number of times that the queue became empty, and the last such time.
    emptied: (u32, Instant),
}

#[derive(Clone, Debug)]
struct Bin {
    p_m: f64,
    qlen: u32,
    /// Number of times that the queue had become empty when `qlen` was last read.
    epoch: u32,
    /// Time of the last change of the probability; `None` before the first.
    changed: Option<Instant>,
    emptied: Instant,
}

impl Bin {
    const NEW: Self = Self { p_m: 0.0, qlen: 0, epoch: 0, changed: None, emptied: Instant::ZERO };
}

/// The rate shared by flows at a probability of 1: a token bucket.
#[derive(Debug)]
struct Penalty {
    /// [bytes/s].
    rate: f64,
    burst: f64,
    tokens: f64,
    filled: Instant,
}

impl Penalty {
    fn allows(&mut self, len: u32, now: Instant) -> bool {
        self.tokens = (self.tokens + self.rate * (now - self.filled).as_secs_f64()).min(self.burst);
        self.filled = now;
        let allowed = self.tokens >= f64::from(len);
        if allowed {
            self.tokens -= f64::from(len);
        }
        allowed
    }
}

impl Set {
    fn new(levels: usize, per_level: u32) -> Self {
        let bins = vec![Bin::NEW; levels * per_level as usize];
        Self { salts: vec![0; levels], since: None, bins, per_level, emptied: (0, Instant::ZERO) }
    }

    /// Restarts with other hash functions.
    fn draw(&mut self, since: Option<Instant>, rng: &mut Rng) {
        self.salts.iter_mut().for_each(|salt| *salt = rng.bits());
        self.bins.fill(Bin { epoch: self.emptied.0, ..Bin::NEW });
        self.since = since;
    }

    /// Passes a flow's present bins, one per level, to `take`.
    fn each(&mut self, flow: FlowId, mut take: impl FnMut(&mut Bin)) {
        let (epoch, emptied) = self.emptied;
        let mut level = 0;
        for &salt in &self.salts {
            let bin = &mut self.bins[level + spread(hash(flow, salt), self.per_level) as usize];
            if bin.epoch != epoch {
                // Nothing waited then; a scheduler that drops packets may have left a count.
                if bin.qlen > 0 {
                    (bin.qlen, bin.emptied) = (0, emptied);
                }
                bin.epoch = epoch;
            }
            take(bin);
            level += self.per_level as usize;
        }
    }

    fn counts(&self, pkt: &Packet) -> bool {
        self.since.is_none_or(|since| pkt.arrival > since)
    }

    fn enter(&mut self, pkt: &Packet) {
        if self.counts(pkt) {
            self.each(pkt.flow, |bin| bin.qlen += 1);
        }
    }

    fn leave(&mut self, pkt: &Packet, cx: &Context<'_>) {
        if self.counts(pkt) {
            self.each(pkt.flow, |bin| {
                bin.qlen = bin.qlen.saturating_sub(1);
                bin.emptied = cx.now;
            });
        }
        if cx.queue.packets == 0 {
            self.emptied = (self.emptied.0.wrapping_add(1), cx.now);
        }
    }
}

impl Sfb {
    fn new(v: &Values) -> Self {
        let set = Set::new(v.number("levels") as usize, v.number("bins") as u32);
        let (rehash, burst) = (v.number("rehash"), v.number("penalty_burst"));
        Self {
            bin_size: v.number("bin_size") as u32,
            bin_limit: v.number("bin_limit") as u32,
            d1: v.number("d1"),
            d2: v.number("d2"),
            freeze_time: Duration::from_secs_f64(v.number("freeze_time")).max(Duration::from_nanos(1)),
            rehash: (rehash > 0.0).then(|| Duration::from_secs_f64(rehash)),
            warmup: Duration::from_secs_f64(v.number("warmup")),
            sets: [Set::new(set.salts.len(), set.per_level), set],
            in_use: 0,
            next: None,
            penalty: Penalty {
                rate: v.number("penalty_rate") / 8.0,
                burst,
                tokens: burst,
                filled: Instant::ZERO,
            },
        }
    }

    /// Draws the hash functions, and again when it is time.
    fn choose(&mut self, cx: &mut Context<'_>) {
        match self.next {
            None => {
                self.sets.iter_mut().for_each(|set| set.draw(None, cx.rng));
            }
            Some(next) if cx.now >= next => {
                self.sets[self.in_use].draw(Some(cx.now), cx.rng);
                self.in_use = 1 - self.in_use;
            }
            Some(_) => return,
        }
        self.next = Some(cx.now + self.rehash.unwrap_or(Duration::MAX));
    }

    /// Updates the probabilities of an arrival's bins. Returns the least probability and the least count.
    fn update(&mut self, set: usize, flow: FlowId, now: Instant) -> (f64, u32) {
        let (mut p_min, mut shortest) = (1.0f64, u32::MAX);
        let (bin_size, d1, d2, freeze) = (self.bin_size, self.d1, self.d2, self.freeze_time);
        self.sets[set].each(flow, |bin| {
            let thawed = bin.changed.is_none_or(|changed| now - changed >= freeze);
            if bin.qlen > bin_size && thawed {
                bin.p_m = (bin.p_m + d1).min(1.0);
                bin.changed = Some(now);
            } else if bin.qlen == 0 && thawed && bin.p_m > 0.0 {
                let times = ((now - bin.emptied).as_nanos() / freeze.as_nanos()).max(1);
                bin.p_m = (bin.p_m - d2 * times as f64).max(0.0);
                bin.changed = Some(now);
            }
            p_min = p_min.min(bin.p_m);
            shortest = shortest.min(bin.qlen);
        });
        (p_min, shortest)
    }
}

impl Aqm for Sfb {
    fn arrive(&mut self, pkt: &Packet, cx: &mut Context<'_>) -> Verdict {
        self.choose(cx);
        let (p_min, shortest) = self.update(self.in_use, pkt.flow, cx.now);
        if p_min < 1.0 {
            return match shortest > self.bin_limit {
                true => Verdict::Drop,
                false if cx.rng.uniform() < p_min => Verdict::Mark,
                false => Verdict::Pass,
            };
        }
        if self.next.is_some_and(|next| cx.now + self.warmup >= next) {
            self.update(1 - self.in_use, pkt.flow, cx.now);
        }
        if self.penalty.allows(pkt.len, cx.now) { Verdict::Pass } else { Verdict::Drop }
    }

    fn enqueued(&mut self, pkt: &Packet, cx: &mut Context<'_>) {
        self.choose(cx);
        self.sets.iter_mut().for_each(|set| set.enter(pkt));
    }

    fn depart(&mut self, pkt: &Packet, cx: &mut Context<'_>) -> Verdict {
        self.sets.iter_mut().for_each(|set| set.leave(pkt, cx));
        Verdict::Pass
    }

    fn overflowed(&mut self, pkt: &Packet, cx: &mut Context<'_>) {
        self.sets.iter_mut().for_each(|set| set.leave(pkt, cx));
    }

    fn resume(&mut self, previous: &mut dyn Any) -> bool {
        let Some(was) = previous.downcast_mut::<Self>() else { return false };
        self.penalty.tokens = was.penalty.tokens;
        self.penalty.filled = was.penalty.filled;
        let shape = |sfb: &Self| (sfb.sets[0].bins.len(), sfb.sets[0].per_level);
        if shape(self) == shape(was) {
            (self.in_use, self.next) = (was.in_use, was.next);
            std::mem::swap(&mut self.sets, &mut was.sets);
        }
        true
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        let bins = &self.sets[self.in_use].bins;
        out("p", bins.iter().map(|bin| bin.p_m).fold(0.0, f64::max));
        out("bins_at_1", bins.iter().filter(|bin| bin.p_m >= 1.0).count() as f64);
        out("penalty_tokens", self.penalty.tokens);
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_units::Rate;

    use super::*;
    use crate::{Limit, QueueState, Value};

    struct Bench {
        sfb: Sfb,
        state: QueueState,
        rng: Rng,
    }

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    impl Bench {
        /// A link of 8 Mbit/s, one byte per microsecond; other packets wait besides those of the test.
        fn new(given: &[(&str, f64)]) -> Self {
            let link = crate::Link { capacity: Rate::from_bps(8_000_000), mean_packet: 1000.0 };
            let find = |name: &str| given.iter().find(|(n, _)| *n == name).map(|&(_, x)| Value::Number(x));
            Self {
                sfb: Sfb::new(&Values::resolve(PARAMS, &link, &find).unwrap()),
                state: QueueState {
                    packets: 5,
                    bytes: 5000,
                    limit: Limit::NONE,
                    ..QueueState::empty(link.capacity)
                },
                rng: Rng::stream(1, "sfb", 0, "test"),
            }
        }

        fn arrive(&mut self, ms: u64, flow: u32) -> Verdict {
            let pkt = Packet { arrival: at(ms), ..Packet::new(1000, FlowId(flow), 0) };
            self.sfb.arrive(&pkt, &mut Context::new(at(ms), &self.state, &mut self.rng))
        }

        fn enter(&mut self, ms: u64, flow: u32) -> Packet {
            let pkt = Packet { arrival: at(ms), ..Packet::new(1000, FlowId(flow), 0) };
            self.sfb.enqueued(&pkt, &mut Context::new(at(ms), &self.state, &mut self.rng));
            pkt
        }

        fn leave(&mut self, ms: u64, pkt: &Packet) {
            self.sfb.depart(pkt, &mut Context::new(at(ms), &self.state, &mut self.rng));
        }

        /// Probability and count of a flow's bin on the first level.
        fn bin(&mut self, flow: u32) -> (f64, u32) {
            let mut found = None;
            let set = self.sfb.in_use;
            self.sfb.sets[set].each(FlowId(flow), |bin| _ = found.get_or_insert((bin.p_m, bin.qlen)));
            found.unwrap()
        }

        /// Minimum probability of a flow's bins.
        fn p_min(&mut self, flow: u32) -> f64 {
            let (mut least, set) = (1.0f64, self.sfb.in_use);
            self.sfb.sets[set].each(FlowId(flow), |bin| least = least.min(bin.p_m));
            least
        }

        /// Drives all bins of a flow to 1.
        fn saturate(&mut self, flow: u32) {
            let set = self.sfb.in_use;
            self.sfb.sets[set].each(FlowId(flow), |bin| bin.p_m = 1.0);
        }
    }

    /// By hand, one level of one bin: bin_size 2, d1 0.1, d2 0.04, freeze_time 10 ms. Arrivals at:
    ///
    /// | ms | bin | `p_m` |
    /// |---|---|---|
    /// | 0 | 3 packets | 0.1 |
    /// | 5 | 3, frozen | 0.1 |
    /// | 10 | 3 | 0.2 |
    /// | 25 | 2, one left | 0.2 |
    /// | 26 | empty since 25 | 0.16 |
    /// | 30 | empty, frozen | 0.16 |
    /// | 36 | empty since 31 | 0.12 |
    /// | 66 | empty since 31, 35 ms: three steps | 0 |
    #[test]
    fn arrivals_update_a_bin() {
        let given = [("levels", 1.0), ("bins", 1.0), ("bin_size", 2.0), ("d1", 0.1), ("d2", 0.04)];
        let mut sfb = Bench::new(&given);
        let waiting: Vec<_> = (0..3).map(|flow| sfb.enter(0, flow)).collect();
        for (ms, p) in
            [(0, 0.1), (5, 0.1), (10, 0.2), (25, 0.2), (26, 0.16), (30, 0.16), (36, 0.12), (66, 0.0)]
        {
            match ms {
                25 => sfb.leave(24, &waiting[0]),
                26 => waiting[1..].iter().for_each(|pkt| sfb.leave(25, pkt)),
                36 => {
                    let pkt = sfb.enter(31, 7);
                    sfb.leave(31, &pkt);
                }
                _ => {}
            }
            sfb.arrive(ms, 9);
            assert!((sfb.bin(9).0 - p).abs() < 1e-12, "{} is not {p} at {ms} ms", sfb.bin(9).0);
        }
    }

    /// A packet is marked with the least probability of its bins: a tenth of 10,000, within five standard errors of 30.
    #[test]
    fn marks_with_the_least_probability() {
        let mut sfb = Bench::new(&[("d1", 1e-9), ("d2", 1e-9)]);
        sfb.arrive(0, 1);
        let mut p = 0.1;
        sfb.sfb.sets[0].each(FlowId(1), |bin| {
            bin.p_m = p;
            p += 0.4;
        });
        let marks = (0..10_000).filter(|_| sfb.arrive(0, 1) == Verdict::Mark).count();
        assert!((850..=1150).contains(&marks), "{marks}");
    }

    /// Feng et al. 2001, on the probability that a flow is taken for an unresponsive one: with M such flows, N bins and
    /// L levels it is (1 - (1 - 1 / N)^M)^L. M = 10, N = 23, L = 2: 0.1288; a thousand flows for each of 400 choices of
    /// hash functions, with an error well below 0.005.
    #[test]
    fn share_of_false_positives_matches_the_paper() {
        let (mut shared, mut rng) = (0, Rng::stream(2, "sfb", 0, "test"));
        for _ in 0..400 {
            let mut sfb = Bench::new(&[]);
            sfb.sfb.sets[0].draw(None, &mut rng);
            (0..10).for_each(|flow| sfb.saturate(flow));
            shared += (10..1010).filter(|&flow| sfb.p_min(flow) >= 1.0).count();
        }
        let expected = libm::pow(1.0 - libm::pow(22.0 / 23.0, 10.0), 2.0);
        let measured = f64::from(shared as u32) / 400_000.0;
        assert!((measured - expected).abs() < 0.005, "{measured} is not {expected}");
    }

    /// An unresponsive flow gets the penalty rate, here 40 kbit/s or five packets per second: 50 in 10 s plus the burst
    /// of 20. The excess is dropped, not marked.
    #[test]
    fn unresponsive_flows_share_the_penalty_rate() {
        let mut sfb = Bench::new(&[("d2", 1e-12)]);
        sfb.arrive(0, 1);
        sfb.sfb.sets[0].each(FlowId(1), |bin| (bin.p_m, bin.qlen) = (1.0, 1));
        let all: Vec<_> = (0..10_000).map(|ms| sfb.arrive(ms, 1)).collect();
        let passed = all.iter().filter(|&&verdict| verdict == Verdict::Pass).count();
        assert!((69..=70).contains(&passed), "{passed}");
        assert!(!all.contains(&Verdict::Mark));
    }

    /// The link of 8 Mbit/s sends 100 packets of 1000 bytes in 100 ms: 1.5 / 23 of them; one of 80 kbit/s sends one, and a bin has two.
    #[test]
    fn default_length_of_a_bin_is_its_share_of_the_link() {
        let link = |bps| crate::Link { capacity: Rate::from_bps(bps), mean_packet: 1000.0 };
        assert!((share(&link(8_000_000)) - 150.0 / 23.0).abs() < 1e-9);
        assert_eq!(share(&link(80_000)), 2.0);
    }

    /// A bin that became empty at 10 ms, before the queue did at 1 s, has had 100 intervals of 10 ms at 1010 ms, d2 = 0.001 each.
    #[test]
    fn empty_queue_does_not_renew_the_time_of_an_empty_bin() {
        let mut sfb = Bench::new(&[("levels", 1.0), ("bins", 1000.0), ("d2", 0.001), ("rehash", 0.0)]);
        let (first, last) = (sfb.enter(0, 1), sfb.enter(0, 2));
        sfb.sfb.sets[0].each(FlowId(1), |bin| bin.p_m = 0.5);
        sfb.leave(10, &first);
        sfb.state.packets = 0;
        sfb.leave(1000, &last);
        sfb.arrive(1010, 1);
        assert!((sfb.bin(1).0 - 0.4).abs() < 1e-12, "{}", sfb.bin(1).0);
    }

    /// An arrival that finds an empty bin at probability 0 changes nothing: the step up 5 ms later is not frozen.
    #[test]
    fn bin_at_zero_is_not_frozen_by_arrivals() {
        let mut sfb = Bench::new(&[("levels", 1.0), ("bins", 1.0), ("bin_size", 2.0), ("d1", 0.1)]);
        sfb.arrive(0, 1);
        (0..3).for_each(|_| _ = sfb.enter(1, 1));
        sfb.arrive(5, 1);
        assert_eq!(sfb.bin(1).0, 0.1);
    }

    /// On a link of 80 Mbit/s a bin's share of 1000 packets in 100 ms is 65.2, and a quarter more 81.5. The burst is twenty packets of
    /// 1000 bytes.
    #[test]
    fn default_lengths_follow_the_link() {
        let link = crate::Link { capacity: Rate::from_bps(80_000_000), mean_packet: 1000.0 };
        let sfb = Sfb::new(&Values::resolve(PARAMS, &link, &|_| None).unwrap());
        assert_eq!((sfb.bin_size, sfb.bin_limit, sfb.penalty.burst), (65, 82, 20_000.0));
    }

    /// A packet that is dropped because the queue was full leaves its bins, as one that is sent does.
    #[test]
    fn overflow_leaves_the_bins() {
        let mut sfb = Bench::new(&[]);
        let pkt = sfb.enter(0, 1);
        sfb.enter(0, 1);
        sfb.sfb.overflowed(&pkt, &mut Context::new(at(1), &sfb.state, &mut sfb.rng));
        assert_eq!(sfb.bin(1).1, 1);
    }

    /// Two of eight bins, one per level, belong to a flow at probability 1.
    #[test]
    fn bins_at_one_are_counted() {
        let mut sfb = Bench::new(&[("levels", 2.0), ("bins", 4.0)]);
        sfb.saturate(1);
        let mut probes = Vec::new();
        sfb.sfb.probe(&mut |name, value| probes.push((name, value)));
        assert_eq!(probes[..2], [("p", 1.0), ("bins_at_1", 2.0)]);
    }

    /// After a first change of hash functions the other bins are in use, and those to come are warmed up again before the second.
    #[test]
    fn bins_to_come_are_warmed_up_before_every_change() {
        let given = [("rehash", 10.0), ("warmup", 5.0), ("bin_size", 1.0), ("d1", 0.5), ("d2", 1e-12)];
        let mut sfb = Bench::new(&given);
        sfb.arrive(0, 1);
        sfb.arrive(10_000, 1);
        assert_eq!(sfb.sfb.in_use, 1);
        (0..3).for_each(|_| _ = sfb.enter(10_001, 1));
        sfb.saturate(1);
        for ms in [15_000, 15_010] {
            sfb.arrive(ms, 1);
        }
        let p_to_come = sfb.sfb.sets[0].bins.iter().map(|bin| bin.p_m).fold(0.0, f64::max);
        assert_eq!(p_to_come, 1.0);
    }

    /// A packet is dropped if all of its bins are full; one full bin is not enough.
    #[test]
    fn full_bins_drop_packets() {
        let mut sfb = Bench::new(&[("bin_size", 2.0), ("bin_limit", 3.0), ("d1", 1e-9)]);
        (0..3).for_each(|_| _ = sfb.enter(0, 1));
        assert_eq!(sfb.arrive(0, 1), Verdict::Pass);
        sfb.enter(0, 1);
        assert_eq!(sfb.arrive(0, 1), Verdict::Drop);
        let mut first = true;
        sfb.sfb.sets[0].each(FlowId(1), |bin| bin.qlen *= u32::from(std::mem::take(&mut first)));
        assert_eq!(sfb.arrive(0, 1), Verdict::Pass);
    }

    /// New hash functions after 10 s, with a warm-up of 5 s: the counts are those of the waiting packets, the
    /// unresponsive flow is known, and a flow that shared its bins is free. Packets that arrived before the choice are
    /// not counted in the next bins, neither when they arrive nor when they leave.
    #[test]
    fn hash_functions_are_replaced_after_a_warm_up() {
        let given = [
            ("rehash", 10.0),
            ("warmup", 5.0),
            ("bin_size", 1.0),
            ("bin_limit", 1e6),
            ("d1", 0.5),
            ("d2", 1e-12),
        ];
        let mut sfb = Bench::new(&given);
        let waiting: Vec<_> = (0..3).map(|_| sfb.enter(0, 1)).collect();
        let mut other = 2;
        sfb.saturate(1);
        while sfb.p_min(other) < 1.0 {
            other += 1;
        }
        let p_to_come = |sfb: &Bench| sfb.sfb.sets[1].bins.iter().map(|bin| bin.p_m).fold(0.0, f64::max);
        sfb.arrive(4_999, 1);
        assert_eq!(p_to_come(&sfb), 0.0);
        for ms in [5_000, 5_010, 5_020] {
            sfb.arrive(ms, 1);
        }
        assert_eq!(p_to_come(&sfb), 1.0);
        let last = sfb.enter(9_000, 1);
        assert_eq!((sfb.sfb.in_use, sfb.bin(1).1), (0, 4));
        sfb.arrive(10_000, 5);
        assert_eq!((sfb.sfb.in_use, sfb.bin(1).1), (1, 4));
        assert_eq!(sfb.p_min(1), 1.0);
        assert!(sfb.p_min(other) < 1.0 || sfb.sfb.sets[1].salts == sfb.sfb.sets[0].salts);
        // Four packets leave that the bins after these never counted, and one arrives that they count.
        let newest = sfb.enter(10_001, 1);
        waiting.iter().chain([&last]).for_each(|pkt| sfb.leave(11_000, pkt));
        assert_eq!(sfb.bin(1).1, 1);
        sfb.arrive(20_000, 5);
        assert_eq!((sfb.sfb.in_use, sfb.bin(1).1), (0, 1));
        sfb.leave(20_001, &newest);
        assert_eq!(sfb.bin(1).1, 0);
    }

    /// A scheduler that drops packets gives no notice: leftover counts are cleared once the queue is empty.
    #[test]
    fn empty_queue_clears_the_bins() {
        let mut sfb = Bench::new(&[]);
        let pkt = sfb.enter(0, 1);
        sfb.enter(0, 1);
        sfb.state.packets = 1;
        sfb.leave(1, &pkt);
        assert_eq!(sfb.bin(1).1, 1);
        let pkt = sfb.enter(2, 2);
        sfb.state.packets = 0;
        sfb.leave(3, &pkt);
        assert_eq!((sfb.bin(1).1, sfb.bin(2).1), (0, 0));
    }
}
