//! TCP, SCTP, RTP and the spacelink transport as sans-IO state machines.
//!
//! None of them reads a clock or moves a byte: a host hands in segments and the time, and takes out what is to be sent and
//! when to come back. Payload is virtual, for a simulator needs its length alone.

pub mod rtp;
pub mod sctp;
pub mod spacelink;
pub mod tcp;
