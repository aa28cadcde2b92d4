//! Parameters of the analytical models.

use bentpipe_units::Duration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::digest::Digest;
use crate::error::Error;

/// Parameters of the analytical models.
#[derive(Clone, Debug, Serialize)]
pub struct Models {
    /// Model; `None` if the traffic determines it.
    pub kind: Option<ModelKind>,
    /// Fluid equations; `None` if the scenario determines them.
    pub equations: Option<Equations>,
    /// Delay of the senders' feedback; `None` for that of the publication.
    pub feedback: Option<Feedback>,
    /// Variant of the AQMs' fluid models; `None` if the equations determine it.
    #[serde(rename = "laws")]
    pub fluid_variant: Option<FluidVariant>,
    /// Unit of time of the papers' equations.
    pub time_unit: Duration,
    /// Step of the integration.
    pub step: Duration,
    /// Length of the history that the integration keeps.
    pub history: Duration,
    /// Measured series that drive the fluid equations, or the error in their file, which does not affect a simulation.
    #[serde(serialize_with = "if_read")]
    pub series: Option<Result<MeasuredSeries, Error>>,
    /// Number of stages of the Erlang service time distribution.
    pub erlang_stages: u32,
    /// Maximum number of states of the arrivals' Markov chain; `None` without a limit.
    pub states: Option<u32>,
}

fn if_read<S: Serializer>(series: &Option<Result<MeasuredSeries, Error>>, to: S) -> Result<S::Ok, S::Error> {
    series.as_ref().and_then(|read| read.as_ref().ok()).serialize(to)
}

/// Kind of analytical model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ModelKind {
    /// Fluid equations.
    Fluid,
    /// Markov-modulated queue.
    Markov,
}

/// Variant of the AQMs' fluid models, where the published one differs from the algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FluidVariant {
    /// As published: RED marks the share that its marking function gives; AVQ's probability rises while its virtual queue is
    /// above a threshold.
    Printed,
    /// As implemented: RED spaces its marks evenly and so marks about twice that share; AVQ marks packets that would overflow
    /// its virtual queue.
    Actual,
}

/// Fluid equations of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Equations {
    /// [B07] 4.4, reconstructed: a gateway with a PEP whose marks drop packets.
    Gateway,
    /// As `gateway`, with retransmission timeouts.
    Timeouts,
    /// [B07] 6.4, reconstructed: a gateway with a PEP whose marks cut windows, and with new connections.
    NewConnections,
    /// [BB] section 6, reconstructed: a single queue modelled as M/M/1.
    SingleQueue,
    /// Misra, Gong & Towsley 2000: a single queue whose marks reach the senders after a round trip that includes the
    /// queueing delay.
    EndToEnd,
    /// As `gateway` or `end_to_end`, with the timeouts of Padhye, Firoiu, Towsley & Kurose 1998.
    Padhye,
}

/// Delay of the senders' feedback in fluid equations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Feedback {
    /// No delay.
    None,
    /// One round trip after the packet was sent.
    RoundTrip,
}

/// Series measured in a run without AQM and bottleneck, each as a Fourier series ([B07] 4.4).
#[derive(Clone, Debug, Serialize)]
pub struct MeasuredSeries {
    /// Period [s].
    pub period: f64,
    /// d(t): delay from the receive queue to the transmit queue [s].
    pub pep_delay: Fourier,
    /// ω(t): ratio of the mean offered load to the offered load.
    pub load_ratio: Fourier,
    /// υ(t): share of new connections.
    pub new_connections: Option<Fourier>,
    /// Identity of the file.
    pub digest: Digest,
}

/// A Fourier series with period P: `mean + Σ cos_k cos(2πkt/P) + sin_k sin(2πkt/P)`, k = 1, 2, ...
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fourier {
    /// Mean.
    pub mean: f64,
    /// Cosine coefficients.
    pub cos: Vec<f64>,
    /// Sine coefficients; as many as cosine coefficients.
    pub sin: Vec<f64>,
}

impl Fourier {
    /// Returns the constant `mean`.
    #[must_use]
    pub const fn constant(mean: f64) -> Self {
        Self { mean, cos: Vec::new(), sin: Vec::new() }
    }
}
