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
        let ahead = i64::from(seq.wrapping_sub(self.highest as u16).cast_signed());
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
        let is_lossy = self.lost_at.is_some() && self.since_loss < MULTILOSS * self.loss_interval;
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
}
