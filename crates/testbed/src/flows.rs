//! Records of flows: one row per connection, as in the flow table of a simulation; and of pages.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::path::Path;

use bentpipe_scenario::{Dash, Traffic};
use bentpipe_traffic::dash::{Period, Viewing};
use bentpipe_traffic::voice::{Call, Voice};
use bentpipe_units::{Duration, Instant};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::users::PageLoad;

/// Columns of a row: those of a simulation, then those that only sockets have.
pub const COLUMNS: &[&str] = &[
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
    "received_units",
    "lost_units",
    "played",
    "late",
    "mouth_to_ear",
    "burst_ratio",
    "codec",
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
/// A caller is at most this late with a packet; a longer gap is a pause in speech.
const LATENESS: Duration = Duration::from_millis(5);

/// Data units of one traffic that were sent during the measurement and whose fate is known.
struct Units {
    /// Delays of those received [ns].
    delays: Histogram<u64>,
    received: u64,
    lost: u64,
    /// Delay above which a packet is of no use to the application, and the number of those.
    deadline: Option<Duration>,
    late: u64,
    /// Sum over those received of their flow's jitter estimate [ns].
    jitter_sum: u64,
}

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
    /// Number of datagrams sent as far as known, the highest sequence number plus 1, and those of them that have not arrived.
    sent: u64,
    missing: BTreeSet<u64>,
    /// Time at which the latest datagram was sent.
    last_sent: Option<Instant>,
    units: FlowUnits,
    /// Call that the flow carries.
    call: Option<Box<Call>>,
}

/// Data units of a flow that were sent during the measurement.
#[derive(Clone, Copy, Debug, Default)]
struct FlowUnits {
    received: u64,
    lost: u64,
    /// Jitter estimate J (RFC 3550, section 6.4.1), and the delay of the latest unit [ns].
    jitter: u64,
    last_delay: Option<u64>,
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
    /// Payload that flows received in total, those still open at the end included [bytes].
    pub delivered: u64,
    /// Payload that they received during the measurement [bytes].
    pub measured: u64,
}

/// Times of the steps of a probe (draft-ietf-ippm-responsiveness).
#[derive(Clone, Copy, Debug, Default)]
pub struct ProbeSteps {
    /// Start of the current step.
    begin: Instant,
    /// TCP handshake, TLS handshake of one round trip, and exchange of an object; those that have ended.
    ended: [Option<Duration>; 3],
    /// The part of the last step until the server has written the object.
    request: Duration,
}

impl ProbeSteps {
    /// The first step begins.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { begin: now, ..Self::default() }
    }

    /// The current step ends.
    pub fn end_step(&mut self, now: Instant) {
        if let Some(step) = self.ended.iter_mut().find(|step| step.is_none()) {
            *step = Some(now - self.begin);
            self.begin = now;
        }
    }

    /// The server has written an object at `at`.
    pub fn answered(&mut self, at: Instant) {
        self.request = at - self.begin;
    }
}

/// All flows of a run. A flow's row is written when it closes.
pub struct Flows {
    out: Option<BufWriter<File>>,
    begin: Instant,
    end: Instant,
    next_number: u64,
    totals: BTreeMap<String, Totals>,
    /// Data units by traffic.
    units: BTreeMap<String, Units>,
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
            units: BTreeMap::new(),
            errors: BTreeMap::new(),
        })
    }

    /// Opens a flow of a user.
    pub fn open(&mut self, traffic: &Traffic, session: u32, finite: bool, now: Instant) -> Flow {
        self.totals.entry(traffic.name.clone()).or_default().opened += 1;
        if !self.units.contains_key(&traffic.name)
            && let Ok(delays) = Histogram::new_with_max(MAX_DELAY, 3)
        {
            let deadline = traffic.application.map(|(_, deadline)| deadline);
            let units = Units { delays, received: 0, lost: 0, deadline, late: 0, jitter_sum: 0 };
            self.units.insert(traffic.name.clone(), units);
        }
        self.next_number += 1;
        let call = Voice::of(&traffic.kind).map(|voice| Box::new(Call::new(voice, self.begin, LATENESS)));
        Flow {
            number: self.next_number - 1,
            traffic: traffic.name.clone(),
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
            sent: 0,
            missing: BTreeSet::new(),
            last_sent: None,
            units: FlowUnits::default(),
            call,
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

    /// Counts a datagram that arrived with this sequence number, sent at `sent`, unless it has arrived before. Those that it
    /// overtakes count as lost.
    pub fn deliver_datagram(
        &mut self,
        flow: &mut Flow,
        bytes: u64,
        number: u64,
        sent: Instant,
        now: Instant,
    ) {
        let is_late = number < flow.sent;
        if is_late && !flow.missing.remove(&number) {
            return;
        }
        self.deliver(flow, bytes, now);
        let delay = (now - sent).as_nanos();
        if self.is_measuring(now) {
            flow.packets += 1;
            flow.delay_sum += delay;
            flow.jitter_sum += flow.last_delay.map_or(0, |last| last.abs_diff(delay));
            flow.last_delay = Some(delay);
        }
        if is_late {
            return;
        }
        let missing = number - flow.sent;
        flow.missing.extend(flow.sent..number);
        flow.sent = number + 1;
        if now >= self.end {
            // Losses that are known only now count as little as arrivals.
            return;
        }
        // The lost datagrams were sent at regular times since the last one that arrived.
        let last = flow.last_sent.unwrap_or(sent);
        for lost in 1..=missing {
            let sent = last + (sent - last).times(lost).part(missing + 1);
            self.lose_unit(flow, sent);
        }
        flow.last_sent = Some(sent);
        if let Some(call) = &mut flow.call {
            call.send(sent);
            call.receive(sent, now);
        }
        self.deliver_unit(flow, sent, now);
    }

    /// Counts a data unit that arrived, if it was sent during the measurement.
    pub fn deliver_unit(&mut self, flow: &mut Flow, sent: Instant, now: Instant) {
        let Some(units) = self.units.get_mut(&flow.traffic).filter(|_| sent >= self.begin && now < self.end)
        else {
            return;
        };
        let delay = (now - sent).as_nanos();
        let own = &mut flow.units;
        if let Some(last) = own.last_delay.replace(delay) {
            own.jitter = own.jitter - own.jitter / 16 + last.abs_diff(delay) / 16;
        }
        own.received += 1;
        units.received += 1;
        units.jitter_sum += own.jitter;
        units.late += u64::from(units.deadline.is_some_and(|deadline| delay > deadline.as_nanos()));
        units.delays.saturating_record(delay);
    }

    fn lose_unit(&mut self, flow: &mut Flow, sent: Instant) {
        if let Some(call) = &mut flow.call {
            call.send(sent);
            call.lose(sent);
        }
        if sent >= self.begin
            && let Some(units) = self.units.get_mut(&flow.traffic)
        {
            flow.units.lost += 1;
            units.lost += 1;
        }
    }

    /// Counts a flow that ended, or is open at the end of the run; the other host writes its row.
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

    /// Counts a closed flow and writes its row, unless it closed before the measurement began or opened after its end. A flow
    /// that closed after the end was open at the end.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn close(&mut self, flow: &Flow, end: End<'_>, now: Instant) -> io::Result<()> {
        self.count(flow, end);
        if flow.opened >= self.end {
            return Ok(());
        }
        let end = if now > self.end { End::Open } else { end };
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
        let lost = (flow.sent > 0).then_some(flow.missing.len());
        let mean = |sum: u64, count: u64| (count > 0).then(|| sum as f64 * 1e-9 / count as f64);
        let (viewing, call) = (flow.viewing.as_ref(), flow.call.as_deref());
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
            flow.units.received,
            flow.units.lost,
            call.map(|call| call.played),
            call.map(|call| call.late),
            call.map(Call::mouth_to_ear_delay).filter(|delay| !delay.is_nan()),
            call.map(Call::burst_ratio).filter(|ratio| !ratio.is_nan()),
            call.map(|call| call.voice.codec.name()),
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
    /// and end from the start of the measurement, and time to the first byte [s].
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

    /// Writes the record of a probe that ended during the measurement: times [s] of its steps TCP handshake, TLS handshake and
    /// exchange of an object, which are `None` after a failure, and the part of the last one until the server's answer.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn close_probe(&mut self, traffic: &str, steps: &ProbeSteps, now: Instant) -> io::Result<()> {
        if !self.is_measuring(now) {
            return Ok(());
        }
        let Some(out) = &mut self.out else { return Ok(()) };
        let [connect, tls, http] = steps.ended.map(|step| step.map(Duration::as_secs_f64));
        let request = steps.request.as_secs_f64();
        let line = json!({ "probe": {
            "traffic": traffic, "connect": connect, "tls": tls, "http": http, "request": request,
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

    /// Writes the data units of each traffic entry, flushes the file and returns the summary.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn finish(&mut self) -> io::Result<Value> {
        if let Some(out) = &mut self.out {
            for (traffic, units) in self.units.iter().filter(|(_, units)| units.received + units.lost > 0) {
                let delays: Vec<_> = units
                    .delays
                    .iter_recorded()
                    .map(|step| (step.value_iterated_to() as f64 * 1e-9, step.count_at_value()))
                    .collect();
                let line = json!({ "units": {
                    "traffic": traffic,
                    "received": units.received,
                    "lost": units.lost,
                    "late": units.deadline.map(|_| units.late),
                    "jitter_sum": units.jitter_sum as f64 * 1e-9,
                    "delays": delays,
                } });
                writeln!(out, "{line}")?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    fn plan() -> Plan {
        let text = "title = \"t\"\n[run]\nduration = \"10 s\"\n[host.a]\n[host.b]\n[link.l]\nbetween = [\"a\", \"b\"]\n\
                    rate = \"1 Mbps\"\nqueue = { aqm = { algorithm = \"red\" } }\n\
                    [traffic.x]\nkind = \"bulk\"\nfrom = \"a\"\nto = \"b\"\n";
        let plan = serde_json::json!({ "scenario": { "file": "t.toml", "text": text } });
        Plan::parse(&plan.to_string(), "plan").unwrap()
    }

    /// A link that duplicates and reorders: of the numbers 0 to 9, 3 and 7 are lost, 5 arrives late, and most arrive twice.
    #[test]
    fn duplicates_neither_count_as_received_nor_hide_lost_datagrams() {
        let at = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
        let path = std::env::temp_dir().join(format!("bentpipe-duplicates-{}.jsonl", std::process::id()));
        let plan = plan();
        let mut flows = Flows::new(Some(&path), plan.measured()).unwrap();
        let mut datagrams = flows.open(&plan.scenario.traffic[0], 0, false, at(0));
        for number in [0, 0, 1, 1, 2, 2, 4, 4, 6, 5, 5, 6, 8, 8, 9, 9] {
            flows.deliver_datagram(&mut datagrams, 100, number, at(10 * number), at(10 * number + 50));
        }
        flows.close(&datagrams, End::Left, at(1_000)).unwrap();
        flows.finish().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let row: Value = serde_json::from_str(text.lines().nth(1).unwrap()).unwrap();
        let counts = ["packets", "bytes", "delivered", "lost"]
            .map(|name| row[COLUMNS.iter().position(|column| *column == name).unwrap()].as_u64());
        assert_eq!(counts, [8, 800, 800, 2].map(Some));
    }

    /// A measurement of ten seconds. Of a flow of datagrams the fourth arrives after it, and shows that two before are lost. Of
    /// two uploads one is complete at its end, and one a second later; a third begins after it.
    #[test]
    fn nothing_after_the_measurement_counts_in_a_row() {
        let plan = plan();
        let at = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
        let path = std::env::temp_dir().join(format!("bentpipe-rows-{}.jsonl", std::process::id()));
        let mut flows = Flows::new(Some(&path), plan.measured()).unwrap();
        let traffic = &plan.scenario.traffic[0];

        let mut datagrams = flows.open(traffic, 0, false, at(9_500));
        flows.deliver_datagram(&mut datagrams, 100, 0, at(9_500), at(9_900));
        flows.deliver_datagram(&mut datagrams, 100, 3, at(9_650), at(10_050));
        flows.close(&datagrams, End::Left, at(10_100)).unwrap();
        for (opened, closed) in [(9_000, 10_000), (9_000, 11_000), (10_000, 11_000)] {
            let upload = flows.open(traffic, 1, true, at(opened));
            flows.close(&upload, End::Completed, at(closed)).unwrap();
        }
        flows.finish().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let column = |name| COLUMNS.iter().position(|column| *column == name).unwrap();
        let ends: Vec<_> = lines
            .iter()
            .filter(|line| line.is_array())
            .map(|row| (row[column("closed")].as_f64(), row[column("completed")].as_bool()))
            .collect();
        assert_eq!(ends, [(None, Some(false)), (Some(10.0), Some(true)), (None, Some(false))]);
        // 100 bytes in the half second up to the end.
        assert_eq!(lines[1][column("goodput")].as_f64(), Some(1600.0));
        let units = lines.last().map(|line| line["units"].clone()).unwrap();
        assert_eq!((units["received"].as_u64(), units["lost"].as_u64()), (Some(1), Some(0)));
    }
}
