//! Tests of the queue in one program, since every test program is linked separately.

mod conformance;
mod fluid;
mod ns3;
mod operations;
mod printed;
mod tree;
