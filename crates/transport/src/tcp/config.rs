//! Configuration that many connections share.

use bentpipe_units::{Duration, Rate};

use super::{Algorithm, Segment};

/// Configuration, passed by reference into each call so that many connections can share it.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// SMSS of RFC 5681: payload of a full segment [bytes]. Zero counts as one.
    pub mss: u32,
    /// Headers of a segment on the wire, without options [bytes]. Used only for pacing and
    /// [`wire_len`](Self::wire_len).
    pub header_len: u32,
    /// Count TCP options in [`wire_len`](Self::wire_len) too.
    pub option_bytes: bool,
    /// Initial window IW [segments]: 10 in RFC 6928, 2 to 4 in RFC 5681 section 3.1.
    pub initial_window: u32,
    /// Receive buffer and largest advertised window [bytes].
    pub receive_window: u32,
    /// Initial receive window, which each arriving segment increases by two segments up to `receive_window`; while it
    /// grows, every segment is acknowledged at once (Linux `tcp_grow_window()`) [bytes]. `None`: the window starts at
    /// `receive_window`.
    pub initial_receive_window: Option<u32>,
    /// The sender's own limit on its window, at least one segment [bytes]. `u64::MAX`: unlimited.
    pub max_window: u64,
    /// Initial slow start threshold [bytes]; RFC 5681 section 3.1 asks for "arbitrarily high".
    pub initial_ssthresh: Option<u64>,
    /// Initial RTO, RFC 6298 (2.1).
    pub initial_rto: Duration,
    /// Minimum RTO, RFC 6298 (2.4).
    pub min_rto: Duration,
    /// Estimator of the RTO.
    pub estimator: Estimator,
    /// Maximum RTO, with or without backoff, and maximum interval between window probes, RFC 6298 (2.5).
    pub max_rto: Duration,
    /// G of RFC 6298: RTT measurements are rounded to the nearest multiple of this tick, at least one. Zero: a perfect
    /// clock.
    pub clock_granularity: Duration,
    /// Send a new segment for each of the first two duplicate ACKs, RFC 3042. With [`rack`](Self::rack), all SACKed
    /// data makes room until a loss is detected.
    pub limited_transmit: bool,
    /// Maximum delay of an ACK; every second full segment is acknowledged at once (RFC 5681 section 4.2). `None`: every
    /// segment is acknowledged at once.
    pub delayed_ack: Option<Duration>,
    /// Restart the retransmission timer only for the first partial ACK ("impatient", RFC 6582 section 4), not for each
    /// one ("slow but steady").
    pub impatient: bool,
    /// Reduce to a fraction of the congestion window, as 4.3BSD and ns-2 do, not of the outstanding data (RFC 5681
    /// section 3.1, which warns against the former).
    pub half_of_cwnd: bool,
    /// Recover as ns-2 does. After a timeout, the first two duplicate ACKs allow more retransmissions by limited transmit
    /// (only with [`go_back_n`](Self::go_back_n) and without SACK), and every timeout of a segment halves ssthresh. In
    /// NewReno's fast recovery, an ACK allows at most two segments besides the retransmission. The module `ns2` lists the
    /// rest. With [`sack`](Self::sack) and without [`prr`](Self::prr) and [`rack`](Self::rack) the recovery is that of its
    /// `Sack1`.
    pub ns2_recovery: bool,
    /// After a timeout, resend everything from the first unacknowledged byte that was not SACKed, in slow start (RFC
    /// 5681 section 3.1, RFC 6675 section 5.1), as 4.4BSD and ns-2 do. Otherwise resend one segment, and one more for
    /// each ACK that shows another gap: one RTT per gap.
    pub go_back_n: bool,
    /// Increase the window by the bytes that ACKs cover, not by their number: appropriate byte counting, RFC 3465, with
    /// L = 2.
    pub abc: bool,
    /// Reduce the window after an idle time of one RTO: to the initial one, RFC 5681 section 4.1, or with CUBIC as in Linux to half
    /// for each RTO, RFC 2861.
    pub slow_start_restart: bool,
    /// Maximum sending rate of data segments, including headers. `None`: limited only by the windows and by the pacing
    /// rate of the algorithm, if it has one.
    pub pacing: Option<Rate>,
    /// Pace at `cwnd / SRTT`, times 2 in slow start and 1.2 in congestion avoidance, as Linux does. Ignored by
    /// algorithms with their own pacing rate.
    pub pace_window: bool,
    /// End slow start when the RTT increases: HyStart++, RFC 9406. For algorithms with the slow start of RFC 5681.
    pub hystart: bool,
    /// End slow start when less is delivered than was sent: SEARCH. For algorithms with the slow start of RFC 5681.
    pub search: bool,
    /// Offer and accept explicit congestion notification, RFC 3168.
    pub ecn: bool,
    /// Offer and accept accurate ECN feedback (RFC 9768) if `ecn` is set, instead of one echo per RTT.
    pub accurate_ecn: bool,
    /// Offer and accept selective acknowledgements (RFC 2018) and recover from losses with them (RFC 6675).
    pub sack: bool,
    /// Reduce the window during SACK recovery by proportional rate reduction (RFC 9937), not at once.
    pub prr: bool,
    /// Detect losses by time, RACK-TLP (RFC 8985), if SACK was negotiated, not by the amount of SACKed data (RFC 6675).
    /// Its section 6.3 then replaces [`go_back_n`](Self::go_back_n) after a timeout. The receiver reports duplicates
    /// (D-SACK, RFC 2883).
    pub rack: bool,
    /// Undo spurious timeouts: Eifel, RFC 3522 and RFC 4015. Needs [`rack`](Self::rack),
    /// [`timestamps`](Self::timestamps) and an algorithm that does not set its window itself.
    pub eifel: bool,
    /// Offer and accept timestamps (RFC 7323 section 3), which measure the RTT with every ACK of new data, including
    /// retransmitted data.
    pub timestamps: bool,
    /// Shift of the window scale option to offer, at most 14 (RFC 7323 section 2): windows are multiples of `1 <<
    /// shift`, up to 65 535 of them, or up to 65 535 bytes if the peer does not offer it. `None`: no option, and
    /// windows are any 32-bit number.
    pub window_scale: Option<u8>,
    /// Unanswered SYN retransmissions after which the connection fails, R2 of RFC 9293 section 3.8.3.
    pub syn_retries: u32,
    /// Consecutive unanswered retransmissions or window probes after which the connection fails, R2 of RFC 9293 section
    /// 3.8.3.
    pub retries: u32,
    /// The congestion control algorithm.
    pub algorithm: Algorithm,
    /// Seed of the algorithm's random numbers.
    pub seed: u64,
}

/// Estimator of the retransmission timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Estimator {
    /// RFC 6298.
    Rfc6298,
    /// Linux `tcp_rtt_estimator()`: with timestamps every RTT counts with full weight, RTTVAR follows the largest
    /// deviation of a round, and `min_rto` is the minimum of RTTVAR, which is added to SRTT.
    Linux,
    /// 4.4BSD and ns-2: in whole clock ticks, which keep the deviation at three quarters of a tick or more (Wright &
    /// Stevens, TCP/IP Illustrated, volume 2, section 25.10).
    Bsd,
}

impl Config {
    /// SMSS [bytes], at least one.
    #[inline]
    pub(super) fn smss(&self) -> u64 {
        u64::from(self.mss.max(1))
    }

    /// Length of a segment on the wire [bytes].
    #[inline]
    #[must_use]
    pub const fn wire_len(&self, segment: &Segment) -> u32 {
        self.header_len + segment.len + if self.option_bytes { segment.options_len() } else { 0 }
    }

    /// True if connections with SACK recover as `Sack1` of ns-2.
    #[inline]
    pub(super) fn recovers_as_sack1(&self) -> bool {
        self.ns2_recovery && self.sack && !self.prr && !self.rack
    }

    /// Window scale shift to offer, RFC 7323 section 2.3: at most 14.
    pub(super) fn shift(&self) -> Option<u8> {
        self.window_scale.map(|shift| shift.min(14))
    }

    /// IW [bytes].
    pub(super) fn iw(&self) -> u64 {
        self.smss() * u64::from(self.initial_window.max(1))
    }

    /// True if anything other than the windows can delay data.
    #[inline]
    pub(super) fn paces(&self) -> bool {
        self.pacing.is_some() || self.pace_window || self.algorithm.has_pacing_rate()
    }
}

impl Default for Config {
    /// The values of the RFCs, for Ethernet.
    ///
    /// Where the RFCs leave a choice: a clock granularity of 1 ms, delayed ACKs of up to 200 ms, a receive buffer of 4
    /// MiB, R2 of at least 3 min for a SYN and 100 s for data.
    fn default() -> Self {
        Self {
            mss: 1460,
            header_len: 40,
            option_bytes: false,
            initial_window: 10,
            receive_window: 4 << 20,
            initial_receive_window: None,
            max_window: u64::MAX,
            initial_ssthresh: None,
            initial_rto: Duration::from_secs(1),
            min_rto: Duration::from_secs(1),
            estimator: Estimator::Rfc6298,
            max_rto: Duration::from_secs(60),
            clock_granularity: Duration::from_millis(1),
            limited_transmit: true,
            delayed_ack: Some(Duration::from_millis(200)),
            impatient: true,
            half_of_cwnd: false,
            ns2_recovery: false,
            go_back_n: true,
            abc: false,
            slow_start_restart: true,
            pacing: None,
            pace_window: false,
            hystart: false,
            search: false,
            ecn: false,
            accurate_ecn: false,
            sack: false,
            prr: false,
            rack: false,
            eifel: false,
            timestamps: false,
            window_scale: None,
            syn_retries: 7,
            retries: 15,
            algorithm: Algorithm::NewReno,
            seed: 0,
        }
    }
}
