//! Packets and reports, and their lengths.

use bentpipe_units::Instant;

use super::Config;

/// Header of a packet without contributing sources, RFC 3550 section 5.1 [bytes].
const HEADER: u32 = 12;

/// An RTP packet without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Sequence number.
    pub seq: u16,
    /// When its medium was sampled [ticks of the media clock].
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
    /// The middle 32 bits of the NTP timestamp: when it was sent [2^-16 s].
    pub ntp: u32,
    /// Packets sent.
    pub packets: u32,
    /// Payload sent [bytes].
    pub octets: u32,
}

impl SenderReport {
    /// Length on the wire, with the canonical name [bytes].
    #[must_use]
    pub fn wire_len(cfg: &Config) -> u32 {
        cfg.udp_header_len + 28 + sdes(cfg)
    }
}

/// A receiver report, RFC 3550 section 6.4.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverReport {
    /// What came since the last report; none where nothing did.
    pub block: Option<ReportBlock>,
}

impl ReceiverReport {
    /// Length on the wire, with the canonical name [bytes].
    #[must_use]
    pub fn wire_len(&self, cfg: &Config) -> u32 {
        cfg.udp_header_len + 8 + if self.block.is_some() { 24 } else { 0 } + sdes(cfg)
    }
}

/// A report block, RFC 3550 section 6.4.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportBlock {
    /// Fraction lost since the last block [1/256].
    pub fraction_lost: u8,
    /// Packets expected and not received since the beginning, in 24 bits.
    pub cumulative_lost: i32,
    /// Highest sequence number received, with the count of its cycles above it.
    pub highest_seq: u32,
    /// Interarrival jitter [ticks of the media clock].
    pub jitter: u32,
    /// LSR: the timestamp of the last sender report received; zero where there was none [2^-16 s].
    pub lsr: u32,
    /// DLSR: time since then [2^-16 s].
    pub dlsr: u32,
}

/// Section 6.5: packet header, source, and the name with its type, its length and at least one zero, in words.
fn sdes(cfg: &Config) -> u32 {
    8 + (2 + cfg.cname_len.min(255) + 1).next_multiple_of(4)
}

/// The middle 32 bits of an NTP timestamp.
pub(super) fn ntp(at: Instant) -> u32 {
    ((u128::from(at.as_nanos()) << 16) / 1_000_000_000) as u32
}

/// A time in ticks of the media clock, which wrap.
pub(super) fn ticks(cfg: &Config, at: Instant) -> u32 {
    (u128::from(at.as_nanos()) * u128::from(cfg.clock_rate) / 1_000_000_000) as u32
}
