//! Quantities: numbers with a unit, between bounds.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use bentpipe_units::{Duration, Rate as BitRate};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use serde::{Serialize, Serializer};

pub use super::dimension::*;

/// Dimension and bounds of a quantity.
pub trait Kind {
    /// Dimension.
    const DIMENSION: Dimension;
    /// Minimum, in base units.
    const MIN: u64;
    /// Maximum, in base units.
    const MAX: u64;
    /// True if a number without unit is permitted, because the key names the unit.
    const BARE: bool = false;

    /// Parses a line of a data file: bytes and the like, or seconds.
    fn number(text: &str) -> Option<u64> {
        let x: f64 = text.parse().ok()?;
        let x = (x * Self::DIMENSION.in_files.1).round();
        (x >= Self::MIN as f64 && x <= (Self::MAX as f64).min(Self::DIMENSION.max)).then_some(x as u64)
    }

    /// Returns the permitted form of a line of a data file.
    fn number_allowed() -> String {
        let d = Self::DIMENSION;
        let most = (Self::MAX as f64).min(d.max) as u64;
        format!("a number of {}, which makes {}", d.in_files.0, d.range(Self::MIN, most))
    }
}

/// A quantity in base units.
pub struct Quantity<K: Kind>(pub u64, PhantomData<K>);

macro_rules! kinds {
    ($($(#[$doc:meta])* $alias:ident = $kind:ident($dimension:expr, $min:expr, $max:expr $(, $bare:expr)?);)*) => {$(
        #[doc = concat!("The kind of a [`", stringify!($alias), "`].")]
        #[derive(Clone, Copy, Debug)]
        pub struct $kind;
        impl Kind for $kind {
            const DIMENSION: Dimension = $dimension;
            const MIN: u64 = $min;
            const MAX: u64 = $max;
            $(const BARE: bool = $bare;)?
        }
        $(#[$doc])*
        pub type $alias = Quantity<$kind>;
    )*};
}

kinds! {
    /// A rate above zero [bit/s].
    Rate = RateKind(RATE, 1, u64::MAX);
    /// A rate, zero perhaps [bit/s].
    AnyRate = AnyRateKind(RATE, 0, u64::MAX);
    /// A symbol rate above zero [1/s].
    SymbolRate = SymbolRateKind(SYMBOLS, 1, u64::MAX);
    /// A time, zero perhaps [ns].
    Time = TimeKind(TIME, 0, u64::MAX);
    /// A time above zero [ns].
    Span = SpanKind(TIME, 1, u64::MAX);
    /// The period of an event that repeats all the time: a microsecond or more, to bound the work of a run [ns].
    Period = PeriodKind(TIME, 1_000, u64::MAX);
    /// A size above zero [bytes].
    Size = SizeKind(SIZE, 1, u64::MAX);
    /// The length of a packet, or of what is in it [bytes].
    PacketSize = PacketSizeKind(SIZE, 1, 65_535);
    /// The length of headers, zero perhaps [bytes].
    HeaderSize = HeaderSizeKind(SIZE, 0, 65_535);
    /// A percentage above zero [1e-6].
    Percentage = PercentageKind(PERCENT, 1, u64::MAX);
    /// A number of packets under a key that says so; a bare number will do.
    Packets = PacketsKind(PACKETS, 1, 4_000_000_000, true);
}

/// Kind of a number of segments; only used beside another kind.
#[derive(Clone, Copy, Debug)]
pub struct SegmentsKind;

impl Kind for SegmentsKind {
    const DIMENSION: Dimension = SEGMENTS;
    const MIN: u64 = 1;
    const MAX: u64 = 4_000_000_000;
}

impl<K: Kind> Quantity<K> {
    /// Returns the quantity of `number` base units.
    pub const fn of(number: u64) -> Self {
        Self(number, PhantomData)
    }

    /// Returns `N`; as a path, a key's default.
    pub const fn just<const N: u64>() -> Self {
        Self::of(N)
    }

    /// Returns the schema of the quantity as text with a unit.
    pub fn text_schema() -> Schema {
        let d = K::DIMENSION;
        d.schema(&d.range(K::MIN, (K::MAX as f64).min(d.max) as u64))
    }

    /// Returns a time as a duration.
    pub const fn time(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// Returns a rate as a bit rate.
    pub const fn rate(self) -> BitRate {
        BitRate::from_bps(self.0)
    }
}

impl<K: Kind> Clone for Quantity<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Kind> Copy for Quantity<K> {}

impl<K: Kind> fmt::Debug for Quantity<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&(K::DIMENSION.write)(self.0))
    }
}

impl<K: Kind> Serialize for Quantity<K> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&(K::DIMENSION.write)(self.0))
    }
}

impl<'de, K: Kind> Deserialize<'de> for Quantity<K> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader<K>(PhantomData<K>);
        impl<K: Kind> Visitor<'_> for Reader<K> {
            type Value = u64;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&K::DIMENSION.allowed())
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
                K::DIMENSION
                    .read_within(text, K::MIN, K::MAX)
                    .map_err(|allowed| E::invalid_value(Unexpected::Str(text), &allowed.as_str()))
            }

            fn visit_i64<E: Error>(self, x: i64) -> Result<u64, E> {
                let bare = K::BARE.then(|| u64::try_from(x).ok()).flatten();
                match bare {
                    Some(x) if (K::MIN..=K::MAX).contains(&x) => Ok(x),
                    _ if K::BARE => {
                        let range = K::DIMENSION.range(K::MIN, K::MAX);
                        Err(E::invalid_value(Unexpected::Signed(x), &range.as_str()))
                    }
                    _ => Err(E::invalid_value(Unexpected::Other(&format!("{x}, without a unit")), &self)),
                }
            }

            fn visit_f64<E: Error>(self, x: f64) -> Result<u64, E> {
                Err(E::invalid_value(Unexpected::Other(&format!("{x}, without a unit")), &self))
            }
        }
        from.deserialize_any(Reader::<K>(PhantomData)).map(Self::of)
    }
}

impl<K: Kind> JsonSchema for Quantity<K> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        K::DIMENSION.name.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let text = Self::text_schema();
        if !K::BARE {
            return text;
        }
        json_schema!({ "anyOf": [text, { "type": "integer", "minimum": K::MIN, "maximum": K::MAX }] })
    }
}

/// An integer between two bounds.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(transparent)]
pub struct Whole<const MIN: u32, const MAX: u32>(pub u32);

impl<const MIN: u32, const MAX: u32> Whole<MIN, MAX> {
    /// Returns `N`; as a path, a key's default.
    pub const fn just<const N: u32>() -> Self {
        Self(N)
    }
}

impl<'de, const MIN: u32, const MAX: u32> Deserialize<'de> for Whole<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader<const MIN: u32, const MAX: u32>;
        impl<const MIN: u32, const MAX: u32> Visitor<'_> for Reader<MIN, MAX> {
            type Value = u32;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a whole number, at least {MIN} and at most {MAX}")
            }

            fn visit_i64<E: Error>(self, x: i64) -> Result<u32, E> {
                u32::try_from(x)
                    .ok()
                    .filter(|x| (MIN..=MAX).contains(x))
                    .ok_or_else(|| E::invalid_value(Unexpected::Signed(x), &self))
            }
        }
        from.deserialize_any(Reader::<MIN, MAX>).map(Self)
    }
}

impl<const MIN: u32, const MAX: u32> JsonSchema for Whole<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Whole".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX })
    }
}
