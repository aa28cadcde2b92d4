//! Gateways: the queues of each, and its terminals, each with the PEP link and the PEP's buffers for it.

mod carrier;
mod node;
mod pep_delay;
mod terminal;

pub use carrier::{CarrierNode, ReturnCarrierNode};
pub use node::GatewayNode;
pub use terminal::{SplitStream, Terminal};
