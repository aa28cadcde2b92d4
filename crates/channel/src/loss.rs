//! Which packets are lost.

use bentpipe_scenario::{self as scenario, LossLaw};
use bentpipe_units::Rng;

/// A channel that loses packets.
#[derive(Clone, Debug)]
pub enum Loss {
    /// None.
    Nothing,
    /// Each on its own, with this probability.
    Independent(f64),
    /// Those with given numbers.
    Nth(Nth),
}

/// Loses the packets with given numbers.
#[derive(Clone, Debug)]
pub struct Nth {
    /// Counted from 1, rising.
    numbers: Vec<u32>,
    /// Packets seen.
    seen: u64,
    /// How many of the numbers have come up.
    done: usize,
}

impl Loss {
    /// The channel that `loss` describes.
    #[must_use]
    pub fn new(loss: &scenario::Loss) -> Self {
        match &loss.law {
            _ if loss.is_none() => Self::Nothing,
            LossLaw::Probability(p) => Self::Independent(*p),
            LossLaw::Nth(numbers) => Self::Nth(Nth { numbers: numbers.clone(), seen: 0, done: 0 }),
        }
    }

    /// Whether it never loses a packet.
    #[must_use]
    pub const fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing)
    }

    /// Whether the next packet is lost.
    #[inline]
    pub fn loses(&mut self, rng: &mut Rng) -> bool {
        match self {
            Self::Nothing => false,
            Self::Independent(p) => rng.uniform() < *p,
            Self::Nth(nth) => nth.loses(),
        }
    }
}

impl Nth {
    fn loses(&mut self) -> bool {
        self.seen += 1;
        let due = self.numbers.get(self.done).is_some_and(|n| u64::from(*n) == self.seen);
        self.done += usize::from(due);
        due
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_scenario::{LossAt, LossOf};

    use super::*;

    fn channel(law: LossLaw) -> Loss {
        Loss::new(&scenario::Loss { law, of: LossOf::All, at: LossAt::AfterQueue })
    }

    fn lost(channel: &mut Loss, packets: u32) -> Vec<u32> {
        let mut rng = Rng::stream(1, "channel", 0, "loss");
        (1..=packets).filter(|_| channel.loses(&mut rng)).collect()
    }

    #[test]
    fn the_packets_with_the_given_numbers_are_lost() {
        let mut nth = channel(LossLaw::Nth(vec![1, 5, 17]));
        assert_eq!(lost(&mut nth, 40), [1, 5, 17]);
        assert!(lost(&mut nth, 40).is_empty());
    }

    #[test]
    fn without_probability_or_numbers_nothing_is_lost() {
        assert!(channel(LossLaw::Probability(0.0)).is_nothing());
        assert!(channel(LossLaw::Nth(Vec::new())).is_nothing());
    }

    /// Standard error of the share: sqrt(0.1 x 0.9 / 100000) = 0.00095; the bound is five of it.
    #[test]
    fn independent_loss_has_its_probability() {
        let share = lost(&mut channel(LossLaw::Probability(0.1)), 100_000).len() as f64 / 1e5;
        assert!((share - 0.1).abs() < 0.0047, "{share}");
    }
}
