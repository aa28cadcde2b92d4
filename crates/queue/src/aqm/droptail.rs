//! Drop tail: marks nothing, so that only the queue's limit discards packets.
//!
//! Folklore. Every packet passes; one that finds the queue full is discarded by the scheduler, for want of room. What
//! is discarded then, the packet that arrives or one that has been waiting, is the scheduler's choice: with `fifo` the
//! newest.
//!
//! *Departures:* none.
//!
//! *In a satellite gateway:* what there is without an AQM, and the yardstick of a comparison. The transmit queue grows
//! to its limit and stays there, so the limit is the queueing delay that everybody pays, and it overflows in bursts
//! that hit many connections at once. Behind a PEP each such drop is of a segment that its sender has been told
//! arrived: the gateway has to send it again over the satellite. So either the limit must be so high that the PEP's own
//! buffers throttle the senders first, or something else has to signal ahead of the PEP. As the AQM of a composite
//! (`fq_codel`, `cake`, …) it is the right choice: those signal themselves.

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
}

/// Drop tail as a fluid: nothing is marked, and there is no state. What the full queue loses is the equations' business.
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

    use super::*;
    use crate::sched::fifo::Fifo;
    use crate::{DropHandler, DropReason, Limit, Marking, Queue, QueueConfig};

    #[derive(Default)]
    struct Lost(Vec<u32>);

    impl DropHandler for Lost {
        fn dropped(&mut self, pkt: Packet, reason: DropReason) {
            assert_eq!(reason, DropReason::Overflow);
            self.0.push(pkt.handle);
        }
    }

    /// By hand, with room for two packets and 2500 bytes: 0 and 1 (1000 bytes each) fit, 2 is one too many; after 0 has
    /// left, 3 (1600 bytes) would make 2600 bytes, and 4 (1500) makes 2500.
    #[test]
    fn steps_with_room_for_two() {
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
            let mut pkt = Packet::new(len, 0, handle);
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
}
