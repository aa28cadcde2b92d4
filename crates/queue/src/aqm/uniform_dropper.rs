//! RED's marking decision: from a level between two thresholds to marks at uniform distances.
//!
//! Floyd & Jacobson 1993, section IV: below `min_th` no packet is marked, from `max_th` on every packet. Between them
//! `p_b = max_p (x - min_th) / (max_th - min_th)`, and a packet is marked with probability
//! `p_a = p_b / (1 - count p_b)`, where `count` is the number of packets since the last mark. So the distance between
//! marks is uniformly distributed instead of geometrically.

use bentpipe_units::Rng;

use crate::fluid::FluidVariant;
use crate::{Param, Range, Tune, Unit};

/// Lower threshold, by default a target delay of 33 ms.
pub(super) const MIN_TH: Param =
    Param::from_link("min_th", Unit::Packets, Range::between(0.0, 1e9), |link| link.packets_in(0.033))
        .default_doc("33 ms of the link's capacity, at least one packet")
        .doc("Level (average or virtual queue) below which no packet is marked")
        .origin("[B07] Table 3.1: 60 packets of 1375 bytes at 20 Mbit/s")
        .tune(Tune::Around(0.1, 4.0));

/// Upper threshold, by default twice the lower one.
pub(super) const MAX_TH: Param =
    Param::from_link("max_th", Unit::Packets, Range::above(0.0, 1e9), |link| 2.0 * link.packets_in(0.033))
        .default_doc("66 ms of the link's capacity, at least two packets")
        .doc("Level (average or virtual queue) from which every packet is marked")
        .origin("[B07] Table 3.1: twice the lower threshold")
        .tune(Tune::Around(0.1, 4.0));

/// Marks packets by a level between two thresholds.
#[derive(Debug)]
pub(super) struct UniformDropper {
    pub min_th: f64,
    pub max_th: f64,
    pub max_p: f64,
    /// Ramp from `max_p` to 1 between `max_th` and twice `max_th` instead of a step (Floyd 2000).
    pub gentle: bool,
    /// Leave at least `1 / p_b` packets between two marks (ns-2's `wait_`).
    pub wait: bool,
    /// Packets since the last mark; -1 while the level is below `min_th`.
    pub count: i64,
    /// The last decision.
    pub last: Decision,
}

/// A decision; the quotient that is its probability is taken only when it is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decision {
    /// Numerator and denominator of `p_b` without the share.
    ramp: (f64, f64),
    share: f64,
    weight: f64,
    count: i64,
}

impl Decision {
    const NEVER: Self = Self { ramp: (0.0, 1.0), share: 1.0, weight: 1.0, count: 0 };

    /// A mark for certain, but for its weight, with and without `wait`.
    fn always(weight: f64) -> Self {
        Self { ramp: (1.0, 1.0), weight, count: 1, ..Self::NEVER }
    }

    fn probability(&self, wait: bool) -> f64 {
        let p_b = self.ramp.0 / self.ramp.1 * self.share;
        let p_a = if wait { spread_late(p_b, self.count) } else { spread(p_b, self.count) };
        (self.weight * p_a).min(1.0)
    }

    /// Decides by products in place of quotients: a division takes as long as the rest.
    #[inline(always)]
    fn marks(&self, wait: bool, rng: &mut Rng) -> bool {
        let (marks, of) = (self.ramp.0 * self.share, self.ramp.1);
        let past = self.count as f64 * marks;
        // p_a = marks / rest, at most 1.
        let (marks, rest) = match wait {
            false => (marks, of - past),
            true if past < of => (0.0, of),
            true => (marks, 2.0 * of - past),
        };
        rng.uniform() * rest.max(marks) < self.weight * marks
    }
}

impl UniformDropper {
    pub fn new(min_th: f64, max_th: f64, max_p: f64) -> Self {
        Self { min_th, max_th, max_p, gentle: false, wait: false, count: -1, last: Decision::NEVER }
    }

    /// Decides about a packet that arrives at level `x`; `share` scales `p_b`. Returns true for a mark.
    #[inline]
    pub fn draw(&mut self, x: f64, share: f64, rng: &mut Rng) -> bool {
        self.draw_weighted(x, share, 1.0, rng)
    }

    /// Like [`Self::draw`]; `weight` scales `p_a`, also from `max_th` on. `count` takes account of `share` but not of
    /// `weight`.
    #[inline(always)]
    pub fn draw_weighted(&mut self, x: f64, share: f64, weight: f64, rng: &mut Rng) -> bool {
        if x < self.min_th {
            self.reset();
            return false;
        }
        let full = if self.gentle { 2.0 * self.max_th } else { self.max_th };
        self.last = if x < full {
            self.count += 1;
            Decision { ramp: self.ramp(x), share, weight, count: self.count }
        } else {
            Decision::always(weight)
        };
        let marked = (x >= full && weight >= 1.0) || self.last.marks(self.wait, rng);
        if marked {
            self.count = 0;
        }
        marked
    }

    /// Numerator and denominator of `p_b` without the share.
    #[inline(always)]
    fn ramp(&self, x: f64) -> (f64, f64) {
        if x < self.max_th {
            (self.max_p * (x - self.min_th), self.max_th - self.min_th)
        } else {
            (self.max_p + (1.0 - self.max_p) * (x - self.max_th) / self.max_th, 1.0)
        }
    }

    /// Continues with the count of another dropper.
    pub fn resume(&mut self, was: &Self) {
        (self.count, self.last) = (was.count, was.last);
    }

    /// Lets a packet between the thresholds pass without a draw, but counts it.
    pub fn pass(&mut self) {
        self.count += 1;
        self.last = Decision::NEVER;
    }

    /// Lets a packet pass, and resets the count as below `min_th`.
    pub fn reset(&mut self) {
        self.count = -1;
        self.last = Decision::NEVER;
    }

    /// Returns the probability of the last decision.
    pub fn probability(&self) -> f64 {
        self.last.probability(self.wait)
    }
}

/// `p_a` for the `count`-th packet since the last mark.
fn spread(p_b: f64, count: i64) -> f64 {
    let rest = 1.0 - count as f64 * p_b;
    if rest <= 0.0 { 1.0 } else { (p_b / rest).min(1.0) }
}

/// `p_a` if the first `1 / p_b` packets after a mark are never marked: the distance is uniformly distributed between
/// one and two times that number (ns-2.35, `RED::modify_p`).
fn spread_late(p_b: f64, count: i64) -> f64 {
    let share = count as f64 * p_b;
    if share < 1.0 {
        0.0
    } else if share < 2.0 {
        (p_b / (2.0 - share)).clamp(0.0, 1.0)
    } else {
        1.0
    }
}

/// Returns the share of packets marked as a function of `p_b`: `p_b` itself in the printed variant; else [`share`], or
/// [`share_late`] with `wait`.
pub(super) fn share_of(variant: FluidVariant, wait: bool) -> fn(f64) -> f64 {
    match (variant, wait) {
        (FluidVariant::Printed, _) => |p_b| p_b,
        (FluidVariant::Actual, false) => share,
        (FluidVariant::Actual, true) => share_late,
    }
}

/// The share of packets that are marked at constant `p_b`.
///
/// The first packet after a mark has count 1. With probability
///
/// ```text
/// Π (1 - p_b / (1 - i p_b)) = Π (1 - (i+1) p_b) / (1 - i p_b) = (1 - (k+1) p_b) / (1 - p_b),   i = 1 … k
/// ```
///
/// none of `k` packets after a mark is marked, as long as this is not below 0, that is for `k < n = floor(1 / p_b)`,
/// and 0 from there on. The mean distance is the sum over `k = 0, 1, …`, and the share its reciprocal:
///
/// ```text
/// (1 - p_b) / (n - p_b n (n+1) / 2)
/// ```
///
/// With `p_b = 1/n` this is `2 / n`: twice as many marks as the marking function says. From `p_b = 1/2` on it is 1.
#[must_use]
pub(super) fn share(p_b: f64) -> f64 {
    if p_b < TINY {
        return 2.0 * p_b;
    }
    if p_b >= 0.5 {
        return 1.0;
    }
    let n = (1.0 / p_b).floor();
    (1.0 - p_b) / (n - 0.5 * p_b * n * (n + 1.0))
}

/// The share of packets that are marked at constant `p_b` if the first `1 / p_b` packets after a mark are never marked.
///
/// With `m = ceil(1 / p_b)` the first `m - 1` are never marked, and none of `k >= m` with probability
///
/// ```text
/// Π (1 - p_b / (2 - i p_b)) = (2 - (k+1) p_b) / (2 - m p_b),   i = m … k
/// ```
///
/// for `k < n = floor(2 / p_b)`. The mean distance is `m` plus the sum over `k = m … n-1`:
///
/// ```text
/// m + (2 (n - m) - p_b (n (n+1) - m (m+1)) / 2) / (2 - m p_b)
/// ```
///
/// With `p_b = 1/m` this is `(3m - 1) / 2`, so for small `p_b` the share is two thirds of `p_b`. A little below `1/m`
/// one more packet is never marked, so the share has a jump there of about a third of `p_b` times itself.
#[must_use]
pub(super) fn share_late(p_b: f64) -> f64 {
    if p_b < TINY {
        return p_b * 2.0 / 3.0;
    }
    let (m, n) = ((1.0 / p_b).ceil(), (2.0 / p_b).floor());
    let sum = 2.0 * (n - m) - 0.5 * p_b * (n * (n + 1.0) - m * (m + 1.0));
    1.0 / (m + sum / (2.0 - m * p_b))
}

/// Below this the sums cancel, and distances are practically continuous.
const TINY: f64 = 1e-7;

#[cfg(test)]
mod tests {
    use super::*;

    /// 100,000 decisions at random levels, with and without the options; their own random numbers decide by the quotient.
    #[test]
    fn decisions_by_products_are_those_by_the_probability() {
        for (gentle, wait, weight) in [
            (false, false, 1.0),
            (true, false, 1.0),
            (false, true, 1.0),
            (true, true, 1.0),
            (false, false, 0.3),
            (true, true, 4.0),
        ] {
            let mut dropper = UniformDropper { gentle, wait, ..UniformDropper::new(60.0, 120.0, 0.4) };
            let mut rng = Rng::stream(1, "dropper", 0, "levels");
            for step in 0..100_000 {
                let (x, share) = (250.0 * rng.uniform(), 0.1 + 1.5 * rng.uniform());
                let mut expected = rng.clone();
                let marked = dropper.draw_weighted(x, share, weight, &mut rng);
                let p = dropper.probability();
                let is_certain = x < 60.0 || x >= if gentle { 240.0 } else { 120.0 } && weight >= 1.0;
                let decided = if is_certain { p == 1.0 } else { expected.uniform() < p };
                assert_eq!(marked, decided, "step {step}, x {x}, p {p}");
            }
        }
    }

    /// By hand: 1/4 gives distances of 1, 2 or 3 with equal probability (see below), so 1/2; 1/3 gives 1 or 2, so 2/3.
    /// At 2/5 the first packet is marked with (2/5) / (3/5) = 2/3 and the second for certain: a mean distance of 4/3.
    /// With `wait`, 1/2 skips one and marks the next with 1/2, 1: 2.5; 2/5 skips two, then 1/2, 1: 3.5; 1/3 skips two,
    /// then 1/3, 1/2, 1: 4; at 2/3 count 2 has 2/3 / (2 - 4/3) = 1, so 2.
    #[test]
    fn share_matches_hand_computed_values() {
        for (p_b, even, late) in [
            (0.0, 0.0, 0.0),
            (0.25, 0.5, 1.0 / 5.5),
            (1.0 / 3.0, 2.0 / 3.0, 0.25),
            (0.4, 0.75, 1.0 / 3.5),
            (0.5, 1.0, 0.4),
            (2.0 / 3.0, 1.0, 0.5),
            (1.0, 1.0, 1.0),
        ] {
            assert!((share(p_b) - even).abs() < 1e-12, "{p_b}: {}", share(p_b));
            assert!((share_late(p_b) - late).abs() < 1e-12, "{p_b}: {}", share_late(p_b));
        }
    }

    /// At p_b = 1/4 the first three packets after a mark are never marked, the fourth may be, and the seventh is.
    #[test]
    fn with_wait_the_fourth_packet_at_a_quarter_may_be_marked() {
        let mut dropper = UniformDropper { wait: true, ..UniformDropper::new(60.0, 120.0, 0.5) };
        let mut rng = Rng::stream(5, "dropper", 0, "wait");
        let marks: Vec<usize> = (0..4000).filter(|_| dropper.draw(90.0, 1.0, &mut rng)).collect();
        let distances: Vec<usize> = marks.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!((distances.iter().min(), distances.iter().max()), (Some(&4), Some(&7)));
    }

    /// Of 40,000 packets the dropper marks the computed share. The standard deviation of a distance is at most the
    /// distance, so the standard error of a share is at most sqrt(share / 40,000).
    #[test]
    fn dropper_marks_the_computed_share() {
        for wait in [false, true] {
            for p_b in [0.003, 0.02, 0.07, 0.15, 0.23, 0.29, 0.36, 0.45, 0.55, 0.7, 0.85, 0.97] {
                let mut dropper = UniformDropper { wait, gentle: true, ..UniformDropper::new(0.0, 1.0, 1.0) };
                let mut rng = Rng::stream(3, "dropper", 0, "share");
                let marks = (0..40_000).filter(|_| dropper.draw(p_b, 1.0, &mut rng)).count() as f64 / 4e4;
                let expected = share_of(FluidVariant::Actual, wait)(p_b);
                let error = (expected / 4e4).sqrt();
                assert!(
                    (marks - expected).abs() < 4.0 * error,
                    "{p_b}, wait {wait}: {marks}, not {expected}"
                );
            }
        }
    }

    /// The share is continuous where the number of possible distances changes, and where the approximation for small
    /// `p_b` begins.
    #[test]
    fn share_is_continuous() {
        for p_b in [TINY, 1e-4, 0.1, 0.2, 0.25, 1.0 / 3.0, 0.5] {
            let (below, above) = (share(p_b * (1.0 - 1e-9)), share(p_b * (1.0 + 1e-9)));
            assert!((above / below - 1.0).abs() < 1e-6, "{p_b}: {below}, {above}");
        }
        assert!((share_late(2.0 * TINY) / share_late(0.5 * TINY) - 4.0).abs() < 1e-6);
    }

    /// With `p_b` = 1/4 the printed formula gives 1/4, 1/3, 1/2, 1: the fourth packet after a mark is marked for
    /// certain.
    #[test]
    fn distance_between_marks_is_at_most_one_over_p_b() {
        let table = [(0, 0.25), (1, 1.0 / 3.0), (2, 0.5), (3, 1.0), (4, 1.0)];
        for (count, p_a) in table {
            assert!((spread(0.25, count) - p_a).abs() < 1e-15, "count {count}");
        }
    }

    /// With `p_b` = 1/4 four packets are skipped, then 1/4, 1/3, 1/2, 1.
    #[test]
    fn wait_skips_the_packets_after_a_mark() {
        let table = [(0, 0.0), (3, 0.0), (4, 0.25), (5, 1.0 / 3.0), (6, 0.5), (7, 1.0), (8, 1.0)];
        for (count, p_a) in table {
            assert!((spread_late(0.25, count) - p_a).abs() < 1e-15, "count {count}");
        }
    }

    /// Floyd & Jacobson 1993, section VI: the distance is uniform on 1..=1/p_b, so its mean is (1/p_b + 1)/2.
    #[test]
    fn distances_between_marks_are_uniform() {
        let mut dropper = UniformDropper::new(60.0, 120.0, 0.5);
        let mut rng = Rng::stream(1, "dropper", 0, "test");
        while !dropper.draw(90.0, 1.0, &mut rng) {}
        let (mut gaps, mut gap) = ([0u32; 5], 0);
        for _ in 0..40_000 {
            gap += 1;
            if dropper.draw(90.0, 1.0, &mut rng) {
                gaps[gap] += 1;
                gap = 0;
            }
        }
        let n = f64::from(gaps.iter().sum::<u32>());
        // x = 90 gives p_b = 1/4. After a mark `count` is 0, so the next packets have p_a = 1/3, 1/2, 1.
        assert_eq!(gaps[4], 0);
        for share in gaps[1..=3].iter().map(|&count| f64::from(count) / n) {
            assert!((share - 1.0 / 3.0).abs() < 0.02, "{share}");
        }
    }

    #[test]
    fn no_draw_outside_the_ramp() {
        let mut dropper = UniformDropper::new(60.0, 120.0, 0.5);
        let mut rng = Rng::stream(1, "dropper", 0, "test");
        assert!((0..100).all(|_| !dropper.draw(59.999, 1.0, &mut rng)));
        assert_eq!(dropper.probability(), 0.0);
        assert!((0..100).all(|_| dropper.draw(120.0, 1.0, &mut rng)));
        assert_eq!(dropper.probability(), 1.0);
    }

    /// Floyd 2000: half way between `max_th` and twice `max_th`, `p_b` is half way between `max_p` and 1.
    #[test]
    fn gentle_ramp_continues_beyond_max_th() {
        let mut dropper = UniformDropper { gentle: true, ..UniformDropper::new(60.0, 120.0, 0.5) };
        let mut rng = Rng::stream(1, "dropper", 0, "test");
        dropper.draw(180.0, 1.0, &mut rng);
        assert!((dropper.probability() - 0.75).abs() < 1e-15);
        assert!(dropper.draw(240.0, 1.0, &mut rng));
    }
}
