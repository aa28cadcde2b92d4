//! Markov-modulated Poisson process: exponential times between packets, at the rate of the state of a Markov chain (W.
//! Fischer, K. Meier-Hellstern: The Markov-modulated Poisson process cookbook, Performance Evaluation 18, 1993).

use std::sync::Arc;

use bentpipe_scenario::{Distribution, State};
use bentpipe_units::{Duration, Rng};

use crate::steady::mean_gap;
use crate::{Step, length};

/// An MMPP source.
#[derive(Clone, Debug)]
pub struct Mmpp {
    packet: Distribution<u64>,
    states: Arc<[StateParameters]>,
    /// Transition probabilities, one row per state.
    transitions: Arc<[Vec<f64>]>,
    state: usize,
    /// Time left in the state.
    left: Duration,
}

/// Parameters of a state [s].
#[derive(Clone, Copy, Debug)]
struct StateParameters {
    /// Mean time between packets; `None` if the state sends no packets.
    gap: Option<f64>,
    sojourn: f64,
}

/// Share of time that an irreducible chain spends in each state: the shares of its jumps by the algorithm of Grassmann,
/// Taksar and Heyman (Operations Research 33, 1985), which never subtracts, weighted by the mean sojourn times.
#[must_use]
pub fn stationary(transitions: &[Vec<f64>], sojourns: &[f64]) -> Vec<f64> {
    let n = transitions.len();
    let mut a = transitions.to_vec();
    for k in (1..n).rev() {
        let sum: f64 = a[k][..k].iter().sum();
        for i in 0..k {
            a[i][k] /= sum;
            for j in 0..k {
                a[i][j] += a[i][k] * a[k][j];
            }
        }
    }
    let mut visits = vec![1.0];
    for k in 1..n {
        let next = visits.iter().zip(&a).map(|(visits, row)| visits * row[k]).sum();
        visits.push(next);
    }
    let weights: Vec<f64> = visits.iter().zip(sojourns).map(|(visits, sojourn)| visits * sojourn).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

/// Draws an index with the given probabilities.
fn pick(probabilities: &[f64], rng: &mut Rng) -> usize {
    let mut position = rng.uniform();
    for (i, probability) in probabilities.iter().enumerate() {
        if position < *probability {
            return i;
        }
        position -= probability;
    }
    // The probabilities sum up to 1 except for rounding.
    probabilities.iter().rposition(|p| *p > 0.0).unwrap_or(0)
}

impl Mmpp {
    /// A source in a state drawn from the stationary distribution.
    #[must_use]
    pub fn new(
        states: &[State],
        transitions: &[Vec<f64>],
        packet: &Distribution<u64>,
        rng: &mut Rng,
    ) -> Self {
        let hold = |s: &State| StateParameters {
            gap: (s.rate.as_bps() > 0).then(|| mean_gap(s.rate, packet)),
            sojourn: s.sojourn.as_secs_f64(),
        };
        let states: Arc<[StateParameters]> = states.iter().map(hold).collect();
        let sojourns: Vec<f64> = states.iter().map(|s| s.sojourn).collect();
        let state = pick(&stationary(transitions, &sojourns), rng);
        let left = Duration::from_secs_f64(rng.exponential(sojourns[state]));
        Self { packet: packet.clone(), states, transitions: transitions.into(), state, left }
    }

    /// Returns the next packet or change of state. Exponential times have no memory, so the time to the next packet is
    /// drawn again in each state.
    #[inline]
    pub fn next(&mut self, rng: &mut Rng) -> Step {
        if let Some(mean) = self.states[self.state].gap {
            let gap = Duration::from_secs_f64(rng.exponential(mean));
            if gap <= self.left {
                self.left = self.left.saturating_sub(gap);
                return Step { gap, len: length(&self.packet, rng) };
            }
        }
        let gap = self.left;
        self.state = pick(&self.transitions[self.state], rng);
        self.left = Duration::from_secs_f64(rng.exponential(self.states[self.state].sojourn));
        Step::silent(gap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With two alternating states, the shares are those of the sojourns. With three, where 1 leads to 2, 2 to 1 or 3
    /// alike, and 3 to 1: the visits are v2 = v1 and v3 = v2 / 2, hence 2 : 2 : 1, times the sojourns 1, 2 and 4 s: 2 :
    /// 4 : 4.
    #[test]
    fn stationary_shares_solve_the_balance_equations() {
        let two = [vec![0.0, 1.0], vec![1.0, 0.0]];
        let close =
            |found: &[f64], expected: &[f64]| found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12);
        assert!(close(&stationary(&two, &[2.0, 6.0]), &[0.25, 0.75]));
        let three = [vec![0.0, 1.0, 0.0], vec![0.5, 0.0, 0.5], vec![1.0, 0.0, 0.0]];
        assert!(close(&stationary(&three, &[1.0, 2.0, 4.0]), &[0.2, 0.4, 0.4]));
    }
}
