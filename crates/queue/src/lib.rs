//! Active queue management (AQM), schedulers and marking methods, independent of the host that owns the queue.
//!
//! An [`Aqm`] decides which packets signal congestion, a [`Scheduler`] stores packets and chooses the next to leave, and a
//! [`Queue`] combines a scheduler with its counters and the AQM that watches it. The *mark point*, where the verdict is
//! applied, may lie ahead of the *watch point*, the queue whose length the AQM reads; so a [`Queue`] has separate calls for
//! the two ([`Queue::offer`], [`Queue::enqueue`]).
//!
//! | module | content |
//! |---|---|
//! | `interface` | packet, verdict, the traits [`Aqm`] and [`Scheduler`] |
//! | [`fluid`] | the trait [`FluidModel`], an algorithm as differential equations |
//! | [`descriptor`] | description of an algorithm: parameters, presets, constructors |
//! | [`aqm`], [`sched`], [`marking`] | the algorithms, one file each, fluid model included |
//! | [`registry`] | the lists of them, one line each |
//! | `queue` | [`Queue`] |
//! | [`tree`] | the shares of queues in a carrier |
//!
//! Each module uses only modules above it in the table; the algorithms do not know the registry. One exception: every [`Aqm`] has
//! the methods of `queue::Passage`, which are compiled for it.

pub mod aqm;
pub mod descriptor;
mod flow_table;
pub mod fluid;
mod interface;
pub mod marking;
mod queue;
pub mod registry;
pub mod sched;
pub mod tree;

pub use crate::descriptor::{
    Default, FollowedRate, Link, Param, ParamError, Range, Tune, Unit, Value, Values,
};
pub use crate::flow_table::FlowTable;
pub use crate::fluid::FluidModel;
pub use crate::interface::{
    Aqm, Context, DropHandler, DropReason, Ecn, FlowEvent, FlowId, Limit, MAX_DROPS_PER_DEQUEUE, Marking,
    Packet, QueueSlot, QueueState, Scheduler, SchedulerHost, Tcp, Verdict,
};
pub use crate::queue::{Counters, Queue, QueueConfig};
