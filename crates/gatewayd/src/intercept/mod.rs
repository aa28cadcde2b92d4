//! Interception of packets: netfilter queues, the rules that fill them, and the rewriting of packets.

pub mod inject;
pub mod interceptor;
pub mod netlink;
pub mod nfqueue;
pub mod offload;
pub mod rules;
pub mod steering;
pub mod terminal_routes;
mod verdicts;
pub mod windows;
