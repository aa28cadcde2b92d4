//! Tests of the queue, in one program: every further program would be linked separately.

mod conformance;
mod fluid;
mod operations;
mod printed;
