//! Shaping of packets to the link's rate by a virtual clock: the leaky bucket of ITU-T I.371 (GCRA), which
//! equals a token bucket.
//!
//! The regulator releases as much as the link carries, and QUIC's own packets (acknowledgements, above all retransmissions)
//! come on top. After an outage these are several round trips' worth of data at once. The shaper sends them at the link's
//! rate; data that the regulator releases in time passes without waiting.

use std::time::{Duration, Instant};

use bentpipe_units::Rate;

/// Time by which packets may run ahead of the link's rate.
const BURST: Duration = Duration::from_millis(20);

/// The virtual clock.
pub struct Shaper {
    rate: Option<Rate>,
    /// Time at which the link will have sent everything.
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

    /// Number of packets of `bytes` that may be sent now, at most `most`.
    pub fn allowed(&self, now: Instant, bytes: u64, most: usize) -> usize {
        let Some(rate) = self.rate else { return most };
        let ahead = self.free_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        let Some(room) = BURST.checked_sub(ahead).filter(|room| !room.is_zero()) else { return 0 };
        let each = rate.time_to_send(bytes).as_nanos().max(1);
        ((room.as_nanos() as u64 / each) as usize).clamp(1, most)
    }

    /// Time at which the next packet may be sent; `None` if it may be sent now.
    pub fn ready_at(&self) -> Option<Instant> {
        // A nanosecond after the bound, when there is room again.
        self.free_at.and_then(|at| at.checked_sub(BURST)).map(|at| at + Duration::from_nanos(1))
    }

    /// Bytes that the link carries in `time`; 0 if its rate is unknown.
    pub fn carries(&self, time: Duration) -> u64 {
        self.rate.map_or(0, |rate| (u128::from(rate.as_bps()) * time.as_nanos() / 8_000_000_000) as u64)
    }

    /// Counts sent bytes.
    pub fn sent(&mut self, now: Instant, bytes: u64) {
        let Some(rate) = self.rate else { return };
        // At rate zero an hour stands for ever, without overflow.
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
    fn the_rate_is_never_exceeded_over_time() {
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
    fn a_burst_is_limited() {
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

    /// At 4 Mbit/s, 20 ms are ten packets of 1000 bytes.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "an origin for the test's times")]
    fn a_new_rate_begins_with_an_idle_link() {
        let now = Instant::now();
        let mut shaper = Shaper::new(Some(Rate::from_bps(8_000_000)));
        shaper.sent(now, 1_000_000);
        assert_eq!(shaper.allowed(now, 1000, 64), 0);
        shaper.set_rate(Some(Rate::from_bps(4_000_000)));
        assert_eq!((shaper.allowed(now, 1000, 64), shaper.ready_at()), (10, None));
        // 4 Mbit/s are 500 bytes in a millisecond.
        assert_eq!(shaper.carries(Duration::from_millis(1500)), 750_000);
        shaper.set_rate(None);
        assert_eq!((shaper.allowed(now, 1000, 64), shaper.carries(Duration::from_secs(1))), (64, 0));
    }
}
