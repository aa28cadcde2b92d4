//! From a scenario to a world.

use bentpipe_link::{DelayLine, LinkEngine, Names};
use bentpipe_queue::{Aqm, FlowTable};
use bentpipe_scenario as scenario;
use bentpipe_scenario::{Congestion, Ecn, Protocol, Scenario, Subject, TrafficKind, Transport};
use bentpipe_transport::{pep_link, rtp, sctp, tcp};
use bentpipe_units::{Duration, Instant, Rate, Rng};

use crate::MakeAqm;
use crate::agenda::{Agenda, Event, MAX_INDEX};
use crate::circuit::{LegPlan, Member, OwnDelay, Plan, Step};
use crate::network::{Discarded, Hop, Link, Path, Slab};
use crate::recorder::{self, Recorder};
use crate::traffic::{Carrier, Group, Kind, Session, Source, Traffic, present};
use crate::watch::{Tracer, members};
use crate::world::{Station, World};

/// What went wrong before or during a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(pub String);

/// A world as the scenario describes it, before anything happens; the subject's AQM is `make_aqm`'s, if there is one.
pub fn build(scenario: &Scenario, seed: u64, make_aqm: Option<MakeAqm<'_>>) -> Result<World, Error> {
    let mut builder =
        Builder { scenario, seed, make_aqm, first_links: Vec::new(), lines: Vec::new(), hops: Vec::new() };
    let links = builder.links()?;
    let stations = builder.stations(&links)?;
    let mut hosts = Vec::new();
    let (mut sctp_configs, mut rtp_configs) = (Vec::new(), Vec::new());
    let traffic = builder.traffic(&links, &mut hosts, &mut sctp_configs, &mut rtp_configs)?;
    let (configs, mut overheads): (_, Vec<Duration>) = hosts.into_iter().unzip();
    if overheads.iter().all(|overhead| overhead.is_zero()) {
        overheads.clear();
    }

    let named = scenario.gateways.iter().zip(&stations);
    let gateways = named
        .map(|(g, s)| (g.name.as_str(), &s.gateway, s.follows.is_some(), s.buffers.has_control()))
        .collect();
    let subject = match scenario.subject {
        Subject::Gateway(gateway) => (true, gateway as u32),
        Subject::Link(link) => (false, builder.first_links[link]),
    };
    let recorder = Recorder::new(&recorder::Setup {
        warmup: scenario.run.warmup,
        duration: scenario.run.duration,
        interval: scenario.run.sample_interval,
        gateways,
        links: &links,
        subject,
    });
    let mut world = World {
        now: Instant::ZERO,
        agenda: Agenda::default(),
        flights: Slab::default(),
        born: Vec::new(),
        acks: Slab::default(),
        hops: builder.hops,
        links,
        lines: builder.lines,
        stations,
        conns: Vec::new(),
        associations: Vec::new(),
        sctp_configs,
        sctp_packets: Slab::default(),
        media: Vec::new(),
        rtp_configs,
        configs,
        overheads,
        host_rng: Rng::stream(seed, "hosts", 0, "overhead"),
        circuits: Vec::new(),
        traffic,
        sessions: Vec::new(),
        sources: Vec::new(),
        recorder,
        discarded: Discarded::default(),
        tracer: Tracer::default(),
        observations: Vec::new(),
        fault: None,
    };
    world.schedule(seed);
    Ok(world)
}

struct Builder<'a, 'b> {
    scenario: &'a Scenario,
    seed: u64,
    make_aqm: Option<MakeAqm<'b>>,
    /// The first of each scenario link's links; each member takes two places, forward and reverse.
    first_links: Vec<u32>,
    lines: Vec<DelayLine<u32>>,
    hops: Vec<Hop>,
}

impl Builder<'_, '_> {
    fn links(&mut self) -> Result<Vec<Link>, Error> {
        let mut links = Vec::new();
        for (number, link) in self.scenario.links.iter().enumerate() {
            self.first_links.push(links.len() as u32);
            let members = members(self.scenario, link);
            for member in 0..members {
                for (direction, suffix) in [(&link.forward, ""), (&link.reverse, " reverse")] {
                    let is_subject = suffix.is_empty() && self.scenario.subject == Subject::Link(number);
                    let names = Names::new(&link.name, (members > 1).then_some(member), suffix.is_empty());
                    let seed = self.seed;
                    let make_aqm = |spec: &scenario::AqmSpec| self.aqm(spec, is_subject);
                    let engine = LinkEngine::new(direction, link.handover, &names, seed, None, make_aqm)
                        .map_err(Error)?;
                    let line = self.lines.len() as u32;
                    self.lines.push(DelayLine::default());
                    let mut new = Link::new(names.direction, engine, line);
                    if let Some(scenario::Capacity::Carrier(carrier)) = &direction.capacity
                        && let scenario::Modulation::Hosts { group, .. } = carrier.modulation
                    {
                        new.hosts = (self.first_host(group), self.scenario.hosts[group].count);
                    }
                    links.push(new);
                }
            }
        }
        if links.len() > MAX_INDEX as usize {
            return Err(Error(format!(
                "{} links are more than the {MAX_INDEX} that can be simulated",
                links.len()
            )));
        }
        Ok(links)
    }

    /// The first host of a group, among all.
    fn first_host(&self, group: usize) -> u32 {
        self.scenario.hosts[..group].iter().map(|host| host.count).sum()
    }

    /// The AQM that the scenario describes, or, in the subject's place, the one that was given instead.
    fn aqm(&mut self, spec: &scenario::AqmSpec, is_subject: bool) -> Result<Box<dyn Aqm>, String> {
        match self.make_aqm.as_mut().filter(|_| is_subject) {
            Some(make) => Ok(spec.controlled(make())),
            None => spec.build().map_err(|e| e.to_string()),
        }
    }

    fn stations(&mut self, links: &[Link]) -> Result<Vec<Station>, Error> {
        let scenario = self.scenario;
        scenario.gateways.iter().enumerate().map(|(i, gateway)| self.station(i, gateway, links)).collect()
    }

    fn station(&mut self, number: usize, g: &scenario::Gateway, links: &[Link]) -> Result<Station, Error> {
        let is_subject = self.scenario.subject == Subject::Gateway(number);
        let judge = self.aqm(&g.aqm, is_subject).map_err(|e| Error(format!("{}: {e}", g.name)))?;
        let config = g.config().map_err(|e| Error(format!("{}: {e}", g.name)))?;
        let (gateway, buffers) = config.build(judge, self.seed);
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
        let there = self.first_links[g.link] + u32::from(!g.link_forward);
        let back = self.first_links[g.link] + u32::from(g.link_forward);
        Ok(Station {
            gateway,
            buffers,
            flow_key: g.flow_key,
            open: FlowTable::default(),
            near: pep_link::Endpoint::new(config.clone()),
            far: pep_link::Endpoint::new(config.clone()),
            config,
            forward: self.one_link(there, links),
            reverse: self.one_link(back, links),
            relays: Vec::new(),
            transits: Vec::new(),
            follows: g.regulator.follows_link.then_some(there),
            gateway_at: Instant::FAR_FUTURE,
            space_at: [Instant::FAR_FUTURE; 2],
            draining: false,
        })
    }

    /// A path of a single link.
    fn one_link(&mut self, link: u32, links: &[Link]) -> Path {
        let start = self.hops.len() as u32;
        self.hops.push(Hop::Link { link, line: links[link as usize].line });
        Path { start, end: start + 1 }
    }

    fn traffic(
        &self,
        links: &[Link],
        hosts: &mut Vec<(tcp::Config, Duration)>,
        sctp_configs: &mut Vec<sctp::Config>,
        rtp_configs: &mut Vec<rtp::Config>,
    ) -> Result<Vec<Traffic>, Error> {
        self.scenario
            .traffic
            .iter()
            .map(|t| {
                let mut config = |transport: usize, pacing: Option<Rate>| {
                    let Transport::Tcp(transport) = &self.scenario.transports[transport] else { return 0 };
                    let host = (tcp_config(transport, pacing), transport.overhead);
                    hosts.iter().position(|known| *known == host).unwrap_or_else(|| {
                        hosts.push(host);
                        hosts.len() - 1
                    }) as u32
                };
                let (protocol, kind) = match &t.kind {
                    TrafficKind::Pages(p) => (
                        Some(Protocol::Tcp),
                        Kind::Pages {
                            config: config(p.transport, None),
                            server_config: config(p.transport, p.rate_cap),
                            object_size: p.object_size.clone(),
                            objects_per_page: p.objects_per_page,
                            connection_per: p.connection_per,
                            think_time: p.think_time.clone(),
                            request_size: p.request_size,
                            ramp: p.ramp,
                            sessions: p.sessions,
                            away: p.away.clone(),
                        },
                    ),
                    TrafficKind::Bulk(b) => (
                        Some(Protocol::Tcp),
                        Kind::Bulk {
                            config: config(b.transport, None),
                            sender_config: config(b.transport, b.rate_cap),
                            bytes: b.bytes,
                            start: b.start.clone(),
                            ramp: b.ramp,
                            lifetime: b.lifetime.clone(),
                            flows: b.flows,
                            away: b.away.clone(),
                        },
                    ),
                    TrafficKind::Files(f) => (
                        Some(Protocol::Tcp),
                        Kind::Files {
                            config: config(f.transport, None),
                            sender_config: config(f.transport, f.rate_cap),
                            interval: f.interval.clone(),
                            size: f.size.clone(),
                            start: f.start.clone(),
                            sources: f.sources,
                            away: f.away.clone(),
                        },
                    ),
                    TrafficKind::Packets(p) => (
                        p.transport.map(|_| Protocol::Tcp),
                        Kind::Packets {
                            config: p.transport.map(|transport| config(transport, None)),
                            pattern: p.pattern.clone(),
                            start: p.start.clone(),
                            flows: p.flows,
                            away: p.away.clone(),
                        },
                    ),
                };
                let group = |index: usize| Group {
                    first: self.first_host(index),
                    count: self.scenario.hosts[index].count,
                };
                let carrier = match t.kind.transport().map(|i| &self.scenario.transports[i]) {
                    None | Some(Transport::Tcp(_)) => None,
                    Some(Transport::Sctp(s)) => {
                        sctp_configs.push(sctp_config(s));
                        Some(Carrier::Sctp { config: sctp_configs.len() as u32 - 1 })
                    }
                    Some(Transport::Rtp(r)) => {
                        rtp_configs.push(rtp_config(r));
                        let nominal = match &t.kind {
                            TrafficKind::Packets(p) => p.pattern.nominal_rate(),
                            _ => Rate::default(),
                        };
                        Some(Carrier::Rtp { config: rtp_configs.len() as u32 - 1, nominal })
                    }
                };
                let plan = self.plan(t, protocol.filter(|_| carrier.is_none()), links);
                Ok(Traffic::new(t.name.clone(), plan, group(t.from), group(t.to), kind, carrier))
            })
            .collect()
    }

    /// Lays out the way of some traffic: cut where a gateway splits it, through a gateway that does not.
    fn plan(&self, t: &scenario::Traffic, protocol: Option<Protocol>, links: &[Link]) -> Plan {
        let mut plan = Plan::default();
        let mut leg = LegPlan::default();
        for (i, hop) in t.route.iter().enumerate() {
            // The scenario has seen to it that data meets a gateway before its satellite.
            if let Some(index) = self.scenario.gateways.iter().position(|g| g.link == hop.link) {
                let splits = protocol.is_some_and(|p| self.scenario.gateways[index].pep.split.contains(&p));
                leg.down.push(Step::Gateway { station: index as u32, splits });
                if splits {
                    self.finish(&mut plan, std::mem::take(&mut leg), links);
                    plan.joints.push(index as u32);
                    continue;
                }
            }
            self.step(&mut plan, &mut leg, t, i, links);
        }
        self.finish(&mut plan, leg, links);
        plan
    }

    /// Adds a leg to the plan. Links that do nothing are left out, unless that leaves none.
    fn finish(&self, plan: &mut Plan, mut leg: LegPlan, links: &[Link]) {
        leg.up.reverse();
        for steps in [&mut leg.down, &mut leg.up] {
            let trivial = |step: &Step| match *step {
                Step::Link { base, reverse, .. } => {
                    links[(base + u32::from(reverse)) as usize].engine.is_transparent()
                }
                Step::Gateway { .. } => false,
            };
            let is_link = |step: &&Step| matches!(step, Step::Link { .. });
            let lone =
                steps.iter().find(is_link).copied().filter(|_| steps.iter().filter(is_link).all(trivial));
            steps.retain(|step| !trivial(step));
            steps.splice(0..0, lone);
        }
        plan.legs.push(leg);
    }

    /// Adds one link to a leg, in both directions.
    fn step(&self, plan: &mut Plan, leg: &mut LegPlan, t: &scenario::Traffic, i: usize, links: &[Link]) {
        let hop = t.route[i];
        let link = &self.scenario.links[hop.link];
        let touches = |host: usize| {
            let name = &self.scenario.hosts[host].name;
            link.between.0 == *name || link.between.1 == *name
        };
        let member = if i == 0 && touches(t.from) {
            Member::From
        } else if i + 1 == t.route.len() && touches(t.to) {
            Member::To
        } else {
            Member::One
        };
        let base = self.first_links[hop.link];
        let (there, back) = (u32::from(!hop.forward), u32::from(hop.forward));
        let per_connection =
            [there, back].map(|direction| links[(base + direction) as usize].engine.has_own_delays());
        let own = per_connection.contains(&true).then(|| {
            plan.own_delays.push(OwnDelay { base, forward: hop.forward, shared: link.shared_delay });
            2 * (plan.own_delays.len() as u32 - 1)
        });
        let own_line =
            |direction: usize| own.filter(|_| per_connection[direction]).map(|own| own + direction as u32);
        leg.down.push(Step::Link { base, member, reverse: there == 1, own_line: own_line(0) });
        leg.up.push(Step::Link { base, member, reverse: back == 1, own_line: own_line(1) });
    }
}

impl World {
    /// Enters what starts by itself.
    fn schedule(&mut self, seed: u64) {
        let mut first_transfers = Vec::new();
        for index in 0..self.traffic.len() as u32 {
            let t = &self.traffic[index as usize];
            let rng =
                |number: u32| Rng::stream(seed, &format!("traffic.{}", t.name), u64::from(number), "flow");
            match &t.kind {
                Kind::Pages { sessions, ramp, away, .. } => {
                    for number in 0..*sessions {
                        let at = ramp.map_or(Duration::ZERO, |ramp| ramp_start(&ramp, number));
                        let at = present(away, Instant::ZERO + at);
                        self.agenda.at(at, Event::Session(self.sessions.len() as u32));
                        let rng = rng(number);
                        self.sessions.push(Session { traffic: index, number, pages: 0, pending: 0, rng });
                    }
                }
                Kind::Bulk { flows, start, away, .. } | Kind::Packets { flows, start, away, .. } => {
                    let ramp = if let Kind::Bulk { ramp, .. } = &t.kind { *ramp } else { None };
                    for number in 0..*flows {
                        let mut rng = rng(number);
                        let step = ramp.map_or(Duration::ZERO, |ramp| ramp_start(&ramp, number));
                        let at = present(away, Instant::ZERO + step + start.draw(&mut rng));
                        self.agenda.at(at, Event::Source(self.sources.len() as u32));
                        self.sources.push(Source::new(index, number, rng, at));
                    }
                }
                Kind::Files { sources, start, .. } => {
                    let (sources, start) = (*sources, start.clone());
                    for number in 0..sources {
                        let mut rng = rng(number);
                        let at = Instant::ZERO + start.draw(&mut rng);
                        let source = self.sources.len() as u32;
                        self.sources.push(Source::new(index, number, rng, at));
                        first_transfers.push((source, at));
                    }
                }
            }
        }
        for (source, at) in first_transfers {
            self.plan_transfer(source, at);
        }
        for link in 0..self.links.len() as u32 {
            self.arm_link(link);
        }
        for (link, l) in self.links.iter().enumerate() {
            if let Some(at) = l.engine.first_update() {
                self.agenda.at(at, Event::Capacity(link as u32));
            }
        }
        for station in 0..self.stations.len() as u32 {
            self.arm_gateway(station);
        }
        self.agenda.at(self.recorder.begin(), Event::Sample);
    }
}

/// When the step of a session, or transfer, of that number has it start.
fn ramp_start(ramp: &scenario::Ramp, number: u32) -> Duration {
    let (step, place) = (number / ramp.sessions.max(1), number % ramp.sessions.max(1));
    let within = ramp.over.times(u64::from(place)).part(u64::from(ramp.sessions.max(1)));
    (ramp.over + ramp.pause).times(u64::from(step)) + within
}

fn tcp_config(t: &scenario::Tcp, pacing: Option<Rate>) -> tcp::Config {
    tcp::Config {
        mss: small(t.mss),
        header_len: small(t.header),
        option_bytes: t.option_bytes,
        initial_window: t.initial_window,
        receive_window: small(t.receive_window),
        initial_receive_window: t.initial_receive_window.map(small),
        max_window: t.max_window.unwrap_or(u64::MAX),
        initial_ssthresh: t.initial_ssthresh.unwrap_or(u64::MAX),
        initial_rto: t.initial_rto,
        min_rto: t.min_rto,
        estimator: match t.rto {
            scenario::Rto::Rfc6298 => tcp::Estimator::Rfc6298,
            scenario::Rto::Linux => tcp::Estimator::Linux,
            scenario::Rto::Bsd => tcp::Estimator::Bsd,
        },
        max_rto: t.max_rto,
        clock_granularity: t.clock_granularity,
        limited_transmit: t.limited_transmit,
        delayed_ack: t.delayed_ack,
        impatient: t.impatient,
        half_of_cwnd: t.half_of_cwnd,
        ns2_recovery: t.ns2_recovery,
        go_back_n: t.go_back_n,
        slow_start_restart: t.slow_start_restart,
        pacing,
        pace_window: t.pacing,
        hystart: t.hystart,
        ecn: t.ecn != Ecn::Off,
        accurate_ecn: t.ecn == Ecn::Accurate,
        rack: t.rack,
        eifel: t.eifel,
        timestamps: t.timestamps,
        window_scale: t.window_scale,
        sack: t.sack,
        prr: t.prr,
        abc: t.abc,
        algorithm: algorithm(t.algorithm),
        syn_retries: t.syn_retries,
        retries: t.retries,
    }
}

/// The transport's algorithm of that name; a test holds that there is one for each.
fn algorithm(named: Congestion) -> tcp::Algorithm {
    let all = tcp::Algorithm::ALL.iter();
    all.copied().find(|a| a.name() == named.name()).unwrap_or(tcp::Algorithm::NewReno)
}

fn sctp_config(s: &scenario::Sctp) -> sctp::Config {
    sctp::Config {
        pmtu: small(s.pmtu),
        ip_header: small(s.ip_header),
        message_len: small(s.message),
        cookie_len: small(s.cookie),
        a_rwnd: small(s.a_rwnd),
        initial_ssthresh: s.initial_ssthresh.unwrap_or(u64::MAX),
        slow_start_limit: s.slow_start_limit,
        clock_granularity: s.clock_granularity,
        sack_every: s.sack_every,
        rto_initial: s.rto_initial,
        rto_min: s.rto_min,
        rto_max: s.rto_max,
        max_burst: s.max_burst,
        valid_cookie_life: s.valid_cookie_life,
        association_max_retrans: s.association_max_retrans,
        max_init_retransmits: s.max_init_retransmits,
        sack_delay: s.sack_delay,
        ..sctp::Config::default()
    }
}

fn rtp_config(r: &scenario::Rtp) -> rtp::Config {
    rtp::Config {
        udp_header_len: small(r.udp_header),
        clock_rate: r.clock_rate,
        rtcp_interval: r.rtcp_interval,
        adaptation: r.adapt.then_some(rtp::Adaptation {
            smoothing: r.smoothing,
            unloaded: r.unloaded,
            congested: r.congested,
            decrease: r.decrease,
            increase: r.increase,
            min_rate: r.min_rate,
            max_rate: r.max_rate,
        }),
        ..rtp::Config::default()
    }
}

/// A size that the scenario has bounded.
fn small(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a scenario may choose is what the transport has.
    #[test]
    fn algorithms_have_the_same_names() {
        let here: Vec<_> = Congestion::ALL.iter().map(|c| c.name()).collect();
        let there: Vec<_> = tcp::Algorithm::ALL.iter().map(|a| a.name()).collect();
        assert_eq!(here, there);
    }

    /// Twenty sessions within five seconds, then five seconds' pause.
    #[test]
    fn sessions_start_in_steps() {
        let ramp =
            scenario::Ramp { sessions: 20, over: Duration::from_secs(5), pause: Duration::from_secs(5) };
        let start = |number| ramp_start(&ramp, number).as_secs_f64();
        assert_eq!([start(0), start(1), start(19), start(20), start(399)], [0.0, 0.25, 4.75, 10.0, 194.75]);
    }
}
