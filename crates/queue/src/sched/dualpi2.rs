//! DualPI2, the coupled dual queue: a short queue for transports that respond in proportion to marks (L4S), a second
//! one for all others, and one controller that gives flows of both kinds the same rate.
//!
//! RFC 9332, appendix A (De Schepper, Briscoe & White 2023); De Schepper et al., "PI2", CoNEXT 2016. ECT(1) and CE
//! packets go to the L queue, all others to the C queue. Every `t_update` the controller PI2 changes a base probability
//! by the longer of the two queues' delays, that of the packet at the head:
//!
//! - `p' += alpha (curq - target) + beta (curq - prevq)`
//! - `p_C = p'^2` for the C queue, `p_CL = k p'` for the L queue
//!
//! The rate of a transport like Reno is proportional to `1 / sqrt(p)`, that of one like Prague to `1 / p`: the square
//! compensates the difference, and for `k = 2` equal round trips mean equal rates. The L queue is also marked by a ramp
//! of its delay, from 0 at `min_th` to 1 at `min_th + range` (0: a step), while more than `th_len` packets are in
//! it; the greater probability counts, `p_L = max(p'_L, p_CL)`. The gains are derived from the longest round trip for
//! which the loop is to be stable:
//!
//! - `t_update = min(target, rtt_max / 3)`, `alpha = 0.1 t_update / rtt_max^2`, `beta = 0.3 / rtt_max`
//!
//! The L queue goes first, but cannot starve the other: by weighted round robin (`wrr`: the C queue has `classic_share`
//! of the link while both hold packets), or first in first out with the C queue's packets `tshift` later (`ts_fifo`).
//! At overload, `p_CL >= 1`, both queues drop with `p_C`, ECN packets as well, so that unresponsive flows cannot occupy
//! the link (appendix A.2).
//!
//! *Departures:* the departing packet counts among the L queue's when they are compared with `th_len`. The RFC leaves
//! the scheduler open: `wrr` has Linux's accounting (each sent packet of one queue earns the other credit in proportion
//! to its share while both hold packets; L goes while the credit is not positive), and starts at 0 instead of most of a
//! packet for L. `tshift` is twice the target, a choice. Marks are spread evenly by counting, as in the RFC's listing;
//! Linux draws them (`derandomize = false`). Linux's rule that nothing is marked while less than two packets wait is
//! not in the RFC and not implemented. The RFC's loop ends with a packet that is sent; here one is sent in any case
//! after 64 dropped ones, so that the work is bounded at `p' = 1` (64 of 65 are dropped then).
//!
//! *In a satellite gateway:* it requires `marking = "ecn"`. With `drop` each mark in the L queue is a dropped packet, at
//! probabilities that suit marks and not drops: do not use it if anything sends ECT(1). Behind a PEP its marks are
//! echoed to the split senders. Then the queue is not part of their round trip, and classic flows get up to 1.7 times the
//! rate of scalable ones; and `pep.buffer` should be about a bandwidth-delay product, because a burst that the PEP has
//! accepted overloads the queue, which then drops packets of the PEP link that have to be repeated. The default gains are for round trips up to 100 ms: over a
//! geostationary satellite, for connections that are not split, set `rtt_max` to the longest round trip, at least 0.7 s, otherwise the queue oscillates; and
//! `target` in proportion, because a classic flow needs a queue of some part of its round trip to keep the link busy.

use std::collections::VecDeque;

use bentpipe_units::{Duration, Instant, Rng};

use crate::descriptor::SchedulerAlgorithm;
use crate::{
    Context, DropReason, Ecn, MAX_DROPS_PER_DEQUEUE, Packet, Param, Range, Scheduler, SchedulerHost, Tune,
    Unit, Values,
};

/// The registry's entry.
pub const ALGORITHM: SchedulerAlgorithm = SchedulerAlgorithm {
    name: "dualpi2",
    title: "Coupled dual queue with PI2",
    source: "RFC 9332",
    params: PARAMS,
    signals: true,
    build: |values| Ok(Box::new(DualPi2::new(values))),
};

const PARAMS: &[Param] = &[
    Param::number("target", Unit::Seconds, 0.015, Range::above(0.0, 1e3))
        .doc("Target delay of the C queue: a typical round trip")
        .origin("RFC 9332 appendix A.1")
        .tune(Tune::Log(0.005, 0.3)),
    Param::number("rtt_max", Unit::Seconds, 0.1, Range::above(0.0, 1e3))
        .doc("Longest round trip for which the controller is stable")
        .symbol("RTT_max")
        .origin("RFC 9332 appendix A.1")
        .tune(Tune::Log(0.05, 2.0)),
    Param::number("t_update", Unit::Seconds, 0.0, Range::between(0.0, 1e3))
        .doc("Time between updates; 0: the target or a third of `rtt_max`, whichever is less")
        .symbol("Tupdate")
        .origin("RFC 9332 appendix A.1"),
    Param::number("alpha", Unit::One, 0.0, Range::between(0.0, 1e6))
        .doc("Weight of the delay's distance from its target [1/s]; 0: 0.1 t_update / rtt_max^2")
        .symbol("α")
        .origin("RFC 9332 appendix A.1"),
    Param::number("beta", Unit::One, 0.0, Range::between(0.0, 1e6))
        .doc("Weight of the delay's change [1/s]; 0: 0.3 / rtt_max")
        .symbol("β")
        .origin("RFC 9332 appendix A.1"),
    Param::number("k", Unit::One, 2.0, Range::between(1.0, 100.0))
        .doc("Coupling factor: the L queue's probability over the base probability")
        .origin("RFC 9332 appendix A.1")
        .tune(Tune::Log(1.0, 4.0)),
    Param::number("min_th", Unit::Seconds, 0.0008, Range::between(0.0, 1e3))
        .doc("Delay of the L queue from which it is marked")
        .symbol("minTh")
        .origin("RFC 9332 appendix A.1")
        .tune(Tune::Log(0.0004, 0.02)),
    Param::number("range", Unit::Seconds, 0.0004, Range::between(0.0, 1e3))
        .doc("Range above `min_th` over which the marking of the L queue rises to 1; 0: a step")
        .origin("RFC 9332 appendix A.1")
        .tune(Tune::Log(0.0001, 0.01)),
    Param::number("th_len", Unit::Packets, 1.0, Range::between(0.0, 1e6))
        .doc("Number of packets in the L queue up to which none is marked for its delay")
        .symbol("Th_len")
        .origin("RFC 9332 appendix A.1")
        .tune(Tune::Linear(0.0, 5.0)),
    Param::name(
        "scheduler",
        &["wrr", "ts_fifo"],
        "wrr",
        "Scheduler of the two queues while both hold packets",
    )
    .origin("RFC 9332 leaves it open; Linux sch_dualpi2")
    .tune(Tune::Each),
    Param::number("classic_share", Unit::One, 0.1, Range::above(0.0, 1.0))
        .doc("Share of the link guaranteed to the C queue, with `wrr`")
        .origin("Linux sch_dualpi2")
        .tune(Tune::Linear(0.05, 0.5)),
    Param::number("tshift", Unit::Seconds, 0.03, Range::between(0.0, 1e3))
        .doc("Time by which a packet of the C queue must be older to go first, with `ts_fifo`")
        .origin("twice the default target; RFC 9332 gives none")
        .tune(Tune::Log(0.005, 0.2)),
    Param::flag("derandomize", true, "Spread marks evenly by counting, instead of drawing each")
        .symbol("recur")
        .origin("RFC 9332 appendix A.1"),
];

/// Indexes of the queues.
const L: usize = 0;
const C: usize = 1;

/// DualPI2's state, with the RFC's names; delays in seconds.
#[derive(Debug)]
pub struct DualPi2 {
    gains: Gains,
    k: f64,
    min_th: f64,
    range: f64,
    th_len: usize,
    /// With `ts_fifo`.
    tshift: Option<Duration>,
    classic_share: f64,
    derandomize: bool,
    queues: [Half; 2],
    /// With `wrr`: bytes that the C queue may send before the L queue goes again.
    credit: f64,
    /// Base probability p'.
    p: f64,
    prevq: f64,
    next: Instant,
}

/// Appendix A.1: parameters of the controller.
#[derive(Debug)]
struct Gains {
    target: f64,
    t_update: f64,
    alpha: f64,
    beta: f64,
}

impl Gains {
    fn new(v: &Values) -> Self {
        let given = |name: &str, otherwise: f64| match v.number(name) {
            0.0 => otherwise,
            x => x,
        };
        let (target, rtt_max) = (v.number("target"), v.number("rtt_max"));
        let t_update = given("t_update", target.min(rtt_max / 3.0));
        let alpha = given("alpha", 0.1 * t_update / (rtt_max * rtt_max));
        Self { target, t_update, alpha, beta: given("beta", 0.3 / rtt_max) }
    }

    fn every(&self) -> Duration {
        Duration::from_secs_f64(self.t_update).max(Duration::from_micros(1))
    }
}

/// One of the two queues.
#[derive(Debug, Default)]
struct Half {
    waiting: VecDeque<Packet>,
    /// Appendix A.1: sum of the likelihoods of its packets, minus the signals.
    count: f64,
}

impl Half {
    /// Returns true if an event of that likelihood occurs.
    fn recur(&mut self, likelihood: f64, derandomize: bool, rng: &mut Rng) -> bool {
        if !derandomize {
            return rng.uniform() < likelihood;
        }
        self.count += likelihood;
        if self.count > 1.0 {
            self.count -= 1.0;
            return true;
        }
        false
    }

    /// Sojourn time of the oldest packet [s].
    fn time(&self, now: Instant) -> f64 {
        self.waiting.front().map_or(0.0, |pkt| (now - pkt.arrival).as_secs_f64())
    }
}

impl DualPi2 {
    fn new(v: &Values) -> Self {
        let gains = Gains::new(v);
        let tshift = Duration::from_secs_f64(v.number("tshift"));
        Self {
            k: v.number("k"),
            min_th: v.number("min_th"),
            range: v.number("range"),
            th_len: v.number("th_len") as usize,
            tshift: (v.name("scheduler") == "ts_fifo").then_some(tshift),
            classic_share: v.number("classic_share"),
            derandomize: v.flag("derandomize"),
            queues: [Half::default(), Half::default()],
            credit: 0.0,
            p: 0.0,
            prevq: 0.0,
            next: Instant::ZERO + gains.every(),
            gains,
        }
    }

    /// Returns the queue that goes next; `None` if both are empty.
    fn scheduler(&self) -> Option<usize> {
        let [l, c] = [L, C].map(|i| self.queues[i].waiting.front());
        match (l, c) {
            (None, None) => None,
            (Some(_), None) => Some(L),
            (None, Some(_)) => Some(C),
            (Some(l), Some(c)) => {
                let l_first = match self.tshift {
                    Some(tshift) => l.arrival <= c.arrival + tshift,
                    None => self.credit <= 0.0,
                };
                Some(if l_first { L } else { C })
            }
        }
    }

    /// Accounts for a packet of that queue: while the other queue waits as well, it earns that one credit.
    fn account(&mut self, queue: usize, pkt: &Packet) {
        if !self.queues[1 - queue].waiting.is_empty() {
            let len = f64::from(pkt.len);
            self.credit +=
                if queue == L { self.classic_share * len } else { (self.classic_share - 1.0) * len };
        } else if self.queues[queue].waiting.is_empty() {
            self.credit = 0.0;
        }
    }

    /// The L queue's own probability, for a packet with that sojourn time.
    fn laqm(&self, qdelay: f64) -> f64 {
        if qdelay <= self.min_th {
            0.0
        } else if qdelay >= self.min_th + self.range {
            1.0
        } else {
            (qdelay - self.min_th) / self.range
        }
    }

    /// Appendix A.2: decides about a departing packet of the L queue.
    fn leave_l(&mut self, pkt: Packet, cx: &mut Context<'_>, out: &mut dyn SchedulerHost) -> Option<Packet> {
        let (p_c, p_cl) = (self.p * self.p, self.k * self.p);
        let mut p_l = p_cl;
        if p_cl < 1.0 {
            if self.queues[L].waiting.len() + 1 > self.th_len {
                p_l = p_l.max(self.laqm((cx.now - pkt.arrival).as_secs_f64()));
            }
        } else if self.queues[L].recur(p_c, self.derandomize, cx.rng) {
            out.dropped(pkt, DropReason::Aqm);
            return None;
        }
        if self.queues[L].recur(p_l.min(1.0), self.derandomize, cx.rng) { out.mark(pkt) } else { Some(pkt) }
    }

    /// Appendix A.2: decides about a departing packet of the C queue.
    fn leave_c(&mut self, pkt: Packet, cx: &mut Context<'_>, out: &mut dyn SchedulerHost) -> Option<Packet> {
        if !self.queues[C].recur(self.p * self.p, self.derandomize, cx.rng) {
            return Some(pkt);
        }
        if self.k * self.p >= 1.0 && pkt.ecn != Ecn::NotEct {
            out.dropped(pkt, DropReason::Aqm);
            return None;
        }
        out.mark(pkt)
    }
}

impl Scheduler for DualPi2 {
    fn push(&mut self, pkt: &Packet, cx: &mut Context<'_>, out: &mut dyn SchedulerHost) {
        if !cx.queue.limit.has_room(cx.queue.packets, cx.queue.bytes, pkt.len) {
            return out.dropped(*pkt, DropReason::Overflow);
        }
        let queue = match pkt.ecn {
            Ecn::Ect1 | Ecn::Ce => L,
            Ecn::NotEct | Ecn::Ect => C,
        };
        self.queues[queue].waiting.push_back(*pkt);
    }

    fn pop(&mut self, cx: &mut Context<'_>, out: &mut dyn SchedulerHost) -> Option<Packet> {
        let mut dropped = 0;
        loop {
            let queue = self.scheduler()?;
            let pkt = self.queues[queue].waiting.pop_front()?;
            let left = if dropped == MAX_DROPS_PER_DEQUEUE {
                Some(pkt)
            } else if queue == L {
                self.leave_l(pkt, cx, out)
            } else {
                self.leave_c(pkt, cx, out)
            };
            if let Some(pkt) = left {
                self.account(queue, &pkt);
                return Some(pkt);
            }
            dropped += 1;
        }
    }

    fn peek(&self) -> Option<&Packet> {
        self.queues[self.scheduler()?].waiting.front()
    }

    fn wake_at(&self) -> Option<Instant> {
        Some(self.next)
    }

    /// Appendix A.2: updates the probability, every `Tupdate`.
    fn wake(&mut self, cx: &mut Context<'_>, _out: &mut dyn SchedulerHost) {
        self.next += self.gains.every();
        let curq = self.queues[L].time(cx.now).max(self.queues[C].time(cx.now));
        let g = &self.gains;
        let change = g.alpha * (curq - g.target) + g.beta * (curq - self.prevq);
        self.p = (self.p + change).clamp(0.0, 1.0);
        self.prevq = curq;
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("p", self.p);
        out("p_c", self.p * self.p);
        out("p_cl", (self.k * self.p).min(1.0));
        out("l_packets", self.queues[L].waiting.len() as f64);
        out("c_packets", self.queues[C].waiting.len() as f64);
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_units::Rate;

    use super::super::bare::EcnHost;
    use super::*;
    use crate::{FlowId, Limit, QueueState, Value};

    struct Bench {
        dual: DualPi2,
        state: QueueState,
        host: EcnHost,
        rng: Rng,
        handle: u32,
    }

    fn values(given: &[(&str, Value)]) -> Values {
        let link = crate::Link { capacity: Rate::from_bps(8_000_000), mean_packet: 1000.0 };
        let find = |name: &str| given.iter().find(|(n, _)| *n == name).map(|(_, value)| *value);
        Values::resolve(PARAMS, &link, &find).unwrap()
    }

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(us)
    }

    impl Bench {
        fn new(given: &[(&str, Value)]) -> Self {
            Self {
                dual: DualPi2::new(&values(given)),
                state: QueueState::empty(Rate::from_bps(8_000_000)),
                host: EcnHost::default(),
                rng: Rng::stream(1, "dualpi2", 0, "test"),
                handle: 0,
            }
        }

        /// A scheduler with base probability `p`.
        fn with(p: f64, given: &[(&str, Value)]) -> Self {
            let mut bench = Self::new(given);
            bench.dual.p = p;
            bench
        }

        /// A packet of `len` bytes arrives at `us`; returns its handle.
        fn push(&mut self, us: u64, ecn: Ecn, len: u32) -> u32 {
            let pkt = Packet { ecn, arrival: at(us), ..Packet::new(len, FlowId(0), self.handle) };
            self.dual.push(&pkt, &mut Context::new(at(us), &self.state, &mut self.rng), &mut self.host);
            self.handle += 1;
            self.handle - 1
        }

        fn pop(&mut self, us: u64) -> Option<Packet> {
            self.dual.pop(&mut Context::new(at(us), &self.state, &mut self.rng), &mut self.host)
        }

        fn wake(&mut self) -> u64 {
            let now = self.dual.wake_at().unwrap();
            self.dual.wake(&mut Context::new(now, &self.state, &mut self.rng), &mut self.host);
            (now - Instant::ZERO).as_nanos() / 1000
        }

        /// Sends `n` packets of one kind without delay; returns the numbers marked and dropped.
        fn run(&mut self, ecn: Ecn, n: u32) -> (usize, usize) {
            let before = (self.host.marked.len(), self.host.dropped.len());
            for _ in 0..n {
                self.push(0, ecn, 1000);
                self.pop(0);
            }
            (self.host.marked.len() - before.0, self.host.dropped.len() - before.1)
        }
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-12 + 1e-9 * b.abs()
    }

    fn gains(given: &[(&str, f64)]) -> [f64; 3] {
        let given: Vec<_> = given.iter().map(|&(name, x)| (name, Value::Number(x))).collect();
        let Gains { t_update, alpha, beta, .. } = Gains::new(&values(&given));
        [t_update, alpha, beta]
    }

    /// k p = 1: all packets of the L queue are marked, but for the quarter p^2 that is dropped: 250 of 1000, standard deviation 14.
    #[test]
    fn l_packets_are_dropped_from_a_coupled_probability_of_one_on() {
        let given = [("k", Value::Number(2.0)), ("derandomize", Value::Flag(false))];
        let (marked, dropped) = Bench::with(0.5, &given).run(Ecn::Ect1, 1000);
        assert!(dropped.abs_diff(250) < 70 && marked + dropped == 1000, "{marked} {dropped}");
    }

    #[test]
    fn probes_are_the_probabilities_and_the_lengths_of_both_queues() {
        let mut bench = Bench::with(0.25, &[("k", Value::Number(3.0))]);
        assert_eq!([0; 3].map(|_| bench.push(0, Ecn::Ect1, 1000)), [0, 1, 2]);
        assert_eq!([0; 2].map(|_| bench.push(0, Ecn::Ect, 1000)), [3, 4]);
        let mut found = Vec::new();
        bench.dual.probe(&mut |name, value| found.push((name, value)));
        let expected = [("p", 0.25), ("p_c", 0.0625), ("p_cl", 0.75), ("l_packets", 3.0), ("c_packets", 2.0)];
        assert_eq!(found, expected);
    }

    /// RFC 9332's formulas: a longest round trip of 200 ms and an update interval of 20 ms give alpha 0.1 * 0.02 / 0.04
    /// = 0.05 and beta 0.3 / 0.2 = 1.5. Its defaults, 100 ms and a target of 15 ms: min(15, 33.3) = 15 ms, 0.15 and 3.
    /// If a third of the longest round trip is less than the target, that counts.
    #[test]
    fn gains_are_derived_from_the_longest_round_trip() {
        let all_close = |found: [f64; 3], expected: [f64; 3]| {
            assert!((0..3).all(|i| close(found[i], expected[i])), "{found:?} is not {expected:?}");
        };
        all_close(gains(&[("rtt_max", 0.2), ("target", 0.02)]), [0.02, 0.05, 1.5]);
        all_close(gains(&[("rtt_max", 0.2), ("t_update", 0.02)]), [0.02, 0.05, 1.5]);
        all_close(gains(&[]), [0.015, 0.15, 3.0]);
        all_close(gains(&[("target", 0.1), ("rtt_max", 0.15)]), [0.05, 0.1 * 0.05 / 0.0225, 2.0]);
        all_close(gains(&[("alpha", 7.0), ("beta", 8.0)]), [0.015, 7.0, 8.0]);
    }

    /// Rounding of a gain in Linux: `tc` (iproute2, tc/q_dualpi2.c) truncates it to multiples of 1/256; the kernel
    /// (net/sched/sch_dualpi2.c) to whole internal units, in which a probability of 1 is 2^32 - 1, time is in ns, and
    /// 2^6 such units are one (so that 8 - 6 bits are left of the 8). `tc` shows that value, truncated again on the way
    /// back. Returns the kernel's value and the one shown.
    fn linux(gain: f64) -> (u64, f64) {
        const MAX_PROB: u64 = u32::MAX as u64;
        const NSEC_PER_SEC: u64 = 1_000_000_000;
        const SCALING: u32 = 8 - 6;
        let given = (gain * 256.0) as u64;
        let inside = ((given * MAX_PROB) >> SCALING) / NSEC_PER_SEC;
        let shown = ((inside * NSEC_PER_SEC) << SCALING) / MAX_PROB;
        (inside, shown as f64 / 256.0)
    }

    /// The kernel's own test of `tc qdisc add … dualpi2 typical_rtt 20ms max_rtt 200ms`
    /// (tools/testing/selftests/tc-testing) expects `alpha 0.042969 beta 1.496094`, where the formulas give 0.05 and
    /// 1.5. The difference is truncation only: 0.05 is 12.8 / 256, truncated to 12; 12 (2^32 - 1) / 4 / 10^9 is 12.88,
    /// truncated to 12; and back it is 12 * 4 * 10^9 / (2^32 - 1) = 11.18, truncated to 11, and 11 / 256 = 0.042969.
    /// Likewise 1.5 gives 384, 412.3 and 383.7, and 383 / 256; this relies on the 0.3 of `tc` being single precision, a
    /// little more than 0.3. The kernel works with 12 and 412 of its units of 4 * 10^9 / (2^32 - 1) / 256 each: 0.0437
    /// and 1.4988.
    #[test]
    fn gains_match_the_kernels_test_after_truncation() {
        // As in `tc`: times in us, constants in single precision.
        let (t_update, rtt_max) = (20_000.0, 200_000.0);
        let alpha = t_update / rtt_max / rtt_max * 1e6 * f64::from(0.1f32);
        let beta = f64::from(0.3f32) / rtt_max * 1e6;
        let [_, ours_alpha, ours_beta] = gains(&[("rtt_max", 0.2), ("target", 0.02)]);
        assert!((alpha - ours_alpha).abs() < 1e-7 && (beta - ours_beta).abs() < 1e-7);

        let ((alpha_inside, alpha_shown), (beta_inside, beta_shown)) = (linux(alpha), linux(beta));
        assert_eq!((alpha_inside, beta_inside), (12, 412));
        assert_eq!((alpha_shown, beta_shown), (11.0 / 256.0, 383.0 / 256.0));
        assert_eq!(format!("alpha {alpha_shown:.6} beta {beta_shown:.6}"), "alpha 0.042969 beta 1.496094");
        let unit = 4e9 / f64::from(u32::MAX) / 256.0;
        assert_eq!(format!("{:.4} {:.4}", 12.0 * unit, 412.0 * unit), "0.0437 1.4988");
    }

    /// Appendix A.2 with alpha 0.05 and beta 1.5 every 20 ms and a target of 20 ms. A packet of the C queue arrives at
    /// 0 and stays: at 20, 40 and 60 ms its sojourn time is as long. At 65 ms it leaves, and one that arrived at the L
    /// queue at 50 ms is the oldest at 80 ms; then that leaves too.
    ///
    /// | t [ms] | curq | prevq | change | p' |
    /// |---|---|---|---|---|
    /// | 20 | 20 | 0 | 0 + 0.03 | 0.03 |
    /// | 40 | 40 | 20 | 0.001 + 0.03 | 0.061 |
    /// | 60 | 60 | 40 | 0.002 + 0.03 | 0.093 |
    /// | 80 | 30 | 60 | 0.0005 - 0.045 | 0.0485 |
    /// | 100 | 0 | 30 | -0.001 - 0.045 | 0.0025 |
    /// | 120 | 0 | 0 | -0.001 | 0.0015 |
    /// | 140, 160 | 0 | 0 | -0.001 | 0.0005, 0 |
    #[test]
    fn updates_follow_the_pseudo_code() {
        let mut bench = Bench::new(&[("rtt_max", Value::Number(0.2)), ("target", Value::Number(0.02))]);
        bench.push(0, Ecn::NotEct, 1000);
        for (ms, p) in [
            (20, 0.03),
            (40, 0.061),
            (60, 0.093),
            (80, 0.0485),
            (100, 0.0025),
            (120, 0.0015),
            (140, 0.0005),
            (160, 0.0),
        ] {
            assert_eq!(bench.wake(), ms * 1000);
            assert!(close(bench.dual.p, p), "{} is not {p} at {ms} ms", bench.dual.p);
            match ms {
                40 => _ = bench.push(50_000, Ecn::Ect1, 1000),
                60 => {
                    bench.dual.credit = 1.0;
                    assert_eq!(bench.pop(65_000).map(|pkt| pkt.handle), Some(0));
                }
                80 => assert_eq!(bench.pop(85_000).map(|pkt| pkt.handle), Some(1)),
                _ => {}
            }
        }
    }

    /// p' = 1/8, k = 2: the L queue is marked with 1/4, the C queue with 1/64, evenly: its count passes 1 with the
    /// fifth packet (1.25, which leaves 0.25) and then with every fourth; that of the C queue with the 65th and every
    /// 64th. All of these are exact in binary.
    #[test]
    fn coupling_is_a_square() {
        let mut bench = Bench::with(0.125, &[]);
        assert_eq!(bench.run(Ecn::Ect1, 401), (100, 0));
        assert!(bench.host.marked.iter().enumerate().all(|(i, &handle)| handle == 4 * i as u32 + 4));
        assert_eq!(bench.run(Ecn::Ect, 6401), (100, 0));
        // 6401 / 64 = 100, and the remainder of one is kept.
        assert_eq!(bench.run(Ecn::NotEct, 6400), (0, 100));
    }

    /// Drawn marks have the same mean: within five standard errors of 10,000 / 4 and 10,000 / 64.
    #[test]
    fn drawn_marks_have_the_same_mean() {
        let mut bench = Bench::with(0.125, &[("derandomize", Value::Flag(false))]);
        let (l, c) = (bench.run(Ecn::Ect1, 10_000).0 as f64, bench.run(Ecn::Ect, 10_000).0 as f64);
        assert!((l - 2500.0).abs() < 5.0 * 43.3 && (c - 156.25).abs() < 5.0 * 12.4, "{l} {c}");
    }

    /// The ramp from 0.8 to 1.2 ms, and a step at 1 ms; at a base probability of 0. A single packet is not marked.
    #[test]
    fn l_queue_has_its_own_ramp() {
        let dual = DualPi2::new(&values(&[]));
        for (us, p) in
            [(0, 0.0), (800, 0.0), (900, 0.25), (1000, 0.5), (1100, 0.75), (1200, 1.0), (9000, 1.0)]
        {
            assert!(close(dual.laqm(f64::from(us) * 1e-6), p), "at {us} us");
        }
        let step = DualPi2::new(&values(&[("min_th", Value::Number(0.001)), ("range", Value::Number(0.0))]));
        assert_eq!([0.001, 0.001_001].map(|delay| step.laqm(delay)), [0.0, 1.0]);

        let mut bench = Bench::new(&[]);
        bench.push(0, Ecn::Ect1, 1000);
        assert_eq!(bench.pop(5000).map(|pkt| pkt.ecn), Some(Ecn::Ect1));
        // The first of three brings the count to 1, the second beyond, the third is alone.
        (0..3).for_each(|_| _ = bench.push(0, Ecn::Ect1, 1000));
        assert_eq!(
            [0; 3].map(|_| bench.pop(5000).map(|pkt| pkt.ecn)),
            [Ecn::Ect1, Ecn::Ce, Ecn::Ect1].map(Some)
        );
    }

    /// The greater of the two probabilities counts: 1/4 from the coupling, 1/2 from the ramp at 1 ms.
    #[test]
    fn greater_probability_counts() {
        let mut bench = Bench::with(0.125, &[("th_len", Value::Number(0.0))]);
        let marks = |bench: &mut Bench, wait: u64| {
            let before = bench.host.marked.len();
            for _ in 0..1000 {
                bench.push(0, Ecn::Ect1, 1000);
                bench.pop(wait);
            }
            bench.host.marked.len() - before
        };
        assert!((249..=250).contains(&marks(&mut bench, 850)), "1/8 from the ramp");
        assert!((499..=501).contains(&marks(&mut bench, 1000)), "1/2 from the ramp");
    }

    /// ECT(1) and CE go to the L queue and leave first; ECT(0) and packets without ECN to the other, in order.
    #[test]
    fn ecn_field_selects_the_queue() {
        let mut bench = Bench::new(&[]);
        let all = [Ecn::NotEct, Ecn::Ect, Ecn::Ect1, Ecn::Ce];
        all.iter().for_each(|&ecn| _ = bench.push(0, ecn, 1));
        bench.dual.classic_share = 1e-9;
        assert_eq!(bench.pop(0).map(|pkt| pkt.handle), Some(2));
        bench.dual.credit = 0.0;
        assert_eq!([0; 4].map(|_| bench.pop(0).map(|pkt| pkt.handle)), [Some(3), Some(0), Some(1), None]);
    }

    /// Both queues always full: the C queue has a tenth, whatever the lengths; the L queue alone has everything.
    #[test]
    fn c_queue_has_its_share() {
        for (l_len, c_len) in [(1000, 1000), (100, 1500), (1500, 100)] {
            let mut bench = Bench::new(&[("min_th", Value::Number(1e3))]);
            let mut bytes = [0u64; 2];
            for _ in 0..20_000 {
                if bench.dual.queues[L].waiting.len() < 3 {
                    bench.push(0, Ecn::Ect1, l_len);
                }
                if bench.dual.queues[C].waiting.len() < 3 {
                    bench.push(0, Ecn::NotEct, c_len);
                }
                let (peeked, pkt) = (bench.dual.peek().map(|pkt| pkt.handle), bench.pop(0).unwrap());
                assert_eq!(peeked, Some(pkt.handle));
                bytes[usize::from(pkt.ecn == Ecn::NotEct)] += u64::from(pkt.len);
            }
            let share = bytes[C] as f64 / (bytes[L] + bytes[C]) as f64;
            // The error is at most the longest packet in all that was sent.
            let total = (bytes[L] + bytes[C]) as f64;
            assert!((share - 0.1).abs() <= 1500.0 / total, "{l_len} {c_len}: {share}");
        }
    }

    /// With a time shift of 30 ms a C packet of 0 ms goes before an L packet of 30.001 ms, but not before one of 30 ms.
    #[test]
    fn c_queue_goes_first_after_the_time_shift() {
        for (us, first) in [(29_000, 1), (30_000, 1), (30_001, 0), (90_000, 0)] {
            let mut bench = Bench::new(&[("scheduler", Value::Name("ts_fifo"))]);
            bench.push(0, Ecn::NotEct, 1000);
            bench.push(us, Ecn::Ect1, 1000);
            assert_eq!(bench.dual.peek().map(|pkt| pkt.handle), Some(first), "{us}");
            assert_eq!(bench.pop(us).map(|pkt| pkt.handle), Some(first), "{us}");
        }
    }

    /// Overload, p' = 3/4: k p' = 1.5 >= 1. Both queues drop 9/16 of the packets, ECN or not; the rest of the L queue
    /// is marked (the RFC's listing counts both together, so all but the first are). Just below, at 7/16, no ECN packet
    /// is dropped.
    #[test]
    fn overload_drops_ecn_packets() {
        let mut bench = Bench::with(0.75, &[]);
        let (marked, dropped) = bench.run(Ecn::Ect, 1601);
        assert_eq!((marked, dropped), (0, 900));
        let (marked, dropped) =
            Bench::with(0.75, &[("derandomize", Value::Flag(false))]).run(Ecn::Ect1, 16_000);
        assert_eq!(marked + dropped, 16_000);
        assert!((dropped as f64 - 9000.0).abs() < 5.0 * 62.8, "{dropped}");
        let mut bench = Bench::with(0.4375, &[]);
        assert_eq!((bench.run(Ecn::Ect, 6400).1, bench.run(Ecn::Ect1, 6400).1), (0, 0));
    }

    /// At p' = 1 the RFC's loop would drop all waiting packets. Here the 65th packet is sent: with 130 of a kind that
    /// is two, after 64 each (the first packet only brings a count of marks to 1, so one is sent at once); the last 63
    /// are all dropped.
    #[test]
    fn drops_per_dequeue_are_bounded() {
        for ecn in [Ecn::NotEct, Ecn::Ect, Ecn::Ect1] {
            let mut bench = Bench::with(1.0, &[]);
            (0..194).for_each(|_| _ = bench.push(0, ecn, 1000));
            let sent = [0; 4].map(|_| bench.pop(0).map(|pkt| pkt.handle));
            assert_eq!(sent, [Some(0), Some(65), Some(130), None], "{ecn:?}");
            assert_eq!(bench.host.dropped.len(), 191);
        }
    }

    #[test]
    fn full_buffer_drops_arrivals() {
        let mut bench = Bench::new(&[]);
        bench.state.limit = Limit { packets: 1, bytes: u64::MAX };
        bench.push(0, Ecn::Ect1, 1000);
        bench.state.packets = 1;
        bench.push(0, Ecn::Ect1, 1000);
        assert_eq!(bench.host.dropped, [(1, DropReason::Overflow)]);
    }
}
