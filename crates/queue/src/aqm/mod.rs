//! Active queue management algorithms, one per file.

pub mod aaqm;
mod active;
pub mod ared;
mod average;
pub mod avq;
pub mod avqred;
pub mod avqred_backlog;
pub mod blue;
pub mod choke;
pub mod codel;
pub mod droptail;
pub mod fred;
pub mod gkvq;
pub mod pfavqred;
pub mod pi;
pub mod pie;
pub mod red;
pub mod redfc;
pub mod rem;
pub mod sfb;
pub mod sred;
#[cfg(test)]
mod steps;
pub mod threshold;
mod uniform_dropper;
pub mod vqred;
pub mod vrc;
pub mod yellow;
