//! Schedulers, one a file.

pub mod drr;
pub mod fifo;
mod flows;
