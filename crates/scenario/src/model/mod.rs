//! The resolved scenario as plain data: every default filled in, every name replaced by an index.
//!
//! The values are checked: rates are positive, names exist, routes are connected. Nothing here knows how a file is read.
//! The structs serialize to the canonical form, which holds all that determines the result of a run and nothing else
//! (see [`Scenario::canonical_json`](crate::Scenario::canonical_json)): times are integers in nanoseconds, rates in
//! bit/s, sizes in bytes.

mod aqm;
mod canonical;
mod channel;
mod dash;
mod digest;
mod distribution;
mod fluid;
mod gateway;
mod indexes;
mod link;
mod measures;
mod modcod;
mod packets;
mod run;
mod terminal;
mod traffic;
mod transport;

pub use aqm::{AqmSpec, MarkingSpec, NO_AQM, SchedulerSpec};
pub use channel::{
    Access, Capacity, Carrier, Clock, Demand, Drawn, Fade, GilbertElliott, Handover, Loss, LossAt, LossModel,
    LossOf, Modulation, Region, Steps, Trace,
};
pub use dash::{Controller, Dash};
pub use digest::Digest;
pub use distribution::{Distribution, Samples};
pub use fluid::{Equations, Feedback, FluidVariant, Fourier, MeasuredSeries, ModelKind, Models};
pub use gateway::{
    FlowKey, Gateway, Pep, Protocol, ReceiveQueue, Regulator, Spacelink, ThroughputAdvice, TransmitQueue,
};
pub(crate) use gateway::{transmit_rate, watched_rate, watched_rate_varies};
pub use indexes::{GatewayIndex, HostIndex, LinkIndex, TransportIndex};
pub use link::{Delay, Direction, Link, Per, QueueSpec};
pub use measures::{MEASURES, Measure, Threshold};
pub use modcod::{Modcod, ModcodTable};
pub use packets::{Absence, Capture, Codec, DATAGRAM_HEADER, Frames, Gop, Movie, Packets, Pattern, State};
pub use run::{AddressChanges, Host, Printed, Run, Subject};
pub use terminal::{
    GatewayHandover, OnHandover, Plan, Pool, QueuesPer, ReturnCarrier, Subscribers, TerminalGroup, Terminals,
    pool_path,
};
pub use traffic::{
    Application, Bulk, ConnectionPer, Files, Hop, Http, Pages, Profile, Ramp, Rendering, Traffic, TrafficKind,
};
pub use transport::{Congestion, Ecn, Quic, Rto, Rtp, RtpController, Sctp, Tcp, Transport};
