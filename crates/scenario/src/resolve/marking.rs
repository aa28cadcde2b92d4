//! Marking methods of gateways.

use bentpipe_gateway::GatewayQueue;
use bentpipe_queue::descriptor::{MarkingMethod, Preset};
use bentpipe_queue::registry;
use bentpipe_queue::{Default as ParamDefault, Link, Marking};

use super::cx::Cx;
use super::param::{check_keys, parameters};
use crate::effective::Origin;
use crate::error::{Error, choices, quoted};
use crate::model::{Gateway, MarkingSpec};
use crate::reader::tree::{Path, step};
use crate::schema::aqm::{self as file, Scalar};
use crate::schema::param::shown;

/// Resolves the marking method at `path`: that of the file, else that of the AQM's `preset`, else the default. Writes
/// every parameter back to `raw`. Also returns the parameters that differ from the preset or come from an override.
pub fn resolve(
    cx: &mut Cx<'_>,
    path: &Path,
    raw: &mut file::Marking,
    preset: Option<&'static Preset>,
    link: &Link,
) -> Result<(MarkingSpec, Vec<String>), Error> {
    let key = step(path, "method");
    let at = if cx.root.find(&key).is_some() { &key } else { path };
    let names = || registry::MARKINGS.iter().map(|m| m.name);
    let belongs = preset.and_then(|p| Some((p, p.marking?)));
    let method = match (raw.get("method"), belongs) {
        (Some(Scalar::Text(name)), _) => {
            registry::marking(name).ok_or_else(|| cx.unknown(at, name, names()))?
        }
        (Some(found), _) => {
            return Err(cx.error(at, format!("found {}; {}", shown(found), choices("", names()))));
        }
        (None, Some((_, (method, _)))) => method,
        (None, None) if raw.0.is_empty() => &registry::MARKINGS[0],
        (None, None) => {
            let names = names().collect::<Vec<_>>().join(", ");
            return Err(cx.error(&key, format!("missing; allowed: {names}")));
        }
    };
    let mut printed: &[_] = &[];
    if let Some((preset, (its, values))) = belongs {
        if its.marking != method.marking {
            let (found, its, preset) = (quoted(method.name), quoted(its.name), quoted(preset.name));
            return Err(cx.error(at, format!("found {found}; allowed: {its} with the preset {preset}")));
        }
        printed = values;
    }
    check_keys(cx, path, &raw.0, "method", (method.name, method.params))?;
    let (values, given) = parameters(cx, path, method.params, &raw.0, link, printed)?;
    let changed = given.iter().filter(|(name, _)| belongs.is_some() || cx.overridden(path, name));
    let changed = changed.map(|(name, _)| format!("marking.{name}")).collect::<Vec<_>>();
    for param in method.params.iter().filter(|p| !given.iter().any(|(name, _)| *name == p.name)) {
        let key = step(path, param.name);
        match (belongs.filter(|_| printed.iter().any(|(name, _)| *name == param.name)), param.default) {
            (Some((p, _)), _) => cx.note(&key, Some(Origin::Preset), format!("{}, {}", p.name, p.source)),
            (None, ParamDefault::FromLink(_, how)) => cx.note(&key, None, how.to_owned()),
            (None, _) => {}
        }
    }
    if let (None, Some((preset, _))) = (raw.get("method"), belongs) {
        cx.note(&key, Some(Origin::Preset), format!("{}, {}", preset.name, preset.source));
    }
    raw.complete(method.name, &values);
    Ok((MarkingSpec { method, values }, changed))
}

/// Rejects a method whose marks do not reach the senders; `found` is the value that selects it.
pub fn check(
    cx: &Cx<'_>,
    path: &Path,
    found: &str,
    method: &MarkingMethod,
    g: &Gateway,
) -> Result<(), Error> {
    let refuse = |allowed: &str| Err(cx.error(path, format!("found {}; allowed: {allowed}", quoted(found))));
    let splits = !g.pep.split.is_empty();
    match (method.marking, g.mark) {
        (Marking::Window, _) if !splits => {
            refuse("\"drop\" or \"ecn\" if pep.split is empty, because the gateway then advertises no window")
        }
        (Marking::Window, GatewayQueue::Transmit) => refuse(
            "\"drop\" or \"ecn\" if mark = \"transmit\", because a packet behind the PEP does not identify the window to cut",
        ),
        _ => Ok(()),
    }
}
