//! Segments, the unit of exchange between two connections.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

use bentpipe_units::Instant;

/// Control bits of a segment, RFC 9293 section 3.1 and RFC 3168.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(u8);

impl Flags {
    /// No bits set.
    pub const NONE: Self = Self(0);
    /// FIN: no more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// SYN: synchronize sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// RST: reset the connection.
    pub const RST: Self = Self(0x04);
    /// ACK: the acknowledgement number is valid.
    pub const ACK: Self = Self(0x10);
    /// ECE: ECN echo.
    pub const ECE: Self = Self(0x40);
    /// CWR: congestion window reduced.
    pub const CWR: Self = Self(0x80);
    /// AE: accurate ECN (RFC 9768). In the header it is a bit of the previous byte; here it takes the place of URG.
    pub const AE: Self = Self(0x20);
    /// The bits of the ACE field, RFC 9768 section 3.2.2.
    const ACE: Self = Self(0xe0);

    /// True if any of `bits` is set.
    #[inline]
    #[must_use]
    pub const fn has(self, bits: Self) -> bool {
        self.0 & bits.0 != 0
    }

    /// This set with `bits` added if `condition` is true.
    #[inline]
    #[must_use]
    pub const fn with(self, bits: Self, condition: bool) -> Self {
        if condition { Self(self.0 | bits.0) } else { self }
    }

    /// The ACE field, RFC 9768 section 3.2.2: AE, CWR and ECE as a number, with ECE as the lowest bit.
    #[inline]
    #[must_use]
    pub const fn ace(self) -> u8 {
        let (ae, cwr, ece) = (self.has(Self::AE), self.has(Self::CWR), self.has(Self::ECE));
        (ae as u8) << 2 | (cwr as u8) << 1 | ece as u8
    }

    /// This set with the lowest three bits of `count` in the ACE field.
    #[inline]
    #[must_use]
    pub const fn with_ace(self, count: u8) -> Self {
        Self(self.0 & !Self::ACE.0)
            .with(Self::AE, count & 4 != 0)
            .with(Self::CWR, count & 2 != 0)
            .with(Self::ECE, count & 1 != 0)
    }

    /// The bits as in the second control byte of the header (RFC 9293 section 3.1).
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0 & !Self::AE.0
    }
}

impl BitOr for Flags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Flags {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for Flags {
    /// As tcpdump prints them: `S.` is SYN and ACK, `-` no bit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NONE {
            return f.write_str("-");
        }
        for (bit, letter) in [
            (Self::SYN, "S"),
            (Self::FIN, "F"),
            (Self::RST, "R"),
            (Self::ECE, "E"),
            (Self::CWR, "W"),
            (Self::AE, "A"),
            (Self::ACK, "."),
        ] {
            if self.has(bit) {
                f.write_str(letter)?;
            }
        }
        Ok(())
    }
}

/// ECN field of the packet that carries a segment, RFC 3168 section 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Ecn {
    /// Not ECN-capable: the network must not mark it.
    #[default]
    NotEct,
    /// ECT(1): the network may mark it early, because the sender reduces its window in proportion (RFC 9331).
    Ect1,
    /// ECT(0): the network may mark it instead of dropping it.
    Ect0,
    /// CE: congestion experienced.
    Ce,
}

/// SACK blocks of a segment, RFC 2018: up to three, as many as fit next to timestamps. In a SYN, which has none, the
/// options it offers: SACK and window scaling (RFC 7323 section 2).
///
/// Blocks are stored as 32-bit distances from the segment's ACK number. A block whose ends are equal is not a block: 1
/// in the first is the option "SACK-permitted", and in the second the window scale shift plus 1.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Sack([Block; Self::MAX_BLOCKS]);

/// Start and end of a block in one word, which is faster to move than two.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Block(u64);

impl Block {
    const NONE: Self = Self(0);

    const fn new(start: u32, end: u32) -> Self {
        Self((start as u64) << 32 | end as u64)
    }

    const fn start(self) -> u32 {
        (self.0 >> 32) as u32
    }

    const fn end(self) -> u32 {
        self.0 as u32
    }

    const fn is_none(self) -> bool {
        self.start() == self.end()
    }
}

impl Sack {
    /// Maximum number of blocks in a segment.
    pub const MAX_BLOCKS: usize = 3;
    /// No blocks and no options.
    pub const NONE: Self = Self([Block::NONE; Self::MAX_BLOCKS]);
    /// The option "SACK-permitted" of a SYN, RFC 2018 section 2.
    pub const PERMITTED: Self = Self([Block::new(1, 1), Block::NONE, Block::NONE]);

    /// The blocks of an ACK of `ack`, half-open, the most recent first. Blocks outside the 4 GiB above `ack`, and all
    /// after the third, are left out.
    #[must_use]
    pub fn new(ack: u64, blocks: &[(u64, u64)]) -> Self {
        let mut sack = Self::NONE;
        let offset = |position: u64| position.checked_sub(ack).and_then(|offset| u32::try_from(offset).ok());
        let offsets = blocks.iter().filter_map(|&(start, end)| Some((offset(start)?, offset(end)?)));
        for (slot, (start, end)) in sack.0.iter_mut().zip(offsets.filter(|(start, end)| start < end)) {
            *slot = Block::new(start, end);
        }
        sack
    }

    /// True if this is the option "SACK-permitted" of a SYN.
    #[inline]
    #[must_use]
    pub const fn is_permitted(&self) -> bool {
        self.0[0].0 == Block::new(1, 1).0
    }

    /// Adds the window scale option of a SYN, if there is a `shift`.
    #[must_use]
    pub const fn with_scale(mut self, shift: Option<u8>) -> Self {
        if let Some(shift) = shift {
            self.0[1] = Block::new(shift as u32 + 1, shift as u32 + 1);
        }
        self
    }

    /// Shift of the window scale option of a SYN, RFC 7323 section 2.2; `None` without the option.
    #[inline]
    #[must_use]
    pub const fn scale(&self) -> Option<u8> {
        match self.0[1].start() {
            0 => None,
            plus if plus == self.0[1].end() => Some((plus - 1) as u8),
            _ => None,
        }
    }

    /// Length of the options in the header, padded to whole words [bytes].
    const fn len(&self, timestamps: bool) -> u32 {
        // RFC 2018 section 3: two bytes, eight for each block, two of padding.
        let mut blocks = 0;
        let mut index = 0;
        while index < Self::MAX_BLOCKS {
            blocks += !self.0[index].is_none() as u32;
            index += 1;
        }
        let blocks = if blocks > 0 { 4 + 8 * blocks } else { 0 };
        // RFC 2018 section 2: two bytes, which replace the padding of the timestamps if present.
        let permitted = if self.is_permitted() && !timestamps { 4 } else { 0 };
        // RFC 7323 section 2.2: three bytes.
        let scale = if self.scale().is_some() { 4 } else { 0 };
        blocks + permitted + scale
    }

    /// Puts a D-SACK block before the others, RFC 2883 section 4: what arrived twice, in a segment that acknowledges
    /// `ack`. Distances of a block below `ack` count backwards.
    #[must_use]
    pub fn with_dsack(mut self, ack: u64, (start, end): (u64, u64)) -> Self {
        let offset = |position: u64| u32::try_from(position.abs_diff(ack)).ok();
        let start = if end > ack { start.max(ack) } else { start };
        if let (Some(start), Some(end)) = (offset(start), offset(end))
            && start != end
        {
            self.0.rotate_right(1);
            self.0[0] = Block::new(start, end);
        }
        self
    }

    /// The D-SACK block, RFC 2883 section 4: the first block if it lies below `ack` or within the second. `ack` is the
    /// segment's ACK number.
    #[must_use]
    pub fn dsack(&self, ack: u64) -> Option<(u64, u64)> {
        let [first, second, _] = self.0;
        let (start, end) = (first.start(), first.end());
        if start > end {
            return Some((ack.saturating_sub(u64::from(start)), ack.saturating_sub(u64::from(end))));
        }
        let within = start < end && second.start() <= start && end <= second.end();
        within.then(|| (ack.saturating_add(u64::from(start)), ack.saturating_add(u64::from(end))))
    }

    /// All blocks in header order, including a D-SACK block below `ack`.
    pub fn wire_blocks(&self, ack: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.dsack(ack).filter(|duplicate| duplicate.1 <= ack).into_iter().chain(self.blocks(ack))
    }

    /// The blocks above `ack`, the segment's ACK number.
    pub fn blocks(&self, ack: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let filled = self.0.iter().filter(|block| block.start() < block.end());
        filled.map(move |block| {
            (ack.saturating_add(u64::from(block.start())), ack.saturating_add(u64::from(block.end())))
        })
    }
}

impl fmt::Debug for Sack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_permitted() {
            f.write_str("permitted ")?;
        }
        if let Some(shift) = self.scale() {
            return write!(f, "scale {shift}");
        }
        let blocks = self.0.iter().filter(|block| !block.is_none());
        f.debug_list().entries(blocks.map(|block| (block.start(), block.end()))).finish()
    }
}

/// Timestamps option, RFC 7323 section 3, in microseconds modulo 2^32.
///
/// Section 5.4 asks for ticks of at least one millisecond. Shorter ones do not round the RTT here
/// ([`Config::clock_granularity`](super::Config::clock_granularity) does), and the section's reason, protection against
/// wrapped sequence numbers (PAWS), does not apply because positions never wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Timestamps {
    /// TSval: departure time of the segment. Zero: no option.
    pub value: u32,
    /// TSecr: TSval of the segment that this one answers; zero in a SYN.
    pub echo: u32,
}

impl Timestamps {
    /// No option.
    pub const NONE: Self = Self { value: 0, echo: 0 };

    /// The option of a segment sent at `now`.
    #[inline]
    #[must_use]
    pub fn new(now: Instant, echo: u32) -> Self {
        Self { value: ((now.as_nanos() / 1000) as u32).max(1), echo }
    }

    /// True if the segment has the option.
    #[inline]
    #[must_use]
    pub const fn is_some(self) -> bool {
        self.value != 0
    }
}

/// A TCP segment without its payload, of which only the length is kept.
///
/// Positions in the stream have 64 bits and never wrap: the SYN is at 0, the first data byte at 1, and a FIN takes the
/// position after the last byte. All initial sequence numbers are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Position of the first byte, or of the SYN.
    pub seq: u64,
    /// Next position expected; valid if [`Flags::ACK`] is set.
    pub ack: u64,
    /// Payload [bytes].
    pub len: u32,
    /// Advertised window after scaling [bytes].
    pub window: u32,
    /// Congestion window of the sender at departure [bytes]. Not part of the protocol; schedulers read it.
    pub cwnd: u32,
    /// SACK blocks, or the options of a SYN.
    pub sack: Sack,
    /// Timestamps option.
    pub timestamps: Timestamps,
    /// Control bits.
    pub flags: Flags,
    /// True if any part of it was sent before. Not part of the protocol; traces read it.
    pub retransmission: bool,
    /// ECN field of the packet.
    pub ecn: Ecn,
}

impl Segment {
    /// Position after the last one the segment takes: payload, and one each for SYN and FIN.
    #[inline]
    #[must_use]
    pub fn end(&self) -> u64 {
        self.seq
            .saturating_add(u64::from(self.len))
            .saturating_add(u64::from(self.flags.has(Flags::SYN)) + u64::from(self.flags.has(Flags::FIN)))
    }

    /// Length of the options in the header, at most 40 [bytes]: MSS in a SYN (four bytes, RFC 9293 section 3.7.1),
    /// timestamps (ten and two of padding, RFC 7323 section 3.2), SACK and window scale.
    #[inline]
    #[must_use]
    pub const fn options_len(&self) -> u32 {
        let stamped = self.timestamps.is_some();
        let size = if self.flags.has(Flags::SYN) { 4 } else { 0 };
        size + if stamped { 12 } else { 0 } + self.sack.len(stamped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9293 section 3.1 and RFC 3168: from CWR, the highest bit, to FIN, the lowest. AE lies in another byte. A bit that is set
    /// twice remains set.
    #[test]
    fn control_bits_are_those_of_the_header() {
        for (flags, bits) in [
            (Flags::NONE, 0b0000_0000),
            (Flags::CWR | Flags::ACK | Flags::FIN, 0b1001_0001),
            (Flags::ECE | Flags::RST | Flags::AE, 0b0100_0100),
            (Flags::SYN | Flags::AE | Flags::SYN, 0b0000_0010),
            (Flags::ACK.with(Flags::ACK | Flags::FIN, true), 0b0001_0001),
            (Flags::ACK.with(Flags::FIN, false), 0b0001_0000),
        ] {
            assert_eq!(flags.bits(), bits, "{flags:?}");
        }
    }
}
