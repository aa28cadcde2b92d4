//! Observation: log, metrics, the built-in page, recorded traces.

pub mod bottleneck;
pub mod cause;
pub mod counters;
pub mod histogram;
pub mod http;
pub mod log;
pub mod metrics;
pub mod observer;
pub mod prometheus;
pub mod publisher;
pub mod quic_events;
pub mod record;
pub mod state;
