//! Parameters of the registry's algorithms as a file writes them.

use bentpipe_queue::{Param, Unit, Value};

use super::aqm::Scalar;
use super::dimension::{Dimension, PACKETS, RATE, SIZE, TIME};
use crate::error::quoted;

/// Returns the dimension in which a file gives `unit`, and the size of the parameter's unit in base units.
pub fn dimension(unit: Unit) -> Option<(&'static Dimension, f64)> {
    match unit {
        Unit::One | Unit::Count | Unit::Flag | Unit::Name(_) => None,
        Unit::Packets => Some((&PACKETS, 1.0)),
        Unit::Bytes => Some((&SIZE, 1.0)),
        Unit::Seconds => Some((&TIME, 1e9)),
        Unit::BitsPerSecond => Some((&RATE, 1.0)),
    }
}

/// Returns the permitted values of a parameter as text, in the file's unit.
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

/// Formats a parameter's value as in a file.
pub fn write(unit: Unit, value: Value) -> String {
    let x = match value {
        Value::Flag(x) => return x.to_string(),
        Value::Name(x) => return x.to_owned(),
        Value::Number(x) => x,
    };
    match dimension(unit) {
        // In whole base units if that is exact.
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

/// Formats a scalar as in a file.
pub fn shown(scalar: &Scalar) -> String {
    match scalar {
        Scalar::Text(text) => quoted(text),
        Scalar::Integer(x) => x.to_string(),
        Scalar::Float(x) => format!("{x:?}"),
        Scalar::Flag(x) => x.to_string(),
        Scalar::Steps(_) => "an array".to_owned(),
    }
}

/// Returns a parameter's value as a key's.
pub fn scalar(unit: Unit, value: Value) -> Scalar {
    match (unit, value) {
        (_, Value::Flag(x)) => Scalar::Flag(x),
        (_, Value::Name(x)) => Scalar::Text(x.to_owned()),
        (Unit::One | Unit::Count, Value::Number(x)) => Scalar::Float(x),
        (unit, value) => Scalar::Text(write(unit, value)),
    }
}
