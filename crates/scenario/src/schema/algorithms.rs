//! JSON Schema of the registry's algorithms.

use std::borrow::Cow;

use bentpipe_queue::aqm::threshold::THRESHOLD;
use bentpipe_queue::descriptor::{Algorithm, MarkingMethod};
use bentpipe_queue::registry;
use bentpipe_queue::{Default as ParamDefault, Param, Unit, Value};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value as Json, json};

use super::aqm::{Aqm, Marking, Scheduler};
use super::dimension::{SIZE, TIME};
use super::param::{dimension, range, write};

impl JsonSchema for Scheduler {
    fn schema_name() -> Cow<'static, str> {
        "Scheduler".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<_> = registry::SCHEDULERS.iter().map(|s| s.name).collect();
        let mut alternatives = vec![json!({ "type": "string", "enum": names })];
        for s in registry::SCHEDULERS {
            let mut properties = Map::new();
            properties.insert("algorithm".to_owned(), json!({ "const": s.name, "description": s.title }));
            properties.extend(s.params.iter().map(|param| (param.name.to_owned(), parameter(param))));
            alternatives.push(table(s.title, s.source, properties, "algorithm"));
        }
        json_schema!({
            "description": "A scheduler by its name, or with its parameters.",
            "anyOf": alternatives,
        })
    }
}

impl JsonSchema for Marking {
    fn schema_name() -> Cow<'static, str> {
        "GatewayMarking".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let named = |m: &MarkingMethod| json!({ "type": "string", "const": m.name, "description": m.title });
        let mut alternatives: Vec<_> = registry::MARKINGS.iter().map(named).collect();
        for m in registry::MARKINGS {
            let mut properties = Map::new();
            properties.insert("method".to_owned(), json!({ "const": m.name, "description": m.title }));
            properties.extend(m.params.iter().map(|param| (param.name.to_owned(), parameter(param))));
            alternatives.push(table(m.title, m.source, properties, "method"));
        }
        json_schema!({
            "description": "A marking method by its name, or with its parameters.",
            "anyOf": alternatives,
        })
    }
}

impl JsonSchema for Aqm {
    fn schema_name() -> Cow<'static, str> {
        "Aqm".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut alternatives = vec![json!({
            "title": "no AQM",
            "type": "object",
            "properties": { "mean_packet": mean_packet() },
            "additionalProperties": false,
        })];
        for algorithm in registry::AQMS {
            let name = json!({ "const": algorithm.name, "description": algorithm.title });
            alternatives.push(alternative(algorithm, "algorithm", name));
            if !algorithm.presets.is_empty() {
                let names: Vec<_> = algorithm.presets.iter().map(|p| p.name).collect();
                let mut sources: Vec<_> = algorithm.presets.iter().map(|p| p.source).collect();
                sources.dedup();
                let name = json!({
                    "enum": names,
                    "description": format!("Settings of {} ({})", algorithm.name, sources.join(", ")),
                });
                alternatives.push(alternative(algorithm, "preset", name));
            }
        }
        json_schema!({
            "description": "An active queue management algorithm with its parameters.",
            "anyOf": alternatives,
        })
    }
}

/// Returns the schema of the scenario's own settings: tables of AQMs with an optional scheduler.
pub fn settings(generator: &mut SchemaGenerator) -> Schema {
    let mut aqm = Aqm::json_schema(generator).to_value();
    let names: Vec<_> = registry::SCHEDULERS.iter().map(|s| s.name).collect();
    let scheduler = json!({
        "enum": names,
        "description": "The scheduler that goes with it, with its defaults. Default: the one of the queue.",
    });
    if let Some(alternatives) = aqm["anyOf"].as_array_mut() {
        for alternative in alternatives {
            alternative["properties"]["scheduler"] = scheduler.clone();
        }
    }
    json_schema!({ "type": "object", "additionalProperties": aqm })
}

fn mean_packet() -> Json {
    let mut schema = SIZE.schema("above 0 B and at most 65535 B").to_value();
    schema["description"] =
        "Mean length of a packet on the link. Default: the longest of the traffic's full segments, or of its \
         datagrams where it has no TCP, by their mean where it is drawn.".into();
    schema
}

fn threshold() -> Json {
    let mut schema = parameter(&THRESHOLD);
    if let Json::Object(entries) = &mut schema {
        entries.remove("default");
    }
    schema["description"] =
        format!("{}. Default: none. Allowed: {}.", THRESHOLD.doc, range(&THRESHOLD)).into();
    let share = schema.clone();
    let doc = "Such shares, each from its time since the beginning of the run on; the first from 0 s";
    json!({ "anyOf": [schema, {
        "type": "array",
        "items": { "type": "array", "prefixItems": [TIME.schema("").to_value(), share],
            "minItems": 2, "maxItems": 2 },
        "minItems": 1,
        "description": format!("{doc}."),
        "examples": [[["0 s", 0.95], ["125 s", 0.5]]],
    }] })
}

/// Schema of an algorithm's table, selected by `key`.
fn alternative(algorithm: &Algorithm, key: &str, name: Json) -> Json {
    let mut properties = Map::new();
    properties.insert(key.to_owned(), name);
    properties.insert("mean_packet".to_owned(), mean_packet());
    properties.insert(THRESHOLD.name.to_owned(), threshold());
    for param in algorithm.params {
        properties.insert(param.name.to_owned(), parameter(param));
    }
    table(algorithm.title, algorithm.source, properties, key)
}

fn table(title: &str, source: &str, properties: Map<String, Json>, required: &str) -> Json {
    json!({
        "title": format!("{title} ({source})"),
        "type": "object",
        "properties": properties,
        "required": [required],
        "additionalProperties": false,
    })
}

fn parameter(param: &Param) -> Json {
    let text = dimension(param.unit).map(|(d, _)| d.schema(&range(param)).to_value());
    let number = || {
        let mut number = Map::new();
        let kind = if param.unit == Unit::Count { "integer" } else { "number" };
        number.insert("type".to_owned(), kind.into());
        let least = if param.range.above { "exclusiveMinimum" } else { "minimum" };
        for (word, bound) in [(least, param.range.min), ("maximum", param.range.max)] {
            if bound.is_finite() {
                number.insert(word.to_owned(), bound.into());
            }
        }
        Json::Object(number)
    };
    let mut schema = match (param.unit, text) {
        (Unit::Flag, _) => json!({ "type": "boolean" }),
        (Unit::Name(names), _) => json!({ "enum": names }),
        (Unit::Packets, Some(text)) => json!({ "anyOf": [number(), text] }),
        (_, Some(text)) => text,
        (_, None) => number(),
    };
    let default = match param.default {
        ParamDefault::Is(value @ Value::Number(x)) => {
            schema["default"] = match param.unit {
                Unit::One | Unit::Count | Unit::Packets => x.into(),
                unit => write(unit, value).into(),
            };
            String::new()
        }
        ParamDefault::Is(Value::Flag(x)) => {
            schema["default"] = x.into();
            String::new()
        }
        ParamDefault::Is(Value::Name(x)) => {
            schema["default"] = x.into();
            String::new()
        }
        ParamDefault::FromLink(_, how) => format!(" Default: {how}."),
    };
    let allowed =
        if param.unit == Unit::Flag { String::new() } else { format!(" Allowed: {}.", range(param)) };
    schema["description"] = format!("{}.{default}{allowed}", param.doc.trim_end_matches('.')).into();
    schema
}
