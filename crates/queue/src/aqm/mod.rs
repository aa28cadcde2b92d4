//! Active queue management algorithms, one a file.

pub mod avq;
pub mod avqred;
pub mod codel;
pub mod droptail;
mod lottery;
pub mod red;
#[cfg(test)]
mod steps;
