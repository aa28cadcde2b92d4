//! BBR, version 3 (draft-ietf-ccwg-bbr-06): the window and the pacing rate follow a model of the path with bounds that
//! losses set.
//!
//! - model: `max_bw`, maximum delivery rate of this probing cycle and the previous one (section 5.5.5); `min_rtt`, minimum
//!   RTT of 10 s (5.5.7); `extra_acked`, aggregation of ACKs (5.5.9);
//! - long-term bound `inflight_longterm`: data in flight at which a probe lost more than 2 % (5.5.10.2);
//! - short-term bounds `bw_shortterm` and `inflight_shortterm`: after each round with a loss outside a probe, the latest
//!   delivery, at least 0.7 of the bound before (5.5.10.3);
//! - Startup, until the delivery rate grew by less than a quarter in three rounds, or a round with six ranges lost more
//!   than 2 % (5.3.1); Drain, until a bandwidth-delay product is in flight, or for three rounds (5.3.2);
//! - ProbeBW: DOWN, CRUISE for 2 s to 3 s or up to 63 rounds, REFILL for a round, UP until the rate is at its maximum or a
//!   loss (5.3.3); a probe after one that lost too much stops at `inflight_longterm` (5.3.3.6);
//! - ProbeRTT: once the minimum RTT is 5 s old, half of a bandwidth-delay product for 200 ms and a round (5.3.4);
//! - pacing at `0.99 pacing_gain bw` (5.6.2), window of `cwnd_gain bdp + extra_acked` within the bounds (5.6.4);
//! - marks count as congestion (3.7): one in a round has the effect of a round with too many losses.
//!
//! Departures: the random numbers of `PickProbeWait()` are hashes of the seed, the time and the data delivered. Each segment
//! is paced separately, so that the quantum only sets the offload budget, with TCP's three quanta for QUIC too. A round
//! start without a valid delivery rate does not count for the bandwidth plateau. An `AdvanceMaxBwFilter()` without a sample
//! in the cycle keeps the filter, as in Linux. Startup ends by loss after the first round of losses, also if a QUIC
//! recovery period, which takes a round trip, ended with that round.

use bentpipe_units::{Duration, Instant, Rate, mix};

use super::super::Config;
use super::super::delivery::{LossState, Sample};
use super::{Acked, Control, Lost, Window};

/// BBR.StartupPacingGain, 4 ln 2: the smallest that doubles the rate each round.
const STARTUP_PACING_GAIN: f64 = 2.77;
const DRAIN_PACING_GAIN: f64 = 0.5;
/// BBR.PacingMarginPercent.
const PACING_MARGIN: f64 = 0.01;
const DEFAULT_CWND_GAIN: f64 = 2.0;
const PROBE_RTT_CWND_GAIN: f64 = 0.5;
const LOSS_THRESH: f64 = 0.02;
const BETA: f64 = 0.7;
const HEADROOM: f64 = 0.15;
/// BBR.MinPipeCwnd [segments].
const MIN_PIPE: u64 = 4;
/// Growth of the delivery rate in a round that is not a plateau, and rounds without it, section 5.3.1.2.
const FULL_BW_GROWTH: f64 = 1.25;
const FULL_BW_COUNT: u32 = 3;
/// BBRStartupFullLossCnt.
const STARTUP_FULL_LOSS_COUNT: u32 = 6;
/// Rounds of Drain, section 5.3.2.
const DRAIN_ROUNDS: u64 = 3;
/// BBR.ExtraAckedFilterLen [rounds].
const EXTRA_ACKED_ROUNDS: u64 = 10;
const MIN_RTT_FILTER: Duration = Duration::from_secs(10);
const PROBE_RTT_DURATION: Duration = Duration::from_millis(200);
const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(5);
/// T_bbr, section 5.3.3.8.2: 2 s and up to 1 s more.
const PROBE_WAIT: Duration = Duration::from_secs(2);
const PROBE_WAIT_RANDOM: Duration = Duration::from_secs(1);
/// Maximum T_reno, section 5.3.3.8.2 [rounds].
const RENO_ROUNDS: u64 = 63;
/// Upper bound of BBR.bw_probe_up_rounds.
const MAX_UP_ROUNDS: u32 = 30;
/// Largest C.send_quantum [bytes].
const MAX_QUANTUM: u64 = 65_536;
/// Quanta of the offload budget, section 5.5.8.1.
const OFFLOAD_QUANTA: u64 = 3;
const INFINITE_RATE: Rate = Rate::from_bps(u64::MAX);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

impl Mode {
    /// BBR.pacing_gain, section 5.6.1.
    fn pacing_gain(self) -> f64 {
        match self {
            Self::Startup => STARTUP_PACING_GAIN,
            Self::Drain => DRAIN_PACING_GAIN,
            Self::Down => 0.9,
            Self::Up => 1.25,
            Self::Cruise | Self::Refill | Self::ProbeRtt => 1.0,
        }
    }

    /// BBR.cwnd_gain, section 5.6.1.
    fn cwnd_gain(self) -> f64 {
        match self {
            Self::Up => 2.25,
            Self::ProbeRtt => PROBE_RTT_CWND_GAIN,
            _ => DEFAULT_CWND_GAIN,
        }
    }

    fn is_probe_bw(self) -> bool {
        matches!(self, Self::Down | Self::Cruise | Self::Refill | Self::Up)
    }

    /// IsProbingBW().
    fn is_probing(self) -> bool {
        matches!(self, Self::Startup | Self::Refill | Self::Up)
    }
}

/// BBR.ack_phase: data that the ACKs report on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AckPhase {
    Init,
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

/// State of BBR, named as in section 2 of the draft. An infinite bound is `u64::MAX`.
#[derive(Clone, Debug)]
pub(in crate::tcp) struct Bbr3 {
    mode: Mode,
    /// Zero before the first ACK.
    pacing_rate: Rate,
    bw: Rate,
    max_bw: Rate,
    /// Maximum rates of the previous cycle and of this one.
    max_bw_filter: [Rate; 2],
    bw_shortterm: Rate,
    inflight_longterm: u64,
    inflight_shortterm: u64,
    /// `MAX` before the first sample.
    min_rtt: Duration,
    min_rtt_stamp: Instant,
    probe_rtt_min_delay: Duration,
    probe_rtt_min_stamp: Instant,
    probe_rtt_expired: bool,
    /// Earliest end of ProbeRTT; `None` until little enough is in flight.
    probe_rtt_done: Option<Instant>,
    probe_rtt_round_done: bool,
    /// C.delivered [bytes].
    delivered: u64,
    round_count: u64,
    next_round_delivered: u64,
    round_start: bool,
    drain_start_round: u64,
    /// RS.delivery_rate of the latest ACK; zero without a valid sample.
    rate: Rate,
    full_bw_reached: bool,
    full_bw_now: bool,
    full_bw: Rate,
    full_bw_count: u32,
    bw_latest: Rate,
    inflight_latest: u64,
    is_loss_in_round: bool,
    is_mark_in_round: bool,
    loss_round_delivered: u64,
    loss_round_start: bool,
    /// Ranges lost in this round of losses.
    lost_ranges: u32,
    ack_phase: AckPhase,
    is_bw_probe_sample: bool,
    prev_probe_too_high: bool,
    prev_probe_precautionary: bool,
    probe_up_acked_per_inc: u64,
    bw_probe_up_acked: u64,
    bw_probe_up_rounds: u32,
    rounds_since_probe_up: u64,
    bw_probe_wait: Duration,
    cycle_stamp: Instant,
    extra_acked: u64,
    extra_acked_interval_start: Instant,
    extra_acked_delivered: u64,
    /// Maxima of the latest rounds, with their numbers.
    extra_acked_filter: [(u64, u64); EXTRA_ACKED_ROUNDS as usize],
    /// The window limited the sender in this round and in the previous one.
    is_cwnd_limited: [bool; 2],
    prior_cwnd: u64,
    /// Loss recovery state at the last ACK.
    loss_state: LossState,
    idle_restart: bool,
    undo_mode: Option<Mode>,
    undo_bw_shortterm: Rate,
    undo_inflight_shortterm: u64,
    undo_inflight_longterm: u64,
    /// The transport found its loss recovery spurious since the last ACK.
    is_spurious: bool,
}

impl Default for Bbr3 {
    /// OnInit(), section 5.2.1.
    fn default() -> Self {
        Self {
            mode: Mode::Startup,
            pacing_rate: Rate::default(),
            bw: Rate::default(),
            max_bw: Rate::default(),
            max_bw_filter: [Rate::default(); 2],
            bw_shortterm: INFINITE_RATE,
            inflight_longterm: u64::MAX,
            inflight_shortterm: u64::MAX,
            min_rtt: Duration::MAX,
            min_rtt_stamp: Instant::ZERO,
            probe_rtt_min_delay: Duration::MAX,
            probe_rtt_min_stamp: Instant::ZERO,
            probe_rtt_expired: false,
            probe_rtt_done: None,
            probe_rtt_round_done: false,
            delivered: 0,
            round_count: 0,
            next_round_delivered: 0,
            round_start: false,
            drain_start_round: 0,
            rate: Rate::default(),
            full_bw_reached: false,
            full_bw_now: false,
            full_bw: Rate::default(),
            full_bw_count: 0,
            bw_latest: Rate::default(),
            inflight_latest: 0,
            is_loss_in_round: false,
            is_mark_in_round: false,
            loss_round_delivered: 0,
            loss_round_start: false,
            lost_ranges: 0,
            ack_phase: AckPhase::Init,
            is_bw_probe_sample: false,
            prev_probe_too_high: false,
            prev_probe_precautionary: false,
            probe_up_acked_per_inc: u64::MAX,
            bw_probe_up_acked: 0,
            bw_probe_up_rounds: 0,
            rounds_since_probe_up: 0,
            bw_probe_wait: Duration::ZERO,
            cycle_stamp: Instant::ZERO,
            extra_acked: 0,
            extra_acked_interval_start: Instant::ZERO,
            extra_acked_delivered: 0,
            extra_acked_filter: [(0, 0); EXTRA_ACKED_ROUNDS as usize],
            is_cwnd_limited: [false; 2],
            prior_cwnd: 0,
            loss_state: LossState::Open,
            idle_restart: false,
            undo_mode: None,
            undo_bw_shortterm: Rate::default(),
            undo_inflight_shortterm: 0,
            undo_inflight_longterm: 0,
            is_spurious: false,
        }
    }
}

/// `gain` times a rate.
fn scaled(rate: Rate, gain: f64) -> Rate {
    Rate::from_bps((gain * rate.as_bps() as f64) as u64)
}

/// True if a loss of `lost` bytes out of `tx_in_flight` exceeds BBR.LossThresh.
fn is_too_high(lost: u64, tx_in_flight: u64) -> bool {
    lost as f64 > tx_in_flight as f64 * LOSS_THRESH
}

/// InflightAtLoss(), section 5.5.10.2: data in flight at which losses reached BBR.LossThresh [bytes].
fn inflight_at_loss(lost: &Lost) -> u64 {
    let inflight_prev = lost.tx_in_flight.saturating_sub(lost.size);
    let lost_prev = lost.lost.saturating_sub(lost.size);
    let lost_prefix = (LOSS_THRESH * inflight_prev as f64 - lost_prev as f64) / (1.0 - LOSS_THRESH);
    inflight_prev + lost_prefix.max(0.0) as u64
}

impl Bbr3 {
    /// Begins with the first ACK: the times of OnInit(), and InitPacingRate().
    fn init(&mut self, window: &Window, srtt: Option<Duration>, now: Instant) {
        self.pacing_rate = self.pacing_rate(window, srtt).unwrap_or_default();
        (self.min_rtt_stamp, self.probe_rtt_min_stamp) = (now, now);
        self.extra_acked_interval_start = now;
    }

    /// UpdateLatestDeliverySignals(), section 5.5.10.3.
    fn update_latest_delivery_signals(&mut self, sample: &Sample) {
        self.rate = sample.rate.unwrap_or_default();
        self.bw_latest = self.bw_latest.max(self.rate);
        self.inflight_latest = self.inflight_latest.max(sample.interval_delivered);
        self.loss_round_start =
            sample.interval_delivered > 0 && sample.prior_delivered >= self.loss_round_delivered;
        if self.loss_round_start {
            self.loss_round_delivered = sample.total;
        }
    }

    /// UpdateMaxBw() and UpdateRound(), sections 5.5.5 and 5.5.1.
    fn update_max_bw(&mut self, sample: &Sample) {
        self.round_start =
            sample.interval_delivered > 0 && sample.prior_delivered >= self.next_round_delivered;
        if self.round_start {
            self.start_round();
            self.round_count += 1;
            self.rounds_since_probe_up += 1;
        }
        if self.rate > Rate::default() && (self.rate >= self.max_bw || !sample.app_limited) {
            self.max_bw_filter[1] = self.max_bw_filter[1].max(self.rate);
            self.max_bw = self.max_bw_filter[0].max(self.max_bw_filter[1]);
        }
    }

    fn start_round(&mut self) {
        self.next_round_delivered = self.delivered;
    }

    /// AdvanceMaxBwFilter(), section 5.5.6.
    fn advance_max_bw_filter(&mut self) {
        if self.max_bw_filter[1] > Rate::default() {
            self.max_bw_filter = [self.max_bw_filter[1], Rate::default()];
            self.max_bw = self.max_bw_filter[0];
        }
    }

    /// C.is_cwnd_limited, section 2.2.
    fn update_cwnd_limited(&mut self, window: &Window, sample: &Sample, cfg: &Config) {
        if self.round_start {
            self.is_cwnd_limited = [false, self.is_cwnd_limited[0]];
        }
        self.is_cwnd_limited[0] |= sample.prior_in_flight + cfg.smss() > window.cwnd;
    }

    fn is_cwnd_limited(&self) -> bool {
        self.is_cwnd_limited[0] || self.is_cwnd_limited[1]
    }

    /// UpdateCongestionSignals() after UpdateMaxBw(), section 5.5.10.3. Returns true if a round with a loss has ended.
    fn update_congestion_signals(&mut self, window: &Window) -> bool {
        if !self.loss_round_start {
            return false;
        }
        let is_lossy = std::mem::take(&mut self.is_loss_in_round);
        if is_lossy && !self.mode.is_probing() {
            if self.bw_shortterm == INFINITE_RATE {
                self.bw_shortterm = self.max_bw;
            }
            if self.inflight_shortterm == u64::MAX {
                self.inflight_shortterm = window.cwnd;
            }
            self.bw_shortterm = self.bw_latest.max(scaled(self.bw_shortterm, BETA));
            let reduced = (BETA * self.inflight_shortterm as f64) as u64;
            self.inflight_shortterm = self.inflight_latest.max(reduced);
        }
        is_lossy
    }

    /// UpdateACKAggregation(), section 5.5.9.
    fn update_ack_aggregation(&mut self, window: &Window, sample: &Sample, now: Instant) {
        let interval = now - self.extra_acked_interval_start;
        let mut expected = (self.bw.bytes_per_sec() * interval.as_secs_f64()) as u64;
        if self.extra_acked_delivered <= expected {
            (self.extra_acked_delivered, expected) = (0, 0);
            self.extra_acked_interval_start = now;
        }
        self.extra_acked_delivered += sample.delivered;
        let extra = (self.extra_acked_delivered - expected).min(window.cwnd);
        let rounds = if self.full_bw_reached { EXTRA_ACKED_ROUNDS } else { 1 };
        let round = self.round_count;
        let slot = &mut self.extra_acked_filter[(round % EXTRA_ACKED_ROUNDS) as usize];
        *slot = (round, if slot.0 == round { slot.1.max(extra) } else { extra });
        let recent = self.extra_acked_filter.iter().filter(|entry| entry.0 + rounds > round);
        self.extra_acked = recent.map(|entry| entry.1).max().unwrap_or_default();
    }

    /// ResetFullBW(), section 5.3.1.2.
    fn reset_full_bw(&mut self, full_bw: Rate) {
        self.full_bw = full_bw;
        self.full_bw_count = 0;
        self.full_bw_now = false;
    }

    /// CheckFullBWReached(), section 5.3.1.2.
    fn check_full_bw_reached(&mut self, sample: &Sample) {
        if self.full_bw_now || !self.round_start || sample.app_limited || self.rate == Rate::default() {
            return;
        }
        if self.rate >= scaled(self.full_bw, FULL_BW_GROWTH) {
            self.reset_full_bw(self.rate);
            return;
        }
        self.full_bw_count += 1;
        self.full_bw_now = self.full_bw_count >= FULL_BW_COUNT;
        self.full_bw_reached |= self.full_bw_now;
    }

    /// CheckStartupDone() and CheckStartupHighLoss(), sections 5.3.1.1 and 5.3.1.3. `is_lossy`: a round with a loss has
    /// ended.
    fn check_startup_done(&mut self, sample: &Sample, is_lossy: bool) {
        if self.mode == Mode::Startup {
            let has_high_loss = self.lost_ranges >= STARTUP_FULL_LOSS_COUNT
                && is_too_high(sample.lost_since, sample.tx_in_flight);
            let ends = is_lossy
                && sample.loss_state != LossState::Loss
                && (has_high_loss || self.is_mark_in_round || !sample.has_sack);
            if ends && !self.full_bw_reached {
                self.undo_mode = Some(Mode::Startup);
                (self.full_bw_reached, self.full_bw_now) = (true, true);
                self.inflight_longterm = self.bdp(self.bw, 1.0).max(self.inflight_latest);
            }
            if self.full_bw_reached {
                self.mode = Mode::Drain;
                self.drain_start_round = self.round_count;
            }
        }
        if self.loss_round_start {
            self.lost_ranges = 0;
            self.is_mark_in_round = false;
        }
    }

    /// CheckDrainDone(), section 5.3.2.
    fn check_drain_done(&mut self, sample: &Sample, cfg: &Config, now: Instant) {
        let is_drained = sample.in_flight <= self.inflight(self.bw, 1.0, cfg);
        if self.mode == Mode::Drain
            && (is_drained || self.round_count > self.drain_start_round + DRAIN_ROUNDS)
        {
            self.start_down(cfg, now);
        }
    }

    /// StartProbeBW_DOWN(), section 5.3.3.9.
    fn start_down(&mut self, cfg: &Config, now: Instant) {
        // ResetCongestionSignals().
        self.is_loss_in_round = false;
        (self.bw_latest, self.inflight_latest) = (Rate::default(), 0);
        self.probe_up_acked_per_inc = u64::MAX;
        // PickProbeWait(), section 5.3.3.8.3.
        let random = mix(cfg.seed ^ mix(now.as_nanos() ^ self.delivered.rotate_left(32)));
        self.rounds_since_probe_up = random & 1;
        let fraction = (random >> 11) as f64 / (1u64 << 53) as f64;
        self.bw_probe_wait = PROBE_WAIT + PROBE_WAIT_RANDOM.scaled(fraction);
        self.cycle_stamp = now;
        self.ack_phase = AckPhase::ProbeStopping;
        self.start_round();
        self.mode = Mode::Down;
    }

    /// ResetShortTermModel().
    fn reset_short_term_model(&mut self) {
        self.bw_shortterm = INFINITE_RATE;
        self.inflight_shortterm = u64::MAX;
    }

    fn start_refill(&mut self) {
        self.reset_short_term_model();
        (self.bw_probe_up_rounds, self.bw_probe_up_acked) = (0, 0);
        self.prev_probe_precautionary = false;
        self.ack_phase = AckPhase::Refilling;
        self.start_round();
        self.mode = Mode::Refill;
    }

    fn start_up(&mut self, window: &Window, cfg: &Config) {
        self.ack_phase = AckPhase::ProbeStarting;
        self.start_round();
        self.reset_full_bw(self.rate);
        self.mode = Mode::Up;
        self.raise_inflight_longterm_slope(window, cfg);
    }

    /// UpdateProbeBWCyclePhase(), section 5.3.3.9.
    fn update_cycle_phase(&mut self, window: &Window, sample: &Sample, cfg: &Config, now: Instant) {
        if !self.full_bw_reached || self.adapt_long_term_model(window, sample, cfg) {
            return;
        }
        if self.mode == Mode::Up && self.is_time_to_go_down(window, sample) {
            self.prev_probe_too_high = false;
            self.start_down(cfg, now);
            return;
        }
        match self.mode {
            Mode::Down | Mode::Cruise if self.is_time_to_probe_bw(window, cfg, now) => self.start_refill(),
            Mode::Down
                if sample.in_flight <= self.inflight_with_headroom(cfg)
                    && sample.in_flight <= self.inflight(self.max_bw, 1.0, cfg) =>
            {
                self.mode = Mode::Cruise;
            }
            Mode::Refill if self.round_start => {
                self.is_bw_probe_sample = true;
                self.start_up(window, cfg);
            }
            _ => {}
        }
    }

    /// IsTimeToProbeBW(), section 5.3.3.8.3.
    fn is_time_to_probe_bw(&self, window: &Window, cfg: &Config, now: Instant) -> bool {
        let reno_rounds = (self.target_inflight(window) / cfg.smss()).min(RENO_ROUNDS);
        now > self.cycle_stamp + self.bw_probe_wait || self.rounds_since_probe_up >= reno_rounds
    }

    /// IsTimeToGoDown(), section 5.3.3.9.
    fn is_time_to_go_down(&mut self, window: &Window, sample: &Sample) -> bool {
        if self.prev_probe_too_high && sample.in_flight >= self.inflight_longterm {
            self.prev_probe_precautionary = true;
            return true;
        }
        if self.is_cwnd_limited() && window.cwnd >= self.inflight_longterm {
            self.reset_full_bw(self.rate);
            return false;
        }
        self.full_bw_now
    }

    /// TargetInflight(), section 5.3.3.8.3 [bytes].
    fn target_inflight(&self, window: &Window) -> u64 {
        self.bdp(self.bw, 1.0).min(window.cwnd)
    }

    /// InflightWithHeadroom(), section 5.3.3.9 [bytes].
    fn inflight_with_headroom(&self, cfg: &Config) -> u64 {
        if self.inflight_longterm == u64::MAX {
            return u64::MAX;
        }
        let headroom = ((HEADROOM * self.inflight_longterm as f64) as u64).max(cfg.smss());
        self.inflight_longterm.saturating_sub(headroom).max(MIN_PIPE * cfg.smss())
    }

    /// RaiseInflightLongtermSlope(), section 5.3.3.9.
    fn raise_inflight_longterm_slope(&mut self, window: &Window, cfg: &Config) {
        let growth = 1u64 << self.bw_probe_up_rounds;
        self.bw_probe_up_rounds = (self.bw_probe_up_rounds + 1).min(MAX_UP_ROUNDS);
        self.probe_up_acked_per_inc = (window.cwnd / growth).max(cfg.smss());
    }

    /// ProbeInflightLongtermUpward(), section 5.3.3.9.
    fn probe_inflight_longterm_upward(&mut self, window: &Window, sample: &Sample, cfg: &Config) {
        if !self.is_cwnd_limited() || window.cwnd < self.inflight_longterm {
            return;
        }
        self.bw_probe_up_acked += sample.delivered;
        let steps = self.bw_probe_up_acked / self.probe_up_acked_per_inc;
        self.bw_probe_up_acked %= self.probe_up_acked_per_inc;
        self.inflight_longterm = self.inflight_longterm.saturating_add(steps * cfg.smss());
        if self.round_start {
            self.raise_inflight_longterm_slope(window, cfg);
        }
    }

    /// AdaptLongTermModel(), section 5.3.3.9. Returns true if it changed the state.
    fn adapt_long_term_model(&mut self, window: &Window, sample: &Sample, cfg: &Config) -> bool {
        if self.round_start && self.ack_phase == AckPhase::ProbeStarting {
            self.ack_phase = AckPhase::ProbeFeedback;
        } else if self.round_start && self.ack_phase == AckPhase::ProbeStopping {
            self.is_bw_probe_sample = false;
            self.ack_phase = AckPhase::Init;
            if self.mode.is_probe_bw() {
                if !sample.app_limited {
                    self.advance_max_bw_filter();
                }
                if self.prev_probe_precautionary && !self.prev_probe_too_high {
                    self.start_refill();
                    return true;
                }
            }
        }
        let is_too_high = is_too_high(sample.lost_since, sample.tx_in_flight);
        if !is_too_high && self.inflight_longterm < u64::MAX {
            self.inflight_longterm = self.inflight_longterm.max(sample.tx_in_flight);
            if self.mode == Mode::Up {
                self.probe_inflight_longterm_upward(window, sample, cfg);
            }
        }
        false
    }

    /// UpdateMinRTT(), section 5.3.4.3.
    fn update_min_rtt(&mut self, sample: &Sample, now: Instant) {
        self.probe_rtt_expired = now > self.probe_rtt_min_stamp + PROBE_RTT_INTERVAL;
        if let Some(rtt) = sample.rtt.filter(|&rtt| rtt < self.probe_rtt_min_delay || self.probe_rtt_expired)
        {
            self.probe_rtt_min_delay = rtt;
            self.probe_rtt_min_stamp = now;
        }
        let is_expired = now > self.min_rtt_stamp + MIN_RTT_FILTER;
        if self.probe_rtt_min_delay < self.min_rtt || is_expired {
            self.min_rtt = self.probe_rtt_min_delay;
            self.min_rtt_stamp = self.probe_rtt_min_stamp;
        }
    }

    /// CheckProbeRTT() and HandleProbeRTT(), section 5.3.4.3. Returns true if samples must be marked as
    /// application-limited.
    fn check_probe_rtt(&mut self, window: &mut Window, sample: &Sample, cfg: &Config, now: Instant) -> bool {
        if self.mode != Mode::ProbeRtt && self.probe_rtt_expired && !self.idle_restart {
            self.save_cwnd(window);
            self.mode = Mode::ProbeRtt;
            self.probe_rtt_done = None;
            self.ack_phase = AckPhase::ProbeStopping;
            self.start_round();
        }
        let is_in_probe_rtt = self.mode == Mode::ProbeRtt;
        if is_in_probe_rtt {
            if self.probe_rtt_done.is_some() {
                self.probe_rtt_round_done |= self.round_start;
                if self.probe_rtt_round_done {
                    self.check_probe_rtt_done(window, cfg, now);
                }
            } else if sample.in_flight <= self.probe_rtt_cwnd(cfg) {
                self.probe_rtt_done = Some(now + PROBE_RTT_DURATION);
                self.probe_rtt_round_done = false;
                self.start_round();
            }
        }
        if sample.delivered > 0 {
            self.idle_restart = false;
        }
        is_in_probe_rtt
    }

    /// CheckProbeRTTDone() and ExitProbeRTT(), sections 5.3.4.3 and 5.3.4.4.
    fn check_probe_rtt_done(&mut self, window: &mut Window, cfg: &Config, now: Instant) {
        if self.probe_rtt_done.is_none_or(|done| now <= done) {
            return;
        }
        self.probe_rtt_min_stamp = now;
        self.restore_cwnd(window);
        self.reset_short_term_model();
        self.mode = Mode::Startup;
        if self.full_bw_reached {
            self.start_down(cfg, now);
            self.mode = Mode::Cruise;
        }
    }

    /// AdvanceLatestDeliverySignals() and BoundBWForModel(), section 5.5.10.3.
    fn bound_bw(&mut self, sample: &Sample) {
        if self.loss_round_start {
            self.bw_latest = self.rate;
            self.inflight_latest = sample.interval_delivered;
        }
        self.bw = self.max_bw.min(self.bw_shortterm);
    }

    /// NoteLoss(), section 5.5.10.2.
    fn note_loss(&mut self, window: &Window) {
        if !self.is_loss_in_round {
            self.loss_round_delivered = self.delivered;
            self.save_state_upon_loss(window);
        }
        self.is_loss_in_round = true;
    }

    /// SaveStateUponLoss(), section 5.5.11.1.
    fn save_state_upon_loss(&mut self, window: &Window) {
        self.save_cwnd(window);
        self.undo_mode = None;
        self.undo_bw_shortterm = self.bw_shortterm;
        self.undo_inflight_shortterm = self.inflight_shortterm;
        self.undo_inflight_longterm = self.inflight_longterm;
    }

    /// HandleInflightTooHigh(), section 5.5.10.2, for data of which `tx_in_flight` bytes were in flight.
    fn on_inflight_too_high(
        &mut self,
        window: &Window,
        (tx_in_flight, is_app_limited): (u64, bool),
        cfg: &Config,
        now: Instant,
    ) {
        self.prev_probe_too_high = true;
        self.is_bw_probe_sample = false;
        if !is_app_limited {
            let least = (BETA * self.target_inflight(window) as f64) as u64;
            self.inflight_longterm = tx_in_flight.max(least);
        }
        if self.mode == Mode::Up {
            self.undo_mode = Some(Mode::Up);
            self.start_down(cfg, now);
        }
    }

    /// HandleSpuriousLossDetection(), section 5.5.11.2.
    fn on_spurious_recovery(&mut self, window: &mut Window) {
        self.restore_cwnd(window);
        self.is_loss_in_round = false;
        self.reset_full_bw(Rate::default());
        self.bw_shortterm = self.bw_shortterm.max(self.undo_bw_shortterm);
        self.inflight_shortterm = self.inflight_shortterm.max(self.undo_inflight_shortterm);
        self.inflight_longterm = self.inflight_longterm.max(self.undo_inflight_longterm);
        match self.undo_mode.take() {
            Some(Mode::Startup) => {
                self.full_bw_reached = false;
                if self.mode != Mode::ProbeRtt {
                    self.mode = Mode::Startup;
                }
            }
            Some(Mode::Up) if !matches!(self.mode, Mode::Up | Mode::ProbeRtt) => self.start_refill(),
            _ => {}
        }
    }

    /// SaveCwnd(), section 5.6.4.4.
    fn save_cwnd(&mut self, window: &Window) {
        let is_current = self.loss_state == LossState::Open && self.mode != Mode::ProbeRtt;
        self.prior_cwnd = if is_current { window.cwnd } else { self.prior_cwnd.max(window.cwnd) };
    }

    /// RestoreCwnd(), section 5.6.4.4.
    fn restore_cwnd(&self, window: &mut Window) {
        window.cwnd = window.cwnd.max(self.prior_cwnd);
    }

    /// BDPMultiple(), section 5.6.4.2, once an RTT is known [bytes].
    fn bdp(&self, bw: Rate, gain: f64) -> u64 {
        (gain * bw.bytes_per_sec() * self.min_rtt.as_secs_f64()) as u64
    }

    /// As [`Self::bdp`], or the initial window before the first RTT [bytes].
    fn bdp_or_initial(&self, bw: Rate, gain: f64, cfg: &Config) -> u64 {
        if self.min_rtt == Duration::MAX { cfg.iw() } else { self.bdp(bw, gain) }
    }

    /// SetSendQuantum(), section 5.6.3 [bytes].
    fn quantum(&self, cfg: &Config) -> u64 {
        (self.pacing_rate.as_bps() / 8 / 1000).min(MAX_QUANTUM).max(2 * cfg.smss())
    }

    /// QuantizationBudget(), section 5.6.4.2 [bytes].
    fn quantization_budget(&self, inflight: u64, cfg: &Config) -> u64 {
        // Three quanta of at least two segments exceed BBR.MinPipeCwnd.
        let inflight = inflight.max(OFFLOAD_QUANTA * self.quantum(cfg));
        if self.mode == Mode::Up { inflight + 2 * cfg.smss() } else { inflight }
    }

    /// Inflight(), section 5.6.4.2 [bytes].
    fn inflight(&self, bw: Rate, gain: f64, cfg: &Config) -> u64 {
        self.quantization_budget(self.bdp_or_initial(bw, gain, cfg), cfg)
    }

    /// ProbeRTTCwnd(), section 5.6.4.5 [bytes].
    fn probe_rtt_cwnd(&self, cfg: &Config) -> u64 {
        self.bdp_or_initial(self.bw, PROBE_RTT_CWND_GAIN, cfg).max(MIN_PIPE * cfg.smss())
    }

    /// SetPacingRateWithGain(), section 5.6.2.
    fn set_pacing_rate(&mut self, gain: f64) {
        let rate = scaled(self.bw, gain * (1.0 - PACING_MARGIN));
        // At least 1 bit/s, because with a rate of zero nothing would be sent.
        if (self.full_bw_reached || rate > self.pacing_rate) && rate > Rate::default() {
            self.pacing_rate = rate;
        }
    }

    /// SetCwnd(), section 5.6.4.6.
    fn set_cwnd(&self, window: &mut Window, sample: &Sample, cfg: &Config) {
        let inflight = self.bdp_or_initial(self.bw, self.mode.cwnd_gain(), cfg) + self.extra_acked;
        let max_inflight = self.quantization_budget(inflight, cfg);
        let grown = window.cwnd + sample.delivered;
        if self.full_bw_reached {
            window.cwnd = grown.min(max_inflight);
        } else if window.cwnd < max_inflight || sample.total < cfg.iw() {
            window.cwnd = grown;
        }
        let least = MIN_PIPE * cfg.smss();
        window.cwnd = window.cwnd.max(least);
        if self.mode == Mode::ProbeRtt {
            window.cwnd = window.cwnd.min(self.probe_rtt_cwnd(cfg));
        }
        // BoundCwndForModel(), section 5.6.4.7.
        let bound = match self.mode {
            Mode::Down | Mode::Refill | Mode::Up => self.inflight_longterm,
            Mode::Cruise | Mode::ProbeRtt => self.inflight_with_headroom(cfg),
            Mode::Startup | Mode::Drain => u64::MAX,
        };
        window.cwnd = window.cwnd.min(bound.min(self.inflight_shortterm).max(least));
    }
}

impl Control for Bbr3 {
    fn on_ack(&mut self, _window: &mut Window, _ack: &Acked, _smss: u64, _now: Instant) {}

    /// OnEnterFastRecovery() and the first half of OnEnterRTO(), section 5.6.4.4.
    fn on_congestion(&mut self, window: &mut Window, _flight: u64, _smss: u64, _now: Instant) {
        self.save_state_upon_loss(window);
        // The window that the end of recovery restores, if another recovery begins with the same ACK.
        window.set_ssthresh(self.prior_cwnd);
    }

    /// HandleLostPacket(), section 5.5.10.2.
    fn on_lost(&mut self, window: &Window, lost: &Lost, cfg: &Config, now: Instant) {
        self.delivered = lost.total;
        self.note_loss(window);
        self.lost_ranges = self.lost_ranges.saturating_add(lost.begins_range.into());
        if self.is_bw_probe_sample && is_too_high(lost.lost, lost.tx_in_flight) {
            self.on_inflight_too_high(window, (inflight_at_loss(lost), lost.app_limited), cfg, now);
        }
    }

    fn on_congestion_mark(&mut self, window: &Window) {
        self.note_loss(window);
        self.is_mark_in_round = true;
    }

    fn on_spurious_timeout(&mut self) {
        self.is_spurious = true;
    }

    /// UpdateOnACK(), section 5.2.3.
    fn on_sample(
        &mut self,
        window: &mut Window,
        sample: &Sample,
        cfg: &Config,
        srtt: Option<Duration>,
        now: Instant,
    ) -> bool {
        if self.pacing_rate.as_bps() == 0 {
            self.init(window, srtt, now);
        }
        self.delivered = sample.total;
        if std::mem::take(&mut self.is_spurious) {
            self.on_spurious_recovery(window);
        }
        let before = std::mem::replace(&mut self.loss_state, sample.loss_state);
        if sample.loss_state == LossState::Open && before != LossState::Open {
            self.restore_cwnd(window);
        }
        let has_unsacked_loss = !sample.has_sack && sample.loss_state == LossState::Recovery;
        if has_unsacked_loss && before == LossState::Open {
            self.note_loss(window);
        }
        self.update_latest_delivery_signals(sample);
        self.update_max_bw(sample);
        self.update_cwnd_limited(window, sample, cfg);
        if self.is_bw_probe_sample && (self.is_mark_in_round || has_unsacked_loss) {
            self.on_inflight_too_high(window, (sample.tx_in_flight, sample.app_limited), cfg, now);
        }
        let is_lossy = self.update_congestion_signals(window);
        self.update_ack_aggregation(window, sample, now);
        self.check_full_bw_reached(sample);
        self.check_startup_done(sample, is_lossy);
        self.check_drain_done(sample, cfg, now);
        self.update_cycle_phase(window, sample, cfg, now);
        self.update_min_rtt(sample, now);
        let marks = self.check_probe_rtt(window, sample, cfg, now);
        self.bound_bw(sample);
        self.set_pacing_rate(self.mode.pacing_gain());
        self.set_cwnd(window, sample, cfg);
        marks
    }

    /// HandleRestartFromIdle(), section 5.4.1.
    fn on_restart(&mut self, window: &mut Window, cfg: &Config, now: Instant) {
        self.idle_restart = true;
        self.extra_acked_interval_start = now;
        if self.mode.is_probe_bw() {
            self.set_pacing_rate(1.0);
        } else if self.mode == Mode::ProbeRtt {
            self.check_probe_rtt_done(window, cfg, now);
        }
    }

    fn on_timeout(&mut self, _nxt: u64, _now: Instant) {
        // The transport reduces the window. Losses that it finds now do not save the reduced window.
        self.loss_state = LossState::Loss;
    }

    fn pacing_rate(&self, window: &Window, srtt: Option<Duration>) -> Option<Rate> {
        if self.pacing_rate.as_bps() > 0 {
            return Some(self.pacing_rate);
        }
        // InitPacingRate(), section 5.6.2: the initial window per RTT, or per 1 ms without a measurement.
        let rtt = srtt.unwrap_or(Duration::from_millis(1)).as_secs_f64();
        Some(Rate::from_bps(((STARTUP_PACING_GAIN * window.cwnd as f64 * 8.0 / rtt) as u64).max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MBPS: u64 = 1_000_000;

    /// A connection with segments of 1000 bytes and an RTT of 100 ms, driven by samples.
    struct Run {
        bbr: Bbr3,
        window: Window,
        cfg: Config,
        now: Instant,
        sample: Sample,
    }

    impl Run {
        fn new() -> Self {
            let cfg = Config { mss: 1000, seed: 7, ..Config::default() };
            let sample = Sample {
                delivered: 1000,
                lost: 0,
                total: 0,
                prior_delivered: 0,
                interval_delivered: 1000,
                lost_since: 0,
                tx_in_flight: 100_000,
                prior_in_flight: 100_000,
                in_flight: 100_000,
                rtt: Some(Duration::from_millis(100)),
                rate: Some(Rate::from_bps(8 * MBPS)),
                app_limited: false,
                loss_state: LossState::Open,
                has_sack: true,
            };
            Self {
                bbr: Bbr3::default(),
                window: Window::new(cfg.iw(), None),
                cfg,
                now: Instant::ZERO + Duration::from_secs(100),
                sample,
            }
        }

        /// After `ms`, an ACK of one segment; one RTT after the last if `round`. The bandwidth-delay product at 8 Mbit/s is
        /// 100 kB.
        fn ack(&mut self, ms: u64, round: bool) -> bool {
            self.now += Duration::from_millis(ms);
            self.sample.total += 1000;
            let first_of_round = self.bbr.next_round_delivered.max(self.bbr.loss_round_delivered);
            self.sample.prior_delivered = if round { first_of_round } else { 0 };
            let srtt = Some(Duration::from_millis(100));
            self.bbr.on_sample(&mut self.window, &self.sample, &self.cfg, srtt, self.now)
        }

        fn ack_in_flight(&mut self, ms: u64, round: bool, in_flight: u64) {
            (self.sample.in_flight, self.sample.prior_in_flight) = (in_flight, in_flight + 1000);
            self.ack(ms, round);
        }

        /// Waits `ms` without a need to probe for the RTT.
        fn wait(&mut self, ms: u64) {
            self.now += Duration::from_millis(ms);
            self.bbr.probe_rtt_min_stamp = self.now;
        }

        /// Loses a segment that left with `tx_in_flight` bytes in flight, since when `lost` bytes were lost.
        fn lose(&mut self, tx_in_flight: u64, lost: u64) {
            let total = self.sample.total;
            let lost = Lost { size: 1000, tx_in_flight, lost, app_limited: false, begins_range: true, total };
            self.bbr.on_lost(&self.window, &lost, &self.cfg, self.now);
        }

        /// After Startup and Drain, at 8 Mbit/s.
        fn steady() -> Self {
            let mut run = Self::new();
            for _ in 0..4 {
                run.ack_in_flight(100, true, 200_000);
            }
            assert_eq!(run.bbr.mode, Mode::Drain);
            // The window grows up to its bound.
            for _ in 0..300 {
                run.ack_in_flight(0, false, 200_000);
            }
            // The queue is drained, so that ProbeBW_DOWN ends with the ACK that begins it.
            run.ack_in_flight(10, false, 100_000);
            assert_eq!(run.bbr.mode, Mode::Cruise);
            run
        }

        /// In ProbeBW_UP, after a cycle of DOWN, CRUISE and REFILL.
        fn probing() -> Self {
            let mut run = Self::steady();
            run.ack_in_flight(100, true, 100_000);
            run.ack_in_flight(3000, true, 100_000);
            assert_eq!(run.bbr.mode, Mode::Refill);
            run.ack_in_flight(100, true, 100_000);
            assert_eq!(run.bbr.mode, Mode::Up);
            run
        }
    }

    /// Section 5.3.1.2: 8 is a quarter more than 6.4; 9.9 is less than a quarter more than 8. Section 5.6.2: 0.99 times the
    /// gain times 9.9 Mbit/s. Section 5.3.2: 9.9 Mbit/s times 100 ms is 123 750 bytes.
    #[test]
    fn startup_ends_after_three_round_trips_without_growth() {
        let mut run = Run::new();
        for rate in [1.0, 2.0, 4.0, 6.4, 8.0, 9.0, 9.9] {
            run.sample.rate = Some(Rate::from_bps((rate * MBPS as f64) as u64));
            run.ack_in_flight(100, true, 200_000);
            run.ack_in_flight(1, false, 200_000);
            assert_eq!(run.bbr.mode, Mode::Startup);
        }
        assert_eq!(run.bbr.pacing_rate.as_bps(), (0.99 * 2.77 * 9.9 * MBPS as f64) as u64);
        run.sample.rate = Some(Rate::from_bps(9 * MBPS));
        run.ack_in_flight(100, true, 200_000);
        assert_eq!((run.bbr.mode, run.bbr.full_bw_now, run.bbr.full_bw_reached), (Mode::Drain, true, true));
        assert_eq!(run.bbr.pacing_rate.as_bps(), (0.99 * 0.5 * 9.9 * MBPS as f64) as u64);
        run.ack_in_flight(10, false, 123_751);
        assert_eq!(run.bbr.mode, Mode::Drain);
        run.ack_in_flight(10, false, 123_750);
        assert_eq!(run.bbr.mode, Mode::Cruise);
    }

    /// Section 5.3.2: more than three rounds after it began.
    #[test]
    fn drain_ends_after_three_rounds() {
        let mut run = Run::new();
        for _ in 0..3 {
            run.ack_in_flight(100, true, 200_000);
        }
        for _ in 0..4 {
            run.ack_in_flight(100, true, 200_000);
            assert_eq!(run.bbr.mode, Mode::Drain);
        }
        run.ack_in_flight(100, true, 200_000);
        assert_eq!(run.bbr.mode, Mode::Down);
    }

    /// Section 5.3.1.3: 2 % of 100 000 bytes are 2000, and six ranges must be lost in a round. The bound is the
    /// bandwidth-delay product of 100 kB.
    #[test]
    fn startup_ends_by_losses_in_six_ranges_above_two_percent() {
        for (ranges, lost_since, ends) in [(5, 3000, false), (6, 2000, false), (6, 2001, true)] {
            let mut run = Run::new();
            run.sample.app_limited = true;
            run.ack_in_flight(100, true, 100_000);
            run.sample.loss_state = LossState::Recovery;
            for _ in 0..ranges {
                run.lose(100_000, 1000);
            }
            run.ack_in_flight(10, false, 100_000);
            assert_eq!(run.bbr.mode, Mode::Startup);
            run.sample.lost_since = lost_since;
            run.ack_in_flight(100, true, 150_000);
            assert_eq!(run.bbr.mode == Mode::Drain, ends, "{ranges} {lost_since}");
            assert_eq!((run.bbr.full_bw_reached, run.bbr.full_bw_now), (ends, ends));
            assert_eq!(run.bbr.inflight_longterm, if ends { 100_000 } else { u64::MAX });
        }
    }

    /// Section 4.1.2.4: rounds of an application with too little to send are no plateau.
    #[test]
    fn startup_lasts_while_the_application_limits_the_sender() {
        let mut run = Run::new();
        run.sample.app_limited = true;
        for _ in 0..20 {
            run.ack_in_flight(100, true, 50_000);
        }
        assert_eq!((run.bbr.mode, run.bbr.full_bw_count), (Mode::Startup, 0));
    }

    /// The gains of section 5.6.1 at 8 Mbit/s, and the waiting time of section 5.3.3.8.2.
    #[test]
    fn probe_bw_cycles_through_down_cruise_refill_and_up() {
        let mut run = Run::probing();
        let paced = |run: &Run| run.bbr.pacing_rate.as_bps() as f64 / 0.99 / (8 * MBPS) as f64;
        while run.bbr.mode == Mode::Up {
            run.ack_in_flight(100, true, 120_000);
        }
        assert!((paced(&run) - 0.9).abs() < 1e-6);
        run.ack_in_flight(1, false, 100_001);
        assert_eq!(run.bbr.mode, Mode::Down);
        run.ack_in_flight(1, false, 100_000);
        assert_eq!(run.bbr.mode, Mode::Cruise);
        assert!((paced(&run) - 1.0).abs() < 1e-6);
        let begin = run.bbr.cycle_stamp;
        run.wait(1000);
        while run.bbr.mode == Mode::Cruise {
            run.ack_in_flight(10, false, 100_000);
        }
        let waited = (run.now - begin).as_secs_f64();
        assert!((2.0..3.02).contains(&waited), "{waited} s");
        assert_eq!(run.bbr.mode, Mode::Refill);
        assert!((paced(&run) - 1.0).abs() < 1e-6);
        run.ack_in_flight(100, true, 100_000);
        assert_eq!(run.bbr.mode, Mode::Up);
        assert!((paced(&run) - 1.25).abs() < 1e-6);
        // 2.25 BDP, extra_acked of less than a window, and two segments.
        assert!(run.window.cwnd <= 225_000 + run.bbr.extra_acked + 2000);
        for _ in 0..2 {
            run.ack_in_flight(100, true, 120_000);
            assert_eq!(run.bbr.mode, Mode::Up);
        }
        run.ack_in_flight(100, true, 120_000);
        assert_eq!((run.bbr.mode, run.bbr.full_bw_now), (Mode::Down, true));
        assert!(!run.bbr.prev_probe_too_high);
    }

    /// Section 5.3.3.8.3: with a bandwidth-delay product of 20 segments, a probe begins after 20 rounds, one of which may be
    /// skipped at random.
    #[test]
    fn a_small_path_probes_as_often_as_reno() {
        let mut run = Run::new();
        run.sample.rate = Some(Rate::from_bps(MBPS * 16 / 10));
        for _ in 0..6 {
            run.ack_in_flight(100, true, 30_000);
        }
        run.ack_in_flight(1, false, 20_000);
        assert_eq!(run.bbr.mode, Mode::Cruise);
        let first = run.bbr.round_count + 20 - run.bbr.rounds_since_probe_up;
        while run.bbr.mode != Mode::Refill {
            run.ack_in_flight(60, true, 20_000);
        }
        assert_eq!(run.bbr.round_count, first);
    }

    /// Section 5.3.3.8.2: 2 s to 3 s, and no round or one. Another seed, time or amount delivered gives another wait.
    #[test]
    fn waits_differ_between_seeds_times_and_amounts() {
        use std::collections::BTreeSet;
        let mut run = Run::new();
        let mut wait = |seed, ms, delivered| {
            (run.cfg.seed, run.bbr.delivered) = (seed, delivered);
            run.bbr.start_down(&run.cfg, run.now + Duration::from_millis(ms));
            (run.bbr.bw_probe_wait, run.bbr.rounds_since_probe_up)
        };
        let waits: [BTreeSet<_>; 3] = [
            (0..64).map(|seed| wait(seed, 0, 0)).collect(),
            (0..64).map(|ms| wait(0, ms, 0)).collect(),
            (0..64).map(|delivered| wait(0, 0, delivered)).collect(),
        ];
        for waits in waits {
            assert_eq!(waits.len(), 64);
            assert_eq!(waits.iter().map(|wait| wait.1).collect::<BTreeSet<_>>(), [0, 1].into());
            let [least, most] = [waits.first(), waits.last()].map(|wait| wait.unwrap().0.as_secs_f64());
            assert!((2.0..2.2).contains(&least) && (2.8..3.0).contains(&most), "{least} s, {most} s");
        }
    }

    /// Section 5.3.3.8.3, with a bandwidth-delay product of 100 segments: more than the wait of 2 s, or 63 rounds.
    #[test]
    fn a_probe_begins_after_the_wait_or_63_rounds() {
        let mut run = Run::steady();
        run.bbr.bw_probe_wait = PROBE_WAIT;
        let wait = PROBE_WAIT.as_nanos();
        for (ns, rounds, begins) in [(wait, 62, false), (wait + 1, 62, true), (0, 63, true)] {
            run.bbr.rounds_since_probe_up = rounds;
            let now = run.bbr.cycle_stamp + Duration::from_nanos(ns);
            assert_eq!(
                run.bbr.is_time_to_probe_bw(&run.window, &run.cfg, now),
                begins,
                "{ns} ns, {rounds} rounds"
            );
        }
    }

    /// Section 5.3.3.9, IsTimeToGoDown(), with a bound of 100 000 bytes: a probe after one that lost too much ends once the bound
    /// is in flight. Other probes end with growth, unless the bound is what limits them.
    #[test]
    fn a_probe_ends_at_the_bound_or_without_growth() {
        for (too_high, in_flight, is_limited, cwnd, full_bw_now, ends) in [
            (true, 100_000, false, 50_000, false, true),
            (true, 99_999, false, 50_000, false, false),
            (false, 100_000, false, 50_000, false, false),
            (false, 0, true, 100_000, true, false),
            (false, 0, true, 99_999, true, true),
            (false, 0, false, 100_000, true, true),
        ] {
            let mut run = Run::probing();
            (run.bbr.inflight_longterm, run.bbr.prev_probe_too_high) = (100_000, too_high);
            (run.bbr.is_cwnd_limited, run.bbr.full_bw_now) = ([is_limited, false], full_bw_now);
            (run.window.cwnd, run.sample.in_flight) = (cwnd, in_flight);
            assert_eq!(run.bbr.is_time_to_go_down(&run.window, &run.sample), ends);
            assert_eq!(
                (run.bbr.prev_probe_precautionary, run.bbr.full_bw_now),
                (ends && too_high, ends && full_bw_now)
            );
        }
    }

    /// Section 5.3.3.9, ProbeInflightLongtermUpward(): a segment for each 10 000 bytes delivered, if the window limits the sender
    /// and reaches the bound of 100 000 bytes. Of 25 000 bytes 5000 are left. A round later half of the window counts.
    #[test]
    fn only_a_window_in_use_raises_the_long_term_bound() {
        for (is_limited, cwnd, bound, left) in [
            (true, 100_000, 102_000, 5000),
            (true, 150_000, 102_000, 5000),
            (true, 99_999, 100_000, 0),
            (false, 150_000, 100_000, 0),
        ] {
            let mut run = Run::probing();
            (run.bbr.inflight_longterm, run.bbr.probe_up_acked_per_inc) = (100_000, 10_000);
            (run.bbr.is_cwnd_limited, run.bbr.round_start) = ([false, is_limited], left > 0);
            (run.window.cwnd, run.sample.delivered) = (cwnd, 25_000);
            run.bbr.probe_inflight_longterm_upward(&run.window, &run.sample, &run.cfg);
            assert_eq!((run.bbr.inflight_longterm, run.bbr.bw_probe_up_acked), (bound, left));
            assert_eq!(run.bbr.probe_up_acked_per_inc, if left > 0 { cwnd / 2 } else { 10_000 });
        }
    }

    /// Section 5.3.3.9: the bound is raised to what was in flight without losing more than 2 %, here of 80 000 bytes.
    #[test]
    fn data_in_flight_without_losses_raises_the_long_term_bound() {
        for (lost_since, bound) in [(1600, 80_000), (1601, 50_000)] {
            let mut run = Run::steady();
            run.bbr.inflight_longterm = 50_000;
            (run.sample.tx_in_flight, run.sample.lost_since) = (80_000, lost_since);
            run.bbr.adapt_long_term_model(&run.window, &run.sample, &run.cfg);
            assert_eq!(run.bbr.inflight_longterm, bound);
        }
    }

    /// Section 5.3.3.9: the headroom is 15 %, at least a segment; four segments are left.
    #[test]
    fn headroom_is_15_percent_and_at_least_a_segment() {
        let mut run = Run::new();
        for (bound, left) in [(10_000, 8500), (6000, 5000), (4500, 4000), (u64::MAX, u64::MAX)] {
            run.bbr.inflight_longterm = bound;
            assert_eq!(run.bbr.inflight_with_headroom(&run.cfg), left);
        }
    }

    /// Section 5.5.10.2 with 2 %: of 90 000 bytes before the burst 1000 are lost, and x = (1800 - 1000) / 0.98 = 816 more of
    /// both reach the threshold.
    #[test]
    fn inflight_at_loss_is_where_losses_reach_two_percent() {
        let lost = Lost {
            size: 10_000,
            tx_in_flight: 100_000,
            lost: 11_000,
            app_limited: false,
            begins_range: true,
            total: 0,
        };
        assert_eq!(inflight_at_loss(&lost), 90_816);
        assert_eq!(inflight_at_loss(&Lost { lost: 20_000, ..lost }), 90_000);
    }

    /// Section 5.5.10.2: up to 2 % of 150 000 bytes are tolerated; the bound is what was in flight before the segment, where
    /// 2001 of 149 000 bytes had been lost, and (2980 - 2001) / 0.98 = 998 more. Section 5.3.3.9: the headroom is 15 %.
    #[test]
    fn a_probe_that_loses_too_much_sets_the_long_term_bound() {
        let mut run = Run::probing();
        run.lose(150_000, 3000);
        assert_eq!((run.bbr.mode, run.bbr.inflight_longterm), (Mode::Up, u64::MAX));
        run.lose(150_000, 3001);
        assert_eq!((run.bbr.mode, run.bbr.inflight_longterm), (Mode::Down, 149_998));
        assert!(run.bbr.prev_probe_too_high && !run.bbr.is_bw_probe_sample);
        let bound = run.bbr.inflight_longterm;
        assert_eq!(run.bbr.inflight_with_headroom(&run.cfg), bound - (0.15 * bound as f64) as u64);
        // Less than 0.7 of the bandwidth-delay product of 100 kB.
        let mut run = Run::probing();
        run.lose(50_000, 3001);
        assert_eq!(run.bbr.inflight_longterm, 70_000);
    }

    /// Section 5.3.3.6: after a probe with too many losses, the next ends as soon as the bound is in flight; a round later,
    /// the flow refills the pipe without a pause.
    #[test]
    fn a_probe_after_losses_is_precautionary() {
        let mut run = Run::probing();
        run.lose(150_000, 3001);
        let bound = run.bbr.inflight_longterm;
        run.sample.tx_in_flight = 90_000;
        run.ack_in_flight(100, true, 90_000);
        run.ack_in_flight(100, false, 90_000);
        assert_eq!(run.bbr.mode, Mode::Cruise);
        run.wait(3000);
        run.ack_in_flight(0, false, 90_000);
        run.ack_in_flight(100, true, 90_000);
        assert_eq!(run.bbr.mode, Mode::Up);
        run.ack_in_flight(1, false, bound - 1);
        assert_eq!(run.bbr.mode, Mode::Up);
        run.ack_in_flight(1, false, bound);
        assert_eq!((run.bbr.mode, run.bbr.prev_probe_precautionary), (Mode::Down, true));
        run.ack_in_flight(100, true, bound);
        assert_eq!((run.bbr.mode, run.bbr.prev_probe_precautionary), (Mode::Refill, false));
    }

    /// Section 5.3.3.5: a probe that fills the bound raises it by 1, 2, 4, 8 segments per round.
    #[test]
    fn the_long_term_bound_grows_exponentially() {
        let mut run = Run::probing();
        run.bbr.inflight_longterm = 100_000;
        run.window.cwnd = 100_000;
        run.sample.tx_in_flight = 0;
        let mut grown = Vec::new();
        for _ in 0..4 {
            let before = run.bbr.inflight_longterm;
            // The window is that at the start of the round.
            let acks = before / 1000;
            for ack in 0..acks {
                run.ack_in_flight(1, ack == 0, run.window.cwnd);
            }
            grown.push((run.bbr.inflight_longterm - before) / 1000);
            assert_eq!(run.bbr.mode, Mode::Up);
        }
        // The first ACK of a round still counts at the slope before.
        for (grown, expected) in grown.into_iter().zip([2, 4, 8, 16]) {
            assert!(grown.abs_diff(expected) <= expected / 2 + 1, "{grown} {expected}");
        }
    }

    /// Case 10.6: too many losses end a probe of a sender that the application limits. What it had in flight tells nothing about
    /// the path, so that the bound stays (section 5.5.10.2).
    #[test]
    fn losses_end_a_probe_that_the_application_limits() {
        let mut run = Run::probing();
        run.sample.app_limited = true;
        for _ in 0..5 {
            run.ack_in_flight(100, true, 60_000);
            assert_eq!(run.bbr.mode, Mode::Up);
        }
        let total = run.sample.total;
        let lost = |lost| Lost {
            size: 1000,
            tx_in_flight: 60_000,
            lost,
            app_limited: true,
            begins_range: true,
            total,
        };
        run.bbr.on_lost(&run.window, &lost(1200), &run.cfg, run.now);
        assert_eq!(run.bbr.mode, Mode::Up, "2 %");
        run.bbr.on_lost(&run.window, &lost(1201), &run.cfg, run.now);
        assert_eq!((run.bbr.mode, run.bbr.inflight_longterm), (Mode::Down, u64::MAX));
    }

    /// Case 10.9: a tenth less bandwidth keeps more in flight than the path holds. After two to three seconds (section
    /// 5.3.3.8.2) ProbeBW_DOWN ends without ProbeBW_CRUISE.
    #[test]
    fn probe_down_ends_after_its_time_if_the_queue_does_not_drain() {
        let mut run = Run::probing();
        while run.bbr.mode == Mode::Up {
            run.ack_in_flight(100, true, 120_000);
        }
        let begin = run.now;
        run.wait(0);
        run.sample.rate = Some(Rate::from_bps(8 * MBPS / 10 * 9));
        while run.bbr.mode == Mode::Down {
            run.ack_in_flight(10, false, 120_000);
        }
        let waited = (run.now - begin).as_secs_f64();
        assert_eq!(run.bbr.mode, Mode::Refill);
        assert!((2.0..3.02).contains(&waited), "{waited} s");
    }

    /// Case 10.22: samples of a sender that pauses during ProbeBW_REFILL leave the bandwidth as it is, and the probe after it
    /// finds another.
    #[test]
    fn a_pause_during_refill_does_not_lower_the_bandwidth() {
        let mut run = Run::steady();
        run.ack_in_flight(100, true, 100_000);
        run.ack_in_flight(3000, true, 100_000);
        assert_eq!(run.bbr.mode, Mode::Refill);
        (run.sample.app_limited, run.sample.rate) = (true, Some(Rate::from_bps(2 * MBPS)));
        run.ack_in_flight(50, false, 10_000);
        run.ack_in_flight(50, true, 10_000);
        assert_eq!((run.bbr.mode, run.bbr.max_bw.as_bps()), (Mode::Up, 8 * MBPS));
        (run.sample.app_limited, run.sample.rate) = (false, Some(Rate::from_bps(10 * MBPS)));
        run.ack_in_flight(100, true, 120_000);
        assert_eq!((run.bbr.mode, run.bbr.max_bw.as_bps()), (Mode::Up, 10 * MBPS));
        let rounds = (1..).find(|_| {
            run.ack_in_flight(100, true, 120_000);
            run.bbr.mode == Mode::Down
        });
        assert_eq!(rounds, Some(3), "of growth below a quarter");
    }

    /// Section 5.5.10.3: after a round with a loss, the bounds are the latest delivery, at least 0.7 of what they were.
    #[test]
    fn losses_outside_a_probe_reduce_the_short_term_bounds() {
        let mut run = Run::steady();
        run.ack_in_flight(1, false, 100_000);
        run.ack_in_flight(100, true, 90_000);
        assert_eq!(run.bbr.mode, Mode::Cruise);
        run.lose(100_000, 1000);
        run.sample.rate = Some(Rate::from_bps(6 * MBPS));
        run.sample.interval_delivered = 90_000;
        run.ack_in_flight(50, false, 90_000);
        assert_eq!(run.bbr.bw_shortterm, INFINITE_RATE);
        run.sample.rate = Some(Rate::from_bps(5 * MBPS));
        let window = run.window.cwnd;
        run.ack_in_flight(100, true, 90_000);
        // bw_latest is still 8 Mbit/s, of the round before the loss.
        assert_eq!(run.bbr.bw.as_bps(), 8 * MBPS);
        assert_eq!(run.bbr.inflight_shortterm, (0.7 * window as f64) as u64);
        run.lose(100_000, 1000);
        run.ack_in_flight(100, true, 90_000);
        // 0.7 times 8 is more than 5.
        assert_eq!(run.bbr.bw.as_bps(), 5_600_000);
        assert_eq!(run.bbr.pacing_rate.as_bps(), (0.99 * 5_600_000.0) as u64);
        let least = (0.7 * (0.7 * window as f64)) as u64;
        assert_eq!(run.bbr.inflight_shortterm, least.max(90_000));
        assert!(run.window.cwnd <= run.bbr.inflight_shortterm);
        run.lose(100_000, 1000);
        run.ack_in_flight(100, true, 90_000);
        // 0.7 times 5.6 is not.
        assert_eq!(run.bbr.bw.as_bps(), 5 * MBPS);
        // A probe forgets them.
        run.wait(3000);
        run.ack_in_flight(0, false, 60_000);
        assert_eq!((run.bbr.mode, run.bbr.bw.as_bps()), (Mode::Refill, 8 * MBPS));
    }

    /// Section 5.5.10.3: losses in Startup and in a probe, here below 2 %, leave the short-term bounds.
    #[test]
    fn losses_of_a_probe_leave_the_short_term_bounds() {
        for (mut run, mode) in [(Run::new(), Mode::Startup), (Run::probing(), Mode::Up)] {
            run.ack_in_flight(100, true, 100_000);
            run.lose(100_000, 1000);
            run.ack_in_flight(100, true, 120_000);
            assert_eq!((run.bbr.mode, run.bbr.is_loss_in_round), (mode, false));
            assert_eq!((run.bbr.bw_shortterm, run.bbr.inflight_shortterm), (INFINITE_RATE, u64::MAX));
        }
    }

    /// Section 3.7: a mark in a round acts as a loss.
    #[test]
    fn a_mark_counts_as_congestion() {
        let mut run = Run::steady();
        run.ack_in_flight(1, false, 100_000);
        run.bbr.on_congestion_mark(&run.window);
        run.ack_in_flight(100, true, 100_000);
        assert!(run.bbr.bw_shortterm < INFINITE_RATE);
        let mut run = Run::probing();
        run.bbr.on_congestion_mark(&run.window);
        run.ack_in_flight(1, false, 120_000);
        assert_eq!((run.bbr.mode, run.bbr.inflight_longterm), (Mode::Down, 100_000));
        let mut run = Run::new();
        run.ack_in_flight(100, true, 50_000);
        run.bbr.on_congestion_mark(&run.window);
        run.ack_in_flight(100, true, 150_000);
        assert_eq!(run.bbr.mode, Mode::Drain);
    }

    /// Sections 5.5.1 and 5.5.10.3: an ACK that delivers nothing begins no round, not even the first.
    #[test]
    fn an_ack_that_delivers_nothing_begins_no_round() {
        let mut run = Run::new();
        for (interval_delivered, begins) in [(0, false), (1000, true)] {
            run.sample.interval_delivered = interval_delivered;
            run.bbr.update_latest_delivery_signals(&run.sample);
            run.bbr.update_max_bw(&run.sample);
            assert_eq!((run.bbr.round_start, run.bbr.loss_round_start), (begins, begins));
        }
    }

    /// Section 5.5.5: a sample of an application with too little to send counts for this cycle if it is not below the maximum,
    /// here of 8 Mbit/s in the cycle before.
    #[test]
    fn application_limited_samples_below_the_maximum_do_not_count() {
        for (mbps, app_limited, sampled) in [(2, true, 0), (8, true, 8), (9, true, 9), (2, false, 2)] {
            let mut run = Run::steady();
            run.bbr.advance_max_bw_filter();
            (run.sample.rate, run.sample.app_limited) = (Some(Rate::from_bps(mbps * MBPS)), app_limited);
            run.ack_in_flight(1, false, 100_000);
            assert_eq!(run.bbr.max_bw_filter[1], Rate::from_bps(sampled * MBPS));
        }
    }

    /// Section 2.2: the window of 100 000 bytes limits a sender if it has no room for another segment, at any time in this round
    /// or the previous one.
    #[test]
    fn a_full_window_limits_the_sender_for_two_rounds() {
        let mut run = Run::new();
        run.window.cwnd = 100_000;
        for (round_start, prior_in_flight, is_limited) in [
            (false, 99_000, false),
            (false, 99_001, true),
            (false, 0, true),
            (true, 0, true),
            (true, 0, false),
        ] {
            (run.bbr.round_start, run.sample.prior_in_flight) = (round_start, prior_in_flight);
            run.bbr.update_cwnd_limited(&run.window, &run.sample, &run.cfg);
            assert_eq!(run.bbr.is_cwnd_limited(), is_limited);
        }
    }

    /// Section 5.3.1.3: in Startup a round with losses or a mark ends it, if the losses are many, if there was a mark, or without
    /// SACK; not after a timeout. The bound is the larger of the bandwidth-delay product of 100 kB and the latest delivery.
    #[test]
    fn startup_ends_by_a_mark_or_a_loss_without_sack() {
        use LossState::{Loss, Open, Recovery};
        for (is_lossy, loss_state, is_marked, has_sack, latest, bound) in [
            (true, Recovery, false, false, 90_000, Some(100_000)),
            (true, Open, true, true, 150_000, Some(150_000)),
            (true, Recovery, false, true, 90_000, None),
            (true, Loss, true, false, 90_000, None),
            (false, Recovery, true, false, 90_000, None),
        ] {
            let mut run = Run::new();
            run.ack_in_flight(100, true, 100_000);
            (run.bbr.is_mark_in_round, run.bbr.inflight_latest) = (is_marked, latest);
            (run.sample.loss_state, run.sample.has_sack) = (loss_state, has_sack);
            run.bbr.check_startup_done(&run.sample, is_lossy);
            assert_eq!(
                (run.bbr.mode == Mode::Drain, run.bbr.full_bw_reached),
                (bound.is_some(), bound.is_some())
            );
            assert_eq!(run.bbr.inflight_longterm, bound.unwrap_or(u64::MAX));
        }
    }

    /// Section 5.5.10.2, NoteLoss(): the round of losses is that of the first loss in it.
    #[test]
    fn the_first_loss_begins_the_round_of_losses() {
        let mut run = Run::steady();
        for total in [500_000, 600_000] {
            run.sample.total = total;
            run.lose(100_000, 1000);
            assert_eq!((run.bbr.is_loss_in_round, run.bbr.loss_round_delivered), (true, 500_000));
        }
    }

    /// Without SACK, fast recovery of RFC 6582 shows a loss: it counts once as a loss of the round, and it ends a probe, at what
    /// was in flight.
    #[test]
    fn recovery_without_sack_counts_as_a_loss() {
        use LossState::{Open, Recovery};
        let mut run = Run::steady();
        run.sample.has_sack = false;
        run.ack_in_flight(1, false, 90_000);
        assert!(!run.bbr.is_loss_in_round);
        run.sample.loss_state = Recovery;
        for (round, is_loss) in [(false, true), (true, false), (false, false)] {
            run.ack_in_flight(1, round, 90_000);
            assert_eq!(run.bbr.is_loss_in_round, is_loss);
        }
        for (loss_state, has_sack, mode) in
            [(Recovery, false, Mode::Down), (Recovery, true, Mode::Up), (Open, false, Mode::Up)]
        {
            let mut run = Run::probing();
            (run.sample.loss_state, run.sample.has_sack) = (loss_state, has_sack);
            run.ack_in_flight(1, false, 120_000);
            let bound = if mode == Mode::Down { 100_000 } else { u64::MAX };
            assert_eq!((run.bbr.mode, run.bbr.inflight_longterm), (mode, bound));
        }
    }

    /// Section 5.6.4.4: the window is saved as it is, but in recovery and in ProbeRTT, which reduce it, the larger one is kept. It
    /// is restored with the ACK that ends recovery.
    #[test]
    fn the_window_before_recovery_is_restored() {
        use LossState::{Open, Recovery};
        for (loss_state, mode, cwnd, saved) in [
            (Open, Mode::Cruise, 50_000, 50_000),
            (Open, Mode::ProbeRtt, 50_000, 80_000),
            (Recovery, Mode::Cruise, 50_000, 80_000),
            (Recovery, Mode::Cruise, 90_000, 90_000),
        ] {
            let mut run = Run::steady();
            (run.bbr.loss_state, run.bbr.mode, run.bbr.prior_cwnd) = (loss_state, mode, 80_000);
            run.window.cwnd = cwnd;
            run.bbr.save_cwnd(&run.window);
            assert_eq!(run.bbr.prior_cwnd, saved);
        }
        for (before, after, cwnd) in [
            (Open, Open, 51_000),
            (Open, Recovery, 51_000),
            (Recovery, Recovery, 51_000),
            (Recovery, Open, 81_000),
        ] {
            let mut run = Run::steady();
            (run.bbr.loss_state, run.bbr.prior_cwnd, run.window.cwnd) = (before, 80_000, 50_000);
            run.sample.loss_state = after;
            run.ack_in_flight(1, false, 50_000);
            assert_eq!(run.window.cwnd, cwnd);
        }
    }

    /// Section 5.6.4.4: a loss saves the window, and a timeout after it keeps the saved one, though the transport has reduced the
    /// window to a segment by then.
    #[test]
    fn a_loss_saves_the_window_and_a_timeout_keeps_it() {
        let mut run = Run::steady();
        run.window.cwnd = 50_000;
        run.bbr.on_congestion(&mut run.window, 40_000, 1000, Instant::ZERO);
        assert_eq!((run.bbr.prior_cwnd, run.window.ssthresh()), (50_000, Some(50_000)));
        run.bbr.on_timeout(0, Instant::ZERO);
        run.window.cwnd = 1000;
        run.bbr.save_cwnd(&run.window);
        assert_eq!(run.bbr.prior_cwnd, 50_000);
    }

    /// Section 5.6.4.6, at 8 Mbit/s and 100 ms: up to twice 100 kB in Startup, and beyond it while less than the initial window is
    /// delivered. With a full pipe what aggregation adds counts as well; ProbeBW_UP has a gain of 2.25 and two segments more.
    /// Four segments are left, whatever the bounds are.
    #[test]
    fn the_window_follows_its_gain_within_bounds() {
        for (mode, shortterm, extra, cwnd, total, expected) in [
            (Mode::Startup, u64::MAX, 0, 199_999, 10_000, 200_999),
            (Mode::Startup, u64::MAX, 0, 200_000, 10_000, 200_000),
            (Mode::Startup, u64::MAX, 0, 200_001, 10_000, 200_001),
            (Mode::Startup, u64::MAX, 0, 200_000, 9999, 201_000),
            (Mode::Cruise, u64::MAX, 5000, 300_000, 10_000, 205_000),
            (Mode::Up, u64::MAX, 0, 300_000, 10_000, 227_000),
            (Mode::Cruise, 90_000, 0, 300_000, 10_000, 90_000),
            (Mode::Cruise, 1000, 0, 300_000, 10_000, 4000),
            (Mode::Cruise, u64::MAX, 0, 1000, 10_000, 4000),
        ] {
            let mut run = Run::new();
            (run.bbr.bw, run.bbr.min_rtt) = (Rate::from_bps(8 * MBPS), Duration::from_millis(100));
            (run.bbr.mode, run.bbr.full_bw_reached) = (mode, mode != Mode::Startup);
            (run.bbr.inflight_shortterm, run.bbr.extra_acked) = (shortterm, extra);
            (run.window.cwnd, run.sample.total) = (cwnd, total);
            run.bbr.set_cwnd(&mut run.window, &run.sample, &run.cfg);
            assert_eq!(run.window.cwnd, expected);
        }
        let mut run = Run::new();
        run.bbr.min_rtt = Duration::from_millis(100);
        for (bps, cwnd) in [(8 * MBPS, 50_000), (8000, 4000)] {
            run.bbr.bw = Rate::from_bps(bps);
            assert_eq!(run.bbr.probe_rtt_cwnd(&run.cfg), cwnd);
        }
    }

    /// Section 5.6.2: 2.77 times the initial window of 10 segments per RTT, or per 1 ms without a measurement. A model without a
    /// bandwidth leaves the rate as it is.
    #[test]
    fn pacing_begins_with_the_initial_window() {
        let mut run = Run::new();
        for (srtt, bps) in [(Some(Duration::from_millis(100)), 2_216_000), (None, 221_600_000)] {
            assert_eq!(run.bbr.pacing_rate(&run.window, srtt), Some(Rate::from_bps(bps)));
        }
        (run.bbr.pacing_rate, run.bbr.full_bw_reached) = (Rate::from_bps(MBPS), true);
        run.bbr.set_pacing_rate(1.0);
        assert_eq!(run.bbr.pacing_rate(&run.window, None), Some(Rate::from_bps(MBPS)));
    }

    /// Section 5.5.6: the maximum holds for the cycle in which it was measured and the next one.
    #[test]
    fn max_bw_is_forgotten_after_two_cycles() {
        let mut run = Run::steady();
        run.sample.rate = Some(Rate::from_bps(2 * MBPS));
        run.ack_in_flight(1, true, 100_000);
        assert_eq!(run.bbr.max_bw.as_bps(), 8 * MBPS);
        let mut cycles = 0;
        while run.bbr.max_bw.as_bps() == 8 * MBPS {
            cycles += u64::from(run.bbr.mode == Mode::Up);
            while run.bbr.mode == Mode::Up {
                run.ack_in_flight(100, true, 20_000);
            }
            run.ack_in_flight(100, true, 20_000);
        }
        assert_eq!((cycles, run.bbr.max_bw.as_bps()), (1, 2 * MBPS));
        // A cycle without a sample does not count.
        for _ in 0..3 {
            run.bbr.advance_max_bw_filter();
            assert_eq!(run.bbr.max_bw.as_bps(), 2 * MBPS);
        }
    }

    /// Section 5.3.4: the minimum RTT is 5 s old, so half of 100 kB is in flight for 200 ms and a round; then CRUISE.
    #[test]
    fn probe_rtt_starts_after_five_seconds() {
        let mut run = Run::steady();
        while run.bbr.mode != Mode::ProbeRtt {
            run.ack_in_flight(10, true, 100_000);
            let age = (run.now - run.bbr.probe_rtt_min_stamp).as_secs_f64();
            assert!(age <= 5.01, "{age} s");
        }
        assert_eq!(run.window.cwnd, 50_000);
        run.ack_in_flight(500, false, 50_001);
        run.ack_in_flight(10, false, 50_000);
        run.ack_in_flight(100, true, 50_000);
        assert!(run.ack(100, false));
        assert_eq!((run.bbr.mode, run.window.cwnd), (Mode::ProbeRtt, 50_000));
        run.ack_in_flight(1, false, 50_000);
        assert_eq!(run.bbr.mode, Mode::Cruise);
        assert!(run.window.cwnd > 150_000);
    }

    /// Section 5.3.4.3: the minimum RTT of 100 ms is that of 0 s and expires after more than 10 s, although 100 ms were
    /// measured again after 5.001 s. By then the minimum of the last 5 s is 150 ms. If it is 150 ms after 5.001 s already, that is
    /// when the 100 ms expire.
    #[test]
    fn min_rtt_is_forgotten_after_ten_seconds() {
        for steps in [
            &[(0, 100, 100), (5001, 100, 100), (10_000, 150, 100), (10_002, 150, 150), (10_003, 90, 90)][..],
            &[(0, 100, 100), (5001, 150, 100), (10_000, 150, 100), (10_001, 150, 150)],
        ] {
            let mut run = Run::new();
            let start = run.now;
            for &(ms, rtt, min_rtt) in steps {
                run.sample.rtt = Some(Duration::from_millis(rtt));
                run.bbr.update_min_rtt(&run.sample, start + Duration::from_millis(ms));
                assert_eq!(run.bbr.min_rtt, Duration::from_millis(min_rtt), "after {ms} ms");
            }
        }
    }

    /// Section 5.3.4.3: ProbeRTT is due more than 5 s after the minimum was measured, also if it was measured again.
    #[test]
    fn an_equal_rtt_does_not_postpone_probe_rtt() {
        let mut run = Run::new();
        let start = run.now;
        run.bbr.probe_rtt_min_stamp = start;
        for (ms, is_due) in [(0, false), (3000, false), (5000, false), (5001, true)] {
            run.bbr.update_min_rtt(&run.sample, start + Duration::from_millis(ms));
            assert_eq!(run.bbr.probe_rtt_expired, is_due, "after {ms} ms");
        }
    }

    /// Section 5.3.4.4: before the pipe was full, ProbeRTT returns to Startup.
    #[test]
    fn probe_rtt_in_startup_returns_to_startup() {
        let mut run = Run::new();
        run.sample.app_limited = true;
        for _ in 0..52 {
            run.ack_in_flight(100, true, 20_000);
        }
        assert_eq!(run.bbr.mode, Mode::ProbeRtt);
        for _ in 0..4 {
            run.ack_in_flight(100, true, 20_000);
        }
        assert_eq!(run.bbr.mode, Mode::Startup);
    }

    /// Section 5.4.1: an idle time has drained the queue. Pacing restarts at the estimated rate.
    #[test]
    fn a_restart_from_idle_skips_probe_rtt() {
        let mut run = Run::steady();
        run.ack_in_flight(10, false, 100_000);
        run.now += Duration::from_secs(6);
        run.bbr.on_restart(&mut run.window, &run.cfg, run.now);
        assert_eq!(run.bbr.pacing_rate.as_bps(), (0.99 * 8.0 * MBPS as f64) as u64);
        // An ACK that delivers nothing does not end the restart.
        run.sample.delivered = 0;
        run.ack_in_flight(100, true, 10_000);
        assert!(run.bbr.mode.is_probe_bw() && run.bbr.idle_restart);
        run.sample.delivered = 1000;
        run.ack_in_flight(100, true, 10_000);
        assert!(run.bbr.mode.is_probe_bw() && !run.bbr.idle_restart);
    }

    /// Section 5.4.1: an application that pauses in ProbeRTT ends it once its 200 ms have passed.
    #[test]
    fn a_restart_from_idle_ends_probe_rtt_after_its_time() {
        let mut run = Run::steady();
        (run.bbr.mode, run.bbr.probe_rtt_done) = (Mode::ProbeRtt, Some(run.now));
        run.bbr.on_restart(&mut run.window, &run.cfg, run.now);
        assert_eq!(run.bbr.mode, Mode::ProbeRtt);
        let later = run.now + Duration::from_millis(1);
        run.bbr.on_restart(&mut run.window, &run.cfg, later);
        assert_eq!(run.bbr.mode, Mode::Cruise);
    }

    /// Section 5.5.9: 1 MB/s for 10 ms are 10 kB expected; 30 kB acknowledged meanwhile exceed it by 20 kB.
    #[test]
    fn extra_acked_is_the_excess_over_the_rate() {
        let mut run = Run::steady();
        run.now += Duration::from_secs(2);
        run.sample.delivered = 0;
        for _ in 0..EXTRA_ACKED_ROUNDS + 1 {
            run.ack_in_flight(100, true, 100_000);
        }
        assert_eq!(run.bbr.extra_acked, 0);
        run.sample.delivered = 15_000;
        run.ack_in_flight(0, false, 100_000);
        assert_eq!(run.bbr.extra_acked, 15_000);
        run.ack_in_flight(10, false, 100_000);
        assert_eq!(run.bbr.extra_acked, 20_000);
        // The next ACK comes late, and ten rounds later the maximum is forgotten, or a round later before the pipe is full.
        let mut startup = run.bbr.clone();
        (startup.full_bw_reached, startup.round_count) = (false, startup.round_count + 1);
        let late = run.now + Duration::from_secs(1);
        startup.update_ack_aggregation(&run.window, &Sample { delivered: 1000, ..run.sample }, late);
        assert_eq!(startup.extra_acked, 1000);
        run.sample.delivered = 1000;
        for _ in 0..EXTRA_ACKED_ROUNDS - 1 {
            run.ack_in_flight(100, true, 100_000);
            assert_eq!(run.bbr.extra_acked, 20_000);
        }
        run.ack_in_flight(100, true, 100_000);
        assert_eq!(run.bbr.extra_acked, 1000);
    }

    /// Section 5.6.3: what the rate sends in 1 ms, from two segments to 64 KiB. Section 5.6.4.2: room for three of them. Section 5.6.4.3: four segments of window.
    #[test]
    fn quantum_and_window_have_bounds() {
        let mut run = Run::new();
        for (bps, quantum) in [(MBPS, 2000), (24 * MBPS, 3000), (10_000 * MBPS, 65_536)] {
            run.bbr.pacing_rate = Rate::from_bps(bps);
            assert_eq!(run.bbr.quantum(&run.cfg), quantum);
            assert_eq!(run.bbr.quantization_budget(1000, &run.cfg), 3 * quantum);
        }
        let mut run = Run::new();
        run.sample.rate = Some(Rate::from_bps(8000));
        for _ in 0..8 {
            run.wait(1000);
            run.ack_in_flight(0, true, 1000);
        }
        // Three quanta of two segments, and two segments more in ProbeBW_UP.
        assert!((4000..=8000).contains(&run.window.cwnd), "{}", run.window.cwnd);
    }

    /// Section 5.5.11.2: the bounds and the state of before the recovery return.
    #[test]
    fn a_spurious_recovery_is_undone() {
        let mut run = Run::probing();
        let window = run.window.cwnd;
        run.lose(150_000, 3001);
        run.sample.loss_state = LossState::Recovery;
        run.ack_in_flight(100, true, 100_000);
        assert_eq!(run.bbr.mode, Mode::Cruise);
        assert!(run.bbr.inflight_longterm < u64::MAX);
        run.bbr.on_spurious_timeout();
        run.sample.loss_state = LossState::Open;
        run.ack_in_flight(1, false, 100_000);
        assert_eq!((run.bbr.mode, run.bbr.inflight_longterm), (Mode::Refill, u64::MAX));
        assert_eq!((run.bbr.bw_shortterm, run.bbr.inflight_shortterm), (INFINITE_RATE, u64::MAX));
        assert!(run.window.cwnd >= window.min(200_000));
        let mut run = Run::new();
        run.ack_in_flight(100, true, 100_000);
        for _ in 0..6 {
            run.lose(100_000, 1000);
        }
        run.sample.lost_since = 6000;
        run.ack_in_flight(100, true, 150_000);
        assert_eq!(run.bbr.mode, Mode::Drain);
        run.bbr.on_spurious_timeout();
        run.ack_in_flight(1, false, 150_000);
        assert_eq!((run.bbr.mode, run.bbr.full_bw_reached), (Mode::Startup, false));
        // ProbeRTT ends first, and a probe that has begun again continues.
        for (undo_mode, mode, after) in [
            (Mode::Startup, Mode::ProbeRtt, Mode::ProbeRtt),
            (Mode::Startup, Mode::Cruise, Mode::Startup),
            (Mode::Up, Mode::ProbeRtt, Mode::ProbeRtt),
            (Mode::Up, Mode::Up, Mode::Up),
            (Mode::Up, Mode::Cruise, Mode::Refill),
        ] {
            let mut run = Run::steady();
            (run.bbr.undo_mode, run.bbr.mode) = (Some(undo_mode), mode);
            run.bbr.on_spurious_recovery(&mut run.window);
            assert_eq!((run.bbr.mode, run.bbr.undo_mode), (after, None));
            assert_eq!(run.bbr.full_bw_reached, undo_mode != Mode::Startup);
        }
    }
}
