//! Flow numbers: how packets map to the flows that the gateway's queues tell apart.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;

use bentpipe_queue::FlowId;
use bentpipe_scenario::FlowKey;

use crate::config::Prefix;

/// Numbers for connections and users, by a hash with a random key: who does not know the key cannot choose addresses and
/// ports that share a number, or that lengthen the searches of tables by number.
#[derive(Clone, Default)]
pub struct FlowHasher(RandomState);

impl FlowHasher {
    /// The number for the traffic between a client and a server. Two pairs share one with a probability of 2^-32.
    #[must_use]
    pub fn pair(&self, client: SocketAddr, server: SocketAddr, protocol: u8) -> FlowId {
        FlowId(self.0.hash_one((client.ip(), client.port(), server.ip(), server.port(), protocol)) as u32)
    }

    /// The number for a TCP connection: [`Self::pair`].
    #[must_use]
    pub fn tcp(&self, client: SocketAddr, server: SocketAddr) -> FlowId {
        self.pair(client, server, bentpipe_packet::TCP)
    }

    /// The number for the user that a client is: its address.
    #[must_use]
    pub fn user(&self, client: SocketAddr) -> FlowId {
        FlowId(self.0.hash_one(client.ip()) as u32)
    }
}

/// Assigns packets to flows as `gateway.flow_key` says.
pub struct FlowClassifier {
    key: FlowKey,
    clients: Vec<Prefix>,
    hasher: FlowHasher,
}

impl FlowClassifier {
    /// The classifier by `key`; `clients` are the users' prefixes.
    pub fn new(key: FlowKey, clients: Vec<Prefix>, hasher: FlowHasher) -> Self {
        Self { key, clients, hasher }
    }

    /// The flow of a packet between a client and a server.
    #[must_use]
    pub fn flow(&self, client: SocketAddr, server: SocketAddr, protocol: u8) -> FlowId {
        match self.key {
            FlowKey::Connection => self.hasher.pair(client, server, protocol),
            FlowKey::User => self.user(client),
            FlowKey::Prefix => self
                .clients
                .iter()
                .position(|prefix| prefix.contains(client.ip()))
                .map_or(FlowId(u32::MAX), |at| FlowId(at as u32)),
        }
    }

    /// The user that a client is: its address.
    #[must_use]
    pub fn user(&self, client: SocketAddr) -> FlowId {
        self.hasher.user(client)
    }

    /// The flow of a TCP connection.
    #[must_use]
    pub fn tcp_flow(&self, client: SocketAddr, server: SocketAddr) -> FlowId {
        self.flow(client, server, bentpipe_packet::TCP)
    }

    /// The number of a TCP connection, whatever a flow is.
    #[must_use]
    pub fn connection(&self, client: SocketAddr, server: SocketAddr) -> FlowId {
        self.hasher.tcp(client, server)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn ends(port: u16) -> (SocketAddr, SocketAddr) {
        (SocketAddr::from(([10, 9, 0, 2], port)), SocketAddr::from(([192, 0, 2, 7], 443)))
    }

    /// Ports whose numbers share their low bits under one key, as an attacker would choose them, are spread under another.
    #[test]
    fn colliding_ports_of_one_key_are_spread_under_another() {
        let (known, other) = (FlowHasher::default(), FlowHasher::default());
        let bucket = |hasher: &FlowHasher, port| {
            let (client, server) = ends(port);
            hasher.tcp(client, server).0 % 256
        };
        let chosen: Vec<u16> = (1..=u16::MAX).filter(|port| bucket(&known, *port) == 0).collect();
        // 256 expected, with a standard deviation of 16.
        assert!((150..370).contains(&chosen.len()), "{}", chosen.len());
        let buckets: BTreeSet<u32> = chosen.iter().map(|port| bucket(&other, *port)).collect();
        // 256 balls in 256 boxes fill 162 of them, with a standard deviation of 5.
        assert!(buckets.len() > 90, "{}", buckets.len());
    }

    #[test]
    fn flows_are_told_apart_as_the_key_says() {
        let prefixes: Vec<Prefix> = ["10.8.0.0/24", "10.9.0.0/24"].map(|text| text.parse().unwrap()).into();
        let of = |key| FlowClassifier::new(key, prefixes.clone(), FlowHasher::default());
        let ((client, server), (another, _)) = (ends(1), ends(2));
        let connection = of(FlowKey::Connection);
        assert_eq!(connection.tcp_flow(client, server), connection.connection(client, server));
        assert_ne!(connection.tcp_flow(client, server), connection.tcp_flow(another, server));
        let user = of(FlowKey::User);
        assert_eq!(user.tcp_flow(client, server), user.tcp_flow(another, server));
        assert_eq!(user.tcp_flow(client, server), user.user(another));
        let prefix = of(FlowKey::Prefix);
        assert_eq!(prefix.tcp_flow(client, server), FlowId(1));
        assert_eq!(prefix.tcp_flow(server, client), FlowId(u32::MAX));
    }
}
