//! Points in time and durations, in integer nanoseconds.

use std::fmt;
use std::num::NonZeroU64;
use std::ops::{Add, AddAssign, Sub};

/// A point in time [ns since the start of the run]. Holds the number plus one, so that `Option<Instant>` needs no more
/// memory; `None` stands for "never".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(NonZeroU64);

/// A duration, never negative [ns]; serialized as that number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize)]
pub struct Duration(u64);

impl Instant {
    /// Start of the run.
    pub const ZERO: Self = Self(NonZeroU64::MIN);

    /// The point `ns` nanoseconds after the start of the run; saturates a nanosecond before `u64::MAX`.
    #[must_use]
    pub const fn from_nanos(ns: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(ns))
    }

    /// Nanoseconds since the start of the run.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0.get() - 1
    }

    /// A number that orders points in time, never zero.
    #[inline(always)]
    #[must_use]
    pub const fn rank(self) -> u64 {
        self.0.get()
    }

    /// The point with this [`rank`](Self::rank); `None` for zero.
    #[inline(always)]
    #[must_use]
    pub fn from_rank(rank: u64) -> Option<Self> {
        NonZeroU64::new(rank).map(Self)
    }

    /// Seconds since the start of the run.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.as_nanos() as f64 / 1e9
    }

    /// Duration since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration(self.0.get().saturating_sub(earlier.0.get()))
    }

    /// First multiple of `step`, counted from the start of the run, at or after this point.
    #[must_use]
    pub const fn round_up_to(self, step: Duration) -> Self {
        match step.0 {
            0 => self,
            step => Self::from_nanos(self.as_nanos().div_ceil(step).saturating_mul(step)),
        }
    }
}

impl Default for Instant {
    /// Start of the run.
    fn default() -> Self {
        Self::ZERO
    }
}

/// Time for which an event is scheduled, if any. Events at other times are out of date.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alarm(Option<Instant>);

impl Alarm {
    /// Sets the alarm for `at`. Returns false if it is set for that time or earlier.
    #[inline]
    pub fn set(&mut self, at: Instant) -> bool {
        let is_earlier = self.0.is_none_or(|earlier| at < earlier);
        if is_earlier {
            self.0 = Some(at);
        }
        is_earlier
    }

    /// True if the alarm is set.
    #[inline]
    #[must_use]
    pub const fn is_set(self) -> bool {
        self.0.is_some()
    }

    /// Ends the alarm if it is set for `now`. Returns false if it is not: the event is out of date.
    #[inline]
    pub fn end(&mut self, now: Instant) -> bool {
        let is_due = self.0 == Some(now);
        if is_due {
            self.0 = None;
        }
        is_due
    }
}

impl Duration {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// Longest duration.
    pub const MAX: Self = Self(u64::MAX);

    /// A duration of `ns` nanoseconds.
    #[must_use]
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// A duration of `us` microseconds.
    #[must_use]
    pub const fn from_micros(us: u64) -> Self {
        Self(us * 1_000)
    }

    /// A duration of `ms` milliseconds.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms * 1_000_000)
    }

    /// A duration of `s` seconds.
    #[must_use]
    pub const fn from_secs(s: u64) -> Self {
        Self(s * 1_000_000_000)
    }

    /// A duration of `s` seconds, rounded to the nearest nanosecond; zero for negative numbers and NaN.
    #[must_use]
    pub fn from_secs_f64(s: f64) -> Self {
        Self((s * 1e9).round() as u64)
    }

    /// Nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// True if the duration is zero.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// This duration times `n`, saturating at [`Self::MAX`].
    #[must_use]
    pub const fn times(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }

    /// This duration times `factor`, rounded to the nearest nanosecond; zero for a negative factor.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        Self((self.0 as f64 * factor).round() as u64)
    }

    /// This duration minus `other`; zero if `other` is longer.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// This duration divided by `n`, rounded down.
    ///
    /// # Panics
    /// If `n` is zero.
    #[must_use]
    pub const fn part(self, n: u64) -> Self {
        Self(self.0 / n)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Sub for Instant {
    type Output = Duration;
    /// See [`Instant::since`].
    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

impl Add for Duration {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Duration {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl fmt::Display for Duration {
    /// Formats in the largest unit without decimals, as in a scenario file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("0 s"),
            ns if ns % 1_000_000_000 == 0 => write!(f, "{} s", ns / 1_000_000_000),
            ns if ns % 1_000_000 == 0 => write!(f, "{} ms", ns / 1_000_000),
            ns if ns % 1_000 == 0 => write!(f, "{} us", ns / 1_000),
            ns => write!(f, "{ns} ns"),
        }
    }
}

impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.as_nanos();
        write!(f, "{}.{:09} s", ns / 1_000_000_000, ns % 1_000_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_up_to_the_next_tick() {
        let tick = Duration::from_millis(5);
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        assert_eq!(at(12).round_up_to(tick), at(15));
        assert_eq!(at(15).round_up_to(tick), at(15));
        assert_eq!(at(0).round_up_to(tick), at(0));
    }

    #[test]
    fn instants_saturate_and_an_optional_one_is_as_small() {
        let last = Instant::from_nanos(u64::MAX);
        assert_eq!(last.as_nanos(), u64::MAX - 1);
        assert_eq!(Instant::ZERO + Duration::MAX, last);
        assert_eq!(size_of::<Option<Instant>>(), 8);
        assert_eq!((Instant::ZERO.as_nanos(), Instant::default()), (0, Instant::ZERO));
        assert!(Instant::ZERO.rank() < last.rank());
        assert_eq!((Instant::from_rank(last.rank()), Instant::from_rank(0)), (Some(last), None));
    }

    #[test]
    fn an_alarm_moves_earlier_and_ends_at_its_time_only() {
        let at = Instant::from_nanos;
        let mut alarm = Alarm::default();
        assert!(!alarm.is_set() && !alarm.end(at(0)));
        assert!(alarm.set(at(5)) && !alarm.set(at(5)) && !alarm.set(at(6)) && alarm.set(at(3)));
        assert!(!alarm.end(at(5)) && alarm.is_set() && alarm.end(at(3)) && !alarm.end(at(3)));
        assert!(alarm.set(at(7)));
    }

    #[test]
    fn displays_the_largest_unit_without_decimals() {
        assert_eq!(Duration::from_millis(1500).to_string(), "1500 ms");
        assert_eq!(Duration::from_secs(20).to_string(), "20 s");
        assert_eq!(Duration::from_nanos(8_320_001).to_string(), "8320001 ns");
    }

    #[test]
    fn seconds_are_the_nearest_float() {
        assert_eq!(Duration::from_secs(120).as_secs_f64(), 120.0);
        assert_eq!(Instant::from_nanos(300_000_000).as_secs_f64(), 0.3);
    }

    #[test]
    fn durations_are_never_negative() {
        let early = Instant::from_nanos(1);
        assert_eq!(early - Instant::from_nanos(5), Duration::ZERO);
        assert_eq!(Duration::from_secs_f64(-1.0), Duration::ZERO);
    }
}
