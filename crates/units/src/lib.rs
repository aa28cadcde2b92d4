//! Basic types of all other crates: time in integer nanoseconds, bit rates, typed indexes, and random numbers that are
//! the same on every machine.
//!
//! No function reads a clock or the system's randomness. An [`Instant`] comes from the driver of a component (the
//! simulator's event queue, the live gateway's clock), and an [`Rng`] is one stream of a run's seed, so any run can be
//! reproduced byte for byte.

mod ids;
mod rate;
mod rng;
mod time;

pub use ids::{Id, IdRange, IdVec, NicheIndex, Slab};
pub use rate::Rate;
pub use rng::{Rng, mix};
pub use time::{Alarm, Duration, Instant};
