//! The log on stderr: a line per event, as `key=value` pairs or as JSON.
//!
//! At most [`BURST`] lines per event are written in [`PERIOD_S`] seconds, so that a flood of packets does not flood the log.
//! The next line of the event gives the number of suppressed ones.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

use nix::time::{ClockId, clock_gettime};
use serde_json::Value;

pub use crate::config::{Format, Level};

/// Maximum number of lines of one event in a period.
pub const BURST: u32 = 20;

/// Length of a period [s].
pub const PERIOD_S: i64 = 10;

/// A field of a line: a string, a number or a boolean by its name.
pub type Field<'a> = (&'a str, Value);

/// Logs an error.
pub fn error(event: &'static str, fields: &[Field<'_>]) {
    write(Level::Error, event, fields);
}

/// Logs a condition that is probably not intended.
pub fn warn(event: &'static str, fields: &[Field<'_>]) {
    write(Level::Warn, event, fields);
}

/// Logs an occasional event.
pub fn info(event: &'static str, fields: &[Field<'_>]) {
    write(Level::Info, event, fields);
}

/// Logs a frequent event.
pub fn debug(event: &'static str, fields: &[Field<'_>]) {
    write(Level::Debug, event, fields);
}

/// Sets the least important level and the format, also for QUIC's own events.
pub fn set(level: Level, format: Format) {
    {
        let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
        (log.level, log.format) = (level, format);
    }
    super::quic_events::subscribe(level);
}

static LOG: Mutex<Log> = Mutex::new(Log::new());

/// Logs an event.
pub(super) fn write(level: Level, event: &'static str, fields: &[Field<'_>]) {
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    if level > log.level {
        return;
    }
    let now = clock_gettime(ClockId::CLOCK_REALTIME).map_or((0, 0), |t| (t.tv_sec(), t.tv_nsec()));
    if let Some(line) = log.line(level, event, fields, now) {
        // An error of stderr cannot be reported.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

struct Log {
    level: Level,
    format: Format,
    /// By event: start of its period [s], lines written in it, lines suppressed since.
    events: BTreeMap<&'static str, (i64, u32, u64)>,
}

impl Log {
    const fn new() -> Self {
        Self { level: Level::Info, format: Format::Text, events: BTreeMap::new() }
    }

    /// The line of an event at `now` [s, ns]; `None` if it is suppressed.
    fn line(
        &mut self,
        level: Level,
        event: &'static str,
        fields: &[Field<'_>],
        now: (i64, i64),
    ) -> Option<String> {
        let (since, written, missing) = self.events.entry(event).or_insert((now.0, 0, 0));
        if !(0..PERIOD_S).contains(&(now.0 - *since)) {
            (*since, *written) = (now.0, 0);
        }
        if *written == BURST {
            *missing += 1;
            return None;
        }
        *written += 1;
        let missing = std::mem::take(missing);
        let name = match level {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug",
        };
        let head = [("time", Value::from(timestamp(now))), ("level", name.into()), ("event", event.into())];
        let tail = [("suppressed", Value::from(missing))];
        let all = head.iter().chain(fields).chain(if missing > 0 { &tail[..] } else { &[] });
        Some(match self.format {
            Format::Text => text(all),
            Format::Json => json(all),
        })
    }
}

fn text<'a>(fields: impl Iterator<Item = &'a Field<'a>>) -> String {
    let texts = fields.map(|(key, value)| match value {
        Value::String(text)
            if !text.is_empty() && !text.contains(|c: char| c.is_control() || " =\"".contains(c)) =>
        {
            format!("{key}={text}")
        }
        Value::String(text) => format!("{key}={text:?}"),
        value => format!("{key}={value}"),
    });
    texts.collect::<Vec<_>>().join(" ") + "\n"
}

fn json<'a>(fields: impl Iterator<Item = &'a Field<'a>>) -> String {
    let object = fields.map(|(key, value)| ((*key).to_owned(), value.clone()));
    Value::Object(object.collect()).to_string() + "\n"
}

/// Formats a time since 1970 [s, ns] as in RFC 3339, in UTC and milliseconds.
fn timestamp((seconds, nanos): (i64, i64)) -> String {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Years begin in March, so that a leap day is the last of its year; 400 years have 146 097 days.
    let z = days + 719_468;
    let (era, day) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + 400 * era + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let ms = nanos / 1_000_000;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(log: &mut Log, second: i64, fields: &[Field<'_>]) -> Option<String> {
        log.line(Level::Warn, "lost", fields, (second, 7_999_999))
    }

    #[test]
    fn lines_are_pairs_or_json_objects() {
        let fields = [
            ("peer", "10.2.0.2:4400".into()),
            ("why", "a \"b\"\n= c".into()),
            ("n", 3_u64.into()),
            ("x", 0.5.into()),
        ];
        let mut log = Log::new();
        let expected = "time=1970-01-01T00:00:00.007Z level=warn event=lost peer=10.2.0.2:4400 \
                        why=\"a \\\"b\\\"\\n= c\" n=3 x=0.5\n";
        assert_eq!(line(&mut log, 0, &fields).as_deref(), Some(expected));
        log.format = Format::Json;
        let object: serde_json::Value = serde_json::from_str(&line(&mut log, 0, &fields).unwrap()).unwrap();
        assert_eq!(
            (&object["why"], &object["n"], &object["x"]),
            (&"a \"b\"\n= c".into(), &3.into(), &0.5.into())
        );
        let object: serde_json::Value =
            serde_json::from_str(&line(&mut log, 0, &[("x", f64::NAN.into())]).unwrap()).unwrap();
        assert!(object["x"].is_null());
    }

    #[test]
    fn floods_are_suppressed_and_counted() {
        let mut log = Log::new();
        let written = (0..50).filter(|_| line(&mut log, 100, &[]).is_some()).count();
        assert_eq!(written, BURST as usize);
        assert!(line(&mut log, 109, &[]).is_none());
        assert!(line(&mut log, 110, &[]).unwrap().ends_with(" suppressed=31\n"));
        assert!(!line(&mut log, 110, &[]).unwrap().contains("suppressed"));
        // Other events are not suppressed, nor this one after the clock is set back.
        assert!(log.line(Level::Info, "other", &[], (109, 0)).is_some());
        assert!(line(&mut log, 5, &[]).is_some());
    }

    /// Compared with `date -u -d @…`.
    #[test]
    fn times_are_formatted_as_dates() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000Z"),
            (1_709_251_200, "2024-03-01T00:00:00.000Z"),
            (1_798_761_599, "2026-12-31T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(timestamp((seconds, 0)), date);
        }
    }
}
