//! RACK-TLP, RFC 8985: loss detection by time on a connection with SACK.
//!
//! - RACK: a segment is lost once another one, sent later, was delivered, and more than an RTT plus a reordering window
//!   has passed since it was sent;
//! - TLP: after two RTTs without an ACK, a probe is sent, whose ACK lets RACK detect a lost tail.
//!
//! One timer serves reordering, probe and retransmission (section 8).
//!
//! # Departures
//!
//! - RACK_sent_after compares transmission numbers; the RFC compares positions if two segments were sent at the same
//!   time.
//! - D-SACKs that answer a probe do not increase the reordering window, because they say nothing about reordering (as
//!   in Linux).
//! - `RACK.min_RTT` is taken from segments, not from the retransmission timer, which rounds.
//! - Timestamps detect a spurious retransmission (section 6.2 step 2) only if it is acknowledged cumulatively. Data
//!   above a gap does not change the echo (RFC 7323 section 4.3), so every SACK of a probe would seem to belong to the
//!   original.
//! - A duplicate ACK without SACK (section 7.4.2, case 2) is any ACK that neither advances SND.UNA nor SACKs data.
//! - Without PRR, the first lost octets are resent at once, as in RFC 6675 section 5 (4.3).

use bentpipe_units::{Duration, Instant};

use super::congestion::{self, Window};
use super::connection::{Connection, Phase, Timer};
use super::rto::Rto;
use super::scoreboard::{DUP_THRESH, Scoreboard};
use super::sent::{Segments, SentSegment, Verdict};
use super::{Algorithm, Config, Sack, Segment, Timestamps};
use crate::rtt::MIN_TIMER;

/// Minimum time for which a minimum RTT stays valid; the maximum is twice as long. RFC 8985 section 6.2 step 1 asks for
/// recent samples; Linux uses the same time.
const MIN_RTT_WINDOW: Duration = Duration::from_secs(300);

/// TLP.max_ack_delay, WCDelAckT in its drafts: maximum delay of the ACK of a single segment. Same as in Linux.
const MAX_ACK_DELAY: Duration = Duration::from_millis(200);

/// Recoveries without a D-SACK after which the reordering window returns to its initial size, RFC 8985 section 6.2 step
/// 4.
const REO_WND_PERSIST: u8 = 16;

/// State of RFC 8985 section 5.3.
#[derive(Clone, Debug)]
pub(super) struct Rack {
    pub(super) segments: Segments,
    delivered: Delivered,
    /// RACK.reo_wnd.
    reo_wnd: Duration,
    /// RACK.dsack_round; zero if none.
    dsack_round: u64,
    /// RACK.reo_wnd_mult and RACK.reo_wnd_persist.
    reo_wnd_mult: u64,
    reo_wnd_persist: u8,
    /// TLP.is_retrans.
    tlp_is_retrans: bool,
    /// An RTT was measured since the last probe.
    rtt_measured: bool,
    /// TLP.end_seq; zero if none.
    tlp_end_seq: u64,
    /// Expiry of the retransmission timer, had another not taken its place; `None` if it was off.
    rto_at: Option<Instant>,
    /// Time of the last window reduction.
    reduced_at: Instant,
    /// State before a timeout, until it is known whether the timeout was spurious.
    saved: Option<Box<SavedState>>,
}

impl Default for Rack {
    fn default() -> Self {
        Self {
            segments: Segments::default(),
            delivered: Delivered {
                order: 0,
                rtt: Duration::ZERO,
                min_rtts: [Duration::MAX; 2],
                since: Instant::ZERO,
                fack: 0,
                reordered: false,
            },
            reo_wnd: Duration::ZERO,
            dsack_round: 0,
            reo_wnd_mult: 1,
            reo_wnd_persist: 0,
            tlp_is_retrans: false,
            rtt_measured: false,
            tlp_end_seq: 0,
            rto_at: None,
            reduced_at: Instant::ZERO,
            saved: None,
        }
    }
}

/// State that a timeout changes.
#[derive(Clone, Debug)]
struct SavedState {
    /// RetransmitTS of RFC 3522: timestamps of retransmissions are not earlier.
    stamp: u32,
    /// pipe_prev of RFC 4015.
    ssthresh: Option<u64>,
    algorithm: congestion::State,
    rto: Rto,
    recover: u64,
    reduced: u64,
}

/// Knowledge gained from delivered segments.
#[derive(Clone, Debug)]
struct Delivered {
    /// Highest transmission number delivered, instead of RACK.xmit_ts and RACK.end_seq.
    order: u64,
    /// RACK.rtt.
    rtt: Duration,
    /// RACK.min_RTT of this interval and of the previous one, and the start of this one.
    min_rtts: [Duration; 2],
    since: Instant,
    /// RACK.fack.
    fack: u64,
    /// RACK.reordering_seen.
    reordered: bool,
}

/// An ACK while its segments are processed.
struct AckContext {
    now: Instant,
    /// Its timestamp echo; zero if none.
    echo: u32,
    /// RACK.fack before this ACK.
    fack: u64,
    /// Number and time of the latest transmission that it delivers.
    latest: (u64, Instant),
}

/// Input of an ACK to the reordering window.
struct ReorderingInfo {
    una: u64,
    max: u64,
    /// It carries a D-SACK.
    duplicate: bool,
    /// A recovery is in progress, or ended with this ACK.
    recovering: bool,
    recovered: bool,
}

/// Result of loss detection.
#[derive(Clone, Copy, Debug, Default)]
struct Detection {
    /// At least one segment was found lost.
    lost: bool,
    /// A segment resent after the window reduction was found lost.
    retransmission: bool,
    /// Time until the next segment may be found lost; zero without one.
    wait: Duration,
}

impl Delivered {
    /// RACK.min_RTT; `None` before the first sample.
    fn min_rtt(&self) -> Option<Duration> {
        let min_rtt = self.min_rtts[0].min(self.min_rtts[1]);
        (min_rtt != Duration::MAX).then_some(min_rtt)
    }

    /// RFC 8985 section 6.2, steps 1 to 3, for a segment just delivered.
    #[inline]
    fn on_segment(&mut self, context: &mut AckContext, segment: &SentSegment) {
        let rtt = context.now - segment.at;
        let mut valid = true;
        if segment.resent {
            // Step 2: it is unknown which transmission was delivered. It was not the later one if the timestamp says
            // so, or if that was sent less than an RTT ago.
            let stamp = Timestamps::new(segment.at, 0).value;
            let echo_is_earlier = context.echo != 0 && (context.echo.wrapping_sub(stamp) as i32) < 0;
            valid = !echo_is_earlier && self.min_rtt().is_none_or(|min_rtt| rtt >= min_rtt);
        } else {
            // Step 1.
            if context.now - self.since > MIN_RTT_WINDOW {
                self.min_rtts = [Duration::MAX, self.min_rtts[0]];
                self.since = context.now;
            }
            self.min_rtts[0] = self.min_rtts[0].min(rtt);
        }
        // Step 2: RACK.rtt belongs to the segment sent last.
        if valid {
            context.latest = context.latest.max((segment.order, segment.at));
        }
        // Step 3. The segments of one ACK have no order among themselves.
        self.fack = self.fack.max(segment.end());
        self.reordered |= segment.end() < context.fack && !segment.resent;
    }

    /// Ends the processing of the segments of an ACK.
    fn on_end(&mut self, context: &AckContext) {
        let (order, at) = context.latest;
        if order > 0 {
            self.rtt = context.now - at;
            self.order = self.order.max(order);
        }
    }
}

impl Rack {
    /// Takes note of an RTT measured for the retransmission timer. The first, of the SYN, serves as the minimum RTT
    /// until data is delivered.
    pub(super) fn on_measured(&mut self, srtt: Option<Duration>) {
        self.rtt_measured = true;
        if let (None, Some(srtt)) = (self.delivered.min_rtt(), srtt) {
            self.delivered.min_rtts[0] = srtt;
        }
    }

    /// Conditions of RFC 8985 section 7.3 for a probe.
    fn may_send_tlp(&self) -> bool {
        self.tlp_end_seq == 0 && self.rtt_measured
    }

    /// RACK_update_reo_wnd() of RFC 8985 section 6.2, step 4.
    fn update_reo_wnd(&mut self, ack: &ReorderingInfo, srtt: Option<Duration>) {
        if self.dsack_round != 0 && ack.una >= self.dsack_round {
            self.dsack_round = 0;
        }
        if self.dsack_round == 0 && ack.duplicate {
            self.dsack_round = ack.max;
            self.reo_wnd_mult += 1;
            self.reo_wnd_persist = REO_WND_PERSIST;
        } else if ack.recovered {
            self.reo_wnd_persist = self.reo_wnd_persist.saturating_sub(1);
            if self.reo_wnd_persist == 0 {
                self.reo_wnd_mult = 1;
            }
        }
        let certain = ack.recovering || self.segments.sacked >= DUP_THRESH;
        self.reo_wnd = match self.delivered.min_rtt() {
            Some(min_rtt) if self.delivered.reordered || !certain => {
                min_rtt.times(self.reo_wnd_mult).part(4).min(srtt.unwrap_or(min_rtt))
            }
            _ => Duration::ZERO,
        };
    }

    /// RACK_detect_loss() of RFC 8985 section 6.2, step 5.
    fn detect(&mut self, now: Instant) -> Detection {
        let mut found = Detection::default();
        let (delivered, reduced_at) = (self.delivered.order, self.reduced_at);
        let lost_after = self.delivered.rtt + self.reo_wnd;
        self.segments.classify(|segment| {
            // RACK_sent_after().
            if segment.order > delivered {
                // All others were sent later.
                return Verdict::Stop;
            }
            let lost_at = segment.at + lost_after;
            if lost_at > now {
                found.wait = found.wait.max(lost_at - now);
                return Verdict::InFlight;
            }
            found.lost = true;
            found.retransmission |= segment.resent && segment.at >= reduced_at;
            Verdict::Lost
        });
        found
    }

    /// RACK_mark_losses_on_RTO() of RFC 8985 section 6.3.
    fn on_rto(&mut self, now: Instant, una: u64) {
        let lost_after = self.delivered.rtt + self.reo_wnd;
        self.segments.classify(|segment| {
            let lost = segment.start <= una || segment.at + lost_after <= now;
            if lost { Verdict::Lost } else { Verdict::InFlight }
        });
        self.on_reduced(now);
    }

    /// Takes note of a window reduction for a recovery. RFC 8985 section 7.1: it cancels a probe.
    fn on_reduced(&mut self, now: Instant) {
        self.tlp_end_seq = 0;
        self.reduced_at = now;
    }
}

impl Scoreboard {
    /// As [`update`](Self::update), for the records of segments too.
    fn update_segments(
        &mut self,
        context: &mut AckContext,
        ack: u64,
        sack: &Sack,
        una: u64,
        max: u64,
    ) -> u64 {
        let Some(mut rack) = self.rack.take() else { return 0 };
        while let Some(segment) = rack.segments.pop_acked(una) {
            if !segment.sacked {
                rack.delivered.on_segment(context, &segment);
            }
        }
        self.sacked_bytes -= self.ranges.trim_below(una);
        // RFC 7323 section 4.3: data above a gap does not change the echo, which says nothing about SACKed data.
        context.echo = 0;
        let mut newly_sacked = 0;
        for (start, end) in sack.blocks(ack) {
            let start = start.max(una);
            if start >= end || end > max {
                continue;
            }
            // The parts of the block that are new. With more than a few gaps, the rest is examined as one.
            let mut gaps = [(end, end); 4];
            let mut from = start;
            for gap in &mut gaps {
                *gap = self.ranges.gap(from, end);
                from = gap.1;
            }
            gaps[3].1 = end;
            newly_sacked += self.ranges.insert(start, end);
            let ranges = &self.ranges;
            for (from, to) in gaps.into_iter().filter(|gap| gap.0 < gap.1) {
                let fully_sacked =
                    |s: &SentSegment| ranges.containing(s.start).is_some_and(|range| range.1 >= s.end());
                rack.segments.mark_sacked(from, to, fully_sacked, |s| rack.delivered.on_segment(context, s));
            }
        }
        self.sacked_bytes += newly_sacked;
        rack.delivered.on_end(context);
        self.rack = Some(rack);
        newly_sacked
    }

    /// Handles the retransmission timeout. Returns true if RACK decides which segments are lost.
    pub(super) fn on_rto(&mut self, now: Instant, una: u64) -> bool {
        let Some(rack) = &mut self.rack else {
            self.clear();
            return false;
        };
        if self.ranges.containing(una).is_some() {
            // RFC 2018 section 8: the receiver has discarded SACKed data.
            self.ranges.clear();
            self.sacked_bytes = 0;
            rack.segments.renege();
        }
        rack.on_rto(now, una);
        self.first_due = true;
        true
    }

    /// Octets in flight: neither SACKed nor lost and not resent.
    pub(super) fn in_flight(&self, una: u64, max: u64) -> u64 {
        let lost = self.rack.as_ref().map_or(0, |rack| rack.segments.lost);
        (max - una).saturating_sub(self.sacked_bytes + lost)
    }
}

impl Connection {
    /// RACK state, if enabled.
    #[inline]
    pub(super) fn rack(&mut self) -> Option<&mut Rack> {
        self.sack.as_mut()?.rack.as_deref_mut()
    }

    /// Processes an ACK, RFC 8985 section 6.2.
    pub(super) fn on_ack_with_rack(
        &mut self,
        cfg: &Config,
        now: Instant,
        ack: u64,
        sack: &Sack,
        echo: u32,
        marked: bool,
    ) {
        let recovering = matches!(self.phase, Phase::SackRecovery | Phase::RtoResend);
        let una = self.una.max(ack);
        let acked = una - self.una;
        let max = self.max.max(una);
        let repaired = self.on_tlp_ack(cfg, now, ack, sack);
        let Some(board) = &mut self.sack else { return };
        let before = board.sacked_bytes;
        let fack = board.rack.as_ref().map_or(0, |rack| rack.delivered.fack);
        let echo_known = if self.timestamps { echo } else { 0 };
        let mut context = AckContext { now, echo: echo_known, fack, latest: (0, Instant::ZERO) };
        board.update_segments(&mut context, ack, sack, una, max);
        // RFC 9937 section 6.2, DeliveredData.
        let delivered = (acked + board.sacked_bytes).saturating_sub(before);
        board.delivered = delivered;
        if acked > 0 {
            self.loss_probe_due = false;
            let marked = marked || repaired.is_some_and(|repaired| repaired);
            let before = self.rack().and_then(|rack| rack.saved.take());
            let spurious = before.filter(|before| {
                // RFC 3522 section 3.2, steps 4 and 5. RFC 4015 section 3.2, step 6: not with ECN-Echo.
                let earlier = echo != 0 && (echo.wrapping_sub(before.stamp) as i32) < 0;
                earlier && !marked && sack.dsack(ack).is_none()
            });
            if let Some(before) = &spurious {
                self.undo_spurious_rto(cfg, before, una, acked);
            }
            self.on_new_ack(cfg, now, ack, echo, marked || spurious.is_some());
            if let Some(before) = &spurious {
                self.rto.on_spurious(cfg, &before.rto);
            }
        }
        let open = matches!(self.phase, Phase::Open);
        let round = ReorderingInfo {
            una: self.una,
            max: self.max,
            duplicate: sack.dsack(ack).is_some() && repaired.is_none(),
            recovering: recovering && !open,
            recovered: recovering && open,
        };
        let srtt = self.rto.srtt();
        let Some(rack) = self.rack() else { return };
        rack.update_reo_wnd(&round, srtt);
        if self.una < self.max {
            self.detect(cfg, now, delivered, acked > 0);
        }
    }

    /// Saves the state that a timeout is about to change, at the first of consecutive timeouts.
    pub(super) fn save_before_rto(&mut self, cfg: &Config, now: Instant) {
        if !cfg.eifel || !self.timestamps || cfg.algorithm == Algorithm::Bbr || self.rack().is_none() {
            return;
        }
        let before = SavedState {
            stamp: Timestamps::new(now, 0).value,
            // RFC 4015 section 3.2, step 0.
            ssthresh: self.window.ssthresh().map(|ssthresh| ssthresh.max(self.flight())),
            algorithm: self.algorithm.clone(),
            rto: self.rto.clone(),
            recover: self.recover,
            reduced: self.reduced,
        };
        if let Some(rack) = self.rack() {
            rack.saved = Some(Box::new(before));
        }
    }

    /// Undoes a spurious timeout, detected by an ACK of `acked` bytes that advances SND.UNA to `una`: RFC 4015 section
    /// 3.2, steps 5 and 6.
    fn undo_spurious_rto(&mut self, cfg: &Config, before: &SavedState, una: u64, acked: u64) {
        if cfg.algorithm.sets_cwnd() {
            self.algorithm.on_spurious_timeout();
        } else {
            self.algorithm = before.algorithm.clone();
        }
        let cwnd = self.max.saturating_sub(una).saturating_add(acked.min(cfg.iw()));
        self.window = Window::new(cwnd.max(cfg.smss()), before.ssthresh);
        (self.recover, self.reduced) = (before.recover, before.reduced);
        (self.phase, self.resend_due) = (Phase::Open, false);
        if let Some(board) = &mut self.sack {
            board.first_due = false;
            if let Some(rack) = &mut board.rack {
                rack.segments.unmark_lost();
            }
        }
    }

    /// Detects losses, recovers from them and sets the timer: RACK_detect_loss_and_arm_timer() of RFC 8985 section 6.2.
    /// `delivered`: newly delivered bytes; `advanced`: SND.UNA advanced.
    fn detect(&mut self, cfg: &Config, now: Instant, delivered: u64, advanced: bool) {
        let Some(board) = &mut self.sack else { return };
        let Some(rack) = &mut board.rack else { return };
        let found = rack.detect(now);
        match self.phase {
            Phase::SackRecovery => {
                if found.retransmission && !cfg.prr {
                    // RFC 8985 section 9.3: a lost retransmission is another indication of congestion (RFC 5681 section
                    // 4.3).
                    rack.on_reduced(now);
                    let flight = self.window.cwnd;
                    self.reduce(cfg, now, flight);
                    self.window.cwnd = self.window.reduced().max(cfg.smss());
                }
                if cfg.prr && (delivered > 0 || found.lost) {
                    self.update_prr(cfg, delivered, advanced && !found.lost);
                }
            }
            // RFC 8985 section 6.2: even a single lost segment starts fast recovery.
            Phase::Open if rack.segments.lost > 0 => {
                rack.on_reduced(now);
                board.begin_recovery(self.una, self.max, delivered);
                self.on_loss(cfg, now);
                self.loss_probe_due = false;
                self.phase = Phase::SackRecovery;
                self.window.cwnd = self.window.reduced().max(cfg.smss());
                if cfg.prr {
                    self.update_prr(cfg, delivered, false);
                }
            }
            _ => {}
        }
        // RFC 8985 section 8: one timer at a time.
        let rto_at = self.rto_at();
        if !found.wait.is_zero() {
            self.set_timer(Timer::Reordering, now + found.wait.max(MIN_TIMER));
            if let Some(rack) = self.rack() {
                rack.rto_at = rto_at;
            }
        } else if self.timer == Timer::Reordering {
            self.set_timer(Timer::Retransmission, now + self.rto.interval());
        } else if advanced {
            self.schedule_tlp(now);
        }
    }

    /// Sets the congestion window by RFC 9937 section 6.2.
    fn update_prr(&mut self, cfg: &Config, delivered: u64, safe: bool) {
        let (una, max, smss) = (self.una, self.max, cfg.smss());
        let Some(board) = &mut self.sack else { return };
        let pipe = board.in_flight(una, max);
        let mut cwnd = board.prr.cwnd(delivered, pipe, self.window.reduced(), smss, safe);
        if delivered == 0 {
            // The timer detected the loss, and there may be no further ACK to release a segment.
            cwnd = cwnd.max(pipe + smss);
        }
        self.window.cwnd = cwnd.max(smss);
    }

    /// Position and payload length of the next segment in recovery: lost segments first, RFC 8985 section 4.
    #[cold]
    pub(super) fn next_rack_segment(&mut self, cfg: &Config) -> Option<(u64, u64)> {
        let smss = cfg.smss();
        let board = self.sack.as_mut()?;
        let pipe = board.in_flight(self.una, self.max);
        let cwnd = self.window.cwnd.min(cfg.max_window.max(smss));
        let lost = board.rack.as_mut()?.segments.next_lost();
        if let Some(lost) = lost {
            // RFC 8985 section 9.3: when congestion control allows it.
            let allowed = board.first_due || pipe + smss <= cwnd;
            return allowed.then(|| (lost.start, lost.end().min(self.written).saturating_sub(lost.start)));
        }
        let unsent = self.written.saturating_sub(self.max);
        let wanted = unsent.min(smss).max(1);
        let allowed = self.max < self.stream_end()
            && self.max + wanted <= self.send_limit(cfg)
            && pipe + wanted <= cwnd;
        allowed.then(|| (self.max, unsent.min(smss)))
    }

    /// Records the transmission of `seq..end`.
    #[inline]
    pub(super) fn on_segment_sent(&mut self, now: Instant, seq: u64, end: u64, is_retransmission: bool) {
        let recovering = self.phase != Phase::Open;
        let Some(board) = self.sack.as_mut() else { return };
        let Some(rack) = &mut board.rack else { return };
        rack.segments.on_sent(now, seq, end);
        if recovering {
            board.prr.out += end - seq;
            board.first_due = false;
        } else if !is_retransmission {
            self.schedule_tlp(now);
        }
    }

    /// Expiry of the retransmission timer, also while another timer runs in its place.
    fn rto_at(&mut self) -> Option<Instant> {
        let (timer, at) = (self.timer, self.timer_at);
        match self.rack() {
            Some(rack) if timer != Timer::Retransmission => rack.rto_at,
            _ => at,
        }
    }

    /// Sets the timer for a tail loss probe, RFC 8985 section 7.2.
    fn schedule_tlp(&mut self, now: Instant) {
        let rto_at = self.rto_at();
        // Without SRTT no RTT was measured, and no probe may be sent.
        let Some(srtt) = self.rto.srtt() else { return };
        let allowed = self.phase == Phase::Open
            && matches!(self.timer, Timer::Retransmission | Timer::Probe)
            && !self.loss_probe_due;
        // Section 7.3: not if (1) a probe is outstanding or (2) no RTT was measured since the last one; the
        // retransmission timer would have to replace it.
        let may = |rack: &&mut Rack| allowed && rack.segments.sacked == 0 && rack.may_send_tlp();
        let Some(rack) = self.rack().filter(may) else { return };
        rack.rto_at = rto_at;
        // TLP_calc_PTO().
        let delay = if rack.segments.is_single() { MAX_ACK_DELAY } else { Duration::ZERO };
        let pto = srtt.times(2) + delay;
        let probe = rto_at.map_or(now + pto, |rto| rto.min(now + pto));
        self.set_timer(Timer::Probe, probe.max(now + MIN_TIMER));
    }

    /// Handles the expiry of the probe timer, RFC 8985 section 7.3.
    pub(super) fn on_probe_timer(&mut self, now: Instant) {
        self.loss_probe_due = self.rack().is_some_and(|rack| rack.may_send_tlp());
        // With or without a probe, the retransmission timer is next.
        self.set_timer(Timer::Retransmission, now + self.rto.interval());
    }

    /// Handles the expiry of the reordering timer.
    pub(super) fn on_reordering_timer(&mut self, cfg: &Config, now: Instant) {
        let cwnd = self.window.cwnd;
        self.detect(cfg, now, 0, false);
        if cfg.algorithm.sets_cwnd() {
            // It sets the window with the next ACK.
            self.window.cwnd = cwnd;
            self.report_losses(cfg, now);
        }
    }

    /// The tail loss probe, TLP_send_probe() of RFC 8985 section 7.3.
    #[cold]
    pub(super) fn poll_loss_probe(&mut self, cfg: &Config, now: Instant) -> Option<Segment> {
        if self.hold_back(now) {
            return None;
        }
        let smss = cfg.smss();
        let unsent = self.written.saturating_sub(self.max).min(smss);
        let wanted = unsent.max(1);
        let is_new_data = self.max < self.stream_end() && self.max + wanted <= self.send_limit(cfg);
        let chosen = if is_new_data {
            Some((self.max, unsent))
        } else {
            let last = self.rack().and_then(|rack| rack.segments.last());
            last.map(|last| (last.start, last.end().min(self.written).saturating_sub(last.start)))
        };
        let segment = chosen.map(|(seq, len)| self.send_data(cfg, now, seq, len));
        self.loss_probe_due = false;
        let max = self.max;
        if let Some(rack) = self.rack().filter(|_| segment.is_some()) {
            (rack.tlp_end_seq, rack.tlp_is_retrans, rack.rtt_measured) = (max, !is_new_data, false);
        }
        segment
    }

    /// TLP_process_ack() of RFC 8985 section 7.4.2. Returns `None` if the ACK does not answer a retransmitted probe,
    /// else whether the probe repaired a loss.
    fn on_tlp_ack(&mut self, cfg: &Config, now: Instant, ack: u64, sack: &Sack) -> Option<bool> {
        let (una, written) = (self.una, self.written);
        let rack = self.rack().filter(|rack| rack.tlp_end_seq != 0 && ack >= rack.tlp_end_seq)?;
        let end = rack.tlp_end_seq;
        if !rack.tlp_is_retrans {
            rack.tlp_end_seq = 0;
            return None;
        }
        // Case 1: both arrived, and a D-SACK reports it. No block covers a FIN.
        let reported = sack.dsack(ack).is_some_and(|duplicate| duplicate.1 == end.min(written));
        // Case 2: both arrived, and the second ACK repeats the first.
        if reported || (ack == una && *sack == Sack::NONE) {
            rack.tlp_end_seq = 0;
            return reported.then_some(false);
        }
        if ack == end {
            return None;
        }
        // The ACK covers data sent after the probe: one of the two transmissions was lost, which congestion control
        // must know.
        rack.on_reduced(now);
        if una >= self.reduced {
            let flight = self.flight();
            self.reduce(cfg, now, flight);
            self.window.cwnd = self.window.reduced().min(self.window.cwnd).max(cfg.smss());
            self.reduced = self.max;
        }
        Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::connection::State;
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// A segment of 1000 bytes from 1 on, sent at 100 ms, or resent then.
    fn segment(resent: bool) -> SentSegment {
        let mut segments = Segments::default();
        if resent {
            segments.on_sent(at(50), 1, 1001);
        }
        segments.on_sent(at(100), 1, 1001);
        segments.last().unwrap()
    }

    fn context(ms: u64, echo: u32, fack: u64) -> AckContext {
        AckContext { now: at(ms), echo, fack, latest: (0, Instant::ZERO) }
    }

    /// RFC 8985 section 6.2, step 2: an earlier transmission was delivered if the timestamp echo [us] is earlier, or if the
    /// latest one took less than the minimum RTT of 30 ms. An echo of 0 says nothing.
    #[test]
    fn an_ack_too_early_for_the_retransmission_is_of_an_earlier_one() {
        for (resent, ms, echo, valid) in [
            (true, 130, 0, true),
            (true, 129, 0, false),
            (true, 130, 99_999, false),
            (true, 130, 100_000, true),
            (true, 130, 100_001, true),
            (true, 129, 100_001, false),
            (false, 101, 99_999, true),
        ] {
            let mut delivered = Rack::default().delivered;
            delivered.min_rtts[0] = Duration::from_millis(30);
            let mut ack = context(ms, echo, 0);
            delivered.on_segment(&mut ack, &segment(resent));
            assert_eq!(ack.latest.0 > 0, valid, "at {ms} ms with an echo of {echo}");
        }
    }

    /// Step 1: the minimum of this interval and of the one before it; an interval is longer than [`MIN_RTT_WINDOW`].
    #[test]
    fn the_minimum_rtt_is_that_of_two_intervals() {
        let [long, old] = [Duration::from_millis(40), Duration::from_millis(20)];
        let mut sent = segment(false);
        for (later, min_rtts) in [(0, [old, Duration::MAX]), (1, [long, old])] {
            let mut delivered = Rack::default().delivered;
            delivered.min_rtts[0] = old;
            let mut ack = context(0, 0, 0);
            ack.now = Instant::ZERO + MIN_RTT_WINDOW + Duration::from_nanos(later);
            sent.at = at(300_000 - 40) + Duration::from_nanos(later);
            delivered.on_segment(&mut ack, &sent);
            assert_eq!(delivered.min_rtts, min_rtts, "{later} ns later");
            assert_eq!(delivered.min_rtt(), Some(old));
        }
    }

    /// Step 3: a segment is late if one above it was delivered before, unless it was resent.
    #[test]
    fn a_segment_below_one_delivered_before_is_reordered() {
        for (resent, fack, reordered) in [(false, 1001, false), (false, 1002, true), (true, 1002, false)] {
            let mut delivered = Rack::default().delivered;
            delivered.on_segment(&mut context(200, 0, fack), &segment(resent));
            assert_eq!(delivered.reordered, reordered, "RACK.fack = {fack}");
        }
    }

    /// RACK.rtt is that of the latest transmission delivered, and stays if an ACK delivers none.
    #[test]
    fn an_ack_that_delivers_nothing_leaves_rack_rtt() {
        let mut delivered = Rack::default().delivered;
        delivered.on_end(&AckContext { latest: (7, at(100)), ..context(150, 0, 0) });
        assert_eq!((delivered.rtt, delivered.order), (Duration::from_millis(50), 7));
        delivered.on_end(&context(400, 0, 0));
        assert_eq!((delivered.rtt, delivered.order), (Duration::from_millis(50), 7));
        delivered.on_end(&AckContext { latest: (5, at(390)), ..context(400, 0, 0) });
        assert_eq!((delivered.rtt, delivered.order), (Duration::from_millis(10), 7));
    }

    /// Section 6.2, step 4, with a minimum RTT of 40 ms and an SRTT of 50 ms: a D-SACK adds a quarter of the minimum RTT,
    /// once per round, up to SRTT; sixteen recoveries take all back. Once a loss is certain, and without reordering, the
    /// window is zero.
    #[test]
    fn reordering_window_grows_with_d_sacks_and_shrinks_after_sixteen_recoveries() {
        let mut rack = Rack::default();
        rack.delivered.min_rtts[0] = Duration::from_millis(40);
        let mut window = |una, duplicate, recovering, recovered| {
            let ack = ReorderingInfo { una, max: una + 5000, duplicate, recovering, recovered };
            rack.update_reo_wnd(&ack, Some(Duration::from_millis(50)));
            rack.reo_wnd.as_secs_f64() * 1e3
        };
        assert_eq!(window(1, false, false, false), 10.0);
        assert_eq!(window(1, true, false, false), 20.0);
        assert_eq!(window(5000, true, false, false), 20.0);
        assert_eq!(window(5001, true, false, false), 30.0);
        assert_eq!(window(20_001, false, true, false), 0.0);
        for _ in 0..15 {
            assert_eq!(window(20_001, false, false, true), 30.0);
        }
        assert_eq!(window(20_001, false, false, true), 10.0);
        for (number, expected) in [20.0, 30.0, 40.0, 50.0, 50.0].into_iter().enumerate() {
            assert_eq!(window(30_001 + 5000 * number as u64, true, false, false), expected);
        }
    }
    /// Section 9.3: a lost retransmission of this recovery is another indication of congestion; neither one from before the
    /// reduction nor new data is.
    #[test]
    fn only_a_retransmission_since_the_reduction_indicates_more_congestion() {
        for (resent, reduced_at, indicates) in
            [(true, 99, true), (true, 100, true), (true, 101, false), (false, 99, false)]
        {
            let mut rack = Rack { reduced_at: at(reduced_at), ..Rack::default() };
            (rack.delivered.order, rack.delivered.rtt) = (9, Duration::from_millis(10));
            if resent {
                rack.segments.on_sent(at(50), 1, 1001);
            }
            rack.segments.on_sent(at(100), 1, 1001);
            let found = rack.detect(at(200));
            assert_eq!((found.lost, found.retransmission), (true, indicates), "reduced at {reduced_at} ms");
        }
    }

    /// Section 6.3: after a timeout the first segment is lost, and those sent at least RACK.rtt + RACK.reo_wnd = 50 ms ago.
    #[test]
    fn a_timeout_loses_the_first_segment_and_old_ones() {
        let mut rack = Rack { reo_wnd: Duration::from_millis(10), ..Rack::default() };
        rack.delivered.rtt = Duration::from_millis(40);
        for (ms, start) in [(190, 1), (150, 1001), (151, 2001)] {
            rack.segments.on_sent(at(ms), start, start + 1000);
        }
        rack.on_rto(at(200), 1);
        assert_eq!(rack.segments.lost, 2000);
        assert_eq!(rack.segments.next_lost().map(|lost| lost.start), Some(1));
    }

    /// Of four segments the first is lost, those of 50 ms before the timeout are not. The loss window is one segment (RFC 5681 section
    /// 3.1), with CUBIC as in Linux and BBR version 3 one more than what is in flight. Linux keeps the ssthresh of a recovery, here
    /// 7 segments.
    #[test]
    fn a_timeout_leaves_a_segment_more_than_what_is_in_flight_in_linux_and_bbr3() {
        for (algorithm, phase, cwnd, ssthresh) in [
            (Algorithm::NewReno, Phase::Open, 1000, 2000),
            (Algorithm::NewReno, Phase::SackRecovery, 1000, 2000),
            (Algorithm::CubicLinux, Phase::Open, 4000, 5000),
            (Algorithm::CubicLinux, Phase::SackRecovery, 4000, 7000),
            (Algorithm::Bbr3, Phase::Open, 4000, 8000),
        ] {
            let cfg = Config { mss: 1000, algorithm, sack: true, rack: true, ..Config::default() };
            let mut c = Connection::connect(&cfg, Instant::ZERO);
            let mut board = Scoreboard::new(true, algorithm == Algorithm::Bbr3);
            let rack = board.rack.as_mut().unwrap();
            rack.delivered.rtt = Duration::from_millis(100);
            for (ms, start) in [(0, 1), (950, 1001), (950, 2001), (950, 3001)] {
                rack.segments.on_sent(at(ms), start, start + 1000);
            }
            c.sack = Some(Box::new(board));
            (c.una, c.nxt, c.max, c.written, c.window) = (1, 4001, 4001, 9001, Window::new(8000, Some(7000)));
            (c.state, c.phase) = (State::Established, phase);
            c.set_timer(Timer::Retransmission, at(1000));
            c.handle_timeout(&cfg, at(1000));
            assert_eq!(
                (c.stats().cwnd, c.stats().ssthresh),
                (cwnd, Some(ssthresh)),
                "{algorithm:?} {phase:?}"
            );
        }
    }

    /// RFC 3522 needs timestamps; with BBR nothing is undone.
    #[test]
    fn state_is_saved_for_eifel_only() {
        for (eifel, timestamps, algorithm, saved) in [
            (true, true, Algorithm::NewReno, true),
            (true, true, Algorithm::Bbr3, true),
            (false, true, Algorithm::NewReno, false),
            (true, false, Algorithm::NewReno, false),
            (true, true, Algorithm::Bbr, false),
        ] {
            let cfg = Config { eifel, algorithm, ..Config::default() };
            let mut c = Connection::connect(&cfg, Instant::ZERO);
            (c.timestamps, c.sack) = (timestamps, Some(Box::new(Scoreboard::new(true, false))));
            c.save_before_rto(&cfg, at(100));
            assert_eq!(c.rack().is_some_and(|rack| rack.saved.is_some()), saved, "{algorithm:?}");
        }
    }
}
