//! Python bindings of the simulator, the models and the registry: thin wrappers without logic.
//!
//! - `scenario`: scenarios, read and checked
//! - `run`: the simulation of a scenario, with `tables` (results as Arrow tables) and `captures` (pcapng files)
//! - `models`: fluid equations and their stability
//! - `registry`: the algorithms with their parameters, and the schema of scenario files
//! - `python_aqm`: AQMs written in Python as the simulator calls them, and `views`, the objects that their methods receive
//! - `errors`: the exceptions

mod captures;
mod errors;
mod models;
mod python_aqm;
mod registry;
mod run;
mod scenario;
mod tables;
mod views;

use pyo3::prelude::*;

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    errors::add(module)?;
    module.add_class::<scenario::Scenario>()?;
    module.add_class::<run::Progress>()?;
    module.add_class::<run::Run>()?;
    module.add_class::<tables::Table>()?;
    module.add_class::<views::Verdict>()?;
    module.add_class::<views::QueueSlot>()?;
    module.add_class::<views::Packet>()?;
    module.add_class::<views::Context>()?;
    module.add_class::<views::QueueState>()?;
    module.add_class::<views::Rng>()?;
    module.add_function(wrap_pyfunction!(run::simulate, module)?)?;
    module.add_function(wrap_pyfunction!(models::fluid, module)?)?;
    module.add_function(wrap_pyfunction!(models::fluid_inputs, module)?)?;
    module.add_function(wrap_pyfunction!(models::stability, module)?)?;
    module.add_function(wrap_pyfunction!(registry::registry, module)?)?;
    module.add_function(wrap_pyfunction!(registry::schema, module)?)
}
