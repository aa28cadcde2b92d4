//! What the two ends say to each other inside QUIC: bytes and nothing else.
//!
//! - A stream for a connection begins with [`Open`]: a byte for the two addresses' families (`0x44`, `0x66`, …), then
//!   client and server, each its IP address and port in network byte order.
//! - The control stream (one in each direction) begins with [`HELLO`]; then come credits, each the byte 1, a stream's
//!   number and how many bytes of it have been delivered since it was opened, resets, each the byte 2 and a stream's number, and whether
//!   its end has room for further connections, the byte 3 (no) or 4 (again).
//! - A QUIC datagram begins with its kind: an IP packet (0), a fragment of one (1: two bytes packet number, index, count),
//!   or credits (2: pairs as above).
//!
//! Numbers without a fixed length are QUIC's variable-length integers (RFC 9000, 16). Parsers take what comes from outside:
//! they allocate nothing, never panic, and say [`Malformed`] or "more bytes needed".

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The first bytes on a control stream: a name, and the version of what follows.
pub const HELLO: [u8; 4] = *b"BPS\x02";
/// Most fragments that an IP packet may be cut into.
pub const MAX_FRAGMENTS: usize = 64;
/// Length of a fragment's header, its kind included [bytes].
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

/// Bytes that are none of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// What a stream carries: the connection between these two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Open {
    /// The user's address and port.
    pub client: SocketAddr,
    /// The address and port that the user wants to reach.
    pub server: SocketAddr,
}

impl Open {
    /// Appends its bytes to `out`.
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

    /// Length of the header that begins with `first` [bytes].
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

    /// The header at the beginning of `bytes` and its length, or none where bytes are still missing.
    ///
    /// # Errors
    /// If it is none.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, Malformed> {
        let Some(&first) = bytes.first() else { return Ok(None) };
        let length = Self::length(first)?;
        let Some(mut rest) = bytes.get(1..length) else { return Ok(None) };
        let client = address(first >> 4, &mut rest).ok_or(Malformed)?;
        let server = address(first & 0xf, &mut rest).ok_or(Malformed)?;
        Ok(Some((Self { client, server }, length)))
    }
}

/// Takes an address and a port off `bytes`.
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

/// So much of a stream has been delivered since it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// The QUIC stream's number.
    pub stream: u64,
    /// Bytes delivered in all.
    pub delivered: u64,
}

/// Largest value of a variable-length integer.
pub const MAX_VARINT: u64 = (1 << 62) - 1;

/// Appends `value` to `out`; what is above [`MAX_VARINT`] as that.
pub fn put_varint(value: u64, out: &mut Vec<u8>) {
    let value = value.min(MAX_VARINT);
    match value {
        0..0x40 => out.push(value as u8),
        0x40..0x4000 => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        0x4000..0x4000_0000 => out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend_from_slice(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

/// Takes an integer off `bytes`, or leaves them as they are where some are missing.
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

/// What is said on a control stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Bytes were delivered.
    Credit(Credit),
    /// The stream of this number is reset.
    Reset(u64),
    /// No further connections, or again some.
    Full(bool),
}

impl Control {
    /// Appends it to `out`.
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

    /// What is said at the beginning of `bytes` and its length, or none where bytes are still missing.
    ///
    /// # Errors
    /// If it is nothing of ours.
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

/// Credits for one datagram of at most `limit` bytes: takes from the end of `credits` what fits.
pub fn credits_datagram(credits: &mut Vec<Credit>, limit: usize) -> Vec<u8> {
    let mut out = vec![CREDITS];
    while out.len() + 16 <= limit {
        let Some(credit) = credits.pop() else { break };
        credit.pair(&mut out);
    }
    out
}

/// A datagram with a whole IP packet.
#[must_use]
pub fn packet_datagram(packet: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + packet.len());
    out.push(PACKET);
    out.extend_from_slice(packet);
    out
}

/// A datagram with fragment `index` of the `count` of IP packet number `packet`.
#[must_use]
pub fn fragment_datagram(packet: u16, index: u8, count: u8, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(FRAGMENT_HEADER + data.len());
    out.push(FRAGMENT);
    out.extend_from_slice(&packet.to_be_bytes());
    out.extend_from_slice(&[index, count]);
    out.extend_from_slice(data);
    out
}

/// A QUIC datagram of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datagram<'a> {
    /// A whole IP packet.
    Packet(&'a [u8]),
    /// A part of one.
    Fragment {
        /// Number of the packet.
        packet: u16,
        /// Which of its parts.
        index: u8,
        /// How many parts it has: more than `index`, at most [`MAX_FRAGMENTS`].
        count: u8,
        /// The part.
        data: &'a [u8],
    },
    /// Credits, to be read with [`Credits`].
    Credits(Credits<'a>),
}

impl<'a> Datagram<'a> {
    /// What `bytes` are.
    ///
    /// # Errors
    /// If they are nothing of ours.
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

/// The credits of a datagram, up to the first that is cut off.
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
    fn integers_are_those_of_the_rfc() {
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

    #[test]
    fn credits_that_do_not_fit_stay() {
        let mut credits: Vec<Credit> = (0..100).map(|stream| Credit { stream, delivered: 1 << 40 }).collect();
        let bytes = credits_datagram(&mut credits, 200);
        assert!(bytes.len() <= 200);
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
        fn what_was_opened_is_read(client in any_address(), server in any_address(), more in 0usize..5) {
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
        fn what_is_said_is_read(stream in 0..=MAX_VARINT, delivered in 0..=MAX_VARINT) {
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
