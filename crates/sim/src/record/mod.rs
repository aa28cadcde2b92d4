//! Records of a run: time series, drops, flows, the counters behind the metrics; observed packets and traced senders.

mod bottleneck;
mod drops;
mod flow;
pub mod log;
mod name_list;
pub mod observe;
mod place;
mod probe;
mod recorder;
mod summary;
mod terminal;
pub mod trace;
mod units;

pub use bentpipe_gateway::{Interval, Intervals, Summary};
pub use bentpipe_traffic::dash::{Period, Playback, Rung, Viewing};
pub use bentpipe_traffic::voice::{Call, Voice};
pub use drops::{Drops, LOSS, REASONS, RETRANSMISSION_LIMIT};
pub use flow::Flow;
pub use name_list::NameList;
pub use place::{Parts, PlaceKind};
pub use probe::ProbeSteps;
pub use recorder::{Recorder, Setup};
pub use summary::{Carried, PepLinkCounters};
pub use terminal::{Back, Page, PageTimes, Terminal};
pub use units::{Class, PageLoad};

use observe::Observation;
use trace::Tracer;

/// A quantity sampled at regular times.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name; the place comes first unless it is the subject.
    pub name: String,
    /// One value for each sample; NaN if there was nothing to measure.
    pub values: Vec<f64>,
}

/// All records of a run.
pub struct Record {
    pub recorder: Recorder,
    pub tracer: Tracer,
    /// Observed packets that the caller has not been shown yet.
    pub observations: Vec<Observation>,
}
