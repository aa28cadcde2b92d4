//! An AQM as a file gives it. Which keys it may have depends on the algorithm, so they are read as they come, and
//! checked against the registry later.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde::{Serialize, Serializer};

/// The keys of an AQM's table.
#[derive(Clone, Debug, Default)]
pub struct Aqm(pub Vec<(String, Scalar)>);

/// A value of one of its keys.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Scalar {
    Text(String),
    Integer(i64),
    Float(f64),
    Flag(bool),
}

impl Aqm {
    pub fn get(&self, key: &str) -> Option<&Scalar> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, value)| value)
    }
}

impl<'de> Deserialize<'de> for Aqm {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Vec<(String, Scalar)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table such as { preset = \"RED 4\" }")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(entries)
            }
        }
        from.deserialize_any(Reader).map(Self)
    }
}

impl Serialize for Aqm {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, a value with its unit in quotes, or true or false")
            }

            fn visit_str<E: Error>(self, x: &str) -> Result<Scalar, E> {
                Ok(Scalar::Text(x.to_owned()))
            }

            fn visit_i64<E: Error>(self, x: i64) -> Result<Scalar, E> {
                Ok(Scalar::Integer(x))
            }

            fn visit_f64<E: Error>(self, x: f64) -> Result<Scalar, E> {
                Ok(Scalar::Float(x))
            }

            fn visit_bool<E: Error>(self, x: bool) -> Result<Scalar, E> {
                Ok(Scalar::Flag(x))
            }
        }
        from.deserialize_any(Reader)
    }
}
