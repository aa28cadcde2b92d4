//! Tests of the queue, in one program: each program more is linked once more.

mod conformance;
mod fluid;
mod operations;
mod printed;
