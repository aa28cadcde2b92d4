//! Differentiated services codepoints.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use serde::{Serialize, Serializer};

/// A codepoint, 0 to 63 (RFC 2474).
#[derive(Clone, Copy, Debug)]
pub struct Dscp(pub u8);

/// Names of codepoints: RFC 2474 (CS), RFC 2597 (AF), RFC 3246 (EF), RFC 5865 (VA), RFC 8622 (LE).
const NAMES: [(&str, u8); 23] = [
    ("CS0", 0),
    ("LE", 1),
    ("CS1", 8),
    ("AF11", 10),
    ("AF12", 12),
    ("AF13", 14),
    ("CS2", 16),
    ("AF21", 18),
    ("AF22", 20),
    ("AF23", 22),
    ("CS3", 24),
    ("AF31", 26),
    ("AF32", 28),
    ("AF33", 30),
    ("CS4", 32),
    ("AF41", 34),
    ("AF42", 36),
    ("AF43", 38),
    ("CS5", 40),
    ("VA", 44),
    ("EF", 46),
    ("CS6", 48),
    ("CS7", 56),
];

fn names() -> Vec<&'static str> {
    NAMES.iter().map(|(name, _)| *name).collect()
}

impl Serialize for Dscp {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match NAMES.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => name.serialize(to),
            None => self.0.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Dscp {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Dscp;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a whole number from 0 to 63, or one of {}", names().join(", "))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Dscp, E> {
                let found = NAMES.iter().find(|(name, _)| *name == text);
                found
                    .map(|(_, number)| Dscp(*number))
                    .ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }

            fn visit_i64<E: Error>(self, x: i64) -> Result<Dscp, E> {
                let number = u8::try_from(x).ok().filter(|number| *number < 64);
                number.map(Dscp).ok_or_else(|| E::invalid_value(Unexpected::Signed(x), &self))
            }
        }
        from.deserialize_any(Reader)
    }
}

impl JsonSchema for Dscp {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Dscp".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "enum": names() }, { "type": "integer", "minimum": 0, "maximum": 63 }] })
    }
}
