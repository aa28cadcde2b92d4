//! Variable capacities.

use bentpipe_units::{Duration, Rate};

use super::cx::{Cx, descending, one_of};
use super::nodes::named;
use crate::error::{Error, quoted};
use crate::model::{
    Capacity, Carrier, Direction, Drawn, Fade, Host, HostIndex, Link, LinkIndex, ModcodTable, Modulation,
    Region, Steps, Trace, Traffic,
};
use crate::reader::files::Data;
use crate::reader::tree::{Path, Step, step};
use crate::schema::channel as file;
use crate::schema::file::File;
use crate::schema::forms::Named;
use crate::schema::quantity::{Kind as _, Period, PeriodKind, Rate as RawRate};

pub fn capacity(
    cx: &Cx<'_>,
    path: &Path,
    raw: Option<&file::Capacity>,
    (hosts, carriers): (&[Host], &Named<file::Carrier>),
) -> Result<Option<Capacity>, Error> {
    let Some(raw) = raw else { return Ok(None) };
    let carrier = carrier(cx, path, raw, carriers)?;
    let modcods = carrier.map(|carrier| carrier.modcods).unwrap_or_default();
    let symbol_rate = carrier.map(|carrier| carrier.symbol_rate).or(raw.symbol_rate);
    let only = |key: &str, with: &str| {
        Err(cx.key_error(&step(path, key), format!("allowed: only together with {with}")))
    };
    if raw.repeat.is_some() && raw.steps.is_none() {
        return only("repeat", "steps");
    }
    if raw.every.is_some() && raw.uniform.is_none() {
        return only("every", "uniform");
    }
    if symbol_rate.is_none() {
        for (key, given) in [("modcod", raw.modcod.is_some()), ("fade", raw.fade.is_some())] {
            if given {
                return only(key, "symbol_rate or carrier");
            }
        }
    }
    if raw.of.is_some() && raw.modcod.is_none() {
        return only("of", "modcod");
    }
    Ok(Some(match (&raw.trace, &raw.steps, raw.uniform, symbol_rate) {
        (Some(name), None, None, None) => {
            Capacity::Trace(cx.read(&step(path, "trace"), name, TRACE, trace)?)
        }
        (None, Some(_), None, None) => Capacity::Steps(steps(cx, path, raw)?),
        (None, None, Some(rates), None) => Capacity::Drawn(drawn(cx, path, rates, raw.every)?),
        (None, None, None, Some(symbol_rate)) => Capacity::Carrier(Carrier {
            symbol_rate: symbol_rate.0,
            modcods,
            modulation: modulation(cx, path, raw, (hosts, modcods))?,
        }),
        (trace, steps, uniform, symbol_rate) => {
            let keys = [
                ("trace", trace.is_some()),
                ("steps", steps.is_some()),
                ("uniform", uniform.is_some()),
                ("symbol_rate", symbol_rate.is_some()),
            ];
            return Err(one_of(cx, path, &keys, "trace, steps, uniform, symbol_rate, carrier"));
        }
    }))
}

/// Finds the carrier that a capacity names.
fn carrier<'a>(
    cx: &Cx<'_>,
    path: &Path,
    raw: &file::Capacity,
    carriers: &'a Named<file::Carrier>,
) -> Result<Option<&'a file::Carrier>, Error> {
    let Some(name) = &raw.carrier else { return Ok(None) };
    let keys = [
        ("trace", raw.trace.is_some()),
        ("steps", raw.steps.is_some()),
        ("uniform", raw.uniform.is_some()),
        ("symbol_rate", raw.symbol_rate.is_some()),
        ("carrier", true),
    ];
    if keys.iter().filter(|(_, is_given)| *is_given).count() > 1 {
        return Err(one_of(cx, path, &keys, "trace, steps, uniform, symbol_rate, carrier"));
    }
    match carriers.iter().find(|(known, _)| known == name) {
        Some((_, carrier)) => Ok(Some(carrier)),
        None => Err(cx.unknown(&step(path, "carrier"), name, carriers.names())),
    }
}

/// Rejects carriers that no link uses.
pub fn check_carriers(cx: &Cx<'_>, file: &File) -> Result<(), Error> {
    let capacities = file.link.iter().flat_map(|(_, link)| [&link.capacity, &link.reverse.capacity]);
    let used: Vec<_> = capacities.flatten().filter_map(|capacity| capacity.carrier.as_deref()).collect();
    for name in file.carrier.names() {
        if !used.contains(&name) {
            let problem = "no link uses it; allowed: carriers that a link names in capacity, such as capacity = { carrier = \
                           \"NAME\", modcod = [\"8PSK 3/4\"] }";
            return Err(cx.key_error(&named("carrier", name), problem.to_owned()));
        }
    }
    Ok(())
}

/// Name of such a file in messages.
const TRACE: &str =
    "a trace in mahimahi's format, with the time of an opportunity to send 1500 bytes in each line";

fn trace(data: &Data) -> Result<Trace, String> {
    const ALLOWED: &str = "a time in whole milliseconds";
    let mut times: Vec<u32> = Vec::new();
    for line in data.lines() {
        let (line, text) = line?;
        let Ok(time) = text.parse() else { return Err(data.at_line(line, &quoted(text), ALLOWED)) };
        if let Some(last) = times.last().filter(|last| **last > time) {
            let found = format!("{time} after {last}");
            return Err(data.at_line(line, &found, "times that never fall"));
        }
        times.push(time);
    }
    match times.last() {
        None => Err(data.whole("no time", TRACE)),
        Some(0) => {
            Err(data.whole("no time above 0", "a last time above 0, which is the period of the trace"))
        }
        Some(_) => Ok(Trace { times: times.into(), digest: data.digest }),
    }
}

/// Shortest time from a step to the next, to bound the work of a run.
const SHORTEST_STEP: Duration = Duration::from_nanos(PeriodKind::MIN);

fn steps(cx: &Cx<'_>, path: &Path, raw: &file::Capacity) -> Result<Steps, Error> {
    let list = step(path, "steps");
    let at = |i: usize| [&list[..], &[Step::Index(i), Step::Index(0)]].concat();
    let steps: Vec<(Duration, Rate)> =
        raw.steps.iter().flatten().map(|(from, rate)| (from.time(), rate.rate())).collect();
    match steps.first() {
        None => {
            let problem = "found an empty array; allowed: times and rates, such as [[\"0 s\", \"20 Mbps\"]]";
            return Err(cx.error(&list, problem.to_owned()));
        }
        Some((from, _)) if !from.is_zero() => {
            return Err(cx.error(&at(0), format!("found \"{from}\"; allowed: \"0 s\" for the first")));
        }
        Some(_) => {}
    }
    for (i, pair) in steps.windows(2).enumerate() {
        let (before, after) = (pair[0].0, pair[1].0);
        if after < before + SHORTEST_STEP {
            let problem = format!(
                "found \"{after}\" after \"{before}\"; allowed: rising times, at least {SHORTEST_STEP} apart"
            );
            return Err(cx.error(&at(i + 1), problem));
        }
    }
    let last = steps.last().map(|step| step.0).unwrap_or_default();
    let repeat = raw.repeat.map(|t| t.time());
    if let Some(repeat) = repeat.filter(|repeat| *repeat < last + SHORTEST_STEP) {
        let problem = format!(
            "found \"{repeat}\"; allowed: at least {SHORTEST_STEP} later than the last step (\"{last}\")"
        );
        return Err(cx.error(&step(path, "repeat"), problem));
    }
    let goes_on = |steps: &[(Duration, Rate)]| steps.iter().any(|step| step.1.as_bps() > 0);
    if !goes_on(if repeat.is_some() { &steps } else { &steps[steps.len() - 1..] }) {
        let problem = "found \"0 bps\" for ever; allowed: a last rate above 0".to_owned();
        return Err(cx.error(&list, problem));
    }
    Ok(Steps { steps, repeat })
}

fn drawn(cx: &Cx<'_>, path: &Path, [low, high]: [RawRate; 2], every: Option<Period>) -> Result<Drawn, Error> {
    if low.0 > high.0 {
        return Err(descending(cx, &step(path, "uniform"), &format!("{low:?}"), &format!("{high:?}")));
    }
    let Some(every) = every else {
        let problem = "missing; uniform needs the time between two draws, such as \"1 s\"";
        return Err(cx.error(&step(path, "every"), problem.to_owned()));
    };
    Ok(Drawn { uniform: (low.rate(), high.rate()), every: every.time() })
}

fn modulation(
    cx: &Cx<'_>,
    path: &Path,
    raw: &file::Capacity,
    (hosts, table): (&[Host], ModcodTable),
) -> Result<Modulation, Error> {
    let names = match (&raw.modcod, &raw.fade) {
        (Some(names), None) => names,
        (None, Some(fade)) => return fade_of(cx, &step(path, "fade"), fade, table).map(Modulation::Fade),
        (names, fade) => {
            let keys = [("modcod", names.is_some()), ("fade", fade.is_some())];
            return Err(one_of(cx, path, &keys, "modcod, fade"));
        }
    };
    let list = step(path, "modcod");
    let mut modcods = Vec::new();
    for (i, name) in names.iter().enumerate() {
        let path = [&list[..], &[Step::Index(i)]].concat();
        let known = table.modcods().iter().map(|m| m.name);
        modcods.push(table.find(name).ok_or_else(|| cx.unknown(&path, name, known))?);
    }
    let Some(name) = &raw.of else {
        return match modcods.as_slice() {
            [modcod] => Ok(Modulation::Fixed(modcod)),
            _ => {
                let found = modcods.len();
                let problem = format!("found an array of {found}; allowed: one, or of = the group it is for");
                Err(cx.error(&list, problem))
            }
        };
    };
    if modcods.is_empty() {
        return Err(cx.error(&list, "found an empty array; allowed: one at least".to_owned()));
    }
    let known = hosts.iter().map(|h| h.name.as_str());
    let group = hosts.iter().position(|h| h.name == *name).map(HostIndex);
    let group = group.ok_or_else(|| cx.unknown(&step(path, "of"), name, known))?;
    Ok(Modulation::Hosts { group, modcods })
}

fn fade_of(cx: &Cx<'_>, path: &Path, raw: &file::Fade, table: ModcodTable) -> Result<Fade, Error> {
    let within = |key: &str, value: f64, above: Option<f64>, least: f64, most: f64| {
        let is_low = above.is_some_and(|above| value <= above) || value < least;
        if !is_low && value <= most {
            return Ok(value);
        }
        let least = above.map_or_else(|| format!("at least {least}"), |above| format!("above {above}"));
        let problem = format!("found {value}; allowed: a number, {least} and at most {most}");
        Err(cx.error(&step(path, key), problem))
    };
    let region = match (&raw.region, raw.correlation) {
        (None, None) => None,
        (Some(name), Some(correlation)) => Some(Region { name: name.clone(), correlation: correlation.0 }),
        (Some(_), None) => {
            let problem = "missing; region needs the correlation between its links, such as 0.5";
            return Err(cx.key_error(&step(path, "correlation"), problem.to_owned()));
        }
        (None, Some(_)) => {
            let problem = "allowed: only with region, which names the links that share the weather";
            return Err(cx.key_error(&step(path, "correlation"), problem.to_owned()));
        }
    };
    let fade = Fade {
        region,
        clear_sky: within("clear_sky", raw.clear_sky, None, -10.0, 40.0)?,
        median: within("median", raw.median, Some(0.0), 0.0, 100.0)?,
        sigma: within("sigma", raw.sigma, Some(0.0), 0.0, 5.0)?,
        correlation_time: raw.correlation_time.time(),
        rain: raw.rain.0,
        margin: within("margin", raw.margin, None, 0.0, 20.0)?,
        step: raw.step.time(),
    };
    if table.best(fade.clear_sky - fade.margin).is_none() {
        let least = table.least();
        let problem = format!(
            "found {}, with a margin of {}; allowed: a value at which the most robust modulation works without rain (at least {least} plus the margin)",
            fade.clear_sky, fade.margin
        );
        return Err(cx.error(&step(path, "clear_sky"), problem));
    }
    Ok(fade)
}

/// Rejects ModCods of the hosts of a group whose packets never take the link.
pub fn check_groups(cx: &Cx<'_>, links: &[Link], traffic: &[Traffic], hosts: &[Host]) -> Result<(), Error> {
    for (i, link) in links.iter().enumerate() {
        let forward = named("link", &link.name);
        let reverse = step(&forward, "reverse");
        for (path, direction) in [(forward, &link.forward), (reverse, &link.reverse)] {
            let Some(Capacity::Carrier(Carrier { modulation: Modulation::Hosts { group, .. }, .. })) =
                &direction.capacity
            else {
                continue;
            };
            let is_used = traffic.iter().filter(|t| t.from == *group || t.to == *group).any(|t| {
                let mut routes = std::iter::once(&t.route).chain(&t.routes_after);
                routes.any(|route| route.iter().any(|hop| hop.link == LinkIndex(i)))
            });
            if !is_used {
                let path = step(&step(&path, "capacity"), "of");
                let problem = format!(
                    "found {}; allowed: a group of hosts that traffic over link {} goes to or comes from",
                    quoted(&hosts[*group].name),
                    quoted(&link.name)
                );
                return Err(cx.error(&path, problem));
            }
        }
    }
    Ok(())
}

/// Rejects links of a region whose weather changes at different speeds.
pub fn check_regions(cx: &Cx<'_>, links: &[Link]) -> Result<(), Error> {
    let mut first: Vec<(&Region, String, [Duration; 2])> = Vec::new();
    for link in links {
        let forward = named("link", &link.name);
        let reverse = step(&forward, "reverse");
        for (path, direction) in [(forward, &link.forward), (reverse, &link.reverse)] {
            let Some(Capacity::Carrier(Carrier { modulation: Modulation::Fade(fade), .. })) =
                &direction.capacity
            else {
                continue;
            };
            let Some(region) = &fade.region else { continue };
            let path = step(&step(&path, "capacity"), "fade");
            let own = [fade.correlation_time, fade.step];
            let Some((_, there, times)) = first.iter().find(|(known, ..)| known.name == region.name) else {
                first.push((region, cx.dotted(&path), own));
                continue;
            };
            for (i, key) in ["correlation_time", "step"].into_iter().enumerate() {
                if own[i] != times[i] {
                    let problem = format!(
                        "found \"{}\", and \"{}\" in {there}; allowed: one value for all links of the region {}, which share \
                         its weather",
                        own[i],
                        times[i],
                        quoted(&region.name)
                    );
                    return Err(cx.error(&step(&path, key), problem));
                }
            }
        }
    }
    Ok(())
}

/// Rejects two specifications of a direction's rate.
pub fn check_capacity(cx: &Cx<'_>, path: &Path, direction: &Direction) -> Result<(), Error> {
    let refuse = |key: &str, problem: &str| Err(cx.key_error(&step(path, key), problem.to_owned()));
    if direction.capacity.is_some() {
        let given = |key: &str| cx.root.find(&step(path, key)).is_some();
        for key in ["rate", "access", "demand"] {
            if given(key) {
                return refuse(key, "allowed: only without capacity, which determines the transmission rate");
            }
        }
    }
    if direction.demand.is_some() && direction.access.is_some() {
        return refuse("demand", "allowed: only without access, which models its own medium access");
    }
    let Some(demand) = &direction.demand else { return Ok(()) };
    let Some(rate) = direction.rate else {
        return refuse("rate", "missing; demand needs a transmission rate, such as \"20 Mbps\"");
    };
    let shortest = rate.time_to_send(1);
    if demand.frame < shortest {
        let problem = format!(
            "found \"{}\"; allowed: at least \"{shortest}\", the time to send a byte at \"{rate}\"",
            demand.frame
        );
        return Err(cx.error(&step(&step(path, "demand"), "frame"), problem));
    }
    Ok(())
}
