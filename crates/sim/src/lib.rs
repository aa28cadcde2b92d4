//! The packet-level simulator.
//!
//! A run is a [`world`](World): links with their packets, gateways, TCP connections and what uses them, all in flat
//! arrays and named by index, moved by one agenda of typed events. Time is integer nanoseconds, and every random
//! number comes from a stream that hangs on the run's seed and the drawing component's name, so that the same seed
//! gives the same bytes, and two algorithms meet the same traffic.

mod agenda;
mod association;
mod build;
mod circuit;
mod media;
mod network;
mod queued;
mod recorder;
mod traffic;
mod transit;
mod watch;
mod world;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bentpipe_queue::Aqm;
use bentpipe_scenario::Scenario;
use bentpipe_units::Instant;

pub use recorder::{Drops, Flow, PepLinkCounters, REASONS, Series, Summary};
pub use watch::{Ends, Interface, Observation, Packet, Selector, TraceRow, TraceState, Watch, interfaces};

/// Why a run has no results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// It was asked to stop.
    Cancelled,
    /// The scenario asks for more than can be simulated.
    Unsupported(String),
    /// There is not what was to be watched.
    NotFound(String),
    /// A counter identity does not hold: the results cannot be trusted.
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

/// How far a run is, seen from another thread.
#[derive(Debug, Default)]
pub struct Progress {
    now: AtomicU64,
    end: AtomicU64,
    cancelled: AtomicBool,
}

impl Progress {
    /// The share of the simulated time that is done, 0 to 1.
    #[must_use]
    pub fn fraction(&self) -> f64 {
        match self.end.load(Ordering::Relaxed) {
            0 => 0.0,
            end => self.now.load(Ordering::Relaxed) as f64 / end as f64,
        }
    }

    /// Asks the run to stop.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}

/// What a run has found.
#[derive(Debug)]
pub struct Results {
    /// Names of the traffic that [`Flow::traffic`] points at.
    pub traffic: Vec<String>,
    /// Names of the places that [`Drops::place`] points at.
    pub places: Vec<String>,
    /// When measuring began; flows' times count from the run's beginning.
    pub begin: Instant,
    /// When the run ended.
    pub end: Instant,
    /// Time series, the time itself first.
    pub series: Vec<Series>,
    /// Every packet discarded while measuring.
    pub drops: Drops,
    /// Every connection, in the order of opening.
    pub flows: Vec<Flow>,
    /// Runs of consecutive drops at the subject's mark point: length, and how many.
    pub drop_runs: Vec<(u32, u64)>,
    /// The subject's counters over the measured time.
    pub summary: Summary,
    /// What went over the spacelinks.
    pub pep_link: PepLinkCounters,
    /// What the traced flows' senders knew, in the order of time for each.
    pub trace: Vec<TraceRow>,
    /// Events that happened.
    pub events: u64,
}

/// Makes the AQM of a queue; called for each queue that it is to watch.
pub type MakeAqm<'a> = &'a mut dyn FnMut() -> Box<dyn Aqm>;

/// Simulates a scenario with one seed.
///
/// # Errors
/// When `progress` asks for a stop, the scenario is too large, or a counter identity does not hold in the end.
pub fn run(scenario: &Scenario, seed: u64, progress: &Progress) -> Result<Results, Error> {
    run_watched(scenario, seed, progress, &Watch::default(), &mut |_| {})
}

/// Checks that there are the links to be watched, and that packets pass them; whether there are the flows, a run tells.
///
/// # Errors
/// When there are not, or the scenario is too large.
pub fn check_watch(scenario: &Scenario, watch: &Watch) -> Result<(), Error> {
    let mut world = build::build(scenario, scenario.run.seed, None)
        .map_err(|build::Error(why)| Error::Unsupported(why))?;
    world.watch(scenario, watch).map_err(Error::NotFound)
}

/// Simulates a scenario as [`run`] does, with the same results, and shows `see` the packets that pass the watched links,
/// in the order of time.
///
/// # Errors
/// Those of [`run`], and when there is not what is to be watched.
pub fn run_watched(
    scenario: &Scenario,
    seed: u64,
    progress: &Progress,
    watch: &Watch,
    see: &mut dyn FnMut(&Observation),
) -> Result<Results, Error> {
    run_with(scenario, seed, progress, watch, see, None)
}

/// Simulates a scenario as [`run_watched`] does, with an AQM made outside in place of the one that watches the subject's
/// queue. It judges where the scenario says, whatever it needs.
///
/// # Errors
/// Those of [`run_watched`]; that refuses a scenario in which an AQM made outside stands, and nobody makes it.
pub fn run_with(
    scenario: &Scenario,
    seed: u64,
    progress: &Progress,
    watch: &Watch,
    see: &mut dyn FnMut(&Observation),
    make_aqm: Option<MakeAqm<'_>>,
) -> Result<Results, Error> {
    if let Some(spec) = scenario.subject_aqm().filter(|spec| make_aqm.is_none() && !spec.outside.is_empty()) {
        return Err(Error::Unsupported(format!("the AQM {} is made outside, and was not given", spec.label)));
    }
    let mut world =
        build::build(scenario, seed, make_aqm).map_err(|build::Error(why)| Error::Unsupported(why))?;
    world.watch(scenario, watch).map_err(Error::NotFound)?;
    let end = Instant::ZERO + scenario.run.warmup + scenario.run.duration;
    progress.end.store(end.as_nanos(), Ordering::Relaxed);
    let finished = world.run_until(end, |world| {
        progress.now.store(world.now.as_nanos(), Ordering::Relaxed);
        world.observations.drain(..).for_each(|observation| see(&observation));
        !progress.cancelled.load(Ordering::Relaxed)
    });
    if let Some(why) = world.fault {
        return Err(Error::Unsupported(why));
    }
    if !finished {
        return Err(Error::Cancelled);
    }
    progress.now.store(end.as_nanos(), Ordering::Relaxed);
    world.observations.drain(..).for_each(|observation| see(&observation));
    world.check_traced().map_err(Error::NotFound)?;
    world.recorder.finish(end, &world.links, &world.stations);
    world.check().map_err(Error::Inconsistent)?;
    let mut pep_link = PepLinkCounters::default();
    for end in world.stations.iter().flat_map(|s| [&s.near, &s.far]) {
        let stats = end.stats();
        pep_link.sent += stats.sent;
        pep_link.retransmitted += stats.retransmissions;
        pep_link.acks += stats.acks_sent;
    }
    let recorder = world.recorder;
    Ok(Results {
        traffic: world.traffic.into_iter().map(|t| t.name).collect(),
        begin: recorder.begin(),
        end,
        drop_runs: recorder.drop_runs().collect(),
        places: recorder.place_names,
        series: recorder.series,
        drops: recorder.drops,
        flows: recorder.flows,
        summary: recorder.summary,
        pep_link,
        trace: world.tracer.rows,
        events: world.agenda.entered(),
    })
}
