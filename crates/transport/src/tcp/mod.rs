//! TCP (RFC 9293) as a sans-IO state machine, with the congestion control algorithms of [`Algorithm`].
//!
//! A [`Connection`] is one endpoint. Its host
//! - passes in each arriving segment with [`Connection::on_segment`];
//! - after every call, takes out the segments to send with [`Connection::poll_transmit`], until it returns `None`;
//! - calls [`Connection::handle_timeout`] at [`Connection::poll_timeout`], and `poll_transmit` at
//!   [`Connection::paced_until`].
//!
//! Payload is virtual: the application writes and reads numbers of bytes.
//!
//! # Files and who owns which state
//!
//! `Connection` owns the send variables of RFC 9293 (SND.UNA, SND.NXT, the peer's window), the connection state, the
//! one timer of the sender and the flags for what must be sent next. Its `impl` is spread over the files below by RFC,
//! which is why these files refer to each other. The remaining state lies in parts that do not depend
//! on `Connection`.
//!
//! | `impl Connection` | contents | source |
//! |---|---|---|
//! | `connection` | state and public interface | RFC 9293 |
//! | `input` | arriving segments | RFC 9293 section 3.10.7, RFC 5961, RFC 3168 |
//! | `ack` | ACK processing, fast retransmit and fast recovery | RFC 5681, RFC 6582, RFC 3042 |
//! | `sack` | loss recovery with SACK | RFC 6675, RFC 9937 |
//! | `ns2` | recovery as in ns-2, instead of that of `ack` and `sack` | ns-2.35 |
//! | `rack` | loss detection by time, tail loss probes, spurious timeouts | RFC 8985; RFC 3522, RFC 4015 |
//! | `accurate` | accurate ECN feedback | RFC 9768 |
//! | `delivery` | RTT and delivery rate samples of each ACK | draft-cheng-iccrg-delivery-rate-estimation |
//! | `output` | segments to send, timers | RFC 9293 section 3.8.6, RFC 6298 (5), RFC 5681 section 4.1 |
//!
//! | part | state | source |
//! |---|---|---|
//! | `receive::Receiver` | receive half: reassembly, advertised window, delayed ACKs | RFC 9293 section 3.8.6, RFC 5681 section 4.2, RFC 7323 section 2 |
//! | `rto::Rto` | RTT estimate and retransmission timeout | RFC 6298, RFC 7323 section 4 |
//! | `scoreboard::Scoreboard` | SACKed ranges, Pipe, PRR, SACK blocks to report; exists only with SACK | RFC 6675 section 4, RFC 2018 |
//! | `rack::Rack` with `sent::Segments` | transmission time of every segment; exists only with RACK | RFC 8985 sections 5.2, 5.3 |
//! | `delivery::Delivery` | delivery record of every segment; exists only for BBR, HyStart++ and SEARCH | draft-cheng-iccrg-delivery-rate-estimation |
//! | `congestion::State` | the chosen algorithm; `congestion::Controller` runs it for QUIC | RFC 5681, RFC 3465, RFC 9406, RFC 9438, RFC 8257, RFC 6817, Hybla, BBR, Prague, Linux |
//!
//! `segment` is what travels between two endpoints and `config` what the host sets.
//!
//! # Not implemented, because a simulator has no use for it
//!
//! The MSS option (configured on both sides), wrapping sequence numbers and the protection against them (PAWS, RFC 7323
//! section 5), urgent data, Nagle's algorithm (bulk senders and interactive applications alike disable it),
//! keep-alives, and the 2 MSL timer: the host frees a connection [in TIME-WAIT](Connection::in_time_wait) whenever it
//! likes.

mod accurate;
mod ack;
mod config;
mod congestion;
mod connection;
mod delivery;
mod input;
mod ns2;
mod output;
mod rack;
mod receive;
mod rto;
mod sack;
mod scoreboard;
mod segment;
mod sent;

/// Maximum number of ranges kept on each side. Beyond it, a receiver discards out-of-order data (RFC 9293 section
/// 3.8.6) and a sender ignores SACK blocks, so that work and memory stay bounded.
const MAX_RANGES: usize = 4096;

/// Stream positions that arrived out of order or were SACKed.
type Ranges = crate::ranges::Ranges<MAX_RANGES>;

pub use config::{Config, Estimator};
pub use congestion::{Algorithm, Controller, SavedPath};
pub use connection::{CongestionPhase, Connection, Limit, Probe, Stats};
pub use segment::{Ecn, Flags, Sack, Segment, Timestamps};
