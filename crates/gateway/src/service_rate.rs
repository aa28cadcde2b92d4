//! The rate at which a carrier serves one of its queues.

use bentpipe_units::{Duration, Instant, Rate};

/// Time between two measurements, at least.
const WINDOW: Duration = Duration::from_millis(100);

/// Weight of a measurement: one part in this number.
const PARTS: u64 = 4;

/// Measures the rate at which a queue is served while packets wait in it: what the shares of others, fading and its own peak
/// rate leave it.
#[derive(Debug)]
pub(crate) struct ServiceRate {
    /// Peak rate: bursts may be faster.
    peak: Rate,
    rate: Rate,
    /// Start of the current measurement.
    begin: Instant,
    /// Start of the current stretch of time with packets in the queue.
    since: Option<Instant>,
    /// Time with packets in the queue before, and bytes sent, since the measurement began.
    busy: Duration,
    bytes: u64,
}

impl ServiceRate {
    /// A queue with a peak rate, which it is believed to get until it has been measured.
    pub fn new(peak: Rate) -> Self {
        let (begin, busy) = (Instant::ZERO, Duration::ZERO);
        Self { peak, rate: peak, begin, since: None, busy, bytes: 0 }
    }

    /// Counts a packet of `len` bytes whose transmission begins.
    pub fn send(&mut self, len: u32, now: Instant) {
        self.since.get_or_insert(now);
        self.bytes += u64::from(len);
    }

    /// The queue is found empty at its turn, or its link is down.
    pub fn pause(&mut self, now: Instant) {
        if let Some(since) = self.since.take() {
            self.busy += now.since(since);
        }
    }

    /// The rate, smoothed, if it has just been measured.
    pub fn measured(&mut self, now: Instant) -> Option<Rate> {
        if now.since(self.begin) < WINDOW {
            return None;
        }
        let busy = self.busy + self.since.map(|since| now.since(since)).unwrap_or_default();
        if busy.is_zero() {
            return None;
        }
        let found = (self.bytes as f64 * 8.0 / busy.as_secs_f64()) as u64;
        let rate = (self.rate.as_bps() * (PARTS - 1) + found.min(self.peak.as_bps())) / PARTS;
        self.rate = Rate::from_bps(rate.max(1));
        (self.begin, self.busy, self.bytes) = (now, Duration::ZERO, 0);
        self.since = self.since.map(|_| now);
        Some(self.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 12,500 bytes in 100 ms are 1 Mbit/s, a quarter of which goes into the rate, at first the peak of 4 Mbit/s. The next
    /// measurement begins there.
    #[test]
    fn a_measurement_takes_a_tenth_of_a_second() {
        let ms = |ms| Instant::ZERO + Duration::from_millis(ms);
        let mut service = ServiceRate::new(Rate::from_bps(4_000_000));
        service.send(12_500, ms(0));
        assert_eq!(service.measured(ms(99)), None);
        assert_eq!(service.measured(ms(100)), Some(Rate::from_bps(3_250_000)));
        service.send(12_500, ms(150));
        assert_eq!(service.measured(ms(199)), None);
        assert_eq!(service.measured(ms(200)), Some(Rate::from_bps(2_687_500)));
        service.pause(ms(200));
        assert_eq!(service.measured(ms(400)), None, "no time with packets");
    }

    /// 1250 bytes every 5 ms are 2 Mbit/s, whether the queue is never empty, or empty between two packets: then only the time
    /// with packets counts.
    #[test]
    fn only_time_with_packets_counts() {
        for pause in [0, 20] {
            let (mut service, mut now, mut found) =
                (ServiceRate::new(Rate::from_bps(4_000_000)), Instant::ZERO, Vec::new());
            for _ in 0..2000 {
                service.send(1250, now);
                found.extend(service.measured(now));
                now += Duration::from_millis(5);
                if pause > 0 {
                    service.pause(now);
                    found.extend(service.measured(now));
                    now += Duration::from_millis(pause);
                }
            }
            assert!(found.len() >= 90, "{found:?}");
            // A packet that has begun counts whole.
            assert!(
                found.iter().skip(20).all(|rate| rate.as_bps().abs_diff(2_000_000) <= 120_000),
                "{found:?}"
            );
        }
    }
}
