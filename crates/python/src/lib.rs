//! Python bindings: the simulator behind the package `bentpipe`. Thin wrappers without logic of their own.

mod aqm;
mod captures;
mod tables;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bentpipe_model::stability::{Change, Stability};
use bentpipe_queue::descriptor::{Algorithm, Placement};
use bentpipe_queue::registry::{AQMS, MARKINGS, SCHEDULERS};
use bentpipe_queue::{Default, Param, Tune, Unit, Value};
use bentpipe_scenario as scenario;
use bentpipe_scenario::Subject;
use bentpipe_sim as sim;
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use serde::Serialize;
use serde_json::json;

use crate::aqm::{Alarm, PyAqm};
use crate::captures::Captures;
use crate::tables::Table;

create_exception!(
    _core,
    ScenarioError,
    PyException,
    "A scenario that cannot be read; the message says it all."
);
create_exception!(bentpipe._core, SimulationError, PyException, "A run without results that can be trusted.");
create_exception!(
    bentpipe._core,
    AlgorithmError,
    PyException,
    "An algorithm written in Python raised an exception, or broke the rules."
);
create_exception!(bentpipe._core, ModelError, PyException, "A scenario that a model cannot solve.");
create_exception!(bentpipe._core, Cancelled, PyException, "A run that was asked to stop.");
create_exception!(bentpipe._core, WatchError, PyException, "A link or a flow to look at that there is not.");

fn scenario_error(error: scenario::Error) -> PyErr {
    ScenarioError::new_err(error.to_string())
}

/// What a scenario was read from: file, text, overrides, setting, and its files' paths and digests.
type PackedScenario = (String, String, Vec<String>, Option<String>, Vec<(String, String)>);

/// A scenario, checked and complete.
#[pyclass(frozen, module = "bentpipe._core")]
struct Scenario {
    name: String,
    inner: scenario::Scenario,
}

#[pymethods]
impl Scenario {
    /// Reads a scenario file and applies overrides of the form `key.path=value`.
    #[staticmethod]
    fn load(path: &str, overrides: Vec<String>) -> PyResult<Self> {
        let inner = scenario::Scenario::load(path, &overrides).map_err(scenario_error)?;
        Ok(Self::named(path, inner))
    }

    /// Reads a scenario's text; `name` stands for the file in messages.
    #[staticmethod]
    fn parse(text: &str, name: &str, overrides: Vec<String>) -> PyResult<Self> {
        let inner = scenario::Scenario::parse(text, name, &overrides).map_err(scenario_error)?;
        Ok(Self::named(name, inner))
    }

    /// The same scenario with the subject's AQM replaced by a named setting.
    fn with_setting(&self, name: &str) -> PyResult<Self> {
        let inner = self.inner.with_setting(name).map_err(scenario_error)?;
        Ok(self.variant(inner))
    }

    /// The same scenario with each of these settings. Every override has its effect on one of them at least.
    fn with_settings(&self, names: Vec<String>) -> PyResult<Vec<Self>> {
        let all = self.inner.with_settings(&names).map_err(scenario_error)?;
        Ok(all.into_iter().map(|inner| self.variant(inner)).collect())
    }

    /// The names of all settings that can be in the subject's place, every algorithm with its defaults among them; and
    /// why others cannot.
    fn all_settings(&self) -> (Vec<String>, Vec<String>) {
        let (able, unable) = self.inner.all_settings();
        (able, unable.iter().map(ToString::to_string).collect())
    }

    /// The same scenario with the subject's queue left to an AQM written in Python, which these keys, values and notes
    /// identify. `marks_anywhere` says whether it may mark elsewhere than at the queue that it watches.
    fn with_outside(
        &self,
        label: &str,
        marks_anywhere: bool,
        keys: Vec<(String, String, String)>,
    ) -> PyResult<Self> {
        let placement = if marks_anywhere { Placement::Anywhere } else { Placement::WatchedQueue };
        let inner = self.inner.with_outside(label, placement, &keys).map_err(scenario_error)?;
        Ok(self.variant(inner))
    }

    /// Raises ScenarioError unless every override has its effect.
    fn check_overrides(&self) -> PyResult<()> {
        self.inner.all_used().map_err(scenario_error)
    }

    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// The file's text, overrides not applied.
    #[getter]
    fn text(&self) -> &str {
        self.inner.text()
    }

    /// The overrides that it was read with, as they were given.
    #[getter]
    fn overrides(&self) -> Vec<&str> {
        self.inner.overrides().collect()
    }

    #[getter]
    fn title(&self) -> &str {
        &self.inner.title
    }

    #[getter]
    fn description(&self) -> &str {
        self.inner.description.as_deref().unwrap_or_default()
    }

    #[getter]
    fn source(&self) -> &str {
        self.inner.source.as_deref().unwrap_or_default()
    }

    #[getter]
    fn seed(&self) -> u64 {
        self.inner.run.seed
    }

    #[getter]
    fn runs(&self) -> u32 {
        self.inner.run.runs
    }

    /// Measured time [s].
    #[getter]
    fn duration(&self) -> f64 {
        self.inner.run.duration.as_secs_f64()
    }

    /// Time before measuring begins [s].
    #[getter]
    fn warmup(&self) -> f64 {
        self.inner.run.warmup.as_secs_f64()
    }

    /// Time between two samples [s].
    #[getter]
    fn sample_interval(&self) -> f64 {
        self.inner.run.sample_interval.as_secs_f64()
    }

    #[getter]
    fn settings(&self) -> Vec<String> {
        self.inner.run.settings.clone()
    }

    /// The settings that there are, beside those written in Python.
    #[getter]
    fn setting_names(&self) -> Vec<&str> {
        self.inner.setting_names().collect()
    }

    #[getter]
    fn warnings(&self) -> Vec<String> {
        let unused = self.inner.unused_overrides.iter();
        let unused = unused.map(|e| format!("{e}: no effect under {}", self.inner.label()));
        self.inner.warnings.iter().cloned().chain(unused).collect()
    }

    /// What the subject's AQM is called.
    #[getter]
    fn aqm(&self) -> &str {
        self.inner.label()
    }

    /// Whether congestion is signalled behind the PEP, with packets that their senders believe delivered.
    #[getter]
    fn behind_pep(&self) -> bool {
        self.inner.signals_behind_pep()
    }

    /// Capacity of the subject's link [bit/s].
    #[getter]
    fn capacity(&self) -> f64 {
        let rate = match self.inner.subject {
            Subject::Gateway(gateway) => Some(self.inner.gateways[gateway].regulator.rate),
            Subject::Link(link) => self.inner.links[link].forward.mean_rate(),
        };
        rate.unwrap_or_default().as_bps() as f64
    }

    /// The link that metrics describe.
    #[getter]
    fn subject_link(&self) -> &str {
        let link = match self.inner.subject {
            Subject::Gateway(gateway) => self.inner.gateways[gateway].link,
            Subject::Link(link) => link,
        };
        &self.inner.links[link].name
    }

    /// Raises WatchError unless these flows can be traced and these links captured; whether there are the flows, only a
    /// run tells.
    fn check_watch(&self, trace: Vec<String>, links: Vec<String>) -> PyResult<()> {
        let watch = self.watch(&trace, links).map_err(WatchError::new_err)?;
        sim::check_watch(&self.inner, &watch).map_err(simulation_error)
    }

    /// Every key with the value in effect: dictionaries of key, value, origin and note.
    fn effective<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, self.inner.effective())
    }

    /// The printed values that the scenario carries, as dictionaries.
    fn printed<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let rows: Vec<_> = self
            .inner
            .printed
            .iter()
            .map(|p| {
                json!({"setting": p.setting, "metric": p.metric, "value": p.value, "unit": p.unit, "std": p.std,
                       "source": p.source, "calibrated": p.calibrated})
            })
            .collect();
        to_python(py, &rows)
    }

    /// How the models see the scenario: a dictionary of its table `model`, defaults filled in.
    fn models<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.inner.models)
    }

    /// All that it was read from: file, text, overrides, setting, and the paths and digests of the files that it names.
    /// Nothing where its AQM is written in Python.
    fn packed(&self) -> Option<PackedScenario> {
        let packed = self.inner.packed()?;
        let files = packed.files.into_iter().map(|(path, digest)| (path, digest.to_string())).collect();
        Some((packed.file, packed.text, packed.overrides, packed.setting, files))
    }

    /// What is in a file that the scenario names.
    fn file<'py>(&self, py: Python<'py>, path: &str) -> Option<Bound<'py, PyBytes>> {
        self.inner.file(path).map(|bytes| PyBytes::new(py, &bytes))
    }

    /// Reads a scenario again that was packed elsewhere; `files` holds what is in its files, by their paths.
    #[staticmethod]
    fn unpack(
        file: String,
        text: String,
        overrides: Vec<String>,
        setting: Option<String>,
        files: BTreeMap<String, Vec<u8>>,
    ) -> PyResult<Self> {
        let packed = scenario::Packed { file, text, overrides, setting, files: Vec::new() };
        let inner = scenario::Scenario::unpack(&packed, files).map_err(scenario_error)?;
        Ok(Self::named(&packed.file, inner))
    }

    /// All that determines a result, as JSON.
    fn canonical(&self) -> String {
        self.inner.canonical_json()
    }
}

impl Scenario {
    fn named(file: &str, inner: scenario::Scenario) -> Self {
        let stem = std::path::Path::new(file).file_stem().unwrap_or_default();
        Self { name: stem.to_string_lossy().into_owned(), inner }
    }

    fn watch(&self, trace: &[String], links: Vec<String>) -> Result<sim::Watch, String> {
        let flows =
            trace.iter().map(|text| sim::Selector::parse(text, &self.inner)).collect::<Result<_, _>>()?;
        Ok(sim::Watch { links, flows })
    }

    fn variant(&self, inner: scenario::Scenario) -> Self {
        Self { name: self.name.clone(), inner }
    }
}

/// Hands over lists and dictionaries, by way of JSON.
fn to_python<'py, T: Serialize + ?Sized>(py: Python<'py>, value: &T) -> PyResult<Bound<'py, PyAny>> {
    let text = serde_json::to_string(value).map_err(|e| SimulationError::new_err(e.to_string()))?;
    py.import("json")?.call_method1("loads", (text,))
}

/// How far a run is.
#[pyclass(frozen, module = "bentpipe._core")]
#[derive(Default)]
struct Progress(Arc<sim::Progress>);

#[pymethods]
impl Progress {
    #[new]
    fn new() -> Self {
        Self(Arc::default())
    }

    /// The share of the simulated time that is done, 0 to 1.
    fn fraction(&self) -> f64 {
        self.0.fraction()
    }

    /// Asks the run to stop.
    fn cancel(&self) {
        self.0.cancel();
    }
}

/// What a run has found.
#[pyclass(frozen, module = "bentpipe._core")]
struct Run {
    /// Time series: one row a sample.
    #[pyo3(get)]
    series: Py<Table>,
    /// Packets discarded while measuring: one row each.
    #[pyo3(get)]
    drops: Py<Table>,
    /// Connections: one row each.
    #[pyo3(get)]
    flows: Py<Table>,
    /// Runs of consecutive drops: how many of each length.
    #[pyo3(get)]
    drop_runs: Py<Table>,
    /// What the traced flows' senders knew: one row a change; None where nothing was to be traced.
    #[pyo3(get)]
    trace: Option<Py<Table>>,
    /// For each capture: packets written, packets left out, retransmissions among those written.
    #[pyo3(get)]
    captured: Vec<(u64, u64, u64)>,
    /// The subject's counters, by name.
    #[pyo3(get)]
    counters: Py<PyDict>,
    /// Processor time that the run took [s].
    #[pyo3(get)]
    cpu_seconds: f64,
}

fn simulation_error(error: sim::Error) -> PyErr {
    match error {
        sim::Error::Cancelled => Cancelled::new_err(error.to_string()),
        sim::Error::Unsupported(_) => ScenarioError::new_err(error.to_string()),
        sim::Error::NotFound(_) => WatchError::new_err(error.to_string()),
        sim::Error::Inconsistent(_) => SimulationError::new_err(error.to_string()),
    }
}

/// Simulates a scenario with one seed. Other Python threads go on meanwhile. Traces flows, and writes the packets on
/// links to files that must not exist: `captures` names both, `snap` and `packets` limit each file. `aqm` makes what
/// watches the subject's queue instead of the scenario's AQM: a dictionary of an algorithm's methods.
#[pyfunction]
#[pyo3(signature =
    (scenario, seed, progress, *, trace=vec![], captures=vec![], snap=None, packets=u64::MAX, aqm=None))]
#[allow(clippy::too_many_arguments)]
fn simulate(
    py: Python<'_>,
    scenario: &Scenario,
    seed: u64,
    progress: &Progress,
    trace: Vec<String>,
    captures: Vec<(String, PathBuf)>,
    snap: Option<u32>,
    packets: u64,
    aqm: Option<Py<PyAny>>,
) -> PyResult<Run> {
    let started = cpu_time::ThreadTime::now();
    let (links, paths): (Vec<_>, Vec<_>) = captures.into_iter().unzip();
    let watch = scenario.watch(&trace, links).map_err(WatchError::new_err)?;
    let alarm = Arc::new(Alarm::new(Arc::clone(&progress.0)));
    let simulate = || {
        let limits = bentpipe_capture::Limits { snap, packets };
        let mut captures = Captures::begin(&scenario.inner, &watch, paths, limits)?;
        let mut see = |observation: &sim::Observation| {
            if !captures.take(observation) {
                progress.0.cancel();
            }
        };
        let mut make = aqm.as_ref().map(|make| || PyAqm::make(make, &alarm));
        let make = make.as_mut().map(|make| make as sim::MakeAqm<'_>);
        let results = sim::run_with(&scenario.inner, seed, &progress.0, &watch, &mut see, make);
        // Where a file could not be written, that is why the run was stopped.
        let counts = captures.end()?;
        results.map(|results| (results, counts)).map_err(simulation_error)
    };
    // An algorithm in Python keeps the interpreter's lock between its calls: handing it over each time would take longer
    // than what two runs could do at once. Others get it while the algorithm runs, and when its state is recorded.
    let ran = if aqm.is_some() { simulate() } else { py.detach(simulate) };
    // Where an algorithm went wrong, that is why the run was stopped, if it had not ended.
    if let Some(error) = alarm.error(py) {
        return Err(error);
    }
    let (results, captured) = ran?;
    let cpu_seconds = started.elapsed().as_secs_f64();
    let counters = PyDict::new(py);
    for (name, value) in tables::counters(&results) {
        counters.set_item(name, value)?;
    }
    let table =
        |columns| tables::table(columns).map_err(SimulationError::new_err).and_then(|t| Py::new(py, t));
    let traced = if trace.is_empty() { None } else { Some(table(tables::trace(&results))?) };
    let captured = captured.iter().map(|c| (c.packets, c.left_out, c.retransmissions)).collect();
    Ok(Run {
        trace: traced,
        captured,
        drops: table(tables::drops(&results))?,
        flows: table(tables::flows(&results))?,
        drop_runs: table(tables::drop_runs(&results))?,
        series: table(tables::series(results.series))?,
        counters: counters.unbind(),
        cpu_seconds,
    })
}

/// Solves a scenario's fluid equations under its subject's AQM. Other Python threads go on meanwhile. Gives one row a sample,
/// in the columns of a simulation's time series.
#[pyfunction]
fn fluid(py: Python<'_>, scenario: &Scenario, seed: u64) -> PyResult<Table> {
    let solved = py.detach(|| bentpipe_model::run(&scenario.inner, seed));
    let table = solved.map_err(|e| ModelError::new_err(e.to_string()))?;
    tables::table(tables::model(table)).map_err(SimulationError::new_err)
}

/// The name of the equations that answer a scenario, and the numbers that they are given, as JSON.
#[pyfunction]
fn fluid_inputs(scenario: &Scenario, seed: u64) -> PyResult<String> {
    let (equations, found) =
        bentpipe_model::inputs(&scenario.inner, seed).map_err(|e| ModelError::new_err(e.to_string()))?;
    let rows: Vec<_> = found
        .iter()
        .map(|i| json!({"symbol": i.symbol, "what": i.what, "value": i.value, "unit": i.unit}))
        .collect();
    Ok(json!({"equations": equations, "inputs": rows}).to_string())
}

/// How far a scenario's fluid equations are from oscillation at each of `points` (connections, round trip [s] and PEP delay
/// [s], each in place of the scenario's, or none), on so many `threads`. Other Python threads go on meanwhile. Gives a
/// dictionary for each point; one without operating point has only `error`.
#[pyfunction]
fn stability<'py>(
    py: Python<'py>,
    scenario: &Scenario,
    seed: u64,
    points: Vec<(Option<f64>, Option<f64>, Option<f64>)>,
    threads: usize,
) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let points: Vec<_> = points
        .into_iter()
        .map(|(connections, round_trip, pep_delay)| Change { connections, round_trip, pep_delay })
        .collect();
    let found = py.detach(|| bentpipe_model::stability::stability(&scenario.inner, seed, &points, threads));
    let found = found.map_err(|e| ModelError::new_err(e.to_string()))?;
    let dictionary = |one: Result<Stability, bentpipe_model::Error>| {
        let dict = PyDict::new(py);
        let one = match one {
            Ok(one) => one,
            Err(e) => {
                dict.set_item("error", e.to_string())?;
                return Ok(dict);
            }
        };
        for (name, value) in [
            ("p", Some(one.point.p)),
            ("queue", Some(one.point.queue)),
            ("offered", Some(one.point.offered)),
            ("window", Some(one.point.window)),
            ("round_trip", Some(one.point.round_trip)),
            ("gain_margin", one.gain_margin),
            ("phase_margin", one.phase_margin),
            ("delay_margin", one.delay_margin),
            ("crossover", one.crossover),
            ("growth", one.growth),
            ("period", one.period),
        ] {
            dict.set_item(name, value)?;
        }
        dict.set_item("unstable_roots", one.unstable_roots)?;
        dict.set_item("pep_in_loop", one.pep_in_loop)?;
        Ok(dict)
    };
    found.into_iter().map(dictionary).collect()
}

/// Every algorithm with its parameters and presets, and every marking method, as JSON.
#[pyfunction]
fn registry() -> String {
    let aqms: Vec<_> = AQMS.iter().map(describe).collect();
    let schedulers: Vec<_> = SCHEDULERS
        .iter()
        .map(|s| {
            json!({"name": s.name, "title": s.title, "source": s.source, "signals": s.signals,
                   "params": s.params.iter().map(param).collect::<Vec<_>>()})
        })
        .collect();
    let markings: Vec<_> = MARKINGS
        .iter()
        .map(|m| {
            json!({"name": m.name, "title": m.title, "source": m.source,
                   "params": m.params.iter().map(param).collect::<Vec<_>>()})
        })
        .collect();
    json!({"aqms": aqms, "schedulers": schedulers, "markings": markings}).to_string()
}

fn describe(a: &Algorithm) -> serde_json::Value {
    let presets: Vec<_> = a
        .presets
        .iter()
        .map(|p| {
            let values = |values: &[(&str, Value)]| -> serde_json::Map<_, _> {
                values.iter().map(|(name, value)| ((*name).to_owned(), number(*value))).collect()
            };
            let marking = p.marking.map(|(m, given)| json!({"name": m.name, "values": values(given)}));
            json!({"name": p.name, "source": p.source, "values": values(p.values), "marking": marking})
        })
        .collect();
    let placement = match a.placement {
        Placement::Anywhere => "anywhere",
        Placement::WatchedQueue => "must mark at the queue that it watches",
    };
    json!({"name": a.name, "title": a.title, "source": a.source, "placement": placement, "law": a.fluid.is_some(),
           "params": a.params.iter().map(param).collect::<Vec<_>>(), "presets": presets})
}

fn param(p: &Param) -> serde_json::Value {
    let unit = match p.unit {
        Unit::One | Unit::Count | Unit::Flag | Unit::Name(_) => "",
        Unit::Packets => "packets",
        Unit::Bytes => "B",
        Unit::Seconds => "s",
        Unit::BitsPerSecond => "bit/s",
    };
    let default = match p.default {
        Default::Is(value) => number(value),
        Default::FromLink(_, how) => json!(how),
    };
    let range = match p.unit {
        Unit::Flag => "true or false".to_owned(),
        Unit::Name(names) => names.join(", "),
        _ => p.range.to_string(),
    };
    let tune = p.tune.map(|tune| match tune {
        Tune::Linear(low, high) => json!({"low": low, "high": high, "scale": "linear"}),
        Tune::Log(low, high) => json!({"low": low, "high": high, "scale": "log"}),
        Tune::Around(low, high) => json!({"low": low, "high": high, "scale": "times the default, log"}),
        Tune::Each => json!({"scale": "each"}),
    });
    json!({"name": p.name, "symbol": p.symbol, "unit": unit, "default": default, "origin": p.origin,
           "range": range, "tune": tune, "doc": p.doc})
}

fn number(value: Value) -> serde_json::Value {
    match value {
        Value::Number(x) => json!(x),
        Value::Flag(x) => json!(x),
        Value::Name(x) => json!(x),
    }
}

/// The JSON Schema of a scenario file.
#[pyfunction]
fn schema() -> String {
    scenario::json_schema()
}

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("ScenarioError", py.get_type::<ScenarioError>())?;
    module.add("SimulationError", py.get_type::<SimulationError>())?;
    module.add("ModelError", py.get_type::<ModelError>())?;
    module.add("Cancelled", py.get_type::<Cancelled>())?;
    module.add("WatchError", py.get_type::<WatchError>())?;
    module.add("AlgorithmError", py.get_type::<AlgorithmError>())?;
    module.add_class::<Scenario>()?;
    module.add_class::<Progress>()?;
    module.add_class::<Run>()?;
    module.add_class::<Table>()?;
    module.add_class::<aqm::Verdict>()?;
    module.add_class::<aqm::Spot>()?;
    module.add_class::<aqm::Packet>()?;
    module.add_class::<aqm::Cx>()?;
    module.add_class::<aqm::QueueState>()?;
    module.add_class::<aqm::Rng>()?;
    module.add_function(wrap_pyfunction!(simulate, module)?)?;
    module.add_function(wrap_pyfunction!(fluid, module)?)?;
    module.add_function(wrap_pyfunction!(fluid_inputs, module)?)?;
    module.add_function(wrap_pyfunction!(stability, module)?)?;
    module.add_function(wrap_pyfunction!(registry, module)?)?;
    module.add_function(wrap_pyfunction!(schema, module)?)
}
