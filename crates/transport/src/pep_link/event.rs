//! What a host is told: events one by one, and counters.

use bentpipe_units::Duration;

use super::StreamId;

/// What a host is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer opened a stream.
    Opened {
        /// The stream.
        stream: StreamId,
    },
    /// More of the peer's bytes are there in order.
    Readable {
        /// The stream.
        stream: StreamId,
        /// How many more [bytes].
        bytes: u64,
    },
    /// The peer has more of our bytes; each is counted once.
    Acked {
        /// The stream.
        stream: StreamId,
        /// How many more [bytes].
        bytes: u64,
    },
    /// The peer's last byte is there in order; comes after every `Readable`.
    Finished {
        /// The stream.
        stream: StreamId,
    },
    /// The peer abandoned the stream; `Closed` follows.
    Reset {
        /// The stream.
        stream: StreamId,
    },
    /// The stream is over and this end has forgotten it: both directions were finished and acknowledged, or the peer
    /// reset it, or it has acknowledged our reset. The last event of a stream.
    Closed {
        /// The stream.
        stream: StreamId,
    },
}

/// What an end has done so far, and how the path looks to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Stats {
    /// Data packets sent, retransmissions among them.
    pub sent: u64,
    /// Data packets sent whose content went out before.
    pub retransmissions: u64,
    /// Data packets given up as lost, by a threshold or a probe.
    pub lost: u64,
    /// Data packets sent that were acknowledged.
    pub acked: u64,
    /// Data packets received, duplicates among them.
    pub received: u64,
    /// Data packets received that brought nothing: their number or all their content had come before.
    pub duplicates: u64,
    /// Acknowledgements sent.
    pub acks_sent: u64,
    /// Acknowledgements received.
    pub acks_received: u64,
    /// Times the probe timeout passed (RFC 9002, 6.2).
    pub probe_timeouts: u64,
    /// Packets sent to ask for a stream's window.
    pub window_probes: u64,
    /// In flight, headers included [bytes].
    pub in_flight: u64,
    /// Smoothed round-trip time; `Config::initial_rtt` before the first measurement.
    pub srtt: Duration,
    /// Its mean deviation.
    pub rttvar: Duration,
    /// The least round-trip time measured; zero before the first.
    pub min_rtt: Duration,
}
