//! SCTP packets (RFC 9260 section 3), with user data of zeros.
//!
//! An end's initial TSN is drawn like TCP's initial sequence numbers; its verification tag is the same number with the
//! lowest bit set. All messages have the stream sequence number 0, since the simulator does not count them.

use bentpipe_transport::sctp::{Control, Packet};

/// Numbers of one end.
pub struct Numbers {
    /// Initial TSN.
    pub initial: u32,
    /// Port.
    pub port: u16,
}

impl Numbers {
    fn tag(&self) -> u32 {
        self.initial | 1
    }

    /// Converts a TSN of the simulator, which starts at 1.
    fn tsn(&self, tsn: u64) -> u32 {
        self.initial.wrapping_add(tsn as u32).wrapping_sub(1)
    }
}

/// Writes a packet of `len` bytes without the IP header. Returns the length up to the user data.
pub fn write(packet: &Packet, from: &Numbers, to: &Numbers, len: usize, buffer: &mut Vec<u8>) -> usize {
    let start = buffer.len();
    buffer.extend(from.port.to_be_bytes());
    buffer.extend(to.port.to_be_bytes());
    // Section 8.5.1 (A): the tag of an INIT is zero.
    let tag = if matches!(packet.control, Control::Init { .. }) { 0 } else { to.tag() };
    buffer.extend(tag.to_be_bytes());
    buffer.extend([0; 4]);
    control(packet, from, to, len, buffer);
    if let Some(sack) = &packet.sack {
        chunk(3, 0, buffer, |buffer| {
            buffer.extend(to.tsn(sack.cum_tsn_ack).to_be_bytes());
            buffer.extend(sack.a_rwnd.to_be_bytes());
            buffer.extend((sack.blocks.len() as u16).to_be_bytes());
            buffer.extend(sack.duplicates.to_be_bytes());
            for (first, last) in &sack.blocks {
                buffer.extend(first.to_be_bytes());
                buffer.extend(last.to_be_bytes());
            }
            // The simulator does not record which ones were duplicates.
            for _ in 0..sack.duplicates {
                buffer.extend(to.tsn(sack.cum_tsn_ack).to_be_bytes());
            }
        });
    }
    let mut headers = buffer.len() - start;
    for data in packet.data() {
        let flags = u8::from(data.begin) << 1 | u8::from(data.end);
        headers = buffer.len() + 16 - start;
        chunk(0, flags, buffer, |buffer| {
            buffer.extend(from.tsn(data.tsn).to_be_bytes());
            buffer.extend([0; 8]);
            buffer.resize(buffer.len() + usize::from(data.len), 0);
        });
    }
    let sum = crc32c(&buffer[start..]);
    buffer[start + 8..start + 12].copy_from_slice(&sum.to_le_bytes());
    headers
}

fn control(packet: &Packet, from: &Numbers, to: &Numbers, len: usize, buffer: &mut Vec<u8>) {
    // Fills the packet after the common header and the headers of chunk and parameter.
    let cookie = |headers: usize| vec![0; len.saturating_sub(12 + headers)];
    let init = |a_rwnd: u32, buffer: &mut Vec<u8>| {
        buffer.extend(from.tag().to_be_bytes());
        buffer.extend(a_rwnd.to_be_bytes());
        // One stream each way.
        buffer.extend([0, 1, 0, 1]);
        buffer.extend(from.initial.to_be_bytes());
    };
    match packet.control {
        Control::None => {}
        Control::Init { a_rwnd } => chunk(1, 0, buffer, |buffer| init(a_rwnd, buffer)),
        Control::InitAck { a_rwnd, .. } => chunk(2, 0, buffer, |buffer| {
            init(a_rwnd, buffer);
            let cookie = cookie(24);
            buffer.extend(7u16.to_be_bytes());
            buffer.extend((4 + cookie.len() as u16).to_be_bytes());
            buffer.extend(cookie);
        }),
        Control::CookieEcho { .. } => chunk(10, 0, buffer, |buffer| buffer.extend(cookie(4))),
        Control::CookieAck => chunk(11, 0, buffer, |_| ()),
        // Section 3.3.10.3, with a measure of staleness of 0.
        Control::StaleCookie => chunk(9, 0, buffer, |buffer| buffer.extend([0, 3, 0, 8, 0, 0, 0, 0])),
        Control::Shutdown { cum_tsn_ack } => {
            chunk(7, 0, buffer, |buffer| buffer.extend(to.tsn(cum_tsn_ack).to_be_bytes()));
        }
        Control::ShutdownAck => chunk(8, 0, buffer, |_| ()),
        Control::ShutdownComplete => chunk(14, 0, buffer, |_| ()),
        Control::Abort => chunk(6, 0, buffer, |_| ()),
    }
}

/// Writes a chunk. Its length field excludes the padding.
fn chunk(kind: u8, flags: u8, buffer: &mut Vec<u8>, contents: impl FnOnce(&mut Vec<u8>)) {
    let start = buffer.len();
    buffer.extend([kind, flags, 0, 0]);
    contents(buffer);
    let len = buffer.len() - start;
    buffer[start + 2..start + 4].copy_from_slice(&(len as u16).to_be_bytes());
    buffer.resize(start + len.next_multiple_of(4), 0);
}

/// CRC32c, RFC 9260 appendix A.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_transport::sctp::{Data, Sack};

    /// RFC 3720 appendix B.4: 32 bytes of zeros, and of ones.
    #[test]
    fn crc32c_matches_the_published_vectors() {
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    /// A SACK with a gap and a fragment of 5 bytes: every field at its position.
    #[test]
    fn chunks_follow_the_common_header() {
        let (from, to) = (Numbers { initial: 0x100, port: 7 }, Numbers { initial: 0x200, port: 9 });
        let mut packet = Packet::default();
        packet.sack = Some(Sack { cum_tsn_ack: 4, a_rwnd: 5, blocks: vec![(2, 3)], ..Sack::default() });
        assert!(packet.push(Data { tsn: 2, len: 5, begin: true, end: false }));
        let mut buffer = vec![9; 20];
        let headers = write(&packet, &from, &to, 56, &mut buffer);
        assert_eq!((headers, buffer.len()), (12 + 20 + 16, 20 + 12 + 20 + 24));
        let sent = &buffer[20..];
        assert_eq!(sent[..8], [0, 7, 0, 9, 0, 0, 2, 1]);
        assert_eq!(sent[12..32], [3, 0, 0, 20, 0, 0, 2, 3, 0, 0, 0, 5, 0, 1, 0, 0, 0, 2, 0, 3]);
        assert_eq!(sent[32..40], [0, 2, 0, 21, 0, 0, 1, 1]);
        // The checksum is computed with zeros in its field.
        let mut zeroed = sent.to_vec();
        zeroed[8..12].fill(0);
        assert_eq!(sent[8..12], crc32c(&zeroed).to_le_bytes());
        // The cookie fills an INIT ACK to the requested length.
        let control = Control::InitAck { a_rwnd: 1, cookie: Default::default() };
        let mut buffer = Vec::new();
        write(&Packet::control(control), &from, &to, 136, &mut buffer);
        assert_eq!(
            (buffer.len(), &buffer[12..16], &buffer[32..36]),
            (136, &[2, 0, 0, 124][..], &[0, 7, 0, 104][..])
        );
    }
}
