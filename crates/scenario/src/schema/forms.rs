//! Value forms that several keys share.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, IntoDeserializer, MapAccess, Unexpected, Visitor};
use serde::{Serialize, Serializer};

use super::quantity::{Kind, Quantity, Whole};

/// A plain value, or a table.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Either<P, T> {
    Plain(P),
    Table(T),
}

impl<'de, P: Deserialize<'de>, T: Deserialize<'de>> Deserialize<'de> for Either<P, T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader<P, T>(PhantomData<(P, T)>);
        impl<'de, P: Deserialize<'de>, T: Deserialize<'de>> Visitor<'de> for Reader<P, T> {
            type Value = Either<P, T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value with its unit, or a table")
            }

            fn visit_str<E: Error>(self, x: &str) -> Result<Self::Value, E> {
                P::deserialize(IntoDeserializer::<E>::into_deserializer(x)).map(Either::Plain)
            }

            fn visit_i64<E: Error>(self, x: i64) -> Result<Self::Value, E> {
                P::deserialize(IntoDeserializer::<E>::into_deserializer(x)).map(Either::Plain)
            }

            fn visit_f64<E: Error>(self, x: f64) -> Result<Self::Value, E> {
                P::deserialize(IntoDeserializer::<E>::into_deserializer(x)).map(Either::Plain)
            }

            fn visit_bool<E: Error>(self, x: bool) -> Result<Self::Value, E> {
                P::deserialize(IntoDeserializer::<E>::into_deserializer(x)).map(Either::Plain)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Either::Table)
            }
        }
        from.deserialize_any(Reader(PhantomData))
    }
}

impl<P: JsonSchema, T: JsonSchema> JsonSchema for Either<P, T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("{}Or{}", P::schema_name(), T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [generator.subschema_for::<P>(), generator.subschema_for::<T>()] })
    }
}

/// A quantity of one of two kinds, which its unit tells apart.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged, bound = "")]
pub enum OneOf<A: Kind, B: Kind> {
    First(Quantity<A>),
    Second(Quantity<B>),
}

impl<'de, A: Kind, B: Kind> Deserialize<'de> for OneOf<A, B> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader<A, B>(PhantomData<(A, B)>);
        impl<A: Kind, B: Kind> Visitor<'_> for Reader<A, B> {
            type Value = OneOf<A, B>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}, or {}", A::DIMENSION.allowed(), B::DIMENSION.allowed())
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                let wrong = |allowed: &str| E::invalid_value(Unexpected::Str(text), &allowed);
                if A::DIMENSION.read(text).is_some() {
                    let number = A::DIMENSION.read_within(text, A::MIN, A::MAX);
                    return number.map(|n| OneOf::First(Quantity::of(n))).map_err(|allowed| wrong(&allowed));
                }
                if B::DIMENSION.read(text).is_some() {
                    let number = B::DIMENSION.read_within(text, B::MIN, B::MAX);
                    return number.map(|n| OneOf::Second(Quantity::of(n))).map_err(|allowed| wrong(&allowed));
                }
                Err(E::invalid_value(Unexpected::Str(text), &self))
            }

            fn visit_i64<E: Error>(self, x: i64) -> Result<Self::Value, E> {
                Err(E::invalid_value(Unexpected::Other(&format!("{x}, without a unit")), &self))
            }

            fn visit_f64<E: Error>(self, x: f64) -> Result<Self::Value, E> {
                Err(E::invalid_value(Unexpected::Other(&format!("{x}, without a unit")), &self))
            }
        }
        from.deserialize_any(Reader(PhantomData))
    }
}

impl<A: Kind, B: Kind> JsonSchema for OneOf<A, B> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "OneOf".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [Quantity::<A>::text_schema(), Quantity::<B>::text_schema()] })
    }
}

/// A probability distribution; a plain quantity is a constant.
pub type Distribution<K> = Either<Quantity<K>, Box<DistributionTable<K>>>;

/// A probability distribution: one of the keys.
#[derive(Clone, Debug, serde::Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, bound = "")]
#[schemars(inline, bound = "K: Kind")]
pub struct DistributionTable<K: Kind> {
    /// Bounds of a uniform distribution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uniform: Option<[Quantity<K>; 2]>,
    /// Mean of an exponential distribution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exponential: Option<Quantity<K>>,
    /// Normal distribution, redrawn while negative.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub normal: Option<Normal<K>>,
    /// Erlang distribution: sum of exponentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub erlang: Option<Erlang<K>>,
    /// Pareto distribution: a power-law tail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pareto: Option<Pareto<K>>,
    /// Mixture: values or distributions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "choice::<K>")]
    pub choice: Option<Vec<Distribution<K>>>,
    /// Relative probabilities of the entries of `choice`. Default: all are equally likely.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<Vec<f64>>,
    /// File with one number per line, all equally likely: bytes, or seconds. `#` starts a comment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

impl<K: Kind> Distribution<K> {
    /// Returns an exponential distribution.
    pub fn exponential(mean: Quantity<K>) -> Self {
        Self::Table(Box::new(DistributionTable {
            uniform: None,
            exponential: Some(mean),
            normal: None,
            erlang: None,
            pareto: None,
            choice: None,
            weights: None,
            trace: None,
        }))
    }
}

/// Keys of a [`DistributionTable`] that select a distribution.
pub const DISTRIBUTIONS: [&str; 7] =
    ["uniform", "exponential", "normal", "erlang", "pareto", "choice", "trace"];

/// Schema of a mixture's entries: a value, or a distribution with the same keys as the table around it.
fn choice<K: Kind>(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "minItems": 1,
        "items": { "anyOf": [Quantity::<K>::text_schema(), { "type": "object" }] },
    })
}

/// A normal distribution.
#[derive(Clone, Debug, serde::Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, bound = "")]
#[schemars(inline, bound = "K: Kind")]
pub struct Normal<K: Kind> {
    /// Mean before truncation at zero.
    pub mean: Quantity<K>,
    /// Standard deviation before truncation at zero.
    pub std: Quantity<K>,
}

/// An Erlang distribution.
#[derive(Clone, Debug, serde::Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, bound = "")]
#[schemars(inline, bound = "K: Kind")]
pub struct Erlang<K: Kind> {
    /// Number of exponentials.
    pub shape: Whole<1, 1000>,
    /// Mean of the sum.
    pub mean: Quantity<K>,
}

/// A Pareto distribution.
#[derive(Clone, Debug, serde::Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, bound = "")]
#[schemars(inline, bound = "K: Kind")]
pub struct Pareto<K: Kind> {
    /// Exponent of the tail, above 1; the variance is infinite up to 2.
    #[schemars(range(min = 1.0))]
    pub shape: f64,
    /// Mean.
    pub mean: Quantity<K>,
}

/// Tables by name, in the order of the file.
#[derive(Clone, Debug)]
pub struct Named<T>(pub Vec<(String, T)>);

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Named<T> {
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> + Clone {
        self.0.iter().map(|(name, x)| (name.as_str(), x))
    }

    pub fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.iter().map(|(name, _)| name)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Reader<T> {
            type Value = Vec<(String, T)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut named = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    named.push(entry);
                }
                Ok(named)
            }
        }
        from.deserialize_map(Reader(PhantomData)).map(Self)
    }
}

impl<T: Serialize> Serialize for Named<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.iter())
    }
}

impl<T: JsonSchema> JsonSchema for Named<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("NamedOf{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "additionalProperties": generator.subschema_for::<T>() })
    }
}

/// A share of a whole, below 1.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Share(pub f64);

/// A probability, up to 1.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Chance(pub f64);

/// A number from 0 to 1, including 1 or not.
struct Unit {
    with_one: bool,
}

impl Visitor<'_> for Unit {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.with_one { "a number from 0 to 1" } else { "a number, at least 0 and below 1" })
    }

    fn visit_i64<E: Error>(self, x: i64) -> Result<f64, E> {
        match x {
            0 => Ok(0.0),
            1 if self.with_one => Ok(1.0),
            _ => Err(E::invalid_value(Unexpected::Signed(x), &self)),
        }
    }

    fn visit_f64<E: Error>(self, x: f64) -> Result<f64, E> {
        if (0.0..1.0).contains(&x) || (self.with_one && x == 1.0) {
            Ok(x)
        } else {
            Err(E::invalid_value(Unexpected::Float(x), &self))
        }
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Unit { with_one: false }).map(Self)
    }
}

impl<'de> Deserialize<'de> for Chance {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Unit { with_one: true }).map(Self)
    }
}

impl JsonSchema for Share {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Share".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number", "minimum": 0, "exclusiveMaximum": 1 })
    }
}

impl JsonSchema for Chance {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Chance".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number", "minimum": 0, "maximum": 1 })
    }
}

/// Adds the key that selects a variant to the schema of the variant's table.
pub fn tagged(mut schema: Schema, key: &str, name: &str, description: &str) -> Schema {
    let tag = serde_json::json!({ "const": name, "description": description });
    if let Some(properties) = schema.get_mut("properties").and_then(|p| p.as_object_mut()) {
        properties.insert(key.to_owned(), tag);
    }
    match schema.get_mut("required").and_then(|r| r.as_array_mut()) {
        Some(required) => required.insert(0, key.into()),
        None => {
            schema.insert("required".to_owned(), serde_json::json!([key]));
        }
    }
    schema
}

/// Defines an enum of tables, of which the key `$tag` selects one by its value.
macro_rules! tables {
    ($(#[$doc:meta])* $name:ident by $tag:literal ($about:literal) { $($value:literal: $variant:ident($table:ty),)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, serde::Deserialize)]
        pub enum $name {
            $(#[serde(rename = $value)] $variant($table),)*
        }

        impl $name {
            /// Returns the schemas of all tables, each with its value of the key.
            fn schemas(generator: &mut SchemaGenerator) -> Vec<Schema> {
                let schemas = [$(($value, <$table>::json_schema(generator))),*];
                schemas.map(|(value, schema)| super::forms::tagged(schema, $tag, value, $about)).to_vec()
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                use serde::ser::Error as _;
                let (value, contents) = match self {
                    $(Self::$variant(t) => ($value, serde_json::to_value(t)),)*
                };
                let mut table = serde_json::Map::from_iter([($tag.to_owned(), value.into())]);
                if let serde_json::Value::Object(contents) = contents.map_err(S::Error::custom)? {
                    table.extend(contents);
                }
                table.serialize(to)
            }
        }
    };
}
pub(super) use tables;
