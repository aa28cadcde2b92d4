//! Values as JSON text.

use std::fmt::Write as _;

use bentpipe_units::{Duration, Instant};

/// Milliseconds with as many decimals as needed, at least one.
fn milliseconds(ns: u64) -> String {
    let mut text = format!("{}.{:06}", ns / 1_000_000, ns % 1_000_000);
    while text.ends_with('0') && !text.ends_with(".0") {
        text.pop();
    }
    text
}

/// Time since the start of the run [ms].
pub fn time(at: Instant) -> String {
    milliseconds(at.as_nanos())
}

/// A duration [ms].
pub fn duration(duration: Duration) -> String {
    milliseconds(duration.as_nanos())
}

/// A duration [ms], or nothing.
pub fn optional(duration_or_none: Option<Duration>) -> String {
    duration_or_none.map_or_else(String::new, duration)
}

/// Lowercase hexadecimal digits of bytes.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A string in quotes (RFC 8259, section 7).
pub fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_have_the_decimals_they_need() {
        for (ns, text) in [(0, "0.0"), (5_000_000, "5.0"), (1_234_567_890, "1234.56789"), (1, "0.000001")] {
            assert_eq!(duration(Duration::from_nanos(ns)), text);
        }
    }

    #[test]
    fn strings_are_escaped() {
        assert_eq!(quoted("a \"b\" \\ \n"), "\"a \\\"b\\\" \\\\ \\u000a\"");
        assert_eq!(hex(&[0, 0xab]), "00ab");
    }
}
