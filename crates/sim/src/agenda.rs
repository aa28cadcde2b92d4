//! What happens when: a heap of typed events.

use bentpipe_units::Instant;

/// Something that happens to a component, which is named by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The head of a delay line arrives.
    Line(u32),
    /// A packet of a link that does not keep order arrives.
    Flight(u32),
    /// A port has sent its packet.
    Port(u32),
    /// A port's Aqm wants to be called.
    PortWake(u32),
    /// A connection's timer.
    Timer(u32),
    /// A connection's pacing lets the next segment go.
    Pace(u32),
    /// A station's gateway wants to be called.
    Gateway(u32),
    /// A station's spacelink timer: twice the station, plus one for the far end.
    Space(u32),
    /// A session opens its next page.
    Session(u32),
    /// A source opens its flow, or sends its next datagram.
    Source(u32),
    /// A link's capacity changes.
    Capacity(u32),
    /// An association's timer.
    Association(u32),
    /// A report of a medium: twice the medium, plus one for the receiver's.
    Report(u32),
    /// The recorder takes a sample, after all else that happens at the time.
    Sample,
}

const KIND_BITS: u32 = 4;
const INDEX_BITS: u32 = 24;
const NUMBER_BITS: u32 = 35;
/// Components of one kind that the agenda can tell apart.
pub const MAX_INDEX: u32 = (1 << INDEX_BITS) - 1;

impl Event {
    const fn pack(self) -> u64 {
        let (kind, index) = match self {
            Self::Line(i) => (0, i),
            Self::Flight(i) => (1, i),
            Self::Port(i) => (2, i),
            Self::PortWake(i) => (3, i),
            Self::Timer(i) => (4, i),
            Self::Pace(i) => (5, i),
            Self::Gateway(i) => (6, i),
            Self::Space(i) => (7, i),
            Self::Session(i) => (8, i),
            Self::Source(i) => (9, i),
            Self::Capacity(i) => (10, i),
            Self::Association(i) => (11, i),
            Self::Report(i) => (12, i),
            Self::Sample => (13, 0),
        };
        (index as u64) << KIND_BITS | kind
    }

    const fn unpack(bits: u64) -> Self {
        let i = (bits >> KIND_BITS) as u32 & MAX_INDEX;
        match bits & ((1 << KIND_BITS) - 1) {
            0 => Self::Line(i),
            1 => Self::Flight(i),
            2 => Self::Port(i),
            3 => Self::PortWake(i),
            4 => Self::Timer(i),
            5 => Self::Pace(i),
            6 => Self::Gateway(i),
            7 => Self::Space(i),
            8 => Self::Session(i),
            9 => Self::Source(i),
            10 => Self::Capacity(i),
            11 => Self::Association(i),
            12 => Self::Report(i),
            _ => Self::Sample,
        }
    }
}

/// The events to come, in order of time; those of one time in the order in which they were entered, samples last.
///
/// An entry is one 128-bit number, so that a comparison is one comparison: time, rank (1 bit), running number, index,
/// kind. The heap has four children to a node, which makes it half as deep as a binary one, and the entry that was
/// taken last leaves a hole at its root: nearly every event enters another, which then only has to sink from there.
///
/// Siblings stand together, in a cache line of their own, and missing ones are larger than any entry: so the least of
/// them is found without a branch. Place p is place p mod 4 of line p / 4; the root stands at place 3, alone in line 0,
/// and the children of place p in line p - 2.
pub struct Agenda {
    lines: Vec<Siblings>,
    /// The place of the next entry.
    end: usize,
    /// Whether the root has been taken.
    hole: bool,
    number: u64,
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Siblings([u128; CHILDREN]);

const CHILDREN: usize = 4;
const ROOT: usize = 3;
/// Larger than any entry, for there is no such kind of event.
const MISSING: u128 = u128::MAX;

impl Default for Agenda {
    fn default() -> Self {
        Self { lines: vec![Siblings([MISSING; CHILDREN])], end: ROOT, hole: false, number: 0 }
    }
}

impl Agenda {
    /// Enters an event.
    // Callers know the kind of event, so that there it packs without a branch.
    #[inline(always)]
    pub fn at(&mut self, time: Instant, event: Event) {
        let rank = matches!(event, Event::Sample) as u64;
        self.enter(time, rank << NUMBER_BITS << (INDEX_BITS + KIND_BITS) | event.pack());
    }

    fn enter(&mut self, time: Instant, event: u64) {
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

    /// Takes the next event that is not later than `end`.
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
        // The lower half alone says what is missing. Both at once would be read in one piece, and wait for the two in
        // which they have just been written.
        if time > end || event == MISSING as u64 {
            return None;
        }
        self.hole = true;
        Some((time, Event::unpack(event)))
    }

    /// Takes the entry at the end; there is one.
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

    /// Puts an entry in place of the root.
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

    /// Puts an entry at the end.
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

    /// Events entered so far.
    #[must_use]
    pub fn entered(&self) -> u64 {
        self.number
    }

    /// Whether running numbers have begun again, so that events of one time may be out of order.
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
            Event::Line(0),
            Event::Flight(1),
            Event::Port(MAX_INDEX),
            Event::PortWake(7),
            Event::Timer(7),
            Event::Pace(7),
            Event::Gateway(7),
            Event::Space(7),
            Event::Session(7),
            Event::Source(7),
            Event::Capacity(7),
            Event::Association(7),
            Event::Report(7),
            Event::Sample,
        ] {
            assert_eq!(Event::unpack(event.pack()), event);
        }
    }

    #[test]
    fn one_times_events_keep_their_order_and_samples_come_last() {
        let mut agenda = Agenda::default();
        let t = Instant::from_nanos;
        agenda.at(t(5), Event::Sample);
        agenda.at(t(5), Event::Line(9));
        agenda.at(t(5), Event::Line(3));
        agenda.at(t(4), Event::Port(1));
        let order: Vec<_> = std::iter::from_fn(|| agenda.next(t(10))).map(|(_, event)| event).collect();
        assert_eq!(order, [Event::Port(1), Event::Line(9), Event::Line(3), Event::Sample]);
    }

    /// Against a sorted list: random times, entered before and between the takings.
    #[test]
    fn events_come_in_order_however_they_were_entered() {
        let mut rng = bentpipe_units::Rng::stream(1, "agenda", 0, "test");
        let mut agenda = Agenda::default();
        let mut expected = Vec::new();
        let mut now = 0;
        for index in 0..20_000 {
            for _ in 0..rng.below(3) {
                let time = now + rng.below(50);
                agenda.at(Instant::from_nanos(time), Event::Line(index));
                expected.push((time, agenda.entered(), index));
            }
            if rng.below(2) == 0 {
                expected.sort_unstable();
                let found = agenda.next(Instant::FAR_FUTURE);
                let next = (!expected.is_empty()).then(|| expected.remove(0));
                assert_eq!(found, next.map(|(t, _, i)| (Instant::from_nanos(t), Event::Line(i))));
                now = next.map_or(now, |(t, _, _)| t);
            }
        }
    }

    #[test]
    fn nothing_comes_after_the_end() {
        let mut agenda = Agenda::default();
        agenda.at(Instant::from_nanos(5), Event::Sample);
        assert_eq!(agenda.next(Instant::from_nanos(4)), None);
        assert!(agenda.next(Instant::from_nanos(5)).is_some());
    }
}
