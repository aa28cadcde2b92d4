//! Configuration that many flows share.

use bentpipe_units::{Duration, Rate};

use super::nada::Nada;
use crate::rtt::MIN_TIMER;

/// Configuration, passed by reference into each call so that many flows can share it.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// IP and UDP headers of a packet [bytes]; 28 for IPv4.
    pub udp_header_len: u32,
    /// Length of the canonical name in each RTCP packet [bytes], RFC 3550 section 6.5.1.
    pub cname_len: u32,
    /// Frequency of the RTP timestamp [Hz]: 90,000 for video, 8,000 for telephony (RFC 3551).
    pub clock_rate: u32,
    /// Time between two reports of an end. Zero counts as one microsecond.
    pub rtcp_interval: Duration,
    /// Rate adaptation; `None`: constant rate, or that of NADA.
    pub adaptation: Option<Adaptation>,
    /// NADA, in place of the adaptation.
    pub nada: Option<Nada>,
}

/// Parameters of a linear regulator with a dead zone, Busse et al. 1996.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adaptation {
    /// alpha: weight of a report in the smoothed loss.
    pub smoothing: f64,
    /// Smoothed loss up to which the rate increases.
    pub unloaded: f64,
    /// Smoothed loss from which the rate decreases.
    pub congested: f64,
    /// Factor of a decrease.
    pub decrease: f64,
    /// Step of an increase.
    pub increase: Rate,
    /// Minimum rate.
    pub min_rate: Rate,
    /// Maximum rate. `None`: the nominal rate of the source.
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
            nada: None,
        }
    }
}

impl Config {
    pub(super) fn interval(&self) -> Duration {
        self.rtcp_interval.max(MIN_TIMER)
    }
}
