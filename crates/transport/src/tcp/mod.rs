//! TCP (RFC 9293) with Reno (RFC 5681) or NewReno (RFC 6582), as a state machine without input or output.
//!
//! A [`Connection`] is one endpoint. Its host
//! - hands in what arrives, [`Connection::on_segment`];
//! - after anything it did, takes out what is to be sent, [`Connection::poll_transmit`], until there is no
//!   more;
//! - comes back when [`Connection::poll_timeout`] says, with [`Connection::handle_timeout`], and when [`Connection::paced_until`]
//!   says, with `poll_transmit`.
//!
//! Payload is virtual: an application hands over a number of bytes, and takes out a number of bytes.
//!
//! | file | what | source |
//! |---|---|---|
//! | `connection` | the endpoint, its states and its interface | RFC 9293 |
//! | `input` | what a segment changes | RFC 9293 section 3.10.7, RFC 5961, RFC 3168 |
//! | `ack` | what an ACK changes: loss detection and recovery | RFC 5681, RFC 6582, RFC 3042 |
//! | `accurate` | accurate ECN feedback | RFC 9768 |
//! | `sack` | loss detection and recovery with SACK | RFC 6675, RFC 9937 |
//! | `rack` | loss detection by time; timeouts that were none | RFC 8985; RFC 3522, RFC 4015 |
//! | `sent` | when each segment was sent | RFC 8985 section 5.2 |
//! | `scoreboard` | what was selectively acknowledged, and what to report | RFC 6675 section 4, RFC 2018 |
//! | `output` | what may be sent, and timers | RFC 9293 section 3.8.6, RFC 6298 (5), RFC 5681 section 4.1 |
//! | `receive` | reassembly, the advertised window, delayed ACKs | RFC 9293 section 3.8.6, RFC 5681 section 4.2, RFC 7323 section 2 |
//! | `ranges` | parts of the stream | |
//! | `delivery` | round trips and delivery rates of each ACK | draft-cheng-iccrg-delivery-rate-estimation |
//! | `rto` | the retransmission timeout | RFC 6298, RFC 7323 section 4 |
//! | `congestion` | how the window grows and shrinks | RFC 5681, RFC 3465, RFC 9406, RFC 9438, RFC 8257, Hybla, BBR, Prague, Linux |
//!
//! What it leaves out, because a simulator has no use for it: the segment size option (it is configured on both
//! sides), wrapping sequence numbers and the protection against them (PAWS, RFC 7323 section 5), urgent data,
//! Nagle's algorithm (which bulk senders and interactive applications alike turn off), keep-alives, and
//! the 2 MSL timer: a host frees a connection [in TIME-WAIT](Connection::in_time_wait) when it likes.

mod accurate;
mod ack;
mod config;
mod congestion;
mod connection;
mod delivery;
mod input;
mod output;
mod rack;
mod receive;
mod rto;
mod sack;
mod scoreboard;
mod segment;
mod sent;

/// Most ranges kept on each side [ranges]. Beyond it, a receiver discards out-of-order data (RFC 9293 section 3.8.6) and a
/// sender ignores SACK blocks, so that work and memory stay bounded.
const MAX_RANGES: usize = 4096;

/// Stream positions that arrived out of order or were SACKed.
type Ranges = crate::ranges::Ranges<MAX_RANGES>;

pub use config::{Config, Estimator};
pub use congestion::Algorithm;
pub use connection::{Connection, Stats};
pub use segment::{Ecn, Flags, Sack, Segment, Timestamps};
