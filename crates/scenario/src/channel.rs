//! What a link does to packets, once its keys are understood: the channels of the engines are built from these.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// What a channel loses.
#[derive(Clone, Debug, PartialEq)]
pub struct Loss {
    /// By what law.
    pub law: LossLaw,
    /// Of which packets; others pass, and are not counted.
    pub of: LossOf,
    /// Where.
    pub at: LossAt,
}

/// By what law packets are lost.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LossLaw {
    /// Each on its own, with this probability.
    Probability(f64),
    /// Those with these numbers, counted from 1 and rising.
    Nth(Vec<u32>),
}

/// Which packets a channel counts and loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LossOf {
    /// All.
    All,
    /// Those with payload.
    Data,
}

/// Where a channel loses packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LossAt {
    /// Before they enter the queue; where there is none, before they are sent.
    BeforeQueue,
    /// On the way, once they have been sent.
    AfterQueue,
}

impl Loss {
    /// Each packet on its own, on the way.
    #[must_use]
    pub const fn independent(probability: f64) -> Self {
        Self { law: LossLaw::Probability(probability), of: LossOf::All, at: LossAt::AfterQueue }
    }

    /// Whether nothing is ever lost.
    #[must_use]
    pub fn is_none(&self) -> bool {
        match &self.law {
            LossLaw::Probability(p) => *p == 0.0,
            LossLaw::Nth(numbers) => numbers.is_empty(),
        }
    }
}

impl Serialize for Loss {
    /// A number where that says it all.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if let (LossLaw::Probability(p), LossOf::All, LossAt::AfterQueue) = (&self.law, self.of, self.at) {
            return p.serialize(to);
        }
        let mut map = to.serialize_map(Some(3))?;
        map.serialize_entry("law", &self.law)?;
        map.serialize_entry("of", &self.of)?;
        map.serialize_entry("at", &self.at)?;
        map.end()
    }
}
