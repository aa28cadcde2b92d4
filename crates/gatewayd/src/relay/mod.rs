//! Relayed TCP connections: the bytes between a kernel socket and a stream of the spacelink.

pub mod pep;
pub mod ring;
