//! What a link does to packets: pure models of channels.
//!
//! A model reads no clock and owns no randomness: whoever moves the packets (the simulator, a live link) passes the
//! time and a stream of random numbers in, and the same calls give the same answers.

mod loss;

pub use loss::Loss;
