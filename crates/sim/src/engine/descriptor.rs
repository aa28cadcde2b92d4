//! Descriptors of packets, as queues see them.

use bentpipe_queue::{Ecn, FlowId, Packet, Tcp};
use bentpipe_scenario::FlowKey;
use bentpipe_transport::tcp;

use super::Engine;
use crate::ids::{ConnId, GatewayId, Id, PacketId, StreamId};
use crate::network::{Body, Hop, PacketInFlight};

/// Flow of the acknowledgements between a gateway and its terminal, as queues and records see it.
const PEP_ACKS: FlowId = FlowId(u32::MAX);

impl Engine {
    /// The flow of a packet, also of one just removed: a slot begins no other flow before the last packet is gone.
    #[inline]
    pub(super) fn flow_of(&self, packet: &PacketInFlight) -> FlowId {
        packet.slot.map_or(PEP_ACKS, |slot| self.endpoints.slots[slot].flow)
    }

    /// Describes a packet to a queue.
    #[inline]
    pub(super) fn describe(&self, id: PacketId) -> Packet {
        let packet = &self.network.packets[id];
        let slot = packet.slot.map(|slot| &self.endpoints.slots[slot]);
        let (mut flow, user) = slot.map_or((PEP_ACKS, PEP_ACKS), |slot| (slot.flow, slot.user));
        let (mut ecn, mut tcp) = (Ecn::NotEct, None);
        match &packet.body {
            Body::Tcp { to, segment } => {
                ecn = code_point(segment.ecn);
                let seq = initial_seq(flow, *to).wrapping_add(segment.seq as u32);
                tcp = Some(Tcp { window: segment.cwnd, seq, syn: segment.flags.has(tcp::Flags::SYN) });
            }
            Body::Quic { ecn: of_packet, address, .. } => {
                ecn = code_point(*of_packet);
                flow = slot.map_or(flow, |slot| slot.flow_from(*address));
            }
            // The fields of the connection that ends here: its sender's latest window, and the position in its stream.
            Body::PepData { terminal, to, data } => {
                let conn = self.terminals[*terminal].streams[StreamId::new(data.stream)].conns[to.peer()];
                let seq = initial_seq(flow, conn).wrapping_add(data.offset as u32);
                let window = self.endpoints.tcp[conn].peer_window;
                tcp = Some(Tcp { window, seq, syn: data.offset == 0 });
            }
            _ => {}
        }
        let split = matches!(self.network.next_hop(id), Some(Hop::Gateway { splits: true, .. }));
        let dscp = match slot {
            Some(slot) if self.apps.has_codepoints => self.apps.traffic[slot.traffic].dscp,
            _ => 0,
        };
        let arrival = self.clock.now();
        Packet { arrival, user, ecn, dscp, split, tcp, ..Packet::new(packet.len, flow, id.index()) }
    }

    /// Describes a packet to a gateway's queues, which number flows by the gateway's flow key.
    #[inline]
    pub(super) fn describe_at(&self, gateway: GatewayId, id: PacketId) -> Packet {
        let mut pkt = self.describe(id);
        if self.gateways[gateway].flow_key != FlowKey::Connection
            && let Some(slot) = self.network.packets[id].slot
        {
            pkt.flow = self.flow_at(gateway, slot);
        }
        pkt
    }
}

/// A code point as queues see it.
#[inline]
pub(super) fn code_point(ecn: tcp::Ecn) -> Ecn {
    match ecn {
        tcp::Ecn::NotEct => Ecn::NotEct,
        tcp::Ecn::Ect1 => Ecn::Ect1,
        tcp::Ecn::Ect0 => Ecn::Ect,
        tcp::Ecn::Ce => Ecn::Ce,
    }
}

/// Initial sequence number of the data that a connection receives on a flow: as good as random (RFC 9293, section 3.4.1),
/// without a draw from a random stream.
fn initial_seq(flow: FlowId, conn: ConnId) -> u32 {
    let x = (u64::from(flow.0) << 32 | u64::from(conn.index())).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

    use bentpipe_gateway::{Drain, Gateway, GatewayQueue, Processor, Regulator, Setup};
    use bentpipe_queue::sched::fifo::Fifo;
    use bentpipe_queue::{Aqm, Context, FlowEvent, Limit, Marking, Queue, Verdict};
    use bentpipe_scenario::Scenario;
    use bentpipe_units::{Duration, Instant, Rate};

    use super::*;

    /// Notifications to a queue's AQM.
    #[derive(Clone, Copy)]
    enum Told {
        Packet(Packet),
        Flow(FlowId, FlowEvent),
    }

    type Log = Arc<Mutex<Vec<(GatewayQueue, Told)>>>;

    struct Spy(GatewayQueue, Log);

    impl Aqm for Spy {
        fn arrive(&mut self, pkt: &Packet, cx: &mut Context<'_>) -> Verdict {
            self.enqueued(pkt, cx);
            Verdict::Pass
        }

        fn enqueued(&mut self, pkt: &Packet, _: &mut Context<'_>) {
            self.1.lock().unwrap().push((self.0, Told::Packet(*pkt)));
        }

        fn flow(&mut self, flow: FlowId, event: FlowEvent, _: &mut Context<'_>) {
            self.1.lock().unwrap().push((self.0, Told::Flow(flow, event)));
        }
    }

    /// Notifications to the two queues of the small gateway in 30 s.
    fn told(overrides: &[&str]) -> Vec<(GatewayQueue, Told)> {
        let path = "../../scenarios/small-gateway.toml";
        let overrides: Vec<_> = overrides.iter().map(|&o| o.to_owned()).collect();
        let mut engine = crate::build::build(&Scenario::load(path, &overrides).unwrap(), 1, None).unwrap();
        let log = Log::default();
        let rate = Rate::from_bps(4_000_000);
        let queue = |place| {
            let setup = bentpipe_queue::QueueConfig {
                marking: Marking::Drop,
                limit: Limit::NONE,
                capacity: rate,
                seed: 1,
                name: String::new(),
            };
            Queue::new(Box::<Fifo>::default(), Box::new(Spy(place, log.clone())), &setup)
        };
        engine.gateways[Id::new(0)].gateway = Gateway::new(Setup {
            receive: queue(GatewayQueue::Receive),
            // No rate, so that the PEP has received a packet before the next one is described.
            receive_rate: None,
            transmit: queue(GatewayQueue::Transmit),
            watch: GatewayQueue::Receive,
            mark: GatewayQueue::Receive,
            processing: Processor::constant(Duration::from_millis(12)),
            drain: Drain::Regulator(Regulator::new(rate, Duration::from_millis(5))),
        });
        assert!(engine.run_until(Instant::ZERO + Duration::from_secs(30), |_| true));
        log.lock().unwrap().clone()
    }

    /// For every flow with a handshake a queue gets its start, its packets and its end, in this order. Only
    /// acknowledgements between the gateway and its terminal have no flow.
    #[test]
    fn flows_open_before_their_first_packet_and_close_after_their_last() {
        announced(&[], 200);
        // Sometimes all four sessions of a user are idle.
        announced(&["gateway.flow_key=user", "traffic.web.think_time=10 s"], 20);
    }

    fn announced(overrides: &[&str], least: u32) {
        let mut open = BTreeMap::new();
        let (mut opened, mut closed) = (0, 0);
        for (place, told) in told(overrides) {
            let state = |flow| (place == GatewayQueue::Receive, flow);
            match told {
                Told::Flow(flow, FlowEvent::Opened) => {
                    assert_ne!(open.insert(state(flow), true), Some(true), "{flow:?} opens twice");
                    opened += 1;
                }
                Told::Flow(flow, FlowEvent::Closed) => {
                    assert_eq!(open.insert(state(flow), false), Some(true), "{flow:?}");
                    closed += 1;
                }
                Told::Packet(pkt) if pkt.tcp.is_none() => assert_eq!(pkt.flow, super::PEP_ACKS),
                Told::Packet(pkt) => assert_eq!(open.get(&state(pkt.flow)), Some(&true), "{:?}", pkt.flow),
            }
        }
        assert!(closed > least && opened >= closed, "{overrides:?}: {opened} opened, {closed} closed");
    }

    /// Packets from servers are split at the gateway, packets on the PEP link are not. A packet on the PEP link has the
    /// window that the gateway last received, and the position of its bytes in their connection: no object is longer than
    /// 60 KB, and initial sequence numbers cover the whole range.
    #[test]
    fn pep_link_packets_carry_the_tcp_fields_of_their_bytes() {
        let mut windows = BTreeMap::new();
        let mut begins = BTreeMap::new();
        let mut seen = [0, 0];
        for (place, told) in told(&[]) {
            let Told::Packet(pkt) = told else { continue };
            assert_eq!(pkt.split, place == GatewayQueue::Receive);
            let Some(tcp) = pkt.tcp else { continue };
            let key = (place == GatewayQueue::Receive, pkt.flow);
            match place {
                GatewayQueue::Receive => drop(windows.insert(pkt.flow, tcp.window)),
                GatewayQueue::Transmit => assert_eq!(windows.get(&pkt.flow), Some(&tcp.window)),
            }
            if tcp.syn {
                begins.insert(key, tcp.seq);
            }
            let begin = *begins.get(&key).unwrap();
            assert!(tcp.seq.wrapping_sub(begin) <= 60_002, "{place:?}: {} from {begin}", tcp.seq);
            seen[usize::from(place == GatewayQueue::Receive)] += 1;
        }
        assert!(seen.iter().all(|&packets| packets > 5000), "{seen:?}");
        let largest = windows.values().max().unwrap();
        assert!(windows.values().all(|&window| window >= 536) && *largest > 5 * 1460, "{largest}");
        let quarters: std::collections::BTreeSet<_> = begins.values().map(|begin| begin >> 30).collect();
        assert_eq!(quarters.len(), 4, "initial sequence numbers in each quarter of the range");
    }
}
