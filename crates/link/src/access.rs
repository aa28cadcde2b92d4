//! A link layer with contention, scheduling and retries.
//!
//! Each packet is tried until a try succeeds or the limit of tries is reached. A try occupies the link for its overhead
//! and its bits. After a failed try more time may pass, in which other packets are sent. Packets are delivered in order; with
//! framing, at the end of a frame.

use bentpipe_scenario as scenario;
use bentpipe_units::{Duration, Instant, Rate, Rng};

/// A link layer at a rate.
#[derive(Clone, Debug)]
pub struct Access {
    access: scenario::Access,
    rate: Rate,
}

/// Result of sending a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempts {
    /// Time at which the link is free again.
    pub free: Instant,
    /// Delay that the link layer adds.
    pub delay: Duration,
    /// True if no try succeeded.
    pub lost: bool,
}

impl Access {
    /// The link layer that `access` describes, at `rate`.
    #[must_use]
    pub fn new(access: &scenario::Access, rate: Rate) -> Self {
        Self { access: *access, rate }
    }

    /// Sends a packet of `len` bytes at `now`.
    pub fn send(&self, len: u32, now: Instant, rng: &mut Rng) -> Attempts {
        let a = &self.access;
        let (low, high) = (a.overhead.0.as_nanos(), a.overhead.1.as_nanos());
        let bits = self.rate.time_to_send(u64::from(len) + a.header);
        let (mut free, mut failed, mut lost) = (now, 0, true);
        while lost && failed < a.tries {
            let overhead = if low == high { low } else { low + rng.below(high - low + 1) };
            free = free + Duration::from_nanos(overhead) + bits;
            lost = a.frame_loss > 0.0 && rng.uniform() < a.frame_loss;
            failed += u32::from(lost);
        }
        // No delay follows the last try.
        let waits = u64::from(failed.min(a.tries - 1));
        let arrives = (free + a.try_delay.times(waits)).round_up_to(a.frame);
        Attempts { free, delay: arrives - free, lost }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(frame_loss: f64, tries: u32, frame: Duration) -> Access {
        let access = scenario::Access {
            overhead: (Duration::from_micros(100), Duration::from_micros(100)),
            header: 25,
            frame_loss,
            tries,
            try_delay: Duration::from_millis(20),
            frame,
        };
        Access::new(&access, Rate::from_bps(10_000_000))
    }

    /// 1225 bytes and a header of 25 take 1 ms at 10 Mbit/s; with the overhead 1.1 ms.
    #[test]
    fn a_try_takes_its_overhead_and_its_bits() {
        let mut rng = Rng::stream(1, "access", 0, "test");
        let sent = access(0.0, 3, Duration::ZERO).send(1225, Instant::ZERO, &mut rng);
        let free = Instant::ZERO + Duration::from_micros(1100);
        assert_eq!(sent, Attempts { free, delay: Duration::ZERO, lost: false });
        let framed = access(0.0, 3, Duration::from_millis(5)).send(1225, Instant::ZERO, &mut rng);
        assert_eq!(framed, Attempts { free, delay: Duration::from_micros(3900), lost: false });
    }

    /// Of packets tried three times with failures of 0.2 each, 0.2^3 = 0.008 are lost, and there are 1 + 0.2 + 0.04 = 1.24
    /// tries to a packet; packets that arrive were retried 0.2 x 0.8 + 2 x 0.04 x 0.8 = 0.224 / 0.992 times, at 20 ms.
    /// Standard errors of 200000: 0.0002, 0.0012 tries and 0.0011 retries.
    #[test]
    fn loss_falls_with_the_power_of_tries_and_retries_take_time() {
        let mut rng = Rng::stream(1, "access", 1, "test");
        let link = access(0.2, 3, Duration::ZERO);
        let (mut lost, mut busy, mut delay, n) = (0, 0.0, 0.0, 200_000);
        for _ in 0..n {
            let sent = link.send(1225, Instant::ZERO, &mut rng);
            lost += u32::from(sent.lost);
            busy += sent.free.as_secs_f64();
            delay += if sent.lost { 0.0 } else { sent.delay.as_secs_f64() };
        }
        let n = f64::from(n);
        assert!((f64::from(lost) / n - 0.008).abs() < 0.001, "{lost}");
        assert!((busy / n / 0.001_1 - 1.24).abs() < 0.006, "{busy}");
        assert!((delay / (n - f64::from(lost)) / 0.02 - 0.224 / 0.992).abs() < 0.006, "{delay}");
    }

    /// 1000 bytes and a header of 25 take 820 µs. The overhead is one of four values; each occurs in a quarter of 4000 packets,
    /// with a standard error of sqrt(4000 x 3 / 16) = 27.
    #[test]
    fn overhead_is_uniform_between_its_bounds() {
        let mut link = access(0.0, 1, Duration::ZERO);
        link.access.overhead = (Duration::from_nanos(100), Duration::from_nanos(103));
        let mut rng = Rng::stream(1, "access", 2, "test");
        let mut found = [0; 4];
        for _ in 0..4000 {
            let ns = link.send(1000, Instant::ZERO, &mut rng).free.as_nanos();
            found[ns as usize - 820_100] += 1;
        }
        assert!(found.iter().all(|n: &i32| (n - 1000).abs() < 137), "{found:?}");
    }

    #[test]
    fn constant_overhead_and_lossless_tries_draw_no_random_numbers() {
        let mut rng = Rng::stream(1, "access", 3, "test");
        access(0.0, 3, Duration::ZERO).send(1000, Instant::ZERO, &mut rng);
        assert_eq!(rng.bits(), Rng::stream(1, "access", 3, "test").bits());
    }

    /// Every try fails: three of 1.1 ms, and two waits of 20 ms between them.
    #[test]
    fn no_wait_follows_the_last_try() {
        let mut rng = Rng::stream(1, "access", 4, "test");
        let sent = access(1.0, 3, Duration::ZERO).send(1225, Instant::ZERO, &mut rng);
        let free = Instant::ZERO + Duration::from_micros(3300);
        assert_eq!(sent, Attempts { free, delay: Duration::from_millis(40), lost: true });
    }
}
