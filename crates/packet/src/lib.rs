//! IPv4, IPv6, TCP and UDP packets: [`parse`] reads their headers, [`rewrite`] changes them in place, [`build`] writes
//! new ones.
//!
//! The packets are those that netfilter and TUN devices hand over: they begin with the IP header and may be truncated
//! anywhere. Nothing here allocates per packet, and no input panics. etherparse reads the fixed headers and writes new
//! ones. The chain of IPv6 extension headers and TCP's options are read here: etherparse stops at the headers of Mobile
//! IPv6, HIP and shim6, at a hop-by-hop header that is not the first, and at TCP options that it does not know.

pub mod build;
pub mod parse;
pub mod rewrite;

pub use parse::{Info, TCP, TcpInfo, UDP, connection_hash, flag, header_len, parse};
pub use rewrite::{set_ce, set_window};
