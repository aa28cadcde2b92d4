//! The algorithms for a transport that detects losses itself and numbers packets: QUIC (RFC 9002, section 7).
//!
//! - growth: by the bytes that an ACK acknowledges (RFC 9002, sections 7.3.1 and 7.3.3), not if the application limited the
//!   sender (section 7.8), and not for packets sent before the current recovery period;
//! - loss or mark: one reduction for all packets sent before it (section 7.3.2);
//! - persistent congestion: the minimum window of two packets, and slow start (section 7.6.2);
//! - DCTCP and Prague respond to the number of marks that the ACKs report (RFC 9000, section 13.4.2.1).
//!
//! Careful Resume (RFC 9959) is in `resume`.
//!
//! An algorithm's segment is a full packet here, and its positions are packet numbers.

use std::collections::VecDeque;

use bentpipe_units::{Duration, Instant, Rate};

use super::hystart::HyStart;
use super::resume::{self, Resume, SavedPath};
use super::search::{Search, SearchAck};
use super::{Acked, Algorithm, Config, Lost, State, Window};
use crate::tcp::delivery::{LossState, Sample};

/// kMinimumWindow of RFC 9002, appendix B.1 [packets].
const MINIMUM_WINDOW: u64 = 2;

/// Round trips after which the record of a packet is given up: its ACK would be too late for a sample.
const RECORD_LIFE: u64 = 8;

/// Congestion control of one sender.
#[derive(Clone, Debug)]
pub struct Controller {
    cfg: Config,
    state: State,
    window: Window,
    hystart: Option<HyStart>,
    search: Option<Box<Search>>,
    resume: Resume,
    /// Delivery records, for an algorithm that sets its window itself.
    delivery: Option<Box<Delivery>>,
    /// Start of the current recovery period: packets sent up to it cause no second reduction.
    recovery: Option<Instant>,
    /// True until a packet sent after its start is acknowledged.
    is_recovering: bool,
    /// True after persistent congestion, until a packet sent later is acknowledged.
    has_collapsed: bool,
    /// Number of the next packet, and when the last one was sent.
    next: u64,
    sent_at: Instant,
    in_flight: u64,
    /// Of the ACK that is being processed.
    ack: Batch,
}

/// Packets that one ACK acknowledges.
#[derive(Clone, Copy, Debug, Default)]
struct Batch {
    /// All bytes, and those that may let the window grow.
    bytes: u64,
    growing: u64,
    /// Sending time of the latest of them.
    sent: Option<Instant>,
    srtt: Duration,
}

/// Delivery rate samples (draft-cheng-iccrg-delivery-rate-estimation-00, section 3) of packets by their sending times.
/// Packets sent at the same time are interchangeable.
#[derive(Clone, Debug, Default)]
struct Delivery {
    records: VecDeque<Record>,
    delivered: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    /// Samples are marked until this much is delivered; zero if they are not.
    app_limited: u64,
    /// C.lost, and the part that the next sample reports.
    lost: u64,
    newly_lost: u64,
    /// Number of the packet found lost last.
    lost_number: u64,
    min_rtt: Option<Duration>,
    in_flight: u64,
    newest: Option<Record>,
}

/// A packet: C.delivered, C.delivered_time, C.first_sent_time and C.lost when it was sent.
#[derive(Clone, Copy, Debug)]
struct Record {
    sent: Instant,
    number: u64,
    bytes: u64,
    /// In flight, including it.
    tx_in_flight: u64,
    lost: u64,
    /// Acknowledged or lost.
    is_over: bool,
    delivered: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    app_limited: bool,
}

impl Controller {
    /// A sender of packets of up to `packet` bytes, with an initial window in packets. `hystart` applies to algorithms with
    /// the slow start of RFC 5681.
    #[must_use]
    pub fn new(algorithm: Algorithm, packet: u32, initial_window: u32, hystart: bool) -> Self {
        let cfg = Config { mss: packet, initial_window, algorithm, hystart, ..Config::default() };
        Self {
            state: State::new(algorithm),
            window: Window::new(u64::from(packet) * u64::from(initial_window), None),
            hystart: (hystart && algorithm.has_slow_start()).then(HyStart::default),
            search: None,
            resume: Resume::default(),
            delivery: algorithm.sets_cwnd().then(Box::default),
            recovery: None,
            is_recovering: false,
            has_collapsed: false,
            next: 0,
            sent_at: Instant::ZERO,
            in_flight: 0,
            ack: Batch::default(),
            cfg,
        }
    }

    /// Draws random numbers, for an algorithm that has any, from a seed.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.cfg.seed = seed;
        self
    }

    /// Ends slow start by SEARCH, if the algorithm has the slow start of RFC 5681.
    #[must_use]
    pub fn with_search(mut self, is_on: bool) -> Self {
        self.search = (is_on && self.cfg.algorithm.has_slow_start()).then(Box::default);
        self
    }

    /// Resumes a path whose parameters an earlier connection saved, if the algorithm has a slow start to shorten.
    pub fn resume(&mut self, saved: SavedPath) {
        if !self.state.sets_cwnd() {
            self.resume = Resume::new(Some(saved));
        }
    }

    /// Parameters of the path to be saved for a later connection; `None` if there is nothing to save.
    #[must_use]
    pub fn observed(&self) -> Option<SavedPath> {
        self.resume.observed(self.initial_window())
    }

    /// True if a resumed path met congestion: its parameters are to be forgotten (RFC 9959, section 3.5).
    #[must_use]
    pub fn has_retreated(&self) -> bool {
        self.resume.has_retreated()
    }

    /// Congestion window [bytes].
    #[must_use]
    pub fn window(&self) -> u64 {
        self.window.cwnd
    }

    /// Initial congestion window [bytes].
    #[must_use]
    pub fn initial_window(&self) -> u64 {
        u64::from(self.cfg.mss) * u64::from(self.cfg.initial_window)
    }

    /// Slow start threshold, if there is one [bytes].
    #[must_use]
    pub fn ssthresh(&self) -> Option<u64> {
        self.window.ssthresh()
    }

    /// Rate at which packets are to leave; `None` if the algorithm has none, which leaves pacing to the transport.
    #[must_use]
    pub fn pacing_rate(&self, srtt: Option<Duration>) -> Option<Rate> {
        self.state.pacing_rate(&self.window, srtt)
    }

    /// The packet size has changed [bytes].
    pub fn set_packet(&mut self, packet: u32) {
        self.cfg.mss = packet;
    }

    /// A packet of `bytes` has been sent.
    pub fn on_sent(&mut self, now: Instant, bytes: u64, number: u64) {
        if self.in_flight == 0 {
            self.state.on_transmit_start(now - self.sent_at, now);
        }
        self.next = self.next.max(number + 1);
        self.sent_at = now;
        self.in_flight += bytes;
        if let Some(search) = &mut self.search {
            search.on_sent(bytes);
        }
        let Some(delivery) = &mut self.delivery else { return };
        if delivery.in_flight == 0 {
            if delivery.app_limited > 0 {
                self.state.on_restart(&mut self.window, &self.cfg, now);
            }
            (delivery.first_sent_at, delivery.delivered_at) = (now, now);
        }
        delivery.in_flight += bytes;
        delivery.records.push_back(Record {
            sent: now,
            number,
            bytes,
            tx_in_flight: delivery.in_flight,
            lost: delivery.lost,
            is_over: false,
            delivered: delivery.delivered,
            delivered_at: delivery.delivered_at,
            first_sent_at: delivery.first_sent_at,
            app_limited: delivery.app_limited > 0,
        });
    }

    /// The packet sent last, of `bytes`, asks for no ACK, so that it is not in flight.
    pub fn on_not_in_flight(&mut self, bytes: u64) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
        if let Some(search) = &mut self.search {
            search.on_not_in_flight(bytes);
        }
        if let Some(delivery) = &mut self.delivery {
            delivery.records.pop_back();
            delivery.in_flight = delivery.in_flight.saturating_sub(bytes);
        }
    }

    /// A packet of `bytes` sent at `sent` is acknowledged; [`Self::on_end_acks`] follows the last one of an ACK.
    pub fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, srtt: Duration) {
        self.ack.bytes += bytes;
        if self.recovery.is_none_or(|begin| sent > begin) {
            self.ack.growing += bytes;
            (self.is_recovering, self.has_collapsed) = (false, false);
        }
        self.ack.sent = self.ack.sent.max(Some(sent));
        self.ack.srtt = srtt;
        if let Some(delivery) = &mut self.delivery {
            delivery.on_ack(now, sent, bytes);
        }
    }

    /// All packets of an ACK have been processed; the largest of them is `largest`, and `in_flight` bytes are left.
    /// `marked` packets were newly reported as marked, for an algorithm that responds in proportion.
    pub fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        is_app_limited: bool,
        largest: u64,
        marked: u64,
    ) {
        let ack = std::mem::take(&mut self.ack);
        self.in_flight = in_flight;
        let Some(sent) = ack.sent else { return };
        let (smss, una) = (u64::from(self.cfg.mss), largest + 1);
        let rtt = now - sent;
        let acknowledged = resume::Ack {
            now,
            bytes: ack.bytes,
            in_flight,
            is_app_limited,
            largest,
            next: self.next,
            rtt,
            srtt: ack.srtt,
        };
        if self.state.is_proportional() {
            let bytes = (marked * smss).min(ack.bytes);
            self.state.on_ecn_feedback(ack.bytes, bytes, una, self.next, now);
            // RFC 9002, section 7.3.2: not for packets sent before a loss was found.
            if marked > 0 && self.recovery.is_none_or(|begin| sent > begin) {
                self.state.on_mark(&mut self.window, una, self.next, smss, now);
                self.window.cwnd = self.resume.on_congestion(smss, self.next).unwrap_or(self.window.cwnd);
            }
        }
        let initial_window = self.initial_window();
        self.resume.on_ack(&mut self.window, initial_window, smss, &acknowledged);
        // As TCP: marked bytes do not let the window of L4S grow, and an ACK with marks not that of DCTCP.
        let growing = match marked {
            1.. if self.cfg.algorithm.is_l4s() => ack.growing.saturating_sub(marked * smss),
            1.. if self.state.is_proportional() => 0,
            _ => ack.growing,
        };
        self.state.on_round_trip(&mut self.window, rtt, una, self.next, smss, now);
        if let Some(hystart) = &mut self.hystart {
            hystart.on_ack(&mut self.window, Some(rtt), una, self.next);
        }
        if let Some(search) = &mut self.search {
            let ack =
                SearchAck { now, bytes: ack.bytes, in_flight, rtt: Some(rtt), iw: initial_window, smss };
            search.on_ack(&mut self.window, &ack);
        }
        if let Some(delivery) = &mut self.delivery {
            // Packets of discarded keys are neither acknowledged nor lost.
            delivery.in_flight = in_flight;
            let loss_state = match self.is_recovering {
                _ if self.has_collapsed => LossState::Loss,
                true => LossState::Recovery,
                false => LossState::Open,
            };
            let sample = delivery.sample((ack.bytes, rtt), in_flight, loss_state);
            let limits = self.state.on_sample(&mut self.window, &sample, &self.cfg, Some(ack.srtt), now);
            if limits || (is_app_limited && in_flight < self.window.cwnd) {
                delivery.app_limited = (delivery.delivered + in_flight).max(1);
            }
        } else if growing > 0
            && self.state.may_grow(&self.window, !is_app_limited)
            && self.resume.may_grow()
            && !self.search.as_ref().is_some_and(|search| search.holds_window())
        {
            let hystart = self.hystart.as_ref().and_then(|h| h.growth(growing, smss, true));
            let acked = Acked {
                bytes: growing,
                slow_start: hystart.unwrap_or(growing),
                avoidance: growing,
                flight: in_flight + ack.bytes,
                rtt: ack.srtt,
            };
            self.state.on_ack(&mut self.window, &acked, smss, now);
        }
    }

    /// Packets of `bytes`, the latest of them sent at `sent`, are lost; `persistent` tells persistent congestion.
    pub fn on_lost(&mut self, now: Instant, sent: Instant, bytes: u64, persistent: bool) {
        self.reduce(now, sent);
        self.in_flight = self.in_flight.saturating_sub(bytes);
        if let Some(delivery) = &mut self.delivery {
            let (state, window, cfg) = (&mut self.state, &self.window, &self.cfg);
            delivery.on_lost(sent, bytes, |lost| state.on_lost(window, lost, cfg, now));
        }
        if persistent {
            self.resume.stop();
            self.state.on_timeout(self.next, now);
            if self.cfg.algorithm != Algorithm::Bbr {
                self.window.cwnd = MINIMUM_WINDOW * u64::from(self.cfg.mss);
            }
            if !self.state.sets_cwnd() {
                self.recovery = None;
            }
            self.has_collapsed = true;
        }
    }

    /// An ACK reports marks on packets up to one that was sent at `sent`.
    pub fn on_marked(&mut self, now: Instant, sent: Instant) {
        if self.state.sets_cwnd() {
            self.state.on_congestion_mark(&self.window);
        } else if !self.state.is_proportional() {
            self.reduce(now, sent);
        }
    }

    /// Reduces the window once for all packets sent before now.
    fn reduce(&mut self, now: Instant, sent: Instant) {
        if self.recovery.is_some_and(|begin| sent <= begin) {
            return;
        }
        (self.recovery, self.is_recovering) = (Some(now), true);
        let smss = u64::from(self.cfg.mss);
        if let Some(hystart) = &mut self.hystart {
            hystart.stop();
        }
        if let Some(search) = &mut self.search {
            search.stop();
        }
        let cwnd = self.window.cwnd;
        if self.cfg.algorithm == Algorithm::Bbr {
            // It saves the window, which the end of recovery restores. BBR version 3 does so at each loss.
            self.state.on_congestion(&mut self.window, cwnd, smss, now);
        }
        if !self.state.sets_cwnd() {
            self.state.on_congestion(&mut self.window, cwnd, smss, now);
            // No algorithm reduces it below kMinimumWindow.
            let reduced = self.window.reduced();
            self.window.cwnd = self.resume.on_congestion(smss, self.next).unwrap_or(reduced);
        }
    }
}

impl Delivery {
    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64) {
        self.delivered += bytes;
        self.delivered_at = now;
        self.in_flight = self.in_flight.saturating_sub(bytes);
        let rtt = now - sent;
        let min_rtt = self.min_rtt.map_or(rtt, |least| least.min(rtt));
        self.min_rtt = Some(min_rtt);
        let at = self.records.partition_point(|record| record.sent < sent);
        let sent_then = self.records.range_mut(at..).take_while(|record| record.sent == sent);
        if let Some(record) = sent_then.into_iter().find(|record| !record.is_over) {
            record.is_over = true;
            if self.newest.is_none_or(|newest| sent >= newest.sent) {
                self.newest = Some(*record);
                self.first_sent_at = sent;
            }
        }
        // Packets of discarded keys are neither acknowledged nor lost.
        let life = min_rtt.times(RECORD_LIFE);
        while self.records.front().is_some_and(|record| record.is_over || record.sent + life < sent) {
            self.records.pop_front();
        }
    }

    /// Packets of `bytes`, the latest of them sent at `sent`, are lost: all that were not acknowledged before it (RFC 9002,
    /// section 6.1). Passes each to `each`.
    fn on_lost(&mut self, sent: Instant, bytes: u64, mut each: impl FnMut(&Lost)) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
        let end = self.records.partition_point(|record| record.sent <= sent);
        let (mut begin, mut left) = (end, bytes);
        while begin > 0 && left > 0 {
            begin -= 1;
            let record = &self.records[begin];
            left = left.saturating_sub(if record.is_over { 0 } else { record.bytes });
        }
        for record in self.records.range_mut(begin..end).filter(|record| !record.is_over) {
            record.is_over = true;
            self.lost += record.bytes;
            let begins_range = record.number != self.lost_number + 1;
            self.lost_number = record.number;
            each(&Lost {
                size: record.bytes,
                tx_in_flight: record.tx_in_flight,
                lost: self.lost - record.lost,
                app_limited: record.app_limited,
                begins_range,
                total: self.delivered,
            });
        }
        self.newly_lost += bytes;
    }

    /// GenerateRateSample() for an ACK of `bytes` whose latest packet took `rtt`.
    fn sample(&mut self, (bytes, rtt): (u64, Duration), in_flight: u64, loss_state: LossState) -> Sample {
        if self.delivered > self.app_limited {
            self.app_limited = 0;
        }
        let newest = self.newest.take();
        let lost = std::mem::take(&mut self.newly_lost);
        let rate = newest.and_then(|newest| {
            let interval = (newest.sent - newest.first_sent_at).max(self.delivered_at - newest.delivered_at);
            let bits = u128::from(self.delivered - newest.delivered) * 8_000_000_000;
            // No interval is shorter than the packet's RTT.
            (!interval.is_zero()).then(|| Rate::from_bps((bits / u128::from(interval.as_nanos())) as u64))
        });
        Sample {
            delivered: bytes,
            lost,
            total: self.delivered,
            prior_delivered: newest.map_or(0, |newest| newest.delivered),
            interval_delivered: newest.map_or(0, |newest| self.delivered - newest.delivered),
            lost_since: newest.map_or(0, |newest| self.lost - newest.lost),
            tx_in_flight: newest.map_or(0, |newest| newest.tx_in_flight),
            prior_in_flight: in_flight + bytes,
            in_flight,
            rtt: Some(rtt),
            rate,
            app_limited: newest.is_some_and(|newest| newest.app_limited),
            loss_state,
            has_sack: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: u32 = 1200;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// Sends a window of packets at `sent_at` and acknowledges them one by one at `acked_at` [ms].
    fn round(c: &mut Controller, sent_at: u64, acked_at: u64) {
        let (first, count) = (c.next, c.window() / u64::from(PACKET));
        for number in first..first + count {
            c.on_sent(at(sent_at), PACKET.into(), number);
        }
        for number in first..first + count {
            c.on_ack(at(acked_at), at(sent_at), PACKET.into(), Duration::from_millis(acked_at - sent_at));
            let left = (first + count - 1 - number) * u64::from(PACKET);
            c.on_end_acks(at(acked_at), left, false, number, 0);
        }
    }

    /// RFC 9002, section 7.3.1: the window doubles in each round trip of slow start.
    #[test]
    fn window_doubles_in_slow_start() {
        let mut c = Controller::new(Algorithm::NewReno, PACKET, 10, false);
        assert_eq!((c.window(), c.initial_window()), (12_000, 12_000));
        round(&mut c, 0, 100);
        assert_eq!(c.window(), 24_000);
        round(&mut c, 100, 200);
        assert_eq!(c.window(), 48_000);
    }

    /// A marked packet of two in slow start lets Prague grow by the other one, and DCTCP not at all. The first reduction is by half:
    /// alpha is 1. Marks on data sent before it cause no other.
    #[test]
    fn marked_bytes_do_not_let_the_window_grow() {
        for (algorithm, marked, expected) in [
            (Algorithm::Prague, 0, 2400),
            (Algorithm::Prague, 1, 1200),
            (Algorithm::Prague, 2, 0),
            (Algorithm::Dctcp, 0, 2400),
            (Algorithm::Dctcp, 1, 0),
            (Algorithm::NewReno, 1, 2400),
        ] {
            let mut c = Controller::new(algorithm, PACKET, 20, false);
            (0..20).for_each(|number| c.on_sent(at(0), PACKET.into(), number));
            let ack = |c: &mut Controller, first: u64, marked| {
                for _ in 0..2 {
                    c.on_ack(at(100), at(0), PACKET.into(), Duration::from_millis(100));
                }
                c.on_end_acks(at(100), 0, false, first + 1, marked);
            };
            if marked > 0 && algorithm != Algorithm::NewReno {
                ack(&mut c, 0, 2);
                assert_eq!(c.window(), 12_000, "{algorithm:?}");
                // Slow start, to see whole packets.
                c.window.set_ssthresh(u64::MAX);
            }
            let before = c.window();
            ack(&mut c, 2, marked);
            assert_eq!(c.window() - before, expected, "{algorithm:?} {marked}");
        }
    }

    /// RFC 9002, section 7.3.2: half the window at the first loss, nothing for others sent before, and one packet more per
    /// round trip (section 7.3.3).
    #[test]
    fn losses_of_one_recovery_period_halve_the_window_once() {
        let mut c = Controller::new(Algorithm::NewReno, PACKET, 40, false);
        c.on_lost(at(100), at(50), 1200, false);
        assert_eq!((c.window(), c.ssthresh()), (24_000, Some(24_000)));
        c.on_lost(at(120), at(100), 1200, false);
        assert_eq!(c.window(), 24_000);
        // Packets sent before the reduction let the window grow as little.
        for sent in [60, 100] {
            c.on_ack(at(130), at(sent), 1200, Duration::from_millis(130 - sent));
            c.on_end_acks(at(130), 0, false, 3, 0);
            assert_eq!(c.window(), 24_000, "sent at {sent} ms");
        }
        round(&mut c, 140, 240);
        // Each ACK counts by the window as it has grown: slightly less than a packet.
        assert!((25_140..=25_200).contains(&c.window()), "{}", c.window());
        c.on_lost(at(250), at(245), 1200, false);
        assert!(c.window() < 13_000);
    }

    /// RFC 9438, section 4.2: the time of CUBIC's growth starts after the recovery period. Packets sent before it take up to 3 s
    /// here, in which the window would grow from 28 to 40 packets.
    #[test]
    fn acks_of_packets_sent_before_the_loss_do_not_start_growth() {
        let mut c = Controller::new(Algorithm::Cubic, PACKET, 40, false);
        c.on_lost(at(100), at(50), 1200, false);
        assert_eq!(c.window(), 33_600);
        for ms in 101..=3000 {
            c.on_ack(at(ms), at(60), 1200, Duration::from_millis(100));
            c.on_end_acks(at(ms), 0, false, 3, 0);
        }
        assert_eq!(c.window(), 33_600);
        c.on_ack(at(3001), at(2901), 1200, Duration::from_millis(100));
        c.on_end_acks(at(3001), 0, false, 4, 0);
        assert!(c.window() < 33_700, "{}", c.window());
    }

    /// RFC 9002, section 7.2: kMinimumWindow.
    #[test]
    fn losses_leave_two_packets_or_more() {
        for &algorithm in Algorithm::ALL.iter().filter(|algorithm| !algorithm.sets_cwnd()) {
            let mut c = Controller::new(algorithm, PACKET, 3, false);
            for ms in [100, 200] {
                c.on_lost(at(ms), at(ms), 1200, false);
            }
            assert_eq!(c.window(), 2400, "{algorithm:?}");
        }
    }

    /// RFC 9002, section 7.1: a mark is a loss, once per recovery period. DCTCP counts the marks of the ACK instead, and BBR
    /// ignores them.
    #[test]
    fn a_mark_halves_the_window_once() {
        for (algorithm, window) in
            [(Algorithm::NewReno, 24_000), (Algorithm::Dctcp, 48_000), (Algorithm::Bbr, 48_000)]
        {
            let mut c = Controller::new(algorithm, PACKET, 40, false);
            c.on_marked(at(100), at(50));
            c.on_marked(at(120), at(100));
            assert_eq!(c.window(), window, "{algorithm:?}");
        }
    }

    /// RFC 9002, section 7.3.2: marks of packets that were sent before a loss was found do not reduce the window again, those of
    /// later ones do.
    #[test]
    fn marks_of_packets_sent_before_a_loss_reduce_nothing() {
        for algorithm in [Algorithm::Dctcp, Algorithm::Prague] {
            let mut c = Controller::new(algorithm, PACKET, 40, false);
            (0..40).for_each(|number| c.on_sent(at(0), PACKET.into(), number));
            c.on_lost(at(100), at(0), 1200, false);
            for (sent, acked, number, window) in
                [(0, 110, 30, 24_000), (100, 200, 39, 24_000), (101, 201, 40, 12_000)]
            {
                c.on_sent(at(sent), PACKET.into(), number);
                c.on_ack(at(acked), at(sent), PACKET.into(), Duration::from_millis(acked - sent));
                c.on_end_acks(at(acked), 0, true, number, 1);
                let found = c.window();
                // The first update of alpha, from 1, counts one packet of one: it stays.
                assert_eq!(found, window, "{algorithm:?}, sent at {sent} ms");
            }
        }
    }

    /// RFC 9959, sections 3.2 and 3.5: marks are congestion for DCTCP, too. In the Reconnaissance Phase they prevent the jump:
    /// alpha of 15/16 + 1/320 leaves 12 712 bytes, and ten packets add 1132. After the jump half of PipeSize is left, of the 19
    /// packets that were in flight before.
    #[test]
    fn marks_that_dctcp_counts_end_careful_resume() {
        for (marks, window, has_retreated) in [([1, 0], 13_844, false), ([0, 1], 11_400, true)] {
            let mut c = Controller::new(Algorithm::Dctcp, PACKET, 20, false);
            c.resume(SavedPath { cwnd: 300 * u64::from(PACKET), rtt: Duration::from_millis(100) });
            (0..39).for_each(|number| c.on_sent(at(0), PACKET.into(), number));
            for (numbers, left, marked) in [(0..20, 19, marks[0]), (20..30, 9, marks[1])] {
                for _ in numbers.clone() {
                    c.on_ack(at(100), at(0), PACKET.into(), Duration::from_millis(100));
                }
                c.on_end_acks(at(100), left * u64::from(PACKET), false, numbers.end - 1, marked);
            }
            assert_eq!((c.window(), c.has_retreated()), (window, has_retreated), "{marks:?}");
        }
    }

    /// RFC 9406, section 4.2: ten packets take 100 ms, and the next twenty 120 ms, more than an eighth longer: from the eighth on
    /// the window grows by quarters, to 20 + 7 + 13 / 4 packets.
    #[test]
    fn hystart_counts_rounds_by_packet_numbers() {
        let mut c = Controller::new(Algorithm::NewReno, PACKET, 10, true);
        for number in 0..10 {
            c.on_sent(at(0), 1200, number);
        }
        for (numbers, ms, rtt, window) in [(0..10, 100, 100, 24_000), (10..30, 220, 120, 36_300)] {
            for number in numbers {
                c.on_ack(at(ms), at(ms - rtt), 1200, Duration::from_millis(rtt));
                c.on_end_acks(at(ms), 0, false, number, 0);
                for next in 10 + 2 * number..12 + 2 * number {
                    c.on_sent(at(ms), 1200, next);
                }
            }
            assert_eq!(c.window(), window);
        }
    }

    /// Three packets are sent every 36 ms, and two acknowledged: `norm_diff` is 1/3 once a window and an RTT have passed, at the
    /// 22nd ACK, and the next one finds the window at its target. Only in the slow start of RFC 5681.
    #[test]
    fn search_ends_slow_start_if_less_is_delivered_than_sent() {
        for (algorithm, is_on, ssthresh) in [
            (Algorithm::NewReno, true, Some(120_000)),
            (Algorithm::NewReno, false, None),
            (Algorithm::Hybla, true, None),
        ] {
            let mut c = Controller::new(algorithm, PACKET, 100, false).with_search(is_on);
            let mut numbers = 0..;
            for i in 0..23 {
                let now = at(100 + 36 * i);
                for number in numbers.by_ref().take(if i == 0 { 9 } else { 3 }) {
                    c.on_sent(at(36 * (number / 3)), 1200, number);
                }
                assert_eq!(c.ssthresh(), None);
                for number in [2 * i, 2 * i + 1] {
                    let sent = at(36 * (number / 3));
                    c.on_ack(now, sent, 1200, now - sent);
                }
                c.on_end_acks(now, 1200 * (i + 7), true, 2 * i + 1, 0);
            }
            assert_eq!(c.ssthresh(), ssthresh, "{algorithm:?} {is_on}");
        }
    }

    /// RFC 9002, section 7.6.2 and appendix B.8.
    #[test]
    fn persistent_congestion_leaves_two_packets() {
        let mut c = Controller::new(Algorithm::Cubic, PACKET, 40, false);
        c.on_lost(at(5000), at(50), 12_000, true);
        assert_eq!(c.window(), 2400);
        round(&mut c, 5100, 5200);
        assert_eq!(c.window(), 4800, "slow start");
        c.set_packet(1400);
        c.on_lost(at(9000), at(5300), 12_000, true);
        assert_eq!(c.window(), 2800);
        // The recovery period is over, so that packets sent in it count.
        c.on_ack(at(9100), at(8900), 1400, Duration::from_millis(200));
        c.on_end_acks(at(9100), 0, false, c.next, 0);
        assert_eq!(c.window(), 4200);
    }

    /// RFC 9002, section 7.8.
    #[test]
    fn window_does_not_grow_while_the_application_limits_the_sender() {
        let mut c = Controller::new(Algorithm::NewReno, PACKET, 10, false);
        c.on_sent(at(0), 1200, 0);
        c.on_ack(at(100), at(0), 1200, Duration::from_millis(100));
        c.on_end_acks(at(100), 0, true, 0, 0);
        assert_eq!(c.window(), 12_000);
    }

    /// RFC 8257, section 3.3: alpha is 1 at first, so one mark halves the window; half of the packets marked reduce it by a
    /// quarter in the end.
    #[test]
    fn dctcp_responds_to_the_share_of_marks() {
        let mut c = Controller::new(Algorithm::Dctcp, PACKET, 100, false);
        let mut before = 0;
        for i in 0..200u64 {
            before = c.window();
            for number in 4 * i..4 * i + 4 {
                c.on_sent(at(100 * i), 1200, number);
                c.on_ack(at(100 * i + 100), at(100 * i), 1200, Duration::from_millis(100));
            }
            c.on_end_acks(at(100 * i + 100), 0, false, 4 * i + 3, 2);
            c.window.cwnd = c.window.cwnd.max(1_000_000);
        }
        let share = c.ssthresh().unwrap() as f64 / before as f64;
        assert!((share - 0.75).abs() < 0.01, "{share}");
        let before = c.window();
        c.on_ack(at(20_100), at(20_000), 1200, Duration::from_millis(100));
        c.on_end_acks(at(20_100), 0, false, 800, 0);
        assert!(c.window() > before, "no mark, no reduction");
    }

    /// RFC 9959, appendix B.1: after 29 packets in flight the window jumps to 150, half of the saved 300. The ACKs of those 29
    /// raise PipeSize; the first of an unvalidated packet sets the window to what is in flight; the last ends it.
    #[test]
    fn careful_resume_jumps_to_half_of_the_saved_window() {
        let mut c = resuming(300);
        for number in 0..29 {
            c.on_sent(at(0), PACKET.into(), number);
        }
        // The initial window of ten packets is acknowledged, and nineteen are left; ten more are sent.
        ack(&mut c, 100, (0, 10), 19);
        assert_eq!(c.window(), 150 * u64::from(PACKET));
        for number in 29..160 {
            c.on_sent(at(100 + (number - 29) / 2), PACKET.into(), number);
        }
        ack(&mut c, 150, (10, 29), 131);
        assert_eq!(c.window(), 150 * u64::from(PACKET), "not validated");
        ack(&mut c, 200, (29, 30), 130);
        assert_eq!(c.window(), 130 * u64::from(PACKET) + u64::from(PACKET), "in flight, and slow start");
        ack(&mut c, 280, (30, 160), 0);
        let after = c.window();
        assert!(after > 200 * u64::from(PACKET), "{after}");
        assert_eq!((c.ssthresh(), c.has_retreated()), (None, false));
    }

    /// RFC 9959, section 3.1: half of 80 packets that arrive in a round trip of slow start are four initial windows of ten.
    #[test]
    fn a_path_that_carries_four_initial_windows_is_saved() {
        let path = SavedPath { cwnd: 48_000, rtt: Duration::from_millis(100) };
        for (packets, saved) in [(79, None), (80, Some(path))] {
            let mut c = Controller::new(Algorithm::NewReno, PACKET, 10, false);
            for number in 0..packets {
                c.on_sent(at(0), PACKET.into(), number);
            }
            ack(&mut c, 100, (0, packets), 0);
            assert_eq!(c.observed(), saved, "{packets} packets");
        }
    }

    /// RFC 9959, section 3.3: the Unvalidated Phase also ends once the jump of 150 packets is in flight, here with an ACK of
    /// nineteen packets sent before it, each of which lets the window grow by one in slow start.
    #[test]
    fn careful_resume_validates_once_the_window_is_in_flight() {
        for (in_flight, window) in [(149, 150), (150, 150 + 19)] {
            let mut c = resuming(300);
            for number in 0..29 {
                c.on_sent(at(0), PACKET.into(), number);
            }
            ack(&mut c, 100, (0, 10), 19);
            for number in 29..29 + in_flight {
                c.on_sent(at(110), PACKET.into(), number);
            }
            ack(&mut c, 150, (10, 29), in_flight);
            assert_eq!(c.window(), window * u64::from(PACKET), "{in_flight} packets in flight");
        }
    }

    /// RFC 9959, section 3.5: a loss in the Validating Phase leaves half of PipeSize, which does not grow until the last
    /// unvalidated packet is acknowledged; then ssthresh is half of PipeSize. Nothing is saved.
    #[test]
    fn careful_resume_retreats_after_a_loss() {
        let mut c = resuming(300);
        for number in 0..29 {
            c.on_sent(at(0), PACKET.into(), number);
        }
        ack(&mut c, 100, (0, 10), 19);
        for number in 29..160 {
            c.on_sent(at(110), PACKET.into(), number);
        }
        ack(&mut c, 150, (10, 29), 131);
        ack(&mut c, 210, (29, 31), 129);
        ack(&mut c, 210, (31, 79), 81);
        let pipe = 19 + 19 + 50;
        c.on_lost(at(211), at(110), 1200, false);
        assert_eq!(c.window(), pipe / 2 * u64::from(PACKET));
        ack(&mut c, 215, (80, 159), 1);
        assert_eq!(c.window(), pipe / 2 * u64::from(PACKET));
        ack(&mut c, 216, (159, 160), 0);
        assert_eq!(c.ssthresh(), Some((pipe + 80) / 2 * u64::from(PACKET)));
        assert_eq!((c.observed(), c.has_retreated()), (None, true));
    }

    /// RFC 9959, section 3.2: congestion, another RTT, or too little data, and the window is that of slow start.
    #[test]
    fn careful_resume_needs_the_same_path_and_no_congestion() {
        let window_after = |rtt: u64, is_lost: bool| {
            let mut c = resuming(300);
            for number in 0..12 {
                c.on_sent(at(0), PACKET.into(), number);
            }
            if is_lost {
                c.on_lost(at(rtt - 1), at(0), 1200, false);
            }
            ack(&mut c, rtt, (0, 12), 0);
            c.window() / u64::from(PACKET)
        };
        assert_eq!(window_after(100, false), 150);
        assert_eq!(window_after(51, false), 150);
        assert_eq!(window_after(50, false), 22);
        assert_eq!(window_after(1000, false), 150);
        assert_eq!(window_after(1001, false), 22);
        assert!(window_after(100, true) <= 6);
    }

    /// A sender with an initial window of ten packets that has saved a window in packets, at an RTT of 100 ms.
    fn resuming(packets: u64) -> Controller {
        let mut c = Controller::new(Algorithm::NewReno, PACKET, 10, false);
        c.resume(SavedPath { cwnd: packets * u64::from(PACKET), rtt: Duration::from_millis(100) });
        c
    }

    /// Acknowledges packets by one ACK that arrives at a time [ms] and leaves packets in flight. Each took `ms`, or 100 ms if
    /// that is less, so that the RTT is that of the path.
    fn ack(c: &mut Controller, ms: u64, (first, end): (u64, u64), left: u64) {
        let rtt = if first == 0 { ms } else { 100.min(ms) };
        for _ in first..end {
            c.on_ack(at(ms), at(ms - rtt), PACKET.into(), Duration::from_millis(rtt));
        }
        c.on_end_acks(at(ms), left * u64::from(PACKET), false, end - 1, 0);
    }

    /// Sixty packets of 1200 bytes in each round trip of 60 ms: a rate of 9.6 Mbit/s, and with BBR a window of twice the
    /// bandwidth-delay product.
    #[test]
    fn bbr_finds_the_delivery_rate() {
        let mut c = Controller::new(Algorithm::Bbr, PACKET, 60, false);
        // A packet leaves each millisecond, numbered by it.
        for ms in 0..3000u64 {
            c.on_sent(at(ms), 1200, ms);
            if ms >= 60 {
                c.on_ack(at(ms), at(ms - 60), 1200, Duration::from_millis(60));
                c.on_end_acks(at(ms), 60 * 1200, false, ms - 60, 0);
            }
        }
        let bdp = 60.0 * 1200.0;
        let window = c.window() as f64 / bdp;
        assert!((1.9..=2.2).contains(&window), "{window} bandwidth-delay products");
        let rate = c.pacing_rate(Some(Duration::from_millis(60))).unwrap().as_bps() as f64 / 9.6e6;
        assert!((0.7..=1.3).contains(&rate), "{rate} of the rate");
    }

    /// draft-cheng-iccrg-delivery-rate-estimation-00, section 3.3, worked out by hand. Packets leave at 0, 10 and 20 ms.
    ///
    /// - At 100 ms two arrive: 2400 bytes within 100 ms, 192 kbit/s; 3600 were in flight before the ACK.
    /// - The third is lost. A packet leaves at 110 ms and arrives at 210 ms: 1200 bytes within 100 ms, 96 kbit/s. Nothing was lost
    ///   since it left, and nothing else was in flight before the ACK.
    /// - While samples are marked up to 4800 bytes, a packet leaves at 300 ms. With its ACK no more than that has been delivered, so
    ///   that the next packet, too, is marked, but not the one after it.
    /// - An ACK at the time at which the packet was sent gives no rate.
    #[test]
    fn samples_follow_the_delivery_rate_draft() {
        let mut c = Controller::new(Algorithm::Bbr, PACKET, 60, false);
        for number in 0..3 {
            c.on_sent(at(10 * number), 1200, number);
        }
        let delivery = c.delivery.as_mut().unwrap();
        delivery.on_ack(at(100), at(0), 1200);
        delivery.on_ack(at(100), at(10), 1200);
        let sample = delivery.sample((2400, Duration::from_millis(90)), 1200, LossState::Open);
        assert_eq!((sample.delivered, sample.total, sample.prior_delivered), (2400, 2400, 0));
        assert_eq!(
            (sample.interval_delivered, sample.tx_in_flight, sample.prior_in_flight),
            (2400, 2400, 3600)
        );
        assert_eq!((sample.lost, sample.lost_since, sample.app_limited), (0, 0, false));
        assert_eq!(sample.rate, Some(Rate::from_bps(192_000)));

        delivery.on_lost(at(20), 1200, |_| {});
        c.on_sent(at(110), 1200, 3);
        let delivery = c.delivery.as_mut().unwrap();
        delivery.on_ack(at(210), at(110), 1200);
        let sample = delivery.sample((1200, Duration::from_millis(100)), 0, LossState::Recovery);
        assert_eq!((sample.delivered, sample.total, sample.prior_delivered), (1200, 3600, 2400));
        assert_eq!(
            (sample.interval_delivered, sample.tx_in_flight, sample.prior_in_flight),
            (1200, 1200, 1200)
        );
        assert_eq!((sample.lost, sample.lost_since, sample.app_limited), (1200, 0, false));
        assert_eq!(sample.rate, Some(Rate::from_bps(96_000)));

        delivery.app_limited = 4800;
        for (number, is_marked) in [(4, true), (5, true), (6, false)] {
            let now = at(100 * number);
            c.on_sent(now, 1200, number);
            let delivery = c.delivery.as_mut().unwrap();
            delivery.on_ack(now, now, 1200);
            let sample = delivery.sample((1200, Duration::ZERO), 0, LossState::Open);
            assert_eq!((sample.app_limited, sample.rate), (is_marked, None), "{number}");
        }
    }

    /// draft-cheng-iccrg-delivery-rate-estimation-00, section 3.4: samples are marked up to all that is delivered and in flight,
    /// but not if that fills the window, here 61 packets after the first ACK.
    #[test]
    fn samples_are_marked_if_the_window_has_room() {
        for (in_flight, marked_until) in [(73_200, 0), (73_199, 1200 + 73_199)] {
            let mut c = Controller::new(Algorithm::Bbr, PACKET, 60, false);
            c.on_sent(at(0), 1200, 0);
            c.on_ack(at(100), at(0), 1200, Duration::from_millis(100));
            c.on_end_acks(at(100), in_flight, true, 0, 0);
            assert_eq!((c.window(), c.delivery.unwrap().app_limited), (73_200, marked_until));
        }
    }

    /// A packet that is neither acknowledged nor lost is forgotten with the ACK of one sent more than 80 ms, eight RTTs, later. A
    /// loss of it is then counted but not described.
    #[test]
    fn records_are_kept_for_eight_round_trips() {
        let mut c = Controller::new(Algorithm::Bbr, PACKET, 60, false);
        for (number, (sent, kept)) in [(0, 1), (70, 2), (80, 3), (81, 0)].into_iter().enumerate() {
            c.on_sent(at(sent), 1200, number as u64);
            let delivery = c.delivery.as_mut().unwrap();
            if number > 0 {
                delivery.on_ack(at(sent + 10), at(sent), 1200);
            }
            assert_eq!(delivery.records.len(), kept, "after packet {number}");
        }
        let delivery = c.delivery.as_mut().unwrap();
        delivery.on_lost(at(81), 1200, |lost| panic!("{lost:?}"));
        assert_eq!((delivery.newly_lost, delivery.in_flight), (1200, 0));
    }

    /// Of ten packets sent 1 ms apart, those of 4 and 5 ms are lost; then, after that of 7 ms has arrived, those of 6 and
    /// 8 ms. Packet 6 continues the range of packets 4 and 5, packet 8 begins another. A packet sent after those losses is lost: no
    /// more than itself since it was sent.
    #[test]
    fn lost_bytes_are_those_of_the_latest_packets_not_acknowledged() {
        let mut c = Controller::new(Algorithm::Bbr3, PACKET, 60, false);
        for ms in 0..10 {
            c.on_sent(at(ms), 1200, ms);
        }
        let delivery = c.delivery.as_mut().unwrap();
        let mut lost = Vec::new();
        let mut each = |it: &Lost| lost.push((it.size, it.tx_in_flight, it.lost, it.begins_range, it.total));
        delivery.on_lost(at(5), 2400, &mut each);
        delivery.on_ack(at(60), at(7), 1200);
        delivery.on_lost(at(8), 2400, &mut each);
        assert_eq!((delivery.lost, delivery.newly_lost, delivery.in_flight), (4800, 4800, 5 * 1200));
        c.on_sent(at(70), 1200, 10);
        c.delivery.unwrap().on_lost(at(70), 1200, &mut each);
        let expected = [
            (1200, 6000, 1200, true, 0),
            (1200, 7200, 2400, false, 0),
            (1200, 8400, 3600, false, 1200),
            (1200, 10_800, 4800, true, 1200),
            (1200, 7200, 1200, true, 1200),
        ];
        assert_eq!(lost, expected);
    }

    /// draft-cardwell-iccrg-bbr-congestion-control-00, section 4.4.3, in the phase of ProbeBW that paces at 1.25 times the rate
    /// of 9.6 Mbit/s: nothing is in flight, and the next packet leaves at the rate itself if the application paused.
    #[test]
    fn bbr_restarts_at_the_delivery_rate_only_if_the_application_paused() {
        for is_app_limited in [false, true] {
            let mut c = Controller::new(Algorithm::Bbr, PACKET, 60, false);
            let rate = |c: &Controller| c.pacing_rate(None).map_or(0.0, |rate| rate.as_bps() as f64 / 9.6e6);
            let mut ms = 0;
            while ms < 2000 || rate(&c) < 1.2 {
                c.on_sent(at(ms), 1200, ms);
                if ms >= 60 {
                    c.on_ack(at(ms), at(ms - 60), 1200, Duration::from_millis(60));
                    c.on_end_acks(at(ms), 60 * 1200, false, ms - 60, 0);
                }
                ms += 1;
            }
            for sent in ms - 60..ms {
                c.on_ack(at(ms + 59), at(sent), 1200, Duration::from_millis(60));
            }
            c.on_end_acks(at(ms + 59), 0, is_app_limited, ms - 1, 0);
            let before = rate(&c);
            c.on_sent(at(ms + 200), 1200, ms);
            let gain = if is_app_limited { 1.0 } else { 1.25 };
            assert!((before - 1.25).abs() < 0.01 && (rate(&c) - gain).abs() < 0.01, "{before}, {}", rate(&c));
        }
    }

    /// RFC 6817 section 2.4.2: a packet more than was outstanding before the ACK of four packets, and of one.
    #[test]
    fn the_unused_window_of_ledbat_falls() {
        let mut c = Controller::new(Algorithm::Ledbat, PACKET, 10, false);
        for (sent_at, first, count, packets) in [(0, 0, 4, 5), (100, 4, 1, 2)] {
            for number in first..first + count {
                c.on_sent(at(sent_at), PACKET.into(), number);
            }
            for _ in 0..count {
                c.on_ack(at(sent_at + 100), at(sent_at), PACKET.into(), Duration::from_millis(100));
            }
            c.on_end_acks(at(sent_at + 100), 0, true, first + count - 1, 0);
            assert_eq!(c.window(), packets * u64::from(PACKET));
        }
    }

    /// Linux `CA_EVENT_TX_START`: 60 s without packets do not count for the curve, so that the window after the next round trip is that
    /// of a sender without the idle time.
    #[test]
    fn cubic_of_linux_stops_its_curve_while_nothing_is_in_flight() {
        let windows = [0, 60_000].map(|idle| {
            let mut c = Controller::new(Algorithm::CubicLinux, PACKET, 100, false);
            round(&mut c, 0, 100);
            c.on_lost(at(100), at(0), PACKET.into(), false);
            (1..6).for_each(|i| round(&mut c, 100 + i * 100, 200 + i * 100));
            (6..12).for_each(|i| round(&mut c, 100 + i * 100 + idle, 200 + i * 100 + idle));
            c.window() / u64::from(PACKET)
        });
        assert_eq!(windows[0], windows[1]);
        assert!(windows[0] > 140, "{windows:?}");
    }

    /// RFC 9002, section 2: packets that ask for no ACK are not in flight. Between the two data packets fifty of 40 bytes acknowledge
    /// data of the peer: after them nothing is in flight, so that the second packet begins a new sample.
    #[test]
    fn packets_without_an_ack_are_not_in_flight() {
        let mut c = Controller::new(Algorithm::Bbr3, PACKET, 60, false);
        c.on_sent(at(0), 1200, 0);
        c.on_ack(at(100), at(0), 1200, Duration::from_millis(100));
        c.on_end_acks(at(100), 0, true, 0, 0);
        for number in 1..=50 {
            c.on_sent(at(100 + number), 40, number);
            c.on_not_in_flight(40);
        }
        c.on_sent(at(5000), 1200, 51);
        let delivery = c.delivery.unwrap();
        let record = delivery.records.back().unwrap();
        assert_eq!((delivery.in_flight, record.tx_in_flight, record.delivered_at), (1200, 1200, at(5000)));
    }

    /// draft-cardwell-iccrg-bbr-congestion-control-00, section 4.2.3.4, on the path above: packet 2900 is lost, which the ACK of
    /// packet 2903 at 2963 ms shows. For one round trip as much is sent as is delivered, 60 packets in flight and one more;
    /// packet 2964, sent after that, ends recovery 60 ms later, and the window is again what it was.
    #[test]
    fn bbr_restores_the_window_after_recovery() {
        let mut c = Controller::new(Algorithm::Bbr, PACKET, 60, false);
        let mut windows = Vec::new();
        for ms in 0..3100u64 {
            c.on_sent(at(ms), 1200, ms);
            if ms >= 60 && ms != 2960 {
                c.on_ack(at(ms), at(ms - 60), 1200, Duration::from_millis(60));
                c.on_end_acks(at(ms), 60 * 1200, false, ms - 60, 0);
            }
            if ms == 2963 {
                c.on_lost(at(ms), at(2900), 1200, false);
            }
            windows.push(c.window());
        }
        let before = windows[2963];
        assert!(before > 110 * 1200, "{before}");
        assert_eq!(windows[2964..3023].iter().max(), Some(&(61 * 1200)));
        assert!(windows[3024] >= before, "{} of {before}", windows[3024]);
        // A packet from before the loss that arrives late begins no other recovery.
        c.on_ack(at(3100), at(2960), 1200, Duration::from_millis(60));
        c.on_end_acks(at(3100), 60 * 1200, false, 3040, 0);
        assert!(c.window() >= before, "{} of {before}", c.window());
    }

    /// draft-cardwell-iccrg-bbr-congestion-control-00, section 4.2.3.4, on the path above: 30 packets are lost in persistent
    /// congestion. BBR keeps the rest of its window and what the next ACK delivers. The ACK of a packet sent after that restores the
    /// window, not that of one sent before.
    #[test]
    fn bbr_restores_the_window_after_persistent_congestion() {
        let mut c = Controller::new(Algorithm::Bbr, PACKET, 60, false);
        for ms in 0..=3000u64 {
            c.on_sent(at(ms), 1200, ms);
            if ms >= 60 {
                c.on_ack(at(ms), at(ms - 60), 1200, Duration::from_millis(60));
                c.on_end_acks(at(ms), 60 * 1200, false, ms - 60, 0);
            }
        }
        c.on_sent(at(3001), 1200, 3001);
        let before = c.window();
        c.on_lost(at(3000), at(2970), 30 * 1200, true);
        assert_eq!(c.window(), before);
        for (sent, window) in [(2971, before - 29 * 1200), (3001, before)] {
            c.on_ack(at(sent + 60), at(sent), 1200, Duration::from_millis(60));
            c.on_end_acks(at(sent + 60), 30 * 1200, false, sent, 0);
            assert_eq!(c.window(), window, "sent at {sent} ms");
        }
    }
}
