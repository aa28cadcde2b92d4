//! First in, first out; a full queue discards the packet that arrives (drop tail).

use std::collections::VecDeque;

use crate::registry::Discipline;
use crate::{Cx, DropReason, Outcome, Packet, Scheduler};

/// The registry's entry.
pub const DISCIPLINE: Discipline = Discipline {
    name: "fifo",
    title: "First in, first out",
    source: "folklore",
    params: &[],
    signals: false,
    build: |_| Ok(Box::new(Fifo::default())),
};

/// First in, first out.
#[derive(Debug, Default)]
pub struct Fifo {
    waiting: VecDeque<Packet>,
}

impl Scheduler for Fifo {
    fn push(&mut self, pkt: Packet, cx: &mut Cx<'_>, out: &mut dyn Outcome) {
        if cx.queue.limit.has_room(cx.queue.packets, cx.queue.bytes, pkt.len) {
            self.waiting.push_back(pkt);
        } else {
            out.dropped(pkt, DropReason::Overflow);
        }
    }

    fn pop(&mut self, _cx: &mut Cx<'_>, _out: &mut dyn Outcome) -> Option<Packet> {
        self.waiting.pop_front()
    }

    fn peek(&self) -> Option<&Packet> {
        self.waiting.front()
    }
}
