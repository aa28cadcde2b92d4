//! Dimensions: the units of quantities.

use bentpipe_units::{Duration, Rate as BitRate};
use schemars::{Schema, json_schema};

/// A physical dimension and its units.
pub struct Dimension {
    /// Name with its article: "a rate".
    pub name: &'static str,
    /// Example as written in a file.
    pub example: &'static str,
    /// Units with their size in base units; those not listed in messages last.
    pub units: &'static [(&'static str, f64)],
    /// Number of units listed in messages.
    pub advertised: usize,
    /// Largest plausible value, in base units.
    pub max: f64,
    /// Unit of bare numbers in data files, and its size in base units.
    pub in_files: (&'static str, f64),
    /// Formats a number of base units.
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

/// Percentages, in millionths.
pub const PERCENT: Dimension = Dimension {
    name: "a percentage",
    example: "100 %",
    units: &[("%", 1e4)],
    advertised: 1,
    max: 1e9,
    in_files: ("percent", 1e4),
    write: |millionths| format!("{} %", millionths as f64 / 1e4),
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
    /// Returns the permitted form: `a rate such as "20 Mbps" (bps, kbps, Mbps, Gbps)`.
    pub fn allowed(&self) -> String {
        let units: Vec<_> = self.units.iter().take(self.advertised).map(|(unit, _)| *unit).collect();
        format!("{} such as \"{}\" ({})", self.name, self.example, units.join(", "))
    }

    /// Parses a quantity into base units, not rounded; `None` if `text` is no quantity of this dimension.
    pub fn read(&self, text: &str) -> Option<f64> {
        let text = text.trim();
        let number = text.trim_end_matches(|c: char| c.is_alphabetic() || c == '/' || c == '%');
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

    /// Parses a quantity as [`Self::read`], rounds it and checks its bounds.
    ///
    /// # Errors
    /// The permitted form or range.
    pub fn read_within(&self, text: &str, min: u64, max: u64) -> Result<u64, String> {
        let found = self.read(text).ok_or_else(|| self.allowed())?;
        let max = (max as f64).min(self.max);
        // Half a base unit counts as one. A negative value that rounds to zero is still negative.
        let rounded = found.round();
        if rounded < min as f64 || rounded > max || found < 0.0 {
            return Err(self.range(min, max as u64));
        }
        Ok(rounded as u64)
    }

    /// Returns the permitted range as text.
    pub fn range(&self, min: u64, max: u64) -> String {
        let most = (self.write)(max);
        match min {
            1 => format!("{} above 0 and at most {most}, such as \"{}\"", self.name, self.example),
            _ => format!("{} of at least {} and at most {most}", self.name, (self.write)(min)),
        }
    }

    /// Returns the schema of a quantity as text with a unit.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_parse_with_their_units() {
        for (dimension, text, number) in [
            (&RATE, "20 Mbps", 20e6),
            (&RATE, "20Mbit/s", 20e6),
            (&RATE, "0.5 kbps", 500.0),
            (&TIME, "8.32 ms", 8_320_000.0),
            (&TIME, "20 min", 1.2e12),
            (&SIZE, "625 KB", 625_000.0),
            (&SIZE, "4 KiB", 4096.0),
            (&PACKETS, "1 packet", 1.0),
            (&PERCENT, "12.5 %", 125_000.0),
            (&PERCENT, "150%", 1_500_000.0),
        ] {
            assert_eq!(dimension.read_within(text, 0, u64::MAX), Ok(number as u64), "{text}");
        }
    }

    #[test]
    fn invalid_quantities_are_rejected() {
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
    fn formatted_sizes_parse_back() {
        for bytes in [0, 1, 1391, 625_000, 4_000_000, 3_000_000_000] {
            assert_eq!(SIZE.read(&write_size(bytes)), Some(bytes as f64));
        }
    }
}
