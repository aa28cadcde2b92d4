//! Tests of the queue in one program, since every test program is linked separately.

mod conformance;
mod fluid;
mod link;
mod linux;
mod ns3;
mod operations;
mod printed;
mod tree;
