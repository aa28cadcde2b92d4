//! How the models see a scenario, once its keys are understood.

use bentpipe_units::Duration;
use serde::{Deserialize, Serialize, Serializer};

use crate::error::Error;
pub use crate::file::{Equations, Feedback, Laws, ModelKind};
use crate::files::{Data, Digest};

/// How the models see the scenario.
#[derive(Clone, Debug, Serialize)]
pub struct Models {
    /// Which model answers; none: what the traffic suggests.
    pub kind: Option<ModelKind>,
    /// Whose fluid equations; none: what the scenario suggests.
    pub equations: Option<Equations>,
    /// When the senders hear of marks; none: as printed.
    pub feedback: Option<Feedback>,
    /// Which fluid laws of AQMs; none: what the equations suggest.
    pub laws: Option<Laws>,
    /// The unit of time of the papers' equations.
    #[serde(serialize_with = "crate::canonical::ns")]
    pub time_unit: Duration,
    /// The step of the integration.
    #[serde(serialize_with = "crate::canonical::ns")]
    pub step: Duration,
    /// How far back the integration remembers.
    #[serde(serialize_with = "crate::canonical::ns")]
    pub history: Duration,
    /// What the fluid equations are driven by; or what is wrong with it, which need not trouble a simulation.
    #[serde(serialize_with = "if_read")]
    pub series: Option<Result<MeasuredSeries, Error>>,
    /// The stages of the Erlang law of service times.
    pub erlang_stages: u32,
    /// The states of the arrivals' Markov chain, where not all.
    pub states: Option<u32>,
}

fn if_read<S: Serializer>(series: &Option<Result<MeasuredSeries, Error>>, to: S) -> Result<S::Ok, S::Error> {
    series.as_ref().and_then(|read| read.as_ref().ok()).serialize(to)
}

/// Series that were measured in a run without AQM and bottleneck, each as a Fourier series ([B07] 4.4).
#[derive(Clone, Debug, Serialize)]
pub struct MeasuredSeries {
    /// After how long they begin again [s].
    pub period: f64,
    /// d(t): from the receive queue to the transmit queue [s].
    pub pep_delay: Fourier,
    /// ω(t): the mean offered load over the offered load.
    pub load_ratio: Fourier,
    /// υ(t): the share of the connections that is new.
    pub new_connections: Option<Fourier>,
    /// What tells the file from every other.
    pub digest: Digest,
}

/// A Fourier series: with the period P, `mean + Σ cos_k cos(2πkt/P) + sin_k sin(2πkt/P)`, k = 1, 2 and so on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fourier {
    /// The mean.
    pub mean: f64,
    /// Of the cosines.
    pub cos: Vec<f64>,
    /// Of the sines; as many.
    pub sin: Vec<f64>,
}

impl Fourier {
    /// One that is always `mean`.
    #[must_use]
    pub const fn constant(mean: f64) -> Self {
        Self { mean, cos: Vec::new(), sin: Vec::new() }
    }
}

/// What messages call such a file.
const SERIES: &str = "measured series, a file of `bentpipe model capture`";

#[derive(Deserialize)]
struct Raw {
    bentpipe: String,
    version: u32,
    interval: f64,
    points: u32,
    pep_delay: Fourier,
    load_ratio: Fourier,
    new_connections: Option<Fourier>,
}

/// Reads measured series.
///
/// # Errors
/// What is wrong with the file, and what is allowed.
pub fn series(data: &Data) -> Result<MeasuredSeries, String> {
    let raw: Raw = serde_json::from_slice(&data.bytes)
        .map_err(|e| format!("{}: found JSON with a mistake, {e}; allowed: {SERIES}", data.name))?;
    if (raw.bentpipe.as_str(), raw.version) != ("measured series", 1) {
        let found = format!("\"{}\", version {}", raw.bentpipe, raw.version);
        return Err(format!("{}: found {found}; allowed: {SERIES}, version 1", data.name));
    }
    let period = raw.interval * f64::from(raw.points);
    if !(period.is_finite() && period > 0.0) {
        let found = format!("{} points at an interval of {} s", raw.points, raw.interval);
        return Err(format!("{}: found {found}; allowed: more than none, further apart than 0 s", data.name));
    }
    let named = [
        ("pep_delay", Some(&raw.pep_delay)),
        ("load_ratio", Some(&raw.load_ratio)),
        ("new_connections", raw.new_connections.as_ref()),
    ];
    for (name, series) in named {
        let Some(series) = series else { continue };
        if series.cos.len() != series.sin.len() {
            let found = format!("{} cosines and {} sines", series.cos.len(), series.sin.len());
            return Err(format!("{}, {name}: found {found}; allowed: as many of each", data.name));
        }
        let mut all = series.cos.iter().chain(&series.sin).chain([&series.mean]);
        if !all.all(|x| x.is_finite()) {
            return Err(format!("{}, {name}: found a number without bound; allowed: finite ones", data.name));
        }
    }
    Ok(MeasuredSeries {
        period,
        pep_delay: raw.pep_delay,
        load_ratio: raw.load_ratio,
        new_connections: raw.new_connections,
        digest: data.digest,
    })
}
