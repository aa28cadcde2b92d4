//! Fluid models: rates and levels in place of packets, as delay-differential equations.
//!
//! A model takes a scenario and the fluid models of its algorithms, and nothing of the simulator, so that each of the two
//! checks the other.
//!
//! - [`System`] says what a scenario means to the equations: flows, round trip, capacity, delay of the PEP, law;
//! - [`Fluid`] is the equations themselves, those of a paper;
//! - [`integrate`] solves them, step by step;
//! - [`run`] does all three and writes down what a simulation would;
//! - [`stability`] linearizes them around their operating point, and says how far it is from oscillation.

mod fluid;
mod fourier;
mod inputs;
mod population;
mod run;
mod solve;
pub mod stability;
mod system;

pub use fluid::Fluid;
pub use fourier::Series;
pub use inputs::{Input, inputs};
pub use run::{Column, Table, run};
pub use solve::{Delayed, integrate};
pub use system::{Capacity, Error, System};
