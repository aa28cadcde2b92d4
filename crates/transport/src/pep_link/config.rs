//! What a host sets.

use bentpipe_units::Duration;

/// How an association behaves; both ends are given the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Most payload in a packet [bytes].
    pub max_payload: u32,
    /// Headers of a packet [bytes].
    pub header_len: u32,
    /// Most packet bytes in flight over the whole association, headers included: at least one satellite round trip's
    /// worth [bytes].
    pub window: u64,
    /// Most bytes of a stream that the receiving host has not consumed, in each direction [bytes].
    pub stream_window: u64,
    /// A packet is lost when one sent this many later has arrived (RFC 9002, 6.1.1) [packets].
    pub packet_threshold: u32,
    /// One acknowledgement for this many data packets.
    pub ack_every: u32,
    /// An acknowledgement waits no longer than this.
    pub ack_delay: Duration,
    /// The round-trip time supposed before the first measurement.
    pub initial_rtt: Duration,
}

impl Default for Config {
    /// A geostationary link of some hundred Mbit/s: 1391-byte packets, 16 MiB in flight, 4 MiB a stream.
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
