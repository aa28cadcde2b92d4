//! A simulation that its caller advances in steps.

use std::sync::Arc;

use arrow_array::{BooleanArray, Float32Array, Float64Array, Int32Array, UInt8Array, UInt32Array};
use bentpipe_sim as sim;
use bentpipe_units::{Duration, Instant};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::{ScenarioError, SimulationError, simulation_error};
use crate::python_aqm::{Alarm, PyAqm};
use crate::run::{Progress, Run};
use crate::scenario::Scenario;
use crate::tables::{self, Columns, Table, column, names};

/// A run in progress, whose time its caller advances; it belongs to the thread that made it.
#[pyclass(unsendable, module = "bentpipe._core")]
pub struct Simulation {
    inner: sim::Simulation,
    /// Faults of an AQM written in Python.
    alarm: Arc<Alarm>,
    started: cpu_time::ThreadTime,
}

#[pymethods]
impl Simulation {
    /// The run of a scenario with one seed, at time zero.
    #[new]
    fn new(scenario: &Scenario, seed: u64) -> PyResult<Self> {
        let alarm = Arc::new(Alarm::new(Progress::default().shared()));
        let mut make = scenario.python_aqm.as_ref().map(|aqm| || PyAqm::make(&aqm.algorithm, &alarm));
        let make = make.as_mut().map(|make| make as sim::MakeAqm<'_>);
        let inner = sim::Simulation::new(&scenario.inner, seed, make).map_err(simulation_error)?;
        Ok(Self { inner, alarm, started: cpu_time::ThreadTime::now() })
    }

    /// Time simulated so far [s].
    #[getter]
    fn now(&self) -> f64 {
        self.inner.now().as_secs_f64()
    }

    /// End of the run [s].
    #[getter]
    fn end(&self) -> f64 {
        self.inner.end().as_secs_f64()
    }

    /// Names of the classes of traffic.
    #[getter]
    fn classes(&self) -> Vec<&str> {
        self.inner.classes()
    }

    /// Names of the directions of links, to which `packets` refers.
    #[getter]
    fn links(&self) -> Vec<&str> {
        self.inner.links().collect()
    }

    /// Names of the series, the time first.
    #[getter]
    fn series_names(&self) -> Vec<&str> {
        self.inner.series().iter().map(|series| series.name.as_str()).collect()
    }

    /// Handles all events up to `to` [s], or to the end of the run if that is earlier. A fault of an AQM written in Python ends
    /// the run: later calls raise it again.
    fn advance(&mut self, py: Python<'_>, to: f64) -> PyResult<()> {
        if !(to.is_finite() && to >= 0.0) {
            return Err(PyValueError::new_err(format!("advance({to}): allowed: a time of at least 0 s")));
        }
        self.check(py)?;
        let to = Instant::ZERO + Duration::from_secs_f64(to);
        let advanced = self.inner.advance_while(to, || !self.alarm.rang());
        self.check(py)?;
        advanced.map_err(simulation_error)
    }

    /// Handles the events up to the next packet that arrives at the subject, leaves it or is dropped there; false at the end of
    /// the run.
    fn step(&mut self, py: Python<'_>) -> PyResult<bool> {
        self.check(py)?;
        let stepped = self.inner.step();
        self.check(py)?;
        stepped.map_err(simulation_error)
    }

    /// Continues as `scenario` says; returns the keys that differ. `ScenarioError` if one cannot change during a run.
    fn change(&mut self, scenario: &Scenario) -> PyResult<Vec<String>> {
        self.inner.change(&scenario.inner).map_err(ScenarioError::new_err)
    }

    /// The samples from number `first` on, one row each, with the goodput of each class as `CLASS.goodput` [bit/s].
    fn series(&self, first: usize) -> PyResult<Table> {
        let rest = |values: &[f64]| tables::numbers(values.get(first..).unwrap_or_default().to_vec());
        let mut columns: Columns =
            self.inner.series().iter().map(|series| column(&series.name, rest(&series.values))).collect();
        for (name, goodput) in self.inner.classes().into_iter().zip(self.inner.goodput()) {
            columns.push(column(&format!("{name}.goodput"), rest(goodput)));
        }
        tables::table(columns).map_err(SimulationError::new_err)
    }

    /// The drops from number `first` on, one row each: time since the measurement began [s], place, and reason.
    fn drops(&self, first: usize) -> PyResult<Table> {
        let drops = self.inner.drops();
        let first = first.min(drops.time.len());
        let places = drops.place[first..].iter().map(|&place| place as i32).collect();
        let reasons = drops.reason[first..].iter().map(|&reason| i32::from(reason)).collect();
        let columns = vec![
            column("time", Float64Array::from(drops.time[first..].to_vec())),
            column("place", names(places, self.inner.places().iter())),
            column("reason", names(reasons, sim::REASONS)),
        ];
        tables::table(columns).map_err(SimulationError::new_err)
    }

    /// The packets in flight, one row each: number, `at` (0 on a link, 1 waiting for a link, 2 in a gateway), number of the
    /// direction of the link or of the gateway, share of the propagation delay that has passed, class (-1 without), and true if
    /// it carries payload. Of more than `most` packets every n-th is left out evenly.
    fn packets(&self, most: usize) -> PyResult<Table> {
        let all = self.inner.positions();
        let every = all.len().div_ceil(most.max(1)).max(1);
        let found: Vec<_> =
            all.iter().filter(|position| (position.packet as usize).is_multiple_of(every)).collect();
        let at = |position: &sim::Position| match position.at {
            sim::At::Link(link, share) => (0, link, share),
            sim::At::Waiting(link) => (1, link, 0.0),
            sim::At::Gateway(gateway) => (2, gateway, 0.0),
        };
        let columns = vec![
            column("packet", UInt32Array::from_iter_values(found.iter().map(|p| p.packet))),
            column("at", UInt8Array::from_iter_values(found.iter().map(|p| at(p).0))),
            column("place", UInt32Array::from_iter_values(found.iter().map(|p| at(p).1))),
            column("share", Float32Array::from_iter_values(found.iter().map(|p| at(p).2))),
            column(
                "class",
                Int32Array::from_iter_values(found.iter().map(|p| p.class.map_or(-1, |class| class as i32))),
            ),
            column("payload", found.iter().map(|p| Some(p.has_payload)).collect::<BooleanArray>()),
        ];
        tables::table(columns).map_err(SimulationError::new_err)
    }

    /// Begin and end [s] of the page that took longest to load, so far.
    fn slowest_page(&self) -> Option<(f64, f64)> {
        self.inner.slowest_page().map(|(opened, closed)| (opened.as_secs_f64(), closed.as_secs_f64()))
    }

    /// The results as if the run ended now.
    fn run(&self, py: Python<'_>) -> PyResult<Run> {
        Run::new(py, self.inner.results(), false, self.started.elapsed().as_secs_f64())
    }
}

impl Simulation {
    /// Raises what an AQM written in Python has raised.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.alarm.error(py).map_or(Ok(()), Err)
    }
}
