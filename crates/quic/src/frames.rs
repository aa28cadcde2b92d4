//! Packets of a UDP datagram and their frames, which null crypto lets one read (RFC 9000, sections 17 and 19).

use crate::connection::CID;
use crate::null_crypto::TAG;
use crate::scone;

/// Type of a packet (RFC 9000, section 17).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketType {
    /// Initial.
    Initial,
    /// 0-RTT.
    ZeroRtt,
    /// Handshake.
    Handshake,
    /// Retry.
    Retry,
    /// 1-RTT.
    OneRtt,
    /// Stateless reset, which looks like a 1-RTT packet without the tag of null crypto.
    StatelessReset,
    /// SCONE packet, which has no number and no frames (draft-ietf-scone-protocol-07, section 5).
    Scone,
}

/// A packet in a UDP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Its type.
    pub kind: PacketType,
    /// Its length, header and tag included [bytes].
    pub len: usize,
    /// Version, in a long header.
    pub version: Option<u32>,
    /// Destination connection id.
    pub destination: &'a [u8],
    /// Source connection id, in a long header.
    pub source: &'a [u8],
    /// Packet number as sent, truncated to `number_len` bytes.
    pub number: u64,
    /// Length of the packet number [bytes]; 0 if it has none.
    pub number_len: usize,
    /// Frames, without the tag.
    payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Its frames.
    #[must_use]
    pub fn frames(&self) -> Frames<'a> {
        Frames(self.payload)
    }

    /// Length of its frames [bytes].
    #[must_use]
    pub fn payload_len(&self) -> usize {
        self.payload.len()
    }

    /// The full packet number, if `largest` is the largest one known in its space (RFC 9000, appendix A.3).
    #[must_use]
    pub fn full_number(&self, largest: Option<u64>) -> u64 {
        let expected = largest.map_or(0, |largest| largest + 1);
        let window = 1u64 << (8 * self.number_len.clamp(1, 4));
        let candidate = (expected & !(window - 1)) | self.number;
        if candidate + window / 2 <= expected {
            candidate + window
        } else if candidate > expected + window / 2 && candidate >= window {
            candidate - window
        } else {
            candidate
        }
    }
}

/// Packets of a UDP datagram.
#[must_use]
pub fn packets(datagram: &[u8]) -> Packets<'_> {
    Packets(datagram)
}

/// The packets that are left.
pub struct Packets<'a>(&'a [u8]);

impl<'a> Iterator for Packets<'a> {
    type Item = Packet<'a>;

    fn next(&mut self) -> Option<Packet<'a>> {
        let found = packet(&mut self.0);
        if found.is_none() {
            self.0 = &[];
        }
        found
    }
}

fn packet<'a>(rest: &mut &'a [u8]) -> Option<Packet<'a>> {
    let whole = *rest;
    let first = *whole.first()?;
    let number_len = usize::from(first & 3) + 1;
    if first & 0x80 == 0 {
        *rest = &[];
        let destination = whole.get(1..1 + CID)?;
        let body = whole.get(1 + CID..)?;
        let (number, payload) = body.split_at_checked(number_len)?;
        let (payload, tag) = payload.split_at_checked(payload.len().checked_sub(TAG)?)?;
        let is_packet = tag.iter().all(|byte| *byte == 0);
        return Some(Packet {
            kind: if is_packet { PacketType::OneRtt } else { PacketType::StatelessReset },
            len: whole.len(),
            version: None,
            destination,
            source: &[],
            number: if is_packet { big_endian(number) } else { 0 },
            number_len: if is_packet { number_len } else { 0 },
            payload: if is_packet { payload } else { &[] },
        });
    }
    let version = big_endian(whole.get(1..5)?) as u32;
    let mut left = whole.get(5..)?;
    let mut id = || {
        let len = usize::from(*left.first()?);
        let (id, after) = left.get(1..)?.split_at_checked(len)?;
        left = after;
        Some(id)
    };
    let (destination, source) = (id()?, id()?);
    let scone = scone::len(whole);
    let kind = match first & 0x30 {
        _ if scone.is_some() => PacketType::Scone,
        0x00 => PacketType::Initial,
        0x10 => PacketType::ZeroRtt,
        0x20 => PacketType::Handshake,
        _ => PacketType::Retry,
    };
    let mut packet = Packet {
        kind,
        len: whole.len(),
        version: Some(version),
        destination,
        source,
        number: 0,
        number_len: 0,
        payload: &[],
    };
    if let Some(len) = scone {
        (packet.len, *rest) = (len, &whole[len..]);
        return Some(packet);
    }
    if kind == PacketType::Retry {
        *rest = &[];
        return Some(packet);
    }
    if kind == PacketType::Initial {
        bytes(&mut left)?;
    }
    let body = bytes(&mut left)?;
    packet.len = whole.len() - left.len();
    let (number, payload) = body.split_at_checked(number_len)?;
    (packet.number, packet.number_len) = (big_endian(number), number_len);
    packet.payload = payload.get(..payload.len().checked_sub(TAG)?)?;
    *rest = left;
    Some(packet)
}

/// A frame (RFC 9000, section 19; RFC 9221).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// PADDING, repeated.
    Padding {
        /// Number of frames, each of one byte.
        count: u64,
    },
    /// PING.
    Ping,
    /// ACK.
    Ack(Ack<'a>),
    /// `RESET_STREAM`.
    ResetStream {
        /// The stream.
        id: u64,
        /// Application error code.
        error: u64,
        /// Final size of the stream [bytes].
        final_size: u64,
    },
    /// `STOP_SENDING`.
    StopSending {
        /// The stream.
        id: u64,
        /// Application error code.
        error: u64,
    },
    /// CRYPTO.
    Crypto {
        /// Position of its first byte.
        offset: u64,
        /// Part of a TLS message.
        data: &'a [u8],
    },
    /// `NEW_TOKEN`.
    NewToken(&'a [u8]),
    /// STREAM.
    Stream {
        /// The stream.
        id: u64,
        /// Position of its first byte in the stream.
        offset: u64,
        /// Length of the data [bytes].
        len: u64,
        /// True if the stream ends here.
        fin: bool,
    },
    /// `MAX_DATA` [bytes].
    MaxData(u64),
    /// `MAX_STREAM_DATA`.
    MaxStreamData {
        /// The stream.
        id: u64,
        /// Largest position [bytes].
        maximum: u64,
    },
    /// `MAX_STREAMS`.
    MaxStreams {
        /// True for bidirectional streams.
        bidirectional: bool,
        /// Largest number of streams.
        maximum: u64,
    },
    /// `DATA_BLOCKED` [bytes].
    DataBlocked(u64),
    /// `STREAM_DATA_BLOCKED`.
    StreamDataBlocked {
        /// The stream.
        id: u64,
        /// The limit [bytes].
        limit: u64,
    },
    /// `STREAMS_BLOCKED`.
    StreamsBlocked {
        /// True for bidirectional streams.
        bidirectional: bool,
        /// The limit.
        limit: u64,
    },
    /// `NEW_CONNECTION_ID`.
    NewConnectionId {
        /// Sequence number.
        sequence: u64,
        /// Ids before this sequence number are retired.
        retire_prior_to: u64,
        /// The connection id.
        id: &'a [u8],
        /// Stateless reset token.
        token: &'a [u8],
    },
    /// `RETIRE_CONNECTION_ID`: a sequence number.
    RetireConnectionId(u64),
    /// `PATH_CHALLENGE`.
    PathChallenge(&'a [u8]),
    /// `PATH_RESPONSE`.
    PathResponse(&'a [u8]),
    /// `CONNECTION_CLOSE`.
    ConnectionClose {
        /// True if the application closed the connection.
        by_application: bool,
        /// Error code.
        error: u64,
        /// Type of the frame that caused an error of the transport.
        frame_type: Option<u64>,
    },
    /// `HANDSHAKE_DONE`.
    HandshakeDone,
    /// DATAGRAM.
    Datagram(&'a [u8]),
    /// `ACK_FREQUENCY` or `IMMEDIATE_ACK` (draft-ietf-quic-ack-frequency), by its type.
    Extension(u64),
}

impl Frame<'_> {
    /// True if a packet with this frame asks for an acknowledgement (RFC 9002, section 2).
    #[must_use]
    pub fn is_ack_eliciting(&self) -> bool {
        !matches!(self, Self::Padding { .. } | Self::Ack(_) | Self::ConnectionClose { .. })
    }

    /// The label of an unreliable datagram.
    pub(crate) fn label(&self) -> Option<u64> {
        match self {
            Self::Datagram(data) => data.first_chunk().map(|bytes| u64::from_be_bytes(*bytes)),
            _ => None,
        }
    }
}

/// An ACK frame (RFC 9000, section 19.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack<'a> {
    /// Largest acknowledged packet number.
    pub largest: u64,
    /// ACK Delay as sent: microseconds divided by 2^`ack_delay_exponent`.
    pub delay: u64,
    /// Packets with ECT(0), ECT(1) and CE, if counted.
    pub ecn: Option<[u64; 3]>,
    first_range: u64,
    /// Gaps and lengths of the other ranges.
    ranges: &'a [u8],
}

impl Ack<'_> {
    /// Ranges of acknowledged packet numbers, ends included, from the largest down.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        let (mut largest, mut length, mut rest) = (Some(self.largest), Some(self.first_range), self.ranges);
        std::iter::from_fn(move || {
            let end = largest?;
            let start = end.checked_sub(length?)?;
            let gap = varint(&mut rest);
            largest = gap.and_then(|gap| start.checked_sub(gap.checked_add(2)?));
            length = varint(&mut rest);
            Some((start, end))
        })
    }
}

/// Frames of the 1-RTT packet in a UDP payload. Other packets before it are skipped.
pub fn frames(datagram: &[u8]) -> Frames<'_> {
    let data = packets(datagram).find(|packet| packet.kind == PacketType::OneRtt);
    Frames(data.map_or(&[], |packet| packet.payload))
}

/// Frames of a decrypted packet without its tag.
pub fn decrypted(frames: &[u8]) -> Frames<'_> {
    Frames(frames)
}

/// The frames that are left.
pub struct Frames<'a>(&'a [u8]);

impl<'a> Iterator for Frames<'a> {
    type Item = Frame<'a>;

    fn next(&mut self) -> Option<Frame<'a>> {
        let found = frame(&mut self.0);
        if found.is_none() {
            // Nothing, or a frame that is unknown or cut: the rest cannot be read.
            self.0 = &[];
        }
        found
    }
}

/// Reads a frame.
#[inline]
fn frame<'a>(rest: &mut &'a [u8]) -> Option<Frame<'a>> {
    let kind = varint(rest)?;
    Some(match kind {
        0x00 => {
            let more = rest.iter().position(|byte| *byte != 0).unwrap_or(rest.len());
            *rest = &rest[more..];
            Frame::Padding { count: 1 + more as u64 }
        }
        0x01 => Frame::Ping,
        0x02 | 0x03 => Frame::Ack(ack(rest, kind == 0x03)?),
        0x04 => {
            let (id, error) = (varint(rest)?, varint(rest)?);
            Frame::ResetStream { id, error, final_size: varint(rest)? }
        }
        0x05 => Frame::StopSending { id: varint(rest)?, error: varint(rest)? },
        0x06 => Frame::Crypto { offset: varint(rest)?, data: bytes(rest)? },
        0x07 => Frame::NewToken(bytes(rest)?),
        0x08..=0x0f => {
            let id = varint(rest)?;
            let offset = if kind & 0x04 != 0 { varint(rest)? } else { 0 };
            let len = if kind & 0x02 != 0 { varint(rest)? } else { rest.len() as u64 };
            *rest = rest.get(usize::try_from(len).ok()?..)?;
            Frame::Stream { id, offset, len, fin: kind & 0x01 != 0 }
        }
        0x10 => Frame::MaxData(varint(rest)?),
        0x11 => Frame::MaxStreamData { id: varint(rest)?, maximum: varint(rest)? },
        0x12 | 0x13 => Frame::MaxStreams { bidirectional: kind == 0x12, maximum: varint(rest)? },
        0x14 => Frame::DataBlocked(varint(rest)?),
        0x15 => Frame::StreamDataBlocked { id: varint(rest)?, limit: varint(rest)? },
        0x16 | 0x17 => Frame::StreamsBlocked { bidirectional: kind == 0x16, limit: varint(rest)? },
        0x18 => {
            let (sequence, retire_prior_to) = (varint(rest)?, varint(rest)?);
            let len = usize::from(*rest.first()?);
            let (id, after) = rest.get(1..)?.split_at_checked(len)?;
            let (token, after) = after.split_at_checked(16)?;
            *rest = after;
            Frame::NewConnectionId { sequence, retire_prior_to, id, token }
        }
        0x19 => Frame::RetireConnectionId(varint(rest)?),
        0x1a | 0x1b => {
            let (data, after) = rest.split_at_checked(8)?;
            *rest = after;
            if kind == 0x1a { Frame::PathChallenge(data) } else { Frame::PathResponse(data) }
        }
        0x1c | 0x1d => {
            let error = varint(rest)?;
            let frame_type = if kind == 0x1c { Some(varint(rest)?) } else { None };
            bytes(rest)?;
            Frame::ConnectionClose { by_application: kind == 0x1d, error, frame_type }
        }
        0x1e => Frame::HandshakeDone,
        0x1f => Frame::Extension(kind),
        0x30 => Frame::Datagram(std::mem::take(rest)),
        0x31 => Frame::Datagram(bytes(rest)?),
        // ACK_FREQUENCY (draft-ietf-quic-ack-frequency).
        0xaf => {
            (0..4).try_for_each(|_| varint(rest).map(drop))?;
            Frame::Extension(kind)
        }
        _ => return None,
    })
}

fn ack<'a>(rest: &mut &'a [u8], has_counts: bool) -> Option<Ack<'a>> {
    let (largest, delay, count, first_range) = (varint(rest)?, varint(rest)?, varint(rest)?, varint(rest)?);
    let before = *rest;
    (0..count.checked_mul(2)?).try_for_each(|_| varint(rest).map(drop))?;
    let ranges = &before[..before.len() - rest.len()];
    let ecn = if has_counts { Some([varint(rest)?, varint(rest)?, varint(rest)?]) } else { None };
    Some(Ack { largest, delay, ecn, first_range, ranges })
}

/// Takes bytes that follow their length.
fn bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(varint(rest)?).ok()?;
    let (found, after) = rest.split_at_checked(len)?;
    *rest = after;
    Some(found)
}

fn big_endian(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Takes a variable-length integer (RFC 9000, section 16).
pub fn varint(rest: &mut &[u8]) -> Option<u64> {
    let first = *rest.first()?;
    let len = 1 << (first >> 6);
    let bytes = rest.get(..len)?;
    *rest = &rest[len..];
    Some(bytes[1..].iter().fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9000, appendix A.1.
    #[test]
    fn variable_length_integers_are_read() {
        for (bytes, value) in [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
            (&[0x40, 0x25], 37),
        ] {
            assert_eq!(varint(&mut &*bytes), Some(value));
        }
        assert_eq!(varint(&mut &[0x40][..]), None);
    }

    /// RFC 9000, appendix A.3.
    #[test]
    fn truncated_packet_numbers_are_completed() {
        let packet = |number, number_len| Packet {
            kind: PacketType::OneRtt,
            len: 0,
            version: None,
            destination: &[],
            source: &[],
            number,
            number_len,
            payload: &[],
        };
        assert_eq!(packet(0x9b32, 2).full_number(Some(0xa82f_30ea)), 0xa82f_9b32);
        assert_eq!(packet(0, 1).full_number(None), 0);
        // Sent just before and just after the largest one, across a wrap of the byte.
        assert_eq!(packet(0xff, 1).full_number(Some(0x100)), 0xff);
        assert_eq!(packet(0x01, 1).full_number(Some(0xfe)), 0x101);
    }

    /// A packet with a number of two bytes, by hand after RFC 9000, section 19: PING; an ACK with counts (largest 9, delay 0,
    /// one more range, first range 2, gap 1, range 3; 7, 0 and 5); a datagram of 9 bytes; 4 bytes of stream 8 from position 300; and stream 4 up to
    /// the tag.
    #[test]
    fn frames_of_a_packet_are_read_in_order() {
        let mut packet = vec![0x41];
        packet.extend([0; CID + 2]);
        packet.extend([0x01, 0x03, 9, 0, 1, 2, 1, 3, 7, 0, 5]);
        packet.extend([0x31, 9, 0, 0, 0, 0, 0, 0, 1, 2, 0]);
        packet.extend([0x0e, 8, 0x41, 0x2c, 4, 0, 0, 0, 0, 0x09, 4, 1, 2, 3]);
        packet.extend([0; 16]);
        let found: Vec<_> = frames(&packet).collect();
        let ack = Ack { largest: 9, delay: 0, ecn: Some([7, 0, 5]), first_range: 2, ranges: &[1, 3] };
        let expected = [
            Frame::Ping,
            Frame::Ack(ack),
            Frame::Datagram(&[0, 0, 0, 0, 0, 0, 1, 2, 0]),
            Frame::Stream { id: 8, offset: 300, len: 4, fin: false },
            Frame::Stream { id: 4, offset: 0, len: 3, fin: true },
        ];
        assert_eq!(found, expected);
        assert_eq!(found[2].label(), Some(258));
        // 9 to 7; after a gap of 1 + 1 packets, 4 and the 3 before it.
        assert_eq!(ack.ranges().collect::<Vec<_>>(), [(7, 9), (1, 4)]);
        // An Initial packet before it: version, ids of 8 and no bytes, no token; 20 bytes: a number of one, three frames of
        // padding, and the tag.
        let mut coalesced = vec![0xc0, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 20, 9, 0, 0, 0];
        coalesced.extend([0; 16]);
        let length = coalesced.len();
        coalesced.extend(&packet);
        assert_eq!(frames(&coalesced).collect::<Vec<_>>(), expected);
        let both: Vec<_> = packets(&coalesced).collect();
        let rows = both.iter().map(|p| (p.kind, p.len, p.number, p.number_len)).collect::<Vec<_>>();
        assert_eq!(rows, [(PacketType::Initial, length, 9, 1), (PacketType::OneRtt, packet.len(), 0, 2)]);
        assert_eq!(both[0].frames().collect::<Vec<_>>(), [Frame::Padding { count: 3 }]);
        assert_eq!((both[0].destination, both[0].source), (&[1, 2, 3, 4, 5, 6, 7, 8][..], &[][..]));
    }

    #[test]
    fn cut_or_unknown_frames_end_the_list() {
        for frame in [&[0x03, 9][..], &[0x21], &[0x06, 0, 0x40]] {
            let packet = [&[0x40; CID + 2][..], frame, &[0; 16]].concat();
            assert_eq!(frames(&packet).count(), 0);
        }
    }

    #[test]
    fn a_packet_without_the_tag_is_a_stateless_reset() {
        let reset = [0x41; 40];
        let found: Vec<_> = packets(&reset).map(|packet| (packet.kind, packet.len)).collect();
        assert_eq!(found, [(PacketType::StatelessReset, 40)]);
    }
}
