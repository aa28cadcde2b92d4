//! The simulation of a scenario.

use std::path::PathBuf;
use std::sync::Arc;

use bentpipe_sim as sim;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::captures::{Captures, Logs};
use crate::errors::{SimulationError, WatchError, simulation_error};
use crate::python_aqm::{Alarm, PyAqm};
use crate::scenario::Scenario;
use crate::tables::{self, Table};

/// Progress of a run.
#[pyclass(frozen, module = "bentpipe._core")]
#[derive(Default)]
pub struct Progress(Arc<sim::Progress>);

impl Progress {
    /// The progress itself.
    pub fn shared(&self) -> Arc<sim::Progress> {
        Arc::clone(&self.0)
    }
}

#[pymethods]
impl Progress {
    #[new]
    fn new() -> Self {
        Self(Arc::default())
    }

    /// Returns the share of the simulated time that is done, 0 to 1.
    fn fraction(&self) -> f64 {
        self.0.fraction()
    }

    /// Asks the run to stop.
    fn cancel(&self) {
        self.0.cancel();
    }
}

/// Results of a run.
#[pyclass(frozen, module = "bentpipe._core")]
pub struct Run {
    /// Time series, one row per sample.
    #[pyo3(get)]
    series: Py<Table>,
    /// Packets dropped during the measurement, one row each.
    #[pyo3(get)]
    drops: Py<Table>,
    /// Connections, one row each.
    #[pyo3(get)]
    flows: Py<Table>,
    /// Runs of consecutive drops, one row per length.
    #[pyo3(get)]
    drop_runs: Py<Table>,
    /// Terminals of gateways with several, one row each; `None` if each gateway has one.
    #[pyo3(get)]
    terminals: Option<Py<Table>>,
    /// Terminals over time, one row per terminal and interval; `None` if each gateway has one.
    #[pyo3(get)]
    terminal_series: Option<Py<Table>>,
    /// Pages of users behind terminals, one row each; `None` if each gateway has one terminal.
    #[pyo3(get)]
    pages: Option<Py<Table>>,
    /// Senders' state of the traced flows, one row per change; `None` without traced flows.
    #[pyo3(get)]
    trace: Option<Py<Table>>,
    /// For each capture: packets written, packets left out, retransmissions among the packets written.
    #[pyo3(get)]
    captured: Vec<(u64, u64, u64)>,
    /// Of the logs of connections: files, files that lack events because of their limit, events, and flows left out
    /// because of theirs; `None` without logs.
    #[pyo3(get)]
    logged: Option<(u64, u64, u64, u64)>,
    /// Counters of the subject, by name.
    #[pyo3(get)]
    counters: Py<PyDict>,
    /// Processor time of the run [s].
    #[pyo3(get)]
    cpu_seconds: f64,
}

impl Run {
    /// The tables of a run without captures and logs.
    pub fn new(py: Python<'_>, results: sim::Results, is_traced: bool, cpu_seconds: f64) -> PyResult<Self> {
        let counters = PyDict::new(py);
        for (name, value) in results.counters() {
            counters.set_item(name, value)?;
        }
        let table =
            |columns| tables::table(columns).map_err(SimulationError::new_err).and_then(|t| Py::new(py, t));
        let traced = if is_traced { Some(table(tables::trace(&results))?) } else { None };
        Ok(Self {
            terminals: tables::terminals(&results).map(table).transpose()?,
            terminal_series: tables::terminal_series(&results).map(table).transpose()?,
            pages: tables::pages(&results).map(table).transpose()?,
            trace: traced,
            captured: Vec::new(),
            logged: None,
            drops: table(tables::drops(&results))?,
            flows: table(tables::flows(&results))?,
            drop_runs: table(tables::drop_runs(&results))?,
            series: table(tables::series(results.series))?,
            counters: counters.unbind(),
            cpu_seconds,
        })
    }
}

/// Simulates a scenario with one seed; other Python threads go on, unless its AQM is written in Python. Traces flows, and
/// writes the packets on links to files that must not exist: `captures` has link and file, `snap` limits the bytes of a
/// packet and `packets` the packets of a file. `qlog` logs connections: an empty folder, the flows (all if empty), and the
/// largest numbers of flows and of events of a file.
#[pyfunction]
#[pyo3(signature = (scenario, seed, progress, *, trace=vec![], captures=vec![], snap=None, packets=u64::MAX, qlog=None))]
#[allow(clippy::too_many_arguments)]
pub fn simulate(
    py: Python<'_>,
    scenario: &Scenario,
    seed: u64,
    progress: &Progress,
    trace: Vec<String>,
    captures: Vec<(String, PathBuf)>,
    snap: Option<u32>,
    packets: u64,
    qlog: Option<(PathBuf, Vec<String>, u32, u64)>,
) -> PyResult<Run> {
    let started = cpu_time::ThreadTime::now();
    let (links, paths): (Vec<_>, Vec<_>) = captures.into_iter().unzip();
    let (logs, log_limits) = match qlog {
        Some((folder, flows, connections, events)) => (Some((flows, connections)), Some((folder, events))),
        None => (None, None),
    };
    let watch = scenario.watch(&trace, links, logs).map_err(WatchError::new_err)?;
    let alarm = Arc::new(Alarm::new(Arc::clone(&progress.0)));
    let simulate = || {
        let limits = bentpipe_capture::Limits { snap, packets };
        let mut captures = Captures::begin(&scenario.inner, &watch, paths, limits)?;
        let mut logs = log_limits.map(|(folder, events)| Logs::begin(&scenario.inner, &folder, events));
        let mut see = |observation: &sim::Observation| {
            if !captures.take(observation) {
                progress.0.cancel();
            }
        };
        let mut log = |event: &sim::LogEvent| {
            if logs.as_mut().is_some_and(|logs| !logs.take(event)) {
                progress.0.cancel();
            }
        };
        let sinks = sim::Sinks { observe: &mut see, log: &mut log };
        let mut make = scenario.python_aqm.as_ref().map(|aqm| || PyAqm::make(&aqm.algorithm, &alarm));
        let make = make.as_mut().map(|make| make as sim::MakeAqm<'_>);
        let results = sim::run_with(&scenario.inner, seed, &progress.0, &watch, sinks, make);
        // A file that could not be written is the cause of the stop.
        let counts = captures.end()?;
        let logged = logs.map(Logs::end).transpose()?;
        let (results, left_out) = results.map_err(simulation_error)?;
        Ok::<_, PyErr>((
            results,
            counts,
            logged.map(|logged| (logged.files, logged.cut, logged.events, left_out)),
        ))
    };
    // An AQM written in Python keeps the interpreter's lock between its calls: handing the lock over for each call would cost
    // more time than two concurrent runs save. Other threads get it while its methods run and at each sample.
    let ran = if scenario.python_aqm.is_some() { simulate() } else { py.detach(simulate) };
    // A fault of the AQM is the cause of the stop.
    if let Some(error) = alarm.error(py) {
        return Err(error);
    }
    let (results, captured, logged) = ran?;
    let cpu_seconds = started.elapsed().as_secs_f64();
    let captured = captured.iter().map(|c| (c.packets, c.left_out, c.retransmissions)).collect();
    Ok(Run { captured, logged, ..Run::new(py, results, !trace.is_empty(), cpu_seconds)? })
}
