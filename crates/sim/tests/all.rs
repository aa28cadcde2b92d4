//! Tests of the simulator, in one program: each program more is linked once more.

mod arrows;
mod by_hand;
mod common;
mod congestion;
mod determinism;
mod fair_queueing;
mod given;
mod identities;
mod l4s;
mod links;
mod queueing;
mod ranking;
mod traffic;
mod transports;
mod watch;
mod windows;
