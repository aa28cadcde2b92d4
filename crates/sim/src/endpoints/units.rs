//! Data units of one byte stream on their way.

use std::collections::VecDeque;

use bentpipe_units::Instant;

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

    /// The receiving application reads `bytes`.
    #[inline]
    pub fn read(&mut self, bytes: u64) {
        self.received += bytes;
    }

    /// Takes the next unit that has been received; returns the time at which it was sent.
    #[inline]
    pub fn next_received(&mut self) -> Option<Instant> {
        match self.units.front() {
            Some(&(end, sent_at)) if end <= self.received => {
                self.units.pop_front();
                Some(sent_at)
            }
            _ => None,
        }
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
        units.read(99);
        assert_eq!(units.next_received(), None);
        units.read(51);
        let received: Vec<_> = std::iter::from_fn(|| units.next_received()).collect();
        assert_eq!(received, [at(1), at(2)]);
    }

    #[test]
    fn a_retransmitted_unit_keeps_its_first_time() {
        let mut units = UnitsInFlight::default();
        units.send_to(100, at(1));
        units.send_to(100, at(5));
        units.send_to(60, at(6));
        units.read(100);
        assert_eq!(units.next_received(), Some(at(1)));
        assert_eq!(units.next_received(), None);
    }
}
