//! TCP against the texts of the RFCs: traces worked out by hand, and properties over channels that lose,
//! reorder and duplicate.

mod channel;
mod closing;
mod congestion;
mod ecn;
mod handshake;
mod loss;
mod pacing;
mod properties;
mod sack;
mod timeout;
mod trace;
mod window;

use bentpipe_transport::tcp::{Connection, Segment};

/// What SACK needs lies apart, for those connections only that use it.
#[test]
fn a_connection_takes_no_more_than_328_bytes() {
    assert!(size_of::<Connection>() <= 328, "{}", size_of::<Connection>());
}

/// Of which three SACK blocks take 24.
#[test]
fn a_segment_takes_no_more_than_56_bytes() {
    assert!(size_of::<Segment>() <= 56, "{}", size_of::<Segment>());
}
