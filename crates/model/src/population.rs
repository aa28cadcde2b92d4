//! TCP connections as Markov chains, for rates at which timeouts dominate.
//!
//! Below about four segments per round trip most losses end in a timeout, and AIMD alone is no longer a model. Here a
//! connection is a Markov chain that follows TCP's rules, and the state of the model is the share of connections in each of its
//! states: a mean field, as in F. Baccelli, D. McDonald & J. Reynier: A mean-field model for multiple TCP
//! connections through a buffer implementing RED (Performance Evaluation 49, 2002), with the timeouts of J. Padhye, V. Firoiu,
//! D. Towsley & J. Kurose: Modeling TCP throughput (SIGCOMM 1998) and the small windows of J. Chen, L. Subramanian, J. Iyengar
//! & B. Ford: TAQ (EuroSys 2014). No parameter is fitted; all come from the scenario. Packets are lost independently with the
//! probability `p`; `q = 1 - p`. Rounds last `R` on average.
//!
//! **Avoidance**, windows `w` = 2 … `W`, whole segments of `MaxRcvWin`: `w` packets a round. With `q^w` none is lost, and the
//! window is `w + 1`, after every `b`-th such round if an ACK is for `b` segments. Otherwise `D`, binomial with `w - 1` and `q`,
//! of those behind the first lost one arrive, each for a duplicate ACK. Three are needed; with limited transmit (RFC 3042) the
//! first two let a segment each go, whose own may make up for missing ones: for `D` = 1 both have to arrive, for `D` = 2 one of
//! the two. Then comes recovery; else a timeout.
//!
//! **Recovery** from `w`: `h = max(w / 2, 2)` packets a round, one of them sent again (RFC 6582). If that is lost, a timeout
//! follows. If not, another round follows for the next hole: `1 + (w - 1) p` are expected, which as a geometric number leaves
//! with `r = (w - 1) p / (1 + (w - 1) p)` one more. After the last, the connection is in avoidance with `h`, unless one of the
//! other `h - 1` of that round was lost: that is a loss at the window `h`.
//!
//! **Waiting**, `k` = 0, 1 … timeouts after the first: until `T_0 2^k`, at most the longest timeout, has passed since the last
//! ACK, of which the round with the loss took `R`. Then one segment goes. If it is lost, `k + 1` follows.
//!
//! **Resending**: its ACK comes and lets two more go; two rounds. RFC 6298 and Karn's rule keep the backed-off timeout until a
//! segment that was never sent before is acknowledged, so it matters whether more than the one segment was lost. If only
//! it was, both are new: if both arrive, avoidance with 3; if the second is lost, as a loss at the window 2, without backoff;
//! if the first, RFC 6582 allows no fast retransmit, and `k + 1` follows. If more was, the first of the two is another of them
//! (counted as one), and both have to arrive. What was lost when the timer went off, one or more: with limited transmit that
//! did not help, always more; without, one where all behind the first arrived; after a loss in recovery, more with `r`.
//!
//! Not modelled: slow start after a timeout beyond its first two rounds, the start and end of connections, and the spread of
//! their round-trip times, which all have the mean. Sojourn times are exponential with the right mean: the shares in steady
//! state do not depend on the distribution, the transient does.

/// Maximum window [segments].
pub(crate) const MOST_WINDOW: usize = 64;
/// Maximum number of timeout doublings.
const STAGES: usize = 8;
/// Maximum number of states of connections with windows up to `window`.
pub(crate) const fn states(window: usize) -> usize {
    2 * (window - 1) + 4 * STAGES
}

/// TCP parameters of all connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// W: maximum window, whole segments; 2 to [`MOST_WINDOW`].
    pub window: usize,
    /// Initial window [segments].
    pub initial_window: f64,
    /// b: segments per ACK.
    pub segments_per_ack: f64,
    /// Share of connections with limited transmit.
    pub limited_transmit: f64,
    /// R: round-trip time [s].
    pub round_trip: f64,
    /// T_0: retransmission timeout after a round-trip measurement [s].
    pub timeout: f64,
    /// Maximum retransmission timeout [s].
    pub longest: f64,
}

/// Markov chain of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Population {
    rules: Rules,
    /// Windows, from 2 to the maximum.
    windows: usize,
    /// Duration of each timeout [s].
    wait: [f64; STAGES],
}

/// Probabilities of the outcomes of a loss.
#[derive(Clone, Copy, Default)]
struct Loss {
    /// Fast recovery.
    repaired: f64,
    /// Timeout with one segment lost.
    one: f64,
    /// Timeout with several segments lost.
    more: f64,
}

/// Powers of p and q.
struct Powers {
    p: [f64; MOST_WINDOW + 1],
    q: [f64; MOST_WINDOW + 1],
}

impl Powers {
    fn new(p: f64, q: f64) -> Self {
        let mut of = Self { p: [1.0; MOST_WINDOW + 1], q: [1.0; MOST_WINDOW + 1] };
        for n in 1..=MOST_WINDOW {
            of.p[n] = of.p[n - 1] * p;
            of.q[n] = of.q[n - 1] * q;
        }
        of
    }
}

impl Population {
    pub fn new(rules: Rules) -> Self {
        let mut wait = [0.0; STAGES];
        // A timer shorter than loss detection and recovery expires first.
        let mut timeout = rules.timeout.max(2.0 * rules.round_trip);
        for wait in &mut wait {
            *wait = timeout.min(rules.longest.max(2.0 * rules.round_trip)) - rules.round_trip;
            timeout *= 2.0;
        }
        Self { rules, windows: rules.window - 1, wait }
    }

    /// Returns the number of states.
    pub fn states(&self) -> usize {
        states(self.rules.window)
    }

    fn avoiding(&self, w: usize) -> usize {
        w.clamp(2, self.rules.window) - 2
    }

    fn recovering(&self, w: usize) -> usize {
        self.windows + self.avoiding(w)
    }

    fn waiting(&self, stage: usize, more: usize) -> usize {
        2 * self.windows + 2 * stage.min(STAGES - 1) + more
    }

    fn resending(&self, stage: usize, more: usize) -> usize {
        2 * self.windows + 2 * STAGES + 2 * stage + more
    }

    /// Returns the initial shares: all connections are new.
    pub fn start(&self, x: &mut [f64]) {
        x[self.avoiding(self.rules.initial_window as usize)] = 1.0;
    }

    /// Returns the rate of a connection, given the share `x` of connections in each state [packets/s].
    pub fn rate(&self, x: &[f64]) -> f64 {
        let mut packets = 0.0;
        for w in 2..=self.rules.window {
            packets += w as f64 * x[self.avoiding(w)] + half(w) as f64 * x[self.recovering(w)];
        }
        let mut rate = packets / self.rules.round_trip;
        for stage in 0..STAGES {
            for more in 0..2 {
                rate += x[self.waiting(stage, more)] / self.wait[stage];
                rate += x[self.resending(stage, more)] / self.rules.round_trip;
            }
        }
        rate
    }

    /// Returns the share of connections that wait for a timeout.
    #[cfg(test)]
    pub fn waiting_share(&self, x: &[f64]) -> f64 {
        x[self.waiting(0, 0)..self.resending(0, 0)].iter().sum()
    }

    /// Returns the outcomes of a loss at a window of `w`.
    fn loss(&self, w: usize, of: &Powers) -> Loss {
        let (n, q) = (w - 1, of.q[1]);
        let pairs = 0.5 * n as f64 * (n as f64 - 1.0);
        // The binomial probabilities of D = 0, 1 and 2.
        let d = [of.p[n], n as f64 * of.p[n - 1] * q, pairs * of.p[n.saturating_sub(2)] * of.q[2]];
        let limited = self.rules.limited_transmit;
        let missed = d[0] + d[1] * (1.0 - limited * of.q[2]) + d[2] * (1.0 - limited * (1.0 - of.p[2]));
        let one = if n < 3 { (1.0 - limited) * of.q[n] } else { 0.0 };
        Loss { repaired: 1.0 - missed, one, more: missed - one }
    }

    /// Adds the derivatives of the shares `x` to `dx` [1/s], with the loss probability `p` in the feedback.
    pub fn derive(&self, x: &[f64], p: f64, dx: &mut [f64]) {
        let p = p.clamp(0.0, 1.0);
        let q = 1.0 - p;
        let round = 1.0 / self.rules.round_trip;
        let mut go = |from: usize, to: usize, rate: f64| {
            let flow = rate * x[from];
            dx[from] -= flow;
            dx[to] += flow;
        };
        let of = Powers::new(p, q);
        let mut losses = [Loss::default(); MOST_WINDOW + 1];
        for w in 2..=self.rules.window {
            losses[w] = self.loss(w, &of);
            let (clear, loss) = (of.q[w], losses[w]);
            let from = self.avoiding(w);
            go(from, self.avoiding(w + 1), round * clear / self.rules.segments_per_ack);
            let lost = round * (1.0 - clear);
            go(from, self.recovering(w), lost * loss.repaired);
            go(from, self.waiting(0, 0), lost * loss.one);
            go(from, self.waiting(0, 1), lost * loss.more);

            let (from, h) = (self.recovering(w), half(w));
            let holes = (w - 1) as f64 * p;
            let again = holes / (1.0 + holes);
            go(from, self.waiting(0, 0), round * p * (1.0 - again));
            go(from, self.waiting(0, 1), round * p * again);
            let over = round * q * (1.0 - again);
            // h is at most w, so the losses of w include those of h.
            let (clear, loss) = (of.q[h - 1], losses[h]);
            go(from, self.avoiding(h), over * clear);
            go(from, self.recovering(h), over * (1.0 - clear) * loss.repaired);
            go(from, self.waiting(0, 0), over * (1.0 - clear) * loss.one);
            go(from, self.waiting(0, 1), over * (1.0 - clear) * loss.more);
        }
        let two = losses[2];
        let limited = self.rules.limited_transmit;
        // All other segments arrive: one, or two with limited transmit.
        let beside = q * (1.0 - limited + limited * q * q);
        for stage in 0..STAGES {
            for more in 0..2 {
                let (wait, resend) = (self.waiting(stage, more), self.resending(stage, more));
                go(wait, self.waiting(stage + 1, more), p / self.wait[stage]);
                go(wait, resend, q / self.wait[stage]);
                let rate = 0.5 * round;
                go(resend, self.avoiding(3), rate * q * q);
                let lost = |rate: f64| [rate * beside, rate * (1.0 - beside)];
                let [one, others] = lost(rate * if more == 0 { p } else { p + q * p });
                go(resend, self.waiting(stage + 1, 0), one);
                go(resend, self.waiting(stage + 1, 1), others);
                if more == 0 {
                    go(resend, self.recovering(2), rate * q * p * two.repaired);
                    go(resend, self.waiting(0, 0), rate * q * p * two.one);
                    go(resend, self.waiting(0, 1), rate * q * p * two.more);
                }
            }
        }
    }
}

/// Window after a loss at a window of `w` (RFC 5681 equation 4).
const fn half(w: usize) -> usize {
    if w < 4 { 2 } else { w / 2 }
}

#[cfg(test)]
mod tests {
    use bentpipe_units::Rng;

    use super::*;

    /// TCP of byun2007 over 60 ms.
    const RULES: Rules = Rules {
        window: 11,
        initial_window: 3.0,
        segments_per_ack: 1.0,
        limited_transmit: 1.0,
        round_trip: 0.06,
        timeout: 1.0,
        longest: 60.0,
    };

    /// Shares in steady state: Gaussian elimination of the chain's generator, whose columns are its derivatives in each
    /// pure state, with the sum of the shares in place of one equation.
    fn steady(population: &Population, p: f64) -> Vec<f64> {
        let n = population.states();
        let mut rows = vec![vec![0.0; n + 1]; n];
        for from in 0..n {
            let (mut x, mut dx) = (vec![0.0; n], vec![0.0; n]);
            x[from] = 1.0;
            population.derive(&x, p, &mut dx);
            assert!(dx.iter().sum::<f64>().abs() < 1e-9, "connections are neither made nor lost");
            for to in 0..n {
                rows[to][from] = dx[to];
            }
        }
        rows[n - 1] = vec![1.0; n + 1];
        for i in 0..n {
            let pivot = (i..n).max_by(|a, b| rows[*a][i].abs().total_cmp(&rows[*b][i].abs())).unwrap();
            rows.swap(i, pivot);
            let pivot = rows[i].clone();
            for (_, row) in rows.iter_mut().enumerate().filter(|(number, row)| *number != i && row[i] != 0.0)
            {
                let by = row[i] / pivot[i];
                row.iter_mut().zip(&pivot).for_each(|(x, of)| *x -= by * of);
            }
        }
        (0..n).map(|i| rows[i][n] / rows[i][i]).collect()
    }

    fn rate(rules: Rules, p: f64) -> f64 {
        let population = Population::new(rules);
        population.rate(&steady(&population, p))
    }

    /// Outcome of a loss at the window `w`, packet by packet: true with three duplicate ACKs, and the number of lost
    /// segments.
    fn lose(w: usize, p: f64, limited: bool, rng: &mut Rng) -> (bool, usize) {
        let mut duplicates = (1..w).filter(|_| rng.uniform() >= p).count();
        let (mut holes, mut let_go) = (w - duplicates, 0);
        while limited && duplicates < 3 && let_go < duplicates.min(2) {
            let_go += 1;
            if rng.uniform() < p { holes += 1 } else { duplicates += 1 }
        }
        (duplicates >= 3, holes)
    }

    /// Rate of a connection simulated packet by packet over `losses` losses [packets/s].
    fn drawn(rules: Rules, p: f64, losses: u32) -> f64 {
        let mut rng = Rng::stream(7, "population", 0, "test");
        let (r, limited) = (rules.round_trip, rules.limited_transmit > 0.5);
        let all_arrive = |n: usize, rng: &mut Rng| (0..n).all(|_| rng.uniform() >= p);
        let (mut packets, mut time, mut w) = (0, 0.0, 2);
        for _ in 0..losses {
            while all_arrive(w, &mut rng) {
                (packets, time) = (packets + w, time + r);
                w = (w + 1).min(rules.window);
            }
            (packets, time) = (packets + w, time + r);
            let (mut repaired, mut holes) = lose(w, p, limited, &mut rng);
            let mut stage = 0;
            'loss: loop {
                if repaired {
                    let more = (w - 1) as f64 * p / (1.0 + (w - 1) as f64 * p);
                    let h = (w / 2).max(2);
                    loop {
                        (packets, time) = (packets + h, time + r);
                        let again = rng.uniform() < more;
                        if rng.uniform() < p {
                            (repaired, holes) = (false, 1 + usize::from(again));
                            continue 'loss;
                        }
                        if !again {
                            break;
                        }
                    }
                    w = h;
                    if all_arrive(h - 1, &mut rng) {
                        break;
                    }
                    (repaired, holes) = lose(h, p, limited, &mut rng);
                    continue;
                }
                loop {
                    let timer = (rules.timeout * f64::from(1u32 << stage.min(STAGES - 1))).min(rules.longest);
                    (packets, time) = (packets + 1, time + timer - r);
                    if rng.uniform() >= p {
                        break;
                    }
                    stage += 1;
                }
                (packets, time) = (packets + 2, time + 2.0 * r);
                let (first, second) = (rng.uniform() >= p, rng.uniform() >= p);
                if first && second {
                    w = 3;
                    break;
                }
                if first && holes == 1 {
                    (w, stage) = (2, 0);
                    (repaired, holes) = lose(2, p, limited, &mut rng);
                } else {
                    stage += 1;
                    holes = if all_arrive(if limited { 3 } else { 1 }, &mut rng) { 1 } else { 2 };
                }
            }
        }
        packets as f64 / time
    }

    /// The chain's steady state and a simulated connection agree within the statistical error.
    #[test]
    fn chain_rate_matches_a_simulated_connection() {
        for limited_transmit in [0.0, 1.0] {
            for p in [0.01, 0.05, 0.1, 0.2, 0.3] {
                let rules = Rules { limited_transmit, ..RULES };
                let (chain, drawn) = (rate(rules, p), drawn(rules, p, 200_000));
                assert!((chain / drawn - 1.0).abs() < 0.02, "{limited_transmit}, {p}: {chain} {drawn}");
            }
        }
    }

    /// Without losses a connection sends its window every round trip; with certain loss, one segment per maximum
    /// timeout.
    #[test]
    fn limits_of_no_loss_and_certain_loss() {
        assert!((rate(RULES, 0.0) - 11.0 / 0.06).abs() < 1e-6);
        assert!((rate(RULES, 1.0 - 1e-7) * (60.0 - 0.06) - 1.0).abs() < 1e-5);
    }

    /// With rare losses and large windows there are hardly any timeouts, and AIMD remains: the gain of a segment per round trip
    /// equals the reduction by `p w` losses of half a window each, so that `E[w²] = 2 / p` as in the equations without timeouts,
    /// up to one segment per window, a relative error of `√p`.
    #[test]
    fn rare_losses_give_aimd() {
        for p in [0.003_f64, 0.005, 0.01] {
            let population = Population::new(Rules { window: MOST_WINDOW, ..RULES });
            let x = steady(&population, p);
            assert!(population.waiting_share(&x) < 0.05);
            let avoiding = 2..=MOST_WINDOW;
            let share: f64 = avoiding.clone().map(|w| x[population.avoiding(w)]).sum();
            let square = avoiding.map(|w| (w * w) as f64 * x[population.avoiding(w)]).sum::<f64>() / share;
            assert!((square * p / 2.0 - 1.0).abs() < 1.2 * p.sqrt(), "{p}: {}", square * p / 2.0);
        }
    }
}
