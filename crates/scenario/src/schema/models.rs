//! Parameters of the analytical models.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::quantity::{Span, Whole};
use crate::model::{Equations, Feedback, FluidVariant, ModelKind};

/// Parameters of the analytical models; a simulation ignores them.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Model")]
pub struct Models {
    /// Model. Default: "markov" if all traffic is datagrams, else "fluid".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<ModelKind>,
    /// Fluid: equations. Default: "new_connections" for a gateway whose marks cut windows, "gateway" for any other
    /// gateway, "end_to_end" for a link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub equations: Option<Equations>,
    /// Fluid: delay of the senders' feedback. Default: "round_trip" for the equations "end_to_end", "timeouts" and
    /// "padhye", "none" for the others, as published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feedback: Option<Feedback>,
    /// Fluid: variant of the AQMs' fluid models, as published or as the algorithms act. Default: "actual" for the
    /// equations "end_to_end", and "padhye" on a link, else "printed".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub laws: Option<FluidVariant>,
    /// Fluid: unit of time of the papers' equations.
    pub time_unit: Span,
    /// Fluid: step of the integration.
    pub step: Span,
    /// Fluid: length of the history that the integration keeps; no delay may exceed it.
    pub history: Span,
    /// Fluid: file of measured series that drive the equations, written by `bentpipe model capture`. Default: a
    /// constant load and the mean processing time of the PEP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<String>,
    /// Markov: number k of stages of the Erlang service time distribution.
    pub erlang_stages: Whole<1, 1000>,
    /// Markov: maximum number of states of the arrivals' chain; the last classes are merged to meet it. Default: the
    /// states of all classes.
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
