//! Both directions of a stream, and its pending events.

use bentpipe_units::Instant;

use super::recovery::Frame;
use super::{Data, Event, StreamId};
use crate::ranges::Ranges;

/// Phase of a stream id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum Phase {
    /// No stream.
    #[default]
    Idle,
    Live,
    /// Reset by this end, waiting for the acknowledgement of the reset.
    Resetting,
    /// Closed; forgotten once the host has taken the last event.
    Closed,
}

/// Progress of the FIN in the sending direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Fin {
    #[default]
    Unset,
    Wanted,
    Sent,
    Acked,
}

/// Queues of the endpoint that contain this stream's id.
///
/// They outlive the stream: an id left in a queue then stands for the next stream with this id, so no queue needs to be
/// searched and none contains an id twice.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Queued {
    pub(super) ready: bool,
    pub(super) events: bool,
    /// Number of further acknowledgements that carry the window; the id is in their queue while it is positive.
    pub(super) window_updates: u8,
    pub(super) blocked: bool,
}

/// The stream of an id. Slots are reused; the generation counts the streams.
#[derive(Clone, Debug, Default)]
pub(super) struct Stream {
    pub(super) phase: Phase,
    pub(super) generation: u32,
    pub(super) queued: Queued,

    /// Data written by the host, sent, and acknowledged [bytes].
    pub(super) written: u64,
    pub(super) sent: u64,
    pub(super) acked: u64,
    /// Offset up to which the peer allows sending [bytes].
    pub(super) limit: u64,
    pub(super) open_wanted: bool,
    pub(super) fin: Fin,
    pub(super) reset_wanted: bool,
    /// A window probe is due; the number of probes since the window last opened; the time of the next one; the stream's
    /// offset when the interval began.
    pub(super) probe_wanted: bool,
    pub(super) probes: u32,
    pub(super) probe_at: Instant,
    pub(super) probe_from: Option<u64>,

    /// Next byte expected, the offset of the end if known, and out-of-order data.
    pub(super) next: u64,
    pub(super) end: Option<u64>,
    finished: bool,
    pub(super) ahead: Ranges,
    /// Data consumed by the host, and the offset last allowed to the peer [bytes].
    pub(super) consumed: u64,
    pub(super) advertised: u64,

    pub(super) pending: PendingEvents,
}

/// Events not yet reported to the host.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PendingEvents {
    opened: bool,
    readable: u64,
    acked: u64,
    finished: bool,
    reset: bool,
}

impl Stream {
    /// Starts a new stream with this id.
    pub(super) fn start(&mut self, generation: u32, window: u64, by_us: bool) {
        let (queued, mut ahead) = (self.queued, std::mem::take(&mut self.ahead));
        ahead.clear();
        *self = Self {
            phase: Phase::Live,
            generation,
            queued,
            ahead,
            limit: window,
            advertised: window,
            open_wanted: by_us,
            pending: PendingEvents { opened: !by_us, ..PendingEvents::default() },
            ..Self::default()
        };
    }

    /// Content of the next packet; `None` if nothing may be sent.
    pub(super) fn next_frame(&self, id: StreamId, max_payload: u32) -> Option<Frame> {
        let frame = Frame {
            offset: self.sent,
            stream: id,
            generation: self.generation,
            len: 0,
            open: self.open_wanted,
            fin: false,
            reset: false,
        };
        match self.phase {
            Phase::Resetting => self.reset_wanted.then_some(Frame { reset: true, ..frame }),
            Phase::Live => {
                let pending = self.written - self.sent;
                let allowed = pending.min(self.limit.saturating_sub(self.sent));
                let len = u32::try_from(allowed).unwrap_or(u32::MAX).min(max_payload);
                let fin = self.fin == Fin::Wanted && u64::from(len) == pending;
                let frame = Frame { len, fin, ..frame };
                (frame.must_arrive() || self.probe_wanted).then_some(frame)
            }
            Phase::Idle | Phase::Closed => None,
        }
    }

    /// Records that a frame of [`Self::next_frame`] was sent.
    pub(super) fn on_sent(&mut self, frame: &Frame) {
        self.sent += u64::from(frame.len);
        self.open_wanted = false;
        self.probe_wanted = false;
        self.reset_wanted &= !frame.reset;
        if frame.fin {
            self.fin = Fin::Sent;
        }
    }

    /// True if data waits for the peer to open the window.
    pub(super) fn is_blocked(&self) -> bool {
        self.phase == Phase::Live && self.written > self.sent && self.sent >= self.limit
    }

    /// True if a lost frame of this stream must still reach the peer.
    pub(super) fn needs_retransmission(&self, frame: &Frame) -> bool {
        self.generation == frame.generation
            && match self.phase {
                Phase::Live => true,
                Phase::Resetting => frame.reset,
                Phase::Idle | Phase::Closed => false,
            }
    }

    /// Processes the acknowledgement of a frame of this generation.
    pub(super) fn on_acked(&mut self, frame: &Frame) {
        match self.phase {
            Phase::Live => {
                self.acked += u64::from(frame.len);
                self.pending.acked += u64::from(frame.len);
                if frame.fin {
                    self.fin = Fin::Acked;
                }
                self.close_if_done();
            }
            Phase::Resetting if frame.reset => self.phase = Phase::Closed,
            _ => {}
        }
    }

    /// Processes a packet from the peer. Returns true if it contained anything new.
    pub(super) fn on_data(&mut self, data: &Data) -> bool {
        if data.reset && self.phase != Phase::Closed {
            self.pending.reset = self.phase == Phase::Live;
            self.phase = Phase::Closed;
            return true;
        }
        if self.phase != Phase::Live {
            return false;
        }
        let start = data.offset.max(self.next);
        let mut end = data.offset.saturating_add(u64::from(data.len));
        if let Some(last) = self.end {
            end = end.min(last);
        }
        let mut any_new = false;
        if start <= self.next && self.ahead.is_empty() {
            // The common case: in order.
            if end > start {
                self.advance(end);
                any_new = true;
            }
        } else {
            any_new = self.ahead.insert(start, end) > 0;
            let next = self.ahead.take_from(self.next);
            self.advance(next);
        }
        if data.fin && self.end.is_none() {
            self.end = Some(end.max(self.next));
            any_new = true;
        }
        if self.end == Some(self.next) && !self.finished {
            self.finished = true;
            self.pending.finished = true;
            self.close_if_done();
        }
        any_new
    }

    fn advance(&mut self, end: u64) {
        self.pending.readable += end - self.next;
        self.next = end;
    }

    fn close_if_done(&mut self) {
        if self.fin == Fin::Acked && self.acked == self.written && self.finished {
            self.phase = Phase::Closed;
        }
    }

    /// Resets the stream on behalf of the host and drops all pending events except `Opened`.
    pub(super) fn abandon(&mut self) {
        self.phase = Phase::Resetting;
        self.reset_wanted = true;
        self.pending = PendingEvents { opened: self.pending.opened, ..PendingEvents::default() };
    }

    /// True if the host has an event to take.
    pub(super) fn has_event(&self) -> bool {
        let PendingEvents { opened, readable, acked, finished, reset } = self.pending;
        opened || readable > 0 || acked > 0 || finished || reset || self.phase == Phase::Closed
    }

    /// Returns the next event, in the order in which they happen to a stream.
    pub(super) fn next_event(&mut self, stream: StreamId) -> Option<Event> {
        let pending = &mut self.pending;
        if std::mem::take(&mut pending.opened) {
            return Some(Event::Opened { stream });
        }
        if pending.readable > 0 {
            return Some(Event::Readable { stream, bytes: std::mem::take(&mut pending.readable) });
        }
        if pending.acked > 0 {
            return Some(Event::Acked { stream, bytes: std::mem::take(&mut pending.acked) });
        }
        if std::mem::take(&mut pending.finished) {
            return Some(Event::Finished { stream });
        }
        if std::mem::take(&mut pending.reset) {
            return Some(Event::Reset { stream });
        }
        if self.phase == Phase::Closed {
            self.phase = Phase::Idle;
            return Some(Event::Closed { stream });
        }
        None
    }
}
