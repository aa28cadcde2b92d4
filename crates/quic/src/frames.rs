//! Frames of 1-RTT packets, which null crypto lets one read (RFC 9000, sections 17 and 19).

use crate::connection::CID;

/// A frame, as far as the host uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Data of a stream.
    Stream {
        /// The stream.
        id: u64,
        /// Position of its first byte in the stream.
        offset: u64,
        /// Length of the data [bytes].
        len: u64,
    },
    /// Marked packets that an ACK frame reports.
    Marks(u64),
    /// An unreliable datagram (RFC 9221), by the label with which it was sent.
    Datagram {
        /// The label.
        label: u64,
    },
}

/// Frames of the 1-RTT packet in a UDP payload. Other packets before it are skipped.
pub fn frames(payload: &[u8]) -> Frames<'_> {
    Frames(one_rtt(payload).unwrap_or_default())
}

/// Frames of a decrypted packet without its tag, up to a stream frame that ends the packet.
pub fn decrypted(frames: &[u8]) -> Frames<'_> {
    Frames(frames)
}

/// The frames that are left.
pub struct Frames<'a>(&'a [u8]);

impl Iterator for Frames<'_> {
    type Item = Frame;

    fn next(&mut self) -> Option<Frame> {
        loop {
            let end = self.0.len();
            match frame(&mut self.0) {
                // Nothing, or a frame that is unknown or cut: the rest cannot be read.
                None => {
                    self.0 = &[];
                    return None;
                }
                Some(Some(found)) => return Some(found),
                Some(None) => debug_assert!(self.0.len() < end),
            }
        }
    }
}

/// Payload of the 1-RTT packet.
fn one_rtt(mut rest: &[u8]) -> Option<&[u8]> {
    loop {
        let first = *rest.first()?;
        if first & 0x80 == 0 {
            return rest.get(1 + CID + usize::from(first & 3) + 1..);
        }
        // Type and version; connection ids; an Initial packet's token; and the length of what follows.
        rest = rest.get(5..)?;
        for _ in 0..2 {
            let len = usize::from(*rest.first()?);
            rest = rest.get(1 + len..)?;
        }
        if first & 0x30 == 0 {
            skip(&mut rest)?;
        }
        skip(&mut rest)?;
    }
}

/// Reads a frame; `Some(None)` if it is of no interest.
fn frame(rest: &mut &[u8]) -> Option<Option<Frame>> {
    let kind = varint(rest)?;
    let integers = |rest: &mut &[u8], count| (0..count).try_for_each(|_| varint(rest).map(drop));
    match kind {
        0x00 | 0x01 | 0x1e | 0x1f => {}
        0x02 | 0x03 => {
            integers(rest, 2)?;
            let ranges = varint(rest)?;
            integers(rest, 1 + 2 * ranges)?;
            if kind == 0x03 {
                integers(rest, 2)?;
                return Some(Some(Frame::Marks(varint(rest)?)));
            }
        }
        0x04 => integers(rest, 3)?,
        0x05 | 0x11 | 0x15 => integers(rest, 2)?,
        0x06 => {
            integers(rest, 1)?;
            skip(rest)?;
        }
        0x07 => skip(rest)?,
        0x08..=0x0f => {
            let id = varint(rest)?;
            let offset = if kind & 0x04 != 0 { varint(rest)? } else { 0 };
            let len = if kind & 0x02 != 0 {
                let len = varint(rest)?;
                *rest = rest.get(usize::try_from(len).ok()?..)?;
                len
            } else {
                // Up to the tag at the end of the packet.
                let len = rest.len().checked_sub(crate::null_crypto::TAG)?;
                *rest = &rest[len..];
                len as u64
            };
            return Some(Some(Frame::Stream { id, offset, len }));
        }
        0x10 | 0x12..=0x14 | 0x16 | 0x17 | 0x19 => integers(rest, 1)?,
        0x18 => {
            integers(rest, 2)?;
            let len = usize::from(*rest.first()?);
            *rest = rest.get(1 + len + 16..)?;
        }
        0x1a | 0x1b => *rest = rest.get(8..)?,
        0x1c => {
            integers(rest, 2)?;
            skip(rest)?;
        }
        0x1d => {
            integers(rest, 1)?;
            skip(rest)?;
        }
        0x30 | 0x31 => {
            let len = if kind == 0x31 {
                usize::try_from(varint(rest)?).ok()?
            } else {
                rest.len().checked_sub(crate::null_crypto::TAG)?
            };
            let label = rest.get(..len)?.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
            *rest = &rest[len..];
            return Some(label.map(|label| Frame::Datagram { label }));
        }
        // ACK_FREQUENCY (draft-ietf-quic-ack-frequency).
        0xaf => integers(rest, 4)?,
        _ => return None,
    }
    Some(None)
}

/// Skips bytes that follow their length.
fn skip(rest: &mut &[u8]) -> Option<()> {
    let len = usize::try_from(varint(rest)?).ok()?;
    *rest = rest.get(len..)?;
    Some(())
}

/// Takes a variable-length integer (RFC 9000, section 16).
fn varint(rest: &mut &[u8]) -> Option<u64> {
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

    /// A packet with a number of two bytes, by hand after RFC 9000, section 19: PING; an ACK with counts (largest 9, delay 0,
    /// one more range, first range 2, gap 1, range 3; 7, 0 and 5); a datagram of 9 bytes; 4 bytes of stream 8 from position 300; and stream 4 up to
    /// the tag.
    #[test]
    fn frames_of_a_packet_are_read_in_order() {
        let mut packet = vec![0x41];
        packet.extend([0; CID + 2]);
        packet.extend([0x01, 0x03, 9, 0, 1, 2, 1, 3, 7, 0, 5]);
        packet.extend([0x31, 9, 0, 0, 0, 0, 0, 0, 1, 2, 0]);
        packet.extend([0x0e, 8, 0x41, 0x2c, 4, 0, 0, 0, 0, 0x08, 4, 1, 2, 3]);
        packet.extend([0; 16]);
        let found: Vec<_> = frames(&packet).collect();
        let expected = [
            Frame::Marks(5),
            Frame::Datagram { label: 258 },
            Frame::Stream { id: 8, offset: 300, len: 4 },
            Frame::Stream { id: 4, offset: 0, len: 3 },
        ];
        assert_eq!(found, expected);
        // An Initial packet before it: version, ids of 8 and no bytes, no token, 3 bytes.
        let mut coalesced = vec![0xc0, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 3, 9, 9, 9];
        coalesced.extend(packet);
        assert_eq!(frames(&coalesced).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn cut_or_unknown_frames_end_the_list() {
        for frame in [&[0x03, 9][..], &[0x21], &[0x06, 0, 0x40]] {
            let packet = [&[0x40; CID + 2][..], frame].concat();
            assert_eq!(frames(&packet).count(), 0);
        }
    }
}
