//! Links that packets pass one after the other, without an engine of their own: whoever holds the packets' way in and
//! out tells the time.
//!
//! A link is the scenario's: its queue with what watches it, its rate or what its capacity comes to, its losses and its
//! delay, by the simulator's own models. What happens, happens at its own time, however late [`Links::advance`] is
//! called: being late does not add up from one link to the next.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::BinaryHeap;
use std::net::IpAddr;

use bentpipe_link::{Capacity, Loss, Satellite, Sender, Sent};
use bentpipe_packet::{Info, set_ce};
use bentpipe_queue::aqm::droptail::DropTail;
use bentpipe_queue::sched::fifo::Fifo;
use bentpipe_queue::{DropHandler, DropReason, Ecn, Limit, Marking, Packet, Queue, QueueConfig};
use bentpipe_scenario as scenario;
use bentpipe_scenario::{Delay, Direction, LossAt, LossOf, Modulation, Per, Scenario};
use bentpipe_units::{Duration, Instant, Rate, Rng};

use crate::plan::{Extras, Plan, PlanError};

/// Bytes of packets that are held at most; more are dropped, whatever the scenario says.
const MOST_BYTES: u64 = 512 << 20;

/// Why a packet did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Lost by the scenario's law.
    Loss,
    /// Lost as the plan adds.
    Extra,
    /// Sent in an outage that the plan adds.
    Outage,
    /// Sent between two satellites.
    Handover,
    /// Given up by the link layer.
    Access,
    /// Discarded by an AQM.
    Aqm,
    /// The queue was full.
    Overflow,
    /// The emulation itself held too much.
    Memory,
}

/// All causes, with their names in statistics.
pub const CAUSES: [(Cause, &str); 8] = [
    (Cause::Loss, "loss"),
    (Cause::Extra, "extra_loss"),
    (Cause::Outage, "outage"),
    (Cause::Handover, "handover"),
    (Cause::Access, "access"),
    (Cause::Aqm, "aqm"),
    (Cause::Overflow, "overflow"),
    (Cause::Memory, "memory"),
];

/// What passed a link one way, all members of a group together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Packets that came to the link.
    pub packets: u64,
    /// Their lengths [bytes].
    pub bytes: u64,
    /// Packets that reached its end, copies among them.
    pub arrived: u64,
    /// Their lengths [bytes].
    pub arrived_bytes: u64,
    /// Dropped, in the order of [`CAUSES`].
    pub dropped: [u64; CAUSES.len()],
    /// Marked instead of dropped.
    pub marked: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Kept back so that others overtake.
    pub reordered: u64,
    /// Sum of the times from coming to the link to its end [ns].
    delays: u64,
}

impl Counts {
    /// Mean time from coming to the link to its end [s]; NaN where nothing arrived.
    #[must_use]
    pub fn delay_mean(&self) -> f64 {
        self.delays as f64 * 1e-9 / self.arrived as f64
    }
}

/// A packet that has passed all links of its segment.
#[derive(Debug)]
pub struct Passed {
    /// Its segment.
    pub segment: u32,
    /// The end that it leaves at: 0 is the first, 1 the second.
    pub end: u8,
    /// When it arrived, or should have.
    pub due: Instant,
    /// The packet; give its room back by [`Links::give_back`].
    pub packet: Vec<u8>,
}

/// A packet on its way.
struct Held {
    packet: Vec<u8>,
    info: Info,
    segment: u32,
    /// The end that it goes to.
    end: u8,
    /// The link of its way that it is on.
    hop: u32,
    /// When it came to it.
    came: Instant,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A packet reaches the end of its link.
    Arrive(u32),
    /// A lane has sent its packet.
    Free(u32),
    /// A lane's AQM wants to be called.
    Wake(u32),
    /// A lane's capacity changes.
    Capacity(u32),
}

/// A link's lanes on the way of a segment, one for each member of a group.
struct Hop {
    first: u32,
    /// The group of hosts that have a link each.
    group: Option<u32>,
    /// Where it is counted.
    row: u32,
}

/// One way of one link.
struct Lane {
    row: u32,
    rate: Option<Rate>,
    delay: Delay,
    fixed: Option<Duration>,
    /// What draws of connections hang on.
    draws: Draws,
    loss: Loss,
    of: LossOf,
    at: LossAt,
    satellite: Option<Satellite>,
    extras: Extras,
    queue: Option<Queue>,
    sender: Option<Sender>,
    capacity: Option<Capacity>,
    /// The group whose hosts have rates of their own.
    rates_of: Option<u32>,
    /// A packet that has been sent in part, and what is left of it [bytes].
    partly: Option<(Packet, u32)>,
    busy: bool,
    /// When it has sent all that it was given, where there is no queue.
    busy_until: Instant,
    wake_at: Instant,
    /// When the last packet arrives, for none is to overtake another.
    last: Instant,
    loss_rng: Rng,
    delay_rng: Rng,
    extra_rng: Rng,
}

/// Where a connection's own delay comes from.
struct Draws {
    seed: u64,
    name: String,
    purpose: &'static str,
}

/// The links of all segments, with the packets on them.
pub struct Links {
    /// Capacities that have changed since [`Links::changed`] was asked, by the row of [`Links::counts`].
    changed: Vec<(u32, Rate)>,
    /// For each segment, the way to its first end and to its second.
    ways: Vec<[Vec<Hop>; 2]>,
    lanes: Vec<Lane>,
    /// Names of the links and whether it is their way forward, for each row of counts.
    rows: Vec<(String, bool)>,
    counts: Vec<Counts>,
    held: Vec<Option<Held>>,
    free: Vec<u32>,
    bytes: u64,
    events: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    number: u64,
    hosts: BTreeMap<IpAddr, (u32, u32)>,
    discarded: Discarded,
    room: Vec<Vec<u8>>,
}

#[derive(Default)]
struct Discarded(Vec<(Packet, DropReason)>);

impl DropHandler for Discarded {
    fn dropped(&mut self, pkt: Packet, reason: DropReason) {
        self.0.push((pkt, reason));
    }
}

impl Links {
    /// The links of a plan's segments, with nothing on them.
    ///
    /// # Errors
    /// Where a queue cannot be made as the scenario says.
    pub fn new(plan: &Plan) -> Result<Self, PlanError> {
        let mut hosts = BTreeMap::new();
        for (group, list) in (0..).zip(&plan.hosts) {
            for (host, addresses) in (0..).zip(list.iter().flat_map(|hosts| &hosts.addresses)) {
                hosts.extend(addresses.iter().map(|address| (*address, (group, host))));
            }
        }
        let mut links = Self {
            changed: Vec::new(),
            ways: Vec::new(),
            lanes: Vec::new(),
            rows: Vec::new(),
            counts: Vec::new(),
            held: Vec::new(),
            free: Vec::new(),
            bytes: 0,
            events: BinaryHeap::new(),
            number: 0,
            hosts,
            discarded: Discarded::default(),
            room: Vec::new(),
        };
        for segment in &plan.segments {
            let mut ways = [Vec::new(), Vec::new()];
            for link in &segment.links {
                // With the link's own direction, and against it; the second end is ahead of the former.
                let [forward, reverse] = links.add(&plan.scenario, link.link, &link.extras, plan.seed)?;
                let (to_first, to_second) =
                    if link.against { (forward, reverse) } else { (reverse, forward) };
                ways[0].insert(0, to_first);
                ways[1].push(to_second);
            }
            links.ways.push(ways);
        }
        Ok(links)
    }

    /// Adds the lanes of a link, both ways.
    fn add(
        &mut self,
        scenario: &Scenario,
        index: usize,
        extras: &Extras,
        seed: u64,
    ) -> Result<[Hop; 2], PlanError> {
        let link = &scenario.links[index];
        let group_of = |end: &String| scenario.hosts.iter().position(|host| host.name == *end);
        let groups = [group_of(&link.between.0), group_of(&link.between.1)];
        let group = groups.into_iter().flatten().max_by_key(|group| scenario.hosts[*group].count);
        let group = group.filter(|group| scenario.hosts[*group].count > 1);
        let members = group.map_or(1, |group| scenario.hosts[group].count);
        let mut hops = Vec::new();
        for (direction, is_forward) in [(&link.forward, true), (&link.reverse, false)] {
            let row = self.rows.len() as u32;
            self.rows.push((link.name.clone(), is_forward));
            self.counts.push(Counts::default());
            hops.push(Hop { first: self.lanes.len() as u32, group: group.map(|g| g as u32), row });
            for member in 0..members {
                let base = match members {
                    1 => link.name.clone(),
                    _ => format!("{}.{member}", link.name),
                };
                let name = if is_forward { base.clone() } else { format!("{base} reverse") };
                let satellite = link.handover.map(|handover| Satellite::new(handover, seed, &base));
                let sender = Sender::new(direction, satellite.as_ref(), seed, &name);
                let queue = queue(direction, sender.is_some(), seed, &name)?;
                let capacity = sender.as_ref().and_then(Sender::changing);
                let lane = self.lanes.len() as u32;
                if let Some(capacity) = &capacity {
                    self.enter(capacity.first_told(), Event::Capacity(lane));
                }
                let rates_of = match &direction.capacity {
                    Some(scenario::Capacity::Carrier(carrier)) => match carrier.modulation {
                        Modulation::Hosts { group, .. } => Some(group as u32),
                        _ => None,
                    },
                    _ => None,
                };
                // Where the way back has no delay of its own, a connection has one for both ways.
                let purpose =
                    if is_forward || link.shared_delay { "connection" } else { "connection reverse" };
                let stream = |purpose| Rng::stream(seed, &name, 0, purpose);
                self.lanes.push(Lane {
                    row,
                    rate: direction.rate,
                    fixed: direction.delay.fixed().filter(|_| direction.delay.per != Per::Connection),
                    delay: direction.delay.clone(),
                    draws: Draws { seed, name: base, purpose },
                    loss: Loss::new(&direction.loss),
                    of: direction.loss.of,
                    at: direction.loss.at,
                    satellite,
                    extras: extras.clone(),
                    queue,
                    sender,
                    capacity,
                    rates_of,
                    partly: None,
                    busy: false,
                    busy_until: Instant::ZERO,
                    wake_at: Instant::FAR_FUTURE,
                    last: Instant::ZERO,
                    loss_rng: stream("loss"),
                    delay_rng: stream("delay"),
                    extra_rng: stream("extra"),
                });
                self.arm(lane);
            }
        }
        let mut hops = hops.into_iter();
        match (hops.next(), hops.next()) {
            (Some(forward), Some(reverse)) => Ok([forward, reverse]),
            _ => Err(PlanError(format!("link {} has no ways", link.name))),
        }
    }

    /// A buffer of `len` bytes for the next packet.
    #[must_use]
    pub fn room(&mut self, len: usize) -> Vec<u8> {
        let mut room = self.room.pop().unwrap_or_default();
        room.resize(len, 0);
        room
    }

    /// Takes back a buffer.
    pub fn give_back(&mut self, room: Vec<u8>) {
        // As many as there were packets at a time.
        if self.room.len() < 1 << 16 {
            self.room.push(room);
        }
    }

    /// A packet comes into a segment, at the end opposite to `end`.
    pub fn arrive(&mut self, segment: u32, end: u8, packet: Vec<u8>, now: Instant, out: &mut Vec<Passed>) {
        let Some(info) = bentpipe_packet::parse(&packet).filter(|info| !info.is_link_local_multicast())
        else {
            return self.give_back(packet);
        };
        self.bytes += packet.len() as u64;
        let index = self.hold(Held { packet, info, segment, end, hop: 0, came: now });
        self.go_on(index, now, out);
    }

    fn hold(&mut self, held: Held) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.held[index as usize] = Some(held);
                index
            }
            None => {
                self.held.push(Some(held));
                self.held.len() as u32 - 1
            }
        }
    }

    /// When something happens next.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.events.peek().map(|Reverse((at, _, _))| *at)
    }

    /// Packets on the links.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len() - self.free.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What passed each link: its name, whether it is its way forward, and the counts.
    pub fn counts(&self) -> impl Iterator<Item = (&str, bool, &Counts)> {
        self.rows.iter().zip(&self.counts).map(|((name, forward), counts)| (name.as_str(), *forward, counts))
    }

    /// What capacities have become since this was asked last: the link's name, whether it is its way forward, and the rate; of
    /// one that has changed more than once, each.
    pub fn changed(&mut self) -> impl Iterator<Item = (&str, bool, Rate)> {
        let rows = &self.rows;
        self.changed.drain(..).map(|(row, rate)| {
            let (name, forward) = &rows[row as usize];
            (name.as_str(), *forward, rate)
        })
    }

    fn enter(&mut self, at: Instant, event: Event) {
        self.number += 1;
        self.events.push(Reverse((at, self.number, event)));
    }

    /// Lets everything happen that is due up to `now`; what leaves a segment goes to `out`, in the order of time.
    pub fn advance(&mut self, now: Instant, out: &mut Vec<Passed>) {
        while let Some(&Reverse((at, _, event))) = self.events.peek()
            && at <= now
        {
            self.events.pop();
            match event {
                Event::Arrive(index) => self.reach(index, at, out),
                Event::Free(lane) => self.serve(lane, at),
                Event::Wake(lane) => self.wake(lane, at),
                Event::Capacity(lane) => self.change(lane, at),
            }
        }
    }

    /// A packet is at the end of its link.
    fn reach(&mut self, index: u32, now: Instant, out: &mut Vec<Passed>) {
        let Some(held) = &mut self.held[index as usize] else { return };
        let row = self.ways[held.segment as usize][usize::from(held.end)][held.hop as usize].row;
        let counts = &mut self.counts[row as usize];
        counts.arrived += 1;
        counts.arrived_bytes += held.packet.len() as u64;
        counts.delays += (now - held.came).as_nanos();
        held.hop += 1;
        self.go_on(index, now, out);
    }

    /// A packet comes to its next link, or has passed them all.
    fn go_on(&mut self, index: u32, now: Instant, out: &mut Vec<Passed>) {
        let Some(held) = &mut self.held[index as usize] else { return };
        held.came = now;
        let way = &self.ways[held.segment as usize][usize::from(held.end)];
        let Some(hop) = way.get(held.hop as usize) else {
            self.free.push(index);
            self.bytes -= held.packet.len() as u64;
            let (segment, end) = (held.segment, held.end);
            if let Some(Held { packet, .. }) = self.held[index as usize].take() {
                out.push(Passed { segment, end, due: now, packet });
            }
            return;
        };
        let member = hop.group.and_then(|group| host_of(&self.hosts, &held.info, group)).unwrap_or(0);
        let lane = hop.first + member;
        let counts = &mut self.counts[hop.row as usize];
        counts.packets += 1;
        counts.bytes += held.packet.len() as u64;
        self.enter_lane(index, lane, now);
    }

    fn enter_lane(&mut self, index: u32, lane: u32, now: Instant) {
        if self.bytes > MOST_BYTES {
            return self.lose(index, Cause::Memory);
        }
        let Some(held) = &self.held[index as usize] else { return };
        let (len, info) = (held.packet.len() as u32, held.info);
        let l = &mut self.lanes[lane as usize];
        if l.at == LossAt::BeforeQueue && l.loses(len, &info, now) {
            return self.lose(index, Cause::Loss);
        }
        let Some(queue) = &mut l.queue else {
            if let Some(rate) = l.rate {
                l.busy_until = l.busy_until.max(now) + rate.time_to_send(u64::from(len));
            }
            let sent = if l.rate.is_some() { l.busy_until } else { now };
            return self.propagate(index, lane, sent);
        };
        // Queues know connections by 32 bits: of ten thousand, two have the same number with a probability of 1 %.
        let mut pkt = Packet { ecn: info.ecn, ..Packet::new(len, info.connection() as u32, index) };
        if queue.offer(&mut pkt, now, &mut self.discarded) {
            self.enter_queue(pkt, lane, now);
        }
        self.bury();
        self.arm(lane);
    }

    fn enter_queue(&mut self, pkt: Packet, lane: u32, now: Instant) {
        self.note_mark(pkt);
        let l = &mut self.lanes[lane as usize];
        let Some(queue) = &mut l.queue else { return };
        queue.enqueue(pkt, now, &mut self.discarded);
        if !l.busy {
            self.serve(lane, now);
        }
    }

    /// A lane is free: sends the next packet, or what is left of one.
    fn serve(&mut self, lane: u32, now: Instant) {
        let l = &mut self.lanes[lane as usize];
        let Some(queue) = &mut l.queue else { return };
        l.busy = true;
        if let Some(sender) = &mut l.sender
            && (l.partly.is_some() || queue.peek().is_some())
        {
            let backlog = queue.state().bytes + l.partly.map_or(0, |(_, left)| u64::from(left));
            let ready = sender.ready(now, backlog);
            if ready > now {
                return self.enter(ready, Event::Free(lane));
            }
        }
        let next = l.partly.take().or_else(|| {
            let pkt = queue.dequeue(now, &mut self.discarded)?;
            Some((pkt, pkt.len))
        });
        match next {
            Some((pkt, left)) => self.send(lane, pkt, left, now),
            None => {
                l.busy = false;
                if let Some(sender) = &mut l.sender {
                    sender.rest();
                }
            }
        }
        self.bury();
    }

    /// Sends what is left of a packet, as far as the lane can.
    fn send(&mut self, lane: u32, pkt: Packet, left: u32, now: Instant) {
        self.note_mark(pkt);
        let l = &mut self.lanes[lane as usize];
        let Some(sender) = &mut l.sender else {
            let sent = now + l.rate.map_or(Duration::ZERO, |rate| rate.time_to_send(u64::from(left)));
            self.enter(sent, Event::Free(lane));
            return self.propagate(pkt.handle, lane, sent);
        };
        let info = self.held[pkt.handle as usize].as_ref().map(|held| held.info);
        let host = l.rates_of.zip(info).and_then(|(group, info)| host_of(&self.hosts, &info, group));
        match sender.send(left, host, now) {
            Sent::Part { left, again } => {
                l.partly = Some((pkt, left));
                self.enter(again, Event::Free(lane));
            }
            Sent::Whole { at, delay, lost } => {
                self.enter(at, Event::Free(lane));
                if lost {
                    self.lose(pkt.handle, Cause::Access);
                } else {
                    self.propagate(pkt.handle, lane, at + delay);
                }
            }
        }
    }

    /// A packet travels that has been sent up to `sent`.
    fn propagate(&mut self, index: u32, lane: u32, sent: Instant) {
        let Some(held) = &self.held[index as usize] else { return };
        let (len, info) = (held.packet.len() as u32, held.info);
        let l = &mut self.lanes[lane as usize];
        let sent = match l.befall(len, &info, sent) {
            Ok(sent) => sent,
            Err(cause) => return self.lose(index, cause),
        };
        let delay = l.draw_delay(info.connection());
        let arrival = sent + delay;
        let is_late = l.extras.reorder.0 > 0.0 && l.extra_rng.uniform() < l.extras.reorder.0;
        let arrival = if is_late {
            arrival.max(l.last) + l.extras.reorder.1
        } else if l.delay.per == (Per::Packet { ordered: false }) {
            arrival
        } else if l.delay.per == Per::Connection {
            // A connection's own packets keep their order, for all take as long.
            arrival
        } else {
            l.last = l.last.max(arrival);
            l.last
        };
        let is_double = l.extras.duplicate > 0.0 && l.extra_rng.uniform() < l.extras.duplicate;
        let counts = &mut self.counts[l.row as usize];
        counts.reordered += u64::from(is_late);
        counts.duplicated += u64::from(is_double);
        self.enter(arrival, Event::Arrive(index));
        if is_double {
            self.double(index, arrival);
        }
    }

    /// A packet arrives twice.
    fn double(&mut self, index: u32, arrival: Instant) {
        let Some(held) = &self.held[index as usize] else { return };
        let copy = Held { packet: held.packet.clone(), ..*held };
        self.bytes += copy.packet.len() as u64;
        let copy = self.hold(copy);
        self.enter(arrival, Event::Arrive(copy));
    }

    fn lose(&mut self, index: u32, cause: Cause) {
        let Some(held) = self.held[index as usize].take() else { return };
        self.free.push(index);
        self.bytes -= held.packet.len() as u64;
        let row = self.ways[held.segment as usize][usize::from(held.end)][held.hop as usize].row;
        let place = CAUSES.iter().position(|(known, _)| *known == cause).unwrap_or(0);
        self.counts[row as usize].dropped[place] += 1;
        self.give_back(held.packet);
    }

    /// Forgets what queues have discarded.
    fn bury(&mut self) {
        while let Some((pkt, reason)) = self.discarded.0.pop() {
            let cause = match reason {
                DropReason::Aqm => Cause::Aqm,
                DropReason::Overflow => Cause::Overflow,
            };
            self.lose(pkt.handle, cause);
        }
    }

    /// A queue may have marked a packet.
    fn note_mark(&mut self, pkt: Packet) {
        let Some(held) = &mut self.held[pkt.handle as usize] else { return };
        if pkt.ecn == Ecn::Ce && held.info.ecn != Ecn::Ce {
            held.info.ecn = Ecn::Ce;
            let _ = set_ce(&mut held.packet);
            let row = self.ways[held.segment as usize][usize::from(held.end)][held.hop as usize].row;
            self.counts[row as usize].marked += 1;
        }
    }

    fn wake(&mut self, lane: u32, now: Instant) {
        if self.lanes[lane as usize].wake_at != now {
            return;
        }
        self.lanes[lane as usize].wake_at = Instant::FAR_FUTURE;
        while let Some(queue) = &mut self.lanes[lane as usize].queue
            && queue.wake_at().is_some_and(|at| at <= now)
        {
            if let Some(pkt) = queue.wake(now, &mut self.discarded) {
                self.enter_queue(pkt, lane, now);
            }
            self.bury();
        }
        self.arm(lane);
    }

    /// Enters a queue's next wish.
    fn arm(&mut self, lane: u32) {
        let l = &mut self.lanes[lane as usize];
        if let Some(at) = l.queue.as_ref().and_then(Queue::wake_at)
            && at < l.wake_at
        {
            l.wake_at = at;
            self.enter(at, Event::Wake(lane));
        }
    }

    /// A lane has another capacity: its queue learns of it.
    fn change(&mut self, lane: u32, now: Instant) {
        let l = &mut self.lanes[lane as usize];
        let Some(capacity) = &mut l.capacity else { return };
        let (rate, next) = capacity.tell(now);
        self.changed.push((l.row, rate));
        if let Some(queue) = l.queue.as_mut().filter(|_| rate.as_bps() > 0) {
            queue.set_capacity(rate);
        }
        if next != Instant::FAR_FUTURE {
            self.enter(next, Event::Capacity(lane));
        }
    }
}

impl Lane {
    fn loses(&mut self, len: u32, info: &Info, now: Instant) -> bool {
        let counts = self.of == LossOf::All || info.has_payload();
        counts && !self.loss.is_nothing() && self.loss.loses(len, now, &mut self.loss_rng)
    }

    /// What befalls a packet on the way that has been sent up to `sent`: when it would have been sent if the satellite
    /// were as near as ever, or why it is lost.
    fn befall(&mut self, len: u32, info: &Info, sent: Instant) -> Result<Instant, Cause> {
        if self.at == LossAt::AfterQueue && self.loses(len, info, sent) {
            return Err(Cause::Loss);
        }
        if self.extras.outages.iter().any(|(from, to)| (*from..*to).contains(&sent)) {
            return Err(Cause::Outage);
        }
        if self.extras.loss > 0.0 && self.extra_rng.uniform() < self.extras.loss {
            return Err(Cause::Extra);
        }
        let Some(satellite) = &mut self.satellite else { return Ok(sent) };
        if satellite.loses() && satellite.outage(sent).is_some() {
            return Err(Cause::Handover);
        }
        Ok(sent + satellite.delay(sent))
    }

    fn draw_delay(&mut self, connection: u64) -> Duration {
        if let Some(delay) = self.fixed {
            return delay;
        }
        if self.delay.per != Per::Connection {
            return self.delay.draw(&mut self.delay_rng);
        }
        let Draws { seed, name, purpose } = &self.draws;
        self.delay.draw(&mut Rng::stream(*seed, name, connection, purpose))
    }
}

/// The host of a group that a packet comes from or goes to, counted within the group.
fn host_of(hosts: &BTreeMap<IpAddr, (u32, u32)>, info: &Info, group: u32) -> Option<u32> {
    [info.src, info.dst]
        .into_iter()
        .filter_map(|end| hosts.get(&end.ip()))
        .find(|(of, _)| *of == group)
        .map(|(_, host)| *host)
}

/// The queue in front of a lane; none where nothing needs one.
fn queue(direction: &Direction, has_sender: bool, seed: u64, name: &str) -> Result<Option<Queue>, PlanError> {
    let rate = direction.mean_rate().unwrap_or_default();
    let name = name.to_owned();
    let Some(spec) = &direction.queue else {
        let (marking, limit) = (Marking::Drop, Limit::NONE);
        let setup = QueueConfig { marking, limit, capacity: rate, seed, name };
        return Ok(has_sender.then(|| Queue::new(Box::<Fifo>::default(), Box::new(DropTail), &setup)));
    };
    let fault = |e: &dyn std::fmt::Display| PlanError(format!("{name}: {e}"));
    let scheduler = (spec.scheduler.discipline.build)(&spec.scheduler.values).map_err(|e| fault(&e))?;
    let aqm = spec.aqm.build().map_err(|e| fault(&e))?;
    let setup = QueueConfig { marking: spec.marking, limit: spec.limit, capacity: rate, seed, name };
    Ok(Some(Queue::new(scheduler, aqm, &setup)))
}
