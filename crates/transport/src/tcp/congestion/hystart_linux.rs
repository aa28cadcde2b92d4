//! HyStart of Ha and Rhee ("Taming the elephants: New TCP slow start", Computer Networks 55, 2011, section 4), as
//! `net/ipv4/tcp_cubic.c` of Linux 6 has it: slow start ends, once `cwnd` is 16 segments, by either of two signs.
//!
//! A round ends with an ACK beyond what had been sent as it began. In a round:
//! - ACK train: ACKs that follow each other within 2 ms have come for longer than half of `D_min + 1 ms`, that is,
//!   the window is as long as the path one way;
//! - delay: the least of the round trips is, with the ninth or later, more than `D_min + clamp(D_min / 8, 4 ms, 16 ms)`.
//!
//! `D_min` is the least round trip since the connection began or a timeout. After a timeout, it may end the slow start
//! that follows too; having ended one, it ends none before the next timeout.
//!
//! Departures: Linux has less than the 1 ms where 256 KiB are sent in less, above 2 Gbit/s; it doubles the time of the
//! train where the kernel paces the window.

use bentpipe_units::{Duration, Instant};

use super::Window;

/// `hystart_low_window` [segments].
const LOW_WINDOW: u64 = 16;
/// `hystart_ack_delta_us`: ACKs of a train follow each other within it.
const ACK_DELTA: Duration = Duration::from_millis(2);
/// `hystart_ack_delay()`: what segments sent as one may be apart when they are acknowledged.
const ACK_DELAY: Duration = Duration::from_millis(1);
/// `HYSTART_MIN_SAMPLES`.
const SAMPLES: u32 = 8;
/// `HYSTART_DELAY_MIN` and `HYSTART_DELAY_MAX`.
const THRESHOLD: [Duration; 2] = [Duration::from_millis(4), Duration::from_millis(16)];

/// State of HyStart.
#[derive(Clone, Debug)]
pub(in crate::tcp) struct HyStart {
    /// `end_seq`: an ACK beyond it begins the next round.
    end: u64,
    round_start: Instant,
    /// The last ACK of the train.
    last_ack: Instant,
    /// The least round trip of the round; `MAX` before there is one.
    current: Duration,
    samples: u32,
    /// D_min; `MAX` before there is one.
    min_rtt: Duration,
    found: bool,
}

impl Default for HyStart {
    fn default() -> Self {
        Self {
            // The SYN's position: the first ACK of data begins a round.
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
    /// An ACK of new data below `una`, which took `rtt`, before the window grows for it; all below `nxt` was sent.
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
        if self.found || window.cwnd >= window.ssthresh {
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
            window.ssthresh = window.cwnd;
        }
    }

    /// A timeout: `bictcp_reset()` and `bictcp_hystart_reset()`.
    pub(in crate::tcp) fn on_timeout(&mut self, nxt: u64, now: Instant) {
        *self = Self { end: nxt, round_start: now, last_ack: now, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A round of ACKs of a segment each, `(ms, rtt in ms)`, from `una` segments on; where slow start ended.
    fn round(h: &mut HyStart, window: &mut Window, una: u64, acks: &[(u64, u64)]) -> Option<usize> {
        let nxt = (una + acks.len() as u64) * 1000 + 1;
        acks.iter().enumerate().find_map(|(i, &(ms, rtt))| {
            let (now, rtt) = (Instant::ZERO + Duration::from_millis(ms), Duration::from_millis(rtt));
            h.on_ack(window, rtt, (una + i as u64) * 1000 + 1001, nxt, 1000, now);
            (window.ssthresh == window.cwnd).then_some(i)
        })
    }

    fn start(segments: u64) -> (HyStart, Window) {
        (HyStart::default(), Window { cwnd: segments * 1000, ssthresh: u64::MAX })
    }

    /// Round trip 40 ms: the train is long enough once it has lasted for more than 20.5 ms.
    #[test]
    fn a_train_of_half_a_round_trip_ends_it() {
        let (mut h, mut window) = start(16);
        let acks: Vec<_> = (0..30).map(|i| (100 + 2 * i, 40)).collect();
        assert_eq!(round(&mut h, &mut window, 0, &acks), Some(11));
        assert_eq!(window.ssthresh, 16_000);
    }

    /// A gap of 3 ms is the end of the train.
    #[test]
    fn a_gap_breaks_the_train() {
        let (mut h, mut window) = start(16);
        let acks: Vec<_> = (0..30).map(|i| (100 + 2 * i + u64::from(i > 3), 40)).collect();
        assert_eq!(round(&mut h, &mut window, 0, &acks), None);
    }

    /// 100 ms before, so 112.5 ms is the bound: not 112, but 113, and with the ninth round trip.
    #[test]
    fn longer_round_trips_end_it() {
        for (rtt, ended) in [(112, None), (113, Some(8))] {
            let (mut h, mut window) = start(16);
            assert_eq!(round(&mut h, &mut window, 0, &[(100, 100)]), None);
            let acks: Vec<_> = (0..16).map(|i| (200 + 5 * i, rtt)).collect();
            assert_eq!(round(&mut h, &mut window, 1, &acks), ended, "{rtt}");
        }
    }

    /// With 15 segments nothing is looked at, and having ended one slow start it ends the next after a timeout only.
    #[test]
    fn not_below_sixteen_segments_and_once_before_a_timeout() {
        let acks: Vec<_> = (0..30).map(|i| (100 + 2 * i, 40)).collect();
        let (mut h, mut window) = start(15);
        assert_eq!(round(&mut h, &mut window, 0, &acks), None);
        let (mut h, mut window) = start(16);
        assert_eq!(round(&mut h, &mut window, 0, &acks), Some(11));
        window.ssthresh = u64::MAX;
        assert_eq!(round(&mut h, &mut window, 30, &acks), None);
        h.on_timeout(60_001, Instant::ZERO);
        assert_eq!(round(&mut h, &mut window, 60, &acks), Some(11));
    }
}
