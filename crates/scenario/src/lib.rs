//! What a scenario file means: nodes, links, gateways, traffic and how to measure them; no engine.
//!
//! A file passes through four stages, each a module:
//!
//! 1. `source` and `tree`: TOML text becomes a tree whose every node knows its place; overrides and a setting change
//!    the tree.
//! 2. `file`: the tree becomes the structs that describe what a file may say ([`json_schema`] follows from
//!    them), read by `de`.
//! 3. `resolve`: names are looked up, defaults worked out and what is impossible refused.
//! 4. `model`: the outcome, which an engine runs.
//!
//! Any mistake on the way is one [`Error`] with its place.

mod canonical;
mod capture;
mod channel;
mod de;
mod distribution;
mod document;
mod effective;
mod error;
mod file;
mod files;
mod gateway;
mod modcod;
mod model;
mod models;
mod packets;
pub mod quantity;
mod resolve;
mod scenario;
mod schema;
mod source;
mod traffic;
mod tree;
mod video;

pub use bentpipe_gateway::{GatewayQueue, Sharing};
pub use channel::{
    Access, Capacity, Carrier, Clock, Demand, Drawn, Fade, GilbertElliott, Handover, Loss, LossAt, LossModel,
    LossOf, Modulation, Steps, Trace,
};
pub use distribution::{Distribution, Samples};
pub use document::{Document, Section};
pub use error::{Error, Location};
pub use files::Digest;
pub use modcod::{MODCODS, Modcod};
pub use model::{
    AqmSpec, Bulk, Congestion, ConnectionPer, Delay, Direction, Ecn, Files, FlowKey, Gateway, Hop, Host,
    Link, MarkingSpec, Pages, Pep, Per, Printed, Protocol, QueueSpec, Ramp, ReceiveQueue, Regulator, Rto,
    Rtp, Run, SchedulerSpec, Sctp, Setting, Spacelink, Subject, Tcp, Traffic, TrafficKind, TransmitQueue,
    Transport,
};
pub use models::{Equations, Feedback, Fourier, Laws, MeasuredSeries, ModelKind, Models};
pub use packets::{Absence, Capture, DATAGRAM_HEADER, Frames, Gop, Movie, Packets, Pattern, State};
pub use scenario::{Effective, Origin, Packed, Scenario};
pub use schema::json_schema;
