//! ACK filtering (RFC 3449, section 5.2.1): an acknowledgement without data takes the place of an older one of its
//! connection that waits, unless either has SACK blocks or other flags.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bentpipe_packet::{Info, TcpInfo, flag, parse};

use super::gateway_host::{GatewayHost, Item, ItemId};

/// The latest acknowledgement of each connection that was put into the queue, by sender and receiver. It may have left since.
#[derive(Debug, Default)]
pub struct AckFilter {
    waiting: BTreeMap<(SocketAddr, SocketAddr), ItemId>,
}

impl AckFilter {
    /// Replaces an older acknowledgement of the same connection that waits. Returns false if it cannot: queue the packet and call
    /// [`AckFilter::queued`].
    pub fn replaces(&self, info: &Info, packet: &[u8], host: &mut GatewayHost) -> bool {
        let Some(new) = pure_ack(info) else { return false };
        let Some(&id) = self.waiting.get(&(info.src, info.dst)) else { return false };
        let Some(Item::Datagram { bytes: old, .. }) = host.item_mut(id) else { return false };
        // Another connection's packet may have the handle by now.
        let waiting = parse(old).filter(|other| (other.src, other.dst) == (info.src, info.dst));
        let Some(older) = waiting.and_then(|other| pure_ack(&other)) else { return false };
        // Sequence numbers wrap (RFC 9293, section 3.4).
        let is_news = (1..1 << 31).contains(&new.ack.wrapping_sub(older.ack));
        // Another length would need another place in the queue.
        if older.flags != new.flags || !is_news || old.len() != packet.len() {
            return false;
        }
        old.copy_from_slice(packet);
        true
    }

    /// A packet is queued.
    pub fn queued(&mut self, info: &Info, id: ItemId, host: &GatewayHost) {
        if pure_ack(info).is_none() {
            return;
        }
        if self.waiting.len() > 2 * host.items() + SLACK {
            self.waiting.retain(|ends, id| is_between(host.item(*id), *ends));
        }
        self.waiting.insert((info.src, info.dst), id);
    }
}

/// Connections beyond two for each item after which those without a waiting packet are forgotten.
const SLACK: usize = 1000;

/// The TCP header if the packet only acknowledges.
fn pure_ack(info: &Info) -> Option<TcpInfo> {
    let signals = flag::SYN | flag::FIN | flag::RST;
    info.tcp
        .filter(|tcp| tcp.payload == 0 && tcp.flags & flag::ACK != 0 && tcp.flags & signals == 0 && !tcp.sack)
}

/// True if an item is a packet between these ends: another item may have the handle by now.
fn is_between(item: Option<&Item>, ends: (SocketAddr, SocketAddr)) -> bool {
    matches!(item, Some(Item::Datagram { bytes, .. }) if parse(bytes).is_some_and(|info| (info.src, info.dst) == ends))
}

#[cfg(test)]
mod tests {
    use bentpipe_queue::aqm::droptail::DropTail;
    use bentpipe_spacelink::PeerId;
    use bentpipe_units::Instant;

    use super::*;
    use crate::config::Config;

    fn host() -> GatewayHost {
        let text = "role = \"gateway\"\n[gateway]\nregulator = { rate = \"20 Mbps\" }\n\
            [satellite]\nlocal = \"10.2.0.1:4400\"\npeer = \"10.2.0.2:4400\"\nkeys = \"keys\"\n\
            [internet]\ndevice = \"in0\"\nclients = [\"10.3.0.0/24\"]\n";
        let config = Config::parse(text, "g.toml").unwrap();
        let gateway = config.gateway.config(None, None).unwrap().build(Box::new(DropTail), 1);
        GatewayHost::new(gateway, config.rate(), Instant::ZERO)
    }

    /// A segment without data from a port, with a TCP header of 20 bytes and options (RFC 791, RFC 9293).
    fn segment(port: u16, number: u32, flags: u8, options: &[u8]) -> Vec<u8> {
        let header = 20 + options.len();
        let mut packet =
            vec![0x45, 0, 0, (20 + header) as u8, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 3, 0, 7, 10, 1, 0, 1];
        packet.extend(port.to_be_bytes());
        packet.extend([0, 80, 0, 0, 0, 0]);
        packet.extend(number.to_be_bytes());
        packet.extend([(header as u8 / 4) << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
        packet.extend(options);
        packet
    }

    /// Queues a packet; returns its item, or `None` if it took the place of another.
    fn offer(filter: &mut AckFilter, host: &mut GatewayHost, packet: &[u8]) -> Option<ItemId> {
        let info = parse(packet).expect("a packet");
        if filter.replaces(&info, packet, host) {
            return None;
        }
        let id = host.insert(Item::Datagram { peer: PeerId(0), bytes: packet.to_vec() });
        filter.queued(&info, id, host);
        Some(id)
    }

    fn bytes(host: &GatewayHost, id: ItemId) -> Vec<u8> {
        match host.item(id) {
            Some(Item::Datagram { bytes, .. }) => bytes.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_newer_acknowledgement_takes_the_place_of_one_that_waits() {
        let (mut filter, mut host) = (AckFilter::default(), host());
        let first = offer(&mut filter, &mut host, &segment(5000, u32::MAX - 9, flag::ACK, &[])).unwrap();
        // The numbers wrap.
        let newer = segment(5000, 20, flag::ACK, &[]);
        assert_eq!(offer(&mut filter, &mut host, &newer), None);
        assert_eq!(bytes(&host, first), newer);
        // Another connection, and the same once the first has left.
        assert!(offer(&mut filter, &mut host, &segment(5001, 20, flag::ACK, &[])).is_some());
        host.take(first);
        assert!(offer(&mut filter, &mut host, &segment(5000, 40, flag::ACK, &[])).is_some());
    }

    /// The first acknowledgement has left, and that of another connection has its handle.
    #[test]
    fn an_acknowledgement_of_another_connection_is_not_replaced() {
        let (mut filter, mut host) = (AckFilter::default(), host());
        let first = offer(&mut filter, &mut host, &segment(5000, 20, flag::ACK, &[])).unwrap();
        host.take(first);
        let other = segment(5001, 20, flag::ACK, &[]);
        assert_eq!(offer(&mut filter, &mut host, &other), Some(first));
        assert!(offer(&mut filter, &mut host, &segment(5000, 40, flag::ACK, &[])).is_some());
        assert_eq!(bytes(&host, first), other);
    }

    #[test]
    fn acknowledgements_that_tell_more_stay() {
        let sack = [1, 1, 5, 10, 0, 0, 0, 50, 0, 0, 0, 60];
        for (first, second) in [
            // No news, older, other flags, SACK blocks in either.
            (segment(5000, 20, flag::ACK, &[]), segment(5000, 20, flag::ACK, &[])),
            (segment(5000, 20, flag::ACK, &[]), segment(5000, 19, flag::ACK, &[])),
            (segment(5000, 20, flag::ACK, &[]), segment(5000, 21, flag::ACK | flag::ECE, &[])),
            (segment(5000, 20, flag::ACK, &[]), segment(5000, 21, flag::ACK | flag::FIN, &[])),
            (segment(5000, 20, flag::ACK, &[]), segment(5000, 21, flag::ACK | flag::RST, &[])),
            (segment(5000, 20, flag::ACK, &sack), segment(5000, 21, flag::ACK, &sack)),
            (segment(5000, 20, flag::ACK, &sack), segment(5000, 21, flag::ACK, &[1; 12])),
        ] {
            let (mut filter, mut host) = (AckFilter::default(), host());
            let id = offer(&mut filter, &mut host, &first).unwrap();
            assert!(offer(&mut filter, &mut host, &second).is_some(), "{first:?} {second:?}");
            assert_eq!(bytes(&host, id), first);
        }
    }

    #[test]
    fn connections_without_a_waiting_packet_are_forgotten() {
        let (mut filter, mut host) = (AckFilter::default(), host());
        for port in 0..10_000 {
            let id = offer(&mut filter, &mut host, &segment(port, 20, flag::ACK, &[])).unwrap();
            host.take(id);
        }
        assert!(filter.waiting.len() <= SLACK + 3, "{}", filter.waiting.len());
    }
}
