//! The live gateway on Linux.
//!
//! Two ends, each a process with one loop: a *gateway* that faces the internet and a *terminal* that faces the users.
//! Both end TCP connections with the kernel's TCP and carry the bytes over a spacelink, streams of one QUIC connection;
//! what cannot be split goes beside them as datagrams.
//!
//! ```text
//!  servers ═ NFQUEUE ─ Aqm ─ kernel TCP ─ PEP ─ transmit queue, regulator ─ QUIC ~~ QUIC ─ PEP ─ kernel TCP ═ clients
//!            └──────────────────────── gateway ───────────────────────────┘    └────── terminal ──────┘
//! ```
//!
//! What decides about packets is the simulator's: [`bentpipe_gateway::Gateway`] is the same code, told real times. This
//! crate is its host.

pub mod config;
pub mod event_loop;
pub mod intercept;
pub mod observe;
pub mod relay;
pub mod sys;
