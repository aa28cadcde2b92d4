//! Algorithms of a queue as a file gives them: AQMs, schedulers and marking methods. Their keys depend on the algorithm, so
//! they are read as they are and checked against the registry later.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Serialize, Serializer};

use super::quantity::Time;

/// Keys of an AQM's table.
#[derive(Clone, Debug, Default)]
pub struct Aqm(pub Vec<(String, Scalar)>);

/// A scheduler: its name, or a table with its name under `algorithm` and its parameters.
#[derive(Clone, Debug)]
pub struct Scheduler(pub Vec<(String, Scalar)>);

/// A gateway's marking method: its name, or a table with its name under `method` and its parameters. Empty if the file
/// gives none.
#[derive(Clone, Debug, Default)]
pub struct Marking(pub Vec<(String, Scalar)>);

impl Marking {
    pub fn get(&self, key: &str) -> Option<&Scalar> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, value)| value)
    }
}

impl Scheduler {
    pub fn named(name: &str) -> Self {
        Self(vec![("algorithm".to_owned(), Scalar::Text(name.to_owned()))])
    }

    pub fn get(&self, key: &str) -> Option<&Scalar> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, value)| value)
    }
}

/// A value of a key.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Scalar {
    Text(String),
    Integer(i64),
    Float(f64),
    Flag(bool),
    /// Pairs of a start time and a number.
    Steps(Vec<(Time, f64)>),
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
                f.write_str("a table such as { algorithm = \"red\" } or { preset = \"RED 4\" }")
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

impl<'de> Deserialize<'de> for Scheduler {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Scheduler;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name such as \"fifo\", or a table such as { algorithm = \"drr\", quantum = \"1500 B\" }")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Scheduler, E> {
                Ok(Scheduler::named(name))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Scheduler, A::Error> {
                Aqm::deserialize(serde::de::value::MapAccessDeserializer::new(map))
                    .map(|table| Scheduler(table.0))
            }
        }
        from.deserialize_any(Reader)
    }
}

impl Serialize for Scheduler {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [(key, name)] if key == "algorithm" => name.serialize(to),
            entries => to.collect_map(entries.iter().map(|(key, value)| (key, value))),
        }
    }
}

impl<'de> Deserialize<'de> for Marking {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Marking;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a name such as \"drop\", or a table such as { method = \"window\", decr = 0.97 }",
                )
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Marking, E> {
                Ok(Marking(vec![("method".to_owned(), Scalar::Text(name.to_owned()))]))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Marking, A::Error> {
                Aqm::deserialize(serde::de::value::MapAccessDeserializer::new(map))
                    .map(|table| Marking(table.0))
            }
        }
        from.deserialize_any(Reader)
    }
}

impl Serialize for Marking {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [(key, name)] if key == "method" => name.serialize(to),
            entries => to.collect_map(entries.iter().map(|(key, value)| (key, value))),
        }
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
        impl<'de> Visitor<'de> for Reader {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, a name or a value with its unit in quotes, or true or false")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Scalar, A::Error> {
                let mut steps = Vec::new();
                while let Some(step) = seq.next_element()? {
                    steps.push(step);
                }
                Ok(Scalar::Steps(steps))
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
