//! The loop's timer: a timerfd on CLOCK_MONOTONIC.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration as StdDuration;

use bentpipe_units::Instant;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::sys::clock::Clock;

/// A timer set to one time at a time. It is watched edge-triggered and never read: setting it clears it.
#[derive(Debug)]
pub struct Timer {
    fd: TimerFd,
    set: Option<Instant>,
}

impl Timer {
    /// A timer that is not set.
    ///
    /// # Errors
    /// If no descriptor is left.
    pub fn new() -> nix::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        Ok(Self { fd: TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?, set: None })
    }

    /// Sets the timer to `at`, unless it is set to an earlier time already: a wake-up in vain now and then is cheaper than a
    /// system call each time.
    ///
    /// # Errors
    /// None known.
    pub fn set(&mut self, at: Instant, clock: &Clock) -> nix::Result<()> {
        if self.set.is_some_and(|set| set <= at) {
            return Ok(());
        }
        self.set = Some(at);
        // Zero would stop it.
        let time = TimeSpec::from_duration(StdDuration::from_nanos(clock.monotonic(at).max(1)));
        self.fd.set(Expiration::OneShot(time), TimerSetTimeFlags::TFD_TIMER_ABSTIME)
    }

    /// Notes that the timer may have expired by `now`. Returns true if it was set to a time up to then.
    pub fn passed(&mut self, now: Instant) -> bool {
        let passed = self.set.is_some_and(|at| at <= now);
        if passed {
            self.set = None;
        }
        passed
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
