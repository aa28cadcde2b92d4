//! The agenda: future events in order of time.

use bentpipe_units::Instant;

use super::event::{EVENT_BITS, Event};
use super::heap::{Front, Heap, MISSING};
use super::wheel::Wheel;

const NUMBER_BITS: u32 = 35;

/// Future events in order of time; events of the same time in the order in which they were added, samples last.
///
/// An entry is one 128-bit number, so that two entries compare in one step: time, rank (1 bit), running number, index,
/// kind. A wheel of time slots holds most entries, which cost the same however many wait; a sorted list has the few of the
/// present slot, and a heap those beyond the wheel. The slots' width follows the mean time between events.
pub struct Agenda {
    /// Entries up to the end of the wheel's present slot.
    near: Front,
    wheel: Wheel,
    /// Entries that were more than a turn of the wheel away when they were added.
    far: Heap,
    number: u64,
    /// Entries removed, and the wheel's present slot, when the slots' width was last checked.
    checked: (u64, u64),
    removed: u64,
}

/// Number of an event, by which events of the same time are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventNumber(u64);

impl EventNumber {
    /// Greater than any number: stands for one that is not reserved yet.
    pub const UNKNOWN: Self = Self(u64::MAX);
}

/// Entries removed between two checks of the slots' width, at least.
const CHECK_EVERY: u64 = 4096;
const SLOTS: std::ops::RangeInclusive<usize> = 1 << 10..=1 << 18;
/// Waiting entries for each slot: an entry waits for less than four times the mean in most cases.
const ENTRIES_PER_SLOT: usize = EVENTS_PER_SLOT as usize / 4;
/// Mean number of events in a slot: more make the sorted list longer, fewer send more of the entries through the wheel.
const EVENTS_PER_SLOT: u64 = 8;
/// Width of the slots at the start: 2^20 ns, about 1 ms.
const WIDTH: u32 = 20;

/// Time of an entry, as the rank of an instant [ns].
#[inline(always)]
pub(super) fn time_of(entry: u128) -> u64 {
    (entry >> 64) as u64
}

impl Default for Agenda {
    fn default() -> Self {
        let wheel = Wheel::new(*SLOTS.start(), WIDTH, 0);
        let (near, far) = (Front::default(), Heap::default());
        Self { near, wheel, far, number: 0, checked: (0, 0), removed: 0 }
    }
}

impl Agenda {
    /// Adds an event.
    // Inlined: the caller knows the kind of event, so that it packs without a branch.
    #[inline(always)]
    pub fn at(&mut self, time: Instant, event: Event) {
        let rank = matches!(event, Event::Sample) as u64;
        let number = self.reserve();
        self.insert(time, number, rank << NUMBER_BITS << EVENT_BITS | event.pack());
    }

    /// Takes a number for an event that is added later, or for one that stands for others.
    #[inline(always)]
    pub fn reserve(&mut self) -> EventNumber {
        let number = self.number & ((1 << NUMBER_BITS) - 1);
        self.number += 1;
        EventNumber(number)
    }

    /// Adds an event under a reserved number.
    #[inline(always)]
    pub fn at_reserved(&mut self, time: Instant, number: EventNumber, event: Event) {
        self.insert(time, number, event.pack());
    }

    fn insert(&mut self, time: Instant, number: EventNumber, event: u64) {
        self.push(u128::from(time.rank()) << 64 | u128::from(number.0 << EVENT_BITS | event));
    }

    #[inline(always)]
    fn push(&mut self, entry: u128) {
        match self.wheel.distance(entry) {
            None => self.near.push_late(entry),
            Some(slots) if slots < self.wheel.slots() as u64 => self.wheel.push(entry),
            Some(_) => self.far.push(entry),
        }
    }

    /// Removes and returns the next event not later than `end`.
    #[inline]
    pub fn next(&mut self, end: Instant) -> Option<(Instant, Event)> {
        if self.near.is_empty() && !self.advance() {
            return None;
        }
        let entry = self.near.first();
        let time = Instant::from_rank(time_of(entry))?;
        if time > end {
            return None;
        }
        self.near.pop();
        self.removed += 1;
        Some((time, Event::unpack(entry as u64)))
    }

    /// Turns the wheel to the next slot that has entries; false without entries.
    #[inline]
    fn advance(&mut self) -> bool {
        if self.removed - self.checked.0 >= CHECK_EVERY {
            self.check_width();
            if !self.near.is_empty() {
                // Wider slots hold entries that wait in the current one now.
                return true;
            }
        }
        let far = self.far.first();
        let slot = match self.wheel.next_slot() {
            Some(slot) => slot.min(self.wheel.slot_of(far)),
            None if far == MISSING => return false,
            None => self.wheel.slot_of(far),
        };
        // The slot's last entry comes first.
        self.wheel.advance(slot, |entry| self.near.push_early(entry));
        if self.wheel.slot_of(far) <= slot {
            self.take_far(slot);
        }
        true
    }

    /// Moves the far entries of the wheel's present slot.
    #[inline(never)]
    fn take_far(&mut self, slot: u64) {
        while self.far.first() != MISSING && self.wheel.slot_of(self.far.first()) <= slot {
            self.near.push_late(self.far.pop());
        }
    }

    /// Builds the wheel anew if its slots have become too wide, too narrow or too few.
    #[cold]
    fn check_width(&mut self) {
        let waiting = self.wheel.len() + self.far.len();
        let removed = self.removed - self.checked.0;
        if removed < waiting as u64 {
            return;
        }
        let elapsed = (self.wheel.now() - self.checked.1) << self.wheel.width();
        let width = (EVENTS_PER_SLOT * elapsed / removed).max(1).ilog2();
        let slots = (waiting / ENTRIES_PER_SLOT).next_power_of_two().clamp(*SLOTS.start(), *SLOTS.end());
        if width.abs_diff(self.wheel.width()) > 1 || slots > self.wheel.slots() {
            self.rebuild(slots.max(self.wheel.slots()), width);
        }
        self.checked = (self.removed, self.wheel.now());
    }

    fn rebuild(&mut self, slots: usize, width: u32) {
        let now = self.wheel.now() << self.wheel.width();
        let mut old = std::mem::replace(&mut self.wheel, Wheel::new(slots, width, now));
        let mut entries = Vec::with_capacity(old.len() + self.far.len());
        while let Some(slot) = old.next_slot() {
            old.advance(slot, |entry| entries.push(entry));
        }
        while self.far.first() != MISSING {
            entries.push(self.far.pop());
        }
        entries.into_iter().for_each(|entry| self.push(entry));
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
    use std::collections::BTreeSet;

    use bentpipe_units::Rng;

    use super::*;
    use crate::ids::Id;

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

    /// Compared with a sorted list: random times up to `reach` ahead, added before and between removals.
    fn compare_with_a_sorted_list(reach: impl Fn(&mut Rng, u32) -> u64) {
        let mut rng = Rng::stream(1, "agenda", 0, "test");
        let mut agenda = Agenda::default();
        let mut expected = BTreeSet::new();
        let mut now = 0;
        for index in 0..60_000 {
            for _ in 0..rng.below(3) {
                let most = reach(&mut rng, index);
                let time = now + rng.below(most);
                agenda.at(Instant::from_nanos(time), Event::Line(Id::new(index)));
                expected.insert((time, agenda.added(), index));
            }
            if rng.below(20) < 19 {
                // Looking for an earlier event must not skip the times before the next one.
                let end = if rng.below(4) == 0 { now } else { u64::MAX };
                let next = expected.first().copied().filter(|&(time, ..)| time <= end);
                let found = agenda.next(Instant::from_nanos(end));
                assert_eq!(found, next.map(|(t, _, i)| (Instant::from_nanos(t), Event::Line(Id::new(i)))));
                if let Some(next) = next {
                    expected.remove(&next);
                    now = next.0;
                }
            }
        }
    }

    #[test]
    fn events_come_in_order_of_time() {
        compare_with_a_sorted_list(|_, _| 50);
    }

    #[test]
    fn events_from_nanoseconds_to_hours_ahead_come_in_order() {
        compare_with_a_sorted_list(|rng, _| 1 << (1 + rng.below(43)));
    }

    #[test]
    fn events_stay_in_order_while_the_slots_become_narrower_and_wider() {
        compare_with_a_sorted_list(|_, index| [1_000_000_000, 100, 10_000_000][index as usize / 20_000]);
    }

    /// Two sources, each an event every 5 ms: once the slots are wide enough for eight events, both fall into the current one.
    #[test]
    fn a_few_events_stay_when_the_slots_become_wider_than_the_time_to_the_last() {
        let mut agenda = Agenda::default();
        let at = |n: u64| Instant::from_nanos(2_500_000 * n);
        (0..2).for_each(|n| agenda.at(at(n), Event::Line(Id::new(n as u32))));
        for n in 0..20_000 {
            let source = Event::Line(Id::new((n % 2) as u32));
            assert_eq!(agenda.next(at(n)), Some((at(n), source)));
            agenda.at(at(n + 2), source);
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
