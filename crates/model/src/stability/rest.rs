//! Operating point: equilibrium of all variables of the fluid equations.
//!
//! In equilibrium the AQM marks a share p, the senders have the rate that follows from p, and the accepted rate equals the
//! service rate: one equation in which p and the senders' rate are monotonic, so that bisection finds the solution, or the jump
//! that prevents one. The senders' rate follows from the equations, also by bisection.
//!
//! A fluid model that depends on arrivals, such as AVQRED's, does not determine the real queue: if the virtual queue is served at
//! the link's rate, the real queue is stationary at any length. Both start empty and see the same arrivals, one of them after the
//! PEP's delay, so the real queue is as long as the virtual one. If the virtual queue is served at a lower rate, the real queue is
//! empty.

use std::sync::Arc;

use bentpipe_queue::fluid::{
    Arrivals, Equilibrium, FluidConfig, FluidModel, FluidVariant, Inputs, MAX_STATES, Service,
};
use bentpipe_queue::registry::AQMS;
use bentpipe_queue::{Link, Values};
use bentpipe_scenario::Equations;
use bentpipe_units::Rate;

use crate::capacity::Capacity;
use crate::error::{Error, wrong};
use crate::fluid::{AQM, Fluid, LAGS, QUEUE, SENDERS, VARIABLES};
use crate::fourier::Series;
use crate::solve::Delayed;
use crate::system::{System, name};

/// A fluid model in an opened loop: the share of marks is an additional, constant variable.
struct Open(Arc<dyn FluidModel>);

impl FluidModel for Open {
    fn states(&self) -> usize {
        self.0.states() + 1
    }

    fn mark(&self, x: &[f64], _arrivals: &Arrivals) -> f64 {
        x[self.0.states()]
    }

    fn derivatives(&self, x: &[f64], p: f64, seen: &Inputs, dx: &mut [f64]) {
        let n = self.0.states();
        self.0.derivatives(&x[..n], p, seen, &mut dx[..n]);
        dx[n] = 0.0;
    }

    fn equilibrium(&self, share: f64, capacity: f64, service: Service, x: &mut [f64]) -> Option<Equilibrium> {
        let n = self.0.states();
        let rest = self.0.equilibrium(share, capacity, service, &mut x[..n])?;
        let q = if let Equilibrium::Queue(q) = rest { q } else { 0.0 };
        x[n] = self.0.mark(&x[..n], &Arrivals { q, load: capacity, capacity });
        Some(rest)
    }

    fn probe(&self, x: &[f64], out: &mut dyn FnMut(&'static str, f64)) {
        self.0.probe(x, out);
    }
}

/// An operating point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OperatingPoint {
    /// Share of marked packets.
    pub p: f64,
    /// Watched queue [packets].
    pub queue: f64,
    /// Offered load at the mark point, datagrams included [packets/s].
    pub offered: f64,
    /// Mean window of a sender [segments].
    pub window: f64,
    /// Senders' round-trip time, with queueing delay [s].
    pub round_trip: f64,
}

/// A system at its operating point, with the loop opened at the marks.
pub(crate) struct AtRest {
    pub system: System,
    /// Number of states of the AQM's fluid model; the share of marks is the variable after them.
    pub states: usize,
    pub y: [f64; VARIABLES],
    pub point: OperatingPoint,
    /// Fluid model of the AQM.
    pub aqm: Arc<dyn FluidModel>,
}

/// Tolerance of a balance, relative to the capacity.
const EXACT: f64 = 1e-6;

impl AtRest {
    /// Finds the operating point of `system`, with the means of time-varying parameters.
    ///
    /// # Errors
    /// [`Error::Scenario`] without an operating point.
    pub fn of(mut system: System) -> Result<Self, Error> {
        if matches!(system.equations, Equations::Timeouts | Equations::Padhye) {
            return wrong(format!(
                "model.equations: found {}, whose connections have several states; allowed for an operating point: \
                 gateway, new_connections, single_queue, end_to_end",
                name(system.equations)
            ));
        }
        let aqm: Arc<dyn FluidModel> = Arc::from(system.aqm);
        let limit = system.limit;
        let states = aqm.states();
        system.aqm = Box::new(Open(aqm.clone()));
        // No overflow in equilibrium; the limit is checked below.
        system.limit = f64::INFINITY;
        system.ramps = vec![(system.connections, None)];
        system.pep_delay = Series::constant(system.pep_delay.mean().max(0.0));
        system.load_ratio = Series::constant(system.load_ratio.mean());
        system.new_connections = system.new_connections.map(|series| Series::constant(series.mean()));
        system.capacity = Capacity::Fixed(system.capacity.mean());
        let mut found = Self {
            system,
            states,
            y: [0.0; VARIABLES],
            point: OperatingPoint { p: 0.0, queue: 0.0, offered: 0.0, window: 0.0, round_trip: 0.0 },
            aqm,
        };
        found.search(limit)?;
        Ok(found)
    }

    /// Returns the variable that holds the share of marks.
    pub const fn cut(&self) -> usize {
        AQM + self.states
    }

    fn mu(&self) -> f64 {
        self.system.capacity.at(0.0)
    }

    fn search(&mut self, limit: f64) -> Result<(), Error> {
        if self.balance(0.5).is_none() {
            return wrong(format!(
                "aqm: found an algorithm that marks nothing, switches, or has no known equilibrium; allowed for an \
                 operating point: {}",
                with_rest().join(", ")
            ));
        }
        let excess = |of: &mut Self, share: f64| of.balance(share).unwrap_or(f64::NAN);
        let mu = self.mu();
        let s = &self.system;
        let senders = format!("{} connections with a round trip of {} s", s.connections, s.round_trip);
        if excess(self, 0.0) < 0.0 {
            let rate = self.offered();
            return wrong(format!(
                "model: found no operating point: unmarked, {senders} send {rate:.4} packets/s, less than the {mu:.4} \
                 that keep the queue at rest; allowed: more connections, longer windows or a slower link"
            ));
        }
        let (mut low, mut high) = (0.0, 1.0);
        if excess(self, high) > 0.0 {
            let rate = self.offered();
            return wrong(format!(
                "model: found no operating point: all marked, {senders} still send {rate:.4} packets/s, more than the \
                 {mu:.4} that keep the queue at rest; allowed: fewer connections, or a faster link"
            ));
        }
        // Until the bounds are adjacent.
        for _ in 0..200 {
            let middle = 0.5 * (low + high);
            if excess(self, middle) > 0.0 { low = middle } else { high = middle }
        }
        let above = excess(self, high);
        if above.abs() > EXACT * mu {
            let p_above = self.y[self.cut()];
            excess(self, low);
            let p_below = self.y[self.cut()];
            let p = self.balanced_by(p_below, p_above);
            return wrong(format!(
                "aqm: found no operating point: {senders} and the link balance where a share of {p:.6} is marked, and \
                 the marking function jumps over it, from {p_below:.6} to {p_above:.6} at {:.4} packets; allowed: \
                 parameters that mark as much below the step, such as a greater max_p or gentle",
                self.y[QUEUE].max(self.y[AQM])
            ));
        }
        self.finish(limit)
    }

    /// Sets the equilibrium of the AQM at `share`. Returns the accepted minus the served rate [packets/s].
    fn balance(&mut self, share: f64) -> Option<f64> {
        let fluid = Fluid::new(&self.system);
        let (mu, service) = (self.system.capacity.at(0.0), fluid.service());
        let mut x = [0.0; MAX_STATES + 1];
        let rest = self.system.aqm.equilibrium(share, mu, service, &mut x[..=self.states])?;
        let mut y = [0.0; VARIABLES];
        y[AQM..=AQM + self.states].copy_from_slice(&x[..=self.states]);
        let served = match rest {
            Equilibrium::Queue(q) => {
                y[QUEUE] = q;
                mu * service.busy(q)
            }
            Equilibrium::Virtual { level, rate } => {
                let virtually = if service == Service::Full { Service::Full } else { Service::Md1 };
                let served = rate * virtually.busy(level);
                y[QUEUE] = match service {
                    Service::Mm1 | Service::Md1 => {
                        let load = served / mu;
                        if load < 1.0 { load / (1.0 - load) } else { f64::INFINITY }
                    }
                    Service::Full if rate < mu * (1.0 - EXACT) => 0.0,
                    Service::Full => level,
                };
                served
            }
        };
        y[SENDERS] = senders(&fluid, &y);
        let accepted = fluid.rates(0.0, &y).accepted;
        self.y = y;
        Some(accepted - served)
    }

    /// Returns the offered load in the state set by [`Self::balance`] [packets/s].
    fn offered(&self) -> f64 {
        Fluid::new(&self.system).rates(0.0, &self.y).offered
    }

    /// Returns the share of marks between `low` and `high` that balances, in the state set by [`Self::balance`].
    fn balanced_by(&self, mut low: f64, mut high: f64) -> f64 {
        let fluid = Fluid::new(&self.system);
        let mut y = self.y;
        for _ in 0..60 {
            y[self.cut()] = 0.5 * (low + high);
            y[SENDERS] = senders(&fluid, &y);
            let more = fluid.rates(0.0, &y).accepted > self.mu() * fluid.service().busy(y[QUEUE]);
            if more { low = y[self.cut()] } else { high = y[self.cut()] }
        }
        0.5 * (low + high)
    }

    /// Checks that the result is finite, within bounds and stationary.
    fn finish(&mut self, limit: f64) -> Result<(), Error> {
        let fluid = Fluid::new(&self.system);
        let (y, q) = (&self.y, self.y[QUEUE]);
        if q >= limit {
            return wrong(format!(
                "queue.limit: found {limit:.4} packets, and no operating point: the queue at rest would hold {q:.4}; \
                 allowed: more than that"
            ));
        }
        let rates = fluid.rates(0.0, y);
        // Beyond the capacity, the real queue grows without bound behind the virtual one.
        let over = rates.accepted / self.mu();
        if over > 1.0 + 1e-5 {
            return wrong(format!(
                "aqm: found no operating point: the AQM accepts {over:.4} times the capacity of the link, and the \
                 queue grows without bound; allowed: a virtual capacity up to the link's"
            ));
        }
        let dy = fluid.derive(0.0, y, &[*y; LAGS]);
        let moving = (0..=self.cut()).filter(|i| matches!(*i, SENDERS | QUEUE) || *i >= AQM);
        for i in moving {
            // It changes by less than 0.1 % per round trip.
            let moved = dy[i].abs() * self.system.round_trip;
            if !y[i].is_finite() || !dy[i].is_finite() || moved > 1e-3 * y[i].abs().max(1e-3) {
                return wrong(format!(
                    "model: found no operating point: variable {i} is {} and changes by {}/s; allowed: parameters under \
                     which the equations come to rest",
                    y[i], dy[i]
                ));
            }
        }
        let s = &self.system;
        let round_trip = fluid.round_trip(0.0, q);
        let window = match s.equations {
            Equations::EndToEnd => y[SENDERS],
            _ => y[SENDERS] * round_trip / s.connections,
        };
        self.point = OperatingPoint { p: rates.p, queue: q, offered: rates.offered, window, round_trip };
        Ok(())
    }
}

/// Returns the equilibrium of the senders' variable, given the other variables of `y`.
fn senders(fluid: &Fluid<'_, VARIABLES>, y: &[f64; VARIABLES]) -> f64 {
    let mut y = *y;
    let mut grows = |x: f64| {
        y[SENDERS] = x;
        fluid.derive(0.0, &y, &[y; LAGS])[SENDERS] > 0.0
    };
    let (mut low, mut high) = (0.0, 1.0);
    while grows(high) {
        low = high;
        high *= 4.0;
        if high > 1e15 {
            return high;
        }
    }
    for _ in 0..80 {
        let middle = 0.5 * (low + high);
        if grows(middle) { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

/// Names of the algorithms whose fluid models have an equilibrium.
fn with_rest() -> Vec<&'static str> {
    let link = Link { capacity: Rate::from_bps(8_000_000), mean_packet: 1000.0 };
    let says = |algorithm: &&bentpipe_queue::descriptor::Algorithm| {
        let values = Values::resolve(algorithm.params, &link, &|_| None).ok()?;
        let given = FluidConfig { packet: link.mean_packet, limit: 1000.0, variant: FluidVariant::Actual };
        let model = algorithm.fluid?(&values, &given).ok()?;
        let mut x = [0.0; MAX_STATES];
        model.equilibrium(0.5, 1000.0, Service::Full, &mut x[..model.states()])
    };
    AQMS.iter().filter(|algorithm| says(algorithm).is_some()).map(|algorithm| algorithm.name).collect()
}
