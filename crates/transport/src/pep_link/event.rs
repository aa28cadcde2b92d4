//! Events and counters for the host.

use bentpipe_units::Duration;

use super::StreamId;

/// An event of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer opened a stream.
    Opened {
        /// The stream.
        stream: StreamId,
    },
    /// More of the peer's data can be read in order.
    Readable {
        /// The stream.
        stream: StreamId,
        /// Additional data [bytes].
        bytes: u64,
    },
    /// The peer acknowledged more of our data; each byte is reported once.
    Acked {
        /// The stream.
        stream: StreamId,
        /// Additional data [bytes].
        bytes: u64,
    },
    /// All data up to the peer's FIN can be read; follows every `Readable`.
    Finished {
        /// The stream.
        stream: StreamId,
    },
    /// The peer reset the stream; `Closed` follows.
    Reset {
        /// The stream.
        stream: StreamId,
    },
    /// The stream is closed and this end has forgotten it: both directions were finished and acknowledged, or the peer
    /// reset it, or acknowledged our reset. The last event of a stream.
    Closed {
        /// The stream.
        stream: StreamId,
    },
}

/// Counters and path state of one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Stats {
    /// Data packets sent, including retransmissions.
    pub sent: u64,
    /// Retransmitted data packets.
    pub retransmissions: u64,
    /// Data packets declared lost, by a threshold or a probe timeout.
    pub lost: u64,
    /// Data packets sent and acknowledged.
    pub acked: u64,
    /// Data packets received, including duplicates.
    pub received: u64,
    /// Duplicate data packets received: their number or all their content had arrived before.
    pub duplicates: u64,
    /// Acknowledgements sent.
    pub acks_sent: u64,
    /// Acknowledgements received.
    pub acks_received: u64,
    /// Probe timeouts (RFC 9002, 6.2).
    pub probe_timeouts: u64,
    /// Window probes sent.
    pub window_probes: u64,
    /// In flight, including headers [bytes].
    pub in_flight: u64,
    /// Smoothed RTT; `Config::initial_rtt` before the first measurement.
    pub srtt: Duration,
    /// Mean deviation of the RTT.
    pub rttvar: Duration,
    /// Minimum RTT measured; zero before the first measurement.
    pub min_rtt: Duration,
}
