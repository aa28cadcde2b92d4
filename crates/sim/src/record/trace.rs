//! Traces: the states of selected senders over time.

use bentpipe_queue::FlowId;
use bentpipe_scenario::{Scenario, TrafficKind, Transport, TransportIndex};
use bentpipe_transport::{sctp, tcp};
use bentpipe_units::{Duration, Instant};

use super::Flow;
use crate::ids::{Id, IdVec, TraceId, TrafficId};

/// Selects flows to trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// The flow with this number.
    Flow(u32),
    /// All flows of one session or source of a traffic.
    Traffic {
        /// Index of the traffic in the scenario.
        traffic: u32,
        /// Number of the session or source.
        number: u32,
    },
}

impl Selector {
    /// Parses `flow:17` or `traffic:NAME:3`.
    ///
    /// # Errors
    /// The value found and the values allowed.
    pub fn parse(text: &str, scenario: &Scenario) -> Result<Self, String> {
        const FORMS: &str =
            "flow:17 (the number of a flow) or traffic:NAME:3 (a traffic and its session's number)";
        let number = |digits: &str| {
            let number = digits.parse().ok().filter(|_| digits.bytes().all(|c| c.is_ascii_digit()));
            number
                .ok_or_else(|| format!("trace {text}: found \"{digits}\"; allowed: a number, as in {FORMS}"))
        };
        if let Some(digits) = text.strip_prefix("flow:") {
            return number(digits).map(Self::Flow);
        }
        let Some((name, digits)) = text.strip_prefix("traffic:").and_then(|rest| rest.rsplit_once(':'))
        else {
            return Err(format!("trace {text}: found \"{text}\"; allowed: {FORMS}"));
        };
        let Some(traffic) = scenario.traffic.iter().position(|t| t.name == name) else {
            let names: Vec<_> = scenario.traffic.iter().map(|t| t.name.as_str()).collect();
            return Err(format!("trace {text}: found traffic \"{name}\"; allowed: {}", names.join(", ")));
        };
        let rtp = |transport: TransportIndex| matches!(scenario.transports[transport], Transport::Rtp(_));
        if matches!(&scenario.traffic[traffic].kind, TrafficKind::Packets(p) if p.transport.is_none_or(rtp)) {
            return Err(format!("trace {text}: traffic {name} has no congestion window"));
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

/// Records the states of traced senders.
#[derive(Default)]
pub struct Tracer {
    selectors: Vec<Selector>,
    /// True for each selector that has selected a flow.
    met: Vec<bool>,
    cursors: IdVec<TraceId, Cursor>,
    pub rows: Vec<TraceRow>,
}

/// A traced sender, and its latest row.
struct Cursor {
    flow: u32,
    leg: u32,
    last: Option<usize>,
}

impl Tracer {
    pub fn new(selectors: &[Selector]) -> Self {
        Self { selectors: selectors.to_vec(), met: vec![false; selectors.len()], ..Self::default() }
    }

    /// Decides whether a flow that opens is traced.
    pub fn wants(&mut self, flow: FlowId, of_traffic: TrafficId, of_number: u32) -> bool {
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

    /// Begins to trace the sender of a leg.
    pub fn begin(&mut self, flow: FlowId, leg: u32) -> TraceId {
        self.cursors.push(Cursor { flow: flow.0, leg, last: None })
    }

    /// Records the state of a sender, if it has changed.
    #[cold]
    #[inline(never)]
    pub fn note(&mut self, now: Instant, sender: TraceId, state: TraceState) {
        let cursor = &mut self.cursors[sender];
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
        let missed = self.selectors.iter().zip(&self.met).find(|(_, met)| !**met);
        let flows = all.len();
        match missed {
            None => Ok(()),
            Some((&Selector::Flow(number), _)) => Err(match all.get(number as usize) {
                Some(flow) => {
                    let traffic = traffic_names[flow.traffic as usize];
                    format!("trace flow:{number}: that flow, of traffic {traffic}, has no congestion window")
                }
                None if flows == 0 => format!("trace flow:{number}: the run had no flow"),
                None => {
                    format!("trace flow:{number}: the run had {flows} flows, numbered 0 to {}", flows - 1)
                }
            }),
            Some((&Selector::Traffic { traffic, number }, _)) => {
                let name = traffic_names[traffic as usize];
                let mut of_traffic: Vec<_> = all.iter().filter(|f| f.traffic == traffic).collect();
                of_traffic.sort_by_key(|flow| flow.session);
                of_traffic.dedup_by_key(|flow| flow.session);
                let began = of_traffic.len();
                Err(format!(
                    "trace traffic:{name}:{number}: {began} sessions of traffic {name} began, but not that one"
                ))
            }
        }
    }
}
