//! Traffic: applications, transports, and the layout of flows.

use bentpipe_scenario::{
    self as scenario, ConnectionPer, HostIndex, Http, Protocol, Ramp, Scenario, TrafficKind,
};
use bentpipe_traffic::Presence;
use bentpipe_units::{Duration, Instant, Rate, Rng};

use super::Builder;
use super::transports::Transports;
use crate::apps::{Apps, Group, Kind, Loading, Session, Source, Traffic, Transport};
use crate::clock::{Clock, Event};
use crate::endpoints::{Direction, Joint, Layout, LegLayout, LinkStep, Member, OwnDelay, Step};
use crate::ids::{GatewayId, Id, IdVec, TerminalId, TrafficId};

impl Builder<'_, '_> {
    pub(super) fn traffic(&self, t: &scenario::Traffic, transports: &mut Transports) -> Traffic {
        // A cap holds for the host that sends the data.
        let (kind, cap, away, count) = match &t.kind {
            TrafficKind::Pages(p) => (
                Kind::Pages {
                    object_size: p.object_size.clone(),
                    objects_per_page: p.objects_per_page,
                    loading: match (p.http, p.connection_per) {
                        (Some(Http::One), _) => Loading::Http1,
                        (Some(Http::Two), _) => Loading::Http2,
                        (Some(Http::Probe), _) => Loading::Probe,
                        (None, ConnectionPer::Page) => Loading::InSequence,
                        (None, ConnectionPer::Object) => Loading::AtOnce,
                    },
                    think_time: p.think_time.clone(),
                    request_size: p.request_size,
                },
                p.rate_cap,
                &p.away,
                p.sessions,
            ),
            TrafficKind::Bulk(b) => {
                (Kind::Bulk { bytes: b.bytes, lifetime: b.lifetime.clone() }, b.rate_cap, &b.away, b.flows)
            }
            TrafficKind::Files(f) => (
                Kind::Files { interval: f.interval.clone(), size: f.size.clone() },
                f.rate_cap,
                &f.away,
                f.sources,
            ),
            TrafficKind::Dash(d) => (Kind::Dash(d.clone()), None, &d.away, d.flows),
            TrafficKind::Packets(p) => (Kind::Packets { pattern: p.pattern.clone() }, None, &p.away, p.flows),
        };
        let transport = self.transport(t, cap, transports);
        let protocol = matches!(transport, Transport::Tcp { .. }).then_some(Protocol::Tcp);
        let group = |index| Group { first: self.first_host(index), count: self.scenario.hosts[index].count };
        Traffic {
            name: t.name.clone(),
            layout: self.layout(t, protocol),
            from: group(t.from),
            to: group(t.to),
            kind,
            transport,
            dscp: t.dscp,
            presence: Presence::new(away.clone(), t.profile.as_ref(), count),
            free_slots: Vec::new(),
        }
    }

    fn transport(&self, t: &scenario::Traffic, cap: Option<Rate>, transports: &mut Transports) -> Transport {
        match t.kind.transport().map(|index| &self.scenario.transports[index]) {
            None => Transport::Udp,
            Some(scenario::Transport::Tcp(tcp)) => {
                Transport::Tcp { other: transports.tcp(tcp, None), sender: transports.tcp(tcp, cap) }
            }
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

    /// Lays out the flows of a traffic: cut where a gateway splits them, through a gateway that does not.
    fn layout(&self, t: &scenario::Traffic, protocol: Option<Protocol>) -> Layout {
        let mut layout = Layout::default();
        let mut leg = LegLayout::default();
        for i in 0..t.route.len() {
            // The scenario ensures that data meets a gateway before its satellite.
            if let Some((gateway, first, joint)) = self.gateway_on(t, i) {
                let splits = protocol.is_some_and(|p| gateway.pep.split.contains(&p));
                let member = if gateway.queues() > 1 { joint.member } else { Member::One };
                leg.down.push(Step::Gateway { first, member, splits });
                layout.terminal = Some(joint);
                if splits {
                    self.finish_leg(&mut layout, std::mem::take(&mut leg));
                    layout.joints.push(joint);
                    continue;
                }
            }
            self.add_hop(&mut layout, &mut leg, t, i);
        }
        self.finish_leg(&mut layout, leg);
        layout
    }

    /// The gateway of which the i-th hop of a route is a satellite link, its queues, and its terminal.
    fn gateway_on(&self, t: &scenario::Traffic, i: usize) -> Option<(&scenario::Gateway, GatewayId, Joint)> {
        let link = t.route[i].link;
        let mut gateways = self.scenario.gateways.iter().enumerate();
        let (number, before, gateway) = gateways
            .find_map(|(number, gateway)| Some((number, gateway.terminals.on_link(link)?.0, gateway)))?;
        let queues = if gateway.queues() > 1 { before } else { 0 };
        let first = GatewayId::new(self.first[number].0.index() + queues);
        let terminal = TerminalId::new(self.first[number].1.index() + before);
        Some((gateway, first, Joint { first: terminal, member: self.member(t, i) }))
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
        let is_first = i == 0 && touches(t.from);
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
                Step::Gateway { .. } => false,
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
