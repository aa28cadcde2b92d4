//! For tests: a scheduler without a queue around it.

use bentpipe_units::{Instant, Rate, Rng};

use crate::descriptor::SchedulerAlgorithm;
use crate::{
    Context, DropReason, Ecn, FlowEvent, FlowId, Limit, Link, Packet, QueueState, Scheduler, SchedulerHost,
    Value, Values,
};

pub(super) struct BareScheduler {
    pub scheduler: Box<dyn Scheduler>,
    rng: Rng,
    pub state: QueueState,
    pub now: Instant,
}

impl BareScheduler {
    /// The scheduler with these parameters and room for `packets`.
    pub fn new(discipline: &SchedulerAlgorithm, given: &[(&str, Value)], packets: u32) -> Self {
        let capacity = Rate::from_bps(8_000_000);
        let link = Link { capacity, mean_packet: 1000.0 };
        let value = |name: &str| given.iter().find(|(n, _)| *n == name).map(|(_, value)| *value);
        let values = Values::resolve(discipline.params, &link, &value).unwrap();
        let limit = Limit { packets, bytes: u64::MAX };
        let idle_since = Some(Instant::ZERO);
        Self {
            scheduler: (discipline.build)(&values).unwrap(),
            rng: Rng::stream(1, "steps", 0, "test"),
            state: QueueState { packets: 0, bytes: 0, held: 0, limit, capacity, sent_bytes: 0, idle_since },
            now: Instant::ZERO,
        }
    }

    /// A packet arrives; returns the handles of those dropped for it.
    pub fn push(&mut self, pkt: Packet) -> Vec<u32> {
        let mut lost = Lost(Vec::new());
        let mut cx = Context::new(self.now, &self.state, &mut self.rng);
        self.scheduler.push(&pkt, &mut cx, &mut lost);
        self.state.packets += 1;
        self.state.bytes += u64::from(pkt.len);
        for gone in &lost.0 {
            self.left(gone);
        }
        lost.0.iter().map(|pkt| pkt.handle).collect()
    }

    /// Removes the next packet; it must be the one that `peek` showed.
    pub fn pop(&mut self) -> Option<u32> {
        let shown = self.scheduler.peek().copied();
        let mut cx = Context::new(self.now, &self.state, &mut self.rng);
        let pkt = self.scheduler.pop(&mut cx, &mut Lost(Vec::new()));
        assert_eq!(pkt, shown);
        self.left(&pkt?);
        pkt.map(|pkt| pkt.handle)
    }

    /// Removes all packets, in the order of their departure.
    pub fn rest(&mut self) -> Vec<u32> {
        std::iter::from_fn(|| self.pop()).collect()
    }

    /// Removes a waiting packet drawn at random.
    pub fn remove(&mut self) -> Option<u32> {
        let (slot, &shown) = self.scheduler.sample(&mut self.rng)?;
        let pkt = self.scheduler.remove(slot);
        assert_eq!(pkt, Some(shown));
        assert_eq!(self.scheduler.remove(slot), None, "it is gone");
        self.left(&shown);
        Some(shown.handle)
    }

    /// Announces the beginning or end of a flow.
    pub fn flow(&mut self, flow: u32, event: FlowEvent) {
        self.scheduler.flow(FlowId(flow), event);
    }

    fn left(&mut self, pkt: &Packet) {
        self.state.packets -= 1;
        self.state.bytes -= u64::from(pkt.len);
    }
}

struct Lost(Vec<Packet>);

impl SchedulerHost for Lost {
    fn dropped(&mut self, pkt: Packet, _: DropReason) {
        self.0.push(pkt);
    }

    fn mark(&mut self, pkt: Packet) -> Option<Packet> {
        Some(pkt)
    }
}

/// A host with ECN: packets without ECN are dropped.
#[derive(Default)]
pub(super) struct EcnHost {
    pub dropped: Vec<(u32, DropReason)>,
    pub marked: Vec<u32>,
}

impl SchedulerHost for EcnHost {
    fn dropped(&mut self, pkt: Packet, reason: DropReason) {
        self.dropped.push((pkt.handle, reason));
    }

    fn mark(&mut self, pkt: Packet) -> Option<Packet> {
        if pkt.ecn == Ecn::NotEct {
            self.dropped(pkt, DropReason::Aqm);
            return None;
        }
        self.marked.push(pkt.handle);
        Some(Packet { ecn: Ecn::Ce, ..pkt })
    }

    fn can_mark(&self, pkt: &Packet) -> bool {
        pkt.ecn != Ecn::NotEct
    }
}
