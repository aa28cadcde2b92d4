//! The vocabulary of every other crate: time in integer nanoseconds, rates, and random
//! numbers that are the same on every machine.
//!
//! Nothing here reads a clock or the system's randomness. An [`Instant`] is handed in by whoever
//! drives a component (the simulator's agenda, the live gateway's clock), and an [`Rng`] is one
//! stream of a run's seed, so any run can be replayed byte for byte.

mod rate;
mod rng;
mod time;

pub use rate::Rate;
pub use rng::{Rng, mix};
pub use time::{Duration, Instant};
