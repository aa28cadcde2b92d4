//! Slots of flows: laid out once, and aimed at the hosts of each flow.

use bentpipe_link::DelayLine;
use bentpipe_queue::FlowId;
use bentpipe_transport::pep_link;

use super::{Engine, MANY_SLOTS};
use crate::apps::Transport;
use crate::clock::MAX_INDEX;
use crate::endpoints::tcp::Role;
use crate::endpoints::{
    Direction, FlowSlot, Layout, Owner, Phase, Step, Transfer, UnitsInFlight, quic, sctp,
};
use crate::gateways::SplitStream;
use crate::ids::{
    ConnId, GatewayId, Id, IdRange, LineId, SlotId, StreamId, TcpConfigId, TerminalId, TrafficId,
};
use crate::memory::grow;
use crate::network::{Hop, Path};
use crate::side::{BySide, Side};

/// Connection ends at most: as many as fit in the memory of most machines (some 3 GB) if transfers begin faster than they
/// end.
const MAX_ENDS: usize = 1 << 22;

impl Engine {
    /// Lays out a slot for `flow` and later flows of a traffic over the same terminals: connections, streams, hops and delay
    /// lines.
    pub(super) fn lay_out(
        &mut self,
        traffic: TrafficId,
        owner: Owner,
        flow: FlowId,
        hosts: (u32, u32),
    ) -> SlotId {
        let id = self.endpoints.slots.next_id();
        let t = &self.apps.traffic[traffic];
        let (layout, transport) = (t.layout.clone(), t.transport);
        let (own_lines, paths) = (self.add_lines(&layout), self.add_paths(&layout));

        let (mut sctp, mut quic, mut rtp, mut streams) = (None, None, None, Vec::new());
        let mut conns = IdRange { start: self.endpoints.tcp.next_id(), len: 0 };
        match (transport, paths.first()) {
            (Transport::Tcp { sender, other }, _) => {
                (conns, streams) = self.lay_out_tcp(id, (sender, other), (&layout, hosts), &paths);
            }
            (Transport::Sctp { config }, Some(&paths)) => {
                sctp = Some(self.endpoints.sctp.add(id, config, paths))
            }
            (Transport::Quic { sender, other, .. }, Some(&paths)) => {
                quic = Some(self.endpoints.quic.add(id, [sender, other], paths));
            }
            (Transport::Rtp { config, nominal }, Some(&paths)) => {
                rtp = Some(self.endpoints.rtp.add(id, config, nominal, paths, self.clock.now()));
            }
            _ => {}
        }
        self.network.packets.add_slot();
        self.endpoints.slots.make_room(grow);
        self.endpoints.slots.push(FlowSlot {
            traffic,
            flow,
            hosts: (0, 0),
            user: flow,
            conns,
            sctp,
            quic,
            rtp,
            streams,
            paths,
            own_lines,
            owner,
            phase: Phase::Free,
            has_failed: false,
            is_retired: false,
            transfer: Transfer::default(),
            object_sizes: Vec::new(),
            aliases: Vec::new(),
            last_drop: None,
            departures: Vec::new(),
            units: UnitsInFlight::default(),
        });
        self.check_size(&layout, hosts);
        id
    }

    /// Adds the own delay lines of a slot.
    fn add_lines(&mut self, layout: &Layout) -> Vec<(LineId, LineId)> {
        let lines = &mut self.network.lines;
        let mut line = || {
            lines.make_room(grow);
            lines.push(DelayLine::default())
        };
        layout.own_delays.iter().map(|_| (line(), line())).collect()
    }

    /// Adds the paths of a slot. Their hops are set when it is aimed.
    fn add_paths(&mut self, layout: &Layout) -> Vec<(Path, Path)> {
        let paths = &mut self.network.paths;
        let mut room = |steps: &[Step]| {
            let unset = Hop::Gateway { gateway: GatewayId::new(0), splits: false };
            paths.add(steps.iter().map(|_| unset))
        };
        layout.legs.iter().map(|leg| (room(&leg.down), room(&leg.up))).collect()
    }

    /// Gives a slot in use the paths of its traffic's present layout. Packets on their way keep theirs.
    pub(super) fn reroute(&mut self, id: SlotId) {
        let layout = self.apps.traffic[self.endpoints.slots[id].traffic].layout.clone();
        let (own_lines, paths) = (self.add_lines(&layout), self.add_paths(&layout));
        let slot = &mut self.endpoints.slots[id];
        (slot.paths, slot.own_lines) = (paths, own_lines);
        let (conns, sctp, quic, rtp, hosts) = (slot.conns, slot.sctp, slot.quic, slot.rtp, slot.hosts);
        for leg in 0..self.endpoints.slots[id].paths.len() {
            let (down, up) = self.endpoints.slots[id].paths[leg];
            if !conns.is_empty() {
                let first = 2 * leg as u32;
                self.endpoints.tcp[conns.at(first)].path = down;
                self.endpoints.tcp[conns.at(first + 1)].path = up;
            }
            if let Some(sender) = sctp {
                sctp::both(sender).into_iter().zip([down, up]).for_each(|(end, path)| {
                    self.endpoints.sctp.reroute(end, path);
                });
            }
            if let Some(sender) = quic {
                quic::both(sender).into_iter().zip([down, up]).for_each(|(end, path)| {
                    self.endpoints.quic[end].path = path;
                });
            }
            if let Some(session) = rtp {
                self.endpoints.rtp.reroute(session, (down, up));
            }
        }
        self.aim(id, hosts);
    }

    /// Lays out the TCP legs of a slot, with a stream at each gateway that splits it. The configurations are those of the
    /// host that sends the data, and of every other end.
    fn lay_out_tcp(
        &mut self,
        slot: SlotId,
        (sender, other): (TcpConfigId, TcpConfigId),
        (layout, hosts): (&Layout, (u32, u32)),
        paths: &[(Path, Path)],
    ) -> (IdRange<ConnId>, Vec<(TerminalId, StreamId)>) {
        let tcp = &mut self.endpoints.tcp;
        let conns = IdRange { start: tcp.next_id(), len: 2 * paths.len() as u32 };
        for (leg, &(down, up)) in (0..).zip(paths) {
            let (first, second) = (conns.at(2 * leg), conns.at(2 * leg + 1));
            let (config, role) = if leg == 0 { (sender, Role::Sender) } else { (other, Role::Receiver) };
            tcp.add(config, slot, second, down, role);
            tcp.add(other, slot, first, up, Role::Receiver);
        }
        let streams = (0..).zip(&layout.joints).map(|(leg, joint)| {
            let terminal = joint.terminal(hosts.0, hosts.1);
            let ends = BySide::new(conns.at(2 * leg + 1), conns.at(2 * leg + 2));
            let stream = self.terminals[terminal].streams.push(SplitStream::new(slot, ends));
            for side in Side::BOTH {
                self.endpoints.tcp[ends[side]].role = Role::Split { terminal, stream, side };
            }
            (terminal, stream)
        });
        (conns, streams.collect())
    }

    /// Stops the run if it has grown too large.
    fn check_size(&mut self, layout: &Layout, hosts: (u32, u32)) {
        self.is_large = self.endpoints.slots.len() >= MANY_SLOTS;
        let Self { endpoints, network, terminals, .. } = self;
        let ends = [endpoints.tcp.len(), endpoints.sctp.len(), endpoints.quic.len(), 2 * endpoints.rtp.len()];
        let ends = ends.into_iter().fold(0, usize::max);
        let joints = layout.joints.iter();
        let streams = joints.map(|joint| terminals[joint.terminal(hosts.0, hosts.1)].streams.len()).max();
        if ends > MAX_ENDS
            || network.lines.len() > MAX_INDEX as usize
            || streams > Some(pep_link::MAX_STREAMS as usize)
        {
            let slots = endpoints.slots.len() - 1;
            self.fault = Some(format!(
                "more than {slots} connections at a time, the most that fit: transfers begin faster than they end; lower the load, \
                 or shorten the run"
            ));
        }
    }

    /// Aims the paths of a slot at two hosts, each numbered within its group, and draws the delays of its delay lines.
    pub(super) fn aim(&mut self, id: SlotId, (from, to): (u32, u32)) {
        let slot = &self.endpoints.slots[id];
        let layout = &self.apps.traffic[slot.traffic].layout;
        for (leg, &(down, up)) in layout.legs.iter().zip(&slot.paths) {
            for (steps, path) in [(&leg.down, down), (&leg.up, up)] {
                for (hop, step) in self.network.paths.hops_mut(path).iter_mut().zip(steps) {
                    *hop = match *step {
                        Step::Gateway { queues, splits } => {
                            Hop::Gateway { gateway: queues.gateway(from, to), splits }
                        }
                        Step::Resize { bytes } => Hop::Resize { bytes },
                        Step::Link(step) => {
                            let link = step.link(from, to);
                            let line = match step.own_line {
                                None => self.network.links[link].line,
                                Some((own, Direction::Down)) => slot.own_lines[own].0,
                                Some((own, Direction::Up)) => slot.own_lines[own].1,
                            };
                            Hop::Link { link, line }
                        }
                    };
                }
            }
        }
        for ((terminal, stream), queues) in slot.streams.iter().zip(&layout.joint_queues) {
            let stream = &mut self.terminals[*terminal].streams[*stream];
            for side in Side::BOTH {
                stream.queues[side] = queues[side].map(|queues| queues.gateway(from, to));
            }
        }
        let FlowSlot { owner, traffic, .. } = *slot;
        for place in 0..self.endpoints.slots[id].own_lines.len() {
            let (down, up) = self.endpoints.slots[id].own_lines[place];
            let own = self.apps.traffic[traffic].layout.own_delays[place];
            // Drawn from the owner's stream, so that they are the same whatever the queues do.
            let rng = self.apps.rng(owner);
            let links = &self.network.links;
            let there = links[own.links.0].engine.delay_distribution().draw(rng);
            let back =
                if own.is_shared { there } else { links[own.links.1].engine.delay_distribution().draw(rng) };
            self.network.lines[down].delay = there;
            self.network.lines[up].delay = back;
        }
    }
}
