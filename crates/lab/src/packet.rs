//! What links need to know of an IP packet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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
    /// Whether it carries more than headers.
    pub has_payload: bool,
    /// Its ECN field.
    pub ecn: Ecn,
}

const TCP: u8 = 6;
const UDP: u8 = 17;
const FRAGMENT: u8 = 44;
/// Extension headers of IPv6 that name the next one: hop by hop, routing, fragment, options (RFC 8200, section 4).
const EXTENSIONS: [u8; 4] = [0, 43, FRAGMENT, 60];

/// Reads a packet's headers; none where it is no whole IP packet.
#[must_use]
pub fn parse(packet: &[u8]) -> Option<Info> {
    match packet.first()? >> 4 {
        4 => parse_v4(packet),
        6 => parse_v6(packet),
        _ => None,
    }
}

fn parse_v4(packet: &[u8]) -> Option<Info> {
    let header = usize::from(packet[0] & 15) * 4;
    if header < 20 || packet.len() < header {
        return None;
    }
    let address = |at: usize| Some(IpAddr::V4(Ipv4Addr::from(four(packet, at)?)));
    // "More fragments", or an offset.
    let fragment = u16::from_be_bytes([packet[6], packet[7]]) & 0x3fff != 0;
    let body = &packet[header..];
    Some(finish(address(12)?, address(16)?, packet[9], fragment, body, packet[1]))
}

fn parse_v6(packet: &[u8]) -> Option<Info> {
    let address = |at: usize| {
        let bytes: [u8; 16] = packet.get(at..at + 16)?.try_into().ok()?;
        Some(IpAddr::V6(Ipv6Addr::from(bytes)))
    };
    let (src, dst) = (address(8)?, address(24)?);
    let class = (packet[0] << 4) | (packet[1] >> 4);
    let (mut next, mut at, mut fragment) = (packet[6], 40, false);
    // Few packets have any; more than eight have no sense.
    for _ in 0..8 {
        if !EXTENSIONS.contains(&next) {
            break;
        }
        let &[following, len, ..] = packet.get(at..)? else { return None };
        fragment |= next == FRAGMENT;
        at += if next == FRAGMENT { 8 } else { (usize::from(len) + 1) * 8 };
        next = following;
    }
    let body = packet.get(at..)?;
    Some(finish(src, dst, next, fragment, body, class))
}

fn four(packet: &[u8], at: usize) -> Option<[u8; 4]> {
    packet.get(at..at + 4)?.try_into().ok()
}

/// What the body says: the ports, and whether there is payload.
fn finish(src: IpAddr, dst: IpAddr, protocol: u8, fragment: bool, body: &[u8], class: u8) -> Info {
    let header = match protocol {
        _ if fragment => 0,
        TCP => body.get(12).map_or(0, |offset| usize::from(offset >> 4) * 4),
        UDP => 8,
        _ => 0,
    };
    let ports = match four(body, 0) {
        Some([a, b, c, d]) if !fragment && [TCP, UDP].contains(&protocol) => {
            (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
        }
        _ => (0, 0),
    };
    let mut ends = [(src, ports.0), (dst, ports.1)];
    ends.sort_unstable();
    let mut hash = u64::from(protocol);
    for (address, port) in ends {
        let (high, low) = match address {
            IpAddr::V4(address) => (0, u64::from(u32::from(address))),
            IpAddr::V6(address) => ((u128::from(address) >> 64) as u64, u128::from(address) as u64),
        };
        for word in [high, low, u64::from(port)] {
            hash = mix(hash ^ word);
        }
    }
    let ecn = match class & 3 {
        0 => Ecn::NotEct,
        1 => Ecn::Ect1,
        2 => Ecn::Ect,
        _ => Ecn::Ce,
    };
    Info { src, dst, connection: hash, has_payload: body.len() > header, ecn }
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

/// Sets the congestion mark of a packet whose ECN field allows it, and corrects IPv4's checksum.
pub fn set_ce(packet: &mut [u8]) {
    match packet.first().map(|first| first >> 4) {
        Some(4) if packet.len() >= 20 => {
            let before = u16::from_be_bytes([packet[0], packet[1]]);
            packet[1] |= 3;
            let after = u16::from_be_bytes([packet[0], packet[1]]);
            // HC' = ~(~HC + ~m + m') (RFC 1624, equation 3)
            let sum = u32::from(!u16::from_be_bytes([packet[10], packet[11]]))
                + u32::from(!before)
                + u32::from(after);
            let sum = (sum & 0xffff) + (sum >> 16);
            let sum = (sum & 0xffff) + (sum >> 16);
            packet[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        }
        Some(6) if packet.len() >= 40 => packet[1] |= 0x30,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10.1.0.1:80 to 10.3.0.2:4000, TCP with 20 bytes of header and so many of payload.
    fn tcp(payload: usize) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, TCP, 0, 0, 10, 1, 0, 1, 10, 3, 0, 2];
        packet.extend([0, 80, 0x0f, 0xa0]);
        packet.extend([0; 8]);
        packet.extend([0x50, 0x10, 0, 0, 0, 0, 0, 0]);
        packet.extend(vec![7; payload]);
        let sum = checksum(&packet);
        packet[10..12].copy_from_slice(&(!sum).to_be_bytes());
        packet
    }

    /// The ones' complement sum of a header of 20 bytes (RFC 791).
    fn checksum(packet: &[u8]) -> u16 {
        let sum: u32 = packet[..20].chunks(2).map(|b| u32::from(u16::from_be_bytes([b[0], b[1]]))).sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        ((sum & 0xffff) + (sum >> 16)) as u16
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

    /// A UDP header of IPv6 behind a fragment header and one of options.
    #[test]
    fn ipv6_is_read_through_its_extension_headers() {
        let mut packet = vec![0x60, 0x20, 0, 0, 0, 24, 60, 64];
        packet.extend([0xfd; 16]);
        packet.extend([0xfe; 16]);
        packet.extend([UDP, 0, 0, 0, 0, 0, 0, 0]);
        packet.extend([0x1f, 0x40, 0x4e, 0x20, 0, 8, 0, 0]);
        let info = parse(&packet).unwrap();
        assert_eq!(info.ecn, Ecn::Ect);
        assert!(!info.has_payload);
        packet.push(1);
        assert!(parse(&packet).unwrap().has_payload);
        let plain = parse(&packet).unwrap().connection;
        packet[6] = FRAGMENT;
        assert_ne!(parse(&packet).unwrap().connection, plain);
    }

    #[test]
    fn a_mark_keeps_the_checksum_right() {
        for before in 0..4u8 {
            let mut packet = tcp(10);
            packet[1] = 0xb8 | before;
            packet[10..12].copy_from_slice(&[0, 0]);
            let sum = checksum(&packet);
            packet[10..12].copy_from_slice(&(!sum).to_be_bytes());
            set_ce(&mut packet);
            assert_eq!(checksum(&packet), 0xffff);
            assert_eq!(parse(&packet).unwrap().ecn, Ecn::Ce);
        }
    }

    #[test]
    fn what_is_cut_short_is_no_packet_and_breaks_nothing() {
        let whole = tcp(10);
        for len in 0..whole.len() {
            let _ = parse(&whole[..len]);
            set_ce(&mut whole[..len].to_vec());
        }
        assert!(parse(&whole[..19]).is_none());
        let mut endless = vec![0x60, 0, 0, 0, 0, 0, 0, 64];
        endless.extend([0; 64]);
        assert!(parse(&endless).is_none_or(|info| !info.has_payload || info.connection != 0));
    }
}
