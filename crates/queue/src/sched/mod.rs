//! Schedulers, one a file.

pub mod fifo;
