//! Relayed TCP connections: the bytes between a kernel socket and a stream of the spacelink.
//!
//! [`table::Relays`] holds the connections, [`memory::PepMemory`] the PEP's buffers and who waits for them,
//! [`chunks::Chunks`] the spacelink's send window, [`admission::Admission`] the limits. The event loop moves bytes between
//! them.

pub mod admission;
pub mod chunks;
pub mod connection;
pub mod memory;
pub mod outbound;
pub mod ring;
pub mod sender;
pub mod spacelink_socket;
pub mod table;
pub mod terminals;

pub use table::{RelayId, UserId};
