//! Algorithms of a queue with their parameters.

use bentpipe_queue::aqm::threshold::{Threshold, Thresholds};
use bentpipe_queue::descriptor::{Algorithm, MarkingMethod, SchedulerAlgorithm};
use bentpipe_queue::{Aqm, ParamError, Values};
use serde::{Serialize, Serializer};

use super::canonical::{algorithm, named, thresholds, values};

/// Name of the algorithm of a queue without an AQM.
pub const NO_AQM: &str = "droptail";

/// An AQM with all parameters.
#[derive(Clone, Debug, Serialize)]
pub struct AqmSpec {
    /// Algorithm.
    #[serde(serialize_with = "algorithm")]
    pub algorithm: &'static Algorithm,
    /// Parameters, defaults filled in; [`Algorithm::build`] has accepted them.
    #[serde(serialize_with = "values")]
    pub values: Values,
    /// Share of the buffer at which threshold control starts; `None` without threshold control.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "thresholds")]
    pub threshold: Option<Thresholds>,
    /// Name in results: the setting's or the preset's, else the algorithm's.
    #[serde(skip)]
    pub label: String,
    /// Parameters that the scenario or the command line sets beside the preset.
    #[serde(skip)]
    pub changed: Vec<String>,
    /// Identity of an AQM that is implemented outside and replaces this one, as keys and values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outside: Vec<(String, String)>,
}

impl AqmSpec {
    /// Returns true if the queue only has its limit.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.algorithm.name == NO_AQM && self.outside.is_empty()
    }

    /// Builds the AQM.
    ///
    /// # Errors
    /// A contradiction between two values, which resolving the scenario has excluded.
    pub fn build(&self) -> Result<Box<dyn Aqm>, ParamError> {
        (self.algorithm.build)(&self.values).map(|aqm| self.controlled(aqm))
    }

    /// Adds threshold control to `aqm` if configured.
    #[must_use]
    pub fn controlled(&self, aqm: Box<dyn Aqm>) -> Box<dyn Aqm> {
        match &self.threshold {
            Some(th) => Box::new(Threshold::new(aqm, th.clone())),
            None => aqm,
        }
    }
}

/// A scheduler with all parameters.
#[derive(Clone, Debug)]
pub struct SchedulerSpec {
    /// Scheduler.
    pub discipline: &'static SchedulerAlgorithm,
    /// Parameters, defaults filled in; [`SchedulerAlgorithm::build`] has accepted them.
    pub values: Values,
}

impl SchedulerSpec {
    /// True if it tells flows apart, so that their packets wait for different times.
    #[must_use]
    pub fn tells_flows_apart(&self) -> bool {
        self.discipline.name != "fifo"
    }
}

impl Serialize for SchedulerSpec {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let values = (!self.discipline.params.is_empty()).then_some(&self.values);
        named("algorithm", self.discipline.name, values, to)
    }
}

/// A marking method with all parameters.
#[derive(Clone, Debug)]
pub struct MarkingSpec {
    /// Method.
    pub method: &'static MarkingMethod,
    /// Parameters, defaults filled in.
    pub values: Values,
}

impl Serialize for MarkingSpec {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let values = (!self.method.params.is_empty()).then_some(&self.values);
        named("method", self.method.name, values, to)
    }
}
