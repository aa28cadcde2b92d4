//! FQ-CoDel, flow queueing with controlled delay: a queue per flow, served round-robin, with a CoDel each.
//!
//! RFC 8290 (Høiland-Jørgensen, McKenney, Täht, Gettys & Dumazet 2018). Flows are hashed to `flows` queues, with a new
//! hash per run. A queue that becomes active joins the *new* queues with `quantum` bytes to send; new queues are served
//! before *old* ones, and a queue that has used its quantum moves to the end of the old ones with another. An empty
//! queue moves to the old ones first and is removed only then, so that new queues cannot starve these. So a *sparse*
//! flow, which sends less than a quantum per round, hardly waits at all.
//!
//! Each queue has its own CoDel, see `codel`, which decides about the packet at its head each time the queue is served,
//! until one is sent. If there is no room, the queue with the most bytes loses up to `drop_batch` packets from its
//! head, at most half of its bytes.
//!
//! *Departures:* the host defines a flow, not a hash of addresses and ports. The limits in packets and bytes (the RFC's
//! 10240 packets, Linux's memory limit) are those of the surrounding queue. CoDel's rule that an `mtu` of backlog is
//! never signalled for counts all queues together, as in Linux: with a queue's own bytes, many flows with two packets
//! each would never get a signal. `ce_threshold` concerns ECN packets and uses the marking method, so it has its
//! meaning with `marking = "ecn"`. The fattest queue is found in O(log n), not by a scan. Linux adds the drops of a
//! batch to CoDel's `count`; the RFC does not, nor does this. If no old queue waits, Linux removes an empty new one at once.
//! After 64 dropped packets one is sent without a signal.
//!
//! *In a satellite gateway:* the receive queue is served in order of arrival, so this scheduler is used at the transmit
//! queue or at the queue of a link. At the transmit queue it gives short flows and voice separate queues, but it
//! drops behind the PEP: the packet has been acknowledged to its sender, which gets no signal, and is retransmitted
//! over the satellite. Such a scenario is accepted with a warning. With `marking = "ecn"` it marks instead, and the
//! gateway echoes the marks. Without split connections (`pep.split = []`) the senders get the signals, and `interval` has to be of the
//! order of their round trip, at least 600 ms over a geostationary satellite. With more than a few hundred flows at a
//! time some share a queue; `cake` makes that rarer.

use std::iter::repeat_n;

use bentpipe_units::{Duration, IdVec};

use super::buckets::{BucketId, Buckets, FLOWS, List, QUANTUM};
use crate::aqm::codel::{Control, INTERVAL, MTU, Settings, TARGET};
use crate::descriptor::SchedulerAlgorithm;
use crate::{
    Context, DropReason, Ecn, MAX_DROPS_PER_DEQUEUE, Packet, Param, Range, Scheduler, SchedulerHost, Tune,
    Unit, Values,
};

/// The registry's entry.
pub const ALGORITHM: SchedulerAlgorithm = SchedulerAlgorithm {
    name: "fq_codel",
    title: "Flow queueing with controlled delay",
    source: "RFC 8290",
    params: PARAMS,
    signals: true,
    build: |values| Ok(Box::new(FqCodel::new(values))),
};

const PARAMS: &[Param] = &[
    TARGET.origin("RFC 8290 section 5.2.2"),
    INTERVAL.origin("RFC 8290 section 5.2.1"),
    MTU,
    FLOWS.origin("RFC 8290 section 5.2.5").tune(Tune::Log(16.0, 65_536.0)),
    QUANTUM.origin("RFC 8290 section 5.2.4"),
    Param::number("drop_batch", Unit::Packets, 64.0, Range::between(1.0, 1e6))
        .doc("Maximum number of packets that the fattest queue loses at once for want of room")
        .origin("RFC 8290 section 4.1"),
    Param::number("ce_threshold", Unit::Seconds, 0.0, Range::between(0.0, 1e3))
        .doc("Sojourn time above which ECN packets are marked; 0: off")
        .origin("RFC 8290 section 5.2.7: off"),
];

/// FQ-CoDel's state.
#[derive(Debug)]
pub struct FqCodel {
    codel: Settings,
    drop_batch: u32,
    ce_threshold: Option<Duration>,
    buckets: Buckets,
    /// By queue.
    controls: IdVec<BucketId, Control>,
    salt: Option<u64>,
}

impl FqCodel {
    fn new(v: &Values) -> Self {
        let flows = v.number("flows") as u32;
        let threshold = v.number("ce_threshold");
        Self {
            codel: Settings::new(v),
            drop_batch: v.number("drop_batch") as u32,
            ce_threshold: (threshold > 0.0).then(|| Duration::from_secs_f64(threshold)),
            buckets: Buckets::new(flows, v.number("quantum") as u32),
            controls: repeat_n(Control::REST, flows as usize).collect(),
            salt: None,
        }
    }

    /// RFC 8290, section 4.1: drops from the head of the fattest queue, a batch or half of its bytes, whichever is
    /// reached first. Returns packets and bytes.
    fn drop_batch(&mut self, out: &mut dyn SchedulerHost) -> Option<(u32, u64)> {
        let fattest = self.buckets.fattest()?;
        let half = self.buckets.bytes(fattest) / 2;
        let (mut packets, mut bytes) = (0, 0);
        while let Some(pkt) = self.buckets.take(fattest) {
            packets += 1;
            bytes += u64::from(pkt.len);
            out.dropped(pkt, DropReason::Overflow);
            if packets >= self.drop_batch || bytes >= half {
                break;
            }
        }
        Some((packets, bytes))
    }
}

impl Scheduler for FqCodel {
    fn push(&mut self, pkt: &Packet, cx: &mut Context<'_>, out: &mut dyn SchedulerHost) {
        let salt = *self.salt.get_or_insert_with(|| cx.rng.bits());
        let bucket = self.buckets.of(pkt.flow, salt);
        self.buckets.push(bucket, pkt);
        let limit = cx.queue.limit;
        let (mut packets, mut bytes) = (cx.queue.packets + 1, cx.queue.bytes + u64::from(pkt.len));
        while packets > limit.packets || bytes > limit.bytes {
            let Some((fewer, less)) = self.drop_batch(out) else { break };
            packets -= fewer;
            bytes -= less;
        }
    }

    fn pop(&mut self, cx: &mut Context<'_>, out: &mut dyn SchedulerHost) -> Option<Packet> {
        let (mut behind, mut dropped) = (cx.queue.bytes, 0);
        loop {
            let bucket = self.buckets.turn()?;
            let control = &mut self.controls[bucket];
            let Some(pkt) = self.buckets.take(bucket) else {
                control.empty();
                self.buckets.on_empty(bucket);
                continue;
            };
            behind -= u64::from(pkt.len);
            let waited = cx.now - pkt.arrival;
            let late = self.ce_threshold.is_some_and(|threshold| waited > threshold)
                && matches!(pkt.ecn, Ecn::Ect | Ecn::Ect1);
            let signal = control.leaves(waited, behind, cx.now, &self.codel) || late;
            let signal = signal && dropped < MAX_DROPS_PER_DEQUEUE;
            if let Some(pkt) = if signal { out.mark(pkt) } else { Some(pkt) } {
                self.buckets.charge(bucket, pkt.len);
                return Some(pkt);
            }
            dropped += 1;
        }
    }

    fn peek(&self) -> Option<&Packet> {
        self.buckets.peek()
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("new_flows", f64::from(self.buckets.len(List::New)));
        out("old_flows", f64::from(self.buckets.len(List::Old)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::steps::Steps;
    use super::*;
    use crate::{FlowId, Limit, Marking};

    fn bench(given: &[(&str, f64)], packets: u32, marking: Marking) -> Steps {
        Steps::new(&ALGORITHM, given, packets, marking, 1)
    }

    /// Bulk flow 1 has all its packets of 1000 bytes at once; flow 2 sends one of 100 every 20 ms, from 500 us on.
    fn bulk_and_sparse(packets: u32) -> Vec<(u64, u32, u32, u32)> {
        let mut arrivals: Vec<_> = (0..packets).map(|handle| (0, handle, 1, 1000)).collect();
        arrivals.extend((0..20).map(|i| (500 + 20_000 * u64::from(i), 1000 + i, 2, 100)));
        arrivals
    }

    /// By hand, quantum 1514, packets of 1000. Flow 1 sends 0 (514 left) and 1 (-486), then flow 2, new like it, 10
    /// and 11. Both are old now with 1028. Flow 1 sends 2; flow 3 is new and goes before 3.
    #[test]
    fn new_flows_go_first() {
        let mut steps = bench(&[], 100, Marking::Drop);
        for (handle, flow) in [(0, 1), (1, 1), (2, 1), (3, 1), (10, 2), (11, 2), (12, 2)] {
            steps.push(0, handle, flow, 1000);
        }
        assert_eq!(steps.take(0), [0, 1, 10, 11, 2].map(Some));
        assert_eq!((steps.probe("new_flows"), steps.probe("old_flows")), (0.0, 2.0));
        steps.push(0, 30, 3, 1000);
        assert_eq!(steps.take(0), [Some(30), Some(3), Some(12), None]);
    }

    /// Room for ten. Flow 1 has ten packets of 1000 bytes when flow 2 brings one: flow 1 loses half its bytes from its
    /// head, five packets; or two, if that is the batch.
    #[test]
    fn fattest_flow_loses_a_batch_from_its_head() {
        for (batch, lost) in [(64.0, 5), (2.0, 2)] {
            let mut steps = bench(&[("drop_batch", batch)], 10, Marking::Drop);
            (0..10).for_each(|handle| steps.push(0, handle, 1, 1000));
            assert!(steps.lost.is_empty());
            steps.push(0, 10, 2, 1000);
            assert_eq!(steps.lost, (0..lost).map(|h| (h, DropReason::Overflow)).collect::<Vec<_>>());
            assert_eq!(steps.take(0).map(|h| h.is_some_and(|h| h == lost || h == lost + 1)), [true; 2]);
        }
    }

    /// Room for 3000 bytes, which flow 1 has in three packets: one of 100 bytes of flow 2 costs it half of them, which two
    /// packets reach.
    #[test]
    fn limit_in_bytes_costs_the_fattest_flow_half_of_its_bytes() {
        let limit = Limit { packets: 10, bytes: 3000 };
        let mut steps = Steps::limited(&ALGORITHM, &[], limit, Marking::Drop, 1);
        (0..3).for_each(|handle| steps.push(0, handle, 1, 1000));
        assert!(steps.lost.is_empty());
        steps.push(0, 3, 2, 100);
        assert_eq!(steps.lost, [0, 1].map(|handle| (handle, DropReason::Overflow)));
        assert_eq!(steps.take(0), [Some(2), Some(3), None]);
    }

    /// A packet is dropped itself if nothing else makes room for it.
    #[test]
    fn single_packet_may_be_dropped_itself() {
        let mut steps = bench(&[], 10, Marking::Drop);
        (0..10).for_each(|handle| steps.push(0, handle, handle, 100));
        steps.push(0, 10, 10, 1000);
        assert_eq!(steps.lost, [(10, DropReason::Overflow)]);
    }

    /// The sparse flow loses nothing and waits at most for the packet on the link; only its first packet waits for the
    /// quantum of the bulk flow, which is new as well: two packets, until 2000 us. The bulk flow is controlled by its
    /// own CoDel, which first sees a delay of 5 ms in the packet that leaves at 5100 us (0, 1000, 2100 after the sparse
    /// one, 3100, …). So its first drop is the first packet to leave from 105,100 us on, at t, and the following ones
    /// are the first from t + 100, t + 170.711, t + 228.446 and t + 278.446 ms on.
    #[test]
    fn sparse_flow_hardly_waits() {
        let mut steps = bench(&[], 1000, Marking::Drop);
        let sent = steps.run(&bulk_and_sparse(500), 400_000);
        let waits = |(us, pkt): &(u64, Packet)| us - pkt.arrival.as_nanos() / 1000;
        let sparse: Vec<_> = sent.iter().filter(|(_, pkt)| pkt.flow == FlowId(2)).map(waits).collect();
        assert_eq!(sparse.len(), 20);
        assert!(sparse[0] == 1500 && sparse[1..].iter().all(|&us| us < 1000), "{sparse:?}");
        assert!(steps.lost.iter().all(|&(handle, reason)| handle < 500 && reason == DropReason::Aqm));
        // A dropped packet of flow 1 was about to leave when the one behind it left.
        let times: Vec<_> = steps
            .lost
            .iter()
            .map(|(handle, _)| {
                sent.iter().find(|(_, pkt)| pkt.flow == FlowId(1) && pkt.handle > *handle).unwrap().0
            })
            .collect();
        let bulk = |due: u64| sent.iter().find(|(us, pkt)| pkt.flow == FlowId(1) && *us >= due).unwrap().0;
        let first = bulk(105_100);
        let due = [0, 100_000, 170_711, 228_446, 278_446].map(|ms| bulk(first + ms));
        assert_eq!(times, due);
    }

    /// With ECN nothing is dropped, and as many packets are marked.
    #[test]
    fn signals_use_the_marking_method() {
        let mut steps = bench(&[], 1000, Marking::Ecn);
        steps.ecn = Ecn::Ect;
        let sent = steps.run(&bulk_and_sparse(500), 400_000);
        assert!(steps.lost.is_empty());
        assert!(sent.iter().all(|(_, pkt)| pkt.flow == FlowId(1) || pkt.ecn == Ecn::Ect));
        assert_eq!(sent.iter().filter(|(_, pkt)| pkt.ecn == Ecn::Ce).count(), 5);
        assert_eq!(steps.queue.counters().marked, 5);
    }

    /// Every packet with more than 10 ms is marked: those of flow 1 that leave after 10,000 us.
    #[test]
    fn ce_threshold_marks_all_late_packets() {
        let mut steps = bench(&[("ce_threshold", 0.01)], 1000, Marking::Ecn);
        steps.ecn = Ecn::Ect1;
        let sent = steps.run(&bulk_and_sparse(50), 60_000);
        assert!(sent.iter().all(|(us, pkt)| (pkt.ecn == Ecn::Ce) == (pkt.flow == FlowId(1) && *us > 10_000)));
        steps.ecn = Ecn::NotEct;
        steps.run(&bulk_and_sparse(50), 60_000);
        assert!(steps.lost.is_empty(), "it concerns nobody else");
    }

    /// Eight flows with always one packet waiting each, and 8 ms: no flow ever has an MTU behind a packet, but all
    /// together have, so each gets signals.
    #[test]
    fn many_flows_with_one_packet_each_get_signals() {
        let mut steps = bench(&[], 1000, Marking::Drop);
        let arrivals: Vec<_> = (0..8).map(|i| (0, i, i, 1000)).collect();
        steps.run(&arrivals, 1);
        for i in 1..400u32 {
            let us = u64::from(i) * 1000;
            steps.push(us, 8 + i, (i - 1) % 8, 1000);
            steps.pop(us);
        }
        let flows: std::collections::BTreeSet<_> = steps.lost.iter().map(|(handle, _)| handle % 8).collect();
        assert!(flows.len() > 1, "{:?}", steps.lost);
    }

    /// A sojourn time of the threshold itself, 10 ms, is not marked, a microsecond more is.
    #[test]
    fn ce_threshold_is_exceeded_by_marked_packets() {
        let mut steps = bench(&[("ce_threshold", 0.01)], 1000, Marking::Ecn);
        steps.ecn = Ecn::Ect;
        (0..2).for_each(|handle| steps.push(0, handle, 1, 1000));
        assert_eq!([10_000, 10_001].map(|us| steps.pop(us).unwrap().ecn), [Ecn::Ect, Ecn::Ce]);
    }

    /// Two packets of 1000 bytes always wait, for 20 ms each: never more than an MTU of 1500 bytes is behind a packet.
    #[test]
    fn backlog_of_one_mtu_gets_no_signal() {
        let mut steps = bench(&[], 1000, Marking::Drop);
        steps.push(0, 0, 1, 1000);
        for i in 1..200 {
            let us = 10_000 * u64::from(i);
            steps.push(us, i, 1, 1000);
            assert_eq!(steps.pop(us).map(|pkt| pkt.handle), Some(i - 1));
        }
        assert!(steps.lost.is_empty());
    }

    /// After a standstill of 1000 s more drops are due than packets wait: one packet is sent after 64 drops.
    #[test]
    fn drops_per_departure_are_limited() {
        let mut steps = bench(&[], 1000, Marking::Drop);
        (0..300).for_each(|handle| steps.push(0, handle, 1, 1000));
        assert_eq!(steps.pop(10_000).map(|pkt| pkt.handle), Some(0));
        // The first drop, and the packet behind it.
        assert_eq!(steps.pop(110_000).map(|pkt| pkt.handle), Some(2));
        for sent in [67, 132] {
            assert_eq!(steps.pop(1_000_000_000).map(|pkt| pkt.handle), Some(sent));
        }
        assert_eq!(steps.lost.len(), 1 + 2 * 64);
    }
}
