//! Receive half: reassembly, the advertised window, and when to acknowledge.

use std::num::NonZeroU64;

use bentpipe_units::{Duration, Instant};

use super::Config;
use super::Ranges;

/// State of the receive half.
#[derive(Clone, Debug, Default)]
pub(super) struct Receiver {
    /// RCV.NXT: next position expected.
    pub(super) next: u64,
    /// Right edge of the advertised window: RCV.NXT + RCV.WND.
    pub(super) edge: u64,
    /// In-order data waiting for the application [bytes].
    pub(super) unread: u64,
    /// RCV.NXT in the last segment sent; Last.ACK.sent of RFC 7323 section 4.3.
    last_ack_sent: u64,
    /// Latest time of a delayed ACK; `None` if none is due.
    pub(super) ack_at: Option<Instant>,
    /// Position of the peer's FIN; `None` if unknown.
    pub(super) fin_at: Option<NonZeroU64>,
    /// Data received out of order, above `next`.
    pub(super) ahead: Ranges,
    /// Position of the latest out-of-order data.
    pub(super) newest: u64,
    /// Part of the buffer offered so far [bytes].
    offered: u32,
    /// The host's limit on the buffer [bytes].
    limit: u32,
    /// An ACK is due.
    pub(super) ack_now: bool,
    /// The application has read data or changed the limit since the window was last advertised.
    may_update_window: bool,
    /// The peer's FIN and all data before it have arrived.
    pub(super) finished: bool,
    /// ACKs carry ECN-Echo.
    pub(super) echo: bool,
    /// Windows are multiples of `1 << shift`, RFC 7323 section 2; `None` without scaling: any number of 32 bits.
    shift: Option<u8>,
}

/// Largest value of the 16-bit window field.
const MAX_FIELD: u64 = 65_535;

impl Receiver {
    pub(super) fn new(cfg: &Config) -> Self {
        Self {
            offered: cfg.initial_receive_window.unwrap_or(u32::MAX),
            limit: u32::MAX,
            // RFC 7323 section 2.3: no scaling unless both ends offered it.
            shift: cfg.shift().map(|_| 0),
            ..Self::default()
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

    /// Payload received in order, read or not [bytes].
    #[inline]
    pub(super) fn received(&self) -> u64 {
        self.next.saturating_sub(1 + u64::from(self.finished))
    }

    /// Last.ACK.sent of RFC 7323 section 4.3.
    #[inline]
    pub(super) fn last_ack_sent(&self) -> u64 {
        self.last_ack_sent
    }

    /// Enables window scaling, which both ends offered.
    pub(super) fn set_scale(&mut self, cfg: &Config) {
        self.shift = cfg.shift();
    }

    /// The first part of the `len` bytes from `seq` on that has arrived before, RFC 2883 section 4.
    pub(super) fn duplicate_part(&self, seq: u64, len: u32) -> Option<(u64, u64)> {
        let end = seq.saturating_add(u64::from(len));
        if seq < self.next {
            return Some((seq, end.min(self.next))).filter(|part| part.0 < part.1);
        }
        let (start, _) = self.ahead.gap(seq, end);
        let from = if start > seq { seq } else { self.ahead.gap(seq, end).1 };
        self.ahead.containing(from).map(|range| (from, range.1.min(end))).filter(|part| part.0 < part.1)
    }

    /// Cancels all pending ACKs.
    pub(super) fn stop(&mut self) {
        self.ack_at = None;
        self.ack_now = false;
        self.may_update_window = false;
    }

    /// Processes the peer's SYN.
    pub(super) fn synchronize(&mut self) {
        self.next = 1;
        self.last_ack_sent = 1;
        self.edge = self.edge.max(1);
    }

    /// Processes `len` bytes from `seq` on, followed by a FIN if `fin`. Returns true if everything up to the peer's FIN
    /// has arrived with this segment.
    #[inline]
    pub(super) fn on_data(&mut self, cfg: &Config, now: Instant, seq: u64, len: u32, fin: bool) -> bool {
        let end = seq.saturating_add(u64::from(len));
        // RFC 9293 section 3.10.7.4: what lies outside the window is trimmed, including a FIN.
        let fin_at = self.fin_at.map_or(u64::MAX, NonZeroU64::get);
        let end_kept = end.min(self.edge).min(fin_at);
        if fin && end < self.edge && end >= self.next && end < fin_at {
            self.fin_at = NonZeroU64::new(end);
        }
        if end_kept <= self.next.max(seq) || self.finished {
            if self.fin_is_next() && !self.finished {
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
        if self.fin_is_next() {
            return self.finish();
        }
        // RFC 5681 section 4.2: an immediate ACK for a segment that fills all or part of a gap and for every second
        // full segment; a delayed ACK for others.
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

    /// Returns true if all data before the peer's FIN has arrived.
    #[inline]
    fn fin_is_next(&self) -> bool {
        self.fin_at.is_some_and(|at| at.get() == self.next)
    }

    fn delay_ack(&mut self, now: Instant, delay: Duration) {
        self.ack_at.get_or_insert(now + delay);
    }

    /// Processes the FIN, which is next in order.
    fn finish(&mut self) -> bool {
        self.next += 1;
        self.finished = true;
        self.ack_now = true;
        self.ahead = Ranges::new();
        true
    }

    /// Size of the receive buffer [bytes].
    #[inline]
    fn buffer(&self, cfg: &Config) -> u64 {
        u64::from(cfg.receive_window.min(self.limit).min(self.offered))
    }

    /// `window` rounded down to whole units, up to the largest value of the field.
    #[inline]
    fn scaled(&self, window: u64) -> u64 {
        match self.shift {
            None => window.min(u64::from(u32::MAX)),
            Some(shift) => (window >> shift).min(MAX_FIELD) << shift,
        }
    }

    /// The window known to the peer [bytes].
    ///
    /// RFC 7323 section 2.4: the field leaves out a fraction of a unit, so the right edge may seem to move back by less
    /// than one unit. The edge advertised before stays valid, and data below it is accepted.
    #[inline]
    fn known_window(&self) -> u64 {
        self.scaled(self.edge - self.next)
    }

    /// Distance by which the right edge known to the peer can advance; zero if not worth announcing [bytes].
    #[inline]
    fn edge_gain(&self, cfg: &Config) -> u64 {
        let buffer = self.buffer(cfg);
        let mut window = self.scaled(buffer.saturating_sub(self.unread));
        if window == 0 && self.unread == 0 && buffer > 0 {
            // A buffer of less than one unit counts as one, or the window would never open.
            window = 1 << self.shift.unwrap_or(0);
        }
        let gain = window.saturating_sub(self.known_window());
        // RFC 9293 section 3.8.6.2.2: the edge stays until it can advance by min(RCV.BUFF / 2, SMSS).
        if gain >= (buffer / 2).min(cfg.smss()) { gain } else { 0 }
    }

    /// The window to advertise in a SYN, which the peer counts from the first data byte.
    pub(super) fn first_window(&mut self, cfg: &Config) -> u32 {
        // RFC 7323 section 2.2: a SYN's window is not scaled.
        let max_window = if self.shift.is_none() { u64::from(u32::MAX) } else { MAX_FIELD };
        self.edge = self.edge.max(1 + self.buffer(cfg).min(max_window));
        self.last_ack_sent = self.next;
        self.stop();
        (self.edge - 1).min(max_window) as u32
    }

    /// True if [`Self::update_due`] may return true.
    #[inline]
    pub(super) fn may_update_window(&self) -> bool {
        self.may_update_window
    }

    /// Returns true if a window update must be sent on its own.
    #[inline]
    pub(super) fn update_due(&mut self, cfg: &Config) -> bool {
        if !self.may_update_window {
            return false;
        }
        self.may_update_window = false;
        // ACKs of data in flight announce more room too. The peer can be blocked only if its window has shrunk to half
        // of the available one, or to zero.
        let known = self.known_window();
        let gain = self.edge_gain(cfg);
        !self.finished && gain > 0 && gain >= known
    }

    /// Records that an ACK is sent and returns its window [bytes].
    #[inline]
    pub(super) fn on_ack_sent(&mut self, cfg: &Config, update: bool) -> u32 {
        // A duplicate ACK keeps the edge, because by RFC 5681 section 2 the peer counts it only if the window is
        // unchanged.
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
        self.ack_at = None;
        self.known_window() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 2883 section 4, with data up to 2001, from 3001 to 4001 and from 5001 to 6001: the first part of a segment that
    /// repeats data, below the ACK or above it. A FIN alone repeats none.
    #[test]
    fn a_duplicate_is_the_first_part_of_a_segment_that_arrived_before() {
        let mut rx = Receiver { next: 2001, ..Receiver::default() };
        rx.ahead.insert(3001, 4001);
        rx.ahead.insert(5001, 6001);
        for (seq, len, duplicate) in [
            (1001, 500, Some((1001, 1501))),
            (1001, 3000, Some((1001, 2001))),
            (1001, 0, None),
            (2001, 1000, None),
            (2001, 1001, Some((3001, 3002))),
            (2001, 5000, Some((3001, 4001))),
            (3501, 2000, Some((3501, 4001))),
            (3001, 0, None),
            (4001, 1000, None),
            (4001, 5000, Some((5001, 6001))),
            (6001, 1000, None),
        ] {
            assert_eq!(rx.duplicate_part(seq, len), duplicate, "{len} bytes from {seq}");
        }
    }
}
