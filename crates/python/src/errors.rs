//! The exceptions that the core raises.

use bentpipe_scenario as scenario;
use bentpipe_sim as sim;
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(
    _core,
    ScenarioError,
    PyException,
    "A scenario cannot be read; the message is complete and meant for the user."
);
create_exception!(
    bentpipe._core,
    SimulationError,
    PyException,
    "The results of a run contradict each other."
);
create_exception!(
    bentpipe._core,
    AlgorithmError,
    PyException,
    "An AQM written in Python raised an exception or returned an invalid value."
);
create_exception!(bentpipe._core, ModelError, PyException, "A model cannot solve the scenario.");
create_exception!(bentpipe._core, Cancelled, PyException, "The run was stopped through its Progress.");
create_exception!(bentpipe._core, WatchError, PyException, "The scenario has no such link or flow to watch.");

/// Adds the exceptions to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("ScenarioError", py.get_type::<ScenarioError>())?;
    module.add("SimulationError", py.get_type::<SimulationError>())?;
    module.add("ModelError", py.get_type::<ModelError>())?;
    module.add("Cancelled", py.get_type::<Cancelled>())?;
    module.add("WatchError", py.get_type::<WatchError>())?;
    module.add("AlgorithmError", py.get_type::<AlgorithmError>())
}

pub fn scenario_error(error: scenario::Error) -> PyErr {
    ScenarioError::new_err(error.to_string())
}

pub fn simulation_error(error: sim::Error) -> PyErr {
    match error {
        sim::Error::Cancelled => Cancelled::new_err(error.to_string()),
        sim::Error::Unsupported(_) => ScenarioError::new_err(error.to_string()),
        sim::Error::NotFound(_) => WatchError::new_err(error.to_string()),
        sim::Error::Inconsistent(_) => SimulationError::new_err(error.to_string()),
    }
}
