//! Schedulers, one per file.

#[cfg(test)]
mod bare;
pub mod buckets;
pub mod cake;
pub mod cake_users;
mod cobalt;
pub mod drr;
pub mod dualpi2;
pub mod fifo;
mod flows;
pub mod fq_codel;
pub mod fq_pie;
mod heap;
mod longest;
pub mod lqd;
mod median;
mod order;
mod ranked;
pub mod ssf;
#[cfg(test)]
mod steps;
pub mod swf;
