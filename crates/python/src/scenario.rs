//! Scenarios, read and checked.

use std::collections::BTreeMap;

use bentpipe_queue::descriptor::Placement;
use bentpipe_scenario as scenario;
use bentpipe_scenario::{Origin, OutsideKey, Subject, WarningKind};
use bentpipe_sim as sim;
use bentpipe_units::Rate;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde::Serialize;
use serde_json::json;

use crate::errors::{SimulationError, WatchError, scenario_error, simulation_error};

/// Source of a scenario: file, text, overrides, setting, parameters of AQMs written in Python, and its files' paths and
/// digests.
type PackedScenario = (String, String, Vec<String>, Option<String>, Vec<String>, Vec<(String, String)>);

/// A scenario, checked and complete.
#[pyclass(frozen, module = "bentpipe._core")]
pub struct Scenario {
    name: String,
    pub inner: scenario::Scenario,
    /// `None` if the registry has the subject's AQM.
    pub python_aqm: Option<PythonAqm>,
}

/// An AQM written in Python in the place of the subject's AQM.
pub struct PythonAqm {
    /// A `bentpipe.runs.python_aqm.Algorithm`.
    pub algorithm: Py<PyAny>,
    /// The scenario with the AQM that it replaces.
    plain: scenario::Scenario,
}

#[pymethods]
impl Scenario {
    /// Reads a scenario file and applies overrides of the form `key.path=value`. They may name parameters of AQMs in the
    /// registry and, with `parameters`, of others.
    #[staticmethod]
    #[pyo3(signature = (path, overrides, parameters=vec![]))]
    fn load(path: &str, overrides: Vec<String>, parameters: Vec<String>) -> PyResult<Self> {
        let inner = scenario::Scenario::load_with_parameters(path, &overrides, parameters);
        Ok(Self::named(path, inner.map_err(scenario_error)?))
    }

    /// Reads a scenario from its text; messages refer to it as `name`.
    #[staticmethod]
    fn parse(text: &str, name: &str, overrides: Vec<String>) -> PyResult<Self> {
        let inner = scenario::Scenario::parse(text, name, &overrides).map_err(scenario_error)?;
        Ok(Self::named(name, inner))
    }

    /// Returns the scenario with the subject's AQM replaced by a named setting.
    fn with_setting(&self, name: &str) -> PyResult<Self> {
        let inner = self.inner.with_setting(name).map_err(scenario_error)?;
        Ok(self.variant(inner))
    }

    /// Returns the scenario under each of the settings. Each override must have an effect under one of them.
    fn with_settings(&self, names: Vec<String>) -> PyResult<Vec<Self>> {
        let all = self.inner.with_settings(&names).map_err(scenario_error)?;
        Ok(all.into_iter().map(|inner| self.variant(inner)).collect())
    }

    /// Returns the names of all settings that fit the subject, including each algorithm with its defaults, and the reasons
    /// why others do not fit.
    fn all_settings(&self) -> (Vec<String>, Vec<String>) {
        let (able, unable) = self.inner.all_settings();
        (able, unable.iter().map(ToString::to_string).collect())
    }

    /// Returns the scenario with the subject's queue left to an AQM written in Python, a
    /// `bentpipe.runs.python_aqm.Algorithm`.
    fn with_python_aqm(&self, algorithm: Bound<'_, PyAny>) -> PyResult<Self> {
        let label: String = algorithm.getattr("label")?.extract()?;
        let anywhere = algorithm.getattr("placement")?.extract::<String>()? == "anywhere";
        let placement = if anywhere { Placement::Anywhere } else { Placement::WatchedQueue };
        let rows: Vec<(String, String, String, String)> = algorithm.call_method0("keys")?.extract()?;
        let keys = rows.into_iter().map(outside_key).collect::<PyResult<Vec<_>>>()?;
        let parameters: Vec<String> = algorithm.getattr("parameters")?.extract()?;
        let inner = self.inner.with_outside(&label, placement, &keys, &parameters).map_err(scenario_error)?;
        let algorithm = algorithm.unbind();
        let python_aqm = Some(PythonAqm { algorithm, plain: self.plain().clone() });
        Ok(Self { name: self.name.clone(), inner, python_aqm })
    }

    /// The AQM written in Python; `None` if the registry has the subject's AQM.
    #[getter]
    fn python_aqm(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.python_aqm.as_ref().map(|aqm| aqm.algorithm.clone_ref(py))
    }

    /// Overrides of parameters of the subject's AQM, as names and values.
    fn aqm_overrides(&self) -> Vec<(String, String)> {
        self.inner.aqm_overrides()
    }

    /// Raises ScenarioError unless each override has an effect in this scenario or in one of `others`.
    #[pyo3(signature = (others=vec![]))]
    #[allow(clippy::needless_pass_by_value)]
    fn check_overrides(&self, others: Vec<PyRef<'_, Self>>) -> PyResult<()> {
        self.inner.used_with(others.iter().map(|other| &other.inner)).map_err(scenario_error)
    }

    /// Stem of the file.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Text of the file, without overrides.
    #[getter]
    fn text(&self) -> &str {
        self.inner.text()
    }

    /// Overrides that it was read with, unchanged.
    #[getter]
    fn overrides(&self) -> Vec<&str> {
        self.inner.overrides().collect()
    }

    /// Classes of traffic, in the order of the file.
    #[getter]
    fn classes(&self) -> Vec<&str> {
        self.inner.classes()
    }

    /// Traffic: name, class and kind of each.
    #[getter]
    fn traffic(&self) -> Vec<(&str, &str, &str)> {
        self.inner.traffic.iter().map(|t| (t.name.as_str(), t.class(), t.service())).collect()
    }

    /// One-line description.
    #[getter]
    fn title(&self) -> &str {
        &self.inner.title
    }

    /// One or more paragraphs.
    #[getter]
    fn description(&self) -> &str {
        self.inner.description.as_deref().unwrap_or_default()
    }

    /// Source of the parameters; may be empty.
    #[getter]
    fn source(&self) -> &str {
        self.inner.source.as_deref().unwrap_or_default()
    }

    /// Seed of the first run.
    #[getter]
    fn seed(&self) -> u64 {
        self.inner.run.seed
    }

    /// Runs per setting of a comparison.
    #[getter]
    fn runs(&self) -> u32 {
        self.inner.run.runs
    }

    /// Measured time [s].
    #[getter]
    fn duration(&self) -> f64 {
        self.inner.run.duration.as_secs_f64()
    }

    /// Simulated time before the measurement [s].
    #[getter]
    fn warmup(&self) -> f64 {
        self.inner.run.warmup.as_secs_f64()
    }

    /// Time between two samples [s].
    #[getter]
    fn sample_interval(&self) -> f64 {
        self.inner.run.sample_interval.as_secs_f64()
    }

    /// Settings of a comparison by default.
    #[getter]
    fn settings(&self) -> Vec<String> {
        self.inner.run.settings.clone()
    }

    /// Names of all settings, AQMs written in Python excepted.
    #[getter]
    fn setting_names(&self) -> Vec<&str> {
        self.inner.setting_names().collect()
    }

    /// Accepted but doubtful parts, including overrides without effect.
    #[getter]
    fn warnings(&self) -> Vec<String> {
        let unused = self.inner.unused_overrides.iter();
        let unused = unused.map(|e| format!("{e}: no effect under {}", self.inner.label()));
        self.inner.warnings.iter().map(|warning| warning.text.clone()).chain(unused).collect()
    }

    /// Code of each of the warnings.
    #[getter]
    fn warning_codes(&self) -> Vec<&'static str> {
        let unused = self.inner.unused_overrides.iter().map(|_| WarningKind::UnusedOverride);
        self.inner.warnings.iter().map(|warning| warning.kind).chain(unused).map(WarningKind::code).collect()
    }

    /// Label of the subject's AQM.
    #[getter]
    fn aqm(&self) -> &str {
        self.inner.label()
    }

    /// True if congestion is signalled behind the PEP, with packets whose senders have been acknowledged.
    #[getter]
    fn behind_pep(&self) -> bool {
        self.inner.signals_behind_pep()
    }

    /// True if packets are marked with ECN behind the PEP, which echoes the marks.
    #[getter]
    fn marks_behind_pep(&self) -> bool {
        self.inner.gateways.iter().any(|gateway| gateway.marks_behind_pep())
    }

    /// Capacity of the subject's link, or links [bit/s].
    #[getter]
    fn capacity(&self) -> f64 {
        let rate = match self.inner.subject {
            Subject::Gateway(gateway) => Some(self.inner.gateways[gateway].regulator.rate),
            Subject::Return(gateway) => self.inner.gateways[gateway].back.as_ref().map(|back| {
                // Each terminal has its own link, unless they share a carrier.
                let links = if back.carrier.is_some() { 1 } else { back.terminals.count() };
                Rate::from_bps(back.regulator.rate.as_bps() * u64::from(links))
            }),
            Subject::Link(link) => self.inner.links[link].forward.mean_rate(),
        };
        rate.unwrap_or_default().as_bps() as f64
    }

    /// Number of terminals, if a gateway has several or queues for subscribers; else 0.
    #[getter]
    fn terminals(&self) -> u32 {
        let gateways = &self.inner.gateways;
        if !gateways.iter().any(|gateway| gateway.shares_carrier) {
            return 0;
        }
        gateways.iter().map(|gateway| gateway.terminals.count()).sum()
    }

    /// True if the terminals of the subject have queues in the return direction.
    #[getter]
    fn has_return(&self) -> bool {
        match self.inner.subject {
            Subject::Gateway(gateway) => self.inner.gateways[gateway].back.is_some(),
            Subject::Return(_) | Subject::Link(_) => false,
        }
    }

    /// Name of the link that metrics describe.
    #[getter]
    fn subject_link(&self) -> &str {
        let link = match self.inner.subject {
            Subject::Gateway(gateway) | Subject::Return(gateway) => self.inner.gateways[gateway].link(),
            Subject::Link(link) => link,
        };
        &self.inner.links[link].name
    }

    /// Raises WatchError unless these flows can be traced, these links captured, and these flows logged. Only a run shows
    /// whether the flows exist.
    #[pyo3(signature = (trace, links, logs=None))]
    fn check_watch(&self, trace: Vec<String>, links: Vec<String>, logs: Option<Vec<String>>) -> PyResult<()> {
        let logs = logs.map(|flows| (flows, 0));
        let watch = self.watch(&trace, links, logs).map_err(WatchError::new_err)?;
        sim::check_watch(&self.inner, &watch).map_err(simulation_error)
    }

    /// Returns each key with its value in effect: dictionaries of key, value, origin and note.
    fn effective<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, self.inner.effective())
    }

    /// Returns the scenario's printed values as dictionaries.
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

    /// Returns the file's tables with the overrides, as a TOML table on one line.
    fn tables(&self) -> PyResult<String> {
        self.inner.tables().map_err(scenario_error)
    }

    /// Limits of good and bad that the file sets: measure, good and bad of each.
    #[getter]
    fn thresholds(&self) -> Vec<(&'static str, f64, f64)> {
        self.inner.thresholds.iter().map(|t| (t.measure, t.good, t.bad)).collect()
    }

    /// Returns the table `model` as a dictionary, defaults filled in.
    fn models<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.inner.models)
    }

    /// Returns the source of the scenario, see [`PackedScenario`]; of one with an AQM written in Python, the source without
    /// that AQM.
    fn packed(&self) -> Option<PackedScenario> {
        let packed = self.plain().packed()?;
        let files = packed.files.into_iter().map(|(path, digest)| (path, digest.to_string())).collect();
        Some((packed.file, packed.text, packed.overrides, packed.setting, packed.parameters, files))
    }

    /// Returns the content of a file that the scenario names.
    fn file<'py>(&self, py: Python<'py>, path: &str) -> Option<Bound<'py, PyBytes>> {
        self.inner.file(path).map(|bytes| PyBytes::new(py, &bytes))
    }

    /// Reads a packed scenario; `files` holds the content of its files by path.
    #[staticmethod]
    fn unpack(
        file: String,
        text: String,
        overrides: Vec<String>,
        setting: Option<String>,
        parameters: Vec<String>,
        files: BTreeMap<String, Vec<u8>>,
    ) -> PyResult<Self> {
        let packed = scenario::Packed { file, text, overrides, setting, parameters, files: Vec::new() };
        let inner = scenario::Scenario::unpack(&packed, files).map_err(scenario_error)?;
        Ok(Self::named(&packed.file, inner))
    }

    /// Returns everything that determines a result, as JSON.
    fn canonical(&self) -> String {
        self.inner.canonical_json()
    }
}

impl Scenario {
    fn named(file: &str, inner: scenario::Scenario) -> Self {
        let stem = std::path::Path::new(file).file_stem().unwrap_or_default();
        Self { name: stem.to_string_lossy().into_owned(), inner, python_aqm: None }
    }

    /// Flows to trace, links to capture, and flows to log with their largest number.
    pub fn watch(
        &self,
        trace: &[String],
        links: Vec<String>,
        logs: Option<(Vec<String>, u32)>,
    ) -> Result<sim::Watch, String> {
        let selectors = |what, texts: &[String]| {
            texts.iter().map(|text| sim::Selector::parse(what, text, &self.inner)).collect::<Result<_, _>>()
        };
        let flows = selectors("trace", trace)?;
        let logs = match logs {
            Some((texts, limit)) => Some(sim::LogWatch { flows: selectors("qlog", &texts)?, limit }),
            None => None,
        };
        Ok(sim::Watch { links, flows, logs })
    }

    fn variant(&self, inner: scenario::Scenario) -> Self {
        Self { name: self.name.clone(), inner, python_aqm: None }
    }

    /// The scenario without an AQM written in Python.
    fn plain(&self) -> &scenario::Scenario {
        self.python_aqm.as_ref().map_or(&self.inner, |aqm| &aqm.plain)
    }
}

fn outside_key((key, value, origin, note): (String, String, String, String)) -> PyResult<OutsideKey> {
    let origin = match origin.as_str() {
        "default" => Origin::Default,
        "override" => Origin::Override,
        "setting" => Origin::Setting,
        other => return Err(PyValueError::new_err(format!("origin {other:?} of {key}"))),
    };
    Ok(OutsideKey { key, value, origin, note })
}

/// Converts lists and structures to Python by way of JSON.
fn to_python<'py, T: Serialize + ?Sized>(py: Python<'py>, value: &T) -> PyResult<Bound<'py, PyAny>> {
    let text = serde_json::to_string(value).map_err(|e| SimulationError::new_err(e.to_string()))?;
    py.import("json")?.call_method1("loads", (text,))
}
