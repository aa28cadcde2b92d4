//! New packets: window updates, and the IPv4 header that they share with captures.

use etherparse::checksum::Sum16BitWords;
use etherparse::{IpEcn, IpNumber, Ipv4Header, Ipv6Header, TcpHeader};

use crate::parse::{Ip, Layout, options};

/// Time to live of a packet from this host (RFC 1700).
const TTL: u8 = 64;

/// An IPv4 header without options for `payload` bytes, at most [`u16::MAX`] less its own length: not ECN-capable, never
/// fragmented and thus without an identification (RFC 6864, section 4.1).
///
/// `Ipv4Header::write` fills in the checksum.
#[must_use]
pub fn ipv4_header(source: [u8; 4], destination: [u8; 4], protocol: IpNumber, payload: u16) -> Ipv4Header {
    Ipv4Header {
        total_len: payload.saturating_add(Ipv4Header::MIN_LEN as u16),
        dont_fragment: true,
        time_to_live: TTL,
        protocol,
        source,
        destination,
        ..Ipv4Header::default()
    }
}

/// Writes a window update (RFC 9293, section 3.8.6): a segment without payload that has the acknowledgement number of
/// `packet`, sequence number `seq`, window field `window`, and the timestamps of `packet` as its only option.
///
/// `out` is cleared first. Returns false, and writes nothing, if `packet` has no TCP header, has malformed options, has
/// no ACK flag, or is a SYN or RST.
pub fn window_update(packet: &[u8], seq: u32, window: u16, out: &mut Vec<u8>) -> bool {
    out.clear();
    build_update(packet, seq, window, out).is_some()
}

fn build_update(packet: &[u8], seq: u32, window: u16, out: &mut Vec<u8>) -> Option<()> {
    let at = Layout::of(packet)?;
    let old = at.tcp(packet).filter(|tcp| tcp.ack() && !tcp.syn() && !tcp.rst())?;
    let mut tcp = TcpHeader::new(old.source_port(), old.destination_port(), seq, window);
    tcp.acknowledgment_number = old.acknowledgment_number();
    // ECE is repeated until CWR arrives (RFC 3168, section 6.1.3).
    (tcp.ack, tcp.ece, tcp.ns) = (true, old.ece(), old.ns());
    match options(old.options()).find(|option| matches!(option, Err(_) | Ok([8, 10, ..]))) {
        None => {}
        Some(Ok(timestamps)) => {
            // Two no-operations align the values, as in RFC 7323, appendix A.
            let mut padded = [1; 12];
            padded[2..].copy_from_slice(timestamps);
            tcp.set_options_raw(&padded).ok()?;
        }
        Some(Err(_)) => return None,
    }
    // Acknowledgements without data are not ECN-capable (RFC 3168, section 6.1.4).
    match at.ip {
        Ip::V4(old) => {
            let ip = Ipv4Header {
                dscp: old.dcp(),
                time_to_live: old.ttl(),
                ..ipv4_header(old.source(), old.destination(), IpNumber::TCP, tcp.header_len_u16())
            };
            tcp.checksum = tcp.calc_checksum_ipv4(&ip, &[]).ok()?;
            ip.write(out).ok()?;
        }
        Ip::V6(old) => {
            let mut ip = Ipv6Header {
                payload_length: tcp.header_len_u16(),
                next_header: IpNumber::TCP,
                ..old.to_header()
            };
            ip.set_ecn(IpEcn::NotEct);
            tcp.checksum = tcp.calc_checksum_ipv6(&ip, &[]).ok()?;
            out.extend_from_slice(&ip.to_bytes());
        }
    }
    out.extend_from_slice(&tcp.to_bytes());
    Some(())
}

/// The Internet checksum (RFC 1071) over consecutive parts, all but the last of even length.
#[must_use]
pub fn checksum(parts: &[&[u8]]) -> u16 {
    parts.iter().fold(Sum16BitWords::new(), |sum, part| sum.add_slice(part)).ones_complement().to_be()
}
