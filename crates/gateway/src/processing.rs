//! Processing times of a PEP: a service rate, and a delay that is constant or varies slowly.
//!
//! A packet first waits for the PEP's server, first in, first out, if the PEP has a rate; then it takes a delay. A
//! delay that varies is a lognormal process `d(t) = mean exp(s x(t) - s²/2)` with `s² = ln(1 + (std / mean)²)`. `x` is
//! the stationary Gauss-Markov (Ornstein-Uhlenbeck) process with variance 1 and `E[x(t) x(t+h)] = exp(-h/τ)`, sampled
//! exactly at the arrivals (Gillespie 1996, equation 1.9). So `d` has the given mean and deviation, is never negative,
//! and `Cov[d(t), d(t+h)] = mean² (exp(s² exp(-h/τ)) - 1)`. Packets keep their order: while `d` falls faster than time
//! passes, a packet is processed together with its predecessor.

use std::collections::VecDeque;

use bentpipe_queue::Packet;
use bentpipe_units::{Duration, Instant, Rate, Rng};

/// Processing times of a PEP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Processing {
    /// Mean delay.
    pub delay: Duration,
    /// Standard deviation of the delay; zero for a constant one.
    pub std: Duration,
    /// Time after which the autocorrelation of the delay has fallen to 1/e.
    pub correlation: Duration,
    /// Rate at which the PEP serves packets one by one; `None` if it serves all at once.
    pub rate: Option<Rate>,
}

/// Packets that a PEP processes.
#[derive(Debug)]
pub struct Processor {
    /// Packets in order, and when their processing ends.
    packets: VecDeque<(Instant, Packet)>,
    delay: Duration,
    varying: Option<Varying>,
    rate: Option<Rate>,
    /// Time when the server has served all packets.
    free: Instant,
    /// Latest end of processing so far.
    last: Instant,
}

impl Processor {
    /// An idle PEP. The seed of the run and the name of the gateway determine a delay that varies.
    #[must_use]
    pub fn new(of: Processing, seed: u64, name: &str) -> Self {
        let varies = of.std > Duration::ZERO && of.delay > Duration::ZERO;
        Self {
            packets: VecDeque::new(),
            delay: of.delay,
            varying: varies.then(|| Varying::new(of, Rng::stream(seed, name, 0, "pep delay"))),
            rate: of.rate,
            free: Instant::ZERO,
            last: Instant::ZERO,
        }
    }

    /// An idle PEP with a constant delay and without a service rate.
    #[must_use]
    pub fn constant(delay: Duration) -> Self {
        Self::new(Processing { delay, ..Processing::default() }, 0, "")
    }

    /// Starts to process a packet; its processing ends at a multiple of `tick`.
    pub(crate) fn start(&mut self, pkt: Packet, now: Instant, tick: Duration) {
        let delay = match &mut self.varying {
            Some(varying) => varying.at(now),
            None => self.delay,
        };
        let served = match self.rate {
            Some(rate) => {
                self.free = self.free.max(now) + rate.time_to_send(u64::from(pkt.len));
                self.free
            }
            None => now,
        };
        self.last = self.last.max((served + delay).round_up_to(tick));
        self.packets.push_back((self.last, pkt));
    }

    /// Time when the first packet is processed; `None` while idle.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.packets.front().map(|(done, _)| *done)
    }

    /// Returns the next packet whose processing has ended.
    pub(crate) fn finish(&mut self, now: Instant) -> Option<Packet> {
        if self.next()? > now {
            return None;
        }
        self.packets.pop_front().map(|(_, pkt)| pkt)
    }

    /// Number of packets.
    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }
}

/// A delay that varies.
#[derive(Debug)]
struct Varying {
    rng: Rng,
    mean: f64,
    /// s: deviation of the logarithm.
    spread: f64,
    correlation: f64,
    /// x at `at`; `None` before the first packet.
    state: Option<(Instant, f64)>,
}

impl Varying {
    fn new(of: Processing, rng: Rng) -> Self {
        let (mean, std) = (of.delay.as_secs_f64(), of.std.as_secs_f64());
        let spread = libm::log1p((std / mean) * (std / mean)).sqrt();
        Self { rng, mean, spread, correlation: of.correlation.as_secs_f64(), state: None }
    }

    /// Returns the delay at `now`, which is not earlier than the last time.
    fn at(&mut self, now: Instant) -> Duration {
        let x = match self.state {
            None => self.rng.normal(),
            Some((before, x)) if before == now => x,
            Some((before, x)) => {
                let kept = libm::exp(-(now - before).as_secs_f64() / self.correlation);
                kept * x + (1.0 - kept * kept).sqrt() * self.rng.normal()
            }
        };
        self.state = Some((now, x));
        Duration::from_secs_f64(self.mean * libm::exp(self.spread * (x - self.spread / 2.0)))
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_queue::FlowId;
    use libm::exp;

    use super::*;

    fn rng() -> Rng {
        Rng::stream(1, "gateway", 0, "test")
    }

    fn packet(len: u32) -> Packet {
        Packet::new(len, FlowId(0), 0)
    }

    fn end(pep: &mut Processor, len: u32, now: Instant) -> Duration {
        pep.start(packet(len), now, Duration::ZERO);
        pep.last - now
    }

    /// At 8 Mbit/s 1000 bytes take a millisecond, then each packet takes 12 ms: the third of three ends at 15 ms. One
    /// that comes when the server has been idle for a while ends after 13 ms.
    #[test]
    fn packets_wait_for_the_server_and_then_take_the_delay() {
        let of = Processing {
            delay: Duration::from_millis(12),
            rate: Some(Rate::from_bps(8_000_000)),
            ..Processing::default()
        };
        let mut pep = Processor::new(of, 1, "test");
        let ends: Vec<_> = (0..3).map(|_| end(&mut pep, 1000, Instant::ZERO)).collect();
        assert_eq!(ends, [13, 14, 15].map(Duration::from_millis));
        assert_eq!(end(&mut pep, 1000, Instant::ZERO + Duration::from_millis(50)), Duration::from_millis(13));
        assert_eq!((pep.len(), pep.finish(Instant::ZERO + Duration::from_micros(12_999))), (4, None));
        assert!(pep.finish(Instant::ZERO + Duration::from_millis(13)).is_some());
        assert_eq!(pep.next(), Some(Instant::ZERO + Duration::from_millis(14)));
    }

    /// M/D/1: Poisson arrivals at load ρ wait for `ρ S / (2 (1 - ρ))` (Pollaczek-Khinchine). With S of 1 ms and
    /// ρ = 0.8 that is 2 ms; the standard error of the mean of 400,000 correlated waits is about 0.03 ms.
    #[test]
    fn mean_wait_is_that_of_m_d_1() {
        let of = Processing { rate: Some(Rate::from_bps(8_000_000)), ..Processing::default() };
        let (mut pep, mut draw, mut now) = (Processor::new(of, 1, "test"), rng(), Instant::ZERO);
        let (packets, mut sum) = (400_000, 0.0);
        for _ in 0..packets {
            now += Duration::from_secs_f64(draw.exponential(0.001 / 0.8));
            sum += (end(&mut pep, 1000, now)).as_secs_f64() - 0.001;
            while pep.finish(now).is_some() {}
        }
        let mean = 1e3 * sum / f64::from(packets);
        assert!((mean - 2.0).abs() < 0.12, "{mean} ms");
    }

    /// 12 ± 6 ms with a correlation time of 2 s, sampled every 500 ms: mean, variance and autocorrelation at lags of
    /// 0.5, 2 and 4 s are those of the process, `(exp(s² exp(-h/τ)) - 1) / (exp(s²) - 1)`. Bounds are five standard
    /// errors of 200,000 samples that are correlated over about eight.
    #[test]
    fn varying_delay_has_its_mean_deviation_and_autocorrelation() {
        let (mean, std, tau) = (0.012, 0.006, 2.0);
        let of = Processing {
            delay: Duration::from_secs_f64(mean),
            std: Duration::from_secs_f64(std),
            correlation: Duration::from_secs_f64(tau),
            rate: None,
        };
        let (mut varying, mut now) = (Varying::new(of, rng()), Instant::ZERO);
        let draws: Vec<f64> = (0..200_000)
            .map(|_| {
                now += Duration::from_millis(500);
                varying.at(now).as_secs_f64()
            })
            .collect();
        let n = draws.len() as f64;
        let found = draws.iter().sum::<f64>() / n;
        assert!((found - mean).abs() < 5.0 * std * (8.0 / n).sqrt(), "{found}");
        let cov = |lag: usize| {
            draws.iter().zip(&draws[lag..]).map(|(a, b)| (a - found) * (b - found)).sum::<f64>() / n
        };
        let variance = cov(0);
        assert!((variance.sqrt() / std - 1.0).abs() < 0.05, "{}", variance.sqrt());
        let s2 = libm::log(1.0 + (std / mean) * (std / mean));
        for (lag, h) in [(1, 0.5), (4, 2.0), (8, 4.0)] {
            let expected = (exp(s2 * exp(-h / tau)) - 1.0) / (exp(s2) - 1.0);
            let found = cov(lag) / variance;
            assert!((found - expected).abs() < 0.03, "lag {h} s: {found}, expected {expected}");
        }
        assert!(draws.iter().all(|d| *d > 0.0));
    }

    /// 12 ± 12 ms with a correlation time of 1 s: s² is ln 2. The first packet draws x; half a second later x has fallen to
    /// `x exp(-1/2)` and the square root of `1 - exp(-1)` of another draw is added. Packets of the same time share a delay, and
    /// draw nothing.
    #[test]
    fn a_varying_delay_follows_its_draws() {
        let of = Processing {
            delay: Duration::from_millis(12),
            std: Duration::from_millis(12),
            correlation: Duration::from_secs(1),
            rate: None,
        };
        let (mut varying, mut draws) = (Varying::new(of, rng()), rng());
        let (x, drawn) = (draws.normal(), draws.normal());
        let s = libm::log(2.0).sqrt();
        let delay = |x: f64| Duration::from_secs_f64(0.012 * exp(s * x - s * s / 2.0));
        let later = Instant::ZERO + Duration::from_millis(500);
        let next = x * exp(-0.5) + (1.0 - exp(-1.0)).sqrt() * drawn;
        let times = [Instant::ZERO, Instant::ZERO, later, later];
        for (now, expected) in times.into_iter().zip([x, x, next, next].map(delay)) {
            let found = varying.at(now);
            assert!(found.as_nanos().abs_diff(expected.as_nanos()) <= 2, "{found:?} {expected:?}");
        }
    }

    /// A delay with a correlation of 1 ms jumps from packet to packet, yet no packet overtakes another.
    #[test]
    fn packets_keep_their_order() {
        let of = Processing {
            delay: Duration::from_millis(12),
            std: Duration::from_millis(12),
            correlation: Duration::from_millis(1),
            rate: None,
        };
        let (mut pep, mut last) = (Processor::new(of, 1, "test"), Instant::ZERO);
        for ms in 0..1000 {
            pep.start(packet(1000), Instant::ZERO + Duration::from_millis(ms), Duration::ZERO);
            assert!(pep.last >= last);
            last = pep.last;
        }
    }
}
