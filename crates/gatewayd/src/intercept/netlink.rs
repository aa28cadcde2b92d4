//! Netlink messages of nfnetlink_queue: headers, attributes, packets and verdicts. Pure functions on bytes.
//!
//! Input is untrusted: a truncated or inconsistent message is ignored.

/// Length of netlink's message header, nfnetlink's header and an attribute's header [bytes].
const HEADER: usize = 16;
const GENERIC: usize = 4;
pub(crate) const ATTRIBUTE: usize = 4;

const PACKET: u16 = message(libc::NFQNL_MSG_PACKET);
pub(crate) const VERDICT: u16 = message(libc::NFQNL_MSG_VERDICT);
pub(crate) const CONFIG: u16 = message(libc::NFQNL_MSG_CONFIG);
pub(crate) const VERDICT_BATCH: u16 = message(libc::NFQNL_MSG_VERDICT_BATCH);

const fn message(kind: libc::c_int) -> u16 {
    (libc::NFNL_SUBSYS_QUEUE << 8 | kind) as u16
}

/// A received message.
#[derive(Debug, PartialEq, Eq)]
pub enum Message {
    /// A packet.
    Packet {
        /// Its id, for the verdict.
        id: u32,
        /// Offset of its first byte.
        at: usize,
        /// Number of bytes present.
        len: usize,
        /// Length of the packet before it was truncated [bytes].
        whole: usize,
    },
    /// Result of an earlier message: 0 or a negated errno.
    Status(i32),
    /// Another message.
    Other,
}

/// The message at offset `at` and the offset of the next; `None` if no complete message begins there.
#[must_use]
pub fn message_at(bytes: &[u8], at: usize) -> Option<(Message, usize)> {
    let rest = bytes.get(at..)?;
    let length = native(rest, 0)? as usize;
    if length < HEADER || length > rest.len() {
        return None;
    }
    let kind = u16::from_ne_bytes([rest[4], rest[5]]);
    let body = &rest[..length];
    let message = if i32::from(kind) == libc::NLMSG_ERROR {
        native(body, HEADER).map_or(Message::Other, |code| Message::Status(code.cast_signed()))
    } else if kind == PACKET {
        packet_in(body).map_or(Message::Other, |(id, from, len, whole)| Message::Packet {
            id,
            at: at + from,
            len,
            whole,
        })
    } else {
        Message::Other
    };
    Some((message, at + aligned(length)))
}

/// Id, offset, length and original length of the packet in a message.
fn packet_in(body: &[u8]) -> Option<(u32, usize, usize, usize)> {
    let (mut id, mut payload, mut whole) = (None, None, None);
    let mut at = HEADER + GENERIC;
    while at + ATTRIBUTE <= body.len() {
        let length = usize::from(u16::from_ne_bytes([body[at], body[at + 1]]));
        // The two highest bits are flags (nested, network byte order).
        let kind = i32::from(u16::from_ne_bytes([body[at + 2], body[at + 3]]) & 0x3fff);
        if length < ATTRIBUTE || at + length > body.len() {
            return None;
        }
        match kind {
            libc::NFQA_PACKET_HDR if length >= 8 => id = big(body, at + ATTRIBUTE),
            libc::NFQA_CAP_LEN if length >= 8 => whole = big(body, at + ATTRIBUTE),
            libc::NFQA_PAYLOAD => payload = Some((at + ATTRIBUTE, length - ATTRIBUTE)),
            _ => {}
        }
        at += aligned(length);
    }
    // A packet that arrived before the queue was configured has no payload.
    let (from, len) = payload.unwrap_or((body.len(), 0));
    Some((id?, from, len, whole.map_or(len, |whole| whole as usize)))
}

/// Reads a number in host byte order.
pub(crate) fn native(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Reads a number in network byte order.
pub(crate) fn big(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

const fn aligned(length: usize) -> usize {
    (length + 3) & !3
}

/// Begins a message; [`end`] sets its length.
pub(crate) fn begin(out: &mut Vec<u8>, kind: u16, flags: libc::c_int, number: u16) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(&(flags as u16).to_ne_bytes());
    out.extend_from_slice(&[0; 8]);
    // nfgenmsg: family, version, queue number.
    out.extend_from_slice(&[libc::AF_UNSPEC as u8, libc::NFNETLINK_V0 as u8]);
    out.extend_from_slice(&number.to_be_bytes());
    start
}

/// Adds an attribute to a message.
pub(crate) fn attribute(out: &mut Vec<u8>, kind: libc::c_int, value: &[u8]) {
    out.extend_from_slice(&((ATTRIBUTE + value.len()) as u16).to_ne_bytes());
    out.extend_from_slice(&(kind as u16).to_ne_bytes());
    out.extend_from_slice(value);
    out.resize(aligned(out.len()), 0);
}

/// Sets the length of the message that began at `start`.
pub(crate) fn end(out: &mut [u8], start: usize) {
    let length = (out.len() - start) as u32;
    out[start..start + 4].copy_from_slice(&length.to_ne_bytes());
}

/// Adds a verdict, with the packet's bytes if it was changed.
pub(crate) fn verdict(
    out: &mut Vec<u8>,
    number: u16,
    kind: u16,
    verdict: libc::c_int,
    id: u32,
    payload: Option<&[u8]>,
) {
    let start = begin(out, kind, libc::NLM_F_REQUEST, number);
    let mut header = [0; 8];
    header[..4].copy_from_slice(&(verdict as u32).to_be_bytes());
    header[4..].copy_from_slice(&id.to_be_bytes());
    attribute(out, libc::NFQA_VERDICT_HDR, &header);
    if let Some(bytes) = payload {
        attribute(out, libc::NFQA_PAYLOAD, bytes);
    }
    end(out, start);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_encoding() {
        let mut bytes = Vec::new();
        let start = begin(&mut bytes, PACKET, 0, 3);
        attribute(&mut bytes, libc::NFQA_PACKET_HDR, &[0, 0, 0, 9, 8, 0, 0]);
        // With the flag for network byte order.
        attribute(&mut bytes, libc::NFQA_CAP_LEN | 0x4000, &1500u32.to_be_bytes());
        attribute(&mut bytes, libc::NFQA_PAYLOAD, &[5, 6, 7]);
        end(&mut bytes, start);
        let whole = bytes.len();
        assert_eq!(whole, 20 + 12 + 8 + 8);
        let expected = Message::Packet { id: 9, at: 44, len: 3, whole: 1500 };
        assert_eq!(message_at(&bytes, 0), Some((expected, whole)));
        // Next, the reply to an error; last, a truncated message.
        let start = begin(&mut bytes, libc::NLMSG_ERROR as u16, 0, 0);
        bytes[start + HEADER..].copy_from_slice(&(-2i32).to_ne_bytes());
        end(&mut bytes, start);
        assert_eq!(message_at(&bytes, whole), Some((Message::Status(-2), whole + 20)));
        assert_eq!(message_at(&bytes, whole + 20), None);
        assert_eq!(message_at(&bytes[..whole - 1], 0), None);
    }
}
