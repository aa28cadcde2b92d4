//! Links in series, without I/O: the host passes packets and time.
//!
//! Each direction of a link is the simulator's [`LinkEngine`]. Events are handled at their own time, however late
//! [`Links::advance`] is called, so that lateness does not add up from one link to the next.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::IpAddr;

use bentpipe_link::{DelayLine, Impairments, LinkEngine, LossCause, Names, Progress, Release, Service};
use bentpipe_packet::{Info, set_ce};
use bentpipe_queue::{DropHandler, DropReason, Ecn, FlowId, Packet};
use bentpipe_scenario::{AqmSpec, Capacity, Carrier, Link, Modulation, Scenario};
use bentpipe_units::{Duration, Instant, Rate, Rng};
use slab::Slab;

use crate::plan::{Extras, Plan, PlanError, SegmentLink};

/// Maximum memory for packets [bytes]; packets beyond it are dropped, whatever the scenario allows.
const MAX_BYTES: u64 = 512 << 20;

/// Maximum number of unused buffers.
const MAX_BUFFERS: usize = 1 << 16;

/// Reason for which a packet did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Lost by the scenario's loss model.
    Loss,
    /// Lost by the plan's additional loss.
    Extra,
    /// Sent during an outage of the plan.
    Outage,
    /// Sent during a handover.
    Handover,
    /// Abandoned by the link layer after its retransmissions.
    Access,
    /// Dropped by the AQM.
    Aqm,
    /// Dropped because the queue was full.
    Overflow,
    /// Dropped because the emulator held too many packets.
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

/// All causes with their names in statistics.
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

/// Counters of one direction of a link, summed over the hosts of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Packets offered to the link.
    pub packets: u64,
    /// Bytes offered to the link.
    pub bytes: u64,
    /// Packets that reached the end of the link, duplicates included.
    pub arrived: u64,
    /// Bytes that reached the end of the link, duplicates included.
    pub arrived_bytes: u64,
    /// Packets dropped, in the order of [`CAUSES`].
    pub dropped: [u64; CAUSES.len()],
    /// Packets sent over the link, or lost on it: all but those dropped by a queue.
    pub sent: u64,
    /// Packets marked instead of dropped.
    pub marked: u64,
    /// Packets duplicated.
    pub duplicated: u64,
    /// Packets delayed so that others overtake them.
    pub reordered: u64,
    /// Sum of the times from the beginning of the link to its end [ns].
    delay_sum: u64,
}

impl Counts {
    /// Mean time from the beginning of the link to its end [s]; NaN without arrivals.
    #[must_use]
    pub fn delay_mean(&self) -> f64 {
        self.delay_sum as f64 * 1e-9 / self.arrived as f64
    }
}

/// Packets on all links that can lose packets, counted as in the simulator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Packets sent, those lost included.
    pub packets: u64,
    /// Packets lost to errors, outages and handovers.
    pub losses: u64,
    /// Packets that a link layer gave up.
    pub given_up: u64,
}

impl Carried {
    /// Packets since `begin`.
    #[must_use]
    pub fn since(self, begin: Self) -> Self {
        Self {
            packets: self.packets - begin.packets,
            losses: self.losses - begin.losses,
            given_up: self.given_up - begin.given_up,
        }
    }
}

/// A packet that has passed all links of its segment.
#[derive(Debug)]
pub struct Passed {
    /// Index of the segment.
    pub segment: u32,
    /// End at which it leaves, 0 or 1.
    pub end: u8,
    /// Scheduled time of arrival.
    pub due: Instant,
    /// The packet. Return its buffer with [`Links::return_buffer`].
    pub packet: Vec<u8>,
}

/// A packet on the links of a segment.
struct Transit {
    packet: Vec<u8>,
    info: Info,
    segment: u32,
    /// End of the segment that it travels to.
    end: u8,
    /// Index of the current link on the path.
    hop: usize,
    /// Time at which it entered the current link.
    entered: Instant,
}

/// Key of a [`Transit`], which is also its handle in queues.
type TransitId = u32;

/// Index in [`Links::lanes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LaneId(u32);

/// Index in [`Links::rows`].
#[derive(Clone, Copy, Debug)]
struct RowId(usize);

/// Event of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A packet reaches the end of its link, out of order.
    Arrive(TransitId),
    /// The first packet of a lane's delay line reaches the end of its link.
    Line(LaneId),
    /// A lane's sender is free.
    Free(LaneId),
    /// A lane's queue wants to be woken.
    Wake(LaneId),
    /// A lane's capacity changes.
    Capacity(LaneId),
}

/// One direction of a link on a path.
#[derive(Clone, Copy)]
struct Hop {
    /// First of the lanes, one per host of the group.
    first: LaneId,
    /// Group of hosts with a separate link each; `None` for a single link.
    group: Option<u32>,
    row: RowId,
}

/// One direction of a link, or of one host's link.
struct Lane {
    row: RowId,
    engine: LinkEngine,
    line: DelayLine<u32>,
    delays: ConnectionDelays,
    /// Group of hosts with different rates.
    rates_of: Option<u32>,
}

/// Random streams of delays that are drawn per connection.
struct ConnectionDelays {
    seed: u64,
    name: String,
    purpose: &'static str,
}

/// The links of all segments, with the packets on them.
pub struct Links {
    /// Paths of each segment, to its first end and to its second.
    paths: Vec<[Vec<Hop>; 2]>,
    lanes: Vec<Lane>,
    rows: Vec<Row>,
    transits: Slab<Transit>,
    /// Memory of all packets [bytes].
    bytes: u64,
    /// Times, order of entry, events.
    agenda: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    entries: u64,
    /// Group and index of each host.
    hosts: BTreeMap<IpAddr, (u32, u32)>,
    /// Capacities changed since the last call of [`Links::changed`].
    changed: Vec<(RowId, Rate)>,
    dropped: Dropped,
    /// Unused buffers.
    buffers: Vec<Vec<u8>>,
}

/// Statistics of one direction of a link.
struct Row {
    link: String,
    is_forward: bool,
    counts: Counts,
    /// True if one of its links can lose packets.
    may_lose: bool,
}

/// Packets dropped by the queue in the current call.
#[derive(Default)]
struct Dropped(Vec<(Packet, DropReason)>);

impl DropHandler for Dropped {
    fn dropped(&mut self, pkt: Packet, reason: DropReason) {
        self.0.push((pkt, reason));
    }
}

impl Links {
    /// The links of a plan's segments.
    ///
    /// # Errors
    /// If an AQM or scheduler rejects its parameters.
    pub fn new(plan: &Plan) -> Result<Self, PlanError> {
        Self::build(plan, true)
    }

    /// The links before time zero, from which the outages count: without them.
    ///
    /// # Errors
    /// As [`Links::new`].
    pub fn before_zero(plan: &Plan) -> Result<Self, PlanError> {
        Self::build(plan, false)
    }

    fn build(plan: &Plan, has_outages: bool) -> Result<Self, PlanError> {
        let mut hosts = BTreeMap::new();
        for (group, list) in (0..).zip(&plan.hosts) {
            for (host, addresses) in (0..).zip(list.iter().flat_map(|hosts| &hosts.addresses)) {
                hosts.extend(addresses.iter().map(|address| (*address, (group, host))));
            }
        }
        let mut links = Self {
            paths: Vec::new(),
            lanes: Vec::new(),
            rows: Vec::new(),
            transits: Slab::new(),
            bytes: 0,
            agenda: BinaryHeap::new(),
            entries: 0,
            hosts,
            changed: Vec::new(),
            dropped: Dropped::default(),
            buffers: Vec::new(),
        };
        let mut rows = BTreeMap::new();
        for segment in &plan.segments {
            let mut paths = [Vec::new(), Vec::new()];
            for link in &segment.links {
                let mut link = link.clone();
                link.extras.outages.retain(|_| has_outages);
                let [forward, reverse] = links.add(&plan.scenario, &link, &mut rows, plan.seed)?;
                let (to_first, to_second) =
                    if link.against { (forward, reverse) } else { (reverse, forward) };
                paths[0].insert(0, to_first);
                paths[1].push(to_second);
            }
            links.paths.push(paths);
        }
        Ok(links)
    }

    /// Adds a link: forward and reverse direction. `rows` are the statistics of links by their index; links of several
    /// terminals share them.
    fn add(
        &mut self,
        scenario: &Scenario,
        segment: &SegmentLink,
        rows: &mut BTreeMap<usize, [RowId; 2]>,
        seed: u64,
    ) -> Result<[Hop; 2], PlanError> {
        let link = &scenario.links[segment.link];
        let rows =
            *rows.entry(segment.link).or_insert_with(|| [true, false].map(|way| self.add_row(link, way)));
        let group_of = |end: &String| scenario.hosts.iter().position(|host| host.name == *end);
        let groups = [group_of(&link.between.0), group_of(&link.between.1)];
        let group = groups.into_iter().flatten().max_by_key(|group| scenario.hosts[*group].count);
        let group = group.filter(|group| scenario.hosts[*group].count > 1);
        let members: Vec<_> = match (segment.terminal, group) {
            (Some(terminal), _) => vec![Some(terminal)],
            (None, Some(group)) => (0..scenario.hosts[group].count).map(Some).collect(),
            (None, None) => vec![None],
        };
        let group = group.filter(|_| segment.terminal.is_none()).map(|group| group as u32);
        let mut add = |row, is_forward| {
            let first = self.add_direction((link, is_forward), row, &members, &segment.extras, seed)?;
            Ok(Hop { group, ..first })
        };
        Ok([add(rows[0], true)?, add(rows[1], false)?])
    }

    /// Adds the statistics of one direction of a link.
    fn add_row(&mut self, link: &Link, is_forward: bool) -> RowId {
        let (link, counts) = (link.name.clone(), Counts::default());
        self.rows.push(Row { link, is_forward, counts, may_lose: false });
        RowId(self.rows.len() - 1)
    }

    /// Adds the lanes of one direction of a link: one for each of `members`, the number of a host or terminal in its group.
    fn add_direction(
        &mut self,
        (link, is_forward): (&Link, bool),
        row: RowId,
        members: &[Option<u32>],
        extras: &Extras,
        seed: u64,
    ) -> Result<Hop, PlanError> {
        let direction = if is_forward { &link.forward } else { &link.reverse };
        let first = LaneId(self.lanes.len() as u32);
        let rates_of = match &direction.capacity {
            Some(Capacity::Carrier(Carrier { modulation: Modulation::Hosts { group, .. }, .. })) => {
                Some(group.0 as u32)
            }
            _ => None,
        };
        // Without a delay of the reverse direction, a connection has one delay for both.
        let purpose = if is_forward || link.shared_delay { "connection" } else { "connection reverse" };
        for &member in members {
            let names = Names::new(&link.name, member, is_forward);
            let make_aqm = |spec: &AqmSpec| spec.build().map_err(|e| e.to_string());
            let engine =
                LinkEngine::new(direction, link.handover, &names, seed, impairments(extras), make_aqm)
                    .map_err(PlanError)?;
            let lane = LaneId(self.lanes.len() as u32);
            self.rows[row.0].may_lose |= engine.may_lose();
            if let Some(at) = engine.first_update() {
                self.enter(at, Event::Capacity(lane));
            }
            let delays = ConnectionDelays { seed, name: names.link, purpose };
            self.lanes.push(Lane { row, engine, line: DelayLine::default(), delays, rates_of });
            self.schedule_wake(lane);
        }
        Ok(Hop { first, group: None, row })
    }

    /// Takes a buffer of `len` bytes for the next packet.
    #[must_use]
    pub fn take_buffer(&mut self, len: usize) -> Vec<u8> {
        let mut buffer = self.buffers.pop().unwrap_or_default();
        buffer.resize(len, 0);
        buffer
    }

    /// Returns a buffer for reuse.
    pub fn return_buffer(&mut self, buffer: Vec<u8>) {
        if self.buffers.len() < MAX_BUFFERS {
            self.buffers.push(buffer);
        }
    }

    /// Puts a packet into a segment, towards `end`.
    pub fn arrive(&mut self, segment: u32, end: u8, packet: Vec<u8>, now: Instant, out: &mut Vec<Passed>) {
        let Some(info) = bentpipe_packet::parse(&packet).filter(|info| !info.is_link_local_multicast())
        else {
            return self.return_buffer(packet);
        };
        self.bytes += packet.len() as u64;
        let id = self.transits.insert(Transit { packet, info, segment, end, hop: 0, entered: now }) as u32;
        self.enter_hop(id, now, out);
    }

    /// Time of the next event.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.agenda.peek().map(|Reverse((at, _, _))| *at)
    }

    /// Number of packets on the links.
    #[must_use]
    pub fn len(&self) -> usize {
        self.transits.len()
    }

    /// True without packets on the links.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counters of each direction of each link: name, true if forward, counters.
    pub fn counts(&self) -> impl Iterator<Item = (&str, bool, &Counts)> {
        self.rows.iter().map(|row| (row.link.as_str(), row.is_forward, &row.counts))
    }

    /// Packets so far on all links that can lose packets.
    #[must_use]
    pub fn carried(&self) -> Carried {
        let mut all = Carried::default();
        for row in self.rows.iter().filter(|row| row.may_lose) {
            all.packets += row.counts.sent;
            for ((cause, _), dropped) in CAUSES.iter().zip(row.counts.dropped) {
                match cause {
                    Cause::Loss | Cause::Extra | Cause::Outage | Cause::Handover => all.losses += dropped,
                    Cause::Access => all.given_up += dropped,
                    Cause::Aqm | Cause::Overflow | Cause::Memory => {}
                }
            }
        }
        all
    }

    /// Capacities set since the last call, in order: name of the link, true if forward, rate.
    pub fn changed(&mut self) -> impl Iterator<Item = (&str, bool, Rate)> {
        let rows = &self.rows;
        self.changed.drain(..).map(|(row, rate)| {
            let row = &rows[row.0];
            (row.link.as_str(), row.is_forward, rate)
        })
    }

    fn enter(&mut self, at: Instant, event: Event) {
        self.entries += 1;
        self.agenda.push(Reverse((at, self.entries, event)));
    }

    /// Handles all events up to `now`. Appends packets that leave a segment to `out`, in the order of time.
    pub fn advance(&mut self, now: Instant, out: &mut Vec<Passed>) {
        while let Some(&Reverse((at, _, event))) = self.agenda.peek()
            && at <= now
        {
            self.agenda.pop();
            match event {
                Event::Arrive(id) => self.leave_hop(id, at, out),
                Event::Line(lane) => self.pop_line(lane, at, out),
                Event::Free(lane) => self.serve(lane, at),
                Event::Wake(lane) => self.wake(lane, at),
                Event::Capacity(lane) => self.update_capacity(lane, at),
            }
        }
    }

    /// Passes on the first packet of a delay line.
    fn pop_line(&mut self, lane: LaneId, now: Instant, out: &mut Vec<Passed>) {
        let line = &mut self.lane(lane).line;
        let Some(id) = line.pop() else { return };
        if let Some(at) = line.next_arrival() {
            self.enter(at, Event::Line(lane));
        }
        self.leave_hop(id, now, out);
    }

    /// Passes on a packet that has reached the end of its link.
    fn leave_hop(&mut self, id: TransitId, now: Instant, out: &mut Vec<Passed>) {
        let (transit, counts) = self.transit(id);
        counts.arrived += 1;
        counts.arrived_bytes += transit.packet.len() as u64;
        counts.delay_sum += (now - transit.entered).as_nanos();
        transit.hop += 1;
        self.enter_hop(id, now, out);
    }

    /// A packet, and the counters of the link that it is on.
    fn transit(&mut self, id: TransitId) -> (&mut Transit, &mut Counts) {
        let transit = &mut self.transits[id as usize];
        let hop = &self.paths[transit.segment as usize][usize::from(transit.end)][transit.hop];
        (transit, &mut self.rows[hop.row.0].counts)
    }

    fn lane(&mut self, lane: LaneId) -> &mut Lane {
        &mut self.lanes[lane.0 as usize]
    }

    /// Puts a packet on the next link of its path, or lets it leave the segment.
    fn enter_hop(&mut self, id: TransitId, now: Instant, out: &mut Vec<Passed>) {
        let transit = &mut self.transits[id as usize];
        transit.entered = now;
        let (segment, end) = (transit.segment, transit.end);
        let Some(&hop) = self.paths[segment as usize][usize::from(end)].get(transit.hop) else {
            let Transit { packet, .. } = self.transits.remove(id as usize);
            self.bytes -= packet.len() as u64;
            out.push(Passed { segment, end, due: now, packet });
            return;
        };
        let counts = &mut self.rows[hop.row.0].counts;
        counts.packets += 1;
        counts.bytes += transit.packet.len() as u64;
        let host = hop.group.and_then(|group| host_of(&self.hosts, &transit.info, group)).unwrap_or(0);
        self.enter_lane(id, LaneId(hop.first.0 + host), now);
    }

    fn enter_lane(&mut self, id: TransitId, lane: LaneId, now: Instant) {
        if self.bytes > MAX_BYTES {
            return self.lose(id, Cause::Memory);
        }
        let transit = &self.transits[id as usize];
        let (len, info) = (transit.packet.len() as u32, transit.info);
        let engine = &mut self.lanes[lane.0 as usize].engine;
        if engine.loses_on_arrival(len, || info.has_payload(), now) {
            self.transit(id).1.sent += 1;
            return self.lose(id, Cause::Loss);
        }
        if engine.queue().is_none() {
            let sent = engine.transmit(len, now);
            return self.propagate(id, lane, sent);
        }
        // Queues have flow ids of 32 bits: of 10 000 connections, two share an id with a probability of 1 %.
        let mut pkt = Packet {
            ecn: info.ecn,
            dscp: info.dscp,
            ..Packet::new(len, FlowId(info.connection() as u32), id)
        };
        if engine.offer(&mut pkt, now, &mut self.dropped) {
            self.enqueue(pkt, lane, now);
        }
        self.count_dropped();
        self.schedule_wake(lane);
    }

    /// Puts an admitted packet in a lane's queue.
    fn enqueue(&mut self, pkt: Packet, lane: LaneId, now: Instant) {
        self.apply_mark(pkt);
        if self.lanes[lane.0 as usize].engine.enqueue(pkt, now, &mut self.dropped) {
            self.serve(lane, now);
        }
    }

    /// Sends a lane's next packet, or the rest of one.
    fn serve(&mut self, lane: LaneId, now: Instant) {
        let l = &mut self.lanes[lane.0 as usize];
        let (transits, hosts, rates_of) = (&self.transits, &self.hosts, l.rates_of);
        let terminal = |pkt: &Packet| host_of(hosts, &transits.get(pkt.handle as usize)?.info, rates_of?);
        match l.engine.serve(now, &mut self.dropped, terminal) {
            Service::Idle => {}
            Service::Blocked(until) => self.enter(until, Event::Free(lane)),
            Service::Sending { pkt, next, progress, .. } => {
                self.apply_mark(pkt);
                self.enter(next, Event::Free(lane));
                match progress {
                    Progress::Partial => {}
                    Progress::Sent(sent) => self.propagate(pkt.handle, lane, sent),
                    Progress::Lost => {
                        self.transit(pkt.handle).1.sent += 1;
                        self.lose(pkt.handle, Cause::Access);
                    }
                }
            }
        }
        self.count_dropped();
    }

    /// Puts a packet whose last bit leaves at `sent` on the channel.
    fn propagate(&mut self, id: TransitId, lane: LaneId, sent: Instant) {
        let transit = &self.transits[id as usize];
        let (len, info) = (transit.packet.len() as u32, transit.info);
        let Lane { row, engine, line, delays, .. } = &mut self.lanes[lane.0 as usize];
        self.rows[row.0].counts.sent += 1;
        let sent = match engine.apply_channel(len, info.has_payload(), sent) {
            Ok(sent) => sent,
            Err(cause) => return self.lose(id, cause.into()),
        };
        let own = engine.has_own_delays().then(|| delays.draw(engine, info.connection()));
        let (delay, ordered) = engine.delay(|| own.unwrap_or_default());
        // Packets of a connection keep their order anyway, since all have the same delay.
        let ordered = ordered && own.is_none();
        let held_back = engine.held_back();
        let arrival = match held_back {
            Some(time) => (sent + delay).max(line.last_arrival()) + time,
            None if ordered => (sent + delay).max(line.last_arrival()),
            None => sent + delay,
        };
        let is_duplicated = engine.duplicates();
        let counts = &mut self.rows[row.0].counts;
        counts.reordered += u64::from(held_back.is_some());
        counts.duplicated += u64::from(is_duplicated);
        if held_back.is_some() || !ordered {
            self.enter(arrival, Event::Arrive(id));
        } else if let Some(at) = line.push(arrival, id) {
            self.enter(at, Event::Line(lane));
        }
        if is_duplicated {
            let transit = &self.transits[id as usize];
            let copy = Transit { packet: transit.packet.clone(), ..*transit };
            self.bytes += copy.packet.len() as u64;
            let copy = self.transits.insert(copy) as u32;
            self.enter(arrival, Event::Arrive(copy));
        }
    }

    fn lose(&mut self, id: TransitId, cause: Cause) {
        let index = CAUSES.iter().position(|(known, _)| *known == cause).unwrap_or(0);
        self.transit(id).1.dropped[index] += 1;
        let transit = self.transits.remove(id as usize);
        self.bytes -= transit.packet.len() as u64;
        self.return_buffer(transit.packet);
    }

    /// Counts the packets that a queue dropped.
    fn count_dropped(&mut self) {
        while let Some((pkt, reason)) = self.dropped.0.pop() {
            let cause = match reason {
                DropReason::Aqm => Cause::Aqm,
                DropReason::Overflow => Cause::Overflow,
            };
            self.lose(pkt.handle, cause);
        }
    }

    /// Sets CE in a packet that its queue has marked.
    fn apply_mark(&mut self, pkt: Packet) {
        let (transit, counts) = self.transit(pkt.handle);
        if pkt.ecn == Ecn::Ce && transit.info.ecn != Ecn::Ce {
            transit.info.ecn = Ecn::Ce;
            let _ = set_ce(&mut transit.packet);
            counts.marked += 1;
        }
    }

    fn wake(&mut self, lane: LaneId, now: Instant) {
        if !self.lane(lane).engine.wake(now) {
            return;
        }
        loop {
            match self.lanes[lane.0 as usize].engine.release(now, &mut self.dropped) {
                Release::Done => break,
                Release::None => {}
                Release::Packet(pkt) => self.enqueue(pkt, lane, now),
            }
            self.count_dropped();
        }
        self.schedule_wake(lane);
    }

    /// Schedules the next wake-up of a lane's queue.
    fn schedule_wake(&mut self, lane: LaneId) {
        if let Some(at) = self.lane(lane).engine.next_wake() {
            self.enter(at, Event::Wake(lane));
        }
    }

    fn update_capacity(&mut self, lane: LaneId, now: Instant) {
        let l = &mut self.lanes[lane.0 as usize];
        let Some((rate, next)) = l.engine.update_capacity(now) else { return };
        self.changed.push((l.row, rate));
        if let Some(next) = next {
            self.enter(next, Event::Capacity(lane));
        }
    }
}

impl ConnectionDelays {
    /// Delay of a connection, the same at every call.
    fn draw(&self, engine: &LinkEngine, connection: u64) -> Duration {
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

/// Index within a group of the host that a packet comes from or goes to.
fn host_of(hosts: &BTreeMap<IpAddr, (u32, u32)>, info: &Info, group: u32) -> Option<u32> {
    [info.src, info.dst]
        .into_iter()
        .filter_map(|end| hosts.get(&end.ip()))
        .find(|(of, _)| *of == group)
        .map(|(_, host)| *host)
}
