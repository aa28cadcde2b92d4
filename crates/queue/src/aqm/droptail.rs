//! Drop tail: marks nothing; only the queue's limit drops packets.
//!
//! Folklore. Every packet is accepted. If the queue is full, the scheduler drops the arriving packet or a waiting one,
//! as it chooses: `fifo` drops the newest.
//!
//! *Departures:* none.
//!
//! *In a satellite gateway:* the baseline of a comparison. The transmit queue grows to its limit and stays there, so
//! the limit sets the queueing delay for everyone, and it overflows in bursts that hit many connections at once. Behind
//! a PEP each such drop is of a segment that has been acknowledged to its sender: the gateway has to retransmit it over
//! the satellite. So either the limit must be so high that the PEP's buffers throttle the senders first, or an AQM has
//! to signal ahead of the PEP. As the AQM of a composite scheduler (`fq_codel`, `cake`, …) it is the right choice,
//! because those signal themselves.

use std::any::Any;

use crate::descriptor::{Algorithm, Placement};
use crate::fluid::{Arrivals, FluidModel, Inputs};
use crate::{Aqm, Context, Packet, Verdict};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "droptail",
    title: "Drop tail",
    source: "folklore",
    params: &[],
    presets: &[],
    placement: Placement::Anywhere,
    build: |_| Ok(Box::new(DropTail)),
    fluid: Some(|_, _| Ok(Box::new(DropTailFluid))),
};

/// Marks nothing.
#[derive(Debug)]
pub struct DropTail;

impl Aqm for DropTail {
    fn arrive(&mut self, _pkt: &Packet, _cx: &mut Context<'_>) -> Verdict {
        Verdict::Pass
    }

    fn resume(&mut self, previous: &mut dyn Any) -> bool {
        previous.is::<Self>()
    }
}

/// Drop tail as a fluid: no marks and no state. The network's equations contain the losses of a full queue.
struct DropTailFluid;

impl FluidModel for DropTailFluid {
    fn states(&self) -> usize {
        0
    }

    fn mark(&self, _x: &[f64], _arrivals: &Arrivals) -> f64 {
        0.0
    }

    fn derivatives(&self, _x: &[f64], _p: f64, _seen: &Inputs, _dx: &mut [f64]) {}

    fn probe(&self, _x: &[f64], _out: &mut dyn FnMut(&'static str, f64)) {}
}

#[cfg(test)]
mod tests {
    use bentpipe_units::{Instant, Rate};

    use super::super::steps::{INPUTS, derivatives, fluid};
    use super::*;
    use crate::fluid::FluidVariant;
    use crate::sched::fifo::Fifo;
    use crate::{DropHandler, DropReason, FlowId, Limit, Marking, Queue, QueueConfig};

    #[derive(Default)]
    struct Lost(Vec<u32>);

    impl DropHandler for Lost {
        fn dropped(&mut self, pkt: Packet, reason: DropReason) {
            assert_eq!(reason, DropReason::Overflow);
            self.0.push(pkt.handle);
        }
    }

    /// By hand, with room for 2 packets and 2500 bytes: 0 and 1 (1000 bytes each) fit, 2 does not; after 0 has left, 3
    /// (1600 bytes) would make 2600 bytes, and 4 (1500) makes 2500.
    #[test]
    fn packets_beyond_the_limit_are_dropped() {
        let setup = QueueConfig {
            marking: Marking::Drop,
            limit: Limit { packets: 2, bytes: 2500 },
            capacity: Rate::from_bps(8_000_000),
            seed: 1,
            name: "droptail".to_owned(),
        };
        let mut queue = Queue::new(Box::new(Fifo::default()), Box::new(DropTail), &setup);
        let (now, mut lost) = (Instant::ZERO, Lost::default());
        for (handle, len, leaves, gone) in [
            (0, 1000, false, &[][..]),
            (1, 1000, false, &[]),
            (2, 1000, true, &[2]),
            (3, 1600, false, &[2, 3]),
            (4, 1500, false, &[2, 3]),
        ] {
            let mut pkt = Packet::new(len, FlowId(0), handle);
            assert!(queue.offer(&mut pkt, now, &mut lost), "nothing is marked");
            queue.enqueue(pkt, now, &mut lost);
            assert_eq!(lost.0, gone, "after packet {handle}");
            if leaves {
                assert_eq!(queue.dequeue(now, &mut lost).map(|pkt| pkt.handle), Some(0));
            }
        }
        assert_eq!(
            [(); 3].map(|()| queue.dequeue(now, &mut lost).map(|pkt| pkt.handle)),
            [Some(1), Some(4), None]
        );
    }

    #[test]
    fn fluid_marks_nothing() {
        let model = fluid(&ALGORITHM, &[], FluidVariant::Actual);
        assert_eq!(derivatives(&*model, [], 0.0, &INPUTS), []);
        assert_eq!(model.mark(&[], &INPUTS.arrivals()), 0.0);
    }
}
