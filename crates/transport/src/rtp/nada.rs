//! NADA, network-assisted dynamic adaptation for real-time media (RFC 8698).
//!
//! The receiver makes one congestion signal of queueing delay and loss, section 4.2:
//!
//! ```text
//! d_tilde = d_queue                                      below QTH, or if losses are rare
//!           QTH exp(-LAMBDA (d_queue - QTH) / QTH)       otherwise
//! x_curr  = d_tilde + DLOSS (p_loss / PLRREF)^2
//! ```
//!
//! and reports it with the rate received, and whether the path is idle: no loss and no queueing delay of `QEPS` within `LOGWIN`.
//! With each report the sender changes its rate, section 4.3:
//!
//! ```text
//! idle:      r_ref = max(r_ref, (1 + gamma) r_recv),   gamma = min(GAMMA_MAX, QBOUND / (rtt + DELTA + DFILT))
//! otherwise: x_offset = x_curr - PRIO XREF RMAX / r_ref,   x_diff = x_curr - x_prev
//!            r_ref -= KAPPA (delta / TAU) (x_offset / TAU) r_ref + KAPPA ETA (x_diff / TAU) r_ref
//! ```
//!
//! *Departures*: packets are not ECT, so there are no marks; the source follows the rate at once, without a buffer that shapes
//! (section 5.2.2); feedback comes with the RTCP reports, 20 bytes more, and not without packets to report.

use std::collections::VecDeque;

use bentpipe_units::{Duration, Instant, Rate};

use super::receiver::MAX_MISORDER;

/// Parameters, section 6.3, table 1 [s], except for the rates.
const XREF: f64 = 0.010;
const KAPPA: f64 = 0.5;
const ETA: f64 = 2.0;
const TAU: f64 = 0.500;
const DELTA: f64 = 0.100;
const LOGWIN: Duration = Duration::from_millis(500);
const QEPS: f64 = 0.010;
const DFILT: f64 = 0.120;
const GAMMA_MAX: f64 = 0.5;
const QBOUND: f64 = 0.050;
const MULTILOSS: f64 = 7.0;
const QTH: f64 = 0.050;
const LAMBDA: f64 = 0.5;
const PLRREF: f64 = 0.01;
const DLOSS: f64 = 0.010;
const ALPHA: f64 = 0.1;
/// Samples of which the least is the queueing delay, section 5.1.1.
const TAPS: usize = 15;

/// Configuration of a sender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nada {
    /// PRIO: weight of the flow against others.
    pub priority: f64,
    /// RMIN, the rate before the first report.
    pub min_rate: Rate,
    /// RMAX. `None`: the nominal rate of the source.
    pub max_rate: Option<Rate>,
}

/// Feedback of a receiver, section 5.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// `rmode` 0: the path is idle, and the rate may ramp up.
    pub is_idle: bool,
    /// `x_curr`.
    pub congestion: Duration,
    /// `r_recv`.
    pub received: Rate,
}

impl Feedback {
    /// Length in a report: header of an RTCP feedback message and the values of section 5.3 [bytes].
    pub const LEN: u32 = 20;
}

/// A packet that arrived within `LOGWIN`.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    at: Instant,
    /// Number, with wraps.
    number: i64,
    /// Length [bytes].
    len: u32,
    /// One-way delay without a common offset [s].
    delay: f64,
}

/// Observations of a receiver.
#[derive(Clone, Debug)]
pub(super) struct Observer {
    arrivals: VecDeque<Arrival>,
    /// Number of the latest packet, and of the latest one before the window.
    highest: i64,
    before: i64,
    began: Instant,
    /// d_base [s].
    base: f64,
    /// Filtered loss.
    loss: f64,
    /// Packets since the last loss, and the mean distance of losses; 0 before the first.
    since_loss: f64,
    loss_interval: f64,
    lost_at: Option<Instant>,
}

impl Observer {
    /// Begins with the number of the first packet.
    pub(super) fn new(seq: u16, now: Instant) -> Self {
        let before = i64::from(seq) - 1;
        Self {
            arrivals: VecDeque::with_capacity(128),
            highest: before,
            before,
            began: now,
            base: f64::INFINITY,
            loss: 0.0,
            since_loss: 0.0,
            loss_interval: 0.0,
            lost_at: None,
        }
    }

    /// Takes note of a packet of `len` bytes with a one-way delay, up to a common offset [s].
    pub(super) fn on_packet(&mut self, now: Instant, seq: u16, len: u32, delay: f64) {
        // Not the nearest number: after an outage of half of all numbers the packets would be late ones.
        let behind = (self.highest as u16).wrapping_sub(seq);
        let is_late = behind < MAX_MISORDER;
        let ahead = if is_late { -i64::from(behind) } else { i64::from(behind.wrapping_neg()) };
        let number = self.highest + ahead;
        if ahead > 1 {
            let weight = if self.loss_interval > 0.0 { ALPHA } else { 1.0 };
            self.loss_interval = weight * self.since_loss.max(1.0) + (1.0 - weight) * self.loss_interval;
            (self.since_loss, self.lost_at) = (0.0, Some(now));
        }
        self.since_loss += 1.0;
        self.highest = self.highest.max(number);
        self.base = self.base.min(delay);
        self.arrivals.push_back(Arrival { at: now, number, len, delay });
        self.forget(now);
    }

    fn forget(&mut self, now: Instant) {
        while let Some(first) = self.arrivals.front().filter(|first| now.since(first.at) > LOGWIN) {
            self.before = self.before.max(first.number);
            self.arrivals.pop_front();
        }
    }

    /// Returns the feedback at `now`; `None` without a packet in the window.
    pub(super) fn feedback(&mut self, now: Instant) -> Option<Feedback> {
        self.forget(now);
        let last = self.arrivals.iter().rev().take(TAPS).map(|each| each.delay).fold(f64::INFINITY, f64::min);
        if !last.is_finite() {
            return None;
        }
        let queueing = last - self.base;
        let expected = (self.highest - self.before).max(1) as f64;
        let received = self.arrivals.iter().filter(|each| each.number > self.before).count() as f64;
        let lost = (1.0 - received / expected).max(0.0);
        self.loss = ALPHA * lost + (1.0 - ALPHA) * self.loss;
        let is_lossy = self.since_loss < MULTILOSS * self.loss_interval;
        let warped = if is_lossy && queueing > QTH {
            QTH * libm::exp(-LAMBDA * (queueing - QTH) / QTH)
        } else {
            queueing
        };
        let penalty = self.loss / PLRREF;
        let congestion = warped + DLOSS * penalty * penalty;
        let is_idle = self.lost_at.is_none_or(|at| now.since(at) > LOGWIN)
            && self.arrivals.iter().all(|each| each.delay - self.base < QEPS);
        let bytes: u64 = self.arrivals.iter().map(|each| u64::from(each.len)).sum();
        let seconds = now.since(self.began).min(LOGWIN).as_secs_f64().max(DELTA);
        let received = Rate::from_bps((bytes as f64 * 8.0 / seconds) as u64);
        Some(Feedback { is_idle, congestion: Duration::from_secs_f64(congestion.min(60.0)), received })
    }
}

/// State of a sender.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reference {
    /// x_prev [s].
    congestion: f64,
    last: Option<Instant>,
}

impl Reference {
    /// Returns the rate after a feedback: `rate` is the one before, `max` is RMAX.
    pub(super) fn update(
        &mut self,
        cfg: &Nada,
        now: Instant,
        rtt: Duration,
        feedback: &Feedback,
        rate: Rate,
        max: Rate,
    ) -> Rate {
        let delta = self.last.map_or(DELTA, |last| now.since(last).as_secs_f64());
        self.last = Some(now);
        let (rate, most) = (rate.as_bps().max(1) as f64, max.as_bps() as f64);
        let congestion = feedback.congestion.as_secs_f64();
        let wanted = if feedback.is_idle {
            let gamma = GAMMA_MAX.min(QBOUND / (rtt.as_secs_f64() + DELTA + DFILT));
            rate.max((1.0 + gamma) * feedback.received.as_bps() as f64)
        } else {
            let offset = congestion - cfg.priority * XREF * most / rate;
            let difference = congestion - self.congestion;
            rate - KAPPA * (delta / TAU) * (offset / TAU) * rate - KAPPA * ETA * (difference / TAU) * rate
        };
        self.congestion = congestion;
        Rate::from_bps(wanted.clamp((cfg.min_rate.as_bps() as f64).min(most), most) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CFG: Nada = Nada { priority: 1.0, min_rate: Rate::from_bps(150_000), max_rate: None };
    const MAX: Rate = Rate::from_bps(1_500_000);

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// Section 4.3: at a rate of 1 Mbit/s the reference is 10 ms 1.5 / 1 = 15 ms. There the rate stays; 25 ms, 10 ms more than
    /// both the reference and before, reduce it by 0.5 (0.1 / 0.5) (0.01 / 0.5) + 0.5 2 (0.01 / 0.5) = 0.2 % + 2 %.
    #[test]
    fn rate_follows_the_distance_from_the_reference() {
        let mut reference = Reference { congestion: 0.015, last: Some(at(0)) };
        let mut update = |ms: u64, congestion: u64, rate: u64| {
            let feedback = Feedback {
                is_idle: false,
                congestion: Duration::from_millis(congestion),
                received: Rate::from_bps(rate),
            };
            reference
                .update(&CFG, at(ms), Duration::from_millis(100), &feedback, Rate::from_bps(rate), MAX)
                .as_bps()
        };
        assert_eq!(update(100, 15, 1_000_000), 1_000_000);
        assert_eq!(update(200, 25, 1_000_000), 978_000);
    }

    /// An idle path with a round trip of 100 ms: gamma = 0.05 / (0.1 + 0.1 + 0.12) = 0.15625 of the rate received.
    #[test]
    fn idle_path_lets_the_rate_ramp_up_to_the_greatest() {
        let mut reference = Reference::default();
        let feedback =
            |bps| Feedback { is_idle: true, congestion: Duration::ZERO, received: Rate::from_bps(bps) };
        let mut update = |bps| {
            reference.update(
                &CFG,
                at(100),
                Duration::from_millis(100),
                &feedback(bps),
                Rate::from_bps(bps),
                MAX,
            )
        };
        assert_eq!(update(800_000).as_bps(), 925_000);
        assert_eq!(update(1_400_000), MAX);
    }

    /// Packets of 1000 bytes each 10 ms: 800 kbit/s. The least of the last 15 delays counts; a wait of 12 ms ends the idle time.
    #[test]
    fn receiver_reports_rate_queueing_delay_and_idle_time() {
        let mut observer = Observer::new(65_530, at(0));
        for i in 0..100_u16 {
            observer.on_packet(at(u64::from(i) * 10), 65_530_u16.wrapping_add(i), 1000, 0.250);
        }
        let found = observer.feedback(at(990)).unwrap_or_else(|| panic!("no feedback"));
        // 51 packets lie within 500 ms, both ends included.
        assert_eq!(
            (found.is_idle, found.congestion, found.received.as_bps()),
            (true, Duration::ZERO, 816_000)
        );
        for i in 100..115_u16 {
            observer.on_packet(at(u64::from(i) * 10), 65_530_u16.wrapping_add(i), 1000, 0.262);
        }
        let found = observer.feedback(at(1140)).unwrap_or_else(|| panic!("no feedback"));
        assert!(!found.is_idle);
        assert!(found.congestion.as_nanos().abs_diff(12_000_000) < 1000, "{found:?}");
    }

    /// Half of the packets are lost: p_loss = 0.1 0.5, and 10 ms (0.05 / 0.01)^2 = 250 ms of penalty. A queueing delay of 100 ms
    /// counts 50 ms exp(-0.5) = 30.3 ms while losses are frequent.
    #[test]
    fn losses_count_and_warp_the_delay() {
        let mut observer = Observer::new(0, at(0));
        observer.on_packet(at(0), 0, 1000, 0.1);
        for i in 1..100_u16 {
            observer.on_packet(at(u64::from(i) * 10), 2 * i, 1000, 0.2);
        }
        let found = observer.feedback(at(990)).unwrap_or_else(|| panic!("no feedback"));
        let expected = 0.05 * libm::exp(-0.5) + 0.25;
        assert!((found.congestion.as_secs_f64() - expected).abs() < 0.01, "{found:?}");
        assert!(!found.is_idle);
    }

    /// Section 5.1.4: of the intervals between losses, 10 and 20 packets, the first counts as the mean, and the mean of both
    /// is 0.1 x 20 + 0.9 x 10 = 11. For 7 means after a loss, 70 and 77 packets, a queueing delay of 100 ms is warped to
    /// 50 ms exp(-0.5), and one of 20 ms is not. All losses lie before the window of 500 ms.
    #[test]
    fn delay_is_warped_for_seven_loss_intervals() {
        let warped = 0.05 * libm::exp(-0.5);
        for (intervals, queueing, packets, expected) in [
            (&[10][..], 0.1, 69, warped),
            (&[10], 0.1, 70, 0.1),
            (&[10], 0.02, 69, 0.02),
            (&[10, 20], 0.1, 76, warped),
            (&[10, 20], 0.1, 77, 0.1),
            (&[], 0.1, 50, 0.1),
        ] {
            let mut observer = Observer { base: 0.0, ..Observer::new(0, at(0)) };
            let (mut ms, mut seq) = (0, 0);
            let mut arrive = |observer: &mut Observer, count: u64, delay: f64| {
                for _ in 0..count {
                    observer.on_packet(at(ms), seq, 1000, delay);
                    (ms, seq) = (ms + 10, seq + 1);
                }
                seq += 1;
                at(ms - 10)
            };
            for &count in intervals {
                arrive(&mut observer, count, 0.0);
            }
            let now = arrive(&mut observer, packets, queueing);
            let found = observer.feedback(now).unwrap_or_else(|| panic!("no feedback"));
            assert_eq!(found.congestion, Duration::from_secs_f64(expected), "{intervals:?}, {packets}");
        }
    }

    /// Section 5.1.2: packet 2 arrives, 1 does not, and 0 is a duplicate of one before the window. Half of the packets are
    /// lost in two feedbacks: p_loss = 0.1 x 0.5 and 0.1 x 0.5 + 0.9 x 0.05. Packet 1 arrives late: 0.9 x 0.095. The penalty
    /// is 10 ms (p_loss / 0.01)^2.
    #[test]
    fn loss_is_smoothed_and_squared() {
        let mut observer = Observer::new(0, at(0));
        observer.on_packet(at(0), 0, 1000, 0.25);
        observer.on_packet(at(600), 0, 1000, 0.25);
        observer.on_packet(at(600), 2, 1000, 0.25);
        let penalty = |observer: &mut Observer, loss: f64| {
            let found = observer.feedback(at(700)).unwrap_or_else(|| panic!("no feedback"));
            let expected = 0.01 * (loss / 0.01) * (loss / 0.01);
            assert!((found.congestion.as_secs_f64() - expected).abs() < 1e-6, "{found:?}, {expected}");
        };
        penalty(&mut observer, 0.05);
        penalty(&mut observer, 0.095);
        observer.on_packet(at(700), 1, 1000, 0.25);
        penalty(&mut observer, 0.0855);
    }

    /// The numbers of 40 000 and 65 000 packets are the nearest from below to that before them, 25 535 and 535 behind. 700 ms after
    /// the outage no loss is left in the window.
    #[test]
    fn packets_after_a_long_outage_are_not_late() {
        for lost in [40_000, 65_000] {
            let mut observer = Observer::new(0, at(0));
            (0..100_u16).for_each(|i| observer.on_packet(at(u64::from(i) * 10), i, 1000, 0.25));
            let begin = u64::from(lost) * 10 + 1000;
            for i in 0..70_u16 {
                observer.on_packet(at(begin + u64::from(i) * 10), i.wrapping_add(100 + lost), 1000, 0.25);
            }
            let found = observer.feedback(at(begin + 690)).unwrap_or_else(|| panic!("no feedback"));
            assert_eq!((found.is_idle, found.congestion), (true, Duration::ZERO), "{lost}");
        }
    }

    /// Section 5.1.5: a loss at 20 ms ends the idle time for 500 ms, a queueing delay of 10 ms as long as it is in the
    /// window.
    #[test]
    fn path_is_idle_without_losses_and_queueing_in_the_window() {
        for (lost, queueing, now, idle) in [
            (false, 0.0, 100, true),
            (true, 0.0, 520, false),
            (true, 0.0, 521, true),
            (false, 0.009, 100, true),
            (false, 0.010, 520, false),
            (false, 0.010, 521, true),
        ] {
            let mut observer = Observer::new(0, at(0));
            observer.on_packet(at(0), 0, 1000, 0.0);
            let next = if lost { 2 } else { 1 };
            observer.on_packet(at(20), next, 1000, queueing);
            observer.on_packet(at(30), next + 1, 1000, 0.0);
            let found = observer.feedback(at(now)).unwrap_or_else(|| panic!("no feedback"));
            assert_eq!(found.is_idle, idle, "{lost}, {queueing}, {now}");
        }
    }

    /// Packets of 1000 bytes each 10 ms. 6 of them count as if they took 100 ms; 21 take 200 ms; at 10 s no packet is left.
    #[test]
    fn received_rate_counts_the_time_since_the_first_packet() {
        let mut observer = Observer::new(0, at(0));
        let rate = |observer: &mut Observer, ms: u64| {
            observer.feedback(at(ms)).map(|feedback| feedback.received.as_bps())
        };
        for (first, last, bps) in [(0, 5, 480_000), (6, 20, 840_000)] {
            for seq in first..=last {
                observer.on_packet(at(u64::from(seq) * 10), seq, 1000, 0.0);
            }
            assert_eq!(rate(&mut observer, u64::from(last) * 10), Some(bps));
        }
        assert_eq!(rate(&mut observer, 10_000), None);
    }

    /// Only the last 15 delays make the queueing delay: one of 0 before them does not.
    #[test]
    fn queueing_delay_is_the_least_of_fifteen() {
        for (packets, congestion) in [(14, 0), (15, 20)] {
            let mut observer = Observer::new(0, at(0));
            observer.on_packet(at(0), 0, 1000, 0.0);
            for seq in 1..=packets {
                observer.on_packet(at(u64::from(seq) * 10), seq, 1000, 0.020);
            }
            let found =
                observer.feedback(at(u64::from(packets) * 10)).unwrap_or_else(|| panic!("no feedback"));
            assert_eq!(found.congestion, Duration::from_millis(congestion), "{packets}");
        }
    }

    /// Section 4.3: without an earlier feedback, the time since it counts as 100 ms and its congestion as zero. At 1 Mbit/s
    /// and a priority of 2 the reference is 30 ms: 40 ms reduce the rate by 0.5 (0.1 / 0.5) (0.01 / 0.5) = 0.2 % and by
    /// 0.5 x 2 (0.04 / 0.5) = 8 %. After 200 ms, 30 ms increase 918 kbit/s: the reference is 32.68 ms, so the change is
    /// 0.5 (0.2 / 0.5) (2.68 / 500) = 0.107 % and 2 %. The rate stays between the minimum and the maximum.
    #[test]
    fn priority_time_and_limits_count_in_the_rate() {
        let cfg = Nada { priority: 2.0, ..CFG };
        let mut reference = Reference::default();
        let mut update = |ms: u64, congestion: u64, rate: u64, max: Rate| {
            let feedback = Feedback {
                is_idle: false,
                congestion: Duration::from_millis(congestion),
                received: Rate::from_bps(rate),
            };
            reference.update(&cfg, at(ms), Duration::ZERO, &feedback, Rate::from_bps(rate), max).as_bps()
        };
        assert_eq!(update(1000, 40, 1_000_000, MAX), 918_000);
        assert!(update(1200, 30, 918_000, MAX).abs_diff(937_344) <= 1);
        assert_eq!(update(1300, 10_000, 900_000, MAX), 150_000);
        assert_eq!(update(1400, 10_000, 900_000, Rate::from_bps(100_000)), 100_000);
    }
}
