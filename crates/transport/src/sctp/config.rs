//! Configuration that many associations share.

use bentpipe_units::Duration;

use super::packet::{COMMON_HEADER, DATA_HEADER, SACK_HEADER};

/// Configuration, passed by reference into each call so that many associations can share it. The parameters of RFC 9260
/// section 16 have its names and default values.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// PMTU: longest packet that the path carries, including the IP header [bytes].
    pub pmtu: u32,
    /// IP header of a packet [bytes]; 20 for IPv4, 40 for IPv6.
    pub ip_header: u32,
    /// Length of the messages that bytes written without boundaries are split into [bytes]. Messages longer than a
    /// packet are fragmented (section 6.9), and short ones are bundled (section 6.10).
    pub message_len: u32,
    /// Length of the state cookie on the wire [bytes].
    pub cookie_len: u32,
    /// Receive buffer, advertised in full at first [bytes].
    pub a_rwnd: u32,
    /// Initial slow start threshold [bytes]; section 7.2.1 allows "arbitrarily high".
    pub initial_ssthresh: Option<u64>,
    /// L of section 7.2.1: maximum growth per SACK in slow start [PMDCS]. The RFC has 1.
    pub slow_start_limit: u32,
    /// G of section 6.3.1: replaces an RTTVAR of zero.
    pub clock_granularity: Duration,
    /// Number of packets with DATA per SACK, section 6.2.
    pub sack_every: u32,
    /// RTO.Initial.
    pub rto_initial: Duration,
    /// RTO.Min.
    pub rto_min: Duration,
    /// RTO.Max.
    pub rto_max: Duration,
    /// Max.Burst [packets of new DATA at a time].
    pub max_burst: u32,
    /// Reciprocal of RTO.Alpha.
    pub rto_alpha: u32,
    /// Reciprocal of RTO.Beta.
    pub rto_beta: u32,
    /// Valid.Cookie.Life.
    pub valid_cookie_life: Duration,
    /// Association.Max.Retrans [timeouts in a row].
    pub association_max_retrans: u32,
    /// Max.Init.Retransmits [retransmissions].
    pub max_init_retransmits: u32,
    /// SACK.Delay.
    pub sack_delay: Duration,
}

impl Config {
    /// PMDCS of section 7.2: largest DATA chunk that fits into a packet, including header and padding [bytes].
    #[inline]
    #[must_use]
    pub fn pmdcs(&self) -> u64 {
        let room = self.pmtu.min(65_535).saturating_sub(self.ip_header + COMMON_HEADER);
        u64::from((room & !3).max(DATA_HEADER + 4))
    }

    /// Payload of a full DATA chunk [bytes].
    #[inline]
    #[must_use]
    pub fn max_fragment(&self) -> u32 {
        self.pmdcs() as u32 - DATA_HEADER
    }

    /// Section 7.2.1: min(4 PMDCS, max(2 PMDCS, 4404 bytes)).
    pub(super) fn initial_cwnd(&self) -> u64 {
        let pmdcs = self.pmdcs();
        (4 * pmdcs).min((2 * pmdcs).max(4404))
    }

    /// Maximum number of gap ack blocks in a packet without other chunks.
    pub(super) fn max_gap_blocks(&self) -> usize {
        (self.pmdcs() as usize - SACK_HEADER as usize) / 4
    }
}

impl Default for Config {
    /// RFC 9260 section 16, on Ethernet with IPv4.
    ///
    /// Where it leaves a choice: messages that fill a packet, a cookie of 100 bytes, a receive buffer of 4 MiB, a clock
    /// granularity of 1 ms.
    fn default() -> Self {
        Self {
            pmtu: 1500,
            ip_header: 20,
            message_len: 1452,
            cookie_len: 100,
            a_rwnd: 4 << 20,
            initial_ssthresh: None,
            slow_start_limit: 1,
            clock_granularity: Duration::from_millis(1),
            sack_every: 2,
            rto_initial: Duration::from_secs(1),
            rto_min: Duration::from_secs(1),
            rto_max: Duration::from_secs(60),
            max_burst: 4,
            rto_alpha: 8,
            rto_beta: 4,
            valid_cookie_life: Duration::from_secs(60),
            association_max_retrans: 10,
            max_init_retransmits: 8,
            sack_delay: Duration::from_millis(200),
        }
    }
}
