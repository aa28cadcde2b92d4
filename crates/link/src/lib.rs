//! Models of links, without IO: the host passes packets, times and a seed, and the same calls give the same results.
//!
//! [`LinkEngine`] is one direction of a link as a scenario describes it. It puts together
//!
//! - the queue with its AQM (`bentpipe-queue`);
//! - the [`Sender`], where a link is more than a constant rate: capacity from a [trace](Trace), in [steps](Steps),
//!   [drawn](Drawn) at regular times, after [rain fade](Fade), per host, on [demand](Demand); a link layer with
//!   [retries](Access); outages;
//! - the channel: [`Loss`], the gap between two satellites, [`Impairments`];
//! - the delay: [`DelayModel`], the delay of the [`Satellite`] in use, and the [`DelayLine`] that holds the packets.
//!
//! Times passed to one engine never decrease.

mod access;
mod channel;
mod delay;
mod demand;
mod drawn;
mod engine;
mod fade;
mod handover;
mod loss;
mod sender;
mod steps;
mod trace;

pub use access::Access;
pub use channel::{Impairments, LossCause};
pub use delay::{DelayLine, DelayModel};
pub use demand::Demand;
pub use drawn::Drawn;
pub use engine::{LinkEngine, Names, Progress, Release, Service};
pub use fade::Fade;
pub use handover::Satellite;
pub use loss::Loss;
pub use sender::{Capacity, Sender, Sent};
pub use steps::Steps;
pub use trace::Trace;
