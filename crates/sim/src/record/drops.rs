//! Records of dropped and lost packets.

/// Every packet that was dropped or lost during the measurement, column by column.
#[derive(Clone, Debug, Default)]
pub struct Drops {
    /// Time [s since the measurement began].
    pub time: Vec<f64>,
    /// Number of the packet among the arrivals at the place's mark point since the measurement began; `u64::MAX` if it has
    /// none.
    pub arrival: Vec<u64>,
    /// Place (an index of [`crate::Results::places`]).
    pub place: Vec<u32>,
    /// Reason (an index of [`REASONS`]).
    pub reason: Vec<u8>,
    /// Flow of the packet; `u32::MAX` if it has none.
    pub flow: Vec<u32>,
    /// Length of the packet [bytes].
    pub bytes: Vec<u32>,
}

/// Reasons for which packets are dropped or lost.
pub const REASONS: [&str; 4] = ["aqm", "overflow", "loss", "retransmission_limit"];
/// A link lost the packet (an index of [`REASONS`]).
pub const LOSS: u8 = 2;
/// The link layer gave the packet up (an index of [`REASONS`]).
pub const RETRANSMISSION_LIMIT: u8 = 3;

/// One row of [`Drops`].
pub(super) struct Drop {
    pub(super) time: f64,
    pub(super) arrival: Option<u64>,
    pub(super) place: u32,
    pub(super) reason: u8,
    pub(super) flow: u32,
    pub(super) bytes: u32,
}

impl Drops {
    pub(super) fn push(&mut self, drop: &Drop) {
        self.time.push(drop.time);
        self.arrival.push(drop.arrival.unwrap_or(u64::MAX));
        self.place.push(drop.place);
        self.reason.push(drop.reason);
        self.flow.push(drop.flow);
        self.bytes.push(drop.bytes);
    }
}
