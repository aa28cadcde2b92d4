//! Transports and traffic.

use std::sync::Arc;

use bentpipe_units::Duration;

use super::nodes::{Nodes, check_name, named};
use super::packets::absences;
use super::{Cx, falling, presets, step, transport};
use crate::distribution::{Distribution, Samples};
use crate::error::{Error, choices, quoted};
use crate::file::{self, Either, File, LAWS, OneOf, Window};
use crate::model::{
    Bulk, Congestion, ConnectionPer, Ecn, Files, Gateway, Host, Pages, Ramp, Rto, Tcp, Traffic, TrafficKind,
    Transport,
};
use crate::packets::{Packets, Pattern};
use crate::quantity::{Kind, Quantity};
use crate::tree::{Path, Step};

/// The name of the TCP of traffic that names none.
const DEFAULT: &str = "default";

/// The longest packet there is [bytes].
const LONGEST: u64 = 65_535;

/// The most that options take in a TCP header [bytes].
const OPTIONS: u64 = 40;

/// The file's transports, and the default one where traffic needs it.
pub fn transports(cx: &mut Cx<'_>, file: &mut File) -> Result<Vec<Transport>, Error> {
    let uses_default = file.traffic.iter().any(|(_, t)| t.transport() == Some(DEFAULT));
    if uses_default && !file.transport.names().any(|name| name == DEFAULT) {
        file.transport.0.push((DEFAULT.to_owned(), file::Transport::default()));
    }
    let mut transports = Vec::new();
    for (name, raw) in &mut file.transport.0 {
        transports.push(match raw {
            file::Transport::Tcp(raw) => Transport::Tcp(Box::new(tcp(cx, name, raw)?)),
            file::Transport::Sctp(raw) => Transport::Sctp(Box::new(transport::sctp(cx, name, raw)?)),
            file::Transport::Rtp(raw) => Transport::Rtp(Box::new(transport::rtp(cx, name, raw)?)),
        });
    }
    Ok(transports)
}

fn tcp(cx: &mut Cx<'_>, name: &str, raw: &mut file::Tcp) -> Result<Tcp, Error> {
    let path = named("transport", name);
    check_name(cx, &path, name)?;
    if let Some(name) = &raw.preset
        && presets::preset(name).is_none()
    {
        return Err(cx.unknown(&step(&path, "preset"), name, presets::PRESETS.iter().map(|p| p.name)));
    }
    let mss = raw.mss.0;
    let refuse = |key: &str, found: String, allowed: String| {
        Err(cx.error(&step(&path, key), format!("found \"{found}\"; allowed: {allowed}")))
    };
    let options = if raw.option_bytes { OPTIONS } else { 0 };
    if mss + raw.header.0 + options > LONGEST {
        let and = if raw.option_bytes { " and 40 B of options" } else { "" };
        let allowed = format!("together with the header (\"{:?}\"){and}, at most {LONGEST} B", raw.header);
        return refuse("mss", format!("{:?}", raw.mss), allowed);
    }
    let windows = [
        ("receive_window", Some(raw.receive_window)),
        ("initial_receive_window", raw.initial_receive_window),
        ("max_window", raw.max_window),
    ];
    for (key, window) in windows {
        if let Some(window) = window
            && bytes(window, mss) < mss
        {
            return refuse(key, window_text(window), format!("at least a segment (\"{:?}\")", raw.mss));
        }
    }
    if raw.rack && !raw.sack {
        let problem = "found true; allowed: true only where sack is".to_owned();
        return Err(cx.error(&step(&path, "rack"), problem));
    }
    if raw.eifel && !(raw.rack && raw.timestamps) {
        let problem = "found true; allowed: true only where rack and timestamps are".to_owned();
        return Err(cx.error(&step(&path, "eifel"), problem));
    }
    if let Some(shift) = raw.window_scale
        && bytes(raw.receive_window, mss) >> shift.0 == 0
    {
        let allowed = format!("at least 2^window_scale B ({} B)", 1u64 << shift.0);
        return refuse("receive_window", window_text(raw.receive_window), allowed);
    }
    for (key, rto) in [("min_rto", raw.min_rto), ("initial_rto", raw.initial_rto)] {
        if rto.0 > raw.max_rto.0 {
            return refuse(key, format!("{rto:?}"), format!("at most max_rto (\"{:?}\")", raw.max_rto));
        }
    }
    let algorithm = raw.algorithm;
    if raw.hystart && !matches!(algorithm, Congestion::Reno | Congestion::NewReno | Congestion::Cubic) {
        let allowed =
            format!("false where algorithm = \"{}\", which has no slow start of RFC 5681", algorithm.name());
        return Err(cx.error(&step(&path, "hystart"), format!("found true; allowed: {allowed}")));
    }
    if matches!(algorithm, Congestion::Dctcp | Congestion::Prague) && raw.ecn != Ecn::Accurate {
        let found = if raw.ecn == Ecn::Off { "false" } else { "\"classic\"" };
        let allowed = format!("\"accurate\" where algorithm = \"{}\"", algorithm.name());
        return Err(cx.error(&step(&path, "ecn"), format!("found {found}; allowed: {allowed}")));
    }
    let initial_window = raw.initial_window.map_or_else(|| initial_window(mss), |w| w.0);
    if raw.initial_window.is_none() {
        raw.initial_window = Some(crate::quantity::Whole(initial_window));
        cx.note(
            &step(&path, "initial_window"),
            None,
            "RFC 6928: min(10 mss, max(2 mss, 14600 B))".to_owned(),
        );
    }
    Ok(Tcp {
        name: name.to_owned(),
        algorithm: raw.algorithm,
        mss,
        header: raw.header.0,
        option_bytes: raw.option_bytes,
        initial_window,
        receive_window: bytes(raw.receive_window, mss),
        initial_receive_window: raw.initial_receive_window.map(|w| bytes(w, mss)),
        max_window: raw.max_window.map(|w| bytes(w, mss)),
        initial_ssthresh: raw.initial_ssthresh.map(|w| bytes(w, mss)),
        initial_rto: raw.initial_rto.time(),
        min_rto: raw.min_rto.time(),
        rto: match raw.rto {
            file::RtoName::Rfc6298 => Rto::Rfc6298,
            file::RtoName::Linux => Rto::Linux,
            file::RtoName::Bsd => Rto::Bsd,
        },
        max_rto: raw.max_rto.time(),
        clock_granularity: raw.clock_granularity.time(),
        limited_transmit: raw.limited_transmit,
        sack: raw.sack,
        prr: raw.prr,
        abc: raw.abc,
        delayed_ack: raw.delayed_ack.map(|t| t.time()),
        impatient: raw.impatient,
        half_of_cwnd: raw.half_of_cwnd,
        ns2_recovery: raw.ns2_recovery,
        go_back_n: raw.go_back_n,
        slow_start_restart: raw.slow_start_restart,
        hystart: raw.hystart,
        pacing: raw.pacing,
        ecn: raw.ecn,
        rack: raw.rack,
        eifel: raw.eifel,
        timestamps: raw.timestamps,
        window_scale: raw.window_scale.map(|shift| shift.0 as u8),
        overhead: raw.overhead.time(),
        syn_retries: raw.syn_retries.0,
        retries: raw.retries.0,
    })
}

/// Warns of sessions and transfers of a ramp that start only while it is measured.
pub fn late_sessions(cx: &mut Cx<'_>, traffic: &[Traffic], warmup: Duration) {
    for t in traffic {
        let (number, ramp, what) = match &t.kind {
            TrafficKind::Pages(Pages { sessions, ramp: Some(ramp), .. }) => (*sessions, ramp, "session"),
            TrafficKind::Bulk(Bulk { flows, ramp: Some(ramp), .. }) => (*flows, ramp, "transfer"),
            _ => continue,
        };
        let steps = u64::from(number.div_ceil(ramp.sessions));
        let last = (ramp.over + ramp.pause).times(steps.saturating_sub(1)) + ramp.over;
        if last > warmup {
            let text =
                format!("the last {what} starts after the warm-up (\"{warmup}\"), at up to \"{last}\"");
            cx.warn(&step(&named("traffic", &t.name), "ramp"), &text);
        }
    }
}

/// RFC 6928, section 2, in whole segments.
fn initial_window(mss: u64) -> u32 {
    let bytes = (10 * mss).min((2 * mss).max(14_600));
    u32::try_from(bytes / mss).unwrap_or(1).max(1)
}

fn bytes(window: Window, mss: u64) -> u64 {
    match window {
        OneOf::First(bytes) => bytes.0,
        OneOf::Second(segments) => segments.0 * mss,
    }
}

fn window_text(window: Window) -> String {
    match window {
        OneOf::First(bytes) => format!("{bytes:?}"),
        OneOf::Second(segments) => format!("{segments:?}"),
    }
}

/// The longest packet of the traffic: of its transport where there is any, else of its datagrams [bytes].
pub fn mean_packet(
    cx: &Cx<'_>,
    file: &File,
    transports: &[Transport],
    patterns: &[Option<Arc<Pattern>>],
) -> Result<f64, Error> {
    if file.traffic.0.is_empty() {
        let problem = "missing; at least one, such as [traffic.web]".to_owned();
        return Err(cx.error(&step(&[], "traffic"), problem));
    }
    let mut longest: Option<u64> = None;
    for (name, t) in file.traffic.iter() {
        if let Some(wanted) = t.transport() {
            let path = step(&named("traffic", name), "transport");
            let transport = transports.iter().find(|t| t.name() == wanted);
            let others = transports.iter().map(Transport::name).filter(|name| *name != DEFAULT);
            let unnamed = |name: &&str| !transports.iter().any(|t| t.name() == *name);
            let presets = presets::PRESETS.iter().map(|p| p.name).filter(unnamed);
            let known = others.chain([DEFAULT]).chain(presets);
            let transport = transport.ok_or_else(|| match t.packets() {
                Some(_) => {
                    let choices = choices(wanted, known);
                    cx.error(
                        &path,
                        format!("found \"{wanted}\"; {choices}; without the key: plain datagrams (UDP)"),
                    )
                }
                None => cx.unknown(&path, wanted, known),
            })?;
            let carried = match t {
                file::Traffic::Pages(_) => ["tcp"].as_slice(),
                file::Traffic::Files(_) | file::Traffic::Bulk(_) => &["tcp", "sctp"],
                _ => &["tcp", "sctp", "rtp"],
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
    gateways: &[Gateway],
    patterns: Vec<Option<Arc<Pattern>>>,
) -> Result<Vec<Traffic>, Error> {
    let mut all = Vec::new();
    for ((name, raw), pattern) in file.traffic.iter().zip(patterns) {
        let path = named("traffic", name);
        check_name(cx, &path, name)?;
        let (from_name, to_name) = raw.ends();
        let find = |key: &str, wanted: &str| {
            let known = hosts.iter().map(|h| h.name.as_str());
            let found = hosts.iter().position(|h| h.name == wanted);
            found.ok_or_else(|| cx.unknown(&step(&path, key), wanted, known))
        };
        let (from, to) = (find("from", from_name)?, find("to", to_name)?);
        if from == to {
            let problem = format!("found {}; allowed: another group of hosts than in from", quoted(to_name));
            return Err(cx.error(&step(&path, "to"), problem));
        }
        let Some(route) = nodes.route(from_name, to_name) else {
            let problem = format!(
                "found {}; allowed: hosts that links lead to from {}",
                quoted(to_name),
                quoted(from_name)
            );
            return Err(cx.error(&step(&path, "to"), problem));
        };
        if let Some(how) = nodes.wrong_side(from_name, &route, gateways) {
            let problem = format!(
                "found {}; allowed: hosts whose data enters each gateway from the internet's side and leaves it by \
                 its satellite, but {how}",
                quoted(from_name)
            );
            return Err(cx.error(&step(&path, "from"), problem));
        }
        let transport = raw.transport().and_then(|name| transports.iter().position(|t| t.name() == name));
        let cap = match raw {
            file::Traffic::Bulk(t) => t.rate_cap,
            file::Traffic::Files(t) => t.rate_cap,
            _ => None,
        };
        if let Some(cap) = cap
            && transport.is_some_and(|t| !matches!(transports[t], Transport::Tcp(_)))
        {
            let problem = format!("found \"{cap:?}\"; allowed: only with a transport whose protocol is tcp");
            return Err(cx.error(&step(&path, "rate_cap"), problem));
        }
        let kind = kind(cx, &path, raw, transport, pattern)?;
        all.push(Traffic { name: name.to_owned(), from, to, route, kind });
    }
    Ok(all)
}

fn kind(
    cx: &Cx<'_>,
    path: &Path,
    raw: &file::Traffic,
    carrier: Option<usize>,
    pattern: Option<Arc<Pattern>>,
) -> Result<TrafficKind, Error> {
    let transport = carrier.unwrap_or(0);
    let at = |key: &str| step(path, key);
    Ok(match raw {
        file::Traffic::Pages(t) => TrafficKind::Pages(Pages {
            transport,
            sessions: t.sessions.0,
            object_size: law(cx, &at("object_size"), &t.object_size, |q| q.0)?,
            objects_per_page: t.objects_per_page.0,
            connection_per: match t.connection_per {
                file::ConnectionPer::Page => ConnectionPer::Page,
                file::ConnectionPer::Object => ConnectionPer::Object,
            },
            think_time: law(cx, &at("think_time"), &t.think_time, Quantity::time)?,
            request_size: t.request_size.0,
            rate_cap: t.rate_cap.map(|r| r.rate()),
            ramp: t.ramp.as_ref().map(ramp),
            away: absences(cx, path, &t.away)?,
        }),
        file::Traffic::Files(t) => TrafficKind::Files(Files {
            transport,
            sources: t.sources.0,
            interval: law(cx, &at("interval"), &t.interval, Quantity::time)?,
            size: law(cx, &at("size"), &t.size, |q| q.0)?,
            rate_cap: t.rate_cap.map(|r| r.rate()),
            start: law(cx, &at("start"), &t.start, Quantity::time)?,
            away: absences(cx, path, &t.away)?,
        }),
        file::Traffic::Bulk(t) => TrafficKind::Bulk(Bulk {
            transport,
            flows: t.flows.0,
            start: law(cx, &at("start"), &t.start, Quantity::time)?,
            ramp: t.ramp.as_ref().map(ramp),
            lifetime: match &t.lifetime {
                Some(lifetime) => Some(law(cx, &at("lifetime"), lifetime, Quantity::time)?),
                None => None,
            },
            bytes: t.bytes.map(|b| b.0),
            rate_cap: t.rate_cap.map(|r| r.rate()),
            away: absences(cx, path, &t.away)?,
        }),
        _ => {
            // Every other kind is a source of packets, whose pattern has been made out.
            let (Some(t), Some(pattern)) = (raw.packets(), pattern) else {
                return Err(cx.error(path, "no source of packets".to_owned()));
            };
            let start = law(cx, &at("start"), t.start, Quantity::time)?;
            let away = absences(cx, path, t.away)?;
            TrafficKind::Packets(Packets { transport: carrier, flows: t.flows, pattern, start, away })
        }
    })
}

fn ramp(raw: &file::Ramp) -> Ramp {
    Ramp { sessions: raw.sessions.0, over: raw.over.time(), pause: raw.pause.time() }
}

/// A distribution as it was read, with its numbers looked up. `number` makes of a file's quantity what the law is of.
pub fn law<K: Kind, T>(
    cx: &Cx<'_>,
    path: &Path,
    raw: &file::Distribution<K>,
    number: fn(Quantity<K>) -> T,
) -> Result<Distribution<T>, Error> {
    let table = match raw {
        Either::Plain(x) => return Ok(Distribution::Fixed(number(*x))),
        Either::Table(table) => table,
    };
    let at = |key: &str| step(path, key);
    let given = [
        table.uniform.is_some(),
        table.exponential.is_some(),
        table.normal.is_some(),
        table.erlang.is_some(),
        table.pareto.is_some(),
        table.choice.is_some(),
        table.trace.is_some(),
    ];
    let found: Vec<_> = LAWS.iter().zip(given).filter(|(_, given)| *given).map(|(key, _)| *key).collect();
    if found.len() != 1 {
        let found = if found.is_empty() { "none".to_owned() } else { found.join(" and ") };
        return Err(cx.error(path, format!("found {found}; allowed: one of {}", LAWS.join(", "))));
    }
    if table.weights.is_some() && table.choice.is_none() {
        let problem = "allowed: only beside choice, whose weights they are".to_owned();
        return Err(cx.key_error(&at("weights"), problem));
    }
    if let Some([low, high]) = table.uniform {
        if low.0 > high.0 {
            return Err(falling(cx, &at("uniform"), &format!("{low:?}"), &format!("{high:?}")));
        }
        return Ok(Distribution::Uniform(number(low), number(high)));
    }
    if let Some(mean) = table.exponential {
        return Ok(Distribution::Exponential(number(mean)));
    }
    if let Some(normal) = &table.normal {
        return Ok(Distribution::Normal { mean: number(normal.mean), std: number(normal.std) });
    }
    if let Some(erlang) = &table.erlang {
        return Ok(Distribution::Erlang { shape: erlang.shape.0, mean: number(erlang.mean) });
    }
    if let Some(pareto) = &table.pareto {
        if pareto.shape <= 1.0 {
            let problem = format!("found {}; allowed: a number above 1, or there is no mean", pareto.shape);
            return Err(cx.error(&step(&at("pareto"), "shape"), problem));
        }
        return Ok(Distribution::Pareto { shape: pareto.shape, mean: number(pareto.mean) });
    }
    if let Some(laws) = &table.choice {
        return choice(cx, path, laws, table.weights.as_deref(), number);
    }
    let name = table.trace.as_deref().unwrap_or_default();
    cx.read(&at("trace"), name, "a text with one number in each line", |data| {
        let values = data.numbers(K::number, &K::number_allowed())?;
        let values = values.into_iter().map(|x| number(Quantity::of(x))).collect();
        Ok(Distribution::Trace(Samples { values, digest: data.digest }))
    })
}

fn choice<K: Kind, T>(
    cx: &Cx<'_>,
    path: &Path,
    laws: &[file::Distribution<K>],
    weights: Option<&[f64]>,
    number: fn(Quantity<K>) -> T,
) -> Result<Distribution<T>, Error> {
    let at = |key: &str| step(path, key);
    if laws.is_empty() {
        return Err(cx.error(&at("choice"), "found an empty array; allowed: one value at least".to_owned()));
    }
    if let Some(weights) = weights {
        if weights.len() != laws.len() {
            let problem = format!(
                "found an array of {}; allowed: an array of {}, one for each choice",
                weights.len(),
                laws.len()
            );
            return Err(cx.error(&at("weights"), problem));
        }
        if let Some(i) = weights.iter().position(|w| *w < 0.0) {
            let path = [at("weights"), vec![Step::Index(i)]].concat();
            return Err(cx.error(&path, format!("found {}; allowed: a number, not negative", weights[i])));
        }
    }
    let sum = weights.map_or(laws.len() as f64, |weights| weights.iter().sum());
    if !(sum > 0.0 && sum.is_finite()) {
        return Err(cx.error(&at("weights"), format!("found a sum of {sum}; allowed: a sum above 0")));
    }
    let mut all = Vec::new();
    for (i, raw) in laws.iter().enumerate() {
        let path = [at("choice"), vec![Step::Index(i)]].concat();
        if matches!(raw, Either::Table(table) if table.choice.is_some()) {
            let problem = "found a choice in a choice; allowed: one choice with all of it".to_owned();
            return Err(cx.error(&path, problem));
        }
        let weight = weights.map_or(1.0, |weights| weights[i]);
        all.push((weight / sum, law(cx, &path, raw, number)?));
    }
    Ok(Distribution::Choice(all.into()))
}
