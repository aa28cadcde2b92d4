//! Viewings of adaptive video, as their viewers see them.

use std::sync::Arc;

use bentpipe_units::{Duration, Instant, Rate};

/// Index of a rate in the bitrate ladder, 0 for the lowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rung(pub u8);

impl Rung {
    /// The highest rate of the lowest `count`; the lowest rate for 0.
    pub(super) fn last(count: usize) -> Self {
        Self(count.saturating_sub(1) as u8)
    }

    /// The highest rate of at most this one; the lowest if none is.
    pub(super) fn within(ladder: &[Rate], most: Rate) -> Self {
        Self::last(ladder.iter().take_while(|rate| **rate <= most).count())
    }

    /// The index as a `usize`.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// State of playback, as the viewer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Playback {
    /// Nothing has been played yet.
    Startup,
    /// Media of this rate is played.
    Playing(Rung),
    /// A still picture: the buffer has run empty.
    Stalled,
}

/// A time during which the state of playback does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// State of playback.
    pub playback: Playback,
    /// Start.
    pub from: Instant,
    /// End.
    pub until: Instant,
}

impl Period {
    /// Its duration.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.until - self.from
    }
}

/// One viewing during the measurement.
///
/// Periods count from the start of the measurement: a stall that began before counts as one, with the time that is left of it.
/// The start-up delay counts if the viewing began in the measurement.
#[derive(Clone, Debug)]
pub struct Viewing {
    ladder: Arc<[Rate]>,
    opened: Instant,
    /// Start of the measurement.
    begin: Instant,
    periods: Vec<Period>,
}

impl Viewing {
    /// A viewing that is opened at `opened`, of which only what follows `begin` counts.
    #[must_use]
    pub fn new(ladder: Arc<[Rate]>, opened: Instant, begin: Instant) -> Self {
        Self { ladder, opened, begin, periods: Vec::new() }
    }

    /// The viewer has seen a period, which follows the one before.
    pub fn add(&mut self, mut period: Period) {
        period.from = period.from.max(self.begin);
        if period.from >= period.until {
            return;
        }
        match self.periods.last_mut() {
            Some(last) if last.playback == period.playback => last.until = period.until,
            _ => self.periods.push(period),
        }
    }

    /// The periods, in order of time; successive ones differ.
    #[must_use]
    pub fn periods(&self) -> &[Period] {
        &self.periods
    }

    /// Rate of what is played in a period; `None` if nothing is.
    #[must_use]
    pub fn rate(&self, period: &Period) -> Option<Rate> {
        match period.playback {
            Playback::Playing(rung) => Some(self.ladder[rung.index()]),
            Playback::Startup | Playback::Stalled => None,
        }
    }

    /// Time from the viewer's request to the start of playback; `None` if playback has not begun, or the viewing began before
    /// the measurement.
    #[must_use]
    pub fn startup_delay(&self) -> Option<Duration> {
        let played = self.periods.iter().find(|period| period.playback != Playback::Startup)?;
        (self.opened >= self.begin).then(|| played.from - self.opened)
    }

    /// Number of stalls.
    #[must_use]
    pub fn stalls(&self) -> u32 {
        self.stalled_periods().count() as u32
    }

    /// Duration of all stalls.
    #[must_use]
    pub fn stalled_time(&self) -> Duration {
        self.stalled_periods().fold(Duration::ZERO, |sum, stall| sum + stall.duration())
    }

    fn stalled_periods(&self) -> impl Iterator<Item = &Period> {
        self.periods.iter().filter(|period| period.playback == Playback::Stalled)
    }

    /// Media played.
    #[must_use]
    pub fn played_time(&self) -> Duration {
        self.played().fold(Duration::ZERO, |sum, (_, time)| sum + time)
    }

    /// Mean rate of the media played [bit/s]; NaN if nothing was.
    #[must_use]
    pub fn bitrate(&self) -> f64 {
        let bits = self.played().map(|(rate, time)| rate.as_bps() as f64 * time.as_secs_f64()).sum::<f64>();
        bits / self.played_time().as_secs_f64()
    }

    /// Number of changes of the rate that is played.
    #[must_use]
    pub fn switches(&self) -> u32 {
        let rates: Vec<_> = self.played().map(|(rate, _)| rate).collect();
        rates.windows(2).filter(|pair| pair[0] != pair[1]).count() as u32
    }

    /// Rates played, with their times.
    fn played(&self) -> impl Iterator<Item = (Rate, Duration)> {
        self.periods.iter().filter_map(|period| self.rate(period).map(|rate| (rate, period.duration())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// A viewing that began at `opened` [ms], and its periods: what the viewer saw, and until when [ms].
    fn viewing(opened: u64, begin: u64, periods: &[(Playback, u64)]) -> Viewing {
        let ladder = [Rate::from_bps(1_000_000), Rate::from_bps(3_000_000)].into();
        let mut viewing = Viewing::new(ladder, at(opened), at(begin));
        let mut from = opened;
        for &(playback, until) in periods {
            viewing.add(Period { playback, from: at(from), until: at(until) });
            from = until;
        }
        viewing
    }

    const LOW: Playback = Playback::Playing(Rung(0));
    const HIGH: Playback = Playback::Playing(Rung(1));

    #[test]
    fn periods_add_up() {
        let periods = [
            (Playback::Startup, 1500),
            (LOW, 5500),
            (LOW, 9500),
            (Playback::Stalled, 11_000),
            (HIGH, 15_000),
            (HIGH, 17_000),
            (Playback::Stalled, 18_000),
        ];
        let v = viewing(1000, 0, &periods);
        assert_eq!(v.startup_delay(), Some(Duration::from_millis(500)));
        assert_eq!((v.stalls(), v.stalled_time()), (2, Duration::from_millis(2500)));
        assert_eq!((v.played_time(), v.switches()), (Duration::from_secs(14), 1));
        // 8 s at 1 Mbit/s, 6 s at 3 Mbit/s.
        assert!((v.bitrate() - 26e6 / 14.0).abs() < 1e-3);
        assert_eq!(v.periods().len(), 5, "periods of the same rate are one");
    }

    #[test]
    fn a_stall_across_the_begin_of_the_measurement_counts_from_there() {
        let periods = [
            (Playback::Startup, 1000),
            (LOW, 5000),
            (Playback::Stalled, 9000),
            (HIGH, 13_000),
            (LOW, 14_000),
        ];
        let v = viewing(0, 6000, &periods);
        assert_eq!(v.startup_delay(), None);
        assert_eq!((v.stalls(), v.stalled_time()), (1, Duration::from_secs(3)));
        assert_eq!((v.played_time(), v.switches()), (Duration::from_secs(5), 1));
        assert!((v.bitrate() - 13e6 / 5.0).abs() < 1e-3);
    }

    #[test]
    fn a_viewing_without_playback_has_no_start_up_delay() {
        let v = viewing(1000, 0, &[(Playback::Startup, 9000)]);
        assert_eq!((v.startup_delay(), v.played_time()), (None, Duration::ZERO));
        assert!(v.bitrate().is_nan());
        assert_eq!(v.periods()[0].duration(), Duration::from_secs(8));
    }
}
