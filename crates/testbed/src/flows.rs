//! What became of each connection: the rows of a simulation's table of flows.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::path::Path;

use bentpipe_units::Instant;
use serde_json::{Value, json};

/// The names of [`Flows::close`]'s columns: those of a simulation, and then some that only sockets have.
pub const COLUMNS: [&str; 22] = [
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
    "connected",
    "first_byte",
    "delivered",
    "intact",
    "lost",
    "error",
    "client",
    "server",
];

/// A connection, or a flow of datagrams.
#[derive(Clone, Debug)]
pub struct Flow {
    number: u64,
    traffic: String,
    session: u32,
    /// The client's and the server's address and port, once they are known.
    pub ends: Option<(SocketAddr, SocketAddr)>,
    /// When its first packet left.
    pub opened: Instant,
    /// When its connection was there.
    pub connected: Option<Instant>,
    /// When the first byte came.
    pub first_byte: Option<Instant>,
    /// Whether it has an end at all.
    finite: bool,
    /// Payload that came, in all and while measuring [bytes].
    pub delivered: u64,
    measured: u64,
    /// Whether bytes were other than they should have been; none: not looked at.
    pub intact: Option<bool>,
    /// Datagrams that came while measuring, with the sums of their delays and of the differences between successive ones
    /// [ns].
    packets: u64,
    delays: u64,
    jitters: u64,
    last_delay: Option<u64>,
    /// Datagrams that came at all, and the number after the highest.
    came: u64,
    sent: u64,
}

/// How a flow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End<'a> {
    /// All of it came.
    Completed,
    /// Its source left, as the scenario says.
    Left,
    /// It was given up.
    Failed(&'a str),
    /// It goes on when all ends.
    Open,
}

impl Flow {
    /// Whether it has an end at all.
    #[must_use]
    pub const fn is_finite(&self) -> bool {
        self.finite
    }
}

impl<'a> End<'a> {
    const fn error(self) -> Option<&'a str> {
        match self {
            Self::Failed(why) => Some(why),
            _ => None,
        }
    }
}

/// What became of the flows of some traffic, or of all.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    opened: u64,
    completed: u64,
    failed: u64,
    left: u64,
    corrupt: u64,
    delivered: u64,
    measured: u64,
}

/// All flows, of which the rows are written when they close.
pub struct Flows {
    out: Option<BufWriter<File>>,
    begin: Instant,
    end: Instant,
    number: u64,
    totals: BTreeMap<String, Totals>,
    errors: BTreeMap<String, u64>,
}

impl Flows {
    /// Measured from `begin` to `end`, with rows in the file at `path`.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn new(path: Option<&Path>, (begin, end): (Instant, Instant)) -> io::Result<Self> {
        let mut out = path.map(File::create).transpose()?.map(BufWriter::new);
        if let Some(out) = &mut out {
            writeln!(out, "{}", json!({ "columns": COLUMNS }))?;
        }
        Ok(Self { out, begin, end, number: 0, totals: BTreeMap::new(), errors: BTreeMap::new() })
    }

    /// A flow of that user begins.
    pub fn open(&mut self, traffic: &str, session: u32, finite: bool, now: Instant) -> Flow {
        self.totals.entry(traffic.to_owned()).or_default().opened += 1;
        self.number += 1;
        Flow {
            number: self.number - 1,
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
            packets: 0,
            delays: 0,
            jitters: 0,
            last_delay: None,
            came: 0,
            sent: 0,
        }
    }

    fn is_measuring(&self, now: Instant) -> bool {
        (self.begin..self.end).contains(&now)
    }

    /// Payload came.
    pub fn deliver(&self, flow: &mut Flow, bytes: u64, now: Instant) {
        flow.first_byte.get_or_insert(now);
        flow.delivered += bytes;
        flow.measured += if self.is_measuring(now) { bytes } else { 0 };
    }

    /// A datagram came, the one of that number, after so long [ns].
    pub fn came(&self, flow: &mut Flow, bytes: u64, number: u64, delay: u64, now: Instant) {
        self.deliver(flow, bytes, now);
        flow.came += 1;
        flow.sent = flow.sent.max(number + 1);
        if self.is_measuring(now) {
            flow.packets += 1;
            flow.delays += delay;
            flow.jitters += flow.last_delay.map_or(0, |last| last.abs_diff(delay));
            flow.last_delay = Some(delay);
        }
    }

    /// A flow is over, of which somebody else writes the row.
    pub fn count(&mut self, flow: &Flow, how: End<'_>) {
        let totals = self.totals.entry(flow.traffic.clone()).or_default();
        totals.completed += u64::from(how == End::Completed);
        totals.left += u64::from(how == End::Left);
        totals.failed += u64::from(how.error().is_some());
        totals.corrupt += u64::from(flow.intact == Some(false));
        totals.delivered += flow.delivered;
        totals.measured += flow.measured;
        if let Some(why) = how.error() {
            *self.errors.entry(why.to_owned()).or_default() += 1;
        }
    }

    /// A flow is over: its row is written, unless it was before measuring began.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn close(&mut self, flow: &Flow, how: End<'_>, now: Instant) -> io::Result<()> {
        self.count(flow, how);
        let error = how.error();
        let closed = (how != End::Open).then_some(now);
        if closed.is_some_and(|closed| closed <= self.begin) {
            return Ok(());
        }
        let Some(out) = &mut self.out else { return Ok(()) };
        let since = |at: Instant| at.as_secs_f64() - self.begin.as_secs_f64();
        let took = |at: Instant| (at - flow.opened).as_secs_f64();
        let is_completed = how == End::Completed;
        let goodput = if flow.finite {
            closed.filter(|_| is_completed).map(|closed| flow.delivered as f64 * 8.0 / took(closed))
        } else {
            let seconds = (closed.unwrap_or(self.end) - flow.opened.max(self.begin)).as_secs_f64();
            Some(flow.measured as f64 * 8.0 / seconds)
        };
        let lost = (flow.sent > 0).then(|| flow.sent.saturating_sub(flow.came));
        let mean = |sum: u64, of: u64| (of > 0).then(|| sum as f64 * 1e-9 / of as f64);
        let row = json!([
            flow.number,
            flow.session,
            flow.traffic,
            since(flow.opened),
            closed.map(since),
            is_completed,
            error.is_some(),
            flow.measured,
            closed.filter(|_| is_completed).map(took),
            goodput.filter(|goodput| goodput.is_finite()),
            Value::Null,
            flow.packets,
            mean(flow.delays, flow.packets),
            mean(flow.jitters, flow.packets.saturating_sub(1)),
            flow.connected.map(took),
            flow.first_byte.map(took),
            flow.delivered,
            flow.intact,
            lost,
            error,
            flow.ends.map(|(client, _)| client.to_string()),
            flow.ends.map(|(_, server)| server.to_string()),
        ]);
        writeln!(out, "{row}")
    }

    /// Flows that began, were completed, and failed; and payload that came by those that are over [bytes].
    #[must_use]
    pub fn sums(&self) -> (u64, u64, u64, u64) {
        self.totals.values().fold((0, 0, 0, 0), |sum, t| {
            (sum.0 + t.opened, sum.1 + t.completed, sum.2 + t.failed, sum.3 + t.delivered)
        })
    }

    /// The end: all that is written is on the disk, and this is what it comes to.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn finish(&mut self) -> io::Result<Value> {
        if let Some(out) = &mut self.out {
            out.flush()?;
        }
        let seconds = (self.end - self.begin).as_secs_f64();
        let of = |t: &Totals| {
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
            self.totals.iter().map(|(name, totals)| (name.clone(), of(totals))).collect();
        Ok(json!({ "traffic": traffic, "errors": self.errors }))
    }
}
