//! Flow numbers: how packets map to the flows that the gateway's queues tell apart.

use std::net::{IpAddr, SocketAddr};

use bentpipe_queue::FlowId;
use bentpipe_scenario::FlowKey;

use crate::config::Prefix;

/// Assigns packets to flows as `gateway.flow_key` says.
pub struct FlowClassifier {
    key: FlowKey,
    clients: Vec<Prefix>,
}

impl FlowClassifier {
    /// The classifier by `key`; `clients` are the users' prefixes.
    pub fn new(key: FlowKey, clients: Vec<Prefix>) -> Self {
        Self { key, clients }
    }

    /// The flow of a packet between a client and a server.
    #[must_use]
    pub fn flow(&self, client: SocketAddr, server: SocketAddr, protocol: u8) -> FlowId {
        match self.key {
            FlowKey::Connection => pair_number(client, server, protocol),
            FlowKey::User => hash(&[bits(client.ip())]),
            FlowKey::Prefix => self
                .clients
                .iter()
                .position(|prefix| prefix.contains(client.ip()))
                .map_or(FlowId::MAX, |at| at as FlowId),
        }
    }

    /// The flow of a TCP connection.
    #[must_use]
    pub fn tcp_flow(&self, client: SocketAddr, server: SocketAddr) -> FlowId {
        self.flow(client, server, bentpipe_packet::TCP)
    }
}

/// An address as a number.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// A number for the traffic between a client and a server. Two pairs share one with a probability of 2^-32.
pub fn pair_number(client: SocketAddr, server: SocketAddr, protocol: u8) -> FlowId {
    let ends = u128::from(client.port()) << 32 | u128::from(server.port()) << 16 | u128::from(protocol);
    hash(&[bits(client.ip()), bits(server.ip()), ends])
}

/// A number for a TCP connection: [`pair_number`].
pub fn tcp_pair(client: SocketAddr, server: SocketAddr) -> FlowId {
    pair_number(client, server, bentpipe_packet::TCP)
}

/// Hash of words: the output function of SplitMix64.
fn hash(words: &[u128]) -> FlowId {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for half in words.iter().flat_map(|word| [*word as u64, (*word >> 64) as u64]) {
        state = (state ^ half).wrapping_add(0x9e37_79b9_7f4a_7c15);
        state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^= state >> 31;
    }
    (state >> 32) as FlowId
}
