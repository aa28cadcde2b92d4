//! FRED, flow random early drop: RED that takes account of each flow's packets in the queue.
//!
//! Lin & Morris 1997; [B07] 2.2. For each flow with packets in the queue it keeps their number, `qlen`, and the number
//! of times that the flow exceeded its share, `strike`. A flow's share of the queue is
//! `avgcq = max(avg / active flows, 1)`; every flow may have `min_q` packets waiting, and none more than `max_q`, which
//! is `min_th`, or 2 once `avg >= max_th`. On arrival:
//!
//! - a flow with `qlen >= max_q`, or `avg >= max_th` and `qlen > 2 avgcq`, or `qlen >= avgcq` and `strike > 1`:
//!   `strike += 1`, and the packet is dropped;
//! - `min_th <= avg < max_th`: RED's decision, but only for flows with `qlen >= max(min_q, avgcq)`; `count` grows with
//!   every packet;
//! - `max_th <= avg`: the packet is dropped;
//! - `avg < min_th`: it passes, and `count = -1`.
//!
//! `avg` is RED's, updated at arrivals and departures. A flow whose `qlen` falls to 0 is removed, with its strikes.
//!
//! *Departures:* the listing has only drops. Here RED's decision marks, so that ECN and windows work as with RED;
//! packets beyond a flow's share or above `max_th` are dropped whatever the marking method, because strikes are meant
//! for flows that do not react to marks. A scheduler with its own AQMs drops packets without notice; so all flows are
//! removed when an arrival finds the queue empty, and until then the count of such a flow is too high.
//!
//! *In a satellite gateway:* a PEP gives each connection its own buffer and window, so few connections have many
//! packets in the transmit queue at a time, and FRED does little more than RED; ahead of the PEP it decides by the
//! state of the queue as it was before the PEP's delay. It is useful if datagram flows that do not slow down share the
//! queue with connections that do: these flows are limited to `min_th` packets. Short flows with less than `min_q`
//! packets waiting are never dropped at random, which favours web pages.

use std::any::Any;

use super::average::{self, Average};
use super::uniform_dropper::{self, UniformDropper};
use crate::descriptor::{Algorithm, Placement};
use crate::{Aqm, Context, FlowId, FlowTable, Packet, Param, ParamError, Range, Tune, Unit, Values, Verdict};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "fred",
    title: "Flow random early drop",
    source: "Lin & Morris 1997; [B07] 2.2",
    params: PARAMS,
    presets: &[],
    placement: Placement::Anywhere,
    build: |values| Ok(Box::new(Fred::new(values)?)),
    fluid: None,
};

const PARAMS: &[Param] = &[
    // Every flow may have one packet waiting.
    Param { range: Range::between(1.0, 1e9), ..uniform_dropper::MIN_TH },
    uniform_dropper::MAX_TH,
    average::W_Q,
    average::MAX_P,
    Param::number("min_q", Unit::Packets, 4.0, Range::between(1.0, 1e6))
        .doc("Packets that every flow may have waiting without random marks")
        .origin("Lin & Morris 1997: 4 for large buffers, 2 for small ones")
        .tune(Tune::Log(1.0, 32.0)),
    average::MEAN_PACKET,
];

/// FRED's state.
#[derive(Debug)]
pub struct Fred {
    min_q: f64,
    average: Average,
    dropper: UniformDropper,
    /// Flows with packets in the watched queue.
    flows: FlowTable<Known>,
}

/// State of a flow.
#[derive(Clone, Copy, Debug)]
struct Known {
    qlen: u32,
    strike: u32,
}

impl Fred {
    /// # Errors
    /// Unless `min_th < max_th`.
    pub fn new(v: &Values) -> Result<Self, ParamError> {
        v.in_order("min_th", "max_th")?;
        Ok(Self {
            min_q: v.number("min_q"),
            average: Average::new(v, false),
            dropper: UniformDropper::new(v.number("min_th"), v.number("max_th"), v.number("max_p")),
            flows: FlowTable::default(),
        })
    }

    /// A flow's share of the queue.
    fn avgcq(&self) -> f64 {
        (self.average.avg / (self.flows.len().max(1)) as f64).max(1.0)
    }

    /// Removes a packet of a flow from its count.
    fn remove(&mut self, flow: FlowId) {
        if let Some(known) = self.flows.get_mut(flow) {
            known.qlen -= 1;
            if known.qlen == 0 {
                self.flows.remove(flow);
            }
        }
    }
}

impl Aqm for Fred {
    fn arrive(&mut self, pkt: &Packet, cx: &mut Context<'_>) -> Verdict {
        if cx.queue.packets == 0 && !self.flows.is_empty() {
            self.flows.clear();
        }
        let avg = self.average.sample(cx);
        let (min_th, max_th) = (self.dropper.min_th, self.dropper.max_th);
        let avgcq = self.avgcq();
        let max_q = if avg >= max_th { 2.0 } else { min_th };
        let mut qlen = 0.0;
        // A flow without packets waiting has no strikes, and all limits are at least one packet.
        if let Some(known) = self.flows.get_mut(pkt.flow) {
            qlen = f64::from(known.qlen);
            let apart =
                qlen >= max_q || (avg >= max_th && qlen > 2.0 * avgcq) || (qlen >= avgcq && known.strike > 1);
            if apart {
                known.strike = known.strike.saturating_add(1);
                return Verdict::Drop;
            }
        }
        if min_th <= avg && avg < max_th && qlen < self.min_q.max(avgcq) {
            self.dropper.pass();
            return Verdict::Pass;
        }
        match self.dropper.draw(avg, 1.0, cx.rng) {
            true if avg >= max_th => Verdict::Drop,
            true => Verdict::Mark,
            false => Verdict::Pass,
        }
    }

    fn enqueued(&mut self, pkt: &Packet, _cx: &mut Context<'_>) {
        self.flows.get_or_insert_with(pkt.flow, || Known { qlen: 0, strike: 0 }).qlen += 1;
    }

    fn depart(&mut self, pkt: &Packet, cx: &mut Context<'_>) -> Verdict {
        self.average.sample(cx);
        self.remove(pkt.flow);
        Verdict::Pass
    }

    fn overflowed(&mut self, pkt: &Packet, _cx: &mut Context<'_>) {
        self.remove(pkt.flow);
    }

    fn resume(&mut self, previous: &mut dyn Any) -> bool {
        let Some(was) = previous.downcast_mut::<Self>() else { return false };
        self.average.resume(&was.average);
        self.dropper.resume(&was.dropper);
        std::mem::swap(&mut self.flows, &mut was.flows);
        true
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("avg", self.average.avg);
        out("avgcq", self.avgcq());
        out("active_flows", self.flows.len() as f64);
        out("p", self.dropper.probability());
    }
}

#[cfg(test)]
mod tests {
    use super::super::steps::Steps;
    use super::*;
    use crate::Value;

    /// Two flows whose numbers are far apart.
    const A: u32 = 0;
    const B: u32 = u32::MAX;

    /// The average is the queue's length (`w_q` is 1).
    fn fred(given: &[(&'static str, f64)]) -> Steps {
        let mut values: Vec<_> = given.iter().map(|(name, x)| (*name, Value::Number(*x))).collect();
        values.push(("w_q", Value::Number(1.0)));
        let mut fred = Steps::new(&ALGORITHM, &values);
        fred.state.idle_since = None;
        fred
    }

    fn arrive(fred: &mut Steps, flow: u32) -> Verdict {
        fred.flow = flow;
        fred.arrive(1, 1000)
    }

    fn enter(fred: &mut Steps, flow: u32, packets: u32) {
        fred.flow = flow;
        for _ in 0..packets {
            fred.state.packets += 1;
            fred.enqueue(1, 1000);
        }
    }

    fn leave(fred: &mut Steps, flow: u32, packets: u32) {
        fred.flow = flow;
        for _ in 0..packets {
            fred.state.packets -= 1;
            assert_eq!(fred.depart(1, 1, 1000), Verdict::Pass);
        }
    }

    /// Worked out by hand with thresholds 4 and 8 and almost no marks by RED (`max_p` = 1e-9).
    #[test]
    fn arrivals_follow_the_printed_listing() {
        let mut fred = fred(&[("min_th", 4.0), ("max_th", 8.0), ("min_q", 2.0), ("max_p", 1e-9)]);
        assert_eq!(arrive(&mut fred, A), Verdict::Pass);
        assert_eq!(fred.probe("active_flows"), 0.0, "none of its packets is in the queue yet");
        enter(&mut fred, A, 4);
        // qlen = 4 = max_q: dropped, strike = 1; one strike alone does not limit it to its share.
        assert_eq!(arrive(&mut fred, A), Verdict::Drop);
        leave(&mut fred, A, 1);
        assert_eq!(arrive(&mut fred, A), Verdict::Pass);
        // Again: strike = 2.
        enter(&mut fred, A, 1);
        assert_eq!(arrive(&mut fred, A), Verdict::Drop);
        assert_eq!((fred.probe("avg"), fred.probe("avgcq")), (4.0, 4.0));
        // qlen = 3 = avgcq: with two strikes it may not exceed its share.
        leave(&mut fred, A, 1);
        assert_eq!(arrive(&mut fred, A), Verdict::Drop);
        // B has as many and no strikes: avg = 6, avgcq = 3, and RED lets it pass.
        enter(&mut fred, B, 3);
        assert_eq!([arrive(&mut fred, B), arrive(&mut fred, A)], [Verdict::Pass, Verdict::Drop]);
        assert_eq!((fred.probe("avgcq"), fred.probe("active_flows")), (3.0, 2.0));
        // avg = 8: B has more than 2; a flow with nothing waiting is dropped too, and is not added.
        enter(&mut fred, B, 2);
        assert_eq!([arrive(&mut fred, B), arrive(&mut fred, 5)], [Verdict::Drop; 2]);
        assert_eq!(fred.probe("active_flows"), 2.0);
        // A leaves and is removed with its strikes: when it has three packets again, one more is accepted.
        leave(&mut fred, A, 3);
        assert_eq!((fred.probe("active_flows"), fred.probe("avg")), (1.0, 5.0));
        leave(&mut fred, B, 5);
        enter(&mut fred, A, 3);
        assert_eq!(arrive(&mut fred, A), Verdict::Pass);
    }

    /// With `min_th` = 1 a flow is limited to one packet; once the average is `max_th`, to two.
    #[test]
    fn flows_may_have_two_packets_above_the_upper_threshold() {
        let mut fred = fred(&[("min_th", 1.0), ("max_th", 5.0), ("max_p", 1e-9)]);
        enter(&mut fred, A, 1);
        assert_eq!(arrive(&mut fred, A), Verdict::Drop, "qlen = 1 = max_q");
        for flow in 1..5 {
            enter(&mut fred, flow, 1);
        }
        // avg = 5: no strike with one packet, but at max_th the packet is dropped anyway, with p = 1.
        assert_eq!((arrive(&mut fred, 4), fred.probe("p")), (Verdict::Drop, 1.0));
        // Back at avg = 4, p is 0 for flow 1, of which nothing waits; flow 4 with its one packet has a strike, and p is
        // unchanged.
        leave(&mut fred, 1, 1);
        assert_eq!((arrive(&mut fred, 1), fred.probe("p")), (Verdict::Pass, 0.0));
        assert_eq!((arrive(&mut fred, 4), fred.probe("p")), (Verdict::Drop, 0.0));
        // avg = 6 with two packets of flow 4: a strike, as p is unchanged.
        enter(&mut fred, 4, 2);
        leave(&mut fred, 4, 1);
        enter(&mut fred, 1, 1);
        assert_eq!((arrive(&mut fred, 4), fred.probe("p")), (Verdict::Drop, 0.0));
    }

    /// With `min_q` = 4 RED never decides about a flow that has three packets, but counts them; so after 100 of them
    /// the first packet of another flow is marked for certain: `p_b` = 1/2, and 100 times that is above 1.
    #[test]
    fn flows_below_min_q_are_counted_but_not_marked() {
        let mut fred = fred(&[("min_th", 10.0), ("max_th", 30.0), ("min_q", 4.0), ("max_p", 1.0)]);
        enter(&mut fred, A, 3);
        enter(&mut fred, B, 9);
        for flow in 1..9 {
            enter(&mut fred, flow, 1);
        }
        for _ in 0..100 {
            assert_eq!((arrive(&mut fred, A), fred.probe("p")), (Verdict::Pass, 0.0));
        }
        assert_eq!((arrive(&mut fred, B), fred.probe("p")), (Verdict::Mark, 1.0));
    }

    /// Flows whose packets left without notice are removed when the queue is found empty.
    #[test]
    fn empty_queue_has_no_flows() {
        let mut fred = fred(&[]);
        enter(&mut fred, A, 30);
        fred.state.packets = 0;
        assert_eq!((arrive(&mut fred, A), fred.probe("active_flows")), (Verdict::Pass, 0.0));
    }

    /// A has 9 packets and B 6: avg = 15 and avgcq = 7.5. B has more than `min_q`, but less than its share, so RED does
    /// not decide; with two more it does: `p_b` = 1/2 (17 - 10) / 20, and count is 1.
    #[test]
    fn flows_below_their_share_are_not_marked() {
        let mut fred = fred(&[("min_th", 10.0), ("max_th", 30.0), ("min_q", 2.0), ("max_p", 0.5)]);
        enter(&mut fred, A, 9);
        assert_eq!(fred.probe("avgcq"), 1.0, "no average yet, and a share is at least one packet");
        enter(&mut fred, B, 6);
        assert_eq!((arrive(&mut fred, B), fred.probe("p")), (Verdict::Pass, 0.0));
        enter(&mut fred, B, 3);
        arrive(&mut fred, B);
        assert_eq!(fred.probe("avgcq"), 9.0);
        assert!((fred.probe("p") - 0.2 / (1.0 - 0.2)).abs() < 1e-12, "{}", fred.probe("p"));
    }

    /// A packet dropped because the queue was full does not count for its flow.
    #[test]
    fn overflowed_packets_are_not_counted() {
        let mut fred = fred(&[]);
        enter(&mut fred, A, 2);
        fred.overflow(1, 1000);
        assert_eq!(fred.probe("active_flows"), 1.0);
        fred.overflow(1, 1000);
        assert_eq!(fred.probe("active_flows"), 0.0);
    }

    /// Every flow may have one packet waiting.
    #[test]
    fn min_th_below_one_packet_is_refused() {
        let link = crate::Link { capacity: bentpipe_units::Rate::from_bps(8_000_000), mean_packet: 1000.0 };
        let given = |name: &str| (name == "min_th").then_some(Value::Number(0.5));
        let error = Values::resolve(PARAMS, &link, &given).unwrap_err();
        assert_eq!(error.name, "min_th");
    }
}
