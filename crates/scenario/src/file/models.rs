//! What a scenario file says to the models.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::{Span, Whole};

/// How the models see the scenario; a simulation does not look at it.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Model")]
pub struct Models {
    /// Which model answers. Absent: "markov" where all traffic is datagrams, else "fluid".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<ModelKind>,
    /// Fluid: whose equations. Absent: "new_connections" for a gateway whose marks cut windows, "gateway" for any other,
    /// "end_to_end" for a link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub equations: Option<Equations>,
    /// Fluid: when the senders hear of marks. Absent: "round_trip" with the equations "end_to_end" and "timeouts", and
    /// "none" with the others, as the papers print them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feedback: Option<Feedback>,
    /// Fluid: the laws of AQMs, as the papers print them or as the algorithms act. Absent: "actual" with the equations
    /// "end_to_end", else "printed".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub laws: Option<Laws>,
    /// Fluid: the unit of time of the papers' equations.
    pub time_unit: Span,
    /// Fluid: the step of the integration.
    pub step: Span,
    /// Fluid: how far back the integration remembers; no delay may be longer.
    pub history: Span,
    /// Fluid: measured series that the equations are driven by, a file of `bentpipe model capture`. Absent: a constant
    /// load and the mean delay of the PEP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<String>,
    /// Markov: k, the stages of the Erlang law of service times.
    pub erlang_stages: Whole<1, 1000>,
    /// Markov: the states of the arrivals' chain, fewer than all classes have together: the last classes are merged until
    /// there are so many. Absent: those of all classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub states: Option<Whole<2, 4096>>,
}

impl Default for Models {
    fn default() -> Self {
        Self {
            kind: None,
            equations: None,
            feedback: None,
            laws: None,
            time_unit: Span::of(100_000_000),
            step: Span::of(1_000_000),
            history: Span::of(10_000_000_000),
            series: None,
            erlang_stages: Whole(4),
            states: None,
        }
    }
}

/// A kind of model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ModelKind {
    /// Fluid equations.
    Fluid,
    /// A Markov-modulated queue.
    Markov,
}

/// Which fluid law of an AQM is meant, where the papers print one that differs from what the algorithm does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Laws {
    /// As printed: RED's marking function is the share that is marked; AVQ's probability rises while its virtual queue is
    /// above a threshold.
    Printed,
    /// As the algorithm acts: RED spreads its marks evenly, and so marks about twice as many; AVQ marks what would overflow
    /// its virtual queue.
    Actual,
}

/// The fluid equations of a paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Equations {
    /// [B07] 4.4, reconstructed: a gateway with a PEP, where marks drop.
    Gateway,
    /// As that, with senders that wait for timeouts.
    Timeouts,
    /// [B07] 6.4, reconstructed: a gateway with a PEP, where marks cut windows and connections come anew.
    NewConnections,
    /// [BB] section 6, reconstructed: one queue as in an M/M/1 system.
    SingleQueue,
    /// Misra, Gong & Towsley 2000: one queue, heard of after a round trip that it is part of.
    EndToEnd,
}

/// When senders hear of marks in fluid equations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Feedback {
    /// At once.
    None,
    /// A round trip after the packet was sent.
    RoundTrip,
}
