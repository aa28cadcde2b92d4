//! The scenario file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::MOST;
use super::aqm::Aqm;
use super::forms::Named;
use super::gateway::Gateways;
use super::link::{Link, zero};
use super::models::Models;
use super::quantity::{Span, Time, Whole};
use super::traffic::Traffic;
use super::transport::Transport;

/// A scenario: what is simulated, modelled or run.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Bentpipe scenario")]
pub struct File {
    /// What it is, in a line.
    pub title: String,
    /// What it shows, in full.
    pub description: Option<String>,
    /// Where it comes from.
    pub source: Option<String>,
    /// How long to run, and how to measure.
    pub run: Run,
    /// Groups of hosts, by name.
    #[serde(default)]
    pub host: Named<Host>,
    /// Routers, by name.
    #[serde(default)]
    pub router: Named<Router>,
    /// Links, by name.
    #[serde(default)]
    pub link: Named<Link>,
    /// The gateway, or several, each with its own name.
    #[serde(default)]
    pub gateway: Gateways,
    /// Transports, by name. Traffic that needs one and names none has the TCP called "default".
    #[serde(default)]
    pub transport: Named<Transport>,
    /// Traffic, by name.
    #[serde(default)]
    pub traffic: Named<Traffic>,
    /// Settings of this scenario, by name: an AQM each, beside the presets that every scenario knows.
    #[serde(default)]
    #[schemars(schema_with = "crate::schema::algorithms::settings")]
    pub setting: Named<Aqm>,
    /// How the models see the scenario.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Models>,
    /// Printed values to compare with.
    #[serde(default)]
    pub printed: Vec<Printed>,
}

/// How long to run, and how to measure.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Simulated time before anything is measured.
    #[serde(default = "zero")]
    pub warmup: Time,
    /// Simulated time that is measured, after the warm-up.
    pub duration: Span,
    /// Time between two samples of a time series.
    #[serde(default = "sample_interval")]
    pub sample_interval: Span,
    /// Seed of the random numbers; the i-th run after the first has this seed and i.
    #[serde(default = "one")]
    pub seed: u64,
    /// Number of runs.
    #[serde(default = "once")]
    pub runs: Whole<1, 10_000>,
    /// The settings that a comparison takes where none are named.
    #[serde(default)]
    pub settings: Vec<String>,
    /// The gateway or link whose queue the settings apply to and the metrics describe. Absent: the only gateway,
    /// else the only link that has a queue with an AQM, else the only link that has a queue.
    pub subject: Option<String>,
}

/// A group of hosts.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// How many hosts are in it.
    #[serde(default = "single")]
    pub count: Whole<1, MOST>,
}

/// A router: it has no queues of its own, for those are the links'.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Router {}

/// A printed value to compare with.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Printed {
    /// The setting it was measured with.
    pub setting: String,
    /// The metric.
    pub metric: String,
    /// The value, in `unit`.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// Its standard deviation, in `unit`.
    pub std: Option<f64>,
    /// Where it is printed.
    pub source: String,
    /// Whether inputs of this scenario were chosen by looking at it, so that agreement proves nothing.
    #[serde(default)]
    pub calibrated: bool,
}

fn sample_interval() -> Span {
    Span::of(100_000_000)
}

fn one() -> u64 {
    1
}

fn once() -> Whole<1, 10_000> {
    Whole(1)
}

fn single() -> Whole<1, MOST> {
    Whole(1)
}
