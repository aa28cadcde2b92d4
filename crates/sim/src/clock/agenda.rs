//! The agenda: a heap of typed events.

use bentpipe_units::Instant;

use crate::ids::{ConnId, GatewayId, Id, LineId, LinkId, PacketId, RtpId, SctpEndId, SessionId, SourceId};

/// An event of one component.
// One variant for each kind, so that packing and unpacking need no branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The first packet of a delay line arrives.
    Line(LineId),
    /// A packet of a link that does not keep order arrives.
    Packet(PacketId),
    /// A link's sender is free.
    LinkFree(LinkId),
    /// A link's queue wants to be woken.
    QueueWake(LinkId),
    /// A link's capacity changes.
    Capacity(LinkId),
    /// A TCP connection's timer.
    ConnTimer(ConnId),
    /// A TCP connection's pacing lets the next segment go.
    ConnPace(ConnId),
    /// A gateway wants to be woken.
    Gateway(GatewayId),
    /// The timer of a PEP link at the gateway.
    NearPepTimer(GatewayId),
    /// The timer of a PEP link at the terminal.
    FarPepTimer(GatewayId),
    /// A session opens its next page.
    Session(SessionId),
    /// A source opens its flow, or sends its next packet.
    Source(SourceId),
    /// The timer of one end of an SCTP association.
    SctpTimer(SctpEndId),
    /// An RTP session's sender report.
    SenderReport(RtpId),
    /// An RTP session's receiver report.
    ReceiverReport(RtpId),
    /// The recorder takes a sample, after everything else at its time.
    Sample,
}

const KIND_BITS: u32 = 4;
const INDEX_BITS: u32 = 24;
const NUMBER_BITS: u32 = 35;
/// Highest index of a component that the agenda can store.
pub const MAX_INDEX: u32 = (1 << INDEX_BITS) - 1;

impl Event {
    const fn kind(self) -> u64 {
        match self {
            Self::Line(_) => 0,
            Self::Packet(_) => 1,
            Self::LinkFree(_) => 2,
            Self::QueueWake(_) => 3,
            Self::Capacity(_) => 4,
            Self::ConnTimer(_) => 5,
            Self::ConnPace(_) => 6,
            Self::Gateway(_) => 7,
            Self::NearPepTimer(_) => 8,
            Self::FarPepTimer(_) => 9,
            Self::Session(_) => 10,
            Self::Source(_) => 11,
            Self::SctpTimer(_) => 12,
            Self::SenderReport(_) => 13,
            Self::ReceiverReport(_) => 14,
            Self::Sample => 15,
        }
    }

    #[inline(always)]
    fn pack(self) -> u64 {
        let index = match self {
            Self::Line(id) => id.index(),
            Self::Packet(id) => id.index(),
            Self::LinkFree(id) | Self::QueueWake(id) | Self::Capacity(id) => id.index(),
            Self::ConnTimer(id) | Self::ConnPace(id) => id.index(),
            Self::Gateway(id) | Self::NearPepTimer(id) | Self::FarPepTimer(id) => id.index(),
            Self::Session(id) => id.index(),
            Self::Source(id) => id.index(),
            Self::SctpTimer(id) => id.index(),
            Self::SenderReport(id) | Self::ReceiverReport(id) => id.index(),
            Self::Sample => 0,
        };
        u64::from(index) << KIND_BITS | self.kind()
    }

    #[inline(always)]
    fn unpack(bits: u64) -> Self {
        let index = (bits >> KIND_BITS) as u32 & MAX_INDEX;
        match bits & ((1 << KIND_BITS) - 1) {
            0 => Self::Line(Id::new(index)),
            1 => Self::Packet(Id::new(index)),
            2 => Self::LinkFree(Id::new(index)),
            3 => Self::QueueWake(Id::new(index)),
            4 => Self::Capacity(Id::new(index)),
            5 => Self::ConnTimer(Id::new(index)),
            6 => Self::ConnPace(Id::new(index)),
            7 => Self::Gateway(Id::new(index)),
            8 => Self::NearPepTimer(Id::new(index)),
            9 => Self::FarPepTimer(Id::new(index)),
            10 => Self::Session(Id::new(index)),
            11 => Self::Source(Id::new(index)),
            12 => Self::SctpTimer(Id::new(index)),
            13 => Self::SenderReport(Id::new(index)),
            14 => Self::ReceiverReport(Id::new(index)),
            _ => Self::Sample,
        }
    }
}

/// Future events in order of time; events of the same time in the order in which they were added, samples last.
///
/// An entry is one 128-bit number, so that two entries compare in one step: time, rank (1 bit), running number, index,
/// kind. The heap is four-ary, half as deep as a binary one. Removing the first entry leaves a hole at the root: nearly
/// every event adds another, which then only has to sink from there.
///
/// The four children of a node share a cache line, and missing children compare greater than any entry, so that the
/// smallest is found without a branch. Place p is place p mod 4 of line p / 4; the root has place 3, alone in line 0, and
/// the children of place p are line p - 2.
pub struct Agenda {
    lines: Vec<Siblings>,
    /// Place of the next entry.
    end: usize,
    /// True once the root has been removed.
    hole: bool,
    number: u64,
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Siblings([u128; CHILDREN]);

const CHILDREN: usize = 4;
const ROOT: usize = 3;
/// Greater than any entry: only samples have rank 1, and their index is 0.
const MISSING: u128 = u128::MAX;

impl Default for Agenda {
    fn default() -> Self {
        Self { lines: vec![Siblings([MISSING; CHILDREN])], end: ROOT, hole: false, number: 0 }
    }
}

impl Agenda {
    /// Adds an event.
    // Inlined: the caller knows the kind of event, so that it packs without a branch.
    #[inline(always)]
    pub fn at(&mut self, time: Instant, event: Event) {
        let rank = matches!(event, Event::Sample) as u64;
        self.insert(time, rank << NUMBER_BITS << (INDEX_BITS + KIND_BITS) | event.pack());
    }

    fn insert(&mut self, time: Instant, event: u64) {
        let number = self.number & ((1 << NUMBER_BITS) - 1);
        self.number += 1;
        let low = number << (INDEX_BITS + KIND_BITS) | event;
        let entry = u128::from(time.as_nanos()) << 64 | u128::from(low);
        if std::mem::take(&mut self.hole) {
            self.sink(entry);
        } else {
            self.rise(entry);
        }
    }

    /// Removes and returns the next event not later than `end`.
    #[inline]
    pub fn next(&mut self, end: Instant) -> Option<(Instant, Event)> {
        if std::mem::take(&mut self.hole) {
            let last = self.pop();
            if self.end > ROOT {
                self.sink(last);
            }
        }
        let entry = self.lines[0].0[ROOT];
        let (time, event) = (Instant::from_nanos((entry >> 64) as u64), entry as u64);
        // Only the lower half is compared: comparing both halves would load them in one piece, which stalls on the two
        // stores that have just written them.
        if time > end || event == MISSING as u64 {
            return None;
        }
        self.hole = true;
        Some((time, Event::unpack(event)))
    }

    /// Removes the last entry; there is one.
    #[inline]
    fn pop(&mut self) -> u128 {
        self.end -= 1;
        let last = std::mem::replace(self.place(self.end), MISSING);
        if self.end.is_multiple_of(CHILDREN) {
            self.lines.pop();
        }
        last
    }

    #[inline]
    fn place(&mut self, place: usize) -> &mut u128 {
        &mut self.lines[place / CHILDREN].0[place % CHILDREN]
    }

    /// Replaces the root.
    #[inline]
    fn sink(&mut self, entry: u128) {
        let lines = &mut self.lines[..];
        let (mut line, mut which) = (0, ROOT);
        let mut below = 1;
        while let Some(Siblings(siblings)) = lines.get(below) {
            let [a, b, c, d] = siblings;
            let (left, right) = (usize::from(b < a), 2 + usize::from(d < c));
            let child = if siblings[right] < siblings[left] { right } else { left };
            let least = siblings[child];
            if entry <= least {
                break;
            }
            lines[line].0[which] = least;
            (line, which) = (below, child);
            below = CHILDREN * line + which - 2;
        }
        lines[line].0[which] = entry;
    }

    /// Appends an entry.
    #[inline]
    fn rise(&mut self, entry: u128) {
        let mut place = self.end;
        self.end += 1;
        if place.is_multiple_of(CHILDREN) {
            self.lines.push(Siblings([MISSING; CHILDREN]));
        }
        while place > ROOT {
            let parent = place / CHILDREN + 2;
            let above = *self.place(parent);
            if above <= entry {
                break;
            }
            *self.place(place) = above;
            place = parent;
        }
        *self.place(place) = entry;
    }

    /// Events added so far.
    #[must_use]
    pub fn added(&self) -> u64 {
        self.number
    }

    /// True once running numbers have wrapped, so that events of the same time may be out of order.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.number >> NUMBER_BITS != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_survives_packing() {
        for event in [
            Event::Line(Id::new(0)),
            Event::Packet(Id::new(1)),
            Event::LinkFree(Id::new(MAX_INDEX)),
            Event::QueueWake(Id::new(7)),
            Event::Capacity(Id::new(7)),
            Event::ConnTimer(Id::new(7)),
            Event::ConnPace(Id::new(7)),
            Event::Gateway(Id::new(7)),
            Event::NearPepTimer(Id::new(7)),
            Event::FarPepTimer(Id::new(MAX_INDEX)),
            Event::Session(Id::new(7)),
            Event::Source(Id::new(7)),
            Event::SctpTimer(Id::new(7)),
            Event::SenderReport(Id::new(7)),
            Event::ReceiverReport(Id::new(7)),
            Event::Sample,
        ] {
            assert_eq!(Event::unpack(event.pack()), event);
        }
    }

    #[test]
    fn events_of_one_time_keep_their_order_and_samples_come_last() {
        let mut agenda = Agenda::default();
        let t = Instant::from_nanos;
        agenda.at(t(5), Event::Sample);
        let line = |index| Event::Line(Id::new(index));
        agenda.at(t(5), line(9));
        agenda.at(t(5), line(3));
        agenda.at(t(4), Event::LinkFree(Id::new(1)));
        let order: Vec<_> = std::iter::from_fn(|| agenda.next(t(10))).map(|(_, event)| event).collect();
        assert_eq!(order, [Event::LinkFree(Id::new(1)), line(9), line(3), Event::Sample]);
    }

    /// Compared with a sorted list: random times, added before and between removals.
    #[test]
    fn events_come_in_order_of_time() {
        let mut rng = bentpipe_units::Rng::stream(1, "agenda", 0, "test");
        let mut agenda = Agenda::default();
        let mut expected = Vec::new();
        let mut now = 0;
        for index in 0..20_000 {
            for _ in 0..rng.below(3) {
                let time = now + rng.below(50);
                agenda.at(Instant::from_nanos(time), Event::Line(Id::new(index)));
                expected.push((time, agenda.added(), index));
            }
            if rng.below(2) == 0 {
                expected.sort_unstable();
                let found = agenda.next(Instant::FAR_FUTURE);
                let next = (!expected.is_empty()).then(|| expected.remove(0));
                assert_eq!(found, next.map(|(t, _, i)| (Instant::from_nanos(t), Event::Line(Id::new(i)))));
                now = next.map_or(now, |(t, _, _)| t);
            }
        }
    }

    #[test]
    fn events_after_the_end_stay() {
        let mut agenda = Agenda::default();
        agenda.at(Instant::from_nanos(5), Event::Sample);
        assert_eq!(agenda.next(Instant::from_nanos(4)), None);
        assert!(agenda.next(Instant::from_nanos(5)).is_some());
    }
}
