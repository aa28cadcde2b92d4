//! Fluid models: rates and queue lengths in place of packets, as delay differential equations.
//!
//! A model uses a scenario and the fluid models of its algorithms but nothing of the simulator, so that the two check each other.
//!
//! - [`System`]: parameters of the equations, derived from a scenario;
//! - [`Fluid`]: equations of a paper;
//! - [`integrate`]: solution, step by step;
//! - [`run`]: all three, with the columns of a simulation;
//! - [`stability`]: linearization around the operating point, and stability margins.

mod capacity;
mod error;
mod fluid;
mod fourier;
mod inputs;
mod padhye;
mod population;
mod run;
mod senders;
mod solve;
pub mod stability;
mod system;
mod watched_queue;

pub use capacity::Capacity;
pub use error::Error;
pub use fluid::Fluid;
pub use fourier::Series;
pub use inputs::{Input, inputs};
pub use run::{Column, Table, run, run_while};
pub use solve::{Delayed, integrate};
pub use system::System;
