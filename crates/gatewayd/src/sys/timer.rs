//! The loop's alarm: a timerfd that goes off at a time on CLOCK_MONOTONIC.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration as StdDuration;

use bentpipe_units::Instant;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::sys::clock::Clock;

/// A timer that is set to one time at a time. It is watched edge-triggered and never read: setting it anew clears it.
#[derive(Debug)]
pub struct Timer {
    fd: TimerFd,
    set: Option<Instant>,
}

impl Timer {
    /// One that is not set.
    ///
    /// # Errors
    /// Where the kernel has no descriptor left.
    pub fn new() -> nix::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        Ok(Self { fd: TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?, set: None })
    }

    /// It goes off at `at`. Where it is set to that already, or earlier, it stays so: being woken in vain now and then is
    /// cheaper than a call each time.
    ///
    /// # Errors
    /// None that are known.
    pub fn set(&mut self, at: Instant, clock: &Clock) -> nix::Result<()> {
        if self.set.is_some_and(|set| set <= at) {
            return Ok(());
        }
        self.set = Some(at);
        // Zero would stop it.
        let time = TimeSpec::from_duration(StdDuration::from_nanos(clock.monotonic(at).max(1)));
        self.fd.set(Expiration::OneShot(time), TimerSetTimeFlags::TFD_TIMER_ABSTIME)
    }

    /// It may have gone off by `now`.
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
