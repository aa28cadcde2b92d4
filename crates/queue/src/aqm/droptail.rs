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

use crate::registry::{Algorithm, Placement};
use crate::{Aqm, Cx, Packet, Verdict};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "droptail",
    title: "Drop tail",
    source: "folklore",
    params: &[],
    presets: &[],
    placement: Placement::Anywhere,
    build: |_| Ok(Box::new(DropTail)),
};

/// Marks nothing.
#[derive(Debug)]
pub struct DropTail;

impl Aqm for DropTail {
    fn arrive(&mut self, _pkt: &Packet, _cx: &mut Cx<'_>) -> Verdict {
        Verdict::Pass
    }
}
