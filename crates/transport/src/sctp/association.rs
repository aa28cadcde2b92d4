//! One endpoint of an association: its state and the interface to its host.

use std::collections::VecDeque;

use bentpipe_units::{Duration, Instant};

use super::packet::{Control, size};
use super::receive::Receiver;
use super::rto::Rto;
use super::{Config, Cookie};

/// Maximum amount of data an application can write in total [bytes].
const MAX_WRITTEN: u64 = u64::MAX / 4;

/// States of RFC 9260 section 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum State {
    /// No association; with `listening`, a peer may set one up.
    #[default]
    Closed,
    CookieWait,
    CookieEchoed,
    Established,
    ShutdownPending,
    ShutdownSent,
    ShutdownReceived,
    ShutdownAckSent,
}

/// State of a DATA chunk that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChunkState {
    Outstanding,
    /// Acknowledged by a gap ack block.
    Acked,
    /// Marked for retransmission.
    Lost,
}

/// A DATA chunk that was sent and is not cumulatively acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub(super) len: u16,
    pub(super) begin: bool,
    pub(super) end: bool,
    pub(super) state: ChunkState,
    /// Consecutive miss indications.
    pub(super) misses: u8,
    /// Fast retransmitted, which happens at most once.
    pub(super) fast_retransmitted: bool,
}

impl Chunk {
    #[inline]
    pub(super) fn size(&self) -> u64 {
        size(self.len).into()
    }
}

/// Queued messages of the same length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Messages {
    pub(super) len: u32,
    pub(super) count: u64,
}

/// One endpoint of an association.
#[derive(Clone, Debug, Default)]
pub struct Association {
    /// First TSN not cumulatively acknowledged: that of the first of `chunks`.
    pub(super) first: u64,
    pub(super) chunks: VecDeque<Chunk>,
    /// Queued messages, and how much of the first one has been sent.
    pub(super) queue: VecDeque<Messages>,
    pub(super) offset: u32,
    /// Total size of the outstanding DATA chunks (section 2.3), and the user data in them [bytes].
    pub(super) flight: u64,
    pub(super) flight_data: u64,
    /// Number of chunks marked for retransmission, none of them before `lost_from`, and of chunks acknowledged by gap
    /// ack blocks.
    pub(super) lost: usize,
    pub(super) lost_from: u64,
    pub(super) gap_acked: usize,
    /// The peer's receive window [bytes].
    pub(super) rwnd: u64,
    pub(super) cwnd: u64,
    pub(super) ssthresh: Option<u64>,
    pub(super) partial_bytes_acked: u64,
    /// Fast Recovery, until all TSNs up to this one are acknowledged.
    pub(super) recovery: Option<u64>,
    /// One packet of retransmissions may be sent regardless of the window.
    pub(super) fast_due: bool,
    /// After a timeout: one packet in flight until DATA is acknowledged.
    pub(super) one_packet_in_flight: bool,
    /// Packets of new DATA that may still be sent at this time.
    pub(super) burst: u32,
    /// The outstanding DATA probes a closed window, and a SACK has arrived since it was last sent.
    pub(super) probing: bool,
    pub(super) answered: bool,
    pub(super) rto: Rto,
    /// Expiry of T1-init or T1-cookie, T2-shutdown, or T3-rtx, depending on the state.
    pub(super) timer_at: Option<Instant>,
    /// Consecutive timeouts: attempts during setup, later the error counter of section 8.1.
    pub(super) errors: u32,
    pub(super) rx: Receiver,
    pub(super) data_sent_at: Instant,
    /// Control chunk to send.
    pub(super) control_due: Control,
    pub(super) cookie: Cookie,
    /// Cookies that the peer refused as stale.
    pub(super) stale_cookies: u32,
    pub(super) state: State,
    pub(super) listening: bool,
    pub(super) closing: bool,
    pub(super) peer_closed: bool,
    pub(super) failed: bool,
    pub(super) written: u64,
    pub(super) acked: u64,
    pub(super) stats: Counters,
}

/// Event counters.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) retransmissions: u64,
    pub(super) timeouts: u64,
    pub(super) fast_retransmits: u64,
    pub(super) packets_sent: u64,
    pub(super) packets_received: u64,
}

/// Counters and state of an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Stats {
    /// Retransmitted DATA chunks.
    pub retransmissions: u64,
    /// Expiries of T1, T2 and T3.
    pub timeouts: u64,
    /// Fast Recovery entries.
    pub fast_retransmits: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets received, including those discarded.
    pub packets_received: u64,
    /// Congestion window [bytes of DATA chunks].
    pub cwnd: u64,
    /// Slow start threshold [bytes of DATA chunks].
    pub ssthresh: Option<u64>,
    /// `partial_bytes_acked` of section 7.2.2 [bytes of DATA chunks].
    pub partial_bytes_acked: u64,
    /// The peer's receive window, as far as known [bytes].
    pub rwnd: u64,
    /// Latest RTT measured; `None` before the first.
    pub rtt: Option<Duration>,
    /// Smoothed RTT; `None` before the first measurement.
    pub srtt: Option<Duration>,
    /// Retransmission timeout, including backoff.
    pub rto: Duration,
    /// Outstanding DATA chunks [bytes].
    pub in_flight: u64,
}

impl Association {
    /// Active open: [`poll_transmit`](Self::poll_transmit) returns the INIT.
    #[must_use]
    pub fn connect(cfg: &Config) -> Self {
        let mut association = Self::new(cfg, State::CookieWait);
        association.control_due = Control::Init { a_rwnd: cfg.a_rwnd };
        association
    }

    /// Passive open: waits for an INIT.
    #[must_use]
    pub fn listen(cfg: &Config) -> Self {
        let mut association = Self::new(cfg, State::Closed);
        association.listening = true;
        association
    }

    fn new(cfg: &Config, state: State) -> Self {
        Self {
            first: 1,
            lost_from: 1,
            cwnd: cfg.initial_cwnd(),
            ssthresh: cfg.initial_ssthresh,
            burst: cfg.max_burst,
            rto: Rto::new(cfg),
            rx: Receiver::new(cfg),
            state,
            ..Self::default()
        }
    }

    /// Time of the next call of [`handle_timeout`](Self::handle_timeout); `None` if no timer runs.
    #[inline]
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        [self.timer_at, self.rx.sack_at].into_iter().flatten().min()
    }

    /// Writes `bytes`, split into messages of [`Config::message_len`]. Ignored after [`close`](Self::close); the total
    /// is limited to `u64::MAX / 4`.
    pub fn write(&mut self, cfg: &Config, bytes: u64) {
        let message = cfg.message_len.max(1);
        let bytes = bytes.min(MAX_WRITTEN - self.written);
        self.enqueue(message, bytes / u64::from(message));
        self.enqueue((bytes % u64::from(message)) as u32, 1);
        self.burst = cfg.max_burst;
    }

    /// Writes a message of `len` bytes.
    pub fn send(&mut self, cfg: &Config, len: u32) {
        if u64::from(len) <= MAX_WRITTEN - self.written {
            self.enqueue(len, 1);
            self.burst = cfg.max_burst;
        }
    }

    fn enqueue(&mut self, len: u32, count: u64) {
        let open = self.state != State::Closed || self.listening;
        if len == 0 || count == 0 || self.closing || self.peer_closed || !open {
            return;
        }
        self.written += u64::from(len) * count;
        match self.queue.back_mut() {
            Some(last) if last.len == len => last.count += count,
            _ => self.queue.push_back(Messages { len, count }),
        }
    }

    /// Closes the association. Once everything written is acknowledged, both directions are shut down (section 9.2):
    /// SCTP has no half-open associations.
    pub fn close(&mut self) {
        self.closing = true;
        if self.state == State::Established {
            self.state = State::ShutdownPending;
        }
    }

    /// Aborts the association, section 9.1. An ABORT is sent if the peer knows the association.
    pub fn abort(&mut self) {
        let known = !matches!(self.state, State::Closed | State::CookieWait);
        self.terminate();
        if known {
            self.control_due = Control::Abort;
        }
    }

    /// In-order data of complete messages waiting for the application [bytes].
    #[inline]
    #[must_use]
    pub fn readable(&self) -> u64 {
        self.rx.unread
    }

    /// Reads `n` bytes, or as many as are waiting.
    #[inline]
    pub fn read(&mut self, n: u64) {
        self.rx.read(n);
    }

    /// True once the setup is complete and until the association is closed.
    #[inline]
    #[must_use]
    pub fn is_established(&self) -> bool {
        !matches!(self.state, State::Closed | State::CookieWait | State::CookieEchoed)
    }

    /// True once the peer has shut the association down and all data it sent has arrived.
    #[inline]
    #[must_use]
    pub fn peer_closed(&self) -> bool {
        self.peer_closed
    }

    /// True once nothing is left to send or to wait for: the association was shut down, failed or was aborted.
    #[inline]
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed && !self.listening && self.control_due == Control::None
    }

    /// True if the peer aborted the association or left too many packets unanswered.
    #[inline]
    #[must_use]
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// User data cumulatively acknowledged by the peer [bytes].
    #[inline]
    #[must_use]
    pub fn acked(&self) -> u64 {
        self.acked
    }

    /// User data written and not yet acknowledged [bytes].
    #[inline]
    #[must_use]
    pub fn send_queue(&self) -> u64 {
        self.written - self.acked
    }

    /// User data received in order, read or not [bytes].
    #[inline]
    #[must_use]
    pub fn received(&self) -> u64 {
        self.rx.received
    }

    /// Counters and current state.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            retransmissions: self.stats.retransmissions,
            timeouts: self.stats.timeouts,
            fast_retransmits: self.stats.fast_retransmits,
            packets_sent: self.stats.packets_sent,
            packets_received: self.stats.packets_received,
            cwnd: self.cwnd,
            ssthresh: self.ssthresh,
            partial_bytes_acked: self.partial_bytes_acked,
            rwnd: self.rwnd,
            rtt: self.rto.latest(),
            srtt: self.rto.srtt(),
            rto: self.rto.interval(),
            in_flight: self.flight,
        }
    }

    /// TSN of the next new DATA chunk.
    #[inline]
    pub(super) fn next_tsn(&self) -> u64 {
        self.first + self.chunks.len() as u64
    }

    /// Closes the association at once.
    pub(super) fn terminate(&mut self) {
        self.state = State::Closed;
        self.listening = false;
        self.timer_at = None;
        self.rx.sack_at = None;
        self.rx.sack_now = false;
        self.control_due = Control::None;
    }

    /// Closes the association because the peer aborted it or does not answer.
    pub(super) fn fail(&mut self) {
        self.terminate();
        self.failed = true;
    }
}
