//! Packets in flight and loss detection (RFC 9002, section 6).

use std::collections::VecDeque;

use bentpipe_units::{Duration, Instant};

use super::rtt::Rtt;
use super::{Ack, Config, Stats, StreamId};

/// Maximum number of times the probe timeout doubles (RFC 9002, 6.2.1 sets no limit).
const MAX_BACKOFF: u32 = 5;
/// Maximum probe timeout, so that the end of a long outage is noticed.
const MAX_PROBE: Duration = Duration::from_secs(60);
/// Packets resent at a probe timeout (RFC 9002, 6.2.4 allows two, in case one is lost).
const PROBES: u32 = 2;

/// Content of a data packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) offset: u64,
    pub(super) stream: StreamId,
    pub(super) generation: u32,
    pub(super) len: u32,
    pub(super) open: bool,
    pub(super) fin: bool,
    pub(super) reset: bool,
}

impl Frame {
    /// True unless it is a window probe, which need not be retransmitted.
    pub(super) fn must_arrive(&self) -> bool {
        self.len > 0 || self.open || self.fin || self.reset
    }
}

/// A numbered frame, from its transmission until it is acknowledged or declared lost.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Instant,
    frame: Frame,
    in_flight: bool,
}

/// Packets in flight, their timers, and the frames to resend.
///
/// A frame is in exactly one place: in flight under one number, or waiting to be resent, or acknowledged. So every
/// stream byte is acknowledged once without a record of acknowledged bytes. In return, a late acknowledgement of a
/// packet already declared lost is useless: that of the copy is needed.
#[derive(Clone, Debug, Default)]
pub(super) struct Recovery {
    sent: VecDeque<Sent>,
    /// Number of the first packet in `sent`.
    base: u64,
    largest_acked: Option<u64>,
    in_flight: u64,
    /// Packets in the host's queue, not yet numbered.
    queued: u64,
    /// Size of the packets queued and in flight.
    pub(super) bytes_in_flight: u64,
    pub(super) lost: VecDeque<Frame>,
    loss_at: Option<Instant>,
    /// Latest transmission or new acknowledgement, from which the probe timeout counts.
    last_progress: Instant,
    backoff: u32,
    pub(super) rtt: Rtt,
    packet_threshold: u64,
    header_len: u64,
}

impl Recovery {
    pub(super) fn new(cfg: &Config) -> Self {
        Self {
            rtt: Rtt::new(cfg.initial_rtt, cfg.ack_delay),
            packet_threshold: u64::from(cfg.packet_threshold.max(1)),
            header_len: u64::from(cfg.header_len),
            ..Self::default()
        }
    }

    /// All numbers below are settled.
    pub(super) fn least_unacked(&self) -> u64 {
        self.base
    }

    /// True if a packet of `len` payload bytes fits into the window. One always fits if nothing is in flight, or a
    /// window smaller than a packet would block forever.
    pub(super) fn has_room(&self, len: u32, window: u64) -> bool {
        self.in_flight + self.queued == 0 || self.bytes_in_flight + self.header_len + u64::from(len) <= window
    }

    /// Counts a packet that is on its way to the link.
    pub(super) fn reserve(&mut self, len: u32) {
        self.queued += 1;
        self.bytes_in_flight += self.header_len + u64::from(len);
    }

    /// Records the transmission of a packet and returns its number.
    pub(super) fn on_sent(&mut self, now: Instant, frame: Frame) -> u64 {
        let number = self.base + self.sent.len() as u64;
        self.sent.push_back(Sent { at: now, frame, in_flight: true });
        self.queued -= 1;
        self.in_flight += 1;
        self.last_progress = now;
        number
    }

    fn leave_flight(&mut self, len: u32) {
        self.in_flight -= 1;
        self.bytes_in_flight -= self.header_len + u64::from(len);
    }

    /// Processes an acknowledgement: `acked` is called for every newly acknowledged frame, and frames found lost join
    /// `lost`.
    pub(super) fn on_ack(
        &mut self,
        now: Instant,
        ack: &Ack,
        stats: &mut Stats,
        mut acked: impl FnMut(&Frame),
    ) {
        let Some(largest) = ack.largest() else { return };
        if largest >= self.base + self.sent.len() as u64 {
            // RFC 9000, 13.1: this number was never sent, so the acknowledgement is invalid.
            return;
        }
        let mut progress = false;
        for range in ack.ranges() {
            let last = range.last.min(largest);
            // Ranges are in descending order, and everything below the base is settled.
            if last < self.base {
                break;
            }
            for number in range.first.max(self.base)..=last {
                let Some(sent) = self.sent.get_mut((number - self.base) as usize) else { break };
                if !sent.in_flight {
                    continue;
                }
                sent.in_flight = false;
                let sent = *sent;
                self.leave_flight(sent.frame.len);
                stats.acked += 1;
                progress = true;
                if number == largest {
                    // RFC 9002, 5.1: a sample only if the largest number is newly acknowledged.
                    self.rtt.sample(now - sent.at, ack.delay);
                }
                acked(&sent.frame);
            }
        }
        self.largest_acked = self.largest_acked.max(Some(largest));
        if progress {
            // RFC 9002, 6.2.1: restart the probe timer and end its backoff.
            self.last_progress = self.last_progress.max(now);
            self.backoff = 0;
            self.detect(now, stats);
        }
    }

    /// RFC 9002, 6.1: a packet in flight is lost once one sent `packet_threshold` later, or a certain time later, has
    /// arrived.
    ///
    /// Everything below the largest acknowledged number less the packet threshold leaves the record, so each call
    /// examines fewer packets than it settles plus that threshold.
    fn detect(&mut self, now: Instant, stats: &mut Stats) {
        self.loss_at = None;
        let Some(largest) = self.largest_acked.filter(|&largest| largest >= self.base) else { return };
        let delay = self.rtt.loss_delay();
        for index in 0..=(largest - self.base) {
            let number = self.base + index;
            let Some(sent) = self.sent.get(index as usize).copied() else { break };
            if !sent.in_flight {
                continue;
            }
            let lost_at = sent.at + delay;
            if largest - number >= self.packet_threshold || lost_at <= now {
                self.mark_lost(index as usize, stats);
            } else {
                self.loss_at = Some(self.loss_at.map_or(lost_at, |at| at.min(lost_at)));
            }
        }
        self.pop_settled();
    }

    /// Removes a packet from flight and queues its content for retransmission.
    fn mark_lost(&mut self, index: usize, stats: &mut Stats) -> Option<Frame> {
        let sent = self.sent.get_mut(index).filter(|sent| sent.in_flight)?;
        sent.in_flight = false;
        let frame = sent.frame;
        self.leave_flight(frame.len);
        stats.lost += 1;
        if frame.must_arrive() {
            self.lost.push_back(frame);
        }
        Some(frame)
    }

    fn pop_settled(&mut self) {
        while self.sent.front().is_some_and(|sent| !sent.in_flight) {
            self.sent.pop_front();
            self.base += 1;
        }
    }

    /// Time of the next call of [`Self::handle_timeout`]; `None` if no timer runs.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        // RFC 9002, 6.2.1: no probe while the time threshold is running.
        self.loss_at.or_else(|| {
            let wait = self.rtt.probe_timeout().times(1 << self.backoff).min(MAX_PROBE);
            (self.in_flight > 0).then(|| self.last_progress + wait)
        })
    }

    /// Handles the timer that has expired. `live` returns true if a frame must still be delivered.
    pub(super) fn handle_timeout(&mut self, now: Instant, stats: &mut Stats, live: impl Fn(&Frame) -> bool) {
        if self.poll_timeout().is_none_or(|at| at > now) {
            return;
        }
        if self.loss_at.is_some() {
            self.detect(now, stats);
            return;
        }
        // RFC 9002, 6.2.4: the oldest packets are resent. They leave the flight, so the window has room for them.
        stats.probe_timeouts += 1;
        self.backoff = (self.backoff + 1).min(MAX_BACKOFF);
        self.last_progress = now;
        let mut wanted = PROBES;
        for index in 0..self.sent.len() {
            if wanted == 0 {
                break;
            }
            if let Some(frame) = self.mark_lost(index, stats)
                && frame.must_arrive()
                && live(&frame)
            {
                wanted -= 1;
            }
        }
        self.pop_settled();
    }
}
