//! Fluid equations and their stability.

use bentpipe_model::stability::{Change, Stability};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::json;

use crate::errors::{ModelError, SimulationError};
use crate::scenario::Scenario;
use crate::tables::{self, Table};

/// Solves the scenario's fluid equations under the subject's AQM; other Python threads go on, and an exception of a signal's
/// handler ends it. Returns one row per sample, in the columns of a simulation's time series.
#[pyfunction]
pub fn fluid(py: Python<'_>, scenario: &Scenario, seed: u64) -> PyResult<Table> {
    let mut signalled = Ok(());
    let solved = py.detach(|| {
        bentpipe_model::run_while(&scenario.inner, seed, || {
            signalled = Python::attach(|py| py.check_signals());
            signalled.is_ok()
        })
    });
    signalled?;
    let table = solved.map_err(|e| ModelError::new_err(e.to_string()))?;
    tables::table(tables::model(table)).map_err(SimulationError::new_err)
}

/// Returns the name of the equations for a scenario and their inputs, as JSON.
#[pyfunction]
pub fn fluid_inputs(scenario: &Scenario, seed: u64) -> PyResult<String> {
    let (equations, found) =
        bentpipe_model::inputs(&scenario.inner, seed).map_err(|e| ModelError::new_err(e.to_string()))?;
    let rows: Vec<_> = found
        .iter()
        .map(|i| json!({"symbol": i.symbol, "what": i.what, "value": i.value, "unit": i.unit}))
        .collect();
    Ok(json!({"equations": equations, "inputs": rows}).to_string())
}

/// Points that each thread analyses between two checks for signals.
const POINTS_PER_THREAD: usize = 16;

/// Computes the stability margins of the scenario's fluid equations at each of `points` (connections, round trip [s] and PEP
/// delay [s]; `None` for the scenario's value), on `threads` threads; other Python threads go on. Returns a dictionary per
/// point; a point without operating point has only `error`.
#[pyfunction]
pub fn stability<'py>(
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
    let mut found = Vec::with_capacity(points.len());
    for some in points.chunks(POINTS_PER_THREAD.saturating_mul(threads.max(1))) {
        let some = py.detach(|| bentpipe_model::stability::stability(&scenario.inner, seed, some, threads));
        found.extend(some.map_err(|e| ModelError::new_err(e.to_string()))?);
        py.check_signals()?;
    }
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
