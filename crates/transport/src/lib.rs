//! TCP, SCTP, RTP and the link between the two halves of a PEP, as sans-IO state machines.
//!
//! None of them reads a clock or moves a byte: a host hands in segments and the time, and takes out what is to be sent and
//! when to come back. Payload is virtual, for a simulator needs its length alone.

pub mod pep_link;
mod ranges;
pub mod rtp;
mod rtt;
pub mod sctp;
pub mod tcp;
