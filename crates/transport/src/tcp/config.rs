//! What all connections of a kind have in common.

use bentpipe_units::{Duration, Rate};

use super::{Algorithm, Segment};

/// Parameters shared by many connections, handed by reference into each call.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Payload of a full segment [bytes], SMSS of RFC 5681. Zero is taken as one.
    pub mss: u32,
    /// Headers of a segment on the wire, without options [bytes]; counts for pacing and
    /// [`wire_len`](Self::wire_len) alone.
    pub header_len: u32,
    /// Whether options count on the wire as well.
    pub option_bytes: bool,
    /// Initial window IW [segments]: 10 in RFC 6928, 2 to 4 in RFC 5681 section 3.1.
    pub initial_window: u32,
    /// Largest window advertised, and the receive buffer [bytes].
    pub receive_window: u32,
    /// The receive window at first, if it grows: by two segments with each that arrives, up to `receive_window`,
    /// and each of these is acknowledged at once (Linux, `tcp_grow_window()`) [bytes]. `None`: it does not.
    pub initial_receive_window: Option<u32>,
    /// The sender's own limit on its window [bytes]; `u64::MAX` is none. No less than one segment counts.
    pub max_window: u64,
    /// Slow start threshold before the first loss [bytes]; RFC 5681 section 3.1 asks for "arbitrarily high".
    pub initial_ssthresh: u64,
    /// RTO before the first measurement, RFC 6298 (2.1).
    pub initial_rto: Duration,
    /// Lower bound of RTO, RFC 6298 (2.4).
    pub min_rto: Duration,
    /// How RTO follows from round trips.
    pub estimator: Estimator,
    /// Upper bound of RTO, backed off or not, and of the interval between window probes, RFC 6298 (2.5).
    pub max_rto: Duration,
    /// G of RFC 6298: round trips are measured in whole ticks of this length, to the nearest, at least one.
    /// Zero is a perfect clock.
    pub clock_granularity: Duration,
    /// Whether the first two duplicate ACKs let a segment each out, RFC 3042. With [`rack`](Self::rack) all that is
    /// selectively acknowledged makes room, until something is known to be lost.
    pub limited_transmit: bool,
    /// Longest delay of an ACK; every second full segment is acknowledged at once (RFC 5681 section 4.2).
    /// `None`: every segment is.
    pub delayed_ack: Option<Duration>,
    /// Whether the first partial ACK alone restarts the retransmission timer ("impatient", RFC 6582 section
    /// 4), or each of them ("slow but steady").
    pub impatient: bool,
    /// Whether congestion leaves a share of the congestion window, as in 4.3BSD and ns-2, not of what is outstanding
    /// (RFC 5681 section 3.1, which warns of the former).
    pub half_of_cwnd: bool,
    /// Whether to recover as ns-2 does. Duplicate ACKs let more go again of what was sent before a timeout: the first two by
    /// limited transmit, and those after the third as in fast recovery (only with [`go_back_n`](Self::go_back_n) and without
    /// SACK). In NewReno's fast recovery, an ACK lets two segments go at the most, beside the one sent again.
    pub ns2_recovery: bool,
    /// Whether all from the first unacknowledged byte that is not selectively acknowledged is sent again after a
    /// timeout, in slow start (RFC 5681 section 3.1, RFC 6675 section 5.1), as 4.4BSD and ns-2 do.
    /// If not, one segment is, and one more for each ACK that shows another hole: a round trip for each.
    pub go_back_n: bool,
    /// Whether the window grows by the bytes that ACKs cover, not by their number: appropriate byte counting,
    /// RFC 3465, with L = 2.
    pub abc: bool,
    /// Whether the window shrinks to the initial one after an idle time of one RTO, RFC 5681 section 4.1.
    pub slow_start_restart: bool,
    /// Data segments leave no faster than this, headers included. `None`: as fast as the windows allow, and as
    /// the algorithm says where it has a rate of its own.
    pub pacing: Option<Rate>,
    /// Whether a window is spread over its round trip: data leaves at `cwnd / SRTT`, or twice that in slow start
    /// and 1.2 times in congestion avoidance, as Linux does. Not for an algorithm with a rate of its own.
    pub pace_window: bool,
    /// Whether slow start ends where the round trip grows: HyStart++, RFC 9406. For algorithms whose slow start is
    /// that of RFC 5681.
    pub hystart: bool,
    /// Whether to offer and accept explicit congestion notification, RFC 3168.
    pub ecn: bool,
    /// Whether to offer and accept accurate feedback of marks (RFC 9768) where `ecn` is on, rather than one echo in
    /// a round trip.
    pub accurate_ecn: bool,
    /// Whether to offer and accept selective acknowledgements (RFC 2018), and to recover from losses by them
    /// (RFC 6675).
    pub sack: bool,
    /// Whether a recovery by selective acknowledgements approaches its window by proportional rate reduction
    /// (RFC 9937), or halves it at once.
    pub prr: bool,
    /// Whether losses are found by time, RACK-TLP (RFC 8985), where selective acknowledgements were agreed on,
    /// rather than by how much of them there are (RFC 6675). What goes again after a timeout is then its
    /// section 6.3's, not [`go_back_n`](Self::go_back_n)'s. The receiver reports duplicates (RFC 2883).
    pub rack: bool,
    /// Whether a timeout is undone that was none: Eifel, RFC 3522 and RFC 4015. It takes [`rack`](Self::rack) and
    /// [`timestamps`](Self::timestamps), and an algorithm that does not set its window itself.
    pub eifel: bool,
    /// Whether to offer and accept timestamps (RFC 7323 section 3), which measure a round trip with every ACK of
    /// new data, of what was sent again as well.
    pub timestamps: bool,
    /// The shift of the window scale option (RFC 7323 section 2) to offer, 14 at the most: windows are multiples
    /// of `1 << shift`, up to 65 535 of them, or up to 65 535 bytes where the peer offers none. `None`: there is
    /// no such option, and windows are whatever 32 bits hold.
    pub window_scale: Option<u8>,
    /// The connection fails when this many retransmissions of a SYN have gone unanswered, R2 of RFC 9293
    /// section 3.8.3.
    pub syn_retries: u32,
    /// The connection fails when this many retransmissions (or window probes) in a row have gone unanswered,
    /// R2 of RFC 9293 section 3.8.3.
    pub retries: u32,
    /// The congestion control algorithm.
    pub algorithm: Algorithm,
}

/// How the retransmission timeout follows from round trips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Estimator {
    /// RFC 6298.
    Rfc6298,
    /// As in Linux (`tcp_rtt_estimator()`): with timestamps each round trip counts in full, the largest deviation of a
    /// round counts, and `min_rto` bounds what is added to SRTT.
    Linux,
    /// As in 4.4BSD and ns-2: in whole ticks of the clock, which leave the deviation no less than three quarters of one
    /// (Wright & Stevens, TCP/IP Illustrated, volume 2, section 25.10).
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

    /// The shift to offer, RFC 7323 section 2.3: 14 at the most.
    pub(super) fn shift(&self) -> Option<u8> {
        self.window_scale.map(|shift| shift.min(14))
    }

    /// IW [bytes].
    pub(super) fn iw(&self) -> u64 {
        self.smss() * u64::from(self.initial_window.max(1))
    }

    /// Whether anything but the windows may hold data back.
    #[inline]
    pub(super) fn paces(&self) -> bool {
        self.pacing.is_some() || self.pace_window || self.algorithm.has_pacing_rate()
    }
}

impl Default for Config {
    /// What the RFCs ask for, on an Ethernet.
    ///
    /// Where they leave the choice: a perfect clock up to 1 ms, a delayed ACK of 200 ms at the most, a
    /// receive buffer of 4 MiB, a SYN tried for R2 >= 3 min and data for R2 >= 100 s.
    fn default() -> Self {
        Self {
            mss: 1460,
            header_len: 40,
            option_bytes: false,
            initial_window: 10,
            receive_window: 4 << 20,
            initial_receive_window: None,
            max_window: u64::MAX,
            initial_ssthresh: u64::MAX,
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
        }
    }
}
