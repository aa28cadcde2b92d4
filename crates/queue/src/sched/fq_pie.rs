//! FQ-PIE, flow queueing with PIE: a queue per flow, served round-robin, with a PIE each.
//!
//! Linux `sch_fq_pie` (Tahiliani et al. 2020, tc-fq_pie(8)); RFC 8033; the queues are served as in RFC 8290. Flows are
//! hashed to `flows` queues, with a new hash per run. A queue that becomes active joins the *new* queues with `quantum`
//! bytes to send; new queues are served before *old* ones, and a queue that has used its quantum moves to the end of
//! the old ones with another. An empty queue moves to the old ones first and is removed only then, so that new queues
//! cannot starve these.
//!
//! Each queue has its own PIE, see [`pie`](crate::aqm::pie): a probability that changes every `t_update` by the delay
//! of the packet that left the queue last. It decides about arrivals before they are stored, by the bytes in their own
//! queue. A full buffer drops the arriving packet, whatever its flow.
//!
//! *Departures:* the host defines a flow, not a hash of addresses and ports. The limits in packets and bytes (Linux:
//! 10240 packets, 32 MB) are those of the surrounding queue. PIE is the RFC's where Linux's differs: the burst
//! allowance decreases with time only, not with the time between departures; there is no step of 0.02 for delays above 250
//! ms, and no probability above 1, which Linux reaches by that step. So a queue that ignores signals loses more in Linux. Updates skip idle queues (no packets, no probability, no delay), which they would not change; so an
//! update costs as much as there are queues in use, whereas Linux visits all of them, 2048 at a time.
//!
//! *In a satellite gateway:* as `fq_codel`: it separates flows as well, and signals at random instead of by a schedule.
//! Packets dropped at the transmit queue behind a PEP have been acknowledged, and must be retransmitted over the
//! satellite. Its buffer is not protected against a flow that fills it: an unresponsive flow is dropped by its own PIE
//! only once its probability has grown, and until then a full buffer affects everyone. Its gains are designed for round
//! trips up to about 100 ms, as `pie`'s.

use std::iter::repeat_n;

use bentpipe_units::{Duration, IdVec, Instant};

use super::buckets::{BucketId, Buckets, FLOWS, List, QUANTUM};
use crate::aqm::pie::{
    ALPHA, BETA, CAP, Control, DECAY, DERANDOMIZE, MARK_ECNTH, MAX_BURST, MEAN_PACKET, Rules, T_UPDATE,
    TARGET,
};
use crate::descriptor::SchedulerAlgorithm;
use crate::{Context, DropReason, Packet, Param, Scheduler, SchedulerHost, Tune, Values, Verdict};

/// The registry's entry.
pub const ALGORITHM: SchedulerAlgorithm = SchedulerAlgorithm {
    name: "fq_pie",
    title: "Flow queueing with PIE",
    source: "Linux sch_fq_pie; RFC 8033",
    params: PARAMS,
    signals: true,
    build: |values| Ok(Box::new(FqPie::new(values))),
};

const PARAMS: &[Param] = &[
    TARGET,
    T_UPDATE,
    ALPHA,
    BETA,
    MAX_BURST,
    FLOWS.origin("Linux sch_fq_pie").tune(Tune::Log(16.0, 65_536.0)),
    QUANTUM.origin("Linux sch_fq_pie: an Ethernet packet"),
    MARK_ECNTH.symbol("ecn_prob"),
    DERANDOMIZE,
    CAP,
    DECAY,
    MEAN_PACKET,
];

/// FQ-PIE's state.
#[derive(Debug)]
pub struct FqPie {
    rules: Rules,
    buckets: Buckets,
    /// By queue.
    controls: IdVec<BucketId, Control>,
    salt: Option<u64>,
    /// Queues that need updates, in no order.
    active_queues: Vec<BucketId>,
    /// By queue: true if it needs updates.
    is_active: IdVec<BucketId, bool>,
    /// Time of the next update, while any queue needs one.
    next: Option<Instant>,
}

impl FqPie {
    fn new(v: &Values) -> Self {
        let (rules, flows) = (Rules::new(v), v.number("flows") as usize);
        Self {
            buckets: Buckets::new(flows as u32, v.number("quantum") as u32),
            controls: repeat_n(Control::new(&rules), flows).collect(),
            salt: None,
            active_queues: Vec::new(),
            is_active: repeat_n(false, flows).collect(),
            next: None,
            rules,
        }
    }

    /// Schedules updates for a queue that is about to become active, from the next multiple of `t_update` on.
    fn activate(&mut self, bucket: BucketId, now: Instant) {
        if !std::mem::replace(&mut self.is_active[bucket], true) {
            self.active_queues.push(bucket);
        }
        if self.next.is_none() {
            self.next = Some((now + Duration::from_nanos(1)).round_up_to(self.rules.every));
        }
    }
}

impl Scheduler for FqPie {
    fn push(&mut self, pkt: &Packet, cx: &mut Context<'_>, out: &mut dyn SchedulerHost) {
        let salt = *self.salt.get_or_insert_with(|| cx.rng.bits());
        let bucket = self.buckets.of(pkt.flow, salt);
        let control = &mut self.controls[bucket];
        if !cx.queue.limit.has_room(cx.queue.packets, cx.queue.bytes, pkt.len) {
            control.overflowed();
            return out.dropped(*pkt, DropReason::Overflow);
        }
        let accepted = match control.decide(pkt, self.buckets.bytes(bucket), &self.rules, cx.rng) {
            Verdict::Pass => Some(*pkt),
            Verdict::Mark => out.mark(*pkt),
            _ => {
                out.dropped(*pkt, DropReason::Aqm);
                None
            }
        };
        if let Some(pkt) = accepted {
            self.buckets.push(bucket, &pkt);
            self.activate(bucket, cx.now);
        }
    }

    fn pop(&mut self, cx: &mut Context<'_>, _out: &mut dyn SchedulerHost) -> Option<Packet> {
        loop {
            let bucket = self.buckets.turn()?;
            let Some(pkt) = self.buckets.take(bucket) else {
                self.buckets.on_empty(bucket);
                continue;
            };
            self.buckets.charge(bucket, pkt.len);
            let empty = self.buckets.packets(bucket) == 0;
            let waited = if empty { Duration::ZERO } else { cx.now - pkt.arrival };
            self.controls[bucket].current_qdelay = waited.as_secs_f64();
            return Some(pkt);
        }
    }

    fn peek(&self) -> Option<&Packet> {
        self.buckets.peek()
    }

    fn wake_at(&self) -> Option<Instant> {
        self.next
    }

    fn wake(&mut self, _cx: &mut Context<'_>, _out: &mut dyn SchedulerHost) {
        let mut i = 0;
        while let Some(&bucket) = self.active_queues.get(i) {
            let control = &mut self.controls[bucket];
            control.update(&self.rules);
            if control.is_settled() && self.buckets.packets(bucket) == 0 {
                self.is_active[bucket] = false;
                self.active_queues.swap_remove(i);
            } else {
                i += 1;
            }
        }
        let every = self.rules.every;
        self.next = self.next.map(|next| next + every).filter(|_| !self.active_queues.is_empty());
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        let active = self.active_queues.iter().map(|&bucket| &self.controls[bucket]);
        out("p", active.clone().map(|control| control.drop_prob).fold(0.0, f64::max));
        out("qdelay", active.map(|control| control.current_qdelay).fold(0.0, f64::max));
        out("new_flows", f64::from(self.buckets.len(List::New)));
        out("old_flows", f64::from(self.buckets.len(List::Old)));
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_units::{Rate, Rng};

    use super::super::bare::EcnHost;
    use super::*;
    use crate::{Ecn, FlowId, Limit, QueueState, Value};

    struct Bench {
        fq: FqPie,
        state: QueueState,
        host: EcnHost,
        rng: Rng,
        handle: u32,
    }

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(us)
    }

    impl Bench {
        fn new(given: &[(&str, Value)]) -> Self {
            let link = crate::Link { capacity: Rate::from_bps(8_000_000), mean_packet: 1000.0 };
            let find = |name: &str| given.iter().find(|(n, _)| *n == name).map(|(_, value)| *value);
            Self {
                fq: FqPie::new(&Values::resolve(PARAMS, &link, &find).unwrap()),
                state: QueueState::empty(link.capacity),
                host: EcnHost::default(),
                rng: Rng::stream(1, "fq_pie", 0, "test"),
                handle: 0,
            }
        }

        fn push(&mut self, us: u64, flow: u32, ecn: Ecn) {
            let pkt = Packet { ecn, arrival: at(us), ..Packet::new(1000, FlowId(flow), self.handle) };
            self.handle += 1;
            self.fq.push(&pkt, &mut Context::new(at(us), &self.state, &mut self.rng), &mut self.host);
        }

        fn pop(&mut self, us: u64) -> Option<Packet> {
            let shown = self.fq.peek().map(|pkt| pkt.handle);
            let pkt = self.fq.pop(&mut Context::new(at(us), &self.state, &mut self.rng), &mut self.host);
            assert_eq!(pkt.map(|pkt| pkt.handle), shown, "peek");
            pkt
        }

        fn wake(&mut self) -> u64 {
            let now = self.fq.wake_at().unwrap();
            self.fq.wake(&mut Context::new(now, &self.state, &mut self.rng), &mut self.host);
            (now - Instant::ZERO).as_nanos() / 1000
        }

        fn control(&mut self, flow: u32) -> &mut Control {
            let salt = self.fq.salt.unwrap();
            let bucket = self.fq.buckets.of(FlowId(flow), salt);
            &mut self.fq.controls[bucket]
        }
    }

    /// Two flows, and the steps of PIE's pseudo-code for the one that waits, worked out by hand as in `pie`: delays of
    /// 35 and 35 ms give (0.0025 + 0.04375) / 2048 and 0.0025 / 128 more. The packets of the other do not wait: its
    /// probability stays 0.
    #[test]
    fn each_queue_has_its_own_probability() {
        let mut fq = Bench::new(&[]);
        (0..3).for_each(|_| fq.push(0, 1, Ecn::NotEct));
        let mut p = 0.0;
        for (tick, step) in [(15_000, 0.046_25 / 2048.0), (30_000, 0.0025 / 128.0)] {
            fq.push(tick - 1, 2, Ecn::NotEct);
            // The new flow goes first except for the head start of the first, which is still new: in either order both
            // leave.
            for _ in 0..2 {
                let pkt = fq.pop(tick - 1).unwrap();
                if pkt.flow == FlowId(1) {
                    fq.control(1).current_qdelay = 0.035;
                }
            }
            assert_eq!(fq.wake(), tick);
            p += step;
            assert!((fq.control(1).drop_prob - p).abs() < 1e-12, "{} is not {p}", fq.control(1).drop_prob);
            assert_eq!(fq.control(2).drop_prob, 0.0);
        }
    }

    /// The delay is that of the last packet to leave the queue, and 0 if it left the queue empty.
    #[test]
    fn delay_is_that_of_the_last_packet() {
        let mut fq = Bench::new(&[]);
        (0..2).for_each(|_| fq.push(1_000, 1, Ecn::NotEct));
        fq.pop(21_000);
        assert_eq!(fq.control(1).current_qdelay, 0.02);
        fq.pop(22_000);
        assert_eq!(fq.control(1).current_qdelay, 0.0);
    }

    /// Of three flows, of which two have used up a quantum and are old: the greatest probability and delay.
    #[test]
    fn probes_show_the_worst_queue_and_the_number_of_flows() {
        let mut fq = Bench::new(&[]);
        for flow in 1..=3 {
            (0..4).for_each(|_| fq.push(0, flow, Ecn::NotEct));
        }
        assert!((0..5).all(|_| fq.pop(20_000).is_some()));
        (fq.control(1).drop_prob, fq.control(2).drop_prob) = (0.1, 0.3);
        fq.control(2).current_qdelay = 0.05;
        let mut found = Vec::new();
        fq.fq.probe(&mut |name, value| found.push((name, value)));
        let expected = [("p", 0.3), ("qdelay", 0.05), ("new_flows", 1.0), ("old_flows", 2.0)];
        assert_eq!(found, expected);
    }

    /// The decision depends on a flow's own queue: at probability 1 the heavy flow is marked (`mark_ecnth` = 1), and
    /// the light one, with nothing waiting, never.
    #[test]
    fn light_flow_is_not_marked_for_a_heavy_one() {
        let mut fq = Bench::new(&[("mark_ecnth", Value::Number(1.0))]);
        (0..10).for_each(|_| fq.push(0, 1, Ecn::Ect));
        assert!(fq.host.marked.is_empty());
        let control = fq.control(1);
        (control.drop_prob, control.burst_allowance) = (0.999, Duration::ZERO);
        for us in 0..50 {
            fq.push(us, 1, Ecn::Ect);
            fq.push(us, 2, Ecn::Ect);
        }
        // Handles from 10 on: even ones belong to flow 1.
        assert!(fq.host.marked.len() >= 40, "{:?}", fq.host.marked);
        assert!(fq.host.marked.iter().all(|handle| handle % 2 == 0));
        assert!(fq.host.dropped.is_empty());
        // With the default of 0.1 they are dropped instead.
        let mut fq = Bench::new(&[]);
        (0..10).for_each(|_| fq.push(0, 1, Ecn::Ect));
        let control = fq.control(1);
        (control.drop_prob, control.burst_allowance) = (0.999, Duration::ZERO);
        (0..50).for_each(|us| fq.push(us, 1, Ecn::Ect));
        assert!(fq.host.marked.is_empty() && fq.host.dropped.len() >= 40);
    }

    /// Updates take place at multiples of 15 ms while any queue is in use, and skip idle ones: none is left once all
    /// packets are sent and the probability has decayed, and a new packet starts them again.
    #[test]
    fn idle_queues_are_not_updated() {
        let mut fq = Bench::new(&[]);
        assert_eq!(fq.fq.wake_at(), None);
        fq.push(1_000, 1, Ecn::NotEct);
        fq.push(1_000, 1, Ecn::NotEct);
        assert_eq!(fq.wake(), 15_000);
        fq.control(1).drop_prob = 1.0;
        while fq.pop(16_000).is_some() {}
        let mut last = 0;
        while fq.fq.wake_at().is_some() {
            last = fq.wake();
        }
        // From 1 to 0: 2 % per update and 0.001875, damped.
        assert!((1_000_000..20_000_000).contains(&last), "{last}");
        assert!(fq.fq.active_queues.is_empty());
        fq.push(60_000_000, 1, Ecn::NotEct);
        assert_eq!(fq.wake(), 60_015_000);
    }

    /// Two flows that are always full share the link evenly in bytes, with packets of different length.
    #[test]
    fn flows_share_the_link_evenly() {
        let mut fq = Bench::new(&[]);
        (0..2000).for_each(|i| fq.push(0, i % 2, Ecn::NotEct));
        let mut sent = [0u32; 2];
        for _ in 0..500 {
            sent[fq.pop(0).unwrap().flow.0 as usize] += 1;
        }
        assert!(sent[0].abs_diff(sent[1]) <= 3, "{sent:?}");
    }

    #[test]
    fn full_buffer_drops_arrivals() {
        let mut fq = Bench::new(&[]);
        fq.state.limit = Limit { packets: 1, bytes: u64::MAX };
        fq.push(0, 1, Ecn::NotEct);
        fq.state.packets = 1;
        fq.push(0, 2, Ecn::NotEct);
        assert_eq!(fq.host.dropped, [(1, DropReason::Overflow)]);
    }
}
