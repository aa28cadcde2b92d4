//! The clock: the current time, and the agenda of events.

mod agenda;
mod event;
mod heap;
mod wheel;

use bentpipe_units::Instant;

pub use event::{Event, MAX_INDEX, MAX_PACKET};

use agenda::Agenda;
pub use agenda::EventNumber;

/// The current time and the agenda of events.
#[derive(Default)]
pub struct Clock {
    now: Instant,
    agenda: Agenda,
}

impl Clock {
    /// The current time.
    #[inline(always)]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Schedules an event.
    #[inline(always)]
    pub fn at(&mut self, time: Instant, event: Event) {
        self.agenda.at(time, event);
    }

    /// Takes the number that an event has which is scheduled now, for [`Clock::at_reserved`].
    #[inline(always)]
    pub fn reserve(&mut self) -> EventNumber {
        self.agenda.reserve()
    }

    /// Schedules an event in the order of a number taken before.
    #[inline(always)]
    pub fn at_reserved(&mut self, time: Instant, number: EventNumber, event: Event) {
        self.agenda.at_reserved(time, number, event);
    }

    /// Schedules an event, unless its time is never.
    #[inline]
    pub fn at_any(&mut self, time: Option<Instant>, event: Event) {
        if let Some(time) = time {
            self.at(time, event);
        }
    }

    /// Moves on to the next event; without one before `end`, to `end`.
    #[inline(always)]
    pub fn advance(&mut self, end: Instant) -> Option<Event> {
        match self.agenda.next(end) {
            Some((time, event)) => {
                self.now = time;
                Some(event)
            }
            None => {
                self.now = end;
                None
            }
        }
    }

    /// Events scheduled so far.
    pub fn scheduled(&self) -> u64 {
        self.agenda.added()
    }

    /// True once events of the same time may be out of order.
    pub fn is_exhausted(&self) -> bool {
        self.agenda.is_exhausted()
    }
}
