//! How far a system is from oscillation.
//!
//! The fluid equations at their operating point ([`OperatingPoint`]) are linearized and cut open where the law marks. Along
//! the loop's transfer function `L(jω)` Nyquist's criterion counts the unstable roots of the closed loop, and its distance
//! from -1 is what gain, phase and delay the loop has to spare ([`Stability`]). [`stability`] does so for many points, on
//! all cores.

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
use linear::Linear;
use rest::AtRest;
pub use rest::OperatingPoint;

/// What a point has in place of the scenario's; what is not a number stays.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Change {
    /// m, long-lived connections.
    pub connections: Option<f64>,
    /// R, without queues [s].
    pub round_trip: Option<f64>,
    /// d, from the mark point to the watched queue [s].
    pub pep_delay: Option<f64>,
}

/// How far a system at rest is from oscillation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stability {
    /// Where it rests.
    pub point: OperatingPoint,
    /// Characteristic roots of the closed loop in the right half of the plane: stable with none.
    pub unstable_roots: usize,
    /// The factor by which the loop's gain may grow before it oscillates, or, below one, must shrink before it does not.
    /// None: any.
    pub gain_margin: Option<f64>,
    /// How much more the loop may lag before it oscillates, or, below zero, lags too much [degrees]. None: the gain is below
    /// one at all frequencies.
    pub phase_margin: Option<f64>,
    /// The same as a delay, at the frequency where it is least [s].
    pub delay_margin: Option<f64>,
    /// Where the loop's gain is one [rad/s].
    pub crossover: Option<f64>,
    /// How fast what decays most slowly or grows fastest does: the real part of the rightmost root [1/s]. None: there is no
    /// loop.
    pub growth: Option<f64>,
    /// The period in which that swings [s]. None: it does not.
    pub period: Option<f64>,
    /// Whether the delay of the PEP is in the loop at all.
    pub pep_in_loop: bool,
}

impl Stability {
    /// Of a system at rest.
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

    /// Whether small disturbances decay.
    #[must_use]
    pub const fn stable(&self) -> bool {
        self.unstable_roots == 0
    }
}

/// The stability of `scenario` under its subject's AQM at each of `points`, on as many `threads`. `seed` draws what is random
/// in the capacity, of which the mean counts.
///
/// # Errors
/// Where the equations do not cover the scenario. A point without an operating point has an error of its own.
pub fn stability(
    scenario: &Scenario,
    seed: u64,
    points: &[Change],
    threads: usize,
) -> Result<Vec<Result<Stability, Error>>, Error> {
    System::of(scenario, seed)?;
    Ok(at_points(&|| System::of(scenario, seed), points, threads))
}

/// As [`stability`], with the system that `system` makes.
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

/// `system` with the `change`.
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
