//! Traffic.

use std::sync::Arc;

use bentpipe_units::Duration;

use super::cx::Cx;
use super::dash::dash;
use super::distribution::distribution;
use super::handover;
use super::nodes::{Nodes, check_name, name_problem, named};
use super::packets::absences;
use super::profile::profile;
use super::transport::{DEFAULT, SCONE_PACKET};
use crate::error::{Error, choices, quoted};
use crate::model::{
    Application, Bulk, ConnectionPer, DATAGRAM_HEADER, Direction, Distribution, Files, Gateway, Hop, Host,
    HostIndex, Http, Link, Packets, Pages, Pattern, Protocol, Quic, Ramp, Rendering, Traffic, TrafficKind,
    Transport, TransportIndex,
};
use crate::reader::tree::{Path, step};
use crate::schema::file::File;
use crate::schema::forms;
use crate::schema::presets;
use crate::schema::quantity::{Quantity, SpanKind};
use crate::schema::traffic as file;

/// Returns the length of the longest packet: of the transports in use, else of the datagrams [bytes].
pub fn mean_packet(
    cx: &Cx<'_>,
    file: &File,
    transports: &[Transport],
    patterns: &[Option<Arc<Pattern>>],
) -> Result<f64, Error> {
    if file.traffic.0.is_empty() {
        let problem = "missing; required: at least one traffic entry, such as [traffic.web]".to_owned();
        return Err(cx.error(&step(&[], "traffic"), problem));
    }
    let mut longest: Option<u64> = None;
    for ((name, t), pattern) in file.traffic.iter().zip(patterns) {
        if let Some(wanted) = t.source().common().transport {
            let path = step(&named("traffic", name), "transport");
            let transport = transports.iter().find(|t| t.name() == wanted);
            let others = transports.iter().map(Transport::name).filter(|name| *name != DEFAULT);
            let unnamed = |name: &&str| !transports.iter().any(|t| t.name() == *name);
            let presets = presets::PRESETS.iter().map(|p| p.name).filter(unnamed);
            let known = others.chain([DEFAULT]).chain(presets);
            let transport = transport.ok_or_else(|| match t.source().packets() {
                Some(_) => {
                    let choices = choices(wanted, known);
                    cx.error(&path, format!("found \"{wanted}\"; {choices}; default: UDP datagrams"))
                }
                None => cx.unknown(&path, wanted, known),
            })?;
            let carried = match t {
                file::Traffic::Probe(_) => ["tcp"].as_slice(),
                file::Traffic::Pages(_) | file::Traffic::Dash(_) => &["tcp", "quic"],
                file::Traffic::Files(_) | file::Traffic::Bulk(_) => &["tcp", "sctp", "quic"],
                _ => &["tcp", "sctp", "rtp", "quic"],
            };
            if !carried.contains(&transport.protocol()) {
                let problem = format!(
                    "found {}, whose protocol is {}; allowed: a transport whose protocol is {}",
                    quoted(wanted),
                    transport.protocol(),
                    carried.join(" or ")
                );
                return Err(cx.error(&path, problem));
            }
            check_http(cx, name, t, transport.protocol())?;
            if let (Transport::Quic(quic), Some(pattern)) = (transport, pattern) {
                check_datagrams(cx, &path, quic, pattern)?;
            }
            longest = longest.max(transport.full_packet());
        }
    }
    let datagrams = patterns.iter().flatten().map(|p| p.typical_packet());
    Ok(longest.map_or_else(|| datagrams.fold(1.0, f64::max), |longest| longest as f64))
}

pub fn traffic(
    cx: &mut Cx<'_>,
    file: &File,
    hosts: &[Host],
    transports: &[Transport],
    nodes: &Nodes,
    (gateways, links): (&[Gateway], &[Link]),
    patterns: Vec<Option<Arc<Pattern>>>,
) -> Result<Vec<Traffic>, Error> {
    let mut all = Vec::new();
    for ((name, raw), pattern) in file.traffic.iter().zip(patterns) {
        let path = named("traffic", name);
        check_name(cx, &path, name)?;
        let common = raw.source().common();
        let (from_name, to_name) = (common.from, common.to);
        let find = |key: &str, wanted: &str| {
            let known = hosts.iter().map(|h| h.name.as_str());
            let found = hosts.iter().position(|h| h.name == wanted);
            found.map(HostIndex).ok_or_else(|| cx.unknown(&step(&path, key), wanted, known))
        };
        let (from, to) = (find("from", from_name)?, find("to", to_name)?);
        if from == to {
            let problem = format!("found {}; allowed: a group of hosts other than from", quoted(to_name));
            return Err(cx.error(&step(&path, "to"), problem));
        }
        let Some(route) = nodes.route(from_name, to_name) else {
            let problem = format!(
                "found {}; allowed: hosts that {} can reach over links",
                quoted(to_name),
                quoted(from_name)
            );
            return Err(cx.error(&step(&path, "to"), problem));
        };
        let transport = common
            .transport
            .and_then(|name| transports.iter().position(|t| t.name() == name))
            .map(TransportIndex);
        let cap = match raw {
            file::Traffic::Bulk(t) => t.rate_cap,
            file::Traffic::Files(t) => t.rate_cap,
            _ => None,
        };
        if let Some(cap) = cap
            && transport.is_some_and(|t| !matches!(transports[t], Transport::Tcp(_) | Transport::Quic(_)))
        {
            let problem =
                format!("found \"{cap:?}\"; allowed: only with a transport whose protocol is tcp or quic");
            return Err(cx.error(&step(&path, "rate_cap"), problem));
        }
        let kind = kind(cx, &path, raw, transport, pattern)?;
        if transport.is_some_and(|t| matches!(transports[t], Transport::Quic(_))) {
            check_migration(cx, &path, &kind, [&hosts[from], &hosts[to]])?;
        }
        let routes_after = handover::routes_after(cx, (from_name, to_name), &route, nodes, gateways)?;
        let all_routes = std::iter::once(&route).chain(&routes_after);
        let wrong = all_routes.filter_map(|route| nodes.wrong_way(from_name, route, gateways)).next();
        if let Some((gateway, two_terminals)) = wrong {
            let (from, name) = (quoted(from_name), quoted(&gateway.name));
            let uses_tcp = kind.transport().is_some_and(|t| matches!(transports[t], Transport::Tcp(_)));
            let problem = if !two_terminals {
                Some(format!(
                    "found {from}, whose data would pass gateway {name} without its satellite link; allowed: hosts whose data \
                     takes the satellite link"
                ))
            } else if uses_tcp && gateway.pep.split.contains(&Protocol::Tcp) {
                Some(format!(
                    "found {from}, whose connections go from one terminal to another through gateway {name}, which splits \
                     them; allowed: with pep.split = [] at the gateway, or over another transport, because a connection is \
                     not split twice"
                ))
            } else {
                None
            };
            if let Some(problem) = problem {
                return Err(cx.error(&step(&path, "from"), problem));
            }
        }
        if !matches!(kind, TrafficKind::Packets(_)) && takes_no_time(&route, links, gateways) {
            let problem = format!(
                "found {}, which data reach in no time, as their acknowledgements reach {}; allowed: hosts behind a link with a rate \
                 or a delay, because a connection would send without end at one time",
                quoted(to_name),
                quoted(from_name)
            );
            return Err(cx.error(&step(&path, "to"), problem));
        }
        if let Some(problem) = common.class.and_then(name_problem) {
            return Err(cx.error(&step(&path, "class"), problem));
        }
        let class = common.class.filter(|class| *class != name).map(str::to_owned);
        let dscp = common.dscp.map_or(0, |dscp| dscp.0);
        let application = application(cx, &path, raw)?;
        let profile = profile(cx, &step(&path, "profile"), common.profile)?;
        let name = name.to_owned();
        all.push(Traffic { name, from, to, route, routes_after, kind, class, dscp, application, profile });
    }
    check_deadlines(cx, &all)?;
    Ok(all)
}

/// Returns true if packets take no time on a route and back.
fn takes_no_time(route: &[Hop], links: &[Link], gateways: &[Gateway]) -> bool {
    route.iter().all(|hop| {
        let link = &links[hop.link];
        let at_once = |way: &Direction| way.mean_rate().is_none() && way.delay.is_none();
        let moves = link.handover.is_some_and(|handover| !handover.delay.1.is_zero());
        let is_regulated = gateways.iter().any(|gateway| gateway.has_link(hop.link));
        at_once(&link.forward) && at_once(&link.reverse) && !moves && !is_regulated
    })
}

/// Returns the application of packets with its deadline.
fn application(
    cx: &Cx<'_>,
    path: &Path,
    raw: &file::Traffic,
) -> Result<Option<(Application, Duration)>, Error> {
    let Some(packets) = raw.source().packets() else { return Ok(None) };
    let deadline = packets.deadline.map(|deadline| deadline.time());
    match packets.application {
        Some(application) => Ok(Some((application, deadline.unwrap_or_else(|| application.deadline())))),
        None if deadline.is_some() => {
            let problem = "allowed: only with application = \"game\" or \"iot\"".to_owned();
            Err(cx.error(&step(path, "deadline"), problem))
        }
        None => Ok(None),
    }
}

/// Rejects two deadlines in a class, whose packets are counted together.
fn check_deadlines(cx: &Cx<'_>, all: &[Traffic]) -> Result<(), Error> {
    for (i, t) in all.iter().enumerate() {
        let Some((_, deadline)) = t.application else { continue };
        let earlier = all[..i].iter().filter(|other| other.class() == t.class());
        let Some((other, first)) = earlier.filter_map(|o| Some((&o.name, o.application?.1))).next() else {
            continue;
        };
        if first != deadline {
            let problem = format!(
                "found a deadline of \"{deadline}\"; allowed: that of traffic.{other} in the same class (\"{first}\"), or another class"
            );
            return Err(cx.error(&named("traffic", &t.name), problem));
        }
    }
    Ok(())
}

/// Rejects packets that do not fit into QUIC's datagrams: 9 bytes of the frame (RFC 9221, section 4), 29 of the packet and
/// those of a SCONE packet, if any; a packet's own 28 bytes of headers are not sent.
fn check_datagrams(cx: &Cx<'_>, path: &Path, quic: &Quic, pattern: &Pattern) -> Result<(), Error> {
    let scone = if quic.scone { SCONE_PACKET } else { 0 };
    let (most, found) = (quic.max_udp_payload - scone - 38 + DATAGRAM_HEADER, pattern.longest_packet());
    if !quic.datagrams || found <= most as f64 {
        return Ok(());
    }
    let problem = format!(
        "found {}, whose datagrams hold packets of up to {most} B, for packets of {found} B; allowed: shorter packets, or a larger \
         max_udp_payload",
        quoted(&quic.name)
    );
    Err(cx.error(path, problem))
}

/// Rejects connections over QUIC whose server would change its address: only clients migrate (RFC 9000, section 9).
fn check_migration(cx: &Cx<'_>, path: &Path, kind: &TrafficKind, ends: [&Host; 2]) -> Result<(), Error> {
    let [from, to] = ends.map(|host| host.address_changes.is_some());
    let user_opens = matches!(kind, TrafficKind::Pages(_) | TrafficKind::Dash(_));
    let (key, host) = match () {
        () if from && user_opens => ("from", ends[0]),
        () if from && to => ("to", ends[1]),
        () => return Ok(()),
    };
    let problem = format!(
        "found {}, which has address_changes; allowed: hosts without, because a QUIC server cannot migrate (RFC 9000, section 9)",
        quoted(&host.name)
    );
    Err(cx.error(&step(path, key), problem))
}

/// Rejects another version of HTTP than the protocol carries: HTTP/3 is HTTP over QUIC, and other versions are not (RFC 9114,
/// section 2). Over QUIC, only HTTP/3 fetches several objects over one connection.
fn check_http(cx: &Cx<'_>, name: &str, t: &file::Traffic, protocol: &str) -> Result<(), Error> {
    let file::Traffic::Pages(pages) = t else { return Ok(()) };
    let path = step(&named("traffic", name), "http");
    let objects = pages.objects_per_page.0;
    let Some(http) = &pages.http else {
        if protocol == "quic" && objects > 1 && pages.connection_per != Some(ConnectionPer::Object) {
            let problem = format!(
                "missing; allowed with objects_per_page = {objects} over quic: http = \"3\", or connection_per = \"object\""
            );
            return Err(cx.error(&path, problem));
        }
        return Ok(());
    };
    let (found, needed) = match http {
        Http::Three => ("3", "quic"),
        Http::One => ("1.1", "tcp"),
        Http::Two => ("2", "tcp"),
        Http::Probe => return Ok(()),
    };
    if protocol == needed {
        return Ok(());
    }
    let allowed = if needed == "quic" { "1.1 or 2" } else { "3" };
    let problem = format!(
        "found \"{found}\" over {protocol}; allowed: {allowed}, or a transport whose protocol is {needed}"
    );
    Err(cx.error(&path, problem))
}

/// Request of a probe, and response with headers to the request for 1 byte [bytes]. With a server's TLS flight of 4000 bytes
/// a probe is near the 5000 bytes that draft-ietf-ippm-responsiveness estimates.
const PROBE_REQUEST: u64 = 500;
const PROBE_RESPONSE: u64 = 300;

/// Returns the objects that a browser needs first.
fn rendering(cx: &Cx<'_>, path: &Path, pages: &file::Pages) -> Result<Option<Rendering>, Error> {
    let Some(blocking) = pages.render_blocking.map(|n| n.0) else {
        if pages.priorities {
            let problem =
                "found true; allowed: only with render_blocking, the number of objects that come first";
            return Err(cx.error(&step(path, "priorities"), problem.to_owned()));
        }
        return Ok(None);
    };
    let problem = if pages.http != Some(Http::Three) {
        format!("found {blocking}; allowed: only with http = \"3\"")
    } else if blocking >= pages.objects_per_page.0 {
        format!(
            "found {blocking}; allowed: less than objects_per_page, which is {}",
            pages.objects_per_page.0
        )
    } else {
        return Ok(Some(Rendering { blocking, priorities: pages.priorities }));
    };
    Err(cx.error(&step(path, "render_blocking"), problem))
}

fn kind(
    cx: &Cx<'_>,
    path: &Path,
    raw: &file::Traffic,
    carrier: Option<TransportIndex>,
    pattern: Option<Arc<Pattern>>,
) -> Result<TrafficKind, Error> {
    let transport = carrier.unwrap_or(TransportIndex(0));
    let at = |key: &str| step(path, key);
    if let file::Traffic::Pages(t) = raw
        && let (Some(_), Some(per)) = (t.http, t.connection_per)
    {
        let per = match per {
            ConnectionPer::Page => "page",
            ConnectionPer::Object => "object",
        };
        let problem = format!("found {} beside http; allowed: one of the two", quoted(per));
        return Err(cx.error(&at("connection_per"), problem));
    }
    if let file::Traffic::Pages(file::Pages { http, keep_alive: Some(time), .. }) = raw
        && !matches!(http, Some(Http::Two | Http::Three))
    {
        let problem = format!("found \"{time:?}\"; allowed: only with http = \"2\" or \"3\"");
        return Err(cx.error(&at("keep_alive"), problem));
    }
    let rendering = match raw {
        file::Traffic::Pages(t) => rendering(cx, path, t)?,
        _ => None,
    };
    Ok(match raw {
        file::Traffic::Pages(t) => TrafficKind::Pages(Pages {
            transport,
            sessions: t.sessions.0,
            object_size: distribution(cx, &at("object_size"), &t.object_size, |q| q.0)?,
            objects_per_page: t.objects_per_page.0,
            connection_per: t.connection_per.unwrap_or(ConnectionPer::Page),
            http: t.http,
            keep_alive: t.keep_alive.map(|t| t.time()),
            think_time: distribution(cx, &at("think_time"), &t.think_time, Quantity::time)?,
            patience: t.patience.map(|t| t.time()),
            rendering,
            request_size: t.request_size.0,
            rate_cap: t.rate_cap.map(|r| r.rate()),
            ramp: t.ramp.as_ref().map(ramp),
            away: absences(cx, path, &t.away)?,
        }),
        file::Traffic::Files(t) => TrafficKind::Files(Files {
            transport,
            sources: t.sources.0,
            interval: distribution(cx, &at("interval"), &t.interval, Quantity::time)?,
            transfers: t.transfers.map(|n| n.0),
            size: distribution(cx, &at("size"), &t.size, |q| q.0)?,
            rate_cap: t.rate_cap.map(|r| r.rate()),
            start: distribution(cx, &at("start"), &t.start, Quantity::time)?,
            away: absences(cx, path, &t.away)?,
        }),
        file::Traffic::Bulk(t) => TrafficKind::Bulk(Bulk {
            transport,
            flows: t.flows.0,
            start: distribution(cx, &at("start"), &t.start, Quantity::time)?,
            ramp: t.ramp.as_ref().map(ramp),
            lifetime: t.lifetime.as_ref().map(|found| lifetime(cx, &at("lifetime"), found)).transpose()?,
            bytes: t.bytes.map(|b| b.0),
            rate_cap: t.rate_cap.map(|r| r.rate()),
            away: absences(cx, path, &t.away)?,
        }),
        file::Traffic::Probe(t) => TrafficKind::Pages(Pages {
            transport,
            sessions: t.sessions.0,
            object_size: Distribution::Fixed(PROBE_RESPONSE),
            objects_per_page: 2,
            connection_per: ConnectionPer::Page,
            http: Some(Http::Probe),
            keep_alive: None,
            think_time: distribution(cx, &at("interval"), &t.interval, Quantity::time)?,
            patience: None,
            rendering: None,
            request_size: PROBE_REQUEST,
            rate_cap: None,
            ramp: None,
            away: Vec::new(),
        }),
        file::Traffic::Dash(t) => TrafficKind::Dash(Box::new(dash(cx, path, t, transport)?)),
        _ => {
            // Every other kind is a packet source, whose pattern is resolved.
            let (Some(t), Some(pattern)) = (raw.source().packets(), pattern) else {
                return Err(cx.error(path, "no source of packets".to_owned()));
            };
            let start = distribution(cx, &at("start"), t.start, Quantity::time)?;
            let away = absences(cx, path, t.away)?;
            TrafficKind::Packets(Packets { transport: carrier, flows: t.flows, pattern, start, away })
        }
    })
}

pub fn ramp(raw: &file::Ramp) -> Ramp {
    Ramp { sessions: raw.sessions.0, over: raw.over.time(), pause: raw.pause.time() }
}

/// The lifetime of connections, each of which is replaced when it ends.
fn lifetime(
    cx: &Cx<'_>,
    path: &Path,
    raw: &forms::Distribution<SpanKind>,
) -> Result<Distribution<Duration>, Error> {
    let lifetime = distribution(cx, path, raw, Quantity::time)?;
    if lifetime.mean() < SHORTEST_LIFETIME {
        let mean = lifetime.mean();
        return Err(cx.error(path, format!("found a mean of {mean}; allowed: at least {SHORTEST_LIFETIME}")));
    }
    Ok(lifetime)
}

/// Shortest mean lifetime of connections: with shorter ones, a run would do little but open connections.
const SHORTEST_LIFETIME: Duration = Duration::from_millis(1);
