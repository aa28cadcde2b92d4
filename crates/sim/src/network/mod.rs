//! The network: links, delay lines, paths, and the packets on them.
//!
//! It moves packets and schedules its own events; it knows nothing of what packets mean to their ends.

mod packet;
mod path;
mod shared_line;

use bentpipe_link::{DelayLine, LinkEngine, Service};
use bentpipe_queue::{DropHandler, DropReason, Ecn, Packet};
use bentpipe_transport::tcp;
use bentpipe_units::{Duration, Instant, Rate};

use crate::bottleneck::Bottleneck;
use crate::clock::{Clock, Event, EventNumber};
use crate::ids::{
    GatewayId, Id, IdRange, IdVec, InterfaceId, LineId, LinkDirectionId, PacketId, SharedLineId, SlotId,
};
use crate::memory::prefetch;

pub use packet::{Body, PacketInFlight, Packets};
pub use path::{Hop, Path, Paths};
pub use shared_line::SharedLine;

/// One direction of a link, with its counters.
// Aligned to cache lines, so that it takes three.
#[repr(align(64))]
pub struct LinkDirection {
    /// The resource that it is to the flows that it limits.
    pub bottleneck: Bottleneck,
    /// True if the scheduler of its queue tells flows apart, so that they wait for different times.
    pub has_flow_scheduler: bool,
    pub engine: LinkEngine,
    /// Hosts with a rate each on this link: number of the first, and how many.
    pub terminals: (u32, u32),
    /// The queues whose regulator follows its capacity, or that stop while it has none.
    pub followers: IdRange<GatewayId>,
    /// Its delay line, unless each connection has its own. Not used while `shared_line` is set; all links of the group then
    /// name the same one.
    pub line: LineId,
    /// The delay line that it shares with the other links of its group, until they are
    /// [separated](Network::separate_links).
    pub shared_line: Option<SharedLineId>,
    /// Arrival of the last packet that it has put on the shared line, and the packet.
    last_on_line: (Instant, PacketId),
    pub counters: LinkCounters,
    /// Interface at which packets are observed when they have been sent.
    pub observed_sent: Option<InterfaceId>,
    /// Interface at which packets are observed when they arrive.
    pub observed_arriving: Option<InterfaceId>,
    /// True if the channel may affect packets, or they are observed when sent.
    is_eventful: bool,
    /// The link from which all its packets come, if they enter it as soon as that link has sent them.
    follows: Option<LinkDirectionId>,
    /// True if a link follows it.
    is_followed: bool,
}

/// Packets that a link has carried since the run began.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkCounters {
    pub sent: u64,
    pub lost: u64,
    /// Packets among the lost that the link layer gave up.
    pub given_up: u64,
}

impl LinkDirection {
    pub fn new(bottleneck: Bottleneck, engine: LinkEngine, terminals: (u32, u32), line: LineId) -> Self {
        Self {
            bottleneck,
            has_flow_scheduler: false,
            is_eventful: engine.has_channel(),
            engine,
            terminals,
            followers: IdRange { start: GatewayId::new(0), len: 0 },
            line,
            shared_line: None,
            last_on_line: (Instant::ZERO, PacketId::new(0)),
            counters: LinkCounters::default(),
            observed_sent: None,
            observed_arriving: None,
            follows: None,
            is_followed: false,
        }
    }

    /// Time that a packet waits for what is in front of a link without a queue. A link that follows another is at least as
    /// fast, so that nothing waits.
    pub fn backlog(&self, now: Instant) -> Duration {
        if self.follows.is_some() { Duration::ZERO } else { self.engine.backlog(now) }
    }

    /// The link from which its packets come without an event in between, if any.
    pub fn follows(&self) -> Option<LinkDirectionId> {
        self.follows
    }

    /// Observes packets at an interface: when they have been sent, or when they arrive.
    fn observe(&mut self, interface: InterfaceId, sent: bool) {
        if sent {
            (self.observed_sent, self.is_eventful) = (Some(interface), true);
        } else {
            self.observed_arriving = Some(interface);
        }
    }
}

/// First step of a packet on a link.
pub enum Entry {
    /// The link lost it.
    Lost,
    /// The link has no queue, and sends the packet up to this time.
    Sent(Instant),
    /// The packet has to pass the link's queue.
    Queue,
}

/// Effect of a link's channel on a packet.
pub enum Crossing {
    /// It is on its way.
    Passed,
    /// It is on its way, and is observed.
    Observed(InterfaceId),
    /// The channel lost it; it may be observed.
    Lost(Option<InterfaceId>),
}

/// Packets that queues discarded and the engine has not dropped yet.
#[derive(Debug, Default)]
pub struct Discarded(Vec<(Packet, DropReason)>);

impl DropHandler for Discarded {
    fn dropped(&mut self, pkt: Packet, reason: DropReason) {
        self.0.push((pkt, reason));
    }
}

impl Discarded {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the packets out; [`Discarded::give_back`] returns the room.
    pub fn take(&mut self) -> Vec<(Packet, DropReason)> {
        std::mem::take(&mut self.0)
    }

    pub fn give_back(&mut self, room: Vec<(Packet, DropReason)>) {
        debug_assert!(self.0.is_empty() && room.is_empty(), "dropping a packet discards no other");
        self.0 = room;
    }
}

/// Links, delay lines, paths, and packets.
#[derive(Default)]
pub struct Network {
    pub packets: Packets,
    pub links: IdVec<LinkDirectionId, LinkDirection>,
    pub lines: IdVec<LineId, DelayLine<PacketId>>,
    pub shared_lines: IdVec<SharedLineId, SharedLine>,
    pub paths: Paths,
    pub discarded: Discarded,
    /// Packets that have arrived at the end of a link since the run began.
    arrived: u64,
    /// True if packets are observed on a link.
    is_observed: bool,
}

impl Network {
    // ----- packets -------------------------------------------------------------------------------------------

    /// Next hop of a packet; `None` at the end of its path.
    #[inline]
    pub fn next_hop(&self, id: PacketId) -> Option<Hop> {
        self.paths.first(self.packets[id].path)
    }

    /// Moves a packet past its next hop, which is returned; there is one.
    #[inline]
    pub fn pass_hop(&mut self, id: PacketId) -> Hop {
        let path = &mut self.packets[id].path;
        let hop = self.paths.at(path.start);
        path.start += 1;
        hop
    }

    /// Removes the packet that arrives on a delay line.
    #[inline(always)]
    pub fn pop_line(&mut self, line: LineId, clock: &mut Clock) -> Option<PacketId> {
        let l = &mut self.lines[line];
        let packet = l.pop()?;
        if let Some(at) = l.next_arrival() {
            clock.at(at, Event::Line(line));
        }
        Some(packet)
    }

    /// Observes packets of a link at an interface: when they have been sent, or when they arrive.
    pub fn observe(&mut self, link: LinkDirectionId, interface: InterfaceId, sent: bool) {
        self.is_observed = true;
        self.links[link].observe(interface, sent);
    }

    /// Removes the packet that arrives on a shared line.
    #[inline(always)]
    pub fn pop_shared_line(&mut self, line: SharedLineId, clock: &mut Clock) -> Option<PacketId> {
        let (l, packets) = (&mut self.shared_lines[line], &mut self.packets);
        let packet = l.pop()?;
        let p = &mut packets[packet];
        p.is_on_shared_line = false;
        if let Some(next) = p.next_on_link.take() {
            packets[next].number = clock.reserve();
        }
        if let Some((at, first)) = l.first(|packet| packets[packet].number) {
            let first = &mut packets[first];
            // A packet that others have overtaken is scheduled already.
            if !std::mem::replace(&mut first.is_scheduled, true) {
                clock.at_reserved(at, first.number, Event::SharedLine(line));
            }
        }
        Some(packet)
    }

    /// A packet arrives at the end of its link; returns the interface at which it is observed.
    #[inline]
    pub fn leave_link(&mut self, id: PacketId) -> Option<InterfaceId> {
        self.arrived += 1;
        let path = &mut self.packets[id].path;
        path.start += 1;
        // Without observers the link itself is not touched, which saves a cache miss where links are many.
        if !self.is_observed {
            return None;
        }
        match self.paths.at(path.start - 1) {
            Hop::Link { link, .. } => self.links[link].observed_arriving,
            Hop::Gateway { .. } | Hop::Resize { .. } => None,
        }
    }

    /// Length of a packet if a transport repeats data with it, otherwise 0 [bytes].
    #[inline]
    pub fn repeated_bytes(&self, id: PacketId) -> u32 {
        let packet = &self.packets[id];
        let is_repeated = match &packet.body {
            Body::Tcp { segment, .. } => segment.retransmission,
            Body::PepData { data, .. } => data.retransmission,
            Body::Sctp { packet, .. } => self.packets.sctp[*packet].retransmission,
            Body::Quic { is_repeated, .. } => *is_repeated,
            _ => false,
        };
        if is_repeated { packet.len } else { 0 }
    }

    /// Writes a congestion mark of a queue into the packet.
    #[inline]
    pub fn write_mark(&mut self, pkt: &Packet) {
        if pkt.ecn == Ecn::Ce {
            match &mut self.packets[Id::new(pkt.handle)].body {
                Body::Tcp { segment, .. } => segment.ecn = tcp::Ecn::Ce,
                Body::Quic { ecn, .. } => *ecn = tcp::Ecn::Ce,
                _ => {}
            }
        }
    }

    // ----- links ---------------------------------------------------------------------------------------------

    /// A packet enters a link.
    #[inline(always)]
    pub fn enter(&mut self, id: PacketId, link: LinkDirectionId, now: Instant) -> Entry {
        let (packet, engine) = (&self.packets[id], &mut self.links[link].engine);
        if engine.loses_on_arrival(packet.len, || packet.body.has_payload(), now) {
            let counters = &mut self.links[link].counters;
            counters.sent += 1;
            counters.lost += 1;
            Entry::Lost
        } else if engine.queue().is_none() {
            Entry::Sent(engine.transmit(packet.len, now))
        } else {
            Entry::Queue
        }
    }

    /// Offers a packet to the AQM of a link's queue; true if it may enter the queue now.
    #[inline]
    pub fn offer(&mut self, pkt: &mut Packet, link: LinkDirectionId, now: Instant) -> bool {
        self.links[link].engine.offer(pkt, now, &mut self.discarded)
    }

    /// Puts a packet in a link's queue; true if the link is free to send.
    #[inline]
    pub fn enqueue(&mut self, pkt: Packet, link: LinkDirectionId, now: Instant) -> bool {
        self.write_mark(&pkt);
        self.links[link].engine.enqueue(pkt, now, &mut self.discarded)
    }

    /// Lets a link send its next packet. `terminal` gives the number of the host, among all, that a slot's packets go to or
    /// come from and that is one of the link's terminals.
    #[inline(always)]
    pub fn serve(
        &mut self,
        link: LinkDirectionId,
        clock: &mut Clock,
        terminal: impl FnOnce(SlotId, (u32, u32)) -> Option<u32>,
    ) -> Service {
        let Self { packets, links, discarded, .. } = self;
        let LinkDirection { engine, terminals, .. } = &mut links[link];
        let terminal = |pkt: &Packet| match packets[PacketId::new(pkt.handle)].slot {
            Some(slot) if terminals.1 > 0 => terminal(slot, *terminals),
            _ => None,
        };
        let service = engine.serve(clock.now(), discarded, terminal);
        match &service {
            Service::Idle => {}
            Service::Blocked(until) => clock.at(*until, Event::LinkFree(link)),
            Service::Sending { pkt, next, .. } => {
                clock.at(*next, Event::LinkFree(link));
                self.write_mark(pkt);
            }
        }
        service
    }

    /// Sends a packet on its way that left the sender of its link at `sent`.
    #[inline(always)]
    pub fn propagate(
        &mut self,
        id: PacketId,
        link: LinkDirectionId,
        line: LineId,
        mut sent: Instant,
        clock: &mut Clock,
    ) -> Crossing {
        let mut l = &mut self.links[link];
        l.counters.sent += 1;
        let mut crossing = Crossing::Passed;
        if l.is_eventful {
            let fate = self.apply_channel(id, link, sent);
            l = &mut self.links[link];
            match fate {
                None => return Crossing::Lost(l.observed_sent),
                Some(late) => sent = late,
            }
            if let Some(interface) = l.observed_sent {
                crossing = Crossing::Observed(interface);
            }
        }
        let (delay, ordered) = l.engine.delay(|| self.lines[line].delay);
        let (shared, arrival) = (l.shared_line, sent + delay);
        let (link, line, shared, arrival) = match l.is_followed {
            true => self.pass_on(id, (link, line, shared), arrival, clock),
            false => (link, line, shared, arrival),
        };
        if let Some(shared) = shared {
            self.add_to_shared_line(id, (link, shared), arrival, clock);
        } else if !ordered {
            clock.at(arrival, Event::Packet(id));
        } else if let Some(at) = self.lines[line].push(arrival, id) {
            clock.at(at, Event::Line(line));
        }
        crossing
    }

    /// Puts a packet on the line that a link shares. Its event has the number that it would have on a line of the link, where it
    /// is scheduled when the packet before it arrives.
    #[inline(always)]
    fn add_to_shared_line(
        &mut self,
        id: PacketId,
        (link, line): (LinkDirectionId, SharedLineId),
        arrival: Instant,
        clock: &mut Clock,
    ) {
        let (last_arrival, last) = std::mem::replace(&mut self.links[link].last_on_line, (arrival, id));
        let is_behind =
            last_arrival > clock.now() || last_arrival == clock.now() && self.is_on_shared_line(last, link);
        let number = if is_behind {
            self.packets[last].next_on_link = Some(id);
            EventNumber::UNKNOWN
        } else {
            clock.reserve()
        };
        let is_first = self.shared_lines[line].add(arrival, id);
        let packet = &mut self.packets[id];
        (packet.number, packet.is_on_shared_line, packet.is_scheduled) = (number, true, is_first);
        if is_first {
            clock.at_reserved(arrival, number, Event::SharedLine(line));
        }
    }

    /// True if a packet is on the line that a link shares. Its place may have been given to another packet.
    #[cold]
    fn is_on_shared_line(&self, id: PacketId, link: LinkDirectionId) -> bool {
        let packet = &self.packets[id];
        let is_on_link = |hop| matches!(hop, Hop::Link { link: taken, .. } if taken == link);
        packet.is_on_shared_line && self.paths.first(packet.path).is_some_and(is_on_link)
    }

    /// Sends a packet that arrives at the end of a link over the link that follows, without an event in between. Returns
    /// that link, its lines, own and shared, and the time of its arrival.
    #[inline]
    fn pass_on(
        &mut self,
        id: PacketId,
        (link, line, shared): (LinkDirectionId, LineId, Option<SharedLineId>),
        arrival: Instant,
        clock: &mut Clock,
    ) -> (LinkDirectionId, LineId, Option<SharedLineId>, Instant) {
        let packet = &mut self.packets[id];
        let Some(Hop::Link { link: next_link, line: next_line }) = self.paths.hop(packet.path, 1) else {
            return (link, line, shared, arrival);
        };
        if self.links[next_link].follows != Some(link) {
            return (link, line, shared, arrival);
        }
        packet.path.start += 1;
        let len = packet.len;
        self.arrived += 1;
        let is_observed = self.is_observed && self.links[link].observed_arriving.is_some();
        let next = &mut self.links[next_link];
        next.counters.sent += 1;
        if is_observed || next.observed_sent.is_some() {
            clock.at(arrival, Event::Passing(id));
        }
        let sent = next.engine.transmit(len, arrival);
        let (delay, _) = next.engine.delay(|| self.lines[next_line].delay);
        (next_link, next_line, next.shared_line, sent + delay)
    }

    /// The interfaces at which a packet is observed that has passed from a link to the one that follows.
    pub fn passed_interfaces(&self, id: PacketId) -> [Option<InterfaceId>; 2] {
        let start = self.packets[id].path.start;
        let link = |hop| match hop {
            Hop::Link { link, .. } => Some(&self.links[link]),
            Hop::Gateway { .. } | Hop::Resize { .. } => None,
        };
        let before = start.checked_sub(1).and_then(|place| link(self.paths.at(place)));
        [
            before.and_then(|link| link.observed_arriving),
            link(self.paths.at(start)).and_then(|link| link.observed_sent),
        ]
    }

    /// Lets packets enter the link `after` as soon as `before`, from which all of them come, has sent them, if neither
    /// could change their order: it saves the event of their arrival between the two.
    pub fn follow(&mut self, before: LinkDirectionId, after: LinkDirectionId) {
        let (first, second) = (&self.links[before], &self.links[after]);
        if first.engine.is_steady() && first.follows.is_none() && second.engine.passes_on(&first.engine) {
            self.links[after].follows = Some(before);
            self.links[before].is_followed = true;
        }
    }

    /// Lets every packet pass each link by its own events, on the link's own line, since rates or delays change.
    pub fn separate_links(&mut self) {
        for link in self.links.iter_mut() {
            if link.shared_line.take().is_some() {
                link.line = self.lines.push(DelayLine::default());
            }
            (link.follows, link.is_followed) = (None, false);
        }
        for hop in self.paths.all_mut() {
            if let Hop::Link { link, line } = hop
                && !self.links[*link].engine.has_own_delays()
            {
                *line = self.links[*link].line;
            }
        }
        // Packets on a shared line stay there, and others of their link do not overtake them.
        for (arrival, id) in self.shared_lines.iter().flat_map(SharedLine::iter) {
            if let Some(Hop::Link { line, .. }) = self.paths.first(self.packets[id].path) {
                self.lines[line].keep_behind(arrival);
            }
        }
    }

    /// Fetches the second hop of a packet into the cache.
    #[inline]
    pub fn fetch_second_hop(&self, id: PacketId) {
        self.paths.prefetch(self.packets[id].path, 1);
    }

    /// The link behind `link`, the packet's hop at this place, if packets enter it without an event in between.
    #[inline]
    fn link_behind(&self, id: PacketId, link: LinkDirectionId, place: u32) -> Option<LinkDirectionId> {
        match self.paths.hop(self.packets[id].path, place) {
            Some(Hop::Link { link: next, .. }) if self.links[link].is_followed => Some(next),
            _ => None,
        }
    }

    /// Fetches the link behind `link`, the packet's hop at this place, if packets enter it without an event in between.
    #[inline]
    pub fn fetch_link_behind(&self, id: PacketId, link: LinkDirectionId, place: u32) {
        if let Some(next) = self.link_behind(id, link, place) {
            prefetch(&self.links[next]);
        }
    }

    /// Fetches the packet that went before, on `link` or on the [link behind](Self::fetch_link_behind).
    #[inline]
    pub fn fetch_last(&self, id: PacketId, link: LinkDirectionId, place: u32) {
        let last = &self.links[self.link_behind(id, link, place).unwrap_or(link)];
        if last.shared_line.is_some() {
            self.packets.prefetch(last.last_on_line.1);
        }
    }

    /// Applies the channel to a packet; `None` if it is lost.
    #[inline(never)]
    fn apply_channel(&mut self, id: PacketId, link: LinkDirectionId, sent: Instant) -> Option<Instant> {
        let (packet, l) = (&self.packets[id], &mut self.links[link]);
        let fate = l.engine.apply_channel(packet.len, packet.body.has_payload(), sent).ok();
        l.counters.lost += u64::from(fate.is_none());
        fate
    }

    /// Counts a packet that the link layer gave up; returns the interface at which it is observed.
    pub fn count_lost_by_sender(&mut self, link: LinkDirectionId) -> Option<InterfaceId> {
        let link = &mut self.links[link];
        link.counters.sent += 1;
        link.counters.lost += 1;
        link.counters.given_up += 1;
        link.observed_sent
    }

    /// Schedules a link's queue.
    #[inline]
    pub fn arm(&mut self, link: LinkDirectionId, clock: &mut Clock) {
        if let Some(at) = self.links[link].engine.next_wake() {
            clock.at(at, Event::QueueWake(link));
        }
    }

    /// Updates the capacity of a link; returns it if it has changed.
    pub fn update_capacity(&mut self, link: LinkDirectionId, clock: &mut Clock) -> Option<Rate> {
        let (rate, next) = self.links[link].engine.update_capacity(clock.now())?;
        if let Some(next) = next {
            clock.at(next, Event::Capacity(link));
        }
        Some(rate)
    }

    // ----- checks --------------------------------------------------------------------------------------------

    /// Counts the packets on links, which have these names, and in their queues.
    ///
    /// # Errors
    /// A queue whose counters contradict each other.
    pub fn count<'a>(&self, names: impl Iterator<Item = &'a str>) -> Result<u64, String> {
        let mut count = 0;
        for (link, name) in self.links.iter().zip(names) {
            let LinkCounters { sent, lost, .. } = link.counters;
            count += sent - lost + link.engine.queued();
            if let Some(queue) = link.engine.queue() {
                queue.check().map_err(|e| format!("{name}: {e}"))?;
            }
        }
        Ok(count - self.arrived)
    }
}
