//! SCTP (RFC 9260) over one path, as a state machine without input or output.
//!
//! An [`Association`] is one endpoint. Its host
//! - hands in what arrives, [`Association::on_packet`];
//! - after anything it did, takes out what is to be sent, [`Association::poll_transmit`], until there is no more;
//! - comes back when [`Association::poll_timeout`] says, with [`Association::handle_timeout`].
//!
//! Payload is virtual: an application hands over messages of so many bytes, and takes out a number of bytes. There is
//! one stream, and it is ordered.
//!
//! | file | what | source |
//! |---|---|---|
//! | `association` | the endpoint, its states and its interface | RFC 9260 section 4 |
//! | `input` | what a packet changes: set-up and shutdown | RFC 9260 sections 5, 8.4, 9 |
//! | `sack` | what a SACK changes: congestion control, fast retransmit | RFC 9260 sections 6.2.1, 7.2 |
//! | `output` | what may be sent, and timers | RFC 9260 sections 6.1, 6.3, 6.9, 6.10 |
//! | `receive` | reassembly, gaps, the advertised window, delayed SACKs | RFC 9260 sections 6.2, 6.7, 6.9 |
//! | `rto` | the retransmission timeout | RFC 9260 section 6.3.1 |
//!
//! What it leaves out, because a simulator of one path has no use for it: wrapping TSNs (they are 64 bits wide and
//! begin at one), verification tags, checksums, several streams and unordered data, multi-homing and the heartbeats
//! that watch over idle paths (so that Path.Max.Retrans, HB.interval and HB.Max.Burst have nothing to say), and DATA
//! in the packet of a COOKIE ECHO, which section 5.1 permits and does not ask for.

mod association;
mod config;
mod input;
mod output;
mod packet;
mod receive;
mod rto;
mod sack;

pub use association::{Association, Stats};
pub use config::Config;
pub use packet::{Control, Cookie, Data, MAX_CHUNKS, Packet, Sack};
