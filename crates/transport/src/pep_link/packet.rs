//! What travels between the two ends: numbered data packets, and acknowledgements that are not numbered themselves.

use bentpipe_units::Duration;

use super::{Config, StreamId};

/// The most ranges of packet numbers one [`Ack`] reports; older ranges wait for the sender to give them up.
pub const MAX_ACK_RANGES: usize = 32;
/// The most stream windows one [`Ack`] opens; further ones follow in the next.
pub const MAX_ACK_WINDOWS: usize = 8;

/// Largest number, delay and range count of an acknowledgement on the wire [bytes].
const ACK_FIXED: u32 = 8;
/// Gap and length of each range after the first, as variable-length integers (RFC 9000, 19.3.1) [bytes].
const ACK_RANGE: u32 = 4;
/// Stream and limit of a window update (RFC 9000, 19.10) [bytes].
const ACK_WINDOW: u32 = 8;

/// A numbered packet of one stream. Payload is virtual: only its place and length are here.
///
/// A packet with no bytes and no flag is a *window probe*: its sender has bytes at `offset` that the stream's window
/// does not let out, and asks to be told the window again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Packet number: counts every data packet of this direction from 0, and is never used twice.
    pub number: u64,
    /// Every number below this is settled at its sender: acknowledged, or given up and sent again under another.
    pub least_unacked: u64,
    /// Place of the first payload byte in the stream [bytes].
    pub offset: u64,
    /// The stream.
    pub stream: StreamId,
    /// Which of the successive streams under this id is meant; a late packet of an earlier one is told apart by it.
    pub generation: u32,
    /// Payload [bytes].
    pub len: u32,
    /// The first packet of a stream, from the end that opened it.
    pub open: bool,
    /// The stream ends in this direction after this payload.
    pub fin: bool,
    /// The stream is abandoned in both directions.
    pub reset: bool,
    /// The payload and flags were sent before under another number.
    pub retransmission: bool,
}

/// Packet numbers that arrived without a hole, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AckRange {
    /// The lowest number.
    pub first: u64,
    /// The highest number.
    pub last: u64,
}

/// How far a stream's sender may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WindowUpdate {
    /// The stream.
    pub stream: StreamId,
    /// Which of the successive streams under this id is meant.
    pub generation: u32,
    /// The offset that must not be passed, from the beginning of the stream [bytes].
    pub limit: u64,
}

/// An acknowledgement. It is not acknowledged itself: the next one says everything again.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    /// From the arrival of the largest number to this acknowledgement.
    pub delay: Duration,
    pub(super) range_count: u8,
    pub(super) window_count: u8,
    pub(super) ranges: [AckRange; MAX_ACK_RANGES],
    pub(super) windows: [WindowUpdate; MAX_ACK_WINDOWS],
}

impl Ack {
    /// An acknowledgement of nothing yet, `delay` after the largest number arrived.
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

    /// Adds a range below those already there; `false` where the packet is full.
    pub fn push_range(&mut self, range: AckRange) -> bool {
        let Some(place) = self.ranges.get_mut(usize::from(self.range_count)) else { return false };
        *place = range;
        self.range_count += 1;
        true
    }

    /// Adds a window update; `false` where the packet is full.
    pub fn push_window(&mut self, window: WindowUpdate) -> bool {
        let Some(place) = self.windows.get_mut(usize::from(self.window_count)) else { return false };
        *place = window;
        self.window_count += 1;
        true
    }

    /// The ranges of numbers that arrived, highest first.
    #[must_use]
    pub fn ranges(&self) -> &[AckRange] {
        self.ranges.get(..usize::from(self.range_count)).unwrap_or(&self.ranges)
    }

    /// The stream windows it opens.
    #[must_use]
    pub fn windows(&self) -> &[WindowUpdate] {
        self.windows.get(..usize::from(self.window_count)).unwrap_or(&self.windows)
    }

    /// The largest number that arrived, or `None` where nothing has.
    #[must_use]
    pub fn largest(&self) -> Option<u64> {
        self.ranges().first().map(|range| range.last)
    }

    /// Size on the wire [bytes].
    #[must_use]
    pub fn wire_len(&self, cfg: &Config) -> u32 {
        let further = u32::from(self.range_count).saturating_sub(1);
        let body = ACK_FIXED + ACK_RANGE * further + ACK_WINDOW * u32::from(self.window_count);
        cfg.header_len.saturating_add(body)
    }
}

impl Data {
    /// Size on the wire [bytes].
    #[must_use]
    pub fn wire_len(&self, cfg: &Config) -> u32 {
        cfg.header_len.saturating_add(self.len)
    }

    /// Whether it neither carries nor says anything: it asks for a window.
    // Out of the way of other packets, for which looking at the flags costs more than all else here.
    #[cold]
    pub(super) fn is_probe(&self) -> bool {
        self.len == 0 && !(self.open || self.fin || self.reset)
    }
}

/// Whatever one end sends the other.
#[derive(Clone, Copy, Debug)]
// An acknowledgement is sixteen times as big as data, but comes once in tens of packets; a host that stores packets
// takes the two from `Endpoint::poll_ack` and `Endpoint::poll_data` and keeps them apart.
#[allow(clippy::large_enum_variant)]
pub enum Packet {
    /// Bytes or flags of one stream.
    Data(Data),
    /// What arrived, and what may be sent.
    Ack(Ack),
}

impl Packet {
    /// Size on the wire, headers included [bytes].
    #[must_use]
    pub fn wire_len(&self, cfg: &Config) -> u32 {
        match self {
            Self::Data(data) => data.wire_len(cfg),
            Self::Ack(ack) => ack.wire_len(cfg),
        }
    }
}
