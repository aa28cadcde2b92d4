//! How fast packets may leave: a virtual clock for the link (the leaky bucket of ITU-T I.371, there called GCRA).
//!
//! The regulator lets go as much as the link carries, and what QUIC sends on its own account (acknowledgements, and above
//! all what was lost and goes again) comes on top. After an outage that is several round trips' worth of data at once; this
//! clock lets it go at the link's rate, while what the regulator lets go in time passes without waiting.

use std::time::{Duration, Instant};

use bentpipe_units::Rate;

/// How far ahead of the link's rate packets may go.
const BURST: Duration = Duration::from_millis(20);

/// The link's clock.
pub struct Shaper {
    rate: Option<Rate>,
    /// When the link has sent all it was given.
    free_at: Option<Instant>,
}

impl Shaper {
    pub fn new(rate: Option<Rate>) -> Self {
        Self { rate, free_at: None }
    }

    pub fn set_rate(&mut self, rate: Option<Rate>) {
        self.rate = rate;
        self.free_at = None;
    }

    /// How many packets of `bytes` may go now: none where the link is too far behind.
    pub fn allowed(&self, now: Instant, bytes: u64, most: usize) -> usize {
        let Some(rate) = self.rate else { return most };
        let ahead = self.free_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        let Some(room) = BURST.checked_sub(ahead).filter(|room| !room.is_zero()) else { return 0 };
        let each = rate.time_to_send(bytes).as_nanos().max(1);
        ((room.as_nanos() as u64 / each) as usize).clamp(1, most)
    }

    /// When the next may go, where none may now.
    pub fn ready_at(&self) -> Option<Instant> {
        // A nanosecond later than the bound, at which there is room again.
        self.free_at.and_then(|at| at.checked_sub(BURST)).map(|at| at + Duration::from_nanos(1))
    }

    /// How many bytes the link carries in `time`; none where its rate is not known.
    pub fn carries(&self, time: Duration) -> u64 {
        self.rate.map_or(0, |rate| (u128::from(rate.as_bps()) * time.as_nanos() / 8_000_000_000) as u64)
    }

    /// `bytes` have gone.
    pub fn sent(&mut self, now: Instant, bytes: u64) {
        let Some(rate) = self.rate else { return };
        // At rate zero an hour is as good as forever, and no overflow.
        let time = Duration::from_nanos(rate.time_to_send(bytes).as_nanos()).min(Duration::from_secs(3600));
        let from = self.free_at.map_or(now, |at| at.max(now));
        self.free_at = Some(from + time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "an origin for the test's times")]
    fn over_time_no_more_goes_than_the_rate() {
        let start = Instant::now();
        let mut shaper = Shaper::new(Some(Rate::from_bps(8_000_000)));
        let (mut now, mut sent) = (start, 0);
        while now < start + Duration::from_secs(1) {
            if shaper.allowed(now, 1000, 10) > 0 {
                shaper.sent(now, 1000);
                sent += 1000;
            } else {
                now = shaper.ready_at().unwrap();
            }
        }
        // A megabyte in a second, and 20 ms ahead of it.
        assert_eq!(sent, 1_020_000);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "an origin for the test's times")]
    fn a_burst_is_cut_to_what_there_is_room_for() {
        let now = Instant::now();
        let mut shaper = Shaper::new(Some(Rate::from_bps(8_000_000)));
        assert_eq!(shaper.allowed(now, 1000, 64), 20);
        shaper.sent(now, 15_500);
        assert_eq!(shaper.allowed(now, 1000, 64), 4);
        shaper.sent(now, 4_400);
        assert_eq!(shaper.allowed(now, 1000, 64), 1);
        shaper.sent(now, 1_000);
        assert_eq!(shaper.allowed(now, 1000, 64), 0);
        assert_eq!(shaper.allowed(now + Duration::from_secs(1), 1000, 64), 20);
        assert_eq!(Shaper::new(None).allowed(now, 1000, 64), 64);
    }
}
