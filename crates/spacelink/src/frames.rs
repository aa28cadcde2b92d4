//! Encoding of what the two ends exchange inside QUIC.
//!
//! - A stream of a connection begins with [`Open`]: a byte for the address families (`0x44`, `0x66`, …), then client and
//!   server, each its IP address and port in network byte order.
//! - The control stream (one in each direction) begins with [`HELLO`]. Frames follow: credits (the byte 1, a stream ID and the
//!   bytes of the stream delivered in all), resets (the byte 2 and a stream ID), and whether its end has room for further
//!   connections (the byte 3 for no, 4 for yes).
//! - A QUIC datagram begins with its type: an IP packet (0), a fragment of one (1, then two bytes packet number, index and
//!   count), or credits (2, then pairs as above).
//!
//! Other numbers are QUIC's variable-length integers (RFC 9000, section 16). Parsers of untrusted input allocate nothing,
//! never panic, and return [`Malformed`] or "more bytes needed".

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// First bytes of a control stream: a name and the protocol version.
pub const HELLO: [u8; 4] = *b"BPS\x02";
/// Maximum number of fragments of an IP packet.
pub const MAX_FRAGMENTS: usize = 64;
/// Length of a fragment's header with its type [bytes].
pub const FRAGMENT_HEADER: usize = 5;
/// Longest [`Open`] [bytes].
pub const MAX_OPEN: usize = 1 + 2 * 18;

const CREDIT: u8 = 1;
const RESET: u8 = 2;
const FULL: u8 = 3;
const ROOM: u8 = 4;
const PACKET: u8 = 0;
const FRAGMENT: u8 = 1;
const CREDITS: u8 = 2;

/// Error: bytes that are no valid frame or datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Header of a stream: the connection that it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Open {
    /// The client's address.
    pub client: SocketAddr,
    /// The server's address.
    pub server: SocketAddr,
}

impl Open {
    /// Appends the encoding to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let family = |a: &SocketAddr| if a.is_ipv4() { 4u8 } else { 6 };
        out.push(family(&self.client) << 4 | family(&self.server));
        for address in [&self.client, &self.server] {
            match address.ip() {
                IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
                IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
            }
            out.extend_from_slice(&address.port().to_be_bytes());
        }
    }

    /// Length of the header whose first byte is `first` [bytes].
    ///
    /// # Errors
    /// If no header begins so.
    pub fn length(first: u8) -> Result<usize, Malformed> {
        let family = |nibble| match nibble {
            4 => Ok(4 + 2),
            6 => Ok(16 + 2),
            _ => Err(Malformed),
        };
        Ok(1 + family(first >> 4)? + family(first & 0xf)?)
    }

    /// Parses the header at the beginning of `bytes`. Returns it with its length, or `None` if bytes are missing.
    ///
    /// # Errors
    /// If the bytes are no header.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, Malformed> {
        let Some(&first) = bytes.first() else { return Ok(None) };
        let length = Self::length(first)?;
        let Some(mut rest) = bytes.get(1..length) else { return Ok(None) };
        let client = address(first >> 4, &mut rest).ok_or(Malformed)?;
        let server = address(first & 0xf, &mut rest).ok_or(Malformed)?;
        Ok(Some((Self { client, server }, length)))
    }
}

/// Takes an address and a port from the beginning of `bytes`.
fn address(family: u8, bytes: &mut &[u8]) -> Option<SocketAddr> {
    let ip = if family == 4 {
        let (octets, rest) = bytes.split_first_chunk::<4>()?;
        *bytes = rest;
        IpAddr::V4(Ipv4Addr::from(*octets))
    } else {
        let (octets, rest) = bytes.split_first_chunk::<16>()?;
        *bytes = rest;
        IpAddr::V6(Ipv6Addr::from(*octets))
    };
    let (port, rest) = bytes.split_first_chunk::<2>()?;
    *bytes = rest;
    Some(SocketAddr::new(ip, u16::from_be_bytes(*port)))
}

/// Number of a stream's bytes that were delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// QUIC stream ID.
    pub stream: u64,
    /// Bytes delivered since the stream was opened.
    pub delivered: u64,
}

/// Largest value of a variable-length integer.
pub const MAX_VARINT: u64 = (1 << 62) - 1;

/// Appends `value` to `out`, at most [`MAX_VARINT`].
pub fn put_varint(value: u64, out: &mut Vec<u8>) {
    let value = value.min(MAX_VARINT);
    match value {
        0..0x40 => out.push(value as u8),
        0x40..0x4000 => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        0x4000..0x4000_0000 => out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend_from_slice(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

/// Takes an integer from the beginning of `bytes`. Leaves them unchanged if some are missing.
pub fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let length = 1usize << (bytes.first()? >> 6);
    let taken = bytes.get(..length)?;
    let value = taken.iter().fold(0u64, |value, &byte| value << 8 | u64::from(byte));
    *bytes = &bytes[length..];
    Some(value & (u64::MAX >> (66 - 8 * length)))
}

impl Credit {
    fn pair(&self, out: &mut Vec<u8>) {
        put_varint(self.stream, out);
        put_varint(self.delivered, out);
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        let mut rest = *bytes;
        let credit = Self { stream: take_varint(&mut rest)?, delivered: take_varint(&mut rest)? };
        *bytes = rest;
        Some(credit)
    }
}

/// Frame of a control stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Bytes were delivered.
    Credit(Credit),
    /// The stream with this ID is reset.
    Reset(u64),
    /// The end has no room for further connections (true), or room again (false).
    Full(bool),
}

impl Control {
    /// Appends the encoding to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Credit(credit) => {
                out.push(CREDIT);
                credit.pair(out);
            }
            Self::Reset(stream) => {
                out.push(RESET);
                put_varint(*stream, out);
            }
            Self::Full(full) => out.push(if *full { FULL } else { ROOM }),
        }
    }

    /// Parses the frame at the beginning of `bytes`. Returns it with its length, or `None` if bytes are missing.
    ///
    /// # Errors
    /// If the bytes are no frame.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, Malformed> {
        let Some((&kind, mut rest)) = bytes.split_first() else { return Ok(None) };
        let frame = match kind {
            CREDIT => Credit::take(&mut rest).map(Self::Credit),
            RESET => take_varint(&mut rest).map(Self::Reset),
            FULL | ROOM => Some(Self::Full(kind == FULL)),
            _ => return Err(Malformed),
        };
        Ok(frame.map(|frame| (frame, bytes.len() - rest.len())))
    }
}

/// Encodes credits as a datagram of at most `limit` bytes: takes as many as fit from the end of `credits`.
pub fn credits_datagram(credits: &mut Vec<Credit>, limit: usize) -> Vec<u8> {
    let mut out = vec![CREDITS];
    while out.len() + 16 <= limit {
        let Some(credit) = credits.pop() else { break };
        credit.pair(&mut out);
    }
    out
}

/// Encodes an IP packet as a datagram.
#[must_use]
pub fn packet_datagram(packet: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + packet.len());
    out.push(PACKET);
    out.extend_from_slice(packet);
    out
}

/// Encodes fragment `index` of `count` of IP packet number `packet` as a datagram.
#[must_use]
pub fn fragment_datagram(packet: u16, index: u8, count: u8, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(FRAGMENT_HEADER + data.len());
    out.push(FRAGMENT);
    out.extend_from_slice(&packet.to_be_bytes());
    out.extend_from_slice(&[index, count]);
    out.extend_from_slice(data);
    out
}

/// A QUIC datagram of the spacelink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datagram<'a> {
    /// A whole IP packet.
    Packet(&'a [u8]),
    /// A fragment of one.
    Fragment {
        /// Number of the packet.
        packet: u16,
        /// Index of the fragment.
        index: u8,
        /// Number of fragments: more than `index`, at most [`MAX_FRAGMENTS`].
        count: u8,
        /// Bytes of the fragment.
        data: &'a [u8],
    },
    /// Credits.
    Credits(Credits<'a>),
}

impl<'a> Datagram<'a> {
    /// Parses a datagram.
    ///
    /// # Errors
    /// If the bytes are no datagram of the spacelink.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        match bytes.split_first() {
            Some((&PACKET, packet)) if !packet.is_empty() => Ok(Self::Packet(packet)),
            Some((&FRAGMENT, rest)) => match *rest {
                [high, low, index, count, ref data @ ..]
                    if index < count && usize::from(count) <= MAX_FRAGMENTS && !data.is_empty() =>
                {
                    Ok(Self::Fragment { packet: u16::from_be_bytes([high, low]), index, count, data })
                }
                _ => Err(Malformed),
            },
            Some((&CREDITS, rest)) => Ok(Self::Credits(Credits(rest))),
            _ => Err(Malformed),
        }
    }
}

/// The credits of a datagram, up to a truncated one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credits<'a>(&'a [u8]);

impl Iterator for Credits<'_> {
    type Item = Credit;

    fn next(&mut self) -> Option<Credit> {
        Credit::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes_of(open: &Open) -> Vec<u8> {
        let mut out = Vec::new();
        open.encode(&mut out);
        out
    }

    #[test]
    fn an_open_is_thirteen_bytes_for_ipv4() {
        let open = Open { client: "10.3.0.1:40000".parse().unwrap(), server: "10.1.0.1:80".parse().unwrap() };
        assert_eq!(bytes_of(&open), [0x44, 10, 3, 0, 1, 0x9c, 0x40, 10, 1, 0, 1, 0, 80]);
    }

    /// The examples of RFC 9000, A.1.
    #[test]
    fn integers_match_the_rfc_examples() {
        for (bytes, value) in [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
        ] {
            let mut rest = bytes;
            assert_eq!(take_varint(&mut rest), Some(value));
            assert!(rest.is_empty());
            let mut out = Vec::new();
            put_varint(value, &mut out);
            assert_eq!(out, bytes);
        }
        assert_eq!(take_varint(&mut &[0x40, 0x25][..]), Some(37));
    }

    /// RFC 9000, table 4: eight bytes hold 62 bits.
    #[test]
    fn the_largest_integer_has_62_bits() {
        for value in [(1 << 62) - 1, 1 << 62, u64::MAX] {
            let mut out = Vec::new();
            put_varint(value, &mut out);
            assert_eq!(
                (&out[..], take_varint(&mut &out[..])),
                (&[0xff; 8][..], Some((1 << 62) - 1)),
                "{value}"
            );
        }
    }

    #[test]
    fn malformed_input_is_refused() {
        let fragment = |packet, index, count, data| Datagram::Fragment { packet, index, count, data };
        for (bytes, expected) in [
            (&[0, 9][..], Ok(Datagram::Packet(&[9][..]))),
            (&[1, 0x12, 0x34, 0, 1, 9], Ok(fragment(0x1234, 0, 1, &[9][..]))),
            (&[1, 0, 0, 63, 64, 9, 9], Ok(fragment(0, 63, 64, &[9, 9]))),
            (&[2], Ok(Datagram::Credits(Credits(&[])))),
            // Nothing, no type, and no packet.
            (&[], Err(Malformed)),
            (&[3, 9], Err(Malformed)),
            (&[0], Err(Malformed)),
            // Without data, an index beyond the count, and more fragments than allowed.
            (&[1, 0, 0, 0, 1], Err(Malformed)),
            (&[1, 0, 0, 1, 1, 9], Err(Malformed)),
            (&[1, 0, 0, 2, 1, 9], Err(Malformed)),
            (&[1, 0, 0, 0, 65, 9], Err(Malformed)),
            (&[1, 0, 0, 0], Err(Malformed)),
        ] {
            assert_eq!(Datagram::parse(bytes), expected, "{bytes:?}");
        }
        // Address families other than IPv4 and IPv6; kinds of frames other than the four.
        for first in [0x45, 0x54, 0x00, 0x64 | 0x0f] {
            assert_eq!(Open::length(first), Err(Malformed), "{first:#x}");
            assert_eq!(Open::parse(&[first; 37]), Err(Malformed), "{first:#x}");
        }
        assert_eq!(Control::parse(&[0]), Err(Malformed));
        assert_eq!(Control::parse(&[5]), Err(Malformed));
    }

    #[test]
    fn credits_beyond_the_limit_stay() {
        let mut credits: Vec<Credit> = (0..100).map(|stream| Credit { stream, delivered: 1 << 40 }).collect();
        let bytes = credits_datagram(&mut credits, 200);
        // A credit has at most 16 bytes, and is added while there is room for as many.
        assert!((185..=200).contains(&bytes.len()), "{}", bytes.len());
        let Ok(Datagram::Credits(read)) = Datagram::parse(&bytes) else { panic!("no credits") };
        let read: Vec<Credit> = read.collect();
        assert_eq!(read.len() + credits.len(), 100);
        assert_eq!(read[0], Credit { stream: 99, delivered: 1 << 40 });
    }

    fn any_address() -> impl Strategy<Value = SocketAddr> {
        (any::<IpAddr>(), any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port))
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: proptest::test_runner::RngSeed::Fixed(1), ..ProptestConfig::default() })]

        #[test]
        fn headers_survive_encoding(client in any_address(), server in any_address(), more in 0usize..5) {
            let open = Open { client, server };
            let mut bytes = bytes_of(&open);
            let length = bytes.len();
            prop_assert!(length <= MAX_OPEN);
            for cut in 0..length {
                prop_assert_eq!(Open::parse(&bytes[..cut]), Ok(None));
            }
            bytes.resize(length + more, 0xff);
            prop_assert_eq!(Open::parse(&bytes), Ok(Some((open, length))));
        }

        #[test]
        fn control_frames_survive_encoding(stream in 0..=MAX_VARINT, delivered in 0..=MAX_VARINT) {
            for frame in [Control::Credit(Credit { stream, delivered }), Control::Reset(stream), Control::Full(stream % 2 == 0)] {
                let mut bytes = Vec::new();
                frame.encode(&mut bytes);
                for cut in 0..bytes.len() {
                    prop_assert_eq!(Control::parse(&bytes[..cut]), Ok(None));
                }
                prop_assert_eq!(Control::parse(&bytes), Ok(Some((frame, bytes.len()))));
            }
        }
    }
}
