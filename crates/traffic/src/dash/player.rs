//! A player of adaptive video: its buffer and its playback.
//!
//! Playback is continuous. The player looks at it only when a segment arrives or the viewing ends, and computes the time at
//! which the buffer ran empty in between.

use std::collections::VecDeque;

use bentpipe_scenario::{Controller, Dash};
use bentpipe_units::{Duration, Instant, Rate, Rng};

use super::controller::{Throughput, bba, bola};
use super::viewing::{Period, Playback, Rung};

/// A player during one viewing.
#[derive(Clone, Debug)]
pub struct Player {
    state: State,
    /// Time up to which playback is known.
    at: Instant,
    /// Segments in the buffer.
    segments: VecDeque<Rung>,
    /// Media of the first segment that have been played.
    played: Duration,
    /// Segment that was requested last, and the time of its request.
    rung: Rung,
    requested: Instant,
    throughput: Throughput,
    sizes: Rng,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waits until playback can begin.
    Startup,
    Playing,
    /// Waits until playback can continue.
    Stalled,
}

impl Player {
    /// A player whose viewing begins now; `sizes` draws the sizes of segments.
    #[must_use]
    pub fn new(now: Instant, sizes: Rng) -> Self {
        Self {
            state: State::Startup,
            at: now,
            segments: VecDeque::new(),
            played: Duration::ZERO,
            rung: Rung(0),
            requested: now,
            throughput: Throughput::default(),
            sizes,
        }
    }

    /// Requests the next segment, of at most the advised rate if the ladder has one; returns its size [bytes].
    pub fn request(&mut self, dash: &Dash, advised: Option<Rate>, now: Instant) -> u64 {
        let chosen = match dash.controller {
            Controller::Bba => bba(dash, self.level(dash, now), self.rung),
            Controller::Bola => bola(dash, self.level(dash, now)),
            Controller::Rate => self.throughput.choose(&dash.ladder),
        };
        self.rung = advised.map_or(chosen, |rate| chosen.min(Rung::within(&dash.ladder, rate)));
        self.requested = now;
        let bits = dash.ladder[self.rung.index()].as_bps() as f64 * dash.segment.as_secs_f64();
        let variation = dash.size_variation.as_ref().map_or(1.0, |v| v.draw(&mut self.sizes) as f64 * 1e-6);
        ((bits * variation / 8.0).round() as u64).max(1)
    }

    /// The requested segment has arrived; returns the time at which to request the next.
    pub fn receive(&mut self, dash: &Dash, bytes: u64, now: Instant, seen: impl FnMut(Period)) -> Instant {
        self.advance(dash, now, seen);
        self.throughput.add(bytes, now - self.requested);
        self.segments.push_back(self.rung);
        let level = self.level(dash, now);
        let needed = match self.state {
            State::Startup => dash.startup,
            State::Playing => Duration::ZERO,
            State::Stalled => dash.rebuffer,
        };
        if level >= needed {
            self.state = State::Playing;
        }
        // What is too much for another segment is played first. A player that waits has room: the thresholds of playback are at
        // most the whole segments that fit.
        now + (level + dash.segment).saturating_sub(dash.buffer)
    }

    /// Plays until `now`; `seen` gets the periods that the viewer has seen since the last call.
    pub fn advance(&mut self, dash: &Dash, now: Instant, mut seen: impl FnMut(Period)) {
        while self.at < now {
            let (playback, until) = match (self.state, self.segments.front()) {
                (State::Startup, _) => (Playback::Startup, now),
                (State::Playing, Some(&rung)) => {
                    (Playback::Playing(rung), now.min(self.at + dash.segment.saturating_sub(self.played)))
                }
                (State::Playing, None) | (State::Stalled, _) => {
                    self.state = State::Stalled;
                    (Playback::Stalled, now)
                }
            };
            seen(Period { playback, from: self.at, until });
            if let Playback::Playing(_) = playback {
                self.played += until - self.at;
                if self.played == dash.segment {
                    self.segments.pop_front();
                    self.played = Duration::ZERO;
                }
            }
            self.at = until;
        }
    }

    /// Media in the buffer at `now`.
    fn level(&self, dash: &Dash, now: Instant) -> Duration {
        let level = dash.segment.times(self.segments.len() as u64).saturating_sub(self.played);
        if self.state == State::Playing { level.saturating_sub(now.since(self.at)) } else { level }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use bentpipe_scenario::{Distribution, TransportIndex};
    use bentpipe_units::Rate;

    use super::*;

    const START: Playback = Playback::Startup;
    const STALL: Playback = Playback::Stalled;

    fn play(rung: u8) -> Playback {
        Playback::Playing(Rung(rung))
    }

    /// Segments of 4 s at these rates [kbit/s], and a buffer [s].
    pub fn dash(ladder: &[u64], buffer: u64) -> Dash {
        let segment = Duration::from_secs(4);
        Dash {
            transport: TransportIndex(0),
            flows: 1,
            ladder: ladder.iter().map(|kbps| Rate::from_bps(1000 * kbps)).collect(),
            segment,
            buffer: Duration::from_secs(buffer),
            startup: segment,
            rebuffer: segment,
            controller: Controller::Bba,
            size_variation: None,
            request_size: 300,
            watch: None,
            think_time: Distribution::Fixed(Duration::ZERO),
            start: Distribution::Fixed(Duration::ZERO),
            ramp: None,
            away: Vec::new(),
        }
    }

    /// Playback until `end` [s] over a network of constant throughput [kbit/s] that delivers nothing during an
    /// outage: states, and their ends [s]. Periods of the same state are one.
    fn watch(dash: &Dash, kbps: u64, outage: (u64, u64), end: u64) -> Vec<(Playback, f64)> {
        let secs = |s| Instant::ZERO + Duration::from_secs(s);
        let outage = (secs(outage.0), secs(outage.1));
        let mut seen: Vec<(Playback, f64)> = Vec::new();
        let mut add = |period: Period| {
            assert!(period.from < period.until);
            let until = period.until.as_secs_f64();
            match seen.last_mut() {
                Some(last) if last.0 == period.playback => last.1 = until,
                _ => seen.push((period.playback, until)),
            }
        };
        let mut player = Player::new(Instant::ZERO, Rng::stream(1, "player", 0, "test"));
        let mut now = Instant::ZERO;
        while now < secs(end) {
            let bytes = player.request(dash, None, now);
            let mut arrival = now + Duration::from_nanos(bytes * 8_000_000 / kbps);
            if now < outage.1 && arrival > outage.0 {
                arrival += outage.1 - outage.0.max(now);
            }
            if arrival > secs(end) {
                break;
            }
            now = player.receive(dash, bytes, arrival, &mut add);
        }
        player.advance(dash, secs(end), &mut add);
        seen
    }

    /// Of 20 s, 7.5 s are the reservoir; 16 s are the highest level at a request. A segment takes 0.5 s at 1 Mbit/s. Those at
    /// 0.5, 1, 1.5, 2 and 2.5 s bring 4, 7.5, 11, 14.5 and 18 s; 2 s later the level is 16 s and the next segment has 2 Mbit/s.
    #[test]
    fn throughput_above_the_ladder_ends_at_the_highest_rung() {
        let seen = watch(&dash(&[1000, 2000], 20), 8000, (0, 0), 60);
        assert_eq!(seen, [(START, 0.5), (play(0), 20.5), (play(1), 60.0)]);
    }

    /// Each segment of 4 s takes 5 s.
    #[test]
    fn throughput_below_the_ladder_stalls_at_every_segment() {
        let seen = watch(&dash(&[1000], 20), 800, (0, 0), 22);
        let p = play(0);
        let expected = [
            (START, 5.0),
            (p, 9.0),
            (STALL, 10.0),
            (p, 14.0),
            (STALL, 15.0),
            (p, 19.0),
            (STALL, 20.0),
            (p, 22.0),
        ];
        assert_eq!(seen, expected);
    }

    /// As above, but a stall ends with two segments: that of 9 s at 15 s. The media then last 8 s and 4 s more for each segment in
    /// time, those of 20 s to 35 s: until 39 s.
    #[test]
    fn a_stall_ends_when_the_buffer_has_enough() {
        let dash = Dash { rebuffer: Duration::from_secs(8), ..dash(&[1000], 20) };
        let seen = watch(&dash, 800, (0, 0), 66);
        let p = play(0);
        assert_eq!(seen, [(START, 5.0), (p, 9.0), (STALL, 15.0), (p, 39.0), (STALL, 45.0), (p, 66.0)]);
    }

    /// A segment takes 1 s. With 12 s at most, requests are at 1, 2, 5 s and every 4 s from there, at a level of 8 s; that of
    /// 21 s is answered after the outage of 20 s, at 42 s. The media last until 29 s.
    #[test]
    fn an_outage_longer_than_the_buffer_is_one_stall() {
        let seen = watch(&dash(&[1000], 12), 4000, (21, 41), 60);
        assert_eq!(seen, [(START, 1.0), (play(0), 29.0), (STALL, 42.0), (play(0), 60.0)]);
        let short = watch(&dash(&[1000], 12), 4000, (21, 28), 60);
        assert_eq!(short, [(START, 1.0), (play(0), 60.0)], "the segment arrives when the buffer runs empty");
    }

    /// 85 % of 2.4 Mbit/s are 2.04 Mbit/s. The first segment has the lowest rate.
    #[test]
    fn throughput_controller_uses_a_share_of_the_throughput() {
        let mut dash = dash(&[1000, 2000, 3000], 20);
        dash.controller = Controller::Rate;
        let seen = watch(&dash, 2400, (0, 0), 40);
        assert_eq!(seen.len(), 3);
        assert_eq!((seen[1].0, seen[2].0), (play(0), play(1)));
        assert!((seen[2].1 - 40.0).abs() < 1e-9 && (seen[1].1 - seen[0].1 - 4.0).abs() < 1e-6, "{seen:?}");
    }

    #[test]
    fn a_segment_is_its_rate_times_its_duration_times_its_variation() {
        let mut dash = dash(&[1000], 20);
        let mut player = Player::new(Instant::ZERO, Rng::stream(1, "player", 0, "test"));
        assert_eq!(player.request(&dash, None, Instant::ZERO), 500_000);
        dash.size_variation = Some(Distribution::Fixed(1_250_000));
        assert_eq!(player.request(&dash, None, Instant::ZERO), 625_000);
    }

    /// A full buffer asks for the highest rate. Segments of 4 s at 1, 2 and 3 Mbit/s have 0.5, 1 and 1.5 MB.
    #[test]
    fn a_player_stays_within_the_advice() {
        let dash = dash(&[1000, 2000, 3000], 20);
        let mut player = Player::new(Instant::ZERO, Rng::stream(1, "player", 0, "test"));
        player.segments = [Rung(0); 4].into();
        let mut bytes = |kbps: Option<u64>| {
            player.request(&dash, kbps.map(|kbps| Rate::from_bps(1000 * kbps)), Instant::ZERO)
        };
        assert_eq!(bytes(None), 1_500_000);
        assert_eq!(
            [2999, 2000, 1999, 999].map(|kbps| bytes(Some(kbps))),
            [1_000_000, 1_000_000, 500_000, 500_000]
        );
    }
}
