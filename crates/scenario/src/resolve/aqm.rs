//! AQMs.

use bentpipe_queue::aqm::threshold::THRESHOLD;
use bentpipe_queue::descriptor::{Algorithm, Preset};
use bentpipe_queue::registry;
use bentpipe_queue::{Default as ParamDefault, Link, Param, Unit, Value};
use bentpipe_units::Rate;

use super::cx::Cx;
use super::param::{find, parameters, read};
use super::threshold::{format_thresholds, thresholds};
use crate::effective::Origin;
use crate::error::{Error, choices, quoted};
use crate::model::{AqmSpec, NO_AQM};
use crate::reader::tree::{Path, step};
use crate::schema::aqm::{Aqm, Scalar};
use crate::schema::param::{scalar, shown, write};
use crate::warning::WarningKind;

/// Keys that every AQM's table may have, whatever the algorithm.
const KEYS: [&str; 4] = ["algorithm", "preset", MEAN_PACKET.name, THRESHOLD.name];

/// A resolved AQM.
pub struct Resolved {
    pub spec: AqmSpec,
    /// Mean packet length on the link [bytes].
    pub mean_packet: f64,
    /// Named preset.
    pub preset: Option<&'static Preset>,
}

/// Capacity of the link that drains a queue.
#[derive(Clone, Copy)]
pub struct Capacity {
    /// Capacity; the mean if it varies.
    pub rate: Rate,
    pub varies: bool,
}

/// Resolves the AQM at `path` for a link of `capacity`, with `mean_packet` [bytes] unless the table gives it. Writes
/// every parameter back to `raw`.
pub fn resolve(
    cx: &mut Cx<'_>,
    path: &Path,
    raw: &mut Aqm,
    capacity: Capacity,
    mean_packet: f64,
) -> Result<Resolved, Error> {
    let Capacity { rate: capacity, varies } = capacity;
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
    let (mut values, given) = parameters(cx, path, algorithm.params, &raw.0, &link, printed)?;
    if !varies {
        values = values.fixed();
    }
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
            Some(th) => format!("{name}, threshold {}", format_thresholds(th)),
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
                format!("{} was published for a link of {its}, this one has {ours}", quoted(preset.name));
            cx.warn(WarningKind::PresetRate, &step(path, param.name), &text);
            break;
        }
    }
    note(cx, path, raw, &spec, preset, mean_packet);
    Ok(Resolved { spec, mean_packet, preset })
}

/// Packet length, under a key that every algorithm accepts.
const MEAN_PACKET: Param =
    Param::number("mean_packet", Unit::Bytes, 0.0, bentpipe_queue::Range::above(0.0, 65_535.0))
        .doc("Mean length of a packet on the link");

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
            let allowed =
                format!("allowed: either algorithm or preset, but the preset {preset:?} is given too");
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
        (None, None) => match registry::aqm(NO_AQM) {
            Some(algorithm) if raw.0.iter().all(|(key, _)| key == "mean_packet") => Ok((algorithm, None)),
            _ => {
                let problem = format!(
                    "missing; required: algorithm or preset; allowed: {}",
                    names().collect::<Vec<_>>().join(", ")
                );
                Err(cx.error(&step(path, "algorithm"), problem))
            }
        },
    }
}

/// Message for a key that `algorithm` does not have.
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

/// Writes every parameter back to `raw` and notes its origin.
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
                    let follows = if spec.values.follows(param.name) { ", which it follows" } else { "" };
                    cx.note(&key, None, format!("{how}{follows}"));
                }
                _ => {}
            }
        }
        entries.push((param.name.to_owned(), scalar(param.unit, value)));
    }
    raw.0 = entries;
}
