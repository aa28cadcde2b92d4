//! The RED lottery: how a level between two thresholds becomes marks spread evenly in time.
//!
//! Floyd & Jacobson 1993, section IV: below `min_th` no packet is marked, from `max_th` on every one. Between
//! them `p_b = max_p (x - min_th) / (max_th - min_th)`, and a packet is marked with
//! `p_a = p_b / (1 - count p_b)`, where `count` is the number of packets since the last mark; so the gap between
//! marks is uniform instead of geometric.

use bentpipe_units::Rng;

use crate::{Param, Range, Tune, Unit};

/// The lower threshold, by default a target delay of 33 ms.
pub(super) const MIN_TH: Param = Param::from_link(
    "min_th",
    Unit::Packets,
    |link| link.packets_in(0.033),
    "33 ms of the link's capacity, at least one packet",
    Range::between(0.0, 1e9),
    "Level (average or virtual queue) below which no packet is marked",
)
.origin("[B07] Table 3.1: 60 packets, of 1375 bytes at 20 Mbit/s")
.tune(Tune::Around(0.1, 4.0));

/// The upper threshold, by default twice that.
pub(super) const MAX_TH: Param = Param::from_link(
    "max_th",
    Unit::Packets,
    |link| 2.0 * link.packets_in(0.033),
    "66 ms of the link's capacity, at least two packets",
    Range::above(0.0, 1e9),
    "Level (average or virtual queue) from which on every packet is marked",
)
.origin("[B07] Table 3.1: twice the lower threshold")
.tune(Tune::Around(0.1, 4.0));

/// Marks by a level between two thresholds.
#[derive(Debug)]
pub(super) struct Lottery {
    pub min_th: f64,
    pub max_th: f64,
    pub max_p: f64,
    /// Ramp from `max_p` to 1 between `max_th` and twice it, in place of a step (Floyd 2000).
    pub gentle: bool,
    /// Leave at least `1 / p_b` packets between two marks (ns-2's `wait_`).
    pub wait: bool,
    /// Packets since the last mark; -1 while the level is below `min_th`.
    pub count: i64,
    /// The probability of the last decision, `p_a`.
    pub p: f64,
}

impl Lottery {
    pub fn new(min_th: f64, max_th: f64, max_p: f64) -> Self {
        Self { min_th, max_th, max_p, gentle: false, wait: false, count: -1, p: 0.0 }
    }

    /// Whether the packet that meets the level `x` is marked; `share` scales its probability.
    #[inline]
    pub fn draw(&mut self, x: f64, share: f64, rng: &mut Rng) -> bool {
        self.draw_weighted(x, share, 1.0, rng)
    }

    /// … and `weight` what comes of it, `p_a`, also from `max_th` on: the lottery's count knows `share`, but not `weight`.
    #[inline(always)]
    pub fn draw_weighted(&mut self, x: f64, share: f64, weight: f64, rng: &mut Rng) -> bool {
        if x < self.min_th {
            self.spare();
            return false;
        }
        let full = if self.gentle { 2.0 * self.max_th } else { self.max_th };
        let p_a = if x < full {
            let ramp = if x < self.max_th {
                self.max_p * (x - self.min_th) / (self.max_th - self.min_th)
            } else {
                self.max_p + (1.0 - self.max_p) * (x - self.max_th) / self.max_th
            };
            self.count += 1;
            let p_b = ramp * share;
            if self.wait { spread_late(p_b, self.count) } else { spread(p_b, self.count) }
        } else {
            1.0
        };
        self.p = (weight * p_a).min(1.0);
        let marked = (x >= full && weight >= 1.0) || rng.uniform() < self.p;
        if marked {
            self.count = 0;
        }
        marked
    }

    /// A packet between the thresholds passes without a draw, but counts.
    pub fn pass(&mut self) {
        self.count += 1;
        self.p = 0.0;
    }

    /// A packet passes whatever the level.
    pub fn spare(&mut self) {
        self.count = -1;
        self.p = 0.0;
    }

    /// The probability of the last decision.
    pub fn probability(&self) -> f64 {
        self.p
    }
}

/// `p_a` for the `count`-th packet since the last mark.
#[inline]
fn spread(p_b: f64, count: i64) -> f64 {
    let rest = 1.0 - count as f64 * p_b;
    if rest <= 0.0 { 1.0 } else { (p_b / rest).min(1.0) }
}

/// `p_a` where the first `1 / p_b` packets after a mark are spared: the gap is uniform between one and two times
/// that number (ns-2.35, `RED::modify_p`).
#[inline]
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

#[cfg(test)]
mod tests {
    use super::*;

    /// With `p_b` = 1/4 the printed formula gives 1/4, 1/3, 1/2, 1: the fourth packet after a mark is
    /// marked for certain.
    #[test]
    fn the_gap_between_marks_is_at_most_one_over_p_b() {
        let table = [(0, 0.25), (1, 1.0 / 3.0), (2, 0.5), (3, 1.0), (4, 1.0)];
        for (count, p_a) in table {
            assert!((spread(0.25, count) - p_a).abs() < 1e-15, "count {count}");
        }
    }

    /// With `p_b` = 1/4 four packets are spared, then 1/4, 1/3, 1/2, 1.
    #[test]
    fn waiting_spares_the_packets_after_a_mark() {
        let table = [(0, 0.0), (3, 0.0), (4, 0.25), (5, 1.0 / 3.0), (6, 0.5), (7, 1.0), (8, 1.0)];
        for (count, p_a) in table {
            assert!((spread_late(0.25, count) - p_a).abs() < 1e-15, "count {count}");
        }
    }

    /// Floyd & Jacobson 1993, section VI: the gap is uniform on 1..=1/p_b, so its mean is (1/p_b + 1)/2.
    #[test]
    fn gaps_are_uniform() {
        let mut lottery = Lottery::new(60.0, 120.0, 0.5);
        let mut rng = Rng::stream(1, "lottery", 0, "test");
        // x = 90 gives p_b = 1/4: gaps of 1, 2, 3, 4 (the first packet after a mark has count 1).
        let (mut gaps, mut gap) = ([0u32; 5], 0);
        for _ in 0..40_000 {
            gap += 1;
            if lottery.draw(90.0, 1.0, &mut rng) {
                gaps[gap] += 1;
                gap = 0;
            }
        }
        let n = f64::from(gaps.iter().sum::<u32>());
        // After a mark `count` is 0, so the next packet is judged with count 1: 1/3, 1/2, 1.
        assert_eq!(gaps[4], 0);
        for share in gaps[1..=3].iter().map(|&count| f64::from(count) / n) {
            assert!((share - 1.0 / 3.0).abs() < 0.02, "{share}");
        }
    }

    #[test]
    fn thresholds_decide_alone_outside_the_ramp() {
        let mut lottery = Lottery::new(60.0, 120.0, 0.5);
        let mut rng = Rng::stream(1, "lottery", 0, "test");
        assert!((0..100).all(|_| !lottery.draw(59.999, 1.0, &mut rng)));
        assert_eq!(lottery.probability(), 0.0);
        assert!((0..100).all(|_| lottery.draw(120.0, 1.0, &mut rng)));
        assert_eq!(lottery.probability(), 1.0);
    }

    /// Floyd 2000: half way between max_th and its double, p_b is half way between max_p and 1.
    #[test]
    fn gentle_ramps_on_beyond_max_th() {
        let mut lottery = Lottery { gentle: true, ..Lottery::new(60.0, 120.0, 0.5) };
        let mut rng = Rng::stream(1, "lottery", 0, "test");
        lottery.draw(180.0, 1.0, &mut rng);
        assert!((lottery.probability() - 0.75).abs() < 1e-15);
        assert!(lottery.draw(240.0, 1.0, &mut rng));
    }
}
