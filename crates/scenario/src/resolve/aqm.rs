//! Looks an AQM up in the registry and works out its parameters.

use bentpipe_queue::aqm::threshold::{THRESHOLD, Thresholds};
use bentpipe_queue::descriptor::{Algorithm, Preset};
use bentpipe_queue::registry;
use bentpipe_queue::{Default as ParamDefault, Limit, Link, Param, Unit, Value, Values};
use bentpipe_units::Rate;

use super::{Cx, step};
use crate::error::{Error, choices, quoted};
use crate::file::{Aqm, Scalar};
use crate::model::AqmSpec;
use crate::quantity::{Dimension, PACKETS, RATE, SIZE, TIME};
use crate::scenario::Origin;
use crate::tree::{Path, Step, Value as NodeValue};

/// The algorithm of a queue that nothing watches.
pub const NONE: &str = "droptail";

/// The keys that every AQM's table may have, whatever the algorithm's parameters.
const KEYS: [&str; 4] = ["algorithm", "preset", MEAN_PACKET.name, THRESHOLD.name];

/// An AQM in its place.
pub struct Resolved {
    pub spec: AqmSpec,
    /// Mean length of a packet on the link [bytes].
    pub mean_packet: f64,
    /// The preset that was named.
    pub preset: Option<&'static Preset>,
}

/// The AQM that `raw` describes, at `path`, for a link of `capacity` where nothing else is said of its packets'
/// `mean_packet` [bytes]. Leaves every parameter in `raw`.
pub fn resolve(
    cx: &mut Cx<'_>,
    path: &Path,
    raw: &mut Aqm,
    capacity: Rate,
    mean_packet: f64,
) -> Result<Resolved, Error> {
    let (algorithm, preset) = look_up(cx, path, raw)?;
    for (key, _) in &raw.0 {
        if !KEYS.contains(&key.as_str()) && !algorithm.params.iter().any(|p| p.name == *key) {
            return Err(cx.key_error(&step(path, key), unknown_parameter(algorithm, key)));
        }
    }
    let given_mean = match raw.get("mean_packet") {
        Some(scalar) => Some(read(cx, path, &MEAN_PACKET, scalar)?),
        None => None,
    };
    let mean_packet = match given_mean {
        Some(Value::Number(bytes)) => bytes,
        _ => mean_packet,
    };
    let link = Link { capacity, mean_packet };
    let printed = preset.map_or(&[][..], |p| p.values);
    let (values, given) = parameters(cx, path, algorithm.params, &raw.0, &link, printed)?;
    (algorithm.build)(&values).map_err(|e| cx.error(&step(path, e.name), e.problem))?;
    let changed =
        given.iter().map(|(name, _)| *name).filter(|name| preset.is_some() || cx.overridden(path, name));
    let threshold = match raw.get(THRESHOLD.name) {
        Some(scalar) => thresholds(cx, path, scalar)?,
        None => None,
    };
    let name = preset.map_or(algorithm.name, |p| p.name);
    let spec = AqmSpec {
        algorithm,
        label: match &threshold {
            Some(th) => format!("{name}, threshold {}", spoken(th)),
            None => name.to_owned(),
        },
        threshold,
        changed: changed.map(str::to_owned).collect(),
        outside: Vec::new(),
        values,
    };
    for (param, value) in spec.values.iter().filter(|(p, _)| p.unit == Unit::BitsPerSecond) {
        let printed =
            preset.filter(|_| find(&given, param.name).is_none() && find(printed, param.name).is_some());
        if let (Some(preset), Value::Number(bps)) = (printed, value)
            && bps != capacity.as_bps() as f64
        {
            let (its, ours) = (Rate::from_bps(bps as u64), capacity);
            let text =
                format!("{} was made for a link of {its}, and this one has {ours}", quoted(preset.name));
            cx.warn(&step(path, param.name), &text);
            break;
        }
    }
    note(cx, path, raw, &spec, preset, mean_packet);
    Ok(Resolved { spec, mean_packet, preset })
}

/// Refuses threshold control of a queue without a limit.
pub fn check_threshold(cx: &Cx<'_>, path: &Path, aqm: &AqmSpec, limit: Limit) -> Result<(), Error> {
    match &aqm.threshold {
        Some(th) if !limit.is_bounded() => {
            let problem = format!(
                "found {}, a share of what the watched queue may hold; allowed: none without a limit there",
                spoken(th)
            );
            Err(cx.error(&step(path, THRESHOLD.name), problem))
        }
        _ => Ok(()),
    }
}

/// The thresholds that a key gives: a share, or shares with the times that they hold from.
fn thresholds(cx: &Cx<'_>, path: &Path, scalar: &Scalar) -> Result<Option<Thresholds>, Error> {
    let Scalar::Steps(steps) = scalar else {
        return Ok(match read(cx, path, &THRESHOLD, scalar)? {
            Value::Number(th) => Some(th.into()),
            Value::Flag(_) | Value::Name(_) => None,
        });
    };
    let at =
        |i: usize, j: usize| [&step(path, THRESHOLD.name)[..], &[Step::Index(i), Step::Index(j)]].concat();
    let steps: Vec<_> = steps.iter().map(|(from, th)| (from.time(), *th)).collect();
    let Some((first, _)) = steps.first() else {
        let problem = "found an empty array; allowed: times and shares, such as [[\"0 s\", 0.95]]";
        return Err(cx.error(&step(path, THRESHOLD.name), problem.to_owned()));
    };
    if !first.is_zero() {
        return Err(cx.error(&at(0, 0), format!("found \"{first}\"; allowed: \"0 s\" for the first")));
    }
    for (i, (from, th)) in steps.iter().enumerate() {
        if !THRESHOLD.range.allows(*th) {
            return Err(cx.error(&at(i, 1), format!("found {th}; allowed: {}", range(&THRESHOLD))));
        }
        if i > 0 && *from <= steps[i - 1].0 {
            let problem = format!("found \"{from}\" after \"{}\"; allowed: rising times", steps[i - 1].0);
            return Err(cx.error(&at(i, 0), problem));
        }
    }
    Ok(Some(Thresholds::new(steps)))
}

/// Thresholds in words: `0.95`, or `0.95, from 125 s 0.5`.
fn spoken(thresholds: &Thresholds) -> String {
    let steps = thresholds.steps().iter().skip(1);
    let later: String = steps.map(|(from, th)| format!(", from {from} {th}")).collect();
    format!("{}{later}", thresholds.first())
}

/// Values that were given, by parameter.
pub type Given = Vec<(&'static str, Value)>;

/// The values of parameters: those in `raw`, else those `printed`, else the defaults. With them, those in `raw`.
pub fn parameters(
    cx: &Cx<'_>,
    path: &Path,
    params: &'static [Param],
    raw: &[(String, Scalar)],
    link: &Link,
    printed: &[(&'static str, Value)],
) -> Result<(Values, Given), Error> {
    let mut given = Given::new();
    for param in params {
        if let Some((_, scalar)) = raw.iter().find(|(key, _)| key == param.name) {
            given.push((param.name, read(cx, path, param, scalar)?));
        }
    }
    let values = Values::resolve(params, link, &|name| find(&given, name).or_else(|| find(printed, name)));
    Ok((values.map_err(|e| cx.error(&step(path, e.name), e.problem))?, given))
}

fn find(list: &[(&str, Value)], name: &str) -> Option<Value> {
    list.iter().find(|(n, _)| *n == name).map(|(_, v)| *v)
}

/// What a packet's length must be, under a key that every algorithm may have.
const MEAN_PACKET: Param = Param::number(
    "mean_packet",
    Unit::Bytes,
    0.0,
    bentpipe_queue::Range::above(0.0, 65_535.0),
    "Mean length of a packet on the link",
);

fn look_up(
    cx: &Cx<'_>,
    path: &Path,
    raw: &Aqm,
) -> Result<(&'static Algorithm, Option<&'static Preset>), Error> {
    let names = || registry::AQMS.iter().map(|a| a.name);
    let presets = || registry::AQMS.iter().flat_map(|a| a.presets.iter().map(|p| p.name));
    let wrong = |key: &str, found: &Scalar, allowed: String| {
        Err(cx.error(&step(path, key), format!("found {}; {allowed}", shown(found))))
    };
    match (raw.get("algorithm"), raw.get("preset")) {
        (Some(found), Some(Scalar::Text(preset))) => {
            let allowed = format!("allowed: one of the two, for there is the preset {preset:?} too");
            wrong("algorithm", found, allowed)
        }
        (Some(found @ Scalar::Text(name)), None) => match registry::aqm(name) {
            Some(algorithm) => Ok((algorithm, None)),
            None if registry::preset(name).is_some() => {
                wrong("algorithm", found, format!("that is a preset: preset = {name:?}"))
            }
            None if registry::scheduler(name).is_some() => {
                let allowed =
                    format!("that is a scheduler: scheduler = {name:?}, at a gateway in transmit_queue");
                wrong("algorithm", found, allowed)
            }
            None if registry::marking(name).is_some() => {
                wrong("algorithm", found, format!("that is a marking method: marking = {name:?}"))
            }
            None => wrong("algorithm", found, choices(name, names())),
        },
        (_, Some(found @ Scalar::Text(name))) => match registry::preset(name) {
            Some((algorithm, preset)) => Ok((algorithm, Some(preset))),
            None if registry::aqm(name).is_some() => {
                wrong("preset", found, format!("that is an algorithm: algorithm = {name:?}"))
            }
            None => wrong("preset", found, choices(name, presets())),
        },
        (_, Some(found)) => wrong("preset", found, choices("", presets())),
        (Some(found), None) => wrong("algorithm", found, choices("", names())),
        (None, None) => match registry::aqm(NONE) {
            Some(algorithm) if raw.0.iter().all(|(key, _)| key == "mean_packet") => Ok((algorithm, None)),
            _ => {
                let problem =
                    format!("missing, and so is preset; allowed: {}", names().collect::<Vec<_>>().join(", "));
                Err(cx.error(&step(path, "algorithm"), problem))
            }
        },
    }
}

/// What is wrong with a key that `algorithm` does not have.
pub fn unknown_parameter(algorithm: &Algorithm, key: &str) -> String {
    let owners = registry::AQMS.iter().filter(|a| a.params.iter().any(|p| p.name == key));
    let owners: Vec<_> = owners.map(|a| a.name).collect();
    let mut known: Vec<_> = algorithm.params.iter().map(|p| p.name).collect();
    if !known.contains(&MEAN_PACKET.name) {
        known.push(MEAN_PACKET.name);
    }
    known.push(THRESHOLD.name);
    if owners.is_empty() {
        return format!("no such parameter of {}; {}", algorithm.name, choices(key, known));
    }
    let (name, known) = (algorithm.name, known.join(", "));
    format!("no parameter of {name}, but of {}; allowed: {known}", owners.join(", "))
}

/// A scalar as a file would write it.
pub fn shown(scalar: &Scalar) -> String {
    match scalar {
        Scalar::Text(text) => quoted(text),
        Scalar::Integer(x) => x.to_string(),
        Scalar::Float(x) => x.to_string(),
        Scalar::Flag(x) => x.to_string(),
        Scalar::Steps(_) => "an array".to_owned(),
    }
}

/// The dimension in which a unit is written, with the size of the parameter's base unit in it.
pub fn dimension(unit: Unit) -> Option<(&'static Dimension, f64)> {
    match unit {
        Unit::One | Unit::Count | Unit::Flag | Unit::Name(_) => None,
        Unit::Packets => Some((&PACKETS, 1.0)),
        Unit::Bytes => Some((&SIZE, 1.0)),
        Unit::Seconds => Some((&TIME, 1e9)),
        Unit::BitsPerSecond => Some((&RATE, 1.0)),
    }
}

/// The value of a parameter, in its base unit.
fn read(cx: &Cx<'_>, path: &Path, param: &Param, scalar: &Scalar) -> Result<Value, Error> {
    let wrong = |allowed: &str| {
        let unit = match (scalar, dimension(param.unit)) {
            (Scalar::Integer(_) | Scalar::Float(_), Some(_)) if param.unit != Unit::Packets => {
                ", without a unit"
            }
            _ => "",
        };
        Err(cx.error(&step(path, param.name), format!("found {}{unit}; allowed: {allowed}", shown(scalar))))
    };
    let number = match (param.unit, scalar) {
        (Unit::Flag, Scalar::Flag(x)) => return Ok(Value::Flag(*x)),
        (Unit::Flag, _) => return wrong("true or false"),
        (Unit::Name(names), scalar) => {
            let found = names.iter().find(|name| matches!(scalar, Scalar::Text(text) if text == *name));
            return found.map_or_else(|| wrong(&range(param)), |name| Ok(Value::Name(name)));
        }
        (Unit::One | Unit::Count | Unit::Packets, Scalar::Integer(x)) => *x as f64,
        (Unit::One | Unit::Count | Unit::Packets, Scalar::Float(x)) => *x,
        (unit, scalar) => match (dimension(unit), scalar) {
            (Some((dimension, base)), Scalar::Text(text)) => match dimension.read(text) {
                Some(x) => x / base,
                None => return wrong(&dimension.allowed()),
            },
            (Some((dimension, _)), _) => return wrong(&dimension.allowed()),
            (None, _) => return wrong(&range(param)),
        },
    };
    let whole = param.unit != Unit::Count || number.fract() == 0.0;
    if param.range.allows(number) && whole { Ok(Value::Number(number)) } else { wrong(&range(param)) }
}

/// The values that a parameter may take, in the unit of files.
pub fn range(param: &Param) -> String {
    if let Unit::Name(names) = param.unit {
        return names.join(", ");
    }
    let number = if param.unit == Unit::Count { "a whole number" } else { "a number" };
    let written = |x| write(param.unit, Value::Number(x));
    let least = if param.range.above { "above" } else { "at least" };
    let (min, max) = (param.range.min, param.range.max);
    let what = dimension(param.unit).map_or(number, |(dimension, _)| dimension.name);
    match (min.is_finite(), max.is_finite()) {
        _ if param.unit == Unit::Flag => "true or false".to_owned(),
        (false, false) => what.to_owned(),
        (true, false) => format!("{what}, {least} {}", written(min)),
        (false, true) => format!("{what}, at most {}", written(max)),
        (true, true) => format!("{what}, {least} {} and at most {}", written(min), written(max)),
    }
}

/// A parameter's value as a file would write it.
pub fn write(unit: Unit, value: Value) -> String {
    let x = match value {
        Value::Flag(x) => return x.to_string(),
        Value::Name(x) => return x.to_owned(),
        Value::Number(x) => x,
    };
    match dimension(unit) {
        // In whole base units wherever that is the very number.
        Some((dimension, base)) if (x * base).fract() == 0.0 && (0.0..9e15).contains(&(x * base)) => {
            let text = (dimension.write)((x * base) as u64);
            if dimension.read(&text).is_some_and(|y| y / base == x) { text } else { plain(unit, x) }
        }
        _ => plain(unit, x),
    }
}

fn plain(unit: Unit, x: f64) -> String {
    match unit {
        Unit::One | Unit::Count | Unit::Flag | Unit::Name(_) => x.to_string(),
        Unit::Packets => format!("{x} packets"),
        Unit::Bytes => format!("{x} B"),
        Unit::Seconds => format!("{x} s"),
        Unit::BitsPerSecond => format!("{x} bps"),
    }
}

/// Leaves every parameter in `raw`, with a note on where it comes from.
fn note(
    cx: &mut Cx<'_>,
    path: &Path,
    raw: &mut Aqm,
    spec: &AqmSpec,
    preset: Option<&Preset>,
    mean_packet: f64,
) {
    let name = match preset {
        Some(preset) => ("preset".to_owned(), Scalar::Text(preset.name.to_owned())),
        None => ("algorithm".to_owned(), Scalar::Text(spec.algorithm.name.to_owned())),
    };
    match preset {
        Some(preset) => {
            cx.note(&step(path, "preset"), None, format!("of {}, {}", spec.algorithm.name, preset.source))
        }
        None => cx.note(&step(path, "algorithm"), None, spec.algorithm.title.to_owned()),
    }
    let mut entries = vec![name];
    if !spec.algorithm.params.iter().any(|p| p.name == MEAN_PACKET.name) {
        let bytes = write(Unit::Bytes, Value::Number(mean_packet));
        entries.push((MEAN_PACKET.name.to_owned(), Scalar::Text(bytes)));
    }
    if let (Some(given), Some(th)) = (raw.get(THRESHOLD.name), &spec.threshold) {
        let scalar = th.constant().map_or_else(|| given.clone(), Scalar::Float);
        entries.push((THRESHOLD.name.to_owned(), scalar));
    }
    if raw.get("mean_packet").is_none() {
        let how = "the longest packet of the traffic".to_owned();
        cx.note(&step(path, "mean_packet"), None, how);
    }
    for (param, value) in spec.values.iter() {
        let key = step(path, param.name);
        if raw.get(param.name).is_none() {
            let printed = preset.filter(|p| p.values.iter().any(|(n, _)| *n == param.name));
            match (printed, param.default) {
                (Some(p), _) => cx.note(&key, Some(Origin::Preset), format!("{}, {}", p.name, p.source)),
                (None, ParamDefault::FromLink(_, how)) if param.name != "mean_packet" => {
                    cx.note(&key, None, how.to_owned());
                }
                _ => {}
            }
        }
        entries.push((param.name.to_owned(), scalar(param.unit, value)));
    }
    raw.0 = entries;
}

/// A parameter's value as a key's.
pub fn scalar(unit: Unit, value: Value) -> Scalar {
    match (unit, value) {
        (_, Value::Flag(x)) => Scalar::Flag(x),
        (_, Value::Name(x)) => Scalar::Text(x.to_owned()),
        (Unit::One | Unit::Count, Value::Number(x)) => Scalar::Float(x),
        (unit, value) => Scalar::Text(write(unit, value)),
    }
}

impl Cx<'_> {
    /// Whether a parameter of the AQM or the like at `path` comes from an override.
    pub fn overridden(&self, path: &Path, name: &str) -> bool {
        let aqm = self.root.find(path);
        aqm.is_some_and(|aqm| match &aqm.value {
            NodeValue::Table(entries) => {
                entries.iter().any(|e| e.key == name && matches!(e.at, crate::tree::At::Override(_)))
            }
            _ => false,
        })
    }
}
