//! TCP, SCTP, RTP and the PEP link (the simulator's transport between the two halves of a split connection) as sans-IO
//! state machines.
//!
//! No module reads a clock or does I/O. The host passes in packets and the current time, and takes out the packets to
//! send and the time of the next call. Payload is virtual: only its length is kept.
//!
//! - [`tcp`]: RFC 9293 with eight congestion control algorithms, which [`tcp::Controller`] runs for QUIC as well.
//! - [`pep_link`]: many reliable streams over one association, QUIC loss recovery (RFC 9002).
//! - [`sctp`] (RFC 9260) and [`rtp`] (RFC 3550): complete and separate; nothing else in the crate uses them.
//!
//! The four share two private modules only: `ranges` (sets of sequence ranges) and `rtt` (SRTT and RTTVAR of RFC 6298).

pub mod pep_link;
mod ranges;
pub mod rtp;
mod rtt;
pub mod sctp;
pub mod tcp;
