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
mod timeout;
mod trace;
mod window;

use bentpipe_transport::tcp::{Connection, Segment};

#[test]
fn a_connection_takes_no_more_than_320_bytes() {
    assert!(size_of::<Connection>() <= 320, "{}", size_of::<Connection>());
}

#[test]
fn a_segment_takes_no_more_than_40_bytes() {
    assert!(size_of::<Segment>() <= 40, "{}", size_of::<Segment>());
}
