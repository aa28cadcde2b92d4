//! Round-trip time of the association (RFC 9002, section 5).

use bentpipe_units::Duration;

use crate::rtt::SmoothedRtt;

/// The finest step the timers are trusted with (RFC 9002, 6.1.2: `kGranularity`).
const GRANULARITY: Duration = Duration::from_millis(1);
/// No probe before this, however steady the path has been: the regulator's queue in front of it can grow by half a
/// second between two samples, and a tail that waits is cheaper than a tail that is sent twice.
const MIN_PROBE: Duration = Duration::from_secs(2);

/// The estimator.
#[derive(Clone, Debug)]
pub(super) struct Rtt {
    pub(super) smoothed: SmoothedRtt,
    pub(super) min: Option<Duration>,
    latest: Duration,
    initial: Duration,
    max_ack_delay: Duration,
}

impl Rtt {
    /// RFC 9002, 5.3 and 6.2.2: before the first sample, `initial` and half of it stand in.
    pub(super) fn new(initial: Duration, max_ack_delay: Duration) -> Self {
        Self { smoothed: SmoothedRtt::first(initial), min: None, latest: initial, initial, max_ack_delay }
    }

    /// Takes in the time from sending the largest newly acknowledged packet to its acknowledgement.
    pub(super) fn sample(&mut self, latest: Duration, ack_delay: Duration) {
        self.latest = latest;
        let Some(min) = self.min else {
            // RFC 9002, 5.3: the first sample is taken as it is.
            self.min = Some(latest);
            self.smoothed = SmoothedRtt::first(latest);
            return;
        };
        let min = min.min(latest);
        self.min = Some(min);
        // RFC 9002, 5.3: the peer's delay is taken off, but no more than it was allowed, nor down below the minimum.
        let delay = ack_delay.min(self.max_ack_delay);
        let adjusted = if latest >= min + delay { latest.saturating_sub(delay) } else { latest };
        self.smoothed.update(adjusted, 8, 4);
    }

    /// RFC 9002, 6.1.2: how long a packet may stay behind one sent later before it counts as lost.
    pub(super) fn loss_delay(&self) -> Duration {
        self.smoothed.srtt.max(self.latest).times(9).part(8).max(GRANULARITY)
    }

    /// RFC 9002, 6.2.1, with the floors that [`MIN_PROBE`] and three initial round trips make.
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
    fn follows_the_equations_of_section_5() {
        let mut rtt = Rtt::new(ms(700), ms(50));
        assert_eq!(rtt.probe_timeout(), ms(2150));
        rtt.sample(ms(800), ms(50));
        assert_eq!((rtt.smoothed.srtt, rtt.smoothed.rttvar, rtt.min), (ms(800), ms(400), Some(ms(800))));
        assert_eq!(rtt.probe_timeout(), ms(800 + 1600 + 50));
        // 40 ms of delay come off: 880 - 800 = 80 away from the mean.
        rtt.sample(ms(920), ms(40));
        assert_eq!((rtt.smoothed.srtt, rtt.smoothed.rttvar), (ms(810), ms(320)));
        // More delay than agreed counts as what was agreed; a sample near the minimum is left whole.
        rtt.sample(ms(820), ms(400));
        assert_eq!(
            (rtt.smoothed.srtt, rtt.smoothed.rttvar),
            (Duration::from_micros(811_250), Duration::from_micros(242_500))
        );
        assert_eq!(rtt.loss_delay(), Duration::from_micros(922_500));
    }

    #[test]
    fn a_steady_path_never_brings_the_probe_below_its_floor() {
        let mut rtt = Rtt::new(ms(600), ms(50));
        for _ in 0..1000 {
            rtt.sample(ms(600), ms(0));
        }
        assert_eq!(rtt.probe_timeout(), ms(2050));
    }
}
