//! PIE, proportional integral controller enhanced: keeps the queueing delay near a target by random marks.
//!
//! RFC 8033. Every `T_UPDATE` the queueing delay is compared with its target and with its previous value, and the
//! probability changes by
//!
//! - `p = alpha (current_qdelay - QDELAY_REF) + beta (current_qdelay - qdelay_old)`
//! - `drop_prob += p / 2048`, or `p / 512`, `p / 128`, `p / 32`, `p / 8`, `p / 2`, `p`
//!
//! if `drop_prob` is below 1e-6, 1e-5, 1e-4, 0.001, 0.01, 0.1 or not (section 4.2): at a small probability few marks
//! reach many flows, and the same step would be too large. Arrivals are marked with this probability, except during the
//! first `MAX_BURST` of a congestion (section 4.4), while the delay is below half its target and the probability below
//! 0.2, and while no more than two packets wait (section 4.1). The delay is the sojourn time of the last departed
//! packet (`timestamp`), or the backlog divided by a departure rate measured in batches of `DQ_THRESHOLD` bytes
//! (`rate`; section 5.2).
//!
//! The options of section 5 are parameters. ECN packets are marked only while the probability is below `mark_ecnth`,
//! and dropped above it (5.1). PIE may be inactive until a share of the buffer is in use (`activate`; 5.3). Marks are
//! derandomized: none while the probabilities since the last one add up to less than 0.85, one for certain at 8.5
//! (`derandomize`; 5.4). From 0.1 on the probability grows by at most 0.02 per update (`cap`; 5.5).
//!
//! *Departures:* an empty queue has no delay, whatever the sojourn time of the last departed packet. Section 4.2 lets
//! the probability decay by 2 % per update while the delay is 0, as Linux does (by 1/64), the pseudo-code while it is below
//! half its target: `decay` chooses. The probability is per packet, not per byte. Linux's additional step of 0.02 for
//! delays above 250 ms is not in the RFC and not implemented; nor can the probability exceed 1, as there. `derandomize` and
//! `cap` are on and `activate` is off, as in Linux.
//!
//! *In a satellite gateway:* it marks ahead of the PEP by the delay of the transmit queue, and its target is a time, so
//! it needs no tuning to the link's rate, and follows a fading link. Its gains are designed for round trips up to about
//! 100 ms: those of the terrestrial side of a PEP. Over a satellite, without a PEP, the loop is several times slower
//! than they assume, and `alpha` and `beta` have to be smaller. With the marking method `window` set `mark_ecnth` to 1,
//! otherwise ECN packets are dropped although a window could have been cut.

use std::any::Any;

use bentpipe_units::{Duration, Instant, Rng};

use crate::descriptor::{Algorithm, Placement};
use crate::fluid::{Arrivals, FluidConfig, FluidModel, FluidVariant, Inputs};
use crate::{Aqm, Context, Ecn, Packet, Param, ParamError, Range, Tune, Unit, Values, Verdict};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "pie",
    title: "Proportional integral controller enhanced",
    source: "RFC 8033",
    params: PARAMS,
    presets: &[],
    placement: Placement::Anywhere,
    build: |values| Ok(Box::new(Pie::new(values))),
    fluid: Some(|values, given| Ok(Box::new(PieFluid::new(values, given)?))),
};

const PARAMS: &[Param] = &[
    TARGET,
    T_UPDATE,
    ALPHA,
    BETA,
    MAX_BURST,
    Param::name(
        "delay",
        &["timestamp", "rate"],
        "timestamp",
        "Measure of the delay: sojourn time of the last packet, or backlog over departure rate",
    )
    .symbol("current_qdelay")
    .origin("RFC 8033 section 4.3; Linux sch_pie"),
    Param::number("dq_threshold", Unit::Bytes, 16_384.0, Range::between(1.0, 1e9))
        .doc("Bytes of a measurement of the departure rate")
        .symbol("DQ_THRESHOLD")
        .origin("RFC 8033 section 5.2"),
    MARK_ECNTH,
    Param::number("activate", Unit::One, 0.0, Range::between(0.0, 1.0))
        .doc("Share of the buffer in use at which PIE becomes active; 0: always active")
        .origin("RFC 8033 section 5.3 has a third as an option; Linux sch_pie has none")
        .tune(Tune::Linear(0.0, 0.5)),
    DERANDOMIZE,
    CAP,
    DECAY,
    MEAN_PACKET,
];

pub(crate) const TARGET: Param = Param::number("target", Unit::Seconds, 0.015, Range::above(0.0, 1e3))
    .doc("Target queueing delay")
    .symbol("QDELAY_REF")
    .origin("RFC 8033 section 4.2")
    .tune(Tune::Log(0.005, 0.2));
pub(crate) const T_UPDATE: Param = Param::number("t_update", Unit::Seconds, 0.015, Range::between(1e-6, 1e3))
    .doc("Time between updates of the probability")
    .symbol("T_UPDATE")
    .origin("RFC 8033 section 4.2");
pub(crate) const ALPHA: Param = Param::number("alpha", Unit::One, 0.125, Range::between(0.0, 1e3))
    .doc("Weight of the delay's distance from its target [1/s]")
    .symbol("α")
    .origin("RFC 8033 section 4.2")
    .tune(Tune::Log(0.01, 1.0));
pub(crate) const BETA: Param = Param::number("beta", Unit::One, 1.25, Range::between(0.0, 1e3))
    .doc("Weight of the delay's change [1/s]")
    .symbol("β")
    .origin("RFC 8033 section 4.2")
    .tune(Tune::Log(0.1, 10.0));
pub(crate) const MAX_BURST: Param = Param::number("max_burst", Unit::Seconds, 0.15, Range::between(0.0, 1e3))
    .doc("Duration of a congestion before packets are marked")
    .symbol("MAX_BURST")
    .origin("RFC 8033 section 4.4")
    .tune(Tune::Linear(0.0, 0.5));
pub(crate) const MARK_ECNTH: Param = Param::number("mark_ecnth", Unit::One, 0.1, Range::between(0.0, 1.0))
    .doc("Probability from which ECN packets are dropped instead of marked; 1: only at probability 1")
    .origin("RFC 8033 section 5.1");
pub(crate) const DERANDOMIZE: Param =
    Param::flag("derandomize", true, "Keep marks from clustering and from long absence")
        .origin("RFC 8033 section 5.4; Linux sch_pie");
pub(crate) const CAP: Param =
    Param::flag("cap", true, "Limit the growth of a probability from 0.1 on to 0.02 per update")
        .origin("RFC 8033 section 5.5; Linux sch_pie");
pub(crate) const DECAY: Param = Param::name(
    "decay",
    &["low", "empty"],
    "low",
    "Delays, two in a row, after which the probability decays by 2 % per update: below half of the target, or zero",
)
.origin("RFC 8033 appendix A; section 4.2, Linux sch_pie and ns-3 have `empty`");
pub(crate) const MEAN_PACKET: Param =
    Param::from_link("mean_packet", Unit::Bytes, Range::above(0.0, 65_535.0), |link| link.mean_packet)
        .default_doc("the link's mean packet")
        .doc("Mean length of a packet; a queue of two packets is never marked")
        .symbol("MEAN_PKTSIZE")
        .origin("RFC 8033 section 4.1");

/// PIE's parameters; one set for all queues of a scheduler.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    target: f64,
    pub every: Duration,
    alpha: f64,
    beta: f64,
    max_burst: Duration,
    mark_ecnth: f64,
    derandomize: bool,
    cap: bool,
    decays_when_empty: bool,
    /// Backlog that is never marked [bytes].
    unmarked: u64,
}

impl Rules {
    pub(crate) fn new(v: &Values) -> Self {
        Self {
            target: v.number("target"),
            every: Duration::from_secs_f64(v.number("t_update")).max(Duration::from_nanos(1)),
            alpha: v.number("alpha"),
            beta: v.number("beta"),
            max_burst: Duration::from_secs_f64(v.number("max_burst")),
            mark_ecnth: v.number("mark_ecnth"),
            derandomize: v.flag("derandomize"),
            cap: v.flag("cap"),
            decays_when_empty: v.name("decay") == "empty",
            unmarked: (2.0 * v.number("mean_packet")) as u64,
        }
    }

    /// Returns true if a delay is no congestion.
    fn low(&self, delay: f64) -> bool {
        delay < self.target / 2.0
    }
}

/// A queue's probability and its inputs, with the RFC's names; delays in seconds.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    pub drop_prob: f64,
    accu_prob: f64,
    pub current_qdelay: f64,
    qdelay_old: f64,
    pub burst_allowance: Duration,
}

impl Control {
    pub(crate) fn new(rules: &Rules) -> Self {
        let burst_allowance = rules.max_burst;
        Self { drop_prob: 0.0, accu_prob: 0.0, current_qdelay: 0.0, qdelay_old: 0.0, burst_allowance }
    }

    /// RFC 8033, section 4.1 and appendix: decides about an arrival that finds `bytes` waiting.
    pub(crate) fn decide(&mut self, pkt: &Packet, bytes: u64, rules: &Rules, rng: &mut Rng) -> Verdict {
        let marked = self.burst_allowance.is_zero() && self.drop_early(bytes, rules, rng);
        // Section 4.4: the allowance is renewed after congestion.
        if self.drop_prob == 0.0 && rules.low(self.current_qdelay) && rules.low(self.qdelay_old) {
            self.burst_allowance = rules.max_burst;
        }
        match marked {
            false => Verdict::Pass,
            // Section 5.1.
            true if pkt.ecn != Ecn::NotEct && self.drop_prob >= rules.mark_ecnth => Verdict::Drop,
            true => Verdict::Mark,
        }
    }

    fn drop_early(&mut self, bytes: u64, rules: &Rules, rng: &mut Rng) -> bool {
        if (rules.low(self.qdelay_old) && self.drop_prob < 0.2) || bytes <= rules.unmarked {
            return false;
        }
        // Section 5.4.
        let mut certain = false;
        if rules.derandomize {
            self.accu_prob = if self.drop_prob == 0.0 { 0.0 } else { self.accu_prob + self.drop_prob };
            if self.accu_prob < 0.85 {
                return false;
            }
            certain = self.accu_prob >= 8.5;
        }
        let marked = certain || rng.uniform() < self.drop_prob;
        if marked {
            self.accu_prob = 0.0;
        }
        marked
    }

    /// Takes note of a full queue.
    pub(crate) fn overflowed(&mut self) {
        self.accu_prob = 0.0;
    }

    /// Section 4.2: updates the probability, every `T_UPDATE`.
    pub(crate) fn update(&mut self, rules: &Rules) {
        let change = rules.alpha * (self.current_qdelay - rules.target)
            + rules.beta * (self.current_qdelay - self.qdelay_old);
        let mut change = change / damping(self.drop_prob);
        // Section 5.5.
        if rules.cap && self.drop_prob >= 0.1 {
            change = change.min(0.02);
        }
        self.drop_prob += change;
        let decays = |delay| if rules.decays_when_empty { delay == 0.0 } else { rules.low(delay) };
        if decays(self.current_qdelay) && decays(self.qdelay_old) {
            self.drop_prob *= 0.98;
        }
        self.drop_prob = self.drop_prob.clamp(0.0, 1.0);
        // Section 4.4.
        self.burst_allowance = self.burst_allowance.saturating_sub(rules.every);
        self.qdelay_old = self.current_qdelay;
    }

    /// Returns true if updates would not change the initial state while nothing waits.
    pub(crate) fn is_settled(&self) -> bool {
        self.drop_prob == 0.0 && self.current_qdelay == 0.0 && self.qdelay_old == 0.0
    }
}

/// Section 4.2: divisor of a step at a small probability.
fn damping(drop_prob: f64) -> f64 {
    match drop_prob {
        p if p < 0.000_001 => 2048.0,
        p if p < 0.000_01 => 512.0,
        p if p < 0.000_1 => 128.0,
        p if p < 0.001 => 32.0,
        p if p < 0.01 => 8.0,
        p if p < 0.1 => 2.0,
        _ => 1.0,
    }
}

/// PIE's state.
#[derive(Debug)]
pub struct Pie {
    rules: Rules,
    control: Control,
    next: Instant,
    /// Share of the buffer in use at which it becomes active.
    activate: f64,
    active: bool,
    /// `None` if the delay is the last packet's sojourn time.
    rate: Option<DepartureRate>,
}

/// Section 5.2.
#[derive(Debug)]
struct DepartureRate {
    /// [bytes].
    dq_threshold: u64,
    /// Start of the current measurement, and the bytes that have left since.
    measuring: Option<(Instant, u64)>,
    /// Mean time in which `dq_threshold` bytes leave [s]; 0 before the first measurement.
    avg_dq_time: f64,
}

impl DepartureRate {
    fn departed(&mut self, pkt: &Packet, cx: &Context<'_>) {
        if let Some((start, dq_count)) = &mut self.measuring {
            *dq_count += u64::from(pkt.len);
            if *dq_count >= self.dq_threshold {
                let (time, weight) = ((cx.now - *start).as_secs_f64(), self.dq_threshold as f64 / 65_536.0);
                let weight = if self.avg_dq_time == 0.0 { 1.0 } else { weight.min(1.0) };
                self.avg_dq_time += weight * (time - self.avg_dq_time);
                self.measuring = None;
            }
        }
        if self.measuring.is_none() && cx.queue.bytes >= self.dq_threshold {
            self.measuring = Some((cx.now, 0));
        }
    }
}

impl Pie {
    fn new(v: &Values) -> Self {
        let rules = Rules::new(v);
        let activate = v.number("activate");
        let rate = (v.name("delay") == "rate").then(|| DepartureRate {
            dq_threshold: (v.number("dq_threshold") as u64).max(1),
            measuring: None,
            avg_dq_time: 0.0,
        });
        Self {
            control: Control::new(&rules),
            next: Instant::ZERO + rules.every,
            active: activate == 0.0,
            rules,
            activate,
            rate,
        }
    }

    /// Section 5.3: becomes inactive after congestion, and active when a share of the buffer is in use.
    fn update_activity(&mut self, cx: &Context<'_>) {
        let (queue, limit) = (cx.queue, cx.queue.limit);
        let packets = f64::from(queue.packets) / f64::from(limit.packets);
        let bytes = queue.bytes as f64 / limit.bytes as f64;
        if self.active {
            self.active = !self.control.is_settled();
        } else if packets.max(bytes) >= self.activate {
            self.active = true;
            self.control = Control::new(&self.rules);
            if let Some(rate) = &mut self.rate {
                rate.avg_dq_time = 0.0;
                rate.measuring = Some((cx.now, 0));
            }
        }
    }
}

impl Aqm for Pie {
    fn arrive(&mut self, pkt: &Packet, cx: &mut Context<'_>) -> Verdict {
        let mut verdict = Verdict::Pass;
        if self.active {
            verdict = self.control.decide(pkt, cx.queue.bytes, &self.rules, cx.rng);
        }
        if self.activate > 0.0 {
            self.update_activity(cx);
        }
        verdict
    }

    fn depart(&mut self, pkt: &Packet, cx: &mut Context<'_>) -> Verdict {
        match &mut self.rate {
            Some(rate) => rate.departed(pkt, cx),
            None if cx.queue.packets == 0 => self.control.current_qdelay = 0.0,
            None => self.control.current_qdelay = (cx.now - pkt.arrival).as_secs_f64(),
        }
        Verdict::Pass
    }

    fn overflowed(&mut self, _pkt: &Packet, _cx: &mut Context<'_>) {
        self.control.overflowed();
    }

    fn wake_at(&self) -> Option<Instant> {
        Some(self.next)
    }

    fn wake(&mut self, cx: &mut Context<'_>) {
        self.next += self.rules.every;
        if !self.active {
            return;
        }
        if let Some(rate) = &self.rate {
            self.control.current_qdelay = cx.queue.bytes as f64 * rate.avg_dq_time / rate.dq_threshold as f64;
        } else if cx.queue.packets == 0 {
            self.control.current_qdelay = 0.0;
        }
        self.control.update(&self.rules);
    }

    fn resume(&mut self, previous: &mut dyn Any) -> bool {
        let Some(was) = previous.downcast_mut::<Self>() else { return false };
        self.next = was.next;
        self.active = was.active;
        self.control = was.control.clone();
        if let (Some(rate), Some(was)) = (&mut self.rate, &was.rate) {
            (rate.measuring, rate.avg_dq_time) = (was.measuring, was.avg_dq_time);
        }
        true
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("p", self.control.drop_prob);
        out("qdelay", self.control.current_qdelay);
        out("burst_allowance", self.control.burst_allowance.as_secs_f64());
        if let Some(rate) = &self.rate {
            out("avg_dq_time", rate.avg_dq_time);
        }
    }
}

/// PIE as a fluid. The delay is `d = q / C`, and there is an update per `T_UPDATE`, so with the damping of section 4.2
///
/// ```text
/// dp/dt = (alpha (d - QDELAY_REF) / T_UPDATE + beta dd/dt) / damping(p)
/// ```
///
/// with `cap` at most `0.02 / T_UPDATE` from 0.1 on, and with the decay `ln(0.98) p / T_UPDATE` while `d` is below half
/// its target. The burst allowance decreases by 1 s/s and is renewed while `p = 0` and `d` is below half its target;
/// nothing is marked until it is used up, while at most two packets wait, and while `d` is below half its target and
/// `p < 0.2`. Derived here. The marking function is `p`; the actual share with `derandomize` is [`share`]. Not
/// modelled: the age of the delay, with `timestamp` the sojourn time itself; `mark_ecnth`; and `activate`.
struct PieFluid {
    rules: Rules,
    unmarked: f64,
    share: fn(f64) -> f64,
}

impl PieFluid {
    fn new(v: &Values, given: &FluidConfig) -> Result<Self, ParamError> {
        let activate = v.number("activate");
        if activate > 0.0 {
            let problem = format!("found {activate}; allowed in a fluid model: 0");
            return Err(ParamError { name: "activate", problem });
        }
        let rules = Rules::new(v);
        let even = rules.derandomize && given.variant == FluidVariant::Actual;
        let unmarked = rules.unmarked as f64 / given.packet;
        Ok(Self { rules, unmarked, share: if even { share } else { |p| p } })
    }

    fn every(&self) -> f64 {
        self.rules.every.as_secs_f64()
    }
}

/// The share of packets that is marked at constant probability `p`, with derandomized marks.
///
/// After a mark the first `a - 1` packets are not marked, `a = ceil(0.85 / p)`; then each is marked with probability
/// `p`, up to the `b`-th, which is marked for certain, `b = ceil(8.5 / p)`. The mean distance is the sum over `k` of
/// the probability that none of the first `k` packets after a mark is marked, `a` times 1 and then powers of `1 - p` up
/// to the `b - a`-th:
///
/// ```text
/// a - 1 + (1 - (1 - p)^(b - a + 1)) / p
/// ```
///
/// For small `p` this is `(1.85 - e^-7.65) / p`, so the share is little more than half of `p`.
fn share(p: f64) -> f64 {
    if p < 1e-9 {
        return p / (1.85 - libm::exp(-7.65));
    }
    let (a, b) = ((0.85 / p).ceil(), (8.5 / p).ceil());
    1.0 / (a - 1.0 - libm::expm1((b - a + 1.0) * libm::log1p(-p)) / p)
}

impl FluidModel for PieFluid {
    fn states(&self) -> usize {
        2
    }

    fn start(&self, x: &mut [f64]) {
        x[1] = self.rules.max_burst.as_secs_f64();
    }

    fn mark(&self, x: &[f64], arrivals: &Arrivals) -> f64 {
        let p = x[0].clamp(0.0, 1.0);
        let low = self.rules.low(arrivals.q / arrivals.capacity.max(f64::MIN_POSITIVE)) && p < 0.2;
        // The allowance is used up in steps of T_UPDATE.
        let burst = x[1] > 0.5 * self.every();
        if burst || low || arrivals.q <= self.unmarked { 0.0 } else { (self.share)(p) }
    }

    fn derivatives(&self, x: &[f64], _p: f64, inputs: &Inputs, dx: &mut [f64]) {
        let (p, r, every) = (x[0].max(0.0), &self.rules, self.every());
        let capacity = inputs.capacity.max(f64::MIN_POSITIVE);
        let delay = inputs.q / capacity;
        let mut change = (r.alpha * (delay - r.target) / every + r.beta * inputs.dq / capacity) / damping(p);
        if r.cap && p >= 0.1 {
            change = change.min(0.02 / every);
        }
        if r.low(delay) {
            change += libm::log(0.98) / every * p;
        }
        dx[0] = inputs.within(x[0], change, 0.0, 1.0);
        let renewed = p < 1e-9 && r.low(delay);
        let allowed = if renewed { f64::INFINITY } else { -1.0 };
        dx[1] = inputs.within(x[1], allowed, 0.0, r.max_burst.as_secs_f64());
    }

    fn probe(&self, x: &[f64], out: &mut dyn FnMut(&'static str, f64)) {
        out("p", x[0]);
        out("burst_allowance", x[1]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::steps::{INPUTS, Steps, derivatives, fluid, fluid_probes, start};
    use super::*;
    use crate::{FlowId, Value};

    /// By hand. At 1 every packet is marked. At 1/2 one packet is skipped, and the 17th is certain: 1 + 2 (1 - 1/2^16).
    /// At 1/10 eight are skipped and the 85th is certain: 8 + 10 (1 - (9/10)^77).
    #[test]
    fn share_of_derandomized_marks() {
        let power: f64 = (0..77).map(|_| 0.9).product();
        for (p, gap) in
            [(1.0, 1.0), (0.5, 1.0 + 2.0 * (1.0 - 1.0 / 65_536.0)), (0.1, 8.0 + 10.0 * (1.0 - power))]
        {
            assert!((share(p) * gap - 1.0).abs() < 1e-12, "{p}: {}", 1.0 / share(p));
        }
        assert_eq!(share(0.0), 0.0);
        assert!((share(1e-8) / share(0.9e-9) / (10.0 / 0.9) - 1.0).abs() < 1e-6, "the two pieces meet");
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-12 + 1e-9 * b.abs()
    }

    /// A packet with this sojourn time leaves, and others wait.
    fn delay(pie: &mut Steps, us: u64, wait: u64) {
        (pie.state.packets, pie.state.bytes) = (100, 100_000);
        pie.depart(us, us - wait, 1000);
    }

    /// RFC 8033, section 4.2: QDELAY_REF = T_UPDATE = 15 ms, alpha = 1/8, beta = 1 1/4; section 4.4: MAX_BURST = 150 ms.
    #[test]
    fn defaults_are_the_rfcs_constants() {
        let default = |name: &str| match PARAMS.iter().find(|p| p.name == name).map(|p| p.default) {
            Some(crate::Default::Is(Value::Number(x))) => x,
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(
            ["target", "t_update", "alpha", "beta", "max_burst", "mark_ecnth"].map(default),
            [0.015, 0.015, 1.0 / 8.0, 1.0 + 1.0 / 4.0, 0.15, 0.1]
        );
        // Section 5.2: 2^14 bytes.
        assert_eq!(default("dq_threshold"), f64::from(1 << 14));
    }

    /// Section 4.2's table, below and at each of its thresholds.
    #[test]
    fn small_probabilities_have_small_steps() {
        let table = [
            (0.0, 2048.0),
            (0.000_000_999, 2048.0),
            (0.000_001, 512.0),
            (0.000_009_99, 512.0),
            (0.000_01, 128.0),
            (0.000_099_9, 128.0),
            (0.000_1, 32.0),
            (0.000_999, 32.0),
            (0.001, 8.0),
            (0.009_99, 8.0),
            (0.01, 2.0),
            (0.099_9, 2.0),
            (0.1, 1.0),
            (1.0, 1.0),
        ];
        for (p, expected) in table {
            assert_eq!(damping(p), expected, "at {p}");
        }
    }

    /// The pseudo-code with its defaults, worked out by hand. The delay is that of the last packet to leave before an
    /// update; the steps are a (q - 0.015) / 8 + 1.25 (q - q_old), damped.
    ///
    /// | q [ms] | undamped | damping | `drop_prob` |
    /// |---|---|---|---|
    /// | 35 | 0.0025 + 0.04375 | 2048 | 0.04625 / 2048 = 2.2583e-5 |
    /// | 35 | 0.0025 | 128 | + 0.0025 / 128 = 4.2114e-5 |
    /// | 835 | 0.1025 + 1 | 128 | + 1.1025 / 128 = 8.65539e-3 |
    /// | 1635 | 0.2025 + 1 | 8 | + 1.2025 / 8 = 0.158968 |
    /// | 2435 | 0.3025 + 1 | 1 | + 0.02 (the cap) = 0.178968 |
    /// | 5 | -0.00125 - 3.0375 | 1 | below 0: 0 |
    /// | 5 | -0.00125 | 2048 | 0 |
    #[test]
    fn updates_follow_the_pseudo_code() {
        let mut pie = Steps::new(&ALGORITHM, &[]);
        let first = 0.046_25 / 2048.0;
        let second = first + 0.0025 / 128.0;
        let third = second + 1.1025 / 128.0;
        let fourth = third + 1.2025 / 8.0;
        let table = [
            (35, first),
            (35, second),
            (835, third),
            (1635, fourth),
            (2435, fourth + 0.02),
            (5, 0.0),
            (5, 0.0),
        ];
        for (i, (ms, p)) in table.into_iter().enumerate() {
            let tick = 15_000 * (i as u64 + 1);
            delay(&mut pie, 3_000_000 + tick, ms * 1000);
            assert_eq!(pie.wake(), tick);
            assert!(close(pie.probe("p"), p), "{} is not {p} at {ms} ms", pie.probe("p"));
        }
    }

    /// Without the cap the fifth step is 0.3025 + 1, and the probability reaches 1.
    #[test]
    fn steps_are_unlimited_without_the_cap() {
        let mut pie = Steps::new(&ALGORITHM, &[("cap", Value::Flag(false))]);
        for (i, ms) in [35, 35, 835, 1635, 2435].into_iter().enumerate() {
            delay(&mut pie, 3_000_000 + 15_000 * i as u64, ms * 1000);
            pie.wake();
        }
        assert_eq!(pie.probe("p"), 1.0);
    }

    /// With alpha alone, a delay of 5 ms reduces it by (0.015 - 0.005) / 8 = 0.00125, halved below 0.1; from the second
    /// update on also by 2 %, because the previous delay has to be low too.
    #[test]
    fn probability_decays_after_two_low_delays() {
        let given = [("beta", Value::Number(0.0))];
        let mut pie = Steps::new(&ALGORITHM, &given);
        // alpha alone: 0.125 (q - 0.015) / 2048 with q = 1000.015 s is 125 / 2048.
        delay(&mut pie, 2_000_000_000, 1_000_015_000);
        pie.wake();
        let p = 125.0 / 2048.0;
        assert!(close(pie.probe("p"), p));
        delay(&mut pie, 2_000_015_000, 5_000);
        pie.wake();
        let p = p - 0.001_25 / 2.0;
        assert!(close(pie.probe("p"), p));
        delay(&mut pie, 2_000_030_000, 5_000);
        pie.wake();
        assert!(close(pie.probe("p"), 0.98 * (p - 0.001_25 / 2.0)), "{}", pie.probe("p"));
    }

    /// As above, but a delay of 5 ms is no empty queue: decay begins with the second delay of zero.
    #[test]
    fn probability_can_decay_in_empty_queues_only() {
        let given = [("beta", Value::Number(0.0)), ("decay", Value::Name("empty"))];
        let mut pie = Steps::new(&ALGORITHM, &given);
        delay(&mut pie, 2_000_000_000, 1_000_015_000);
        pie.wake();
        let mut p = 125.0 / 2048.0;
        for (i, (us, falls, factor)) in
            [(5000, 0.01, 1.0), (5000, 0.01, 1.0), (0, 0.015, 1.0), (0, 0.015, 0.98)].into_iter().enumerate()
        {
            delay(&mut pie, 2_000_015_000 + 15_000 * i as u64, us);
            pie.wake();
            p = factor * (p - 0.125 * falls / 2.0);
            assert!(close(pie.probe("p"), p), "{i}: {} is not {p}", pie.probe("p"));
        }
    }

    /// Section 4.4: nothing is marked for 150 ms, ten updates; the allowance is renewed at a probability of 0 and two
    /// low delays.
    #[test]
    fn burst_passes_without_marks() {
        let given = [("alpha", 1000.0), ("beta", 0.0)].map(|(name, x)| (name, Value::Number(x)));
        let mut pie = Steps::new(&ALGORITHM, &given);
        for i in 0..10 {
            delay(&mut pie, 100_000_000 + i * 15_000, 10_015_000);
            assert_eq!(pie.arrive(100_000_000 + i * 15_000, 1000), Verdict::Pass, "update {i}");
            pie.wake();
        }
        // A step of 1000 (10.015 - 0.015), damped to 10 000 / 2048 at first.
        assert_eq!(pie.probe("p"), 1.0);
        assert_eq!(pie.probe("burst_allowance"), 0.0);
        assert_eq!(pie.arrive(100_200_000, 1000), Verdict::Mark);
        for _ in 0..2 {
            delay(&mut pie, 100_300_000, 1_000);
            pie.wake();
        }
        assert_eq!((pie.probe("p"), pie.probe("burst_allowance")), (0.0, 0.0));
        assert_eq!(pie.arrive(100_400_000, 1000), Verdict::Pass);
        assert_eq!(pie.probe("burst_allowance"), 0.15);
    }

    /// A PIE with probability `p` and a used-up allowance: one update from alpha alone.
    fn at_probability(p: f64, given: &[(&'static str, Value)]) -> Steps {
        let wait = 1_000_015_000u64;
        let alpha = p * 2048.0 / 1000.0;
        let mut all = vec![
            ("alpha", Value::Number(alpha)),
            ("beta", Value::Number(0.0)),
            ("max_burst", Value::Number(0.0)),
        ];
        all.extend_from_slice(given);
        let mut pie = Steps::new(&ALGORITHM, &all);
        delay(&mut pie, 2_000_000_000, wait);
        pie.wake();
        assert!(close(pie.probe("p"), p), "{}", pie.probe("p"));
        pie
    }

    /// Section 5.4 at p = 0.05: the first 16 arrivals after a mark add up to 0.8 and pass; from the 17th on (0.85) each
    /// is marked with 0.05, and the 170th (8.5) for certain. So the mean distance is 16 plus the mean of a geometric
    /// distribution, 20 (cut at 154 draws: less than 0.01 of that). Without it the mean is 20 and neighbours may be
    /// marked.
    #[test]
    fn derandomized_marks_do_not_cluster() {
        for (derandomize, least, mean) in [(true, 17, 36.0), (false, 1, 20.0)] {
            let mut pie = at_probability(0.05, &[("derandomize", Value::Flag(derandomize))]);
            let marks: Vec<u64> =
                (0..200_000).filter(|i| pie.arrive(2_000_000_001 + i, 1000) == Verdict::Mark).collect();
            let gaps: Vec<u64> = marks.windows(2).map(|w| w[1] - w[0]).collect();
            let average = gaps.iter().sum::<u64>() as f64 / gaps.len() as f64;
            // The sum of 17 times 0.05 is 0.85 except for rounding, which may cost one packet more.
            assert!((least..=least + 1).contains(gaps.iter().min().unwrap()), "{derandomize}");
            assert!(gaps.iter().max().unwrap() <= &(if derandomize { 171 } else { 400 }));
            // Five standard errors of a geometric distribution with a standard deviation of 19.5.
            let error = 5.0 * 19.5 / (gaps.len() as f64).sqrt();
            assert!((average - mean).abs() < error + 1.0, "{derandomize}: {average} is not {mean}");
        }
    }

    /// A full buffer restarts the sum, as a mark does: at p = 0.5 one arrival after it adds up to 0.5 and passes,
    /// however often; without overflows, every second one is drawn for.
    #[test]
    fn overflow_restarts_the_sum() {
        for (overflows, passes) in [(true, true), (false, false)] {
            let mut pie = at_probability(0.5, &[]);
            let all_pass = (0..40).all(|i| {
                let verdict = pie.arrive(3_000_000_000 + i, 1000);
                if overflows {
                    pie.overflow(3_000_000_000 + i, 1000);
                }
                verdict == Verdict::Pass
            });
            assert_eq!(all_pass, passes);
        }
    }

    /// Section 4.1: two packets, or a low previous delay with a probability below 0.2, are not marked.
    #[test]
    fn short_queue_is_not_marked() {
        let mut pie = at_probability(0.99, &[("derandomize", Value::Flag(false))]);
        let marks = |pie: &mut Steps| {
            (0..100).filter(|i| pie.arrive(3_000_000_000 + i, 1000) != Verdict::Pass).count()
        };
        pie.state.bytes = 2000;
        assert_eq!(marks(&mut pie), 0);
        pie.state.bytes = 2001;
        assert!(marks(&mut pie) > 90);
        // 0.25 at a low delay is marked, 0.19 is not.
        for (p, marked) in [(0.25, true), (0.19, false)] {
            let mut pie = at_probability(p, &[("derandomize", Value::Flag(false))]);
            delay(&mut pie, 2_000_000_001, 7_499);
            pie.wake();
            assert_eq!(marks(&mut pie) > 0, marked, "{p}: {}", pie.probe("p"));
        }
    }

    /// Section 4.1, at the bounds themselves: half the target is no low delay, 0.2 no small probability, and a sum of 0.85
    /// enough for a draw. At half the target the allowance is not renewed either.
    #[test]
    fn bounds_belong_to_congestion() {
        let derandomize = |on| move |name: &str| (name == "derandomize").then_some(Value::Flag(on));
        let mut rng = Rng::stream(1, "pie", 0, "bounds");
        let mut verdicts = |on: bool, control: &Control| {
            let rules = Rules::new(&Values::resolve(PARAMS, &link(), &derandomize(on)).unwrap());
            let mut decide = |mut control: Control| {
                let verdict = control.decide(&Packet::new(1000, FlowId(0), 0), 100_000, &rules, &mut rng);
                (verdict == Verdict::Mark, control.burst_allowance)
            };
            (0..200).map(|_| decide(control.clone())).collect::<Vec<_>>()
        };
        let rules = Rules::new(&Values::resolve(PARAMS, &link(), &|_| None).unwrap());
        let half = rules.target / 2.0;
        let control = Control { burst_allowance: Duration::ZERO, ..Control::new(&rules) };
        for (on, drop_prob, delay) in [(false, 0.1, half), (false, 0.2, 0.0), (true, 0.85, half)] {
            let control = Control { drop_prob, qdelay_old: delay, ..control.clone() };
            assert!(verdicts(on, &control).iter().any(|(marked, _)| *marked), "{drop_prob} at {delay}");
        }
        let short = Control { current_qdelay: half, ..control.clone() };
        assert!(verdicts(true, &short).iter().all(|(_, allowance)| allowance.is_zero()));
        assert!(verdicts(true, &control).iter().all(|(_, allowance)| *allowance == rules.max_burst));
    }

    /// Section 5.1: below 10 % an ECN packet is marked, from there on it is dropped, whatever the marking method.
    #[test]
    fn large_probabilities_drop_ecn_packets() {
        for (p, ecn, verdict) in [
            (0.09, Ecn::Ect, Verdict::Mark),
            (0.1, Ecn::Ect, Verdict::Drop),
            (0.11, Ecn::Ect, Verdict::Drop),
            (0.11, Ecn::Ect1, Verdict::Drop),
            (0.11, Ecn::NotEct, Verdict::Mark),
        ] {
            let rules = Rules::new(&Values::resolve(PARAMS, &link(), &|_| None).unwrap());
            let mut control = Control { drop_prob: p, qdelay_old: 1.0, ..Control::new(&rules) };
            control.burst_allowance = Duration::ZERO;
            let (pkt, mut rng) =
                (Packet { ecn, ..Packet::new(1000, FlowId(0), 0) }, Rng::stream(1, "pie", 0, "test"));
            let all: Vec<_> = (0..1000).map(|_| control.decide(&pkt, 100_000, &rules, &mut rng)).collect();
            assert!(all.contains(&verdict), "{p} {ecn:?}");
            assert!(all.iter().all(|v| [Verdict::Pass, verdict].contains(v)), "{p} {ecn:?}");
        }
    }

    fn link() -> crate::Link {
        crate::Link { capacity: bentpipe_units::Rate::from_bps(8_000_000), mean_packet: 1000.0 }
    }

    /// Section 5.2 with 1000 bytes per millisecond: the first measurement begins at 0 with 20,000 bytes left and ends
    /// with the 17th packet after it (17,000 >= 16,384), 17 ms later. Then packets leave every 2 ms: 34 ms, with a
    /// weight of 2^14 / 2^16 = 1/4: 17 + 17/4 = 21.25 ms. With 30,000 bytes waiting the delay is 30,000 * 0.02125 /
    /// 16,384 = 38.91 ms.
    #[test]
    fn departure_rate_is_measured_in_batches() {
        let mut pie = Steps::new(&ALGORITHM, &[("delay", Value::Name("rate"))]);
        (pie.state.packets, pie.state.bytes) = (20, 20_000);
        pie.depart(1_000_000, 0, 1000);
        for ms in 1..=16 {
            pie.depart(1_000_000 + ms * 1000, 0, 1000);
            assert_eq!(pie.probe("avg_dq_time"), 0.0);
        }
        pie.depart(1_017_000, 0, 1000);
        assert!(close(pie.probe("avg_dq_time"), 0.017));
        for i in 1..=17 {
            pie.depart(1_017_000 + i * 2000, 0, 1000);
        }
        assert!(close(pie.probe("avg_dq_time"), 0.021_25));
        // Always active, PIE does not begin anew at an arrival: only `activate` does that.
        for us in 0..2 {
            pie.arrive(1_051_000 + us, 1000);
            assert!(close(pie.probe("avg_dq_time"), 0.021_25));
        }
        pie.state.bytes = 30_000;
        pie.wake();
        assert!(close(pie.probe("qdelay"), 30_000.0 * 0.021_25 / 16_384.0));
        // A short queue starts no measurement: 18 more packets, and the average is unchanged.
        pie.state.bytes = 16_383;
        for i in 1..=40 {
            pie.depart(2_000_000 + i * 10_000, 0, 1000);
        }
        let once = pie.probe("avg_dq_time");
        for i in 41..=80 {
            pie.depart(2_000_000 + i * 10_000, 0, 1000);
        }
        assert_eq!(pie.probe("avg_dq_time"), once);
    }

    /// Section 5.2: `>= DQ_THRESHOLD` both for the backlog that starts a measurement and for the bytes that end it. Two packets
    /// of 1000 bytes leave in 2 ms.
    #[test]
    fn batch_of_exactly_the_threshold_is_measured() {
        for (backlog, time) in [(2000, 0.002), (1999, 0.0)] {
            let given = [("delay", Value::Name("rate")), ("dq_threshold", Value::Number(2000.0))];
            let mut pie = Steps::new(&ALGORITHM, &given);
            (pie.state.packets, pie.state.bytes) = (2, backlog);
            for ms in 1000..=1002 {
                pie.depart(1000 * ms, 0, 1000);
            }
            assert!(close(pie.probe("avg_dq_time"), time), "{backlog}: {}", pie.probe("avg_dq_time"));
        }
    }

    /// A third of the buffer's bytes activates it as well, at exactly 100,000 of 300,000 bytes: then a long delay raises the
    /// probability.
    #[test]
    fn share_of_the_buffer_in_bytes_activates() {
        for (bytes, active) in [(99_999, false), (100_000, true)] {
            let mut pie = Steps::new(&ALGORITHM, &[("activate", Value::Number(1.0 / 3.0))]);
            (pie.state.packets, pie.state.bytes, pie.state.limit.bytes) = (100, bytes, 300_000);
            pie.arrive(1, 1000);
            pie.depart(20_000_000, 0, 1000);
            pie.wake();
            assert_eq!(pie.probe("p") > 0.0, active, "{bytes} bytes");
        }
    }

    /// Section 5.3 with a third of the buffer of 1000 packets: inactive at 333, active at 334, and inactive again once
    /// the probability and two delays are 0.
    #[test]
    fn inactive_until_the_buffer_fills() {
        let given = [("activate", Value::Number(1.0 / 3.0)), ("max_burst", Value::Number(0.0))];
        let mut pie = Steps::new(&ALGORITHM, &given);
        delay(&mut pie, 20_000_000, 10_000_000);
        pie.state.packets = 333;
        pie.arrive(20_000_000, 1000);
        pie.wake();
        assert_eq!(pie.probe("p"), 0.0);
        pie.state.packets = 334;
        pie.arrive(20_000_001, 1000);
        assert_eq!(pie.probe("qdelay"), 0.0, "the delay before it became active does not count");
        delay(&mut pie, 20_000_002, 10_000_000);
        pie.wake();
        assert!(pie.probe("p") > 0.0);
        (pie.state.packets, pie.state.bytes) = (0, 0);
        while pie.probe("p") > 0.0 {
            pie.wake();
        }
        pie.wake();
        pie.arrive(60_000_000, 1000);
        delay(&mut pie, 80_000_000, 10_000_000);
        pie.wake();
        assert_eq!(pie.probe("p"), 0.0);
    }

    /// An empty queue has no delay, though the last packet had a long sojourn time.
    #[test]
    fn empty_queue_has_no_delay() {
        let mut pie = Steps::new(&ALGORITHM, &[]);
        delay(&mut pie, 1_000_000, 500_000);
        assert_eq!(pie.probe("qdelay"), 0.5);
        (pie.state.packets, pie.state.bytes) = (0, 0);
        pie.depart(1_000_001, 0, 1000);
        assert_eq!(pie.probe("qdelay"), 0.0);
    }

    fn model(given: &[(&str, Value)]) -> Box<dyn FluidModel> {
        fluid(&ALGORITHM, given, FluidVariant::Printed)
    }

    /// Section 4.1 on a link of 1000 packets/s: nothing is marked with at most two packets waiting, with less than half of 15
    /// ms (7.5 packets) and a probability below 0.2, and while more than half of an update is left of the allowance.
    #[test]
    fn fluid_marks_after_the_burst_and_above_half_the_target() {
        let pie = model(&[]);
        assert_eq!(start(&*pie), [0.0, 0.15]);
        for (p, allowance, q, marked) in [
            (0.3, 0.0, 100.0, 0.3),
            (1.2, 0.0, 100.0, 1.0),
            (0.3, 0.0075, 100.0, 0.3),
            (0.3, 0.0076, 100.0, 0.0),
            (0.19, 0.0, 7.4, 0.0),
            (0.2, 0.0, 7.4, 0.2),
            (0.1, 0.0, 7.6, 0.1),
            (0.3, 0.0, 2.1, 0.3),
            (0.3, 0.0, 2.0, 0.0),
        ] {
            let found = pie.mark(&[p, allowance], &Inputs { q, ..INPUTS }.arrivals());
            assert_eq!(found, marked, "p {p}, allowance {allowance}, q {q}");
        }
        assert_eq!(fluid_probes(&*pie, &[0.3, 0.1]), [("p", 0.3), ("burst_allowance", 0.1)]);
    }

    /// Section 4.2 per update of 15 ms. 35 packets that grow by 100 packets/s at p = 0.05: (0.02 / 8 / 0.015 + 1.25 0.1) / 2.
    /// 1015 packets: 1 / 8 / 0.015, limited from 0.1 on to 0.02 / 0.015 (section 5.5). 5 packets: -0.01 / 8 / 0.015 / 2 and a
    /// decay of 2 %.
    #[test]
    fn fluid_probability_follows_the_equation() {
        let decay = libm::log(0.98) / 0.015 * 0.05;
        for (cap, p, q, dq, change) in [
            (true, 0.05, 35.0, 100.0, (1.0 / 6.0 + 0.125) / 2.0),
            (true, 0.5, 1015.0, 0.0, 4.0 / 3.0),
            (true, 0.1, 1015.0, 0.0, 4.0 / 3.0),
            (true, 0.09, 1015.0, 0.0, 25.0 / 6.0),
            (false, 0.5, 1015.0, 0.0, 25.0 / 3.0),
            (true, 0.05, 5.0, 0.0, -1.0 / 24.0 + decay),
            (true, 0.0, 5.0, 0.0, 0.0),
            (true, 1.0, 1015.0, 0.0, 0.0),
        ] {
            let pie = model(&[("cap", Value::Flag(cap))]);
            let [found, _] = derivatives(&*pie, [p, 0.1], p, &Inputs { q, dq, ..INPUTS });
            assert!((found - change).abs() < 1e-9, "{found}, not {change}, at p {p} and q {q}");
        }
    }

    /// Section 4.4: the allowance decreases with time, down to 0; at a probability of 0 and less than half the target it is
    /// renewed, within the shortest time of 1 ms.
    #[test]
    fn fluid_burst_allowance_is_used_up_and_renewed() {
        let pie = model(&[]);
        for (p, q, allowance, change) in [
            (0.05, 35.0, 0.1, -1.0),
            (1e-9, 5.0, 0.1, -1.0),
            (0.0, 35.0, 0.1, -1.0),
            (0.05, 35.0, 0.0, 0.0),
            (0.0, 5.0, 0.1, 50.0),
        ] {
            let [_, found] = derivatives(&*pie, [p, allowance], p, &Inputs { q, resolution: 1e-3, ..INPUTS });
            assert!((found - change).abs() < 1e-9, "{found}, not {change}, at p {p} and q {q}");
        }
    }

    #[test]
    fn fluid_model_of_an_inactive_pie_is_refused() {
        let values = Steps::values(&ALGORITHM, &[("activate", Value::Number(0.3))]);
        let given = FluidConfig { packet: 1000.0, limit: 1000.0, variant: FluidVariant::Actual };
        let error = PieFluid::new(&values, &given).err().unwrap();
        assert_eq!(
            (error.name, error.problem),
            ("activate", "found 0.3; allowed in a fluid model: 0".into())
        );
    }
}
