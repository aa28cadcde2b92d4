//! SCTP against the text of RFC 9260: traces worked out by hand, and properties over channels that lose, reorder and
//! duplicate.

mod channel;
mod congestion;
mod loss;
mod properties;
mod receiver;
#[path = "../script/mod.rs"]
mod script;
mod setup;
mod trace;
