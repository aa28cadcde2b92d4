//! Active queue management algorithms, one a file.

pub mod avq;
pub mod avqred;
pub mod codel;
pub mod droptail;
mod lottery;
pub mod pi;
pub mod red;
pub mod rem;
#[cfg(test)]
mod steps;
