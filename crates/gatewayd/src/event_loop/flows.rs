//! Flow numbers: how packets map to the flows that the gateway's queues tell apart.

use std::net::SocketAddr;

use bentpipe_packet::connection_hash;
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
            FlowKey::User => Self::user(client),
            FlowKey::Prefix => self
                .clients
                .iter()
                .position(|prefix| prefix.contains(client.ip()))
                .map_or(FlowId(u32::MAX), |at| FlowId(at as u32)),
        }
    }

    /// The user that a client is: its address.
    #[must_use]
    pub fn user(client: SocketAddr) -> FlowId {
        let user = SocketAddr::new(client.ip(), 0);
        FlowId(connection_hash(user, user, 0) as u32)
    }

    /// The flow of a TCP connection.
    #[must_use]
    pub fn tcp_flow(&self, client: SocketAddr, server: SocketAddr) -> FlowId {
        self.flow(client, server, bentpipe_packet::TCP)
    }
}

/// A number for the traffic between a client and a server. Two pairs share one with a probability of 2^-32.
pub fn pair_number(client: SocketAddr, server: SocketAddr, protocol: u8) -> FlowId {
    FlowId(connection_hash(client, server, protocol) as u32)
}

/// A number for a TCP connection: [`pair_number`].
pub fn tcp_pair(client: SocketAddr, server: SocketAddr) -> FlowId {
    pair_number(client, server, bentpipe_packet::TCP)
}
