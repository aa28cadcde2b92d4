//! The list of keys in effect: what a file says with every default filled in.

use serde_json::Value;
use toml::de::DeValue;

use crate::file::{File, LAWS};
use crate::resolve::{Cx, step};
use crate::scenario::{Effective, Origin};
use crate::tree::{At, Path, Step, Value as NodeValue, bare_or_quoted, dotted};

/// Every key of `file`, in which defaults are filled in.
pub fn list(cx: &Cx<'_>, file: &File) -> Vec<Effective> {
    let mut out = Vec::new();
    let sections = serde_json::to_value(file).unwrap_or_default();
    let section = |out: &mut Vec<Effective>, name: &str| {
        if let Some(value) = sections.get(name) {
            flatten(cx, &[Step::Key(name.to_owned())], value, out);
        }
    };
    for name in ["run", "host", "router", "link"] {
        section(&mut out, name);
    }
    let several = matches!(cx.root.get("gateway").map(|n| &n.value), Some(NodeValue::Array(_)));
    for (i, gateway) in file.gateway.0.iter().enumerate() {
        let mut path = vec![Step::Key("gateway".to_owned())];
        if several {
            path.push(Step::Index(i));
        }
        flatten(cx, &path, &serde_json::to_value(gateway).unwrap_or_default(), &mut out);
    }
    for name in ["transport", "traffic", "model"] {
        section(&mut out, name);
    }
    out
}

pub fn flatten(cx: &Cx<'_>, path: &Path, value: &Value, out: &mut Vec<Effective>) {
    match value {
        Value::Object(table) if !is_one_value(table) => {
            for (key, value) in table {
                flatten(cx, &step(path, key), value, out);
            }
        }
        _ => {
            let key = dotted(cx.root, path);
            let (origin, note) = cx.notes.get(&key).cloned().unwrap_or_default();
            let origin = origin.unwrap_or_else(|| origin_of(cx, path));
            out.push(Effective { key, value: written(value), origin, note });
        }
    }
}

/// Whether a table is one value, set as a whole: a distribution, a law of loss, a capacity, or a limit with both bounds.
fn is_one_value(table: &serde_json::Map<String, Value>) -> bool {
    const MORE: [&str; 6] = ["jitter", "probability", "nth", "gilbert_elliott", "bit_error_rate", "modcod"];
    let law = |key: &String| LAWS.contains(&key.as_str()) || MORE.contains(&key.as_str());
    let limit = |key: &String| matches!(key.as_str(), "packets" | "bytes");
    // Traffic, which has a kind, may be given by a trace too.
    (table.keys().any(law) && !table.contains_key("kind")) || (!table.is_empty() && table.keys().all(limit))
}

fn origin_of(cx: &Cx<'_>, path: &Path) -> Origin {
    let Some((last, around)) = path.split_last() else { return Origin::Default };
    let is_last = |key: &str| matches!(last, Step::Key(k) if k == key);
    let at = cx.root.find(around).and_then(|table| match table.value {
        // A scheduler or a marking method that is given by its name alone.
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

/// A value as `--set` takes it: without quotes, unless it could be taken for something else.
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
        // JSON's texts, numbers and words are TOML's.
        other => other.to_string(),
    }
}
