//! For tests: a scheduler in a queue on a link of 8 Mbit/s, which sends one byte per microsecond.

use bentpipe_units::{Duration, Instant, Rate};

use crate::aqm::droptail::DropTail;
use crate::descriptor::SchedulerAlgorithm;
use crate::{
    DropHandler, DropReason, Ecn, FlowId, Limit, Link, Marking, Packet, Queue, QueueConfig, Value, Values,
};

pub(super) struct Steps {
    pub queue: Queue,
    pub lost: Vec<(u32, DropReason)>,
    pub ecn: Ecn,
}

impl DropHandler for Vec<(u32, DropReason)> {
    fn dropped(&mut self, pkt: Packet, reason: DropReason) {
        self.push((pkt.handle, reason));
    }
}

impl Steps {
    /// The scheduler with these parameters and room for `packets`.
    pub fn new(
        discipline: &SchedulerAlgorithm,
        given: &[(&str, f64)],
        packets: u32,
        marking: Marking,
        seed: u64,
    ) -> Self {
        Self::limited(discipline, given, Limit { packets, bytes: u64::MAX }, marking, seed)
    }

    /// Like [`Self::new`], with another limit.
    pub fn limited(
        discipline: &SchedulerAlgorithm,
        given: &[(&str, f64)],
        limit: Limit,
        marking: Marking,
        seed: u64,
    ) -> Self {
        let capacity = Rate::from_bps(8_000_000);
        let link = Link { capacity, mean_packet: 1000.0 };
        let value = |name: &str| given.iter().find(|(n, _)| *n == name).map(|&(_, x)| Value::Number(x));
        let built = (discipline.build)(&Values::resolve(discipline.params, &link, &value).unwrap()).unwrap();
        let setup = QueueConfig { marking, limit, capacity, seed, name: "steps".to_owned() };
        Self { queue: Queue::new(built, Box::new(DropTail), &setup), lost: Vec::new(), ecn: Ecn::NotEct }
    }

    /// A packet of a flow arrives at `us` microseconds.
    pub fn push(&mut self, us: u64, handle: u32, flow: u32, len: u32) {
        let mut pkt = Packet { ecn: self.ecn, ..Packet::new(len, FlowId(flow), handle) };
        let now = Instant::ZERO + Duration::from_micros(us);
        if self.queue.offer(&mut pkt, now, &mut self.lost) {
            self.queue.enqueue(pkt, now, &mut self.lost);
        }
        self.queue.check().unwrap();
    }

    /// Dequeues a packet at `us` microseconds: the one that `peek` showed, unless some are dropped first.
    pub fn pop(&mut self, us: u64) -> Option<Packet> {
        let shown = self.queue.peek().map(|pkt| pkt.handle);
        let lost = self.lost.len();
        let pkt = self.queue.dequeue(Instant::ZERO + Duration::from_micros(us), &mut self.lost);
        let first = self.lost.get(lost).map(|(handle, _)| *handle);
        assert_eq!(first.or(pkt.map(|pkt| pkt.handle)), shown, "peek");
        self.queue.check().unwrap();
        pkt
    }

    /// Dequeues packets at once; returns their handles.
    pub fn take<const N: usize>(&mut self, us: u64) -> [Option<u32>; N] {
        [(); N].map(|()| self.pop(us).map(|pkt| pkt.handle))
    }

    /// Serves the link until `end` microseconds, with `arrivals` in order of time; returns the packets and times of
    /// departure [us].
    pub fn run(&mut self, arrivals: &[(u64, u32, u32, u32)], end: u64) -> Vec<(u64, Packet)> {
        let (mut sent, mut free, mut next) = (Vec::new(), 0, 0);
        while free < end {
            while let Some(&(us, handle, flow, len)) = arrivals.get(next).filter(|a| a.0 <= free) {
                self.push(us, handle, flow, len);
                next += 1;
            }
            match self.pop(free) {
                Some(pkt) => {
                    sent.push((free, pkt));
                    free += u64::from(pkt.len);
                }
                None => match arrivals.get(next) {
                    Some(arrival) => free = arrival.0,
                    None => break,
                },
            }
        }
        sent
    }

    /// Returns a probe of the scheduler.
    pub fn probe(&self, name: &str) -> f64 {
        let mut found = f64::NAN;
        self.queue.probe(&mut |_, probe, value| {
            if probe == name {
                found = value;
            }
        });
        found
    }
}
