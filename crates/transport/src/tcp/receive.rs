//! The receiving half: reassembly, the window advertised, and when to acknowledge.

use bentpipe_units::{Duration, Instant};

use super::Config;
use super::Ranges;

/// State of the receiving half.
#[derive(Clone, Debug)]
pub(super) struct Receiver {
    /// RCV.NXT: the next position expected.
    pub(super) next: u64,
    /// Right edge of the window advertised: RCV.NXT + RCV.WND.
    pub(super) edge: u64,
    /// In-order bytes waiting for the application.
    pub(super) unread: u64,
    /// RCV.NXT in the last segment sent.
    last_ack_sent: u64,
    /// When a delayed ACK must go.
    pub(super) ack_at: Instant,
    /// Position of the peer's FIN.
    pub(super) fin_at: u64,
    /// What arrived ahead of `next`.
    pub(super) ahead: Ranges,
    /// Where the latest of that lies.
    pub(super) newest: u64,
    /// How much of the buffer is offered by now [bytes].
    offered: u32,
    /// The host's limit on the buffer [bytes].
    limit: u32,
    /// An ACK is due.
    pub(super) ack_now: bool,
    /// The application made room since the window was last advertised.
    may_update_window: bool,
    /// The peer's FIN arrived, and all before it.
    pub(super) finished: bool,
    /// ACKs carry the echo of a congestion mark.
    pub(super) echo: bool,
    /// Windows are multiples of `1 << shift`, RFC 7323 section 2; `UNSCALED`: they are what they are.
    shift: u8,
}

/// No shift: windows have no unit, and 32 bits.
const UNSCALED: u8 = u8::MAX;

/// The largest window in units, for the field has 16 bits.
const MAX_FIELD: u64 = 65_535;

impl Receiver {
    pub(super) fn new(cfg: &Config) -> Self {
        Self {
            next: 0,
            edge: 0,
            unread: 0,
            last_ack_sent: 0,
            ack_at: Instant::FAR_FUTURE,
            fin_at: u64::MAX,
            ahead: Ranges::new(),
            newest: 0,
            offered: cfg.initial_receive_window.unwrap_or(u32::MAX),
            limit: u32::MAX,
            ack_now: false,
            may_update_window: false,
            finished: false,
            echo: false,
            // RFC 7323 section 2.3: no scale but where both ends offered one.
            shift: cfg.shift().map_or(UNSCALED, |_| 0),
        }
    }

    #[inline]
    pub(super) fn read(&mut self, n: u64) {
        self.unread = self.unread.saturating_sub(n);
        self.may_update_window = true;
    }

    #[inline]
    pub(super) fn set_limit(&mut self, bytes: u32) {
        self.limit = bytes;
        self.may_update_window = true;
    }

    /// Payload received in order [bytes].
    #[inline]
    pub(super) fn received(&self) -> u64 {
        self.next.saturating_sub(1 + u64::from(self.finished))
    }

    /// RCV.NXT in the last segment sent, Last.ACK.sent of RFC 7323 section 4.3.
    #[inline]
    pub(super) fn last_ack_sent(&self) -> u64 {
        self.last_ack_sent
    }

    /// Both ends offered to scale windows.
    pub(super) fn set_scale(&mut self, cfg: &Config) {
        self.shift = cfg.shift().unwrap_or(UNSCALED);
    }

    /// The first part of `len` bytes from `seq` on that arrived before, RFC 2883 section 4.
    pub(super) fn duplicate_part(&self, seq: u64, len: u32) -> Option<(u64, u64)> {
        let end = seq.saturating_add(u64::from(len));
        if seq < self.next {
            return Some((seq, end.min(self.next))).filter(|part| part.0 < part.1);
        }
        let (start, _) = self.ahead.gap(seq, end);
        let from = if start > seq { seq } else { self.ahead.gap(seq, end).1 };
        self.ahead.containing(from).map(|range| (from, range.1.min(end))).filter(|part| part.0 < part.1)
    }

    /// No ACK is to be sent any more.
    pub(super) fn stop(&mut self) {
        self.ack_at = Instant::FAR_FUTURE;
        self.ack_now = false;
        self.may_update_window = false;
    }

    /// The peer's SYN arrived.
    pub(super) fn synchronize(&mut self) {
        self.next = 1;
        self.last_ack_sent = 1;
        self.edge = self.edge.max(1);
    }

    /// Takes in `len` bytes from `seq` on, and a FIN behind them where `fin`. Whether the peer has finished
    /// with this segment.
    #[inline]
    pub(super) fn on_data(&mut self, cfg: &Config, now: Instant, seq: u64, len: u32, fin: bool) -> bool {
        let end = seq.saturating_add(u64::from(len));
        // RFC 9293 section 3.10.7.4: what lies outside the window is trimmed off, a FIN as well.
        let end_kept = end.min(self.edge).min(self.fin_at);
        if fin && end < self.edge && end >= self.next && end < self.fin_at {
            self.fin_at = end;
        }
        if end_kept <= self.next.max(seq) || self.finished {
            if self.fin_at == self.next && !self.finished {
                return self.finish();
            }
            // RFC 9293 section 3.10.7.4: an unacceptable segment is answered with an ACK.
            self.ack_now = true;
            return false;
        }
        let grows = self.offered < cfg.receive_window;
        if grows {
            self.offered = self.offered.saturating_add(2 * len.min(cfg.mss));
        }
        if seq > self.next {
            // RFC 5681 section 4.2: out-of-order data is acknowledged at once.
            self.ahead.insert(seq, end_kept);
            self.newest = seq;
            self.ack_now = true;
            return false;
        }
        let before = self.next;
        self.next = end_kept;
        let fills = !self.ahead.is_empty();
        if fills {
            self.next = self.ahead.take_from(self.next);
        }
        self.unread += self.next - before;
        if self.fin_at == self.next {
            return self.finish();
        }
        // RFC 5681 section 4.2: an ACK at once for a segment that fills all or part of a gap, and for every
        // second full segment; for others within the time allowed.
        match cfg.delayed_ack {
            Some(delay)
                if !fills && !grows && end_kept == end && self.next - self.last_ack_sent < 2 * cfg.smss() =>
            {
                self.delay_ack(now, delay)
            }
            _ => self.ack_now = true,
        }
        false
    }

    fn delay_ack(&mut self, now: Instant, delay: Duration) {
        if self.ack_at == Instant::FAR_FUTURE {
            self.ack_at = now + delay;
        }
    }

    /// The FIN is next.
    fn finish(&mut self) -> bool {
        self.next += 1;
        self.finished = true;
        self.ack_now = true;
        self.ahead = Ranges::new();
        true
    }

    /// The receive buffer [bytes].
    #[inline]
    fn buffer(&self, cfg: &Config) -> u64 {
        u64::from(cfg.receive_window.min(self.limit).min(self.offered))
    }

    /// `window` in whole units, as far as the field goes.
    #[inline]
    fn scaled(&self, window: u64) -> u64 {
        match self.shift {
            UNSCALED => window.min(u64::from(u32::MAX)),
            shift => (window >> shift).min(MAX_FIELD) << shift,
        }
    }

    /// The window that the peer knows of.
    ///
    /// RFC 7323 section 2.4: what does not fill a unit is not known_window, so that a right edge may seem to move back
    /// by less than one. What was known_window stays in the window, and data in it is accepted.
    #[inline]
    fn known_window(&self) -> u64 {
        self.scaled(self.edge - self.next)
    }

    /// How far the right edge that the peer knows of could move, where that is worth it.
    #[inline]
    fn edge_gain(&self, cfg: &Config) -> u64 {
        let buffer = self.buffer(cfg);
        let mut window = self.scaled(buffer.saturating_sub(self.unread));
        if window == 0 && self.unread == 0 && buffer > 0 {
            // A buffer of less than a unit counts as one, for a window that never opens is worth nothing.
            window = 1 << self.shift;
        }
        let gain = window.saturating_sub(self.known_window());
        // RFC 9293 section 3.8.6.2.2: the edge stays until it can move by min(RCV.BUFF / 2, SMSS).
        if gain >= (buffer / 2).min(cfg.smss()) { gain } else { 0 }
    }

    /// The window a SYN advertises, which the peer reckons from its first byte of data.
    pub(super) fn first_window(&mut self, cfg: &Config) -> u32 {
        // RFC 7323 section 2.2: a SYN's window is not scaled.
        let most = if self.shift == UNSCALED { u64::from(u32::MAX) } else { MAX_FIELD };
        self.edge = self.edge.max(1 + self.buffer(cfg).min(most));
        self.last_ack_sent = self.next;
        self.stop();
        (self.edge - 1).min(most) as u32
    }

    /// Whether the window must be announced although nothing else is to be sent.
    #[inline]
    pub(super) fn update_due(&mut self, cfg: &Config) -> bool {
        if !self.may_update_window {
            return false;
        }
        self.may_update_window = false;
        // The peer learns of more room from the ACKs of what is under way. Only where the window it knows of
        // has shrunk to half of what there is, or to nothing, could it be waiting.
        let known = self.known_window();
        let gain = self.edge_gain(cfg);
        !self.finished && gain > 0 && gain >= known
    }

    /// An acknowledgement leaves: its window.
    #[inline]
    pub(super) fn on_ack_sent(&mut self, cfg: &Config, update: bool) -> u32 {
        // A duplicate ACK leaves the edge alone, for RFC 5681 section 2 has the peer count it only if the
        // window is what it was.
        let duplicate = self.next == self.last_ack_sent && !self.ahead.is_empty() && !update;
        if !duplicate {
            let gain = self.edge_gain(cfg);
            if gain > 0 {
                self.edge = self.edge.max(self.next + self.known_window() + gain);
            }
            self.may_update_window = false;
        }
        self.last_ack_sent = self.next;
        self.ack_now = false;
        self.ack_at = Instant::FAR_FUTURE;
        self.known_window() as u32
    }
}
