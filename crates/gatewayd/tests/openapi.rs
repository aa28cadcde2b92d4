//! The HTTP API answers as its OpenAPI 3.1 document says.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use bentpipe_gatewayd::observe::http::serve;
use serde_json::{Map, Value};

use crate::prometheus::shared;

/// Keywords of JSON Schema that [`check`] knows, with those that only describe.
const KEYWORDS: [&str; 10] = [
    "$ref",
    "type",
    "enum",
    "minimum",
    "maximum",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "description",
];

/// Checks a value by a schema (JSON Schema 2020-12, as far as [`KEYWORDS`]).
fn check(value: &Value, schema: &Value, document: &Value, at: &str) -> Result<(), String> {
    let words = schema.as_object().ok_or_else(|| format!("{at}: the schema is no object"))?;
    if let Some(unknown) = words.keys().find(|key| !KEYWORDS.contains(&key.as_str())) {
        return Err(format!("{at}: this check does not know the keyword {unknown}"));
    }
    if let Some(path) = words.get("$ref").and_then(Value::as_str) {
        let target = document.pointer(path.trim_start_matches('#'));
        check(value, target.ok_or_else(|| format!("{at}: {path} is missing"))?, document, at)?;
    }
    if let Some(kinds) = words.get("type") {
        let is = |kind: &Value| match kind.as_str() {
            Some("object") => value.is_object(),
            Some("array") => value.is_array(),
            Some("string") => value.is_string(),
            Some("number") => value.is_number(),
            Some("integer") => value.as_f64().is_some_and(|x| x.fract() == 0.0),
            Some("null") => value.is_null(),
            _ => false,
        };
        if !kinds.as_array().map_or_else(|| is(kinds), |kinds| kinds.iter().any(is)) {
            return Err(format!("{at}: {value} is not of type {kinds}"));
        }
    }
    if let Some(allowed) = words.get("enum").and_then(Value::as_array)
        && !allowed.contains(value)
    {
        return Err(format!("{at}: {value} is not among {allowed:?}"));
    }
    let bound = |name: &str| words.get(name).and_then(Value::as_f64);
    if let Some(x) = value.as_f64()
        && (bound("minimum").is_some_and(|least| x < least) || bound("maximum").is_some_and(|most| x > most))
    {
        return Err(format!("{at}: {x} is out of bounds"));
    }
    if let Some(fields) = value.as_object() {
        let none = Map::new();
        let known = words.get("properties").and_then(Value::as_object).unwrap_or(&none);
        for name in words.get("required").and_then(Value::as_array).into_iter().flatten() {
            if !fields.contains_key(name.as_str().unwrap_or_default()) {
                return Err(format!("{at}: {name} is missing"));
            }
        }
        for (name, field) in fields {
            match known.get(name) {
                Some(schema) => check(field, schema, document, &format!("{at}.{name}"))?,
                None if words.get("additionalProperties") == Some(&Value::Bool(false)) => {
                    return Err(format!("{at}: {name} is not in the document"));
                }
                None => {}
            }
        }
    }
    if let (Some(items), Some(schema)) = (value.as_array(), words.get("items")) {
        for (n, item) in items.iter().enumerate() {
            check(item, schema, document, &format!("{at}[{n}]"))?;
        }
    }
    Ok(())
}

/// A check that accepts everything would prove nothing.
#[test]
fn the_check_refuses_what_a_schema_does_not_allow() {
    let schema = serde_json::json!({
        "type": "object", "additionalProperties": false, "required": ["a"],
        "properties": {
            "a": { "type": ["integer", "null"], "minimum": 1, "maximum": 3 },
            "b": { "type": "array", "items": { "$ref": "#/x" } },
        },
    });
    let document = serde_json::json!({ "x": { "enum": ["y"] } });
    for (text, good) in [
        (r#"{"a": 1, "b": ["y", "y"]}"#, true),
        (r#"{"a": null}"#, true),
        (r#"{"b": []}"#, false),
        (r#"{"a": 0}"#, false),
        (r#"{"a": 4}"#, false),
        (r#"{"a": 1.5}"#, false),
        (r#"{"a": "1"}"#, false),
        (r#"{"a": 1, "b": ["z"]}"#, false),
        (r#"{"a": 1, "c": 1}"#, false),
        (r#"[]"#, false),
    ] {
        let value = serde_json::from_str(text).expect("JSON");
        assert_eq!(check(&value, &schema, &document, "").is_ok(), good, "{text}");
    }
    assert!(check(&Value::Null, &serde_json::json!({ "oneOf": [] }), &document, "").is_err());
}

/// Status, content type and body of an answer.
fn get(address: SocketAddr, path: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).expect("a listener");
    stream.write_all(format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes()).expect("a request");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
    let kind = head.lines().find_map(|line| line.strip_prefix("Content-Type: ")).expect("a content type");
    (status, kind.split(';').next().unwrap_or_default().to_owned(), body.to_owned())
}

/// Every path of the document is served, with the content and in the form that it gives; no other is.
#[test]
fn answers_are_those_of_the_openapi_document() {
    let address = serve("127.0.0.1:0".parse().expect("an address"), shared()).expect("a listener");
    let document: Value = serde_json::from_str(&get(address, "/openapi.json").2).expect("JSON");
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().expect("paths");
    let (status, _, listed) = get(address, "/none");
    assert_eq!(status, 404);
    let mut listed: Vec<&str> =
        listed.trim().trim_start_matches("not found; available: ").split(", ").collect();
    let mut described: Vec<&str> = paths.keys().map(String::as_str).collect();
    listed.sort_unstable();
    described.sort_unstable();
    assert_eq!(listed, described);
    for (path, operations) in paths {
        assert_eq!(operations.as_object().expect("operations").keys().collect::<Vec<_>>(), ["get"]);
        let answers = &operations["get"]["responses"];
        let (status, kind, body) = get(address, &path.replace("{terminal}", "t0"));
        // The samples are made up, and old.
        let expected = if path == "/healthz" { 503 } else { 200 };
        assert_eq!(status, expected, "{path}");
        assert!(answers.get(status.to_string()).is_some(), "{path}: {status} is not in the document");
        let content = answers["200"]["content"].as_object().expect("content");
        let (stated, form) = content.iter().next().expect("a content type");
        assert!(kind == *stated || status != 200, "{path}: {kind}");
        if kind == "application/json" {
            let value = serde_json::from_str(&body).expect("JSON");
            check(&value, &form["schema"], &document, path).unwrap_or_else(|problem| panic!("{problem}"));
        }
    }
    assert_eq!(get(address, "/terminals/none.json").0, 404);
    let answer: Value = serde_json::from_str(&get(address, "/terminals/t0.json").2).expect("JSON");
    assert_eq!(answer["terminal"]["terminal"], "t0");
}
