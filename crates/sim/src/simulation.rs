//! A run that its caller advances in steps, looks into, and may change in between.

use bentpipe_scenario::Scenario;
use bentpipe_units::{Duration, Instant};

use crate::engine::Engine;
use crate::record::{NameList, Series};
use crate::{Drops, Error, MakeAqm, Position, Results, build, results};

/// A run in progress, whose time its caller advances.
///
/// Without changes it takes the same course as [`run`](crate::run), whatever the steps.
pub struct Simulation {
    engine: Engine,
    scenario: Scenario,
    seed: u64,
    end: Instant,
}

impl Simulation {
    /// The run of a scenario with one seed, at time zero; `make_aqm` makes the AQM of the subject's queue.
    ///
    /// # Errors
    /// A scenario that is too large, or whose subject needs an AQM from `make_aqm`, without one.
    pub fn new(scenario: &Scenario, seed: u64, make_aqm: Option<MakeAqm<'_>>) -> Result<Self, Error> {
        if let Some(spec) =
            scenario.subject_aqm().filter(|spec| make_aqm.is_none() && !spec.outside.is_empty())
        {
            return Err(Error::Unsupported(format!(
                "the AQM {} is made outside, and was not given",
                spec.label
            )));
        }
        let mut engine = build::build(scenario, seed, make_aqm).map_err(Error::Unsupported)?;
        engine.record.recorder.record_goodput();
        Ok(Self {
            engine,
            scenario: scenario.clone(),
            seed,
            end: Instant::ZERO + scenario.run.warmup + scenario.run.duration,
        })
    }

    /// Time simulated so far.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.engine.clock.now()
    }

    /// End of the run.
    #[must_use]
    pub fn end(&self) -> Instant {
        self.end
    }

    /// Scenario as it is now, changes included.
    #[must_use]
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// Handles all events up to `to`, or to the end of the run if that is earlier.
    ///
    /// # Errors
    /// A run that has grown beyond a limit.
    pub fn advance(&mut self, to: Instant) -> Result<(), Error> {
        self.advance_while(to, || true)
    }

    /// As [`advance`](Self::advance), until `proceed`, which is called every few thousand events, returns false.
    ///
    /// # Errors
    /// A run that has grown beyond a limit.
    pub fn advance_while(&mut self, to: Instant, mut proceed: impl FnMut() -> bool) -> Result<(), Error> {
        self.engine.run_until(to.min(self.end).max(self.now()), |_| proceed());
        self.check_fault()
    }

    /// Handles the events up to the next packet that arrives at the subject, leaves it or is dropped there. Returns false at
    /// the end of the run.
    ///
    /// # Errors
    /// A run that has grown beyond a limit.
    pub fn step(&mut self) -> Result<bool, Error> {
        let stepped = self.engine.step(self.end);
        self.check_fault()?;
        Ok(stepped)
    }

    fn check_fault(&self) -> Result<(), Error> {
        self.engine.fault.clone().map_or(Ok(()), |why| Err(Error::Unsupported(why)))
    }

    /// Continues as `scenario` says, which has the same parts; returns the keys that differ.
    ///
    /// Rates, delays, AQMs, the number of users and what they do may change. A default that follows from a changed value stays
    /// as it was. An AQM whose parameters change keeps its state.
    ///
    /// # Errors
    /// A key that cannot change during a run; then nothing is changed.
    pub fn change(&mut self, scenario: &Scenario) -> Result<Vec<String>, String> {
        let keys = self.engine.change(&self.scenario, scenario, self.seed)?;
        self.scenario = scenario.clone();
        Ok(keys)
    }

    // ----- records -------------------------------------------------------------------------------------------

    /// The series so far; the first is the time since the measurement began.
    #[must_use]
    pub fn series(&self) -> &[Series] {
        self.engine.record.recorder.series()
    }

    /// Names of the classes of traffic.
    #[must_use]
    pub fn classes(&self) -> Vec<&str> {
        self.scenario.classes()
    }

    /// Goodput of each class in the interval before each sample [bit/s].
    pub fn goodput(&self) -> impl Iterator<Item = &[f64]> {
        self.engine.record.recorder.goodput()
    }

    /// Packets dropped or lost so far during the measurement.
    #[must_use]
    pub fn drops(&self) -> &Drops {
        self.engine.record.recorder.drops()
    }

    /// Names of the places, to which [`Drops::place`] refers.
    #[must_use]
    pub fn places(&self) -> &NameList {
        self.engine.record.recorder.place_names()
    }

    /// Names of the directions of links, to which [`Position`] refers.
    pub fn links(&self) -> impl Iterator<Item = &str> {
        self.engine.record.recorder.link_names()
    }

    /// Position of each packet in flight.
    #[must_use]
    pub fn positions(&self) -> Vec<Position> {
        self.engine.positions()
    }

    /// Begin and end of the page that took longest to load, so far.
    #[must_use]
    pub fn slowest_page(&self) -> Option<(Instant, Instant)> {
        self.engine.record.recorder.slowest_page()
    }

    /// The results as if the run ended now; viewings in progress are left out.
    #[must_use]
    pub fn results(&self) -> Results {
        let mut recorder = self.engine.record.recorder.clone();
        recorder.finish(self.now(), self.engine.parts());
        let names = self.engine.apps.traffic.iter().map(|t| t.name.clone()).collect();
        let trace = self.engine.record.tracer.rows.clone();
        let counted = (self.engine.pep_link_counters(), self.engine.clock.scheduled());
        results(recorder, counted, names, trace, self.now())
    }

    /// Time since the measurement began, at most until the end of the run.
    #[must_use]
    pub fn measured(&self) -> Duration {
        self.now().since(self.engine.record.recorder.begin().min(self.now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_beyond_a_limit_ends_with_an_error_however_it_is_advanced() {
        let scenario =
            Scenario::load("../../scenarios/small-gateway.toml", &[]).unwrap_or_else(|e| panic!("{e}"));
        let of_step = |simulation: &mut Simulation| simulation.step().map(|_| ());
        let of_advance = |simulation: &mut Simulation| simulation.advance(Instant::from_nanos(1));
        for (name, advance) in [("step", of_step as fn(&mut Simulation) -> _), ("advance", of_advance)] {
            let mut simulation = Simulation::new(&scenario, 1, None).unwrap_or_else(|e| panic!("{e}"));
            simulation.engine.fault = Some("too large".to_owned());
            assert!(
                matches!(advance(&mut simulation), Err(Error::Unsupported(why)) if why == "too large"),
                "{name}"
            );
        }
    }
}
