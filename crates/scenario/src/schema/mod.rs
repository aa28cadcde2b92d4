//! Structs that describe a scenario file. The JSON Schema, the messages about unknown keys and wrong values, and the list
//! of effective keys derive from them.

mod algorithms;
pub mod aqm;
pub mod channel;
pub mod dash;
pub mod dimension;
pub mod dscp;
pub mod file;
pub mod forms;
pub mod gateway;
pub mod json;
pub mod link;
pub mod models;
pub mod packets;
pub mod param;
pub mod presets;
pub mod profile;
pub mod quantity;
pub mod terminal;
pub mod thresholds;
pub mod traffic;
pub mod transport;

/// Maximum number of hosts, sessions or flows of a group.
pub const MOST: u32 = 1_000_000;

/// A second [ns].
pub const SECOND: u64 = 1_000_000_000;
