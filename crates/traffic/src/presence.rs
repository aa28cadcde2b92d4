//! Presence of users: by periods of absence, and by the profile of a day.

use bentpipe_scenario::{Absence, Profile};
use bentpipe_units::{Duration, Instant};

/// Presence of the users of a traffic entry.
#[derive(Clone, Debug, Default)]
pub struct Presence {
    away: Vec<Absence>,
    profile: Option<DayProfile>,
    /// Number of users.
    count: u32,
    /// Users from this number on are away for good; `None` if none is.
    limit: Option<u32>,
}

impl Presence {
    /// Presence of `count` users: none of them in the periods `away`, and as many of them as the profile says.
    #[must_use]
    pub fn new(away: Vec<Absence>, profile: Option<&Profile>, count: u32) -> Self {
        Self { away, profile: profile.map(DayProfile::new), count, limit: None }
    }

    /// Changes the number of users: those from number `users` on do not return.
    pub fn set_users(&mut self, users: u32) {
        self.limit = Some(users);
    }

    /// True if the number of users present changes over a day.
    #[must_use]
    pub fn has_profile(&self) -> bool {
        self.profile.is_some()
    }

    /// Returns the share of users from which on user `number` is present: as many users are present as the profile's share
    /// of them, rounded, and always the first ones.
    fn level(&self, number: u32) -> f64 {
        (f64::from(number) + 0.5) / f64::from(self.count)
    }

    /// Returns `at` if user `number` is present, else the time of the return; `None` without a return.
    #[must_use]
    pub fn present(&self, number: u32, at: Instant) -> Option<Instant> {
        if self.limit.is_some_and(|limit| number >= limit) {
            return None;
        }
        let mut at = self.back(at);
        if let Some(profile) = &self.profile {
            // An absence may end while the profile has the user away, and the other way round.
            loop {
                let there = profile.present(self.level(number), at)?;
                at = self.back(there);
                if at == there {
                    break;
                }
            }
        }
        Some(at)
    }

    /// Returns the time at which user `number`, who is present, leaves; `None` if the user stays.
    #[must_use]
    pub fn leaves(&self, number: u32, now: Instant) -> Option<Instant> {
        let absence = self.away.iter().map(|absence| Instant::ZERO + absence.from).find(|from| *from > now);
        let profile = self.profile.as_ref().and_then(|profile| profile.leaves(self.level(number), now));
        absence.into_iter().chain(profile).min()
    }

    /// Returns the time of the arrival that follows one at `last`. `interval` draws the time between two at the profile's peak;
    /// at a share of it, time counts by that share. An arrival during an absence is left out, and the next interval begins
    /// with the return.
    pub fn next_arrival(&self, last: Instant, mut interval: impl FnMut() -> Duration) -> Instant {
        let mut after = |from: Instant| match &self.profile {
            Some(profile) => profile.after(from, interval()),
            None => from + interval(),
        };
        let mut at = after(last);
        loop {
            let back = self.back(at);
            if back == at {
                return at;
            }
            at = after(back);
        }
    }

    /// Returns `at`, or the end of the absence that it falls in.
    fn back(&self, at: Instant) -> Instant {
        let since = at.since(Instant::ZERO);
        let absence = self.away.iter().find(|absence| (absence.from..absence.until).contains(&since));
        absence.map_or(at, |absence| Instant::ZERO + absence.until)
    }
}

/// Profile of a day: a share that is linear between points, and repeats.
#[derive(Clone, Debug)]
struct DayProfile {
    /// Length of a day [ns].
    day: u64,
    /// Start [ns], end [ns], and the shares there, from time zero to the end of the day.
    pieces: Vec<Piece>,
    /// Integral over a day [ns].
    whole: f64,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    from: u64,
    to: u64,
    first: f64,
    last: f64,
}

impl Piece {
    fn length(&self) -> f64 {
        (self.to - self.from) as f64
    }

    fn slope(&self) -> f64 {
        (self.last - self.first) / self.length()
    }

    fn share(&self, at: u64) -> f64 {
        self.first + self.slope() * (at - self.from) as f64
    }

    /// Integral from `at` to the end [ns].
    fn rest(&self, at: u64) -> f64 {
        f64::midpoint(self.share(at), self.last) * (self.to - at) as f64
    }

    /// Part in which the share is at least `level`, as start and end; empty if they are equal.
    fn above(&self, level: f64) -> (u64, u64) {
        let crossing = || {
            let offset = (level - self.first) / (self.last - self.first) * self.length();
            (self.from + offset.ceil() as u64).min(self.to)
        };
        match (self.first >= level, self.last >= level) {
            (true, true) => (self.from, self.to),
            (true, false) => (self.from, crossing()),
            (false, true) => (crossing(), self.to),
            (false, false) => (self.to, self.to),
        }
    }
}

impl DayProfile {
    fn new(profile: &Profile) -> Self {
        let day = profile.day.as_nanos();
        let points: Vec<(u64, f64)> =
            profile.points.iter().map(|(at, share)| (at.as_nanos(), *share)).collect();
        // The last point of the day before, and the first of the day after.
        let around = |i: usize| match i {
            0 => points.last().map(|(at, share)| (*at as i64 - day as i64, *share)),
            i if i > points.len() => points.first().map(|(at, share)| ((at + day) as i64, *share)),
            i => points.get(i - 1).map(|(at, share)| (*at as i64, *share)),
        };
        let mut pieces = Vec::new();
        for i in 0..=points.len() {
            let (Some((from, first)), Some((to, last))) = (around(i), around(i + 1)) else { continue };
            let at = |time: i64| first + (last - first) * (time - from) as f64 / (to - from) as f64;
            let (start, end) = (from.max(0), to.min(day as i64));
            if start < end {
                pieces.push(Piece { from: start as u64, to: end as u64, first: at(start), last: at(end) });
            }
        }
        let whole = pieces.iter().map(|piece| piece.rest(piece.from)).sum();
        Self { day, pieces, whole }
    }

    /// Splits a time into the start of its day and the time of day [ns].
    fn split(&self, at: Instant) -> (u64, u64) {
        let at = at.since(Instant::ZERO).as_nanos();
        (at - at % self.day, at % self.day)
    }

    fn present(&self, level: f64, at: Instant) -> Option<Instant> {
        let (day, time) = self.split(at);
        let mut parts = self.pieces.iter().map(|piece| piece.above(level)).filter(|(from, to)| from < to);
        let first = parts.next()?;
        let next = std::iter::once(first).chain(parts).find(|(_, to)| *to > time);
        let until = next.map_or(day + self.day + first.0, |(from, _)| day + from.max(time));
        Some(Instant::ZERO + Duration::from_nanos(until))
    }

    fn leaves(&self, level: f64, now: Instant) -> Option<Instant> {
        let (day, _) = self.split(now);
        let now = now.since(Instant::ZERO).as_nanos();
        // A gap in the presence repeats daily, so today and tomorrow have one if there is any.
        let mut stays = None;
        for day in [day, day + self.day] {
            for (from, to) in
                self.pieces.iter().map(|piece| piece.above(level)).filter(|(from, to)| from < to)
            {
                let (from, to) = (day + from, day + to);
                match stays {
                    None if (from..to).contains(&now) => stays = Some(to),
                    Some(until) if until == from => stays = Some(to),
                    Some(_) => break,
                    None => {}
                }
            }
        }
        stays.filter(|until| *until < day + 2 * self.day).map(|ns| Instant::ZERO + Duration::from_nanos(ns))
    }

    fn after(&self, last: Instant, interval: Duration) -> Instant {
        let (mut day, mut time) = self.split(last);
        let mut left = interval.as_nanos() as f64;
        let days = (left / self.whole).floor();
        day = day.saturating_add((days * self.day as f64) as u64);
        left -= days * self.whole;
        // The rest is less than a day's integral, but the time may lie in the middle of a day.
        for _ in 0..=2 {
            for piece in self.pieces.iter().filter(|piece| piece.to > time) {
                let from = time.max(piece.from);
                let rest = piece.rest(from);
                if left < rest {
                    let (share, slope) = (piece.share(from), piece.slope());
                    let root = (share * share + 2.0 * slope * left).max(0.0).sqrt();
                    let offset = if left > 0.0 { 2.0 * left / (share + root) } else { 0.0 };
                    let at = day.saturating_add(from).saturating_add(offset.round() as u64);
                    return Instant::ZERO + Duration::from_nanos(at);
                }
                left -= rest;
            }
            (day, time) = (day.saturating_add(self.day), 0);
        }
        Instant::ZERO + Duration::from_nanos(day)
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_units::Rng;

    use super::*;

    fn at(seconds: f64) -> Instant {
        Instant::ZERO + Duration::from_secs_f64(seconds)
    }

    /// A day of 24 s: a share of 0.2 at 6 s, 1 at 18 s, and linear between them.
    fn presence(count: u32) -> Presence {
        let points = [(6, 0.2), (18, 1.0)].map(|(at, share)| (Duration::from_secs(at), share)).to_vec();
        Presence::new(Vec::new(), Some(&Profile { day: Duration::from_secs(24), points }), count)
    }

    /// Integral of that share [s].
    fn integral(from: f64, to: f64) -> f64 {
        let share = |t: f64| {
            0.2 + 0.8
                * (1.0
                    - (t.rem_euclid(24.0) - 18.0).abs().min(24.0 - (t.rem_euclid(24.0) - 18.0).abs()) / 12.0)
        };
        let steps = 200_000;
        (0..steps).map(|i| share(from + (to - from) * (f64::from(i) + 0.5) / f64::from(steps))).sum::<f64>()
            * (to - from)
            / f64::from(steps)
    }

    /// Of ten users, the first two stay all day. The sixth, at a share of 0.55, comes at 6 + 12 (0.55 - 0.2) / 0.8 = 11.25 s and
    /// leaves at 24.75 s, that is 0.75 s into the next day. The tenth, at 0.95, is there from 17.25 to 18.75 s.
    #[test]
    fn users_come_and_leave_where_the_profile_crosses_their_share() {
        let p = presence(10);
        let round = |at: Instant| (at.since(Instant::ZERO).as_secs_f64() * 1e6).round() / 1e6;
        assert_eq!((p.present(1, at(6.0)), p.leaves(1, at(6.0))), (Some(at(6.0)), None));
        assert_eq!(p.present(5, at(0.0)).map(round), Some(0.0));
        assert_eq!(p.leaves(5, at(0.0)).map(round), Some(0.75));
        assert_eq!(p.present(5, p.leaves(5, at(0.0)).unwrap()).map(round), Some(11.25));
        assert_eq!(p.leaves(5, at(12.0)).map(round), Some(24.75));
        assert_eq!(p.present(9, at(19.0)).map(round), Some(24.0 + 17.25));
        assert_eq!(p.leaves(9, at(18.0)).map(round), Some(18.75));
    }

    #[test]
    fn number_of_users_is_the_rounded_share_of_all() {
        let p = presence(200);
        for (time, share) in
            [(0.0, 0.6), (6.0, 0.2), (12.0, 0.6), (18.0, 1.0), (23.0, 0.2 + 0.8 * 7.0 / 12.0), (30.0, 0.2)]
        {
            let there = (0..200).filter(|number| p.present(*number, at(time)) == Some(at(time))).count();
            assert!((there as f64 - 200.0 * share).abs() <= 1.0, "{there} at {time} s");
        }
    }

    #[test]
    fn absences_hold_beside_the_profile() {
        let absent = Absence { from: Duration::from_secs(10), until: Duration::from_secs(20) };
        let p = Presence { away: vec![absent], ..presence(10) };
        let round = |at: Instant| (at.since(Instant::ZERO).as_secs_f64() * 1e6).round() / 1e6;
        assert_eq!(p.leaves(0, at(1.0)), Some(at(10.0)));
        assert_eq!(p.present(0, at(12.0)), Some(at(20.0)));
        // The tenth is away from 18.75 s on.
        assert_eq!(p.present(9, at(12.0)).map(round), Some(24.0 + 17.25));
    }

    /// Time counts by the share: an interval of x ends where the share's integral is x.
    #[test]
    fn constant_intervals_end_where_the_integral_says() {
        let p = presence(1);
        for (from, interval) in [(0.0, 1.0), (5.0, 0.3), (17.0, 4.0), (20.0, 14.4), (3.0, 40.0)] {
            let next = p
                .next_arrival(at(from), || Duration::from_secs_f64(interval))
                .since(Instant::ZERO)
                .as_secs_f64();
            assert!((integral(from, next) - interval).abs() < 1e-4, "{from} {interval}: {next}");
        }
    }

    /// A Poisson process with a mean interval of 10 ms at the peak: the expected number of arrivals in a window is the share's
    /// integral over 10 ms. The number is within four standard deviations, the square root of its mean.
    #[test]
    fn arrivals_of_a_window_match_the_integral_of_the_share() {
        let p = presence(1);
        let mut rng = Rng::stream(1, "presence", 0, "test");
        let mut counts = [0u32; 16];
        let mut now = Instant::ZERO;
        loop {
            now = p.next_arrival(now, || Duration::from_secs_f64(rng.exponential(0.01)));
            let window = now.since(Instant::ZERO).as_nanos() / 6_000_000_000;
            let Some(count) = counts.get_mut(window as usize) else { break };
            *count += 1;
        }
        for (i, count) in counts.iter().enumerate() {
            let expected = integral(6.0 * i as f64, 6.0 * (i + 1) as f64) / 0.01;
            assert!(
                (f64::from(*count) - expected).abs() < 4.0 * expected.sqrt(),
                "{count} instead of {expected}"
            );
        }
    }
}
