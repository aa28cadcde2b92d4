//! Traces: the states of selected senders over time; and the connections that are logged.

use bentpipe_queue::FlowId;
use bentpipe_scenario::{Scenario, TrafficKind, Transport, TransportIndex};
use bentpipe_transport::{sctp, tcp};
use bentpipe_units::{Duration, Instant};

use super::Flow;
use super::log::{LogEntry, LogEvent, LogWatch};
use crate::ids::{Id, IdVec, TraceId, TrafficId};

/// Selects flows to trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// The flow with this number.
    Flow(u32),
    /// All flows of one session or source of a traffic entry.
    Traffic {
        /// Index of the traffic in the scenario.
        traffic: u32,
        /// Number of the session or source.
        number: u32,
    },
}

impl Selector {
    /// Parses `flow:17` or `traffic:NAME:3`; `what` is the option that has it.
    ///
    /// # Errors
    /// The value found and the values allowed.
    pub fn parse(what: &str, text: &str, scenario: &Scenario) -> Result<Self, String> {
        const FORMS: &str =
            "flow:17 (the number of a flow) or traffic:NAME:3 (a traffic and its session's number)";
        let number = |digits: &str| {
            let number = digits.parse().ok().filter(|_| digits.bytes().all(|c| c.is_ascii_digit()));
            number
                .ok_or_else(|| format!("{what} {text}: found \"{digits}\"; allowed: a number, as in {FORMS}"))
        };
        if let Some(digits) = text.strip_prefix("flow:") {
            return number(digits).map(Self::Flow);
        }
        let Some((name, digits)) = text.strip_prefix("traffic:").and_then(|rest| rest.rsplit_once(':'))
        else {
            return Err(format!("{what} {text}: found \"{text}\"; allowed: {FORMS}"));
        };
        let Some(traffic) = scenario.traffic.iter().position(|t| t.name == name) else {
            let names: Vec<_> = scenario.traffic.iter().map(|t| t.name.as_str()).collect();
            return Err(format!("{what} {text}: found traffic \"{name}\"; allowed: {}", names.join(", ")));
        };
        let rtp = |transport: TransportIndex| matches!(scenario.transports[transport], Transport::Rtp(_));
        if matches!(&scenario.traffic[traffic].kind, TrafficKind::Packets(p) if p.transport.is_none_or(rtp)) {
            return Err(format!("{what} {text}: traffic {name} has no congestion window"));
        }
        Ok(Self::Traffic { traffic: traffic as u32, number: number(digits)? })
    }
}

/// State of a traced sender from some time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRow {
    /// Time of the change.
    pub time: Instant,
    /// Flow of the sender.
    pub flow: u32,
    /// Leg of the flow, in the direction of the data: 0 begins at the sending host, 1 behind the first PEP.
    pub leg: u32,
    /// The state.
    pub state: TraceState,
}

/// State of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceState {
    /// Congestion window [bytes].
    pub cwnd: u64,
    /// Slow start threshold [bytes], if it has one.
    pub ssthresh: Option<u64>,
    /// Bytes in flight: sent, and neither acknowledged nor SACKed nor considered lost.
    pub in_flight: u64,
    /// Latest RTT sample.
    pub rtt: Option<Duration>,
    /// Smoothed RTT.
    pub srtt: Option<Duration>,
    /// Retransmission timeout, as backed off.
    pub rto: Duration,
    /// Retransmitted segments so far.
    pub retransmissions: u64,
    /// Timeouts so far.
    pub timeouts: u64,
}

macro_rules! from_stats {
    ($($stats:ty),*) => {$(
        impl From<$stats> for TraceState {
            fn from(stats: $stats) -> Self {
                Self {
                    cwnd: stats.cwnd,
                    ssthresh: stats.ssthresh,
                    in_flight: stats.in_flight,
                    rtt: stats.rtt,
                    srtt: stats.srtt,
                    rto: stats.rto,
                    retransmissions: stats.retransmissions,
                    timeouts: stats.timeouts,
                }
            }
        }
    )*};
}

from_stats!(tcp::Stats, sctp::Stats, bentpipe_quic::Stats);

/// Only the last state in each interval of this length is kept [ns].
const TRACE_INTERVAL: u64 = 1_000_000;

/// Records the states of traced senders, and collects the events of logged ends.
#[derive(Default)]
pub struct Tracer {
    traced: Selection,
    logged: Option<Logs>,
    cursors: IdVec<TraceId, Cursor>,
    pub rows: Vec<TraceRow>,
    /// Events of logged ends that the caller has not been shown yet.
    pub events: Vec<LogEvent>,
}

/// Selected flows.
#[derive(Default)]
struct Selection {
    selectors: Vec<Selector>,
    /// True for each selector that has selected a flow.
    met: Vec<bool>,
}

/// Flows whose connections are logged.
struct Logs {
    selection: Selection,
    /// Flows that may still be logged, and those that are not because of the limit.
    left: u32,
    left_out: u64,
}

/// A traced sender with its latest row, or a logged end.
struct Cursor {
    flow: u32,
    leg: u32,
    /// True if its states are rows of the trace.
    has_rows: bool,
    last: Option<usize>,
    log: LogState,
}

/// State of an end's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogState {
    /// It has none.
    Off,
    /// Nothing has been logged yet.
    Waiting,
    Begun,
}

impl Selection {
    fn new(selectors: &[Selector]) -> Self {
        Self { selectors: selectors.to_vec(), met: vec![false; selectors.len()] }
    }

    /// True if the selection has a flow that opens.
    fn has(&mut self, flow: FlowId, of_traffic: TrafficId, of_number: u32) -> bool {
        let mut wanted = false;
        for (selector, met) in self.selectors.iter().zip(&mut self.met) {
            let hit = match *selector {
                Selector::Flow(number) => FlowId(number) == flow,
                Selector::Traffic { traffic, number } => traffic == of_traffic.index() && number == of_number,
            };
            *met |= hit;
            wanted |= hit;
        }
        wanted
    }
}

impl Tracer {
    pub fn new(traced: &[Selector], logged: Option<&LogWatch>) -> Self {
        let logged =
            logged.map(|logs| Logs { selection: Selection::new(&logs.flows), left: logs.limit, left_out: 0 });
        Self { traced: Selection::new(traced), logged, ..Self::default() }
    }

    /// Decides whether a flow that opens is traced.
    pub fn wants(&mut self, flow: FlowId, of_traffic: TrafficId, of_number: u32) -> bool {
        self.traced.has(flow, of_traffic, of_number)
    }

    /// Decides whether the connections of a flow that opens are logged.
    pub fn logs(&mut self, flow: FlowId, of_traffic: TrafficId, of_number: u32) -> bool {
        let Some(logs) = &mut self.logged else { return false };
        let is_wanted =
            logs.selection.has(flow, of_traffic, of_number) || logs.selection.selectors.is_empty();
        let is_logged = is_wanted && logs.left > 0;
        logs.left -= u32::from(is_logged);
        logs.left_out += u64::from(is_wanted && !is_logged);
        is_logged
    }

    /// Flows that were not logged because of the limit.
    pub fn left_out(&self) -> u64 {
        self.logged.as_ref().map_or(0, |logs| logs.left_out)
    }

    /// Begins to trace the sender of a leg, to log one of its ends, or both; `None` for neither.
    pub fn begin(&mut self, flow: FlowId, leg: u32, has_rows: bool, is_logged: bool) -> Option<TraceId> {
        let log = if is_logged { LogState::Waiting } else { LogState::Off };
        let cursor = Cursor { flow: flow.0, leg, has_rows, last: None, log };
        (has_rows || is_logged).then(|| self.cursors.push(cursor))
    }

    /// True if an end is logged.
    pub fn is_logged(&self, end: TraceId) -> bool {
        self.cursors[end].log != LogState::Off
    }

    /// True for a logged end the first time.
    pub fn begins(&mut self, end: TraceId) -> bool {
        let log = &mut self.cursors[end].log;
        let begins = *log == LogState::Waiting;
        if begins {
            *log = LogState::Begun;
        }
        begins
    }

    /// True if an end has logged anything.
    pub fn has_begun(&self, end: TraceId) -> bool {
        self.cursors[end].log == LogState::Begun
    }

    pub fn log(&mut self, time: Instant, end: TraceId, entry: LogEntry) {
        self.events.push(LogEvent { time, end: end.index(), entry });
    }

    /// Records the state of a sender, if it has changed.
    #[cold]
    #[inline(never)]
    pub fn note(&mut self, now: Instant, sender: TraceId, state: TraceState) {
        let cursor = &mut self.cursors[sender];
        if !cursor.has_rows {
            return;
        }
        if let Some(row) = cursor.last.and_then(|last| self.rows.get_mut(last)) {
            if row.state == state {
                return;
            }
            if row.time.as_nanos() / TRACE_INTERVAL == now.as_nanos() / TRACE_INTERVAL {
                (row.time, row.state) = (now, state);
                return;
            }
        }
        cursor.last = Some(self.rows.len());
        self.rows.push(TraceRow { time: now, flow: cursor.flow, leg: cursor.leg, state });
    }

    /// Checks that every selector has selected a flow.
    ///
    /// # Errors
    /// The selector that has not, with the flows of the run.
    pub fn check(&self, all: &[Flow], traffic_names: &[&str]) -> Result<(), String> {
        let logged = self.logged.iter().map(|logs| ("qlog", &logs.selection));
        for (what, selection) in std::iter::once(("trace", &self.traced)).chain(logged) {
            selection.check(what, all, traffic_names)?;
        }
        Ok(())
    }
}

impl Selection {
    fn check(&self, what: &str, all: &[Flow], traffic_names: &[&str]) -> Result<(), String> {
        let missed = self.selectors.iter().zip(&self.met).find(|(_, met)| !**met);
        let flows = all.len();
        match missed {
            None => Ok(()),
            Some((&Selector::Flow(number), _)) => Err(match all.get(number as usize) {
                Some(flow) => {
                    let traffic = traffic_names[flow.traffic as usize];
                    format!("{what} flow:{number}: that flow, of traffic {traffic}, has no congestion window")
                }
                None if flows == 0 => format!("{what} flow:{number}: the run had no flow"),
                None => {
                    format!("{what} flow:{number}: the run had {flows} flows, numbered 0 to {}", flows - 1)
                }
            }),
            Some((&Selector::Traffic { traffic, number }, _)) => {
                let name = traffic_names[traffic as usize];
                let mut of_traffic: Vec<_> = all.iter().filter(|f| f.traffic == traffic).collect();
                of_traffic.sort_by_key(|flow| flow.session);
                of_traffic.dedup_by_key(|flow| flow.session);
                let began = of_traffic.len();
                Err(format!(
                    "{what} traffic:{name}:{number}: {began} sessions of traffic {name} began, but not that one"
                ))
            }
        }
    }
}
