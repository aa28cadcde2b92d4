//! Effective keys: the keys of a file with every default filled in.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use toml::de::DeValue;

use crate::reader::tree::{At, Node, Path, Step, Value as NodeValue, bare_or_quoted, dotted, step};
use crate::schema::file::File;
use crate::schema::forms::DISTRIBUTIONS;

/// A key of a scenario with its effective value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Effective {
    /// Dotted key as in `--set`.
    pub key: String,
    /// Value with its unit as in `--set`; "none" for an optional key without value.
    pub value: String,
    /// Origin of the value.
    pub origin: Origin,
    /// Explanation of the value; may be empty.
    pub note: String,
}

/// Origin of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Scenario file.
    Given,
    /// Override.
    Override,
    /// Requested setting.
    Setting,
    /// Preset that the AQM names.
    Preset,
    /// Default.
    Default,
}

/// Origin and explanation of values, by dotted key.
pub type Notes = BTreeMap<String, (Option<Origin>, String)>;

/// Lists every key of `file`, whose defaults are filled in.
pub fn list((root, notes): (&Node, &Notes), file: &File) -> Vec<Effective> {
    let mut out = Vec::new();
    let sections = serde_json::to_value(file).unwrap_or_default();
    let section = |out: &mut Vec<Effective>, name: &str| {
        if let Some(value) = sections.get(name) {
            flatten((root, notes), &[Step::Key(name.to_owned())], value, out);
        }
    };
    for name in ["run", "host", "router", "terminal", "plan", "pool", "carrier", "link"] {
        section(&mut out, name);
    }
    let several = matches!(root.get("gateway").map(|n| &n.value), Some(NodeValue::Array(_)));
    for (i, gateway) in file.gateway.0.iter().enumerate() {
        let mut path = vec![Step::Key("gateway".to_owned())];
        if several {
            path.push(Step::Index(i));
        }
        flatten((root, notes), &path, &serde_json::to_value(gateway).unwrap_or_default(), &mut out);
    }
    for name in ["transport", "traffic", "thresholds", "model"] {
        section(&mut out, name);
    }
    out
}

pub fn flatten((root, notes): (&Node, &Notes), path: &Path, value: &Value, out: &mut Vec<Effective>) {
    match value {
        // A section has tables of any names.
        Value::Object(table) if path.len() < 2 || !is_one_value(table) => {
            for (key, value) in table {
                flatten((root, notes), &step(path, key), value, out);
            }
        }
        _ => {
            let key = dotted(root, path);
            let (origin, note) = notes.get(&key).cloned().unwrap_or_default();
            let origin = origin.unwrap_or_else(|| origin_of(root, path));
            out.push(Effective { key, value: written(value), origin, note });
        }
    }
}

/// True for a table that is set as a whole: a distribution, a loss model, a capacity, or a limit with several bounds.
fn is_one_value(table: &serde_json::Map<String, Value>) -> bool {
    const MORE: [&str; 6] = ["jitter", "probability", "nth", "gilbert_elliott", "bit_error_rate", "modcod"];
    let distribution = |key: &String| DISTRIBUTIONS.contains(&key.as_str()) || MORE.contains(&key.as_str());
    let limit = |key: &String| matches!(key.as_str(), "packets" | "bytes" | "time");
    // Traffic, which has a kind, may have a key `trace` too.
    (table.keys().any(distribution) && !table.contains_key("kind"))
        || (!table.is_empty() && table.keys().all(limit))
}

fn origin_of(root: &Node, path: &Path) -> Origin {
    let Some((last, around)) = path.split_last() else { return Origin::Default };
    let is_last = |key: &str| matches!(last, Step::Key(k) if k == key);
    let at = root.find(around).and_then(|table| match table.value {
        // A scheduler or marking method given by name alone.
        NodeValue::Text(_) => (is_last("algorithm") || is_last("method")).then_some(table.at),
        _ => table.entries().iter().find(|e| is_last(&e.key)).map(|e| e.node.at),
    });
    match at {
        Some(At::File(_)) => Origin::Given,
        Some(At::Override(_)) => Origin::Override,
        Some(At::Setting) => Origin::Setting,
        None => Origin::Default,
    }
}

/// Formats a value as in `--set`: without quotes unless it would be taken for something else.
fn written(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) if DeValue::parse(text).is_err() && text.trim() == text && text != "none" => {
            text.clone()
        }
        value => toml_text(value),
    }
}

fn toml_text(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            format!("[{}]", items.iter().map(toml_text).collect::<Vec<_>>().join(", "))
        }
        Value::Object(table) => {
            let entries = table.iter().filter(|(_, v)| !v.is_null());
            let entries: Vec<_> =
                entries.map(|(key, v)| format!("{} = {}", bare_or_quoted(key), toml_text(v))).collect();
            format!("{{ {} }}", entries.join(", "))
        }
        // TOML and JSON have the same strings, numbers and booleans.
        other => other.to_string(),
    }
}
