//! LEDBAT, low extra delay background transport (RFC 6817): yields to other traffic, because it keeps the delay that it adds
//! at a target.
//!
//! Section 2.4.2, for each ACK, with the round-trip time in place of the one-way delay:
//! - queueing delay: the least of the last `CURRENT_FILTER` samples, less the least of the last `BASE_HISTORY` minutes;
//! - `cwnd += GAIN (TARGET - queueing delay) / TARGET * acknowledged bytes * SMSS / cwnd`, which may be negative;
//! - `cwnd` at most a segment (`ALLOWED_INCREASE`) more than was outstanding before the ACK: an application with less to send
//!   lowers it;
//! - loss: half the window, at least `MIN_CWND` segments.
//!
//! Departures: a queue on the way back counts as well, as the round trip is measured; there is no slow start (section 2.4.2
//! allows it), so the window grows by a segment per round trip at most; the initial window is the configured one. The filter
//! of the current delay holds four samples; section 2.4.1 leaves it open.

use bentpipe_units::{Duration, Instant};

use super::{Acked, Control, Window};

/// Queueing delay that it aims at: the most that section 2.5 allows.
const TARGET: Duration = Duration::from_millis(100);
/// Response to the distance from the target: the most that section 2.5 allows.
const GAIN: f64 = 1.0;
/// Segments above what is outstanding: what section 2.4.2 recommends.
const ALLOWED_INCREASE: u64 = 1;
/// Segments at least.
const MIN_CWND: u64 = 2;
/// Minutes over which the least delay counts.
const BASE_HISTORY: usize = 10;
/// Samples of which the least is the current delay.
const CURRENT_FILTER: usize = 4;

const MINUTE: Duration = Duration::from_secs(60);

/// State of LEDBAT.
#[derive(Clone, Debug)]
pub(in crate::tcp) struct Ledbat {
    /// Minimum delay of each of the last minutes, by its number modulo their count; the greatest possible without a sample.
    base: [Duration; BASE_HISTORY],
    /// Number of the current minute.
    minute: u64,
    /// Last samples.
    current: [Duration; CURRENT_FILTER],
    /// Number of samples so far.
    samples: usize,
    /// Fraction of a byte of cwnd carried to the next ACK [bytes].
    fraction: f64,
}

const NONE: Duration = Duration::from_nanos(u64::MAX);

impl Default for Ledbat {
    fn default() -> Self {
        Self {
            base: [NONE; BASE_HISTORY],
            minute: 0,
            current: [NONE; CURRENT_FILTER],
            samples: 0,
            fraction: 0.0,
        }
    }
}

impl Ledbat {
    /// Queueing delay; `None` before the first sample.
    fn queueing_delay(&self) -> Option<Duration> {
        let current = self.current.iter().min().copied().filter(|delay| *delay < NONE)?;
        let base = self.base.iter().min().copied()?;
        Some(current.saturating_sub(base))
    }
}

impl Control for Ledbat {
    fn on_round_trip(
        &mut self,
        _window: &mut Window,
        rtt: Duration,
        _una: u64,
        _nxt: u64,
        _smss: u64,
        now: Instant,
    ) {
        let minute = now.since(Instant::ZERO).as_nanos() / MINUTE.as_nanos();
        let passed = minute - self.minute;
        for i in 1..=passed.min(BASE_HISTORY as u64) {
            self.base[(self.minute + i) as usize % BASE_HISTORY] = NONE;
        }
        self.minute = minute;
        let base = &mut self.base[minute as usize % BASE_HISTORY];
        *base = rtt.min(*base);
        self.current[self.samples % CURRENT_FILTER] = rtt;
        self.samples += 1;
    }

    /// The limit by what is outstanding takes the place of RFC 7661.
    fn may_grow(&self, _window: &Window, _is_limit: bool) -> bool {
        true
    }

    fn on_ack(&mut self, window: &mut Window, ack: &Acked, smss: u64, _now: Instant) {
        let Some(delay) = self.queueing_delay() else { return };
        // There is no slow start.
        window.set_ssthresh(window.cwnd.min(window.reduced()));
        let off_target = 1.0 - delay.as_secs_f64() / TARGET.as_secs_f64();
        let cwnd = window.cwnd as f64 + self.fraction;
        let wanted = cwnd + GAIN * off_target * ack.bytes as f64 * smss as f64 / cwnd.max(1.0);
        let most = ack.flight.saturating_add(ALLOWED_INCREASE * smss);
        let wanted = wanted.min(most as f64).max((MIN_CWND * smss) as f64);
        window.cwnd = wanted as u64;
        self.fraction = wanted - window.cwnd as f64;
    }

    fn on_congestion(&mut self, window: &mut Window, flight: u64, smss: u64, _now: Instant) {
        window.set_ssthresh((flight / 2).max(MIN_CWND * smss));
        self.fraction = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(ledbat: &mut Ledbat, window: &mut Window, ms: u64, at: u64) -> u64 {
        let now = Instant::ZERO + Duration::from_secs(at);
        ledbat.on_round_trip(window, Duration::from_millis(ms), 0, 0, 1000, now);
        let rtt = Duration::from_millis(ms);
        let acked = Acked { flight: window.cwnd, ..Acked::segment(rtt) };
        ledbat.on_ack(window, &acked, 1000, now);
        window.cwnd
    }

    /// A window of ten segments of 1000 bytes over a path of 50 ms: an ACK without queueing delay adds a tenth of a segment,
    /// one at half the target half of that, one at the target nothing, and one at twice the target takes a tenth away. The
    /// current delay is the least of four samples.
    #[test]
    fn window_follows_the_distance_from_the_target() {
        let (mut ledbat, mut window) = (Ledbat::default(), Window::new(10_000, None));
        assert_eq!(ack(&mut ledbat, &mut window, 50, 1), 10_100);
        window.cwnd = 10_000;
        ledbat.fraction = 0.0;
        for (ms, cwnd) in [(100, 10_050), (150, 10_000), (250, 9900)] {
            window.cwnd = 10_000;
            ledbat.fraction = 0.0;
            for _ in 0..CURRENT_FILTER - 1 {
                ledbat.on_round_trip(&mut window, Duration::from_millis(ms), 0, 0, 1000, Instant::ZERO);
            }
            assert_eq!(ack(&mut ledbat, &mut window, ms, 1), cwnd, "at {ms} ms");
        }
    }

    /// 9000 + 1e6 / 9000 = 9111.1, + 1e6 / 9111.1 = 9220.9, + 1e6 / 9220.9 = 9329.3, which needs the fractions of a byte. Without
    /// a sample of the delay there is no growth.
    #[test]
    fn window_grows_by_a_segment_per_round_trip_without_a_queue() {
        let (mut ledbat, mut window) = (Ledbat::default(), Window::new(9000, None));
        let acked = Acked { flight: 9000, ..Acked::segment(Duration::ZERO) };
        ledbat.on_ack(&mut window, &acked, 1000, Instant::ZERO);
        assert_eq!(window.cwnd, 9000);
        for cwnd in [9111, 9220, 9329] {
            assert_eq!(ack(&mut ledbat, &mut window, 50, 1), cwnd);
        }
    }

    /// Section 2.4.2: `CURRENT_FILTER` = 4 samples, of which the least is the current delay, here over a base of 50 ms.
    #[test]
    fn the_least_of_four_samples_is_the_current_delay() {
        let (mut ledbat, mut window) = (Ledbat::default(), Window::new(10_000, None));
        for (ms, delay) in
            [(50, 0), (150, 0), (120, 0), (150, 0), (150, 70), (150, 70), (150, 100), (110, 60), (150, 60)]
        {
            ack(&mut ledbat, &mut window, ms, 1);
            assert_eq!(ledbat.queueing_delay(), Some(Duration::from_millis(delay)));
        }
    }

    /// Twice the target, 200 ms of queueing delay, would take 1e6 / 2100 = 476 bytes from 2100.
    #[test]
    fn delay_leaves_two_segments_of_window() {
        let (mut ledbat, mut window) = (Ledbat::default(), Window::new(2100, None));
        ledbat.base[0] = Duration::from_millis(50);
        assert_eq!(ack(&mut ledbat, &mut window, 250, 1), 2000);
    }

    /// Section 2.4.2: at most a segment more than was outstanding before the ACK, and two segments at least.
    #[test]
    fn window_falls_to_a_segment_more_than_the_application_uses() {
        let (mut ledbat, mut window) = (Ledbat::default(), Window::new(10_000, None));
        ledbat.on_round_trip(&mut window, Duration::from_millis(50), 0, 0, 1000, Instant::ZERO);
        for (flight, cwnd) in [(10_000, 10_100), (9099, 10_099), (9000, 10_000), (5000, 6000), (0, 2000)] {
            let acked = Acked { flight, ..Acked::segment(Duration::ZERO) };
            ledbat.on_ack(&mut window, &acked, 1000, Instant::ZERO);
            assert_eq!(window.cwnd, cwnd, "{flight} bytes outstanding");
        }
    }

    /// A route that has become longer is the base once the ten minutes in which the shorter one was seen have passed.
    #[test]
    fn base_delay_is_forgotten_after_ten_minutes() {
        let (mut ledbat, mut window) = (Ledbat::default(), Window::new(10_000, None));
        for first in [0, 25] {
            ack(&mut ledbat, &mut window, 50, 60 * first + 30);
            for minute in first + 1..=first + 9 {
                ack(&mut ledbat, &mut window, 150, 60 * minute);
            }
            let delay = ledbat.queueing_delay();
            assert_eq!(delay, Some(Duration::from_millis(100)));
            ack(&mut ledbat, &mut window, 150, 60 * (first + 10));
            assert_eq!(ledbat.queueing_delay(), Some(Duration::ZERO));
        }
    }

    #[test]
    fn loss_halves_the_window_down_to_two_segments() {
        let (mut ledbat, mut window) = (Ledbat::default(), Window::new(10_000, None));
        ledbat.on_congestion(&mut window, 10_000, 1000, Instant::ZERO);
        assert_eq!(window.ssthresh(), Some(5000));
        ledbat.on_congestion(&mut window, 3000, 1000, Instant::ZERO);
        assert_eq!(window.ssthresh(), Some(2000));
    }
}
