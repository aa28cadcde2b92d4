//! Profile of a day.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::quantity::{Span, Time};

/// Points of a day: time of day and share.
pub type Points = Vec<(Time, f64)>;

/// Load over a day: points, or a table with more keys.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Profile {
    Points(Points),
    Table(ProfileTable),
}

/// Load over a day.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Profile")]
pub struct ProfileTable {
    /// Points of a day: pairs of a time below 24 h and the share of the peak, from 0 to 1. The share is linear between points,
    /// and from the last to the first of the next day.
    pub points: Points,
    /// Duration of a day in the run, to which the times are scaled.
    #[serde(default = "day")]
    pub day: Span,
    /// Time of day at which the run begins, below 24 h.
    #[serde(default = "Time::just::<0>")]
    pub start: Time,
}

impl Profile {
    /// Returns the points, the duration of a day and the time of day at which the run begins.
    pub fn parts(&self) -> (&Points, Span, Time) {
        match self {
            Self::Points(points) => (points, day(), Time::of(0)),
            Self::Table(table) => (&table.points, table.day, table.start),
        }
    }
}

impl<'de> Deserialize<'de> for Profile {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Profile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("pairs of time and share such as [[\"6 h\", 0.2], [\"20 h\", 1.0]], or a table with points")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Profile, A::Error> {
                Points::deserialize(SeqAccessDeserializer::new(items)).map(Profile::Points)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Profile, A::Error> {
                ProfileTable::deserialize(MapAccessDeserializer::new(map)).map(Profile::Table)
            }
        }
        from.deserialize_any(Reader)
    }
}

impl JsonSchema for Profile {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "PointsOrProfile".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [generator.subschema_for::<Points>(), generator.subschema_for::<ProfileTable>()] })
    }
}

fn day() -> Span {
    Span::of(24 * 3_600_000_000_000)
}
