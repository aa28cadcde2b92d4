//! JSON Schema of a scenario file.

use schemars::schema_for;
use serde_json::{Value as Json, json};

use super::file::File;
use crate::reader::tree::{Path, Step};

/// Returns the JSON Schema of a scenario file.
#[must_use]
pub fn json_schema() -> String {
    let mut text = serde_json::to_string_pretty(&schema()).unwrap_or_default();
    text.push('\n');
    text
}

fn schema() -> Json {
    let mut schema = schema_for!(File).to_value();
    without_null(&mut schema);
    schema
}

/// Removes null: TOML has none, optional keys are omitted.
fn without_null(schema: &mut Json) {
    match schema {
        Json::Object(table) => {
            table.retain(|_, value| !value.is_null());
            if let Some(Json::Array(types)) = table.get_mut("type") {
                types.retain(|t| t != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    table.insert("type".to_owned(), only);
                }
            }
            if let Some(Json::Array(several)) = table.get_mut("anyOf") {
                several.retain(|s| *s != json!({ "type": "null" }));
                if let [Json::Object(only)] = several.as_mut_slice() {
                    let only = std::mem::take(only);
                    table.shift_remove("anyOf");
                    table.extend(only);
                }
            }
            table.values_mut().for_each(without_null);
        }
        Json::Array(items) => items.iter_mut().for_each(without_null),
        _ => {}
    }
}

/// Describes a missing required key with the schema's description and example.
pub fn required(path: &Path) -> String {
    let root = schema();
    let mut found = vec![&root];
    for step in path {
        found = found
            .into_iter()
            .flat_map(|s| alternatives(&root, s, 0))
            .filter_map(|s| inside(s, step))
            .collect();
    }
    let text = |key: &str| found.iter().find_map(|s| s.get(key));
    let what = text("description").and_then(Json::as_str).unwrap_or("it has no default").replace('\n', " ");
    let example = text("examples").and_then(|e| e.get(0)).and_then(Json::as_str);
    let example = example.map(|e| format!(", such as {e:?}")).unwrap_or_default();
    format!("required: {}{example}", what.trim_end_matches('.'))
}

/// Follows references and expands alternatives.
fn alternatives<'a>(root: &'a Json, schema: &'a Json, depth: usize) -> Vec<&'a Json> {
    if depth > 8 {
        return Vec::new();
    }
    if let Some(pointer) = schema.get("$ref").and_then(Json::as_str).and_then(|r| r.strip_prefix('#')) {
        return root.pointer(pointer).map(|s| alternatives(root, s, depth + 1)).unwrap_or_default();
    }
    let several = ["anyOf", "oneOf"].iter().find_map(|word| schema.get(word)).and_then(Json::as_array);
    match several {
        Some(several) => several.iter().flat_map(|s| alternatives(root, s, depth + 1)).collect(),
        None => vec![schema],
    }
}

fn inside<'a>(schema: &'a Json, step: &Step) -> Option<&'a Json> {
    match step {
        Step::Key(key) => schema
            .get("properties")
            .and_then(|p| p.get(key))
            .or_else(|| schema.get("additionalProperties").filter(|s| s.is_object())),
        Step::Index(_) => schema.get("items"),
    }
}
