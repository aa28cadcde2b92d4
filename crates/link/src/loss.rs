//! Loss models.

use bentpipe_scenario::{self as scenario, Clock, LossModel};
use bentpipe_units::{Instant, Rng};

/// A loss model.
#[derive(Clone, Debug)]
pub enum Loss {
    /// No loss.
    None,
    /// Independent, with this probability.
    Independent(f64),
    /// Packets with given numbers.
    Nth(Nth),
    /// A channel with a good and a bad state.
    GilbertElliott(GilbertElliott),
    /// Packets with a bit error: logarithm of the probability that a bit is correct.
    BitErrors(f64),
}

/// Loss of packets with given numbers.
#[derive(Clone, Debug)]
pub struct Nth {
    /// Numbers, counted from 1, ascending.
    numbers: Vec<u32>,
    /// Packets seen.
    seen: u64,
    /// Numbers reached.
    done: usize,
}

/// A channel of two states (Gilbert 1960, Elliott 1963).
#[derive(Clone, Debug)]
pub struct GilbertElliott {
    channel: scenario::GilbertElliott,
    /// True if the state was bad, and the time, at the last packet; `None` before the first.
    last: Option<(bool, Instant)>,
}

impl Loss {
    /// The model that `loss` describes.
    #[must_use]
    pub fn new(loss: &scenario::Loss) -> Self {
        match &loss.model {
            _ if loss.is_none() => Self::None,
            LossModel::Probability(p) => Self::Independent(*p),
            LossModel::Nth(numbers) => Self::Nth(Nth { numbers: numbers.clone(), seen: 0, done: 0 }),
            LossModel::GilbertElliott(channel) => {
                Self::GilbertElliott(GilbertElliott { channel: *channel, last: None })
            }
            LossModel::BitErrorRate(rate) => Self::BitErrors(libm::log1p(-rate)),
        }
    }

    /// True if it never loses a packet.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Decides whether the next packet, of `len` bytes at `now`, is lost.
    #[inline]
    pub fn loses(&mut self, len: u32, now: Instant, rng: &mut Rng) -> bool {
        match self {
            Self::None => false,
            Self::Independent(p) => rng.uniform() < *p,
            Self::Nth(nth) => nth.loses(),
            Self::GilbertElliott(channel) => channel.loses(now, rng),
            // 1 - (1 - ber)^(8 len)
            Self::BitErrors(right) => rng.uniform() < -libm::expm1(8.0 * f64::from(len) * *right),
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

impl GilbertElliott {
    fn loses(&mut self, now: Instant, rng: &mut Rng) -> bool {
        // A link layer's retries let a packet leave after later ones; the state has no time before the last packet.
        let now = self.last.map_or(now, |(_, last)| now.max(last));
        let is_bad = rng.uniform() < self.probability_bad(now);
        self.last = Some((is_bad, now));
        let loss = if is_bad { self.channel.loss_bad } else { self.channel.loss_good };
        loss > 0.0 && rng.uniform() < loss
    }

    /// Probability of the bad state at `now`, given the state at the last packet.
    fn probability_bad(&self, now: Instant) -> f64 {
        match self.channel.clock {
            Clock::Packet { p, r } => match self.last {
                None => p / (p + r),
                Some((false, _)) => p,
                Some((true, _)) => 1.0 - r,
            },
            Clock::Time { good, bad } => {
                let (to_bad, to_good) = (1.0 / good.as_secs_f64(), 1.0 / bad.as_secs_f64());
                let stationary = to_bad / (to_bad + to_good);
                // The chain forgets its state at the sum of its rates.
                let Some((was_bad, then)) = self.last else { return stationary };
                let kept = libm::exp(-(to_bad + to_good) * (now - then).as_secs_f64());
                stationary + (f64::from(u8::from(was_bad)) - stationary) * kept
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_scenario::{LossAt, LossOf};
    use bentpipe_units::Duration;

    use super::*;

    fn channel(model: LossModel) -> Loss {
        Loss::new(&scenario::Loss { model, of: LossOf::All, at: LossAt::AfterQueue })
    }

    /// Numbers of the packets lost, of 1000 bytes each and 10 ms apart.
    fn lost(channel: &mut Loss, packets: u32) -> Vec<u32> {
        let mut rng = Rng::stream(1, "channel", 0, "loss");
        let at = |n: u32| Instant::ZERO + Duration::from_millis(10).times(u64::from(n));
        (1..=packets).filter(|n| channel.loses(1000, at(*n), &mut rng)).collect()
    }

    /// Share of packets lost, and mean length of a run of losses.
    fn share_and_run(lost: &[u32], packets: u32) -> (f64, f64) {
        let runs = 1 + lost.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
        (lost.len() as f64 / f64::from(packets), lost.len() as f64 / runs as f64)
    }

    #[test]
    fn packets_with_given_numbers_are_lost() {
        let mut nth = channel(LossModel::Nth(vec![1, 5, 17]));
        assert_eq!(lost(&mut nth, 40), [1, 5, 17]);
        assert!(lost(&mut nth, 40).is_empty());
    }

    #[test]
    fn zero_probability_or_no_numbers_lose_nothing() {
        assert!(channel(LossModel::Probability(0.0)).is_none());
        assert!(channel(LossModel::Nth(Vec::new())).is_none());
        assert!(channel(LossModel::BitErrorRate(0.0)).is_none());
    }

    /// Standard error of the share: sqrt(0.1 x 0.9 / 100000) = 0.00095; the bound is five standard errors.
    #[test]
    fn independent_loss_has_its_probability() {
        let share = lost(&mut channel(LossModel::Probability(0.1)), 100_000).len() as f64 / 1e5;
        assert!((share - 0.1).abs() < 0.0047, "{share}");
    }

    /// 1000 bytes with a bit error rate of 1e-5: 1 - exp(8000 ln(1 - 1e-5)) = 0.076884. Standard error 0.00084.
    #[test]
    fn a_packet_with_any_bit_error_is_lost() {
        let share = lost(&mut channel(LossModel::BitErrorRate(1e-5)), 100_000).len() as f64 / 1e5;
        assert!((share - 0.076_884).abs() < 0.0042, "{share}");
        let mut rng = Rng::stream(1, "channel", 0, "loss");
        let mut short = channel(LossModel::BitErrorRate(1e-5));
        let lost = (0..100_000).filter(|_| short.loses(40, Instant::ZERO, &mut rng)).count() as f64 / 1e5;
        assert!((lost - 0.003_195).abs() < 0.0009, "{lost}");
    }

    /// The bad state holds for p / (p + r) = 0.02 / 0.27 of the packets, for 1 / r = 4 at a time. Lost packets come in runs whose lengths are
    /// geometric with variance (1 - r) / r^2 = 12: of some 74000 / 4 runs the mean's standard error is 0.026. The
    /// share's, with the correlation 1 - p - r = 0.73 from packet to packet: sqrt(0.0741 x 0.926 / 1e6 x 1.73 / 0.27) =
    /// 0.00066. The bounds are five standard errors.
    #[test]
    fn a_packet_clocked_channel_has_its_loss_share_and_run_length() {
        let model = |loss_good, loss_bad| {
            let clock = Clock::Packet { p: 0.02, r: 0.25 };
            channel(LossModel::GilbertElliott(scenario::GilbertElliott { clock, loss_good, loss_bad }))
        };
        let (share, run) = share_and_run(&lost(&mut model(0.0, 1.0), 1_000_000), 1_000_000);
        assert!((share - 0.02 / 0.27).abs() < 0.0033, "{share}");
        assert!((run - 4.0).abs() < 0.13, "{run}");
        // With loss in both states: 0.01 x 25 / 27 + 0.5 x 2 / 27.
        let (share, _) = share_and_run(&lost(&mut model(0.01, 0.5), 1_000_000), 1_000_000);
        assert!((share - (0.01 * 25.0 + 0.5 * 2.0) / 27.0).abs() < 0.0033, "{share}");
    }

    /// Good for 1800 ms and bad for 200 ms on average: a tenth of the packets are lost. A packet 10 ms after a lost one is
    /// lost with probability 0.1 + 0.9 exp(-0.01 (1 / 1.8 + 1 / 0.2)) = 0.951363, so that runs have 1 / (1 - 0.951363) =
    /// 20.561 packets on average; some 4860 of them, with a standard deviation of about 20: standard error 0.29. That of
    /// the share: sqrt(0.09 / 1e6 x 1.9460 / 0.0540) = 0.0018.
    #[test]
    fn a_time_clocked_channel_has_its_loss_share_and_run_length() {
        let clock = Clock::Time { good: Duration::from_millis(1800), bad: Duration::from_millis(200) };
        let model = scenario::GilbertElliott { clock, loss_good: 0.0, loss_bad: 1.0 };
        let mut both = channel(LossModel::GilbertElliott(model));
        let (share, run) = share_and_run(&lost(&mut both, 1_000_000), 1_000_000);
        assert!((share - 0.1).abs() < 0.009, "{share}");
        assert!((run - 20.56).abs() < 1.45, "{run}");
    }

    /// Each second packet is retried and leaves 20 ms later, after the next ones: the channel is the same as if the others left
    /// with it.
    #[test]
    fn time_does_not_pass_twice_where_packets_overtake_each_other() {
        let clock = Clock::Time { good: Duration::from_millis(900), bad: Duration::from_millis(100) };
        let model = scenario::GilbertElliott { clock, loss_good: 0.0, loss_bad: 1.0 };
        let lost = |in_order: bool| {
            let (mut channel, mut rng) =
                (channel(LossModel::GilbertElliott(model)), Rng::stream(1, "channel", 0, "loss"));
            let mut latest = Instant::ZERO;
            (0..10_000u64)
                .map(|n| {
                    let at = Instant::ZERO + Duration::from_millis(n + if n % 2 == 0 { 20 } else { 0 });
                    latest = latest.max(at);
                    channel.loses(1000, if in_order { latest } else { at }, &mut rng)
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(lost(false), lost(true));
    }

    /// The first packet finds the bad state with its stationary probability: 0.2 / (0.2 + 0.3) = 0.4, and 600 ms / (1400 ms +
    /// 600 ms) = 0.3. Standard error of 10 000 links: below sqrt(0.24 / 10000) = 0.0049; the bound is five of them.
    #[test]
    fn the_channel_starts_in_its_stationary_state() {
        let time = Clock::Time { good: Duration::from_millis(1400), bad: Duration::from_millis(600) };
        for (clock, bad) in [(Clock::Packet { p: 0.2, r: 0.3 }, 0.4), (time, 0.3)] {
            let model = scenario::GilbertElliott { clock, loss_good: 0.0, loss_bad: 1.0 };
            let is_lost = |link: &u64| {
                let mut rng = Rng::stream(1, "channel", *link, "loss");
                channel(LossModel::GilbertElliott(model)).loses(1000, Instant::ZERO, &mut rng)
            };
            let share = (0..10_000).filter(is_lost).count() as f64 / 1e4;
            assert!((share - bad).abs() < 0.0245, "{share}");
        }
    }

    /// The state of a channel takes one random number for each packet; a state without loss takes no other.
    #[test]
    fn a_lossless_state_draws_no_random_number_for_loss() {
        let model = scenario::GilbertElliott {
            clock: Clock::Packet { p: 0.2, r: 0.3 },
            loss_good: 0.0,
            loss_bad: 0.0,
        };
        let mut both = GilbertElliott { channel: model, last: None };
        let mut rng = Rng::stream(1, "channel", 0, "loss");
        assert!((0..10).all(|_| !both.loses(Instant::ZERO, &mut rng)));
        let mut other = Rng::stream(1, "channel", 0, "loss");
        for _ in 0..10 {
            other.bits();
        }
        assert_eq!(rng.bits(), other.bits());
    }
}
