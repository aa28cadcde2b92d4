//! Positions of the packets in flight.

use bentpipe_units::{Duration, Instant};

use super::Engine;
use crate::ids::{Id, LinkDirectionId, PacketId, StreamId};
use crate::network::{Body, Hop, PacketInFlight, SharedLine};

/// A packet in flight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Position {
    /// Number of the packet; it may be given to another one when this one has arrived.
    pub packet: u32,
    /// Its place.
    pub at: At,
    /// Its class of traffic (an index of [`crate::Simulation::classes`]); `None` if it has none.
    pub class: Option<u32>,
    /// True if it carries payload.
    pub has_payload: bool,
}

/// Place of a packet in flight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum At {
    /// On a link, by the number of its direction ([`crate::Simulation::links`]): the share of its propagation delay that has
    /// passed; if that is drawn for each packet, of its mean.
    Link(u32, f32),
    /// Waiting to be sent on a link.
    Waiting(u32),
    /// In a gateway, by its number in the scenario: at the receive queue, in the PEP, or in the transmit queue if it is not split.
    Gateway(u32),
}

impl Engine {
    /// Position of each packet in flight, but of those on links on which packets overtake each other.
    pub fn positions(&self) -> Vec<Position> {
        let mut found = Vec::with_capacity(self.network.packets.len());
        let mut is_on_line = std::collections::BTreeSet::new();
        let now = self.clock.now();
        let own =
            self.network.lines.iter().flat_map(|line| line.iter().map(|on_line| (*on_line, line.delay)));
        let shared = self.network.shared_lines.iter().flat_map(SharedLine::iter);
        // Links that share a line have a fixed delay.
        for ((arrival, id), delay) in own.chain(shared.map(|on_line| (on_line, Duration::ZERO))) {
            is_on_line.insert(id.index());
            let packet = &self.network.packets[id];
            if let Some(Hop::Link { link, .. }) = self.network.paths.first(packet.path) {
                let at = self.on_link(link, arrival - now, delay);
                found.push(self.position(id, packet, at));
            }
        }
        for (id, packet) in self.network.packets.iter() {
            if is_on_line.contains(&id.index()) {
                continue;
            }
            let at = match self.network.paths.first(packet.path) {
                Some(Hop::Link { link, .. }) if self.network.links[link].engine.keeps_order() => {
                    At::Waiting(link.index())
                }
                Some(Hop::Link { .. } | Hop::Resize { .. }) => continue,
                Some(Hop::Gateway { gateway, .. }) => At::Gateway(self.gateways[gateway].number as u32),
                None => match packet.body {
                    Body::Chunk { terminal, .. } => {
                        At::Gateway(self.gateways[self.terminals[terminal].gateway].number as u32)
                    }
                    _ => continue,
                },
            };
            found.push(self.position(id, packet, at));
        }
        found
    }

    /// Place of a packet that arrives after `left` at the end of a link whose connections may have a delay of their `own`.
    fn on_link(&self, link: LinkDirectionId, left: Duration, own: Duration) -> At {
        let of = |link: LinkDirectionId| {
            let engine = &self.network.links[link].engine;
            let mean = || {
                if engine.has_own_delays() {
                    own
                } else {
                    engine.delay_distribution().fixed + engine.delay_distribution().jitter.mean()
                }
            };
            engine.fixed_delay().unwrap_or_else(mean)
        };
        let (delay, before) = (of(link), self.network.links[link].follows());
        // A link that follows another holds its packets from the time at which they entered that one.
        let (link, left, delay) = match before {
            Some(before) if left > delay => (before, left.as_secs_f64() - delay.as_secs_f64(), of(before)),
            _ => (link, left.as_secs_f64(), delay),
        };
        let share = if delay == Duration::ZERO { 1.0 } else { 1.0 - left / delay.as_secs_f64() };
        At::Link(link.index(), share.max(0.0) as f32)
    }

    fn position(&self, id: PacketId, packet: &PacketInFlight, at: At) -> Position {
        let slot = packet.slot.or_else(|| match packet.body {
            Body::PepData { terminal, data, .. } => {
                self.terminals[terminal].streams.get(StreamId::new(data.stream)).map(|stream| stream.slot)
            }
            Body::Chunk { terminal, stream, .. } => {
                self.terminals[terminal].streams.get(stream).map(|stream| stream.slot)
            }
            _ => None,
        });
        let class =
            slot.map(|slot| self.record.recorder.class_of(self.endpoints.slots[slot].traffic).index());
        Position { packet: id.index(), at, class, has_payload: packet.body.has_payload() }
    }

    /// Handles the events up to the next one at which a packet arrives at the subject, leaves it or is dropped there, and all
    /// others of the same time, but none after `end`. Returns false without such an event, or at a fault.
    pub fn step(&mut self, end: Instant) -> bool {
        let passed = self.passed();
        while !self.has_fault()
            && let Some(event) = self.clock.advance(end)
        {
            self.dispatch(event);
            if self.passed() != passed {
                let now = self.clock.now();
                while let Some(event) = self.clock.advance(now) {
                    self.dispatch(event);
                }
                return true;
            }
        }
        false
    }

    fn passed(&self) -> [u64; 3] {
        self.record.recorder.passed_subject(self.parts())
    }
}
