//! CHOKe: choose and keep for responsive flows, choose and kill for unresponsive flows.
//!
//! Pan, Prabhakar & Psounis 2000; [B07] 2.2.4. A flow that takes more than its share of a queue is detected without
//! per-flow state: a packet drawn at random from the queue most likely belongs to it. The average is RED's, on every
//! arrival: `avg += w_q (q - avg)`, and after an idle time `avg *= (1 - w_q)^m`, where `m` is the number of packets
//! that the link could have sent. Then
//!
//! - `avg < min_th`: the packet passes;
//! - `min_th <= avg < max_th`: a waiting packet is drawn at random. If it belongs to the flow of the arriving packet,
//!   both are dropped; otherwise it stays, and RED decides about the arriving packet;
//! - `max_th <= avg`: the arriving packet is marked.
//!
//! *Departures:* the listing of Pan et al. compares above `max_th` too, where the arriving packet is lost anyway and
//! the draw can only cost its flow a second one; [B07] and this file compare between the thresholds, and `beyond`
//! compares from `min_th` on without upper limit, as the listing and Linux do. Both packets of a matching flow are
//! dropped whatever the marking method: the waiting one is past the mark point, and flows that ignore marks are the
//! reason for the comparison.
//!
//! *In a satellite gateway:* it removes packets from the watched queue, so watch and mark point coincide. In the
//! transmit queue its victims have been acknowledged to their senders by the PEP: they are retransmitted over the
//! satellite, and no sender slows down. Its place is a receive queue with its own rate, or a gateway without split
//! connections; it is useful if some flows are not TCP and do not slow down. With many flows of equal rates it is RED
//! with a few more drops: of `n` such flows one packet in `n` matches. With a composite scheduler (`fq_codel`, `cake`,
//! …), which gives no access to waiting packets, nothing is compared and it is RED.

use std::any::Any;

use super::average::{self, Average};
use super::uniform_dropper::{self, UniformDropper};
use crate::descriptor::{Algorithm, Placement};
use crate::{Aqm, Context, Packet, Param, ParamError, Tune, Values, Verdict};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "choke",
    title: "CHOKe: choose and keep, choose and kill",
    source: "Pan et al. 2000; [B07] 2.2.4",
    params: PARAMS,
    presets: &[],
    placement: Placement::WatchedQueue,
    build: |values| Ok(Box::new(Choke::new(values)?)),
    fluid: None,
};

const PARAMS: &[Param] = &[
    uniform_dropper::MIN_TH,
    uniform_dropper::MAX_TH,
    average::W_Q,
    average::MAX_P,
    Param::flag("beyond", false, "Compare from `max_th` on too, as Pan et al.'s listing does")
        .origin("[B07] 2.2.4")
        .tune(Tune::Each),
    average::MEAN_PACKET,
];

/// CHOKe's state.
#[derive(Debug)]
pub struct Choke {
    beyond: bool,
    average: Average,
    dropper: UniformDropper,
}

impl Choke {
    /// # Errors
    /// Unless `min_th < max_th`.
    pub fn new(v: &Values) -> Result<Self, ParamError> {
        v.in_order("min_th", "max_th")?;
        Ok(Self {
            beyond: v.flag("beyond"),
            average: Average::new(v, false),
            dropper: UniformDropper::new(v.number("min_th"), v.number("max_th"), v.number("max_p")),
        })
    }
}

impl Aqm for Choke {
    fn arrive(&mut self, pkt: &Packet, cx: &mut Context<'_>) -> Verdict {
        let avg = self.average.sample(cx);
        if avg >= self.dropper.min_th
            && (avg < self.dropper.max_th || self.beyond)
            && let Some((slot, waiting)) = cx.sample()
            && waiting.flow == pkt.flow
        {
            return Verdict::DropBoth(slot);
        }
        if self.dropper.draw(avg, 1.0, cx.rng) { Verdict::Mark } else { Verdict::Pass }
    }

    fn resume(&mut self, previous: &mut dyn Any) -> bool {
        let Some(was) = previous.downcast_mut::<Self>() else { return false };
        self.average.resume(&was.average);
        self.dropper.resume(&was.dropper);
        true
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("avg", self.average.avg);
        out("p", self.dropper.probability());
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_units::{Instant, Rate};

    use super::*;
    use crate::{
        DropHandler, DropReason, FlowId, Limit, Link, Marking, Queue, QueueConfig, Value, sched::fifo::Fifo,
    };

    #[derive(Default)]
    struct Lost(Vec<u32>);

    impl DropHandler for Lost {
        fn dropped(&mut self, pkt: Packet, reason: DropReason) {
            assert_eq!(reason, DropReason::Aqm);
            self.0.push(pkt.handle);
        }
    }

    struct Bench {
        queue: Queue,
        lost: Lost,
        arrived: u32,
    }

    impl Bench {
        /// The average is the queue's length: `w_q` is 1.
        fn new(min_th: f64, max_th: f64, beyond: bool) -> Self {
            Self::with(min_th, max_th, 1e-9, beyond)
        }

        fn with(min_th: f64, max_th: f64, max_p: f64, beyond: bool) -> Self {
            let capacity = Rate::from_bps(8_000_000);
            let link = Link { capacity, mean_packet: 1000.0 };
            let given = |name: &str| match name {
                "min_th" => Some(Value::Number(min_th)),
                "max_th" => Some(Value::Number(max_th)),
                "w_q" => Some(Value::Number(1.0)),
                "max_p" => Some(Value::Number(max_p)),
                "beyond" => Some(Value::Flag(beyond)),
                _ => None,
            };
            let choke = Choke::new(&Values::resolve(PARAMS, &link, &given).unwrap()).unwrap();
            let setup = QueueConfig {
                marking: Marking::Drop,
                limit: Limit::NONE,
                capacity,
                seed: 1,
                name: "choke".to_owned(),
            };
            let queue = Queue::new(Box::<Fifo>::default(), Box::new(choke), &setup);
            Self { queue, lost: Lost::default(), arrived: 0 }
        }

        /// A packet of a flow arrives, with the number of those before it as handle. Returns the number of waiting
        /// packets and those lost.
        fn arrive(&mut self, flow: u32) -> (u32, Vec<u32>) {
            let mut pkt = Packet::new(1000, FlowId(flow), self.arrived);
            self.arrived += 1;
            if self.queue.offer(&mut pkt, Instant::ZERO, &mut self.lost) {
                self.queue.enqueue(pkt, Instant::ZERO, &mut self.lost);
            }
            self.queue.check().unwrap();
            (self.queue.state().packets, std::mem::take(&mut self.lost.0))
        }
    }

    /// One flow, from `min_th` = 2 on: every drawn packet belongs to it. The first packet finds none, the second one,
    /// and the third two waiting: it is dropped with one of them. Then one waits, the next is accepted, and so on.
    #[test]
    fn single_flow_never_exceeds_the_lower_threshold() {
        let mut choke = Bench::new(2.0, 1000.0, false);
        assert_eq!(choke.arrive(7), (1, vec![]));
        assert_eq!(choke.arrive(7), (2, vec![]));
        for _ in 0..100 {
            let (waiting, lost) = choke.arrive(7);
            assert_eq!((waiting, lost.len()), (1, 2));
            assert!(lost.contains(&(choke.arrived - 1)) && lost[0] != lost[1]);
            assert_eq!(choke.arrive(7), (2, vec![]));
        }
        let counters = choke.queue.counters();
        assert_eq!(
            (counters.dropped_on_arrival, counters.dropped_in_queue, counters.marked),
            (100, 100, 200)
        );
    }

    /// The queue holds no packet of flow 2, so none of it is dropped, as `max_p` is almost 0; a packet of flow 1
    /// matches.
    #[test]
    fn flows_without_a_match_are_not_dropped() {
        let mut choke = Bench::new(2.0, 1000.0, false);
        choke.arrive(1);
        choke.arrive(1);
        assert_eq!(choke.arrive(2), (3, vec![]));
        let mut met = 0;
        for flow in 3..1000 {
            met += choke.arrive(flow).1.len();
        }
        assert_eq!((met, choke.queue.state().packets), (0, 1000));
    }

    /// Ten flows with a packet each; a packet of flow 3 matches once in ten: 1000 trials of 1/10 have a standard
    /// deviation of 9.5.
    #[test]
    fn match_probability_is_the_share_of_the_queue() {
        let mut choke = Bench::new(10.0, 1000.0, false);
        let mut met = 0;
        for _ in 0..1000 {
            // The waiting packets are sent, and each of ten flows brings a packet.
            while choke.queue.dequeue(Instant::ZERO, &mut Lost::default()).is_some() {}
            for flow in 0..10 {
                assert_eq!(choke.arrive(flow).1, []);
            }
            met += choke.arrive(3).1.len() / 2;
        }
        assert!((60..140).contains(&met), "{met}");
    }

    /// At `max_th` the arriving packet is lost by RED's rule alone or, with `beyond`, together with a waiting one.
    #[test]
    fn beyond_drops_two_packets_above_the_upper_threshold() {
        for (beyond, waiting, lost) in [(false, 4, 1), (true, 3, 2)] {
            let mut choke = Bench::new(4.0 - 1e-9, 4.0, beyond);
            for _ in 0..4 {
                choke.arrive(1);
            }
            let (left, gone) = choke.arrive(1);
            assert_eq!((left, gone.len()), (waiting, lost), "beyond: {beyond}");
        }
    }

    /// Four packets wait between 2 and 6, `max_p` = 1/2, and no flow occurs twice: `p_b` = 1/4, and the distances
    /// between RED's marks are 1, 2 or 3 packets, two on average. Of 2000 packets half are lost, with a standard
    /// deviation of 13, one at a time.
    #[test]
    fn red_decides_about_packets_without_a_match() {
        let mut choke = Bench::with(2.0, 6.0, 0.5, false);
        for flow in 0..100 {
            if choke.queue.state().packets < 4 {
                choke.arrive(flow);
            }
        }
        let mut marks = 0;
        for flow in 100..2100 {
            let (waiting, lost) = choke.arrive(flow);
            assert_eq!(waiting as usize + lost.len(), 5);
            marks += lost.len();
            if waiting == 5 {
                choke.queue.dequeue(Instant::ZERO, &mut Lost::default());
            }
        }
        assert!((935..=1065).contains(&marks), "{marks}");
    }
}
