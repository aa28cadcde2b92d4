//! Packets and reports, and their lengths.

use bentpipe_units::Instant;

use super::{Config, Feedback};

/// Header of a packet without contributing sources, RFC 3550 section 5.1 [bytes].
const HEADER: u32 = 12;

/// An RTP packet without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Sequence number.
    pub seq: u16,
    /// Sampling time of the medium [ticks of the media clock].
    pub timestamp: u32,
}

impl Packet {
    /// Headers of a packet on the wire [bytes].
    #[must_use]
    pub fn header_len(cfg: &Config) -> u32 {
        cfg.udp_header_len + HEADER
    }
}

/// A sender report without report blocks, RFC 3550 section 6.4.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderReport {
    /// Middle 32 bits of the NTP timestamp at departure [2^-16 s].
    pub ntp: u32,
    /// Packets sent.
    pub packets: u32,
    /// Payload sent [bytes].
    pub octets: u32,
}

impl SenderReport {
    /// Length on the wire, including the canonical name [bytes].
    #[must_use]
    pub fn wire_len(cfg: &Config) -> u32 {
        cfg.udp_header_len + 28 + sdes(cfg)
    }
}

/// A receiver report, RFC 3550 section 6.4.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverReport {
    /// Report on the packets received since the last report; `None` without any.
    pub block: Option<ReportBlock>,
    /// Feedback of NADA; `None` without NADA, or without packets.
    pub nada: Option<Feedback>,
}

impl ReceiverReport {
    /// Length on the wire, including the canonical name [bytes].
    #[must_use]
    pub fn wire_len(&self, cfg: &Config) -> u32 {
        let block = if self.block.is_some() { 24 } else { 0 };
        let nada = if self.nada.is_some() { Feedback::LEN } else { 0 };
        cfg.udp_header_len + 8 + block + nada + sdes(cfg)
    }
}

/// A report block, RFC 3550 section 6.4.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportBlock {
    /// Fraction lost since the last block [1/256].
    pub fraction_lost: u8,
    /// Packets expected and not received since the start, in 24 bits.
    pub cumulative_lost: i32,
    /// Extended highest sequence number received: the number of cycles in the upper 16 bits.
    pub highest_seq: u32,
    /// Interarrival jitter [ticks of the media clock].
    pub jitter: u32,
    /// LSR: timestamp of the last sender report received; zero if none [2^-16 s].
    pub lsr: u32,
    /// DLSR: time since the last sender report [2^-16 s].
    pub dlsr: u32,
}

/// Length of an SDES packet, section 6.5: header, source, and the name with its type, its length and at least one zero,
/// padded to words [bytes].
fn sdes(cfg: &Config) -> u32 {
    8 + (2 + cfg.cname_len.min(255) + 1).next_multiple_of(4)
}

/// Middle 32 bits of the NTP timestamp [2^-16 s].
pub(super) fn ntp(at: Instant) -> u32 {
    ((u128::from(at.as_nanos()) << 16) / 1_000_000_000) as u32
}

/// Time in ticks of the media clock, modulo 2^32.
pub(super) fn ticks(cfg: &Config, at: Instant) -> u32 {
    (u128::from(at.as_nanos()) * u128::from(cfg.clock_rate) / 1_000_000_000) as u32
}
