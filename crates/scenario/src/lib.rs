//! Scenario files: topology, links, gateways, traffic and measurement, independent of any engine.
//!
//! A file passes through three stages, each a module:
//!
//! 1. `reader`: TOML text becomes a tree whose nodes know their position in the file; overrides and settings change the tree.
//! 2. `schema`: the tree becomes structs that describe the file format. [`json_schema`] derives from them.
//! 3. `resolve`: names are resolved, defaults filled in, contradictions rejected.
//!
//! The result is the `model`: plain data that an engine runs, wrapped in a [`Scenario`]. Any mistake on the way is one
//! [`Error`] with its location.

mod document;
mod effective;
mod error;
mod load;
mod model;
mod reader;
mod resolve;
mod scenario;
mod schema;
mod settings;
mod warning;

pub use bentpipe_gateway::{GatewayQueue, Sharing};
pub use document::{Document, Section};
pub use effective::{Effective, Origin};
pub use error::{Error, Location};
pub use load::{OutsideKey, Packed};
pub use model::{
    Absence, Access, AddressChanges, Application, AqmSpec, Bulk, Capacity, Capture, Carrier, Clock, Codec,
    Congestion, ConnectionPer, Controller, DATAGRAM_HEADER, Dash, Delay, Demand, Digest, Direction,
    Distribution, Drawn, Ecn, Equations, Fade, Feedback, Files, FlowKey, FluidVariant, Fourier, Frames,
    Gateway, GatewayHandover, GatewayIndex, GilbertElliott, Gop, Handover, Hop, Host, HostIndex, Http, Link,
    LinkIndex, Loss, LossAt, LossModel, LossOf, MEASURES, MarkingSpec, Measure, MeasuredSeries, Modcod,
    ModcodTable, ModelKind, Models, Modulation, Movie, OnHandover, Packets, Pages, Pattern, Pep, Per, Plan,
    Pool, Printed, Profile, Protocol, QueueSpec, QueuesPer, Quic, Ramp, ReceiveQueue, Region, Regulator,
    Rendering, Rto, Rtp, RtpController, Run, Samples, SchedulerSpec, Sctp, Spacelink, State, Steps, Subject,
    Subscribers, Tcp, TerminalGroup, Terminals, Threshold, ThroughputAdvice, Trace, Traffic, TrafficKind,
    TransmitQueue, Transport, TransportIndex, pool_path,
};
pub use scenario::Scenario;
pub use schema::json::json_schema;
pub use schema::quantity;
pub use schema::terminal::Share as PlanShare;
pub use settings::Setting;
pub use warning::{Warning, WarningKind};
