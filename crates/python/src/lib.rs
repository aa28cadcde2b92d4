//! Python bindings of the simulator, the models and the registry: thin wrappers without logic.
//!
//! - `scenario`: scenarios, read and checked
//! - `run`: the simulation of a scenario, with `tables` (results as Arrow tables) and `captures` (pcapng files)
//! - `simulation`: a run that is advanced in steps and changed in between
//! - `models`: fluid equations and their stability
//! - `registry`: the algorithms with their parameters, and the schema of scenario files
//! - `python_aqm`: AQMs written in Python as the simulator calls them, and `views`, the objects that their methods receive
//! - `errors`: the exceptions

mod captures;
mod errors;
mod lent;
mod models;
mod python_aqm;
mod registry;
mod run;
mod scenario;
mod simulation;
mod tables;
mod views;

use pyo3::prelude::*;

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    return_large_blocks();
    errors::add(module)?;
    module.add_class::<scenario::Scenario>()?;
    module.add_class::<run::Progress>()?;
    module.add_class::<run::Run>()?;
    module.add_class::<simulation::Simulation>()?;
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

/// Make the allocator return blocks of 256 KiB and more to the system when they are freed.
///
/// Without a fixed threshold glibc raises it up to 32 MB with each such block (mallopt(3)), and the tables of finished runs
/// stay in the process.
#[cfg(target_env = "gnu")]
fn return_large_blocks() {
    // SAFETY: `mallopt` takes two numbers and is safe to call from any thread.
    #[allow(unsafe_code)]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 256 * 1024);
    }
}

#[cfg(not(target_env = "gnu"))]
fn return_large_blocks() {}
