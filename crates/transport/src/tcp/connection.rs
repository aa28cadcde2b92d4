//! One endpoint of a connection: its state, and what its host may do with it.

use bentpipe_units::{Duration, Instant};

use super::Config;
use super::accurate::{Counters, EcnMode};
use super::congestion::{self, Window};
use super::delivery::Delivery;
use super::receive::Receiver;
use super::rto::Rto;
use super::scoreboard::Scoreboard;

/// The most an application can write in all [bytes].
const MAX_WRITTEN: u64 = u64::MAX / 4;

/// States of RFC 9293 section 3.3.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
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
    /// Whether both ends have agreed on the connection.
    #[inline]
    pub(super) fn is_synchronized(self) -> bool {
        !matches!(self, Self::Closed | Self::Listen | Self::SynSent | Self::SynReceived)
    }
}

/// How the sender is to get over a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing is known to be lost.
    Open,
    /// Fast recovery of RFC 5681 or RFC 6582.
    FastRecovery,
    /// Loss recovery of RFC 6675, or of RFC 8985.
    SackRecovery,
    /// After a timeout with SACK, going back: all is sent again that is not selectively acknowledged, or with
    /// RFC 8985 what is lost.
    RtoResend,
    /// After a timeout, without going back: one segment for each hole that shows.
    RtoPerAck,
    /// After a timeout, going back, until new data is acknowledged: duplicate ACKs let more go, as in ns-2.
    RtoNs2,
}

/// What the sender's timer is set for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    Off,
    Retransmission,
    Persist,
    /// RFC 8985: a segment sent later was delivered, and this one has been given time.
    Reordering,
    /// RFC 8985: a loss probe.
    Probe,
}

/// A reset to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reset {
    /// The application gave the connection up.
    Abort,
    /// An ACK arrived for a connection that is no more.
    Reply,
    /// Something without an ACK did.
    ReplyAck,
}

/// One endpoint of a connection.
#[derive(Clone, Debug)]
pub struct Connection {
    // What every segment touches comes first.
    /// SND.UNA: the first position not acknowledged.
    pub(super) una: u64,
    /// SND.NXT: the next position to send.
    pub(super) nxt: u64,
    /// The highest SND.NXT there was; above `nxt` after going back.
    pub(super) max: u64,
    /// The position after the last byte written.
    pub(super) written: u64,
    /// Right edge of the peer's window.
    pub(super) edge: u64,
    pub(super) window: Window,
    pub(super) algorithm: congestion::State,
    /// `recover` of RFC 6582, plus one: SND.MAX when the last loss was found.
    pub(super) recover: u64,
    /// SND.MAX when the window was last reduced, for whatever reason.
    pub(super) reduced: u64,
    /// When the sender's timer goes off.
    pub(super) timer_at: Instant,
    pub(super) rto: Rto,
    pub(super) rx: Receiver,
    /// Selective acknowledgements, where they were negotiated.
    pub(super) sack: Option<Box<Scoreboard>>,
    /// What became of each segment, where the algorithm asks.
    pub(super) delivery: Option<Box<Delivery>>,
    /// When data was last sent.
    pub(super) data_sent_at: Instant,
    /// When pacing lets the next data segment go.
    pub(super) pace_at: Instant,
    /// SND.WL1: `seq` of the segment that last updated the peer's window. Once closed, there is none, and it
    /// is the position in the reset to reply with.
    pub(super) wl1: u64,
    segments_sent: u64,
    pub(super) segments_received: u64,
    /// The largest window the peer advertised [bytes].
    pub(super) largest_window: u32,
    pub(super) duplicate_acks: u32,
    /// Timeouts in a row without an answer.
    pub(super) unanswered: u16,
    pub(super) retransmissions: u32,
    pub(super) timeouts: u32,
    pub(super) fast_retransmits: u32,
    pub(super) state: State,
    pub(super) phase: Phase,
    pub(super) timer: Timer,
    pub(super) reset: Option<Reset>,
    /// Window probes in a row.
    pub(super) probes: u8,
    /// Segments never sent before that have left in fast recovery since the last ACK.
    pub(super) burst: u8,
    /// The application closed its direction.
    pub(super) closing: bool,
    pub(super) failed: bool,
    /// A SYN is to be sent.
    pub(super) syn_due: bool,
    /// A SYN had to be sent again.
    pub(super) syn_retransmitted: bool,
    /// The segment at `una` is to be sent again, or the phase says what is.
    pub(super) resend_due: bool,
    /// A window probe is to be sent.
    pub(super) probe_due: bool,
    /// A probe's byte, beyond `max`, may be acknowledged.
    pub(super) probe_outstanding: bool,
    /// A partial ACK was seen in this fast recovery.
    pub(super) partial_seen: bool,
    /// The congestion window was what held the sender back.
    pub(super) cwnd_limited: bool,
    /// Pacing is what holds the next segment back.
    pub(super) paced: bool,
    /// The ECN feedback that was negotiated.
    pub(super) ecn: EcnMode,
    pub(super) ace: Counters,
    /// The peer is to be told that the window was reduced.
    pub(super) cwr_due: bool,
    /// Both ends offered to scale windows.
    pub(super) window_scaling: bool,
    /// A loss probe is to be sent, RFC 8985 section 7.3.
    pub(super) loss_probe_due: bool,
    /// Timestamps were negotiated.
    pub(super) timestamps: bool,
    /// TS.Recent of RFC 7323 section 4.3: the timestamp to echo.
    pub(super) ts_recent: u32,
}

/// Counters and state of a connection, for reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Stats {
    /// Segments sent again, SYNs and FINs included.
    pub retransmissions: u64,
    /// Times the retransmission timer went off.
    pub timeouts: u64,
    /// Times three duplicate ACKs started a fast retransmit.
    pub fast_retransmits: u64,
    /// Segments sent, ACKs included.
    pub segments_sent: u64,
    /// Segments received, whatever became of them.
    pub segments_received: u64,
    /// Congestion window [bytes].
    pub cwnd: u64,
    /// Slow start threshold [bytes].
    pub ssthresh: u64,
    /// The latest round trip that was measured, in whole ticks.
    pub rtt: Option<Duration>,
    /// Smoothed round trip, once measured.
    pub srtt: Option<Duration>,
    /// Retransmission timeout, as backed off.
    pub rto: Duration,
    /// Bytes sent and neither acknowledged nor SACKed nor thought lost; without SACK, not acknowledged. After going back,
    /// those sent since.
    pub in_flight: u64,
}

impl Connection {
    /// Opens actively: [`poll_transmit`](Self::poll_transmit) yields the SYN.
    #[must_use]
    pub fn connect(cfg: &Config, now: Instant) -> Self {
        let mut connection = Self::new(cfg, State::SynSent);
        connection.syn_due = true;
        connection.data_sent_at = now;
        connection
    }

    /// Opens passively: waits for a SYN.
    #[must_use]
    pub fn listen(cfg: &Config) -> Self {
        Self::new(cfg, State::Listen)
    }

    fn new(cfg: &Config, state: State) -> Self {
        Self {
            una: 0,
            nxt: 0,
            max: 0,
            written: 1,
            edge: 0,
            window: Window { cwnd: cfg.iw(), ssthresh: cfg.initial_ssthresh },
            algorithm: congestion::State::new(cfg.algorithm),
            // RFC 6582 section 3.2 begins with the initial sequence number, which would bar the first segment
            // of data from being resent before a timeout. Nothing was lost before it, so the bar lies below.
            recover: 0,
            reduced: 0,
            timer_at: Instant::FAR_FUTURE,
            rto: Rto::new(cfg),
            rx: Receiver::new(cfg),
            sack: None,
            delivery: Delivery::new(cfg),
            data_sent_at: Instant::ZERO,
            pace_at: Instant::ZERO,
            wl1: 0,
            segments_sent: 0,
            segments_received: 0,
            largest_window: 0,
            duplicate_acks: 0,
            unanswered: 0,
            retransmissions: 0,
            timeouts: 0,
            fast_retransmits: 0,
            state,
            phase: Phase::Open,
            timer: Timer::Off,
            reset: None,
            probes: 0,
            burst: 0,
            closing: false,
            failed: false,
            syn_due: false,
            syn_retransmitted: false,
            resend_due: false,
            probe_due: false,
            probe_outstanding: false,
            partial_seen: false,
            cwnd_limited: false,
            paced: false,
            ecn: EcnMode::Off,
            ace: Counters::new(),
            cwr_due: false,
            window_scaling: false,
            loss_probe_due: false,
            timestamps: false,
            ts_recent: 0,
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout): the earliest of delayed ACK and what else there is time for:
    /// retransmission, or in its place window probe, loss probe or reordering.
    #[inline]
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let at = self.timer_at.min(self.rx.ack_at);
        (at != Instant::FAR_FUTURE).then_some(at)
    }

    /// When to call [`poll_transmit`](Self::poll_transmit) for the next data segment, where pacing alone
    /// holds it back. It holds until the next call of `poll_transmit`.
    #[inline]
    #[must_use]
    pub fn paced_until(&self) -> Option<Instant> {
        self.paced.then_some(self.pace_at)
    }

    /// The application hands over `bytes`. Nothing after a [`close`](Self::close), nor beyond `u64::MAX / 4`
    /// in all.
    #[inline]
    pub fn write(&mut self, bytes: u64) {
        if !self.closing && self.state != State::Closed {
            self.written = self.written.saturating_add(bytes).min(MAX_WRITTEN);
        }
    }

    /// The application has written all it will: a FIN follows the last byte. The other direction stays open.
    ///
    /// Before the handshake is over it waits, with what was written, where RFC 9293 section 3.10.4 would give
    /// up a connection in SYN-SENT.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// Gives the connection up, RFC 9293 section 3.10.5: a RST goes out where the peer knows of it.
    ///
    /// The connection then [is closed](Self::is_closed), but did not [fail](Self::failed).
    pub fn abort(&mut self) {
        let known = !matches!(self.state, State::Closed | State::Listen | State::SynSent | State::TimeWait);
        self.terminate();
        if known {
            self.reset = Some(Reset::Abort);
        }
    }

    /// In-order bytes waiting for the application [bytes].
    #[inline]
    #[must_use]
    pub fn readable(&self) -> u64 {
        self.rx.unread
    }

    /// The application takes `n` bytes, or as many as there are.
    #[inline]
    pub fn read(&mut self, n: u64) {
        self.rx.read(n);
    }

    /// Limits the receive buffer to `bytes` from now on, below the configured one.
    ///
    /// The window advertised is what is left of it after the bytes unread. Less of it never takes back a
    /// right edge that was advertised; more is announced as soon as it is worth a segment (RFC 9293 sections
    /// 3.8.6, 3.8.6.2.2).
    #[inline]
    pub fn limit_receive_buffer(&mut self, bytes: u32) {
        self.rx.set_limit(bytes);
    }

    /// Whether the handshake is done and the connection not closed.
    #[inline]
    #[must_use]
    pub fn is_established(&self) -> bool {
        self.state.is_synchronized()
    }

    /// Whether the peer's FIN arrived, and all before it.
    #[inline]
    #[must_use]
    pub fn peer_closed(&self) -> bool {
        self.rx.finished
    }

    /// Whether there is nothing left to send or wait for: both directions are done and acknowledged, or the
    /// connection failed or was aborted.
    #[inline]
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed && self.reset != Some(Reset::Abort)
    }

    /// Whether both directions are done and only a lost ACK of the peer's FIN could bring it back. There is
    /// no 2 MSL timer: the host frees the connection.
    #[inline]
    #[must_use]
    pub fn in_time_wait(&self) -> bool {
        self.state == State::TimeWait
    }

    /// Whether the peer reset the connection, or left too many retransmissions unanswered.
    #[inline]
    #[must_use]
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// Payload written and not acknowledged [bytes].
    #[inline]
    #[must_use]
    pub fn send_queue(&self) -> u64 {
        self.written.saturating_sub(self.una.max(1))
    }

    /// Payload the peer acknowledged [bytes].
    #[inline]
    #[must_use]
    pub fn acked(&self) -> u64 {
        self.una.min(self.written).saturating_sub(1)
    }

    /// Payload received in order [bytes], read or not.
    #[inline]
    #[must_use]
    pub fn received(&self) -> u64 {
        self.rx.received()
    }

    /// Counters and state.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            retransmissions: self.retransmissions.into(),
            timeouts: self.timeouts.into(),
            fast_retransmits: self.fast_retransmits.into(),
            segments_sent: self.segments_sent,
            segments_received: self.segments_received,
            cwnd: self.window.cwnd,
            ssthresh: self.window.ssthresh,
            rtt: self.rto.latest(),
            srtt: self.rto.srtt(),
            rto: self.rto.interval(),
            in_flight: self.in_network(),
        }
    }

    /// Bytes sent and not acknowledged; after going back, those sent since.
    #[inline]
    pub(super) fn flight(&self) -> u64 {
        self.nxt - self.una
    }

    /// One past the last position there is to send: data, and a FIN.
    #[inline]
    pub(super) fn stream_end(&self) -> u64 {
        self.written + u64::from(self.closing)
    }

    /// Ends the connection, with nothing more to do.
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

    /// Ends the connection because of the peer.
    pub(super) fn fail(&mut self) {
        self.terminate();
        self.failed = true;
    }

    #[inline]
    pub(super) fn set_timer(&mut self, timer: Timer, at: Instant) {
        self.timer = timer;
        self.timer_at = at;
    }

    #[inline]
    pub(super) fn stop_timer(&mut self) {
        self.set_timer(Timer::Off, Instant::FAR_FUTURE);
    }

    #[inline]
    pub(super) fn count_sent(&mut self) {
        self.segments_sent += 1;
    }
}
