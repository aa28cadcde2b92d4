//! HyStart of Ha and Rhee ("Taming the elephants: New TCP slow start", Computer Networks 55, 2011, section 4), as in
//! `net/ipv4/tcp_cubic.c` of Linux 6: once `cwnd` is 16 segments, either of two conditions ends slow start.
//!
//! A round ends with an ACK of data sent after its start. Within a round:
//! - ACK train: ACKs at most 2 ms apart have arrived for longer than half of `D_min + 1 ms`, so the window fills the
//!   path in one direction;
//! - delay: the minimum RTT, from the ninth sample on, exceeds `D_min + clamp(D_min / 8, 4 ms, 16 ms)`.
//!
//! `D_min` is the minimum RTT since the connection began or since a timeout. After a timeout HyStart may end the
//! following slow start too; it ends only one slow start per timeout.
//!
//! Departures: Linux uses less than the 1 ms if 256 KiB take less time to send, above 2 Gbit/s; it doubles the train
//! time if the kernel paces the window.

use bentpipe_units::{Duration, Instant};

use super::Window;

/// `hystart_low_window` [segments].
const LOW_WINDOW: u64 = 16;
/// `hystart_ack_delta_us`: maximum spacing of the ACKs of a train.
const ACK_DELTA: Duration = Duration::from_millis(2);
/// `hystart_ack_delay()`: spread of the ACKs of segments sent together.
const ACK_DELAY: Duration = Duration::from_millis(1);
/// `HYSTART_MIN_SAMPLES`.
const SAMPLES: u32 = 8;
/// `HYSTART_DELAY_MIN` and `HYSTART_DELAY_MAX`.
const THRESHOLD: [Duration; 2] = [Duration::from_millis(4), Duration::from_millis(16)];

/// State of HyStart.
#[derive(Clone, Debug)]
pub(in crate::tcp) struct HyStart {
    /// `end_seq`: an ACK above it starts the next round.
    end: u64,
    round_start: Instant,
    /// Time of the last ACK of the train.
    last_ack: Instant,
    /// Minimum RTT of the round; `MAX` before the first sample.
    current: Duration,
    samples: u32,
    /// D_min; `MAX` before the first sample.
    min_rtt: Duration,
    found: bool,
}

impl Default for HyStart {
    fn default() -> Self {
        Self {
            // Position of the SYN: the first ACK of data starts a round.
            end: 1,
            round_start: Instant::ZERO,
            last_ack: Instant::ZERO,
            current: Duration::MAX,
            samples: 0,
            min_rtt: Duration::MAX,
            found: false,
        }
    }
}

impl HyStart {
    /// Processes an ACK of new data up to `una` with an RTT of `rtt`, before the window grows for it; everything below
    /// `nxt` was sent.
    pub(in crate::tcp) fn on_ack(
        &mut self,
        window: &mut Window,
        rtt: Duration,
        una: u64,
        nxt: u64,
        smss: u64,
        now: Instant,
    ) {
        self.min_rtt = self.min_rtt.min(rtt);
        if self.found || !window.is_in_slow_start() {
            return;
        }
        if una > self.end {
            self.end = nxt;
            self.round_start = now;
            self.last_ack = now;
            self.current = Duration::MAX;
            self.samples = 0;
        }
        if window.cwnd < LOW_WINDOW * smss {
            return;
        }
        if now - self.last_ack <= ACK_DELTA {
            self.last_ack = now;
            self.found = now - self.round_start > (self.min_rtt + ACK_DELAY).part(2);
        }
        self.current = self.current.min(rtt);
        if self.samples < SAMPLES {
            self.samples += 1;
        } else {
            let threshold = self.min_rtt.part(8).max(THRESHOLD[0]).min(THRESHOLD[1]);
            self.found |= self.current > self.min_rtt + threshold;
        }
        if self.found {
            window.set_ssthresh(window.cwnd);
        }
    }

    /// D_min, `delay_min` of CUBIC too; zero before the first sample.
    pub(in crate::tcp) fn min_rtt(&self) -> Duration {
        if self.min_rtt == Duration::MAX { Duration::ZERO } else { self.min_rtt }
    }

    /// Resets after a timeout: `bictcp_reset()` and `bictcp_hystart_reset()`.
    pub(in crate::tcp) fn on_timeout(&mut self, nxt: u64, now: Instant) {
        *self = Self { end: nxt, round_start: now, last_ack: now, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A round of ACKs of one segment each, `(ms, rtt in ms)`, from `una` segments on. Returns the index of the ACK
    /// that ended slow start.
    fn round(h: &mut HyStart, window: &mut Window, una: u64, acks: &[(u64, u64)]) -> Option<usize> {
        let nxt = (una + acks.len() as u64) * 1000 + 1;
        acks.iter().enumerate().find_map(|(i, &(ms, rtt))| {
            let (now, rtt) = (Instant::ZERO + Duration::from_millis(ms), Duration::from_millis(rtt));
            h.on_ack(window, rtt, (una + i as u64) * 1000 + 1001, nxt, 1000, now);
            (window.ssthresh() == Some(window.cwnd)).then_some(i)
        })
    }

    fn start(segments: u64) -> (HyStart, Window) {
        (HyStart::default(), Window::new(segments * 1000, None))
    }

    /// With an RTT of 40 ms, the train suffices once it has lasted for more than 20.5 ms; with 39 ms, for more than 20 ms.
    #[test]
    fn an_ack_train_of_half_an_rtt_ends_slow_start() {
        for (rtt, ended) in [(40, 11), (39, 11), (38, 10)] {
            let (mut h, mut window) = start(16);
            let acks: Vec<_> = (0..30).map(|i| (100 + 2 * i, rtt)).collect();
            assert_eq!(round(&mut h, &mut window, 0, &acks), Some(ended), "{rtt} ms");
            assert_eq!(window.ssthresh(), Some(16_000));
        }
    }

    /// A gap of 3 ms ends the train.
    #[test]
    fn a_gap_breaks_the_train() {
        let (mut h, mut window) = start(16);
        let acks: Vec<_> = (0..30).map(|i| (100 + 2 * i + u64::from(i > 3), 40)).collect();
        assert_eq!(round(&mut h, &mut window, 0, &acks), None);
    }

    /// 100 ms before, so the threshold is 112.5 ms: 113 ms exceeds it, with the ninth sample, the last of the round. After 80 ms,
    /// 90 ms does not exceed the threshold.
    #[test]
    fn longer_rtts_end_slow_start() {
        for (before, rtt, ended) in [(100, 112, None), (100, 113, Some(8)), (80, 90, None), (80, 91, Some(8))]
        {
            let (mut h, mut window) = start(16);
            assert_eq!(round(&mut h, &mut window, 0, &[(100, before)]), None);
            let acks: Vec<_> = (0..9).map(|i| (200 + 5 * i, rtt)).collect();
            assert_eq!(round(&mut h, &mut window, 1, &acks), ended, "{rtt} after {before}");
        }
    }

    /// With 15 segments it is inactive; having ended one slow start, it ends another only after a timeout. A round begins with the
    /// timeout, here at 300 ms, and lasts as long as ACKs are for data sent before: the train from then on is longer than 20.5 ms
    /// with the ACK at 321 ms.
    #[test]
    fn hystart_is_inactive_below_16_segments_and_after_its_first_exit() {
        let acks: Vec<_> = (0..30).map(|i| (100 + 2 * i, 40)).collect();
        let (mut h, mut window) = start(15);
        assert_eq!(round(&mut h, &mut window, 0, &acks), None);
        let (mut h, mut window) = start(16);
        assert_eq!(round(&mut h, &mut window, 0, &acks), Some(11));
        window = Window::new(window.cwnd, None);
        assert_eq!(round(&mut h, &mut window, 30, &acks), None);
        h.on_timeout(60_001, Instant::ZERO);
        assert_eq!(round(&mut h, &mut window, 60, &acks), Some(11));
        window = Window::new(window.cwnd, None);
        h.on_timeout(120_001, Instant::ZERO + Duration::from_millis(300));
        let acks: Vec<_> = (0..30).map(|i| (301 + 2 * i, 40)).collect();
        assert_eq!(round(&mut h, &mut window, 90, &acks), Some(10));
    }
}
