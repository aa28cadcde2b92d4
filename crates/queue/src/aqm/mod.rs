//! Active queue management algorithms, one a file.

pub mod aaqm;
mod active;
mod average;
pub mod avq;
pub mod avqred;
pub mod blue;
pub mod choke;
pub mod codel;
pub mod droptail;
pub mod gkvq;
mod lottery;
pub mod pfavqred;
pub mod pi;
pub mod pie;
pub mod red;
pub mod redfc;
pub mod rem;
pub mod sfb;
#[cfg(test)]
mod steps;
pub mod vqred;
pub mod vrc;
pub mod yellow;
