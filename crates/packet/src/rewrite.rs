//! Changes of single header fields in place.
//!
//! Checksums are adjusted by the difference (RFC 1624, equation 3). A packet that arrived with a wrong checksum keeps a
//! wrong one, so its receiver still detects the damage.

use bentpipe_queue::Ecn;

use crate::parse::{Ip, Layout, ecn};

/// Sets the ECN field to CE. Returns true if the packet carries CE afterwards; a packet that is not ECN-capable is left
/// unchanged.
#[must_use]
pub fn set_ce(packet: &mut [u8]) -> bool {
    let Some(at) = Layout::of(packet) else { return false };
    let is_v4 = matches!(at.ip, Ip::V4(_));
    match ecn(&at.ip) {
        Ecn::NotEct => return false,
        Ecn::Ce => return true,
        Ecn::Ect | Ecn::Ect1 => {}
    }
    // The 16-bit word that holds the field. IPv6 has no header checksum, and no pseudo-header covers the traffic class.
    let old = word(packet, 0);
    if is_v4 {
        put_word(packet, 0, old | 3);
        adjust_checksum(packet, 10, old, old | 3);
    } else {
        put_word(packet, 0, old | 0x30);
    }
    true
}

/// Sets the window field of the TCP header. Returns false if the packet has no TCP header.
pub fn set_window(packet: &mut [u8], window: u16) -> bool {
    let Some(start) = Layout::of(packet).and_then(|at| at.tcp(packet).map(|_| at.transport)) else {
        return false;
    };
    let old = word(packet, start + 14);
    put_word(packet, start + 14, window);
    adjust_checksum(packet, start + 16, old, window);
    true
}

fn word(packet: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([packet[at], packet[at + 1]])
}

fn put_word(packet: &mut [u8], at: usize, word: u16) {
    packet[at..at + 2].copy_from_slice(&word.to_be_bytes());
}

/// Adjusts the checksum at `at` after one 16-bit word under it has changed (RFC 1624, equation 3).
fn adjust_checksum(packet: &mut [u8], at: usize, old: u16, new: u16) {
    let mut sum = u32::from(!word(packet, at)) + u32::from(!old) + u32::from(new);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    put_word(packet, at, !(sum as u16));
}
