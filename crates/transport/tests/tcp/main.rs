//! TCP against the texts of the RFCs: traces worked out by hand, and properties over channels that lose,
//! reorder and duplicate.

mod accurate;
mod channel;
mod closing;
mod congestion;
mod ecn;
mod handshake;
mod loss;
mod options;
mod pacing;
mod properties;
mod rack;
mod sack;
#[path = "../script/mod.rs"]
mod script;
mod timeout;
mod trace;
mod window;

use bentpipe_transport::tcp::{Connection, Segment};

/// What SACK needs lies apart, and what BBR and HyStart++ do, for those connections only that use it.
#[test]
fn a_connection_takes_no_more_than_368_bytes() {
    assert!(size_of::<Connection>() <= 368, "{}", size_of::<Connection>());
}

/// Of which three SACK blocks take 24: a cache line.
#[test]
fn a_segment_takes_no_more_than_64_bytes() {
    assert!(size_of::<Segment>() <= 64, "{}", size_of::<Segment>());
}
