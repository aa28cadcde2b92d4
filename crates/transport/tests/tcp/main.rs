//! TCP against the texts of the RFCs: hand-worked traces, and properties over channels that lose, reorder and
//! duplicate.

mod accurate;
#[path = "../channel/mod.rs"]
mod channel;
mod closing;
mod congestion;
mod delivery;
mod ecn;
mod handshake;
mod loss;
mod ns2;
mod options;
mod pacing;
mod properties;
mod rack;
mod sack;
#[path = "../script/mod.rs"]
mod script;
mod segments;
mod state;
mod timeout;
mod trace;
mod transfer;
mod window;

use bentpipe_transport::tcp::{Connection, Segment};

/// State for SACK, BBR and HyStart++ is allocated separately, only for connections that use it.
#[test]
fn a_connection_takes_no_more_than_368_bytes() {
    assert!(size_of::<Connection>() <= 368, "{}", size_of::<Connection>());
}

/// One cache line, of which three SACK blocks take 24 bytes.
#[test]
fn a_segment_takes_no_more_than_64_bytes() {
    assert!(size_of::<Segment>() <= 64, "{}", size_of::<Segment>());
}
