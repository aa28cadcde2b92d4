//! What became of each segment: round trips for every ACK, and the rate at which data arrives
//! (draft-cheng-iccrg-delivery-rate-estimation-00).
//!
//! Only connections have it whose algorithm reads it: BBR, or a slow start that HyStart++ ends. With each segment goes
//! what had been delivered, and when, as it left; the ACK that tells of its arrival then covers the time since.
//!
//! - `interval = max(send_elapsed, ack_elapsed)`, section 2.2.4: ACKs that come compressed do not make it faster;
//! - `rate = (C.delivered - P.delivered) / interval`, of the newest segment that the ACK tells of;
//! - samples taken while the application had too little to send are marked, section 2.2.5.
//!
//! Without SACK a segment counts as delivered when it is acknowledged, though duplicate ACKs told of it before.
//!
//! Departure: positions that were sent again in other segments than at first keep the first ones' limits.

use std::collections::VecDeque;

use bentpipe_units::{Duration, Instant, Rate};

use super::Ranges;
use super::congestion::hystart::HyStart;
use super::connection::{Connection, Phase};
use super::{Config, Segment};

/// A segment under way: the variables of section 3.2.
#[derive(Clone, Copy, Debug)]
struct Record {
    /// Where it ends.
    end: u64,
    /// C.delivered when it left [bytes].
    delivered: u64,
    /// C.delivered_time when it left.
    delivered_at: Instant,
    /// C.first_sent_time when it left.
    first_sent_at: Instant,
    /// When it left.
    sent_at: Instant,
    /// What it takes of the stream [bytes].
    len: u32,
    /// The application had too little to send.
    app_limited: bool,
    /// It was sent more than once.
    retransmitted: bool,
    /// It has arrived.
    arrived: bool,
}

/// How the sender stands towards losses, for an algorithm that sets its window itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LossState {
    /// Nothing is known to be lost.
    Open,
    /// In fast recovery.
    Recovery,
    /// After a timeout, until all is acknowledged that was sent before.
    Loss,
}

/// What an ACK tells of the path: the rate sample of section 3.3, and what BBR asks for besides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// What it newly says to have arrived [bytes].
    pub(super) delivered: u64,
    /// What it newly shows to be lost [bytes].
    pub(super) lost: u64,
    /// C.delivered: what has arrived in all [bytes].
    pub(super) total: u64,
    /// C.delivered when the newest of the segments that arrived left [bytes].
    pub(super) prior_delivered: u64,
    /// Thought to be in the network, before this ACK and after [bytes].
    pub(super) prior_in_flight: u64,
    pub(super) in_flight: u64,
    /// Round trip of the newest segment that was sent once only.
    pub(super) rtt: Option<Duration>,
    /// The delivery rate, where there is a sample.
    pub(super) rate: Option<Rate>,
    /// The sample was taken while the application had too little to send.
    pub(super) app_limited: bool,
    pub(super) loss_state: LossState,
}

/// What is known of the segments under way. Their memory is kept for the next ones.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    ring: VecDeque<Record>,
    /// C.delivered [bytes].
    delivered: u64,
    /// C.delivered_time.
    delivered_at: Instant,
    /// C.first_sent_time.
    first_sent_at: Instant,
    /// C.app_limited: samples are marked until this much has arrived; zero where they are not.
    app_limited: u64,
    /// Losses below have been counted.
    lost_below: u64,
    /// The least round trip so far.
    min_rtt: Duration,
    /// What the current ACK tells of: the newest segment, what arrived, a round trip.
    newest: Option<Record>,
    newly_delivered: u64,
    rtt: Option<Duration>,
    prior_in_flight: u64,
    /// What ends the first slow start.
    pub(super) hystart: Option<HyStart>,
}

impl Delivery {
    /// For a connection with this configuration, where it needs one.
    pub(super) fn new(cfg: &Config) -> Option<Box<Self>> {
        let hystart = (cfg.hystart && cfg.algorithm.has_slow_start()).then(HyStart::default);
        let needed = hystart.is_some() || cfg.algorithm.sets_cwnd();
        needed.then(|| {
            Box::new(Self {
                ring: VecDeque::new(),
                delivered: 0,
                delivered_at: Instant::ZERO,
                first_sent_at: Instant::ZERO,
                app_limited: 0,
                lost_below: 0,
                min_rtt: Duration::MAX,
                newest: None,
                newly_delivered: 0,
                rtt: None,
                prior_in_flight: 0,
                hystart,
            })
        })
    }

    /// `seq..end` leaves; `idle`: with nothing else in the network. Section 3.2, SendPacket().
    fn on_sent(&mut self, now: Instant, seq: u64, end: u64, idle: bool) {
        if idle {
            self.first_sent_at = now;
            self.delivered_at = now;
        }
        let mut record = Record {
            end,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            sent_at: now,
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
                *old = Record { end: old.end, len: old.len, retransmitted: true, ..record };
            }
            start = old.end;
            at += 1;
        }
        if end > known {
            record.len = (end - known.max(seq)) as u32;
            self.ring.push_back(record);
        }
    }

    /// An ACK comes in: it acknowledges all below `ack` and SACKs what it says. Section 3.3, UpdateRateSample().
    fn on_ack(&mut self, now: Instant, una: u64, max: u64, seg: &Segment, known: Option<&Ranges>) {
        self.newest = None;
        self.newly_delivered = 0;
        self.rtt = None;
        if let Some(known) = known {
            for (start, end) in seg.sack.blocks(seg.ack).filter(|block| block.1 <= max) {
                // What other ACKs told of before is not looked at again.
                let mut at = start.max(una);
                while at < end {
                    let (fresh, upto) = known.gap(at, end);
                    let first = self.ring.partition_point(|r| r.end <= fresh);
                    let mut place = first;
                    while self.ring.get(place).is_some_and(|r| r.end <= upto) {
                        self.on_arrived(now, place);
                        place += 1;
                    }
                    at = upto.max(at + 1);
                }
            }
        }
        while self.ring.front().is_some_and(|r| r.end <= seg.ack) {
            self.on_arrived(now, 0);
            self.ring.pop_front();
        }
        self.lost_below = self.lost_below.max(seg.ack);
    }

    fn on_arrived(&mut self, now: Instant, place: usize) {
        let Some(record) = self.ring.get_mut(place).filter(|r| !r.arrived) else { return };
        record.arrived = true;
        let record = *record;
        self.delivered += u64::from(record.len);
        self.newly_delivered += u64::from(record.len);
        self.delivered_at = now;
        if !record.retransmitted {
            // Of several the one that left last, for the others waited for it to be acknowledged.
            let rtt = now - record.sent_at;
            self.rtt = Some(self.rtt.map_or(rtt, |least| least.min(rtt)));
            self.min_rtt = self.min_rtt.min(rtt);
        }
        if self.newest.is_none_or(|newest| record.delivered >= newest.delivered) {
            self.newest = Some(record);
            self.first_sent_at = record.sent_at;
        }
    }

    /// Counts what is newly lost of what lies below `lost` [bytes].
    fn count_lost(&mut self, lost: u64) -> u64 {
        let mut at = self.ring.partition_point(|r| r.end <= self.lost_below);
        let mut bytes = 0;
        while let Some(record) = self.ring.get(at).filter(|r| r.end <= lost) {
            bytes += if record.arrived { 0 } else { u64::from(record.len) };
            self.lost_below = record.end;
            at += 1;
        }
        bytes
    }

    /// Section 3.3, GenerateRateSample().
    fn sample(&mut self, lost: u64, in_flight: u64, loss_state: LossState) -> Sample {
        if self.app_limited > 0 && self.delivered > self.app_limited {
            self.app_limited = 0;
        }
        let mut sample = Sample {
            delivered: self.newly_delivered,
            lost,
            total: self.delivered,
            prior_delivered: self.newest.map_or(0, |r| r.delivered),
            prior_in_flight: self.prior_in_flight,
            in_flight,
            rtt: self.rtt,
            rate: None,
            app_limited: self.newest.is_some_and(|r| r.app_limited),
            loss_state,
        };
        if let Some(newest) = self.newest {
            let sending = newest.sent_at - newest.first_sent_at;
            let interval = sending.max(self.delivered_at - newest.delivered_at);
            // No more can have been delivered in less than a round trip than was in flight: a sample of less is one of
            // ACKs that came in a bunch, or of a segment that need not have been sent again.
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
    /// Data leaves, `seq..end`.
    #[cold]
    pub(super) fn on_data_sent(&mut self, cfg: &Config, now: Instant, seq: u64, end: u64) {
        let idle = self.in_flight(cfg) == 0;
        let Some(delivery) = &mut self.delivery else { return };
        if idle && delivery.app_limited > 0 {
            self.algorithm.on_restart();
        }
        delivery.on_sent(now, seq, end, idle);
    }

    /// There is nothing to send, though the window has room: section 3.4, OnApplicationWrite().
    #[cold]
    pub(super) fn on_app_limited(&mut self, cfg: &Config) {
        let in_flight = self.in_flight(cfg);
        if let Some(delivery) = self.delivery.as_mut().filter(|_| in_flight < self.window.cwnd) {
            delivery.app_limited = (delivery.delivered + in_flight).max(1);
        }
    }

    /// An ACK is about to be taken in.
    #[cold]
    pub(super) fn begin_sample(&mut self, cfg: &Config, now: Instant, seg: &Segment) {
        let prior_in_flight = self.in_flight(cfg);
        let Some(delivery) = &mut self.delivery else { return };
        delivery.prior_in_flight = prior_in_flight;
        let known = self.sack.as_ref().map(|board| &board.ranges);
        delivery.on_ack(now, self.una, self.max, seg, known);
        if let Some(hystart) = &mut delivery.hystart
            && seg.ack > self.una
        {
            hystart.on_ack(&mut self.window, delivery.rtt, seg.ack, self.nxt.max(seg.ack));
        }
    }

    /// An ACK has been taken in, before which the window was `cwnd`. An algorithm that sets its window itself has it
    /// now, whatever recovery made of it meanwhile.
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
        let by_time = self.rack().map(|rack| rack.segments.take_newly_lost());
        let lost = self.sack.as_ref().map_or(0, |board| board.lost_below);
        let Some(delivery) = &mut self.delivery else { return };
        let lost = by_time.unwrap_or_else(|| delivery.count_lost(lost));
        let mut sample = delivery.sample(lost, in_flight, loss_state);
        if self.sack.is_none()
            && self.duplicate_acks > 0
            && sample.delivered == 0
            && loss_state != LossState::Loss
        {
            // A duplicate ACK tells that something arrived, not what. RFC 6582 section 3.2 step 2: after a timeout that
            // may be what had arrived before and went retransmitted, for which no more of it must go.
            sample.delivered = cfg.smss();
        }
        self.window.cwnd = cwnd;
        let srtt = self.rto.srtt();
        if self.algorithm.on_sample(&mut self.window, &sample, cfg, srtt, now) {
            delivery.app_limited = (delivery.delivered + in_flight).max(1);
        }
    }

    /// Thought to be in the network: sent, and neither acknowledged nor SACKed nor lost [bytes].
    fn in_flight(&self, cfg: &Config) -> u64 {
        let flight = self.in_network();
        if self.sack.is_some() { flight } else { flight.saturating_sub(self.duplicates(cfg)) }
    }

    /// The same, without what duplicate ACKs tell where there are no SACKs [bytes].
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

    /// What duplicate ACKs tell to have left the network, for an algorithm that sets its window itself [bytes].
    pub(super) fn duplicates(&self, cfg: &Config) -> u64 {
        if self.phase == Phase::FastRecovery && self.algorithm.sets_cwnd() {
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

    /// Duplicate ACKs let BBR's window grow by a segment each, without SACK; after a timeout by none, for it goes back
    /// and they answer what it sends twice.
    #[test]
    fn duplicates_after_a_timeout_are_no_delivery() {
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
}
