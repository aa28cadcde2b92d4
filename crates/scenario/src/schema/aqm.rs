//! Algorithms of a queue as a file gives them: AQMs, schedulers and marking methods. Their keys depend on the algorithm, so
//! they are read as they are and checked against the registry later.

use std::fmt;
use std::marker::PhantomData;

use bentpipe_queue::Values;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Serialize, Serializer};

use super::param::scalar;
use super::quantity::Time;

/// Keys of an AQM's table.
#[derive(Clone, Debug, Default)]
pub struct Aqm(pub Vec<(String, Scalar)>);

/// An algorithm by its name, or a table with its name under a key and its parameters. Empty if the file gives none.
#[derive(Clone, Debug)]
pub struct Selected<S>(pub Vec<(String, Scalar)>, PhantomData<S>);

/// The key of an algorithm's name in its table.
pub trait Selector {
    const KEY: &str;
    const ALLOWED: &str;
}

/// A scheduler.
pub type Scheduler = Selected<BySchedulerName>;

#[derive(Clone, Copy, Debug)]
pub struct BySchedulerName;

impl Selector for BySchedulerName {
    const KEY: &str = "algorithm";
    const ALLOWED: &str =
        "a name such as \"fifo\", or a table such as { algorithm = \"drr\", quantum = \"1500 B\" }";
}

/// A gateway's marking method.
pub type Marking = Selected<ByMethod>;

#[derive(Clone, Copy, Debug)]
pub struct ByMethod;

impl Selector for ByMethod {
    const KEY: &str = "method";
    const ALLOWED: &str = "a name such as \"drop\", or a table such as { method = \"window\", decr = 0.97 }";
}

impl<S> Default for Selected<S> {
    fn default() -> Self {
        Self(Vec::new(), PhantomData)
    }
}

impl<S: Selector> Selected<S> {
    pub fn named(name: &str) -> Self {
        Self(vec![(S::KEY.to_owned(), Scalar::Text(name.to_owned()))], PhantomData)
    }

    pub fn get(&self, key: &str) -> Option<&Scalar> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, value)| value)
    }

    /// Replaces the table by the name and all values.
    pub fn complete(&mut self, name: &str, values: &Values) {
        *self = Self::named(name);
        self.0.extend(values.iter().map(|(param, value)| (param.name.to_owned(), scalar(param.unit, value))));
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

impl<'de, S: Selector> Deserialize<'de> for Selected<S> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader<S>(PhantomData<S>);
        impl<'de, S: Selector> Visitor<'de> for Reader<S> {
            type Value = Selected<S>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(S::ALLOWED)
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Selected<S>, E> {
                Ok(Selected::named(name))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Selected<S>, A::Error> {
                Aqm::deserialize(serde::de::value::MapAccessDeserializer::new(map))
                    .map(|table| Selected(table.0, PhantomData))
            }
        }
        from.deserialize_any(Reader(PhantomData))
    }
}

impl<K: Selector> Serialize for Selected<K> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [(key, name)] if key == K::KEY => name.serialize(to),
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
