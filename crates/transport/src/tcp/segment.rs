//! What two connections exchange.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

use bentpipe_units::Instant;

/// The control bits of a segment, RFC 9293 section 3.1 and RFC 3168.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(u8);

impl Flags {
    /// No bit.
    pub const NONE: Self = Self(0);
    /// No more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// Synchronize sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset the connection.
    pub const RST: Self = Self(0x04);
    /// The acknowledgement number counts.
    pub const ACK: Self = Self(0x10);
    /// ECN echo.
    pub const ECE: Self = Self(0x40);
    /// Congestion window reduced.
    pub const CWR: Self = Self(0x80);
    /// Accurate ECN (RFC 9768), which stands in the byte before these; here in the place of URG.
    pub const AE: Self = Self(0x20);
    /// The bits of the ACE field, RFC 9768 section 3.2.2.
    const ACE: Self = Self(0xe0);

    /// Whether any bit of `bits` is set.
    #[inline]
    #[must_use]
    pub const fn has(self, bits: Self) -> bool {
        self.0 & bits.0 != 0
    }

    /// These bits and, where `condition` holds, those of `bits`.
    #[inline]
    #[must_use]
    pub const fn with(self, bits: Self, condition: bool) -> Self {
        if condition { Self(self.0 | bits.0) } else { self }
    }

    /// The ACE field, RFC 9768 section 3.2.2: AE, CWR and ECE as a number, the last the lowest bit.
    #[inline]
    #[must_use]
    pub const fn ace(self) -> u8 {
        let (ae, cwr, ece) = (self.has(Self::AE), self.has(Self::CWR), self.has(Self::ECE));
        (ae as u8) << 2 | (cwr as u8) << 1 | ece as u8
    }

    /// These bits with the lowest three of `count` in the ACE field.
    #[inline]
    #[must_use]
    pub const fn with_ace(self, count: u8) -> Self {
        Self(self.0 & !Self::ACE.0)
            .with(Self::AE, count & 4 != 0)
            .with(Self::CWR, count & 2 != 0)
            .with(Self::ECE, count & 1 != 0)
    }

    /// The bits as they stand in the header's second control byte (RFC 9293 section 3.1).
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
    /// As tcpdump would write them: `S.` is a SYN with an ACK; `-` is none.
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

/// The ECN field of the packet that a segment travels in, RFC 3168 section 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Ecn {
    /// The network must not mark it.
    #[default]
    NotEct,
    /// ECT(1): the network may mark it, and early, for the sender reduces its window in proportion (RFC 9331).
    Ect1,
    /// ECT(0): the network may mark it where it would else drop it.
    Ect0,
    /// It was marked.
    Ce,
}

/// The selective acknowledgements of a segment, RFC 2018: up to three blocks, as many as fit beside timestamps.
/// In a SYN, which has none, what it offers: them, and a scale for windows (RFC 7323 section 2).
///
/// They are kept as distances from the segment's ACK number, which 32 bits hold as they hold the window.
/// Where both are the same they are no block: 1 in the first is the option "SACK-permitted", and the shift
/// plus 1 in the second the window scale option.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Sack([Block; Self::MAX_BLOCKS]);

/// Where a block begins and ends, in one word, which is moved faster than two.
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
    /// The most blocks there are in a segment.
    pub const MAX_BLOCKS: usize = 3;
    /// No block, and no offer.
    pub const NONE: Self = Self([Block::NONE; Self::MAX_BLOCKS]);
    /// The option "SACK-permitted" of a SYN, RFC 2018 section 2.
    pub const PERMITTED: Self = Self([Block::new(1, 1), Block::NONE, Block::NONE]);

    /// The blocks of an ACK of `ack`, half open, the most recent first. Those that do not lie in the 4 GiB
    /// beyond it, and all after the third, are left out.
    #[must_use]
    pub fn new(ack: u64, blocks: &[(u64, u64)]) -> Self {
        let mut sack = Self::NONE;
        let offset = |position: u64| position.checked_sub(ack).and_then(|offset| u32::try_from(offset).ok());
        let offsets = blocks.iter().filter_map(|&(start, end)| Some((offset(start)?, offset(end)?)));
        for (place, (start, end)) in sack.0.iter_mut().zip(offsets.filter(|(start, end)| start < end)) {
            *place = Block::new(start, end);
        }
        sack
    }

    /// Whether it is the option of a SYN.
    #[inline]
    #[must_use]
    pub const fn is_permitted(&self) -> bool {
        self.0[0].0 == Block::new(1, 1).0
    }

    /// The same, with the window scale option of a SYN, where there is a `shift`.
    #[must_use]
    pub const fn with_scale(mut self, shift: Option<u8>) -> Self {
        if let Some(shift) = shift {
            self.0[1] = Block::new(shift as u32 + 1, shift as u32 + 1);
        }
        self
    }

    /// The shift in the window scale option of a SYN, RFC 7323 section 2.2.
    #[inline]
    #[must_use]
    pub const fn scale(&self) -> Option<u8> {
        match self.0[1].start() {
            0 => None,
            plus if plus == self.0[1].end() => Some((plus - 1) as u8),
            _ => None,
        }
    }

    /// What the options take in the header [bytes], padded to whole words.
    const fn len(&self, timestamps: bool) -> u32 {
        // RFC 2018 section 3: two bytes, and eight for each block; and two of padding.
        let mut blocks = 0;
        let mut place = 0;
        while place < Self::MAX_BLOCKS {
            blocks += !self.0[place].is_none() as u32;
            place += 1;
        }
        let blocks = if blocks > 0 { 4 + 8 * blocks } else { 0 };
        // RFC 2018 section 2: two bytes, which take the place of the timestamps' padding where there are any.
        let permitted = if self.is_permitted() && !timestamps { 4 } else { 0 };
        // RFC 7323 section 2.2: three bytes.
        let scale = if self.scale().is_some() { 4 } else { 0 };
        blocks + permitted + scale
    }

    /// The same with a block before the others that says what arrived twice, RFC 2883 section 4, in a segment
    /// that acknowledges `ack`. Before `ack` its distances count backwards.
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

    /// What the first block says arrived twice, RFC 2883 section 4: it lies before `ack`, or in the second.
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

    /// The blocks as they stand in the header, one before `ack` as well.
    pub fn wire_blocks(&self, ack: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.dsack(ack).filter(|duplicate| duplicate.1 <= ack).into_iter().chain(self.blocks(ack))
    }

    /// The blocks beyond `ack`, in a segment that acknowledges it.
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

/// The timestamps option, RFC 7323 section 3, in ticks of a microsecond that wrap.
///
/// Its ticks are shorter than the millisecond that section 5.4 there asks for, so that round trips are not
/// rounded by it ([`Config::clock_granularity`](super::Config::clock_granularity) does that). The section's
/// reason, protection against wrapped sequence numbers (PAWS), does not apply: positions do not wrap here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Timestamps {
    /// TSval: when the segment left. Zero: it has no timestamps.
    pub value: u32,
    /// TSecr: TSval of the segment that is answered; zero in a SYN.
    pub echo: u32,
}

impl Timestamps {
    /// No option.
    pub const NONE: Self = Self { value: 0, echo: 0 };

    /// The option of a segment that leaves at `now`.
    #[inline]
    #[must_use]
    pub fn new(now: Instant, echo: u32) -> Self {
        Self { value: ((now.as_nanos() / 1000) as u32).max(1), echo }
    }

    /// Whether the segment has it.
    #[inline]
    #[must_use]
    pub const fn is_some(self) -> bool {
        self.value != 0
    }
}

/// A TCP segment without its payload, whose length is all a simulator needs.
///
/// Positions in the stream are 64 bits wide and never wrap: a SYN is 0, the first byte of data is 1, and a
/// FIN takes one after the last. Initial sequence numbers are thus always zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Position of the first byte (or of the SYN).
    pub seq: u64,
    /// Position of the next byte expected; counts where [`Flags::ACK`] is set.
    pub ack: u64,
    /// Payload [bytes].
    pub len: u32,
    /// Advertised window [bytes]: the field of the header after scaling.
    pub window: u32,
    /// Congestion window of the sender when the segment left [bytes]. No part of the protocol: schedulers
    /// read it.
    pub cwnd: u32,
    /// Selective acknowledgements, or what a SYN offers.
    pub sack: Sack,
    /// Timestamps.
    pub timestamps: Timestamps,
    /// Control bits.
    pub flags: Flags,
    /// Whether all or part of it was sent before. No part of the protocol: traces read it.
    pub retransmission: bool,
    /// Whether the network may mark it instead of dropping it, or did.
    pub ecn: Ecn,
}

impl Segment {
    /// One past the last position the segment takes: payload, and one each for SYN and FIN.
    #[inline]
    #[must_use]
    pub fn end(&self) -> u64 {
        self.seq
            .saturating_add(u64::from(self.len))
            .saturating_add(u64::from(self.flags.has(Flags::SYN)) + u64::from(self.flags.has(Flags::FIN)))
    }

    /// What the options take in the header [bytes], of the 40 there are: the segment size in a SYN (four bytes,
    /// RFC 9293 section 3.7.1), timestamps (ten and two of padding, RFC 7323 section 3.2), selective
    /// acknowledgements and the window scale.
    #[inline]
    #[must_use]
    pub const fn options_len(&self) -> u32 {
        let stamped = self.timestamps.is_some();
        let size = if self.flags.has(Flags::SYN) { 4 } else { 0 };
        size + if stamped { 12 } else { 0 } + self.sack.len(stamped)
    }
}
