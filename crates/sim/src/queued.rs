//! What queues are told: of each packet what they may know, and which flows begin and end.

use bentpipe_queue::{Ecn, FlowEvent, Packet, Tcp};
use bentpipe_scenario::FlowKey;
use bentpipe_transport::tcp;

use crate::network::{Body, Hop, Path};
use crate::world::{NONE, World};

impl World {
    /// What a queue is told of a packet.
    #[inline]
    pub fn packet(&self, index: u32) -> Packet {
        let flight = self.flights.get(index);
        let flow = self.flow_of(index);
        let (mut ecn, mut tcp) = (Ecn::NotEct, None);
        match &flight.body {
            Body::Tcp { to, segment } => {
                ecn = match segment.ecn {
                    tcp::Ecn::NotEct => Ecn::NotEct,
                    tcp::Ecn::Ect1 => Ecn::Ect1,
                    tcp::Ecn::Ect0 => Ecn::Ect,
                    tcp::Ecn::Ce => Ecn::Ce,
                };
                let seq = initial_number(flow, *to).wrapping_add(segment.seq as u32);
                tcp = Some(Tcp { window: segment.cwnd, seq, syn: segment.flags.has(tcp::Flags::SYN) });
            }
            // The bytes of the connection that ends here: its sender's window as last heard of, and the place in its stream.
            Body::Space { station, to_far, data } => {
                let relay = &self.stations[*station as usize].relays[data.stream as usize];
                let conn = if *to_far { relay.near } else { relay.far };
                let seq = initial_number(flow, conn).wrapping_add(data.offset as u32);
                let window = self.conns[conn as usize].peer_window;
                tcp = Some(Tcp { window, seq, syn: data.offset == 0 });
            }
            _ => {}
        }
        let split = flight.hop < flight.end
            && matches!(self.hops[flight.hop as usize], Hop::Gateway { splits: true, .. });
        Packet { arrival: self.now, ecn, split, tcp, ..Packet::new(flight.len, flow, index) }
    }

    /// What a gateway's queues are told of a packet: its flow is what the gateway takes for one.
    #[inline]
    pub fn packet_at(&self, station: u32, index: u32) -> Packet {
        let mut pkt = self.packet(index);
        if self.stations[station as usize].flow_key != FlowKey::Connection {
            let circuit = self.flights.get(index).circuit;
            pkt.flow = if circuit == NONE { NONE } else { self.key_of(station, circuit) };
        }
        pkt
    }

    /// The flow that a circuit belongs to at a gateway.
    pub fn key_of(&self, station: u32, circuit: u32) -> u32 {
        let c = &self.circuits[circuit as usize];
        let to = self.traffic[c.traffic as usize].to.first;
        match self.stations[station as usize].flow_key {
            FlowKey::Connection => c.flow,
            FlowKey::User => to + c.hosts.1,
            FlowKey::Prefix => to,
        }
    }

    /// Writes a congestion mark into the packet it was set on.
    pub fn note_mark(&mut self, pkt: Packet) {
        if pkt.ecn == Ecn::Ce
            && let Body::Tcp { segment, .. } = &mut self.flights.get_mut(pkt.handle).body
        {
            segment.ecn = tcp::Ecn::Ce;
        }
    }

    /// A circuit's flow begins or is over: tells every queue that its packets may meet. Only what has a handshake is
    /// announced, for nobody on the way hears datagrams begin or end.
    pub fn announce(&mut self, circuit: u32, event: FlowEvent) {
        let c = &self.circuits[circuit as usize];
        if c.conns.is_empty() && c.association.is_none() {
            return;
        }
        for leg in 0..c.paths.len() {
            let (down, up) = self.circuits[circuit as usize].paths[leg];
            self.announce_along(down, circuit, event);
            self.announce_along(up, circuit, event);
        }
        for relay in 0..self.circuits[circuit as usize].relays.len() {
            let (station, _) = self.circuits[circuit as usize].relays[relay];
            let s = &self.stations[station as usize];
            let (forward, reverse) = (s.forward, s.reverse);
            self.announce_along(forward, circuit, event);
            self.announce_along(reverse, circuit, event);
        }
    }

    fn announce_along(&mut self, path: Path, circuit: u32, event: FlowEvent) {
        let flow = self.circuits[circuit as usize].flow;
        for hop in path.start..path.end {
            match self.hops[hop as usize] {
                Hop::Link { link, .. } => {
                    self.links[link as usize].engine.announce(flow, event, self.now);
                    self.arm_link(link);
                }
                Hop::Gateway { station, .. } => self.announce_at(station, circuit, event),
            }
        }
    }

    /// What a gateway takes for a flow begins with the first of its circuits, and is over with the last.
    fn announce_at(&mut self, station: u32, circuit: u32, event: FlowEvent) {
        let flow = self.key_of(station, circuit);
        let s = &mut self.stations[station as usize];
        let open = s.open.get_or_insert_with(flow, || 0);
        let others = match event {
            FlowEvent::Opened => std::mem::replace(open, *open + 1),
            FlowEvent::Closed => {
                *open = open.saturating_sub(1);
                *open
            }
        };
        if others > 0 {
            return;
        }
        if event == FlowEvent::Closed {
            s.open.remove(flow);
        }
        s.gateway.flow(flow, event, self.now);
        self.arm_gateway(station);
    }
}

/// Initial sequence number of what a connection hears on a flow. It is as good as random (RFC 9293, section 3.4.1),
/// and no random number is spent on it.
fn initial_number(flow: u32, conn: u32) -> u32 {
    let x = (u64::from(flow) << 32 | u64::from(conn)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

    use bentpipe_gateway::{Gateway, GatewayQueue, Regulator, Setup};
    use bentpipe_queue::sched::fifo::Fifo;
    use bentpipe_queue::{Aqm, Context, FlowId, Limit, Marking, Queue, Verdict};
    use bentpipe_scenario::Scenario;
    use bentpipe_units::{Duration, Instant, Rate};

    use super::*;

    /// What a queue was told, and at which of the two.
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

    /// What the two queues of the small gateway are told in 30 s.
    fn told(overrides: &[&str]) -> Vec<(GatewayQueue, Told)> {
        let path = format!("{}/../../scenarios/small-gateway.toml", env!("CARGO_MANIFEST_DIR"));
        let overrides: Vec<_> = overrides.iter().map(|&o| o.to_owned()).collect();
        let mut world = crate::build::build(&Scenario::load(&path, &overrides).unwrap(), 1, None).unwrap();
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
        world.stations[0].gateway = Gateway::new(Setup {
            receive: queue(GatewayQueue::Receive),
            // At once, so that whatever is told here has been heard by the PEP when the next packet is made.
            receive_rate: None,
            transmit: queue(GatewayQueue::Transmit),
            watch: GatewayQueue::Receive,
            mark: GatewayQueue::Receive,
            processing: Duration::from_millis(12),
            regulator: Regulator::new(rate, Duration::from_millis(5)),
        });
        assert!(world.run_until(Instant::ZERO + Duration::from_secs(30), |_| true));
        log.lock().unwrap().clone()
    }

    /// Of every flow with a handshake a queue hears first that it begins, then its packets, then that it is over. Only
    /// acknowledgements between the gateway and its terminal belong to none.
    #[test]
    fn flows_are_announced_before_their_packets_and_over_after_them() {
        announced(&[], 200);
        // Users whose four sessions are all idle now and then, and begin again.
        announced(&["gateway.flow_key=user", "traffic.web.think_time=10 s"], 20);
    }

    fn announced(overrides: &[&str], least: u32) {
        let mut open = BTreeMap::new();
        let (mut opened, mut closed) = (0, 0);
        for (place, told) in told(overrides) {
            let state = |flow| (place == GatewayQueue::Receive, flow);
            match told {
                Told::Flow(flow, FlowEvent::Opened) => {
                    assert_ne!(open.insert(state(flow), true), Some(true), "flow {flow} opens twice");
                    opened += 1;
                }
                Told::Flow(flow, FlowEvent::Closed) => {
                    assert_eq!(open.insert(state(flow), false), Some(true), "flow {flow}");
                    closed += 1;
                }
                Told::Packet(pkt) if pkt.tcp.is_none() => assert_eq!(pkt.flow, FlowId::MAX),
                Told::Packet(pkt) => assert_eq!(open.get(&state(pkt.flow)), Some(&true), "flow {}", pkt.flow),
            }
        }
        assert!(closed > least && opened >= closed, "{overrides:?}: {opened} opened, {closed} closed");
    }

    /// What servers send into the gateway is split there, and what goes over the satellite is not. A satellite packet
    /// carries the window that the gateway last heard of, and the place of its bytes behind their connection's
    /// beginning: no object is longer than 60 KB, and the numbers that they begin with are all over the range.
    #[test]
    fn satellite_packets_carry_what_tcp_said_of_their_bytes() {
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
        assert_eq!(quarters.len(), 4, "initial numbers in each quarter of the range");
    }
}
