//! What all flows of a kind have in common.

use bentpipe_units::{Duration, Rate};

use crate::rtt::MIN_TIMER;

/// Parameters shared by many flows, handed by reference into each call.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// IP and UDP headers of a packet [bytes]; 28 for IPv4.
    pub udp_header_len: u32,
    /// Length of the canonical name in each RTCP packet [bytes], RFC 3550 section 6.5.1.
    pub cname_len: u32,
    /// Ticks of the RTP timestamp in a second: 90,000 for video, 8,000 for telephony (RFC 3551).
    pub clock_rate: u32,
    /// Time between two reports of one end. Zero is taken as one microsecond.
    pub rtcp_interval: Duration,
    /// How the rate follows the loss. `None`: it stays.
    pub adaptation: Option<Adaptation>,
}

/// A linear regulator with a dead zone, Busse et al. 1996.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adaptation {
    /// Weight of a report in the smoothed loss, alpha.
    pub smoothing: f64,
    /// Smoothed loss up to which the rate grows.
    pub unloaded: f64,
    /// Smoothed loss from which on the rate shrinks.
    pub congested: f64,
    /// Factor by which it does.
    pub decrease: f64,
    /// Summand by which it grows.
    pub increase: Rate,
    /// Bounds of the rate.
    pub min_rate: Rate,
    /// See `min_rate`. `None`: what the source produces by itself.
    pub max_rate: Option<Rate>,
}

impl Default for Adaptation {
    fn default() -> Self {
        Self {
            smoothing: 0.3,
            unloaded: 0.02,
            congested: 0.04,
            decrease: 0.875,
            increase: Rate::from_bps(50_000),
            min_rate: Rate::from_bps(50_000),
            max_rate: None,
        }
    }
}

impl Default for Config {
    /// Video over IPv4, with a report every 900 ms.
    fn default() -> Self {
        Self {
            udp_header_len: 28,
            cname_len: 16,
            clock_rate: 90_000,
            rtcp_interval: Duration::from_millis(900),
            adaptation: Some(Adaptation::default()),
        }
    }
}

impl Config {
    pub(super) fn interval(&self) -> Duration {
        self.rtcp_interval.max(MIN_TIMER)
    }
}
