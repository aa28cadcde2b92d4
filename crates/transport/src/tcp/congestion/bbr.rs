//! BBR, version 1 (draft-cardwell-iccrg-bbr-congestion-control-00): the window follows a model of the path.
//!
//! - `BtlBw`: maximum delivery rate of the last 10 RTTs, section 4.1.1; `RTprop`: minimum RTT of the last 10 s, section
//!   4.1.2;
//! - pacing: `pacing_gain BtlBw`, section 4.2.1; window: up to `cwnd_gain BtlBw RTprop` and three quanta, section
//!   4.2.3;
//! - Startup, gains 2/ln 2, until `BtlBw` grew by less than a quarter in three RTTs, section 4.3.2; Drain, inverse
//!   pacing gain, until no more than a window is in flight, section 4.3.3;
//! - ProbeBW, `cwnd_gain` 2: pacing gains 5/4, 3/4 and six times 1, for `RTprop` each, section 4.3.4;
//! - ProbeRTT: when `RTprop` is 10 s old, four segments for one RTT and at least 200 ms, section 4.3.5;
//! - losses: one RTT of packet conservation, then the window grows again; it is restored at the end of recovery,
//!   section 4.2.3.4. Marks are ignored.
//!
//! Departures: the first phase of ProbeBW is a hash of the time instead of a random number (section 4.3.4.3), so that
//! runs are reproducible and flows differ. Each segment is paced separately, not a quantum at a time.

use bentpipe_units::{Duration, Instant, Rate, mix};

use super::super::Config;
use super::super::delivery::{LossState, Sample};
use super::{Acked, Control, Window};

/// BBRHighGain, 2 / ln 2: the smallest gain that doubles the rate each RTT.
const HIGH_GAIN: f64 = 2.885_390_081_777_927;
/// BtlBwFilterLen [RTTs].
const ROUNDS: u64 = 10;
/// RTpropFilterLen.
const RT_PROP_LIFE: Duration = Duration::from_secs(10);
/// BBRMinPipeCwnd [segments].
const MIN_PIPE: u64 = 4;
const PROBE_RTT: Duration = Duration::from_millis(200);
/// pacing_gain_cycle of section 4.3.4.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    ProbeBw,
    ProbeRtt,
}

/// State of BBR, named as in the draft.
#[derive(Clone, Debug)]
pub(in crate::tcp) struct Bbr {
    mode: Mode,
    btl_bw: Rate,
    /// Maximum rate of each of the last rounds, with their numbers.
    filter: [(u64, Rate); ROUNDS as usize],
    round_count: u64,
    next_round_delivered: u64,
    round_start: bool,
    /// `MAX` before the first sample.
    rt_prop: Duration,
    rt_prop_stamp: Instant,
    pacing_gain: f64,
    cwnd_gain: f64,
    /// Zero before the first ACK.
    pacing_rate: Rate,
    filled_pipe: bool,
    full_bw: Rate,
    full_bw_count: u32,
    cycle_index: usize,
    cycle_stamp: Instant,
    /// Earliest end of ProbeRTT; `None` until few enough segments are in flight.
    probe_rtt_done: Option<Instant>,
    probe_rtt_round_done: bool,
    prior_cwnd: u64,
    packet_conservation: bool,
    /// Loss recovery state at the last ACK.
    loss_state: LossState,
    idle_restart: bool,
}

impl Default for Bbr {
    fn default() -> Self {
        Self {
            mode: Mode::Startup,
            btl_bw: Rate::default(),
            filter: [(0, Rate::default()); ROUNDS as usize],
            round_count: 0,
            next_round_delivered: 0,
            round_start: false,
            rt_prop: Duration::MAX,
            rt_prop_stamp: Instant::ZERO,
            pacing_gain: HIGH_GAIN,
            cwnd_gain: HIGH_GAIN,
            pacing_rate: Rate::default(),
            filled_pipe: false,
            full_bw: Rate::default(),
            full_bw_count: 0,
            cycle_index: 0,
            cycle_stamp: Instant::ZERO,
            probe_rtt_done: None,
            probe_rtt_round_done: false,
            prior_cwnd: 0,
            packet_conservation: false,
            loss_state: LossState::Open,
            idle_restart: false,
        }
    }
}

impl Bbr {
    /// BBRUpdateBtlBw() and BBRUpdateRound(), section 4.1.1.
    fn update_btl_bw(&mut self, sample: &Sample) {
        self.round_start = sample.delivered > 0 && sample.prior_delivered >= self.next_round_delivered;
        if self.round_start {
            self.next_round_delivered = sample.total;
            self.round_count += 1;
            self.packet_conservation = false;
        }
        let Some(rate) = sample.rate else { return };
        if rate >= self.btl_bw || !sample.app_limited {
            let round = self.round_count;
            let slot = &mut self.filter[(round % ROUNDS) as usize];
            *slot = (round, if slot.0 == round { slot.1.max(rate) } else { rate });
            let recent = self.filter.iter().filter(|entry| entry.0 + ROUNDS > round);
            self.btl_bw = recent.map(|entry| entry.1).max().unwrap_or_default();
        }
    }

    /// BBRInflight(), section 4.2.3.2 [bytes].
    fn inflight(&self, gain: f64, cfg: &Config) -> u64 {
        if self.rt_prop == Duration::MAX {
            return cfg.iw();
        }
        let bdp = self.btl_bw.bytes_per_sec() * self.rt_prop.as_secs_f64();
        (gain * bdp) as u64 + 3 * self.quantum(cfg)
    }

    /// BBRSetSendQuantum(), section 4.2.2 [bytes].
    fn quantum(&self, cfg: &Config) -> u64 {
        match self.pacing_rate.as_bps() {
            ..1_200_000 => cfg.smss(),
            1_200_000..24_000_000 => 2 * cfg.smss(),
            bps => (bps / 8 / 1000).min(64_000),
        }
    }

    /// BBRCheckCyclePhase(), section 4.3.4.
    fn check_cycle_phase(&mut self, sample: &Sample, cfg: &Config, now: Instant) {
        if self.mode != Mode::ProbeBw {
            return;
        }
        let full = now - self.cycle_stamp > self.rt_prop;
        let next = if self.pacing_gain > 1.0 {
            full && (sample.lost > 0 || sample.prior_in_flight >= self.inflight(self.pacing_gain, cfg))
        } else if self.pacing_gain < 1.0 {
            full || sample.prior_in_flight <= self.inflight(1.0, cfg)
        } else {
            full
        };
        if next {
            self.advance_cycle_phase(now);
        }
    }

    fn advance_cycle_phase(&mut self, now: Instant) {
        self.cycle_stamp = now;
        self.cycle_index = (self.cycle_index + 1) % CYCLE.len();
        self.pacing_gain = CYCLE[self.cycle_index];
    }

    fn enter_probe_bw(&mut self, now: Instant) {
        self.mode = Mode::ProbeBw;
        self.cwnd_gain = 2.0;
        // Any phase except 3/4, which drains the queue of the phase before.
        self.cycle_index = CYCLE.len() - 1 - (mix(now.as_nanos()) % 7) as usize;
        self.advance_cycle_phase(now);
    }

    /// BBRCheckFullPipe(), section 4.3.2.2.
    fn check_full_pipe(&mut self, sample: &Sample) {
        if self.filled_pipe || !self.round_start || sample.app_limited {
            return;
        }
        // BtlBw is still growing.
        if self.btl_bw.as_bps() as f64 >= 1.25 * self.full_bw.as_bps() as f64 {
            self.full_bw = self.btl_bw;
            self.full_bw_count = 0;
            return;
        }
        self.full_bw_count += 1;
        self.filled_pipe = self.full_bw_count >= 3;
    }

    /// BBRCheckDrain(), section 4.3.3.
    fn check_drain(&mut self, sample: &Sample, cfg: &Config, now: Instant) {
        if self.mode == Mode::Startup && self.filled_pipe {
            self.mode = Mode::Drain;
            self.pacing_gain = 1.0 / HIGH_GAIN;
            self.cwnd_gain = HIGH_GAIN;
        }
        if self.mode == Mode::Drain && sample.in_flight <= self.inflight(1.0, cfg) {
            self.enter_probe_bw(now);
        }
    }

    /// BBRUpdateRTprop() and BBRCheckProbeRTT(), sections 4.1.2 and 4.3.5. Returns true if samples must be marked as
    /// application-limited.
    fn check_probe_rtt(&mut self, window: &mut Window, sample: &Sample, cfg: &Config, now: Instant) -> bool {
        let known = self.rt_prop < Duration::MAX;
        let expired = known && now > self.rt_prop_stamp + RT_PROP_LIFE;
        if let Some(rtt) = sample.rtt.filter(|&rtt| rtt <= self.rt_prop || expired) {
            self.rt_prop = rtt;
            self.rt_prop_stamp = now;
        }
        if self.mode != Mode::ProbeRtt && expired && !self.idle_restart {
            self.save_cwnd(window);
            self.mode = Mode::ProbeRtt;
            self.pacing_gain = 1.0;
            self.cwnd_gain = 1.0;
            self.probe_rtt_done = None;
        }
        self.idle_restart = false;
        if self.mode != Mode::ProbeRtt {
            return false;
        }
        match self.probe_rtt_done {
            None if sample.in_flight <= MIN_PIPE * cfg.smss() => {
                self.probe_rtt_done = Some(now + PROBE_RTT);
                self.probe_rtt_round_done = false;
                self.next_round_delivered = sample.total;
            }
            None => {}
            Some(done) => {
                self.probe_rtt_round_done |= self.round_start;
                if self.probe_rtt_round_done && now > done {
                    self.rt_prop_stamp = now;
                    window.cwnd = window.cwnd.max(self.prior_cwnd);
                    if self.filled_pipe {
                        self.enter_probe_bw(now);
                    } else {
                        self.mode = Mode::Startup;
                        self.pacing_gain = HIGH_GAIN;
                        self.cwnd_gain = HIGH_GAIN;
                    }
                }
            }
        }
        true
    }

    /// BBRSaveCwnd(), section 4.2.3.3.
    fn save_cwnd(&mut self, window: &Window) {
        let is_current = self.loss_state == LossState::Open && self.mode != Mode::ProbeRtt;
        self.prior_cwnd = if is_current { window.cwnd } else { self.prior_cwnd.max(window.cwnd) };
    }

    /// BBRSetPacingRateWithGain(), section 4.2.1.
    fn set_pacing_rate(&mut self, gain: f64) {
        let rate = Rate::from_bps((gain * self.btl_bw.as_bps() as f64) as u64);
        if self.filled_pipe || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
    }

    /// BBRModulateCwndForRecovery(), section 4.2.3.4.
    fn modulate_for_recovery(&mut self, window: &mut Window, sample: &Sample, cfg: &Config) {
        if sample.lost > 0 {
            window.cwnd = window.cwnd.saturating_sub(sample.lost).max(cfg.smss());
        }
        let before = std::mem::replace(&mut self.loss_state, sample.loss_state);
        if sample.loss_state == LossState::Recovery && before != LossState::Recovery {
            // On entering fast recovery: for one RTT, no more is sent than is delivered.
            self.packet_conservation = true;
            self.next_round_delivered = sample.total;
            window.cwnd = sample.in_flight + sample.delivered.max(cfg.smss());
        } else if sample.loss_state == LossState::Open && before != LossState::Open {
            self.packet_conservation = false;
            window.cwnd = window.cwnd.max(self.prior_cwnd);
        }
        if self.packet_conservation {
            window.cwnd = window.cwnd.max(sample.in_flight + sample.delivered);
        }
    }

    /// BBRSetCwnd(), section 4.2.3.6.
    fn set_cwnd(&mut self, window: &mut Window, sample: &Sample, cfg: &Config) {
        let min_cwnd = MIN_PIPE * cfg.smss();
        let target = self.inflight(self.cwnd_gain, cfg);
        self.modulate_for_recovery(window, sample, cfg);
        if !self.packet_conservation {
            if self.filled_pipe {
                window.cwnd = (window.cwnd + sample.delivered).min(target);
            } else if window.cwnd < target || sample.total < cfg.iw() {
                window.cwnd += sample.delivered;
            }
            window.cwnd = window.cwnd.max(min_cwnd);
        }
        if self.mode == Mode::ProbeRtt {
            window.cwnd = window.cwnd.min(min_cwnd);
        }
    }
}

impl Control for Bbr {
    fn on_ack(&mut self, _window: &mut Window, _ack: &Acked, _smss: u64, _now: Instant) {}

    fn on_congestion(&mut self, window: &mut Window, _flight: u64, _smss: u64, _now: Instant) {
        self.save_cwnd(window);
        // Restored at the end of recovery, also if an ACK ends one recovery and starts the next.
        window.set_ssthresh(self.prior_cwnd);
    }

    /// BBRUpdateOnACK(), section 4.2.
    fn on_sample(
        &mut self,
        window: &mut Window,
        sample: &Sample,
        cfg: &Config,
        srtt: Option<Duration>,
        now: Instant,
    ) -> bool {
        if self.pacing_rate.as_bps() == 0 {
            // BBRInitPacingRate().
            self.pacing_rate = self.pacing_rate(window, srtt).unwrap_or_default();
        }
        self.update_btl_bw(sample);
        self.check_cycle_phase(sample, cfg, now);
        self.check_full_pipe(sample);
        self.check_drain(sample, cfg, now);
        let marked = self.check_probe_rtt(window, sample, cfg, now);
        self.set_pacing_rate(self.pacing_gain);
        self.set_cwnd(window, sample, cfg);
        marked
    }

    /// BBRHandleRestartFromIdle(), section 4.4.3.
    fn on_restart(&mut self, _window: &mut Window, _cfg: &Config, _now: Instant) {
        self.idle_restart = true;
        if self.mode == Mode::ProbeBw {
            self.set_pacing_rate(1.0);
        }
    }

    fn pacing_rate(&self, window: &Window, srtt: Option<Duration>) -> Option<Rate> {
        if self.pacing_rate.as_bps() > 0 {
            return Some(self.pacing_rate);
        }
        // BBRInitPacingRate(), section 4.2.1: the initial window per RTT, or per 1 ms without a measurement.
        let rtt = srtt.unwrap_or(Duration::from_millis(1)).as_secs_f64();
        // At least 1 bit/s, because with a rate of zero nothing would be sent.
        Some(Rate::from_bps(((HIGH_GAIN * window.cwnd as f64 * 8.0 / rtt) as u64).max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MBPS: u64 = 1_000_000;

    /// A connection with BBR, segments of 1000 bytes and an RTT of 100 ms, driven by samples.
    struct Run {
        bbr: Bbr,
        window: Window,
        cfg: Config,
        now: Instant,
        /// Of the latest ACK.
        sample: Sample,
    }

    /// An ACK of one segment without a measurement.
    const SAMPLE: Sample = Sample {
        delivered: 1000,
        lost: 0,
        total: 0,
        prior_delivered: 0,
        interval_delivered: 1000,
        tx_in_flight: 0,
        lost_since: 0,
        prior_in_flight: 0,
        in_flight: 0,
        rtt: None,
        rate: None,
        app_limited: false,
        loss_state: LossState::Open,
        has_sack: true,
    };

    impl Run {
        fn new() -> Self {
            let cfg = Config { mss: 1000, ..Config::default() };
            let window = Window::new(cfg.iw(), None);
            Self { bbr: Bbr::default(), window, cfg, now: Instant::ZERO, sample: SAMPLE }
        }

        /// After `ms`, an ACK of one segment at `rate`, if not zero, one RTT after the last if `round`. Returns true if samples
        /// must be marked as application-limited.
        fn ack(&mut self, ms: u64, rate: u64, round: bool, in_flight: u64) -> bool {
            self.now += Duration::from_millis(ms);
            let rtt_ms = if self.bbr.rt_prop == Duration::MAX { 100 } else { 101 };
            self.sample = Sample {
                total: self.sample.total + 1000,
                prior_delivered: if round { self.bbr.next_round_delivered } else { 0 },
                tx_in_flight: in_flight,
                prior_in_flight: in_flight,
                in_flight,
                rtt: Some(Duration::from_millis(rtt_ms)),
                rate: (rate > 0).then(|| Rate::from_bps(rate)),
                ..self.sample
            };
            let srtt = Some(Duration::from_millis(100));
            self.bbr.on_sample(&mut self.window, &self.sample, &self.cfg, srtt, self.now)
        }

        /// After Startup and Drain, at 8 Mbit/s: a bandwidth-delay product of 100 kB.
        fn steady() -> Self {
            let mut run = Self::new();
            for _ in 0..4 {
                run.ack(100, 8 * MBPS, true, 200_000);
            }
            assert_eq!(run.bbr.mode, Mode::Drain);
            run.ack(10, 8 * MBPS, false, 100_000);
            assert_eq!(run.bbr.mode, Mode::ProbeBw);
            run
        }
    }

    /// Section 4.3.2.2: 8 is a quarter more than 6.4; 9.9 is less than a quarter more than 8.
    #[test]
    fn startup_ends_after_three_round_trips_without_growth() {
        let mut run = Run::new();
        for rate in [1.0, 2.0, 4.0, 6.4, 8.0, 9.0, 9.9] {
            run.ack(100, (rate * MBPS as f64) as u64, true, 200_000);
            // ACKs within the round do not count.
            run.ack(1, MBPS, false, 200_000);
            run.ack(1, MBPS, false, 200_000);
            assert_eq!(run.bbr.mode, Mode::Startup);
            assert_eq!(run.bbr.pacing_gain, HIGH_GAIN);
        }
        run.ack(100, 9 * MBPS, true, 200_000);
        assert_eq!(run.bbr.mode, Mode::Drain);
        // The window is kept, the pacing rate is not.
        assert_eq!(run.bbr.cwnd_gain, HIGH_GAIN);
        assert_eq!(run.bbr.pacing_rate.as_bps(), (9.9 / HIGH_GAIN * MBPS as f64) as u64);
        // 9.9 Mbit/s times 100 ms is 123 750 bytes; at 3.4 Mbit/s a quantum is two segments, so 6000 more.
        run.ack(10, 9 * MBPS, false, 129_751);
        assert_eq!(run.bbr.mode, Mode::Drain);
        run.ack(10, 9 * MBPS, false, 129_750);
        assert_eq!(run.bbr.mode, Mode::ProbeBw);
    }

    #[test]
    fn acks_within_a_round_do_not_end_startup() {
        let mut run = Run::new();
        for _ in 0..10 {
            run.ack(100, MBPS, false, 1000);
        }
        assert_eq!(run.bbr.mode, Mode::Startup);
    }

    /// Section 4.2.1: the pacing rate is 2 / ln 2 times the initial window of 10 segments per RTT until the estimate exceeds it.
    #[test]
    fn startup_paces_at_the_initial_rate_at_least() {
        let mut run = Run::new();
        run.ack(100, MBPS / 2, true, 10_000);
        assert_eq!(run.bbr.pacing_rate.as_bps(), 2_308_312);
        run.ack(100, MBPS, true, 10_000);
        assert_eq!(run.bbr.pacing_rate.as_bps(), 2_885_390);
    }

    /// Section 4.3.2.2 with marked samples: rounds of an application with too little to send are no plateau.
    #[test]
    fn startup_lasts_while_the_application_limits_the_sender() {
        let mut run = Run::new();
        run.sample.app_limited = true;
        for _ in 0..10 {
            run.ack(100, MBPS, true, 10_000);
        }
        assert_eq!((run.bbr.mode, run.bbr.full_bw_count), (Mode::Startup, 0));
    }

    /// Section 4.2.3.6 before the pipe is full: at 8 Mbit/s and 100 ms the target is 2 / ln 2 times 100 kB, 288 539, and three
    /// quanta of a segment; a window of that size grows while less than the initial window is delivered.
    #[test]
    fn the_window_of_startup_grows_up_to_its_target() {
        for (cwnd, total, grown) in [
            (291_538, 10_000, 292_538),
            (291_539, 10_000, 291_539),
            (291_540, 10_000, 291_540),
            (291_539, 9999, 292_539),
        ] {
            let mut run = Run::new();
            run.bbr.btl_bw = Rate::from_bps(8 * MBPS);
            run.bbr.rt_prop = Duration::from_millis(100);
            run.window.cwnd = cwnd;
            run.bbr.set_cwnd(&mut run.window, &Sample { total, ..SAMPLE }, &run.cfg);
            assert_eq!(run.window.cwnd, grown, "{cwnd} with {total} delivered");
        }
    }

    /// Section 4.2.2: one segment below 1.2 Mbit/s, two below 24 Mbit/s, and then what leaves in 1 ms, up to 64 kB.
    #[test]
    fn quantum_follows_the_pacing_rate() {
        let mut run = Run::new();
        for (bps, quantum) in [
            (1_199_999, 1000),
            (1_200_000, 2000),
            (23_999_999, 2000),
            (24_000_000, 3000),
            (100 * MBPS, 12_500),
            (1000 * MBPS, 64_000),
        ] {
            run.bbr.pacing_rate = Rate::from_bps(bps);
            assert_eq!(run.bbr.quantum(&run.cfg), quantum, "{bps} bit/s");
        }
    }

    /// Section 4.3.4.3: any phase but 3/4, the second.
    #[test]
    fn probe_bw_begins_in_any_phase_but_that_of_three_quarters() {
        let mut bbr = Bbr::default();
        let begins = |ms| {
            bbr.enter_probe_bw(Instant::ZERO + Duration::from_millis(ms));
            assert_eq!(bbr.pacing_gain, CYCLE[bbr.cycle_index]);
            bbr.cycle_index
        };
        let phases: std::collections::BTreeSet<_> = (0..200).map(begins).collect();
        assert_eq!(phases.into_iter().collect::<Vec<_>>(), [0, 2, 3, 4, 5, 6, 7]);
    }

    /// Section 4.3.4: a loss ends the phase of 5/4 after RTprop = 100 ms, although less than 5/4 of the bandwidth-delay product
    /// is in flight.
    #[test]
    fn a_loss_ends_the_phase_that_probes() {
        let mut run = Run::steady();
        while run.bbr.cycle_index != 0 {
            run.ack(10, 8 * MBPS, false, 100_000);
        }
        run.sample.lost = 1000;
        for _ in 0..10 {
            run.ack(10, 8 * MBPS, false, 100_000);
            assert_eq!(run.bbr.pacing_gain, 1.25);
        }
        run.ack(10, 8 * MBPS, false, 100_000);
        assert_eq!(run.bbr.pacing_gain, 0.75);
    }

    /// Section 4.3.4: a phase lasts for more than RTprop = 100 ms, eleven ACKs at 10 ms; the phase of 5/4 until as much
    /// is in flight, the phase of 3/4 until the queue is drained.
    #[test]
    fn pacing_gain_cycles_through_eight_phases() {
        let mut run = Run::steady();
        while run.bbr.cycle_index != 7 {
            run.ack(10, 8 * MBPS, false, 100_000);
        }
        let mut phases = vec![(1.0, 0)];
        let mut acks = |in_flight: u64, count: u64| {
            for _ in 0..count {
                run.ack(10, 8 * MBPS, false, in_flight);
                let last = phases.last_mut().unwrap();
                if last.0 == run.bbr.pacing_gain {
                    last.1 += 1
                } else {
                    phases.push((run.bbr.pacing_gain, 1))
                }
            }
            (run.bbr.pacing_gain, run.bbr.pacing_rate.as_bps())
        };
        assert_eq!(acks(100_000, 11), (1.25, 10 * MBPS));
        // The target in flight is 125 000 and three quanta of two segments.
        assert_eq!(acks(130_999, 20), (1.25, 10 * MBPS));
        assert_eq!(acks(131_000, 1), (0.75, 6 * MBPS));
        assert_eq!(acks(106_001, 10), (0.75, 6 * MBPS));
        assert_eq!(acks(106_001, 1), (1.0, 8 * MBPS));
        assert_eq!(acks(90_000, 6 * 11 - 1), (1.0, 8 * MBPS));
        assert_eq!(acks(131_000, 1), (1.25, 10 * MBPS));
        assert_eq!(acks(131_000, 11), (0.75, 6 * MBPS));
        assert_eq!(acks(106_000, 1), (1.0, 8 * MBPS));
        assert_eq!(phases, [(1.0, 10), (1.25, 21), (0.75, 11), (1.0, 66), (1.25, 11), (0.75, 1), (1.0, 1)]);
        // Twice the bandwidth-delay product, and three quanta.
        assert!(run.window.cwnd <= 206_000);
    }

    /// Section 4.1.1: the maximum expires after ten RTTs.
    #[test]
    fn btl_bw_is_the_maximum_of_ten_round_trips() {
        let mut run = Run::steady();
        for _ in 0..9 {
            run.ack(100, 5 * MBPS, true, 100_000);
            assert_eq!(run.bbr.btl_bw.as_bps(), 8 * MBPS);
        }
        run.ack(100, 5 * MBPS, true, 100_000);
        assert_eq!(run.bbr.btl_bw.as_bps(), 5 * MBPS);
        // Rounds without a sample count as well.
        let mut run = Run::steady();
        for _ in 0..10 {
            run.ack(100, 0, true, 100_000);
        }
        run.ack(100, 5 * MBPS, true, 100_000);
        assert_eq!(run.bbr.btl_bw.as_bps(), 5 * MBPS);
    }

    /// Section 4.1.1: a sample of an application with too little to send counts if it is not below the estimate, which it
    /// confirms if it equals it. An ACK that delivers nothing begins no round.
    #[test]
    fn application_limited_samples_do_not_lower_btl_bw() {
        let mut run = Run::steady();
        run.sample.app_limited = true;
        for (rate, rounds, btl_bw) in [(5, 20, 8), (8, 1, 8), (9, 1, 9)] {
            for _ in 0..rounds {
                run.ack(100, rate * MBPS, true, 100_000);
                assert_eq!(run.bbr.btl_bw.as_bps(), btl_bw * MBPS);
            }
            assert!(rate < 8 || run.bbr.filter.contains(&(run.bbr.round_count, run.bbr.btl_bw)));
        }
        let mut bbr = Bbr::default();
        bbr.update_btl_bw(&Sample { delivered: 0, ..SAMPLE });
        assert!(!bbr.round_start && bbr.round_count == 0);
        bbr.update_btl_bw(&SAMPLE);
        assert!(bbr.round_start && bbr.round_count == 1);
    }

    /// Section 4.1.2: RTprop has not expired before its first sample, however late that is.
    #[test]
    fn the_first_rtt_does_not_start_probe_rtt() {
        let mut run = Run::new();
        run.now += Duration::from_secs(100);
        run.ack(100, MBPS, true, 10_000);
        assert_eq!((run.bbr.mode, run.bbr.rt_prop), (Mode::Startup, Duration::from_millis(100)));
    }

    /// Section 4.3.5: RTprop is 10 s old, so four segments are in flight for 200 ms and one RTT; then the window is
    /// restored.
    #[test]
    fn probe_rtt_starts_after_ten_seconds() {
        let mut run = Run::steady();
        // RTprop was measured at 100 ms.
        while run.now < Instant::ZERO + Duration::from_millis(10_100) {
            assert!(!run.ack(10, 8 * MBPS, true, 131_000));
        }
        assert_eq!((run.bbr.mode, run.bbr.rt_prop), (Mode::ProbeBw, Duration::from_millis(100)));
        let before = run.window.cwnd;
        assert_eq!(before, 206_000);
        assert!(run.ack(10, 8 * MBPS, false, 100_000), "marks samples");
        assert_eq!((run.bbr.mode, run.window.cwnd), (Mode::ProbeRtt, 4000));
        assert_eq!(run.bbr.rt_prop, Duration::from_millis(101));
        // Section 4.2.3.3: a loss does not replace the saved window by that of ProbeRTT.
        run.bbr.on_congestion(&mut run.window, 0, 1000, run.now);
        assert_eq!(run.window.ssthresh(), Some(before));
        // The 200 ms begin once at most four segments are in flight.
        run.ack(500, 8 * MBPS, false, 4001);
        run.ack(10, 8 * MBPS, false, 4000);
        run.ack(100, 8 * MBPS, true, 4000);
        run.ack(100, 8 * MBPS, false, 4000);
        assert_eq!((run.bbr.mode, run.window.cwnd), (Mode::ProbeRtt, 4000));
        run.ack(1, 8 * MBPS, false, 4000);
        // Includes the bytes delivered by this ACK.
        assert_eq!((run.bbr.mode, run.window.cwnd), (Mode::ProbeBw, before + 1000));
    }

    /// Section 4.2.3.4: for one RTT, as much is sent as is delivered; then the window grows again, and after recovery
    /// it is restored.
    #[test]
    fn recovery_begins_with_packet_conservation() {
        let mut run = Run::steady();
        for _ in 0..200 {
            run.ack(1, 8 * MBPS, false, 131_000);
        }
        assert_eq!(run.window.cwnd, 206_000);
        let mut sample = Sample {
            delivered: 0,
            lost: 1000,
            total: run.sample.total,
            prior_in_flight: 120_000,
            in_flight: 118_000,
            loss_state: LossState::Recovery,
            ..SAMPLE
        };
        run.bbr.on_congestion(&mut run.window, 0, 1000, run.now);
        let mut ack = |sample: &Sample| {
            run.bbr.on_sample(&mut run.window, sample, &run.cfg, None, run.now);
            run.window.cwnd
        };
        assert_eq!(ack(&sample), 119_000, "a segment more, although nothing was delivered");
        (sample.delivered, sample.lost) = (1000, 0);
        assert_eq!(ack(&sample), 119_000);
        (sample.in_flight, sample.delivered) = (119_000, 2000);
        assert_eq!(ack(&sample), 121_000);
        // The RTT is over.
        (sample.prior_delivered, sample.delivered) = (sample.total, 1000);
        assert_eq!(ack(&sample), 122_000);
        // More losses take away as much.
        (sample.prior_delivered, sample.lost) = (0, 5000);
        assert_eq!(ack(&sample), 118_000);
        sample.loss_state = LossState::Open;
        assert_eq!(ack(&sample), 206_000);
    }

    /// Section 4.2.3.3: a window already reduced is not saved. Section 4.2.3.4: after a timeout the window grows from the four
    /// segments that section 4.2.3.6 leaves, and is restored once everything sent before is acknowledged.
    #[test]
    fn a_timeout_restores_the_window_after_recovery() {
        let mut run = Run::steady();
        for _ in 0..200 {
            run.ack(1, 8 * MBPS, false, 131_000);
        }
        for loss_state in [LossState::Recovery, LossState::Loss] {
            run.bbr.on_congestion(&mut run.window, 0, 1000, run.now);
            assert_eq!(run.window.ssthresh(), Some(206_000));
            run.sample.loss_state = loss_state;
            run.window.cwnd = 1000;
            run.ack(1, 8 * MBPS, true, 2000);
        }
        assert_eq!(run.window.cwnd, 4000);
        run.ack(1, 8 * MBPS, false, 2000);
        assert_eq!(run.window.cwnd, 5000);
        run.sample.loss_state = LossState::Open;
        run.ack(1, 8 * MBPS, false, 2000);
        assert_eq!(run.window.cwnd, 206_000);
    }
}
