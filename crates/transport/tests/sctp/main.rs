//! SCTP against the text of RFC 9260: hand-worked traces, and properties over channels that lose, reorder and
//! duplicate.

#[path = "../channel/mod.rs"]
mod channel;
mod congestion;
mod loss;
mod properties;
mod receiver;
#[path = "../script/mod.rs"]
mod script;
mod setup;
mod trace;
mod transfer;
