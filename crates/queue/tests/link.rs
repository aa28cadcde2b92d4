//! A queue on a link, and arrivals that programs in other languages make, too.

use bentpipe_queue::registry::{aqm, scheduler};
use bentpipe_queue::{
    DropHandler, DropReason, Ecn, FlowId, Limit, Link, Marking, Packet, Queue, QueueConfig, Value, Values,
};
use bentpipe_units::{Instant, Rate};

const LENGTHS: [u32; 8] = [64, 200, 576, 1000, 1000, 1500, 1500, 1500];
const LOADS: [u64; 5] = [450, 630, 990, 1350, 1980];

/// Packets that arrive in phases of different load, given in thousandths of the link's capacity.
pub(crate) struct Arrivals {
    state: u64,
    scale: u64,
    flows: u64,
    load: u64,
    left: u64,
    time: u64,
}

impl Arrivals {
    pub(crate) fn new(seed: u64, scale: u64, flows: u64) -> Self {
        Self { state: seed, scale, flows, load: 0, left: 0, time: 0 }
    }

    fn draw(&mut self, bound: u64) -> u64 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % bound
    }
}

impl Iterator for Arrivals {
    /// Time [ns], flow and length.
    type Item = (u64, FlowId, u32);

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            self.load = LOADS[self.draw(5) as usize] * self.scale / 1000;
            self.left = 100 + self.draw(900);
        }
        self.left -= 1;
        self.time += self.draw(2 * 917_500_000 / self.load) / 1000 * 1000;
        let flow = if self.draw(10) < 7 { self.draw(self.flows) } else { 0 };
        Some((self.time, FlowId(flow as u32), LENGTHS[self.draw(8) as usize]))
    }
}

#[derive(Default)]
struct Dropped(Vec<u32>);

impl DropHandler for Dropped {
    fn dropped(&mut self, pkt: Packet, _: DropReason) {
        self.0.push(pkt.handle);
    }
}

/// Fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Sent,
    SentMarked,
    Dropped,
}

/// A queue on a link of 8 Mbit/s.
pub(crate) struct Bench {
    queue: Queue,
    ecn: Ecn,
    dropped: Dropped,
    /// Times [ns] and packets.
    pub(crate) events: Vec<(Fate, u64, u32)>,
    /// Sum over the packets sent [ns].
    delays: u64,
}

impl Bench {
    /// `name` is an AQM, which stands in front of a FIFO queue, or a scheduler.
    pub(crate) fn new(name: &str, given: &[(&str, Value)], limit: Limit, ecn: bool, seed: u64) -> Self {
        let capacity = Rate::from_bps(8_000_000);
        let link = Link { capacity, mean_packet: 1000.0 };
        let value = |name: &str| given.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        let (fifo, droptail) = (scheduler("fifo").unwrap(), aqm("droptail").unwrap());
        let (scheduler, aqm) = match aqm(name) {
            Some(aqm) => (fifo, aqm),
            None => (scheduler(name).unwrap(), droptail),
        };
        let scheduler =
            (scheduler.build)(&Values::resolve(scheduler.params, &link, &value).unwrap()).unwrap();
        let aqm = (aqm.build)(&Values::resolve(aqm.params, &link, &value).unwrap()).unwrap();
        let (marking, ecn) = if ecn { (Marking::Ecn, Ecn::Ect) } else { (Marking::Drop, Ecn::NotEct) };
        let setup = QueueConfig { marking, limit, capacity, seed, name: name.to_owned() };
        Self {
            queue: Queue::new(scheduler, aqm, &setup),
            ecn,
            dropped: Dropped::default(),
            events: Vec::new(),
            delays: 0,
        }
    }

    pub(crate) fn run(&mut self, arrivals: impl IntoIterator<Item = (u64, FlowId, u32)>) {
        let mut free = None;
        for (handle, (time, flow, len)) in (0..).zip(arrivals) {
            while let Some(at) = free.filter(|at| *at <= time) {
                free = self.serve(at);
            }
            self.wake(time);
            let user = FlowId(flow.0 % 3);
            let (mut pkt, now) = (
                Packet {
                    ecn: self.ecn,
                    user,
                    dscp: [0, 8, 26, 46][flow.0 as usize % 4],
                    ..Packet::new(len, flow, handle)
                },
                Instant::from_nanos(time),
            );
            if self.queue.offer(&mut pkt, now, &mut self.dropped) {
                self.queue.enqueue(pkt, now, &mut self.dropped);
            }
            self.note_drops(time);
            if free.is_none() {
                free = self.serve(time);
            }
        }
        while let Some(at) = free {
            free = self.serve(at);
        }
    }

    /// Sends a packet; returns the time at which the link is free again [ns].
    fn serve(&mut self, at: u64) -> Option<u64> {
        self.wake(at);
        let pkt = self.queue.dequeue(Instant::from_nanos(at), &mut self.dropped);
        self.note_drops(at);
        let pkt = pkt?;
        let fate = if pkt.ecn == Ecn::Ce { Fate::SentMarked } else { Fate::Sent };
        self.events.push((fate, at, pkt.handle));
        self.delays += (Instant::from_nanos(at) - pkt.arrival).as_nanos();
        Some(at + u64::from(pkt.len) * 1000)
    }

    /// Wakes the queue for every update until `at`.
    fn wake(&mut self, at: u64) {
        while let Some(due) = self.queue.wake_at().filter(|due| *due <= Instant::from_nanos(at)) {
            assert!(self.queue.wake(due, &mut self.dropped).is_none());
        }
    }

    fn note_drops(&mut self, at: u64) {
        self.events.extend(self.dropped.0.drain(..).map(|handle| (Fate::Dropped, at, handle)));
    }

    /// Times of the drops [ns].
    pub(crate) fn drops(&self) -> impl Iterator<Item = u64> {
        self.events.iter().filter(|(fate, ..)| *fate == Fate::Dropped).map(|(_, at, _)| *at)
    }

    /// Mean delay of the packets sent [ns].
    pub(crate) fn mean_delay(&self) -> f64 {
        self.delays as f64 / (self.events.len() - self.drops().count()) as f64
    }
}

/// A limit in packets.
pub(crate) fn room(packets: u32) -> Limit {
    Limit { packets, bytes: u64::MAX }
}
