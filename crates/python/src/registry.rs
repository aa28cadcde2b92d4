//! The registry of algorithms and the schema of scenario files.

use bentpipe_queue::descriptor::{Algorithm, Placement};
use bentpipe_queue::registry::{AQMS, MARKINGS, SCHEDULERS};
use bentpipe_queue::{Default, Param, Tune, Unit, Value};
use bentpipe_scenario::WarningKind;
use pyo3::prelude::*;
use serde_json::json;

/// Returns the AQMs, schedulers and marking methods with their parameters and presets, and the codes of warnings, as JSON.
#[pyfunction]
pub fn registry() -> String {
    let aqms: Vec<_> = AQMS.iter().map(describe).collect();
    let schedulers: Vec<_> = SCHEDULERS
        .iter()
        .map(|s| {
            json!({"name": s.name, "title": s.title, "source": s.source, "signals": s.signals,
                   "params": s.params.iter().map(param).collect::<Vec<_>>()})
        })
        .collect();
    let markings: Vec<_> = MARKINGS
        .iter()
        .map(|m| {
            json!({"name": m.name, "title": m.title, "source": m.source,
                   "params": m.params.iter().map(param).collect::<Vec<_>>()})
        })
        .collect();
    let warnings: Vec<_> = WarningKind::ALL.iter().map(|kind| kind.code()).collect();
    json!({"aqms": aqms, "schedulers": schedulers, "markings": markings, "warnings": warnings}).to_string()
}

fn describe(a: &Algorithm) -> serde_json::Value {
    let presets: Vec<_> = a
        .presets
        .iter()
        .map(|p| {
            let values = |values: &[(&str, Value)]| -> serde_json::Map<_, _> {
                values.iter().map(|(name, value)| ((*name).to_owned(), number(*value))).collect()
            };
            let marking = p.marking.map(|(m, given)| json!({"name": m.name, "values": values(given)}));
            json!({"name": p.name, "source": p.source, "values": values(p.values), "marking": marking})
        })
        .collect();
    let placement = match a.placement {
        Placement::Anywhere => "anywhere",
        Placement::WatchedQueue => "must mark at the queue that it watches",
    };
    json!({"name": a.name, "title": a.title, "source": a.source, "placement": placement, "fluid_model": a.fluid.is_some(),
           "params": a.params.iter().map(param).collect::<Vec<_>>(), "presets": presets})
}

fn param(p: &Param) -> serde_json::Value {
    let unit = match p.unit {
        Unit::One | Unit::Count | Unit::Flag | Unit::Name(_) => "",
        Unit::Packets => "packets",
        Unit::Bytes => "B",
        Unit::Seconds => "s",
        Unit::BitsPerSecond => "bit/s",
    };
    let default = match p.default {
        Default::Is(value) => number(value),
        Default::FromLink(_, how) => json!(how),
    };
    let range = match p.unit {
        Unit::Flag => "true or false".to_owned(),
        Unit::Name(names) => names.join(", "),
        _ => p.range.to_string(),
    };
    let tune = p.tune.map(|tune| match tune {
        Tune::Linear(low, high) => json!({"low": low, "high": high, "scale": "linear"}),
        Tune::Log(low, high) => json!({"low": low, "high": high, "scale": "log"}),
        Tune::Around(low, high) => json!({"low": low, "high": high, "scale": "times the default, log"}),
        Tune::Each => json!({"scale": "each"}),
    });
    json!({"name": p.name, "symbol": p.symbol, "unit": unit, "default": default, "origin": p.origin,
           "range": range, "tune": tune, "doc": p.doc})
}

fn number(value: Value) -> serde_json::Value {
    match value {
        Value::Number(x) => json!(x),
        Value::Flag(x) => json!(x),
        Value::Name(x) => json!(x),
    }
}

/// Returns the JSON Schema of scenario files.
#[pyfunction]
pub fn schema() -> String {
    bentpipe_scenario::json_schema()
}
