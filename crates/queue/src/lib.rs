//! Queue management apart from any queue's surroundings.
//!
//! An [`Aqm`] decides whether a packet signals congestion, a [`Scheduler`] stores packets and chooses
//! which goes next, and a [`Queue`] is a scheduler with its counters and the Aqm that watches it.
//! Where the verdict is applied (the *mark point*) and which queue is watched (the *watch point*) need not be
//! the same place: that is the gateway's choice, so a [`Queue`] judges and stores in two separate calls.
//!
//! Every algorithm is one file under `aqm/` or `sched/` and one line in [`registry`].

pub mod aqm;
mod core;
pub mod law;
pub mod marking;
mod params;
mod queue;
pub mod registry;
pub mod sched;
mod successor;
mod table;

pub use crate::core::{
    Aqm, Cx, Discard, DropReason, Ecn, FlowEvent, FlowId, Limit, MOST_DISCARDS, Outcome, Packet, QueueState,
    Scheduler, Spot, Tcp, Verdict,
};
pub use crate::law::Law;
pub use crate::marking::Marking;
pub use crate::params::{Default, Link, Param, ParamError, Range, Tune, Unit, Value, Values};
pub use crate::queue::{Counters, Queue, Setup};
pub use crate::table::FlowTable;
