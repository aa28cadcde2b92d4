//! Stability analysis.
//!
//! The fluid equations are linearized at their operating point ([`OperatingPoint`]), and the loop is opened at the marks. On the
//! transfer function `L(jω)` of the open loop, Nyquist's criterion counts the unstable roots of the closed loop, and the distance
//! from -1 gives the margins of gain, phase and delay ([`Stability`]). [`stability`] analyses many points in parallel.

mod complex;
mod linear;
mod nyquist;
mod rest;
mod roots;

#[cfg(test)]
mod tests;

use std::f64::consts::TAU;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use bentpipe_scenario::{Equations, Scenario};

use crate::Error;
use crate::fourier::Series;
use crate::system::System;
use complex::Elementary as _;
use linear::Linear;
use rest::AtRest;
pub use rest::OperatingPoint;

/// Parameters that replace the scenario's; `None` keeps them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Change {
    /// m: number of long-lived connections.
    pub connections: Option<f64>,
    /// R: round-trip time without queueing delay [s].
    pub round_trip: Option<f64>,
    /// d: delay from the mark point to the watched queue [s].
    pub pep_delay: Option<f64>,
}

/// Stability of a system at its operating point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stability {
    /// Operating point.
    pub point: OperatingPoint,
    /// Number of characteristic roots of the closed loop in the right half-plane; zero if stable.
    pub unstable_roots: usize,
    /// Gain margin: factor of the loop gain at the stability limit. `None` if there is no limit.
    pub gain_margin: Option<f64>,
    /// Phase margin: additional phase lag at the stability limit, negative if unstable [degrees]. `None` if the gain is
    /// below one at all frequencies.
    pub phase_margin: Option<f64>,
    /// Delay margin: additional delay at the stability limit, the minimum over all crossovers [s].
    pub delay_margin: Option<f64>,
    /// Frequency at which the loop gain is one [rad/s].
    pub crossover: Option<f64>,
    /// Real part of the rightmost root: growth or decay rate of the dominant mode [1/s]. `None` without a loop.
    pub growth: Option<f64>,
    /// Period of the dominant mode [s]. `None` if it does not oscillate.
    pub period: Option<f64>,
    /// True if the delay of the PEP is part of the loop.
    pub pep_in_loop: bool,
}

impl Stability {
    /// Analyses a system.
    fn of(system: System) -> Result<Self, Error> {
        let equations = system.equations;
        let rest = AtRest::of(system)?;
        let loop_ = Linear::of(&rest);
        let closed = loop_.closed();
        let margins = nyquist::margins(&loop_, &closed);
        let root = roots::rightmost(&loop_, &closed);
        Ok(Self {
            point: rest.point,
            unstable_roots: margins.unstable,
            gain_margin: margins.gain,
            phase_margin: margins.phase.map(f64::to_degrees),
            delay_margin: margins.delay,
            crossover: margins.crossover,
            growth: root.map(|s| s.re),
            period: root.filter(|s| s.im > 1e-9 * s.abs()).map(|s| TAU / s.im),
            pep_in_loop: matches!(equations, Equations::Gateway | Equations::NewConnections)
                && loop_.passes(1),
        })
    }

    /// Returns true if small disturbances decay.
    #[must_use]
    pub const fn stable(&self) -> bool {
        self.unstable_roots == 0
    }
}

/// Analyses `scenario` with its subject's AQM at each of `points`, on up to `threads` threads. `seed` seeds a random
/// capacity, whose mean is used.
///
/// # Errors
/// A scenario that the equations do not cover. A point without an operating point has its own error.
pub fn stability(
    scenario: &Scenario,
    seed: u64,
    points: &[Change],
    threads: usize,
) -> Result<Vec<Result<Stability, Error>>, Error> {
    System::of(scenario, seed)?;
    Ok(at_points(&|| System::of(scenario, seed), points, threads))
}

/// As [`stability`], for systems built by `system`.
fn at_points(
    system: &(dyn Fn() -> Result<System, Error> + Sync),
    points: &[Change],
    threads: usize,
) -> Vec<Result<Stability, Error>> {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(vec![None; points.len()]);
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(change) = points.get(at) else { break };
            let one = system().and_then(|system| Stability::of(changed(system, change)?));
            if let Ok(mut found) = found.lock() {
                found[at] = Some(one);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.clamp(1, points.len().max(1)) {
            scope.spawn(work);
        }
        work();
    });
    let found = found.into_inner().unwrap_or_default();
    let missing = || Err(Error::Scenario("model: found a point that was not worked on".to_owned()));
    found.into_iter().map(|one| one.unwrap_or_else(missing)).collect()
}

/// Returns `system` with the `change`.
fn changed(mut system: System, change: &Change) -> Result<System, Error> {
    let bad = |what: &str, value: f64, allowed: &str| {
        Err(Error::Scenario(format!("{what}: found {value}; allowed: {allowed}")))
    };
    if let Some(connections) = change.connections {
        if !(connections.is_finite() && connections > 0.0) {
            return bad("connections", connections, "above 0");
        }
        system.connections = connections;
    }
    if let Some(round_trip) = change.round_trip {
        if !(round_trip.is_finite() && round_trip > 0.0) {
            return bad("round_trip", round_trip, "above 0 s");
        }
        system.round_trip = round_trip;
    }
    if let Some(delay) = change.pep_delay {
        if !(delay.is_finite() && delay >= 0.0) {
            return bad("pep_delay", delay, "from 0 s");
        }
        if !matches!(system.equations, Equations::Gateway | Equations::NewConnections) {
            return bad("pep_delay", delay, "none with equations that have no delay of a PEP");
        }
        system.pep_delay = Series::constant(delay);
    }
    Ok(system)
}
