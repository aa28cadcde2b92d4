//! Observation of packets on watched links.

use bentpipe_scenario::Scenario;

use super::Engine;
use crate::endpoints::Step;
use crate::ids::{ConnId, Id, InterfaceId, LinkDirectionId, PacketId, SlotId, TerminalId};
use crate::network::{Body, Hop};
use crate::record::observe::{Ends, Observation, Packet, PepEnds, Watch, interfaces};
use crate::record::trace::Tracer;
use crate::side::Side;

impl Engine {
    /// Observes links and traces flows from the beginning of the run.
    ///
    /// # Errors
    /// A link that does not exist, or that no packet ever takes.
    pub fn watch(&mut self, scenario: &Scenario, watch: &Watch) -> Result<(), String> {
        self.record.tracer = Tracer::new(&watch.flows, watch.logs.as_ref());
        for (number, interface) in (0..).zip(&interfaces(scenario, &watch.links)?) {
            let link = LinkDirectionId::new(interface.link);
            if interface.outbound
                && !self.is_used(link)
                && !self.is_used(LinkDirectionId::new(interface.link + 1))
            {
                return Err(format!(
                    "link {}: no packet is ever on it: either no traffic takes it, or it has no rate, delay, loss or \
                     queue, and is passed as if it were not there",
                    interface.name
                ));
            }
            self.network.observe(link, InterfaceId::new(number), interface.outbound);
        }
        Ok(())
    }

    /// True if any path takes a link.
    fn is_used(&self, link: LinkDirectionId) -> bool {
        let paths = self.terminals.iter().flat_map(|terminal| terminal.paths.iter());
        let mut hops = paths.flat_map(|path| self.network.paths.hops(*path));
        let is_used_by = |step: &Step, from: u32, to: u32| match step {
            Step::Link(step) => (0..from.max(to)).any(|member| step.link(member % from, member % to) == link),
            Step::Gateway { .. } | Step::Resize { .. } => false,
        };
        hops.any(|hop| matches!(*hop, Hop::Link { link: taken, .. } if taken == link))
            || self.apps.traffic.iter().any(|t| {
                let layouts = std::iter::once(&t.layout).chain(&t.layouts_after);
                let legs = layouts.flat_map(|layout| &layout.legs);
                let steps = legs.flat_map(|leg| leg.down.iter().chain(&leg.up));
                steps.into_iter().any(|step| is_used_by(step, t.from.count, t.to.count))
            })
    }

    /// Observes a packet that passes from a link to the one that follows: at the end of the former, and sent on the latter.
    #[inline(never)]
    pub(super) fn observe_passing(&mut self, id: PacketId) {
        for interface in self.network.passed_interfaces(id).into_iter().flatten() {
            self.observe(interface, id, false);
        }
    }

    /// Observes a packet on a watched link.
    #[cold]
    #[inline(never)]
    pub(super) fn observe(&mut self, interface: InterfaceId, id: PacketId, lost: bool) {
        let in_flight = &self.network.packets[id];
        let packet = match in_flight.body {
            Body::Tcp { to, segment } => {
                let conn = &self.endpoints.tcp[to];
                let place = to.index() - self.endpoints.slots[conn.slot].conns.start.index();
                let config = self.endpoints.tcp.config(conn.peer);
                Packet::Tcp {
                    // The first end of each leg is nearer the data's sender.
                    ends: self.ends(conn.slot, place / 2, place % 2 == 1),
                    segment,
                    mss: config.mss,
                    receive_window: config.receive_window,
                    window_scale: config.window_scale.map(|shift| shift.min(14)),
                }
            }
            Body::Sctp { to, packet, .. } => {
                let Some(slot) = in_flight.slot else { return };
                let with_data = Some(to) != self.endpoints.slots[slot].sctp;
                let ends = Ends { sender_opened: true, ..self.ends(slot, 0, with_data) };
                Packet::Sctp { ends, packet: Box::new(self.network.packets.sctp[packet].clone()) }
            }
            Body::Quic { to, datagram, ecn, is_repeated, address, .. } => {
                let end = &self.endpoints.quic[to];
                let sender = if end.is_sender { end } else { &self.endpoints.quic[end.peer] };
                Packet::Quic {
                    ends: Ends {
                        sender_opened: sender.is_client(),
                        address,
                        ..self.ends(end.slot, 0, !end.is_sender)
                    },
                    ecn,
                    is_repeated,
                    payload: self.network.packets.datagrams[datagram].clone(),
                }
            }
            Body::Datagram | Body::Rtp { .. } | Body::SenderReport { .. } | Body::ReceiverReport { .. } => {
                let Some(slot) = in_flight.slot else { return };
                let with_data = !matches!(in_flight.body, Body::ReceiverReport { .. });
                Packet::Datagram { ends: self.ends(slot, 0, with_data) }
            }
            Body::PepData { terminal, to, data } => {
                Packet::PepData { ends: self.pep_ends(terminal, to), data }
            }
            Body::PepAck { terminal, to, ack } => {
                let ack = Box::new(self.network.packets.acks[ack]);
                Packet::PepAck { ends: self.pep_ends(terminal, to), ack }
            }
            Body::Chunk { .. } => return,
        };
        let (time, len) = (self.clock.now(), in_flight.len);
        let interface = interface.index();
        self.record.observations.push(Observation { time, interface, len, lost, packet });
    }

    fn pep_ends(&self, terminal: TerminalId, to: Side) -> PepEnds {
        let node = &self.terminals[terminal];
        let to_terminal = to.is_far() != node.is_return;
        PepEnds { terminal: node.number.index(), to_terminal, of_uploads: node.is_return }
    }

    pub(super) fn ends(&self, slot: SlotId, leg: u32, with_data: bool) -> Ends {
        let slot = &self.endpoints.slots[slot];
        let t = &self.apps.traffic[slot.traffic];
        let first: ConnId = slot.conns.start;
        Ends {
            flow: slot.flow.0,
            traffic: slot.traffic.index(),
            leg,
            sender: t.from.first + slot.hosts.0,
            receiver: t.to.first + slot.hosts.1,
            with_data,
            sender_opened: self.endpoints.tcp.get(first).is_some_and(|conn| conn.is_active),
            address: 0,
        }
    }
}
