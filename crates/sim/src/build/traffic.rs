//! Traffic: applications, transports, and the layout of flows.

use bentpipe_scenario::{
    self as scenario, Absence, ConnectionPer, HostIndex, Http, Protocol, QueuesPer, Ramp, Scenario,
    TrafficKind,
};
use bentpipe_traffic::Presence;
use bentpipe_units::{Duration, Instant, Rate, Rng};

use super::Builder;
use super::transports::Transports;
use crate::apps::{Apps, Group, Kind, Loading, Moving, Session, Source, Traffic, Transport};
use crate::clock::{Clock, Event};
use crate::endpoints::{
    Direction, HostMember, Joint, Layout, LegLayout, LinkStep, Member, OwnDelay, Pass, QueuesOf, Step,
};
use crate::ids::{GatewayId, Id, IdVec, TerminalId, TrafficId};
use crate::side::BySide;

impl Builder<'_, '_> {
    pub(super) fn traffic(&self, t: &scenario::Traffic, transports: &mut Transports) -> Traffic {
        let (kind, cap, away, count) = application(&t.kind);
        let transport = self.transport(t, cap, transports);
        let protocol = matches!(transport, Transport::Tcp { .. }).then_some(Protocol::Tcp);
        let group = |index| Group { first: self.first_host(index), count: self.scenario.hosts[index].count };
        Traffic {
            name: t.name.clone(),
            layout: self.layout(t, protocol),
            layouts_after: t
                .routes_after
                .iter()
                .map(|route| self.layout(&scenario::Traffic { route: route.clone(), ..t.clone() }, protocol))
                .collect(),
            from: group(t.from),
            to: group(t.to),
            kind,
            transport,
            receiver_opens: self.changes_address(t.to),
            dscp: t.dscp,
            presence: Presence::new(away.to_vec(), t.profile.as_ref(), count),
            free_slots: Vec::new(),
        }
    }

    fn changes_address(&self, group: HostIndex) -> bool {
        self.scenario.hosts[group].address_changes.is_some()
    }

    fn transport(&self, t: &scenario::Traffic, cap: Option<Rate>, transports: &mut Transports) -> Transport {
        let migration = [t.from, t.to].into_iter().any(|host| self.changes_address(host));
        match t.kind.transport().map(|index| &self.scenario.transports[index]) {
            None => Transport::Udp,
            Some(scenario::Transport::Tcp(tcp)) => {
                Transport::Tcp { other: transports.tcp(tcp, None), sender: transports.tcp(tcp, cap) }
            }
            Some(scenario::Transport::Quic(quic)) => Transport::Quic {
                other: transports.quic(quic, None, migration),
                sender: transports.quic(quic, cap, migration),
                datagrams: quic.datagrams,
            },
            Some(scenario::Transport::Sctp(sctp)) => Transport::Sctp { config: transports.sctp(sctp) },
            Some(scenario::Transport::Rtp(rtp)) => {
                let nominal = match &t.kind {
                    TrafficKind::Packets(p) => p.pattern.nominal_rate(),
                    _ => Rate::default(),
                };
                Transport::Rtp { config: transports.rtp(rtp), nominal }
            }
        }
    }

    // ----- layout --------------------------------------------------------------------------------------------

    /// Lays out the flows of a traffic entry: cut where a gateway splits them, through a gateway that does not.
    fn layout(&self, t: &scenario::Traffic, protocol: Option<Protocol>) -> Layout {
        let mut layout = Layout::default();
        let mut leg = LegLayout::default();
        for i in 0..t.route.len() {
            let Some((number, is_upload)) = self.gateway_on(t, i) else {
                self.add_hop(&mut layout, &mut leg, t, i);
                continue;
            };
            // The scenario ensures that data meets the queues of a gateway, or those of a terminal, before the satellite.
            let terminal = self.joint(t, i, self.first[number].1);
            layout.passes.push(Pass { gateway: number, terminal, is_upload });
            let queues = self.queues_on(t, i, (number, is_upload));
            let splits =
                queues.is_some_and(|(_, gateway)| protocol.is_some_and(|p| gateway.pep.split.contains(&p)));
            let header = self.scenario.gateways[number].spacelink.datagram_header.filter(|_| !splits);
            let header = header.map_or(0, u32::cast_signed);
            let resize = |bytes| (header > 0).then_some(Step::Resize { bytes });
            leg.down.extend(resize(header));
            leg.up.extend(resize(-header));
            if let Some((queues, _)) = queues {
                leg.down.push(Step::Gateway { queues, splits });
                if splits {
                    self.finish_leg(&mut layout, std::mem::take(&mut leg));
                    let first = if is_upload { self.first_back[number].1 } else { self.first[number].1 };
                    layout.joints.push(self.joint(t, i, first));
                    let far = self.queues_on(t, i, (number, !is_upload)).map(|(queues, _)| queues);
                    layout.joint_queues.push(BySide::new(Some(queues), far));
                    continue;
                }
            }
            self.add_hop(&mut layout, &mut leg, t, i);
            leg.down.extend(resize(-header));
            if let Some((queues, _)) = self.queues_on(t, i, (number, !is_upload)) {
                leg.up.push(Step::Gateway { queues, splits: false });
            }
            leg.up.extend(resize(header));
        }
        self.finish_leg(&mut layout, leg);
        layout
    }

    /// Number of the gateway of which the i-th hop of a route is a satellite link, and true if the hop leads to the gateway.
    fn gateway_on(&self, t: &scenario::Traffic, i: usize) -> Option<(usize, bool)> {
        let hop = t.route[i];
        let mut gateways = self.scenario.gateways.iter().enumerate();
        gateways.find_map(|(number, gateway)| {
            let (_, group) = gateway.terminals.on_link(hop.link)?;
            Some((number, group.link_forward != hop.forward))
        })
    }

    /// Number of terminals before the group whose satellite link is the i-th hop of a route.
    fn terminals_before(&self, t: &scenario::Traffic, i: usize) -> u32 {
        let link = t.route[i].link;
        let found = self.scenario.gateways.iter().find_map(|gateway| gateway.terminals.on_link(link));
        found.map_or(0, |(before, _)| before)
    }

    /// The PEP links over the satellite link that is the i-th hop of a route; `first` is the gateway's first.
    fn joint(&self, t: &scenario::Traffic, i: usize, first: TerminalId) -> Joint {
        let first = TerminalId::new(first.index() + self.terminals_before(t, i));
        Joint { first, member: self.member(t, i) }
    }

    /// The queues of a direction of a gateway, return or forward, of which the i-th hop of a route is a satellite link;
    /// `None` if packets enter the link directly.
    fn queues_on(
        &self,
        t: &scenario::Traffic,
        i: usize,
        (number, is_return): (usize, bool),
    ) -> Option<(QueuesOf, &scenario::Gateway)> {
        let forward = &self.scenario.gateways[number];
        let (gateway, first) = if is_return {
            (forward.back.as_deref()?, self.first_back[number].0)
        } else {
            // Without return queues, acknowledgements of no data pass the gateway's.
            (forward, self.first[number].0)
        };
        let (before, member) = match gateway.queues_per {
            QueuesPer::Carrier => (0, Member::One),
            QueuesPer::Terminal => (self.terminals_before(t, i), self.member(t, i)),
            QueuesPer::Subscriber => self.subscriber(t, i, gateway)?,
        };
        Some((QueuesOf { first: GatewayId::new(first.index() + before), member }, gateway))
    }

    /// The queue of the host behind the terminal over whose link the i-th hop of a route leads, and the number of queues of
    /// the gateway before those of its group of terminals.
    fn subscriber(
        &self,
        t: &scenario::Traffic,
        i: usize,
        gateway: &scenario::Gateway,
    ) -> Option<(u32, Member)> {
        let hop = t.route[i];
        let (_, group) = gateway.terminals.on_link(hop.link)?;
        let sends = group.link_forward != hop.forward;
        let before = group.first_queue_of(if sends { t.from } else { t.to })?;
        let groups = gateway.terminals.iter().take_while(|other| other.link != group.link);
        let first = groups.map(|other| other.count * other.queues_each()).sum();
        let (terminals, each) = (group.count, group.queues_each());
        Some((first, Member::Host(HostMember { sends, terminals, each, before })))
    }

    /// The member that the i-th hop of a route takes of its links: that of the host at one end, or of the terminal, which is
    /// that of the host behind it.
    fn member(&self, t: &scenario::Traffic, i: usize) -> Member {
        let hop = t.route[i];
        let link = &self.scenario.links[hop.link];
        let members = self.scenario.members(link);
        let touches = |host: HostIndex| {
            let name = &self.scenario.hosts[host].name;
            link.between.0 == *name || link.between.1 == *name
        };
        // A link between a single host and a group is one of the group's.
        let is_first = i == 0 && touches(t.from) && self.scenario.hosts[t.from].count > 1;
        let is_upload = self
            .scenario
            .gateways
            .iter()
            .filter_map(|gateway| gateway.terminals.on_link(hop.link))
            .any(|(_, group)| group.link_forward != hop.forward);
        if members == 1 {
            Member::One
        } else if is_first || is_upload {
            Member::From { members }
        } else {
            Member::To { members }
        }
    }

    /// Adds a leg to a layout. Links without effect are left out, unless that leaves none.
    fn finish_leg(&self, layout: &mut Layout, mut leg: LegLayout) {
        leg.up.reverse();
        for steps in [&mut leg.down, &mut leg.up] {
            let is_transparent = |step: &Step| match step {
                Step::Link(step) => self.network.links[step.link(0, 0)].engine.is_transparent(),
                Step::Gateway { .. } | Step::Resize { .. } => false,
            };
            let is_link = |step: &&Step| matches!(step, Step::Link { .. });
            let has_none = steps.iter().filter(is_link).all(is_transparent);
            let only = steps.iter().find(is_link).copied().filter(|_| has_none);
            steps.retain(|step| !is_transparent(step));
            steps.splice(0..0, only);
        }
        layout.legs.push(leg);
    }

    /// Adds both directions of a link to a leg.
    fn add_hop(&self, layout: &mut Layout, leg: &mut LegLayout, t: &scenario::Traffic, i: usize) {
        let hop = t.route[i];
        let link = &self.scenario.links[hop.link];
        let member = self.member(t, i);
        let (base, links) = (self.first_links[hop.link.0], self.directions(hop.link, hop.forward, 0));
        let has_own = |link| self.network.links[link].engine.has_own_delays();
        let own = (has_own(links.0) || has_own(links.1)).then(|| {
            layout.own_delays.push(OwnDelay { links, is_shared: link.shared_delay });
            layout.own_delays.len() - 1
        });
        let step = |link, is_reverse, direction| {
            let own_line = own.filter(|_| has_own(link)).map(|own| (own, direction));
            Step::Link(LinkStep { base, member, is_reverse, own_line })
        };
        leg.down.push(step(links.0, !hop.forward, Direction::Down));
        leg.up.push(step(links.1, hop.forward, Direction::Up));
    }
}

/// The application of a kind of traffic, the cap of the host that sends the data, the absences and the number of its users.
fn application(kind: &TrafficKind) -> (Kind, Option<Rate>, &[Absence], u32) {
    match kind {
        TrafficKind::Pages(p) => (
            Kind::Pages {
                object_size: p.object_size.clone(),
                objects_per_page: p.objects_per_page,
                loading: match (p.http, p.connection_per) {
                    (Some(Http::One), _) => Loading::Http1,
                    (Some(Http::Two), _) => Loading::Http2,
                    (Some(Http::Three), _) => Loading::Http3,
                    (Some(Http::Probe), _) => Loading::Probe,
                    (None, ConnectionPer::Page) => Loading::InSequence,
                    (None, ConnectionPer::Object) => Loading::AtOnce,
                },
                keep_alive: p.keep_alive,
                think_time: p.think_time.clone(),
                patience: p.patience,
                request_size: p.request_size,
                rendering: p.rendering,
            },
            p.rate_cap,
            &p.away,
            p.sessions,
        ),
        TrafficKind::Bulk(b) => {
            (Kind::Bulk { bytes: b.bytes, lifetime: b.lifetime.clone() }, b.rate_cap, &b.away, b.flows)
        }
        TrafficKind::Files(f) => (
            Kind::Files {
                interval: f.interval.clone(),
                size: f.size.clone(),
                transfers: f.transfers.unwrap_or(u32::MAX),
            },
            f.rate_cap,
            &f.away,
            f.sources,
        ),
        TrafficKind::Dash(d) => (Kind::Dash(d.clone()), None, &d.away, d.flows),
        TrafficKind::Packets(p) => (Kind::Packets { pattern: p.pattern.clone() }, None, &p.away, p.flows),
    }
}

/// The application of a kind of traffic.
pub fn kind(kind: &TrafficKind) -> Kind {
    application(kind).0
}

/// Number of the users of a kind of traffic.
pub fn users(kind: &TrafficKind) -> u32 {
    application(kind).3
}

// ----- applications ----------------------------------------------------------------------------------------------

/// The applications of a run, with their first events scheduled.
pub(super) fn apps(
    scenario: &Scenario,
    traffic: IdVec<TrafficId, Traffic>,
    seed: u64,
    clock: &mut Clock,
) -> Apps {
    let has_codepoints = scenario.traffic.iter().any(|t| t.dscp != 0);
    let mut apps = Apps { traffic, has_codepoints, ..Apps::default() };
    let mut first_transfers = Vec::new();
    for (id, t) in apps.traffic.ids().zip(&scenario.traffic) {
        let presence = &apps.traffic[id].presence;
        let rng = |number| Rng::stream(seed, &format!("traffic.{}", t.name), u64::from(number), "flow");
        let mut add_source = |number, at, rng| apps.sources.push(Source::new(id, number, rng, at));
        let mut add_sources = |flows: u32, ramp: Option<Ramp>, start: &scenario::Distribution<Duration>| {
            for number in 0..flows {
                let mut rng = rng(number);
                let at = Instant::ZERO + start_in(ramp, number) + start.draw(&mut rng);
                let at = presence.present(number, at);
                let source = add_source(number, at, rng);
                clock.at_any(at, Event::Source(source));
            }
        };
        match &t.kind {
            TrafficKind::Pages(p) => {
                for number in 0..p.sessions {
                    let at = presence.present(number, Instant::ZERO + start_in(p.ramp, number));
                    let session = apps.sessions.push(Session::new(id, number, rng(number)));
                    clock.at_any(at, Event::Session(session));
                }
            }
            TrafficKind::Bulk(b) => add_sources(b.flows, b.ramp, &b.start),
            TrafficKind::Dash(d) => add_sources(d.flows, d.ramp, &d.start),
            TrafficKind::Packets(p) => add_sources(p.flows, None, &p.start),
            TrafficKind::Files(f) => {
                for number in 0..f.sources {
                    let mut rng = rng(number);
                    let at = Instant::ZERO + f.start.draw(&mut rng);
                    first_transfers.push((add_source(number, Some(at), rng), at));
                }
            }
        }
    }
    for (source, at) in first_transfers {
        apps.schedule_transfer(source, at, clock);
    }
    let mut first = 0;
    for host in &scenario.hosts {
        if let Some(changes) = host.address_changes {
            let hosts = Group { first, count: host.count };
            let group = apps.moving.push(Moving { hosts, interval: changes.interval });
            clock.at(Instant::ZERO + changes.offset, Event::NewAddress(group));
        }
        first += host.count;
    }
    apps
}

/// Start of a session or flow within its ramp.
fn start_in(ramp: Option<Ramp>, number: u32) -> Duration {
    let Some(ramp) = ramp else { return Duration::ZERO };
    let (step, place) = (number / ramp.sessions.max(1), number % ramp.sessions.max(1));
    let within = ramp.over.times(u64::from(place)).part(u64::from(ramp.sessions.max(1)));
    (ramp.over + ramp.pause).times(u64::from(step)) + within
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twenty sessions within five seconds, then five seconds' pause.
    #[test]
    fn sessions_start_in_steps() {
        let ramp = Ramp { sessions: 20, over: Duration::from_secs(5), pause: Duration::from_secs(5) };
        let start = |number| start_in(Some(ramp), number).as_secs_f64();
        assert_eq!([start(0), start(1), start(19), start(20), start(399)], [0.0, 0.25, 4.75, 10.0, 194.75]);
    }
}
