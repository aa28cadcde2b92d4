//! Schedulers, one a file.

pub mod buckets;
pub mod cake;
mod cobalt;
pub mod drr;
pub mod fifo;
mod flows;
pub mod fq_codel;
#[cfg(test)]
mod steps;
