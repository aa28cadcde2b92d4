//! The congestion windows of senders, estimated from what passes.
//!
//! The simulator knows a sender's window exactly. On a live link it shows in no header; what a sender has under way
//! does: the highest byte that has come from it, less the last that has been acknowledged to it. That is never more
//! than its window (RFC 5681, section 3.1), and as much while the window is all that holds it back. It is less
//!
//! - where the sender has nothing more to send, or its receiver's window is smaller;
//! - by what is still on its way here, and by what acknowledgements are on their way back: the farther the
//!   sender is from here, compared with the receiver, the more. Where the connection ends here, as in a PEP that
//!   acknowledges at once, little more than the newest segment is left.

use bentpipe_queue::{FlowId, FlowTable};
use bentpipe_units::{Duration, Instant};

/// How long a connection is remembered of which nothing is heard.
const SILENCE: Duration = Duration::from_secs(60);

/// What the senders of TCP connections have under way, one direction of each.
#[derive(Clone, Debug, Default)]
pub struct InFlight {
    flows: FlowTable<Span>,
}

/// What is under way of one connection, in sequence numbers.
#[derive(Clone, Copy, Debug)]
struct Span {
    /// The first number that has not been acknowledged.
    acked: u32,
    /// One past the highest that has come.
    end: u32,
    heard: Instant,
}

impl InFlight {
    /// A segment has come that begins at `seq` and takes `len` sequence numbers: a byte each, and one each for SYN and
    /// FIN. Gives what its sender has under way, the segment counted [bytes].
    pub fn segment(&mut self, flow: FlowId, seq: u32, len: u32, syn: bool, now: Instant) -> u32 {
        self.flows.sweep(2, |_, span| now - span.heard <= SILENCE);
        let end = seq.wrapping_add(len);
        let fresh = Span { acked: seq, end, heard: now };
        let span = self.flows.get_or_insert_with(flow, || fresh);
        if syn && span.acked != seq {
            // Another connection under the same number.
            *span = fresh;
        }
        if is_after(end, span.end) {
            span.end = end;
        }
        span.heard = now;
        span.end.wrapping_sub(span.acked)
    }

    /// An acknowledgement of all before `ack` has passed on its way to the flow's sender.
    pub fn acknowledged(&mut self, flow: FlowId, ack: u32, now: Instant) {
        let Some(span) = self.flows.get_mut(flow) else { return };
        span.heard = now;
        if is_after(ack, span.acked) {
            span.acked = ack;
            if is_after(ack, span.end) {
                // Segments went another way.
                span.end = ack;
            }
        }
    }

    /// A connection is over.
    pub fn forget(&mut self, flow: FlowId) {
        self.flows.remove(flow);
    }

    /// How many connections are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }
}

/// Whether a sequence number comes after another (RFC 9293, section 3.4).
const fn is_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::ZERO;

    /// A sender that begins with ten segments and doubles: its SYN, an acknowledgement, 10 · 1000 B, an acknowledgement
    /// of two of them, four more, and the second of these again, which adds nothing. Then one comes late: nothing
    /// either. Numbers wrap after the third segment.
    #[test]
    fn what_is_under_way_is_the_highest_sent_less_the_last_acknowledged() {
        let begin = 0_u32.wrapping_sub(3001);
        let at = |place: u32| begin.wrapping_add(place);
        let mut flight = InFlight::default();
        assert_eq!(flight.segment(7, begin, 1, true, NOW), 1);
        flight.acknowledged(7, at(1), NOW);
        for segment in 0..10 {
            assert_eq!(flight.segment(7, at(1 + 1000 * segment), 1000, false, NOW), 1000 * (segment + 1));
        }
        flight.acknowledged(7, at(2001), NOW);
        for segment in [10, 12, 13] {
            assert_eq!(flight.segment(7, at(1 + 1000 * segment), 1000, false, NOW), 1000 * (segment - 1));
        }
        assert_eq!(flight.segment(7, at(11_001), 1000, false, NOW), 12_000);
        assert_eq!(flight.segment(7, at(11_001), 1000, false, NOW), 12_000);
        // Old acknowledgements, as reordering brings them, take nothing back; a pure acknowledgement takes no numbers.
        flight.acknowledged(7, at(14_001), NOW);
        flight.acknowledged(7, at(1), NOW);
        assert_eq!(flight.segment(7, at(14_001), 0, false, NOW), 0);
    }

    /// One that began before starts with its first segment; acknowledgements of what went another way are believed; a
    /// SYN with another number, or the end of the connection, begins anew; nobody is remembered after a minute without
    /// a sign.
    #[test]
    fn connections_begin_and_end() {
        let mut flight = InFlight::default();
        flight.acknowledged(1, 500, NOW);
        assert!(flight.is_empty());
        assert_eq!(flight.segment(1, 70_000, 1000, false, NOW), 1000);
        flight.acknowledged(1, 80_000, NOW);
        assert_eq!(flight.segment(1, 80_000, 500, false, NOW), 500);
        assert_eq!(flight.segment(1, 9, 1, true, NOW), 1);
        assert_eq!(flight.segment(1, 9, 1, true, NOW), 1);
        flight.forget(1);
        assert_eq!((flight.len(), flight.segment(1, 4_000_000_000, 100, false, NOW)), (0, 100));
        let later = NOW + Duration::from_secs(61);
        for _ in 0..100 {
            flight.segment(2, 1, 0, false, later);
        }
        assert_eq!(flight.len(), 1);
    }
}
