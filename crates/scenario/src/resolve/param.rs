//! Parameters of the registry's algorithms.

use bentpipe_queue::{Link, Param, Unit, Value, Values};

use super::cx::Cx;
use crate::error::{Error, choices};
use crate::reader::tree::{Path, step};
use crate::schema::aqm::Scalar;
use crate::schema::param::{dimension, range, shown};

/// Parameters given in the file.
pub type Given = Vec<(&'static str, Value)>;

/// Describes a key that `owner` does not have.
pub fn unknown_parameter(owner: &str, params: &[Param], key: &str) -> String {
    let known = params.iter().map(|p| p.name);
    match known.len() {
        0 => format!("{owner} has no parameters"),
        _ => format!("no such parameter of {owner}; {}", choices(key, known)),
    }
}

/// Refuses keys of `owner`'s table that are neither `selector` nor a parameter.
pub fn check_keys(
    cx: &Cx<'_>,
    path: &Path,
    raw: &[(String, Scalar)],
    selector: &str,
    (owner, params): (&str, &[Param]),
) -> Result<(), Error> {
    match raw.iter().find(|(key, _)| key != selector && !params.iter().any(|p| p.name == *key)) {
        Some((key, _)) => Err(cx.key_error(&step(path, key), unknown_parameter(owner, params, key))),
        None => Ok(()),
    }
}

/// Resolves parameters: the values in `raw`, else those of the preset (`printed`), else the defaults. Also returns the
/// values in `raw`.
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

pub fn find(list: &[(&str, Value)], name: &str) -> Option<Value> {
    list.iter().find(|(n, _)| *n == name).map(|(_, v)| *v)
}

/// Reads the value of a parameter, in its base unit.
pub fn read(cx: &Cx<'_>, path: &Path, param: &Param, scalar: &Scalar) -> Result<Value, Error> {
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
