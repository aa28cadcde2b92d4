//! Wire format: numbered data packets, and acknowledgements without numbers.

use bentpipe_units::Duration;

use super::{Config, StreamId};

/// Maximum number of packet number ranges in an [`Ack`]; older ranges are left out until the sender declares them lost.
pub const MAX_ACK_RANGES: usize = 32;
/// Maximum number of window updates in an [`Ack`]; more follow in the next one.
pub const MAX_ACK_WINDOWS: usize = 8;

/// Largest number, delay and range count of an acknowledgement on the wire [bytes].
const ACK_FIXED: u32 = 8;
/// Gap and length of each further range, as variable-length integers (RFC 9000, 19.3.1) [bytes].
const ACK_RANGE: u32 = 4;
/// Stream and limit of a window update (RFC 9000, 19.10) [bytes].
const ACK_WINDOW: u32 = 8;

/// A numbered packet of one stream. Payload is virtual: only offset and length are kept.
///
/// A packet without data and flags is a *window probe*: its sender is blocked by the stream's window at `offset` and
/// asks for an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Packet number: counts the data packets of this direction from 0, never reused.
    pub number: u64,
    /// All numbers below are settled at the sender: acknowledged, or declared lost and resent under a new number.
    pub least_unacked: u64,
    /// Offset of the first payload byte in the stream [bytes].
    pub offset: u64,
    /// The stream.
    pub stream: StreamId,
    /// Generation of the stream, which distinguishes successive streams with the same id.
    pub generation: u32,
    /// Payload [bytes].
    pub len: u32,
    /// First packet of a stream, from the end that opened it.
    pub open: bool,
    /// Last packet of the stream in this direction.
    pub fin: bool,
    /// The stream is reset in both directions.
    pub reset: bool,
    /// The content was sent before under another number.
    pub retransmission: bool,
}

/// A contiguous range of packet numbers received, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AckRange {
    /// Lowest number.
    pub first: u64,
    /// Highest number.
    pub last: u64,
}

/// Flow control limit of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WindowUpdate {
    /// The stream.
    pub stream: StreamId,
    /// Generation of the stream.
    pub generation: u32,
    /// Offset that the sender must not exceed, from the start of the stream [bytes].
    pub limit: u64,
}

/// An acknowledgement. It is not acknowledged itself; the next one repeats its content.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    /// Time from the arrival of the largest number to this acknowledgement.
    pub delay: Duration,
    pub(super) range_count: u8,
    pub(super) window_count: u8,
    pub(super) ranges: [AckRange; MAX_ACK_RANGES],
    pub(super) windows: [WindowUpdate; MAX_ACK_WINDOWS],
}

impl Ack {
    /// An empty acknowledgement, sent `delay` after the arrival of the largest number.
    #[must_use]
    pub fn new(delay: Duration) -> Self {
        Self {
            delay,
            range_count: 0,
            window_count: 0,
            ranges: [AckRange::default(); MAX_ACK_RANGES],
            windows: [WindowUpdate::default(); MAX_ACK_WINDOWS],
        }
    }

    /// Adds a range below the previous ones. Returns false if the packet is full.
    pub fn push_range(&mut self, range: AckRange) -> bool {
        let Some(slot) = self.ranges.get_mut(usize::from(self.range_count)) else { return false };
        *slot = range;
        self.range_count += 1;
        true
    }

    /// Adds a window update. Returns false if the packet is full.
    pub fn push_window(&mut self, window: WindowUpdate) -> bool {
        let Some(slot) = self.windows.get_mut(usize::from(self.window_count)) else { return false };
        *slot = window;
        self.window_count += 1;
        true
    }

    /// Ranges of packet numbers received, highest first.
    #[must_use]
    pub fn ranges(&self) -> &[AckRange] {
        self.ranges.get(..usize::from(self.range_count)).unwrap_or(&self.ranges)
    }

    /// Window updates.
    #[must_use]
    pub fn windows(&self) -> &[WindowUpdate] {
        self.windows.get(..usize::from(self.window_count)).unwrap_or(&self.windows)
    }

    /// Largest number received; `None` without any range.
    #[must_use]
    pub fn largest(&self) -> Option<u64> {
        self.ranges().first().map(|range| range.last)
    }

    /// Length on the wire [bytes].
    #[must_use]
    pub fn wire_len(&self, cfg: &Config) -> u32 {
        let further = u32::from(self.range_count).saturating_sub(1);
        let body = ACK_FIXED + ACK_RANGE * further + ACK_WINDOW * u32::from(self.window_count);
        cfg.header_len.saturating_add(body)
    }
}

impl Data {
    /// Length on the wire [bytes].
    #[must_use]
    pub fn wire_len(&self, cfg: &Config) -> u32 {
        cfg.header_len.saturating_add(self.len)
    }

    /// True for a window probe.
    // Kept out of the hot path, where testing the flags would dominate.
    #[cold]
    pub(super) fn is_probe(&self) -> bool {
        self.len == 0 && !(self.open || self.fin || self.reset)
    }
}

/// A packet of either kind.
#[derive(Clone, Copy, Debug)]
// An acknowledgement is sixteen times the size of data, but one comes for tens of data packets; a host that stores
// packets keeps the results of `Endpoint::poll_ack` and `Endpoint::poll_data` separately.
#[allow(clippy::large_enum_variant)]
pub enum Packet {
    /// Data or flags of one stream.
    Data(Data),
    /// Received packets and window updates.
    Ack(Ack),
}

impl Packet {
    /// Length on the wire, including headers [bytes].
    #[must_use]
    pub fn wire_len(&self, cfg: &Config) -> u32 {
        match self {
            Self::Data(data) => data.wire_len(cfg),
            Self::Ack(ack) => ack.wire_len(cfg),
        }
    }
}
