//! What a link does to packets.

use bentpipe_units::{Duration, Rate};

use super::{Cx, falling, step};
use crate::channel::{
    Access, Capacity, Carrier, Clock, Demand, Drawn, Fade, GilbertElliott, Handover, Loss, LossAt, LossModel,
    LossOf, Modulation, Steps, Trace,
};
use crate::error::{Error, quoted};
use crate::file::{self, AccessName, DuringName, Either, LossAtName, LossOfName};
use crate::files::Data;
use crate::modcod::{MODCODS, Modcod};
use crate::model::{Direction, Host};
use crate::quantity::{HeaderSize, Rate as RawRate, Span, Time, Whole};
use crate::tree::{Path, Step};

pub fn loss(cx: &Cx<'_>, path: &Path, raw: &mut file::Loss) -> Result<Loss, Error> {
    let table = match raw {
        Either::Plain(share) => return Ok(Loss::independent(share.0)),
        Either::Table(table) => table,
    };
    let law = match (table.probability, &table.nth, &table.gilbert_elliott, table.bit_error_rate) {
        (Some(share), None, None, None) => LossModel::Probability(share.0),
        (None, Some(numbers), None, None) => {
            let path = step(path, "nth");
            for (i, pair) in numbers.windows(2).enumerate() {
                let [before, after] = [pair[0].0, pair[1].0];
                if before >= after {
                    let problem = format!("found {after} after {before}; allowed: rising numbers");
                    return Err(cx.error(&[&path[..], &[Step::Index(i + 1)]].concat(), problem));
                }
            }
            LossModel::Nth(numbers.iter().map(|n| n.0).collect())
        }
        (None, None, Some(raw), None) => {
            LossModel::GilbertElliott(gilbert_elliott(cx, &step(path, "gilbert_elliott"), raw)?)
        }
        (None, None, None, Some(rate)) => LossModel::BitErrorRate(rate.0),
        (probability, nth, gilbert_elliott, bits) => {
            let keys = [
                ("probability", probability.is_some()),
                ("nth", nth.is_some()),
                ("gilbert_elliott", gilbert_elliott.is_some()),
                ("bit_error_rate", bits.is_some()),
            ];
            return Err(one_of(cx, path, &keys, "probability, nth, gilbert_elliott, bit_error_rate"));
        }
    };
    let of = match table.of.get_or_insert(LossOfName::All) {
        LossOfName::All => LossOf::All,
        LossOfName::Data => LossOf::Data,
    };
    let at = match table.at.get_or_insert(LossAtName::AfterQueue) {
        LossAtName::BeforeQueue => LossAt::BeforeQueue,
        LossAtName::AfterQueue => LossAt::AfterQueue,
    };
    Ok(Loss { model: law, of, at })
}

fn gilbert_elliott(cx: &Cx<'_>, path: &Path, raw: &file::GilbertElliott) -> Result<GilbertElliott, Error> {
    let clock = match (raw.p, raw.r, raw.good, raw.bad) {
        (Some(p), Some(r), None, None) => {
            if p.0 + r.0 == 0.0 {
                let problem = "found 0, and so is p; allowed: one of them above 0".to_owned();
                return Err(cx.error(&step(path, "r"), problem));
            }
            Clock::Packet { p: p.0, r: r.0 }
        }
        (None, None, Some(good), Some(bad)) => Clock::Time { good: good.time(), bad: bad.time() },
        (p, r, good, bad) => {
            let keys =
                [("p", p.is_some()), ("r", r.is_some()), ("good", good.is_some()), ("bad", bad.is_some())];
            return Err(one_of(cx, path, &keys, "p and r, good and bad"));
        }
    };
    Ok(GilbertElliott { clock, loss_good: raw.loss_good.0, loss_bad: raw.loss_bad.0 })
}

/// The wrong ones of the keys are there.
pub fn one_of(cx: &Cx<'_>, path: &Path, keys: &[(&str, bool)], allowed: &str) -> Error {
    let found: Vec<_> = keys.iter().filter(|(_, is_there)| *is_there).map(|(key, _)| *key).collect();
    let found = if found.is_empty() { "none".to_owned() } else { found.join(", ") };
    cx.error(path, format!("found {found}; allowed: one of {allowed}"))
}

pub fn capacity(
    cx: &Cx<'_>,
    path: &Path,
    raw: Option<&file::Capacity>,
    hosts: &[Host],
) -> Result<Option<Capacity>, Error> {
    let Some(raw) = raw else { return Ok(None) };
    let only = |key: &str, with: &str| {
        Err(cx.key_error(&step(path, key), format!("allowed: only beside {with}, which it is for")))
    };
    if raw.repeat.is_some() && raw.steps.is_none() {
        return only("repeat", "steps");
    }
    if raw.every.is_some() && raw.uniform.is_none() {
        return only("every", "uniform");
    }
    if raw.symbol_rate.is_none() {
        for (key, given) in [("modcod", raw.modcod.is_some()), ("fade", raw.fade.is_some())] {
            if given {
                return only(key, "symbol_rate");
            }
        }
    }
    if raw.of.is_some() && raw.modcod.is_none() {
        return only("of", "modcod");
    }
    Ok(Some(match (&raw.trace, &raw.steps, raw.uniform, raw.symbol_rate) {
        (Some(name), None, None, None) => {
            Capacity::Trace(cx.read(&step(path, "trace"), name, TRACE, trace)?)
        }
        (None, Some(_), None, None) => Capacity::Steps(steps(cx, path, raw)?),
        (None, None, Some(rates), None) => Capacity::Drawn(drawn(cx, path, rates, raw.every)?),
        (None, None, None, Some(symbol_rate)) => Capacity::Carrier(Carrier {
            symbol_rate: symbol_rate.0,
            modulation: modulation(cx, path, raw, hosts)?,
        }),
        (trace, steps, uniform, symbol_rate) => {
            let keys = [
                ("trace", trace.is_some()),
                ("steps", steps.is_some()),
                ("uniform", uniform.is_some()),
                ("symbol_rate", symbol_rate.is_some()),
            ];
            return Err(one_of(cx, path, &keys, "trace, steps, uniform, symbol_rate"));
        }
    }))
}

/// What a trace of capacity is.
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
            Err(data.whole("no time above 0", "a last time above 0, which is when the trace begins again"))
        }
        Some(_) => Ok(Trace { times: times.into(), digest: data.digest }),
    }
}

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
        if after <= before {
            let problem = format!("found \"{after}\" after \"{before}\"; allowed: rising times");
            return Err(cx.error(&at(i + 1), problem));
        }
    }
    let last = steps.last().map(|step| step.0).unwrap_or_default();
    let repeat = raw.repeat.map(|t| t.time());
    if let Some(repeat) = repeat.filter(|repeat| *repeat <= last) {
        let problem = format!("found \"{repeat}\"; allowed: later than the last step (\"{last}\")");
        return Err(cx.error(&step(path, "repeat"), problem));
    }
    let goes_on = |steps: &[(Duration, Rate)]| steps.iter().any(|step| step.1.as_bps() > 0);
    if !goes_on(if repeat.is_some() { &steps } else { &steps[steps.len() - 1..] }) {
        let problem = "found \"0 bps\" for ever; allowed: a rate above 0 in the end".to_owned();
        return Err(cx.error(&list, problem));
    }
    Ok(Steps { steps, repeat })
}

fn drawn(cx: &Cx<'_>, path: &Path, [low, high]: [RawRate; 2], every: Option<Span>) -> Result<Drawn, Error> {
    if low.0 > high.0 {
        return Err(falling(cx, &step(path, "uniform"), &format!("{low:?}"), &format!("{high:?}")));
    }
    let Some(every) = every else {
        let problem = "missing; uniform needs how long each rate holds, such as \"1 s\"";
        return Err(cx.error(&step(path, "every"), problem.to_owned()));
    };
    Ok(Drawn { uniform: (low.rate(), high.rate()), every: every.time() })
}

fn modulation(cx: &Cx<'_>, path: &Path, raw: &file::Capacity, hosts: &[Host]) -> Result<Modulation, Error> {
    let names = match (&raw.modcod, &raw.fade) {
        (Some(names), None) => names,
        (None, Some(fade)) => return fade_of(cx, &step(path, "fade"), fade).map(Modulation::Fade),
        (names, fade) => {
            let keys = [("modcod", names.is_some()), ("fade", fade.is_some())];
            return Err(one_of(cx, path, &keys, "modcod, fade"));
        }
    };
    let list = step(path, "modcod");
    let mut modcods = Vec::new();
    for (i, name) in names.iter().enumerate() {
        let path = [&list[..], &[Step::Index(i)]].concat();
        let known = MODCODS.iter().map(|m| m.name);
        modcods.push(Modcod::find(name).ok_or_else(|| cx.unknown(&path, name, known))?);
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
    let group = hosts.iter().position(|h| h.name == *name);
    let group = group.ok_or_else(|| cx.unknown(&step(path, "of"), name, known))?;
    Ok(Modulation::Hosts { group, modcods })
}

fn fade_of(cx: &Cx<'_>, path: &Path, raw: &file::Fade) -> Result<Fade, Error> {
    let within = |key: &str, value: f64, above: Option<f64>, least: f64, most: f64| {
        let is_low = above.is_some_and(|above| value <= above) || value < least;
        if !is_low && value <= most {
            return Ok(value);
        }
        let least = above.map_or_else(|| format!("at least {least}"), |above| format!("above {above}"));
        let problem = format!("found {value}; allowed: a number, {least} and at most {most}");
        Err(cx.error(&step(path, key), problem))
    };
    let fade = Fade {
        clear_sky: within("clear_sky", raw.clear_sky, None, -10.0, 40.0)?,
        median: within("median", raw.median, Some(0.0), 0.0, 100.0)?,
        sigma: within("sigma", raw.sigma, Some(0.0), 0.0, 5.0)?,
        correlation_time: raw.correlation_time.time(),
        rain: raw.rain.0,
        margin: within("margin", raw.margin, None, 0.0, 20.0)?,
        step: raw.step.time(),
    };
    if Modcod::best(fade.clear_sky - fade.margin).is_none() {
        let least = MODCODS.first().map_or(0.0, |m| m.threshold);
        let problem = format!(
            "found {}, of which margin takes {}; allowed: so much that the most robust modulation works without \
             rain, which needs {least}",
            fade.clear_sky, fade.margin
        );
        return Err(cx.error(&step(path, "clear_sky"), problem));
    }
    Ok(fade)
}

pub fn demand(
    cx: &mut Cx<'_>,
    path: &Path,
    raw: Option<&mut file::Demand>,
    round_trip: Duration,
) -> Option<Demand> {
    let raw = raw?;
    if raw.round_trip.is_none() {
        raw.round_trip = Some(Time::of(round_trip.as_nanos()));
        cx.note(&step(path, "round_trip"), None, "the link's delays, there and back".to_owned());
    }
    let round_trip = raw.round_trip.map_or(round_trip, |t| t.time());
    Some(Demand { frame: raw.frame.time(), round_trip, free: raw.free.rate() })
}

/// What is known of a kind of access link; docs/links.md has the sources.
struct Kind {
    rate: u64,
    /// [µs]
    overhead: [u64; 2],
    header: u64,
    frame_loss: f64,
    tries: u32,
    /// [µs]
    try_delay: u64,
    /// [µs]
    frame: u64,
}

const fn kind(name: AccessName) -> Kind {
    match name {
        AccessName::Wifi => Kind {
            rate: 54_000_000,
            overhead: [98, 233],
            header: 36,
            frame_loss: 0.1,
            tries: 7,
            try_delay: 0,
            frame: 0,
        },
        AccessName::Wimax => Kind {
            rate: 12_670_000,
            overhead: [0, 0],
            header: 10,
            frame_loss: 0.1,
            tries: 4,
            try_delay: 15_000,
            frame: 5_000,
        },
        AccessName::Umts => Kind {
            rate: 384_000,
            overhead: [0, 0],
            header: 0,
            frame_loss: 0.1,
            tries: 6,
            try_delay: 100_000,
            frame: 10_000,
        },
    }
}

pub fn access(
    cx: &Cx<'_>,
    path: &Path,
    raw: &mut Option<file::Access>,
    rate: &mut Option<RawRate>,
) -> Result<Option<Access>, Error> {
    let Some(raw) = raw else { return Ok(None) };
    if let Either::Plain(name) = raw {
        *raw = Either::Table(file::AccessTable::of(*name));
    }
    let Either::Table(table) = raw else { return Ok(None) };
    let known = kind(table.kind);
    rate.get_or_insert(RawRate::of(known.rate));
    let time = |us: u64| Time::of(us * 1000);
    let [low, high] = *table.overhead.get_or_insert(known.overhead.map(time));
    if low.0 > high.0 {
        let (low, high) = (low.time().to_string(), high.time().to_string());
        return Err(falling(cx, &step(path, "overhead"), &low, &high));
    }
    Ok(Some(Access {
        overhead: (low.time(), high.time()),
        header: table.header.get_or_insert(HeaderSize::of(known.header)).0,
        frame_loss: table.frame_loss.get_or_insert(file::Share(known.frame_loss)).0,
        tries: table.tries.get_or_insert(Whole(known.tries)).0,
        try_delay: table.try_delay.get_or_insert(time(known.try_delay)).time(),
        frame: table.frame.get_or_insert(time(known.frame)).time(),
    }))
}

/// Refuses two answers to how fast a direction is.
pub fn one_capacity(cx: &Cx<'_>, path: &Path, direction: &Direction) -> Result<(), Error> {
    let refuse = |key: &str, problem: &str| Err(cx.key_error(&step(path, key), problem.to_owned()));
    if direction.capacity.is_some() {
        let given = |key: &str| cx.root.find(&step(path, key)).is_some();
        for key in ["rate", "access", "demand"] {
            if given(key) {
                return refuse(key, "allowed: only without capacity, which says how fast packets are sent");
            }
        }
    }
    if direction.demand.is_some() && direction.access.is_some() {
        return refuse("demand", "allowed: only without access, which has its own way to share the link");
    }
    if direction.demand.is_some() && direction.rate.is_none() {
        return refuse(
            "rate",
            "missing; demand needs the rate at which packets are sent, such as \"20 Mbps\"",
        );
    }
    Ok(())
}

pub fn handover(
    cx: &Cx<'_>,
    path: &Path,
    raw: Option<&mut file::Handover>,
) -> Result<Option<Handover>, Error> {
    let Some(raw) = raw else { return Ok(None) };
    let [low, high] = raw.delay.map(|t| t.time());
    if low > high {
        return Err(falling(cx, &step(path, "delay"), &low.to_string(), &high.to_string()));
    }
    let (interval, outage) = (raw.interval.time(), raw.outage.time());
    if outage >= interval {
        let problem = format!("found \"{outage}\"; allowed: shorter than the interval (\"{interval}\")");
        return Err(cx.error(&step(path, "outage"), problem));
    }
    let offset = raw.offset.get_or_insert(Time::of(interval.as_nanos())).time();
    if offset > interval {
        let problem = format!("found \"{offset}\"; allowed: at most the interval (\"{interval}\")");
        return Err(cx.error(&step(path, "offset"), problem));
    }
    Ok(Some(Handover { interval, offset, delay: (low, high), outage, loses: raw.during == DuringName::Lose }))
}
