//! Drop tail: marks nothing, so that only the queue's limit discards packets.

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
