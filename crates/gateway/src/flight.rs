//! Congestion windows of senders, estimated from passing segments.
//!
//! The simulator knows the congestion window of a sender. On a live link no header carries it, but the data in flight
//! can be observed: the highest byte seen from the sender, less the last byte acknowledged to it. That never exceeds
//! the window (RFC 5681, section 3.1) and equals it while the window alone limits the sender. It is less
//!
//! - if the sender has nothing to send, or its receiver's window is smaller;
//! - by the data on the way to this point, and by the data covered by acknowledgements on the way back: the more so the
//!   farther the sender is from here compared with the receiver. If the connection ends here, as at a PEP that
//!   acknowledges at once, little more than the newest segment remains.

use bentpipe_queue::{FlowId, FlowTable};
use bentpipe_units::{Duration, Instant};

/// Time after which a silent connection is forgotten.
const SILENCE: Duration = Duration::from_secs(60);
/// Connections remembered at most: segments with invented ports take no more memory than these.
const LIMIT: usize = 1 << 17;

/// Data in flight of the senders of TCP connections, one direction of each.
#[derive(Clone, Debug, Default)]
pub struct InFlight {
    flows: FlowTable<Span>,
}

/// Data in flight of a connection, in sequence numbers.
#[derive(Clone, Copy, Debug)]
struct Span {
    /// First number not acknowledged.
    acked: u32,
    /// Number after the highest seen.
    end: u32,
    heard: Instant,
}

impl InFlight {
    /// Processes a segment from `seq` with `len` sequence numbers: its bytes, and one each for SYN and FIN. Returns the
    /// data in flight of its sender, including the segment [bytes].
    ///
    /// An unknown connection is remembered from its first segment with data, SYN or FIN on. Beyond the limit of
    /// connections a segment is the only data known to be in flight.
    pub fn segment(&mut self, flow: FlowId, seq: u32, len: u32, syn: bool, now: Instant) -> u32 {
        self.flows.sweep(2, |_, span| now - span.heard <= SILENCE);
        if (len == 0 || self.flows.len() >= LIMIT) && self.flows.get(flow).is_none() {
            return len;
        }
        let end = seq.wrapping_add(len);
        let fresh = Span { acked: seq, end, heard: now };
        let span = self.flows.get_or_insert_with(flow, || fresh);
        if syn && span.acked != seq {
            // A new connection with the same number.
            *span = fresh;
        }
        if is_after(end, span.end) {
            span.end = end;
        }
        span.heard = now;
        span.end.wrapping_sub(span.acked)
    }

    /// Processes an acknowledgement of everything before `ack` on its way to the flow's sender.
    pub fn acknowledged(&mut self, flow: FlowId, ack: u32, now: Instant) {
        let Some(span) = self.flows.get_mut(flow) else { return };
        span.heard = now;
        if is_after(ack, span.acked) {
            span.acked = ack;
            if is_after(ack, span.end) {
                // Segments took another path.
                span.end = ack;
            }
        }
    }

    /// First sequence number of a connection that is not acknowledged; `None` if the connection is unknown.
    #[must_use]
    pub fn unacknowledged(&self, flow: FlowId) -> Option<u32> {
        self.flows.get(flow).map(|span| span.acked)
    }

    /// Forgets a connection.
    pub fn forget(&mut self, flow: FlowId) {
        self.flows.remove(flow);
    }

    /// Number of connections remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// True if no connection is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }
}

/// True if sequence number `a` is after `b` (RFC 9293, section 3.4).
const fn is_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::ZERO;

    /// A sender that starts with ten segments and doubles: its SYN, an acknowledgement, 10 · 1000 B, an acknowledgement
    /// of two of them, four more, and the second of these again, which adds nothing. A late one adds nothing either.
    /// Numbers wrap after the third segment.
    #[test]
    fn in_flight_is_the_highest_sent_less_the_last_acknowledged() {
        let begin = 0_u32.wrapping_sub(3001);
        let at = |place: u32| begin.wrapping_add(place);
        let mut flight = InFlight::default();
        assert_eq!(flight.segment(FlowId(7), begin, 1, true, NOW), 1);
        flight.acknowledged(FlowId(7), at(1), NOW);
        for segment in 0..10 {
            assert_eq!(
                flight.segment(FlowId(7), at(1 + 1000 * segment), 1000, false, NOW),
                1000 * (segment + 1)
            );
        }
        flight.acknowledged(FlowId(7), at(2001), NOW);
        for segment in [10, 12, 13] {
            assert_eq!(
                flight.segment(FlowId(7), at(1 + 1000 * segment), 1000, false, NOW),
                1000 * (segment - 1)
            );
        }
        assert_eq!(flight.segment(FlowId(7), at(11_001), 1000, false, NOW), 12_000);
        assert_eq!(flight.segment(FlowId(7), at(11_001), 1000, false, NOW), 12_000);
        // Reordered old acknowledgements change nothing; a pure acknowledgement takes no numbers.
        flight.acknowledged(FlowId(7), at(14_001), NOW);
        flight.acknowledged(FlowId(7), at(1), NOW);
        assert_eq!(flight.segment(FlowId(7), at(14_001), 0, false, NOW), 0);
    }

    /// A connection first seen in the middle starts with that segment; acknowledgements of segments that took another
    /// path are accepted; a SYN with another number, or the end of the connection, starts again; a connection is
    /// forgotten after a silent minute.
    #[test]
    fn connections_are_added_and_forgotten() {
        let mut flight = InFlight::default();
        flight.acknowledged(FlowId(1), 500, NOW);
        assert!(flight.is_empty());
        assert_eq!(flight.unacknowledged(FlowId(1)), None);
        assert_eq!(flight.segment(FlowId(1), 70_000, 1000, false, NOW), 1000);
        assert!(!flight.is_empty());
        assert_eq!(flight.unacknowledged(FlowId(1)), Some(70_000));
        flight.acknowledged(FlowId(1), 80_000, NOW);
        assert_eq!(flight.unacknowledged(FlowId(1)), Some(80_000));
        assert_eq!(flight.segment(FlowId(1), 80_000, 500, false, NOW), 500);
        assert_eq!(flight.segment(FlowId(1), 9, 1, true, NOW), 1);
        assert_eq!(flight.segment(FlowId(1), 9, 1, true, NOW), 1);
        flight.forget(FlowId(1));
        assert_eq!((flight.len(), flight.segment(FlowId(1), 4_000_000_000, 100, false, NOW)), (0, 100));
        let later = NOW + Duration::from_secs(61);
        for _ in 0..100 {
            flight.segment(FlowId(2), 1, 100, false, later);
        }
        assert_eq!(flight.len(), 1);
    }

    /// Acknowledgements with invented ports are not remembered, and segments with invented ports only up to the limit;
    /// known connections are still followed, and others once the flood is forgotten.
    #[test]
    fn invented_ports_take_bounded_memory() {
        let mut flight = InFlight::default();
        let few = LIMIT as u32 + 1000;
        for flow in 0..few {
            assert_eq!(flight.segment(FlowId(flow), 1, 0, false, NOW), 0);
        }
        assert!(flight.is_empty());
        for flow in 0..few {
            assert_eq!(flight.segment(FlowId(flow), 1, 100, false, NOW), 100);
        }
        assert_eq!(flight.len(), LIMIT);
        assert_eq!(flight.segment(FlowId(3), 101, 100, false, NOW), 200);
        assert_eq!(flight.segment(FlowId(few), 101, 100, false, NOW), 100);
        let later = NOW + Duration::from_secs(61);
        // Each visits two slots of at most 2 · LIMIT, and again those from which a connection was removed.
        for _ in 0..2 * LIMIT {
            flight.segment(FlowId(few), 101, 100, false, later);
        }
        assert_eq!(flight.len(), 1);
        assert_eq!(flight.segment(FlowId(few), 201, 100, false, later), 200);
    }
}
