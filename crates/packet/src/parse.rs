//! Headers of a packet: IPv4 (RFC 791), IPv6 with extension headers (RFC 8200), TCP (RFC 9293) with the options of its
//! SYN (RFC 7323), UDP (RFC 768), ECN (RFC 3168).
//!
//! A header that is truncated or contradicts itself counts as absent. Payload may be missing.

use std::net::{IpAddr, SocketAddr};

use bentpipe_queue::Ecn;
use bentpipe_units::mix;
use etherparse::{IpEcn, Ipv4HeaderSlice, Ipv6HeaderSlice, TcpHeaderSlice, UdpHeader};

/// Protocol number of TCP.
pub const TCP: u8 = 6;
/// Protocol number of UDP.
pub const UDP: u8 = 17;

/// Flags in the 14th byte of a TCP header.
pub mod flag {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// Synchronize sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Reset the connection.
    pub const RST: u8 = 0x04;
    /// The acknowledgement number is valid.
    pub const ACK: u8 = 0x10;
    /// ECN-Echo.
    pub const ECE: u8 = 0x40;
    /// Congestion window reduced.
    pub const CWR: u8 = 0x80;
}

/// Fields of a packet's headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// IP version, 4 or 6.
    pub version: u8,
    /// Protocol above IP; for IPv6, the protocol after the extension headers.
    pub protocol: u8,
    /// Source; port 0 if the packet has no port.
    pub src: SocketAddr,
    /// Destination; port 0 if the packet has no port.
    pub dst: SocketAddr,
    /// Length according to the IP header, that header included [bytes].
    pub len: u32,
    /// ECN field.
    pub ecn: Ecn,
    /// Differentiated services codepoint (RFC 2474).
    pub dscp: u8,
    /// TCP header; `None` for other protocols and for fragments other than the first.
    pub tcp: Option<TcpInfo>,
    /// True for every fragment of a fragmented packet, the first included.
    pub fragment: bool,
}

/// Fields of a TCP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpInfo {
    /// Sequence number of the first byte.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// Window field, not scaled.
    pub window: u16,
    /// Flags, see [`flag`].
    pub flags: u8,
    /// Length of the payload [bytes].
    pub payload: u32,
    /// Window scale option, at most 14 (RFC 7323, section 2.3). Only valid on a SYN.
    pub scale: Option<u8>,
    /// Maximum segment size option [bytes].
    pub mss: Option<u16>,
    /// True if it has SACK blocks (RFC 2018, section 3).
    pub sack: bool,
}

impl Info {
    /// Hash of the connection, see [`connection_hash`]. All fragments between two hosts share one hash, since only the
    /// first fragment of a packet carries the ports.
    #[must_use]
    pub fn connection(&self) -> u64 {
        let end = |end: SocketAddr| if self.fragment { SocketAddr::new(end.ip(), 0) } else { end };
        connection_hash(end(self.src), end(self.dst), self.protocol)
    }

    /// True unless the packet is a TCP segment without data.
    #[must_use]
    pub fn has_payload(&self) -> bool {
        self.tcp.is_none_or(|tcp| tcp.payload > 0)
    }

    /// True if the destination is a multicast group of link-local scope (neighbour discovery, IGMP, MLD).
    #[must_use]
    pub fn is_link_local_multicast(&self) -> bool {
        match self.dst.ip() {
            IpAddr::V4(to) => to.octets()[..3] == [224, 0, 0],
            // ff02::/16 with any flags
            IpAddr::V6(to) => to.segments()[0] & 0xff0f == 0xff02,
        }
    }
}

/// Hash of a connection, the same for both directions.
#[must_use]
pub fn connection_hash(a: SocketAddr, b: SocketAddr, protocol: u8) -> u64 {
    let mut ends = [a, b].map(|end| (end.ip(), end.port()));
    ends.sort_unstable();
    let mut hash = u64::from(protocol);
    for (address, port) in ends {
        let bits = match address {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        };
        for word in [(bits >> 64) as u64, bits as u64, u64::from(port)] {
            hash = mix(hash ^ word);
        }
    }
    hash
}

/// Reads a packet's headers. `None` if it is not an IP packet or its IP header is truncated or invalid.
#[must_use]
pub fn parse(packet: &[u8]) -> Option<Info> {
    let at = Layout::of(packet)?;
    let tcp = at.tcp(packet).and_then(|header| at.tcp_info(&header));
    let has_ports = tcp.is_some() || at.has_udp(packet);
    let port = |offset| if has_ports { word(packet, at.transport + offset).unwrap_or(0) } else { 0 };
    let (version, src, dst): (u8, IpAddr, IpAddr) = match &at.ip {
        Ip::V4(ip) => (4, ip.source_addr().into(), ip.destination_addr().into()),
        Ip::V6(ip) => (6, ip.source_addr().into(), ip.destination_addr().into()),
    };
    Some(Info {
        version,
        protocol: at.protocol,
        src: SocketAddr::new(src, port(0)),
        dst: SocketAddr::new(dst, port(2)),
        len: at.len as u32,
        ecn: ecn(&at.ip),
        dscp: match &at.ip {
            Ip::V4(ip) => ip.dcp().value(),
            Ip::V6(ip) => ip.dscp().value(),
        },
        tcp,
        fragment: at.fragment,
    })
}

/// Length of the IP and TCP headers together [bytes]; `None` if the packet has no TCP header.
#[must_use]
pub fn header_len(packet: &[u8]) -> Option<usize> {
    let at = Layout::of(packet)?;
    Some(at.transport + at.tcp(packet)?.slice().len())
}

/// The fixed IP header.
pub(crate) enum Ip<'a> {
    V4(Ipv4HeaderSlice<'a>),
    V6(Ipv6HeaderSlice<'a>),
}

/// Positions of the headers.
pub(crate) struct Layout<'a> {
    pub(crate) ip: Ip<'a>,
    protocol: u8,
    /// Start of the transport header [bytes].
    pub(crate) transport: usize,
    /// Length according to the IP header [bytes].
    len: usize,
    fragment: bool,
    /// True for a fragment other than the first, which has no transport header.
    later_fragment: bool,
}

/// Number of IPv6 extension headers that are read; a longer chain hides the transport header.
const MAX_EXTENSIONS: usize = 16;

impl<'a> Layout<'a> {
    pub(crate) fn of(packet: &'a [u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => {
                let ip = Ipv4HeaderSlice::from_slice(packet).ok()?;
                let (transport, len) = (ip.slice().len(), usize::from(ip.total_len()));
                (transport <= len).then(|| Self {
                    protocol: ip.protocol().0,
                    transport,
                    len,
                    fragment: ip.is_fragmenting_payload(),
                    later_fragment: ip.fragments_offset().value() != 0,
                    ip: Ip::V4(ip),
                })
            }
            6 => {
                let ip = Ipv6HeaderSlice::from_slice(packet).ok()?;
                // A payload length of 0 marks a jumbogram (RFC 2675): take the length of the buffer.
                let len = match usize::from(ip.payload_length()) {
                    0 => packet.len(),
                    payload => ip.slice().len() + payload,
                };
                let mut at = Self {
                    protocol: ip.next_header().0,
                    transport: ip.slice().len(),
                    len,
                    fragment: false,
                    later_fragment: false,
                    ip: Ip::V6(ip),
                };
                at.skip_extensions(packet)?;
                (at.transport <= len).then_some(at)
            }
            _ => None,
        }
    }

    fn skip_extensions(&mut self, packet: &[u8]) -> Option<()> {
        for _ in 0..MAX_EXTENSIONS {
            let length = match self.protocol {
                // Hop-by-hop, routing, destination options, mobility, HIP, shim6 share a format (RFC 6564).
                0 | 43 | 60 | 135 | 139 | 140 => 8 + 8 * usize::from(*packet.get(self.transport + 1)?),
                44 => {
                    let field = word(packet, self.transport + 2)?;
                    self.fragment |= field & 0xfff9 != 0;
                    self.later_fragment |= field & 0xfff8 != 0;
                    8
                }
                // Authentication header: length in words of 4 bytes, minus 2 (RFC 4302, section 2.2).
                51 => 8 + 4 * usize::from(*packet.get(self.transport + 1)?),
                _ => break,
            };
            self.protocol = *packet.get(self.transport)?;
            self.transport += length;
            if self.later_fragment {
                break;
            }
        }
        Some(())
    }

    /// The TCP header; `None` unless it is complete and ends within the length that the IP header gives.
    pub(crate) fn tcp<'p>(&self, packet: &'p [u8]) -> Option<TcpHeaderSlice<'p>> {
        if self.protocol != TCP || self.later_fragment {
            return None;
        }
        let header = TcpHeaderSlice::from_slice(packet.get(self.transport..)?).ok()?;
        (self.transport + header.slice().len() <= self.len).then_some(header)
    }

    fn tcp_info(&self, header: &TcpHeaderSlice<'_>) -> Option<TcpInfo> {
        let (mut scale, mut mss, mut sack) = (None, None, false);
        // An invalid length ends the options; those before it count.
        for option in options(header.options()).map_while(Result::ok) {
            match *option {
                [2, 4, high, low] => mss = Some(u16::from_be_bytes([high, low])),
                [3, 3, shift] => scale = Some(shift.min(14)),
                [5, _, _, ..] => sack = true,
                _ => {}
            }
        }
        Some(TcpInfo {
            seq: header.sequence_number(),
            ack: header.acknowledgment_number(),
            window: header.window_size(),
            flags: header.slice()[13],
            payload: (self.len - self.transport - header.slice().len()) as u32,
            scale,
            mss,
            sack,
        })
    }

    fn has_udp(&self, packet: &[u8]) -> bool {
        self.protocol == UDP
            && !self.later_fragment
            && self.transport + UdpHeader::LEN <= self.len.min(packet.len())
    }
}

pub(crate) fn ecn(ip: &Ip<'_>) -> Ecn {
    let field = match ip {
        Ip::V4(ip) => ip.ecn(),
        Ip::V6(ip) => ip.ecn(),
    };
    match field {
        IpEcn::NotEct => Ecn::NotEct,
        IpEcn::Ect0 => Ecn::Ect,
        IpEcn::Ect1 => Ecn::Ect1,
        IpEcn::CongestionExperienced => Ecn::Ce,
    }
}

/// An option whose length field is invalid.
pub(crate) struct Malformed;

/// The TCP options before the end-of-list option, each with its kind and length bytes, without no-operations.
pub(crate) fn options(mut rest: &[u8]) -> impl Iterator<Item = Result<&[u8], Malformed>> {
    std::iter::from_fn(move || {
        loop {
            match *rest {
                [] | [0, ..] => return None,
                [1, ref next @ ..] => rest = next,
                [_, length, ..] if length >= 2 && usize::from(length) <= rest.len() => {
                    let (option, next) = rest.split_at(length.into());
                    rest = next;
                    return Some(Ok(option));
                }
                _ => {
                    rest = &[];
                    return Some(Err(Malformed));
                }
            }
        }
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}
