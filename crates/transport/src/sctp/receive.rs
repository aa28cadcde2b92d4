//! Receive half: RFC 9260 sections 6.2, 6.7 and 6.9.

use std::collections::VecDeque;

use bentpipe_units::Instant;

use super::packet::SACK_HEADER;
use super::{Config, Data, Sack};

/// Maximum offset of a TSN from `cum_tsn_ack`: gap ack blocks have 16 bits.
const MAX_OFFSET: u64 = u16::MAX as u64;

/// A TSN received out of order; of length zero if missing.
#[derive(Clone, Copy, Debug, Default)]
struct AheadChunk {
    len: u16,
    end: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Receiver {
    /// Last TSN before the first missing one.
    pub(super) cum_tsn_ack: u64,
    /// The TSNs after it, up to the highest received; neither the first nor the last is missing.
    ahead: VecDeque<AheadChunk>,
    /// Data received out of order [bytes].
    ahead_bytes: u64,
    /// In-order data of an incomplete message [bytes].
    partial: u64,
    /// In-order data waiting for the application [bytes].
    pub(super) unread: u64,
    /// In-order data, read or not [bytes].
    pub(super) received: u64,
    duplicates: u16,
    duplicate_bytes: u32,
    /// Packets with DATA since the last SACK.
    packets: u32,
    /// A SACK is due now, or at a time.
    pub(super) sack_now: bool,
    pub(super) sack_at: Option<Instant>,
    /// `a_rwnd` as last advertised.
    advertised: u64,
}

/// Result of processing a chunk.
enum ReceiveOutcome {
    Accepted,
    Duplicate,
    Dropped,
}

impl Receiver {
    pub(super) fn new(cfg: &Config) -> Self {
        Self { advertised: u64::from(cfg.a_rwnd), ..Self::default() }
    }

    /// Free receive buffer [bytes].
    fn room(&self, cfg: &Config) -> u64 {
        u64::from(cfg.a_rwnd).saturating_sub(self.unread + self.partial + self.ahead_bytes)
    }

    /// True if TSNs are missing.
    pub(super) fn has_gaps(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Processes the DATA chunks of a packet.
    pub(super) fn on_data(&mut self, cfg: &Config, now: Instant, chunks: &[Data]) {
        let gaps = self.has_gaps();
        let first = self.cum_tsn_ack == 0 && !gaps;
        let (mut accepted, mut dropped) = (false, false);
        for chunk in chunks {
            match self.on_chunk(cfg, chunk) {
                ReceiveOutcome::Accepted => accepted = true,
                ReceiveOutcome::Dropped => dropped = true,
                ReceiveOutcome::Duplicate => {
                    self.duplicates = self.duplicates.saturating_add(1);
                    self.duplicate_bytes = self.duplicate_bytes.saturating_add(chunk.size());
                }
            }
        }
        self.packets += 1;
        // Section 6.2: an immediate SACK for dropped chunks, for duplicates only, and for every second packet; section
        // 6.7: for every packet while TSNs are missing, including the one that fills the gap. Section 5.1: for the
        // first packet.
        if dropped || !accepted || gaps || self.has_gaps() || first || self.packets >= cfg.sack_every.max(1) {
            self.sack_now = true;
        } else {
            let at = now + cfg.sack_delay;
            self.sack_at = Some(self.sack_at.map_or(at, |earlier| earlier.min(at)));
        }
    }

    fn on_chunk(&mut self, cfg: &Config, chunk: &Data) -> ReceiveOutcome {
        if chunk.tsn <= self.cum_tsn_ack {
            return ReceiveOutcome::Duplicate;
        }
        let offset = chunk.tsn - self.cum_tsn_ack - 1;
        let index = offset as usize;
        if self.ahead.get(index).is_some_and(|held| held.len > 0) {
            return ReceiveOutcome::Duplicate;
        }
        if offset >= MAX_OFFSET || chunk.len == 0 {
            return ReceiveOutcome::Dropped;
        }
        while self.room(cfg) == 0 {
            // Section 6.2: without room, a TSN above the highest is dropped; for one below, the highest is dropped
            // instead.
            match self.ahead.back() {
                Some(highest) if index < self.ahead.len() => {
                    self.ahead_bytes -= u64::from(highest.len);
                    self.ahead.pop_back();
                    self.trim();
                }
                _ => return ReceiveOutcome::Dropped,
            }
        }
        if index >= self.ahead.len() {
            self.ahead.resize(index + 1, AheadChunk::default());
        }
        self.ahead[index] = AheadChunk { len: chunk.len, end: chunk.end };
        self.ahead_bytes += u64::from(chunk.len);
        while let Some(next) = self.ahead.front().copied().filter(|next| next.len > 0) {
            self.ahead.pop_front();
            self.cum_tsn_ack += 1;
            let len = u64::from(next.len);
            self.ahead_bytes -= len;
            self.received += len;
            self.partial += len;
            if next.end {
                self.unread += std::mem::take(&mut self.partial);
            }
        }
        if self.room(cfg) == 0 {
            // Section 6.9: a message that does not fit is delivered in parts.
            self.unread += std::mem::take(&mut self.partial);
        }
        ReceiveOutcome::Accepted
    }

    /// Removes missing TSNs from the end.
    fn trim(&mut self) {
        while self.ahead.back().is_some_and(|last| last.len == 0) {
            self.ahead.pop_back();
        }
    }

    /// Reads `n` bytes, or as many as are waiting.
    #[inline]
    pub(super) fn read(&mut self, n: u64) {
        self.unread -= n.min(self.unread);
    }

    /// True if DATA has arrived that no SACK has reported.
    #[inline]
    pub(super) fn unacknowledged(&self) -> bool {
        self.packets > 0
    }

    /// RFC 1122 section 4.2.3.3, as in RFC 9260 section 6.2: a window that has opened is announced once it is worth
    /// half of the buffer or two packets.
    #[inline]
    pub(super) fn update_due(&self, cfg: &Config) -> bool {
        let worth = (2 * cfg.pmdcs()).min(u64::from(cfg.a_rwnd) / 2).max(1);
        self.advertised < cfg.pmdcs() && self.room(cfg) >= self.advertised + worth
    }

    /// The SACK to send, limited to a packet.
    pub(super) fn sack(&mut self, cfg: &Config) -> Sack {
        self.sack_beside(cfg, 0)
    }

    /// The SACK to send, limited to a packet with `other` bytes of other chunks.
    pub(super) fn sack_beside(&mut self, cfg: &Config, other: u32) -> Sack {
        self.packets = 0;
        self.sack_now = false;
        self.sack_at = None;
        self.advertised = self.room(cfg);
        let capacity = (cfg.pmdcs() as u32).saturating_sub(SACK_HEADER + other) / 4;
        let blocks = self.blocks(capacity as usize);
        let left = capacity - blocks.len() as u32;
        Sack {
            cum_tsn_ack: self.cum_tsn_ack,
            a_rwnd: u32::try_from(self.advertised).unwrap_or(u32::MAX),
            blocks,
            duplicates: std::mem::take(&mut self.duplicates).min(u16::try_from(left).unwrap_or(u16::MAX)),
            duplicate_bytes: std::mem::take(&mut self.duplicate_bytes),
        }
    }

    /// Gap ack blocks in ascending order.
    fn blocks(&self, max: usize) -> Vec<(u16, u16)> {
        let mut blocks = Vec::new();
        let mut start = None;
        let missing = std::iter::once(&AheadChunk { len: 0, end: false });
        if max == 0 {
            return blocks;
        }
        // The TSN after the last one may be out of reach of 16 bits.
        for (offset, held) in (1u32..).zip(self.ahead.iter().chain(missing)) {
            match start {
                None if held.len > 0 => start = Some(offset as u16),
                Some(from) if held.len == 0 => {
                    blocks.push((from, (offset - 1) as u16));
                    if blocks.len() == max {
                        break;
                    }
                    start = None;
                }
                _ => {}
            }
        }
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A receiver of TSNs 2, 4, … with a payload of 4 bytes each, all of which follow a gap.
    fn with_gaps(cfg: &Config, count: u64) -> Receiver {
        let mut rx = Receiver::new(cfg);
        for n in 1..=count {
            rx.on_data(cfg, Instant::ZERO, &[Data { tsn: 2 * n, len: 4, begin: true, end: true }]);
        }
        rx
    }

    /// RFC 9260 section 3.3.4: of a packet with 40 bytes of chunks the header of a SACK takes 16, and each gap ack block
    /// and each duplicate TSN 4. A SHUTDOWN beside it takes 8.
    #[test]
    fn a_sack_fits_into_a_packet() {
        let cfg = Config { pmtu: 20 + 12 + 40, ..Config::default() };
        let sack = with_gaps(&cfg, 8).sack(&cfg);
        assert_eq!(sack.blocks, [(2, 2), (4, 4), (6, 6), (8, 8), (10, 10), (12, 12)]);
        assert_eq!((sack.duplicates, sack.size()), (0, 40));
        let sack = with_gaps(&cfg, 8).sack_beside(&cfg, 8);
        assert_eq!(sack.blocks, [(2, 2), (4, 4), (6, 6), (8, 8)]);
        assert_eq!(sack.size(), 40 - 8);

        let mut rx = with_gaps(&cfg, 5);
        let again = Data { tsn: 2, len: 4, begin: true, end: true };
        rx.on_data(&cfg, Instant::ZERO, &[again, again, again]);
        let sack = rx.sack(&cfg);
        assert_eq!((sack.blocks.len(), sack.duplicates, sack.size()), (5, 1, 40));
        assert_eq!(sack.duplicate_bytes, 3 * 20, "all are counted");
        assert_eq!((rx.sack(&cfg).duplicates, rx.sack(&cfg).duplicate_bytes), (0, 0));
    }
}
