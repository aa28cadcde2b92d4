//! Counters of an end since its start.

use serde::Serialize;

use crate::observe::cause::{self, Resets};

/// Totals since the start, written at the end of a recorded run.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Counters {
    /// Turns of the loop.
    pub turns: u64,
    /// Turns begun by the timer.
    pub timer_wakes: u64,
    /// Longest delay of a wake-up of the gateway [ns].
    pub latest_ns: u64,
    /// True if the process runs under SCHED_FIFO.
    pub realtime: bool,
    /// Packets from the internet, offered to the AQM or not.
    pub intercepted: u64,
    /// Intercepted packets that were dropped.
    pub dropped: u64,
    /// Intercepted packets that bypassed the AQM during an outage of the satellite.
    pub aqm_bypassed: u64,
    /// Packets that were given a congestion mark (CE).
    pub ce_marked: u64,
    /// Intercepted packets that could not be parsed.
    pub unparsed: u64,
    /// Acknowledgements whose window was cut.
    pub windows_cut: u64,
    /// Window updates sent.
    pub window_updates: u64,
    /// Connections opened.
    pub opened: u64,
    /// Connections closed by both sides.
    pub closed: u64,
    /// Connections reset by either side.
    pub reset: u64,
    /// Resets by [`cause::Cause::ALL`], including those of connections that were never opened here.
    #[serde(serialize_with = "cause::by_name")]
    pub resets: Resets,
    /// Connections refused for lack of a stream or a descriptor.
    pub refused: u64,
    /// Servers that could not be reached.
    pub unreachable: u64,
    /// Bytes read from sockets.
    pub read_bytes: u64,
    /// Bytes written to sockets.
    pub written_bytes: u64,
    /// Chunks dropped by the transmit queue and sent again.
    pub lost_chunks: u64,
    /// Packets from the TUN device.
    pub tunnel_in: u64,
    /// Packets written to the TUN device.
    pub tunnel_out: u64,
    /// Packets from the TUN device that were not sent.
    pub tunnel_drops: u64,
    /// Acknowledgements that took the place of older ones.
    pub filtered_acks: u64,
    /// Packets from terminals whose sender is not one of their users.
    pub foreign: u64,
    /// Losses of the spacelink.
    pub downs: u64,
    /// Bytes charged to the regulator beyond those that it released.
    pub charged_bytes: u64,
    /// UDP datagrams that the kernel refused.
    pub unsent_datagrams: u64,
    /// Errors that did not end the process.
    pub faults: u64,
}

impl Counters {
    /// The counters as JSON.
    #[must_use]
    pub fn report(&self) -> serde_json::Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}
