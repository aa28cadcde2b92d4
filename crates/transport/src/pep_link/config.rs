//! Configuration of an association.

use bentpipe_units::Duration;

/// Configuration of an association; both ends must have the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Maximum payload of a packet [bytes].
    pub max_payload: u32,
    /// Headers of a packet [bytes].
    pub header_len: u32,
    /// Maximum amount in flight over the whole association, including headers [bytes]: at least the bandwidth-delay
    /// product of a satellite round trip.
    pub window: u64,
    /// Maximum data of a stream that the receiving host has not consumed, in each direction [bytes].
    pub stream_window: u64,
    /// A packet is lost once one sent this many later has arrived (RFC 9002, 6.1.1) [packets].
    pub packet_threshold: u32,
    /// Number of data packets per acknowledgement.
    pub ack_every: u32,
    /// Maximum delay of an acknowledgement.
    pub ack_delay: Duration,
    /// RTT assumed before the first measurement.
    pub initial_rtt: Duration,
}

impl Default for Config {
    /// A geostationary link of some hundred Mbit/s: 1391-byte packets, 16 MiB in flight, 4 MiB per stream.
    fn default() -> Self {
        Self {
            max_payload: 1360,
            header_len: 31,
            window: 16 << 20,
            stream_window: 4 << 20,
            packet_threshold: 3,
            ack_every: 32,
            ack_delay: Duration::from_millis(50),
            initial_rtt: Duration::from_millis(700),
        }
    }
}
