//! IP packets as netfilter and TUN devices hand them over: what they say, and the two changes that a gateway makes.
//!
//! IPv4 (RFC 791) and IPv6 with its extension headers (RFC 8200), TCP (RFC 9293) with the options of its SYN (RFC 7323),
//! UDP (RFC 768), ECN (RFC 3168). Nothing is allocated, and nothing panics whatever the bytes are: a header that is cut
//! off, or contradicts itself, is not read. Payload may be missing; only headers are looked at.
//!
//! Changes keep checksums right by adding the difference (RFC 1624, equation 3), so that a packet whose checksum was
//! wrong before stays wrong: its receiver must still see that.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bentpipe_queue::Ecn;

/// Protocol number of TCP.
pub const TCP: u8 = 6;
/// Protocol number of UDP.
pub const UDP: u8 = 17;

/// TCP's flags, as in the 14th byte of its header.
pub mod flag {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// Synchronize sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Reset the connection.
    pub const RST: u8 = 0x04;
    /// The acknowledgement field counts.
    pub const ACK: u8 = 0x10;
    /// ECN-Echo.
    pub const ECE: u8 = 0x40;
    /// Congestion window reduced.
    pub const CWR: u8 = 0x80;
}

/// What a packet says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// 4 or 6.
    pub version: u8,
    /// Protocol above IP: of IPv6, what follows the extension headers that can be read.
    pub protocol: u8,
    /// Where it comes from; port 0 where there is none.
    pub src: SocketAddr,
    /// Where it goes; port 0 where there is none.
    pub dst: SocketAddr,
    /// Its length by its IP header, that header included [bytes].
    pub len: u32,
    /// Its ECN field.
    pub ecn: Ecn,
    /// Its TCP header, if it has one: a fragment other than the first has none.
    pub tcp: Option<TcpInfo>,
    /// Whether it is a part of a fragmented packet, be it the first.
    pub fragment: bool,
}

/// What a TCP header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpInfo {
    /// Sequence number of its first byte.
    pub seq: u32,
    /// Next byte that its sender expects.
    pub ack: u32,
    /// Window field, not scaled.
    pub window: u16,
    /// Its flags ([`flag`]).
    pub flags: u8,
    /// Payload [bytes].
    pub payload: u32,
    /// Window scale option, at most 14 (RFC 7323, section 2.3); only a SYN's is meant.
    pub scale: Option<u8>,
    /// Maximum segment size option [bytes].
    pub mss: Option<u16>,
}

/// Where a packet's parts are.
#[derive(Clone, Copy, Debug)]
struct Layout {
    version: u8,
    protocol: u8,
    /// Where the transport header begins [bytes].
    transport: usize,
    /// Length by the IP header [bytes].
    len: usize,
    fragment: bool,
    /// A fragment other than the first.
    later: bool,
}

/// Extension headers of IPv6 that are looked through; a packet with more of them has none that is read.
const EXTENSIONS: usize = 16;

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

fn long(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from(word(bytes, at)?) << 16 | u32::from(word(bytes, at + 2)?))
}

fn layout(packet: &[u8]) -> Option<Layout> {
    match packet.first()? >> 4 {
        4 => {
            let header = usize::from(packet[0] & 15) * 4;
            let len = usize::from(word(packet, 2)?);
            if header < 20 || packet.len() < header || len < header {
                return None;
            }
            let fragment = word(packet, 6)?;
            Some(Layout {
                version: 4,
                protocol: packet[9],
                transport: header,
                len,
                fragment: fragment & 0x3fff != 0,
                later: fragment & 0x1fff != 0,
            })
        }
        6 => {
            if packet.len() < 40 {
                return None;
            }
            // A payload length of 0 is that of a jumbogram (RFC 2675): what there is tells its length.
            let payload = usize::from(word(packet, 4)?);
            let len = if payload == 0 { packet.len() } else { 40 + payload };
            let (mut protocol, mut transport, mut fragment, mut later) = (packet[6], 40, false, false);
            for _ in 0..EXTENSIONS {
                let length = match protocol {
                    // Hop-by-hop, routing, destination options, mobility, HIP, shim6 (RFC 6564: all of one format).
                    0 | 43 | 60 | 135 | 139 | 140 => 8 + 8 * usize::from(*packet.get(transport + 1)?),
                    44 => {
                        let field = word(packet, transport + 2)?;
                        fragment |= field & 0xfff9 != 0;
                        later |= field & 0xfff8 != 0;
                        8
                    }
                    // Authentication header: its length is in words of 4 bytes, less 2 (RFC 4302, section 2.2).
                    51 => 8 + 4 * usize::from(*packet.get(transport + 1)?),
                    _ => break,
                };
                protocol = *packet.get(transport)?;
                transport += length;
                if later {
                    break;
                }
            }
            if transport > len {
                return None;
            }
            Some(Layout { version: 6, protocol, transport, len, fragment, later })
        }
        _ => None,
    }
}

/// Reads a packet's headers; none if it is no IP packet, or its IP header is cut off.
///
/// A transport header that is cut off, or contradicts itself, is as if it were not there.
#[must_use]
pub fn parse(packet: &[u8]) -> Option<Info> {
    let at = layout(packet)?;
    let tcp = tcp(packet, &at);
    // UDP's header has 8 bytes.
    let udp = at.protocol == UDP && !at.later && at.transport + 8 <= at.len.min(packet.len());
    let port =
        |offset| if udp || tcp.is_some() { word(packet, at.transport + offset).unwrap_or(0) } else { 0 };
    let (src, dst) = addresses(packet, at.version)?;
    let ecn = match ecn_bits(packet, at.version) {
        0 => Ecn::NotEct,
        1 => Ecn::Ect1,
        2 => Ecn::Ect,
        _ => Ecn::Ce,
    };
    Some(Info {
        version: at.version,
        protocol: at.protocol,
        src: SocketAddr::new(src, port(0)),
        dst: SocketAddr::new(dst, port(2)),
        len: at.len as u32,
        ecn,
        tcp,
        fragment: at.fragment,
    })
}

fn addresses(packet: &[u8], version: u8) -> Option<(IpAddr, IpAddr)> {
    if version == 4 {
        let at = |at| Some(IpAddr::V4(Ipv4Addr::from_bits(long(packet, at)?)));
        Some((at(12)?, at(16)?))
    } else {
        let at = |at: usize| {
            let octets: [u8; 16] = packet.get(at..at + 16)?.try_into().ok()?;
            Some(IpAddr::V6(Ipv6Addr::from(octets)))
        };
        Some((at(8)?, at(24)?))
    }
}

/// The last two bits of the traffic class, which of IPv6 lies across the first two bytes.
fn ecn_bits(packet: &[u8], version: u8) -> u8 {
    if version == 4 { packet[1] & 3 } else { packet[1] >> 4 & 3 }
}

/// The TCP header, if there is a whole one.
fn tcp(packet: &[u8], at: &Layout) -> Option<TcpInfo> {
    if at.protocol != TCP || at.later {
        return None;
    }
    let header = packet.get(at.transport..)?;
    let length = usize::from(header.get(12)? >> 4) * 4;
    // What the IP header counts, less both headers.
    let payload = at.len.checked_sub(at.transport + length)?;
    if length < 20 || header.len() < length {
        return None;
    }
    let (mut scale, mut mss) = (None, None);
    let mut options = &header[20..length];
    while let Some((&kind, rest)) = options.split_first() {
        match kind {
            0 => break,
            1 => options = rest,
            _ => {
                let Some(&size) = rest.first() else { break };
                let size = usize::from(size);
                if size < 2 || size > options.len() {
                    break;
                }
                match (kind, size) {
                    (2, 4) => mss = word(options, 2),
                    (3, 3) => scale = Some(options[2].min(14)),
                    _ => {}
                }
                options = &options[size..];
            }
        }
    }
    Some(TcpInfo {
        seq: long(header, 4)?,
        ack: long(header, 8)?,
        window: word(header, 14)?,
        flags: header[13],
        payload: payload as u32,
        scale,
        mss,
    })
}

/// A checksum after one 16-bit word that it covers has changed (RFC 1624, equation 3).
fn adjusted(checksum: u16, old: u16, new: u16) -> u16 {
    let mut sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    !(sum as u16)
}

fn put(packet: &mut [u8], at: usize, word: u16) {
    packet[at..at + 2].copy_from_slice(&word.to_be_bytes());
}

/// Sets the congestion mark (CE). True if the packet carries it afterwards; a packet whose transport does not understand
/// ECN is left alone.
pub fn set_ce(packet: &mut [u8]) -> bool {
    let Some(at) = layout(packet) else { return false };
    match ecn_bits(packet, at.version) {
        0 => return false,
        3 => return true,
        _ => {}
    }
    // The word that has the field, for the IPv4 header's checksum; IPv6 has none, and no transport's covers it.
    let (Some(old), Some(checksum)) = (word(packet, 0), word(packet, 10)) else { return false };
    if at.version == 4 {
        put(packet, 0, old | 3);
        put(packet, 10, adjusted(checksum, old, old | 3));
    } else {
        put(packet, 0, old | 0x30);
    }
    true
}

/// Sets TCP's window field. False if the packet has no TCP header.
pub fn set_window(packet: &mut [u8], window: u16) -> bool {
    let Some(at) = layout(packet) else { return false };
    let Some(TcpInfo { window: old, .. }) = tcp(packet, &at) else { return false };
    let Some(checksum) = word(packet, at.transport + 16) else { return false };
    put(packet, at.transport + 14, window);
    put(packet, at.transport + 16, adjusted(checksum, old, window));
    true
}

/// Where a packet's payload above TCP begins, if it has a TCP header [bytes].
#[must_use]
pub fn headers(packet: &[u8]) -> Option<usize> {
    let at = layout(packet)?;
    tcp(packet, &at)?;
    Some(at.transport + usize::from(packet[at.transport + 12] >> 4) * 4)
}

/// Writes a segment without payload that acknowledges what `packet` does, with this sequence number and window, and its
/// timestamps as the only option: a window update (RFC 9293, section 3.8.6) as its sender would send it next.
///
/// `out` is emptied first. False, and nothing is written, if `packet` has no TCP header, acknowledges nothing or is a SYN
/// or RST.
pub fn window_update(packet: &[u8], seq: u32, window: u16, out: &mut Vec<u8>) -> bool {
    out.clear();
    let Some(at) = layout(packet) else { return false };
    let Some(info) = tcp(packet, &at) else { return false };
    if info.flags & (flag::SYN | flag::RST) != 0 || info.flags & flag::ACK == 0 {
        return false;
    }
    let Some(timestamps) = timestamps(&packet[at.transport..]) else { return false };
    // IP header without options or extension headers, and not ECN-capable: no acknowledgement without data is (RFC 3168,
    // section 6.1.4).
    if at.version == 4 {
        out.extend_from_slice(&packet[..20]);
        out[0] = 0x45;
        out[1] &= !3;
    } else {
        out.extend_from_slice(&packet[..40]);
        out[1] &= !0x30;
        out[6] = TCP;
    }
    let start = out.len();
    out.extend_from_slice(&packet[at.transport..at.transport + 20]);
    let header = &mut out[start..];
    header[4..8].copy_from_slice(&seq.to_be_bytes());
    // ECE goes on until CWR comes (RFC 3168, section 6.1.3); CWR and PSH were the old packet's.
    header[13] = flag::ACK | info.flags & flag::ECE;
    put(header, 14, window);
    put(header, 16, 0);
    put(header, 18, 0);
    header[12] = header[12] & 0x0f | 0x50;
    if let Some(bytes) = timestamps {
        header[12] += 0x30;
        out.extend_from_slice(&[1, 1]);
        out.extend_from_slice(bytes);
    }
    let length = out.len() as u16;
    if at.version == 4 {
        put(out, 2, length);
        // An atomic packet needs no identification (RFC 6864, section 4.1).
        put(out, 4, 0);
        put(out, 6, 0x4000);
        put(out, 10, 0);
        let sum = checksum(&[&out[..20]]);
        put(out, 10, sum);
    } else {
        put(out, 4, length - 40);
    }
    let sum = {
        let addresses = if at.version == 4 { &out[12..20] } else { &out[8..40] };
        let length = (out.len() - start) as u16;
        checksum(&[addresses, &[0, TCP], &length.to_be_bytes(), &out[start..]])
    };
    put(out, start + 16, sum);
    true
}

/// The timestamps option, kind and length included; none if it is not there. The outer none: options that end early.
fn timestamps(header: &[u8]) -> Option<Option<&[u8]>> {
    let length = usize::from(header.get(12)? >> 4) * 4;
    let mut options = header.get(20..length)?;
    while let Some(&kind) = options.first() {
        match kind {
            0 => break,
            1 => options = &options[1..],
            _ => {
                let size = usize::from(*options.get(1)?);
                if size < 2 || size > options.len() {
                    return None;
                }
                if (kind, size) == (8, 10) {
                    return Some(Some(&options[..10]));
                }
                options = &options[size..];
            }
        }
    }
    Some(None)
}

/// The Internet checksum (RFC 1071) of parts one after the other, each but the last of even length.
#[must_use]
pub fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u64;
    for part in parts {
        let (words, rest) = part.as_chunks::<2>();
        sum += words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum::<u64>();
        if let [byte] = rest {
            sum += u64::from(*byte) << 8;
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
