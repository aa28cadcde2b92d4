//! Parameters of the analytical models.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::quantity::{Span, Whole};
use crate::model::{Equations, Feedback, Laws, ModelKind};

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
