//! Links in a row, without IO: the host passes packets and time.
//!
//! Each direction of a link is the simulator's [`LinkEngine`]. Events are handled at their own time, however late
//! [`Links::advance`] is called, so that lateness does not add up from one link to the next.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::BinaryHeap;
use std::net::IpAddr;

use bentpipe_link::{DelayLine, Impairments, LinkEngine, LossCause, Names, Progress, Release, Service};
use bentpipe_queue::{DropHandler, DropReason, Ecn, Packet};
use bentpipe_scenario::{Capacity, Modulation, Scenario};
use bentpipe_units::{Duration, Instant, Rate, Rng};

use crate::plan::{Extras, Plan, PlanError};
use bentpipe_packet::{Info, set_ce};

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

impl From<LossCause> for Cause {
    fn from(cause: LossCause) -> Self {
        match cause {
            LossCause::Loss => Self::Loss,
            LossCause::Outage => Self::Outage,
            LossCause::Impairment => Self::Extra,
            LossCause::Handover => Self::Handover,
            LossCause::LinkLayer => Self::Access,
        }
    }
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

/// Event of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A packet reaches the end of its link, out of order.
    Arrive(u32),
    /// The first packet of a lane's delay line reaches the end of its link.
    Line(u32),
    /// A lane's sender is free.
    Free(u32),
    /// A lane's queue wants to be woken.
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

/// One direction of one link.
struct Lane {
    row: u32,
    engine: LinkEngine,
    line: DelayLine<u32>,
    draws: Draws,
    /// The group whose hosts have a rate each.
    rates_of: Option<u32>,
}

/// Random streams of the delays that connections have each.
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
                let names = Names::new(&link.name, (members > 1).then_some(member), is_forward);
                let engine =
                    LinkEngine::new(direction, link.handover, &names, seed, impairments(extras), |spec| {
                        spec.build().map_err(|e| e.to_string())
                    })
                    .map_err(PlanError)?;
                let lane = self.lanes.len() as u32;
                if let Some(at) = engine.first_update() {
                    self.enter(at, Event::Capacity(lane));
                }
                let rates_of = match &direction.capacity {
                    Some(Capacity::Carrier(carrier)) => match carrier.modulation {
                        Modulation::Hosts { group, .. } => Some(group as u32),
                        _ => None,
                    },
                    _ => None,
                };
                // Where the way back has no delay of its own, a connection has one for both ways.
                let purpose =
                    if is_forward || link.shared_delay { "connection" } else { "connection reverse" };
                let draws = Draws { seed, name: names.link, purpose };
                self.lanes.push(Lane { row, engine, line: DelayLine::default(), draws, rates_of });
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
                Event::Line(lane) => self.pop_line(lane, at, out),
                Event::Free(lane) => self.serve(lane, at),
                Event::Wake(lane) => self.wake(lane, at),
                Event::Capacity(lane) => self.change(lane, at),
            }
        }
    }

    /// The first packet of a delay line is at the end of its link.
    fn pop_line(&mut self, lane: u32, now: Instant, out: &mut Vec<Passed>) {
        let Some((index, next)) = self.lanes[lane as usize].line.pop() else { return };
        if let Some(at) = next {
            self.enter(at, Event::Line(lane));
        }
        self.reach(index, now, out);
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
        if l.engine.loses_on_arrival(len, || info.has_payload(), now) {
            return self.lose(index, Cause::Loss);
        }
        if l.engine.queue().is_none() {
            let sent = l.engine.transmit(len, now);
            return self.propagate(index, lane, sent);
        }
        // Queues know connections by 32 bits: of ten thousand, two have the same number with a probability of 1 %.
        let mut pkt = Packet { ecn: info.ecn, ..Packet::new(len, info.connection() as u32, index) };
        if l.engine.offer(&mut pkt, now, &mut self.discarded) {
            self.enqueue(pkt, lane, now);
        }
        self.drop_discarded();
        self.arm(lane);
    }

    /// Puts an admitted packet in a lane's queue.
    fn enqueue(&mut self, pkt: Packet, lane: u32, now: Instant) {
        self.note_mark(pkt);
        if self.lanes[lane as usize].engine.enqueue(pkt, now, &mut self.discarded) {
            self.serve(lane, now);
        }
    }

    /// Sends a lane's next packet, or the rest of one.
    fn serve(&mut self, lane: u32, now: Instant) {
        let l = &mut self.lanes[lane as usize];
        let (held, hosts, rates_of) = (&self.held, &self.hosts, l.rates_of);
        let terminal = |pkt: &Packet| host_of(hosts, &held[pkt.handle as usize].as_ref()?.info, rates_of?);
        match l.engine.serve(now, &mut self.discarded, terminal) {
            Service::Idle => {}
            Service::Blocked(until) => self.enter(until, Event::Free(lane)),
            Service::Sending { pkt, next, progress, .. } => {
                self.note_mark(pkt);
                self.enter(next, Event::Free(lane));
                match progress {
                    Progress::Partial => {}
                    Progress::Sent(sent) => self.propagate(pkt.handle, lane, sent),
                    Progress::Lost => self.lose(pkt.handle, Cause::Access),
                }
            }
        }
        self.drop_discarded();
    }

    /// Sends a packet on its way that left the sender at `sent`.
    fn propagate(&mut self, index: u32, lane: u32, sent: Instant) {
        let Some(held) = &self.held[index as usize] else { return };
        let (len, info) = (held.packet.len() as u32, held.info);
        let Lane { row, engine, line, draws, .. } = &mut self.lanes[lane as usize];
        let sent = match engine.apply_channel(len, info.has_payload(), sent) {
            Ok(sent) => sent,
            Err(cause) => return self.lose(index, cause.into()),
        };
        let own = engine.has_own_delays().then(|| draws.delay(engine, info.connection()));
        let (delay, ordered) = engine.delay(|| own.unwrap_or_default());
        // A connection's packets keep their order anyway, for all have the same delay.
        let ordered = ordered && own.is_none();
        let held_back = engine.held_back();
        let arrival = match held_back {
            Some(time) => (sent + delay).max(line.last_arrival()) + time,
            None if ordered => (sent + delay).max(line.last_arrival()),
            None => sent + delay,
        };
        let is_double = engine.duplicates();
        let counts = &mut self.counts[*row as usize];
        counts.reordered += u64::from(held_back.is_some());
        counts.duplicated += u64::from(is_double);
        if held_back.is_some() || !ordered {
            self.enter(arrival, Event::Arrive(index));
        } else if let Some(at) = line.push(arrival, index) {
            self.enter(at, Event::Line(lane));
        }
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

    /// Drops the packets that queues discarded.
    fn drop_discarded(&mut self) {
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
        if !self.lanes[lane as usize].engine.wake(now) {
            return;
        }
        loop {
            match self.lanes[lane as usize].engine.release(now, &mut self.discarded) {
                Release::Done => break,
                Release::None => {}
                Release::Packet(pkt) => self.enqueue(pkt, lane, now),
            }
            self.drop_discarded();
        }
        self.arm(lane);
    }

    /// Schedules a lane's queue.
    fn arm(&mut self, lane: u32) {
        if let Some(at) = self.lanes[lane as usize].engine.next_wake() {
            self.enter(at, Event::Wake(lane));
        }
    }

    /// Updates a lane's capacity.
    fn change(&mut self, lane: u32, now: Instant) {
        let l = &mut self.lanes[lane as usize];
        let Some((rate, next)) = l.engine.update_capacity(now) else { return };
        self.changed.push((l.row, rate));
        if let Some(next) = next {
            self.enter(next, Event::Capacity(lane));
        }
    }
}

impl Draws {
    /// Delay of a connection, the same at each call.
    fn delay(&self, engine: &LinkEngine, connection: u64) -> Duration {
        let Self { seed, name, purpose } = self;
        engine.delay_distribution().draw(&mut Rng::stream(*seed, name, connection, purpose))
    }
}

/// Impairments that a plan adds; `None` if it adds none.
fn impairments(extras: &Extras) -> Option<Impairments> {
    let Extras { outages, loss, reorder, duplicate } = extras.clone();
    let has_any = !outages.is_empty() || loss > 0.0 || reorder.0 > 0.0 || duplicate > 0.0;
    has_any.then_some(Impairments { outages, loss, reorder, duplicate })
}

/// The host of a group that a packet comes from or goes to, counted within the group.
fn host_of(hosts: &BTreeMap<IpAddr, (u32, u32)>, info: &Info, group: u32) -> Option<u32> {
    [info.src, info.dst]
        .into_iter()
        .filter_map(|end| hosts.get(&end.ip()))
        .find(|(of, _)| *of == group)
        .map(|(_, host)| *host)
}
