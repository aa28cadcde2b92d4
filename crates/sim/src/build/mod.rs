//! From a scenario to an engine.

mod traffic;
mod transports;

use std::collections::BTreeMap;

use bentpipe_gateway::{Advisor, Assignment, Config, DemandCarrier};
use bentpipe_link::{DelayLine, LinkEngine, Names};
use bentpipe_queue::Aqm;
use bentpipe_queue::tree::{NodeId, Share};
use bentpipe_quic::Host;
use bentpipe_scenario::{
    AqmSpec, Capacity, Direction, Gateway, HostIndex, LinkIndex, Modulation, OnHandover, Plan, QueuesPer,
    Scenario, Subject, TerminalGroup,
};
use bentpipe_transport::pep_link;
use bentpipe_units::{Duration, Instant, Rng};

use crate::MakeAqm;
use crate::bottleneck::Bottleneck;
use crate::clock::{Clock, MAX_INDEX};
use crate::endpoints::tcp::TcpEnds;
use crate::endpoints::{Endpoints, Layout, Member, Step};
use crate::engine::{Engine, Handover, Loads};
use crate::gateways::{CarrierNode, GatewayNode, ReturnCarrierNode, Terminal};
use crate::ids::{
    CarrierId, GatewayId, HandoverId, Id, IdRange, IdVec, LinkDirectionId, ReturnCarrierId, TerminalId,
    TrafficId,
};
use crate::memory::grow;
use crate::network::{Hop, LinkDirection, Network, Path, SharedLine};
use crate::record::trace::Tracer;
use crate::record::{NameList, Parts, PlaceKind, Record, Recorder, Setup};
use crate::side::BySide;
use transports::{Transports, small};

pub use traffic::{kind, users};

/// The engine of a scenario before its first event; `make_aqm` replaces the AQM of the subject.
///
/// # Errors
/// A scenario that is too large, or parameters that an AQM refuses.
pub fn build(scenario: &Scenario, seed: u64, make_aqm: Option<MakeAqm<'_>>) -> Result<Engine, String> {
    let network = Network::default();
    let mut builder = Builder {
        scenario,
        seed,
        make_aqm,
        first_links: Vec::new(),
        link_names: NameList::default(),
        first: Vec::new(),
        first_back: Vec::new(),
        network,
        gateways: IdVec::default(),
        terminals: IdVec::default(),
        carriers: IdVec::default(),
        return_carriers: IdVec::default(),
    };
    builder.links()?;
    for (number, gateway) in scenario.gateways.iter().enumerate() {
        builder.gateway(number, gateway)?;
    }
    for (number, gateway) in scenario.gateways.iter().enumerate() {
        let first = (builder.gateways.next_id(), builder.terminals.next_id());
        builder.first_back.push(first);
        if let Some(back) = &gateway.back {
            builder.return_direction(number, back)?;
        }
    }
    let mut transports = Transports { seed, ..Transports::default() };
    let traffic: IdVec<_, _> = scenario.traffic.iter().map(|t| builder.traffic(t, &mut transports)).collect();
    builder.follow_links(traffic.iter().flat_map(|t| std::iter::once(&t.layout).chain(&t.layouts_after)));
    let handovers = builder.handovers();
    let Builder {
        first_links,
        link_names,
        first,
        first_back,
        network,
        gateways,
        terminals,
        carriers,
        return_carriers,
        ..
    } = builder;
    let recorder = Recorder::new(&Setup {
        scenario,
        parts: Parts { links: &network.links, gateways: &gateways, terminals: &terminals },
        link_names: &link_names,
        first: &first,
        first_back: &first_back,
        subject: match scenario.subject {
            Subject::Gateway(gateway) => PlaceKind::Gateway(gateway),
            Subject::Return(gateway) => PlaceKind::Return(gateway),
            Subject::Link(link) => PlaceKind::Link(first_links[link.0]),
        },
    });
    let tcp = TcpEnds::new(transports.tcp, Rng::stream(seed, "hosts", 0, "overhead"));
    let mut endpoints = Endpoints { tcp, ..Endpoints::default() };
    let (quic, lifetimes): (Vec<_>, Vec<_>) = transports.quic.into_iter().unzip();
    endpoints.quic.configs = quic.into_iter().map(Host::new).collect();
    endpoints.quic.lifetimes = lifetimes.into_iter().collect();
    endpoints.quic.seed = seed;
    endpoints.sctp.configs = transports.sctp.into_iter().collect();
    endpoints.rtp.configs = transports.rtp.into_iter().collect();
    let mut clock = Clock::default();
    let apps = traffic::apps(scenario, traffic, seed, &mut clock);
    let record = Record { recorder, tracer: Tracer::default(), observations: Vec::new() };
    let loads = Loads::new(&network.links, &gateways);
    let mut engine = Engine {
        clock,
        network,
        gateways,
        terminals,
        carriers,
        return_carriers,
        handovers,
        endpoints,
        apps,
        record,
        loads,
        is_large: false,
        fault: None,
    };
    engine.start();
    Ok(engine)
}

struct Builder<'a, 'b> {
    scenario: &'a Scenario,
    seed: u64,
    make_aqm: Option<MakeAqm<'b>>,
    /// The first direction of each scenario link; each of its members takes two places, forward and reverse.
    first_links: Vec<LinkDirectionId>,
    /// Names of the directions of links.
    link_names: NameList,
    /// The first queues and the first terminal of each gateway.
    first: Vec<(GatewayId, TerminalId)>,
    /// The first queues at a terminal and the first PEP link of uploads of each gateway, if it has any.
    first_back: Vec<(GatewayId, TerminalId)>,
    network: Network,
    gateways: IdVec<GatewayId, GatewayNode>,
    terminals: IdVec<TerminalId, Terminal>,
    carriers: IdVec<CarrierId, CarrierNode>,
    return_carriers: IdVec<ReturnCarrierId, ReturnCarrierNode>,
}

impl Builder<'_, '_> {
    fn links(&mut self) -> Result<(), String> {
        let scenario = self.scenario;
        for (number, link) in scenario.links.iter().enumerate() {
            self.first_links.push(self.network.links.next_id());
            let members = scenario.members(link);
            let shared_lines = [(); 2].map(|()| self.network.shared_lines.push(SharedLine::default()));
            let mut unused_line = None;
            for member in 0..members {
                for (direction, is_forward) in [(&link.forward, true), (&link.reverse, false)] {
                    let is_subject = is_forward && scenario.subject == Subject::Link(LinkIndex(number));
                    let names = Names::new(&link.name, (members > 1).then_some(member), is_forward);
                    let (seed, handover) = (self.seed, link.handover);
                    let make_aqm = |spec: &AqmSpec| self.aqm(spec, is_subject);
                    let engine = LinkEngine::new(direction, handover, &names, seed, None, make_aqm)?;
                    let shares_line = members > 1 && engine.is_regular();
                    let lines = &mut self.network.lines;
                    lines.make_room(grow);
                    let line = match shares_line {
                        true => *unused_line.get_or_insert_with(|| lines.push(DelayLine::default())),
                        false => lines.push(DelayLine::default()),
                    };
                    let terminals = self.terminals(direction);
                    let is_carrier = is_subject
                        || scenario
                            .gateways
                            .iter()
                            .flat_map(Gateway::directions)
                            .filter_map(|gateway| gateway.terminals.on_link(LinkIndex(number)))
                            .any(|(_, group)| group.link_forward == is_forward);
                    let bottleneck =
                        if is_carrier { Bottleneck::Carrier } else { Bottleneck::Link(number as u32) };
                    let mut link = LinkDirection::new(bottleneck, engine, terminals, line);
                    link.shared_line = shares_line.then_some(shared_lines[usize::from(is_forward)]);
                    link.has_flow_scheduler =
                        direction.queue.as_ref().is_some_and(|queue| queue.scheduler.tells_flows_apart());
                    self.network.links.make_room(grow);
                    self.network.links.push(link);
                    self.link_names.push(&names.direction);
                }
            }
        }
        let links = self.network.links.len();
        if links > MAX_INDEX as usize {
            return Err(format!("{links} links are more than the {MAX_INDEX} that can be simulated"));
        }
        Ok(())
    }

    /// The hosts with a rate each on a link: number of the first, and how many.
    fn terminals(&self, direction: &Direction) -> (u32, u32) {
        match &direction.capacity {
            Some(Capacity::Carrier(carrier)) => match carrier.modulation {
                Modulation::Hosts { group, .. } => (self.first_host(group), self.scenario.hosts[group].count),
                _ => (0, 0),
            },
            _ => (0, 0),
        }
    }

    /// Number of a group's first host among all hosts.
    fn first_host(&self, group: HostIndex) -> u32 {
        self.scenario.hosts[..group.0].iter().map(|host| host.count).sum()
    }

    /// The AQM that the scenario describes; at the subject the one that replaces it.
    fn aqm(&mut self, spec: &AqmSpec, is_subject: bool) -> Result<Box<dyn Aqm>, String> {
        match self.make_aqm.as_mut().filter(|_| is_subject) {
            Some(make) => Ok(spec.controlled(make())),
            None => spec.build().map_err(|e| e.to_string()),
        }
    }

    /// Adds the queues and the terminals of a gateway.
    fn gateway(&mut self, number: usize, g: &Gateway) -> Result<(), String> {
        let first = self.gateways.next_id();
        self.first.push((first, self.terminals.next_id()));
        let s = &g.spacelink;
        let config = pep_link::Config {
            max_payload: small(s.packet.saturating_sub(s.header)),
            header_len: small(s.header),
            window: s.window,
            stream_window: s.stream_window,
            packet_threshold: 3,
            ack_every: s.ack_every,
            ack_delay: s.ack_delay,
            initial_rtt: Duration::from_secs(1),
        };
        let carrier = g.shares_carrier.then(|| {
            let (rate, tick) = (g.regulator.rate, g.regulator.tick.unwrap_or_default());
            self.carriers.push(CarrierNode::new(rate, tick, g.regulator.follows_link))
        });
        let mut pools: Vec<NodeId> = Vec::new();
        if let Some(carrier) = carrier {
            let carrier = &mut self.carriers[carrier];
            for pool in &g.pools {
                let parent = pool.parent.map_or(carrier.carrier.root(), |parent| pools[parent]);
                pools.push(carrier.add(parent, share(Some(&pool.share)), None));
            }
        }
        for group in g.terminals.iter() {
            for member in 0..group.count {
                let (there, back) = self.directions(group.link, group.link_forward, member);
                let name = format!("{} {}.{member}", g.name, group.name);
                // The terminal's queues, or those of the whole carrier.
                let gateway = match g.queues_per {
                    QueuesPer::Carrier if self.gateways.next_id() != first => first,
                    QueuesPer::Carrier => self.queues(number, (g, group, None), g.name.clone(), there)?,
                    QueuesPer::Terminal | QueuesPer::Subscriber => {
                        self.queues(number, (g, group, None), name.clone(), there)?
                    }
                };
                if let Some(carrier) = carrier
                    && (g.queues_per != QueuesPer::Carrier || self.gateways[gateway].carrier.is_none())
                {
                    let parent = group.pool.map_or(self.carriers[carrier].carrier.root(), |pool| pools[pool]);
                    let own = share(group.plan.as_ref());
                    if g.queues_per == QueuesPer::Subscriber {
                        let parent = self.carriers[carrier].add(parent, own, None);
                        self.add_leaf((carrier, parent), share(None), gateway);
                        for hosts in &group.subscribers {
                            for host in 0..hosts.each {
                                let host_name = &self.scenario.hosts[hosts.host].name;
                                let name = format!("{name} {host_name}.{}", member + host * group.count);
                                let plan = hosts.plan.as_ref();
                                let gateway = self.queues(number, (g, group, plan), name, there)?;
                                self.add_leaf((carrier, parent), share(plan), gateway);
                            }
                        }
                    } else {
                        self.add_leaf((carrier, parent), own, gateway);
                    }
                }
                let paths = BySide::new(self.one_link(there), self.one_link(back));
                let number = self.terminals.next_id();
                if g.queues_per != QueuesPer::Carrier {
                    (gateway.index()..self.gateways.next_id().index())
                        .for_each(|queues| self.gateways[GatewayId::new(queues)].serves = Some(number));
                }
                let mut terminal =
                    Terminal::new(number, gateway, (g.buffers(), g.receive_buffer()), config.clone(), paths);
                let committed = Some((group.committed(), there))
                    .filter(|(cir, _)| g.regulator.follows_link && cir.as_bps() > 0);
                let groups = self.scenario.gateways.iter().flat_map(|gateway| gateway.terminals.iter());
                let is_later =
                    groups.filter_map(|other| other.handover).any(|handover| handover.to == group.link);
                *(if is_later { &mut terminal.committed_later } else { &mut terminal.committed }) = committed;
                self.terminals.push(terminal);
            }
        }
        Ok(())
    }

    /// Puts queues on a carrier, below a node.
    fn add_leaf(&mut self, (carrier, parent): (CarrierId, NodeId), share: Share, gateway: GatewayId) {
        let leaf = self.carriers[carrier].add(parent, share, Some(gateway));
        self.gateways[gateway].carrier = Some((carrier, leaf));
    }

    /// Adds the queues and the PEP links of the return direction at the terminals of a gateway.
    fn return_direction(&mut self, number: usize, back: &Gateway) -> Result<(), String> {
        let first = self.first[number].1.index();
        if let Some(carrier) = &back.carrier {
            let mut shared = DemandCarrier::new(carrier.superframe, carrier.round_trip, carrier.request);
            for pool in &back.pools {
                shared.add_pool(assignment(Some(&pool.share)), pool.parent);
            }
            for group in back.terminals.iter() {
                let share = assignment(group.plan.as_ref());
                (0..group.count).for_each(|_| shared.add_to(share, group.pool));
            }
            let queues = IdRange { start: self.gateways.next_id(), len: back.terminals.count() };
            self.return_carriers.push(ReturnCarrierNode { carrier: shared, queues });
        }
        let groups =
            back.terminals.iter().flat_map(|group| (0..group.count).map(move |member| (group, member)));
        for (terminal, (group, member)) in (first..).map(TerminalId::new).zip(groups) {
            let (up, _) = self.directions(group.link, group.link_forward, member);
            let name = format!("{} {}.{member}", back.name, group.name);
            let queues = self.queues(number, (back, group, None), name, up)?;
            let uploads =
                self.terminals[terminal].of_uploads(queues, (back.buffers(), back.receive_buffer()));
            self.terminals.push(uploads);
            self.terminals[terminal].far_gateway = Some(queues);
            self.gateways[queues].terminal = Some(terminal);
        }
        Ok(())
    }

    /// The handovers of terminals to other gateways.
    fn handovers(&self) -> IdVec<HandoverId, Handover> {
        let gateways = &self.scenario.gateways;
        let on = |link: LinkIndex| {
            let find =
                |(number, gateway): (usize, &Gateway)| Some((number, gateway.terminals.on_link(link)?.0));
            gateways.iter().enumerate().find_map(find)
        };
        let range = |first: TerminalId, before: u32, len: u32| IdRange {
            start: TerminalId::new(first.index() + before),
            len,
        };
        let mut found = IdVec::default();
        for (number, gateway) in gateways.iter().enumerate() {
            let (mut before, mut queues_before) = (0, 0);
            for group in gateway.terminals.iter() {
                let (terminals, queues) = match gateway.queues_per {
                    QueuesPer::Carrier => (group.count, 0),
                    QueuesPer::Terminal => (group.count, group.count),
                    QueuesPer::Subscriber => (group.count, group.count * group.queues_each()),
                };
                if let Some(handover) = group.handover
                    && let Some((other, other_before)) = on(handover.to)
                {
                    let at = |first: GatewayId, before: u32, len: u32| IdRange {
                        start: GatewayId::new(first.index() + before),
                        len,
                    };
                    let back =
                        gateway.back.as_ref().map(|_| at(self.first_back[number].0, before, terminals));
                    let takes = |t: &bentpipe_scenario::Traffic| {
                        t.routes_after.iter().flatten().any(|hop| hop.link == handover.to)
                    };
                    let traffic = (0..).map(TrafficId::new).zip(&self.scenario.traffic);
                    found.push(Handover {
                        at: Instant::ZERO + handover.at,
                        survives: handover.connections == OnHandover::Survive,
                        traffic: traffic.filter(|(_, t)| takes(t)).map(|(id, _)| id).collect(),
                        queues: std::iter::once(at(self.first[number].0, queues_before, queues.max(1)))
                            .chain(back)
                            .collect(),
                        from: range(self.first[number].1, before, terminals),
                        to: range(self.first[other].1, other_before, terminals),
                        to_uploads: gateways[other]
                            .back
                            .as_ref()
                            .map(|_| range(self.first_back[other].1, other_before, terminals)),
                    });
                }
                before += terminals;
                queues_before += queues;
            }
        }
        found
    }

    /// Adds the queues of a gateway for all its terminals, for the one behind this link, or for a subscriber behind that.
    fn queues(
        &mut self,
        number: usize,
        (g, group, subscriber): (&Gateway, &TerminalGroup, Option<&Plan>),
        name: String,
        link: LinkDirectionId,
    ) -> Result<GatewayId, String> {
        let scenario = self.scenario;
        let is_subject = scenario.subject_gateway().is_some_and(|subject| std::ptr::eq(subject, g));
        let aqm = self.aqm(&g.aqm, is_subject).map_err(|e| format!("{}: {e}", g.name))?;
        let config = g.config(Some(group), subscriber).map_err(|e| format!("{}: {e}", g.name))?;
        // Queues behind regulators follow links that may have different rates.
        let link_rate = group.downlink(&scenario.links).mean_rate();
        let rate = link_rate.filter(|_| g.regulator.follows_link && !g.shares_carrier).unwrap_or(config.rate);
        let gateway = Config { name, rate, ..config }.build(aqm, self.seed);
        // With several terminals, packets of one queue go over links of different rates.
        let is_one_link = g.queues_per != QueuesPer::Carrier || g.terminals.only().is_some();
        let follows = (g.regulator.follows_link && is_one_link).then_some(link);
        let mut node = GatewayNode::new(gateway, number, g.flow_key, follows);
        node.has_flow_scheduler = g.transmit_queue.scheduler.tells_flows_apart();
        node.rate = rate;
        node.ack_filter = g.ack_filter;
        node.has_ack_priority = g.spacelink.ack_priority;
        node.advisor = g.advice(group).map(|advice| Box::new(Advisor::new(advice, rate)));
        let id = self.gateways.push(node);
        if let Some(link) = follows {
            let followers = &mut self.network.links[link].followers;
            let start = if followers.is_empty() { id } else { followers.start };
            *followers = IdRange { start, len: followers.len + 1 };
        }
        Ok(id)
    }

    /// The two directions of a member of a scenario link, as seen by a path that takes it forward or not.
    fn directions(
        &self,
        link: LinkIndex,
        is_forward: bool,
        member: u32,
    ) -> (LinkDirectionId, LinkDirectionId) {
        let base = self.first_links[link.0].index() + 2 * member;
        (
            LinkDirectionId::new(base + u32::from(!is_forward)),
            LinkDirectionId::new(base + u32::from(is_forward)),
        )
    }

    /// Finds links all of whose packets come from one other link.
    fn follow_links<'l>(&mut self, layouts: impl Iterator<Item = &'l Layout>) {
        // For the first link of each group and direction: how many there are, and the link before all of them.
        let mut before: BTreeMap<LinkDirectionId, (u32, Option<LinkDirectionId>)> = BTreeMap::new();
        let legs = layouts.flat_map(|layout| &layout.legs);
        for steps in legs.flat_map(|leg| [&leg.down, &leg.up]) {
            let mut last = None;
            for step in steps {
                let Step::Link(link) = step else {
                    last = None;
                    continue;
                };
                let (_, known) = before.entry(link.link(0, 0)).or_insert((link.member.members(), last));
                *known = known.filter(|known| last == Some(*known));
                let is_one = matches!(link.member, Member::One) && link.own_line.is_none();
                last = is_one.then(|| link.link(0, 0));
            }
        }
        // The ends of PEP links send, too.
        for path in self.terminals.iter().flat_map(|terminal| terminal.paths.iter()) {
            for hop in self.network.paths.hops(*path) {
                if let Hop::Link { link, .. } = hop {
                    before.remove(link);
                }
            }
        }
        for (first, (members, link)) in before {
            for member in 0..members {
                if let Some(link) = link {
                    self.network.follow(link, LinkDirectionId::new(first.index() + 2 * member));
                }
            }
        }
    }

    /// A path of a single link.
    fn one_link(&mut self, link: LinkDirectionId) -> Path {
        let line = self.network.links[link].line;
        self.network.paths.add([Hop::Link { link, line }])
    }
}

/// Share of a terminal or a pool in the return carrier.
fn assignment(plan: Option<&Plan>) -> Assignment {
    plan.map_or(Assignment::default(), |plan| Assignment {
        cra: plan.cra,
        cir: plan.cir,
        pir: plan.pir,
        weight: plan.weight,
    })
}

/// Share of a pool, a terminal or a subscriber in what is above it.
fn share(plan: Option<&Plan>) -> Share {
    plan.map_or(Share::default(), |plan| Share {
        cir: plan.cir,
        pir: plan.pir,
        weight: plan.weight,
        burst: plan.burst,
    })
}
