//! Logs of simulated connections as qlog: one file for each end of a connection, in the sequential format
//! (draft-ietf-quic-qlog-main-schema-14, section 5; JSON text sequences, RFC 7464).
//!
//! - `quic` has the events of draft-ietf-quic-qlog-quic-events-13.
//! - `tcp` has those of TCP. There is no IETF schema for it: the project names its own, as close to QUIC's as TCP is.
//! - Time is in milliseconds since the start of the run, with the nanoseconds of the simulator.
//! - Memory is bounded: events are appended to their file in blocks, and no file stays open.

mod quic;
mod tcp;
mod text;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use bentpipe_scenario::Scenario;
use bentpipe_sim::{LogEntry, LogEvent, LoggedEnd, LoggedTransport};

use crate::packet::{Endpoint, endpoint};
use text::{hex, quoted, time};

/// Schema of the events of TCP; its namespace is `tcp`.
pub const TCP_SCHEMA: &str = "urn:x-bentpipe:qlog:events:tcp";
/// Schema of the events that the drafts lack; its namespace is `bentpipe`.
pub const OWN_SCHEMA: &str = "urn:x-bentpipe:qlog:events:bentpipe";
/// Schema of the events of QUIC.
pub const QUIC_SCHEMA: &str = "urn:ietf:params:qlog:events:quic-13";

/// Bytes of a file that wait to be written.
const BLOCK: usize = 1 << 16;

/// Counters of the logs of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounts {
    /// Files written.
    pub files: u64,
    /// Events written.
    pub events: u64,
    /// Events left out because of the limit of a file, and the files that lack some.
    pub left_out: u64,
    /// Files that lack events.
    pub cut: u64,
}

/// Error of a file.
#[derive(Debug)]
pub struct LogError {
    /// The file.
    pub path: PathBuf,
    /// The error.
    pub error: io::Error,
}

/// Writer of the logs of a run.
pub struct Logs {
    folder: PathBuf,
    title: String,
    traffic: Vec<String>,
    /// Largest number of events of a file.
    limit: u64,
    ends: BTreeMap<u32, End>,
    counts: LogCounts,
}

/// The log of one end.
struct End {
    path: PathBuf,
    buffer: String,
    has_begun: bool,
    events: u64,
    left_out: u64,
    protocol: Protocol,
}

enum Protocol {
    Quic(Box<quic::Log>),
    Tcp(Box<tcp::Log>),
}

/// The events of one end, as text.
struct Events<'a> {
    buffer: &'a mut String,
    events: &'a mut u64,
    left_out: &'a mut u64,
    limit: u64,
    now: bentpipe_units::Instant,
}

impl Events<'_> {
    /// Adds an event; `data` has the members of its data.
    fn add(&mut self, name: &str, data: std::fmt::Arguments<'_>) {
        if *self.events >= self.limit {
            *self.left_out += 1;
            return;
        }
        *self.events += 1;
        let now = time(self.now);
        // A string takes all that is written to it.
        let _ = writeln!(self.buffer, "\u{1e}{{\"time\":{now},\"name\":\"{name}\",\"data\":{{{data}}}}}");
    }
}

impl Logs {
    /// Writer of logs to a folder that exists; each file takes up to `limit` events.
    #[must_use]
    pub fn new(folder: &Path, scenario: &Scenario, limit: u64) -> Self {
        Self {
            folder: folder.to_owned(),
            title: scenario.title.clone(),
            traffic: scenario.traffic.iter().map(|traffic| traffic.name.clone()).collect(),
            limit,
            ends: BTreeMap::new(),
            counts: LogCounts::default(),
        }
    }

    /// Adds an event. Events must be in the order of time.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&mut self, event: &LogEvent) -> Result<(), LogError> {
        if let LogEntry::Begin(logged) = &event.entry {
            let mut end = self.begin(logged);
            end.log(event, self.limit);
            self.ends.insert(event.end, end);
            self.counts.files += 1;
            return Ok(());
        }
        if let LogEntry::End = event.entry {
            return self.ends.remove(&event.end).map_or(Ok(()), |end| self.close(end));
        }
        let Some(end) = self.ends.get_mut(&event.end) else { return Ok(()) };
        end.log(event, self.limit);
        if end.buffer.len() >= BLOCK { end.flush(false) } else { Ok(()) }
    }

    /// Writes the rest.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn finish(mut self) -> Result<LogCounts, LogError> {
        for end in std::mem::take(&mut self.ends).into_values() {
            self.close(end)?;
        }
        Ok(self.counts)
    }

    fn close(&mut self, mut end: End) -> Result<(), LogError> {
        self.counts.events += end.events;
        self.counts.left_out += end.left_out;
        self.counts.cut += u64::from(end.left_out > 0);
        end.flush(true)
    }

    /// The log of an end, with its header.
    fn begin(&self, logged: &LoggedEnd) -> End {
        let LoggedEnd { ends, is_client, .. } = logged;
        let side = if *is_client { "client" } else { "server" };
        let leg = if logged.legs > 1 { format!("-leg{}", ends.leg) } else { String::new() };
        let path = self.folder.join(format!("flow{}{leg}-{side}.sqlog", ends.flow));
        let (group, schemas, protocol) = match &logged.transport {
            LoggedTransport::Quic { original_destination, .. } => (
                hex(original_destination),
                format!("\"{QUIC_SCHEMA}\",\"{OWN_SCHEMA}\""),
                Protocol::Quic(Box::default()),
            ),
            LoggedTransport::Tcp(_) => (
                format!("flow{}{leg}", ends.flow),
                format!("\"{TCP_SCHEMA}\""),
                Protocol::Tcp(Box::default()),
            ),
        };
        let traffic = self.traffic.get(ends.traffic as usize).map_or("", String::as_str);
        let description = format!(
            "Flow {} of traffic {traffic}, leg {} of {}. Time 0 is the start of the run.",
            ends.flow, ends.leg, logged.legs
        );
        let mut buffer = String::new();
        let _ = writeln!(
            buffer,
            "\u{1e}{{\"file_schema\":\"urn:ietf:params:qlog:file:sequential\",\
             \"serialization_format\":\"application/qlog+json-seq\",\"title\":{},\"description\":{},\
             \"trace\":{{\"common_fields\":{{\"group_id\":\"{group}\",\"time_format\":\"relative_to_epoch\",\
             \"reference_time\":{{\"clock_type\":\"monotonic\",\"epoch\":\"unknown\"}}}},\
             \"vantage_point\":{{\"name\":\"Bentpipe {}\",\"type\":\"{side}\"}},\"event_schemas\":[{schemas}]}}}}",
            quoted(&self.title),
            quoted(&description),
            env!("CARGO_PKG_VERSION"),
        );
        End { path, buffer, has_begun: false, events: 0, left_out: 0, protocol }
    }
}

impl End {
    fn log(&mut self, event: &LogEvent, limit: u64) {
        let Self { buffer, events, left_out, protocol, .. } = self;
        let mut out = Events { buffer, events, left_out, limit, now: event.time };
        match protocol {
            Protocol::Quic(log) => log.log(&event.entry, &mut out),
            Protocol::Tcp(log) => log.log(&event.entry, &mut out),
        }
    }

    /// Appends what waits to the file, which must not exist the first time; the `last` time it is put on the disk.
    fn flush(&mut self, last: bool) -> Result<(), LogError> {
        let mut options = OpenOptions::new();
        if self.has_begun {
            options.append(true)
        } else {
            options.write(true).create_new(true)
        };
        self.has_begun = true;
        let written = options.open(&self.path).and_then(|mut file| {
            file.write_all(self.buffer.as_bytes())?;
            if last { file.sync_all() } else { Ok(()) }
        });
        self.buffer.clear();
        written.map_err(|error| LogError { path: self.path.clone(), error })
    }
}

/// The addresses of an end: its own, and those of its peer.
fn addresses(logged: &LoggedEnd) -> String {
    let with_data = logged.ends.with_data;
    let [local, remote] = [with_data, !with_data].map(|sends_data| {
        let ([a, b, c, d], port): Endpoint = endpoint(&logged.ends, sends_data);
        format!("{{\"ip_v4\":\"{a}.{b}.{c}.{d}\",\"port_v4\":{port}}}")
    });
    format!("\"local\":{local},\"remote\":{remote}")
}

/// Members of an object, those that have changed.
#[derive(Default)]
struct Changes(String);

impl Changes {
    fn add(&mut self, name: &str, before: &str, after: &str) {
        if before != after && !after.is_empty() {
            let comma = if self.0.is_empty() { "" } else { "," };
            let _ = write!(self.0, "{comma}\"{name}\":{after}");
        }
    }
}
