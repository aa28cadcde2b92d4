//! REDFC, RED flow control: RED's decision is whether a packet is sent now or held back for a while.
//!
//! Shang, Hadjitheodosiou & Baras 2006; [B07] 2.2.8. The average is RED's, updated at every attempt:
//! `avg += w_q (q - avg)`, and after an idle time `avg *= (1 - w_q)^m`, where `m` is the number of packets that the
//! link could have sent. Then
//!
//! - `avg < min_th`: the packet is sent;
//! - `min_th <= avg < max_th`: with RED's probability `p_a` it is held for `T` and tried again as if it had just
//!   arrived;
//! - `max_th <= avg`: it is held for `T` and tried again.
//!
//! *Departures:* the printed rule transmits with probability `p_a`; that would send more packets the longer the queue
//! is, so it is read as "hold with probability `p_a`". No limit of held packets is printed: here at most `held_limit`
//! packets are held, and one more is dropped and counted. A held packet counts until it is sent. The marking method is
//! not involved, because held packets are not marked.
//!
//! *In a satellite gateway:* it can stand ahead of the PEP and watch the transmit queue. Later packets overtake held
//! ones, the known fault of the method: a TCP sender takes three packets that overtook one for a loss, retransmits it
//! and halves its window, so the signal works by mistake, at the price of a duplicate on the terrestrial path.
//! Datagrams arrive out of order. A sender that does not slow down only fills the room for held packets, each of which
//! is tried every `T`, which costs the gateway processing time. Of historical interest.

use std::any::Any;

use bentpipe_units::Duration;

use super::average::{self, Average};
use super::uniform_dropper::{self, UniformDropper};
use crate::descriptor::{Algorithm, Placement};
use crate::{Aqm, Context, Packet, Param, ParamError, Range, Tune, Unit, Values, Verdict};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "redfc",
    title: "RED flow control",
    source: "Shang et al. 2006; [B07] 2.2.8",
    params: PARAMS,
    presets: &[],
    placement: Placement::Anywhere,
    build: |values| Ok(Box::new(RedFc::new(values)?)),
    fluid: None,
};

const PARAMS: &[Param] = &[
    uniform_dropper::MIN_TH,
    uniform_dropper::MAX_TH,
    average::W_Q,
    average::MAX_P,
    Param::number("hold", Unit::Seconds, 0.033, Range::between(1e-6, 60.0)).doc("Time for which a packet is held before it is tried again")
    .symbol("T")
    .origin("chosen here: the time from `max_th` down to `min_th`, both by default; the paper's value is not known")
    .tune(Tune::Log(0.001, 1.0)),
    Param::from_link("held_limit", Unit::Packets, Range::between(0.0, 1e9), |link| link.packets_in(0.25)).default_doc("250 ms of the link's capacity, at least one packet").doc("Maximum number of held packets; further ones are dropped")
    .origin("chosen here: the paper prints no limit")
    .tune(Tune::Around(0.1, 4.0)),
    average::MEAN_PACKET,
];

/// REDFC's state.
#[derive(Debug)]
pub struct RedFc {
    average: Average,
    dropper: UniformDropper,
    hold: Duration,
    /// [packets]
    held_limit: f64,
}

impl RedFc {
    /// # Errors
    /// Unless `min_th < max_th`.
    pub fn new(v: &Values) -> Result<Self, ParamError> {
        v.in_order("min_th", "max_th")?;
        Ok(Self {
            average: Average::new(v, false),
            dropper: UniformDropper::new(v.number("min_th"), v.number("max_th"), v.number("max_p")),
            hold: Duration::from_secs_f64(v.number("hold")),
            held_limit: v.number("held_limit"),
        })
    }
}

impl Aqm for RedFc {
    fn arrive(&mut self, _pkt: &Packet, cx: &mut Context<'_>) -> Verdict {
        let avg = self.average.sample(cx);
        if !self.dropper.draw(avg, 1.0, cx.rng) {
            return Verdict::Pass;
        }
        let room = f64::from(cx.queue.held) + 1.0 <= self.held_limit;
        if room { Verdict::Hold(self.hold) } else { Verdict::Drop }
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

    use super::super::steps::Steps;
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
    }

    impl Bench {
        /// The average is the queue's length (`w_q` is 1). Two packets may wait, a third is held for 10 ms: no whole
        /// number lies between the thresholds, 1.5 and 2.
        fn new(held_limit: f64) -> Self {
            let capacity = Rate::from_bps(8_000_000);
            let given = |name: &str| match name {
                "min_th" => Some(Value::Number(1.5)),
                "max_th" => Some(Value::Number(2.0)),
                "w_q" => Some(Value::Number(1.0)),
                "hold" => Some(Value::Number(0.01)),
                "held_limit" => Some(Value::Number(held_limit)),
                _ => None,
            };
            let values = Values::resolve(PARAMS, &Link { capacity, mean_packet: 1000.0 }, &given);
            let redfc = RedFc::new(&values.unwrap()).unwrap();
            let setup = QueueConfig {
                marking: Marking::Drop,
                limit: Limit::NONE,
                capacity,
                seed: 1,
                name: "redfc".to_owned(),
            };
            let queue = Queue::new(Box::<Fifo>::default(), Box::new(redfc), &setup);
            Self { queue, lost: Lost::default() }
        }

        /// A packet arrives; returns true if it enters.
        fn arrive(&mut self, ms: u64, handle: u32) -> bool {
            let mut pkt = Packet::new(1000, FlowId(0), handle);
            let passes = self.queue.offer(&mut pkt, at(ms), &mut self.lost);
            self.enter(passes.then_some(pkt), ms)
        }

        fn enter(&mut self, pkt: Option<Packet>, ms: u64) -> bool {
            self.queue.check().unwrap();
            if let Some(pkt) = pkt {
                self.queue.enqueue(pkt, at(ms), &mut self.lost);
            }
            pkt.is_some()
        }

        /// Wakes the queue while it is due; returns the number of held packets that enter.
        fn wake(&mut self, ms: u64) -> usize {
            let mut entered = 0;
            while self.queue.wake_at().is_some_and(|due| due <= at(ms)) {
                let pkt = self.queue.wake(at(ms), &mut self.lost);
                entered += usize::from(self.enter(pkt, ms));
            }
            entered
        }

        fn leave(&mut self, ms: u64) -> Option<u32> {
            self.queue.dequeue(at(ms), &mut self.lost).map(|pkt| pkt.handle)
        }
    }

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// Two packets wait, so 3 is held; 4 arrives after one has left, and overtakes it. At 10 ms 3 finds two packets
    /// again and is held once more; at 20 ms one has left, and it enters.
    #[test]
    fn later_packets_overtake_a_held_one() {
        let mut redfc = Bench::new(10.0);
        assert!(redfc.arrive(0, 1) && redfc.arrive(0, 2));
        assert!(!redfc.arrive(0, 3));
        assert_eq!((redfc.queue.state().held, redfc.queue.wake_at()), (1, Some(at(10))));
        assert_eq!(redfc.leave(5), Some(1));
        assert!(redfc.arrive(6, 4));
        assert_eq!((redfc.wake(10), redfc.queue.wake_at()), (0, Some(at(20))));
        assert_eq!(redfc.leave(11), Some(2));
        assert_eq!((redfc.wake(19), redfc.wake(20), redfc.queue.wake_at()), (0, 1, None));
        assert_eq!([(); 3].map(|()| redfc.leave(30)), [Some(4), Some(3), None]);
        let c = redfc.queue.counters();
        assert_eq!(
            (c.offered, c.admitted, c.dropped_on_arrival, c.sent, redfc.queue.state().held),
            (4, 4, 0, 4, 0)
        );
        assert!(redfc.lost.0.is_empty());
    }

    /// Room for two held packets: the third is dropped and counted. Those held stay held however often they are tried,
    /// and enter in order as the queue drains.
    #[test]
    fn packets_beyond_the_held_limit_are_dropped_and_counted() {
        let mut redfc = Bench::new(2.0);
        for handle in 1..=5 {
            assert_eq!(redfc.arrive(0, handle), handle <= 2);
        }
        assert_eq!((&redfc.lost.0[..], redfc.queue.counters().dropped_on_arrival), (&[5][..], 1));
        for ms in 1..=50 {
            assert_eq!(redfc.wake(ms), 0);
        }
        assert_eq!((redfc.queue.state().held, redfc.lost.0.len()), (2, 1));
        assert_eq!([redfc.leave(51), redfc.leave(51)], [Some(1), Some(2)]);
        assert_eq!(redfc.wake(60), 2);
        assert_eq!([(); 3].map(|()| redfc.leave(61)), [Some(3), Some(4), None]);
        redfc.queue.check().unwrap();
    }

    /// With `held_limit` = 0 it drops as RED does.
    #[test]
    fn held_limit_of_zero_drops_as_red_does() {
        let mut redfc = Bench::new(0.0);
        assert!(redfc.arrive(0, 1) && redfc.arrive(0, 2) && !redfc.arrive(0, 3));
        assert_eq!(redfc.lost.0, [3]);
    }

    /// Thresholds 2 and 6, avg = q = 4, `max_p` = 1/2: `p_b` = 1/4. Count 0: 1/4; then count is 1, held or not: 1/3.
    #[test]
    fn packets_are_held_with_reds_probability() {
        let given = [("min_th", 2.0), ("max_th", 6.0), ("w_q", 1.0), ("max_p", 0.5)];
        let mut redfc = Steps::new(&ALGORITHM, &given.map(|(name, x)| (name, Value::Number(x))));
        (redfc.state.idle_since, redfc.state.packets) = (None, 4);
        for p in [0.25, 1.0 / 3.0] {
            redfc.arrive(1, 1000);
            assert!((redfc.probe("p") - p).abs() < 1e-12, "{} is not {p}", redfc.probe("p"));
        }
    }
}
