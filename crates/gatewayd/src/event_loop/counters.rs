//! What an end counts.

use serde::Serialize;

use crate::observe::cause::{self, Resets};

/// Totals since the start, for whoever asks.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Counters {
    /// Turns of the loop.
    pub turns: u64,
    /// … begun by the timer.
    pub timer_wakes: u64,
    /// The latest that the gateway was woken [ns].
    pub latest_ns: u64,
    /// Whether the process runs under SCHED_FIFO.
    pub urgent: bool,
    /// Packets from the internet that were judged.
    pub judged: u64,
    /// … and dropped.
    pub dropped: u64,
    /// … and let pass unasked, for the satellite was out.
    pub spared: u64,
    /// … and given a congestion mark.
    pub ce_marked: u64,
    /// … and of which nothing could be read.
    pub unread: u64,
    /// Acknowledgements whose window was cut, and window updates sent.
    pub windows_cut: u64,
    /// Window updates sent.
    pub window_updates: u64,
    /// Connections opened.
    pub opened: u64,
    /// … and closed as they should be.
    pub closed: u64,
    /// … and reset, whoever began.
    pub reset: u64,
    /// Connections reset, by [`cause::Cause::ALL`]: beside those, also those that were never opened here.
    #[serde(serialize_with = "cause::by_name")]
    pub resets: Resets,
    /// Connections that could not be split, for want of a stream or a descriptor.
    pub refused: u64,
    /// Servers that could not be reached.
    pub unreachable: u64,
    /// Bytes read from sockets.
    pub read_bytes: u64,
    /// Bytes written to sockets.
    pub written_bytes: u64,
    /// Chunks that the transmit queue discarded and that are sent again.
    pub lost_chunks: u64,
    /// Packets from the TUN device.
    pub tunnel_in: u64,
    /// Packets put into the TUN device.
    pub tunnel_out: u64,
    /// Packets from the TUN device that were not sent.
    pub tunnel_drops: u64,
    /// How often the spacelink was lost.
    pub downs: u64,
    /// Bytes charged to the regulator beyond what it let go.
    pub charged_bytes: u64,
    /// UDP datagrams that the system did not take.
    pub unsent_datagrams: u64,
    /// What went wrong and was no reason to end.
    pub faults: u64,
}

impl Counters {
    /// As JSON.
    #[must_use]
    pub fn report(&self) -> serde_json::Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}
