//! Limits of good and bad.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::forms::Named;
use crate::model::MEASURES;

/// Limits by measure of quality.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Thresholds(pub Named<Limits>);

impl Thresholds {
    pub fn is_empty(&self) -> bool {
        self.0.0.is_empty()
    }
}

impl JsonSchema for Thresholds {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Thresholds".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let limits = generator.subschema_for::<Limits>();
        let measures: serde_json::Map<_, _> =
            MEASURES.iter().map(|m| (m.name.to_owned(), limits.clone().to_value())).collect();
        json_schema!({ "type": "object", "properties": measures, "additionalProperties": false })
    }
}

/// Limits of a measure, in the unit of docs/qoe.md.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Limit up to which, or from which, values are good. Default: that of docs/qoe.md.
    pub good: Option<f64>,
    /// Limit beyond which values are bad; at it they are fair. Default: that of docs/qoe.md.
    pub bad: Option<f64>,
}
