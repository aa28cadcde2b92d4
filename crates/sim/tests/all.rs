//! Tests of the simulator in one program, since every test program is linked separately.

mod arrows;
mod bbr_cases;
mod bottlenecks;
mod classes;
mod closed_forms;
mod common;
mod congestion;
mod dash;
mod determinism;
mod external_aqm;
mod fair_queueing;
mod identities;
mod l4s;
mod links;
mod mesh;
mod observation;
mod pools;
mod queueing;
mod quic;
mod ranking;
mod scone;
mod terminals;
mod traffic;
mod transports;
mod uploads;
mod windows;
