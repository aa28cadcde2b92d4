//! One endpoint of a connection: its state and the interface to its host.

use bentpipe_units::{Duration, Instant};

use super::Config;
use super::accurate::{Counters, EcnMode};
use super::congestion::{self, Window};
use super::delivery::Delivery;
use super::ns2::Reduction;
use super::receive::Receiver;
use super::rto::Rto;
use super::scoreboard::Scoreboard;

/// Maximum amount of data an application can write in total [bytes].
const MAX_WRITTEN: u64 = u64::MAX / 4;

/// States of RFC 9293 section 3.3.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum State {
    #[default]
    Closed,
    Listen,
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
}

impl State {
    /// True once the handshake is complete, including while the connection closes.
    #[inline]
    pub(super) fn is_synchronized(self) -> bool {
        !matches!(self, Self::Closed | Self::Listen | Self::SynSent | Self::SynReceived)
    }
}

/// State of loss recovery at the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum Phase {
    /// No loss detected.
    #[default]
    Open,
    /// Fast recovery without SACK, RFC 5681 or RFC 6582.
    FastRecovery,
    /// Loss recovery with SACK, RFC 6675 or RFC 8985.
    SackRecovery,
    /// After a timeout with SACK: resends everything that was not SACKed, or with RFC 8985 everything lost.
    RtoResend,
    /// After a timeout without go-back-N: resends one segment for each ACK that shows another gap.
    RtoPerAck,
    /// After a timeout with go-back-N, until new data is acknowledged: as in ns-2, duplicate ACKs allow more
    /// retransmissions.
    RtoNs2,
}

/// Purpose of the sender's timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum Timer {
    #[default]
    Off,
    Retransmission,
    Persist,
    /// RFC 8985: waits for a segment that may only have been reordered.
    Reordering,
    /// RFC 8985: sends a tail loss probe.
    Probe,
}

/// Reason for a RST to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reset {
    /// The application aborted the connection.
    Abort,
    /// A segment with an ACK arrived for a closed connection.
    Reply,
    /// A segment without an ACK arrived for a closed connection.
    ReplyAck,
}

/// One endpoint of a connection.
#[derive(Clone, Debug, Default)]
pub struct Connection {
    // Fields used by every segment come first.
    /// SND.UNA: first position not acknowledged.
    pub(super) una: u64,
    /// SND.NXT: next position to send.
    pub(super) nxt: u64,
    /// SND.MAX: highest SND.NXT so far; above `nxt` after going back.
    pub(super) max: u64,
    /// Position after the last byte written.
    pub(super) written: u64,
    /// Right edge of the peer's receive window.
    pub(super) edge: u64,
    pub(super) window: Window,
    pub(super) algorithm: congestion::State,
    /// `recover` of RFC 6582, plus one: SND.MAX when the last loss was detected. RFC 6582 section 3.2 starts with the
    /// initial sequence number, which would prevent a fast retransmit of the first data segment. Nothing can have been lost
    /// before it, so this starts at 0.
    pub(super) recover: u64,
    /// SND.MAX when the congestion window was last reduced, for whatever reason.
    pub(super) reduced: u64,
    /// Expiry of the sender's timer; `None` if it is off.
    pub(super) timer_at: Option<Instant>,
    pub(super) rto: Rto,
    pub(super) rx: Receiver,
    /// SACK state; `None` unless both ends permitted SACK.
    pub(super) sack: Option<Box<Scoreboard>>,
    /// Delivery records; `None` unless the algorithm needs them.
    pub(super) delivery: Option<Box<Delivery>>,
    /// Time of the last data segment sent.
    pub(super) data_sent_at: Instant,
    /// Earliest departure of the next data segment, as paced.
    pub(super) pace_at: Instant,
    /// SND.WL1: `seq` of the segment that last updated the peer's window. Once closed: the position in the RST to send.
    pub(super) wl1: u64,
    /// Largest window the peer has advertised [bytes].
    pub(super) largest_window: u32,
    /// Consecutive duplicate ACKs; counts no further than 65,535.
    pub(super) duplicate_acks: u16,
    /// Consecutive timeouts without an answer.
    pub(super) unanswered: u16,
    pub(super) retransmissions: u32,
    pub(super) timeouts: u32,
    pub(super) fast_retransmits: u32,
    pub(super) state: State,
    pub(super) phase: Phase,
    pub(super) timer: Timer,
    pub(super) reset: Option<Reset>,
    /// Consecutive window probes.
    pub(super) probes: u8,
    /// New segments sent in fast recovery since the last ACK.
    pub(super) burst: u8,
    /// True once the application has closed its direction.
    pub(super) closing: bool,
    pub(super) failed: bool,
    /// A SYN must be sent.
    pub(super) syn_due: bool,
    /// The last call of `poll_transmit` found that nothing follows.
    pub(super) drained: bool,
    /// True once a SYN has been retransmitted.
    pub(super) syn_retransmitted: bool,
    /// A retransmission is due: the segment at `una`, or what `phase` selects.
    pub(super) resend_due: bool,
    /// A window probe must be sent.
    pub(super) probe_due: bool,
    /// The byte of a window probe, beyond `max`, may be acknowledged.
    pub(super) probe_outstanding: bool,
    /// A partial ACK has arrived in this fast recovery.
    pub(super) partial_seen: bool,
    /// True if the congestion window limited the sender.
    pub(super) cwnd_limited: bool,
    /// True if pacing alone delays the next segment.
    pub(super) paced: bool,
    /// Negotiated ECN feedback.
    pub(super) ecn: EcnMode,
    pub(super) ace: Counters,
    /// CWR must be sent to the peer.
    pub(super) cwr_due: bool,
    /// Latest reduction, with the recovery of ns-2.
    pub(super) latest: Reduction,
    /// Both ends offered window scaling.
    pub(super) window_scaling: bool,
    /// A tail loss probe must be sent, RFC 8985 section 7.3.
    pub(super) loss_probe_due: bool,
    /// Both ends offered timestamps.
    pub(super) timestamps: bool,
    /// TS.Recent of RFC 7323 section 4.3: the timestamp to echo.
    pub(super) ts_recent: u32,
}

/// The limit of a connection's sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// All data written were sent.
    Sender,
    /// The peer's window, or [`Config::max_window`].
    ReceiveWindow,
    /// The congestion window, pacing or the handshake.
    CongestionWindow,
}

/// State of loss recovery and congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CongestionPhase {
    /// Slow start.
    SlowStart,
    /// Congestion avoidance.
    Avoidance,
    /// Fast recovery.
    Recovery,
    /// Retransmission after a timeout.
    Timeout,
}

/// A segment that asks for an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Tail loss probe (RFC 8985 section 7.3).
    Loss,
    /// Zero-window probe (RFC 9293 section 3.8.6.1).
    Window,
}

/// Counters and state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Stats {
    /// Retransmitted segments, including SYNs and FINs.
    pub retransmissions: u64,
    /// Expiries of the retransmission timer.
    pub timeouts: u64,
    /// Fast retransmits.
    pub fast_retransmits: u64,
    /// Congestion window [bytes].
    pub cwnd: u64,
    /// Slow start threshold [bytes].
    pub ssthresh: Option<u64>,
    /// Latest RTT measured, in whole ticks of [`Config::clock_granularity`].
    pub rtt: Option<Duration>,
    /// Smoothed RTT; `None` before the first measurement.
    pub srtt: Option<Duration>,
    /// Retransmission timeout, including backoff.
    pub rto: Duration,
    /// Bytes sent and neither acknowledged, SACKed nor considered lost; without SACK, bytes not acknowledged. After
    /// going back, bytes sent since.
    pub in_flight: u64,
}

impl Connection {
    /// Active open: [`poll_transmit`](Self::poll_transmit) returns the SYN.
    #[must_use]
    pub fn connect(cfg: &Config, now: Instant) -> Self {
        let mut connection = Self::new(cfg, State::SynSent);
        connection.syn_due = true;
        connection.data_sent_at = now;
        connection
    }

    /// Passive open: waits for a SYN.
    #[must_use]
    pub fn listen(cfg: &Config) -> Self {
        Self::new(cfg, State::Listen)
    }

    fn new(cfg: &Config, state: State) -> Self {
        Self {
            written: 1,
            window: Window::new(cfg.iw(), cfg.initial_ssthresh),
            algorithm: congestion::State::new(cfg.algorithm),
            timer_at: None,
            rto: Rto::new(cfg),
            rx: Receiver::new(cfg),
            delivery: Delivery::new(cfg),
            state,
            ..Self::default()
        }
    }

    /// Time of the next call of [`handle_timeout`](Self::handle_timeout): the earlier of the delayed ACK and the sender's
    /// timer (retransmission, window probe, tail loss probe or reordering); `None` if no timer runs.
    #[inline]
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match (self.timer_at, self.rx.ack_at) {
            (Some(timer), Some(ack)) => Some(timer.min(ack)),
            (timer, ack) => timer.or(ack),
        }
    }

    /// Time of the next call of [`poll_transmit`](Self::poll_transmit) for data; `None` unless pacing alone delays it.
    /// Valid until the next call of `poll_transmit`.
    #[inline]
    #[must_use]
    pub fn paced_until(&self) -> Option<Instant> {
        self.paced.then_some(self.pace_at)
    }

    /// Writes `bytes` to the send buffer. Ignored after [`close`](Self::close); the total is limited to `u64::MAX / 4`.
    #[inline]
    pub fn write(&mut self, bytes: u64) {
        if !self.closing && self.state != State::Closed {
            self.written = self.written.saturating_add(bytes).min(MAX_WRITTEN);
        }
    }

    /// Closes the sending direction: a FIN follows the last byte. The other direction stays open.
    ///
    /// Before the handshake is complete, the FIN waits with the data written, where RFC 9293 section 3.10.4 would
    /// delete a connection in SYN-SENT.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// Aborts the connection, RFC 9293 section 3.10.5. A RST is sent if the peer knows the connection.
    ///
    /// The connection then [is closed](Self::is_closed), but has not [failed](Self::failed).
    pub fn abort(&mut self) {
        let known = !matches!(self.state, State::Closed | State::Listen | State::SynSent | State::TimeWait);
        self.terminate();
        if known {
            self.reset = Some(Reset::Abort);
        }
    }

    /// In-order data waiting for the application [bytes].
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

    /// Limits the receive buffer to `bytes`, below the configured size.
    ///
    /// The advertised window is the buffer less the unread bytes. A smaller buffer never moves the right edge back; a
    /// larger one is announced once it is worth a segment (RFC 9293 sections 3.8.6, 3.8.6.2.2).
    #[inline]
    pub fn limit_receive_buffer(&mut self, bytes: u32) {
        self.rx.set_limit(bytes);
    }

    /// True once the handshake is complete and until the connection is closed.
    #[inline]
    #[must_use]
    pub fn is_established(&self) -> bool {
        self.state.is_synchronized()
    }

    /// True once the peer's FIN and all data before it have arrived.
    #[inline]
    #[must_use]
    pub fn peer_closed(&self) -> bool {
        self.rx.finished
    }

    /// True once nothing is left to send or to wait for: both directions are finished and acknowledged, or the
    /// connection failed or was aborted.
    #[inline]
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed && self.reset != Some(Reset::Abort)
    }

    /// True once both directions are finished and only a lost ACK of the peer's FIN can cause further segments. There
    /// is no 2 MSL timer: the host frees the connection.
    #[inline]
    #[must_use]
    pub fn in_time_wait(&self) -> bool {
        self.state == State::TimeWait
    }

    /// True if the peer reset the connection or left too many retransmissions unanswered.
    #[inline]
    #[must_use]
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// Payload written and not yet acknowledged [bytes].
    #[inline]
    #[must_use]
    pub fn send_queue(&self) -> u64 {
        self.written.saturating_sub(self.una.max(1))
    }

    /// True if [`Connection::poll_transmit`] would return `None` after the segment that it has just returned.
    #[inline]
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.drained
    }

    /// Payload acknowledged by the peer [bytes].
    #[inline]
    #[must_use]
    pub fn acked(&self) -> u64 {
        self.una.min(self.written).saturating_sub(1)
    }

    /// Payload received in order, read or not [bytes].
    #[inline]
    #[must_use]
    pub fn received(&self) -> u64 {
        self.rx.received()
    }

    /// Counters and current state.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            retransmissions: self.retransmissions.into(),
            timeouts: self.timeouts.into(),
            fast_retransmits: self.fast_retransmits.into(),
            cwnd: self.window.cwnd,
            ssthresh: self.window.ssthresh(),
            rtt: self.rto.latest(),
            srtt: self.rto.srtt(),
            rto: self.rto.interval(),
            in_flight: self.in_network(),
        }
    }

    /// State of loss recovery and congestion control.
    #[must_use]
    pub fn congestion_phase(&self) -> CongestionPhase {
        match self.phase {
            Phase::Open if self.window.ssthresh().is_none_or(|ssthresh| self.window.cwnd < ssthresh) => {
                CongestionPhase::SlowStart
            }
            Phase::Open => CongestionPhase::Avoidance,
            Phase::FastRecovery | Phase::SackRecovery => CongestionPhase::Recovery,
            Phase::RtoResend | Phase::RtoPerAck | Phase::RtoNs2 => CongestionPhase::Timeout,
        }
    }

    /// The probe that the next segment is, if one is due.
    #[must_use]
    pub fn due_probe(&self) -> Option<Probe> {
        if self.loss_probe_due { Some(Probe::Loss) } else { self.probe_due.then_some(Probe::Window) }
    }

    /// The limit of what may be sent now.
    #[must_use]
    pub fn limit(&self, cfg: &Config) -> Limit {
        let window = self.send_limit(cfg).saturating_sub(self.una);
        if self.is_established() && self.nxt >= self.stream_end() && !self.resend_due {
            Limit::Sender
        } else if self.is_established() && window <= self.window.cwnd {
            Limit::ReceiveWindow
        } else {
            Limit::CongestionWindow
        }
    }

    /// FlightSize: bytes sent and not acknowledged; after going back, bytes sent since [bytes].
    #[inline]
    pub(super) fn flight(&self) -> u64 {
        self.nxt - self.una
    }

    /// Position after the last one to send: data and a FIN.
    #[inline]
    pub(super) fn stream_end(&self) -> u64 {
        self.written + u64::from(self.closing)
    }

    /// Position up to which the peer's window and [`Config::max_window`] allow sending.
    pub(super) fn send_limit(&self, cfg: &Config) -> u64 {
        self.edge.min(self.una.saturating_add(cfg.max_window.max(cfg.smss())))
    }

    /// Closes the connection at once.
    pub(super) fn terminate(&mut self) {
        self.state = State::Closed;
        self.stop_timer();
        self.rx.stop();
        self.syn_due = false;
        self.resend_due = false;
        self.probe_due = false;
        self.loss_probe_due = false;
        self.paced = false;
        self.reset = None;
    }

    /// Closes the connection because the peer reset it or does not answer.
    pub(super) fn fail(&mut self) {
        self.terminate();
        self.failed = true;
    }

    #[inline]
    pub(super) fn set_timer(&mut self, timer: Timer, at: Instant) {
        (self.timer, self.timer_at) = (timer, Some(at));
    }

    #[inline]
    pub(super) fn stop_timer(&mut self) {
        (self.timer, self.timer_at) = (Timer::Off, None);
    }
}
