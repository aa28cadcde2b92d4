//! What a link does to packets: pure models of channels.
//!
//! - [`Loss`]: which packets are lost.
//! - [`Sender`]: when a packet may be sent and when it has gone, where that is more than a rate: capacity from a trace, in
//!   steps, drawn anew, after the rain or after the host; capacity on demand; a link layer that contends and repeats; outages.
//! - [`Satellite`]: what a change of satellites adds to the delay.
//!
//! A model reads no clock and owns no randomness: whoever moves the packets (the simulator, a live link) passes the
//! time and a stream of random numbers in, and the same calls give the same answers. Times never go back.

mod access;
mod demand;
mod drawn;
mod fade;
mod handover;
mod loss;
mod sender;
mod steps;
mod trace;

pub use access::Access;
pub use demand::Demand;
pub use drawn::Drawn;
pub use fade::Fade;
pub use handover::Satellite;
pub use loss::Loss;
pub use sender::{Capacity, Sender, Sent};
pub use steps::Steps;
pub use trace::Trace;
