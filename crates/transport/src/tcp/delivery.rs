//! RTT and delivery rate samples of each ACK (draft-cheng-iccrg-delivery-rate-estimation-00).
//!
//! Kept only if the algorithm uses them: BBR, or slow start with HyStart++ or SEARCH. Each segment records the amount and time of
//! delivery at its departure; the ACK that reports its arrival then covers the time since.
//!
//! - `interval = max(send_elapsed, ack_elapsed)`, section 2.2.4: compressed ACKs do not increase the rate;
//! - `rate = (C.delivered - P.delivered) / interval`, for the newest segment that the ACK reports;
//! - samples taken while the application had too little to send are marked, section 2.2.5.
//!
//! Without SACK a segment counts as delivered when it is acknowledged, although duplicate ACKs reported it earlier.
//!
//! Departure: retransmissions keep the boundaries of the original segments.

use std::collections::VecDeque;

use bentpipe_units::{Duration, Instant, Rate};

use super::Ranges;
use super::congestion::Lost;
use super::congestion::hystart::HyStart;
use super::congestion::search::{Search, SearchAck};
use super::connection::{Connection, Phase};
use super::{Config, Segment};

/// A segment in flight: the variables of section 3.2.
#[derive(Clone, Copy, Debug)]
struct Record {
    /// Position after its last byte.
    end: u64,
    /// C.delivered at its departure [bytes].
    delivered: u64,
    /// C.delivered_time at its departure.
    delivered_at: Instant,
    /// C.first_sent_time at its departure.
    first_sent_at: Instant,
    /// Departure time.
    sent_at: Instant,
    /// C.inflight after its departure, and C.lost at its departure [bytes].
    tx_in_flight: u64,
    lost: u64,
    /// Sequence space taken [bytes].
    len: u32,
    /// Sent while the application had too little to send.
    app_limited: bool,
    /// Sent more than once.
    retransmitted: bool,
    /// Reported as arrived.
    arrived: bool,
}

/// Loss recovery state, for an algorithm that sets its window itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LossState {
    /// No loss detected.
    Open,
    /// In fast recovery.
    Recovery,
    /// After a timeout, until everything sent before is acknowledged.
    Loss,
}

/// Information of an ACK about the path: the rate sample of section 3.3 and the other inputs of BBR.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Newly delivered [bytes].
    pub(super) delivered: u64,
    /// Newly found lost [bytes].
    pub(super) lost: u64,
    /// C.delivered: delivered in total [bytes].
    pub(super) total: u64,
    /// C.delivered at the departure of the newest segment delivered [bytes].
    pub(super) prior_delivered: u64,
    /// Delivered and lost since its departure, RS.delivered and RS.lost, and in flight at it; zero if no segment was
    /// delivered [bytes].
    pub(super) interval_delivered: u64,
    pub(super) lost_since: u64,
    pub(super) tx_in_flight: u64,
    /// In flight before and after this ACK [bytes].
    pub(super) prior_in_flight: u64,
    pub(super) in_flight: u64,
    /// RTT of the newest segment that was sent only once.
    pub(super) rtt: Option<Duration>,
    /// Delivery rate; `None` without a valid sample.
    pub(super) rate: Option<Rate>,
    /// Sampled while the application had too little to send.
    pub(super) app_limited: bool,
    pub(super) loss_state: LossState,
    /// More than one loss per RTT can be detected.
    pub(super) has_sack: bool,
}

/// Delivery records of the segments in flight. The buffer is kept for reuse.
#[derive(Clone, Debug, Default)]
pub(super) struct Delivery {
    ring: VecDeque<Record>,
    /// C.delivered [bytes].
    delivered: u64,
    /// C.delivered_time.
    delivered_at: Instant,
    /// C.first_sent_time.
    first_sent_at: Instant,
    /// C.app_limited: samples are marked until this much is delivered; zero if they are not.
    app_limited: u64,
    /// Losses below this position have been counted.
    lost_below: u64,
    /// C.lost, and the part that the next sample reports [bytes].
    lost: u64,
    newly_lost: u64,
    /// Position after the segment found lost last.
    lost_end: u64,
    /// Minimum RTT so far.
    min_rtt: Duration,
    /// Results of the current ACK: newest segment, newly delivered bytes, RTT.
    newest: Option<Record>,
    newly_delivered: u64,
    rtt: Option<Duration>,
    prior_in_flight: u64,
    /// Consecutive duplicate ACKs before it.
    prior_duplicates: u16,
    /// HyStart++, which ends the first slow start.
    pub(super) hystart: Option<HyStart>,
    /// SEARCH, in its place.
    pub(super) search: Option<Box<Search>>,
}

impl Delivery {
    /// Returns `None` if the configuration does not need delivery records.
    pub(super) fn new(cfg: &Config) -> Option<Box<Self>> {
        let hystart = (cfg.hystart && cfg.algorithm.has_slow_start()).then(HyStart::default);
        let search = (cfg.search && cfg.algorithm.has_slow_start()).then(Box::default);
        let needed = hystart.is_some() || search.is_some() || cfg.algorithm.sets_cwnd();
        needed.then(|| Box::new(Self { min_rtt: Duration::MAX, hystart, search, ..Self::default() }))
    }

    /// Records the departure of `seq..end`. SendPacket() of section 3.2.
    /// `in_flight` is what was in flight before it.
    fn on_sent(&mut self, now: Instant, seq: u64, end: u64, in_flight: u64) {
        if let Some(search) = &mut self.search {
            search.on_sent(end - seq);
        }
        if in_flight == 0 {
            self.first_sent_at = now;
            self.delivered_at = now;
        }
        let mut record = Record {
            end,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            sent_at: now,
            tx_in_flight: in_flight + (end - seq),
            lost: self.lost,
            len: 0,
            app_limited: self.app_limited > 0,
            retransmitted: false,
            arrived: false,
        };
        let known = self.ring.back().map_or(seq, |last| last.end);
        record.retransmitted = seq < known;
        let mut at = self.ring.partition_point(|r| r.end <= seq);
        let mut start = seq;
        while let Some(old) = self.ring.get_mut(at).filter(|_| start < end) {
            if !old.arrived {
                *old = Record { end: old.end, len: old.len, ..record };
            }
            start = old.end;
            at += 1;
        }
        if end > known {
            record.len = (end - known.max(seq)) as u32;
            self.ring.push_back(record);
        }
    }

    /// Processes the blocks and the ACK of a segment. UpdateRateSample() of section 3.3.
    fn on_ack(&mut self, now: Instant, una: u64, max: u64, seg: &Segment, known: Option<&Ranges>) {
        self.newest = None;
        self.newly_delivered = 0;
        self.rtt = None;
        if let Some(known) = known {
            for (start, end) in seg.sack.blocks(seg.ack).filter(|block| block.1 <= max) {
                // Ranges that earlier ACKs reported are skipped.
                let mut at = start.max(una);
                while at < end {
                    let (start, upto) = known.gap(at, end);
                    let first = self.ring.partition_point(|r| r.end <= start);
                    let mut index = first;
                    while self.ring.get(index).is_some_and(|r| r.end <= upto) {
                        self.on_arrived(now, index);
                        index += 1;
                    }
                    at = upto;
                }
            }
        }
        while self.ring.front().is_some_and(|r| r.end <= seg.ack) {
            self.on_arrived(now, 0);
            self.ring.pop_front();
        }
        self.lost_below = self.lost_below.max(seg.ack);
    }

    fn on_arrived(&mut self, now: Instant, index: usize) {
        let Some(record) = self.ring.get_mut(index).filter(|r| !r.arrived) else { return };
        record.arrived = true;
        let record = *record;
        self.delivered += u64::from(record.len);
        self.newly_delivered += u64::from(record.len);
        self.delivered_at = now;
        if !record.retransmitted {
            // Of several segments, the one sent last counts: the others waited for the ACK.
            let rtt = now - record.sent_at;
            self.rtt = Some(self.rtt.map_or(rtt, |min_rtt| min_rtt.min(rtt)));
            self.min_rtt = self.min_rtt.min(rtt);
        }
        if self.newest.is_none_or(|newest| record.delivered >= newest.delivered) {
            self.newest = Some(record);
            self.first_sent_at = record.sent_at;
        }
    }

    /// Counts the segments of `seq..end` as lost and passes each to `each`.
    fn on_lost(&mut self, seq: u64, end: u64, mut each: impl FnMut(&Lost)) {
        let mut at = self.ring.partition_point(|r| r.end <= seq);
        while let Some(record) = self.ring.get(at).filter(|r| r.end <= end) {
            at += 1;
            let size = u64::from(record.len);
            if record.arrived || size == 0 {
                continue;
            }
            self.lost += size;
            self.newly_lost += size;
            let begins_range = self.lost_end + size != record.end;
            self.lost_end = record.end;
            each(&Lost {
                size,
                tx_in_flight: record.tx_in_flight,
                lost: self.lost - record.lost,
                app_limited: record.app_limited,
                begins_range,
                total: self.delivered,
            });
        }
    }

    /// GenerateRateSample() of section 3.3.
    fn sample(&mut self, in_flight: u64, loss_state: LossState, has_sack: bool) -> Sample {
        if self.delivered > self.app_limited {
            self.app_limited = 0;
        }
        let mut sample = Sample {
            delivered: self.newly_delivered,
            lost: std::mem::take(&mut self.newly_lost),
            total: self.delivered,
            prior_delivered: self.newest.map_or(0, |r| r.delivered),
            interval_delivered: self.newest.map_or(0, |r| self.delivered - r.delivered),
            lost_since: self.newest.map_or(0, |r| self.lost - r.lost),
            tx_in_flight: self.newest.map_or(0, |r| r.tx_in_flight),
            prior_in_flight: self.prior_in_flight,
            in_flight,
            rtt: self.rtt,
            rate: None,
            app_limited: self.newest.is_some_and(|r| r.app_limited),
            loss_state,
            has_sack,
        };
        if let Some(newest) = self.newest {
            let sending = newest.sent_at - newest.first_sent_at;
            let interval = sending.max(self.delivered_at - newest.delivered_at);
            // Less than an RTT cannot deliver more than was in flight: a shorter sample comes from compressed ACKs or
            // from a spurious retransmission.
            if interval >= self.min_rtt && !interval.is_zero() {
                let bits = u128::from(self.delivered - newest.delivered) * 8_000_000_000;
                let bps = bits / u128::from(interval.as_nanos());
                sample.rate = Some(Rate::from_bps(bps.min(u128::from(u64::MAX)) as u64));
            }
        }
        sample
    }
}

impl Connection {
    /// Records the departure of data `seq..end`.
    #[cold]
    pub(super) fn on_data_sent(&mut self, cfg: &Config, now: Instant, seq: u64, end: u64) {
        let in_flight = self.in_flight(cfg);
        let Some(delivery) = &mut self.delivery else { return };
        if in_flight == 0 && delivery.app_limited > 0 {
            self.algorithm.on_restart(&mut self.window, cfg, now);
        }
        delivery.on_sent(now, seq, end, in_flight);
    }

    /// Takes note that the application has nothing to send although the window has room: OnApplicationWrite() of
    /// section 3.4.
    #[cold]
    pub(super) fn on_app_limited(&mut self, cfg: &Config) {
        let in_flight = self.in_flight(cfg);
        if let Some(delivery) = self.delivery.as_mut().filter(|_| in_flight < self.window.cwnd) {
            delivery.app_limited = (delivery.delivered + in_flight).max(1);
        }
    }

    /// Starts the sample before an ACK is processed.
    #[cold]
    pub(super) fn begin_sample(&mut self, cfg: &Config, now: Instant, seg: &Segment) {
        let prior_in_flight = self.in_flight(cfg);
        let Some(delivery) = &mut self.delivery else { return };
        (delivery.prior_in_flight, delivery.prior_duplicates) = (prior_in_flight, self.duplicate_acks);
        let known = self.sack.as_ref().map(|board| &board.ranges);
        delivery.on_ack(now, self.una, self.max, seg, known);
        if let Some(hystart) = &mut delivery.hystart
            && seg.ack > self.una
        {
            hystart.on_ack(&mut self.window, delivery.rtt, seg.ack, self.nxt.max(seg.ack));
        }
        // Also an ACK that only SACKs data: what it delivers is in no later one.
        if let Some(search) = &mut delivery.search
            && delivery.newly_delivered > 0
        {
            let ack = SearchAck {
                now,
                bytes: delivery.newly_delivered,
                in_flight: self.max.saturating_sub(seg.ack),
                rtt: delivery.rtt,
                iw: cfg.iw(),
                smss: cfg.smss(),
            };
            search.on_ack(&mut self.window, &ack);
        }
    }

    /// Completes the sample after an ACK was processed; `cwnd` is the window before it. An algorithm that sets its
    /// window itself does so now, whatever recovery did to it.
    #[cold]
    pub(super) fn end_sample(&mut self, cfg: &Config, now: Instant, cwnd: u64) {
        if !self.algorithm.sets_cwnd() {
            return;
        }
        let in_flight = self.in_flight(cfg);
        let loss_state = match self.phase {
            Phase::FastRecovery | Phase::SackRecovery => LossState::Recovery,
            _ if self.una < self.recover => LossState::Loss,
            _ => LossState::Open,
        };
        self.window.cwnd = cwnd;
        self.report_losses(cfg, now);
        let has_sack = self.sack.is_some();
        let Some(delivery) = &mut self.delivery else { return };
        let mut sample = delivery.sample(in_flight, loss_state, has_sack);
        if self.sack.is_none()
            && self.duplicate_acks > delivery.prior_duplicates
            && sample.delivered == 0
            && loss_state != LossState::Loss
        {
            // A duplicate ACK reports an arrival, but not of which segment. RFC 6582 section 3.2 step 2: after a
            // timeout it may be a segment that had arrived before and was resent, which must not release more data.
            sample.delivered = cfg.smss();
        }
        let srtt = self.rto.srtt();
        if self.algorithm.on_sample(&mut self.window, &sample, cfg, srtt, now) {
            delivery.app_limited = (delivery.delivered + in_flight).max(1);
        }
    }

    /// Tells an algorithm that sets its window itself of the segments that were found lost since the last call.
    #[cold]
    pub(super) fn report_losses(&mut self, cfg: &Config, now: Instant) {
        let (Some(delivery), Some(board)) = (&mut self.delivery, &mut self.sack) else { return };
        let (algorithm, window) = (&mut self.algorithm, &self.window);
        let mut each = |lost: &Lost| algorithm.on_lost(window, lost, cfg, now);
        if let Some(rack) = &mut board.rack {
            for (start, end) in rack.segments.newly_lost.drain(..) {
                delivery.on_lost(start, end, &mut each);
            }
        } else {
            let from = delivery.lost_below;
            delivery.on_lost(from, board.lost_below, each);
            delivery.lost_below = delivery.lost_below.max(board.lost_below);
        }
    }

    /// In flight: sent, and neither acknowledged nor SACKed nor lost, as far as known [bytes].
    pub(super) fn in_flight(&self, cfg: &Config) -> u64 {
        let flight = self.in_network();
        if self.sack.is_some() { flight } else { flight.saturating_sub(self.duplicates(cfg)) }
    }

    /// As `in_flight`, but without the information from duplicate ACKs if there is no SACK [bytes].
    pub(super) fn in_network(&self) -> u64 {
        let (una, nxt, max) = (self.una, self.nxt, self.max);
        match &self.sack {
            Some(board) if board.rack.is_some() => board.in_flight(una, max),
            Some(board) if self.phase == Phase::SackRecovery => board.in_network(una, max),
            Some(board) if nxt == max => nxt - una - board.sacked_bytes,
            Some(board) => nxt - una - board.ranges.covered(una, nxt),
            None => nxt - una,
        }
    }

    /// Data that duplicate ACKs report to have left the network and that is not part of cwnd: for an algorithm that sets
    /// its window itself, and as in ns-2 [bytes].
    pub(super) fn duplicates(&self, cfg: &Config) -> u64 {
        if self.phase == Phase::FastRecovery && (self.algorithm.sets_cwnd() || cfg.ns2_recovery) {
            u64::from(self.duplicate_acks) * cfg.smss()
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::{Algorithm, Ecn, Flags, Sack, Timestamps};

    /// Without SACK, each duplicate ACK increases BBR's window by a segment; not after a timeout, because after going
    /// back they answer segments that arrived twice.
    #[test]
    fn duplicate_acks_after_a_timeout_are_not_deliveries() {
        let cfg = Config { mss: 1000, algorithm: Algorithm::Bbr, ..Config::default() };
        for (recover, nxt, cwnd) in [(0, 8001, 6000), (8001, 4001, 4000)] {
            let mut c = Connection::connect(&cfg, Instant::ZERO);
            (c.una, c.nxt, c.max, c.recover, c.edge, c.window.cwnd) = (1, nxt, 8001, recover, 60_001, 4000);
            for ms in 1..=2 {
                let duplicate = Segment {
                    seq: 1,
                    ack: 1,
                    len: 0,
                    window: 60_000,
                    cwnd: 0,
                    sack: Sack::NONE,
                    timestamps: Timestamps::NONE,
                    flags: Flags::ACK,
                    retransmission: false,
                    ecn: Ecn::NotEct,
                };
                c.on_ack(&cfg, Instant::ZERO + Duration::from_millis(ms), &duplicate);
            }
            assert_eq!(c.window.cwnd, cwnd);
        }
    }

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn ack(ack: u64, blocks: &[(u64, u64)]) -> Segment {
        let (seq, len, window, cwnd, timestamps) = (1, 0, 60_000, 0, Timestamps::NONE);
        let (flags, retransmission, ecn) = (Flags::ACK, false, Ecn::NotEct);
        let sack = if blocks.is_empty() { Sack::NONE } else { Sack::new(ack, blocks) };
        Segment { seq, ack, len, window, cwnd, sack, timestamps, flags, retransmission, ecn }
    }

    /// Segments of 1000 bytes sent every `ms` from zero on, all in flight.
    fn sent(segments: u64, ms: u64) -> Box<Delivery> {
        let cfg = Config { mss: 1000, algorithm: Algorithm::Bbr, ..Config::default() };
        let mut delivery = Delivery::new(&cfg).unwrap();
        for n in 0..segments {
            delivery.on_sent(at(n * ms), 1 + n * 1000, 1001 + n * 1000, n * 1000);
        }
        delivery
    }

    /// draft-cheng-iccrg-delivery-rate-estimation-00, section 3.3, worked out by hand. Three segments leave at 0, 10 and
    /// 20 ms.
    ///
    /// - At 100 ms, two arrive: the second, sent at 10 ms, gives an RTT of 90 ms and 2000 bytes since 0 ms, 160 kbit/s.
    /// - The third is resent at 110 ms and gives no RTT. At 200 ms, 1000 bytes were delivered within 100 ms, 80 kbit/s.
    /// - Half of it, resent at 210 ms with 1000 bytes more, counts no second time.
    #[test]
    fn samples_follow_the_delivery_rate_draft() {
        let mut delivery = sent(3, 10);
        delivery.on_ack(at(100), 1, 3001, &ack(2001, &[]), None);
        let sample = delivery.sample(1000, LossState::Open, false);
        assert_eq!((sample.delivered, sample.total, sample.prior_delivered), (2000, 2000, 0));
        assert_eq!((sample.interval_delivered, sample.tx_in_flight, sample.in_flight), (2000, 2000, 1000));
        assert_eq!(sample.rtt, Some(Duration::from_millis(90)));
        assert_eq!(sample.rate, Some(Rate::from_bps(160_000)));

        delivery.on_sent(at(110), 2001, 3001, 1000);
        delivery.on_ack(at(200), 2001, 3001, &ack(3001, &[]), None);
        let sample = delivery.sample(0, LossState::Open, false);
        assert_eq!((sample.delivered, sample.total, sample.prior_delivered), (1000, 3000, 2000));
        assert_eq!((sample.interval_delivered, sample.tx_in_flight, sample.rtt), (1000, 2000, None));
        assert_eq!(sample.rate, Some(Rate::from_bps(80_000)));

        let mut delivery = sent(1, 0);
        delivery.on_sent(at(210), 501, 2001, 1000);
        delivery.on_ack(at(300), 1, 2001, &ack(2001, &[]), None);
        assert_eq!((delivery.delivered, delivery.rtt), (2000, None));
    }

    /// A segment takes 100 ms, which is the minimum RTT and long enough. The next one leaves at 150 ms, is resent in vain at
    /// 155 ms and acknowledged at 160 ms.
    #[test]
    fn a_sample_shorter_than_the_minimum_rtt_has_no_rate() {
        let mut delivery = sent(1, 0);
        delivery.on_ack(at(100), 1, 1001, &ack(1001, &[]), None);
        let sample = delivery.sample(0, LossState::Open, false);
        assert_eq!(sample.rate, Some(Rate::from_bps(80_000)));
        delivery.on_sent(at(150), 1001, 2001, 0);
        delivery.on_sent(at(155), 1001, 2001, 1000);
        delivery.on_ack(at(160), 1001, 2001, &ack(2001, &[]), None);
        let sample = delivery.sample(0, LossState::Open, false);
        assert_eq!((sample.delivered, sample.rate, sample.rtt), (1000, None, None));
    }

    /// Five segments are sent; the fourth is SACKed, twice. The first three are lost, one range, then the fifth, another.
    /// Samples are marked until more is delivered than was written before the application paused. Of the 5000 bytes lost in the
    /// end, 1000 are lost since the last segment was sent.
    #[test]
    fn losses_and_pauses_are_part_of_the_sample() {
        let mut delivery = sent(5, 10);
        let mut known = Ranges::new();
        delivery.on_ack(at(100), 1, 5001, &ack(1, &[(3001, 4001)]), Some(&known));
        assert_eq!((delivery.newly_delivered, delivery.rtt), (1000, Some(Duration::from_millis(70))));
        let mut lost = Vec::new();
        let mut each = |it: &Lost| lost.push((it.size, it.tx_in_flight, it.lost, it.begins_range, it.total));
        delivery.on_lost(1, 3001, &mut each);
        assert_eq!(delivery.lost, 3000);
        delivery.on_lost(3001, 5001, &mut each);
        let expected = [
            (1000, 1000, 1000, true, 1000),
            (1000, 2000, 2000, false, 1000),
            (1000, 3000, 3000, false, 1000),
            (1000, 5000, 4000, true, 1000),
        ];
        assert_eq!(lost, expected);
        let sample = delivery.sample(0, LossState::Recovery, true);
        assert_eq!((sample.lost, sample.lost_since, sample.app_limited), (4000, 4000, false));

        known.insert(3001, 4001);
        delivery.app_limited = 2000;
        delivery.on_sent(at(110), 5001, 6001, 0);
        delivery.on_ack(at(110), 1, 6001, &ack(1, &[(3001, 4001)]), Some(&known));
        assert_eq!((delivery.newly_delivered, delivery.newest.is_some()), (0, false));
        delivery.on_ack(at(200), 1, 6001, &ack(1, &[(5001, 6001)]), Some(&known));
        let sample = delivery.sample(0, LossState::Recovery, true);
        assert_eq!((sample.total, sample.app_limited, sample.lost, sample.lost_since), (2000, true, 0, 0));
        assert_eq!(delivery.app_limited, 2000, "not more than that");
        delivery.on_ack(at(210), 1, 6001, &ack(1001, &[]), Some(&known));
        delivery.sample(0, LossState::Recovery, true);
        assert_eq!((delivery.delivered, delivery.app_limited), (3000, 0));

        delivery.on_sent(at(220), 6001, 7001, 0);
        let mut last = None;
        delivery.on_lost(6001, 7001, |it| last = Some((it.size, it.lost)));
        assert_eq!((last, delivery.lost), (Some((1000, 1000)), 5000));
    }

    /// Two segments of 1000 bytes are sent, at 0 and 10 ms.
    ///
    /// - The first is resent: the second alone gives an RTT, 120 - 10 ms.
    /// - Both are resent in one segment: an ACK of the first delivers 1000 bytes.
    /// - The second is SACKed, and nevertheless resent at 300 ms: the ACK of both delivers only the first, which was sent with
    ///   nothing delivered.
    #[test]
    fn retransmissions_keep_the_boundaries_of_the_original_segments() {
        let mut delivery = sent(2, 10);
        delivery.on_sent(at(110), 1, 1001, 1000);
        delivery.on_ack(at(120), 1, 2001, &ack(2001, &[]), None);
        assert_eq!((delivery.delivered, delivery.rtt), (2000, Some(Duration::from_millis(110))));

        let mut delivery = sent(2, 10);
        delivery.on_sent(at(110), 1, 2001, 0);
        delivery.on_ack(at(120), 1, 2001, &ack(1001, &[]), None);
        assert_eq!((delivery.delivered, delivery.rtt), (1000, None));

        let mut delivery = sent(2, 10);
        delivery.on_ack(at(100), 1, 2001, &ack(1, &[(1001, 2001)]), Some(&Ranges::new()));
        delivery.on_sent(at(300), 1001, 2001, 1000);
        delivery.on_ack(at(310), 1, 2001, &ack(2001, &[]), None);
        let sample = delivery.sample(0, LossState::Open, true);
        assert_eq!((sample.total, sample.delivered, sample.prior_delivered), (2000, 1000, 0));
    }

    /// draft-cardwell-iccrg-bbr-congestion-control-00 section 4.3.5: in ProbeRTT, here once RTprop is 10 s old, samples are marked
    /// until all that is delivered, 2000 bytes, and in flight, 1000 bytes, has been passed.
    #[test]
    fn probe_rtt_marks_what_is_in_flight() {
        let cfg = Config { mss: 1000, algorithm: Algorithm::Bbr, ..Config::default() };
        let mut c = Connection::connect(&cfg, Instant::ZERO);
        (c.una, c.nxt, c.max, c.written) = (1, 1, 1, 3001);
        for (ms, seq, end) in [(0, 1, 1001), (100, 1001, 3001)] {
            for seq in (seq..end).step_by(1000) {
                c.on_data_sent(&cfg, at(ms), seq, seq + 1000);
                (c.nxt, c.max) = (seq + 1000, seq + 1000);
            }
            c.on_ack(&cfg, at(if ms == 0 { 100 } else { 10_101 }), &ack(c.una + 1000, &[]));
        }
        assert_eq!((c.una, c.window.cwnd), (2001, 4000));
        assert_eq!(c.delivery.unwrap().app_limited, 3000);
    }
}
