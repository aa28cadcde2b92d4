//! The bottleneck of each flow over TCP or QUIC, found every second or so from the state of its connections, streams and queues.

use bentpipe_queue::{Packet, Queue};
use bentpipe_quic as quic;
use bentpipe_transport::tcp;
use bentpipe_units::{Duration, Instant};

use super::Engine;
use crate::bottleneck::Bottleneck;
use crate::endpoints::tcp::Role;
use crate::endpoints::{Departures, FlowSlot, Phase, Place};
use crate::gateways::GatewayNode;
use crate::ids::{ConnId, GatewayId, Id, IdVec, LinkDirectionId, QuicEndId, StreamId, TerminalId};
use crate::network::{Hop, LinkDirection};
use crate::side::Side;

/// A queue limits a flow if its delay is more than a tenth of the round-trip time; otherwise the window that fills the
/// path does.
const STANDING_QUEUE: u64 = 10;
/// A place is busy if it sends for this share of the time [%].
const BUSY: u64 = 90;

/// Shortest time between two looks at flows and loads: longer than a round trip, in which the packets of one window may
/// come at once.
const INTERVAL: Duration = Duration::from_secs(1);

/// Loads of the places with queues.
pub struct Loads {
    at: Instant,
    /// Those of links, in their order.
    links: Vec<(LinkDirectionId, Load)>,
    gateways: IdVec<GatewayId, Load>,
}

/// Load of one place.
#[derive(Clone, Copy, Default)]
struct Load {
    /// Bytes and packets sent since the run began, and the integral of the queue over time [packet s].
    sent: (u64, u64),
    packet_seconds: f64,
    /// Mean queueing delay by Little's law, which a burst once in a round trip does not bias as its sampled length would.
    delay: Duration,
    /// True if the place sent nearly all the time.
    is_busy: bool,
    /// Flows of which packets left since the last look, and the mean bytes of each before it; counted only where a
    /// scheduler tells flows apart.
    flows: u32,
    mean_bytes: u64,
}

impl Loads {
    /// Loads before the first measurement.
    pub fn new(
        links: &IdVec<LinkDirectionId, LinkDirection>,
        gateways: &IdVec<GatewayId, GatewayNode>,
    ) -> Self {
        let with_queue = links.ids().filter(|link| links[*link].engine.queue().is_some());
        Self {
            at: Instant::ZERO,
            links: with_queue.map(|link| (link, Load::default())).collect(),
            gateways: gateways.iter().map(|_| Load::default()).collect(),
        }
    }

    /// Place of a link's load; `None` if it has no queue.
    fn place_of(&self, link: LinkDirectionId) -> Option<usize> {
        self.links.binary_search_by_key(&link, |(link, _)| *link).ok()
    }
}

impl Load {
    fn of(queue: &Queue, before: Self, begin: Instant, now: Instant) -> Self {
        let sent = (queue.state().sent_bytes, queue.counters().sent);
        let packet_seconds = queue.packet_seconds(now);
        let (bytes, packets) = (sent.0 - before.sent.0, sent.1 - before.sent.1);
        let capacity = queue.state().capacity;
        let delay = match packets {
            0 => capacity.time_to_send(queue.state().bytes),
            _ => Duration::from_secs_f64((packet_seconds - before.packet_seconds) / packets as f64),
        };
        let is_busy = capacity.time_to_send(bytes).times(100) > (now - begin).times(BUSY);
        let mean_bytes = bytes / u64::from(before.flows.max(1));
        Self { sent, packet_seconds, delay, is_busy, flows: 0, mean_bytes }
    }

    /// The load as a flow sees it of which these packets left: their own delay, and busy only if the flow got its share.
    fn seen_by(self, left: &Departures) -> Self {
        let delay = Duration::from_nanos(left.waited.as_nanos() / u64::from(left.packets));
        Self { delay, is_busy: self.is_busy && left.bytes >= self.mean_bytes, ..self }
    }
}

impl Engine {
    /// Records the bottleneck of each flow, if the last look is long enough ago, and lets flows give back memory.
    pub(super) fn sample_bottlenecks(&mut self) {
        if self.clock.now() - self.loads.at < INTERVAL {
            return;
        }
        self.update_loads();
        for slot in self.endpoints.slots.iter() {
            if slot.phase != Phase::Live {
                continue;
            }
            let bottleneck = match slot.quic {
                Some(sender) => self.quic_bottleneck(slot, sender),
                None if slot.conns.is_empty() => continue,
                None => self.bottleneck(slot),
            };
            self.record.recorder.limited(slot.flow, bottleneck);
        }
        for slot in self.endpoints.slots.iter_mut() {
            slot.departures.clear();
            slot.units.give_room_back();
        }
    }

    /// Counts a packet that leaves a queue whose scheduler tells flows apart, for its flow.
    pub(super) fn count_departure(&mut self, place: Place, pkt: &Packet) {
        let Some(slot) = self.network.packets[Id::new(pkt.handle)].slot else { return };
        let waited = self.clock.now() - pkt.arrival;
        if self.endpoints.slots[slot].count_departure(place, u64::from(pkt.len), waited) {
            let loads = &mut self.loads;
            match place {
                Place::Link(link) => {
                    if let Some(place) = loads.place_of(link) {
                        loads.links[place].1.flows += 1;
                    }
                }
                Place::Gateway(gateway) => loads.gateways[gateway].flows += 1,
            }
        }
    }

    fn update_loads(&mut self) {
        let Self { network, gateways, loads, clock, .. } = self;
        let (begin, now) = (std::mem::replace(&mut loads.at, clock.now()), clock.now());
        for (link, load) in &mut loads.links {
            if let Some(queue) = network.links[*link].engine.queue() {
                *load = Load::of(queue, *load, begin, now);
            }
        }
        for (node, load) in gateways.iter().zip(loads.gateways.iter_mut()) {
            *load = Load::of(node.gateway.transmit_queue(), *load, begin, now);
        }
    }

    /// The last resource on a flow's way before which its data wait.
    fn bottleneck(&self, slot: &FlowSlot) -> Bottleneck {
        for leg in (0..slot.paths.len()).rev() {
            let sender = slot.conns.at(2 * leg as u32);
            if let Some(bottleneck) = self.leg(slot, leg, sender) {
                return bottleneck;
            }
            if let Some((terminal, stream)) = leg.checked_sub(1).map(|joint| slot.streams[joint])
                && let Some(bottleneck) = self.pep_link(slot, terminal, stream)
            {
                return bottleneck;
            }
        }
        Bottleneck::Sender
    }

    /// The limit of the data on one leg; `None` if none wait.
    fn leg(&self, slot: &FlowSlot, leg: usize, sender: ConnId) -> Option<Bottleneck> {
        let (conn, config) = (&self.endpoints.tcp[sender], self.endpoints.tcp.config(sender));
        let stats = conn.tcp.stats();
        let standing = || self.standing_queue(slot, leg, stats.srtt);
        let busy = || self.places(slot, leg).find(|(_, load)| load.is_busy).map(|(place, _)| place);
        match conn.tcp.limit(config) {
            tcp::Limit::Sender if conn.tcp.send_queue() == 0 => None,
            tcp::Limit::Sender => standing(),
            tcp::Limit::ReceiveWindow => {
                standing().or_else(busy).or_else(|| Some(self.receive_window(conn.peer)))
            }
            // It has adapted to a full place, or to the last loss.
            tcp::Limit::CongestionWindow => {
                let is_reduced = stats
                    .ssthresh
                    .is_some_and(|ssthresh| config.initial_ssthresh.is_none_or(|initial| ssthresh < initial));
                let loss = slot.last_drop.filter(|_| is_reduced);
                standing().or_else(busy).or(loss).or(Some(Bottleneck::StartUp))
            }
        }
    }

    /// The limit of a flow over QUIC, which is one leg.
    fn quic_bottleneck(&self, slot: &FlowSlot, sender: QuicEndId) -> Bottleneck {
        let end = &self.endpoints.quic[sender];
        let stats = end.stats();
        let standing = || self.standing_queue(slot, 0, stats.srtt);
        let busy = || self.places(slot, 0).find(|(_, load)| load.is_busy).map(|(place, _)| place);
        let found = match end.limit() {
            None => None,
            Some(quic::Limit::Sender) if stats.in_flight == 0 => Some(Bottleneck::Sender),
            Some(quic::Limit::Sender) => standing().or(Some(Bottleneck::Sender)),
            Some(quic::Limit::ReceiveWindow) => standing().or_else(busy).or(Some(Bottleneck::ReceiveWindow)),
            Some(quic::Limit::CongestionWindow) => {
                let loss = slot.last_drop.filter(|_| stats.ssthresh.is_some());
                standing().or_else(busy).or(loss)
            }
        };
        found.unwrap_or(Bottleneck::StartUp)
    }

    /// The limit of a stream's data at a gateway; `None` if all are on their way.
    fn pep_link(&self, slot: &FlowSlot, terminal: TerminalId, stream: StreamId) -> Option<Bottleneck> {
        let terminal = &self.terminals[terminal];
        let end = &terminal.ends[Side::Near];
        if !end.has_unacknowledged(stream.index()) {
            return None;
        }
        let queues = terminal.streams[stream].queues[Side::Near].unwrap_or(terminal.gateway);
        let carrier = self.load(slot, Place::Gateway(queues));
        if carrier.is_busy || is_standing(carrier.delay, Some(end.stats().srtt)) {
            return Some(Bottleneck::Carrier);
        }
        end.is_window_limited(stream.index()).then_some(Bottleneck::SpacelinkWindow)
    }

    /// The resource behind a receiver's window.
    fn receive_window(&self, receiver: ConnId) -> Bottleneck {
        let receive_window = self.endpoints.tcp.config(receiver).receive_window;
        match self.endpoints.tcp[receiver].role {
            Role::Split { terminal, stream, side: Side::Near }
                if self.terminals[terminal].is_tight(stream, receive_window) =>
            {
                Bottleneck::PepBuffer
            }
            _ => Bottleneck::ReceiveWindow,
        }
    }

    /// The place on a leg with the longest queue, if its delay is a considerable part of the round-trip time.
    fn standing_queue(&self, slot: &FlowSlot, leg: usize, srtt: Option<Duration>) -> Option<Bottleneck> {
        let (place, longest) = self.places(slot, leg).max_by_key(|(_, load)| load.delay)?;
        is_standing(longest.delay, srtt).then_some(place)
    }

    /// The places that a leg's data pass, at its end the gateway that splits it: what they are to flows that they limit,
    /// and their loads as the flow sees them.
    fn places(&self, slot: &FlowSlot, leg: usize) -> impl Iterator<Item = (Bottleneck, Load)> {
        let hops = self.network.paths.hops(slot.paths[leg].0).iter();
        hops.filter_map(|hop| match *hop {
            Hop::Link { link, .. } => {
                Some((self.network.links[link].bottleneck, self.load(slot, Place::Link(link))))
            }
            Hop::Gateway { gateway, .. } => {
                Some((Bottleneck::Carrier, self.load(slot, Place::Gateway(gateway))))
            }
            Hop::Resize { .. } => None,
        })
    }

    /// The load of a place as a flow sees it: with a scheduler, what its own packets met; if none of them left since the
    /// last look, and in a queue that all share, what all packets met.
    fn load(&self, slot: &FlowSlot, place: Place) -> Load {
        let load = match place {
            Place::Link(link) => match self.loads.place_of(link) {
                Some(place) => self.loads.links[place].1,
                None => Load { delay: self.network.links[link].backlog(self.clock.now()), ..Load::default() },
            },
            Place::Gateway(gateway) => self.loads.gateways[gateway],
        };
        slot.departures.iter().find(|left| left.place == place).map_or(load, |left| load.seen_by(left))
    }
}

fn is_standing(delay: Duration, srtt: Option<Duration>) -> bool {
    srtt.is_some_and(|srtt| delay.times(STANDING_QUEUE) > srtt)
}
