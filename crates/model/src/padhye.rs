//! Senders with the timeouts of J. Padhye, V. Firoiu, D. Towsley & J. Kurose: Modeling TCP throughput (SIGCOMM 1998), as a
//! fluid.
//!
//! A share of the connections is in congestion avoidance with the mean window `W`; the others wait, those with `k` timeouts
//! behind them in the share `z_k`, for a timer of `T_0 2^k`, at most the longest timeout. With the loss probability `p` a
//! connection in avoidance loses a packet at the rate `ℓ = p W / R`. Its window is Padhye's sawtooth: a loss halves the peak `w`,
//! and by the next one, after `1 / ℓ`, it has grown by `1 / (b R ℓ)`, so `dw/dt = ℓ (1 / (b R ℓ) - w / 2)`. The mean window is `3/4`
//! of the peak. A loss ends in a timeout with the probability `min(1, 3 / w)` (section 2.2 there), because three duplicate
//! ACKs need three packets behind the lost one:
//!
//! ```text
//! dW/dt   = 3 / (4 b R) - (1 - decr) W ℓ
//! dz_0/dt = (1 - Σ z) ℓ min(1, 9 / (4 W)) - z_0 / T_0
//! dz_k/dt = p z_(k-1) / T_(k-1) - z_k / T_k
//! λ / m   = (1 - Σ z) W / R + Σ z_k / T_k
//! ```
//!
//! A timer lets one packet go; if it is lost, the next timer follows, and after the last one the last again. At a constant `p`
//! the equilibrium has `W = sqrt(3 / (2 b p))`, and its rate is Padhye's, with his approximation of the windows for small `p`
//! (RFC 5348 section 3.1 has neither the second term of the numerator nor the sum, for which `1 + 32 p²` stands):
//!
//! ```text
//! λ / m = (1 + Q p / (1 - p)) / (R sqrt(2 b p / 3) + T_0 p Q Σ p^k 2^k),   Q = min(1, 3 sqrt(3 b p / 8))
//! ```
//!
//! For `p -> 0` that is the square-root law `sqrt(3 / (2 b p)) / R`.

/// Number of timers: the longest is 64 times the first, as in Padhye's `f(p)`.
pub(crate) const STAGES: usize = 7;
/// Mean of the sawtooth as a share of its peak.
const MEAN: f64 = 0.75;

/// TCP parameters of all connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Padhye {
    /// b: segments per ACK.
    pub segments_per_ack: f64,
    /// T_0: retransmission timeout [s], at least two round trips: a shorter one ends before a loss is repaired.
    pub timeout: f64,
    /// Maximum retransmission timeout [s].
    pub longest: f64,
}

/// Losses as the senders notice them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Losses {
    /// p: loss probability.
    pub p: f64,
    /// ℓ: losses of a connection in avoidance [1/s].
    pub rate: f64,
}

impl Padhye {
    /// Returns the timer of each stage with a round-trip time of `round_trip` [s].
    fn timers(&self, round_trip: f64) -> [f64; STAGES] {
        let first = self.timeout.max(2.0 * round_trip);
        std::array::from_fn(|k| (first * f64::from(1u32 << k)).min(self.longest.max(first)))
    }

    /// Returns the rate of a connection with the mean window `window` in avoidance and the shares `waiting` [packets/s].
    pub fn rate(&self, window: f64, waiting: &[f64], round_trip: f64) -> f64 {
        let resent: f64 =
            waiting[..STAGES].iter().zip(self.timers(round_trip)).map(|(z, timer)| z / timer).sum();
        avoiding(waiting) * window / round_trip + resent
    }

    /// Returns the derivative of the mean window, of which a mark takes the share `cut`, and writes those of the shares
    /// `waiting` to `dz` [1/s].
    pub fn derive(
        &self,
        (window, cut): (f64, f64),
        waiting: &[f64],
        losses: Losses,
        round_trip: f64,
        dz: &mut [f64],
    ) -> f64 {
        let timers = self.timers(round_trip);
        let p = losses.p.clamp(0.0, 1.0);
        let timeouts = if window > 0.0 { (3.0 * MEAN / window).min(1.0) } else { 1.0 };
        dz[0] += avoiding(waiting) * losses.rate * timeouts;
        for k in 0..STAGES {
            let expired = waiting[k] / timers[k];
            dz[k] -= expired;
            dz[(k + 1).min(STAGES - 1)] += p * expired;
        }
        MEAN / (self.segments_per_ack * round_trip) - cut * window * losses.rate
    }
}

/// Share of connections in avoidance.
fn avoiding(waiting: &[f64]) -> f64 {
    (1.0 - waiting[..STAGES].iter().sum::<f64>()).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENDERS: Padhye = Padhye { segments_per_ack: 1.0, timeout: 1.0, longest: 64.0 };

    /// Rate in equilibrium at a constant loss probability [packets/s]. In equilibrium as many connections come to each timer as
    /// leave it; all derivatives must then be zero.
    fn settled(senders: &Padhye, p: f64, r: f64) -> f64 {
        let window = (1.5 / (senders.segments_per_ack * p)).sqrt();
        let losses = Losses { p, rate: p * window / r };
        let timers = senders.timers(r);
        let mut waiting = [0.0; STAGES];
        let mut come = losses.rate * (2.25 / window).min(1.0);
        for k in 0..STAGES {
            // The last timer is repeated with the probability p.
            let repeated = if k + 1 == STAGES { 1.0 - p } else { 1.0 };
            waiting[k] = come * timers[k] / repeated;
            come *= p;
        }
        let all = 1.0 + waiting.iter().sum::<f64>();
        waiting.iter_mut().for_each(|z| *z /= all);
        let mut dz = [0.0; STAGES];
        let dw = senders.derive((window, 0.5), &waiting, losses, r, &mut dz);
        assert!(dw.abs() < 1e-9 / r && dz.iter().all(|dz| dz.abs() < 1e-12), "{dw} {dz:?}");
        senders.rate(window, &waiting, r)
    }

    /// Padhye's rate with his polynomial f(p), and with E\[W\] and E\[X\] as for small p (section 2.2).
    fn published(p: f64, b: f64, r: f64, t0: f64) -> f64 {
        let f = 1.0
            + p
            + 2.0 * libm::pow(p, 2.0)
            + 4.0 * libm::pow(p, 3.0)
            + 8.0 * libm::pow(p, 4.0)
            + 16.0 * libm::pow(p, 5.0)
            + 32.0 * libm::pow(p, 6.0);
        let q = (3.0 * (3.0 * b * p / 8.0).sqrt()).min(1.0);
        (1.0 + q * p / (1.0 - p)) / (r * (2.0 * b * p / 3.0).sqrt() + t0 * q * p * f / (1.0 - p))
    }

    #[test]
    fn rate_at_a_constant_loss_is_padhyes() {
        for (p, b, r, t0) in
            [(0.001, 1.0, 0.1, 1.0), (0.02, 2.0, 0.6, 2.0), (0.18, 1.0, 0.06, 1.0), (0.5, 1.0, 0.2, 0.5)]
        {
            let senders = Padhye { segments_per_ack: b, timeout: t0, longest: 64.0 * t0 };
            let (found, expected) = (settled(&senders, p, r), published(p, b, r, t0));
            assert!((found / expected - 1.0).abs() < 1e-12, "p {p}: {found}, not {expected}");
        }
    }

    /// RFC 5348 section 3.1 in packets/s. It has neither the packets that timers let go, the share Q p / (1 - p), nor the
    /// terms of the sum of timers beyond 2 p, which 1 + 32 p² stands for.
    #[test]
    fn rate_at_small_loss_is_that_of_rfc_5348() {
        let (r, t0) = (0.1, 0.4);
        for p in [1e-4, 1e-3, 1e-2] {
            let rfc = 1.0
                / (r * (2.0 * p / 3.0f64).sqrt()
                    + t0 * (3.0 * (3.0 * p / 8.0f64).sqrt()) * p * (1.0 + 32.0 * p * p));
            let ratio = settled(&Padhye { timeout: t0, ..SENDERS }, p, r) / rfc;
            assert!((ratio - 1.0).abs() < 2.5 * p, "p {p}: {ratio}");
        }
    }

    #[test]
    fn rate_without_timeouts_follows_the_square_root_law() {
        let (r, p) = (0.01, 1e-5);
        for b in [1.0, 2.0] {
            let found = settled(&Padhye { segments_per_ack: b, timeout: 0.02, ..SENDERS }, p, r);
            let law = (3.0 / (2.0 * b * p)).sqrt() / r;
            assert!((found / law - 1.0).abs() < 1e-3, "{found}, not {law}");
        }
    }

    /// Timers of 1, 2, 4, 4 ... s with half of the resent packets lost: a wait lasts 1 + 2/2 + 4/4 + 4/8 + ... = 4 s on
    /// average and lets 1 + 1/2 + 1/4 + ... = 2 packets go.
    #[test]
    fn timers_stop_at_the_longest() {
        let senders = Padhye { longest: 4.0, ..SENDERS };
        let mut waiting: [f64; STAGES] =
            std::array::from_fn(|k| libm::pow(0.5, k as f64) * senders.timers(0.1)[k]);
        // The last timer is repeated: the rest of the series.
        waiting[STAGES - 1] *= 2.0;
        let sum: f64 = waiting.iter().sum();
        assert!((sum - 4.0).abs() < 1e-12, "{sum}");
        waiting.iter_mut().for_each(|z| *z /= sum);
        let rate = senders.rate(2.0, &waiting, 0.1);
        assert!((rate - 2.0 / 4.0).abs() < 1e-12, "{rate}");
    }

    #[test]
    fn timers_are_at_least_two_round_trips() {
        assert_eq!(SENDERS.timers(0.1)[..2], [1.0, 2.0]);
        assert_eq!(SENDERS.timers(0.6)[..2], [1.2, 2.4]);
        assert_eq!(SENDERS.timers(50.0)[..2], [100.0, 100.0]);
    }
}
