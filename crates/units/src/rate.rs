//! Bit rates.

use std::fmt;

use crate::Duration;

/// A bit rate [bit/s]; serialized as that number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize)]
pub struct Rate(u64);

impl Rate {
    /// A rate of `bps` bits per second.
    #[must_use]
    pub const fn from_bps(bps: u64) -> Self {
        Self(bps)
    }

    /// Bits per second.
    #[must_use]
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// Bytes per second.
    #[must_use]
    pub fn bytes_per_sec(self) -> f64 {
        self.0 as f64 / 8.0
    }

    /// Time to send `bytes`, rounded up to a nanosecond; [`Duration::MAX`] at rate zero.
    #[must_use]
    pub const fn time_to_send(self, bytes: u64) -> Duration {
        match (bytes.checked_mul(8_000_000_000), self.0) {
            (Some(bit_ns), 1..) => Duration::from_nanos(bit_ns.div_ceil(self.0)),
            (None, 1..) => {
                let ns = (bytes as u128 * 8_000_000_000).div_ceil(self.0 as u128);
                Duration::from_nanos(if ns > u64::MAX as u128 { u64::MAX } else { ns as u64 })
            }
            (_, 0) => Duration::MAX,
        }
    }
}

impl fmt::Display for Rate {
    /// Formats in the largest unit without decimals, as in a scenario file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("0 bps"),
            bps if bps % 1_000_000_000 == 0 => write!(f, "{} Gbps", bps / 1_000_000_000),
            bps if bps % 1_000_000 == 0 => write!(f, "{} Mbps", bps / 1_000_000),
            bps if bps % 1_000 == 0 => write!(f, "{} kbps", bps / 1_000),
            bps => write!(f, "{bps} bps"),
        }
    }
}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_1040_byte_packet_takes_8_32_ms_at_1_mbps() {
        let rate = Rate::from_bps(1_000_000);
        assert_eq!(rate.time_to_send(1040), Duration::from_micros(8320));
        assert_eq!(Rate::from_bps(0).time_to_send(1), Duration::MAX);
        assert_eq!(Rate::from_bps(8).time_to_send(u64::MAX), Duration::MAX);
    }
}
