//! For tests: takes an algorithm through a table of steps.

use bentpipe_units::{Duration, Instant, Rate, Rng};

use crate::descriptor::Algorithm;
use crate::{Aqm, Context, FlowEvent, FlowId, Limit, Link, Packet, QueueState, Value, Values, Verdict};

pub(super) struct Steps {
    aqm: Box<dyn Aqm>,
    rng: Rng,
    pub state: QueueState,
    /// Flow of the packets.
    pub flow: u32,
}

impl Steps {
    /// The algorithm with these parameters on a link of 8 Mbit/s: one byte per microsecond.
    pub fn new(algorithm: &Algorithm, given: &[(&str, Value)]) -> Self {
        let capacity = Rate::from_bps(8_000_000);
        let link = Link { capacity, mean_packet: 1000.0 };
        let value = |name: &str| given.iter().find(|(n, _)| *n == name).map(|(_, value)| *value);
        Self::of((algorithm.build)(&Values::resolve(algorithm.params, &link, &value).unwrap()).unwrap())
    }

    /// An existing AQM on that link.
    pub fn of(aqm: Box<dyn Aqm>) -> Self {
        let capacity = Rate::from_bps(8_000_000);
        let limit = Limit { packets: 1000, bytes: u64::MAX };
        let idle_since = Some(Instant::ZERO);
        let state = QueueState { packets: 0, bytes: 0, held: 0, limit, capacity, sent_bytes: 0, idle_since };
        Self { aqm, rng: Rng::stream(1, "steps", 0, "test"), state, flow: 0 }
    }

    /// A packet of `len` bytes arrives at `us` microseconds; it is admitted if it passes.
    pub fn arrive(&mut self, us: u64, len: u32) -> Verdict {
        self.arrive_of(us, len, self.flow)
    }

    /// Like [`Self::arrive`], of a given flow.
    pub fn arrive_of(&mut self, us: u64, len: u32, flow: u32) -> Verdict {
        let verdict = self.decide(us, len, flow);
        if verdict == Verdict::Pass {
            let (pkt, mut cx) = self.at(us, us, len);
            cx.0.admit(&Packet { flow: FlowId(flow), ..pkt }, &mut cx.1);
        }
        verdict
    }

    /// A packet arrives and is dropped even if it passes.
    pub fn decide(&mut self, us: u64, len: u32, flow: u32) -> Verdict {
        let (pkt, mut cx) = self.at(us, us, len);
        cx.0.arrive(&Packet { flow: FlowId(flow), ..pkt }, &mut cx.1)
    }

    /// A packet enters the queue.
    pub fn enqueue(&mut self, us: u64, len: u32) {
        let (pkt, mut cx) = self.at(us, us, len);
        cx.0.enqueued(&pkt, &mut cx.1);
    }

    /// A flow begins or ends.
    pub fn flow(&mut self, us: u64, flow: u32, event: FlowEvent) {
        let (_, mut cx) = self.at(us, us, 0);
        cx.0.flow(FlowId(flow), event, &mut cx.1);
    }

    /// A packet that arrived at `since` leaves at `us` microseconds.
    pub fn depart(&mut self, us: u64, since: u64, len: u32) -> Verdict {
        let (pkt, mut cx) = self.at(us, since, len);
        cx.0.depart(&pkt, &mut cx.1)
    }

    /// A packet of `len` bytes is dropped for want of room at `us` microseconds.
    pub fn overflow(&mut self, us: u64, len: u32) {
        let (pkt, mut cx) = self.at(us, us, len);
        cx.0.overflowed(&pkt, &mut cx.1);
    }

    /// Wakes the AQM at its wake time and returns that time [us].
    pub fn wake(&mut self) -> u64 {
        let now = self.aqm.wake_at().unwrap();
        self.aqm.wake(&mut Context::new(now, &self.state, &mut self.rng));
        (now - Instant::ZERO).as_nanos() / 1000
    }

    fn at(&mut self, us: u64, since: u64, len: u32) -> (Packet, (&mut dyn Aqm, Context<'_>)) {
        let time = |us| Instant::ZERO + Duration::from_micros(us);
        let pkt = Packet { arrival: time(since), ..Packet::new(len, FlowId(self.flow), 0) };
        let cx = Context::new(time(us), &self.state, &mut self.rng);
        (pkt, (self.aqm.as_mut(), cx))
    }

    /// Returns an internal value.
    pub fn probe(&self, name: &str) -> f64 {
        let mut found = f64::NAN;
        self.aqm.probe(&mut |probe, value| {
            if probe == name {
                found = value;
            }
        });
        found
    }
}
