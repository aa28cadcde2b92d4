//! Tests of the simulator, in one program: each program more is linked once more.

mod arrows;
mod by_hand;
mod common;
mod congestion;
mod determinism;
mod external_aqm;
mod fair_queueing;
mod identities;
mod l4s;
mod links;
mod queueing;
mod ranking;
mod traffic;
mod transports;
mod watch;
mod windows;
