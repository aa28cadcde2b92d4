//! What a link does to packets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::forms::{Either, Share};
use crate::quantity::Whole;

/// What is lost on the way: a probability, or a table that says more.
pub type Loss = Either<Share, LossTable>;

/// What is lost on the way, by one law: `probability` or `nth`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Loss")]
pub struct LossTable {
    /// Probability that a packet is lost, each on its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probability: Option<Share>,
    /// The numbers of the packets that are lost, rising; the first packet over the link in this direction is 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nth: Option<Vec<Whole<1, { u32::MAX }>>>,
    /// Which packets are counted and lost. Absent: "all".
    pub of: Option<LossOfName>,
    /// Where they are lost. Absent: "after_queue".
    pub at: Option<LossAtName>,
}

/// Which packets are counted and lost.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "LossOf")]
pub enum LossOfName {
    /// All.
    All,
    /// Those with payload, sent again or not: no acknowledgements, and no handshakes.
    Data,
}

/// Where packets are lost.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "LossAt")]
pub enum LossAtName {
    /// Before they enter the queue, so that none of them takes room or time.
    BeforeQueue,
    /// On the way, once they have been sent.
    AfterQueue,
}
