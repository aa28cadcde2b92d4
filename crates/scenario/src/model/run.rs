//! Measurement, hosts and reference values.

use bentpipe_units::Duration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::indexes::{GatewayIndex, LinkIndex};

/// Length, sampling and seed of the runs.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Warm-up: simulated time before the measurement.
    pub warmup: Duration,
    /// Measured simulated time, after the warm-up.
    pub duration: Duration,
    /// Time between two samples of a time series.
    pub sample_interval: Duration,
    /// Seed of the first run; run i after it has `seed + i`.
    pub seed: u64,
    /// Number of runs.
    #[serde(skip)]
    pub runs: u32,
    /// Settings that a comparison uses if none are named.
    #[serde(skip)]
    pub settings: Vec<String>,
}

/// A group of hosts.
#[derive(Clone, Debug, Serialize)]
pub struct Host {
    /// Name of the group.
    pub name: String,
    /// Number of hosts.
    pub count: u32,
    /// Changes of the address of each host; `None` if it stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address_changes: Option<AddressChanges>,
}

/// Periodic changes of the address of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AddressChanges {
    /// Time between two changes.
    pub interval: Duration,
    /// Time of the first.
    pub offset: Duration,
}

/// The queue that settings apply to and that metrics describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// The watched queue of a gateway.
    Gateway(GatewayIndex),
    /// The watched queues at the terminals of a gateway.
    Return(GatewayIndex),
    /// The queue of a link's forward direction.
    Link(LinkIndex),
}

/// A published value to compare with.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Printed {
    /// Setting that the value was measured with.
    pub setting: String,
    /// Metric.
    pub metric: String,
    /// Value, in `unit`.
    pub value: f64,
    /// Unit of the value.
    pub unit: String,
    /// Standard deviation, in `unit`.
    pub std: Option<f64>,
    /// Source: where the value is printed.
    pub source: String,
    /// True if inputs of this scenario were fitted to the value, so that agreement is no evidence.
    #[serde(default)]
    pub calibrated: bool,
}
