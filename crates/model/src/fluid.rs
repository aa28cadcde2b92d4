//! Equations of the papers.
//!
//! All have a common part. Senders with the mean round-trip time `R` have the total rate `λ` [packets/s]. Each adds a packet to
//! its window per round trip without a mark, and a mark reduces it by the share `1 - decr`, a half for TCP:
//!
//! ```text
//! dλ/dt = (1 - p) m / R² - (1 - decr) p λ² / m
//! ```
//!
//! This is the additive increase of `m` windows `λ R / m` by `1 / R` per second each, and their decrease at every mark; each
//! receives `p λ / m` marks per second.
//!
//! **Gateway** [B07] 4.4, reconstructed from its description. The load at the mark point is `ω(t) λ(t)`; the accepted part
//! reaches the transmit queue after the PEP's delay `d(t)`: `dq/dt = ω(t-d) (1 - p(t-d)) λ(t-d) - μ`, `q >=
//! 0`. Marks take effect at once, as published: the terrestrial round trip is not a delay here.
//!
//! **New connections** [B07] 6.4, reconstructed. Marks cut advertised windows and drop nothing, so the factor `1 - p` is
//! not in the queues' equations. A share `υ(t)` of the connections is new and sends its whole `MaxRcvWin` once a round
//! trip, `n = υ m MaxRcvWin / R`; the others are `(1 - υ) m`:
//!
//! ```text
//! dλ/dt = (1 - p) (1 - υ) m / R² - (1 - decr) p λ² / ((1 - υ) m) + dn/dt
//! ```
//!
//! **Single queue** [BB] section 6, reconstructed. The queue is served as an M/M/1 queue in equilibrium with `q` packets
//! would be, `dq/dt = λ (1 - p) - μ q / (1 + q)`, virtual queues as an M/D/1 queue ([`Service`]). The throughput of the link is a
//! separate variable. `m(t)` follows the ramp of the connections; new ones, and the share `replaced` that replaces others
//! per second, start with the initial window `W_0`, and those that end take their share of the rate with them:
//!
//! ```text
//! dλ/dt = … + (dm/dt + replaced m) W_0 / R - replaced λ
//! ```
//!
//! **End to end** (V. Misra, W. Gong & D. Towsley, SIGCOMM 2000, section 3). One queue on the path, so that the round-trip time
//! is `R(q) = R + q / μ` and marks take effect after it. The variable is the mean window `W`, `λ = m W / R(q)`:
//!
//! ```text
//! dW/dt = 1 / R(q) - (1 - decr) W W(t-R) p(t-R) / R(q(t-R))
//! ```
//!
//! **Timeouts**. The gateway of 4.4 with senders most of which wait for a timeout: in place of the mean rate, the share of
//! connections in each state of TCP (see [`crate::population`]), `λ = m Σ x_i λ_i`. Marks take effect after the round trip `R`.
//!
//! **Padhye**. The gateway of 4.4, or the queue of end to end, with two kinds of connections: those in avoidance, of the mean window
//! `W`, and those that wait for a timeout (see [`crate::padhye`]).
//!
//! With feedback after a round trip (`model.feedback`), marks take effect after `R` in the other equations too, as in C. Hollot,
//! V. Misra, D. Towsley & W. Gong (INFOCOM 2001): of the rate `λ(t-R)` one round trip ago the share `p(t-R)` was marked, and each
//! mark reduces the current window. Replacing `p` and `λ²` above by `p(t-R)` and `λ λ(t-R)` does not change the equilibrium.
//!
//! In all of them a full queue drops the excess; without a PEP, the senders react to that as to a mark.

use bentpipe_queue::fluid::{Arrivals, Inputs, MAX_STATES, Service};
use bentpipe_scenario::{Equations, Feedback, Ramp};

use crate::padhye::{Losses, STAGES};
use crate::population::{MOST_WINDOW, Population, states};
use crate::solve::Delayed;
use crate::system::System;

/// Senders' rate λ [packets/s]; with the equations `end_to_end` and `padhye`, their mean window [packets].
pub(crate) const SENDERS: usize = 0;
/// Watched queue [packets].
pub(crate) const QUEUE: usize = 1;
/// Packets arrived at the mark point since the start [packets].
pub(crate) const OFFERED: usize = 2;
/// Packets marked [packets].
pub(crate) const MARKED: usize = 3;
/// Packets sent by the link [packets].
pub(crate) const SENT: usize = 4;
/// Packets lost to overflow, and datagrams dropped by marks that signal to the senders [packets].
pub(crate) const LOST: usize = 5;
/// First variable of the AQM's fluid model.
pub(crate) const AQM: usize = 6;
/// Number of variables, including a spare one for the opened loop; the states of the connections follow.
pub(crate) const VARIABLES: usize = AQM + MAX_STATES + 1;
/// Number of variables with the equations `padhye`.
pub(crate) const PADHYE: usize = VARIABLES + STAGES;
/// Number of variables for windows up to [`SMALL_WINDOW`].
pub(crate) const SMALL: usize = VARIABLES + states(SMALL_WINDOW);
/// Number of variables for windows up to [`MOST_WINDOW`].
pub(crate) const LARGE: usize = VARIABLES + states(MOST_WINDOW);
/// Maximum window of the smaller system of equations [segments].
pub(crate) const SMALL_WINDOW: usize = 16;
/// Number of delays: of the PEP (of the senders with the queue on their path), and of the feedback if different.
pub(crate) const LAGS: usize = 2;

/// Equations of a system, in `N` variables.
pub struct Fluid<'a, const N: usize> {
    /// System that the equations describe.
    pub system: &'a System,
    /// Shortest time in which a bounded variable may reach its bound [s].
    resolution: f64,
    /// States of the connections, with the equations `timeouts`.
    population: Option<Population>,
}

/// Rates at a point in time [packets/s].
pub(crate) struct Rates {
    /// Offered load at the mark point.
    pub(crate) offered: f64,
    /// Offered load in packets of the link.
    pub(crate) load: f64,
    /// Mark probability.
    pub(crate) p: f64,
    /// Accepted load in packets of the link.
    pub(crate) accepted: f64,
}

impl<'a, const N: usize> Fluid<'a, N> {
    /// Returns the equations of `system`.
    #[must_use]
    pub fn new(system: &'a System) -> Self {
        // Half a step: the Runge-Kutta method then does not overshoot a bound.
        Self { system, resolution: 0.5 * system.step, population: system.rules.map(Population::new) }
    }

    /// Returns the initial variables: no traffic, empty queues.
    #[must_use]
    pub fn start(&self) -> [f64; N] {
        let mut y = [0.0; N];
        if let Some(population) = &self.population {
            population.start(&mut y[VARIABLES..VARIABLES + population.states()]);
        }
        if matches!(self.system.equations, Equations::EndToEnd | Equations::Padhye) {
            y[SENDERS] = self.system.initial_window;
        }
        let states = self.system.aqm.states();
        self.system.aqm.start(&mut y[AQM..AQM + states]);
        y
    }

    /// Returns the round-trip time with `q` packets in the queue [s].
    pub(crate) fn round_trip(&self, t: f64, q: f64) -> f64 {
        let s = self.system;
        if s.is_on_path() {
            s.round_trip + q.max(0.0) / s.capacity.at(t).max(f64::MIN_POSITIVE)
        } else {
            s.round_trip
        }
    }

    /// Returns the rates at the mark point at `t` with the variables `y`.
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
            Equations::Padhye => {
                let round_trip = self.round_trip(t, y[QUEUE]);
                let rate = s.padhye.map_or(0.0, |of| of.rate(y[SENDERS], &y[VARIABLES..], round_trip));
                s.load_ratio.at(t).0 * s.connections * rate
            }
        };
        // Datagrams count by their bytes, as segments at the mark point and as packets on the link.
        let offered = senders.max(0.0) + s.background / s.segment;
        let load = senders.max(0.0) * s.packets_per_segment + s.background / s.packet;
        let arrivals = Arrivals { q: y[QUEUE].max(0.0), load, capacity: s.capacity.at(t) };
        let p = s.aqm.mark(&y[AQM..AQM + s.aqm.states()], &arrivals);
        let droppable = if s.drops { load } else { s.background / s.packet };
        let accepted = load - p * droppable;
        Rates { offered, load, p, accepted }
    }

    /// Returns the service model of the watched queue.
    pub(crate) fn service(&self) -> Service {
        if self.system.equations == Equations::SingleQueue { Service::Mm1 } else { Service::Full }
    }

    /// Returns the growth rate of the queue `q` and its loss rate with `inflow` [packets/s].
    fn queue(&self, t: f64, q: f64, inflow: f64) -> (f64, f64) {
        let s = self.system;
        let service = self.service();
        let free = service.change(q, inflow, s.capacity.at(t), self.resolution);
        let dq = free.min(((s.limit - q) / self.resolution).max(-inflow));
        (dq, free - dq)
    }

    /// Returns the delay of the feedback, unless it is part of the equations [s].
    fn feedback(&self) -> f64 {
        let s = self.system;
        if s.feedback == Feedback::RoundTrip && !s.is_on_path() { s.round_trip } else { 0.0 }
    }

    /// Returns the share of marks in the current feedback, and `p λ λ` of the senders' decrease, given the current
    /// rates, the current loss, the senders' rate, and the variables `then` at the time that the feedback is about.
    fn marks(&self, t: f64, (now, lost, senders): (&Rates, f64, f64), then: &[f64; N]) -> (f64, f64) {
        let s = self.system;
        // Senders react to overflow only without a PEP, which hides losses behind it.
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

    /// Returns the share of packets whose mark or loss the senders notice a round trip after `before`, and the round-trip time
    /// [s] then, given the rates and the variables `then`.
    fn heard_on_path(&self, before: f64, rates: &Rates, then: &[f64; N]) -> (f64, f64) {
        let lost = self.queue(before, then[QUEUE].max(0.0), rates.accepted).1;
        (heard(rates.p, lost, rates.accepted), self.round_trip(before, then[QUEUE]))
    }

    /// Returns the number of connections at `t`, and its growth rate [1/s].
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

/// Returns how many of `count` sessions have started by `t`, and the rate of new starts [1/s].
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
        let first = if self.system.is_on_path() {
            self.round_trip(t, y[QUEUE])
        } else if self.system.equations == Equations::SingleQueue {
            0.0
        } else {
            self.system.pep_delay.at(t).0.max(0.0)
        };
        [first, self.feedback()]
    }

    fn derive(&self, t: f64, y: &[f64; N], past: &[[f64; N]; LAGS]) -> [f64; N] {
        let s = self.system;
        let before = t - self.lags(t, y)[0];
        let now = self.rates(t, y);
        let then = self.rates(before, &past[0]);
        let q = y[QUEUE].max(0.0);
        let behind_pep = !s.is_on_path() && s.equations != Equations::SingleQueue;
        let inflow = if behind_pep { then.accepted } else { now.accepted };
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
                let (p, round_trip_then) = self.heard_on_path(before, &then, &past[0]);
                let change = 1.0 / self.round_trip(t, q) - cut * window * window_then * p / round_trip_then;
                change.min((s.window - window) / self.resolution)
            }
            Equations::Padhye => {
                let (p, rate) = if s.is_on_path() {
                    let (p, round_trip_then) = self.heard_on_path(before, &then, &past[0]);
                    (p, p * past[0][SENDERS].max(0.0) / round_trip_then)
                } else {
                    let window_then =
                        if self.feedback() == 0.0 { senders } else { past[1][SENDERS].max(0.0) };
                    (p, p * window_then / r)
                };
                let change = s.padhye.map_or(0.0, |of| {
                    let round_trip = self.round_trip(t, q);
                    let (waiting, losses) = (&y[VARIABLES..], Losses { p, rate });
                    of.derive((senders, cut), waiting, losses, round_trip, &mut dy[VARIABLES..])
                });
                change.min((s.window - senders) / self.resolution)
            }
        };
        dy[SENDERS] = change.max(-senders / self.resolution);
        dy[QUEUE] = dq;
        dy[OFFERED] = now.offered;
        dy[MARKED] = now.offered * now.p;
        dy[SENT] = output;
        // A mark drops datagrams whatever it does to the senders' packets.
        let datagrams = if s.drops { 0.0 } else { now.p * s.background / s.segment * s.packets_per_segment };
        dy[LOST] = lost + datagrams;
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
            resolution: self.resolution,
        };
        let states = s.aqm.states();
        s.aqm.derivatives(&y[AQM..AQM + states], now.p, &seen, &mut dy[AQM..AQM + states]);
        dy
    }

    fn confine(&self, y: &mut [f64; N]) {
        y[SENDERS] = y[SENDERS].max(0.0);
        y[QUEUE] = y[QUEUE].clamp(0.0, self.system.limit);
    }
}

/// Share of sent packets whose mark or loss reaches the senders.
fn heard(p: f64, lost: f64, accepted: f64) -> f64 {
    if lost > 0.0 && accepted > 0.0 { 1.0 - (1.0 - p) * (1.0 - (lost / accepted).min(1.0)) } else { p }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::tests::{aqm, plain};

    /// 100 connections with a round trip of 0.1 s under RED from 0 to 100 packets, `max_p` 1: now 200 packets/s and an
    /// average of 20, a round trip ago 400 packets/s and 50, so p is 0.2 and was 0.5. At once: 0.8 100 / 0.01 - 0.5 0.2
    /// 200² / 100 = 7960; with feedback a round trip later: 0.5 100 / 0.01 - 0.5 0.5 200 400 / 100 = 4800.
    #[test]
    fn feedback_delay_follows_the_setting() {
        let given = [("min_th", 0.0), ("max_th", 100.0), ("max_p", 1.0), ("w_q", 0.01)];
        let mut system = plain(Equations::Gateway, aqm("red", 1000.0, &given), 100.0, 0.1, 1000.0);
        for (feedback, change) in [(Feedback::None, 7960.0), (Feedback::RoundTrip, 4800.0)] {
            system.feedback = feedback;
            let fluid = Fluid::<VARIABLES>::new(&system);
            let (mut now, mut then) = ([0.0; VARIABLES], [0.0; VARIABLES]);
            (now[SENDERS], now[AQM]) = (200.0, 20.0);
            (then[SENDERS], then[AQM]) = (400.0, 50.0);
            assert!((fluid.derive(0.0, &now, &[now, then])[SENDERS] - change).abs() < 1e-9, "{feedback:?}");
        }
    }
}
