//! Deserializes a tree into structs, and locates mistakes.
//!
//! Enums whose variants have fields (kinds of traffic, protocols of transports) are tables in which one key names the
//! variant.

use std::fmt::Display;

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, Expected, IntoDeserializer as _, MapAccess,
    SeqAccess, Unexpected, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use crate::error::{choices, quoted};
use crate::reader::tree::{Entry, Node, Step, Value};

/// Enums whose variants have fields: the key that names the variant, and the default variant.
const TAGGED: [(&str, &str, Option<&str>); 2] =
    [("Traffic", "kind", None), ("Transport", "protocol", Some("tcp"))];

/// An error, and the path from the node being read.
#[derive(Debug)]
pub struct Wrong {
    /// Path, last step first.
    pub way: Vec<Step>,
    /// True if the key is wrong, false if its value is.
    pub key: bool,
    /// Message: what was found and what is allowed.
    pub problem: String,
}

impl Wrong {
    fn value(problem: String) -> Self {
        Self { way: Vec::new(), key: false, problem }
    }

    fn at(mut self, step: Step) -> Self {
        self.way.push(step);
        self
    }
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.problem)
    }
}

impl std::error::Error for Wrong {}

impl serde::de::Error for Wrong {
    fn custom<T: Display>(problem: T) -> Self {
        Self::value(problem.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, allowed: &dyn Expected) -> Self {
        Self::invalid_value(found, allowed)
    }

    fn invalid_value(found: Unexpected<'_>, allowed: &dyn Expected) -> Self {
        let found = match found {
            Unexpected::Str(text) => quoted(text),
            Unexpected::Signed(x) => x.to_string(),
            Unexpected::Unsigned(x) => x.to_string(),
            // 5.0 is not 5.
            Unexpected::Float(x) => format!("{x:?}"),
            Unexpected::Bool(x) => x.to_string(),
            Unexpected::Seq => "an array".to_owned(),
            Unexpected::Map => "a table".to_owned(),
            other => other.to_string(),
        };
        Self::value(format!("found {found}; allowed: {allowed}"))
    }

    fn unknown_variant(found: &str, allowed: &'static [&'static str]) -> Self {
        Self::value(format!("found {}; {}", quoted(found), choices(found, allowed.iter().copied())))
    }

    fn unknown_field(found: &str, allowed: &'static [&'static str]) -> Self {
        Self {
            way: Vec::new(),
            key: true,
            problem: format!("no such key; {}", choices(found, allowed.iter().copied())),
        }
    }

    fn missing_field(key: &'static str) -> Self {
        Self::value("missing".to_owned()).at(Step::Key(key.to_owned()))
    }
}

/// Deserializer of one node.
pub struct Reader<'a>(pub &'a Node);

impl<'a> Reader<'a> {
    fn refuse(&self, allowed: &str) -> Wrong {
        let found = match &self.0.value {
            Value::Text(text) => quoted(text),
            Value::Array(_) => "an array".to_owned(),
            Value::Table(_) => "a table".to_owned(),
            _ => self.0.to_string(),
        };
        Wrong::value(format!("found {found}; allowed: {allowed}"))
    }
}

impl<'de> Deserializer<'de> for Reader<'de> {
    type Error = Wrong;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match &self.0.value {
            Value::Text(text) => visitor.visit_borrowed_str(text),
            Value::Integer(x) => visitor.visit_i64(*x),
            Value::Float(x) => visitor.visit_f64(*x),
            Value::Flag(x) => visitor.visit_bool(*x),
            Value::Other(_) => Err(self.refuse(&(&visitor as &dyn Expected).to_string())),
            Value::Array(items) => visitor.visit_seq(Items(items.iter().enumerate())),
            Value::Table(entries) => visitor.visit_map(Entries::of(entries)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match self.0.value {
            Value::Flag(x) => visitor.visit_bool(x),
            _ => Err(self.refuse("true or false")),
        }
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match self.0.value {
            Value::Integer(x @ 0..) => visitor.visit_i64(x),
            // An integer beyond 64 bits with sign; dates have such characters.
            Value::Other(ref text) if !text.contains(['-', ':']) => {
                Err(self.refuse(&format!("a whole number, at most {}", i64::MAX)))
            }
            _ => Err(self.refuse("a whole number, not negative")),
        }
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match self.0.value {
            Value::Integer(x) => visitor.visit_f64(x as f64),
            Value::Float(x) if x.is_finite() => visitor.visit_f64(x),
            _ => Err(self.refuse("a number")),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match &self.0.value {
            Value::Text(text) => visitor.visit_borrowed_str(text),
            _ => Err(self.refuse("a text in quotes")),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match &self.0.value {
            Value::Array(items) => visitor.visit_seq(Items(items.iter().enumerate())),
            _ => Err(self.refuse("an array")),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Wrong> {
        let allowed = format!("an array of {len}");
        match &self.0.value {
            Value::Array(items) if items.len() == len => visitor.visit_seq(Items(items.iter().enumerate())),
            Value::Array(items) => {
                Err(Wrong::value(format!("found an array of {}; allowed: {allowed}", items.len())))
            }
            _ => Err(self.refuse(&allowed)),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match &self.0.value {
            Value::Table(entries) => visitor.visit_map(Entries::of(entries)),
            _ => Err(self.refuse("a table")),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        let tag = TAGGED.iter().find(|tag| tag.0 == name);
        match (&self.0.value, tag) {
            (Value::Text(name), _) => visitor.visit_enum(Variant { name, entries: None }),
            (Value::Table(entries), Some(&(_, key, default))) => {
                let place = || Step::Key(key.to_owned());
                let name = match self.0.get(key).map(|n| (n, &n.value)) {
                    Some((_, Value::Text(name))) => name.as_str(),
                    Some((node, _)) => return Err(Reader(node).refuse(&variants.join(", ")).at(place())),
                    None => default.ok_or_else(|| {
                        Wrong::value(format!("missing; allowed: {}", variants.join(", "))).at(place())
                    })?,
                };
                if !variants.contains(&name) {
                    return Err(Wrong::unknown_variant(name, variants).at(place()));
                }
                visitor.visit_enum(Variant { name, entries: Some((entries, key)) })
            }
            (Value::Integer(_) | Value::Float(_), _) if variants.iter().any(|v| v.parse::<f64>().is_ok()) => {
                let texts: Vec<_> = variants.iter().map(|name| quoted(name)).collect();
                Err(self.refuse(&format!("{}, with the quotes", texts.join(", "))))
            }
            _ => Err(self.refuse(&variants.join(", "))),
        }
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u128 f32 char str bytes byte_buf unit unit_struct tuple_struct
        identifier ignored_any
    }
}

struct Items<'a>(std::iter::Enumerate<std::slice::Iter<'a, Node>>);

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Wrong;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Wrong> {
        let Some((i, node)) = self.0.next() else { return Ok(None) };
        seed.deserialize(Reader(node)).map(Some).map_err(|wrong| wrong.at(Step::Index(i)))
    }
}

struct Entries<'a> {
    left: std::slice::Iter<'a, Entry>,
    /// Key that names the variant and is no field.
    tag: Option<&'static str>,
    open: Option<&'a Entry>,
}

impl<'a> Entries<'a> {
    fn of(entries: &'a [Entry]) -> Self {
        Self { left: entries.iter(), tag: None, open: None }
    }
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = Wrong;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Wrong> {
        self.open = self.left.by_ref().find(|e| self.tag != Some(e.key.as_str()));
        let Some(entry) = self.open else { return Ok(None) };
        let key: StrDeserializer<'_, Wrong> = entry.key.as_str().into_deserializer();
        seed.deserialize(key).map(Some).map_err(|wrong| wrong.at(Step::Key(entry.key.clone())))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Wrong> {
        let Some(entry) = self.open else { return Err(Wrong::custom("a value without a key")) };
        seed.deserialize(Reader(&entry.node)).map_err(|wrong| wrong.at(Step::Key(entry.key.clone())))
    }
}

struct Variant<'a> {
    name: &'a str,
    /// Table with the variant's fields, and the key that names the variant; `None` for a variant without fields.
    entries: Option<(&'a [Entry], &'static str)>,
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = Wrong;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Wrong> {
        let name: StrDeserializer<'_, Wrong> = self.name.into_deserializer();
        seed.deserialize(name).map(|variant| (variant, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'de> {
    type Error = Wrong;

    fn unit_variant(self) -> Result<(), Wrong> {
        match self.entries {
            None => Ok(()),
            Some(_) => Err(Wrong::custom("found a table; allowed: a text in quotes")),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Wrong> {
        match self.entries {
            Some((entries, tag)) => seed.deserialize(Contents(entries, tag)),
            None => Err(Wrong::custom(format!("found {}; allowed: a table", quoted(self.name)))),
        }
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Wrong> {
        Err(Wrong::custom("a variant with several contents cannot be written"))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        let (entries, tag) = self.entries.unzip();
        visitor.visit_map(Entries { tag, ..Entries::of(entries.unwrap_or_default()) })
    }
}

/// Fields of a variant: the table without the key that names the variant.
struct Contents<'a>(&'a [Entry], &'static str);

impl<'de> Deserializer<'de> for Contents<'de> {
    type Error = Wrong;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        visitor.visit_map(Entries { tag: Some(self.1), ..Entries::of(self.0) })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}
