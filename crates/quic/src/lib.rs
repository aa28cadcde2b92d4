//! QUIC for the simulator: quinn-proto, a QUIC stack that is used on the Internet, under simulated time.
//!
//! A [`Connection`] is one end: its host passes in datagrams and the time, and takes out datagrams and the time of the next
//! call, as with the transports of `bentpipe-transport`. Sizes and times of packets are those of the real stack. Three
//! things are replaced, so that a run with the same seed has the same bytes:
//!
//! - the congestion controls: those of `bentpipe_transport::tcp`, since quinn's BBR draws from the system's random numbers
//!   and its CUBIC uses the platform's `cbrt`;
//! - connection ids and the generator's seeds: from the run's seed;
//! - the cryptography: [`NullCrypto`] has messages and packets of the same lengths and encrypts nothing, for speed.
//!
//! Payload is virtual, as in the other transports: streams carry zeros, and only their number counts. Over real networks
//! ([`Host::with_crypto`], [`Host::with_content`]) it is encrypted, and has content.
//!
//! # Limits
//!
//! - quinn ends a connection when a stream has more than 1,024 gaps. Streams are read out of order here, so that none has;
//!   flow control then counts data as read when it arrives.
//! - quinn paces every sender at 1.25 windows per round trip (RFC 9002, section 7.7). An algorithm with a pacing rate is held
//!   to it in addition.
//! - quinn skips a packet number now and then (RFC 9000, section 21.4) and takes it for a packet that was acknowledged: persistent
//!   congestion (RFC 9002, section 7.6) around it is found later or not at all.
//! - quinn sends ECT(0) only: for an L4S sender the host's code point is exchanged on the way (see [`Connection`]).

mod config;
mod connection;
mod control;
pub mod frames;
pub mod log;
mod null_crypto;
mod priority;
pub mod scone;
mod stream;
mod tap;

pub use config::{Config, Fill, Host, Resumption};
pub use connection::{Chunk, Connection, Datagram, Limit, Stats, labels, original_destination};
pub use null_crypto::NullCrypto;
pub use priority::Priority;
