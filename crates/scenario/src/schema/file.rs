//! The scenario file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::aqm::Aqm;
use super::channel::Carrier;
use super::forms::Named;
use super::gateway::Gateways;
use super::link::Link;
use super::models::Models;
use super::quantity::{Period, Span, Time, Whole};
use super::terminal::{Plan, Pool, Terminal};
use super::thresholds::Thresholds;
use super::traffic::Traffic;
use super::transport::Transport;
use super::{MOST, SECOND};
use crate::model::Printed;

/// A scenario: the network, its traffic and the measurement.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Bentpipe scenario")]
pub struct File {
    /// Title, one line.
    pub title: String,
    /// Description: what the scenario shows.
    pub description: Option<String>,
    /// Source, such as a publication.
    pub source: Option<String>,
    /// Length, sampling and seed of the runs.
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
    /// Satellite carriers that links use, by name.
    #[serde(default)]
    pub carrier: Named<Carrier>,
    /// Groups of terminals of gateways with several, by name.
    #[serde(default)]
    pub terminal: Named<Terminal>,
    /// Plans of terminals and subscribers, by name.
    #[serde(default)]
    pub plan: Named<Plan>,
    /// Pools of the carriers of gateways, by name.
    #[serde(default)]
    pub pool: Named<Pool>,
    /// The gateway, or several with a name each.
    #[serde(default)]
    pub gateway: Gateways,
    /// Transports, by name. Traffic that needs a transport and names none uses the TCP called "default".
    #[serde(default)]
    pub transport: Named<Transport>,
    /// Traffic, by name.
    #[serde(default)]
    pub traffic: Named<Traffic>,
    /// Settings of this scenario, by name: an AQM each, in addition to the presets.
    #[serde(default)]
    #[schemars(schema_with = "crate::schema::algorithms::settings")]
    pub setting: Named<Aqm>,
    /// Limits of good and bad by measure of quality, such as "voice.mos". They change grades only, not the runs.
    #[serde(default, skip_serializing_if = "Thresholds::is_empty")]
    pub thresholds: Thresholds,
    /// Parameters of the analytical models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Models>,
    /// Published values to compare with.
    #[serde(default)]
    pub printed: Vec<Printed>,
}

/// Length, sampling and seed of the runs.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Warm-up: simulated time before the measurement.
    #[serde(default = "Time::just::<0>")]
    pub warmup: Time,
    /// Measured simulated time, after the warm-up.
    pub duration: Span,
    /// Time between two samples of a time series.
    #[serde(default = "Span::just::<{ SECOND / 10 }>")]
    pub sample_interval: Span,
    /// Seed of the random numbers; run i after the first has this seed plus i.
    #[serde(default = "one")]
    pub seed: u64,
    /// Number of runs.
    #[serde(default = "Whole::<1, 10_000>::just::<1>")]
    pub runs: Whole<1, 10_000>,
    /// Settings that a comparison uses if none are named.
    #[serde(default)]
    pub settings: Vec<String>,
    /// Gateway or link whose queue the settings apply to and the metrics describe; "GATEWAY return": the queues at a gateway's
    /// terminals. Default: the only gateway, else the only link that has a queue with an AQM, else the only link that has a
    /// queue.
    pub subject: Option<String>,
}

/// A group of hosts.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Number of hosts.
    #[serde(default = "Whole::<1, MOST>::just::<1>")]
    pub count: Whole<1, MOST>,
    /// Plan of each host as a subscriber of a gateway with `queues_per = "subscriber"`. Default: weight 1, without
    /// committed and peak rate.
    pub plan: Option<String>,
    /// Periodic changes of the address of each host, all at the same times: its connections over QUIC migrate, those over TCP
    /// fail. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address_changes: Option<AddressChanges>,
}

/// Periodic changes of the address of hosts, as at handovers between networks.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddressChanges {
    /// Time between two changes.
    #[serde(default = "Period::just::<{ 15 * SECOND }>")]
    pub interval: Period,
    /// Time of the first change. Default: one interval.
    pub offset: Option<Time>,
}

/// A router. Its queues are those of its links.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Router {}

fn one() -> u64 {
    1
}
