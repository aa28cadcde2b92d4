//! What links need to know of an IP packet.

use std::net::IpAddr;

use bentpipe_gatewayd::intercept::wire;
pub use bentpipe_gatewayd::intercept::wire::set_ce;
use bentpipe_queue::Ecn;

/// What is known of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Where it comes from.
    pub src: IpAddr,
    /// Where it goes.
    pub dst: IpAddr,
    /// A number that the packets of a connection have in common, those of both ways; fragments have that of their two
    /// hosts, for only the first tells the ports.
    pub connection: u64,
    /// Whether it carries more than TCP's headers. What is not TCP always does.
    pub has_payload: bool,
    /// Its ECN field.
    pub ecn: Ecn,
}

/// Reads a packet's headers; none where it is no IP packet.
#[must_use]
pub fn parse(packet: &[u8]) -> Option<Info> {
    let info = wire::parse(packet)?;
    let mut ends = [info.src, info.dst].map(|end| (end.ip(), if info.fragment { 0 } else { end.port() }));
    ends.sort_unstable();
    let mut hash = u64::from(info.protocol);
    for (address, port) in ends {
        let bits = match address {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        };
        for word in [(bits >> 64) as u64, bits as u64, u64::from(port)] {
            hash = mix(hash ^ word);
        }
    }
    Some(Info {
        src: info.src.ip(),
        dst: info.dst.ip(),
        connection: hash,
        has_payload: info.tcp.is_none_or(|tcp| tcp.payload > 0),
        ecn: info.ecn,
    })
}

/// Spreads every bit over all others (the finalizer of SplitMix64; Steele, Lea and Flood 2014).
#[must_use]
pub const fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

impl Info {
    /// Whether it concerns none but the two ends of this very link, such as the search for neighbours.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self.dst {
            IpAddr::V4(to) => to.is_multicast() && to.octets()[..3] == [224, 0, 0],
            // ff02::/16
            IpAddr::V6(to) => to.segments()[0] & 0xff0f == 0xff02,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10.1.0.1:80 to 10.3.0.2:4000, TCP with 20 bytes of header and so many of payload.
    fn tcp(payload: u16) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0, 10, 1, 0, 1, 10, 3, 0, 2];
        packet[2..4].copy_from_slice(&(40 + payload).to_be_bytes());
        packet.extend([0, 80, 0x0f, 0xa0]);
        packet.extend([0; 8]);
        packet.extend([0x50, 0x10, 0, 0, 0, 0, 0, 0]);
        packet.extend(vec![7; payload.into()]);
        packet
    }

    fn turned(mut packet: Vec<u8>) -> Vec<u8> {
        for i in 0..4 {
            packet.swap(12 + i, 16 + i);
        }
        packet.swap(20, 22);
        packet.swap(21, 23);
        packet
    }

    #[test]
    fn both_ways_of_a_connection_have_one_number_and_other_ports_another() {
        let there = parse(&tcp(100)).unwrap();
        let back = parse(&turned(tcp(0))).unwrap();
        assert_eq!(there.src, "10.1.0.1".parse::<IpAddr>().unwrap());
        assert_eq!((there.src, there.connection), (back.dst, back.connection));
        assert!(there.has_payload && !back.has_payload);
        let mut other = tcp(100);
        other[23] ^= 1;
        assert_ne!(parse(&other).unwrap().connection, there.connection);
    }

    #[test]
    fn fragments_have_one_number_whatever_stands_where_ports_would() {
        let (mut first, mut second) = (tcp(100), tcp(100));
        first[6] = 0x20;
        second[7] = 8;
        second[20..24].copy_from_slice(&[9, 9, 9, 9]);
        assert_eq!(parse(&first).unwrap().connection, parse(&second).unwrap().connection);
    }

    #[test]
    fn only_what_is_for_the_link_itself_is_local() {
        let to = |dst: &str| {
            let dst = dst.parse().unwrap();
            Info { src: dst, dst, connection: 0, has_payload: true, ecn: Ecn::NotEct }.is_local()
        };
        assert!(["224.0.0.22", "ff02::16", "ff12::1"].map(to).iter().all(|local| *local));
        assert!(
            ["224.0.1.1", "239.1.1.1", "10.0.0.1", "ff05::1", "fe80::1"].map(to).iter().all(|local| !local)
        );
    }
}
