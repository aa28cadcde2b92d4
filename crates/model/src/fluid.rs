//! The equations of the papers.
//!
//! All share a part. Senders with the mean round trip `R` have, together, a rate `λ` [packets/s]. With every round trip
//! without a mark each adds a packet to its window, and a mark takes the share `1 - decr` of it, a half for TCP:
//!
//!     dλ/dt = (1 - p) m / R² - (1 - decr) p λ² / m
//!
//! That is the additive increase of `m` windows `λ R / m`, `1 / R` a second each, and their decrease at every mark, of which
//! `p λ / m` come to each in a second.
//!
//! **Gateway** [B07] 4.4, reconstructed from its description. What arrives at the mark point is `ω(t) λ(t)`; what is
//! accepted there reaches the transmit queue after the PEP's delay `d(t)`: `dq/dt = ω(t-d) (1 - p(t-d)) λ(t-d) - μ`, `q >=
//! 0`. The senders hear of a mark at once, as printed: the terrestrial round trip is not a delay here.
//!
//! **New connections** [B07] 6.4, reconstructed. Marks cut advertised windows and drop nothing, so the factor `1 - p` is
//! not in the queues' equations. A share `υ(t)` of the connections is new and sends its whole `MaxRcvWin` once a round
//! trip, `n = υ m MaxRcvWin / R`; the others are `(1 - υ) m`:
//!
//!     dλ/dt = (1 - p) (1 - υ) m / R² - (1 - decr) p λ² / ((1 - υ) m) + dn/dt
//!
//! **Single queue** [BB] section 6, reconstructed. The queue is served as an M/M/1 queue in equilibrium with `q` packets
//! would be, `dq/dt = λ (1 - p) - μ q / (1 + q)`, virtual queues as an M/D/1 queue ([`Service`]). The link's utilization is a
//! variable of its own: what has been sent. `m(t)` follows the ramp of the connections; those that start, and the share
//! `replaced` that takes the place of others in a second, begin with their initial window `W_0`, and those that go take
//! their part of the rate along:
//!
//!     dλ/dt = … + (dm/dt + replaced m) W_0 / R - replaced λ
//!
//! **End to end** (V. Misra, W. Gong & D. Towsley, SIGCOMM 2000, section 3). One queue on the senders' way, so that the round
//! trip is `R(q) = R + q / μ` and its marks are heard of after it. The variable is the mean window `W`, `λ = m W / R(q)`:
//!
//!     dW/dt = 1 / R(q) - (1 - decr) W W(t-R) p(t-R) / R(q(t-R))
//!
//! **Timeouts**. The gateway of 4.4 with senders of whom most wait for a timeout: in place of the mean rate the share of
//! the connections in each state of TCP ([`crate::population`] has the rules), `λ = m Σ x_i λ_i`. The senders hear of a mark
//! after the round trip `R`, as they do.
//!
//! Where the feedback is to take a round trip (`model.feedback`), senders of the other equations hear of marks `R` after
//! them as well, as in C. Hollot, V. Misra, D. Towsley & W. Gong (INFOCOM 2001): of `λ(t-R)` that was sent a round trip ago
//! the share `p(t-R)` was marked, and each mark takes its share of the window of now. With `p` and `λ²` of the equations
//! above so replaced by `p(t-R)` and `λ λ(t-R)`, nothing changes where all stands still.
//!
//! In all of them a queue that is full loses what it cannot hold, and where the senders are not split off by a PEP they
//! take that for a mark.

use bentpipe_queue::fluid::{Arrivals, Inputs, MAX_STATES, Service};
use bentpipe_scenario::{Equations, Feedback, Ramp};

use crate::population::{MOST_WINDOW, Population, states};
use crate::solve::Delayed;
use crate::system::System;

/// The senders' rate λ [packets/s]; their mean window [packets] with the equations "end to end".
pub(crate) const SENDERS: usize = 0;
/// The watched queue [packets].
pub(crate) const QUEUE: usize = 1;
/// What has arrived at the mark point since the start [packets].
pub(crate) const OFFERED: usize = 2;
/// What has been marked there [packets].
pub(crate) const MARKED: usize = 3;
/// What the link has sent [packets].
pub(crate) const SENT: usize = 4;
/// What the full queue has lost [packets].
pub(crate) const LOST: usize = 5;
/// Where the law's own variables begin.
pub(crate) const LAW: usize = 6;
/// Number of variables, with one to spare for a loop that is cut open; where there are more, the states of the connections
/// follow.
pub(crate) const VARIABLES: usize = LAW + MAX_STATES + 1;
/// Number of variables with connections of windows up to [`SMALL_WINDOW`], …
pub(crate) const SMALL: usize = VARIABLES + states(SMALL_WINDOW);
/// … and up to [`MOST_WINDOW`].
pub(crate) const LARGE: usize = VARIABLES + states(MOST_WINDOW);
/// The largest window [segments] that the equations with fewer variables hold.
pub(crate) const SMALL_WINDOW: usize = 16;
/// The delay of the PEP, or the senders' with the equations "end to end"; and the feedback's where it is another.
pub(crate) const LAGS: usize = 2;

/// The equations of a system, in `N` variables.
pub struct Fluid<'a, const N: usize> {
    /// What they are about.
    pub system: &'a System,
    /// The shortest time in which a bounded variable may reach its bound [s].
    grain: f64,
    /// The connections' states, with the equations "timeouts".
    population: Option<Population>,
}

/// Rates at a moment [packets/s].
pub(crate) struct Rates {
    /// At the mark point.
    pub(crate) offered: f64,
    /// The same in packets of the link.
    pub(crate) load: f64,
    /// Share that is marked there.
    pub(crate) p: f64,
    /// Accepted there, in packets of the link.
    pub(crate) accepted: f64,
}

impl<'a, const N: usize> Fluid<'a, N> {
    /// The equations of `system`.
    #[must_use]
    pub fn new(system: &'a System) -> Self {
        // Half a step: the Runge-Kutta method takes a variable to its bound without passing it.
        Self { system, grain: 0.5 * system.step, population: system.rules.map(Population::new) }
    }

    /// The variables at the start: nobody sends, all is empty.
    #[must_use]
    pub fn start(&self) -> [f64; N] {
        let mut y = [0.0; N];
        if let Some(population) = &self.population {
            population.start(&mut y[VARIABLES..VARIABLES + population.states()]);
        }
        if self.system.equations == Equations::EndToEnd {
            y[SENDERS] = self.system.initial_window;
        }
        let states = self.system.law.states();
        self.system.law.start(&mut y[LAW..LAW + states]);
        y
    }

    /// The round trip with `q` packets in the queue [s].
    pub(crate) fn round_trip(&self, t: f64, q: f64) -> f64 {
        let s = self.system;
        match s.equations {
            Equations::EndToEnd => s.round_trip + q.max(0.0) / s.capacity.at(t).max(f64::MIN_POSITIVE),
            _ => s.round_trip,
        }
    }

    /// Rates at the mark point at `t` with the variables `y`.
    pub(crate) fn rates(&self, t: f64, y: &[f64; N]) -> Rates {
        let s = self.system;
        let senders = match s.equations {
            Equations::EndToEnd => s.connections * y[SENDERS] / self.round_trip(t, y[QUEUE]),
            Equations::Gateway | Equations::NewConnections => s.load_ratio.at(t).0 * y[SENDERS],
            Equations::SingleQueue => y[SENDERS],
            Equations::Timeouts => {
                let rate = self.population.map_or(0.0, |population| population.rate(&y[VARIABLES..]));
                s.load_ratio.at(t).0 * s.connections * rate
            }
        };
        let offered = senders.max(0.0) + s.background;
        let load = offered * s.packets_per_segment;
        let arrivals = Arrivals { q: y[QUEUE].max(0.0), load, capacity: s.capacity.at(t) };
        let p = s.law.mark(&y[LAW..LAW + s.law.states()], &arrivals);
        let accepted = if s.drops { load * (1.0 - p) } else { load };
        Rates { offered, load, p, accepted }
    }

    /// How the watched queue is served.
    pub(crate) fn service(&self) -> Service {
        if self.system.equations == Equations::SingleQueue { Service::Mm1 } else { Service::Full }
    }

    /// How fast the queue `q` grows, and how much it loses, with `inflow` [packets/s].
    fn queue(&self, t: f64, q: f64, inflow: f64) -> (f64, f64) {
        let s = self.system;
        let service = self.service();
        let free = service.change(q, inflow, s.capacity.at(t), self.grain);
        let dq = free.min(((s.limit - q) / self.grain).max(-inflow));
        (dq, free - dq)
    }

    /// How long after a mark the senders hear of it, unless the equations themselves say so [s].
    fn feedback(&self) -> f64 {
        let s = self.system;
        if s.feedback == Feedback::RoundTrip && s.equations != Equations::EndToEnd {
            s.round_trip
        } else {
            0.0
        }
    }

    /// The share of marks that the senders hear of now, and `p λ λ` of their decrease, with the rates of now, what is lost
    /// of them and the senders' rate, and the variables `then`, when what they hear of was sent.
    fn marks(&self, t: f64, (now, lost, senders): (&Rates, f64, f64), then: &[f64; N]) -> (f64, f64) {
        let s = self.system;
        // Only what one queue loses is taken for marks: where there is a PEP, it is lost behind that.
        let losses = s.equations == Equations::SingleQueue;
        let late = self.feedback();
        if late == 0.0 {
            let p = if losses { heard(now.p, lost, now.accepted) } else { now.p };
            return (p, p * senders * senders);
        }
        let rates = self.rates(t - late, then);
        let mut p = rates.p;
        if losses {
            p = heard(p, self.queue(t - late, then[QUEUE].max(0.0), rates.accepted).1, rates.accepted);
        }
        (p, p * senders * then[SENDERS].max(0.0))
    }

    /// How many connections there are at `t`, and how fast they become more [1/s].
    fn connections(&self, t: f64) -> (f64, f64) {
        let s = self.system;
        if s.equations != Equations::SingleQueue {
            return (s.connections, 0.0);
        }
        s.ramps.iter().fold((0.0, 0.0), |(m, dm), (count, ramp)| {
            let (now, growth) = ramp.map_or((*count, 0.0), |ramp| started(&ramp, *count, t));
            (m + now, dm + growth)
        })
    }
}

/// How many of `count` sessions have started by `t`, and how fast more do [1/s].
fn started(ramp: &Ramp, count: f64, t: f64) -> (f64, f64) {
    let (over, pause) = (ramp.over.as_secs_f64(), ramp.pause.as_secs_f64());
    let turn = over + pause;
    if turn <= 0.0 {
        return (count, 0.0);
    }
    let done = (t / turn).floor();
    let within = t - done * turn;
    let step = f64::from(ramp.sessions);
    let now = step * (done + if over > 0.0 { (within / over).min(1.0) } else { 1.0 });
    if now >= count { (count, 0.0) } else { (now, if within < over { step / over } else { 0.0 }) }
}

impl<const N: usize> Delayed<N, LAGS> for Fluid<'_, N> {
    fn lags(&self, t: f64, y: &[f64; N]) -> [f64; LAGS] {
        let first = match self.system.equations {
            Equations::Gateway | Equations::NewConnections | Equations::Timeouts => {
                self.system.pep_delay.at(t).0.max(0.0)
            }
            Equations::EndToEnd => self.round_trip(t, y[QUEUE]),
            Equations::SingleQueue => 0.0,
        };
        [first, self.feedback()]
    }

    fn derive(&self, t: f64, y: &[f64; N], past: &[[f64; N]; LAGS]) -> [f64; N] {
        let s = self.system;
        let before = t - self.lags(t, y)[0];
        let now = self.rates(t, y);
        let then = self.rates(before, &past[0]);
        let q = y[QUEUE].max(0.0);
        let inflow = match s.equations {
            Equations::Gateway | Equations::NewConnections | Equations::Timeouts => then.accepted,
            Equations::SingleQueue | Equations::EndToEnd => now.accepted,
        };
        let (dq, lost) = self.queue(t, q, inflow);
        let output = inflow - lost - dq;
        let mut dy = [0.0; N];
        let (m, dm) = self.connections(t);
        let r = s.round_trip;
        let cut = 1.0 - s.decrease;
        let senders = y[SENDERS].max(0.0);
        let (p, decreases) = self.marks(t, (&now, lost, senders), &past[1]);
        let change = match s.equations {
            Equations::Timeouts => {
                if let Some(population) = &self.population {
                    population.derive(&y[VARIABLES..], p, &mut dy[VARIABLES..]);
                }
                0.0
            }
            Equations::Gateway => (1.0 - p) * m / (r * r) - cut * decreases / m,
            Equations::NewConnections => {
                let (share, growth) = s.new_connections.as_ref().map_or((0.0, 0.0), |v| v.at(t));
                let old = (1.0 - share).max(0.0) * m;
                let burst = growth * m * s.window / r;
                let decrease = if old > 0.0 { cut * decreases / old } else { 0.0 };
                (1.0 - p) * old / (r * r) - decrease + burst
            }
            Equations::SingleQueue => {
                let aimd = if m > 0.0 { (1.0 - p) * m / (r * r) - cut * decreases / m } else { 0.0 };
                aimd + (dm + s.replaced * m) * s.initial_window / r - s.replaced * senders
            }
            Equations::EndToEnd => {
                let (window, window_then) = (senders, past[0][SENDERS].max(0.0));
                let lost_then = self.queue(before, past[0][QUEUE].max(0.0), then.accepted).1;
                let p = heard(then.p, lost_then, then.accepted);
                let round_trip_then = self.round_trip(before, past[0][QUEUE]);
                let change = 1.0 / self.round_trip(t, q) - cut * window * window_then * p / round_trip_then;
                change.min((s.window - window) / self.grain)
            }
        };
        dy[SENDERS] = change.max(-senders / self.grain);
        dy[QUEUE] = dq;
        dy[OFFERED] = now.offered;
        dy[MARKED] = now.offered * now.p;
        dy[SENT] = output;
        dy[LOST] = lost;
        let service = if s.equations == Equations::SingleQueue { Service::Md1 } else { Service::Full };
        let seen = Inputs {
            q,
            dq,
            offered: now.offered,
            load: now.load,
            accepted: now.accepted,
            capacity: s.capacity.at(t),
            output,
            service,
            unit: s.unit,
            grain: self.grain,
        };
        let states = s.law.states();
        s.law.derivatives(&y[LAW..LAW + states], now.p, &seen, &mut dy[LAW..LAW + states]);
        dy
    }

    fn confine(&self, y: &mut [f64; N]) {
        y[SENDERS] = y[SENDERS].max(0.0);
        y[QUEUE] = y[QUEUE].clamp(0.0, self.system.limit);
    }
}

/// The share of what is sent that the senders hear a mark or a loss of.
fn heard(p: f64, lost: f64, accepted: f64) -> f64 {
    if lost > 0.0 && accepted > 0.0 { 1.0 - (1.0 - p) * (1.0 - (lost / accepted).min(1.0)) } else { p }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::tests::{law, plain};

    /// 100 connections with a round trip of 0.1 s under RED from 0 to 100 packets, `max_p` 1: now 200 packets/s and an
    /// average of 20, a round trip ago 400 packets/s and 50, so p is 0.2 and was 0.5. At once: 0.8 100 / 0.01 - 0.5 0.2
    /// 200² / 100 = 7960; heard of a round trip later: 0.5 100 / 0.01 - 0.5 0.5 200 400 / 100 = 4800.
    #[test]
    fn senders_hear_of_marks_when_told() {
        let given = [("min_th", 0.0), ("max_th", 100.0), ("max_p", 1.0), ("w_q", 0.01)];
        let mut system = plain(Equations::Gateway, law("red", 1000.0, &given), 100.0, 0.1, 1000.0);
        for (feedback, change) in [(Feedback::None, 7960.0), (Feedback::RoundTrip, 4800.0)] {
            system.feedback = feedback;
            let fluid = Fluid::<VARIABLES>::new(&system);
            let (mut now, mut then) = ([0.0; VARIABLES], [0.0; VARIABLES]);
            (now[SENDERS], now[LAW]) = (200.0, 20.0);
            (then[SENDERS], then[LAW]) = (400.0, 50.0);
            assert!((fluid.derive(0.0, &now, &[now, then])[SENDERS] - change).abs() < 1e-9, "{feedback:?}");
        }
    }
}
