//! QUIC's own events, which quinn-proto reports through `tracing`: a subscriber that writes them to the [`log`].
//!
//! Spans are ignored. With the log's level at `info`, quinn's debug and trace events are switched off where they are
//! created.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tracing_core::field::{Field as Key, Visit};
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Dispatch, Event, LevelFilter, Metadata, Subscriber, callsite, dispatcher};

use crate::observe::log::{self, Field, Level};

/// Prefix of the modules whose events are logged.
const TARGET: &str = "quinn";

/// Level of the log, as an index of [`LEVELS`].
static LEVEL: AtomicUsize = AtomicUsize::new(0);

const LEVELS: [(Level, LevelFilter); 4] = [
    (Level::Error, LevelFilter::ERROR),
    (Level::Warn, LevelFilter::WARN),
    (Level::Info, LevelFilter::INFO),
    (Level::Debug, LevelFilter::DEBUG),
];

/// Logs events of `level` and above from now on.
pub fn subscribe(level: Level) {
    LEVEL.store(LEVELS.iter().position(|(known, _)| *known == level).unwrap_or(0), Relaxed);
    // Fails if it was set before.
    let _ = dispatcher::set_global_default(Dispatch::new(QuicEvents { write: log::write }));
    callsite::rebuild_interest_cache();
}

fn limit() -> LevelFilter {
    LEVELS[LEVEL.load(Relaxed)].1
}

struct QuicEvents {
    write: fn(Level, &'static str, &[Field<'_>]),
}

impl Subscriber for QuicEvents {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with(TARGET) && *metadata.level() <= limit()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(limit())
    }

    fn event(&self, event: &Event<'_>) {
        let level = LEVELS.iter().find(|(_, filter)| *filter == *event.metadata().level());
        let Some((level, _)) = level else { return };
        let mut fields = Fields(vec![("target", event.metadata().target().into())]);
        event.record(&mut fields);
        (self.write)(*level, "quic", &fields.0);
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

/// Collects the fields of an event.
struct Fields(Vec<Field<'static>>);

impl Visit for Fields {
    fn record_debug(&mut self, key: &Key, value: &dyn fmt::Debug) {
        self.0.push((key.name(), format!("{value:?}").into()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    static WRITTEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

    fn collect(level: Level, event: &'static str, fields: &[Field<'_>]) {
        WRITTEN.lock().unwrap().push(format!("{level:?} {event} {fields:?}"));
    }

    #[test]
    fn events_of_quic_are_logged_by_level() {
        LEVEL.store(1, Relaxed);
        let events = Dispatch::new(QuicEvents { write: collect });
        dispatcher::with_default(&events, || {
            tracing::warn!(target: "quinn_proto::connection", size = 3, "bad packet");
            tracing::debug!(target: "quinn_proto::connection", "timer");
            tracing::warn!(target: "rustls", "of another crate");
        });
        let expected = "Warn quic [(\"target\", String(\"quinn_proto::connection\")), (\"message\", String(\"bad packet\")), \
                        (\"size\", String(\"3\"))]";
        assert_eq!(*WRITTEN.lock().unwrap(), [expected]);
    }
}
