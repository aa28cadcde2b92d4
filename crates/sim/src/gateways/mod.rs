//! Gateways: each with the PEP's buffers, and the PEP link to its terminal.

mod node;
mod pep_delay;

pub use node::{GatewayNode, SplitStream};
