//! Schedulers, one a file.

pub mod buckets;
pub mod drr;
pub mod fifo;
mod flows;
