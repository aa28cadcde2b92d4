//! RTT estimate of the association (RFC 9002, section 5).

use bentpipe_units::Duration;

use crate::rtt::SmoothedRtt;

/// `kGranularity` of RFC 9002, 6.1.2.
const GRANULARITY: Duration = Duration::from_millis(1);
/// Minimum probe timeout: the regulator's queue can grow by half a second between two samples, and a delayed probe
/// costs less than resending the tail.
const MIN_PROBE: Duration = Duration::from_secs(2);

/// RTT estimator.
#[derive(Clone, Debug, Default)]
pub(super) struct Rtt {
    pub(super) smoothed: SmoothedRtt,
    pub(super) min: Option<Duration>,
    latest: Duration,
    initial: Duration,
    max_ack_delay: Duration,
}

impl Rtt {
    /// RFC 9002, 5.3 and 6.2.2: `initial` and half of it are used before the first sample.
    pub(super) fn new(initial: Duration, max_ack_delay: Duration) -> Self {
        Self { smoothed: SmoothedRtt::first(initial), min: None, latest: initial, initial, max_ack_delay }
    }

    /// Processes a sample: the time from sending the largest newly acknowledged packet to its acknowledgement.
    pub(super) fn sample(&mut self, latest: Duration, ack_delay: Duration) {
        self.latest = latest;
        let Some(min) = self.min else {
            // RFC 9002, 5.3: the first sample is used unchanged.
            self.min = Some(latest);
            self.smoothed = SmoothedRtt::first(latest);
            return;
        };
        let min = min.min(latest);
        self.min = Some(min);
        // RFC 9002, 5.3: the peer's delay is subtracted, up to the configured maximum and not below the minimum RTT.
        let delay = ack_delay.min(self.max_ack_delay);
        let adjusted = if latest >= min + delay { latest.saturating_sub(delay) } else { latest };
        self.smoothed.update(adjusted, 8, 4);
    }

    /// RFC 9002, 6.1.2: time threshold for loss detection.
    pub(super) fn loss_delay(&self) -> Duration {
        self.smoothed.srtt.max(self.latest).times(9).part(8).max(GRANULARITY)
    }

    /// RFC 9002, 6.2.1, at least [`MIN_PROBE`] and three initial RTTs.
    pub(super) fn probe_timeout(&self) -> Duration {
        let measured = self.smoothed.srtt + self.smoothed.rttvar.times(4).max(GRANULARITY);
        measured.max(MIN_PROBE).max(self.initial.times(3)) + self.max_ack_delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn rtt_and_variation_follow_rfc_9002_section_5() {
        let mut rtt = Rtt::new(ms(700), ms(50));
        assert_eq!(rtt.probe_timeout(), ms(2150));
        rtt.sample(ms(800), ms(50));
        assert_eq!((rtt.smoothed.srtt, rtt.smoothed.rttvar, rtt.min), (ms(800), ms(400), Some(ms(800))));
        assert_eq!(rtt.probe_timeout(), ms(800 + 1600 + 50));
        // 40 ms of delay are subtracted: 880 differs from the mean by 80.
        rtt.sample(ms(920), ms(40));
        assert_eq!((rtt.smoothed.srtt, rtt.smoothed.rttvar), (ms(810), ms(320)));
        // The delay counts only up to the maximum; a sample close to the minimum is left unchanged.
        rtt.sample(ms(820), ms(400));
        assert_eq!(
            (rtt.smoothed.srtt, rtt.smoothed.rttvar),
            (Duration::from_micros(811_250), Duration::from_micros(242_500))
        );
        assert_eq!(rtt.loss_delay(), Duration::from_micros(922_500));
    }

    /// RFC 9002, 5.3: the delay is subtracted from 850 ms, which is 50 ms above the minimum, and not from 849 ms, nor from a
    /// new minimum. SRTT is 7/8 x 800 + 1/8 x 800, then + 1/8 x 849, then + 1/8 x 700.
    #[test]
    fn the_ack_delay_is_subtracted_down_to_the_minimum_rtt() {
        for (latest, srtt, min) in [(850, 800.0, 800), (849, 806.125, 800), (700, 787.5, 700)] {
            let mut rtt = Rtt::new(ms(700), ms(50));
            rtt.sample(ms(800), ms(0));
            rtt.sample(ms(latest), ms(50));
            assert_eq!(rtt.smoothed.srtt, ms(1).scaled(srtt), "{latest}");
            assert_eq!(rtt.min, Some(ms(min)));
        }
    }

    /// RFC 9002, 6.1.2: 9/8 of the larger of SRTT and the latest RTT, at least 1 ms.
    #[test]
    fn the_loss_delay_is_nine_eighths_of_the_rtt() {
        let mut rtt = Rtt::new(ms(800), ms(50));
        assert_eq!(rtt.loss_delay(), ms(900));
        rtt.sample(ms(400), ms(0));
        assert_eq!(rtt.loss_delay(), ms(450));
        rtt.sample(ms(800), ms(0));
        assert_eq!(rtt.loss_delay(), ms(900));
        let mut rtt = Rtt::new(ms(700), ms(50));
        rtt.sample(Duration::from_micros(800), ms(0));
        assert_eq!(rtt.loss_delay(), ms(1));
    }

    /// RFC 9002, 6.2.1: once a steady RTT of 3 s has no variation left, it counts as 1 ms. Of an RTT of 600 ms, three
    /// initial RTTs of 900 ms are left.
    #[test]
    fn the_probe_timeout_of_a_steady_rtt_has_lower_bounds() {
        for (initial, steady, timeout) in [(700, 3000, 3001), (900, 600, 2700)] {
            let mut rtt = Rtt::new(ms(initial), ms(50));
            for _ in 0..1000 {
                rtt.sample(ms(steady), ms(0));
            }
            assert_eq!(rtt.probe_timeout(), ms(timeout + 50));
        }
    }

    #[test]
    fn a_steady_rtt_keeps_the_minimum_probe_timeout() {
        let mut rtt = Rtt::new(ms(600), ms(50));
        for _ in 0..1000 {
            rtt.sample(ms(600), ms(0));
        }
        assert_eq!(rtt.probe_timeout(), ms(2050));
    }
}
