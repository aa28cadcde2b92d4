//! SCTP (RFC 9260) over a single path as a sans-IO state machine.
//!
//! An [`Association`] is one endpoint. Its host
//! - passes in each arriving packet with [`Association::on_packet`];
//! - after every call, takes out the packets to send with [`Association::poll_transmit`], until it returns `None`;
//! - calls [`Association::handle_timeout`] at [`Association::poll_timeout`].
//!
//! Payload is virtual: the application writes messages of given lengths and reads numbers of bytes. There is one
//! ordered stream.
//!
//! `Association` owns the send variables, the association state and its one timer; its `impl` is spread over four files
//! by RFC section. `Receiver` and `Rto` are parts with their own state.
//!
//! | file | contents | source |
//! |---|---|---|
//! | `association` | state and public interface | RFC 9260 section 4 |
//! | `input` | arriving packets: association setup and shutdown | RFC 9260 sections 5, 8.4, 9 |
//! | `sack` | SACK processing: congestion control, fast retransmit | RFC 9260 sections 6.2.1, 7.2 |
//! | `output` | packets to send, timers | RFC 9260 sections 6.1, 6.3, 6.9, 6.10 |
//! | `receive` | reassembly, gaps, the advertised window, delayed SACKs | RFC 9260 sections 6.2, 6.7, 6.9 |
//! | `rto` | retransmission timeout | RFC 9260 section 6.3.1 |
//!
//! Not implemented, because a simulator of a single path has no use for it: wrapping TSNs (they have 64 bits and start
//! at one), verification tags, checksums, multiple streams and unordered data, multi-homing and heartbeats (hence no
//! Path.Max.Retrans, HB.interval and HB.Max.Burst), and DATA in the packet of a COOKIE ECHO, which section 5.1 permits
//! but does not require.

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
