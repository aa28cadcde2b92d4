//! Data units of one byte stream on their way.

use std::collections::VecDeque;

use bentpipe_units::Instant;

use crate::memory::prefetch;

/// Units for which a stream without any keeps room.
const SPARE: usize = 4;

/// Units of one byte stream between its two applications.
#[derive(Debug, Default)]
pub struct UnitsInFlight {
    /// End of each unit in the stream, and the time at which it was sent.
    units: VecDeque<(u64, Instant)>,
    /// Ends of the units sent and received.
    sent: u64,
    received: u64,
}

impl UnitsInFlight {
    /// Starts again for another stream.
    pub fn clear(&mut self) {
        self.units.clear();
        (self.sent, self.received) = (0, 0);
    }

    /// Adds a unit of `bytes`.
    #[inline]
    pub fn send(&mut self, bytes: u64, now: Instant) {
        self.send_to(self.sent + bytes, now);
    }

    /// Adds a unit that ends at a position of the stream, unless it was sent before.
    #[inline]
    pub fn send_to(&mut self, end: u64, now: Instant) {
        if end > self.sent {
            self.sent = end;
            self.units.push_back((end, now));
        }
    }

    /// Gives back the room of units received, except as much as is in use, and a little.
    pub fn give_room_back(&mut self) {
        self.units.shrink_to(2 * self.units.len() + SPARE);
    }

    /// Fetches into the cache where units are added and removed.
    #[inline]
    pub fn prefetch(&self) {
        self.units.front().into_iter().chain(self.units.back()).for_each(prefetch);
    }

    /// The receiving application reads `bytes`: yields the times at which the units were sent that it has received with
    /// them.
    #[inline]
    pub fn read(&mut self, bytes: u64) -> impl Iterator<Item = Instant> {
        self.received += bytes;
        let received = self.received;
        let units = &mut self.units;
        std::iter::from_fn(move || {
            units.front().filter(|(end, _)| *end <= received)?;
            units.pop_front().map(|(_, sent_at)| sent_at)
        })
    }

    /// Takes all units left; yields the times at which they were sent.
    pub fn take(&mut self) -> impl Iterator<Item = Instant> {
        self.units.drain(..).map(|(_, sent_at)| sent_at)
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_units::Duration;

    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn a_unit_is_received_with_its_last_byte() {
        let mut units = UnitsInFlight::default();
        units.send(100, at(1));
        units.send(50, at(2));
        assert_eq!(units.read(99).next(), None);
        assert_eq!(units.read(51).collect::<Vec<_>>(), [at(1), at(2)]);
    }

    #[test]
    fn a_retransmitted_unit_keeps_its_first_time() {
        let mut units = UnitsInFlight::default();
        units.send_to(100, at(1));
        units.send_to(100, at(5));
        units.send_to(60, at(6));
        assert_eq!(units.read(100).collect::<Vec<_>>(), [at(1)]);
    }

    #[test]
    fn a_stream_gives_back_the_room_of_units_that_have_been_received() {
        let mut units = UnitsInFlight::default();
        (1..=1000).for_each(|ms| units.send(100, at(ms)));
        assert_eq!(units.read(99_000).count(), 990);
        units.give_room_back();
        assert!(units.units.capacity() < 32, "{}", units.units.capacity());
        assert!(units.take().eq((991..=1000).map(at)));
    }
}
