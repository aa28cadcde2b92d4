//! SRED, stabilized RED: estimates the number of flows from how often a packet matches an entry in a list of recent
//! flows.
//!
//! Ott, Lakshman & Wong 1999; [B07] 2.2.2. A list holds `M` zombies, each a flow and a count. Every arriving packet is
//! compared with `lookups` of them, drawn at random: `Hit = 1` if one has its flow, and that zombie's count grows by
//! one; else `Hit = 0`, and with probability `overwrite` a random zombie is replaced by this flow with count 0. Then
//! `P = (1 - alpha) P + alpha Hit`: for `n` flows with equal rates and one lookup, `P` converges to `1/n`. A packet is
//! marked with a probability that depends on `mode`:
//!
//! - `original`: `p_zap = p_sred min(1, 1 / (256 P)^2) (1 + Hit / P)`, where `p_sred` is `max_p` for a queue of at
//!   least a third of the buffer, `max_p / 4` from a sixth on, and 0 below. Neither an average nor RED's decision is
//!   used.
//! - `modified` [B07]: `p_new_zap = p_red (1 + Hit / P)` with RED's `p_a` for `p_red`, from RED's average: below
//!   `min_th` nothing is marked, from `max_th` on everything.
//!
//! *Departures:* draws are uniform and with replacement. As in the paper, packets are added to the list without
//! comparison until it is full; `P` stays 0 until then, and while it is 0 the factor `1 + Hit / P` is taken as 1. The
//! buffer is the limit of the watched queue in packets or bytes, whichever is fuller; without a limit it is three times
//! `max_th`. The count is only reported.
//!
//! *In a satellite gateway:* `modified` stands ahead of the PEP and watches the transmit queue, as RED does. Hits are
//! more likely for a fast flow, so it is marked earlier, which favours short and slow connections; with as many
//! connections as a gateway has, `P` is small and noisy, and the factor `1 + Hit / P` turns each hit into a mark. With
//! many `lookups` almost every packet hits: `P` approaches 1, and all flows are marked twice as often as by RED.
//! `original`, with its thresholds relative to the buffer, is of no use with long buffers.

use std::any::Any;

use super::average::{self, Average};
use super::uniform_dropper::{self, UniformDropper};
use crate::descriptor::{Algorithm, Placement, Preset};
use crate::{
    Aqm, Context, FlowId, Packet, Param, ParamError, QueueState, Range, Tune, Unit, Value, Values, Verdict,
};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "sred",
    title: "Stabilized random early detection",
    source: "Ott et al. 1999; [B07] 2.2.2",
    params: PARAMS,
    presets: PRESETS,
    placement: Placement::Anywhere,
    build: |values| Ok(Box::new(Sred::new(values)?)),
    fluid: None,
};

const PARAMS: &[Param] = &[
    Param::name(
        "mode",
        &["original", "modified"],
        "modified",
        "Base probability: the paper's `p_sred`, or RED's",
    )
    .origin("[B07] 2.2.2")
    .tune(Tune::Each),
    Param::number("zombies", Unit::Count, 500.0, Range::between(1.0, 1e6))
        .doc("Length of the list of zombies")
        .symbol("M")
        .origin("SRED 1, [B07] Table 3.1")
        .tune(Tune::Log(50.0, 5000.0)),
    Param::number("lookups", Unit::Count, 1.0, Range::between(1.0, 1000.0))
        .doc("Number of zombies that a packet is compared with")
        .origin("SRED 1, [B07] Table 3.1")
        .tune(Tune::Log(1.0, 50.0)),
    Param::number("overwrite", Unit::One, 0.25, Range::between(0.0, 1.0))
        .doc("Probability that a packet without a hit replaces a zombie")
        .symbol("p")
        .origin("Ott et al. 1999")
        .tune(Tune::Linear(0.05, 1.0)),
    Param::number("alpha", Unit::One, 0.1, Range::above(0.0, 1.0))
        .doc("Weight of the newest packet in the frequency of hits")
        .symbol("α")
        .origin("SRED 1, [B07] Table 3.1")
        .tune(Tune::Log(0.0001, 0.5)),
    uniform_dropper::MIN_TH,
    uniform_dropper::MAX_TH,
    average::W_Q,
    average::MAX_P,
    average::MEAN_PACKET,
];

const PRESETS: &[Preset] = &[
    Preset { name: "SRED 1", source: TABLE, marking: None, values: &printed(1.0) },
    Preset { name: "SRED 2", source: TABLE, marking: None, values: &printed(50.0) },
];
const TABLE: &str = "[B07] Table 3.1";

const fn printed(lookups: f64) -> [(&'static str, Value); 9] {
    [
        ("mode", Value::Name("modified")),
        ("min_th", Value::Number(60.0)),
        ("max_th", Value::Number(120.0)),
        ("w_q", Value::Number(0.10)),
        ("max_p", Value::Number(0.7)),
        ("alpha", Value::Number(0.1)),
        ("zombies", Value::Number(500.0)),
        ("lookups", Value::Number(lookups)),
        // Chosen: [B07] prints no probability with which a packet without a hit replaces a zombie.
        ("overwrite", Value::Number(1.0)),
    ]
}

/// A recent flow.
#[derive(Clone, Copy, Debug)]
struct Zombie {
    flow: FlowId,
    count: u32,
}

/// SRED's state.
#[derive(Debug)]
pub struct Sred {
    modified: bool,
    zombies: Vec<Zombie>,
    /// M: length of the list.
    room: usize,
    lookups: u32,
    overwrite: f64,
    alpha: f64,
    average: Average,
    dropper: UniformDropper,
    /// P: frequency of hits.
    hits: f64,
    /// Probability of the last decision.
    p: f64,
}

impl Sred {
    /// # Errors
    /// Unless `min_th < max_th`.
    pub fn new(v: &Values) -> Result<Self, ParamError> {
        v.in_order("min_th", "max_th")?;
        let room = v.number("zombies") as usize;
        Ok(Self {
            modified: v.name("mode") == "modified",
            zombies: Vec::with_capacity(room),
            room,
            lookups: v.number("lookups") as u32,
            overwrite: v.number("overwrite"),
            alpha: v.number("alpha"),
            average: Average::new(v, false),
            dropper: UniformDropper::new(v.number("min_th"), v.number("max_th"), v.number("max_p")),
            hits: 0.0,
            p: 0.0,
        })
    }

    /// Compares a packet's flow with the zombies, and returns the factor `1 + Hit / P`.
    fn meet(&mut self, flow: FlowId, cx: &mut Context<'_>) -> f64 {
        if self.zombies.len() < self.room {
            self.zombies.push(Zombie { flow, count: 0 });
            return 1.0;
        }
        let mut hit = 0.0;
        for _ in 0..self.lookups {
            let zombie = &mut self.zombies[cx.rng.below(self.room as u64) as usize];
            if zombie.flow == flow {
                zombie.count = zombie.count.saturating_add(1);
                hit = 1.0;
                break;
            }
        }
        if hit == 0.0 && (self.overwrite >= 1.0 || cx.rng.uniform() < self.overwrite) {
            self.zombies[cx.rng.below(self.room as u64) as usize] = Zombie { flow, count: 0 };
        }
        self.hits += self.alpha * (hit - self.hits);
        if hit > 0.0 { 1.0 + 1.0 / self.hits } else { 1.0 }
    }

    /// The paper's `p_sred` for the queue's length.
    fn by_length(&self, queue: &QueueState) -> f64 {
        let share = if queue.limit.is_bounded() {
            queue.fullness()
        } else {
            f64::from(queue.packets) / (3.0 * self.dropper.max_th)
        };
        if share >= 1.0 / 3.0 {
            self.dropper.max_p
        } else if share >= 1.0 / 6.0 {
            self.dropper.max_p / 4.0
        } else {
            0.0
        }
    }
}

impl Aqm for Sred {
    fn arrive(&mut self, pkt: &Packet, cx: &mut Context<'_>) -> Verdict {
        let factor = self.meet(pkt.flow, cx);
        let marked = if self.modified {
            let avg = self.average.sample(cx);
            let marked = self.dropper.draw_weighted(avg, 1.0, factor, cx.rng);
            self.p = self.dropper.probability();
            marked
        } else {
            let few = 256.0 * self.hits;
            let damped = if few > 1.0 { 1.0 / (few * few) } else { 1.0 };
            self.p = (self.by_length(cx.queue) * damped * factor).min(1.0);
            self.p > 0.0 && cx.rng.uniform() < self.p
        };
        if marked { Verdict::Mark } else { Verdict::Pass }
    }

    fn resume(&mut self, previous: &mut dyn Any) -> bool {
        let Some(was) = previous.downcast_mut::<Self>() else { return false };
        self.hits = was.hits;
        self.p = was.p;
        self.average.resume(&was.average);
        self.dropper.resume(&was.dropper);
        was.zombies.truncate(self.room);
        std::mem::swap(&mut self.zombies, &mut was.zombies);
        true
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("avg", self.average.avg);
        out("P", self.hits);
        out("p", self.p);
    }
}

#[cfg(test)]
mod tests {
    use super::super::steps::Steps;
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    /// Worked out by hand: two zombies, alpha = 1/2, `w_q` = 1 (so the average is q), thresholds 2 and 6, `max_p` =
    /// 1/4. With q = 4, `p_b` = 1/8; q = 0 between two such arrivals resets the count, so that `p_a` = 1/8 each time.
    /// Two arrivals of flow 7 fill the list; from then on flow 7 always hits.
    #[test]
    fn arrivals_follow_the_modified_mode() {
        let given = [("zombies", 2.0), ("overwrite", 1.0), ("alpha", 0.5), ("w_q", 1.0), ("max_p", 0.25)];
        let given = [&given[..], &[("min_th", 2.0), ("max_th", 6.0)]].concat();
        let given: Vec<_> = given.into_iter().map(|(name, x)| (name, Value::Number(x))).collect();
        let mut sred = Steps::new(&ALGORITHM, &given);
        sred.state.idle_since = None;
        for (flow, q, hits, p) in [
            (7, 4, 0.0, 0.125),
            (7, 0, 0.0, 0.0),
            // Hit: P = 1/2, and 1 + Hit/P = 3.
            (7, 4, 0.5, 0.375),
            (7, 0, 0.75, 0.0),
            // P = 7/8, and 1 + 8/7 = 15/7.
            (7, 4, 0.875, 15.0 / 56.0),
            (7, 0, 0.9375, 0.0),
            // No hit: the factor is 1, and a zombie becomes flow 8.
            (8, 4, 0.468_75, 0.125),
            // From max_th on every packet is marked, hit or not.
            (9, 6, 0.234_375, 1.0),
        ] {
            sred.flow = flow;
            sred.state.packets = q;
            let got = sred.arrive(1, 1000);
            assert!(close(sred.probe("P"), hits), "P {} of flow {flow} at q {q}", sred.probe("P"));
            assert!(close(sred.probe("p"), p), "p {} of flow {flow} at q {q}", sred.probe("p"));
            if p == 0.0 || p == 1.0 {
                assert_eq!(got == Verdict::Mark, p == 1.0, "at q {q}");
            }
        }
    }

    /// A buffer of 1000 packets, `max_p` = 1/2: 1/2 from 334 packets on, 1/8 from 167 on, 0 below. With a hit and P =
    /// 1/2, 256 P = 128: 1/16,384 of that, times 1 + 2.
    #[test]
    fn arrivals_follow_the_original_mode() {
        let given = [("zombies", 3.0), ("alpha", 0.5), ("max_p", 0.5)].map(|(n, x)| (n, Value::Number(x)));
        let given = [&given[..], &[("mode", Value::Name("original"))]].concat();
        let mut sred = Steps::new(&ALGORITHM, &given);
        sred.state.idle_since = None;
        for (q, p) in [(334, 0.5), (333, 0.125), (166, 0.0)] {
            sred.state.packets = q;
            sred.arrive(1, 1000);
            assert!(close(sred.probe("p"), p), "p {} at q {q}", sred.probe("p"));
        }
        // From here on every packet hits: P is 1/2, 3/4, 7/8, and p_sred over (256 P)^2, times 1 + 1 / P.
        for (q, p) in [(334, 0.5 * 3.0 / 16_384.0), (167, 0.125 / 36_864.0 * 7.0 / 3.0), (166, 0.0)] {
            sred.state.packets = q;
            sred.arrive(1, 1000);
            assert!(close(sred.probe("p"), p), "p {} at q {q}", sred.probe("p"));
        }
        // Without a limit the buffer is three times max_th, which by default is 2 x 33 packets of 1 ms.
        let mut sred = Steps::new(&ALGORITHM, &given);
        sred.state.limit = crate::Limit::NONE;
        for (q, p) in [(66, 0.5), (65, 0.125), (32, 0.0)] {
            sred.state.packets = q;
            sred.arrive(1, 1000);
            assert!(close(sred.probe("p"), p), "p {} at q {q}", sred.probe("p"));
        }
    }

    /// In the original mode, before the list is full, half of 10,000 packets are marked from a third of the buffer on, an eighth
    /// from a sixth on, and none below: within five standard deviations, 250 and 165.
    #[test]
    fn original_mode_marks_with_the_probability_that_it_shows() {
        let given = [("zombies", 65_536.0), ("max_p", 0.5)].map(|(n, x)| (n, Value::Number(x)));
        let mut sred = Steps::new(&ALGORITHM, &[&given[..], &[("mode", Value::Name("original"))]].concat());
        sred.state.idle_since = None;
        for (q, expected, within) in [(334, 5000, 250), (333, 1250, 165), (166, 0, 0)] {
            sred.state.packets = q;
            let marks = (0..10_000).filter(|us| sred.arrive(*us, 1000) == Verdict::Mark).count();
            assert!(marks.abs_diff(expected) <= within, "{marks} marks at {q} packets");
        }
    }

    /// For `n` flows with equal rates P converges to 1/n with one lookup, and to 1 - (1 - 1/n)^k with k (Ott et al.
    /// 1999, proposition 1, for independent draws). With alpha = 0.001, P has a standard deviation of at most 0.0067.
    #[test]
    fn hit_frequency_estimates_the_number_of_flows() {
        for (lookups, expected) in [(1.0, 0.1), (5.0, 1.0 - libm::pow(0.9, 5.0))] {
            let given = [("alpha", 0.001), ("lookups", lookups), ("zombies", 500.0)];
            let mut sred = Steps::new(&ALGORITHM, &given.map(|(name, x)| (name, Value::Number(x))));
            let mut traffic = bentpipe_units::Rng::stream(1, "sred", 0, "traffic");
            for us in 0..50_000 {
                sred.flow = u32::MAX - traffic.below(10) as u32;
                sred.arrive(us, 1000);
            }
            assert!((sred.probe("P") - expected).abs() < 0.03, "{} {lookups}", sred.probe("P"));
        }
    }

    /// Half of the packets are of one flow, the others of 50 flows: P = 1/4 + 50/10,000 = 0.255, so the mean factor is
    /// 1 + 0.5 / 0.255 for the one and 1 + 0.01 / 0.255 for the others: the one is marked 2.85 times as often per
    /// packet.
    #[test]
    fn fast_flow_is_marked_more_often() {
        let given = [("alpha", 0.001), ("w_q", 1.0), ("min_th", 0.0), ("max_th", 1e6), ("max_p", 1.0)];
        let mut sred = Steps::new(&ALGORITHM, &given.map(|(name, x)| (name, Value::Number(x))));
        (sred.state.idle_since, sred.state.packets) = (None, 1000);
        let mut traffic = bentpipe_units::Rng::stream(1, "sred", 0, "traffic");
        let (mut marks, mut packets) = ([0.0_f64; 2], [0.0_f64; 2]);
        for us in 0..400_000 {
            sred.flow = traffic.below(100).saturating_sub(49) as u32;
            let other = usize::from(sred.flow > 0);
            packets[other] += 1.0;
            marks[other] += f64::from(u8::from(sred.arrive(us, 1000) == Verdict::Mark));
        }
        let ratio = (marks[0] / packets[0]) / (marks[1] / packets[1]);
        assert!((2.5..3.2).contains(&ratio), "{ratio}: {marks:?} of {packets:?}");
    }

    /// A list of one zombie and alpha = 1, so that P shows whether the last packet hit. A flow that never replaces the
    /// zombie never hits; one that always does hits with its second packet; with a probability of 1/4 it misses four
    /// times on average. A new flow follows each hit: the mean over about 2000 misses has a standard deviation of 0.08.
    #[test]
    fn overwrite_is_the_probability_of_replacing_a_zombie() {
        let misses = |overwrite: f64| {
            let given = [("zombies", 1.0), ("alpha", 1.0), ("overwrite", overwrite)];
            let mut sred = Steps::new(&ALGORITHM, &given.map(|(name, x)| (name, Value::Number(x))));
            sred.arrive(0, 1000);
            sred.flow = 1;
            let mut misses = 0;
            for us in 0..10_000 {
                sred.arrive(us, 1000);
                if sred.probe("P") == 1.0 {
                    sred.flow += 1;
                } else {
                    misses += 1;
                }
            }
            f64::from(misses) / f64::from(sred.flow - 1)
        };
        assert_eq!(misses(0.0), f64::INFINITY);
        assert_eq!(misses(1.0), 1.0);
        assert!((misses(0.25) - 4.0).abs() < 0.4, "{}", misses(0.25));
    }
}
