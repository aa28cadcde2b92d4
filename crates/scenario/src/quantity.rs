//! Quantities as a file writes them: a number with its unit.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use bentpipe_units::{Duration, Rate as BitRate};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use serde::{Serialize, Serializer};

/// A dimension: what a quantity's units are, and how it is spoken of.
pub struct Dimension {
    /// With its article: "a rate".
    pub name: &'static str,
    /// As a file would write one.
    pub example: &'static str,
    /// The units, each with its size in base units; those that are not to be advertised last.
    pub units: &'static [(&'static str, f64)],
    /// How many of the units are advertised.
    pub advertised: usize,
    /// The greatest that makes sense, in base units.
    pub max: f64,
    /// The unit of bare numbers in files, and its size in base units.
    pub in_files: (&'static str, f64),
    /// How a number in base units is written.
    pub write: fn(u64) -> String,
}

/// Rates in bit/s.
pub const RATE: Dimension = Dimension {
    name: "a rate",
    example: "20 Mbps",
    units: &[
        ("bps", 1.0),
        ("kbps", 1e3),
        ("Mbps", 1e6),
        ("Gbps", 1e9),
        ("bit/s", 1.0),
        ("kbit/s", 1e3),
        ("Mbit/s", 1e6),
        ("Gbit/s", 1e9),
    ],
    advertised: 4,
    max: 1e15,
    in_files: ("bit/s", 1.0),
    write: |bps| BitRate::from_bps(bps).to_string(),
};

/// Symbol rates in 1/s.
pub const SYMBOLS: Dimension = Dimension {
    name: "a symbol rate",
    example: "20 Mbaud",
    units: &[("baud", 1.0), ("kbaud", 1e3), ("Mbaud", 1e6), ("Gbaud", 1e9)],
    advertised: 4,
    max: 1e12,
    in_files: ("symbols per second", 1.0),
    write: |baud| BitRate::from_bps(baud).to_string().replace("bps", "baud"),
};

/// Times in nanoseconds.
pub const TIME: Dimension = Dimension {
    name: "a time",
    example: "300 ms",
    units: &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 60e9), ("h", 3600e9), ("µs", 1e3)],
    advertised: 6,
    max: 1e18,
    in_files: ("seconds", 1e9),
    write: |ns| Duration::from_nanos(ns).to_string(),
};

/// Sizes in bytes.
pub const SIZE: Dimension = Dimension {
    name: "a size",
    example: "1400 B",
    units: &[
        ("B", 1.0),
        ("KB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
        ("kB", 1e3),
    ],
    advertised: 7,
    max: 1e15,
    in_files: ("bytes", 1.0),
    write: write_size,
};

/// Numbers of packets.
pub const PACKETS: Dimension = Dimension {
    name: "a number of packets",
    example: "100 packets",
    units: &[("packets", 1.0), ("packet", 1.0)],
    advertised: 1,
    max: 4e9,
    in_files: ("packets", 1.0),
    write: |n| format!("{n} packets"),
};

/// Numbers of segments.
pub const SEGMENTS: Dimension = Dimension {
    name: "a number of segments",
    example: "64 segments",
    units: &[("segments", 1.0), ("segment", 1.0)],
    advertised: 1,
    max: 4e9,
    in_files: ("segments", 1.0),
    write: |n| format!("{n} segments"),
};

fn write_size(bytes: u64) -> String {
    match bytes {
        0 => "0 B".to_owned(),
        b if b % 1_000_000_000 == 0 => format!("{} GB", b / 1_000_000_000),
        b if b % 1_000_000 == 0 => format!("{} MB", b / 1_000_000),
        b if b % 1_000 == 0 => format!("{} KB", b / 1_000),
        b => format!("{b} B"),
    }
}

impl Dimension {
    /// What a file may write: `a rate such as "20 Mbps" (bps, kbps, Mbps, Gbps)`.
    pub fn allowed(&self) -> String {
        let units: Vec<_> = self.units.iter().take(self.advertised).map(|(unit, _)| *unit).collect();
        format!("{} such as \"{}\" ({})", self.name, self.example, units.join(", "))
    }

    /// The number that `text` stands for, in base units and not rounded; none where it is not a quantity of this
    /// dimension.
    pub fn read(&self, text: &str) -> Option<f64> {
        let text = text.trim();
        let number = text.trim_end_matches(|c: char| c.is_alphabetic() || c == '/');
        let unit = text.get(number.len()..)?;
        let number = number.trim_end();
        // "inf", "nan" and "1e3" are numbers to Rust, but not to a scenario.
        let plain = |c: char| c.is_ascii_digit() || c == '.' || c == '-';
        if number.is_empty() || !number.chars().all(plain) {
            return None;
        }
        let (_, size) = self.units.iter().find(|(name, _)| *name == unit)?;
        Some(number.parse::<f64>().ok()? * size)
    }

    /// As [`Self::read`], rounded and between `min` and the greatest that makes sense.
    ///
    /// # Errors
    /// What is allowed instead.
    pub fn read_within(&self, text: &str, min: u64, max: u64) -> Result<u64, String> {
        let found = self.read(text).ok_or_else(|| self.allowed())?;
        let max = (max as f64).min(self.max);
        // Half a base unit is rounded up to one, but must not pass for "above zero" from below.
        let rounded = found.round();
        if rounded < min as f64 || rounded > max || found < 0.0 {
            return Err(self.range(min, max as u64));
        }
        Ok(rounded as u64)
    }

    fn range(&self, min: u64, max: u64) -> String {
        let most = (self.write)(max);
        match min {
            1 => format!("{} above 0 and at most {most}, such as \"{}\"", self.name, self.example),
            _ => format!("{} of at least {} and at most {most}", self.name, (self.write)(min)),
        }
    }

    /// The schema of a text in this dimension.
    pub fn schema(&self, bounds: &str) -> Schema {
        let units: Vec<_> = self.units.iter().map(|(unit, _)| *unit).collect();
        json_schema!({
            "type": "string",
            "pattern": format!("^\\s*[0-9]*\\.?[0-9]+\\s*({})\\s*$", units.join("|")),
            "examples": [self.example],
            "$comment": bounds,
        })
    }
}

/// A quantity of one dimension between two bounds; the type tells them.
pub trait Kind {
    /// Its dimension.
    const DIMENSION: Dimension;
    /// The least, in base units.
    const MIN: u64;
    /// The greatest, in base units.
    const MAX: u64;
    /// Whether a bare number will do, for the key names the unit already.
    const BARE: bool = false;

    /// The number in a line of a file: in bytes and the like, or in seconds.
    fn number(text: &str) -> Option<u64> {
        let x: f64 = text.parse().ok()?;
        let x = (x * Self::DIMENSION.in_files.1).round();
        (x >= Self::MIN as f64 && x <= (Self::MAX as f64).min(Self::DIMENSION.max)).then_some(x as u64)
    }

    /// What [`Kind::number`] reads.
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
    /// A size above zero [bytes].
    Size = SizeKind(SIZE, 1, u64::MAX);
    /// The length of a packet, or of what is in it [bytes].
    PacketSize = PacketSizeKind(SIZE, 1, 65_535);
    /// The length of headers, zero perhaps [bytes].
    HeaderSize = HeaderSizeKind(SIZE, 0, 65_535);
    /// A number of packets under a key that says so; a bare number will do.
    Packets = PacketsKind(PACKETS, 1, 4_000_000_000, true);
}

/// The kind of a number of segments; only ever beside another kind.
#[derive(Clone, Copy, Debug)]
pub struct SegmentsKind;

impl Kind for SegmentsKind {
    const DIMENSION: Dimension = SEGMENTS;
    const MIN: u64 = 1;
    const MAX: u64 = 4_000_000_000;
}

impl<K: Kind> Quantity<K> {
    /// `number` in base units.
    pub const fn of(number: u64) -> Self {
        Self(number, PhantomData)
    }

    /// The schema of one with its unit.
    pub fn text_schema() -> Schema {
        let d = K::DIMENSION;
        d.schema(&d.range(K::MIN, (K::MAX as f64).min(d.max) as u64))
    }

    /// As a span of time, where it is one.
    pub const fn time(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// As a rate, where it is one.
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

/// A whole number between two bounds.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(transparent)]
pub struct Whole<const MIN: u32, const MAX: u32>(pub u32);

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_mean_what_they_say() {
        for (dimension, text, number) in [
            (&RATE, "20 Mbps", 20e6),
            (&RATE, "20Mbit/s", 20e6),
            (&RATE, "0.5 kbps", 500.0),
            (&TIME, "8.32 ms", 8_320_000.0),
            (&TIME, "20 min", 1.2e12),
            (&SIZE, "625 KB", 625_000.0),
            (&SIZE, "4 KiB", 4096.0),
            (&PACKETS, "1 packet", 1.0),
        ] {
            assert_eq!(dimension.read_within(text, 0, u64::MAX), Ok(number as u64), "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for text in [
            "",
            "20",
            "Mbps",
            "20 Mbs",
            "20 mbps",
            "nan Mbps",
            "inf bps",
            "1e3 bps",
            "2 0 bps",
            "--1 bps",
            "1.2.3 bps",
        ] {
            assert_eq!(RATE.read(text), None, "{text}");
        }
        assert_eq!(
            RATE.read_within("-1 bps", 1, u64::MAX),
            Err("a rate above 0 and at most 1000000 Gbps, such as \"20 Mbps\"".to_owned())
        );
        assert_eq!(
            SIZE.read_within("70 KB", 0, 65_535),
            Err("a size of at least 0 B and at most 65535 B".to_owned())
        );
        assert!(TIME.read_within("1000000001 s", 0, u64::MAX).is_err());
    }

    #[test]
    fn what_is_written_can_be_read() {
        for bytes in [0, 1, 1391, 625_000, 4_000_000, 3_000_000_000] {
            assert_eq!(SIZE.read(&write_size(bytes)), Some(bytes as f64));
        }
    }
}
