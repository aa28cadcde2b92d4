//! Records of flows: one row per connection, as in the flow table of a simulation; and of pages.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::path::Path;

use bentpipe_scenario::Dash;
use bentpipe_traffic::dash::{Period, Viewing};
use bentpipe_units::{Duration, Instant};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::users::PageLoad;

/// Columns of a row: those of a simulation, then those that only sockets have.
pub const COLUMNS: [&str; 30] = [
    "flow",
    "session",
    "traffic",
    "opened",
    "closed",
    "completed",
    "failed",
    "bytes",
    "completion_time",
    "goodput",
    "drops",
    "packets",
    "delay",
    "jitter",
    "startup_delay",
    "stalls",
    "stalled",
    "played_time",
    "bitrate",
    "switches",
    "playback_until",
    "playback_bitrate",
    "connected",
    "first_byte",
    "delivered",
    "intact",
    "lost",
    "error",
    "client",
    "server",
];

/// Upper limit of a recorded delay [ns].
const MAX_DELAY: u64 = 1_000_000_000_000;

/// A connection, or a flow of datagrams.
#[derive(Clone, Debug)]
pub struct Flow {
    number: u64,
    traffic: String,
    session: u32,
    /// Addresses and ports of client and server; `None` until they are known.
    pub ends: Option<(SocketAddr, SocketAddr)>,
    /// Time at which the first packet was sent.
    pub opened: Instant,
    /// Time at which the handshake completed.
    pub connected: Option<Instant>,
    /// Time at which the first byte of payload arrived.
    pub first_byte: Option<Instant>,
    /// True if the flow has a finite amount of data.
    pub finite: bool,
    /// Payload received in total [bytes].
    pub delivered: u64,
    /// Payload received during the measurement [bytes].
    measured: u64,
    /// False once received bytes differ from those sent; `None` if they were not compared.
    pub intact: Option<bool>,
    /// Viewing of adaptive video that the flow carries.
    viewing: Option<Viewing>,
    /// Datagrams received during the measurement; sums of their delays and of the differences between successive delays
    /// [ns].
    packets: u64,
    delay_sum: u64,
    jitter_sum: u64,
    last_delay: Option<u64>,
    /// Datagrams received in total, and the highest sequence number plus 1.
    received: u64,
    sent: u64,
}

/// End of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End<'a> {
    /// Completed.
    Completed,
    /// Closed by its source, as the scenario schedules.
    Left,
    /// Failed, for this reason.
    Failed(&'a str),
    /// Still open at the end of the run.
    Open,
}

impl<'a> End<'a> {
    const fn error(self) -> Option<&'a str> {
        match self {
            Self::Failed(reason) => Some(reason),
            _ => None,
        }
    }
}

/// Counters over several flows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Flows opened.
    pub opened: u64,
    /// Flows completed.
    pub completed: u64,
    /// Flows failed.
    pub failed: u64,
    /// Flows closed by their source.
    pub left: u64,
    /// Flows with bytes other than those sent.
    pub corrupt: u64,
    /// Payload that closed flows received in total [bytes].
    pub delivered: u64,
    /// Payload that closed flows received during the measurement [bytes].
    pub measured: u64,
}

/// All flows of a run. A flow's row is written when it closes.
pub struct Flows {
    out: Option<BufWriter<File>>,
    begin: Instant,
    end: Instant,
    next_number: u64,
    totals: BTreeMap<String, Totals>,
    /// Delays of the datagrams received during the measurement [ns], by traffic.
    delays: BTreeMap<String, Histogram<u64>>,
    errors: BTreeMap<String, u64>,
}

impl Flows {
    /// Flows measured from `begin` to `end`, with their rows in the file at `path`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn new(path: Option<&Path>, (begin, end): (Instant, Instant)) -> io::Result<Self> {
        let mut out = path.map(File::create).transpose()?.map(BufWriter::new);
        if let Some(out) = &mut out {
            writeln!(out, "{}", json!({ "columns": COLUMNS }))?;
        }
        Ok(Self {
            out,
            begin,
            end,
            next_number: 0,
            totals: BTreeMap::new(),
            delays: BTreeMap::new(),
            errors: BTreeMap::new(),
        })
    }

    /// Opens a flow of a user.
    pub fn open(&mut self, traffic: &str, session: u32, finite: bool, now: Instant) -> Flow {
        self.totals.entry(traffic.to_owned()).or_default().opened += 1;
        self.next_number += 1;
        Flow {
            number: self.next_number - 1,
            traffic: traffic.to_owned(),
            session,
            ends: None,
            opened: now,
            connected: None,
            first_byte: None,
            finite,
            delivered: 0,
            measured: 0,
            intact: None,
            viewing: None,
            packets: 0,
            delay_sum: 0,
            jitter_sum: 0,
            last_delay: None,
            received: 0,
            sent: 0,
        }
    }

    /// The flow carries a viewing of adaptive video.
    pub fn open_viewing(&self, flow: &mut Flow, dash: &Dash) {
        flow.viewing = Some(Viewing::new(dash.ladder.clone(), flow.opened, self.begin));
    }

    /// The viewer has seen a period of the viewing; what follows the measurement does not count.
    pub fn view(&self, flow: &mut Flow, mut period: Period) {
        period.until = period.until.min(self.end);
        if let Some(viewing) = &mut flow.viewing {
            viewing.add(period);
        }
    }

    fn is_measuring(&self, now: Instant) -> bool {
        (self.begin..self.end).contains(&now)
    }

    /// Counts payload that arrived.
    pub fn deliver(&self, flow: &mut Flow, bytes: u64, now: Instant) {
        flow.first_byte.get_or_insert(now);
        flow.delivered += bytes;
        flow.measured += if self.is_measuring(now) { bytes } else { 0 };
    }

    /// Counts a datagram that arrived with this sequence number and delay [ns].
    pub fn deliver_datagram(&mut self, flow: &mut Flow, bytes: u64, number: u64, delay: u64, now: Instant) {
        self.deliver(flow, bytes, now);
        flow.received += 1;
        flow.sent = flow.sent.max(number + 1);
        if self.is_measuring(now) {
            flow.packets += 1;
            flow.delay_sum += delay;
            flow.jitter_sum += flow.last_delay.map_or(0, |last| last.abs_diff(delay));
            flow.last_delay = Some(delay);
            if let Some(delays) = self.delays.get_mut(&flow.traffic) {
                delays.saturating_record(delay);
            } else if let Ok(mut delays) = Histogram::new_with_max(MAX_DELAY, 3) {
                delays.saturating_record(delay);
                self.delays.insert(flow.traffic.clone(), delays);
            }
        }
    }

    /// Counts a closed flow whose row the other side writes.
    pub fn count(&mut self, flow: &Flow, end: End<'_>) {
        let totals = self.totals.entry(flow.traffic.clone()).or_default();
        totals.completed += u64::from(end == End::Completed);
        totals.left += u64::from(end == End::Left);
        totals.failed += u64::from(end.error().is_some());
        totals.corrupt += u64::from(flow.intact == Some(false));
        totals.delivered += flow.delivered;
        totals.measured += flow.measured;
        if let Some(reason) = end.error() {
            *self.errors.entry(reason.to_owned()).or_default() += 1;
        }
    }

    /// Counts a closed flow and writes its row, unless it closed before the measurement began.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn close(&mut self, flow: &Flow, end: End<'_>, now: Instant) -> io::Result<()> {
        self.count(flow, end);
        let error = end.error();
        let closed = (end != End::Open).then_some(now);
        if closed.is_some_and(|closed| closed <= self.begin) {
            return Ok(());
        }
        let Some(out) = &mut self.out else { return Ok(()) };
        let since_begin = |at: Instant| at.as_secs_f64() - self.begin.as_secs_f64();
        let since_opened = |at: Instant| (at - flow.opened).as_secs_f64();
        let completed = closed.filter(|_| end == End::Completed);
        let goodput = if flow.finite {
            completed.map(|closed| flow.delivered as f64 * 8.0 / since_opened(closed))
        } else {
            let seconds = (closed.unwrap_or(self.end) - flow.opened.max(self.begin)).as_secs_f64();
            Some(flow.measured as f64 * 8.0 / seconds)
        };
        let lost = (flow.sent > 0).then(|| flow.sent.saturating_sub(flow.received));
        let mean = |sum: u64, count: u64| (count > 0).then(|| sum as f64 * 1e-9 / count as f64);
        let viewing = flow.viewing.as_ref();
        let periods = |of: &dyn Fn(&Viewing, &Period) -> Option<f64>| {
            viewing.map(|v| v.periods().iter().map(|period| of(v, period)).collect::<Vec<_>>())
        };
        let row = json!([
            flow.number,
            flow.session,
            flow.traffic,
            since_begin(flow.opened),
            closed.map(since_begin),
            completed.is_some(),
            error.is_some(),
            flow.measured,
            completed.map(since_opened),
            goodput.filter(|goodput| goodput.is_finite()),
            Value::Null,
            flow.packets,
            mean(flow.delay_sum, flow.packets),
            mean(flow.jitter_sum, flow.packets.saturating_sub(1)),
            viewing.and_then(Viewing::startup_delay).map(Duration::as_secs_f64),
            viewing.map(Viewing::stalls),
            viewing.map(|v| v.stalled_time().as_secs_f64()),
            viewing.map(|v| v.played_time().as_secs_f64()),
            viewing.map(Viewing::bitrate).filter(|bitrate| !bitrate.is_nan()),
            viewing.map(Viewing::switches),
            periods(&|_, period| Some(since_begin(period.until))),
            periods(&|v, period| v.rate(period).map(|rate| rate.as_bps() as f64)),
            flow.connected.map(since_opened),
            flow.first_byte.map(since_opened),
            flow.delivered,
            flow.intact,
            lost,
            error,
            flow.ends.map(|(client, _)| client.to_string()),
            flow.ends.map(|(_, server)| server.to_string()),
        ]);
        writeln!(out, "{row}")
    }

    /// Writes the record of a page that was loaded, or of which a connection failed, during the measurement: times of opening
    /// and end from the begin of the measurement, and time to the first byte [s].
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn close_page(
        &mut self,
        traffic: &str,
        session: u32,
        page: &PageLoad,
        now: Instant,
    ) -> io::Result<()> {
        if !self.is_measuring(now) {
            return Ok(());
        }
        let Some(out) = &mut self.out else { return Ok(()) };
        let since_begin = |at: Instant| at.as_secs_f64() - self.begin.as_secs_f64();
        let first_byte = page.first_byte.map(|at| (at - page.opened).as_secs_f64());
        let line = json!({ "page": {
            "traffic": traffic,
            "session": session,
            "opened": since_begin(page.opened),
            "closed": since_begin(now),
            "first_byte": first_byte,
            "failed": page.has_failed,
        } });
        writeln!(out, "{line}")
    }

    /// Counters over all flows.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.totals.values().fold(Totals::default(), |sum, t| Totals {
            opened: sum.opened + t.opened,
            completed: sum.completed + t.completed,
            failed: sum.failed + t.failed,
            left: sum.left + t.left,
            corrupt: sum.corrupt + t.corrupt,
            delivered: sum.delivered + t.delivered,
            measured: sum.measured + t.measured,
        })
    }

    /// Writes delays and their numbers of datagrams, flushes the file and returns the summary.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn finish(&mut self) -> io::Result<Value> {
        if let Some(out) = &mut self.out {
            for (traffic, delays) in &self.delays {
                let counts: Vec<_> = delays
                    .iter_recorded()
                    .map(|step| (step.value_iterated_to() as f64 * 1e-9, step.count_at_value()))
                    .collect();
                writeln!(out, "{}", json!({ "delays": { "traffic": traffic, "counts": counts } }))?;
            }
            out.flush()?;
        }
        let seconds = (self.end - self.begin).as_secs_f64();
        let summary = |t: &Totals| {
            json!({
                "opened": t.opened,
                "completed": t.completed,
                "failed": t.failed,
                "left": t.left,
                "corrupt": t.corrupt,
                "delivered_bytes": t.delivered,
                "measured_bytes": t.measured,
                "goodput": t.measured as f64 * 8.0 / seconds,
            })
        };
        let traffic: serde_json::Map<_, _> =
            self.totals.iter().map(|(name, totals)| (name.clone(), summary(totals))).collect();
        Ok(json!({ "traffic": traffic, "errors": self.errors }))
    }
}
