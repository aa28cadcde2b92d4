//! The clock: CLOCK_MONOTONIC, which is the same in all network namespaces.

use bentpipe_units::{Duration, Instant};
use nix::time::{ClockId, clock_gettime};

/// Clock of the loop: the time since the process began, as an [`Instant`].
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Begin on the standard library's clock, which the spacelink uses.
    began: std::time::Instant,
    /// Begin on CLOCK_MONOTONIC [ns].
    origin: u64,
}

impl Clock {
    /// A clock that begins now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one place where a live process reads the clock")]
    pub fn start() -> Self {
        Self { began: std::time::Instant::now(), origin: monotonic() }
    }

    /// The current time.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::from_nanos(monotonic().saturating_sub(self.origin))
    }

    /// Converts a time on CLOCK_MONOTONIC [ns]; times before the start become the start.
    #[must_use]
    pub fn at(&self, monotonic: u64) -> Instant {
        Instant::from_nanos(monotonic.saturating_sub(self.origin))
    }

    /// Converts to a time on CLOCK_MONOTONIC [ns].
    #[must_use]
    pub fn monotonic(&self, at: Instant) -> u64 {
        at.as_nanos().saturating_add(self.origin)
    }

    /// Converts to the standard library's clock.
    #[must_use]
    pub fn std(&self, at: Instant) -> std::time::Instant {
        self.began + std::time::Duration::from_nanos(at.as_nanos())
    }

    /// Converts from the standard library's clock.
    #[must_use]
    pub fn from_std(&self, at: std::time::Instant) -> Instant {
        let since = at.saturating_duration_since(self.began);
        Instant::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// CLOCK_MONOTONIC [ns].
#[must_use]
pub fn monotonic() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |t| t.tv_sec().unsigned_abs() * 1_000_000_000 + t.tv_nsec().unsigned_abs())
}

/// CLOCK_MONOTONIC [ms].
#[must_use]
pub fn monotonic_ms() -> u64 {
    monotonic() / 1_000_000
}

/// Time to tell a loop that is late: the time at which something was due before `now`, so that a rate is kept, but not more
/// than `most` ago.
#[must_use]
pub fn catch_up(due: Instant, now: Instant, most: Duration) -> Instant {
    let oldest = Instant::from_nanos(now.as_nanos().saturating_sub(most.as_nanos()));
    due.max(oldest).min(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_agree() {
        let clock = Clock::start();
        let now = clock.now();
        assert_eq!(clock.from_std(clock.std(now)), now);
        assert_eq!(clock.at(clock.monotonic(now)), now);
        assert_eq!(clock.at(0), Instant::ZERO);
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(clock.now() - now >= Duration::from_millis(2));
    }

    #[test]
    fn catching_up_is_limited() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let most = Duration::from_millis(15);
        assert_eq!(catch_up(at(90), at(100), most), at(90));
        assert_eq!(catch_up(at(10), at(100), most), at(85));
        assert_eq!(catch_up(at(2), at(10), most), at(2));
        assert_eq!(catch_up(at(110), at(100), most), at(100));
    }
}
