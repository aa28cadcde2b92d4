//! HyStart++, RFC 9406: slow start ends when the RTT increases, before a loss.
//!
//! A round ends with the ACK of data sent at its start. For rounds with at least `N_RTT_SAMPLE` samples, section 4.2:
//! - `RttThresh = clamp(lastRoundMinRTT / 8, 4 ms, 16 ms)`;
//! - `currentRoundMinRTT >= lastRoundMinRTT + RttThresh`: conservative slow start (CSS) begins, and the window grows at
//!   a quarter of the rate;
//! - `currentRoundMinRTT < cssBaselineMinRtt` in CSS: the increase was spurious, and slow start resumes;
//! - after `CSS_ROUNDS` rounds of CSS, congestion avoidance begins at `cwnd`.
//!
//! It applies to the first slow start only (section 4.3), and not after a loss or a mark.
//!
//! Departure: the RTT sample of an ACK is processed before the window grows for that ACK, not after.

use bentpipe_units::Duration;

use super::Window;

/// MIN_RTT_THRESH and MAX_RTT_THRESH.
const THRESHOLD: [Duration; 2] = [Duration::from_millis(4), Duration::from_millis(16)];
/// MIN_RTT_DIVISOR.
const DIVISOR: u64 = 8;
const N_RTT_SAMPLE: u32 = 8;
const CSS_GROWTH_DIVISOR: u64 = 4;
const CSS_ROUNDS: u32 = 5;
/// L without pacing [segments]; with pacing, there is no limit.
const L: u64 = 8;

/// State of HyStart++.
#[derive(Clone, Debug)]
pub(in crate::tcp) struct HyStart {
    /// windowEnd.
    window_end: u64,
    /// lastRoundMinRTT and currentRoundMinRTT; `MAX` is infinity.
    last: Duration,
    current: Duration,
    /// rttSampleCount.
    samples: u32,
    /// cssBaselineMinRtt; `None` outside conservative slow start.
    baseline: Option<Duration>,
    /// Rounds of conservative slow start completed.
    rounds: u32,
    /// The first slow start has ended.
    over: bool,
}

impl Default for HyStart {
    fn default() -> Self {
        Self {
            window_end: 0,
            last: Duration::MAX,
            current: Duration::MAX,
            samples: 0,
            baseline: None,
            rounds: 0,
            over: false,
        }
    }
}

impl HyStart {
    /// Processes an ACK up to `una` with an RTT sample `rtt`, if any; everything below `nxt` was sent.
    pub(in crate::tcp) fn on_ack(&mut self, window: &mut Window, rtt: Option<Duration>, una: u64, nxt: u64) {
        if self.over || !window.is_in_slow_start() {
            self.over = true;
            return;
        }
        if self.window_end == 0 {
            self.window_end = nxt;
        }
        if let Some(rtt) = rtt {
            self.current = self.current.min(rtt);
            self.samples += 1;
        }
        if self.samples >= N_RTT_SAMPLE {
            match self.baseline {
                None => {
                    // Infinite in the first round, and so is the sum.
                    let threshold = self.last.part(DIVISOR).min(THRESHOLD[1]).max(THRESHOLD[0]);
                    if self.current >= self.last + threshold {
                        self.baseline = Some(self.current);
                        self.rounds = 0;
                    }
                }
                Some(baseline) if self.current < baseline => self.baseline = None,
                _ => {}
            }
        }
        if una < self.window_end {
            return;
        }
        self.window_end = nxt;
        self.last = self.current;
        self.current = Duration::MAX;
        self.samples = 0;
        if self.baseline.is_some() {
            // If it began in the middle of a round, that round counts.
            self.rounds += 1;
            if self.rounds == CSS_ROUNDS {
                window.set_ssthresh(window.cwnd);
                self.over = true;
            }
        }
    }

    /// Amount that an ACK of `acked` bytes counts for in slow start, instead of RFC 5681 eq. (2) [bytes]; `None` once
    /// slow start has ended.
    pub(in crate::tcp) fn growth(&self, acked: u64, smss: u64, paced: bool) -> Option<u64> {
        let counted = if paced { acked } else { acked.min(L * smss) };
        let divisor = if self.baseline.is_some() { CSS_GROWTH_DIVISOR } else { 1 };
        (!self.over).then_some(counted / divisor)
    }

    /// Ends HyStart++ after a loss or a mark, section 4.2.
    pub(in crate::tcp) fn stop(&mut self) {
        self.over = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A round of `n` ACKs of one segment each, with an RTT of `ms`, at whose end as much has been sent; the window
    /// grows as computed.
    fn round(h: &mut HyStart, window: &mut Window, una: &mut u64, n: u64, ms: u64) {
        for i in 1..=n {
            let sent = if i < n { n } else { 2 * n };
            h.on_ack(window, Some(Duration::from_millis(ms)), *una + i * 1000, *una + sent * 1000);
            window.cwnd += h.growth(1000, 1000, false).unwrap_or(0);
        }
        *una += n * 1000;
    }

    fn start() -> (HyStart, Window, u64) {
        (HyStart::default(), Window::new(10_000, None), 1)
    }

    /// The threshold is 5 ms for 40 ms, 4 ms for 10 ms and 16 ms for 400 ms.
    #[test]
    fn rtt_threshold_is_an_eighth_of_the_rtt_within_bounds() {
        for (before, after, begins) in [
            (40, 44, false),
            (40, 45, true),
            (10, 13, false),
            (10, 14, true),
            (400, 415, false),
            (400, 416, true),
        ] {
            let (mut h, mut window, mut una) = start();
            round(&mut h, &mut window, &mut una, 10, before);
            assert_eq!(window.cwnd, 20_000);
            round(&mut h, &mut window, &mut una, 10, after);
            assert_eq!(h.baseline.is_some(), begins, "{before} {after}");
            // From the eighth sample on: 7 segments, then 3 quarters.
            assert_eq!(window.cwnd, if begins { 27_750 } else { 30_000 });
        }
    }

    #[test]
    fn a_round_needs_eight_rtt_samples() {
        let (mut h, mut window, mut una) = start();
        round(&mut h, &mut window, &mut una, 10, 100);
        round(&mut h, &mut window, &mut una, 7, 200);
        assert!(h.baseline.is_none());
    }

    /// The round in which it begins and four more; then ssthresh is cwnd.
    #[test]
    fn five_css_rounds_end_slow_start() {
        let (mut h, mut window, mut una) = start();
        round(&mut h, &mut window, &mut una, 10, 100);
        for _ in 0..4 {
            round(&mut h, &mut window, &mut una, 10, 120);
            assert_eq!(window.ssthresh(), None);
        }
        round(&mut h, &mut window, &mut una, 10, 120);
        // 20 after the first round, then 27.75, three times 2.5, and 9 quarters in the last round: its last ACK ends
        // slow start.
        assert_eq!((window.ssthresh(), window.cwnd), (Some(37_500), 37_500));
        assert_eq!(h.growth(1000, 1000, false), None);
    }

    /// Section 4.3: not after a loss, nor once ssthresh has ended slow start.
    #[test]
    fn only_the_first_slow_start_is_ended() {
        for is_stopped in [false, true] {
            let (mut h, mut window, mut una) = start();
            if is_stopped {
                h.stop();
            } else {
                window.set_ssthresh(10_000);
            }
            let ssthresh = window.ssthresh();
            for ms in [100, 120, 120, 120, 120, 120, 120] {
                round(&mut h, &mut window, &mut una, 10, ms);
            }
            assert_eq!((window.cwnd, window.ssthresh()), (10_000, ssthresh));
            assert_eq!(h.growth(1000, 1000, false), None);
        }
    }

    /// A spurious increase of the RTT.
    #[test]
    fn a_shorter_rtt_resumes_slow_start() {
        let (mut h, mut window, mut una) = start();
        round(&mut h, &mut window, &mut una, 10, 100);
        round(&mut h, &mut window, &mut una, 10, 120);
        round(&mut h, &mut window, &mut una, 10, 119);
        assert!(h.baseline.is_none());
        // 27.75, seven quarters, three segments.
        assert_eq!(window.cwnd, 32_500);
        assert_eq!(h.growth(20_000, 1000, false), Some(8000));
        assert_eq!(h.growth(20_000, 1000, true), Some(20_000));
    }
}
