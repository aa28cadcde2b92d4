//! The packet-level simulator.
//!
//! # Modules
//!
//! ```text
//! build ─▶ engine ─┬─▶ apps ─▶ endpoints ─▶ network
//!                  ├─▶ gateways ───────────▶ network
//!                  └─▶ record
//! ```
//!
//! | module | state |
//! |---|---|
//! | `clock` | the time, and the agenda of events |
//! | `network` | packets in flight, links (each a [`bentpipe_link::LinkEngine`]), delay lines, paths |
//! | `gateways` | gateways ([`bentpipe_gateway::Gateway`]), the PEP's buffers, both ends of the PEP links and their streams |
//! | `endpoints` | ends of TCP connections and SCTP associations, RTP sessions; slots that tie them to a flow |
//! | `apps` | traffic, sessions and sources with their random streams, players; the answers of hosts to received data |
//! | `record` | series, drops, flows, data units of classes, calls, viewings, counters; observed packets and traced senders |
//! | `engine` | all of these, and nothing else: it passes between them |
//! | `build` | no state: it makes an engine from a scenario |
//!
//! Parts are fields of `Engine` and hold no references to each other, only typed indexes (`ids`). A method of a part gets
//! the clock and whatever else it needs as arguments, schedules its own events, and returns what the engine has to do.
//!
//! # One packet
//!
//! 1. An event goes to its part, and its effect to the sender: `Engine::dispatch`, for instance
//!    `TcpEnds::on_timer`, then `Engine::pump` and `Engine::send`.
//! 2. `TcpEnds::poll_transmit` makes a `PacketInFlight`; `Engine::send_packet` puts it into `Packets`, and
//!    `Engine::forward` looks at its next hop.
//! 3. A link: `Network::enter`; if it has a queue `Engine::describe`, `Network::offer` (AQM), `Network::enqueue`,
//!    `Network::serve`; then `Network::propagate` (channel, delay) puts it on a `DelayLine`: its own, or that of a link that
//!    follows it (`Network::follow`).
//! 4. `Event::Line`: `Network::pop_line`, `Engine::arrive`, and again `Engine::forward`.
//! 5. A gateway: `Engine::describe_at`, `Gateway::arrive`; `Engine::drain_gateway` acts on what the gateway did. A split
//!    flow ends here (`Engine::end_segment`, `Engine::serve_split`) and continues on a stream of the PEP link
//!    (`Engine::pump_pep`).
//! 6. The end of the path: `Engine::deliver`, `TcpEnds::receive`, `Engine::pump`: the application reads
//!    (`Apps::serve_receiver`), and acknowledgements are sent.
//! 7. A drop or loss on the way: `Engine::drop_packet`. When nothing of a closing flow is left, `Engine::free_if_idle`
//!    frees its slot.
//!
//! # Reproducibility
//!
//! Time is integer nanoseconds. Every random number comes from a stream derived from the run's seed and the name of the
//! component that draws it, so that the same seed gives the same bytes, and two algorithms meet the same traffic.

mod apps;
mod bottleneck;
mod build;
mod clock;
mod endpoints;
mod engine;
mod gateways;
mod ids;
mod memory;
mod network;
mod record;
mod side;
mod simulation;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bentpipe_queue::Aqm;
use bentpipe_scenario::Scenario;
use bentpipe_units::Instant;

use ids::{CallId, IdVec, ViewingId};

pub use engine::{At, Position};
pub use record::log::{LogEntry, LogEvent, LogWatch, LoggedEnd, LoggedTransport};
pub use record::observe::{Ends, Interface, Observation, Packet, PepEnds, Watch, interfaces};
pub use record::trace::{Selector, TraceRow, TraceState};
pub use record::{
    Back, Call, Carried, Class, Drops, Flow, Interval, Intervals, LOSS, NameList, Page, PageTimes,
    PepLinkCounters, Period, Playback, REASONS, RETRANSMISSION_LIMIT, Rung, Series, Summary, Terminal,
    Viewing, Voice,
};
pub use simulation::Simulation;

/// Reason for which a run has no results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The caller stopped it.
    Cancelled,
    /// The scenario is too large, or needs an AQM that was not given.
    Unsupported(String),
    /// A link or flow to observe does not exist.
    NotFound(String),
    /// A counter identity does not hold, so the results are wrong.
    Inconsistent(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cancelled => f.write_str("the run was stopped"),
            Self::Unsupported(why) => write!(f, "cannot be simulated: {why}"),
            Self::NotFound(what) => f.write_str(what),
            Self::Inconsistent(what) => write!(f, "the simulation contradicts itself: {what}"),
        }
    }
}

impl std::error::Error for Error {}

/// Progress of a run, seen from another thread.
#[derive(Debug, Default)]
pub struct Progress {
    now: AtomicU64,
    end: AtomicU64,
    cancelled: AtomicBool,
}

impl Progress {
    /// Share of the simulated time that has passed, 0 to 1.
    #[must_use]
    pub fn fraction(&self) -> f64 {
        match self.end.load(Ordering::Relaxed) {
            0 => 0.0,
            end => self.now.load(Ordering::Relaxed) as f64 / end as f64,
        }
    }

    /// Stops the run.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}

/// Results of a run.
#[derive(Debug)]
pub struct Results {
    /// Names of the traffic, to which [`Flow::traffic`] refers.
    pub traffic: Vec<String>,
    /// Names of the places, to which [`Drops::place`] refers.
    pub places: NameList,
    /// Start of the measurement; flows' times count from the beginning of the run.
    pub begin: Instant,
    /// End of the run.
    pub end: Instant,
    /// Time series; the first is the time.
    pub series: Vec<Series>,
    /// Packets dropped or lost during the measurement.
    pub drops: Drops,
    /// Flows, in the order of opening.
    pub flows: Vec<Flow>,
    /// Classes of traffic, in the order of the scenario.
    pub classes: Vec<Class>,
    /// Class of each traffic entry (an index of [`Results::classes`]).
    pub class_of: Vec<u32>,
    /// Calls, to which flows refer.
    calls: IdVec<CallId, Call>,
    /// Viewings, to which flows refer.
    viewings: IdVec<ViewingId, Viewing>,
    /// Runs of consecutive drops at the subject's mark point: length, and number of runs.
    pub drop_runs: Vec<(u32, u64)>,
    /// Terminals of gateways with several, in the order of the scenario; none if each gateway has one.
    pub terminals: Vec<Terminal>,
    /// Intervals in which `terminals` count packets.
    pub intervals: Intervals,
    /// Pages of users behind `terminals`, in the order in which they ended.
    pub pages: Vec<Page>,
    /// Counters of the subject over the measurement.
    pub summary: Summary,
    /// Counters of the queues at the terminals of the subject over the measurement; `None` if the subject is no gateway with
    /// such queues.
    pub back_summary: Option<Summary>,
    /// Acknowledgements that terminals filtered during the measurement.
    pub filtered_acks: u64,
    /// Flows that moved with their terminals to another gateway during the measurement: those that continued, and those that
    /// broke; `None` without handovers.
    pub handed_over: Option<[u64; 2]>,
    /// Packets on links that may lose some, and repeated data, over the measurement.
    pub carried: Carried,
    /// Packets on the PEP links.
    pub pep_link: PepLinkCounters,
    /// States of the traced senders, for each in order of time.
    pub trace: Vec<TraceRow>,
    /// Number of events.
    pub events: u64,
}

impl Results {
    /// The call that a flow carries; `None` if it carries no voice.
    #[must_use]
    pub fn call(&self, flow: &Flow) -> Option<&Call> {
        flow.call.map(|call| &self.calls[call])
    }

    /// The viewing that a flow carries; `None` if it carries no adaptive video.
    #[must_use]
    pub fn viewing(&self, flow: &Flow) -> Option<&Viewing> {
        flow.viewing.map(|viewing| &self.viewings[viewing])
    }
}

/// Makes the AQM of a queue; called for each queue that it is to watch.
pub type MakeAqm<'a> = &'a mut dyn FnMut() -> Box<dyn Aqm>;

/// Simulates a scenario with one seed.
///
/// # Errors
/// A scenario that is too large, a counter identity that does not hold, or a stop through `progress`.
pub fn run(scenario: &Scenario, seed: u64, progress: &Progress) -> Result<Results, Error> {
    run_watched(scenario, seed, progress, &Watch::default(), &mut |_| {})
}

/// Checks that the links to observe exist, and that packets take them. Whether flows to trace exist, only a run tells.
///
/// # Errors
/// A link that does not exist or that no packet takes; a scenario that is too large.
pub fn check_watch(scenario: &Scenario, watch: &Watch) -> Result<(), Error> {
    let mut engine = build::build(scenario, scenario.run.seed, None).map_err(Error::Unsupported)?;
    engine.watch(scenario, watch).map_err(Error::NotFound)
}

/// Simulates a scenario as [`run`] does, with the same results, and passes the packets on observed links to `observe`, in
/// order of time.
///
/// # Errors
/// Those of [`run`] and [`check_watch`]; flows to trace that the run did not have.
pub fn run_watched(
    scenario: &Scenario,
    seed: u64,
    progress: &Progress,
    watch: &Watch,
    observe: &mut dyn FnMut(&Observation),
) -> Result<Results, Error> {
    let sinks = Sinks { observe, log: &mut |_| {} };
    run_with(scenario, seed, progress, watch, sinks, None).map(|(results, _)| results)
}

/// Takers of what a run shows.
pub struct Sinks<'a> {
    /// Takes packets on observed links.
    pub observe: &'a mut dyn FnMut(&Observation),
    /// Takes events of logged connections.
    pub log: &'a mut dyn FnMut(&LogEvent),
}

impl Sinks<'_> {
    fn take(&mut self, record: &mut record::Record) {
        record.observations.drain(..).for_each(|observation| (self.observe)(&observation));
        record.tracer.events.drain(..).for_each(|event| (self.log)(&event));
    }
}

/// Simulates a scenario as [`run_watched`] does, and passes the events of logged connections on; returns the number of flows
/// that were not logged because of the limit too. `make_aqm` makes the AQM of the subject's queue. It decides where the scenario
/// says, whatever the algorithm needs.
///
/// # Errors
/// Those of [`run_watched`]; a scenario whose subject needs an AQM from `make_aqm`, without one.
pub fn run_with(
    scenario: &Scenario,
    seed: u64,
    progress: &Progress,
    watch: &Watch,
    mut sinks: Sinks<'_>,
    make_aqm: Option<MakeAqm<'_>>,
) -> Result<(Results, u64), Error> {
    if let Some(spec) = scenario.subject_aqm().filter(|spec| make_aqm.is_none() && !spec.outside.is_empty()) {
        return Err(Error::Unsupported(format!("the AQM {} is made outside, and was not given", spec.label)));
    }
    let mut engine = build::build(scenario, seed, make_aqm).map_err(Error::Unsupported)?;
    engine.watch(scenario, watch).map_err(Error::NotFound)?;
    let end = Instant::ZERO + scenario.run.warmup + scenario.run.duration;
    progress.end.store(end.as_nanos(), Ordering::Relaxed);
    let finished = engine.run_until(end, |engine| {
        progress.now.store(engine.clock.now().as_nanos(), Ordering::Relaxed);
        sinks.take(&mut engine.record);
        !progress.cancelled.load(Ordering::Relaxed)
    });
    if let Some(why) = engine.fault {
        return Err(Error::Unsupported(why));
    }
    if !finished {
        return Err(Error::Cancelled);
    }
    progress.now.store(end.as_nanos(), Ordering::Relaxed);
    sinks.take(&mut engine.record);
    let names: Vec<_> = engine.apps.traffic.iter().map(|t| t.name.as_str()).collect();
    engine.record.tracer.check(engine.record.recorder.flows(), &names).map_err(Error::NotFound)?;
    engine.end_viewings(end);
    engine.finish(end);
    engine.check().map_err(Error::Inconsistent)?;
    let left_out = engine.record.tracer.left_out();
    let names = engine.apps.traffic.iter().map(|t| t.name.clone()).collect();
    let trace = std::mem::take(&mut engine.record.tracer.rows);
    let counted = (engine.pep_link_counters(), engine.clock.scheduled());
    Ok((results(engine.record.recorder, counted, names, trace, end), left_out))
}

/// The results of a run that ends at `end`: its records, finished, packets on the PEP links, and number of events.
fn results(
    recorder: record::Recorder,
    (pep_link, events): (PepLinkCounters, u64),
    traffic: Vec<String>,
    trace: Vec<TraceRow>,
    end: Instant,
) -> Results {
    let begin = recorder.begin();
    let tables = recorder.into_tables();
    Results {
        traffic,
        places: tables.places,
        begin,
        end,
        series: tables.series,
        drops: tables.drops,
        flows: tables.flows,
        classes: tables.classes,
        class_of: tables.class_of,
        calls: tables.calls,
        viewings: tables.viewings,
        drop_runs: tables.drop_runs,
        terminals: tables.terminals.into_iter().collect(),
        intervals: tables.intervals,
        pages: tables.pages,
        summary: tables.summary,
        back_summary: tables.back_summary,
        filtered_acks: tables.filtered_acks,
        handed_over: tables.handed_over,
        carried: tables.carried,
        pep_link,
        trace,
        events,
    }
}
